"""C for one region: a function that does the work of some rows, and one that ends it.

The text is plain nested loops with the names of operations in it, so that people can read what
became of their graph. Sizes, steps and positions come as numbers at run time, in the order of
`RowsCode.numbers`: one text serves all sizes.

A row's innermost loop is the vector loop. Floats are added up there in blocks of at most `BLOCK`
elements, and the blocks in double: errors are like those of pairwise summation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...graph import Node
from ...op import Kind
from ...region import Fold, Output, Region
from ...region_access import is_unit
from ...region_parts import MAX_STRIP, indexed
from . import philox
from .binding import Binding
from .codegen_scalar import (
    apply_scalar,
    combine_expression,
    identity_expression,
    literal,
    load,
    storage_type,
    store,
)
from .scalar import computing_type

BLOCK = 4096

Number = Callable[[Binding], int]
FLOAT64 = np.dtype(np.float64)


def is_floating(dtype: np.dtype) -> bool:
    """Return whether elements are floats of any width."""
    return dtype.kind not in "iub"


@dataclass
class Block:
    """Lines of C at one depth, and the loop inside them."""

    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


class RowsCode:
    """The C functions of one region.

    Attributes
    ----------
    text
        ``<name>_rows`` and, where there is an epilogue, ``<name>_finish``.
    numbers
        What the functions are told at run time, in order.
    finishes
        Whether there is a ``_finish``.
    names
        The C name of each node.
    declarations
        Reductions that vector loops use, to stand before the functions.
    """

    def __init__(self, region: Region, name: str) -> None:
        self.region = region
        self.walk = region.walk
        self.name = name
        self.numbers: list[Number] = []
        self.declarations: dict[str, None] = {}
        self.vector = region.depth - 1
        self._number_names: dict[str, int] = {}
        self._unique = 0
        self._top: list[str] = []
        self.names = _names(region)
        self.scope: dict[Node, str] = {}
        self.lanes: dict[Node, str] = {}
        self.kept_lanes = self._kept_lanes()
        self.finishes = any(not fold.row for fold in region.folds)
        self.text = self._rows() + (self._finish() if self.finishes else "")

    # ---- Names and numbers

    def number(self, name: str, value: Number) -> str:
        """Return the name of a number that is known at run time."""
        if name not in self._number_names:
            self._number_names[name] = len(self.numbers)
            self.numbers.append(value)
        return name

    def extent(self, loop: int) -> str:
        """Return the number of iterations of a loop."""
        return self.number(f"n{loop}", lambda b: b.extents[loop])

    def index(self, loop: int) -> str:
        """Return the position along a loop."""
        if self.strips and loop == self.vector:
            return f"(first + i{loop})"
        return f"i{loop}"

    @property
    def strips(self) -> bool:
        """Whether the innermost loop is taken in strips here."""
        return self.region.strip and not self._finishing

    _finishing = False

    def _type(self, node: Node) -> str:
        return computing_type(node.dtype)

    def _accumulator(self, fold: Fold) -> np.dtype:
        """Return the dtype that whole rows are added up in."""
        reduction = fold.node.op.reduction
        assert reduction is not None
        dtype = fold.operand.dtype
        return FLOAT64 if reduction.blocked and is_floating(dtype) else dtype

    # ---- The rows

    def _rows(self) -> str:
        region = self.region
        work: list[str] = []
        counters = self._counters()
        if region.strip:
            v = self.vector
            width = self.number("width", lambda b: b.width)
            work.append(f"const int64_t first = strip * {width};")
            n = self.extent(v)
            work.append(f"const int64_t wide = {n} - first < {width} ? {n} - first : {width};")
        stages = self.walk.stages
        for index in range(max(region.passes, len(stages))):
            if index < len(stages):
                work += self._stage(index)
            if index < region.passes and self.walk.sinks(index, element=True):
                work += self._pass(index)
        advance = _advance([(name, self._extent_of(name)) for name, _ in counters])
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
            advance = []
        body = [*self._top, *lines]
        body += _guarded("begin < end", [
            *start,
            "for (int64_t item = begin; item < end; item++) {",
            *_indent([*work, *advance]),
            "}",
        ])
        return self._function("rows", body, "int64_t chunk, int64_t begin, int64_t end")

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
            return self.number("strips", lambda b: b.strips)
        return self.extent(int(counter[1:]))

    def _function(self, suffix: str, body: list[str], parameters: str) -> str:
        head: list[str] = []
        text = "\n".join(body)
        for i, leaf in enumerate(self.region.body.inputs):
            if re.search(rf"\bin{i}\b", text):
                head.append(f"const {storage_type(leaf.dtype)} *in{i} = in[{i}];")
        for i, node in enumerate(self.region.body.outputs):
            if re.search(rf"\bout{i}\b", text):
                head.append(f"{storage_type(node.dtype)} *out{i} = out[{i}];")
        for name, position in self._number_names.items():
            if re.search(rf"\b{name}\b", text):
                head.append(f"const int64_t {name} = (int64_t)tail[{position}];")
        signature = (
            f"static void {self.name}_{suffix}(void **in, void **out, char *workspace, "
            f"void **tail, {parameters})"
        )
        return "\n".join([signature, "{", *_indent([*head, *body]), "}", ""]) + "\n"

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
        kind = computing_type(self._accumulator(fold))
        begin = identity_expression(fold.node, self._accumulator(fold))
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

    def fold_name(self, fold: Fold) -> str:
        """Return the name of a fold's accumulator."""
        return f"{self.names[fold.node]}_all"

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
            kind = computing_type(self._accumulator(fold))
            name = self.fold_name(fold)
            pieces = [(name, kind, identity_expression(fold.node, self._accumulator(fold)), 0)]
            if indexed(fold.node.op):
                pieces.append((f"{name}_at", "int64_t", "0", 1))
            for piece, type_, begin, half in pieces:
                offset = self.number(
                    f"{piece}_offset", lambda b, p=position, h=half: b.lines[p][h]
                )
                step = self.number(f"{name}_line", lambda b, p=position: b.line_bytes[p])
                place = f"workspace + {offset}" + (f" + {chunk} * {step}" if chunk != "0" else "")
                lines.append(f"{type_} *{piece} = ({type_} *)({place});")
                if fill:
                    count = self.number(f"{name}_count", lambda b, p=position: b.kept[p])
                    lines.append(
                        f"for (int64_t k = 0; k < {count}; k++) {piece}[k] = {begin};"
                    )
        return lines

    def _saved_lines(self) -> list[str]:
        lines: list[str] = []
        for position, node in enumerate(self.walk.saved):
            offset = self.number(f"saved{position}_offset", lambda b, p=position: b.saved[p])
            step = self.number("saved_line", lambda b: b.saved_bytes)
            kind = self._type(node)
            lines.append(
                f"{kind} *saved{position} = ({kind} *)(workspace + {offset} + chunk * {step});"
            )
        return lines

    # ---- The epilogue

    def _finish(self) -> str:
        self._finishing = True
        self._top = []
        self.scope = {}
        self.lanes = {}
        body = self._cross_lines("0", fill=False)
        for position, fold in enumerate(self.region.folds):
            if not fold.row:
                body += self._join_lines(position, fold)
        for output in self.region.outputs:
            if output.epilogue:
                body += self._write_late(output)
        self._finishing = False
        return self._function("finish", [*self._top, *body], "int64_t chunks")

    def _join_lines(self, position: int, fold: Fold) -> list[str]:
        """Return the loop that folds the lines of all chunks into the first."""
        name, dtype = self.fold_name(fold), self._accumulator(fold)
        count = self.number(f"{name}_count", lambda b, p=position: b.kept[p])
        step = self.number(f"{name}_line", lambda b, p=position: b.line_bytes[p])
        kind = computing_type(dtype)
        if not indexed(fold.node.op):
            update = combine_expression(fold.node, dtype, f"{name}[k]", "other[k]")
            inner = [f"{name}[k] = {update};"]
            more = []
        else:
            more = [f"const int64_t *other_at = (int64_t *)((char *){name}_at + chunk * {step});"]
            inner = _replace_if_better(
                fold.node, dtype, f"{name}[k]", f"{name}_at[k]", "other[k]", "other_at[k]"
            )
        return [
            "for (int64_t chunk = 1; chunk < chunks; chunk++) {",
            *_indent([
                f"const {kind} *other = ({kind} *)((char *){name} + chunk * {step});",
                *more,
                f"for (int64_t k = 0; k < {count}; k++) {{",
                *_indent(inner),
                "}",
            ]),
            "}",
        ]

    def _write_late(self, output: Output) -> list[str]:
        loops = sorted(self.region.values[output.node].shape_loops)
        folds = [fold.node for fold in self.region.folds]
        nodes = self.walk.reach([self.walk.source(output.node)], folds)
        return Nest(self, loops, nodes, [], [output]).lines()


