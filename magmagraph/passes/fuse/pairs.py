"""Reduce pairs of small arrays with one result a thread, or in a processor's vectors.

Distances between all points, forces between all bodies, kernel matrices times a vector: what is
reduced is large, what it is made of is small. Before::

    %2 = reshape(%0, shape=(n, 1, 3)) : float32[n, 1, 3]
    %3 = reshape(%1, shape=(1, m, 3)) : float32[1, m, 3]
    %4 = subtract(%2, %3) : float32[n, m, 3]
    %5 = multiply(%4, %4) : float32[n, m, 3]
    %6 = sum(%5, axes=(2,)) : float32[n, m]
    %7 = min(%6, axes=(1,)) : float32[n]

After, short axes are written out, and the reduced axes come first::

    %2 = slice(%0, starts=(0, 0), ...)        # and two more; those of %1 have shape (m, 1)
    %8 = subtract(%2, %5) : float32[m, n]     # the first of three differences
    ...
    %19 = min(%18, axes=(0,)) : float32[n]

A thread then holds what belongs to its result in registers, and all threads of a block read the
same elements of the other array. Sums over short axes are taken one by one: `reassoc`.

On a processor the reduced axes come last: a result is a row, whose elements are vectors. The small
array that is read along it is turned in memory first, so that each coordinate is a row. Only what
has a short axis is written so, and only where nothing else reads the large values.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ...ir.graph import Graph, Node, Trace
from ...ir.op import Kind, Op
from ...ir.types import Extent
from ...ops.elementwise.arithmetic import ADD, MULTIPLY
from ...ops.elementwise.comparison import MAXIMUM, MINIMUM
from ...ops.reduction.primitives import MAX, MIN, PROD, SUM
from ..lowering.buffers import hinted
from ..pipeline import Options
from ..rewriting.build import F
from ..simplify.linear import exchanged

__all__ = ["paired"]

RULE = "a result a thread, of pairs"
SHORT = 16  # elements of an axis that is written out
LEAST = 1 << 18  # elements that are reduced together
MANY = 1024  # results that keep a device's threads busy with one each
TIMES = 64  # how often each element of what they are made of is read, at least
NODES = 600  # of all that is written out
JOINED: dict[Op, Op] = {SUM: ADD, PROD: MULTIPLY, MAX: MAXIMUM, MIN: MINIMUM}

_FLOAT32 = np.dtype(np.float32)

Place = int | None  # the position of an element along an axis; None: all of them, as a loop
Index = tuple[tuple[int, Place], ...]  # for each axis of a node: which axis of the whole, and where


def paired(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with reductions of pairs written so that each thread has one result."""
    found: dict[Node, tuple[Node, _Pairs]] = {}
    for node in graph.nodes:
        if node.op.kind is not Kind.REDUCTION or node.op.reduction is None:
            continue
        if not _is_large(node, options):
            continue
        pairs = _Pairs(node, options)
        try:
            found[node] = pairs.made(), pairs
        except _Unfit as unfit:
            if pairs.shortens or not pairs.rows:
                options.record.refuse(RULE, node, str(unfit))
    if options.target.device == "cpu":
        _keep_read(graph, found, options)
    mapping = {node: made for node, (made, _) in found.items()}
    return exchanged(graph, mapping, trace, options, "fuse", RULE)


def _keep_read(graph: Graph, found: dict[Node, tuple[Node, _Pairs]], options: Options) -> None:
    """Leave out reductions of large values that something else reads, too."""
    roots = set(graph.roots)
    while True:
        inside = set(found).union(*(pairs.large for _, pairs in found.values()))
        read = (
            node
            for node, (_, pairs) in found.items()
            if any(n in roots or not inside.issuperset(graph.users[n]) for n in pairs.large)
        )
        left_out = next(read, None)
        if left_out is None:
            return
        options.record.refuse(RULE, left_out, "something else reads the large values")
        del found[left_out]


class _Unfit(Exception):
    """Why a reduction stays as it is."""


def _count(node: Node, options: Options) -> int:
    return math.prod(hinted(extent, options.hints) for extent in node.shape)


