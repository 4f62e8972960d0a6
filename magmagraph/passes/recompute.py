"""Compute values again instead of keeping them, until a program fits into a limit of memory.

Before::

    %0 = input() : float32[64, 64]  # m
    %1 = sort(%0, axis=0) : float32[64, 64]
    %2 = sort(%1, axis=1) : float32[64, 64]
    %3 = sort(%2, axis=0) : float32[64, 64]
    %4 = sort(%3, axis=1) : float32[64, 64]
    %5 = divide(%4, %1) : float32[64, 64]
    return %5

After, with a limit of 70,000 bytes::

    %0 = input() : float32[64, 64]  # m
    %1 = sort(%0, axis=0) : float32[64, 64]
    %2 = sort(%1, axis=1) : float32[64, 64]
    %3 = sort(%2, axis=0) : float32[64, 64]
    %4 = sort(%3, axis=1) : float32[64, 64]
    %5 = recompute(%0, uid=0, position=0) : float32[64, 64]
    %6 = sort(%5, axis=0) : float32[64, 64]
    %7 = divide(%4, %6) : float32[64, 64]
    return %7

What is kept is chosen over the values that are alive at the peak, in the order in which they are
made. Between two that are kept all are computed again together, each once. A dynamic program over
these segments finds the least work within a budget of bytes: the least of all such choices where
each value is made of the one before it and the late readers come in the reverse order (a chain, and
its gradient). In other graphs it is a proposal. Every proposal is scheduled and laid out, and
counts with the bytes that its plan has; there are at most `ROUNDS` times `PROPOSALS` of them.
Values do not change: `exact`.
"""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..ir import dims
from ..ir.graph import Graph, Node, Trace
from ..ir.op import Effect, Kind
from ..ir.plan import Place, Plan
from ..ir.records import record
from ..ops.control.differentiation import RECOMPUTE
from .lowering.buffers import buffer_of, is_leaf, is_step, types_of
from .lowering.lower import lower
from .lowering.memory import Placement, account, memory
from .lowering.schedule import schedule
from .lowering.specialize import rounded, specialize
from .lowering.timeline import readable
from .pipeline import Options
from .report import Record

__all__ = ["recompute", "step_cost"]

RULE = "computed again"
ROUNDS = 4  # peaks that are lowered one after the other
PROPOSALS = 12  # plans that are tried for a peak
GROUPS = 32  # places of the dynamic program: neighbours share one where there are more values
FRONT = 64  # choices that are kept for each place, and budgets that are tried
FLOPS_A_BYTE = 8.0  # arithmetic that takes as long as to move one byte, about


