"""Integrals that are functions of their own: exponential, Fresnel's and others; Lambert's W."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...dtypes import finfo
from ...errors import ShapeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Composite, Kind, Op, Sample, Tests
from ..elementwise.comparison import equal, finite, greater, less, where
from ..elementwise.family import POSITIVE, REAL, UNIT, publish, scipy_named, special
from ..elementwise.math import cos, cosh, exp, log, log1p, sin, sinh
from ..elementwise.signs import absolute
from .family import SpecialFunction, elementwise, floats, unknown
from .kummer import alternates, series

_SHARES = 0.5 + 0.5 * UNIT
_ENDS = Sample(
    (np.array([0.0, -1.0, np.inf, np.nan]),), gradient=(), reason="the ends of the domain"
)

# Exponential integrals.

_expi = special("expi")


def _expi_with_limit(xp: Any, x: Any) -> Any:
    """Return Ei, infinite at infinity in every library."""
    return xp.where(x == np.inf, x, _expi(xp, x))


expi, EXPI = elementwise(
    "expi",
    "x",
    "Evaluate the exponential integral Ei, the principal value of that of exp(t) / t up to x.",
    """
    >>> mg.special.expi([1.0, 2.0]).eval().round(4)
    array([1.8951, 4.9542], dtype=float32)
    """,
    module=__name__,
    evaluate=_expi_with_limit,
    partials=(lambda f, x: exp(x) / finite(x),),
    samples=lambda: [Sample((REAL,)), Sample((POSITIVE,)), _ENDS],
    reference=scipy_named("expi"),
)

_exp1 = special("exp1")


def _exp1_of_numbers(xp: Any, x: Any) -> Any:
    """Return E1, without a call of CuPy's function for NaN, for which it runs 2**32 steps."""
    is_nan = xp.isnan(x)
    return xp.where(is_nan, x, _exp1(xp, xp.where(is_nan, xp.ones_like(x), x)))


exp1, EXP1 = elementwise(
    "exp1",
    "x",
    "Evaluate the exponential integral E1, that of exp(-t) / t from x to infinity.",
    """
    >>> mg.special.exp1([1.0, 2.0]).eval().round(4)
    array([0.2194, 0.0489], dtype=float32)
    """,
    module=__name__,
    notes="Infinite at 0, NaN below.",
    evaluate=_exp1_of_numbers,
    partials=(lambda f, x: -(exp(-x) / finite(x)),),
    samples=lambda: [
        Sample((POSITIVE,)),
        Sample((np.array([0.0, np.inf]),), gradient=(), reason="the ends"),
    ],
    reference=scipy_named("exp1"),
)


def _expn_slope(f: Node, n: Node, x: Node) -> Node:
    # E_n' is -E_(n-1), and below 0, where the array expression ends, E_0' is written out.
    first = less(n, 0.5)
    inner = expn(where(first, 1, n) - 1.0, x)
    return where(first, -(exp(-x) * (1.0 + x) / (x * x)), -inner)


expn, EXPN = elementwise(
    "expn",
    "n x",
    "Evaluate the exponential integral E_n, that of exp(-x t) / t**n from 1 to infinity.",
    """
    >>> mg.special.expn([1, 2], 1.0).eval().round(4)
    array([0.2194, 0.1485], dtype=float32)
    """,
    module=__name__,
    notes="For whole n from 0 to 2**31 - 1. The gradient flows to `x` only: `n` is a count.",
    evaluate=lambda xp, n, x: special("expn")(xp, n.astype(x.dtype), x),
    partials=(unknown("expn", "n", "does not exist: it is a count"), _expn_slope),
    samples=lambda: [
        Sample((np.array([2.0, 3.0, 5.0]), POSITIVE), gradient=(1,), reason="a count"),
        Sample((1.0, POSITIVE), gradient=(1,), reason="a count"),
    ],
    reference=lambda n, x: scipy_named("expn")(np.asarray(n, dtype=np.int64), x),
)


# Pairs of integrals.


class SinCos(NamedTuple):
    """The sine and the cosine integral."""

    sine: Node
    cosine: Node


def _part(
    name: str, parent: str, index: int, slope: Callable[[Node], Node], at_zero: float | None
) -> Callable[..., Node]:
    def partial(f: Node, x: Node) -> Node:
        if at_zero is None:
            return slope(x)
        zero = equal(x, 0)
        return where(zero, at_zero, slope(x) / where(zero, 1, x))

    function, record = elementwise(
        name,
        "x",
        f"Evaluate result {index} of `{parent}`.",
        "",
        module=__name__,
        evaluate=lambda xp, x: special(parent)(xp, x)[index],
        partials=(partial,),
        samples=lambda: [],
        public=False,
    )
    _PARTS.append(record)
    return function


