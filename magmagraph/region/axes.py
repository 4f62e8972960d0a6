"""Which axes of which nodes are one axis: the first half of the analysis of a fused region.

Every axis of every node of a body belongs to a class. Elementwise operations align trailing axes,
reductions drop axes, and layout operations move them. What a layout operation does is read off its
own array expression: applied to an array whose strides are known, a transposition, a slice, a flip
or a broadcast gives a view, and the view's strides say which axis went where. So no list of layout
operations is needed, and whatever gives no view (padding, concatenation) is not part of a region.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import dims
from ..dims import Dim
from ..graph import Node
from ..interpret import bind_attributes
from ..op import Kind
from ..types import Extent, Shape


class Refused(Exception):
    """Raised inside the analysis; `analyze` turns it into a `Refusal`."""

    def __init__(self, reason: str, node: Node | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node


class Moved(NamedTuple):
    """One axis of a view: the operand's axis that it runs along (None: repeated), and how."""

    axis: int | None
    step: int
    whole: bool


def _primes(first: int, last: int) -> tuple[int, ...]:
    return tuple(
        n for n in range(first, last) if all(n % d for d in range(2, math.isqrt(n) + 1))
    )


class ProbeSizes(dict[str, int]):
    """A made-up size for any dimension: a prime, so that no step of a slice divides it."""

    def __init__(self, primes: Sequence[int]) -> None:
        super().__init__()
        self.primes = primes

    def __missing__(self, name: str) -> int:
        self[name] = size = self.primes[zlib.crc32(name.encode()) % len(self.primes)]
        return size


PROBES = (_primes(67, 400), _primes(521, 1000))
_PROBE_BYTES = 1 << 30


