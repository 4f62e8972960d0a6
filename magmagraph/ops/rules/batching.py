"""How operations are mapped over an axis: the rules that words stand for, and what rules share.

A rule is given a node and operands in the places of its own. Where ``batched[i]``, operand ``i``
has the mapped axis in front of the axes of ``node.inputs[i]``; else it is of that very type. The
result has the mapped axis in front, so that one node does what a loop over the axis would; None
says that only a loop does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.graph import Node
from ...ir.op import Effect, Kind, Op
from ...ir.types import Extent
from ..shape.arrange import lifted, moveaxis, reshape
from ..shape.joining import broadcast_to

Rule = Callable[[Node, Sequence[Node], Sequence[bool]], Any]

# What operations of a kind have whose record says nothing.
_BY_KIND = {
    Kind.ELEMENTWISE: "elementwise",
    Kind.REDUCTION: "axes",
    Kind.RANDOM: "shape",
    Kind.LINALG: "leading",
}


def rule_of(op: Op) -> Rule | None:
    """Return the rule of an operation, or None where only a loop does it."""
    batching = op.batching or _BY_KIND.get(op.kind, "")
    return batching if callable(batching) else WORDS.get(batching)


def mapped_extent(operands: Sequence[Node], batched: Sequence[bool]) -> Extent:
    """Return the extent of the mapped axis."""
    return next(o.shape[0] for o, is_batched in zip(operands, batched, strict=True) if is_batched)


def repeated(operand: Node, extent: Extent) -> Node:
    """Return an operand once for each position along a new first axis."""
    return broadcast_to(operand, (extent, *operand.shape))


def all_batched(operands: Sequence[Node], batched: Sequence[bool]) -> list[Node]:
    """Return the operands, each with the mapped axis in front."""
    extent = mapped_extent(operands, batched)
    return [
        o if is_batched else repeated(o, extent)
        for o, is_batched in zip(operands, batched, strict=True)
    ]


def to_front(node: Node, axis: int) -> Node:
    """Return a node with one of its axes first."""
    return moveaxis(node, axis, 0)


def _elementwise(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    aligned = [
        lifted(operand, node.ndim) if is_batched else operand
        for operand, is_batched in zip(operands, batched, strict=True)
    ]
    return node.op(*aligned, **node.attrs)


def moved_axes(attrs: Any) -> dict[str, Any]:
    """Return attributes with the axes that count from the front moved up by one."""
    new_attrs = dict(attrs)
    for name in ("axis", "axes"):
        value = new_attrs.get(name)
        if isinstance(value, int):
            new_attrs[name] = value + 1 if value >= 0 else value
        elif isinstance(value, tuple):
            new_attrs[name] = tuple(a + 1 if a >= 0 else a for a in value)
    return new_attrs


def _axes(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    rank = max(operand.ndim for operand in node.inputs)
    aligned = [lifted(operand, rank) for operand in all_batched(operands, batched)]
    return node.op(*aligned, **moved_axes(node.attrs))


def _leading(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node | None:
    if len({operand.ndim for operand in node.inputs}) > 1:
        # Which of their axes broadcast against each other is known to the operation only.
        return None
    return node.op(*all_batched(operands, batched), **node.attrs)


def map_systems(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    """Map equations ``(matrices, right-hand sides)``, both of two axes and a batch in front."""
    a, b = operands
    if not batched[0] and a.ndim == 2 and node.ndim == 2:
        # All right-hand sides of one matrix: it is factored once.
        columns = moveaxis(b, 0, 1)
        flat = reshape(columns, (b.shape[1], b.shape[0] * b.shape[2]))
        return to_front(reshape(node.op(a, flat, **node.attrs), columns.shape), 1)
    aligned = [
        lifted(operand, node.ndim) if along else operand
        for operand, along in zip(operands, batched, strict=True)
    ]
    return node.op(*aligned, **node.attrs)


def _identity(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    value, *others = operands
    if not batched[0]:
        value = repeated(value, mapped_extent(operands, batched))
    return node.op(value, *others, **node.attrs)


def map_draws(node: Node, extent: Extent) -> Node:
    """Return a random node that draws anew for each position along a new first axis."""
    return node.op(*node.inputs, **{**node.attrs, "shape": (extent, *node.attrs["shape"])})


WORDS: dict[str, Rule] = {
    "elementwise": _elementwise,
    "axes": _axes,
    "leading": _leading,
    "identity": _identity,
}


def draws(node: Node) -> bool:
    """Return whether a node's value is a draw whose number of elements its shape says."""
    return node.op.effect is Effect.RANDOM and node.op.kind is Kind.RANDOM
