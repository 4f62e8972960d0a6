"""The positions that sort lines, or the first of them; places in a sorted line.

Steps of a :class:`~magmagraph.runtime.cpu.support.Program`; `order.c` has the kernel, which is
compiled for an element type.
"""

from __future__ import annotations

import functools

import numpy as np

from ...dtypes import is_float
from .compiler import Library
from .sources import ORDER_LEVEL, order_source
from .support import function_address, load_kernels_together

__all__ = ["order_step", "places_step"]

Step = tuple[int, list[int]]


@functools.lru_cache(maxsize=16)
def _library(name: str) -> Library:
    (library,) = load_kernels_together([order_source(name)], [ORDER_LEVEL])
    return library


def order_step(
    dtype: np.dtype, out: int, x: int, lines: int, extent: int, step: int, count: int, *,
    largest: bool, room: int, each: int, threads: int,
) -> Step:  # fmt: skip
    """Return the step that finds the first positions in the order of each of several lines.

    Parameters
    ----------
    dtype
        Of the elements; operations on orders refuse complex ones.
    out, x : int
        Addresses of the positions (int64) and of the elements: arrays of three axes, of which the
        middle one has `count` and `extent` elements, and the last `step`.
    lines, extent, step, count : int
        Lines in all, elements of one, elements from one of a line to the next, positions of each
        line that are wanted.
    largest : bool
        Whether the order begins with the largest; of equal ones the first stands first.
    room, each, threads : int
        Address of memory, how many numbers of it a thread has (`order_room` in `ops` tells), and
        how many threads it is for.

    Returns
    -------
    (int, list of int)
        Function and cells: 0 out, 1 x, 2-5 sizes, 6 largest, 7 room, 8 each, 9 threads.

    Raises
    ------
    CompilerUnavailable
        Where there is no working C compiler.
    """
    cells = [out, x, lines, extent, step, count, int(largest), room, each, threads]
    return function_address(_library(_kind(dtype)), "mg_order"), cells


def places_step(
    dtype: np.dtype, out: int, line: int, values: int, extent: int, count: int, *, right: bool,
    room: int,
) -> Step:  # fmt: skip
    """Return the step that finds where values would stand in a sorted line.

    Parameters
    ----------
    dtype
        Of the line and the values.
    out, line, values : int
        Addresses of the places (int64), of the line and of the values.
    extent, count : int
        Elements of the line, and values. Zero is fine.
    right : bool
        Behind equal elements; else before them.
    room : int
        Address of memory for the line's keys: 4 bytes each, 8 for elements of 8.

    Returns
    -------
    (int, list of int)
        Function and cells: 0 out, 1 line, 2 values, 3-4 sizes, 5 right, 6 room.
    """
    cells = [out, line, values, extent, count, int(right), room]
    return function_address(_library(_kind(dtype)), "mg_places"), cells


def _kind(dtype: np.dtype) -> str:
    """Return the name by which the source knows the elements of a dtype."""
    if dtype.name == "bfloat16":
        return dtype.name
    kind = "float" if is_float(dtype) else {"i": "signed"}.get(dtype.kind, "unsigned")
    return f"{kind}{8 * dtype.itemsize}"
