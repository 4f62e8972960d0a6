"""Collectives joined into buckets, in the order in which a backward pass makes their parts.

A message costs a fixed time beside that for its bytes, so that many small ones are sent as one.
Buckets are small enough that the first are under way while later gradients are computed.
All-reduces are joined as they lie; the sums that are scattered for an optimizer in parts, and the
parts that are gathered, by their columns. Which may be joined: those of one operation, reduction,
group and dtype on which no other collective depends; of the others those that depend on equally
many collectives, messages between stages with those before them among these. Neither can close a
cycle.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence, Set

from ...dtypes import is_inexact
from ...ir.graph import Graph, Node, Trace
from ...ir.op import Kind, Op
from ...ops.collective.rows import ALLGATHER, REDUCE_SCATTER
from ...ops.collective.timed import ALLGATHER_WHEN, REDUCE_SCATTER_WHEN
from ...ops.collective.whole import ALLREDUCE, ALLREDUCE_MANY
from ...ops.control.identities import ITEM, MARKER, SEED, is_scaling_state
from ...ops.shape.joining import concatenate
from ...ops.shape.slicing import cut
from ..pipeline import Options
from .algorithms import summed
from .walk import Facts

__all__ = ["exchanged"]

NEAR = 4  # operations between two gradients of one layer, at most
LITTLE = 4  # what part of a bucket may be sent beyond its limit, so that less is left for the end


def exchanged(graph: Graph, facts: Facts, trace: Trace, options: Options) -> Graph:
    """Return the graph with its sums over ranks in buckets."""
    mapping: dict[Node, Node] = {}
    number = 0
    scaled = _scaled(graph) if facts.algorithm != "allreduce" else frozenset()
    for number, bucket in enumerate(buckets(graph, facts.bucket_bytes, apart=scaled), 1):
        own = facts.algorithm != "allreduce" and _may_be_cut(bucket)
        _report(number, bucket, facts, trace, options, facts.algorithm if own else "all-reduce")
        if own:
            totals = summed([node.inputs[0] for node in bucket], facts.algorithm, facts.axes)
            for node, total in zip(bucket, totals, strict=True):
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
    graph = _substituted(graph, mapping, trace)
    for op, join, what in ((REDUCE_SCATTER, _scattered, "sum and scatter"),
                           (REDUCE_SCATTER_WHEN, _scattered, "sum and scatter at some calls"),
                           (ALLGATHER, _gathered, "gathering"),
                           (ALLGATHER_WHEN, _gathered, "gathering at some calls")):  # fmt: skip
        mapping = {}
        for bucket in buckets(graph, facts.bucket_bytes, op):
            if len(bucket) < 2:
                continue
            number += 1
            _report(number, bucket, facts, trace, options, what)
            for node, part in zip(bucket, join(bucket), strict=True):
                mapping[node] = graph.interner.intern(part)
                trace.replace(node, mapping[node], "distribute", "bucket")
        graph = _substituted(graph, mapping, trace)
    return graph


def _substituted(graph: Graph, mapping: dict[Node, Node], trace: Trace) -> Graph:
    if not mapping:
        return graph
    return graph.substitute(
        mapping, lambda old, new: trace.replace(old, new, "distribute", "bucket")
    )


def _scattered(bucket: Sequence[Node]) -> list[Node]:
    """Return this rank's rows of several sums, from one whose columns are all of theirs."""
    rows = [node.inputs[0] for node in bucket]
    first = bucket[0]
    total = first.op(concatenate(rows, axis=1), *first.inputs[1:], **first.attrs)
    return _columns(total, [int(value.shape[1]) for value in rows], 0)


def _gathered(bucket: Sequence[Node]) -> list[Node]:
    """Return several arrays' rows of all ranks, from one whose columns are all of theirs."""
    parts = [node.inputs[0] for node in bucket]
    first = bucket[0]
    rows = first.op(concatenate(parts), *first.inputs[1:], **first.attrs)
    return _columns(rows, [int(value.size) for value in parts], 1)


def _columns(value: Node, sizes: Sequence[int], axis: int) -> list[Node]:
    starts = [0, *itertools.accumulate(sizes)]
    return [cut(value, axis, start, size) for start, size in zip(starts, sizes, strict=False)]


def _scaled(graph: Graph) -> frozenset[Node]:
    """Return what loss scaling makes larger, of a graph that has it: no loss may travel in it.

    Sums of our own lay arrays side by side in one, of which all would be scaled.
    """
    scaled: set[Node] = set()
    if any(is_scaling_state(value) for _, value in graph.updates):
        for node in graph.nodes:
            seed = node.op is MARKER and node.attrs["role"] == SEED
            if seed or any(operand in scaled for operand in node.inputs):
                scaled.add(node)
    return frozenset(scaled)


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
    reduction = first.attrs.get("op", "rows")
    replaced = trace.made_by.get(first)
    line = first.line if replaced is None else replaced[2].line
    what = f"{len(bucket)} arrays" if len(bucket) > 1 else str(first.type)
    where = f", the first made at {line}" if line else ""
    options.record.note(
        f"message {number}: {reduction} of {what} ({total:,} bytes of "
        f"{first.dtype.name}) over {facts.size} ranks by {algorithm}{where}"
    )


