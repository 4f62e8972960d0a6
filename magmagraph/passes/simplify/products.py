"""Products read as lists of factors above and below the line.

Factors that are positive by what made them cancel; ``exp(x)`` over its sum is softmax again, over
``1 + exp(x)`` a sigmoid; ``x`` over ``hypot(x, y)`` is taken first. `cancel` has the rules.
"""

from __future__ import annotations

from ...ir.graph import Node
from ...ir.identity import index_of, is_among, remove_from
from ...ir.op import Kind
from ...ops.elementwise.arithmetic import ADD, DIVIDE, MULTIPLY, NEGATIVE, SUBTRACT
from ...ops.elementwise.math import EXP, HYPOT
from ...ops.leaf import CONSTANT
from ...ops.networks.activation import SIGMOID
from ...ops.reduction.primitives import SUM
from ...ops.rules.stable_forms import is_empty, is_shifted
from ...ops.shape.arrange import RESHAPE, reshape
from ...ops.shape.joining import BROADCAST_TO
from ...ops.shape.slicing import PLACE
from ..rewriting.build import like
from ..rewriting.pattern import uniform
from ..rewriting.rewrite import Match
from ..rewriting.shapes import MOVES, restored_shape, through
from ..rewriting.signs import is_positive
from .stable import softmax, softmax_of

MOST_FACTORS = 24
DEEPEST_SUM = 4

LOOKED_THROUGH = frozenset(
    (MULTIPLY, DIVIDE, NEGATIVE, ADD, SUBTRACT, PLACE, BROADCAST_TO, *MOVES)
)


# Which products are worth a look.


def _is_telling(node: Node) -> bool:
    """Return whether a divisor is one of those that cancel."""
    while node.op in MOVES or node.op is BROADCAST_TO:
        node = node.inputs[0]
    if node.op is CONSTANT or node.op.kind is Kind.LEAF:
        return False
    return node.op is HYPOT or is_positive(node)


# For a product: how many operations above the nearest divisor that tells, the nearest exponential,
# the nearest sigmoid. Found from the operands' own: long chains cost no more than short ones.
_Distances = tuple[int, int, int]
_FAR = 1 << 20
_distances: dict[Node, _Distances] = {}


def forget_distances() -> None:
    """Let go of the nodes that were looked at; a pass that asks for distances does so at its end.

    Who is at it in another thread keeps the table that it began with.
    """
    global _distances
    _distances = {}


def has_matching_divisor(root: Node) -> bool:
    """Return whether a product, or a sum of products, has such a divisor near by.

    An exponential beside a sigmoid counts as well: it may be the divisor of one written as such.
    """
    divisor, power, curve = _distances_of(root)
    return divisor < MOST_FACTORS or max(power, curve) < MOST_FACTORS


def _distances_of(root: Node) -> _Distances:
    distances = _distances
    cached = distances.get(root)
    if cached is not None:
        return cached
    stack = [root]
    while stack:
        node = stack[-1]
        op = node.op
        if op not in LOOKED_THROUGH:
            distance = (_FAR, 0 if op is EXP else _FAR, 0 if op is SIGMOID else _FAR)
        else:
            below = [distances.get(operand) for operand in node.inputs]
            missing = [i for i, d in zip(node.inputs, below, strict=True) if d is None]
            if missing:
                stack += missing
                continue
            # Sums are opened a few deep only, products to some length.
            step = MOST_FACTORS // DEEPEST_SUM if op is ADD or op is SUBTRACT else 1
            near = [min(part) + step for part in zip(*(d for d in below if d), strict=True)]
            if op is DIVIDE and _is_telling(node.inputs[1]):
                near[0] = 0
            distance = (near[0], near[1], near[2])
        distances[node] = distance
        stack.pop()
    return distances[root]


# Products as factors above and below the line.


