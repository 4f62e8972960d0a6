"""C for one nest of loops: a pass over a row, a stage between passes, a part of the epilogue.

Each value is computed in the outermost loop that it varies along, and each address outside of the
innermost loop, which is the vector loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...ir.graph import Node
from ...ir.identity import index_of
from ...ir.op import Kind
from ..functions import philox
from ..functions.scalar import computing_type
from ..literals import literal
from ..region.access import is_unit
from ..region.analysis import Fold, Output
from ..region.parts import MAX_STRIP, costly, indexed
from .binding import BLOCK, STACKED, SUMMED, crosses
from .c_code import KNOWN, CCode
from .exponents import exponential
from .folds import SUMMED_LANES, Lanes, joins, lane_count
from .reduced_only import ReducedOnly
from .region_code import of_one_element
from .scalar import (
    apply_scalar,
    combine_expression,
    identity_expression,
    is_floating,
    load,
    storage_type,
    store,
    widened,
)
from .text import for_loop, indent, part_name, replace_if_better, times
from .vectors import Vectors, vectorizes

__all__ = ["Nest", "write_late"]

FEW = 4  # operations on an element, with which memory does not keep up


@dataclass
class Block:
    """Lines of C at one depth, and the loop inside them."""

    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


class Nest:
    """One nest of loops inside a function of a region."""

    def __init__(
        self,
        code: CCode,
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
        self.stacks: list[Fold] = []
        self.lanes = self._lanes(nodes, folds, outputs)
        self.vectors = self.lanes if isinstance(self.lanes, Vectors) else None
        self.asking = self._prefetches(nodes)
        absorbed = self.vectors.unkept.absorbed if self.vectors else ()
        for node in nodes:
            if node not in absorbed:
                self._define(node)
        for fold in folds:
            self._fold(fold)
        for output in outputs:
            self._write(output)

    # ---- How the innermost loop is taken

    def _lanes(
        self, nodes: Sequence[Node], folds: Sequence[Fold], outputs: Sequence[Output]
    ) -> Lanes | None:
        """Return the groups that the innermost loop is taken in, where lanes fold."""
        region, code = self.region, self.code
        inside = [node for node in nodes if self.along(node)]
        inside += [fold.operand for fold in folds]
        sizes = {node.dtype.itemsize for node in inside}
        rows = region.batched and not code.finishing  # short ones: the rest counts
        if self.inner < 0 or self.stage or not (folds or rows) or len(sizes) != 1:
            return None
        for fold in folds:
            reduction = fold.node.op.reduction
            assert reduction is not None
            if self.inner not in fold.reduced or not joins(reduction, fold.operand.dtype):
                return None
        if any(not is_floating(node.dtype) or node.op.kind is Kind.RANDOM for node in inside):
            return None
        if not sizes <= {4, 8}:  # wider in the register than in memory
            return None
        count = lane_count(sizes.pop())
        saved = code.walk.saved
        ready = {node for node in nodes if saved.get(node, self.number) < self.number}
        if not vectorizes(region, self.inner, nodes, ready, folds, outputs):
            return Lanes(count)
        computed = [node for node in nodes if node not in ready]
        unkept = ReducedOnly(region, computed, folds, self.along)
        return Vectors(count, unkept=unkept, along=self.along, value=self.value)

    def _prefetches(self, nodes: Sequence[Node]) -> bool:
        """Return whether the innermost loop may prefetch: it is the first to read its operands."""
        code, region = self.code, self.region
        if self.lanes is None or self.stage or self.number or code.finishing:
            return False
        length = region.loops[self.inner].extent
        if not code.strips and type(length) is int and length <= KNOWN:
            return False  # what there is to do at both ends of a row is more than that
        work = [node for node in nodes if self.along(node) and node not in region.accesses]
        return len(work) <= FEW and not any(map(costly, work))

    # ---- Text

    def lines(self) -> list[str]:
        """Return the lines of the nest."""
        result: list[str] = []
        for depth in range(len(self.loops), -1, -1):
            block = self.blocks[depth]
            innermost = depth == len(self.loops)
            folds = innermost and self.lanes is not None  # also what no loop computes or reads
            if depth and not (block.before or result or block.after or folds):
                continue
            inside = [*block.before, *result, *block.after]
            if depth == 0:
                result = inside
            elif innermost:
                result = self._vector_loop(inside)
            else:
                loop = self.loops[depth - 1]
                stacks = self.stacks if depth == len(self.loops) - 1 else []
                result = self._stacked(loop, stacks, inside)
        return result

    def _stacked(self, loop: int, stacks: Sequence[Fold], inside: list[str]) -> list[str]:
        """Return a loop whose sums of columns go into double after every `STACKED` rows."""
        i, limit = f"i{loop}", self._limit(loop)
        if not stacks:
            return for_loop(i, limit, inside)
        code = self.code
        parts, begin, flush = [], [], []
        for fold in stacks:
            line, part = code.fold_name(fold), part_name(code.fold_name(fold))
            wide, dtype = code.accumulator(fold), fold.operand.dtype
            parts.append(f"{computing_type(dtype)} {part}[{MAX_STRIP}];")
            begin.append(f"{part}[l] = {identity_expression(fold.node, dtype)};")
            seen = f"{widened(wide, dtype)}{part}[l]"
            update = combine_expression(fold.node, wide, f"{line}[l]", seen)
            flush += [f"{line}[l] = {update};", begin[-1]]
        across = self._limit(code.vector)
        begin, flush = (
            ["#pragma omp simd", *for_loop("l", across, lines)] for lines in (begin, flush)
        )
        return [
            *parts,
            *begin,
            f"for (int64_t stack = 0; stack < {limit}; stack += {STACKED}) {{",
            *indent([
                f"const int64_t stop = {limit} - stack < {STACKED} ? {limit} : stack + {STACKED};",
                *for_loop(i, "stop", inside, "stack"),
                *flush,
            ]),
            "}",
        ]

    def _limit(self, loop: int) -> str:
        strip = self.code.strips and loop == self.code.vector
        return "wide" if strip else self.code.extent(loop)

    def _vector_loop(self, inside: list[str]) -> list[str]:
        """Return the innermost loop, with its reductions into partial results."""
        i, limit = f"i{self.inner}", self._limit(self.inner)
        if self.lanes is not None:
            return self._groups(i, limit, inside)
        pragma = "#pragma omp simd" + "".join(f" {clause}" for clause in self.clauses)
        head = [] if self.scalar_only else [pragma]
        parts = self.parts
        if not self.blocked:
            return [*parts.before, *head, *for_loop(i, limit, inside), *parts.after]
        count = f"const int64_t count = {limit} - block < {SUMMED} ? {limit} - block : {SUMMED};"
        inside = [f"const int64_t {i} = block + j;", *inside]
        block = [count, *parts.before, *head, *for_loop("j", "count", inside), *parts.after]
        return [
            f"for (int64_t block = 0; block < {limit}; block += {SUMMED}) {{",
            *indent(block),
            "}",
        ]

    def _groups(self, i: str, limit: str, inside: list[str]) -> list[str]:
        """Return the innermost loop in groups of lanes."""
        assert self.lanes is not None
        groups = self.lanes.lines(limit, i, inside)
        return ["{", *indent([*self.lanes.before, *groups, *self.parts.after]), "}"]

    # ---- Values

    def _depth(self, loops: frozenset[int]) -> int:
        return max((d + 1 for d, loop in enumerate(self.loops) if loop in loops), default=0)

    def along(self, node: Node) -> bool:
        """Return whether a value has an element at each step of the innermost loop."""
        return self.inner in self.region.values[node].loops

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
        elif code.walk.saved.get(node, self.number) < self.number and not self.stage:
            expression = self._saved(node)
        elif node in region.accesses:
            expression = load(self._read(node), node.dtype)
        elif code.walk.of_row(node) and not self.stage and not code.finishing:
            raise AssertionError(f"{node!r} is not computed in a stage")
        elif node.op.reduction is not None:
            expression = of_one_element(node, self.value(node.inputs[0]))
        elif region.counts(node):
            expression = self._counted(node)
        else:
            replaced = self.vectors is not None and self.vectors.unkept.replaces(node)
            operands = [] if replaced else [self.value(o) for o in node.inputs]
            expression = "" if replaced else apply_scalar(node, operands)
            expression = exponential(region, node, expression)
        name = code.of(node)
        line = f"const {computing_type(node.dtype)} {name} = {expression};"
        if self.vectors is not None and self.along(node):
            line = self.vectors.line(node, name, expression)
        elif self.lanes is not None and expression.endswith("]") and (
            node in region.accesses or node in code.walk.saved
        ):
            self.lanes.reads[line] = (name, computing_type(node.dtype), expression)
        if not value.loops and not value.phase and not value.epilogue and fold is None:
            code.top.append(line)
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
        if code.walk.saved.get(node) == self.number and not self.stage:
            # Whole groups: what is saved has room for elements beyond the end of a row.
            place = self._saved(node)
            line = f"{place} = {name};" if self.vectors is None else self.vectors.keep(place, name)
            self.blocks[depth].before.append(line)

    def _scalar(self, node: Node) -> str:
        """Return a constant, or a number that binding computes."""
        if "value" in node.attrs:
            return literal(node.attrs["value"].reshape(-1)[0], node.dtype)
        if node.dtype.kind not in "iub":
            raise AssertionError(f"{node!r} is no integer")
        name = self.code.of(node)
        position = index_of(self.region.values, node)
        return self.code.number(name, "scalar", position)

    def _folded(self, fold: Fold) -> str:
        """Return the result of a fold that is over."""
        code = self.code
        name = code.fold_name(fold) + ("_at" if indexed(fold.node.op) else "")
        if fold.row or self.region.columns:
            expression = f"{name}[i{code.vector}]" if self.region.strip else name
        else:
            expression = f"{name}[{self._position(fold)}]"
        fold_type = computing_type(fold.node.dtype)
        if not indexed(fold.node.op) and computing_type(code.accumulator(fold)) != fold_type:
            expression = f"({fold_type}){expression}"
        return expression

    def _counted(self, node: Node) -> str:
        """Return a function of an element's position."""
        if node.op.kind is Kind.RANDOM:
            return self._random(node)
        loops = self.region.values[node].loops
        return apply_scalar(node, [self.code.index(loop) for loop in loops] or ["0"])

    def _random(self, node: Node) -> str:
        """Return random bits: of one element, or out of a run that is drawn before the loop."""
        code, place, name = self.code, index_of(self.region.values, node), self.code.of(node)
        loops, axes = self.region.values[node].loops, self.region.counters[node]
        run = bool(loops) and code.strips and self.inner == code.vector and self.inner in loops
        run = run and is_unit(node, (), axes[self.inner])
        terms = []
        for loop in sorted(loops):
            if run and loop == self.inner:
                terms.append("first")
                continue
            step = code.number(f"{name}_step{loop}", "counter_step", place, loop)
            terms.append(times(code.index(loop), step))
        if len(node.inputs) > 1:
            terms.append(f"(uint64_t){self.value(node.inputs[1])}")
        number = " + ".join(terms) or "0"
        keys = [code.number(f"{name}_key{i}", "random_key", place, i) for i in range(2)]
        step = self.value(node.inputs[0])
        if not run:
            return philox.element(node.dtype, (keys[0], keys[1]), step, number)
        bits, width = 8 * node.dtype.itemsize, MAX_STRIP if self.region.row else BLOCK
        self.blocks[len(self.loops) - 1].before += [
            f"uint{bits}_t {name}_row[{width}];",
            f"mg_random{bits}_row({name}_row, {keys[0]}, {keys[1]}, {step}, {number}, wide);",
        ]
        return f"{name}_row[i{self.inner}]"

    def _saved(self, node: Node) -> str:
        """Return the place of a saved element."""
        position = index_of(self.code.walk.saved, node)
        terms = [f"i{self.inner}"]
        for loop in self.loops[:-1]:
            step = self.code.number(f"saved_step{loop}", "saved_step", loop)
            terms.append(f"{self.code.index(loop)} * {step}")
        return f"saved{position}[{' + '.join(terms)}]"

    # ---- Memory

    def _place(
        self, base: str, type_: str, steps: dict[int, str], offset: str = "", const: str = ""
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
                    terms.append(times("first", steps[loop]))
                continue
            terms.append(times(code.index(loop), steps[loop]))
        address = " + ".join(terms)
        if inner < 0:
            return f"{base}[{address or '0'}]"
        name = code.fresh(f"{base}_row")
        target = self.blocks[len(self.loops) - 1].before
        target.append(f"{const}{type_} *{name} = {base}{' + ' + address if address else ''};")
        return f"{name}[{times(f'i{inner}', steps[inner])}]"

    def _read(self, node: Node) -> str:
        code = self.code
        access = self.region.accesses[node]
        offset, steps = code.steps_of(node)
        base = f"in{access.parameter}"
        place = self._place(base, storage_type(node.dtype), steps, offset, "const ")
        row, _, index = place.partition("[")
        if self.asking and self.lanes is not None and index == f"i{self.inner}]" and (
            code.strips or len(steps) > 1  # not the same for all rows
        ):
            position = index_of(self.region.accesses, node)
            self.lanes.ahead[row] = code.number(f"x{position}_ahead", "read_ahead", position)
        return place

    def _write(self, output: Output) -> None:
        kind = storage_type(output.node.dtype)
        place = self._place(f"out{output.position}", kind, self.code.write_steps(output))
        written = store(self.value(output.node), output.node.dtype)
        if self.vectors is not None:
            self.blocks[-1].after.append(self.vectors.store(place, written))
            return
        self._store(self.blocks[-1].after, f"{place} = {written};")

    def _store(self, lines: list[str], line: str) -> None:
        lines.append(line)
        if self.lanes is not None:
            self.lanes.stores.add(line)

    # ---- Folds

    def _fold(self, fold: Fold) -> None:
        code = self.code
        name, dtype = code.fold_name(fold), code.accumulator(fold)
        element = "" if self.vectors else self.value(fold.operand)
        vector = self.inner in fold.reduced if self.loops else False
        if self.region.columns:
            target, at, dtype = f"{part_name(name)}[i{self.inner}]", "", fold.operand.dtype
        elif fold.row:
            target, at = (name, f"{name}_at")
            if self.region.strip:
                target, at = f"{name}[i{code.vector}]", f"{name}_at[i{code.vector}]"
            if self._stacks(fold):
                self.stacks.append(fold)
                target, dtype = f"{part_name(name)}[i{code.vector}]", fold.operand.dtype
        else:
            place = self._position(fold)
            target, at = f"{name}[{place}]", f"{name}_at[{place}]"
        if indexed(fold.node.op):
            self._fold_position(fold, element, target, at)
        elif not vector:
            seen = f"{widened(dtype, fold.operand.dtype)}{element}"
            update = combine_expression(fold.node, dtype, target, seen)
            self.blocks[-1].after.append(f"{target} = {update};")
        else:
            self._fold_vector(fold, element, target)

    def _stacks(self, fold: Fold) -> bool:
        """Return whether a sum over the rows of a strip is one of floats, for some rows."""
        reduction = fold.node.op.reduction
        assert reduction is not None
        return (
            self.region.strip and reduction.blocked and is_floating(fold.operand.dtype)
            and self.inner == self.code.vector and len(self.loops) > 1
            and self.loops[-2] in fold.reduced and self.code.accumulator(fold) != fold.operand.dtype
        )

    def _fold_vector(self, fold: Fold, element: str, target: str) -> None:
        """Fold the innermost loop into a part of its own, and that into the accumulator."""
        code = self.code
        reduction = fold.node.op.reduction
        assert reduction is not None
        part = f"{code.of(fold.node)}_part"
        dtype = fold.operand.dtype
        kind = computing_type(dtype)
        begin = identity_expression(fold.node, dtype)
        wide = code.accumulator(fold)
        if self.lanes is not None:
            blocked = reduction.blocked and not code.strips
            if self.vectors is not None:
                joined = self.vectors.fold_up(fold, part, blocked=blocked)
            else:
                joined = self.lanes.fold(fold.node, part, element, blocked=blocked)
            joined = f"{widened(wide, dtype)}{joined}"
            whole = combine_expression(fold.node, wide, target, joined)
            self.parts.after.append(f"{target} = {whole};")
            if blocked:
                total = self.lanes.total(fold, part)
                self.parts.after.append(f"if (full > {SUMMED_LANES}) {target} += {total};")
            return
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
        whole = combine_expression(fold.node, wide, target, f"{widened(wide, dtype)}{part}")
        self.parts.after.append(f"{target} = {whole};")
        if reduction.blocked and is_floating(dtype) and not code.strips:
            self.blocked = True

    def _fold_position(self, fold: Fold, element: str, target: str, at: str) -> None:
        code = self.code
        number = f"{code.of(fold.node)}_here"
        after = self.blocks[-1].after
        here = code.number_among(fold, fold.reduced, "count", "index_step")
        after.append(f"const int64_t {number} = {here};")
        in_order = list(fold.reduced) == sorted(fold.reduced) and not crosses(self.region)
        if in_order:  # a later element must be better, not as good
            better = combine_expression(fold.node, fold.operand.dtype, target, element)
            after.append(f"if ({better}) {{ {target} = {element}; {at} = {number}; }}")
        else:
            dtype = fold.operand.dtype
            after += replace_if_better(fold.node, dtype, target, at, element, number)
        if not self.loops or self.inner in fold.reduced:
            self.scalar_only = True

    def _position(self, fold: Fold) -> str:
        """Return the place of a fold's result in its line."""
        return self.code.number_among(fold, fold.kept, "step", "kept_step")


def write_late(code: CCode, outputs: Sequence[Output]) -> list[str]:
    """Return one nest for outputs of the same loops: all is read before any is written."""
    region, walk = code.region, code.walk
    loops = sorted(region.values[outputs[0].node].shape_loops)
    folds = [fold.node for fold in region.folds]
    nodes = walk.reach([walk.source(o.node) for o in outputs], folds)
    return Nest(code, loops, nodes, [], outputs).lines()
