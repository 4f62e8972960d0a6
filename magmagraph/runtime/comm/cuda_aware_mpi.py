"""Ranks that are processes with a device each, by an MPI library that takes addresses of devices.

Values move as bytes from one device's memory to another's, as MPI finds best. MPI reads and writes
them outside of streams: what is queued on the current one is waited for first, so that none of this
can be captured in a graph. Reductions are made on the device, from the first rank to the last:
libraries that take addresses of devices copy such operands to the host, one by one, and add there,
and none adds 16-bit floats or has a say on NaN.
"""

from __future__ import annotations

import contextlib
import faulthandler
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...ir.communicator import SERVER_TAG, Communicator, Mesh
from ..watch import timeout
from .mpi import MPI, MPIRank
from .pending_sends import SENT
from .reducing import FUNCTIONS, narrow

__all__ = ["AwareRank", "tried"]

WHOLE = 64 << 10  # bytes up to which ranks exchange arrays whole: two messages cost more than bytes
TRIAL = 20.0  # seconds that a first message between devices may take
_TRIED = (3, 1 << 18)  # elements of float32 that go at once, and that MPI first asks for
_SUM_TAG = SERVER_TAG + 1  # of arrays that two ranks exchange to join them


class AwareRank(MPIRank):
    """One rank of an MPI job, with its device.

    Parameters
    ----------
    host
        The same ranks on the host.
    cupy
        CuPy, or what has its functions.
    """

    kind = "CUDA-aware MPI"

    def __init__(self, host: MPIRank, cupy: Any) -> None:
        super().__init__(host._data, host._control, host._worker, host._crowded)
        self.host, self._xp = host, cupy
        self._mesh = host.mesh

    def arranged(self, mesh: Mesh) -> Communicator:
        """Return this communicator with its ranks arranged in a mesh."""
        return self._of(self.host.arranged(mesh))

    def group(self, axes: Any) -> Communicator:
        """Return the communicator of the ranks that differ from this one in some axes alone."""
        names = self.mesh.group(axes)
        if not names:
            return self
        if names not in self._groups:
            self._groups[names] = self._of(self.host.group(names))
        return self._groups[names]

    def _subset(self, members: tuple[int, ...]) -> Communicator:
        return self._of(self.host._subset(members))

    def _of(self, host: Communicator) -> AwareRank:
        assert isinstance(host, MPIRank)
        return AwareRank(host, self._xp)

    # ---- Operands

    def _given(self, array: Any) -> Any:
        return array if array.flags.c_contiguous else self._xp.ascontiguousarray(array)

    def _ready(self) -> None:
        self._xp.cuda.get_current_stream().synchronize()

    # ---- Reductions

    def allreduce(self, array: Any, op: str, out: Any = None) -> Any:
        """Return the arrays of all ranks joined element by element."""
        sent = self._given(array)
        target = self._xp.empty_like(sent) if out is None else out
        with self._waiting(f"the {op} over ranks", sent):
            if self.size == 1:
                target[...] = sent
            elif self.size == 2:
                self._with_other(sent, op, target)
            elif sent.nbytes <= WHOLE:
                self._join(self.allgather(sent), op, target)
            else:
                self._in_parts(sent, op, target)
        return target

    def allreduce_many(self, arrays: Sequence[Any], op: str, outs: Sequence[Any]) -> None:
        """Reduce several arrays of one dtype in one go, side by side."""
        flat = self._xp.concatenate([array.reshape(-1) for array in arrays])
        self.allreduce(flat, op, flat)
        at = 0
        for out in outs:
            out[...] = flat[at : at + out.size].reshape(out.shape)
            at += out.size

    def reduce_scatter(self, array: Any, op: str, out: Any = None) -> Any:
        """Return this rank's row of the joined arrays."""
        target = self._xp.empty(array.shape[1:], array.dtype) if out is None else out
        with self._waiting(f"the {op} and scatter", array):
            self._join(self.alltoall(array), op, target)
        return target

    def reduce(self, array: Any, root: int, out: Any = None) -> Any:
        """Return the sum of all ranks' arrays on one rank, which all others send to."""
        target = self._xp.empty_like(array) if out is None else out
        if self.rank != root:
            self.send(array, root, SERVER_TAG)
            return target
        parts = [array]
        for source in range(self.size):
            if source != root:
                theirs = self._xp.empty_like(array)
                parts.append(self.recv(theirs, source, SERVER_TAG))
        self._join(parts, "sum", target)
        return target

    def permute(self, array: Any, shift: int, out: Any = None) -> Any:
        """Return the array of the rank `shift` places before, around a ring."""
        target = self._xp.empty_like(array) if out is None else out
        return super().permute(array, shift, target)

    def _with_other(self, sent: Any, op: str, target: Any) -> None:
        """Join the arrays of two ranks, each of which sends its own."""
        theirs = self._xp.empty_like(sent)
        other = 1 - self.rank
        self.sendrecv(sent, other, theirs, other, _SUM_TAG)
        self._join([sent, theirs] if self.rank == 0 else [theirs, sent], op, target)

    def _in_parts(self, sent: Any, op: str, target: Any) -> None:
        """Give each rank a part of all arrays, which it joins, and gather the parts."""
        xp, size, count = self._xp, self.size, sent.size
        part = -(-count // size)
        if part * size == count:
            rows, whole = sent.reshape(size, part), target.reshape(size, part)
        else:
            rows = whole = xp.zeros((size, part), sent.dtype)
            rows.reshape(-1)[:count] = sent.reshape(-1)
        own = xp.empty(part, sent.dtype)
        self._join(self.alltoall(rows), op, own)
        self.allgather(own, whole)
        if part * size != count:
            target.reshape(-1)[...] = whole.reshape(-1)[:count]

    def _join(self, parts: Sequence[Any], op: str, target: Any) -> None:
        """Join arrays element by element, from the first to the last; two may be the target."""
        function = getattr(self._xp, FUNCTIONS[op].__name__)
        if narrow(target.dtype):
            total = self._xp.asarray(parts[0].astype(np.float32))  # a row may be a scalar
            for part in parts[1:]:
                function(total, part.astype(np.float32), out=total)
            target[...] = total.astype(target.dtype)
        elif len(parts) == 1:
            target[...] = parts[0]
        else:
            function(parts[0], parts[1], out=target)
            for part in parts[2:]:
                function(target, part, out=target)


# ---- The first use


def tried(host: Communicator, cupy: Any) -> tuple[AwareRank | None, str]:
    """Return ranks that MPI carries arrays of devices between, or None, and what went wrong.

    All ranks call it, each with its device as the current one. What a library claims is tried:
    messages around the ring, short and long, within a bounded time, and then collectives. A library
    that takes such an address for the host's ends the process, which writes where.

    Parameters
    ----------
    host
        The ranks.
    cupy
        CuPy.
    """
    if not isinstance(host, MPIRank):
        return None, f"the ranks are of another kind ({host.kind})"
    ranks = AwareRank(host, cupy)
    for what, check in (("a message", _around), ("a collective", _together)):
        failure = ""
        try:
            with _traced(), host._waiting("the trial of MPI with addresses of devices", None):
                check(ranks)
        except Exception as error:  # whatever MPI and CuPy raise
            failure = f"{type(error).__name__}: {error}"
        failures = host.exchange(failure, "the trial of MPI with addresses of devices")
        for rank, reason in enumerate(failures):
            if reason:
                return None, f"{what} of MPI between devices failed on rank {rank} ({reason})"
    return ranks, ""


@contextlib.contextmanager
def _traced() -> Iterator[None]:
    """Write where the process is should it be ended for an address."""
    begun = False
    if not faulthandler.is_enabled():
        with contextlib.suppress(Exception):  # standard error is no file
            faulthandler.enable()
            begun = True
    try:
        yield
    finally:
        if begun:
            faulthandler.disable()


def _values(rank: int, count: int) -> np.ndarray:
    """Return the values that a rank sends: integers that differ between all ranks."""
    return (np.arange(count, dtype=np.float32) + 7 * rank) % 101 + rank


def _around(ranks: AwareRank) -> None:
    """Send arrays to the next rank; raise where they do not come, or come as something else."""
    xp, rank, size = ranks._xp, ranks.rank, ranks.size
    line = ranks._data.Dup()  # what does not come stays there
    limit = time.monotonic() + min(TRIAL, timeout())
    arrived = []
    for tag, count in enumerate(_TRIED):
        sent, received = xp.asarray(_values(rank, count)), xp.zeros(count, np.float32)
        ranks._ready()
        requests = [
            line.Irecv([received.view(np.uint8), MPI.BYTE], (rank - 1) % size, tag),
            line.Isend([sent.view(np.uint8), MPI.BYTE], (rank + 1) % size, tag),
        ]
        while not MPI.Request.Testall(requests):
            if time.monotonic() > limit:
                for request in requests:
                    SENT.add(request, (line, sent, received))  # it may be written to yet
                raise TimeoutError(f"{sent.nbytes} bytes have not come")
            time.sleep(0)
        arrived.append(received)
    for received in arrived:
        _compare(xp, received, _values((rank - 1) % size, received.size))
    line.Free()


def _together(ranks: AwareRank) -> None:
    """Sum, gather and exchange arrays; raise where a result is wrong."""
    xp, size = ranks._xp, ranks.size
    results = []
    for count in (size, size * _TRIED[-1]):
        each = [_values(rank, count) for rank in range(size)]
        own = xp.asarray(each[ranks.rank])
        rows = np.stack(each).reshape(size, size, -1)[:, ranks.rank]
        results += [
            (ranks.allreduce(own, "sum"), np.sum(each, axis=0)),
            (ranks.allgather(own), np.stack(each)),
            (ranks.alltoall(own.reshape(size, -1)), rows),
            (ranks.broadcast(own, size - 1), each[-1]),
        ]
    for result, expected in results:
        _compare(xp, result, expected)


def _compare(xp: Any, actual: Any, expected: np.ndarray) -> None:
    wrong = int(np.count_nonzero(xp.asnumpy(actual) != expected))
    if wrong:
        raise ValueError(f"{wrong} of {expected.size} values are wrong")
