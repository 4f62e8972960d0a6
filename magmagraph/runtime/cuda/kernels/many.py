"""One launch for many elementwise bodies of one structure, such as optimizer updates.

The arguments of all bodies are one table. Each body has as many blocks as it would have by itself,
one body's behind the other's; a block finds its body by the number of the first block of each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ....codegen.cuda.kernels import RegionKernels
from ....codegen.cuda.launch_config import ALONE, Launch
from ....codegen.cuda.prelude import MAX_ARGUMENTS
from ..launching.calls import KernelCall

__all__ = ["call_of_many", "many_text", "table_size"]

_SMALLEST = 64  # words of a table
_FIND = """    const int count = (int)arguments.v[0];
    int low = 0, high = count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (arguments.v[1 + middle] <= (int64_t)blockIdx.x) low = middle; else high = middle;
    }
    const int64_t *v = arguments.v + count + 2 + low * WORDS;
    const idx block = (idx)(blockIdx.x - arguments.v[1 + low]);
    const idx blocks = (idx)(arguments.v[2 + low] - arguments.v[1 + low]);"""


def many_text(kernels: RegionKernels, suffix: str, words: int) -> str:
    """Return a kernel that computes several bodies of a region without sums.

    Parameters
    ----------
    kernels
        Of the region; its threads take elements in turn.
    suffix
        Which of its kernels computes each body.
    words
        How many arguments a body has.
    """
    text = kernels.text(suffix)
    text = re.sub(r"\bmg_kernel_\w+\(", "mg_many(", text)
    find = _FIND.replace("WORDS", str(words))
    text = text.replace("    const int64_t *v = arguments.v;", find)
    return text.replace("blockIdx.x *", "block *").replace("gridDim.x *", "blocks *")


def table_size(count: int, words: int) -> int:
    """Return the words of the table of some bodies: a power of two, so that few sources differ.

    Examples
    --------
    >>> table_size(10, 11)
    128
    """
    needed = count + 2 + count * words
    size = _SMALLEST
    while size < needed:
        size *= 2
    return max(needed, min(size, MAX_ARGUMENTS))


def call_of_many(
    function: int, launches: Sequence[Launch], arguments: Sequence[Sequence[int]], pointers: int,
    multiprocessors: int,
) -> KernelCall:
    """Return the one launch of several bodies.

    Parameters
    ----------
    function
        The kernel.
    launches
        Of each body by itself.
    arguments
        Of each: addresses first, then the numbers of its launch.
    pointers
        How many of the arguments of each are addresses.
    multiprocessors
        Of the device.
    """
    count, words = len(launches), len(arguments[0])
    first = np.cumsum([0, *(launch.grid[0] for launch in launches)])
    table = np.zeros(table_size(count, words), np.int64)
    table[0] = count
    table[1 : count + 2] = first
    start = count + 2
    for number, values in enumerate(arguments):
        place = start + number * words
        table[place : place + words] = values
    places = [start + n * words + i for n in range(count) for i in range(pointers)]
    blocks = int(first[-1])
    return KernelCall(
        function, (blocks, 1, 1), launches[0].block, table, places,
        overlaps=blocks <= ALONE * multiprocessors,
    )
