"""Entropies, logits and the other elementary functions whose plain formula loses digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtypes import finfo
from ...ir.graph import Node
from ...ir.op import Composite, Op, Refusal, Sample
from ..elementwise.bits import logical_and, logical_not
from ..elementwise.comparison import equal, greater, greater_equal, less, less_equal, where
from ..elementwise.family import OTHER, POSITIVE, REAL, UNIT, scipy_named, special
from ..elementwise.math import LN10, log, log1p, power, sin, sqrt
from ..elementwise.rounding import isnan
from ..elementwise.signs import absolute
from ..networks.activation import sigmoid, softplus
from ..rules import onnx_forms
from .family import SpecialFunction, composite, elementwise

_SHARES = 0.5 + 0.5 * UNIT
_PARTNER = np.array([[0.9, 2.3, 0.4], [1.6, 0.7, 3.2]])
_ROW = np.array([0.6, 1.5, 2.8])
_EDGES = (
    np.array([0.0, 0.0, 0.0, 1.0, -1.0, np.nan, 0.0, np.inf]),
    np.array([0.0, 1.0, -1.0, 0.0, 2.0, 1.0, np.nan, 2.0]),
)
_EDGE_SAMPLE = Sample(_EDGES, gradient=(), reason="the ends of the domain")


def _logit_written(x: Node) -> Node:
    """Near 1/2, where log(x) and log1p(-x) cancel, with a logarithm near 1."""
    near = 2.0 * x - 1.0
    middle = log1p(near) - log1p(-near)
    return where(less(absolute(near), 0.5), middle, log(x) - log1p(-x))


def _product_written(logarithm: Callable[[Node], Node], x: Node, y: Node) -> Node:
    zero = logical_and(equal(x, 0.0), logical_not(isnan(y)))
    return where(zero, 0.0, x * logarithm(where(zero, 1.0, y)))


logit, LOGIT = elementwise(
    "logit",
    "x",
    "Take the logarithm of the odds, log(x / (1 - x)).",
    """
    >>> mg.special.logit([0.5, 0.9]).eval().round(4)
    array([0.    , 2.1972], dtype=float32)
    """,
    module=__name__,
    notes="-inf at 0, infinite at 1, NaN beyond. The inverse of `expit`.",
    evaluate=special("logit"),
    onnx=onnx_forms.rewritten(lambda node: _logit_written(node.inputs[0])),
    scalar="$logit(a)",
    partials=(lambda f, x: 1.0 / (x * (1.0 - x)),),
    samples=lambda: [
        Sample((_SHARES,)),
        Sample((np.array([0.0, 1.0, -0.5, 1.5, 1e-6, np.nan]),), gradient=(), reason="the ends"),
    ],
    reference=scipy_named("logit"),
)

expit, EXPIT = composite(
    "expit",
    "x",
    "Evaluate the logistic function, 1 / (1 + exp(-x)): `mg.sigmoid` by SciPy's name.",
    """
    >>> mg.special.expit([0.0, 2.0]).eval().round(4)
    array([0.5   , 0.8808], dtype=float32)
    """,
    sigmoid,
    module=__name__,
    samples=lambda: [Sample((REAL,))],
    reference=scipy_named("expit"),
)

log_expit, LOG_EXPIT = composite(
    "log_expit",
    "x",
    "Take the logarithm of the logistic function.",
    """
    >>> mg.special.log_expit([-1000.0, 0.0]).eval().round(4)
    array([-1.000e+03, -6.931e-01], dtype=float32)
    """,
    lambda x: -softplus(-x),
    module=__name__,
    samples=lambda: [Sample((REAL,))],
    reference=scipy_named("log_expit"),
)


def _quotient(x: Node, y: Node) -> Node:
    """Return x / y, and 0 for x = 0 at whatever y."""
    none = equal(x, 0)
    return where(none, 0, x / where(none, 1, y))


xlogy, XLOGY = elementwise(
    "xlogy",
    "x y",
    "Evaluate x log(y), which is 0 for x = 0 whatever y is (but NaN).",
    """
    >>> mg.special.xlogy([0.0, 2.0], [0.0, 3.0]).eval().round(4)
    array([0.    , 2.1972], dtype=float32)
    """,
    module=__name__,
    notes="The gradient is ``log(y)`` and ``x / y``, the latter 0 for x = 0.",
    evaluate=special("xlogy"),
    onnx=onnx_forms.rewritten(lambda node: _product_written(log, *node.inputs)),
    scalar="$xlogy(a, b)",
    partials=(lambda f, x, y: log(y), lambda f, x, y: _quotient(x, y)),
    samples=lambda: [Sample((REAL, _PARTNER)), Sample((REAL, _ROW)), _EDGE_SAMPLE],
    reference=scipy_named("xlogy"),
)

xlog1py, XLOG1PY = elementwise(
    "xlog1py",
    "x y",
    "Evaluate x log(1 + y), which is 0 for x = 0 whatever y is (but NaN).",
    """
    >>> mg.special.xlog1py([0.0, 2.0], [-1.0, 1.0]).eval().round(4)
    array([0.    , 1.3863], dtype=float32)
    """,
    module=__name__,
    notes="The gradient is ``log1p(y)`` and ``x / (1 + y)``, the latter 0 for x = 0.",
    evaluate=special("xlog1py"),
    onnx=onnx_forms.rewritten(lambda node: _product_written(log1p, *node.inputs)),
    scalar="$xlog1py(a, b)",
    partials=(lambda f, x, y: log1p(y), lambda f, x, y: _quotient(x, y + 1.0)),
    samples=lambda: [Sample((REAL, _PARTNER)), Sample((REAL, _ROW)), _EDGE_SAMPLE],
    reference=scipy_named("xlog1py"),
)


def _entr(x: Node) -> Node:
    return where(less(x, 0), -math.inf, -xlogy(x, where(less(x, 0), 1, x)))


entr, ENTR = composite(
    "entr",
    "x",
    "Evaluate -x log(x): 0 at 0, -inf below.",
    """
    >>> mg.special.entr([0.0, 0.5, 1.0]).eval().round(4) + 0.0
    array([0.    , 0.3466, 0.    ], dtype=float32)
    """,
    _entr,
    module=__name__,
    notes="The gradient at infinity is NaN, a difference of infinities.",
    samples=lambda: [
        Sample((POSITIVE,)),
        Sample((_EDGES[0],), gradient=(), reason="the end of the domain"),
    ],
    reference=scipy_named("entr"),
)


def _log_ratio(x: Node, y: Node) -> Node:
    """Return log(x / y) of positive numbers, also where the quotient over- or underflows."""
    ratio = x / y
    limits = finfo(x.dtype)
    # Not a subnormal quotient, which has lost digits.
    whole = greater(ratio, float(limits.tiny)) & less_equal(ratio, float(limits.max))
    far = log(where(whole, 1, x)) - log(where(whole, 1, y))
    return where(whole, log(where(whole, x, 1) / where(whole, y, 1)), far)


def _rel_entr(x: Node, y: Node) -> Node:
    both = greater(x, 0) & greater(y, 0)
    inside = where(both, x, 1)
    value = inside * _log_ratio(inside, where(both, y, 1))
    # NaN stays NaN: it fails every comparison, so that it is asked for by itself.
    outside = where(
        equal(x, 0) & greater_equal(y, 0), 0.0, where(_is_nan(x, y), math.nan, math.inf)
    )
    return where(both, value, outside)


def _is_nan(x: Node, y: Node) -> Node:
    return ~(equal(x, x) & equal(y, y))


rel_entr, REL_ENTR = composite(
    "rel_entr",
    "x y",
    "Evaluate x log(x / y): 0 for x = 0 and y >= 0, infinite elsewhere outside of x, y > 0.",
    """
    >>> mg.special.rel_entr([0.0, 0.5], [0.3, 0.25]).eval().round(4)
    array([0.    , 0.3466], dtype=float32)
    """,
    _rel_entr,
    module=__name__,
    samples=lambda: [Sample((POSITIVE, _PARTNER)), Sample((POSITIVE, _ROW)), _EDGE_SAMPLE],
    reference=scipy_named("rel_entr"),
)


def _kl_div(x: Node, y: Node) -> Node:
    both = greater(x, 0) & greater(y, 0)
    inside = where(both, x, 1)
    other = where(both, y, 1)
    value = inside * _log_ratio(inside, other) - inside + other
    end = equal(x, 0) & greater_equal(y, 0)  # where the slope by x is that of -x
    outside = where(end, y - x, where(_is_nan(x, y), math.nan, math.inf))
    return where(both, value, outside)


kl_div, KL_DIV = composite(
    "kl_div",
    "x y",
    "Evaluate x log(x / y) - x + y: y for x = 0, infinite elsewhere outside of x, y > 0.",
    """
    >>> mg.special.kl_div([0.0, 0.5], [0.3, 0.25]).eval().round(4)
    array([0.3   , 0.0966], dtype=float32)
    """,
    _kl_div,
    module=__name__,
    samples=lambda: [Sample((POSITIVE, _PARTNER)), Sample((POSITIVE, _ROW)), _EDGE_SAMPLE],
    reference=scipy_named("kl_div"),
)


# Losses.


def _huber(delta: Node, r: Node) -> Node:
    size = absolute(r)
    inside = less_equal(size, delta)
    beyond = greater(size, delta) & greater_equal(delta, 0)
    # The branch not selected is 0, so that no derivative is 0 times infinity.
    near, width = where(inside, r, 0), where(beyond, delta, 0)
    linear = width * (where(beyond, size, 0) - 0.5 * width)
    value = where(inside, 0.5 * (near * near), linear)
    value = where(isnan(size) | isnan(delta), math.nan, value)
    return where(less(delta, 0), math.inf, value)


huber, HUBER = composite(
    "huber",
    "delta r",
    "Evaluate Huber's loss: r**2 / 2 up to delta, linear beyond, infinite for negative delta.",
    """
    >>> mg.special.huber(1.0, [0.5, -3.0]).eval()
    array([0.125, 2.5  ], dtype=float32)
    """,
    _huber,
    module=__name__,
    record="special_huber",
    samples=lambda: [Sample((_PARTNER, REAL * 1.7)), Sample((1.0, REAL))],
    reference=scipy_named("huber"),
)


def _pseudo_huber(delta: Node, r: Node) -> Node:
    # delta r**2 / (delta + hypot(delta, r)), without the difference of near numbers. Both are
    # divided by the larger one of delta and |r|, so that nothing in between leaves the range.
    width = where(less_equal(delta, 0), 1, delta)
    infinite = equal(absolute(r), math.inf)
    inside = where(infinite, 0, r)
    size = absolute(inside)
    wide = greater_equal(width, size)
    ratio = where(wide, inside, width) / where(wide, width, size)
    total = where(wide, 1, ratio) + sqrt(ratio * ratio + 1.0)
    value = where(wide, inside, width) * (where(wide, inside, size) / total)
    value = where(infinite, absolute(r) * width, value)
    return where(less(delta, 0), math.inf, where(equal(delta, 0), 0.0, value))


pseudo_huber, PSEUDO_HUBER = composite(
    "pseudo_huber",
    "delta r",
    "Evaluate delta**2 (sqrt(1 + (r / delta)**2) - 1), a smooth form of Huber's loss.",
    """
    >>> mg.special.pseudo_huber(1.0, [0.5, -3.0]).eval().round(4)
    array([0.118 , 2.1623], dtype=float32)
    """,
    _pseudo_huber,
    module=__name__,
    record="special_pseudo_huber",
    samples=lambda: [
        Sample((_PARTNER, REAL)),
        Sample((1.0, OTHER)),
        Sample((1.0, np.array([np.inf, -np.inf, np.nan])), gradient=(), reason="the ends"),
    ],
    reference=scipy_named("pseudo_huber"),
)


# Elementary functions near where they vanish.


def _exprel_array(xp: Any, n: Any, x: Any) -> Any:
    """Return the integral of t**n exp(x t) over 0 < t < 1, in two series of positive terms."""
    n, x = xp.broadcast_arrays(xp.asarray(n, dtype=np.float64), xp.asarray(x, dtype=np.float64))
    size = xp.abs(x)
    far = size > n + 20.0
    near = xp.where(far | xp.isnan(x), 0.0, x)
    size = xp.abs(near)
    term = 1.0 / (n + 1.0)
    total = xp.array(term)
    terms = int(xp.max(n + 20.0, initial=0.0)) * 3 + 20
    for k in range(1, terms):
        above = near / k * ((n + k) / (n + k + 1.0))
        term = term * xp.where(near > 0, above, size / (n + 1.0 + k))
        total = total + term
    total = xp.where(near > 0, total, total * xp.exp(-size))
    distant = xp.where(far, x, 30.0)
    root = xp.exp(0.5 * distant)  # whose square may overflow where the value does not
    power = root / distant * root
    value = power - 1.0 / distant
    for k in range(1, int(xp.max(n, initial=0.0)) + 1):
        step = xp.where(power == np.inf, 0.0, k * value / distant)  # no inf - inf
        value = xp.where(k <= n, power - step, value)
    value = xp.where(distant == np.inf, np.inf, value)
    return xp.where(xp.isnan(x), x, xp.where(far, value, total))


_exprel: SpecialFunction

_exprel, EXPREL = elementwise(
    "exprel_moment",
    "n x",
    "Integrate t**n exp(x t) over 0 < t < 1.",
    "",
    module=__name__,
    evaluate=_exprel_array,
    scalar="$exprel(a, b)",
    partials=(
        Refusal("exprel: the order is no variable"),
        lambda f, n, x: _exprel(n + 1.0, x),
    ),
    samples=lambda: [],
    public=False,
)

exprel, EXPREL_FUNCTION = composite(
    "exprel",
    "x",
    "Evaluate (exp(x) - 1) / x, which is 1 at 0.",
    """
    >>> mg.special.exprel([0.0, 1.0]).eval().round(4)
    array([1.    , 1.7183], dtype=float32)
    """,
    lambda x: _exprel(0.0, x),
    module=__name__,
    notes="Exact near 0, and so are its derivatives of any order.",
    samples=lambda: [
        Sample((REAL,)),
        Sample((np.array([0.0, 1e-9, -1e-9, -30.0]),)),
        Sample((np.array([np.inf, -np.inf, np.nan, 9.0]),), gradient=(), reason="the ends"),
    ],
    reference=scipy_named("exprel"),
)


def _cosm1(x: Node) -> Node:
    half = sin(x * 0.5)
    return half * half * -2.0


cosm1, COSM1 = composite(
    "cosm1",
    "x",
    "Evaluate cos(x) - 1, exact also near 0.",
    """
    >>> mg.special.cosm1([0.0, 1.0]).eval().round(4) + 0.0
    array([ 0.    , -0.4597], dtype=float32)
    """,
    _cosm1,
    module=__name__,
    samples=lambda: [Sample((REAL,))],
    reference=scipy_named("cosm1"),
)

exp10, EXP10 = elementwise(
    "exp10",
    "x",
    "Raise 10 to each element.",
    """
    >>> mg.special.exp10([0.0, 2.0]).eval()
    array([  1., 100.], dtype=float32)
    """,
    module=__name__,
    evaluate=special("exp10"),
    onnx=onnx_forms.rewritten(lambda node: power(10.0, node.inputs[0])),
    scalar="$power((T)10, a)",
    partials=(lambda f, x: f * LN10,),
    samples=lambda: [Sample((REAL,))],
    reference=scipy_named("exp10"),
)

RECORDS: tuple[Op | Composite, ...] = (
    LOGIT,
    EXPIT,
    LOG_EXPIT,
    XLOGY,
    XLOG1PY,
    ENTR,
    REL_ENTR,
    KL_DIV,
    HUBER,
    PSEUDO_HUBER,
    EXPREL,
    EXPREL_FUNCTION,
    COSM1,
    EXP10,
)
