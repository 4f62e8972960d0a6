"""The seed network 784-(528 sigmoid) x L-10 as a training step: what several benchmarks measure."""

from __future__ import annotations

from typing import Any

import numpy as np

import magmagraph as mg

WIDTH = 528


def training_step(
    layers: int, batch: int | str = "batch", **options: Any
) -> tuple[Any, list[Any], Any]:
    """Return (compiled step, variables, optimizer) of the seed network, with a function's options.
    """
    x = mg.var("x", shape=(batch, 784))
    labels = mg.var("labels", shape=(batch,), dtype="int32")
    value = x
    parameters = []
    inputs = 784
    for layer in range(layers):
        weight = mg.var(f"W{layer}", shape=(inputs, WIDTH), init=mg.init.glorot_uniform(seed=layer))
        bias = mg.var(f"b{layer}", shape=(WIDTH,), init=mg.init.zeros())
        parameters += [weight, bias]
        value = mg.sigmoid(value @ weight + bias)
        inputs = WIDTH
    weight = mg.var("W", shape=(inputs, 10), init=mg.init.glorot_uniform(seed=layers))
    bias = mg.var("b", shape=(10,), init=mg.init.zeros())
    parameters += [weight, bias]
    loss = mg.cross_entropy(value @ weight + bias, labels)
    optimizer = mg.optimizer.SGD(0.05, weight_decay=0.001)
    step = optimizer.step(loss, parameters, inputs=[x, labels], outputs=[loss], **options)
    return step, parameters, optimizer


def batch_of(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return random images and labels."""
    rng = np.random.default_rng(seed)
    return (
        rng.random((size, 784), dtype=np.float32),
        rng.integers(0, 10, size).astype(np.int32),
    )
