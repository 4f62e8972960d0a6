"""Launches with arguments that never change: of generated kernels, and of libraries.

Generated kernels can overlap (programmatic dependent launch, CUDA C++ Programming Guide 4.5): one
may begin while the one before it on its stream still runs. It waits for that by itself, before it
reads anything that was written there (`mg_begin`), and so pays neither the launch nor the reading
of its other operands.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....codegen.cuda.launch_config import cost_of_grid
from ....ir.plan import WHOLE
from ....ir.ranges import Range

__all__ = [
    "CollectiveCall", "KernelCall", "LibraryCall", "TimedCall", "Together", "calls_of", "cost_of",
    "driver", "driver_function", "prefetching",
]

Shift = Callable[[int], int]


def driver() -> Any:
    """Return the binding of the driver's calls."""
    from cupy_backends.cuda.api import driver as calls

    return calls


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: 64 bytes of value, of which the first word is used here."""

    _fields_ = (
        ("id", ctypes.c_uint), ("pad", ctypes.c_uint),
        ("value", ctypes.c_int), ("rest", ctypes.c_byte * 60),
    )


class _Configuration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


_STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


def driver_function(name: str) -> Any:
    """Return a function of the driver that CuPy does not bind, or None where it has none."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        return getattr(library, name)
    except (OSError, AttributeError):
        return None


@functools.lru_cache(maxsize=1)
def _extended() -> Any:
    """Return the driver's cuLaunchKernelEx, or None where it has none."""
    return driver_function("cuLaunchKernelEx")


@functools.lru_cache(maxsize=1)
def prefetching() -> Any:
    """Return the driver's cuMemPrefetchAsync, or None where it has none."""
    return driver_function("cuMemPrefetchAsync")


class KernelCall:
    """One launch of a generated kernel.

    Parameters
    ----------
    function
        The driver's handle.
    grid, block
        Blocks, and threads of each.
    words
        The kernel's one argument. They are read when the kernel is launched or captured.
    pointers
        Which of the words are addresses.
    shared
        Bytes of shared memory that are asked for at the launch.
    early
        The word that says what may be read early, and some groups of operands: bit i of the word
        stands for the memory of group i.
    overlaps
        Whether the kernel waits for the one before it by itself.
    """

    def __init__(
        self,
        function: int,
        grid: Sequence[int],
        block: Sequence[int],
        words: np.ndarray,
        pointers: Sequence[int],
        shared: int = 0,
        early: tuple[int, tuple[tuple[Range, ...], ...]] | None = None,
        overlaps: bool = False,
    ) -> None:
        self.function, self.grid, self.block = function, tuple(grid), tuple(block)
        self.words, self.pointers, self.shared = words, tuple(pointers), shared
        self.early, self.overlaps = early, overlaps and _extended() is not None
        self._held = (ctypes.c_void_p * 1)(words.ctypes.data)
        self._address = ctypes.addressof(self._held)
        self._launch = driver().launchKernel

    def __call__(self, stream: Any) -> None:
        """Launch the kernel when all before it is done."""
        self._launch(
            self.function, *self.grid, *self.block, self.shared, stream.ptr, self._address, 0
        )

    def overlapped(self, stream: Any, written: Sequence[Range]) -> None:
        """Launch the kernel so that it may begin before the kernels before it are done.

        Parameters
        ----------
        stream
            What it waits for are kernels that overlap, too, or end before this one may begin.
        written
            What these kernels write.
        """
        if not self.overlaps:
            self(stream)
            return
        if self.early is not None:
            place, groups = self.early
            self.words[place] = sum(
                1 << i
                for i, ranges in enumerate(groups)
                if all(end <= a or b <= start for start, end in ranges for a, b in written)
            )
        attribute = _Attribute(_STREAM_SERIALIZATION, 0, 1)
        configuration = _Configuration(
            (ctypes.c_uint * 3)(*self.grid), (ctypes.c_uint * 3)(*self.block), self.shared,
            stream.ptr, ctypes.pointer(attribute), 1,
        )
        failed = _extended()(
            ctypes.byref(configuration), ctypes.c_void_p(self.function), self._held, None
        )
        if self.early is not None:
            self.words[self.early[0]] = 0
        driver().check_status(failed)

    def moved(self, shift: Shift) -> KernelCall:
        """Return the same launch with its operands at other addresses."""
        words = self.words.copy()
        for place in self.pointers:
            words[place] = shift(int(words[place]))
        early = self.early
        if early is not None:
            place, groups = early
            early = place, tuple(
                tuple((shift(a), shift(a) + b - a) for a, b in ranges) for ranges in groups
            )
        return KernelCall(
            self.function, self.grid, self.block, words, self.pointers, self.shared, early,
            self.overlaps,
        )


