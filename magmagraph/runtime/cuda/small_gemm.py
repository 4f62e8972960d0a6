"""Generated float32 products for shapes that leave most of a device empty in a library's kernels.

A product of 100 x 528 by 528 x 528 fills few multiprocessors with a library's tiles. Here tiles
are small, and the contracted axis is shared out to the blocks of a cluster, whose partial tiles are
added up through distributed shared memory in a fixed order. Each block brings its whole share of
both operands to shared memory at once, so that memory's latency is paid once. The epilogue (scale,
addend, or a whole elementwise region that follows the product) runs on the finished tile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..numpy.codegen_text import indent
from .prelude import complete

__all__ = [
    "Configuration",
    "Epilogue",
    "SmallProduct",
    "candidates",
    "complete_source",
    "plain_epilogue",
]


@dataclass(frozen=True)
class Configuration:
    """How a product is cut: the tile, the length of a share, blocks along the contracted axis.

    With `split` the tensor cores multiply, three times: each factor is the sum of two numbers of 11
    digits, of whose four products the smallest is left out. Without, each thread multiplies and
    adds 4 x 4 elements of the tile.
    """

    rows: int
    columns: int
    depth: int
    cluster: int
    split: bool = False

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 128 if self.split else self.rows * self.columns // 16

    @property
    def name(self) -> str:
        """A name to keep a choice by."""
        way = " split" if self.split else ""
        return f"{self.rows}x{self.columns}x{self.depth}/{self.cluster}{way}"


_TILES = ((32, 32, 136, True), (32, 64, 96, True), (16, 64, 112, True), (32, 32, 136, False))
_CLUSTERS = (2, 4, 6, 8)
SHALLOW = 40  # up to here a block has all of the contracted axis in one share


def candidates(m: int, n: int, k: int) -> list[Configuration]:
    """Return the ways of cutting a product that are worth a trial."""
    if m * n > 1 << 17:
        return []  # libraries are as fast
    if k <= SHALLOW:
        return [Configuration(*tile, SHALLOW, 1, True) for tile in ((32, 32), (16, 64))]
    if k < 256:
        return []
    return [
        Configuration(rows, columns, depth, cluster, split)
        for rows, columns, depth, split in _TILES
        for cluster in _CLUSTERS
        if k <= 2 * depth * cluster
    ]


@dataclass(frozen=True)
class Epilogue:
    """What is done with each element ``sum`` at ``row``, ``column``: lines of CUDA C.

    Attributes
    ----------
    head
        Lines at the beginning of the kernel, which take operands out of ``v``.
    lines
        Lines for one element.
    end
        Lines when a block's part of the tile is done. Each thread had elements of one column.
    """

    head: tuple[str, ...]
    lines: tuple[str, ...]
    end: tuple[str, ...] = ()


def plain_epilogue(scaled: bool, accumulate: bool) -> Epilogue:
    """Return ``out = alpha * sum + beta * c``; arguments 2 to 5 are out, c, alpha, beta."""
    head = ["float *out = (float *)v[2];"]
    value = "sum"
    if scaled:
        head.append("const float alpha = *(const float *)v[4];")
        value = "alpha * sum"
    if accumulate:
        head.append("const float *addend = (const float *)v[3];")
        head.append("const float beta = *(const float *)v[5];")
        value += " + beta * addend[row * n + column]"
    return Epilogue(tuple(head), (f"out[row * n + column] = {value};",))


SIZES = 6  # arguments: a, b, out, c, alpha, beta, then m, n, k
FIRST_OF_EPILOGUE = 9  # arguments of an epilogue that is a region begin here


class SmallProduct:
    """The source of one generated product.

    Parameters
    ----------
    configuration
        How it is cut.
    transpose_a, transpose_b
        Whether a is stored as (k, m), b as (n, k).
    wide_a, wide_b
        Whether rows in memory are multiples of 16 bytes.
    epilogue
        What is done with the elements.
    """

    def __init__(
        self,
        configuration: Configuration,
        transpose_a: bool,
        transpose_b: bool,
        wide_a: bool,
        wide_b: bool,
        epilogue: Epilogue,
    ) -> None:
        self.configuration = configuration
        self.along_a = not transpose_a  # neighbours in memory lie along the contracted axis
        self.along_b = transpose_b
        self.wide_a, self.wide_b = wide_a, wide_b
        self.epilogue = epilogue
        body = self._text()
        self.key = hashlib.sha256(body.encode()).hexdigest()[:16]
        self.name = f"product_{self.key}"
        self.source = body.replace("mg_product", self.name)

    def grid(self, m: int, n: int) -> tuple[int, int, int]:
        """Return the blocks for a result of m x n."""
        c = self.configuration
        return -(-n // c.columns), -(-m // c.rows), c.cluster

    # ---- Text

    def _stage(self, letter: str, extent: str, size: int, along: bool, wide: bool, leading: str
               ) -> list[str]:
        """Return the lines that bring an operand's share of the tile to shared memory."""
        c = self.configuration
        step = 4 if wide else 1
        depth = c.depth
        source, first = f"{letter}", f"{letter}_first"
        if along:  # shared[r][k]
            across, stride = depth // step, depth + 4
            place = f"({letter}_shared + (i / {across}) * {stride} + (i % {across}) * {step})"
            r, k = f"(i / {across})", f"(i % {across}) * {step}"
            address = f"{source} + (int64_t)({first} + {r}) * {leading} + low + {k}"
            valid = f"{first} + {r} < {extent} && low + {k} < high"
        else:  # shared[k][r]
            across, stride = size // step, size + 8
            place = f"({letter}_shared + (i / {across}) * {stride} + (i % {across}) * {step})"
            k, r = f"(i / {across})", f"(i % {across}) * {step}"
            address = f"{source} + (int64_t)(low + {k}) * {leading} + {first} + {r}"
            valid = f"{first} + {r} < {extent} && low + {k} < high"
        count = size * depth // step
        return [
            "#pragma unroll 4",
            f"for (int i = thread; i < {count}; i += {c.threads}) {{",
            f"    const bool valid = {valid};",
            f"    mg_bring{step}({place}, valid ? {address} : {source}, valid);",
            "}",
        ]

    def _read(self, letter: str, size: int, along: bool, name: str, lane: str, lanes: int
              ) -> list[str]:
        """Return the lines that take 4 x 4 elements of a share into registers, k after k."""
        depth = self.configuration.depth
        lines = [f"float {name}[4][4];"]
        for i in range(4):
            if along:
                place = f"{letter}_shared + ({lane} + {i * lanes}) * {depth + 4} + k"
                lines.append(f"const float4 {name}{i} = *(const float4 *)({place});")
                lines += [f"{name}[{i}][{j}] = {name}{i}.{'xyzw'[j]};" for j in range(4)]
            else:
                place = f"{letter}_shared + (k + {i}) * {size + 8} + {lane} * 4"
                lines.append(f"const float4 {name}{i} = *(const float4 *)({place});")
                lines += [f"{name}[{j}][{i}] = {name}{i}.{'xyzw'[j]};" for j in range(4)]
        return lines

    def _at(self, letter: str, r: str, k: str) -> str:
        """Return an element of a share in shared memory."""
        c = self.configuration
        along = self.along_a if letter == "a" else self.along_b
        size = c.rows if letter == "a" else c.columns
        if along:
            return f"{letter}_shared[({r}) * {c.depth + 4} + {k}]"
        return f"{letter}_shared[({k}) * {size + 8} + {r}]"

    def _split_text(self) -> str:
        """Return the kernel in which the tensor cores multiply."""
        c = self.configuration
        size_a = c.rows * (c.depth + 4) if self.along_a else c.depth * (c.rows + 8)
        size_b = c.columns * (c.depth + 4) if self.along_b else c.depth * (c.columns + 8)
        down = c.rows // 16
        across = 4 // down
        tiles = c.columns // across // 8
        tile = c.columns + 4
        cluster = c.cluster > 1
        attribute = f"__cluster_dims__(1, 1, {c.cluster}) " if cluster else ""
        a_reads = [
            f"mg_split({self._at('a', f'top + {r}', f'k + t + {k}')}, high_a[{i}], low_a[{i}]);"
            for i, (r, k) in enumerate(((0, 0), (8, 0), (0, 4), (8, 4)))
        ]
        b_reads = [
            f"mg_split({self._at('b', 'left + 8 * j + g', f'k + t + {k}')}, "
            f"high_b[{i}], low_b[{i}]);"
            for i, k in enumerate((0, 4))
        ]
        element = (
            f"sum = fmaf({self._at('a', 'r', 'k')}, {self._at('b', 'q', 'k')}, sum);"
        )
        size = c.rows * (c.columns + 4)
        lines = [
            "const int64_t *v = arguments.v;",
            "const float *a = (const float *)v[0];",
            "const float *b = (const float *)v[1];",
            f"const int m = (int)v[{SIZES}], n = (int)v[{SIZES + 1}], depth = (int)v[{SIZES + 2}];",
            *self.epilogue.head,
            f"const int leading_a = {'depth' if self.along_a else 'm'};",
            f"const int leading_b = {'depth' if self.along_b else 'n'};",
            f"__shared__ __align__(16) float shared[{max(size_a + size_b, size)}];",
            f"float *a_shared = shared, *b_shared = shared + {size_a};",
            "const int thread = threadIdx.x, warp = thread >> 5;",
            "const int g = (thread & 31) >> 2, t = thread & 3;",
            f"const int top = warp % {down} * 16 + g, left = warp / {down} * {tiles * 8};",
            f"const int a_first = blockIdx.y * {c.rows}, b_first = blockIdx.x * {c.columns};",
            f"const int share = (depth + {8 * c.cluster} - 1) / {8 * c.cluster} * 8;",
            "const int begin = blockIdx.z * share;",
            "const int end = begin + share < depth ? begin + share : depth;",
            f"float sums[{tiles}][4];",
            f"for (int j = 0; j < {tiles}; j++) for (int i = 0; i < 4; i++) sums[j][i] = 0;",
            f"for (int low = begin; low < end; low += {c.depth}) {{",
            *indent([
                f"const int high = low + {c.depth} < end ? low + {c.depth} : end;",
                *self._stage("a", "m", c.rows, self.along_a, self.wide_a, "leading_a"),
                *self._stage("b", "n", c.columns, self.along_b, self.wide_b, "leading_b"),
                "mg_wait();",
                "__syncthreads();",
                f"float part[{tiles}][4];",
                f"for (int j = 0; j < {tiles}; j++) for (int i = 0; i < 4; i++) part[j][i] = 0;",
                "#pragma unroll 2",
                "for (int k = 0; k < high - low; k += 8) {",
                *indent([
                    "unsigned high_a[4], low_a[4];",
                    *a_reads,
                    "#pragma unroll",
                    f"for (int j = 0; j < {tiles}; j++) {{",
                    *indent([
                        "unsigned high_b[2], low_b[2];",
                        *b_reads,
                        "/* Tensor cores cut what they add: only eight products at a time. */",
                        "float few[4] = {0, 0, 0, 0};",
                        "mg_multiply(few, low_a, high_b);",
                        "mg_multiply(few, high_a, low_b);",
                        "mg_multiply(few, high_a, high_b);",
                        "#pragma unroll",
                        "for (int i = 0; i < 4; i++) part[j][i] += few[i];",
                    ]),
                    "}",
                ]),
                "}",
                "/* Infinities in the factors make NaN of what is left over of them. */",
                "bool whole = true;",
                "#pragma unroll",
                f"for (int j = 0; j < {tiles}; j++)",
                "    #pragma unroll",
                "    for (int i = 0; i < 4; i++)",
                "        whole = whole && fabsf(part[j][i]) <= 3.402823466e38f;",
                "if (!whole) {",
                *indent([
                    f"for (int j = 0; j < {tiles}; j++)",
                    "    for (int i = 0; i < 4; i++) {",
                    "        const int r = top + (i >> 1) * 8, q = left + 8 * j + 2 * t + (i & 1);",
                    "        float sum = 0;",
                    "        for (int k = 0; k < high - low; k++)",
                    f"            {element}",
                    "        part[j][i] = sum;",
                    "    }",
                ]),
                "}",
                "#pragma unroll",
                f"for (int j = 0; j < {tiles}; j++)",
                "    #pragma unroll",
                "    for (int i = 0; i < 4; i++)",
                "        sums[j][i] += part[j][i];",
                "__syncthreads();",
            ]),
            "}",
            "#pragma unroll",
            f"for (int j = 0; j < {tiles}; j++)",
            "    #pragma unroll",
            "    for (int i = 0; i < 4; i++)",
            f"        shared[(top + (i >> 1) * 8) * {tile} + left + 8 * j + 2 * t + (i & 1)] = "
            "sums[j][i];",
            *self._gather(),
        ]
        return self._function(attribute, lines)

    def _gather(self) -> list[str]:
        """Return the lines that add up the tiles of a cluster, and the epilogue."""
        c = self.configuration
        tile = c.columns + 4
        part = -(-c.rows // c.cluster)
        cluster = c.cluster > 1
        barrier = "mg_cluster_barrier();" if cluster else "__syncthreads();"
        total = (
            [
                "float sum = 0;",
                "#pragma unroll",
                f"for (int rank = 0; rank < {c.cluster}; rank++)",
                "    sum += mg_remote(shared + here, rank);",
            ]
            if cluster
            else ["const float sum = shared[here];"]
        )
        return [
            barrier,
            f"const int from = blockIdx.z * {part};",
            f"const int until = from + {part} < {c.rows} ? from + {part} : {c.rows};",
            f"for (int at = from * {c.columns} + thread; at < until * {c.columns}; "
            f"at += {c.threads}) {{",
            *indent([
                f"const int here = at / {c.columns} * {tile} + at % {c.columns};",
                *total,
                f"const int row = a_first + at / {c.columns};",
                f"const int column = b_first + at % {c.columns};",
                "if (row < m && column < n) {",
                *indent(self.epilogue.lines),
                "}",
            ]),
            "}",
            barrier,
            *self.epilogue.end,
        ]

    def _function(self, attribute: str, lines: Sequence[str]) -> str:
        return "\n".join([
            f'extern "C" __global__ void {attribute}'
            f"__launch_bounds__({self.configuration.threads})",
            "mg_product(const __grid_constant__ mg_arguments arguments)",
            "{",
            *indent(lines),
            "}",
            "",
        ])

    def _text(self) -> str:
        c = self.configuration
        across = c.columns // 4
        down = c.rows // 4
        if c.split:
            return self._split_text()
        size_a = c.rows * (c.depth + 4) if self.along_a else c.depth * (c.rows + 8)
        size_b = c.columns * (c.depth + 4) if self.along_b else c.depth * (c.columns + 8)
        row = f"ty + i * {down}" if self.along_a else "ty * 4 + i"
        column = f"tx + j * {across}" if self.along_b else "tx * 4 + j"
        cluster = c.cluster > 1
        attribute = f"__cluster_dims__(1, 1, {c.cluster}) " if cluster else ""
        size = c.rows * (c.columns + 4)
        lines = [
            "const int64_t *v = arguments.v;",
            "const float *a = (const float *)v[0];",
            "const float *b = (const float *)v[1];",
            f"const int m = (int)v[{SIZES}], n = (int)v[{SIZES + 1}], depth = (int)v[{SIZES + 2}];",
            *self.epilogue.head,
            f"const int leading_a = {'depth' if self.along_a else 'm'};",
            f"const int leading_b = {'depth' if self.along_b else 'n'};",
            f"__shared__ __align__(16) float shared[{max(size_a + size_b, size)}];",
            f"float *a_shared = shared, *b_shared = shared + {size_a};",
            f"const int thread = threadIdx.x, tx = thread % {across}, ty = thread / {across};",
            f"const int a_first = blockIdx.y * {c.rows}, b_first = blockIdx.x * {c.columns};",
            f"const int share = (depth + {4 * c.cluster} - 1) / {4 * c.cluster} * 4;",
            "const int begin = blockIdx.z * share;",
            "const int end = begin + share < depth ? begin + share : depth;",
            "float sums[4][4];",
            "for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) sums[i][j] = 0;",
            f"for (int low = begin; low < end; low += {c.depth}) {{",
            *indent([
                f"const int high = low + {c.depth} < end ? low + {c.depth} : end;",
                *self._stage("a", "m", c.rows, self.along_a, self.wide_a, "leading_a"),
                *self._stage("b", "n", c.columns, self.along_b, self.wide_b, "leading_b"),
                "mg_wait();",
                "__syncthreads();",
                "const int count = (high - low + 3) & ~3;",
                "#pragma unroll 2",
                "for (int k = 0; k < count; k += 4) {",
                *indent([
                    *self._read("a", c.rows, self.along_a, "x", "ty", down),
                    *self._read("b", c.columns, self.along_b, "y", "tx", across),
                    "#pragma unroll",
                    "for (int s = 0; s < 4; s++)",
                    "    #pragma unroll",
                    "    for (int i = 0; i < 4; i++)",
                    "        #pragma unroll",
                    "        for (int j = 0; j < 4; j++)",
                    "            sums[i][j] = fmaf(x[i][s], y[j][s], sums[i][j]);",
                ]),
                "}",
                "__syncthreads();",
            ]),
            "}",
        ]
        lines += [
            "#pragma unroll",
            "for (int i = 0; i < 4; i++)",
            "    #pragma unroll",
            "    for (int j = 0; j < 4; j++)",
            f"        shared[({row}) * {c.columns + 4} + {column}] = sums[i][j];",
            *self._gather(),
        ]
        return self._function(attribute, lines)


HELPERS = r"""
static __device__ __forceinline__ void mg_split(float x, unsigned &high, unsigned &low)
{
    /* Rounded, so that what is left over has either sign; the tensor cores cut the low one. */
    high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint(x - __uint_as_float(high)) + 0x1000u;
}
static __device__ __forceinline__ void mg_multiply(
    float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static __device__ __forceinline__ void mg_bring4(float *to, const float *from, bool valid)
{
    const unsigned place = (unsigned)__cvta_generic_to_shared(to);
    const int count = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
                 "r"(place), "l"(from), "r"(count) : "memory");
}
static __device__ __forceinline__ void mg_bring1(float *to, const float *from, bool valid)
{
    const unsigned place = (unsigned)__cvta_generic_to_shared(to);
    const int count = valid ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::
                 "r"(place), "l"(from), "r"(count) : "memory");
}
static __device__ __forceinline__ void mg_wait()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}
static __device__ __forceinline__ void mg_cluster_barrier()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
static __device__ __forceinline__ float mg_remote(const float *place, int rank)
{
    const unsigned here = (unsigned)__cvta_generic_to_shared(place);
    unsigned there;
    float value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there) : "memory");
    return value;
}
"""


def complete_source(products: Sequence[Any]) -> str:
    """Return one source with some products."""
    text = "\n".join([HELPERS, *(product.source for product in products)])
    return complete(f"typedef int idx;\n{text}", 64)
