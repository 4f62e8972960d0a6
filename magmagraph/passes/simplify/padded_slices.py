"""Rewrite a sum of zero-padded slices to a concatenation.

It is what the gradient of `split` makes, of every slice a piece among zeros.
"""

from __future__ import annotations

from ...ir.graph import Node
from ...ir.types import Extent
from ...ops.elementwise.arithmetic import ADD
from ...ops.shape.joining import CONCATENATE
from ...ops.shape.slicing import PLACE
from ..rewriting.rewrite import Match, Rule


def placed_axis(node: Node) -> int | None:
    """Return the one axis along which a slice is padded with zeros, or None for anything else."""
    attrs = node.attrs
    if node.op is not PLACE or set(attrs["steps"]) != {1} or attrs["value"] != 0:
        return None
    piece = node.inputs[0]
    pairs = zip(piece.shape, node.shape, strict=True)
    axes = [axis for axis, (extent, whole) in enumerate(pairs) if extent != whole]
    return axes[0] if len(axes) == 1 else None


def _refusal(match: Match) -> str | None:
    """Return why two pieces along one axis stay apart."""
    left, right = match.root.inputs
    axis = placed_axis(left)
    if axis is None or placed_axis(right) != axis or left.type != right.type:
        return None
    if _ordered(left, right, axis) is None:
        return "the slices are not adjacent, or they overlap"
    if match.reads(left) > 1 or match.reads(right) > 1:
        return "another operation reads one of the padded slices"
    return None


def _together(match: Match) -> Node | None:
    left, right = match.root.inputs
    axis = placed_axis(left)
    if axis is None or placed_axis(right) != axis or left.type != right.type:
        return None
    pair = _ordered(left, right, axis)
    if pair is None:
        return None
    first, second = pair
    joined = CONCATENATE(*_parts(first, axis), *_parts(second, axis), axis=axis)
    return PLACE(joined, **first.attrs)


def _ordered(left: Node, right: Node, axis: int) -> tuple[Node, Node] | None:
    """Return two pieces, first the one at whose end the other begins; None where neither does."""
    if _end(left, axis) == _start(right, axis):
        return left, right
    if _end(right, axis) == _start(left, axis):
        return right, left
    return None


def _start(node: Node, axis: int) -> Extent:
    start: Extent = node.attrs["starts"][axis]
    return start


def _end(node: Node, axis: int) -> Extent:
    return _start(node, axis) + node.inputs[0].shape[axis]


def _parts(node: Node, axis: int) -> tuple[Node, ...]:
    """Return the parts of a concatenation along the axis."""
    piece = node.inputs[0]
    if piece.op is CONCATENATE and piece.attrs["axis"] == axis:
        return piece.inputs
    return (piece,)


RULES: tuple[Rule, ...] = (
    Rule(
        "sum of zero-padded slices to concatenation",
        (ADD,),
        _together,
        _refusal,
        looks=lambda node: all(operand.op is PLACE for operand in node.inputs),
        complex=True,
    ),
)
