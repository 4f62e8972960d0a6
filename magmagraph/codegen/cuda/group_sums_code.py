"""CUDA C of rows added up in a few groups, in one order whatever the timing.

A block takes as many rows as it has positions for in shared memory. It sorts the positions, each
with the number of its row, then threads take pieces of the sorted list, for each column: a run of
equal positions that begins and ends in a piece is a sum; what reaches back over the beginning of
a piece is kept, and added in order by the thread in whose piece the run begins. So each block has a
sum for every group, and a last launch adds these up in the order of the blocks.
"""

from __future__ import annotations

from typing import NamedTuple

from ..literals import checked
from .gathering_code import settled
from .ordering_code import ITEMS, sorted_in_block
from .scattering_code import HALVES_OF, types_of

__all__ = ["FINISHING", "SEGMENTS", "WORDS", "GroupSums", "group_sums_source"]

WORDS = 11
FINISHING = 512  # threads of a block of the last launch
SEGMENTS = 16  # of them, that share a result
_AHEAD = 8  # rows that a thread reads before it adds the first


class GroupSums(NamedTuple):
    """The kernels ``<name>_chunks`` and ``<name>_finish``.

    Attributes
    ----------
    dtype
        Of the rows.
    positions
        The C type of the positions.
    wraps
        Whether positions outside are taken modulo the extent, instead of the nearest one.
    length
        Rows of a block, a power of two.
    columns
        Threads side by side, each with `width` adjacent elements of a row; a power of two.
    width
        See `columns`.
    adds, scaled
        Whether sums are added to another array, and multiplied by a number before.
    """

    dtype: str
    positions: str
    wraps: bool
    length: int
    columns: int
    width: int
    adds: bool
    scaled: bool

    @property
    def threads(self) -> int:
        """Threads of a block of the first launch."""
        return self.length // ITEMS

    @property
    def name(self) -> str:
        """How the kernels' names begin."""
        mode = "wrap" if self.wraps else "clip"
        how = ("into" if self.adds else "new") + ("_scaled" if self.scaled else "")
        sizes = f"{self.length}_{self.columns}_{self.width}"
        return f"groups_{how}_{self.dtype}_{mode}_{self.positions}_{sizes}"


