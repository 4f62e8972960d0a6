"""Losses of scores that are to lead others by a margin."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import is_integer
from ..errors import DTypeError, ShapeError
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.lines import grouped
from ..ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ..ir.types import Extent
from ..ops.control.labels import class_labels
from ..ops.convert import as_node, cast
from ..ops.elementwise.arithmetic import add, multiply, square, subtract
from ..ops.elementwise.comparison import where
from ..ops.elementwise.family import floating, floating_pair
from ..ops.indexing.iota import is_class
from ..ops.networks.activation import relu
from ..ops.reduction.folding import restored
from ..ops.reduction.primitives import sum
from ..ops.reduction.statistics import mean
from ..ops.shape.arrange import reshape
from .common import (
    check_last_axis,
    loss_record,
    reduced,
    settled,
    weighted,
    wide_node,
)

__all__ = [
    "hinge",
    "margin_ranking_loss",
    "multi_margin",
    "squared_hinge",
]


def _slack(name: str, scores: Any, labels: Any) -> tuple[Node, np.dtype]:
    given, signs = floating_pair(scores, labels)
    check_last_axis(name, given, signs)
    return relu(subtract(1.0, multiply(wide_node(given), wide_node(signs)))), given.dtype


@grouped
@documented
def hinge(scores: Any, labels: Any, *, weights: Any = None, reduction: str = "mean") -> Node:
    """Compute ``max(0, 1 - labels * scores)``, the loss of support vector machines.

    scores: Node or array.
    labels: -1 or 1, broadcast against the scores.
    returns: A scalar, or of the broadcast shape with "none". At the margin the gradient is 0.
    raises ShapeError: If the shapes do not broadcast.

    >>> mg.hinge([0.5, 2.0, 1.0], [1.0, 1.0, -1.0], reduction="none").eval()
    array([0.5, 0. , 2. ], dtype=float32)
    """
    loss, dtype = _slack("hinge", scores, labels)
    return reduced("hinge", weighted(loss, weights), reduction, dtype)


@grouped
@documented
def squared_hinge(
    scores: Any, labels: Any, *, weights: Any = None, reduction: str = "mean"
) -> Node:
    """Compute ``max(0, 1 - labels * scores)**2``: a hinge without a kink.

    scores: Node or array.
    labels: -1 or 1, broadcast against the scores.
    returns: A scalar, or of the broadcast shape with "none".
    raises ShapeError: If the shapes do not broadcast.

    >>> mg.squared_hinge([0.5, 2.0, 1.0], [1.0, 1.0, -1.0], reduction="none").eval()
    array([0.25, 0.  , 4.  ], dtype=float32)
    """
    loss, dtype = _slack("squared_hinge", scores, labels)
    return reduced("squared_hinge", weighted(square(loss), weights), reduction, dtype)


@grouped
@documented
def multi_margin(
    scores: Any,
    labels: Any,
    *,
    p: int = 1,
    margin: float = 1.0,
    axis: int = -1,
    weights: Any = None,
    reduction: str = "mean",
) -> Node:
    """Compute by how much the score of the right class fails to lead every other by a margin.

    ``sum_j weights[y] * max(0, margin - x[y] + x[j])**p / classes`` over all classes j but y;
    K. Crammer, Y. Singer, "On the algorithmic implementation of multiclass kernel-based vector
    machines", JMLR 2, 2001, with the sum in the place of the largest.

    scores: Node or array with an axis of classes.
    labels: Integers, with one axis less: the classes y, in ``[0, classes)``; checked as those of
        `cross_entropy`.
    p: 1 or 2.
    margin: The lead that is asked for.
    axis: The axis of the classes.
    weights: One factor for each class, of shape ``(classes,)``.
    reduction: "mean" over everything but the classes, "sum", or "none".
    returns: A scalar, or without the class axis with "none".
    raises DTypeError: If the labels are not integers.
    raises ShapeError: If the shapes do not fit, or `p` is neither 1 nor 2.

    >>> mg.multi_margin([[0.5, 1.0, -3.0, 0.0]], mg.constant([1])).eval()
    array(0.125, dtype=float32)
    """
    values, target = floating(scores), as_node(labels)
    call = Call(MULTI_MARGIN, (values, target))
    axis = call.axis(axis, values.ndim)
    if p not in (1, 2):
        raise call.shape_error(f"p={p}", need="1 or 2")
    if not is_integer(target.dtype):
        raise call.dtype_error(f"labels of dtype {target.dtype.name}", need="integers")
    rows = (*values.shape[:axis], *values.shape[axis + 1 :])
    if target.ndim != len(rows):
        raise call.shape_error(
            f"labels of {target.ndim} axes for scores of {values.ndim}", need="one axis less"
        )
    for left, right in zip(rows, target.shape, strict=True):
        call.unify(left, right, "extents of scores and labels")
    score = wide_node(values)
    target = class_labels(call, target, values.shape[axis])
    chosen = is_class(target, values.shape[axis], axis)
    right_score = restored(sum(where(chosen, score, 0.0), axis), (axis,))
    slack = relu(add(subtract(score, right_score), margin))
    loss = mean(where(chosen, 0.0, square(slack) if p == 2 else slack), axis)
    if weights is not None:
        factors = as_node(weights, score.dtype)
        if factors.ndim != 1:
            raise call.shape_error(
                f"weights has shape {factors.shape}", need=f"shape ({values.shape[axis]},)"
            )
        call.unify(factors.shape[0], values.shape[axis], "extents of weights and of the classes")
        line: list[Extent] = [1] * values.ndim
        line[axis] = factors.shape[0]
        row = reshape(cast(factors, score.dtype), line)
        loss = multiply(loss, sum(where(chosen, row, 0.0), axis))
    return reduced("multi_margin", loss, reduction, values.dtype)


@grouped
@documented
def margin_ranking_loss(
    first: Any, second: Any, labels: Any, *, margin: float = 0.0, reduction: str = "mean"
) -> Node:
    """Compute ``max(0, margin - labels * (first - second))``.

    first, second: Nodes or arrays of scores, broadcast against each other.
    labels: 1 where the first should be ranked higher, -1 where the second; broadcast to them.
    margin: The lead that is asked for.
    returns: A scalar, or of the broadcast shape with "none".
    raises ShapeError: If the shapes do not broadcast.

    >>> mg.margin_ranking_loss([1.0, 2.0], [3.0, 1.0], [1.0, 1.0], reduction="none").eval()
    array([2., 0.], dtype=float32)
    """
    left, right = floating_pair(first, second)
    check_last_axis("margin_ranking_loss", left, right)
    lead = subtract(wide_node(left), wide_node(right))
    sign = cast(labels, lead.dtype)
    check_last_axis("margin_ranking_loss", lead, sign)
    loss = relu(subtract(margin, multiply(sign, lead)))
    return reduced("margin_ranking_loss", loss, reduction, left.dtype)


# Records.

_SCORES = np.array([[0.3, -1.2, 0.8], [2.0, 0.1, -0.5]])
_SIGNS = np.array([[1.0, -1.0, -1.0], [1.0, 1.0, -1.0]])
_OTHER = np.array([[0.9, 0.4, -0.6], [1.1, -2.1, 0.2]])
_CLASSES = np.array([2, 0])
_FACTORS = np.array([0.5, 2.0, 1.5])


def _hinge_reference(power_: int) -> Any:
    def reference(
        x: Any, t: Any, weights: Any = 1.0, reduction: str = "mean"
    ) -> Any:
        return settled(weights * np.maximum(0, 1 - t * x) ** power_, reduction)

    return reference


def _multi_margin_reference(
    x: np.ndarray,
    y: np.ndarray,
    p: int = 1,
    margin: float = 1.0,
    axis: int = -1,
    weights: Any = None,
    reduction: str = "mean",
) -> Any:
    rows = np.moveaxis(x, axis, -1)
    classes = rows.shape[-1]
    loss = np.zeros(y.shape)
    for place in np.ndindex(y.shape):
        row, label = rows[place], y[place]
        others = [max(0.0, margin - row[label] + row[j]) ** p for j in range(classes) if j != label]
        loss[place] = np.sum(others) / classes * (1.0 if weights is None else weights[label])
    return settled(loss, reduction)


HINGE = loss_record(
    hinge,
    "The hinge loss.",
    _hinge_reference(1),
    lambda: [
        Sample((_SCORES, _SIGNS)),
        Sample((_SCORES, _SIGNS[1]), {"weights": _FACTORS, "reduction": "sum"}),
    ],
)
SQUARED_HINGE = loss_record(
    squared_hinge,
    "The squared hinge loss.",
    _hinge_reference(2),
    lambda: [
        Sample((_SCORES, _SIGNS)),
        Sample((_SCORES, _SIGNS[1]), {"weights": _FACTORS, "reduction": "none"}),
    ],
)
MULTI_MARGIN = Composite(
    kind=Kind.REDUCTION,
    function=multi_margin,
    tests=Tests(
        samples=lambda: [
            Sample((_SCORES, _CLASSES)),
            Sample((_SCORES, _CLASSES), {"p": 2, "weights": _FACTORS, "reduction": "none"}),
            Sample((_SCORES.T, _CLASSES), {"margin": 0.3, "axis": 0, "reduction": "sum"}),
        ],
        bad_samples=lambda: [
            BadSample((_SCORES, _CLASSES), ShapeError, "multi_margin: p=3", {"p": 3}),
            BadSample((_SCORES, _SIGNS[:, 0]), DTypeError, "multi_margin: labels of dtype float64"),
            BadSample(
                (_SCORES, np.array([1, 0, 2])),
                ShapeError,
                "multi_margin: extents of scores and labels differ: 2 and 3",
            ),
        ],
        reference=_multi_margin_reference,
    ),
    numerics="reassoc",
)
MARGIN_RANKING = loss_record(
    margin_ranking_loss,
    "By how much one score fails to lead another.",
    lambda x, y, t, margin=0.0, reduction="mean": settled(
        np.maximum(0, margin - t * (x - y)), reduction
    ),
    lambda: [
        Sample((_SCORES, _OTHER, _SIGNS)),
        Sample((_SCORES, _OTHER, _SIGNS[0]), {"margin": 0.25, "reduction": "none"}),
    ],
)

RECORDS = (HINGE, SQUARED_HINGE, MULTI_MARGIN, MARGIN_RANKING)
