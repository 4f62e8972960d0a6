"""What every compiled plan needs, built while the passes run.

The support library and the products of float32 do not depend on the graph. Where they are not in
the disk cache yet, the C compiler makes them on another core beside the first compile's passes:
the products only for a graph that multiplies. Its processes are started here and waited for where
the libraries are asked for; a thread that did both would wait for Python's lock at every turn.
"""

from __future__ import annotations

import contextlib

import numpy as np

from ...config import config
from ...errors import CompilerUnavailable
from .products import PRODUCT_LEVEL, product_source
from .support import start_support

_begun: set[bool] = set()


def begin(*, products: bool) -> None:
    """Start building, once in a process; returns at once.

    Parameters
    ----------
    products
        Whether the products of float32 are wanted, too. They are built when a step first asks for
        them otherwise.
    """
    if config.compiler == "off" or products in _begun:
        return
    _begun.add(products)
    sources = [product_source(np.dtype(np.float32))] if products else []
    # Without a compiler, whoever needs a kernel meets the same error, and says so.
    with contextlib.suppress(CompilerUnavailable):
        start_support(sources, [PRODUCT_LEVEL] * len(sources))
