"""Sum complex numbers by their parts, as kernels of a GPU do.

Before::

    %1 = sum(%0, axes=(1,)) : complex64[n]

After::

    %1 = real(%0) : float32[n, m]
    %2 = sum(%1, axes=(1,)) : float32[n]
    %3 = imag(%0) : float32[n, m]
    %4 = sum(%3, axes=(1,)) : float32[n]
    %5 = complex(%2, %4) : complex64[n]

Both sums are then of one kernel, with what makes the numbers: `reassoc`.
"""

from __future__ import annotations

from ...dtypes import is_complex
from ...ir.graph import Graph, Node, Trace
from ...ops.elementwise.complex_numbers import IMAGINARY_PART, MAKE_COMPLEX, REAL_PART
from ...ops.reduction.primitives import SUM
from ..pipeline import Options
from ..simplify.linear import exchanged

__all__ = ["parted"]

RULE = "a complex sum by its parts"


def parted(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with sums of real numbers in place of complex sums."""
    mapping: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op is SUM and is_complex(node.dtype):
            (z,) = node.inputs
            parts = [SUM(part(z), **node.attrs) for part in (REAL_PART, IMAGINARY_PART)]
            mapping[node] = MAKE_COMPLEX(*parts)
    return exchanged(graph, mapping, trace, options, "fuse", RULE)
