"""The disk cache: compiled kernels and tuning choices, shared by processes without a lock.

Values are kept by content. A value lies in a file that is named by its own SHA-256 digest, and
a key is a small file that holds such a digest. Both are written beside their place and renamed
into it, so that a reader sees an old file, a new file or none, and never half of one; and since
the name of a value is its checksum, whatever was damaged on the disk is noticed when it is read.

What is read here is run, so that only this user and root may be able to write it (`trust`). A
folder that other users can change is not used at all; a file of another user is treated as damaged.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import json
import os
import re
import stat
import time
import warnings
from pathlib import Path
from typing import Any

from ..config import config
from ..errors import CacheWarning, ConfigError, StorageError, message
from ..files.folders import claim_folder
from ..files.trust import (
    Untrusted,
    UntrustedFile,
    home_cache,
    read_below,
    temporary_folder,
    write_below,
)
from .keys import content_key

__all__ = [
    "Choices",
    "DiskCache",
    "cache_directory",
    "cache_limit",
    "content_key",
    "default_cache",
    "default_choices",
]

DEFAULT_LIMIT = 1 << 30
CHOICES = "measured"  # the folder of choices; an earlier one, `choices`, had no digests
_HOUR = 3600.0
_NAME = re.compile(r"([0-9a-f]{64})(\.[a-z]{1,8})?")  # of a value: its digest, and a suffix
_unusable: set[Path] = set()


def cache_directory() -> Path:
    """Return the folder that holds the cache.

    Returns
    -------
    pathlib.Path
        ``mg.config.cache_dir``, else ``MAGMAGRAPH_CACHE_DIR``, else ``magmagraph`` in
        ``XDG_CACHE_HOME``, else ``~/.cache/magmagraph``. It need not exist yet. For a user without
        a home folder it is a folder of this process, and a :class:`~magmagraph.CacheWarning` says
        so.

    Raises
    ------
    ConfigError
        The folder that is set begins with the home folder of a user who has none.
    """
    chosen = config.cache_dir or os.environ.get("MAGMAGRAPH_CACHE_DIR")
    if chosen:
        try:
            return Path(chosen).expanduser().absolute()
        except RuntimeError as error:
            raise ConfigError(
                message(
                    f"the cache folder is set to {chosen!r}: {error}",
                    need="the path of a folder",
                    hint="set MAGMAGRAPH_CACHE_DIR to a path that begins with /",
                )
            ) from None
    shared = home_cache()
    return _folder_without_home() if shared is None else shared / "magmagraph"


@functools.cache
def _folder_without_home() -> Path:
    warnings.warn(
        message(
            "this user has no home folder",
            need="a folder in which compiled kernels can be kept",
            hint="set MAGMAGRAPH_CACHE_DIR to one; until then every process compiles its kernels",
        ),
        CacheWarning,
        stacklevel=5,
    )
    return private_directory()


def cache_limit() -> int:
    """Return the bytes that the cache may take: ``MAGMAGRAPH_CACHE_SIZE``, 1 GiB unless set.

    ``mg.config.cache_size`` comes first.

    Raises
    ------
    ConfigError
        Where the variable is not a whole number of at least zero.
    """
    if config.cache_size is not None:
        return config.cache_size
    text = os.environ.get("MAGMAGRAPH_CACHE_SIZE")
    if text is None:
        return DEFAULT_LIMIT
    try:
        limit = int(text)
    except ValueError:
        limit = -1
    if limit < 0:
        raise ConfigError(
            message(
                f"MAGMAGRAPH_CACHE_SIZE is {text!r}",
                need="a whole number of bytes, 0 or more",
                hint=f"MAGMAGRAPH_CACHE_SIZE={DEFAULT_LIMIT}",
            )
        )
    return limit


def _warn_unusable(directory: Path, error: OSError | str) -> None:
    """Warn that a folder cannot be used, once for all folders with the same cause."""
    cause = directory
    if isinstance(error, Untrusted):
        cause = Path(error.filename)
    while not cause.exists() and cause != cause.parent:
        cause = cause.parent
    trouble = directory if cause.is_relative_to(directory) else cause
    if trouble in _unusable:
        return
    _unusable.add(trouble)
    need = "a folder that this user may write to and load libraries from"
    hint = "set MAGMAGRAPH_CACHE_DIR to one"
    if isinstance(error, Untrusted):
        need = "a folder that this user or root owns and no other user can change"
        if cause.is_relative_to(directory) and cause.stat().st_uid == os.geteuid():
            hint += f", or remove {cause}, since others may have written what is in it"
    warnings.warn(
        message(
            f"the cache folder {directory} cannot be used ({error})",
            need=need,
            hint=f"{hint}; until then every process compiles its kernels",
        ),
        CacheWarning,
        stacklevel=5,
    )


def _remove_at_exit(directory: str, owner: int) -> None:
    """Remove a private folder; a forked child leaves its parent's alone."""
    if os.getpid() == owner:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)


