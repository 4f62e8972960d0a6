"""CUDA C for 16-bit products on Hopper with one tile of the result for each multiprocessor.

A library's kernel ends everywhere at the same time there, so that nothing hides what is done to the
elements. Tiles of 64 x 128 give each multiprocessor one, and two warpgroups half of its columns
each. One thread brings 128 terms at a time, four steps ahead. For the last of these the second
warpgroup waits until the first has begun with its own: the first ends earlier, and applies the
epilogue to its sums, and stores them, while the tensor cores multiply for the other. A bias is
where the sums begin. Each warp stores its 16 rows by itself, 16 bytes a lane, by way of shared
memory.

Factors are brought with zeros for what lies outside of them; no extent has to fill tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

from .wide_source import HELPERS, completed, multiplying

__all__ = ["COLUMNS", "NAME", "PIECE", "ROWS", "SHARED", "STEP", "THREADS", "OneTileKernel"]

ROWS, COLUMNS = 64, 128  # of a tile
STEP = 128  # terms that are brought at a time
PIECE = 64  # columns of a warpgroup, and terms or columns of a line
THREADS = 288  # two warpgroups that multiply, and a warp that brings factors
NAME = "mg_one_tile"

_STAGES = 4
_LINE = 128  # bytes
_BOX = PIECE * _LINE
_PART = STEP * _LINE  # bytes of what a step has of 64 rows or columns
_HEADER = 1024  # barriers
SHARED = _HEADER + _STAGES * 3 * _PART + 2 * _BOX
_SUMS = PIECE // 2  # of a thread


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
            multiply=multiplying(self.dtype, self.transpose_a, self.transpose_b, PIECE),
            bring_a=_bring("a", "to", "row", "FULL(stage)", self.transpose_a),
            bring_b=_bring("b", "to + @part@", "column", "FULL(stage)", not self.transpose_b),
            bring_c=_bring(
                "b", "to + 2 * @part@", f"column + {PIECE}", "MORE(stage)", not self.transpose_b
            ),
            begin=_BIAS if biased else "",
            first="0" if biased else "(k | i) == 0",
            # Along a line 16 terms are 32 bytes; where lines are terms, they are 16 lines.
            step_a=_along(self.transpose_a), step_b=_along(not self.transpose_b),
            stages=_STAGES, part=_PART, box=_BOX, header=_HEADER, rows=ROWS, columns=COLUMNS,
            piece=PIECE, step=STEP, sums=_SUMS, threads=THREADS, name=NAME,
        )  # fmt: skip


def _bring(factor: str, to: str, at: str, barrier: str, lines_are_terms: bool) -> str:
    """Return what brings 64 rows or columns of a factor's part of a step."""
    if lines_are_terms:
        return f"bring({to}, &v.{factor}, {at}, k * {STEP}, {barrier});"
    return "\n                ".join(
        f"bring({to} + {i * _BOX}, &v.{factor}, k * {STEP} + {i * PIECE}, {at}, {barrier});"
        for i in range(STEP // PIECE)
    )


def _along(lines_are_terms: bool) -> str:
    """Return how many bytes behind the first term of a step 16 * i others are."""
    return f"i * {16 * _LINE}" if lines_are_terms else "(i / 4 * @box@ + i % 4 * 32)"


_BIAS = """#pragma unroll
        for (int j = 0; j < @piece@ / 8; j++) {
            int at = column + j * 8 + lane % 4 * 2;
            float low, high;
            widen(at < v.n ? __ldg(v.bias + at / 2) : 0, low, high);
            d[j * 4] = d[j * 4 + 2] = low;
            d[j * 4 + 1] = d[j * 4 + 3] = high;
        }
        // Two sums that begin with one number need a register each from the first product on:
        // else the compiler waits for every product.
        settle(d);"""

_TEXT = (
    HELPERS
    + r"""
struct alignas(64) Arguments { Map a, b; const u32 *bias; char *out; int steps, m, n; };

@multiply@

extern "C" __global__ void __launch_bounds__(@threads@, 1)
@name@(const __grid_constant__ Arguments v)
{
    extern __shared__ __align__(1024) char memory[];
    u32 base = (u32)__cvta_generic_to_shared(memory), data = base + @header@;
    #define FULL(stage) (base + 8 * (stage))
    #define MORE(stage) (base + 64 + 8 * (stage))
    #define EMPTY(stage) (base + 128 + 8 * (stage))
    // What all lanes know to be the same goes to registers that a warp has one of.
    int part = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0), thread = threadIdx.x;
    int lane = thread % 32, row = blockIdx.x * @rows@, column = blockIdx.y * @columns@;
    if (part == 2) {
        if (lane == 0) {
            asm volatile("prefetch.tensormap [%0];" :: "l"(&v.a));
            asm volatile("prefetch.tensormap [%0];" :: "l"(&v.b));
            for (int stage = 0; stage < @stages@; stage++) {
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(FULL(stage)));
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(MORE(stage)));
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" :: "r"(EMPTY(stage)));
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
        __syncwarp();
        asm volatile("bar.arrive 1, @threads@;" ::: "memory");  // nothing is waited for here
        if (lane == 0) {
            for (int k = 0; k < v.steps; k++) {
                int stage = k % @stages@;
                u32 to = data + stage * 3 * @part@;
                if (k >= @stages@) wait(EMPTY(stage), (k / @stages@ - 1) & 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 2 * @part@;"
                    :: "r"(FULL(stage)) : "memory");
                @bring_a@
                @bring_b@
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], @part@;"
                    :: "r"(MORE(stage)) : "memory");
                @bring_c@
            }
        }
    } else {
        int warp = thread / 32 % 4;
        row += warp * 16;
        column += part * @piece@;
        float d[@sums@];
        @begin@
        asm volatile("bar.sync 1, @threads@;" ::: "memory");
        #pragma unroll 1
        for (int k = 0; k < v.steps; k++) {
            int stage = k % @stages@;
            u32 phase = k / @stages@ & 1, held = data + stage * 3 * @part@;
            wait(FULL(stage), phase);
            if (part) wait(MORE(stage), phase);
            if (part && k == v.steps - 1) asm volatile("bar.sync 2, 256;" ::: "memory");
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            u64 a = described(held), b = described(held + (1 + part) * @part@);
            #pragma unroll
            for (int i = 0; i < @step@ / 16; i++)
                multiply(d, a + (@step_a@ >> 4), b + (@step_b@ >> 4), !(@first@));
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            if (!part && k == v.steps - 1) asm volatile("bar.arrive 2, 256;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            // What comes behind the last steps nobody waits for.
            if (lane == 0 && k && k - 1 + @stages@ < v.steps) arrive(EMPTY((k - 1) % @stages@));
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        settle(d);
        u32 staged = data + @stages@ * 3 * @part@ + part * @box@ + warp * 2048;
        #pragma unroll
        for (int j = 0; j < 8; j += 2) {
            u32 made[4];
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                int at = (j + i / 2) * 4 + i % 2 * 2;
                made[i] = narrow(function(d[at]), function(d[at + 1]));
            }
            u32 line = lane % 16, unit = (j + lane / 16) ^ (lane & 7);
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                :: "r"(staged + line * 128 + unit * 16),
                "r"(made[0]), "r"(made[1]), "r"(made[2]), "r"(made[3]) : "memory");
        }
        __syncwarp();
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            int line = i * 4 + lane / 8, unit = lane % 8;
            u32 x, y, z, w;
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
                : "r"(staged + line * 128 + (unit ^ (line & 7)) * 16) : "memory");
            if (row + line < v.m && column + unit * 8 < v.n)
                asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                    :: "l"(v.out + 2 * ((long long)(row + line) * v.n + column + unit * 8)),
                    "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
        }
    }
}
"""
)
