"""Write products of small matrices as sums of elementwise products.

A library's product of many small matrices reads and writes memory for each, and nothing can be
computed in it. Before::

    %2 = gemm(%0, %1, ...) : float32[b, 4, 4]

After::

    %2 = slice(%0, starts=(0, 0, 0), steps=(1, 1, 1), shape=(b, 4, 1)) : float32[b, 4, 1]
    %3 = slice(%1, starts=(0, 0, 0), steps=(1, 1, 1), shape=(b, 1, 4)) : float32[b, 1, 4]
    %4 = multiply(%2, %3) : float32[b, 4, 4]      # and three more, added up

One thread computes one element, in the kernel that computes the operands, or reads the result.
Products are added one by one: `reassoc`.

On a processor a small matrix times a vector becomes the sum of a row of products, where such rows
are vectors: `gemm(%0, %1)` is ``sum(multiply(%0, reshape(%1)), axes=(1,))``. A library's call takes
longer than the product, and what reads the result is then part of the same kernel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...codegen.region.analysis import FULL_ROW
from ...ir.graph import Graph, Node, Trace
from ...ops.products.lowered import GEMM
from ..lowering.buffers import hinted
from ..pipeline import Options
from ..rewriting.build import F
from ..simplify.linear import exchanged

__all__ = ["written_out"]

RULE = "a small product as elementwise work"
TERMS = 16  # of a sum
SIDE = 32  # rows and columns of each of many products
NARROW = 8  # columns, and terms, of one tall product
LEAST = 1 << 12  # elements of a result; fewer take no longer than a launch
ROWS = 1 << 10  # elements of a matrix whose product with a vector is the sum of a row
DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def written_out(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with products of small matrices as elementwise operations."""
    mapping: dict[Node, Node] = {}
    cpu = options.target.device == "cpu"
    for node in graph.nodes:
        if node.op is GEMM and cpu:
            if _is_small_row(node):
                mapping[node] = _sum_of_row(node)
        elif node.op is GEMM:
            reason = _reason(node, options)
            if reason is None:
                mapping[node] = _sum_of_products(node)
            elif reason:
                options.record.refuse(RULE, node, reason)
    return exchanged(graph, mapping, trace, options, "fuse", RULE)


def _reason(node: Node, options: Options) -> str | None:
    """Return why a product stays one, empty where it is simply large, or None."""
    a, b = node.inputs[:2]
    attrs = node.attrs
    *batch, m, n = node.shape
    k = a.shape[-2 if attrs["transpose_a"] else -1]
    if not isinstance(k, int) or not 0 < k <= (TERMS if batch else NARROW):
        return ""
    short = [extent for extent in (m, n) if isinstance(extent, int)]
    if batch and (len(short) < 2 or max(short) > SIDE):
        return ""
    if not batch and (not short or min(short) > NARROW):
        return ""
    if math.prod(hinted(extent, options.hints) for extent in node.shape) < LEAST:
        return ""
    if node.dtype not in DTYPES or any(operand.dtype != node.dtype for operand in (a, b)):
        return f"products of {a.dtype.name} are added in another dtype"
    if attrs["scaled"] or attrs["accumulate"] or attrs.get("compute"):
        return "it is scaled, added to another array, or of lower precision"
    return None


def _sum_of_products(node: Node) -> Node:
    a, b = node.inputs[:2]
    if node.attrs["transpose_a"]:
        a = F.swapaxes(a, -1, -2)
    if node.attrs["transpose_b"]:
        b = F.swapaxes(b, -1, -2)
    total: Any = None
    for term in range(a.shape[-1]):
        part = slice(term, term + 1)
        product = a[..., part] * b[..., part, :]
        total = product if total is None else total + product
    return total  # type: ignore[no-any-return]


def _is_small_row(node: Node) -> bool:
    """Return whether a processor takes a product with a vector as sums of rows, as vectors."""
    a, b = node.inputs[:2]
    attrs = node.attrs
    if node.ndim != 2 or node.shape[1] != 1 or attrs["transpose_a"]:
        return False
    if attrs["scaled"] or attrs["accumulate"] or attrs.get("compute"):
        return False
    if node.dtype not in DTYPES or a.dtype != node.dtype or b.dtype != node.dtype:
        return False
    rows, terms = a.shape
    if not (isinstance(rows, int) and isinstance(terms, int)) or terms < 2:
        return False
    return rows * terms <= ROWS and (rows < FULL_ROW or terms % FULL_ROW == 0)


def _sum_of_row(node: Node) -> Node:
    a, b = node.inputs[:2]
    row = b if node.attrs["transpose_b"] else F.reshape(b, (1, b.shape[0]))
    return F.sum(a * row, axis=-1, keepdims=True)  # type: ignore[no-any-return]
