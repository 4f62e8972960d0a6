"""Optuna as the search uses it, quiet: its samplers, pruners, studies and distributions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ..errors import ConfigError, message
from .goal import Goal
from .points import Points
from .space import Choice, Code, Domain, Space, Steps, Uniform
from .trial import TrialResult

try:
    import optuna
except ImportError:
    raise ConfigError(
        message(
            "mg.tune needs optuna, which is not installed",
            hint='pip install "magmagraph[tune]"',
        )
    ) from None

__all__ = [
    "Known", "LearnedPoints", "directions_of", "optuna", "quiet", "shown_as", "state_of",
    "study_of",
]  # fmt: skip

_NAME = "magmagraph"  # of studies: some pruners draw their brackets from it
_Reports = Sequence[tuple[int, float]]
_Earlier = tuple[str, float | None, _Reports, dict[str, Any]]

# Methods that learn: the sampler, and the library that it needs besides optuna.
_SAMPLERS: dict[str, tuple[Callable[..., Any], str | None]] = {
    "tpe": (lambda **given: optuna.samplers.TPESampler(constant_liar=True, **given), None),
    "cmaes": (
        lambda **given: optuna.samplers.CmaEsSampler(warn_independent_sampling=False, **given),
        "cmaes",
    ),
    "gp": (lambda **given: optuna.samplers.GPSampler(**given), "torch"),
    "nsga2": (lambda **given: optuna.samplers.NSGAIISampler(**given), None),
}


class LearnedPoints(Points):
    """Points of an optuna sampler, which learns from reported trials.

    The sampler has a study of its own, in memory: it sees trials in the order of their numbers and
    not in that of their ends, so its points do not depend on who runs what.
    """

    def __init__(
        self,
        method: str,
        space: Space,
        goals: Sequence[Goal],
        seed: int,
        population: int | None,
        ahead: int | None,
    ) -> None:
        make, library = _SAMPLERS[method]
        if library is not None and find_spec(library) is None:
            raise ConfigError(
                message(
                    f"method={method!r} needs {library}, which is not installed",
                    hint=f'pip install {library}, or method="tpe"',
                )
            )
        if method == "cmaes" and len(goals) > 1:
            raise ConfigError(
                message(
                    f"method='cmaes' with {len(goals)} goals",
                    need="'nsga2', 'tpe', 'gp', 'random' or 'grid' for a Pareto front",
                    hint='method="nsga2", or weights: minimize={"loss": 1.0, "time": 0.1}',
                )
            )
        settings = {"seed": seed} if population is None else {
            "seed": seed, "population_size": population}  # fmt: skip
        self.space, self._ahead, self._reports = space, ahead, len(goals) == 1
        with quiet():
            self._study = study_of(goals, sampler=make(**settings))
        self._asked: dict[int, Any] = {}

    def needs(self, number: int) -> int | None:
        """Return the trial up to which all must have ended; None waits for none."""
        return None if self._ahead is None else number - self._ahead

    def draw(self, number: int) -> list[Code | None]:
        """Ask for the point of a trial, a parameter after the other."""
        with quiet():
            trial = self._asked[number] = self._study.ask()
            return self.space.build(lambda name, domain: _suggested(trial, name, domain))

    def replay(self, number: int, codes: Sequence[Code | None]) -> None:
        """Take a point of the journal: ask again, so that the sampler goes on as it would have.

        Raises
        ------
        ConfigError
            If the sampler now draws another point.
        """
        if self._ahead is None:
            pairs = zip(self.space, codes, strict=True)
            with quiet():
                self._study.enqueue_trial({name: code for name, code in pairs if code is not None})
                self.draw(number)
        elif (point := self.draw(number)) != list(codes):
            raise ConfigError(
                message(
                    f"trial {number} of the journal is at {self.space.labels_of(codes)}, and here "
                    f"the method draws {self.space.labels_of(point)}",
                    need=f"the version of optuna that wrote it; this is {optuna.__version__}",
                )
            )

    def tell(self, result: TrialResult) -> None:
        """Report the result of a trial, once."""
        trial = self._asked.pop(result.number, None)
        if trial is None:
            return
        state = state_of(result.state)
        with quiet():
            if self._reports:  # optuna takes none in searches of several goals
                for step, value in result.reports:
                    trial.report(value, step)
            done = state is optuna.trial.TrialState.COMPLETE
            self._study.tell(trial, result.goals if done else None, state=state)


@dataclass
class Known:
    """A pruner and the earlier trials that it may know: (state, goal, reports, notes) by number.

    It travels with the trial, whose process decides: no trial waits for a message.
    """

    pruner: Any
    number: int
    trials: Mapping[int, _Earlier]
    maximize: bool
    _trial: Any = None

    def stops(self, reports: _Reports) -> bool:
        """Return whether a trial with these reports is to stop, of which the last is new."""
        step, value = reports[-1]
        if not math.isfinite(value):
            return True
        with quiet():
            if self._trial is None:
                self._trial = self._started()
            self._trial.report(value, step)
            return bool(self._trial.should_prune())

    def notes(self) -> dict[str, Any]:
        """Return what the pruner has noted on the trial, such as its rungs."""
        if self._trial is None:
            return {}
        return dict(self._trial.study.trials[self._trial.number].system_attrs)

    def _started(self) -> Any:
        sampler, goals = optuna.samplers.RandomSampler(seed=0), [Goal("goal", self.maximize)]
        study = study_of(goals, pruner=self.pruner, sampler=sampler)
        unknown: _Earlier = ("failed", None, (), {})  # it holds the place: pruners look at numbers
        for number in range(self.number):
            name, value, reports, notes = self.trials.get(number, unknown)
            study.add_trial(
                optuna.trial.create_trial(
                    state=state_of(name),
                    value=value if name == "done" else None,
                    intermediate_values={s: v for s, v in reports if math.isfinite(v)},
                    system_attrs=notes,
                )
            )
        return study.ask()


def study_of(goals: Sequence[Goal], **parts: Any) -> Any:
    """Return a study in memory."""
    return optuna.create_study(study_name=_NAME, directions=directions_of(goals), **parts)


def directions_of(goals: Sequence[Goal]) -> list[Any]:
    """Return optuna's directions of some goals."""
    up, down = optuna.study.StudyDirection.MAXIMIZE, optuna.study.StudyDirection.MINIMIZE
    return [up if goal.maximize else down for goal in goals]


