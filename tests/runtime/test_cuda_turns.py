"""Loops as launches, on a device that is an array of bytes: what each iteration touches."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.ir.fallback import Refused
from magmagraph.ir.graph import freeze
from magmagraph.ir.ranges import Touched, dependencies
from magmagraph.ops.control.loop import LOOP
from magmagraph.runtime.cuda.launching import launches
from magmagraph.runtime.cuda.launching import unrolled_loops as module
from magmagraph.runtime.cuda.launching.calls import LibraryCall, TimedCall
from magmagraph.runtime.cuda.launching.segments import Segment
from magmagraph.runtime.target import made_up

BASE = 4096
STEP: Any = SimpleNamespace(follows=False, stream=0, waits=())


class Memory:
    """Addresses are positions in one array."""

    def __init__(self) -> None:
        self.bytes = np.zeros(1 << 16, np.uint8)
        self.bytes[:] = 0xAA
        self.next = BASE
        self.sizes: dict[str, int] = {}
        self.keep: list[Any] = []
        self.failing: list[Any] = []
        runtime = SimpleNamespace(memcpyAsync=self._copied)
        self.device = SimpleNamespace(cupy=SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))

    def _copied(self, to: int, start: int, size: int, kind: int, stream: Any) -> None:
        self.bytes[to : to + size] = self.bytes[start : start + size]

    def more(self, count: int) -> int:
        at = self.next
        self.next += -(-count // 256) * 256
        return at

    def floats(self, at: int, count: int) -> np.ndarray:
        return self.bytes[at : at + 4 * count].view(np.float32)

    def at(self, value: Any) -> int:
        return int(value.address)


class BoundBody:
    """What computes ``new = 2 carry + row + read, row of results = new + 1``, on its own places."""

    def __init__(self, memory: Memory, width: int) -> None:
        self.memory, self.width = memory, width
        self.device = "cuda:0"
        self.places = [memory.more(4 * width) for _ in range(5)]  # three feeds, two results
        values = [SimpleNamespace(address=p, type=SimpleNamespace(bytes=4 * width))
                  for p in self.places[3:]]
        self.plan = SimpleNamespace(fetches=values)
        self.memory_of_results = {id(v): v for v in values}

        def run(stream: Any, carry: int, row: int, read: int, new: int, made: int) -> None:
            carried, given, same, result, more = (
                memory.floats(a, width) for a in (carry, row, read, new, made)
            )
            result[...] = 2 * carried + given + same
            more[...] = result + 1

        ranges = self.ranges(self.places)
        touched = Touched(tuple(ranges[:3]), tuple(ranges[3:]))
        self.segment = Segment(None)
        self.segment.add(LibraryCall(run, self.places), touched, 0, STEP)

    def ranges(self, places: list[int]) -> list[tuple[int, int]]:
        return [(place, place + 4 * self.width) for place in places]

    def bound_to(self, sizes: Any) -> BoundBody:
        return self

    def feed_ranges(self) -> list[tuple[int, int]]:
        return self.ranges(self.places[:3])

    def unchecked(self) -> Any:
        return self.segment


def loop_step(memory: Memory, count: int, width: int, reverse: bool, flag: str = "") -> Any:
    """Return a step of a loop, with operands and results in memory."""
    carry, xs, read = (
        mg.var(n, shape=s) for n, s in (("c", (width,)), ("xs", (count, width)), ("r", (width,)))
    )
    leaves = [mg.input(n, (width,)) for n in "abc"]
    new = 2.0 * leaves[0] + leaves[1] + leaves[2]
    node = LOOP(
        carry, xs, read, body=freeze(leaves, [new, new + 1.0]), carries=1, stacks=1, length=None,
        reverse=reverse, flag=flag,
    )
    sizes = [(width,), (count, width), (width,), (width,), (count, width)]
    values = []
    for shape in sizes:
        size = 4 * int(np.prod(shape))
        type_ = SimpleNamespace(shape=shape, bytes=size)
        values.append(SimpleNamespace(address=memory.more(size), type=type_))
    family = made_up("cuda").family(node)
    return SimpleNamespace(
        node=node, inputs=values[:3], outputs=values[3:], family=family, role=family.role
    )


def test_a_loop_of_a_plan_is_launched_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    memory.plan = None  # type: ignore[attr-defined]
    step = loop_step(memory, 2, 3, False)
    monkeypatch.setattr(module, "turns", lambda memory, step: ["launched"])
    make = launches.StepLaunches(memory, None, None)  # type: ignore[arg-type]
    assert make.step(step) == ["launched"]
    assert module.is_counted(step.node)
    free: Any = SimpleNamespace(op=LOOP, attrs={"flag": "carry", "stacks": 0, "length": 9})
    assert not module.is_counted(free)
    assert not module.is_counted(step.node.inputs[0])


def test_the_copy_of_a_loop_s_result_is_no_loop() -> None:
    memory = Memory()
    memory.plan = None  # type: ignore[attr-defined]
    memory.touched = lambda step: Touched()  # type: ignore[attr-defined]
    made = loop_step(memory, 2, 3, False).outputs[0]
    held = SimpleNamespace(address=memory.more(12), type=made.type)
    v = mg.variable("v", init=np.zeros(3, "f4"))
    xs = mg.input("xs", (2, 3))
    f = mg.function([xs], [], {v: mg.scan(lambda c, x: (c + x, None), v, xs)[0]})
    (copy,) = [step for step in f.plan.steps if step.kernel == "copy"]
    assert copy.node.op is LOOP
    step: Any = SimpleNamespace(
        node=copy.node, family=copy.family, role=copy.role, inputs=[made], outputs=[held]
    )
    memory.floats(made.address, 3)[...] = [1.0, 2.0, 3.0]
    units = launches.StepLaunches(memory, None, None).step(step)  # type: ignore[arg-type]
    assert units is not None
    for unit in units:
        unit.launch(SimpleNamespace(ptr=0))
    np.testing.assert_array_equal(memory.floats(held.address, 3), [1.0, 2.0, 3.0])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("width", [64, 65, 3])  # rows that lie where libraries expect them, or not
@pytest.mark.parametrize("count", [1, 2, 5])
def test_iterations_hand_on_carries_and_rows(
    count: int, width: int, reverse: bool, rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = Memory()
    step = loop_step(memory, count, width, reverse)
    body = BoundBody(memory, width)
    body.memory = SimpleNamespace(at=memory.at, failing=[])  # type: ignore[assignment]
    monkeypatch.setattr(module, "body_function", lambda graph: body)
    given = [rng.standard_normal(v.type.shape).astype("f4") for v in step.inputs]
    for value, array in zip(step.inputs, given, strict=True):
        memory.floats(value.address, array.size)[...] = array.reshape(-1)
    units = module.turns(memory, step)  # type: ignore[arg-type]
    assert units is not None
    stream = SimpleNamespace(ptr=0)
    for unit in units:
        unit.launch(stream)
    carry, rows = given[0], np.empty((count, width), "f4")
    for at in range(count)[:: -1 if reverse else 1]:
        carry = 2 * carry + given[1][at] + given[2]
        rows[at] = carry + 1
    found = [memory.floats(v.address, int(np.prod(v.type.shape))) for v in step.outputs]
    np.testing.assert_array_equal(found[0], carry)
    np.testing.assert_array_equal(found[1].reshape(count, width), rows)
    for value, array in zip(step.inputs, given, strict=True):  # operands are only read
        np.testing.assert_array_equal(memory.floats(value.address, array.size), array.reshape(-1))
    # Iterations wait for each other: what they touch is told with its new place.
    computing = [i for i, unit in enumerate(units) if len(unit.launch.addresses) == 5]  # type: ignore[attr-defined]
    waits = dependencies([unit.touched for unit in units])
    for before, after in itertools.pairwise(computing):
        reached, stack = set(), [after]
        while stack:
            for other in waits[stack.pop()] - reached:
                reached.add(other)
                stack.append(other)
        assert before in reached


def test_loops_that_a_value_ends_stay_array_expressions() -> None:
    memory = Memory()
    step = loop_step(memory, 3, 4, reverse=False)
    attrs = {**step.node.attrs, "flag": "stack"}
    flagged = SimpleNamespace(node=SimpleNamespace(attrs=attrs), inputs=step.inputs)
    with pytest.raises(Refused, match="iterations depends on its values"):
        module.turns(memory, flagged)  # type: ignore[arg-type]


def test_very_many_launches_stay_array_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    step = loop_step(memory, 5, 4, reverse=False)
    body = BoundBody(memory, 4)
    monkeypatch.setattr(module, "body_function", lambda graph: body)
    monkeypatch.setattr(module, "MOST", 4)
    with pytest.raises(Refused, match="more than 4 launches"):
        module.turns(memory, step)  # type: ignore[arg-type]


def test_a_loop_of_which_a_turn_may_not_send_runs_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    step = loop_step(memory, 2, 64, False)
    body = BoundBody(memory, 64)
    monkeypatch.setattr(module, "body_function", lambda graph: body)
    (call,) = body.segment.launches
    assert module.turns(memory, step) is not None  # type: ignore[arg-type]
    body.segment.launches = [TimedCall(call.run, call.addresses, 0, call)]
    with pytest.raises(Refused, match="send messages in some calls only"):
        module.turns(memory, step)  # type: ignore[arg-type]
