"""Optimizers that treat a matrix as one, not element by element."""

from __future__ import annotations

import math

import numpy as np

from ..dtypes import canonical
from ..errors import ConfigError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.convert import cast
from ..ops.elementwise.arithmetic import add, divide, multiply, square, subtract
from ..ops.elementwise.comparison import maximum
from ..ops.elementwise.math import power, rsqrt, sqrt
from ..ops.leaf import Variable
from ..ops.products.contraction import matmul
from ..ops.reduction.primitives import sum
from ..ops.reduction.statistics import mean
from ..ops.shape.arrange import expand_dims, reshape, swapaxes
from .adaptive import adam_direction
from .base import Optimizer
from .moments import shrunk
from .rate import RateLike
from .settings import RANGES
from .state import VariableState

__all__ = ["Adafactor", "Muon"]


@documented
class Adafactor(Optimizer):
    """Keep second moments by rows and columns alone (Shazeer and Stern 2018, algorithms 4 and 5).

    With ``b = 1 - t**-c``: ``R <- b R + (1 - b) rowmeans(g**2 + eps)``, ``C`` likewise of columns,
    ``v = R C / mean(R)``, ``u = g / sqrt(v)``, ``u <- u / max(1, rms(u) / k)`` and
    ``w <- (1 - r d) w - r max(s, rms(w)) u``. A variable of fewer than two axes has a whole `v`; of
    more, the last two are rows and columns.

    learning_rate (float, schedule, callable, or Node, optional): Relative to the root mean square
        of the variable. The paper has ``mg.schedule.inverse_sqrt(0.01, 10_000)``, the least of 0.01
        and ``1 / sqrt(t)``.
    decay_power (float, optional): ``c`` above.
    eps (float, optional): Added to squares.
    smallest (float, optional): ``s`` above: what a variable near zero counts.
    clip_update (float, optional): ``k`` above.
    weight_decay (float, optional): ``d`` above.

    >>> w = mg.var("w", init=mg.init.normal(seed=0), shape=(4, 3))
    >>> optimizer = mg.optimizer.Adafactor(0.1)
    >>> result = optimizer.minimize(mg.sum(w**2), [w], steps=100)
    >>> result.value < 1e-3, optimizer.state["w/rows"].value.shape
    (True, (4,))
    """

    ranges = RANGES

    def __init__(
        self,
        learning_rate: RateLike = 0.01,
        decay_power: float = 0.8,
        eps: float = 1e-30,
        smallest: float = 1e-3,
        clip_update: float = 1.0,
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
            decay_power=decay_power,
            eps=eps,
            smallest=smallest,
            clip_update=clip_update,
            weight_decay=weight_decay,
        )

    def update(self, variable: Variable, gradient: Node, state: VariableState) -> Node:
        """Return the variable's new value; see the class."""
        options, rate = state.options, state.learning_rate
        fresh = cast(power(state.step, -options.decay_power), variable.dtype)  # 1 - b
        squares = add(square(gradient), options.eps)

        def follow(name: str, new: Node) -> Node:
            old = state.array(name, np.zeros(new.shape))
            state[name] = add(old, multiply(fresh, subtract(new, old)))
            return state.renewed[old]

        if variable.ndim < 2:
            direction = multiply(gradient, rsqrt(follow("v", squares)))
        else:
            rows, columns = follow("rows", mean(squares, -1)), follow("columns", mean(squares, -2))
            share = divide(rows, mean(rows, -1, keepdims=True))
            direction = multiply(
                gradient,
                multiply(expand_dims(rsqrt(share), -1), expand_dims(rsqrt(columns), -2)),
            )
        large = divide(_root_mean_square(direction), options.clip_update)
        direction = divide(direction, maximum(large, 1.0))
        size = multiply(rate, maximum(_root_mean_square(variable), options.smallest))
        kept = shrunk(variable, rate, options.weight_decay)
        return subtract(kept, multiply(size, direction))


def _root_mean_square(x: Node) -> Node:
    return sqrt(mean(square(x)))


