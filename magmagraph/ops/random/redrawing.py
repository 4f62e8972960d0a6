"""Copies of programs whose random nodes draw from other streams.

Ranks that a strategy spreads one program over draw from the streams of their first rank, as their
variables begin as its own: a program that seeds each rank by its number, or asks for any seed,
would draw other noise on each for what all of them hold, and weights would part without a word.
Rows draw by their place among all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ...ir.graph import Graph, Node

__all__ = ["redrawing", "redrawn", "streams_in"]

Renew = Callable[[Node, tuple[Node, ...]], Node | None]
Stream = tuple[int, int]  # the seed, and the stream's number
Streams = Mapping[Stream, Stream]


def streams_in(nodes: Iterable[Node]) -> Iterator[Stream]:
    """Yield what each random node draws from, in order, bodies of loops and branches included."""
    for node in nodes:
        if _is_random(node):
            yield node.attrs["seed"], node.attrs["stream"]
        for body in _bodies(node.attrs.values()):
            yield from streams_in(body.nodes)


def _is_random(node: Node) -> bool:
    return "seed" in node.attrs and "stream" in node.attrs


def _bodies(values: Iterable[Any]) -> Iterator[Graph]:
    for value in values:
        if isinstance(value, Graph):
            yield value
        elif isinstance(value, tuple):
            yield from _bodies(value)


def redrawing(streams: Streams) -> Renew:
    """Return what `transforms.rebuild` is told to renew: nodes that draw, and loops around such.

    streams: Stream -> the one that takes its place; others stay.
    """

    def renew(node: Node, operands: tuple[Node, ...]) -> Node | None:
        attrs = dict(node.attrs)
        if _is_random(node):
            key = (attrs["seed"], attrs["stream"])
            attrs["seed"], attrs["stream"] = streams.get(key, key)
        elif any(True for _ in _bodies(attrs.values())):
            attrs = {name: _within(value, streams) for name, value in attrs.items()}
        else:
            return None
        copy = node.op(*operands, name=node.name, **attrs)
        copy.line = node.line
        return copy

    return renew


def _within(value: Any, streams: Streams) -> Any:
    if isinstance(value, Graph):
        return redrawn(value, streams)
    return tuple(_within(v, streams) for v in value) if isinstance(value, tuple) else value


def redrawn(
    graph: Graph, streams: Streams, note: Callable[[Node, Node], None] | None = None
) -> Graph:
    """Return a frozen graph that draws from other streams.

    graph, streams: As above.
    note: ``note(old, new)`` is called for each node that is made again.
    """
    renew = redrawing(streams)
    interner = graph.interner
    copies: dict[Node, Node] = {}
    for node in graph.nodes:
        operands = tuple(copies[operand] for operand in node.inputs)
        fresh = renew(node, operands)
        copies[node] = interner.make(node, operands) if fresh is None else interner.intern(fresh)
        if note is not None and copies[node] is not node:
            note(node, copies[node])
    return graph.replace(
        outputs=[copies[node] for node in graph.outputs],
        updates=[(updates, copies[value]) for updates, value in graph.updates],
        effects=[copies[node] for node in graph.effects],
    )
