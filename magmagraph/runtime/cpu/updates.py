"""Rows set, added, multiplied, or taken the least or largest of, at computed positions.

A step of a :class:`~magmagraph.runtime.cpu.support.Program`; `updates.c` has the kernel, which is
compiled for an element type and a way to combine.
"""

from __future__ import annotations

import functools

import numpy as np

from .combining import combining_words
from .compiler import Library
from .sources import UPDATE_LEVEL, update_source
from .support import function_address, load_kernels_together

__all__ = ["update_step"]

Step = tuple[int, list[int]]

@functools.lru_cache(maxsize=64)
def _library(value: str, how: str) -> Library:
    (library,) = load_kernels_together([update_source(value, how)], [UPDATE_LEVEL])
    return library


def update_step(
    dtype: np.dtype, how: str, out: int, values: int, positions: int, parts: int, rows: int,
    count: int, width: int, *, base: int = 0, scale: int = 0, copies: int = 0, wrap: bool = False,
    wide: bool = True,
) -> Step:  # fmt: skip
    """Return the step that combines rows at positions, the same ones in each of several parts.

    Parameters
    ----------
    dtype
        Of everything but the positions; `combining.refusal` tells which there are.
    how : str
        "set" (of equal positions the last one stays), "add", "multiply", "min" or "max".
    out, values, positions : int
        Addresses of the result (parts, rows, width), of the values (parts, count, width) and of the
        positions.
    parts, rows, count, width : int
        Sizes. Zero is fine, but there have to be rows where there are values.
    base : int
        Address of what is combined with, or 0 for zeros. It may be `out`.
    scale : int
        Address of a factor of the values, or 0 for the value 1; of floats that are added.
    copies : int
        Address of room for copies of the result (`update_scratch` in `ops` tells how much),
        or 0.
    wrap : bool
        Positions are taken modulo `rows`; else those outside become the nearest inside.
    wide : bool
        Positions have 64 bits, else 32.

    Returns
    -------
    (int, list of int)
        Function and cells: 0 out, 1 base, 2 values, 3 positions, 4 scale, 5-8 sizes, 9-10 flags,
        11 copies.

    Raises
    ------
    CompilerUnavailable
        Where there is no working C compiler.
    """
    words = combining_words(dtype, how)
    assert words is not None, "the family has refused it"
    value, each = words
    sizes = [parts, rows, count, width * each]
    cells = [out, base, values, positions, scale, *sizes, int(wrap), int(wide), copies]
    return function_address(_library(value, how), "mg_update"), cells
