"""C for one region: a function that does the work of some rows, and one that ends it.

The text is plain nested loops with the names of operations in it, so that people can read what
became of their graph. Sizes, steps and positions come as numbers at run time, in the order of
`RowsCode.numbers`: one text serves all sizes. Only the length of short rows stands in the text
where the graph knows it: how many groups of lanes they have is then known to the compiler, too.

A row's innermost loop is the vector loop. Floats are added up there in blocks of at most `SUMMED`
elements, and the blocks in double: errors are like those of pairwise summation. In groups of lanes
(`folds`) blocks are added up lane by lane, and lanes joined when all are.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....graph import Node
from ....region.analysis import Fold, Output, Region
from ....region.parts import MAX_STRIP, costly, indexed, late_groups
from ..binding import crosses
from ..functions.scalar import computing_type
from .ahead import KNOWN
from .batches import in_batches
from .columns import columns_text
from .nest import Nest
from .region_code import RegionCode
from .scalar import combine_expression, identity_expression, storage_type
from .text import advance, for_loop, guarded, indent, mentions, replace_if_better

__all__ = ["RowsCode"]


class RowsCode(RegionCode):
    """The C functions of one region.

    Attributes
    ----------
    text
        ``<name>_rows`` and, where there is an epilogue, ``<name>_finish``.
    finishes
        Whether there is a ``_finish``.
    declarations
        Reductions that vector loops use, to stand before the functions.
    """

    def __init__(self, region: Region, name: str) -> None:
        super().__init__(region)
        self.walk = region.walk
        self.name = name
        self.declarations: dict[str, None] = {}
        self.vector = region.depth - 1
        self._known: dict[str, int] = {}
        self._unique = 0
        self.finishing = False
        self.top: list[str] = []
        self.lanes: dict[Node, str] = {}
        self.kept_lanes = self._kept_lanes()
        self.finishes = region.columns or any(not fold.row for fold in region.folds)
        if region.columns:
            self.text = columns_text(self)
        else:
            self.text = self._rows() + (self._finish() if self.finishes else "")

    # ---- Names and numbers

    def extent(self, loop: int) -> str:
        """Return the number of iterations of a loop."""
        name, length = f"n{loop}", self.region.loops[loop].extent
        if loop == self.vector and loop in self.region.row and type(length) is int:
            if length <= KNOWN:
                self._known[name] = length
                return name
        return super().extent(loop)

    def index(self, loop: int) -> str:
        """Return the position along a loop."""
        if self.strips and loop == self.vector:
            return f"(first + i{loop})"
        return super().index(loop)

    @property
    def strips(self) -> bool:
        """Whether the innermost loop is taken in strips here."""
        return self.region.strip and (not self.finishing or self.region.columns)

    def _type(self, node: Node) -> str:
        return computing_type(node.dtype)

    # ---- The rows

    def _rows(self) -> str:
        region = self.region
        work: list[str] = []
        counters = self._counters()
        if region.strip:
            v = self.vector
            width = self.number("width", "strip_width")
            work.append(f"const int64_t first = strip * {width};")
            n = self.extent(v)
            work.append(f"const int64_t wide = {n} - first < {width} ? {n} - first : {width};")
        stages = self.walk.stages
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
            if index < region.passes and self.walk.sinks(index, element=True):
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
            items = in_batches(self, phases, [name for name, _ in counters], step)
        else:
            work += [line for lines in phases for line in lines]
            items = for_loop("item", "end", [*work, *step], "begin")
        body = [*self.top, *lines, *guarded("begin < end", [*start, *items])]
        return self.function("rows", body, "int64_t chunk, int64_t begin, int64_t end")

    def _first_call(self, index: int, lines: list[str]) -> int:
        """Return which line of a stage is the first that a function is called in, if any."""
        called = [f" {self.names[node]} = " for node in self.walk.stages[index] if costly(node)]
        found = (i for i, line in enumerate(lines) if any(name in line for name in called))
        return next(found, len(lines))

    def _counters(self) -> list[tuple[str, int]]:
        """Return the counters of an item, outermost first: outer loops, and strips."""
        region = self.region
        outer = [(f"i{i}", i) for i in region.outer if not (region.strip and i == self.vector)]
        if region.strip:
            strip = ("strip", self.vector)
            return [strip, *outer] if self._crosses() else [*outer, strip]
        return outer

    def _crosses(self) -> bool:
        """Whether something is read across the innermost loop: neighbouring rows share lines."""
        return crosses(self.region)

    def _extent_of(self, counter: str) -> str:
        if counter == "strip":
            return self.number("strips", "strip_count")
        return self.extent(int(counter[1:]))

    def function(self, suffix: str, body: list[str], parameters: str) -> str:
        """Return a function with what its lines use of operands, results and numbers."""
        head: list[str] = []
        text = "\n".join(body)
        for i, leaf in enumerate(self.region.body.inputs):
            if mentions(text, f"in{i}"):
                head.append(f"const {storage_type(leaf.dtype)} *in{i} = in[{i}];")
        for i, node in enumerate(self.region.body.outputs):
            if mentions(text, f"out{i}"):
                head.append(f"{storage_type(node.dtype)} *out{i} = out[{i}];")
        for name, position in self.places.items():
            if mentions(text, name):
                head.append(f"const int64_t {name} = (int64_t)tail[{position}];")
        for name, length in self._known.items():
            if mentions(text, name):
                head.append(f"const int64_t {name} = {length};")
        signature = (
            f"static void {self.name}_{suffix}(void **in, void **out, char *workspace, "
            f"void **tail, {parameters})"
        )
        return "\n".join([signature, "{", *indent([*head, *body]), "}", ""]) + "\n"

    def _stage(self, index: int) -> list[str]:
        nodes = self.walk.stages[index]
        folds = self.walk.folds(index, element=False)
        outputs = self.walk.outputs(index, element=False)
        if not (nodes or folds or outputs):
            return []
        loops = [self.vector] if self.region.strip else []
        return Nest(self, loops, nodes, folds, outputs, stage=True).lines()

    def _pass(self, index: int) -> list[str]:
        region = self.region
        folds = self.walk.folds(index, element=True)
        outputs = self.walk.outputs(index, element=True)
        loops = sorted(region.row)
        if region.strip:
            loops.append(self.vector)
        lines = [f"/* pass {index + 1} */"] if region.passes > 1 else []
        for fold in folds:
            if fold.row:
                lines += self._begin_row_fold(fold)
        nest = Nest(self, loops, self.walk.passes[index], folds, outputs, number=index)
        return lines + nest.lines()

    def _begin_row_fold(self, fold: Fold) -> list[str]:
        kind = computing_type(self.accumulator(fold))
        begin = identity_expression(fold.node, self.accumulator(fold))
        name = self.fold_name(fold)
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

    def of(self, node: Node) -> str:
        """Return the name of a node's value."""
        return self.names[node]

    def fresh(self, label: str) -> str:
        """Return a name that is not used yet."""
        self._unique += 1
        return f"{label}{self._unique}"

    # ---- Lines of partial results, a line a chunk

    def _kept_lanes(self) -> set[Node]:
        """Return the values of a strip's columns that are used after their stage."""
        kept = {node for nodes in self.walk.passes for node in nodes}
        for index, nodes in enumerate(self.walk.stages):
            needed = [operand for node in nodes for operand in self.walk.operands(node)]
            needed += self.walk.sinks(index, element=False)
            kept.update(node for node in needed if self.phase(node) < index)
        return {node for node in kept if self.walk.of_row(node)}

    def phase(self, node: Node) -> int:
        """Return the stage in which a row's value is computed."""
        return self.region.values[node].phase

    def _cross_lines(self, chunk: str, *, fill: bool) -> list[str]:
        lines: list[str] = []
        for position, fold in enumerate(self.region.folds):
            if fold.row:
                continue
            kind = computing_type(self.accumulator(fold))
            name = self.fold_name(fold)
            pieces = [(name, kind, identity_expression(fold.node, self.accumulator(fold)), 0)]
            if indexed(fold.node.op):
                pieces.append((f"{name}_at", "int64_t", "0", 1))
            for piece, type_, begin, half in pieces:
                offset = self.number(
                    f"{piece}_offset", "line_place", position, half
                )
                step = self.number(f"{name}_line", "line_size", position)
                place = f"workspace + {offset}" + (f" + {chunk} * {step}" if chunk != "0" else "")
                lines.append(f"{type_} *{piece} = ({type_} *)({place});")
                if fill:
                    count = self.number(f"{name}_count", "line_length", position)
                    lines.append(
                        f"for (int64_t k = 0; k < {count}; k++) {piece}[k] = {begin};"
                    )
        return lines

    def _saved_lines(self) -> list[str]:
        lines: list[str] = []
        for position, node in enumerate(self.walk.saved):
            offset = self.number(f"saved{position}_offset", "saved_place", position)
            step = self.number("saved_line", "saved_size")
            kind = self._type(node)
            name = f"saved{position}_rows" if self.region.batched else f"saved{position}"
            lines.append(f"{kind} *{name} = ({kind} *)(workspace + {offset} + chunk * {step});")
        return lines

    # ---- The epilogue

    def _finish(self) -> str:
        self.finishing = True
        self.top = []
        self.scope = {}
        self.lanes = {}
        body = self._cross_lines("0", fill=False)
        for position, fold in enumerate(self.region.folds):
            if not fold.row:
                body += self._join_lines(position, fold)
        for outputs in late_groups(self.region):
            body += self.write_late(outputs)
        self.finishing = False
        return self.function("finish", [*self.top, *body], "int64_t chunks")

    def _join_lines(self, position: int, fold: Fold) -> list[str]:
        """Return the loop that folds the lines of all chunks into the first."""
        name, dtype = self.fold_name(fold), self.accumulator(fold)
        count = self.number(f"{name}_count", "line_length", position)
        step = self.number(f"{name}_line", "line_size", position)
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

    def write_late(self, outputs: Sequence[Output]) -> list[str]:
        """Return one nest for outputs of the same loops: all is read before any is written."""
        loops = sorted(self.region.values[outputs[0].node].shape_loops)
        folds = [fold.node for fold in self.region.folds]
        nodes = self.walk.reach([self.walk.source(o.node) for o in outputs], folds)
        return Nest(self, loops, nodes, [], outputs).lines()
