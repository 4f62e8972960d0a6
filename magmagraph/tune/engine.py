"""Run a search: choose trials, record their results, decide when it is over."""

from __future__ import annotations

import pickle
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, wait
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, MagmagraphError, message
from ..executors import has_died
from ..files.reading import reading
from .goal import Goal
from .points import Points
from .space import Code, Space
from .trial import Assignment, TrialResult, Work

if TYPE_CHECKING:
    from .journal import Journal
    from .optuna_parts import Known

__all__ = ["Engine", "Limits", "TrialError", "pickled", "run_trials", "unpickled"]


class TrialError(MagmagraphError, RuntimeError):
    """A trial failed in a search that is to end with its first failure."""


@dataclass(frozen=True)
class Limits:
    """When a search ends, and how it takes failures."""

    trials: int | None = None  # so many points, or all that there are
    seconds: float | None = None  # nothing starts later than this after the call
    until: float | None = None  # nothing starts after a goal as good as this
    ahead: int | None = None  # a pruner knows trials up to i - ahead; None: what there is
    retries: int = 1  # of a trial whose process died
    raising: bool = False  # whether the first failure ends the search


def run_trials(engine: Engine, task: Work | bytes, executor: Executor, workers: int) -> None:
    """Run trials, as many at once as there are workers, until the search is over.

    Parameters
    ----------
    engine
        What is to be run.
    task
        How: itself where an executor sends what pickle cannot, or what `pickled` makes of it.
    executor, workers
        Who runs it, and how many at once.

    Raises
    ------
    ConfigError
        If the objective cannot be sent to other processes, or the executor broke.
    """
    running: dict[Any, int] = {}
    try:
        while not engine.over:
            while len(running) < workers and (assignment := engine.next()) is not None:
                running[executor.submit(_run, task, assignment)] = assignment.number
            ended = wait(running, return_when=FIRST_COMPLETED).done if running else ()
            for future in sorted(ended, key=running.__getitem__):
                _take(engine, running.pop(future), future)
    except BrokenExecutor as error:
        raise ConfigError(
            message(
                f"{executor!r} takes no more calls: {error}",
                need="an executor that replaces a worker that dies",
                hint='executor="process", or the same call again, with journal=',
            )
        ) from error
    finally:
        for future in running:
            future.cancel()


def _take(engine: Engine, number: int, future: Any) -> None:
    try:
        engine.ended(future.result())
    except CancelledError as error:
        engine.died(number, f"the executor cancelled it: {error}")
    except TimeoutError as error:
        engine.failed(number, str(error))
    except Exception as error:
        if not has_died(error):
            raise
        engine.died(number, str(error))


def _run(task: Work | bytes, assignment: Assignment) -> TrialResult:
    """Run a trial in the process of a worker."""
    return (unpickled(task) if isinstance(task, bytes) else task).run(assignment)


@lru_cache(1)
def unpickled(task: bytes) -> Work:
    """Return the work in the process of a worker, which reads it once."""
    try:
        work: Work = pickle.loads(task)
    except Exception:
        raise ConfigError(
            message(
                f"the objective cannot be used in another process:\n{traceback.format_exc()}",
                need="a function at the top level of a file, which the process imports",
                hint='a file of its own for it, or executor="serial"',
            )
        ) from None
    return work


def pickled(work: Work) -> bytes:
    """Return the work as it is sent to other processes."""
    try:
        return pickle.dumps(work)
    except Exception as error:  # pickle raises many exception types
        raise ConfigError(
            message(
                f"the objective {work.objective!r} or an option of the space cannot be sent to "
                f"another process: {error}",
                need="a function at the top level of a file; it may be functools.partial of one",
                hint='executor="serial" runs any function',
            )
        ) from error


