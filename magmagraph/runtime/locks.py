"""Locks between processes: one does the work, the others find it done.

A lock is the operating system's, on a file, and ends with the process that holds it, however that
ends: nobody has to clean up after one that was killed. Where a folder or its system knows no such
locks, everyone gets every lock: what they are for is then done more than once, as without them.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..files.trust import make_folder, open_own

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

__all__ = ["Lock"]

_held: set[Lock] = set()


class Lock:
    """A lock on a file, which is there while the lock is held.

    Parameters
    ----------
    path : pathlib.Path
        The file; its folder is made when first needed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, second = Lock(Path(folder) / "lock"), Lock(Path(folder) / "lock")
    ...     print(first.take(), second.take())
    ...     first.release()
    ...     print(second.take())
    ...     second.release()
    True False
    True
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def take(self) -> bool:
        """Take the lock, unless somebody has it, and return whether it could be had."""
        if fcntl is None:
            return True
        try:
            make_folder(self.path.parent)
            file = open_own(self.path, os.O_RDWR | os.O_CREAT)
        except OSError:  # no such folder can be made, or other users can write in it
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        except OSError:
            os.close(file)
            return True
        if os.fstat(file).st_nlink == 0:  # let go of between the two calls: a file of the past
            os.close(file)
            return False
        self._file = file
        _held.add(self)
        return True

    def release(self) -> None:
        """Let it go; without effect where it is not held."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None
        _held.discard(self)


def _leave_to_parent() -> None:
    """In a forked child: locks are the parent's, and have to end with it."""
    for lock in list(_held):
        lock._close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
