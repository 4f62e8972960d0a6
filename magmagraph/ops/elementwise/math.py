"""Exponentials, logarithms, roots, trigonometric and hyperbolic functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...config import config
from ...dtypes import is_complex, is_inexact
from ...errors import DTypeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Composite, Kind, Op, Sample, Tests
from ...ir.op import REAL as FLOATS
from ..control.identities import stop_gradient
from ..convert import cast
from ..leaf import CONSTANT
from ..rules import onnx_forms, onnx_pairs
from .arithmetic import divide, multiply
from .bits import logical_and, logical_or
from .comparison import equal, finite, greater, less, maximum, minimum, not_equal, where
from .complex_numbers import imag, part, real, zero_part
from .family import (
    OTHER,
    POSITIVE,
    REAL,
    ROW,
    UNIT,
    WHOLE,
    Gradient,
    Unary,
    binary,
    broadcast_floats,
    broadcast_numbers,
    floating_pair,
    inexact,
    misfits,
    number_pair,
    numpy_named,
    unary,
)
from .signs import absolute

LN2 = float(np.log(2.0))
LN10 = float(np.log(10.0))
_ABOVE_ONE = POSITIVE + 1.0


def _function(
    name: str,
    summary: str,
    argument: str,
    result: str,
    gradient: Gradient,
    *,
    domain: np.ndarray = REAL,
    notes: str = "",
    libm: str | None = None,
    reference: Any = None,
    dtypes: tuple[str, ...] = INEXACT,
    precision: str = "",
    onnx: Any = "",
    evaluate: Callable[..., Any] | None = None,
) -> tuple[Unary, Op]:
    """Make a function that NumPy and the C library both have."""
    return unary(
        name,
        summary,
        f"""
        >>> mg.{name}({argument}).eval().round(4)
        array({result}, dtype=float32)
        """,
        module=__name__,
        evaluate=evaluate or numpy_named(name),
        scalar=f"${libm or name}(a)",
        gradient=gradient,
        notes=notes,
        samples=lambda: [Sample((domain,))],
        reference=reference,
        dtypes=dtypes,
        precision=precision,
        onnx=onnx,
    )


# Exponentials and logarithms: they magnify or hide the errors of their operands.

exp, EXP = _function(
    "exp",
    "Raise e to each element.",
    "[0.0, 1.0]",
    "[1.    , 2.7183]",
    lambda node, cotangent: (cotangent * node,),
    precision="keep",
    onnx="Exp",
)

expm1, EXPM1 = _function(
    "expm1",
    "Compute exp(x) - 1, exact also near zero.",
    "[0.0, 1.0]",
    "[0.    , 1.7183]",
    lambda node, cotangent: (cotangent * exp(node.inputs[0]),),
    precision="keep",
    onnx=onnx_forms.rewritten(lambda node: _expm1_written(node.inputs[0])),
)


def _exp2(xp: Any, x: Any) -> Any:
    if x.dtype.kind != "c":
        return xp.exp2(x)
    # By its parts: exp(x * LN2) would lose as many digits as the real part is large, and multiply
    # an infinite part by 0.
    size, turn = xp.exp2(x.real), x.imag * x.real.dtype.type(LN2)
    result = xp.empty(x.shape, x.dtype)
    result.real = xp.where(size == 0, 0, size * xp.cos(turn))
    result.imag = xp.where(size == 0, 0, xp.where(turn == 0, turn, size * xp.sin(turn)))
    return result


exp2, EXP2 = _function(
    "exp2",
    "Raise 2 to each element.",
    "[0.0, 3.0]",
    "[1., 8.]",
    lambda node, cotangent: (cotangent * (node * LN2),),
    evaluate=_exp2,
    reference=lambda x: np.power(2.0, x),
    precision="keep",
    onnx=onnx_forms.rewritten(lambda node: exp(node.inputs[0] * LN2)),
)

log, LOG = _function(
    "log",
    "Take the natural logarithm.",
    "[1.0, 10.0]",
    "[0.    , 2.3026]",
    lambda node, cotangent: (cotangent / node.inputs[0],),
    domain=POSITIVE,
    notes="NaN below zero (but for complex numbers), -inf at zero.",
    precision="keep",
    onnx="Log",
)


def _expm1_written(x: Node) -> Node:
    """Write exp(x) - 1 without it, exact near zero too: as 2 sinh(x / 2) exp(x / 2)."""
    return sinh(x * 0.5) * exp(x * 0.5) * 2.0


def _log1p_written(x: Node) -> Node:
    """Write log(1 + x) without it, exact near zero too."""
    return where(less(absolute(x), 0.5), arctanh(x / (x + 2.0)) * 2.0, log(x + 1.0))


log1p, LOG1P = _function(
    "log1p",
    "Compute log(1 + x), exact also near zero.",
    "[0.0, 1.0]",
    "[0.    , 0.6931]",
    lambda node, cotangent: (cotangent / (node.inputs[0] + 1.0),),
    domain=POSITIVE - 0.9,
    precision="keep",
    onnx=onnx_forms.rewritten(lambda node: _log1p_written(node.inputs[0])),
)

log2, LOG2 = _function(
    "log2",
    "Take the logarithm to base 2.",
    "[1.0, 8.0]",
    "[0., 3.]",
    lambda node, cotangent: (cotangent / (node.inputs[0] * LN2),),
    domain=POSITIVE,
    precision="keep",
    onnx=onnx_forms.rewritten(lambda node: log(node.inputs[0]) / LN2),
)

log10, LOG10 = _function(
    "log10",
    "Take the logarithm to base 10.",
    "[1.0, 1000.0]",
    "[0., 3.]",
    lambda node, cotangent: (cotangent / (node.inputs[0] * LN10),),
    domain=POSITIVE,
    precision="keep",
    onnx=onnx_forms.rewritten(lambda node: log(node.inputs[0]) / LN10),
)


# Roots.

sqrt, SQRT = _function(
    "sqrt",
    "Take the square root.",
    "[4.0, 2.0]",
    "[2.    , 1.4142]",
    lambda node, cotangent: (cotangent * 0.5 / node,),
    domain=POSITIVE,
    notes="NaN below zero (but for complex numbers). The gradient at 0 is infinite.",
    onnx="Sqrt",
)


def _cbrt_written(x: Node) -> Node:
    """Take a power of the absolute value, and a step of Newton's method to the last digits."""
    size = absolute(x)
    guess = power(size, 1.0 / 3.0)
    usual = logical_and(greater(size, 0.0), less(size, np.inf))
    better = guess - (guess - size / where(usual, guess * guess, 1.0)) * (1.0 / 3.0)
    root = where(usual, better, size)
    return where(less(x, 0.0), -root, root)


