"""Ranks with a device each: jobs of two and of four, by mpiexec and NCCL."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from magmagraph.runtime.cuda.device import count_of_devices

HERE = Path(__file__).resolve().parent
# Open MPI starts nothing as root unless both say so, and in containers tests often are. These are
# the job's alone. It binds ranks to the first cores, the same ones for all jobs that run at once.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
UNBOUND = {"OMPI_MCA_hwloc_base_binding_policy": "none"}


def program() -> str | None:
    """Return the mpiexec beside Python, or the one on the path."""
    if importlib.util.find_spec("mpi4py") is None:
        return None
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def check(mpiexec: str, name: str, count: int) -> None:
    """Run a program beside this file on so many ranks, all of which say that all is right."""
    done = subprocess.run(
        [mpiexec, "-n", str(count), sys.executable, str(HERE / name)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={
            **os.environ,
            **AS_ROOT,
            **UNBOUND,
            "PYTHONPATH": os.pathsep.join([str(HERE.parent.parent), *sys.path]),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("all right") == count


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(
    "name",
    [
        "ranks_agreeing.py",
        "ranks_calls.py",
        "ranks_program.py",
        "ranks_scaled.py",
        "ranks_strategies.py",
    ],
)
def test_devices_together(name: str, count: int) -> None:
    mpiexec = program()
    if mpiexec is None:
        pytest.skip("mpi4py or mpiexec is not there")
    if count_of_devices() < count:
        pytest.skip(f"there are fewer than {count} devices")
    check(mpiexec, name, count)
