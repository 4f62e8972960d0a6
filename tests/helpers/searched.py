"""Objectives for tests of searches: at the top level of a file, where other processes find them."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


def bowl(trial: Any) -> float:
    """Return a number that is least, 0, at x = 3 and y = 0.5."""
    return (trial["x"] - 3) ** 2 + (trial["y"] - 0.5) ** 2


def noted(trial: Any, folder: str) -> float:
    """Return the bowl, after a line in a file for each start."""
    with (Path(folder) / "started").open("a") as file:
        file.write(f"{trial.number}\n")
    return bowl(trial)


def slow(trial: Any, folder: str, seconds: float) -> float:
    """Return what `noted` does, some time later."""
    value = noted(trial, folder)
    time.sleep(seconds)
    return value


def troubled(trial: Any) -> float:
    """Fail in the way that x says."""
    x = trial["x"]
    if x == 1:
        raise ValueError("no such x")
    if x == 2:
        sys.exit(7)
    if x == 3:
        return float("nan")
    if x == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    if x == 5:
        time.sleep(60)
    return float(x)


def killed_once(trial: Any, folder: str) -> float:
    """End the process the first time that trial 1 is tried."""
    mark = Path(folder) / "mark"
    if trial.number == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return float(trial["x"])


def counted(trial: Any) -> dict[str, float]:
    """Return the bowl, and how many threads numerical libraries were told to take."""
    names = ("MAGMAGRAPH_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    counts = {int(os.environ.get(name, 0)) for name in names}
    return {"loss": bowl(trial), "threads": float(max(counts) if len(counts) == 1 else -1)}


def curve(trial: Any) -> dict[str, float]:
    """Report a loss that falls towards a height of its own, and stop when told to."""
    loss = 0.0
    for epoch in range(1, 9):
        loss = trial["height"] + trial["height"] / epoch
        trial.report(epoch, loss)
        if trial.should_stop():
            break
    return {"loss": loss, "epochs": float(len(trial.reports))}


def rising(trial: Any) -> float:
    """Report an accuracy; the higher, the better."""
    for epoch in range(1, 9):
        trial.report(epoch, trial["height"] * epoch / 8)
        if trial.should_stop():
            break
    return trial.reports[-1][1]


def costly(trial: Any) -> dict[str, float]:
    """Return an accuracy, and what it costs."""
    size, bits = trial["size"], trial["bits"]
    return {
        "accuracy": 1 - 1 / (size * bits),
        "time": float(size % 5 + bits // 16),
        "memory": float(size * bits),
    }


def zdt(trial: Any) -> dict[str, float]:
    """Return the two functions of E. Zitzler, K. Deb and L. Thiele (2000), number 1."""
    rest = 1 + 3 * sum(trial[f"x{i}"] for i in (1, 2, 3))
    return {"one": trial["x0"], "two": rest * (1 - (trial["x0"] / rest) ** 0.5)}


def ruled(trial: Any) -> float:
    """Return a number of whichever parameters there are."""
    return float(trial.get("momentum", 0.5)) + float(trial.get("rate", 1.0))


def member(trial: Any) -> dict[str, float]:
    """Train a line for two epochs more than its parent was trained."""
    import numpy as np

    import magmagraph as mg

    x = np.linspace(-1, 1, 32, dtype=np.float32)[:, None]
    net = mg.NeuralNetwork(
        [mg.nn.Input((1,)), mg.nn.Dense(1)],
        loss="mse", optimizer=mg.optimizer.SGD(trial["rate"]), seed=0,
    )  # fmt: skip
    history = net.fit(
        x, 3 * x + 1, epochs=2 * (trial.round + 1), batch_size=8, shuffle=trial["shuffled"],
        resume=trial.resume, resume_changes=("learning_rate", "shuffle"), progress=False,
        callbacks=[mg.callbacks.Checkpoint(trial.checkpoint)],
    )  # fmt: skip
    return {"loss": history.records[-1]["loss"], "epochs": float(len(history.records))}
