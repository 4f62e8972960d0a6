"""Bessel functions of real argument."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtypes import finfo
from ...ir.graph import Node
from ...ir.op import Composite, Op, Sample
from ..elementwise.comparison import equal, finite, greater_equal, less, where
from ..elementwise.family import POSITIVE, REAL, scipy_named, special
from ..elementwise.signs import absolute, sign
from .family import Partial, SpecialFunction, elementwise, unknown

_PHASE = "Far from 0 the phase is that of an argument within some roundings of x."
_ORDERS = np.array([0.0, 1.0, 2.5])
_ENDS = Sample(
    (np.array([0.0, 800.0, np.inf, np.nan]),), gradient=(), reason="the ends of the range"
)
_BELOW = Sample((np.array([0.0, -1.0, np.nan]),), gradient=(), reason="the pole, and NaN below it")


def _over(f: Node, x: Node, at_zero: float) -> Node:
    """Return f / x with its limit near 0, where f has lost digits; 0 where f has overflowed."""
    near = less(absolute(x), float(finfo(x.dtype).eps))
    return where(near, at_zero, _finite(f) / where(near, 1, x))


def _infinite(f: Node) -> Node:
    return equal(absolute(f), math.inf)


def _finite(f: Node) -> Node:
    """Return the smaller one of two terms, 0 where it has overflowed, as the larger one has."""
    return where(_infinite(f), 0, f)


def _difference(v: Node, lower: Node, upper: Node) -> Node:
    """Return lower - upper, of orders v - 1 and v + 1; the larger one where both are infinite."""
    both = _infinite(lower) & _infinite(upper)
    return where(both, where(greater_equal(v, 0), -upper, lower), lower - upper)


_NEAR = 1e-300  # below it SciPy's steps over- or underflow in float64


def _extended(
    name: str, limit: float | None, near: Callable[[Any, Any], Any] | None
) -> Callable[..., Any]:
    """Return SciPy's function with its limits at the infinities, where SciPy has NaN.

    `near` gives the values below `_NEAR`.
    """
    function = special(name)

    def evaluate(xp: Any, x: Any) -> Any:
        value = function(xp, x)
        if limit is not None:
            value = xp.where(xp.isinf(x), function(xp, xp.sign(x)) * limit, value)
        if near is not None:
            value = xp.where((x != 0) & (xp.abs(x) < _NEAR), near(xp, x), value)
        return value

    return evaluate


# Values near 0: with k0(x) goes exp(x) k0(x), and so on.
def _k0_near(xp: Any, x: Any) -> Any:
    return math.log(2.0) - np.euler_gamma - xp.log(x)


def _k1_near(xp: Any, x: Any) -> Any:
    return xp.where(x > 0, 1.0 / x, math.nan)


def _bessel(
    name: str,
    what: str,
    argument: str,
    result: str,
    partial: Partial,
    *samples: Sample,
    notes: str = "",
    limit: float | None = None,
    near: Callable[[Any, Any], Any] | None = None,
) -> tuple[SpecialFunction, Op]:
    return elementwise(
        name,
        "x",
        f"Evaluate {what}.",
        f"""
        >>> mg.special.{name}({argument}).eval().round(4)
        array({result}, dtype=float32)
        """,
        module=__name__,
        notes=notes,
        evaluate=_extended(name, limit, near),
        scalar=f"${name}(a)",
        partials=(partial,),
        samples=lambda: list(samples),
        reference=scipy_named(name) if limit is None else None,
    )


# Derivatives mention functions that are made after them.
i1: SpecialFunction
i1e: SpecialFunction
k1: SpecialFunction
k1e: SpecialFunction
j1: SpecialFunction
y1: SpecialFunction

i0, I0 = _bessel(
    "i0",
    "the modified Bessel function of the first kind, of order 0",
    "[0.0, 1.0]",
    "[1.    , 1.2661]",
    lambda f, x: i1(x),
    Sample((REAL,)),
    Sample((np.array([9.5, -11.0]),)),
    _ENDS,
    limit=np.inf,
)
i0e, I0E = _bessel(
    "i0e",
    "`exp(-|x|) i0(x)`, which does not overflow",
    "[0.0, 1.0, 1e4]",
    "[1.    , 0.4658, 0.004 ]",
    lambda f, x: i1e(x) - sign(x) * f,
    Sample((REAL,)),
    Sample((np.array([9.5, -11.0]),)),
    _ENDS,
    notes="The gradient at 0, a kink, is 0.",
)
i1, I1 = _bessel(
    "i1",
    "the modified Bessel function of the first kind, of order 1",
    "[0.0, 1.0]",
    "[0.    , 0.5652]",
    lambda f, x: i0(x) - _over(f, x, 0.5),
    Sample((REAL,)),
    Sample((np.array([9.5, -11.0]),)),
    _ENDS,
    limit=np.inf,
)
i1e, I1E = _bessel(
    "i1e",
    "`exp(-|x|) i1(x)`, which does not overflow",
    "[0.0, 1.0, 1e4]",
    "[0.    , 0.2079, 0.004 ]",
    lambda f, x: i0e(x) - sign(x) * f - _over(f, x, 0.5),
    Sample((REAL,)),
    Sample((np.array([9.5, -11.0]),)),
    _ENDS,
)
k0, K0 = _bessel(
    "k0",
    "the modified Bessel function of the second kind, of order 0",
    "[0.5, 1.0]",
    "[0.9244, 0.421 ]",
    lambda f, x: -k1(x),
    Sample((POSITIVE,)),
    _ENDS,
    _BELOW,
    notes="Infinite at 0, NaN below.",
    near=_k0_near,
)
k0e, K0E = _bessel(
    "k0e",
    "exp(x) k0(x), which does not underflow",
    "[1.0, 1e4]",
    "[1.1445, 0.0125]",
    lambda f, x: finite(f) - k1e(x),  # at 0 both are infinite
    Sample((POSITIVE,)),
    _ENDS,
    _BELOW,
    notes="Infinite at 0, NaN below.",
    near=_k0_near,
)
k1, K1 = _bessel(
    "k1",
    "the modified Bessel function of the second kind, of order 1",
    "[0.5, 1.0]",
    "[1.6564, 0.6019]",
    lambda f, x: -k0(x) - f / x,
    Sample((POSITIVE,)),
    _ENDS,
    _BELOW,
    notes="Infinite at 0, NaN below.",
    near=_k1_near,
)
k1e, K1E = _bessel(
    "k1e",
    "exp(x) k1(x), which does not underflow",
    "[1.0, 1e4]",
    "[1.6362, 0.0125]",
    lambda f, x: f * (1.0 - 1.0 / x) - k0e(x),
    Sample((POSITIVE,)),
    _ENDS,
    _BELOW,
    notes="Infinite at 0, NaN below.",
    near=_k1_near,
)
j0, J0 = _bessel(
    "j0",
    "the Bessel function of the first kind, of order 0",
    "[0.0, 1.0]",
    "[1.    , 0.7652]",
    lambda f, x: -j1(x),
    Sample((REAL,)),
    Sample((np.array([9.5, -11.0]),)),
    notes=_PHASE,
    limit=0.0,
)
j1, J1 = _bessel(
    "j1",
    "the Bessel function of the first kind, of order 1",
    "[0.0, 1.0]",
    "[0.    , 0.4401]",
    lambda f, x: j0(x) - _over(f, x, 0.5),
    Sample((REAL,)),
    Sample((np.array([9.5, -11.0]),)),
    notes=_PHASE,
    limit=0.0,
    near=lambda xp, x: 0.5 * x,
)
y0, Y0 = _bessel(
    "y0",
    "the Bessel function of the second kind, of order 0",
    "[0.5, 1.0]",
    "[-0.4445,  0.0883]",
    lambda f, x: -y1(x),
    Sample((POSITIVE,)),
    _BELOW,
    notes=f"-inf at 0, NaN below. {_PHASE}",
    limit=0.0,
)
y1, Y1 = _bessel(
    "y1",
    "the Bessel function of the second kind, of order 1",
    "[0.5, 1.0]",
    "[-1.4715, -0.7812]",
    lambda f, x: finite(y0(x)) - f / x,  # at 0 both are infinite
    Sample((POSITIVE,)),
    _BELOW,
    notes=f"-inf at 0, NaN below. {_PHASE}",
    limit=0.0,
    near=lambda xp, x: xp.where(x > 0, -2.0 / math.pi / x, math.nan),
)


# Of any real order.


def _of_order(
    name: str, what: str, result: str, slope: Any, notes: str = "", evaluate: Any = None
) -> tuple[SpecialFunction, Op]:
    reason = "derivative in the order unknown"
    return elementwise(
        name,
        "v x",
        f"Evaluate {what} of real order v.",
        f"""
        >>> mg.special.{name}([0.0, 1.0], 2.0).eval().round(4)
        array({result}, dtype=float32)
        """,
        module=__name__,
        notes=f"{notes}\n\nThe gradient flows to `x` only.".strip(),
        evaluate=evaluate or special(name),
        partials=(unknown(name, "v", "is not known in closed form"), slope),
        samples=lambda: [
            Sample((_ORDERS, POSITIVE), gradient=(1,), reason=reason),
            Sample((2.0, POSITIVE), gradient=(1,), reason=reason),
        ],
        reference=scipy_named(name),
    )


jv: SpecialFunction
yv: SpecialFunction
iv: SpecialFunction
kv: SpecialFunction
ive: SpecialFunction
kve: SpecialFunction

jv, JV = _of_order(
    "jv",
    "the Bessel function of the first kind",
    "[0.2239, 0.5767]",
    lambda f, v, x: _difference(v, jv(v - 1.0, x), jv(v + 1.0, x)) * 0.5,
)
yv, YV = _of_order(
    "yv",
    "the Bessel function of the second kind",
    "[ 0.5104, -0.107 ]",
    lambda f, v, x: _difference(v, yv(v - 1.0, x), yv(v + 1.0, x)) * 0.5,
)
iv, IV = _of_order(
    "iv",
    "the modified Bessel function of the first kind",
    "[2.2796, 1.5906]",
    lambda f, v, x: (iv(v - 1.0, x) + iv(v + 1.0, x)) * 0.5,
)
kv, KV = _of_order(
    "kv",
    "the modified Bessel function of the second kind",
    "[0.1139, 0.1399]",
    lambda f, v, x: (kv(v - 1.0, x) + kv(v + 1.0, x)) * -0.5,
    # SciPy has NaN for large orders at infinity.
    evaluate=lambda xp, v, x: xp.where(
        (x == math.inf) & (xp.abs(v) < math.inf), x.dtype.type(0), special("kv")(xp, v, x)
    ),
)
ive, IVE = _of_order(
    "ive",
    "`exp(-|x|)` times the modified Bessel function of the first kind",
    "[0.3085, 0.2153]",
    lambda f, v, x: (ive(v - 1.0, x) + ive(v + 1.0, x)) * 0.5 - sign(x) * f,
)
kve, KVE = _of_order(
    "kve",
    "exp(x) times the modified Bessel function of the second kind",
    "[0.8416, 1.0335]",
    lambda f, v, x: (kve(v - 1.0, x) + kve(v + 1.0, x)) * -0.5 + _finite(f),
)

RECORDS: tuple[Op | Composite, ...] = (
    I0,
    I0E,
    I1,
    I1E,
    K0,
    K0E,
    K1,
    K1E,
    J0,
    J1,
    Y0,
    Y1,
    JV,
    YV,
    IV,
    KV,
    IVE,
    KVE,
)
