"""Ranks that are processes, by MPI. The only file that imports mpi4py.

Python objects go by a communicator of their own, so that no message meets one of another kind.
Values move as bytes; sums of 32 and 64 bits are MPI's own. What MPI cannot add, or adds without a
say on NaN (16-bit floats, maxima of floats), is dealt out, reduced here rank by rank, and gathered.
Ranks of one host sum large arrays through memory that they share.

MPI's waiting is asking again and again, on a core. Where a host has more ranks than cores, the one
that is waited for may not have one, for as long as the system lets those that wait go on: there a
rank sleeps between two looks.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtypes import is_float
from ...errors import CommunicationError, message
from ...ir.communicator import REDUCTIONS, Communicator, Pending, colored, purpose
from ...ir.cores import widest_affinity
from ...ir.launchers import check_size
from ..watch import install, waiting
from .host import Host
from .pending_sends import SENT
from .reducing import narrow, reduced
from .turnstile import BYTES, Turnstile
from .windows import PIECE as SHARED_PIECE
from .windows import REDUNDANT, SharedMemory
from .worker import Worker

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py without an MPI library
    raise CommunicationError(
        message(
            f"this process was started by mpiexec, and MPI cannot be used: {error}",
            hint="pip install 'magmagraph[mpi]', or MAGMAGRAPH_COMMUNICATOR=solo",
        )
    ) from error

__all__ = ["MPI", "MPIRank", "mpi_world"]

PIECE = 8 << 20  # bytes that MPI reduces at once: larger arrays fall out of caches on the way
SHARED = 12 << 10  # bytes from which memory that ranks share is faster than messages
SHARED_MANY = 256 << 10  # the same where they meet twice for each piece
PAUSE = 20e-6  # seconds between two looks, where ranks share cores
FORWARDED = 0.1  # seconds in which mpiexec reads what a rank has written
_OPERATIONS = dict(zip(REDUCTIONS, (MPI.SUM, MPI.MAX, MPI.MIN), strict=True))
_IN_PLACE, _SUM = MPI.IN_PLACE, MPI.SUM
_ADDED = frozenset(map(np.dtype, ("f4", "f8", "i4", "i8", "c8", "c16")))  # whose sums are MPI's
_REDUCING = {op: f"the {op} over ranks" for op in REDUCTIONS}
POSTED = 1  # first tag of objects; exchanges of objects are collective and have none


class _Waiting(waiting):
    """Waiting in a call, which is put into words when somebody asks."""

    __slots__ = ("_array", "_name", "_ranks")

    def __init__(self, name: str, array: Any, ranks: int) -> None:
        self._name, self._array, self._ranks = name, array, ranks
        self._what = self

    def __str__(self) -> str:
        array = self._array
        shape = "" if array is None else f" of {array.dtype.name}{list(array.shape)}"
        return f"{self._name}{shape} on {self._ranks} ranks"


class MPIRank(Communicator):
    """One rank of an MPI job.

    Parameters
    ----------
    data, control
        Two communicators of the same ranks: for arrays, and for Python objects.
    worker
        What does this process's started collectives; None where they are done at once.
    crowded
        Whether a host has more ranks than cores; all ranks say the same.
    """

    kind = "MPI"
    _xp: Any = np  # what arrays are made by

    def __init__(
        self, data: Any, control: Any, worker: Worker | None = None, crowded: bool = False
    ) -> None:
        super().__init__(data.Get_rank(), data.Get_size())
        self._crowded = crowded
        self._data = data
        self._control = control
        self._worker = worker
        self._shared: SharedMemory | None = None
        self._turnstile: Turnstile | None = None
        self._one_host: bool | None = None
        self._share_from = SHARED if self.size <= REDUNDANT else SHARED_MANY

    def _subset(self, members: tuple[int, ...]) -> Communicator:
        chosen = self._data.Get_group().Incl(list(members))
        return MPIRank(
            self._data.Create_group(chosen, 1),
            self._control.Create_group(chosen, 2),
            self._worker,
            self._crowded,
        )

    def _all(self, name: str, *operands: Any) -> None:
        """Call a collective of MPI, by the name of its blocking form; return when it is done."""
        self._ready()
        if not self._crowded:
            getattr(self._data, name)(*operands)
            return
        self._done(getattr(self._data, f"I{name[0].lower()}{name[1:]}")(*operands))

    def _given(self, array: Any) -> Any:
        """Return an operand as MPI takes it."""
        return _contiguous(array)

    def _ready(self) -> None:
        """Wait until operands are ready: those on the host always are."""

    def _done(self, request: Any) -> None:
        while not request.Test():
            time.sleep(PAUSE)

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Return the communicator of the ranks of one colour, in the order of their keys."""
        members = colored(self.exchange((color, key)), color)
        return None if members is None else self._subset(members)

    # ---- Reductions

    def allreduce(self, array: Any, op: str, out: Any = None) -> Any:
        """Return the arrays of all ranks joined element by element."""
        sent = _contiguous(array)
        target = np.empty_like(sent) if out is None else out
        with _Waiting(_REDUCING[op], sent, self.size):
            if op == "sum" and sent.nbytes < self._share_from and sent.dtype in _ADDED:
                own = _IN_PLACE if target is sent else sent
                if self._crowded:
                    self._done(self._data.Iallreduce(own, target, _SUM))
                else:
                    self._data.Allreduce(own, target, _SUM)  # short: each line counts
            elif self.size == 1:
                np.copyto(target, sent)
            elif sent.nbytes >= self._share_from and self._on_one_host():
                self._through_memory([sent], op, [target])
            elif _by_hand(sent.dtype, op):
                self._dealt_out(sent, op, target)
            else:
                self._by_mpi(sent, op, target)
        return target

    def allreduce_many(self, arrays: Sequence[Any], op: str, outs: Sequence[Any]) -> None:
        """Reduce several arrays of one dtype in one go; through shared memory without packing."""
        total = sum(array.nbytes for array in arrays)
        if self.size == 1 or total < self._share_from or not self._on_one_host():
            super().allreduce_many(arrays, op, outs)
            return
        with self._waiting(f"the {op} over ranks of {len(arrays)} arrays", None):
            self._through_memory([_contiguous(array) for array in arrays], op, outs)

    def _by_mpi(self, sent: np.ndarray, op: str, target: np.ndarray) -> None:
        source, flat = sent.reshape(-1), target.reshape(-1)
        step = max(1, PIECE // flat.itemsize)
        for low in range(0, flat.size, step):
            part = flat[low : low + step]
            own = _IN_PLACE if target is sent else source[low : low + step]
            self._all("Allreduce", own, part, _OPERATIONS[op])

    def _dealt_out(self, sent: np.ndarray, op: str, target: np.ndarray) -> None:
        """Give each rank a part of all arrays, which it reduces, and gather the parts."""
        size = self.size
        part = -(-sent.size // size)
        rows = np.zeros((size, part), sent.dtype)
        rows.reshape(-1)[: sent.size] = sent.reshape(-1)
        arrived = np.empty_like(rows)
        self._all("Alltoall", _bytes(rows), _bytes(arrived))
        own = reduced(list(arrived), op)
        self._all("Allgather", _bytes(own), _bytes(rows))
        target.reshape(-1)[...] = rows.reshape(-1)[: sent.size]

    def _through_memory(
        self, arrays: Sequence[np.ndarray], op: str, targets: Sequence[np.ndarray]
    ) -> None:
        if self._shared is None:
            window = MPI.Win.Allocate_shared(2 * SHARED_PIECE, 1, MPI.INFO_NULL, self._data)
            self._shared = SharedMemory(self._data, window, lambda: self._all("Barrier"))
        self._shared.reduce(arrays, op, targets)

    def _on_one_host(self) -> bool:
        """Return whether all ranks can share memory; found out once, by all together."""
        if self._one_host is None:
            local = self._data.Split_type(MPI.COMM_TYPE_SHARED)
            here = local.Get_size() == self.size
            local.Free()
            self._one_host = bool(self._data.allreduce(here, MPI.LAND))
        return self._one_host

    def reduce_scatter(self, array: Any, op: str, out: Any = None) -> Any:
        """Return this rank's row of the joined arrays."""
        sent = _contiguous(array)
        target = np.empty(sent.shape[1:], sent.dtype) if out is None else out
        with self._waiting(f"the {op} and scatter", sent):
            if self.size == 1 or _by_hand(sent.dtype, op) or not sent.size:
                arrived = np.empty_like(sent)
                self._all("Alltoall", _bytes(sent), _bytes(arrived))
                reduced(list(arrived), op, target)
            else:
                self._all("Reduce_scatter_block", sent, target, _OPERATIONS[op])
        return target

    # ---- Values that move

    def allgather(self, array: Any, out: Any = None) -> Any:
        """Return the arrays of all ranks along a new first axis."""
        sent = self._given(array)
        target = self._xp.empty((self.size, *sent.shape), sent.dtype) if out is None else out
        with self._waiting("a gather", sent):
            self._all("Allgather", _bytes(sent), _bytes(target))
        return target

    def broadcast(self, array: Any, root: int, out: Any = None) -> Any:
        """Return the array of one rank."""
        sent = self._given(array)
        target = self._xp.empty_like(sent) if out is None else out
        if self.rank == root and target is not sent:
            target[...] = sent
        with self._waiting(f"a broadcast from {root}", sent):
            self._all("Bcast", _bytes(target), root)
        return target

    def alltoall(self, array: Any, out: Any = None) -> Any:
        """Return the rows that the ranks have for this one."""
        sent = self._given(array)
        target = self._xp.empty_like(sent) if out is None else out
        with self._waiting("an exchange of rows", sent):
            own = sent.copy() if target is sent else sent
            self._all("Alltoall", _bytes(own), _bytes(target))
        return target

    def send(self, array: Any, to: int, tag: int) -> None:
        """Send a copy of an array to a rank, without waiting for it."""
        kept = self._given(array).copy()
        SENT.reap()
        self._ready()
        SENT.add(self._data.Isend(_bytes(kept), to, tag), kept)

    def recv(self, out: Any, source: int, tag: int) -> Any:
        """Wait for an array of a rank."""
        self._given(out)  # MPI would take a device's address, and write there
        with self._waiting(f"a message of rank {source}, tag {tag},", out):
            self._ready()
            status = MPI.Status()
            if self._crowded:
                while not self._data.Iprobe(source, tag, status):
                    time.sleep(PAUSE)
            else:
                self._data.Probe(source, tag, status)
            count = status.Get_count(MPI.BYTE)
            if count != out.nbytes:
                raise CommunicationError(
                    message(
                        f"rank {source} sent {count} bytes to rank {self.rank}, which waits for "
                        f"{out.dtype.name}{list(out.shape)}, {out.nbytes} bytes"
                    )
                )
            self._data.Recv(_bytes(out), source, tag)
        SENT.reap()
        return out

    def sendrecv(self, array: Any, to: int, out: Any, source: int, tag: int) -> Any:
        """Send an array to one rank while another one's is received."""
        own = self._given(array)
        self._given(out)
        with self._waiting(f"a message of rank {source}", out):
            kept = own.copy() if out is array else own
            self._ready()
            if self._crowded:
                sent = self._data.Isend(_bytes(kept), to, tag)
                self._done(self._data.Irecv(_bytes(out), source, tag))
                self._done(sent)
            else:
                self._data.Sendrecv(_bytes(kept), to, tag, _bytes(out), source, tag)
        return out

    # ---- Objects

    def exchange(self, value: Any, what: str = "an exchange of objects") -> list[Any]:
        """Return a Python object of each rank."""
        with self._waiting(what, None):
            answers = self._control.allgather((what, value))
        for rank, (theirs, _) in enumerate(answers):
            if purpose(theirs) != purpose(what):
                raise CommunicationError(
                    message(
                        f"rank {self.rank} is in {what}, rank {rank} in {theirs}",
                        need="the same calls on all ranks, in one order",
                        hint="the same functions with the same distribute= on every rank",
                    )
                )
        return [answer for _, answer in answers]

    def agree(self, failure: Any, what: str) -> list[Any] | None:
        """Return the failure of each rank, or None where none failed."""
        failed = failure is not None
        if self._turnstile is not None:
            failed = self._turnstile.meet(failed, _Waiting(what, None, self.size))
        else:
            with self._waiting(what, None):
                if self._on_one_host():
                    self._turnstile = self._made_turnstile()
                    failed = self._turnstile.meet(failed, what)
                else:
                    any_failed = np.array([failed], np.int32)
                    self._all("Allreduce", _IN_PLACE, any_failed, MPI.MAX)
                    failed = bool(any_failed[0])
        return self.exchange(failure, f"the causes of a failure in {what}") if failed else None

    def _made_turnstile(self) -> Turnstile:
        window = MPI.Win.Allocate_shared(BYTES, 1, MPI.INFO_NULL, self._data)
        shared: list[Any] = [window.Shared_query(rank)[0] for rank in range(self.size)]
        arrays: list[Any] = [np.frombuffer(memory, np.int64) for memory in shared]
        words = [memoryview(array) for array in arrays]
        words[self.rank][0] = words[self.rank][1] = 0
        self._all("Barrier")
        return Turnstile(window, words, self.rank, PAUSE if self._crowded else 0.0)

    def barrier(self) -> None:
        """Return when all ranks have come here."""
        with self._waiting("a barrier", None):
            self._all("Barrier")

    def post(self, value: Any, to: int, tag: int = 0) -> None:
        """Send a Python object to a rank, without waiting for it to be taken."""
        SENT.reap()
        kept = bytearray(pickle.dumps(value))
        request = self._control.Isend([kept, MPI.BYTE], to, POSTED + tag)
        SENT.add(request, kept)

    def poll(self, source: int | None = None, tag: int = 0) -> tuple[int, Any] | None:
        """Return a rank and the object that it posted first, or None."""
        SENT.reap()
        status = MPI.Status()
        sender = MPI.ANY_SOURCE if source is None else source
        arrived = self._control.Improbe(sender, POSTED + tag, status)
        if arrived is None:
            return None
        buffer = bytearray(status.Get_count(MPI.BYTE))
        arrived.Recv([buffer, MPI.BYTE])
        return int(status.Get_source()), pickle.loads(buffer)

    # ---- Beside other work, and the end

    def start(self, run: Callable[[], object]) -> Pending:
        """Let the worker do it, where there is one."""
        return super().start(run) if self._worker is None else self._worker.start(run)

    @property
    def overlaps(self) -> bool:
        """Whether there is a worker."""
        return self._worker is not None

    def abort(self, cause: BaseException | str) -> None:
        """End the job, as soon as mpiexec has had time to pass the cause on: later it does not."""
        text = cause if isinstance(cause, str) else f"{type(cause).__name__}: {cause}"
        sys.stdout.flush()
        print(f"magmagraph: rank {self.rank} of {self.size}: {text}", file=sys.stderr, flush=True)
        time.sleep(FORWARDED)
        MPI.COMM_WORLD.Abort(1)

    def _waiting(self, name: str, array: Any) -> waiting:
        return _Waiting(name, array, self.size)


def _by_hand(dtype: np.dtype, op: str) -> bool:
    """Return whether MPI does not have a reduction, or not NumPy's."""
    return narrow(dtype) or (op != "sum" and is_float(dtype))


def _contiguous(array: Any) -> np.ndarray:
    if type(array) is np.ndarray and array.flags.c_contiguous:
        return array
    if not isinstance(array, (np.ndarray, np.generic)):
        raise TypeError(f"an array of the host is needed, not {type(array).__name__}")
    return np.asarray(array, order="C")


def _bytes(array: np.ndarray) -> list[Any]:
    """Return an array as MPI takes memory: its bytes."""
    return [array.reshape(-1).view(np.uint8), MPI.BYTE]


def mpi_world(overlap: bool, host: Host | None = None) -> Communicator:
    """Return the communicator of all processes of the job.

    Parameters
    ----------
    overlap
        Whether started collectives run in a thread of their own.
    host
        Where all ranks run, if that is one host.

    Raises
    ------
    CommunicationError
        MPI has another number of ranks than the launcher has started.
    """
    world = MPI.COMM_WORLD
    if host is not None:
        world.Barrier()
        host.forget()
    install(world.Get_rank(), world.Get_size(), world.Abort, host)
    check_size(world.Get_size(), MPI.Get_library_version().partition("\n")[0].strip("\0 "))
    able = overlap and MPI.Query_thread() == MPI.THREAD_MULTIPLE
    worker = Worker("collectives") if able else None
    local = world.Split_type(MPI.COMM_TYPE_SHARED)
    # All wait in one way: MPI does not pair the two forms of a collective.
    crowded = bool(world.allreduce(local.Get_size() > widest_affinity(), MPI.LOR))
    local.Free()
    return MPIRank(world.Dup(), world.Dup(), worker, crowded)
