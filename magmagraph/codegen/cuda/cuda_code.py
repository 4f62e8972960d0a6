"""CUDA C for the threads of a region's kernels: values, neighbours, and what threads fold together.

Kernels are put together of the lines that one `CudaCode` writes. A thread computes elements one by
one, moves neighbours along the innermost loop 16 bytes at a time, and joins what it folded with
other threads of its warp and its block, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...ir.graph import Node
from ...ir.identity import index_of, is_among
from ...ir.op import Kind
from ...ops.random.philox import stream_key
from ..c.region_code import FLOAT64, RegionCode, of_one_element
from ..c.scalar import (
    apply_scalar,
    combine_expression,
    identity_expression,
    is_floating,
    load,
    storage_type,
    store,
)
from ..c.text import indent, mentions, replace_if_better, times
from ..functions import philox
from ..functions.scalar import computing_type
from ..literals import literal
from ..region.analysis import Access, Fold, Output, Region
from ..region.parts import Walk, indexed
from .arithmetic import elementwise
from .limits import LANES

__all__ = ["HALF_WARP", "UNROLLED", "CudaCode", "RegisterValues"]

FEWEST_COUNTED = 32  # from which a whole number among constants is taken for a count
FLOAT32 = np.dtype(np.float32)
REGISTERS = 80  # words a thread that may hold what several passes read
HALF_WARP = "16"
# Of what a loop reads from shared memory, so much is under way before the first is added up.
UNROLLED = "#pragma unroll 8"


class RegisterValues:
    """Values that a thread reads or computes once and keeps in registers for later passes.

    Attributes
    ----------
    declared
        The declaration of each value that is kept.
    saved
        Those among them that an earlier pass computed.

    Parameters
    ----------
    part
        The C expression of a vector's place among a thread's.
    count
        How many each thread has.
    width
        How many neighbours a vector has.
    computed
        What earlier passes will keep of what they compute: there is room for that.
    """

    def __init__(self, part: str, count: int, width: int, computed: Iterable[Node]) -> None:
        self.part, self.count, self.width = part, count, width
        self.declared: dict[Node, str] = {}
        self.saved: set[Node] = set()
        self.words = sum(self._words(max(4, node.dtype.itemsize)) for node in computed)

    def _words(self, size: int) -> int:
        return max(1, size * self.width // 4) * self.count

    @property
    def fits(self) -> bool:
        """Whether there is room for all that was taken."""
        return self.words <= REGISTERS

    def takes(self, node: Node, kind: str, name: str) -> bool:
        """Return whether there is room for the elements that a node reads."""
        words = self._words(node.dtype.itemsize)
        if self.words + words > REGISTERS:
            return False
        self.words += words
        self.declare(node, kind, name)
        return True

    def declare(self, node: Node, kind: str, name: str) -> None:
        """Keep a node's values."""
        self.declared[node] = f"mg_vector<{kind}, {self.width}> {name}[{self.count}];"


