"""Functions about the normal distribution, and the error function's relatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ir.graph import Node
from ...ir.op import Composite, Op, Sample
from ..control.identities import stop_gradient
from ..elementwise.comparison import finite, greater, where
from ..elementwise.family import OTHER, REAL, ROW, UNIT, scipy_named, special
from ..elementwise.math import exp, expm1
from ..elementwise.signs import absolute
from .family import composite, elementwise
from .primitives import erf, erfc

_ROOT_HALF = math.sqrt(0.5)
_ROOT_PI = math.sqrt(math.pi)
_SHARES = 0.5 + 0.5 * UNIT
_TAILS = Sample(
    (np.array([-40.0, -9.0, 9.0, np.inf, -np.inf, np.nan]),), gradient=(), reason="the far tails"
)


def _asymptotic(x: Node, start: float, sign: float, terms: int) -> Node:
    """Return the sum of ``sign**k (2k + 1)!! / (2 x**2)**k`` by Horner's rule."""
    square = 0.5 / (x * x)
    total = square * 0.0 + 1.0
    for k in range(terms, 0, -1):
        total = total * square * (sign * (2 * k + 1)) + 1.0
    return total * start


def _erfcx_slope(f: Node, x: Node) -> Node:
    # 2 x erfcx(x) - 2 / sqrt(pi) cancels for large x, where the asymptotic series is exact.
    far = stop_gradient(greater(x, 12.0))
    large = where(far, x, 20.0)
    series = _asymptotic(large, -1.0 / _ROOT_PI, -1.0, 10) / (large * large)
    near = where(far, 1.0, x)
    return where(far, series, 2.0 * near * erfcx(near) - 2.0 / _ROOT_PI)


erfcx, ERFCX = elementwise(
    "erfcx",
    "x",
    "Evaluate exp(x**2) erfc(x), which neither under- nor overflows for positive x.",
    """
    >>> mg.special.erfcx([0.0, 1.0, 1000.0]).eval().round(4)
    array([1.000e+00, 4.276e-01, 6.000e-04], dtype=float32)
    """,
    module=__name__,
    evaluate=special("erfcx"),
    scalar="$erfcx(a)",
    partials=(_erfcx_slope,),
    samples=lambda: [
        Sample((REAL,)),
        Sample((np.array([14.0, 30.0]),)),
        Sample((np.array([-np.inf, np.inf, np.nan, 3e4]),), gradient=(), reason="the ends"),
    ],
    reference=scipy_named("erfcx"),
)

def _erfcinv_array(xp: Any, y: Any) -> Any:
    """Return SciPy's value, which is infinite at subnormal numbers; there by log(erfc(x))."""
    value = special("erfcinv")(xp, y)
    near = (y > 0) & (y < 1e-300)
    logarithm = xp.log(xp.where(near, y, 1.0))
    return xp.where(near, -_ROOT_HALF * special("ndtri_exp")(xp, logarithm - math.log(2.0)), value)


def _erfcinv_slope(f: Node, y: Node) -> Node:
    # exp(f**2) is erfcx(f) / erfc(f), which does not magnify the rounding of f. At a pole it is
    # that of a large f, since erfcx of infinity is 0.
    share = where(greater(y, 1.0), 2.0 - y, y)
    return erfcx(absolute(finite(f))) / share * (-0.5 * _ROOT_PI)


erfcinv, ERFCINV = elementwise(
    "erfcinv",
    "y",
    "Invert the complementary error function, for values between 0 and 2.",
    """
    >>> mg.special.erfcinv([0.5, 1e-20]).eval().round(4)
    array([0.4769, 6.6016], dtype=float32)
    """,
    module=__name__,
    notes="Infinite at 0 and 2, NaN beyond; exact also for small values.",
    evaluate=_erfcinv_array,
    scalar="$erfcinv(a)",
    partials=(_erfcinv_slope,),
    samples=lambda: [
        Sample((1.0 + UNIT,)),
        Sample((np.array([0.0, 2.0, -1.0, 1e-6, np.nan]),), gradient=(), reason="the ends"),
    ],
    reference=scipy_named("erfcinv"),
)


ndtr, NDTR = composite(
    "ndtr",
    "x",
    "Evaluate the standard normal distribution function.",
    """
    >>> mg.special.ndtr([-1.96, 0.0]).eval().round(4)
    array([0.025, 0.5  ], dtype=float32)
    """,
    lambda x: 0.5 * erfc(x * -_ROOT_HALF),
    module=__name__,
    samples=lambda: [Sample((REAL,)), _TAILS],
    reference=scipy_named("ndtr"),
)

log_ndtr, LOG_NDTR = elementwise(
    "log_ndtr",
    "x",
    "Take the logarithm of the standard normal distribution function.",
    """
    >>> mg.special.log_ndtr([-100.0, 0.0]).eval().round(2)
    array([-5.00552e+03, -6.90000e-01], dtype=float32)
    """,
    module=__name__,
    notes="Exact in both tails. The gradient, the inverse of Mills' ratio, is stable too.",
    evaluate=special("log_ndtr"),
    scalar="$log_ndtr(a)",
    partials=(lambda f, x: math.sqrt(2.0 / math.pi) / erfcx(x * -_ROOT_HALF),),
    samples=lambda: [Sample((REAL,)), _TAILS],
    reference=scipy_named("log_ndtr"),
)

