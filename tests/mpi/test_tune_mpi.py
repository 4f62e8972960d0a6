"""Searches under MPI: the same as serial ones, over single ranks and groups, cut and resumed."""

from __future__ import annotations

import functools
import json
import os
import signal
import time

import numpy as np
import searched

import magmagraph as mg

PLANE = {"x": mg.tune.grid(0, 5), "y": mg.tune.grid(0.0, 1.0, 0.25)}


def described(found):
    """Return what two searches have in common that found the same."""
    return [(t.number, t.params, t.state, t.goal, t.reports) for t in found.trials]


def grid(journal):
    return described(mg.tune.search(searched.bowl, PLANE, "grid", "mpi", journal=journal))


def test_four_ranks_find_what_one_finds(on_ranks, tmp_path):
    serial = described(mg.tune.search(searched.bowl, PLANE, "grid"))
    assert on_ranks(4, grid, str(tmp_path / "search.jsonl")) == [serial] * 4
    # One rank hands out to itself; here it finds everything in the journal of the four.
    assert grid(str(tmp_path / "search.jsonl")) == serial


def learning():
    found = mg.tune.search(
        searched.curve, {"height": mg.tune.uniform(1, 2)}, "random", "mpi",
        minimize="loss", trials=24, stop=mg.tune.Median(startup=2), ahead=3,
    )  # fmt: skip
    return described(found)


def test_stops_do_not_depend_on_the_ranks(on_ranks):
    serial = learning()
    assert {state for _, _, state, _, _ in serial} == {"done", "stopped"}
    assert on_ranks(4, learning) == [serial] * 4


def together(trial):
    """Return the mean of what the ranks of a group hold, by a collective of a graph."""
    held = trial.communicator
    x = mg.var("x", shape=(2,))
    mean = mg.function([x], mg.distributed.allreduce(x, "mean"))
    value = mean(np.full(2, trial["x"] + held.rank, np.float32))
    assert held.size == 3
    return float(value[0])


def grouped():
    return described(mg.tune.search(together, {"x": [4, 2, 6, 8]}, "grid", "mpi", group=3))


def test_groups_of_ranks_run_collectives_of_their_own(on_ranks):
    found = on_ranks(4, grouped)
    assert found == [found[0]] * 4
    assert [goal for _, _, _, goal, _ in found[0]] == [5.0, 3.0, 7.0, 9.0]


PROGRAM = """
    import functools, sys
    import magmagraph as mg
    import searched

    folder, seconds = sys.argv[1:]
    objective = functools.partial(searched.slow, folder=folder, seconds=float(seconds))
    space = {"x": mg.tune.grid(0, 5), "y": [0.0, 0.5]}
    found = mg.tune.search(objective, space, "grid", "mpi", journal=folder + "/search.jsonl")
    if mg.distributed.rank() == 0:
        print(found.best.params, found.interrupted)
"""


def test_a_killed_job_goes_on(mpiexec, tmp_path):
    """Kill -9 of a working rank ends the job; the same call then ends the search."""
    journal = tmp_path / "search.jsonl"

    def events(kind):
        text = journal.read_text() if journal.exists() else ""
        whole = text[: text.rfind("\n") + 1].splitlines()
        return [e["trial"] for e in map(json.loads, whole) if e.get("event") == kind]

    def kill(process):
        end = time.monotonic() + 40
        while len(events("end")) < 3:
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.01)
        (pid,) = {int(line) for line in (tmp_path / "pids").read_text().split()[1:2]}
        os.kill(pid, signal.SIGKILL)

    noted = PROGRAM.replace(
        "    found =",
        '    import os\n    if mg.distributed.rank():\n'
        '        with open(folder + "/pids", "a") as file: file.write(f"{os.getpid()}\\n")\n'
        "    found =",
        1,
    )
    cut = mpiexec(4, noted, str(tmp_path), "0.2", timeout=60, during=kill)
    assert cut.status != 0
    ended, running = set(events("end")), set(events("start")) - set(events("end"))
    assert ended
    assert running
    again = mpiexec(4, PROGRAM, str(tmp_path), "0", timeout=60)
    assert again.status == 0, again.output
    assert again.stdout.strip() == f"{{'x': 3, 'y': 0.5}} {sorted(running)}"
    assert sorted(events("end")) == list(range(12))
    runs = [int(line) for line in (tmp_path / "started").read_text().split()]
    assert {number for number in runs if runs.count(number) > 1} <= running
    serial = mg.tune.search(
        functools.partial(searched.slow, folder=str(tmp_path), seconds=0.0),
        {"x": mg.tune.grid(0, 5), "y": [0.0, 0.5]}, "grid", journal=journal,
    )  # fmt: skip
    assert serial.best.params == {"x": 3, "y": 0.5}
