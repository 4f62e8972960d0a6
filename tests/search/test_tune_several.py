"""Searches of several goals, of conditional spaces, and of populations."""

from __future__ import annotations

import functools
import itertools
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import searched

import magmagraph as mg
from magmagraph.tune.space import Space

ACCURATE = {"minimize": ["time", "memory"], "maximize": "accuracy"}
SIZES = {"size": mg.tune.grid(1, 12), "bits": [8, 16, 32]}
RULES = {
    "rule": ["sgd", "adam", "none"],
    "momentum": mg.tune.when([0.0, 0.9], rule="sgd"),
    "nesterov": mg.tune.when([False, True], momentum=0.9),
    "rate": mg.tune.when(mg.tune.grid(1, 3), rule=["sgd", "adam"]),
}


def same(one, other):
    """Return whether two searches tried the same points and found the same of them."""
    kept = [
        [(t.number, t.params, t.state, t.goals, t.notes) for t in found.trials]
        for found in (one, other)
    ]
    return kept[0] == kept[1]


# ------------------------------------------------------------------------------ several goals


def test_the_front_is_what_no_trial_is_better_than():
    found = mg.tune.search(searched.costly, SIZES, "grid", **ACCURATE)

    def better(one, other):
        signed = [np.array([*t.goals[:2], -t.goals[2]]) for t in (one, other)]
        return (signed[0] <= signed[1]).all() and (signed[0] < signed[1]).any()

    front = [t for t in found.trials if not any(better(other, t) for other in found.trials)]
    assert 3 < len(front) < len(found)
    assert found.front == front
    study = found.to_optuna()
    assert {t.number for t in study.best_trials} == {t.number for t in front}
    assert [d.name for d in study.directions] == ["MINIMIZE", "MINIMIZE", "MAXIMIZE"]
    assert found.ranked()[: len(front)] == front
    assert len(found.ranked()) == len(found)
    told = f"the largest accuracy: {len(front)} on the Pareto front"
    assert told in found.summary()
    assert repr(found) == f"<search of 36 trials, {len(front)} on the Pareto front>"


@pytest.mark.parametrize("method", ["random", "tpe", "nsga2"])
def test_fronts_do_not_depend_on_the_executor_and_resume(method, tmp_path):
    more = {"population": 6} if method == "nsga2" else {}
    search = functools.partial(
        mg.tune.search, searched.costly, SIZES, method, **ACCURATE, **more
    )
    whole = search(trials=18)
    with ThreadPoolExecutor(3) as own:
        assert same(whole, search(own, trials=18, journal=tmp_path / "search.log"))
    cut = tmp_path / "cut.log"
    search(trials=7, journal=cut)
    again = search(trials=18, journal=cut)
    assert same(whole, again)
    read, _ = mg.tune.read(cut)
    assert [t.number for t in read.front] == [t.number for t in whole.front]


def test_nsga2_comes_closer_to_the_front_than_chance():
    """The mean distance of the front from the curve on which no point is better."""
    space = {f"x{i}": mg.tune.uniform(0, 1) for i in range(4)}

    def distance(method):
        found = mg.tune.search(searched.zdt, space, method, trials=120, minimize=["one", "two"],
                               **({"population": 12} if method == "nsga2" else {}))  # fmt: skip
        return np.mean([t.goals[1] - (1 - t.goals[0] ** 0.5) for t in found.front])

    assert distance("nsga2") < 0.7 * distance("random")


def test_a_search_of_several_goals_has_no_best(tmp_path):
    found = mg.tune.search(searched.costly, SIZES, trials=5, **ACCURATE)
    with pytest.raises(mg.DataError, match="a search of 3 goals has no best trial\n  try: found.f"):
        _ = found.best
    with pytest.raises(mg.DataError, match="trial 0 has 3 goals\n  try: trial.goals"):
        _ = found.trials[0].goal
    found.to_csv(tmp_path / "trials.csv")
    head = (tmp_path / "trials.csv").read_text().splitlines()[0].split(",")
    assert head[4:7] == ["goal time", "goal memory", "goal accuracy"]
    found.report(tmp_path / "page.html")
    assert "Pareto front" in (tmp_path / "page.html").read_text()


def test_a_goal_of_several_that_is_missing_or_not_finite_is_named():
    with pytest.raises(mg.ConfigError, match="the goal is 'gain', and the objective returned"):
        mg.tune.search(searched.costly, SIZES, minimize=["time", "gain"])
    found = mg.tune.search(
        lambda t: {"loss": t["x"], "cost": np.nan if t["x"] else 1.0}, {"x": [0, 1]}, "grid",
        minimize=["loss", "cost"],
    )  # fmt: skip
    assert [t.state for t in found.trials] == ["done", "failed"]
    assert found.trials[1].error.startswith("the goal 'cost' is nan (of loss=1, cost=nan")
    assert [t.number for t in found.front] == [0]


