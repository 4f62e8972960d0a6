"""The memory that steps touch, as ranges of addresses, and which steps wait for which."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import dims
from .plan import Place, Plan, Step, Value
from .records import record

__all__ = ["PlanRanges", "Range", "Touched", "dependencies", "overlap"]

Range = tuple[int, int]

_APART = 1 << 44  # bytes between the beginnings of slots that share no memory


@record(frozen=True)
class Touched:
    """The memory of one step: half-open ranges of addresses."""

    read: tuple[Range, ...] = ()
    written: tuple[Range, ...] = ()


def overlap(some: Sequence[Range], others: Sequence[Range]) -> bool:
    """Return whether any of some ranges has an address in common with any of the others.

    Examples
    --------
    >>> overlap([(0, 4)], [(3, 5)]), overlap([(0, 4)], [(4, 5)])
    (True, False)
    """
    return any(start < stop and begin < end for start, end in some for begin, stop in others)


class PlanRanges:
    """Ranges of a bound plan's values, without a device: slots of the arena lie at their offsets.

    Where the arena is not laid out yet, each slot has memory of its own.

    plan: With sizes.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.sizes = plan, plan.sizes or {}

    def ranges(self, values: Sequence[Value]) -> tuple[Range, ...]:
        """Return the ranges of values that have elements, and memory."""
        return tuple(
            self._range(value.slot, int(value.type.bytes))
            for value in values
            if int(value.type.bytes) and self.plan.slots[value.slot].place is not Place.INSIDE
        )

    def touched(self, step: Step) -> Touched:
        """Return the memory that a step reads and writes."""
        scratch = tuple(
            self._range(slot, dims.evaluate(self.plan.slots[slot].size, self.sizes))
            for slot in step.scratch
        )
        return Touched(self.ranges(step.inputs), (*self.ranges(step.outputs), *scratch))

    def _range(self, number: int, size: int) -> Range:
        slot = self.plan.slots[number]
        laid_out = slot.place is Place.ARENA and slot.offset is not None
        start = (slot.offset or 0) if laid_out else (number + 1) * _APART
        return start, start + size


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
    intervals = _Intervals()
    result: list[set[int]] = []
    for number, step in enumerate(steps):
        waits: set[int] = set()
        for start, end in step.read:
            for at in intervals.cut(start, end):
                _, writer, readers = intervals.entries[at]
                if writer >= 0:
                    waits.add(writer)
                readers.add(number)
        for start, end in step.written:
            for at in intervals.cut(start, end):
                stop, writer, readers = intervals.entries[at]
                waits |= readers
                if writer >= 0:
                    waits.add(writer)
                intervals.entries[at] = (stop, number, set())
        waits.discard(number)
        result.append(waits)
    return result
