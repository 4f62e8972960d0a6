"""CUDA C of scans: what is combined along an axis, with every result on the way kept.

All layouts are ``[outer, count, inner]``, scanned along the middle axis; what is scanned for one
place of the other axes is a line. A thread combines adjacent elements of a line, the threads of a
line combine what they have by shuffles or in shared memory, and a block goes through its lines a
tile at a time. Each element is read once and written once. Where there are few long lines, several
blocks share one, each a part of it: a launch before finds what each part combines to, which costs
another reading. Everything is combined in one order, whatever the timing.

Two forms of kernels: `lines` brings a tile, which is contiguous, through shared memory, for few
columns (`inner`), or one; `columns` has a thread for each column, and neighbouring threads read
neighbouring columns.

How elements come from memory and go there is a `Transfer`: plain reads and writes, or the lines of
regions that are computed in the scan's kernel (`scan_parts`).
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from ..literals import checked
from .scattering_code import HALVES_OF, types_of

__all__ = [
    "LINE_THREADS", "PLAIN", "WORDS", "Scan", "Transfer", "operand_type", "scan_source",
    "state_bytes",
]

LINE_THREADS = 256  # of a block of the form `lines`
WORDS = 10


class Scan(NamedTuple):
    """The kernels of one scan: ``<name>_totals`` and ``<name>_apply``.

    Attributes
    ----------
    dtype
        Of the elements.
    how
        "add", "multiply", "max", "min", "logsumexp", or "recurrence", which has two operands.
    reverse
        Whether it runs from the last element to the first.
    columns
        The form: see above.
    threads
        Of a block.
    segments
        Threads that share a line, a power of two.
    items
        Elements that a thread takes of a line at a time.
    width
        Adjacent elements that are moved at once, in the form `lines`.
    """

    dtype: str
    how: str
    reverse: bool
    columns: bool
    threads: int
    segments: int
    items: int
    width: int

    @property
    def name(self) -> str:
        """How the kernels' names begin."""
        form = "columns" if self.columns else "lines"
        way = "back" if self.reverse else "on"
        sizes = f"{self.threads}_{self.segments}_{self.items}_{self.width}"
        return f"scan_{self.how}_{form}_{way}_{self.dtype}_{sizes}"

    @property
    def operands(self) -> int:
        """How many arrays it reads."""
        return 2 if self.how == "recurrence" else 1


class Transfer(NamedTuple):
    """How a scan's elements come from memory, and what becomes of its results, in C.

    The lines know ``v``, the arguments of the kernel, and ``at``, the place of the first of WIDTH
    adjacent elements among all; in the form `columns`, and where a block has one line of one
    column, also its ``slab`` (of the axes before), ``row`` and ``column``; those that bring and
    take also whether the kernel ``writes``.

    Attributes
    ----------
    held
        What a thread keeps of elements that are on their way: members of a struct.
    bring
        The lines that ask memory for it, into ``held``.
    take
        The lines that make each ``to[operand].x[k]`` of it, where an operand is not plain.
    give
        The lines that use results, ``made.x[k]``, up to their way to memory.
    plain
        Which operands are read from memory as they are.
    kept
        Whether the results are written.
    blocks
        How many blocks a multiprocessor is to have room for; 0 for what plain scans have.
    wide
        Whether positions of regions are 64-bit numbers.
    """

    held: str = ""
    bring: str = ""
    take: str = ""
    give: str = ""
    plain: tuple[int, ...] = (0, 1)
    kept: bool = True
    blocks: int = 0
    wide: bool = False

    @property
    def key(self) -> str:
        """What its kernels' names end by: empty for plain ones."""
        if self == PLAIN:
            return ""
        return "_" + hashlib.sha256(repr(self).encode()).hexdigest()[:16]


PLAIN = Transfer()


