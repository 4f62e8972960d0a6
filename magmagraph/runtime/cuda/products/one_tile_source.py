"""CUDA C for 16-bit products on Hopper with one tile of the result for each multiprocessor.

A library's kernel ends everywhere at the same time there, so that nothing hides what is done to the
elements. Tiles of 64 x 128 give each multiprocessor one, and two warpgroups half of its columns
each. One thread brings 64 terms at a time, eight steps ahead. For its last 96 terms, one and a half
steps, the second warpgroup waits until the first has begun with its own last: the first ends
earlier, and applies the epilogue to its sums, and stores them, while the tensor cores multiply for
the other. A bias is where the sums begin. Each warp stores its 16 rows by itself, 16 bytes a lane,
by way of shared memory, eight of them while the epilogue is applied to the others; where to, and
the bias, it finds out while the first terms are under way. What takes longest of gelu is tanh, 16
a cycle: one is to follow the other without a gap, whichever rows it is of.

Factors are brought with zeros for what lies outside of them; no extent has to fill tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

from .wide_source import HELPERS, PIECE, completed, multiplying

__all__ = ["COLUMNS", "NAME", "ROWS", "SHARED", "STEP", "THREADS", "OneTileKernel"]

ROWS, COLUMNS = 64, 128  # of a tile
STEP = 64  # terms that are brought at a time: 128 bytes, of which swizzled lines are
THREADS = 288  # two warpgroups that multiply, and a warp that brings factors
NAME = "mg_one_tile"

_FIRST = 64  # columns of the first warpgroup
_TERMS = 16  # of one product instruction
_LAST = 96  # terms that the second begins with only after all of the first's
_STAGES = 8
_LINE = 128  # bytes
_BOX = PIECE * _LINE  # bytes of 64 terms of 64 rows or columns
_HEADER = 1024  # barriers
SHARED = _HEADER + (_STAGES * 3 + 2) * _BOX


@dataclass(frozen=True)
class OneTileKernel:
    """The kernel of one kind of product.

    Attributes
    ----------
    dtype, transpose_a, transpose_b, epilogue
        As `wide_source.WideKernel` has them.
    """

    dtype: str
    transpose_a: bool
    transpose_b: bool
    epilogue: str = ""

    @property
    def source(self) -> str:
        """The kernel, whose name is `NAME`."""
        biased = "bias" in self.epilogue
        return completed(
            _TEXT, self.dtype, self.epilogue,
            multiply="\n".join(
                multiplying(self.dtype, self.transpose_a, self.transpose_b, columns)
                for columns in sorted({_FIRST, COLUMNS - _FIRST})
            ),
            bring_a=_bring("a", "to", "row", self.transpose_a),
            bring_b=_bring("b", "to + @box@", "column", not self.transpose_b),
            bring_c=_bring("b", "to + 2 * @box@", f"column + {PIECE}", not self.transpose_b),
            ask=_ASK if biased else "", begin=_BIAS if biased else "",
            keep=_KEEP if "gelu" in self.epilogue else "",
            first="0" if biased else "(k | i) == 0",
            # Along a line 16 terms are 32 bytes; where lines are terms, they are 16 lines.
            step_a=16 * _LINE if self.transpose_a else 32,
            step_b=32 if self.transpose_b else 16 * _LINE,
            # Columns are lines, or what lies along lines of 64 of them.
            from_b=f"FROM * {_LINE}" if self.transpose_b
            else f"(FROM / {PIECE} * {_BOX} + FROM % {PIECE} * 2)",
            stages=_STAGES, box=_BOX, header=_HEADER, rows=ROWS, columns=COLUMNS, share=_FIRST,
            last=-(-_LAST // STEP), ahead=-_LAST % STEP // _TERMS, terms=_TERMS, piece=PIECE,
            step=STEP, threads=THREADS, name=NAME,
        )  # fmt: skip


def _bring(factor: str, to: str, at: str, lines_are_terms: bool) -> str:
    """Return what brings 64 rows or columns of a factor's part of a step."""
    where = f"{at}, k * {STEP}" if lines_are_terms else f"k * {STEP}, {at}"
    return f"bring({to}, &v.{factor}, {where}, FULL(stage));"


