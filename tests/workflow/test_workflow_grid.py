"""Grids: a copy of a module for each point, and one report."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from workflows import runner, statuses, table

import magmagraph as mg

GRID = "[modules.fit.grid]\nx = [1, 2, 3]\ndepth = [1, 5]\n"


@pytest.fixture
def flow(tmp_path: Path) -> Any:
    return runner(tmp_path)


@pytest.mark.parametrize("workers", [1, 3])
def test_each_point_is_a_copy_and_the_best_one_is_found(flow, workers):
    result = flow(table("fit", "parabola") + GRID, workers)
    points = {run.copy: (run.point["x"], run.point["depth"]) for run in result.runs}
    assert [points[i] for i in range(6)] == [(1, 1), (1, 5), (2, 1), (2, 5), (3, 1), (3, 5)]
    assert result.best("fit", "loss").point == {"x": 2, "depth": 1}
    assert result.best("fit", maximize="accuracy").point["x"] == 3
    for wrong in (("fit", "speed"), ("absent",)):
        with pytest.raises(mg.errors.GraphError, match="no run of module"):
            result.best(*wrong)


def test_one_report_has_points_and_values(flow, tmp_path):
    result = flow(table("fit", "parabola") + GRID + table("next", "nothing", after=["fit"]))
    assert len([line for line in result.table().splitlines() if "x=2 depth=1" in line]) == 1
    result.to_csv(tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(newline="") as file:
        rows = {row["copy"]: row for row in csv.DictReader(file) if row["module"] == "fit"}
    assert (rows["3"]["point"], rows["3"]["value"]) == ("x=2 depth=5", "loss=5 accuracy=2")
    result.to_json(tmp_path / "runs.json")
    runs = json.loads((tmp_path / "runs.json").read_text())["runs"]
    assert {"loss": 5.0, "accuracy": 2.0} in [run["value"] for run in runs]


def test_programs_get_the_values_of_their_point(flow):
    result = flow(
        "[modules.show]\ncommand = ['{python}', '-c', 'print(\"{rate:.2f} {kind}\")']\n"
        "grid = {rate = [0.5, 0.25], kind = ['a', 'b']}\n"
    )
    written = [Path(run.output).read_text() for run in result.runs]
    assert written == ["0.50 a\n", "0.50 b\n", "0.25 a\n", "0.25 b\n"]


def test_a_point_that_returns_no_number_has_failed(flow):
    text = table("fit", "parabola", arguments={"bad": 1}) + GRID
    result = flow("[workflow]\non_failure = 'continue'\n" + text)
    assert [run.status for run in result.runs] == ["failed"] * 2 + ["done"] * 4
    assert "a point of a grid has returned str" in result.runs[0].cause
    assert result.best("fit", "loss").copy == 2
    assert statuses(result) == {"fit": "done"}


def test_a_format_that_does_not_fit_a_value_is_refused(flow):
    with pytest.raises(mg.errors.ConfigError, match=r"command has '\{x:.2f\}'"):
        flow("[modules.a]\ncommand = ['true', '{x:.2f}']\ngrid = {x = [{y = 1}]}\n")


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ("grid = {x = 3}", "a table of lists of values"),
        ("grid = {x = []}", "a table of lists of values"),
        ("grid = {rank = [1]}", "grid has the name 'rank'"),
        ("grid = {'a b' = [1]}", "grid has the name 'a b'"),
        ("grid = {x = [1]}\ncopies = 2", "grid of 1 points with copies"),
    ],
)
def test_wrong_grids_are_refused(flow, grid, said):
    with pytest.raises(mg.errors.ConfigError) as raised:
        flow(f"[modules.fit]\nfunction = 'flows:parabola'\n{grid}\n")
    assert said in str(raised.value)
