"""Small arrays of one message, side by side in one: NCCL adds up the arrays of a launch in turn.

What one launch is given NCCL deals out to its channels by bytes, so that hundreds of vectors of a
network's norms stand in line: on two H200 256 of 1 KiB take 41 us, and 1024 take 133
(`benchmarks/cuda_collectives.py`). Where there are many, one kernel puts them behind each other
before the message, and another one back behind it: 20 and 41 us, all three together.

Where a call sends nothing, one kernel copies all arrays of a message to where its results lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.plan import Value
from ..kernels.gathering import function_of
from ..memory import PlanMemory
from .calls import KernelCall

__all__ = ["Packed", "copied", "copying_source", "packs", "packs_of"]

SMALL = 64 << 10  # bytes of an array that travels with others in one, at most
FEW = 48  # less are sent as they lie: the two kernels cost 3 us, an array in line about 0.1
MOST = 480  # arrays of one table
WORDS = 2 * MOST + 3  # the table: room, count; where each begins, and the last ends; addresses
THREADS = 256
MOST_COPIED = 240  # arrays of a table with both addresses of each
COPIED_AT_ONCE = 16  # bytes of a thread
_UNITS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}


def packs_of(counts: Sequence[int]) -> list[list[int]]:
    """Return which of some arrays travel in one, by their bytes.

    Examples
    --------
    >>> packs_of([1 << 20, 0] + [256] * 100) == [list(range(2, 102))]
    True
    >>> packs_of([1 << 20, 256, 512])
    []
    """
    small = [number for number, count in enumerate(counts) if 0 < count <= SMALL]
    groups = [small[at : at + MOST] for at in range(0, len(small), MOST)]
    return [group for group in groups if len(group) >= FEW]


_PIECE = """
static __device__ __forceinline__ int64_t piece_of(const int64_t *starts, int count, int64_t at)
{
    int low = 0, high = count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (starts[middle] <= at) low = middle; else high = middle;
    }
    return low;
}
"""


def packing_source(unit: int) -> str:
    """Return the kernels that put arrays of elements of some bytes side by side, and back."""
    return f"""
typedef {_UNITS[unit]} T;
/* v: the room, how many arrays; the first element of each there, and the end; their addresses. */
{_PIECE}
{_kernel(unit, "pack", "room[at] = array[at - starts[piece]];")}
{_kernel(unit, "unpack", "array[at - starts[piece]] = room[at];")}
"""


def _kernel(unit: int, name: str, moves: str) -> str:
    return f"""
extern "C" __global__ void __launch_bounds__({THREADS}) {name}_{unit}
(const __grid_constant__ mg_arguments arguments)
{{
    T *room = (T *)arguments.v[0];
    const int count = (int)arguments.v[1];
    const int64_t *starts = arguments.v + 2, *addresses = starts + count + 1;
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= starts[count]) return;
    const int64_t piece = piece_of(starts, count, at);
    T *array = (T *)addresses[piece];
    {moves}
}}
"""


class Packed:
    """Some arrays of a message, and the room where they travel side by side.

    Parameters
    ----------
    memory
        Of the plan.
    members
        Which of the message's arrays they are.
    counts
        The bytes of each of these.
    dtype
        Of all of them.
    """

    def __init__(
        self, memory: PlanMemory, members: Sequence[int], counts: Sequence[int], dtype: np.dtype
    ) -> None:
        self.members = tuple(members)
        self.dtype = dtype
        self.count = sum(counts)
        self.address = memory.more(self.count)
        self._unit = min(dtype.itemsize, max(_UNITS))
        self._starts = [0, *np.cumsum(counts, dtype=np.int64) // self._unit]
        self._cupy = memory.device.cupy
        text = packing_source(self._unit)
        self._pack, self._unpack = (
            function_of(memory.device, f"{name}_{self._unit}", text, WORDS)
            for name in ("pack", "unpack")
        )

    def array(self) -> Any:
        """Return the room as an array of the device."""
        memory = self._cupy.cuda.UnownedMemory(self.address, self.count, None)
        pointer = self._cupy.cuda.MemoryPointer(memory, 0)
        return self._cupy.ndarray((self.count // self.dtype.itemsize,), self.dtype, pointer)

    def pack(self, stream: Any, addresses: Sequence[int]) -> None:
        """Copy the arrays of a message, given by addresses, into the buffer."""
        self._moved(self._pack, stream, addresses)

    def unpack(self, stream: Any, addresses: Sequence[int]) -> None:
        """Copy the buffer to the arrays' addresses."""
        self._moved(self._unpack, stream, addresses)

    def _moved(self, function: int, stream: Any, addresses: Sequence[int]) -> None:
        words = np.zeros(WORDS, np.int64)
        table = [
            self.address, len(self.members), *self._starts,
            *(addresses[member] for member in self.members),
        ]
        words[: len(table)] = table
        blocks = -(-int(self._starts[-1]) // THREADS)
        KernelCall(function, (blocks, 1, 1), (THREADS, 1, 1), words, ())(stream)


def packs(memory: PlanMemory, values: Sequence[Value]) -> list[Packed]:
    """Return the small arrays of a message of several, which travel in others' places."""
    counts = [int(value.type.bytes) for value in values]
    return [
        Packed(memory, members, [counts[i] for i in members], values[0].type.dtype)
        for members in packs_of(counts)
    ]


def copying_source() -> str:
    """Return the kernel that copies arrays of bytes to as many other places."""
    return f"""
/* v: how many arrays; the first thread of each, and the end; their bytes, sources and targets. */
{_PIECE}
extern "C" __global__ void __launch_bounds__({THREADS}) copy_many
(const __grid_constant__ mg_arguments arguments)
{{
    const int count = (int)arguments.v[0];
    const int64_t *starts = arguments.v + 1, *sizes = starts + count + 1;
    const int64_t *from = sizes + count, *to = from + count;
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= starts[count]) return;
    const int64_t piece = piece_of(starts, count, at);
    const int64_t first = (at - starts[piece]) * {COPIED_AT_ONCE}, left = sizes[piece] - first;
    const char *source = (const char *)from[piece] + first;
    char *target = (char *)to[piece] + first;
    if (left >= {COPIED_AT_ONCE} && !(((int64_t)source | (int64_t)target) % {COPIED_AT_ONCE}))
        *(uint4 *)target = *(const uint4 *)source;
    else
        for (int i = 0; i < {COPIED_AT_ONCE} && i < left; i++) target[i] = source[i];
}}
"""


def copied(device: Any, moves: Sequence[tuple[int, int, int]], stream: Any) -> None:
    """Copy bytes from one place of a device to another; each move is a source, a target, a count.

    No target is another one's source.
    """
    needed = [move for move in moves if move[2] and move[0] != move[1]]
    for begin in range(0, len(needed), MOST_COPIED):
        some = needed[begin : begin + MOST_COPIED]
        sources, targets, counts = zip(*some, strict=True)
        threads = [-(-count // COPIED_AT_ONCE) for count in counts]
        starts = np.cumsum([0, *threads], dtype=np.int64)
        words = np.zeros(WORDS, np.int64)
        table = [len(some), *starts, *counts, *sources, *targets]
        words[: len(table)] = table
        function = function_of(device, "copy_many", copying_source(), WORDS)
        grid = (-(-int(starts[-1]) // THREADS), 1, 1)
        KernelCall(function, grid, (THREADS, 1, 1), words, ())(stream)
