"""Operators of ONNX's other domains: updates of optimizers, and features of ``ai.onnx.ml``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ...ir.graph import Node
from ...ops.convert import cast
from ...ops.elementwise.arithmetic import add, divide, multiply, subtract
from ...ops.elementwise.comparison import greater, where
from ...ops.elementwise.math import power, sqrt
from ...ops.indexing.gathering import take
from ...ops.shape.arrange import reshape
from .operator import Operator, Rule

__all__ = ["FEATURES", "FEATURES_DOMAIN", "UPDATES", "UPDATES_DOMAIN"]

UPDATES_DOMAIN = "ai.onnx.preview.training"
FEATURES_DOMAIN = "ai.onnx.ml"

# From rate, count of steps, variable, gradient and memories to the new variable and memories.
_Update = Callable[..., tuple[Node, ...]]


def _of_each(update: _Update, memories: int) -> Rule:
    """Return the rule of an operator that updates several variables, kind after kind."""

    def rule(op: Operator) -> tuple[Node, ...]:
        rate, steps, *rest = op.nodes
        kinds = 2 + memories  # variables, gradients, memories
        if not rest or len(rest) % kinds:
            raise op.refuse(f"{len(rest)} tensors follow its rate and its count of steps")
        count = len(rest) // kinds
        made = []
        for i in range(count):
            x, gradient, *held = rest[i::count]
            regular = add(multiply(x, op.get("norm_coefficient", 0.0)), gradient)
            made.append(update(op, rate, steps, x, regular, *held))
        return tuple(results[kind] for kind in range(1 + memories) for results in made)

    return rule


def _adam(
    op: Operator, rate: Node, steps: Node, x: Node, g: Node, mean: Node, square: Node
) -> tuple[Node, ...]:
    alpha, beta = op.get("alpha", 0.9), op.get("beta", 0.999)
    mean = add(multiply(mean, alpha), multiply(g, 1.0 - alpha))
    square = add(multiply(square, beta), multiply(multiply(g, g), 1.0 - beta))
    count = cast(steps, rate.dtype)
    adjusted = divide(
        multiply(rate, sqrt(subtract(1.0, power(beta, count)))), subtract(1.0, power(alpha, count))
    )
    size = where(greater(steps, 0), adjusted, rate)
    new = subtract(x, divide(multiply(size, mean), add(sqrt(square), op.get("epsilon", 1e-6))))
    return multiply(new, 1.0 - op.get("norm_coefficient_post", 0.0)), mean, square


def _adagrad(
    op: Operator, rate: Node, steps: Node, x: Node, g: Node, square: Node
) -> tuple[Node, ...]:
    count = multiply(cast(steps, rate.dtype), op.get("decay_factor", 0.0))
    square = add(square, multiply(g, g))
    step = divide(multiply(divide(rate, add(count, 1.0)), g),
                  add(sqrt(square), op.get("epsilon", 1e-6)))  # fmt: skip
    return subtract(x, step), square


def _momentum(
    op: Operator, rate: Node, steps: Node, x: Node, g: Node, speed: Node
) -> tuple[Node, ...]:
    alpha, mode = op.get("alpha", 0.0), op.get("mode", "")
    if mode not in ("standard", "nesterov"):
        raise op.refuse(f"the mode {mode!r}", "'standard' or 'nesterov'")
    share = where(greater(steps, 0), np.float32(op.get("beta", 1.0)), np.float32(1.0))
    speed = add(multiply(speed, alpha), multiply(cast(share, g.dtype), g))
    step = add(g, multiply(speed, alpha)) if mode == "nesterov" else speed
    return subtract(x, multiply(rate, step)), speed


def _binarizer(op: Operator) -> Node:
    x = op.node(0)
    return cast(greater(x, op.get("threshold", 0.0)), x.dtype)


def _features(op: Operator) -> Node:
    x, places = op.node(0), op.node(1)
    rows = x if x.ndim > 1 else reshape(x, (1, *x.shape))
    return take(rows, reshape(places, (-1,)), axis=rows.ndim - 1)


UPDATES: Mapping[str, Rule] = {
    "Adagrad": _of_each(_adagrad, 1),
    "Adam": _of_each(_adam, 2),
    "Momentum": _of_each(_momentum, 1),
}
FEATURES: Mapping[str, Rule] = {"ArrayFeatureExtractor": _features, "Binarizer": _binarizer}
