"""Which plan of cuDNN is chosen, with a library that is made up: without a GPU."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import pytest

from magmagraph.errors import DeviceError
from magmagraph.runtime.cuda.device import SCRATCH
from magmagraph.runtime.cuda.library import cudnn
from magmagraph.runtime.cuda.library.cudnn import LibraryGraph

MIB = 1 << 20


class MadeUp(NamedTuple):
    """A plan: what it is called, how long it takes, what it needs, and how it errs."""

    name: str
    microseconds: float
    workspace: int = 0
    error: float = 0.0


class Block:
    """Memory of the host in place of a device's."""

    def __init__(self, count: int) -> None:
        self.held = np.full(count, 77, np.uint8)
        self.size = count
        self.data = type("", (), {"ptr": self.held.ctypes.data})


class Clock:
    """The stream and its time: what runs moves it on."""

    ptr = 1

    def __init__(self) -> None:
        self.now = 0.0

    def synchronize(self) -> None:
        """Do nothing: what runs is done."""


class Event:
    def record(self, stream: Clock) -> None:
        self.at = stream.now

    def synchronize(self) -> None:
        """Do nothing: what runs is done."""


class Runtime:
    @staticmethod
    def memcpy(to: int, source: int, count: int, kind: int) -> None:
        assert kind in (1, 2)
        ctypes.memmove(to, source, count)

    @staticmethod
    def deviceSynchronize() -> None:
        """Do nothing: what runs is done."""


class Device:
    name, number = "made up", 0

    def __init__(self, room: int = 1 << 40) -> None:
        self.room, self.stream = room, Clock()
        elapsed = lambda begin, end: (end.at - begin.at) * 1e-3  # noqa: E731
        cuda = type("", (), {"Event": Event, "runtime": Runtime, "get_elapsed_time": elapsed})
        self.cupy = type("", (), {"cuda": cuda})

    def empty(self, count: int) -> Any:
        if count > self.room:
            raise DeviceError("no room")
        return Block(min(count, 64 * MIB))

    def pause(self, stream: Clock, nanoseconds: int) -> None:
        """Do nothing."""

    def scratch(self, stream: Clock) -> int:
        return 1


class Tensor:
    def get_dim(self) -> list[int]:
        return [3, 700_001]  # more than the pattern


class Graph:
    def __init__(self, plans: list[MadeUp]) -> None:
        self.plans, self.built = plans, []

    def get_execution_plan_count(self) -> int:
        return len(self.plans)

    def get_plan_name_at_index(self, index: int) -> str:
        return self.plans[index].name

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return self.plans[index].workspace

    def build_plan_at_index(self, index: int) -> None:
        self.built.append(index)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Keep choices in memory, and measure."""
    held: dict[str, Any] = {}
    monkeypatch.setattr(cudnn, "version", lambda: "made up")
    choices = type("", (), {"get": held.get, "set": held.__setitem__})
    monkeypatch.setattr(cudnn, "default_choices", lambda: choices)
    monkeypatch.setattr(cudnn.config, "tuning", True)
    return held


def library(
    plans: list[MadeUp], *, exact: bool = True, limit: int = 1 << 30, least: float = 50.0,
    room: int = 1 << 40,
) -> Any:  # fmt: skip
    """Return a graph of a made-up library before its plan is chosen."""
    made = object.__new__(LibraryGraph)
    made.device, made.key, made.limit, made.least = Device(room), "key", limit, least
    made.exact, made.chosen, made.name, made.workspace, made.check = exact, -1, "", 0, None
    made.microseconds, made.graph, made.tensors = 0.0, Graph(plans), [Tensor(), Tensor()]

    def launch(addresses: Any, workspace: int, stream: Clock) -> None:
        plan = plans[made.chosen]
        assert workspace and (plan.workspace <= SCRATCH or workspace != 1)
        stream.now += plan.microseconds
        if len(addresses) == 2:  # our own operands: the result is the operand, and the error
            count = 3 * 700_001
            kind = ctypes.c_float * count
            read, written = (
                np.frombuffer(kind.from_address(address), np.float32) for address in addresses
            )
            assert read.std() > 0.9
            written[:] = read * np.float32(1 + plan.error)

    made.launch = launch
    return made


USUAL = [MadeUp("eng1_k2=1", 400.0), MadeUp("eng1_k2=2", 350.0), MadeUp("eng2", 420.0)]
LARGE = 200 * MIB


@pytest.mark.usefixtures("kept")
def test_another_engine_is_taken_where_it_is_faster() -> None:
    graph = library([*USUAL, MadeUp("eng1_k2=3", 10.0), MadeUp("eng18_k11=0", 170.0, LARGE, 1e-6)])
    graph.settle([])
    # The first plan of each engine alone is tried: another of eng1 is not built.
    assert (graph.name, graph.microseconds, graph.workspace) == ("eng18_k11=0", 170.0, LARGE)
    assert 3 not in graph.graph.built


@pytest.mark.usefixtures("kept")
def test_engines_that_lose_digits_are_left_out() -> None:
    plans = [*USUAL, MadeUp("eng17", 120.0, LARGE, 2e-3), MadeUp("eng18", 170.0, LARGE, 1e-6)]
    graph = library(plans)
    graph.settle([])
    assert graph.name == "eng18"
    graph = library(plans, exact=False)
    graph.key = "tensor cores"
    graph.settle([])
    assert graph.name == "eng17"


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    "options", [{"least": 300.0}, {"limit": 100 * MIB}, {"room": 100 * MIB}, {"least": np.inf}]
)
def test_others_are_left_alone(options: dict[str, Any]) -> None:
    graph = library([*USUAL, MadeUp("eng18", 170.0, LARGE)], **options)
    graph.settle([])
    assert (graph.name, graph.microseconds) == ("eng1_k2=2", 350.0)


def test_a_choice_is_kept(kept: dict[str, Any]) -> None:
    plans = [*USUAL, MadeUp("eng18", 170.0, LARGE)]
    library(plans).settle([])
    again = library(plans)
    again.settle([])
    assert again.graph.built == [3] and again.workspace == LARGE and again.microseconds == 170.0
    assert len(kept) == 1
    # With less memory it is another question.
    less = library(plans, limit=100 * MIB)
    less.settle([])
    assert less.name == "eng1_k2=2" and len(kept) == 2


def test_what_was_not_measured_is_not_kept(
    kept: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cudnn.config, "tuning", False)
    graph = library([*USUAL, MadeUp("eng18", 170.0, LARGE)])
    graph.settle([])
    assert graph.name == "eng1_k2=1" and graph.graph.built == [0] and not kept
