"""The launcher, with a stand-in for mpiexec: what it starts, what it sees, what it says.

tests/mpi/test_failures_mpi.py holds what MPI itself has a part in.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from magmagraph import cli, run
from magmagraph.distributed import JobError, launch
from magmagraph.distributed.launching import job as launch_job
from magmagraph.distributed.launching import report as launch_report
from magmagraph.distributed.launching.engine import Engine, _engine, find_engine
from magmagraph.distributed.launching.line import Line
from magmagraph.distributed.launching.report import Failure
from magmagraph.errors import ConfigError, DeviceError
from magmagraph.runtime import watch

linux = pytest.mark.skipif(
    not os.path.isdir("/proc/self"), reason="processes of others are seen in Linux's /proc"
)

QUIET = ["-disable-auto-cleanup"]

# Starts ranks on this machine, as far as a rank needs it.
STARTER = """#!/bin/sh
if [ "$1" = --version ]; then echo "{says}"; exit; fi
{instead}
shift; count=$1; shift
rank=0; started=
while [ $rank -lt $count ]; do
    PMI_RANK=$rank "$@" & started="$started $!"; rank=$((rank + 1))
done
status=0
for process in $started; do wait $process || status=$?; done
exit $status
"""


def starter(folder: Path, says: str = "an MPI 1.2", instead: str = "") -> str:
    path = folder / "starter"
    path.write_text(STARTER.format(says=says, instead=instead))
    path.chmod(0o700)
    return str(path)


@pytest.fixture
def mpiexec(tmp_path: Path) -> str:
    return starter(tmp_path)


def own_rank() -> int:
    return int(os.environ["PMI_RANK"])


class Pair:
    """Something that only this file knows."""

    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right


def swapped(pair: Pair) -> Pair:
    print(f"half of {own_rank()}", end="")
    print(" and the rest")
    return Pair(pair.right, own_rank())


def test_a_function_gives_its_results_in_the_order_of_the_ranks(mpiexec, capfd):
    found = launch(swapped, Pair(1, "two"), ranks=3, mpiexec=mpiexec, label=True)
    assert [(pair.left, pair.right) for pair in found] == [("two", 0), ("two", 1), ("two", 2)]
    lines = sorted(capfd.readouterr().out.splitlines())
    assert lines == [f"[{rank}] half of {rank} and the rest" for rank in range(3)]


def variables() -> tuple[str, ...]:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MAGMAGRAPH_THREADS", "COLOUR")
    return tuple(os.environ.get(name, "unset") for name in names)


def test_threads_of_a_rank_are_its_share_of_the_cores(mpiexec, monkeypatch):
    for name in ("OPENBLAS_NUM_THREADS", "MAGMAGRAPH_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("magmagraph.distributed.launching.job.allowed_cores", lambda: 9)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # less than the share
    asked: dict[str, Any] = {"mpiexec": mpiexec, "environment": {"COLOUR": "red"}}
    assert launch(variables, ranks=2, **asked) == [("3", "4", "unset", "red")] * 2
    assert launch(variables, ranks=1, threads=5, **asked) == [("5", "5", "5", "red")]


def fails_on_one(kind: str, folder: Path) -> None:
    there = folder / "there"
    if own_rank() == 1:
        there.touch()
        if kind == "raise":
            raise ValueError("a mistake\nof two lines")
        if kind == "exit":
            sys.exit(7)
        if kind == "text":
            sys.exit("no data")
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if kind == "library":
            watch._tell({"size": 1})
        if kind == "late":
            time.sleep(60)
    while not there.exists():  # on a busy machine it may still be on its way
        time.sleep(0.01)
    with watch.waiting("a sum over ranks"):
        time.sleep(60)


@pytest.mark.parametrize(
    ("kind", "status", "cause", "said"),
    [
        ("raise", 1, "exception", "rank 1 of 2 failed: ValueError: a mistake\n  of two lines"),
        ("exit", 7, "exit", "rank 1 of 2 left by sys.exit(7)"),
        ("text", 1, "exit", "rank 1 of 2 left by sys.exit('no data')"),
        # sh says of a process that was killed what it says of one that left with this status.
        ("kill", 137, "killed", "rank 1 of 2 has left with status 137, by os._exit or a crash"),
        pytest.param(
            "stop",
            137,
            "stopped",
            "rank 1 of 2 is stopped, by SIGSTOP or a terminal, for 0.5 s",
            marks=linux,
        ),
        ("library", 1, "start", "rank 1 of 2 sees 1 rank instead of 2: mpi4py speaks another MPI"),
        (
            "late",
            124,
            "hang",
            "rank 1 of 2 kept rank 0 waiting for more than 1 s\n"
            "  rank 0: waiting in a sum over ranks, at ",
        ),
    ],
)
def test_a_failure_names_rank_and_cause(mpiexec, kind, status, cause, said, tmp_path):
    with pytest.raises(JobError) as caught:
        launch(
            fails_on_one, kind, tmp_path, ranks=2, mpiexec=mpiexec, stopped=0.5,
            timeout=1.0 if kind == "late" else 50.0,
        )  # fmt: skip
    assert str(caught.value).startswith(said)
    failure = caught.value.failure
    assert (caught.value.status, failure.ranks, failure.kind) == (status, (1,), cause)
    if kind in ("raise", "exit", "late"):
        assert f"\n  at: {__file__}:" in str(caught.value)
        assert failure.where.endswith(" in fails_on_one")
    if kind in ("raise", "late"):  # a traceback, or a stack
        assert "(most recent call last):\n  File " in str(caught.value)
        assert "launching/rank" not in str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.failure) == (str(caught.value), failure)


def ends_on_one() -> None:
    if own_rank() == 0:
        with watch.waiting("making the plan of a function on 2 ranks"):
            time.sleep(60)


def waits_in_a_group(seconds: float) -> int:
    """Wait for some ranks, not all: the one that has ended need not be among them."""
    if own_rank() == 0:
        with watch.waiting("a sum over ranks on 1 ranks"):
            time.sleep(seconds)
    return own_rank()


def test_a_rank_that_has_ended_is_not_waited_for(mpiexec, monkeypatch):
    monkeypatch.setattr(launch_job, "_MISSED", 0.5)
    with pytest.raises(JobError) as caught:
        launch(ends_on_one, ranks=2, mpiexec=mpiexec)
    assert str(caught.value).startswith(
        "rank 1 of 2 ended while rank 0 waited, for more than 0.5 s\n"
        "  rank 0: waiting in making the plan of a function on 2 ranks, at "
    )
    assert (caught.value.status, caught.value.failure.ranks) == (124, (1,))
    assert launch(waits_in_a_group, 1.5, ranks=2, mpiexec=mpiexec) == [0, 1]


def fails_often(times: int, text: str) -> tuple[int, int]:
    attempt = int(os.environ["MAGMAGRAPH_RESTART"])
    if attempt < times and own_rank() == 0:
        raise ValueError(text.format(attempt))
    return attempt, own_rank()


def test_a_job_is_started_again_and_may_do_without_a_rank(mpiexec, capsys):
    again = {"restarts": 2, "mpiexec": mpiexec}
    found = launch(fails_often, 2, "try {}", ranks=3, least=2, **again)
    assert found == [(2, 0), (2, 1)]
    said = capsys.readouterr().err
    assert "failed: ValueError: try 0" in said
    assert "started again with 2 ranks (1 of 2)" in said
    assert "started again with 2 ranks (2 of 2)" in said


def test_what_fails_twice_in_the_same_words_is_not_tried_again(mpiexec, capsys):
    with pytest.raises(JobError, match="the same"):
        launch(fails_often, 9, "the same", ranks=1, restarts=5, mpiexec=mpiexec)
    assert capsys.readouterr().err.count("started again") == 1


def test_a_starter_that_fails_says_why(tmp_path):
    mpiexec = starter(tmp_path, instead="echo 'no such host' >&2; exit 3")
    with pytest.raises(JobError) as caught:
        launch(own_rank, ranks=2, restarts=3, mpiexec=mpiexec)
    assert str(caught.value) == "ranks 0, 1 of 2 did not start\n  no such host"
    assert caught.value.status == 3


@linux
def test_a_rank_that_leaves_its_process_behind_is_followed(mpiexec, tmp_path):
    script = tmp_path / "leaves.py"
    script.write_text(
        "import subprocess, sys\n"
        "made = subprocess.Popen(['sleep', '60'])\n"
        "open(sys.argv[1], 'w').write(str(made.pid))\n"
    )
    assert launch(script, tmp_path / "number", ranks=1, mpiexec=mpiexec) == [None]
    state = Path(f"/proc/{(tmp_path / 'number').read_text()}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_the_command_passes_arguments_and_status(mpiexec, tmp_path, capfd):
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:], __name__); sys.exit(int(sys.argv[-1]))")
    words = ["run", "-n", "1", "--mpiexec", mpiexec, str(script), "-n", "--rate", "0.5"]
    assert cli.main([*words, "0"]) == 0
    assert capfd.readouterr().out == "['-n', '--rate', '0.5', '0'] __main__\n"
    assert cli.main([*words, "6"]) == 6
    assert "magmagraph: rank 0 of 1 left by sys.exit(6)" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-n", "0", "nothing.py"], "-n 0\n  expected: a whole number, more than 0"),
        (["-n", "2", "--elastic", "3", "nothing.py"], "--elastic 3\n  expected: 1 to 2, the"),
        (["-n", "2", "--stopped", "-1", "nothing.py"], "--stopped -1.0\n  expected: seconds, more"),
        (["-n", "2", "nothing"], "there is no script 'nothing'\n  try: -m runs it by its name"),
    ],
)
def test_wrong_options_are_named_as_options(words, said, capfd):
    assert run.main(words) == 2
    assert f"magmagraph: {said}" in capfd.readouterr().err


def test_a_launch_that_its_ranks_come_to_is_refused(mpiexec, tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import magmagraph as mg\n"
        "def one():\n"
        "    return 1\n"
        f"print(mg.distributed.launch(one, ranks=1, mpiexec={mpiexec!r}))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert (
        "rank 0 of 1 failed: ConfigError: launch is called while ranks of a launch read this "
        'script for their function\n  expected: a call that the ranks do not come to\n  try: if '
        '__name__ == "__main__": before it\n'
    ) in done.stderr.replace("    expected", "  expected").replace("    try", "  try")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ranks": 0}, "ranks=0\n  expected: a whole number, more than 0"),
        ({"ranks": 1.5}, "ranks=1.5"),
        ({"timeout": -1}, "timeout=-1\n  expected: seconds, more than 0"),
        ({"restarts": True}, "restarts=True\n  expected: a whole number, 0 or more"),
        ({"threads": 0}, "threads=0"),
        ({"least": 3}, "least=3\n  expected: 1 to 2, the number of ranks"),
        ({"program": "nothing.py"}, "there is no script 'nothing.py'"),
        ({"program": "nothing"}, "there is no script 'nothing'\n  try: module=True"),
        ({"program": lambda: 1}, "<function <lambda> at .*> cannot be called on ranks"),
    ],
)
def test_wrong_settings_start_nothing(wrong, said, mpiexec):
    given = {"program": own_rank, "ranks": 2, "mpiexec": mpiexec, **wrong}
    with pytest.raises(ConfigError, match=said):
        launch(given.pop("program"), **given)


def test_a_line_that_has_ended_keeps_no_socket():
    ours, theirs = socket.socketpair()
    line, other = Line(ours), Line(theirs)
    other.send({"beat": 1})
    other.close()
    assert line.receive() == {"beat": 1}
    assert line.receive() is None
    assert line.receive() is None
    line.close()
    assert ours.fileno() == -1
    assert other.receive() is None
    assert theirs.fileno() == -1


# ------------------------------------------------------------------------------ what starts ranks


@pytest.mark.parametrize(
    ("says", "family", "words"),
    [
        ("HYDRA build details: Version: 4.2.3", "mpich", [*QUIET, "-localhost", "127.0.0.1"]),
        ("Intel(R) MPI Library, Version 2021.13", "intel", []),
        ("mpirun (Open MPI) 5.0.6", "openmpi", ["--oversubscribe"]),
        ("something 1.0", "other", []),
    ],
)
def test_starters_are_told_apart(says, family, words, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = _engine(starter(tmp_path, says=says))
    assert found.family == family
    assert found.version in says
    assert found.command(2, (), ["a"]) == [found.path, "-n", "2", *words, "a"]


def test_hosts_and_root_have_options_of_each_family(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert Engine("m", "openmpi", "").command(4, ("a", "b"), ["p"]) == [
        "m", "-n", "4", "--oversubscribe", "--allow-run-as-root", "--host", "a,b", "p",
    ]  # fmt: skip
    command = Engine("m", "mpich", "").command(4, ("a", "b"), ["p"])
    assert command == ["m", "-n", "4", *QUIET, "-hosts", "a,b", "p"]


def test_where_there_is_no_starter_the_mend_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MAGMAGRAPH_MPIEXEC", raising=False)
    with pytest.raises(DeviceError, match=r"try: pip install 'magmagraph\[mpi\]'"):
        find_engine()
    monkeypatch.setenv("MAGMAGRAPH_MPIEXEC", "nothing")
    with pytest.raises(DeviceError, match="there is no program 'nothing' to start ranks with"):
        find_engine()
    own = tmp_path / "mpiexec"
    own.write_text("#!/bin/sh\necho HYDRA 9.8\n")
    own.chmod(0o700)
    monkeypatch.delenv("MAGMAGRAPH_MPIEXEC")
    assert str(find_engine()) == f"{own}: MPICH (Hydra) 9.8"


# ------------------------------------------------------------------------------ judgement


def state(waiting: str | None, where: str) -> dict[str, Any]:
    return {"waiting": waiting, "seconds": 9.0, "count": 1, "where": where}


def test_who_is_to_blame_for_a_hang():
    there, here = state("a sum", "a.py:1 in f"), state(None, "a.py:9 in g")
    found = launch_report.hang({0: there, 1: here, 2: there}, [], 5.0)
    assert (found.ranks, found.where, found.status) == ((1,), "a.py:9 in g", 124)
    assert found.text == (
        "kept ranks 0, 2 waiting for more than 5 s\nranks 0, 2: waiting in a sum, at a.py:1 in f"
    )
    found = launch_report.hang({0: there, 2: there}, [1], 5.0)
    assert found.ranks == (1,)
    assert found.text.startswith("ended while ranks 0, 2 waited, for more than 5 s\n")
    other = state("a maximum", "a.py:2 in f")
    found = launch_report.hang({0: there, 1: other, 2: there}, [], 5.0)
    assert (found.ranks, found.where) == ((1,), "a.py:2 in f")
    assert found.text.startswith("waited elsewhere than the others for more than 5 s\n")
    found = launch_report.hang({0: there, 1: other}, [], 5.0)
    assert found.ranks == (0, 1)
    assert found.text.startswith("have waited for each other for more than 5 s\n")


def test_what_is_known_of_a_rank_that_died():
    crash = 'Fatal Python error\n\nCurrent thread 0x1:\n  File "/x/a.py", line 3 in f\n'
    found = launch_report.lost(1, -11, "", crash)
    assert found.text == "was killed by signal 11 (SIGSEGV)"
    assert (found.where, found.status) == ("/x/a.py:3 in f", 139)
    found = launch_report.lost(1, 5, "", "Abort(5) on node 1: application called MPI_Abort(...)")
    assert (found.text, found.status) == ("has called MPI_Abort, with status 5", 5)
    found = launch_report.lost(1, None, "", "")
    assert found.text == "was killed, has crashed, or has left by os._exit"
    found = launch_report.lost(1, 3, "a.py:1 in f", "")
    assert (found.where, found.status) == ("a.py:1 in f (when last seen)", 3)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("=   PID 31 RUNNING AT a\n=   EXIT CODE: 7\n", (31, 7)),
        (
            "mpirun noticed that process rank 1 with PID 52 on node a exited on signal 9 (Killed).",
            (52, -9),
        ),
        ("all is well", (None, None)),
    ],
)
def test_what_starters_say_of_a_death(text, found):
    assert launch_report.said_by_starter(text) == found


def test_failures_are_equal_by_their_words():
    one = Failure((1,), "exception", "failed: ValueError: x", "a.py:1")
    two = Failure((0,), "exception", "failed: ValueError: x", "a.py:1", trace="another")
    assert one.same(two)
    assert one.joined(two).ranks == (0, 1)
    assert not one.same(Failure((1,), "exception", "failed: ValueError: y", "a.py:1"))


# ------------------------------------------------------------------------------ the rank's side


HOOKED = """
import os, sys
from magmagraph.runtime import watch
watch.install(1, 2, lambda status: (sys.stdout.flush(), os._exit(50 + status)))
{body}
"""


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("raise ValueError('x')", 51),
        ("sys.exit(3)", 53),
        ("sys.exit('no data')", 51),
        ("sys.exit()", 0),
        ("sys.exit(0)", 0),
        ("try:\n    sys.exit(3)\nexcept SystemExit as stop:\n    assert stop.code == 3", 0),
        ("import argparse; argparse.ArgumentParser().parse_args(['--no'])", 52),
        ("if os.fork() == 0:\n    raise ValueError('of a child')\nos.wait()", 0),
    ],
)
def test_ends_that_abort_the_job_and_ends_that_do_not(body, status):
    done = subprocess.run(
        [sys.executable, "-c", HOOKED.format(body=body)], capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    if status:
        assert "magmagraph: rank 1 of 2 " in done.stderr


def test_the_time_that_a_rank_may_wait_is_checked(monkeypatch):
    monkeypatch.setenv("MAGMAGRAPH_TIMEOUT", "soon")
    with pytest.raises(ConfigError, match="MAGMAGRAPH_TIMEOUT is 'soon'"):
        watch.timeout()
    monkeypatch.setenv("MAGMAGRAPH_TIMEOUT", "2.5")
    assert watch.timeout() == 2.5


def test_a_wait_within_a_wait_counts_as_one():
    before = watch.state()["count"]
    with watch.waiting("the outer"):
        with watch.waiting("the inner"):
            assert watch.state()["waiting"] == "the inner"
        assert watch.state()["waiting"] == "the outer"
        assert watch.state()["count"] == before + 1
    assert watch.state()["waiting"] is None
    assert watch.state()["where"].startswith(__file__)