# For each way of combining: the members of a state, the state of an element, the state of none,
# of two in order, of a state and the element after it (the same unless given), and the result.
_ONE = ("R h;", "{(R)x}")
_WAYS = {
    "add": (*_ONE, "{{{zero}}}", "S s = {{{sum}}}; return s;", "", "s.h"),
    "multiply": (*_ONE, "{{1}}", "S s = {{{times}}}; return s;", "", "s.h"),
    "max": (*_ONE, "{{{least}}}", "return {nan}a.h > b.h ? a : b;", "", "s.h"),
    "min": (*_ONE, "{{{most}}}", "return {nan}a.h < b.h ? a : b;", "", "s.h"),
    # The largest, and the sum of exp(x - largest): one exponential each, and no logarithm.
    "logsumexp": (
        "R h, sum;", "{(R)x, 1}", "{{{least}, 0}}",
        """const bool first = a.h != a.h || a.h > b.h;
    const R high = first ? a.h : b.h, low = first ? b.h : a.h;
    const R share = low == high ? (R)1 : {exp}(low - high);
    S s = {{high, first ? a.sum + b.sum * share : b.sum + a.sum * share}};
    return s;""",
        "", "s.h + {log}(s.sum)",
    ),
    # A map of what is before: factor * h + s.h. The first element has nothing before it: -0 * 0 + b
    # is b, whatever b.
    "recurrence": (
        "R factor, h;", "{begins ? (R)-0.0 : (R)x, (R)y}", "{{1, 0}}",
        """S s = {{product(a.factor, b.factor), a.h == 0 ? b.h : {next}}};
    return s;""",
        "S s = {{product(a.factor, b.factor), {next}}}; return s;", "s.h",
    ),
}  # fmt: skip
# Sums and products are rounded each for itself, whatever stands before and behind the scan: a
# product of its expression is not contracted with them.
_ROUNDED = {
    "float": ("__fadd_rn(a.h, b.h)", "__fmul_rn(a.h, b.h)", "__fmaf_rn(b.factor, a.h, b.h)"),
    "double": ("__dadd_rn(a.h, b.h)", "__dmul_rn(a.h, b.h)", "__fma_rn(b.factor, a.h, b.h)"),
}
_WHOLE = ("a.h + b.h", "a.h * b.h", "b.factor * a.h + b.h")
# Products of factors leave the range where what they belong to may not: they end at the range's
# end, so that 0 times a product is 0.
_PRODUCT = """
static __device__ __forceinline__ R product(R a, R b)
{
    const R p = a * b, most = (R)MOST;
    if (fabs(p) <= most || fabs(a) > most || fabs(b) > most || p != p) return p;
    return copysign(most, p);
}
"""
_MOST = {"float": "0x1.fffffep127f", "double": "0x1.fffffffffffffp1023"}
_SMALL = 4  # bytes of the least registers
INLINE = "static __device__ __forceinline__"


def _state_type(scan: Scan) -> str:
    """Return the C type that a scan is computed in."""
    _, real = types_of(scan.dtype)
    if "float" in scan.dtype:
        return real
    bits = max(8 * _SMALL, int(scan.dtype.lstrip("uint")))
    wraps = scan.how in ("add", "multiply") or scan.dtype.startswith("u")
    return f"{'u' if wraps else ''}int{bits}_t"  # unsigned sums and products may overflow


def state_bytes(scan: Scan) -> int:
    """Return the bytes of what the elements of a part combine to.

    Examples
    --------
    >>> state_bytes(Scan("float32", "recurrence", False, False, 256, 32, 8, 4))
    8
    """
    each = 8 if _state_type(scan) in ("double", "int64_t", "uint64_t") else _SMALL
    return each * (2 if scan.how in ("logsumexp", "recurrence") else 1)


def operand_type(scan: Scan) -> str:
    """Return the C type of an element in memory."""
    return types_of(scan.dtype)[0]


