"""Hyperparameter search: spaces, goals, methods, rules that stop trials, results."""

from __future__ import annotations

import csv
import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import searched
from browser import chromium

import magmagraph as mg
from magmagraph import cli
from magmagraph.tune.space import Space

PLANE = {"x": mg.tune.grid(0, 5), "y": mg.tune.grid(0.0, 1.0, 0.25)}
CURVES = {"height": mg.tune.uniform(1.0, 2.0)}


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
        (lambda: mg.tune.uniform(1, 1), "uniform(1, 1)\n  needed: two finite numbers, low below"),
        (lambda: mg.tune.uniform(0, math.inf), "uniform(0, inf)"),
        (lambda: mg.tune.log_uniform(0, 1), "log_uniform(0, 1): 0 has no logarithm"),
        (lambda: mg.tune.grid(1, 0), "grid(1, 0): 0 is below 1\n  mend: swap the ends"),
        (lambda: mg.tune.grid(0, 1, 0), "grid(0, 1, step=0): the step is 0"),
        (lambda: mg.tune.grid(0, 1, factor=2), "needed: a positive low and a factor above 1"),
        (lambda: mg.tune.grid(1, 2, 1, factor=2), "needed: a step or a factor, not both"),
        (lambda: mg.tune.grid(0, 1, 1e-12), "has 1,000,000,000,001 values"),
        (lambda: mg.tune.integers(0, 1.5), "integers(0, 1.5, 1)\n  needed: three ints"),
        (lambda: mg.tune.choice([]), "choice() of no options"),
        (lambda: mg.tune.choice("sgd"), "mend: choice(['sgd'])"),
        (lambda: mg.tune.choice([1, 2, 1]), "choice: 1 is an option 2 times"),
        (lambda: mg.tune.choice([object()]), 'mend: choice({"name": option, ...})'),
        (lambda: Space({}), 'mend: {"rate": mg.tune.log_uniform(1e-4, 1e-1)}'),
        (lambda: Space({"x": 3}), "the space has 3 for 'x'"),
        (lambda: Space({3: [1]}), "the parameter 3\n  needed: a text as its name"),
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


def test_tpe_needs_optuna(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    monkeypatch.delitem(__import__("sys").modules, "magmagraph.tune.optuna_search", raising=False)
    with pytest.raises(mg.ConfigError) as caught:
        mg.tune.search(searched.bowl, PLANE, "tpe", trials=3)
    assert 'mend: pip install "magmagraph[tune]", or method="random"' in str(caught.value)
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


# ------------------------------------------------------------------------------ stopping


def reference_median(reports, others, startup):
    """Return whether the median rule stops, written anew: `reports` against all of `others`."""
    step = len(reports)
    averages = [np.mean(other[:step]) for other in others if len(other) >= step]
    return len(averages) >= startup and min(reports) > np.median(averages)


def test_median_stops_what_it_should():
    found = mg.tune.search(
        searched.curve, CURVES, trials=40, minimize="loss", stop=mg.tune.Median(startup=3), ahead=2
    )
    curves = [[value for _, value in trial.reports] for trial in found.trials]
    for i, (trial, own) in enumerate(zip(found.trials, curves, strict=True)):
        known = curves[: max(0, i - 1)]  # all up to i - ahead
        stops = [reference_median(own[:n], known, 3) for n in range(1, len(own) + 1)]
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
    [(0, 1.0, "report: step 0\n  needed: an int of at least 3"), (3, "a", "the value 'a'")],
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


# ------------------------------------------------------------------------------ results


def test_results_are_tables_and_files(tmp_path):
    found = mg.tune.search(searched.troubled, {"x": [6, 1, 0]}, "grid")
    assert re.fullmatch(
        r"3 trials \(2 done, 1 failed\), the least value is best\n"
        r"trial 1 failed: ValueError: no such x\n"
        r"trial  x  value  seconds  state\n"
        r"    2  0      0     0\.00   done\n"
        r"    0  6      6     0\.00   done",
        str(found),
    )
    found.to_csv(tmp_path / "trials.csv")
    with (tmp_path / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["x"] for row in rows] == ["6", "1", "0"]
    assert [row["goal"] for row in rows] == ["6.0", "", "0.0"]
    assert [row["error"] for row in rows] == ["", "ValueError: no such x", ""]


def test_trials_have_seeds_of_their_own_which_repeat():
    seeds = [
        [t.values["seed"] for t in mg.tune.search(
            lambda trial: {"loss": 0.0, "seed": trial.seed}, {"x": [0, 1, 2]}, seed=s
        ).trials]
        for s in (0, 0, 1)
    ]  # fmt: skip
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0] + seeds[2])) == 6


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"method": "bayes"}, "method='bayes'\n  needed: one of 'grid', 'random', 'tpe'"),
        ({"executor": "thread"}, "executor='thread'\n  needed: one of 'serial', 'process', 'mpi'"),
        ({"minimize": "a", "maximize": "b"}, "minimize='a' and maximize='b'\n  needed: one"),
        ({"minimize": 3}, "minimize=3\n  needed: a name, a dict of weights, or a function"),
        ({"minimize": {"a": math.nan}}, "needed: a finite weight for each name"),
        ({"trials": 0}, "trials=0\n  needed: an int of at least 1"),
        ({"seconds": -1}, "seconds=-1\n  needed: a positive number of seconds"),
        ({"until": "a"}, "until='a'\n  needed: a finite number"),
        ({"seed": 1.5}, "seed=1.5\n  needed: an int of at least 0"),
        ({"stop": "best"}, "stop='best'\n  needed: 'median', 'halving'"),
        ({"ahead": 0}, "ahead=0\n  needed: an int of at least 1"),
        ({"workers": 2}, "workers=2 with executor='serial'\n  needed: executor=\"process\""),
        ({"group": 2}, "group=2 with executor='serial'"),
        ({"failures": "ignore"}, "failures='ignore'\n  needed: one of 'record', 'raise'"),
    ],
)
def test_wrong_arguments_are_refused(options, text):
    with pytest.raises(mg.ConfigError) as caught:
        mg.tune.search(searched.bowl, PLANE, **options)
    assert text in str(caught.value)


