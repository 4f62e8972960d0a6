"""Continuous distributions by inversion: a smooth function of a uniform rank.

Each reads its rank as a half and a distance from the nearer end (`bits.tails`), so that
both tails have all their digits. Gradients flow to the parameters through the same function.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ir.graph import Node
from ...ir.op import Composite, Kind, Op, Parts, Scalar
from ...ir.types import Shape
from ..control.identities import stop_gradient
from ..elementwise.arithmetic import multiply, negative
from ..elementwise.comparison import less, where
from ..elementwise.family import broadcast_floats, special
from ..elementwise.math import exp, log, log1p, sqrt, tan
from ..elementwise.rounding import isfinite
from ..elementwise.signs import absolute
from .basic import normal
from .bits import Key, keys_for, tails
from .family import ANY, POSITIVE, REQUIRED, distribution


def unit_exponential(shape: Shape, dtype: np.dtype, key: Key | None) -> Node:
    """Return exponential numbers of mean 1; none is 0."""
    lower, distance = tails(shape, dtype, key)
    return negative(where(lower, log1p(-distance), log(distance)))


def _exponential(shape: Shape, dtype: np.dtype, key: Key | None, scale: Node) -> Node:
    return multiply(scale, unit_exponential(shape, dtype, key))


_BOTH = "`loc` and `scale`: ``loc + scale * z``"
_SCALE = "`scale`, a factor"
_LOCATION = (("loc", 0.0, ANY), ("scale", 1.0, POSITIVE))

exponential, EXPONENTIAL = distribution(
    "exponential",
    [("scale", 1.0, POSITIVE)],
    "Draw exponentially distributed numbers: waiting times of mean `scale`.",
    _exponential,
    module=__name__,
    notes="``-scale log(1 - u)``.",
    example=("exponential((10000,), 2.0)", "round(float(x.mean()), 1)", "2.0"),
    gradient=_SCALE,
)


def _laplace(shape: Shape, dtype: np.dtype, key: Key | None, loc: Node, scale: Node) -> Node:
    lower, distance = tails(shape, dtype, key)
    size = log(distance * 2.0)
    return loc + scale * where(lower, size, -size)


laplace, LAPLACE = distribution(
    "laplace",
    _LOCATION,
    "Draw numbers of Laplace's distribution: differences of two exponential ones.",
    _laplace,
    module=__name__,
    notes="``loc + scale log(2 u)`` for u below 1/2, and its mirror image.",
    example=("laplace((10000,), 3.0, 2.0)", "round(float(abs(x - 3.0).mean()), 1)", "2.0"),
    gradient=_BOTH,
)


def _logistic(shape: Shape, dtype: np.dtype, key: Key | None, loc: Node, scale: Node) -> Node:
    lower, distance = tails(shape, dtype, key)
    odds = log(distance) - log1p(-distance)
    return loc + scale * where(lower, odds, -odds)


logistic, LOGISTIC = distribution(
    "logistic",
    _LOCATION,
    "Draw numbers of the logistic distribution.",
    _logistic,
    module=__name__,
    notes="``loc + scale log(u / (1 - u))``.",
    example=("logistic((10000,), 3.0, 2.0)", "round(float(x.mean()), 1)", "3.0"),
    gradient=_BOTH,
)


def unit_gumbel(shape: Shape, dtype: np.dtype, key: Key | None) -> Node:
    """Return standard Gumbel numbers, all of them finite."""
    return negative(log(unit_exponential(shape, dtype, key)))


gumbel, GUMBEL = distribution(
    "gumbel",
    _LOCATION,
    "Draw numbers of Gumbel's distribution, that of the largest of many.",
    lambda shape, dtype, key, loc, scale: loc + scale * unit_gumbel(shape, dtype, key),
    module=__name__,
    notes="``loc - scale log(-log(u))``.",
    example=("gumbel((10000,), 3.0, 2.0)", "round(float(x.mean()), 1)", "4.1"),
    gradient=_BOTH,
)


def _cauchy(shape: Shape, dtype: np.dtype, key: Key | None, loc: Node, scale: Node) -> Node:
    lower, distance = tails(shape, dtype, key)
    size = 1.0 / tan(distance * math.pi)
    return loc + scale * where(lower, -size, size)


cauchy, CAUCHY = distribution(
    "cauchy",
    _LOCATION,
    "Draw numbers of Cauchy's distribution, which has no mean.",
    _cauchy,
    module=__name__,
    notes="``loc + scale tan(pi (u - 1/2))``.",
    example=("cauchy((10000,), 3.0)", "round(sorted(x.tolist())[5000], 1)", "3.0"),
    gradient=_BOTH,
)


def _half_normal(shape: Shape, dtype: np.dtype, key: Key | None, scale: Node) -> Node:
    return scale * absolute(normal(shape, dtype=dtype, key=key))


half_normal, HALF_NORMAL = distribution(
    "half_normal",
    [("scale", 1.0, POSITIVE)],
    "Draw absolute values of normal numbers.",
    _half_normal,
    module=__name__,
    notes="``|scale z|`` with z standard normal.",
    example=("half_normal((10000,), 2.0)", "round(float((x**2).mean()))", "4"),
    gradient=_SCALE,
)


def _lognormal(shape: Shape, dtype: np.dtype, key: Key | None, mean: Node, sigma: Node) -> Node:
    return exp(mean + sigma * normal(shape, dtype=dtype, key=key))


lognormal, LOGNORMAL = distribution(
    "lognormal",
    [("mean", 0.0, ANY), ("sigma", 1.0, POSITIVE)],
    "Draw numbers whose logarithm is normally distributed.",
    _lognormal,
    module=__name__,
    notes="``exp(mean + sigma z)`` with z standard normal.",
    example=("lognormal((10000,), 1.0, 0.5)", "round(sorted(x.tolist())[5000], 1)", "2.7"),
    gradient="`mean` and `sigma`",
)


def _rayleigh(shape: Shape, dtype: np.dtype, key: Key | None, scale: Node) -> Node:
    return scale * sqrt(unit_exponential(shape, dtype, key) * 2.0)


rayleigh, RAYLEIGH = distribution(
    "rayleigh",
    [("scale", 1.0, POSITIVE)],
    "Draw lengths of two-dimensional normal vectors.",
    _rayleigh,
    module=__name__,
    notes="``scale sqrt(2 e)`` with e exponential of mean 1.",
    example=("rayleigh((10000,), 2.0)", "round(float((x**2).mean()), 0)", "8.0"),
    gradient=_SCALE,
)


def _weibull(shape: Shape, dtype: np.dtype, key: Key | None, a: Node, scale: Node) -> Node:
    return scale * exp(log(unit_exponential(shape, dtype, key)) / a)


weibull, WEIBULL = distribution(
    "weibull",
    [("a", REQUIRED, POSITIVE), ("scale", 1.0, POSITIVE)],
    "Draw numbers of Weibull's distribution of shape parameter `a`.",
    _weibull,
    module=__name__,
    notes="``scale e**(1 / a)`` with e exponential of mean 1.",
    example=("weibull((10000,), 2.0)", "round(float((x**2).mean()), 1)", "1.0"),
    gradient="`a` and `scale`",
)


def _pareto(shape: Shape, dtype: np.dtype, key: Key | None, a: Node, scale: Node) -> Node:
    return scale * exp(unit_exponential(shape, dtype, key) / a)


pareto, PARETO = distribution(
    "pareto",
    [("a", REQUIRED, POSITIVE), ("scale", 1.0, POSITIVE)],
    "Draw numbers of Pareto's distribution: from `scale` up, with density as x**(-a - 1).",
    _pareto,
    module=__name__,
    notes="""
    ``scale exp(e / a)`` with e exponential of mean 1: SciPy's and JAX's convention; NumPy's is less
    by `scale`.
    """,
    example=("pareto((10000,), 3.0)", "round(float(x.mean()), 1)", "1.5"),
    gradient="`a` and `scale`",
)


def _triangular(
    shape: Shape, dtype: np.dtype, key: Key | None, left: Node, mode: Node, right: Node
) -> Node:
    lower, distance = tails(shape, dtype, key)
    rank = where(lower, distance, 1.0 - distance)
    rest = where(lower, 1.0 - distance, distance)
    width = right - left
    rising = less(rank * width, mode - left)
    # The root that is not taken must not be that of 0, whose slope is infinite.
    first = where(rising, rank * width * (mode - left), 1.0)
    second = where(rising, 1.0, rest * width * (right - mode))
    return where(rising, left + sqrt(first), right - sqrt(second))


triangular, TRIANGULAR = distribution(
    "triangular",
    [("left", REQUIRED, ANY), ("mode", REQUIRED, ANY), ("right", REQUIRED, ANY)],
    "Draw numbers whose density rises linearly from `left` to `mode` and falls to `right`.",
    _triangular,
    module=__name__,
    notes="By inversion, for ``left <= mode <= right``.",
    example=("triangular((10000,), 0.0, 1.0, 2.0)", "round(float(x.mean()), 1)", "1.0"),
    gradient="all three parameters",
)


# Wald's distribution chooses between two roots with a chance that depends on the parameters, so
# that the derivative of the chosen root is not that of the distribution.


def _wald(shape: Shape, dtype: np.dtype, key: Key | None, mean: Node, scale: Node) -> Node:
    first, second = keys_for(key, 2)
    z = normal(shape, dtype=dtype, key=first)
    ratio = mean * (z * z) / scale
    larger = 1.0 + 0.5 * (ratio + sqrt(ratio * (ratio + 4.0)))  # in units of the mean
    lower, distance = tails(shape, dtype, second)
    rank = where(lower, distance, 1.0 - distance)
    # The smaller root is 1 / larger, and has the chance larger / (1 + larger).
    draw = where(less(rank * (1.0 + larger), larger), 1.0 / larger, larger)
    return stop_gradient(mean * draw)


wald, WALD = distribution(
    "wald",
    [("mean", REQUIRED, POSITIVE), ("scale", REQUIRED, POSITIVE)],
    "Draw numbers of Wald's (the inverse Gaussian) distribution.",
    _wald,
    module=__name__,
    notes="J. Michael, W. Schucany, R. Haas, The American Statistician 30, 1976.",
    example=("wald((10000,), 2.0, 3.0)", "round(float(x.mean()), 1)", "2.0"),
    no_gradient="the chance of the root that is chosen depends on the parameters",
)


# The truncated normal distribution.


def _truncated_array(xp: Any, low: Any, high: Any, log_rank: Any, log_rest: Any) -> Any:
    wide = [xp.asarray(each, dtype=np.float64) for each in (low, high, log_rank, log_rest)]
    low, high, log_rank, log_rest = wide
    tail, inverse = special("log_ndtr"), special("ndtri_exp")
    below = xp.logaddexp(log_rest + tail(xp, low), log_rank + tail(xp, high))
    above = xp.logaddexp(log_rest + tail(xp, -low), log_rank + tail(xp, -high))
    upper = above < below
    quantile = inverse(xp, xp.where(upper, above, below))
    return xp.clip(xp.where(upper, -quantile, quantile), low, high)


def _truncated_gradient(node: Node, cotangent: Node) -> Parts:
    low, high, log_rank, log_rest = node.inputs

    def share(bound: Node, weight: Node) -> Node:
        finite = isfinite(bound)
        inside = where(finite, bound, 0)
        slope = exp((node - inside) * (node + inside) * 0.5 + weight)
        return where(finite, cotangent * slope, 0)

    return share(low, log_rest), share(high, log_rank), None, None


TRUNCATED = Op(
    name="truncated_normal_quantile",
    kind=Kind.ELEMENTWISE,
    doc="The standard normal number between two bounds of a rank given by two logarithms.",
    rule=broadcast_floats,
    evaluate=_truncated_array,
    scalar=Scalar("$truncated_normal(a, b, c, d)"),
    gradient=_truncated_gradient,
)


def _truncated_normal(
    shape: Shape,
    dtype: np.dtype,
    key: Key | None,
    low: Node,
    high: Node,
    mean: Node,
    std: Node,
) -> Node:
    lower, distance = tails(shape, dtype, key)
    near, far = log(distance), log1p(-distance)

    def standard(bound: Node) -> Node:
        # An infinite bound moves with nothing: its slope in std must not be infinity times 0.
        finite = isfinite(bound)
        return where(finite, (where(finite, bound, 0) - mean) / std, bound)

    number = TRUNCATED(
        standard(low), standard(high), where(lower, near, far), where(lower, far, near)
    )
    return mean + std * number


truncated_normal, TRUNCATED_NORMAL = distribution(
    "truncated_normal",
    [
        ("low", REQUIRED, ANY),
        ("high", REQUIRED, ANY),
        ("mean", 0.0, ANY),
        ("std", 1.0, POSITIVE),
    ],
    "Draw normal numbers that lie between two bounds.",
    _truncated_normal,
    module=__name__,
    notes="""
    By inversion, in logarithms of the two tails, so that bounds far out in a tail are as good as
    others. Bounds may be infinite. `low` and `high` are in units of the result, as `mean` is.
    """,
    example=("truncated_normal((10000,), 5.0, 6.0)", "round(float(x.mean()), 1)", "5.2"),
    gradient="all parameters",
)

RECORDS: tuple[Op | Composite, ...] = (
    EXPONENTIAL,
    LAPLACE,
    LOGISTIC,
    GUMBEL,
    CAUCHY,
    HALF_NORMAL,
    LOGNORMAL,
    RAYLEIGH,
    WEIBULL,
    PARETO,
    TRIANGULAR,
    WALD,
    TRUNCATED,
    TRUNCATED_NORMAL,
)
