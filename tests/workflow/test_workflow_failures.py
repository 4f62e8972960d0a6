"""Modules that fail, programs beside functions, and files that are refused."""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from workflows import program, runner, statuses, table

import magmagraph as mg
from magmagraph.errors import ConfigError
from magmagraph.workflow.file import parse


@pytest.fixture
def flow(tmp_path: Path) -> Any:
    return runner(tmp_path)


# ------------------------------------------------------------------- failures


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_failure_ends_the_workflow_and_is_named(flow, ranks):
    text = table(
        "fail", "fail", copies=2, iterations=3, arguments={"copy": 1, "iteration": 2}
    ) + table("after", "nothing", after=["fail"])
    with pytest.raises(mg.workflow.WorkflowError) as raised:
        flow(text, ranks)
    said = str(raised.value)
    assert said.startswith("module fail, copy 1, iteration 2, on rank ")
    assert "ValueError: no such data" in said
    assert "flows.py" in said
    result = raised.value.result
    failed = next(run for run in result.runs if run.status == "failed")
    assert (failed.module, failed.copy, failed.iteration) == ("fail", 1, 2)
    assert failed.cause == said
    after = next(run for run in result.runs if run.module == "after")
    assert after.cause.startswith("module fail, copy 1")
    assert after.ranks == ()


def test_a_failure_of_one_rank_is_that_of_its_group(flow):
    text = table("fail", "fail", processes=2, iterations=2, arguments={"rank": 1})
    with pytest.raises(mg.workflow.WorkflowError, match=r"module fail, iteration 0, on rank 1: "):
        flow(text, 2)


def test_modules_that_run_are_stopped(flow):
    text = (
        table("forever", "forever", copies=2)
        + table("slow", "rest", arguments={"seconds": 0.1})
        + table("fail", "fail", after=["slow"])
        + program("program", "import time; time.sleep(60)")
    )
    began = time.monotonic()
    with pytest.raises(mg.workflow.WorkflowError, match="module fail, on rank") as raised:
        flow(text, 4)
    assert time.monotonic() - began < 10
    assert statuses(raised.value.result) == {
        "forever": "stopped", "slow": "done", "fail": "failed", "program": "stopped"}  # fmt: skip


def test_a_rank_that_fails_ends_those_that_wait_for_it(flow):
    text = table("stuck", "wait_together", processes=2)
    with pytest.raises(mg.workflow.WorkflowError, match="^module stuck, on rank 1: ValueError"):
        flow(text, 3)


def test_leaving_python_is_a_failure(flow):
    with pytest.raises(mg.workflow.WorkflowError, match="module leave, on rank 0: SystemExit: 3"):
        flow(table("leave", "leave"))


def test_dependents_of_a_failure_are_skipped_and_the_rest_goes_on(flow):
    result = flow(
        "[workflow]\non_failure = 'continue'\n"
        + table("c", "nothing", after=["b"])
        + table("fail", "fail", copies=2)
        + table("b", "nothing", after=["fail"])
        + table("other", "nothing")
        + table("more", "nothing", after=["other"]), 2,
    )  # fmt: skip
    assert not result.ok
    assert [(r.copy, r.status) for r in result.runs if r.module == "fail"] == [
        (0, "failed"), (1, "done")]  # fmt: skip
    causes = {r.module: r.cause for r in result.runs if r.status == "skipped"}
    assert causes == {
        "b": "it comes after module fail, copy 0, which failed",
        "c": "it comes after module b, which was skipped",
    }
    assert statuses(result)["more"] == "done"


# ------------------------------------------------------------------- programs


