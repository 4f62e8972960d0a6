"""Workflows, in one process and on ranks that are threads."""

from __future__ import annotations

import csv
import itertools
import json
import os
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

import magmagraph as mg
from magmagraph import cli
from magmagraph.communicator import current
from magmagraph.errors import ConfigError
from magmagraph.runtime.numpy.threads import get_threads, set_threads
from magmagraph.workflow.file import parse
from magmagraph.workflow.line import Counts
from magmagraph.workflow.schedule import Schedule
from magmagraph.workflow.service import _Board, _Wait

LONGEST = 20.0  # seconds of a job


@pytest.fixture
def flow(tmp_path: Path) -> Any:
    """Write a workflow, and run it on some ranks; what rank 0 gets is returned."""

    def start(text: str, ranks: int = 1) -> Any:
        path = tmp_path / "flow.toml"
        path.write_text(text)
        if ranks == 1:
            return mg.workflow.run(path)
        results = mg.distributed.threads(ranks, lambda: mg.workflow.run(path), timeout=LONGEST)
        assert {tuple(result.runs) for result in results} == {tuple(results[0].runs)}
        return results[0]

    return start


def table(name: str, function: str, **keys: Any) -> str:
    """Return the table of a module."""
    lines = [f"[modules.{name}]", f'function = "flows:{function}"']
    arguments = keys.pop("arguments", None)
    lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    if arguments:
        given = ", ".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in arguments.items())
        lines.append(f"arguments = {{{given}}}")
    return "\n".join(lines) + "\n"


def program(name: str, *words: str, **keys: Any) -> str:
    """Return the table of a program."""
    lines = [f"[modules.{name}]", f"command = {json.dumps(['{python}', '-c', *words])}"]
    return (
        "\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]) + "\n"
    )


def statuses(result: Any) -> dict[str, str]:
    return {run.module: run.status for run in result.runs}


# ------------------------------------------------------------------- running


@pytest.mark.parametrize("ranks", [1, 2, 4])
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
    # One rank holds the store, where there are several.
    assert {rank for run in result.runs for rank in run.ranks} <= set(range(max(1, ranks - 1)))


def test_independent_modules_run_at_the_same_time(flow):
    result = flow(table("meet", "meet", copies=3), 4)
    assert sorted(run.ranks for run in result.runs) == [(0,), (1,), (2,)]


def test_as_many_run_as_there_are_ranks(flow):
    result = flow(
        "".join(table(name, "rest", arguments={"seconds": 0.05}, processes=p)
                for name, p in [("a", 2), ("b", 2), ("c", 1)]), 4)  # fmt: skip
    a, b, c = (next(r for r in result.runs if r.module == name) for name in "abc")
    assert (a.ranks, b.ranks, c.ranks) == ((0, 1), (0, 1), (2,))
    assert b.start >= a.end
    assert c.start < a.end


def test_what_a_context_says(flow, tmp_path):
    flow(
        table("note", "note", processes=2, copies=2, ranks=[2, 0, 1, 3])
        + table("write", "write", after=["note"],
                arguments={"keys": ["note/0/0/1", "note/1/0/0"]}),
        5,
    )  # fmt: skip
    assert (tmp_path / "flow-output" / "write.out").read_text() == (
        "note/0/0/1 = (2, 1, 2, (2, 0))\nnote/1/0/0 = (2, 1, 2, (1, 3))"
    )


def test_graphs_of_a_group_add_over_its_ranks(flow, tmp_path):
    flow(
        table("mean", "mean", processes=3)
        + table("write", "write", after=["mean"], arguments={"keys": ["mean"]}), 4,
    )  # fmt: skip
    assert (tmp_path / "flow-output" / "write.out").read_text() == "mean = 2.0"


