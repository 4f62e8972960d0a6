"""Write CUDA C for reductions across the innermost loop.

Lanes of a warp take neighbouring columns; the parts of a block, and several blocks, share the rows.
Where columns are few, a warp has several rows of them. A thread adds up a group of rows in float32
before it adds that to its float64 sum, and reads several of them ahead: the conversion takes as
long as sixteen additions, and one row in flight does not fill the memory's bandwidth.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...ir.graph import Node
from ..c.scalar import identity_expression
from ..c.text import indent
from ..functions.scalar import computing_type
from ..region.analysis import Fold
from ..region.parts import indexed, late_groups
from .cuda_code import UNROLLED, CudaCode
from .limits import COLUMN_THREADS

__all__ = ["Columns"]

GROUP = 16  # rows of a thread that are added up before they are converted
AHEAD = 128  # bytes that a thread has under way, at most: they take a register for every four
MOST_AHEAD = 8  # rows of them, at most
LEFT = 4  # rows under way of those that are left over, fewer than that many
SHORT = 24  # lines of work on a row, up to which they are worth as many copies

# Threads of a warp that have the same columns come first; then what each warp has of them.
_SLOT = "(threadIdx.y * blockDim.x + threadIdx.x >> 5) * blockDim.x + threadIdx.x"
_WARPS = "(blockDim.x * blockDim.y >> 5)"


class Row:
    """The statements of a thread for its elements of one row.

    Attributes
    ----------
    same
        The lines that read what is the same in all rows.
    reads
        The vectors that are read of a row: type, name, and the expression that reads.
    work
        The other lines.
    decode
        The lines that find the row from its number, ``rest``.

    Parameters
    ----------
    lines
        As `CudaCode.elements` gives them.
    places
        The names of a row's positions.
    """

    def __init__(self, lines: Sequence[str], places: Sequence[str], decode: list[str]) -> None:
        self.decode = decode
        self.same: list[str] = []
        self.reads: list[tuple[str, str, str]] = []
        self.work: list[str] = []
        for line in lines:
            read = _READ.fullmatch(line)
            if read is None:
                self.work.append(line)
            elif any(re.search(rf"\b{place}\b", read[3]) for place in places):
                self.reads.append((read[1], read[2], read[3]))
            else:
                self.same.append(line)

    def ahead(self, size: int) -> int:
        """Return how many rows, of so many bytes each, are read before one is worked on."""
        count = 1
        while 2 * count <= min(MOST_AHEAD, AHEAD // max(1, size)):
            count *= 2
        return count

    def turns(self, ahead: int) -> list[str]:
        """Return the lines that take a group of rows, or those that are left."""
        alone = [
            "idx rest = row;", *self.decode,
            *(f"const {kind} {name} = {read};" for kind, name, read in self.reads), *self.work,
        ]  # fmt: skip
        if ahead == 1:
            turns = f"for (int turn = 0; turn < {GROUP} && row < high; turn++, row += step) {{"
            return ["#pragma unroll 1", turns, *indent(alone), "}"]
        every = ["#pragma unroll", f"for (int turn = 0; turn < {ahead}; turn++) {{"]
        first = [
            "idx rest = row + turn * step;", *self.decode,
            *(f"{name}_ahead[turn] = {read};" for _, name, read in self.reads),
        ]  # fmt: skip
        then = [
            "idx rest = row;", *self.decode,
            *(f"const {kind} {name} = {name}_ahead[turn];" for kind, name, _ in self.reads),
            *self.work, "row += step;",
        ]  # fmt: skip
        some = [
            *(f"{kind} {name}_ahead[{ahead}];" for kind, name, _ in self.reads),
            *every, *indent(first), "}", *every, *indent(then), "}",
        ]  # fmt: skip
        fits = f"row + {ahead - 1} * step < high"
        left = min(LEFT, ahead) if len(self.work) <= SHORT else 1
        return [
            "#pragma unroll 1",
            f"for (int several = 0; several < {GROUP // ahead} && {fits}; several++) {{",
            *indent(some),
            "}",
            f"if (!({fits})) {{",
            "    #pragma unroll 1",
            f"    for (; row < high; row += {left} * step) {{",
            *indent(indent(self._left(left) if left > 1 else alone)),
            "    }",
            "}",
        ]

    def _left(self, count: int) -> list[str]:
        """Return the lines that take up to so many rows that are left, all of them under way.

        Where there is no further row the last one is read once more, and nobody takes it.
        """
        every = ["#pragma unroll", f"for (int turn = 0; turn < {count}; turn++) {{"]
        reads = [
            "const idx line = row + turn * step;", "idx rest = line < high ? line : high - 1;",
            *self.decode, *(f"{name}_ahead[turn] = {read};" for _, name, read in self.reads),
        ]  # fmt: skip
        taken = [
            "idx rest = row + turn * step;", "if (rest < high) {",
            *indent([
                *self.decode,
                *(f"const {kind} {name} = {name}_ahead[turn];" for kind, name, _ in self.reads),
                *self.work,
            ]),
            "}",
        ]  # fmt: skip
        return [
            *(f"{kind} {name}_ahead[{count}];" for kind, name, _ in self.reads),
            *every, *indent(reads), "}", *every, *indent(taken), "}",
        ]  # fmt: skip


_READ = re.compile(r"const (mg_vector<\w+, \d+>) (\w+) = (\*\(const mg_vector<.*\));")


class Columns:
    """The kernels of a region whose sums keep the innermost loop.

    Parameters
    ----------
    code
        Of the region.
    kept, gone
        The loops that the sums keep, and those that they run over.
    """

    def __init__(self, code: CudaCode, kept: list[int], gone: list[int]) -> None:
        self.code, self.kept, self.gone = code, kept, gone

    def can_be_whole(self) -> bool:
        """Return whether the results of a reduction over rows are used column by column."""
        region = self.code.region
        groups = late_groups(region)
        loops = {frozenset(region.values[g[0].node].shape_loops) for g in groups}
        return loops == {frozenset(self.kept)} and all(
            list(fold.kept) == self.kept for fold in self.code.cross
        )

    def main(self, width: int, whole: bool = False) -> list[str]:
        """Return the kernel for `width` neighbours a thread.

        With `whole`, a block has columns from end to end and computes what depends on their sums;
        otherwise it writes lines of partial results.
        """
        code, region = self.code, self.code.region
        nodes = code.walk.passes[0] if code.walk.passes else []
        folds = [fold for fold in region.folds if fold.element]
        outputs = [output for output in region.outputs if not output.epilogue]
        top = code.top()
        kept, gone = self.kept, self.gone
        begin: list[str] = []
        near: list[str] = []
        far: list[str] = []
        update: dict[Fold, tuple[str, str]] = {}
        for fold in folds:
            name = code.fold_name(fold)
            target = f"{name}[k]" if fold.kept else name
            update[fold] = (target, f"{name}_at[k]" if fold.kept else f"{name}_at")
            begin += code.begin(fold, str(width)) if fold.kept else code.begin(fold)
            if fold.kept and code.near(fold) != code.accumulator(fold):
                part, kind = f"{name}_part", computing_type(code.near(fold))
                zero = identity_expression(fold.node, code.near(fold))
                near += [
                    f"{kind} {part}[{width}];",
                    "#pragma unroll",
                    f"for (int k = 0; k < {width}; k++) {part}[k] = {zero};",
                ]
                wide = f"({computing_type(code.accumulator(fold))}){part}[k]"
                far += code.join(fold, target, "", wide, "")
                update[fold] = (f"{part}[k]", "")
                code.parts[fold] = code.near(fold)
        n = code.extent(code.inner)
        around = len(kept) > 1
        strips = code.number(f"strips{width}", "strips_of", width) if around else ""
        strip = f"column % {strips}" if around else "column"
        work = code.elements(nodes, folds, outputs, width, update)
        code.parts = {}
        row = Row(work, [f"i{loop}" for loop in gone], code.decode("rest", gone))
        size = width * sum(node.dtype.itemsize for node in nodes if self._is_row(node))
        group = [*near, *row.turns(row.ahead(size))]
        if far:
            columns = f"for (int k = 0; k < {width}; k++) {{"
            group += ["#pragma unroll", columns, *indent(far), "}"]
        lines = [
            *top,
            "idx column = blockIdx.x;",
            f"const idx i{code.inner} = ({strip} * blockDim.x + threadIdx.x) * {width};",
            *([f"column /= {strips};"] if around else []),
            *code.decode("column", kept[:-1]),
            f"const bool active = i{code.inner} < {n};",
            *begin,
            *self._share(whole),
            "if (active) {",
            *indent(row.same),
            "    const idx step = blockDim.y;",
            "    idx row = low + threadIdx.y;",
            "    while (row < high) {",
            *indent(indent(group)),
            "    }",
            "}",
        ]
        if whole:
            return [*lines, *self._end_columns(width)]
        together = [fold for fold in folds if self._fits_together(fold, width)]
        if together:
            count = COLUMN_THREADS * (width + 1)
            lines.append(f"__shared__ double mg_columns[{count}];")
        for fold in folds:
            end = self._end_together if fold in together else self._end_column
            lines += end(fold, width)
        return lines

    def _share(self, whole: bool) -> list[str]:
        """Return the lines that say which rows a block has; to divide takes as long as to read."""
        code, gone = self.code, self.gone
        if whole:
            rows = code.number("rows", "product", *gone)
            return ["const idx low = 0;", f"const idx high = {rows};"]
        each = code.number("rows_each", "rows_of_chunk", *gone)
        more = code.number("rows_more", "rows_over", *gone)
        return [
            "const idx chunk = blockIdx.y;",
            f"const idx low = chunk * {each} + (chunk < {more} ? chunk : {more});",
            f"const idx high = low + {each} + (chunk < {more});",
        ]

    def _is_row(self, node: Node) -> bool:
        """Return whether every row has vectors of its own of an operand."""
        loops = self.code.region.values[node].loops
        return self.code.moves(node) and not loops.isdisjoint(self.gone)

    def _end_columns(self, width: int) -> list[str]:
        """Return the lines that add up folds over a block and compute what depends on them."""
        code = self.code
        inside: list[str] = []
        folds = [fold for fold in code.region.folds if fold.element]
        for fold in folds:
            name, kind = code.fold_name(fold), computing_type(code.accumulator(fold))
            inside.append(f"{kind} {name}_k = {name}[k];")
            if indexed(fold.node.op):
                inside.append(f"int64_t {name}_k_at = {name}_at[k];")
            inside += self._across(fold, f"{name}_k")
            code.scope[fold.node] = code.result(fold, f"{name}_k")
        code.vector_loop = code.inner
        outputs = [output for group in late_groups(code.region) for output in group]
        nodes = code.walk.reach(
            [code.walk.source(o.node) for o in outputs], [fold.node for fold in folds]
        )
        late = code.define(nodes)
        late += [code.write(output) for output in outputs]
        code.vector_loop = -1
        inside += ["if (active && threadIdx.y == 0) {", *indent(late), "}"]
        return ["#pragma unroll", f"for (int k = 0; k < {width}; k++) {{", *indent(inside), "}"]

    def _fits_together(self, fold: Fold, width: int) -> bool:
        """Return whether a block adds up all columns of a fold at a time."""
        return bool(fold.kept) and width > 1 and not indexed(fold.node.op)

    def _end_together(self, fold: Fold, width: int) -> list[str]:
        """Return the lines that add up a fold over a block, a thread for each of its columns.

        The columns of a thread lie one place further apart than their number, so that neither
        those who write nor those who read meet in one bank.
        """
        code = self.code
        name, kind = code.fold_name(fold), computing_type(code.accumulator(fold))
        inner = f"i{code.inner}"
        slot = f"(part * blockDim.x + lane) * {width + 1}"
        shuffled = [
            f"{kind} {name}_k = {name}[k];",
            "for (int mask = 16; mask >= (int)blockDim.x; mask >>= 1) {",
            f"    const {kind} other = mg_shuffle<{kind}>({name}_k, mask);",
            *indent(code.join(fold, f"{name}_k", "", "other", "")),
            "}",
            "if ((thread & 31) < blockDim.x) {",
            "    const int part = thread >> 5, lane = threadIdx.x;",
            f"    (({kind} *)mg_columns)[{slot} + k] = {name}_k;",
            "}",
        ]
        added = [
            f"const int lane = p / {width}, k = p % {width};",
            f"const idx {inner} = first + p;",
            "int part = 0;",
            f"{kind} {name}_k = ((const {kind} *)mg_columns)[{slot} + k];",
            UNROLLED,
            "for (part = 1; part < threads >> 5; part++) {",
            f"    const {kind} other = ((const {kind} *)mg_columns)[{slot} + k];",
            *indent(code.join(fold, f"{name}_k", "", "other", "")),
            "}",
            *code.store_partial(
                fold, "blockIdx.y", code.line_position(fold),
                f"{inner} < {code.extent(code.inner)}", name=f"{name}_k",
            ),
        ]  # fmt: skip
        return [
            "{",
            "    const int thread = threadIdx.y * blockDim.x + threadIdx.x;",
            "    const int threads = blockDim.x * blockDim.y;",
            f"    const idx first = {inner} - threadIdx.x * {width};",
            "    __syncthreads();",
            "    #pragma unroll",
            f"    for (int k = 0; k < {width}; k++) {{",
            *indent(indent(shuffled)),
            "    }",
            "    __syncthreads();",
            f"    for (int p = thread; p < (int)blockDim.x * {width}; p += threads) {{",
            *indent(indent(added)),
            "    }",
            "}",
        ]

    def _end_column(self, fold: Fold, width: int) -> list[str]:
        """Return the lines that add up a fold over a block and write its partial result."""
        code = self.code
        name = code.fold_name(fold)
        kind = computing_type(code.accumulator(fold))
        if not fold.kept:  # lanes are those of a warp then
            return [
                *code.across_warp(fold),
                *code.across_parts(
                    fold, "threadIdx.y", "blockDim.y", "0", 1, writes="threadIdx.x == 0",
                    reads="threadIdx.y == 0",
                ),
                *code.store_partial(
                    fold,
                    "blockIdx.y * gridDim.x + blockIdx.x",
                    "0",
                    "threadIdx.x + threadIdx.y == 0",
                ),
            ]
        at = indexed(fold.node.op)
        code.vector_loop = code.inner
        place = code.line_position(fold)
        code.vector_loop = -1
        inner = [f"{kind} {name}_k = {name}[k];"]
        if at:
            inner.append(f"int64_t {name}_k_at = {name}_at[k];")
        inner += self._across(fold, f"{name}_k")
        inner += code.store_partial(
            fold, "blockIdx.y", f"({place})", "active && threadIdx.y == 0", name=f"{name}_k"
        )
        return ["#pragma unroll", f"for (int k = 0; k < {width}; k++) {{", *indent(inner), "}"]

    def _across(self, fold: Fold, name: str) -> list[str]:
        """Return the lines that reduce columns over a block, into its first threads."""
        code = self.code
        kind = computing_type(code.accumulator(fold))
        inside = [f"const {kind} other = mg_shuffle<{kind}>({name}, mask);"]
        if indexed(fold.node.op):
            inside.append(f"const int64_t other_at = mg_shuffle<int64_t>({name}_at, mask);")
        inside += code.join(fold, name, f"{name}_at", "other", "other_at")
        return [
            "for (int mask = 16; mask >= (int)blockDim.x; mask >>= 1) {",
            *indent(inside),
            "}",
            *code.across_parts(
                fold, _SLOT, _WARPS, "threadIdx.x", "blockDim.x", name=name,
                reads="threadIdx.y == 0",
            ),
        ]
