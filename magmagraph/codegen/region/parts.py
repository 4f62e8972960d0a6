"""The answer of the analysis of a fused body: a region, or why there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol

from ...ir import dims
from ...ir.graph import Graph, Node
from ...ir.identity import is_among
from ...ir.locking import cached_property
from ...ir.op import Kind, Op
from ...ir.records import record
from ...ir.types import Extent
from .access import Access, Loop, Output

PARTIAL_BYTES = 8
MAX_STRIP = 256
SAVED_STRIP = 64  # where a value is kept for every element of a strip
TOGETHER = 8  # short rows that a kernel passes over together, at most
TOGETHER_BYTES = 1 << 14  # of such rows, which stay in the nearest cache from pass to pass
FLAT = 512  # elements of short rows that a kernel takes as one row, to fold their columns


@record(frozen=True)
class Refusal:
    """Why a body cannot be one kernel.

    Attributes
    ----------
    reason
        A sentence for people.
    node
        The node of the body that it is about, where it is about one.
    """

    reason: str
    node: Node | None = None


@record(frozen=True, eq=False)
class Value:
    """The analysis of one node of a region.

    Attributes
    ----------
    node
        The node.
    source
        The node that holds the same elements: transpositions, broadcasts and reshapes by ones
        move axes only, and are their operand here.
    loops
        The loops that the elements differ along.
    shape_loops
        The loops of its shape; where it is repeated along some, more than `loops`.
    phase
        The number of row folds that lie below it, one on another: it can be computed in pass
        `phase` of a row, or before it where it does not depend on the row's loops.
    epilogue
        True where it depends on a cross fold.
    """

    node: Node
    source: Node
    loops: frozenset[int]
    shape_loops: frozenset[int]
    phase: int
    epilogue: bool


@record(frozen=True, eq=False)
class Fold:
    """One reduction of a region.

    Attributes
    ----------
    node, operand
        The reduction, and what it reduces.
    reduced
        Loops that it reduces, in the order of the operand's axes (which numbers the elements of
        an indexed reduction such as argmax).
    kept
        Loops of its result, outermost first.
    row
        True for a row fold, False for a cross fold.
    phase
        The pass in which its elements are seen.
    element
        True where the operand is seen along all loops, False where it is a row's own value.
    """

    node: Node
    operand: Node
    reduced: tuple[int, ...]
    kept: tuple[int, ...]
    row: bool
    phase: int
    element: bool


class Details(Protocol):
    """Answer queries about a region; `analysis.Builder` implements it."""

    def values(self) -> Mapping[Node, Value]:
        """Return the analysis of each computed node."""

    def accesses(self) -> Mapping[Node, Access]:
        """Return the reads of parameters."""

    def counters(self) -> Mapping[Node, tuple[int | None, ...]]:
        """Return the nodes that read nothing and differ by position."""

    def folds(self) -> tuple[Fold, ...]:
        """Return the reductions in the order of the body."""

    def outputs(self) -> tuple[Output, ...]:
        """Return one write per output of the body."""

    def widest(self) -> int:
        """Return a bound of the bytes that each element of a row may take."""


@record(frozen=True, eq=False)
class Region:
    """One nest of loops that computes a body.

    Attributes
    ----------
    body
        The graph that was analyzed.
    loops
        The loops, outermost first. The first `depth` are the iteration space; others occur in
        the epilogue only.
    depth
        Number of loops of the iteration space.
    row
        The loops that row folds reduce; empty where there is none.
    strip
        True where the innermost loop is not one of `row`: kernels take strips of it.
    passes
        Number of passes over a row.
    details
        What tells the rest, which most regions are never asked for: while fusion grows them, it
        matters only that they are there.
    """

    body: Graph
    loops: tuple[Loop, ...]
    depth: int
    row: frozenset[int]
    strip: bool
    passes: int
    details: Details

    @cached_property
    def values(self) -> Mapping[Node, Value]:
        """The analysis of each node that is computed."""
        return self.details.values()

    @cached_property
    def accesses(self) -> Mapping[Node, Access]:
        """Reads of parameters, by the node that is read (`Value.source`)."""
        return self.details.accesses()

    @cached_property
    def joins(self) -> bool:
        """Whether it reads something in parts, which kernels of a GPU do."""
        return any(access.joined is not None for access in self.accesses.values())

    @cached_property
    def counters(self) -> Mapping[Node, tuple[int | None, ...]]:
        """Nodes that read nothing and differ by position (positions themselves, random bits).

        Each has the axis along which every loop steps.
        """
        return self.details.counters()

    @cached_property
    def folds(self) -> tuple[Fold, ...]:
        """Reductions in the order of the body."""
        return self.details.folds()

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """One write per output of the body."""
        return self.details.outputs()

    @cached_property
    def walk(self) -> Walk:
        """The order in which a kernel does its work, pass by pass."""
        return Walk(self)

    @property
    def saved(self) -> tuple[Node, ...]:
        """Values that a kernel keeps between passes, since recomputing them is costly."""
        return tuple(self.walk.saved)

    @cached_property
    def columns(self) -> bool:
        """True where all folds are of columns: along every loop but the innermost, in one pass."""
        inner = self.depth - 1
        return (
            self.strip
            and self.row in (frozenset(), frozenset(range(inner)))
            and self.passes == 1
            and inner > 0
            and bool(self.folds)
            and all(f.element and f.kept == (inner,) and not indexed(f.node.op) for f in self.folds)
            and all(a.unit or a.axes[inner] is None for a in self.accesses.values())
            and not any(map(self.walk.of_row, self.walk.passes[0]))  # a strip has one of these
        )

    @property
    def late(self) -> tuple[Output, ...]:
        """Outputs that are written when a row, or all of them, are done."""
        return tuple(o for o in self.outputs if o.epilogue or not o.element)

    @cached_property
    def flat(self) -> bool:
        """True where several rows may be taken as one: columns, and all runs through both loops."""
        if not self.columns or self.depth > 2 or self.counters:
            return False
        if any(0 in self.values[o.node].shape_loops for o in self.late):
            return False
        read = [self.accesses[n].axes for n in self.walk.passes[0] if n in self.accesses]
        written = [o.axes for o in self.outputs if o not in self.late]
        # Rows have to lie side by side, also those written, which may be transposed.
        for rows, columns, *_ in (*read, *written):  # other loops are of the epilogue
            if (rows is None) != (columns is None):
                return False
            if rows is not None and columns is not None and columns != rows + 1:
                return False
        return True

    @cached_property
    def in_place(self) -> frozenset[tuple[int, int]]:
        """Pairs (parameter, output) where the output may be written over the parameter."""
        return in_place(self, self.walk)

    @cached_property
    def in_place_recomputed(self) -> frozenset[tuple[int, int]]:
        """The pairs of `in_place` that also hold where a later pass computes values again.

        A pass that computes a saved value again reads its operands again. Kernels of a GPU save
        values only where they fit in registers, so that their rows may do either.
        """
        if not self.walk.saved:
            return self.in_place
        return self.in_place & in_place(self, Walk(self, keep=False))

    @cached_property
    def bytes(self) -> Extent:
        """Bytes that the kernel must read and write, each counted once."""
        read: dict[int, Extent] = {}
        whole: dict[int, Extent] = {}
        for node, access in self.accesses.items():
            for parameter, part, views in access.reads:
                root = views[0].inputs[0] if views else part
                size = dims.size(part.shape) * node.dtype.itemsize
                whole[parameter] = root.type.bytes
                so_far = read.get(parameter)
                read[parameter] = size if so_far is None else so_far + size
        total: Extent = 0
        for parameter, size in read.items():
            total += dims.minimum(size, whole[parameter])
        for output in self.outputs:
            total += output.node.type.bytes
        return total

    @property
    def outer(self) -> tuple[int, ...]:
        """Loops of the iteration space that no row fold reduces, outermost first."""
        return tuple(i for i in range(self.depth) if i not in self.row)

    def counts(self, node: Node) -> bool:
        """Return whether a node is a function of the position alone (an iota, random bits)."""
        return node in self.counters

    @property
    def elementwise(self) -> bool:
        """True where nothing is reduced."""
        return not self.folds

    def extent(self, loops: tuple[int, ...] | frozenset[int]) -> Extent:
        """Return the number of iterations of some loops together."""
        return dims.size(tuple(self.loops[i].extent for i in sorted(loops)))

    def workspace(self, threads: int) -> Extent:
        """Return the bytes of scratch memory that a kernel wants on `threads` threads.

        A line per thread of partial results for every cross fold, and of the row for every saved
        value; each begins on a multiple of 64 bytes.
        """
        total: Extent = 0
        for fold in self.folds:
            if self.columns or not fold.row:
                length = self.extent(fold.kept)
                if self.flat and not (isinstance(length, int) and 2 * length > FLAT):
                    length = length + FLAT
                line = padded(length * PARTIAL_BYTES)
                total += threads * line * (2 if indexed(fold.node.op) else 1)
        for node in self.saved:
            row = self.extent(self.row) * self.saved_width
            more = 64 + TOGETHER_BYTES if self.batched else 0
            total += threads * padded(row * saved_itemsize(node) + more)
        return total

    @property
    def batched(self) -> bool:
        """Whether several rows may go together, pass by pass."""
        return self.passes > 1 and bool(self.row) and not self.strip and not self.columns

    @property
    def saved_width(self) -> int:
        """Elements of the innermost axis that a strip has at most (1: rows, not strips)."""
        if not self.strip:
            return 1
        return SAVED_STRIP if self.saved else MAX_STRIP


def saved_itemsize(node: Node) -> int:
    """Return the bytes of an element of a saved value: it is kept in its computing type."""
    return max(4, node.dtype.itemsize)


def padded(size: Extent) -> Extent:
    """Round a number of bytes up to whole cache lines."""
    return dims.ceil_div(size, 64) * 64


def indexed(op: Op) -> bool:
    """Return whether an operation is a reduction to positions."""
    return op.reduction is not None and op.reduction.indexed


# What each pass of a region computes: the order in which a kernel does its work.
#
# For one row (an index of the outer loops, or a strip of them) a kernel goes through stages and
# passes in turn: stage 0, pass 0, stage 1, pass 1, ..., and at the very end the epilogue. A stage
# computes what a row has one of; a pass runs over the row's elements, stores outputs and feeds
# folds. A pass computes again what it needs of earlier passes, unless it is saved.

# C functions of a few instructions: what calls no other is cheaper to compute than to load.
_CHEAP = frozenset(
    ("fabs", "maximum", "minimum", "lowest", "highest", "sqrt", "floor", "ceil", "rint", "trunc",
     "left_shift", "right_shift", "copysign", "greater_or_nan", "less_or_nan",
     "real", "imag", "conj")
)
_CALL = re.compile(r"\$(\w+)")


def costly(node: Node) -> bool:
    """Return whether a value is costly enough to be kept rather than recomputed."""
    rule = node.op.scalar.expression
    if rule is None:
        return node.op.kind is Kind.RANDOM
    text = rule if isinstance(rule, str) else rule((node.inputs[-1] if node.inputs else node).dtype)
    return not _CHEAP.issuperset(_CALL.findall(text))


class Walk:
    """The contents of stages and passes.

    Attributes
    ----------
    saved
        Nodes that are kept for later passes, each with the pass that computes it: the first that
        needs it, which may come after the first that could (`Value.phase`).

    Parameters
    ----------
    region
        The region.
    keep
        Whether dear values may be kept; otherwise each pass computes all that it needs again.
    """

    def __init__(self, region: Region, keep: bool = True) -> None:
        self.region = region
        self.saved: dict[Node, int] = {}
        self._all = self._passes()  # that they need, were nothing kept
        again = self._computed_again(self._all) if keep else None
        if again is not None:
            first = next(i for i, nodes in enumerate(self._all) if is_among(again, nodes))
            self.saved = {again: first}

    @cached_property
    def passes(self) -> list[list[Node]]:
        """For each pass, the nodes that it computes or reads, operands first (their sources)."""
        return self._passes() if self.saved else self._all

    def _passes(self) -> list[list[Node]]:
        rows = self._row_values()
        return [self._pass(index, rows) for index in range(self.region.passes)]

    def source(self, node: Node) -> Node:
        """Return the node that holds the elements of `node`."""
        return self.region.values[node].source

    def operands(self, node: Node) -> list[Node]:
        """Return the nodes of a node's operands; a value that is read from memory has none."""
        if node in self.region.accesses:
            return []
        return [self.source(operand) for operand in node.inputs]

    def of_row(self, node: Node) -> bool:
        """Return whether a stage computes the node: a row has one of it, and it is no read."""
        region = self.region
        value = region.values[node]
        return (
            bool(region.row)
            and not value.loops & region.row
            and node not in region.accesses
            and bool(node.inputs)
        )

    def folds(self, index: int, *, element: bool) -> list[Fold]:
        """Return the folds that a pass (or, with ``element=False``, a stage) feeds."""
        return [f for f in self.region.folds if f.phase == index and f.element == element]

    def outputs(self, index: int, *, element: bool) -> list[Output]:
        """Return the outputs that a pass (or a stage) writes."""
        return [
            o
            for o in self.region.outputs
            if o.phase == index and o.element == element and not o.epilogue
        ]

    def sinks(self, index: int, *, element: bool) -> list[Node]:
        """Return the nodes whose elements a pass (or a stage) needs."""
        nodes = [f.operand for f in self.folds(index, element=element)]
        nodes += [o.node for o in self.outputs(index, element=element)]
        return [self.source(node) for node in nodes]

    def reach(self, roots: Iterable[Node], stop: Iterable[Node] = ()) -> list[Node]:
        """Return the values that the roots need, operands first, down to reads and to `stop`."""
        ends = set(stop)
        order: list[Node] = []
        done: set[Node] = set()
        stack = [(root, False) for root in roots]
        stack.reverse()
        while stack:
            node, entered = stack.pop()
            if entered:
                order.append(node)
                continue
            if node in done:
                continue
            done.add(node)
            stack.append((node, True))
            if node not in ends:
                stack += [(o, False) for o in reversed(self.operands(node)) if o not in done]
        return order

    def _row_values(self) -> list[Node]:
        return [n for n in self.region.values if self.source(n) is n and self.of_row(n)]

    def _pass(self, index: int, rows: list[Node]) -> list[Node]:
        ends = [*rows, *(node for node, first in self.saved.items() if first < index)]
        return self.reach(self.sinks(index, element=True), ends)

    def _computed_again(self, passes: list[list[Node]]) -> Node | None:
        """Return the costly node nearest to the outputs that a later pass would recompute."""
        region = self.region
        before: set[Node] = set()
        for nodes in passes:
            for node in reversed(nodes):
                along = region.depth - 1 in region.values[node].loops  # others cost next to nothing
                if node in before and along and costly(node) and not self.of_row(node):
                    return node
            before.update(n for n in nodes if n not in region.accesses)
        return None

    @cached_property
    def stages(self) -> list[list[Node]]:
        """For each stage, the nodes of a row that it computes, operands first."""
        region = self.region
        if not region.row:
            return []
        last = max((region.values[n].phase for n in region.values), default=0)
        # Dictionaries, not sets: their order is the same in every process, and so is the C.
        wanted = dict.fromkeys(n for nodes in self.passes for n in nodes if self.of_row(n))
        for index in range(last + 1):
            wanted.update(dict.fromkeys(self.sinks(index, element=False)))
        folds = {fold.node for fold in region.folds}
        needed = self.reach(wanted, folds)
        return [self._stage(index, needed) for index in range(last + 1)]

    def _stage(self, index: int, needed: list[Node]) -> list[Node]:
        """Return the values that a stage computes, and those that it reads."""
        own = {n for n in needed if self.region.values[n].phase == index and self.of_row(n)}
        read = {o for n in own if self.region.values[n].phase == index for o in self.operands(n)}
        read.update(self.sinks(index, element=False))
        return [n for n in needed if n in own or (n in read and not self.of_row(n))]


