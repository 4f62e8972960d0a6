"""A program made again on what one rank has, where weights are spread over the ranks.

A node's value is whole on every rank (None), cut along an axis (its number), or the sum of what the
ranks have (`SUM`). What an operation's record says of sharding decides (`ops.rules.sharding`);
where it says nothing, the parts are gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..autodiff.transforms.rebuild import again
from ..dtypes import is_bool
from ..ir import dims
from ..ir.communicator import REDUCTIONS, Communicator
from ..ir.graph import Node, topological
from ..ir.op import Kind
from ..ir.types import Extent
from ..ops.collective.rows import allgather
from ..ops.collective.whole import ALLREDUCE, INDEX
from ..ops.convert import cast
from ..ops.indexing.gathering import take
from ..ops.leaf import Variable
from ..ops.rules.sharding import SUM, NotSharded
from ..ops.shape.arrange import reshape
from ..ops.shape.joining import broadcast_to
from .sharded_state import part_of

__all__ = ["Pair", "spread"]

Pair = tuple[Node, Node]
Layout = int | str | None
Axes = dict[Variable, int | None]

_APART = ("linear", "product", "quotient")  # words of operations that sums may pass, see `_sums`


def spread(
    outputs: Sequence[Node],
    updates: Sequence[Pair],
    group: Communicator,
    names: tuple[str, ...],
    chosen: Mapping[Variable, int | None],
    least: int,
) -> tuple[list[Node], list[Pair], Axes]:
    """Return a program of one rank, and along which axis each variable is cut.

    outputs, updates: Of the program of a single process.
    group, names: The ranks, and the axes of the mesh that they differ in.
    chosen: Axes of variables, or None for those that stay whole; the walk decides about the others.
    least: Elements from which on a matrix is cut without being told to.
    """
    axes: Axes = dict(chosen)
    while True:
        walk = _Walk(group, names, axes, least)
        new_outputs, renewed = walk.program(outputs, updates)
        fresh = {variable: axis for variable, axis in walk.wanted.items() if variable not in axes}
        if not fresh:
            return (
                new_outputs,
                renewed,
                {variable: axis for variable, axis in axes.items() if axis is not None},
            )
        axes.update(fresh)


class _Walk:
    """One walk over a program, with some variables cut.

    wanted: Variables that should have been cut, too, and along which axis.
    """

    def __init__(
        self, group: Communicator, names: tuple[str, ...], axes: Axes, least: int
    ) -> None:
        self.group, self.names, self.axes, self.least = group, names, axes, least
        self.wanted: Axes = {}
        self._value: dict[Node, Node] = {}
        self._layout: dict[Node, Layout] = {}
        self._whole: dict[Node, Node] = {}
        self._readers: dict[Node, int] = {}

    def program(
        self, outputs: Sequence[Node], updates: Sequence[Pair]
    ) -> tuple[list[Node], list[Pair]]:
        """Return outputs and updates on what the rank has."""
        roots = [*outputs, *(value for _, value in updates)]
        nodes = list(topological(roots))
        for node in nodes:
            for operand in set(node.inputs):
                self._readers[operand] = self._readers.get(operand, 0) + 1
        for root in roots:
            self._readers[root] = self._readers.get(root, 0) + 1
        for node in nodes:
            self._value[node], self._layout[node] = self._made(node)
        renewed = [self._renewed(variable, value) for variable, value in updates]
        return [self.whole(node) for node in outputs], renewed

    def _renewed(self, variable: Node, value: Node) -> Pair:
        assert isinstance(variable, Variable)
        axis = self.axes.get(variable)
        layout = self._layout[value]
        if axis is not None:
            return part_of(variable, axis, self.group), self.part(value, axis)
        if (
            isinstance(layout, int)
            and variable not in self.axes
            and self._divides(variable.shape[layout])
        ):
            self.wanted[variable] = layout
        return variable, self.whole(value)

    # ---- Values in other layouts

    @property
    def _shared(self) -> dict[str, Any]:
        return {"group": self.names, "size": self.group.size}

    def _divides(self, extent: Extent) -> bool:
        return isinstance(extent, int) and extent > 0 and extent % self.group.size == 0

    def whole(self, node: Node) -> Node:
        """Return a node's value, complete on every rank."""
        layout, value = self._layout[node], self._value[node]
        if layout is None:
            return value
        whole = self._whole.get(node)
        if whole is None:
            if layout == SUM:
                whole = ALLREDUCE(value, op="sum", **self._shared)
            elif is_bool(value.dtype):
                numbers = allgather(cast(value, np.int32), axis=int(layout), group=self.names)
                whole = cast(numbers, value.dtype)
            else:
                whole = allgather(value, axis=int(layout), group=self.names)
            self._whole[node] = whole
        return whole

    def part(self, node: Node, axis: int) -> Node:
        """Return the rank's rows of a node's value along an axis."""
        if self._layout[node] == axis:
            return self._value[node]
        origin, place = self._origin(node, axis)
        if origin is not None and origin not in self.axes and self._divides(origin.shape[place]):
            self.wanted[origin] = place
        value = self.whole(node)
        count = self._count(value.shape[axis])
        if value.op.sharding == "broadcast" and len(value.inputs) == 1:
            (source,) = value.inputs
            at = axis - (value.ndim - source.ndim)
            if at < 0 or source.shape[at] == 1:
                return broadcast_to(source, _replaced(value.shape, axis, count))
        split = (*value.shape[:axis], self.group.size, count, *value.shape[axis + 1 :])
        return take(reshape(value, split), INDEX(**self._shared), axis=axis)

    def _count(self, extent: Extent) -> int:
        assert isinstance(extent, int)
        return extent // self.group.size

    def _origin(self, node: Node, axis: int) -> tuple[Variable | None, int]:
        """Return the variable that a node is a transpose or a copy of, and its axis."""
        while not isinstance(node, Variable):
            if node.op.sharding == "transpose":
                axis = node.attrs["axes"][axis]
            elif not self._copies(node):
                return None, axis
            node = node.inputs[0]
        return node, axis

    def _copies(self, node: Node) -> bool:
        """Return whether a node is its operand in another dtype, or under another name."""
        several = any(isinstance(each.type, tuple) for each in (node, *node.inputs))
        if several or len(node.inputs) != 1 or node.inputs[0].shape != node.shape:
            return False
        return node.op.kind in (Kind.CONTROL, Kind.LAYOUT) or node.op.sharding == "linear"

    # ---- Nodes

    def _made(self, node: Node) -> tuple[Node, Layout]:
        if isinstance(node, Variable):
            axis = self.axes.get(node)
            return (node, None) if axis is None else (part_of(node, axis, self.group), axis)
        layouts = [self._layout[operand] for operand in node.inputs]
        rule = self._rule(node)
        if rule is None or (not any(layout is not None for layout in layouts)):
            if rule is not None and callable(node.op.sharding):
                self._begin(node)
            return self._all_whole(node)
        try:
            return rule(node, layouts)
        except NotSharded:
            return self._all_whole(node)

    def _all_whole(self, node: Node) -> tuple[Node, Layout]:
        return again(node, tuple(map(self.whole, node.inputs))), None

    def _begin(self, node: Node) -> None:
        """Take a large matrix by columns, where a whole value is multiplied by it.

        One in a walk: what comes after it may then be cut already.
        """
        if self.wanted or node.op.kind is not Kind.CONTRACTION or len(node.inputs) != 2:
            return
        right = node.inputs[1]
        origin, place = self._origin(right, right.ndim - 1)
        if origin is None or origin in self.axes or right.ndim != 2:
            return
        extent, size = origin.shape[place], origin.size
        if isinstance(size, int) and size >= self.least and self._divides(extent):
            self.wanted[origin] = place

    def _rule(self, node: Node) -> Callable[[Node, list[Layout]], tuple[Node, Layout]] | None:
        word = node.op.sharding
        if isinstance(node.type, tuple):
            return None
        if callable(word):
            return self._by_record
        for shaped in (self._transpose, self._broadcast, self._reshape):
            if word == shaped.__name__[1:]:
                return shaped
        if word in REDUCTIONS:
            return self._reduction
        if node.op.kind is Kind.ELEMENTWISE or word in (*_APART, "select"):
            return self._elementwise
        if node.op.kind is Kind.CONTROL and node.op.layout.alias and len(node.inputs) == 1:
            return self._alike
        return None

    def _alike(self, node: Node, layouts: list[Layout]) -> tuple[Node, Layout]:
        if layouts[0] == SUM:  # what a gradient is, say, all who read it read as one sum
            return self._all_whole(node)
        return again(node, (self._value[node.inputs[0]],)), layouts[0]

    def _elementwise(self, node: Node, layouts: list[Layout]) -> tuple[Node, Layout]:
        if self._sums(node, layouts):
            return again(node, tuple(self._value[operand] for operand in node.inputs)), SUM
        cut = {
            node.ndim - operand.ndim + layout
            for operand, layout in zip(node.inputs, layouts, strict=True)
            if isinstance(layout, int)
        }
        if len(cut) != 1:
            return self._all_whole(node)
        (axis,) = cut
        operands = []
        for operand in node.inputs:
            place = axis - (node.ndim - operand.ndim)
            if place < 0 or operand.shape[place] == 1:
                operands.append(self.whole(operand))
            else:
                operands.append(self.part(operand, place))
        return again(node, tuple(operands)), axis

    def _sums(self, node: Node, layouts: list[Layout]) -> bool:
        """Return whether the sum over ranks may be taken behind a node, and so once for many."""
        sums = [i for i, layout in enumerate(layouts) if layout == SUM]
        for i in sums:
            operand = node.inputs[i]
            if self._readers[operand] > 1 or operand.size != node.size:
                return False
            if operand.dtype != node.dtype:
                return False
        word = node.op.sharding
        if word == "linear":
            return bool(sums) and len(sums) == len(layouts)
        others = [layout for layout in layouts if layout != SUM]
        if word == "product" or (word == "quotient" and sums == [0]):
            return len(sums) == 1 and all(layout is None for layout in others)
        return False

    def _by_record(self, node: Node, layouts: list[Layout]) -> tuple[Node, Layout]:
        axes = [layout if isinstance(layout, int) else None for layout in layouts]
        if all(axis is None for axis in axes):
            return self._all_whole(node)
        result_layout = self._asked(node, axes)
        if result_layout is None:
            # One operand has its part of an axis, and the other has all of it.
            axes, result_layout = self._completed(node, axes)
        operands = [
            self.whole(operand) if axis is None else self.part(operand, axis)
            for operand, axis in zip(node.inputs, axes, strict=True)
        ]
        return node.op(*operands, name=node.name, **node.attrs), result_layout

    def _asked(self, node: Node, axes: Sequence[int | None]) -> Layout:
        assert callable(node.op.sharding)
        try:
            return node.op.sharding(node, axes)
        except NotSharded:
            return None

    def _completed(
        self, node: Node, axes: list[int | None]
    ) -> tuple[list[int | None], Layout]:
        """Return axes of the operands that fit each other, one of them being cut for it."""
        cut = [i for i, axis in enumerate(axes) if axis is not None]
        for keep in cut:
            for other in range(len(axes)):
                if other == keep:
                    continue
                for place, extent in enumerate(node.inputs[other].shape):
                    if not self._divides(extent):
                        continue
                    tried: list[int | None] = [None] * len(axes)
                    tried[keep], tried[other] = axes[keep], place
                    layout = self._asked(node, tried)
                    if layout is not None:
                        return tried, layout
        raise NotSharded("no operand can be cut to fit the other")

    # ---- Shapes

    def _transpose(self, node: Node, layouts: list[Layout]) -> tuple[Node, Layout]:
        value = again(node, (self._value[node.inputs[0]],))
        layout = layouts[0]
        return value, layout if layout == SUM else node.attrs["axes"].index(layout)

    def _broadcast(self, node: Node, layouts: list[Layout]) -> tuple[Node, Layout]:
        (layout,) = layouts
        if not isinstance(layout, int):
            return self._all_whole(node)
        axis = layout + node.ndim - node.inputs[0].ndim
        shape = _replaced(node.shape, axis, self._count(node.shape[axis]))
        return broadcast_to(self._value[node.inputs[0]], shape), axis

    def _reshape(self, node: Node, layouts: list[Layout]) -> tuple[Node, Layout]:
        (layout,) = layouts
        (source,) = node.inputs
        if not isinstance(layout, int):
            return self._all_whole(node)
        before = dims.size(source.shape[:layout])
        for axis, extent in enumerate(node.shape):
            if dims.size(node.shape[:axis]) == before and self._divides(extent):
                shape = _replaced(node.shape, axis, self._count(extent))
                value = self._value[source]
                if dims.size(shape) == value.size:
                    return reshape(value, shape), axis
        return self._all_whole(node)

    def _reduction(self, node: Node, layouts: list[Layout]) -> tuple[Node, Layout]:
        (layout,) = layouts
        axes: tuple[int, ...] = node.attrs["axes"]
        if not isinstance(layout, int):
            return self._all_whole(node)
        reduced = again(node, (self._value[node.inputs[0]],))
        if layout not in axes:
            return reduced, layout - sum(axis < layout for axis in axes)
        word = str(node.op.sharding)
        if word == "sum":
            return reduced, SUM
        return ALLREDUCE(reduced, op=word, **self._shared), None


def _replaced(shape: Sequence[Extent], axis: int, extent: Extent) -> tuple[Extent, ...]:
    return (*shape[:axis], extent, *shape[axis + 1 :])
