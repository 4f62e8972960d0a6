"""Claim: a convolutional network learns as well as the same one of torch, within noise.

The first 4,000 images of CIFAR-10 to learn from and 1,000 others to judge by (cifar10-subset.npz in
MAGMAGRAPH_DATA). Three convolutions with batch statistics, dropout, a cross-entropy and Adam. For
each seed both begin with the same weights; orders of examples and what dropout drops are each
library's own. Compared are mean accuracies over the seeds: their difference over its standard
error, from the spread of the seeds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import common
import numpy as np
import opening

SEEDS, EPOCHS, BATCH, RATE = (0, 1, 2), 15, 50, 1e-3
FILTERS, UNITS = (16, 32, 64), 128


def data() -> tuple[np.ndarray, ...]:
    """Return images (rows, channels, height, width) and labels, to learn from and to judge by."""
    path = Path(os.environ.get("MAGMAGRAPH_DATA", ".")) / "cifar10-subset.npz"
    with np.load(path) as held:
        images = [held[name].astype(np.float32) for name in ("x_train", "x_test")]
        labels = [held[name].astype(np.int64) for name in ("y_train", "y_test")]
    mean, spread = images[0].mean((0, 1, 2)), images[0].std((0, 1, 2))
    x, x_test = (
        np.ascontiguousarray(((part - mean) / spread).transpose(0, 3, 1, 2)) for part in images
    )
    return x, labels[0], x_test, labels[1]


def network(seed: int) -> Any:
    """Return our network, built."""
    import magmagraph as mg

    nn = mg.nn
    layers: list[Any] = [nn.Input((3, 32, 32))]
    for filters in FILTERS:
        layers += [
            nn.Conv2D(filters, 3, padding=1, bias=False, kernel_init="he_normal"),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.MaxPool2D(2),
        ]
    layers += [nn.Flatten(), nn.Dropout(0.3), nn.Dense(UNITS, "relu"), nn.Dropout(0.3)]
    return mg.NeuralNetwork(
        [*layers, nn.Output(10)], loss="cross_entropy", optimizer=mg.optimizer.Adam(RATE), seed=seed
    )


def ours(seed: int) -> list[float]:
    """Train our network; return its accuracy after each epoch."""
    x, y, x_test, y_test = data()
    history = network(seed).fit(
        x, y, batch_size=BATCH, epochs=EPOCHS, validation_data=(x_test, y_test), progress=False
    )
    return list(history["val_accuracy"])


def twin(seed: int) -> Any:
    """Return torch's network with our first weights."""
    import torch

    parts: list[Any] = []
    channels = 3
    for filters in FILTERS:
        parts += [
            torch.nn.Conv2d(channels, filters, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(filters),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
        ]
        channels = filters
    parts += [
        torch.nn.Flatten(),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(channels * 16, UNITS),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(UNITS, 10),
    ]
    net = torch.nn.Sequential(*parts)
    kernels = [v for v in network(seed).trainable if v.name.endswith("/kernel")]
    matrices = [part for part in parts if isinstance(part, (torch.nn.Conv2d, torch.nn.Linear))]
    with torch.no_grad():
        for part, held in zip(matrices, kernels, strict=True):
            value = torch.tensor(held.value)
            part.weight.copy_(value if value.ndim == 4 else value.T)
            if part.bias is not None:
                part.bias.zero_()
    return net


def theirs(seed: int) -> list[float]:
    """Train torch's network; return its accuracy after each epoch."""
    import torch

    net = twin(seed)
    torch.manual_seed(seed)
    x, y, x_test, y_test = (torch.from_numpy(part) for part in data())
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE, eps=1e-8)
    found = []
    for _ in range(EPOCHS):
        net.train()
        for rows in torch.randperm(len(x)).split(BATCH):
            loss = torch.nn.functional.cross_entropy(net(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            found.append(float((net(x_test).argmax(1) == y_test).float().mean()))
    return found


def child(library: str) -> None:
    """Train by one library, in a process of its own, and print what came out."""
    train = {"magmagraph": ours, "torch": theirs}[library]
    for seed in SEEDS:
        began = time.perf_counter()
        found = train(seed)
        print(json.dumps({"seed": seed, "accuracy": found, "seconds": time.perf_counter() - began}))


def main() -> None:
    """Train all and write how far the accuracies lie apart."""
    opening.words(__doc__, "--dry", needs=("torch", "cifar10-subset.npz"))
    runs: dict[str, list[dict[str, Any]]] = {}
    for library in ("magmagraph", "torch"):
        done = subprocess.run(
            [sys.executable, __file__, library], capture_output=True, text=True, check=True
        )
        runs[library] = [json.loads(line) for line in done.stdout.splitlines()]
    last = {name: [run["accuracy"][-1] for run in rows] for name, rows in runs.items()}
    means = {name: statistics.mean(found) for name, found in last.items()}
    error = sum(statistics.variance(found) / len(SEEDS) for found in last.values()) ** 0.5
    difference = means["magmagraph"] - means["torch"]
    results = {
        "accuracy after the last epoch": last,
        "mean": means,
        "spread of the seeds": {name: statistics.stdev(found) for name, found in last.items()},
        "difference": difference,
        "its standard error": error,
        "difference / standard error": difference / error,
        "runs": runs,
    }
    for key, value in results.items():
        if key != "runs":
            print(f"{key}: {value}")
    if "--dry" not in sys.argv:
        common.write("cifar_torch", results, epochs=EPOCHS, batch=BATCH, seeds=SEEDS)


if __name__ == "__main__":
    if sys.argv[1:] in (["magmagraph"], ["torch"]):
        child(sys.argv[1])
    else:
        common.clean_environment()
        main()
