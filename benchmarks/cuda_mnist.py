"""Measure: five epochs of MNIST with the data on the GPU, and how far weights are from the CPU's.

The network is the seed's with four layers of 528 units; one of two layers, at a rate at which it
learns, is trained on both from three seeds. ``python benchmarks/cuda_mnist.py FILE``
takes the CPU's weights from a file, or trains there first and writes it; a machine without a GPU
stops after that. MNIST is found as `mg.data.mnist` says.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import common
import networks
import numpy as np
import opening

import magmagraph as mg

LAYERS, SIZE, EPOCHS = 4, 100, 5
LEARNING, RATE, SEEDS = 2, 0.5, 3  # layers and rate of a network that learns in five epochs
COMPARED = (1, 10, 200, 3000)


def accuracy(weights: list[np.ndarray], x: np.ndarray, labels: np.ndarray) -> float:
    """Return the percentage of examples that are recognized, in float64."""
    value = x.astype("f8")
    for w, b in zip(weights[:-2:2], weights[1:-2:2], strict=True):
        value = 1 / (1 + np.exp(-(value @ w + b)))
    found = (value @ weights[-2] + weights[-1]).argmax(1)
    return float((found == labels).mean() * 100)


def reference(path: Path, data: Any) -> dict[str, np.ndarray]:
    """Return the CPU's weights after some numbers of steps, from a file or computed now."""
    if path.exists():
        with np.load(path) as held:
            return dict(held)
    mg.config.device = "cpu"
    step, parameters, _ = networks.training_step(LAYERS)
    found = {f"0_{i}": p.value for i, p in enumerate(parameters)}
    done = 0
    rows = mg.batches(data.x_train, data.y_train, size=SIZE, seed=0)
    for _ in range(EPOCHS):
        for batch in rows:
            step(*batch)
            done += 1
            if done in COMPARED:
                found |= {f"{done}_{i}": p.value for i, p in enumerate(parameters)}
                print(f"the CPU has done {done} steps", flush=True)
    np.savez(path, **found)
    return found


def differences(data: Any, host: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the largest relative norm of differences of weights' changes, after some steps."""
    step, parameters, _ = networks.training_step(LAYERS)
    rows = mg.batches(data.x_train, data.y_train, size=SIZE, seed=0)
    found = {}
    done = 0
    for _ in range(EPOCHS):
        for batch in rows:
            step(*batch)
            done += 1
            if done in COMPARED:
                errors = []
                for i, p in enumerate(parameters):
                    change = host[f"{done}_{i}"].astype("f8") - host[f"0_{i}"]
                    error = p.value - host[f"{done}_{i}"].astype("f8")
                    errors.append(np.linalg.norm(error) / np.linalg.norm(change))
                found[str(done)] = float(max(errors))
        if done >= COMPARED[-1]:
            break
    return found


def learned(data: Any, device: str, seed: int) -> float:
    """Return the percentage of tests that a network with a larger rate recognizes after training.

    Four layers at the papers' rate are right in 11 % of the cases after five epochs, wherever they
    are trained: that shows little.
    """
    mg.config.device = device
    step, parameters, optimizer = networks.training_step(LEARNING)
    optimizer.learning_rate.value = RATE
    rng = np.random.default_rng(seed)
    for p in parameters:
        if len(p.shape) == 2:
            bound = np.sqrt(6 / sum(p.shape))
            p.value = rng.uniform(-bound, bound, p.shape).astype("f4")
    rows = mg.batches(data.x_train, data.y_train, size=SIZE, seed=seed)
    for _ in range(EPOCHS):
        step.run(rows, keep="last")
    return accuracy([p.value for p in parameters], data.x_test, data.y_test)


def main() -> None:
    parser = opening.parser(__doc__, "gpu")
    parser.add_argument(
        "file", nargs="?", type=Path, default=Path("mnist_cpu.npz"),
        help="the CPU's weights, or where to write them (mnist_cpu.npz)",
    )  # fmt: skip
    chosen = parser.parse_args()
    try:
        data = mg.data.mnist(substitute=False)
    except mg.DataError as error:
        print(error, file=sys.stderr)
        raise SystemExit(opening.LEFT_OUT) from None
    host = reference(chosen.file, data)
    try:
        import cuda_common
        import cupy
    except ImportError:
        return
    mg.config.device = "cuda"
    results: dict[str, Any] = {"error": differences(data, host)}
    seconds, uploads = [], []
    for _ in range(5):
        step, parameters, _ = networks.training_step(LAYERS)
        rows = mg.batches(data.x_train, data.y_train, size=SIZE, seed=0)
        step.specialize((SIZE, 784), (SIZE,))
        held = [p.value for p in parameters]
        began = time.perf_counter()
        step.run(rows, keep="last")  # brings the data there, and captures
        cupy.cuda.Device().synchronize()
        uploads.append(time.perf_counter() - began)
        for p, value in zip(parameters, held, strict=True):
            p.value = value
        rows.epoch = 0
        cupy.cuda.Device().synchronize()
        began = time.perf_counter()
        for _ in range(EPOCHS):
            (losses,) = step.run(rows)
        cupy.cuda.Device().synchronize()
        seconds.append(time.perf_counter() - began)
    both = {
        device: [learned(data, device, seed) for seed in range(SEEDS)] for device in ("cuda", "cpu")
    }
    mg.config.device = "cuda"
    on_host = [host[f"{COMPARED[-1]}_{i}"] for i in range(len(parameters))]
    results |= {
        "seconds": float(np.median(seconds)),
        "least": min(seconds),
        "largest": max(seconds),
        "first epoch": float(np.median(uploads)),
        "last loss": float(losses[-1]),
        "accuracy": accuracy([p.value for p in parameters], data.x_test, data.y_test),
        "CPU's accuracy": accuracy(on_host, data.x_test, data.y_test),
        "accuracy at a larger rate": both,
    }
    for name, value in results.items():
        print(f"{name:16} {value}")
    print(common.write("cuda_mnist", results, device=cuda_common.device_facts()))


if __name__ == "__main__":
    main()
