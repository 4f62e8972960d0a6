"""What is known of nodes' values while a graph is built: shapes are computed from shapes.

ONNX computes shapes with its ordinary operators, as vectors of int64. Here shapes are known when
a graph is built, with symbols for named dimensions. So the value of a node whose operands are
known is computed at once, by the array expression of its operation; an array of objects holds
`Dim`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...dtypes import is_integer
from ...ir.dims import Dim
from ...ir.graph import Node, topological
from ...ir.interpret import apply
from ...ir.op import Effect, Kind
from ...ops.leaf import constant, extent
from ...ops.shape.arrange import reshape
from ...ops.shape.joining import stack

__all__ = ["Known", "node_of"]

_MOST = 1 << 16  # elements of a value that is computed ahead
_NEVER = (Kind.RANDOM, Kind.COLLECTIVE, Kind.CONTROL)


def node_of(value: np.ndarray) -> Node:
    """Return the node of an array; one of objects holds ints and `Dim`, and becomes int64."""
    if value.dtype != object:
        return constant(value)
    if not any(isinstance(entry, Dim) for entry in value.flat):
        return constant(value.astype(np.int64))
    parts = [extent(entry) for entry in value.flat]
    return reshape(stack(parts), value.shape) if value.ndim else parts[0]


class Known:
    """The values that are known of nodes, computed when they are asked for, once each."""

    def __init__(self) -> None:
        self._values: dict[Node, np.ndarray | None] = {}

    def add(self, value: np.ndarray) -> Node:
        """Return the node of an array, whose value is known from now on."""
        node = node_of(value)
        self._values[node] = value
        return node

    def state(self, node: Node, value: np.ndarray) -> None:
        """Say what a node's value is."""
        self._values[node] = value

    def of(self, node: Node) -> np.ndarray | None:
        """Return the value of a node, None where it depends on what is fed."""
        for each in topological([node], stop=self._values.__contains__):
            if each not in self._values:
                self._values[each] = self._computed(each)
        return self._values[node]

    def _computed(self, node: Node) -> np.ndarray | None:
        if "value" in node.attrs and node.op.kind is Kind.LEAF:
            return np.asarray(node.attrs["value"])
        if node.op.kind is Kind.LEAF and "dim" in node.attrs:
            dim = node.attrs["dim"]
            return np.array(dim, np.int64 if isinstance(dim, int) else object)
        small = not isinstance(node.type, tuple) and all(
            isinstance(entry, int) for entry in node.shape
        )
        if not small or math.prod(node.shape) > _MOST or node.op.kind in _NEVER:
            return None
        if node.op.effect is not Effect.PURE or (not node.inputs and node.op.kind is Kind.LEAF):
            return None
        operands = []
        for operand in node.inputs:
            value = self._values[operand]
            if value is None or value.size > _MOST:
                return None
            operands.append(value)
        try:
            if any(value.dtype == object for value in operands):
                return _symbolic(node, operands)
            return np.asarray(apply(node, operands, {}))
        except Exception:  # it needs sizes that a call brings, or raises when it is called, too
            return None


def _symbolic(node: Node, operands: list[Any]) -> np.ndarray | None:
    """Return a value that is computed of symbols for dimensions, None where that cannot be."""
    if node.op.name == "cast":
        return operands[0] if is_integer(node.dtype) else None
    with np.errstate(all="ignore"):
        result = np.asarray(node.op.evaluate(np, *operands, **node.attrs), dtype=None)
    if result.shape != tuple(node.shape):
        return None
    return result if result.dtype == object else result.astype(node.dtype)
