"""Collectives beside other steps: when each begins, and before which step it must have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

import magmagraph as mg
from magmagraph.ir.graph import Node
from magmagraph.ops.collective.whole import ALLREDUCE
from magmagraph.passes.lowering.overlap import Problem, landings, overlapped


def reduced(x: Node) -> Node:
    """Return a sum over two ranks."""
    return ALLREDUCE(x, op="sum", group=(), size=2)


def steps_of(kinds: str) -> list[Node]:
    """Return steps by letters: a collective, a receive, or another operation."""
    x = mg.input("x", (4,))
    make = {"c": reduced, "r": lambda x: mg.distributed.recv(x, source=0), "o": mg.tanh}
    return [make[kind](x) for kind in kinds]


@pytest.mark.parametrize(
    ("kinds", "read", "wanted"),
    [
        ("cooo", {0: [3]}, {0: 3}),  # what lies between runs beside it
        ("cooo", {0: [2, 3]}, {0: 2}),  # the first that reads it waits
        ("coo", {0: [1]}, {}),  # there is nothing beside it
        ("coo", {}, {0: 3}),  # it is only returned
        ("ccoo", {1: [3]}, {0: 3, 1: 3}),  # it ends with the others
        ("ccoooo", {0: [5], 1: [3]}, {0: 3, 1: 3}),  # no variable's renewal comes between them
        ("cocoo", {0: [2], 2: [4]}, {0: 2, 2: 4}),
        ("ooo", {0: [2]}, {}),
    ],
)
def test_a_collective_ends_before_it_is_read(
    kinds: str, read: Mapping[int, Sequence[int]], wanted: dict[int, int]
) -> None:
    steps = steps_of(kinds)
    assert landings(steps, {steps[at]: readers for at, readers in read.items()}) == wanted


def order_of(kinds: str, before: Sequence[tuple[int, ...]]) -> str:
    """Return the order in which steps run that stand in one that memory would have."""
    count = len(kinds)
    case = Problem(
        tuple(steps_of(kinds)), tuple(before), (0,) * count, ((),) * count, (), (), frozenset()
    )
    found = overlapped(case, range(count))
    assert sorted(found) == [*range(count)]
    return "".join(map(str, found))


@pytest.mark.parametrize(
    ("kinds", "before", "wanted"),
    [
        ("ooo", [(), (), ()], "012"),  # nothing waits: the order stays
        ("ooc", [(), (), ()], "201"),  # a collective begins at once,
        ("oooc", [(), (), (), (2,)], "2301"),  # and so does what only it reads
        ("cooo", [(), (0,), (), ()], "0231"),  # what reads it lets others go first
        ("roo", [(), (), ()], "120"),  # a receive waits for somebody
        ("rc", [(), ()], "10"),
        ("ccoo", [(), (), (0,), (1,)], "0123"),
    ],
)
def test_what_waits_for_a_collective_comes_late(
    kinds: str, before: Sequence[tuple[int, ...]], wanted: str
) -> None:
    assert order_of(kinds, before) == wanted