def in_place(region: Region, walk: Walk) -> frozenset[tuple[int, int]]:
    """Return the pairs (parameter, output) where the output may overwrite the parameter.

    It must be read element by element as the output is written, never after that, and never by
    another thread.
    """
    tracks = {node: _place(region, node) for node in region.accesses}
    readers: dict[int, list[Node]] = {}
    for node, access in region.accesses.items():
        for parameter in access.parameters:
            readers.setdefault(parameter, []).append(node)
    last_pass = {n: i for i, nodes in enumerate(walk.passes) for n in nodes}
    last_stage = {n: i for i, nodes in enumerate(walk.stages) for n in nodes}
    pairs: set[tuple[int, int]] = set()

    def read_before(node: Node, output: Output) -> bool:
        last = last_pass.get(node, -1), last_stage.get(node, -1)
        return _read_before(walk, node, output, *last)

    for output in region.outputs:
        mine = _order(region, output.axes)
        for parameter, nodes in readers.items():
            same = all(
                tracks[n] == mine and n.dtype == output.node.dtype for n in nodes
            ) and region.body.inputs[parameter].type.size == output.node.type.size
            if same and all(read_before(n, output) for n in nodes):
                pairs.add((parameter, output.position))
    return frozenset(pairs)


def late_groups(region: Region, outputs: Iterable[Output] | None = None) -> list[list[Output]]:
    """Return outputs (of the epilogue), those of the same loops together: one nest each."""
    groups: dict[frozenset[int], list[Output]] = {}
    for output in region.outputs if outputs is None else outputs:
        if outputs is not None or output.epilogue:
            groups.setdefault(region.values[output.node].shape_loops, []).append(output)
    return list(groups.values())


