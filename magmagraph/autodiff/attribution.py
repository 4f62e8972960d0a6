"""Attribute the nodes of a gradient to the line and the group of the node that they belong to."""

from __future__ import annotations

from ..ir.graph import Node
from ..ir.lines import Group, Line, current_group


class Attribution:
    """The groups of one backward sweep: ``gradient``, and in it a copy of each forward group."""

    def __init__(self) -> None:
        outer = Group("gradient", current_group(), "gradient")
        self._copies: dict[Group | None, Group] = {None: outer}

    def line(self, node: Node) -> Line | None:
        """Return the line for nodes of the gradient of `node`."""
        if node.line is None:
            return None
        return self._copy(node.line.group).line(node.line.file, node.line.number)

    def _copy(self, group: Group | None) -> Group:
        copy = self._copies.get(group)
        if copy is None:
            assert group is not None
            copy = Group(group.name, self._copy(group.parent), group.kind)
            self._copies[group] = copy
        return copy
