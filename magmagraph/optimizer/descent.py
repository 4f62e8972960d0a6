"""Gradient descent: plain, with momentum, with Nesterov's."""

from __future__ import annotations

from typing import Any

from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.elementwise.arithmetic import add, multiply, subtract
from ..ops.leaf import Variable
from .base import Optimizer
from .rate import RateLike
from .settings import RANGES
from .state import VariableState

__all__ = ["SGD", "GradientDescent"]


def is_off(setting: Any) -> bool:
    """Return whether a setting is the number zero (and not a node)."""
    return not isinstance(setting, Node) and setting == 0


def decayed(variable: Variable, gradient: Node, weight_decay: Any) -> Node:
    """Return the gradient of the loss plus ``weight_decay / 2 * |variable|**2``."""
    if is_off(weight_decay):
        return gradient
    return add(gradient, multiply(variable, weight_decay))


@documented
class GradientDescent(Optimizer):
    """Step against the gradient; `SGD` is another name for it.

    With the gradient ``g``, rate ``r``, weight decay ``d`` and momentum ``m``:
    ``w <- (1 - r d) w - r g`` without momentum; with it ``v <- m v + g + d w`` and
    ``w <- w - r v``, or ``w <- w - r (g + d w + m v)`` for Nesterov's (Sutskever and others
    2013, with the velocity scaled by the rate).

    learning_rate (float, schedule, callable, or Node):
    momentum (float, optional): From 0 to below 1.
    nesterov (bool, optional):
    weight_decay (float, optional): The factor of an L2 penalty's gradient.

    >>> w = mg.var("w", init=[1.0, 2.0])
    >>> step = mg.optimizer.GradientDescent(0.5).step(mg.sum(w), [w])
    >>> step(), w.value
    (None, array([0.5, 1.5], dtype=float32))
    """

    ranges = RANGES

    def __init__(
        self,
        learning_rate: RateLike,
        momentum: float = 0.0,
        nesterov: bool = False,
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
            momentum=momentum,
            nesterov=nesterov,
            weight_decay=weight_decay,
        )

    def update(self, variable: Variable, gradient: Node, state: VariableState) -> Node:
        """Return the variable's new value; see the class."""
        options, rate = state.options, state.learning_rate
        if is_off(options.momentum):
            # The form that the accumulate pass turns into one gemm: beta W - rate A'B.
            kept: Node = variable
            if not is_off(options.weight_decay):
                kept = multiply(variable, subtract(1.0, multiply(rate, options.weight_decay)))
            return subtract(kept, multiply(rate, gradient))
        full = decayed(variable, gradient, options.weight_decay)
        velocity = add(multiply(state.zeros("velocity"), options.momentum), full)
        state["velocity"] = velocity
        direction = velocity
        if options.nesterov:
            direction = add(full, multiply(velocity, options.momentum))
        return subtract(variable, multiply(rate, direction))


SGD = GradientDescent