def group_sums_source(sums: GroupSums) -> str:
    """Return the kernels, to be completed by the prelude."""
    checked(sums)
    storage, real = types_of(sums.dtype)
    half = HALVES_OF.get(sums.dtype)
    load = f"mg_{half}_to_float" if half else ""
    store = f"mg_float_to_{half}" if half else ""
    functions, steps = sorted_in_block()
    value = "sum.x[j]"
    if sums.scaled:
        value = f"(R){load}(*(const T *)arguments.v[5]) * {value}"
    if sums.adds:
        value = f"(R){load}(made.x[j]) + {value}"
    before = "made = base[at];" if sums.adds else ""
    return f"""
typedef {storage} T;
typedef {real} R;
typedef {sums.positions} I;
typedef uint32_t E;
#define W {sums.width}
typedef mg_vector<T, W> V;
typedef mg_vector<R, W> RV;
#define ITEMS {ITEMS}
#define LENGTH {sums.length}
#define THREADS (LENGTH / ITEMS)
#define COLUMNS {sums.columns}
#define PIECES (THREADS / COLUMNS)
#define SIZE (LENGTH / PIECES)
#define BITS {sums.length.bit_length() - 1}
#define KEY(i) (held[AT(i)] >> BITS)
#define AT(i) ((i) + ((i) >> 5))
static __device__ __forceinline__ E last() {{ return UINT32_MAX; }}
static __device__ __forceinline__ bool less(E a, E b) {{ return a < b; }}
{settled(sums.wraps)}
{functions}
static __device__ __forceinline__ RV nothing()
{{
    RV sum;
    for (int j = 0; j < W; j++) sum.x[j] = 0;
    return sum;
}}
extern "C" __global__ void __launch_bounds__(THREADS) {sums.name}_chunks
(const __grid_constant__ mg_arguments arguments)
{{
    __shared__ E held[AT(LENGTH)];
    const V *values = (const V *)arguments.v[0];
    const I *positions = (const I *)arguments.v[1];
    RV *parts = (RV *)arguments.v[3], *kept = (RV *)arguments.v[4];
    const int64_t count = arguments.v[7], extent = arguments.v[8], inside = arguments.v[9];
    const int64_t begin = (int64_t)blockIdx.x * LENGTH;
    const int rows = (int)(count - begin < LENGTH ? count - begin : LENGTH);
    const int base = threadIdx.x * ITEMS, line_base = 0;
    parts += (int64_t)blockIdx.x * extent * inside;
    kept += (int64_t)blockIdx.x * THREADS;
    mg_begin();
    E some_keys[ITEMS];
#pragma unroll
    for (int n = 0; n < ITEMS; n++) {{
        const int at = n * THREADS + threadIdx.x;
        some_keys[n] = at < rows
            ? (E)settled((int64_t)positions[begin + at], extent) << BITS | (E)at : last();
    }}
#pragma unroll
    for (int n = 0; n < ITEMS; n++) held[AT(n * THREADS + threadIdx.x)] = some_keys[n];
    __syncthreads();
    {steps}
    // Groups without rows, which no thread comes to below.
    for (int group = threadIdx.x; group < extent; group += THREADS) {{
        int low = 0, high = rows;
        while (low < high) {{
            const int middle = (low + high) / 2;
            if ((int)KEY(middle) < group) low = middle + 1; else high = middle;
        }}
        if (low < rows && (int)KEY(low) == group) continue;
        for (int64_t i = 0; i < inside; i++) parts[group * inside + i] = nothing();
    }}
    const int piece = threadIdx.x / COLUMNS, first = piece * SIZE;
    const int end = first + SIZE < rows ? first + SIZE : rows;
    for (int64_t start = 0; start < inside; start += COLUMNS) {{
        const int64_t column = start + threadIdx.x % COLUMNS;
        RV sum = nothing();
        uint32_t key = 0;
        bool goes_on = false;
        if (first < rows && column < inside) {{
            key = KEY(first);
            bool reaches_back = first > 0 && KEY(first - 1) == key;
            for (int from = first; from < end; from += {_AHEAD}) {{
                E entries[{_AHEAD}];
                V some[{_AHEAD}];
#pragma unroll
                for (int i = 0; i < {_AHEAD}; i++)
                    entries[i] = held[AT(from + i < end ? from + i : end - 1)];
#pragma unroll
                for (int i = 0; i < {_AHEAD}; i++)
                    some[i] = values[(begin + (entries[i] & (LENGTH - 1))) * inside + column];
#pragma unroll
                for (int i = 0; i < {_AHEAD}; i++) {{
                    if (from + i >= end) break;
                    if (entries[i] >> BITS != key) {{
                        if (reaches_back) kept[threadIdx.x] = sum;
                        else parts[key * inside + column] = sum;
                        reaches_back = false;
                        key = entries[i] >> BITS;
                        sum = nothing();
                    }}
                    for (int j = 0; j < W; j++) sum.x[j] += (R){load}(some[i].x[j]);
                }}
            }}
            goes_on = !reaches_back && end < rows && KEY(end) == key;
            if (reaches_back) kept[threadIdx.x] = sum;
            else if (!goes_on) parts[key * inside + column] = sum;
        }}
        __syncthreads();
        if (goes_on) {{
            for (int next = piece + 1; next < PIECES; next++) {{
                if (next * SIZE >= rows || KEY(next * SIZE) != key) break;
                const RV more = kept[next * COLUMNS + threadIdx.x % COLUMNS];
                for (int j = 0; j < W; j++) sum.x[j] += more.x[j];
            }}
            parts[key * inside + column] = sum;
        }}
        __syncthreads();
    }}
}}
extern "C" __global__ void __launch_bounds__({FINISHING}) {sums.name}_finish
(const __grid_constant__ mg_arguments arguments)
{{
    __shared__ RV shared[{SEGMENTS}][{FINISHING // SEGMENTS}];
    V *out = (V *)arguments.v[2];
    const RV *parts = (const RV *)arguments.v[3];
    const V *base = (const V *)arguments.v[6];
    const int64_t total = arguments.v[8] * arguments.v[9], chunks = arguments.v[10];
    const int place = threadIdx.x % {FINISHING // SEGMENTS};
    const int segment = threadIdx.x / {FINISHING // SEGMENTS};
    const int64_t at = (int64_t)blockIdx.x * {FINISHING // SEGMENTS} + place;
    const int64_t each = (chunks + {SEGMENTS - 1}) / {SEGMENTS}, low = segment * each;
    const int64_t high = low + each < chunks ? low + each : chunks;
    mg_begin();
    RV sum = nothing();
    if (at < total) {{
#pragma unroll 8
        for (int64_t i = low; i < high; i++) {{
            const RV more = parts[i * total + at];
            for (int j = 0; j < W; j++) sum.x[j] += more.x[j];
        }}
    }}
    shared[segment][place] = sum;
    __syncthreads();
    if (segment > 0 || at >= total) return;
    for (int i = 1; i < {SEGMENTS}; i++)
        for (int j = 0; j < W; j++) sum.x[j] += shared[i][place].x[j];
    V made;
    {before}
    for (int j = 0; j < W; j++) made.x[j] = (T){store}({value});
    out[at] = made;
}}
"""
