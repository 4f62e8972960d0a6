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
    found = noted(trial, folder)
    time.sleep(seconds)
    return found


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
    told = {int(os.environ.get(name, 0)) for name in names}
    return {"loss": bowl(trial), "threads": float(max(told) if len(told) == 1 else -1)}


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
