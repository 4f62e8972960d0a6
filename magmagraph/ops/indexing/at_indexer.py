"""What ``x.at`` gives: single elements of a node, to be read or updated."""

from __future__ import annotations

from typing import Any

from ...ir.graph import Node
from ..convert import as_node
from ..elementwise.arithmetic import divide
from ..leaf import constant
from .keys import index
from .updates import index_update


class Place:
    """Some elements of a node, to be read or updated; ``x.at[key]`` makes it."""

    __slots__ = ("_key", "_node")

    def __init__(self, node: Node, key: Any) -> None:
        self._node = node
        self._key = key

    def get(self, mode: str = "clip") -> Node:
        """Read the elements: ``x[key]`` with a choice of what positions outside mean."""
        return index(self._node, self._key, mode)

    def set(self, values: Any, mode: str = "clip") -> Node:
        """Put values in their places; of several at one position the last one stays."""
        return index_update(self._node, self._key, values, "set", mode)

    def add(self, values: Any, mode: str = "clip") -> Node:
        """Add values; several at one position add up."""
        return index_update(self._node, self._key, values, "add", mode)

    def subtract(self, values: Any, mode: str = "clip") -> Node:
        """Subtract values; several at one position add up."""
        return index_update(self._node, self._key, -as_node(values, self._node.dtype), "add", mode)

    def multiply(self, values: Any, mode: str = "clip") -> Node:
        """Multiply by values; several at one position multiply."""
        return index_update(self._node, self._key, values, "multiply", mode)

    def divide(self, values: Any, mode: str = "clip") -> Node:
        """Divide by values (of floats); several at one position divide one after the other."""
        inverse = divide(constant(1, dtype=self._node.dtype), as_node(values, self._node.dtype))
        return index_update(self._node, self._key, inverse, "multiply", mode)

    def min(self, values: Any, mode: str = "clip") -> Node:
        """Take the smaller of element and value."""
        return index_update(self._node, self._key, values, "min", mode)

    def max(self, values: Any, mode: str = "clip") -> Node:
        """Take the larger of element and value."""
        return index_update(self._node, self._key, values, "max", mode)


class Places:
    """What ``x.at`` is: subscript it for a `Place`."""

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        self._node = node

    def __getitem__(self, key: Any) -> Place:
        return Place(self._node, key)

    __iter__ = None  # Python would subscript it with 0, 1, 2, ... without end