def _order(region: Region, axes: tuple[int | None, ...]) -> tuple[int, ...]:
    """Return the loops that a contiguous array runs along, outermost first."""
    placed = [(axis, loop) for loop, axis in enumerate(axes) if axis is not None]
    return tuple(loop for _, loop in sorted(placed))


def _place(region: Region, node: Node) -> tuple[int, ...] | None:
    access = region.accesses[node]
    if not access.whole:
        return None
    return _order(region, access.axes)


def _read_before(
    walk: Walk, node: Node, output: Output, last_pass: int, last_stage: int
) -> bool:
    """Return whether a read, last done where it is said, is over when the output is written."""
    region = walk.region
    if output.epilogue:
        folds = {fold.node for fold in region.folds}
        groups = late_groups(region)
        mine = next(i for i, group in enumerate(groups) if output in group)
        later = [walk.source(other.node) for group in groups[mine + 1 :] for other in group]
        return not is_among(node, walk.reach(later, folds))
    for other in region.outputs:
        if other.epilogue:
            folds = {fold.node for fold in region.folds}
            if is_among(node, walk.reach([walk.source(other.node)], folds)):
                return False
    if output.element:
        # A row's own value that is written over would be another row's input only if loops differ.
        return last_pass <= output.phase and last_stage <= output.phase
    return last_pass < output.phase and last_stage <= output.phase
