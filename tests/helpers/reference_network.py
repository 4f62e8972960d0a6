"""The seed network in plain NumPy and float64: what the compiled one is compared with.

784-(528 sigmoid) x L-10, softmax cross-entropy (mean over the batch), gradient descent with weight
decay on all parameters. Derivatives are written out by hand; nothing here comes from magmagraph.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

Parameters = list[np.ndarray]  # W_0, b_0, W_1, b_1, ...


def initial_parameters(sizes: Sequence[int], seed: int) -> Parameters:
    """Return float32 weights, uniform in ±sqrt(6 / (inputs + outputs)), and biases of zero."""
    rng = np.random.default_rng(seed)
    parameters: Parameters = []
    for inputs, outputs in itertools.pairwise(sizes):
        bound = np.sqrt(6.0 / (inputs + outputs))
        parameters.append(rng.uniform(-bound, bound, (inputs, outputs)).astype(np.float32))
        parameters.append(np.zeros(outputs, np.float32))
    return parameters


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return ``1 / (1 + exp(-x))`` without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def loss_and_gradients(
    parameters: Parameters, x: np.ndarray, labels: np.ndarray
) -> tuple[float, Parameters]:
    """Return the mean cross-entropy and its gradients, in the parameters' order."""
    layers = len(parameters) // 2
    activations = [x]
    for layer in range(layers):
        total = activations[-1] @ parameters[2 * layer] + parameters[2 * layer + 1]
        activations.append(sigmoid(total) if layer < layers - 1 else total)
    logits = activations[-1]
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(len(x))
    loss = -log_probabilities[rows, labels].mean()

    delta = np.exp(log_probabilities)
    delta[rows, labels] -= 1.0
    delta /= len(x)
    gradients: Parameters = []
    for layer in reversed(range(layers)):
        gradients = [activations[layer].T @ delta, delta.sum(axis=0), *gradients]
        if layer:
            hidden = activations[layer]
            delta = (delta @ parameters[2 * layer].T) * hidden * (1.0 - hidden)
    return float(loss), gradients


def train(
    initial: Parameters,
    batches: Iterable[tuple[np.ndarray, np.ndarray]],
    rate: float = 0.05,
    weight_decay: float = 0.001,
    keep: Sequence[int] = (),
) -> tuple[dict[int, Parameters], list[float]]:
    """Return the parameters after the steps in `keep`, and the loss before every step."""
    parameters = [p.astype(np.float64) for p in initial]
    snapshots: dict[int, Parameters] = {}
    losses = []
    for step, (x, labels) in enumerate(batches, start=1):
        loss, gradients = loss_and_gradients(parameters, x.astype(np.float64), labels)
        losses.append(loss)
        parameters = [
            p - rate * (g + weight_decay * p) for p, g in zip(parameters, gradients, strict=True)
        ]
        if step in keep:
            snapshots[step] = [p.copy() for p in parameters]
    return snapshots, losses
