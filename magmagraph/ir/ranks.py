"""The current communicator: the ranks that run this program, as one thread sees them.

It is a context variable, so that the threads of one process can each be a rank.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from ..config import word
from . import launchers
from .communicator import Communicator

__all__ = ["current", "rank_and_count", "settle", "using"]

_current: ContextVar[Communicator | None] = ContextVar("communicator", default=None)
_of_process: list[Communicator] = []


def current() -> Communicator:
    """Return the communicator of all ranks, as this thread sees it.

    Under ``mpiexec`` that is MPI's, elsewhere that of one rank. The first call of a process finds
    the other ranks.
    """
    chosen = _current.get()
    if chosen is not None:
        return chosen
    if not _of_process:
        # Here, as a program that never asks for ranks is not to wait for this import.
        from ..runtime.comm import world

        _of_process.append(world())
    return _of_process[0]


def rank_and_count() -> tuple[int, int]:
    """Return this process's rank and the number of ranks, without a word to the others.

    Where no communicator is there yet, they are what the launcher says.
    """
    current = _current.get() or next(iter(_of_process), None)
    if current is not None:
        return current.rank, current.size
    if word("MAGMAGRAPH_COMMUNICATOR") == "solo":
        return 0, 1
    return launchers.rank() or 0, launchers.ranks_started()


def settle(communicator: Communicator) -> None:
    """Use a communicator in all threads of this process that have none of their own."""
    _of_process[:] = [communicator]


@contextlib.contextmanager
def using(communicator: Communicator) -> Iterator[Communicator]:
    """Make a communicator the current one of this thread while the context is open."""
    token = _current.set(communicator)
    try:
        yield communicator
    finally:
        _current.reset(token)
