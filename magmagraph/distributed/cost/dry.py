"""A communicator to plan with: one rank among many that are not there.

Every other rank is thought to hold what this one holds, and nothing takes time. Plans that are made
with it are those of a rank of a real job; what is computed with it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.communicator import DONE, Communicator, Pending

__all__ = ["DryRank"]


class DryRank(Communicator):
    """Rank 0 of some ranks that are not there.

    size: How many they are.
    overlap: Whether plans start collectives beside other steps.

    Examples
    --------
    >>> import numpy as np
    >>> DryRank(1000).allgather(np.ones(3)).shape
    (1000, 3)
    """

    kind = "dry"

    def __init__(self, size: int, overlap: bool = False) -> None:
        super().__init__(0, size)
        self._overlap = overlap

    def _subset(self, members: tuple[int, ...]) -> Communicator:
        return DryRank(len(members), self._overlap)

    def allreduce(self, array: Any, op: str, out: Any = None) -> Any:
        """Return the array."""
        return _into(array, out)

    def allgather(self, array: Any, out: Any = None) -> Any:
        """Return the array as often as there are ranks."""
        return _into(np.broadcast_to(array, (self.size, *np.shape(array))), out)

    def reduce_scatter(self, array: Any, op: str, out: Any = None) -> Any:
        """Return the first row."""
        return _into(array[0], out)

    def broadcast(self, array: Any, root: int, out: Any = None) -> Any:
        """Return the array."""
        return _into(array, out)

    def alltoall(self, array: Any, out: Any = None) -> Any:
        """Return the array."""
        return _into(array, out)

    def send(self, array: Any, to: int, tag: int) -> None:
        """Send nothing."""

    def recv(self, out: Any, source: int, tag: int) -> Any:
        """Return the memory as it is."""
        return out

    def sendrecv(self, array: Any, to: int, out: Any, source: int, tag: int) -> Any:
        """Return the array."""
        return _into(array, out)

    def exchange(self, value: Any, what: str = "an exchange of objects") -> list[Any]:
        """Return the value for each rank."""
        return [value] * self.size

    def post(self, value: Any, to: int, tag: int = 0) -> None:
        """Send nothing."""

    def poll(self, source: int | None = None, tag: int = 0) -> tuple[int, Any] | None:
        """Return that nothing has come."""
        return None

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Return ranks that are not there, either."""
        return None if color is None else DryRank(self.size, self._overlap)

    def abort(self, cause: BaseException | str) -> None:
        """Leave the others alone."""

    def start(self, run: Callable[[], object]) -> Pending:
        """Do it at once: it takes no time."""
        run()
        return DONE

    @property
    def overlaps(self) -> bool:
        """Whether plans start collectives beside other steps."""
        return self._overlap


def _into(array: Any, out: Any) -> Any:
    if out is None:
        return np.array(array)
    if out is not array:
        np.copyto(out, array)
    return out
