"""Products of int8 as steps of a program, with sums in int32."""

from __future__ import annotations

import functools

from ..compiler import Library
from ..support import function_address, load_kernels_together

__all__ = ["int8_gemm_step", "int8_source"]

LEVEL = "3"
_ROWS = _COLUMNS = 4  # sums of a block: 16 of 32 registers, and 4 more hold rows of b


def _block(rows: int) -> str:
    """Return the function of a block of some rows of a and four of b."""
    places = [(i, j) for i in range(rows) for j in range(_COLUMNS)]
    lines = [
        "TARGET",
        f"static void block_{rows}(const int8_t* a, const int8_t* b, int64_t k, "
        "const int32_t* shift, int32_t* out, int64_t n)",
        "{",
        "    const __m512i flip = _mm512_set1_epi8((char)0x80);",
        "    __m512i " + ", ".join(f"s{i}{j} = _mm512_setzero_si512()" for i, j in places) + ";",
        "    for (int64_t l = 0; l < k; l += 64) {",
        "        const __mmask64 mask = left(k - l);",
    ]
    lines += [
        f"        const __m512i b{j} = _mm512_maskz_loadu_epi8(mask, b + {j} * k + l);"
        for j in range(_COLUMNS)
    ]
    for i in range(rows):
        lines.append(
            f"        const __m512i a{i} = "
            f"_mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, a + {i} * k + l), flip);"
        )
        lines += [
            f"        s{i}{j} = _mm512_dpbusd_epi32(s{i}{j}, a{i}, b{j});"
            for j in range(_COLUMNS)
        ]
    lines.append("    }")
    lines += [
        f"    out[{i} * n + {j}] = _mm512_reduce_add_epi32(s{i}{j}) - shift[{j}];"
        for i, j in places
    ]
    return "\n".join([*lines, "}", ""])


@functools.lru_cache(maxsize=1)
def int8_source() -> str:
    """Return the C source of the products."""
    blocks = "".join(_block(rows) for rows in range(1, _ROWS + 1))
    names = ", ".join(f"block_{rows}" for rows in range(1, _ROWS + 1))
    return _SOURCE.replace("BLOCKS", blocks).replace("NAMES", names)


# vpdpbusd multiplies bytes without sign by bytes with sign: rows of a are read as a + 128, and
# 128 times the sum of b's row is subtracted. Which function runs is asked of the processor, not of
# the compiler: installed libraries are made for several processors.
_SOURCE = """
#include <string.h>

enum { MG_BLOCK = 4, MG_ROWS_BYTES = 1 << 17 };

typedef struct {
    int32_t* out;
    const int8_t *a, *b;
    int64_t m, n, k;
} int8_product;

static int32_t plain_sum(const int8_t* a, const int8_t* b, int64_t k)
{
    int32_t sum = 0;
    for (int64_t l = 0; l < k; l++) sum += (int32_t)a[l] * (int32_t)b[l];
    return sum;
}

static void plain_rows(const int8_product* p, int64_t i0, int64_t i1, int64_t j0, int64_t j1)
{
    for (int64_t j = j0; j < j1; j++)
        for (int64_t i = i0; i < i1; i++)
            p->out[i * p->n + j] = plain_sum(p->a + i * p->k, p->b + j * p->k, p->k);
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define MG_VNNI 1
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vnni")))

/* The lanes that hold something of so many bytes. */
TARGET
static inline __mmask64 left(int64_t bytes)
{
    return bytes < 64 ? ((__mmask64)1 << bytes) - 1 : ~(__mmask64)0;
}

BLOCKS
typedef void (*int8_block)(const int8_t*, const int8_t*, int64_t, const int32_t*, int32_t*,
                           int64_t);
static const int8_block int8_blocks[] = { NAMES };

/* 128 times the sums of four rows of b. */
TARGET
static void shifts(const int8_t* b, int64_t k, int32_t* shift)
{
    const __m512i half = _mm512_set1_epi8((char)0x80);
    for (int64_t j = 0; j < MG_BLOCK; j++, b += k) {
        __m512i sum = _mm512_setzero_si512();
        for (int64_t l = 0; l < k; l += 64) {
            sum = _mm512_dpbusd_epi32(sum, half, _mm512_maskz_loadu_epi8(left(k - l), b + l));
        }
        shift[j] = _mm512_reduce_add_epi32(sum);
    }
}

static void vnni_rows(const int8_product* p, int64_t i0, int64_t i1, int64_t j0, int64_t j1)
{
    int64_t j = j0;
    for (; j + MG_BLOCK <= j1; j += MG_BLOCK) {
        const int8_t* b = p->b + j * p->k;
        int32_t shift[MG_BLOCK];
        shifts(b, p->k, shift);
        for (int64_t i = i0, rows; i < i1; i += rows) {
            rows = i1 - i < MG_BLOCK ? i1 - i : MG_BLOCK;
            int8_blocks[rows - 1](p->a + i * p->k, b, p->k, shift, p->out + i * p->n + j, p->n);
        }
    }
    plain_rows(p, i0, i1, j, j1);
}
#endif

static void int8_part(void* context, int64_t thread, int64_t threads)
{
    const int8_product* p = context;
    /* Chunks of rows that stay in a cache; threads take columns, or of few columns rows. */
    int64_t j0, j1, first, last;
    int across = p->n >= 2 * MG_BLOCK * threads;
    mg_split(across ? p->n : p->m, MG_BLOCK, thread, threads, &first, &last);
    j0 = across ? first : 0, j1 = across ? last : p->n;
    int64_t begin = across ? 0 : first, end = across ? p->m : last;
    int64_t step = MG_ROWS_BYTES / (p->k + 1) / MG_BLOCK * MG_BLOCK;
    if (step < MG_BLOCK) step = MG_BLOCK;
    for (int64_t i = begin; i < end; i += step) {
        int64_t stop = i + step < end ? i + step : end;
#ifdef MG_VNNI
        if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw")) {
            vnni_rows(p, i, stop, j0, j1);
            continue;
        }
#endif
        plain_rows(p, i, stop, j0, j1);
    }
}

/* out, a, b, m, n, k: out = a @ b.T, all of them packed. */
void mg_int8_gemm(void** arguments)
{
    int8_product p = { arguments[0], arguments[1], arguments[2], (int64_t)arguments[3],
                       (int64_t)arguments[4], (int64_t)arguments[5] };
    if (p.m <= 0 || p.n <= 0) return;
    const int64_t work = p.m * p.n * p.k;
    mg_share(int8_part, &p, work >> 16, work / 16);
}
"""


@functools.lru_cache(maxsize=1)
def _library() -> Library:
    (library,) = load_kernels_together([int8_source()], [LEVEL])
    return library


def int8_gemm_step(out: int, a: int, b: int, m: int, n: int, k: int) -> tuple[int, list[int]]:
    """Return the step ``out = a @ b.T``.

    Parameters
    ----------
    out, a, b : int
        Addresses of int32 ``(m, n)``, int8 ``(m, k)`` and int8 ``(n, k)``, all packed.
    m, n, k : int
        The extents.

    Returns
    -------
    (int, list of int)
        Function and cells; 0 to 2 are the addresses.
    """
    return function_address(_library(), "mg_int8_gemm"), [out, a, b, m, n, k]
