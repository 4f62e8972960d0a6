"""Cut a graph into the stages of a pipeline, and its batch into micro-batches.

The graph has been walked with micro-batches for ranks: it computes on the rows of one, and what
crosses rows stands as collectives of a group that is named `MICRO`. Here each node with rows is
made once for each micro-batch, these collectives are sums and stacks of the copies, and of all
that a rank keeps its stage's. Where an edge leads to another stage there is a message.

All messages of all ranks are put into one order, in which each comes after what it is computed
from; a rank sends and receives in this order. Since sends do not wait, no rank waits for ever.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir import dims
from ...ir.communicator import REDUCTIONS
from ...ir.dims import Dim
from ...ir.graph import Graph, Node, freeze
from ...ir.op import Kind, Op
from ...ir.types import Extent, Type
from ...ops.collective.messages import RECV, SEND
from ...ops.collective.rows import ALLGATHER
from ...ops.collective.whole import ALLREDUCE, BROADCAST, INDEX
from ...ops.elementwise.arithmetic import ADD
from ...ops.elementwise.comparison import MAXIMUM, MINIMUM
from ...ops.leaf import constant, extent, parameter
from ...ops.rules.sharding import NotSharded
from ...ops.shape.joining import broadcast_to, concatenate, stack
from .layouts import MICRO, Sharded, refusal
from .stages import Pipeline, Stages, assigned, clock
from .walk import again

__all__ = ["cut", "has_joins_in_body", "with_rows"]

_JOINS: dict[str, Op] = dict(zip(REDUCTIONS, (ADD, MAXIMUM, MINIMUM), strict=True))

Copy = tuple[Node, int | None]  # a node, and the micro-batch that it is made for


def cut(graph: Graph, pipeline: Pipeline, dim: str) -> Graph:
    """Return the graph of one stage.

    Parameters
    ----------
    graph
        Of one micro-batch, see above.
    pipeline
        Which stage of how many, and how many micro-batches.
    dim
        Name of the rows' dimension.
    """
    sharded = Sharded(dim)
    stages = assigned(graph, pipeline, sharded)
    for variable, stage in stages.homes.items():
        pipeline.lives_on(variable, stage)
    return _Cut(graph, pipeline, sharded, stages).graph_of_stage()


@dataclass(frozen=True)
class _Message:
    """A value that one stage sends to another."""

    copy: Copy
    source: int
    to: int
    tag: int


class _Cut:
    """The copies of a graph's nodes, their order, and the messages between stages."""

    def __init__(
        self, graph: Graph, pipeline: Pipeline, sharded: Sharded, stages: Stages
    ) -> None:
        self.graph, self.pipeline, self.sharded, self.stages = graph, pipeline, sharded, stages
        self.mine = pipeline.stage
        self.count = pipeline.micro_batches
        self.has_rows: dict[Node, bool] = {}
        for node in graph.nodes:
            self.has_rows[node] = self._is_varying(node)
        rows = sharded.dim // self.count
        last = sharded.dim - (self.count - 1) * rows
        self.sizes: list[Extent] = [rows] * (self.count - 1) + [last]
        self.starts: list[Extent] = [m * rows for m in range(self.count)]
        self.made: dict[Copy, Node] = {}
        self.received: dict[Copy, Node] = {}

    def _is_micro(self, node: Node) -> bool:
        return bool(node.attrs.get("group") == MICRO)

    def _is_varying(self, node: Node) -> bool:
        if self._is_micro(node):
            return node.op is INDEX
        if has_joins_in_body(node):
            raise refusal(
                self.sharded.name, node, "its body sums over the rows of each micro-batch"
            )
        return self.sharded.in_node(node) or any(self.has_rows[o] for o in node.inputs)

    def _copies(self, node: Node) -> list[Copy]:
        return [(node, m) for m in (range(self.count) if self.has_rows[node] else (None,))]

    def _read(self, copy: Copy) -> Iterator[Copy]:
        """Yield the operands of a copy."""
        node, m = copy
        for operand in node.inputs:
            if self.has_rows[operand] and m is None:
                yield from self._copies(operand)
            else:
                yield (operand, m if self.has_rows[operand] else None)

    # ---- The one order

    def _order(self) -> list[Copy]:
        """Return all copies, operands first, as the schedule would have them."""
        times = clock(self.pipeline.schedule, self.pipeline.stages, self.count)
        number = {node: i for i, node in enumerate(self.graph.nodes)}
        late: set[Node] = set()  # what needs several micro-batches
        for node in self.graph.nodes:
            staged = self.stages.of[node] is not None and not self.has_rows[node]
            if staged and any(o in late or self.has_rows[o] for o in node.inputs):
                late.add(node)

        def key(copy: Copy) -> tuple[float, int, int]:
            node, m = copy
            stage = self.stages.of[node]
            if m is None:
                return (math.inf if node in late else -1.0, number[node], 0)
            if stage is None:
                return (-1.0, number[node], m)
            way = "B" if node in self.stages.turned else "F"
            return (float(times[stage, way, m]), number[node], m)

        readers: dict[Copy, list[Copy]] = {}
        waits: dict[Copy, int] = {}
        ready: list[tuple[tuple[float, int, int], int, Copy]] = []
        for node in self.graph.nodes:
            for copy in self._copies(node):
                needed = set(self._read(copy))
                waits[copy] = len(needed)
                for one in needed:
                    readers.setdefault(one, []).append(copy)
                if not needed:
                    heapq.heappush(ready, (key(copy), len(ready), copy))
        ordered, pushed = [], len(ready)
        while ready:
            _, _, copy = heapq.heappop(ready)
            ordered.append(copy)
            for reader in readers.get(copy, ()):
                waits[reader] -= 1
                if not waits[reader]:
                    pushed += 1
                    heapq.heappush(ready, (key(reader), pushed, reader))
        return ordered

    def _messages(self, order: list[Copy]) -> list[tuple[tuple[int, int], bool, _Message]]:
        """Return this rank's messages in order, each with whether it is sent."""
        place = {copy: i for i, copy in enumerate(order)}
        first: dict[tuple[Copy, int], int] = {}

        def reads(copy: Copy, stage: int, when: int) -> None:
            source = self.stages.of[copy[0]]
            if source is None:  # made again where it is needed
                for one in self._read(copy):
                    reads(one, stage, when)
            elif source != stage and when < first.get((copy, stage), len(order) + 1):
                first[copy, stage] = when

        for copy in order:
            stage = self.stages.of[copy[0]]
            if stage is not None:
                for one in self._read(copy):
                    reads(one, stage, place[copy])
        for variable, value in self.graph.updates:
            home = self.stages.homes.get(variable)
            if home is not None:
                reads((value, None), home, len(order))
        tags: dict[tuple[int, int], int] = {}
        entries = []
        for (copy, to), when in sorted(first.items(), key=lambda i: (place[i[0][0]], i[0][1])):
            source = self.stages.of[copy[0]]
            assert source is not None
            tag = tags[source, to] = tags.get((source, to), -1) + 1
            message_ = _Message(copy, source, to, tag)
            if source == self.mine:
                entries.append(((place[copy], 1), True, message_))
            if to == self.mine:
                entries.append(((when, 0), False, message_))
        return sorted(entries, key=lambda item: (item[0], item[2].source, item[2].tag))

    # ---- The rank's nodes

    def graph_of_stage(self) -> Graph:
        """Return the graph that the rank computes."""
        order = self._order()
        messages = self._messages(order)
        for _, sent, sent_message in messages:
            if not sent:
                self.received[sent_message.copy] = self._receive(sent_message)
        for copy in order:
            if self.stages.of[copy[0]] == self.mine:
                self._get(copy)
        effects = [
            self._send(sent_message) if sent else self.received[sent_message.copy]
            for _, sent, sent_message in messages
        ]
        effects += [self._get(c) for e in self.graph.effects if self._is_here(e)
                    for c in self._copies(e)]  # fmt: skip
        outputs = [self._output(i, node) for i, node in enumerate(self.graph.outputs)]
        effects += [node for node in outputs if node.op is BROADCAST]
        variables, values = [], []
        for variable, value in self.graph.updates:
            home = self.stages.homes.get(variable)
            if home is None or home == self.mine:
                variables.append(variable if home is None else self.pipeline.own(variable))
                values.append(self._get((value, None)))
        members = self.graph.interner.intern_all([*outputs, *effects, *variables, *values])
        cuts = np.cumsum([len(outputs), len(effects), len(variables)])
        parts = [members[a:b] for a, b in zip([0, *cuts], [*cuts, len(members)], strict=True)]
        return self.graph.replace(
            outputs=parts[0],
            effects=tuple(dict.fromkeys(parts[1])),
            updates=list(zip(parts[2], parts[3], strict=True)),
        )

    def _is_here(self, node: Node) -> bool:
        stage = self.stages.place(node)
        return stage == self.mine or (stage is None and self.mine == 0)

    @property
    def _shared(self) -> dict[str, Any]:
        return {"group": self.pipeline.group, "size": self.pipeline.stages}

    def _empty(self, copy: Copy) -> Node:
        """Return an array of a value's type, for what receives it."""
        node, m = copy
        return _zeros(self._attribute(node.shape, m), node.dtype)

    def _receive(self, sent: _Message) -> Node:
        return RECV(self._empty(sent.copy), source=sent.source, tag=sent.tag, **self._shared)

    def _send(self, sent: _Message) -> Node:
        value = self._get(sent.copy)
        place = sent.tag * self.pipeline.stages + sent.to  # no two are one node
        return SEND(value, to=sent.to, tag=sent.tag, passes=False, uid=-1 - place, **self._shared)

    def _output(self, number: int, node: Node) -> Node:
        stage = self.stages.place(node)
        if stage is None or stage == self.mine:
            value = self._whole(node)
        else:
            value = _zeros(node.shape, node.dtype)
        if stage is None or self.pipeline.stages == 1:
            return value
        # Whoever receives two of one shape has the same node for both: by `uid` they stay two, on
        # all ranks.
        return BROADCAST(value, root=stage, uid=number, **self._shared)

    def _whole(self, node: Node) -> Node:
        copies = [self._get(copy) for copy in self._copies(node)]
        if not self.has_rows[node]:
            return copies[0]
        (axis,) = self.sharded.axes(node.type)
        return concatenate(copies, axis=axis)

    def _get(self, copy: Copy) -> Node:
        """Return the node of a copy on this rank."""
        node = self.made.get(copy)
        if node is None:
            stage = self.stages.of[copy[0]]
            if stage is not None and stage != self.mine:
                node = self.received[copy]
            else:
                node = self._make(copy)
            self.made[copy] = node
        return node

    def _make(self, copy: Copy) -> Node:
        node, m = copy
        if node in self.stages.homes:
            return self.pipeline.own(node)
        if self._is_micro(node):
            return self._joined(node, m)
        if not node.inputs and m is not None:
            return self._leaf(node, m)
        operands = tuple(self._get(one) for one in self._read(copy))
        if m is None:
            return again(node, operands)
        try:
            attrs = {name: self._attribute(value, m) for name, value in node.attrs.items()}
            return node.op(*operands, name=node.name, **attrs)
        except NotSharded as error:
            raise refusal(self.sharded.name, node, error.reason, error.hint) from None

    def _joined(self, node: Node, m: int | None) -> Node:
        """Return the value of a collective over micro-batches that are all on this rank."""
        if node.op is INDEX:
            return constant(m, dtype=np.int64)
        copies = [self._get(copy) for copy in self._read((node, None))]
        if len(copies) == 1:  # the same for all of them
            copies *= self.count
        if node.op is ALLREDUCE:
            return functools.reduce(_JOINS[node.attrs["op"]], copies)
        assert node.op is ALLGATHER
        return stack(copies)

    def _leaf(self, node: Node, m: int) -> Node:
        """Return a micro-batch's rows of an input, or their number."""
        if "dim" in node.attrs:
            return extent(self._attribute(node.attrs["dim"], m))
        axes = self.sharded.axes(node.type)
        if node.op.kind is not Kind.LEAF or not axes:
            attrs = {name: self._attribute(value, m) for name, value in node.attrs.items()}
            return node.op(name=node.name, **attrs)
        (axis,) = axes
        times = self.sharded.times(node.shape[axis])
        assert times is not None
        begin, size = self.starts[m] * times, self.sizes[m] * times
        return node[(slice(None),) * axis + (slice(begin, begin + size),)]

    def _attribute(self, value: Any, m: int | None) -> Any:
        """Return a shape or another attribute with a micro-batch's rows in the place of all."""
        return value if m is None else with_rows(self.sharded, value, self.sizes[m])


