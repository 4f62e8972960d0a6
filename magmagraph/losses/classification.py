"""Losses of predictions that are classes: cross-entropies, and labels smoothed.

Each is written from the values that are exact: cross-entropy from logits never forms a probability,
and its gradient is the softmax less the labels, of one exponential an element.
"""

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
from ..ops.elementwise.arithmetic import add, divide, multiply, negative, subtract
from ..ops.elementwise.comparison import not_equal, where
from ..ops.elementwise.family import floating
from ..ops.elementwise.math import exp, log
from ..ops.indexing.iota import is_class
from ..ops.leaf import extent
from ..ops.reduction.folding import restored
from ..ops.reduction.primitives import sum
from ..ops.reduction.statistics import mean
from ..ops.shape.arrange import reshape
from .common import reduced, settled, shifted, wide_node

__all__ = ["cross_entropy", "nll_loss", "smooth_labels"]


@grouped
@documented
def cross_entropy(
    logits: Any,
    labels: Any,
    *,
    axis: int = -1,
    from_logits: bool = True,
    epsilon: float = 1e-8,
    reduction: str = "mean",
    weights: Any = None,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
) -> Node:
    """Compute the cross-entropy between labels and the probabilities of classes.

    From logits z: ``log(sum(exp(z))) - z[label]``, or ``-sum(t * log_softmax(z))`` for
    distributions t. From probabilities p: ``-sum(t * log(p + epsilon))``.

    logits: Node or array with an axis of classes: scores, or probabilities if not `from_logits`.
    labels: Integers, with one axis less: the classes, in ``[0, classes)``. Or, with as many axes,
        one-hot rows or any distributions. Where integers are an input, or made of one by moves
        (reshape, slices) and casts, a call checks those of arrays on the host: another label is a
        `FeedError`. Labels that are computed otherwise are not checked.
    axis: The axis of the classes.
    from_logits: Whether the first operand holds logits.
    epsilon: Added to probabilities, so that log(0) is out of reach.
    reduction: "mean" over everything but the classes, "sum", or "none". With integer labels and
        `weights` or `ignore_index`, the mean divides by the sum of the labels' weights.
    weights: One factor for each class, of shape ``(classes,)``.
    label_smoothing: In [0, 1): the part of each label that is spread evenly over all classes.
    ignore_index: Rows with this integer label have loss and gradient 0 and do not count in the
        mean.
    returns: A scalar, or without the class axis with "none"; of the float dtype of `logits`.
    raises ShapeError: If the labels fit neither form, or a constant holds another label than those
        of the classes; `weights` is not a number for each class, `label_smoothing` is out of range,
        or `ignore_index` is given for distributions.

    >>> loss = mg.cross_entropy([[0.0, 1000.0], [0.0, 0.0]], mg.constant([1, 0]))
    >>> round(float(loss.eval()), 4)
    0.3466
    >>> loss = mg.cross_entropy([[0.25, 0.75]], [[0.0, 1.0]], from_logits=False)
    >>> round(float(loss.eval()), 4)
    0.2877
    """
    scores = floating(logits)
    target = as_node(labels)
    call = Call(CROSS_ENTROPY, (scores, target))
    axis = call.axis(axis, scores.ndim)
    if not 0 <= label_smoothing < 1:
        raise call.shape_error(f"label_smoothing={label_smoothing}", need="a number in [0, 1)")
    score = wide_node(scores)
    factors = _class_weights(call, weights, score, axis)
    if target.ndim == score.ndim - 1:
        _check_classes(call, "logits", score, target, axis)
        if from_logits:
            shift = shifted(score, axis)
            total = log(sum(exp(shift), axis))
        else:
            shift, total = log(add(score, epsilon)), None
        return _of_classes(
            call, shift, total, target, axis, factors, label_smoothing, ignore_index, reduction,
            scores.dtype,
        )  # fmt: skip
    if target.ndim != score.ndim:
        raise call.shape_error(
            f"labels of {target.ndim} axes for logits of {score.ndim}",
            need="one axis less (integers), or as many (one-hot rows)",
            hint="mg.squeeze(labels, -1) for a column of integers",
        )
    if ignore_index is not None:
        raise call.shape_error(
            f"ignore_index={ignore_index} for labels that are distributions",
            need="integer labels",
            hint="rows of zeros, which have loss 0",
        )
    for left, right in zip(score.shape, target.shape, strict=True):
        call.unify(left, right, "extents of logits and labels")
    share = cast(labels, score.dtype)
    if label_smoothing:
        share = smooth_labels(share, label_smoothing, axis)
    if factors is not None:
        share = multiply(share, factors)
    if from_logits:
        shift = shifted(score, axis)
        whole = multiply(log(sum(exp(shift), axis)), sum(share, axis))
        loss = subtract(whole, sum(multiply(share, shift), axis))
    else:
        loss = negative(sum(multiply(share, log(add(score, epsilon))), axis))
    return reduced("cross_entropy", loss, reduction, scores.dtype)