class Product:
    """The factors of a product.

    Attributes
    ----------
    above, below
        Factors, in the order in which they are met.
    sign
        1 or -1.
    changed
        Whether anything cancelled or took another form.
    """

    def __init__(self, match: Match) -> None:
        self.match = match
        self.above: list[Node] = []
        self.below: list[Node] = []
        self.sign = 1
        self.changed = False

    def open(self, root: Node, over: bool = True) -> bool:
        """Add the factors of an expression; False where there are too many."""
        stack = [(root, over)]
        while stack:
            node, upper = stack.pop()
            op = node.op
            if op is NEGATIVE:
                self.sign = -self.sign
                stack.append((node.inputs[0], upper))
            elif op is BROADCAST_TO:
                stack.append((node.inputs[0], upper))
            elif op is MULTIPLY:
                stack += [(node.inputs[1], upper), (node.inputs[0], upper)]
            elif op is DIVIDE:
                stack += [(node.inputs[1], not upper), (node.inputs[0], upper)]
            else:
                moved = self._moved(node)
                if moved is not None:
                    stack += [(part, upper == same) for part, same in moved]
                else:
                    (self.above if upper else self.below).append(node)
            if len(stack) + len(self.above) + len(self.below) > MOST_FACTORS:
                return False
        return True

    def _moved(self, node: Node) -> list[tuple[Node, bool]] | None:
        """Return the factors of a product under a layout operation, each with that operation."""
        if node.op not in MOVES:
            return None
        source = node.inputs[0]
        if source.op not in (MULTIPLY, DIVIDE, NEGATIVE):
            return None
        if not _has_telling(source) and all(operand.shape for operand in source.inputs):
            return None  # a scalar factor is left out of a move at no cost
        parts: list[tuple[Node, bool]] = []
        for position, operand in enumerate(source.inputs):
            part = through(node, operand)
            if part is None:
                return None
            parts.insert(0, (self.match.intern(part), not (source.op is DIVIDE and position)))
        if source.op is NEGATIVE:
            self.sign = -self.sign
        return parts

    def settle(self) -> None:
        """Pair, cancel and give each pair its stable form."""
        self._softmax()
        self._cancel()
        self._logistic()
        self._hypot()

    def _cancel(self) -> None:
        for node in list(self.below):
            if node.op is not CONSTANT and is_among(node, self.above) and is_positive(node):
                remove_from(self.above, node)
                remove_from(self.below, node)
                self.changed = True

    def _softmax(self) -> None:
        """Write exp(x) and sum(exp(x)) on both sides of the line with shifted scores."""
        for upper, lower in ((self.above, self.below), (self.below, self.above)):
            for power in list(upper):
                core, moves = _core(power)
                if core.op is not EXP or is_shifted(core.inputs[0]):
                    continue
                for total in lower:
                    pair = self._shifted_pair(core, moves, total)
                    if pair is not None:
                        upper[index_of(upper, power)], lower[index_of(lower, total)] = pair
                        self.changed = True
                        break

    def _shifted_pair(
        self, power: Node, moves: list[Node], total: Node
    ) -> tuple[Node, Node] | None:
        """Return shifted forms of a moved exponential and the sum of it, moved alike."""
        inner_sum = sum_below(total)
        if inner_sum is None or inner_sum.inputs[0] is not power:
            return None
        if is_empty(power.inputs[0], inner_sum.attrs["axes"]):
            return None
        whole = reshape(inner_sum, restored_shape(inner_sum))
        if total is not inner_sum and self._under(moves, whole, power) is not self.match.intern(
            total
        ):
            return None
        quotient = softmax(power.inputs[0], inner_sum.attrs["axes"])
        above = self._under(moves, quotient.inputs[0], power)
        below = self._under(moves, quotient.inputs[1], power)
        return None if above is None or below is None else (above, below)

    def _logistic(self) -> None:
        """exp(x) / (1 + exp(x)) is sigmoid(x), and so is exp(x) * sigmoid(-x)."""
        for exponential in [node for node in self.above if node.op is EXP]:
            for curve in [node for node in self.above if node.op is SIGMOID]:
                if _are_opposite(exponential.inputs[0], curve.inputs[0]):
                    sigmoid = self.match.intern(SIGMOID(exponential.inputs[0]))
                    self.above[index_of(self.above, exponential)] = sigmoid
                    remove_from(self.above, curve)
                    self.changed = True
                    break
        for node in list(self.below):
            core, moves = _core(node)
            power = _one_plus_exp(core)
            above = None if power is None else self._under(moves, power, core)
            if power is None or above is None or not is_among(above, self.above):
                continue
            logistic = self._under(moves, SIGMOID(power.inputs[0]), core)
            assert logistic is not None
            self.above[index_of(self.above, above)] = logistic
            remove_from(self.below, node)
            self.changed = True

    def _under(self, moves: list[Node], node: Node, like: Node) -> Node | None:
        """Return a node moved as `like`, which it broadcasts with, is."""
        for move in reversed(moves):
            source = move.inputs[0]
            assert source.shape == like.shape
            moved = through(move, node)
            if moved is None:
                return None
            node, like = moved, move
        return self.match.intern(node)

    def _hypot(self) -> None:
        """Take x / hypot(x, y), which is at most 1, before anything else multiplies it."""
        for node in list(self.below):
            core, moves = _core(node)
            if core.op is not HYPOT:
                continue
            sides = [self._under(moves, side, core) for side in core.inputs]
            side = next((a for a in self.above if any(a is s for s in sides)), None)
            if side is None:
                continue
            ratio = self.match.intern(DIVIDE(side, node))
            unchanged = self.match.root.op is DIVIDE and ratio is self.match.root
            self.above[index_of(self.above, side)] = ratio
            remove_from(self.below, node)
            self.changed = self.changed or not unchanged

    def build(self) -> Node:
        """Return the product: constants joined, softmax quotients together."""
        above, below = list(self.above), list(self.below)
        scale = float(self.sign)
        for node in list(above):
            value = uniform(node)
            if value is not None and node.shape == ():
                scale *= value
                remove_from(above, node)
        for node in list(below):
            if node.op is EXP:
                continue
            power = next((a for a in above if a.op is EXP and self._is_pair(a, node)), None)
            if power is not None:
                remove_from(below, node)
                above[index_of(above, power)] = DIVIDE(power, node)
        result: Node | None = None
        for node in above:
            result = node if result is None else MULTIPLY(result, node)
        if result is None:
            result = like(scale, self.match.root)
        elif scale == -1:
            result = NEGATIVE(result)
        elif scale != 1:
            result = MULTIPLY(result, like(scale, result))
        for node in below:
            result = DIVIDE(result, node)
        return result

    def _is_pair(self, power: Node, total: Node) -> bool:
        return _broadcasts(power, total) and softmax_of(DIVIDE(power, total)) is not None


def _has_telling(node: Node) -> bool:
    return has_matching_divisor(node) or is_positive(node)


def _broadcasts(power: Node, total: Node) -> bool:
    core = total.inputs[0] if total.op is RESHAPE else total
    return core.op is SUM and core.inputs[0] is power


def sum_below(node: Node) -> Node | None:
    """Return the sum below the layout operations of a node, or None."""
    while node.op in MOVES:
        node = node.inputs[0]
    return node if node.op is SUM else None


def _core(node: Node) -> tuple[Node, list[Node]]:
    """Return the operand below the layout operations of a node, and these, outermost first."""
    moves: list[Node] = []
    while node.op in MOVES:
        moves.append(node)
        node = node.inputs[0]
    return node, moves


def _are_opposite(one: Node, other: Node) -> bool:
    return (one.op is NEGATIVE and one.inputs[0] is other) or (
        other.op is NEGATIVE and other.inputs[0] is one
    )


def _one_plus_exp(node: Node) -> Node | None:
    """Return the exponential of ``1 + exp(x)``, or None."""
    if node.op is not ADD:
        return None
    for one, power in (node.inputs, node.inputs[::-1]):
        if uniform(one) == 1 and power.op is EXP and power.type == node.type:
            return power
    return None
