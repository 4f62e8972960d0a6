"""Look through layout operations: view the operand of one as if it were its result."""

from __future__ import annotations

from ...ir.graph import Node
from ...ir.op import Op
from ...ir.types import Shape
from ...ops.reduction.primitives import SUM
from ...ops.shape.arrange import RESHAPE, TRANSPOSE, reshape, transpose
from ...ops.shape.joining import BROADCAST_TO
from ...ops.shape.slicing import SLICE
from ..simplify.layout import is_one, moved

INVERTIBLE = frozenset((RESHAPE, TRANSPOSE))
MOVES = frozenset((RESHAPE, TRANSPOSE, SLICE))


def through(layout: Node, operand: Node) -> Node | None:
    """Return `operand` under the same move as ``layout.inputs[0]``, with which it broadcasts.

    None where it would have to be repeated first.
    """
    source = layout.inputs[0]
    if operand is source:
        return layout
    if operand.shape == ():
        return operand
    if operand.ndim < source.ndim and layout.op is not RESHAPE:
        operand = padded(operand, source.ndim)
    if operand.shape == source.shape:
        result = layout.op(operand, **layout.attrs)
    elif operand.ndim != source.ndim:
        return None
    elif layout.op is TRANSPOSE:
        result = transpose(operand, layout.attrs["axes"])
    elif layout.op is SLICE:
        result = _sliced(layout, source, operand)
    else:
        return None
    return settled(result)


def padded(node: Node, ndim: int) -> Node:
    """Return a node with leading axes of extent 1, as broadcasting adds them."""
    return reshape(node, (*(1 for _ in range(ndim - node.ndim)), *node.shape))


def settled(node: Node) -> Node:
    """Return a node whose outermost moves are joined into as few as can be."""
    while node.op in MOVES or node.op is BROADCAST_TO:
        simpler = moved(node)
        if simpler is None:
            break
        node = simpler
    return node


def _sliced(layout: Node, source: Node, operand: Node) -> Node:
    """Return the same piece of an operand that is repeated along some of the axes."""
    repeated = [
        is_one(e) and not is_one(full) for e, full in zip(operand.shape, source.shape, strict=True)
    ]
    starts, steps = layout.attrs["starts"], layout.attrs["steps"]
    return SLICE(
        operand,
        starts=tuple(0 if r else s for r, s in zip(repeated, starts, strict=True)),
        steps=tuple(1 if r else s for r, s in zip(repeated, steps, strict=True)),
        shape=tuple(1 if r else e for r, e in zip(repeated, layout.shape, strict=True)),
    )


def undone(layout: Node, operand: Node) -> Node | None:
    """Return `operand` under the inverse of a reshape or transpose; None where it broadcasts."""
    if operand.shape == ():
        return operand
    source = layout.inputs[0]
    if layout.op is TRANSPOSE:
        axes: tuple[int, ...] = layout.attrs["axes"]
        operand = padded(operand, layout.ndim)
        return transpose(operand, tuple(sorted(range(len(axes)), key=axes.__getitem__)))
    if operand.shape == layout.shape:
        return reshape(operand, source.shape)
    return None


def operand_below(node: Node) -> Node:
    """Return the operand below all layout operations of a node."""
    while node.op in MOVES:
        node = node.inputs[0]
    return node


def operand_of(node: Node, op: Op) -> Node | None:
    """Return the first operand of a moved ``op(a, ...)`` moved alike: f(move) for move(f).

    None where another operation stands below the moves, or where the operand broadcasts.
    """
    moves: list[Node] = []
    while node.op in MOVES:
        moves.append(node)
        node = node.inputs[0]
    if node.op is not op or node.inputs[0].shape != node.shape:
        return None
    operand = node.inputs[0]
    for move in reversed(moves):
        result = move.op(operand, **move.attrs)
        simpler = moved(result)
        operand = result if simpler is None else simpler
    return operand


def restored_shape(total: Node) -> Shape:
    """Return the shape of a sum with its axes back as extents 1."""
    source, axes = total.inputs[0], total.attrs["axes"]
    return tuple(1 if a in axes else e for a, e in enumerate(source.shape))


def sum_of(divisor: Node, source: Node) -> Node | None:
    """Return the sum over axes of `source` that `divisor` repeats along them, or None."""
    total = divisor.inputs[0] if divisor.op is RESHAPE else divisor
    if total.op is not SUM or total.inputs[0] is not source:
        return None
    axes: tuple[int, ...] = total.attrs["axes"]
    if divisor.shape == restored_shape(total) or (
        divisor is total and axes == tuple(range(len(axes)))
    ):
        return total
    return None
