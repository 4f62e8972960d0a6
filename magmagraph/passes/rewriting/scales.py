"""How large a scale can be, by the operations that made it: what may leave a sum.

In exact arithmetic ``sum(x * s)`` is ``sum(x) * s``. In floats the two differ in range: where `s`
is small, the sum of `x` alone can be infinite although the first form is not. Data over their
largest element, weights ``exp(x) / max(exp(x))`` and constants of nature are scaled in that way.
So a factor leaves a sum only where it is known not to be small, and a divisor where it is known not
to be large. The other way round nothing is lost: sums of numbers below the normal ones are exact.
"""

from __future__ import annotations

import numpy as np

from ...dtypes import is_inexact
from ...ir.graph import Node
from ...ops.convert import CAST
from ...ops.elementwise.arithmetic import DIVIDE, MULTIPLY, NEGATIVE
from ...ops.elementwise.math import EXP, SQRT
from ...ops.elementwise.signs import ABSOLUTE
from ...ops.leaf import CONSTANT, EXTENT, VARIABLE
from ...ops.reduction.primitives import SUM
from ...ops.rules.stable_forms import is_shifted
from ...ops.shape.arrange import RESHAPE, TRANSPOSE
from ...ops.shape.joining import BROADCAST_TO

DEEPEST = 12  # operations looked through
LARGEST_EXTENT = 48  # a power of two, as all bounds

Bounds = tuple[float, float]

_SAME = frozenset((NEGATIVE, ABSOLUTE, RESHAPE, TRANSPOSE, BROADCAST_TO))
_UNIT: Bounds = (0.0, 0.0)


def is_not_small(factor: Node, least: float = 0.0, *, trained: bool = False) -> bool:
    """Return whether a factor is known not to be below two to the power of `least`.

    Parameters
    ----------
    trained
        Whether variables count as numbers around 1: those of a network, which training keeps there.
        What is fed may have any size.
    """
    if not is_inexact(factor.dtype):
        return True
    bounds = _magnitude(factor, trained)
    return bounds is not None and bounds[0] >= least


def is_not_large(divisor: Node) -> bool:
    """Return whether a divisor is known not to be above 1."""
    bounds = _magnitude(divisor, False)
    return bounds is not None and bounds[1] <= 0.0


def half_of_range(dtype: np.dtype) -> float:
    """Return the power of two that the reciprocal of a root cannot be below."""
    return -512.0 if dtype.itemsize >= 8 and dtype.kind == "f" else -64.0


def _magnitude(node: Node, trained: bool, depth: int = 0) -> Bounds | None:
    """Return powers of two that bound finite absolute values, None where none are known."""
    if node.op is CONSTANT:
        return _of_values(node.attrs["value"])
    if node.op is EXTENT:
        return 0.0, LARGEST_EXTENT
    if node.op is VARIABLE:
        return _UNIT if trained else None
    if depth == DEEPEST:
        return None
    if node.op is SQRT and node.dtype.kind == "f":
        half = half_of_range(node.dtype)
        return 1.25 * half, -half  # numbers below the normal ones have roots, too
    if node.op is SUM:
        # Weights of which the largest is 1 add up to their number at most, and so may any sum of
        # as many elements exceed them.
        power = node.inputs[0]
        return _UNIT if power.op is EXP and is_shifted(power.inputs[0]) else None
    if node.op in _SAME or node.op is CAST:
        return _magnitude(node.inputs[0], trained, depth + 1)
    if node.op is MULTIPLY or node.op is DIVIDE:
        left, right = (_magnitude(operand, trained, depth + 1) for operand in node.inputs)
        if left is None or right is None:
            return None
        if node.op is MULTIPLY:
            return left[0] + right[0], left[1] + right[1]
        return left[0] - right[1], left[1] - right[0]
    return None


def _of_values(value: np.ndarray) -> Bounds | None:
    if not value.size or value.dtype == bool:
        return None
    size = np.abs(value).astype(np.float64)
    if not np.all(np.isfinite(size) & (size > 0)):
        return None
    return float(np.log2(size.min())), float(np.log2(size.max()))