def test_cmaes_has_one_goal(monkeypatch):
    monkeypatch.setattr("magmagraph.tune.optuna_parts.find_spec", lambda name: name)
    with pytest.raises(mg.ConfigError, match="method='cmaes' with 2 goals\n  expected: 'nsga2'"):
        mg.tune.search(searched.bowl, {"x": mg.tune.uniform(0, 1)}, "cmaes",
                       minimize=["value", "time"], trials=3)  # fmt: skip


def test_several_goals_need_optuna(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "magmagraph.tune.optuna_parts", raising=False)
    monkeypatch.delattr("magmagraph.tune.optuna_parts", raising=False)
    with pytest.raises(mg.ConfigError, match="mg.tune needs optuna"):
        mg.tune.search(searched.costly, SIZES, "grid", **ACCURATE)


# ------------------------------------------------------------------------------ conditions


def test_a_grid_has_each_point_of_a_conditional_space_once():
    found = mg.tune.search(lambda trial: 0.0, RULES, "grid")
    every = []
    for rate in (1, 2, 3):
        every += [{"rule": "sgd", "momentum": 0.0, "rate": rate}, {"rule": "adam", "rate": rate}]
        every += [
            {"rule": "sgd", "momentum": 0.9, "nesterov": n, "rate": rate} for n in (False, True)
        ]
    every.append({"rule": "none"})
    points = [trial.params for trial in found.trials]
    assert len(points) == Space(RULES).size == len(every) == 13
    assert all(point in points for point in every)
    drawn = [t.params for t in mg.tune.search(lambda trial: 0.0, RULES, "random").trials]
    assert len(drawn) == 13 and all(point in drawn for point in every) and drawn != points


@pytest.mark.parametrize("method", ["random", "tpe", "nsga2"])
def test_conditional_points_are_drawn_learned_and_resumed(method, tmp_path):
    space = {**RULES, "rate": mg.tune.when(mg.tune.log_uniform(1e-3, 1), rule=["sgd", "adam"])}
    search = functools.partial(mg.tune.search, searched.ruled, space, method)
    journal = tmp_path / "search.log"
    whole = search(trials=24)
    search(trials=9, journal=journal)
    with ThreadPoolExecutor(3) as own:
        found = search(own, trials=24, journal=journal)
    assert same(whole, found)
    for params in (trial.params for trial in found.trials):
        assert ("momentum" in params) == (params["rule"] == "sgd")
        assert ("nesterov" in params) == (params.get("momentum") == 0.9)
        assert ("rate" in params) == (params["rule"] != "none")
    assert {trial.params["rule"] for trial in found.trials} == {"sgd", "adam", "none"}
    read, _ = mg.tune.read(journal)
    assert [t.labels for t in read.trials] == [t.labels for t in found.trials]
    found.report(tmp_path / "page.html")
    found.to_csv(tmp_path / "trials.csv")
    assert str(found).count("\n") == 11


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (
            {"rule": ["a"], "x": mg.tune.when([1], rul="a")},
            "'x' exists under 'rul', which is no parameter before it\n"
            "  expected: one of 'rule'\n  try: when(..., rule=...)",
        ),
        (
            {"x": mg.tune.when([1], rule="a"), "rule": ["a"]},
            "expected: one of those before it\n  try: 'rule' first in the space",
        ),
        (
            {"rule": ["a", "b"], "x": mg.tune.when([1], rule="c")},
            "'x' exists where 'rule' is 'c', which is none of its options\n"
            "  expected: one of 'a', 'b'",
        ),
        (
            {"rate": mg.tune.uniform(0, 1), "x": mg.tune.when([1], rate=0.5)},
            "expected: a condition on a parameter of at most 10,000 options",
        ),
    ],
)
def test_wrong_conditions_are_refused(space, text):
    with pytest.raises(mg.ConfigError) as caught:
        mg.tune.search(searched.bowl, space)
    assert text in str(caught.value)


def test_wrong_conditional_parameters_are_refused():
    with pytest.raises(mg.ConfigError, match=r'try: when\(domain, optimizer="sgd"\)'):
        mg.tune.when([1])
    with pytest.raises(mg.ConfigError, match=r"when\(\[1\], rule=\[\]\)\n  expected: the option"):
        mg.tune.when([1], rule=[])
    with pytest.raises(mg.ConfigError, match=r"for 'x', which may be two options or a range"):
        Space({"rule": ["a"], "x": mg.tune.when((0.0, 1.0), rule="a")})
    found = mg.tune.search(lambda trial: trial["x"], {"r": ["a"], "x": [1]}, "grid")
    assert found.best.goal == 1
    failed = mg.tune.search(lambda t: t["momentum"], {**RULES, "rule": ["none", "sgd", "adam"]},
                            "grid").trials  # fmt: skip
    missing = [trial for trial in failed if trial.state == "failed"]
    assert {trial.params["rule"] for trial in missing} == {"adam", "none"}
    assert "its condition does not hold" in missing[0].error