def test_searches_that_have_no_end_or_no_steps_are_refused():
    space = {"rate": mg.tune.uniform(0, 1)}
    with pytest.raises(mg.ConfigError, match="never comes to an end") as caught:
        mg.tune.search(searched.bowl, space)
    assert "mend: trials=50" in str(caught.value)
    with pytest.raises(mg.ConfigError, match="method='grid': 'rate' has no steps"):
        mg.tune.search(searched.bowl, space, "grid")
    with pytest.raises(mg.ConfigError, match="the objective 3"):
        mg.tune.search(3, space)


# ------------------------------------------------------------------------------ pages, commands


def varied(tmp_path):
    """Return a search with every kind of domain and every end of a trial, and its journal."""

    def objective(trial):
        if trial["units"] == 64 and trial["rule"] == "<b>":
            raise ValueError("no memory for <64> units")
        for epoch in range(1, 4):
            trial.report(epoch, abs(trial["rate"] - 0.01) + trial["drop"] + 1 / epoch)
            if trial.should_stop():
                break
        return {"loss": trial.reports[-1][1], "accuracy": 1 - trial["drop"]}

    space = {
        "rate": mg.tune.log_uniform(1e-5, 1.0),
        "units": mg.tune.grid(16, 128, factor=2),
        "drop": mg.tune.uniform(0, 0.6),
        "rule": ["sgd", "<b>"],
    }
    journal = tmp_path / "search.jsonl"
    found = mg.tune.search(
        objective, space, trials=40, minimize="loss", stop=mg.tune.Median(startup=3),
        journal=journal,
    )  # fmt: skip
    assert min(found.count(state) for state in ("done", "stopped", "failed")) > 0
    return found, journal


