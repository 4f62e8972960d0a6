"""Which of a library's plans is chosen by what they are measured to take; no device is needed."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

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
