"""Stable forms of expressions, for gradients: what to differentiate in place of what is written.

``log(1 + exp(x))`` and ``softplus(x)`` are one function, but the derivative of the first as it is
written, ``exp(x) / (1 + exp(x))``, is NaN where the exponential overflows, and each further
derivative is harder to mend than the one before. Derivatives of stable forms are stable. So the
backward sweep asks `stable_form` what it shall differentiate in place of a node. The nodes of the
user stay as they are; the values are mended by the pass `simplify`, with some of the same forms.

A form is equal to its node in exact arithmetic wherever the node is defined. Reshapes,
transpositions, slices and casts may stand between the parts. Where a form's gradient has a value at
a point at which the node's own has none (a root of squares that are all 0), it is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...dtypes import is_float
from ...ir.graph import Node
from ..control.identities import stop_gradient
from ..convert import CAST, cast
from ..elementwise.arithmetic import ADD, DIVIDE, MULTIPLY, NEGATIVE, SUBTRACT
from ..elementwise.comparison import MAXIMUM, equal, greater, where
from ..elementwise.math import EXP, HYPOT, LN2, LOG, LOG1P, POWER, SQRT, TANH
from ..elementwise.rounding import isfinite
from ..elementwise.signs import ABSOLUTE
from ..leaf import CONSTANT, constant
from ..networks.activation import SIGMOID, SOFTPLUS
from ..reduction.folding import restored
from ..reduction.primitives import MAX, SUM
from ..shape.arrange import RESHAPE, TRANSPOSE
from ..shape.joining import BROADCAST_TO
from ..shape.slicing import SLICE

MOST_TERMS = 8  # of a sum of exponentials that is written out
_MOST_STEPS = 8  # from a shift to the maximum that it is made of


class Form(NamedTuple):
    """What to differentiate in place of a node.

    operands: The nodes that the cotangent goes on to.
    rule: ``rule(cotangent)`` gives a cotangent for each of them.
    """

    operands: tuple[Node, ...]
    rule: Callable[[Node], tuple[Node, ...]]


def stable_form(node: Node) -> Form | None:
    """Return what to differentiate in place of a node, or None: the node itself.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.var("x", shape=(3,))
    >>> stable_form(mg.log(1 + mg.exp(x))).operands
    (<softplus float32[3]>,)
    """
    find = _FORMS.get(node.op)
    return None if find is None or not is_float(node.dtype) else find(node)


def _instead(node: Node | None) -> Form | None:
    return None if node is None else Form((node,), lambda cotangent: (cotangent,))


# What stands below reshapes, slices and casts.


def _is_move(node: Node, narrowing: bool) -> bool:
    op = node.op
    if op is not CAST:
        return op is RESHAPE or op is TRANSPOSE or op is SLICE or op is BROADCAST_TO
    before, after = node.inputs[0].dtype, node.dtype
    if not is_float(before):
        return False
    smaller = after.itemsize < before.itemsize
    return smaller if narrowing else not smaller


def _below(node: Node, narrowing: bool) -> tuple[Node, list[Node]]:
    """Return the operand below a node's moves, and the moves, outermost first.

    Casts to a narrower type are taken for moves, or casts to a wider one: an operation changes
    places with its cast so that it computes in the wider type.
    """
    moves: list[Node] = []
    while _is_move(node, narrowing):
        moves.append(node)
        node = node.inputs[0]
    return node, moves


def _apply_moves(node: Node, moves: Sequence[Node]) -> Node:
    """Return a node under the same moves."""
    for move in reversed(moves):
        node = move.op(node, **move.attrs)
    return node


def _operand(node: Node, op: object) -> Node | None:
    """Return the moved ``a`` where a node is a moved ``op(a)``."""
    core, moves = _below(node, narrowing=False)
    return _apply_moves(core.inputs[0], moves) if core.op is op else None


def _is_number(node: Node, number: float) -> bool:
    return node.op is CONSTANT and node.ndim == 0 and bool(node.attrs["value"] == number)


def _square_root(node: Node) -> Node | None:
    """Return the moved ``a`` where a node is a moved ``a * a`` or ``a ** 2``."""
    core, moves = _below(node, narrowing=False)
    if core.op is MULTIPLY:
        is_square = core.inputs[0] is core.inputs[1]
    else:
        is_square = core.op is POWER and _is_number(core.inputs[1], 2)
    return _apply_moves(core.inputs[0], moves) if is_square else None


# Shifts and scales.


def shifted(scores: Node, axes: tuple[int, ...]) -> Node:
    """Return scores less their maximum along axes, so that no exponential overflows."""
    top = stop_gradient(MAX(scores, axes=axes))
    return SUBTRACT(scores, restored(where(isfinite(top), top, 0), axes))


def is_empty(scores: Node, axes: tuple[int, ...]) -> bool:
    """Return whether an axis is known to have no element: there is no maximum then."""
    return any(isinstance(scores.shape[axis], int) and scores.shape[axis] == 0 for axis in axes)


def is_shifted(scores: Node) -> bool:
    """Return whether scores have the form that `shifted` gives, whoever wrote it."""
    if scores.op is not SUBTRACT:
        return False
    values, shift = scores.inputs
    top = _largest(shift)
    return top is not None and top.op is MAX and top.inputs[0] is values


def _largest(node: Node) -> Node | None:
    """Return the maximum that a shift or a scale is made of, or None."""
    for _ in range(_MOST_STEPS):
        if node.op is MAX or node.op is MAXIMUM:
            return node
        if not node.inputs:
            return None
        # Through reshapes, and the `where` that guards against an infinite maximum.
        node = node.inputs[1] if len(node.inputs) == 3 else node.inputs[0]
    return None


# Logarithms.


def _of_logarithm(node: Node) -> Form | None:
    core, moves = _below(node.inputs[0], narrowing=True)
    form = logarithm(core)
    return None if form is None else _instead(_apply_moves(form, moves))


def logarithm(node: Node) -> Node | None:
    """Return the stable form of the logarithm of a node, or None."""
    if node.op is EXP:
        return node.inputs[0]
    if node.op is SIGMOID:
        return NEGATIVE(SOFTPLUS(NEGATIVE(node.inputs[0])))
    if node.op is SUM:
        return _log_of_sum(node)
    if node.op is ADD:
        return log_of_exponentials(node)
    if node.op is DIVIDE:
        return _log_of_quotient(node)
    if node.op is SUBTRACT and _is_number(node.inputs[0], 1):
        return log_of_rest(node.inputs[1])
    return None


def _log_of_sum(total: Node) -> Node | None:
    """log(sum(exp(x))) is log(sum(exp(x - m))) + m."""
    axes: tuple[int, ...] = total.attrs["axes"]
    scores = _operand(total.inputs[0], EXP)
    if scores is None or not axes or is_shifted(scores) or is_empty(scores, axes):
        return None
    safe = shifted(scores, axes)
    power = EXP(safe)
    return ADD(LOG(SUM(power, axes=axes)), RESHAPE(safe.inputs[1], shape=total.shape))


def log_of_exponentials(total: Node) -> Node | None:
    """Return the logarithm of a sum of exponentials (and a 1) that is written out, or None."""
    parts = _exponents(total)
    if parts is None:
        return None
    exponents, ones = parts
    if ones and len(exponents) == 1:
        return SOFTPLUS(exponents[0]) if exponents[0].type == total.type else None
    if _share_a_shift(exponents):
        return None
    top = constant(0, dtype=total.dtype) if ones else exponents[0]
    for exponent in exponents:
        top = top if exponent is top else MAXIMUM(top, exponent)
    top = stop_gradient(top)
    top = where(isfinite(top), top, 0)
    terms = [EXP(SUBTRACT(exponent, top)) for exponent in exponents]
    result = EXP(NEGATIVE(top)) if ones else terms.pop(0)
    for term in terms:
        result = ADD(result, term)
    result = ADD(top, LOG(result))
    return result if result.type == total.type else None


def _exponents(total: Node) -> tuple[list[Node], bool] | None:
    """Return the exponents of a written sum of exponentials, and whether it has a 1 too."""
    exponents: list[Node] = []
    ones = False
    stack = [total]
    while stack:
        term = stack.pop()
        if term.op is ADD:
            stack += term.inputs[::-1]
        elif _is_number(term, 1) and not ones:
            ones = True
        else:
            exponent = _operand(term, EXP)
            if exponent is None:
                return None
            exponents.append(exponent)
        if len(exponents) + len(stack) > MOST_TERMS:
            return None
    return (exponents, ones) if exponents else None


def _share_a_shift(exponents: Sequence[Node]) -> bool:
    """Return whether exponents are less one maximum already."""
    shifts = [e.inputs[1] for e in exponents if e.op is SUBTRACT]
    if not shifts or any(shift is not shifts[0] for shift in shifts):
        return False
    top = _largest(shifts[0])
    return top is not None and top.op is MAXIMUM


def _log_of_quotient(quotient: Node) -> Node | None:
    """log(a / b) is log(a) - log(b) where one of them is made of exponentials."""
    above, below = quotient.inputs
    divisor, _ = _below(below, narrowing=True)
    if _below(above, narrowing=False)[0].op is not EXP:
        if divisor.op is SUM:
            if _operand(divisor.inputs[0], EXP) is None:
                return None
        elif divisor.op is not ADD or _exponents(divisor) is None:
            return None
    if _is_number(above, 1):
        return NEGATIVE(LOG(below))
    return SUBTRACT(LOG(above), LOG(below))


def log_of_rest(part: Node) -> Node | None:
    """Return log(1 - p) for a sigmoid or the square of a hyperbolic tangent p, or None."""
    curve = _operand(part, SIGMOID)
    if curve is not None:
        return NEGATIVE(SOFTPLUS(curve))
    root = _square_root(part)
    angle = None if root is None else _operand(root, TANH)
    if angle is None:
        return None
    # 1 - tanh(a)**2 is 4 / (exp(a) + exp(-a))**2.
    return (angle + LN2 - SOFTPLUS(angle * 2.0)) * 2.0


def _of_log1p(node: Node) -> Form | None:
    core, moves = _below(node.inputs[0], narrowing=True)
    if core.op is EXP:
        return _instead(_apply_moves(SOFTPLUS(core.inputs[0]), moves))
    form = log_of_rest(core.inputs[0]) if core.op is NEGATIVE else None
    return None if form is None else _instead(_apply_moves(form, moves))


# Products.


def _of_product(node: Node) -> Form | None:
    """The gradient of x log(x) is log(x) + 1: at 0 the limit, where x / x would be NaN."""
    for value, curve in (node.inputs, node.inputs[::-1]):
        if curve.op is LOG and curve.inputs[0] is value:
            return Form((value,), _gradient_of_x_log_x(curve))
    return None


def _gradient_of_x_log_x(curve: Node) -> Callable[[Node], tuple[Node, ...]]:
    return lambda cotangent: (cotangent * (curve + 1),)


# Quotients.


def _of_quotient(node: Node) -> Form | None:
    above, below = node.inputs
    divisor, moves = _below(below, narrowing=True)
    form = None
    if divisor.op is SUM:
        form = _softmax(above, divisor, moves)
    elif divisor.op is ADD:
        form = _logistic(above, divisor, moves)
    if form is None:
        return None
    form = cast(form, node.dtype)
    return _instead(form) if form.type == node.type else None


def _softmax(above: Node, total: Node, moves: Sequence[Node]) -> Node | None:
    """exp(y) / sum(exp(x)) is exp(y - m) / sum(exp(x - m)), m the maximum of x."""
    axes: tuple[int, ...] = total.attrs["axes"]
    scores = _operand(total.inputs[0], EXP)
    exponent = _operand(above, EXP)
    if scores is None or exponent is None or not axes or is_shifted(scores):
        return None
    if is_empty(scores, axes):
        return None
    safe = shifted(scores, axes)
    moves = [move for move in moves if move.op is not CAST]
    top = _apply_moves(RESHAPE(safe.inputs[1], shape=total.shape), moves)
    # Where both have the shift in common it is written once, as in the value.
    power = EXP(safe if exponent is scores else SUBTRACT(cast(exponent, top.dtype), top))
    return DIVIDE(power, _apply_moves(SUM(EXP(safe), axes=axes), moves))


def _logistic(above: Node, total: Node, moves: Sequence[Node]) -> Node | None:
    """exp(x) / (1 + exp(x)) is sigmoid(x), and a / (1 + exp(x)) is a * sigmoid(-x)."""
    parts = _exponents(total)
    if parts is None or not parts[1] or len(parts[0]) != 1:
        return None
    (exponent,) = parts[0]
    if exponent.shape != total.shape:
        return None
    if above.op is EXP:
        return SIGMOID(exponent) if above.inputs[0] is exponent and not moves else None
    if _operand(above, EXP) is not None:
        return None
    curve = _apply_moves(SIGMOID(NEGATIVE(exponent)), moves)
    return curve if _is_number(above, 1) else MULTIPLY(above, curve)


# Roots of sums of squares.


def _of_root(node: Node) -> Form | None:
    """The slope of a length is the direction: a component over the length, 0 for no length."""
    core, moves = _below(node.inputs[0], narrowing=True)
    if any(move.op is CAST for move in moves):
        return None
    if core.op is ADD:
        sides = [_square_root(side) for side in core.inputs]
        if sides[0] is None or sides[1] is None:
            return None
        return _instead(_apply_moves(HYPOT(sides[0], sides[1]), moves))
    side = _square_root(core.inputs[0]) if core.op is SUM else None
    if side is None:
        return None
    axes: tuple[int, ...] = core.attrs["axes"]
    if moves:
        return _instead(_apply_moves(SQRT(core), moves))
    operand = side

    def rule(cotangent: Node) -> tuple[Node, ...]:
        none = equal(node, 0)
        divisor = restored(where(none, 1, node), axes)
        return (restored(where(none, 0, cotangent), axes) * (operand / divisor),)

    return Form((operand,), rule)


def length(total: Node) -> Node | None:
    """Return the root of a sum of squares, scaled so that no square overflows, or None.

    None too where the squares are scaled already.
    """
    side = _square_root(total.inputs[0])
    axes: tuple[int, ...] = total.attrs["axes"]
    if side is None or not axes or any(type(e) is int and e == 0 for e in side.shape):
        return None  # without elements there is no largest
    if side.op is DIVIDE and _largest(side.inputs[1]) is not None:
        return None
    top = stop_gradient(MAX(ABSOLUTE(side), axes=axes))
    top = where(isfinite(top), where(greater(top, 0), top, 1), 1)
    part = DIVIDE(side, restored(top, axes))
    return MULTIPLY(SQRT(SUM(MULTIPLY(part, part), axes=axes)), top)


_FORMS: dict[object, Callable[[Node], Form | None]] = {
    LOG: _of_logarithm,
    LOG1P: _of_log1p,
    DIVIDE: _of_quotient,
    MULTIPLY: _of_product,
    SQRT: _of_root,
}
