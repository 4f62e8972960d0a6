"""Read files that are not trusted: in bounded memory, with errors that name file, place and limit.

A file may be damaged, or made to do harm. Its bytes are read as they are, so that memory is bounded
by its length; what unpacks to more has a limit, see `unpacked_limit`; and whatever a reader meets
becomes one error of this package, see `reading`.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from ..config import config
from ..errors import DataError, MagmagraphError, MissingFileError, message

__all__ = [
    "Archive",
    "Damaged",
    "TooLarge",
    "check_depth",
    "check_length",
    "gunzipped",
    "open_file",
    "parse_json",
    "read_file",
    "reading",
    "too_large",
    "unpacked_limit",
    "unreadable",
]

LARGEST_JSON = 16 << 20  # bytes of one JSON text in a file: a header, a manifest, settings
DEEPEST_JSON = 100  # lists and tables within each other
_RATIO = 64  # times a file's length that its content may unpack to, whatever the setting is


class Damaged(ValueError):
    """The content of a file is not as its format says; `reading` adds the file's name."""


class TooLarge(Damaged):
    """The content of a file is larger than a limit."""

    def __init__(self, what: str, size: int, limit: int, hint: str | None = None) -> None:
        super().__init__(f"{what} has {size} bytes, and the limit is {limit}")
        self.parts = f"{what} has {size} bytes", f"at most {limit}", hint


def unreadable(
    path: str | os.PathLike[str],
    error: OSError,
    kind: type[MagmagraphError] = DataError,
    need: str | None = None,
) -> MagmagraphError:
    """Return the error that says why a file cannot be read."""
    if isinstance(error, FileNotFoundError):
        kind = MissingFileError
    return kind(message(f"{path} cannot be read: {error.strerror or error}", need=need))


