"""Generated float32 products for shapes that leave most of a device empty in a library's kernels.

A product of 100 x 528 by 528 x 528 fills few multiprocessors with a library's tiles. Here tiles are
small, and the warps of a block share out the contracted axis: each multiplies its part on the
tensor cores, and their tiles are added up in a fixed order. The epilogue (scale, addend, or a whole
elementwise region that follows the product) runs on the finished tile.

Launches overlap: a block may begin while the launch before it still runs. It brings the factor that
this does not write (weights, or activations of an earlier layer) to shared memory, and waits only
then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ....ir.records import record
from ...c.text import indent
from .cuts import Configuration
from .source import complete_source

__all__ = [
    "EARLY",
    "FIRST_OF_EPILOGUE",
    "Epilogue",
    "SmallProduct",
    "complete_source",
    "plain_epilogue",
]


@record(frozen=True)
class Epilogue:
    """CUDA C for each element ``sum`` at ``row``, ``column``.

    Each thread has some elements of one column, with numbers ``item``.

    Attributes
    ----------
    head
        Lines at the beginning, which take operands out of ``v`` and declare arrays by items. They
        read no memory: the launch before this one may still write it.
    scalars
        Lines that read scalars.
    early
        Lines for one element that read what the sum is not needed for.
    middle
        Lines when the products are done.
    lines
        Lines for one element; they keep its results in arrays by items.
    stores
        Lines for one element that write its results.
    end
        Lines when a block's tile is done.
    ahead
        Lines that read, for the whole tile, what the sums are not needed for.
    tile
        Whether `end` finds the sums in ``shared``, in rows of as many columns as the tile has and
        four more.
    first
        Lines that read what the launch before this one writes no more than the early factor.
    words
        How many arguments the product has with it; 0 where it has no more than a plain one.
    behind
        How many columns of a second product, that follows in `end`, a block has: then those that
        stand side by side compute the same tile of this one. 0 where there is none.
    """

    head: tuple[str, ...]
    scalars: tuple[str, ...]
    early: tuple[str, ...]
    middle: tuple[str, ...]
    lines: tuple[str, ...]
    stores: tuple[str, ...]
    end: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()
    tile: bool = False
    first: tuple[str, ...] = ()
    behind: int = 0
    words: int = 0


def plain_epilogue(scaled: bool, accumulate: bool, items: int) -> Epilogue:
    """Return ``out = alpha * sum + beta * c``; arguments 2 to 5 are out, c, alpha, beta."""
    head = ["float *out = (float *)v[2];", f"float made[{items}];"]
    scalars, early = [], []
    value = "sum"
    if scaled:
        scalars.append("const float alpha = *(const float *)v[4];")
        value = "alpha * sum"
    if accumulate:
        head.append(f"float added[{items}];")
        scalars.append("const float beta = *(const float *)v[5];")
        scalars.append("const float *addend = (const float *)v[3];")
        early.append("added[item] = addend[row * n + column];")
        # Rounded once: a weight times 1 - rate * decay is rounded the same way again and again.
        value = f"fmaf(beta, added[item], {value})"
    return Epilogue(
        tuple(head), tuple(scalars), tuple(early), (), (f"made[item] = {value};",),
        ("out[row * n + column] = made[item];",),
    )


SIZES = 6  # arguments: a, b, out, c, alpha, beta, then m, n, k
EARLY = 9  # bits: the launches before this one write not the early factor; not what is read beside
_LEAST_WORDS = 64
FIRST_OF_EPILOGUE = 10  # arguments of an epilogue that is a region begin here


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
    once
        Whether all of the contracted axis is read at once, see `Configuration.reach`.

    Attributes
    ----------
    early
        The place, 0 or 1, of the factor that may be read before the launch before this is done.
    words
        How many arguments the kernel takes: a power of two.
    """

    def __init__(
        self,
        configuration: Configuration,
        transpose_a: bool,
        transpose_b: bool,
        wide_a: bool,
        wide_b: bool,
        epilogue: Epilogue,
        once: bool = False,
        early: int = 1,
    ) -> None:
        self.configuration = configuration
        self.along_a = not transpose_a  # neighbours in memory lie along the contracted axis
        self.along_b = transpose_b
        self.wide_a, self.wide_b = wide_a, wide_b
        self.epilogue = epilogue
        self.once = once
        self.early = early
        body = self._text()
        self.words = _LEAST_WORDS
        while self.words < epilogue.words:
            self.words *= 2
        self.key = hashlib.sha256(f"{self.words}{body}".encode()).hexdigest()[:16]
        self.name = f"product_{self.key}"
        self.source = body.replace("mg_product", self.name)

    def grid(self, m: int, n: int) -> tuple[int, int, int]:
        """Return the blocks for a result of m x n."""
        c = self.configuration
        return -(-n // c.columns), -(-m // c.rows), 1

    # ---- Text

    def _side(self, letter: str) -> str:
        """Return the type of a factor's fragments."""
        c = self.configuration
        lines = 2 * c.down if letter == "a" else c.across
        along = self.along_a if letter == "a" else self.along_b
        wide = self.wide_a if letter == "a" else self.wide_b
        return f"mg_side<{lines}, {str(along).lower()}, {str(wide).lower()}>"

    def _multiply(self) -> list[str]:
        """Return the lines that multiply eight numbers of the contracted axis, of those at x, y."""
        c = self.configuration
        tiles = [
            "#pragma unroll",
            f"for (int p = 0; p < {c.down}; p++)",
            "    #pragma unroll",
            f"    for (int q = 0; q < {c.across}; q++)",
        ]

        def each(line: str) -> list[str]:
            return [*tiles, f"        {line}"]

        part_a, part_b = "x[2 * p + (i & 1)][h + (i >> 1)]", "y[q][h + i]"
        if c.terms == 1:
            parts = [f"unsigned high_a[{c.down}][4], high_b[{c.across}][2];"]
            split_a = f"mg_round({part_a}, high_a[p][i]);"
            split_b = f"mg_round({part_b}, high_b[q][i]);"
            products = each("mg_multiply(sums[p][q], high_a[p], high_b[q]);")
        else:
            parts = [
                f"unsigned high_a[{c.down}][4], low_a[{c.down}][4];",
                f"unsigned high_b[{c.across}][2], low_b[{c.across}][2];",
                "/* Tensor cores cut what they add: only eight products at a time. */",
                f"float few[{c.down}][{c.across}][4];",
            ]
            split_a = f"mg_split({part_a}, high_a[p][i], low_a[p][i]);"
            split_b = f"mg_split({part_b}, high_b[q][i], low_b[q][i]);"
            products = [
                *each("mg_multiply_first(few[p][q], low_a[p], high_b[q]);"),
                *each("mg_multiply(few[p][q], high_a[p], low_b[q]);"),
                *each("mg_multiply(few[p][q], high_a[p], high_b[q]);"),
                *each("for (int i = 0; i < 4; i++) sums[p][q][i] += few[p][q][i];"),
            ]
        return [
            *parts,
            "#pragma unroll",
            f"for (int p = 0; p < {c.down}; p++)",
            "    #pragma unroll",
            f"    for (int i = 0; i < 4; i++) {split_a}",
            "#pragma unroll",
            f"for (int q = 0; q < {c.across}; q++)",
            "    #pragma unroll",
            f"    for (int i = 0; i < 2; i++) {split_b}",
            *products,
        ]

    def _products(self) -> list[str]:
        """Return the lines after which a warp has its part of the products in ``sums``."""
        c = self.configuration
        lines_of = {"a": 2 * c.down, "b": c.across}
        room = {"a": 0, "b": c.stages * c.lines[0] * 128}
        places = {"a": ("part_m", c.warps[0]), "b": ("part_n", c.warps[1])}
        early, late = ("a", "b") if self.early == 0 else ("b", "a")
        stages = ["#pragma unroll", f"for (int s = 0; s < {c.stages}; s++)"]
        wait = "__syncthreads();" if c.common else "__syncwarp();"

        def held(letter: str) -> tuple[str, int]:
            """Return where a warp's part of the first stage is, and how far apart stages are."""
            place, count = places[letter] if c.common else ("warp", c.threads // 32)
            size = lines_of[letter] * 128
            return f"shared + {room[letter]} + {place} * {size}", count * size

        def bring(letter: str) -> list[str]:
            start, apart = held(letter)
            # Warps that need the same take turns.
            turn, turns = places["b" if letter == "a" else "a"] if c.common else ("0", 1)
            return [
                f"side_{letter}.bring<{c.stages}, {turns}>({start}, {apart}, at * 16, "
                f"{16 * c.warps[2]}, {turn});"
            ]

        def take(letter: str, into: str) -> str:
            start, apart = held(letter)
            return f"side_{letter}.take({into}, {start} + s * {apart});"

        multiply = [
            *bring(late),
            "mg_arrived();",
            wait,
            *stages[:1],
            f"{stages[1]} {{",
            *indent([
                f"float x[{lines_of['a']}][4], y[{lines_of['b']}][4];",
                take("a", "x"),
                take("b", "y"),
                "#pragma unroll",
                "for (int h = 0; h < 4; h += 2) {",
                *indent(self._multiply()),
                "}",
            ]),
            "}",
        ]
        turns = [
            f"for (; at < groups; at += {c.stages * c.warps[2]}) {{",
            *indent([wait, *bring(early), *multiply]),
            "}",
        ]
        return [
            f"{'const ' if self.once else ''}int at = part_k;",
            f"if (!(v[{EARLY}] & 1)) mg_wait_before();",
            *bring(early),
            *self.epilogue.first,
            f"if (!(v[{EARLY}] & 2)) mg_wait_before();",
            *self.epilogue.scalars,
            *self._each_element(self.epilogue.early),
            *self.epilogue.ahead,
            "mg_begin();",
            *multiply,
            *([] if self.once else [f"at += {c.stages * c.warps[2]};", *turns]),
        ]

    def _each_element(
        self, lines: Sequence[str], unroll: str = "", anywhere: bool = False
    ) -> list[str]:
        """Return the lines that do something for each element that a thread finishes.

        Parameters
        ----------
        lines
            For one, with the number `item`, of the tile's element `at_tile`.
        unroll
            How many at a time; all, unless said.
        anywhere
            Whether also for those outside of the result.
        """
        c = self.configuration
        if not lines:
            return []
        whole = c.items * c.threads == c.rows * c.columns
        conditions = [] if anywhere else ["row < m", "column < n"]
        conditions += [] if whole else [f"at_tile < {c.rows * c.columns}"]
        guarded = [f"if ({' && '.join(conditions)}) {{", *indent(lines), "}"]
        return [
            f"#pragma unroll {unroll}".strip(),
            f"for (int item = 0; item < {c.items}; item++) {{",
            *indent([
                f"const int at_tile = thread + item * {c.threads};",
                f"const int row = a_first + at_tile / {c.columns};",
                f"const int column = b_first + at_tile % {c.columns};",
                *(guarded if conditions else lines),
            ]),
            "}",
        ]

    def _place(self) -> str:
        """Return where an element of the tile is in shared memory, in the first warp's part."""
        columns = self.configuration.columns
        return f"at_tile / {columns} * {columns + 4} + at_tile % {columns}"

    def _totals(self) -> list[str]:
        """Return the lines that add up the tiles of the warps."""
        c = self.configuration
        tile, place = c.columns + 4, self._place()
        most = "3.402823466e38f"
        added = [
            f"const float *here = shared + {place};",
            "float sum = *here;",
            "#pragma unroll",
            f"for (int part = 1; part < {c.warps[2]}; part++) "
            f"sum += here[part * {c.rows * tile}];",
        ]
        again = [
            *added,
            f"if (!(fabsf(sum) <= {most}))",
            "    sum = mg_plainly(side_a.from + side_a.place(row, 0), side_a.step(),",
            "                     side_b.from + side_b.place(column, 0), side_b.step(), depth);",
            f"shared[{place}] = sum;",
        ]
        return [
            f"float totals[{c.items}];",
            "bool whole = true;",
            *self._each_element(
                [*added, "totals[item] = sum;", f"whole = whole && fabsf(sum) <= {most};"],
                anywhere=True,
            ),
            "/* Infinities in the factors make NaN of what is left over of them. */",
            "if (!whole) {",
            *indent([
                *self._each_element(again, "1"),
                *self._each_element([f"totals[item] = shared[{place}];"], anywhere=True),
            ]),
            "}",
        ]

    def _finished(self) -> list[str]:
        """Return the lines that do something with the sums."""
        if self.epilogue.tile:
            put = [f"shared[{self._place()}] = totals[item];"]
            return [*self._each_element(put, anywhere=True), "__syncthreads();"]
        return [
            *self._each_element(["const float sum = totals[item];", *self.epilogue.lines]),
            *self._each_element(self.epilogue.stores),
        ]

    def _text(self) -> str:
        c = self.configuration
        tile = c.columns + 4
        size = c.rows * tile
        rows, _, parts = c.warps
        left = "0" if self.epilogue.behind else f"blockIdx.x * {c.columns}"
        put = (
            f"mine[side_a.line(2 * p + (i >> 1), g) * {tile} + side_b.line(q, 2 * t + (i & 1))]"
        )
        lines = [
            "extern __shared__ __align__(16) float shared[];",
            "const int64_t *v = arguments.v;",
            f"const int m = (int)v[{SIZES}], n = (int)v[{SIZES + 1}], depth = (int)v[{SIZES + 2}];",
            "const int thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;",
            "const int g = lane >> 2, t = lane & 3;",
            f"const int part_k = warp % {parts}, part_m = warp / {parts} % {rows};",
            f"const int part_n = warp / {parts * rows};",
            f"const int a_first = blockIdx.y * {c.rows}, b_first = {left};",
            f"const int top = part_m * {16 * c.down}, left = part_n * {8 * c.across};",
            f"const {self._side('a')} side_a = "
            "{(const float *)v[0], a_first + top, m, depth, lane};",
            f"const {self._side('b')} side_b = "
            "{(const float *)v[1], b_first + left, n, depth, lane};",
            "const int groups = (depth + 15) / 16;",
            f"float sums[{c.down}][{c.across}][4] = {{}};",
            *self.epilogue.head,
            *self._products(),
            *self.epilogue.middle,
            f"float *mine = shared + part_k * {size} + top * {tile} + left;",
            "__syncthreads();  /* all factors have been taken */",
            "#pragma unroll",
            f"for (int p = 0; p < {c.down}; p++)",
            "    #pragma unroll",
            f"    for (int q = 0; q < {c.across}; q++)",
            "        #pragma unroll",
            "        for (int i = 0; i < 4; i++)",
            f"            {put} = sums[p][q][i];",
            "__syncthreads();",
            *self._totals(),
            *self._finished(),
            *self.epilogue.end,
        ]
        blocks = max(2, 512 // c.threads)
        return "\n".join([
            f'extern "C" __global__ void __launch_bounds__({c.threads}, {blocks})',
            "mg_product(const __grid_constant__ mg_arguments arguments)",
            "{",
            *indent(lines),
            "}",
            "",
        ])
