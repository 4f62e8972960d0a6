"""Bind the sizes of one call: every formula of a plan becomes a number, the arena gets offsets.

Kernels take extents and strides as arguments, so no kernel is built here and new sizes cost
little more than this pass.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Mapping, Sequence

from ...ir import dims
from ...ir.plan import Place, Plan, Slot, Step, Value
from ...ir.types import Extent, Type

ALIGNMENT = 64
REPAIRS = 24  # placements tried after the first few, each with one slot placed earlier
REPAIR_WORK = 60_000  # pairs of slots looked at by them, about: they cost milliseconds
MANY_SLOTS = 400  # above, placement in one sweep: best fit takes quadratic time


def specialize(
    plan: Plan, sizes: Mapping[str, int], alignment: int = ALIGNMENT, spread: int = 0
) -> Plan:
    """Return the plan with the given sizes of the named dimensions and the arena laid out.

    Parameters
    ----------
    plan, sizes
        A symbolic plan, and the size of every dimension.
    alignment, spread
        See `laid_out`.
    """
    return laid_out(with_sizes(plan, sizes), alignment, spread)


def laid_out(plan: Plan, alignment: int = ALIGNMENT, spread: int = 0) -> Plan:
    """Return a plan with sizes whose slots of the arena have offsets.

    Parameters
    ----------
    plan
        With sizes.
    alignment
        Bytes that places in the arena are multiples of, itself a multiple of 64.
    spread
        Up to so many bytes each slot has memory of its own, so that steps which run side by side
        wait for none that is done with the same memory.
    """
    slots = list(plan.slots)
    arena = [
        dataclasses.replace(slot, size=-(-int(slot.size) // alignment) * alignment)
        if alignment != ALIGNMENT
        else slot
        for slot in slots
        if slot.place is Place.ARENA
    ]
    offsets, total = _apart(arena)
    if total > spread:
        offsets, total = lay_out(arena)
    for slot, offset in zip(arena, offsets, strict=True):
        slots[slot.index] = dataclasses.replace(slot, offset=offset)
    return dataclasses.replace(
        plan, slots=tuple(slots), arena=total, largest_live=live_peak(arena)
    )


def with_sizes(plan: Plan, sizes: Mapping[str, int]) -> Plan:
    """Return the plan with the given sizes of the named dimensions: formulas become numbers."""
    cached: dict[Extent, int] = {}

    def number(extent: Extent) -> int:
        if isinstance(extent, int):
            return extent
        value = cached.get(extent)
        if value is None:
            value = cached[extent] = dims.evaluate(extent, sizes)
        return value

    types: dict[Type, Type] = {}

    def bound(value: Value) -> Value:
        type_ = types.get(value.type)
        if type_ is None:
            shape = tuple(number(e) for e in value.type.shape)
            type_ = types[value.type] = Type(value.type.dtype, shape)
        return Value(value.slot, type_)

    slots = [dataclasses.replace(slot, size=number(slot.size)) for slot in plan.slots]
    steps = tuple(
        Step(
            step.family,
            step.node,
            tuple(map(bound, step.inputs)),
            tuple(map(bound, step.outputs)),
            number(step.bytes),
            number(step.flops),
            step.workspace,
            step.can_fail,
            step.refused,
            step.refused_by,
        )
        for step in plan.steps
    )
    return dataclasses.replace(
        plan,
        steps=steps,
        slots=tuple(slots),
        fetches=tuple(map(bound, plan.fetches)),
        sizes=dict(sizes),
    )


def _apart(slots: Sequence[Slot]) -> tuple[list[int], int]:
    """Return offsets with which no two slots share memory, and the total."""
    ends = list(itertools.accumulate((rounded(int(s.size)) for s in slots), initial=0))
    return ends[:-1], ends[-1]


def rounded(size: int) -> int:
    """Return the bytes that a slot of some bytes takes in an arena."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def live_peak(slots: Sequence[Slot]) -> int:
    """Return the bytes of the largest set of slots alive at once (sizes rounded to 64)."""
    change: dict[int, int] = {}
    for slot in slots:
        size = rounded(int(slot.size))
        change[slot.first] = change.get(slot.first, 0) + size
        change[slot.last + 1] = change.get(slot.last + 1, 0) - size
    alive = peak = 0
    for at in sorted(change):
        alive += change[at]
        peak = max(peak, alive)
    return peak


