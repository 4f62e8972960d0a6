"""What a machine can do at best, measured: the roofs under which a profile puts its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from ..errors import MagmagraphError
from ..ops.convert import cast
from ..ops.leaf import input
from .checking.running import bind

REPEATS = 5
COPIED = {"cpu": 1 << 25, "cuda": 1 << 27}  # float32 elements: many times what caches hold
PRODUCT = {"cpu": 1536, "cuda": 8192}  # rows and columns of the matrices of a product
_KEY = "peaks, version 1"


class Store(Protocol):
    """Where measurements are kept: by key, as JSON's types."""

    def get(self, key: str) -> Any:
        """Return what is kept, or None."""

    def set(self, key: str, choice: Any) -> None:
        """Keep something."""


@dataclass(frozen=True)
class Peaks:
    """The most that a device does, measured once with the library's own kernels.

    Attributes
    ----------
    machine
        Its name.
    gigabytes_per_second
        Bytes read and written by an elementwise kernel over arrays larger than caches.
    gigaflops
        Of a product of large matrices, by dtype; "tf32" for float32 with tf32 products.
    latency
        Nanoseconds of a kernel that does next to nothing.

    Notes
    -----
    S. Williams, A. Waterman, D. Patterson, Roofline: an insightful visual performance model for
    multicore architectures, Communications of the ACM 52, 2009.
    """

    machine: str
    gigabytes_per_second: float
    gigaflops: Mapping[str, float] = field(default_factory=dict)
    latency: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return them as plain values."""
        return {
            "machine": self.machine,
            "gigabytes_per_second": self.gigabytes_per_second,
            "gigaflops": dict(self.gigaflops),
            "latency": self.latency,
        }


def peaks(device: str, machine: str, seen: Mapping[str, float], store: Store) -> Peaks:
    """Return the peaks of a device, measured now unless they are kept.

    A step that is faster than a peak of arithmetic raises it: whatever else the machine did when
    the peak was measured slowed it. (Of bandwidth this shows nothing: caches are faster.)

    Parameters
    ----------
    device
        "cpu", "cuda:0", ...
    machine
        The name under which they are kept.
    seen
        The dtypes whose products are asked for, each with the most 1e9 operations a second that
        a step was seen to do.
    store
        Where they are kept.
    """
    family = device.partition(":")[0]

    def known(what: str, measure: Callable[[], float], least: float = 0.0) -> float:
        key = f"{_KEY}: {what} on {machine}"
        held = store.get(key)
        value = float(held) if isinstance(held, (int, float)) else float(measure())
        value = round(max(value, least), 3)
        if value != held:
            store.set(key, value)
        return value

    flops = {
        dtype: known(f"product of {dtype}", partial(_product, device, family, dtype), least)
        for dtype, least in seen.items()
    }
    return Peaks(
        machine=machine,
        gigabytes_per_second=known("copy", lambda: _copy(device, family)),
        gigaflops={dtype: value for dtype, value in flops.items() if value},
        latency=known("kernel", lambda: _latency(device)),
    )


def _fastest(function: Any, *feeds: np.ndarray) -> tuple[int, Any]:
    """Return the nanoseconds of the steps of a function, and its plan."""
    bound = bind(function, feeds, {})
    best = min(sum(bound.bound.run_timed(bound.arrays)) for _ in range(REPEATS))
    return max(1, best), bound.bound.plan


def _made(inputs: Any, output: Any, device: str, **options: Any) -> Any:
    from ..function import Function

    return Function(inputs, output, device=device, **options)


def _copy(device: str, family: str) -> float:
    x = input("x", ("n",), "float32")
    feed = np.ones(COPIED[family], np.float32)
    taken, plan = _fastest(_made([x], x + 1.0, device), feed)
    return float(sum(step.bytes for step in plan.steps) / taken)


def _latency(device: str) -> float:
    x = input("x", (), "float32")
    return float(_fastest(_made([x], x + 1.0, device), np.ones((), np.float32))[0])


def _product(device: str, family: str, dtype: str) -> float:
    """Return 1e9 operations a second of a product, 0 where there is none of that kind."""
    size = PRODUCT[family]
    fed = "float32" if dtype == "tf32" else dtype
    x = input("x", (size, size), "float32")
    y = cast(x, fed)
    options = {"precision": "tf32"} if dtype == "tf32" else {}
    try:
        function = _made([x], y @ y, device, **options)
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
