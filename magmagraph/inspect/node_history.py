"""The history of nodes: from the user's, through every pass, to the steps of the plan.

A `Trace` has single replacements. Here they are joined into routes: which nodes of the graph
after each pass compute what a node of the source graph computed, and inside which others it went.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import MagmagraphError
from ..ir.graph import Graph, Node, Trace
from ..ir.op import Kind, describe

INSIDE = "inside"  # the rule's name for what has no result of its own in a fused node
OPERANDS = "operands"  # the rule's name for a node made again because its operands changed


@dataclass(frozen=True)
class Move:
    """One replacement: `new` computes what `old` did, or holds it inside.

    rule: The rule of the pass.
    old, new: The nodes.
    inside: True where `new` computes `old` without returning it.
    """

    rule: str
    old: Node
    new: Node
    inside: bool


def moves(trace: Trace, name: str, nodes: Mapping[Node, bool]) -> Iterator[Move]:
    """Return the replacements of nodes by a pass, and those of the replacements.

    trace: Of the compile.
    name: The pass.
    nodes: Node -> whether what is followed is inside of it only.
    """
    seen = set(nodes)
    pending = list(nodes.items())
    while pending:
        node, contained = pending.pop()
        for by, rule, new in trace.became.get(node, ()):
            if by != name:
                continue
            inside = contained or (rule == INSIDE and holds_bodies(new))
            yield Move(rule, node, new, inside)
            if new not in seen:
                seen.add(new)
                pending.append((new, inside))


def holds_bodies(node: Node) -> bool:
    """Return whether a node holds graphs."""
    return any(
        isinstance(value, Graph)
        or (isinstance(value, tuple) and bool(value) and isinstance(value[0], Graph))
        for value in node.attrs.values()
    )


def advance(
    trace: Trace, name: str, after: Graph, nodes: Mapping[Node, bool]
) -> tuple[dict[Node, bool], list[Move]]:
    """Return the nodes that represent some nodes after a pass, and the rewrites between."""
    present = set(after.nodes)
    steps = list(moves(trace, name, nodes))
    successors: dict[Node, bool] = {}
    for node, inside in [*nodes.items(), *((move.new, move.inside) for move in steps)]:
        if node in present:
            successors[node] = successors.get(node, True) and inside
    return successors, steps


def source_nodes(function: Any) -> dict[Node, Node]:
    """Return the node of the source graph for each of the user's nodes."""
    members: dict[Node, Node] = {}
    trace: Trace = function.trace
    present = set(function.source_graph.nodes)
    for member, users in trace.sources.items():
        if member in present:
            members.update(dict.fromkeys(users, member))
    members.update((node, node) for node in present)
    return members


def final_nodes(function: Any) -> dict[Node, set[Node]]:
    """Return, for each node of the last graph, the nodes of the source graph that it computes."""
    trace: Trace = function.trace
    here: dict[Node, dict[Node, None]] = {n: {n: None} for n in function.source_graph.nodes}
    for name, _, after in function.report.steps():
        if not isinstance(after, Graph):
            continue
        present = set(after.nodes)
        nexts: dict[Node, dict[Node, None]] = {}
        for node, sources in here.items():
            if node in present:
                nexts.setdefault(node, {}).update(sources)
            for move in moves(trace, name, {node: False}):
                if move.new in present:
                    nexts.setdefault(move.new, {}).update(sources)
        here = nexts
    return {node: set(sources) for node, sources in here.items()}


def users_of(function: Any) -> dict[Node, list[Node]]:
    """Return, for each node of the last graph, the user's nodes that it computes, in order."""
    order = {node: i for i, node in enumerate(function.source_graph.nodes)}
    trace: Trace = function.trace
    return {
        node: [
            user
            for source in sorted(sources, key=order.__getitem__)
            if source.op.kind is not Kind.LEAF
            for user in trace.sources.get(source, [source])
        ]
        for node, sources in final_nodes(function).items()
    }


def step_describer(function: Any) -> Callable[[Node], str]:
    """Return what tells the user's nodes that a step computes, with lines, the first two of them.

    The history is looked up at its first call.
    """
    cache: list[dict[Node, list[Node]]] = []

    def describe_step(node: Node) -> str:
        if not cache:
            cache.append(users_of(function))
        origins = cache[0].get(node) or function.trace.origins(node) or [node]
        shown = dict.fromkeys(describe(user) for user in origins[:2])
        return "; ".join(shown) + (" ..." if len(origins) > 2 else "")

    return describe_step


def locate(function: Any, error: MagmagraphError) -> None:
    """Add to an error that a step raised the user's nodes which that step computes."""
    node: Node = error.node
    users = users_of(function).get(node) or function.trace.origins(node)
    if not users and node.line:  # of the body of a loop or a branch
        users = [node]
    named = [f"\n  node: {describe(user)}" for user in users]
    error.args = (f"{error}{''.join(dict.fromkeys(named))}", *error.args[1:])
    error.node = None


def maker(node: Node) -> tuple[Node, int]:
    """Return the node whose kernel makes a value, and which of its results it is.

    Aliases are other names for their operand's memory; projections choose one of several results.
    """
    index = 0
    while True:
        if len(node.inputs) == 1 and isinstance(node.inputs[0].type, tuple):
            index = int(node.attrs["index"])
        elif not node.op.layout.alias:
            return node, index
        node = node.inputs[0]
