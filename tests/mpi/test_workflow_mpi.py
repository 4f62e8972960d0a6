"""Workflows under MPI: groups, the store, messages, failures, and jobs that end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import magmagraph as mg

SERVED = """
[store]
servers = 3
[modules.put]
function = "flows:many"
arguments = {count = 15}
[modules.get]
function = "flows:check_many"
arguments = {count = 15, copies = 1}
after = ["put"]
[modules.late]
function = "flows:get"
arguments = {key = "1/3", timeout = 20.0}
[modules.wide]
function = "flows:mean"
processes = 2
after = ["late"]
[modules.more]
function = "flows:many"
arguments = {count = 4}
copies = 2
[modules.mean]
function = "flows:write"
arguments = {keys = ["mean"]}
after = ["wide"]
"""
TALK = """
[modules.talk]
function = "flows:talk"
arguments = {count = 30}
[modules.answer]
function = "flows:answer"
arguments = {count = 30}
[modules.early]
function = "flows:early"
[modules.late]
function = "flows:late"
after = ["early", "talk", "ring"]
iterations = 3
[modules.ring]
function = "flows:ring"
copies = 3
arguments = {steps = 20}
[modules.show]
command = ["{python}", "-c", "import os; print({rank}, 'PMI_RANK' in os.environ)"]
after = ["early"]
"""


def runs(path: str) -> list[tuple[Any, ...]]:
    """Return what a workflow has run on this rank's word."""
    result = mg.workflow.run(path)
    return [(r.module, r.copy, r.iteration, r.ranks, r.status) for r in result.runs]


def refused(path: str) -> tuple[str, str, int]:
    """Return the kind and the text of what a workflow raises, and how many runs it kept."""
    try:
        mg.workflow.run(path)
    except mg.errors.MagmagraphError as error:
        result = getattr(error, "result", None)
        return type(error).__name__, str(error), len(result.runs) if result else 0
    raise AssertionError("nothing was raised")


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "flow.toml"
    path.write_text(text)
    return str(path)


def test_groups_and_values_over_servers(on_ranks, tmp_path):
    first, *others = on_ranks(4, runs, written(tmp_path, SERVED))
    assert others == [first] * 3
    assert {status for *_, status in first} == {"done"}
    ranks = {module: at for module, _, _, at, _ in first}
    assert len(ranks["wide"]) == 2
    assert {rank for at in ranks.values() for rank in at} <= {1, 2, 3}  # rank 0 starts modules
    assert (tmp_path / "flow-output" / "mean.out").read_text() == "mean = 1.0"


def test_messages_and_programs(on_ranks, tmp_path):
    path = written(tmp_path, TALK)
    for _ in range(2):  # a second workflow in the same processes hears nothing of the first
        first, *others = on_ranks(4, runs, path)
        assert others == [first] * 3
        assert len(first) == 10
    rank = next(at[0] for module, _, _, at, _ in first if module == "show")
    text = (tmp_path / "flow-output" / "show-0-0.txt").read_text()
    assert text == f"{rank} False\n"


def test_a_failure_is_named_on_every_rank_and_the_ranks_live_on(on_ranks, tmp_path):
    text = (
        '[modules.fail]\nfunction = "flows:fail"\nprocesses = 2\niterations = 2\n'
        "arguments = {iteration = 1, rank = 1}\n"
        '[modules.forever]\nfunction = "flows:forever"\n'
        '[modules.after]\nfunction = "flows:nothing"\nafter = ["fail"]\n'
    )
    told = on_ranks(4, refused, written(tmp_path, text))
    assert {kind for kind, _, _ in told} == {"WorkflowError"}
    assert len(set(told)) == 1
    assert "module fail, iteration 1, on rank " in told[0][1]
    assert "ValueError: no such data" in told[0][1]
    assert told[0][2] == 4  # two iterations, the one that was stopped, and the one that was skipped


def test_dead_waiting_is_found(on_ranks, tmp_path):
    text = (
        '[modules.a]\nfunction = "flows:receive"\narguments = {of = "b"}\n'
        '[modules.b]\nfunction = "flows:get"\narguments = {key = "x"}\n'
        '[modules.talk]\nfunction = "flows:nothing"\n'
    )
    kind, said, _ = on_ranks(4, refused, written(tmp_path, text))[0]
    assert kind == "WorkflowError"
    assert "can come from nobody any more" in said
    assert "waits for the key 'x'" in said or "waits for a message of module 'b'" in said


def test_wrong_files_are_refused_on_every_rank(on_ranks, tmp_path):
    text = '[modules.a]\nfunction = "flows:nothing"\nprocesses = 4\n'
    told = on_ranks(4, refused, written(tmp_path, text))
    assert [kind for kind, _, _ in told] == ["ConfigError"] * 4
    assert "expected: 4 workers at least" in told[0][1]


COMMAND = "import sys; from magmagraph.cli import main; sys.exit(main(sys.argv[1:]))"


def test_the_command_under_mpiexec(mpiexec, tmp_path):
    path = written(tmp_path, TALK.replace("count = 30", "count = 3"))
    given = ["workflow", "run", path, "--json", "runs.json"]
    done = mpiexec(4, COMMAND, *given)
    assert done.status == 0, done.output
    assert done.stdout.count("flow: 10 done") == 1
    assert len(json.loads((tmp_path / "runs.json").read_text())["runs"]) == 10


def test_wrong_words_and_files_are_said_once(mpiexec):
    """By rank 0: all ranks were given the same."""
    done = mpiexec(
        2,
        """
        import os
        from magmagraph.cli import main

        words = ["walk", "flow.toml"], ["run", "absent.toml", "--page"]
        found = tuple(main(["workflow", *given]) for given in words)
        assert found == ((0, 0) if int(os.environ["PMI_RANK"]) else (2, 1)), found
        """,
    )
    assert done.status == 0, done.stderr
    for words in ("invalid choice: 'walk'", "usage:", "absent.toml cannot be read"):
        assert done.stderr.count(words) == 1, done.stderr


def test_records_that_cannot_be_written_end_the_job(mpiexec, tmp_path):
    path = written(tmp_path, TALK)
    done = mpiexec(4, COMMAND, "workflow", "run", path, "--records", str(tmp_path))
    assert done.status != 0
    assert "Is a directory" in done.output


def test_a_rank_that_does_not_come_back_ends_the_job(mpiexec, tmp_path):
    text = (
        "[workflow]\ngrace = 0.5\n"
        '[modules.stuck]\nfunction = "flows:wait_together"\nprocesses = 2\n'
        '[modules.program]\ncommand = ["{python}", "-c", "import time; time.sleep(60)"]\n'
    )
    done = mpiexec(4, COMMAND, "workflow", "run", written(tmp_path, text))
    assert done.status != 0
    assert "ValueError: one of two" in done.stderr
    assert "module stuck has not ended within 0.5 s after that, on ranks [0, 1]" in done.stderr
    assert done.left == []
    assert done.seconds < 20
