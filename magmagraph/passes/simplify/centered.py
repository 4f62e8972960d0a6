"""Drop ``sum(x - mean(x))``, which is 0 over the axes of that mean.

The derivative of a variance goes through the mean, too, as minus the sum of the centered values,
which is 0 but for rounding. Left in, it makes the gradient of a normalization wait for a second
sum over all elements:

    sum(g * r + c * (x - mean(x)))  ->  sum(g * r)

where `c` does not change along the axes of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...dtypes import is_float
from ...ir import dims
from ...ir.graph import Node
from ...ops.elementwise.arithmetic import ADD, DIVIDE, MULTIPLY, NEGATIVE, SUBTRACT, negative
from ...ops.leaf import constant
from ...ops.reduction.primitives import SUM
from ...ops.shape.arrange import RESHAPE
from ...ops.shape.joining import BROADCAST_TO
from ..rewriting.build import spread
from ..rewriting.pattern import uniform
from ..rewriting.rewrite import Match, Rule

MOST_TERMS = 16
DEEPEST = 12  # factors that a centered value is looked for through


def _without_centered(match: Match) -> Node | None:
    """Return the sum without the centered terms, whose sum is 0."""
    total = match.root
    source = total.inputs[0]
    axes: tuple[int, ...] = total.attrs["axes"]
    if not axes or not is_float(total.dtype):
        return None
    left: list[tuple[Node, int]] = []
    count = 0
    for term, sign in _terms(source, axes):
        if sign:
            left.append((term, sign))
        else:
            count += 1
    if not count or len(left) > MOST_TERMS:
        return None
    if not left:
        return spread(constant(0, dtype=total.dtype), total.shape)
    term, sign = left[0]
    result = term if sign > 0 else negative(term)
    for term, sign in left[1:]:
        result = ADD(result, term) if sign > 0 else SUBTRACT(result, term)
    return SUM(spread(result, source.shape), axes=axes)


def _terms(node: Node, axes: Sequence[int]) -> Iterator[tuple[Node, int]]:
    """Give the terms of a sum with their signs, 0 for those that are 0 in sum."""
    stack = [(node, 1)]
    count = 0
    while stack:
        term, sign = stack.pop()
        count += 1
        if _sums_to_zero(term, node.shape, axes):
            yield term, 0
        elif term.op in (ADD, SUBTRACT) and count <= 2 * MOST_TERMS:
            left, right = term.inputs
            stack += [(right, sign if term.op is ADD else -sign), (left, sign)]
        elif term.op is NEGATIVE:
            stack.append((term.inputs[0], -sign))
        else:
            yield term, sign


def _sums_to_zero(
    node: Node, shape: Sequence[object], axes: Sequence[int], depth: int = 0
) -> bool:
    """Return whether a value of the full shape is a centered one, times what keeps its sum 0."""
    if node.shape != shape or depth > DEEPEST:
        return False
    if node.op is SUBTRACT:
        return mean_of(node.inputs[1], node.inputs[0], axes) is not None
    if node.op is NEGATIVE:
        return _sums_to_zero(node.inputs[0], shape, axes, depth + 1)
    if node.op in (MULTIPLY, DIVIDE):
        pairs = [node.inputs, node.inputs[::-1]] if node.op is MULTIPLY else [node.inputs]
        return any(
            _is_constant_along(factor, len(shape), axes)
            and _sums_to_zero(value, shape, axes, depth + 1)
            for value, factor in pairs
        )
    return False


def _is_constant_along(node: Node, ndim: int, axes: Sequence[int]) -> bool:
    while node.op is BROADCAST_TO:
        node = node.inputs[0]
    ahead = ndim - node.ndim
    return all(axis < ahead or node.shape[axis - ahead] == 1 for axis in axes)


def mean_of(node: Node, x: Node, axes: Sequence[int]) -> tuple[Node, Node] | None:
    """Return the sum and the mean of `x` along some axes where `node` is that mean, lined up."""
    while node.op is BROADCAST_TO:
        node = node.inputs[0]
    ahead = x.ndim - node.ndim
    kept = [1 if axis in axes else extent for axis, extent in enumerate(x.shape)]
    if list(node.shape) != kept[ahead:] or any(extent != 1 for extent in kept[:ahead]):
        return None
    while node.op is RESHAPE:  # of the shape above: only extents of 1 come and go
        node = node.inputs[0]
    if node.op not in (DIVIDE, MULTIPLY):
        return None
    count = dims.size(tuple(x.shape[axis] for axis in axes))
    pairs = [node.inputs, node.inputs[::-1]] if node.op is MULTIPLY else [node.inputs]
    for total, number in pairs:
        if (
            total.op is SUM
            and total.inputs[0] is x
            and total.attrs["axes"] == tuple(axes)
            and _is_count(number, count, inverse=node.op is MULTIPLY)
        ):
            return total, node
    return None


def _is_count(node: Node, count: object, inverse: bool) -> bool:
    if isinstance(count, int):
        number = uniform(node)
        return number is not None and (number * count == 1 if inverse else number == count)
    while node.inputs and len(node.inputs) == 1 and node.shape == ():
        node = node.inputs[0]  # a cast of the extent
    return not inverse and node.attrs.get("dim") == count


RULES: tuple[Rule, ...] = (
    Rule(
        "sum of centered values is 0", (SUM,), _without_centered,
        looks=lambda node: node.inputs[0].op in (ADD, SUBTRACT, MULTIPLY, DIVIDE, NEGATIVE),
    ),
)
