"""Tell which nodes are messages between ranks, which are launched elsewhere."""

from __future__ import annotations

from ....ir.graph import Node
from ....ir.op import Kind
from ...rank_agreement import bodies_within, holds, speaks

__all__ = ["bodies_within", "holds", "is_message", "speaks"]


def is_message(node: Node) -> bool:
    """Return whether a node is one end of a message between two ranks."""
    return node.op.kind is Kind.COLLECTIVE and ("to" in node.attrs or "source" in node.attrs)