_PARTS: list[Op] = []
_sine_integral = _part("sine_integral", "sici", 0, sin, 1.0)
_cosine_integral = _part("cosine_integral", "sici", 1, cos, math.inf)
_sinh_integral = _part("sinh_integral", "shichi", 0, sinh, 1.0)
_cosh_integral = _part("cosh_integral", "shichi", 1, cosh, math.inf)


def _fresnel_phase(x: Node) -> Node:
    # Numbers so large are multiples of 4, and so the phase is one of 2 pi.
    whole = greater(absolute(x), 8.0 / float(finfo(x.dtype).eps))
    inside = where(whole, 0.0, x)
    return inside * inside * (0.5 * math.pi)


_fresnel_sine = _part("fresnel_sine", "fresnel", 0, lambda x: sin(_fresnel_phase(x)), None)
_fresnel_cosine = _part("fresnel_cosine", "fresnel", 1, lambda x: cos(_fresnel_phase(x)), None)

_FIELDS = """
x: Node or array; ints become floats.
returns (SinCos): The two nodes, `sine` and `cosine`, each of the shape and float dtype of `x`.
"""
_EXAMPLE = """
>>> sine, cosine = mg.special.{name}([1.0, 2.0])
>>> sine.eval().round(4), cosine.eval().round(4)
({sine}, {cosine})
"""


def _pair(
    name: str,
    summary: str,
    notes: str,
    parts: tuple[Callable[..., Node], Callable[..., Node]],
    values: tuple[str, str],
    points: np.ndarray,
) -> tuple[Callable[[Any], SinCos], Composite]:
    def function(x: Any) -> SinCos:
        (node,) = floats(name, x)
        return SinCos(parts[0](node), parts[1](node))

    sine, cosine = (f"array({value}, dtype=float32)" for value in values)
    example = _EXAMPLE.format(name=name, sine=sine, cosine=cosine)
    publish(function, name, __name__, summary, notes, _FIELDS, example)  # type: ignore[arg-type]
    record = Composite(
        name=name,
        kind=Kind.ELEMENTWISE,
        namespace="special",
        doc=summary,
        function=function,
        tests=Tests(samples=lambda: [Sample((points,))], reference=scipy_named(name)),
    )
    return function, record


sici, SICI = _pair(
    "sici",
    "Evaluate the sine and the cosine integral.",
    "The integral of sin(t) / t from 0 to x, and minus that of cos(t) / t from x to infinity.",
    (_sine_integral, _cosine_integral),
    ("[0.9461, 1.6054]", "[0.3374, 0.423 ]"),
    POSITIVE,
)
shichi, SHICHI = _pair(
    "shichi",
    "Evaluate the hyperbolic sine and cosine integrals.",
    "Of sinh(t) / t from 0 to x, and of (cosh(t) - 1) / t with Euler's constant and log(x) added.",
    (_sinh_integral, _cosh_integral),
    ("[1.0573, 2.5016]", "[0.8379, 2.4527]"),
    POSITIVE,
)
fresnel, FRESNEL = _pair(
    "fresnel",
    "Evaluate Fresnel's sine and cosine integrals.",
    "The integrals of sin(pi t**2 / 2) and of cos(pi t**2 / 2) from 0 to x.",
    (_fresnel_sine, _fresnel_cosine),
    ("[0.4383, 0.3434]", "[0.7799, 0.4883]"),
    REAL,
)


def _spence_slope(f: Node, z: Node) -> Node:
    # log(z) / (1 - z), which is -1 at z = 1, where log1p keeps the digits.
    z = finite(z)
    offset = z - 1.0
    one = equal(offset, 0)
    small = less(z, 0.5)
    logarithm = where(small, log(where(small, z, 1)), log1p(where(small, 0, offset)))
    return where(one, -1.0, -(logarithm / where(one, 1, offset)))


spence, SPENCE = elementwise(
    "spence",
    "z",
    "Evaluate Spence's function, the dilogarithm of 1 - z.",
    """
    >>> mg.special.spence([0.0, 1.0, 2.0]).eval().round(4)
    array([ 1.6449,  0.    , -0.8225], dtype=float32)
    """,
    module=__name__,
    notes="The integral of log(t) / (1 - t) from 1 to z; NaN below 0.",
    evaluate=special("spence"),
    partials=(_spence_slope,),
    samples=lambda: [
        Sample((POSITIVE,)),
        Sample((np.array([0.0, 1.0, -1.0]),), gradient=(), reason="ends"),
    ],
    reference=scipy_named("spence"),
)

