"""What the variables of launchers mean, and that MPI's number of ranks has to be theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from magmagraph.errors import CommunicationError
from magmagraph.ir import launchers

PREFIXES = ("PMI", "OMPI_", "MV2_", "SLURM_", "MPI_LOCAL")
BATCH = str(0xFFFF_FFFB)  # Slurm's number of the step that a job script is
LIBRARY = "MPICH 4"


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set these variables of launchers, and no others."""

    def give(**values: object) -> None:
        for name in [name for name in os.environ if name.startswith(PREFIXES)]:
            monkeypatch.delenv(name)
        for name, value in values.items():
            monkeypatch.setenv(name, str(value))

    return give


AGREE = [
    ({}, 1),
    ({"PMI_SIZE": 4, "PMI_RANK": 3, "MPI_LOCALNRANKS": 2}, 4),
    ({"OMPI_COMM_WORLD_SIZE": 2, "PMIX_RANK": 1}, 2),
    ({"SLURM_STEP_NUM_TASKS": 3, "SLURM_PROCID": 1, "SLURM_STEP_ID": 0}, 3),
    ({"SLURM_STEP_NUM_TASKS": 3, "PMIX_RANK": 2}, 3),
    # A job script, and a shell on the nodes, that no srun has started.
    ({"SLURM_NTASKS": 8, "SLURM_PROCID": 0}, 1),
    ({"SLURM_NTASKS": 8, "SLURM_STEP_NUM_TASKS": 8, "SLURM_STEP_ID": BATCH}, 1),
    # mpiexec in such a script: its daemons, one a host, are the step.
    ({"SLURM_STEP_NUM_TASKS": 2, "PMI_SIZE": 4, "PMI_RANK": 0}, 4),
    # mpiexec in a shell of srun, which leaves its own variables.
    ({"PMI_SIZE": 1, "PMI_RANK": 0, "OMPI_COMM_WORLD_SIZE": 4, "OMPI_COMM_WORLD_RANK": 2}, 4),
    ({"PMI_SIZE": 2, "OMPI_COMM_WORLD_SIZE": 4}, 2),  # a launcher in a rank of another one
    # Only a number among unknown many.
    ({"PMIX_RANK": 0}, 1),
    ({"PMIX_RANK": 0}, 5),
    ({"PMI_RANK": 2}, 3),
    ({"PMI_SIZE": "many"}, 1),
]
DISAGREE = [
    ({"PMI_SIZE": 4, "PMI_RANK": 0}, 1),
    ({"PMI_SIZE": 4}, 2),
    ({"PMI_SIZE": 1}, 2),
    ({"OMPI_COMM_WORLD_SIZE": 2}, 1),
    ({"MV2_COMM_WORLD_SIZE": 2}, 1),
    ({"SLURM_STEP_NUM_TASKS": 4, "SLURM_PROCID": 0, "SLURM_STEP_ID": 3}, 1),
    ({"PMI_SIZE": 1, "OMPI_COMM_WORLD_SIZE": 4}, 1),
    ({"PMIX_RANK": 1}, 1),
    ({"PMI_RANK": 0, "MPI_LOCALNRANKS": 2}, 1),
]


@pytest.mark.parametrize(("values", "size"), AGREE)
def test_a_world_as_its_launcher_says(variables, values, size):
    variables(**values)
    launchers.check_size(size, LIBRARY)


@pytest.mark.parametrize(("values", "size"), DISAGREE)
def test_a_world_of_another_size_is_an_error(variables, values, size):
    variables(**values)
    with pytest.raises(CommunicationError) as caught:
        launchers.check_size(size, LIBRARY)
    text = str(caught.value)
    name, value = max(values.items(), key=lambda item: int(item[1]) if "SIZE" in item[0] else -1)
    assert "mpi4py uses another MPI than the launcher" in text
    assert f"MPI sees {size} rank" in text
    assert f"a launcher of {LIBRARY}" in text
    assert "MAGMAGRAPH_COMMUNICATOR=solo" in text
    assert "srun --mpi" in text or "SLURM_STEP_NUM_TASKS" not in values
    assert f"{name}={value}" in text or "SIZE" not in name


def test_who_is_one_of_several(variables):
    variables(SLURM_NTASKS=8, SLURM_PROCID=0)
    assert not launchers.is_started()
    variables(PMIX_RANK=0)  # of unknown many: MPI knows
    assert launchers.is_started()
    variables(PMI_RANK=0, PMI_SIZE=1)
    assert not launchers.is_started()


# ---- Tracebacks


FAILS = """
import magmagraph, os, sys
def f():
    raise ValueError("one\\ntwo \\u00e9 \\udc80")
{before}
f()
"""


def failing(before: str = "", **values: str) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith((*PREFIXES, "MAGMAGRAPH_LAU"))}
    done = subprocess.run(
        [sys.executable, "-c", FAILS.format(before=before)],
        capture_output=True, text=True, timeout=120, env={**kept, **values},
    )  # fmt: skip
    assert done.returncode == 1
    return done.stderr


def test_each_line_of_a_traceback_has_its_rank():
    lines = failing(PMI_RANK="3", PMI_SIZE="4").splitlines()
    assert lines[0] == "[3] Traceback (most recent call last):"
    assert all(line.startswith("[3] ") for line in lines)
    assert lines[-2] == "[3] ValueError: one"


@pytest.mark.parametrize(
    ("values", "before"),
    [
        ({}, ""),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, ""),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, ""),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "sys.excepthook = sys.__excepthook__"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "MAGMAGRAPH_LAUNCH": "h:1:t:"}, ""),
    ],
)
def test_other_tracebacks_are_pythons_own(values, before):
    assert failing(before, **values).startswith("Traceback (most recent call last):")


def test_a_traceback_is_written_by_one_call(tmp_path):
    """Where each write is a packet, the traceback is one of them."""
    program = (
        "import os, socket, sys\n"
        "ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "os.dup2(theirs.fileno(), 2)\n"
        "import magmagraph\n"
        "try:\n    [][1]\nexcept IndexError:\n    sys.excepthook(*sys.exc_info())\n"
        "print(ours.recv(1 << 16).decode())\n"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith((*PREFIXES, "MAGMAGRAPH_LAU"))}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True,
        env={**kept, "PMI_RANK": "1", "PMI_SIZE": "2"},
    )  # fmt: skip
    assert done.stdout.startswith("[1] Traceback (most recent call last):\n[1]   File")
    assert done.stdout.rstrip().endswith("[1] IndexError: list index out of range")