cbrt, CBRT = _function(
    "cbrt",
    "Take the cube root.",
    "[8.0, -27.0]",
    "[ 2., -3.]",
    lambda node, cotangent: (cotangent / (node * node * 3.0),),
    onnx=onnx_forms.rewritten(lambda node: _cbrt_written(node.inputs[0])),
    notes="The gradient at 0 is infinite.",
    dtypes=FLOATS,
)


@documented
def rsqrt(x: Any) -> Node:
    """Divide 1 by the square root of each element.

    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`.

    >>> mg.rsqrt([4.0, 0.25]).eval()
    array([0.5, 2. ], dtype=float32)
    """
    return divide(1.0, sqrt(inexact(x)))


RSQRT = Composite(
    dtypes=INEXACT,
    kind=Kind.ELEMENTWISE,
    function=rsqrt,
    tests=Tests(samples=lambda: [Sample((POSITIVE,))], reference=lambda x: 1.0 / np.sqrt(x)),
)


def _hypot_gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
    # The slopes depend on the ratio of x and y alone. Scaled, they do not use the length, which may
    # overflow or be a subnormal number of few digits; any constant scale has the same derivatives.
    x, y = (finite(each) for each in node.inputs)
    large = stop_gradient(maximum(absolute(x), absolute(y)))
    usual = greater(large, 0)
    scale = where(usual, large, 1)
    x, y = x / scale, y / scale
    share = cotangent / sqrt(where(usual, x * x + y * y, 1))
    return share * x, share * y


def _hypot_written(x: Node, y: Node) -> Node:
    """Divide by the larger one, whose square may be beyond the range."""
    large = maximum(absolute(x), absolute(y))
    small = minimum(absolute(x), absolute(y))
    usual = logical_and(greater(large, 0.0), less(large, np.inf))
    ratio = small / where(usual, large, 1.0)
    infinite = logical_or(equal(absolute(x), np.inf), equal(absolute(y), np.inf))
    return where(infinite, np.inf, where(usual, large * sqrt(ratio * ratio + 1.0), large))


