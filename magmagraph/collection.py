"""A pause of Python's cyclic garbage collection, for work that makes many objects and no cycles."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_FROZEN = 1000  # more are a program's own; Python 3.12 begins with some hundreds

_lock = threading.Lock()
_pauses = 0  # how many are open, over all threads
_was_on = False


@contextmanager
def collection_paused() -> Iterator[None]:
    """Let nothing be collected in the block.

    The collector looks at everything alive whenever enough was made: a compile of 100,000 nodes,
    all of which stay alive, would spend half of its time there and free nothing. Reference
    counting goes on. Blocks may be nested and overlap in threads; the last one to end turns
    collection on again if the first one found it on.
    """
    global _pauses, _was_on
    with _lock:
        if _pauses == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if _pauses == 0 and _was_on:
                if gc.get_freeze_count() < _FROZEN:
                    # What is new counts as old, unseen: else it would be looked at three times,
                    # once for each generation, and at once.
                    gc.freeze()
                    gc.unfreeze()
                gc.enable()
