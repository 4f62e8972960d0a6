"""The rest of arithmetic, element by element: signs, remainders, powers of two, angles."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ...dtypes import finfo, is_complex, is_float, is_unsigned
from ...errors import DTypeError
from ...graph import Node
from ...op import INEXACT, WIDE, BadSample, Call, Composite, Kind, Op, Sample
from ...types import Type
from ..convert import as_node, cast
from ..rules.namesakes import namesake
from .arithmetic import absolute, divide, floor_divide, multiply, remainder, subtract
from .bits import logical_and, logical_or
from .comparison import equal, greater, less, where
from .complex_numbers import complex as complex_of
from .complex_numbers import imag, real
from .family import (
    OTHER,
    OTHER_WHOLE,
    REAL,
    ROW,
    WHOLE,
    binary,
    broadcast,
    broadcast_floats,
    broadcast_numbers,
    floating,
    floating_pair,
    like_number,
    number_pair,
    numpy_named,
    to_bool,
    unary,
)
from .math import sin
from .rounding import isinf, isnan, trunc

__all__ = [
    "copysign",
    "deg2rad",
    "divmod",
    "fmax",
    "fmin",
    "fmod",
    "gcd",
    "heaviside",
    "isneginf",
    "isposinf",
    "lcm",
    "modf",
    "nan_to_num",
    "nextafter",
    "positive",
    "rad2deg",
    "signbit",
    "sinc",
]

_HOLES = (np.array([[1.0, np.nan, np.nan], [0.5, -2.0, 3.0]]), np.array([2.0, 1.5, np.nan]))
_SIGNED_ZEROS = np.array([0.0, -0.0, 1.5, -np.inf, np.nan])


# Signs.


def _signbit_scalar(dtype: np.dtype) -> str:
    if is_float(dtype):
        return "$copysign((T)1, a) < 0"
    return "0" if is_unsigned(dtype) else "a < 0"


signbit, SIGNBIT = unary(
    "signbit",
    "Tell where the sign is negative; that of -0.0 is.",
    """
    >>> mg.signbit([-1.5, 0.0, -0.0]).eval()
    array([ True, False,  True])
    """,
    module=__name__,
    evaluate=lambda xp, x: xp.signbit(x) if x.dtype.kind not in "iub" else x < 0,
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


def heaviside(x1: Any, x2: Any) -> Node:
    """Give 0 for negative and 1 for positive values, and the second operand at 0.

    Parameters
    ----------
    x1
        Node or array.
    x2
        The value at 0.

    Returns
    -------
    Node
        Of the broadcast shape and the promoted float dtype; NaN where `x1` is. The gradient flows
        to `x2` alone.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.heaviside([-1.5, 0.0, 2.0], 0.5).eval()
    array([0. , 0.5, 1. ], dtype=float32)
    """
    x, middle = floating_pair(x1, x2)
    step = where(greater(x, 0), 1.0, where(equal(x, 0), middle, 0.0))
    return where(isnan(x), np.nan, step)


# The larger and the smaller one, without NaN.


def _extremum(name: str, word: str, symbol: str, result: str) -> Any:
    def scalar(dtype: np.dtype) -> str:
        choice = f"a {symbol} b ? a : b"
        return f"a != a ? b : b != b ? a : ({choice})" if is_float(dtype) else choice

    wins = greater if symbol == ">" else less

    def gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
        x, y = node.inputs
        half = where(equal(x, y), 0.5, 0.0)
        first = logical_or(wins(x, y), isnan(y))
        second = logical_and(logical_or(wins(y, x), isnan(x)), equal(isnan(y), False))
        return cotangent * where(first, 1.0, half), cotangent * where(second, 1.0, half)

    return binary(
        name,
        f"Take the {word} of two values, element by element; a number rather than NaN.",
        f"""
        >>> mg.{name}([1.0, float("nan")], [3.0, 2.0]).eval()
        array({result}, dtype=float32)
        """,
        module=__name__,
        notes="NaN where both are. Where both are equal each has half of the gradient.",
        evaluate=numpy_named(name),
        scalar=scalar,
        gradient=gradient,
        samples=lambda: [
            Sample((REAL, OTHER)),
            Sample((REAL, ROW)),
            Sample(_HOLES, gradient=(), reason="ties and NaN"),
            Sample((WHOLE, OTHER_WHOLE)),
        ],
        commutative=True,
        numerics="exact",
    )


fmax, FMAX = _extremum("fmax", "larger", ">", "[3., 2.]")
fmin, FMIN = _extremum("fmin", "smaller", "<", "[1., 2.]")


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


def divmod(x1: Any, x2: Any) -> tuple[Node, Node]:
    """Divide and round down, and take what that leaves.

    Parameters
    ----------
    x1, x2
        Nodes, arrays or numbers, broadcast against each other.

    Returns
    -------
    tuple of Node
        ``floor_divide(x1, x2)`` and ``remainder(x1, x2)``. The gradient flows through the second.

    Examples
    --------
    >>> import magmagraph as mg
    >>> whole, rest = mg.divmod(mg.constant([7, -7]), 3)
    >>> whole.eval(), rest.eval()
    (array([ 2, -3], dtype=int32), array([1, 2], dtype=int32))
    """
    return floor_divide(x1, x2), remainder(x1, x2)


def modf(x: Any) -> tuple[Node, Node]:
    """Split numbers into what stands behind the point and the whole number before it.

    Parameters
    ----------
    x
        Node or array; ints become floats.

    Returns
    -------
    tuple of Node
        The fractional and the whole parts, both with the sign of `x`. The gradient flows through
        the first.

    Examples
    --------
    >>> import magmagraph as mg
    >>> fraction, whole = mg.modf([2.5, -0.25])
    >>> fraction.eval(), whole.eval()
    (array([ 0.5 , -0.25], dtype=float32), array([ 2., -0.], dtype=float32))
    """
    node = floating(x)
    whole = trunc(node)
    fraction = where(isinf(node), 0.0, subtract(node, whole))
    return copysign(fraction, node), whole


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
        scalar=f"a * (T){factor!r}",
        gradient=lambda node, cotangent: (cotangent * factor,),
    )


deg2rad, DEG2RAD = _angle("deg2rad", "Convert degrees to radians.", math.pi / 180.0, 90.0)
rad2deg, RAD2DEG = _angle("rad2deg", "Convert radians to degrees.", 180.0 / math.pi, 2.0)


def sinc(x: Any) -> Node:
    """Evaluate ``sin(pi x) / (pi x)``, and 1 at 0.

    Parameters
    ----------
    x
        Node or array; ints become floats.

    Returns
    -------
    Node
        Of the shape and float dtype of `x`. Near 0 it is the Taylor series, so that derivatives
        are accurate there, too.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.sinc([0.0, 0.5, 2.5]).eval().round(4)
    array([1.    , 0.6366, 0.1273], dtype=float32)
    """
    angle = multiply(floating(x), math.pi)
    near = less(absolute(angle), 0.5)
    square = where(near, multiply(angle, angle), 0.0)
    series: Any = 0.0
    for k in range(8, -1, -1):  # the next term is below 1e-19
        series = series * square + (-1.0) ** k / math.factorial(2 * k + 1)
    far = where(near, 1.0, angle)
    return where(near, series, divide(sin(far), far))


# Divisors.


def _whole(name: str, summary: str, result: str) -> Any:
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
    )


gcd, GCD = _whole(
    "gcd", "Find the greatest common divisor of two integers; that with 0 is the other.", "[6, 1]"
)
lcm, LCM = _whole(
    "lcm", "Find the least common multiple of two integers; that with 0 is 0.", "[ 36, 126]"
)


# Neighbours, and values that are not finite.


def nextafter(x1: Any, x2: Any) -> Node:
    """Return the next float after `x1` in the direction of `x2`.

    Parameters
    ----------
    x1, x2
        Nodes, arrays or numbers, broadcast against each other: float64 or float32.

    Returns
    -------
    Node
        Of the broadcast shape and the promoted dtype; `x1` itself where both are equal. No
        gradient: it jumps from float to float.

    Raises
    ------
    DTypeError
        For 16-bit floats.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nextafter([1.0], 2.0).eval() > 1.0
    array([ True])
    """
    return NEXTAFTER(*floating_pair(x1, x2))


NEXTAFTER = Op(
    name="nextafter",
    kind=Kind.ELEMENTWISE,
    doc="The next float in a direction.",
    rule=broadcast_floats,
    evaluate=numpy_named("nextafter"),
    no_gradient="it jumps from float to float",
    function=nextafter,
    dtypes=WIDE,
    samples=lambda: [Sample((REAL, OTHER)), Sample((REAL, REAL))],
    reference=lambda x, y: np.nextafter(x, y),
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
    scalar="a",
    gradient=lambda node, cotangent: (cotangent,),
    rule=like_number,
    operand=as_node,
    samples=lambda: [Sample((REAL,)), Sample((WHOLE,))],
    numerics="exact",
    dtypes=INEXACT,
)


def isposinf(x: Any) -> Node:
    """Tell where a value is infinite and positive.

    Parameters
    ----------
    x
        Node or array.

    Returns
    -------
    Node
        bool, of the shape of `x`. No gradient: boolean valued.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.isposinf([1.0, float("inf"), -float("inf")]).eval()
    array([False,  True, False])
    """
    node = as_node(x)
    return logical_and(isinf(node), greater(node, 0))


def isneginf(x: Any) -> Node:
    """Tell where a value is infinite and negative.

    Parameters
    ----------
    x
        Node or array.

    Returns
    -------
    Node
        bool, of the shape of `x`. No gradient: boolean valued.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.isneginf([1.0, float("inf"), -float("inf")]).eval()
    array([False, False,  True])
    """
    node = as_node(x)
    return logical_and(isinf(node), less(node, 0))


def nan_to_num(x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Node:
    """Put numbers in the places of NaN and infinities.

    Parameters
    ----------
    x
        Node or array.
    nan
        For NaN.
    posinf, neginf
        For infinities; the largest and the lowest finite number of the dtype unless said.

    Returns
    -------
    Node
        Of the shape and dtype of `x`. No gradient flows where a number was put.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nan_to_num([1.0, float("nan"), float("inf")], posinf=9.0).eval()
    array([1., 0., 9.], dtype=float32)
    """
    node = as_node(x)
    if is_complex(node.dtype):
        parts = (nan_to_num(part, nan, posinf, neginf) for part in (real(node), imag(node)))
        return complex_of(*parts)
    if not is_float(node.dtype):
        return node
    limits = finfo(node.dtype)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    result = where(isnan(node), cast(as_node(nan, node.dtype), node.dtype), node)
    result = where(isposinf(node), cast(as_node(high, node.dtype), node.dtype), result)
    return where(isneginf(node), cast(as_node(low, node.dtype), node.dtype), result)


# Records.

_NOT_FINITE = np.array([1.5, np.nan, np.inf, -np.inf, -0.5])


_composite = partial(namesake, Kind.ELEMENTWISE)

RECORDS: tuple[Op | Composite, ...] = (
    SIGNBIT,
    COPYSIGN,
    FMAX,
    FMIN,
    FMOD,
    DEG2RAD,
    RAD2DEG,
    GCD,
    LCM,
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
    _composite(
        divmod,
        "The quotient rounded down and what it leaves.",
        [Sample((REAL, OTHER + 0.05)), Sample((WHOLE, OTHER_WHOLE))],
    ),
    _composite(
        modf,
        "The fractional and the whole part.",
        [Sample((REAL,)), Sample((_NOT_FINITE,), gradient=(), reason="not finite")],
    ),
    _composite(
        sinc,
        "sin(pi x) / (pi x).",
        [Sample((REAL,)), Sample((np.array([0.0, 1e-3, -0.15, 0.16, 3.0]),))],
        numerics="stable",
        reference=lambda x: np.sinc(x),
    ),
    _composite(
        isposinf,
        "Where a value is infinite and positive.",
        [Sample((_NOT_FINITE,)), Sample((WHOLE,))],
        no_gradient="boolean valued",
        reference=lambda x: np.asarray(x) == np.inf,
    ),
    _composite(
        isneginf,
        "Where a value is infinite and negative.",
        [Sample((_NOT_FINITE,)), Sample((WHOLE,))],
        no_gradient="boolean valued",
        reference=lambda x: np.asarray(x) == -np.inf,
    ),
    _composite(
        nan_to_num,
        "Numbers in the places of NaN and infinities.",
        [
            Sample((REAL,)),
            Sample(
                (_NOT_FINITE,),
                {"nan": 7.0, "posinf": 8.0, "neginf": -8.0},
                gradient=(),
                reason="not finite",
            ),
            Sample((WHOLE,)),
        ],
        reference=lambda x, **options: np.nan_to_num(x, **options),
        dtypes=INEXACT,
    ),
)
