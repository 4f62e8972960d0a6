"""The arena: slots that are alive together never overlap, and little is wasted."""

from __future__ import annotations

import random

import pytest

from magmagraph.ir.plan import Place, Slot
from magmagraph.passes.lowering.specialize import ALIGNMENT, lay_out, live_peak


def random_slots(seed: int, count: int) -> list[Slot]:
    """Return slots of random sizes and lifetimes."""
    rng = random.Random(seed)
    slots = []
    for index in range(count):
        first = rng.randrange(count)
        last = min(count, first + int(rng.expovariate(0.3)))
        slots.append(Slot(index, Place.ARENA, rng.randrange(0, 5000), None, first, last))
    return slots


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("count", [1, 5, 40, 2500])
def test_no_two_live_slots_overlap(seed: int, count: int) -> None:
    if count > 1000 and seed > 2:
        count = 200 + seed
    slots = random_slots(seed, count)
    offsets, total = lay_out(slots)
    assert total >= live_peak(slots)
    events = sorted(range(count), key=lambda i: offsets[i])
    for at, i in enumerate(events):
        assert offsets[i] % ALIGNMENT == 0
        assert offsets[i] + slots[i].size <= total
        end = offsets[i] + slots[i].size
        for j in events[at + 1 :]:
            if offsets[j] >= end:
                break
            together = slots[i].first <= slots[j].last and slots[j].first <= slots[i].last
            assert not together or slots[j].size == 0 or slots[i].size == 0, (seed, i, j)


@pytest.mark.parametrize("seed", range(30))
def test_waste_is_small(seed: int) -> None:
    slots = random_slots(seed, 30)
    _, total = lay_out(slots)
    assert total <= 1.1 * live_peak(slots)
