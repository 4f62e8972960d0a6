"""CUDA C of sorts along an axis, and of the positions that sort.

Elements become unsigned integers in the same order, NaN the largest of all; where positions are
wanted, an element's own one stands behind it, so that no two records are equal and equal elements
stay in their order. A thread sorts a few records by a network of exchanges. Runs are then merged in
pairs, at first in shared memory: each thread finds by bisection where in the two runs what it
writes begins, and merges as many records as it has. Lines longer than a block holds are sorted in
tiles, which later launches merge through memory.

Of long lines the first few of an order are selected, not sorted: a block counts the digits of its
line's keys, from the highest on, until the wanted records are those up to one prefix, or until all
digits are known. Then it collects them and sorts them alone. If there are few lines, each is
divided into parts, and the first of all parts' first ones are selected.

All layouts are ``[outer, count, inner]``, sorted along the middle axis.
"""

from __future__ import annotations

from typing import NamedTuple

from ..literals import checked
from .gathering_code import settled
from .scattering_code import HALVES_OF, types_of

__all__ = [
    "ITEMS", "LARGEST", "SEARCH_WORDS", "SELECTING", "SELECT_WORDS", "WORDS", "Ordering",
    "Searching", "Selecting", "Sorting", "order_source", "record_bytes", "search_source",
    "select_source", "selects", "sorted_in_block", "sorting_source",
]

ITEMS = 8  # records of a thread
WORDS = 8
SEARCH_WORDS = 5
SELECT_WORDS = 7
LARGEST = {4: 512, 8: 512, 16: 256}  # threads whose records shared memory holds, by their bytes
SELECTED = 1024  # positions of a long line, at most, that are selected; more are sorted
SELECTING = 1024  # threads of a multiprocessor, at least, whose registers selections leave room for
_DIGIT = 11  # bits of a key that one reading of a line decides


class Ordering(NamedTuple):
    """The kernels of one sort.

    ``<name>_whole`` sorts lines that a block holds. Of longer ones, ``_tile`` sorts tiles,
    ``_merge`` merges pairs of runs, and ``_last`` the last pair.

    Attributes
    ----------
    dtype
        Of the elements.
    positions
        Whether the positions that sort are the result, not the elements.
    threads
        Of a block.
    lanes
        Threads that share a line in a block, a power of two.
    tiled
        Whether lines are longer than a block holds; `lanes` are then all of its threads.
    largest
        Whether the largest element comes first, of positions; NaN then stands before it.
    backward
        Whether lines are read from the end on, of positions: the last of equal elements is first.
    """

    dtype: str
    positions: bool
    threads: int
    lanes: int
    tiled: bool
    largest: bool = False
    backward: bool = False

    @property
    def name(self) -> str:
        """How the kernels' names begin."""
        what = "positions" if self.positions else "elements"
        what += "_largest" * self.largest + "_backward" * self.backward
        form = "tiled" if self.tiled else "held"
        return f"order_{what}_{self.dtype}_{self.threads}_{self.lanes}_{form}"


class Sorting(NamedTuple):
    """The kernels that sort one line of positions, each with its own number.

    The result holds records: the position is in the upper 32 bits, the number in the lower ones.

    Attributes
    ----------
    positions
        Their C type.
    wraps
        Whether those outside are taken modulo the extent, instead of the nearest one.
    threads, lanes, tiled
        See `Ordering`.
    """

    positions: str
    wraps: bool
    threads: int
    lanes: int
    tiled: bool

    @property
    def name(self) -> str:
        """How the kernels' names begin."""
        mode = "wrap" if self.wraps else "clip"
        form = "tiled" if self.tiled else "held"
        return f"sort_{mode}_{self.positions}_{self.threads}_{self.lanes}_{form}"


