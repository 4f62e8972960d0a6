"""The signs of numbers, and their neighbours."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...dtypes import is_complex, is_float, is_integer, is_unsigned, real_dtype
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, WIDE, Call, Composite, Kind, Op, Sample, Scalar, Tests
from ...ir.types import Type
from ..control.identities import stop_gradient
from ..convert import as_node, cast
from ..rules import onnx_forms, onnx_pairs
from ..rules.namesakes import namesake
from .arithmetic import divide, negative
from .bits import logical_and, logical_or
from .comparison import equal, greater, less, maximum, where
from .complex_numbers import complex, direction, imag, real
from .family import (
    FLAGS,
    OTHER,
    REAL,
    ROW,
    WHOLE,
    binary,
    broadcast_floats,
    floating_pair,
    like_number,
    numpy_named,
    to_bool,
    unary,
)
from .rounding import isinf, isnan

__all__ = [
    "absolute",
    "copysign",
    "heaviside",
    "nextafter",
    "positive",
    "sign",
    "signbit",
]

_SIGNED_ZEROS = np.array([0.0, -0.0, 1.5, -np.inf, np.nan])


# Absolute values.


def _absolute_scalar(dtype: np.dtype) -> str:
    if is_float(dtype):
        return "$fabs(a)"
    if is_complex(dtype):
        return "$absolute(a)"
    return "a < 0 ? -a : a" if is_integer(dtype) and not is_unsigned(dtype) else "a"


def _absolute_type(call: Call, x: Type) -> Type:
    return Type(real_dtype(x.dtype), x.shape) if is_complex(x.dtype) else x


def _absolute_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    x = node.inputs[0]
    if is_complex(x.dtype):
        return (cast(cotangent, x.dtype) * direction(x, node),)
    return (cotangent * where(equal(x, 0), 1, sign(x)),)


absolute, ABSOLUTE = unary(
    "absolute",
    "Take the absolute value, element by element.",
    """
    >>> mg.absolute([-1.5, 2.0]).eval()
    array([1.5, 2. ], dtype=float32)
    """,
    module=__name__,
    notes="Of a complex number it is the real distance from 0, with the gradient 0 at 0. Of a real "
    "number the gradient at 0 is 1, as JAX has it.",
    evaluate=numpy_named("absolute"),
    scalar=_absolute_scalar,
    gradient=_absolute_gradient,
    rule=_absolute_type,
    operand=as_node,
    samples=lambda: [Sample((REAL,)), Sample((WHOLE,)), Sample((FLAGS,))],
    numerics="exact",
    dtypes=INEXACT,
    onnx=onnx_pairs.Pairs(onnx_forms.magnitude, onnx_pairs.absolute),
)


# Signs.


def _sign_scalar(dtype: np.dtype) -> str:
    if is_float(dtype):
        return "a != a ? a : (T)((a > 0) - (a < 0))"
    return "(T)((a > 0) - (a < 0))"


def _sign_type(call: Call, x: Type) -> Type:
    if is_complex(x.dtype):
        raise call.dtype_error(
            f"operand of dtype {x.dtype.name}",
            need="a real dtype: mg.sign divides complex numbers by their absolute values",
        )
    return like_number(call, x)


def _complex_sign(x: Node) -> Node:
    """Return ``x / abs(x)``, 0 at 0; one infinite part counts alone, two give NaN."""
    # Divided by the larger part first, so that the absolute value neither over- nor underflows;
    # the sign does not depend on that divisor, so no gradient flows through it.
    parts = real(x), imag(x)
    size = stop_gradient(maximum(*map(absolute, parts)))
    scale = where(logical_or(equal(size, 0), isinf(size)), 1, size)
    both = logical_and(*map(isinf, parts))
    far = [where(isinf(part), where(both, np.nan, sign(part)), 0) for part in parts]
    near = [divide(part, scale) for part in parts]
    scaled = complex(*[where(isinf(size), *pair) for pair in zip(far, near, strict=True)])
    none = equal(size, 0)
    length = absolute(where(none, 1, scaled))
    return where(none, 0, divide(scaled, cast(length, x.dtype)))


sign, SIGN = unary(
    "sign",
    "Give -1, 0 or 1 as an element is negative, zero or positive; NaN stays NaN.",
    """
    >>> mg.sign([-1.5, 0.0, 2.0]).eval()
    array([-1.,  0.,  1.], dtype=float32)
    >>> mg.sign([3.0 + 4.0j]).eval()
    array([0.6+0.8j], dtype=complex64)
    """,
    module=__name__,
    notes="Of a complex number it is ``x / abs(x)``, and 0 at 0; that has a gradient, 0 at 0.",
    evaluate=numpy_named("sign"),
    scalar=_sign_scalar,
    no_gradient="piecewise constant of real numbers, so zero wherever it exists",
    rule=_sign_type,
    operand=as_node,
    of_complex=_complex_sign,
    samples=lambda: [Sample((REAL,)), Sample((np.array([np.nan, 0.0, -0.0]),)), Sample((WHOLE,))],
    dtypes=INEXACT,
    onnx="Sign",
)


def _signbit_scalar(dtype: np.dtype) -> str:
    if is_float(dtype):
        return "$copysign((T)1, a) < 0"
    return "0" if is_unsigned(dtype) else "a < 0"


def _signbit_written(x: Node) -> Node:
    """Compare; of zeros the reciprocal is -inf where the sign is negative."""
    below = less(x, 0)
    return logical_or(below, less(divide(1.0, x), 0)) if is_float(x.dtype) else below


def _copysign_written(x: Node, y: Node) -> Node:
    return where(_signbit_written(y), negative(absolute(x)), absolute(x))


signbit, SIGNBIT = unary(
    "signbit",
    "Tell where the sign is negative; that of -0.0 is.",
    """
    >>> mg.signbit([-1.5, 0.0, -0.0]).eval()
    array([ True, False,  True])
    """,
    module=__name__,
    evaluate=lambda xp, x: xp.signbit(x) if x.dtype.kind not in "iub" else x < 0,
    onnx=onnx_forms.rewritten(lambda node: _signbit_written(node.inputs[0])),
    scalar=_signbit_scalar,
    no_gradient="boolean valued",
    rule=to_bool,
    operand=as_node,
    samples=lambda: [Sample((_SIGNED_ZEROS,)), Sample((WHOLE,))],
    numerics="exact",
)

copysign, COPYSIGN = binary(
    "copysign",
    "Give the absolute value of the first operand the sign of the second.",
    """
    >>> mg.copysign([1.5, -2.0], [-0.0, 3.0]).eval()
    array([-1.5,  2. ], dtype=float32)
    """,
    module=__name__,
    notes="The gradient with respect to `y` is 0; that with respect to `x` changes sign with it.",
    evaluate=numpy_named("copysign"),
    onnx=onnx_forms.rewritten(lambda node: _copysign_written(*node.inputs)),
    scalar="$copysign(a, b)",
    gradient=lambda node, cotangent: (
        where(equal(signbit(node), signbit(node.inputs[0])), cotangent, -cotangent),
        None,
    ),
    rule=broadcast_floats,
    operands=floating_pair,
    samples=lambda: [
        Sample((REAL, OTHER), gradient=(0,), reason="piecewise constant in the second operand"),
        Sample((REAL, ROW), gradient=(0,), reason="piecewise constant in the second operand"),
        Sample((_SIGNED_ZEROS, -_SIGNED_ZEROS), gradient=(), reason="zeros and NaN"),
    ],
    numerics="exact",
)


@documented
def heaviside(x1: Any, x2: Any) -> Node:
    """Give 0 for negative and 1 for positive values, and the second operand at 0.

    x1: Node or array.
    x2: The value at 0.
    returns: Of the broadcast shape and the promoted float dtype; NaN where `x1` is. The gradient
        flows to `x2` alone.

    >>> mg.heaviside([-1.5, 0.0, 2.0], 0.5).eval()
    array([0. , 0.5, 1. ], dtype=float32)
    """
    x, middle = floating_pair(x1, x2)
    step = where(greater(x, 0), 1.0, where(equal(x, 0), middle, 0.0))
    return where(isnan(x), np.nan, step)


# Neighbours, and values that are not finite.


@documented
def nextafter(x1: Any, x2: Any) -> Node:
    """Return the next float after `x1` in the direction of `x2`.

    x1, x2: Nodes, arrays or numbers, broadcast against each other: float64 or float32.
    returns: Of the broadcast shape and the promoted dtype; `x1` itself where both are equal. No
        gradient: it jumps from float to float.
    raises DTypeError: For 16-bit floats.

    >>> mg.nextafter([1.0], 2.0).eval() > 1.0
    array([ True])
    """
    return NEXTAFTER(*floating_pair(x1, x2))


NEXTAFTER = Op(
    name="nextafter",
    kind=Kind.ELEMENTWISE,
    rule=broadcast_floats,
    evaluate=numpy_named("nextafter"),
    scalar=Scalar("$nextafter(a, b)"),
    no_gradient="it jumps from float to float",
    function=nextafter,
    dtypes=WIDE,
    tests=Tests(
        samples=lambda: [Sample((REAL, OTHER)), Sample((REAL, REAL))],
        reference=lambda x, y: np.nextafter(x, y),
    ),
    numerics="stable",
)

positive, POSITIVE = unary(
    "positive",
    "Return numbers as they are.",
    """
    >>> mg.positive([1.0, -2.0]).eval()
    array([ 1., -2.], dtype=float32)
    """,
    module=__name__,
    evaluate=lambda xp, x: x,
    onnx=onnx_forms.first,
    scalar="a",
    gradient=lambda node, cotangent: (cotangent,),
    rule=like_number,
    operand=as_node,
    samples=lambda: [Sample((REAL,)), Sample((WHOLE,))],
    numerics="exact",
    dtypes=INEXACT,
)

_composite = partial(namesake, Kind.ELEMENTWISE)

RECORDS: tuple[Op | Composite, ...] = (
    ABSOLUTE,
    SIGN,
    SIGNBIT,
    COPYSIGN,
    NEXTAFTER,
    POSITIVE,
    _composite(
        heaviside,
        "0 for negative, 1 for positive values.",
        [
            Sample((REAL, ROW), gradient=(), reason="no element is 0"),
            Sample((np.array([0.0, 2.0, -1.0]), ROW), gradient=(1,), reason="piecewise constant"),
            Sample((np.array([0.0, np.nan, -1.0]), ROW), gradient=(), reason="NaN"),
        ],
    ),
)
