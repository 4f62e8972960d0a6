"""Distributions of whole numbers: Poisson's, binomial and their relatives.

Small means are inverted: probabilities are added up until they exceed a uniform number of 53
digits. Larger ones take candidates by W. Hoermann's transformed rejection ("The transformed
rejection method for generating Poisson random variables", Insurance: Mathematics and Economics 12,
1993; "The generation of binomial random variates", JSCS 46, 1993) until one is accepted, compared
with the exact probability in float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import ShapeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import Composite, Kind, Op
from ...ir.types import Shape
from ..convert import cast
from ..elementwise.arithmetic import divide
from ..elementwise.comparison import clip, greater, minimum, where
from ..elementwise.family import special
from ..elementwise.math import log1p
from ..elementwise.rounding import floor
from ..shape.joining import broadcast_to, stack
from ..special.gamma import stirling_rest
from .bits import FLOAT64, INT32, Key, common_shape, keys_for, parameter
from .family import (
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_SHARE,
    REQUIRED,
    SHARE,
    accepted,
    distribution,
    draw_node,
    drawing_op,
    integer_dtype,
)
from .gamma import unit_gamma
from .quantile import unit_exponential

_WHOLE = "integer valued"
LARGE = 10.0  # means from which candidates are taken
LARGEST = 2.0**53  # whole numbers beyond are not all floats


# Logarithms of probabilities, from Stirling's formula and deviances, in which nothing large
# cancels (C. Loader, "Fast and accurate computation of binomial probabilities", 2000).


def _rest(xp: Any, k: Any) -> Any:
    """Return what Stirling's formula leaves of log(k!), for k of at least 1."""
    large = xp.maximum(k, 10.0)
    small = xp.clip(k, 1.0, 10.0)
    exact = special("gammaln")(xp, small + 1.0)
    formula = (small + 0.5) * xp.log(small) - small + 0.5 * math.log(2.0 * math.pi)
    return xp.where(k >= 10, stirling_rest(large), exact - formula)


def _deviance(xp: Any, k: Any, mean: Any) -> Any:
    """Return k log(k / mean) + mean - k."""
    ratio = (k - mean) / mean
    return mean * ((1.0 + ratio) * xp.log1p(ratio) - ratio)


def _log_poisson(xp: Any, k: Any, mean: Any) -> Any:
    some = xp.maximum(k, 1.0)
    value = -_rest(xp, some) - _deviance(xp, some, mean) - 0.5 * xp.log(2.0 * math.pi * some)
    return xp.where(k > 0, value, -mean)


def _log_binomial(xp: Any, k: Any, n: Any, p: Any) -> Any:
    inside = (k > 0) & (k < n)
    successes, left = xp.where(inside, k, 1.0), xp.where(inside, n - k, 1.0)
    whole = xp.where(inside, n, 2.0)
    value = _rest(xp, whole) - _rest(xp, successes) - _rest(xp, left)
    value = value - _deviance(xp, successes, whole * p) - _deviance(xp, left, whole * (1.0 - p))
    value = value + 0.5 * xp.log(whole / (2.0 * math.pi * successes * left))
    return xp.where(inside, value, xp.where(k > 0, n * xp.log(p), n * xp.log1p(-p)))


# Poisson's distribution.


def poisson_variables(xp: Any, draw: Any, mean: Any, part: int = 0) -> Any:
    """Return Poisson variables of means given by a flat float64 array; NaN for a bad mean."""
    valid = (mean >= 0) & (mean <= LARGEST)
    result = xp.full(mean.shape, np.nan)
    small = xp.nonzero(valid & (mean < LARGE))[0]
    if small.size:
        rank, _ = draw(small, part)
        result[small] = _poisson_inverted(xp, mean[small], rank)
    large = xp.nonzero(valid & (mean >= LARGE))[0]
    if large.size:
        _poisson_accepted(xp, draw, mean, result, large, part + 1)
    return result


def _poisson_inverted(xp: Any, mean: Any, rank: Any) -> Any:
    count = xp.zeros_like(mean)
    term = xp.exp(-mean)
    total = xp.array(term)
    k = 0
    # Where the terms have fallen below rounding, the total has reached the largest rank.
    while bool(xp.any((rank > total) & (term > 1e-20))):
        count = count + (rank > total)
        k += 1
        term = term * mean / k
        total = total + term
    return count