def test_a_subset_of_ranks_is_called_by_its_members_alone():
    def members() -> Any:
        everyone = current()
        if everyone.rank == 1:
            with pytest.raises(
                mg.errors.GraphError, match=r"asks for the communicator of \(0, 2\)"
            ):
                everyone.subset((0, 2))
            with pytest.raises(mg.errors.GraphError, match=r"of \(1, 1\)"):
                everyone.subset((1, 1))
            return None
        chosen = everyone.subset((2, 0))
        return chosen.rank, chosen.exchange(everyone.rank)

    assert mg.distributed.threads(3, members) == [(1, [2, 0]), None, (0, [2, 0])]


def test_ranks_that_others_must_have_are_taken_last():
    text = table("a", "nothing") + table("b", "nothing", ranks=[0])
    schedule = Schedule(parse(text, "flow.toml"), (0, 1))
    assert [schedule.next().ranks for _ in range(2)] == [(1,), (0,)]


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


# ------------------------------------------------------------------- the store


@pytest.mark.parametrize("ranks", [2, 3, 6])
def test_values_are_found_wherever_they_lie(flow, ranks):
    servers = {2: [-1], 3: [-1, 0], 6: [1, 3]}[ranks]
    result = flow(
        f"[store]\nservers = {servers}\n"
        + table("put", "many", copies=2, arguments={"count": 20})
        + table("get", "check_many", after=["put"], arguments={"count": 20, "copies": 2}),
        ranks,
    )
    assert result.ok
    assert not {r for run in result.runs for r in run.ranks} & {s % ranks for s in servers}


def test_a_metadata_rank_of_its_own(flow):
    result = flow(
        "[store]\nservers = [0, 1]\nmetadata = 3\n"
        + table("put", "many", arguments={"count": 9})
        + table("get", "check_many", after=["put"], arguments={"count": 9, "copies": 1}), 5,
    )  # fmt: skip
    assert {run.ranks for run in result.runs} <= {(2,), (4,)}


def test_get_waits_until_somebody_puts(flow):
    result = flow(table("get", "get", arguments={"key": "late"}) + table("put", "late_put"), 3)
    got = next(run for run in result.runs if run.module == "get")
    assert got.seconds >= 0.1


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_an_iteration_sees_what_the_last_one_has_put(flow, ranks):
    assert flow(table("count", "count_up", iterations=20), ranks).ok


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_key_that_does_not_come_in_time(flow, ranks):
    with pytest.raises(mg.workflow.WorkflowError, match="the key 'x' has not come within 0.05 s"):
        flow(table("get", "get", arguments={"key": "x", "timeout": 0.05}), ranks)


# ------------------------------------------------------------------- messages


def test_messages_come_in_their_order(flow):
    numbers = {"count": 30}
    assert flow(
        "[store]\nservers = [-1, -2]\n"
        + table("talk", "talk", arguments=numbers)
        + table("answer", "answer", arguments=numbers), 4).ok  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_messages_wait_for_modules_that_have_not_started(flow, ranks):
    assert flow(
        table("early", "early") + table("late", "late", after=["early"], iterations=3), ranks
    ).ok


def test_messages_of_copies_are_told_apart(flow):
    assert flow(
        table("gather", "gather", arguments={"copies": 3}) + table("scatter", "scatter", copies=3),
        5,
    ).ok


def test_a_ring_of_copies_over_two_servers(flow):
    text = "[store]\nservers = [-1, -2]\n" + table(
        "ring", "ring", copies=3, arguments={"steps": 25}
    )
    assert flow(text, 5).ok


def test_misuse_of_a_context(flow, tmp_path):
    flow(table("misuse", "misuse", copies=2) + program("program", "1", after=["misuse"]), 1)
    said = (tmp_path / "flow-output" / "said").read_text().splitlines()
    assert [line for line in said if not line.startswith("  ")] == [
        "'nobody' is no module",
        "'program' is a program",
        "a message to module 'misuse', copy=2",
        "a message to module 'misuse', rank=1",
        "a message of module 'misuse', copy=-1",
        "timeout=0",
        "the key 3",
        "timeout='soon'",
    ]


