"""The gamma function and what it makes: beta, binomial coefficients, factorials."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...dtypes import finfo
from ...errors import ShapeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Composite, Kind, Op, Sample, Tests
from ...ir.types import MOST_TERMS
from ..control.identities import stop_gradient
from ..convert import cast
from ..elementwise.comparison import (
    equal,
    finite,
    greater,
    greater_equal,
    less,
    less_equal,
    not_equal,
    where,
)
from ..elementwise.family import POSITIVE, REAL, scipy_named, special
from ..elementwise.math import log1p
from ..elementwise.rounding import floor
from ..elementwise.signs import absolute
from .family import composite, elementwise, floats, widened
from .primitives import digamma, lgamma

_PARTNER = np.array([[0.9, 2.3, 0.4], [1.6, 0.7, 3.2]])
_ROW = np.array([0.6, 1.5, 2.8])
_POLES = Sample(
    (np.array([0.0, -1.0, -2.0, np.inf, np.nan]),), gradient=(), reason="poles and their like"
)

gamma, GAMMA = elementwise(
    "gamma",
    "x",
    "Evaluate the gamma function.",
    """
    >>> mg.special.gamma([0.5, 5.0]).eval().round(4)
    array([ 1.7725, 24.    ], dtype=float32)
    """,
    module=__name__,
    notes="Infinite at 0, with the sign of the zero; NaN at the negative integers.",
    evaluate=special("gamma"),
    scalar="$gamma(a)",
    partials=(lambda f, x: f * digamma(x),),
    samples=lambda: [Sample((POSITIVE,)), Sample((REAL,)), _POLES],
    reference=scipy_named("gamma"),
)

gammasgn, GAMMASGN = elementwise(
    "gammasgn",
    "x",
    "Tell the sign of the gamma function: 1.0 or -1.0.",
    """
    >>> mg.special.gammasgn([2.5, -0.5, -1.5]).eval()
    array([ 1., -1.,  1.], dtype=float32)
    """,
    module=__name__,
    notes="At 0 that of the zero; NaN at the negative integers.",
    evaluate=special("gammasgn"),
    scalar="$gammasgn(a)",
    no_gradient="piecewise constant",
    samples=lambda: [Sample((REAL,)), _POLES],
    reference=scipy_named("gammasgn"),
    numerics="exact",
)


def _rgamma_slope(f: Node, x: Node) -> Node:
    # At a pole of gamma the two factors are 0 and infinite; their product is (-1)**n n!.
    whole = floor(x)
    near = less(absolute(x), 4.0 * float(finfo(x.dtype).tiny))  # 1/x may overflow
    pole = stop_gradient(less_equal(x, 0) & equal(x, whole) | near)
    inside = where(pole, 1, x)
    sign = where(equal(floor(whole * 0.5) * 2.0, whole) | near, 1.0, -1.0)
    at_pole = sign * gamma(1.0 - where(pole, x, 0))
    return where(pole, at_pole, -digamma(finite(inside)) * rgamma(inside))


rgamma, RGAMMA = elementwise(
    "rgamma",
    "x",
    "Evaluate the reciprocal of the gamma function, which has no poles.",
    """
    >>> mg.special.rgamma([-1.0, 0.5, 5.0]).eval().round(4)
    array([0.    , 0.5642, 0.0417], dtype=float32)
    """,
    module=__name__,
    evaluate=lambda xp, x: xp.where(xp.abs(x) < 1e-300, x, special("rgamma")(xp, x)),
    scalar="$rgamma(a)",
    partials=(_rgamma_slope,),
    samples=lambda: [Sample((POSITIVE,)), Sample((REAL,)), _POLES],
    reference=scipy_named("rgamma"),
)

loggamma, LOGGAMMA = composite(
    "loggamma",
    "x",
    "Take the principal logarithm of the gamma function, which is real above 0.",
    """
    >>> mg.special.loggamma([5.0, -0.5]).eval().round(4)
    array([3.1781,    nan], dtype=float32)
    """,
    lambda x: where(less(x, 0), math.nan, lgamma(x)),
    module=__name__,
    notes="NaN below 0, where it is complex; `gammaln` is the logarithm of the absolute value.",
    samples=lambda: [Sample((POSITIVE,))],
    reference=scipy_named("loggamma"),
)


@documented
def multigammaln(a: Any, d: int) -> Node:
    """Take the logarithm of the multivariate gamma function.

    a: Node or array of numbers above ``(d - 1) / 2``; ints become floats.
    d: The dimension of the space of integration, at least 1.
    returns: Of the shape and float dtype of `a`: ``d (d - 1) / 4 log(pi)`` and ``lgamma(a - j /
        2)`` for j from 0 to d - 1. NaN where `a` is too small.
    raises ShapeError: If `d` is not an int from 1 to 10,000: each dimension is a term of the graph.

    >>> mg.special.multigammaln([3.0, 4.0], 2).eval().round(4)
    array([1.5502, 3.5651], dtype=float32)
    """
    if not isinstance(d, (int, np.integer)) or isinstance(d, bool) or not 1 <= d <= MOST_TERMS:
        raise ShapeError(
            message(f"multigammaln: the dimension {d!r}", need=f"an int from 1 to {MOST_TERMS}")
        )
    (operand,) = floats("multigammaln", a)
    node = widened(operand)
    total = lgamma(node)
    for j in range(1, int(d)):
        total = total + lgamma(node - 0.5 * j)
    total = total + 0.25 * d * (d - 1) * math.log(math.pi)
    return cast(where(less(node, 0.5 * (d - 1)), math.nan, total), operand.dtype)


MULTIGAMMALN = Composite(
    kind=Kind.ELEMENTWISE,
    namespace="special",
    function=multigammaln,
    tests=Tests(
        samples=lambda: [Sample((POSITIVE + 1.0, 3)), Sample((POSITIVE, 1))],
        bad_samples=lambda: [
            BadSample((POSITIVE, 0), ShapeError, "multigammaln: the dimension 0"),
            BadSample((POSITIVE, 1.5), ShapeError, "multigammaln: the dimension 1.5"),
        ],
        reference=lambda a, d: np.where(
            a < 0.5 * (d - 1),
            math.nan,
            0.25 * d * (d - 1) * math.log(math.pi)
            + sum(scipy_named("gammaln")(a - 0.5 * j) for j in range(d)),
        ),
    ),
)


def _digamma_change(x: Node, step: Node) -> Node:
    """Return digamma(x + step) - digamma(x), also where both are infinite in floats."""
    total = x + step
    large = greater(x, 1e16) & greater(total, 1e16)
    # At both small, the poles at 0 are taken together: 1 / x - 1 / (x + step).
    small = less(absolute(x), 0.1) & less(absolute(step), 0.1)
    near = small & not_equal(total, 0) & not_equal(x, 0)
    pole = where(near, step, 0) / where(near, total, 1) / where(near, x, 1)
    shift = where(near, 1.0, 0.0)
    usual = digamma(where(large, 1, total + shift)) - digamma(where(large, 1, x + shift)) + pole
    return where(large, log1p(where(large, step, 0) / where(large, x, 1)), usual)


poch, POCH = elementwise(
    "poch",
    "z m",
    "Evaluate Pochhammer's symbol, gamma(z + m) / gamma(z).",
    """
    >>> mg.special.poch(3.0, [1.0, 2.0]).eval()
    array([ 3., 12.], dtype=float32)
    """,
    module=__name__,
    evaluate=special("poch"),
    partials=(
        lambda f, z, m: f * _digamma_change(z, m),
        lambda f, z, m: f * digamma(z + m),
    ),
    samples=lambda: [Sample((POSITIVE, _PARTNER)), Sample((POSITIVE, _ROW))],
    reference=scipy_named("poch"),
)


def stirling_rest(x: Any) -> Any:
    """Return what Stirling's formula leaves of lgamma(x), from 10 on (NIST Handbook, 5.11.1)."""
    square = 1.0 / (x * x)
    total: Any = 0.0
    for coefficient in (-1 / 156, 691 / 360360, -1 / 1188, 1 / 1680, -1 / 1260, 1 / 360, -1 / 12):
        total = total * square - coefficient
    return total / x


