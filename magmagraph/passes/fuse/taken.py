"""Compute functions of a table's rows once for each row, not each time that one is taken.

Rows of embeddings are taken more often than there are rows. Before::

    %2 = take(%1, %0, axis=0, mode='clip') : float32[20000, 64]  # of a table of 5000 rows
    %3 = tanh(%2) : float32[20000, 64]

After::

    %2 = tanh(%1) : float32[5000, 64]
    %3 = take(%2, %0, axis=0, mode='clip') : float32[20000, 64]

Values are the same: `exact`. A processor takes rows in a step of its own, so that all between two
such steps is passed over memory; a GPU takes them in the kernel that reads them, and keeps them.
"""

from __future__ import annotations

import math

from ...codegen.region.parts import costly
from ...ir.graph import Graph, Node, Trace
from ...ir.op import Kind
from ...ir.types import Extent
from ...ops.indexing.gathering import TAKE
from ..lowering.buffers import hinted
from ..pipeline import Options
from ..simplify.linear import exchanged

__all__ = ["taken_last"]

RULE = "rows are taken of what is computed of a table"
TIMES = 2  # how often a row is taken, at least

Place = tuple[Node, tuple[Extent, ...], int, str]  # of rows: positions, table, axis, mode


def taken_last(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with elementwise functions of taken rows computed of tables."""
    tables: dict[Node, Node] = {}  # what rows are taken of, for each value that is taken rows
    places: dict[Node, Place] = {}
    for node in graph.nodes:
        if node.op is TAKE and _is_worth_it(node, options):
            table, positions = node.inputs
            tables[node] = table
            places[node] = positions, table.shape, node.attrs["axis"], node.attrs["mode"]
        elif node.op.kind is Kind.ELEMENTWISE and node.op.scalar.expression is not None:
            place = _common(node, places)
            if place is not None:
                tables[node] = node.op(*(tables.get(o, o) for o in node.inputs), **node.attrs)
                places[node] = place
    mapping: dict[Node, Node] = {}
    roots = set(graph.roots)
    for node, (positions, _, axis, mode) in places.items():
        if node.op is TAKE:
            continue
        ends = node in roots or any(user not in places for user in graph.users[node])
        if ends and _gains(node, places, graph):
            mapping[node] = TAKE(tables[node], positions, axis=axis, mode=mode)
    return exchanged(graph, mapping, trace, options, "fuse", RULE)


def _count(node: Node, options: Options) -> int:
    return math.prod(hinted(extent, options.hints) for extent in node.shape)


def _is_worth_it(node: Node, options: Options) -> bool:
    table = node.inputs[0]
    return TIMES * _count(table, options) <= _count(node, options)


def _common(node: Node, places: dict[Node, Place]) -> Place | None:
    """Return where all operands are taken from, but for numbers; None where they differ."""
    if isinstance(node.type, tuple):
        return None
    found = {places[o] for o in node.inputs if o in places}
    others = (o for o in node.inputs if o not in places)
    if len(found) != 1 or any(o.ndim for o in others):
        return None
    (place,) = found
    return place if all(o.shape == node.shape for o in node.inputs if o in places) else None


def _gains(node: Node, places: dict[Node, Place], graph: Graph) -> bool:
    """Return whether a function is called, and no rows are taken that were not taken before."""
    seen: set[Node] = set()
    todo = [node]
    while todo:
        value = todo.pop()
        if value not in seen:
            seen.add(value)
            todo += (o for o in value.inputs if o in places) if value.op is not TAKE else ()
    inside = {value for value in seen if value.op is not TAKE}
    taken = [value for value in seen if value.op is TAKE]
    if not any(map(costly, inside)):
        return False
    roots = set(graph.roots)
    return all(
        value not in roots and all(user in seen for user in graph.users[value])
        for value in (*taken, *(inside - {node}))
    )