def test_too_many_combinations_of_conditions_are_refused():
    looked = {f"x{i}": mg.tune.grid(1, 30) for i in range(3)}
    space = {**looked, "y": mg.tune.when([1], x0=1, x1=1, x2=1)}
    with pytest.raises(mg.ConfigError, match="look at 27,000 combinations\n  expected: at most"):
        mg.tune.search(searched.bowl, space, "grid")


# ------------------------------------------------------------------------------ populations

RATE = {"rate": mg.tune.log_uniform(1e-4, 1e-1), "shuffled": [False, True]}


def populated(folder, executor="serial", trials=16, **options):
    return mg.tune.search(
        searched.member, RATE, "pbt", executor, trials=trials, population=4,
        checkpoints=folder, **options,
    )  # fmt: skip


def test_members_go_on_from_checkpoints_and_the_worst_take_over_the_best(tmp_path):
    found = populated(tmp_path)
    assert found.count("done") == 16
    for number, trial in enumerate(found.trials):
        parent = trial.notes["parent"]
        if number < 4:
            assert parent is None
            continue
        before = found.trials[number // 4 * 4 - 4 : number // 4 * 4]
        order = sorted(before, key=lambda t: (t.goal, t.number))
        if order[-1].number == number - 4:
            assert parent == order[0].number
            ratio = trial.params["rate"] / order[0].params["rate"]
            assert min(abs(ratio - 0.8), abs(ratio - 1.25)) < 1e-12 or trial.params["rate"] == 0.1
        else:
            assert parent == number - 4
            assert trial.params == found.trials[parent].params
        # Two epochs more than its parent: it went on, and did not begin again.
        assert trial.values["epochs"] == found.trials[parent].values["epochs"] + 2
    assert found.best.number >= 12
    first = min(trial.goal for trial in found.trials[:4])
    assert found.best.goal < first / 2


def test_a_population_is_the_same_on_any_number_of_workers_and_resumed(tmp_path):
    whole = populated(tmp_path / "one")
    with ThreadPoolExecutor(3) as own:
        assert same(whole, populated(tmp_path / "three", own))
    journal = tmp_path / "search.log"
    populated(tmp_path / "cut", trials=6, journal=journal)
    assert same(whole, populated(tmp_path / "cut", journal=journal))


def test_a_member_that_fails_is_the_worst(tmp_path):
    def objective(trial):
        if trial.number in (1, 5):
            raise ValueError("diverged")
        return searched.member(trial)

    found = mg.tune.search(objective, RATE, "pbt", trials=8, population=4, checkpoints=tmp_path)
    assert [trial.state for trial in found.trials].count("failed") == 2
    best = min((t for t in found.trials[:4] if t.goal is not None), key=lambda t: t.goal)
    assert found.trials[5].notes == {"parent": best.number}

    def never(trial):
        raise ValueError("diverged")

    every = mg.tune.search(never, RATE, "pbt", trials=8, population=4, checkpoints=tmp_path)
    assert {trial.notes["parent"] for trial in every.trials} == {None}


def test_checkpoints_that_are_missing_fail_their_trial(tmp_path):
    found = mg.tune.search(lambda trial: 1.0, RATE, "pbt", trials=2, population=2,
                           checkpoints=tmp_path)  # fmt: skip
    assert "trial 0 has not written" in found.trials[0].error
    assert "try: fit(callbacks=[mg.callbacks.Checkpoint(trial.checkpoint)])" in (
        found.trials[0].error
    )

    def removed(trial):
        trial.checkpoint.touch()
        if trial.number == 2:
            (tmp_path / "trial-000001.checkpoint").unlink()
        return trial.number

    found = mg.tune.search(removed, RATE, "pbt", trials=4, population=2, maximize="value",
                           checkpoints=tmp_path)  # fmt: skip
    assert found.trials[3].state == "failed"
    assert "trial-000001.checkpoint, from which trial 3 goes on" in found.trials[3].error


def test_a_population_has_one_goal_and_no_rule(tmp_path):
    for more in ({"minimize": ["value", "time"]}, {"stop": "median"}):
        with pytest.raises(mg.ConfigError, match="expected: one goal, and no stop="):
            populated(tmp_path, **more)


def test_neighbors_stay_in_their_domains(rng):
    domains = [mg.tune.uniform(-1, 1), mg.tune.log_uniform(1, 2), mg.tune.grid(0, 3),
               mg.tune.choice(["a", "b"])]  # fmt: skip
    for domain, _ in itertools.product(domains, range(50)):
        code = domain.draw(rng)
        for _ in range(20):
            code = domain.moved(code, rng)
        size = domain.size
        inside = range(size) if size is not None else None
        assert code in inside if inside else domain.low <= code <= domain.high
