"""Ranks whose devices MPI takes addresses of: a job of two, which may share one."""

from __future__ import annotations

import pytest
from test_ranks import check, program

from magmagraph.cli import info


def test_two_ranks_by_addresses() -> None:
    mpiexec = program()
    if mpiexec is None:
        pytest.skip("mpi4py or mpiexec is not there")
    says = info._addresses().value
    if not says.startswith("says that it takes"):
        pytest.skip(f"the MPI library {says}")
    check(mpiexec, "ranks_aware.py", 2)
