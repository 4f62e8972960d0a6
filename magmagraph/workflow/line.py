"""What ranks of a workflow say to each other: objects that are posted, and looks for them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..ir.communicator import Communicator

__all__ = ["ANSWER", "JOB", "MAIL", "REQUEST", "Counts", "Letter", "Line", "Pause"]

REQUEST, ANSWER, MAIL, JOB = 7201, 7202, 7203, 7204  # tags
_SHORTEST, _LONGEST, _SHARE = 0.0002, 0.02, 0.02  # seconds of sleep, and of the time waited so far


class Line:
    """Messages of one workflow over a communicator; what an earlier one left is thrown away."""

    def __init__(self, communicator: Communicator, number: str) -> None:
        self.communicator = communicator
        self.rank = communicator.rank
        self._number = number

    def post(self, to: int, tag: int, *told: Any) -> None:
        """Send an object to a rank."""
        self.communicator.post((self._number, told), to, tag)

    def poll(self, tag: int) -> tuple[int, tuple[Any, ...]] | None:
        """Return a rank and what it has sent, or None."""
        while (got := self.communicator.poll(None, tag)) is not None:
            source, (number, told) = got
            if number == self._number:
                return source, told
        return None


class Pause:
    """Sleep between two looks for a message, the longer the longer nothing has come."""

    def __init__(self) -> None:
        self.since = time.monotonic()

    def reset(self) -> None:
        """Begin again with short ones."""
        self.since = time.monotonic()

    def rest(self) -> None:
        """Sleep once."""
        waited = time.monotonic() - self.since
        time.sleep(min(max(_SHORTEST, _SHARE * waited), _LONGEST))


Address = tuple[str, int, int, int]  # module, copy, rank in its group, turn of the workflow


@dataclass(frozen=True)
class Letter:
    """A message between modules; letters of one sender to one receiver are numbered."""

    sender: Address
    receiver: Address
    number: int
    content: bytes


@dataclass(frozen=True)
class Counts:
    """What a rank has sent to each other one, has taken, and has put, since the start."""

    sent: Mapping[int, int]
    taken: int
    puts: int