def private_directory() -> Path:
    """Return a new folder of this process alone, removed when it ends."""
    directory = temporary_folder()
    atexit.register(_remove_at_exit, directory, os.getpid())
    claim_folder(directory)
    return Path(directory)


class DiskCache:
    """Bytes by key in a folder, bounded in size, safe between processes.

    Where the folder cannot be written, or other users can change it, one
    :class:`~magmagraph.CacheWarning` says so, and a private folder, removed at the end of the
    process, takes what is put.

    Parameters
    ----------
    directory : pathlib.Path or str, optional
        The folder, made when first needed; :func:`cache_directory` unless given.
    limit : int, optional
        Bytes above which the values used longest ago are removed; :func:`cache_limit` unless
        given.

    Examples
    --------
    >>> cache = DiskCache(private_directory())
    >>> key = content_key("the source", "the flags")
    >>> cache.put(key, b"machine code")
    >>> cache.get(key)
    b'machine code'
    """

    def __init__(self, directory: Path | str | None = None, limit: int | None = None) -> None:
        self.directory = cache_directory() if directory is None else Path(directory)
        self.limit = cache_limit() if limit is None else limit
        self._private: DiskCache | None = None
        self._warned = False
        # The first write looks at the size once, later ones after each 32nd of the limit.
        self._unmeasured = self.limit

    def get(self, key: str) -> bytes | None:
        """Return the bytes kept under `key`, or None where there are none, or damaged ones."""
        entry = self._lookup(key)
        return None if entry is None else entry[1]

    def get_file(self, key: str) -> Path | None:
        """Return the file that holds the bytes of `key`, read and found undamaged, or None."""
        entry = self._lookup(key)
        return None if entry is None else entry[0]

    def put(self, key: str, data: bytes) -> None:
        """Keep `data` under `key`."""
        self.put_file(key, data)

    def put_file(self, key: str, data: bytes, suffix: str = "") -> Path:
        """Keep `data` under `key` in a file whose name ends in `suffix`, and return the file.

        Parameters
        ----------
        key : str
            From :func:`content_key`.
        data : bytes
            The content.
        suffix : str
            For those who look at names, such as a dynamic loader: ``".so"``.

        Raises
        ------
        OSError
            Where neither the folder of the cache nor the system's temporary folder can be
            written.
        """
        if self._private is not None:
            return self._private.put_file(key, data, suffix)
        digest = hashlib.sha256(data).hexdigest()
        path = self._value_path(digest, suffix)
        try:
            # Written even where it exists: what is there may be damaged.
            write_below(self.directory, path, data)
            write_below(self.directory, self._key_path(key), (digest + suffix).encode())
        except OSError as error:
            self.abandon(error)
            return self.put_file(key, data, suffix)
        self._unmeasured += len(data) + len(digest)
        if self._unmeasured > self.limit // 32:
            self._unmeasured = 0
            self._trim(keep=path)
        return Path(path)

    def abandon(self, error: OSError) -> None:
        """Write to a private folder from now on, and warn once."""
        if self._private is None:
            _warn_unusable(self.directory, error)
            self._private = _PrivateCache(_private_directory(), self.limit)

    # Places are text: a path object for each takes as long as opening the file.

    def _key_path(self, key: str) -> str:
        return f"{self.directory}/keys/{key[:2]}/{key}"

    def _value_path(self, digest: str, suffix: str) -> str:
        return f"{self.directory}/values/{digest[:2]}/{digest}{suffix}"

    def _lookup(self, key: str) -> tuple[Path, bytes] | None:
        if self._private is not None:
            kept = self._private._lookup(key)
            if kept is not None:
                return kept
        try:
            return self._read(key)
        except UntrustedFile as error:
            self._warn_damaged(error.filename, error.strerror)
        except Untrusted as error:
            _warn_unusable(self.directory, error)
        except OSError:  # it was never put, or evicted
            pass
        return None

    def _read(self, key: str) -> tuple[Path, bytes] | None:
        """Return a value's file and content, or None where it is damaged."""
        pointer, _ = read_below(self.directory, self._key_path(key))
        name = _NAME.fullmatch(pointer.decode("ascii", "replace"))
        if name is None:
            self._warn_damaged(self._key_path(key), "it names no value")
            return None
        path = self._value_path(name[1], name[2] or "")
        data, status = read_below(self.directory, path)
        if hashlib.sha256(data).hexdigest() != name[1]:
            self._warn_damaged(path, "its content does not fit its checksum")
            return None
        now = time.time()
        if now - status.st_mtime > _HOUR:
            with contextlib.suppress(OSError):  # a cache that may only be read serves as well
                os.utime(path)
        return Path(path), data

    def _warn_damaged(self, path: str | Path, reason: str) -> None:
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            message(
                f"the cached file {path} is damaged: {reason}",
                hint="nothing: it is written again; if this repeats, check the disk",
            ),
            CacheWarning,
            stacklevel=5,
        )

    def _trim(self, keep: str) -> None:
        """Remove the values used longest ago, and their keys, until three quarters are left.

        The value just put stays, whatever its size: its caller is about to open it.
        """
        values, keys = _files(self.directory / "values"), _files(self.directory / "keys")
        total = sum(size for _, size, _ in (*values, *keys))
        if total <= self.limit:
            return
        names = {path.name for _, _, path in values}
        named: dict[str, list[tuple[int, Path]]] = {}
        for _, size, path in keys:
            with contextlib.suppress(OSError):
                name = path.read_bytes().decode("ascii", "replace")
                if name in names:
                    named.setdefault(name, []).append((size, path))
                else:
                    path.unlink()
                    total -= size
        for _, size, path in sorted(values):
            if total <= self.limit * 3 // 4:
                break
            if str(path) == keep:
                continue
            for taken, file in (*named.get(path.name, ()), (size, path)):
                with contextlib.suppress(OSError):  # another process may have removed it
                    file.unlink()
                total -= taken
        for _, size, path in sorted(keys)[:-1]:  # of the values that stay: one may have many
            if total <= self.limit * 3 // 4:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size


