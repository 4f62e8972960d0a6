"""Rows added up in a few groups, as generated kernels: their numbers, and their launches."""

from __future__ import annotations

import numpy as np

from ....codegen.cuda.group_sums_code import (
    FINISHING,
    SEGMENTS,
    WORDS,
    GroupSums,
    group_sums_source,
)
from ....ir.ranges import Range
from ..launching.calls import KernelCall, Together
from ..memory import PlanMemory
from .gathering import Layout, function_of

__all__ = ["columns_of", "group_length", "group_sums"]

LENGTHS = (8192, 4096, 2048, 1024)  # rows of a block
COLUMNS = 8  # threads side by side, at most


def columns_of(count: int) -> int:
    """Return how many threads of a block are side by side, for rows of so many vectors.

    Examples
    --------
    >>> columns_of(1), columns_of(3), columns_of(100)
    (1, 4, 8)
    """
    return min(COLUMNS, 1 << (max(1, count) - 1).bit_length())


def group_length(layout: Layout, multiprocessors: int) -> int:
    """Return how many rows a block adds up; 0 where positions are better sorted all together.

    A block has a sum for every group, so it takes at least twice as many rows as there are groups;
    blocks fill the device.

    Examples
    --------
    >>> group_length(Layout(1, 1000, 1_000_000, 32), 132)
    8192
    >>> group_length(Layout(1, 1000, 10_000, 32), 132), group_length(Layout(2, 9, 10**6, 1), 132)
    (0, 0)
    """
    if layout.before != 1 or not layout.inside:
        return 0
    for length in LENGTHS:
        if 2 * layout.extent <= length and 4 * -(-layout.taken // length) >= 3 * multiprocessors:
            return length
    return 0


def group_sums(
    memory: PlanMemory, sums: GroupSums, places: list[int], sizes: tuple[int, int, int],
    vector: int,
) -> tuple[Together, tuple[Range, ...]]:  # fmt: skip
    """Return what launches the sums, and the memory that they take in addition.

    Parameters
    ----------
    memory
        Of the plan.
    sums
        The kernels.
    places
        Addresses of the rows, their positions, the result, the factor and what is added to; 0 for
        the last two where there is none.
    sizes
        How many rows and groups there are, and vectors in a row.
    vector
        Bytes of the sums of a vector.
    """
    count, extent, inside = sizes
    chunks = -(-count // sums.length)
    total = extent * inside
    bytes_ = [chunks * total * vector, chunks * sums.threads * vector]
    parts, kept = (memory.more(size) for size in bytes_)
    words = np.array([*places[:3], parts, kept, *places[3:], *sizes, chunks], np.int64)
    text = group_sums_source(sums)
    calls = [
        KernelCall(
            function_of(memory.device, f"{sums.name}_{part}", text, WORDS), (blocks, 1, 1),
            (threads, 1, 1), words, range(7), overlaps=True,
        )
        for part, blocks, threads in (
            ("chunks", chunks, sums.threads),
            ("finish", -(-total // (FINISHING // SEGMENTS)), FINISHING),
        )
    ]  # fmt: skip
    return Together(calls), ((parts, parts + bytes_[0]), (kept, kept + bytes_[1]))
