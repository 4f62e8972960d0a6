"""Measured choices: candidates are timed once per machine and key, and the winner is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DeviceError
from ..plan import Place, Plan
from .cache import content_key, default_choices
from .execute import device_name, prepare, threads
from .numpy.compilers import machine

ROUNDS = 7  # at least
SECONDS = 0.02  # about, that each candidate is run for
BURST = 2e-4  # seconds of one candidate, before it is another's turn
LARGE = 1 << 25  # bytes of what a plan is fed, above which one is in memory at a time
GAIN = 0.02  # of the first's time, that another must gain: among equals chance does not choose


def fastest(
    key: str, candidates: Mapping[str, Callable[[], Plan]], device: str = "cpu"
) -> str:
    """Return the name of the fastest candidate, measured now unless it is known.

    On the CPU they run in turn, many short times, and the least time of each counts: what other
    programs do can only add to it.

    Parameters
    ----------
    key
        What is decided, for which class of sizes and dtype.
    candidates
        Makers of bound plans that compute the same; called only where a trial is needed. The
        first is kept where none is faster by more than times vary.
    device
        Where they are to run; choices of each kind of device are kept apart.
    """
    choices = default_choices()
    where = f"{_revision()}/threads{threads()}" if device == "cpu" else device_name(device)
    key = f"{where}/{key}"
    known = choices.get(key)
    if isinstance(known, str) and known in candidates:
        return known
    if device == "cpu":
        taken = _on_cpu(candidates)
    else:
        taken = {name: _on_device(make(), device) for name, make in candidates.items()}
    winner = chosen(taken)
    choices.set(key, winner)
    return winner


def chosen(taken: Mapping[str, float]) -> str:
    """Return the name of the least time, or the first one's where that is about as good."""
    first = next(iter(taken))
    return min(taken, key=lambda name: taken[name] * (1 - GAIN * (name == first)))


@cache
def _revision() -> str:
    """Return what tells kernels, their generator and machines apart: another may be faster."""
    folder = Path(__file__).parent / "numpy"
    files = [*folder.rglob("*.c"), *folder.glob("codegen/*.py"), *folder.glob("functions/*.py")]
    files += [folder / f"{name}.py" for name in ("binding", "support")]
    return content_key(*(file.read_text("utf-8") for file in sorted(files)), *machine())[:8]


def _bound(plan: Plan, device: str) -> tuple[Any, list[Any]]:
    """Return a plan that ran once, and what it is fed."""
    bound = prepare(plan, device).bind(plan)
    types = {value.slot: value.type for step in plan.steps for value in step.inputs}
    feeds = [
        np.full(types[slot.index].concrete({}), 0.5, types[slot.index].dtype)
        for slot in plan.slots
        if slot.place is Place.FEED and slot.index in types
    ]
    bound.run(feeds)
    return bound, feeds


def _on_device(plan: Plan, device: str) -> float:
    """Return the least seconds of a run's kernels."""
    bound, _ = _bound(plan, device)
    from .cuda.launching.measure import seconds

    try:
        return seconds(bound)
    except DeviceError:  # a library is missing, and its call runs as an array expression
        return float("inf")


def _on_cpu(candidates: Mapping[str, Callable[[], Plan]]) -> dict[str, float]:
    """Return the least seconds of a run of each; large ones are not in memory together."""
    taken: dict[str, float] = dict.fromkeys(candidates, float("inf"))
    runs: dict[str, Callable[[], Any]] = {}
    known: list[Any] = []
    for name, make in candidates.items():
        bound, feeds = _bound(make(), "cpu")
        if sum(feed.nbytes for feed in feeds) > LARGE:
            taken |= least({name: partial(bound.run, feeds)})
            continue
        # The same arrays for all, as far as they are alike: else one would empty caches of
        # what the next reads.
        if [(x.shape, x.dtype) for x in feeds] == [(x.shape, x.dtype) for x in known]:
            feeds = known
        known = feeds
        runs[name] = partial(bound.run, feeds)
    return taken | least(runs)


def least(runs: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the least seconds of each, run in turn."""
    counts = {}
    for name, run in runs.items():
        began = time.perf_counter()
        run()
        counts[name] = max(1, int(BURST / max(time.perf_counter() - began, 1e-7)))
    best = dict.fromkeys(runs, float("inf"))
    end = time.perf_counter() + SECONDS * len(runs)
    rounds = 0
    while rounds < ROUNDS or time.perf_counter() < end:
        for name, run in runs.items():
            began = time.perf_counter()
            for _ in range(counts[name]):
                run()
            best[name] = min(best[name], (time.perf_counter() - began) / counts[name])
        rounds += 1
    return best