def concrete(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return a shape with every dimension replaced by its size."""
    return tuple(e if isinstance(e, int) else dims.evaluate(e, sizes) for e in shape)


def moved_axes(node: Node) -> tuple[Moved, ...] | None:
    """Return where the axes of a layout node come from, or None where it is not a view.

    Axes of extent 1 are given as repeated: no loop runs along them.
    """
    symbolic = any(isinstance(e, Dim) for n in (node, *node.inputs) for e in n.shape)
    for primes in PROBES if symbolic else PROBES[:1]:
        found = _probe(node, ProbeSizes(primes))
        if found is not None:
            return found
    return None


def _probe(node: Node, sizes: ProbeSizes) -> tuple[Moved, ...] | None:
    (operand,) = node.inputs
    shape = concrete(operand.shape, sizes)
    if not 0 < math.prod(shape) <= _PROBE_BYTES:
        return None
    # The memory is real, since an expression that gives no view would read it, but the system
    # hands out pages only when they are touched.
    whole = np.empty(shape, dtype=np.int8)
    try:
        view = node.op.evaluate(np, whole, **bind_attributes(node.attrs, sizes))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if view.shape != concrete(node.shape, sizes) or not np.may_share_memory(view, whole):
        return None
    result: list[Moved] = []
    for position, (count, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        extent = node.shape[position]
        if count == 1:
            if extent != 1:
                return None  # a slice of this probe's sizes happens to be one long
            result.append(Moved(None, 1, True))
        elif stride == 0:
            result.append(Moved(None, 1, True))
        else:
            axis = _axis_of(abs(stride), whole)
            step, rest = divmod(stride, whole.strides[axis])
            if rest:
                return None
            same = extent == operand.shape[axis]
            result.append(Moved(axis, step, same and step == 1))
    return tuple(result)


def _axis_of(stride: int, whole: np.ndarray[Any, Any]) -> int:
    """Return the axis along which elements are `stride` apart: its own stride is the next below."""
    for axis in range(whole.ndim):
        if whole.shape[axis] > 1 and whole.strides[axis] <= stride:
            return axis
    raise AssertionError("a view steps by less than an element")


def reduced_axes(node: Node) -> tuple[int, ...]:
    """Return the operand's axes that a reduction drops."""
    ndim = node.inputs[0].ndim
    value = node.attrs["axes"] if "axes" in node.attrs else node.attrs.get("axis")
    if value is None:
        return tuple(range(ndim))
    axes = (value,) if isinstance(value, int) else tuple(value)
    return tuple(sorted(axis % ndim for axis in axes))


class AxisClasses:
    """Union-find over the axes of a body's nodes.

    Attributes
    ----------
    axes
        For each node, one entry per axis: a member of its class, or None for a literal 1.
        `find` gives the class.
    """

    def __init__(self) -> None:
        self.axes: dict[Node, tuple[int | None, ...]] = {}
        # What `of` gave since two classes met: it is asked for the same nodes again and again.
        self._found: dict[tuple[int | None, ...], tuple[int | None, ...]] = {}
        self._checked: set[tuple[int | None, ...]] = set()
        self._parent: list[int] = []
        self._extent: list[Extent] = []

    def fresh(self, extent: Extent) -> int | None:
        """Return a new class, or None for an extent that is the literal 1."""
        if isinstance(extent, int) and extent == 1:
            return None
        self._parent.append(len(self._parent))
        self._extent.append(extent)
        return len(self._parent) - 1

    def find(self, member: int) -> int:
        """Return the class of a member."""
        parent = self._parent
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    def unite(self, left: int, right: int) -> None:
        """Make two classes one."""
        left, right = self.find(left), self.find(right)
        if left == right:
            return
        # An int among the extents is what the others must be, once sizes are checked.
        if isinstance(self._extent[right], int) and not isinstance(self._extent[left], int):
            left, right = right, left
        self._parent[right] = left
        self._found.clear()

    def extent(self, member: int) -> Extent:
        """Return the extent of a class."""
        return self._extent[self.find(member)]

    def of(self, node: Node) -> tuple[int | None, ...]:
        """Return the classes of a node's axes."""
        axes = self.axes[node]
        known = self._found.get(axes)
        if known is None:
            known = tuple(None if a is None else self.find(a) for a in axes)
            self._found[axes] = known
        return known

    def declare(self, node: Node) -> None:
        """Give a node classes of its own."""
        self.axes[node] = tuple(self.fresh(extent) for extent in node.shape)

    def align(self, node: Node, operands: Sequence[Node]) -> None:
        """Give an elementwise node the classes of its operands, trailing axes together."""
        result: list[int | None] = [None] * node.ndim
        for operand in operands:
            offset = node.ndim - operand.ndim
            for position, member in enumerate(self.axes[operand]):
                if member is None:
                    continue
                known = result[offset + position]
                if known is None:
                    result[offset + position] = member
                else:
                    self.unite(known, member)
        self.axes[node] = tuple(result)

    def reduce(self, node: Node) -> frozenset[int]:
        """Give a reduction the classes of what is left; return the members that are reduced."""
        operand = node.inputs[0]
        gone = set(reduced_axes(node))
        source = self.axes[operand]
        kept = [member for axis, member in enumerate(source) if axis not in gone]
        if node.ndim == operand.ndim:
            self.axes[node] = tuple(None if a in gone else m for a, m in enumerate(source))
        elif node.ndim == len(kept):
            self.axes[node] = tuple(kept)
        else:
            raise Refused(f"{node.op.name} keeps other axes than it does not reduce", node)
        return frozenset(member for a in gone if (member := source[a]) is not None)

    def relabel(self, node: Node) -> bool:
        """Give a layout node its operand's classes, moved; False where it is not that simple."""
        operand = node.inputs[0]
        source = self.axes[operand]
        if node.op.alias:
            if node.op.kind is not Kind.LAYOUT and node.shape == operand.shape:
                self.axes[node] = source
                return True
            here = [p for p, extent in enumerate(node.shape) if extent != 1]
            there = [p for p, extent in enumerate(operand.shape) if extent != 1]
            if [node.shape[p] for p in here] != [operand.shape[p] for p in there]:
                return False
            result: list[int | None] = [None] * node.ndim
            for position, origin in zip(here, there, strict=True):
                result[position] = source[origin]
            self.axes[node] = tuple(result)
            return True
        moved = moved_axes(node)
        if moved is None or not all(m.whole for m in moved):
            return False
        used = [m.axis for m in moved if m.axis is not None]
        if sorted(used) != [axis for axis, extent in enumerate(operand.shape) if extent != 1]:
            return False  # an index or a slice of one element took an axis away
        self.axes[node] = tuple(
            self.fresh(node.shape[position]) if m.axis is None else source[m.axis]
            for position, m in enumerate(moved)
        )
        return True

    def is_view(self, node: Node) -> bool:
        """Return whether a layout node gives a view of its operand's memory."""
        return moved_axes(node) is not None

    def check(self, node: Node) -> None:
        """Refuse a node that runs along one class twice."""
        along = self.of(node)
        if along in self._checked:
            return
        self._checked.add(along)
        classes = [a for a in along if a is not None]
        if len(set(classes)) != len(classes):
            raise Refused(f"two axes of {node.op.name} are one axis of the region", node)
