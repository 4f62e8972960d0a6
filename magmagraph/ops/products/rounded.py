"""Operands of mixed products, as the chip takes them: 16-bit ones widened, tf32 ones rounded."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import accumulation_dtype, is_float
from ...ir.op import Call
from ...ir.types import Extent, Type

TF32_DROPPED = 13  # of the 23 explicit bits of a float32's mantissa, tf32 keeps 10


def tf32(xp: Any, x: Any) -> Any:
    """Return float32 numbers rounded to 10 explicit bits of the mantissa.

    To nearest, ties to even, as the conversion in front of tensor cores may do; infinities and
    NaN stay what they are.

    Examples
    --------
    >>> tf32(np, np.float32([1.0, 1.0 + 2.0**-11, 1.0 + 3 * 2.0**-11, np.inf])) - 1
    array([0.        , 0.        , 0.00195312,        inf], dtype=float32)
    """
    bits = xp.asarray(x, dtype=np.float32).view(np.uint32)
    half = np.uint32((1 << (TF32_DROPPED - 1)) - 1)
    odd = (bits >> np.uint32(TF32_DROPPED)) & np.uint32(1)
    cut = np.uint32(0xFFFFFFFF << TF32_DROPPED & 0xFFFFFFFF)
    rounded = ((bits + half + odd) & cut).view(np.float32)
    return xp.where(xp.isfinite(x), rounded, x)


def operand(xp: Any, x: Any, compute: str = "") -> Any:
    """Return a factor of a product in the dtype that it is multiplied in."""
    if is_float(x.dtype) and x.dtype.itemsize < 4:
        return x.astype(np.float32)
    return tf32(xp, x) if compute == "tf32" else x


def conversion_bytes(a: Type, b: Type, result: Type, compute: str = "") -> Extent:
    """Return the bytes of float32 copies that a product needs where no chip multiplies its dtypes.

    Of both factors unless they are wide and not rounded, and of the result unless that is wide.
    """
    count: Extent = 0
    if compute or a.dtype.itemsize < 4:
        count = count + a.size + b.size
    if result.dtype.itemsize < 4:
        count = count + result.size
    return count * 4


def mixed_type(call: Call, default_type: Type, compute: str, result: np.dtype | None) -> Type:
    """Return the type of a product in mixed precision; `default_type` has the operands' dtype."""
    if compute not in ("", "tf32") or (compute and default_type.dtype != np.dtype(np.float32)):
        raise call.dtype_error(
            f"compute={compute!r} of {default_type.dtype.name}", need="'' or, of float32, 'tf32'"
        )
    if result is None:
        return default_type
    if result not in (default_type.dtype, accumulation_dtype(default_type.dtype)):
        raise call.dtype_error(
            f"a result of {result.name} from operands of {default_type.dtype.name}",
            need=f"{default_type.dtype.name} or {accumulation_dtype(default_type.dtype).name}",
        )
    return Type(result, default_type.shape)