def state_of(name: str) -> Any:
    """Return optuna's state of a trial that has ended."""
    states = optuna.trial.TrialState
    return {"done": states.COMPLETE, "stopped": states.PRUNED, "failed": states.FAIL}[name]


def _suggested(trial: Any, name: str, domain: Domain) -> Code:
    """Return the code that a trial of optuna draws."""
    if isinstance(domain, Uniform):
        return float(trial.suggest_float(name, domain.low, domain.high, log=domain.logarithmic))
    if isinstance(domain, Steps):
        return int(trial.suggest_int(name, 0, domain.size - 1))
    return int(trial.suggest_categorical(name, range(domain.size)))


def shown_as(space: Space, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the distributions of the values of some parameters, for dashboards and charts."""
    return {name: _distribution(space[name]) for name in names}


def _distribution(domain: Domain) -> Any:
    if isinstance(domain, Choice):
        return optuna.distributions.CategoricalDistribution(domain.names)
    if isinstance(domain, Uniform):
        low, high, log = domain.low, domain.high, domain.logarithmic
        return optuna.distributions.FloatDistribution(low, high, log=log)
    first, last, log = domain.value(0), domain.value(domain.size - 1), domain.factor is not None
    if isinstance(first, int) and isinstance(last, int):
        step = 1 if log or domain.step is None else int(domain.step)
        return optuna.distributions.IntDistribution(first, last, log=log, step=step)
    return optuna.distributions.FloatDistribution(first, last, log=log)


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out the lines that optuna logs of each trial, and warnings of its young options."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
