"""Overlap collectives with other steps: start them as soon as possible, wait where they are read.

One order of collectives holds on all ranks, because equal graphs are scheduled equally. A group's
collective takes its time: until the first step that reads it, others run. Sends go first, since
nobody waits for them; receives go last, since they wait for somebody.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from ...ir.graph import Node
from ...ir.op import Effect, Kind
from ...ir.records import record


@record(frozen=True)
class Problem:
    """The steps of a graph as numbers.

    Attributes
    ----------
    steps
        The nodes, in program order.
    before
        For each step, the steps that must come before it.
    makes
        For each step, the bytes that it allocates.
    reads
        For each step, the buffers (numbers) that it reads and that a step made.
    sizes
        Bytes of each buffer.
    maker
        The step that makes each buffer.
    kept
        Buffers that live to the end.
    """

    steps: tuple[Node, ...]
    before: tuple[tuple[int, ...], ...]
    makes: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    maker: tuple[int, ...]
    kept: frozenset[int]


__all__ = ["is_received", "is_started", "landings", "overlapped"]


def is_started(node: Node) -> bool:
    """Return whether a node's step may overlap with others: all ranks of a group call it."""
    return (
        node.op.kind is Kind.COLLECTIVE
        and node.op.effect is Effect.PURE
        and not is_received(node)
        and node.attrs.get("size", 1) > 1
    )


def is_received(node: Node) -> bool:
    """Return whether a node's step waits for one other rank's message."""
    return node.op.kind is Kind.COLLECTIVE and "source" in node.attrs


_SAID, _PREPARED, _OTHER, _HEARD = range(4)  # which of several steps that could run goes first


def _ranks(case: Problem, after: Sequence[Sequence[int]]) -> list[int]:
    """Return when each step goes, among those that could run.

    What nobody but a collective reads goes before other steps: the sooner that one begins.
    """
    result = [_OTHER] * len(case.steps)
    # Followers first: a step whose followers all prepare a collective prepares it, too.
    for step in reversed(_operands_first(case, after)):
        node = case.steps[step]
        if node.op.kind is Kind.COLLECTIVE:
            result[step] = _HEARD if is_received(node) else _SAID
        elif after[step] and all(result[other] in (_SAID, _PREPARED) for other in after[step]):
            result[step] = _PREPARED
    return result


def _operands_first(case: Problem, after: Sequence[Sequence[int]]) -> list[int]:
    waiting = [len(before) for before in case.before]
    order = [step for step, count in enumerate(waiting) if not count]
    for step in order:  # it grows
        for other in after[step]:
            waiting[other] -= 1
            if not waiting[other]:
                order.append(other)
    return order


def overlapped(case: Problem, order: Sequence[int]) -> list[int]:
    """Return an order in which steps that read a collective come as late as others can fill.

    Parameters
    ----------
    case
        The steps, and what comes before each.
    order
        One that is good for memory; it is kept wherever nothing has to wait.
    """
    place = {step: at for at, step in enumerate(order)}
    waiting = [len(before) for before in case.before]
    after: list[list[int]] = [[] for _ in case.steps]
    for step, before in enumerate(case.before):
        for other in before:
            after[other].append(step)
    ranks = _ranks(case, after)
    ready: list[tuple[int, int, int]] = []  # what waits for nothing under way
    blocked: list[tuple[int, int, int]] = []  # what reads a collective that is under way
    started: dict[int, int] = {}  # collective -> its number
    landed = 0  # all below are done
    result: list[int] = []

    def needs(step: int) -> int:
        """Return how many collectives must have ended before a step."""
        numbers = [started[other] + 1 for other in case.before[step] if other in started]
        return max(numbers, default=0)

    def put(step: int) -> None:
        needed = needs(step)
        if needed > landed:
            heapq.heappush(blocked, (needed, place[step], step))
        else:
            heapq.heappush(ready, (ranks[step], place[step], step))

    for step in order:
        if not waiting[step]:
            put(step)
    while ready or blocked:
        # A receive waits for somebody, as what reads a collective does.
        if blocked and (not ready or ready[0][0] == _HEARD):
            needed_landing, _, step = heapq.heappop(blocked)
            landed = max(landed, needed_landing)
            freed, blocked = (
                [s for w, _, s in blocked if w <= landed],
                [h for h in blocked if h[0] > landed],
            )
            heapq.heapify(blocked)
            for other in (step, *freed):
                put(other)
            continue
        _, _, step = heapq.heappop(ready)
        result.append(step)
        if is_started(case.steps[step]):
            started[step] = len(started)
        for follower in after[step]:
            waiting[follower] -= 1
            if not waiting[follower]:
                put(follower)
    return result


def landings(steps: Sequence[Node], readers: Mapping[Node, Sequence[int]]) -> dict[int, int]:
    """Return, for each overlapped collective, the step before which it must end.

    Parameters
    ----------
    steps
        In order.
    readers
        For each node, the steps that read one of its results.
    """
    landing_of: dict[int, int] = {}
    unread: list[int] = []
    for at, node in enumerate(steps):
        if not is_started(node):
            continue
        landing = min(readers.get(node, ()), default=-1)
        if landing < 0:
            unread.append(at)
        elif landing > at + 1:
            landing_of[at] = landing
    # Once the last is under way, the first to be read waits for all: what follows renews variables
    # in place, which nothing that can fail may come behind.
    begun = max(landing_of, default=-1)
    tail = min((landing for landing in landing_of.values() if landing > begun), default=len(steps))
    landing_of = {at: min(landing, tail) for at, landing in landing_of.items()}
    # What is only returned ends with the others, and holds up no variable's renewal.
    last = max(landing_of.values(), default=len(steps))
    landing_of.update((at, last) for at in unread if last > at + 1)
    return landing_of