def recompute(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return a graph that fits into the limit, or the smallest that was found."""
    limit = options.memory_limit
    if limit is None or graph.order is not None:
        return graph
    try:
        now = _laid_out(graph, options)
    except KeyError as unknown:
        options.record.refuse(RULE, graph.roots[0], f"the size of {unknown} is not known yet")
        return graph
    uids = itertools.count(_last_uid(graph) + 1)
    for _ in range(ROUNDS):
        if now.total <= limit:
            break
        better = _lowered(now, limit, trace, options, uids)
        if better is None:
            why = f"{readable(now.total)}, and the limit is {readable(limit)}: "
            why += "no choice of what is kept over this step takes less"
            options.record.refuse(RULE, now.holder(), why)
            break
        now = better
    return now.graph


@record(frozen=True, eq=False)
class _LaidOut:
    """A graph with the memory that its plan takes.

    Attributes
    ----------
    graph
        Without an order.
    placement
        Of its schedule.
    plan
        Bound to the expected sizes.
    total
        All bytes.
    """

    graph: Graph
    placement: Placement
    plan: Plan
    total: int

    def profile(self) -> list[int]:
        """Return the bytes of the arena that are alive in each of the placement's steps."""
        steps = self.placement.steps
        change = [0] * (len(steps) + 2)
        for slot in self.placement.slots:
            if slot.place is Place.ARENA:
                size = rounded(int(self.plan.slots[slot.index].size))
                change[max(slot.first, 0)] += size
                change[min(slot.last, len(steps)) + 1] -= size
        alive = [*itertools.accumulate(change)][: len(steps)]
        position = {node: i for i, node in enumerate(steps)}
        for step in self.plan.steps:
            if step.workspace is not None and step.node in position:
                size = rounded(int(self.plan.slots[step.workspace].size))
                alive[position[step.node]] += size
        return alive

    def peak(self) -> int:
        """Return the position of the step in which most is alive."""
        profile = self.profile()
        return max(range(len(profile)), key=profile.__getitem__, default=0)

    def holder(self) -> Node:
        """Return the step at the peak, or a root where there are no steps."""
        steps = self.placement.steps
        return steps[self.peak()] if steps else self.graph.roots[0]


def _laid_out(graph: Graph, options: Options) -> _LaidOut:
    """Schedule a graph and lay its memory out, as the passes after this one do.

    Raises
    ------
    KeyError
        The size of a dimension is not known.
    """
    silent = replace(options, record=Record("recompute"))
    trace = Trace()
    placed = memory(schedule(graph, trace, silent), trace, silent)
    plan = lower(placed, trace, silent)
    unknown = _names(plan) - options.hints.keys()
    if unknown:
        raise KeyError(", ".join(sorted(unknown)))
    target = options.target
    bound = specialize(plan, options.hints, 64 if target.device == "cpu" else 256, target.spread)
    return _LaidOut(graph, placed.placement, bound, int(account(bound).total))


def _names(plan: Plan) -> set[str]:
    return {
        name
        for slot in plan.slots
        for name in (dims.names(slot.size) if isinstance(slot.size, dims.Dim) else ())
    }


@record(frozen=True, eq=False)
class _Kept:
    """Steps whose results are alive at the peak, and read after it; one, or neighbours.

    Attributes
    ----------
    nodes
        The steps.
    bytes
        Of these results.
    cost
        What it takes to run them again, with the steps before them whose results are gone.
    """

    nodes: tuple[Node, ...]
    bytes: int
    cost: float


def _lowered(
    now: _LaidOut, limit: int, trace: Trace, options: Options, uids: Iterator[int]
) -> _LaidOut | None:
    """Return a graph with a lower peak: the cheapest that fits, else the smallest; or None."""
    peak = now.peak()
    kept_values = _candidates(now, peak)
    if not kept_values:
        return None
    candidates = _grouped(kept_values)
    choices = _curve(candidates)
    best: tuple[bool, float, int] | None = None
    chosen: tuple[_LaidOut, list[tuple[Node, Node]], float, list[Node]] | None = None
    low, high = 0, len(choices) - 1  # the cheapest that fits is here, where others do as well
    rest = list(range(len(choices)))
    for _ in range(PROPOSALS):
        halving = low <= high
        if halving:
            at = (low + high) // 2
        elif best is not None and best[0] and rest:
            at = rest[-1]  # nothing fits: those of the least bytes that were not tried
        else:
            break
        rest.remove(at)
        kept = choices[at][2]
        nodes = [
            node for i, each in enumerate(candidates) if i not in kept for node in each.nodes
        ]
        smaller, pairs, cost = _without(now, nodes, peak, uids)
        laid_out = _laid_out(smaller, options)
        fits = laid_out.total <= limit
        rank = (not fits, cost if fits else laid_out.total, laid_out.total)
        if best is None or rank < best:
            best, chosen = rank, (laid_out, pairs, cost, nodes)
        if halving:
            low, high = (low, at - 1) if fits else (at + 1, high)
    if chosen is None or chosen[0].total >= now.total:
        return None
    better, pairs, cost, nodes = chosen
    for old, new in pairs:
        trace.replace(old, new, "recompute", RULE)
    options.record.hit(RULE, len(nodes))
    whole = sum(step_cost(step) for step in now.plan.steps) or 1.0
    options.record.note(
        f"{len(nodes)} steps run again: {readable(now.total - better.total)} less, "
        f"{readable(better.total)} in all; about {100 * cost / whole:.0f} % more work"
    )
    return better


def step_cost(step: object) -> float:
    """Return the work of a step, in bytes that take as long to move."""
    bytes_, flops = getattr(step, "bytes", 0), getattr(step, "flops", 0)
    return float(bytes_) + float(flops) / FLOPS_A_BYTE


def _costs(plan: Plan) -> dict[Node, float]:
    return {step.node: step_cost(step) for step in plan.steps}


def _again(node: Node) -> bool:
    """Return whether a step may run twice, and can be told from its first run."""
    return (
        node.op.effect in (Effect.PURE, Effect.RANDOM)
        and node.op.kind is not Kind.COLLECTIVE
        and bool(node.inputs)
    )


def _readers(graph: Graph, position: Mapping[Node, int]) -> dict[Node, list[int]]:
    """Return, for each step, the positions of the steps that read a result of it."""
    readers: dict[Node, list[int]] = {}
    for node, at in position.items():
        for operand in node.inputs:
            readers.setdefault(buffer_of(operand)[0], []).append(at)
    return readers


def _kept_over(
    graph: Graph, placement: Placement, peak: int
) -> tuple[set[Node], dict[Node, int]]:
    """Return the steps before the peak whose results are there after it, and all positions."""
    position = {node: i for i, node in enumerate(placement.steps)}
    readers = _readers(graph, position)
    roots = {buffer_of(root)[0] for root in graph.roots}
    kept = {
        node
        for node in placement.steps[:peak]
        if node in roots or any(at > peak for at in readers.get(node, ()))
    }
    return kept, position


def _candidates(now: _LaidOut, peak: int) -> list[_Kept]:
    """Return what is kept over the peak and may be made again, in the order of making."""
    graph, placement = now.graph, now.placement
    steps, slots = placement.steps, now.plan.slots
    roots = {buffer_of(root)[0] for root in graph.roots}
    kept, _ = _kept_over(graph, placement, peak)
    late = {buffer_of(operand) for reader in steps[peak + 1 :] for operand in reader.inputs}
    at_peak = {buffer_of(operand)[0] for operand in steps[peak].inputs} if steps else set()
    costs = _costs(now.plan)
    candidates = []
    for node in steps[:peak]:
        if node not in kept or node in roots or node in at_peak or not _again(node):
            continue
        places = [
            slots[placement.slot_of[node, index]]
            for index in range(len(types_of(node)))
            if (node, index) in late
        ]
        size = sum(rounded(int(slot.size)) for slot in places if slot.place is Place.ARENA)
        gone = _gone(node, kept) if size else None
        if gone is not None:
            candidates.append(_Kept((node,), size, sum(costs.get(n, 0.0) for n in (node, *gone))))
    return candidates


def _grouped(candidates: Sequence[_Kept]) -> list[_Kept]:
    """Return candidates in at most `GROUPS` groups of neighbours."""
    width = -(-len(candidates) // GROUPS)
    parts = [candidates[i : i + width] for i in range(0, len(candidates), width)]
    return [
        _Kept(
            tuple(node for each in part for node in each.nodes),
            sum(each.bytes for each in part),
            sum(each.cost for each in part),
        )
        for part in parts
    ]


def _gone(node: Node, spans: set[Node]) -> list[Node] | None:
    """Return the steps before one whose results are not kept over the peak; None: one must not."""
    removed: dict[Node, None] = {}
    pending = [node]
    while pending:
        for operand in pending.pop().inputs:
            maker = buffer_of(operand)[0]
            if is_leaf(maker) or maker in spans or maker in removed:
                continue
            if not _again(maker):
                return None
            removed[maker] = None
            pending.append(maker)
    return [*removed]


_Choice = tuple[int, float, tuple[int, ...]]  # bytes, cost, the places of what is kept


def _all_choices(candidates: Sequence[_Kept]) -> list[_Choice]:
    """Return the choices of least cost for budgets up to what all takes, each with its bytes."""
    sizes = [each.bytes for each in candidates]
    total = sum(sizes)
    width = max(64, -(-total // FRONT // 64) * 64)
    costs = [each.cost for each in candidates]
    return [
        (_bytes_of(sizes, chosen), cost, chosen)
        for budget in range(width, total + width, width)
        for _, cost, chosen in _choices(sizes, costs, budget)
    ]


def _bytes_of(sizes: Sequence[int], chosen: Sequence[int]) -> int:
    """Return the bytes that a choice takes where late readers come in the reverse order.

    When a segment is made again, what is kept behind it has been read, and is gone.
    """
    kept, most, begun = 0, 0, 0
    for place in (*chosen, len(sizes)):
        most = max(most, kept + sum(sizes[begun:place]))
        kept += sizes[place] if place < len(sizes) else 0
        begun = place + 1
    return max(most, kept)


def _curve(candidates: Sequence[_Kept]) -> list[_Choice]:
    """Return the choices that no other one beats, from the least cost on; last, all is dropped."""
    choices = sorted(_front(_all_choices(candidates), most=None), key=operator.itemgetter(1))
    whole = sum(each.bytes for each in candidates), sum(each.cost for each in candidates)
    if not choices or choices[-1][2]:
        choices.append((*whole, ()))
    return [choice for choice in choices if len(choice[2]) < len(candidates)]


def _choices(sizes: Sequence[int], costs: Sequence[float], budget: int) -> list[_Choice]:
    """Return choices (bytes of what is kept, cost, places) within a budget.

    Of two choices up to the same place, one with more bytes and more cost is dropped.
    """
    starts = [0, *itertools.accumulate(sizes)]
    spent = [0.0, *itertools.accumulate(costs)]
    count = len(sizes)
    # fronts[i]: choices in which place i - 1 is kept; 0 is the beginning.
    fronts: list[list[_Choice]] = [[(0, 0.0, ())]]
    for at in range(1, count + 2):
        first = bisect.bisect_left(starts, starts[at - 1] - budget)
        here = sizes[at - 1] if at <= count else 0
        own = (at - 1,) if at <= count else ()
        reached = [
            (kept + here, cost + spent[at - 1] - spent[before], (*places, *own))
            for before in range(first, at)
            for kept, cost, places in fronts[before]
            if kept + max(here, starts[at - 1] - starts[before]) <= budget
        ]
        fronts.append(_front(reached))
    return fronts[-1]


def _front(choices: Iterable[_Choice], most: int | None = FRONT) -> list[_Choice]:
    """Return the choices that no other one beats in both, at most so many of them."""
    front: list[_Choice] = []
    for choice in sorted(choices):
        if not front or choice[1] < front[-1][1]:
            front.append(choice)
    if most is not None and len(front) > most:
        front = front[:: -(-len(front) // most)] + front[-1:]
    return front


def _without(
    now: _LaidOut, dropped: Sequence[Node], peak: int, uids: Iterator[int]
) -> tuple[Graph, list[tuple[Node, Node]], float]:
    """Return the graph in which late readers read copies, the pairs of nodes, and the copies' cost.

    Parameters
    ----------
    now
        The graph as it is.
    dropped
        Steps whose results are not kept over the peak.
    peak
        The position of the step at the peak.
    uids
        Numbers of copies, each once.
    """
    graph, steps = now.graph, now.placement.steps
    make, intern_all = graph.interner.make, graph.interner.intern_all
    gone = set(dropped)
    spans, position = _kept_over(graph, now.placement, peak)
    copies: dict[Node, Node] = {}

    def is_gone(node: Node) -> bool:
        maker = buffer_of(node)[0]
        return is_step(maker) and (maker in gone or (maker in position and maker not in spans))

    def operands_of(node: Node) -> list[Node]:
        """Return the operands of a copy: copies, and what is kept behind barriers.

        By the barriers the schedule knows copies. One whose operands are leaves alone has one, too.
        """
        operands = [copies[i] if is_gone(i) else i for i in node.inputs]
        kept = [
            place
            for place, operand in enumerate(node.inputs)
            if not is_gone(operand) and not is_leaf(buffer_of(operand)[0])
        ]
        if not kept and not any(map(is_gone, node.inputs)):
            kept = [0]
        for place in kept:
            apart = RECOMPUTE(operands[place], uid=next(uids), position=place)
            operands[place] = intern_all([apart])[0]
        return operands

    def again(node: Node) -> Node:
        """Return the copy of a node whose maker is gone: of the maker, and of names for it."""
        pending = [node]
        while pending:
            copied = pending[-1]
            needed = [i for i in copied.inputs if is_gone(i) and i not in copies]
            if copied in copies:
                pending.pop()
            elif needed:
                pending += needed
            else:
                pending.pop()
                copies[copied] = make(copied, tuple(operands_of(copied)))
        return copies[node]

    late = set(steps[peak + 1 :])
    result: dict[Node, Node] = {}
    for node in graph.nodes:
        operands = []
        for operand in node.inputs:
            maker = buffer_of(operand)[0]
            replaced = node in late and maker in gone and position[maker] < peak
            operands.append(again(operand) if replaced else result.get(operand, operand))
        result[node] = make(node, tuple(operands))
    costs = _costs(now.plan)
    smaller = graph.replace(
        outputs=[result[n] for n in graph.outputs],
        updates=[(variable, result[value]) for variable, value in graph.updates],
        effects=[result[n] for n in graph.effects],
    )
    pairs = [(old, new) for old, new in copies.items() if is_step(old)]
    cost = sum(costs.get(old, 0.0) for old, _ in pairs)
    pairs += [(old, new) for old, new in result.items() if old is not new]
    return smaller, pairs, cost


def _last_uid(graph: Graph) -> int:
    """Return the largest number of a copy that the graph has already."""
    return max(
        (node.attrs["uid"] for node in graph.nodes if node.op is RECOMPUTE), default=-1
    )
