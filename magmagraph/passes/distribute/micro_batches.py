"""Cut the batch into micro-batches: a loop over its parts, which adds up what sums over rows.

Before::

    %0 = input() : float32[batch, 3]  # x
    %1 = variable() : float32[3]  # w
    %2 = multiply(%0, %1) : float32[batch, 3]
    %3 = sum(%2, axes=(0, 1)) : float32[]
    return %3

After, with 4 micro-batches, the sum is a carry of a loop over 3 parts of ``batch // 4`` rows. It
begins with the sum over the last part, which has the other rows.

`function` asks for it where a call takes more than `memory_limit`, also with values computed again:
the activations are those of one part. The graph is walked as `distribute` walks it, with
micro-batches for ranks, so that the proof that rows do not meet is the same. Values that the walk
joins over ranks are carries here. Refused are programs in which the value of a row depends on a
sum over the batch (a batch normalization); a sum of the feeds alone, such as that of weights of
examples, is computed before the loop.

Numerics: `reassoc`. Sums over the batch are added in another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ...autodiff.transforms.closure import close
from ...errors import MagmagraphError
from ...ir.communicator import REDUCTIONS
from ...ir.graph import Graph, Node, Trace
from ...ir.op import Effect, Kind, Op, describe, topological
from ...ir.types import Extent
from ...ops.collective.whole import ALLREDUCE, INDEX
from ...ops.control.identities import ITEM, results_of
from ...ops.control.loop import LOOP, LOOP_STEP
from ...ops.elementwise.arithmetic import ADD, add, multiply
from ...ops.elementwise.comparison import MAXIMUM, MINIMUM, greater
from ...ops.indexing.gathering import take
from ...ops.indexing.iota import IOTA
from ...ops.leaf import constant, extent, input
from ...ops.rules.sharding import NotSharded
from ...ops.shape.arrange import moveaxis, reshape
from ...ops.shape.joining import broadcast_to, concatenate, stack
from ..loops import prune_within
from ..pipeline import Options
from .layouts import MICRO, Sharded, Way
from .pipeline import has_joins_in_body, with_rows
from .rules import rule_of
from .walk import Walk, again, counts

__all__ = ["micro_batches"]

RULE = "cut into micro-batches"
INT64 = np.dtype(np.int64)
_JOINS: dict[str, Op] = dict(zip(REDUCTIONS, (ADD, MAXIMUM, MINIMUM), strict=True))


def micro_batches(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph as a loop over parts of the batch, or as it came where rows meet."""
    count = options.micro_batches
    if count < 2:
        return graph
    if options.distribute is not None:
        options.record.refuse(RULE, graph.roots[0], "the batch is spread over ranks already")
        return graph
    names = _dimensions(graph)
    if not names:
        options.record.refuse(RULE, graph.roots[0], "no input has a named dimension")
    for name in names:
        pruned = prune_within(graph, trace, options, "micro_batches")
        try:
            split = _Split(pruned, Sharded(name), count).graph_of_parts(trace)
        except _Inseparable as reason:
            options.record.refuse(RULE, reason.node, f"{name!r}: {reason}")
            continue
        options.record.hit(RULE, count)
        return split
    return graph


def _dimensions(graph: Graph) -> list[str]:
    """Return the named dimensions of inputs, those first that are the first axes of the most."""
    front = [str(leaf.shape[0]) for leaf in graph.inputs if leaf.ndim]
    every = dict.fromkeys(str(extent) for leaf in graph.inputs for extent in leaf.shape)
    names = [name for name in every if name.isidentifier()]
    return sorted(names, key=lambda name: -front.count(name))


class _Inseparable(MagmagraphError):
    """The rows of a program meet at a node."""

    def __init__(self, node: Node, reason: str) -> None:
        super().__init__(reason.replace("ranks", "micro-batches").replace("rank", "micro-batch"))
        self.node = node


class _Rows(Walk):
    """A walk whose errors have their node."""

    def fail(self, node: Node, reason: str, hint: str | None = None) -> Exception:
        """Make (not raise) the error for a node."""
        return _Inseparable(node, reason)


@dataclass
class _Facts:
    dim: str
    size: int
    group: tuple[str, ...] = MICRO
    synchronized: bool = True
    bucket_bytes: int = 0
    algorithm: str = "allreduce"
    axes: tuple[tuple[tuple[str, ...], int], ...] = ()


