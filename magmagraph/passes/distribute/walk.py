"""The walk of `distribute` over a graph: rebuild each node on the values of one rank.

Types do not change: a rank binds the sharded dimension to the number of its own rows. What changes
is where values of several ranks meet. A value that is a sum over ranks stays apart through linear
operations that it alone enters, and is joined where something else reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from ...ir.dims import Dim
from ...ir.dims.algebra import Floor, terms_of
from ...ir.graph import Node
from ...ir.op import Kind
from ...ir.types import Extent
from ...ops.collective.rows import ALLGATHER
from ...ops.collective.timed import ALLGATHER_WHEN, ALLREDUCE_WHEN, REDUCE_SCATTER_WHEN
from ...ops.collective.whole import ALLREDUCE, INDEX
from ...ops.control.identities import (
    APART,
    GRADIENT,
    HELD,
    ITEM,
    MARKER,
    OWN_STATISTICS,
    SCATTERED,
    SENT,
    SENT_WHEN,
)
from ...ops.elementwise.arithmetic import add, floor_divide, multiply
from ...ops.elementwise.comparison import equal, less, minimum, where
from ...ops.indexing.iota import IOTA
from ...ops.leaf import constant, extent
from ...ops.reduction.primitives import SUM as SUM_OVER_AXES
from ...ops.rules.sharding import NotSharded
from .layouts import MICRO, OWN, SUM, WHOLE, Layout, Sharded, Way, parts, refusal

__all__ = ["Facts", "Walk", "again", "counts", "gradients_apart"]

INT64 = np.dtype(np.int64)


class Facts(Protocol):
    """What a strategy says, see `distributed.strategies.Facts`."""

    dim: str
    group: tuple[str, ...]
    size: int
    synchronized: bool
    bucket_bytes: int
    algorithm: str
    axes: tuple[tuple[tuple[str, ...], int], ...]


Rule: TypeAlias = Callable[["Walk", Node], tuple[Any, Any]]
"""``rule(walk, node)`` gives the node made again, and its layout."""


class Walk:
    """The nodes of a graph, their replacements, and the layout of each over ranks.

    Attributes
    ----------
    value
        Node -> the node of the new program (a tuple for one whose results are nodes of their own).
    layout
        Node -> its `Layout` (a tuple for an operation with several results).
    joined
        The all-reduces that were put in, each with the node whose value it completes.
    conditional
        Whether a sum that only some calls need may be left out at the others.
    rule_of
        Gives the rule that makes a node again on parts (`rules.rule_of`).
    apart
        What gradients that ranks add up over calls, each its own, are made of by linear operations.
    """

    def __init__(
        self,
        facts: Facts,
        sharded: Sharded,
        readers: Mapping[Node, int],
        rule_of: Callable[[Node], Rule],
    ) -> None:
        self.facts = facts
        self.rule_of = rule_of
        self.sharded = sharded
        self.readers = readers
        self.value: dict[Node, Any] = {}
        self.layout: dict[Node, Any] = {}
        self.joined: dict[Node, Node] = {}
        self.conditional = False
        self.apart: frozenset[Node] = frozenset()
        self._completed: dict[Node, Node] = {}
        self._alone: dict[Node, Node] = {}
        self._size: Node | None = None
        self._offset: Node | None = None

    def inside(self, readers: Mapping[Node, int]) -> Walk:
        """Return a walk for a body: the size and the offset of the dimension are known already."""
        inner = type(self)(self.facts, self.sharded, readers, self.rule_of)
        inner._size, inner._offset = self.rows(), self._offset
        inner.joined = self.joined
        return inner

    # ---- What ranks know of the dimension

    def rows(self) -> Node:
        """Return the size of the dimension, over all ranks."""
        if self._size is None:
            self._size = self._reduced(extent(self.sharded.dim), "sum")
        return self._size

    def offset(self) -> Node:
        """Return how many rows the ranks before this one have."""
        if self._offset is None:
            facts = self.facts
            shared: dict[str, Any] = {"group": facts.group, "size": facts.size}
            sizes = ALLGATHER(extent(self.sharded.dim), **shared)
            places = IOTA(shape=(facts.size,), axis=0, dtype=INT64)
            before = where(less(places, INDEX(**shared)), sizes, constant(0, dtype=INT64))
            self._offset = SUM_OVER_AXES(before, axes=(0,))
        return self._offset

    def index(self) -> Node:
        """Return the rank's number in its group."""
        return INDEX(group=self.facts.group, size=self.facts.size)

    def whole_extent(self, value: Extent) -> Node:
        """Return an extent of the whole program as an int64 node."""
        if not self.sharded.in_extent(value):
            return extent(value)
        assert isinstance(value, Dim)
        total: Node | None = None
        for monomial, count in terms_of(value):
            term: Node | None = None
            if count != 1 or not monomial:
                term = constant(count, dtype=INT64)
            for atom in monomial:
                if isinstance(atom, str):
                    factor = self.rows() if atom == self.sharded.name else extent(Dim(atom))
                elif isinstance(atom, Floor):
                    factor = floor_divide(
                        self.whole_extent(atom.numerator), self.whole_extent(atom.divisor)
                    )
                else:
                    factor = minimum(self.whole_extent(atom.argument), constant(0, dtype=INT64))
                term = factor if term is None else multiply(term, factor)
            assert term is not None
            total = term if total is None else add(total, term)
        assert total is not None
        return total

    # ---- Values

    def _reduced(self, value: Node, op: str) -> Node:
        return ALLREDUCE(value, op=op, group=self.facts.group, size=self.facts.size)

    def reduced(self, value: Node, op: str) -> Node:
        """Return a value joined over the ranks by a reduction other than the sum."""
        return self._reduced(value, op)

    def complete(self, node: Node) -> Node:
        """Return a node's value with its sum over ranks taken, where it is one."""
        if self.layout[node].way is not Way.SUM:
            return self.value[node]  # type: ignore[no-any-return]
        whole = self._completed.get(node)
        if whole is None:
            whole = self._completed[node] = self._reduced(self.value[node], "sum")
            whole.line = node.line
            self.joined[whole] = node
        return whole

    @property
    def completed(self) -> Mapping[Node, Node]:
        """The nodes whose sum over ranks is taken, and the all-reduce of each."""
        return self._completed

    def kept_apart(self, node: Node) -> bool:
        """Return whether a sum over ranks is never taken as such: what compression leaves over."""
        return self.facts.group != MICRO and node.attrs.get("role") in (APART, HELD)

    def alone(self, node: Node) -> Node:
        """Return the value of a node as if this rank were the only one."""
        copy = self._alone.get(node)
        return self.complete(node) if copy is None else copy

    def fail(self, node: Node, reason: str, hint: str | None = None) -> Exception:
        """Make (not raise) the error for a node."""
        return refusal(self.sharded.name, node, reason, hint)

    # ---- The walk

    def run(self, nodes: Sequence[Node]) -> None:
        """Walk over nodes, operands first; those that have a value already are left out."""
        for node in nodes:
            if node not in self.value:
                self._visit(node)

    def given(self, node: Node, value: Node, layout: Layout) -> None:
        """Set the value and layout of a node, instead of a visit."""
        self.value[node], self.layout[node] = value, layout

    def _visit(self, node: Node) -> None:
        if not node.inputs:
            self._leaf(node)
            return
        if node.op is ITEM:
            several = node.inputs[0]
            index = node.attrs["index"]
            value, layout = self.value[several], self.layout[several]
            copy = value[index] if isinstance(value, tuple) else again(node, (value,))
            self.given(node, copy, layout[index] if isinstance(layout, tuple) else layout)
            return
        ways = {self.layout[operand].way for operand in node.inputs}
        if node.op is MARKER and self._marked(node):
            return
        if node.op is SENT_WHEN:
            self._sent_when(node)
            return
        always = node.op in (REDUCE_SCATTER_WHEN, ALLGATHER_WHEN) and not self.conditional
        if ways == {Way.WHOLE} and not self.sharded.in_node(node) and not always:
            self._whole(node)
        elif Way.OWN in ways and Way.PARTS not in ways:
            operands = tuple(map(self.alone, node.inputs))
            own = (OWN,) * len(node.type) if isinstance(node.type, tuple) else OWN
            self.value[node], self.layout[node] = again(node, operands), own
        else:
            self._sharded(node)

    def _marked(self, node: Node) -> bool:
        """Apply a marker to its operand; return whether it has an effect."""
        (operand,) = node.inputs
        role = node.attrs["role"]
        if self.facts.group == MICRO and role in (APART, HELD, SCATTERED, SENT):
            return False  # of ranks; micro-batches are one rank's
        if role == OWN_STATISTICS and not self.facts.synchronized:
            # What is made of own rows is own until it leaves between two marks as rows again.
            axes = self.sharded.axes(node.type) if self.layout[operand].way is Way.OWN else ()
            layout = parts(axes[0], None) if axes else OWN
            self.given(node, again(node, (self.value[operand],)), layout)
        elif role == HELD and operand.op.kind is Kind.LEAF:
            self.given(node, again(node, (self.value[operand],)), SUM)
        elif role == SCATTERED or (role == GRADIENT and node.attrs.get("apart")):
            self.given(node, again(node, (as_sum(self, operand),)), SUM)
        elif role in (GRADIENT, SENT) and self.layout[operand].way is Way.SUM:
            # Here, so that all that reads a gradient reads one all-reduce.
            self.given(node, again(node, (self.complete(operand),)), WHOLE)
        else:
            return False
        return True

    def _sent_when(self, node: Node) -> None:
        """Take a sum over ranks at the calls that need it; its flag is the same on all of them."""
        operand, flag = node.inputs
        if self.layout[operand].way is not Way.SUM or not self.conditional:
            self.given(node, self.complete(operand), WHOLE)
            return
        summed = ALLREDUCE_WHEN(
            self.value[operand],
            self.complete(flag),
            op="sum",
            group=self.facts.group,
            size=self.facts.size,
            algorithm=self.facts.algorithm,
            axes=self.facts.axes if self.facts.algorithm != "allreduce" else (),
        )
        summed.line = node.line
        self.joined[summed] = operand
        self.given(node, summed, WHOLE)

    def _whole(self, node: Node) -> None:
        operands = tuple(self.value[operand] for operand in node.inputs)
        copy = again(node, operands)
        layout: Any = WHOLE
        if isinstance(node.type, tuple):
            layout = (WHOLE,) * len(node.type)
        self.value[node], self.layout[node] = copy, layout
        if any(operand in self._alone for operand in node.inputs):
            self._alone[node] = again(node, tuple(map(self.alone, node.inputs)))

    def _leaf(self, node: Node) -> None:
        sharded = self.sharded
        if node.op.kind is not Kind.LEAF:
            if sharded.axes(node.type):
                self._sharded(node)
            else:
                self.given(node, node, WHOLE)
        elif "dim" in node.attrs and sharded.in_extent(node.attrs["dim"]):
            self.given(node, self.whole_extent(node.attrs["dim"]), WHOLE)
            self._alone[node] = node
        elif sharded.axes(node.type):
            self.given(node, node, self._part_fed(node))
        else:
            self.given(node, node, WHOLE)

    def _part_fed(self, node: Node) -> Layout:
        axes = self.sharded.axes(node.type)
        if len(axes) > 1:
            raise self.fail(node, f"axes {axes} of an input both have it")
        if self.sharded.times(node.shape[axes[0]]) is None:
            raise self.fail(
                node,
                f"axis {axes[0]} of an input is {node.shape[axes[0]]}, of which no rank has a part",
            )
        return parts(axes[0])

    def _sharded(self, node: Node) -> None:
        try:
            self.value[node], self.layout[node] = self.rule_of(node)(self, node)
        except NotSharded as error:
            raise self.fail(node, error.reason, error.hint) from None

    def layouts(self, node: Node) -> list[Layout]:
        """Return the layouts of a node's operands, some of which are distributed.

        A rank's own value counts as whole there, or as rows where it has the axis.
        """
        layouts = []
        for operand in node.inputs:
            layout = self.layout[operand]
            if layout.way is Way.OWN:
                axes = self.sharded.axes(operand.type)
                layout = parts(axes[0], None) if axes else WHOLE
            layouts.append(layout)
        return layouts

    def reads_no_rows(self, node: Node) -> bool:
        """Return whether a node reads whole values and sums over ranks alone, and makes no rows."""
        cut = any(layout.way is Way.PARTS for layout in self.layouts(node))
        return not cut and not self.sharded.in_node(node)

    def of_sums(self, node: Node) -> tuple[Node, Any]:
        """Make a node again on sums that are taken: every rank has all of them then."""
        copy = again(node, tuple(map(self.complete, node.inputs)))
        return copy, (WHOLE,) * len(node.type) if isinstance(node.type, tuple) else WHOLE


