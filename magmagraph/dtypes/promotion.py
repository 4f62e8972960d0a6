"""How element types combine, and which values go where."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..errors import ArgumentError, DTypeError, message
from ..ir.docstrings import documented
from ..ir.element_types import (
    BOOL,
    FLOAT32,
    INT32,
    INT64,
    KINDS,
    SUPPORTED,
    UNSIGNED,
    DType,
    complex_dtype,
    real_dtype,
)
from .machine import finfo, iinfo


def _promoted(left: DType, right: DType) -> DType:
    kinds = KINDS[left], KINDS[right]
    if left == right or kinds[1] == "bool":
        return left
    if kinds[0] == "bool":
        return right
    if "complex" in kinds:
        if "integer" in kinds:
            return left if kinds[0] == "complex" else right
        return complex_dtype(_promoted(real_dtype(left), real_dtype(right)))
    if kinds[0] != kinds[1]:
        return left if kinds[0] == "float" else right
    if {left.name, right.name} == {"float16", "bfloat16"}:
        return FLOAT32  # neither holds the other: one lacks range, one precision
    if "bfloat16" in (left.name, right.name):
        return left if right.name == "bfloat16" else right
    return np.promote_types(left, right)


_PROMOTION: Final[dict[tuple[DType, DType], DType]] = {
    (left, right): _promoted(left, right) for left in SUPPORTED for right in SUPPORTED
}


@documented
def promote(*dtypes: DType) -> DType:
    """Find the dtype that operands are brought to.

    *dtypes (numpy.dtype): Canonical ones, at least one. The order does not matter.
    returns (numpy.dtype):

    Examples
    --------
    >>> from magmagraph.dtypes import canonical
    >>> names = [("int64", "float32"), ("bfloat16", "float16"), ("uint8", "int8"), ("bool", "int8")]
    >>> [promote(*map(canonical, pair)).name for pair in names]
    ['float32', 'float32', 'int16', 'int8']
    """
    if len(dtypes) == 2:
        return _PROMOTION[dtypes]
    unknown = [dtype for dtype in dtypes if dtype not in KINDS]
    if unknown:
        raise DTypeError(message(f"promote: {unknown[0]!r} is no dtype", need="those of mg.dtypes"))
    if not dtypes:
        raise ArgumentError(message("promote: no dtypes", need="at least one"))
    # Only the highest kind counts: int64 with uint64 is float64, but with a float32 it is float32.
    for kinds in (("complex", "float"), ("integer",)):
        of_kind = [dtype for dtype in dtypes if KINDS[dtype] in kinds]
        if of_kind:
            # Widest first: float64 with float16 and bfloat16 does not pass through float32. A
            # complex number comes before all of them, and takes on the width of a float.
            result, *others = sorted(of_kind, key=SUPPORTED.index)
            for dtype in others:
                result = _PROMOTION[result, dtype]
            return result
    return dtypes[0]


@documented
def canonical_scalar(value: complex, float_dtype: DType = FLOAT32) -> DType:
    """Find the dtype of a Python scalar that meets no array.

    value (bool, int, float or complex):
    float_dtype (numpy.dtype): The dtype of floats.
    returns (numpy.dtype): bool, int32 (int64 where it does not fit, and then uint64),
        `float_dtype`, or the complex dtype of that.
    raises DTypeError: If no integer dtype holds the int.

    Examples
    --------
    >>> [canonical_scalar(value).name for value in (True, 3, 2**40, 0.5, 2j)]
    ['bool', 'int32', 'int64', 'float32', 'complex64']
    """
    if isinstance(value, (bool, np.bool_)):
        return BOOL
    if isinstance(value, (int, np.integer)):
        for dtype in (INT32, INT64, UNSIGNED[3]):
            if holds(dtype, int(value)):
                return dtype
        raise DTypeError(
            message(
                f"the int {value} does not fit any integer dtype",
                need=f"an int from {iinfo(INT64).min} to {iinfo(UNSIGNED[3]).max}",
                hint=f"write it as a float: {float_dtype.name} holds it approximately",
            )
        )
    return complex_dtype(float_dtype) if isinstance(value, complex) else float_dtype


@documented
def weak_dtype(value: complex, other: DType, float_dtype: DType = FLOAT32) -> DType:
    """Find the dtype of a Python scalar that meets an array.

    value (bool, int, float or complex):
    other (numpy.dtype): The array's.
    float_dtype (numpy.dtype): The dtype of a float that meets integers or bools; a complex one has
        its complex dtype.
    returns (numpy.dtype): `other`, unless the scalar is of a higher kind. A complex scalar makes a
        float's dtype the complex one of its width.
    raises DTypeError: If the scalar is an int that the array's integer dtype does not hold.

    Examples
    --------
    >>> from magmagraph.dtypes import canonical
    >>> half, small = canonical("float16"), canonical("int8")
    >>> weak_dtype(2.0, half).name, weak_dtype(2, small).name, weak_dtype(2.0, small).name
    ('float16', 'int8', 'float32')
    >>> weak_dtype(300, small)
    Traceback (most recent call last):
    magmagraph.errors.DTypeError: the int 300 does not fit int8
      expected: an int from -128 to 127
      try: cast the int8 operand to a wider dtype, such as int32
    """
    if isinstance(value, bool):
        return other
    other_kind = KINDS[other]
    if other_kind == "complex":
        return other
    if isinstance(value, complex):
        return complex_dtype(other if other_kind == "float" else float_dtype)
    if isinstance(value, float):
        return other if other_kind == "float" else float_dtype
    if other_kind == "float":
        return other
    natural = canonical_scalar(value, float_dtype)
    if other_kind == "bool":
        return natural
    if not holds(other, value):
        limits = iinfo(other)
        raise DTypeError(
            message(
                f"the int {value} does not fit {other.name}",
                need=f"an int from {limits.min} to {limits.max}",
                hint=f"cast the {other.name} operand to a wider dtype, such as {natural.name}",
            )
        )
    return other


def holds(dtype: DType, value: int) -> bool:
    """Tell whether an integer dtype holds an int."""
    limits = iinfo(dtype)
    return bool(limits.min <= value <= limits.max)


@documented
def can_feed(source: np.dtype | np.ndarray, target: DType) -> bool:
    """Tell whether values may be fed where a dtype is wanted.

    Feeds convert within a kind: floats to floats of any width, complex numbers alike, integers to
    integers that hold every value, bool to bool. Integers also go to floats and to complex dtypes
    that hold every value exactly, and floats to complex dtypes. No value loses a part: floats are
    not fed to integers, nor complex numbers to floats.

    source (numpy.ndarray or numpy.dtype): The array; or only a dtype, which must then fit whatever
        the values are.
    target (numpy.dtype):
    returns (bool):

    Examples
    --------
    >>> from magmagraph.dtypes import canonical
    >>> small = canonical("int8")
    >>> can_feed(np.array([1, 2]), small), can_feed(np.array([1, 200]), small)
    (True, False)
    >>> can_feed(np.array([1, 2]), FLOAT32), can_feed(np.array([2**24 + 1]), FLOAT32)
    (True, False)
    >>> can_feed(np.dtype("complex64"), FLOAT32), can_feed(np.array([2j]), canonical("complex64"))
    (False, True)
    """
    values = None if isinstance(source, np.dtype) else source
    source_dtype = source if isinstance(source, np.dtype) else source.dtype
    source_kind, target_kind = KINDS.get(source_dtype), KINDS[target]
    if (source_kind, target_kind) == ("float", "complex"):
        return True
    if source_kind == "integer" and target_kind in ("float", "complex"):
        return _holds_exactly(real_dtype(target), source_dtype, values)
    if source_kind is None or source_kind != target_kind:
        return False
    if source_kind != "integer" or np.can_cast(source_dtype, target):
        return True
    if values is None:
        return False
    return not values.size or (
        holds(target, int(values.min())) and holds(target, int(values.max()))
    )


def _holds_exactly(target: DType, source: np.dtype, values: np.ndarray | None) -> bool:
    """Tell whether a float dtype holds integers exactly: all of a dtype, or those of an array."""
    limits = finfo(target)
    largest = 2 ** (int(limits.nmant) + 1)  # up to it there is no gap between integers
    if values is None:
        low, high = int(iinfo(source).min), int(iinfo(source).max)
    elif values.size:
        low, high = int(values.min()), int(values.max())
    else:
        return True
    if -largest <= low and high <= largest:
        return True
    if values is None or max(-low, high) > float(limits.max):
        return False
    wide = values.astype(np.uint64 if source.kind == "u" else np.int64)
    size = abs(wide).astype(np.uint64)
    odd = size // np.maximum(size & (~size + np.uint64(1)), np.uint64(1))  # no factors of 2
    return bool(odd.max() <= largest)


@documented
def can_hold(value: Any, array: np.ndarray, target: DType) -> bool:
    """Tell whether what a caller hands over may be stored in a dtype.

    As `can_feed`, but numbers of Python, which have no dtype, are rounded to a float: 2**24 + 1 is
    also 1.6777216e7; and a list of none is of every kind.

    value: What was handed over: an array, a number, nested lists of them.
    array (numpy.ndarray): The same as an array.
    target (numpy.dtype):
    returns (bool):

    Examples
    --------
    >>> held = [1, 2**24 + 1]
    >>> can_hold(held, np.array(held), FLOAT32), can_hold(np.array(held), np.array(held), FLOAT32)
    (True, False)
    >>> can_hold(2.5, np.array(2.5), INT32), can_hold(2**31, np.array(2**31), INT32)
    (False, False)
    """
    weak = not isinstance(value, np.generic) and not hasattr(value, "dtype")
    higher = {"complex": "iuf", "float": "iu"}.get(KINDS[target], "")
    counted = weak and (not array.size or array.dtype.kind in higher)
    return counted or can_feed(array, target)
