"""Incomplete gamma and beta functions, their inverses, and the distributions made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.graph import Node
from ...ir.op import Composite, Op, Sample
from ..elementwise.family import scipy_named, special
from ..elementwise.math import exp
from ..elementwise.rounding import floor
from .entropy import xlog1py, xlogy
from .family import Partial, SpecialFunction, composite, elementwise, unknown
from .gamma import betaln
from .implicit import gamma_slope
from .primitives import lgamma

_SHAPES = np.array([[0.3, 0.8, 1.7], [2.4, 5.0, 9.5]])
_POINTS = np.array([[0.2, 1.1, 0.9], [3.3, 4.0, 14.0]])
_SHARES = np.array([[0.1, 0.35, 0.5], [0.65, 0.8, 0.97]])
_OTHERS = np.array([[1.3, 0.6, 2.2], [0.9, 3.5, 4.5]])
_ENDS = Sample(
    (np.array([0.5, 2.0, 2.0, 0.0, np.nan, -1.0]), np.array([0.0, 0.0, np.inf, 1.0, 1.0, 1.0])),
    gradient=(),
    reason="the ends of the domain",
)
_INVERSE = (
    "The slope has a relative error of some roundings times its logarithm, where that is above 1."
)
_TWICE = "its own derivative in the shape is not known"


def _in_double(name: str) -> Callable[..., Any]:
    """Return SciPy's function in float64: its float32 variants lose digits of small results."""
    function = special(name)

    def evaluate(xp: Any, *operands: Any) -> Any:
        return function(xp, *(xp.asarray(x, dtype=np.float64) for x in operands))

    return evaluate


def gamma_density(a: Node, x: Node) -> Node:
    """Return the density of the gamma distribution, the slope of gammainc in x."""
    return exp(xlogy(a - 1.0, x) - x - lgamma(a))


def _gamma_family(
    name: str,
    second: str,
    summary: str,
    arguments: str,
    result: str,
    slopes: tuple[Partial, Partial],
    samples: list[Sample],
    notes: str = "",
) -> tuple[SpecialFunction, Op]:
    flow = (
        f"The gradient flows to both operands; it can be differentiated again in `{second}`, but\n"
        "not in `a` twice."
    )
    return elementwise(
        name,
        f"a {second}",
        summary,
        f"""
        >>> mg.special.{name}({arguments}).eval().round(4)
        array({result}, dtype=float32)
        """,
        module=__name__,
        notes=f"{notes}\n\n{flow}".strip(),
        evaluate=_in_double(name),
        partials=slopes,
        loses="exponent" if name.endswith("inv") else "",
        samples=lambda: samples,
        reference=scipy_named(name),
    )


def _gamma_samples(shapes: np.ndarray, points: np.ndarray) -> list[Sample]:
    return [
        Sample((shapes, points), gradient=(1,), reason=_TWICE),
        Sample((2.5, points), gradient=(1,), reason=_TWICE),
    ]


gammainc, GAMMAINC = _gamma_family(
    "gammainc",
    "x",
    "Evaluate the regularized lower incomplete gamma function.",
    "2.0, [0.0, 1.0, 5.0]",
    "[0.    , 0.2642, 0.9596]",
    (
        lambda f, a, x: -gamma_slope(a, x) * gamma_density(a, x),
        lambda f, a, x: gamma_density(a, x),
    ),
    [*_gamma_samples(_SHAPES, _POINTS), _ENDS],
    notes="The integral of t**(a - 1) exp(-t) from 0 to x, divided by gamma(a).",
)
gammaincc, GAMMAINCC = _gamma_family(
    "gammaincc",
    "x",
    "Evaluate the regularized upper incomplete gamma function, 1 - gammainc(a, x).",
    "2.0, [0.0, 1.0, 5.0]",
    "[1.    , 0.7358, 0.0404]",
    (
        lambda f, a, x: gamma_slope(a, x) * gamma_density(a, x),
        lambda f, a, x: -gamma_density(a, x),
    ),
    [*_gamma_samples(_SHAPES, _POINTS), _ENDS],
    notes="Exact also where it is small.",
)
gammaincinv, GAMMAINCINV = _gamma_family(
    "gammaincinv",
    "y",
    "Invert gammainc in x: the quantile of the gamma distribution.",
    "2.0, [0.0, 0.5]",
    "[0.    , 1.6783]",
    (lambda f, a, y: gamma_slope(a, f), lambda f, a, y: 1.0 / gamma_density(a, f)),
    _gamma_samples(_SHAPES + 0.5, _SHARES),
    notes=_INVERSE,
)
gammainccinv, GAMMAINCCINV = _gamma_family(
    "gammainccinv",
    "y",
    "Invert gammaincc in x.",
    "2.0, [0.5, 1.0]",
    "[1.6783, 0.    ]",
    (lambda f, a, y: gamma_slope(a, f), lambda f, a, y: -1.0 / gamma_density(a, f)),
    _gamma_samples(_SHAPES + 0.5, _SHARES),
    notes=_INVERSE,
)


