"""The answer of the analysis of a fused body: a region, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .. import dims
from ..graph import Graph, Node
from ..locking import cached_property
from ..op import Op
from ..records import record
from ..types import Extent
from .access import Access, Loop, Output

if TYPE_CHECKING:
    from .analysis import Builder
    from .walk import Walk

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
    """What is known of one node of a region.

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
    details: Builder

    @cached_property
    def values(self) -> Mapping[Node, Value]:
        """What is known of each node that is computed."""
        return self.details.values()

    @cached_property
    def accesses(self) -> Mapping[Node, Access]:
        """Reads of parameters, by the node that is read (`Value.source`)."""
        return self.details.accesses()

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
        from .walk import Walk

        return Walk(self)

    @property
    def saved(self) -> tuple[Node, ...]:
        """Values that a kernel keeps between passes, since computing them again is dear."""
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
        from .walk import in_place

        return in_place(self, self.walk)

    @cached_property
    def in_place_recomputed(self) -> frozenset[tuple[int, int]]:
        """The pairs of `in_place` that also hold where a later pass computes values again.

        A pass that computes a saved value again reads its operands again. Kernels of a GPU save
        values only where they fit in registers, so that their rows may do either.
        """
        from .walk import Walk, in_place

        if not self.walk.saved:
            return self.in_place
        return self.in_place & in_place(self, Walk(self, keep=False))

    @cached_property
    def bytes(self) -> Extent:
        """Bytes that the kernel must move: what is read and what is written, each once."""
        read: dict[int, Extent] = {}
        whole: dict[int, Extent] = {}
        for node, access in self.accesses.items():
            root = access.views[0].inputs[0] if access.views else node
            size = dims.size(node.shape) * node.dtype.itemsize
            whole[access.parameter] = root.type.bytes
            known = read.get(access.parameter)
            read[access.parameter] = size if known is None else known + size
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