def test_the_page_shows_every_trial(tmp_path):
    found, _ = varied(tmp_path)
    found.report(tmp_path / "page.html", "A <search>")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<title>A &lt;search&gt;</title>" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")  # nothing is fetched
    assert "<b>" not in text.replace("<p><b>Best", "")
    pictures = [
        ElementTree.fromstring(part) for part in re.findall(r"<svg .*?</svg>", text, re.DOTALL)
    ]
    assert len(pictures) == 3 + len(found.space)
    history, parallel, *each, times = pictures

    def drawn(picture, tag, kind):
        name = "{http://www.w3.org/2000/svg}" + tag
        return [e for e in picture.iter(name) if kind in e.get("class", "").split()]

    done, stopped, failed = map(found.count, ("done", "stopped", "failed"))
    for picture in (history, *each):
        assert len(drawn(picture, "circle", "done")) == done
        assert len(drawn(picture, "circle", "stopped")) == stopped
    assert len(drawn(history, "path", "failed")) == failed
    assert len(drawn(parallel, "polyline", "line")) == done
    assert len(drawn(parallel, "polyline", "first")) == 1
    assert len(drawn(times, "rect", "bar")) == len(found)
    for picture in pictures:
        wide, tall = map(float, picture.get("viewBox").split()[2:])
        for dot in picture.iter("{http://www.w3.org/2000/svg}circle"):
            assert 0 < float(dot.get("cx")) < wide
            assert 0 < float(dot.get("cy")) < tall
    assert text.count("<details>") == failed
    assert "ValueError: no memory for &lt;64&gt; units" in text
    body = text[text.index("<tbody>") : text.index("</tbody>")]
    assert body.count("<tr>") == len(found)


@pytest.mark.parametrize(
    "objective", [lambda trial: 1.0, lambda trial: 1 / 0], ids=["all alike", "all failed"]
)
def test_pages_of_searches_that_found_nothing(objective, tmp_path):
    for space in ({"x": [1]}, {"x": [1, 2], "y": [3]}):
        mg.tune.search(objective, space).report(tmp_path / "page.html")
        assert "nan" not in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_in_a_browser(tmp_path):
    """All text is seen: none of it is cut off by its picture, and nothing is loaded or fails."""
    found, _ = varied(tmp_path)
    path = tmp_path / "page.html"
    found.report(path)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 960, "height": 800})
        told, asked = [], []
        page.on("console", lambda line: told.append(line.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        outside = page.evaluate(
            """() => [...document.querySelectorAll('svg')].flatMap(svg => {
                const whole = svg.getBoundingClientRect();
                return [...svg.querySelectorAll('text')].filter(text => {
                    const own = text.getBoundingClientRect();
                    return own.left < whole.left - 1 || own.right > whole.right + 1
                        || own.top < whole.top - 1 || own.bottom > whole.bottom + 1;
                }).map(text => text.textContent);
            })"""
        )
        assert outside == []
        assert told == []
        assert asked == [path.as_uri()]
        assert page.evaluate("document.documentElement.scrollWidth") <= 960


def test_the_command_shows_a_journal(tmp_path, capsys):
    found, journal = varied(tmp_path)
    with journal.open("a") as file:
        file.write('{"event": "start", "trial": 40, "attempt": 0, "codes": [0.1, 1, 0.2, 0], ')
        file.write('"params": {"rate": 0.1, "units": 32, "drop": 0.2, "rule": "sgd"}}\n{"ev')
    before = journal.read_bytes()
    page, table = tmp_path / "page.html", tmp_path / "table.csv"
    words = ["search", str(journal), "-n", "2", "-o", str(page), "--csv", str(table)]
    assert cli.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == found.summary().splitlines()
    assert lines[1] == "trial 17 failed: ValueError: no memory for <64> units"
    assert lines[2] == "1 without an end, running or cut off: 40"
    assert [line.split()[0] for line in lines[3:6]] == [
        "trial", *(str(trial.number) for trial in found.ranked()[:2])
    ]  # fmt: skip
    assert lines[6].startswith(f"{page}: ")
    assert journal.read_bytes() == before
    read, _ = mg.tune.read(journal)
    found.report(tmp_path / "own.html")
    assert page.read_text() == (tmp_path / "own.html").read_text()
    assert [trial.labels for trial in read.trials] == [trial.labels for trial in found.trials]
    with table.open() as file:
        assert len(list(csv.DictReader(file))) == len(found)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["none.jsonl"], "none.jsonl cannot be read: No such file or directory"),
        (["other"], "other is not the journal of a search"),
        (["search.jsonl", "-o", "none/page.html"], "none/page.html cannot be written: there is"),
    ],
)
def test_the_command_refuses_in_a_line(words, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").write_text("3\n")
    mg.tune.search(searched.bowl, PLANE, trials=1, journal="search.jsonl")
    assert cli.main(["search", *words]) == 1
    told = capsys.readouterr().err.splitlines()[0]
    assert told.startswith(f"magmagraph search: {text}")