# ------------------------------------------------------------------- dead waiting


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_key_that_nobody_can_put(flow, ranks):
    text = table("other", "nothing") + table("get", "get", arguments={"key": "x"})
    with pytest.raises(mg.workflow.WorkflowError) as raised:
        flow(text, ranks)
    assert str(raised.value).startswith("module get, on rank ")
    assert "the key 'x' can come from nobody any more: all other mod" in str(raised.value)


def test_modules_that_wait_for_each_other(flow):
    text = (
        table("a", "receive", arguments={"of": "b"})
        + table("b", "receive", arguments={"of": "a"})
        + table("c", "nothing", after=["a"])
        + table("d", "get", arguments={"key": "x", "timeout": 0.2})
    )
    began = time.monotonic()
    with pytest.raises(mg.workflow.WorkflowError) as raised:
        flow("[workflow]\non_failure = 'stop'\n" + text.replace("timeout = 0.2", "timeout = 9"), 3)
    assert time.monotonic() - began < 5
    text = str(raised.value)
    assert "can come from nobody any more" in text
    assert "module c has not started, and needs a to end, and a free rank" in text
    assert "module d has not started, and needs a free rank" in text
    others = {"a": "module b, on rank 1, waits for a message of module 'a'",
              "b": "module a, on rank 0, waits for a message of module 'b'"}  # fmt: skip
    assert others[text[len("module ")]] in text


def test_whoever_waits_with_a_limit_may_still_wake_others(flow):
    result = flow(
        "[workflow]\non_failure = 'continue'\n"
        + table("timed", "receive", arguments={"of": "other", "timeout": 0.2})
        + table("other", "get", arguments={"key": "x"}), 3,
    )  # fmt: skip
    timed, other = (next(r for r in result.runs if r.module == n) for n in ("timed", "other"))
    assert "has not come within 0.2 s" in timed.cause
    assert "can come from nobody" in other.cause
    assert other.end >= timed.end - 0.01


def test_waiting_is_dead_only_when_nothing_is_on_its_way():
    def waits(taken: int, puts: int = 0, timed: bool = False, sent: int = 0) -> _Wait:
        return _Wait(1, "", "a message", timed, Counts({1: sent}, taken, puts))

    def asleep(one: _Wait, other: _Wait, located: int = 0, passed_on: int = 0) -> bool:
        board = _Board(waits={0: one, 1: other}, counts={0: one.counts, 1: other.counts})
        board.located, board.sent = {0: located}, {1: passed_on}
        return board.asleep({0, 1})

    assert asleep(waits(0), waits(0))
    assert asleep(waits(0, sent=2, puts=1), waits(3), located=1, passed_on=1)
    assert not asleep(waits(0, sent=2), waits(1))  # one message is under way
    assert not asleep(waits(0), waits(0), passed_on=1)
    assert not asleep(waits(0, puts=2), waits(0), located=1)  # or a value
    assert not asleep(waits(0, timed=True), waits(0))  # or wakes up by itself
    board = _Board(waits={0: waits(0)}, counts={0: Counts({}, 0, 0)})
    assert not board.asleep({0, 1})  # or computes
    assert not board.asleep(set())


def test_copies_that_need_each_other_and_have_one_rank(flow):
    with pytest.raises(mg.workflow.WorkflowError, match="module meet, copy 1 has not started, and "
                       "needs a free rank"):  # fmt: skip
        flow(table("meet", "meet", copies=2), 2)


# ------------------------------------------------------------------- failures


@pytest.mark.parametrize("ranks", [1, 2, 4])
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
        flow(text, 3)