def _files(folder: Path) -> list[tuple[float, int, Path]]:
    """Return time, bytes and path of the files in a folder; what killed writers left is removed."""
    files = []
    now = time.time()
    for inner, _, names in os.walk(folder):
        for name in names:
            path = Path(inner, name)
            with contextlib.suppress(OSError):
                status = path.lstat()
                if not stat.S_ISREG(status.st_mode):
                    continue
                if not name.endswith(".tmp"):
                    files.append((status.st_mtime, status.st_size, path))
                elif now - status.st_mtime > _HOUR:
                    path.unlink()
    return files


class _PrivateCache(DiskCache):
    """The cache of a process whose own folder cannot be used: there is no other one after it."""

    def abandon(self, reason: Any) -> None:
        """Raise: the system's temporary folder cannot be written either."""
        raise _nowhere(self.directory, reason)


def _private_directory() -> Path:
    try:
        return private_directory()
    except OSError as error:
        raise _nowhere("the system's temporary folder", error) from error


def _nowhere(place: Any, reason: Any) -> StorageError:
    return StorageError(
        message(
            f"compiled kernels can be kept nowhere: {place} cannot be written ({reason})",
            need="room in the cache folder, or in the system's temporary folder",
            hint="make room there, or set MAGMAGRAPH_CACHE_DIR to a folder with room",
        )
    )


