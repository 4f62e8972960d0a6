"""Gradients kept within bounds."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import GradientError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.convert import cast
from ..ops.elementwise.arithmetic import add, divide, multiply, square
from ..ops.elementwise.comparison import clip, maximum
from ..ops.elementwise.math import sqrt
from ..ops.reduction.primitives import sum

__all__ = ["clip_by_norm", "clip_by_value", "global_norm"]


@documented
def clip_by_value(gradients: Sequence[Node], limit: float | Node) -> list[Node]:
    """Limit every element to ``[-limit, limit]``.

    gradients (sequence of Node): Float nodes of any shapes.
    limit (float): Positive.

    >>> clipped, = mg.optimizer.clip_by_value([mg.constant([-3.0, 0.5])], 1.0)
    >>> clipped.eval()
    array([-1. ,  0.5], dtype=float32)
    """
    return [clip(gradient, -limit, limit) for gradient in gradients]


@documented
def global_norm(gradients: Sequence[Node]) -> Node:
    """Return the Euclidean norm of all elements of all gradients together, a scalar.

    gradients (sequence of Node): At least one; float nodes of any shapes.

    >>> mg.optimizer.global_norm([mg.constant([3.0]), mg.constant(4.0)]).eval()
    array(5., dtype=float32)
    """
    squares = [sum(square(gradient)) for gradient in gradients]
    if not squares:
        raise GradientError(message("global_norm of no gradients", need="at least one"))
    total = squares[0]
    for other in squares[1:]:
        total = add(total, other) if total.dtype == other.dtype else total + other
    return sqrt(total)


@documented
def clip_by_norm(gradients: Sequence[Node], limit: float | Node) -> list[Node]:
    """Scale all gradients by one factor so that their global norm is at most `limit`.

    The factor is ``limit / max(norm, limit)`` (Pascanu, Mikolov and Bengio 2013).

    gradients (sequence of Node): Float nodes of any shapes.
    limit (float): Positive.

    >>> clipped = mg.optimizer.clip_by_norm([mg.constant([3.0]), mg.constant(4.0)], 1.0)
    >>> [float(gradient.eval().item()) for gradient in clipped]
    [0.6000000238418579, 0.800000011920929]
    """
    gradients = list(gradients)
    if not gradients:
        return []
    norm = global_norm(gradients)
    factor = divide(limit, maximum(norm, limit))
    return [multiply(gradient, cast(factor, gradient.dtype)) for gradient in gradients]
