"""A small network of dense layers, trained by one process or by ranks, and when they agree."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import magmagraph as mg
from magmagraph.dtypes import tolerance


def close(result: Any, expected: Any) -> None:
    limit = tolerance(np.asarray(expected).dtype, "reassoc")
    np.testing.assert_allclose(result, expected, limit.relative, limit.absolute)


def layers(rng: np.random.Generator, widths: list[int]) -> list[list[np.ndarray]]:
    return [
        [0.4 * rng.standard_normal((m, n)), 0.1 * rng.standard_normal(n)]
        for m, n in itertools.pairwise(widths)
    ]


def network(
    values: list[list[np.ndarray]], optimizer: Callable[[], Any], strategy: Any
) -> tuple[Any, list[mg.Variable]]:
    """Return a step of a network of dense layers in float64, and its variables."""
    x = mg.input("x", shape=("batch", values[0][0].shape[0]), dtype="float64")
    y = mg.input("y", shape=("batch", values[-1][0].shape[1]), dtype="float64")
    layers = [
        [mg.var(f"{'Wb'[i]}{n}", init=value) for i, value in enumerate(pair)]
        for n, pair in enumerate(values)
    ]
    out = x
    for n, (weight, bias) in enumerate(layers):
        out = out @ weight + bias
        if n < len(layers) - 1:
            out = mg.tanh(out)
    loss = mg.mean((out - y) ** 2)
    flat = [variable for pair in layers for variable in pair]
    step = optimizer().step(loss, flat, inputs=[x, y], outputs=[loss, out], distribute=strategy)
    return step, flat


def trained(
    values: list[list[np.ndarray]],
    batches: list[tuple[np.ndarray, np.ndarray]],
    optimizer: Callable[[], Any],
    make: Callable[[], Any] | None = None,
) -> tuple[list[float], list[np.ndarray], Any]:
    strategy = None if make is None else make()
    step, variables = network(values, optimizer, strategy)
    place, parts = (0, 1) if strategy is None else strategy.shard()
    losses = []
    for x, y in batches:
        own = slice(place * len(x) // parts, (place + 1) * len(x) // parts)
        losses.append(float(step(x[own], y[own])[0]))
    return losses, [variable.value for variable in variables], step


OPTIMIZERS = {
    "sgd": lambda: mg.optimizer.SGD(0.1, momentum=0.9),
    "adam": lambda: mg.optimizer.Adam(0.02),
    "clipped": lambda: mg.optimizer.Adam(0.02, clip_norm=0.3, weight_decay=0.01),
}
