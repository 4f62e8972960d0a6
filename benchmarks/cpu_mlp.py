"""Claim: a training step of the seed network takes at most 0.95 of the best peer's time.

784-(528 sigmoid) x L-10, cross-entropy, SGD at a rate of 0.05 with weight decay 0.001, float32,
batches of 100 and 1000. A call is a step: images and labels go in as NumPy arrays (to torch as
views of them), the loss comes back, the weights stay with the library. Compared: weights after ten
steps.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import peers

WIDTH = 528
RATE = 0.05
DECAY = 0.001
CHECKED = 10  # steps after which weights are compared


def start(case: peers.Case) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Return weights and biases in turn, images, labels: the same for everybody."""
    rng = np.random.default_rng(0)
    sizes = [784, *[WIDTH] * case["layers"], 10]
    parameters = []
    for inputs, outputs in itertools.pairwise(sizes):
        limit = np.sqrt(6.0 / (inputs + outputs))
        parameters.append(rng.uniform(-limit, limit, (inputs, outputs)).astype(np.float32))
        parameters.append(np.zeros(outputs, np.float32))
    images = rng.random((case["batch"], 784), dtype=np.float32)
    labels = rng.integers(0, 10, case["batch"]).astype(np.int32)
    return parameters, images, labels


def _named(parameters: Any) -> dict[str, np.ndarray]:
    return {f"p{i}": np.asarray(p) for i, p in enumerate(parameters)}


def our_step(values: list[np.ndarray]) -> tuple[Any, list[Any]]:
    """Return the compiled step of `mg.optimizer.SGD`, and its variables."""
    import magmagraph as mg

    x = mg.var("x", shape=("batch", 784))
    y = mg.var("y", shape=("batch",), dtype="int32")
    parameters = [mg.var(f"p{i}", init=value) for i, value in enumerate(values)]
    out = x
    for i in range(0, len(parameters) - 2, 2):
        out = mg.sigmoid(out @ parameters[i] + parameters[i + 1])
    loss = mg.cross_entropy(out @ parameters[-2] + parameters[-1], y)
    optimizer = mg.optimizer.SGD(RATE, weight_decay=DECAY)
    return optimizer.step(loss, parameters, inputs=[x, y], outputs=[loss]), parameters