def _betaln_array(xp: Any, x: Any, y: Any) -> Any:
    """Return log |B|; where an operand is large the large parts cancel by Stirling's formula."""
    x, y = xp.asarray(x, dtype=np.float64), xp.asarray(y, dtype=np.float64)
    values = special("betaln")(xp, x, y)
    a, b = xp.minimum(x, y), xp.maximum(x, y)
    large = (a > 0) & (b >= 10) & (b < np.inf)
    a, b = xp.where(large, a, 1.0), xp.where(large, b, 10.0)
    rest = stirling_rest(b) - stirling_rest(a + b) - (b - 0.5) * xp.log1p(a / b)
    big = xp.maximum(a, 10.0)
    both = stirling_rest(big) + 0.5 * math.log(2.0 * math.pi) - 0.5 * xp.log(a + b)
    both = both - (big - 0.5) * xp.log1p(b / big)
    one = special("gammaln")(xp, a) - a * xp.log(a + b) + a
    value = xp.where(large, rest + xp.where(a < 10, one, both), values)
    # Near 0 gamma(x) is 1 / x, which may overflow.
    least, other = xp.where(xp.abs(x) < xp.abs(y), x, y), xp.where(xp.abs(x) < xp.abs(y), y, x)
    pole = (other <= 0) & (other == xp.floor(other))
    tiny = (least != 0) & (xp.abs(least) < 1e-300) & (xp.abs(other) < np.inf)
    tiny = tiny & xp.logical_not(pole)
    least, other = xp.where(tiny, least, 1.0), xp.where(tiny, other, 1.0)
    limit = xp.log(xp.abs(least / other + 1.0)) - xp.log(xp.abs(least))
    return xp.where(tiny, limit, value)