class Nest:
    """One nest of loops inside a function of a region."""

    def __init__(
        self,
        code: RowsCode,
        loops: Sequence[int],
        nodes: Sequence[Node],
        folds: Sequence[Fold],
        outputs: Sequence[Output],
        *,
        stage: bool = False,
        number: int = 0,
    ) -> None:
        self.code = code
        self.region = code.region
        self.loops = list(loops)
        self.stage = stage
        self.number = number
        self.inner = self.loops[-1] if self.loops else -1
        self.blocks = [Block() for _ in range(len(self.loops) + 1)]
        self.parts = Block()
        self.local: dict[Node, str] = {}
        self.clauses: list[str] = []
        self.scalar_only = False
        self.blocked = False
        for node in nodes:
            self._define(node)
        for fold in folds:
            self._fold(fold)
        for output in outputs:
            self._write(output)

    # ---- Text

    def lines(self) -> list[str]:
        """Return the lines of the nest."""
        result: list[str] = []
        for depth in range(len(self.loops), -1, -1):
            block = self.blocks[depth]
            if depth and not (block.before or result or block.after):
                continue
            inside = [*block.before, *result, *block.after]
            if depth == 0:
                result = inside
            elif depth == len(self.loops):
                result = self._vector_loop(inside)
            else:
                loop = self.loops[depth - 1]
                result = _loop(f"i{loop}", "0", self._limit(loop), inside)
        return result

    def _limit(self, loop: int) -> str:
        strip = self.code.strips and loop == self.code.vector
        return "wide" if strip else self.code.extent(loop)

    def _vector_loop(self, inside: list[str]) -> list[str]:
        """Return the innermost loop, with what it folds into parts of its own."""
        i, limit = f"i{self.inner}", self._limit(self.inner)
        pragma = "#pragma omp simd" + "".join(f" {clause}" for clause in self.clauses)
        head = [] if self.scalar_only else [pragma]
        parts = self.parts
        if not self.blocked:
            return [*parts.before, *head, *_loop(i, "0", limit, inside), *parts.after]
        count = f"const int64_t count = {limit} - block < {BLOCK} ? {limit} - block : {BLOCK};"
        inside = [f"const int64_t {i} = block + j;", *inside]
        block = [count, *parts.before, *head, *_loop("j", "0", "count", inside), *parts.after]
        return [
            f"for (int64_t block = 0; block < {limit}; block += {BLOCK}) {{",
            *_indent(block),
            "}",
        ]

    # ---- Values

    def _depth(self, loops: frozenset[int]) -> int:
        return max((d + 1 for d, loop in enumerate(self.loops) if loop in loops), default=0)

    def value(self, node: Node) -> str:
        """Return the expression of a value that was defined."""
        code = self.code
        source = code.walk.source(node)
        if source in code.lanes and source not in self.local:
            return f"{code.lanes[source]}[i{code.vector}]"
        if source not in self.local and source not in code.scope:
            return self._folded(next(f for f in self.region.folds if f.node is source))
        return self.local.get(source) or code.scope[source]

    def _define(self, node: Node) -> None:
        code, region = self.code, self.region
        if node in code.scope or node in self.local:
            return
        value = region.values[node]
        if not node.inputs and node not in region.accesses and not region.counts(node):
            code.scope[node] = self._scalar(node)
            return
        fold = next((f for f in region.folds if f.node is node), None)
        depth = self._depth(value.loops)
        if fold is not None:
            expression = self._folded(fold)
        elif node in code.lanes:
            expression = f"{code.lanes[node]}[i{code.vector}]"
        elif node in code.walk.saved and value.phase < self.number and not self.stage:
            expression = self._saved(node)
        elif node in region.accesses:
            expression = load(self._read(node, depth), node.dtype)
        elif code.walk.of_row(node) and not self.stage and not code._finishing:
            raise AssertionError(f"{node!r} is not computed in a stage")
        elif node.op.reduction is not None:
            expression = self._trivial(node)
        elif region.counts(node):
            expression = self._counted(node)
        else:
            expression = apply_scalar(node, [self.value(o) for o in node.inputs])
        name = code.of(node)
        line = f"const {computing_type(node.dtype)} {name} = {expression};"
        if not value.loops and not value.phase and not value.epilogue and fold is None:
            code._top.append(line)
            code.scope[node] = name
            return
        self.blocks[depth].before.append(line)
        if depth == 0:
            code.scope[node] = name
            return
        self.local[node] = name
        if self.stage and fold is None and node in code.kept_lanes:
            array = f"{name}_strip"
            kind = computing_type(node.dtype)
            self.blocks[0].before.append(f"{kind} {array}[{MAX_STRIP}];")
            self.blocks[depth].before.append(f"{array}[i{self.inner}] = {name};")
            code.lanes[node] = array
        if node in code.walk.saved and value.phase == self.number and not self.stage:
            self.blocks[depth].before.append(f"{self._saved(node)} = {name};")

    def _scalar(self, node: Node) -> str:
        """Return a constant, or a number that binding computes."""
        if "value" in node.attrs:
            return literal(node.attrs["value"].reshape(-1)[0], node.dtype)
        if node.dtype.kind not in "iub":
            raise AssertionError(f"{node!r} is no integer")
        name = self.code.of(node)
        position = list(self.region.values).index(node)
        return self.code.number(name, lambda b: b.scalar(position))

    def _folded(self, fold: Fold) -> str:
        """Return the result of a fold that is over."""
        code = self.code
        name = code.fold_name(fold) + ("_at" if indexed(fold.node.op) else "")
        if fold.row:
            expression = f"{name}[i{code.vector}]" if self.region.strip else name
        else:
            expression = f"{name}[{self._position(fold, self.loops)}]"
        wanted = computing_type(fold.node.dtype)
        if not indexed(fold.node.op) and computing_type(code._accumulator(fold)) != wanted:
            expression = f"({wanted}){expression}"
        return expression

    def _trivial(self, node: Node) -> str:
        """Return the reduction of one element."""
        if indexed(node.op):
            return "0"
        dtype = node.inputs[0].dtype
        begin = identity_expression(node, dtype)
        return combine_expression(node, dtype, begin, self.value(node.inputs[0]))

    def _counted(self, node: Node) -> str:
        """Return a function of an element's position."""
        code, place = self.code, list(self.region.values).index(node)
        if node.op.kind is Kind.RANDOM:
            terms = []
            for loop in sorted(self.region.values[node].loops):
                step = code.number(
                    f"{code.of(node)}_step{loop}", lambda b, p=place, i=loop: b.counter_step(p, i)
                )
                terms.append(_times(code.index(loop), step))
            keys = [
                code.number(f"{code.of(node)}_key{i}", lambda b, p=place, i=i: b.random_key(p)[i])
                for i in range(2)
            ]
            step = self.value(node.inputs[0])
            return philox.element(node.dtype, (keys[0], keys[1]), step, " + ".join(terms) or "0")
        (loop,) = self.region.values[node].loops or (None,)
        return apply_scalar(node, ["0" if loop is None else code.index(loop)])

    def _saved(self, node: Node) -> str:
        """Return the place of a saved element."""
        position = self.code.walk.saved.index(node)
        terms = [f"i{self.inner}"]
        for loop in self.loops[:-1]:
            step = self.code.number(f"saved_step{loop}", lambda b, i=loop: b.saved_step(i))
            terms.append(f"{self.code.index(loop)} * {step}")
        return f"saved{position}[{' + '.join(terms)}]"

    # ---- Memory

    def _place(
        self, base: str, type_: str, steps: dict[int, str], offset: str, depth: int, const: str
    ) -> str:
        """Return the C place of an element; its row's address is computed outside the loop."""
        code = self.code
        here = [loop for loop in self.loops if loop in steps]
        outer = [loop for loop in steps if loop not in self.loops]
        inner = self.inner if here and self.inner == here[-1] else -1
        terms = [offset] if offset else []
        for loop in (*outer, *here):
            if loop == inner:
                if code.strips and loop == code.vector:
                    terms.append(_times("first", steps[loop]))
                continue
            terms.append(_times(code.index(loop), steps[loop]))
        address = " + ".join(terms)
        if inner < 0:
            return f"{base}[{address or '0'}]"
        name = code.fresh(f"{base}_row")
        target = self.blocks[len(self.loops) - 1].before
        target.append(f"{const}{type_} *{name} = {base}{' + ' + address if address else ''};")
        return f"{name}[{_times(f'i{inner}', steps[inner])}]"

    def _read(self, node: Node, depth: int) -> str:
        code = self.code
        access = self.region.accesses[node]
        position = list(self.region.accesses).index(node)
        key = f"x{position}"
        steps: dict[int, str] = {}
        for loop, axis in enumerate(access.axes):
            if axis is None:
                continue
            if is_unit(node, access.views, axis):
                steps[loop] = ""
            else:
                steps[loop] = code.number(
                    f"{key}_step{loop}", lambda b, p=position, i=loop: b.access(p)[1][i]
                )
        offset = ""
        if access.views and not all(view.op.alias for view in access.views):
            offset = code.number(f"{key}_offset", lambda b, p=position: b.access(p)[0])
        base = f"in{access.parameter}"
        return self._place(base, storage_type(node.dtype), steps, offset, depth, "const ")

    def _write(self, output: Output) -> None:
        code = self.code
        steps: dict[int, str] = {}
        for loop, axis in enumerate(output.axes):
            if axis is None:
                continue
            if is_unit(output.node, (), axis):
                steps[loop] = ""
            else:
                position = output.position
                steps[loop] = code.number(
                    f"out{position}_step{loop}", lambda b, p=position, i=loop: b.output(p)[i]
                )
        kind = storage_type(output.node.dtype)
        place = self._place(f"out{output.position}", kind, steps, "", len(self.loops), "")
        written = store(self.value(output.node), output.node.dtype)
        self.blocks[-1].after.append(f"{place} = {written};")

    # ---- Folds

    def _fold(self, fold: Fold) -> None:
        code = self.code
        name, dtype = code.fold_name(fold), code._accumulator(fold)
        element = self.value(fold.operand)
        vector = self.inner in fold.reduced if self.loops else False
        if fold.row:
            target, at = (name, f"{name}_at")
            if self.region.strip:
                target, at = f"{name}[i{code.vector}]", f"{name}_at[i{code.vector}]"
        else:
            place = self._position(fold, self.loops)
            target, at = f"{name}[{place}]", f"{name}_at[{place}]"
        if indexed(fold.node.op):
            self._fold_position(fold, element, target, at)
        elif not vector:
            update = combine_expression(fold.node, dtype, target, f"{_cast(dtype, fold)}{element}")
            self.blocks[-1].after.append(f"{target} = {update};")
        else:
            self._fold_vector(fold, element, target)

    def _fold_vector(self, fold: Fold, element: str, target: str) -> None:
        """Fold the innermost loop into a part of its own, and that into the accumulator."""
        code = self.code
        reduction = fold.node.op.reduction
        assert reduction is not None
        part = f"{code.of(fold.node)}_part"
        dtype = fold.operand.dtype
        kind = computing_type(dtype)
        begin = identity_expression(fold.node, dtype)
        self.parts.before.append(f"{kind} {part} = {begin};")
        update = combine_expression(fold.node, dtype, part, element)
        self.blocks[-1].after.append(f"{part} = {update};")
        if reduction.combine.replace(" ", "") == "a+b":
            self.clauses.append(f"reduction(+: {part})")
        else:
            known = f"mg_fold_{fold.node.op.name}_{kind}"
            joined = combine_expression(fold.node, dtype, "omp_out", "omp_in")
            code.declarations[
                f"#pragma omp declare reduction({known}: {kind}: omp_out = {joined}) "
                f"initializer(omp_priv = {begin})"
            ] = None
            self.clauses.append(f"reduction({known}: {part})")
        wide = code._accumulator(fold)
        whole = combine_expression(fold.node, wide, target, f"{_cast(wide, fold)}{part}")
        self.parts.after.append(f"{target} = {whole};")
        if reduction.blocked and is_floating(dtype) and not code.strips:
            self.blocked = True

    def _fold_position(self, fold: Fold, element: str, target: str, at: str) -> None:
        code = self.code
        terms = []
        for loop in fold.reduced:
            position = next(i for i, f in enumerate(self.region.folds) if f is fold)
            last = loop == fold.reduced[-1]
            step = "" if last else code.number(
                f"{code.of(fold.node)}_count{loop}",
                lambda b, p=position, i=loop: b.index_step(p, i),
            )
            terms.append(_times(code.index(loop), step))
        number = f"{code.of(fold.node)}_here"
        after = self.blocks[-1].after
        after.append(f"const int64_t {number} = {' + '.join(terms)};")
        after += _replace_if_better(fold.node, fold.operand.dtype, target, at, element, number)
        if not self.loops or self.inner in fold.reduced:
            self.scalar_only = True

    def _position(self, fold: Fold, loops: Sequence[int]) -> str:
        """Return the place of a fold's result in its line."""
        position = next(i for i, f in enumerate(self.region.folds) if f is fold)
        terms = []
        for loop in fold.kept:
            last = loop == fold.kept[-1]
            step = "" if last else self.code.number(
                f"{self.code.of(fold.node)}_step{loop}",
                lambda b, p=position, i=loop: b.kept_step(p, i),
            )
            terms.append(_times(self.code.index(loop), step))
        return " + ".join(terms) or "0"