def jax_step(parameters: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Return new parameters and the loss, by JAX; to be jitted."""
    import jax
    import jax.numpy as jnp

    def loss_of(parameters: Any) -> Any:
        out = x
        for i in range(0, len(parameters) - 2, 2):
            out = jax.nn.sigmoid(out @ parameters[i] + parameters[i + 1])
        logits = jax.nn.log_softmax(out @ parameters[-2] + parameters[-1])
        return -jnp.mean(jnp.take_along_axis(logits, y[:, None], axis=1))

    loss, gradients = jax.value_and_grad(loss_of)(parameters)
    pairs = zip(parameters, gradients, strict=True)
    return [p - RATE * (g + DECAY * p) for p, g in pairs], loss


def torch_step(
    values: list[np.ndarray], *, compiled: bool
) -> tuple[Callable[[Any, Any], Any], list[Any]]:
    """Return a step of torch, as it is or by `torch.compile`, and its parameters."""
    import torch
    from torch.nn import functional

    parameters = [torch.tensor(value, requires_grad=True) for value in values]

    def loss_of(x: Any, y: Any) -> Any:
        out = x
        for i in range(0, len(parameters) - 2, 2):
            out = torch.sigmoid(torch.addmm(parameters[i + 1], out, parameters[i]))
        return functional.cross_entropy(torch.addmm(parameters[-1], out, parameters[-2]), y)

    optimizer = torch.optim.SGD(parameters, lr=RATE, weight_decay=DECAY)
    forward: Any = torch.compile(loss_of) if compiled else loss_of
    update: Any = torch.compile(optimizer.step) if compiled else optimizer.step

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = forward(x, y)
        loss.backward()
        update()
        return loss

    return step, parameters


def magmagraph(case: peers.Case) -> peers.Work:
    """`optimizer.step`."""
    values, images, labels = start(case)
    step, parameters = our_step(values)

    def results() -> dict[str, np.ndarray]:
        for parameter, value in zip(parameters, values, strict=True):
            parameter.value = value
        for _ in range(CHECKED):
            step(images, labels)
        return _named(p.value for p in parameters)

    return peers.Work(functools.partial(step, images, labels), results)


def no_compiler(case: peers.Case) -> peers.Work:
    """The same where no C compiler works: NumPy and BLAS run the plan."""
    import magmagraph as mg

    mg.config.compiler = "off"
    return magmagraph(case)


def jax(case: peers.Case) -> peers.Work:
    """A jitted step; the old weights are donated to it."""
    import jax
    import jax.numpy as jnp

    values, images, labels = start(case)
    step = jax.jit(jax_step, donate_argnums=0)
    state = [jnp.array(value) for value in values]

    def call() -> None:
        nonlocal state
        state, loss = step(state, images, labels)
        jax.block_until_ready((state, loss))

    def results() -> dict[str, np.ndarray]:
        nonlocal state
        state = [jnp.array(value) for value in values]
        for _ in range(CHECKED):
            call()
        return _named(state)

    return peers.Work(call, results)


def _torch(case: peers.Case, *, compiled: bool) -> peers.Work:
    import torch

    values, images, labels = start(case)
    step, parameters = torch_step(values, compiled=compiled)
    x, y = torch.from_numpy(images), torch.from_numpy(labels).long()

    def results() -> dict[str, np.ndarray]:
        with torch.no_grad():
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(torch.from_numpy(value))
        for _ in range(CHECKED):
            step(x, y)
        return _named(p.detach().numpy() for p in parameters)

    return peers.Work(lambda: float(step(x, y)), results)


def pytensor(case: peers.Case) -> peers.Work:
    """`pytensor.function` with updates of shared variables, in its default mode."""
    import pytensor
    import pytensor.tensor as pt

    values, images, labels = start(case)
    pytensor.config.floatX = "float32"
    parameters = [pytensor.shared(value, name=f"p{i}") for i, value in enumerate(values)]
    x, y = pt.fmatrix("x"), pt.ivector("y")
    out = x
    for i in range(0, len(parameters) - 2, 2):
        out = pt.sigmoid(out @ parameters[i] + parameters[i + 1])
    logits = pt.special.log_softmax(out @ parameters[-2] + parameters[-1], axis=-1)
    loss = -pt.mean(logits[pt.arange(y.shape[0]), y])
    rate, decay = np.float32(RATE), np.float32(DECAY)
    updates = {
        p: (p - rate * (g + decay * p)).astype("float32")
        for p, g in zip(parameters, pt.grad(loss, parameters), strict=True)
    }
    step = pytensor.function([x, y], loss, updates=updates)

    def results() -> dict[str, np.ndarray]:
        for parameter, value in zip(parameters, values, strict=True):
            parameter.set_value(value)
        for _ in range(CHECKED):
            step(images, labels)
        return _named(p.get_value() for p in parameters)

    return peers.Work(functools.partial(step, images, labels), results)


def numpy(case: peers.Case) -> peers.Work:
    """The step written out by hand."""
    values, images, labels = start(case)
    parameters = [value.copy() for value in values]
    rows = np.arange(case["batch"])

    def call() -> float:
        outs = [images]
        for i in range(0, len(parameters) - 2, 2):
            pre = outs[-1] @ parameters[i]
            pre += parameters[i + 1]
            outs.append(1.0 / (1.0 + np.exp(-pre)))
        logits = outs[-1] @ parameters[-2] + parameters[-1]
        logits -= logits.max(axis=1, keepdims=True)
        share = np.exp(logits)
        total = share.sum(axis=1, keepdims=True)
        loss = float(np.mean(np.log(total[:, 0]) - logits[rows, labels]))
        share /= total
        share[rows, labels] -= 1.0
        delta = share / np.float32(case["batch"])
        for i in range(len(parameters) - 2, -1, -2):
            weights, bias = outs[i // 2].T @ delta, delta.sum(axis=0)
            if i:
                out = outs[i // 2]
                delta = (delta @ parameters[i].T) * out * (1.0 - out)
            for parameter, gradient in ((parameters[i], weights), (parameters[i + 1], bias)):
                parameter -= RATE * (gradient + DECAY * parameter)
        return loss

    def results() -> dict[str, np.ndarray]:
        for parameter, value in zip(parameters, values, strict=True):
            parameter[...] = value
        for _ in range(CHECKED):
            call()
        return _named(parameters)

    return peers.Work(call, results)


BENCHMARK = peers.Benchmark(
    name="cpu_mlp",
    claim="A training step of the seed network.",
    cases=[
        {"name": f"L={layers} batch {batch}", "layers": layers, "batch": batch}
        for batch in (100, 1000)
        for layers in (1, 2, 4, 8)
    ],
    contenders={
        "magmagraph": magmagraph,
        "magmagraph, no compiler": no_compiler,
        "jax": jax,
        "torch": functools.partial(_torch, compiled=False),
        "torch.compile": functools.partial(_torch, compiled=True),
        "pytensor": pytensor,
        "numpy": numpy,
    },
    tolerance=1e-4,
)

if __name__ == "__main__":
    peers.main(BENCHMARK)
