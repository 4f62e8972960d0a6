"""Measure: heart disease in Cleveland over depth, rate, batch and epochs, as the papers searched.

    MAGMAGRAPH_DATA=... python benchmarks/heart.py

A network of logistic units for each point of the grid, in five folds; medians, categories and
scales are learned from each fold's training rows alone. Accuracy and Matthews' coefficient are
those of the rows held out. The points of one network share its compiled step, so that the numbers
of epochs are looks at one training.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import common
import numpy as np
import opening

DEPTHS = (1, 2, 3, 4)
RATES = (0.05, 0.2, 0.8)
BATCHES = (10, 20, 40)
EPOCHS = (10, 30, 100)
UNITS, FOLDS = 16, 5
CATEGORIES = (2, 6, 10, 11, 12)  # columns whose numbers are names


def patients() -> tuple[np.ndarray, np.ndarray]:
    """Return the 13 columns, NaN where nothing was noted, and who has the disease."""
    import magmagraph as mg

    path = Path(os.environ.get("MAGMAGRAPH_DATA", ".")) / "processed.cleveland.data"
    if not path.exists():
        print("heart.py needs processed.cleveland.data in MAGMAGRAPH_DATA", file=sys.stderr)
        raise SystemExit(opening.LEFT_OUT)
    table = mg.data.read_csv(path, header=False, missing=("?",)).values
    return table[:, :13], (table[:, 13] > 0).astype(np.int32)


def prepared(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return columns as numbers of one scale; what is learned for it is of the training rows."""
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    for column in range(train.shape[1]):
        known = train[~np.isnan(train[:, column]), column]
        middle = np.median(known)
        pair = [np.where(np.isnan(t[:, column]), middle, t[:, column]) for t in (train, test)]
        if column in CATEGORIES:
            names = np.unique(pair[0])
            parts.append(tuple((t[:, None] == names).astype(float) for t in pair))  # type: ignore
        else:
            mean, spread = pair[0].mean(), pair[0].std() or 1.0
            parts.append(tuple(((t - mean) / spread)[:, None] for t in pair))  # type: ignore
    left, right = (np.concatenate(side, axis=1) for side in zip(*parts, strict=True))
    return left.astype(np.float32), right.astype(np.float32)


def folds(labels: np.ndarray) -> list[np.ndarray]:
    """Return the rows of each fold, both classes shared out evenly."""
    rng = np.random.default_rng(0)
    found: list[list[int]] = [[] for _ in range(FOLDS)]
    for kind in (0, 1):
        for i, row in enumerate(rng.permutation(np.flatnonzero(labels == kind))):
            found[i % FOLDS].append(int(row))
    return [np.array(sorted(rows)) for rows in found]


def matthews(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Return Matthews' coefficient of two classes, 0 where one of them is never predicted."""
    counts = np.zeros((2, 2))
    np.add.at(counts, (truth, predicted), 1)
    product = counts.sum(0).prod() * counts.sum(1).prod()
    determinant = counts[0, 0] * counts[1, 1] - counts[0, 1] * counts[1, 0]
    return float(determinant / np.sqrt(product)) if product else 0.0


def main() -> None:
    opening.words(__doc__)
    import magmagraph as mg

    x, y = patients()
    parts = folds(y)
    began = time.perf_counter()
    scores: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for depth in DEPTHS:
        for part in parts:
            test = np.isin(np.arange(len(y)), part)
            train_x, test_x = prepared(x[~test], x[test])
            for rate, batch in itertools.product(RATES, BATCHES):
                net = mg.NeuralNetwork(
                    [
                        mg.nn.Input((train_x.shape[1],)),
                        *(mg.nn.Dense(UNITS, "tanh") for _ in range(depth)),
                        mg.nn.Dense(2),
                    ],
                    loss="cross_entropy", optimizer=mg.optimizer.SGD(rate), seed=0, device="cpu",
                )  # fmt: skip
                done = 0
                for epochs in EPOCHS:
                    net.fit(train_x, y[~test], epochs=epochs - done, batch_size=batch, verbose=0)
                    done = epochs
                    predicted = net.predict_class(test_x)
                    scores.setdefault((depth, rate, batch, epochs), []).append(
                        (float((predicted == y[test]).mean()), matthews(predicted, y[test]))
                    )
    results = [
        {
            "depth": depth, "rate": rate, "batch": batch, "epochs": epochs,
            "accuracy": statistics.fmean(a for a, _ in found),
            "spread": statistics.stdev(a for a, _ in found),
            "matthews": statistics.fmean(m for _, m in found),
        }
        for (depth, rate, batch, epochs), found in scores.items()
    ]  # fmt: skip
    results.sort(key=lambda row: -row["accuracy"])
    common.table(
        [(r["depth"], r["rate"], r["batch"], r["epochs"], f"{r['accuracy']:.3f}",
          f"{r['spread']:.3f}", f"{r['matthews']:.3f}") for r in results[:10]],
        ("depth", "rate", "batch", "epochs", "accuracy", "spread of folds", "Matthews"),
    )  # fmt: skip
    settings = {
        "units": UNITS, "folds": FOLDS, "rows": len(y),
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip
    print(common.write("heart", results, settings=settings))


if __name__ == "__main__":
    main()
