"""One rank: every collective is the identity."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from ...errors import CommunicationError, message
from ...ir.communicator import Communicator

__all__ = ["Solo"]


class Solo(Communicator):
    """The communicator of a process that runs alone.

    What it sends to itself waits until it is received.
    """

    kind = "solo"

    def __init__(self) -> None:
        super().__init__(0, 1)
        self._posted: list[tuple[int, bytes]] = []
        self._sent: dict[int, list[np.ndarray]] = {}

    def _subset(self, members: tuple[int, ...]) -> Communicator:
        return Solo()

    @staticmethod
    def _same(array: Any, out: Any) -> Any:
        if out is None:
            return np.array(array)
        if out is not array:
            np.copyto(out, array)
        return out

    def allreduce(self, array: Any, op: str, out: Any = None) -> Any:
        """Return the array."""
        return self._same(array, out)

    def allgather(self, array: Any, out: Any = None) -> Any:
        """Return the array with a new first axis."""
        return self._same(np.asarray(array)[None], out)

    def reduce_scatter(self, array: Any, op: str, out: Any = None) -> Any:
        """Return the only row."""
        return self._same(array[0], out)

    def broadcast(self, array: Any, root: int, out: Any = None) -> Any:
        """Return the array."""
        return self._same(array, out)

    def alltoall(self, array: Any, out: Any = None) -> Any:
        """Return the array."""
        return self._same(array, out)

    def send(self, array: Any, to: int, tag: int) -> None:
        """Keep the array for `recv`."""
        self._sent.setdefault(tag, []).append(np.array(array))

    def recv(self, out: Any, source: int, tag: int) -> Any:
        """Return what was sent first with the tag."""
        waiting = self._sent.get(tag)
        if not waiting:
            raise CommunicationError(
                message(f"one rank waits for its own message, tag {tag}, which was not sent")
            )
        return self._same(waiting.pop(0), out)

    def sendrecv(self, array: Any, to: int, out: Any, source: int, tag: int) -> Any:
        """Return the array."""
        return self._same(array, out)

    def post(self, value: Any, to: int, tag: int = 0) -> None:
        """Keep a Python object for `poll`."""
        self._posted.append((tag, pickle.dumps(value)))

    def poll(self, source: int | None = None, tag: int = 0) -> tuple[int, Any] | None:
        """Return what was posted first with the tag, or None."""
        for place, (theirs, content) in enumerate(self._posted):
            if theirs == tag:
                del self._posted[place]
                return 0, pickle.loads(content)
        return None

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Return a communicator of one rank."""
        return None if color is None else Solo()

    def abort(self, cause: BaseException | str) -> None:
        """Raise the cause."""
        raise CommunicationError(cause) if isinstance(cause, str) else cause

    def exchange(self, value: Any, what: str = "") -> list[Any]:
        """Return the value alone."""
        return [value]
