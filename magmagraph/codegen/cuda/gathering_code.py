"""CUDA C of reading elements at positions that are computed: one thread for up to 16 bytes.

Elements are moved as they are, whatever their dtype: what lies behind one position is a row of
bytes, cut into the widest units that fit. All layouts are one: ``[before, extent, inside]`` is
read at ``positions`` of the middle axis, which gives ``[before, positions, inside]``.
"""

from __future__ import annotations

from typing import NamedTuple

from ..literals import checked

__all__ = ["WIDEST", "Gathering", "gathering_source", "settled", "widest"]

WIDEST = 16  # bytes that a thread moves

_UNITS = {
    1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "mg_vector<uint64_t, 2>",
}  # fmt: skip


class Gathering(NamedTuple):
    """One kernel.

    Attributes
    ----------
    unit
        Bytes that a thread moves.
    positions
        The C type of the positions.
    wraps
        Whether positions outside are taken modulo the extent, instead of the nearest one.
    wide
        Whether numbers of units need 64 bits.
    """

    unit: int
    positions: str
    wraps: bool
    wide: bool

    @property
    def name(self) -> str:
        """The kernel's name."""
        mode = "wrap" if self.wraps else "clip"
        size = "wide" if self.wide else "narrow"
        return f"gather_{mode}_{self.positions}_{self.unit}_{size}"


def widest(inside: int, itemsize: int) -> int:
    """Return how many adjacent elements a thread copies, so that rows are copied whole.

    Examples
    --------
    >>> widest(64, 4), widest(6, 4), widest(3, 4)
    (4, 2, 1)
    """
    most = max(1, WIDEST // itemsize)
    while inside % most:
        most //= 2
    return most


def settled(wraps: bool) -> str:
    """Return the function that puts a position into an axis."""
    inside = (
        "at %= extent; return at < 0 ? at + extent : at;"
        if wraps
        else "if (at < 0) at += extent; return at < 0 ? 0 : at < extent ? at : extent - 1;"
    )
    return f"""
static __device__ __forceinline__ int64_t settled(int64_t at, int64_t extent)
{{
    {inside}
}}
"""


def gathering_source(gathering: Gathering) -> str:
    """Return the kernel, to be completed by the prelude."""
    checked(gathering)
    index = "int64_t" if gathering.wide else "uint32_t"
    return f"""
typedef {index} idx;
typedef {_UNITS[gathering.unit]} T;
typedef {gathering.positions} I;
{settled(gathering.wraps)}
extern "C" __global__ void __launch_bounds__(256) {gathering.name}
(const __grid_constant__ mg_arguments arguments)
{{
    const T *from = (const T *)arguments.v[0];
    const I *positions = (const I *)arguments.v[1];
    T *result = (T *)arguments.v[2];
    const idx total = (idx)arguments.v[3], count = (idx)arguments.v[4];
    const int64_t extent = arguments.v[5];
    const idx inside = (idx)arguments.v[6], step = (idx)gridDim.x * blockDim.x;
    mg_begin();
    for (idx at = (idx)blockIdx.x * blockDim.x + threadIdx.x; at < total; at += step) {{
        const idx row = at / inside, before = row / count;
        const idx place = (idx)settled((int64_t)positions[row - before * count], extent);
        result[at] = from[(before * (idx)extent + place) * inside + (at - row * inside)];
    }}
}}
"""
