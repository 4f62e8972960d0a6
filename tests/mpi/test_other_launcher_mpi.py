"""A launcher of another MPI than mpi4py's makes worlds of one: an error on every rank."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest
from jobs import run

TRAINS = """
    import sys
    import numpy as np
    import magmagraph as mg
    x, w = mg.input("x", ("batch", 4)), mg.var("w", init=np.ones(4, np.float32))
    loss = mg.mean((x @ w) ** 2)
    step = mg.optimizer.SGD(0.1).step(
        loss, [w], [x], [loss], distribute=mg.distributed.DataParallel())
    step(np.ones((4, 4), np.float32))
    print("trained", mg.distributed.size())
"""
# Processes with the variables of a launcher that this MPI knows nothing of.
STARTER = """#!/bin/sh
for rank in 0 1 2; do env {variables} "$@" & started="$started $!"; done
status=0
for process in $started; do wait $process || status=$?; done
exit $status
"""


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ("OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=$rank", "OMPI_COMM_WORLD_SIZE=3"),
        ("SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=$rank SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=3"),
    ],
)
def test_every_rank_of_a_launcher_that_mpi_does_not_know_fails(
    tmp_path: Path, variables: str, said: str
) -> None:
    starter, script = tmp_path / "starter", tmp_path / "script.py"
    starter.write_text(STARTER.format(variables=variables))
    starter.chmod(0o700)
    script.write_text(textwrap.dedent(TRAINS))
    done = run([str(starter), sys.executable, str(script)], folder=tmp_path, timeout=60)
    assert done.status == 1
    assert "trained" not in done.output
    for rank in range(3):
        assert f"[{rank}] magmagraph.errors.CommunicationError: the launcher has started 3 " \
            f"processes ({said}), and MPI sees 1 rank: " in done.stderr  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if "magmagraph" in line or "Error" in line]
    assert all(re.match(r"\[[012]\] \S| *\[[012]\]  ", line) for line in lines), done.stderr


def test_a_program_that_is_to_work_alone_says_so(tmp_path: Path) -> None:
    starter, script = tmp_path / "starter", tmp_path / "script.py"
    starter.write_text(STARTER.format(variables="OMPI_COMM_WORLD_SIZE=3"))
    starter.chmod(0o700)
    script.write_text(textwrap.dedent(TRAINS))
    alone = {"MAGMAGRAPH_COMMUNICATOR": "solo"}
    done = run([str(starter), sys.executable, str(script)], folder=tmp_path, extra=alone)
    assert (done.status, done.stdout.split()) == (0, ["trained", "1"] * 3), done.stderr


SPAWNS = """
    import sys
    from mpi4py import MPI
    import magmagraph as mg
    parent = MPI.Comm.Get_parent()
    print(f"{'parent' if parent == MPI.COMM_NULL else 'child'} {mg.distributed.size()}\\n", end="")
    sys.stdout.flush()
    if parent == MPI.COMM_NULL:
        parent = MPI.COMM_WORLD.Spawn(sys.executable, [__file__], maxprocs=3)
    parent.Barrier()
    parent.Disconnect()
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_that_are_spawned_are_a_world_of_their_own(mpiexec, ranks):
    done = mpiexec(ranks, SPAWNS)
    assert done.status == 0, done.output
    assert sorted(done.stdout.splitlines()) == ["child 3"] * 3 + [f"parent {ranks}"] * ranks


FAILS = """
    import magmagraph as mg
    mg.distributed.communicator().barrier()
    def deep(n):
        return deep(n - 1) if n else [][1]
    deep(60)
"""


def test_tracebacks_of_ranks_do_not_mix_within_a_line(mpiexec):
    done = mpiexec(3, FAILS)
    assert done.status != 0
    lines = [line for line in done.stderr.splitlines() if "script.py" in line or "deep" in line]
    assert len(lines) > 6
    own = re.compile(
        r'\[[012]\]   File "\S+/script\.py", line \d+, in (deep|<module>)'
        r"|\[[012]\]     (return )?deep\(.*|magmagraph: rank [012] of 3 failed with IndexError .*"
    )
    assert all(own.fullmatch(line) for line in lines), done.stderr