def _is_large(node: Node, options: Options) -> bool:
    """Return whether a reduction reads a large computed value and has a small result."""
    value = node.inputs[0]
    computed = value.op.kind is Kind.ELEMENTWISE or value.op in JOINED
    if not computed or value.ndim < 2:
        return False
    whole = _count(value, options)
    return whole >= LEAST and _count(node, options) * TIMES <= whole


class _Pairs:
    """One reduction, and what it reads, written out."""

    def __init__(self, node: Node, options: Options) -> None:
        self.node, self.options = node, options
        self.value = node.inputs[0]
        self.axes: tuple[int, ...] = tuple(node.attrs["axes"])
        self.kept = [axis for axis in range(self.value.ndim) if axis not in self.axes]
        # A short axis behind the reduced ones is that of coordinates.
        self.written = [
            axis
            for axis in self.kept
            if axis > max(self.axes) and self._is_short(self.value.shape[axis])
        ]
        self.rows = options.target.device == "cpu"
        results = [axis for axis in self.kept if axis not in self.written]
        self.loops = [*results, *self.axes] if self.rows else [*self.axes, *results]
        if not self.rows and _count(node, options) < MANY * math.prod(self._extents(self.written)):
            self.loops.sort()  # threads share a result
        self.limit = _count(self.value, options) // TIMES
        self.built: dict[tuple[Node, Index], Node] = {}
        self.shortens = bool(self.written)
        self.large: set[Node] = set()  # what is written out and is not a small array

    def _extents(self, axes: list[int]) -> list[Any]:
        return [self.value.shape[axis] for axis in axes]

    @staticmethod
    def _is_short(extent: Extent) -> bool:
        return isinstance(extent, int) and 1 < extent <= SHORT

    def made(self) -> Node:
        """Return the reduction, or raise `_Unfit`."""
        if any(self.value.shape[axis] == 1 for axis in self.axes):
            raise _Unfit("an axis of one element is reduced")
        reduction = self.node.op.reduction
        if reduction is not None and reduction.indexed and len(self.axes) != 1:
            raise _Unfit("positions along several axes")
        shapes = [range(extent) for extent in self._extents(self.written)]
        parts = []
        for places in itertools.product(*shapes):
            fixed = dict(zip(self.written, places, strict=True))
            index = tuple((axis, fixed.get(axis)) for axis in range(self.value.ndim))
            whole = self._whole(self._build(self.value, index))
            axes = tuple(sorted(self.loops.index(axis) for axis in self.axes))
            attrs = {**self.node.attrs, "axes": axes}
            parts.append(self.node.op(whole, **attrs))
        if self.rows and not self.shortens:
            raise _Unfit("no axis is short")
        if self.rows and self.value.dtype != _FLOAT32:
            raise _Unfit("a processor's vectors of a row are of float32")
        return self._together(parts)

    def _together(self, parts: list[Node]) -> Node:
        """Return results for each place of the written axes as one array."""
        result = parts[0]
        if self.written:
            rest = [axis for axis in self.kept if axis not in self.written]
            stacked = F.stack(parts, axis=0)
            shape = tuple(self._extents([*self.written, *rest]))
            order = [*self.written, *rest]
            result = F.transpose(
                F.reshape(stacked, shape), tuple(order.index(axis) for axis in self.kept)
            )
        return result

    def _whole(self, value: Node) -> Node:
        """Return a value spread over all loops."""
        shape = tuple(self._extents(self.loops))
        result: Node = value if value.shape == shape else F.broadcast_to(value, shape)
        return result

    # ---- Elements of a node

    def _build(self, node: Node, index: Index) -> Node:
        """Return a node at some places, with the loops as its axes; those it has not are 1."""
        key = node, index
        if key not in self.built:
            if len(self.built) > NODES:
                raise _Unfit(f"more than {NODES} operations would be written out")
            self.built[key] = self._written_out(node, index)
        return self.built[key]

    def _written_out(self, node: Node, index: Index) -> Node:
        op = node.op
        if node.ndim == 0:
            return node
        if _count(node, self.options) > self.limit:
            self.large.add(node)
        if op.kind is Kind.ELEMENTWISE and not isinstance(node.type, tuple):
            operands = [self._build(o, self._broadcast(o, node, index)) for o in node.inputs]
            return op(*operands, **node.attrs)
        if op in JOINED and self._short_sum(node):
            return self._reduced(node, index)
        seen = self._through(node, index)
        return self._end(node, index) if seen is None else self._build(node.inputs[0], seen)

    @staticmethod
    def _broadcast(operand: Node, node: Node, index: Index) -> Index:
        """Return the places of an operand, whose last axes are those of the node, or 1."""
        own = index[node.ndim - operand.ndim :]
        return tuple(
            (axis, 0 if extent == 1 else place)
            for (axis, place), extent in zip(own, operand.shape, strict=True)
        )

    def _short_sum(self, node: Node) -> bool:
        extents = [node.inputs[0].shape[axis] for axis in node.attrs["axes"]]
        constants = [extent for extent in extents if isinstance(extent, int)]
        return len(constants) == len(extents) and 0 < math.prod(constants) <= SHORT

    def _reduced(self, node: Node, index: Index) -> Node:
        """Return a reduction over short axes, one element after the other."""
        self.shortens = True
        value = node.inputs[0]
        axes = node.attrs["axes"]
        result: Node | None = None
        for places in itertools.product(*(range(value.shape[axis]) for axis in axes)):
            at = iter(places)
            rest = iter(index)
            own = tuple(
                (-1, next(at)) if axis in axes else next(rest) for axis in range(value.ndim)
            )
            element = self._build(value, own)
            element = element if element.dtype == node.dtype else F.cast(element, node.dtype)
            result = element if result is None else JOINED[node.op](result, element)
        assert result is not None
        return result

    def _through(self, node: Node, index: Index) -> Index | None:
        """Return the places of what a layout operation reads; None where it is read as it is."""
        layout = node.op.layout
        if len(node.inputs) != 1 or node.op.kind is not Kind.LAYOUT:
            return None
        operand = node.inputs[0]
        places: dict[int, tuple[int, Place]] = {}
        if layout.view is not None:
            views = zip(layout.view(node), index, node.shape, strict=True)
            for (axis, start, step), (loop, place), extent in views:
                if axis is None:
                    continue
                whole = start == 0 and step == 1 and operand.shape[axis] == extent
                if not (isinstance(start, int) if place is not None else whole):
                    return None
                places[axis] = loop, None if place is None else int(start) + step * place
        elif layout.alias:
            moving = [axis for axis, extent in enumerate(operand.shape) if extent != 1]
            seen = [at for at, extent in zip(index, node.shape, strict=True) if extent != 1]
            if [operand.shape[a] for a in moving] != [e for e in node.shape if e != 1]:
                return None
            places = dict(zip(moving, seen, strict=True))
        else:
            return None
        if any(axis not in places and operand.shape[axis] != 1 for axis in range(operand.ndim)):
            return None
        return tuple(places.get(axis, (-1, 0)) for axis in range(operand.ndim))

    def _end(self, node: Node, index: Index) -> Node:
        """Return elements of a small array, with the loops as its axes."""
        if _count(node, self.options) > self.limit:
            raise _Unfit(f"'{node.op.name}' of shape {node.shape} is as large as what is reduced")
        loops = [axis for axis, place in index if place is None]
        if len(set(loops)) < len(loops):
            raise _Unfit("one axis is read twice")
        # An array that is read along two loops is moved in another way for each, so that a kernel
        # can take it as two operands.
        alone = [at for at, (_, place) in enumerate(index) if place is not None]
        moving = sorted(
            (at for at, (_, place) in enumerate(index) if place is None),
            key=lambda at: self.loops.index(index[at][0]),
        )
        front = self.loops[-1] in loops
        order = [*alone, *moving] if front else [*moving, *alone]
        turned = node if order == list(range(node.ndim)) else F.transpose(node, tuple(order))
        if self.rows and front and turned is not node:
            turned = F.positive(turned)  # in memory of its own: rows are read along it
        places = [index[at][1] for at in order]
        value = turned[tuple(slice(p, None if p is None else p + 1) for p in places)]
        extents: dict[int, Any] = {index[at][0]: node.shape[at] for at in moving}
        return F.reshape(value, tuple(extents.get(axis, 1) for axis in self.loops))  # type: ignore[no-any-return]
