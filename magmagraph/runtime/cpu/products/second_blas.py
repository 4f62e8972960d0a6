"""The BLAS of SciPy's LAPACK: use one thread for small matrices.

Each of two copies of OpenBLAS has threads of its own, and those of the one stay on the processor
for a while after they have worked. A small call into the other that is shared out over threads
waits for a core until the system takes one away from them: milliseconds, where its work takes
microseconds. On one thread it runs at once.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator

from ....ir.locking import shared_lock
from .blas import Blas, find_blas, scipy_blas

# Multiplications that one thread does in the time that a call may have to wait for a second one.
SMALL = 1 << 29

_lock = shared_lock()
_inside = 0
_before = 0


def _renew() -> None:
    """Forget in a forked child what threads did that the child has not."""
    global _inside
    if _inside:
        library = _library()
        if library is not None:
            library.set_threads(_before)
    _inside = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def on_one_thread(run: Callable[[], None]) -> Callable[[], None]:
    """Return a function that runs with SciPy's library on one thread."""

    def run_alone() -> None:
        library = _begin()
        try:
            run()
        finally:
            _end(library)

    return run_alone


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Set SciPy's library to one thread; the last of those inside sets it back."""
    library = _begin()
    try:
        yield
    finally:
        _end(library)


def _begin() -> Blas | None:
    global _inside, _before
    library = _library()
    if library is not None:
        with _lock:
            if _inside == 0:
                _before = library.threads() or 1
                if _before > 1:
                    library.set_threads(1)
            _inside += 1
    return library


def _end(library: Blas | None) -> None:
    global _inside
    if library is not None:
        with _lock:
            _inside -= 1
            if _inside == 0 and _before > 1:
                library.set_threads(_before)


def _library() -> Blas | None:
    """Return SciPy's library once it is loaded; None where it is the one of the products, too."""
    if "scipy.linalg" not in sys.modules:
        return None
    return _find_library()


@functools.lru_cache(maxsize=1)
def _find_library() -> Blas | None:
    second, first = scipy_blas(), find_blas()
    if second is None or second.threads() is None:
        return None
    return None if first is not None and first.path == second.path else second
