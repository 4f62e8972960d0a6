"""Which calls send, as a host follows it that looks at no device: plans of cards, without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from planned import options_of
from spread import layers

import magmagraph as mg
from magmagraph.distributed import DataParallel, Mesh
from magmagraph.distributed.cost.dry import DryRank
from magmagraph.errors import CommunicationError
from magmagraph.function.rank_agreement import Together
from magmagraph.ir.plan import Plan
from magmagraph.ir.ranges import Touched
from magmagraph.ir.ranks import using
from magmagraph.passes import pipeline
from magmagraph.passes.lowering import specialize
from magmagraph.runtime.cuda.launching import loops, segments
from magmagraph.runtime.cuda.launching.call_counters import Counted, Counts, is_timed
from magmagraph.runtime.cuda.launching.calls import CollectiveCall, LibraryCall, TimedCall
from magmagraph.runtime.cuda.launching.loops import Loop, at_once
from magmagraph.runtime.cuda.launching.segments import Segment
from magmagraph.runtime.families.expression import EXPRESSION

YES, NO = (True,), (False,)


def plan_of(
    rng: np.random.Generator,
    optimizer: Callable[[], Any],
    precision: str = "float32",
    **options: Any,
) -> tuple[Any, Plan]:
    """Return a step, and the plan of one of two ranks with cards."""
    mesh = Mesh(rows=2, columns=1) if "group" in options else Mesh(all=2)
    values = [pair[0].astype(np.float32) for pair in layers(rng, [6, 8, 4])]
    with using(DryRank(2)), mg.distributed.use(mesh):
        x, y = mg.input("x", ("batch", 6)), mg.input("y", ("batch", 4))
        held = [mg.var(f"w{n}", init=value) for n, value in enumerate(values)]
        loss = mg.mean((mg.tanh(x @ held[0]) @ held[1] - y) ** 2)
        step = optimizer().step(
            loss, held, [x, y], [loss], device="cpu", precision=precision,
            distribute=DataParallel(**options),
        )  # fmt: skip
        given = options_of(
            device="cuda:0", distribute=step._facts(), threads=132, precision=precision
        )
        plan, _ = pipeline.run(step.source_graph, step.trace, options=given)
    assert isinstance(plan, Plan)
    return step, specialize.specialize(plan, {"batch": 12}, 256, 64 << 20)


class Copies:
    """The copies of variables on a card: what the host knows of each."""

    def __init__(self) -> None:
        self.made: dict[int, Any] = {}

    def __call__(self, state: Any) -> Any:
        return self.made.setdefault(id(state), SimpleNamespace(known=None))


def adam(calls: int = 3) -> Any:
    return mg.optimizer.Adam(lambda step: 0.05 / (1 + step), accumulate=calls)


def clipped(calls: int = 3) -> Any:
    return mg.optimizer.SGD(0.1, momentum=0.9, clip_norm=0.5, accumulate=calls)


def counter_of(plan: Plan) -> Any:
    (found,) = {slot.owner for slot in plan.slots if getattr(slot.owner, "name", "") == "calls"}
    return found


@pytest.mark.parametrize("make", [adam, clipped])
@pytest.mark.parametrize(
    "options",
    [
        {}, {"bucket_bytes": 0}, {"shard_optimizer": True}, {"compression": "bfloat16"},
        {"accumulate": 2}, {"algorithm": "ring"}, {"algorithm": "parameter_server"},
        {"algorithm": "torus", "group": ("rows", "columns")},
        {"accumulate": 2, "algorithm": "ring"}, {"accumulate": 2, "shard_optimizer": True},
    ],
)  # fmt: skip
def test_the_host_knows_which_calls_send(
    rng: np.random.Generator, make: Callable[[], Any], options: dict[str, Any]
) -> None:
    _, plan = plan_of(rng, make, **options)
    timed = [step for step in plan.steps if is_timed(step)]
    assert timed
    counts = Counts(plan, Copies())
    assert counts
    assert {counts.flag(step) for step in timed} == {0}
    assert counts.read() == Counted(True, (("calls", 0),))
    assert counts.coming(7) == [NO, NO, YES, NO, NO, YES, NO]
    counts.advance(2)
    counts.settle()
    assert counts.read() == Counted(False, (("calls", 2),))
    assert counts.now == YES


@pytest.mark.parametrize(
    ("precision", "options"),
    [
        ("float16", {}), ("float16", {"shard_optimizer": True}),
        ("float32", {"algorithm": "ring", "compression": "bfloat16"}),
    ],
)  # fmt: skip
def test_what_the_host_cannot_tell_is_sent_at_each_call(
    rng: np.random.Generator, precision: str, options: dict[str, Any]
) -> None:
    """Gradients that are not finite keep the counter, and the card alone knows them."""
    _, plan = plan_of(rng, clipped, precision, **options)
    assert not any(is_timed(step) for step in plan.steps)
    counts = Counts(plan, Copies())
    assert not counts
    assert counts.read() == Counted(False, ())
    assert counts.coming(2) == [(), ()]


def test_what_is_written_elsewhere_is_read_again(rng: np.random.Generator) -> None:
    _, plan = plan_of(rng, adam)
    copies = Copies()
    counts, other = Counts(plan, copies), Counts(plan, copies)
    state = counter_of(plan)
    counts.read()
    counts.advance(1)
    state.version += 1  # as the bound plan says of each call
    counts.settle()
    # A plan of another size goes by the same copy, and reads nothing.
    assert other.read() == Counted(False, (("calls", 1),))
    state.write(np.int64(2))
    assert counts.read() == Counted(True, (("calls", 2),))
    assert counts.now == YES
    assert other.read() == Counted(False, (("calls", 2),))
    # A card that wrote it without a word leaves it with another version.
    state.version += 1
    fetched: list[int] = []

    def fetch(array: np.ndarray) -> None:
        fetched.append(1)
        array[...] = 1

    state.newest = SimpleNamespace(fetch=fetch)
    assert counts.read() == Counted(True, (("calls", 1),))
    assert fetched == [1]
    assert counts.now == NO


def test_a_call_that_raises_does_not_count(rng: np.random.Generator) -> None:
    _, plan = plan_of(rng, adam)
    counts = Counts(plan, Copies())
    for _ in range(3):  # `advance` follows what was launched
        assert counts.read().values == (("calls", 0),)


def test_a_flag_that_something_else_decides_is_not_followed(rng: np.random.Generator) -> None:
    """The counter's next value comes from what is fed: each step has to look at its flag."""
    _, plan = plan_of(rng, adam)
    number = next(
        n for n, step in enumerate(plan.steps)
        if any(plan.slots[v.slot].owner is counter_of(plan) for v in step.outputs)
    )  # fmt: skip
    unknown = replace(plan.steps[number], family=EXPRESSION, node=plan.steps[0].node)
    changed = replace(plan, steps=(*plan.steps[:number], unknown, *plan.steps[number + 1 :]))
    assert not Counts(changed, Copies())