class Engine:
    """A search: it hands out trials, takes their results, and writes the journal.

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
        pruner: Any,
        goals: Sequence[Goal],
        limits: Limits,
        journal: Journal | None = None,
        watch: Callable[[TrialResult], Any] | None = None,
        repeat_failed: bool = False,
    ) -> None:
        self.space, self.points, self.pruner, self.goals = space, points, pruner, goals
        self.limits, self.journal, self.watch = limits, journal, watch
        self.results: dict[int, TrialResult] = {}
        self.interrupted: list[int] = []
        self._began = time.monotonic()
        self._running: dict[int, Assignment] = {}
        self._written: dict[int, int] = {}  # trials of the journal that have no end
        self._again: deque[tuple[int, int, list[Code | None]]] = deque()
        self._untold: set[int] = set()
        self._through = -1  # all trials up to this number have ended
        self._fresh = 0  # the next number
        self._reached: int | None = None  # the first trial with a goal as good as `until`
        counts = [n for n in (limits.trials, points.total) if n is not None]
        self._total = min(counts) if counts else None
        if journal is not None:
            with reading(journal.path, "does not fit this search", passing=ConfigError):
                self._resume(journal, repeat_failed)

    def _resume(self, journal: Journal, repeat_failed: bool) -> None:
        for number, event in sorted(journal.trials.items()):
            if event.end is None:
                self._written[number] = event.identity
                self.interrupted.append(number)
            else:
                self._keep(event.result(number, self.space.values_of(event.codes)))
            if event.end is None or (event.end["state"] == "failed" and repeat_failed):
                self._again.append((number, event.attempt + 1, event.codes))
        # What was learned is learned again in the same order, so that the next points are those
        # of a search that was not cut.
        for number, event in sorted(journal.trials.items()):
            self._inform(number)
            self.points.replay(number, event.codes)
            self._fresh = number + 1

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
        about = self.points.about(number)
        assignment = Assignment(number, attempt, codes, self._pruner_history(number), **about)
        if self.journal is not None:
            if number in self._written:
                self.journal.cut(self._written[number])
            self._written[number] = self.journal.start(number, attempt, codes)
        self._running[number] = assignment
        return assignment

    @property
    def over(self) -> bool:
        """Whether nothing runs, and nothing will be handed out."""
        if self._running:
            return False
        return self._late() or (not self._again and self._exhausted())

    def ended(self, result: TrialResult) -> None:
        """Record the result of a trial.

        Raises
        ------
        ConfigError
            If a goal is a value that the objective does not return.
        TrialError
            If it failed, and failures are to end the search.
        """
        if result.state != "failed":
            try:
                result = replace(result, goals=[goal.of(result.values) for goal in self.goals])
            except (ArithmeticError, LookupError, TypeError, ValueError) as wrong:
                if isinstance(wrong, MagmagraphError):
                    raise
                if result.state == "done":
                    result = replace(result, state="failed", error=str(wrong))
        codes = self._running.pop(result.number).codes
        params, labels = self.space.values_of(codes), self.space.labels_of(codes)
        result = replace(result, params=params, labels=labels)
        if self.journal is not None:
            self.journal.end(self._written.pop(result.number), result)
        self._keep(result)
        if self.watch is not None:
            self.watch(result)
        if result.state == "failed" and self.limits.raising:
            raise TrialError(
                message(
                    f"trial {result.number} of {result.labels} failed:\n{result.error.rstrip()}"
                )
            )

    def failed(self, number: int, cause: str) -> None:
        """Record that a trial did not finish."""
        assignment = self._running[number]
        self.ended(
            TrialResult(
                number, {}, {}, "failed", None, {}, [], 0.0, cause,
                assignment.attempt + 1, assignment.codes, assignment.notes,
            )
        )  # fmt: skip

    def died(self, number: int, cause: str) -> None:
        """Take that the process of a trial has ended: try it again, or give it up."""
        assignment = self._running[number]
        if assignment.attempt < self.limits.retries:
            del self._running[number]
            self._again.append((number, assignment.attempt + 1, assignment.codes))
        else:
            self.failed(number, cause)

    @property
    def found(self) -> list[TrialResult]:
        """The trials by number; those after the first that reached `until` depend on the workers.

        They are left out, so that all executors find the same.
        """
        last = self._reached
        return [self.results[n] for n in sorted(self.results) if last is None or n <= last]

    def _keep(self, result: TrialResult) -> None:
        self.results[result.number] = result
        self._untold.add(result.number)
        while self._through + 1 in self.results:
            self._through += 1
        until = self.limits.until
        if until is not None and result.state == "done" and result.goal is not None:
            if not self.goals[0].better(until, result.goal):
                before = result.number if self._reached is None else self._reached
                self._reached = min(result.number, before)

    def _late(self) -> bool:
        seconds = self.limits.seconds
        return seconds is not None and time.monotonic() - self._began >= seconds

    def _exhausted(self) -> bool:
        return self._reached is not None or (self._total is not None and self._fresh >= self._total)

    def _prunes_by(self, number: int) -> int | None:
        """Return the trial up to which all must have ended before the pruner judges this one."""
        if self.pruner is None:
            return -1
        return None if self.limits.ahead is None else number - self.limits.ahead

    def _may_start(self, number: int) -> bool:
        needs = (self.points.needs(number), self._prunes_by(number))
        return all(last is None or last <= self._through for last in needs)

    def _pruner_history(self, number: int) -> Known | None:
        """Return the pruner's state at the start of this trial."""
        if self.pruner is None:
            return None
        from .optuna_parts import Known  # optional

        last = self._prunes_by(number)
        return Known(
            self.pruner,
            number,
            {
                n: (t.state, t.goal, t.reports, t.notes)
                for n, t in self.results.items()
                if n < number and (last is None or n <= last)
            },
            self.goals[0].maximize,
        )

    def _inform(self, number: int) -> None:
        """Tell the method what this trial may know, in the order of numbers."""
        last = self.points.needs(number)
        if last == -1:
            return
        for other in sorted(self._untold):
            if last is None or other <= last:
                self.points.tell(self.results[other])
                self._untold.discard(other)
