"""Ranks that are threads of one process: for tests, for teaching, for debuggers.

They share no arrays: what a rank gives is copied. A rank that fails ends the waiting of all others,
and nobody waits for longer than a limit.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

import numpy as np

from ...errors import CommunicationError, message
from ...ir.communicator import Communicator, Mesh, Pending, colored, purpose
from ...ir.ranks import using
from ...ops.random.bits import streams_from
from .reducing import reduced
from .worker import Worker

__all__ = ["ThreadRank", "run_threads"]


class _Board:
    """Where the ranks of a group lay down a value each, round by round."""

    def __init__(self, size: int) -> None:
        self.values: list[Any] = [None] * size
        self.there: set[int] = set()
        self.rounds = 0
        self.complete: list[Any] = []


class _World:
    """The state that the threads of a job share."""

    def __init__(self, size: int, limit: float) -> None:
        self.size = size
        self.limit = limit
        self.changed = threading.Condition()
        self.boards: dict[tuple[int, ...], _Board] = {}
        self.sent: dict[tuple[int, int, int], deque[np.ndarray]] = {}
        self.posted: list[tuple[int, int, int, bytes]] = []  # sender, receiver, tag, object
        self.failed: tuple[int, BaseException] | None = None
        self.ended: set[int] = set()  # ranks whose function has returned

    def end(self, rank: int) -> None:
        """Note that a rank will call nothing any more."""
        with self.changed:
            self.ended.add(rank)
            self.changed.notify_all()

    def fail(self, rank: int, error: BaseException) -> None:
        """Note the first failure, and wake up all that wait."""
        with self.changed:
            if self.failed is None:
                self.failed = (rank, error)
            self.changed.notify_all()

    def wait(
        self,
        ready: Callable[[], bool],
        what: Callable[[], str],
        needed: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        """Wait, with the lock held, until something is so; raise if it cannot be any more.

        Parameters
        ----------
        ready
            Whether it is so.
        what
            Says what is waited for.
        needed
            The ranks without which it cannot be.
        """
        end = time.monotonic() + self.limit
        while not ready():
            if self.failed is not None:
                rank, error = self.failed
                raise CommunicationError(
                    message(f"rank {rank} failed: {type(error).__name__}: {error}")
                )
            gone = [rank for rank in needed() if rank in self.ended]
            if gone:
                raise CommunicationError(
                    message(
                        f"{what()}; rank {gone[0]} has ended without it",
                        need="all ranks of a group to call the same collectives in one order",
                        hint="the same calls and distribute= on every rank",
                    )
                )
            left = end - time.monotonic()
            if left <= 0.0:
                raise CommunicationError(
                    message(
                        f"{what()}, for {self.limit:g} s",
                        need="all ranks of a group to call the same collectives in one order",
                    )
                )
            self.changed.wait(left)


class ThreadRank(Communicator):
    """One rank among threads.

    Parameters
    ----------
    world
        What all of them share.
    members
        The ranks of the world that this communicator joins.
    own
        This rank's number in the world.
    worker
        What does this rank's started collectives; None where they are done at once.
    """

    kind = "threads"

    def __init__(
        self, world: _World, members: tuple[int, ...], own: int, worker: Worker | None
    ) -> None:
        super().__init__(members.index(own), len(members))
        self._world = world
        self._members = members
        self._own = own
        self._worker = worker

    def _subset(self, members: tuple[int, ...]) -> Communicator:
        chosen = tuple(self._members[member] for member in members)
        return ThreadRank(self._world, chosen, self._own, self._worker)

    def _meet(self, value: Any, what: str, kind: str | None = None) -> list[Any]:
        """Lay down a value, and return those of all ranks; `kind` (`what`) is equal on them."""
        world = self._world
        with world.changed:
            board = world.boards.setdefault(self._members, _Board(self.size))
            board.values[self.rank] = (kind or what, what, value)
            board.there.add(self.rank)
            mine = board.rounds
            if len(board.there) == self.size:
                board.complete = board.values
                board.values = [None] * self.size
                board.there.clear()
                board.rounds += 1
                world.changed.notify_all()
            else:

                def missing() -> list[int]:
                    return [self._members[i] for i in range(self.size) if i not in board.there]

                def waits() -> str:
                    ranks = missing()
                    return (
                        f"rank {self._own} waits in {what} for rank"
                        f"{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
                    )

                world.wait(lambda: board.rounds > mine, waits, missing)
            laid = board.complete
        for other, (their_kind, theirs, _) in enumerate(laid):
            if their_kind != (kind or what):
                raise CommunicationError(
                    message(
                        f"rank {self._own} is in {what}, rank {self._members[other]} in {theirs}",
                        need="the same collectives, of one shape and dtype, in one order",
                    )
                )
        return [answer for _, _, answer in laid]

    def _arrays(self, name: str, array: Any) -> list[np.ndarray]:
        own = np.array(_host(array))
        return self._meet(own, f"{name} of {own.dtype.name}{list(own.shape)}")

    def allreduce(self, array: Any, op: str, out: Any = None) -> Any:
        """Return the arrays of all ranks joined element by element."""
        return reduced(self._arrays(f"{op} over ranks", array), op, out)

    def allgather(self, array: Any, out: Any = None) -> Any:
        """Return the arrays of all ranks along a new first axis."""
        return np.stack(self._arrays("a gather", array), out=out)

    def reduce_scatter(self, array: Any, op: str, out: Any = None) -> Any:
        """Return this rank's row of the joined arrays."""
        rows = [other[self.rank] for other in self._arrays(f"{op} and scatter", array)]
        return reduced(rows, op, out)

    def broadcast(self, array: Any, root: int, out: Any = None) -> Any:
        """Return the array of one rank."""
        return _into(self._arrays(f"a broadcast from {root}", array)[root], out)

    def alltoall(self, array: Any, out: Any = None) -> Any:
        """Return the rows that the ranks have for this one."""
        arrays = self._arrays("an exchange of rows", array)
        return np.stack([other[self.rank] for other in arrays], out=out)

    def exchange(self, value: Any, what: str = "an exchange of objects") -> list[Any]:
        """Return a Python object of each rank."""
        return self._meet(value, what, purpose(what))

    def send(self, array: Any, to: int, tag: int) -> None:
        """Leave a copy of an array for a rank."""
        world = self._world
        with world.changed:
            place = (self._own, self._members[to], tag)
            world.sent.setdefault(place, deque()).append(np.array(_host(array)))
            world.changed.notify_all()

    def recv(self, out: Any, source: int, tag: int) -> Any:
        """Wait for an array of a rank."""
        world = self._world
        sender = self._members[source]
        with world.changed:
            waiting = world.sent.setdefault((sender, self._own, tag), deque())
            world.wait(
                lambda: bool(waiting),
                lambda: f"rank {self._own} waits for a message of rank {sender}, tag {tag}",
                lambda: (sender,),
            )
            array = waiting.popleft()
        if array.shape != out.shape or array.dtype != out.dtype:
            raise CommunicationError(
                message(
                    f"rank {sender} sent {array.dtype.name}{list(array.shape)} to rank "
                    f"{self._own}, which waits for {out.dtype.name}{list(out.shape)}"
                )
            )
        return _into(array, out)

    def sendrecv(self, array: Any, to: int, out: Any, source: int, tag: int) -> Any:
        """Send an array to one rank while another one's is received."""
        self.send(array, to, tag)
        return self.recv(out, source, tag)

    def post(self, value: Any, to: int, tag: int = 0) -> None:
        """Leave a Python object for a rank."""
        world = self._world
        with world.changed:
            world.posted.append((self._own, self._members[to], tag, pickle.dumps(value)))
            world.changed.notify_all()

    def poll(self, source: int | None = None, tag: int = 0) -> tuple[int, Any] | None:
        """Return a rank and the object that it posted first, or None."""
        world = self._world
        with world.changed:
            if world.failed is not None:
                world.wait(lambda: False, str)
            for place, (sender, receiver, theirs, content) in enumerate(world.posted):
                matches = sender in self._members and receiver == self._own and theirs == tag
                if matches and source in (None, self._members.index(sender)):
                    del world.posted[place]
                    return self._members.index(sender), pickle.loads(content)
        return None

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Return the communicator of the ranks of one colour, in the order of their keys."""
        members = colored(self.exchange((color, key)), color)
        return None if members is None else self._subset(members)

    def start(self, run: Callable[[], object]) -> Pending:
        """Let the worker do it, where there is one."""
        return super().start(run) if self._worker is None else self._worker.start(run)

    @property
    def overlaps(self) -> bool:
        """Whether there is a worker."""
        return self._worker is not None

    def abort(self, cause: BaseException | str) -> None:
        """Wake up all ranks that wait, with the cause."""
        error = CommunicationError(cause) if isinstance(cause, str) else cause
        self._world.fail(self._own, error)


def _host(array: Any) -> np.ndarray:
    if not isinstance(array, (np.ndarray, np.generic)):
        raise TypeError(f"an array of the host is needed, not {type(array).__name__}")
    return np.asarray(array)


def _into(array: np.ndarray, out: Any) -> Any:
    if out is None:
        return array
    np.copyto(out, array)
    return out


def run_threads(
    count: int,
    function: Callable[[], Any],
    *,
    mesh: Mesh | None = None,
    timeout: float = 60.0,
    overlap: bool = False,
) -> list[Any]:
    """Run a function once on each of so many ranks, and return what each returned."""
    world = _World(count, timeout)
    everybody = tuple(range(count))
    results: list[Any] = [None] * count
    workers = [Worker(f"collectives of rank {rank}") for rank in everybody]

    def as_rank(rank: int) -> None:
        worker = workers[rank] if overlap else None
        communicator: Communicator = ThreadRank(world, everybody, rank, worker)
        try:
            if mesh is not None:
                communicator = communicator.arranged(mesh)
            # Every rank counts its random streams from 0, as a process of its own would.
            with using(communicator), streams_from(0):
                results[rank] = function()
            world.end(rank)
        except BaseException as error:  # it is raised in the thread that started the ranks
            world.fail(rank, error)

    ranks = [
        threading.Thread(
            target=copy_context().run, args=(as_rank, rank), name=f"rank {rank}", daemon=True
        )
        for rank in everybody
    ]
    for thread in ranks:
        thread.start()
    try:
        _join(ranks, world)
    finally:
        for worker in workers:
            worker.end()
    if world.failed is not None:
        rank, error = world.failed
        with contextlib.suppress(AttributeError):
            error.add_note(f"raised by rank {rank} of {count}")
        raise error
    return results


def _join(ranks: Sequence[threading.Thread], world: _World) -> None:
    """Wait for all threads; once one has failed, or at the limit, for those alone that end soon."""
    end = time.monotonic() + world.limit + GRACE  # a rank that waits says so first
    for rank, thread in enumerate(ranks):
        while thread.is_alive():
            thread.join(0.05)
            if world.failed is not None:
                end = min(end, time.monotonic() + GRACE)
            if time.monotonic() > end and thread.is_alive():
                if world.failed is None:
                    world.fail(
                        rank,
                        CommunicationError(
                            message(f"rank {rank} has not returned within {world.limit:g} s")
                        ),
                    )
                return


GRACE = 5.0  # seconds that other ranks have to see that one has failed
