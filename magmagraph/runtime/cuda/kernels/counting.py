"""Integers added up at computed positions, as a generated kernel: its numbers, and its launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....codegen.cuda.counting_code import AHEAD, THREADS, WORDS, Counting, counting_source
from ....codegen.functions.scalar import computing_type
from ..launching.calls import KernelCall
from .gathering import Layout, function_of

__all__ = ["copies_of", "counting"]

SHARED = 48 << 10  # bytes of shared memory that a block has without asking
ROOM = 32 << 10  # bytes of several copies, at most, so that a multiprocessor has four blocks
MOST = 32  # copies: one for each lane
BLOCKS_EACH = 4  # of a multiprocessor


def copies_of(cells: int, itemsize: int, total: int) -> int:
    """Return how many copies of all results a block has; 0 where it adds to the results themselves.

    Examples
    --------
    >>> copies_of(10, 8, 10**6), copies_of(1000, 8, 10**7), copies_of(10**6, 8, 10**7)
    (32, 4, 0)
    """
    if cells * itemsize > SHARED or total < 2 * cells:
        return 0
    copies = MOST
    while copies > 1 and copies * cells * itemsize > ROOM:
        copies //= 2
    return copies


def counting(
    device: Any, places: list[int], dtype: np.dtype, positions: np.dtype, layout: Layout,
    wraps: bool,
) -> KernelCall | None:  # fmt: skip
    """Return what adds integers to the result, which holds what they are added to.

    Parameters
    ----------
    device
        Where it runs.
    places
        Addresses of the integers, their positions and the result.
    dtype, positions
        Dtypes of the integers and of the positions.
    layout
        Of the result.
    wraps
        Whether positions outside are taken modulo the extent.
    """
    total = layout.before * layout.taken * layout.inside
    if not total:
        return None
    cells = layout.before * layout.extent * layout.inside
    copies = copies_of(cells, dtype.itemsize, total)
    kernel = Counting(8 * dtype.itemsize, computing_type(positions), wraps, copies)
    words = [*places, total, layout.taken, layout.extent, layout.inside, cells]
    each = max(THREADS * AHEAD, 2 * cells) if copies else THREADS * AHEAD
    blocks = max(1, min(-(-total // each), BLOCKS_EACH * device.multiprocessors))
    function = function_of(device, kernel.name, counting_source(kernel), WORDS)
    return KernelCall(
        function, (blocks, 1, 1), (THREADS, 1, 1), np.array(words, np.int64), range(3),
        shared=copies * cells * dtype.itemsize, overlaps=True,
    )  # fmt: skip
