"""CUDA C for one region: the kernels that compute it, and how they are launched.

The iteration space of a region (see `magmagraph.region`) is given to threads in one of four ways:

- *flat*: nothing is reduced but to single numbers. Threads take elements in turn.
- *columns*: what is reduced lies across the innermost loop. Lanes of a warp take neighbouring
  columns, the parts of a block and several blocks share the rows.
- *rows*: each row is reduced, and passed over again, by the threads of a warp or a block.
- *strips*: rows across the innermost loop, or rows shorter than a vector; lanes take rows side by
  side.

What is folded across rows goes into lines of partial results, one a worker, in the workspace; a
second launch adds the lines up, in a fixed order, and computes what depends on them. So results do
not depend on which block ran when.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...graph import Node
from ...region import Fold, Output, Region
from ...region_parts import indexed
from ...region_walk import late_groups
from ..numpy.codegen_scalar import storage_type
from ..numpy.codegen_text import indent
from ..numpy.scalar import computing_type
from .binding import ENTRIES, LANES, MULTIPROCESSORS, CudaBinding
from .element import ElementCode, Unsupported

__all__ = ["Launch", "RegionKernels", "Shares", "Unsupported"]

THREADS = 256
MAX_THREADS = 1024
WIDE = 1 << 30  # elements, from which on positions are 64-bit numbers
QUICK = 1 << 13  # partial results and elements that one block is done with soon
ROWS_STRAIGHT = 16  # rows a thread that are added up faster than partial results are joined


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: its name, its grid and block, and arguments behind the operands."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    numbers: tuple[int, ...]


class RegionKernels:
    """The kernels of one region.

    Attributes
    ----------
    key
        A hash of the text: regions of one structure have the same.
    source
        The kernels; ``idx`` is the type of positions, ``mg_kernel`` stands for their names.

    Raises
    ------
    Unsupported
        No way of the four fits.
    """

    refusals = (Unsupported,)

    def __init__(self, region: Region) -> None:
        self.region = region
        self.code = ElementCode(region)
        self.inner = region.depth - 1
        self.cross = [fold for fold in region.folds if not fold.row]
        self.outer = region.outer
        self.widths = (1,)
        self.way = self._way()
        self.suffixes: list[str] = []
        self.joined = False
        self.direct = self.way == "columns" and self._ends_in_columns()
        parts = [self._main(width) for width in self.widths]
        if self.direct:
            parts += [self._main(width, direct=True) for width in self.widths]
        if self.cross:
            parts.append(self._finish())
        self.source = "\n".join(parts)
        self.key = hashlib.sha256(self.source.encode()).hexdigest()[:16]

    # ---- Which way

    def _way(self) -> str:
        region = self.region
        if not region.depth and region.loops:
            raise Unsupported("nothing runs over its axes before the end")
        if not region.row:
            kept = {frozenset(fold.kept) for fold in self.cross} - {frozenset()}
            self.widths = tuple(sorted({1, self._width()}))
            if not kept:
                return "flat"
            if len(kept) > 1 or self.inner not in next(iter(kept)):
                raise Unsupported("sums across rows keep different axes")
            self.kept_loops = sorted(next(iter(kept)))
            self.gone_loops = [i for i in range(region.depth) if i not in self.kept_loops]
            return "columns"
        for fold in self.cross:
            kept_row = set(fold.kept) & region.row
            if fold.element and kept_row and kept_row != region.row:
                raise Unsupported("a sum across rows keeps some of a row's axes")
        if region.strip:
            return "strips"
        self.widths = tuple(sorted({1, self._width()}))
        return "rows"

    def _width(self) -> int:
        """Return how many neighbours fill 16 bytes of the widest operand."""
        sizes = [n.dtype.itemsize for n in self.region.accesses if self._moves(n)]
        sizes += [o.node.dtype.itemsize for o in self.region.outputs if not o.epilogue]
        return max(1, min(8, 16 // max(sizes, default=16)))

    def _moves(self, node: Node) -> bool:
        return self.code.unit_read(node, self.inner)

    # ---- The main kernel

    def _ends_in_columns(self) -> bool:
        """Return whether what is left of the rows is used column by column."""
        groups = late_groups(self.region)
        loops = {frozenset(self.region.values[g[0].node].shape_loops) for g in groups}
        return loops == {frozenset(self.kept_loops)} and all(
            list(fold.kept) == self.kept_loops for fold in self.cross
        )

    def _main(self, width: int, direct: bool = False) -> str:
        self.code.scope = {}
        self.code.vector_loop = -1
        self._over = ()
        if direct:
            return self._kernel(f"d{width}", self._columns(width, direct=True))
        ways = {
            "flat": self._flat,
            "columns": self._columns,
            "rows": self._rows,
            "strips": self._strips,
        }
        body = ways[self.way](width)
        if self.cross:
            body = [*body, *self._tail()]
        return self._kernel(f"v{width}", body)

    def _tail(self) -> list[str]:
        """Return the lines with which the block that is done last ends the sums, where told to."""
        code, region = self.code, self.region
        counter = code.number("counter_place", "counter_address")
        lines = [
            "const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x "
            "+ threadIdx.x;",
            "const int threads = blockDim.x * blockDim.y * blockDim.z;",
            "__shared__ bool mg_last;",
            "__threadfence();",
            "__syncthreads();",
            "if (thread == 0) {",
            "    const unsigned blocks = gridDim.x * gridDim.y;",
            f"    mg_last = atomicAdd((unsigned *){counter}, 1u) == blocks - 1;",
            f"    if (mg_last) *(unsigned *){counter} = 0;",
            "}",
            "__syncthreads();",
            "if (!mg_last) return;",
            "__threadfence();",
        ]
        for fold in self.cross:
            position = code.position_of(fold)
            name = code.fold_name(fold)
            kind = computing_type(code.accumulator(fold))
            count = code.number(f"lines{position}", "line_count", position)
            length = self._line_length(fold) if fold.kept else "1"
            inside = [f"const {kind} other = {self._line(fold)}[line * {length} + p];"]
            if indexed(fold.node.op):
                inside.append(
                    f"const int64_t other_at = {self._line(fold, 1)}[line * {length} + p];"
                )
            inside += code.join(fold, name, f"{name}_at", "other", "other_at")
            each = [
                *code.begin(fold),
                f"for (idx line = thread & 31; line < {count}; line += 32) {{",
                *indent(inside),
                "}",
                *self._across_warp(fold),
                *self.store_partial(fold, "0", "p", "(thread & 31) == 0"),
            ]
            lines += [
                f"for (idx p = thread >> 5; p < {length}; p += threads >> 5) {{",
                *indent(each),
                "}",
            ]
        lines.append("__syncthreads();")
        for outputs in late_groups(region):
            late, count = self._late_lines(outputs)
            lines += [
                f"for (idx p = thread; p < {count}; p += threads) {{", *indent(late), "}"
            ]
        tail = code.number("tail", "ends_itself")
        return [f"if ({tail}) {{", *indent(lines), "}"]

    def _kernel(self, suffix: str, body: Sequence[str]) -> str:
        self.suffixes.append(suffix)
        text = "\n".join(body)
        head = self.code.header(text, 0)
        return "\n".join(
            [
                f'extern "C" __global__ void mg_kernel_{suffix}'
                "(const __grid_constant__ mg_arguments arguments)",
                "{",
                *indent(["const int64_t *v = arguments.v;", *self._shared(text), *head, *body]),
                "}",
                "",
            ]
        )

    @staticmethod
    def _shared(text: str) -> list[str]:
        lines = []
        if "mg_buffer" in text:
            lines.append("__shared__ double mg_buffer[1024];")
        if "mg_places" in text:
            lines.append("__shared__ int64_t mg_places[1024];")
        return lines

    def _decode(self, rest: str, loops: Sequence[int]) -> list[str]:
        """Return the lines that take a count of iterations apart, the last loop fastest."""
        lines = []
        for position, loop in enumerate(reversed(loops)):
            if position == len(loops) - 1:
                lines.append(f"const idx i{loop} = {rest};")
            else:
                n = self.code.extent(loop)
                lines += [f"const idx i{loop} = {rest} % {n};", f"{rest} /= {n};"]
        return lines

    def _elements(
        self,
        nodes: Sequence[Node],
        folds: Sequence[Fold],
        outputs: Sequence[Output],
        width: int,
        update: Mapping[Fold, tuple[str, str]],
    ) -> list[str]:
        """Return what is done for `width` neighbours along the innermost loop."""
        code, inner = self.code, self.inner
        around = frozenset(range(self.region.depth)) - {inner}
        known = dict(code.scope)
        lines = code.define(nodes, around)
        loads: list[str] = []
        stores: list[str] = []
        code.vector_loop = inner
        wide = [n for n in nodes if n not in code.scope and self._moves(n)]
        for node in wide:
            place = code.read(node)
            base, _, address = place.partition("[")
            address = address[:-1].replace(f"(i{inner} + k)", f"i{inner}")
            kind = f"mg_vector<{storage_type(node.dtype)}, {width}>"
            name = f"{code.names[node]}_near"
            loads.append(f"const {kind} {name} = *(const {kind} *)({base} + {address});")
        inside: list[str] = []
        from ..numpy.codegen_scalar import load, store

        for node in wide:
            name = code.names[node]
            code.scope[node] = name
            kind = computing_type(node.dtype)
            inside.append(f"const {kind} {name} = {load(f'{name}_near.x[k]', node.dtype)};")
        inside += code.define(nodes)
        for fold in folds:
            inside += code.take(fold, *update[fold])
        for output in outputs:
            steps = code.write_steps(output)
            if steps.get(inner) != "":
                inside.append(code.write(output))
                continue
            kind = f"mg_vector<{storage_type(output.node.dtype)}, {width}>"
            name = f"out{output.position}_near"
            loads.append(f"{kind} {name};")
            value = store(code.operand(output.node), output.node.dtype)
            inside.append(f"{name}.x[k] = {value};")
            place = code.write(output).partition(" = ")[0]
            base, _, address = place.partition("[")
            address = address[:-1].replace(f"(i{inner} + k)", f"i{inner}")
            stores.append(f"*({kind} *)({base} + {address}) = {name};")
        code.vector_loop = -1
        code.scope = known
        return [
            *lines,
            *loads,
            "#pragma unroll",
            f"for (int k = 0; k < {width}; k++) {{",
            *indent(inside),
            "}",
            *stores,
        ]

    def _top(self) -> list[str]:
        """Return the lines that compute what is the same for all elements."""
        region = self.region
        nodes = [n for nodes in (*self.code.walk.passes, *self.code.walk.stages) for n in nodes]
        early = [
            n for n in nodes if not region.values[n].phase and not region.values[n].epilogue
            and n.op.reduction is None
        ]
        return self.code.define(early, frozenset())

    # ---- Flat

    def _flat(self, width: int) -> list[str]:
        code, region = self.code, self.region
        nodes = code.walk.passes[0] if code.walk.passes else []
        folds = [fold for fold in region.folds if fold.element]
        outputs = [output for output in region.outputs if not output.epilogue]
        top = self._top()
        begin = [line for fold in folds for line in code.begin(fold)]
        update = {f: (code.fold_name(f), f"{code.fold_name(f)}_at") for f in folds}
        if region.depth:
            work = self._elements(nodes, folds, outputs, width, update)
            groups = code.number(f"groups{width}", "groups", width)
            loop = [
                f"for (idx group = (idx)blockIdx.x * {THREADS} + threadIdx.x; group < {groups};",
                f"     group += (idx)gridDim.x * {THREADS}) {{",
                *indent([f"idx rest = group * {width};",
                         *self._decode("rest", range(region.depth)), *work]),
                "}",
            ]
        else:
            loop = [*code.define(nodes)]
            for fold in folds:
                loop += code.take(fold, *update[fold], condition="threadIdx.x == 0")
            if outputs:
                writes = [code.write(output) for output in outputs]
                loop += ["if (threadIdx.x == 0) {", *indent(writes), "}"]
        end: list[str] = []
        for fold in folds:
            end += self._across_block(fold, "threadIdx.x", f"{THREADS // LANES}")
            end += self.store_partial(fold, "blockIdx.x", "0", "threadIdx.x == 0")
        return [*top, *begin, *loop, *end]

    def _across_warp(self, fold: Fold, target: str = "", at: str = "") -> list[str]:
        """Return the lines after which all lanes of a warp hold what they folded together."""
        code = self.code
        name = target or code.fold_name(fold)
        place = at or f"{code.fold_name(fold)}_at"
        kind = computing_type(code.accumulator(fold))
        inside = [f"const {kind} other = mg_shuffle<{kind}>({name}, mask);"]
        if indexed(fold.node.op):
            inside.append(f"const int64_t other_at = mg_shuffle<int64_t>({place}, mask);")
        inside += code.join(fold, name, place, "other", "other_at")
        return [
            "#pragma unroll",
            "for (int mask = 16; mask; mask >>= 1) {",
            *indent(inside),
            "}",
        ]

    def _across_parts(
        self,
        fold: Fold,
        slot: str,
        count: str,
        first: str,
        step: int,
        writes: str = "",
        name: str = "",
    ) -> list[str]:
        """Return the lines after which threads hold what those of several parts folded."""
        code = self.code
        name = name or code.fold_name(fold)
        kind = computing_type(code.accumulator(fold))
        at = indexed(fold.node.op)
        put = [f"(({kind} *)mg_buffer)[{slot}] = {name};"]
        get = [f"{name} = ((const {kind} *)mg_buffer)[{first}];"]
        inside = [f"const {kind} other = ((const {kind} *)mg_buffer)[{first} + part * {step}];"]
        if at:
            put.append(f"mg_places[{slot}] = {name}_at;")
            get.append(f"{name}_at = mg_places[{first}];")
            inside.append(f"const int64_t other_at = mg_places[{first} + part * {step}];")
        inside += code.join(fold, name, f"{name}_at", "other", "other_at")
        if writes:
            put = [f"if ({writes}) {{", *indent(put), "}"]
        return [
            "__syncthreads();",
            *put,
            "__syncthreads();",
            *get,
            f"for (int part = 1; part < {count}; part++) {{",
            *indent(inside),
            "}",
        ]

    def _across_block(self, fold: Fold, thread: str, warps: str) -> list[str]:
        """Return the lines after which all threads of a block hold what they folded together."""
        lane, warp = f"({thread} & 31)", f"({thread} >> 5)"
        return [
            *self._across_warp(fold),
            *self._across_parts(fold, warp, warps, "0", 1, writes=f"{lane} == 0"),
        ]

    def _line(self, fold: Fold, piece: int = 0) -> str:
        """Return the address of the lines of a fold's partial results, or of their positions."""
        code = self.code
        position = code.position_of(fold)
        kind = "int64_t" if piece else computing_type(code.accumulator(fold))
        offset = code.number(f"{code.fold_name(fold)}_place{piece}", "fold_place", position, piece)
        return f"(({kind} *)(workspace + {offset}))"

    def _line_length(self, fold: Fold) -> str:
        position = self.code.position_of(fold)
        return self.code.number(f"{self.code.fold_name(fold)}_length", "line_length", position)

    def store_partial(
        self,
        fold: Fold,
        line: str,
        place: str,
        condition: str,
        name: str = "",
        code: ElementCode | None = None,
    ) -> list[str]:
        """Return the lines that write an accumulator into a line of partial results."""
        name = name or (code or self.code).fold_name(fold)
        length = self._line_length(fold) if fold.kept else "1"
        at = f"[(idx)({line}) * {length} + {place}]"
        lines = [f"{self._line(fold)}{at} = {name};"]
        if indexed(fold.node.op):
            lines.append(f"{self._line(fold, 1)}{at} = {name}_at;")
        return [f"if ({condition}) {{", *indent(lines), "}"]

    # ---- Columns

    def _columns(self, width: int, direct: bool = False) -> list[str]:
        code, region = self.code, self.region
        nodes = code.walk.passes[0] if code.walk.passes else []
        folds = [fold for fold in region.folds if fold.element]
        outputs = [output for output in region.outputs if not output.epilogue]
        top = self._top()
        kept, gone = self.kept_loops, self.gone_loops
        begin: list[str] = []
        update: dict[Fold, tuple[str, str]] = {}
        for fold in folds:
            name = code.fold_name(fold)
            if fold.kept:
                begin += code.begin(fold, str(width))
                update[fold] = (f"{name}[k]", f"{name}_at[k]")
            else:
                begin += code.begin(fold)
                update[fold] = (name, f"{name}_at")
        n = code.extent(self.inner)
        strips = code.number(f"strips{width}", "strips_of", width)
        rows = code.number("rows", "product", *gone)
        work = self._elements(nodes, folds, outputs, width, update)
        lines = [
            *top,
            "idx column = blockIdx.x;",
            f"const idx i{self.inner} = (column % {strips} * {LANES} + threadIdx.x) * {width};",
            *([f"column /= {strips};"] if len(kept) > 1 else []),
            *self._decode("column", kept[:-1]),
            f"const bool active = i{self.inner} < {n};",
            *begin,
            f"const idx low = (idx)((int64_t){rows} * blockIdx.y / gridDim.y);",
            f"const idx high = (idx)((int64_t){rows} * (blockIdx.y + 1) / gridDim.y);",
            "if (active) {",
            *indent([
                "for (idx row = low + threadIdx.y; row < high; row += blockDim.y) {",
                *indent(["idx rest = row;", *self._decode("rest", gone), *work]),
                "}",
            ]),
            "}",
        ]
        if direct:
            return [*lines, *self._end_columns(width)]
        for fold in folds:
            lines += self._end_column(fold, width)
        return lines

    def _end_columns(self, width: int) -> list[str]:
        """Return the lines that add up folds over a block and compute what depends on them."""
        code = self.code
        inside: list[str] = []
        folds = [fold for fold in self.region.folds if fold.element]
        for fold in folds:
            name, kind = code.fold_name(fold), computing_type(code.accumulator(fold))
            inside.append(f"{kind} {name}_k = {name}[k];")
            if indexed(fold.node.op):
                inside.append(f"int64_t {name}_k_at = {name}_at[k];")
            inside += self._across_parts(
                fold, "threadIdx.y * 32 + threadIdx.x", "blockDim.y", "threadIdx.x", LANES,
                name=f"{name}_k",
            )
            code.scope[fold.node] = code.result(fold, f"{name}_k")
        code.vector_loop = self.inner
        outputs = [output for group in late_groups(self.region) for output in group]
        nodes = code.walk.reach(
            [code.walk.source(o.node) for o in outputs], [fold.node for fold in folds]
        )
        late = code.define(nodes)
        late += [code.write(output) for output in outputs]
        code.vector_loop = -1
        inside += ["if (active && threadIdx.y == 0) {", *indent(late), "}"]
        return ["#pragma unroll", f"for (int k = 0; k < {width}; k++) {{", *indent(inside), "}"]

    def _end_column(self, fold: Fold, width: int) -> list[str]:
        """Return the lines that add up a fold over a block and write its partial result."""
        code = self.code
        name = code.fold_name(fold)
        kind = computing_type(code.accumulator(fold))
        slot = "threadIdx.y * 32 + threadIdx.x"
        if not fold.kept:
            return [
                *self._across_warp(fold),
                *self._across_parts(
                    fold, "threadIdx.y", "blockDim.y", "0", 1, writes="threadIdx.x == 0"
                ),
                *self.store_partial(
                    fold,
                    "blockIdx.y * gridDim.x + blockIdx.x",
                    "0",
                    "threadIdx.x + threadIdx.y == 0",
                ),
            ]
        at = indexed(fold.node.op)
        code.vector_loop = self.inner
        place = code.line_position(fold)
        code.vector_loop = -1
        inner = [f"{kind} {name}_k = {name}[k];"]
        if at:
            inner.append(f"int64_t {name}_k_at = {name}_at[k];")
        inner += self._across_parts(
            fold, slot, "blockDim.y", "threadIdx.x", LANES, name=f"{name}_k"
        )
        inner += self.store_partial(
            fold, "blockIdx.y", f"({place})", "active && threadIdx.y == 0", name=f"{name}_k"
        )
        return ["#pragma unroll", f"for (int k = 0; k < {width}; k++) {{", *indent(inner), "}"]

    # ---- Rows and strips

    def _rows(self, width: int) -> list[str]:
        code = self.code
        outer = list(self.outer)
        row = sorted(self.region.row)
        groups = code.number(f"groups{width}", "row_groups", width)

        def over_row(work: list[str]) -> list[str]:
            return [
                f"for (idx group = threadIdx.x; group < {groups}; group += blockDim.x) {{",
                *indent([f"idx rest = group * {width};", *self._decode("rest", row), *work]),
                "}",
            ]

        def join(fold: Fold) -> list[str]:
            across = self._across_parts(
                fold, "(threadIdx.x >> 5)", "(blockDim.x >> 5)", "0", 1,
                writes="(threadIdx.x & 31) == 0",
            )
            return [
                *self._across_warp(fold),
                "if (blockDim.x > 32) {",
                *indent(across),
                "}",
            ]

        return self._workers(outer, [], over_row, join, width, "threadIdx.x == 0")

    def _strips(self, width: int) -> list[str]:
        code, inner = self.code, self.inner
        outer = [i for i in self.outer if i != inner]
        row = sorted(self.region.row)
        count = code.number("row_count", "product", *row)
        n = code.extent(inner)

        def over_row(work: list[str]) -> list[str]:
            return [
                f"for (idx element = threadIdx.y; element < {count}; element += blockDim.y) {{",
                *indent(["idx rest = element;", *self._decode("rest", row), *work]),
                "}",
            ]

        def join(fold: Fold) -> list[str]:
            across = self._across_parts(
                fold, "threadIdx.y * 32 + threadIdx.x", "blockDim.y", "threadIdx.x", LANES
            )
            return ["if (blockDim.y > 1) {", *indent(across), "}"]

        strips = code.number("strips1", "strips_of", 1)
        lanes = [
            f"const idx lane = item % {strips} * {LANES} + threadIdx.x;",
            *([f"item_outer /= {strips};"] if outer else []),
            f"const bool active = lane < {n};",
            f"const idx i{inner} = active ? lane : {n} - 1;",
        ]
        return self._workers(outer, lanes, over_row, join, 1, "active && threadIdx.y == 0")

    def _workers(
        self,
        outer: list[int],
        lanes: list[str],
        over_row: object,
        join: object,
        width: int,
        alone: str,
    ) -> list[str]:
        """Return the loop of workers over rows, or strips of rows."""
        code, region, walk = self.code, self.region, self.code.walk
        top = self._top()
        known = dict(code.scope)
        work: list[str] = []
        late: list[str] = []
        early: list[str] = []
        row = region.row
        beside = frozenset(range(region.depth)) - row
        strip = self.way == "strips"
        for fold in self.cross:
            if self._in_register(fold):
                early += code.begin(fold)
                late += self._end_register(fold)
            else:
                early += self._begin_line(fold)
        if any(not self._in_register(fold) for fold in self.cross):
            early.append("if (blockDim.z == 1) __syncthreads(); else __syncwarp();")
        for index in range(max(region.passes, len(walk.stages))):
            if index < len(walk.stages):
                work += self._stage(index, alone)
            if index < region.passes and walk.sinks(index, element=True):
                work += self._pass(index, width, over_row, join, beside, strip)
        items = code.number("items", "row_items", width)
        decode = ["idx item_outer = item;", *lanes, *self._decode("item_outer", outer)]
        if not outer:
            decode = [line for line in decode if "item_outer" not in line]
        code.scope = known
        return [
            *top,
            "const idx worker = (idx)blockIdx.x * blockDim.z + threadIdx.z;",
            "const idx workers = (idx)gridDim.x * blockDim.z;",
            *early,
            f"for (idx item = worker; item < {items}; item += workers) {{",
            *indent([*decode, *work]),
            "}",
            *late,
        ]

    def _stage(self, index: int, alone: str) -> list[str]:
        code, walk = self.code, self.code.walk
        self._fold_results()
        lines = code.define(walk.stages[index])
        for fold in walk.folds(index, element=False):
            lines += self._fold_row_value(fold)
        outputs = walk.outputs(index, element=False)
        if outputs:
            # Every thread reads what a row has one of; one may write over it.
            lines.append("if (blockDim.z == 1) __syncthreads(); else __syncwarp();")
            writes = [code.write(output) for output in outputs]
            lines += [f"if ({alone}) {{", *indent(writes), "}"]
        return lines

    def _fold_results(self) -> None:
        """Make results of folds known that are over."""
        for fold in self.region.folds:
            if fold.row and fold.node not in self.code.scope and fold in self._over:
                self.code.scope[fold.node] = self.code.result(fold, self.code.fold_name(fold))

    _over: tuple[Fold, ...] = ()

    def _pass(
        self,
        index: int,
        width: int,
        over_row: object,
        join: object,
        beside: frozenset[int],
        strip: bool,
    ) -> list[str]:
        code, walk = self.code, self.code.walk
        self._fold_results()
        folds = walk.folds(index, element=True)
        outputs = walk.outputs(index, element=True)
        nodes = walk.passes[index]
        lines = code.define(nodes, beside)
        update: dict[Fold, tuple[str, str]] = {}
        for fold in folds:
            if fold.row:
                lines += code.begin(fold)
            update[fold] = self._target(fold)
        if strip:
            known = dict(code.scope)
            work = code.define(nodes)
            for fold in folds:
                work += self._take_in_strip(fold, update[fold])
            if outputs:
                writes = [code.write(output) for output in outputs]
                work += ["if (active) {", *indent(writes), "}"]
            code.scope = known
        else:
            work = self._elements(nodes, folds, outputs, width, update)
        lines += over_row(work)  # type: ignore[operator]
        for fold in folds:
            if fold.row:
                lines += join(fold)  # type: ignore[operator]
                self._over = (*self._over, fold)
            elif not self._in_register(fold) and not (set(fold.kept) & self.region.row):
                lines += self._flush(fold)
        return lines

    # ---- Folds across rows

    def _in_register(self, fold: Fold) -> bool:
        """Return whether a worker keeps one accumulator of the fold all the way."""
        return not fold.kept

    def _target(self, fold: Fold) -> tuple[str, str]:
        """Return where elements of a pass are folded into."""
        name = self.code.fold_name(fold)
        if fold.row or not set(fold.kept) & self.region.row:
            return name, f"{name}_at"
        if self.way != "strips":
            self.code.vector_loop = self.inner
        place = self.code.line_position(fold)
        self.code.vector_loop = -1
        return f"{name}_line[{place}]", f"{name}_line_at[{place}]"

    def _begin_line(self, fold: Fold) -> list[str]:
        """Return the lines that fill a worker's line with what folding begins with."""
        from ..numpy.codegen_scalar import identity_expression

        code = self.code
        name, dtype = code.fold_name(fold), code.accumulator(fold)
        kind, length = computing_type(dtype), self._line_length(fold)
        lines = [f"{kind} *{name}_line = {self._line(fold)} + worker * {length};"]
        inside = [f"{name}_line[p] = {identity_expression(fold.node, dtype)};"]
        if indexed(fold.node.op):
            lines.append(f"int64_t *{name}_line_at = {self._line(fold, 1)} + worker * {length};")
            inside.append(f"{name}_line_at[p] = 0;")
        thread = "threadIdx.y * blockDim.x + threadIdx.x"
        return [
            *lines,
            f"for (idx p = {thread}; p < {length}; p += blockDim.x * blockDim.y) {{",
            *indent(inside),
            "}",
            *(code.begin(fold) if not set(fold.kept) & self.region.row else []),
        ]

    def _take_in_strip(self, fold: Fold, target: tuple[str, str]) -> list[str]:
        """Return the lines that fold an element of a strip: lanes are rows side by side."""
        code = self.code
        if fold.row:
            return code.take(fold, *target)
        if not set(fold.kept) & self.region.row:
            return code.take(fold, *target, condition="active")
        if self.inner in fold.kept:
            return ["if (active) {", *indent(code.take(fold, *target)), "}"]
        # A warp folds its lanes; their sum has one place in the line.
        name, kind = code.fold_name(fold), computing_type(code.accumulator(fold))
        from ..numpy.codegen_scalar import identity_expression

        begin = identity_expression(fold.node, code.accumulator(fold))
        inside = [f"{kind} {name}_lane = {begin};"]
        if indexed(fold.node.op):
            inside.append(f"int64_t {name}_lane_at = 0;")
        inside += code.take(fold, f"{name}_lane", f"{name}_lane_at", condition="active")
        inside += self._across_warp(fold, f"{name}_lane", f"{name}_lane_at")
        joined = code.join(fold, target[0], target[1], f"{name}_lane", f"{name}_lane_at")
        return ["{", *indent([*inside, "if (threadIdx.x == 0) {", *indent(joined), "}"]), "}"]

    def _fold_row_value(self, fold: Fold) -> list[str]:
        """Return the lines that fold what a row has one of."""
        code = self.code
        name = code.fold_name(fold)
        if self._in_register(fold):
            once = "threadIdx.x == 0" if self.way == "rows" else "active && threadIdx.y == 0"
            return code.take(fold, name, f"{name}_at", condition=once)
        place = code.line_position(fold)
        target = (f"{name}_line[{place}]", f"{name}_line_at[{place}]")
        if self.way == "rows":
            return ["if (threadIdx.x == 0) {", *indent(code.take(fold, *target)), "}"]
        if self.inner in fold.kept:
            once = "active && threadIdx.y == 0"
            return [f"if ({once}) {{", *indent(code.take(fold, *target)), "}"]
        lines = code.take(fold, name, f"{name}_at", condition="active && threadIdx.y == 0")
        return [*lines, *self._flush(fold)]

    def _flush(self, fold: Fold) -> list[str]:
        """Return the lines that put what a worker folded of one item into its line."""
        from ..numpy.codegen_scalar import identity_expression

        code = self.code
        name, dtype = code.fold_name(fold), code.accumulator(fold)
        place = code.line_position(fold)
        target = (f"{name}_line[{place}]", f"{name}_line_at[{place}]")
        put = code.join(fold, *target, name, f"{name}_at")
        reset = [f"{name} = {identity_expression(fold.node, dtype)};"]
        if indexed(fold.node.op):
            reset.append(f"{name}_at = 0;")
        if self.way == "strips" and self.inner in fold.kept:
            across = self._across_parts(
                fold, "threadIdx.y * 32 + threadIdx.x", "blockDim.y", "threadIdx.x", LANES
            )
            joined = ["if (blockDim.y > 1) {", *indent(across), "}"]
            once = "active && threadIdx.y == 0"
        else:
            joined = self._across_worker(fold)
            once = "threadIdx.x + threadIdx.y == 0"
        return [*joined, f"if ({once}) {{", *indent(put), "}", *reset]

    def _across_worker(self, fold: Fold) -> list[str]:
        """Return the lines after which a worker's threads hold what they folded together."""
        warp = "((threadIdx.y * blockDim.x + threadIdx.x) >> 5)"
        lane = "((threadIdx.y * blockDim.x + threadIdx.x) & 31)"
        across = self._across_parts(
            fold, warp, "(blockDim.x * blockDim.y >> 5)", "0", 1, writes=f"{lane} == 0"
        )
        return [
            *self._across_warp(fold),
            "if (blockDim.x * blockDim.y > 32) {",
            *indent(across),
            "}",
        ]

    def _end_register(self, fold: Fold) -> list[str]:
        """Return the lines that write a worker's one accumulator into its line."""
        once = "threadIdx.x + threadIdx.y == 0"
        return [*self._across_worker(fold), *self.store_partial(fold, "worker", "0", once)]

    # ---- The end

    def _finish(self) -> str:
        """Return the kernels that add up lines of partial results, and use them."""
        texts = []
        self.joined = self._joined_end()
        if self.joined:
            return self._kernel("end", self._end())
        for position, fold in enumerate(self.region.folds):
            if not fold.row:
                texts.append(self._kernel(f"join{position}", self._join_lines(fold)))
        for position, outputs in enumerate(late_groups(self.region)):
            texts.append(self._kernel(f"late{position}", self._late(outputs)))
        return "\n".join(texts)

    def _joined_end(self) -> bool:
        """Return whether one kernel can add up the lines and use the sums."""
        groups = late_groups(self.region)
        loops = {frozenset(self.region.values[g[0].node].shape_loops) for g in groups}
        kept = {frozenset(fold.kept) for fold in self.cross}
        return len(kept) == 1 and loops == kept

    def _end(self) -> list[str]:
        """Return one kernel that adds up the lines of all folds and computes the rest."""
        code, region = self.code, self.region
        code.scope = {}
        lines: list[str] = []
        for fold in self.cross:
            lines += [line for line in self._join_lines(fold, store=False) if line not in lines[:1]]
            # Threads beside the first hold sums as well, or nothing: only the first writes.
            code.scope[fold.node] = code.result(fold, code.fold_name(fold))
        outputs = [output for group in late_groups(region) for output in group]
        nodes = code.walk.reach(
            [code.walk.source(o.node) for o in outputs], [fold.node for fold in self.cross]
        )
        fold = self.cross[0]
        loops = sorted(fold.kept)
        late = ["idx rest = p;", *self._decode("rest", loops), *code.define(nodes)]
        late += [code.write(output) for output in outputs]
        once = "threadIdx.x + threadIdx.y == 0"
        if fold.kept:
            once = f"p < {self._line_length(fold)} && threadIdx.y == 0"
        return [*lines, f"if ({once}) {{", *indent(late), "}"]

    def _join_lines(self, fold: Fold, store: bool = True) -> list[str]:
        code = self.code
        if store:
            code.scope = {}
        position = code.position_of(fold)
        name = code.fold_name(fold)
        lines_ = code.number(f"lines{position}", "line_count", position)
        length = self._line_length(fold) if fold.kept else "1"
        kind = computing_type(code.accumulator(fold))
        inside = [f"const {kind} other = {self._line(fold)}[line * {length} + p];"]
        if indexed(fold.node.op):
            inside.append(f"const int64_t other_at = {self._line(fold, 1)}[line * {length} + p];")
        inside += code.join(fold, name, f"{name}_at", "other", "other_at")
        begin = code.begin(fold)
        if not fold.kept:
            return [
                "const idx p = 0;",
                *begin,
                f"for (idx line = threadIdx.y * 32 + threadIdx.x; line < {lines_}; "
                "line += 32 * blockDim.y) {",
                *indent(inside),
                "}",
                *self._across_warp(fold),
                *self._across_parts(
                    fold, "threadIdx.y", "blockDim.y", "0", 1, writes="threadIdx.x == 0"
                ),
                *(
                    self.store_partial(fold, "0", "0", "threadIdx.x + threadIdx.y == 0")
                    if store
                    else []
                ),
            ]
        return [
            f"const idx p = (idx)blockIdx.x * {LANES} + threadIdx.x;",
            *begin,
            f"if (p < {length}) {{",
            *indent([
                f"for (idx line = threadIdx.y; line < {lines_}; line += blockDim.y) {{",
                *indent(inside),
                "}",
            ]),
            "}",
            *self._across_parts(
                fold, "threadIdx.y * 32 + threadIdx.x", "blockDim.y", "threadIdx.x", LANES
            ),
            *(
                self.store_partial(fold, "0", "p", f"p < {length} && threadIdx.y == 0")
                if store
                else []
            ),
        ]

    def _late(self, outputs: Sequence[Output]) -> list[str]:
        lines, count = self._late_lines(outputs)
        return [
            f"for (idx p = (idx)blockIdx.x * {THREADS} + threadIdx.x; p < {count};",
            f"     p += (idx)gridDim.x * {THREADS}) {{",
            *indent(lines),
            "}",
        ]

    def _late_lines(self, outputs: Sequence[Output]) -> tuple[list[str], str]:
        """Return what computes outputs of the end for one ``p``, and how many there are."""
        code, region = self.code, self.region
        code.scope = {}
        loops = sorted(region.values[outputs[0].node].shape_loops)
        folds = [fold for fold in region.folds if not fold.row]
        lines = []
        for fold in folds:
            at = f"[{code.line_position(fold)}]"
            name = code.fold_name(fold)
            if set(fold.kept) <= set(loops):
                kind = computing_type(code.accumulator(fold))
                lines.append(f"const {kind} {name} = {self._line(fold)}{at};")
                if indexed(fold.node.op):
                    lines.append(f"const int64_t {name}_at = {self._line(fold, 1)}{at};")
                code.scope[fold.node] = code.result(fold, name)
        nodes = code.walk.reach(
            [code.walk.source(o.node) for o in outputs], [fold.node for fold in folds]
        )
        missing = [n for n in nodes if n in {f.node for f in folds} and n not in code.scope]
        if missing:
            raise Unsupported("an output at the end runs along fewer axes than what it reads")
        lines += code.define(nodes)
        lines += [code.write(output) for output in outputs]
        count = code.number(f"late_{'_'.join(map(str, loops)) or 'one'}", "product", *loops)
        return ["idx rest = p;", *self._decode("rest", loops), *lines], count

    # ---- Launches

    def launches(
        self, sizes: Mapping[str, int], lines: int, counter: int = 0
    ) -> tuple[list[Launch], bool]:
        """Return the launches for given sizes, and whether positions need 64 bits.

        Parameters
        ----------
        sizes
            The size of every dimension.
        lines
            For how many workers the workspace was planned.
        counter
            The address of a zero, 4 bytes, that only these launches use.
        """
        binding = Shares(self, sizes, lines)
        binding.counter = counter
        made = [binding.main()]
        if self.cross and not binding.straight and not binding.tail:
            made += binding.finish()
        numbers = tuple(binding.numbers())
        result = [
            Launch(f"{self.key}_{suffix}", grid, block, numbers)
            for suffix, grid, block in made
            if grid[0]
        ]
        return result, binding.elements > WIDE


