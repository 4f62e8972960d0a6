"""Rewrite expressions whose intermediate values overflow or underflow to stable forms.

Before::

    %0 = input() : float32[n]  # x
    %1 = exp(%0) : float32[n]
    %2 = constant(value=1.0) : float32[]
    %3 = add(%1, %2) : float32[n]
    %4 = log(%3) : float32[n]
    return %4

After::

    %0 = input() : float32[n]  # x
    %1 = softplus(%0) : float32[n]
    return %1

The values are equal in exact arithmetic. Where the first form overflows or underflows to something
that is not finite, the second gives the continuous limit; where that replaces a NaN or an infinity
by a finite value at a point (0 in ``x log(x)``), the report lists a repair. Moves between the parts
(reshape, transpose, slices) are put behind them first. Gradients are taken of stable forms to begin
with (`ops.rules.stable_forms`, whose recognition some rules share); what their products still need
is in `cancel`.
"""

from __future__ import annotations

from ...dtypes import is_float
from ...ir.graph import Node
from ...ir.op import Kind
from ...ops.convert import CAST
from ...ops.elementwise.arithmetic import ADD, DIVIDE, MULTIPLY, NEGATIVE, SUBTRACT
from ...ops.elementwise.comparison import equal, where
from ...ops.elementwise.math import EXP, EXPM1, HYPOT, LOG, LOG1P, SQRT
from ...ops.leaf import CONSTANT
from ...ops.networks.activation import SIGMOID, SOFTPLUS
from ...ops.reduction.primitives import SUM
from ...ops.rules.stable_forms import (
    is_empty,
    is_shifted,
    length,
    log_of_exponentials,
    log_of_rest,
    shifted,
)
from ...ops.shape.arrange import reshape
from ..rewriting.pattern import P, wildcards
from ..rewriting.rewrite import Match, Rule
from ..rewriting.shapes import (
    INVERTIBLE,
    MOVES,
    operand_below,
    operand_of,
    restored_shape,
    settled,
    sum_of,
    undone,
)
from ..rewriting.signs import is_positive

p, x = wildcards("p x")


# Softmax and its kin, of scores shifted by their maximum.


def softmax_of(node: Node) -> Node | None:
    """Return the sum in ``exp(x) / sum(exp(x))`` where a quotient has that form."""
    above, below = node.inputs
    return sum_of(below, above) if above.op is EXP else None


def softmax(scores: Node, axes: tuple[int, ...]) -> Node:
    """Return the quotient, of scores that are shifted where they are not yet."""
    safe = scores if is_shifted(scores) else shifted(scores, axes)
    power = EXP(safe)
    total = SUM(power, axes=axes)
    return DIVIDE(power, reshape(total, restored_shape(total)))


def _shift_softmax(match: Match) -> Node | None:
    total = softmax_of(match.root)
    scores = match.root.inputs[0].inputs[0] if total is not None else None
    if total is None or scores is None or is_shifted(scores):
        return None
    if is_empty(scores, total.attrs["axes"]):
        return None
    return softmax(scores, total.attrs["axes"])


def _log_softmax(match: Match) -> Node | None:
    """log(exp(x) / sum) is x - log(sum)."""
    quotient = match.root.inputs[0]
    total = softmax_of(quotient)
    if total is None:
        return None
    scores = quotient.inputs[0].inputs[0]
    return SUBTRACT(scores, LOG(quotient.inputs[1]))


def _logsumexp(match: Match) -> Node | None:
    total = match.root.inputs[0]
    power = operand_of(total.inputs[0], EXP)
    axes = total.attrs["axes"]
    if power is None or not axes:
        return None
    scores = match.intern(power)
    if is_shifted(scores) or is_empty(scores, axes):
        return None
    safe = shifted(scores, axes)
    return ADD(LOG(SUM(EXP(safe), axes=axes)), reshape(safe.inputs[1], match.root.shape))


# One operand at a time.


def _finite_at_zero(match: Match) -> Node | None:
    """Give 0 for x log(x) at 0: the logarithm is taken of 1 there."""
    for one, other in (match.root.inputs, match.root.inputs[::-1]):
        value = operand_of(one, LOG)
        if value is None or not is_float(value.dtype) or match.intern(value) is not other:
            continue
        match.repair("0 * log(0) is 0, the continuous limit")
        return MULTIPLY(other, LOG(where(equal(other, 0), 1, other)))
    return None