@documented
class Muon(Optimizer):
    """Step by the nearest matrix with orthogonal rows (Jordan and others 2024).

    ``m <- b m + g`` and ``w <- (1 - r d) w - 0.2 sqrt(max(rows, columns)) r orthogonal(g + b m)``
    (`m` alone without Nesterov's momentum). ``orthogonal`` is some iterations of
    ``X <- 3.4445 X - 4.775 X X' X + 2.0315 X X' X X' X`` from ``X / |X|``: all singular values
    come near 1. The factor makes the step as large as Adam's (Liu and others, "Muon is scalable for
    LLM training", 2025, equation 4), so that both have one rate.

    learning_rate (float, schedule, callable, or Node, optional):
    momentum (float, optional): ``b`` above.
    nesterov (bool, optional):
    iterations (int, optional):
    half (bool, optional): Whether iterations are computed in bfloat16.
    weight_decay (float, optional): ``d`` above.
    beta1, beta2, eps (float, optional): Of `AdamW`, which is the rule for all other variables.
    orthogonal (bool, optional): Whether matrices have this rule. Put embeddings and output layers
        into a group with False; variables of fewer than two axes never have it.

    Notes
    -----
    A variable of more than two axes is a matrix of its first axis and all others, as the kernel of
    a convolution is.

    >>> w = mg.var("w", init=[[3.0, 0.0], [0.0, 4.0]])
    >>> step = mg.optimizer.Muon(1.0, half=False).step(mg.sum(w**2), [w])
    >>> step(), w.value.round(1)
    (None, array([[2.8, 0. ],
           [0. , 3.7]], dtype=float32))
    """

    ranges = RANGES

    def __init__(
        self,
        learning_rate: RateLike = 1e-3,
        momentum: float = 0.95,
        nesterov: bool = True,
        iterations: int = 5,
        half: bool = True,
        weight_decay: float = 0.0,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        orthogonal: bool = True,
        *,
        clip_value: float | None = None,
        clip_norm: float | None = None,
        accumulate: int = 1,
    ) -> None:
        if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
            raise ConfigError(
                message(f"Muon: iterations={iterations!r}", need="an int of at least 1")
            )
        super().__init__(
            learning_rate,
            clip_value=clip_value,
            clip_norm=clip_norm,
            accumulate=accumulate,
            momentum=momentum,
            nesterov=nesterov,
            iterations=iterations,
            half=half,
            weight_decay=weight_decay,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            orthogonal=orthogonal,
        )

    def update(self, variable: Variable, gradient: Node, state: VariableState) -> Node:
        """Return the variable's new value; see the class."""
        options, rate = state.options, state.learning_rate
        kept = shrunk(variable, rate, options.weight_decay)
        if variable.ndim < 2 or not options.orthogonal:
            return subtract(kept, multiply(rate, adam_direction(gradient, state)))
        velocity = add(multiply(state.zeros("velocity"), options.momentum), gradient)
        state["velocity"] = velocity
        direction = velocity
        if options.nesterov:
            direction = add(gradient, multiply(velocity, options.momentum))
        rows = int(variable.shape[0])
        columns = int(variable.size) // rows if rows else 0
        matrix = reshape(direction, (rows, columns))
        turned = orthogonalized(matrix, options.iterations, options.half)
        factor = 0.2 * math.sqrt(max(rows, columns))
        step = multiply(rate, multiply(reshape(turned, variable.shape), factor))
        return subtract(kept, step)


def orthogonalized(matrix: Node, iterations: int, half: bool) -> Node:
    """Return a matrix with the singular vectors of another one, and singular values near 1."""
    size = sqrt(sum(square(matrix)))
    factor = divide(matrix, maximum(size, 1e-12))
    rows, columns = matrix.shape
    tall = int(rows) > int(columns)
    if tall:
        factor = swapaxes(factor, 0, 1)
    if half:
        factor = cast(factor, canonical("bfloat16"))
    for _ in range(iterations):
        gram = matmul(factor, swapaxes(factor, 0, 1))
        inner = subtract(multiply(matmul(gram, gram), 2.0315), multiply(gram, 4.775))
        factor = add(multiply(factor, 3.4445), matmul(inner, factor))
    factor = cast(factor, matrix.dtype)
    return swapaxes(factor, 0, 1) if tall else factor
