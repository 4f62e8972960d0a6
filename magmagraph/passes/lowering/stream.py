"""Place steps on streams: which wait for which, by the memory that they touch, and what costs most.

The chain of steps that takes the longest has the first stream. What it does not wait for runs
beside it; what fills the device takes turns on one stream. A step waits for the last writers of
what it reads or writes, and for the readers, since then, of what it writes.

Before::

    step  kernel  computes
       0  gemm    s3 = x @ W
       1  gemm    s4 = x @ V
       2  fused   result 0 = add of s3, s4

After::

    step  kernel  stream  computes
       0  gemm         0  s3 = x @ W
       1  gemm         1  s4 = x @ V
       2  fused        0  result 0 = add of s3, s4; after step 1

Numerics: `exact`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Set
from dataclasses import replace

from ...ir.op import Kind
from ...ir.plan import WHOLE, Plan, Role, Step
from ...ir.ranges import PlanRanges, Touched, dependencies
from ...ir.target import Target
from ...ops.control.loop import LOOP
from ..report import Record

__all__ = ["BESIDE", "STREAMS", "assign", "joins", "stream"]

STREAMS = 4
BESIDE = 3  # streams beside the longest chain

SIDE_BY_SIDE = "run beside the longest chain"
_SHARED = (-1, 0)  # the workspace that steps of libraries share
# What sends messages, or repeats a plan of its own, is placed when it is captured.
_REPEATED = (Role.NESTED, Role.COLLECTIVE, Role.WAIT)


def stream(
    plan: Plan, target: Target, notes: Record, sharing: Set[int] = frozenset()
) -> Plan:
    """Return a plan whose steps have streams, and the steps of other streams that each waits for.

    Parameters
    ----------
    plan
        Each step is one launch, and the arena is laid out.
    target
        What it is for; plans for the CPU stay as they are.
    notes
        Where hits and refusals are noted.
    sharing
        Steps of libraries that work in the one workspace which they share.
    """
    if target.device == "cpu" or not plan.steps:
        return plan
    units = _units(plan)
    ranges = PlanRanges(plan)
    touched: list[Touched] = []
    for unit in units:
        each = [ranges.touched(plan.steps[number]) for number in unit]
        written = [place for one in each for place in one.written]
        if not sharing.isdisjoint(unit):
            written.append(_SHARED)
        touched.append(Touched(tuple(p for one in each for p in one.read), tuple(written)))
    # Across segments, too: where the runtime makes one graph of two, all that is needed is there.
    waits = dependencies(touched)
    chosen = [-1] * len(units)
    for segment in _segments(plan, units):
        repeated = [n for i in segment for n in units[i] if _is_repeated(plan.steps[n])]
        for number in repeated:
            notes.refuse(
                SIDE_BY_SIDE, plan.steps[number].node,
                "steps before and after it are placed when its launches are captured",
            )
        if not repeated:
            first = segment[0]
            within = [{other - first for other in waits[i] if other >= first} for i in segment]
            costs = [_cost(plan, units[i]) for i in segment]
            for i, place in zip(segment, assign(within, costs), strict=True):
                chosen[i] = place
    joined = joins(waits, chosen)
    steps: list[Step] = []
    for unit, place, others in zip(units, chosen, joined, strict=True):
        if place < 0:
            steps += [plan.steps[number] for number in unit]
            continue
        ended = tuple(sorted(units[other][-1] for other in others if chosen[other] >= 0))
        for number in unit:
            waited = ended if number == unit[0] else ()
            steps.append(replace(plan.steps[number], stream=place, waits=waited))
    beside = sum(bool(step.stream) for step in steps)
    if beside:
        notes.hit(SIDE_BY_SIDE, beside)
    return replace(plan, steps=tuple(steps))


def _cost(plan: Plan, unit: range) -> float:
    return min(1 + sum(plan.steps[number].cost - 1 for number in unit), WHOLE)


def _units(plan: Plan) -> list[range]:
    """Return the runs of steps that are placed as one."""
    starts = [number for number, step in enumerate(plan.steps) if not step.follows]
    return [range(*pair) for pair in itertools.pairwise([*starts, len(plan.steps)])]


def _segments(plan: Plan, units: Sequence[range]) -> list[range]:
    """Return the runs of units that are captured as one graph: without what runs in Python.

    At the commit point the host looks whether new values are finite, where that is asked for.
    """
    segments: list[range] = []
    begun = 0
    for number, unit in enumerate(units):
        step = plan.steps[unit[0]]
        cut = _runs_in_python(step)
        if cut or (plan.guard and unit[0] == plan.commit):
            segments.append(range(begun, number))
            begun = number + cut
    segments.append(range(begun, len(units)))
    return [segment for segment in segments if segment]


def _runs_in_python(step: Step) -> bool:
    """Return whether a step is an array expression that is no copy of a window, and no loop."""
    window = step.node.op.kind is Kind.LAYOUT and "starts" in step.node.attrs
    return step.role is Role.EXPRESSION and not window and step.node.op is not LOOP


def _is_repeated(step: Step) -> bool:
    return step.role in _REPEATED or (step.role is Role.EXPRESSION and step.node.op is LOOP)


def assign(
    waits: Sequence[set[int]], costs: Sequence[float] | None = None, streams: int = STREAMS
) -> list[int]:
    """Return a stream for each step: that of a step it waits for, if it is the last there.

    Parameters
    ----------
    waits
        The earlier steps that each waits for.
    costs
        About how long each takes, if not all are short: 1 and less is short. Then the dearest
        chain of steps that wait for each other has the first stream; the others begin as early as
        they can on streams beside it, but those that fill the device take turns on one.
    streams
        The most streams, where all steps are short.

    Examples
    --------
    >>> assign([set(), {0}, {0}, {1, 2}])
    [0, 0, 1, 0]
    >>> assign([set(), {0}, {0}, {2}], [2, 2, 2, 1])
    [0, 1, 0, 0]
    """
    if costs is not None and max(costs, default=0) > 1:
        return _beside(waits, costs)
    last: list[int] = []
    chosen: list[int] = []
    for number, before in enumerate(waits):
        behind = [s for s, step in enumerate(last) if step in before]
        if behind:
            stream = min(behind, key=lambda s: -last[s])
            if len(behind) > 1:
                stream = behind[0]
        elif len(last) < streams:
            stream = len(last)
            last.append(number)
        else:
            # The stream whose last step lies the furthest back holds it up the least.
            stream = min(range(len(last)), key=lambda s: last[s])
        last[stream] = number
        chosen.append(stream)
    return chosen


def _beside(waits: Sequence[set[int]], costs: Sequence[float]) -> list[int]:
    """Return 0 for the dearest chain of steps that wait for each other, streams for all others."""
    chain = _dearest(waits, costs)
    ends: list[float] = []
    free = [0.0] * (1 + BESIDE)
    last = [-1] * (1 + BESIDE)
    chosen: list[int] = []
    for number, before in enumerate(waits):
        ready = max((ends[other] for other in before), default=0.0)

        def begins(
            stream: int, ready: float = ready, before: set[int] = before
        ) -> tuple[float, bool]:
            return max(ready, free[stream]), last[stream] not in before

        place = 0 if number in chain else 1
        if place and costs[number] < WHOLE:
            place = min(range(1, 1 + BESIDE), key=begins)
        ends.append(begins(place)[0] + costs[number])
        free[place], last[place] = ends[number], number
        chosen.append(place)
    return chosen


def _dearest(waits: Sequence[set[int]], costs: Sequence[float]) -> set[int]:
    """Return the chain of steps, each waiting for the one before it, that takes the longest."""
    behind: list[list[int]] = [[] for _ in waits]
    for number, before in enumerate(waits):
        for other in before:
            behind[other].append(number)
    length = [0.0] * len(waits)
    for number in range(len(waits) - 1, -1, -1):
        after = max((length[other] for other in behind[number]), default=0.0)
        length[number] = costs[number] + after
    chain: set[int] = set()
    following = list(range(len(waits)))
    while following:
        number = max(following, key=lambda other: (length[other], -other))
        chain.add(number)
        following = behind[number]
    return chain


def joins(waits: Sequence[set[int]], chosen: Sequence[int]) -> list[set[int]]:
    """Return the steps of other streams whose end each step has to wait for.

    What a step of the same stream has waited for before is over.

    Examples
    --------
    >>> joins([set(), set(), {0, 1}, {0, 1}], [0, 1, 1, 1])
    [set(), set(), {0}, set()]
    """
    over: dict[tuple[int, int], int] = {}  # the last step of a stream that another waited for
    result: list[set[int]] = []
    for number, before in enumerate(waits):
        mine = chosen[number]
        latest: dict[int, int] = {}
        for other in before:
            if chosen[other] != mine:
                latest[chosen[other]] = max(other, latest.get(chosen[other], -1))
        writers = {
            other for stream, other in latest.items() if over.get((mine, stream), -1) < other
        }
        for other in writers:
            over[mine, chosen[other]] = other
        result.append(writers)
    return result
