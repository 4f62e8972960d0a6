"""How a gamma variable moves with its shape: the implicit derivative of the distribution.

Where ``x`` is the value of rank ``P(a, x) = u``, the derivative of ``x`` in the shape ``a`` at
fixed ``u`` is ``-(dP/da) / (dP/dx)`` (M. Figurnov, S. Mohamed, A. Mnih, "Implicit
reparameterization gradients", NeurIPS 2018, equation 4). With

    P(a, x) = x**a exp(-x) / gamma(a) S,   and so   dx/da = -x ((log(x) - digamma(a)) S + dS/da),

nothing under- or overflows, least of all in the derivative of log(x), which is what the operation
gives. S is the power series for small shapes, the integral

    S = integral of exp(-a v + x (1 - exp(-v))) over v > 0

for larger ones, and above ``x = a`` that of the upper tail,

    integral of exp(-x s) (1 + s)**(a - 1) over s > 0,

with the sign turned. dS/da has one more factor v, or log(1 + s), in the integrand. The integrals
are sums over the points of the double exponential rule for integrands that decay like exp
(H. Takahasi, M. Mori, 1974), scaled by the width of the integrand.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ir.graph import Node
from ...ir.op import Composite, Op
from ..elementwise.comparison import equal, where
from ..elementwise.family import special
from ..elementwise.math import exp, log
from .family import elementwise, unknown
from .primitives import digamma

# Points in t from -3.6 to 4.2 by an eighth; beyond them the terms are below rounding.
STEP, FIRST, COUNT = 0.125, -3.6, 63
PLACES = tuple(math.exp(t - math.exp(-t)) for t in (FIRST + STEP * k for k in range(COUNT)))
WEIGHTS = tuple(
    STEP * (1.0 + math.exp(-(FIRST + STEP * k))) * place for k, place in enumerate(PLACES)
)
SERIES_BELOW = 15.0  # shapes up to which the power series is summed
TERMS = 90  # of that series, for x up to 16


def _slope(xp: Any, a: Any, y: Any) -> Any:
    a, y = xp.broadcast_arrays(xp.asarray(a, dtype=np.float64), xp.asarray(y, dtype=np.float64))
    valid = (a > 0) & (a < np.inf) & xp.isfinite(y)
    a_safe, y_safe = xp.where(valid, a, 1.0), xp.where(valid, y, 0.0)
    x = xp.exp(y_safe)
    by_series = (x <= a_safe + 1.0) & (a_safe < SERIES_BELOW)
    series = _by_series(xp, xp.where(by_series, a_safe, 1.0), xp.where(by_series, y_safe, 0.0))
    lead = y_safe - special("digamma")(xp, a_safe)
    total, moment = xp.zeros_like(a_safe), xp.zeros_like(a_safe)
    above = x > a_safe
    width = xp.maximum(xp.where(above, x - a_safe + 1.0, a_safe - x), xp.sqrt(a_safe))
    for place, weight in zip(PLACES, WEIGHTS, strict=True):
        s = place / width
        factor = xp.where(above, xp.log1p(s), s)
        exponent = xp.where(above, (a_safe - 1.0) * factor - x * s, -a_safe * s - x * xp.expm1(-s))
        term = weight * xp.exp(exponent)
        total = total + term
        moment = moment + term * factor
    tails = xp.where(above, lead * total + moment, moment - lead * total) / width
    return xp.where(valid, xp.where(by_series, series, tails), np.nan)


def _by_series(xp: Any, a: Any, y: Any) -> Any:
    """Return the derivative from S = sum of x**n / (a (a + 1) ... (a + n))."""
    x = xp.exp(y)
    term = 1.0 / a
    total = xp.array(term)
    harmonic, moment = xp.zeros_like(a), xp.zeros_like(a)
    for n in range(1, TERMS):
        term = term * x / (a + n)
        harmonic = harmonic + 1.0 / (a + n)
        total = total + term
        moment = moment + term * harmonic
    # The terms in 1 / a of digamma and dS/da cancel by formula.
    return moment - (y - special("digamma")(xp, a + 1.0)) * total


log_gamma_slope, LOG_GAMMA_SLOPE = elementwise(
    "log_gamma_slope",
    "a y",
    "Give the derivative of the logarithm y of a gamma variable in its shape a, at fixed rank.",
    "",
    module=__name__,
    evaluate=_slope,
    scalar="$log_gamma_slope(a, b)",
    partials=(
        unknown("the derivative of a gamma variable in its shape", "the shape", "is not known"),
        lambda f, a, y: digamma(a) - y - f * (a - exp(y)),
    ),
    samples=lambda: [],
    public=False,
)


def gamma_slope(a: Node, x: Node) -> Node:
    """Return the derivative of a gamma variable in its shape, at fixed rank; 0 at 0."""
    zero = equal(x, 0)
    return where(zero, 0, x * log_gamma_slope(a, log(where(zero, 1, x))))


RECORDS: tuple[Op | Composite, ...] = (LOG_GAMMA_SLOPE,)
