"""What each pass of a region computes: the order in which a kernel does its work.

For one row (an index of the outer loops, or a strip of them) a kernel goes through stages and
passes in turn::

    stage 0, pass 0, stage 1, pass 1, ..., and at the very end the epilogue

A *stage* computes what a row has one of; a *pass* runs over the row's elements, stores outputs
and feeds folds. A pass computes again what it needs of earlier passes, unless it is saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..graph import Node
from ..locking import cached_property
from ..op import Kind

if TYPE_CHECKING:
    from .access import Output
    from .parts import Fold, Region

# C functions of a few instructions: what calls no other is cheaper to compute than to load.
_CHEAP = frozenset(
    ("fabs", "maximum", "minimum", "lowest", "highest", "sqrt", "floor", "ceil", "rint", "trunc",
     "left_shift", "right_shift", "copysign", "greater_or_nan", "less_or_nan")
)
_CALL = re.compile(r"\$(\w+)")


def costly(node: Node) -> bool:
    """Return whether a value is dear enough to be kept rather than computed again."""
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
            first = next(i for i, nodes in enumerate(self._all) if again in nodes)
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
        """Return the nodes that hold a node's operands; what is read from memory has none."""
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
        found = [f.operand for f in self.folds(index, element=element)]
        found += [o.node for o in self.outputs(index, element=element)]
        return [self.source(node) for node in found]

    def reach(self, roots: Iterable[Node], stop: Iterable[Node] = ()) -> list[Node]:
        """Return what the roots need of values, operands first, down to reads and to `stop`."""
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
        """Return the dear node nearest to the outputs that a later pass would compute again."""
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
        """Return what a stage computes, and what it reads for that."""
        own = {n for n in needed if self.region.values[n].phase == index and self.of_row(n)}
        read = {o for n in own if self.region.values[n].phase == index for o in self.operands(n)}
        read.update(self.sinks(index, element=False))
        return [n for n in needed if n in own or (n in read and not self.of_row(n))]


def in_place(region: Region, walk: Walk) -> frozenset[tuple[int, int]]:
    """Return the pairs (parameter, output) where the output may lie in the parameter's memory.

    It must be read element by element as the output is written, never after that, and never by
    another thread.
    """
    tracks = {node: _place(region, node) for node in region.accesses}
    readers: dict[int, list[Node]] = {}
    for node, access in region.accesses.items():
        readers.setdefault(access.parameter, []).append(node)
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
    if not all(view.op.layout.alias for view in access.views):
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
        return node not in walk.reach(later, folds)
    for other in region.outputs:
        if other.epilogue:
            folds = {fold.node for fold in region.folds}
            if node in walk.reach([walk.source(other.node)], folds):
                return False
    if output.element:
        # A row's own value that is written over would be another row's input only if loops differ.
        return last_pass <= output.phase and last_stage <= output.phase
    return last_pass < output.phase and last_stage <= output.phase

