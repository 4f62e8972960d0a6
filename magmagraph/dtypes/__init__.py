"""Element types: which exist, how they combine, and how exactly they compute.

The rules, where they are not NumPy's: an integer with a float or a complex number gives the type
of that (``int64`` with ``float32`` is ``float32``, with ``complex64`` ``complex64``), ``bfloat16``
with ``float16`` gives ``float32``, and a Python scalar is weak: it takes the type of the array
that it meets, as long as it is of no higher kind.
"""

from ..ir.element_types import (
    BOOL,
    COMPLEXES,
    FLOAT32,
    FLOATS,
    INT32,
    INT64,
    SIGNED,
    SUPPORTED,
    UNSIGNED,
    DType,
    Kind,
    complex_dtype,
    is_bool,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    is_unsigned,
    kind,
    real_dtype,
)
from .machine import accumulation_dtype, c_name, finfo, iinfo
from .names import canonical
from .promotion import can_feed, can_hold, canonical_scalar, holds, promote, weak_dtype
from .tolerances import Numerics, Tolerance, tolerance

__all__ = [
    "BOOL",
    "COMPLEXES",
    "FLOAT32",
    "FLOATS",
    "INT32",
    "INT64",
    "SIGNED",
    "SUPPORTED",
    "UNSIGNED",
    "DType",
    "Kind",
    "Numerics",
    "Tolerance",
    "accumulation_dtype",
    "c_name",
    "can_feed",
    "can_hold",
    "canonical",
    "canonical_scalar",
    "complex_dtype",
    "finfo",
    "holds",
    "iinfo",
    "is_bool",
    "is_complex",
    "is_float",
    "is_inexact",
    "is_integer",
    "is_unsigned",
    "kind",
    "promote",
    "real_dtype",
    "tolerance",
    "weak_dtype",
]


def __dir__() -> list[str]:
    return sorted(__all__)
