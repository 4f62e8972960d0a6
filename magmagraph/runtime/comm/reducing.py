"""Reductions over ranks: in the order of the ranks, so that all of them get the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import is_float
from ...ir.communicator import REDUCTIONS

__all__ = ["FUNCTIONS", "narrow", "reduced"]

FUNCTIONS = dict(zip(REDUCTIONS, (np.add, np.maximum, np.minimum), strict=True))


def narrow(dtype: np.dtype) -> bool:
    """Return whether a dtype is a float of fewer than 32 bits: those are reduced in float32."""
    return is_float(dtype) and dtype.itemsize < 4


def reduced(arrays: Sequence[np.ndarray], op: str, out: Any = None) -> np.ndarray:
    """Return arrays joined element by element, from the first to the last.

    Examples
    --------
    >>> reduced([np.array([1, 5]), np.array([2, 3])], "max")
    array([2, 5])
    """
    function = FUNCTIONS[op]
    first = np.asarray(arrays[0])  # a row of a vector is a scalar
    wide = narrow(first.dtype)
    total = first.astype(np.float32) if wide else first.copy()
    with np.errstate(all="ignore"):
        for array in arrays[1:]:
            function(total, array.astype(np.float32) if wide else array, out=total)
        if out is None:
            return total.astype(first.dtype) if wide else total
        np.copyto(out, total, casting="same_kind")
    return np.asarray(out)