class Selecting(NamedTuple):
    """The kernels that find the first positions of an order, of long lines.

    ``<name>_whole`` has a block for each line. ``_part`` has one for each part of a line and keeps
    its first records, of which ``_last`` finds the first ones.

    Attributes
    ----------
    dtype
        Of the elements.
    largest
        Whether the largest element comes first.
    backward
        Whether lines are read from the end on: the last of equal elements is first.
    threads
        Of a block, which sorts `ITEMS` records each.
    parts
        Whether lines are divided.
    """

    dtype: str
    largest: bool
    backward: bool
    threads: int
    parts: bool

    @property
    def name(self) -> str:
        """How the kernels' names begin."""
        what = "largest" if self.largest else "smallest"
        what += "_backward" * self.backward
        form = "parts" if self.parts else "lines"
        return f"select_{what}_{self.dtype}_{self.threads}_{form}"


class Searching(NamedTuple):
    """The kernel that finds where values stand in a sorted line.

    Attributes
    ----------
    dtype
        Of the line and the values.
    right
        Whether behind elements that are equal, not before them.
    """

    dtype: str
    right: bool

    @property
    def name(self) -> str:
        """The kernel's name."""
        return f"search_{'right' if self.right else 'left'}_{self.dtype}"


def _bits(dtype: str) -> int:
    """Return the bits of the integers that stand for elements."""
    return 64 if dtype.endswith("64") else 32


def record_bytes(dtype: str, positions: bool) -> int:
    """Return the bytes of an element in memory while it is sorted.

    Examples
    --------
    >>> record_bytes("float16", False), record_bytes("int32", True), record_bytes("float64", True)
    (4, 8, 16)
    """
    return _bits(dtype) // 8 * (2 if positions else 1)


