"""Measured choices: candidates in turn, judged turn by turn, the first one among equals."""

from __future__ import annotations

import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.passes.reduce_to_gemv import MEASURED, RULE
from magmagraph.runtime import cache, trial


def test_among_equals_the_first_is_kept() -> None:
    assert trial.chosen({"sum": 1.00, "gemv": 0.99}) == "sum"
    assert trial.chosen({"sum": 1.00, "gemv": 0.95}) == "gemv"
    assert trial.chosen({"sum": 1.00, "gemv": 1.01}) == "sum"
    assert trial.chosen({"sum": float("inf"), "gemv": 1.0}) == "gemv"


class Machine:
    """A clock that runs take on, and what other programs make of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> None:
        self.now = 0.0
        self.draw = random.Random(seed)
        monkeypatch.setattr(trial.time, "perf_counter", lambda: self.now)

    def quiet(self, seconds: float) -> None:
        """Run on a machine that nobody else uses: times differ by 1.5 %."""
        self.now += seconds * math.exp(self.draw.gauss(0.0, 0.015))

    def shared(self, seconds: float, clean: float = 0.0) -> None:
        """Run where another program has a core, but for a chance between two of its slices."""
        slower = 1.0 if self.draw.random() < clean else 1.25 + abs(self.draw.gauss(0.0, 0.5))
        self.now += seconds * slower


SECONDS = 2.5e-4  # of a sum


def test_what_another_program_disturbs_is_not_decided_wrongly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The product is 12 % slower, and passes undisturbed now and then, which the sum never does."""
    found, by_least = [], []
    for seed in range(100):
        machine = Machine(monkeypatch, seed)
        taken = trial.turns({
            "sum": lambda machine=machine: machine.shared(SECONDS),
            "gemv": lambda machine=machine: machine.shared(1.12 * SECONDS, clean=0.05),
        })
        assert machine.now < 2.5 * trial.SECONDS * len(taken)
        found.append(trial.decided(taken))
        by_least.append(trial.chosen({name: min(seconds) for name, seconds in taken.items()}))
    assert found.count("gemv") <= 1
    assert found.count(None) > 50
    assert by_least.count("gemv") > 50  # the least time of each tells the wrong one


@pytest.mark.parametrize(
    ("gemv", "winner"), [(0.8, "gemv"), (0.93, "gemv"), (1.0, "sum"), (1.12, "sum")]
)
def test_a_quiet_machine_decides_soon(
    monkeypatch: pytest.MonkeyPatch, gemv: float, winner: str
) -> None:
    found, cost = [], []
    for seed in range(100):
        machine = Machine(monkeypatch, seed)
        taken = trial.turns({
            "sum": lambda machine=machine: machine.quiet(SECONDS),
            "gemv": lambda machine=machine: machine.quiet(gemv * SECONDS),
        })
        found.append(trial.decided(taken))
        cost.append(machine.now)
    assert found.count(winner) >= 98
    assert sorted(cost)[50] < trial.SECONDS  # half of what both may take


def test_the_order_of_turns_is_drawn_and_long_runs_have_some_turns() -> None:
    called: list[str] = []

    def run(name: str) -> None:
        called.append(name)
        time.sleep(2e-3)

    taken = trial.turns({"a": lambda: run("a"), "b": lambda: run("b")})
    assert len(taken["a"]) == len(taken["b"]) >= trial.LEAST
    order = called[2::2]  # each runs twice in its turn: the first time is not timed
    assert called[3::2] == order
    assert {"".join(order[i : i + 2]) for i in range(0, len(order), 2)} == {"ab", "ba"}


def test_an_interval_says_who_gains() -> None:
    def told(*ratios: float) -> str | None:
        return trial.decided({"sum": [1.0] * len(ratios), "gemv": ratios})

    assert told(*[0.97] * 7) == "gemv"
    assert told(*[0.99] * 7) == "sum"
    assert told(*[0.5] * 6, 1.0) is None  # all of a few turns have to
    assert told(*[0.9] * 14, 3.0) == "gemv"  # one of 15 is nobody's
    assert told(*[0.9] * 12, *[3.0] * 3) is None
    three = {"sum": [1.0] * 15, "gemv": [0.9] * 15, "other": [0.8] * 15}
    assert trial.decided(three) == "other"
    assert trial.decided({**three, "other": [0.5, 2.0] * 7}) == "gemv"
    assert trial.decided({"sum": [1.0]}) == "sum"


