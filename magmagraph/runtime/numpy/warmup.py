"""What every compiled plan needs, built while the passes run.

The support library and the products of float32 do not depend on the graph. Where they are not in
the disk cache yet, the C compiler makes them on another core beside the first compile's passes.
"""

from __future__ import annotations

import contextlib
import threading

import numpy as np

from ...config import config
from ...errors import CompilerUnavailable
from .products import product_library

_lock = threading.Lock()
_worker: threading.Thread | None = None


def _build() -> None:
    # The support library is compiled beside it. Without a compiler, whoever needs a kernel meets
    # the same error, and says so.
    with contextlib.suppress(CompilerUnavailable):
        product_library(np.dtype(np.float32))


def begin() -> None:
    """Start building, once in a process; returns at once."""
    global _worker
    if config.compiler == "off":
        return
    with _lock:
        if _worker is None:
            _worker = threading.Thread(target=_build, name="magmagraph-warmup", daemon=True)
            _worker.start()


def finish() -> None:
    """Wait for what was begun."""
    if _worker is not None:
        _worker.join()
