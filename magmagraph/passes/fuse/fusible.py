"""Which operations of a graph can be joined into regions, and what regions can read through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...codegen.c.scalar import has_function
from ...codegen.region.joined import MOST_PARTS
from ...dtypes import is_complex
from ...ir.graph import Graph, Node
from ...ir.op import Kind

SCALAR_CHAIN = 32  # operations of a scalar that every region may compute again


class Fusible:
    """Facts about a graph that the fuse pass computes once, before it joins anything.

    Attributes
    ----------
    graph
        The graph.
    position
        Each node's place in program order.
    roots
        Nodes that somebody outside needs.
    free
        Scalars that depend on leaves only, which every region computes for itself, with the
        length of their expressions.
    core
        Nodes that a region computes.
    joins
        Whether regions read what pads, concatenations and rolls put together: on a GPU.
    numbers
        Whether regions compute with complex numbers: on a GPU.
    """

    def __init__(self, graph: Graph, on_gpu: bool = False) -> None:
        self.graph = graph
        self.joins = self.numbers = on_gpu
        self.position = {node: i for i, node in enumerate(graph.nodes)}
        self.roots = set(graph.roots)
        self._moves: dict[Node, bool] = {}
        self._readers: dict[Node, tuple[Node, ...]] = {}
        self._inside: dict[Node, bool] = {}
        self.free = self._free_scalars()
        self.core = dict.fromkeys(node for node in graph.nodes if self._is_core(node))
        for node in graph.nodes:
            if self.is_move(node) and not node.op.layout.alias and self._must_be_made(node):
                self.core[node] = None

    def _is_core(self, node: Node) -> bool:
        op = node.op
        if isinstance(node.type, tuple) or not self._has_numbers(node):
            return False
        if op.kind is Kind.ELEMENTWISE or op.kind is Kind.RANDOM:
            return op.scalar.expression is not None
        if op.kind is Kind.REDUCTION:
            return op.reduction is not None
        if self.is_joined(node):
            return True
        return op.kind is Kind.INDEX and op.scalar.expression is not None

    def _has_numbers(self, node: Node) -> bool:
        """Return whether kernels are generated for the numbers of a node."""
        if not _is_complex(node):
            return True
        if not self.numbers or node.op.reduction is not None:
            return False
        return node.op.kind is not Kind.ELEMENTWISE or has_function(node)

    def is_joined(self, node: Node) -> bool:
        """Return whether a region can read what the node puts together without it."""
        pieces = node.op.layout.pieces
        return (
            self.joins
            and pieces is not None
            and len(node.inputs) <= MOST_PARTS
            and pieces(node) is not None
        )

    def is_generator(self, node: Node) -> bool:
        """Return whether a region can make the value itself, at no cost."""
        if node.inputs:
            return False
        if "value" in node.attrs:
            return bool(node.attrs["value"].size == 1)
        return (
            node.op.scalar.expression is not None and node.op.kind in (Kind.INDEX, Kind.LEAF)
        ) or ("dim" in node.attrs)

    def makes_itself(self, node: Node) -> bool:
        """Return whether every region makes the value itself: a free scalar, or a generator."""
        return node in self.free or self.is_generator(node)

    def is_move(self, node: Node) -> bool:
        """Return whether the node only moves axes, so that a region can read through it."""
        cached = self._moves.get(node)
        if cached is None:
            cached = False
            if len(node.inputs) == 1 and node.op.kind in (Kind.LAYOUT, Kind.CONTROL):
                operand = node.inputs[0]
                tuples = isinstance(operand.type, tuple) or isinstance(node.type, tuple)
                if tuples or not self._has_numbers(node):
                    cached = False
                elif node.op.layout.alias:
                    cached = without_ones(node) == without_ones(operand)
                else:
                    cached = node.op.layout.view is not None
            self._moves[node] = cached
        return cached

    def _must_be_made(self, node: Node) -> bool:
        """Return whether somebody needs the moved value, or a name for it, in memory of its own."""
        names = [node]
        for name in names:
            if name in self.roots:
                return True
            for user in self.graph.users[name]:
                if not (self._is_core(user) or self.is_move(user)):
                    return True
                if user.op.layout.alias and user.op.kind is Kind.LAYOUT:
                    names.append(user)
        return False

    def _free_scalars(self) -> dict[Node, int]:
        """Return the scalars that depend on leaves only, with the length of their expressions."""
        free: dict[Node, int] = {}
        for node in self.graph.nodes:
            if (
                node.op.kind is not Kind.ELEMENTWISE
                or node.op.scalar.expression is None
                or node.shape
            ):
                continue
            if not self._has_numbers(node):
                continue
            length = 1
            for operand in node.inputs:
                if operand in free:
                    length += free[operand]
                elif operand.op.kind is not Kind.LEAF or operand.shape:
                    length = SCALAR_CHAIN + 1
            if length <= SCALAR_CHAIN:
                free[node] = length
        return free

    def made_inside(self, node: Node) -> bool:
        """Return whether every kernel that needs the value makes it itself."""
        cached = self._inside.get(node)
        if cached is None:
            cached = self._inside[node] = (
                self.makes_itself(node)
                or (node not in self.core and self.is_move(node))
            )
        return cached

    def base(self, node: Node) -> Node:
        """Look through what only moves axes, down to the value that is read."""
        while node not in self.core and self.is_move(node):
            node = node.inputs[0]
        return node

    def users(self, node: Node) -> tuple[Node, ...]:
        """Return the readers of a value, seen through what only moves axes."""
        readers = self._readers.get(node)
        if readers is None:
            readers = self._readers[node] = tuple(self._find_users(node))
        return readers

    def _find_users(self, node: Node) -> Iterator[Node]:
        stack = [node]
        while stack:
            for user in self.graph.users[stack.pop()]:
                if user not in self.core and self.is_move(user):
                    if user in self.roots:
                        yield user
                    stack.append(user)
                else:
                    yield user


def _is_complex(node: Node) -> bool:
    """Return whether a node makes or reads complex numbers."""
    return any(
        not isinstance(part.type, tuple) and is_complex(part.dtype) for part in (node, *node.inputs)
    )


def without_ones(node: Node) -> list[Any]:
    """Return the extents of a node that are not the literal 1."""
    return [e for e in node.shape if not (isinstance(e, int) and e == 1)]
