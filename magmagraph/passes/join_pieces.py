"""Join pieces of arrays where they are, without copies of the pieces.

Before::

    %0 = input() : float32[6, n]  # x
    %1 = slice(%0, starts=(4, 0), steps=(1, 1), shape=(2, n)) : float32[2, n]
    %2 = slice(%0, starts=(0, 0), steps=(1, 1), shape=(4, n)) : float32[4, n]
    %3 = concatenate(%1, %2, axis=0) : float32[6, n]
    return %3

After::

    %0 = input() : float32[6, n]  # x
    %1 = join_pieces(%0, %0, axis=0, starts=(4, 0), lengths=(2, 4)) : float32[6, n]
    return %1

This is what a roll is: half of what it moved in memory were copies of its pieces. Refused where a
piece is of an array that would be computed whole for it. A GPU reads the pieces inside of regions.

Numerics: `exact`.
"""

from __future__ import annotations

from ..ir.graph import Graph, Node, Trace
from ..ir.op import Kind
from ..ir.types import Extent
from ..ops.shape.joining import CONCATENATE
from ..ops.shape.lowered import JOIN_PIECES
from ..ops.shape.slicing import SLICE
from .pipeline import Options
from .simplify.linear import exchanged

RULE = "join pieces where they are"


def join_pieces(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph whose concatenations read pieces of arrays, on a CPU."""
    mapping: dict[Node, Node] = {}
    if options.target.device == "cpu":
        for node in graph.nodes:
            if node.op is CONCATENATE:
                joined = _joined(node, options)
                if joined is not None:
                    mapping[node] = joined
    return exchanged(graph, mapping, trace, options, "join_pieces", RULE)


def _joined(node: Node, options: Options) -> Node | None:
    """Return the concatenation of pieces in place of one of copies, or None."""
    axis = node.attrs["axis"]
    pieces = [_piece(operand, axis) for operand in node.inputs]
    if all(start is None for _, start, _ in pieces):
        return None
    taken: dict[Node, Extent] = {}
    for source, start, length in pieces:
        if start is not None:
            taken[source] = taken.get(source, 0) + length
    for source, length in taken.items():
        if source.op.kind is not Kind.LEAF and length != source.shape[axis]:
            options.record.refuse(RULE, node, "a piece is of an array that is computed for it")
            return None
    starts = tuple(0 if start is None else start for _, start, _ in pieces)
    lengths = tuple(length for _, _, length in pieces)
    return JOIN_PIECES(*(s for s, _, _ in pieces), axis=axis, starts=starts, lengths=lengths)


def _piece(operand: Node, axis: int) -> tuple[Node, Extent | None, Extent]:
    """Return the array that an operand is a piece of, where it begins there, and its extent."""
    length = operand.shape[axis]
    if operand.op is not SLICE or set(operand.attrs["steps"]) != {1}:
        return operand, None, length
    (source,), starts = operand.inputs, operand.attrs["starts"]
    for place, (start, extent) in enumerate(zip(starts, source.shape, strict=True)):
        if place != axis and (operand.shape[place] != extent or start != 0):
            return operand, None, length
    return source, starts[axis], length
