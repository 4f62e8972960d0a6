"""Weights of elements: of the shape of what they weigh, or of the extents of some axes."""

from __future__ import annotations

import numpy as np

from ...ir.graph import Node
from ...ir.op import Call, Composite
from ..shape.arrange import expand_dims, transpose
from ..shape.joining import broadcast_to
from .folding import Axis

__all__ = ["weights_like"]


def weights_like(record: Composite, node: Node, weights: Node, axis: Axis) -> Node:
    """Return weights in the shape of what they weigh.

    record: The function, for the errors.
    node: What they weigh.
    weights: Of the shape of `node`, or of the extents of `axis`, in the order in which it names
        them.
    axis: What the user gave.
    raises ShapeError: If they do not fit.
    """
    call = Call(record, (node, weights))
    if weights.ndim != node.ndim:
        axes = [] if axis is None else [axis] if isinstance(axis, (int, np.integer)) else axis
        places = [call.axis(each, node.ndim) for each in axes]
        if weights.ndim != len(places):
            raise call.shape_error(
                f"weights of {weights.ndim} axes for {node.ndim} axes",
                need="the shape of the operand, or an axis for each axis of the weights",
            )
        weights = transpose(weights, sorted(range(len(places)), key=places.__getitem__))
        weights = expand_dims(weights, [i for i in range(node.ndim) if i not in places])
    call.broadcast(node.shape, weights.shape)
    return broadcast_to(weights, node.shape)
