"""The first walk over a fused body: find equal axes, operands and reductions."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.graph import Graph, Node, topological
from ...ir.op import Kind
from .axes import AxisClasses, Refused
from .joined import Joined, join, whole


class Reading:
    """The result of one walk over a body.

    Attributes
    ----------
    nodes
        The nodes that the outputs need, operands first.
    classes
        The classes of their axes.
    source
        For each node, the one that holds its elements (`Value.source`).
    views
        For each node that reads a parameter, the layout nodes between the two.
    parameter
        For each node that reads a parameter, its position.
    reduced
        For each reduction, the classes that it reduces; without those of extent 1.
    joined
        The parts of each node that reads several parameters, or one in parts.
    counters
        For each node that is a function of the position alone, the axes along which it is.
    """

    def __init__(self, body: Graph) -> None:
        self.body = body
        self.nodes = topological(body.outputs)
        self.classes = AxisClasses()
        self.source: dict[Node, Node] = {}
        self.views: dict[Node, tuple[Node, ...]] = {}
        self.parameter: dict[Node, int] = {}
        self.counters: dict[Node, tuple[int, ...]] = {}
        self._members: dict[Node, frozenset[int]] = {}
        self.joined: dict[Node, Joined] = {}
        self._chain: dict[Node, tuple[Node, ...]] = {}
        self._sets: dict[tuple[int | None, ...], frozenset[int]] = {}
        position = {node: i for i, node in enumerate(body.inputs)}
        for node in self.nodes:
            if node in position:
                self._read(node, (), position[node])
            elif not node.inputs:
                self._leaf(node)
            elif node.op.reduction is not None:
                self._members[node] = self.classes.reduce(node)
                self.source[node] = node
            elif node.op.kind is Kind.RANDOM:
                self._counter(node)
            elif node.op.layout.pieces is not None:
                self._pieces(node)
            elif node.op.scalar.expression is None or node.op.layout.alias:
                self._layout(node)
            elif node.op.kind is Kind.ELEMENTWISE:
                self.classes.align(node, node.inputs)
                self.source[node] = node
            else:
                self._counter(node)
        self._keep_what_is_read()
        if not self._members:
            self._align_strangers()
        for node in self.nodes:
            self.classes.check(node)
        find = self.classes.find
        self.reduced = {
            node: frozenset(map(find, members)) for node, members in self._members.items()
        }

    def _align_strangers(self) -> None:
        """Let results of one shape that have nothing to do with each other share their axes."""
        classes, outputs = self.classes, self.body.outputs
        for output in outputs[1:]:
            if output.shape == outputs[0].shape:
                first, other = classes.of(outputs[0]), classes.of(output)
                if not {c for c in first if c is not None} & {c for c in other if c is not None}:
                    for left, right in zip(first, other, strict=True):
                        if left is not None and right is not None:
                            classes.unite(left, right)

    def _keep_what_is_read(self) -> None:
        """Forget parameters and views that are only on the way to other views."""
        read = set(self.body.outputs)
        for node in reversed(self.nodes):
            if node in read and node not in self.parameter:
                read.update(node.inputs)
        self.nodes = [node for node in self.nodes if node in read]
        self.parameter = {n: i for n, i in self.parameter.items() if n in read}

    def along(self, node: Node) -> frozenset[int]:
        """Return all classes of a node's shape."""
        classes = self.classes.of(node)
        axes = self._sets.get(classes)
        if axes is None:
            axes = self._sets[classes] = frozenset(c for c in classes if c is not None)
        return axes

    def of(self, nodes: Iterable[Node]) -> frozenset[int]:
        """Return all classes of some nodes' shapes."""
        return frozenset[int]().union(*map(self.along, nodes))

    def _read(self, node: Node, views: tuple[Node, ...], parameter: int) -> None:
        self.classes.declare(node)
        self.views[node] = self._chain[node] = views
        self.parameter[node] = parameter
        self.source[node] = node

    def _leaf(self, node: Node) -> None:
        single = "value" in node.attrs and node.attrs["value"].size == 1
        if node.ndim == 0 or single:
            self.classes.declare(node)
            self.source[node] = node
        elif node.op.scalar.expression is not None:
            self._counter(node)
        else:
            raise Refused(f"the result of {node.op.name} is an operand, not part of a region", node)

    def _counter(self, node: Node) -> None:
        if any(operand.ndim for operand in node.inputs):
            raise Refused(f"{node.op.name} is neither elementwise nor a reduction", node)
        self.classes.declare(node)
        self.source[node] = node
        axis = node.attrs.get("axis")
        self.counters[node] = tuple(range(node.ndim)) if axis is None else (axis,)

    def counted(self, node: Node) -> list[int | None]:
        """Return the classes of the axes along which a counter counts."""
        classes = self.classes.of(node)
        return [classes[axis] for axis in self.counters[node]]

    def _read_parts(self, node: Node, joined: Joined) -> None:
        self.classes.declare(node)
        self.joined[node] = joined
        self.views[node] = ()
        self.parameter[node] = joined.parts[0].parameter
        self.source[node] = node

    def _pieces(self, node: Node) -> None:
        assert node.op.layout.pieces is not None
        pieces = node.op.layout.pieces(node)
        operands = []
        for operand in node.inputs:
            joined, chain = self.joined.get(operand), self._chain.get(operand)
            if joined is None and chain is not None:
                joined = whole(self.parameter[self.source[operand]], operand, chain)
            if joined is None:
                raise Refused(f"{node.op.name} of a computed value moves its elements", node)
            operands.append(joined)
        access = None if pieces is None else join(node, pieces, operands)
        if access is None:
            raise Refused(f"the parts of {node.op.name} have gaps, or are too many", node)
        self._read_parts(node, access)

    def _layout(self, node: Node) -> None:
        operand = node.inputs[0]
        movable = node.op.layout.alias or node.op.kind in (Kind.LAYOUT, Kind.INDEX)
        if not movable or len(node.inputs) != 1:
            raise Refused(f"{node.op.name} has no scalar expression", node)
        chain = self._chain.get(operand)
        if self.classes.relabel(node):
            self.source[node] = self.source[operand]
            if chain is not None:
                self._chain[node] = (*chain, node)
            elif operand in self.joined and (seen := self.joined[operand].seen(node)):
                self.joined[node] = seen
            return
        if operand in self.joined and (seen := self.joined[operand].seen(node)):
            self._read_parts(node, seen)
            return
        if chain is not None:
            contiguous = all(view.op.layout.alias for view in chain)
            if contiguous if node.op.layout.alias else node.op.layout.view is not None:
                self._read(node, (*chain, node), self.parameter[self.source[operand]])
                return
        if node.op.layout.alias:
            raise Refused(f"{node.op.name} of a computed value joins or splits axes", node)
        raise Refused(f"{node.op.name} of a computed value picks some of its elements", node)