def test_what_is_undecided_is_tried_again_by_some_later_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []

    def process(seconds: list[float]) -> str:
        """Ask twice, as functions of one process do."""
        choices = cache.Choices(tmp_path)
        monkeypatch.setattr(trial, "default_choices", lambda: choices)
        monkeypatch.setattr(trial, "_tried", set())

        def on_cpu(candidates: object) -> dict[str, list[float]]:
            measured.append(1)
            return {"a": [1.0] * len(seconds), "b": seconds}

        monkeypatch.setattr(trial, "_on_cpu", on_cpu)
        candidates = dict.fromkeys(("a", "b"), lambda: pytest.fail("not needed"))
        first = trial.fastest(key, candidates)
        assert trial.fastest(key, candidates) == first
        return first

    unclear, faster = [0.5, 1.5] * 10, [0.5] * 20
    key = "decided later"
    assert [process(unclear), process(faster), process(unclear)] == ["a", "b", "b"]
    assert len(measured) == 2
    measured.clear()
    key = "never decided"
    assert {process(unclear) for _ in range(trial.TRIES)} == {"a"}
    assert len(measured) == trial.TRIES
    assert process(faster) == "a"  # kept: a trial is not for ever
    assert len(measured) == trial.TRIES


def test_a_choice_is_kept_for_a_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = cache.Choices(tmp_path)
    monkeypatch.setattr(trial, "default_choices", lambda: choices)
    measured: list[int] = []

    def on_cpu(candidates: object) -> dict[str, list[float]]:
        measured.append(mg.config.threads or 0)
        slow, fast = [2.0] * trial.ROUNDS, [1.0] * trial.ROUNDS
        return {"a": fast, "b": slow} if len(measured) == 1 else {"a": slow, "b": fast}

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
    found: list[str | None] = []
    decided = trial.decided

    def told(taken: dict[str, list[float]]) -> str | None:
        assert set(taken) == {"sum", "gemv"}
        assert all(0 < seconds < 1 for of_one in taken.values() for seconds in of_one)
        found.append(decided(taken))
        return found[-1]

    monkeypatch.setattr(trial, "decided", told)
    x = mg.var("x", shape=(300, 200))
    total = mg.sum(x, axis=1)
    f = mg.function([x], total)
    value = np.ones((300, 200), np.float32)
    np.testing.assert_array_equal(f(value), value.sum(axis=1))
    said = str(f.explain(total))
    assert (RULE + MEASURED in said) == (found[-1] == "gemv")
    assert ("a product with ones was not faster when measured" in said) == (found[-1] != "gemv")


class Bound:
    """A plan that is named by what it is fed, and remembers it."""

    def __init__(self) -> None:
        self.fed: list[np.ndarray] = []

    def bind(self, plan: Any) -> Bound:
        del plan
        return self

    def run(self, feeds: list[np.ndarray]) -> None:
        self.fed = feeds


@pytest.mark.parametrize(
    ("shapes", "together", "shared"),
    [
        (((1000,), (1000,)), [["a", "b"]], True),  # alike: one array, however large
        (((10,), (20,)), [["a", "b"]], False),
        (((10,), (1000,)), [["b"], ["a"]], False),  # not in memory together
    ],
)
def test_candidates_are_fed_the_same_or_large_ones_alone(
    monkeypatch: pytest.MonkeyPatch, shapes: Any, together: list[list[str]], shared: bool
) -> None:
    asked: list[list[str]] = []

    def turns(runs: dict[str, Any]) -> dict[str, list[float]]:
        asked.append([*runs])
        for run in runs.values():
            run()
        return {name: [1.0] for name in runs}

    monkeypatch.setattr(trial, "turns", turns)
    monkeypatch.setattr(trial, "LARGE", 1000)
    monkeypatch.setattr(trial, "prepare", lambda plan, device: plan)
    shape = dict(zip(plans := (Bound(), Bound()), shapes, strict=True))
    monkeypatch.setattr(trial, "_types", lambda plan: [(shape[plan], np.dtype("float32"))])
    taken = trial._on_cpu({"a": lambda: plans[0], "b": lambda: plans[1]})
    assert taken == {"a": [1.0], "b": [1.0]}
    assert asked == together
    assert (plans[0].fed[0] is plans[1].fed[0]) == shared
