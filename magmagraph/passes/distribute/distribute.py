"""Shard a named dimension over processes: collectives where reductions cross it.

It stands first, because collectives are ordinary nodes that every later pass must see. The graph is
walked once, from its leaves: the dimension stands for a rank's own rows, a reduction or contraction
over it becomes the rank's own and an all-reduce, and its size, where the graph computes with it,
the sum of the ranks' sizes. Gradients, losses, batches of unequal parts and synchronized
statistics follow. Then all-reduces are joined into buckets. A function of one process is returned
as it came.

Before and after::

    %0 = input() : float32[batch]  # x
    %1 = sum(%0, axis=(0,)) : float32[]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...errors import ShardingError, message
from ...ir.graph import Graph, Node, Trace
from ...ops.collective.messages import SEND
from ...ops.control.identities import HELD, ITEM
from ...ops.elementwise.arithmetic import divide
from ...ops.random.redrawing import redrawn
from ..loops import prune_within
from ..pipeline import Options
from ..precision.loss_scaling import settled
from .buckets import exchanged
from .conditional_sums import followed, joined
from .layouts import MICRO, Sharded, Way
from .pipeline import cut
from .rules import rule_of
from .walk import Walk, as_sum, counts, gradients_apart

__all__ = ["distribute"]


def distribute(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph of one rank, or the graph as it came where there is one process."""
    facts = options.distribute
    if facts is None:
        return graph
    if facts.streams:
        graph = redrawn(
            graph,
            facts.streams,
            lambda old, new: trace.replace(old, new, "distribute", "streams of the first rank"),
        )
        options.record.note("random nodes draw from the streams of the first rank")
    sharded = Sharded(facts.dim)
    if not any(sharded.axes(leaf.type) for leaf in graph.inputs):
        extents = ", ".join(sorted({str(e) for x in graph.inputs for e in x.shape})) or "none"
        raise ShardingError(
            message(
                f"no input has the dimension {facts.dim!r}, which is to be sharded",
                need=f"an axis of that name; the inputs' extents are {extents}",
                hint=f"DataParallel(dim=...), or mg.input(..., shape=({facts.dim!r}, ...))",
            )
        )
    # Rows that a loop keeps for gradients that nobody takes would read its carries, too, and have
    # sums over ranks taken in every turn.
    changed = prune_within(graph, trace, options, "distribute")
    if facts.size > 1 or facts.pipeline is None:
        changed = _walked(changed, facts, sharded, trace, options)
    if facts.pipeline is not None:
        micro = replace(
            facts, group=MICRO, size=facts.pipeline.micro_batches, synchronized=True, axes=()
        )
        changed = _walked(changed, micro, sharded, trace, options)
        if facts.pipeline.stages > 1:
            changed = settled(changed, options.record)
        changed = cut(changed, facts.pipeline, facts.dim)
        sent = sum(node.op is SEND for node in changed.effects)
        options.record.hit("send to another stage", sent)
    return joined(exchanged(changed, facts, trace, options), facts, trace, options)


def _walked(
    graph: Graph, facts: Any, sharded: Sharded, trace: Trace, options: Options
) -> Graph:
    """Return the graph of one of the parts that rows are cut into."""
    walk = Walk(facts, sharded, counts(graph.nodes, graph.roots), rule_of)
    # A captured graph does the same at every launch: the host has to know which one is due.
    walk.conditional = options.target.device == "cpu" or followed(graph, facts)
    walk.apart = gradients_apart(graph.nodes) if facts.group != MICRO else walk.apart
    walk.run(graph.nodes)
    outputs = [walk.complete(node) for node in graph.outputs]
    effects = [walk.complete(node) for node in graph.effects]
    updates = [_renewed(walk, value) for _, value in graph.updates]
    copies: dict[Node, Node] = {}

    def note(node: Node, member: Node) -> None:
        copies[node] = member

    count, last = len(outputs), len(outputs) + len(effects)
    members = graph.interner.intern_all([*outputs, *effects, *updates], note)
    for node in graph.nodes:
        value = walk.value[node]
        if not isinstance(value, tuple) and node.op is not ITEM:
            trace.replace(node, copies.get(value, value), "distribute", "shard")
    for value, node in walk.joined.items():
        if value in copies:
            trace.replace(node, copies[value], "distribute", "all-reduce")
            options.record.hit("all-reduce")
    return graph.replace(
        outputs=members[:count],
        effects=members[count:last],
        updates=_pairs(graph, members[last:]),
    )


def _pairs(graph: Graph, values: Sequence[Node]) -> list[tuple[Node, Node]]:
    return [(variable, new) for (variable, _), new in zip(graph.updates, values, strict=True)]


def _renewed(walk: Walk, value: Node) -> Node:
    """Return a variable's new value, the same on all ranks."""
    layout = walk.layout[value]
    if layout.way is Way.OWN:
        # Statistics that ranks keep for themselves: what is stored is their mean.
        return divide(walk.reduced(walk.value[value], "sum"), walk.facts.size)
    if value.attrs.get("role") == HELD and walk.facts.group != MICRO:
        return as_sum(walk, value)
    return walk.complete(value)