def _check_classes(call: Call, what: str, score: Node, target: Node, axis: int) -> None:
    """Raise unless the labels are integers, one for each row of the scores."""
    if not is_integer(target.dtype):
        raise call.dtype_error(
            f"labels of dtype {target.dtype.name} with {target.ndim} axes",
            need=f"integers (one axis less than the {what}), or rows of as many axes",
        )
    rows = (*score.shape[:axis], *score.shape[axis + 1 :])
    for left, right in zip(rows, target.shape, strict=True):
        call.unify(left, right, f"extents of {what} and labels")


def _class_weights(call: Call, weights: Any, score: Node, axis: int) -> Node | None:
    """Return the weights of the classes, shaped so that they broadcast to the scores."""
    if weights is None:
        return None
    node = as_node(weights, score.dtype)
    if node.ndim != 1:
        raise call.shape_error(
            f"weights has shape {node.shape}", need=f"shape ({score.shape[axis]},)"
        )
    call.unify(node.shape[0], score.shape[axis], "extents of weights and of the classes")
    line: list[Extent] = [1] * score.ndim
    line[axis] = node.shape[0]
    return reshape(cast(node, score.dtype), line)


def _of_classes(
    call: Call,
    logs: Node,
    total: Node | None,
    target: Node,
    axis: int,
    factors: Node | None,
    smoothing: float,
    ignored: int | None,
    reduction: str,
    dtype: np.dtype,
) -> Node:
    """Return the loss of integer labels; `total`, where given, is subtracted from the logs."""
    classes = logs.shape[axis]
    target = class_labels(call, target, classes, ignored)
    chosen = is_class(target, classes, axis)

    def expected(values: Node) -> Node:
        return sum(where(chosen, values, 0.0), axis)

    picked = negative(expected(logs)) if total is None else subtract(total, expected(logs))
    share = None if factors is None else expected(factors)
    loss = picked if share is None else multiply(picked, share)
    if smoothing:
        if factors is None:
            even = negative(mean(logs, axis))
            even = even if total is None else add(even, total)
        else:
            costs = negative(logs) if total is None else subtract(restored(total, (axis,)), logs)
            even = mean(multiply(costs, factors), axis)
        loss = add(multiply(loss, 1.0 - smoothing), multiply(even, smoothing))
    if ignored is not None:
        kept = not_equal(target, ignored)
        loss = where(kept, loss, 0.0)
        share = cast(kept, logs.dtype) if share is None else where(kept, share, 0.0)
    return reduced(call.op.name, loss, reduction, dtype, share)


@grouped
@documented
def smooth_labels(labels: Any, smoothing: float, axis: int = -1) -> Node:
    """Spread a part of each distribution evenly over all classes.

    ``(1 - smoothing) * labels + smoothing / classes``; C. Szegedy et al., "Rethinking the
    Inception architecture for computer vision", CVPR 2016, section 7.

    labels: Node or array of distributions, such as one-hot rows.
    smoothing: In [0, 1).
    axis: The axis of the classes.
    returns: Of the shape and float dtype of `labels`.
    raises ShapeError: If `smoothing` is out of range, or the axis.

    >>> mg.smooth_labels([[0.0, 1.0]], 0.5).eval()
    array([[0.25, 0.75]], dtype=float32)
    """
    node = floating(labels)
    call = Call(SMOOTH_LABELS, (node,))
    classes = node.shape[call.axis(axis, node.ndim)]
    if not 0 <= smoothing < 1:
        raise call.shape_error(f"smoothing={smoothing}", need="a number in [0, 1)")
    kept = multiply(node, 1.0 - smoothing)
    if isinstance(classes, int):
        return add(kept, smoothing / classes if classes else 0.0)
    return add(kept, divide(smoothing, cast(extent(classes), node.dtype)))


