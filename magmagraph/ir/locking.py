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

import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property", "outside_of_forks", "shared_lock"]

_locks: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def shared_lock(repair: Callable[[], None] | None = None) -> Any:
    """Return a new reentrant lock that a forked child finds free.

    Parameters
    ----------
    repair
        A method of the lock's owner, which it does not keep alive. It is called in a child where
        a thread that the child does not have held the lock: what it was doing has no end there.

    Examples
    --------
    >>> lock = shared_lock()
    >>> with lock, lock:
    ...     pass
    """
    lock: Any = threading.RLock()
    _locks[lock] = None if repair is None else weakref.WeakMethod(repair)
    return lock


def _release_in_child() -> None:
    """Free the locks of threads that a forked child does not have."""
    for lock, repair in _locks.items():
        if not lock._is_owned():
            was_locked = not lock.acquire(blocking=False)
            lock._at_fork_reinit()
            method = repair and repair()
            if was_locked and method:
                method()


class _OutsideOfForks:
    """A block that no fork of another thread falls into: the fork waits for its end.

    For products by BLAS, whose threads and locks a child cannot use if they were at work. Blocks
    may be nested, and must not wait for other threads of the program.
    """

    def __init__(self) -> None:
        self._inside: dict[int, int] = {}  # blocks by thread
        self._forking: int | None = None  # the thread that forks

    def __enter__(self) -> None:
        own = threading.get_ident()
        depth = self._inside.get(own, 0)
        self._inside[own] = depth + 1  # first: a fork that begins now sees it
        while not depth and self._forking not in (None, own):
            del self._inside[own]
            time.sleep(_LOOK)
            self._inside[own] = 1

    def __exit__(self, *_: object) -> None:
        own = threading.get_ident()
        depth = self._inside.get(own, 0) - 1
        if depth > 0:
            self._inside[own] = depth
        else:
            self._inside.pop(own, None)

    def begin_fork(self) -> None:
        """Wait until all other threads are outside, and hold them there."""
        own = threading.get_ident()
        self._forking = own
        while any(thread != own for thread in [*self._inside]):
            time.sleep(_LOOK)

    def end_fork(self) -> None:
        """Let other threads go on, in the parent."""
        self._forking = None

    def begin_child(self) -> None:
        """Forget the threads that a child does not have."""
        own = threading.get_ident()
        self._inside = {thread: n for thread, n in self._inside.items() if thread == own}
        self._forking = None


_LOOK = 2e-5  # seconds between two looks for the end of a block, or of a fork
outside_of_forks = _OutsideOfForks()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=outside_of_forks.begin_fork,
        after_in_parent=outside_of_forks.end_fork,
        after_in_child=outside_of_forks.begin_child,
    )
    os.register_at_fork(after_in_child=_release_in_child)


if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    def cached_property(function: Callable[[Any], Any]) -> Any:
        """Return `functools.cached_property`, whose lock of Python 3.11 a child finds free."""
        prop = functools.cached_property(function)
        prop.lock = shared_lock()
        return prop
