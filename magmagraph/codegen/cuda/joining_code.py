"""CUDA C that copies pieces of rows: several arrays side by side, one among zeros, or one cut out.

The library's copies of rectangles take twice as long where rows are short (a row of 1.5 KB from
each of three arrays: 100 us for 151 MB on an H200).
"""

from __future__ import annotations

from typing import NamedTuple

from ..literals import checked

__all__ = ["AHEAD", "THREADS", "Joining", "joining_source"]

AHEAD = 4  # units that a thread reads before it writes the first
THREADS = 256


class Joining(NamedTuple):
    """One kernel.

    Attributes
    ----------
    parts
        How many pieces a row of the result has. Those without an address are zeros.
    unit
        Bytes that a thread copies at a time: they divide all places and lengths.
    wide
        Whether there are so many units that their numbers take 64 bits.
    """

    parts: int
    unit: int
    wide: bool

    @property
    def name(self) -> str:
        """The kernel's name."""
        return f"join_{self.parts}_{self.unit}{'_wide' * self.wide}"

    @property
    def words(self) -> int:
        """How many arguments it has: addresses, the result's rows, and four numbers a piece."""
        return 1 + self.parts + 2 + 4 * self.parts


def joining_source(joining: Joining) -> str:
    """Return the kernel, to be completed by the prelude."""
    checked(joining)
    return f"""
typedef mg_vector<uint8_t, {joining.unit}> U;
typedef {'int64_t' if joining.wide else 'uint32_t'} I;
#define AHEAD {AHEAD}
#define PARTS {joining.parts}
extern "C" __global__ void __launch_bounds__({THREADS}) {joining.name}
(const __grid_constant__ mg_arguments arguments)
{{
    const int64_t *v = arguments.v;
    U *out = (U *)v[0];
    const int part = blockIdx.y;
    const U *source = (const U *)v[1 + part];
    const I width = (I)v[PARTS + 1], rows = (I)v[PARTS + 2];
    const int64_t *place = v + PARTS + 3 + 4 * part;
    const I at = (I)place[0], count = (I)place[1], first = (I)place[2], row = (I)place[3];
    const I total = rows * count, step = (I)gridDim.x * {THREADS};
    mg_begin();
    for (I i = (I)blockIdx.x * {THREADS} + threadIdx.x; i < total; i += AHEAD * step) {{
        U units[AHEAD];
        I to[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {{
            const I unit = i + k * step;
            const I line = unit / count, own = unit - line * count;
            to[k] = line * width + at + own;
            units[k] = U{{}};
            if (unit < total && source) units[k] = source[first + line * row + own];
        }}
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {{
            if (i + k * step < total) out[to[k]] = units[k];
        }}
    }}
}}
"""