@grouped
@documented
def nll_loss(
    log_probabilities: Any,
    labels: Any,
    *,
    axis: int = -1,
    weights: Any = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Node:
    """Compute the negative log-likelihood of classes from logarithms of probabilities.

    ``-weights[label] * log_probabilities[label]``: what `cross_entropy` computes of logits, for
    rows that `log_softmax` made already.

    log_probabilities: Node or array with an axis of classes.
    labels: Integers, with one axis less: the classes, in ``[0, classes)``; checked as those of
        `cross_entropy`.
    axis: The axis of the classes.
    weights: One factor for each class, of shape ``(classes,)``.
    ignore_index: Rows with this label have loss and gradient 0 and do not count in the mean.
    reduction: "mean" (the sum divided by the sum of the labels' weights), "sum", or "none".
    returns: A scalar, or without the class axis with "none".
    raises DTypeError: If the labels are not integers.
    raises ShapeError: If the shapes do not fit, or a constant holds another label than those of the
        classes.

    >>> scores = mg.log_softmax([[0.0, 1000.0], [0.0, 0.0]])
    >>> round(float(mg.nll_loss(scores, mg.constant([1, 0])).eval()), 4)
    0.3466
    """
    logarithms = floating(log_probabilities)
    target = as_node(labels)
    call = Call(NLL_LOSS, (logarithms, target))
    axis = call.axis(axis, logarithms.ndim)
    logs = wide_node(logarithms)
    if target.ndim != logs.ndim - 1:
        raise call.shape_error(
            f"labels of {target.ndim} axes for log-probabilities of {logs.ndim}",
            need="integers, with one axis less",
        )
    _check_classes(call, "log-probabilities", logs, target, axis)
    factors = _class_weights(call, weights, logs, axis)
    return _of_classes(
        call, logs, None, target, axis, factors, 0.0, ignore_index, reduction, logarithms.dtype
    )


# Records.

_LOGITS = np.array([[0.3, -1.2, 0.8], [2.0, 0.1, -0.5]])
_ROWS = np.array([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]])
_CLASSES = np.array([2, 0])
_CHANCES = np.array([[0.9, 0.2, 0.6], [0.3, 0.5, 0.8]])
_FACTORS = np.array([0.5, 2.0, 1.5])
_FOUR = np.vstack([_LOGITS, -_LOGITS])
_IGNORED = np.array([2, 7, 0, 7])


def _class_reference(
    logs: np.ndarray,
    labels: np.ndarray,
    weights: Any,
    smoothing: float,
    ignored: int | None,
    reduction: str,
) -> Any:
    """Loop over rows of log-probabilities, classes last, as the definition reads."""
    classes = logs.shape[-1]
    factors = np.ones(classes) if weights is None else weights
    loss, total = np.zeros(labels.shape), np.zeros(labels.shape)
    for place in np.ndindex(labels.shape):
        label = labels[place]
        if ignored is not None and label == ignored:
            continue
        target = np.full(classes, smoothing / classes)
        target[label] += 1 - smoothing
        loss[place] = -np.sum(factors * target * logs[place])
        total[place] = factors[label]
    whole = None if weights is None and ignored is None else total
    return settled(loss, reduction, whole)


def _cross_entropy_reference(
    logits: np.ndarray,
    labels: np.ndarray,
    axis: int = -1,
    from_logits: bool = True,
    epsilon: float = 1e-8,
    reduction: str = "mean",
    weights: Any = None,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
) -> Any:
    scores = np.moveaxis(logits, axis, -1)
    if from_logits:
        logs = scores - np.log(np.sum(np.exp(scores), axis=-1, keepdims=True))
    else:
        logs = np.log(scores + epsilon)
    if labels.ndim < logits.ndim:
        return _class_reference(logs, labels, weights, label_smoothing, ignore_index, reduction)
    rows = np.moveaxis(labels, axis, -1)
    rows = rows * (1 - label_smoothing) + label_smoothing / rows.shape[-1]
    rows = rows if weights is None else rows * weights
    return settled(-np.sum(rows * logs, axis=-1), reduction)


