"""Functions whose pictures tests look at: a training step, an attention block, large graphs."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import FallbackWarning
from magmagraph.ir.graph import freeze


@functools.cache
def seed_step() -> Any:
    """Return the seed network's step, a small one, called once so that its sizes are bound."""
    x = mg.var("x", shape=("batch", 12))
    labels = mg.var("labels", shape=("batch",), dtype="int32")
    W = mg.var("W", shape=(12, 8), init=mg.init.glorot_uniform(seed=0))
    b = mg.var("b", shape=(8,), init=mg.init.zeros())
    V = mg.var("V", shape=(8, 3), init=mg.init.glorot_uniform(seed=1))
    hidden = mg.sigmoid(x @ W + b)
    loss = mg.cross_entropy(hidden @ V, labels)
    optimizer = mg.optimizer.SGD(0.05, weight_decay=0.001)
    step = optimizer.step(loss, [W, b, V], inputs=[x, labels], outputs=loss)
    step(*seed_feeds())
    return step


def seed_feeds() -> tuple[np.ndarray, np.ndarray]:
    """Return what the seed step is called with."""
    rng = np.random.default_rng(3)
    return rng.random((6, 12), dtype=np.float32), rng.integers(0, 3, 6).astype(np.int32)


@functools.cache
def attention_block() -> Any:
    """Return a block of a transformer, its parts in scopes."""
    x = mg.var("x", shape=("batch", 8, 16))
    weights = [
        mg.var(name, shape=(16, 16), init=mg.init.glorot_uniform(seed=i))
        for i, name in enumerate(("query", "key", "value", "out"))
    ]

    def heads(value: Any) -> Any:
        split = mg.reshape(value, (x.shape[0], 8, 2, 8))
        return mg.transpose(split, (0, 2, 1, 3))

    with mg.scope("block"):
        with mg.scope("norm"):
            centered = x - mg.mean(x, axis=-1, keepdims=True)
            variance = mg.mean(centered**2, axis=-1, keepdims=True)
            normal = centered / mg.sqrt(variance + 1e-5)
        with mg.scope("attention"):
            query, key, value = (heads(normal @ weight) for weight in weights[:3])
            scores = mg.softmax(query @ mg.transpose(key, (0, 1, 3, 2)) * 8**-0.5, axis=-1)
            heads_last = mg.transpose(scores @ value, (0, 2, 1, 3))
            out = mg.reshape(heads_last, (x.shape[0], 8, 16)) @ weights[3]
        result = x + out
    return mg.function([x], result, name="attention block")


@functools.cache
def residual_step(blocks: int = 2) -> Any:
    """Return the training step of a small residual network, of the parts of ResNet-50."""
    x = mg.var("images", shape=("batch", 8, 8, 8))
    labels = mg.var("labels", shape=("batch",), dtype="int32")
    value: Any = x
    weights = []

    def convolution(value: Any, name: str, outs: int, window: int) -> Any:
        kernel = mg.var(
            f"{name}.kernel",
            shape=(outs, value.shape[1], window, window),
            init=mg.init.glorot_uniform(seed=len(weights)),
        )
        scale = mg.var(f"{name}.scale", shape=(outs, 1, 1), init=mg.init.ones())
        weights.extend((kernel, scale))
        convolved = mg.conv2d(value, kernel, padding=window // 2)
        centered = convolved - mg.mean(convolved, axis=(0, 2, 3), keepdims=True)
        variance = mg.mean(centered**2, axis=(0, 2, 3), keepdims=True)
        return scale * centered / mg.sqrt(variance + 1e-5)

    for block in range(blocks):
        with mg.scope(f"block{block}"):
            inner = mg.relu(convolution(value, f"b{block}.a", 4, 1))
            inner = mg.relu(convolution(inner, f"b{block}.b", 4, 3))
            value = mg.relu(value + convolution(inner, f"b{block}.c", 8, 1))
    out = mg.var("out", shape=(8, 3), init=mg.init.glorot_uniform(seed=99))
    loss = mg.cross_entropy(mg.mean(value, axis=(2, 3)) @ out, labels)
    return mg.optimizer.SGD(0.1, momentum=0.9).step(
        loss, [*weights, out], inputs=[x, labels], outputs=loss
    )


@functools.cache
def resnet50_step() -> Any:
    """Return the training step of ResNet-50, planned, without kernels of its own.

    Its images are 32x32: the graph has as many nodes as that of larger ones.
    """
    net = mg.NeuralNetwork(mg.nn.prebuilt.resnet50(10, (3, 32, 32)))
    images = mg.var("images", shape=("batch", 3, 32, 32))
    labels = mg.var("labels", shape=("batch",), dtype="int32")
    value = images
    for layer in net.members[1:]:
        value = layer(value, training=True)
    optimizer = mg.optimizer.SGD(0.1, momentum=0.9)
    loss = mg.cross_entropy(value, labels)
    step = optimizer.step(loss, net.trainable, inputs=[images, labels], outputs=loss)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(mg.config, "compiler", "off")
        patch.setattr(mg.config, "tuning", False)
        warnings.simplefilter("ignore", FallbackWarning)
        step.compile()
    return step


def large_graph(count: int) -> Any:
    """Return a graph of about so many nodes: a wide net of reads near and far."""
    rng = np.random.default_rng(count)
    x = mg.var("x", shape=(4,))
    values = [mg.exp(x)]
    while len(values) < count:
        near = values[max(0, len(values) - 40) :]
        one = near[int(rng.integers(len(near)))]
        other = values[-1] if rng.random() < 0.5 else near[int(rng.integers(len(near)))]
        values.append(mg.tanh(one) if rng.random() < 0.4 else one * 0.5 + other * 0.5)
        if rng.random() < 0.01:
            values.append(values[-1] + values[int(rng.integers(len(values)))])
    return freeze([x], values[-20:])
