"""The seed network trained by compiled steps, against the plain one in float64."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator

import numpy as np
import pytest
from reference_network import initial_parameters, loss_and_gradients, train

import magmagraph as mg

STEPS = (1, 10, 200)
BATCH = 100


@functools.cache
def mnist() -> mg.data.Dataset:
    return mg.data.mnist(timeout=0)


def has_mnist() -> bool:
    return "MAGMAGRAPH_DATA" in os.environ and mnist().source.startswith("MNIST")


def digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels of MNIST, or blurred prototypes with noise in their likeness."""
    if has_mnist():
        data = mnist()
        return data.x_train[:count], data.y_train[:count]
    rng = np.random.default_rng(1)
    prototypes = rng.uniform(size=(10, 28, 28)) ** 4
    for _ in range(3):
        prototypes = (prototypes + np.roll(prototypes, 1, 1) + np.roll(prototypes, 1, 2)) / 3
    prototypes /= prototypes.max(axis=(1, 2), keepdims=True)
    labels = rng.integers(0, 10, count).astype(np.int32)
    images = prototypes[labels].reshape(count, 784) + rng.normal(0.0, 0.1, (count, 784))
    return np.clip(images, 0.0, 1.0).astype(np.float32), labels


def batches(x: np.ndarray, y: np.ndarray, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for step in range(count):
        start = step * BATCH % len(x)
        yield x[start : start + BATCH], y[start : start + BATCH]


def network(
    x: mg.Node, parameters: list[np.ndarray], activation=None
) -> tuple[mg.Node, list[mg.Node]]:
    activation = mg.sigmoid if activation is None else activation
    variables = [mg.var(f"p{i}", init=p) for i, p in enumerate(parameters)]
    hidden = x
    for layer in range(0, len(variables), 2):
        hidden = hidden @ variables[layer] + variables[layer + 1]
        if layer < len(variables) - 2:
            hidden = activation(hidden)
    return hidden, variables


def test_reference_gradients_agree_with_differences():
    """The reference itself is right: its gradients are those of its loss."""
    rng = np.random.default_rng(2)
    parameters = [p.astype(np.float64) for p in initial_parameters((5, 4, 4, 3), seed=3)]
    x, labels = rng.normal(size=(6, 5)), rng.integers(0, 3, 6)
    _, gradients = loss_and_gradients(parameters, x, labels)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        direction = rng.normal(size=parameter.shape)
        sides = []
        for sign in (1e-6, -1e-6):
            parameter += sign * direction
            sides.append(loss_and_gradients(parameters, x, labels)[0])
            parameter -= sign * direction
        difference = (sides[0] - sides[1]) / 2e-6
        assert abs(difference - (gradient * direction).sum()) < 1e-7


@pytest.mark.parametrize("layers", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 4))])
def test_changes_of_the_weights(layers):
    initial = initial_parameters((784, *[528] * layers, 10), seed=layers)
    images, labels = digits(10_000)
    expected, losses = train(initial, batches(images, labels, max(STEPS)), keep=STEPS)

    x = mg.var("x", shape=("batch", 784))
    target = mg.var("target", shape=("batch",), dtype="int32")
    logits, variables = network(x, initial)
    loss = mg.cross_entropy(logits, target)
    optimizer = mg.optimizer.SGD(0.05, weight_decay=0.001)
    step = optimizer.step(loss, variables, inputs=[x, target], outputs=loss)
    for count, (batch, wanted) in enumerate(batches(images, labels, max(STEPS)), start=1):
        found = float(step(batch, wanted))
        assert abs(found - losses[count - 1]) < 1e-4 * losses[count - 1]
        if count in STEPS:
            for name, first, variable, right in zip(
                "WbWbWbWbWb", initial, variables, expected[count], strict=False
            ):
                # What float32 allows: at L = 4 the first layers barely move, and the rounding of
                # the stored weights alone is 6e-4 of the first step's change.
                change = right - first
                error = np.linalg.norm(variable.value - first - change) / np.linalg.norm(change)
                assert error < 1e-3, f"{variable.name} ({name}) after {count} steps: {error:.1e}"


def test_relu_network_with_adam_learns_mnist():
    if not has_mnist():
        pytest.skip("MAGMAGRAPH_DATA names no folder with MNIST")
    data = mnist()
    x = mg.var("x", shape=("batch", 784))
    target = mg.var("target", shape=("batch",), dtype="int32")
    logits, variables = network(x, initial_parameters((784, 528, 10), seed=0), mg.relu)
    step = mg.optimizer.Adam(1e-3).step(
        mg.cross_entropy(logits, target), variables, inputs=[x, target]
    )
    predict = mg.function([x], mg.argmax(logits, axis=1))
    rng = np.random.default_rng(0)
    for _ in range(5):
        order = rng.permutation(len(data.x_train))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            step(data.x_train[rows], data.y_train[rows])
    accuracy = float(np.mean(predict(data.x_test) == data.y_test))
    assert accuracy >= 0.975
