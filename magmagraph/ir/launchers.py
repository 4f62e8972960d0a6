"""What launchers write into the environment of the processes that they start.

MPI itself knows the number of ranks, but only after it is imported and initialized; and where its
library is not the one of the launcher, every process is a world of its own.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import NamedTuple

from ..errors import CommunicationError, message

__all__ = ["check_size", "is_started", "label_errors", "local_rank", "rank", "ranks_started"]

# The number of processes: MPICH and its kin, Open MPI, MVAPICH.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
# The same for a step of srun. SLURM_NTASKS is of the job: a job script has it without srun.
_STEP_SIZE, _STEP = "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"
_NO_STEPS = 0xFFFF_FFF0  # numbers of steps from here on are Slurm's own, as that of a job script
# The number of a process among all.
_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK")
_STEP_RANK = "SLURM_PROCID"
# Its number among those of its host, and how many these are.
_LOCAL_RANKS = (
    "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID",
)  # fmt: skip
_LOCAL_SIZES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE")


class _Declared(NamedTuple):
    """The numbers of processes in the environment, by variable."""

    sizes: dict[str, int]
    least: dict[str, int]  # where no variable has the number: a process and those before it


def _numbers(*names: str) -> dict[str, int]:
    texts = {name: os.environ.get(name, "") for name in names}
    return {name: int(text) for name, text in texts.items() if text.isdecimal()}


def _declared() -> _Declared:
    sizes = _numbers(*_SIZES)
    if not sizes and _numbers(_STEP).get(_STEP, 0) < _NO_STEPS:
        sizes = _numbers(_STEP_SIZE)
    if sizes:
        return _Declared(sizes, {})
    least = {name: number + 1 for name, number in _numbers(*_RANKS).items()}
    return _Declared({}, least | _numbers(*_LOCAL_SIZES))


def ranks_started() -> int:
    """Return how many processes a launcher says that it has started; 1 without one.

    Where it numbers them and does not say how many, these are at least as many.
    """
    sizes, least = _declared()
    return max([1, *sizes.values(), *least.values()])


def is_started() -> bool:
    """Return whether a launcher has started this process as one of several, or as one of unknown.

    MPI knows their number then.
    """
    return ranks_started() > 1 or bool(_declared().least)


def rank() -> int | None:
    """Return this process's number among all, None without a launcher."""
    ranks = _numbers(*_RANKS) or _numbers(_STEP_RANK)
    return next(iter(ranks.values()), None)


def local_rank() -> int:
    """Return this process's number among those of its host; 0 without a launcher."""
    return next(iter(_numbers(*_LOCAL_RANKS).values()), 0)


def check_size(size: int, library: str) -> None:
    """Check that MPI has as many ranks as the launcher has started.

    size (int): The number of ranks of MPI's world.
    library (str): What MPI's library says that it is.
    raises CommunicationError: It has another number: the launcher is another MPI's.
    """
    sizes, least = _declared()
    # A launcher within a launcher leaves variables of both, and the world is that of one.
    fits = size in sizes.values() if sizes else size >= max(least.values(), default=1)
    if fits and (size > 1 or max(sizes.values(), default=1) == 1):
        return
    count = ranks_started()
    said = ", ".join(f"{name}={os.environ[name]}" for name in sizes or least)
    srun = _STEP_SIZE in sizes
    usual = "srun --mpi=pmi2 or --mpi=pmix (srun --mpi=list)" if srun else "this library's mpiexec"
    raise CommunicationError(
        message(
            f"the launcher has started {count} processes ({said}), and MPI sees "
            f"{size} rank{'s' if size > 1 else ''}: mpi4py uses another MPI than the launcher",
            need=f"a launcher of {library}",
            hint=f"start it by {usual}, or by magmagraph run -n {count}; set "
            "MAGMAGRAPH_COMMUNICATOR=solo where every process is to work alone",
        )
    )


def label_errors() -> None:
    """Write tracebacks of ranks in one piece each, with the rank before every line.

    Python writes a traceback in pieces, which `mpiexec` mixes with those of other ranks. Nothing is
    changed in a process that is not one of several, that the project's own launcher watches, or
    whose program has a hook of its own.
    """
    number = rank()
    if number is None or "MAGMAGRAPH_LAUNCH" in os.environ or not is_started():
        return
    if sys.excepthook is not sys.__excepthook__:
        return
    owner = os.getpid()

    def write(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if os.getpid() != owner:
            sys.__excepthook__(kind, error, trace)
            return
        import traceback

        lines = "".join(traceback.format_exception(kind, error, trace)).splitlines()
        _write_once("".join(f"[{number}] {line}\n" for line in lines))

    sys.excepthook = write


def _write_once(text: str) -> None:
    """Write to the standard error by one call of the system, where it has a descriptor."""
    if sys.stdout is not None:
        sys.stdout.flush()
    stream = sys.stderr
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError, ValueError):  # replaced by what is no file
        print(text, end="", file=stream, flush=True)
        return
    stream.flush()
    content = text.encode(stream.encoding or "utf-8", "backslashreplace")
    while content:
        content = content[os.write(descriptor, content) :]