def _looks_like_zero_guard(node: Node) -> bool:
    return any(operand_below(operand).op is LOG for operand in node.inputs)


def _hypot(match: Match) -> Node | None:
    first, second = (_root_of_square(operand) for operand in match.root.inputs[0].inputs)
    if first is None or second is None:
        return None
    result = HYPOT(first, second)
    return result if result.type == match.root.type else None


def _length(match: Match) -> Node | None:
    """Rewrite sqrt(sum(a * a)) to divide a by its largest element first, against overflow."""
    return length(match.root.inputs[0])


def _logarithm_of_exponentials(match: Match) -> Node | None:
    """log(exp(a) + exp(b)) is taken of both less the larger one, and that added."""
    return log_of_exponentials(match.root.inputs[0])


def _logarithm_of_rest(match: Match) -> Node | None:
    """log(1 - tanh(a)**2) is 2 * (a + log(2) - softplus(2 * a)): nothing rounds to 0 in it."""
    result = log_of_rest(match.p)
    return result if result is not None and result.type == match.root.type else None


def _root_of_square(node: Node) -> Node | None:
    """Return the moved ``a`` where a node is a moved ``a * a``."""
    source = operand_below(node)
    is_square = source.op is MULTIPLY and source.inputs[0] is source.inputs[1]
    return operand_of(node, MULTIPLY) if is_square else None


def _log_of_narrowed(match: Match) -> Node | None:
    """Rewrite log(cast(x)) to cast(log(x)): x may underflow in a dtype, and log(x) may not."""
    narrow = match.root.inputs[0]
    wide = narrow.inputs[0]
    if not is_float(wide.dtype) or wide.dtype.itemsize <= narrow.dtype.itemsize:
        return None
    return CAST(LOG(wide), **narrow.attrs) if is_special(wide) else None


def _opposite_sigmoid(match: Match) -> Node | None:
    """1 - sigmoid(x) is sigmoid(-x), which keeps its digits where the sigmoid rounds to 1."""
    curve = match.root.inputs[1]
    if match.x.type != match.root.type or match.reads(curve) > 1:
        return None  # a sigmoid that others read is at hand: a second one costs more
    return SIGMOID(NEGATIVE(match.x))


def _log1p(match: Match) -> Node | None:
    return LOG1P(match.x) if match.x.type == match.root.type else None


def _expm1(match: Match) -> Node | None:
    return EXPM1(match.x) if match.x.type == match.root.type else None


def _is_sum_of_squares(node: Node) -> bool:
    return node.op is ADD and all(
        i.op is MULTIPLY and i.inputs[0] is i.inputs[1] for i in node.inputs
    )


# Moves put behind.

_LIFTED = (LOG, LOG1P, ADD, SUBTRACT, DIVIDE, SQRT)


def is_special(node: Node) -> bool:
    """Return whether a value is a part of the forms above: positive, and computed to be so."""
    return node.op.kind is not Kind.LEAF and is_positive(node)


def _lift(match: Match) -> Node | None:
    """Rewrite f(layout(a)) to layout(f(a)), so that patterns match across layout operations."""
    node = match.root
    at = next(
        (i for i, o in enumerate(node.inputs) if o.op in MOVES and _wanted(node, o)),
        None,
    )
    if at is None:
        return None
    move = node.inputs[at]
    if move.shape != node.shape:
        return None
    inputs: list[Node] = []
    for position, operand in enumerate(node.inputs):
        inner = move.inputs[0] if position == at else _below(node, move, operand)
        if inner is None:
            return None
        inputs.append(inner)
    result = node.op(*inputs, **node.attrs)
    if result.shape != move.inputs[0].shape:
        return None
    return move.op(result, **move.attrs)


def _wanted(node: Node, move: Node) -> bool:
    source = move.inputs[0]
    if node.op is SQRT:
        return _is_sum_of_squares(source)
    return is_special(source)


def _below(node: Node, move: Node, operand: Node) -> Node | None:
    """Return the other operand as it is before the layout operation, or None."""
    if operand.op is CONSTANT and operand.shape == ():
        return operand
    if operand.op is move.op and operand.inputs[0].type == move.inputs[0].type:
        same = all(operand.attrs[key] == value for key, value in move.attrs.items())
        if same:
            return operand.inputs[0]
    if node.op is not DIVIDE or move.op not in INVERTIBLE:
        return None
    inner = undone(move, operand)
    if inner is None or not (
        is_special(operand) or (operand.op in MOVES and is_special(operand.inputs[0]))
    ):
        return inner
    # Both sides are parts of a form. Neither order of moves is the better one, and they would be
    # exchanged for ever, unless the form is complete: a softmax.
    inner = settled(inner)
    return inner if sum_of(inner, move.inputs[0]) is not None else None


