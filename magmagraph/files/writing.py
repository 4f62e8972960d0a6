"""Replace a file whole, or leave it as it was: every file that is written for users.

The content goes into a new file in the same folder, is flushed to the disk, takes the name of the
old file in one step, and then the folder is flushed. Whoever reads, and whoever starts after a loss
of power, has the old file or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from ..errors import MagmagraphError, PathError, StorageError, message
from .locking import lock

__all__ = ["flush_folder", "replace_file", "storage_errors", "write_file"]

_PARTIAL = re.compile(r"[0-9a-f]{16}\.part")
_DESCRIPTOR = re.compile(r"/dev/(stdin|stdout|stderr|fd(/|$))|/proc/")
_STEM = 50  # characters of a file's name that its partial file has, too
_TRIES = 100
# Systems that cannot flush a folder, or do not let this user open it, say so by these.
_NO_FOLDER_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)


@contextlib.contextmanager
def replace_file(path: str | os.PathLike[str], size: int | None = None) -> Iterator[Path]:
    """Give the path of a new file to write, which replaces `path` when the block ends well.

    A new file has the permissions that the umask gives it, an existing one keeps its own. Where
    `path` is a symbolic link it stays, and the file that it names is written. Files that writers of
    the same file left when they were killed are removed.

    path (path-like): The file.
    size (int, optional): The bytes to be written, for the message where there is no room.
    raises PathError: If there is no such folder, or `path` is a folder, a pipe or a device.
    raises StorageError: If the disk is full or refuses. `path` is as it was, and the new file is
        removed.

    Yields
    ------
    Path
        A file in the same folder, empty, to be opened by its name.
    """
    place = Path(path)
    target = _target(place)
    with storage_errors(place, size):
        _remove_partial_files(target)
        partial, handle, mode = _partial_file(target)
        try:
            yield partial
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            os.chmod(partial, mode)
            os.replace(partial, target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
        flush_folder(target.parent)


@contextlib.contextmanager
def storage_errors(place: Path, size: int | None = None) -> Iterator[None]:
    """Turn what the system says of a file that cannot be written into a `StorageError`."""
    try:
        yield
    except MagmagraphError:
        raise
    except OSError as error:
        raise _not_written(place, error, size) from error


def write_file(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Replace a file by one with this content; text is written in UTF-8. See `replace_file`."""
    data = content.encode() if isinstance(content, str) else content
    with replace_file(path, len(data)) as partial:
        partial.write_bytes(data)


def flush_folder(folder: Path) -> None:
    """Flush a folder, so that the names in it survive a loss of power."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        if error.errno in _NO_FOLDER_FLUSH:
            return
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_FLUSH:
            raise
    finally:
        os.close(handle)


def _not_written(place: Path, error: OSError, size: int | None) -> StorageError:
    """Return the error of a file that cannot be written."""
    room = "room" if size is None else f"{size} bytes"
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(place.parent).free
        room += f" in {str(place.parent)!r}, where {free} bytes are free"
    storage_error = StorageError(
        message(
            f"{str(place)!r} cannot be written: {error.strerror or error}",
            need=room,
            hint="make room there, or write elsewhere"
            + ("; the file that was there is whole" if place.exists() else ""),
        )
    )
    storage_error.errno = error.errno
    return storage_error


def _target(place: Path) -> Path:
    """Return the file that is replaced: the one that a link names."""
    if _DESCRIPTOR.match(os.path.abspath(place)):
        raise PathError(
            message(
                f"{str(place)!r} is no file, but what this process has open",
                need="the path of a file",
            )
        )
    target = Path(os.path.realpath(place))
    if not target.parent.is_dir():
        folder = place.parent if not place.is_symlink() else target.parent
        raise PathError(
            message(
                f"{place} cannot be written: there is no folder {folder}",
                hint=f"os.makedirs({str(folder)!r})",
            )
        )
    try:
        mode = os.lstat(target).st_mode
    except OSError:
        return target  # a new file, or an error that creating it will give
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no file, but a link, a pipe or a device"
        raise PathError(message(f"{str(place)!r} is {kind}", need="the path of a file"))
    return target


def _stem(target: Path) -> str:
    return f".{target.name[:_STEM]}."


def _partial_file(target: Path) -> tuple[Path, int, int]:
    """Return a new file beside `target`, locked, its descriptor, and the mode it ends with."""
    try:
        old: os.stat_result | None = target.stat()
    except FileNotFoundError:
        old = None
    for _ in range(_TRIES):
        partial = target.with_name(f"{_stem(target)}{secrets.token_hex(8)}.part")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        handle = os.open(partial, flags, 0o666 if old is None else 0o600)
        try:
            # Another writer may take the file for a leftover before it is locked.
            if lock(handle) is False or os.fstat(handle).st_nlink == 0:
                os.close(handle)
                continue
            if old is None:
                mode = stat.S_IMODE(os.fstat(handle).st_mode)
                os.chmod(partial, mode | 0o600)  # this process opens it again, by its name
            else:
                mode = stat.S_IMODE(old.st_mode)
                _keep_owner(partial, old)
        except BaseException:
            os.close(handle)
            partial.unlink(missing_ok=True)
            raise
        return partial, handle, mode
    raise OSError(errno.EAGAIN, "a new file is removed again and again by another process")


def _keep_owner(partial: Path, old: os.stat_result) -> None:
    """Give a new file the owner and the group of the old one, where this user may do that."""
    new = partial.stat()
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(PermissionError):
            os.chown(partial, old.st_uid if new.st_uid != old.st_uid else -1, old.st_gid)


def _remove_partial_files(target: Path) -> None:
    """Remove files of writers of `target` that were killed: nobody has a lock on them."""
    stem = _stem(target)
    with os.scandir(target.parent) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(stem)]
    for name in names:
        if _PARTIAL.fullmatch(name, len(stem)):
            _remove_unlocked(target.with_name(name))


def _remove_unlocked(path: Path) -> None:
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | getattr(os, "O_CLOEXEC", 0)
    try:
        handle = os.open(path, flags)
    except OSError:  # it is gone by now, or belongs to another user
        return
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode) and lock(handle):
            with contextlib.suppress(OSError):  # a folder in which only owners may remove files
                path.unlink()
    finally:
        os.close(handle)
