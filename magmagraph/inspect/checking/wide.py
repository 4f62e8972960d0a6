"""A graph evaluated in float64, with the decisions of a run in its own dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...dtypes import is_complex, is_inexact
from ...ir.graph import Graph, Node
from ...ir.interpret import Body, bind_attributes, evaluate
from ...ir.op import Kind

_WIDE = np.dtype(np.float64)
_WIDE_COMPLEX = np.dtype(np.complex128)
_ADDING = frozenset(
    (Kind.REDUCTION, Kind.CONTRACTION, Kind.CONVOLUTION, Kind.LINALG, Kind.TRANSFORM)
)


def _widest(dtype: np.dtype) -> np.dtype:
    return _WIDE_COMPLEX if is_complex(dtype) else _WIDE


def is_decision(node: Node) -> bool:
    """Return whether a small error of the operands can change the result at a stroke.

    Such are all results that are neither float nor complex (comparisons, argmax, positions, random
    bits), and floats that are piecewise constant (rounding, signs).
    """
    if isinstance(node.type, tuple) or node.op.kind is Kind.LEAF:
        return False
    if not is_inexact(node.dtype):
        return True
    return node.op.kind is Kind.ELEMENTWISE and bool(node.op.no_gradient)


def widened(value: Any) -> Any:
    """Return floats as float64, complex numbers as complex128, everything else as it is."""
    if isinstance(value, tuple):
        return tuple(map(widened, value))
    array = np.asarray(value)
    return array.astype(_widest(array.dtype)) if is_inexact(array.dtype) else array


def evaluate_wide(
    graph: Graph,
    feeds: Mapping[Node, Any],
    sizes: Mapping[str, int],
    decided: Mapping[Node, Any],
    moved: Callable[[Node, Any, float], Any] | None = None,
) -> dict[Node, Any]:
    """Return the value of every node, computed in float64.

    graph: A graph as it was frozen.
    feeds: An array for each input.
    sizes: The size of each named dimension.
    decided: The values of a run in the graph's own dtypes: decisions are taken from it.
    moved: ``moved(node, value, times)`` gives the value that goes on in the place of a node's own;
        it is not asked about decisions and constants. Operations that add up many products or
        elements are given operands that are moved once more, for themselves alone, since their own
        sums round: by half the depth of a pairwise sum (N. Higham, Accuracy and Stability of
        Numerical Algorithms, 2nd ed. 2002, ch. 4).
    """
    values: dict[Node, Any] = {}
    for node in graph.nodes:
        if is_decision(node):
            values[node] = decided[node]
            continue
        if node.op.kind is Kind.LEAF:
            values[node] = widened(feeds[node] if node in feeds else decided[node])
            if "value" in node.attrs:
                continue
        else:
            attrs = bind_attributes(node.attrs, sizes, _WideBody)
            for name, value in attrs.items():
                if isinstance(value, np.dtype) and is_inexact(value):
                    # A cast to a narrower float would round the reference.
                    attrs[name] = _widest(value)
            operands = [values[i] for i in node.inputs]
            if moved is not None and node.op.kind in _ADDING:
                times = _depth(operands) / 2.0
                operands = [
                    moved(i, v, times) for i, v in zip(node.inputs, operands, strict=True)
                ]
            with np.errstate(all="ignore"):
                result = node.op.evaluate(np, *operands, **attrs)
            values[node] = widened(result)
        if moved is not None:
            values[node] = moved(node, values[node], 1.0)
    return values


def _depth(operands: Sequence[Any]) -> float:
    """Return how deep a pairwise sum of an operand's elements is, at least 2."""
    return max(2.0, math.log2(max(2, *(np.size(operand) for operand in operands))))


class _WideBody(Body):
    """A body in float64; its decisions are those of the body in its own dtypes, there and then."""

    __slots__ = ()

    def run(self, arrays: Sequence[Any], xp: Any) -> list[Any]:
        """Return the outputs for arrays in the order of the parameters."""
        feeds = dict(zip(self.graph.inputs, arrays, strict=True))
        decided = evaluate(self.graph, feeds, self.sizes)
        values = evaluate_wide(self.graph, feeds, self.sizes, decided)
        return [values[node] for node in self.graph.outputs]
