"""Which nodes are something that ranks do together: what they say is launched elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from ....graph import Graph, Node
from ....op import Kind

__all__ = ["bodies_within", "holds", "is_message", "speaks"]


def is_message(node: Node) -> bool:
    """Return whether a node is one end of a message between two ranks."""
    return node.op.kind is Kind.COLLECTIVE and ("to" in node.attrs or "source" in node.attrs)


def speaks(node: Node) -> bool:
    """Return whether a node, or one of its bodies, is something that ranks do together."""
    return _is_collective(node) or any(holds(body, _is_collective) for body in bodies_within(node))


def _is_collective(node: Node) -> bool:
    return node.op.kind is Kind.COLLECTIVE


def bodies_within(node: Node) -> list[Graph]:
    """Return the graphs among a node's attributes."""
    found = []
    for value in node.attrs.values():
        several = value if isinstance(value, tuple) else (value,)
        found += [part for part in several if isinstance(part, Graph)]
    return found


def holds(graph: Graph, asked: Callable[[Node], bool]) -> bool:
    """Return whether a graph, or a body in it, has a node that is asked for."""
    return any(
        asked(node) or any(holds(body, asked) for body in bodies_within(node))
        for node in graph.nodes
    )