hypot, HYPOT = binary(
    "hypot",
    "Compute sqrt(x**2 + y**2) without overflow in between.",
    """
    >>> mg.hypot([3.0, 3e30], [4.0, 4e30]).eval()
    array([5.e+00, 5.e+30], dtype=float32)
    """,
    module=__name__,
    notes="The gradient at (0, 0) is 0.",
    evaluate=numpy_named("hypot"),
    onnx=onnx_forms.rewritten(lambda node: _hypot_written(*node.inputs)),
    scalar="$hypot(a, b)",
    gradient=_hypot_gradient,
    rule=broadcast_floats,
    operands=floating_pair,
    commutative=True,
)


# Trigonometric functions and their inverses, in radians.

sin, SIN = _function(
    "sin",
    "Take the sine of an angle in radians.",
    "[0.0, 1.0]",
    "[0.    , 0.8415]",
    lambda node, cotangent: (cotangent * _cosine(node.inputs[0]),),
    onnx="Sin",
)


def _cosine(x: Node) -> Node:
    return cos(x)  # which is made after its own derivative


cos, COS = _function(
    "cos",
    "Take the cosine of an angle in radians.",
    "[0.0, 1.0]",
    "[1.    , 0.5403]",
    lambda node, cotangent: (-(cotangent * sin(node.inputs[0])),),
    onnx="Cos",
)

tan, TAN = _function(
    "tan",
    "Take the tangent of an angle in radians.",
    "[0.0, 1.0]",
    "[0.    , 1.5574]",
    lambda node, cotangent: (cotangent * (node * node + 1.0),),
    onnx="Tan",
)

arcsin, ARCSIN = _function(
    "arcsin",
    "Find the angle in [-pi/2, pi/2] with this sine.",
    "[0.0, 1.0]",
    "[0.    , 1.5708]",
    lambda node, cotangent: (cotangent / sqrt(_one_minus_square(node.inputs[0])),),
    domain=UNIT,
    libm="asin",
    onnx="Asin",
)

arccos, ARCCOS = _function(
    "arccos",
    "Find the angle in [0, pi] with this cosine.",
    "[0.0, 1.0]",
    "[1.5708, 0.    ]",
    lambda node, cotangent: (-(cotangent / sqrt(_one_minus_square(node.inputs[0]))),),
    domain=UNIT,
    libm="acos",
    onnx="Acos",
)

arctan, ARCTAN = _function(
    "arctan",
    "Find the angle in (-pi/2, pi/2) with this tangent.",
    "[0.0, 1.0]",
    "[0.    , 0.7854]",
    lambda node, cotangent: (cotangent / (node.inputs[0] * node.inputs[0] + 1.0),),
    libm="atan",
    onnx="Atan",
)


def _one_minus_square(x: Node) -> Node:
    """Return 1 - x², as a product so that nothing cancels near 1 and -1."""
    return (1.0 - x) * (1.0 + x)


def _arctan2_gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
    y, x = node.inputs
    # Divided by the distance twice, whose square may under- or overflow.
    distance = hypot(x, y)
    return cotangent * (x / distance / distance), -(cotangent * (y / distance / distance))


def _arctan2_written(x: Node, y: Node) -> Node:
    """Take the arctangent of the smaller over the larger one, and move it to its eighth."""
    up, across = absolute(x), absolute(y)
    large, small = maximum(up, across), minimum(up, across)
    same = equal(up, across)  # infinities, zeros
    ratio = where(same, 1.0, small / where(equal(large, 0.0), 1.0, large))
    angle = arctan(where(equal(large, 0.0), 0.0, ratio))
    angle = where(greater(up, across), np.pi / 2.0 - angle, angle)
    left = logical_or(less(y, 0.0), logical_and(equal(y, 0.0), less(divide(1.0, y), 0.0)))
    angle = where(left, np.pi - angle, angle)
    below = logical_or(less(x, 0.0), logical_and(equal(x, 0.0), less(divide(1.0, x), 0.0)))
    angle = where(below, -angle, angle)
    return where(logical_or(not_equal(x, x), not_equal(y, y)), x + y, angle)


