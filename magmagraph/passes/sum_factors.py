"""Factors that stay the same along the axes of a sum: they multiply what was added up.

The gradient of a normalization adds up one array times several things that each channel has one
of. Without these factors few different sums are left, and their kernel moves wider vectors:

    sum(g * scale * (x - mean)), sum(g * (x - mean) / deviation), sum(g * scale), sum(g)
        ->  sum(g * (x - mean)), sum(g), and products of numbers of a channel each

Scalars are left to `simplify_algebra`; divisors that cancel, to `cancel`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dtypes import is_float
from ..graph import Node
from ..ops.arrange import reshape
from ..ops.elementwise import DIVIDE, MULTIPLY
from ..ops.joining import BROADCAST_TO
from ..ops.reduction import SUM
from .build import spread
from .products import has_telling_divisor
from .rewrite import Match, Rule

MOST_FACTORS = 16

Factor = tuple[Node, bool]
"""A factor, and whether it stands above the line."""


def _factors_out_of_sum(match: Match) -> Node | None:
    """Return the sum of the factors that change along its axes, times the others."""
    (source,) = match.root.inputs
    axes: tuple[int, ...] = match.root.attrs["axes"]
    if not axes or not is_float(source.dtype) or source.dtype.itemsize < 4:
        return None  # 16-bit sums may leave their range without a small factor
    factors = _opened(source)
    outside = [(node, above) for node, above in factors if _is_same_along(node, source, axes)]
    inside = [factor for factor in factors if factor not in outside]
    if not outside or not any(above for _, above in inside) or has_telling_divisor(source):
        return None
    total = SUM(spread(_product(inside), source.shape), axes=axes)
    ones = {source.ndim - 1 - axis for axis in axes}  # counted from the last axis
    for node, above in outside:
        left = [e for a, e in enumerate(node.shape) if node.ndim - 1 - a not in ones]
        factor = reshape(node, tuple(left))
        total = MULTIPLY(total, factor) if above else DIVIDE(total, factor)
    return total


def _opened(root: Node) -> list[Factor]:
    """Return the factors of a product, in order."""
    found: list[Factor] = []
    stack = [(root, True)]
    while stack:
        node, above = stack.pop()
        many = len(stack) + len(found) >= MOST_FACTORS
        if node.op is BROADCAST_TO:
            stack.append((node.inputs[0], above))
        elif node.op is MULTIPLY and not many:
            stack += [(node.inputs[1], above), (node.inputs[0], above)]
        elif node.op is DIVIDE and not many:
            stack += [(node.inputs[1], not above), (node.inputs[0], above)]
        else:
            found.append((node, above))
    return found


def _is_same_along(node: Node, source: Node, axes: Sequence[int]) -> bool:
    """Return whether a factor has one number for all elements along the axes, but several."""
    ahead = source.ndim - node.ndim
    same = all(axis < ahead or node.shape[axis - ahead] == 1 for axis in axes)
    return same and any(extent != 1 for extent in node.shape)


def _product(factors: Sequence[Factor]) -> Node:
    result: Node | None = None
    for node, above in sorted(factors, key=lambda factor: not factor[1]):
        if result is None:
            result = node
        else:
            result = MULTIPLY(result, node) if above else DIVIDE(result, node)
    assert result is not None
    return result


RULES: tuple[Rule, ...] = (
    Rule(
        "factors out of a sum", (SUM,), _factors_out_of_sum,
        looks=lambda node: node.inputs[0].op in (MULTIPLY, DIVIDE),
    ),
)
