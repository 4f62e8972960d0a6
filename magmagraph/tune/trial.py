"""Trials: the argument of an objective, and its result."""

from __future__ import annotations

import numbers
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..errors import ConfigError, DataError, message
from ..ir.ranks import current, using
from ..model.callbacks import _Watching
from ..model.run import Run
from ..runtime.comm.solo import Solo
from .goal import Values, measured
from .space import Code, Space

__all__ = ["Assignment", "Objective", "Report", "Trial", "TrialResult", "Work", "short"]

Objective = Callable[["Trial"], Any]


class Rule(Protocol):
    """What stops a trial: a pruner, with the earlier trials that it may know."""

    def stops(self, reports: Sequence[tuple[int, float]]) -> bool:
        """Return whether a trial with these reports is to stop."""

    def notes(self) -> dict[str, Any]:
        """Return what it keeps of the trial."""


@dataclass(frozen=True)
class Assignment:
    """A trial that is handed to whoever runs it."""

    number: int
    attempt: int  # how often it has been started before this
    codes: list[Code | None]
    known: Rule | None = None
    notes: dict[str, Any] = field(default_factory=dict)  # such as its parent
    round: int = 0
    resume: Path | None = None
    checkpoint: Path | None = None


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
    goals : list of float, or None
        The numbers that the search minimizes or maximizes; None of a failed trial.
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
        What pruner and method keep of it; in population based training "parent", the trial whose
        checkpoint it went on from.
    """

    number: int
    params: dict[str, Any]
    labels: dict[str, Any]
    state: str
    goals: list[float] | None
    values: Values
    reports: list[tuple[int, float]]
    seconds: float
    error: str = ""
    attempts: int = 1
    codes: list[Code | None] = field(default_factory=list, repr=False)
    notes: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def goal(self) -> float | None:
        """The goal of a search that has one; None of a failed trial.

        Raises
        ------
        DataError
            If the search has several goals.
        """
        if self.goals is None or len(self.goals) == 1:
            return None if self.goals is None else self.goals[0]
        raise DataError(
            message(f"trial {self.number} has {len(self.goals)} goals", hint="trial.goals")
        )

    @property
    def cause(self) -> str:
        """The line of the error that says what was raised; empty without an error."""
        # Indented lines after it say what was expected, those before it where it was raised.
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
        Whether more is better, of the goal (the first, if several) and of reports.
    round : int
        In population based training, how often its population was trained before; else 0.
    resume : Path or None
        In population based training, the checkpoint that it goes on from; None in the first round.
    checkpoint : Path or None
        In population based training, the file that it must write.

    Examples
    --------
    >>> import magmagraph as mg
    >>> def objective(trial):
    ...     return (trial["x"] - 3) ** 2
    >>> mg.tune.search(objective, {"x": mg.tune.grid(0, 5)}, method="grid").best.params
    {'x': 3}
    """

    def __init__(
        self, assignment: Assignment, space: Space, *, seed: int = 0, maximize: bool = False
    ) -> None:
        self.number = assignment.number
        self.params = space.values_of(assignment.codes)
        sequence = np.random.SeedSequence([seed, self.number, 0])
        self.seed = int(sequence.generate_state(1)[0])
        self.maximize = maximize
        self.round, self.resume = assignment.round, assignment.resume
        self.checkpoint = assignment.checkpoint
        self.reports: list[tuple[int, float]] = []
        self._space, self._known = space, assignment.known
        self._stopping = False

    def __getitem__(self, name: str) -> Any:
        if name in self.params:
            return self.params[name]
        if name in self._space:
            raise KeyError(
                f"{name!r} does not exist at {self.params}: its condition does not hold; "
                f"trial.get({name!r}) is None then"
            )
        names = ", ".join(map(repr, self._space))
        raise KeyError(f"{name!r} is no parameter of the space, which has {names}")

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
        return Report(self, monitor, mode)