def _looks_movable(node: Node) -> bool:
    return any(operand.op in MOVES for operand in node.inputs)


def _join_equal_layouts(match: Match) -> Node | None:
    """Rewrite f(layout(a), layout(b)) to layout(f(a, b))."""
    node = match.root
    first = node.inputs[0]
    source = first.inputs[0]
    for other in node.inputs[1:]:
        if (
            other.op is not first.op
            or other.inputs[0].shape != source.shape
            or any(other.attrs[key] != value for key, value in first.attrs.items())
        ):
            return None
    if any(match.reads(operand) > 1 for operand in node.inputs):
        return None
    joined = node.op(*[operand.inputs[0] for operand in node.inputs], **node.attrs)
    return first.op(joined, **first.attrs)


def _looks_same(node: Node) -> bool:
    inputs = node.inputs
    return (
        len(inputs) > 1
        and inputs[0].op in INVERTIBLE
        and inputs[1].op is inputs[0].op
    )


RULES: tuple[Rule, ...] = (
    Rule("move layout after operation", _LIFTED, _lift, looks=_looks_movable),
    Rule("join equal layout operations", (ADD, SUBTRACT, MULTIPLY, DIVIDE), _join_equal_layouts,
         looks=_looks_same, complex=True),
    Rule("subtract the maximum before softmax", (DIVIDE,), _shift_softmax,
         looks=lambda node: node.inputs[0].op is EXP),
    Rule("log-softmax", (LOG,), _log_softmax, looks=lambda node: node.inputs[0].op is DIVIDE),
    Rule("logsumexp", (LOG,), _logsumexp, looks=lambda node: node.inputs[0].op is SUM),
    Rule("softplus", P.log(1 + P.exp(x)), lambda m: SOFTPLUS(m.x)
         if m.x.type == m.root.type else None),
    Rule("softplus", P.log1p(P.exp(x)), lambda m: SOFTPLUS(m.x)),
    Rule("log of sigmoid", P.log(P.sigmoid(x)), lambda m: NEGATIVE(SOFTPLUS(NEGATIVE(m.x)))),
    Rule("log of 1 - sigmoid", P.log(1 - P.sigmoid(x)), lambda m: NEGATIVE(SOFTPLUS(m.x))
         if m.x.type == m.root.type else None),
    Rule("log of 1 - sigmoid", P.log1p(-P.sigmoid(x)), lambda m: NEGATIVE(SOFTPLUS(m.x))),
    Rule("sigmoid", 1 / (1 + P.exp(-x)), lambda m: SIGMOID(m.x)
         if m.x.type == m.root.type else None),
    Rule("sigmoid", 1 / (1 + P.exp(x)), lambda m: SIGMOID(NEGATIVE(m.x))
         if m.x.type == m.root.type else None),
    Rule("sigmoid", P.exp(x) / (1 + P.exp(x)), lambda m: SIGMOID(m.x)
         if m.x.type == m.root.type else None),
    Rule("log before a cast to lower precision", (LOG,), _log_of_narrowed,
         looks=lambda node: node.inputs[0].op is CAST),
    Rule("1 - sigmoid", 1 - P.sigmoid(x), _opposite_sigmoid),
    Rule("log of 1 - tanh squared", P.log(1 - p), _logarithm_of_rest),
    Rule("log of exponentials", (LOG,), _logarithm_of_exponentials,
         looks=lambda node: node.inputs[0].op is ADD),
    Rule("log1p", P.log(1 + x), _log1p),
    Rule("expm1", P.exp(x) - 1, _expm1),
    Rule("expm1", P.exp(x) + -1, _expm1),
    Rule("x log(x) at 0", (MULTIPLY,), _finite_at_zero, looks=_looks_like_zero_guard),
    Rule("hypot", (SQRT,), _hypot, looks=lambda node: node.inputs[0].op is ADD),
    Rule("scaled vector norm", (SQRT,), _length, looks=lambda node: node.inputs[0].op is SUM),
)

