"""Turn products into gemm calls: transposes into flags, chains into the cheapest order.

Before::

    %0 = input() : float32[batch, 3]  # x
    %1 = input() : float32[batch, 2]  # g
    %2 = transpose(%0, axes=(1, 0)) : float32[3, batch]
    %3 = matmul(%2, %1) : float32[3, 2]
    return %3

After::

    %0 = input() : float32[batch, 3]  # x
    %1 = input() : float32[batch, 2]  # g
    %2 = gemm(%0, %1, transpose_a=True, transpose_b=False, scaled=False, accumulate=False)
        : float32[3, 2]
    return %2

A chain ``A @ B @ C`` is bracketed by its number of multiplications, under the hinted sizes of named
dimensions. A batch of rows times one matrix is one product of all rows, and the sum over a batch of
products is one product over all rows. A product of a matrix with its own transpose is computed by
half, where it is large enough (BLAS's symmetric rank-k update). Systems with one matrix share one
factorization, see `factorizations`. What a loop multiplies by the same matrix in every iteration is
multiplied at once, before or after it, see `loops`. Integer products stay as they are: no library
has them.

Numerics: `reassoc`. Another bracketing rounds differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import is_inexact
from ..ir.graph import Graph, Node, Trace
from ..ir.op import Kind
from ..ir.types import Shape
from ..ops.elementwise.arithmetic import MULTIPLY
from ..ops.products.contraction import MATMUL
from ..ops.products.lowered import GEMM, SYRK, gemm
from ..ops.reduction.primitives import SUM
from ..ops.shape.layout import BROADCAST_TO, TRANSPOSE, reshape
from . import loops
from .lowering.buffers import hinted
from .pipeline import Options
from .rewriting.rewrite import Match, Rule, rewrite, rules_by_operation
from .rewriting.scales import is_not_small
from .simplify.factorizations import share_factorizations
from .simplify.structure import swaps_last_two

LONGEST_CHAIN = 12  # factors bracketed together; the search is cubic in them
SMALLEST_ALPHA = -16.0  # a power of two: smaller scales stay where they keep a product in range
SYRK_ORDER = 64  # rows from which a product with the own transpose is computed by half
SYRK_WORK = 1 << 21  # and its multiplications
_SYRK_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def contract(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with its float products as gemm nodes."""
    graph = loops.hoist(graph, trace, options, "contract")
    graph = rewrite(graph, _CHAIN, trace, options, "contract")
    graph = share_factorizations(graph, trace, options)
    return rewrite(graph, _LOWER, trace, options, "contract")


# Chains.


def _chain(match: Match) -> Node | None:
    root = match.root
    factors = _factors(match)
    if len(factors) < 3:
        return None
    hints = match.options.hints
    extents = [_extent(f.shape[0], hints) for f in factors]
    extents.append(_extent(factors[-1].shape[1], hints))
    best, split = _cheapest(extents)
    if best >= _cost(root, set(factors), hints):
        return None
    return _bracketed(factors, split, 0, len(factors) - 1)


def _extent(extent: Any, hints: Mapping[str, int]) -> int:
    return hinted(extent, hints)


def _factors(match: Match) -> list[Node]:
    """Return the factors of a chain: products that only the chain reads are opened."""
    factors = [match.root]
    position = 0
    while position < len(factors):
        node = factors[position]
        open_ = (
            node.op is MATMUL
            and all(operand.ndim == 2 for operand in node.inputs)
            and (node is match.root or match.reads(node) == 1)
            and len(factors) < LONGEST_CHAIN
        )
        if open_:
            factors[position : position + 1] = node.inputs
        else:
            position += 1
    return factors


def _cost(root: Node, leaves: set[Node], hints: Mapping[str, int]) -> int:
    """Return the multiplications of a chain as it is bracketed now."""
    total = 0
    stack = [root]
    while stack:
        node = stack.pop()
        if node in leaves:
            continue
        left, right = node.inputs
        total += (
            _extent(left.shape[0], hints)
            * _extent(left.shape[1], hints)
            * _extent(right.shape[1], hints)
        )
        stack += [left, right]
    return total


