"""Communicators: one rank, threads of one process, MPI."""

from __future__ import annotations

import os

from ...communicator import Communicator
from ...config import is_on, word

__all__ = ["local_rank", "ranks_started", "world"]

# What launchers tell the processes that they start, of the number of these: MPICH and its kin, Open
# MPI, MVAPICH, srun.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")


def ranks_started() -> int:
    """Return how many processes a launcher says that it has started; 1 without one.

    MPI is not asked: it would be initialized, and imported, for that.
    """
    for name in _SIZES:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return max(1, int(text))
    return 1


# Likewise, of its number among those of one host: Hydra, Open MPI, MVAPICH, srun.
_LOCAL_RANKS = (
    "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID",
)  # fmt: skip


def local_rank() -> int:
    """Return this process's number among those of its host; 0 without a launcher."""
    for name in _LOCAL_RANKS:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return 0


def world() -> Communicator:
    """Return the communicator of this process: MPI's where a launcher has started several.

    ``MAGMAGRAPH_COMMUNICATOR`` says otherwise: "solo" or "mpi". ``MAGMAGRAPH_OVERLAP=1`` gives
    collectives a thread of their own, which pays where a rank has a core to spare for it.

    Raises
    ------
    ConfigError
        The variable has another value.
    CommunicationError
        A launcher has started several processes, and MPI cannot be used.
    """
    wanted = word("MAGMAGRAPH_COMMUNICATOR")
    if wanted == "mpi" or (wanted == "auto" and ranks_started() > 1):
        from .host import Host

        host = Host.find(ranks_started())
        if host is not None:
            host.gather()  # MPI starts with its import, and waits for all ranks without a word
        from .mpi import mpi_world

        return mpi_world(is_on("MAGMAGRAPH_OVERLAP"), host)
    from .solo import Solo

    return Solo()
