"""The tolerance table: how exactly a result must be right, by dtype and manner of computing."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from ..errors import DTypeError, message
from ..ir.docstrings import documented
from ..ir.element_types import FLOATS, KINDS, DType
from .machine import finfo

Numerics: TypeAlias = Literal["exact", "stable", "reassoc", "half"]


class Tolerance(NamedTuple):
    """How far a result may be from the exact one.

    Attributes
    ----------
    relative : float
        Of the magnitude of the expected value.
    absolute : float
        Of the magnitude of what entered the computation, for results near zero.
    """

    relative: float
    absolute: float

    @documented
    def allowed(self, expected: Any, scale: Any = 1.0) -> Any:
        """Compute the greatest error allowed at each element.

        expected (array-like):
        scale (float or array-like): The magnitude of the terms whose sum or difference `expected`
            is.
        returns (numpy.ndarray of float64):
        """
        return self.relative * np.abs(_wide(expected)) + self.absolute * np.asarray(
            scale, dtype=np.float64
        )

    def close(self, actual: Any, expected: Any, scale: Any = 1.0) -> bool:
        """Tell whether all elements agree; NaN agrees with NaN, an infinity with itself.

        Complex numbers are as far apart as they are in the plane; of those that are not finite,
        each part has to agree.

        Examples
        --------
        >>> table = tolerance(np.dtype("float32"), "exact")
        >>> table.close([1.0, np.inf], [1.0 + 1e-7, np.inf]), table.close([1.0], [1.001])
        (True, False)
        """
        wide_actual, wide_expected = _wide(actual), _wide(expected)
        if wide_actual.shape != wide_expected.shape:
            return False
        if wide_actual.dtype != wide_expected.dtype:
            wide_actual, wide_expected = (
                wide_actual.astype(np.complex128),
                wide_expected.astype(np.complex128),
            )
        finite = np.isfinite(wide_expected)
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(wide_actual - wide_expected) <= self.allowed(
                np.where(finite, wide_expected, 0.0), scale
            )
        same = (wide_actual == wide_expected) | (np.isnan(wide_actual) & np.isnan(wide_expected))
        if wide_expected.dtype.kind == "c":
            rest = ~finite
            return bool(near[finite].all()) and all(
                self.close(
                    one[rest], other[rest], np.broadcast_to(scale, wide_expected.shape)[rest]
                )
                for one, other in (
                    (wide_actual.real, wide_expected.real),
                    (wide_actual.imag, wide_expected.imag),
                )
            )
        return bool(np.all(np.where(finite, near, same)))


def _wide(values: Any) -> Any:
    """Return the values as float64, or as complex128 where they are complex."""
    array = np.asarray(values)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


# Multiples of the dtype's eps: relative to the value, and to the magnitude of what entered.
#   exact    the same operations in the same order: the last bits of the functions of two libraries
#   stable   another formula for the same value: the rounding of either
#   reassoc  sums in another order: the rounding of some thousand terms
#   half     products of 16-bit operands: the eps is that of the 16-bit dtype
_MULTIPLES: Final[dict[Numerics, tuple[float, float]]] = {
    "exact": (8.0, 2.0),
    "stable": (32.0, 16.0),
    "reassoc": (128.0, 128.0),
    "half": (4.0, 4.0),
}


@cache
@documented
def tolerance(dtype: DType, numerics: Numerics = "exact") -> Tolerance:
    """Look up how exactly a result of a dtype, computed in some manner, must be right.

    All tests take their tolerances from this one table.

    dtype (numpy.dtype): Of the result.
    numerics ("exact", "stable", "reassoc" or "half"): The same operations, another formula, sums in
        another order, or 16-bit operands.
    returns (Tolerance): Zero for integers and bools; of a complex dtype that of its parts.
    raises DTypeError: If there is no such row.

    Examples
    --------
    >>> tolerance(np.dtype("int32")), tolerance(np.dtype("float32")).relative == 8 * 2.0**-23
    (Tolerance(relative=0.0, absolute=0.0), True)
    """
    if numerics not in _MULTIPLES:
        raise DTypeError(
            message(
                f"{numerics!r} is not a row of the tolerance table",
                need=f"one of {', '.join(_MULTIPLES)}",
            )
        )
    if dtype not in KINDS:
        raise DTypeError(message(f"tolerance: {dtype!r} is no dtype", need="one of mg.dtypes"))
    if KINDS[dtype] not in ("float", "complex"):
        return Tolerance(0.0, 0.0)
    eps = float(finfo(dtype).eps)
    if numerics == "half":
        eps = max(eps, float(finfo(FLOATS[3]).eps))
    relative, absolute = _MULTIPLES[numerics]
    if dtype.itemsize == 2:  # these round only what they store; sums are formed in float32
        relative, absolute = min(relative, 4.0), min(absolute, 4.0)
    return Tolerance(relative * eps, absolute * eps)
