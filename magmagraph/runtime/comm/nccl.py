"""Ranks that are processes with a GPU each, by NCCL: arrays stay on the devices.

Objects, and the id that NCCL's ranks find each other by, go through the communicator of the host.
Methods take CuPy arrays and put what they do on the current stream, so that it can be captured in a
graph with what is computed. NCCL reduces 16-bit floats hop by hop in their own dtype.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...ir.communicator import REDUCTIONS, Communicator, Pending

__all__ = ["NcclLine", "NcclRank"]

# NCCL's numbers of types and reductions (nccl.h, ncclDataType_t and ncclRedOp_t).
_TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
_PARTS = {"complex64": "float32", "complex128": "float64"}  # two of them are one
_OPERATIONS = dict(zip(REDUCTIONS, (0, 2, 3), strict=True))
_BYTE = 1


def _kept(communicator: Any) -> Any:
    """Return a communicator that stays until the process ends.

    Its end would wait for that of all graphs that were captured with it, for ever where these are
    let go of later: a program's functions are when Python ends.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(communicator))
    return communicator


class NcclRank(Communicator):
    """One rank of a group, with its device.

    Parameters
    ----------
    host
        The same ranks on the host.
    cupy, nccl
        CuPy, and its binding of the library.
    """

    kind = "NCCL"

    def __init__(self, host: Communicator, cupy: Any, nccl: Any) -> None:
        super().__init__(host.rank, host.size)
        self._mesh = host.mesh
        self.host, self._cupy, self._nccl = host, cupy, nccl
        identifier = host.from_first(
            nccl.get_unique_id() if host.rank == 0 else None, "NCCL's start"
        )
        self._ranks = _kept(nccl.NcclCommunicator(self.size, identifier, self.rank))

    def group(self, axes: Any) -> Communicator:
        """Return the communicator of the ranks that differ from this one in some axes alone."""
        names = self.mesh.group(axes)
        if not names:
            return self
        if names not in self._groups:
            self._groups[names] = NcclRank(self.host.group(names), self._cupy, self._nccl)
        return self._groups[names]

    def _subset(self, members: tuple[int, ...]) -> Communicator:
        raise NotImplementedError("groups are made of the host's")

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Return the communicator of the ranks of one colour, in the order of their keys."""
        group = self.host.split(color, key)
        return None if group is None else NcclRank(group, self._cupy, self._nccl)

    @staticmethod
    def reduces(dtype: Any, op: str) -> bool:
        """Return whether NCCL has a reduction."""
        return dtype.name in _TYPES or (dtype.name in _PARTS and op == "sum")

    # ---- Collectives

    @property
    def _stream(self) -> int:
        return int(self._cupy.cuda.get_current_stream().ptr)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Group the NCCL calls inside into one launch."""
        self._nccl.groupStart()
        try:
            yield
        finally:
            self._nccl.groupEnd()

    def _reduction(self, array: Any) -> tuple[int, int]:
        """Return the number of elements, and of their type."""
        part = _PARTS.get(array.dtype.name)
        if part is not None:
            return 2 * array.size, _TYPES[part]
        return array.size, _TYPES[array.dtype.name]

    def _target(self, out: Any, shape: Sequence[int], dtype: Any) -> Any:
        return self._cupy.empty(tuple(shape), dtype) if out is None else out

    def allreduce(self, array: Any, op: str, out: Any = None) -> Any:
        """Return the arrays of all ranks joined element by element."""
        target = self._target(out, array.shape, array.dtype)
        count, kind = self._reduction(array)
        if count:
            self._ranks.allReduce(
                array.data.ptr, target.data.ptr, count, kind, _OPERATIONS[op], self._stream
            )
        return target

    def allreduce_many(self, arrays: Sequence[Any], op: str, outs: Sequence[Any]) -> None:
        """Reduce several arrays of one dtype in one launch, each in place."""
        with self._together():
            for array, out in zip(arrays, outs, strict=True):
                self.allreduce(array, op, out)

    def reduce_scatter(self, array: Any, op: str, out: Any = None) -> Any:
        """Return this rank's row of the joined arrays."""
        target = self._target(out, array.shape[1:], array.dtype)
        count, kind = self._reduction(target)
        if count:
            self._ranks.reduceScatter(
                array.data.ptr, target.data.ptr, count, kind, _OPERATIONS[op], self._stream
            )
        return target

    def allgather(self, array: Any, out: Any = None) -> Any:
        """Return the arrays of all ranks along a new first axis."""
        target = self._target(out, (self.size, *array.shape), array.dtype)
        if array.nbytes:
            self._ranks.allGather(
                array.data.ptr, target.data.ptr, array.nbytes, _BYTE, self._stream
            )
        return target

    def broadcast(self, array: Any, root: int, out: Any = None) -> Any:
        """Return the array of one rank."""
        target = self._target(out, array.shape, array.dtype)
        if array.nbytes:
            self._ranks.broadcast(
                array.data.ptr, target.data.ptr, array.nbytes, _BYTE, root, self._stream
            )
        return target

    def reduce(self, array: Any, root: int, out: Any = None) -> Any:
        """Return the sum of all ranks' arrays on one rank; elsewhere nothing of meaning."""
        target = self._target(out, array.shape, array.dtype)
        count, kind = self._reduction(array)
        if count:
            self._ranks.reduce(
                array.data.ptr, target.data.ptr, count, kind, _OPERATIONS["sum"], root,
                self._stream,
            )  # fmt: skip
        return target

    def alltoall(self, array: Any, out: Any = None) -> Any:
        """Return the rows that the ranks have for this one."""
        target = self._target(out, array.shape, array.dtype)
        row = array.nbytes // self.size
        if row:
            with self._together():
                for other in range(self.size):
                    place = other * row
                    self._ranks.send(array.data.ptr + place, row, _BYTE, other, self._stream)
                    self._ranks.recv(target.data.ptr + place, row, _BYTE, other, self._stream)
        return target

    def permute(self, array: Any, shift: int, out: Any = None) -> Any:
        """Return the array of the rank `shift` places before, around a ring."""
        target = self._target(out, array.shape, array.dtype)
        to, source = (self.rank + shift) % self.size, (self.rank - shift) % self.size
        return self.sendrecv(array, to, target, source, 0)

    def sendrecv(self, array: Any, to: int, out: Any, source: int, tag: int) -> Any:
        """Send an array to one rank while another one's is received."""
        with self._together():
            if array.nbytes:
                self._ranks.send(array.data.ptr, array.nbytes, _BYTE, to, self._stream)
            if out.nbytes:
                self._ranks.recv(out.data.ptr, out.nbytes, _BYTE, source, self._stream)
        return out

    def send(self, array: Any, to: int, tag: int) -> None:
        """Send an array to a rank, through the host: NCCL's send would wait for the receiver.

        Steps of a plan send by `NcclLine` instead.
        """
        self.host.send(self._cupy.asnumpy(array), to, tag)

    def recv(self, out: Any, source: int, tag: int) -> Any:
        """Wait for an array of a rank."""
        host_copy = self._cupy.asnumpy(out)
        out.set(self.host.recv(host_copy, source, tag))
        return out

    # ---- What the host does

    def exchange(self, value: Any, what: str = "an exchange of objects") -> list[Any]:
        """Return a Python object of each rank."""
        return self.host.exchange(value, what)

    def post(self, value: Any, to: int, tag: int = 0) -> None:
        """Send a Python object to a rank, without waiting for it to be taken."""
        self.host.post(value, to, tag)

    def poll(self, source: int | None = None, tag: int = 0) -> tuple[int, Any] | None:
        """Return a rank and the object that it posted first, or None."""
        return self.host.poll(source, tag)

    def start(self, run: Callable[[], object]) -> Pending:
        """Put it on the stream: that returns at once."""
        return super().start(run)

    def abort(self, cause: BaseException | str) -> None:
        """End the job, at once."""
        self.host.abort(cause)