def _poisson_accepted(xp: Any, draw: Any, mean: Any, result: Any, elements: Any, part: int) -> None:
    root = xp.sqrt(mean)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    scale = 1.1239 + 1.1328 / (b - 3.4)

    def propose(at: Any, first: Any, second: Any) -> tuple[Any, Any]:
        u = first - 0.5
        distance = 0.5 - xp.abs(u)
        k = xp.floor((2.0 * a[at] / distance + b[at]) * u + mean[at] + 0.43)
        limit = xp.log(second * scale[at] / (a[at] / (distance * distance) + b[at]))
        possible = k >= 0
        k = xp.where(possible, k, 0.0)
        return k, possible & (limit <= _log_poisson(xp, k, mean[at]))

    accepted(xp, draw, result, elements, propose, part)


RANDOM_POISSON = drawing_op(
    "random_poisson_variable",
    "Poisson variables of given means, as floats.",
    lambda xp, draw, mean: poisson_variables(xp, draw, mean),
    no_gradient=_WHOLE,
)


poisson, POISSON = distribution(
    "poisson",
    [("lam", 1.0, NOT_NEGATIVE)],
    "Draw numbers of Poisson's distribution: counts of rare events of mean `lam`.",
    lambda shape, dtype, key, lam: draw_node(RANDOM_POISSON, shape, key, lam),
    module=__name__,
    notes="Exact to the rounding of probabilities in float64; for means up to 2**53.",
    example=("poisson((10000,), 3.5)", "round(float(x.mean()), 1)", "3.5"),
    no_gradient=_WHOLE,
    integers=True,
)


# The binomial distribution.


def binomial_variables(xp: Any, draw: Any, n: Any, p: Any, part: int = 0) -> Any:
    """Return binomial variables of flat float64 counts and chances; NaN for bad ones."""
    valid = (n >= 0) & (n <= LARGEST) & (n == xp.floor(n)) & (p >= 0) & (p <= 1)
    result = xp.full(n.shape, np.nan)
    share = xp.where(p > 0.5, 1.0 - p, p)
    mean = n * share
    small = xp.nonzero(valid & (mean < LARGE))[0]
    if small.size:
        rank, _ = draw(small, part)
        result[small] = _binomial_inverted(xp, n[small], share[small], rank)
    large = xp.nonzero(valid & (mean >= LARGE))[0]
    if large.size:
        _binomial_accepted(xp, draw, n, share, result, large, part + 1)
    return xp.where(p > 0.5, n - result, result)


def _binomial_inverted(xp: Any, n: Any, p: Any, rank: Any) -> Any:
    count = xp.zeros_like(n)
    odds = p / (1.0 - p)
    term = xp.exp(n * xp.log1p(-p))
    total = xp.array(term)
    k = 0
    while bool(xp.any((rank > total) & (term > 1e-20) & (k < n))):
        count = count + ((rank > total) & (k < n))
        k += 1
        term = xp.maximum(term * odds * (n - k + 1.0) / k, 0.0)
        total = total + term
    return count


def _binomial_accepted(
    xp: Any, draw: Any, n: Any, p: Any, result: Any, elements: Any, part: int
) -> None:
    q = 1.0 - p
    root = xp.sqrt(n * p * q)
    b = 1.15 + 2.53 * root
    a = -0.0873 + 0.0248 * b + 0.01 * p
    scale = (2.83 + 5.1 / b) * root
    top = _log_binomial(xp, xp.floor((n + 1.0) * p), n, p)

    def propose(at: Any, first: Any, second: Any) -> tuple[Any, Any]:
        u = first - 0.5
        distance = 0.5 - xp.abs(u)
        k = xp.floor((2.0 * a[at] / distance + b[at]) * u + n[at] * p[at] + 0.5)
        limit = xp.log(second * scale[at] / (a[at] / (distance * distance) + b[at]))
        possible = (k >= 0) & (k <= n[at])
        k = xp.where(possible, k, 0.0)
        weight = _log_binomial(xp, k, n[at], p[at]) - top[at]
        return k, possible & (limit <= weight)

    accepted(xp, draw, result, elements, propose, part)


RANDOM_BINOMIAL = drawing_op(
    "random_binomial_variable",
    "Binomial variables of given counts and chances, as floats.",
    lambda xp, draw, n, p: binomial_variables(xp, draw, n, p),
    no_gradient=_WHOLE,
)

binomial, BINOMIAL = distribution(
    "binomial",
    [("n", REQUIRED, NOT_NEGATIVE), ("p", REQUIRED, SHARE)],
    "Draw how many of `n` events of chance `p` happen.",
    lambda shape, dtype, key, n, p: draw_node(RANDOM_BINOMIAL, shape, key, n, p),
    module=__name__,
    notes="Exact to the rounding of probabilities in float64.",
    example=("binomial((10000,), 20, 0.3)", "round(float(x.mean()), 1)", "6.0"),
    no_gradient=_WHOLE,
    integers=True,
)


