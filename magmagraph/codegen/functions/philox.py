"""Philox4x32-10 in C: the same bits as `magmagraph.ops.random.philox`, element by element.

`SOURCE` holds static functions that a kernel may use in any order of elements:

- ``mg_random32(k0, k1, step, index)`` and ``mg_random64(k0, k1, step, index)``: the word of one
  element;
- ``mg_random32_row(out, k0, k1, step, first, count)`` and ``mg_random64_row``: a run of elements,
  with each block computed once (a quarter, or half, of the work). Positions are modulo 2^64.

The key words come from `magmagraph.ops.random.philox.stream_key`; a kernel takes them as arguments,
so that streams share one kernel.
"""

from __future__ import annotations

import numpy as np

from ...ops.random.philox import KEY_STEPS, MULTIPLIERS, ROUNDS, UINT64

_ROUND = """
    {
        const uint64_t first = (uint64_t)%(m0)#xu * c0, second = (uint64_t)%(m1)#xu * c2;
        c0 = (uint32_t)(second >> 32) ^ c1 ^ (k0 + %(round)du * %(w0)#xu);
        c1 = (uint32_t)second;
        c2 = (uint32_t)(first >> 32) ^ c3 ^ (k1 + %(round)du * %(w1)#xu);
        c3 = (uint32_t)first;
    }"""

# The rounds are written out: compilers vectorize a loop over elements only where its body has
# no loop of its own.
_ROUNDS = "".join(
    _ROUND
    % {
        "m0": MULTIPLIERS[0],
        "m1": MULTIPLIERS[1],
        "w0": KEY_STEPS[0],
        "w1": KEY_STEPS[1],
        "round": number,
    }
    for number in range(ROUNDS)
).lstrip("\n")

SOURCE = """#include <stdint.h>

#define MG_PHILOX_BLOCK(block, k0, k1, step) \\
    uint32_t c0 = (uint32_t)(block), c1 = (uint32_t)((uint64_t)(block) >> 32), \\
             c2 = (uint32_t)(step), c3 = (uint32_t)((uint64_t)(step) >> 32);

static inline uint32_t mg_random32(uint32_t k0, uint32_t k1, int64_t step, uint64_t index)
{
    MG_PHILOX_BLOCK(index >> 2, k0, k1, step)
{ROUNDS}
    const uint32_t low = (index & 1) ? c1 : c0, high = (index & 1) ? c3 : c2;
    return (index & 2) ? high : low;
}

static inline uint64_t mg_random64(uint32_t k0, uint32_t k1, int64_t step, uint64_t index)
{
    MG_PHILOX_BLOCK(index >> 1, k0, k1, step)
{ROUNDS}
    const uint32_t low = (index & 1) ? c2 : c0, high = (index & 1) ? c3 : c1;
    return (uint64_t)high << 32 | low;
}

static inline void mg_random32_row(uint32_t *restrict out, uint32_t k0, uint32_t k1,
                                   int64_t step, uint64_t first, uint64_t count)
{
    uint64_t done = 0;
    for (; done < count && ((first + done) & 3); done++)
        out[done] = mg_random32(k0, k1, step, first + done);
    const uint64_t start = first + done, blocks = (count - done) >> 2;
    #pragma omp simd
    for (uint64_t i = 0; i < blocks; i++) {
        MG_PHILOX_BLOCK((start + 4 * i) >> 2, k0, k1, step)
{ROUNDS}
        out[done + 4 * i] = c0;
        out[done + 4 * i + 1] = c1;
        out[done + 4 * i + 2] = c2;
        out[done + 4 * i + 3] = c3;
    }
    for (done += 4 * blocks; done < count; done++)
        out[done] = mg_random32(k0, k1, step, first + done);
}

static inline void mg_random64_row(uint64_t *restrict out, uint32_t k0, uint32_t k1,
                                   int64_t step, uint64_t first, uint64_t count)
{
    uint64_t done = 0;
    for (; done < count && ((first + done) & 1); done++)
        out[done] = mg_random64(k0, k1, step, first + done);
    const uint64_t start = first + done, blocks = (count - done) >> 1;
    #pragma omp simd
    for (uint64_t i = 0; i < blocks; i++) {
        MG_PHILOX_BLOCK((start + 2 * i) >> 1, k0, k1, step)
{ROUNDS}
        out[done + 2 * i] = (uint64_t)c1 << 32 | c0;
        out[done + 2 * i + 1] = (uint64_t)c3 << 32 | c2;
    }
    for (done += 2 * blocks; done < count; done++)
        out[done] = mg_random64(k0, k1, step, first + done);
}
""".replace("{ROUNDS}", _ROUNDS)


def element(dtype: np.dtype, key: tuple[str, str], step: str, index: str) -> str:
    """Return the C expression of one element's bits.

    Parameters
    ----------
    dtype
        uint32 or uint64: that of the random node.
    key, step, index
        C expressions: the two key words (uint32_t), the step (int64_t), the element's position
        in the whole array in row-major order (uint64_t).

    Examples
    --------
    >>> element(np.dtype("uint32"), ("k0", "k1"), "*step", "i")
    'mg_random32(k0, k1, *step, i)'
    """
    name = "mg_random64" if dtype == UINT64 else "mg_random32"
    return f"{name}({key[0]}, {key[1]}, {step}, {index})"
