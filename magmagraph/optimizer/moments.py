"""Later relatives of Adam: with Nesterov's momentum, a rectified start, or signs alone."""

from __future__ import annotations

import numpy as np

from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.convert import cast
from ..ops.elementwise.arithmetic import add, divide, multiply, square, subtract
from ..ops.elementwise.comparison import greater, maximum, where
from ..ops.elementwise.math import exp2, power, sqrt
from ..ops.elementwise.signs import sign
from ..ops.leaf import Variable
from .adaptive import correction, moving_mean
from .base import Optimizer
from .descent import decayed, is_off
from .rate import RateLike
from .settings import RANGES
from .state import VariableState

__all__ = ["Lion", "NAdam", "RAdam"]

FLOAT64 = np.dtype(np.float64)


@documented
class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat 2016).

    With ``u = b1 (1 - 0.96**(t p) / 2)``, ``u'`` that of step ``t + 1``, ``U`` the product of all
    ``u`` so far, and Adam's moments ``m`` and ``v``:
    ``w <- w - r ((1 - u) / (1 - U) g + u' / (1 - U u') m) / (sqrt(v / (1 - b2**t)) + eps)``.

    learning_rate (float, schedule, callable, or Node, optional):
    beta1, beta2 (float, optional):
    eps (float, optional):
    momentum_decay (float, optional): ``p`` above.
    weight_decay (float, optional): The factor of an L2 penalty, in the gradient.

    >>> x = mg.var("x", init=5.0)
    >>> mg.optimizer.NAdam(0.1).minimize(x**2, [x], steps=200).value < 1e-4
    True
    """

    ranges = RANGES

    def __init__(
        self,
        learning_rate: RateLike = 2e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        momentum_decay: float = 4e-3,
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
            momentum_decay=momentum_decay,
            weight_decay=weight_decay,
        )

    def update(self, variable: Variable, gradient: Node, state: VariableState) -> Node:
        """Return the variable's new value; see the class."""
        options = state.options
        full = decayed(variable, gradient, options.weight_decay)
        first = moving_mean(state.zeros("m"), full, options.beta1)
        second = moving_mean(state.zeros("v"), square(full), options.beta2)
        state["m"], state["v"] = first, second

        def share(step: Node) -> Node:
            fall = power(0.96, multiply(step, options.momentum_decay))
            return multiply(subtract(1.0, multiply(fall, 0.5)), options.beta1)

        now, then = share(state.step), share(add(state.step, 1.0))
        product = multiply(state.scalar("product", 1.0), now)
        state["product"] = product
        direction = add(
            multiply(full, divide(subtract(1.0, now), subtract(1.0, product))),
            multiply(first, divide(then, subtract(1.0, multiply(product, then)))),
        )
        size = sqrt(divide(second, correction(options.beta2, state)))
        step = divide(direction, add(size, options.eps))
        return cast(subtract(variable, multiply(state.learning_rate, step)), variable.dtype)


@documented
class RAdam(Optimizer):
    """Adam whose first steps, of too few gradients, are rectified (Liu and others 2020).

    With ``q = 2 / (1 - b2) - 1`` and ``p = q - 2 t b2**t / (1 - b2**t)``: where ``p > 5`` Adam's
    step times ``sqrt((p - 4) (p - 2) q / ((q - 4) (q - 2) p))``, and before
    ``w <- w - r m / (1 - b1**t)``.

    learning_rate (float, schedule, callable, or Node, optional):
    beta1, beta2 (float, optional):
    eps (float, optional):
    weight_decay (float, optional): The factor of an L2 penalty, in the gradient.

    >>> x = mg.var("x", init=5.0)
    >>> mg.optimizer.RAdam(0.2).minimize(x**2, [x], steps=300).value < 1e-4
    True
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
        options = state.options
        full = decayed(variable, gradient, options.weight_decay)
        first = moving_mean(state.zeros("m"), full, options.beta1)
        second = moving_mean(state.zeros("v"), square(full), options.beta2)
        state["m"], state["v"] = first, second
        mean = divide(first, correction(options.beta1, state))
        # In float64: the length is a small difference of large numbers.
        step = cast(state.step, FLOAT64)
        limit = 2.0 / (1.0 - options.beta2) - 1.0
        rest = exp2(multiply(step, float(np.log2(options.beta2)))) if options.beta2 else step * 0.0
        length = subtract(limit, divide(multiply(multiply(step, rest), 2.0), subtract(1.0, rest)))
        long = maximum(length, 5.0)
        ratio = divide(
            multiply(multiply(subtract(long, 4.0), subtract(long, 2.0)), limit),
            multiply(long, (limit - 4.0) * (limit - 2.0)),
        )
        # As in the reference programs, eps stands beside the root that is not corrected.
        seen = sqrt(correction(options.beta2, state))
        size = divide(add(sqrt(second), options.eps), seen)
        steady = divide(multiply(mean, cast(sqrt(ratio), variable.dtype)), size)
        direction = where(greater(length, 5.0), steady, mean)
        return subtract(variable, multiply(state.learning_rate, direction))


@documented
class Lion(Optimizer):
    """Step by the sign of a moving mean (Chen and others 2023, algorithm 2).

    ``w <- w - r (sign(b1 m + (1 - b1) g) + d w)`` and ``m <- b2 m + (1 - b2) g``.

    learning_rate (float, schedule, callable, or Node, optional): Some 3 to 10 times smaller than
        Adam's.
    beta1, beta2 (float, optional):
    weight_decay (float, optional): ``d`` above.

    >>> w = mg.var("w", init=[1.0, -2.0])
    >>> step = mg.optimizer.Lion(0.25).step(mg.sum(w**2), [w])
    >>> step(), w.value
    (None, array([ 0.75, -1.75], dtype=float32))
    """

    ranges = RANGES

    def __init__(
        self,
        learning_rate: RateLike = 1e-4,
        beta1: float = 0.9,
        beta2: float = 0.99,
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
            weight_decay=weight_decay,
        )

    def update(self, variable: Variable, gradient: Node, state: VariableState) -> Node:
        """Return the variable's new value; see the class."""
        options, rate = state.options, state.learning_rate
        mean = state.zeros("m")
        direction = sign(moving_mean(mean, gradient, options.beta1))
        state["m"] = moving_mean(mean, gradient, options.beta2)
        return subtract(shrunk(variable, rate, options.weight_decay), multiply(rate, direction))


def shrunk(variable: Variable, rate: Node, weight_decay: float) -> Node:
    """Return ``(1 - rate * weight_decay) * variable``: decay apart from the gradient."""
    if is_off(weight_decay):
        return variable
    return multiply(variable, subtract(1.0, multiply(rate, weight_decay)))