def crosses(region: Region) -> bool:
    """Return whether a read steps by more than one element where the innermost loop does."""
    if region.row or region.depth < 2:
        return False
    inner = region.depth - 1
    return any(
        access.axes[inner] is not None and not access.unit for access in region.accesses.values()
    )


def _replace_if_better(
    node: Node, dtype: np.dtype, value: str, at: str, element: str, here: str
) -> list[str]:
    """Return the lines that keep the better of two elements, and of equals the first."""
    better = combine_expression(node, dtype, value, element)
    worse = combine_expression(node, dtype, element, value)
    return [
        "{",
        f"    const int better = {better} | (!{worse} & ({here} < {at}));",
        f"    {at} = better ? {here} : {at};",
        f"    {value} = better ? {element} : {value};",
        "}",
    ]


def _cast(dtype: np.dtype, fold: Fold) -> str:
    wanted = computing_type(dtype)
    return "" if wanted == computing_type(fold.operand.dtype) else f"({wanted})"


def _times(index: str, step: str) -> str:
    return f"{index} * {step}" if step else index


def _loop(i: str, begin: str, limit: str, inside: Sequence[str]) -> list[str]:
    return [f"for (int64_t {i} = {begin}; {i} < {limit}; {i}++) {{", *_indent(inside), "}"]


def _indent(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _guarded(condition: str, lines: Sequence[str]) -> list[str]:
    return [f"if ({condition}) {{", *_indent(lines), "}"]


def _advance(counters: Sequence[tuple[str, str]]) -> list[str]:
    """Return the lines that step counters like an odometer."""
    lines: list[str] = []
    for position, (name, extent) in enumerate(counters):
        if position == 0:
            lines = [f"{name}++;"]
        else:
            lines = [f"if (++{name} == {extent}) {{", *_indent([f"{name} = 0;", *lines]), "}"]
    return lines


def _names(region: Region) -> dict[Node, str]:
    """Return a C name for each node, made of its operation and its place."""
    names: dict[Node, str] = {}
    for node in region.values:
        access = region.accesses.get(node)
        label = f"x{access.parameter}" if access is not None else node.op.name
        names[node] = re.sub(r"\W", "_", f"{label}_{len(names)}")
    return names
