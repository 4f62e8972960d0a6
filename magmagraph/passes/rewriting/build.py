"""Build replacements: ordinary operations, and a few that keep types unchanged."""

from __future__ import annotations

from typing import Any

from ...ir.graph import Node
from ...ir.op import Composite, Op
from ...ir.types import Shape
from ...ops import TABLE
from ...ops.leaf import constant


class _Functions:
    """Gives every public function of the table by its name."""

    def __getattr__(self, name: str) -> Any:
        record = TABLE.get(name)
        if record is None or record.function is None:
            raise AttributeError(f"there is no public function {name!r}")
        assert isinstance(record, (Op, Composite))
        function = record.function
        self.__dict__[name] = function
        return function


F = _Functions()


def like(value: float, node: Node) -> Node:
    """Return a scalar constant of the node's dtype."""
    return constant(value, dtype=node.dtype)


def spread(node: Node, shape: Shape) -> Node:
    """Return the node broadcast to a shape, itself where it has that shape."""
    if node.shape == shape:
        return node
    result: Node = F.broadcast_to(node, shape)
    return result
