"""Element types: which exist, how they combine, and how exactly they compute.

The rules, where they are not NumPy's: an integer with a float gives the float's type
(``int64`` with ``float32`` is ``float32``), ``bfloat16`` with ``float16`` gives ``float32``, and a
Python scalar is weak: it takes the type of the array that it meets, as long as it is of no higher
kind.
"""

from .kinds import (
    BOOL,
    FLOAT32,
    FLOATS,
    INT32,
    INT64,
    SIGNED,
    SUPPORTED,
    UNSIGNED,
    DType,
    Kind,
    canonical,
    is_bool,
    is_float,
    is_integer,
    is_unsigned,
    kind,
)
from .machine import accumulation_dtype, c_name, finfo, iinfo
from .promotion import can_feed, canonical_scalar, holds, promote, weak_dtype
from .tolerances import Numerics, Tolerance, tolerance

__all__ = [
    "BOOL",
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
    "canonical",
    "canonical_scalar",
    "finfo",
    "holds",
    "iinfo",
    "is_bool",
    "is_float",
    "is_integer",
    "is_unsigned",
    "kind",
    "promote",
    "tolerance",
    "weak_dtype",
]