def selects(dtype: str, count: int, kept: int) -> bool:
    """Return whether the `kept` first positions of lines of `count` elements are selected.

    Lines must be next to each other in memory, longer than a block sorts, and few positions kept.

    Examples
    --------
    >>> [selects("float32", count, kept) for count, kept in ((50_000, 50), (50_000, 5000), (9, 2))]
    [True, False, False]
    """
    return count > LARGEST[record_bytes(dtype, True)] * ITEMS and kept <= min(SELECTED, count // 2)


def _network(count: int) -> list[tuple[int, int]]:
    """Return the exchanges that sort so many records: Batcher's odd-even merge sort."""
    pairs = []
    run = 1
    while run < count:
        step = run
        while step:
            for first in range(step % run, count - step, 2 * step):
                for i in range(first, min(first + step, count - step)):
                    if i // (2 * run) == (i + step) // (2 * run):
                        pairs.append((i, i + step))
            step //= 2
        run *= 2
    return pairs


def _keys(dtype: str, equal_zeros: bool) -> str:
    """Return the functions that turn elements into integers in their order, and back."""
    storage, real = types_of(dtype)
    bits = _bits(dtype)
    sign = f"((K)1 << {bits - 1})"
    half = HALVES_OF.get(dtype)
    load, store = (f"mg_{half}_to_float", f"mg_float_to_{half}") if half else ("", "")
    if "float" in dtype:
        to_bits, to_float = (
            ("__double_as_longlong", "__longlong_as_double") if bits == 64
            else ("__float_as_uint", "__uint_as_float")
        )  # fmt: skip
        # Of equal zeros the first one stays first; where only elements are sorted, -0 is before 0.
        zeros = "if (value == 0) value = 0;" if equal_zeros else ""
        key = f"""{real} value = {load}(x);
    if (value != value) return ~(K)0;
    {zeros}
    const K bits = (K){to_bits}(value);
    return bits & {sign} ? ~bits : bits | {sign};"""
        back = f"return {store}({to_float}(key & {sign} ? key ^ {sign} : ~key));"
    elif dtype.startswith("u"):
        key, back = "return (K)x;", "return (T)key;"
    else:
        key, back = f"return (K)x ^ {sign};", f"return (T)(key ^ {sign});"
    return f"""
typedef {storage} T;
typedef uint{bits}_t K;
static __device__ __forceinline__ K key_of(T x)
{{
    {key}
}}
static __device__ __forceinline__ T element_of(K key)
{{
    {back}
}}
"""


def _records(dtype: str, positions: bool, largest: bool = False) -> str:
    """Return what is sorted: keys, or keys with positions."""
    inline = "static __device__ __forceinline__"
    key = "~key_of(x)" if largest else "key_of(x)"
    if not positions:
        return f"""
typedef K E;
typedef T O;
{inline} E record(T x, int64_t place) {{ return key_of(x); }}
{inline} E last() {{ return ~(K)0; }}
{inline} bool less(E a, E b) {{ return a < b; }}
{inline} O shown(E e) {{ return element_of(e); }}
"""
    if _bits(dtype) == 32:
        return f"""
typedef uint64_t E;
typedef int64_t O;
{inline} E record(T x, int64_t place) {{ return (E)(K){key} << 32 | (E)place; }}
{inline} K key_in(E e) {{ return (K)(e >> 32); }}
{inline} E last() {{ return ~(E)0; }}
{inline} bool less(E a, E b) {{ return a < b; }}
{inline} O shown(E e) {{ return (O)(uint32_t)e; }}
"""
    return f"""
struct E {{ uint64_t key, place; }};
typedef int64_t O;
{inline} E record(T x, int64_t place) {{ E e = {{{key}, (uint64_t)place}}; return e; }}
{inline} K key_in(E e) {{ return e.key; }}
{inline} E last() {{ E e = {{UINT64_MAX, UINT64_MAX}}; return e; }}
{inline} bool less(E a, E b) {{ return a.key < b.key || (a.key == b.key && a.place < b.place); }}
{inline} O shown(E e) {{ return (O)e.place; }}
"""


# How many of the `place` first records of two runs are of the first one, and the records from
# there on. Records that are equal are taken from the first run.
_MERGED = """
static __device__ __forceinline__ void merged
(const E *held, int first, int first_count, int second, int second_count, int place, E *own)
{
    int low = place - second_count, high = place < first_count ? place : first_count;
    low = low > 0 ? low : 0;
    while (low < high) {
        const int middle = (low + high) / 2;
        const bool after = less(held[AT(second + place - 1 - middle)], held[AT(first + middle)]);
        if (after) high = middle; else low = middle + 1;
    }
    int i = low, j = place - low;
    E a = i < first_count ? held[AT(first + i)] : last();
    E b = j < second_count ? held[AT(second + j)] : last();
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        const bool left = j >= second_count || (i < first_count && !less(b, a));
        own[k] = left ? a : b;
        if (left) { i++; if (i < first_count) a = held[AT(first + i)]; }
        else { j++; if (j < second_count) b = held[AT(second + j)]; }
    }
}
"""

# Sort the records that threads hold side by side, in lines of LENGTH that begin at `line_base`.
_SORT = """
    E mine[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) mine[k] = held[AT(base + k)];
    NETWORK
    for (int run = ITEMS; run < LENGTH; run *= 2) {
        __syncthreads();
#pragma unroll
        for (int k = 0; k < ITEMS; k++) held[AT(base + k)] = mine[k];
        __syncthreads();
        const int within = base - line_base, start = within & ~(2 * run - 1);
        const int pair = line_base + start;
        WHERE merged(held, pair, run, pair + run, run, within - start, mine);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; k++) held[AT(base + k)] = mine[k];
    __syncthreads();
"""

_TILE = """
extern "C" __global__ void __launch_bounds__(THREADS) NAME
(const __grid_constant__ mg_arguments arguments)
{
    __shared__ E held[AT(THREADS * ITEMS)];
    const T *x = (const T *)arguments.v[0];
    TO *to = (TO *)arguments.v[1];
    const int64_t lines = arguments.v[2], count = arguments.v[3], inner = arguments.v[4];
    const int64_t tiles = arguments.v[5], kept = arguments.v[7];
    const int64_t first = blockIdx.x / tiles * LINES, begin = blockIdx.x % tiles * LENGTH;
    const int base = threadIdx.x * ITEMS, line_base = threadIdx.x / LANES * LENGTH;
    mg_begin();
    // Neighbouring threads read neighbouring elements: of a line, or of lines side by side.
#define PLACES \\
        const int at = n * THREADS + threadIdx.x; \\
        const int own = inner == 1 ? at / LENGTH : at % LINES; \\
        const int within = inner == 1 ? at % LENGTH : at / LINES; \\
        const int64_t line = first + own, place = begin + within; \\
        const int64_t slab = inner == 1 ? line : line / inner; \\
        const int64_t column = line - slab * inner; \\
        const int64_t element = (slab * count + FROM(place)) * inner + column;
    E some[ITEMS];
#pragma unroll
    for (int n = 0; n < ITEMS; n++) {
        PLACES
        some[n] = line < lines && place < count ? RECORD(x[element], place) : last();
    }
#pragma unroll
    for (int n = 0; n < ITEMS; n++) {
        PLACES
        held[AT(own * LENGTH + within)] = some[n];
    }
    __syncthreads();
    SORT
#pragma unroll
    for (int n = 0; n < ITEMS; n++) {
        PLACES
        if (line < lines && place < LIMIT) to[TARGET] = SHOWN(held[AT(own * LENGTH + within)]);
    }
#undef PLACES
}
"""

# Where the threads of a warp look up 32 places at a time, few readings follow each other.
_MERGE = """
extern "C" __global__ void __launch_bounds__(THREADS) NAME
(const __grid_constant__ mg_arguments arguments)
{
    __shared__ E held[AT(THREADS * ITEMS)];
    __shared__ int64_t ends[2];
    TO *to = (TO *)arguments.v[1];
    const int64_t count = arguments.v[3], inner = arguments.v[4], tiles = arguments.v[5];
    const int64_t run = arguments.v[6], kept = arguments.v[7];
    const int64_t line = blockIdx.x / tiles, begin = blockIdx.x % tiles * (THREADS * ITEMS);
    const int64_t start = begin / (2 * run) * (2 * run), left = count - start;
    const E *first = (const E *)arguments.v[0] + line * count + start, *second = first + run;
    const int64_t first_count = left < run ? left : run;
    const int64_t second_count = left - first_count < run ? left - first_count : run;
    const int64_t from = begin - start, both = first_count + second_count;
    const int64_t until = from + THREADS * ITEMS < both ? from + THREADS * ITEMS : both;
    mg_begin();
    if (begin >= LIMIT) return;
    if (threadIdx.x < 64) {
        const int64_t place = threadIdx.x < 32 ? from : until;
        int64_t low = place - second_count, high = place < first_count ? place : first_count;
        low = low > 0 ? low : 0;
        while (low < high) {
            const int64_t step = (high - low + 31) / 32;
            const int64_t at = low + (threadIdx.x % 32 + 1) * step - 1;
            const bool before = at < high && !less(second[place - 1 - at], first[at]);
            const int passed = __popc(__ballot_sync(0xffffffffu, before));
            const int64_t end = low + (passed + 1) * step - 1;
            low += passed * step;
            high = end < high ? end : high;
        }
        if (threadIdx.x % 32 == 0) ends[threadIdx.x / 32] = low;
    }
    __syncthreads();
    const int64_t i = ends[0], j = from - i;
    const int of_first = (int)(ends[1] - i), total = (int)(until - from);
    E mine[ITEMS];
#pragma unroll
    for (int n = 0; n < ITEMS; n++) {
        const int at = n * THREADS + threadIdx.x;
        if (at < total) mine[n] = at < of_first ? first[i + at] : second[j + at - of_first];
    }
#pragma unroll
    for (int n = 0; n < ITEMS; n++) {
        const int at = n * THREADS + threadIdx.x;
        if (at < total) held[AT(at)] = mine[n];
    }
    __syncthreads();
    const int base = threadIdx.x * ITEMS, place = base < total ? base : total;
    merged(held, 0, of_first, of_first, total - of_first, place, mine);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; k++) held[AT(base + k)] = mine[k];
    __syncthreads();
    const int64_t slab = line / inner, column = line - slab * inner;
#pragma unroll
    for (int n = 0; n < ITEMS; n++) {
        const int within = n * THREADS + threadIdx.x;
        const int64_t place = begin + within;
        if (within < total && place < LIMIT) to[TARGET] = SHOWN(held[AT(within)]);
    }
}
"""


# Find the first records of one line, or of a part of it.
_SELECT = """
extern "C" __global__ void __launch_bounds__(THREADS, SELECTING / THREADS) NAME
(const __grid_constant__ mg_arguments arguments)
{
    __shared__ E held[AT(THREADS * ITEMS)];
    __shared__ uint32_t counts[BINS];
    __shared__ uint32_t sums[2][WARPS];
    __shared__ uint32_t found[3];
    const int64_t count = arguments.v[2], parts = arguments.v[3], size = arguments.v[4];
    const uint32_t kept = (uint32_t)arguments.v[5];
    const int64_t begin = blockIdx.x % parts * size, left = count - begin;
    const int64_t total = left < size ? left : size;
    // Its first element: places are from the end of the line on where STEP is -1.
    const FROM *x = (const FROM *)arguments.v[0] + blockIdx.x / parts * count;
    x += STEP > 0 ? begin : count - 1 - begin;
    TARGET *to = (TARGET *)arguments.v[1] + (int64_t)blockIdx.x * kept;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Keys whose bits from `shift` on are less than `prefix`, and those of which they are equal.
    K prefix = 0;
    int shift = BITS;
    uint32_t before = 0, within = (uint32_t)total;
    mg_begin();
    while (before + within > THREADS * ITEMS && shift > 0) {
        const int width = shift < DIGIT ? shift : DIGIT, low = shift - width;
        for (int bin = threadIdx.x; bin < BINS; bin += THREADS) counts[bin] = 0;
        __syncthreads();
        for (int64_t from = threadIdx.x; from < total; from += THREADS * ITEMS) {
            FROM some[ITEMS];
#pragma unroll
            for (int n = 0; n < ITEMS; n++)
                if (from + n * THREADS < total) some[n] = x[STEP * (from + n * THREADS)];
#pragma unroll
            for (int n = 0; n < ITEMS; n++) {
                if (from + n * THREADS >= total) continue;
                const K key = KEY(some[n]);
                if (above(key, shift) != prefix) continue;
                atomicAdd(counts + (uint32_t)(key >> low & (((K)1 << width) - 1)), 1u);
            }
        }
        __syncthreads();
        uint32_t own = 0;
#pragma unroll
        for (int b = 0; b < BINS / THREADS; b++) own += counts[threadIdx.x * (BINS / THREADS) + b];
        uint32_t until = own;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const uint32_t other = __shfl_up_sync(0xffffffffu, until, step);
            if (lane >= step) until += other;
        }
        if (lane == 31) sums[0][warp] = until;
        __syncthreads();
        for (int w = 0; w < warp; w++) until += sums[0][w];
        const uint32_t rank = kept - before;  // of the last wanted one, from 1 on
        if (until - own < rank && rank <= until) {
            int bin = threadIdx.x * (BINS / THREADS);
            uint32_t passed = until - own;
            while (passed + counts[bin] < rank) passed += counts[bin++];
            found[0] = (uint32_t)bin;
            found[1] = passed;
            found[2] = counts[bin];
        }
        __syncthreads();
        prefix = prefix << width | found[0];
        before += found[1];
        within = found[2];
        shift = low;
    }
    // If a block cannot hold all records of the prefix, they are equal: the first ones are taken.
    const uint32_t ties = before + within <= THREADS * ITEMS ? within : kept - before;
    int length = ITEMS;
    while (length < before + ties || length < kept) length *= 2;
    for (int i = threadIdx.x; i < THREADS * ITEMS; i += THREADS) held[AT(i)] = last();
    __syncthreads();
    uint32_t less_count = 0, tie_count = 0;
    int turn = 0;
    for (int64_t from = 0; from < total; from += THREADS * ITEMS) {
        // Each warp reads a piece of its own, so that counts of warps give ranks in order.
        const int64_t at = from + warp * (32 * ITEMS) + lane;
        FROM some[ITEMS];
#pragma unroll
        for (int n = 0; n < ITEMS; n++) if (at + n * 32 < total) some[n] = x[STEP * (at + n * 32)];
        uint32_t lesser[ITEMS], equal[ITEMS], sum = 0;
#pragma unroll
        for (int n = 0; n < ITEMS; n++) {
            const bool inside = at + n * 32 < total;
            const K top = inside ? above(KEY(some[n]), shift) : 0;
            lesser[n] = __ballot_sync(0xffffffffu, inside && top < prefix);
            equal[n] = __ballot_sync(0xffffffffu, inside && top == prefix);
            sum += __popc(lesser[n]) + (__popc(equal[n]) << 16);
        }
        if (lane == 0) sums[turn][warp] = sum;
        __syncthreads();
        uint32_t passed = 0, all = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            passed = w == warp ? all : passed;
            all += sums[turn][w];
        }
        if (sum) {
            const uint32_t behind = (1u << lane) - 1;
            uint32_t i = less_count + (passed & 0xffff), j = tie_count + (passed >> 16);
#pragma unroll
            for (int n = 0; n < ITEMS; n++) {
                const uint32_t tie = j + __popc(equal[n] & behind);
                if (lesser[n] >> lane & 1)
                    held[AT(i + __popc(lesser[n] & behind))] = GIVEN(some[n], begin + at + n * 32);
                if ((equal[n] >> lane & 1) && tie < ties)
                    held[AT(before + tie)] = GIVEN(some[n], begin + at + n * 32);
                i += __popc(lesser[n]);
                j += __popc(equal[n]);
            }
        }
        less_count += all & 0xffff;
        tie_count += all >> 16;
        turn ^= 1;
        if (less_count == before && tie_count >= ties) break;
    }
    __syncthreads();
    const int base = threadIdx.x * ITEMS, line_base = 0;
    SORT
    const int64_t line = arguments.v[6];
    for (int i = threadIdx.x; i < kept; i += THREADS) to[i] = SHOWN(held[AT(i)]);
}
"""


def sorted_in_block(where: str = "") -> tuple[str, str]:
    """Return functions, and what sorts `held` with them, for threads of `ITEMS` records each.

    Both need the type `E`, `less`, `last`, and the place `AT(i)` in `held` of record `i`.
    `where` is a condition in C on threads whose lines are sorted; the records of others stay.
    """
    exchanges = "".join(
        f"{{ const E a = mine[{i}], b = mine[{j}]; const bool swap = less(b, a); "
        f"mine[{i}] = swap ? b : a; mine[{j}] = swap ? a : b; }}\n    "
        for i, j in _network(ITEMS)
    )
    condition = f"if ({where}) " if where else ""
    network = f"{condition}{{ {exchanges} }}" if where else exchanges
    return _MERGED, _SORT.replace("NETWORK", network).replace("WHERE ", condition)


def order_source(ordering: Ordering) -> str:
    """Return the kernels, to be completed by the prelude."""
    checked(ordering)
    keys = _keys(ordering.dtype, ordering.positions)
    records = _records(ordering.dtype, ordering.positions, ordering.largest)
    text = f"""{keys}{records}
#define RECORD(x, place) record(x, place)
#define FROM(place) ({"count - 1 - (place)" if ordering.backward else "place"})
"""
    shown = "count - 1 - shown" if ordering.backward else "shown"
    return text + _kernels(ordering, record_bytes(ordering.dtype, ordering.positions), shown)


def sorting_source(sorting: Sorting) -> str:
    """Return the kernels that sort positions, to be completed by the prelude."""
    checked(sorting)
    text = f"""
typedef {sorting.positions} T;
typedef uint64_t E;
typedef E O;
{settled(sorting.wraps)}
#define RECORD(x, place) ((E)settled((int64_t)(x), arguments.v[6]) << 32 | (E)(place))
#define FROM(place) (place)
static __device__ __forceinline__ E last() {{ return ~(E)0; }}
static __device__ __forceinline__ bool less(E a, E b) {{ return a < b; }}
"""
    return text + _kernels(sorting, record_bytes("uint32", True), "")


def _kernels(kernel: Ordering | Sorting, size: int, shown: str) -> str:
    """Return the kernels for records of so many bytes, and the function that makes results."""
    functions, steps = sorted_in_block()
    text = f"""
#define THREADS {kernel.threads}
#define LANES {kernel.lanes}
#define ITEMS {ITEMS}
#define LENGTH (LANES * ITEMS)
#define LINES (THREADS / LANES)
#define AT(i) ((i) + ((i) >> {8 - size.bit_length()}))
{functions}"""
    kernels = [("whole", _TILE, True)]
    if kernel.tiled:
        kernels = [("tile", _TILE, False), ("merge", _MERGE, False), ("last", _MERGE, True)]
    for name, code, ends in kernels:
        code = code.replace("    SORT\n", steps).replace("NAME", f"{kernel.name}_{name}")
        # Between launches the records of a line stand side by side.
        target = "(slab * kept + place) * inner + column" if ends else "line * count + place"
        code = code.replace("TARGET", target).replace("LIMIT", "kept" if ends else "count")
        text += code.replace("TO", "O" if ends else "E").replace("SHOWN", shown if ends else "")
    return text


def select_source(selecting: Selecting) -> str:
    """Return the kernels, to be completed by the prelude."""
    checked(selecting)
    size = record_bytes(selecting.dtype, True)
    functions, steps = sorted_in_block("base < length")
    text = f"""{_keys(selecting.dtype, True)}{_records(selecting.dtype, True, selecting.largest)}
#define THREADS {selecting.threads}
#define WARPS (THREADS / 32)
#define ITEMS {ITEMS}
#define LENGTH length
#define SELECTING {SELECTING}
#define BITS {_bits(selecting.dtype)}
#define DIGIT {_DIGIT}
#define BINS (1 << DIGIT)
#define AT(i) ((i) + ((i) >> {8 - size.bit_length()}))
static __device__ __forceinline__ K above(K key, int shift)
{{
    return shift < BITS ? key >> shift : 0;
}}
{functions}"""
    # Of elements, keys and records are made; those of parts are read as they were written.
    element = ("T", "key_in(record(x, 0))", "record(x, place)")
    made = ("E", "key_in(x)", "x")
    whole, part, last = ("whole", element, "O"), ("part", element, "E"), ("last", made, "O")
    shown = "line - 1 - shown" if selecting.backward else "shown"
    for name, (source, key, record), result in [part, last] if selecting.parts else [whole]:
        step = -1 if selecting.backward and source == "T" else 1
        code = _SELECT.replace("    SORT\n", steps).replace("NAME", f"{selecting.name}_{name}")
        code = code.replace("FROM", source).replace("TARGET", result)
        code = code.replace("SHOWN", shown if result == "O" else "")
        text += f"""
#undef STEP
#undef KEY
#undef GIVEN
#define STEP ({step})
#define KEY(x) ({key})
#define GIVEN(x, place) ({record})
{code}"""
    return text


def search_source(searching: Searching) -> str:
    """Return the kernel, to be completed by the prelude."""
    checked(searching)
    passed = "!(key < other)" if searching.right else "other < key"
    return f"""{_keys(searching.dtype, True)}
extern "C" __global__ void __launch_bounds__(256) {searching.name}
(const __grid_constant__ mg_arguments arguments)
{{
    const T *line = (const T *)arguments.v[0], *values = (const T *)arguments.v[1];
    int64_t *out = (int64_t *)arguments.v[2];
    const int64_t count = arguments.v[3], total = arguments.v[4];
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    mg_begin();
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < total; at += step) {{
        const K key = key_of(values[at]);
        int64_t low = 0, high = count;
        while (low < high) {{
            const int64_t middle = (low + high) / 2;
            const K other = key_of(line[middle]);
            if ({passed}) low = middle + 1; else high = middle;
        }}
        out[at] = low;
    }}
}}
"""