class _Split:
    """A program on the rows of a part, and what joins the parts.

    Attributes
    ----------
    walked
        The program of a part; collectives of the group `MICRO` join the parts.
    outside
        Node of `walked` -> the node that all parts share, or that reads what they are joined to.
    varying
        The nodes that differ from part to part.
    """

    def __init__(self, graph: Graph, sharded: Sharded, count: int) -> None:
        self.graph, self.sharded, self.count = graph, sharded, count
        self.small: Extent = sharded.dim // count
        self.last: Extent = sharded.dim - (count - 1) * self.small
        readers = counts(graph.nodes, graph.roots)
        walk = _Rows(_Facts(sharded.name, count), sharded, readers, rule_of)
        walk.run(graph.nodes)
        self.walk = walk
        self.copies: dict[Node, Node] = {}
        outputs, effects = (
            [walk.complete(node) for node in nodes] for nodes in (graph.outputs, graph.effects)
        )
        updates = [walk.complete(value) for _, value in graph.updates]
        members = graph.interner.intern_all(
            [*outputs, *effects, *updates], self.copies.__setitem__
        )
        edge, end = len(outputs), len(outputs) + len(effects)
        pairs = zip([variable for variable, _ in graph.updates], members[end:], strict=True)
        self.walked = graph.replace(
            outputs=members[:edge], effects=members[edge:end], updates=list(pairs)
        )
        joined = {self.copies.get(new, new): old for new, old in walk.joined.items()}
        self.outside: dict[Node, Node] = {}
        self.varying: set[Node] = set()
        self._sort(joined)

    def _joins(self, node: Node) -> bool:
        return bool(node.attrs.get("group") == MICRO) and node.op is not INDEX

    def _counts(self, node: Node) -> bool:
        """Return whether a node joins the numbers of rows alone."""
        return self._joins(node) and node.inputs[0].attrs.get("dim") == self.sharded.dim

    def _sort(self, joined: Mapping[Node, Node]) -> None:
        """Find what varies, and compute what parts need of the whole batch; refuse where none may.

        joined: The values that are joined, and the program's node of each.
        """
        reading: dict[Node, dict[Node, None]] = {}  # node -> what is joined before it
        whole: dict[Node, Node] = {}
        for node in self.walked.nodes:
            if has_joins_in_body(node):
                raise _Inseparable(node, "its body joins the rows of each micro-batch")
            before = dict.fromkeys(j for i in node.inputs for j in reading.get(i, ()))
            if self._counts(node):
                reading[node] = {}
            elif self._joins(node):
                for join in before:
                    whole[join] = self._known_before(node, join, joined.get(join))
                reading[node] = {node: None}
            elif (
                node.op is INDEX
                or self.sharded.in_node(node)
                or any(i in self.varying for i in node.inputs)
            ):
                self.varying.add(node)
                for join in before:
                    whole[join] = self._known_before(node, join, joined.get(join))
                reading[node] = {}
                if node.op is LOOP_STEP and node.inputs[1].op is INDEX:
                    raise _Inseparable(node, "its random numbers are not drawn row by row")
            else:
                reading[node] = before
        self.joins = [
            node
            for node in self.walked.nodes
            if self._joins(node) and not self._counts(node) and node not in whole
        ]
        for node in self.joins:
            if node.op is not ALLREDUCE:
                raise _Inseparable(
                    node.inputs[0], "what parts give is not joined by a sum, maximum or minimum"
                )
        for node in self.walked.nodes:
            if node in whole:
                self.outside[node] = whole[node]
            elif self._counts(node):
                self.outside[node] = self._sizes(node)
            elif node not in self.varying and all(i in self.outside for i in node.inputs):
                if not self._joins(node):
                    self.outside[node] = self._again(node)

    def _known_before(self, reader: Node, join: Node, made: Node | None) -> Node:
        """Return what is joined as a value of the whole batch, if it is one of the feeds alone."""
        if made is not None and all(
            node.op.effect is Effect.PURE and node.op.kind is not Kind.COLLECTIVE
            for node in topological([made])
        ):
            return made
        what = "a reduction" if made is None else describe(made)
        raise _Inseparable(
            reader, f"its rows need {what} of the whole batch, such as a batch's statistics"
        )

    def _sizes(self, node: Node) -> Node:
        """Return the number of all rows, or those of each part."""
        if node.op is ALLREDUCE:
            return extent(self.sharded.dim)
        return stack([extent(self.small)] * (self.count - 1) + [extent(self.last)])

    def _again(self, node: Node) -> Node:
        return again(node, tuple(self.outside[operand] for operand in node.inputs))

    # ---- Parts

    def _part(self, leaves: Mapping[Node, Node], rows: Extent, index: Node) -> dict[Node, Node]:
        """Return the nodes that vary, for some rows of the inputs."""
        made = dict(self.outside)
        for node in self.walked.nodes:
            if node not in self.varying:
                continue
            try:
                made[node] = self._made(node, made, leaves, rows, index)
            except NotSharded as error:
                raise _Inseparable(node, error.reason) from None
            if node not in leaves:
                made[node].line = node.line
        return made

    def _made(
        self,
        node: Node,
        made: Mapping[Node, Node],
        leaves: Mapping[Node, Node],
        rows: Extent,
        index: Node,
    ) -> Node:
        if node.op is INDEX:
            return index
        if node in leaves:
            return leaves[node]
        if "dim" in node.attrs:
            return extent(with_rows(self.sharded, node.attrs["dim"], rows))
        attrs = {name: with_rows(self.sharded, v, rows) for name, v in node.attrs.items()}
        return node.op(*[made[operand] for operand in node.inputs], name=node.name, **attrs)

    def _axis(self, node: Node) -> tuple[int, Extent]:
        """Return the axis that is cut, and how many of its elements belong to a row."""
        (axis,) = self.sharded.axes(node.type)
        times = self.sharded.times(node.shape[axis])
        if times is None:
            raise _Inseparable(node, f"no micro-batch has a part of {node.shape[axis]}")
        return axis, times

    def graph_of_parts(self, trace: Trace) -> Graph:
        """Return the graph: the last part, a loop over the others, and what reads the sums."""
        walked, many = self.walked, self.count - 1
        for root in (*walked.effects, *(value for _, value in walked.updates)):
            if root in self.varying:
                raise _Inseparable(root, "it is seen or kept with the rows of the whole batch")
        results = list(dict.fromkeys(node for node in walked.outputs if node in self.varying))
        if not self.joins and not results:
            raise _Inseparable(walked.roots[0], "no result depends on its rows")
        inputs = [x for x in walked.inputs if self.sharded.axes(x.type)]
        # Parts without rows do not run. That the iterations have a flag also keeps products inside.
        runs = greater(extent(self.small), constant(0, dtype=INT64))
        flag, number = input("runs", (), runs.dtype), input("part", (), INT64)
        stacked = {
            flag: broadcast_to(runs, (many,)),
            number: IOTA(shape=(many,), axis=0, dtype=INT64),
        }
        rest, rows_of = {}, {}
        for x in inputs:
            axis, times = self._axis(x)
            edge, rows = many * self.small * times, self.small * times
            rest[x] = x[(*(slice(None),) * axis, slice(edge, x.shape[axis]))]
            first = multiply(number, extent(rows))
            places = add(IOTA(shape=(rows,), axis=0, dtype=INT64), first)
            rows_of[x] = take(x, places, axis=axis)
        last = self._part(rest, self.last, constant(many, dtype=INT64))
        body = self._part(rows_of, self.small, number)
        starts = {
            input("sum", (v := last[node.inputs[0]]).shape, v.dtype): v for node in self.joins
        }
        carried = [
            _JOINS[node.attrs["op"]](leaf, body[node.inputs[0]])
            for leaf, node in zip(starts, self.joins, strict=True)
        ]
        # Transposes, and what else only arranges what all parts read, are flags of products inside.
        arranged = {id(n) for n in self.outside.values() if n.op.kind is Kind.LAYOUT}
        closed, reads = close(
            [*carried, *(body[node] for node in results)], [*starts, *stacked], arranged
        )
        made = results_of(
            LOOP(
                *starts.values(), *stacked.values(), *reads,
                body=closed, carries=len(starts), stacks=len(stacked), length=None,
                reverse=False, flag="stack",
            )
        )  # fmt: skip
        finals, rows_made = made[: len(starts)], made[len(starts) :]
        self.outside.update(zip(self.joins, finals, strict=True))
        for node, rows_ in zip(results, rows_made, strict=True):
            self.outside[node] = self._whole(node, rows_, last[node])
        for node in walked.nodes:
            if node not in self.outside and node not in self.varying:
                self.outside[node] = self._again(node)
        return self._members(trace, last)

    def _whole(self, node: Node, rows: Node, last: Node) -> Node:
        """Return a result with all rows, from those of a loop and of the last part."""
        axis, times = self._axis(node)
        shape = list(last.shape)
        shape[axis] = (self.count - 1) * self.small * times
        first = reshape(moveaxis(rows, 0, axis), tuple(shape))
        return concatenate([first, last], axis=axis)

    def _members(self, trace: Trace, last: Mapping[Node, Node]) -> Graph:
        """Return the graph of nodes that are members, and note what became of the program's."""
        graph, walked, outside = self.graph, self.walked, self.outside
        for old in graph.outputs:
            layout = self.walk.layout[old]
            if layout.way is Way.PARTS and layout.outer not in (1, None):
                raise _Inseparable(old, "the rows of a micro-batch do not stay together in it")
        sides: list[Iterable[Node]] = [
            walked.outputs, walked.effects, (value for _, value in walked.updates)
        ]
        values = [[outside[node] for node in side] for side in sides]
        made: dict[Node, Node] = {}
        members = iter(
            graph.interner.intern_all([n for side in values for n in side], made.__setitem__)
        )
        outputs, effects, updates = ([next(members) for _ in side] for side in values)
        for node in graph.nodes:
            value = self.walk.value[node]
            if not isinstance(value, tuple) and node.op is not ITEM:
                there = self.copies.get(value, value)
                new = outside.get(there, last.get(there, there))
                trace.replace(node, made.get(new, new), "micro_batches", RULE)
        return graph.replace(
            outputs=outputs,
            effects=effects,
            updates=[(v, new) for (v, _), new in zip(graph.updates, updates, strict=True)],
        )
