"""Rules of arithmetic and logic: each keeps every value, or differs in the last place."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...dtypes import is_bool, is_float, is_integer
from ...ir.graph import Node
from ...ops.control.differentiation import CHECKPOINT, CHECKPOINT_NAME, CUSTOM_GRADIENT
from ...ops.control.identities import MARKER, SENT_WHEN, STOP_GRADIENT
from ...ops.convert import CAST, cast
from ...ops.elementwise.arithmetic import (
    ADD,
    DIVIDE,
    MULTIPLY,
    NEGATIVE,
    add,
    multiply,
    negative,
    subtract,
)
from ...ops.elementwise.bits import BITWISE_AND, BITWISE_NOT, BITWISE_OR
from ...ops.elementwise.comparison import WHERE
from ...ops.elementwise.math import sqrt
from ...ops.elementwise.signs import ABSOLUTE
from ...ops.leaf import CONSTANT
from ...ops.reduction.primitives import SUM
from ...ops.shape.arrange import reshape
from ..rewriting.build import like, spread
from ..rewriting.pattern import P, constants, uniform, wildcards
from ..rewriting.rewrite import Match, Rule
from ..rewriting.scales import is_not_large, is_not_small
from ..rewriting.signs import is_positive
from .constants import constant_of
from .sum_factors import keeps_empty_sums

x, y, z, c = wildcards("x y z c")
k, q = constants("k q")


def _kept(pick: Callable[[Match], Node]) -> Callable[[Match], Node]:
    """Return a replacement that gives an operand, broadcast to the matched shape."""
    return lambda match: spread(pick(match), match.root.shape)


def _first(match: Match) -> Node:
    return match.root.inputs[0]


def _unmarked(match: Match) -> Node | None:
    """Drop an identity; loss scaling needs those of gradients, and takes them away itself."""
    if match.root.op is MARKER and match.options.precision == "float16":
        return None if match.root.attrs["role"] != "operand" else _first(match)
    return _first(match)


def _finite(node: Node) -> str | None:
    if not is_float(node.dtype):
        return None
    if node.op is CAST and not is_float(node.inputs[0].dtype):
        return None
    return "x may be infinite or NaN, where x * 0 is NaN"


def _by_divisor(match: Match) -> Node | None:
    """Division by a power of two is multiplication, exactly."""
    divisor = uniform(match.k)
    if divisor is None or not math.isfinite(divisor) or divisor == 0:
        return None
    mantissa, exponent = math.frexp(divisor)
    if abs(mantissa) != 0.5 or not abs(exponent) < 100:
        return None
    return multiply(match.x, constant_of(1 / match.k.attrs["value"]))


def _power(match: Match) -> Node | None:
    exponent = uniform(match.k)
    base = match.x
    if exponent is None or match.root.shape != base.shape:
        return None
    one = like(1, base)
    if exponent == 0:
        return spread(one, match.root.shape)
    if exponent == 1:
        return base  # type: ignore[no-any-return]
    squared = MULTIPLY(base, base)
    if exponent == 2:
        return squared
    if exponent == 3:
        return MULTIPLY(squared, base)
    if exponent == 4:
        return MULTIPLY(squared, squared)
    if not is_float(base.dtype):
        return None
    if exponent == 0.5:
        return sqrt(base)
    if exponent == -1:
        return DIVIDE(one, base)
    if exponent == -2:
        return DIVIDE(one, squared)
    if exponent == -0.5:
        return DIVIDE(one, sqrt(base))
    return None


def _scaled_twice(match: Match) -> Node | None:
    """(x * k) * q is x * (k * q) while k * q stays a normal number."""
    first, second = match.k.attrs["value"], match.q.attrs["value"]
    with np.errstate(all="ignore"):
        product = np.asarray(first * second, dtype=first.dtype)
    if product.ndim > max(first.ndim, second.ndim) or product.size > max(first.size, second.size):
        return None
    if is_float(first.dtype):
        wide = np.abs(product.astype(np.float64))
        if not np.all((wide >= 1e-30) & (wide <= 1e30)):
            return None
    elif is_bool(first.dtype):
        return None
    result = MULTIPLY(match.x, constant_of(product))
    return result if result.type == match.root.type else None


def _added_twice(match: Match) -> Node | None:
    first, second = match.k.attrs["value"], match.q.attrs["value"]
    if not is_integer(first.dtype) or first.shape != () or second.shape != ():
        return None
    with np.errstate(all="ignore"):
        total = np.asarray(first + second, dtype=first.dtype)
    return ADD(match.x, constant_of(total))


def _same_type(match: Match) -> bool:
    return bool(match.x.type == match.root.type)


def _negated_factor(match: Match) -> Node | None:
    """(-x) * y is -(x * y): signs gather outside, where sums take them up."""
    if not _same_type(match):
        return None
    return NEGATIVE(match.root.op(match.x, match.y))


def _negated_divisor(match: Match) -> Node | None:
    if not _same_type(match):
        return None
    return NEGATIVE(DIVIDE(match.x, match.y))


def _negated_constant(match: Match) -> Node | None:
    value = match.k.attrs["value"]
    if not is_float(value.dtype) or match.x.shape != match.root.shape:
        return None
    return MULTIPLY(match.x, constant_of(-value))


def _difference(match: Match) -> Node | None:
    return subtract(match.x, match.y) if not is_bool(match.root.dtype) else None


def _negated_difference(match: Match) -> Node | None:
    if match.reads(match.root.inputs[0]) > 1:
        return None
    return subtract(match.y, match.x)


def _rest(match: Match) -> Node | None:
    """Integers wrap around, so that nothing is lost; floats round."""
    root = match.root
    return spread(match.y, root.shape) if root.dtype.kind in "iu" else None


def _cast_twice(match: Match) -> Node | None:
    inner = match.x
    between = match.root.inputs[0].dtype
    if not np.can_cast(inner.dtype, between, "safe"):
        return None
    return cast(inner, match.root.dtype)


def _chosen(match: Match) -> Node | None:
    condition, first, second = match.root.inputs
    if first is second:
        return spread(first, match.root.shape)
    if condition.op is CONSTANT:
        value = condition.attrs["value"]
        if value.size and value.all():
            return spread(first, match.root.shape)
        if value.size and not value.any():
            return spread(second, match.root.shape)
    if condition.op is BITWISE_NOT:
        return WHERE(condition.inputs[0], second, first)
    return None


def _logic(match: Match) -> Node | None:
    """Drop a neutral operand of and / or; return a dominant one."""
    left, right = match.root.inputs
    if left is right:
        return left
    if not is_bool(match.root.dtype):
        return None
    for one, other in ((left, right), (right, left)):
        if one.op is CONSTANT and one.attrs["value"].size:
            value = one.attrs["value"]
            neutral = match.root.op is BITWISE_AND
            if np.all(value == neutral):
                return spread(other, match.root.shape)
            if np.all(value != neutral):
                return spread(constant_of(np.array(not neutral)), match.root.shape)
    return None


def _self_equal(match: Match) -> Node | None:
    if is_float(match.x.dtype):
        return None
    return spread(constant_of(np.array(True)), match.root.shape)


def _logarithm_of_exponential(match: Match) -> Node:
    match.repair("log(exp(x)) is x also where exp(x) leaves its range")
    return match.x  # type: ignore[no-any-return]


def _exponential_of_logarithm(match: Match) -> str | None:
    return None if is_positive(match.x) else "x may be negative, where the logarithm is NaN"


def _scalar_out_of_sum(match: Match) -> Node | None:
    """Move a factor that does not vary over the summed axes out of the sum.

    Only where it is not small: see `rewriting.scales`.
    """
    product = match.root.inputs[0]
    if product.op is not MULTIPLY or match.reads(product) > 1:
        return None
    for one, other in (product.inputs, product.inputs[::-1]):
        if one.shape == () and other.type == product.type and one is not other:
            axes = match.root.attrs["axes"]
            if is_not_small(one) and keeps_empty_sums(one, product, axes):
                return MULTIPLY(SUM(other, axes=axes), one)
    return None


def _negative_out_of_sum(match: Match) -> Node | None:
    inner = match.root.inputs[0]
    return NEGATIVE(SUM(inner.inputs[0], axes=match.root.attrs["axes"]))


def _quotient_out_of_sum(match: Match) -> Node | None:
    """A divisor that does not vary over the summed axes, and is not large, divides the sum."""
    quotient = match.root.inputs[0]
    axes: tuple[int, ...] = match.root.attrs["axes"]
    above, below = quotient.inputs
    if not axes or above.type != quotient.type or match.reads(quotient) > 1:
        return None
    if not keeps_empty_sums(below, quotient, axes):
        return None
    if not is_not_large(below):
        return None
    if below.shape == ():
        return DIVIDE(SUM(above, axes=axes), below)
    if below.ndim != quotient.ndim or below.op is CONSTANT:
        return None
    if any(type(below.shape[a]) is not int or below.shape[a] != 1 for a in axes):
        return None
    rest = tuple(e for a, e in enumerate(below.shape) if a not in axes)
    return DIVIDE(SUM(above, axes=axes), reshape(below, rest))


# Of complex numbers the sign of a zero counts: it says on which side of a cut sqrt, log and powers
# continue. Rules that change it (x + 0 for x, -(x - y) for y - x) are for real numbers only.
RULES: tuple[Rule, ...] = (
    # Identities with a meaning for gradients only.
    Rule("drop marker",
         (MARKER, STOP_GRADIENT, SENT_WHEN, CHECKPOINT, CHECKPOINT_NAME, CUSTOM_GRADIENT),
         _unmarked, complex=True),
    # Casts.
    Rule("cast to the same dtype", (CAST,),
         lambda m: m.root.inputs[0] if m.root.inputs[0].dtype == m.root.dtype else None,
         complex=True),
    Rule("cast of a cast", P.cast(P.cast(x)), _cast_twice, complex=True),
    # Sums and differences.
    Rule("add 0", x + 0, _kept(lambda m: m.x)),
    Rule("subtract 0", x - 0, _kept(lambda m: m.x)),
    Rule("subtract from 0", 0 - x, lambda m: spread(negative(m.x), m.root.shape)),
    Rule("add a negative", x + (-y), _difference, complex=True),
    Rule("subtract a negative", x - (-y), lambda m: add(m.x, m.y), complex=True),
    Rule("subtract what is left from the whole", x - (x - y), _rest),
    Rule("combine two added constants", P.add(P.add(x, k), q), _added_twice),
    Rule("x + x to 2 x", x + x, lambda m: MULTIPLY(m.x, like(2, m.x)) if not is_bool(m.x.dtype)
         else m.x),
    Rule("negative of a negative", P.negative(-x), lambda m: m.x, complex=True),
    Rule("negative of a difference", -(x - y), _negated_difference),
    # Products and quotients.
    Rule("multiply by 1", x * 1, _kept(lambda m: m.x)),
    Rule("multiply by -1", x * -1, lambda m: spread(negative(m.x), m.root.shape)),
    Rule("multiply by 0", x * 0, lambda m: spread(like(0, m.x), m.root.shape),
         check=lambda m: _finite(m.x)),
    Rule("divide by 1", x / 1, _kept(lambda m: m.x)),
    Rule("divide by -1", x / -1, lambda m: spread(negative(m.x), m.root.shape)),
    Rule("divide by a power of two", x / k, _by_divisor),
    Rule("two negative factors", (-x) * (-y), lambda m: multiply(m.x, m.y), complex=True),
    Rule("two negative operands", (-x) / (-y), lambda m: DIVIDE(m.x, m.y), complex=True),
    Rule("negative times a constant", P.multiply(-x, k), _negated_constant),
    Rule("negative of a scaled value", -P.multiply(x, k).bind("product"),
         lambda m: _negated_constant(m) if m.reads(m.product) == 1 else None),
    Rule("negative factor", (-x) * y, _negated_factor),
    Rule("negative dividend", (-x) / y, _negated_factor),
    Rule("negative divisor", x / (-y), _negated_divisor),
    Rule("combine two constant factors", P.multiply(P.multiply(x, k), q), _scaled_twice),
    Rule("multiply by a reciprocal", x * (1 / y), lambda m: DIVIDE(m.x, m.y)
         if m.y.type == m.root.type else None),
    # Powers, roots, absolute values.
    Rule("power with a small constant exponent", P.power(x, k), _power, complex=True),
    Rule("square root of a square", P.sqrt(x * x), lambda m: ABSOLUTE(m.x)),
    Rule("absolute of absolute", P.absolute(P.absolute(x).bind("inner")), lambda m: m.inner,
         complex=True),
    Rule("absolute of a negative", P.absolute(-x), lambda m: ABSOLUTE(m.x), complex=True),
    Rule("square of absolute", P.multiply(P.absolute(x), P.absolute(x)),
         lambda m: MULTIPLY(m.x, m.x)),
    # Exponentials and logarithms.
    Rule("logarithm of an exponential", P.log(P.exp(x)), _logarithm_of_exponential),
    Rule("exponential of a logarithm", P.exp(P.log(x)), lambda m: m.x,
         check=_exponential_of_logarithm),
    # Choices and logic.
    Rule("maximum of equals", P.maximum(x, x), lambda m: m.x),
    Rule("minimum of equals", P.minimum(x, x), lambda m: m.x),
    Rule("relu of relu", P.relu(P.relu(x).bind("inner")), lambda m: m.inner),
    Rule("constant where", (WHERE,), _chosen, complex=True),
    Rule("double not", P.bitwise_not(P.bitwise_not(x)), lambda m: m.x),
    Rule("constant logic", (BITWISE_AND, BITWISE_OR), _logic),
    Rule("equal to itself", P.equal(x, x), _self_equal),
    # Sums over axes.
    Rule("move a scalar factor out of a sum", P.sum(x), _scalar_out_of_sum),
    Rule("move a sign out of a sum", P.sum(-x), _negative_out_of_sum),
    Rule("move a divisor out of a sum", P.sum(x / y), _quotient_out_of_sum),
)
