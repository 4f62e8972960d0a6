"""C for a group of lanes as one value: GNU C's vectors, as wide as the processor's.

Operators work on groups as they do on numbers, so that the compiler has nothing to vectorize. What
has no operator is a function here, by the instruction where there is one.

``y / (x sqrt(x))`` and ``y / sqrt(x)`` need neither root nor quotient, which one unit computes one
after the other: r, an approximation of ``x**-0.5`` to 14 bits, leaves ``d = 1 - x r**2``, and
``x**-0.5 = r (1 - d)**-0.5``, ``x**-1.5 = r**3 (1 - d)**-1.5`` exactly. Of the binomial series
``1 + d / 2`` and ``1 + 3 d / 2`` are taken: the next terms, ``3 d**2 / 8`` and ``15 d**2 / 8``, are
below ``2**-25`` for ``|d|`` up to ``2**-13``. r**2 is rounded by a factor of ``1 + e``, and d holds
``d - e``: what that does to the result is half of it. Where r is infinite or 0, d is no number:
anything small and positive takes its place, and r alone tells the result.

Where ``y / (x sqrt(x))`` is but multiplied on its way to a sum, it is computed without a factor of
3/2, which the sum is multiplied by: ``1 + 3 d / 2`` is that times ``5/3 - x r**2``, one operation
instead of three. The factor is one over what float32's 5/3 leaves less one: exact for ``d = 0``.

The largest errors seen over 2**24 positive x with random y are 1.7 units in the last place (``y /
sqrt(x)``; 1.5 by root and quotient), 2.4 (2.4), and 3.3 where the factor is left to sums (the mean
square root of all 0.66 of a unit, 0.55 and 0.53). Where ``x sqrt(x)`` is subnormal, 0 or infinite
though x is neither, root and quotient lose digits; here they stay, but for those that a subnormal y
has not.
"""

from __future__ import annotations

from collections.abc import Mapping

from .rationals import GROUP_EXPONENTIALS

__all__ = ["GROUPS", "GROUP_TYPES"]

GROUP_TYPES = """
typedef float mg_group_f32 __attribute__((vector_size(MG_LANE_BYTES)));
typedef double mg_group_f64 __attribute__((vector_size(MG_LANE_BYTES)));
typedef int32_t mg_group_i32 __attribute__((vector_size(MG_LANE_BYTES)));
typedef float mg_anywhere_f32 __attribute__((vector_size(MG_LANE_BYTES), aligned(4), may_alias));
#if defined(MG_GROUP)
#elif defined(__GNUC__) && !defined(__clang__) && defined(__AVX512DQ__) && MG_LANE_BYTES == 64
#define MG_GROUP 512
#elif defined(__GNUC__) && !defined(__clang__) && defined(__FMA__) && defined(__AVX2__) \\
    && MG_LANE_BYTES == 32
#define MG_GROUP 256
#else
#define MG_GROUP 0
#endif
enum { mg_staged = MG_GROUP == 512 }; /* enough registers for several groups in a loop */
#define MG_FIVE_THIRDS 1.66666663f
#if MG_LANE_BYTES == 64
#define MG_LANE_NUMBERS (mg_group_i32){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
#else
#define MG_LANE_NUMBERS (mg_group_i32){0, 1, 2, 3, 4, 5, 6, 7}
#endif
"""
"""Types of groups; ``MG_GROUP`` is the bits of a vector whose instructions are known, or 0."""

