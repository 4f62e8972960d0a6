"""C that joins the lanes of a vector: the accumulators of a loop that `folds` wrote."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["LANES"]

# Of a vector of 32 or 64 bytes, of which each lane has an accumulator; what was NaN is told beside.
LANES: Mapping[str, str] = {
    "lanes_sum": """
@T mg_lanes_sum_@s(const @T *part)
{
    enum { HALF = 16 / sizeof(@T) };
#if MG_LANE_BYTES == 64
    @T whole[2 * HALF];
    #pragma omp simd
    for (int l = 0; l < 2 * HALF; l++) whole[l] = part[l] + part[l + 2 * HALF];
    part = whole;
#endif
    @T sum[HALF];
    #pragma omp simd
    for (int l = 0; l < HALF; l++) sum[l] = part[l] + part[l + HALF];
    const @T first = sum[0] + sum[HALF / 2];
    return HALF == 2 ? first : first + (sum[1] + sum[HALF - 1]);
}""",
    # Floats are ordered as integers are, below zero the other way round: no branch of choices.
    **{
        f"lanes_{name}": f"""
@T mg_lanes_{name}_@s(const @T *part, const int@bits_t *nan)
{{
    enum {{ HALF = 16 / sizeof(@T) }};
    union {{ @T value; int@bits_t key; }} best[MG_LANE_BYTES / sizeof(@T)];
    int@bits_t bad[2 * HALF];
    #pragma omp simd
    for (int l = 0; l < mg_lanes_@s; l++) {{
        best[l].value = part[l];
        best[l].key ^= (int@bits_t)((uint@bits_t)(best[l].key >> (@bits - 1)) >> 1);
    }}
#if MG_LANE_BYTES == 64
    #pragma omp simd
    for (int l = 0; l < 2 * HALF; l++) {{
        const int@bits_t other = best[l + 2 * HALF].key;
        best[l].key = best[l].key {sign} other ? best[l].key : other;
        bad[l] = nan[l] | nan[l + 2 * HALF];
    }}
    nan = bad;
#endif
    #pragma omp simd
    for (int l = 0; l < HALF; l++) {{
        const int@bits_t other = best[l + HALF].key;
        best[l].key = best[l].key {sign} other ? best[l].key : other;
        bad[l] = nan[l] | nan[l + HALF];
    }}
    for (int l = 1; l < HALF; l++) {{
        best[0].key = best[l].key {sign} best[0].key ? best[l].key : best[0].key;
        bad[0] |= bad[l];
    }}
    best[0].key ^= (int@bits_t)((uint@bits_t)(best[0].key >> (@bits - 1)) >> 1);
    return bad[0] ? (@T)NAN : best[0].value;
}}"""
        for name, sign in (("maximum", ">"), ("minimum", "<"))
    },
}
"""Definitions by name, with ``@T``, ``@s`` and ``@bits`` for the type."""
