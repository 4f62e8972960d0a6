"""Clusters: sets of operations that will be one kernel, and which of them computes each node."""

from __future__ import annotations

from typing import Any

from ...ir.graph import Node
from .fusible import Fusible, without_ones

__all__ = ["Cluster", "Clusters"]


class Cluster:
    """Operations that will be one kernel."""

    __slots__ = ("_widest", "again", "externals", "first", "last", "nodes", "plain")

    def __init__(self, node: Node, position: int, plain: bool, externals: set[Node]) -> None:
        self.nodes = [node]
        self.again: set[Node] = set()  # nodes of other clusters that this one computes again
        self.first = self.last = position
        self.plain = plain  # elementwise operations of one shape, which always make a region
        self.externals = externals
        self._widest: list[Any] | None = None

    def take(self, other: Cluster) -> None:
        """Add the nodes of another cluster; the caller gives the new operands."""
        if self._widest is not None:
            self._widest = max(self._widest, other.widest, key=len)
        self.nodes += other.nodes
        self.first = min(self.first, other.first)
        self.last = max(self.last, other.last)

    @property
    def widest(self) -> list[Any]:
        """The extents of the largest value that it touches."""
        if self._widest is None:
            values = (value for node in self.nodes for value in (node, *node.inputs))
            self._widest = max(map(without_ones, values), key=len)
        return self._widest


class Clusters:
    """The clusters of a graph in the making.

    Attributes
    ----------
    facts
        Of the graph.
    of
        The cluster that computes a node.
    kept, unread
        See `recompute`: values that must be in memory, and nodes that nothing computes.
    computes_again
        Whether clusters compute values of others again by now.
    """

    def __init__(self, facts: Fusible) -> None:
        self.facts = facts
        self.of: dict[Node, Cluster] = {}
        self.kept: set[Node] = set()  # what chains that are computed again read
        self.unread: set[Node] = set()  # nodes that all readers compute again
        self.computes_again = False

    def unit(self, node: Node) -> Cluster | Node:
        """Return the cluster that computes a node, or the node itself where it is a step."""
        return self.of.get(node, node)

    def is_output(self, node: Node, members: set[Node]) -> bool:
        """Return whether a kernel of these members has to write a value that it computes."""
        if node in self.facts.roots or node in self.kept:
            return True
        for user in self.facts.users(node):
            if user not in members and user not in self.unread:
                reader = self.of.get(user)
                if reader is None or node not in reader.again:
                    return True
        return False
