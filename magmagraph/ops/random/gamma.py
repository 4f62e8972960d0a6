"""The gamma distribution, and those that are made of gamma variables.

Candidates by G. Marsaglia and W. Tsang ("A simple method for generating gamma variables", ACM
TOMS 26, 2000), until one is accepted; for shapes a below 1 a variable of shape a + 1 is multiplied
by u**(1 / a). Logarithms are drawn where tiny shapes would underflow. The derivative in the shape
is that of the distribution at fixed rank, whatever candidate was accepted (`special.implicit`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.graph import Node
from ...ir.op import Composite, Op, Parts
from ...ir.types import Shape
from ..elementwise.comparison import equal, where
from ..elementwise.family import special
from ..elementwise.math import exp, log, sqrt
from ..networks.activation import sigmoid
from ..special.implicit import log_gamma_slope
from .basic import normal
from .bits import Key, keys_for
from .family import (
    POSITIVE,
    REQUIRED,
    accepted,
    distribution,
    draw_node,
    drawing_op,
)


def log_gamma_variables(xp: Any, draw: Any, a: Any) -> Any:
    """Return logarithms of gamma variables of shapes given by a flat float64 array."""
    valid = (a > 0) & (a < np.inf)
    result = xp.where(a == 0, -np.inf, xp.where(a == np.inf, np.inf, np.nan))
    shape = xp.where(a < 1, a + 1.0, a)
    offset = shape - 1.0 / 3.0
    deviation = 1.0 / xp.sqrt(9.0 * offset)

    def propose(elements: Any, first: Any, second: Any) -> tuple[Any, Any]:
        d = offset[elements]
        z = special("ndtri")(xp, first)
        root = 1.0 + deviation[elements] * z
        cube = xp.where(root > 0, root, 1.0) ** 3
        fits = xp.log(second) < 0.5 * z * z + d - d * cube + d * xp.log(cube)
        return xp.log(d * cube), (root > 0) & fits

    accepted(xp, draw, result, xp.nonzero(valid)[0], propose, part=1)
    small = xp.nonzero(valid & (a < 1))[0]
    if small.size:
        boost, _ = draw(small, 0)
        result[small] += xp.log(boost) / a[small]
    return result


def _sample(xp: Any, draw: Any, a: Any, *, log: bool) -> Any:
    logarithms = log_gamma_variables(xp, draw, a)
    return logarithms if log else xp.exp(logarithms)


def _gradient(node: Node, cotangent: Node) -> Parts:
    a = node.inputs[1]
    if node.attrs["log"]:
        return None, cotangent * log_gamma_slope(a, node)
    # A variable that has underflowed to 0 moves with its shape by nothing that could be held.
    zero = equal(node, 0)
    logarithm = log(where(zero, 1, node))
    return None, cotangent * where(zero, 0, node * log_gamma_slope(a, logarithm))


RANDOM_GAMMA = drawing_op(
    "random_gamma_variable",
    "Gamma variables of given shapes, or their logarithms.",
    _sample,
    attributes={"log": "bool"},
    gradient=_gradient,
)


def unit_gamma(shape: Shape, key: Key | None, a: Node, *, log: bool = False) -> Node:
    """Return gamma variables of scale 1, or their logarithms."""
    return draw_node(RANDOM_GAMMA, shape, key, a, log=log)


_IMPLICIT = "(M. Figurnov et al., 2018)"

gamma, GAMMA = distribution(
    "gamma",
    [("a", REQUIRED, POSITIVE), ("scale", 1.0, POSITIVE)],
    "Draw numbers of the gamma distribution of shape parameter `a`.",
    lambda shape, dtype, key, a, scale: scale * unit_gamma(shape, key, a),
    module=__name__,
    notes="""
    Accepted candidates of Marsaglia and Tsang (2000), as many as it takes: exact to rounding.
    NaN where `a` is negative, 0 where it is 0.
    """,
    example=("gamma((10000,), 3.0, 2.0)", "round(float(x.mean()), 1)", "6.0"),
    gradient=f"`a` and `scale`; that in `a` is implicit {_IMPLICIT}",
)

loggamma, LOGGAMMA = distribution(
    "loggamma",
    [("a", REQUIRED, POSITIVE)],
    "Draw logarithms of gamma variables, which do not underflow for small `a`.",
    lambda shape, dtype, key, a: unit_gamma(shape, key, a, log=True),
    module=__name__,
    notes="The logarithms of what `gamma` draws from the same bits.",
    example=("loggamma((10000,), 0.001)", "bool((x < -100).any())", "True"),
    gradient=f"`a`, implicitly {_IMPLICIT}",
)

chisquare, CHISQUARE = distribution(
    "chisquare",
    [("df", REQUIRED, POSITIVE)],
    "Draw sums of `df` squared normal numbers.",
    lambda shape, dtype, key, df: 2.0 * unit_gamma(shape, key, 0.5 * df),
    module=__name__,
    notes="Twice a gamma variable of shape ``df / 2``; `df` need not be whole.",
    example=("chisquare((10000,), 3.0)", "round(float(x.mean()), 1)", "3.0"),
    gradient=f"`df`, implicitly {_IMPLICIT}",
)


def _beta(shape: Shape, dtype: np.dtype, key: Key | None, a: Node, b: Node) -> Node:
    first, second = keys_for(key, 2)
    x, y = unit_gamma(shape, first, a, log=True), unit_gamma(shape, second, b, log=True)
    return sigmoid(x - y)


beta, BETA = distribution(
    "beta",
    [("a", REQUIRED, POSITIVE), ("b", REQUIRED, POSITIVE)],
    "Draw numbers of the beta distribution, between 0 and 1.",
    _beta,
    module=__name__,
    notes="``x / (x + y)`` of two gamma variables, from their logarithms.",
    example=("beta((10000,), 2.0, 6.0)", "round(float(x.mean()), 2)", "0.25"),
    gradient=f"`a` and `b`, implicitly {_IMPLICIT}",
)


def _student(shape: Shape, dtype: np.dtype, key: Key | None, df: Node) -> Node:
    first, second = keys_for(key, 2)
    half = 0.5 * df
    z = normal(shape, dtype=dtype, key=first)
    return z * sqrt(half) * exp(unit_gamma(shape, second, half, log=True) * -0.5)


student_t, STUDENT_T = distribution(
    "student_t",
    [("df", REQUIRED, POSITIVE)],
    "Draw numbers of Student's t distribution of `df` degrees of freedom.",
    _student,
    module=__name__,
    notes="``z / sqrt(c / df)`` of a normal number and one of chi-square.",
    example=("student_t((20000,), 5.0)", "round(float((x**2).mean()), 1)", "1.7"),
    gradient=f"`df`, implicitly {_IMPLICIT}",
)


def _f(shape: Shape, dtype: np.dtype, key: Key | None, dfn: Node, dfd: Node) -> Node:
    first, second = keys_for(key, 2)
    above = unit_gamma(shape, first, 0.5 * dfn, log=True)
    below = unit_gamma(shape, second, 0.5 * dfd, log=True)
    return exp(above - below) * (dfd / dfn)


f, F = distribution(
    "f",
    [("dfn", REQUIRED, POSITIVE), ("dfd", REQUIRED, POSITIVE)],
    "Draw numbers of the F distribution: ratios of mean squares.",
    _f,
    module=__name__,
    notes="``(c1 / dfn) / (c2 / dfd)`` of two numbers of chi-square.",
    example=("f((20000,), 4.0, 10.0)", "round(float(x.mean()), 1)", "1.2"),
    gradient=f"`dfn` and `dfd`, implicitly {_IMPLICIT}",
)

RECORDS: tuple[Op | Composite, ...] = (
    RANDOM_GAMMA,
    GAMMA,
    LOGGAMMA,
    CHISQUARE,
    BETA,
    STUDENT_T,
    F,
)
