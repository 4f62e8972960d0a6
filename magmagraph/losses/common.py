"""What all losses share: shifted scores, wide operands, and how a loss is reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.op import BadSample, Composite, Kind, Sample, Tests
from ..ops.control.identities import stop_gradient
from ..ops.convert import as_node, cast
from ..ops.elementwise.arithmetic import divide, multiply, subtract
from ..ops.reduction.primitives import max, sum
from ..ops.reduction.statistics import mean

REDUCTIONS = ("mean", "sum", "none")


@documented
def shifted(x: Node, axes: int | Sequence[int]) -> Node:
    """Return `x` less its largest element along axes, so that exponentials cannot overflow.

    What is computed of it does not depend on the shift, so no gradient flows through it.

    x (Node): Scores, of any float dtype.
    axes: The axes along which the largest element is taken.
    returns: Of the shape and dtype of `x`; the largest element along the axes is 0.

    >>> from magmagraph.losses import shifted
    >>> shifted(mg.constant([1000.0, 1002.0]), 0).eval()
    array([-2.,  0.], dtype=float32)
    """
    return subtract(x, stop_gradient(max(x, axes, keepdims=True)))


def wide_node(node: Node) -> Node:
    """Return a node of 16-bit floats as float32, in which sums keep range and precision."""
    return cast(node, np.float32) if node.dtype.itemsize < 4 else node


def check_reduction(name: str, reduction: str) -> None:
    """Raise unless `reduction` is one of the three."""
    if reduction not in REDUCTIONS:
        raise ShapeError(
            message(f"{name}: reduction={reduction!r}", need=f"one of {', '.join(REDUCTIONS)}")
        )


def reduced(
    name: str, loss: Node, reduction: str, dtype: np.dtype, weights: Node | None = None
) -> Node:
    """Return the loss reduced; with `weights`, the mean divides by their sum."""
    check_reduction(name, reduction)
    if reduction == "mean":
        loss = mean(loss) if weights is None else divide(sum(loss), sum(weights))
    elif reduction == "sum":
        loss = sum(loss)
    return cast(loss, dtype)


def weighted(loss: Node, weights: Any) -> Node:
    """Return the elements of a loss times weights that broadcast to them."""
    if weights is None:
        return loss
    factors = as_node(weights, loss.dtype)
    check_last_axis("losses and weights", loss, factors)
    return multiply(loss, cast(factors, loss.dtype))


def check_last_axis(what: str, left: Node, right: Node) -> None:
    """Refuse a column beside a row of as many: they would broadcast to all pairs of elements."""
    long, short = (left, right) if left.ndim > right.ndim else (right, left)
    if long.ndim != short.ndim + 1 or long.shape != (*short.shape, 1):
        return
    if all(isinstance(extent, int) and extent == 1 for extent in short.shape):
        return  # one element each way
    raise ShapeError(
        message(
            f"{what}: shapes {left.shape} and {right.shape} differ by a last axis of 1, and "
            "would broadcast to every pair of elements",
            need="one shape",
            hint="x[..., 0] of the longer, or x[..., None] of the shorter",
        )
    )


# References and records.


def settled(loss: Any, reduction: str, total: Any = None) -> Any:
    """Return what `reduced` does, of arrays."""
    if reduction == "none":
        return loss
    if reduction == "sum":
        return np.sum(loss)
    return np.mean(loss) if total is None else np.sum(loss) / np.sum(total)


def average_refused(name: str, *inputs: Any) -> Callable[[], list[BadSample]]:
    """Return the bad sample of every loss: a reduction that there is not."""
    return lambda: [
        BadSample(
            inputs, ShapeError, f"{name}: reduction='average'", {"reduction": "average"}
        )
    ]


def loss_record(
    function: Callable[..., Node],
    doc: str,
    reference: Callable[..., Any],
    samples: Callable[[], list[Sample]],
) -> Composite:
    """Return the record of a loss; its first sample's operands make the bad sample."""
    name = function.__name__
    return Composite(
        name=name,
        kind=Kind.REDUCTION,
        function=function,
        doc=doc,
        tests=Tests(
            samples=samples,
            bad_samples=lambda: average_refused(name, *samples()[0].inputs)(),
            reference=reference,
        ),
        numerics="reassoc",
    )
