"""What a search leaves: tables, seeds, the page, the command line."""

from __future__ import annotations

import csv
import math
import re
from importlib.util import find_spec
from xml.etree import ElementTree

import pytest
import searched

import magmagraph as mg
from magmagraph import cli
from magmagraph.tune.journal import Journal, read_journal

PLANE = {"x": mg.tune.grid(0, 5), "y": mg.tune.grid(0.0, 1.0, 0.25)}


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
        ({"method": "bayes"}, "method='bayes'\n  expected: one of 'grid', 'random', 'tpe'"),
        ({"executor": "thread"}, "executor='thread'\n  expected: \"serial\", \"process\", \"mpi\""),
        ({"method": "TPE"}, "try: method='tpe'"),
        ({"minimize": []}, "minimize=[]\n  expected: one goal at least"),
        ({"minimize": ["a", 3]}, "minimize=['a', 3]\n  expected: a name, a dict of weights"),
        (
            {"minimize": "a", "maximize": ["a", "b"]},
            "'a' is a goal 2 times\n  expected: each goal once, for the Pareto front of all",
        ),
        ({"minimize": ["a", "b"], "until": 1}, "until=1 with 2 goals\n  expected: a single goal"),
        ({"minimize": ["a", "b"], "stop": "median"}, "stop='median' with 2 goals"),
        ({"population": 1}, "population=1\n  expected: an int of at least 2"),
        ({"population": 9}, "population=9 with method='random'\n  expected: \"nsga2\" or"),
        ({"checkpoints": "here"}, "checkpoints='here' with method='random'\n  expected: \"pbt\""),
        ({"method": "pbt"}, "'pbt' without checkpoints=\n  expected: the folder in which trials"),
        ({"minimize": 3}, "minimize=3\n  expected: a name, a dict of weights, or a function; or"),
        ({"minimize": {"a": math.nan}}, "expected: a finite weight for each name"),
        ({"trials": 0}, "trials=0\n  expected: an int of at least 1"),
        ({"seconds": -1}, "seconds=-1\n  expected: a positive number of seconds"),
        ({"until": "a"}, "until='a'\n  expected: a finite number"),
        ({"seed": 1.5}, "seed=1.5\n  expected: an int of at least 0"),
        ({"stop": "best"}, "stop='best'\n  expected: 'median', 'halving'"),
        ({"ahead": 0}, "ahead=0\n  expected: an int of at least 1"),
        ({"threads": 2}, "threads=2 with executor='serial'\n  expected: executor=\"process\""),
        ({"journal": 3}, "journal=3\n  expected: a path"),
        ({"method": "pbt", "checkpoints": 3}, "checkpoints=3\n  expected: a path"),
        (
            {"method": "pbt", "checkpoints": __file__},
            "File exists\n  expected: a folder that can be written to",
        ),
        ({"maximize": {"value": "1"}}, "maximize={'value': '1'}\n  expected: a finite weight"),
        ({"failures": "ignore"}, "failures='ignore'\n  expected: one of 'record', 'raise'"),
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
    assert "try: trials=50" in str(caught.value)
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
    journal = tmp_path / "search.log"
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
    assert not re.search(r"(src|href)=.http", text)  # nothing is fetched
    assert "<b>" not in text.replace("<p><b>Best", "")
    failed = found.count("failed")
    if find_spec("matplotlib") is None:
        assert 'pip install "magmagraph[tune]"' in text
    else:
        pictures = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
        assert len(pictures) == 3
        assert all(ElementTree.fromstring(picture) is not None for picture in pictures)
        assert all(name in pictures[1] and name in pictures[2] for name in found.space)
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


def test_the_command_shows_a_journal(tmp_path, capsys):
    found, journal = varied(tmp_path)
    held, _ = read_journal(journal)
    book = Journal(journal, {k: v for k, v in held.items() if k != "version"}, found.space)
    book.start(40, 0, [0.1, 1, 0.2, 0])
    book.close()
    with journal.open("ab") as file:
        file.write(b'{"ev')
    before = journal.read_bytes()
    page, table = tmp_path / "page.html", tmp_path / "table.csv"
    words = ["search", str(journal), "-n", "2", "-o", str(page), "--csv", str(table)]
    assert cli.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == found.summary().splitlines()
    assert lines[1].endswith(" failed: ValueError: no memory for <64> units")
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
        (["other"], "other is not the journal of a search, or is damaged"),
        (["search.log", "-o", "page.png"], "page.png: a page with plots is written to .html"),
        (["search.log", "-o", "none/page.html"], "none/page.html cannot be written: there is"),
    ],
)
def test_the_command_refuses_in_a_line(words, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").write_text("3\n")
    mg.tune.search(searched.bowl, PLANE, trials=1, journal="search.log")
    assert cli.main(["search", *words]) == 1
    told = capsys.readouterr().err.splitlines()[0]
    assert told.startswith(f"magmagraph search: {text}")
