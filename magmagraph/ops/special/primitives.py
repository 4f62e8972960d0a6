"""Special functions: error functions, the logarithm of gamma and its derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import DTypeError, ShapeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Composite, Kind, Op, Refusal, Sample, Scalar, Tests
from ..convert import as_node
from ..elementwise.comparison import finite
from ..elementwise.family import (
    POSITIVE,
    REAL,
    UNIT,
    broadcast_floats,
    floating,
    floating_pair,
    misfits,
    scipy_named,
    special,
    unary,
)
from ..elementwise.math import exp
from ..rules import onnx_forms

_TWO_OVER_ROOT_PI = 2.0 / math.sqrt(math.pi)

erf, ERF = unary(
    "erf",
    "Evaluate the error function, 2/sqrt(pi) times the integral of exp(-t**2) from 0 to x.",
    """
    >>> mg.erf([0.0, 1.0]).eval().round(4)
    array([0.    , 0.8427], dtype=float32)
    """,
    module=__name__,
    evaluate=special("erf"),
    scalar="$erf(a)",
    gradient=lambda node, cotangent: (cotangent * _bell(node.inputs[0]),),
    reference=scipy_named("erf"),
    onnx="Erf",
)

erfc, ERFC = unary(
    "erfc",
    "Evaluate 1 - erf(x), exact also where it is small.",
    """
    >>> mg.erfc([0.0, 1.0]).eval().round(4)
    array([1.    , 0.1573], dtype=float32)
    """,
    module=__name__,
    evaluate=special("erfc"),
    scalar="$erfc(a)",
    gradient=lambda node, cotangent: (-(cotangent * _bell(node.inputs[0])),),
    reference=scipy_named("erfc"),
    onnx=onnx_forms.rewritten(lambda node: 1.0 - erf(node.inputs[0])),
)


def _bell(x: Node) -> Node:
    """Return the derivative of erf."""
    return exp(-(x * x)) * _TWO_OVER_ROOT_PI


erfinv, ERFINV = unary(
    "erfinv",
    "Invert the error function, for values between -1 and 1.",
    """
    >>> mg.erfinv([0.0, 0.5]).eval().round(4)
    array([0.    , 0.4769], dtype=float32)
    """,
    module=__name__,
    notes="Infinite at -1 and 1, NaN beyond.",
    evaluate=special("erfinv"),
    scalar="$erfinv(a)",
    gradient=lambda node, cotangent: (cotangent * (exp(node * node) * (1.0 / _TWO_OVER_ROOT_PI)),),
    samples=lambda: [Sample((UNIT,))],
    reference=scipy_named("erfinv"),
)

lgamma, LGAMMA = unary(
    "lgamma",
    "Take the natural logarithm of the absolute value of the gamma function.",
    """
    >>> mg.lgamma([1.0, 5.0]).eval().round(4)
    array([0.    , 3.1781], dtype=float32)
    """,
    module=__name__,
    notes="Infinite at zero and the negative integers.",
    # SciPy's is infinite at subnormal numbers.
    evaluate=lambda xp, x: xp.where(
        (x != 0) & (xp.abs(x) < 1e-300), -xp.log(xp.abs(x)), special("gammaln")(xp, x)
    ),
    scalar="$log_gamma(a)",
    gradient=lambda node, cotangent: (cotangent * polygamma(0, node.inputs[0]),),
    samples=lambda: [Sample((POSITIVE,)), Sample((REAL,))],
    reference=scipy_named("gammaln"),
)

def _digamma_array(xp: Any, x: Any) -> Any:
    """Return SciPy's value; below 0 by reflection, exact also next to the poles."""
    below = x < 0
    inside = xp.where(below, x, -0.5)
    rest = inside - xp.rint(inside)
    cotangent = 1.0 / xp.tan(math.pi * xp.where(rest == 0, 0.5, rest))
    reflected = special("digamma")(xp, 1.0 - inside) - math.pi * cotangent
    value = special("digamma")(xp, xp.where(below, 1.0, x))
    return xp.where(below, xp.where(rest == 0, math.nan, reflected), value)


digamma, DIGAMMA = unary(
    "digamma",
    "Take the derivative of lgamma.",
    """
    >>> mg.digamma([1.0, 5.0]).eval().round(4)
    array([-0.5772,  1.5061], dtype=float32)
    """,
    module=__name__,
    notes="NaN at the negative integers, -inf at 0.",
    evaluate=_digamma_array,
    scalar="$digamma(a)",
    gradient=lambda node, cotangent: (cotangent * polygamma(1, node.inputs[0]),),
    samples=lambda: [Sample((POSITIVE,)), Sample((REAL,))],
    reference=scipy_named("digamma"),
)


