"""CUDA C for large 16-bit products on Hopper: a function of ``x @ w + bias``, stored in 16 bits.

Each multiprocessor has one block, which takes one tile of the result after another. A warp brings
what the next steps multiply to shared memory, by the bulk copies that know tensors, as far ahead as
there is room. Two warpgroups have every other tile each: while the tensor cores multiply for one,
the other applies the epilogue to its sums and stores them. Blocks wait for no other block, so that
any number of such kernels may run beside each other.

A bias is where the sums begin. Sums stay in registers; what is stored goes through shared memory,
in pieces of 64 x 64, which a bulk copy takes from there. Its copies leave out what lies outside of
the result, and those that read give zeros there, so that no extent has to fill tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "HELPERS", "NAME", "PIECE", "SHARED", "STEP", "THREADS", "TILE", "WideKernel", "completed",
    "multiplying",
]  # fmt: skip

TILE = 128  # rows and columns of a tile
STEP = 64  # terms that are brought at a time: 128 bytes, of which swizzled lines are
PIECE = 64  # rows and columns that one copy stores
THREADS = 384  # a warpgroup that brings factors, and two that multiply
NAME = "mg_wide"

_STAGES = 6
_LINE = 128  # bytes
_FACTOR = TILE * _LINE  # bytes of one factor of a step
_BOX = PIECE * _LINE
_BOXES = 2  # of each warpgroup, for results
_HEADER = 3072  # barriers, and the biases of two tiles
SHARED = _HEADER + 2 * _STAGES * _FACTOR + 2 * _BOXES * _BOX
_ROWS = 8  # rows of tiles that are taken together: their factors stay in the second-level cache
_SUMS = TILE // 2  # of a thread, for 64 rows
_SHORT = {"bfloat16": "bf16", "float16": "f16"}

# What is done to an element: what an instruction of few units takes, that, and the rest, which
# takes both. 0.7978845608 is the root of 2 / pi, 0.0356774081 is 0.044715 of it.
_SAME = "return x;", "return x;", "return x;"
_FUNCTIONS = {
    "": _SAME,
    "relu": _SAME,  # narrowing does it
    "gelu": (
        "return x * fmaf(x * x, 0.0356774081f, 0.7978845608f);",
        """asm("tanh.approx.f32 %0, %0;" : "+f"(x));
    return x;""",
        """float half = 0.5f * x;
    return fmaf(half, bent, half);""",
    ),
}
_WIDER = {
    "bfloat16": """low = __uint_as_float(pair << 16);
    high = __uint_as_float(pair & 0xffff0000u);""",
    "float16": """asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
        : "=f"(low), "=f"(high) : "r"(pair));""",
}


@dataclass(frozen=True)
class WideKernel:
    """The kernel of one kind of product.

    Attributes
    ----------
    dtype
        Of the factors, the bias and the result: "float16" or "bfloat16".
    transpose_a, transpose_b
        Whether the first factor is stored as (k, m), the second as (n, k).
    epilogue
        As `gemm.Shape` has it.
    """

    dtype: str
    transpose_a: bool
    transpose_b: bool
    epilogue: str = ""

    @property
    def biased(self) -> bool:
        """Whether a vector is added to each row."""
        return "bias" in self.epilogue

    @property
    def source(self) -> str:
        """The kernel, whose name is `NAME`."""
        return completed(
            _TEXT, self.dtype, self.epilogue,
            multiply=multiplying(self.dtype, self.transpose_a, self.transpose_b, TILE),
            bring_a=_bring("a", "row", self.transpose_a),
            bring_b=_bring("b", "column", not self.transpose_b),
            begin=_BIAS if self.biased else "",
            first="0" if self.biased else "(k | i) == 0",
            # Along a line 16 terms are 32 bytes; where lines are terms, they are 16 lines.
            step_a=16 * _LINE if self.transpose_a else 32,
            step_b=32 if self.transpose_b else 16 * _LINE,
            stages=_STAGES, factor=_FACTOR, box=_BOX, boxes=_BOXES, header=_HEADER, rows=_ROWS,
            tile=TILE, step=STEP, sums=_SUMS, threads=THREADS, name=NAME,
        )  # fmt: skip


def multiplying(dtype: str, transpose_a: bool, transpose_b: bool, columns: int) -> str:
    """Return what multiplies 64 rows and so many columns, and says when their sums are there."""
    kind, sums = _SHORT[dtype], columns // 2
    registers = ", ".join(f"%{i}" for i in range(sums))
    both = ", ".join(f'"+f"(d[{i}])' for i in range(sums))
    return f"""static __device__ __forceinline__ void multiply(
    float (&d)[{sums}], u64 a, u64 b, int add)
{{
    asm volatile("{{.reg .pred p; setp.ne.b32 p, %{sums + 2}, 0;"
        "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} "
        "{{{registers}}}, "
        "%{sums}, %{sums + 1}, p, 1, 1, {int(transpose_a)}, {int(not transpose_b)};}}"
        : {both}
        : "l"(a), "l"(b), "r"(add));
}}
// The sums are in these registers only from here on.
static __device__ __forceinline__ void settle(float (&d)[{sums}])
{{
    asm volatile("" : {both} :: "memory");
}}"""


def completed(text: str, dtype: str, epilogue: str, **more: object) -> str:
    """Return a source text with its placeholders filled, such as the element's epilogue.

    Parameters
    ----------
    text
        What it leaves open stands between two @.
    dtype, epilogue
        As `WideKernel` has them.
    **more
        All but that, by names, in an order in which none has another that came before.
    """
    function = epilogue.removesuffix("bias").removesuffix("_")
    inner, bent, outer = _FUNCTIONS[function]
    filled = {
        "inner": inner, "bent": bent, "outer": outer, "wider": _WIDER[dtype],
        "clamp": ".relu" if function == "relu" else "", "short": _SHORT[dtype],
    }  # fmt: skip
    for name, value in {**filled, **more}.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def _bring(factor: str, at: str, lines_are_terms: bool) -> str:
    """Return what brings a factor's part of a step."""
    if not lines_are_terms:
        return f"bring({factor}, &v.{factor}, k * {STEP}, {at}, FULL(stage));"
    return "\n                    ".join(
        f"bring({factor} + {i * _BOX}, &v.{factor}, {at} + {i * PIECE}, k * {STEP}, FULL(stage));"
        for i in range(TILE // PIECE)
    )


_BIAS = """{
                u32 table = base + 1024 + w * 1024;
                asm volatile("bar.sync %0, 128;" :: "r"(w + 1) : "memory");
                if (thread < @tile@ / 2) {
                    int at = column + thread * 2;
                    float low, high;
                    widen(at < v.n ? __ldg(v.bias + at / 2) : 0, low, high);
                    asm volatile("st.shared.v2.f32 [%0], {%1, %2};"
                        :: "r"(table + thread * 8), "f"(low), "f"(high) : "memory");
                }
                asm volatile("bar.sync %0, 128;" :: "r"(w + 1) : "memory");
                #pragma unroll
                for (int j = 0; j < @tile@ / 8; j++) {
                    float low, high;
                    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                        : "=f"(low), "=f"(high) : "r"(table + j * 32 + lane % 4 * 8) : "memory");
                    #pragma unroll
                    for (int r = 0; r < 2; r++) {
                        d[r][j * 4] = d[r][j * 4 + 2] = low;
                        d[r][j * 4 + 1] = d[r][j * 4 + 3] = high;
                    }
                }
            }"""

# What kernels of these products share: what is done to an element, copies and barriers.
HELPERS = r"""
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(64) Map { u64 words[16]; };
static __device__ __forceinline__ void wait(u32 barrier, u32 phase)
{
    asm volatile("{.reg .pred p; again: "
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again;}"
        :: "r"(barrier), "r"(phase) : "memory");
}
static __device__ __forceinline__ void arrive(u32 barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}
static __device__ __forceinline__ void bring(u32 to, const Map *map, int x, int y, u32 barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];"
        :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}
// What the tensor cores are told of a factor: lines of 128 bytes, swizzled, eight of them 1024
// bytes from the next eight; where lines are terms, 64 others of the tile begin behind 64 lines.
static __device__ __forceinline__ u64 described(u32 address)
{
    return (u64)((address & 0x3ffff) >> 4) | (u64)(8192 >> 4) << 16 | (u64)(1024 >> 4) << 32
        | 1ull << 62;
}
static __device__ __forceinline__ float inner(float x)
{
    @inner@
}
static __device__ __forceinline__ float bend(float x)
{
    @bent@
}
static __device__ __forceinline__ float outer(float x, float bent)
{
    @outer@
}
static __device__ __forceinline__ float function(float x)
{
    return outer(x, bend(inner(x)));
}
static __device__ __forceinline__ void widen(u32 pair, float &low, float &high)
{
    @wider@
}
static __device__ __forceinline__ u32 narrow(float low, float high)
{
    u32 made;
    asm("cvt.rn@clamp@.@short@x2.f32 %0, %1, %2;" : "=r"(made) : "f"(high), "f"(low));
    return made;
}
"""

_TEXT = HELPERS + r"""
struct alignas(64) Arguments { Map a, b, out; const u32 *bias; int rows, columns, steps, n; };

@multiply@
static __device__ __forceinline__ void place(int tile, int rows, int columns, int &row, int &column)
{
    int band = @rows@ * columns, number = tile / band, rest = tile - number * band;
    int first = number * @rows@, count = min(rows - first, @rows@);
    column = rest / count;
    row = (first + rest - column * count) * @tile@;
    column *= @tile@;
}

extern "C" __global__ void __launch_bounds__(@threads@, 1)
@name@(const __grid_constant__ Arguments v)
{
    extern __shared__ __align__(1024) char memory[];
    u32 base = (u32)__cvta_generic_to_shared(memory), data = base + @header@;
    #define FULL(stage) (base + 8 * (stage))
    #define EMPTY(stage) (base + 128 + 8 * (stage))
    #define TURN(w) (base + 256 + 8 * (w))
    // What all lanes know to be the same goes to registers that a warp has one of.
    int part = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < @stages@; stage++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(FULL(stage)));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" :: "r"(EMPTY(stage)));
        }
        for (int w = 0; w < 2; w++)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(TURN(w)));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    int tiles = v.rows * v.columns;
    if (part == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (thread == 0) {
            int stage = 0;
            u32 phase = 1;
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
                int row, column;
                place(tile, v.rows, v.columns, row, column);
                for (int k = 0; k < v.steps; k++) {
                    wait(EMPTY(stage), phase);
                    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 2 * @factor@;"
                        :: "r"(FULL(stage)) : "memory");
                    u32 a = data + stage * 2 * @factor@, b = a + @factor@;
                    @bring_a@
                    @bring_b@
                    if (++stage == @stages@) stage = 0, phase ^= 1;
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        int w = part - 1, lane = thread % 32, warp = thread / 32;
        float d[2][@sums@];
        u32 boxes = data + 2 * @stages@ * @factor@ + w * @boxes@ * @box@;
        int number = w;
        for (int tile = blockIdx.x + w * gridDim.x; tile < tiles; tile += 2 * gridDim.x) {
            int row, column;
            place(tile, v.rows, v.columns, row, column);
            u32 steps = (u32)number * (u32)v.steps;  // all that were before this tile
            u32 stage = steps % @stages@, phase = steps / @stages@ & 1, before = 0;
            @begin@
            if (number) wait(TURN(w), (number - 1) / 2 & 1);
            for (int k = 0; k < v.steps; k++) {
                wait(FULL(stage), phase);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                u64 a = described(data + stage * 2 * @factor@);
                u64 b = described(data + stage * 2 * @factor@ + @factor@);
                #pragma unroll
                for (int i = 0; i < @step@ / 16; i++) {
                    #pragma unroll
                    for (int r = 0; r < 2; r++)
                        multiply(d[r], a + ((i * @step_a@ + r * @box@) >> 4),
                            b + ((i * @step_b@) >> 4), !(@first@));
                }
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                if (k && lane == 0) arrive(EMPTY(before));
                before = stage;
                if (++stage == @stages@) stage = 0, phase ^= 1;
            }
            // The other's products follow these, which still are under way.
            if (thread == 0) arrive(TURN(1 - w));
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            settle(d[0]);
            settle(d[1]);
            if (lane == 0) arrive(EMPTY(before));
            #pragma unroll
            for (int piece = 0; piece < 4; piece++) {
                const int r = piece / 2, p = piece % 2;
                u32 to = boxes + piece % @boxes@ * @box@;
                if (thread == 0)
                    asm volatile("cp.async.bulk.wait_group.read @boxes@ - 1;" ::: "memory");
                asm volatile("bar.sync %0, 128;" :: "r"(w + 1) : "memory");
                #pragma unroll
                for (int j = 0; j < 8; j += 2) {
                    u32 made[4];
                    #pragma unroll
                    for (int i = 0; i < 4; i++) {
                        int at = (p * 8 + j + i / 2) * 4 + i % 2 * 2;
                        made[i] = narrow(function(d[r][at]), function(d[r][at + 1]));
                    }
                    u32 line = warp * 16 + lane % 16, unit = (j + lane / 16) ^ (lane & 7);
                    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                        :: "r"(to + line * 128 + unit * 16),
                        "r"(made[0]), "r"(made[1]), "r"(made[2]), "r"(made[3]) : "memory");
                }
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                asm volatile("bar.sync %0, 128;" :: "r"(w + 1) : "memory");
                if (thread == 0) {
                    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group "
                        "[%0, {%1, %2}], [%3];"
                        :: "l"(&v.out), "r"(column + p * 64), "r"(row + r * 64), "r"(to)
                        : "memory");
                    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                }
            }
            number += 2;
        }
        if (thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
"""