def _cheapest(extents: Sequence[int]) -> tuple[int, dict[tuple[int, int], int]]:
    """Return the least cost of a chain and, for each stretch of it, where to split.

    The classic dynamic program over stretches (Godbole 1973).
    """
    count = len(extents) - 1
    cost = {(i, i): 0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for first in range(count - length):
            last = first + length
            options = [
                (
                    cost[first, at]
                    + cost[at + 1, last]
                    + extents[first] * extents[at + 1] * extents[last + 1],
                    at,
                )
                for at in range(first, last)
            ]
            cost[first, last], split[first, last] = min(options)
    return cost[0, count - 1], split


def _bracketed(
    factors: Sequence[Node], split: Mapping[tuple[int, int], int], first: int, last: int
) -> Node:
    """Return the product of a stretch; its depth is at most `LONGEST_CHAIN`."""
    if first == last:
        return factors[first]
    at = split[first, last]
    return MATMUL(
        _bracketed(factors, split, first, at), _bracketed(factors, split, at + 1, last)
    )


# Lowering.


def _integers(match: Match) -> str | None:
    if is_inexact(match.root.dtype):
        return None
    return f"no library multiplies matrices of {match.root.dtype.name}"


def _lower(match: Match) -> Node:
    root = match.root
    a, b = root.inputs
    if a.ndim == 1 or b.ndim == 1:
        left = reshape(a, (1, a.shape[0])) if a.ndim == 1 else a
        right = reshape(b, (b.shape[0], 1)) if b.ndim == 1 else b
        return reshape(_product(left, right), root.shape)
    return _product(a, b)


def _product(a: Node, b: Node) -> Node:
    if a.ndim > 2 and b.ndim == 2 and not swaps_last_two(a):
        rows = reshape(a, (-1, a.shape[-1]))
        other, flag = _opened(b)
        product = gemm(rows, other, transpose_b=flag)
        return reshape(product, (*a.shape[:-1], b.shape[-1]))
    a, transpose_a = _opened(a)
    b, transpose_b = _opened(b)
    return gemm(a, b, transpose_a=transpose_a, transpose_b=transpose_b)


def _opened(node: Node) -> tuple[Node, bool]:
    return (node.inputs[0], True) if swaps_last_two(node) else (node, False)


def _is_gram(node: Node) -> bool:
    """Return whether a product is one of a matrix with its own transpose."""
    a, b = node.inputs
    return (swaps_last_two(a) and a.inputs[0] is b) or (swaps_last_two(b) and b.inputs[0] is a)


def _no_syrk(match: Match) -> str | None:
    """Return why a product of a matrix and its transpose stays a gemm, or None."""
    node = match.root
    precision = match.options.precision
    if match.options.target.device != "cpu":
        return "a GPU computes the full product, in a kernel of the plan"
    if precision != "float32" and node.dtype == _SYRK_DTYPES[0]:
        return f"no library has a symmetric product in {precision}, and a full one is faster"
    if node.dtype not in _SYRK_DTYPES:
        return f"BLAS has no symmetric product of {node.dtype.name}"
    order = _extent(node.shape[-1], match.options.hints)
    inner = _extent(node.inputs[0].shape[-1], match.options.hints)
    if order < SYRK_ORDER or order * order * inner < SYRK_WORK:
        return (
            f"{order} x {order} elements of {inner} terms each are too few to gain from computing "
            "half of them"
        )
    return None


def _gram(match: Match) -> Node:
    left, right = match.root.inputs
    if swaps_last_two(left) and left.inputs[0] is right:
        return SYRK(right, transposed=False)
    return SYRK(left, transposed=True)


def _flags(match: Match) -> Node | None:
    """Take transposes of operands into the flags (they appear after other rules)."""
    node = match.root
    a, b, *rest = node.inputs
    new_a, flip_a = _opened(a)
    new_b, flip_b = _opened(b)
    if not flip_a and not flip_b:
        return None
    attrs = dict(node.attrs)
    attrs["transpose_a"] ^= flip_a
    attrs["transpose_b"] ^= flip_b
    return GEMM(new_a, new_b, *rest, **attrs)


def _transposed_product(match: Match) -> Node | None:
    """Rewrite (A B)ᵀ to Bᵀ Aᵀ, which costs nothing where A B itself is not used."""
    product = match.root.inputs[0]
    if product.op is not GEMM or not swaps_last_two(match.root) or product.attrs["accumulate"]:
        return None
    if match.reads(product) > 1:
        return None
    a, b, *rest = product.inputs
    attrs = dict(product.attrs)
    attrs["transpose_a"], attrs["transpose_b"] = (
        not product.attrs["transpose_b"],
        not product.attrs["transpose_a"],
    )
    return GEMM(b, a, *rest, **attrs)


def _scaled_factor(match: Match) -> Node | None:
    """Move a scalar factor of a matrix that is already in memory to alpha of the product.

    One of unknown size stays, see `rewriting.scales`.
    """
    node = match.root
    if node.attrs["scaled"] or node.attrs["accumulate"]:
        return None
    for position in (0, 1):
        factor = node.inputs[position]
        if factor.op is not MULTIPLY or match.reads(factor) > 1:
            continue
        for matrix, scale in (factor.inputs, factor.inputs[::-1]):
            # What a region computes, it scales at no cost.
            free = matrix.op.kind in (Kind.ELEMENTWISE, Kind.REDUCTION)
            fits = scale.shape == () and matrix.type == factor.type and not free
            if fits and is_not_small(scale, SMALLEST_ALPHA, trained=True):
                factors = list(node.inputs)
                factors[position] = matrix
                return GEMM(*factors, scale, **{**node.attrs, "scaled": True})
    return None


def _looks_scaled(node: Node) -> bool:
    return any(operand.op is MULTIPLY for operand in node.inputs)


def _summed_batch(match: Match) -> Node | None:
    """Rewrite the sum over a batch of AᵀB to one product over all rows."""
    node = match.root
    product = node.inputs[0]
    if product.op is not GEMM or len(product.inputs) != 2 or match.reads(product) > 1:
        return None
    a, b = product.inputs
    batch: Shape = product.shape[:-2]
    flags = product.attrs
    if (
        node.attrs["axes"] != tuple(range(len(batch)))
        or not batch
        or a.shape[:-2] != batch
        or b.shape[:-2] != batch
        or not flags["transpose_a"]
        or flags["transpose_b"]
    ):
        return None
    rows_a = reshape(a, (-1, a.shape[-1]))
    rows_b = reshape(b, (-1, b.shape[-1]))
    return gemm(rows_a, rows_b, transpose_a=True)


def _repeated_factor(match: Match) -> Node | None:
    """Remove copies of a factor over the batch: products broadcast their operands."""
    node = match.root
    inputs = list(node.inputs)
    changed = False
    for position in (0, 1):
        factor = inputs[position]
        if factor.op is not BROADCAST_TO:
            continue
        source = factor.inputs[0]
        if source.ndim >= 2 and source.shape[-2:] == factor.shape[-2:]:
            other = inputs[1 - position]
            if other.shape[:-2] == node.shape[:-2]:
                inputs[position] = source
                changed = True
    return MATMUL(*inputs) if changed else None


_CHAIN = rules_by_operation(
    [
        Rule("repeated factor of a matrix chain", (MATMUL,), _repeated_factor, complex=True),
        Rule("order of a matrix chain", (MATMUL,), _chain, complex=True),
    ]
)
_LOWER = rules_by_operation(
    [
        Rule("product of a matrix and its transpose", (MATMUL,), _gram, _no_syrk, looks=_is_gram),
        Rule("product to gemm", (MATMUL,), _lower, _integers, complex=True),
        Rule("transpose to gemm flag", (GEMM,), _flags, complex=True),
        Rule("scale to gemm alpha", (GEMM,), _scaled_factor, looks=_looks_scaled),
        Rule("transpose of a product", (TRANSPOSE,), _transposed_product, complex=True),
        Rule("sum of a batch of products", (SUM,), _summed_batch, complex=True),
    ]
)