def buckets(
    graph: Graph, limit: int, op: Op = ALLREDUCE, apart: Set[Node] = frozenset()
) -> list[list[Node]]:
    """Return the collectives of one operation in groups that may be one message each.

    Parameters
    ----------
    graph
        The whole graph.
    limit
        Bytes of a message. Less than a sixteenth of that rides along with a larger array that is
        made at about the same time.
    op
        All-reduces; of the others those of rows, or parts, that an optimizer in parts has.
    apart
        Collectives that are not joined with others than these.
    """
    level: dict[Node, int] = {}
    before: dict[Node, int] = {}
    waits = _waits(graph)
    for node, awaited in waits.items():
        level[node] = 1 + max((level[i] for i in node.inputs), default=0)
        before[node] = max(
            (before[i] + (i.op.kind is Kind.COLLECTIVE) for i in awaited), default=0
        )
    followed: set[Node] = set()  # what another collective depends on
    for node, awaited in reversed(waits.items()):
        if node in followed or node.op.kind is Kind.COLLECTIVE:
            followed.update(awaited)
    members = [node for node in graph.nodes if node.op is op and _joins(node)]
    members.sort(key=level.__getitem__)  # stable: equal graphs give equal buckets
    groups: list[list[Node]] = []
    opened: dict[object, tuple[list[Node], int]] = {}
    small = limit // 16
    for node in members:
        size = node.inputs[0].type.bytes
        place = (
            before[node] if node in followed else -1,
            node.attrs.get("op"), node.attrs["group"], node.dtype, node in apart,
            node.inputs[1:] if op in (REDUCE_SCATTER_WHEN, ALLGATHER_WHEN) else (),  # its flag
        )  # fmt: skip
        if not isinstance(size, int):
            groups.append([node])
            continue
        bucket, filled = opened.get(place, ([], 0))
        rides = filled <= small or (size <= small and level[node] - level[bucket[-1]] <= NEAR)
        if not bucket or (filled + size > limit and not rides):
            bucket, filled = [], 0
            groups.append(bucket)
        bucket.append(node)
        opened[place] = bucket, filled + size
    if op is not ALLREDUCE or not limit or any(n in followed for b in groups[-2:] for n in b):
        return groups  # what others depend on goes as it is: some of the last may need it
    return _small_end(groups, level, limit, apart)


def _waits(graph: Graph) -> dict[Node, tuple[Node, ...]]:
    """Return what each node waits for, in an order that has this before it.

    Messages between stages have an order of their own, which a bucket must not turn around.
    """
    earlier = {late: (early,) for early, late in itertools.pairwise(graph.effects)}
    waits: dict[Node, tuple[Node, ...]] = {}
    stack = [*reversed(graph.nodes)]
    while stack:
        node = stack.pop()
        if node in waits:
            continue
        awaited = (*node.inputs, *earlier.get(node, ()))
        missing = [one for one in awaited if one not in waits]
        if missing:
            stack += [node, *reversed(missing)]
        else:
            waits[node] = awaited
    return waits


def _small_end(
    groups: list[list[Node]], level: Mapping[Node, int], limit: int, apart: Set[Node]
) -> list[list[Node]]:
    """Leave little for the last message, which overlaps with no computation.

    What of the last message is made before the very end goes with the message before, where it is
    little beside that.
    """
    if len(groups) < 3:  # all of it is a message or two
        return groups
    *others, before, last = groups
    top = max(map(level.__getitem__, last)) - 1  # a layer's weights and biases
    early = [node for node in last if level[node] < top]
    late = [node for node in last if level[node] >= top]
    alike = all(
        before[0].attrs == node.attrs
        and before[0].dtype == node.dtype
        and (before[0] in apart) == (node in apart)
        for node in early
    )
    sizes = [node.inputs[0].type.bytes for node in early]
    if not early or not alike or sum(s for s in sizes if isinstance(s, int)) > limit // LITTLE:
        return groups
    return [*others, before + early, late]


def _joins(node: Node) -> bool:
    """Return whether a collective may be joined with others of its operation."""
    ndim = {
        REDUCE_SCATTER: 2, REDUCE_SCATTER_WHEN: 2, ALLGATHER: 1, ALLGATHER_WHEN: 1
    }.get(node.op)  # fmt: skip
    return ndim is None or node.inputs[0].ndim == ndim
