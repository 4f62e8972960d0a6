"""Powers of two and their logarithms: ldexp, frexp, float_power, sums of exponentials."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ...dtypes import is_float
from ...errors import DTypeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kind, Op, Sample, Scalar, Tests
from ...ir.types import Type
from ..convert import as_node, cast
from ..networks.activation import sigmoid
from ..rules import onnx_forms
from ..rules.namesakes import namesake
from .arithmetic import floor_divide, multiply, subtract
from .bits import logical_and
from .comparison import clip, equal, greater_equal, less, maximum, not_equal, where
from .family import (
    OTHER,
    REAL,
    ROW,
    WHOLE,
    binary,
    broadcast_floats,
    floating,
    floating_pair,
    numpy_named,
)
from .math import exp, log1p, log2, power
from .rounding import floor, isfinite, isinf
from .signs import absolute

__all__ = ["float_power", "frexp", "ldexp", "logaddexp", "logaddexp2"]


# Powers of two.


def _ldexp_type(call: Call, x: Type, exponent: Type) -> Type:
    if not is_float(x.dtype):
        raise call.dtype_error(f"operand of dtype {x.dtype.name}", need="a float dtype")
    if exponent.dtype.kind not in "iu":
        raise call.dtype_error(
            f"exponents of dtype {exponent.dtype.name}",
            need="integers",
            hint="x * mg.exp2(exponent)",
        )
    return Type(x.dtype, call.broadcast(x.shape, exponent.shape))


def _ldexp(xp: Any, x: Any, exponent: Any) -> Any:
    # Exponents beyond any float's range would wrap in the C library's int.
    return xp.ldexp(x, xp.clip(exponent, -(1 << 14), 1 << 14).astype(np.int32))


def _ldexp_written(x: Node, exponent: Node) -> Node:
    """Multiply by two powers: one alone is beyond the range where the result is not."""
    wide = clip(cast(exponent, np.int64), -(1 << 14), 1 << 14)
    half = floor_divide(wide, 2)
    first, second = (power(2.0, cast(part, x.dtype)) for part in (half, wide - half))
    return cast(x * first * second, x.dtype)


@documented
def ldexp(x1: Any, x2: Any) -> Node:
    """Multiply by powers of two: ``x1 * 2**x2``.

    x1: Node or array; ints become floats.
    x2: The exponents: integers, broadcast against `x1`.
    returns: Of the broadcast shape and the float dtype of `x1`; exact but where it leaves the
        range.
    raises DTypeError: If the exponents are not integers.

    >>> mg.ldexp([0.75, 3.0], mg.constant([2, -1])).eval()
    array([3. , 1.5], dtype=float32)
    """
    return LDEXP(floating(x1), as_node(x2))


LDEXP = Op(
    name="ldexp",
    kind=Kind.ELEMENTWISE,
    rule=_ldexp_type,
    evaluate=_ldexp,
    scalar=Scalar("$ldexp(a, b > 16384 ? 16384 : (int64_t)b)"),
    onnx=onnx_forms.rewritten(lambda node: _ldexp_written(*node.inputs)),
    gradient=lambda node, cotangent: (ldexp(cotangent, node.inputs[1]), None),
    function=ldexp,
    tests=Tests(
        samples=lambda: [
            Sample((REAL, np.array([[3, -2, 0], [1, 5, -4]], dtype=np.int32))),
            Sample((REAL, np.array(2))),
            Sample(
                (np.array([1.0, -1.0]), np.array([1 << 40, -(1 << 40)])), gradient=(), reason="inf"
            ),
        ],
        bad_samples=lambda: [
            BadSample((REAL, REAL), DTypeError, "ldexp: exponents of dtype float64")
        ],
        reference=lambda x, n: np.ldexp(x, np.clip(n, -5000, 5000).astype(np.int32)),
    ),
    numerics="exact",
)


def _exponent_written(x: Node) -> Node:
    """Round the logarithm, and correct it by the remainder of a division by that power of two.

    Numbers below the smallest normal one are first made larger, and then have their full digits.
    """
    wide = cast(x, np.promote_types(np.float32, np.dtype(f"f{x.dtype.itemsize}")))
    plain = logical_and(isfinite(wide), not_equal(wide, 0.0))  # others have the exponent 0
    info = np.finfo(wide.dtype)
    more = info.nmant + 1
    size = where(plain, absolute(wide), 1.0)
    small = less(size, float(info.smallest_normal))
    size = where(small, size * 2.0**more, size)
    close = cast(floor(log2(size)), np.int32)
    rest = ldexp(size, -close)  # from 1 up to 2, but for an error of the logarithm
    close = close + cast(greater_equal(rest, 2.0), np.int32) - cast(less(rest, 1.0), np.int32) + 1
    return where(plain, close - where(small, more, 0), 0)


def _mantissa_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    return (ldexp(cotangent, -EXPONENT(node.inputs[0])),)


MANTISSA = Op(
    name="mantissa",
    kind=Kind.ELEMENTWISE,
    doc="The fraction, from 1/2 up to 1, that a power of two makes a float of.",
    rule=lambda call, x: x,
    evaluate=lambda xp, x: xp.frexp(x)[0],
    scalar=Scalar("$mantissa(a)"),
    gradient=_mantissa_gradient,
    numerics="exact",
    onnx=onnx_forms.rewritten(lambda node: ldexp(node.inputs[0], -EXPONENT(node.inputs[0]))),
)
EXPONENT: Op = Op(
    name="exponent",
    kind=Kind.ELEMENTWISE,
    doc="The power of two that makes a float of a fraction from 1/2 up to 1.",
    rule=lambda call, x: Type(np.dtype(np.int32), x.shape),
    evaluate=lambda xp, x: xp.where(xp.isfinite(x), xp.frexp(x)[1], 0),
    scalar=Scalar("$exponent(a)"),
    no_gradient="integer valued",
    numerics="exact",
    onnx=onnx_forms.rewritten(lambda node: _exponent_written(node.inputs[0])),
)


@documented
def frexp(x: Any) -> tuple[Node, Node]:
    """Split floats into a fraction from 1/2 up to 1 and a power of two.

    x: Node or array; ints become floats.
    returns (tuple of Node): The fractions, and the exponents (int32): ``x = fraction *
        2**exponent``. Zeros, infinities and NaN are their own fractions, with the exponent 0.

    >>> fraction, exponent = mg.frexp([3.0, -0.25])
    >>> fraction.eval(), exponent.eval()
    (array([ 0.75, -0.5 ], dtype=float32), array([ 2, -1], dtype=int32))
    """
    node = floating(x)
    return MANTISSA(node), EXPONENT(node)


@documented
def float_power(x1: Any, x2: Any, dtype: Any = "float64") -> Node:
    """Raise to a power in float64.

    x1, x2: Nodes, arrays or numbers, broadcast against each other.
    dtype: Of the computation and the result.
    returns: Of the broadcast shape. Its gradient is that of `power`, with the same bound for
        negative `x1`.

    >>> mg.float_power(mg.constant([1, 2, 3]), -2).eval().round(4)
    array([1.    , 0.25  , 0.1111])
    """
    first, second = (cast(x, dtype) for x in (x1, x2))
    return power(first, second)


# Sums of exponentials.


def _log_sum_written(scale: float, x: Node, y: Node) -> Node:
    smaller = log1p(exp(absolute(subtract(x, y)) * -scale)) * (1.0 / scale)
    return where(equal(x, y), x + math.log(2.0) / scale, maximum(x, y) + smaller)


def _log_sum(name: str, base: str, unit: str, example: str) -> Any:
    scale = {"exp": 1.0, "exp2": math.log(2.0)}[base]

    def gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
        x, y = node.inputs
        # Equal infinities have no difference; each gets half.
        apart = where(logical_and(equal(x, y), isinf(x)), 0.0, subtract(x, y))
        first = sigmoid(multiply(apart, scale))
        return cotangent * first, cotangent * sigmoid(multiply(apart, -scale))

    smaller = f"$log1p(${base}(-$fabs(a - b)))" + ("" if scale == 1.0 else f" * (T){1 / scale!r}")
    return binary(
        name,
        f"Compute {unit}, without overflow.",
        example,
        module=__name__,
        notes="Where both are infinite and equal each has half of the gradient.",
        evaluate=numpy_named(name),
        onnx=onnx_forms.rewritten(lambda node: _log_sum_written(scale, *node.inputs)),
        scalar=f"a == b ? a + (T){math.log(2.0) / scale!r} : $maximum(a, b) + {smaller}",
        gradient=gradient,
        rule=broadcast_floats,
        operands=floating_pair,
        samples=lambda: [
            Sample((REAL, OTHER)),
            Sample((REAL, ROW)),
            Sample((REAL, REAL)),
            Sample((np.array([1000.0, -1000.0]), np.array([999.0, 3.0]))),
            Sample(
                (
                    np.array([np.inf, -np.inf, np.inf, np.nan]),
                    np.array([np.inf, -np.inf, 1.0, 1.0]),
                ),
                gradient=(),
                reason="infinite values",
            ),
        ],
        commutative=True,
        precision="keep",
    )


logaddexp, LOGADDEXP = _log_sum(
    "logaddexp",
    "exp",
    "log(exp(x) + exp(y))",
    """
    >>> mg.logaddexp([1000.0], 1000.0).eval().round(1)
    array([1000.7], dtype=float32)
    """,
)
logaddexp2, LOGADDEXP2 = _log_sum(
    "logaddexp2",
    "exp2",
    "log2(2**x + 2**y)",
    """
    >>> mg.logaddexp2([1000.0], 1000.0).eval()
    array([1001.], dtype=float32)
    """,
)


# Records.


_composite = partial(namesake, Kind.ELEMENTWISE)

RECORDS: tuple[Op | Composite, ...] = (
    LDEXP,
    MANTISSA,
    EXPONENT,
    LOGADDEXP,
    LOGADDEXP2,
    _composite(
        frexp,
        "A fraction and a power of two.",
        [Sample((REAL,)), Sample((np.array([0.0, 6.0, -1.0]),), gradient=(), reason="jumps")],
    ),
    _composite(
        float_power,
        "A power in float64.",
        [
            Sample((WHOLE, np.array([2, -1, 3])), {"dtype": "float64"}),
            Sample((np.abs(REAL), OTHER), {"dtype": "float64"}),
        ],
        numerics="stable",
    ),
)
