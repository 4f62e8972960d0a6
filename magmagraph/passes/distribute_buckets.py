"""All-reduces joined into buckets, in the order in which a backward pass makes their parts.

A message costs a fixed time beside that for its bytes, so that many small ones are sent as one.
Buckets are small enough that the first are under way while later gradients are computed. Which
all-reduces may be joined: those of one reduction, group and dtype on which no other collective
depends; of the others those that depend on equally many collectives. Neither can close a cycle.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dtypes import is_inexact
from ..graph import Graph, Node, Trace
from ..op import Kind
from ..ops.collective.whole import ALLREDUCE, ALLREDUCE_MANY
from ..ops.control.identities import ITEM
from .distribute_algorithms import summed
from .distribute_walk import Facts
from .pipeline import Options

__all__ = ["exchanged"]


def exchanged(graph: Graph, facts: Facts, trace: Trace, options: Options) -> Graph:
    """Return the graph with its sums over ranks in buckets."""
    mapping: dict[Node, Node] = {}
    for number, bucket in enumerate(buckets(graph, facts.bucket_bytes), 1):
        own = facts.algorithm != "allreduce" and _may_be_cut(bucket)
        _report(number, bucket, facts, trace, options, facts.algorithm if own else "all-reduce")
        if own:
            made = summed([node.inputs[0] for node in bucket], facts.algorithm, facts.axes)
            for node, total in zip(bucket, made, strict=True):
                mapping[node] = graph.interner.intern(total)
                trace.replace(node, mapping[node], "distribute", facts.algorithm)
            continue
        if len(bucket) == 1:
            continue
        attrs = bucket[0].attrs
        joined = ALLREDUCE_MANY(*(node.inputs[0] for node in bucket), **attrs)
        for index, node in enumerate(bucket):
            mapping[node] = graph.interner.intern(ITEM(joined, index=index))
            trace.replace(node, mapping[node], "distribute", "bucket")
    if not mapping:
        return graph
    return graph.substitute(
        mapping, lambda old, new: trace.replace(old, new, "distribute", "bucket")
    )


def _may_be_cut(bucket: Sequence[Node]) -> bool:
    """Return whether a bucket is a sum of floats whose number is known when it is compiled."""
    return all(
        node.attrs["op"] == "sum" and is_inexact(node.dtype) and isinstance(node.size, int)
        for node in bucket
    )


def _report(
    number: int,
    bucket: Sequence[Node],
    facts: Facts,
    trace: Trace,
    options: Options,
    algorithm: str,
) -> None:
    total = 0
    for node in bucket:
        size = node.type.bytes
        total += size if isinstance(size, int) else 0
    first = bucket[0]
    replaced = trace.made_by.get(first)
    line = first.line if replaced is None else replaced[2].line
    what = f"{len(bucket)} arrays" if len(bucket) > 1 else str(first.type)
    where = f", the first made at {line}" if line else ""
    options.record.note(
        f"message {number}: {first.attrs['op']} of {what} ({total:,} bytes of "
        f"{first.dtype.name}) over {facts.size} ranks by {algorithm}{where}"
    )


def buckets(graph: Graph, limit: int) -> list[list[Node]]:
    """Return the all-reduces of a graph in groups that may be one message each."""
    level: dict[Node, int] = {}
    before: dict[Node, int] = {}
    for node in graph.nodes:
        level[node] = 1 + max((level[i] for i in node.inputs), default=0)
        before[node] = max(
            (before[i] + (i.op.kind is Kind.COLLECTIVE) for i in node.inputs), default=0
        )
    followed: set[Node] = set()  # what another collective depends on
    for node in reversed(graph.nodes):
        if node in followed or node.op.kind is Kind.COLLECTIVE:
            followed.update(node.inputs)
    members = [node for node in graph.nodes if node.op is ALLREDUCE]
    members.sort(key=level.__getitem__)  # stable: equal graphs give equal buckets
    found: list[list[Node]] = []
    opened: dict[object, tuple[list[Node], int]] = {}
    for node in members:
        size = node.type.bytes
        place = (
            before[node] if node in followed else -1,
            node.attrs["op"], node.attrs["group"], node.dtype,
        )  # fmt: skip
        if not isinstance(size, int):
            found.append([node])
            continue
        bucket, held = opened.get(place, ([], 0))
        if not bucket or held + size > limit:
            bucket, held = [], 0
            found.append(bucket)
        bucket.append(node)
        opened[place] = bucket, held + size
    return found
