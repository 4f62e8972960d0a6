"""CUDA C that generated products share: fragments of factors, and tensor cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..prelude import complete

__all__ = ["complete_source"]

# The lanes of a warp have places g (of 8) and t (of 4) in the tensor cores' fragments. Which
# numbers of the contracted axis stand where does not matter as long as both factors agree: a lane
# takes 4t to 4t + 3 of sixteen. Nor does it matter which rows a tile has: those of a lane are
# neighbours in memory where the contracted axis is not. So lanes read 16 bytes at a time, and a
# warp brings what it multiplies itself: no warp waits for another.
_HELPERS = r"""
template <int LINES, bool ALONG, bool WIDE> struct mg_side
{
    /* LINES rows of a lane, four numbers of the contracted axis each, which lie ALONG memory. */
    static constexpr int BESIDE = LINES % 4 == 0 ? 4 : LINES % 2 == 0 ? 2 : 1;
    static constexpr int CHUNKS = ALONG ? 4 : 2 * LINES; /* of 16 bytes, that lie together */
    typedef mg_vector<float, ALONG ? 4 : BESIDE> piece;
    const float *from;
    int first, extent, depth, lane;

    static __device__ __forceinline__ int line(int l, int g)
    {
        return ALONG ? 8 * l + g : 8 * BESIDE * (l / BESIDE) + BESIDE * g + l % BESIDE;
    }
    __device__ __forceinline__ int place(int row, int k) const
    {
        return ALONG ? row * depth + k : k * extent + row;
    }
    /* Where a chunk is held, so that no two lanes read from one bank at a time. */
    static __device__ __forceinline__ int held_at(int number)
    {
        if (ALONG) return number;
        const int k = number / CHUNKS, c = number % CHUNKS, t = k >> 2;
        const int turn = CHUNKS >= 8 ? 2 * t : CHUNKS == 4 ? t & 2 : 0;
        return ((k & 3) * 4 + t) * CHUNKS + (c ^ turn);
    }
    /* Bring sixteens of the contracted axis, from k on and `apart` from each other: all STAGES, or
       each of TURNS from one's turn on. What lies outside of the factor is zero. */
    template <int STAGES, int TURNS>
    __device__ __forceinline__ void bring(
        float *held, int held_apart, int k, int apart, int turn) const
    {
        #pragma unroll
        for (int j = 0; j < LINES; j++) {
            const int number = j * 32 + lane;
            const int across = number / CHUNKS, along = number % CHUNKS * 4;
            const int row = first + (ALONG ? across : along);
            const int at = k + (ALONG ? along : across) + turn * apart;
            const float *here = from + place(row, at);
            const int64_t step = (int64_t)apart * TURNS * (ALONG ? 1 : extent);
            const unsigned to = (unsigned)__cvta_generic_to_shared(held + 4 * held_at(number))
                + 4 * turn * held_apart;
            #pragma unroll
            for (int s = 0; s * TURNS < STAGES; s++) {
                if ((s + 1) * TURNS > STAGES && turn + s * TURNS >= STAGES) continue;
                const int there = at + s * TURNS * apart;
                const unsigned place_of = to + 4 * s * TURNS * held_apart;
                if constexpr (WIDE) {
                    const int count = row < extent && there < depth ? 16 : 0;
                    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
                                 "r"(place_of), "l"(here + s * step), "r"(count) : "memory");
                } else {
                    #pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const bool valid = row + (ALONG ? 0 : i) < extent &&
                            there + (ALONG ? i : 0) < depth;
                        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::
                                     "r"(place_of + 4 * i), "l"(here + s * step + i),
                                     "r"(valid ? 4 : 0) : "memory");
                    }
                }
            }
        }
    }
    __device__ __forceinline__ void take(float (&x)[LINES][4], const float *held) const
    {
        const int g = lane >> 2, t = lane & 3;
        if constexpr (ALONG) {
            #pragma unroll
            for (int l = 0; l < LINES; l++) {
                const piece y = *(const piece *)(held + 4 * (l * 32 + lane));
                #pragma unroll
                for (int i = 0; i < 4; i++) x[l][i] = y.x[i];
            }
        } else {
            #pragma unroll
            for (int l = 0; l < LINES; l += BESIDE)
                #pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int row = line(l, g), number = (4 * t + i) * CHUNKS + row / 4;
                    const piece y = *(const piece *)(held + 4 * held_at(number) + row % 4);
                    #pragma unroll
                    for (int j = 0; j < BESIDE; j++) x[l + j][i] = y.x[j];
                }
        }
    }
    __device__ __forceinline__ int step() const { return ALONG ? 1 : extent; }
};
/* One element without tensor cores; it is called where those gave what is not finite. */
static __device__ __noinline__ float mg_plainly(
    const float *a, int step_a, const float *b, int step_b, int depth)
{
    float sum = 0;
    #pragma unroll 1
    for (int k = 0; k < depth; k++) sum = fmaf(a[k * step_a], b[k * step_b], sum);
    return sum;
}
static __device__ __forceinline__ void mg_split(float x, unsigned &high, unsigned &low)
{
    /* Rounded, so that what is left over, which the tensor cores cut, has either sign. */
    high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint(x - __uint_as_float(high));
}
static __device__ __forceinline__ void mg_round(float x, unsigned &high)
{
    /* Tensor cores cut what is behind 11 digits: half of the last one is added, away from zero. */
    const float binade = __uint_as_float(__float_as_uint(x) & 0xff800000u);
    high = __float_as_uint(fmaf(binade, 4.8828125e-4f, x));
}
static __device__ __forceinline__ void mg_multiply(
    float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static __device__ __forceinline__ void mg_multiply_first(
    float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}
static __device__ __forceinline__ void mg_arrived()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}
"""


def complete_source(products: Sequence[Any]) -> str:
    """Return one source with some products."""
    text = "\n".join([_HELPERS, *(product.source for product in products)])
    return complete(f"typedef int idx;\n{text}", max(product.words for product in products))
