"""Messages on devices: which go by lines of their own, and that no rank waits for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from spread import layers, network

import magmagraph as mg
from magmagraph.distributed import PipelineParallel, threads
from magmagraph.ir import dims
from magmagraph.ir.plan import Place, Plan, Value
from magmagraph.ir.ranges import Range, Touched, dependencies
from magmagraph.runtime.cuda.launching import messages
from magmagraph.runtime.cuda.launching.messages import (
    End,
    end_of,
    is_message,
    lines_of,
    messages_of,
)
from magmagraph.runtime.families.copy import COPY

STATE = 1 << 40  # where slots begin that are not in the arena, by their numbers


def ranges(plan: Plan, values: Sequence[Value]) -> tuple[Range, ...]:
    """Return the memory of values: the arena's as it is planned, all other slots apart."""
    found = []
    for value in values:
        slot = plan.slots[value.slot]
        size = int(dims.evaluate(value.type.bytes, plan.sizes or {}))
        start = slot.offset if slot.place is Place.ARENA else STATE * (1 + slot.index)
        if size:
            found.append((start, start + size))
    return tuple(found)


Work = tuple[str, Any, End | None]  # the stream, what it waits for, the end of a message


def work_of(plan: Plan, world: Any) -> list[Work]:
    """Return a rank's launches as `message` makes them, on as few streams as there can be."""
    touched: list[Touched] = []
    told: list[tuple[str, End | None]] = []
    for number, step in enumerate(plan.steps):
        if step.kernel == "wait":
            continue
        inputs, outputs = ranges(plan, step.inputs), ranges(plan, step.outputs)
        if not is_message(step.node):
            touched.append(Touched(inputs, outputs))
            told.append(("main", None))
            continue
        end = end_of(step.node, world)
        if end.sends:
            copy = (-STATE * (1 + number), -STATE * (1 + number) + 1)
            touched += [Touched(inputs, (*outputs, copy)), Touched((copy,), ())]
            told += [("main", None), (f"to {end.other}", end)]
        else:
            touched.append(Touched(inputs, outputs))
            told.append((f"from {end.other}", end))
    waits = dependencies(touched)
    return [(stream, waits[i], end) for i, (stream, end) in enumerate(told)]