# Lambert's W.


def _lambertw_array(branch: int) -> Callable[..., Any]:
    def evaluate(xp: Any, x: Any) -> Any:
        wide = xp.asarray(x, dtype=np.float64)
        real = wide >= -math.exp(-1.0) if branch == 0 else (wide >= -math.exp(-1.0)) & (wide <= 0)
        inside = xp.where(real, wide, -0.1 if branch else 1.0)
        value = special("lambertw")(xp, inside, branch).real
        if branch:  # SciPy's steps overflow where x is subnormal: w = log(-x) - log(-w)
            near = (inside < 0) & (inside > -1e-300)
            logarithm = xp.log(xp.where(near, -inside, 0.1))
            root = xp.array(logarithm)
            for _ in range(8):
                root = logarithm - xp.log(-root)
            value = xp.where(near, root, value)
        return xp.where(real, value, np.nan)

    return evaluate


def _lambertw_slope(f: Node, x: Node) -> Node:
    return exp(-f) / (1.0 + f)


def _lambertw_lower_slope(f: Node, x: Node) -> Node:
    # exp(-f) is f / x, which does not overflow before the slope does. At 0 f is -infinite.
    zero = equal(x, 0)
    inside, root = where(zero, -0.1, x), where(zero, -2.0, f)
    return where(zero, -math.inf, root / (1.0 + root) / inside)


_lambertw, LAMBERTW_MAIN = elementwise(
    "lambertw_main",
    "x",
    "Solve w exp(w) = x for w >= -1.",
    "",
    module=__name__,
    evaluate=_lambertw_array(0),
    partials=(_lambertw_slope,),
    samples=lambda: [],
    public=False,
)
_lambertw_lower, LAMBERTW_LOWER = elementwise(
    "lambertw_lower",
    "x",
    "Solve w exp(w) = x for w <= -1.",
    "",
    module=__name__,
    evaluate=_lambertw_array(-1),
    partials=(_lambertw_lower_slope,),
    samples=lambda: [],
    public=False,
)


@documented
def lambertw(x: Any, k: int = 0) -> Node:
    """Solve ``w exp(w) = x`` on a real branch of Lambert's W.

    x: Node or array; ints become floats.
    k: 0: the branch from -1 up, for ``x >= -1/e``. -1: that from -1 down, for ``-1/e <= x <= 0``.
    returns: Of the shape and float dtype of `x`; NaN where the branch is not real.
    raises ShapeError: For another branch: its values are complex.

    >>> mg.special.lambertw([0.0, 1.0]).eval().round(4)
    array([0.    , 0.5671], dtype=float32)
    >>> mg.special.lambertw([-0.1], k=-1).eval().round(4)
    array([-3.5772], dtype=float32)
    """
    if k not in (0, -1):
        raise ShapeError(message(f"lambertw: the branch k={k!r} is complex", need="0 or -1"))
    (node,) = floats("lambertw", x)
    return _lambertw(node) if k == 0 else _lambertw_lower(node)


def _real_branch(value: Any) -> Any:
    return np.where(value.imag == 0, value.real, np.nan)


LAMBERTW = Composite(
    kind=Kind.ELEMENTWISE,
    namespace="special",
    function=lambertw,
    tests=Tests(
        samples=lambda: [
            Sample((POSITIVE,)),
            Sample((_SHARES * -0.3,)),
            Sample((_SHARES * -0.3,), {"k": -1}),
        ],
        bad_samples=lambda: [
            BadSample((POSITIVE,), ShapeError, "lambertw: the branch k=1 is complex", {"k": 1})
        ],
        reference=lambda x, k=0: _real_branch(scipy_named("lambertw")(x, k)),
    ),
)


# Hypergeometric functions.

_SHAPES = np.array([0.7, 1.3, 2.5])
_NO_FORM = "no closed form in the parameters"
_ARGUMENT_ONLY = "The gradient flows to `{0}` only; those in the parameters have no closed form."

hyp0f1: SpecialFunction
hyp1f1: SpecialFunction
hyp2f1: SpecialFunction

