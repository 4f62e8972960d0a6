"""Trials: what an objective is given, and what comes of it."""

from __future__ import annotations

import numbers
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ConfigError, message
from .domains import Code
from .goal import Values, measured
from .space import Space
from .stopping import Known

if TYPE_CHECKING:
    from .callback import Report

__all__ = ["Assignment", "Outcome", "Trial", "TrialResult", "run_trial", "short"]

Objective = Callable[["Trial"], Any]


@dataclass(frozen=True)
class Assignment:
    """A trial that is handed to whoever runs it.

    Attributes
    ----------
    number
        Of the trial, from 0.
    attempt
        How often it has been started before this.
    codes
        Its point.
    known
        What the pruner knows, None where nothing stops trials.
    """

    number: int
    attempt: int
    codes: list[Code]
    known: Known | None


@dataclass(frozen=True)
class Outcome:
    """What came of an assignment.

    Attributes
    ----------
    number
        Of the trial.
    state
        "done", "stopped" or "failed".
    values
        What the objective returned, and "time", in seconds.
    reports
        (step, value) as they were reported.
    seconds
        From its start to its end.
    error
        The traceback of a failure.
    notes
        What the pruner keeps of it.
    """

    number: int
    state: str
    values: Values
    reports: list[tuple[int, float]]
    seconds: float
    error: str = ""
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialResult:
    """A trial that has ended.

    Attributes
    ----------
    number : int
        From 0, in the order of the points.
    params : dict
        What the objective was given.
    labels : dict
        The same as tables show it: names of options, numbers.
    state : str
        "done"; "stopped" by the rule; or "failed".
    goal : float or None
        The number that the search minimizes or maximizes; None of a failed trial.
    values : dict
        All numbers that the objective returned, and "time" in seconds, measured unless returned.
    reports : list of (int, float)
        What it reported on its way.
    seconds : float
        Its time, start to end.
    error : str
        The traceback of a failure, or the empty text.
    attempts : int
        How often it was started.
    codes : list
        Its point as the journal has it.
    notes : dict
        What the pruner keeps of it.
    """

    number: int
    params: dict[str, Any]
    labels: dict[str, Any]
    state: str
    goal: float | None
    values: Values
    reports: list[tuple[int, float]]
    seconds: float
    error: str = ""
    attempts: int = 1
    codes: list[Code] = field(default_factory=list, repr=False)
    notes: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def cause(self) -> str:
        """The line of the error that says what was raised; empty without an error."""
        # Behind it stand, indented, what was expected and what to try; before it, where it was.
        lines = [line for line in self.error.splitlines() if line and not line[0].isspace()]
        return lines[-1] if lines else ""


class Trial(Mapping[str, Any]):
    """One evaluation of the objective: a mapping of its parameters, and the way to report.

    Attributes
    ----------
    number : int
        Of the trial, from 0.
    seed : int
        A seed of its own, the same whenever and wherever it runs.
    maximize : bool
        Whether more is better, of the goal and of reports.

    Examples
    --------
    >>> import magmagraph as mg
    >>> def objective(trial):
    ...     return (trial["x"] - 3) ** 2
    >>> mg.tune.search(objective, {"x": mg.tune.grid(0, 5)}, method="grid").best.params
    {'x': 3}
    """

    def __init__(
        self,
        assignment: Assignment,
        space: Space,
        *,
        seed: int = 0,
        maximize: bool = False,
    ) -> None:
        self.number = assignment.number
        self.params = space.values_of(assignment.codes)
        sequence = np.random.SeedSequence([seed, self.number, 0])
        self.seed = int(sequence.generate_state(1)[0])
        self.maximize = maximize
        self.reports: list[tuple[int, float]] = []
        self._known = assignment.known
        self._stopping = False

    def __getitem__(self, name: str) -> Any:
        try:
            return self.params[name]
        except KeyError:
            known = ", ".join(map(repr, self.params))
            raise KeyError(f"{name!r} is no parameter of the space, which has {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.params)

    def __len__(self) -> int:
        return len(self.params)

    def __repr__(self) -> str:
        return f"<trial {self.number} of {self.params}>"

    def report(self, step: int, value: float) -> None:
        """Say how good the trial is so far, in the direction of the goal.

        Parameters
        ----------
        step : int
            Such as the epoch; each is larger than the one before.
        value : float
            Such as the loss on held-out examples.

        Raises
        ------
        ConfigError
            If `step` is no int above the last one, or `value` is no number.
        """
        last = self.reports[-1][0] if self.reports else -1
        if not isinstance(step, numbers.Integral) or isinstance(step, bool) or step <= last:
            raise ConfigError(
                message(f"report: step {step!r}", need=f"an int of at least {last + 1}")
            )
        if getattr(value, "shape", None) == ():
            value = np.asarray(value).item()
        if not isinstance(value, numbers.Real):
            raise ConfigError(message(f"report: the value {value!r}", need="a number"))
        self.reports.append((int(step), float(value)))
        if self._known is not None and not self._stopping:
            self._stopping = self._known.stops(self.reports)

    def should_stop(self) -> bool:
        """Return whether the rule of the search would rather try another point."""
        return self._stopping

    def _notes(self) -> dict[str, Any]:
        """Return what the rule keeps of this trial."""
        return {} if self._known is None else self._known.notes()

    def callback(self, monitor: str = "val_loss", mode: str | None = None) -> Report:
        """Return a callback for `Model.fit` that reports each epoch and stops poor trials.

        Parameters
        ----------
        monitor : str
            The number that is reported.
        mode : str, optional
            "min" or "max"; what is better for the metric unless said. Where the search wants the
            other, the reports are the negatives.
        """
        from .callback import Report

        return Report(self, monitor, mode)


def run_trial(objective: Objective, trial: Trial, alone: str) -> Outcome:
    """Run an objective; whatever it raises but an interrupt is a failure of this trial.

    A number that it returns without a name is called `alone`. The last report stands for a
    result that is not returned.
    """
    began = time.perf_counter()
    values: Values = {}
    state, told = "done", ""
    try:
        returned = objective(trial)
        if returned is None and trial.reports:
            returned = trial.reports[-1][1]
        values = measured(returned, time.perf_counter() - began, alone)
        if trial.should_stop():
            state = "stopped"
    except (Exception, SystemExit) as error:
        state, told = "failed", _traceback(error)
    seconds = time.perf_counter() - began
    return Outcome(trial.number, state, values, trial.reports, seconds, told, trial._notes())


def _traceback(error: BaseException) -> str:
    """Return a traceback that begins with the objective's own lines."""
    own = error.__traceback__.tb_next if error.__traceback__ else None
    return "".join(traceback.format_exception(error.with_traceback(own or error.__traceback__)))


def short(value: Any) -> str:
    """Return a value as tables show it."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
