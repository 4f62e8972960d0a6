"""What the functions of networks ask of their operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.graph import Node
from ..ir.op import Call
from ..ir.types import Extent
from ..losses.common import wide_node
from ..ops.convert import as_node, cast
from ..ops.elementwise.family import floating
from ..ops.shape.arrange import reshape

Axes = int | Sequence[int]


def wide(x: Any) -> Node:
    """Return a float operand; 16-bit floats as float32, in which sums keep range and precision."""
    return wide_node(floating(x))


def like(result: Node, x: Any) -> Node:
    """Return a result in the float dtype of an operand."""
    return cast(result, floating(x).dtype)


def along(call: Call, name: str, value: Any, x: Node, axes: Sequence[int]) -> Node:
    """Return a parameter with one axis for each of `axes`, shaped so that it broadcasts to x."""
    node = as_node(value, x.dtype)
    if node.ndim == 0:
        return cast(node, x.dtype)
    if node.ndim != len(axes):
        raise call.shape_error(
            f"{name} has shape {node.shape} for {len(axes)} axes",
            need=f"shape {tuple(x.shape[axis] for axis in axes)}",
        )
    shape: list[Extent] = [1] * x.ndim
    for axis, extent in zip(axes, node.shape, strict=True):
        call.unify(extent, x.shape[axis], f"extents of {name} and of axis {axis}")
        shape[axis] = extent
    return cast(reshape(node, shape), x.dtype)
