"""Locks on open files, which the system releases when their process ends, however it ends."""

from __future__ import annotations

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

__all__ = ["lock"]


def lock(handle: int) -> bool | None:
    """Lock an open file for this process.

    Returns
    -------
    bool or None
        False where another process has the lock; None where the file system has no locks.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
