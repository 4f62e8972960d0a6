"""Measure: microseconds a training step of the seed network on a GPU, beside torch and JAX.

In float32 (no TF32 in torch, precision "highest" in JAX) and with factors rounded to tf32. The
weights after some steps are compared with float64 before anything is timed. An epoch is 600
batches of data on the device: `Function.run` with rows in a new order, JAX's scan in one order.
``python benchmarks/cuda_step.py tf32`` measures one precision and keeps what is known of the other;
``first`` measures the first step in processes of its own, with kernels cached and not.
"""

from __future__ import annotations

import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import numpy as np
import opening

RATE, DECAY = 0.05, 0.001
BATCH, CLASSES = 100, 10
STEPS = 600  # of an epoch
CHECKED = 5
FIRST_LAYERS, PROCESSES = 4, 5  # of what `first_steps` measures
# Of the weights' changes, relative: products of float32 factors, and of factors of 11 digits.
ALLOWED = {"float32": 1e-3, "tf32": 5e-2}


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


def check(
    name: str,
    found: list[np.ndarray],
    begun: list[np.ndarray],
    right: list[np.ndarray],
    precision: str,
) -> float:
    """Return the largest error of the weights' changes; it must be the precision's."""
    errors = [
        float(np.linalg.norm(f - r) / np.linalg.norm(r - b))
        for f, b, r in zip(found, begun, right, strict=True)
    ]
    if not max(errors) <= ALLOWED[precision]:
        raise SystemExit(f"{name} is wrong: errors {errors}")
    return max(errors)


def ours(
    layers: int, x: np.ndarray, labels: np.ndarray, precision: str = "float32"
) -> tuple[dict[str, float], list[Any]]:
    import cuda_common
    import cupy
    import networks

    import magmagraph as mg

    mg.config.device = "cuda"
    began = time.perf_counter()
    step, parameters, _ = networks.training_step(layers, precision=precision)
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
    error = check("magmagraph", found, begun, right, precision)
    bound = step._last

    def replays() -> None:
        for _ in range(200):
            bound.launch()

    def calls() -> None:
        for _ in range(200):
            step(*given)
        cupy.cuda.Device().synchronize()

    rows = mg.batches(np.tile(x, (STEPS, 1)), np.tile(labels, STEPS), size=BATCH, seed=0)

    def epoch() -> None:
        step.run(rows)
        cupy.cuda.Device().synchronize()

    calls()
    epoch()
    return {
        "epoch": common.timed(epoch, repeats=5, seconds=0.2)["median"] / STEPS * 1e6,
        "replay": cuda_common.microseconds(bound.stream, replays, 200),
        "call": common.timed(calls, repeats=5, seconds=0.1)["median"] / 200 * 1e6,
        "first_ms": first * 1e3,
        "error": error,
    }, begun


def torchs(
    weights: list[np.ndarray], x: np.ndarray, labels: np.ndarray, precision: str = "float32"
) -> dict[str, float]:
    import cuda_common
    import torch

    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
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
    error = check("torch", found, weights, right, precision)

    def calls() -> None:
        for _ in range(50):
            step()
        torch.cuda.synchronize()

    eager = common.timed(calls, repeats=5, seconds=0.1)["median"] / 50 * 1e6
    captured = cuda_common.torch_in_graph(torch, step, 1)
    return {"eager": eager, "graph": captured, "error": error}


def jaxs(
    weights: list[np.ndarray], x: np.ndarray, labels: np.ndarray, precision: str = "float32"
) -> dict[str, float]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    wanted = "highest" if precision == "float32" else "tensorfloat32"
    jax.config.update("jax_default_matmul_precision", wanted)

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
    error = check("JAX", [np.asarray(p, "f8") for p in state], weights, right, precision)

    def calls() -> None:
        nonlocal state
        for _ in range(200):
            state, _ = once(state, data, target)
        jax.block_until_ready(state)

    @jax.jit
    def epoch(parameters: list[Any], images: Any, targets: Any) -> Any:
        return jax.lax.scan(lambda p, batch: step(p, *batch), parameters, (images, targets))

    images = jnp.broadcast_to(data, (STEPS, *data.shape)) + 0
    targets = jnp.broadcast_to(target, (STEPS, *target.shape)) + 0

    def epochs() -> None:
        jax.block_until_ready(epoch(state, images, targets))

    calls()
    return {
        "jit": common.timed(calls, repeats=5, seconds=0.1)["median"] / 200 * 1e6,
        "scan": common.timed(epochs, repeats=5, seconds=0.3)["median"] / STEPS * 1e6,
        "error": error,
    }


