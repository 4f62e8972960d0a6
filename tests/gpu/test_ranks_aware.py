"""Ranks whose devices MPI takes addresses of: a job of two, which may share one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from test_ranks import AS_ROOT, HERE, program

from magmagraph.cli import info


def test_two_ranks_by_addresses() -> None:
    mpiexec = program()
    if mpiexec is None:
        pytest.skip("mpi4py or mpiexec is not there")
    says = info._addresses().value
    if not says.startswith("says that it takes"):
        pytest.skip(f"the MPI library {says}")
    done = subprocess.run(
        [mpiexec, "-n", "2", sys.executable, str(HERE / "ranks_aware.py")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={
            **os.environ,
            **AS_ROOT,
            "PYTHONPATH": os.pathsep.join([str(HERE.parent.parent), *sys.path]),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("all right") == 2