def _nll_reference(
    logs: np.ndarray,
    labels: np.ndarray,
    axis: int = -1,
    weights: Any = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    rows = np.moveaxis(logs, axis, -1)
    return _class_reference(rows, labels, weights, 0.0, ignore_index, reduction)


CROSS_ENTROPY = Composite(
    kind=Kind.REDUCTION,
    function=cross_entropy,
    tests=Tests(
        samples=lambda: [
            Sample((_LOGITS, _CLASSES)),
            Sample((_LOGITS, _ROWS), {"reduction": "sum"}),
            Sample((_LOGITS.T, _CLASSES), {"axis": 0, "reduction": "none"}),
            Sample((_CHANCES, _CLASSES), {"from_logits": False}),
            Sample((_CHANCES, _ROWS), {"from_logits": False, "epsilon": 1e-3}),
            Sample((_LOGITS, _CLASSES), {"label_smoothing": 0.1}),
            Sample((_CHANCES, _CLASSES), {"label_smoothing": 0.1, "from_logits": False}),
            Sample((_LOGITS, _ROWS), {"label_smoothing": 0.3, "weights": _FACTORS}),
            Sample(
                (_FOUR, _IGNORED),
                {"ignore_index": 7, "weights": _FACTORS, "label_smoothing": 0.2},
            ),
            Sample((_FOUR, _IGNORED), {"ignore_index": 7, "reduction": "none"}),
        ],
        bad_samples=lambda: [
            BadSample(
                (_LOGITS, np.array([0, 1, 2])),
                ShapeError,
                "cross_entropy: extents of logits and labels differ: 2 and 3",
            ),
            BadSample(
                (_LOGITS, np.array([[[1]]])),
                ShapeError,
                "cross_entropy: labels of 3 axes for logits of 2",
            ),
            BadSample(
                (_LOGITS, _CLASSES),
                ShapeError,
                "cross_entropy: reduction='average'",
                {"reduction": "average"},
            ),
            BadSample(
                (_LOGITS, _CLASSES),
                ShapeError,
                "cross_entropy: label_smoothing=1.0",
                {"label_smoothing": 1.0},
            ),
            BadSample(
                (_LOGITS, _CLASSES),
                ShapeError,
                "cross_entropy: extents of weights and of the classes differ: 2 and 3",
                {"weights": np.ones(2)},
            ),
            BadSample(
                (_LOGITS, _ROWS),
                ShapeError,
                "cross_entropy: ignore_index=0 for labels that are distributions",
                {"ignore_index": 0},
            ),
        ],
        reference=_cross_entropy_reference,
    ),
    numerics="reassoc",
)
NLL_LOSS = Composite(
    kind=Kind.REDUCTION,
    function=nll_loss,
    tests=Tests(
        samples=lambda: [
            Sample((_LOGITS, _CLASSES)),
            Sample((_LOGITS.T, _CLASSES), {"axis": 0, "weights": _FACTORS}),
            Sample((_FOUR, _IGNORED), {"ignore_index": 7}),
        ],
        bad_samples=lambda: [
            BadSample(
                (_LOGITS, np.array([0.5, 1.0])),
                DTypeError,
                "nll_loss: labels of dtype float64 with 1 axes",
            ),
            BadSample(
                (_LOGITS, _LOGITS),
                ShapeError,
                "nll_loss: labels of 2 axes for log-probabilities of 2",
            ),
        ],
        reference=_nll_reference,
    ),
    numerics="reassoc",
)
SMOOTH_LABELS = Composite(
    kind=Kind.ELEMENTWISE,
    function=smooth_labels,
    tests=Tests(
        samples=lambda: [
            Sample((_ROWS,), {"smoothing": 0.1}),
            Sample((_ROWS,), {"smoothing": 0.5, "axis": 0}),
        ],
        bad_samples=lambda: [
            BadSample((_ROWS,), ShapeError, "smooth_labels: smoothing=1.5", {"smoothing": 1.5})
        ],
        reference=lambda t, smoothing, axis=-1: (1 - smoothing) * t + smoothing / t.shape[axis],
    ),
)

RECORDS = (CROSS_ENTROPY, NLL_LOSS, SMOOTH_LABELS)
