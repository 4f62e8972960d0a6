"""Complete elliptic integrals of parameter m.

With ``D(m) = (K(m) - E(m)) / m`` the derivatives are ``E' = -D / 2`` and
``K' = (K - D) / (2 (1 - m))``, in which nothing cancels at m = 0; D is a third of Carlson's R_D
(NIST Handbook of Mathematical Functions, 19.4.1, 19.25.1).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...graph import Node
from ...op import Composite, Op, Sample
from ..elementwise.comparison import less, where
from ..elementwise.family import UNIT, scipy_named, special
from .family import composite, elementwise

_SHARES = 0.5 + 0.5 * UNIT


def _ellipd_array(xp: Any, m: Any) -> Any:
    zero = xp.zeros_like(m)
    return special("elliprd")(xp, zero, 1 - m, zero + 1) / 3


def _ellipd_slope(f: Node, m: Node) -> Node:
    small = less(m * m, 1e-4)  # there the quotient of differences is replaced by its series
    inside = where(small, 0.5, m)
    quotient = (ellipk(inside) - (2.0 - inside) * _ellipd(inside)) / (2.0 * inside * (1.0 - inside))
    # D is pi / 4 times the sum of (1/2)_n (3/2)_n / ((2)_n n!) m**n.
    power: Any = where(small, m, 0)
    total: Any = 0.0
    for n in range(8, 0, -1):
        total = total * power + n * _ellipd_coefficient(n)
    return where(small, total, quotient)


def _ellipd_coefficient(n: int) -> float:
    value = 0.25 * math.pi
    for k in range(n):
        value *= (0.5 + k) * (1.5 + k) / ((2.0 + k) * (1.0 + k))
    return value


_ellipd, ELLIPD = elementwise(
    "elliptic_difference",
    "m",
    "Evaluate (K(m) - E(m)) / m, of the complete elliptic integrals.",
    "",
    module=__name__,
    evaluate=_ellipd_array,
    partials=(_ellipd_slope,),
    samples=lambda: [],
    public=False,
)

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
    partials=(lambda f, p: (_ellipd(1.0 - p) - f) / (2.0 * p),),
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
    partials=(lambda f, m: _ellipd(m) * -0.5,),
    samples=lambda: [Sample((_SHARES,)), Sample((np.array([0.0, -3.0, 0.003]),))],
    reference=scipy_named("ellipe"),
)

RECORDS: tuple[Op | Composite, ...] = (ELLIPD, ELLIPKM1, ELLIPK, ELLIPE)
