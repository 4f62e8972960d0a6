"""Which steps on parallel streams wait for each other: against a comparison of all pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from magmagraph.ir.plan import WHOLE
from magmagraph.ir.ranges import Touched, dependencies
from magmagraph.passes.lowering.stream import BESIDE, assign, joins


def random_steps(rng: np.random.Generator) -> list[Touched]:
    def ranges() -> tuple[tuple[int, int], ...]:
        starts = rng.integers(0, 40, rng.integers(0, 4)).tolist()
        return tuple((start, start + int(rng.integers(1, 12))) for start in starts)

    return [Touched(ranges(), ranges()) for _ in range(int(rng.integers(1, 14)))]


def overlap(some: tuple[tuple[int, int], ...], others: tuple[tuple[int, int], ...]) -> bool:
    return any(a < d and c < b for a, b in some for c, d in others)


def closure(waits: list[set[int]]) -> list[set[int]]:
    """Return all that is done before each step begins."""
    known: list[set[int]] = []
    for before in waits:
        known.append(set(before).union(*(known[other] for other in before)))
    return known


@pytest.mark.parametrize("number", range(200))
def test_every_hazard_is_waited_for_and_nothing_else(number: int) -> None:
    steps = random_steps(np.random.default_rng(number))
    waits = dependencies(steps)
    hazards: list[set[int]] = [
        {
            i
            for i in range(j)
            if overlap(steps[i].written, steps[j].read)
            or overlap(steps[i].read, steps[j].written)
            or overlap(steps[i].written, steps[j].written)
        }
        for j in range(len(steps))
    ]
    for found, wanted in zip(waits, hazards, strict=True):
        assert found <= wanted
    assert closure(waits) == closure(hazards)


@pytest.mark.parametrize("number", range(50))
@pytest.mark.parametrize("streams", [1, 2, 4])
def test_streams_follow_what_they_wait_for(number: int, streams: int) -> None:
    waits = dependencies(random_steps(np.random.default_rng(number)))
    chosen = assign(waits, None, streams)
    assert len(chosen) == len(waits)
    assert not chosen or (chosen[0] == 0 and set(chosen) == set(range(max(chosen) + 1)))
    assert max(chosen) < streams
    for step, before in enumerate(waits):
        last = {chosen[i]: i for i in range(step)}
        free = [i for i in before if last[chosen[i]] == i]
        if free:  # it is put behind one of those that it waits for
            assert any(chosen[i] == chosen[step] for i in free)


def test_a_chain_stays_on_one_stream_and_branches_part() -> None:
    assert assign([set(), {0}, {1}]) == [0, 0, 0]
    assert assign([set(), set(), set()]) == [0, 1, 2]
    many = assign([set() for _ in range(9)])
    assert set(many) == {0, 1, 2, 3}
    assert all(a != b for a, b in itertools.pairwise(many))


@pytest.mark.parametrize("number", range(50))
def test_the_longest_chain_has_a_stream_of_its_own(number: int) -> None:
    rng = np.random.default_rng(number)
    waits = dependencies(random_steps(rng))
    costs = (1 + rng.integers(0, 3, len(waits))).tolist()
    costs[0] = WHOLE
    chosen = assign(waits, costs)
    chain = [step for step, place in enumerate(chosen) if place == 0]
    assert max(chosen) <= BESIDE
    assert all(a in waits[b] for a, b in itertools.pairwise(chain))

    def longest(step: int) -> int:
        return costs[step] + max((longest(other) for other in waits[step]), default=0)

    found = sum(costs[step] for step in chain)
    assert found == max(longest(step) for step in range(len(waits)))


def test_what_waits_for_the_chain_begins_as_early_as_it_can() -> None:
    # A chain 0, 1, 2; beside it four branches of 0, of which the first two leave streams free.
    waits = [set(), {0}, {0}, {0}, {0}, {0}, {1}]
    assert assign(waits, [2, 9, 3, 1, 4, 1, 9]) == [0, 0, 1, 2, 3, 2, 0]
    # What fills the device is put behind what does so, too.
    assert assign(waits, [2, 99, WHOLE, WHOLE, WHOLE, 1, 99]) == [0, 0, 1, 1, 1, 2, 0]


@pytest.mark.parametrize("number", range(100))
@pytest.mark.parametrize("streams", [2, 4])
def test_what_is_joined_is_enough_and_never_twice(number: int, streams: int) -> None:
    rng = np.random.default_rng(number)
    waits = dependencies(random_steps(rng))
    chosen = [int(rng.integers(streams)) for _ in waits]
    joined = joins(waits, chosen)
    over: list[set[int]] = []  # what is done before each step begins, by streams and joins
    for step, place in enumerate(chosen):
        before = {i for i in range(step) if chosen[i] == place} | joined[step]
        over.append(before.union(*(over[i] for i in before)))
        assert waits[step] <= over[step]
        for other in joined[step]:
            assert chosen[other] != place
            earlier = [i for i in range(step) if chosen[i] == place]
            assert all(other not in joined[i] for i in earlier)