def slope(results: dict[str, Any], library: str, way: str) -> float:
    """Return the microseconds that a layer adds: the best line through all depths."""
    layers = [int(name[2:]) for name in results]
    times = [found[library][way] for found in results.values()]
    return float(np.polyfit(layers, times, 1)[0])


WAYS = (
    ("magmagraph", "epoch"), ("magmagraph", "replay"), ("magmagraph", "call"),
    ("torch", "eager"), ("torch", "graph"), ("jax", "jit"), ("jax", "scan"),
)


def measured(precision: str) -> dict[str, Any]:
    """Return the times of all depths, and print them."""
    import networks

    results: dict[str, Any] = {}
    rows = []
    for layers in (1, 2, 4, 8):
        x, labels = networks.batch_of(BATCH)
        mine, weights = ours(layers, x, labels, precision)
        found = {
            "magmagraph": mine,
            "torch": torchs(weights, x, labels, precision),
            "jax": jaxs(weights, x, labels, precision),
        }
        results[f"L={layers}"] = found
        peers = [found[library][way] for library, way in WAYS if library != "magmagraph"]
        found["of the best peer"] = mine["epoch"] / min(peers)
        times = [f"{found[library][way]:.1f}" for library, way in WAYS]
        rows.append((
            f"L={layers}", *times, f"{found['of the best peer']:.2f}", f"{mine['first_ms']:.0f}"
        ))
    slopes = {f"{library} {way}": slope(results, library, way) for library, way in WAYS}
    rows.append(("a layer", *(f"{value:.1f}" for value in slopes.values()), "", ""))
    head = (precision, *(f"{library} {way}" for library, way in WAYS), "of the best", "first ms")
    common.table(rows, head)
    return {**results, "microseconds a layer": slopes}


def first_step() -> dict[str, float]:
    """Return milliseconds from the first symbol to the end of the first step, and of the parts."""
    import cupy
    import networks

    import magmagraph as mg

    mg.config.device = "cuda"
    x, labels = networks.batch_of(BATCH)
    given = cupy.asarray(x), cupy.asarray(labels)
    began = time.perf_counter()
    step, _, _ = networks.training_step(FIRST_LAYERS)
    made = time.perf_counter()
    step(*given)
    cupy.cuda.Device().synchronize()
    done = time.perf_counter()
    return {"graph": (made - began) * 1e3, "all": (done - began) * 1e3}


def first_steps() -> dict[str, Any]:
    """Return medians of `first_step` over processes with an empty cache, and with a full one."""
    import magmagraph as mg

    for module in (mg.__file__, __file__):  # an installed package has its bytecode
        compileall.compile_dir(Path(module).parent, quiet=1)
    found: dict[str, list[float]] = {"empty cache": [], "full cache": []}
    for _ in range(PROCESSES):
        with tempfile.TemporaryDirectory() as folder:
            for times in found.values():
                done = subprocess.run(
                    [sys.executable, __file__, "--first-step"], check=True, capture_output=True,
                    text=True, env={**os.environ, "MAGMAGRAPH_CACHE_DIR": folder},
                )
                times.append(json.loads(done.stdout.splitlines()[-1])["all"])
    rows = [
        (name, f"{statistics.median(times):.0f}", f"{min(times):.0f}", f"{max(times):.0f}")
        for name, times in found.items()
    ]
    common.table(rows, (f"first step of L={FIRST_LAYERS}, ms", "median", "least", "largest"))
    return {
        name: {"median": statistics.median(times), "least": min(times), "largest": max(times)}
        for name, times in found.items()
    }


def main() -> None:
    opening.words(
        __doc__, *ALLOWED, "first", needs=("gpu",), whole=("torch", "jax"), hidden="--first-step"
    )
    import cuda_common

    if sys.argv[1:] == ["--first-step"]:
        print(json.dumps(first_step()))
        return
    results = common.written("cuda_step")
    for name in sys.argv[1:] or (*ALLOWED, "first"):
        results[name] = first_steps() if name == "first" else measured(name)
        path = common.write("cuda_step", results, device=cuda_common.device_facts())
    print(path)


if __name__ == "__main__":
    main()
