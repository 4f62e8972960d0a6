"""Recognize arguments that are no arrays of numbers, and describe them in error messages."""

from __future__ import annotations

import numbers
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ...dtypes.machine import finfo, iinfo
from ...errors import message
from ..element_types import BY_NAME, KINDS

__all__ = ["hint_of_width", "made_of_numbers", "narrowed", "plain_array", "unlike_numbers"]

_SECONDS = "np.timedelta64(1, 's')"


def plain_array(value: Any) -> np.ndarray:
    """Return ``np.asarray(value)``, whose elements all count.

    Raises
    ------
    ValueError
        Elements are masked (`numpy.ma`): an array without its mask has numbers in their place.
    """
    if type(value) is not np.ndarray and "numpy.ma" in sys.modules and np.ma.is_masked(value):
        count, size = int(np.ma.getmaskarray(value).sum()), value.size
        raise ValueError(
            f"{count} of {size} elements {'is' if count == 1 else 'are'} masked; "
            "array.filled(0.0) has a value in their place, array.mask tells where"
        )
    return np.asarray(value)


def made_of_numbers(array: np.ndarray) -> bool:
    """Return whether all elements are numbers, also of Python or of a width that is not here."""
    if array.dtype.kind == "O":
        return all(isinstance(element, numbers.Number) for element in array.flat)
    return array.dtype.kind in "biufc" or array.dtype in KINDS


def narrowed(array: Any, dtype: np.dtype, label: Callable[[], str]) -> Any:
    """Cast an array to a dtype of its kind; values beyond a float's range become infinite.

    array: Of NumPy or CuPy.
    dtype: The wanted dtype.
    label: Gives what the values go to, for the warning.

    Warns
    -----
    RuntimeWarning
        Finite values become infinite.
    """
    try:
        with np.errstate(over="raise"):
            return array.astype(dtype)
    except FloatingPointError:
        pass
    with np.errstate(over="ignore"):
        result = array.astype(dtype)
    lost = np.isinf(result) & np.isfinite(array)
    largest = array[lost].ravel()[0]
    warnings.warn(
        message(
            f"{label()} is given {array.dtype.name} values beyond the range of {dtype.name}, such "
            f"as {largest:.6g}: {int(lost.sum())} of {lost.size} become infinite",
            need=f"values up to {float(finfo(dtype).max):.3g}",
            hint=f"scaled values, or dtype='{array.dtype.name}' for what takes them",
        ),
        RuntimeWarning,
        stacklevel=4,
    )
    return result


def hint_of_width(array: np.ndarray, dtype: np.dtype) -> str | None:
    """Return a hint where integers are too large for an integer dtype; None where they are not.

    To convert them would wrap around.
    """
    if KINDS.get(array.dtype) != "integer" or KINDS[dtype] != "integer" or not array.size:
        return None
    low, high = int(array.min()), int(array.max())
    limits = iinfo(dtype)
    outside = high if high > limits.max else low
    wider = [
        name
        for name in ("int16", "uint16", "int32", "uint32", "int64", "uint64")
        if iinfo(BY_NAME[name]).min <= low and high <= iinfo(BY_NAME[name]).max
    ]
    return f"dtype='{wider[0]}' for what takes them: {outside} is among them"


def unlike_numbers(value: Any, array: np.ndarray) -> tuple[str, str | None]:
    """Return what an array of a dtype that does not exist here holds, and what to try.

    value: What was handed over.
    array: The same as an array.
    """
    kind = array.dtype.kind
    if kind in "US":
        return "text", "array.astype('float64') where it spells numbers"
    if kind == "M":
        return "dates", f"(dates - dates.min()) / {_SECONDS}, which are seconds"
    if kind == "m":
        return "spans of time", f"spans / {_SECONDS}, which are seconds"
    if kind == "V":
        names = array.dtype.names
        if names:
            return f"records of {', '.join(map(repr, names))}", f"array[{names[0]!r}], one field"
        return f"bytes without a type ({array.dtype.name})", None
    if kind == "O":
        return _objects(value, array)
    return f"{array.dtype.name} values", "array.astype('float64')"


def _objects(value: Any, array: np.ndarray) -> tuple[str, str | None]:
    if not array.ndim and not isinstance(array.item(), numbers.Number):
        element = array.item()
        listed = isinstance(element, Iterable) and not isinstance(element, Mapping)
        what = "None" if element is None else f"an object of type {type(element).__name__}"
        return what, "np.array(list(values))" if listed else None
    for element in array.flat:
        if not isinstance(element, numbers.Number):
            description = "None" if element is None else f"of type {type(element).__name__}"
            return f"Python objects, one of them {description}", None
    if array.size and all(isinstance(element, int) for element in array.flat):
        fits = all(-(2**63) <= element < 2**63 for element in array.flat)
        what = "ints as Python objects" if fits else "ints that no integer dtype holds"
        return what, f"np.asarray(values, '{'int64' if fits else 'float64'}')"
    return "numbers as Python objects", "np.asarray(values, 'float64')"