def _beta_array(xp: Any, a: Any, b: Any) -> Any:
    """Return B, 0 where gamma has a pole at the sum alone, for which libraries have NaN."""
    total, value = a + b, special("beta")(xp, a, b)
    pole = (total <= 0) & (total == xp.floor(total)) & (a != xp.floor(a)) & (b != xp.floor(b))
    return xp.where(pole, value.dtype.type(0), value)


betaln, BETALN = elementwise(
    "betaln",
    "a b",
    "Take the logarithm of the absolute value of the beta function.",
    """
    >>> mg.special.betaln(2.0, [3.0, 1e6]).eval().round(4)
    array([ -2.4849, -27.631 ], dtype=float32)
    """,
    module=__name__,
    notes="Where one operand is negative and the other beyond ``2 / eps``, it has no exact digits.",
    evaluate=_betaln_array,
    scalar="$betaln(a, b)",
    partials=(
        lambda f, a, b: -_digamma_change(a, b),
        lambda f, a, b: -_digamma_change(b, a),
    ),
    samples=lambda: [
        Sample((POSITIVE, _PARTNER)),
        Sample((POSITIVE, _ROW)),
        Sample(
            (np.array([1e-3, 0.5, 12.0]), np.array([3e4, 40.0, 15.0])),
            gradient=(),
            reason="differences of large numbers",
        ),
    ],
    reference=scipy_named("betaln"),
)

beta, BETA = elementwise(
    "beta",
    "a b",
    "Evaluate the beta function, gamma(a) gamma(b) / gamma(a + b).",
    """
    >>> mg.special.beta(2.0, [3.0, 4.0]).eval().round(4)
    array([0.0833, 0.05  ], dtype=float32)
    """,
    module=__name__,
    evaluate=_beta_array,
    partials=(
        lambda f, a, b: f * -_digamma_change(a, b),
        lambda f, a, b: f * -_digamma_change(b, a),
    ),
    samples=lambda: [Sample((POSITIVE, _PARTNER)), Sample((POSITIVE, _ROW))],
    reference=scipy_named("beta"),
)

