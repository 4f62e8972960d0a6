"""Graphs for networkx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import GraphError, message
from ..ir.docstrings import documented
from ..ir.graph import Graph, Node, topological
from ..text.writing import Writer

if TYPE_CHECKING:
    import networkx


@documented
def to_networkx(what: Any) -> networkx.MultiDiGraph:
    """Return nodes and their operands as a `networkx.MultiDiGraph`.

    what (Node, list or dict of nodes, Function, or Graph): What lies below the nodes; of a
        function, its optimized graph.
    returns (networkx.MultiDiGraph): Nodes are numbered from 0, operands first. Each has the
        attributes ``op``, ``kind``, ``name``, ``type`` (as text), ``dtype`` (its name) and
        ``shape`` (a tuple of ints and texts; of operations with several results these two are
        tuples of them), ``line`` (the user's, as text) and ``node`` (the node itself). An edge
        leads from an operand to what reads it; its key and its attribute ``operand`` are the
        operand's position. ``output`` (a position) and ``update`` (the number of the updated
        variable) mark what is returned and what becomes a variable's new value; a variable has
        ``updated_by``.
    raises GraphError: It is none of these.

    >>> x = mg.input("x", shape=("batch", 3))
    >>> graph = mg.to_networkx(x * x)
    >>> list(graph.edges(data="operand"))
    [(0, 1, 0), (0, 1, 1)]
    >>> graph.nodes[1]["op"], graph.nodes[1]["shape"]
    ('multiply', ('batch', 3))
    """
    import networkx

    nodes, outputs, updates = members(what)
    number = {node: i for i, node in enumerate(nodes)}
    writer = Writer()
    result = networkx.MultiDiGraph()
    for node, i in number.items():
        result.add_node(i, **_attributes(node, writer))
        for position, operand in enumerate(node.inputs):
            result.add_edge(number[operand], i, key=position, operand=position)
    for position, node in enumerate(outputs):
        result.nodes[number[node]].setdefault("output", position)
    for variable, value in updates:
        result.nodes[number[value]]["update"] = number[variable]
        result.nodes[number[variable]]["updated_by"] = number[value]
    return result


def members(
    what: Any,
) -> tuple[Sequence[Node], Sequence[Node], Sequence[tuple[Node, Node]]]:
    """Return the nodes of whatever holds some, operands first; its outputs; its updates."""
    graph = what if isinstance(what, (Graph, Node)) else getattr(what, "graph", what)
    if isinstance(graph, Graph):
        leaves = dict.fromkeys((*graph.inputs, *graph.nodes))
        nodes = graph.nodes if len(leaves) == len(graph.nodes) else tuple(leaves)
        return nodes, graph.outputs, graph.updates
    roots = _roots(graph)
    return topological(roots), roots, ()


def _roots(what: Any) -> list[Node]:
    if isinstance(what, Node):
        return [what]
    if isinstance(what, Mapping):
        return [node for member in what.values() for node in _roots(member)]
    if isinstance(what, (list, tuple)):
        return [node for member in what for node in _roots(member)]
    outputs = getattr(what, "outputs", None)  # of a model
    if isinstance(outputs, tuple) and all(isinstance(node, Node) for node in outputs):
        return list(outputs)
    raise GraphError(
        message(
            f"{type(what).__name__} holds no nodes",
            need="a node, a list or dict of nodes, a function, or a graph",
        )
    )


def _attributes(node: Node, writer: Writer) -> dict[str, Any]:
    several = isinstance(node.type, tuple)
    types = node.type if several else (node.type,)
    dtypes = tuple(type_.dtype.name for type_ in types)
    shapes = tuple(
        tuple(e if isinstance(e, int) else writer.extent(e) for e in type_.shape) for type_ in types
    )
    return {
        "op": node.op.name,
        "kind": node.op.kind.value,
        "name": node.name,
        "type": writer.types(node.type),
        "dtype": dtypes if several else dtypes[0],
        "shape": shapes if several else shapes[0],
        "line": str(node.line) if node.line else None,
        "group": node.line.scope if node.line else "",
        "node": node,
    }