# What is made of these.


def _geometric(shape: Shape, dtype: np.dtype, key: Key | None, p: Node) -> Node:
    waiting = divide(unit_exponential(shape, dtype, key), -log1p(-p))
    return minimum(floor(waiting) + 1.0, LARGEST)


geometric, GEOMETRIC = distribution(
    "geometric",
    [("p", REQUIRED, POSITIVE_SHARE)],
    "Draw the number of trials up to the first success, 1 or more, of chance `p` each.",
    _geometric,
    module=__name__,
    notes="``floor(log(1 - u) / log(1 - p)) + 1``.",
    example=("geometric((10000,), 0.25)", "round(float(x.mean()), 1)", "4.0"),
    no_gradient=_WHOLE,
    integers=True,
)


def _negative_binomial(shape: Shape, dtype: np.dtype, key: Key | None, n: Node, p: Node) -> Node:
    first, second = keys_for(key, 2)
    mean = unit_gamma(shape, first, n) * ((1.0 - p) / p)
    return draw_node(RANDOM_POISSON, shape, second, mean)


negative_binomial, NEGATIVE_BINOMIAL = distribution(
    "negative_binomial",
    [("n", REQUIRED, POSITIVE), ("p", REQUIRED, POSITIVE_SHARE)],
    "Draw the number of failures before the n-th success of chance `p` each.",
    _negative_binomial,
    module=__name__,
    notes="Poisson's distribution of a gamma variable's mean; `n` need not be whole.",
    example=("negative_binomial((20000,), 4, 0.5)", "round(float(x.mean()), 1)", "4.0"),
    no_gradient=_WHOLE,
    integers=True,
)


# Multinomial: of what is left after each class, a binomial share goes to the next.


@documented
def multinomial(
    n: Any, p: Any, shape: Any = None, dtype: Any = INT32, *, key: Key | None = None
) -> Node:
    """Draw how many of `n` events fall into each of some classes.

    n: Number, array or node, at least 0.
    p: Chances of the classes along the last axis, whose extent is an int. They are divided by their
        sum.
    shape: Of the result without its last axis; the broadcast shape of `n` and ``p[..., 0]`` unless
        said.
    dtype: An integer dtype.
    key: From `mg.random.key`: the same numbers at every call. Without it the node has streams of
        its own, and new numbers at every call of a function.
    returns: Of `shape` and one more axis, along which the counts add up to `n`. No gradient:
        integer valued.
    raises ShapeError: If `p` has no axes, or a last one that is empty or symbolic, or a parameter
        does not fit.
    raises DTypeError: If `dtype` is not an integer's.

    Notes
    -----
    Conditional binomial variables, class by class (C. Davis, 1993).

    >>> mg.random.seed(0)
    >>> x = mg.random.multinomial(100, [0.2, 0.3, 0.5], (5,)).eval()
    >>> x.shape, x.sum(axis=1).tolist()
    ((5, 3), [100, 100, 100, 100, 100])
    """
    target = integer_dtype("multinomial", dtype)
    chances, left = parameter(p, FLOAT64), parameter(n, FLOAT64)
    count = chances.shape[-1] if chances.ndim else None
    if not isinstance(count, int) or count == 0:
        raise ShapeError(
            message(
                f"random.multinomial: p of shape {chances.shape}",
                need="chances along a last axis whose extent is an int above 0",
            )
        )
    parts = [chances[..., i] for i in range(count)]
    extents = common_shape("multinomial", shape, (left, parts[0]))
    rests = [parts[-1]]
    for each in reversed(parts[:-1]):
        rests.append(rests[-1] + each)
    rests.reverse()
    counts: list[Node] = []
    left = broadcast_to(left, extents)
    for each, rest, part_key in zip(parts, rests, keys_for(key, count), strict=True):
        if len(counts) == count - 1:
            counts.append(left)
            break
        # Where no probability is left, the share is 0, not 0 / 0.
        share = where(greater(rest, 0), each / where(greater(rest, 0), rest, 1), 0)
        events = draw_node(RANDOM_BINOMIAL, extents, part_key, left, clip(share, 0.0, 1.0))
        counts.append(events)
        left = left - events
    return cast(stack(counts, axis=-1), target)


RECORDS: tuple[Op | Composite, ...] = (
    RANDOM_POISSON,
    POISSON,
    RANDOM_BINOMIAL,
    BINOMIAL,
    GEOMETRIC,
    NEGATIVE_BINOMIAL,
    Composite(
        name="random.multinomial",
        kind=Kind.RANDOM,
        function=multinomial,
        no_gradient=_WHOLE,
    ),
)
