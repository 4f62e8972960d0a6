"""CUDA C of integers added up at computed positions: their sums are the same in any order.

So they are added atomically. Where all results fit, a block adds into copies of its own in shared
memory, which it adds to the result at the end: neighbouring lanes have copies of their own, for
they often meet at one position. 64 bits are two words there, the carry of the lower one is added
to the upper one. Elsewhere each integer is added to the result itself.
"""

from __future__ import annotations

from typing import NamedTuple

from ..literals import checked
from .gathering_code import settled

__all__ = ["AHEAD", "THREADS", "WORDS", "Counting", "counting_source"]

AHEAD = 4  # integers that a thread reads before it adds the first
THREADS = 512
WORDS = 8


class Counting(NamedTuple):
    """One kernel.

    Attributes
    ----------
    bits
        Of the integers: 32 or 64. Signed ones are added as unsigned ones.
    positions
        The C type of the positions.
    wraps
        Whether positions outside are taken modulo the extent, instead of the nearest one.
    copies
        Of all results in shared memory, a power of two; 0 where they do not fit.
    """

    bits: int
    positions: str
    wraps: bool
    copies: int

    @property
    def name(self) -> str:
        """The kernel's name."""
        mode = "wrap" if self.wraps else "clip"
        return f"count_{mode}_{self.positions}_{self.bits}_{self.copies}"


# Additions in shared memory, where the upper words of 64 bits are behind all lower ones.
_ADDED = {
    32: "atomicAdd(own + cell * COPIES + copy, values[i]);",
    64: """uint32_t *const to = own + cell * COPIES + copy;
            const uint32_t low = (uint32_t)values[i], old = atomicAdd(to, low);
            const uint32_t high = (uint32_t)(values[i] >> 32) + (old + low < low);
            if (high) atomicAdd(to + cells * COPIES, high);""",
}
_SUM = {
    32: "own[cell * COPIES + c]",
    64: "own[cell * COPIES + c] + ((N)own[(cells + cell) * COPIES + c] << 32)",
}


def counting_source(counting: Counting) -> str:
    """Return the kernel, to be completed by the prelude."""
    checked(counting)
    shared, bits = counting.copies > 0, counting.bits
    before = after = ""
    added = "atomicAdd(out + cell, values[i]);"
    if shared:
        added = _ADDED[bits]
        before = f"""
    extern __shared__ uint32_t own[];
    const int copy = threadIdx.x % COPIES;
    for (int64_t i = threadIdx.x; i < cells * COPIES * {bits // 32}; i += THREADS) own[i] = 0;
    __syncthreads();"""
        after = f"""
    __syncthreads();
    for (int64_t cell = threadIdx.x; cell < cells; cell += THREADS) {{
        N sum = 0;
        for (int c = 0; c < COPIES; c++) sum += {_SUM[bits]};
        if (sum) atomicAdd(out + cell, sum);
    }}"""
    return f"""
typedef {'unsigned int' if bits == 32 else 'unsigned long long'} N;
typedef {counting.positions} I;
#define THREADS {THREADS}
#define COPIES {counting.copies}
#define AHEAD {AHEAD}
{settled(counting.wraps)}
extern "C" __global__ void __launch_bounds__(THREADS) {counting.name}
(const __grid_constant__ mg_arguments arguments)
{{
    const N *x = (const N *)arguments.v[0];
    const I *positions = (const I *)arguments.v[1];
    N *out = (N *)arguments.v[2];
    const int64_t total = arguments.v[3], count = arguments.v[4], extent = arguments.v[5];
    const int64_t inside = arguments.v[6], cells = arguments.v[7];
    const int64_t step = (int64_t)gridDim.x * THREADS;{before}
    mg_begin();
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < total;
         at += AHEAD * step) {{
        N values[AHEAD];
        int64_t places[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {{
            const int64_t own_at = at + i * step;
            const bool there = own_at < total;
            const int64_t row = !there ? 0 : inside == 1 ? own_at : own_at / inside;
            const int64_t slab = row < count ? 0 : row / count;
            values[i] = there ? x[own_at] : 0;
            const int64_t key = settled((int64_t)positions[row - slab * count], extent);
            places[i] = (slab * extent + key) * inside + (there ? own_at - row * inside : 0);
        }}
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {{
            const int64_t cell = places[i];
            if (!values[i]) continue;
            {added}
        }}
    }}{after}
}}
"""