ndtri, NDTRI = composite(
    "ndtri",
    "y",
    "Invert the standard normal distribution function.",
    """
    >>> mg.special.ndtri([0.025, 0.5]).eval().round(4)
    array([-1.96,  0.  ], dtype=float32)
    """,
    lambda y: erfcinv(2.0 * y) * -math.sqrt(2.0),
    module=__name__,
    notes="Infinite at 0 and 1, NaN beyond.",
    samples=lambda: [
        Sample((_SHARES,)),
        Sample((np.array([0.0, 1.0, -0.5, np.nan]),), gradient=(), reason="the ends"),
    ],
    reference=scipy_named("ndtri"),
)

def _ndtri_exp_array(xp: Any, y: Any) -> Any:
    """Return SciPy's value after a step of Newton's method: it has ten digits far below 0."""
    value = special("ndtri_exp")(xp, y)
    far = (y < -2.0) & xp.isfinite(value) & xp.isfinite(y)
    x = xp.asarray(xp.where(far, value, -2.0), dtype=np.float64)
    scaled = special("erfcx")(xp, x * -_ROOT_HALF)
    error = xp.log(0.5 * scaled) - 0.5 * x * x - xp.where(far, y, -2.0)
    return xp.where(far, x - error * scaled * math.sqrt(0.5 * math.pi), value)


def _ndtri_exp_slope(f: Node, y: Node) -> Node:
    # exp(y) over the normal density, which is 1 - exp(y) or exp(y) over half of
    # erfcx(|f| / 2**0.5).
    above = greater(f, 0)
    scaled = math.sqrt(0.5 * math.pi) * erfcx(absolute(finite(f)) * _ROOT_HALF)
    rest = where(above, -expm1(y), 1.0)
    return scaled * where(above, exp(y), 1.0) / rest


ndtri_exp, NDTRI_EXP = elementwise(
    "ndtri_exp",
    "y",
    "Invert log_ndtr: the standard normal quantile of exp(y).",
    """
    >>> mg.special.ndtri_exp([-5000.0, -1.0]).eval().round(3)
    array([-99.945,  -0.337], dtype=float32)
    """,
    module=__name__,
    evaluate=_ndtri_exp_array,
    scalar="$ndtri_exp(a)",
    partials=(_ndtri_exp_slope,),
    samples=lambda: [Sample((np.array([-700.0, -20.0, -3.0, -0.5, -0.1]),))],
    reference=scipy_named("ndtri_exp"),
)


def _dawsn_slope(f: Node, x: Node) -> Node:
    # 1 - 2 x D(x) cancels for large x, where D(x) is (1 + 1 / (2 x**2) + ...) / (2 x).
    far = stop_gradient(greater(absolute(x), 12.0))
    large = where(far, x, 20.0)
    series = _asymptotic(large, -0.5, 1.0, 10) / (large * large)
    near = where(far, 1.0, x)
    return where(far, series, 1.0 - 2.0 * near * dawsn(near))


dawsn, DAWSN = elementwise(
    "dawsn",
    "x",
    "Evaluate Dawson's integral, exp(-x**2) times the integral of exp(t**2) from 0 to x.",
    """
    >>> mg.special.dawsn([0.0, 1.0]).eval().round(4)
    array([0.    , 0.5381], dtype=float32)
    """,
    module=__name__,
    evaluate=special("dawsn"),
    partials=(_dawsn_slope,),
    samples=lambda: [Sample((REAL,)), Sample((np.array([-30.0, 15.0]),))],
    reference=scipy_named("dawsn"),
)

owens_t, OWENS_T = elementwise(
    "owens_t",
    "h a",
    "Evaluate Owen's T: the probability of X > h and 0 < Y < a X, both standard normal.",
    """
    >>> mg.special.owens_t(0.5, [0.5, 1.0]).eval().round(4)
    array([0.0645, 0.1067], dtype=float32)
    """,
    module=__name__,
    evaluate=special("owens_t"),
    partials=(
        lambda f, h, a: (
            exp(h * h * -0.5) * erf(h * a * _ROOT_HALF) * (-0.5 * _ROOT_HALF / _ROOT_PI)
        ),
        lambda f, h, a: exp(h * h * (a * a + 1.0) * -0.5) / ((a * a + 1.0) * (2.0 * math.pi)),
    ),
    samples=lambda: [Sample((REAL, OTHER)), Sample((REAL, ROW))],
    reference=scipy_named("owens_t"),
)

RECORDS: tuple[Op | Composite, ...] = (
    ERFCX,
    ERFCINV,
    NDTR,
    LOG_NDTR,
    NDTRI,
    NDTRI_EXP,
    DAWSN,
    OWENS_T,
)
