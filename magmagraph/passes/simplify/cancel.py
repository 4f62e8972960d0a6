"""Products and quotients in which a factor cancels: the form that gradients of stable forms take.

Before (the gradient of ``log(sigmoid(x))``: the sigmoid underflows, and 0 / 0 follows)::

    %0 = input() : float32[n]  # x
    %1 = input() : float32[n]  # w
    %2 = sigmoid(%0) : float32[n]
    %3 = divide(%1, %2) : float32[n]
    %4 = constant(value=1.0) : float32[]
    %5 = subtract(%4, %2) : float32[n]
    %6 = multiply(%2, %5) : float32[n]
    %7 = multiply(%3, %6) : float32[n]
    return %7

After::

    %0 = input() : float32[n]  # x
    %1 = input() : float32[n]  # w
    %2 = negative(%0) : float32[n]
    %3 = sigmoid(%2) : float32[n]
    %4 = multiply(%1, %3) : float32[n]
    return %4

A product is read as a list of factors above and below the line. Factors that are positive by what
made them (exponentials, their sums, sigmoids, softmax) cancel; ``exp(x)`` over its sum is softmax
again, over ``1 + exp(x)`` a sigmoid; ``x`` over ``hypot(x, y)`` is taken first. Only products with
such a factor below the line are looked at. Each rewriting is exact in real arithmetic, and is
listed as a repair, since it is there for the points where the first form is not finite.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.graph import Node
from ...ir.identity import is_among, remove_from
from ...ops.elementwise.arithmetic import ADD, DIVIDE, MULTIPLY, NEGATIVE, SUBTRACT
from ...ops.elementwise.math import EXP, LOG
from ...ops.reduction.primitives import SUM
from ...ops.rules.stable_forms import is_shifted
from ...ops.shape.arrange import reshape
from ...ops.shape.slicing import PLACE, SLICE
from ..rewriting.build import spread
from ..rewriting.rewrite import Match, Rule
from ..rewriting.shapes import padded, through
from .layout import is_one
from .products import DEEPEST_SUM, MOST_FACTORS, Product, has_matching_divisor, sum_below


def _read(match: Match) -> Product | None:
    product = Product(match)
    if not product.open(match.root):
        return None
    return product


def _cancelled(match: Match) -> Node | None:
    product = _read(match)
    if product is None:
        return None
    product.settle()
    if not product.changed:
        return None
    result = spread(product.build(), match.root.shape)
    if result.type != match.root.type:
        return None
    match.repair("a common factor is cancelled, so that it cannot be 0 or infinite")
    return result


def _would_change(match: Match, term: Node, factor: Node, depth: int = 0) -> bool:
    """Return whether something cancels in the product of a term and a factor."""
    if term.op in (ADD, SUBTRACT) and depth < DEEPEST_SUM:
        return any(_would_change(match, t, factor, depth + 1) for t in term.inputs)
    if term.op is NEGATIVE and term.inputs[0].op in (ADD, SUBTRACT):
        return _would_change(match, term.inputs[0], factor, depth + 1)
    if term.op is PLACE:
        return has_matching_divisor(term)
    if not has_matching_divisor(term):
        return False
    product = Product(match)
    if not product.open(term) or not product.open(factor):
        return False
    product.settle()
    return product.changed


def _distributed(match: Match) -> Node | None:
    """Rewrite (a + b) * c to a * c + b * c where a factor cancels in one of the terms."""
    left, right = match.root.inputs
    for total, factor in ((left, right), (right, left)):
        if total.op not in (ADD, SUBTRACT) or not _would_change(match, total, factor):
            continue
        first, second = (MULTIPLY(term, factor) for term in total.inputs)
        result = total.op(first, second)
        if result.type == match.root.type:
            return result
    return None


def _placed(match: Match) -> Node | None:
    """Multiply a slice before it is padded with zeros."""
    node = match.root
    for position, operand in enumerate(node.inputs):
        if operand.op is not PLACE or operand.type != node.type or operand.attrs["value"] != 0:
            continue
        if position and node.op is DIVIDE:
            continue
        other = node.inputs[1 - position]
        piece = _piece(operand, other)
        if piece is None or not has_matching_divisor(operand):
            continue
        inner = node.op(operand.inputs[0], piece)
        if inner.type == operand.inputs[0].type:
            return PLACE(inner, **operand.attrs)
    return None


def _piece(place: Node, other: Node) -> Node | None:
    """Return the slice of another operand at the position where `place` puts its own."""
    if other.shape == ():
        return other
    cut = SLICE(
        place, starts=place.attrs["starts"], steps=place.attrs["steps"],
        shape=place.inputs[0].shape,
    )
    return through(cut, other)


def _sum_of_placed(match: Match) -> Node | None:
    """Sum a slice instead of the same slice padded with zeros along the summed axes."""
    place = match.root.inputs[0]
    if place.attrs["value"] != 0:
        return None
    axes: tuple[int, ...] = match.root.attrs["axes"]
    left = [a for a in range(place.ndim) if a not in axes]
    inner = SUM(place.inputs[0], axes=axes)
    if all(place.inputs[0].shape[a] == place.shape[a] for a in left):
        return inner
    attrs = place.attrs
    return PLACE(
        inner,
        starts=tuple(attrs["starts"][a] for a in left),
        steps=tuple(attrs["steps"][a] for a in left),
        shape=match.root.shape,
        value=0,
    )


def _divisor_out_of_sum(match: Match) -> Node | None:
    """An unshifted sum of exponentials that divides every term divides their sum."""
    axes: tuple[int, ...] = match.root.attrs["axes"]
    source = match.root.inputs[0]
    product = Product(match)
    if not axes or not product.open(source):
        return None
    for node in product.below:
        total = sum_below(node)
        if total is None or total.inputs[0].op is not EXP:
            continue
        whole = padded(node, source.ndim)
        if is_shifted(total.inputs[0].inputs[0]) or not all(is_one(whole.shape[a]) for a in axes):
            continue
        remove_from(product.below, node)
        rest = spread(product.build(), source.shape)
        left = tuple(e for a, e in enumerate(whole.shape) if a not in axes)
        return DIVIDE(SUM(rest, axes=axes), reshape(node, left))
    return None


def _gradient_of_x_log_x(match: Match) -> Node | None:
    """Replace the term (c * x) / x that is added to log(x) by c, also at 0."""
    for one, other in (match.root.inputs, match.root.inputs[::-1]):
        if other.op is not DIVIDE or not _reads_logarithm(one, other.inputs[1]):
            continue
        product = Product(match)
        divisor = other.inputs[1]
        if not product.open(other) or not is_among(divisor, product.above):
            continue
        remove_from(product.above, divisor)
        remove_from(product.below, divisor)
        slope = spread(product.build(), other.shape)
        if slope.type == other.type:
            match.repair("the gradient of x log(x) at 0 is the continuous limit")
            return ADD(one, slope)
    return None


def _reads_logarithm(node: Node, value: Node) -> bool:
    return any(part.op is LOG and part.inputs[0] is value for part in _factors(node))


def _factors(node: Node) -> Iterator[Node]:
    stack = [node]
    count = 0
    while stack and count < MOST_FACTORS:
        part = stack.pop()
        count += 1
        if part.op in (MULTIPLY, NEGATIVE, ADD):
            stack += part.inputs
        else:
            yield part


RULES: tuple[Rule, ...] = (
    Rule("multiply before padding", (MULTIPLY, DIVIDE), _placed,
         looks=lambda node: any(operand.op is PLACE for operand in node.inputs)),
    Rule("sum before padding", (SUM,), _sum_of_placed,
         looks=lambda node: node.inputs[0].op is PLACE),
    Rule("cancel a common factor", (MULTIPLY, DIVIDE), _cancelled, looks=has_matching_divisor),
    Rule("distribute a product to cancel a factor", (MULTIPLY,), _distributed,
         looks=has_matching_divisor),
    Rule("move a divisor out of a sum", (SUM,), _divisor_out_of_sum,
         looks=lambda node: node.inputs[0].op in (MULTIPLY, DIVIDE)
         and has_matching_divisor(node.inputs[0])),
    Rule("gradient of x log(x)", (ADD,), _gradient_of_x_log_x,
         looks=lambda node: any(operand.op is DIVIDE for operand in node.inputs)),
)