# ---- What is launched


class Stream:
    def __init__(self) -> None:
        self.done: list[str] = []


class Graph:
    """What was captured: the launches, which it makes again."""

    def __init__(self, launches: list[Any]) -> None:
        self.launches = launches

    def launch(self, stream: Stream) -> None:
        stream.done.append("graph")
        for launch in self.launches:
            launch(stream)


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    found: list[Graph] = []

    def captured(device: Any, launches: Any, touched: Any, **more: Any) -> Graph:
        found.append(Graph(list(launches)))
        return found[-1]

    monkeypatch.setattr(segments, "captured", captured)
    monkeypatch.setattr(loops, "captured", captured)
    return found


def launches() -> list[Any]:
    def noting(what: str) -> Callable[..., None]:
        return lambda stream, *addresses: stream.done.append(what)

    timed = TimedCall(noting("sent"), (8, 16), 0, LibraryCall(noting("kept"), (8, 16)))
    return [LibraryCall(noting("before"), (0,)), timed, LibraryCall(noting("after"), (24,))]


def segment_of(counts: Any) -> Segment:
    found = Segment(SimpleNamespace(stream=Stream()), counts)
    for number, launch in enumerate(launches()):
        step: Any = SimpleNamespace(follows=False, stream=None, waits=())
        found.add(launch, Touched(), number, step)
    return found


