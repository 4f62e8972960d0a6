"""CUDA devices: which there are, what plans share on one, and why there is none."""

from __future__ import annotations

import functools
import importlib.util
import math
from typing import Any

import numpy as np

from ...errors import DeviceError, message
from ...ir.locking import shared_lock
from .compiler import compile_source, load_beside

__all__ = ["Device", "count_of_devices", "device_of", "why_unusable"]

SCRATCH = 32 << 20
URGENT = -100  # the driver takes the highest priority that there is
_INSTALL = "pip install 'magmagraph[cuda13]' (or cuda12, after the driver's CUDA version)"

_PAUSE = r"""
extern "C" __global__ void mg_pause(long long nanoseconds)
{
    unsigned long long begun, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - begun < (unsigned long long)nanoseconds);
}
"""


@functools.lru_cache(maxsize=1)
def why_unusable() -> str | None:
    """Return why no CUDA device can be used in this process, or None where one can."""
    if importlib.util.find_spec("cupy") is None:
        return "the package cupy is not installed"
    try:
        import cupy
    except Exception as error:  # a broken installation raises whatever its parts raise
        return f"cupy cannot be imported: {error}"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"the driver gives no device: {error}"
    return None if count else "there is no CUDA device"


def count_of_devices() -> int:
    """Return how many CUDA devices this process can use."""
    if why_unusable() is not None:
        return 0
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


class Device:
    """One CUDA device: its stream, and facts that launches are shaped by.

    Attributes
    ----------
    number
        As in ``"cuda:1"``.
    stream
        The stream that all plans of this process run on; it does not wait for the default one.
    multiprocessors, architecture, name, cache
        What the driver says; the last in bytes, of the cache that all multiprocessors share.
    """

    def __init__(self, number: int) -> None:
        import cupy

        self.number = number
        self.cupy = cupy
        with cupy.cuda.Device(number) as device:
            facts = cupy.cuda.runtime.getDeviceProperties(number)
            self.name = facts["name"].decode()
            self.multiprocessors = int(facts["multiProcessorCount"])
            self.cache = int(facts.get("l2CacheSize", 0))
            self.architecture = str(device.compute_capability)
            self.stream = cupy.cuda.Stream(non_blocking=True)
        load_beside()
        self.lock = shared_lock()
        self._beside: list[Any] = []
        self._urgent: list[Any] = []
        self._scratch: dict[int, Any] = {}
        self._pause: Any = None

    def beside(self, count: int) -> list[Any]:
        """Return streams that branches of a captured graph are put on."""
        while len(self._beside) < count:
            self._beside.append(self.cupy.cuda.Stream(non_blocking=True))
        return self._beside[:count]

    def urgent(self, number: int) -> Any:
        """Return a stream whose kernels get the next room on the device, before other streams'."""
        while len(self._urgent) <= number:
            self._urgent.append(self.cupy.cuda.Stream(non_blocking=True, priority=URGENT))
        return self._urgent[number]

    def scratch(self, stream: Any) -> int:
        """Return the address of the memory that products on a stream may write to meanwhile."""
        if stream.ptr not in self._scratch:
            self._scratch[stream.ptr] = self.empty(SCRATCH)
        return int(self._scratch[stream.ptr].data.ptr)

    def pause(self, stream: Any, nanoseconds: int) -> None:
        """Let a stream wait for a time on the device's clock."""
        if self._pause is None:
            module = self.cupy.cuda.function.Module()
            module.load(compile_source(_PAUSE, self.architecture))
            self._pause = (module, module.get_function("mg_pause"))
        kernel = self._pause[1]
        kernel((1,), (1,), (np.int64(nanoseconds),), stream=stream)

    def __enter__(self) -> Device:
        self._held = self.cupy.cuda.Device(self.number)
        self._held.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._held.__exit__(*reason)

    def empty(self, count: int, what: str = "one block") -> Any:
        """Return a new block of bytes.

        Parameters
        ----------
        count
            Bytes.
        what
            What they are for.

        Raises
        ------
        DeviceError
            There are not so many; the text says how many are free, and for what they were planned.
        """
        return self.array((count,), np.dtype(np.uint8), what)

    def array(self, shape: tuple[int, ...], dtype: np.dtype, what: str = "a result") -> Any:
        """Return a new array with anything in it; errors are those of `empty`."""
        try:
            return self.cupy.empty(shape, dtype)
        except self.cupy.cuda.memory.OutOfMemoryError:
            count = math.prod(shape) * dtype.itemsize
            free, total = self.cupy.cuda.runtime.memGetInfo()
            used = self.cupy.get_default_memory_pool().used_bytes()
            raise DeviceError(
                message(
                    f"cuda:{self.number} ({self.name}) has no {count:,} bytes for {what}: "
                    f"{free:,} of {total:,} are free, this process holds {used:,}",
                    need="a smaller batch, or arrays of this process or of others freed",
                    hint="f.memory shows what is planned before anything runs; mg.checkpoint "
                    "computes parts again instead of keeping them",
                )
            ) from None

    def free(self) -> int:
        """Return how many bytes can be had now."""
        pool = self.cupy.get_default_memory_pool()
        return int(self.cupy.cuda.runtime.memGetInfo()[0]) + int(pool.free_bytes())

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """Exception types for errors of the device: of the runtime, and of kernel launches."""
        cuda = self.cupy.cuda
        return cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError

    def works(self) -> bool:
        """Return whether the driver reports no error now; most errors last until a process ends."""
        try:
            with self:
                self.cupy.cuda.runtime.deviceSynchronize()
        except self.errors:
            return False
        return True

    def failed(self, error: Exception) -> DeviceError:
        """Return the exception for an error of the driver while a plan runs."""
        return _failure(f"cuda:{self.number} ({self.name})", error)


def _failure(device: str, error: Exception) -> DeviceError:
    return DeviceError(
        message(
            f"{device} failed: {error}",
            need="a device that works; after most errors only a new process has one",
            hint="give variables whose newest value was lost there another; device='cpu' runs "
            "everything without it",
        )
    )


@functools.cache
def device_of(name: str) -> Device:
    """Return a device by its name, "cuda" or "cuda:1".

    Raises
    ------
    DeviceError
        cupy is missing, there is no driver, no such device, or it has failed.
    """
    reason = why_unusable()
    if reason is not None:
        raise DeviceError(
            message(
                f"device={name!r}: {reason}",
                need="an NVIDIA GPU with its driver, and cupy",
                hint=f"{_INSTALL}; device='cpu' runs everything here",
            )
        )
    if ":" not in name:
        return device_of(f"{name}:0")
    import cupy

    number = int(name.partition(":")[2])
    try:
        count = cupy.cuda.runtime.getDeviceCount()
        if number < count:
            return Device(number)
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        raise _failure(f"cuda:{number}", error) from error
    raise DeviceError(
        message(
            f"device={name!r}: there {'is' if count == 1 else 'are'} {count} CUDA "
            f"device{'' if count == 1 else 's'}",
            need=f"a number below {count}",
        )
    )
