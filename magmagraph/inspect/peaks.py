"""Measure the peak rates of a machine, with which a profile compares its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from ..errors import MagmagraphError
from ..ir.op import Node
from ..ops.convert import cast
from ..ops.leaf import input
from ..ops.reduction.primitives import sum as total
from .checking.running import bind
from .traffic import Level

REPEATS, MORE_REPEATS = 5, 25
SHORT = 1 << 24  # bytes up to which there are more repeats
COPIED = {"cpu": 1 << 25, "cuda": 1 << 27}  # float32 elements: many times what most caches hold
MOST_COPIED = 1 << 28
PRODUCT = {"cpu": 1536, "cuda": 8192}  # rows and columns of the matrices of a product
# Where nobody says which caches there are: what fits into so many bytes has a rate of its own.
UNKNOWN = (("1 MiB", 1 << 20, 1), ("16 MiB", 1 << 24, 1))
_KEY = "peaks, version 1"

Compile = Callable[..., Any]
Cache = tuple[str, int, int]  # its name, the bytes that one holds, and how many take part


class Store(Protocol):
    """Where measurements are kept: by key, as JSON's types."""

    def get(self, key: str) -> Any:
        """Return the cached value, or None."""

    def set(self, key: str, choice: Any) -> None:
        """Keep something."""


@dataclass(frozen=True)
class Peaks:
    """The most that a device does, measured once with the library's own kernels.

    machine: Its name.
    gigabytes_per_second: Bytes read and written by an elementwise kernel over arrays larger than
        caches.
    gigaflops: Of a product of large matrices, by dtype; "tf32" for float32 with tf32 products.
    latency: Nanoseconds of a kernel that does next to nothing.
    levels: Caches, the nearest first, and memory; memory alone where nothing else is known.

    Notes
    -----
    S. Williams, A. Waterman, D. Patterson, Roofline: an insightful visual performance model for
    multicore architectures, Communications of the ACM 52, 2009.
    """

    machine: str
    gigabytes_per_second: float
    gigaflops: Mapping[str, float] = field(default_factory=dict)
    latency: float = 0.0
    levels: tuple[Level, ...] = ()

    def __post_init__(self) -> None:
        if not self.levels:
            rate = self.gigabytes_per_second
            object.__setattr__(self, "levels", (Level("memory", None, rate, rate),))

    def as_dict(self) -> dict[str, Any]:
        """Return them as plain values."""
        return {
            "machine": self.machine,
            "gigabytes_per_second": self.gigabytes_per_second,
            "gigaflops": dict(self.gigaflops),
            "latency": self.latency,
            "levels": [level.as_dict() for level in self.levels],
        }

    def __str__(self) -> str:
        rates = [f"{level.copied:.1f} GB/s {level.name}" for level in self.levels]
        flops = [f"{v:.0f} GFLOP/s {kind}" for kind, v in self.gigaflops.items()]
        return ", ".join([*rates, *flops, f"{self.latency:.0f} ns a kernel"])


