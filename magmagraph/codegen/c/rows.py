"""C for one region: a function that does the work of some rows, and one that ends it.

The text is plain nested loops with the names of operations in it, so that people can read what
became of their graph. Sizes, steps and positions come as numbers at run time, in the order of
`CCode.numbers`: one text serves all sizes. Only the length of short rows is in the text
where the graph knows it: how many groups of lanes they have is then known to the compiler, too.

A row's innermost loop is the vector loop. Floats are added up there in blocks of at most `SUMMED`
elements, and the blocks in double: errors are like those of pairwise summation. In groups of lanes
(`folds`) blocks are added up lane by lane, and lanes joined when all are.
"""

from __future__ import annotations

from ..functions.scalar import computing_type
from ..region.analysis import Fold, Region
from ..region.parts import MAX_STRIP, costly, indexed, late_groups
from .batches import in_batches
from .binding import crosses
from .c_code import CCode
from .columns import columns_text
from .nest import Nest, write_late
from .scalar import combine_expression, identity_expression
from .text import advance, for_loop, guarded, indent, replace_if_better

__all__ = ["RowsCode"]


class RowsCode:
    """The C functions of one region.

    Attributes
    ----------
    code
        Names and numbers of the functions.
    text
        ``<name>_rows`` and, where there is an epilogue, ``<name>_finish``.
    finishes
        Whether there is a ``_finish``.
    """

    def __init__(self, region: Region, name: str) -> None:
        self.region = region
        self.code = CCode(region, name)
        self.finishes = region.columns or any(not fold.row for fold in region.folds)
        if region.columns:
            self.text = columns_text(self.code)
        else:
            self.text = self._rows() + (self._finish() if self.finishes else "")

    # ---- The rows

    def _rows(self) -> str:
        region = self.region
        work: list[str] = []
        counters = self._counters()
        if region.strip:
            v = self.code.vector
            width = self.code.number("width", "strip_width")
            work.append(f"const int64_t first = strip * {width};")
            n = self.code.extent(v)
            work.append(f"const int64_t wide = {n} - first < {width} ? {n} - first : {width};")
        stages = self.code.walk.stages
        phases: list[list[str]] = []
        for index in range(max(region.passes, len(stages))):
            stage = self._stage(index) if index < len(stages) else []
            calls = self._first_call(index, stage) if phases else len(stage)
            if calls < len(stage):
                phases[-1] += stage[:calls]
                phases.append(stage[calls:])
                stage = []
            if index < region.passes or not phases:
                phases.append([])
            phases[-1] += stage
            if index < region.passes and self.code.walk.sinks(index, element=True):
                phases[-1] += self._pass(index)
        step = advance([(name, self._extent_of(name)) for name, _ in counters])
        lines = [*self._cross_lines("chunk", fill=True), *self._saved_lines()]
        start = ["int64_t rest = begin;"] if counters else []
        for position, (name, _) in enumerate(reversed(counters)):
            extent = self._extent_of(name)
            if position == len(counters) - 1:
                start.append(f"int64_t {name} = rest;")
            else:
                start.append(f"int64_t {name} = rest % {extent};")
                start.append(f"rest /= {extent};")
        if not counters:
            step = []
        if region.batched:
            items = in_batches(self.code, phases, [name for name, _ in counters], step)
        else:
            work += [line for lines in phases for line in lines]
            items = for_loop("item", "end", [*work, *step], "begin")
        body = [*self.code.top, *lines, *guarded("begin < end", [*start, *items])]
        return self.code.function("rows", body, "int64_t chunk, int64_t begin, int64_t end")

    def _first_call(self, index: int, lines: list[str]) -> int:
        """Return which line of a stage is the first that a function is called in, if any."""
        code = self.code
        called = [f" {code.names[node]} = " for node in code.walk.stages[index] if costly(node)]
        calls = (i for i, line in enumerate(lines) if any(name in line for name in called))
        return next(calls, len(lines))

    def _counters(self) -> list[tuple[str, int]]:
        """Return the counters of an item, outermost first: outer loops, and strips."""
        region = self.region
        outer = [(f"i{i}", i) for i in region.outer if not (region.strip and i == self.code.vector)]
        if region.strip:
            strip = ("strip", self.code.vector)
            return [strip, *outer] if self._crosses() else [*outer, strip]
        return outer

    def _crosses(self) -> bool:
        """Whether something is read across the innermost loop: neighbouring rows share lines."""
        return crosses(self.region)

    def _extent_of(self, counter: str) -> str:
        if counter == "strip":
            return self.code.number("strips", "strip_count")
        return self.code.extent(int(counter[1:]))

    def _stage(self, index: int) -> list[str]:
        nodes = self.code.walk.stages[index]
        folds = self.code.walk.folds(index, element=False)
        outputs = self.code.walk.outputs(index, element=False)
        if not (nodes or folds or outputs):
            return []
        loops = [self.code.vector] if self.region.strip else []
        return Nest(self.code, loops, nodes, folds, outputs, stage=True).lines()

    def _pass(self, index: int) -> list[str]:
        region = self.region
        folds = self.code.walk.folds(index, element=True)
        outputs = self.code.walk.outputs(index, element=True)
        loops = sorted(region.row)
        if region.strip:
            loops.append(self.code.vector)
        lines = [f"/* pass {index + 1} */"] if region.passes > 1 else []
        for fold in folds:
            if fold.row:
                lines += self._begin_row_fold(fold)
        nest = Nest(self.code, loops, self.code.walk.passes[index], folds, outputs, number=index)
        return lines + nest.lines()

    def _begin_row_fold(self, fold: Fold) -> list[str]:
        kind = computing_type(self.code.accumulator(fold))
        begin = identity_expression(fold.node, self.code.accumulator(fold))
        name = self.code.fold_name(fold)
        position = indexed(fold.node.op)
        if not self.region.strip:
            lines = [f"{kind} {name} = {begin};"]
            return [*lines, f"int64_t {name}_at = 0;"] if position else lines
        lines = [f"{kind} {name}[{MAX_STRIP}];"]
        if position:
            lines.append(f"int64_t {name}_at[{MAX_STRIP}];")
        also = f" {name}_at[l] = 0;" if position else ""
        lines.append(f"for (int64_t l = 0; l < wide; l++) {{ {name}[l] = {begin};{also} }}")
        return lines

    # ---- Lines of partial results, a line a chunk

    def _cross_lines(self, chunk: str, *, fill: bool) -> list[str]:
        lines: list[str] = []
        for position, fold in enumerate(self.region.folds):
            if fold.row:
                continue
            kind = computing_type(self.code.accumulator(fold))
            name = self.code.fold_name(fold)
            pieces = [(name, kind, identity_expression(fold.node, self.code.accumulator(fold)), 0)]
            if indexed(fold.node.op):
                pieces.append((f"{name}_at", "int64_t", "0", 1))
            for piece, type_, begin, half in pieces:
                offset = self.code.number(
                    f"{piece}_offset", "line_place", position, half
                )
                step = self.code.number(f"{name}_line", "line_size", position)
                place = f"workspace + {offset}" + (f" + {chunk} * {step}" if chunk != "0" else "")
                lines.append(f"{type_} *{piece} = ({type_} *)({place});")
                if fill:
                    count = self.code.number(f"{name}_count", "line_length", position)
                    lines.append(
                        f"for (int64_t k = 0; k < {count}; k++) {piece}[k] = {begin};"
                    )
        return lines

    def _saved_lines(self) -> list[str]:
        lines: list[str] = []
        for position, node in enumerate(self.code.walk.saved):
            offset = self.code.number(f"saved{position}_offset", "saved_place", position)
            step = self.code.number("saved_line", "saved_size")
            kind = computing_type(node.dtype)
            name = f"saved{position}_rows" if self.region.batched else f"saved{position}"
            lines.append(f"{kind} *{name} = ({kind} *)(workspace + {offset} + chunk * {step});")
        return lines

    # ---- The epilogue

    def _finish(self) -> str:
        self.code.begin_finish()
        body = self._cross_lines("0", fill=False)
        for position, fold in enumerate(self.region.folds):
            if not fold.row:
                body += self._join_lines(position, fold)
        for outputs in late_groups(self.region):
            body += write_late(self.code, outputs)
        self.code.finishing = False
        return self.code.function("finish", [*self.code.top, *body], "int64_t chunks")

    def _join_lines(self, position: int, fold: Fold) -> list[str]:
        """Return the loop that folds the lines of all chunks into the first."""
        name, dtype = self.code.fold_name(fold), self.code.accumulator(fold)
        count = self.code.number(f"{name}_count", "line_length", position)
        step = self.code.number(f"{name}_line", "line_size", position)
        kind = computing_type(dtype)
        if not indexed(fold.node.op):
            update = combine_expression(fold.node, dtype, f"{name}[k]", "other[k]")
            inner = [f"{name}[k] = {update};"]
            more = []
        else:
            more = [f"const int64_t *other_at = (int64_t *)((char *){name}_at + chunk * {step});"]
            inner = replace_if_better(
                fold.node, dtype, f"{name}[k]", f"{name}_at[k]", "other[k]", "other_at[k]"
            )
        return [
            "for (int64_t chunk = 1; chunk < chunks; chunk++) {",
            *indent([
                f"const {kind} *other = ({kind} *)((char *){name} + chunk * {step});",
                *more,
                f"for (int64_t k = 0; k < {count}; k++) {{",
                *indent(inner),
                "}",
            ]),
            "}",
        ]
