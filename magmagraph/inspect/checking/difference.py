"""How far values are from their references."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Difference(NamedTuple):
    """How far a value is from its reference.

    error: The largest difference, relative to the largest magnitude of the reference; for ints and
        bools the share of elements that differ.
    finite: How many elements are finite where the reference is not.
    """

    error: float
    finite: int


def difference(value: Any, reference: Any) -> Difference:
    """Return how far a value is from its reference.

    Examples
    --------
    >>> difference([1.0, 2.5], [1.0, 2.0])
    Difference(error=0.25, finite=0)
    >>> difference([1.0, 0.0], [1.0, float("nan")])
    Difference(error=0.0, finite=1)
    """
    actual, expected = np.asarray(value), np.asarray(reference)
    if expected.dtype.kind in "iub":
        count = int(np.count_nonzero(actual != expected))
        return Difference(count / max(1, expected.size), 0)
    actual, expected = widest(actual), widest(expected)
    finite = np.isfinite(expected)
    repaired = int(np.count_nonzero(~finite & np.isfinite(actual)))
    # An infinity where the reference has a NaN is the limit of the same expression, too.
    lost = ~finite & ~np.isfinite(actual) & (actual != expected) & ~np.isnan(expected)
    scale = float(np.max(np.abs(expected), where=finite, initial=0.0)) or 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(actual - expected) / scale
    apart = np.where(np.isnan(apart), np.inf, apart)
    worst = float(np.max(apart, where=finite, initial=0.0))
    return Difference(float("inf") if lost.any() else worst, repaired)


def is_finite(value: Any) -> bool:
    """Return whether all elements are finite; a tuple's members all have to be."""
    if isinstance(value, tuple):
        return all(map(is_finite, value))
    array = np.asarray(value)
    return array.dtype.kind in "iub" or bool(np.isfinite(widest(array)).all())


def widest(array: np.ndarray) -> np.ndarray:
    """Return an array in float64, or in complex128 where it is complex."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
