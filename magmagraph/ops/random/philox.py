"""Philox4x32-10: random bits as a function of a counter and a key, without any state.

J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
Ten rounds of multiplications mix a counter of four 32-bit words with a key of two. Since element
`i` needs nothing but its own position, any backend, any number of threads and any order of
evaluation gives the same bits.

The counter holds the element's block (two words) and the function's step (two words); the key is
made from seed, stream and part by one more application of the same function.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)  # the golden ratio and sqrt(3) - 1, in 32 bits
ROUNDS = 10
WORD = 0xFFFFFFFF
LONG = 0xFFFFFFFFFFFFFFFF

UINT32 = np.dtype(np.uint32)
UINT64 = np.dtype(np.uint64)


def philox(
    xp: Any, counter: tuple[Any, Any, Any, Any], key: tuple[int, int]
) -> tuple[Any, Any, Any, Any]:
    """Return the four words (uint64 arrays below 2**32) that belong to counters and a key.

    xp: numpy or cupy.
    counter: Four uint64 arrays below 2**32, broadcast against each other.
    key: Two ints below 2**32.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    m0, m1 = (xp.uint64(m) for m in MULTIPLIERS)
    word, half = xp.uint64(WORD), xp.uint64(32)
    for _ in range(ROUNDS):
        first, second = m0 * c0, m1 * c2
        c0 = (second >> half) ^ c1 ^ xp.uint64(k0)
        c1 = second & word
        c2 = (first >> half) ^ c3 ^ xp.uint64(k1)
        c3 = first & word
        k0, k1 = (k0 + KEY_STEPS[0]) & WORD, (k1 + KEY_STEPS[1]) & WORD
    return c0, c1, c2, c3


def stream_key(seed: int, stream: int, part: int) -> tuple[int, int]:
    """Return the key of one source of bits.

    seed, stream: Below 2**64.
    part: Tells the sources of one random node apart (a normal number takes two).

    Examples
    --------
    >>> [f"{word:08x}" for word in stream_key(0, 0, 0)]
    ['6627e8d5', 'e169c58d']
    """
    counter = (stream & WORD, stream >> 32, part, 0)
    words = philox(
        np,
        tuple(np.array([word], dtype=np.uint64) for word in counter),  # type: ignore[arg-type]
        (seed & WORD, seed >> 32),
    )
    return int(words[0][0]), int(words[1][0])


def bits(
    xp: Any, key: tuple[int, int], step: int, count: int, dtype: np.dtype, first: int = 0
) -> Any:
    """Return `count` random words, of 32 or of 64 bits.

    Word `i` of 32 bits is word ``i % 4`` of block ``i // 4``; word `i` of 64 bits is made of
    words ``2 * (i % 2)`` (low half) and the next one of block ``i // 2``.

    xp: numpy or cupy.
    key: From `stream_key`.
    step: The function's step.
    count: How many.
    dtype: uint32 or uint64.
    first: The number of the first word. Numbers of words and steps are taken modulo 2**64, as
        kernels do, so that negative ones count back from there.
    """
    wide = dtype == UINT64
    per_block = 2 if wide else 4
    begin, skipped = divmod(first & LONG, per_block)
    block = xp.arange(-(-(skipped + count) // per_block), dtype=np.uint64)
    block = (block + xp.uint64(begin)) & xp.uint64(LONG // per_block)
    half, word = xp.uint64(32), xp.uint64(WORD)
    moment = step & LONG
    zero = xp.zeros_like(block)
    counter = (
        block & word,
        block >> half,
        zero + xp.uint64(moment & WORD),
        zero + xp.uint64(moment >> 32),
    )
    words = philox(xp, counter, key)
    if wide:
        pairs = [words[0] | (words[1] << half), words[2] | (words[3] << half)]
        return xp.stack(pairs, axis=-1).reshape(-1)[skipped : skipped + count]
    return xp.stack(words, axis=-1).reshape(-1)[skipped : skipped + count].astype(np.uint32)