class Shares(CudaBinding):
    """How the work of a region is shared out for given sizes."""

    def __init__(self, kernels: RegionKernels, sizes: Mapping[str, int], lines: int) -> None:
        super().__init__(kernels.region, sizes, lines)
        self.kernels = kernels
        most = kernels.widths[-1]
        inner = kernels.inner
        self.vector = self.vector_width(inner, most) if inner >= 0 and most > 1 else 1
        self.used_lines: dict[int, int] = {}

    # asked for by name

    def groups(self, width: int) -> int:
        return self.product(*range(self.region.depth)) // width

    def row_groups(self, width: int) -> int:
        return self.product(*self.region.row) // width

    def strips_of(self, width: int) -> int:
        return -(-self.extents[self.kernels.inner] // (LANES * width))

    def row_items(self, width: int) -> int:
        kernels = self.kernels
        count = self.product(*(i for i in kernels.outer if i != kernels.inner or not self._strip))
        return count * (self.strips_of(1) if self._strip else 1)

    @property
    def _strip(self) -> bool:
        return self.kernels.way == "strips"

    def line_count(self, position: int) -> int:
        return self.used_lines[position]

    def numbers(self) -> list[int]:
        return [self.number(what, where) for what, where in self.kernels.code.numbers]

    # shares

    straight = False  # whether the main kernel has columns whole, and computes everything
    tail = False  # whether the block that is done last computes the rest
    counter = 0  # the address at which blocks that are done are counted

    def counter_address(self) -> int:
        return self.counter

    def ends_itself(self) -> int:
        return int(self.tail)

    def _is_quick(self) -> bool:
        """Return whether one block ends the sums faster than launches of their own."""
        work = 0
        for position, fold in enumerate(self.region.folds):
            if not fold.row:
                work += self.used_lines[position] * (
                    self.line_length(position) if fold.kept else 1
                )
        for outputs in late_groups(self.region):
            work += self.product(*self.region.values[outputs[0].node].shape_loops)
        return work <= QUICK

    def main(self) -> tuple[str, tuple[int, int, int], tuple[int, int, int]]:
        """Return the main launch: the end of the kernel's name, its grid and its block."""
        grid, block, workers = getattr(self, f"_{self.kernels.way}")()
        for position, fold in enumerate(self.region.folds):
            if not fold.row:
                single = workers if fold.kept else workers * getattr(self, "_beside", 1)
                self.used_lines[position] = single
        self.tail = bool(self.used_lines) and not self.straight and self._is_quick()
        return f"{'d' if self.straight else 'v'}{self.vector}", grid, block

    def _flat(self) -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
        groups = self.groups(self.vector) if self.region.depth else 1
        needed = -(-groups // THREADS)
        most = MULTIPROCESSORS * 32
        if self.region.folds:
            most = min(self.lines * ENTRIES, MULTIPROCESSORS * 4)
        blocks = max(1 if self.region.folds else 0, min(needed, most))
        return (blocks, 1, 1), (THREADS, 1, 1), blocks

    def _columns(self) -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
        kernels = self.kernels
        around = self.product(*kernels.kept_loops[:-1])
        if around * self.strips_of(1) <= 2 * MULTIPROCESSORS:
            self.vector = 1  # more blocks, rather than wider reads
        columns = around * self.strips_of(self.vector)
        rows = self.product(*kernels.gone_loops)
        parts = min(32, _power(rows))
        wanted = -(-MULTIPROCESSORS * 2048 // max(1, columns * LANES * parts))
        most = min(self.lines, self.lines * ENTRIES // max(1, columns)) or 1
        if any(not fold.kept for fold in kernels.cross) and columns > self.lines * ENTRIES:
            raise Unsupported("more columns than lines for a sum of all")
        chunks = max(1, min(wanted, most, -(-rows // (4 * parts))))
        if not any(not fold.kept for fold in kernels.cross):
            chunks = max(1, min(wanted, self.lines, -(-rows // (4 * parts))))
        self._beside = columns
        if kernels.direct and (chunks == 1 or rows <= ROWS_STRAIGHT * parts):
            self.straight, chunks = True, 1
        return (columns, chunks, 1), (LANES, parts, 1), chunks

    def _rows(self) -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
        groups = self.row_groups(self.vector)
        items = self.row_items(self.vector)
        threads = LANES
        while threads < MAX_THREADS and threads * 4 < groups:
            threads *= 2
        beside = 8 if threads == LANES else 1
        return self._worker_grid(items, (threads, 1, beside))

    def _strips(self) -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
        rows = self.product(*self.region.row)
        items = self.row_items(1)
        parts = 1 if rows <= 32 else min(32, _power(rows // 4))
        return self._worker_grid(items, (LANES, parts, 8 if parts == 1 else 1))

    def _worker_grid(
        self, items: int, block: tuple[int, int, int]
    ) -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
        beside = block[2]
        cross = self.kernels.cross
        most = MULTIPROCESSORS * 16
        if cross:
            most = max(1, self.lines // beside)
            if self.lines < beside:
                block, beside = (block[0], block[1], 1), 1
                most = self.lines
        blocks = max(1 if cross else 0, min(-(-items // beside), most))
        return (blocks, 1, 1), block, blocks * beside

    def finish(self) -> list[tuple[str, tuple[int, int, int], tuple[int, int, int]]]:
        """Return the launches that add up partial results and use them."""
        made = []
        if self.kernels.joined:
            fold = self.kernels.cross[0]
            position = self.kernels.code.position_of(fold)
            blocks = -(-self.line_length(position) // LANES) if fold.kept else 1
            parts = min(32, _power(self.used_lines[position])) if fold.kept else 8
            return [("end", (blocks, 1, 1), (LANES, parts, 1))]
        for position, fold in enumerate(self.region.folds):
            if fold.row:
                continue
            length = self.line_length(position) if fold.kept else 1
            blocks = -(-length // LANES) if fold.kept else 1
            parts = min(32, _power(self.used_lines[position])) if fold.kept else 8
            made.append((f"join{position}", (blocks, 1, 1), (LANES, parts, 1)))
        for position, outputs in enumerate(late_groups(self.region)):
            loops = self.region.values[outputs[0].node].shape_loops
            count = self.product(*loops)
            blocks = min(-(-count // THREADS), MULTIPROCESSORS * 16)
            made.append((f"late{position}", (blocks, 1, 1), (THREADS, 1, 1)))
        return made


def _power(count: int) -> int:
    """Return the largest power of two that is not above a count."""
    return 1 << max(0, count.bit_length() - 1)