GROUPS: Mapping[str, str] = {
    "mg_group_all_f32": "mg_group_f32 mg_group_all_f32(float x) { return x - (mg_group_f32){0}; }",
    "mg_group_load_f32": """
mg_group_f32 mg_group_load_f32(const float *from) { return *(const mg_anywhere_f32 *)from; }""",
    "mg_group_store_f32": """
void mg_group_store_f32(float *to, mg_group_f32 x) { *(mg_anywhere_f32 *)to = x; }""",
    # Of what lies beyond the rest nothing is read or written.
    "mg_group_load_rest_f32": """
mg_group_f32 mg_group_load_rest_f32(const float *from, int rest)
{
#if MG_GROUP == 512
    return __builtin_ia32_loadups512_mask(from, (mg_group_f32){0}, (1 << rest) - 1);
#elif MG_GROUP == 256
    return __builtin_ia32_maskloadps256((const mg_group_f32 *)from, MG_LANE_NUMBERS < rest);
#else
    mg_group_f32 x = {0};
    for (int l = 0; l < rest; l++) x[l] = from[l];
    return x;
#endif
}""",
    "mg_group_store_rest_f32": """
void mg_group_store_rest_f32(float *to, mg_group_f32 x, int rest)
{
#if MG_GROUP == 512
    __builtin_ia32_storeups512_mask(to, x, (1 << rest) - 1);
#elif MG_GROUP == 256
    __builtin_ia32_maskstoreps256((mg_group_f32 *)to, MG_LANE_NUMBERS < rest, x);
#else
    for (int l = 0; l < rest; l++) to[l] = x[l];
#endif
}""",
    "mg_group_rest_f32": """
mg_group_f32 mg_group_rest_f32(mg_group_f32 x, int rest)
{
    return (mg_group_f32)((mg_group_i32)x & (MG_LANE_NUMBERS < rest));
}""",
    "mg_group_rest_or_f32": """
mg_group_f32 mg_group_rest_or_f32(mg_group_f32 x, int rest, mg_group_f32 other)
{
    const mg_group_i32 inside = MG_LANE_NUMBERS < rest;
    return (mg_group_f32)(((mg_group_i32)x & inside) | ((mg_group_i32)other & ~inside));
}""",
    # a where it is the larger; b of two that are equal, or where one is NaN.
    **{
        f"mg_group_{name}_f32": f"""
mg_group_f32 mg_group_{name}_f32(mg_group_f32 a, mg_group_f32 b)
{{
#if MG_GROUP == 512
    return __builtin_ia32_{short}ps512_mask(a, b, a, -1, 4);
#elif MG_GROUP == 256
    return __builtin_ia32_{short}ps256(a, b);
#else
    const mg_group_i32 first = a {sign} b;
    return (mg_group_f32)(((mg_group_i32)a & first) | ((mg_group_i32)b & ~first));
#endif
}}"""
        for name, short, sign in (("larger", "max", ">"), ("smaller", "min", "<"))
    },
    **{
        f"mg_group_{name}_i32": f"""
mg_group_i32 mg_group_{name}_i32(mg_group_i32 a, mg_group_i32 b)
{{
#if MG_GROUP == 512
    return __builtin_ia32_p{short}sd512_mask(a, b, a, -1);
#elif MG_GROUP == 256
    return __builtin_ia32_p{short}sd256(a, b);
#else
    const mg_group_i32 first = a {sign} b;
    return (a & first) | (b & ~first);
#endif
}}"""
        for name, short, sign in (("larger", "max", ">"), ("smaller", "min", "<"))
    },
    # As mg_lanes_seen.
    "mg_group_seen_f32": """
mg_group_i32 mg_group_seen_f32(mg_group_i32 seen, mg_group_f32 x)
{
    return mg_group_larger_i32(seen, (mg_group_i32)x & INT32_MAX);
}""",
    # As mg_lanes_maximum and mg_lanes_minimum, in other words.
    **{
        f"mg_group_{name}_f32": f"""
float mg_group_{name}_f32(mg_group_f32 x, mg_group_i32 seen)
{{
#if MG_GROUP && __GNUC__ >= 12
    typedef int32_t half __attribute__((vector_size(32)));
    typedef int32_t quarter __attribute__((vector_size(16)));
    union {{ float value; int32_t key; }} best;
    mg_group_i32 key = (mg_group_i32)x;
    key ^= (key >> 31) & INT32_MAX;
    const mg_group_i32 none = seen > 0x7f800000;
    key = (key & ~none) | (none & {last});
#if MG_GROUP == 512
    const half h = __builtin_ia32_p{short}sd256(
        __builtin_shufflevector(key, key, 0, 1, 2, 3, 4, 5, 6, 7),
        __builtin_shufflevector(key, key, 8, 9, 10, 11, 12, 13, 14, 15));
#else
    const half h = key;
#endif
    quarter q = __builtin_ia32_p{short}sd128(
        __builtin_shufflevector(h, h, 0, 1, 2, 3), __builtin_shufflevector(h, h, 4, 5, 6, 7));
    q = __builtin_ia32_p{short}sd128(q, __builtin_shufflevector(q, q, 2, 3, 0, 1));
    q = __builtin_ia32_p{short}sd128(q, __builtin_shufflevector(q, q, 1, 0, 3, 2));
    best.key = q[0] ^ ((q[0] >> 31) & INT32_MAX);
    return best.value;
#else
    return mg_lanes_{name}_f32((const float *)&x, (const int32_t *)&seen);
#endif
}}"""
        for name, short, last in (
            ("maximum", "max", "INT32_MAX"), ("minimum", "min", "INT32_MIN")
        )
    },
    # In one rounding where that is one instruction.
    "mg_group_fma_f32": """
mg_group_f32 mg_group_fma_f32(mg_group_f32 a, mg_group_f32 b, mg_group_f32 c)
{
#if MG_GROUP == 512
    return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
#elif MG_GROUP == 256
    return __builtin_ia32_vfmaddps256(a, b, c);
#else
    return a * b + c;
#endif
}""",
    "mg_group_sqrt_f32": """
mg_group_f32 mg_group_sqrt_f32(mg_group_f32 x)
{
#if MG_GROUP == 512
    return __builtin_ia32_sqrtps512_mask(x, x, -1, 4);
#elif MG_GROUP == 256
    return __builtin_ia32_sqrtps256(x);
#else
    for (int l = 0; l < mg_lanes_f32; l++) x[l] = sqrtf(x[l]);
    return x;
#endif
}""",
    # As mg_lanes_sum, which adds in the same order.
    "mg_group_sum_f32": """
float mg_group_sum_f32(mg_group_f32 x)
{
#if MG_GROUP && __GNUC__ >= 12
    typedef float half __attribute__((vector_size(32)));
    typedef float quarter __attribute__((vector_size(16)));
#if MG_GROUP == 512
    const half h = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7)
        + __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
#else
    const half h = x;
#endif
    const quarter q = __builtin_shufflevector(h, h, 0, 1, 2, 3)
        + __builtin_shufflevector(h, h, 4, 5, 6, 7);
    return (q[0] + q[2]) + (q[1] + q[3]);
#else
    return mg_lanes_sum_f32((const float *)&x);
#endif
}""",
    # Sums of blocks, in double.
    "mg_group_flush_f32": """
void mg_group_flush_f32(mg_group_f64 *whole, mg_group_f32 *part)
{
#if MG_GROUP
    typedef float half __attribute__((vector_size(MG_LANE_BYTES / 2)));
    const union { mg_group_f32 all; half of[2]; } parts = {*part};
    for (int i = 0; i < 2; i++)
#if MG_GROUP == 512
        whole[i] += __builtin_ia32_cvtps2pd512_mask(parts.of[i], (mg_group_f64){0}, -1, 4);
#else
        whole[i] += __builtin_ia32_cvtps2pd256(parts.of[i]);
#endif
#else
    for (int l = 0; l < mg_lanes_f32; l++) ((double *)whole)[l] += (double)(*part)[l];
#endif
    *part = (mg_group_f32){0};
}""",
    "mg_group_total_f32": """
double mg_group_total_f32(const mg_group_f64 *whole)
{
    const mg_group_f64 all = whole[0] + whole[1];
#if MG_LANE_BYTES == 64
    return ((all[0] + all[4]) + (all[1] + all[5])) + ((all[2] + all[6]) + (all[3] + all[7]));
#else
    return (all[0] + all[2]) + (all[1] + all[3]);
#endif
}""",
    # y / sqrt(x); see above.
    "mg_group_over_root_f32": """
mg_group_f32 mg_group_over_root_f32(mg_group_f32 y, mg_group_f32 x)
{
#if MG_GROUP == 512
    const mg_group_f32 one = mg_group_all_f32(1.0f), most = mg_group_all_f32(0x1p-12f);
    const mg_group_f32 r = __builtin_ia32_rsqrt14ps512_mask(x, x, -1);
    mg_group_f32 d = mg_group_fma_f32(-(x * r), r, one);
    d = __builtin_ia32_rangeps512_mask(d, most, 6, d, -1, 4); /* the smaller of both, unsigned */
    return y * mg_group_fma_f32(r * 0.5f, d, r);
#else
    return y / mg_group_sqrt_f32(x);
#endif
}""",
    # y / (x sqrt(x)) of an x that is not -0; see above.
    "mg_group_over_root3_f32": """
mg_group_f32 mg_group_over_root3_f32(mg_group_f32 y, mg_group_f32 x)
{
#if MG_GROUP == 512
    const mg_group_f32 one = mg_group_all_f32(1.0f), most = mg_group_all_f32(0x1p-12f);
    const mg_group_f32 r = __builtin_ia32_rsqrt14ps512_mask(x, x, -1), s = r * r;
    mg_group_f32 d = mg_group_fma_f32(-x, s, one);
    d = __builtin_ia32_rangeps512_mask(d, most, 6, d, -1, 4); /* the smaller of both, unsigned */
    return (y * s) * mg_group_fma_f32(r * 1.5f, d, r);
#else
    return y / (x * mg_group_sqrt_f32(x));
#endif
}""",
    # The same but for a factor, mg_left_root3_f32; see above.
    "mg_group_part_root3_f32": """
mg_group_f32 mg_group_part_root3_f32(mg_group_f32 y, mg_group_f32 x)
{
#if MG_GROUP == 512
    const mg_group_f32 above = mg_group_all_f32(MG_FIVE_THIRDS);
    const mg_group_f32 r = __builtin_ia32_rsqrt14ps512_mask(x, x, -1), s = r * r;
    mg_group_f32 d = mg_group_fma_f32(-x, s, above);
    d = __builtin_ia32_rangeps512_mask(d, above, 6, d, -1, 4); /* the smaller of both, unsigned */
    return (y * s) * (r * d);
#else
    return mg_group_over_root3_f32(y, x);
#endif
}""",
    "mg_left_root3_f32": """
double mg_left_root3_f32(void)
{
#if MG_GROUP == 512
    return 1.0 / (MG_FIVE_THIRDS - 1.0);
#else
    return 1.0;
#endif
}""",
    **GROUP_EXPONENTIALS,
}
"""Functions of groups, by their names; `prelude` gives those that a source calls."""
