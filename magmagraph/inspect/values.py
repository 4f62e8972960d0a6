"""Values of a program's nodes, from the last graph that contains each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import GraphError, message
from ..ir.graph import Graph, Node
from ..ir.interpret import evaluate
from ..ir.op import Effect, describe
from ..ops.control.observing import muted
from .checking.running import Feeds, bind
from .node_history import moves, source_nodes


def values(function: Any, nodes: Sequence[Node], *feeds: Any, **named: Any) -> list[Any]:
    """Return the values of nodes; see `magmagraph.checks.debug.values`."""
    sources = source_nodes(function)
    members: list[Node] = []
    for node in nodes:
        if not isinstance(node, Node):
            raise GraphError(message(f"{type(node).__name__} has no value", need="a node"))
        member = sources.get(node)
        if member is None:
            raise GraphError(
                message(
                    f"the function does not compute {describe(node)}",
                    need="a node that its outputs or updates depend on",
                )
            )
        # A tap is worth what it looks at.
        members.append(member.inputs[0] if member.op.effect is Effect.ORDERED else member)
    bound = bind(function, feeds, named)
    latest_values = latest(function, bound, members)
    return [_own(latest_values[member]) for member in members]


def _own(value: Any) -> Any:
    """Return a value as unshared arrays."""
    return tuple(map(np.array, value)) if isinstance(value, tuple) else np.array(value)


def last_stands(function: Any, members: Iterable[Node]) -> dict[Node, tuple[Graph, Node]]:
    """Return for nodes of the source graph the last graph that has each, and its node there."""
    source: Graph = function.source_graph
    here = dict.fromkeys(members)
    stands = {member: (source, member) for member in here}
    active = {member: member for member in here}
    for name, before, after in function.report.steps():
        if not isinstance(after, Graph):
            break
        if after is before:
            continue
        present = set(after.nodes)
        followed: dict[Node, Node] = {}
        for member, node in active.items():
            new = node if node in present else stand_in(function.trace, name, node, present)
            if new is not None:
                followed[member] = new
                stands[member] = (after, new)
        active = followed
    return stands


def stand_in(trace: Any, name: str, node: Node, present: set[Node]) -> Node | None:
    """Return the node, among those present after a pass, that has a node's value, or None."""
    for move in moves(trace, name, {node: False}):
        if not move.inside and move.new in present and move.new.type == node.type:
            return move.new
    return None


def latest(function: Any, feeds: Feeds, members: Iterable[Node]) -> dict[Node, Any]:
    """Return the values of nodes of the source graph, each in the last graph that has it."""
    stands = last_stands(function, members)
    graphs = dict.fromkeys(graph for graph, _ in stands.values())
    with function._lock, muted():
        evaluated = {graph: _evaluated(graph, feeds.arrays, feeds.sizes) for graph in graphs}
    return {member: evaluated[graph][node] for member, (graph, node) in stands.items()}


def _evaluated(
    graph: Graph, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]
) -> dict[Node, Any]:
    fed = dict(zip(graph.inputs, arrays, strict=True))
    return evaluate(graph, fed, sizes)