arctan2, ARCTAN2 = binary(
    "arctan2",
    "Find the angle in [-pi, pi] of the point with ordinate x and abscissa y.",
    """
    >>> mg.arctan2([1.0, 0.0], [1.0, -1.0]).eval().round(4)
    array([0.7854, 3.1416], dtype=float32)
    """,
    module=__name__,
    notes="As in NumPy the first operand is the ordinate.",
    evaluate=numpy_named("arctan2"),
    onnx=onnx_forms.rewritten(lambda node: _arctan2_written(*node.inputs)),
    scalar="$atan2(a, b)",
    gradient=_arctan2_gradient,
    rule=broadcast_floats,
    operands=floating_pair,
)


# The angle of a complex number.


@documented
def angle(z: Any, deg: bool = False) -> Node:
    """Take the angle of complex numbers with the positive real axis.

    z: Node or array; ints become floats.
    deg: Whether in degrees, and not in radians.
    returns: In (-pi, pi], of the shape of `z` and the dtype of its parts. The gradient at 0 is 0.

    >>> mg.angle([1.0 + 1.0j, -1.0 + 0.0j], deg=True).eval()
    array([ 45., 180.], dtype=float32)
    """
    node = inexact(z)
    if is_complex(node.dtype):
        radians = ANGLE(node)
    else:
        # At 0 the gradient of arctan2 has no value: it ends there.
        radians = arctan2(
            zero_part(node, node.dtype), where(equal(node, 0), stop_gradient(node), node)
        )
    return radians * (180.0 / np.pi) if deg else radians


def _angle_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    z = node.inputs[0]
    none = equal(z, 0)
    rotated = divide(multiply(cast(cotangent, z.dtype), -1.0j), where(none, 1, z))
    return (where(none, 0, rotated),)


def _angle_written(z: Node) -> Node:
    """Take the angle of the point whose coordinates are the parts."""
    return arctan2(imag(z), real(z))


ANGLE = part(
    "angle",
    "Take the angle with the positive real axis.",
    angle,
    lambda xp, x: xp.arctan2(x.imag, x.real),
    _angle_gradient,
    np.angle,
    numerics="stable",
    onnx=onnx_pairs.Pairs("", onnx_forms.rewritten(lambda node: _angle_written(node.inputs[0]))),
)


# Powers.


def _power(xp: Any, x: Any, y: Any) -> Any:
    if x.dtype.kind not in "iu":
        return xp.power(x, y)
    # NumPy refuses negative integer exponents; here they round the true power toward zero.
    result = xp.power(x, xp.maximum(y, y.dtype.type(0)))
    if x.dtype.kind == "u":
        return result
    unit = xp.where(y % 2 == 0, x * x, x)  # the power of 1 and -1
    return xp.where(y < 0, xp.where(abs(x) == 1, unit, 0), result)


def _static_exponent(node: Node) -> float | None:
    """Return the exponent where it is one number that is known now."""
    exponent = node.inputs[1]
    if exponent.op is CONSTANT and exponent.ndim == 0:
        value = exponent.attrs["value"]
        return float(value.real) if value.imag == 0 else None
    return None


def _power_gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
    x, y = node.inputs
    exponent = _static_exponent(node)
    if exponent is None:
        # Near y = 0, x**(y - 1) may overflow where y times it does not; x**y is then near 1.
        flat = less(absolute(y), 1e-3) & less(absolute(x), 1) & not_equal(x, 0)
        near = y / where(flat, x, 1) * node
        lower = where(flat | equal(y, 0), 1, y - 1)
        by_x = cotangent * where(equal(y, 0), 0, where(flat, near, y * power(x, lower)))
    elif exponent == 0.0:
        by_x = cotangent * 0.0
    elif exponent == 1.0:
        by_x = cotangent
    elif exponent == 2.0:
        by_x = cotangent * (x * 2.0)
    else:
        by_x = cotangent * (power(x, exponent - 1.0) * exponent)
    return by_x, cotangent * (node * log(where(equal(x, 0), 1, x)))