factorial, FACTORIAL = composite(
    "factorial",
    "n",
    "Evaluate n! as a float: gamma(n + 1), and 0 for negative n.",
    """
    >>> mg.special.factorial([0, 1, 5]).eval()
    array([  1.,   1., 120.], dtype=float32)
    """,
    lambda n: where(less(n, 0), 0, gamma(where(less(n, 0), 0, n) + 1.0)),
    module=__name__,
    samples=lambda: [
        Sample((POSITIVE,)),
        Sample((np.array([-2.0, 0.0, 3.0, 4.0]),), gradient=(), reason="jumps to 0"),
    ],
    reference=lambda n: np.where(n < 0, 0.0, scipy_named("gamma")(np.maximum(n, 0.0) + 1.0)),
)

binom, BINOM = elementwise(
    "binom",
    "n k",
    "Evaluate the binomial coefficient of real numbers.",
    """
    >>> mg.special.binom([5.0, 0.5], 2.0).eval()
    array([10.   , -0.125], dtype=float32)
    """,
    module=__name__,
    notes="gamma(n + 1) / (gamma(k + 1) gamma(n - k + 1)).",
    evaluate=special("binom"),
    partials=(
        lambda f, n, k: f * (digamma(n + 1.0) - digamma(n - k + 1.0)),
        lambda f, n, k: f * (digamma(n - k + 1.0) - digamma(k + 1.0)),
    ),
    samples=lambda: [Sample((POSITIVE + 2.5, _PARTNER)), Sample((POSITIVE + 3.0, _ROW))],
    reference=scipy_named("binom"),
)


def _possible(n: Node, k: Node) -> Node:
    return greater_equal(n, 0) & greater_equal(k, 0) & less_equal(k, n)


def _comb(n: Node, k: Node) -> Node:
    possible = _possible(n, k)
    return where(possible, binom(where(possible, n, 1), where(possible, k, 1)), 0)


def _perm(n: Node, k: Node) -> Node:
    possible = _possible(n, k)
    return where(possible, poch(where(possible, n - k, 1) + 1.0, where(possible, k, 1)), 0)


_COUNTS = (np.array([5.0, 6.0, 3.0, -1.0, 4.0]), np.array([2.0, 0.0, 4.0, 1.0, -1.0]))

comb, COMB = composite(
    "comb",
    "n k",
    "Count the choices of k out of n things; 0 where there are none.",
    """
    >>> mg.special.comb(5, [2, 6]).eval()
    array([10.,  0.], dtype=float32)
    """,
    _comb,
    module=__name__,
    samples=lambda: [
        Sample((POSITIVE + 2.5, _PARTNER)),
        Sample(_COUNTS, gradient=(), reason="jumps to 0"),
    ],
    reference=scipy_named("comb"),
)

perm, PERM = composite(
    "perm",
    "n k",
    "Count the ordered choices of k out of n things; 0 where there are none.",
    """
    >>> mg.special.perm(5, [2, 6]).eval()
    array([20.,  0.], dtype=float32)
    """,
    _perm,
    module=__name__,
    samples=lambda: [
        Sample((POSITIVE + 2.5, _PARTNER)),
        Sample(_COUNTS, gradient=(), reason="jumps to 0"),
    ],
    reference=scipy_named("perm"),
)

RECORDS: tuple[Op | Composite, ...] = (
    GAMMA,
    GAMMASGN,
    RGAMMA,
    LOGGAMMA,
    MULTIGAMMALN,
    POCH,
    BETALN,
    BETA,
    FACTORIAL,
    BINOM,
    COMB,
    PERM,
)