class Choices:
    """What was chosen by measurement, by key: one small file a key, and a copy in memory.

    A file holds the digest of its key and choice. A damaged file gives one
    :class:`~magmagraph.CacheWarning`, and the choice is made again.

    Parameters
    ----------
    directory : pathlib.Path or str, optional
        The folder, made when first needed; ``measured`` in :func:`cache_directory` unless given.

    Examples
    --------
    >>> choices = Choices(private_directory())
    >>> choices.get("gemv or kernel, 1000x10 float32") is None
    True
    >>> choices.set("gemv or kernel, 1000x10 float32", "gemv")
    >>> choices.get("gemv or kernel, 1000x10 float32")
    'gemv'
    """

    def __init__(self, directory: Path | str | None = None) -> None:
        # The folder that is checked with all above it; the other one is in it.
        self._base = cache_directory() if directory is None else Path(directory)
        self.directory = self._base / CHOICES if directory is None else self._base
        self._known: dict[str, Any] = {}
        self._warned = False

    def get(self, key: str) -> Any:
        """Return the choice of `key`, or None where none was made."""
        if key in self._known:
            return self._known[key]
        record = self._read(self._path(key))
        if record is None:
            return None
        self._known[key] = record["choice"]
        return record["choice"]

    def set(self, key: str, choice: Any) -> None:
        """Keep a choice, of JSON's types, for this and later processes."""
        self._known[key] = choice
        record = {"key": key, "choice": choice, "digest": ""}
        record = json.loads(json.dumps(record))  # what will be read: a tuple becomes a list
        record["digest"] = _digest(key, record["choice"])
        text = json.dumps(record, sort_keys=True)
        try:
            write_below(self._base, self._path(key), text.encode())
        except OSError as error:
            _warn_unusable(self.directory, error)

    def items(self) -> dict[str, Any]:
        """Return every choice that is kept, those of other processes included."""
        choices: dict[str, Any] = {}
        if self.directory.is_dir():
            for path in sorted(self.directory.glob("*.json")):
                record = self._read(path)
                if record is not None:
                    choices[record["key"]] = record["choice"]
        return choices | self._known

    def _path(self, key: str) -> Path:
        return self.directory / (content_key(key)[:40] + ".json")

    def _read(self, path: Path) -> dict[str, Any] | None:
        """Return the record of a file, or None where it is missing, damaged or not trusted."""
        try:
            text, _ = read_below(self._base, path)
        except UntrustedFile as error:
            self._warn_damaged(path, error.strerror)
            return None
        except Untrusted as error:
            _warn_unusable(self.directory, error)
            return None
        except OSError:
            return None
        try:
            record = json.loads(text)
            key, choice, digest = record["key"], record["choice"], record["digest"]
        except (ValueError, TypeError, KeyError, RecursionError):
            self._warn_damaged(path, "it is no record of a choice")
            return None
        if digest == _digest(key, choice) and path == self._path(key):
            return {"key": key, "choice": choice}
        self._warn_damaged(path, "its content does not fit its checksum")
        return None

    def _warn_damaged(self, path: str | Path, reason: str) -> None:
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            message(
                f"the tuning choice in {path} is damaged: {reason}",
                hint="nothing: it is written again; if this repeats, check the disk",
            ),
            CacheWarning,
            stacklevel=4,
        )


def _digest(key: Any, choice: Any) -> str:
    """Return the digest of a choice with its key, which both are of JSON's types."""
    return content_key(json.dumps([key, choice], sort_keys=True))


_opened: dict[tuple[type, Path], Any] = {}


def default_cache() -> DiskCache:
    """Return the cache in :func:`cache_directory`, one object a folder."""
    directory = cache_directory()
    cache: DiskCache = _opened.setdefault((DiskCache, directory), DiskCache(directory))
    cache.limit = cache_limit()
    return cache


def default_choices() -> Choices:
    """Return the choices kept in :func:`cache_directory`, one object a folder."""
    choices: Choices = _opened.setdefault((Choices, cache_directory()), Choices())
    return choices