def test_modules_that_run_are_stopped(flow):
    text = (
        table("forever", "forever", copies=2)
        + table("slow", "rest", arguments={"seconds": 0.1})
        + table("fail", "fail", after=["slow"])
        + program("program", "import time; time.sleep(60)")
    )
    began = time.monotonic()
    with pytest.raises(mg.workflow.WorkflowError, match="module fail, on rank") as raised:
        flow(text, 5)
    assert time.monotonic() - began < 10
    assert statuses(raised.value.result) == {
        "forever": "stopped", "slow": "done", "fail": "failed", "program": "stopped"}  # fmt: skip


def test_ranks_that_do_not_come_back_abort_the_job(flow):
    text = "[workflow]\ngrace = 0.3\n" + table("stuck", "wait_together", processes=2)
    with pytest.raises(mg.errors.CommunicationError) as raised:
        flow(text, 3)
    text = str(raised.value)
    # The rank that waits may see first that the other one is in another collective.
    assert "one of two" in text or "a barrier" in text


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
        + "environment = {MARK = 'mark'}\n", 5,
    )  # fmt: skip
    assert {(r.copy, r.ranks) for r in result.runs} == {(0, (0, 1)), (1, (2, 3))}
    for run in result.runs:
        path = tmp_path / "flow-output" / f"show-{run.copy}-{run.iteration}.txt"
        assert run.output == str(path)
        given = ["show", f"{run.copy}/2", str(run.iteration), str(run.ranks[0]), "2", "{}"]
        assert path.read_text() == f"{given} mark 3\n"


@pytest.mark.parametrize("ranks", [1, 3])
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
    ("workflow = 3\n", "flow.toml: [workflow] = 3"),
    ("[modules]\na = 1\n", "flow.toml: [modules.a] = 1"),
    ("[workflow]\non_failure = 'go'\n", "flow.toml: [workflow] on_failure = 'go'"),
    ("[workflow]\ngrace = 0\n", "flow.toml: [workflow] grace = 0"),
    ("[workflow]\nspeed = 1\n", "flow.toml: [workflow] has the unknown key 'speed'"),
    ("[store]\nservers = [1, 1]\n", "flow.toml: [store] servers = [1, 1]"),
    ("[store]\nservers = []\n[modules.a]\nfunction='flows:put'", "flow.toml: [store] servers = []"),
    ("[modules.a]\n", "flow.toml: [modules.a] has neither function and command"),
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
    (table("a", "put", ranks=[0, 1]), "[modules.a] ranks = [0, 1]"),
    (table("a", "put", ranks=[-1]), "[modules.a] ranks = [-1]"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_wrong_files_are_refused_before_anything_starts(flow, tmp_path, text, said):
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
    ("text", "ranks", "said"),
    [
        (table("a", "put", processes=2), 1, "processes = 2: too few ranks, 1 of 1 can run modules"),
        (table("a", "put", processes=3), 3, "mpiexec -n 4 magmagraph workflow run flow.toml"),
        (table("a", "put", ranks=[2]), 3, "rank 2 is a server of [store]"),
        (table("a", "put", ranks=[7]), 3, "rank 7 does not exist"),
        ("[store]\nservers = [5]\n" + table("a", "put"), 3, "[store] servers names rank 5"),
        ("[store]\nmetadata = 3\n" + table("a", "put"), 3, "[store] metadata names rank 3"),
    ],
)
def test_ranks_that_are_not_there_are_refused(flow, text, ranks, said):
    with pytest.raises(ConfigError) as raised:
        flow(text, ranks)
    assert said in str(raised.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"absent.toml cannot be read"):
        mg.workflow.run(tmp_path / "absent.toml")


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
    assert "flow.toml is in order; it needs 1 rank at least" in capsys.readouterr().out
    path.write_text(table("a", "nothing", processes=3, ranks=[1, 2, 4]))
    assert cli.main(["workflow", "check", str(path)]) == 0
    assert "it needs 6 ranks at least" in capsys.readouterr().out
    assert cli.main(["workflow", "check", str(path), "-n", "3"]) == 1
    assert "too few ranks" in capsys.readouterr().err


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
