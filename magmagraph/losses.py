"""Losses: cross-entropy, binary cross-entropy, mean squared error.

Each is written from the values that are exact: cross-entropy from logits never forms a probability,
and its gradient is the softmax less the labels, of one exponential an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .dtypes import is_integer
from .errors import ShapeError, message
from .graph import Node
from .op import BadSample, Call, Composite, Kind, Sample
from .ops.activation import softplus
from .ops.comparison import where
from .ops.control import stop_gradient
from .ops.convert import as_node, cast
from .ops.elementwise import add, multiply, negative, square, subtract
from .ops.family import floating, floating_pair
from .ops.index import is_class
from .ops.math import exp, log
from .ops.reduction import max, sum
from .ops.statistics import mean

__all__ = ["binary_cross_entropy", "cross_entropy", "mse"]

_REDUCTIONS = ("mean", "sum", "none")


def shifted(x: Node, axes: int | Sequence[int]) -> Node:
    """Return `x` less its largest element along axes, so that exponentials cannot overflow.

    What is computed of it does not depend on the shift, so no gradient flows through it.
    """
    return subtract(x, stop_gradient(max(x, axes, keepdims=True)))


def _wide(node: Node) -> Node:
    return cast(node, np.float32) if node.dtype.itemsize < 4 else node


def _reduced(name: str, loss: Node, reduction: str, dtype: np.dtype) -> Node:
    if reduction == "mean":
        loss = mean(loss)
    elif reduction == "sum":
        loss = sum(loss)
    elif reduction != "none":
        raise ShapeError(
            message(f"{name}: reduction={reduction!r}", need=f"one of {', '.join(_REDUCTIONS)}")
        )
    return cast(loss, dtype)


def cross_entropy(
    logits: Any,
    labels: Any,
    *,
    axis: int = -1,
    from_logits: bool = True,
    epsilon: float = 1e-8,
    reduction: str = "mean",
) -> Node:
    """Compute the cross-entropy between labels and the probabilities of classes.

    From logits z: ``log(sum(exp(z))) - z[label]``, or ``-sum(t * log_softmax(z))`` for
    distributions t. From probabilities p: ``-sum(t * log(p + epsilon))``.

    Parameters
    ----------
    logits
        Node or array with an axis of classes: scores, or probabilities if not `from_logits`.
    labels
        Integers, with one axis less: the classes, which must lie in ``[0, classes)`` (a kernel
        cannot raise). Or, with as many axes, one-hot rows or any distributions.
    axis
        The axis of the classes.
    from_logits
        Whether the first operand holds logits.
    epsilon
        Added to probabilities, so that log(0) is out of reach.
    reduction
        "mean" over everything but the classes, "sum", or "none".

    Returns
    -------
    Node
        A scalar, or without the class axis with "none"; of the float dtype of `logits`.

    Raises
    ------
    ShapeError
        If the labels fit neither form.

    Examples
    --------
    >>> import magmagraph as mg
    >>> loss = mg.cross_entropy([[0.0, 1000.0], [0.0, 0.0]], mg.constant([1, 0]))
    >>> round(float(loss.eval()), 4)
    0.3466
    >>> loss = mg.cross_entropy([[0.25, 0.75]], [[0.0, 1.0]], from_logits=False)
    >>> round(float(loss.eval()), 4)
    0.2877
    """
    given = floating(logits)
    target = as_node(labels)
    call = Call(CROSS_ENTROPY, (given, target))
    axis = call.axis(axis, given.ndim)
    score = _wide(given)
    loss = _per_row(call, score, target, axis, from_logits, epsilon)
    return _reduced("cross_entropy", loss, reduction, given.dtype)


def _per_row(
    call: Call, score: Node, target: Node, axis: int, from_logits: bool, epsilon: float
) -> Node:
    classes = score.shape[axis]
    rows = (*score.shape[:axis], *score.shape[axis + 1 :])
    if target.ndim == score.ndim - 1:
        if not is_integer(target.dtype):
            raise call.dtype_error(
                f"labels of dtype {target.dtype.name} with {target.ndim} axes",
                need="integers (one axis less than the logits), or rows of as many axes",
            )
        for left, right in zip(rows, target.shape, strict=True):
            call.unify(left, right, "extents of logits and labels")
        chosen = is_class(target, classes, axis)

        def expected(values: Node) -> Node:
            return sum(where(chosen, values, 0.0), axis)

        if not from_logits:
            return negative(log(add(expected(score), epsilon)))
        shift = shifted(score, axis)
        return subtract(log(sum(exp(shift), axis)), expected(shift))
    if target.ndim != score.ndim:
        raise call.shape_error(
            f"labels of {target.ndim} axes for logits of {score.ndim}",
            need="one axis less (integers), or as many (one-hot rows)",
            mend="mg.squeeze(labels, -1) for a column of integers",
        )
    for left, right in zip(score.shape, target.shape, strict=True):
        call.unify(left, right, "extents of logits and labels")
    weights = cast(target, score.dtype)
    if not from_logits:
        return negative(sum(multiply(weights, log(add(score, epsilon))), axis))
    shift = shifted(score, axis)
    total = multiply(log(sum(exp(shift), axis)), sum(weights, axis))
    return subtract(total, sum(multiply(weights, shift), axis))


def binary_cross_entropy(
    logits: Any,
    labels: Any,
    *,
    from_logits: bool = True,
    epsilon: float = 1e-8,
    reduction: str = "mean",
) -> Node:
    """Compute the cross-entropy of events with two outcomes.

    From logits z: ``t * softplus(-z) + (1 - t) * softplus(z)``, which neither overflows nor
    cancels. From probabilities p: ``-t * log(p + epsilon) - (1 - t) * log(1 - p + epsilon)``.

    Parameters
    ----------
    logits
        Node or array: scores, or probabilities if not `from_logits`.
    labels
        Of a shape that broadcasts to it: 1 (or true) where the event happened, 0 where not, or
        its probability.
    from_logits
        Whether the first operand holds logits.
    epsilon
        Added to probabilities, so that log(0) is out of reach.
    reduction
        "mean" over all elements, "sum", or "none".

    Returns
    -------
    Node
        A scalar, or of the broadcast shape with "none".

    Raises
    ------
    ShapeError
        If the shapes do not broadcast.

    Examples
    --------
    >>> import magmagraph as mg
    >>> round(float(mg.binary_cross_entropy([0.0, 1000.0], [1.0, 1.0]).eval()), 4)
    0.3466
    """
    given = floating(logits)
    score = _wide(given)
    target = cast(as_node(labels), score.dtype)
    other = subtract(1.0, target)
    if from_logits:
        happened, missed = softplus(negative(score)), softplus(score)
    else:
        happened = negative(log(add(score, epsilon)))
        missed = negative(log(add(subtract(1.0, score), epsilon)))
    loss = add(multiply(target, happened), multiply(other, missed))
    return _reduced("binary_cross_entropy", loss, reduction, given.dtype)


def mse(prediction: Any, target: Any, *, reduction: str = "mean") -> Node:
    """Compute the mean squared error.

    Parameters
    ----------
    prediction, target
        Nodes or arrays, broadcast against each other.
    reduction
        "mean" over all elements, "sum", or "none".

    Returns
    -------
    Node
        A scalar, or of the broadcast shape with "none".

    Raises
    ------
    ShapeError
        If the shapes do not broadcast.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.mse([1.0, 2.0], [1.0, 4.0]).eval()
    array(2., dtype=float32)
    """
    left, right = floating_pair(prediction, target)
    loss = square(subtract(_wide(left), _wide(right)))
    return _reduced("mse", loss, reduction, left.dtype)


# Records.

_LOGITS = np.array([[0.3, -1.2, 0.8], [2.0, 0.1, -0.5]])
_ROWS = np.array([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]])
_CLASSES = np.array([2, 0])
_EVENTS = np.array([[1.0, 0.0, 1.0], [0.0, 0.25, 1.0]])
_CHANCES = np.array([[0.9, 0.2, 0.6], [0.3, 0.5, 0.8]])


def _settled(loss: Any, reduction: str) -> Any:
    if reduction == "none":
        return loss
    return np.mean(loss) if reduction == "mean" else np.sum(loss)


def _cross_entropy_reference(
    logits: np.ndarray,
    labels: np.ndarray,
    axis: int = -1,
    from_logits: bool = True,
    epsilon: float = 1e-8,
    reduction: str = "mean",
) -> Any:
    scores = np.moveaxis(logits, axis, -1)
    if labels.ndim == logits.ndim:
        rows = np.moveaxis(labels, axis, -1)
    else:
        rows = np.eye(scores.shape[-1])[labels]
    if from_logits:
        logs = scores - np.log(np.sum(np.exp(scores), axis=-1, keepdims=True))
    else:
        logs = np.log(scores + epsilon)
    return _settled(-np.sum(rows * logs, axis=-1), reduction)


def _binary_reference(
    logits: np.ndarray,
    labels: np.ndarray,
    from_logits: bool = True,
    epsilon: float = 1e-8,
    reduction: str = "mean",
) -> Any:
    if from_logits:
        logs, others = -np.logaddexp(0.0, -logits), -np.logaddexp(0.0, logits)
    else:
        logs, others = np.log(logits + epsilon), np.log(1.0 - logits + epsilon)
    return _settled(-(labels * logs + (1.0 - labels) * others), reduction)


CROSS_ENTROPY = Composite(
    name="cross_entropy",
    kind=Kind.REDUCTION,
    function=cross_entropy,
    doc="Cross-entropy between labels and class probabilities.",
    samples=lambda: [
        Sample((_LOGITS, _CLASSES)),
        Sample((_LOGITS, _ROWS), {"reduction": "sum"}),
        Sample((_LOGITS.T, _CLASSES), {"axis": 0, "reduction": "none"}),
        Sample((_CHANCES, _CLASSES), {"from_logits": False}),
        Sample((_CHANCES, _ROWS), {"from_logits": False, "epsilon": 1e-3}),
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
    ],
    reference=_cross_entropy_reference,
    numerics="reassoc",
)
BINARY_CROSS_ENTROPY = Composite(
    name="binary_cross_entropy",
    kind=Kind.REDUCTION,
    function=binary_cross_entropy,
    doc="Cross-entropy of events with two outcomes.",
    samples=lambda: [
        Sample((_LOGITS, _EVENTS)),
        Sample((_CHANCES, _EVENTS), {"from_logits": False, "reduction": "none"}),
    ],
    bad_samples=lambda: [
        BadSample(
            (_LOGITS, _EVENTS),
            ShapeError,
            "binary_cross_entropy: reduction='average'",
            {"reduction": "average"},
        )
    ],
    reference=_binary_reference,
    numerics="reassoc",
)
MSE = Composite(
    name="mse",
    kind=Kind.REDUCTION,
    function=mse,
    doc="The mean squared error.",
    samples=lambda: [Sample((_LOGITS, _ROWS)), Sample((_LOGITS, _ROWS), {"reduction": "none"})],
    bad_samples=lambda: [
        BadSample(
            (_LOGITS, _ROWS), ShapeError, "mse: reduction='average'", {"reduction": "average"}
        )
    ],
    reference=lambda prediction, target, reduction="mean": _settled(
        (prediction - target) ** 2, reduction
    ),
    numerics="reassoc",
)

RECORDS = (CROSS_ENTROPY, BINARY_CROSS_ENTROPY, MSE)
