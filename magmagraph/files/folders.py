"""Temporary folders with an owner: what a process that was killed leaves, a later one removes.

A folder holds a file that its owner has locked. Where the lock is free, the owner has ended.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import stat
from pathlib import Path

from .locking import lock

__all__ = ["claim_folder", "release_folder"]

PREFIX = "magmagraph-"
_OWNER = ".owner"
_claimed: dict[str, int] = {}


def claim_folder(folder: str | os.PathLike[str]) -> None:
    """Make this process the owner of a new temporary folder, named ``magmagraph-`` and more.

    The first call also removes folders in the same place whose owners have ended.

    raises OSError: If the folder cannot be written.
    """
    path = os.path.abspath(folder)
    _remove_abandoned(os.path.dirname(path))
    # Locked before it has its name: whoever finds it unlocked knows that its owner has ended.
    file = os.path.join(path, f".{secrets.token_hex(8)}")
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    if lock(handle):
        os.rename(file, os.path.join(path, _OWNER))
        _claimed[path] = handle
    else:  # there are no locks here, and nobody will remove the folder
        os.close(handle)
        os.unlink(file)


def release_folder(folder: str | os.PathLike[str]) -> None:
    """Give up a folder that this process has removed, or is about to remove."""
    handle = _claimed.pop(os.path.abspath(folder), None)
    if handle is not None:
        os.close(handle)


@functools.cache
def _remove_abandoned(place: str) -> None:
    """Remove folders of this user whose owners have ended."""
    if not hasattr(os, "geteuid"):
        return
    with os.scandir(place) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(PREFIX)]
    for name in names:
        with contextlib.suppress(OSError):  # another process removes it, or owns it
            _remove_if_abandoned(Path(place, name))


def _remove_if_abandoned(folder: Path) -> None:
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return
    handle = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode) and lock(handle):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
