"""How convolutions are mapped over an axis: into the batch, or into groups of channels.

Input and result of a convolution share their batch, so that a mapped axis of both joins it. Where
the weights have the axis too, each position is a group of channels of its own: its input meets its
own weights only.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Node
from ..shape.arrange import moveaxis, reshape
from .batching import mapped_extent, repeated

# What is an operand or a result: values (batch, channels, ...) or weights (results, channels, ...).
VALUES, WEIGHTS = "values", "weights"


def _joined(node: Node, role: str, last: bool) -> Node:
    """Return a node whose first axis is the outer one of its channels, or of the results."""
    if last:
        place = node.ndim - 2
    else:
        place = 1 if role == VALUES else 0
    channels_first = moveaxis(node, 0, place)
    both = channels_first.shape[place] * channels_first.shape[place + 1]
    return reshape(
        channels_first, (*channels_first.shape[:place], both, *channels_first.shape[place + 2 :])
    )


def _apart(node: Node, like: Node, count: int, role: str, last: bool) -> Node:
    """Undo `_joined` for a result of the shape of `like` at each of `count` positions."""
    if last:
        place = node.ndim - 1
    else:
        place = 1 if role == VALUES else 0
    shape = (*node.shape[:place], count, like.shape[place], *node.shape[place + 1 :])
    return moveaxis(reshape(node, shape), place, 0)


def map_convolution(
    roles: tuple[str, str, str], node: Node, operands: Sequence[Node], batched: Sequence[bool]
) -> Node | None:
    """Map a product of two operands; `roles` are those of the operands and of the result."""
    attrs = node.attrs
    count = mapped_extent(operands, batched)
    shared = [role for role, along in zip(roles, batched, strict=False) if not along]
    if shared == [WEIGHTS] and roles[2] == VALUES:
        merged = [
            reshape(o, (o.shape[0] * o.shape[1], *o.shape[2:])) if along else o
            for o, along in zip(operands, batched, strict=True)
        ]
        return reshape(node.op(*merged, **attrs), (count, *node.shape))
    if not isinstance(count, int):
        return None  # groups are counted when the graph is built
    last = attrs["channels_last"]
    grouped = [
        _joined(o if along else repeated(o, count), role, last)
        for o, role, along in zip(operands, roles, batched, strict=False)
    ]
    result = node.op(*grouped, **{**attrs, "groups": attrs["groups"] * count})
    return _apart(result, node, count, roles[2], last)