power, POWER = binary(
    "power",
    "Raise to a power, element by element.",
    """
    >>> mg.power([1.0, 2.0, 3.0], 2).eval()
    array([1., 4., 9.], dtype=float32)
    """,
    module=__name__,
    notes="""
    The gradient with respect to `x` is ``y * x**(y - 1)`` and 0 where y is 0; that with respect to
    `y` is 0 where x is 0. Where x is negative and ``y - 1`` rounds to y (from ``|y| > 2 / eps``),
    the sign of that with respect to `x` may be wrong. Integers to a negative integer power round
    toward zero; a negative Python int as the exponent of an integer is refused.
    """,
    evaluate=_power,
    scalar="$power(a, b)",
    gradient=_power_gradient,
    rule=broadcast_numbers,
    operands=lambda x, y: _power_operands(x, y),
    samples=lambda: [
        Sample((POSITIVE, OTHER)),
        Sample((POSITIVE, ROW)),
        Sample((REAL, 2.0)),
        Sample((REAL, 3.0)),
        Sample((REAL, -1.0)),
        Sample((np.array([0.0, -1.5, 2.0]), 2.0), gradient=(0,), reason="log(x) at x <= 0"),
        Sample((np.array([0.0, -1.5, 2.0]), 1.0), gradient=(0,), reason="log(x) at x <= 0"),
        Sample((WHOLE, np.array([3, 0, 2], dtype=np.int32))),
    ],
    bad_samples=lambda: [
        *misfits("power")(),
        BadSample((WHOLE, -2), DTypeError, "power: an integer to the power -2"),
    ],
    reference=lambda x, y: np.power(x, y),
    dtypes=INEXACT,
    onnx="Pow",
)


def _power_operands(x: Any, y: Any) -> tuple[Node, ...]:
    nodes = number_pair(x, y)
    if type(y) is int and y < 0 and not is_inexact(nodes[0].dtype):
        raise DTypeError(
            message(
                f"power: an integer to the power {y}",
                need="a float, since the result is a fraction",
                hint=f"x.astype('{config.float_dtype.name}') ** {y}",
            )
        )
    return nodes


# Hyperbolic functions and their inverses.

sinh, SINH = _function(
    "sinh",
    "Take the hyperbolic sine.",
    "[0.0, 1.0]",
    "[0.    , 1.1752]",
    lambda node, cotangent: (cotangent * _hyperbolic_cosine(node.inputs[0]),),
    onnx="Sinh",
)


def _hyperbolic_cosine(x: Node) -> Node:
    return cosh(x)


cosh, COSH = _function(
    "cosh",
    "Take the hyperbolic cosine.",
    "[0.0, 1.0]",
    "[1.    , 1.5431]",
    lambda node, cotangent: (cotangent * sinh(node.inputs[0]),),
    onnx="Cosh",
)

tanh, TANH = _function(
    "tanh",
    "Take the hyperbolic tangent.",
    "[0.0, 1.0]",
    "[0.    , 0.7616]",
    lambda node, cotangent: (cotangent * (1.0 - node * node),),
    onnx="Tanh",
)

arcsinh, ARCSINH = _function(
    "arcsinh",
    "Invert the hyperbolic sine.",
    "[0.0, 1.0]",
    "[0.    , 0.8814]",
    lambda node, cotangent: (cotangent / sqrt(node.inputs[0] * node.inputs[0] + 1.0),),
    libm="asinh",
    onnx="Asinh",
)


def _arccosh_slope(x: Node) -> Node:
    """Return sqrt(x - 1) sqrt(x + 1): of complex numbers not the root of the product."""
    if is_complex(x.dtype):
        return sqrt(x - 1.0) * sqrt(x + 1.0)
    return sqrt((x - 1.0) * (x + 1.0))


arccosh, ARCCOSH = _function(
    "arccosh",
    "Invert the hyperbolic cosine, for values from 1.",
    "[1.0, 2.0]",
    "[0.   , 1.317]",
    lambda node, cotangent: (cotangent / _arccosh_slope(node.inputs[0]),),
    domain=_ABOVE_ONE,
    libm="acosh",
    onnx="Acosh",
)

arctanh, ARCTANH = _function(
    "arctanh",
    "Invert the hyperbolic tangent, for values between -1 and 1.",
    "[0.0, 0.5]",
    "[0.    , 0.5493]",
    lambda node, cotangent: (cotangent / _one_minus_square(node.inputs[0]),),
    domain=UNIT,
    libm="atanh",
    onnx="Atanh",
)

RECORDS: tuple[Op | Composite, ...] = (
    EXP,
    EXPM1,
    EXP2,
    LOG,
    LOG1P,
    LOG2,
    LOG10,
    SQRT,
    CBRT,
    RSQRT,
    HYPOT,
    SIN,
    COS,
    TAN,
    ARCSIN,
    ARCCOS,
    ARCTAN,
    ARCTAN2,
    ANGLE,
    POWER,
    SINH,
    COSH,
    TANH,
    ARCSINH,
    ARCCOSH,
    ARCTANH,
)