def again(node: Node, operands: tuple[Node, ...]) -> Node:
    """Return a node on other operands of the same types."""
    if all(a is b for a, b in zip(node.inputs, operands, strict=True)):
        return node
    return type(node)(
        node.op, operands, node.attrs, node.type, node.name, node.line, node.constraints
    )


def gradients_apart(nodes: Sequence[Node]) -> frozenset[Node]:
    """Return the linear terms of gradients that ranks accumulate over calls."""
    rest = [node.inputs[0] for node in nodes if node.op is MARKER and node.attrs.get("apart")]
    apart: set[Node] = set()
    while rest:
        node = rest.pop()
        if node not in apart and node.op.sharding == "linear":
            apart.add(node)
            rest.extend(node.inputs)
    return frozenset(apart)


def counts(nodes: Sequence[Node], roots: Sequence[Node]) -> dict[Node, int]:
    """Return how many nodes and roots read each node."""
    readers = dict.fromkeys(nodes, 0)
    for node in nodes:
        for operand in dict.fromkeys(node.inputs):
            readers[operand] = readers.get(operand, 0) + 1
    for root in roots:
        readers[root] = readers.get(root, 0) + 1
    return readers


def is_zero(node: Node) -> bool:
    """Return whether a value is zero: no rank adds anything then."""
    while node.op.kind is Kind.LAYOUT and len(node.inputs) == 1:
        node = node.inputs[0]
    value = node.attrs.get("value")
    return node.op.kind is Kind.LEAF and value is not None and not np.any(value)


def as_sum(walk: Walk, operand: Node) -> Node:
    """Return a value that all ranks have as one whose sum over ranks it is."""
    value: Node = walk.value[operand]
    if walk.layout[operand].way is Way.SUM or is_zero(operand):
        return value
    first = equal(walk.index(), constant(0, dtype=np.int64))
    return where(first, value, constant(0, dtype=value.dtype))
