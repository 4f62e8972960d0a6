"""The engine of a search: what is tried next, what came of it, and when it is over.

It knows nothing of processes: an executor asks `next` for work, and tells `ended` or `died`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError, MagmagraphError, message
from ..files.reading import reading
from .domains import Code
from .goal import Goal
from .journal import Journal, numbers_of
from .points import Points
from .space import Space
from .stopping import Known, Never, Rule
from .trial import Assignment, Objective, Outcome, Trial, TrialResult, run_trial

__all__ = ["Engine", "Limits", "TrialError", "Work"]


class TrialError(MagmagraphError, RuntimeError):
    """A trial failed in a search that is to end with its first failure."""


@dataclass(frozen=True)
class Limits:
    """When a search ends, and how it takes failures.

    Attributes
    ----------
    trials
        So many points, or all that there are.
    seconds
        Nothing starts later than this after the call.
    until
        Nothing starts after a goal as good as this.
    ahead
        Trial i waits for all up to i - ahead, where the search learns; None never waits.
    retries
        How often a trial is tried again whose process died.
    raising
        Whether the first failure ends the search.
    """

    trials: int | None = None
    seconds: float | None = None
    until: float | None = None
    ahead: int | None = None
    retries: int = 1
    raising: bool = False


@dataclass(frozen=True)
class Work:
    """What whoever runs trials needs to have; it is sent to other processes once."""

    objective: Objective
    space: Space
    seed: int
    maximize: bool
    alone: str

    def run(self, assignment: Assignment, communicator: Any = None) -> Outcome:
        """Run a trial here."""
        trial = Trial(
            assignment,
            self.space,
            seed=self.seed,
            maximize=self.maximize,
            communicator=communicator,
        )
        return run_trial(self.objective, trial, self.alone)


class Engine:
    """One search: hands out trials, takes what comes of them, and writes the journal.

    Attributes
    ----------
    results
        The trials that have ended, by number.
    interrupted
        Trials that were running when an earlier process ended; they are run again.
    """

    def __init__(
        self,
        space: Space,
        points: Points,
        rule: Rule,
        goal: Goal,
        limits: Limits,
        journal: Journal | None = None,
        watch: Callable[[TrialResult], Any] | None = None,
        repeat_failed: bool = False,
    ) -> None:
        self.space, self.points, self.rule, self.goal = space, points, rule, goal
        self.limits, self.journal, self.watch = limits, journal, watch
        self.results: dict[int, TrialResult] = {}
        self.interrupted: list[int] = []
        self._began = time.monotonic()
        self._running: dict[int, Assignment] = {}
        self._again: deque[tuple[int, int, list[Code]]] = deque()
        self._untold: set[int] = set()
        self._through = -1  # all trials up to this number have ended
        self._fresh = 0  # the next number
        self._reached = False
        counts = [n for n in (limits.trials, points.total) if n is not None]
        self._total = min(counts) if counts else None
        self._learning = points.learns or not isinstance(rule, Never)
        if journal is not None:
            with reading(journal.path, "does not fit this search", passing=ConfigError):
                self._resume(journal, repeat_failed)

    def _resume(self, journal: Journal, repeat_failed: bool) -> None:
        for number in sorted(journal.starts):
            start, end = journal.starts[number], journal.ends.get(number)
            codes, attempts = start["codes"], start["attempt"] + 1
            failed = end is not None and end["state"] == "failed"
            if end is None or (failed and repeat_failed):
                self._again.append((number, attempts, codes))
                if end is None:
                    self.interrupted.append(number)
            else:
                values, reports = numbers_of(end)
                self._keep(
                    TrialResult(
                        number,
                        self.space.values_of(codes),
                        self.space.labels_of(codes),
                        end["state"],
                        end["goal"],
                        values,
                        reports,
                        end["seconds"],
                        end.get("error", ""),
                        attempts,
                        codes,
                        end.get("notes", {}),
                    )
                )
        # What was learned is learned again in the same order, so that the next points are those
        # of a search that was not cut.
        for number in sorted(journal.starts):
            self._inform(number)
            self.points.replay(number, journal.starts[number]["codes"])
            self._fresh = number + 1

    # ---------------------------------------------------------------- for executors

    def next(self) -> Assignment | None:
        """Return a trial to run now, or None where there is none (yet: see `over`)."""
        if self._late():
            return None
        if self._again:
            number, attempt, codes = self._again.popleft()
        elif self._exhausted() or not self._may_start(self._fresh):
            return None
        else:
            number, attempt = self._fresh, 0
            self._inform(number)
            codes = self.points.draw(number)
            self._fresh += 1
        assignment = Assignment(number, attempt, codes, self._known(number))
        if self.journal is not None:
            self.journal.start(number, attempt, codes, self.space.labels_of(codes))
        self._running[number] = assignment
        return assignment

    @property
    def over(self) -> bool:
        """Whether nothing runs, and nothing will be handed out."""
        if self._running:
            return False
        return self._late() or (not self._again and self._exhausted())

    @property
    def most_at_once(self) -> int | None:
        """How many trials may run beside each other, or None where it does not matter."""
        return self.limits.ahead if self._learning else None

    def ended(self, outcome: Outcome) -> None:
        """Take what came of a trial.

        Raises
        ------
        ConfigError
            If the goal is a value that the objective does not return.
        TrialError
            If it failed, and failures are to end the search.
        """
        state, goal, error = outcome.state, None, outcome.error
        if state != "failed":
            try:
                goal = self.goal.of(outcome.values)
            except (ArithmeticError, LookupError, TypeError, ValueError) as wrong:
                if isinstance(wrong, MagmagraphError):
                    raise
                if state == "done":
                    state, error = "failed", str(wrong)
        assignment = self._running.pop(outcome.number)
        found = TrialResult(
            outcome.number,
            self.space.values_of(assignment.codes),
            self.space.labels_of(assignment.codes),
            state,
            goal,
            outcome.values,
            outcome.reports,
            outcome.seconds,
            error,
            assignment.attempt + 1,
            assignment.codes,
            outcome.notes,
        )
        if self.journal is not None:
            self.journal.end(found)
        self._keep(found)
        if self.watch is not None:
            self.watch(found)
        if state == "failed" and self.limits.raising:
            raise TrialError(
                message(f"trial {found.number} of {found.labels} failed:\n{error.rstrip()}")
            )

    def died(self, number: int, cause: str) -> None:
        """Take that the process of a trial has ended: try it again, or give it up."""
        assignment = self._running[number]
        if assignment.attempt < self.limits.retries:
            del self._running[number]
            self._again.append((number, assignment.attempt + 1, assignment.codes))
        else:
            self.ended(Outcome(number, "failed", {}, [], 0.0, cause))

    def close(self) -> None:
        """Give the journal free."""
        if self.journal is not None:
            self.journal.close()

    # ---------------------------------------------------------------- within

    def _keep(self, found: TrialResult) -> None:
        self.results[found.number] = found
        self._untold.add(found.number)
        while self._through + 1 in self.results:
            self._through += 1
        until = self.limits.until
        if until is not None and found.state == "done" and found.goal is not None:
            self._reached = self._reached or self.goal.reached(found.goal, until)

    def _late(self) -> bool:
        seconds = self.limits.seconds
        return seconds is not None and time.monotonic() - self._began >= seconds

    def _exhausted(self) -> bool:
        return self._reached or (self._total is not None and self._fresh >= self._total)

    def _may_start(self, number: int) -> bool:
        if not self._learning or self.limits.ahead is None:
            return True
        return self._through >= number - self.limits.ahead

    def _knows(self, number: int, other: int) -> bool:
        """Return whether a trial may know another that has ended."""
        return self.limits.ahead is None or other <= number - self.limits.ahead

    def _known(self, number: int) -> Known:
        """Return what the rule knows when this trial starts."""
        if isinstance(self.rule, Never):
            return self.rule
        earlier = [self.results[n] for n in sorted(self.results) if self._knows(number, n)]
        return self.rule.known(earlier, self.goal.maximize)

    def _inform(self, number: int) -> None:
        """Tell the method what this trial may know, in the order of numbers."""
        if not self.points.learns:
            return
        for other in sorted(self._untold):
            if self._knows(number, other):
                self.points.tell(self.results[other])
                self._untold.discard(other)