def played(ranks: Sequence[Sequence[Work]]) -> list[int]:
    """Run streams as a device does, a message when both ends are there; return what is left."""
    done: list[set[int]] = [set() for _ in ranks]

    def heads(rank: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for number, (stream, _, _) in enumerate(ranks[rank]):
            if number not in done[rank]:
                found.setdefault(stream, number)
        return {s: n for s, n in found.items() if ranks[rank][n][1] <= done[rank]}

    moved = True
    while moved:
        moved = False
        for rank in range(len(ranks)):
            for stream, number in heads(rank).items():
                end = ranks[rank][number][2]
                if end is None:
                    done[rank].add(number)
                    moved = True
                elif stream.startswith("to "):
                    other = heads(end.other).get(f"from {rank}")
                    if other is None:
                        continue
                    theirs = ranks[end.other][other][2]
                    assert theirs is not None and theirs.tag == end.tag
                    done[rank].add(number)
                    done[end.other].add(other)
                    moved = True
    return [len(work) - len(over) for work, over in zip(ranks, done, strict=True)]


@pytest.mark.parametrize(
    ("schedule", "ranks", "micro_batches"),
    [("gpipe", 2, 4), ("1f1b", 2, 4), ("1f1b", 3, 2), ("gpipe", 4, 4), ("1f1b", 4, 6)],
)
def test_no_stage_waits_for_ever(
    rng: np.random.Generator, schedule: str, ranks: int, micro_batches: int
) -> None:
    values = layers(rng, [6, 8, 12, 8, 4])

    def job() -> tuple[list[Work], list[End]]:
        world = mg.distributed.communicator()
        step, _ = network(
            values, lambda: mg.optimizer.SGD(0.1), PipelineParallel(micro_batches, schedule)
        )
        step(np.ones((12, 6)), np.ones((12, 4)))
        plan = step._last.plan
        return work_of(plan, world), messages_of(plan, world)[0]

    found = threads(ranks, job)
    assert played([work for work, _ in found]) == [0] * ranks
    for rank, (_, ends) in enumerate(found):
        assert len(ends) >= 2 * micro_batches
        for other in {end.other for end in ends}:
            sent = [end.tag for end in ends if end.other == other and end.sends]
            heard = [e.tag for e in found[other][1] if e.other == rank and not e.sends]
            assert sent == heard  # so that a line can carry them


def test_the_copy_of_what_was_received_is_no_message(rng: np.random.Generator) -> None:
    values = layers(rng, [6, 8, 4])

    def job() -> tuple[list[End], list[End]]:
        world = mg.distributed.communicator()
        step, _ = network(values, lambda: mg.optimizer.SGD(0.1), PipelineParallel(2, "gpipe"))
        step(np.ones((12, 6)), np.ones((12, 4)))
        plan = step._last.plan
        copies = [replace(s, family=COPY) for s in plan.steps if is_message(s.node)]
        assert copies
        more = replace(plan, steps=(*plan.steps, *copies))
        return messages_of(plan, world)[0], messages_of(more, world)[0]

    for ends, with_copies in threads(2, job):
        assert ends == with_copies


def test_streams_that_share_memory_with_what_is_sent_would_wait_for_ever() -> None:
    """Without the copy: each rank writes over what it sends before it receives."""
    sent, heard = (0, 8), (8, 16)
    steps = [Touched((sent,), ()), Touched((), (sent,)), Touched((sent,), (heard,))]
    ways = [("to", True), ("main", None), ("from", False)]

    def rank(other: int, copied: bool) -> list[Work]:
        touched = list(steps)
        names = [(f"{way} {other}" if way != "main" else way, sends) for way, sends in ways]
        if copied:
            touched[0] = Touched(((100, 108),), ())
            touched.insert(0, Touched((sent,), ((100, 108),)))
            names.insert(0, ("main", None))
        waits = dependencies(touched)
        return [
            (name, waits[i], None if sends is None else End(other, sends, 0))
            for i, (name, sends) in enumerate(names)
        ]

    assert played([rank(1, copied=False), rank(0, copied=False)]) == [3, 3]
    assert played([rank(1, copied=True), rank(0, copied=True)]) == [0, 0]


# ---- Which directions have a line


class Line:
    """In the place of NCCL's."""

    def __init__(self, pair: Any, sends: bool, cupy: Any, nccl: Any) -> None:
        assert pair.size == 2
        self.told = pair.exchange(sends)  # both ranks make it together, from opposite ends
        assert sorted(self.told) == [False, True]


class Device:
    """A rank's own, or one that all share."""

    def __init__(self, number: int) -> None:
        place = f"0000:0{number}:00.0"
        runtime = SimpleNamespace(deviceGetPCIBusId=lambda _: place)
        self.number, self.cupy = 0, SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *reason: Any) -> None:
        pass


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "NcclLine", Line)
    monkeypatch.setattr(messages, "library", object)


def lines(says: Any, shared: bool = False) -> dict[tuple[int, bool], Any]:
    """Return the lines of a function in which a rank says something of a vector."""
    x = mg.input("x", (3,))
    f = mg.function([x], says(mg.distributed.rank(), x), device="cpu")
    f(np.ones(3))
    return dict(lines_of(f.plan, Device(0 if shared else mg.distributed.rank())))


def around(rank: int, x: Any) -> list[Any]:
    """Send to all others, and receive from all."""
    others = [r for r in range(3) if r != rank]
    sent = [mg.distributed.send(x * (r + 1.0), to=r, tag=rank) for r in others]
    return [*sent, *(mg.distributed.recv(x, source=r, tag=r) for r in others)]


@pytest.mark.usefixtures("nccl")
def test_each_direction_of_each_pair_has_a_line() -> None:
    found = threads(3, lambda: lines(around))
    for rank, made in enumerate(found):
        others = [r for r in range(3) if r != rank]
        assert set(made) == {(r, sends) for r in others for sends in (True, False)}
        assert sorted(line.lane for line in made.values()) == [1, 2, 3, 4]


@pytest.mark.usefixtures("nccl")
def test_another_order_goes_through_the_host() -> None:
    def turned(rank: int, x: Any) -> list[Any]:
        send, recv = mg.distributed.send, mg.distributed.recv
        if rank == 0:
            first = send(x, to=1, tag=0)
            return [first, send(first * 2.0, to=1, tag=1), recv(x, source=1, tag=2)]
        late = recv(x, source=0, tag=1)
        return [recv(late, source=0, tag=0), send(x, to=0, tag=2)]

    first, second = threads(2, lambda: lines(turned))
    assert set(first) == {(1, False)}
    assert set(second) == {(0, True)}


@pytest.mark.usefixtures("nccl")
def test_ranks_that_share_a_device_have_none() -> None:
    assert threads(3, lambda: lines(around, shared=True)) == [{}] * 3


def test_without_the_library_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "library", lambda: None)
    assert threads(3, lambda: lines(around)) == [{}] * 3
