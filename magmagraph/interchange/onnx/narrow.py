"""Element types without a dtype here: ints below 8 bits, and floats below 16.

Their values are carried in int8, uint8 and float32. A conversion to one of them rounds to its
values, of which there are at most 256: they come from the package ml_dtypes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...errors import OnnxError, message
from ...ir.graph import Node
from ...ops.convert import cast
from ...ops.elementwise.bits import bitwise_and, bitwise_xor
from ...ops.elementwise.comparison import greater_equal, minimum, where
from ...ops.elementwise.rounding import isnan
from ...ops.elementwise.signs import absolute, signbit
from ...ops.indexing.gathering import take
from ...ops.indexing.sorting import searchsorted
from ...ops.leaf import constant
from .files import element_of, library

__all__ = ["bounds", "narrow_array", "narrow_name", "narrowed"]

_BITS = {"INT4": 4, "UINT4": 4, "INT2": 2, "UINT2": 2}


def narrow_name(element: int) -> str | None:
    """Return the name of the dtype in which an element type is carried; None where none is."""
    name = element_of(element)
    if name in _BITS:
        return "int8" if name.startswith("INT") else "uint8"
    if name.startswith(("FLOAT8", "FLOAT6", "FLOAT4")):
        return "float32"
    return None


def narrow_array(array: np.ndarray, element: int) -> np.ndarray:
    """Return an array of an element type in the dtype that carries it."""
    return np.asarray(array).astype(np.dtype(narrow_name(element)))


def bounds(element: int) -> tuple[int, int] | None:
    """Return the least and the largest value of an element type of ints."""
    name = element_of(element)
    if name not in _BITS:
        return None
    half = 1 << (_BITS[name] - 1)
    return (-half, half - 1) if name.startswith("INT") else (0, 2 * half - 1)


def narrowed(x: Node, element: int, saturate: bool = True, mode: str = "nearest") -> Node:
    """Return a node rounded to the values of an element type, in the dtype that carries it.

    x: Numbers.
    element: The element type.
    saturate: Whether what is too large becomes the largest value; else it is infinite, or NaN where
        the type has no infinity.
    mode: "nearest" (ties to even), "up" or "down" in magnitude.
    """
    name = element_of(element)
    carrier = narrow_name(element)
    if carrier is None:
        raise OnnxError(message(f"{name} is no element type that numbers are converted to"))
    if name in _BITS:
        bits = _BITS[name]
        low = bitwise_and(cast(x, "int32"), (1 << bits) - 1)
        if name.startswith("INT"):
            half = 1 << (bits - 1)
            low = bitwise_xor(low, half) - half
        return cast(low, carrier)
    values, thresholds, beyond = _table(element, mode)
    wide = cast(x, "float64") if x.dtype.name == "float64" else cast(x, "float32")
    magnitude = absolute(wide)
    at = minimum(
        searchsorted(constant(thresholds.astype(wide.dtype)), magnitude, side="right"),
        len(values) - 1,
    )
    result = take(constant(values), at, axis=0)
    if not saturate:
        result = where(
            greater_equal(magnitude, wide.dtype.type(thresholds[-1])), np.float32(beyond), result
        )
    result = where(signbit(wide), -result, result)
    return where(isnan(wide), np.float32(np.nan if _has_nan(element) else 0.0), result)


def _all_values(element: int) -> np.ndarray:
    dtype = np.dtype(library().helper.tensor_dtype_to_np_dtype(element))
    name = element_of(element)
    bits = {"4": 4, "6": 6, "8": 8}[name[len("FLOAT")]]
    return np.asarray(np.arange(1 << bits, dtype=np.uint8).view(dtype), np.float64)


def _has_nan(element: int) -> bool:
    return bool(np.isnan(_all_values(element)).any())


@functools.cache
def _table(element: int, mode: str) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return the magnitudes of a type, from which number on each rounds up, and what is beyond."""
    every = _all_values(element)
    values = np.unique(every[np.isfinite(every) & ~np.signbit(every)])
    after = values[-1] + (values[-1] - values[-2])
    ends = np.append(values, after)
    lower, upper = ends[:-1], ends[1:]
    if mode == "up":
        thresholds = np.nextafter(lower, np.inf, dtype=np.float32).astype(np.float64)
    elif mode == "down":
        thresholds = upper
    else:
        middle = (lower + upper) / 2
        even = np.arange(len(values)) % 2 == 0  # codes grow with magnitudes: ties go to even ones
        above = np.nextafter(middle.astype(np.float32), np.float32(np.inf)).astype(np.float64)
        thresholds = np.where(even, above, middle)
    beyond = np.inf if np.isinf(every).any() else np.nan
    return values.astype(np.float32), thresholds, beyond