def _definitions(scan: Scan, transfer: Transfer) -> str:
    """Return the types, and what combines states."""
    storage = operand_type(scan)
    real = _state_type(scan)
    floats = real in ("float", "double")
    bits = real.strip("uint_")
    parts = {
        "zero": "(R)-0.0" if floats else "0",  # -0 + x is x, also where x is -0
        "least": "-(R)INFINITY" if floats else "0" if real[0] == "u" else f"INT{bits}_MIN",
        "most": "(R)INFINITY" if floats else f"{real[:-2].upper()}_MAX",
        "nan": "a.h != a.h || " if floats else "",
        "exp": "expf" if real == "float" else "exp",
        "log": "logf" if real == "float" else "log",
    }
    parts |= zip(("sum", "times", "next"), _ROUNDED.get(real, _WHOLE), strict=True)
    members, element, none, both, then, result = _WAYS[scan.how]
    half = HALVES_OF.get(scan.dtype)
    load = f"mg_{half}_to_float" if half else ""
    store = f"mg_float_to_{half}" if half else "(T)"
    shuffled = "".join(
        f" s.{member.strip()} = __shfl_{{0}}_sync(0xffffffffu, s.{member.strip()}, {{1}});"
        for member in members.removeprefix("R ").rstrip(";").split(",")
    )
    inline = INLINE
    blocks = transfer.blocks or (4 if state_bytes(scan) <= 8 else 2)
    product = _PRODUCT.replace("MOST", _MOST[real]) if scan.how == "recurrence" else ""
    element = element.replace("x", f"{load}(x)").replace("y", f"{load}(y)")
    return f"""
typedef {storage} T;
typedef {real} R;
struct S {{ {members} }};
#define THREADS {scan.threads}
#define SEGMENTS {scan.segments}
#define ITEMS {scan.items}
#define ROWS (SEGMENTS * ITEMS)
#define COLUMNS (THREADS / SEGMENTS)
#define OPERANDS {scan.operands}
#define BLOCKS {blocks}
#define LANES {min(32, scan.segments)}
{product}{inline} S none() {{ S s = {none.format(**parts)}; return s; }}
{inline} S element(T x, T y, bool begins) {{ S s = {element}; return s; }}
{inline} S both(S a, S b) {{ {both.format(**parts)} }}
{inline} S then(S a, S b) {{ {(then or both).format(**parts)} }}
{inline} T result(S s) {{ return {store}({result.format(**parts)}); }}
{inline} S above(S s, int by) {{{shuffled.format("up", "by, LANES")} return s; }}
{inline} S of_lane(S s, int lane) {{{shuffled.format("idx", "lane, LANES")} return s; }}
""".replace("__shfl_idx_sync", "__shfl_sync")


# A number, combined with a word that is 0, which compilers do not know: what made it is not
# contracted with what it is used for.
_APART = """
static __device__ __forceinline__ float apart(float a, int64_t none)
{
    return __uint_as_float(__float_as_uint(a) ^ (uint32_t)none);
}
static __device__ __forceinline__ double apart(double a, int64_t none)
{
    return __longlong_as_double(__double_as_longlong(a) ^ none);
}
"""

_ARGUMENTS = """
    S *parts = (S *)arguments.v[3];
    const int64_t outer = arguments.v[4], count = arguments.v[5], inner = arguments.v[6];
    constexpr bool writes = WRITES;  // whether all is written, not only what a part combines to
    const int64_t shares = arguments.v[7], rows_of_share = arguments.v[8], slabs = arguments.v[9];
    mg_begin();
"""

# What the threads of a line before this one have, and what all of them have.
_GROUP = """
static __device__ __forceinline__ S before_in_group(S mine, S *shared, S *whole)
{
    const int lane = threadIdx.x % LANES;
    S sum = mine;
#pragma unroll
    for (int by = 1; by < LANES; by *= 2) {
        const S other = above(sum, by);
        if (lane >= by) sum = both(other, sum);
    }
    S before = above(sum, 1);
    if (lane == 0) before = none();
#if SEGMENTS <= 32
    *whole = of_lane(sum, LANES - 1);
    return before;
#else
    const int warp = threadIdx.x / 32, first = warp / (SEGMENTS / 32) * (SEGMENTS / 32);
    if (lane == 31) shared[warp] = sum;
    __syncthreads();
    S run = none(), front = run;
#pragma unroll
    for (int i = 0; i < SEGMENTS / 32; i++) {
        if (first + i == warp) front = run;
        run = both(run, shared[first + i]);
    }
    *whole = run;
    return both(front, before);
#endif
}
"""

_LINES = """
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) NAME
(const __grid_constant__ mg_arguments arguments)
{
    __shared__ T tile[OPERANDS][THREADS * ITEMS + THREADS * ITEMS / 32];
    __shared__ S shared[THREADS / 32];
ARGUMENTS
    const int thread = threadIdx.x, segment = thread % SEGMENTS, line = thread / SEGMENTS;
    const int64_t share = blockIdx.x % shares, first = blockIdx.x / shares * slabs;
    const int own = (int)(outer - first < slabs ? outer - first : slabs), width = (int)inner;
    const bool active = line < own * width;
    const int slab = line / width, column = line - slab * width;
    int64_t begin = share * rows_of_share;
    const int64_t end = begin + rows_of_share < count ? begin + rows_of_share : count;
    S carry = none();
CARRY
    Held some[ITEMS / WIDTH];
    LOAD(begin)
    for (; begin < end; begin += ROWS) {
        const int rows = (int)(end - begin < ROWS ? end - begin : ROWS), size = own * rows * width;
        const int64_t start = (first * count + PLACE(count, begin, rows)) * inner;
#pragma unroll
        for (int k = 0; k < ITEMS / WIDTH; k++) {
            const int i = (k * THREADS + thread) * WIDTH;
            if (i >= size) continue;
            V to[OPERANDS];
            take(arguments.v, HERE(begin), some[k], to, writes);
#pragma unroll
            for (int j = 0; j < WIDTH; j++)
                for (int o = 0; o < OPERANDS; o++) tile[o][AT(i + j)] = to[o].x[j];
        }
        if (begin + ROWS < end) LOAD(begin + ROWS)
        __syncthreads();
        S elements[ITEMS], mine = none();
        const int base = slab * rows * width + column;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const int row = segment * ITEMS + i;
            elements[i] = none();
            if (active && row < rows) {
                const int at = AT(base + PLACE(rows, row, 1) * width);
                elements[i] = element(tile[0][at], tile[OPERANDS - 1][at], begin + row == 0);
                mine = then(mine, elements[i]);
            }
        }
        S whole;
        S run = before_in_group(mine, shared, &whole);
        run = both(carry, run);
        carry = both(carry, whole);
STORE
        __syncthreads();
    }
LAST
}
"""

