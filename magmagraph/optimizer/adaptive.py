"""Optimizers with a rate for every element, from the history of its gradient."""

from __future__ import annotations

import math

from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.convert import cast
from ..ops.elementwise.arithmetic import add, divide, multiply, negative, square, subtract
from ..ops.elementwise.math import expm1, sqrt
from ..ops.leaf import Variable
from .base import Optimizer
from .descent import decayed, is_off
from .rate import RateLike
from .settings import RANGES
from .state import VariableState

__all__ = ["AdaGrad", "Adam", "AdamW", "RMSProp"]


def moving_mean(old: Node, new: Node, decay: float) -> Node:
    """Return ``decay * old + (1 - decay) * new``."""
    return add(multiply(old, decay), multiply(new, 1.0 - decay))


def correction(decay: float, state: VariableState) -> Node:
    """Return ``1 - decay**step``, what a moving mean that began at zero has seen so far."""
    if decay == 0:
        return cast(multiply(state.step, 0.0) + 1.0, state.variable.dtype)
    # By expm1: 1 - 0.999**t itself loses four digits in float32.
    seen = negative(expm1(multiply(state.step, math.log(decay))))
    return cast(seen, state.variable.dtype)


def adam_direction(gradient: Node, state: VariableState) -> Node:
    """Return Adam's direction ``m' / (sqrt(v') + eps)`` and renew its moments."""
    options = state.options
    first = moving_mean(state.zeros("m"), gradient, options.beta1)
    second = moving_mean(state.zeros("v"), square(gradient), options.beta2)
    state["m"], state["v"] = first, second
    size = sqrt(divide(second, correction(options.beta2, state)))
    return divide(divide(first, correction(options.beta1, state)), add(size, options.eps))


@documented
class AdaGrad(Optimizer):
    """Divide by the root of the sum of all squared gradients (Duchi, Hazan and Singer 2011).

    ``s <- s + g**2`` and ``w <- w - r g / (sqrt(s) + eps)``.

    learning_rate (float, schedule, callable, or Node):
    initial (float, optional): The sum's first value.
    eps (float, optional):
    weight_decay (float, optional): The factor of an L2 penalty, in the gradient.

    >>> w = mg.var("w", init=[1.0, 2.0])
    >>> step = mg.optimizer.AdaGrad(0.5).step(mg.sum(3.0 * w), [w])
    >>> step(), w.value
    (None, array([0.5, 1.5], dtype=float32))
    """

    ranges = RANGES

    def __init__(
        self,
        learning_rate: RateLike,
        initial: float = 0.0,
        eps: float = 1e-10,
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
            initial=initial,
            eps=eps,
            weight_decay=weight_decay,
        )

    def update(self, variable: Variable, gradient: Node, state: VariableState) -> Node:
        """Return the variable's new value; see the class."""
        options = state.options
        full = decayed(variable, gradient, options.weight_decay)
        total = add(state.full("sum", options.initial), square(full))
        state["sum"] = total
        direction = divide(full, add(sqrt(total), options.eps))
        return subtract(variable, multiply(state.learning_rate, direction))


@documented
class RMSProp(Optimizer):
    """Divide by the root of a moving mean of squared gradients (Hinton 2012, lecture 6e).

    ``v <- p v + (1 - p) g**2``, ``d = g / (sqrt(v) + eps)`` and ``w <- w - r d``; with momentum
    ``b <- m b + d`` and ``w <- w - r b``; centered, ``v`` is reduced by the square of the moving
    mean of ``g``.

    learning_rate (float, schedule, callable, or Node):
    decay (float, optional): ``p`` above.
    eps (float, optional):
    momentum (float, optional):
    centered (bool, optional):
    weight_decay (float, optional): The factor of an L2 penalty, in the gradient.

    >>> w = mg.var("w", init=1.0)
    >>> step = mg.optimizer.RMSProp(0.1, decay=0.75).step(3.0 * w, [w])
    >>> step(), round(float(w.value), 4)
    (None, 0.8)
    """

    ranges = RANGES

    def __init__(
        self,
        learning_rate: RateLike,
        decay: float = 0.9,
        eps: float = 1e-8,
        momentum: float = 0.0,
        centered: bool = False,
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
            decay=decay,
            eps=eps,
            momentum=momentum,
            centered=centered,
            weight_decay=weight_decay,
        )

    def update(self, variable: Variable, gradient: Node, state: VariableState) -> Node:
        """Return the variable's new value; see the class."""
        options = state.options
        full = decayed(variable, gradient, options.weight_decay)
        squares = moving_mean(state.zeros("square"), square(full), options.decay)
        state["square"] = squares
        spread = squares
        if options.centered:
            mean = moving_mean(state.zeros("mean"), full, options.decay)
            state["mean"] = mean
            spread = subtract(squares, square(mean))
        direction = divide(full, add(sqrt(spread), options.eps))
        if not is_off(options.momentum):
            direction = add(multiply(state.zeros("velocity"), options.momentum), direction)
            state["velocity"] = direction
        return subtract(variable, multiply(state.learning_rate, direction))


@documented
class Adam(Optimizer):
    """Moving means of the gradient and its square, corrected for their start (Kingma, Ba 2015).

    ``m <- b1 m + (1 - b1) g``, ``v <- b2 v + (1 - b2) g**2``, and
    ``w <- w - r m / (1 - b1**t) / (sqrt(v / (1 - b2**t)) + eps)``, with ``t`` from 1.

    learning_rate (float, schedule, callable, or Node, optional):
    beta1, beta2 (float, optional):
    eps (float, optional):
    weight_decay (float, optional): The factor of an L2 penalty, in the gradient; `AdamW` decays
        apart from it.

    >>> w = mg.var("w", init=1.0)
    >>> step = mg.optimizer.Adam(0.25).step(w**2, [w])
    >>> step(), round(float(w.value), 4)
    (None, 0.75)
    """

    ranges = RANGES

    def __init__(
        self,
        learning_rate: RateLike = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
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
        full = decayed(variable, gradient, state.options.weight_decay)
        return subtract(variable, multiply(state.learning_rate, adam_direction(full, state)))


@documented
class AdamW(Adam):
    """Adam with weight decay apart from the gradient (Loshchilov and Hutter 2019).

    As `Adam`, with ``w <- (1 - r d) w - r * direction``.

    learning_rate (float, schedule, callable, or Node, optional):
    beta1, beta2 (float, optional):
    eps (float, optional):
    weight_decay (float, optional): ``d`` above.

    >>> w = mg.var("w", init=1.0)
    >>> step = mg.optimizer.AdamW(0.25, weight_decay=0.5).step(w**2, [w])
    >>> step(), round(float(w.value), 4)
    (None, 0.625)
    """

    def __init__(
        self,
        learning_rate: RateLike = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        *,
        clip_value: float | None = None,
        clip_norm: float | None = None,
        accumulate: int = 1,
    ) -> None:
        super().__init__(
            learning_rate,
            beta1,
            beta2,
            eps,
            weight_decay,
            clip_value=clip_value,
            clip_norm=clip_norm,
            accumulate=accumulate,
        )

    def update(self, variable: Variable, gradient: Node, state: VariableState) -> Node:
        """Return the variable's new value; see the class."""
        rate = state.learning_rate
        kept: Node = variable
        if not is_off(state.options.weight_decay):
            kept = multiply(variable, subtract(1.0, multiply(rate, state.options.weight_decay)))
        return subtract(kept, multiply(rate, adam_direction(gradient, state)))
