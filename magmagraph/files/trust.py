"""Refuse files and folders that another user could have written, or could still change.

Compiled libraries, measured choices and the files by which the ranks of a host see each other are
read back as code or as instructions. They are used only where no other user could have put them
there: every folder on the way belongs to this user or to root and is not writable by others, and
each file is opened without following a link and checked after it is open. Root is trusted, since
root can change this process anyway.

This module needs Python's own library alone: the package's installation uses it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import stat
import threading
from pathlib import Path

__all__ = [
    "Untrusted",
    "UntrustedFile",
    "check_folder",
    "home_cache",
    "make_below",
    "make_folder",
    "make_missing",
    "open_own",
    "read_below",
    "read_installed",
    "temporary_folder",
    "temporary_place",
    "write_below",
]

_CHUNK = 1 << 20  # bytes
_LINKS = 40  # symbolic links on the way to a folder, as in Linux
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
# A pipe or a device is opened without waiting, and recognized when it is open.
_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_USERS = hasattr(os, "geteuid")  # whether files of this system have owners and modes
_serial = itertools.count()


class Untrusted(OSError):
    """A file or folder that another user may have written, or can change."""

    strerror: str

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(errno.EPERM, reason, os.fspath(path))

    def __str__(self) -> str:
        return f"{self.filename} {self.strerror}"


class UntrustedFile(Untrusted):
    """A file that another user may have written, in a folder that is this user's."""


def home_cache() -> Path | None:
    """Return where XDG has caches of this user, or None where the user has no home folder."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(chosen):  # others are to be ignored, by the standard
        return Path(chosen)
    home = os.path.expanduser("~")
    # Users whom the system does not know are at home in the root folder, or nowhere.
    known = os.path.isabs(home) and (home != "/" or os.access(home, os.W_OK))
    return Path(home, ".cache") if known else None


# ---- Folders


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Check that only this user and root can change what a folder holds.

    raises Untrusted: Another user can change the folder, or replace it.
    raises OSError: There is no such folder.
    """
    if _USERS:
        _check_own(_resolved(_absolute(folder)))


def make_folder(folder: str | os.PathLike[str]) -> None:
    """Make a folder that only this user can use, with missing ones above it, and check it.

    raises Untrusted: Another user can change the folder, or replace it.
    raises OSError: It cannot be made.
    """
    try:
        check_folder(folder)
    except FileNotFoundError:
        make_missing(folder)
        check_folder(folder)


def make_missing(folder: str | os.PathLike[str]) -> None:
    """Make a folder, with missing ones above it, that only this user can use; check nothing."""
    above, name = os.path.split(os.path.abspath(folder))
    if name and not os.path.isdir(above):
        make_missing(above)
    _make(os.path.join(above, name))


def temporary_folder(prefix: str = "magmagraph-") -> str:
    """Make a new folder that only this user can use, for files of this process.

    It is made in the system's temporary folder, or in another usual one if other users could
    replace it there.

    raises OSError: No such folder can be made.
    """
    import tempfile

    return tempfile.mkdtemp(prefix=prefix, dir=temporary_place())


def temporary_place() -> str:
    """Return a folder for temporary files in which no other user can replace this user's files.

    raises Untrusted: There is none.
    """
    import tempfile

    usual = tempfile.gettempdir()
    if not _USERS:
        return usual
    refusals = []
    for place in dict.fromkeys((usual, "/tmp", "/var/tmp", "/dev/shm")):
        try:
            _resolved(_absolute(place))
        except OSError as error:
            refusals.append(error)
        else:
            if os.access(place, os.W_OK | os.X_OK):
                return place
    raise refusals[0] if refusals else Untrusted(usual, "cannot be written")


def _absolute(folder: str | os.PathLike[str]) -> str:
    path = os.fspath(folder)
    return path if path.startswith("/") else os.path.abspath(path)


def _make(path: str) -> None:
    """Make a folder of mode 0700, whatever the umask; another process may make it first."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None


@functools.lru_cache(maxsize=64)
def _resolved(path: str) -> str:
    """Return an absolute path without links, after a check of each folder and link on the way."""
    current, links = "/", 0
    left = [part for part in path.split("/") if part not in ("", ".")]
    _check_above(current, os.lstat(current))
    while left:
        part = left.pop(0)
        if part == "..":
            current = os.path.dirname(current)
            continue
        step = os.path.join(current, part)
        status = os.lstat(step)
        if not stat.S_ISLNK(status.st_mode):
            _check_above(step, status)
            current = step
            continue
        links += 1
        if links > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        _check_owner(step, status)
        target = os.readlink(step)
        left[:0] = [part for part in target.split("/") if part not in ("", ".")]
        if target.startswith("/"):
            current = "/"
    return current


def _check_above(path: str, status: os.stat_result) -> None:
    """Check a folder on the way: others may write in it where they cannot replace, as in /tmp."""
    if status.st_uid != _unmapped():
        _check_owner(path, status)
    others = status.st_mode & _OTHERS
    if others == stat.S_IWGRP and _is_private_group(status.st_gid):
        return
    if others and not status.st_mode & stat.S_ISVTX:
        raise Untrusted(path, f"can be changed by other users ({_mode(status)})")


def _check_own(path: str) -> None:
    """Check a folder that nobody else may write in."""
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise Untrusted(path, "is no folder")
    _check_owner(path, status)
    _check_mode(path, status)


def _check_owner(path: str, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise Untrusted(path, f"belongs to {_user(status.st_uid)}")


def _check_mode(path: str, status: os.stat_result) -> None:
    if status.st_mode & _OTHERS:
        raise Untrusted(path, f"can be written by other users ({_mode(status)})")


def _mode(status: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(status.st_mode):04o}"


def _user(number: int) -> str:
    """Return a user's name for people."""
    try:
        import pwd

        return f"the user {pwd.getpwuid(number).pw_name}"
    except (ImportError, KeyError):
        return f"the user {number}"


