"""C that joins the lanes of a vector: the accumulators of a loop that `folds` wrote."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["LANES"]

# Of a vector of 32 or 64 bytes, of which each lane has an accumulator.
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
    # Sums of blocks, in double: most rows are one block, and take none of this.
    "lanes_flush": """
__attribute__((noinline)) void mg_lanes_flush_@s(double *whole, @T *part, int first)
{
    #pragma omp simd
    for (int l = 0; l < mg_lanes_@s; l++) {
        whole[l] = (first ? 0.0 : whole[l]) + (double)part[l];
        part[l] = 0;
    }
}""",
    "lanes_total": """
__attribute__((noinline)) double mg_lanes_total_@s(const double *whole)
{
    double total = 0;
    for (int l = 0; l < mg_lanes_@s; l++) total += whole[l];
    return total;
}""",
    # The largest bits without a sign: above those of infinity, a NaN was seen. No mask is needed.
    "lanes_seen": """
int@bits_t mg_lanes_seen_@s(int@bits_t seen, @T value)
{
    union { @T value; int@bits_t key; } size = {.value = value};
    size.key &= INT@bits_MAX;
    return size.key > seen ? size.key : seen;
}""",
    # Floats are ordered as integers are, below zero the other way round: no branch of choices. NaN
    # is made the last of all.
    **{
        f"lanes_{name}": f"""
@T mg_lanes_{name}_@s(const @T *part, const int@bits_t *seen)
{{
    enum {{ HALF = 16 / sizeof(@T) }};
    union {{ @T value; int@bits_t key; }} top = {{.value = INFINITY}},
        best[MG_LANE_BYTES / sizeof(@T)];
    #pragma omp simd
    for (int l = 0; l < mg_lanes_@s; l++) {{
        best[l].value = part[l];
        best[l].key ^= (int@bits_t)((uint@bits_t)(best[l].key >> (@bits - 1)) >> 1);
        best[l].key = seen[l] > top.key ? {last} : best[l].key;
    }}
#if MG_LANE_BYTES == 64
    #pragma omp simd
    for (int l = 0; l < 2 * HALF; l++) {{
        const int@bits_t other = best[l + 2 * HALF].key;
        best[l].key = best[l].key {sign} other ? best[l].key : other;
    }}
#endif
    #pragma omp simd
    for (int l = 0; l < HALF; l++) {{
        const int@bits_t other = best[l + HALF].key;
        best[l].key = best[l].key {sign} other ? best[l].key : other;
    }}
    for (int l = 1; l < HALF; l++)
        best[0].key = best[l].key {sign} best[0].key ? best[l].key : best[0].key;
    best[0].key ^= (int@bits_t)((uint@bits_t)(best[0].key >> (@bits - 1)) >> 1);
    return best[0].value;
}}"""
        for name, sign, last in (
            ("maximum", ">", "INT@bits_MAX"), ("minimum", "<", "INT@bits_MIN")
        )
    },
}
"""Definitions by name, with ``@T``, ``@s`` and ``@bits`` for the type."""