_LINES_CARRY = """
    if (share) {
        const int64_t each = (share + SEGMENTS - 1) / SEGMENTS, low = segment * each;
        const int64_t high = low + each < share ? low + each : share;
        S mine = none();
        if (active)
            for (int64_t i = low; i < high; i++)
                mine = both(mine, parts[(first * shares + i) * inner + column]);
        before_in_group(mine, shared, &carry);
        __syncthreads();
    }
"""

_LINES_STORE = """
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const int row = segment * ITEMS + i;
            run = then(run, elements[i]);
            if (active && row < rows) tile[0][AT(base + PLACE(rows, row, 1) * width)] = result(run);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < ITEMS / WIDTH; k++) {
            const int i = (k * THREADS + thread) * WIDTH;
            if (i >= size) continue;
            V made;
#pragma unroll
            for (int j = 0; j < WIDTH; j++) made.x[j] = tile[0][AT(i + j)];
            give(arguments.v, HERE(begin), made);
        }
"""

_LINES_LAST = """
    if (active && segment == 0) parts[(first * shares + share) * inner + column] = carry;
"""

_COLUMNS = """
extern "C" __global__ void __launch_bounds__(THREADS) NAME
(const __grid_constant__ mg_arguments arguments)
{
    __shared__ S shared[2][SEGMENTS][COLUMNS];
ARGUMENTS
    const int place = threadIdx.x % COLUMNS, segment = threadIdx.x / COLUMNS;
    const int64_t blocks = (inner + COLUMNS - 1) / COLUMNS;
    const int64_t block = blockIdx.x % blocks, share = blockIdx.x / blocks % shares;
    const int64_t slab = blockIdx.x / blocks / shares;
    const int64_t column = block * COLUMNS + place;
    const bool active = column < inner;
    const int64_t base = slab * count * inner + column;
    int64_t begin = share * rows_of_share;
    const int64_t end = begin + rows_of_share < count ? begin + rows_of_share : count;
    S carry = none();
    int turn = 0;
CARRY
    Held some[ITEMS];
    LOAD(begin)
    for (; begin < end; begin += ROWS) {
        S elements[ITEMS], mine = none();
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const int64_t row = begin + segment * ITEMS + i;
            elements[i] = none();
            if (active && row < end) {
                V to[OPERANDS];
                take(arguments.v, HERE, some[i], to, writes);
                elements[i] = element(to[0].x[0], to[OPERANDS - 1].x[0], row == 0);
                mine = then(mine, elements[i]);
            }
        }
        LOAD(begin + ROWS)
        S run = none();
        SHARE
STORE
    }
LAST
}
"""

# Two turns of shared memory take one barrier: who writes the next one has read the last but one.
_SHARE = """
        shared[turn][segment][place] = mine;
        __syncthreads();
        run = carry;
#pragma unroll
        for (int i = 0; i < SEGMENTS; i++) {
            const S other = shared[turn][i][place];
            if (i < segment) run = both(run, other);
            carry = both(carry, other);
        }
        turn ^= 1;
"""

