"""The protocol of communicators: ranks in a mesh, and the collectives that they call.

`runtime.comm` implements it for one rank, for threads of one process and for MPI; `ranks` knows
the current communicator.
"""

from __future__ import annotations

import abc
import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import GraphError, message
from .docstrings import documented

__all__ = ["REDUCTIONS", "Communicator", "Mesh", "Pending", "purpose"]

REDUCTIONS = ("sum", "max", "min")

Group = str | Sequence[str]


@documented
class Mesh:
    """Ranks arranged in a grid, whose axes have names.

    Rank numbers run through the grid in row-major order: the last axis changes fastest.

    **axes (int): The extent of each axis, at least 1; their product is the number of ranks.
    raises GraphError: An extent is not a positive int, or there is no axis.

    Examples
    --------
    >>> mesh = Mesh(data=2, tensor=3)
    >>> mesh.size, mesh.extent("tensor"), mesh.extent(())
    (6, 3, 6)
    >>> mesh.position(4)
    {'data': 1, 'tensor': 1}
    >>> mesh.members(4, ("tensor",)), mesh.members(4, ("data",))
    ((3, 4, 5), (1, 4))
    """

    __slots__ = ("axes",)

    def __init__(self, **axes: int) -> None:
        for name, extent in axes.items():
            if isinstance(extent, bool) or not isinstance(extent, (int, np.integer)) or extent < 1:
                raise GraphError(
                    message(f"the mesh axis {name}={extent!r}", need="a positive number of ranks")
                )
        if not axes:
            raise GraphError(
                message("a mesh without axes", hint="mg.distributed.Mesh(data=4, tensor=2)")
            )
        self.axes: dict[str, int] = {name: int(extent) for name, extent in axes.items()}

    @property
    def size(self) -> int:
        """Number of ranks."""
        return math.prod(self.axes.values())

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the axes, in order."""
        return tuple(self.axes.values())

    def group(self, axes: Group) -> tuple[str, ...]:
        """Return names of axes in the mesh's order; all of them are ``()``.

        Raises
        ------
        GraphError
            There is no such axis, or one is named twice.
        """
        several = isinstance(axes, Sequence) and not isinstance(axes, str)
        names = tuple(axes) if several else (axes,)
        for name in names:
            if not isinstance(name, str) or name not in self.axes or names.count(name) > 1:
                raise GraphError(
                    message(
                        f"group={axes!r} names {name!r}"
                        + (" twice" if names.count(name) > 1 else ""),
                        need=f"axes of the mesh: {', '.join(self.axes)}",
                        hint="mg.distributed.Mesh(...) names them, and () means all ranks",
                    )
                )
        if len(names) == len(self.axes):
            return ()
        return tuple(name for name in self.axes if name in names)

    def extent(self, axes: Group) -> int:
        """Return the number of ranks that differ in these axes alone."""
        names = self.group(axes) or tuple(self.axes)
        return math.prod(self.axes[name] for name in names)

    def position(self, rank: int) -> dict[str, int]:
        """Return the position of a rank along each axis."""
        places = np.unravel_index(rank, self.shape)
        return {name: int(place) for name, place in zip(self.axes, places, strict=True)}

    def members(self, rank: int, axes: Group) -> tuple[int, ...]:
        """Return the ranks, in order, that differ from one in these axes alone."""
        names = self.group(axes) or tuple(self.axes)
        own = self.position(rank)
        ranks = np.arange(self.size).reshape(self.shape)
        place = tuple(slice(None) if name in names else own[name] for name in self.axes)
        return tuple(int(other) for other in ranks[place].ravel())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and list(self.axes.items()) == list(other.axes.items())

    def __hash__(self) -> int:
        return hash(tuple(self.axes.items()))

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{name}={extent}' for name, extent in self.axes.items())})"


class Pending(abc.ABC):
    """A collective that was started."""

    @abc.abstractmethod
    def wait(self) -> None:
        """Wait until it is done; raise its error, if any."""


class Communicator(abc.ABC):
    """Some ranks of a job, seen from one of them.

    All ranks of a communicator call the same methods in the same order. Arrays are NumPy's, C
    contiguous, of equal shape and dtype on all ranks; a result is written into `out` where that is
    given, which may be the operand itself. Reductions give the same bits on all ranks; those of
    16-bit floats are made in float32 and rounded once.

    rank: This rank's number.
    size: Number of ranks.
    kind: What carries the messages, in a word.
    """

    kind = "none"

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self._mesh: Mesh | None = None
        self._groups: dict[tuple[str, ...], Communicator] = {}
        self._arranged: dict[Mesh, Communicator] = {}  # the same ranks in each mesh that was asked

    # ---- How ranks are arranged

    @property
    def mesh(self) -> Mesh:
        """How the ranks are arranged: along one axis, ``data``, unless said."""
        if self._mesh is None:
            self._mesh = Mesh(data=self.size)
        return self._mesh

    def arranged(self, mesh: Mesh) -> Communicator:
        """Return this communicator with its ranks arranged in a mesh.

        raises GraphError: The mesh has another number of ranks.
        """
        if mesh.size != self.size:
            raise GraphError(
                message(
                    f"{mesh!r} arranges {mesh.size} ranks, and there {_are(self.size)}",
                    need=f"a mesh of {self.size}",
                    hint=f"mpiexec -n {mesh.size} python ...",
                )
            )
        if mesh not in self._arranged:
            copied = copy.copy(self)
            copied._mesh, copied._groups = mesh, {}
            self._arranged[mesh] = copied
        return self._arranged[mesh]

    def group(self, axes: Group) -> Communicator:
        """Return the communicator of the ranks that differ from this one in some axes alone."""
        if axes == ():
            return self
        names = self.mesh.group(axes)
        if not names:
            return self
        subset = self._groups.get(names)
        if subset is None:
            members = self.mesh.members(self.rank, names)
            subset = self._subset(members)
            subset._mesh = Mesh(**{name: self.mesh.axes[name] for name in names})
            self._groups[names] = subset
        return subset

    def subset(self, members: Sequence[int]) -> Communicator:
        """Return the communicator of some ranks, in their order; they alone call it.

        raises GraphError: A rank is named twice or does not exist, or this one is not among them.
        """
        chosen = tuple(members)
        if len(set(chosen)) < len(chosen) or not {self.rank} <= set(chosen) <= {*range(self.size)}:
            raise GraphError(
                message(
                    f"rank {self.rank} of {self.size} asks for the communicator of {chosen}",
                    need="different ranks, this one among them",
                )
            )
        return self._subset(chosen)

    @abc.abstractmethod
    def _subset(self, members: tuple[int, ...]) -> Communicator:
        """Return the communicator of some ranks, this one among them; they alone call it."""

    # ---- What they say

    @abc.abstractmethod
    def allreduce(self, array: Any, op: str, out: Any = None) -> Any:
        """Return the elementwise sum, maximum or minimum (`op`) of all ranks' arrays."""

    @abc.abstractmethod
    def allgather(self, array: Any, out: Any = None) -> Any:
        """Return all ranks' arrays along a new first axis."""

    @abc.abstractmethod
    def reduce_scatter(self, array: Any, op: str, out: Any = None) -> Any:
        """Return this rank's row of the reduced arrays, whose first extent is `size`."""

    @abc.abstractmethod
    def broadcast(self, array: Any, root: int, out: Any = None) -> Any:
        """Return the array of one rank; those of the others tell shape and dtype only."""

    @abc.abstractmethod
    def alltoall(self, array: Any, out: Any = None) -> Any:
        """Return the rows that the ranks have for this one; row i of an array is for rank i."""

    @abc.abstractmethod
    def send(self, array: Any, to: int, tag: int) -> None:
        """Send an array to a rank; it may be changed when this returns."""

    @abc.abstractmethod
    def recv(self, out: Any, source: int, tag: int) -> Any:
        """Wait for an array of a rank, and return it in `out`."""

    @abc.abstractmethod
    def sendrecv(self, array: Any, to: int, out: Any, source: int, tag: int) -> Any:
        """Send an array to one rank while another one's is received."""

    @abc.abstractmethod
    def exchange(self, value: Any, what: str = "an exchange of objects") -> list[Any]:
        """Return a small Python object of each rank; `what` names its purpose in messages."""

    def agree(self, failure: Any, what: str) -> list[Any] | None:
        """Meet all ranks, of which some may have failed; return what each says, None if none has.

        failure: What has failed on this rank, a small Python object; None where nothing has.
        what: Says to people where ranks meet.
        """
        failures = self.exchange(failure, what)
        return None if all(failed is None for failed in failures) else failures

    @abc.abstractmethod
    def post(self, value: Any, to: int, tag: int = 0) -> None:
        """Send a Python object to a rank, without waiting for it to be taken."""

    @abc.abstractmethod
    def poll(self, source: int | None = None, tag: int = 0) -> tuple[int, Any] | None:
        """Return a rank and the object that it posted, or None where nothing has come yet."""

    @abc.abstractmethod
    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Return the communicator of all ranks of one colour, in the order of key and rank.

        None for those whose colour is None. All ranks call it.
        """

    def allreduce_many(self, arrays: Sequence[Any], op: str, outs: Sequence[Any]) -> None:
        """Reduce several arrays of one dtype in one go, into as many others."""
        flat = np.empty(sum(array.size for array in arrays), arrays[0].dtype)
        at = 0
        for array in arrays:
            flat[at : at + array.size] = array.reshape(-1)
            at += array.size
        self.allreduce(flat, op, flat)
        at = 0
        for out in outs:
            out[...] = flat[at : at + out.size].reshape(out.shape)
            at += out.size

    def barrier(self) -> None:
        """Return when all ranks have come here."""
        self.exchange(None, "a barrier")

    def permute(self, array: Any, shift: int, out: Any = None) -> Any:
        """Return the array of the rank `shift` places before, around a ring."""
        shift %= self.size
        target = np.empty_like(array) if out is None else out
        if shift == 0:
            if target is not array:
                np.copyto(target, array)
            return target
        to, source = (self.rank + shift) % self.size, (self.rank - shift) % self.size
        return self.sendrecv(array, to, target, source, RING_TAG)

    def reduce(self, array: Any, root: int, out: Any = None) -> Any:
        """Return the sum of all ranks' arrays on one rank, which all others send to.

        What the others get has no meaning. Sums of 16-bit floats are made in float32.
        """
        target = np.empty_like(array) if out is None else out
        if self.rank != root:
            self.send(array, root, SERVER_TAG)
            return target
        wide = array.dtype.itemsize < 4 and array.dtype.kind not in "iub"
        total = array.astype(np.float32) if wide else array.copy()
        part = np.empty_like(array)
        for source in range(self.size):
            if source != root:
                total += self.recv(part, source, SERVER_TAG)
        target[...] = total
        return target

    def from_first(self, value: Any, what: str = "an exchange of objects") -> Any:
        """Return a small Python object of rank 0."""
        return self.exchange(value if self.rank == 0 else None, what)[0]

    # ---- Beside other work

    def start(self, run: Callable[[], object]) -> Pending:
        """Start a function that calls this communicator's methods; starts end in order."""
        run()
        return DONE

    @property
    def overlaps(self) -> bool:
        """Whether started functions overlap with other work."""
        return False

    @abc.abstractmethod
    def abort(self, cause: BaseException | str) -> None:
        """End the work of all ranks, with a cause."""

    def __repr__(self) -> str:
        return f"<{self.kind} communicator, rank {self.rank} of {self.size}, {self.mesh!r}>"


def purpose(what: str) -> str:
    """Return what an exchange is for: on all ranks the same, where roles' functions are not.

    Examples
    --------
    >>> purpose("making the plan of server") == purpose("making the plan of worker")
    True
    """
    before, _, after = what.rpartition(" of ")
    return before or after


def colored(colors: Sequence[tuple[int | None, int]], color: int | None) -> tuple[int, ...] | None:
    """Return the ranks of a colour, in the order of their keys; None of no colour.

    Examples
    --------
    >>> colored([(0, 1), (1, 0), (0, 0)], 0)
    (2, 0)
    """
    if color is None:
        return None
    ranks = [rank for rank, (theirs, _) in enumerate(colors) if theirs == color]
    return tuple(sorted(ranks, key=lambda rank: (colors[rank][1], rank)))


def _are(count: int) -> str:
    return "is 1" if count == 1 else f"are {count}"


class _Done(Pending):
    def wait(self) -> None:
        return


DONE: Pending = _Done()
RING_TAG = 1 << 14  # of messages that are no `send`: users' tags are below
SERVER_TAG = RING_TAG + 1