def test_programs_get_their_numbers_and_leave_their_output(flow, tmp_path):
    code = "import os, sys; print(sys.argv[1:], os.environ['MARK'], os.environ['OMP_NUM_THREADS'])"
    result = flow(
        program("show", code, "{module}", "{copy}/{copies}", "{iteration}", "{rank}",
                "{processes}", "{{}}", copies=2, iterations=2, processes=2, threads=3)
        + "environment = {MARK = 'mark'}\n", 4,
    )  # fmt: skip
    assert {(r.copy, r.ranks) for r in result.runs} == {(0, (0, 1)), (1, (2, 3))}
    for run in result.runs:
        path = tmp_path / "flow-output" / f"show-{run.copy}-{run.iteration}.txt"
        assert run.output == str(path)
        given = ["show", f"{run.copy}/2", str(run.iteration), str(run.ranks[0]), "2", "{}"]
        assert path.read_text() == f"{given} mark 3\n"


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_program_that_fails(flow, ranks):
    text = program("bad", "import sys; print('I cannot'); sys.exit(7)", iterations=2)
    with pytest.raises(mg.workflow.WorkflowError, match=r"module bad, iteration 0, on rank 0: "
                       r".*ended with status 7:\nI cannot"):  # fmt: skip
        flow(text, ranks)


def test_a_program_that_is_killed(flow):
    with pytest.raises(mg.workflow.WorkflowError, match="ended with signal SIGKILL"):
        flow(program("bad", "import os; os.kill(os.getpid(), 9)"))


def test_a_program_that_takes_too_long_is_ended_with_its_children(flow, tmp_path):
    child = "import time; time.sleep(60)"
    code = (
        "import os, subprocess, sys, pathlib, time;"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}]);"
        "pathlib.Path('ids').write_text(' '.join(map(str, (os.getpid(), child.pid))));"
        "time.sleep(60)"
    )
    with pytest.raises(mg.workflow.WorkflowError, match="has not ended within timeout = 1 s"):
        flow(program("slow", code, timeout=1))
    for number in (tmp_path / "ids").read_text().split():
        assert ended(int(number))


def ended(number: int) -> bool:
    """Return whether a process is gone, or will be in a moment."""
    for _ in range(100):
        try:
            if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
            os.kill(number, 0)
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def test_a_program_and_a_function_beside_the_file(flow, tmp_path):
    script = tmp_path / "tool.sh"
    script.write_text("#!/bin/sh\necho beside\n")
    script.chmod(0o755)
    (tmp_path / "beside_the_flow.py").write_text(
        "def go(context):\n    context.store.put('k', 1)\n"
    )
    before = list(sys.path)
    try:
        result = flow(
            '[modules.tool]\ncommand = ["./tool.sh"]\n'
            '[modules.go]\nfunction = "beside_the_flow:go"\n'
        )
    finally:
        sys.path[:] = before
    assert Path(result.runs[0].output).read_text() == "beside\n"


# ------------------------------------------------------------------- wrong files

