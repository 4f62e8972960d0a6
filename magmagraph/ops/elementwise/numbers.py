"""The rest of arithmetic, element by element: remainders, parts of numbers, divisors, angles."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ...dtypes import is_float, is_unsigned
from ...errors import DTypeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kind, Op, Sample
from ...ir.types import Type
from ..control.identities import stop_gradient
from ..rules import onnx_control, onnx_forms
from ..rules.namesakes import namesake
from .arithmetic import divide, floor_divide, multiply, remainder, subtract
from .comparison import less, where
from .family import (
    OTHER,
    OTHER_WHOLE,
    REAL,
    ROW,
    WHOLE,
    binary,
    broadcast,
    broadcast_numbers,
    floating,
    number_pair,
    numpy_named,
    unary,
)
from .math import sin
from .not_finite import NOT_FINITE
from .rounding import floor, isinf, rint, trunc
from .signs import absolute, copysign

__all__ = [
    "deg2rad",
    "divmod",
    "fmod",
    "gcd",
    "lcm",
    "modf",
    "rad2deg",
    "sinc",
]


# Remainders and parts.


def _fmod_scalar(dtype: np.dtype) -> str:
    if is_float(dtype):
        return "$fmod(a, b)"
    # Division by 0 and of the lowest value by -1 trap.
    return "b == 0 ? 0 : a % b" if is_unsigned(dtype) else "b == 0 || b == -1 ? 0 : (T)(a % b)"


fmod, FMOD = binary(
    "fmod",
    "Take what a division that rounds toward zero leaves; it has the dividend's sign.",
    """
    >>> mg.fmod([7, -7], 3).eval()
    array([ 1, -1], dtype=int32)
    """,
    module=__name__,
    notes="An integer modulo zero is 0, as in NumPy; a float is NaN.",
    evaluate=numpy_named("fmod"),
    onnx=onnx_forms.modulo_of_c,
    scalar=_fmod_scalar,
    gradient=lambda node, cotangent: (
        cotangent,
        -(cotangent * trunc(divide(node.inputs[0], node.inputs[1]))),
    ),
    rule=broadcast_numbers,
    operands=number_pair,
    samples=lambda: [
        Sample((REAL, OTHER + 0.05)),
        Sample((REAL, ROW)),
        Sample((WHOLE, OTHER_WHOLE)),
        Sample((WHOLE, np.array([0, -1, 3], dtype=np.int32))),
    ],
    numerics="exact",
)


@documented
def divmod(x1: Any, x2: Any) -> tuple[Node, Node]:
    """Divide and round down, and take what that leaves.

    x1, x2: Nodes, arrays or numbers, broadcast against each other.
    returns (tuple of Node): ``floor_divide(x1, x2)`` and ``remainder(x1, x2)``. The gradient flows
        through the second.

    >>> whole, rest = mg.divmod(mg.constant([7, -7]), 3)
    >>> whole.eval(), rest.eval()
    (array([ 2, -3], dtype=int32), array([1, 2], dtype=int32))
    """
    return floor_divide(x1, x2), remainder(x1, x2)


@documented
def modf(x: Any) -> tuple[Node, Node]:
    """Split numbers into what stands behind the point and the whole number before it.

    x: Node or array; ints become floats.
    returns (tuple of Node): The fractional and the whole parts, both with the sign of `x`. The
        gradient flows through the first.

    >>> fraction, whole = mg.modf([2.5, -0.25])
    >>> fraction.eval(), whole.eval()
    (array([ 0.5 , -0.25], dtype=float32), array([ 2., -0.], dtype=float32))
    """
    node = floating(x)
    finite = where(isinf(node), 0.0, node)
    # The slope is that of `finite` and not of the copied sign, which a zero fraction does not have.
    fraction = stop_gradient(copysign(subtract(finite, trunc(finite)), node))
    return fraction - (stop_gradient(finite) - finite), trunc(node)


# Angles.


def _angle(name: str, what: str, factor: float, argument: float) -> Any:
    return unary(
        name,
        what,
        f"""
        >>> mg.{name}([{argument!r}]).eval().round(3)
        array([{round(argument * factor, 3)!r}], dtype=float32)
        """,
        module=__name__,
        evaluate=numpy_named(name),
        onnx=onnx_forms.rewritten(lambda node: node.inputs[0] * factor),
        scalar=f"a * (T){factor!r}",
        gradient=lambda node, cotangent: (cotangent * factor,),
    )


deg2rad, DEG2RAD = _angle("deg2rad", "Convert degrees to radians.", math.pi / 180.0, 90.0)

rad2deg, RAD2DEG = _angle("rad2deg", "Convert radians to degrees.", 180.0 / math.pi, 2.0)


@documented
def sinc(x: Any) -> Node:
    """Evaluate ``sin(pi x) / (pi x)``, and 1 at 0.

    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`. Near 0 it is the Taylor series, so that
        derivatives are accurate there, too.

    >>> mg.sinc([0.0, 0.5, 2.5]).eval().round(4)
    array([1.    , 0.6366, 0.1273], dtype=float32)
    """
    node = floating(x)
    near = less(absolute(node), 0.5 / math.pi)
    angle = multiply(where(near, node, 0.0), math.pi)
    square = multiply(angle, angle)
    series: Any = 0.0
    for k in range(8, -1, -1):  # the next term is below 1e-19
        series = series * square + (-1.0) ** k / math.factorial(2 * k + 1)
    far = where(near, 1.0, node)
    # Use the exact remainder of the nearest whole number: sin(pi x) is 0 for whole x.
    whole = stop_gradient(rint(far))
    sign = 1.0 - 2.0 * (whole - 2.0 * floor(whole * 0.5))
    wave = sign * sin(multiply(far - whole, math.pi))
    return where(near, series, divide(divide(wave, far), math.pi))


# Divisors.


def _whole(name: str, summary: str, result: str, onnx: onnx_forms.Rule) -> Any:
    def rule(call: Call, x: Type, y: Type) -> Type:
        if x.dtype.kind not in "iu":
            raise call.dtype_error(f"operands of dtype {x.dtype.name}", need="integers")
        return broadcast(call, x, y)

    return binary(
        name,
        summary,
        f"""
        >>> mg.{name}(mg.constant([12, 7]), 18).eval()
        array({result}, dtype=int32)
        """,
        module=__name__,
        evaluate=numpy_named(name),
        scalar=None,  # type: ignore[arg-type]  # a loop for each element: the array expression's
        no_gradient="integer valued",
        rule=rule,
        samples=lambda: [Sample((WHOLE, OTHER_WHOLE)), Sample((WHOLE, np.array([0, 4, -6])))],
        bad_samples=lambda: [
            BadSample((REAL, REAL), DTypeError, f"{name}: operands of dtype float64")
        ],
        commutative=True,
        numerics="exact",
        onnx=onnx,
    )


gcd, GCD = _whole(
    "gcd",
    "Find the greatest common divisor of two integers; that with 0 is the other.",
    "[6, 1]",
    onnx_control.divisor,
)

lcm, LCM = _whole(
    "lcm",
    "Find the least common multiple of two integers; that with 0 is 0.",
    "[ 36, 126]",
    onnx_control.multiple,
)

_composite = partial(namesake, Kind.ELEMENTWISE)

RECORDS: tuple[Op | Composite, ...] = (
    FMOD,
    DEG2RAD,
    RAD2DEG,
    GCD,
    LCM,
    _composite(
        divmod,
        "The quotient rounded down and what it leaves.",
        [Sample((REAL, OTHER + 0.05)), Sample((WHOLE, OTHER_WHOLE))],
    ),
    _composite(
        modf,
        "The fractional and the whole part.",
        [Sample((REAL,)), Sample((NOT_FINITE,), gradient=(), reason="not finite")],
    ),
    _composite(
        sinc,
        "sin(pi x) / (pi x).",
        [Sample((REAL,)), Sample((np.array([0.0, 1e-3, -0.15, 0.16, 3.0]),))],
        numerics="stable",
        reference=lambda x: np.sinc(x),
    ),
)
