"""Estimate which cache holds the bytes of a plan's steps, by reuse distance.

A plan's steps run in one order, time after time, and each touches whole pieces of memory. So it is
known how much else has been touched since a piece was: at a distance of D bytes, a cache of C keeps
at most C / D of the piece, whatever it throws out (of a sweep over D bytes that goes round and
round, no rule keeps more). The time that memory takes at least follows from that.

R. L. Mattson, J. Gecsei, D. R. Slutz, I. L. Traiger, Evaluation techniques for storage
hierarchies, IBM Systems Journal 9, 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..ir.plan import Place, Plan, Step

Piece = tuple[str, int]  # of memory: its slot, or where in the arena it begins


@dataclass(frozen=True)
class Level:
    """A cache, or the main memory, measured.

    name: "L1", "L2", ..., or "memory".
    bytes: What it holds, of all cores that take part; None of memory.
    read: 1e9 bytes a second of a kernel that reads arrays that lie there, and writes little.
    copied: 1e9 bytes a second, read and written, of a kernel that writes an array as large as it
        reads.
    """

    name: str
    bytes: int | None
    read: float
    copied: float

    def nanoseconds(self, read: float, written: float, replaced: float) -> float:
        """Return what so many bytes take at least.

        `replaced` are those that are written where the same kernel reads: they need not be fetched
        before they are written.
        """
        fetch = 1.0 / max(self.read, self.copied, 1e-9)
        write = 2.0 / max(self.copied, 1e-9) - fetch
        return read * fetch + written * write + replaced * min(fetch, write)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return dict(vars(self))


@dataclass(frozen=True)
class Part:
    """Bytes of a step that were last touched at one distance; see `Level.nanoseconds`."""

    distance: int
    read: float = 0.0
    written: float = 0.0
    replaced: float = 0.0


def floor(parts: Iterable[Part], levels: Sequence[Level]) -> tuple[float, str]:
    """Return the nanoseconds that a step's bytes take at least, and the level that takes the most.

    parts: Of the step.
    levels: The nearest first, memory last.
    """
    taken = _by_level(parts, levels)
    most = max(range(len(levels)), key=lambda i: taken[i])
    return sum(taken), levels[most].name if taken[most] else ""


def raised(
    levels: Sequence[Level], steps: Iterable[tuple[Iterable[Part], int]]
) -> tuple[Level, ...]:
    """Return levels with the rates that steps showed, which some of them were faster than.

    A machine that did other things when a level was measured slowed it; and no kernel that measures
    is the fastest there can be.

    levels: The nearest first, memory last.
    steps: Of each step what it moves, and the nanoseconds it took.
    """
    new_levels = list(levels)
    for parts, nanoseconds in steps:
        taken = _by_level(parts, new_levels)
        least = sum(taken)
        if not 0 < nanoseconds < least:
            continue
        most = max(range(len(new_levels)), key=lambda i: taken[i])
        left = nanoseconds - (least - taken[most])  # what that level may take
        several = range(len(new_levels)) if 2 * left < taken[most] else (most,)
        factor = least / nanoseconds if len(several) > 1 else taken[most] / left
        for i in several:
            level = new_levels[i]
            new_levels[i] = replace(level, read=level.read * factor, copied=level.copied * factor)
    return tuple(new_levels)


def _by_level(parts: Iterable[Part], levels: Sequence[Level]) -> list[float]:
    """Return the nanoseconds that bytes take at least from each level."""
    taken = [0.0] * len(levels)
    for part in parts:
        nearer = 0.0
        for i, level in enumerate(levels):
            kept = 1.0 if level.bytes is None else min(1.0, level.bytes / max(1, part.distance))
            if kept > nearer:
                whole = level.nanoseconds(part.read, part.written, part.replaced)
                taken[i] += (kept - nearer) * whole
                nearer = kept
    return taken


def traffic(plan: Plan) -> list[tuple[Part, ...]]:
    """Return for each step of a bound plan its traffic, and the reuse distance of it.

    As when the plan is run again and again and, between two runs, what it had written to variables
    is put back, which is how steps are timed.
    """
    last: dict[Piece, int] = {}  # the bytes of what was touched, the latest last
    variables = {_place(plan, value.slot): _bytes(value) for step in plan.steps
                 for value in step.outputs if plan.slots[value.slot].place is Place.STATE}
    for step in plan.steps:
        _touch(last, _touched(plan, step))
    _touch(last, variables)
    parts = []
    for step in plan.steps:
        own = _touched(plan, step)
        distances = _distances(last, own)
        _touch(last, own)
        parts.append(_parts(plan, step, distances, sum(own.values())))
    return parts


def _place(plan: Plan, index: int) -> Piece:
    offset = plan.slots[index].offset
    return ("slot", index) if offset is None else ("arena", offset)


def _bytes(value: Any) -> int:
    return int(value.type.bytes)


def _touched(plan: Plan, step: Step) -> dict[Piece, int]:
    touched: dict[Piece, int] = {}
    for value in (*step.inputs, *step.outputs):
        place = _place(plan, value.slot)
        touched[place] = max(touched.get(place, 0), _bytes(value))
    return touched


def _touch(last: dict[Piece, int], touched: dict[Piece, int]) -> None:
    for place, size in touched.items():
        last.pop(place, None)
        last[place] = size


def _distances(last: dict[Piece, int], own: dict[Piece, int]) -> dict[Piece, int]:
    """Return the bytes touched since each place was, those of the step itself among them."""
    step = sum(own.values())
    distances: dict[Piece, int] = {}
    between = 0
    for place in reversed(last):
        if place in own:
            distances[place] = between + step
            if len(distances) == len(own):
                break
        else:
            between += last[place]
    return distances


def _parts(
    plan: Plan, step: Step, distances: dict[Piece, int], touched: int
) -> tuple[Part, ...]:
    """Return the traffic of a step: the plan's bytes, spread over the slots it uses."""
    read = {_place(plan, value.slot): _bytes(value) for value in step.inputs}
    written = {_place(plan, value.slot): _bytes(value) for value in step.outputs}
    whole = sum(read.values()) + sum(written.values())
    moved = int(step.bytes)
    scale = min(1.0, moved / whole) if whole else 0.0
    parts = [Part(distances[place], read=size * scale) for place, size in read.items()]
    parts += [
        Part(distances[place], **{"replaced" if place in read else "written": size * scale})
        for place, size in written.items()
    ]
    if moved > whole:  # a loop, or several sweeps: what it holds, again
        parts.append(Part(touched, read=float(moved - whole)))
    return tuple(parts)
