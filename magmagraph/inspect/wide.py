"""A graph evaluated in float64, with the decisions of a run in its own dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..dtypes import is_complex, is_inexact
from ..graph import Graph, Node
from ..interpret import bind_attributes
from ..op import Kind

_WIDE = np.dtype(np.float64)
_WIDE_COMPLEX = np.dtype(np.complex128)


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
) -> dict[Node, Any]:
    """Return the value of every node, computed in float64.

    Parameters
    ----------
    graph
        A graph as it was frozen.
    feeds
        An array for each input.
    sizes
        The size of each named dimension.
    decided
        The values of a run in the graph's own dtypes: decisions are taken from it.
    """
    values: dict[Node, Any] = {}
    for node in graph.nodes:
        if is_decision(node):
            values[node] = decided[node]
        elif node.op.kind is Kind.LEAF:
            values[node] = widened(decided[node])
        else:
            attrs = bind_attributes(node.attrs, sizes)
            for name, value in attrs.items():
                if isinstance(value, np.dtype) and is_inexact(value):
                    # A cast to a narrower float would round the reference.
                    attrs[name] = _widest(value)
            with np.errstate(all="ignore"):
                made = node.op.evaluate(np, *[values[i] for i in node.inputs], **attrs)
            values[node] = widened(made)
    return values
