"""Measure: microseconds a training step of the seed network on a GPU, beside torch and JAX.

float32 everywhere: no TF32 in torch, precision "highest" in JAX. The weights after some steps are
compared with float64 before anything is timed.
"""

from __future__ import annotations

import os
import time
from typing import Any

import common
import numpy as np

RATE, DECAY = 0.05, 0.001
BATCH, CLASSES = 100, 10
CHECKED = 5


def float64_steps(weights: list[np.ndarray], x: np.ndarray, labels: np.ndarray) -> None:
    """Train in place by the textbook, `CHECKED` steps."""
    wanted = np.eye(CLASSES)[labels]
    for _ in range(CHECKED):
        values = [x]
        for w, b in zip(weights[:-2:2], weights[1:-2:2], strict=True):
            values.append(1 / (1 + np.exp(-(values[-1] @ w + b))))
        logits = values[-1] @ weights[-2] + weights[-1]
        part = np.exp(logits - logits.max(1, keepdims=True))
        delta = (part / part.sum(1, keepdims=True) - wanted) / len(x)
        gradients = []
        for layer in range(len(values) - 1, -1, -1):
            gradients += [delta.sum(0), values[layer].T @ delta]
            if layer:
                value = values[layer]
                delta = (delta @ weights[2 * layer].T) * value * (1 - value)
        for w, g in zip(weights, reversed(gradients), strict=True):
            w -= RATE * (g + DECAY * w)


def check(name: str, found: list[np.ndarray], begun: list[np.ndarray], right: list[np.ndarray]
          ) -> float:
    """Return the largest error of the weights' changes; it must be float32's."""
    errors = [
        float(np.linalg.norm(f - r) / np.linalg.norm(r - b))
        for f, b, r in zip(found, begun, right, strict=True)
    ]
    if max(errors) > 1e-3:
        raise SystemExit(f"{name} is wrong: errors {errors}")
    return max(errors)


def ours(layers: int, x: np.ndarray, labels: np.ndarray) -> tuple[dict[str, float], list[Any]]:
    import cuda_common
    import cupy
    import networks

    import magmagraph as mg

    mg.config.device = "cuda"
    began = time.perf_counter()
    step, parameters, _ = networks.training_step(layers)
    begun = [p.value.astype("f8") for p in parameters]
    given = cupy.asarray(x), cupy.asarray(labels)
    step(*given)
    cupy.cuda.Device().synchronize()
    first = time.perf_counter() - began
    for _ in range(CHECKED - 1):
        step(*given)
    found = [p.value.astype("f8") for p in parameters]
    right = [w.copy() for w in begun]
    float64_steps(right, x.astype("f8"), labels)
    error = check("magmagraph", found, begun, right)
    bound = step._last

    def replays() -> None:
        for _ in range(200):
            bound.launch()

    def calls() -> None:
        for _ in range(200):
            step(*given)
        cupy.cuda.Device().synchronize()

    calls()
    return {
        "replay": cuda_common.microseconds(bound.stream, replays, 200),
        "call": common.timed(calls, repeats=5, seconds=0.1)["median"] / 200 * 1e6,
        "first_ms": first * 1e3,
        "error": error,
    }, begun


