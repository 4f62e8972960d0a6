"""Measured choices: candidates in turn, the least time, the first one among equals."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.runtime import cache, trial


def test_among_equals_the_first_is_kept() -> None:
    assert trial.chosen({"sum": 1.00, "gemv": 0.99}) == "sum"
    assert trial.chosen({"sum": 1.00, "gemv": 0.95}) == "gemv"
    assert trial.chosen({"sum": 1.00, "gemv": 1.01}) == "sum"
    assert trial.chosen({"sum": float("inf"), "gemv": 1.0}) == "gemv"


def test_a_slow_moment_of_the_machine_does_not_decide() -> None:
    """One candidate is slow for its first turns, as where another program takes the core."""
    turns: list[str] = []

    def run(name: str, seconds: float, slow: int) -> None:
        turns.append(name)
        time.sleep(seconds * (5 if turns.count(name) <= slow else 1))

    taken = trial.least({
        "first": lambda: run("first", 1e-3, 4),
        "second": lambda: run("second", 2e-3, 0),
    })
    assert taken["first"] < taken["second"]
    assert turns[2:8] == ["first", "second"] * 3


def test_a_choice_is_kept_for_a_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = cache.Choices(tmp_path)
    monkeypatch.setattr(trial, "default_choices", lambda: choices)
    measured: list[int] = []

    def on_cpu(candidates: object) -> dict[str, float]:
        measured.append(mg.config.threads or 0)
        return {"a": 1.0, "b": 2.0} if len(measured) == 1 else {"a": 2.0, "b": 1.0}

    monkeypatch.setattr(trial, "_on_cpu", on_cpu)
    candidates = dict.fromkeys(("a", "b"), lambda: pytest.fail("not needed"))
    found = []
    for threads in (1, 2, 1, 2):
        monkeypatch.setattr(mg.config, "threads", threads)
        found.append(trial.fastest("test", candidates))
    assert found == ["a", "b", "a", "b"]
    assert measured == [1, 2]


def test_candidates_of_a_sum_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both forms run, and what won is what `f.explain` tells."""
    choices = cache.Choices(tmp_path)
    monkeypatch.setattr(trial, "default_choices", lambda: choices)
    monkeypatch.setattr(mg.config, "tuning", True)
    taken: list[dict[str, float]] = []
    chosen = trial.chosen

    def told(times: dict[str, float]) -> str:
        taken.append(times)
        return chosen(times)

    monkeypatch.setattr(trial, "chosen", told)
    x = mg.var("x", shape=(300, 200))
    total = mg.sum(x, axis=1)
    f = mg.function([x], total)
    value = np.ones((300, 200), np.float32)
    np.testing.assert_array_equal(f(value), value.sum(axis=1))
    assert [set(times) for times in taken] == [{"sum", "gemv"}]
    assert all(0 < seconds < 1 for seconds in taken[0].values())
    said = str(f.explain(total))
    assert ("with ones, measured faster" in said) == (chosen(taken[0]) == "gemv")
    assert ("the sum measured faster" in said) == (chosen(taken[0]) == "sum")
