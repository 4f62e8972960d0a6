"""Searches: spaces, methods, goals, failures."""

from __future__ import annotations

import math
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import searched

import magmagraph as mg
from magmagraph.tune.space import Space

PLANE = {"x": mg.tune.grid(0, 5), "y": mg.tune.grid(0.0, 1.0, 0.25)}


def points(found):
    return [trial.params for trial in found.trials]


# ------------------------------------------------------------------------------ spaces


@pytest.mark.parametrize(
    ("domain", "values"),
    [
        (mg.tune.grid(0.1, 0.5, 0.1), [0.1, 0.2, 0.3, 0.4, 0.5]),
        (mg.tune.grid(0, 1, 0.3), [0.0, 0.3, 0.6, 0.9]),
        (mg.tune.grid(2, 9, 3), [2, 5, 8]),
        (mg.tune.grid(3, 3), [3]),
        (mg.tune.grid(16, 200, factor=2), [16, 32, 64, 128]),
        (mg.tune.grid(1e-5, 1e-2, factor=10), [1e-5, 1e-4, 1e-3, 1e-2]),
        (mg.tune.integers(-2, 3, 2), [-2, 0, 2]),
        (mg.tune.choice([None, "a", (1, 2), max]), [None, "a", (1, 2), max]),
    ],
)
def test_values_of_finite_domains(domain, values):
    assert domain.size == len(values)
    found = [domain.value(code) for code in range(domain.size)]
    assert found == values
    assert list(map(type, found)) == list(map(type, values))


def test_draws_stay_in_their_domains_and_reach_all_of_them(rng):
    space = Space(
        {
            "even": mg.tune.uniform(-1, 3),
            "log": mg.tune.log_uniform(1e-6, 1.0),
            "step": mg.tune.grid(0, 1, 0.25),
            "rule": ["a", "b"],
        }
    )
    drawn = [space.values_of(space.draw(rng)) for _ in range(2000)]
    even, log = (np.array([point[name] for point in drawn]) for name in ("even", "log"))
    assert even.min() >= -1
    assert even.max() <= 3
    assert log.min() >= 1e-6
    assert log.max() <= 1.0
    # A third of the logarithms lies in each third of their range; 2000 draws, 6 deviations.
    share = np.mean(log < 1e-4)
    assert abs(share - 1 / 3) < 6 * math.sqrt(2 / 9 / 2000)
    assert {point["step"] for point in drawn} == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert {point["rule"] for point in drawn} == {"a", "b"}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: mg.tune.uniform(1, 1), "uniform(1, 1)\n  expected: two finite numbers, low below"),
        (lambda: mg.tune.uniform(0, math.inf), "uniform(0, inf)"),
        (lambda: mg.tune.log_uniform(0, 1), "log_uniform(0, 1): 0 has no logarithm"),
        (lambda: mg.tune.grid(1, 0), "grid(1, 0): 0 is below 1\n  try: swap the ends"),
        (lambda: mg.tune.grid(0, 1, 0), "grid(0, 1, step=0): the step is 0"),
        (lambda: mg.tune.grid(0, 1, factor=2), "expected: a positive low and a factor above 1"),
        (lambda: mg.tune.grid(1, 2, 1, factor=2), "expected: a step or a factor, not both"),
        (lambda: mg.tune.grid(0, 1, 1e-12), "has 1,000,000,000,001 values"),
        (lambda: mg.tune.integers(0, 1.5), "integers(0, 1.5, 1)\n  expected: three ints"),
        (lambda: mg.tune.choice([]), "choice() of no options"),
        (lambda: mg.tune.choice("sgd"), "try: choice(['sgd'])"),
        (lambda: mg.tune.choice([1, 2, 1]), "choice: 1 is an option 2 times"),
        (lambda: mg.tune.choice([object()]), 'try: choice({"name": option, ...})'),
        (lambda: Space({}), 'try: {"rate": mg.tune.log_uniform(1e-4, 1e-1)}'),
        (lambda: Space({"x": 3}), "the space has 3 for 'x'"),
        (
            lambda: Space({"rate": (0.0, 2.0)}),
            "the space has (0.0, 2.0) for 'rate', which may be two options or a range\n"
            "  expected: mg.tune.choice([0.0, 2.0]) or mg.tune.uniform(0.0, 2.0)",
        ),
        (lambda: Space({3: [1]}), "the parameter 3\n  expected: a text as its name"),
    ],
)
def test_wrong_spaces_are_refused(make, text):
    with pytest.raises(mg.ConfigError) as caught:
        make()
    assert text in str(caught.value)


