"""CUDA C for regions with rows: each is reduced, and passed over again, by the threads of a worker.

Along rows, the threads of a warp or a block take neighbours of one row. In strips, for rows across
the innermost loop or shorter than a vector, lanes take rows side by side. Short rows of vectors
have a few lanes of a warp each.
"""

from __future__ import annotations

from ..c.scalar import combine_expression, identity_expression
from ..c.text import indent
from ..functions.scalar import computing_type
from ..region.analysis import Fold
from ..region.parts import indexed
from .cuda_code import CudaCode, RegisterValues
from .limits import LANES, UNDER_WAY
from .narrow import Narrow

__all__ = ["Workers"]

_ALIGN = "if (blockDim.z == 1) __syncthreads(); else __syncwarp();"


class Workers:
    """The loop of workers over rows, or over strips of rows; one kernel is written with each.

    Parameters
    ----------
    code
        Of the region.
    strips
        Whether lanes take rows side by side.
    width
        How many neighbours of a row a thread takes at a time.
    parts
        How many vectors of a row a thread has, at most, if it keeps what it reads for the passes
        that follow; 0 if it does not.
    narrow
        How the lanes of a warp share out several rows, if they do; nothing is folded across these.
    """

    def __init__(
        self, code: CudaCode, strips: bool, width: int = 1, parts: int = 0,
        narrow: Narrow | None = None,
    ) -> None:
        self.code, self.strips, self.width, self.narrow = code, strips, width, narrow
        self.row = code.region.row
        self.outer = [i for i in code.region.outer if not strips or i != code.inner]
        self.parts = parts
        self.kept = RegisterValues("part", parts, width, code.walk.saved) if parts else None
        self.own = code.own() if parts and narrow is None and not strips else []
        self._over: list[Fold] = []  # folds of rows that earlier passes are done with
        self._alone = "active && threadIdx.y == 0" if strips else "threadIdx.x == 0"
        self._lane = "threadIdx.x"  # of a thread's row
        if narrow is not None:
            if narrow.groups:
                self._lane = f"(threadIdx.x & {narrow.lanes - 1})"
            self._alone = f"mine && {self._lane} == 0"

    def main(self) -> list[str]:
        """Return the kernel."""
        code, region, walk = self.code, self.code.region, self.code.walk
        top = code.top()
        outer_scope = dict(code.scope)
        work: list[str] = []
        late: list[str] = []
        early: list[str] = []
        for fold in code.cross:
            if self._in_register(fold):
                early += code.begin(fold)
                late += self._end_register(fold)
            elif fold in self.own:
                early += self._begin_own(fold)
                late += self._end_own(fold)
            else:
                early += self._begin_line(fold)
        if any(not self._in_register(fold) and fold not in self.own for fold in code.cross):
            early.append(_ALIGN)
        # What a row has one of is read first, so that no pass has to wait for it.
        nodes = [n for nodes in (*walk.stages, *walk.passes) for n in nodes]
        work += code.define(
            [n for n in nodes if n in region.accesses and not region.values[n].epilogue],
            frozenset(range(region.depth)) - self.row,
        )
        for index in range(max(region.passes, len(walk.stages))):
            if index < len(walk.stages):
                work += self._stage(index)
            if index < region.passes and walk.sinks(index, element=True):
                work += self._pass(index)
        items = code.number("items", "row_items", self.width)
        decode = [*self._lanes(), *code.decode("item_outer", self.outer)]
        if self.outer:
            decode.insert(0, "idx item_outer = item;")
        if self.kept is not None:
            ahead = self._ahead(items) if self.narrow is None else []
            decode = [*ahead, *decode, *self.kept.declared.values()]
        code.scope = outer_scope
        loop = [*self._turns(items), *indent([*decode, *work]), "}"]
        return [*top, *self._workers(), *early, *loop, *late]

    def _workers(self) -> list[str]:
        """Return the lines that number the workers; those of a warp may be several."""
        rows, here, narrow = "blockDim.z", "threadIdx.z", self.narrow
        if narrow is not None and narrow.groups:
            together = LANES // narrow.lanes
            rows = f"blockDim.z * {together}"
            here = f"threadIdx.z * {together} + threadIdx.x / {narrow.lanes}"
        return [
            f"const idx worker = (idx)blockIdx.x * {rows} + {here};",
            f"const idx workers = (idx)gridDim.x * {rows};",
        ]

    def _turns(self, items: str) -> list[str]:
        """Return the head of the loop over a worker's rows, or strips of rows."""
        if self.narrow is None:
            return [f"for (idx item = worker; item < {items}; item += workers) {{"]
        beside = "threadIdx.z & ((32 >> (31 - __clz(blockDim.x))) - 1)"
        if self.narrow.groups:
            beside = f"threadIdx.x / {self.narrow.lanes}"
        # Lanes without a row do what the last one's do, and write nothing.
        return [
            f"const idx beside = {beside};",
            f"for (idx turn = worker - beside; turn < {items}; turn += workers) {{",
            f"    const bool mine = turn + beside < {items};",
            f"    const idx item = mine ? turn + beside : {items} - 1;",
        ]

    def _ahead(self, items: str) -> list[str]:
        """Return the lines that bring a row which another block will read soon into the cache."""
        code = self.code
        inside = []
        for position, node in enumerate(code.region.accesses):
            if code.moves(node) and len(code.region.values[node].loops) == code.region.depth:
                size = code.number(f"x{position}_ahead", "bytes_ahead", position)
                offset = code.steps_of(node)[0] or "0"
                start = f"in{code.region.accesses[node].parameter} + {offset}"
                inside.append(f"mg_bring({start}, item + rows_ahead, {size});")
        rows = code.number("rows_ahead", "rows_ahead")
        condition = f"{rows} && threadIdx.x == 0 && item + {rows} < {items}"
        return [f"if ({condition}) {{", *indent(inside), "}"] if inside else []

    def _lanes(self) -> list[str]:
        """Return the lines that say which row of a strip a lane has."""
        if not self.strips:
            return []
        code, inner = self.code, self.code.inner
        strips, n = code.number("strips1", "strips_of", 1), code.extent(inner)
        return [
            f"const idx lane = item % {strips} * {LANES} + threadIdx.x;",
            *([f"item_outer /= {strips};"] if self.outer else []),
            f"const bool active = lane < {n};",
            f"const idx i{inner} = active ? lane : {n} - 1;",
        ]

    def _over_row(self, work: list[str]) -> list[str]:
        """Return the loop of a worker's threads over a row."""
        code, row, width = self.code, sorted(self.row), self.width
        if self.strips:
            count = code.number("row_count", "product", *row)
            first = "idx rest = threadIdx.y + turn * blockDim.y;"
            return self._own_turns(count, "y", [first, *code.decode("rest", row), *work])
        groups = code.number(f"groups{width}", "row_groups", width)
        if self.narrow is not None and self.narrow.groups:
            groups = str(self.narrow.groups)
        inside = [f"idx rest = group * {width};", *code.decode("rest", row), *work]
        if self.kept is None:
            first = "const idx group = threadIdx.x + turn * blockDim.x;"
            return self._own_turns(groups, "x", [first, *inside])
        return [
            "#pragma unroll",
            f"for (int part = 0; part < {self.parts}; part++) {{",
            # Threads that are left over compute the last vector once more, and nobody takes it:
            # without branches all reads are under way before the first value is used.
            *indent([*self._group(groups), *inside]),
            "}",
        ]

    def _own_turns(self, count: str, axis: str, inside: list[str]) -> list[str]:
        """Return a thread's loop over its part of a row.

        The number of turns is known before the loop, so that compilers ask for the elements of
        some turns before they use the first: memory needs as many reads under way.
        """
        threads = f"(idx)blockDim.{axis}"
        turns = f"({count} - (idx)threadIdx.{axis} + {threads} - 1) / {threads}"
        return [
            f"#pragma unroll {UNDER_WAY}",
            f"for (idx turn = 0, turns = {turns}; turn < turns; turn++) {{",
            *indent(inside),
            "}",
        ]

    def _group(self, groups: str) -> list[str]:
        """Return the lines that say which vector of its row a thread has."""
        narrow, lane = self.narrow, self._lane
        wide = "blockDim.x" if narrow is None or not narrow.groups else str(narrow.lanes)
        if narrow is not None and narrow.full:
            return [f"const idx group = {lane} + part * {wide};"]
        return [
            f"const idx place = {lane} + part * {wide};",
            f"const bool here = place < {groups};",
            f"const idx group = here ? place : {groups} - 1;",
        ]

    def _join(self, folds: list[Fold]) -> list[str]:
        """Return the lines after which the threads of a row know the folds of a pass."""
        code = self.code
        if self.strips:
            lines: list[str] = []
            for fold in folds:
                across = code.across_parts(
                    fold, "threadIdx.y * 32 + threadIdx.x", "blockDim.y", "threadIdx.x", LANES
                )
                lines += ["if (blockDim.y > 1) {", *indent(across), "}"]
            return lines
        own = [fold for fold in code.region.folds if fold.row]
        places = [(fold, own.index(fold) % LANES) for fold in folds]
        passes = {fold.phase for fold in own}
        flushed = any(fold.kept and not set(fold.kept) & self.row for fold in code.cross)
        # With joins of other places in between, all are done with these when the next row comes.
        return code.across_row(places, len(passes) < 2 or flushed or len(own) > LANES)

    def _stage(self, index: int) -> list[str]:
        """Return the statements for values of one number per row, before a pass."""
        code, walk = self.code, self.code.walk
        self._fold_results()
        lines = code.define(walk.stages[index])
        for fold in walk.folds(index, element=False):
            lines += self._fold_row_value(fold)
        outputs = walk.outputs(index, element=False)
        if outputs:
            # Every thread reads what a row has one of; one may write over it.
            lines.append(_ALIGN)
            writes = [code.write(output) for output in outputs]
            lines += [f"if ({self._alone}) {{", *indent(writes), "}"]
        return lines

    def _fold_results(self) -> None:
        """Make results of folds known that are over."""
        code = self.code
        for fold in self._over:
            if fold.node not in code.scope:
                code.scope[fold.node] = code.result(fold, code.fold_name(fold))

    def _pass(self, index: int) -> list[str]:
        """Return a pass over the elements of a row."""
        code, walk = self.code, self.code.walk
        self._fold_results()
        folds = walk.folds(index, element=True)
        outputs = walk.outputs(index, element=True)
        nodes = walk.passes[index]
        lines = code.define(nodes, frozenset(range(code.region.depth)) - self.row)
        update: dict[Fold, tuple[str, str]] = {}
        for fold in folds:
            if fold.row:
                lines += code.begin(fold)
            update[fold] = self._target(fold)
        if self.strips:
            outer_scope = dict(code.scope)
            work = code.define(nodes)
            for fold in folds:
                work += self._take_in_strip(fold, update[fold])
            if outputs:
                writes = [code.write(output) for output in outputs]
                work += ["if (active) {", *indent(writes), "}"]
            code.scope = outer_scope
        else:
            full = self.kept is None or (self.narrow is not None and self.narrow.full)
            work = code.elements(
                nodes, folds, outputs, self.width, update, self.kept, "" if full else "here",
                "" if self.narrow is None else "mine",
            )
        parts = [
            fold for fold in folds
            if self.kept is not None and code.in_groups(fold, update[fold][0])
        ]
        for fold in parts:
            kind = computing_type(code.near(fold))
            lines.append(f"{kind} {update[fold][0]}_part[{self.parts}];")
        lines += self._over_row(work)
        for fold in parts:
            name, wide = update[fold][0], code.accumulator(fold)
            lines += code.in_pairs(fold, f"{name}_part", self.parts)
            value = f"({computing_type(wide)}){name}_part[0]"
            lines.append(f"{name} = {combine_expression(fold.node, wide, name, value)};")
        joined = [fold for fold in folds if fold.row]
        if joined:
            lines += self._join(joined)
            self._over += joined
        for fold in folds:
            if fold.row:
                continue
            if not self._in_register(fold) and not (set(fold.kept) & self.row):
                lines += self._flush(fold)
        return lines

    # ---- Folds across rows

    def _in_register(self, fold: Fold) -> bool:
        """Return whether a worker keeps one accumulator of the fold all the way."""
        return not fold.kept

    def _target(self, fold: Fold) -> tuple[str, str]:
        """Return where elements of a pass are folded into."""
        name = self.code.fold_name(fold)
        if fold.row or not set(fold.kept) & self.row:
            return name, f"{name}_at"
        if fold in self.own:
            return f"{name}_own[part * {self.width} + k]", ""
        if not self.strips:
            self.code.vector_loop = self.code.inner
        place = self.code.line_position(fold)
        self.code.vector_loop = -1
        return f"{name}_line[{place}]", f"{name}_line_at[{place}]"

    def _begin_line(self, fold: Fold) -> list[str]:
        """Return the lines that fill a worker's line with what folding begins with."""
        code = self.code
        name, dtype = code.fold_name(fold), code.accumulator(fold)
        kind, length = computing_type(dtype), code.line_length(fold)
        lines = [f"{kind} *{name}_line = {code.line(fold)} + worker * {length};"]
        inside = [f"{name}_line[p] = {identity_expression(fold.node, dtype)};"]
        if indexed(fold.node.op):
            lines.append(f"int64_t *{name}_line_at = {code.line(fold, 1)} + worker * {length};")
            inside.append(f"{name}_line_at[p] = 0;")
        thread = "threadIdx.y * blockDim.x + threadIdx.x"
        return [
            *lines,
            f"for (idx p = {thread}; p < {length}; p += blockDim.x * blockDim.y) {{",
            *indent(inside),
            "}",
            *(code.begin(fold) if not set(fold.kept) & self.row else []),
        ]

    def _begin_own(self, fold: Fold) -> list[str]:
        """Return the lines that fill a thread's own places with what folding begins with."""
        name, dtype = self.code.fold_name(fold), self.code.accumulator(fold)
        count, begin = self.parts * self.width, identity_expression(fold.node, dtype)
        return [
            f"{computing_type(dtype)} {name}_own[{count}];",
            "#pragma unroll",
            f"for (int k = 0; k < {count}; k++) {name}_own[k] = {begin};",
        ]

    def _end_own(self, fold: Fold) -> list[str]:
        """Return the lines that write a thread's own places into the line of its worker."""
        code, name = self.code, self.code.fold_name(fold)
        kind, length = computing_type(code.accumulator(fold)), code.line_length(fold)
        code.vector_loop = code.inner
        place = code.line_position(fold)
        code.vector_loop = -1
        inside = [
            "#pragma unroll",
            f"for (int k = 0; k < {self.width}; k++) {{",
            f"    if (here) {name}_line[{place}] = {name}_own[part * {self.width} + k];",
            "}",
        ]
        return [
            "{",
            f"    {kind} *{name}_line = {code.line(fold)} + worker * {length};",
            *indent(self._over_row(inside)),
            "}",
        ]

    def _take_in_strip(self, fold: Fold, target: tuple[str, str]) -> list[str]:
        """Return the lines that fold an element of a strip: lanes are rows side by side."""
        code = self.code
        if fold.row:
            return code.take(fold, *target)
        if not set(fold.kept) & self.row:
            return code.take(fold, *target, condition="active")
        if code.inner in fold.kept:
            return ["if (active) {", *indent(code.take(fold, *target)), "}"]
        # A warp folds its lanes; their sum has one place in the line.
        name, kind = code.fold_name(fold), computing_type(code.accumulator(fold))
        begin = identity_expression(fold.node, code.accumulator(fold))
        inside = [f"{kind} {name}_lane = {begin};"]
        if indexed(fold.node.op):
            inside.append(f"int64_t {name}_lane_at = 0;")
        inside += code.take(fold, f"{name}_lane", f"{name}_lane_at", condition="active")
        inside += code.across_warp(fold, f"{name}_lane", f"{name}_lane_at")
        joined = code.join(fold, target[0], target[1], f"{name}_lane", f"{name}_lane_at")
        return ["{", *indent([*inside, "if (threadIdx.x == 0) {", *indent(joined), "}"]), "}"]

    def _fold_row_value(self, fold: Fold) -> list[str]:
        """Return the lines that reduce values of one number per row."""
        code = self.code
        name = code.fold_name(fold)
        if self._in_register(fold):
            once = "threadIdx.x == 0" if not self.strips else "active && threadIdx.y == 0"
            return code.take(fold, name, f"{name}_at", condition=once)
        place = code.line_position(fold)
        target = (f"{name}_line[{place}]", f"{name}_line_at[{place}]")
        if not self.strips:
            return ["if (threadIdx.x == 0) {", *indent(code.take(fold, *target)), "}"]
        if code.inner in fold.kept:
            once = "active && threadIdx.y == 0"
            return [f"if ({once}) {{", *indent(code.take(fold, *target)), "}"]
        lines = code.take(fold, name, f"{name}_at", condition="active && threadIdx.y == 0")
        return [*lines, *self._flush(fold)]

    def _flush(self, fold: Fold) -> list[str]:
        """Return the lines that store a worker's partial result of one item in its line."""
        code = self.code
        name, dtype = code.fold_name(fold), code.accumulator(fold)
        place = code.line_position(fold)
        target = (f"{name}_line[{place}]", f"{name}_line_at[{place}]")
        put = code.join(fold, *target, name, f"{name}_at")
        reset = [f"{name} = {identity_expression(fold.node, dtype)};"]
        if indexed(fold.node.op):
            reset.append(f"{name}_at = 0;")
        if self.strips and code.inner in fold.kept:
            across = code.across_parts(
                fold, "threadIdx.y * 32 + threadIdx.x", "blockDim.y", "threadIdx.x", LANES
            )
            joined = ["if (blockDim.y > 1) {", *indent(across), "}"]
            once = "active && threadIdx.y == 0"
        else:
            joined = code.across_worker(fold)
            once = "threadIdx.x + threadIdx.y == 0"
        return [*joined, f"if ({once}) {{", *indent(put), "}", *reset]

    def _end_register(self, fold: Fold) -> list[str]:
        """Return the lines that write a worker's one accumulator into its line."""
        once = "threadIdx.x + threadIdx.y == 0"
        return [*self.code.across_worker(fold), *self.code.store_partial(fold, "worker", "0", once)]
