"""The executor of many ranks: rank 0 hands out trials, the others ask for them.

All of them sleep between two looks for a message: a rank that spins takes a core from one that
works.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..errors import CommunicationError, ConfigError, message
from ..ir.communicator import Communicator
from ..ir.ranks import using
from .engine import Engine, Work
from .processes import check_workers
from .trial import Outcome, TrialResult

__all__ = ["Found", "check_group", "run_ranks"]

Found = tuple[list[TrialResult], list[int]]

_TAG = 7101
_RUN, _OVER, _FAILED = "run", "over", "failed"  # what rank 0 sends
_GRACE = 20.0  # seconds for the other ranks of a group in which one has failed
_SHORTEST, _LONGEST = 0.0002, 0.05  # seconds of sleep between two looks
_SHARE = 0.02  # of the time that was waited, which a message may be found later by that


def check_group(communicator: Communicator, group: int) -> None:
    """Refuse groups that the ranks cannot be divided into."""
    workers = communicator.size - 1
    if workers % group:
        raise ConfigError(
            message(
                f"group={group}: rank 0 hands out, and the other {workers} cannot be divided",
                need="a multiple of group, and one rank more",
                hint=f"mpiexec -n {(workers // group + 1) * group + 1}",
            )
        )


def run_ranks(
    make: Callable[[], Engine], work: Work, communicator: Communicator, group: int
) -> Found:
    """Run a search on all ranks; each of them returns the same trials.

    Parameters
    ----------
    make
        Makes the engine; called on rank 0 alone.
    work
        What ranks run.
    communicator
        Of two ranks at least.
    group
        So many ranks run a trial together.
    """
    color = None if communicator.rank == 0 else (communicator.rank - 1) // group
    part = communicator.split(color)
    if part is not None:
        return _serve(work, communicator, part)
    engine = None
    try:
        engine = make()
        check_workers((communicator.size - 1) // group, engine.most_at_once)
        return _Master(engine, communicator, group).run()
    except Exception as error:
        _tell_all(communicator, (_FAILED, _portable(error)))
        raise
    finally:
        if engine is not None:
            engine.close()


class _Master:
    """Rank 0: what runs where, and what has come back of it."""

    def __init__(self, engine: Engine, communicator: Communicator, group: int) -> None:
        self.engine, self.communicator = engine, communicator
        first = range(1, communicator.size, group)
        self.idle = deque(tuple(range(rank, rank + group)) for rank in first)
        self.busy: dict[tuple[int, ...], dict[int, Outcome]] = {}
        self.numbers: dict[tuple[int, ...], int] = {}
        self.late: dict[tuple[int, ...], float] = {}

    def run(self) -> Found:
        """Hand out and take back until the search is over; then tell everyone what was found."""
        try:
            self._until_over()
        except Exception:
            self._drain()
            raise
        trials = [self.engine.results[number] for number in sorted(self.engine.results)]
        # Options may be functions without a name: they travel as codes.
        bare = [replace(trial, params={}) for trial in trials]
        _tell_all(self.communicator, (_OVER, (bare, self.engine.interrupted)))
        return trials, self.engine.interrupted

    def _until_over(self) -> None:
        since = time.monotonic()
        while not self.engine.over:
            while self.idle and (assignment := self.engine.next()) is not None:
                ranks = self.idle.popleft()
                self.busy[ranks], self.numbers[ranks] = {}, assignment.number
                for rank in ranks:
                    self.communicator.post((_RUN, assignment), rank, _TAG)
            if self._listen():
                since = time.monotonic()
            else:
                self._check_groups()
                _rest(since)

    def _listen(self) -> bool:
        """Take one message, if there is one; once all ranks of a group have spoken it is idle."""
        got = self.communicator.poll(None, _TAG)
        if got is None:
            return False
        source, outcome = got
        ranks = next(ranks for ranks in self.busy if source in ranks)
        self.busy[ranks][source] = outcome
        if outcome.state == "failed":
            self.late.setdefault(ranks, time.monotonic() + _GRACE)
        if len(self.busy[ranks]) == len(ranks):
            outcomes = self.busy.pop(ranks)
            self.late.pop(ranks, None)
            self.idle.append(ranks)
            self.engine.ended(_joined(ranks, outcomes))
        return True

    def _check_groups(self) -> None:
        """End the job if a group waits for its rank that has failed, which nothing can wake up."""
        for ranks, end in self.late.items():
            if time.monotonic() >= end:
                outcome = _joined(ranks, self.busy[ranks])
                with suppress(Exception):  # the trial is written down; why it failed is told below
                    self.engine.ended(outcome)
                waiting = [rank for rank in ranks if rank not in self.busy[ranks]]
                error = CommunicationError(
                    message(
                        f"trial {self.numbers[ranks]} failed, and the ranks {waiting} that ran it "
                        f"as well did not return within {_GRACE:g} s:\n{outcome.error.rstrip()}",
                        need="an objective that raises on all ranks of a group or on none",
                        hint="the same call again goes on behind this trial",
                    )
                )
                self.communicator.abort(error)
                raise error

    def _drain(self) -> None:
        """Wait for the trials that run: their ranks read no message before, and none is lost."""
        if self.late:
            return
        since = time.monotonic()
        while self.busy:
            with suppress(Exception):
                if not self._listen():
                    _rest(since)


def _serve(work: Work, communicator: Communicator, part: Communicator) -> Found:
    """Run trials as they come, all of a group together, and return what was found."""
    while True:
        kind, told = _next(communicator)
        if kind == _RUN:
            with using(part):
                outcome = work.run(told, part if part.size > 1 else None)
            communicator.post(outcome, 0, _TAG)
        elif kind == _OVER:
            bare, interrupted = told
            space = work.space
            return [replace(t, params=space.values_of(t.codes)) for t in bare], interrupted
        else:
            raise told


def _next(communicator: Communicator) -> tuple[str, Any]:
    since = time.monotonic()
    while (got := communicator.poll(0, _TAG)) is None:
        _rest(since)
    told: tuple[str, Any] = got[1]
    return told


def _rest(since: float) -> None:
    """Sleep between two looks for a message: the longer, the longer it has been waited for."""
    waited = time.monotonic() - since
    time.sleep(min(max(_SHORTEST, _SHARE * waited), _LONGEST))


def _joined(ranks: tuple[int, ...], outcomes: dict[int, Outcome]) -> Outcome:
    """Return the first rank's outcome, or the failure of another one."""
    for rank in ranks:
        outcome = outcomes.get(rank)
        if outcome is not None and outcome.state == "failed":
            where = f"on rank {rank}:\n" if len(ranks) > 1 else ""
            return replace(outcome, error=where + outcome.error)
    return outcomes[ranks[0]]


def _portable(error: Exception) -> Exception:
    """Return an error as it can travel."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # what pickle raises depends on what it meets
        return CommunicationError(f"rank 0: {type(error).__name__}: {error}")
    return error


def _tell_all(communicator: Communicator, told: tuple[str, Any]) -> None:
    for rank in range(1, communicator.size):
        communicator.post(told, rank, _TAG)
