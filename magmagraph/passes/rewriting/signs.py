"""Derive the sign of a value from the operations that compute it."""

from __future__ import annotations

from ...ir.graph import Node
from ...ops.elementwise.arithmetic import ADD, DIVIDE, MULTIPLY, SUBTRACT
from ...ops.elementwise.math import EXP, EXP2
from ...ops.leaf import CONSTANT
from ...ops.networks.activation import SIGMOID, SOFTPLUS
from ...ops.reduction.primitives import MAX, MIN, PROD, SUM
from ...ops.shape.arrange import RESHAPE, TRANSPOSE
from ...ops.shape.joining import BROADCAST_TO
from ...ops.shape.slicing import SLICE
from .pattern import uniform

DEEPEST = 12  # operations looked through

_ALWAYS = frozenset((EXP, EXP2, SIGMOID, SOFTPLUS))
_IF_ALL = frozenset((ADD, MULTIPLY, DIVIDE, SUM, PROD, MAX, MIN, RESHAPE, TRANSPOSE, BROADCAST_TO,
                     SLICE))


def is_positive(node: Node) -> bool:
    """Return whether a value is mathematically above 0 (rounding may still make it 0).

    A NaN counts as positive here: rules that ask keep it in one of the terms.
    """
    stack: list[tuple[Node, int]] = [(node, 0)]
    seen: set[Node] = set()
    while stack:
        one, depth = stack.pop()
        if one in seen or one.op in _ALWAYS:
            continue
        seen.add(one)
        if one.op is CONSTANT:
            if (one.attrs["value"] > 0).all():
                continue
            return False
        if one.op is SUBTRACT and one.inputs[1].op is SIGMOID and uniform(one.inputs[0]) == 1:
            continue
        if depth == DEEPEST or one.op not in _IF_ALL:
            return False
        stack += [(operand, depth + 1) for operand in one.inputs]
    return True


