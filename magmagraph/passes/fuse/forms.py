"""Describe the kernel of a set of nodes: first its form, which is cheap, then its body graph.

Growing clusters asks of thousands of sets of nodes whether they make a region. Sets that differ in
nothing but whose nodes they are have one form, and one answer: a body graph is made for the first
of them. Kernels that differ in nothing else, constants and lines neither, share that body, and
whatever is found out about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from ...ir.graph import Graph, Interner, Node, attribute_key
from ...ops.leaf import PARAMETER
from .clusters import Cluster, Clusters

Made: TypeAlias = tuple[Graph, list[Node], list[Node]]
"""The body of a kernel, the operands that it takes, and what it returns."""

Line: TypeAlias = tuple[int, ...]
"""What a node of a body computes (equal numbers for equal operations), and of which lines."""


class Form(NamedTuple):
    """A body without its nodes.

    Attributes
    ----------
    lines, results
        A line for each node, operands first, and the lines that are returned: equal for bodies
        that are equal but for whose nodes they are.
    nodes
        The graph's node of each line: what it computes, or what a parameter stands for.
    taken, outputs
        The nodes that the kernel reads, in the order of its parameters, and those it returns.
    moves
        Whether something is moved before it is read.
    """

    lines: tuple[Line, ...]
    results: tuple[int, ...]
    nodes: list[Node]
    taken: list[Node]
    outputs: list[Node]
    moves: bool

    @property
    def key(self) -> tuple[tuple[Line, ...], tuple[int, ...]]:
        """What equal forms share."""
        return self.lines, self.results

    @property
    def details(self) -> tuple[object, ...]:
        """Details of a body that its key leaves out: constants, names, the user's lines."""
        return tuple(
            [
                (node.name, node.line, attribute_key(node.attrs) if "value" in node.attrs else None)
                for node, (label, *_) in zip(self.nodes, self.lines, strict=True)
                if label >= 0
            ]
        )

    def sketch(self) -> Graph:
        """Return it as a body graph, whose nodes its interner does not know yet."""
        parameters: list[Node] = []
        nodes: list[Node] = []
        for node, (label, *operands) in zip(self.nodes, self.lines, strict=True):
            type_ = node.type
            if label < 0:
                attrs = {"index": len(parameters), "dtype": type_.dtype, "shape": type_.shape}
                nodes.append(Node(PARAMETER, (), attrs, type_))
                parameters.append(nodes[-1])
            else:
                inputs = tuple([nodes[i] for i in operands])
                rest = node.name, node.line, node.constraints
                nodes.append(Node(node.op, inputs, node.attrs, type_, *rest))
        results = tuple([nodes[i] for i in self.results])
        return Graph(tuple(parameters), results, (), Interner())


class Forms:
    """The kernel forms of sets of nodes of a graph.

    Parameters
    ----------
    clusters
        Of the graph.
    """

    def __init__(self, clusters: Clusters) -> None:
        self.clusters, self.facts = clusters, clusters.facts
        self._sketches: dict[object, tuple[Form, Graph]] = {}  # a region of each form
        self._body_of: dict[object, Graph] = {}
        self._labels: dict[object, int] = {}
        self._label_of: dict[Node, int] = {}
        self._parameter_lines: dict[Node, Line] = {}

    def keep(self, form: Form, sketch: Graph) -> None:
        """Keep the sketch of a form that is a region: it may become the body of a kernel."""
        self._sketches[form.key] = form, sketch

    def _label(self, node: Node) -> int:
        """Return a number for the operation of a node, independent of its operands."""
        label = self._label_of.get(node)
        if label is None:
            # What a constant is worth decides nothing, and its sort is that of its type.
            attributes = {} if "value" in node.attrs else node.attrs
            attrs = tuple([(k, attribute_key(attributes[k])) for k in sorted(attributes)])
            what = (node.op, attrs, node.type)
            label = self._label_of[node] = self._labels.setdefault(what, len(self._labels))
        return label

    def _parameter_line(self, node: Node) -> Line:
        """Return the line of an operand: its type's number, below zero unlike an operation's."""
        line = self._parameter_lines.get(node)
        if line is None:
            line = (-1 - self._labels.setdefault(node.type, len(self._labels)),)
            self._parameter_lines[node] = line
        return line

    def _read_inside(self, members: list[Node], outputs: Iterable[Node]) -> list[Node]:
        """Return the members that outputs need, without those that all readers recompute.

        Its operands would be parameters that the kernel never reads.
        """
        read = set(outputs)
        for node in reversed(members):
            readers = self.facts.users(node)
            if any(user in read or self.facts.made_inside(user) for user in readers):
                read.add(node)
        return [node for node in members if node in read]

    def form(
        self,
        nodes: Iterable[Node],
        cluster: Cluster | None = None,
        *,
        outputs: Sequence[Node] | None = None,
        split: bool = False,
    ) -> Form:
        """Return the form of the kernel of some nodes.

        With `split`, an operand that is moved before it is read is taken once for each way.
        """
        members = sorted(nodes, key=self.facts.position.__getitem__)
        inside = set(members)
        if outputs is None:
            again = cluster.again if cluster is not None else ()
            outputs = [n for n in members if n not in again and self.clusters.is_output(n, inside)]
        if self.clusters.computes_again:
            members = self._read_inside(members, outputs)
        number: dict[Node, int] = {}
        lines: list[Line] = []
        standing: list[Node] = []
        taken: list[Node] = []
        moves = False

        def add(node: Node, line: Line) -> int:
            lines.append(line)
            standing.append(node)
            return len(lines) - 1

        def leaf(node: Node) -> int:
            taken.append(node)
            return add(node, self._parameter_line(node))

        def read(root: Node) -> None:
            """Add the views and values that the kernel computes itself, down to its operands."""
            nonlocal moves
            stack = [root]
            while stack:
                node = stack[-1]
                if node in number:
                    stack.pop()
                    continue
                if not self.facts.made_inside(node):
                    number[node] = leaf(node)
                    stack.pop()
                    continue
                apart: set[Node] = set()
                if self.facts.is_move(node):
                    moves = True
                    if split:
                        outside = (i for i in node.inputs if i not in inside)
                        apart = {i for i in outside if not self.facts.made_inside(i)}
                missing = [i for i in node.inputs if i not in number and i not in apart]
                if missing:
                    stack.extend(reversed(missing))
                    continue
                operands = [leaf(i) if i in apart else number[i] for i in node.inputs]
                number[node] = add(node, (self._label(node), *operands))
                stack.pop()

        for node in members:  # which come after those that they read
            for operand in node.inputs:
                if operand not in number:
                    if self.facts.made_inside(operand):
                        read(operand)
                    else:
                        number[operand] = leaf(operand)
            number[node] = add(node, (self._label(node), *[number[i] for i in node.inputs]))
        results = tuple([number[n] for n in outputs])
        return Form(tuple(lines), results, standing, taken, list(outputs), moves)

    def body(self, form: Form) -> Made:
        """Return what will be a kernel: of equal ones, the same body."""
        details = form.details
        body = self._body_of.get((form.key, details))
        if body is None:
            cached = self._sketches.get(form.key)
            body = cached[1] if cached and cached[0].details == details else form.sketch()
            body.interner.adopt(body.nodes)
            self._body_of[form.key, details] = body
        return body, form.taken, form.outputs