@contextlib.contextmanager
def reading(
    path: str | os.PathLike[str],
    what: str,
    kind: type[MagmagraphError] = DataError,
    *,
    need: str | None = None,
    hint: str | None = None,
    passing: type[Exception] | tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Turn whatever reading a file raises into one error that names the file.

    path (path-like): The file.
    what (str): What is wrong where an error is raised: "is truncated, corrupted, or no image".
    kind (type): The class of the error.
    need, hint (str, optional): The further parts of its message.
    passing (type or tuple of types): Errors that are raised as they are, with warnings, and those
        of `kind` that name the file.
    """
    try:
        yield
    except Warning:
        raise
    except passing:
        raise
    except Exception as error:  # what libraries raise for damaged content depends on the damage
        if isinstance(error, kind) and str(path) in str(error):
            raise
        if isinstance(error, OSError) and error.strerror and error.errno:
            raise unreadable(path, error, kind) from error
        if isinstance(error, TooLarge):
            wrong, most, allowed = error.parts
            raise kind(message(f"{path}: {wrong}", need=most, hint=allowed)) from error
        raise kind(message(f"{path} {what}: {_reason(error)}", need=need, hint=hint)) from error


def _reason(error: Exception) -> str:
    """Return what an error says, in words for those that say nothing."""
    if isinstance(error, RecursionError):
        return "its parts are nested too deeply"
    if isinstance(error, MemoryError):
        return f"it takes more memory than there is{f' ({error})' if str(error) else ''}"
    inside = not isinstance(error, MagmagraphError) and isinstance(
        error, (ArithmeticError, AttributeError, LookupError, TypeError)
    )
    if inside or not str(error):
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    return str(error)


@contextlib.contextmanager
def open_file(
    path: str | os.PathLike[str], kind: type[MagmagraphError] = DataError
) -> Iterator[tuple[BinaryIO, int]]:
    """Open a regular file, and give it with its length in bytes.

    A pipe or a device is refused: it may give bytes without an end, or none for ever.

    Raises
    ------
    MissingFileError
        If there is no such file.
    DataError, or `kind`
        If it is none, or cannot be read.
    """
    try:
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        handle = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise unreadable(path, error, kind) from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        folder = stat.S_ISDIR(status.st_mode)
        wrong = "Is a directory" if folder else "it is a pipe or a device"
        raise kind(message(f"{path} cannot be read: {wrong}", need="a file"))
    with open(handle, "rb") as file:
        yield file, status.st_size


def read_file(
    path: str | os.PathLike[str],
    kind: type[MagmagraphError] = DataError,
    limit: int | None = None,
) -> bytes:
    """Return the bytes of a file.

    Raises
    ------
    MissingFileError
        If there is no such file.
    DataError, or `kind`
        If it cannot be read, is longer than `limit`, or does not fit into memory.
    """
    with open_file(path, kind) as (file, length):
        if limit is not None and length > limit:
            raise kind(message(f"{path} has {length} bytes", need=f"at most {limit} bytes"))
        try:
            return file.read(length)
        except OSError as error:
            raise unreadable(path, error, kind) from error
        except MemoryError as error:
            raise kind(
                message(f"{path} has {length} bytes, which do not fit into memory")
            ) from error


def unpacked_limit(length: int) -> int:
    """Return the bytes to which packed content of a file of `length` bytes may unpack.

    ``mg.config.unpacked_size`` (256 MiB unless set), or 64 times the file's length if that is more.
    """
    return max(config.unpacked_size, _RATIO * length)


def too_large(what: str, size: int, limit: int) -> TooLarge:
    """Return the error for content that unpacks to more than the limit."""
    allowed = f"MAGMAGRAPH_UNPACKED_SIZE={size}, for a file that you trust"
    return TooLarge(f"{what}, unpacked,", size, limit, allowed)


def gunzipped(content: bytes, size: Callable[[bytes], int], first: int) -> bytes:
    """Return gzipped content unpacked, where its first bytes say how long it is.

    content (bytes): Of the file.
    size (callable): From the first bytes, the length of all.
    first (int): How many bytes `size` is given.
    returns (bytes): As many as `size` said, or fewer, or one more: the caller compares.
    """
    limit = unpacked_limit(len(content))
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        start = file.read(first)
        stated = size(start)
        if stated > limit:
            raise too_large("its content", stated, limit)
        return start + file.read(max(0, stated + 1 - len(start)))


class Archive:
    """A zip archive, of which no more is unpacked than its limit.

    Members are stored or deflated: other methods unpack in steps of any size.

    file (file object): Of bytes, that can seek.
    length (int): Its length in bytes.
    members (dict of str to zipfile.ZipInfo): By name, in the order of the archive.
    comment (bytes): What follows the archive's directory.
    """

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._zip = zipfile.ZipFile(file)
        self.limit = unpacked_limit(length)
        self._left = self.limit
        self.comment: bytes = self._zip.comment
        self.members: dict[str, zipfile.ZipInfo] = {}
        for entry in self._zip.infolist():
            name = entry.filename
            if name in self.members:
                raise Damaged(f"it has two members {name!r}")
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise Damaged(f"its member {name!r} is neither stored nor deflated")
            if entry.flag_bits & 1:
                raise Damaged(f"its member {name!r} is encrypted")
            if entry.compress_type == zipfile.ZIP_STORED and entry.file_size > length:
                raise Damaged(f"its member {name!r} is longer than the file")
            self.members[name] = entry

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[tuple[BinaryIO, int]]:
        """Open a member, and give it with its length; it counts toward the limit.

        raises Damaged: If all members that were opened are longer than the limit together.
        """
        entry = self.members[name]
        if entry.file_size > self._left:
            size = self.limit - self._left + entry.file_size
            raise too_large(f"all up to member {name!r}", size, self.limit)
        self._left -= entry.file_size
        with self._zip.open(entry) as file:
            yield file, entry.file_size  # type: ignore[misc]

    def read(self, name: str) -> bytes:
        """Return the bytes of a member."""
        with self.open(name) as (file, size):
            content = file.read(size + 1)
        if len(content) != size:
            raise Damaged(f"its member {name!r} has {len(content)} bytes of {size}")
        return content


def check_length(what: str, size: int, limit: int) -> None:
    """Raise `TooLarge` where something has more bytes than its limit."""
    if size > limit:
        raise TooLarge(what, size, limit)


def parse_json(content: bytes | str, what: str) -> Any:
    """Return the value of a JSON text, of at most 16 MiB and 100 levels.

    raises Damaged: If it is longer or deeper, no JSON, or gives a key twice.
    """
    check_length(what, len(content), LARGEST_JSON)
    try:
        value = json.loads(content, object_pairs_hook=_table)
    except RecursionError:
        raise Damaged(f"{what} is nested deeper than {DEEPEST_JSON} levels") from None
    except ValueError as error:
        raise Damaged(f"{what} is no JSON: {error}") from None
    check_depth(value, what)
    return value


def check_depth(value: Any, what: str) -> None:
    """Raise `Damaged` where lists and tables are within each other for more than 100 levels."""
    level = [value]
    for _ in range(DEEPEST_JSON):
        level = [member for part in level for member in _members(part)]
        if not level:
            return
    raise Damaged(f"{what} is nested deeper than {DEEPEST_JSON} levels")


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a table has a key twice")
    return table


def _members(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
