"""Losses of events with two outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.lines import grouped
from ..ir.op import Sample
from ..ops.convert import cast
from ..ops.elementwise.arithmetic import add, multiply, negative, subtract
from ..ops.elementwise.family import floating
from ..ops.elementwise.math import log, power
from ..ops.networks.activation import sigmoid, softplus
from .common import check_last_axis, loss_record, reduced, settled, weighted, wide_node

__all__ = ["binary_cross_entropy", "focal_loss"]


@grouped
@documented
def binary_cross_entropy(
    logits: Any,
    labels: Any,
    *,
    from_logits: bool = True,
    epsilon: float = 1e-8,
    reduction: str = "mean",
    weights: Any = None,
    positive_weight: Any = None,
) -> Node:
    """Compute the cross-entropy of events with two outcomes.

    From logits z: ``t * softplus(-z) + (1 - t) * softplus(z)``, which neither overflows nor
    cancels. From probabilities p: ``-t * log(p + epsilon) - (1 - t) * log(1 - p + epsilon)``.

    logits: Node or array: scores, or probabilities if not `from_logits`.
    labels: Of a shape that broadcasts to it: 1 (or true) where the event happened, 0 where not, or
        its probability.
    from_logits: Whether the first operand holds logits.
    epsilon: Added to probabilities, so that log(0) is out of reach.
    positive_weight: Factor of the term of events that happened, broadcast to it: above 1 for rare
        events.
    returns: A scalar, or of the broadcast shape with "none".
    raises ShapeError: If the shapes do not broadcast.

    >>> round(float(mg.binary_cross_entropy([0.0, 1000.0], [1.0, 1.0]).eval()), 4)
    0.3466
    """
    scores = floating(logits)
    score = wide_node(scores)
    target = cast(labels, score.dtype)
    check_last_axis("binary_cross_entropy", score, target)
    other = subtract(1.0, target)
    if from_logits:
        happened, missed = softplus(negative(score)), softplus(score)
    else:
        happened = negative(log(add(score, epsilon)))
        missed = negative(log(add(subtract(1.0, score), epsilon)))
    loss = add(weighted(multiply(target, happened), positive_weight), multiply(other, missed))
    return reduced("binary_cross_entropy", weighted(loss, weights), reduction, scores.dtype)


@grouped
@documented
def focal_loss(
    logits: Any,
    labels: Any,
    *,
    gamma: float = 2.0,
    alpha: float | None = None,
    reduction: str = "mean",
) -> Node:
    """Compute a binary cross-entropy in which events that are predicted well count little.

    ``(1 - p)**gamma`` times the cross-entropy, p being the probability that the logit gives to
    what happened; T. Lin et al., "Focal loss for dense object detection", ICCV 2017, equation 5.

    logits: Node or array of scores.
    labels: Of a shape that broadcasts to it: 1 (or true) where the event happened, else 0.
    gamma: The exponent: 0, or at least 1. 0 gives `binary_cross_entropy`.
    alpha: In [0, 1]: factor of events that happened; the others have ``1 - alpha``. None: neither.
    returns: A scalar, or of the broadcast shape with "none".
    raises ShapeError: If the shapes do not broadcast, or `gamma` or `alpha` is out of range.

    >>> mg.focal_loss([0.0, 5.0], [1.0, 1.0], reduction="none").eval().round(6)
    array([0.173287, 0.      ], dtype=float32)
    """
    if gamma != 0 and not gamma >= 1:
        raise ShapeError(
            message(f"focal_loss: gamma={gamma}", need="0, or at least 1: the slope is finite then")
        )
    if alpha is not None and not 0 <= alpha <= 1:
        raise ShapeError(message(f"focal_loss: alpha={alpha}", need="a number in [0, 1]"))
    scores = floating(logits)
    score = wide_node(scores)
    target = cast(labels, score.dtype)
    check_last_axis("focal_loss", score, target)
    other = subtract(1.0, target)
    loss = add(
        multiply(target, softplus(negative(score))), multiply(other, softplus(score))
    )
    if gamma:
        missed = add(
            multiply(target, sigmoid(negative(score))), multiply(other, sigmoid(score))
        )
        loss = multiply(power(missed, float(gamma)), loss)
    if alpha is not None:
        loss = multiply(loss, add(multiply(target, alpha), multiply(other, 1.0 - alpha)))
    return reduced("focal_loss", loss, reduction, scores.dtype)


# Records.

_LOGITS = np.array([[0.3, -1.2, 0.8], [2.0, 0.1, -0.5]])
_CHANCES = np.array([[0.9, 0.2, 0.6], [0.3, 0.5, 0.8]])
_FACTORS = np.array([0.5, 2.0, 1.5])
_EVENTS = np.array([[1.0, 0.0, 1.0], [0.0, 0.25, 1.0]])
_HAPPENED = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])


def _binary_reference(
    logits: np.ndarray,
    labels: np.ndarray,
    from_logits: bool = True,
    epsilon: float = 1e-8,
    reduction: str = "mean",
    weights: Any = 1.0,
    positive_weight: Any = 1.0,
) -> Any:
    if from_logits:
        logs, others = -np.logaddexp(0.0, -logits), -np.logaddexp(0.0, logits)
    else:
        logs, others = np.log(logits + epsilon), np.log(1.0 - logits + epsilon)
    loss = -(positive_weight * labels * logs + (1.0 - labels) * others)
    return settled(weights * loss, reduction)


def _focal_reference(
    logits: np.ndarray,
    labels: np.ndarray,
    gamma: float = 2.0,
    alpha: float | None = None,
    reduction: str = "mean",
) -> Any:
    right = np.where(labels == 1, 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(logits)))
    loss = -((1 - right) ** gamma) * np.log(right)
    if alpha is not None:
        loss = loss * np.where(labels == 1, alpha, 1 - alpha)
    return settled(loss, reduction)


BINARY_CROSS_ENTROPY = loss_record(
    binary_cross_entropy,
    "Cross-entropy of events with two outcomes.",
    _binary_reference,
    lambda: [
        Sample((_LOGITS, _EVENTS)),
        Sample((_CHANCES, _EVENTS), {"from_logits": False, "reduction": "none"}),
        Sample((_LOGITS, _EVENTS), {"weights": _FACTORS, "positive_weight": 3.0}),
    ],
)


FOCAL_LOSS = loss_record(
    focal_loss,
    "Binary cross-entropy in which events that are predicted well count little.",
    _focal_reference,
    lambda: [
        Sample((_LOGITS, _HAPPENED), gradient=(0,), reason="labels are 0 or 1"),
        Sample(
            (_LOGITS, _HAPPENED),
            {"gamma": 1.5, "alpha": 0.25, "reduction": "sum"},
            gradient=(0,),
            reason="labels are 0 or 1",
        ),
        Sample(
            (_LOGITS, _HAPPENED), {"gamma": 0.0}, gradient=(0,), reason="labels are 0 or 1"
        ),
    ],
)

RECORDS = (BINARY_CROSS_ENTROPY, FOCAL_LOSS)
