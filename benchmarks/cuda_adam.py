"""Measure: microseconds a step of Adam over 10 million parameters on a GPU, beside torch and JAX.

In 200 tensors and in one; gradients are given, parameters and moments stay on the device. The
parameters after three steps are compared with float64. A step reads four numbers a parameter and
writes three: that many bytes of a copy are timed, too.
"""

from __future__ import annotations

import os
from typing import Any

import common
import numpy as np
import opening

RATE, FIRST, SECOND, SMALL = 1e-3, 0.9, 0.999, 1e-8
TOTAL = 10_000_000
CHECKED, STEPS = 3, 50

Arrays = list[np.ndarray]


def start(tensors: int) -> tuple[Arrays, Arrays]:
    """Return parameters and gradients."""
    rng = np.random.default_rng(0)
    shape = (tensors, TOTAL // tensors)
    return list(rng.standard_normal(shape, "f4")), list(rng.standard_normal(shape, "f4"))


def float64_steps(values: Arrays, gradients: Arrays) -> Arrays:
    """Return the parameters after `CHECKED` steps by the textbook."""
    found = []
    for value, gradient in zip(values, gradients, strict=True):
        p, g = value.astype("f8"), gradient.astype("f8")
        m, v = np.zeros_like(p), np.zeros_like(p)
        for step in range(1, CHECKED + 1):
            m, v = FIRST * m + (1 - FIRST) * g, SECOND * v + (1 - SECOND) * g * g
            p -= RATE * (m / (1 - FIRST**step)) / (np.sqrt(v / (1 - SECOND**step)) + SMALL)
        found.append(p)
    return found


def check(name: str, found: Arrays, begun: Arrays, right: Arrays) -> float:
    """Return the largest error of the changes, relative to them."""
    error = max(
        float(np.linalg.norm(f.astype("f8") - r) / np.linalg.norm(r - b))
        for f, b, r in zip(found, begun, right, strict=True)
    )
    if not error < 1e-3:
        raise SystemExit(f"{name} is wrong: {error}")
    return error


def ours(values: Arrays, gradients: Arrays, right: Arrays) -> dict[str, float]:
    import cuda_common
    import cupy

    import magmagraph as mg

    parameters = [mg.var(f"p{i}", init=value) for i, value in enumerate(values)]
    given = [mg.var(f"g{i}", init=value) for i, value in enumerate(gradients)]
    optimizer = mg.optimizer.Adam(RATE, beta1=FIRST, beta2=SECOND, eps=SMALL)
    updates = optimizer.apply_gradients(dict(zip(parameters, given, strict=True)))
    step = mg.function([], [], updates=updates, device="cuda")
    for _ in range(CHECKED):
        step()
    error = check("magmagraph", [p.value for p in parameters], values, right)
    bound = step._last

    def replays() -> None:
        for _ in range(STEPS):
            bound.launch()

    def calls() -> None:
        for _ in range(STEPS):
            step()
        cupy.cuda.Device().synchronize()

    calls()
    return {
        "graph": cuda_common.microseconds(bound.stream, replays, STEPS),
        "call": common.timed(calls, repeats=5, seconds=0.1)["median"] / STEPS * 1e6,
        "error": error,
    }


def torchs(values: Arrays, gradients: Arrays, right: Arrays) -> dict[str, float]:
    import cuda_common
    import torch

    parameters = [torch.tensor(value, device="cuda", requires_grad=True) for value in values]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = torch.tensor(gradient, device="cuda")
    optimizer = torch.optim.Adam(
        parameters, lr=RATE, betas=(FIRST, SECOND), eps=SMALL, fused=True, capturable=True
    )
    for _ in range(CHECKED):
        optimizer.step()
    error = check("torch", [p.detach().cpu().numpy() for p in parameters], values, right)

    def calls() -> None:
        for _ in range(STEPS):
            optimizer.step()
        torch.cuda.synchronize()

    return {
        "call": common.timed(calls, repeats=5, seconds=0.1)["median"] / STEPS * 1e6,
        "graph": cuda_common.torch_in_graph(torch, optimizer.step, 1),
        "error": error,
    }


def jaxs(values: Arrays, gradients: Arrays, right: Arrays) -> dict[str, float]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import functools

    import jax
    import jax.numpy as jnp

    given = [jnp.asarray(g) for g in gradients]

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: Any, given: Any) -> Any:
        parameters, first, second, count = state
        count = count + 1
        first = jax.tree.map(lambda m, g: FIRST * m + (1 - FIRST) * g, first, given)
        second = jax.tree.map(lambda v, g: SECOND * v + (1 - SECOND) * g * g, second, given)
        above, below = 1 - FIRST**count, 1 - SECOND**count
        parameters = jax.tree.map(
            lambda p, m, v: p - RATE * (m / above) / (jnp.sqrt(v / below) + SMALL),
            parameters, first, second,
        )
        return parameters, first, second, count

    zeros = [[jnp.zeros(v.shape, jnp.float32) for v in values] for _ in range(2)]
    state: Any = ([jnp.asarray(v) for v in values], *zeros, jnp.float32(0))
    for _ in range(CHECKED):
        state = step(state, given)
    error = check("JAX", [np.asarray(p) for p in state[0]], values, right)

    def calls() -> None:
        nonlocal state
        for _ in range(STEPS):
            state = step(state, given)
        jax.block_until_ready(state)

    calls()
    return {
        "call": common.timed(calls, repeats=5, seconds=0.1)["median"] / STEPS * 1e6,
        "error": error,
    }


def copy() -> float:
    """Return the microseconds of a copy that moves as many bytes as a step."""
    import cuda_common
    import cupy

    source = cupy.empty(7 * TOTAL // 2, "f4")
    target, stream = cupy.empty_like(source), cupy.cuda.Stream(non_blocking=True)

    def copies() -> None:
        for _ in range(STEPS):
            cupy.cuda.runtime.memcpyAsync(
                target.data.ptr, source.data.ptr, target.nbytes, 3, stream.ptr
            )

    return cuda_common.microseconds(stream, copies, STEPS)


WAYS = (
    ("magmagraph", "graph"), ("magmagraph", "call"), ("torch", "graph"), ("torch", "call"),
    ("jax", "call"),
)


def main() -> None:
    opening.words(__doc__, needs=("gpu", "torch", "jax"))
    import cuda_common

    results: dict[str, Any] = {"copy": copy()}
    rows = []
    for tensors in (200, 1):
        values, gradients = start(tensors)
        right = float64_steps(values, gradients)
        found = {
            "magmagraph": ours(values, gradients, right),
            "torch": torchs(values, gradients, right),
            "jax": jaxs(values, gradients, right),
        }
        results[f"{tensors} tensors"] = found
        times = [f"{found[library][way]:.1f}" for library, way in WAYS]
        rows.append((str(tensors), *times, f"{results['copy']:.1f}"))
    head = ("tensors", *(f"{library} {way}" for library, way in WAYS), "copy")
    common.table(rows, head)
    print(common.write("cuda_adam", results, device=cuda_common.device_facts()))


if __name__ == "__main__":
    main()
