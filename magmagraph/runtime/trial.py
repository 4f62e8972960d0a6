"""Measured choices: candidates are timed once per machine and key, and the winner is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from ..errors import DeviceError
from ..plan import Place, Plan
from .cache import content_key, default_choices
from .execute import device_name, prepare

REPEATS = 7
SECONDS = 0.02  # about, that each candidate is run for


def fastest(
    key: str, candidates: Mapping[str, Callable[[], Plan]], device: str = "cpu"
) -> str:
    """Return the name of the fastest candidate, measured now unless it is known.

    Parameters
    ----------
    key
        What is decided, for which class of sizes and dtype.
    candidates
        Makers of bound plans that compute the same; called only where a trial is needed.
    device
        Where they are to run; choices of each kind of device are kept apart.
    """
    choices = default_choices()
    key = f"{_revision() if device == 'cpu' else device_name(device)}/{key}"
    known = choices.get(key)
    if isinstance(known, str) and known in candidates:
        return known
    taken = {name: _seconds(make(), device) for name, make in candidates.items()}
    winner = min(taken, key=lambda name: taken[name])
    choices.set(key, winner)
    return winner


@cache
def _revision() -> str:
    """Return what tells kernels and their generator apart: another text may be faster."""
    folder = Path(__file__).parent / "numpy"
    files = sorted([*folder.glob("*.c"), *folder.glob("codegen*.py"), folder / "binding.py"])
    return content_key(*(file.read_text("utf-8") for file in files))[:8]


def _seconds(plan: Plan, device: str) -> float:
    """Return the least seconds of a run; on a device, of its kernels."""
    bound = prepare(plan, device).bind(plan)
    types = {value.slot: value.type for step in plan.steps for value in step.inputs}
    feeds = [
        np.full(types[slot.index].concrete({}), 0.5, types[slot.index].dtype)
        for slot in plan.slots
        if slot.place is Place.FEED and slot.index in types
    ]
    bound.run(feeds)
    if device != "cpu":
        from .cuda.measure import seconds

        try:
            return seconds(bound)
        except DeviceError:  # a library is missing, and its call runs as an array expression
            return float("inf")
    began = time.perf_counter()
    bound.run(feeds)
    inner = max(1, int(SECONDS / REPEATS / max(time.perf_counter() - began, 1e-7)))
    best = float("inf")
    for _ in range(REPEATS):
        began = time.perf_counter()
        for _ in range(inner):
            bound.run(feeds)
        best = min(best, (time.perf_counter() - began) / inner)
    return best