def has_joins_in_body(node: Node) -> bool:
    """Return whether a loop or a branch joins micro-batches in one of its bodies."""
    return any(map(_has_joins, node.attrs.values()))


def _has_joins(value: Any) -> bool:
    if isinstance(value, Graph):
        return any(
            node.attrs.get("group") == MICRO or has_joins_in_body(node) for node in value.nodes
        )
    return isinstance(value, tuple) and any(map(_has_joins, value))


def with_rows(sharded: Sharded, value: Any, rows: Extent) -> Any:
    """Return a shape or another attribute with so many rows in the place of all.

    Raises
    ------
    NotSharded
        A body computes with the number of rows.
    """
    if isinstance(value, Dim):
        return dims.substitute(value, {sharded.name: rows})
    if isinstance(value, tuple):
        return tuple(with_rows(sharded, member, rows) for member in value)
    if isinstance(value, Graph) and sharded.mentioned(value):
        return _body_with_rows(sharded, value, rows)
    return value


def _body_with_rows(sharded: Sharded, body: Graph, rows: Extent) -> Graph:
    """Return the body of a loop or a branch for so many rows."""
    leaves = [
        parameter(i, Type(leaf.dtype, with_rows(sharded, leaf.shape, rows)))
        for i, leaf in enumerate(body.inputs)
    ]
    copies = dict(zip(body.inputs, leaves, strict=True))
    for node in body.nodes:
        if node in copies:
            continue
        if "dim" in node.attrs and sharded.in_extent(node.attrs["dim"]):
            raise NotSharded("its body counts the rows, which are cut into micro-batches")
        attrs = {name: with_rows(sharded, value, rows) for name, value in node.attrs.items()}
        operands = tuple(copies[operand] for operand in node.inputs)
        copies[node] = (
            node.op(*operands, name=node.name, **attrs)
            if sharded.in_node(node)
            else again(node, operands)
        )
    return freeze(leaves, [copies[output] for output in body.outputs])


def _zeros(shape: tuple[Extent, ...], dtype: np.dtype) -> Node:
    return broadcast_to(constant(0, dtype=dtype), shape)
