"""Steps on parallel streams: which of them wait for which, by the memory that they touch."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

from ....ir.records import record

__all__ = ["STREAMS", "WHOLE", "Range", "Touched", "assign", "dependencies", "joins"]

STREAMS = 4
BESIDE = 3  # streams beside the longest chain
WHOLE = 16.0  # how dear a step is that leaves no room for another beside it

Range = tuple[int, int]


@record(frozen=True)
class Touched:
    """The memory of one step: half-open ranges of addresses."""

    read: tuple[Range, ...] = ()
    written: tuple[Range, ...] = ()


@dataclass
class _Intervals:
    """Disjoint ranges of addresses, each with the step that wrote it last and those that read it.

    A range is cut where a new one begins or ends inside of it.
    """

    starts: list[int] = field(default_factory=list)
    entries: list[tuple[int, int, set[int]]] = field(default_factory=list)  # end, writer, readers

    def cut(self, start: int, end: int) -> list[int]:
        """Return the positions of the entries that make up a range; gaps are filled."""
        self._split(start)
        self._split(end)
        at = bisect.bisect_left(self.starts, start)
        here = start
        while here < end:
            if at < len(self.starts) and self.starts[at] == here:
                here = self.entries[at][0]
            else:
                stop = min(end, self.starts[at]) if at < len(self.starts) else end
                self.starts.insert(at, here)
                self.entries.insert(at, (stop, -1, set()))
                here = stop
            at += 1
        first = bisect.bisect_left(self.starts, start)
        return list(range(first, at))

    def _split(self, address: int) -> None:
        at = bisect.bisect_right(self.starts, address) - 1
        if at < 0 or self.starts[at] == address:
            return
        end, writer, readers = self.entries[at]
        if end > address:
            self.entries[at] = (address, writer, set(readers))
            self.starts.insert(at + 1, address)
            self.entries.insert(at + 1, (end, writer, set(readers)))


def dependencies(steps: Sequence[Touched]) -> list[set[int]]:
    """Return, for each step, the earlier ones that must be done before it begins.

    A step waits for the last writers of what it reads or writes, and for the readers, since then,
    of what it writes.

    Examples
    --------
    >>> a, b = (0, 64), (64, 128)
    >>> dependencies([Touched((), (a,)), Touched((), (b,)), Touched((a, b), (a,))])
    [set(), set(), {0, 1}]
    """
    known = _Intervals()
    result: list[set[int]] = []
    for number, step in enumerate(steps):
        waits: set[int] = set()
        for start, end in step.read:
            for at in known.cut(start, end):
                _, writer, readers = known.entries[at]
                if writer >= 0:
                    waits.add(writer)
                readers.add(number)
        for start, end in step.written:
            for at in known.cut(start, end):
                stop, writer, readers = known.entries[at]
                waits |= readers
                if writer >= 0:
                    waits.add(writer)
                known.entries[at] = (stop, number, set())
        waits.discard(number)
        result.append(waits)
    return result


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
        found = {
            other for stream, other in latest.items() if over.get((mine, stream), -1) < other
        }
        for other in found:
            over[mine, chosen[other]] = other
        result.append(found)
    return result
