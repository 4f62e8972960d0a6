"""Rows set, added, multiplied, or taken the least or largest of, at computed positions.

A step of a :class:`~magmagraph.runtime.cpu.support.Program`; `updates.c` has the kernel, which is
compiled for an element type and a way to combine.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np

from ...dtypes import is_bool, is_complex, is_float
from .sources import UPDATE_LEVEL, update_source
from .support import function_address, load_kernels_together

__all__ = ["refusal", "update_step"]

Step = tuple[int, list[int]]
_REAL = {4: "float", 8: "double"}


def _words(dtype: np.dtype, how: str) -> tuple[str, int] | None:
    """Return the C type to combine elements of a dtype in, and how many of it an element is."""
    if how == "set":
        return f"uint{8 * min(dtype.itemsize, 8)}_t", max(1, dtype.itemsize // 8)
    if is_bool(dtype):
        return None
    if is_complex(dtype):
        return (_REAL[dtype.itemsize // 2], 2) if how == "add" else None
    if is_float(dtype):
        return (_REAL[dtype.itemsize], 1) if dtype.itemsize >= 4 else None
    return f"{'u' if dtype.kind == 'u' else ''}int{8 * dtype.itemsize}_t", 1


def refusal(dtype: np.dtype, how: str) -> str | None:
    """Return why no kernel combines elements of a dtype, or None."""
    if _words(dtype, how) is None:
        return f"kernels have no {how} of {dtype.name}"
    return None


@functools.lru_cache(maxsize=64)
def _library(value: str, how: str) -> ctypes.CDLL:
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
        Of everything but the positions; `refusal` tells which there are.
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
    words = _words(dtype, how)
    assert words is not None, "the family has refused it"
    value, each = words
    sizes = [parts, rows, count, width * each]
    cells = [out, base, values, positions, scale, *sizes, int(wrap), int(wide), copies]
    return function_address(_library(value, how), "mg_update"), cells