# ------------------------------------------------------------------------------ methods


def test_grid_goes_through_all_points_in_order():
    found = mg.tune.search(searched.bowl, PLANE, "grid")
    assert points(found) == [
        {"x": x, "y": y} for x in range(6) for y in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    assert found.best.params == {"x": 3, "y": 0.5}
    assert found.best.goal == 0.0


def test_random_search_of_a_finite_space_takes_each_point_once():
    found = mg.tune.search(searched.bowl, PLANE, "random")
    every = {(p["x"], p["y"]) for p in points(found)}
    assert len(found) == len(every) == 30
    assert points(found) != points(mg.tune.search(searched.bowl, PLANE, "grid"))
    assert points(mg.tune.search(searched.bowl, PLANE, trials=4)) == points(found)[:4]
    assert points(mg.tune.search(searched.bowl, PLANE, seed=1)) != points(found)


def test_random_search_goes_on_until_a_threshold():
    space = {"x": mg.tune.uniform(0, 6), "y": mg.tune.uniform(0, 1)}
    found = mg.tune.search(searched.bowl, space, until=0.05)
    assert found.best.goal <= 0.05
    assert found.best.number == len(found) - 1
    assert all(trial.goal > 0.05 for trial in found.trials[:-1])
    more = mg.tune.search(searched.bowl, space, trials=len(found) + 5)
    assert points(more)[: len(found)] == points(found)


def test_no_trial_starts_after_the_time_is_up(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("magmagraph.tune.engine.time.monotonic", lambda: clock[0])

    def objective(trial):
        clock[0] += 1.0
        return trial["x"]

    found = mg.tune.search(objective, {"x": mg.tune.uniform(0, 1)}, seconds=3.5)
    assert len(found) == 4


def test_tpe_finds_more_than_random_search():
    pytest.importorskip("optuna")
    space = {
        "x": mg.tune.uniform(-10, 10),
        "y": mg.tune.log_uniform(1e-3, 1e3),
        "n": mg.tune.grid(0, 20),
        "rule": ["good", "bad"],
    }

    def objective(trial):
        away = (trial["x"] - 3) ** 2 / 50 + math.log10(trial["y"]) ** 2 / 4
        return away + abs(trial["n"] - 7) / 10 + (trial["rule"] == "bad")

    def best(method, seed):
        return mg.tune.search(objective, space, method, trials=40, seed=seed).best.goal

    learned, drawn = (sum(best(m, seed) for seed in range(2)) for m in ("tpe", "random"))
    assert learned < drawn / 2


@pytest.mark.parametrize("method", ["tpe", "nsga2", "cmaes", "gp"])
def test_samplers_learn_and_repeat(method):
    """Each finds a point near the best one; those whose library is missing say how to get it."""
    space = {"x": mg.tune.uniform(0, 6), "y": mg.tune.uniform(0, 1)}
    needs = {"cmaes": "cmaes", "gp": "torch"}.get(method)
    if needs is not None and find_spec(needs) is None:
        with pytest.raises(mg.ConfigError, match=f"try: pip install {needs}, or method="):
            mg.tune.search(searched.bowl, space, method, trials=3)
        return
    found, again = (mg.tune.search(searched.bowl, space, method, trials=30) for _ in range(2))
    assert points(found) == points(again)
    assert found.best.goal < 0.6


@pytest.mark.parametrize(
    "options", [{"method": "tpe", "trials": 3}, {"stop": "median"}, {"journal": "search.log"}]
)
def test_what_needs_optuna_says_so(options, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    for name in ("optuna_parts", "journal"):
        monkeypatch.delitem(sys.modules, f"magmagraph.tune.{name}", raising=False)
        monkeypatch.delattr(f"magmagraph.tune.{name}", raising=False)
    with pytest.raises(mg.ConfigError) as caught:
        mg.tune.search(searched.bowl, PLANE, **options)
    assert 'try: pip install "magmagraph[tune]"' in str(caught.value)
    assert len(mg.tune.search(searched.bowl, PLANE, "grid")) == 30


# ------------------------------------------------------------------------------ goals


def several(trial):
    return {"accuracy": 1 - trial["x"] / 10, "loss": trial["x"], "cost": (trial["x"] - 2) ** 2}


@pytest.mark.parametrize(
    ("options", "x"),
    [
        ({}, 0),  # "loss" of a dict
        ({"minimize": "cost"}, 2),
        ({"maximize": "accuracy"}, 0),
        ({"maximize": {"accuracy": 1.0, "cost": -0.01}}, 0),
        ({"minimize": {"cost": 1.0, "loss": -1.0}}, 2),
        ({"minimize": {"cost": 1.0, "loss": -2.0}}, 3),
        ({"minimize": lambda values: abs(values["loss"] - 4)}, 4),
    ],
)
def test_goals_of_several_numbers(options, x):
    found = mg.tune.search(several, {"x": mg.tune.grid(0, 5)}, "grid", **options)
    assert found.best.params == {"x": x}


def test_time_can_be_a_goal_and_is_not_replaced():
    found = mg.tune.search(several, {"x": [1]}, minimize="time")
    assert 0 < found.best.goal == found.best.values["time"] <= found.best.seconds

    def timed(trial):
        return {"time": 3.0}

    assert mg.tune.search(timed, {"x": [1]}, minimize="time").best.goal == 3.0


def test_arrays_of_one_number_are_numbers():
    found = mg.tune.search(
        lambda trial: {"loss": np.array(trial["x"], np.float32), "n": np.int64(3)},
        {"x": [2, 1]},
    )
    assert found.best.values["loss"] == 1.0
    assert found.best.values["n"] == 3.0


def test_a_goal_that_is_not_returned_ends_the_search_at_once():
    calls = []

    def objective(trial):
        calls.append(trial.number)
        return {"loss": 1.0}

    with pytest.raises(mg.ConfigError) as caught:
        mg.tune.search(objective, PLANE, maximize="accuracy")
    assert "the goal is 'accuracy', and the objective returned loss=1, time=" in str(caught.value)
    assert calls == [0]


# ------------------------------------------------------------------------------ failures


def test_failed_trials_are_kept_with_their_cause():
    found = mg.tune.search(searched.troubled, {"x": [0, 1, 2, 3, 6]}, "grid")
    assert [trial.state for trial in found.trials] == ["done", *["failed"] * 3, "done"]
    first, second, third = (found.trials[i].error for i in (1, 2, 3))
    assert first.startswith("Traceback (most recent call last):\n")
    assert "searched.py" in first.splitlines()[1]  # our own lines are left out
    assert first.endswith("ValueError: no such x\n")
    assert second.endswith("SystemExit: 7\n")
    assert third.startswith("the goal is nan (of value=nan, time=")
    assert found.best.params == {"x": 0}
    assert found.count("failed") == 3
    assert found.summary().splitlines()[1] == "trial 1 failed: ValueError: no such x"


def test_a_parameter_that_the_space_has_not_is_named():
    found = mg.tune.search(lambda trial: trial["y"], {"x": mg.tune.grid(0, 1)}, "grid")
    assert "'y' is no parameter of the space, which has 'x'" in found.summary()


def test_the_cause_of_a_failure_is_what_was_raised_and_not_its_mend():
    found = mg.tune.search(lambda trial: mg.matmul(mg.ones((2, 3)), mg.ones((2, 3))), {"x": [0]})
    failed = found.trials[0]
    assert failed.error.rstrip().splitlines()[-1].startswith("  ")  # a mend, a need or a line
    assert failed.cause.startswith("magmagraph.errors.ShapeError: matmul")
    assert found.summary().endswith(f"trial 0 failed: {failed.cause}")


@pytest.mark.parametrize("returned", [None, "a", [1.0], {"loss": "a"}, {3: 1.0}, np.zeros(2), 1j])
def test_results_that_are_no_numbers_are_failures(returned):
    found = mg.tune.search(lambda trial: returned, {"x": [0]})
    assert "neither a number nor a dict of numbers by name" in found.trials[0].error
    with pytest.raises(mg.DataError, match="none of 1 trials came to its end; trial 0:"):
        _ = found.best


def test_the_first_failure_can_end_a_search():
    with pytest.raises(mg.tune.TrialError) as caught:
        mg.tune.search(searched.troubled, {"x": [0, 1, 6]}, "grid", failures="raise")
    assert str(caught.value).startswith("trial 1 of {'x': 1} failed:\n  Traceback")


def test_an_interrupt_is_not_a_failed_trial():
    def objective(trial):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mg.tune.search(objective, {"x": [0, 1]})
