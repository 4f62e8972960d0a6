"""Communicators: one rank, threads of one process, MPI."""

from __future__ import annotations

from ...config import is_on, word
from ...ir.communicator import Communicator
from ...ir.launchers import is_started, local_rank, ranks_started

__all__ = ["local_rank", "ranks_started", "world"]


def world() -> Communicator:
    """Return the communicator of this process: MPI's where a launcher has started several.

    ``MAGMAGRAPH_COMMUNICATOR`` says otherwise: "solo" or "mpi". ``MAGMAGRAPH_OVERLAP=1`` gives
    collectives a thread of their own, which pays where a rank has a core to spare for it.

    Raises
    ------
    ConfigError
        The variable has another value.
    CommunicationError
        A launcher has started several processes, and MPI cannot be used, or has another number of
        ranks.
    """
    communicator = word("MAGMAGRAPH_COMMUNICATOR")
    if communicator == "mpi" or (communicator == "auto" and is_started()):
        from .host import Host

        host = Host.find(ranks_started())
        if host is not None:
            host.gather()  # MPI starts with its import, and waits for all ranks without a word
        from .mpi import mpi_world

        return mpi_world(is_on("MAGMAGRAPH_OVERLAP"), host)
    from .solo import Solo

    return Solo()
