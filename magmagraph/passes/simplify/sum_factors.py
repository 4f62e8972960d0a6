"""Factors that stay the same along the axes of a sum: they multiply what was added up.

The gradient of a normalization adds up one array times several things that each channel has one
of. Without these factors few different sums are left, and their kernel moves wider vectors:

    sum(g * scale * (x - mean)), sum(g * (x - mean) / deviation), sum(g * scale), sum(g)
        ->  sum(g * (x - mean)), sum(g), and products of numbers of a channel each

Scalars are left to `simplify.algebra`, and so are divisors: users divide by what keeps sums in
range, such as the largest element. For the same reason a factor that occurs twice stays, and so
does one that may be of any size: what leaves is made of variables, which training keeps around 1,
and of roots, which have half of the range of exponents (`rewriting.scales`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...dtypes import is_float
from ...ir.graph import Node
from ...ir.identity import is_among
from ...ir.types import Extent
from ...ops.elementwise.arithmetic import MULTIPLY
from ...ops.leaf import EXTENT
from ...ops.reduction.primitives import SUM
from ...ops.shape.arrange import reshape
from ...ops.shape.joining import BROADCAST_TO
from ..rewriting.build import spread
from ..rewriting.rewrite import Match, Rule
from ..rewriting.scales import half_of_range, is_not_small
from .products import has_matching_divisor

MOST_FACTORS = 16
MOST_LOOKED_AT = 200  # nodes of a factor


def keeps_empty_sums(factor: Node, source: Node, axes: Sequence[int]) -> bool:
    """Return whether an empty sum stays 0 when a factor moves out of it.

    Where there is nothing along a named dimension, the mean over it is NaN. Inside of a sum over
    that dimension nothing is multiplied by it.
    """
    open_ended = {source.shape[axis] for axis in axes}
    open_ended = {e for e in open_ended if type(e) is not int or e == 0}
    if not open_ended:
        return True
    seen = {factor}
    stack = [factor]
    while stack and len(seen) <= MOST_LOOKED_AT:
        node = stack.pop()
        gone = open_ended.difference(_extents(node))
        if node.op is EXTENT or any(not gone.isdisjoint(_extents(x)) for x in node.inputs):
            return False
        stack += [operand for operand in node.inputs if operand not in seen]
        seen.update(node.inputs)
    return not stack


def _extents(node: Node) -> list[Extent]:
    """Return the extents of a node, or of all of its results."""
    types = node.type if isinstance(node.type, tuple) else (node.type,)
    return [extent for type_ in types for extent in type_.shape]


def _factors_out_of_sum(match: Match) -> Node | None:
    """Return the sum of the factors that change along its axes, times the others."""
    (source,) = match.root.inputs
    axes: tuple[int, ...] = match.root.attrs["axes"]
    if not axes or not is_float(source.dtype) or source.dtype.itemsize < 4:
        return None  # 16-bit sums may leave their range without a small factor
    factors = _opened(source)
    least = half_of_range(source.dtype)
    times = Counter(factors)
    outside = [
        f for f in factors
        if times[f] == 1 and _is_same_along(f, source, axes)
        and keeps_empty_sums(f, source, axes) and is_not_small(f, least, trained=True)
    ]
    inside = [f for f in factors if not is_among(f, outside)]
    if not outside or not inside or has_matching_divisor(source):
        return None
    product = inside[0]
    for factor in inside[1:]:
        product = MULTIPLY(product, factor)
    total = SUM(spread(product, source.shape), axes=axes)
    gone = {source.ndim - 1 - axis for axis in axes}  # counted from the last axis
    for factor in outside:
        left = tuple(e for a, e in enumerate(factor.shape) if factor.ndim - 1 - a not in gone)
        total = MULTIPLY(total, reshape(factor, left))
    return total


def _opened(root: Node) -> list[Node]:
    """Return the factors of a product, in order."""
    factors: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node.op is BROADCAST_TO:
            stack.append(node.inputs[0])
        elif node.op is MULTIPLY and len(stack) + len(factors) < MOST_FACTORS:
            stack += node.inputs[::-1]
        else:
            factors.append(node)
    return factors


def _is_same_along(node: Node, source: Node, axes: Sequence[int]) -> bool:
    """Return whether a factor has one number for all elements along the axes, but several."""
    ahead = source.ndim - node.ndim
    same = all(axis < ahead or node.shape[axis - ahead] == 1 for axis in axes)
    return same and any(extent != 1 for extent in node.shape)


RULES: tuple[Rule, ...] = (
    Rule(
        "move factors out of a sum", (SUM,), _factors_out_of_sum,
        looks=lambda node: node.inputs[0].op is MULTIPLY,
    ),
)
