"""CUDA C of rows that are combined at computed positions, in one order whatever the timing.

Nothing is added atomically. Positions are sorted, each with the number of its row
(`ordering_code`). Then threads take pieces of the sorted list, for each column: a run of equal
positions that begins and ends in a piece is a row of the result; what reaches over a piece's ends
is kept, and combined, in order, by a last launch. So where rows replace what was there, the last
one stays.
"""

from __future__ import annotations

from typing import NamedTuple

from ..literals import checked

__all__ = ["HALVES_OF", "THREADS", "Scattering", "scattering_source", "types_of"]

THREADS = 128
_AHEAD = 8  # rows that a thread reads before it adds the first
_TYPES = {
    "float64": ("double",) * 2, "float32": ("float",) * 2,
    "float16": ("uint16_t", "float"), "bfloat16": ("uint16_t", "float"),
}  # fmt: skip
HALVES_OF = {"float16": "half", "bfloat16": "brain"}
# What rows do at a position: to the rows before them, and the result of none. NaN stays NaN.
_COMBINED = {
    "add": "{a} + {v}",
    "multiply": "{a} * {v}",
    "set": "{v}",
    "min": "({a} != {a} || {a} < {v} ? {a} : {v})",
    "max": "({a} != {a} || {a} > {v} ? {a} : {v})",
}


class Scattering(NamedTuple):
    """The kernels that combine rows in the order of sorted positions.

    Attributes
    ----------
    dtype
        Of the rows.
    width
        Neighbouring columns of a thread.
    adds, scaled
        Whether what rows make is combined with what the result holds, and multiplied by a number
        before.
    how
        What rows do: "add", "multiply", "min", "max", or "set", where the last one stays.
    """

    dtype: str
    width: int
    adds: bool
    scaled: bool
    how: str = "add"

    @property
    def name(self) -> str:
        """How the kernels' names begin."""
        how = ("into" if self.adds else "new") + ("_scaled" if self.scaled else "")
        return f"scatter_{self.how}_{how}_{self.dtype}_{self.width}"


def types_of(dtype: str) -> tuple[str, str]:
    """Return the C types of elements in memory, and of their sums."""
    return _TYPES.get(dtype, (f"{dtype}_t",) * 2)


def _of_none(how: str, dtype: str) -> str:
    """Return what no row makes: any row combined with it is the row."""
    if how in ("add", "set", "multiply"):
        return "1" if how == "multiply" else "0"
    if "float" in dtype:
        return "INFINITY" if how == "min" else "-INFINITY"
    if how == "max" and dtype.startswith("u"):
        return "0"
    return f"{dtype.upper()}_{'MAX' if how == 'min' else 'MIN'}"


def scattering_source(scattering: Scattering) -> str:
    """Return the kernels `_pieces` and `_ends`, to be completed by the prelude."""
    checked(scattering)
    storage, real = types_of(scattering.dtype)
    half = HALVES_OF.get(scattering.dtype)
    load = f"mg_{half}_to_float" if half else ""
    store = f"mg_float_to_{half}" if half else ""
    factor = "*(const T *)arguments.v[4]" if scattering.scaled else "1"
    scale = f"const R factor = (R){load}({factor});" if scattering.scaled else ""
    value = "factor * sum[j]" if scattering.scaled else "sum[j]"
    combined = _COMBINED[scattering.how]
    if scattering.adds:
        value = combined.format(a=f"(R){load}(made.x[j])", v=value)
    before = "made = *target;" if scattering.adds else ""
    each = "for (int j = 0; j < W; j++)"
    none = _of_none(scattering.how, scattering.dtype)
    row = combined.format(a="sum[j]", v="row")
    part_of_run = combined.format(a="sum[j]", v="part.x[j]")
    arguments = f"""
    const uint64_t *sorted = (const uint64_t *)arguments.v[0];
    V *result = (V *)arguments.v[2];
    RV *parts = (RV *)arguments.v[3];
    const int64_t count = arguments.v[5], piece_size = arguments.v[6], pieces = arguments.v[7];
    const int64_t extent = arguments.v[8], inside = arguments.v[9], columns = arguments.v[10];
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    mg_begin();
    {scale}
    const int64_t piece = thread / columns, column = thread - piece * columns;
    if (piece >= pieces) return;
    const int64_t before = column / inside, place = column - before * inside;
    const int64_t begin = piece * piece_size;
    const int64_t end = begin + piece_size < count ? begin + piece_size : count;
    const int64_t previous = begin ? (int64_t)(sorted[begin - 1] >> 32) : -1;
    const int64_t next = end < count ? (int64_t)(sorted[end] >> 32) : -1;"""
    return f"""
typedef {storage} T;
typedef {real} R;
#define W {scattering.width}
typedef mg_vector<T, W> V;
typedef mg_vector<R, W> RV;
#define WRITE(key) {{ \\
    V *target = result + (before * extent + (key)) * inside + place; \\
    V made; {before} \\
    {each} made.x[j] = (T){store}({value}); \\
    *target = made; }}
#define KEEP(which) {{ \\
    RV made; {each} made.x[j] = sum[j]; \\
    parts[((which) * pieces + piece) * columns + column] = made; }}
extern "C" __global__ void __launch_bounds__({THREADS}) {scattering.name}_pieces
(const __grid_constant__ mg_arguments arguments)
{{
    const V *values = (const V *)arguments.v[1];
{arguments}
    int64_t key = (int64_t)(sorted[begin] >> 32);
    bool reaches_back = key == previous;
    R sum[W];
    {each} sum[j] = {none};
    for (int64_t first = begin; first < end; first += {_AHEAD}) {{
        uint64_t entries[{_AHEAD}];
        V rows[{_AHEAD}];
#pragma unroll
        for (int i = 0; i < {_AHEAD}; i++)
            entries[i] = sorted[first + i < end ? first + i : end - 1];
#pragma unroll
        for (int i = 0; i < {_AHEAD}; i++)
            rows[i] = values[(before * count + (int64_t)(uint32_t)entries[i]) * inside + place];
#pragma unroll
        for (int i = 0; i < {_AHEAD}; i++) {{
            if (first + i >= end) break;
            const int64_t other = (int64_t)(entries[i] >> 32);
            if (other != key) {{
                if (reaches_back) KEEP(0) else WRITE(key)
                reaches_back = false;
                key = other;
                {each} sum[j] = {none};
            }}
            {each} {{ const R row = (R){load}(rows[i].x[j]); sum[j] = {row}; }}
        }}
    }}
    if (reaches_back) KEEP(0) else if (key == next) KEEP(1) else WRITE(key)
}}
extern "C" __global__ void __launch_bounds__({THREADS}) {scattering.name}_ends
(const __grid_constant__ mg_arguments arguments)
{{
{arguments}
    const int64_t key = (int64_t)(sorted[end - 1] >> 32);
    if (key != next || ((int64_t)(sorted[begin] >> 32) == key && previous == key)) return;
    int64_t low = piece + 1, high = pieces;  // pieces that begin with the same position
    while (low < high) {{
        const int64_t middle = (low + high) / 2;
        const int64_t other = (int64_t)(sorted[middle * piece_size] >> 32);
        if (other == key) low = middle + 1; else high = middle;
    }}
    R sum[W];
    const RV mine = parts[(pieces + piece) * columns + column];
    {each} sum[j] = mine.x[j];
#pragma unroll 8
    for (int64_t other = piece + 1; other < low; other++) {{
        const RV part = parts[other * columns + column];
        {each} sum[j] = {part_of_run};
    }}
    WRITE(key)
}}
"""