WRONG = [
    ("", "flow.toml has no modules"),
    ("[modules", "flow.toml is no TOML"),
    ("[module.a]\n", "flow.toml: unknown table [module]"),
    (
        "name = 'flow'\n[modules.a]\n",
        "flow.toml: 'name' stands in no table\n  expected: tables: [workflow], [store], [modules]\n"
        "  try: [workflow] in the line before it",
    ),
    ("retries = 3\n[modules.a]\n", "flow.toml: 'retries' stands in no table\n  expected: tables"),
    ("workflow = 3\n", "flow.toml: [workflow] = 3"),
    ("[modules]\na = 1\n", "flow.toml: [modules.a] = 1"),
    ("[workflow]\non_failure = 'go'\n", "flow.toml: [workflow] on_failure = 'go'"),
    ("[workflow]\ngrace = 0\n", "flow.toml: [workflow] grace = 0"),
    ("[workflow]\nspeed = 1\n", "flow.toml: [workflow] has the unknown key 'speed'"),
    ("[store]\nservers = [1, 1]\n", "flow.toml: [store] servers = [1, 1]"),
    ("[store]\nmetadata = 3\n", "flow.toml: [store] has the unknown key 'metadata'"),
    ("[modules.a]\n", "flow.toml: [modules.a] has neither function nor command"),
    ("[modules.'a/b']\nfunction = 'flows:put'\n", "flow.toml: [modules.a/b]"),
    ("[modules.a]\nfunction = 'flows.put'\n", 'flow.toml: [modules.a] function = "flows.put"'),
    (
        "[modules.a]\nfunction = 'flows:absent'\n",
        'flow.toml: [modules.a] function = "flows:absent" cannot be imported: AttributeError',
    ),
    (
        "[modules.a]\nfunction = 'no_such_module:f'\n",
        'flow.toml: [modules.a] function = "no_such_module:f" cannot be imported: ModuleNotFound',
    ),
    (
        "[modules.a]\nfunction = 'flows:time.timezone'\n",
        'flow.toml: [modules.a] function = "flows:time.timezone" is int, which cannot be called',
    ),
    (
        "[modules.a]\nfunction = 'flows:take_nothing'\n",
        'function = "flows:take_nothing" is called with the context, and takes ()\n'
        "  expected: a function of one argument, the context",
    ),
    (
        "[modules.a]\nfunction = 'flows:absent'\n",
        "has no attribute 'absent'\n  expected: a function of flows: ",
    ),
    (
        "[modules.a]\nfunction = 'no_such_module:f'\n",
        '\n  expected: "package.module:function", on the path or beside the file',
    ),
    (
        "[modules.a]\nfunction = 'flows_broken:f'\n",
        "ModuleNotFoundError: No module named 'that_is_not_there'\n"
        "  expected: a module that can be imported: python -c 'import flows_broken' says where",
    ),
    ("[modules.a]\ncommand = 'ls -l'\n", '\n  try: ["ls", "-l"]'),
    ("[modules.a]\ncommand = ['no-such-program']\n", 'command = ["no-such-program", ...]: there'),
    ("[modules.a]\ncommand = ['./absent']\n", 'command = ["./absent", ...]: there is no such'),
    ("[modules.a]\ncommand = ['{where}']\n", "'{where}' with the unknown 'where'"),
    ("[modules.a]\ncommand = ['{copy:x.}']\n", "[modules.a] command has '{copy:x.}': "),
    ("[modules.a]\ncommand = ['{copy']\n", "[modules.a] command has '{copy'"),
    ("[modules.a]\ncommand = ['{python}']\narguments = {x = 1}\n", "arguments is for functions"),
    (table("a", "put") + "timeout = 3\n", "[modules.a] timeout is for programs only"),
    (table("a", "put", speed=1), "[modules.a] has the unknown key 'speed'"),
    (table("a", "put", processes=0), "[modules.a] processes = 0"),
    (table("a", "put", copies=True), "[modules.a] copies = True"),
    (table("a", "put", after="b"), "[modules.a] after = 'b'"),
    (table("a", "put", after=["b"]), "[modules.a] after names 'b', which is no module"),
    (table("a", "put", after=["a"]), "[modules.a] after: a cycle, a -> a"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_wrong_files_are_refused_before_anything_starts(flow, tmp_path, text, said):
    (tmp_path / "flows_broken.py").write_text("import that_is_not_there\n")
    with pytest.raises(ConfigError) as raised:
        flow(text)
    assert said in str(raised.value)
    assert not (tmp_path / "flow-output").exists()


def test_a_cycle_is_shown():
    text = "".join(table(n, "nothing", after=[b]) for n, b in ("ab", "bc", "ca"))
    with pytest.raises(ConfigError, match=r"\[modules\.\w\] after: a cycle, ") as raised:
        parse(text, "flow.toml")
    around = str(raised.value).partition("cycle, ")[2].partition("\n")[0].split(" -> ")
    assert around[0] == around[-1]
    waits = {"a": "b", "b": "c", "c": "a"}
    assert all(waits[one] == other for one, other in itertools.pairwise(around))


@pytest.mark.parametrize(
    ("text", "workers", "said"),
    [
        (table("a", "put", processes=2), 1, "processes = 2: too few workers, there is 1"),
        (table("a", "put", processes=3), 2, 'try: executor="process", workers=3'),
        ("[store]\nservers = 3\n" + table("a", "put"), 2, "[store] servers = 3: too few workers"),
    ],
)
def test_too_few_workers_are_refused(flow, text, workers, said):
    with pytest.raises(ConfigError) as raised:
        flow(text, workers)
    assert said in str(raised.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"absent.toml cannot be read"):
        mg.workflow.run(tmp_path / "absent.toml")