def lay_out(slots: Sequence[Slot]) -> tuple[list[int], int]:
    """Return an offset for each slot so that slots alive together are apart, and the total.

    Tries several orders of best-fit placement and keeps the smallest; stops at the first that
    reaches the largest live set. Where none does, whatever ended highest is placed earlier, again
    and again, for a bounded number of times.
    """
    if not slots:
        return [], 0
    floor = live_peak(slots)
    if len(slots) > MANY_SLOTS:
        return _sweep(slots)
    length = {s.index: s.last - s.first + 1 for s in slots}
    orders = (
        lambda s: (-rounded(int(s.size)), s.first),
        lambda s: (-rounded(int(s.size)) * length[s.index], s.first),
        lambda s: (s.first, -rounded(int(s.size))),
        lambda s: (-length[s.index], -rounded(int(s.size))),
    )
    best = _sweep(slots)
    for rank in orders:
        if best[1] <= floor:
            return best
        order = sorted(range(len(slots)), key=lambda i: rank(slots[i]))
        best = min(best, _best_fit(slots, order), key=operator.itemgetter(1))
    tries = min(REPAIRS, REPAIR_WORK // len(slots) ** 2)
    for rank in orders[:2]:
        order = sorted(range(len(slots)), key=lambda i: rank(slots[i]))
        for _ in range(tries):
            if best[1] <= floor:
                return best
            placed = _best_fit(slots, order)
            best = min(best, placed, key=operator.itemgetter(1))
            highest = max(order, key=lambda i: placed[0][i] + rounded(int(slots[i].size)))
            at = order.index(highest)
            order.insert(at // 2, order.pop(at))
    return best


def _best_fit(slots: Sequence[Slot], order: Sequence[int]) -> tuple[list[int], int]:
    """Place slots one by one into the smallest gap left by those alive at the same time."""
    offsets = [0] * len(slots)
    placed: list[tuple[int, int, int, int]] = []  # (offset, end, first, last)
    total = 0
    for i in order:
        slot = slots[i]
        size = rounded(int(slot.size))
        meets = sorted(
            (offset, end)
            for offset, end, first, last in placed
            if first <= slot.last and slot.first <= last
        )
        best, best_gap, at = -1, -1, 0
        for offset, end in meets:
            gap = offset - at
            if gap >= size and (best < 0 or gap < best_gap):
                best, best_gap = at, gap
            at = max(at, end)
        if best < 0:
            best = at
        offsets[i] = best
        total = max(total, best + size)
        placed.append((best, best + size, slot.first, slot.last))
    return offsets, total


def _sweep(slots: Sequence[Slot]) -> tuple[list[int], int]:
    """Place slots in order of birth from a free list; near linear, for very long plans."""
    births = sorted(range(len(slots)), key=lambda i: slots[i].first)
    deaths = sorted(range(len(slots)), key=lambda i: slots[i].last)
    free: list[tuple[int, int]] = []  # (offset, size), by offset
    offsets = [0] * len(slots)
    total = 0
    dead = 0
    for i in births:
        while dead < len(deaths) and slots[deaths[dead]].last < slots[i].first:
            j = deaths[dead]
            _release(free, offsets[j], rounded(int(slots[j].size)))
            dead += 1
        size = rounded(int(slots[i].size))
        fit = min(
            (k for k in range(len(free)) if free[k][1] >= size),
            key=lambda k: free[k][1],
            default=-1,
        )
        if fit >= 0:
            offset, room = free.pop(fit)
            offsets[i] = offset
            if room > size:
                _insert(free, offset + size, room - size)
        elif free and free[-1][0] + free[-1][1] == total:
            offset, _ = free.pop()
            offsets[i] = offset
            total = offset + size
        else:
            offsets[i] = total
            total += size
    return offsets, total


def _insert(free: list[tuple[int, int]], offset: int, size: int) -> None:
    at = len(free)
    while at and free[at - 1][0] > offset:
        at -= 1
    free.insert(at, (offset, size))


def _release(free: list[tuple[int, int]], offset: int, size: int) -> None:
    """Put a block back, joined with its free neighbours."""
    if not size:
        return
    _insert(free, offset, size)
    at = next(k for k, block in enumerate(free) if block == (offset, size))
    if at + 1 < len(free) and offset + size == free[at + 1][0]:
        free[at] = (offset, size + free.pop(at + 1)[1])
    if at and free[at - 1][0] + free[at - 1][1] == offset:
        free[at - 1] = (free[at - 1][0], free[at - 1][1] + free.pop(at)[1])