# Plain loads stay before the barrier that follows: others would only begin behind it.
_ASK = """u32 pairs[COUNT / 8];
    #pragma unroll
    for (int j = 0; j < COUNT / 8; j++)
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(pairs[j])
            : "l"(v.bias + min(column + j * 8 + lane % 4 * 2, v.n - 2) / 2) : "memory");"""
_BIAS = """#pragma unroll
    for (int j = 0; j < COUNT / 8; j++) {
        float low, high;
        widen(pairs[j], low, high);
        d[j * 4] = d[j * 4 + 2] = low;
        d[j * 4 + 1] = d[j * 4 + 3] = high;
    }
    // Two sums that begin with one number need a register each from the first product on:
    // else the compiler waits for every product.
    settle(d);"""

# The compiler would begin with tanh of the other rows only behind the barrier that follows, so that
# its units would have nothing to do meanwhile. Stores that are never made want them before.
_KEEP = """if (v.steps == -1) keep(bent[2], staged);
    if (v.steps == -2) keep(bent[3], staged);"""

_TEXT = (
    HELPERS
    + r"""
struct alignas(64) Arguments { Map a, b; const u32 *bias; char *out; int steps, m, n; };
#define FULL(stage) (base + 8 * (stage))
#define EMPTY(stage) (base + 64 + 8 * (stage))

@multiply@

// A quarter of a thread's sums: eight, of one of its two rows and half of the columns.
#define AT(quarter, i) ((quarter) % 2 * 16 + (quarter) / 2 * 2 + (i) / 2 * 4 + (i) % 2)
static __device__ __forceinline__ void open(const float (&d)[32], int quarter, float (&to)[8])
{
    #pragma unroll
    for (int i = 0; i < 8; i++) to[i] = inner(d[AT(quarter, i)]);
}
static __device__ __forceinline__ void bend(float (&x)[8])
{
    #pragma unroll
    for (int i = 0; i < 8; i++) x[i] = bend(x[i]);
}
static __device__ __forceinline__ void place(
    const float (&d)[32], int quarter, const float (&bent)[8], u32 staged)
{
    u32 made[4];
    #pragma unroll
    for (int i = 0; i < 8; i += 2)
        made[i / 2] = narrow(outer(d[AT(quarter, i)], bent[i]),
            outer(d[AT(quarter, i + 1)], bent[i + 1]));
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
        :: "r"((staged ^ quarter % 2 * 64 ^ quarter / 2 * 128) + quarter % 2 * 1024),
        "r"(made[0]), "r"(made[1]), "r"(made[2]), "r"(made[3]) : "memory");
}
// A load that is not volatile the compiler moves behind the store before it.
static __device__ __forceinline__ void fetch(u32 (&line)[4], u32 from)
{
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(line[0]), "=r"(line[1]), "=r"(line[2]), "=r"(line[3]) : "r"(from) : "memory");
}
static __device__ __forceinline__ void store(char *to, const u32 (&line)[4], u32 within)
{
    asm volatile("{.reg .pred p; setp.eq.b32 p, %5, 0; "
        "@!p st.global.v4.u32 [%0], {%1, %2, %3, %4};}"
        :: "l"(to), "r"(line[0]), "r"(line[1]), "r"(line[2]), "r"(line[3]), "r"(within)
        : "memory");
}
static __device__ __forceinline__ void keep(const float *x, u32 at)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
        :: "r"(at), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
}

// What a warpgroup does: COUNT columns of the tile, the first of which is FROM.
template <int FROM, int COUNT>
static __device__ __forceinline__ void columns(const Arguments &v, u32 base)
{
    const int UNITS = COUNT / 8, MOVES = UNITS / 2;  // 16 bytes each, of a line and of a lane
    u32 data = base + @header@;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    int row = blockIdx.x * @rows@ + warp * 16, column = blockIdx.y * @columns@ + FROM;
    float d[COUNT / 2];
    @ask@
    u32 staged = data + @stages@ * 3 * @box@ + warp * 4096 + FROM * 32;
    u32 from[MOVES], within = 0;  // eights of columns are 256 bytes there, a line has 16
    char *to[MOVES];
    #pragma unroll
    for (int i = 0; i < MOVES; i++) {
        int number = i * 32 + lane, line = number / UNITS, unit = number % UNITS;
        from[i] = staged + unit * 256 + (line ^ (unit & 7)) * 16;
        within |= (row + line < v.m && column + unit * 8 < v.n) << i;
        to[i] = v.out + 2 * ((long long)(row + line) * v.n + column + unit * 8);
        asm volatile("" : "+r"(from[i]), "+l"(to[i]));
    }
    staged += lane / 8 * 256 + (lane % 8 ^ lane / 8) * 16;
    asm volatile("" : "+r"(within), "+r"(staged));
    asm volatile("bar.sync 1, @threads@;" ::: "memory");
    @begin@
    #pragma unroll 1
    for (int k = 0; k < v.steps; k++) {
        int stage = k % @stages@;
        u32 held = data + stage * 3 * @box@;
        wait(FULL(stage), k / @stages@ & 1);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        u64 a = described(held), b = described(held + @box@ + @from_b@);
        #pragma unroll
        for (int i = 0; i < @step@ / @terms@; i++) {
            if (FROM && i == @ahead@ && k == max(v.steps - @last@, 0))
                asm volatile("bar.sync 2, 256;" ::: "memory");
            multiply(d, a + (i * @step_a@ >> 4), b + (i * @step_b@ >> 4), !(@first@));
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (!FROM && k == v.steps - 1) asm volatile("bar.arrive 2, 256;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        // What comes behind the last steps nobody waits for.
        if (lane == 0 && k && k - 1 + @stages@ < v.steps) arrive(EMPTY((k - 1) % @stages@));
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    settle(d);
    // Eight rows of a warp are on their way while the other eight are made.
    float bent[4][8];
    open(d, 0, bent[0]);
    bend(bent[0]);
    open(d, 1, bent[1]);
    bend(bent[1]);
    open(d, 2, bent[2]);
    place(d, 0, bent[0], staged);
    bend(bent[2]);
    place(d, 1, bent[1], staged);
    open(d, 3, bent[3]);
    @keep@
    __syncwarp();
    u32 line[4][4];
    fetch(line[0], from[0]);
    fetch(line[1], from[1]);
    bend(bent[3]);
    place(d, 2, bent[2], staged);
    store(to[0], line[0], within & 1);
    store(to[1], line[1], within & 2);
    place(d, 3, bent[3], staged);
    __syncwarp();
    fetch(line[2], from[2]);
    fetch(line[3], from[3]);
    store(to[2], line[2], within & 4);
    store(to[3], line[3], within & 8);
}

extern "C" __global__ void __launch_bounds__(@threads@, 1)
@name@(const __grid_constant__ Arguments v)
{
    extern __shared__ __align__(1024) char memory[];
    u32 base = (u32)__cvta_generic_to_shared(memory), data = base + @header@;
    // What all lanes know to be the same goes to registers that a warp has one of.
    int part = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0), thread = threadIdx.x;
    int row = blockIdx.x * @rows@, column = blockIdx.y * @columns@;
    if (part == 2) {
        if (thread == 256) {
            asm volatile("prefetch.tensormap [%0];" :: "l"(&v.a));
            asm volatile("prefetch.tensormap [%0];" :: "l"(&v.b));
            for (int stage = 0; stage < @stages@; stage++) {
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(FULL(stage)));
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" :: "r"(EMPTY(stage)));
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
        __syncwarp();
        asm volatile("bar.arrive 1, @threads@;" ::: "memory");  // nothing is waited for here
        if (thread == 256) {
            for (int k = 0; k < v.steps; k++) {
                int stage = k % @stages@;
                u32 to = data + stage * 3 * @box@;
                if (k >= @stages@) wait(EMPTY(stage), (k / @stages@ - 1) & 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 3 * @box@;"
                    :: "r"(FULL(stage)) : "memory");
                @bring_a@
                @bring_b@
                @bring_c@
            }
        }
    } else if (part == 0) {
        columns<0, @share@>(v, base);
    } else {
        columns<@share@, @columns@ - @share@>(v, base);
    }
}
"""
)