# All that a thread reads of the next tile is on its way while it combines this one.
_LINES_LOAD = r"""
#define HERE(from) start + i, first, PLACE(count, from, rows) + i, 0
#define LOAD(from) { \
    const int rows = (int)(end - (from) < ROWS ? end - (from) : ROWS), size = own * rows * width; \
    const int64_t start = (first * count + PLACE(count, from, rows)) * inner; \
    _Pragma("unroll") for (int k = 0; k < ITEMS / WIDTH; k++) { \
        const int i = (k * THREADS + thread) * WIDTH; \
        if (i >= size) continue; \
        bring(arguments.v, HERE(from), some[k], writes); \
    } }
"""

_COLUMNS_LOAD = r"""
#define HERE base + PLACE(count, row, 1) * inner, slab, PLACE(count, row, 1), column
#define LOAD(start) _Pragma("unroll") for (int i = 0; i < ITEMS; i++) { \
    const int64_t row = (start) + segment * ITEMS + i; \
    if (active && row < end) { \
        bring(arguments.v, HERE, some[i], writes); \
    } }
"""

_COLUMNS_CARRY = """
    if (share) {
        const int64_t each = (share + SEGMENTS - 1) / SEGMENTS, low = segment * each;
        const int64_t high = low + each < share ? low + each : share;
        S mine = none(), run;
        if (active)
            for (int64_t i = low; i < high; i++)
                mine = both(mine, parts[(slab * shares + i) * inner + column]);
        SHARE
    }
"""

_COLUMNS_STORE = """
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const int64_t row = begin + segment * ITEMS + i;
            run = then(run, elements[i]);
            if (active && row < end) {
                V made;
                made.x[0] = result(run);
                give(arguments.v, HERE, made);
            }
        }
"""

_COLUMNS_LAST = """
    if (active && segment == 0) parts[(slab * shares + share) * inner + column] = carry;
"""


def _transfers(scan: Scan, transfer: Transfer) -> str:
    """Return the functions that bring elements, take them, and give results away."""
    plain = [o for o in range(scan.operands) if o in transfer.plain]
    members = "".join(f"    V x{o};\n" for o in plain) + transfer.held
    bring = [f"held.x{o} = *(const V *)((const T *)v[{o}] + at);" for o in plain]
    take = [f"to[{o}] = held.x{o};" for o in plain]
    give = ["*(V *)((T *)v[2] + at) = made;"] if transfer.kept else []
    place = "const int64_t *v, int64_t at, int64_t slab, int64_t row, int64_t column"
    functions = [
        (f"bring({place}, Held &held, bool writes)", bring, transfer.bring),
        (f"take({place}, const Held &held, V *to, bool writes)", take, transfer.take),
        (f"give({place}, const V &made)", give, transfer.give),
    ]
    text = f"typedef {'long long' if transfer.wide else 'int'} idx;\n"
    text += _APART if transfer != PLAIN else ""
    text += f"struct Held {{\n{members}}};\n"
    for head, lines, more in functions:
        inside = "\n".join([*(f"    {line}" for line in lines), *([more] if more else [])])
        text += f"{INLINE} void {head}\n{{\n{inside}\n}}\n"
    return text


def scan_source(scan: Scan, transfer: Transfer = PLAIN) -> str:
    """Return the kernels ``_totals`` and ``_apply``, to be completed by the prelude."""
    checked(scan)
    # Where the rows from `begin` on are, in memory, of as many as there are.
    place = "((whole) - (begin) - (rows))" if scan.reverse else "(begin)"
    text = _definitions(scan, transfer) + f"#define PLACE(whole, begin, rows) {place}\n"
    text += f"#define WIDTH {scan.width}\ntypedef mg_vector<T, WIDTH> V;\n"
    text += _transfers(scan, transfer)
    if scan.columns:
        text += _COLUMNS_LOAD
        kernel, carry, store, last = _COLUMNS, _COLUMNS_CARRY, _COLUMNS_STORE, _COLUMNS_LAST
    else:
        text += "#define AT(i) ((i) + ((i) >> 5))\n" + _LINES_LOAD + _GROUP
        kernel, carry, store, last = _LINES, _LINES_CARRY, _LINES_STORE, _LINES_LAST
    for name, parts in (("totals", ("", "", last)), ("apply", (carry, store, ""))):
        code = kernel
        for key, part in zip(("CARRY", "STORE", "LAST"), parts, strict=True):
            code = code.replace(f"\n{key}\n", f"\n{part}\n")
        arguments = _ARGUMENTS.replace("WRITES", "true" if name == "apply" else "false")
        code = code.replace("ARGUMENTS", arguments).replace("        SHARE\n", _SHARE)
        text += code.replace("NAME", f"{scan.name}{transfer.key}_{name}")
    return text
