"""Losses that compare distributions, and sets as distributions of zeros and ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.lines import grouped
from ..ir.op import Call, Sample
from ..ops.elementwise.arithmetic import add, divide, multiply, subtract
from ..ops.elementwise.comparison import greater, where
from ..ops.elementwise.family import floating_pair
from ..ops.elementwise.math import exp, log
from ..ops.reduction.primitives import sum
from .common import check_last_axis, loss_record, reduced, settled, wide_node

__all__ = ["dice_loss", "kl_divergence"]


@grouped
@documented
def kl_divergence(
    log_predictions: Any,
    targets: Any,
    *,
    axis: int = -1,
    log_target: bool = False,
    reduction: str = "mean",
) -> Node:
    """Compute the Kullback-Leibler divergence of predictions from targets.

    ``sum(t * (log(t) - log_predictions))`` along an axis; S. Kullback, R. Leibler, "On information
    and sufficiency", Annals of Mathematical Statistics 22, 1951.

    log_predictions: Node or array of logarithms of probabilities.
    targets: Probabilities, or with `log_target` their logarithms; broadcast against the
        predictions. Where a target is 0 its term is 0.
    axis: The axis of the classes, which are added up.
    log_target: Whether `targets` holds logarithms.
    reduction: "mean" over everything but the classes, "sum", or "none".
    returns: A scalar, or without the class axis with "none".
    raises ShapeError: If the shapes do not broadcast, or the axis is out of range.

    >>> logs = mg.log_softmax([[0.0, 0.0]])
    >>> round(float(mg.kl_divergence(logs, [[1.0, 0.0]]).eval()), 4)
    0.6931
    """
    left, right = floating_pair(log_predictions, targets)
    check_last_axis("kl_divergence", left, right)
    logs, target = wide_node(left), wide_node(right)
    chance = exp(target) if log_target else target
    some = greater(chance, 0.0)
    if not log_target:
        target = log(where(some, target, 1.0))
    # A difference of two infinities would be NaN in the branch that is not taken.
    terms = multiply(chance, subtract(where(some, target, 0.0), where(some, logs, 0.0)))
    axis = Call(KL_DIVERGENCE, (left, right)).axis(axis, terms.ndim)
    return reduced("kl_divergence", sum(terms, axis), reduction, left.dtype)


@grouped
@documented
def dice_loss(
    probabilities: Any,
    labels: Any,
    *,
    axis: Any = None,
    smooth: float = 1.0,
    reduction: str = "mean",
) -> Node:
    """Compute one less the overlap of two sets, such as a mask and its prediction.

    ``1 - (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth)``; F. Milletari, N. Navab, S. Ahmadi,
    "V-Net", 3DV 2016, with the sums of Dice's coefficient unsquared.

    probabilities, labels: Nodes or arrays of one shape, broadcast against each other.
    axis: The axes of one set: pixels, as a rule. None: all of them.
    smooth: Added above and below, so that two empty sets overlap wholly.
    reduction: "mean" over the sets, "sum", or "none".
    returns: A scalar, or without the axes of a set with "none".
    raises ShapeError: If the shapes do not broadcast, or an axis is out of range.

    >>> round(float(mg.dice_loss([1.0, 1.0, 0.0], [1.0, 0.0, 0.0], smooth=0.0).eval()), 4)
    0.3333
    """
    left, right = floating_pair(probabilities, labels)
    check_last_axis("dice_loss", left, right)
    p, t = wide_node(left), wide_node(right)
    common = sum(multiply(p, t), axis)
    whole = sum(add(p, t), axis)
    overlap = divide(add(multiply(common, 2.0), smooth), add(whole, smooth))
    return reduced("dice_loss", subtract(1.0, overlap), reduction, left.dtype)


# Records.

_LOGS = np.log([[0.2, 0.5, 0.3], [0.1, 0.6, 0.3]])
_ROWS = np.array([[0.3, 0.3, 0.4], [0.0, 0.75, 0.25]])
_POSITIVE = np.array([[0.3, 0.3, 0.4], [0.05, 0.7, 0.25]])
_SETS = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])


def _kl_reference(
    logs: Any, t: Any, axis: int = -1, log_target: bool = False, reduction: str = "mean"
) -> Any:
    from scipy.special import rel_entr

    return settled(np.sum(rel_entr(np.exp(t) if log_target else t, np.exp(logs)), axis), reduction)


def _dice_reference(
    p: Any, t: Any, axis: Any = None, smooth: float = 1.0, reduction: str = "mean"
) -> Any:
    overlap = (2 * np.sum(p * t, axis) + smooth) / (np.sum(p, axis) + np.sum(t, axis) + smooth)
    return settled(np.asarray(1 - overlap), reduction)


KL_DIVERGENCE = loss_record(
    kl_divergence,
    "The Kullback-Leibler divergence.",
    _kl_reference,
    lambda: [
        Sample((_LOGS, _POSITIVE)),
        Sample(
            (_LOGS, _ROWS), {"reduction": "sum"}, gradient=(0,), reason="an infinite slope at 0"
        ),
        Sample((_LOGS, np.log(_POSITIVE)), {"log_target": True, "reduction": "none", "axis": 0}),
    ],
)


DICE_LOSS = loss_record(
    dice_loss,
    "One less the overlap of two sets.",
    _dice_reference,
    lambda: [
        Sample((_POSITIVE, _SETS)),
        Sample((_POSITIVE, _SETS), {"axis": -1, "smooth": 0.1, "reduction": "none"}),
    ],
)

RECORDS = (KL_DIVERGENCE, DICE_LOSS)
