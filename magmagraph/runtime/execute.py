"""Take a plan to a backend."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from typing import Any

from ..ir.graph import Graph
from ..ir.plan import Plan
from .backend import Prepared
from .comm import local_rank, ranks_started


def prepare(plan: Plan, device: str = "cpu", budget: float = 60.0) -> Prepared:
    """Return the plan with its kernels built, ready to be bound to sizes.

    Parameters
    ----------
    plan
        A symbolic plan.
    device
        "cpu", or a CUDA device such as "cuda:0".
    budget
        Seconds that building kernels may take; the tiled runtime runs what is left over.
    """
    if device != "cpu":
        from .cuda.backend import CudaPrepared

        return CudaPrepared(plan, device)
    from .cpu.backend import NumpyPrepared

    return NumpyPrepared(plan, budget)


def begin(graph: Graph, device: str = "cpu") -> None:
    """Start to build the libraries of a graph's plan in the background, during the passes."""
    if device != "cpu":
        return
    from .cpu import warmup

    warmup.begin(graph)


def threads(device: str = "cpu") -> int:
    """Return the workers that a device's runtime uses now; plans are made for as many.

    On a CUDA device these are the warps or blocks that fold partial results of their own.
    """
    if device != "cpu":
        from .cuda.device import device_of

        return 2 * device_of(device).multiprocessors
    from .cpu.threads import get_threads

    return get_threads()


def usable(device: str) -> str:
    """Return the full name of a device that plans can run on: "cpu", "cuda:0", ...

    Ranks of one host that name no number share its devices out among them.

    Raises
    ------
    DeviceError
        There is no such device, or it cannot be used; the text says why, and what to try.
    """
    if device == "cpu":
        return device
    from .cuda.device import count_of_devices, device_of

    local = local_rank()
    if ":" not in device and local and ranks_started() > 1:
        device = f"{device}:{local % max(1, count_of_devices())}"
    return f"cuda:{device_of(device).number}"


def best() -> str:
    """Return the full name of the device that "auto" means: the first GPU, where one works."""
    if not _has_cupy():
        return "cpu"  # what else could be wrong with a device need not be looked for
    from .cuda.device import why_unusable

    return "cpu" if why_unusable() else usable("cuda")


@functools.cache
def _has_cupy() -> bool:
    """Tell whether the package is installed: once, for a search through all of Python's path."""
    return importlib.util.find_spec("cupy") is not None


def device_name(device: str) -> str:
    """Return the name of a kind of device, as its driver says."""
    if device == "cpu":
        return device
    from .cuda.device import device_of

    return str(device_of(device).name)


def array_type() -> type:
    """Return the type of arrays on CUDA devices."""
    from .cuda.namespace import array_type as of_cupy

    return of_cupy()


def synchronize(device: str) -> None:
    """Wait until a device has done all that was asked of it."""
    if device != "cpu":
        from .cuda.device import device_of

        with device_of(device) as chosen:  # plans run on its own stream, and on their callers'
            chosen.cupy.cuda.runtime.deviceSynchronize()


@functools.cache
def arrays(number: int) -> Any:
    """Return what makes and copies arrays of a CUDA device, or raise `DeviceError`."""
    from .cuda.device import device_of
    from .cuda.tensors import CudaArrays

    return CudaArrays(device_of(f"cuda:{number}"))


def resident(owner: Any, arrays: Sequence[Any], device: str) -> Any:
    """Return what holds arrays on a device for as long as their owner lives, or None.

    They are brought there when first asked for, unless they would take too much of its memory.
    """
    if device == "cpu":
        return None
    from .cuda.device import device_of
    from .cuda.launching.loops import resident as held

    return held(device_of(device), owner, arrays)


def received(value: Any, device: str) -> Any:
    """Return an array of another library, on any device, as one that a device's plans take."""
    try:
        on_host = value.__dlpack_device__()[0] in (1, 3)  # its memory, also where it is pinned
    except (ValueError, TypeError, RuntimeError, BufferError):
        on_host = True  # one without elements, say: who reads it says why
    if on_host:
        return value
    if device == "cpu":
        if hasattr(value, "copy_from"):  # a tensor of this package
            return value.numpy()
        return value.get() if hasattr(value, "get") else value.cpu()
    from .cuda.device import device_of

    with device_of(device) as chosen:
        return chosen.cupy.from_dlpack(value)