def _is_private_group(number: int) -> bool:
    """Return whether a group has this user alone, as systems give each user one."""
    try:
        import grp
        import pwd

        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except (ImportError, KeyError):
        return False
    alone = set(group.gr_mem) <= {user.pw_name}
    return alone and (group.gr_gid, group.gr_name) == (user.pw_gid, user.pw_name)


@functools.cache
def _unmapped() -> int:
    """Return the user that stands for all that this container does not know; -1 without one.

    Root's folders of the host, for instance /home, have this owner in a container without root.
    """
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            ranges = [tuple(map(int, line.split())) for line in file]
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
            number = int(file.read())
    except (OSError, ValueError):
        return -1
    known = any(first <= number < first + count for first, _, count in ranges)
    return -1 if known else number


# ---- Files


def open_own(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Open a regular file of this user or root that nobody else can write; no link is followed.

    path (path): The file.
    flags, mode (int): As for :func:`os.open`.
    returns (int): A descriptor.
    raises UntrustedFile: It is a link, a pipe or another thing than a file, or other users can
        write it.
    raises OSError: It cannot be opened.
    """
    try:
        file = os.open(path, flags | _SAFELY, mode)
    except ValueError as error:  # a zero byte in the name
        raise OSError(errno.EINVAL, str(error), os.fspath(path)) from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise UntrustedFile(path, "is a symbolic link") from None
        if error.errno == errno.ENXIO:
            raise UntrustedFile(path, "is no regular file") from None
        raise
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise UntrustedFile(path, "is no regular file")
        if _USERS:
            _check_owner(os.fspath(path), status)
            _check_mode(os.fspath(path), status)
    except Untrusted as refusal:
        os.close(file)
        raise UntrustedFile(path, refusal.strerror) from None
    return file


def read_below(
    base: str | os.PathLike[str], path: str | os.PathLike[str]
) -> tuple[bytes, os.stat_result]:
    """Return the content of a file in a folder, and its status.

    base (path): The folder that is checked with all above it.
    path (path): A file in it, or in folders of it, which are checked, too; it begins with `base`.
    raises Untrusted: Another user could have written it.
    raises OSError: It cannot be read.
    """
    check_folder(base)
    name = os.fspath(path)
    if _USERS:
        for folder in _between(base, name):
            _check_own(folder)
    file = open_own(name, os.O_RDONLY)
    try:
        status = os.fstat(file)
        parts = [os.read(file, status.st_size + 1)]
        while parts[-1]:
            parts.append(os.read(file, _CHUNK))
    finally:
        os.close(file)
    return b"".join(parts), status


def write_below(
    base: str | os.PathLike[str], path: str | os.PathLike[str], data: bytes
) -> None:
    """Write a whole file into a folder, for this user alone, or leave what was there.

    base, path (path): As of `read_below`; missing folders are made.
    data (bytes): The content.
    raises Untrusted: Other users can write in one of the folders.
    raises OSError: It cannot be written.
    """
    make_below(base, path)
    folder, name = os.path.split(path)
    writer = f"{os.getpid()}.{threading.get_ident()}.{next(_serial)}"
    partial = os.path.join(folder, f".{name}.{writer}.tmp")
    try:
        with open(open_own(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
        raise


def make_below(base: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Make and check the folders from a folder down to a file."""
    make_folder(base)
    for folder in _between(base, os.fspath(path)):
        _make(folder)
        if _USERS:
            _check_own(folder)


def _between(base: str | os.PathLike[str], path: str) -> list[str]:
    """Return the folders between a folder and a file in it, from above."""
    places = []
    end = path.find("/", len(os.fspath(base)) + 1)
    while end > 0:
        places.append(path[:end])
        end = path.find("/", end + 1)
    return places


def read_installed(path: Path) -> bytes:
    """Return the content of a file that was installed with the package.

    Who could have written it could have written the package's own modules: it belongs to this
    user, to root or to the owner of the package, and no more users can write it and its folder
    than can write the package.

    raises Untrusted: Another user could have written it.
    raises OSError: It cannot be read.
    """
    flags = os.O_RDONLY | _SAFELY & ~getattr(os, "O_NOFOLLOW", 0)  # installers make links
    try:
        file = os.open(path, flags)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    with open(file, "rb") as content:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise Untrusted(path, "is no regular file")
        if _USERS:
            package = os.stat(__file__)
            for place, known in ((path.parent, os.stat(path.parent)), (path, status)):
                if known.st_uid not in (os.geteuid(), 0, package.st_uid):
                    raise Untrusted(place, f"belongs to {_user(known.st_uid)}")
                if known.st_mode & _OTHERS & ~package.st_mode:
                    raise Untrusted(place, f"can be written by other users ({_mode(known)})")
        return content.read()
