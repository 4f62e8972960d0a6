"""Workflows: the order of modules, groups of ranks, results, the command line."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from workflows import program, runner, table

import magmagraph as mg
from magmagraph import cli
from magmagraph.runtime.cpu.threads import get_threads, set_threads


@pytest.fixture
def flow(tmp_path: Path) -> Any:
    return runner(tmp_path)


@pytest.mark.parametrize("ranks", [1, 3])
def test_modules_run_in_their_order_with_copies_and_iterations(flow, ranks):
    result = flow(
        table("last", "nothing", after=["a", "b"])
        + table("a", "note", copies=3, iterations=2)
        + table("b", "nothing", after=["first"])
        + table("first", "nothing"),
        ranks,
    )
    assert result.ok
    assert result.ranks == ranks
    runs = {(r.module, r.copy, r.iteration): r for r in result.runs}
    assert set(runs) == {("a", c, i) for c in range(3) for i in range(2)} | {
        ("b", 0, 0), ("first", 0, 0), ("last", 0, 0)}  # fmt: skip
    assert runs["b", 0, 0].start >= runs["first", 0, 0].end
    for (name, copy, iteration), run in runs.items():
        assert 0 <= run.start <= run.end <= result.seconds
        assert name == "last" or runs["last", 0, 0].start >= run.end
        if iteration:
            before = runs[name, copy, iteration - 1]
            assert run.start >= before.end
            assert run.ranks == before.ranks
    assert {rank for run in result.runs for rank in run.ranks} <= set(range(ranks))


def test_independent_modules_run_at_the_same_time(flow):
    result = flow(table("meet", "meet", copies=3), 3)
    assert sorted(run.ranks for run in result.runs) == [(0,), (1,), (2,)]


def test_as_many_run_as_there_are_ranks(flow):
    result = flow(
        "".join(table(name, "rest", arguments={"seconds": 0.05}, processes=p)
                for name, p in [("a", 2), ("b", 2), ("c", 1)]), 3)  # fmt: skip
    a, b, c = (next(r for r in result.runs if r.module == name) for name in "abc")
    assert (a.ranks, b.ranks, c.ranks) == ((0, 1), (0, 1), (2,))
    assert b.start >= a.end
    assert c.start < a.end


def test_what_a_context_says(flow, tmp_path):
    flow(
        table("note", "note", processes=2, copies=2)
        + table("write", "write", after=["note"],
                arguments={"keys": ["note/0/0/1", "note/1/0/0"]}),
        4,
    )  # fmt: skip
    assert (tmp_path / "flow-output" / "write.out").read_text() == (
        "note/0/0/1 = (2, 1, 2, (0, 1))\nnote/1/0/0 = (2, 1, 2, (2, 3))"
    )


def test_graphs_of_a_group_add_over_its_ranks(flow, tmp_path):
    flow(
        table("mean", "mean", processes=3)
        + table("write", "write", after=["mean"], arguments={"keys": ["mean"]}), 3,
    )  # fmt: skip
    assert (tmp_path / "flow-output" / "write.out").read_text() == "mean = 2.0"


def test_threads_of_a_function_are_set_while_it_runs(flow, tmp_path):
    set_threads(2)
    try:
        flow(
            table("three", "threads", threads=3)
            + table("any", "threads", after=["three"])
            + table("write", "write", after=["any"], arguments={"keys": ["three", "any"]})
        )
        assert get_threads() == 2
    finally:
        set_threads(None)
    assert (tmp_path / "flow-output" / "write.out").read_text() == "three = 3\nany = 2"


# ------------------------------------------------------------------- results, the command line


def test_tables_and_the_picture(flow, tmp_path):
    result = flow(
        "[workflow]\non_failure = 'continue'\nname = 'a <study>'\n"
        + table("fail", "fail") + table("b", "nothing", after=["fail"])
        + table("rest", "rest", processes=2, arguments={"seconds": 0.05}), 4,
    )  # fmt: skip
    assert str(result).startswith("a <study>: ")
    assert "1 skipped" in result.summary()
    assert len(result.table().splitlines()) == 4
    result.to_csv(tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["module"] for row in rows] == [run.module for run in result.runs]
    assert {row["ranks"] for row in rows if row["module"] == "rest"} <= {"0 1", "1 2", "0 2"}
    result.to_json(tmp_path / "runs.json")
    held = json.loads((tmp_path / "runs.json").read_text())
    assert held["ranks"] == 4
    assert [run["status"] for run in held["runs"]] == [run.status for run in result.runs]
    result.timeline(tmp_path / "runs.svg")
    picture = ElementTree.parse(tmp_path / "runs.svg")
    bars = [e.get("class") for e in picture.iter() if (e.get("class") or "").startswith("bar")]
    assert len(bars) == 3  # two ranks of one module, one of the other
    assert sum("failed" in bar for bar in bars) == 1


def test_the_command_runs_and_checks(tmp_path, capsys):
    path = tmp_path / "flow.toml"
    path.write_text(program("one", "print(1)") + table("two", "nothing", after=["one"]))
    picture, runs = tmp_path / "runs.svg", tmp_path / "runs.json"
    given = ["workflow", "run", str(path), "-o", str(picture), "--json", str(runs)]
    assert cli.main(given) == 0
    assert "flow: 2 done" in capsys.readouterr().out
    assert picture.exists()
    assert len(json.loads(runs.read_text())["runs"]) == 2
    assert cli.main(["workflow", "check", str(path)]) == 0
    assert "flow.toml is in order; it needs 1 worker at least" in capsys.readouterr().out
    path.write_text(table("a", "nothing", processes=6))
    assert cli.main(["workflow", "check", str(path)]) == 0
    assert "it needs 6 workers at least" in capsys.readouterr().out
    assert cli.main(["workflow", "check", str(path), "-n", "3"]) == 1
    assert "too few workers" in capsys.readouterr().err


def test_the_folder_of_what_is_written_can_be_chosen(tmp_path, monkeypatch):
    path = tmp_path / "flow.toml"
    path.write_text(program("one", "print(1)"))
    monkeypatch.chdir(tmp_path)
    result = mg.workflow.run(path, output="there")
    assert result.runs[0].output == str(tmp_path / "there" / "one-0-0.txt")
    assert cli.main(["workflow", "run", str(path), "--folder", "elsewhere"]) == 0
    assert (tmp_path / "elsewhere" / "one-0-0.txt").read_text() == "1\n"


def test_the_command_fails_with_the_module(tmp_path, capsys):
    path = tmp_path / "flow.toml"
    path.write_text(table("fail", "fail"))
    assert cli.main(["workflow", "run", str(path)]) == 1
    said = capsys.readouterr()
    assert "module fail, on rank 0: ValueError: no such data" in said.err
    assert "1 failed" in said.out
    path.write_text("[workflow]\non_failure = 'continue'\n" + table("fail", "fail"))
    assert cli.main(["workflow", "run", str(path)]) == 1