class NcclLine:
    """Messages from one rank to another, taken in the order in which they are sent.

    It is a communicator of the two alone: what one rank has sent and the other has not taken yet
    holds up nothing else. Both ranks make it at the same time.

    Parameters
    ----------
    pair
        The two ranks on the host.
    sends
        Whether this one sends; the other receives.
    cupy, nccl
        CuPy, and its binding of the library.
    """

    def __init__(self, pair: Communicator, sends: bool, cupy: Any, nccl: Any) -> None:
        identifier = pair.from_first(
            nccl.get_unique_id() if pair.rank == 0 else None, "NCCL's start"
        )
        self.sends, self._other = sends, 1 - pair.rank
        self._ranks = _kept(nccl.NcclCommunicator(2, identifier, pair.rank))
        # The first message makes the connection, which a stream that is captured could not.
        first, stream = cupy.zeros(1, "uint8"), cupy.cuda.get_current_stream()
        self.pass_on(first.data.ptr, first.nbytes, stream)
        stream.synchronize()

    def pass_on(self, address: int, count: int, stream: Any) -> None:
        """Send bytes from an address, or receive them there, on a stream; it waits for the other.

        Parameters
        ----------
        address, count
            Where they lie on the device, and how many.
        stream
            Of the device; one may be captured.
        """
        if count:
            move = self._ranks.send if self.sends else self._ranks.recv
            move(address, count, _BYTE, self._other, stream.ptr)