def _beta_density(a: Node, b: Node, x: Node) -> Node:
    return exp(xlogy(a - 1.0, x) + xlog1py(b - 1.0, -x) - betaln(a, b))


_UNKNOWN_SHAPES = "The gradient flows to `{0}` only; those in `a` and `b` have no closed form."
_NO_FORM = "no closed form in a and b"


def _beta_family(
    name: str, third: str, summary: str, arguments: str, result: str, slope: Any
) -> tuple[SpecialFunction, Op]:
    return elementwise(
        name,
        f"a b {third}",
        summary,
        f"""
        >>> mg.special.{name}({arguments}).eval().round(4)
        array({result}, dtype=float32)
        """,
        module=__name__,
        notes=f"{_UNKNOWN_SHAPES.format(third)} {_INVERSE if name.endswith('inv') else ''}".strip(),
        loses="exponent" if name.endswith("inv") else "",
        evaluate=_in_double(name),
        partials=(unknown(name, "a"), unknown(name, "b"), slope),
        samples=lambda: [
            Sample((_SHAPES + 0.3, _OTHERS, _SHARES), gradient=(2,), reason=_NO_FORM),
            Sample((2.0, 3.5, _SHARES), gradient=(2,), reason=_NO_FORM),
            Sample((np.array(1.0), 3.5, np.array([0.0, 1.0, np.nan])), gradient=(), reason="ends"),
        ],
        reference=scipy_named(name),
    )


betainc, BETAINC = _beta_family(
    "betainc",
    "x",
    "Evaluate the regularized incomplete beta function, for x from 0 to 1.",
    "2.0, 3.0, [0.0, 0.5, 1.0]",
    "[0.    , 0.6875, 1.    ]",
    lambda f, a, b, x: _beta_density(a, b, x),
)
betaincc, BETAINCC = _beta_family(
    "betaincc",
    "x",
    "Evaluate 1 - betainc(a, b, x), exact also where it is small.",
    "2.0, 3.0, [0.0, 0.5, 1.0]",
    "[1.    , 0.3125, 0.    ]",
    lambda f, a, b, x: -_beta_density(a, b, x),
)
betaincinv, BETAINCINV = _beta_family(
    "betaincinv",
    "y",
    "Invert betainc in x: the quantile of the beta distribution.",
    "2.0, 3.0, [0.0, 0.6875]",
    "[0. , 0.5]",
    lambda f, a, b, y: 1.0 / _beta_density(a, b, f),
)
betainccinv, BETAINCCINV = _beta_family(
    "betainccinv",
    "y",
    "Invert betaincc in x.",
    "2.0, 3.0, [1.0, 0.3125]",
    "[0. , 0.5]",
    # The complement of the value, which keeps its digits where the value is near 1.
    lambda f, a, b, y: -1.0 / _beta_density(b, a, betaincinv(b, a, y)),
)


# Distribution functions.


def _distribution(
    name: str,
    parameters: str,
    summary: str,
    arguments: str,
    result: str,
    body: Any,
    *samples: Sample,
    notes: str = "",
) -> tuple[SpecialFunction, Composite]:
    return composite(
        name,
        parameters,
        summary,
        f"""
        >>> mg.special.{name}({arguments}).eval().round(4)
        array({result}, dtype=float32)
        """,
        body,
        module=__name__,
        notes=notes,
        samples=lambda: list(samples),
        reference=scipy_named(name),
    )


_COUNTS = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 7.0]])
_STEPS = "a step function of the count"
_HALVES = "Degrees of freedom and arguments are halved: half of the least float counts as 0."
_PRODUCT = "`a` and `x` are multiplied: beyond the normal floats that counts as 0 or infinite."
_FREEDOM = "For degrees of freedom from eps to 1 / eps, and where ``dfn x`` is a normal float."