hyp0f1, HYP0F1 = elementwise(
    "hyp0f1",
    "v z",
    "Evaluate the confluent hypergeometric limit function.",
    """
    >>> mg.special.hyp0f1(1.0, [0.0, 1.0]).eval().round(4)
    array([1.    , 2.2796], dtype=float32)
    """,
    module=__name__,
    notes=_ARGUMENT_ONLY.format("z"),
    evaluate=special("hyp0f1"),
    partials=(unknown("hyp0f1", "v"), lambda f, v, z: hyp0f1(v + 1.0, z) / v),
    samples=lambda: [Sample((_SHAPES, REAL), gradient=(1,), reason=_NO_FORM)],
    reference=scipy_named("hyp0f1"),
)

_SCIPY_HYP1F1 = special("hyp1f1")
_TURNED = 10.0
_LARGEST_TERMS = 1e8  # beyond it SciPy takes as many steps as x is large, to infinity


def _hyp1f1(xp: Any, a: Any, b: Any, x: Any) -> Any:
    """Evaluate by SciPy where its series converges soon, and does not cancel; else by our own.

    Its time does not end for large x, where only polynomials are finite. For x between -1 and 0 it
    takes as many steps as a is large, and loses all digits; Kummer's transformation,
    exp(x) M(b - a, b, -x), does not. Where the series alternates and is short, it is summed here.
    Polynomials lose all digits where x is b, and there alone: x is moved by an ulp.
    """
    polynomial = (a <= 0) & (a == xp.floor(a))
    bounded = xp.where(polynomial, x, xp.minimum(x, _LARGEST_TERMS))
    is_transformed = (x >= -1) & (x < 0) & (a > _TURNED)
    a, b, bounded = (value.astype(np.float64) for value in (a, b, bounded))
    at = xp.where(polynomial & (bounded == b), bounded * (1.0 - 2.0**-52), bounded)
    value = _SCIPY_HYP1F1(
        xp, xp.where(is_transformed, b - a, a), b, xp.where(is_transformed, -at, at)
    )
    value = xp.asarray(value * xp.exp(xp.where(is_transformed, bounded, 0.0)))
    summed = alternates(a, b, bounded)
    if summed.any():
        own = (xp.broadcast_to(each, summed.shape)[summed] for each in (a, b, bounded))
        value[summed] = series(*own)
    return value.astype(x.dtype)


hyp1f1, HYP1F1 = elementwise(
    "hyp1f1",
    "a b x",
    "Evaluate Kummer's confluent hypergeometric function.",
    """
    >>> mg.special.hyp1f1(1.0, 2.0, [0.0, 1.0]).eval().round(4)
    array([1.    , 1.7183], dtype=float32)
    """,
    module=__name__,
    notes=_ARGUMENT_ONLY.format("x"),
    evaluate=_hyp1f1,
    partials=(
        unknown("hyp1f1", "a"),
        unknown("hyp1f1", "b"),
        lambda f, a, b, x: hyp1f1(a + 1.0, b + 1.0, x) * (a / b),
    ),
    samples=lambda: [Sample((_SHAPES, 1.6, REAL), gradient=(2,), reason=_NO_FORM)],
    reference=scipy_named("hyp1f1"),
)

hyp2f1, HYP2F1 = elementwise(
    "hyp2f1",
    "a b c z",
    "Evaluate Gauss's hypergeometric function.",
    """
    >>> mg.special.hyp2f1(1.0, 1.0, 2.0, [0.0, 0.5]).eval().round(4)
    array([1.    , 1.3863], dtype=float32)
    """,
    module=__name__,
    notes=_ARGUMENT_ONLY.format("z"),
    evaluate=special("hyp2f1"),
    partials=(
        unknown("hyp2f1", "a"),
        unknown("hyp2f1", "b"),
        unknown("hyp2f1", "c"),
        lambda f, a, b, c, z: hyp2f1(a + 1.0, b + 1.0, c + 1.0, z) * (a * b / c),
    ),
    samples=lambda: [Sample((_SHAPES, 1.6, 3.1, UNIT), gradient=(3,), reason=_NO_FORM)],
    reference=scipy_named("hyp2f1"),
)

RECORDS: tuple[Op | Composite, ...] = (
    EXPI,
    EXP1,
    EXPN,
    *_PARTS,
    SICI,
    SHICHI,
    FRESNEL,
    SPENCE,
    LAMBERTW_MAIN,
    LAMBERTW_LOWER,
    LAMBERTW,
    HYP0F1,
    HYP1F1,
    HYP2F1,
)