def torchs(weights: list[np.ndarray], x: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    import cuda_common
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    parameters = [torch.tensor(w, dtype=torch.float32, device="cuda", requires_grad=True)
                  for w in weights]
    data = torch.tensor(x, device="cuda")
    target = torch.tensor(labels, dtype=torch.int64, device="cuda")

    def step() -> None:
        value = data
        for w, b in zip(parameters[:-2:2], parameters[1:-2:2], strict=True):
            value = torch.sigmoid(torch.addmm(b, value, w))
        logits = torch.addmm(parameters[-1], value, parameters[-2])
        loss = torch.nn.functional.cross_entropy(logits, target)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(gradients, parameters, alpha=DECAY)
            torch._foreach_add_(parameters, gradients, alpha=-RATE)

    for _ in range(CHECKED):
        step()
    right = [w.copy() for w in weights]
    float64_steps(right, x.astype("f8"), labels)
    found = [p.detach().cpu().numpy().astype("f8") for p in parameters]
    error = check("torch", found, weights, right)

    def calls() -> None:
        for _ in range(50):
            step()
        torch.cuda.synchronize()

    eager = common.timed(calls, repeats=5, seconds=0.1)["median"] / 50 * 1e6
    captured = cuda_common.torch_in_graph(torch, step, 1)
    return {"eager": eager, "graph": captured, "error": error}


def jaxs(weights: list[np.ndarray], x: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", "highest")

    def loss(parameters: list[Any], data: Any, target: Any) -> Any:
        value = data
        for w, b in zip(parameters[:-2:2], parameters[1:-2:2], strict=True):
            value = jax.nn.sigmoid(value @ w + b)
        logits = value @ parameters[-2] + parameters[-1]
        chosen = jnp.take_along_axis(logits, target[:, None], 1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=1) - chosen)

    def step(parameters: list[Any], data: Any, target: Any) -> tuple[list[Any], Any]:
        value, gradients = jax.value_and_grad(loss)(parameters, data, target)
        renewed = [
            p - RATE * (g + DECAY * p) for p, g in zip(parameters, gradients, strict=True)
        ]
        return renewed, value

    begun = [jnp.asarray(w, jnp.float32) for w in weights]
    data, target = jnp.asarray(x), jnp.asarray(labels)
    once = jax.jit(step, donate_argnums=0)
    state = [w.copy() for w in begun]
    for _ in range(CHECKED):
        state, _ = once(state, data, target)
    right = [w.copy() for w in weights]
    float64_steps(right, x.astype("f8"), labels)
    error = check("JAX", [np.asarray(p, "f8") for p in state], weights, right)

    def calls() -> None:
        nonlocal state
        for _ in range(200):
            state, _ = once(state, data, target)
        jax.block_until_ready(state)

    @jax.jit
    def epoch(parameters: list[Any], images: Any, targets: Any) -> Any:
        return jax.lax.scan(lambda p, batch: step(p, *batch), parameters, (images, targets))

    images = jnp.broadcast_to(data, (600, *data.shape)) + 0
    targets = jnp.broadcast_to(target, (600, *target.shape)) + 0

    def epochs() -> None:
        jax.block_until_ready(epoch(state, images, targets))

    calls()
    return {
        "jit": common.timed(calls, repeats=5, seconds=0.1)["median"] / 200 * 1e6,
        "scan": common.timed(epochs, repeats=5, seconds=0.3)["median"] / 600 * 1e6,
        "error": error,
    }


def main() -> None:
    import cuda_common
    import networks

    results: dict[str, Any] = {}
    rows = []
    for layers in (1, 2, 4, 8):
        x, labels = networks.batch_of(BATCH)
        mine, weights = ours(layers, x, labels)
        torch, jax = torchs(weights, x, labels), jaxs(weights, x, labels)
        results[f"L={layers}"] = {"magmagraph": mine, "torch": torch, "jax": jax}
        best = min(torch["graph"], jax["jit"], jax["scan"])
        rows.append((
            f"L={layers}", f"{mine['replay']:.1f}", f"{mine['call']:.1f}", f"{torch['eager']:.0f}",
            f"{torch['graph']:.1f}", f"{jax['jit']:.1f}", f"{jax['scan']:.1f}",
            f"{mine['replay'] / best:.2f}", f"{mine['first_ms']:.0f}",
        ))
    head = ("network", "replay us", "call us", "torch eager", "torch graph", "JAX jit", "JAX scan",
            "of the best", "first ms")
    common.table(rows, head)
    print(common.write("cuda_step", results, device=cuda_common.device_facts()))


if __name__ == "__main__":
    main()
