"""Locks that neither a signal handler nor a forked child can hang on.

A handler, a finalizer or a callback may run between any two instructions of the code that it
interrupts, in the same thread: a plain lock that this code holds would never be free. And a forked
child has one thread: a lock that another thread held at the fork would never be released there. The
locks of this module let the thread that holds them in again, and are free in a child unless the
thread that forked holds them.

So what such a lock guards must be right, too, where a handler runs all of it between two of its
instructions. Handlers end before what they interrupt goes on.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

__all__ = ["shared_lock"]

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def shared_lock() -> Any:
    """Return a new reentrant lock that a forked child finds free.

    Examples
    --------
    >>> lock = shared_lock()
    >>> with lock, lock:
    ...     pass
    """
    lock: Any = threading.RLock()
    _locks.add(lock)
    return lock


def _release_in_child() -> None:
    """Free the locks of threads that a forked child does not have."""
    for lock in _locks:
        if not lock._is_owned():
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
