"""A pause of Python's cyclic garbage collection, for work that makes many objects and no cycles."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

from .locking import shared_lock

_FROZEN = 1000  # more are a program's own; Python 3.12 begins with some hundreds
_MANY = 100_000  # objects: with fewer unseen, nothing is looked for

_lock = shared_lock()
_open: dict[int, int] = {}  # blocks by thread
_was_on = False
_unseen = 0  # objects that count as old and that no collection has looked at
_others = 0  # objects beside them: those that were alive after the last look
_looks = 0  # collections of everything until `_unseen` was last 0


@contextmanager
def collection_paused() -> Iterator[None]:
    """Let nothing be collected in the block.

    The collector looks at everything alive whenever enough was made: a compile of 100,000 nodes,
    all of which stay alive, would spend half of its time there and free nothing. Reference
    counting goes on. Blocks may be nested and overlap in threads; the last one to end turns
    collection on again if the first one found it on.

    What a block made counts as old when it ends, without Python's collector having counted it. A
    program that compiles again and again would keep all of its garbage so: a block first looks
    whether too much has gathered.
    """
    global _was_on, _unseen, _looks
    if _unseen > max(_MANY, _others) and gc.isenabled():
        _look()
    own = get_ident()
    depth = _open.get(own, 0)
    # A handler may open and close a block between any two of these lines.
    try:
        with _lock:
            on, first = gc.isenabled(), not _open
            _open[own] = depth + 1
            if first:
                _was_on = on
                gc.disable()
        yield
    finally:
        with _lock:
            if _was_on and _open == {own: 1}:
                allocations = gc.get_count()[0]
                if allocations > gc.get_threshold()[0] and gc.get_freeze_count() < _FROZEN:
                    # What is new counts as old, unseen: else it would be looked at three times,
                    # once for each generation, and at once.
                    gc.freeze()
                    gc.unfreeze()
                    if not _unseen:
                        _looks = _full_collections()
                    _unseen += allocations
                gc.enable()
            if depth:
                _open[own] = depth
            else:
                _open.pop(own, None)


def _leave_to_parent() -> None:
    """Close the blocks of threads that a forked child does not have."""
    own = get_ident()
    others = [thread for thread in _open if thread != own]
    for thread in others:
        del _open[thread]
    if others and not _open and _was_on:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def _full_collections() -> int:
    return int(gc.get_stats()[-1]["collections"])


def _objects() -> int:
    """Return how many objects there are, without a reference to any.

    A list of them has tuples that other threads are still filling, which then fail.
    """
    gc.freeze()
    count = gc.get_freeze_count()
    gc.unfreeze()
    return count


def _look() -> None:
    """Collect everything where the unseen objects that are still there are more than the others.

    Most are not: what a function holds is freed with it, and only cycles wait for a collection.
    """
    global _unseen, _others
    if gc.get_freeze_count() >= _FROZEN:
        _unseen = 0  # the program has frozen its own since
        return
    old = _objects()
    if not _others or _full_collections() != _looks:
        _others = old
    left = old - _others
    if left > max(_MANY, _others):
        gc.collect()
        _others, left = _objects(), 0
    _unseen = max(0, left) // 2  # not to count again at once