def peaks(
    device: str,
    machine: str,
    seen: Mapping[str, float],
    store: Store,
    caches: Sequence[Cache] = (),
    *,
    compiled: Compile,
) -> Peaks:
    """Return the peaks of a device, measured now unless they are kept.

    A step that is faster than a peak of arithmetic raises it: whatever else the machine did when
    the peak was measured slowed it. (Of bandwidth this is shown in one profile, and not kept: how
    much of a step's bytes lay in which cache is reckoned, not measured.)

    device: "cpu", "cuda:0", ...
    machine: The name under which they are kept.
    seen: The dtypes whose products are asked for, each with the most 1e9 operations a second that a
        step was seen to do.
    store: Where they are kept.
    caches: The nearest first.
    compiled: Compiles what is measured: `Function`.
    """
    family = device.partition(":")[0]

    def known(what: str, measure: Callable[[], float], least: float = 0.0) -> float:
        key = f"{_KEY}: {what} on {machine}"
        stored = store.get(key)
        value = float(stored) if isinstance(stored, (int, float)) else float(measure())
        value = round(max(value, least), 3)
        if value != stored:
            store.set(key, value)
        return value

    flops = {}
    for dtype, least in seen.items():
        measure = partial(_product, compiled, device, family, dtype)
        flops[dtype] = known(f"product of {dtype}", measure, least)
    latency = known("kernel", lambda: _latency(compiled, device))
    streams = _Streams(compiled, device, latency)
    caches = caches or UNKNOWN
    large = 8 * COPIED[family]
    behind = max(large, min(8 * MOST_COPIED, 4 * caches[-1][1] * caches[-1][2]))

    def rate(what: str, size: int) -> float:
        name = what if size == large else f"{what} of {size} bytes"
        return known(name, lambda: streams.rate(what, size))

    def level(name: str, measured: int | None, *sizes: int) -> Level:
        rates = {what: max(rate(what, size) for size in sizes) for what in STREAMS}
        return Level(name, measured, rates["sum"], rates["copy"])

    levels = []
    for name, held, count in caches:
        # Half of what it holds: of one, and of all, as few kernels take all cores for a few bytes;
        # of the last, which others share, less as well.
        whole = held * count
        shared = {whole // 8} if name == caches[-1][0] else set()
        levels.append(level(name, whole, *sorted({held // 2, whole // 2} | shared)))
    memory = level("memory", None, behind)
    return Peaks(
        machine=machine,
        gigabytes_per_second=memory.copied,
        gigaflops={dtype: value for dtype, value in flops.items() if value},
        latency=latency,
        levels=(*levels, memory),
    )


def _fastest(function: Any, *feeds: np.ndarray, repeats: int = REPEATS) -> tuple[int, Any]:
    """Return the nanoseconds of the steps of a function, and its plan."""
    bound = bind(function, feeds, {})
    best = min(sum(bound.bound.run_timed(bound.arrays)) for _ in range(repeats))
    return max(1, best), bound.bound.plan


# Kernels over an array, and how many arrays as large as that each reads and writes.
STREAMS: Mapping[str, tuple[Callable[[Node], Node], int]] = {
    "copy": (lambda x: x + 1.0, 2),
    "sum": (total, 1),
}


class _Streams:
    """Kernels that read and write arrays of some bytes in all, each compiled where it is needed."""

    def __init__(self, compiled: Compile, device: str, latency: float) -> None:
        self.compiled, self.device, self.latency = compiled, device, latency
        self.made: dict[str, Any] = {}

    def rate(self, what: str, size: int) -> float:
        """Return 1e9 bytes a second of a kernel whose arrays take so many bytes together."""
        formula, arrays = STREAMS[what]
        if what not in self.made:
            x = input("x", ("n",), "float32")
            self.made[what] = self.compiled([x], formula(x), device=self.device)
        feed = np.ones(max(1, size // (4 * arrays)), np.float32)
        repeats = MORE_REPEATS if size <= SHORT else REPEATS
        taken, plan = _fastest(self.made[what], feed, repeats=repeats)
        moved = sum(int(step.bytes) for step in plan.steps)
        return moved / max(taken - self.latency, taken / 2)


def _latency(compiled: Compile, device: str) -> float:
    x = input("x", (), "float32")
    return float(_fastest(compiled([x], x + 1.0, device=device), np.ones((), np.float32))[0])


def _product(compiled: Compile, device: str, family: str, dtype: str) -> float:
    """Return 1e9 operations a second of a product, 0 where there is none of that kind."""
    size = PRODUCT[family]
    fed = "float32" if dtype == "tf32" else dtype
    x = input("x", (size, size), "float32")
    y = cast(x, fed)
    options = {"precision": "tf32"} if dtype == "tf32" else {}
    try:
        function = compiled([x], y @ y, device=device, **options)
        bound = bind(function, [np.ones((size, size), np.float32)], {})
        plan = bound.bound.plan
        products = [i for i, step in enumerate(plan.steps) if step.flops >= size**3]
        best = min(
            sum(taken[i] for i in products)
            for taken in (bound.bound.run_timed(bound.arrays) for _ in range(REPEATS))
        )
    except MagmagraphError:
        return 0.0
    return 2.0 * size**3 / max(1, int(best))
