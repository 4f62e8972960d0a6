"""Complete elliptic integrals of parameter m.

With ``D(m) = (K(m) - E(m)) / m`` the derivatives are ``E' = -D / 2`` and
``K' = (K - D) / (2 (1 - m))``, in which nothing cancels at m = 0; D is a third of Carlson's R_D
(NIST Handbook of Mathematical Functions, 19.4.1, 19.25.1). K and D are functions of ``p = 1 - m``,
which keeps its digits near m = 1, where they are infinite.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...dtypes import finfo
from ...ir.graph import Node
from ...ir.op import Composite, Op, Sample
from ..elementwise.comparison import less, where
from ..elementwise.family import UNIT, scipy_named, special
from ..elementwise.signs import absolute
from .family import composite, elementwise

_SHARES = 0.5 + 0.5 * UNIT


def _ellipd_array(xp: Any, p: Any) -> Any:
    zero = xp.zeros_like(p)
    # SciPy's steps underflow near 0, where it is log(4 / sqrt(p)) - 1.
    near = (p > 0) & (p < 1e-30)
    inside = xp.where(near, p, 1.0)
    carlson = special("elliprd")(xp, zero, xp.where(near, 1.0, p), zero + 1) / 3
    return xp.where(near, 2.0 * math.log(2.0) - 1.0 - 0.5 * xp.log(inside), carlson)


def _ellipd_slope(f: Node, p: Node) -> Node:
    m = 1.0 - p
    small = less(m * m, 1e-4)  # there the quotient of differences is replaced by its series
    inside = where(small, 0.5, p)
    quotient = (ellipkm1(inside) - (1.0 + inside) * _ellipd(inside)) / (
        2.0 * (1.0 - inside) * inside
    )
    # D is pi / 4 times the sum of (1/2)_n (3/2)_n / ((2)_n n!) m**n.
    power: Any = where(small, m, 0)
    total: Any = 0.0
    for n in range(8, 0, -1):
        total = total * power + n * _ellipd_coefficient(n)
    return -where(small, total, quotient)


def _ellipd_coefficient(n: int) -> float:
    value = 0.25 * math.pi
    for k in range(n):
        value *= (0.5 + k) * (1.5 + k) / ((2.0 + k) * (1.0 + k))
    return value


_ellipd, ELLIPD = elementwise(
    "elliptic_difference",
    "p",
    "Evaluate (K(m) - E(m)) / m, of the complete elliptic integrals of parameter m = 1 - p.",
    "",
    module=__name__,
    evaluate=_ellipd_array,
    partials=(_ellipd_slope,),
    samples=lambda: [],
    public=False,
)

def _ellipkm1_slope(f: Node, p: Node) -> Node:
    # Near 0 the difference of the two logarithms is -1.
    near = less(absolute(p), 1e-3 * float(finfo(p.dtype).eps))
    return where(near, -1.0, _ellipd(where(near, 1, p)) - f) * 0.5 / p


ellipkm1, ELLIPKM1 = elementwise(
    "ellipkm1",
    "p",
    "Evaluate the complete elliptic integral of the first kind of parameter 1 - p.",
    """
    >>> mg.special.ellipkm1([1.0, 1e-10]).eval().round(4)
    array([ 1.5708, 12.8992], dtype=float32)
    """,
    module=__name__,
    notes="Exact also near p = 0, where it is infinite; NaN below.",
    evaluate=special("ellipkm1"),
    scalar="$ellipkm1(a)",
    partials=(_ellipkm1_slope,),
    samples=lambda: [
        Sample((_SHARES,)),
        Sample((np.array([0.0, 1e-6, -1.0, np.nan]),), gradient=(), reason="the pole"),
    ],
    reference=scipy_named("ellipkm1"),
)

ellipk, ELLIPK = composite(
    "ellipk",
    "m",
    "Evaluate the complete elliptic integral of the first kind of parameter m.",
    """
    >>> mg.special.ellipk([0.0, 0.5]).eval().round(4)
    array([1.5708, 1.8541], dtype=float32)
    """,
    lambda m: ellipkm1(1.0 - m),
    module=__name__,
    notes="Infinite at 1, NaN above.",
    samples=lambda: [Sample((_SHARES,)), Sample((np.array([0.0, -3.0, 0.003]),))],
    reference=scipy_named("ellipk"),
)

ellipe, ELLIPE = elementwise(
    "ellipe",
    "m",
    "Evaluate the complete elliptic integral of the second kind of parameter m.",
    """
    >>> mg.special.ellipe([0.0, 0.5, 1.0]).eval().round(4)
    array([1.5708, 1.3506, 1.    ], dtype=float32)
    """,
    module=__name__,
    notes="NaN above 1.",
    evaluate=special("ellipe"),
    partials=(lambda f, m: _ellipd(1.0 - m) * -0.5,),
    samples=lambda: [Sample((_SHARES,)), Sample((np.array([0.0, -3.0, 0.003]),))],
    reference=scipy_named("ellipe"),
)

RECORDS: tuple[Op | Composite, ...] = (ELLIPD, ELLIPKM1, ELLIPK, ELLIPE)
