"""Trials that are stopped early: reports, medians, halving, pruners of optuna."""

from __future__ import annotations

import math

import numpy as np
import pytest
import searched

import magmagraph as mg

CURVES = {"height": mg.tune.uniform(1.0, 2.0)}


def test_median_stops_what_it_should():
    """A trial stops where its best report is above the median of the finished trials it knows."""
    found = mg.tune.search(
        searched.curve, CURVES, trials=40, minimize="loss", stop=mg.tune.Median(startup=3), ahead=2
    )
    curves = [[value for _, value in trial.reports] for trial in found.trials]
    for i, (trial, own) in enumerate(zip(found.trials, curves, strict=True)):
        earlier = zip(found.trials[: max(0, i - 1)], curves, strict=False)  # all up to i - ahead
        known = [curve for other, curve in earlier if other.state == "done"]
        stops = [
            len(known) >= 3 and min(own[:n]) > np.median([curve[n - 1] for curve in known])
            for n in range(1, len(own) + 1)
        ]
        assert stops[:-1] == [False] * (len(own) - 1)
        assert trial.state == ("stopped" if stops[-1] else "done")
    assert 5 < found.count("stopped") < 35
    assert found.best.state == "done"


def test_halving_lets_the_best_part_pass_each_rung():
    found = mg.tune.search(
        searched.rising,
        CURVES,
        trials=40,
        maximize="value",
        ahead=1,
        stop=mg.tune.Halving(first=2, factor=2),
    )
    lengths = {len(trial.reports) for trial in found.trials}
    assert lengths == {2, 4, 8}  # the rungs, and the end, which is one
    for trial in found.trials:
        there = [t.params["height"] for t in found.trials[: trial.number] if len(t.reports) >= 2]
        passing = max(1, (len(there) + 1) // 2)
        better = sum(height > trial.params["height"] for height in there)
        assert (len(trial.reports) > 2) == (better < passing)
    whole = mg.tune.search(searched.rising, CURVES, trials=40, maximize="value")
    assert found.best.params == whole.best.params


def test_a_report_that_is_no_number_stops_at_once():
    def objective(trial):
        trial.report(1, math.nan)
        assert trial.should_stop()
        return math.nan

    found = mg.tune.search(objective, {"x": [1]}, stop="median")
    assert found.trials[0].state == "stopped"
    assert found.trials[0].goal is None


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_pruners_of_optuna_stop_trials(method):
    optuna = pytest.importorskip("optuna")
    for pruner in (
        optuna.pruners.MedianPruner(n_startup_trials=3),
        optuna.pruners.HyperbandPruner(min_resource=1, max_resource=8, reduction_factor=2),
    ):
        found, again = (
            mg.tune.search(searched.curve, CURVES, method, trials=25, minimize="loss", stop=pruner)
            for _ in range(2)
        )
        assert found.count("stopped") > 3
        assert found.count("failed") == 0
        assert [t.values["epochs"] for t in found.trials] == [
            t.values["epochs"] for t in again.trials
        ]


@pytest.mark.parametrize(
    ("step", "value", "text"),
    [(0, 1.0, "report: step 0\n  expected: an int of at least 3"), (3, "a", "the value 'a'")],
)
def test_wrong_reports_are_failures_with_a_clear_text(step, value, text):
    def objective(trial):
        trial.report(2, 1.0)
        trial.report(step, value)

    assert text in mg.tune.search(objective, {"x": [1]}).trials[0].error


def test_a_network_reports_through_its_callback_and_is_stopped():
    x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]

    def objective(trial):
        net = mg.NeuralNetwork(
            [mg.nn.Input((1,)), mg.nn.Dense(1)],
            loss="mse", optimizer=mg.optimizer.SGD(trial["rate"]), seed=trial.seed,
        )  # fmt: skip
        history = net.fit(
            x, 2 * x + 1, epochs=6, validation_data=(x, 2 * x + 1), callbacks=[trial.callback()]
        )
        return history.records[-1]["val_loss"]

    found = mg.tune.search(
        objective, {"rate": [0.3, 0.2, 1e-4]}, "grid",
        stop=mg.tune.Median(startup=2), ahead=1,
    )  # fmt: skip
    assert [len(trial.reports) for trial in found.trials] == [6, 6, 1]
    assert found.trials[2].state == "stopped"
    # Where the goal is to be large, what is to be small is reported with the other sign.
    flipped = mg.tune.search(
        lambda trial: -objective(trial), {"rate": [0.3]}, maximize="value"
    ).trials[0]
    assert [value for _, value in flipped.reports] == [-v for _, v in found.trials[0].reports]
