"""Running sums, products and extremes along an axis.

A step of a :class:`~magmagraph.runtime.cpu.support.Program`; `scans.c` has the kernel, which is
compiled for an element type and a way to combine.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from .combining import combining_words
from .compiler import Library
from .sources import SCAN_LEVEL, scan_source
from .support import function_address, load_kernels_together

__all__ = ["scan_step"]

Step = tuple[int, list[int]]


@functools.lru_cache(maxsize=32)
def _library(value: str, how: str) -> Library:
    (library,) = load_kernels_together([scan_source(value, how)], [SCAN_LEVEL])
    return library


def scan_step(
    dtype: np.dtype, how: str, out: int, x: int, shape: tuple[int, ...], axis: int, *, reverse: bool
) -> Step:
    """Return the step that combines each element with those before it along an axis.

    Parameters
    ----------
    dtype
        Of the elements; `combining.refusal` tells which there are.
    how : str
        "add", "multiply", "min" or "max".
    out, x : int
        Addresses of the result and of the array. `out` may be `x`.
    shape : tuple of int
        Of both.
    axis : int
        The axis.
    reverse : bool
        From the last element to the first.

    Returns
    -------
    (int, list of int)
        Function and cells: 0 out, 1 x, 2-4 extents before, along and after the axis, 5 reverse.

    Raises
    ------
    CompilerUnavailable
        Where there is no working C compiler.
    """
    words = combining_words(dtype, how)
    assert words is not None, "the family has refused it"
    value, each = words
    extents = [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]) * each]
    return function_address(_library(value, how), "mg_scan"), [out, x, *extents, int(reverse)]
