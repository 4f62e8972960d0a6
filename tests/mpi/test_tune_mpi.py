"""Searches under MPI: the same as serial ones, cut and resumed."""

from __future__ import annotations

import functools
import os
import signal
import time

import searched

import magmagraph as mg
from magmagraph.tune.journal import read_journal

PLANE = {"x": mg.tune.grid(0, 5), "y": mg.tune.grid(0.0, 1.0, 0.25)}


def described(found):
    """Return what two searches have in common that found the same."""
    return [(t.number, t.params, t.state, t.goal, t.reports) for t in found.trials]


def grid(journal):
    return described(mg.tune.search(searched.bowl, PLANE, "grid", "mpi", journal=journal))


def test_four_ranks_find_what_one_finds(on_ranks, tmp_path):
    serial = described(mg.tune.search(searched.bowl, PLANE, "grid"))
    assert on_ranks(4, grid, str(tmp_path / "search.log")) == [serial] * 4


def learning(executor="mpi"):
    found = mg.tune.search(
        searched.curve, {"height": mg.tune.uniform(1, 2)}, "random", executor,
        minimize="loss", trials=24, stop=mg.tune.Median(startup=2), ahead=3,
    )  # fmt: skip
    return described(found)


def test_stops_do_not_depend_on_the_ranks(on_ranks):
    serial = learning("serial")
    assert {state for _, _, state, _, _ in serial} == {"done", "stopped"}
    assert on_ranks(4, learning) == [serial] * 4


def test_what_rank_0_raises_is_raised_by_all(on_ranks):
    assert on_ranks(3, refused) == ["the goal is 'gain', and the objective returned"] * 3


def refused():
    try:
        mg.tune.search(searched.bowl, PLANE, "grid", "mpi", maximize={"gain": 1.0})
    except mg.ConfigError as error:
        return str(error)[:46]
    return "nothing was raised"


PROGRAM = """
    import functools, sys
    import magmagraph as mg
    import searched

    folder, seconds = sys.argv[1:]
    objective = functools.partial(searched.slow, folder=folder, seconds=float(seconds))
    space = {"x": mg.tune.grid(0, 5), "y": [0.0, 0.5]}
    found = mg.tune.search(objective, space, "grid", "mpi", journal=folder + "/search.log")
    if mg.distributed.rank() == 0:
        print(found.best.params, found.interrupted)
"""


def test_a_killed_job_goes_on(mpiexec, tmp_path):
    """Kill -9 of a working rank ends the job; the same call then ends the search."""
    journal = tmp_path / "search.log"

    def ended():
        try:
            _, trials = read_journal(journal)
        except mg.DataError:  # it is not there yet, or has no header yet
            return set(), set()
        done = {number for number, event in trials.items() if event.end is not None}
        return done, set(trials) - done

    def kill(process):
        end = time.monotonic() + 40
        while len(ended()[0]) < 3:
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
    _, running = ended()
    assert running
    again = mpiexec(4, PROGRAM, str(tmp_path), "0", timeout=60)
    assert again.status == 0, again.output
    assert again.stdout.strip() == f"{{'x': 3, 'y': 0.5}} {sorted(running)}"
    assert ended() == (set(range(12)), set())
    runs = [int(line) for line in (tmp_path / "started").read_text().split()]
    assert {number for number in runs if runs.count(number) > 1} <= running
    serial = mg.tune.search(
        functools.partial(searched.slow, folder=str(tmp_path), seconds=0.0),
        {"x": mg.tune.grid(0, 5), "y": [0.0, 0.5]}, "grid", journal=journal,
    )  # fmt: skip
    assert serial.best.params == {"x": 3, "y": 0.5}