chdtr, CHDTR = _distribution(
    "chdtr",
    "v x",
    "Evaluate the distribution function of the chi-square distribution of v degrees of freedom.",
    "2.0, [1.0, 4.0]",
    "[0.3935, 0.8647]",
    lambda v, x: gammainc(0.5 * v, 0.5 * x),
    Sample((_SHAPES, _POINTS), gradient=(1,), reason=_TWICE),
    notes=_HALVES,
)
chdtrc, CHDTRC = _distribution(
    "chdtrc",
    "v x",
    "Evaluate the upper tail of the chi-square distribution of v degrees of freedom.",
    "2.0, [1.0, 4.0]",
    "[0.6065, 0.1353]",
    lambda v, x: gammaincc(0.5 * v, 0.5 * x),
    Sample((_SHAPES, _POINTS), gradient=(1,), reason=_TWICE),
    notes=_HALVES,
)
gdtr, GDTR = _distribution(
    "gdtr",
    "a b x",
    "Evaluate the distribution function of the gamma distribution of rate a and shape b.",
    "2.0, 2.0, [0.5, 2.5]",
    "[0.2642, 0.9596]",
    lambda a, b, x: gammainc(b, a * x),
    Sample((_OTHERS, _SHAPES, _POINTS), gradient=(0, 2), reason=_TWICE),
    notes=_PRODUCT,
)
gdtrc, GDTRC = _distribution(
    "gdtrc",
    "a b x",
    "Evaluate the upper tail of the gamma distribution of rate a and shape b.",
    "2.0, 2.0, [0.5, 2.5]",
    "[0.7358, 0.0404]",
    lambda a, b, x: gammaincc(b, a * x),
    Sample((_OTHERS, _SHAPES, _POINTS), gradient=(0, 2), reason=_TWICE),
    notes=_PRODUCT,
)
pdtr, PDTR = _distribution(
    "pdtr",
    "k m",
    "Evaluate the probability of at most k events of a Poisson distribution of mean m.",
    "[0.0, 2.0], 1.5",
    "[0.2231, 0.8088]",
    lambda k, m: gammaincc(floor(k) + 1.0, m),
    Sample((_COUNTS, _POINTS), gradient=(1,), reason=_STEPS),
)
pdtrc, PDTRC = _distribution(
    "pdtrc",
    "k m",
    "Evaluate the probability of more than k events of a Poisson distribution of mean m.",
    "[0.0, 2.0], 1.5",
    "[0.7769, 0.1912]",
    lambda k, m: gammainc(floor(k) + 1.0, m),
    Sample((_COUNTS, _POINTS), gradient=(1,), reason=_STEPS),
)
fdtr, FDTR = _distribution(
    "fdtr",
    "dfn dfd x",
    "Evaluate the distribution function of the F distribution.",
    "3.0, 4.0, [1.0, 2.0]",
    "[0.5211, 0.7436]",
    lambda n, d, x: betainc(0.5 * n, 0.5 * d, n * x / (n * x + d)),
    Sample((_SHAPES + 1.0, _OTHERS, _POINTS), gradient=(2,), reason=_NO_FORM),
    notes=_FREEDOM,
)
fdtrc, FDTRC = _distribution(
    "fdtrc",
    "dfn dfd x",
    "Evaluate the upper tail of the F distribution.",
    "3.0, 4.0, [1.0, 2.0]",
    "[0.4789, 0.2564]",
    lambda n, d, x: betainc(0.5 * d, 0.5 * n, d / (n * x + d)),
    Sample((_SHAPES + 1.0, _OTHERS, _POINTS), gradient=(2,), reason=_NO_FORM),
    notes=_FREEDOM,
)


def _student_density(df: Node, t: Node) -> Node:
    half = df * 0.5
    return exp(xlog1py(-(half + 0.5), t * t / df) - betaln(half, 0.5)) / df**0.5


def _student(
    name: str,
    second: str,
    summary: str,
    call: str,
    result: str,
    slope: Any,
    operands: tuple[np.ndarray, np.ndarray],
) -> tuple[SpecialFunction, Op]:
    return elementwise(
        name,
        f"df {second}",
        summary,
        f"""
        >>> {call}
        array({result}, dtype=float32)
        """,
        module=__name__,
        notes=f"The gradient flows to `{second}` only; that in `df` has no closed form.",
        evaluate=_in_double(name),
        partials=(unknown(name, "df"), slope),
        samples=lambda: [Sample(operands, gradient=(1,), reason="no closed form in df")],
        reference=scipy_named(name),
    )


stdtr, STDTR = _student(
    "stdtr",
    "t",
    "Evaluate the distribution function of Student's t distribution.",
    "mg.special.stdtr(3.0, [0.0, 2.0]).eval().round(4)",
    "[0.5   , 0.9303]",
    lambda f, df, t: _student_density(df, t),
    (_SHAPES, _POINTS - 1.0),
)
stdtrit, STDTRIT = _student(
    "stdtrit",
    "p",
    "Invert stdtr in t: the quantile of Student's t distribution.",
    "mg.special.stdtrit(3.0, [0.5, 0.9]).eval().round(4) + 0.0",
    "[0.    , 1.6377]",
    lambda f, df, p: 1.0 / _student_density(df, f),
    (_SHAPES + 0.7, _SHARES),
)

RECORDS: tuple[Op | Composite, ...] = (
    GAMMAINC,
    GAMMAINCC,
    GAMMAINCINV,
    GAMMAINCCINV,
    BETAINC,
    BETAINCC,
    BETAINCINV,
    BETAINCCINV,
    CHDTR,
    CHDTRC,
    GDTR,
    GDTRC,
    PDTR,
    PDTRC,
    FDTR,
    FDTRC,
    STDTR,
    STDTRIT,
)
