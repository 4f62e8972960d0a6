"""Sums over ranks that only some calls need, in buckets of their own.

An optimizer that adds up gradients over calls needs their sum over ranks at the call that applies
them. Such sums are joined with each other, and never with what has to travel at every call.
"""

from __future__ import annotations

from ...ir.graph import Graph, Node, Trace
from ...ir.op import Kind
from ...ops.collective.timed import (
    ALLGATHER_WHEN,
    ALLREDUCE_MANY_WHEN,
    ALLREDUCE_WHEN,
    REDUCE_SCATTER_WHEN,
)
from ...ops.control.identities import ITEM, SENT_WHEN, is_scaling_state
from ...ops.leaf import Variable
from ..pipeline import Options
from .buckets import buckets
from .walk import Facts

__all__ = ["followed", "joined"]


def followed(graph: Graph, facts: Facts) -> bool:
    """Return whether a card's host can tell which calls send, and a graph of each sort be captured.

    The host follows integer variables that nothing but such variables renews: a counter of calls.
    With loss scaling no variable is renewed where a gradient is not finite, which the device alone
    knows.
    """
    if any(is_scaling_state(value) for _, value in graph.updates):
        return False
    renewed = dict(graph.updates)
    timed = (SENT_WHEN, ALLREDUCE_WHEN, REDUCE_SCATTER_WHEN, ALLGATHER_WHEN)
    asking = [node for node in graph.nodes if node.op in timed]
    if facts.algorithm != "allreduce" and any(node.dtype.itemsize < 4 for node in asking):
        return False  # rings of our own add 16-bit floats in kernels of the graph
    left = [node.inputs[1] for node in asking]
    seen = set(left)
    while left:
        node = left.pop()
        operands = node.inputs
        if node.shape or node.dtype.kind not in "iub":
            return False
        if isinstance(node, Variable):
            operands = (renewed[node],) if node in renewed else ()
        elif not operands:
            if "value" not in node.attrs:
                return False
        elif node.op.kind is not Kind.ELEMENTWISE:
            return False
        left += [operand for operand in operands if operand not in seen]
        seen.update(operands)
    return True


def joined(graph: Graph, facts: Facts, trace: Trace, options: Options) -> Graph:
    """Return the graph with its sums of some calls joined, by their flags."""
    if not any(node.op is ALLREDUCE_WHEN for node in graph.nodes):
        return graph
    mapping: dict[Node, Node] = {}
    for bucket in buckets(graph, facts.bucket_bytes, ALLREDUCE_WHEN):
        by_flag: dict[Node, list[Node]] = {}
        for node in bucket:
            by_flag.setdefault(node.inputs[1], []).append(node)
        for flag, members in by_flag.items():
            total = sum(node.type.bytes for node in members if isinstance(node.type.bytes, int))
            what = f"{len(members)} arrays" if len(members) > 1 else str(members[0].type)
            options.record.note(
                f"message of the calls that apply: sum of {what} ({total:,} bytes of "
                f"{members[0].dtype.name}) over {facts.size} ranks by "
                f"{facts.algorithm.replace('allreduce', 'all-reduce')}"
            )
            if len(members) == 1:
                continue
            messages = ALLREDUCE_MANY_WHEN(
                *(node.inputs[0] for node in members), flag, **members[0].attrs
            )
            for index, node in enumerate(members):
                mapping[node] = graph.interner.intern(ITEM(messages, index=index))
                trace.replace(node, mapping[node], "distribute", "bucket")
    if not mapping:
        return graph
    return graph.substitute(
        mapping, lambda old, new: trace.replace(old, new, "distribute", "bucket")
    )
