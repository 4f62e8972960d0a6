"""Fused regions: analyze a body graph as one nest of loops.

`analyze` takes the body of a fused node and says how one kernel can compute it, or why none can.
The answer, a `Region`, is what the fuse pass decides with and what the generators of C and CUDA
write code from; it knows neither of them.

The model. All nodes of a region run over one iteration space, whose axes are *loops*, outermost
first. Each value depends on some of the loops. Reductions come in two kinds. A **row fold**
reduces the row loops ``R``, the same ones for every row fold; its result is known when a pass over
the row is over, and later passes over the same row may use it: a softmax is three passes over a
row that stays in the cache, and one pass over memory. A **cross fold** reduces other loops,
across rows; its result is known only when all rows are done, and feeds the *epilogue*, which runs
over the kept axes at the end: the column sums of a bias gradient, and the bias minus rate times
them.

Where the innermost loop is not reduced, but ``R`` is (batch norm over the batch), the kernel
takes a strip of the innermost axis at a time, and a "row" is that strip of columns. Rows that are
too short for a vector loop (ten classes) are put side by side in strips, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir import dims
from ...ir.graph import Graph, Node, topological
from .access import (
    Access,
    Loop,
    Output,
    Track,
    axes_of_loops,
    is_unit,
    join_loops,
    part_tracks,
    read_track,
)
from .axes import Refused
from .parts import Fold, Refusal, Region, Value, indexed
from .reading import Reading

__all__ = [
    "Access",
    "Fold",
    "Loop",
    "Output",
    "Refusal",
    "Region",
    "Value",
    "analyze",
    "analyze_for_gpu",
]

MAX_NODES = 96
MAX_OPERANDS = 48
MAX_ROW_BYTES = 1 << 20
WIDE_ROW = 2048
NARROW_ROW = 32
FULL_ROW = 16  # elements that fill whole vectors; fewer rows side by side do not
STRIP = 16


def analyze(
    body: Graph,
    hints: Mapping[str, int] | None = None,
    *,
    strips: bool = True,
    vectors: bool = True,
) -> Region | Refusal:
    """Say how one kernel can compute a body graph, or why none can.

    Parameters
    ----------
    body
        A graph whose inputs are parameters. Its nodes are elementwise operations, reductions,
        layout operations, scalar constants, and counters (positions, random bits).
    hints
        Expected sizes of named dimensions. They serve to refuse rows that would not stay in the
        cache; the region itself does not depend on them.
    strips
        Whether rows that are too short for a vector loop are put side by side; else the loop along
        them stays the innermost one.
    vectors
        Whether rows of `FULL_ROW` elements, and rows that are few, stay rows all the same, as a
        processor's vectors want it.

    Returns
    -------
    Region or Refusal

    Examples
    --------
    >>> import magmagraph as mg
    >>> from magmagraph.ir.graph import freeze
    >>> from magmagraph.ops.leaf import parameter
    >>> x = parameter(0, mg.var("x", shape=(8, 100)).type)
    >>> region = analyze(freeze([x], [mg.exp(x) / mg.sum(mg.exp(x), axis=1, keepdims=True)]))
    >>> region.row, region.passes, region.bytes
    (frozenset({1}), 2, 6400)
    >>> analyze(freeze([x], [mg.reshape(mg.exp(x), (800,))])).reason
    'reshape of a computed value joins or splits axes'
    """
    verdict = body.analysis(_judged, strips, vectors)
    if hints and isinstance(verdict, Region):
        return _row_refusal(verdict, hints) or verdict
    return verdict


def analyze_for_gpu(body: Graph) -> Region | Refusal:
    """Analyze a body for a GPU: short rows stay rows, since a warp computes several of them.

    The CPU puts such rows side by side because its vectors are longer. A sum across rows keeps the
    CPU's form, whose columns a GPU shares among its blocks.
    """
    region = analyze(body, vectors=False)
    if isinstance(region, Region) and region.row and region.strip:
        if all(fold.row for fold in region.folds):
            along = analyze(body, strips=False)
            if isinstance(along, Region) and not along.strip:
                return along
    return region


def _judged(body: Graph, strips: bool, vectors: bool) -> Region | Refusal:
    """Return what holds for all sizes, which several passes and the code generators ask for."""
    # The body keeps the answer, which holds a copy: else the two would hold each other.
    same = Graph(body.inputs, body.outputs, body.updates, body.interner)
    try:
        region = _analyze(same, strips, vectors)
    except Refused as refused:
        return Refusal(refused.reason, refused.node)
    return _row_refusal(region, {}) or region


def _analyze(body: Graph, strips: bool, vectors: bool) -> Region:
    if len(body.inputs) + len(body.outputs) > MAX_OPERANDS:
        raise Refused(f"more than {MAX_OPERANDS} operands and results")
    reading = Reading(body)
    if sum(1 for node in reading.nodes if node.inputs) > MAX_NODES:
        raise Refused(f"more than {MAX_NODES} nodes")
    choices = _row_choices(reading, vectors)
    for row in choices[:-1]:
        try:
            return Builder(reading, row, strips, vectors).build()
        except Refused:
            continue  # as a cross fold it may still do
    return Builder(reading, choices[-1], strips, vectors).build()


def _row_choices(reading: Reading, vectors: bool) -> list[frozenset[int]]:
    """Return the sets of classes that row folds may reduce, the best first.

    A GPU shares out the rows of columns by their number at each call, so that named rows are not
    taken for few.
    """
    folds = {node: gone for node, gone in reading.reduced.items() if gone}
    if not folds:
        return [frozenset()]
    inner: dict[Node, frozenset[int]] = {}
    below: dict[Node, frozenset[Node]] = {}
    for node in reading.nodes:
        seen = frozenset[Node]()
        for operand in node.inputs:
            more = below.get(operand)
            if more and more is not seen:
                seen = seen | more if seen else more
        if seen:
            axes = reading.along(node)
            for fold in seen:
                if node in folds or folds[fold] & axes:
                    inner[fold] = folds[fold]
        below[node] = seen | {node} if node in folds else seen
    if inner:
        row, *others = inner.values()
        if any(other != row for other in others):
            raise Refused("values inside it are reduced over different axes", next(iter(inner)))
        return [row]
    choices: list[frozenset[int]] = []
    for node, gone in folds.items():
        operand = node.inputs[0]
        along = [c for c in reading.classes.of(operand) if c is not None]
        kept = [reading.classes.extent(c) for c in along if c not in gone]
        if not kept:
            continue
        size = dims.size(tuple(kept))
        rows = dims.size(tuple(reading.classes.extent(c) for c in along if c in gone))
        wide = isinstance(size, int) and size >= WIDE_ROW
        # Whether columns are too few to share out.
        tall = wide and (rows >= size if isinstance(rows, int) else not vectors)
        if along[-1] in gone or (wide and not tall):
            choices.append(gone)
            break
    return [*choices, frozenset()]


class Builder:
    """Build a region, once the axes of row reductions are chosen, and answer queries about it."""

    def __init__(
        self, reading: Reading, row: frozenset[int], strips: bool, vectors: bool
    ) -> None:
        self.reading = reading
        self.row = row
        self.strips, self.vectors = strips, vectors
        self.cross = {
            node for node, gone in reading.reduced.items() if gone and (gone != row or not row)
        }
        self.epilogue: set[Node] = set()
        self.phase: dict[Node, int] = {}
        for node in reading.nodes:
            late, phase = False, 0
            for operand in node.inputs:
                late = late or operand in self.epilogue
                phase = max(phase, self.phase.get(operand, 0))
            if late and node in reading.reduced:
                raise Refused("a reduction across rows is reduced again", node)
            if late or node in self.cross:
                self.epilogue.add(node)
            row_fold = bool(reading.reduced.get(node)) and node not in self.cross
            self.phase[node] = phase + 1 if row_fold else phase
        self.folded = [node for node in reading.nodes if reading.reduced.get(node)]
        self.main = [node for node in reading.body.outputs if node not in self.epilogue]
        self.late = [node for node in reading.body.outputs if node in self.epilogue]
        self.space = reading.of([*self.main, *(node.inputs[0] for node in self.folded)])
        self._check()

    def _check(self) -> None:
        outer = self.space - self.row
        for node in self.folded:
            axes = self.reading.of(node.inputs)
            if axes != self.space and not (node in self.cross and self.row and axes == outer):
                raise Refused("a reduction does not run over all of the region's axes", node)
        for node in self.main:
            axes = self.reading.along(node)
            if axes != self.space and not (self.row and axes == outer):
                raise Refused("an output has other axes than the rest of the region", node)
        reached = topological(
            self.late, stop=lambda n: n in self.cross or n in self.reading.parameter
        )
        for node in reached:
            if self.phase[node] and node not in self.epilogue:
                raise Refused(
                    "the result of a reduction over all rows is combined with single rows", node
                )

    def build(self) -> Region:
        """Return the region."""
        self._arrange()
        row = frozenset(self.position[c] for c in self.row)
        return Region(
            body=self.reading.body,
            loops=self.loops,
            depth=self.depth,
            row=row,
            strip=bool(self.depth) and self.depth - 1 not in row,
            passes=1 + self._last_phase(),
            details=self,
        )

    def _last_phase(self) -> int:
        """Return the last pass that feeds a fold or an output with single elements."""
        seen = [*(node.inputs[0] for node in self.folded), *self.reading.body.outputs]
        return max((self.phase[node] for node in seen if self._element(node)), default=0)

    def _element(self, node: Node) -> bool:
        """Return whether a value is seen along all loops; a row has one of it otherwise."""
        return not self.row or self.reading.along(node) == self.space

    def widest(self) -> int:
        """Return a bound of the bytes that each element of a row may take."""
        return sum(8 + node.dtype.itemsize for node in self.reading.nodes)

    def accesses(self) -> dict[Node, Access]:
        """Return the reads of parameters."""
        reading = self.reading
        return {
            node: Access(
                reading.parameter[node],
                node,
                reading.views[node],
                axes_of_loops(reading.classes.of(node), self.loops),
                node not in reading.joined and self._unit(node, reading.views[node]),
                reading.joined.get(node),
            )
            for node in reading.nodes
            if node in reading.parameter and reading.source[node] is node
        }

    def counters(self) -> dict[Node, tuple[int | None, ...]]:
        """Return what differs by position alone, with the axes that loops step along."""
        reading = self.reading
        return {
            node: axes_of_loops(reading.classes.of(node), self.loops) for node in reading.counters
        }

    def folds(self) -> tuple[Fold, ...]:
        """Return the reductions in the order of the body."""
        return tuple(map(self._fold, self.folded))

    def outputs(self) -> tuple[Output, ...]:
        """Return the writes of the body's outputs."""
        return tuple(
            Output(
                i,
                node,
                axes_of_loops(self.reading.classes.of(node), self.loops),
                self._unit(node, ()),
                self.phase[node],
                self._element(node),
                node in self.epilogue,
            )
            for i, node in enumerate(self.reading.body.outputs)
        )

    def _arrange(self) -> None:
        """Order the axis classes, and join those that are contiguous in all operands."""
        reading, of = self.reading, self.reading.classes.of
        leading = [
            *(n for n in self.main if reading.along(n) == self.space),
            *(n for n in reading.parameter if reading.along(n) == self.space),
            *(node.inputs[0] for node in self.folded),
        ]
        order = [c for c in of(leading[0]) if c is not None] if leading else []
        if set(order) != self.space:
            raise Refused("no value runs over all of the region's axes")
        main = len(order)
        if self.strips and self._narrow(order):
            order.sort(key=lambda c: c not in self.row)  # rows side by side in a strip
        for node in (*self.late, *reading.parameter):
            order += [c for c in of(node) if c is not None and c not in order]
        tracks: list[Track] = []
        for n in reading.parameter:
            if n in reading.joined:
                tracks += part_tracks(n, reading.joined[n], of(n))
            else:
                tracks.append(read_track(n, reading.views[n], of(n)))
        tracks += [Track(classes) for classes in dict.fromkeys(map(of, reading.body.outputs))]
        tracks += [Track(reading.counted(n)) for n in reading.counters]
        groups = [self.space, self.row, *reading.reduced.values()]
        for node in self.folded:
            if indexed(node.op):
                gone = reading.reduced[node]
                tracks.append(Track([c for c in of(node.inputs[0]) if c in gone]))
        self.loops = join_loops(order, tracks, groups, reading.classes)
        self.position = {c: i for i, loop in enumerate(self.loops) for c in loop.classes}
        self.depth = len({self.position[c] for c in order[:main]})

    def _narrow(self, order: Sequence[int]) -> bool:
        """Return whether rows are too short for a vector loop along them."""
        if not self.row or order[-1] not in self.row or len(self.row) == len(order):
            return False
        extent = self.reading.classes.extent
        count = dims.size(tuple(map(extent, self.row)))
        if not isinstance(count, int) or count > NARROW_ROW:
            return False
        if not self.vectors or any(indexed(node.op) for node in self.folded):
            return True
        rows = dims.size(tuple(extent(c) for c in order if c not in self.row))
        few = isinstance(rows, int) and rows < FULL_ROW
        return not (few or count % FULL_ROW == 0)

    def _unit(self, node: Node, views: tuple[Node, ...]) -> bool:
        """Return whether the innermost loop of the iteration space steps by one element."""
        if not self.depth:
            return False
        axis = axes_of_loops(self.reading.classes.of(node), self.loops)[self.depth - 1]
        return is_unit(node, views, axis)

    def _loops_of(self, node: Node) -> frozenset[int]:
        return frozenset(self.position[c] for c in self.reading.along(node))

    def values(self) -> dict[Node, Value]:
        """Return the analysis of each node."""
        reading, classes_of = self.reading, self.reading.classes.of
        values: dict[Node, Value] = {}
        loops_of: dict[tuple[int | None, ...], frozenset[int]] = {}  # a body has few shapes
        for node in reading.nodes:
            source = reading.source[node]
            classes = classes_of(node)
            along = loops_of.get(classes)
            if along is None:
                along = loops_of[classes] = self._loops_of(node)
            shape_loops = along
            if source is not node:
                loops = values[source].loops
            elif node in reading.counters:
                counted = (c for c in reading.counted(node) if c is not None)
                loops = frozenset(self.position[c] for c in counted)
            elif node in reading.parameter:
                loops = shape_loops
            else:
                loops = frozenset[int]()
                for operand in node.inputs:
                    more = values[operand].loops
                    if more is not loops:
                        loops = loops | more if loops else more
                if reading.reduced.get(node):
                    loops = shape_loops
            late = node in self.epilogue
            values[node] = Value(node, source, loops, shape_loops, self.phase[node], late)
        return values

    def _fold(self, node: Node) -> Fold:
        operand = node.inputs[0]
        gone = self.reading.reduced[node]
        order = dict.fromkeys(
            self.position[c] for c in self.reading.classes.of(operand) if c in gone
        )
        kept = self._loops_of(operand) - frozenset(order)
        return Fold(
            node=node,
            operand=operand,
            reduced=tuple(order),
            kept=tuple(sorted(kept)),
            row=node not in self.cross,
            phase=self.phase[operand],
            element=self._element(operand),
        )


def _row_refusal(region: Region, sizes: Mapping[str, int]) -> Refusal | None:
    """Refuse rows that are passed over several times and would not stay in the cache."""
    if region.passes == 1:
        return None
    row = region.extent(region.row) * (STRIP if region.strip else 1)
    if not dims.names(row) <= sizes.keys():
        return None
    length = dims.evaluate(row, sizes)
    if length * region.details.widest() <= MAX_ROW_BYTES:
        return None
    read = sum(
        node.dtype.itemsize for node in region.accesses if region.values[node].loops & region.row
    )
    if length * (read + 8 * len(region.values)) <= MAX_ROW_BYTES:
        return None  # whatever is saved: that takes a walk to find out
    count = length * (read + 8 * len(region.saved))
    if count <= MAX_ROW_BYTES:
        return None
    return Refusal(f"a row takes {count} bytes, and is passed over {region.passes} times")
