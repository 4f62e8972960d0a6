"""Von Mises' and Zipf's distribution, and that of the logarithmic series."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ir.graph import Node
from ...ir.op import Composite, Op
from ...ir.types import Shape
from ..elementwise.arithmetic import remainder
from .bits import Key
from .count import LARGEST
from .family import (
    ANY,
    NOT_NEGATIVE,
    REQUIRED,
    Requirement,
    accepted,
    distribution,
    draw_node,
    drawing_op,
)

_WHOLE = "integer valued"


def _von_mises_sample(xp: Any, draw: Any, kappa: Any) -> Any:
    valid = (kappa >= 0) & (kappa < np.inf)
    result = xp.where(kappa == np.inf, 0.0, np.nan)
    # Below this the density differs from a constant by less than rounding.
    flat = kappa < 1e-16
    half = 0.5 / xp.where(flat | ~valid, 1.0, kappa)
    excess = half + half * half / (1.0 + xp.sqrt(1.0 + half * half))  # r - 1

    def propose(at: Any, first: Any, second: Any) -> tuple[Any, Any]:
        sign = xp.where(first < 0.5, -1.0, 1.0)
        u = xp.where(first < 0.5, 2.0 * first, 2.0 * first - 1.0)  # what the sign leaves of it
        z = xp.cos(math.pi * u)
        less = excess[at] * (1.0 - z) / (1.0 + excess[at] + z)  # 1 - cos(angle)
        angle = 2.0 * xp.arcsin(xp.sqrt(xp.minimum(0.5 * less, 1.0)))
        c = kappa[at] * (excess[at] + less)
        fits = xp.log(c / second) + 1.0 - c >= 0
        return sign * xp.where(flat[at], math.pi * u, angle), fits | flat[at]

    accepted(xp, draw, result, xp.nonzero(valid)[0], propose)
    return result


RANDOM_ANGLE = drawing_op(
    "random_von_mises_variable",
    "Angles about 0 of von Mises' distribution.",
    _von_mises_sample,
    no_gradient="the derivative in the concentration has no closed form",
)


def _vonmises(shape: Shape, dtype: np.dtype, key: Key | None, mu: Node, kappa: Node) -> Node:
    angle = draw_node(RANDOM_ANGLE, shape, key, kappa)
    return remainder(mu + angle + math.pi, 2.0 * math.pi) - math.pi


vonmises, VONMISES = distribution(
    "vonmises",
    [("mu", REQUIRED, ANY), ("kappa", REQUIRED, NOT_NEGATIVE)],
    "Draw angles of von Mises' distribution, in [-pi, pi), about `mu`.",
    _vonmises,
    module=__name__,
    notes="""
    Accepted candidates of D. Best and N. Fisher ("Efficient simulation of the von Mises
    distribution", Applied Statistics 28, 1979), as many as it takes. `kappa` is the concentration:
    0 for even angles.
    """,
    example=("vonmises((10000,), 1.0, 5.0)", "round(float(x.mean()), 1)", "1.0"),
    gradient="`mu`; the derivative in `kappa` has no closed form",
)

ABOVE_ONE: Requirement = ("above 1", lambda value: value > 1)
BELOW_ONE: Requirement = ("in [0, 1)", lambda value: 0 <= value < 1)


def _zipf_sample(xp: Any, draw: Any, a: Any) -> Any:
    valid = (a > 1) & (a < np.inf)
    result = xp.where(a == np.inf, 1.0, np.nan)
    power = xp.where(valid, a, 2.0) - 1.0
    base = xp.exp2(power)

    def propose(at: Any, first: Any, second: Any) -> tuple[Any, Any]:
        k = xp.floor(xp.exp(-xp.log(first) / power[at]))
        some = xp.minimum(k, LARGEST)
        growth = xp.expm1(power[at] * xp.log1p(1.0 / some))  # (1 + 1 / k)**(a - 1) - 1
        limit = (1.0 + growth) / base[at]
        return some, second * some * growth / (base[at] - 1.0) <= limit

    accepted(xp, draw, result, xp.nonzero(valid)[0], propose)
    return result


RANDOM_ZIPF = drawing_op(
    "random_zipf_variable",
    "Variables of Zipf's distribution, as floats.",
    _zipf_sample,
    no_gradient=_WHOLE,
)

zipf, ZIPF = distribution(
    "zipf",
    [("a", REQUIRED, ABOVE_ONE)],
    "Draw whole numbers from 1 with chances as k**(-a).",
    lambda shape, dtype, key, a: draw_node(RANDOM_ZIPF, shape, key, a),
    module=__name__,
    notes="""
    Accepted candidates of L. Devroye ("Non-uniform random variate generation", 1986, X.6.1), as
    many as it takes. Numbers above 2**53 become that, and then what `dtype` makes of it: for `a`
    near 1 ask for int64.
    """,
    example=("zipf((10000,), 4.0)", "round(float((x == 1).mean()), 1)", "0.9"),
    no_gradient=_WHOLE,
    integers=True,
)


def _logseries_sample(xp: Any, draw: Any, p: Any) -> Any:
    first, second = draw(xp.arange(p.size), 0)
    q = -xp.expm1(xp.log1p(-p) * first)
    above = (second < q) & (q > 0)
    count = xp.floor(1.0 + xp.log(second) / xp.log(xp.where(above, q, 0.5)))
    result = xp.where(above, xp.minimum(count, LARGEST), 1.0)
    return xp.where((p >= 0) & (p < 1), result, np.nan)


RANDOM_SERIES = drawing_op(
    "random_series_variable",
    "Variables of the logarithmic series distribution, as floats.",
    _logseries_sample,
    no_gradient=_WHOLE,
)

logseries, LOGSERIES = distribution(
    "logseries",
    [("p", REQUIRED, BELOW_ONE)],
    "Draw whole numbers from 1 with chances as p**k / k.",
    lambda shape, dtype, key, p: draw_node(RANDOM_SERIES, shape, key, p),
    module=__name__,
    notes="""
    A geometric number whose chance is drawn too (A. Kemp, "Efficient generation of logarithmically
    distributed pseudo-random variables", Applied Statistics 30, 1981).
    """,
    example=("logseries((10000,), 0.5)", "round(float(x.mean()), 1)", "1.4"),
    no_gradient=_WHOLE,
    integers=True,
)

RECORDS: tuple[Op | Composite, ...] = (
    RANDOM_ANGLE,
    VONMISES,
    RANDOM_ZIPF,
    ZIPF,
    RANDOM_SERIES,
    LOGSERIES,
)