def test_each_sort_of_call_has_a_graph(rng: np.random.Generator, captures: list[Graph]) -> None:
    _, plan = plan_of(rng, adam)
    counts = Counts(plan, Copies())
    segment = segment_of(counts)
    state = counter_of(plan)
    kinds = []
    for _ in range(9):
        counts.read()
        segment.device.stream.done.clear()
        segment.run()
        kinds.append("/".join(segment.device.stream.done))
        counts.advance(1)
        state.version += 1
        counts.settle()
    kept, sent = "before/kept/after", "before/sent/after"
    # The first of each sort is launched one by one, the second captured.
    assert kinds == [
        kept, f"graph/{kept}", sent, f"graph/{kept}", f"graph/{kept}", f"graph/{sent}",
        f"graph/{kept}", f"graph/{kept}", f"graph/{sent}",
    ]  # fmt: skip
    assert len(captures) == 2
    assert set(segment.graphs) == {YES, NO}
    # As what is told of other calls: a collective is one to who places launches on streams.
    assert isinstance(segment.chosen(YES).launches[1], CollectiveCall)
    assert not isinstance(segment.chosen(NO).launches[1], CollectiveCall)


def test_where_launches_lie_elsewhere_both_sorts_do() -> None:
    places: list[Any] = []
    timed = TimedCall(
        lambda stream, *a: places.append(("sent", a)), (8, 16), 0,
        LibraryCall(lambda stream, *a: places.append(("kept", a)), (8, 16)),
    )  # fmt: skip
    moved = timed.moved(lambda address: address + 100)
    for flags in (YES, NO):
        moved.at(flags)(None)
    assert places == [("sent", (108, 116)), ("kept", (108, 116))]


class BoundPlan:
    """A plan that is bound to a card, as a loop of steps sees it."""

    def __init__(self, counts: Any, state: Any) -> None:
        self.segment = segment_of(counts)
        self.state, self.counts = state, counts
        self.device = self.segment.device
        self.plan = SimpleNamespace(fetches=[])
        self.memory = SimpleNamespace(counts=counts, at=None)

    def looped(self) -> Segment:
        return self.segment

    def leave(self, steps: int) -> None:
        self.state.version += steps
        self.counts.settle()


@pytest.mark.parametrize("calls", [2, 3, 5, 8, 16, 17, 40])
def test_many_steps_send_where_calls_do(
    rng: np.random.Generator, captures: list[Graph], calls: int
) -> None:
    _, plan = plan_of(rng, lambda: adam(calls))
    counts = Counts(plan, Copies())
    bound = BoundPlan(counts, counter_of(plan))
    stream = bound.device.stream
    loop = Loop(bound, None)  # type: ignore[arg-type]
    loop._seconds = 1e-9  # nothing is timed
    done, runs = 0, (7, 1, 50, 3, 64, 200, 200)
    for count in runs:
        counts.read()
        stream.done.clear()
        left = count
        while left:
            steps = loop._launch(left, None)
            assert 0 < steps <= left
            counts.advance(steps)
            left -= steps
        bound.leave(count)
        said = [what for what in stream.done if what in ("sent", "kept")]
        wanted = ["sent" if (done + n) % calls == calls - 1 else "kept" for n in range(count)]
        assert said == wanted
        done += count
    # Graphs begin where a cycle does: what differs is how a run begins, and how each one ends.
    assert len(loop._graphs) <= 2 * min(calls, loops.STEPS) + len(runs)
    assert len(captures) == len(loop._graphs)


def test_a_graph_of_steps_ends_behind_what_sends() -> None:
    cycle = [NO, NO, YES] * 6
    assert at_once(cycle[:16], {NO, YES}) == 15
    assert at_once(cycle[1:17], {NO, YES}) == 14
    assert at_once([NO] * 16, {NO, YES}) == 16
    assert at_once(cycle, set()) == 0  # one by one, first
    assert at_once(cycle, {NO}) == 2
    assert at_once([YES, NO], {NO}) == 0


# ---- Ranks


@pytest.mark.parametrize("values", [((1, True), (1, True)), ((1, True), (1, False))])
def test_ranks_go_on_that_count_alike(values: Any) -> None:
    assert told(values) == ["went on"] * 2


def test_ranks_that_count_differently_raise_on_all() -> None:
    found = told(((2, True), (1, False)))
    assert len(set(found)) == 1
    assert "'calls', by which calls of the function 'step' send, differs" in found[0]
    assert "2 on 0, 1 on 1" in found[0]


def told(values: Any) -> list[str]:
    """Return what ranks do that meet with what they know; the second of each: whether it is new."""

    def job() -> str:
        meeting = Together(mg.distributed.communicator(), "step")
        meeting.speaks_to((0, 1), False)
        count, anew = values[mg.distributed.rank()]
        try:
            meeting.meet(counted=Counted(anew, (("calls", count),)))
        except CommunicationError as error:
            return str(error)
        return "went on"

    return list(mg.distributed.threads(2, job))
