"""Claim: Adam over 10 million parameters in 200 tensors takes at most the best peer's time.

A step of Adam alone: gradients are given, parameters and moments stay with the library. Also one
tensor of 10 million. Compared: parameters after three steps.
"""

from __future__ import annotations

import functools
from typing import Any

import near
import numpy as np
import peers

RATE = 1e-3
CHECKED = 3


def start(case: peers.Case) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return parameters and gradients."""
    rng = np.random.default_rng(0)
    size = case["total"] // case["tensors"]
    return tuple(  # type: ignore[return-value]
        [rng.standard_normal(size, dtype=np.float32) for _ in range(case["tensors"])]
        for _ in range(2)
    )


def _named(parameters: Any) -> dict[str, np.ndarray]:
    return {f"p{i}": np.asarray(p) for i, p in enumerate(parameters)}


def magmagraph(case: peers.Case) -> peers.Work:
    """`mg.optimizer.Adam.apply_gradients`."""
    import magmagraph as mg

    values, gradients = start(case)
    parameters = [mg.var(f"p{i}", init=value) for i, value in enumerate(values)]
    given = [mg.var(f"g{i}", init=value) for i, value in enumerate(gradients)]
    optimizer = mg.optimizer.Adam(RATE)
    updates = optimizer.apply_gradients(dict(zip(parameters, given, strict=True)))
    step = mg.function([], [], updates=updates)
    before = optimizer.state_dict()

    def results() -> dict[str, np.ndarray]:
        for parameter, value in zip(parameters, values, strict=True):
            parameter.value = value
        optimizer.load_state_dict(before)
        for _ in range(CHECKED):
            step()
        return _named(p.value for p in parameters)

    return peers.Work(step, results)


def jax(case: peers.Case) -> peers.Work:
    """A jitted function over lists, as optimizers for JAX are written; the state is donated."""
    import jax
    import jax.numpy as jnp

    values, gradients = start(case)
    given = [jnp.asarray(g) for g in gradients]

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: Any, given: Any) -> Any:
        parameters, first, second, count = state
        count = count + 1
        first = [0.9 * m + 0.1 * g for m, g in zip(first, given, strict=True)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, given, strict=True)]
        above, below = 1 - 0.9**count, 1 - 0.999**count
        parameters = [
            p - RATE * (m / above) / (jnp.sqrt(v / below) + 1e-8)
            for p, m, v in zip(parameters, first, second, strict=True)
        ]
        return parameters, first, second, count

    def fresh() -> Any:
        zeros = [[jnp.zeros(v.shape, jnp.float32) for v in values] for _ in range(2)]
        return [jnp.array(v) for v in values], *zeros, jnp.float32(0)

    state = fresh()

    def call() -> None:
        nonlocal state
        state = jax.block_until_ready(step(state, given))

    def results() -> dict[str, np.ndarray]:
        nonlocal state
        state = fresh()
        for _ in range(CHECKED):
            call()
        return _named(state[0])

    return peers.Work(call, results)


def _torch(case: peers.Case, *, compiled: bool, fused: bool = False) -> peers.Work:
    import torch

    values, gradients = start(case)
    parameters = [torch.tensor(value, requires_grad=True) for value in values]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = torch.from_numpy(gradient)

    def fresh() -> Any:
        optimizer = torch.optim.Adam(parameters, lr=RATE, fused=fused or None)
        return torch.compile(optimizer.step) if compiled else optimizer.step

    step = fresh()

    def results() -> dict[str, np.ndarray]:
        nonlocal step
        with torch.no_grad():
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(torch.from_numpy(value))
        step = fresh()
        for _ in range(CHECKED):
            step()
        return _named(p.detach().numpy() for p in parameters)

    return peers.Work(lambda: step(), results)


BENCHMARK = peers.Benchmark(
    name="cpu_adam",
    claim="Adam over 10 million parameters.",
    cases=[
        {"name": "200 tensors", "total": 10_000_000, "tensors": 200},
        {"name": "1 tensor", "total": 10_000_000, "tensors": 1},
    ],
    contenders={
        "magmagraph": magmagraph,
        "jax": jax,
        "torch": functools.partial(_torch, compiled=False),
        "torch, fused": functools.partial(_torch, compiled=False, fused=True),
        "torch.compile": functools.partial(_torch, compiled=True),
    },
    tolerance=1e-5,
    seconds=0.3,
    near=near.no_slower,
)

if __name__ == "__main__":
    peers.main(BENCHMARK)
