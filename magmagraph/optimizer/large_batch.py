"""Optimizers whose step is scaled to each variable's norm, for very large batches."""

from __future__ import annotations

from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.convert import as_node
from ..ops.elementwise.arithmetic import add, divide, multiply, subtract
from ..ops.elementwise.comparison import greater, minimum, where
from ..ops.leaf import Variable
from .adaptive import adam_direction
from .base import Optimizer
from .clip import global_norm
from .descent import decayed
from .rate import RateLike
from .settings import RANGES
from .state import VariableState

__all__ = ["LAMB", "LARS"]


def norm_ratio(numerator: Node, denominator: Node) -> Node:
    """Return the quotient of two norms, 1 where either is zero."""
    one = as_node(1.0, numerator.dtype)
    safe = where(greater(denominator, 0.0), denominator, one)
    both = greater(minimum(numerator, denominator), 0.0)
    return where(both, divide(numerator, safe), one)


@documented
class LARS(Optimizer):
    """Layer-wise adaptive rate scaling (You, Gitman and Ginsburg 2017).

    With ``q = trust |w| / (|g| + d |w|)``, or 1 where ``|w|`` or ``|g|`` is zero:
    ``v <- m v + r q (g + d w)`` and ``w <- w - v``.

    learning_rate (float, schedule, callable, or Node):
    momentum (float, optional):
    weight_decay (float, optional): ``d`` above.
    trust (float, optional): The part of its norm by which a variable changes per step at rate 1.

    >>> w = mg.var("w", init=[3.0, 4.0])
    >>> step = mg.optimizer.LARS(1.0, trust=0.1).step(mg.sum(w * mg.constant([1.0, 0.0])), [w])
    >>> step(), w.value
    (None, array([2.5, 4. ], dtype=float32))
    """

    ranges = RANGES

    def __init__(
        self,
        learning_rate: RateLike,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
        *,
        clip_value: float | None = None,
        clip_norm: float | None = None,
        accumulate: int = 1,
    ) -> None:
        super().__init__(
            learning_rate,
            clip_value=clip_value,
            clip_norm=clip_norm,
            accumulate=accumulate,
            momentum=momentum,
            weight_decay=weight_decay,
            trust=trust,
        )

    def update(self, variable: Variable, gradient: Node, state: VariableState) -> Node:
        """Return the variable's new value; see the class."""
        options = state.options
        size, slope = global_norm([variable]), global_norm([gradient])
        scaled = multiply(size, options.trust)
        total = add(slope, multiply(size, options.weight_decay))
        one = as_node(1.0, variable.dtype)
        ratio = where(greater(slope, 0.0), norm_ratio(scaled, total), one)
        full = decayed(variable, gradient, options.weight_decay)
        change = multiply(multiply(state.learning_rate, ratio), full)
        velocity = add(multiply(state.zeros("velocity"), options.momentum), change)
        state["velocity"] = velocity
        return subtract(variable, velocity)


@documented
class LAMB(Optimizer):
    """Adam's direction, scaled to each variable's norm (You and others 2020).

    With Adam's direction ``u`` and ``s = u + d w``: ``w <- w - r |w| / |s| s``, the quotient
    being 1 where either norm is zero.

    learning_rate (float, schedule, callable, or Node, optional):
    beta1, beta2 (float, optional):
    eps (float, optional):
    weight_decay (float, optional): ``d`` above.

    >>> w = mg.var("w", init=[3.0, 4.0])
    >>> step = mg.optimizer.LAMB(0.1).step(mg.sum(w * mg.constant([1.0, 0.0])), [w])
    >>> step(), w.value
    (None, array([2.5, 4. ], dtype=float32))
    """

    ranges = RANGES

    def __init__(
        self,
        learning_rate: RateLike = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        clip_value: float | None = None,
        clip_norm: float | None = None,
        accumulate: int = 1,
    ) -> None:
        super().__init__(
            learning_rate,
            clip_value=clip_value,
            clip_norm=clip_norm,
            accumulate=accumulate,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            weight_decay=weight_decay,
        )

    def update(self, variable: Variable, gradient: Node, state: VariableState) -> Node:
        """Return the variable's new value; see the class."""
        direction = adam_direction(gradient, state)
        full = decayed(variable, direction, state.options.weight_decay)
        ratio = norm_ratio(global_norm([variable]), global_norm([full]))
        return subtract(variable, multiply(multiply(state.learning_rate, ratio), full))