@documented
def zeta(x: Any, q: Any = 1.0) -> Node:
    """Evaluate the Hurwitz zeta function, the sum of (q + k)**(-x) over k = 0, 1, 2, ...

    x: Exponents above 1: node, array or number; ints become floats.
    q: Node, array or number that broadcasts with `x`. With 1 it is Riemann's zeta function. Where
        it is negative the exponent must be whole; infinite at 0 and the negative integers.
    returns: Of the broadcast shape and the promoted float dtype. The gradient flows to `q`; asking
        for that in `x`, which has no closed form, is an error.

    >>> mg.zeta(2.0, [1.0, 2.0]).eval().round(4)
    array([1.6449, 0.6449], dtype=float32)
    """
    return ZETA(*floating_pair(x, q))


def _zeta_gradient(node: Node, cotangent: Node) -> tuple[Refusal, Node]:
    x, q = node.inputs
    refusal = Refusal(
        "zeta: the derivative in the exponent has no closed form",
        need="an exponent that no gradient is asked for",
        hint="mg.stop_gradient(x)",
    )
    return refusal, -(cotangent * (x * zeta(x + 1.0, q)))


ZETA = Op(
    name="zeta",
    kind=Kind.ELEMENTWISE,
    rule=broadcast_floats,
    evaluate=special("zeta"),
    scalar=Scalar("$zeta(a, b)"),
    gradient=_zeta_gradient,
    function=zeta,
    tests=Tests(
        samples=lambda: [
            Sample((2.0, POSITIVE), gradient=(1,), reason="no closed form"),
            Sample((3.5, POSITIVE), gradient=(1,), reason="no closed form"),
            Sample((2.0, REAL), gradient=(1,), reason="no closed form"),
            Sample((POSITIVE + 1.5, POSITIVE), gradient=(1,), reason="no closed form"),
            Sample((POSITIVE + 1.5,), gradient=(), reason="no closed form"),
        ],
        bad_samples=misfits("zeta"),
        reference=lambda x, q=1.0: scipy_named("zeta")(x, q),
    ),
)


_HIGHEST_ORDER = 170  # the factorial of 171 is more than float64 holds


@documented
def polygamma(n: int, x: Any) -> Node:
    """Take the derivative of order n + 1 of lgamma.

    n: 0 (the same as `digamma`), 1 (trigamma), 2, ...
    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`.
    raises DTypeError, ShapeError: Where `n` is not an int, or negative.

    >>> mg.polygamma(1, [1.0, 2.0]).eval().round(4)
    array([1.6449, 0.6449], dtype=float32)
    """
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool):
        raise DTypeError(message(f"polygamma: the order {n!r} is not an int"))
    if n < 0:
        raise ShapeError(message(f"polygamma: the order {n} is negative", need="0, 1, 2, ..."))
    if n == 0:
        return digamma(x)
    if n > _HIGHEST_ORDER:
        raise ShapeError(message(f"polygamma: the order {n}", need=f"at most {_HIGHEST_ORDER}"))
    factor = math.factorial(int(n)) * (1.0 if n % 2 else -1.0)
    return zeta(float(n + 1), floating(x)) * factor


POLYGAMMA = Composite(
    kind=Kind.ELEMENTWISE,
    function=polygamma,
    tests=Tests(
        samples=lambda: [
            Sample((0, POSITIVE)),
            Sample((1, POSITIVE)),
            Sample((1, REAL)),
            Sample((2, POSITIVE)),
            Sample((3, POSITIVE)),
        ],
        bad_samples=lambda: [
            BadSample((-1, POSITIVE), ShapeError, "polygamma: the order -1 is negative"),
            BadSample((1.0, POSITIVE), DTypeError, "polygamma: the order 1.0 is not an int"),
        ],
        reference=scipy_named("polygamma"),
    ),
)


@documented
def rbf(x: Any, center: Any = 0.0, width: Any = 1.0) -> Node:
    """Evaluate the Gaussian radial basis function, exp(-((x - center) / width)**2).

    x: Node or array; ints become floats.
    center, width: Numbers, arrays or nodes, broadcast against `x`.
    returns: Of the broadcast shape and the promoted float dtype.

    >>> mg.rbf([0.0, 1.0, 2.0]).eval().round(4)
    array([1.    , 0.3679, 0.0183], dtype=float32)
    """
    distance = floating(x)
    if not (type(center) in (int, float) and center == 0):
        distance = distance - as_node(center, distance.dtype)
    if not (type(width) in (int, float) and width == 1):
        distance = distance / as_node(width, distance.dtype)
    distance = finite(distance)
    return exp(-(distance * distance))


RBF = Composite(
    kind=Kind.ELEMENTWISE,
    function=rbf,
    tests=Tests(
        samples=lambda: [
            Sample((REAL,)),
            Sample((REAL,), {"center": 0.25, "width": 2.0}),
        ],
        reference=lambda x, center=0.0, width=1.0: np.exp(-(((x - center) / width) ** 2)),
    ),
)

RECORDS: tuple[Op | Composite, ...] = (
    ERF,
    ERFC,
    ERFINV,
    LGAMMA,
    DIGAMMA,
    ZETA,
    POLYGAMMA,
    RBF,
)
