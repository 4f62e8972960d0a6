"""Measured choices: candidates are timed once per machine and key, and the winner is kept.

What a trial finds is wrong where other programs took its cores, or the host gave it less of them
for a while. So candidates run in turns, and what is judged is the ratio of two in one turn: another
than the first (what the model does without trials) is chosen only where the interval of these
ratios says that it gains. Where it says neither that nor the opposite, the first is taken, and a
later process tries again.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DeviceError
from ..ir.plan import Place, Plan
from .cache import content_key, default_choices
from .cpu.compilers import machine
from .execute import device_name, prepare, threads

ROUNDS = 15  # after which it is asked whether the turns have decided, and after twice as many
LEAST = 7  # rounds of candidates that take long
SECONDS = 0.02  # about, that each candidate is run for where turns do not decide
BURST = 2e-4  # seconds of one candidate, before it is another's turn
LARGE = 1 << 25  # bytes of what a plan is fed, above which one is in memory at a time
GAIN = 0.02  # of the first's time, that another must gain: among equals chance does not choose
TRIES = 3  # processes that try what turns did not decide
UNDECIDED = "undecided"  # what is kept then: after how many tries

_tried: set[tuple[Path, str]] = set()  # by this process, undecided


def fastest(
    key: str, candidates: Mapping[str, Callable[[], Plan]], device: str = "cpu"
) -> str:
    """Return the name of the fastest candidate, measured now unless it is known.

    On the CPU they run in turn, many short times, in an order that is drawn. What this does not
    decide goes to the first, and is kept only after `TRIES` processes have tried it.

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
    choice = choices.get(key)
    if isinstance(choice, str) and choice in candidates:
        return choice
    if device != "cpu":
        taken = {name: _on_device(make(), device) for name, make in candidates.items()}
        best = chosen(taken)
        choices.set(key, best)
        return best
    first = next(iter(candidates))
    undecided = choice.get(UNDECIDED) if isinstance(choice, dict) else None
    tries = undecided if isinstance(undecided, int) else 0
    if tries >= TRIES or (choices.directory, key) in _tried:
        return first
    winner = decided(_on_cpu(candidates))
    if winner is None:
        _tried.add((choices.directory, key))
        choices.set(key, {UNDECIDED: tries + 1})
        return first
    choices.set(key, winner)
    return winner


def chosen(taken: Mapping[str, float]) -> str:
    """Return the name of the least time, or the first one's where that is about as good."""
    first = next(iter(taken))
    return min(taken, key=lambda name: taken[name] * (1 - GAIN * (name == first)))


def decided(taken: Mapping[str, Sequence[float]]) -> str | None:
    """Return the name of the fastest by what each took, turn by turn; None where that is not clear.

    One gains where the interval of its ratios to the first's lies below `1 - GAIN`. The first is
    the fastest where all others' intervals end above, and begin no lower than twice that gain.

    Examples
    --------
    >>> decided({"sum": [1.0, 1.1, 1.0, 1.0, 1.2, 1.0, 1.0], "gemv": [0.9] * 7})
    'gemv'
    >>> decided({"sum": [1.0] * 7, "gemv": [0.8, 1.5, 0.9, 1.2, 1.0, 1.3, 1.1]}) is None
    True
    """
    first, *others = taken
    gaining: dict[str, float] = {}
    unclear = False
    for name in others:
        ratios = sorted(a / b for a, b in zip(taken[name], taken[first], strict=False))
        low, high = _interval(ratios)
        if high < 1 - GAIN:
            gaining[name] = statistics.median(ratios)
        elif low < 1 - 2 * GAIN:
            unclear = True
    if gaining:
        return min(gaining, key=gaining.__getitem__)
    return None if unclear else first


def _interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the interval of the median, by the ranks of what was found in turns.

    It misses one median in a thousand; of fewer than 15 turns, which are all in it, up to 16.
    """
    reach = max(0, math.floor(len(ratios) / 2 - 1.65 * math.sqrt(len(ratios))))
    return ratios[reach], ratios[-1 - reach]


@cache
def _revision() -> str:
    """Return what tells kernels, their generator and machines apart: another may be faster."""
    package = Path(__file__).parent.parent
    generator, kernels = package / "codegen", package / "runtime" / "cpu"
    files = [*kernels.rglob("*.c"), *generator.glob("c/*.py"), *generator.glob("functions/*.py")]
    files.append(kernels / "support.py")
    return content_key(*(file.read_text("utf-8") for file in sorted(files)), *machine())[:8]


def _types(plan: Plan) -> list[tuple[tuple[int, ...], np.dtype]]:
    """Return the shapes and dtypes of a plan's feeds."""
    types = {value.slot: value.type for step in plan.steps for value in step.inputs}
    return [
        (types[slot.index].concrete({}), types[slot.index].dtype)
        for slot in plan.slots
        if slot.place is Place.FEED and slot.index in types
    ]


def _feeds(types: Sequence[tuple[tuple[int, ...], np.dtype]]) -> list[np.ndarray]:
    return [np.full(shape, 0.5, dtype) for shape, dtype in types]


def _on_device(plan: Plan, device: str) -> float:
    """Return the least seconds of a run's kernels."""
    bound = prepare(plan, device).bind(plan)
    bound.run(_feeds(_types(plan)))
    from .cuda.launching.measure import seconds

    try:
        return seconds(bound)
    except DeviceError:  # a library is missing, and its call runs as an array expression
        return float("inf")


def _on_cpu(candidates: Mapping[str, Callable[[], Plan]]) -> dict[str, list[float]]:
    """Return the seconds of a run of each, turn by turn.

    All are fed the same arrays, as far as these are alike: else one would empty caches of what the
    next reads. Large ones that differ are not in memory together, and have turns of their own.
    """
    alone: dict[str, list[float]] = {}
    runs: dict[str, Callable[[], Any]] = {}
    types: list[tuple[tuple[int, ...], np.dtype]] = []
    feeds: list[np.ndarray] = []
    for name, make in candidates.items():
        plan = make()
        bound, expected = prepare(plan, "cpu").bind(plan), _types(plan)
        if not runs or expected != types:
            if runs and sum(math.prod(shape) * dtype.itemsize for shape, dtype in expected) > LARGE:
                alone |= turns({name: partial(bound.run, _feeds(expected))})
                continue
            types, feeds = expected, _feeds(expected)
        bound.run(feeds)
        runs[name] = partial(bound.run, feeds)
    taken = turns(runs) | alone
    return {name: taken[name] for name in candidates}


def turns(runs: Mapping[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Return the seconds of a run of each, turn by turn, until these decide or time is up.

    The order of a turn is drawn: what one leaves in caches, and whether threads sleep, falls on
    all alike. Each runs once before it is timed, too.
    """
    counts = {}
    for name, run in runs.items():
        began = time.perf_counter()
        run()
        counts[name] = max(1, int(BURST / max(time.perf_counter() - began, 1e-7)))
    taken: dict[str, list[float]] = {name: [] for name in runs}
    draw = random.Random(0)
    end = time.perf_counter() + SECONDS * len(runs)
    rounds, asked = 0, ROUNDS
    while rounds < LEAST or time.perf_counter() < end:
        for name in draw.sample([*runs], len(runs)):
            runs[name]()
            began = time.perf_counter()
            for _ in range(counts[name]):
                runs[name]()
            taken[name].append((time.perf_counter() - began) / counts[name])
        rounds += 1
        if rounds == asked:
            asked *= 2
            if len(runs) > 1 and decided(taken) is not None:
                break
    return taken
