"""What the machine makes of element types: their limits, C types, and accumulators."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from ..errors import DTypeError, message
from ..ir.docstrings import documented
from ..ir.element_types import (
    BOOL,
    COMPLEXES,
    FLOAT32,
    FLOATS,
    INT64,
    KINDS,
    SIGNED,
    UNSIGNED,
    DType,
    real_dtype,
)
from .names import canonical

_ACCUMULATION: Final[dict[DType, DType]] = {
    **{dtype: dtype for dtype in (*COMPLEXES, *FLOATS[:2])},
    **dict.fromkeys(FLOATS[2:], FLOAT32),
    **dict.fromkeys((*SIGNED, BOOL), INT64),
    **dict.fromkeys(UNSIGNED, UNSIGNED[3]),
}


def accumulation_dtype(dtype: DType) -> DType:
    """Find the dtype in which sums and products of many elements are formed.

    Examples
    --------
    >>> from magmagraph.dtypes import canonical
    >>> [accumulation_dtype(canonical(name)).name for name in ("bfloat16", "float32", "int8")]
    ['float32', 'float32', 'int64']
    """
    if dtype not in _ACCUMULATION:
        raise DTypeError(message(f"{dtype!r} is no dtype", need="one of mg.dtypes"))
    return _ACCUMULATION[dtype]


_C_NAMES: Final[dict[DType, str]] = {
    COMPLEXES[0]: "double _Complex",
    COMPLEXES[1]: "float _Complex",
    FLOATS[0]: "double",
    FLOATS[1]: "float",
    FLOATS[2]: "uint16_t",
    FLOATS[3]: "uint16_t",
    **{dtype: f"{dtype.name}_t" for dtype in (*SIGNED, *UNSIGNED)},
    BOOL: "uint8_t",
}


def c_name(dtype: DType) -> str:
    """Name the C type that an element has in memory.

    The 16-bit floats are held as their bits, since not every compiler has them; kernels widen
    them to float, compute, and round once. A bool is one byte, 0 or 1.

    Examples
    --------
    >>> from magmagraph.dtypes import canonical
    >>> [c_name(canonical(name)) for name in ("float32", "bfloat16", "int8", "bool")]
    ['float', 'uint16_t', 'int8_t', 'uint8_t']
    """
    if dtype not in _C_NAMES:
        raise DTypeError(message(f"{dtype!r} is no dtype", need="one of mg.dtypes"))
    return _C_NAMES[dtype]


@cache
@documented
def finfo(dtype: DType) -> Any:
    """Return the limits of a float dtype: ``eps, tiny, max, bits, ...``, for bfloat16 as well.

    Those of a complex dtype are the limits of its parts.

    dtype: A float or complex dtype, or its name.
    raises DTypeError: If it is another kind of dtype.

    Examples
    --------
    >>> from magmagraph.dtypes import canonical
    >>> float(finfo(canonical("bfloat16")).eps)
    0.0078125
    """
    dtype = canonical(dtype)
    if KINDS[dtype] not in ("float", "complex"):
        raise DTypeError(message(f"finfo of {dtype!r}", need="a float or complex dtype"))
    return ml_dtypes.finfo(real_dtype(dtype))  # type: ignore[no-untyped-call]


@cache
@documented
def iinfo(dtype: DType) -> np.iinfo[Any]:
    """Return the limits of an integer dtype: ``min, max, bits``.

    dtype: An integer dtype, or its name.
    raises DTypeError: If it is another kind of dtype.

    Examples
    --------
    >>> from magmagraph.dtypes import canonical
    >>> iinfo(canonical("uint8")).max
    255
    """
    dtype = canonical(dtype)
    if KINDS[dtype] != "integer":
        raise DTypeError(message(f"iinfo of {dtype!r}", need="an integer dtype"))
    return np.iinfo(dtype)
