"""Many processes: `mg.distributed`.

The same script runs on every rank, under ``mpiexec -n 4 python train.py`` or in threads of one
process (`threads`). Ranks are arranged in a `Mesh`; collectives are operations of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, GraphError, message
from ..help.argument_errors import tell
from ..ir.communicator import Communicator, Group, Mesh
from ..ir.docstrings import documented
from ..ir.ranks import current, settle, using
from ..ops.collective.messages import barrier, recv, send
from ..ops.collective.rows import allgather, alltoall, reduce_scatter
from ..ops.collective.whole import allreduce, broadcast, index, permute
from .data_parallel import DataParallel
from .hybrid import Hybrid
from .pipeline import PipelineParallel
from .tensor import TensorParallel

if TYPE_CHECKING:
    from .cost.costs import Links, Machine
    from .cost.planning import plan
    from .cost.sharing import Sharing
    from .cost.simulator import simulate
    from .launching.launcher import JobError, launch

__all__ = [
    "DataParallel",
    "Hybrid",
    "JobError",
    "Links",
    "Machine",
    "Mesh",
    "PipelineParallel",
    "Sharing",
    "TensorParallel",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "communicator",
    "index",
    "init",
    "launch",
    "permute",
    "plan",
    "rank",
    "recv",
    "reduce_scatter",
    "send",
    "simulate",
    "size",
    "threads",
    "use",
]

@documented
def init(mesh: Mesh | None = None) -> Communicator:
    """Find the other ranks now, and arrange all of them in a mesh.

    Without this call that happens when something first asks for the ranks. All ranks call it with
    the same mesh.

    mesh: With as many ranks as there are; along one axis, ``data``, unless given.
    returns (Communicator): MPI's under ``mpiexec`` or ``srun``, elsewhere that of one rank.
    raises GraphError: The mesh has another number of ranks.
    raises CommunicationError: Several processes were started, and MPI cannot be used.

    See Also
    --------
    use : another mesh for a part of the program.

    >>> mg.distributed.init(mg.distributed.Mesh(data=1))
    <solo communicator, rank 0 of 1, Mesh(data=1)>
    """
    world = current()
    if mesh is not None:
        world = world.arranged(mesh)
        settle(world)
    return world


def communicator() -> Communicator:
    """Return the communicator of all ranks, as this thread sees it.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.distributed.communicator().size
    1
    """
    return current()


@documented
def rank(group: Group = ()) -> int:
    """Return this rank's number, among all or in a group of the mesh.

    group: Names of axes of the mesh; ``()`` means all ranks.

    >>> mg.distributed.threads(3, mg.distributed.rank)
    [0, 1, 2]
    """
    world = current()
    members = world.mesh.members(world.rank, group)
    return members.index(world.rank)


@documented
def size(group: Group = ()) -> int:
    """Return the number of ranks, of all or in a group of the mesh.

    group: Names of axes of the mesh; ``()`` means all ranks.

    >>> mg.distributed.size()
    1
    """
    return current().mesh.extent(group)


@contextmanager
@documented
def use(mesh: Mesh | Communicator) -> Iterator[Communicator]:
    """Arrange the ranks in a mesh for what is built and run inside.

    mesh: With as many ranks as there are; or another communicator.

    >>> def job():
    ...     with mg.distributed.use(mg.distributed.Mesh(data=2, tensor=2)):
    ...         return mg.distributed.rank("data"), mg.distributed.rank("tensor")
    >>> mg.distributed.threads(4, job)
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    chosen = current().arranged(mesh) if isinstance(mesh, Mesh) else mesh
    with using(chosen):
        yield chosen


_MOST_THREADS = 1024  # ranks of one process


@documented
def threads(
    count: int,
    function: Callable[[], Any],
    *,
    mesh: Mesh | None = None,
    timeout: float = 60.0,
    overlap: bool = False,
) -> list[Any]:
    """Run a function on each of several ranks, which are threads of this process.

    For tests, teaching and debugging: all that ranks do can be seen in one process. Graphs, random
    streams (from seed 0) and functions are made by each rank for itself.

    count: How many ranks.
    function: Called without arguments on each.
    mesh: How the ranks are arranged; along one axis, ``data``, unless given.
    timeout: Seconds that a rank waits for others, and that the whole may take.
    overlap: Whether collectives run beside the steps that do not read them.
    returns (list): What the function returned on each rank.
    raises Exception: What the first rank that failed raised, with a note of the rank.
    raises CommunicationError: Ranks do not call the same collectives, or one does not return in
        time.

    >>> mg.distributed.threads(2, lambda: mg.distributed.rank() * 10)
    [0, 10]
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_THREADS:
        raise GraphError(message(f"{count!r} ranks", need=f"a number from 1 to {_MOST_THREADS}"))
    if not callable(function) or not isinstance(overlap, (bool, np.bool_)):
        raise ArgumentError(
            message(f"threads: function={function!r}, overlap={overlap!r}",
                    need="a function, and True or False")
        )  # fmt: skip
    # Here, as a program without ranks is not to wait for this import.
    from ..runtime.comm.threads import run_threads

    return run_threads(count, function, mesh=mesh, timeout=timeout, overlap=overlap)


# What plans a job ahead of it, by module.
_OF_COSTS = {
    "Links": "cost.costs", "Machine": "cost.costs", "Sharing": "cost.sharing",
    "plan": "cost.planning", "simulate": "cost.simulator",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ("JobError", "launch"):  # what ranks themselves need not load
        value = getattr(import_module(".launching.launcher", __name__), name)
    elif name in _OF_COSTS:
        value = getattr(import_module(f".{_OF_COSTS[name]}", __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    tell(globals(), (name,))
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
