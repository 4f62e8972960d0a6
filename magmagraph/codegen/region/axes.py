"""Which axes of which nodes are one axis: the first half of the analysis of a fused region.

Every axis of every node of a body belongs to a class. Elementwise operations align trailing axes,
reductions drop axes, and layout operations move them. What a layout operation does is a rule of its
record (`Layout.view`): along which axis of the operand each axis of the result runs, from where,
and in which steps. The rule holds for all sizes. So no list of layout operations is needed, and
whatever has no such rule (padding, concatenation) is not part of a region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir import dims
from ...ir.graph import Node
from ...ir.op import Kind
from ...ir.types import Extent, Shape


class Refused(Exception):
    """Raised inside the analysis; `analyze` turns it into a `Refusal`."""

    def __init__(self, reason: str, node: Node | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node


def concrete(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return a shape with every dimension replaced by its size."""
    return tuple(e if isinstance(e, int) else dims.evaluate(e, sizes) for e in shape)


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
        classes = self._found.get(axes)
        if classes is None:
            classes = tuple(None if a is None else self.find(a) for a in axes)
            self._found[axes] = classes
        return classes

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
                current = result[offset + position]
                if current is None:
                    result[offset + position] = member
                else:
                    self.unite(current, member)
        self.axes[node] = tuple(result)

    def reduce(self, node: Node) -> frozenset[int]:
        """Give a reduction the classes of its remaining axes; return the reduced members."""
        operand = node.inputs[0]
        gone = set(reduced_axes(node))
        source = self.axes[operand]
        kept = [member for axis, member in enumerate(source) if axis not in gone]
        if node.ndim == operand.ndim:
            self.axes[node] = tuple(None if a in gone else m for a, m in enumerate(source))
        elif node.ndim == len(kept):
            self.axes[node] = tuple(kept)
        else:
            raise Refused(f"{node.op.name} gives other axes than those it does not reduce", node)
        return frozenset(member for a in gone if (member := source[a]) is not None)

    def relabel(self, node: Node) -> bool:
        """Give a layout node its operand's classes, moved; False where it is not that simple."""
        operand = node.inputs[0]
        source = self.axes[operand]
        if node.op.layout.alias:
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
        if node.op.layout.view is None:
            return False
        classes: list[int | None] = [None] * node.ndim
        remaining = {axis for axis, extent in enumerate(operand.shape) if extent != 1}
        for position, (axis, _, step) in enumerate(node.op.layout.view(node)):
            extent = node.shape[position]
            if extent == 1:
                continue
            if axis is None:
                classes[position] = self.fresh(extent)
            elif step == 1 and extent == operand.shape[axis]:
                classes[position] = source[axis]
                remaining.remove(axis)
            else:
                return False
        if remaining:
            return False  # an index or a slice of one element took an axis away
        self.axes[node] = tuple(classes)
        return True

    def check(self, node: Node) -> None:
        """Refuse a node that runs along one class twice."""
        along = self.of(node)
        if along in self._checked:
            return
        self._checked.add(along)
        classes = [a for a in along if a is not None]
        if len(set(classes)) != len(classes):
            raise Refused(f"two axes of {node.op.name} are one axis of the region", node)
