"""Iterations of a whole workflow: every module in every turn, and what one hands to the next."""

from __future__ import annotations

import csv
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import magmagraph as mg
from magmagraph.errors import ConfigError
from magmagraph.workflow.file import parse


@pytest.fixture
def flow(tmp_path: Path) -> Any:
    """Run a workflow of some turns on some ranks; what rank 0 gets is returned."""

    def start(turns: Any, text: str, ranks: int = 1, top: str = "") -> Any:
        path = tmp_path / "flow.toml"
        path.write_text(f"[workflow]\niterations = {turns}\n{top}\n{text}")
        if ranks == 1:
            return mg.workflow.run(path)
        with ThreadPoolExecutor(ranks) as pool:
            return mg.workflow.run(path, executor=pool)

    return start


ORDERED = """
[modules.second]
function = "flows:nothing"
after = ["first"]
copies = 2
iterations = 2
[modules.first]
function = "flows:nothing"
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_turn_begins_when_the_last_one_has_ended(flow, ranks, tmp_path):
    result = flow(3, ORDERED, ranks)
    assert result.ok
    found = {(r.turn, r.module, r.copy, r.iteration): r for r in result.runs}
    wanted = {("first", 0, 0), *(("second", copy, i) for copy in range(2) for i in range(2))}
    assert set(found) == {(turn, *key) for turn in range(3) for key in wanted}
    assert len(result.runs) == len(found)
    for turn in (1, 2):
        ended = max(r.end for r in result.runs if r.turn == turn - 1)
        assert found[turn, "first", 0, 0].start >= ended
    result.to_csv(tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["turn"]) for row in rows] == sorted(r.turn for r in result.runs)


NEWTON = """
[modules.improve]
function = "flows:improve"
arguments = {number = 2.0}
[modules.check]
function = "flows:check"
after = ["improve"]
arguments = {number = 2.0}
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_turn_goes_on_from_the_last_one_until_a_module_says_so(flow, ranks):
    """Newton's iteration for the root of 2 from 2: four steps are exact to 5e-12, five to 1e-23."""
    result = flow(50, NEWTON, ranks)
    assert result.ok
    assert sorted({run.turn for run in result.runs}) == list(range(5))
    assert len(result.runs) == 10


def test_a_message_for_a_later_turn(flow):
    text = "[modules.far_ahead]\nfunction = 'flows:far_ahead'\n"
    text += "[modules.hear]\nfunction = 'flows:hear'\nafter = ['far_ahead']\n"
    for ranks in (1, 2):
        assert flow(4, text, ranks).ok


def test_programs_know_the_turn_and_leave_a_file_each(flow, tmp_path):
    code = "import sys; print(sys.argv[1:])"
    command = ["{python}", "-c", code, "{turn}", "{iteration}"]
    text = f"[modules.show]\ncommand = {json.dumps(command)}\niterations = 2\n"
    result = flow(2, text, 2)
    for run in result.runs:
        path = tmp_path / "flow-output" / f"show-0-{run.turn}-{run.iteration}.txt"
        assert run.output == str(path)
        assert path.read_text() == f"['{run.turn}', '{run.iteration}']\n"


def test_a_failure_names_its_turn_and_ends_the_workflow(flow):
    text = "[modules.fail]\nfunction = 'flows:fails_in_turn'\narguments = {turn = 2}\n"
    text += "[modules.behind]\nfunction = 'flows:nothing'\nafter = ['fail']\n"
    said = r"module fail, turn 2, on rank 0: "
    with pytest.raises(mg.workflow.WorkflowError, match=said) as seen:
        flow(5, text, 2)
    told = [(run.turn, run.module, run.status) for run in seen.value.result.runs]
    assert told[-2:] == [(2, "fail", "failed"), (2, "behind", "skipped")]
    assert len(told) == 6
    # Where the rest goes on, so do the turns.
    result = flow(4, text, 2, 'on_failure = "continue"')
    assert [run.status for run in result.runs].count("done") == 6
    assert {run.turn for run in result.runs if run.status != "done"} == {2}


@pytest.mark.parametrize("given", ["0", "-1", "1.5", '"three"', "true"])
def test_what_is_no_number_of_turns_is_refused(given):
    with pytest.raises(ConfigError, match="iterations = .*\n  expected: a whole number of at leas"):
        parse(f"[workflow]\niterations = {given}\n[modules.a]\nfunction = 'm:f'\n", "flow.toml")
