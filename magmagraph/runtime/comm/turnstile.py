"""Where ranks of one host meet before a step, without a message.

A rank writes the number of the meeting into a word of its own and reads those of the others: a
quarter of a microsecond on two ranks where all are there, a tenth of MPI's smallest sum. The word
also says whether the rank has failed. Two words take turns, since a rank may be one meeting ahead
of one that still reads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from ..watch import waiting

__all__ = ["BYTES", "Turnstile"]

BYTES = 128  # of a rank: no two ranks write to one line of a cache, or to its neighbour
_SPINS = 200  # looks, some 10 us, before other threads of the process get a turn
_YIELDS = 20_000  # looks with a turn for others, some 10 ms, before the processor is left
_LONG = 20e-6  # seconds between two looks after that


class Turnstile:
    """Meetings of ranks that share memory.

    Parameters
    ----------
    window
        What holds the memory.
    words
        For each rank memory of `BYTES`, as 64-bit numbers, zero at first.
    rank
        This one.
    pause
        Seconds between two looks where ranks share cores; 0 where each has its own.
    """

    def __init__(self, window: Any, words: Sequence[Any], rank: int, pause: float) -> None:
        self._window = window
        self._mine = words[rank]
        self._others = [words[other] for other in range(len(words)) if other != rank]
        self._pause = pause
        self._count = 0

    def meet(self, failed: bool, what: Any) -> bool:
        """Return, when all ranks have called it, whether any has failed.

        Parameters
        ----------
        failed
            Whether this one has.
        what
            The meeting in words, for who watches.
        """
        self._count = number = self._count + 2
        turn = number >> 1 & 1
        self._mine[turn] = number + failed
        for words in self._others:
            if words[turn] < number:
                self._wait(words, turn, number, what)
            if words[turn] != number:
                failed = True
        return failed

    def _wait(self, words: Any, turn: int, number: int, what: Any) -> None:
        if not self._pause:
            for _ in range(_SPINS):
                if words[turn] >= number:
                    return
        looks = 0
        with waiting(what):
            while words[turn] < number:
                looks += 1
                if self._pause or looks > _YIELDS:
                    time.sleep(self._pause or _LONG)
                else:
                    _yield()  # `time.sleep(0)` would take 50 us


def _yield() -> None:
    """Let other threads of the process, and others of the core, go first."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0)