class Report(_Watching):
    """Report a number of each epoch to a trial, and end the run when the trial is to stop.

    Parameters
    ----------
    trial : Trial
        What the objective was given.
    monitor : str
        The number.
    mode : str, optional
        "min" or "max"; what is better for the metric unless said. Where the search wants the
        other, the reports are the negatives.

    Examples
    --------
    >>> import numpy as np
    >>> import magmagraph as mg
    >>> x = np.linspace(-1, 1, 40, dtype=np.float32)[:, None]
    >>> def objective(trial):
    ...     net = mg.NeuralNetwork([mg.nn.Input((1,)), mg.nn.Dense(1)], loss="mse",
    ...                            optimizer=mg.optimizer.SGD(trial["rate"]), seed=trial.seed)
    ...     callbacks = [mg.tune.Report(trial, "loss")]
    ...     return net.fit(x, 3 * x, epochs=3, callbacks=callbacks).records[-1]["loss"]
    >>> found = mg.tune.search(objective, {"rate": [0.001, 0.3]}, method="grid")
    >>> found.best.params
    {'rate': 0.3}
    >>> [len(trial.reports) for trial in found.trials]
    [3, 3]
    """

    resumes = False

    def __init__(self, trial: Trial, monitor: str = "val_loss", mode: str | None = None) -> None:
        super().__init__(monitor, mode)
        self.trial = trial

    def epoch_end(self, training: Run) -> None:
        """Report the epoch."""
        value = self.value(training)
        same = self.rising(training) == self.trial.maximize
        self.trial.report(training.epoch, value if same else -value)
        if self.trial.should_stop():
            training.stopping = True


@dataclass(frozen=True)
class Work:
    """What whoever runs trials needs to have; it is sent to other processes once."""

    objective: Objective
    space: Space
    seed: int
    maximize: bool
    alone: str

    def run(self, assignment: Assignment) -> TrialResult:
        """Run a trial here, as the only rank that there is; its point and goals come later."""
        trial = Trial(assignment, self.space, seed=self.seed, maximize=self.maximize)
        if current().size == 1:
            return self._run(trial, assignment)
        with using(Solo()):
            return self._run(trial, assignment)

    def _run(self, trial: Trial, assignment: Assignment) -> TrialResult:
        """Run the objective; any exception but an interrupt fails this trial.

        The last report stands for a result that is not returned.
        """
        began = time.perf_counter()
        values: Values = {}
        state, error = "done", ""
        try:
            if trial.resume is not None and not trial.resume.exists():
                raise DataError(
                    message(
                        f"there is no {trial.resume}, from which trial {trial.number} goes on",
                        need="the checkpoints of all earlier trials",
                    )
                )
            if trial.checkpoint is not None:
                trial.checkpoint.unlink(missing_ok=True)  # of an attempt that was interrupted
            returned = self.objective(trial)
            if returned is None and trial.reports:
                returned = trial.reports[-1][1]
            values = measured(returned, time.perf_counter() - began, self.alone)
            if trial.checkpoint is not None and not trial.checkpoint.exists():
                raise ConfigError(
                    message(
                        f"trial {trial.number} has not written {trial.checkpoint}",
                        need="a checkpoint of each trial, from which others go on",
                        hint="fit(callbacks=[mg.callbacks.Checkpoint(trial.checkpoint)])",
                    )
                )
            if trial.should_stop():
                state = "stopped"
        except (Exception, SystemExit) as raised:
            state, error = "failed", _traceback(raised)
        notes = {} if assignment.known is None else assignment.known.notes()
        return TrialResult(
            trial.number, {}, {}, state, None, values, trial.reports, time.perf_counter() - began,
            error, assignment.attempt + 1, assignment.codes, {**assignment.notes, **notes},
        )  # fmt: skip


def _traceback(error: BaseException) -> str:
    """Return a traceback that begins with the objective's own lines."""
    own = error.__traceback__.tb_next if error.__traceback__ else None
    return "".join(traceback.format_exception(error.with_traceback(own or error.__traceback__)))


def short(value: Any) -> str:
    """Return a value as tables show it."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
