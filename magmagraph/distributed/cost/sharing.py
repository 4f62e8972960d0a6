"""What ranks of one machine lose to each other: cores, memory, and the wait for the last of them.

A rank that computes beside others takes longer than alone. Where there are more ranks than cores,
they take turns; where there are not, they still share caches, the way to memory, and the clock that
a processor can hold. And whoever meets the others in a collective waits for the last one, which is
late by what the system did in its turn. All three are measured by loops that are no part of any
network: products of matrices that stay in caches, and passes over arrays that do not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ...errors import ConfigError, message
from ...ir.communicator import Communicator
from ...ir.docstrings import documented
from ...ir.ranks import current
from .costs import Compute, Start, Timeline

__all__ = ["Phase", "Sharing", "beside", "slowed"]

Found = TypeVar("Found")

_WOKEN = 9005  # tag of the word that ends a sleep
_LOOK = 2e-3  # seconds between two looks for it
_LENGTHS = (1e-3, 3e-3, 1e-2)  # seconds that a phase takes alone, about
_ROW = 20e-3  # seconds of phases in a row, alone, from which the mean of one is taken
_MEETINGS = 32  # in a row, of ranks that do nothing between
_ROUNDS = 6  # of all phases
_TALL, _WIDE = 128, 512  # a product of a layer's size: its matrices are in the cores' common cache
_SPAN, _STRETCH = 1 << 21, 1 << 16  # elements of arrays that leave it, and of one pass
_LATE = tuple(float(seconds) for seconds in np.geomspace(1e-6, 4e-3, 60))  # that are tried


@dataclass(frozen=True)
class Phase:
    """A stretch of computing between two meetings, alone and beside the other ranks.

    memory: Whether it passes over memory; else it multiplies matrices that stay in caches.
    alone, together: Seconds: of one rank while the others sleep; of all ranks until the last one is
        done, less what a meeting takes with nothing before it.
    """

    memory: bool
    alone: float
    together: float


@dataclass(frozen=True)
class Sharing:
    """How much longer ranks take that share a machine.

    Attributes
    ----------
    ranks
        How many they are.
    product, memory
        How many times as long computing takes that is bound by arithmetic, or by memory.
    late
        Seconds that the last rank comes later to a meeting than the others, on average; no more
        than it has computed since the last one.
    bandwidth
        Bytes a second that one rank alone moves to and from memory.

    Examples
    --------
    >>> import magmagraph as mg
    >>> sharing = mg.distributed.Sharing(ranks=4, product=2.0, memory=3.0, late=1e-3)
    >>> round(sharing.seconds(10e-3, memory=2e-3) * 1e3, 1)  # 8 ms twice, 2 ms three times, 1 late
    23.0
    """

    ranks: int
    product: float
    memory: float
    late: float = 0.0
    bandwidth: float = math.inf

    def __post_init__(self) -> None:
        if type(self.ranks) is not int or self.ranks < 1:
            raise ConfigError(message(f"Sharing: ranks={self.ranks!r}", need="a number above 0"))
        for name, least in (("product", 1e-9), ("memory", 1e-9), ("late", 0), ("bandwidth", 1e-9)):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not value >= least:
                raise ConfigError(
                    message(f"Sharing: {name}={value!r}", need="a number of at least 0")
                )

    @documented
    def seconds(self, alone: float, memory: float = 0.0) -> float:
        """Return the time of a phase until the last rank is done.

        alone: Seconds that a rank takes for it alone.
        memory: Of these, seconds that are bound by memory.
        """
        slowed = self.product * (alone - memory) + self.memory * memory
        return slowed + min(self.late, alone)

    @classmethod
    @documented
    def fit(cls, ranks: int, phases: Sequence[Phase], bandwidth: float = math.inf) -> Sharing:
        """Return what explains measured phases best, by the least squares of relative errors.

        ranks, bandwidth: As of the attributes.
        phases (sequence of Phase): Of both kinds, of several lengths.

        Examples
        --------
        >>> true = Sharing(4, product=2.1, memory=3.2, late=8e-4)
        >>> phases = [Phase(kind, alone, true.seconds(alone, alone * kind))
        ...           for kind in (False, True) for alone in (1e-4, 1e-3, 1e-2)]
        >>> found = Sharing.fit(4, phases)
        >>> round(found.product, 1), round(found.memory, 1), 7e-4 < found.late < 9e-4
        (2.1, 3.2, True)
        """
        kinds = [[phase for phase in phases if phase.memory is kind] for kind in (False, True)]
        if any(len({phase.alone for phase in kind}) < 2 for kind in kinds):
            raise ConfigError(
                message(
                    f"what ranks share, from {len(phases)} phases",
                    need="two lengths at least, of products and of passes over memory",
                )
            )
        best = (math.inf, 0.0, [1.0, 1.0])
        for late in (0.0, *_LATE):
            error, shares = 0.0, []
            for kind in kinds:
                alone = np.array([phase.alone for phase in kind])
                together = np.array([phase.together for phase in kind])
                slope = alone / together
                left = 1.0 - np.minimum(late, alone) / together
                share = max(1.0, float(slope @ left / (slope @ slope)))
                error += float(np.sum((share * slope - left) ** 2))
                shares.append(share)
            best = min(best, (error, late, shares))
        _, late, (product, memory) = best
        return cls(ranks, product, memory, late, bandwidth)

    @classmethod
    @documented
    def measure(cls, communicator: Communicator | None = None) -> Sharing:
        """Time loops on one rank and on all ranks of a job, and fit this to them.

        All ranks call it; it takes some two seconds, more where ranks share cores.

        communicator (optional): The current one unless given; of ranks of one machine.
        returns (Sharing): The same on all ranks.
        """
        world = communicator or current()
        one = world.subset((0,)) if world.rank == 0 else None
        loops = _Loops()
        turns = world.from_first(loops.turns())
        measured: dict[tuple[bool, int], tuple[list[float], list[float]]] = {
            (memory, count): ([], []) for memory in turns for count in turns[memory]
        }
        for _ in range(_ROUNDS):
            meeting = _timed(world, loops.products, 0, _MEETINGS)
            for (memory, count), (alone, ratios) in measured.items():
                run = loops.passes if memory else loops.products
                many = turns[memory][count]
                once = world.from_first(beside(world, one, partial(_timed, one, run, count, many)))
                # A machine that others use, too, is not the same a second later: what counts is how
                # many times as long one takes right behind the other.
                ratios.append((_timed(world, run, count, many) - meeting) / once)
                alone.append(once)
        phases = []
        for (memory, _), (alone, ratios) in measured.items():
            once = float(np.median(alone))
            phases.append(Phase(memory, once, once * max(1.0, float(np.median(ratios)))))
        longest, phase = max(
            (count, phase)
            for (memory, count), phase in zip(measured, phases, strict=True)
            if memory
        )
        fitted: Sharing = world.from_first(
            cls.fit(world.size, phases, longest * loops.bytes / phase.alone)
        )
        return fitted


class _Loops:
    """What is timed."""

    bytes = 2 * 4 * _STRETCH  # of a pass: it reads and writes

    def __init__(self) -> None:
        self._left, self._product = np.ones((2, _TALL, _WIDE), np.float32)
        self._right = np.full((_WIDE, _WIDE), 1.0 / _WIDE, np.float32)
        self._source, self._target = np.ones(_SPAN, np.float32), np.zeros(_SPAN, np.float32)

    def products(self, count: int) -> None:
        """Multiply matrices so many times."""
        for _ in range(count):
            np.matmul(self._left, self._right, out=self._product)

    def passes(self, count: int) -> None:
        """Go over so many stretches of memory, one after the other."""
        for turn in range(count):
            low = turn * _STRETCH % _SPAN
            part = slice(low, low + _STRETCH)
            np.multiply(self._source[part], 0.5, out=self._target[part])

    def turns(self) -> dict[bool, dict[int, int]]:
        """Return how many products, and passes, make the phases; of each how many are in a row."""
        counts: dict[bool, dict[int, int]] = {}
        for memory, run in ((False, self.products), (True, self.passes)):
            run(20)
            began = time.perf_counter()
            run(20)
            once = (time.perf_counter() - began) / 20
            counts[memory] = {
                max(1, round(length / once)): max(1, round(_ROW / length)) for length in _LENGTHS
            }
        return counts


def _timed(
    ranks: Communicator | None, run: Callable[[int], None], count: int, times: int
) -> float:
    """Return the seconds from one meeting of ranks to the next, with so many turns between.

    The mean of several in a row: where ranks take turns on cores, many phases are short and some
    are long, and a program pays for both.
    """
    assert ranks is not None
    ranks.barrier()
    began = time.perf_counter()
    for _ in range(times):
        run(count)
        ranks.barrier()
    return (time.perf_counter() - began) / times


def beside(
    ranks: Communicator, workers: Communicator | None, work: Callable[[], Found]
) -> Found | None:
    """Let the first of some ranks do something while the others sleep; all ranks call it.

    ranks: All of them.
    workers: Those that work, from rank 0 on; None on a rank that sleeps.
    work: Called by each that works.
    returns (object): What `work` returned; None on ranks that slept.
    """
    if workers is None:
        # A rank that waits in a collective would take a core from those that work.
        while ranks.poll(0, _WOKEN) is None:
            time.sleep(_LOOK)
        return None
    try:
        return work()
    finally:
        if ranks.rank == 0:
            for other in range(workers.size, ranks.size):
                ranks.post(None, other, _WOKEN)


def slowed(work: Timeline, sharing: Sharing) -> Timeline:
    """Return a timeline as it is beside the other ranks of a machine.

    Each meeting begins when the last rank has come.

    Examples
    --------
    >>> alone = Timeline((Compute(0.010, memory=0.002),))
    >>> slowed(alone, Sharing(2, product=1.0, memory=2.0, late=1e-3)).events
    (Compute(seconds=0.012, memory=0.004), Compute(seconds=0.001, memory=0.0))
    """
    events: list[Any] = []
    since = 0.0
    for event in work.events:
        if isinstance(event, Compute):
            bound = sharing.memory * event.memory
            events.append(
                Compute(sharing.product * (event.seconds - event.memory) + bound, bound)
            )
            since += event.seconds
            continue
        if isinstance(event, Start):
            events += _wait(sharing, since)
            since = 0.0
        events.append(event)
    return Timeline((*events, *_wait(sharing, since)))


def _wait(sharing: Sharing, since: float) -> Iterable[Compute]:
    late = min(sharing.late, since)
    return [Compute(late)] if late else []
