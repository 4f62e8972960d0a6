"""Which of a library's plans is chosen by what they are measured to take; no device is needed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from planned import options_of

import magmagraph as mg
from magmagraph.ir.graph import Trace, freeze
from magmagraph.ir.plan import Plan
from magmagraph.passes import pipeline
from magmagraph.runtime.cuda.library.convolution import FirstImage
from magmagraph.runtime.cuda.library.cudnn import LibraryGraph


def chosen(
    monkeypatch: pytest.MonkeyPatch, times: dict[int, Sequence[float | None]]
) -> tuple[tuple[int, float], list[int]]:
    """Return the fastest of plans with these microseconds in each turn, and who had a turn.

    None stands for a plan that does not run.
    """
    turns: list[int] = []

    def burst(self: Any, index: int, addresses: Sequence[int]) -> float:
        taken = times[index][turns.count(index)]
        turns.append(index)
        if taken is None:
            raise RuntimeError("it does not run here")
        return taken

    monkeypatch.setattr(LibraryGraph, "_burst", burst)
    graph = LibraryGraph.__new__(LibraryGraph)
    graph.device = SimpleNamespace(stream=SimpleNamespace(synchronize=lambda: None))
    return graph._fastest(list(times), []), turns


def test_the_first_turn_does_not_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first is timed while the clock rises, and is the fastest of all later.
    found, turns = chosen(monkeypatch, {4: (60.0, 30.0, 31.0), 7: (41.0, 40.0, 40.0)})
    assert found == (4, 30.0)
    assert turns == [4, 7] * 3  # in turn


def test_what_is_far_behind_has_no_further_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    found, turns = chosen(monkeypatch, {0: (10.0, 10.0, 9.0), 1: (500.0,), 2: (29.0, 8.0, 9.0)})
    assert found == (2, 8.0)
    assert turns.count(1) == 1


def test_a_plan_that_does_not_run_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = chosen(monkeypatch, {0: (None,), 1: (12.0, 11.0, 13.0)})
    assert found == (1, 11.0)
    found, _ = chosen(monkeypatch, {3: (None,), 5: (None,)})
    assert found == (3, float("inf"))


class Host:
    """A device whose memory is the host's."""

    def __init__(self) -> None:
        runtime = SimpleNamespace(
            memcpy=lambda to, source, count, kind: ctypes.memmove(to, source, count),
            memset=ctypes.memset, deviceSynchronize=lambda: None,
        )  # fmt: skip
        self.cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
        self.stream = SimpleNamespace(synchronize=lambda: None)

    def empty(self, count: int) -> Any:
        held = np.full(count, 7, np.uint8)
        return SimpleNamespace(data=SimpleNamespace(ptr=held.ctypes.data), held=held)


def gradient_of_weights() -> Any:
    """Return a step that is the gradient of weights, of images padded behind alone."""
    x, w = mg.input("x", (5, 3, 8, 6)), mg.input("w", (4, 3, 3, 3))
    loss = mg.sum(mg.square(mg.conv(x, w, stride=2, padding=((0, 1), (0, 1)))))
    trace = Trace()
    graph = freeze([x, w], [mg.grad(loss, w)], trace=trace)
    plan, _ = pipeline.run(graph, trace, options=options_of(device="cuda:0"))
    assert isinstance(plan, Plan)
    (step,) = [s for s in plan.steps if s.node.op.name == "convolution_weight"]
    return step


@pytest.mark.parametrize("engine", ["right", "without the last rows", "not at all"])
def test_a_plan_that_leaves_out_rows_is_told(engine: str) -> None:
    step = gradient_of_weights()
    shapes = [value.type.shape for value in (*step.inputs, *step.outputs)]

    def launch(addresses: Sequence[int]) -> None:
        image, above, made = (
            np.ctypeslib.as_array((ctypes.c_float * int(np.prod(shape))).from_address(place))
            .reshape(shape) for place, shape in zip(addresses, shapes, strict=True)
        )  # fmt: skip
        if engine != "right":
            axis = 1 if step.node.attrs["channels_last"] else 2
            above = np.array(above)
            np.moveaxis(above, axis, 0)[-1] = 0.0
        if engine != "not at all":
            made[...] = step.node.op.evaluate(np, image, above, **step.node.attrs)

    check = FirstImage(SimpleNamespace(device=Host(), sizes={}), step)  # type: ignore[arg-type]
    assert [check(launch), check(launch)] == [engine == "right"] * 2


def test_plans_that_are_not_right_are_no_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = LibraryGraph.__new__(LibraryGraph)
    graph.device, graph.limit = Host(), 0
    graph.graph = SimpleNamespace(get_workspace_size_plan_at_index=lambda index: 0)
    ran: list[int] = []
    monkeypatch.setattr(LibraryGraph, "_built", lambda self, index: True)
    monkeypatch.setattr(LibraryGraph, "_run", lambda self, index, addresses: ran.append(index))

    def check(launch: Any) -> bool:
        launch([])
        if ran[-1] == 2:
            raise RuntimeError("it does not run here")
        return ran[-1] != 1

    monkeypatch.setattr(mg.config, "tuning", True)
    graph.check = check
    assert graph._candidates(6) == [0, 3, 4]
    graph.check = None
    assert graph._candidates(6) == [0, 1, 2]