class CudaCode(RegionCode):
    """Lines of CUDA C for one region.

    Attributes
    ----------
    walk
        What each pass computes.
    inner
        The innermost loop.
    parts
        Folds whose elements are added up some at a time, and the dtype of that.
    vector_loop
        The loop whose neighbours are ``k`` apart in the lines that are written now; -1 for none.
    half
        How far apart the threads of a row are at first that join what they folded.
    fewer
        Whether a launch may have rows of fewer threads, as many as a block is wide.
    """

    def __init__(self, region: Region) -> None:
        super().__init__(region)
        self.walk = Walk(region, keep=False)
        self.inner = region.depth - 1
        self.parts: dict[Fold, np.dtype] = {}
        self.vector_loop = -1
        self.half, self.fewer = HALF_WARP, False
        self._folded = {fold.node for fold in region.folds}

    def header(self, text: str, offset: int) -> list[str]:
        """Return the lines that take operands and numbers out of the arguments ``v``."""
        body = self.region.body
        taken, written = len(body.inputs), len(body.outputs)
        lines = []
        for i, leaf in enumerate(body.inputs):
            if mentions(text, f"in{i}"):
                kind = storage_type(leaf.dtype)
                lines.append(f"const {kind} *in{i} = (const {kind} *)v[{offset + i}];")
        for i, node in enumerate(body.outputs):
            if mentions(text, f"out{i}"):
                kind = storage_type(node.dtype)
                lines.append(f"{kind} *out{i} = ({kind} *)v[{offset + taken + i}];")
        tail = offset + taken + written
        if mentions(text, "workspace"):
            lines.append(f"char *workspace = (char *)v[{tail}];")
        for name, position in self.places.items():
            if mentions(text, name):
                wide = "int64_t" if "_place" in name else "idx"
                lines.append(f"const {wide} {name} = ({wide})v[{tail + 1 + position}];")
        return lines

    # ---- Values

    def operand(self, node: Node) -> str:
        """Return the expression of a value that is known here."""
        return self.scope[self.walk.source(node)]

    def define(self, nodes: Iterable[Node], along: frozenset[int] | None = None) -> list[str]:
        """Return the lines that compute values which are not known yet.

        Parameters
        ----------
        nodes
            In an order in which they can be computed.
        along
            Only those that differ along no other loops.
        """
        lines: list[str] = []
        for node in nodes:
            if node in self.scope or node in self._folded:
                continue  # a fold's result is known when the fold is over
            value = self.region.values[node]
            if along is not None and not value.loops <= along:
                continue
            if any(
                self.walk.source(o) not in self.scope
                for o in (() if node in self.region.accesses else node.inputs)
            ) and node.inputs and node.op.kind is not Kind.RANDOM:
                continue  # it waits for a fold, or for a value that does
            lines += self._value(node)
        return lines

    def _value(self, node: Node) -> list[str]:
        region = self.region
        name = self.names[node]
        lines: list[str] = []
        if not node.inputs and node not in region.accesses and not region.counts(node):
            self.scope[node] = self._scalar(node)
            return []
        if node in region.accesses:
            expression = self.fetch(node)
        elif node.op.reduction is not None:
            expression = of_one_element(node, self.operand(node.inputs[0]))
        elif region.counts(node):
            expression = self._counted(node)
        else:
            operands = [self.operand(o) for o in node.inputs]
            lines, expression = elementwise(node, operands, name, self._shared, self._below)
        self.scope[node] = name
        return [*lines, f"const {computing_type(node.dtype)} {name} = {expression};"]

    def _shared(self, node: Node) -> bool:
        """Return whether neighbours along the innermost loop have the same of a value."""
        return self.inner not in self.region.values[self.walk.source(node)].loops

    def _below(self, node: Node) -> bool:
        """Return whether a value is what elements of a row are below the row's highest."""
        node = self.walk.source(node)
        if node in self.region.accesses or node.op.scalar.expression != "a - b":
            return False
        element, highest = (self.walk.source(o) for o in node.inputs)
        if highest.op.scalar.expression == "a ? b : c":  # where the highest is not finite
            condition, highest, _ = (self.walk.source(o) for o in highest.inputs)
            if condition.op.scalar.expression != "a - a == 0" or self.walk.source(
                condition.inputs[0]
            ) is not highest:
                return False
        reduction = highest.op.reduction
        return any(
            fold.row and fold.node is highest and self.walk.source(fold.operand) is element
            for fold in self.region.folds
        ) and reduction is not None and reduction.combine == "$maximum(a, b)"

    def _scalar(self, node: Node) -> str:
        if "value" in node.attrs:
            value = node.attrs["value"].reshape(-1)[0]
            if node in self.region.values and _is_count(value, node.dtype):
                # What depends on extents is told at run time: one kernel serves them all.
                position = index_of(self.region.values, node)
                name = self.number(f"{self.names[node]}_count", "count", position)
                return f"(({computing_type(node.dtype)}){name})"
            return literal(value, node.dtype)
        position = index_of(self.region.values, node)
        return self.number(self.names[node], "scalar", position)

    def _counted(self, node: Node) -> str:
        loops = sorted(self.region.values[node].loops)
        if node.op.kind is not Kind.RANDOM:
            return apply_scalar(node, [self.index(loop) for loop in loops] or ["0"])
        place, name = index_of(self.region.values, node), self.names[node]
        terms = []
        for loop in loops:
            step = self.number(f"{name}_step{loop}", "counter_step", place, loop)
            terms.append(f"(uint64_t){self.index(loop)} * (uint64_t){step}")
        if len(node.inputs) > 1:
            terms.append(f"(uint64_t){self.operand(node.inputs[1])}")
        attrs = node.attrs
        keys = stream_key(attrs["seed"], attrs["stream"], attrs["part"])
        return philox.element(
            node.dtype,
            (f"{keys[0]}u", f"{keys[1]}u"),
            self.operand(node.inputs[0]),
            " + ".join(terms) or "0",
        )

    # ---- Addresses

    def index(self, loop: int) -> str:
        """Return the position along a loop."""
        return f"(i{loop} + k)" if loop == self.vector_loop else f"i{loop}"

    def unit_read(self, node: Node, loop: int) -> bool:
        """Return whether an operand is contiguous along a loop."""
        access = self.region.accesses.get(node)
        if access is None or access.joined is not None:
            return False
        return self.steps_of(node)[1].get(loop) == ""

    def read(self, node: Node) -> str:
        """Return the place of an element that is read."""
        offset, steps = self.steps_of(node)
        terms = [offset] if offset else []
        terms += [times(self.index(loop), step) for loop, step in steps.items()]
        return f"in{self.region.accesses[node].parameter}[{' + '.join(terms) or '0'}]"

    def fetch(self, node: Node, beyond: int = -1) -> str:
        """Return the value of an element that is read.

        Positions along the axis `beyond` of a joined read may be behind its end.
        """
        access = self.region.accesses[node]
        if access.joined is None:
            return load(self.read(node), node.dtype)
        parts, value = access.joined.parts, access.joined.value
        places = [self._part_place(node, access, number) for number in range(len(parts))]
        tests = [self._part_test(node, access, number, beyond) for number in range(len(parts))]
        rest = "" if value is None else literal(np.asarray(value, node.dtype)[()], node.dtype)
        first, *others = places
        if not rest and all(other[1:] == first[1:] for other in others):
            offset = places[-1][0]
            for (begin, _, _), test in reversed(list(zip(places[:-1], tests, strict=False))):
                offset = f"({test} ? {begin} : {offset})"
            return load(f"{first[1]}[{' + '.join([offset, *first[2]])}]", node.dtype)
        loads = [
            load(f"{memory}[{' + '.join([begin, *terms])}]", node.dtype)
            for begin, memory, terms in places
        ]
        text = rest or loads.pop()
        for test, element in reversed(list(zip(tests, loads, strict=False))):
            text = f"({test} ? {element} : {text})"
        return text

    def _part_place(
        self, node: Node, access: Access, number: int
    ) -> tuple[str, str, tuple[str, ...]]:
        """Return where a part of a joined read begins, its memory, and what its loops add."""
        assert access.joined is not None
        parts = access.joined.parts
        part, position = parts[number], index_of(self.region.accesses, node)
        key = f"x{position}"
        terms = []
        for loop, axis in enumerate(access.axes):
            if axis is None or part.axes[axis] is None:
                continue
            stride = part.strides[axis]
            like = next(i for i, other in enumerate(parts) if other.strides[axis] == stride)
            what = f"{key}_{like}_step{axis}", "part_step", position, like, axis
            terms.append(times(self.index(loop), "" if stride == 1 else self.number(*what)))
        begin = self.number(f"{key}_{number}_first", "part_place", position, number)
        return begin, f"in{part.parameter}", tuple(terms)

    def _part_test(self, node: Node, access: Access, number: int, beyond: int) -> str:
        """Return the condition under which the element here is in a part of a joined read."""
        assert access.joined is not None
        part, position = access.joined.parts[number], index_of(self.region.accesses, node)
        key = f"x{position}_{number}"
        tests = []
        for axis, extent in enumerate(node.shape):
            index = self.index(access.axes.index(axis)) if axis in access.axes else "0"
            if part.low[axis] != 0:
                low = self.number(f"{key}_low{axis}", "part_low", position, number, axis)
                tests.append(f"{index} >= {low}")
            if axis == beyond:
                end = self.number(f"{key}_end{axis}", "part_end", position, number, axis)
                tests.append(f"{index} < {end}")
            elif part.high[axis] != extent:
                high = self.number(f"{key}_high{axis}", "part_high", position, number, axis)
                tests.append(f"{index} < {high}")
        return " && ".join(tests) or "true"

    def write(self, output: Output) -> str:
        """Return the line that writes one element of a result."""
        value = store(self.operand(output.node), output.node.dtype)
        return f"out{output.position}[{self.write_index(output)}] = {value};"

    def write_index(self, output: Output) -> str:
        """Return the number of an element of a result."""
        terms = [times(self.index(loop), s) for loop, s in self.write_steps(output).items()]
        return " + ".join(terms) or "0"

    # ---- Folds

    def begin(self, fold: Fold, count: str = "") -> list[str]:
        """Return the declaration of a fold's accumulator; of some, with ``count``."""
        dtype = self.accumulator(fold)
        name, begin = self.fold_name(fold), identity_expression(fold.node, dtype)
        kind = computing_type(dtype)
        also = indexed(fold.node.op)
        if not count:
            lines = [f"{kind} {name} = {begin};"]
            return [*lines, f"int64_t {name}_at = 0;"] if also else lines
        lines = [f"{kind} {name}[{count}];"]
        if also:
            lines.append(f"int64_t {name}_at[{count}];")
        places = f" {name}_at[k] = 0;" if also else ""
        lines.append(f"for (int k = 0; k < {count}; k++) {{ {name}[k] = {begin};{places} }}")
        return lines

    def take(self, fold: Fold, target: str, at: str, condition: str = "") -> list[str]:
        """Return the lines that fold the element here into an accumulator, or a part of one."""
        dtype = self.parts.get(fold, self.accumulator(fold))
        kind = computing_type(dtype)
        element = f"({kind}){self.operand(fold.operand)}"
        if condition:
            element = f"({condition} ? {element} : {identity_expression(fold.node, dtype)})"
        if not indexed(fold.node.op):
            return [f"{target} = {combine_expression(fold.node, dtype, target, element)};"]
        return replace_if_better(fold.node, dtype, target, at, element, self._number_of(fold))

    def _number_of(self, fold: Fold) -> str:
        """Return the number of the element here among those that are folded."""
        number = self.number_among(fold, fold.reduced, "count", "index_step", "(int64_t)")
        return f"({number})"

    def join(self, fold: Fold, target: str, at: str, other: str, other_at: str) -> list[str]:
        """Return the lines that fold one accumulator into another."""
        dtype = self.accumulator(fold)
        if not indexed(fold.node.op):
            return [f"{target} = {combine_expression(fold.node, dtype, target, other)};"]
        return replace_if_better(fold.node, dtype, target, at, other, other_at)

    def result(self, fold: Fold, name: str) -> str:
        """Return the value of a fold that is over, from its accumulator's name."""
        if indexed(fold.node.op):
            result_type = computing_type(fold.node.dtype)
            return f"({result_type}){name}_at"
        have, result_type = computing_type(self.accumulator(fold)), computing_type(fold.node.dtype)
        return name if have == result_type else f"({result_type}){name}"

    def line_position(self, fold: Fold) -> str:
        """Return the place of the element here in a line of the fold's partial results."""
        return self.number_among(fold, fold.kept, "kept", "kept_step")

    # ---- Neighbours along the innermost loop

    def moves(self, node: Node) -> bool:
        """Return whether adjacent elements of an operand are adjacent in memory."""
        return self.unit_read(node, self.inner)

    def decode(self, rest: str, loops: Sequence[int]) -> list[str]:
        """Return the lines that take a count of iterations apart, the last loop fastest."""
        lines = []
        for position, loop in enumerate(reversed(loops)):
            if position == len(loops) - 1:
                lines.append(f"const idx i{loop} = {rest};")
            else:
                n = self.extent(loop)
                lines += [f"const idx i{loop} = {rest} % {n};", f"{rest} /= {n};"]
        return lines

    def top(self) -> list[str]:
        """Return the lines that compute values which are the same for all elements."""
        region = self.region
        nodes = [n for nodes in (*self.walk.passes, *self.walk.stages) for n in nodes]
        early = [
            n for n in nodes if not region.values[n].phase and not region.values[n].epilogue
            and n.op.reduction is None
        ]
        return self.define(early, frozenset())

    def elements(
        self,
        nodes: Sequence[Node],
        folds: Sequence[Fold],
        outputs: Sequence[Output],
        width: int,
        update: Mapping[Fold, tuple[str, str]],
        kept: RegisterValues | None = None,
        here: str = "",
        mine: str = "",
        staged: Mapping[Output, str] | None = None,
    ) -> list[str]:
        """Return the statements for `width` adjacent elements along the innermost loop.

        Parameters
        ----------
        nodes
            The values to compute, in order.
        folds
            What takes the elements in.
        outputs
            What is written.
        width
            How many neighbours.
        update
            The accumulator of each fold, and the place beside it.
        kept
            Where vectors stay for other passes.
        here
            The condition under which the vector counts; under others it is computed all the same.
        mine
            The condition under which it is written.
        staged
            Results that wait elsewhere until they are written, each with an element's place there.
        """
        inner = self.inner
        outer_scope = dict(self.scope)
        lines = self.define(nodes, frozenset(range(self.region.depth)) - {inner})
        stores: list[str] = []
        inside: list[str] = []
        self.vector_loop = inner
        near = [n for n in nodes if n not in self.scope and self.moves(n)]
        for node in near:
            place = self._bring(node, width, kept, lines)
            name, kind = self.names[node], computing_type(node.dtype)
            inside.append(f"const {kind} {name} = {load(f'{place}.x[k]', node.dtype)};")
        self.scope |= {node: self.names[node] for node in near}
        inside += self._define_kept(nodes, kept)
        for fold in folds:
            target, at = update[fold]
            if (width > 1 or kept is not None) and self.in_groups(fold, target):
                dtype, part = self.near(fold), f"{target}_near"
                lines.append(f"{computing_type(dtype)} {part}[{width}];")
                inside.append(f"{part}[k] = {self.operand(fold.operand)};")
                stores += self.in_pairs(fold, part, width)
                value = f"{part}[0]"
                if kept is not None:
                    begin = identity_expression(fold.node, dtype)
                    value = f"{here} ? {value} : {begin}" if here else value
                    stores.append(f"{target}_part[{kept.part}] = {value};")
                else:
                    wide = self.accumulator(fold)
                    value = f"({computing_type(wide)}){value}"
                    joined = combine_expression(fold.node, wide, target, value)
                    stores.append(f"{target} = {joined};")
            elif here:
                inside += [f"if ({here}) {{", *indent(self.take(fold, target, at)), "}"]
            else:
                inside += self.take(fold, target, at)
        written = " && ".join(filter(None, (mine, here)))
        written = f"if ({written}) " if written else ""
        for output in outputs:
            if self.write_steps(output).get(inner) != "":
                inside.append(f"{written}{self.write(output)}")
                continue
            kind = f"mg_vector<{storage_type(output.node.dtype)}, {width}>"
            name = f"out{output.position}_near"
            lines.append(f"{kind} {name};")
            value = store(self.operand(output.node), output.node.dtype)
            inside.append(f"{name}.x[k] = {value};")
            place = self._first(self.write(output).partition(" = ")[0])
            stores.append(f"{written}*({kind} *)({place}) = {name};")
        for output, place in (staged or {}).items():
            inside.append(f"{place} = {store(self.operand(output.node), output.node.dtype)};")
        self.vector_loop = -1
        self.scope = outer_scope
        return [
            *lines,
            "#pragma unroll",
            f"for (int k = 0; k < {width}; k++) {{",
            *indent(inside),
            "}",
            *stores,
        ]

    def in_groups(self, fold: Fold, target: str) -> bool:
        """Return whether a vector is reduced before it is added to the accumulator."""
        return not indexed(fold.node.op) and "[" not in target

    def in_pairs(self, fold: Fold, name: str, count: int) -> list[str]:
        """Return the lines that fold an array into its first place, by pairs, pairs of pairs, ...

        Sums of equal numbers are exact so, and others are off by less.
        """
        lines = []
        while count > 1:
            half = (count + 1) // 2
            for k in range(count - half):
                left, right = f"{name}[{k}]", f"{name}[{k + half}]"
                joined = combine_expression(fold.node, self.near(fold), left, right)
                lines.append(f"{left} = {joined};")
            count = half
        return lines

    def near(self, fold: Fold) -> np.dtype:
        """Return the dtype that the elements of a few vectors are folded in.

        Conversions to float64 take as long as sixteen additions.
        """
        wide, dtype = self.accumulator(fold), fold.operand.dtype
        return FLOAT32 if wide == FLOAT64 and dtype.itemsize <= FLOAT32.itemsize else wide

    def _define_kept(self, nodes: Sequence[Node], kept: RegisterValues | None) -> list[str]:
        """Return the lines that compute values, some of which other passes kept or will read."""
        if kept is None:
            return self.define(nodes)
        places = {
            node: f"{self.names[node]}_kept[{kept.part}].x[k]"
            for node in self.walk.saved
            if is_among(node, nodes)
        }
        self.scope |= {node: place for node, place in places.items() if node in kept.saved}
        lines = self.define(nodes)
        for node, place in places.items():
            if node in kept.saved or node not in self.scope:
                continue
            kept.declare(node, computing_type(node.dtype), f"{self.names[node]}_kept")
            kept.saved.add(node)
            lines.append(f"{place} = {self.scope[node]};")
        return lines

    def _bring(self, node: Node, width: int, kept: RegisterValues | None, lines: list[str]) -> str:
        """Return the name of a vector that is read, and add the lines that read it."""
        kind = f"mg_vector<{storage_type(node.dtype)}, {width}>"
        name = f"{self.names[node]}_near"
        value = f"*(const {kind} *)({self._first(self.read(node))})"
        if kept is not None:
            place = f"{name}[{kept.part}]"
            if node in kept.declared:
                return place
            if kept.takes(node, storage_type(node.dtype), name):
                lines.append(f"{place} = {value};")
                return place
        lines.append(f"const {kind} {name} = {value};")
        return name

    def _first(self, place: str) -> str:
        """Return the address of the first of the neighbours at a place."""
        base, _, index = place.partition("[")
        return f"{base} + {index[:-1].replace(f'(i{self.inner} + k)', f'i{self.inner}')}"

    # ---- What several threads folded

    @property
    def cross(self) -> list[Fold]:
        """The folds across rows."""
        return [fold for fold in self.region.folds if not fold.row]

    def own(self) -> list[Fold]:
        """Return the sums across rows of which each thread that keeps rows has its own places."""
        row = self.region.row
        return [
            fold for fold in self.cross
            if fold.element and set(fold.kept) == row and not indexed(fold.node.op)
        ]  # fmt: skip

    def across_warp(
        self, fold: Fold, target: str = "", at: str = "", least: int = 1
    ) -> list[str]:
        """Return the lines that reduce over a warp and give all lanes the result.

        With `least`, all lanes that are a multiple of that apart.
        """
        name = target or self.fold_name(fold)
        place = at or f"{self.fold_name(fold)}_at"
        kind = computing_type(self.accumulator(fold))
        inside = [f"const {kind} other = mg_shuffle<{kind}>({name}, mask);"]
        if indexed(fold.node.op):
            inside.append(f"const int64_t other_at = mg_shuffle<int64_t>({place}, mask);")
        inside += self.join(fold, name, place, "other", "other_at")
        if self.fewer:
            inside = ["if (mask < (int)blockDim.x) {", *indent(inside), "}"]
        return [
            "#pragma unroll",
            f"for (int mask = {self.half}; mask >= {least}; mask >>= 1) {{",
            *indent(inside),
            "}",
        ]

    def across_parts(
        self,
        fold: Fold,
        slot: str,
        count: str,
        first: str,
        step: int | str,
        writes: str = "",
        name: str = "",
        reads: str = "",
    ) -> list[str]:
        """Return the lines after which threads hold what those of several parts folded.

        With `reads`, those for which that is true: shared memory has less to do.
        """
        name = name or self.fold_name(fold)
        kind = computing_type(self.accumulator(fold))
        at = indexed(fold.node.op)
        put = [f"(({kind} *)mg_buffer)[{slot}] = {name};"]
        # Counts are powers of two: from nothing on, no turn of a loop taken apart is left over.
        get = [f"{name} = {identity_expression(fold.node, self.accumulator(fold))};"]
        if at:
            get = [f"{name} = ((const {kind} *)mg_buffer)[{first}];"]
        inside = [f"const {kind} other = ((const {kind} *)mg_buffer)[{first} + part * {step}];"]
        if at:
            put.append(f"mg_places[{slot}] = {name}_at;")
            get.append(f"{name}_at = mg_places[{first}];")
            inside.append(f"const int64_t other_at = mg_places[{first} + part * {step}];")
        inside += self.join(fold, name, f"{name}_at", "other", "other_at")
        if writes:
            put = [f"if ({writes}) {{", *indent(put), "}"]
        folded = [
            *get,
            *([] if at else [UNROLLED]),
            f"for (int part = {int(at)}; part < {count}; part++) {{",
            *indent(inside),
            "}",
        ]
        if reads:
            folded = [f"if ({reads}) {{", *indent(folded), "}"]
        return ["__syncthreads();", *put, "__syncthreads();", *folded]

    def across_row(self, folds: Sequence[tuple[Fold, int]], first: bool) -> list[str]:
        """Return the lines that reduce over a row's threads and give all of them the result.

        Parameters
        ----------
        folds
            Those of one pass, each with a place of its own for what the warps have.
        first
            Whether all threads have to be done with reading what was there before.
        """
        lines: list[str] = []
        put: list[str] = []
        get: list[str] = []
        turns: list[str] = []
        for fold, place in folds:
            lines += self.across_warp(fold)
            name, kind = self.fold_name(fold), computing_type(self.accumulator(fold))
            slot = f"(({kind} *)(mg_buffer + {place * LANES}))"
            put.append(f"{slot}[threadIdx.x >> 5] = {name};")
            get.append(f"{name} = {slot}[threadIdx.x & ((blockDim.x >> 5) - 1)];")
            turns.append(f"const {kind} {name}_other = mg_shuffle<{kind}>({name}, mask);")
            if indexed(fold.node.op):
                slot = f"(mg_places + {place * LANES})"
                put.append(f"{slot}[threadIdx.x >> 5] = {name}_at;")
                get.append(f"{name}_at = {slot}[threadIdx.x & ((blockDim.x >> 5) - 1)];")
                turns.append(
                    f"const int64_t {name}_other_at = mg_shuffle<int64_t>({name}_at, mask);"
                )
            turns += self.join(fold, name, f"{name}_at", f"{name}_other", f"{name}_other_at")
        if self.half != HALF_WARP:
            return lines  # a row has less than a warp
        across = [
            *(["__syncthreads();"] if first else []),
            "if ((threadIdx.x & 31) == 0) {",
            *indent(put),
            "}",
            "__syncthreads();",
            *get,
            "for (int mask = blockDim.x >> 6; mask; mask >>= 1) {",
            *indent(turns),
            "}",
        ]
        return [*lines, "if (blockDim.x > 32) {", *indent(across), "}"]

    def across_block(self, fold: Fold, thread: str, warps: str) -> list[str]:
        """Return the lines that reduce over a block and give all threads the result."""
        lane, warp = f"({thread} & 31)", f"({thread} >> 5)"
        return [
            *self.across_warp(fold),
            *self.across_parts(fold, warp, warps, "0", 1, writes=f"{lane} == 0"),
        ]

    def across_worker(self, fold: Fold) -> list[str]:
        """Return the lines that reduce over a worker's threads and give all of them the result."""
        warp = "((threadIdx.y * blockDim.x + threadIdx.x) >> 5)"
        lane = "((threadIdx.y * blockDim.x + threadIdx.x) & 31)"
        across = self.across_parts(
            fold, warp, "(blockDim.x * blockDim.y >> 5)", "0", 1, writes=f"{lane} == 0"
        )
        return [
            *self.across_warp(fold),
            "if (blockDim.x * blockDim.y > 32) {",
            *indent(across),
            "}",
        ]

    def line(self, fold: Fold, piece: int = 0) -> str:
        """Return the address of the lines of a fold's partial results, or of their positions."""
        position = self.position_of(fold)
        kind = "int64_t" if piece else computing_type(self.accumulator(fold))
        offset = self.number(f"{self.fold_name(fold)}_place{piece}", "fold_place", position, piece)
        return f"(({kind} *)(workspace + {offset}))"

    def line_length(self, fold: Fold) -> str:
        """Return how many results one line has."""
        position = self.position_of(fold)
        return self.number(f"{self.fold_name(fold)}_length", "line_length", position)

    def store_partial(
        self,
        fold: Fold,
        line: str,
        place: str,
        condition: str,
        name: str = "",
    ) -> list[str]:
        """Return the lines that write an accumulator into a line of partial results."""
        name = name or self.fold_name(fold)
        length = self.line_length(fold) if fold.kept else "1"
        at = f"[(idx)({line}) * {length} + {place}]"
        lines = [f"{self.line(fold)}{at} = {name};"]
        if indexed(fold.node.op):
            lines.append(f"{self.line(fold, 1)}{at} = {name}_at;")
        return [f"if ({condition}) {{", *indent(lines), "}"]


def _is_count(value: np.generic, dtype: np.dtype) -> bool:
    """Return whether a constant looks like a number of elements."""
    if not is_floating(dtype) or dtype.itemsize < 4:
        return False
    return FEWEST_COUNTED <= float(value) < 2**31 and float(value).is_integer()
