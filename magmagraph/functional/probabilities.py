"""Probabilities of scores: softmax, its kin and its logarithm, and samples of it.

A maximum that only guards against overflow is taken as a constant, so that the graphs of the
gradients stay small.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ShapeError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.lines import grouped
from ..ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ..losses import shifted
from ..ops.control.identities import stop_gradient
from ..ops.convert import cast
from ..ops.elementwise.arithmetic import add, divide, negative, subtract
from ..ops.elementwise.comparison import equal
from ..ops.elementwise.comparison import where as chosen
from ..ops.elementwise.math import exp, log
from ..ops.elementwise.rounding import isfinite
from ..ops.indexing.iota import is_class
from ..ops.leaf import extent
from ..ops.random.basic import uniform
from ..ops.reduction.masked import mask_of, without_elements
from ..ops.reduction.primitives import argmax, max, sum
from ..ops.reduction.statistics import count_nonzero, logsumexp
from ..ops.shape.axes import CUBE, MATRIX, axes_of
from .operands import Axes, like, wide

__all__ = ["gumbel_softmax", "log_softmax", "logmeanexp", "softmax", "softmin"]


def _top(score: Node, axes: Any, mask: Node) -> Node:
    """Return the largest score that counts along axes, a constant; 0 where there is none."""
    top = stop_gradient(max(score, axes, True, initial=-math.inf, where=mask))
    return chosen(isfinite(top), top, 0)


def _counted(score: Node, axes: Any, mask: Node) -> tuple[Node, Node]:
    """Return the exponentials of the scores that count, and their sums, 1 where none does."""
    top = _top(score, axes, mask)
    power = chosen(mask, exp(subtract(chosen(mask, score, top), top)), 0)
    total = sum(power, axes, keepdims=True)
    return power, chosen(equal(total, 0), 1, total)


@grouped
@documented
def softmax(x: Any, axis: Axes = -1, *, where: Any = True) -> Node:
    """Turn scores into probabilities: ``exp(x) / sum(exp(x))`` along axes, without overflow.

    x: Node or array; ints become floats.
    axis: The axis, or axes, that the probabilities add up to 1 along.
    where: Bools that broadcast to the shape of `x`: only elements where they hold count. The others
        have probability 0 and gradient 0, whatever their value.
    returns: Of the shape and float dtype of `x`.
    raises ShapeError: If an axis is out of range.

    >>> mg.softmax([1000.0, 1000.0, 0.0]).eval()
    array([0.5, 0.5, 0. ], dtype=float32)
    """
    score = wide(x)
    axes = axes_of(Call(SOFTMAX, (score,)), axis, score.ndim)
    mask = mask_of("softmax", score, where)
    if mask is not None:
        power, total = _counted(score, axes, mask)
        return like(divide(power, total), x)
    if without_elements(score, axes):
        return like(score, x)
    power = exp(shifted(score, axes))
    return like(divide(power, sum(power, axes, keepdims=True)), x)


@grouped
@documented
def log_softmax(x: Any, axis: Axes = -1, *, where: Any = True) -> Node:
    """Return the logarithm of `softmax`, exact also where a probability underflows.

    x: Node or array; ints become floats.
    axis: The axis, or axes, that the probabilities add up to 1 along.
    where: Bools that broadcast to the shape of `x`: only elements where they hold count. The others
        have the logarithm -inf and gradient 0, whatever their value.
    returns: Of the shape and float dtype of `x`.
    raises ShapeError: If an axis is out of range.

    >>> mg.log_softmax([0.0, -10000.0]).eval()
    array([     0., -10000.], dtype=float32)
    """
    score = wide(x)
    axes = axes_of(Call(LOG_SOFTMAX, (score,)), axis, score.ndim)
    mask = mask_of("log_softmax", score, where)
    if mask is not None:
        _, total = _counted(score, axes, mask)
        shift = subtract(chosen(mask, score, 0), _top(score, axes, mask))
        return like(chosen(mask, subtract(shift, log(total)), -math.inf), x)
    if without_elements(score, axes):
        return like(score, x)
    shift = shifted(score, axes)
    return like(subtract(shift, log(sum(exp(shift), axes, keepdims=True))), x)


@grouped
@documented
def softmin(x: Any, axis: Axes = -1) -> Node:
    """Return the softmax of the negatives: the smallest score has the largest probability.

    x: Node or array; ints become floats.
    axis: The axis, or axes, that the probabilities add up to 1 along.
    returns: Of the shape and float dtype of `x`.
    raises ShapeError: If an axis is out of range.

    >>> mg.softmin([1000.0, 0.0, 0.0]).eval()
    array([0. , 0.5, 0.5], dtype=float32)
    """
    score = wide(x)
    axes = axes_of(Call(SOFTMIN, (score,)), axis, score.ndim)
    return like(softmax(negative(score), axes), x)


@grouped
@documented
def logmeanexp(
    x: Any, axis: Any = None, keepdims: bool = False, *, where: Any = True
) -> Node:
    """Compute log(mean(exp(x))) along axes without overflow.

    x: Node or array; ints become floats.
    axis: An axis, several, or None for all.
    returns: Of the float dtype, without the reduced axes (unless `keepdims`).
    raises ShapeError: If an axis is out of range.

    >>> mg.logmeanexp([[1000.0, 1000.0]], axis=1).eval()
    array([1000.], dtype=float32)
    """
    score = wide(x)
    mask = mask_of("logmeanexp", score, where)
    if mask is not None:
        total = logsumexp(score, axis, keepdims, where=mask)
        many = count_nonzero(mask, axis, keepdims)
        return like(subtract(total, log(cast(many, total.dtype))), x)
    total = logsumexp(score, axis, keepdims)
    axes = range(score.ndim) if axis is None else axes_of(
        Call(LOGMEANEXP, (score,)), axis, score.ndim
    )
    count: Any = 1
    for each in axes:
        count = count * score.shape[each]
    if isinstance(count, int):
        return like(subtract(total, math.log(count) if count else -math.inf), x)
    return like(subtract(total, log(cast(extent(count), total.dtype))), x)


@grouped
@documented
def gumbel_softmax(
    x: Any, temperature: float | Node = 1.0, *, axis: int = -1, hard: bool = False
) -> Node:
    """Draw a relaxed sample of the classes that scores make likely.

    ``softmax((x + g) / temperature)``, the elements of g being independent draws from the Gumbel
    distribution; E. Jang, S. Gu, B. Poole, "Categorical reparameterization with Gumbel-softmax",
    ICLR 2017, equation 2.

    x: Node or array of logits; ints become floats.
    temperature: Positive: the lower, the nearer to one-hot rows. A number or a node.
    axis: The axis of the classes.
    hard: Return one-hot rows; their gradient is that of the relaxed sample.
    returns: Of the shape and float dtype of `x`; another sample at every call.
    raises ShapeError: If the axis is out of range, or `temperature` is a number that is not
        positive.

    >>> mg.random.seed(0)
    >>> mg.gumbel_softmax([0.0, 50.0, 0.0], hard=True).eval()
    array([0., 1., 0.], dtype=float32)
    """
    score = wide(x)
    axis = Call(GUMBEL_SOFTMAX, (score,)).axis(axis, score.ndim)
    if not isinstance(temperature, Node) and not temperature > 0:
        raise ShapeError(
            message(f"gumbel_softmax: temperature={temperature}", need="temperature > 0")
        )
    # Draws lie in (0, 1]; where one is 1, the tiny addend keeps the outer logarithm finite.
    draw = subtract(1.0, uniform(score.shape, dtype=score.dtype))
    noise = negative(log(subtract(np.finfo(score.dtype).tiny, log(draw))))
    relaxed = softmax(divide(add(score, noise), temperature), axis)
    if not hard or without_elements(score, (axis,)):
        return like(relaxed, x)
    chosen = cast(is_class(argmax(relaxed, axis), score.shape[axis], axis), score.dtype)
    # The first two terms cancel in the value; the last one alone has a gradient.
    straight = add(stop_gradient(subtract(chosen, relaxed)), relaxed)
    return like(straight, x)


# Records.


_COUNTS = np.arange(CUBE.size).reshape(CUBE.shape) % 3 != 1


def _softmax_reference(x: np.ndarray, axis: Any = -1, where: Any = True) -> np.ndarray:
    axis = tuple(axis) if isinstance(axis, (tuple, list)) else axis
    x = np.where(where, x, -np.inf)
    power = np.exp(x - np.max(x, axis=axis, keepdims=True))
    result: np.ndarray = power / power.sum(axis=axis, keepdims=True)
    return result


def _log_softmax_reference(x: np.ndarray, axis: Any = -1, where: Any = True) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.where(where, np.log(_softmax_reference(x, axis, where)), -np.inf)


def _logmeanexp_reference(
    x: np.ndarray, axis: Any = None, keepdims: bool = False, where: Any = True
) -> Any:
    top = x.max()
    return np.log(np.mean(np.exp(x - top), axis=axis, keepdims=keepdims, where=where)) + top


SOFTMAX = Composite(
    kind=Kind.REDUCTION,
    function=softmax,
    tests=Tests(
        samples=lambda: [
            Sample((MATRIX,)),
            Sample((CUBE,), {"axis": (0, 2)}),
            Sample((CUBE,), {"axis": (1, 2), "where": _COUNTS}),
        ],
        bad_samples=lambda: [
            BadSample(
                (MATRIX,), ShapeError, "softmax: axis=2 is out of range for 2 axes", {"axis": 2}
            )
        ],
        reference=_softmax_reference,
    ),
    numerics="reassoc",
)
LOG_SOFTMAX = Composite(
    kind=Kind.REDUCTION,
    function=log_softmax,
    tests=Tests(
        samples=lambda: [
            Sample((MATRIX,)),
            Sample((CUBE,), {"axis": 1}),
            Sample((CUBE,), {"axis": (1, 2), "where": _COUNTS}, gradient=(), reason="-inf, masked"),
        ],
        bad_samples=lambda: [
            BadSample(
                (MATRIX,), ShapeError, "log_softmax: axis=2 is out of range for 2 axes", {"axis": 2}
            )
        ],
        reference=_log_softmax_reference,
    ),
    numerics="reassoc",
)
SOFTMIN = Composite(
    kind=Kind.REDUCTION,
    function=softmin,
    tests=Tests(
        samples=lambda: [Sample((MATRIX,)), Sample((CUBE,), {"axis": (0, 2)})],
        bad_samples=lambda: [
            BadSample(
                (MATRIX,), ShapeError, "softmin: axis=2 is out of range for 2 axes", {"axis": 2}
            )
        ],
        reference=lambda x, axis=-1: _softmax_reference(-x, axis),
    ),
    numerics="reassoc",
)
LOGMEANEXP = Composite(
    kind=Kind.REDUCTION,
    function=logmeanexp,
    tests=Tests(
        samples=lambda: [
            Sample((MATRIX,)),
            Sample((CUBE,), {"axis": 1}),
            Sample((CUBE + 500.0,), {"axis": (0, -1), "keepdims": True}),
            Sample((CUBE,), {"axis": (1, 2), "where": _COUNTS}),
        ],
        reference=_logmeanexp_reference,
    ),
    numerics="reassoc",
)
GUMBEL_SOFTMAX = Composite(
    kind=Kind.RANDOM,
    function=gumbel_softmax,
    tests=Tests(
        samples=lambda: [Sample((MATRIX,))],
        bad_samples=lambda: [
            BadSample(
                (MATRIX,),
                ShapeError,
                "gumbel_softmax: temperature=0.0",
                {"temperature": 0.0},
            )
        ],
        reference=lambda x: x,
    ),
)

RECORDS = (SOFTMAX, LOG_SOFTMAX, SOFTMIN, LOGMEANEXP, GUMBEL_SOFTMAX)