class LibraryCall:
    """One call of a library that launches kernels.

    Parameters
    ----------
    run
        Takes the stream and the addresses.
    addresses
        Of the operands.
    """

    def __init__(self, run: Callable[..., None], addresses: Sequence[int]) -> None:
        self.run, self.addresses = run, tuple(addresses)

    def __call__(self, stream: Any) -> None:
        """Launch the library's kernels."""
        self.run(stream, *self.addresses)

    def moved(self, shift: Shift) -> LibraryCall:
        """Return the same call with its operands at other addresses."""
        return LibraryCall(self.run, [shift(address) for address in self.addresses])


class CollectiveCall(LibraryCall):
    """A call of NCCL, which overlaps with computation.

    Attributes
    ----------
    lane
        All calls of a lane go in one order, on one stream: what all ranks of a group call has lane
        0, the messages of each direction have one of their own.
    """

    def __init__(
        self, run: Callable[..., None], addresses: Sequence[int], lane: int = 0
    ) -> None:
        super().__init__(run, addresses)
        self.lane = lane

    def moved(self, shift: Shift) -> CollectiveCall:
        """Return the same call with its operands at other addresses."""
        return CollectiveCall(self.run, [shift(address) for address in self.addresses], self.lane)


class TimedCall(CollectiveCall):
    """A call of NCCL in some calls of the function, with the launches of the others.

    Attributes
    ----------
    flag
        Which of the flags of a call says that it is made.
    kept
        What stands for it where it is not.
    """

    def __init__(
        self, run: Callable[..., None], addresses: Sequence[int], flag: int, kept: LibraryCall
    ) -> None:
        super().__init__(run, addresses)
        self.flag, self.kept = flag, kept

    def at(self, flags: Sequence[bool]) -> LibraryCall:
        """Return the launches of a call with these flags."""
        return CollectiveCall(self.run, self.addresses) if flags[self.flag] else self.kept

    def moved(self, shift: Shift) -> TimedCall:
        """Return the same call with its operands at other addresses."""
        places = [shift(address) for address in self.addresses]
        return TimedCall(self.run, places, self.flag, self.kept.moved(shift))


class Together:
    """Launches one after the other, as one.

    Parameters
    ----------
    calls
        What takes a stream and launches something.
    """

    def __init__(self, calls: Sequence[Any]) -> None:
        self.calls = tuple(calls)

    def __call__(self, stream: Any) -> None:
        """Launch all."""
        for call in self.calls:
            call(stream)

    def moved(self, shift: Shift) -> Together:
        """Return the same launches with their operands at other addresses."""
        return Together([call.moved(shift) for call in self.calls])


def calls_of(launch: Any) -> tuple[Any, ...]:
    """Return the single launches of what launches something."""
    return launch.calls if isinstance(launch, Together) else (launch,)


def cost_of(launch: Any, multiprocessors: int) -> float:
    """Return about how long a launch takes, as `cost_of_grid` has it; libraries fill a device."""
    cost = 0.0
    for call in calls_of(launch):
        if not isinstance(call, KernelCall):
            return WHOLE
        cost += cost_of_grid(call.grid, call.block, multiprocessors) - 1
    return min(1 + cost, WHOLE)
