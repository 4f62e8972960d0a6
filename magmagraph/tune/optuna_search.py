"""TPE and pruners of optuna, asked and told: the only file that imports it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ConfigError, message
from .domains import Code, Domain, Steps, Uniform
from .goal import Goal
from .space import Space
from .stopping import Known, Reports

try:
    import optuna
except ImportError:
    raise ConfigError(
        message(
            "method='tpe' needs optuna, which is not installed",
            hint='pip install "magmagraph[tune]", or method="random"',
        )
    ) from None

__all__ = ["Pruner", "TpePoints"]

_NAME = "magmagraph"  # of studies: some pruners draw their brackets from it


class TpePoints:
    """Points of a tree-structured Parzen estimator (J. Bergstra et al., NIPS 2011)."""

    total: int | None = None
    learns = True

    def __init__(self, space: Space, seed: int, goal: Goal) -> None:
        self.space, self.seed = space, seed
        self._domains = {name: _distribution(domain) for name, domain in space.items()}
        self._study = _study(goal.maximize)
        self._asked: dict[int, Any] = {}

    def draw(self, number: int) -> list[Code]:
        """Ask; the sampler is seeded anew for each trial, so that none depends on a stream."""
        words = np.random.SeedSequence([self.seed, number, 1]).generate_state(1)
        # Trials that are running count as bad ones, so that the next ones keep away from them.
        with _quiet():
            self._study.sampler = optuna.samplers.TPESampler(seed=int(words[0]), constant_liar=True)
            trial = self._asked[number] = self._study.ask(self._domains)
        return [
            float(code) if self.space[name].size is None else int(code)
            for name, code in ((name, trial.params[name]) for name in self.space)
        ]

    def replay(self, number: int, codes: Sequence[Code]) -> None:
        """Ask for a point that is known already."""
        with _quiet():
            self._study.enqueue_trial(dict(zip(self.space, codes, strict=True)))
            self._asked[number] = self._study.ask(self._domains)

    def tell(self, found: Any) -> None:
        """Tell what came of a trial."""
        trial = self._asked.pop(found.number)
        for step, value in found.reports:
            trial.report(value, step)
        state = _state(found.state)
        value = found.goal if state is optuna.trial.TrialState.COMPLETE else None
        self._study.tell(trial, value, state=state)


@dataclass(frozen=True)
class Pruner:
    """A pruner of optuna as a rule that stops trials."""

    pruner: Any

    def known(self, earlier: Sequence[Any], maximize: bool) -> Known:
        """Return the earlier trials, of which a study is made where the trial runs."""
        trials = [(t.state, t.goal, t.reports, t.notes) for t in earlier]
        return _KnownTrials(self.pruner, trials, maximize)

    def describe(self) -> dict[str, Any]:
        """Return its class and its settings."""
        settings = {
            name: value
            for name, value in sorted(vars(self.pruner).items())
            if value is None or isinstance(value, (bool, int, float, str))
        }
        return {"kind": f"optuna.{type(self.pruner).__name__}", **settings}


@dataclass
class _KnownTrials:
    """The earlier trials: (state, goal, reports, notes)."""

    pruner: Any
    trials: list[tuple[str, float | None, Reports, dict[str, Any]]]
    maximize: bool
    _trial: Any = None

    def stops(self, reports: Reports) -> bool:
        step, value = reports[-1]
        if not math.isfinite(value):
            return True
        with _quiet():
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
        study = _study(self.maximize, self.pruner)
        for name, goal, reports, notes in self.trials:
            state = _state(name)
            study.add_trial(
                optuna.trial.create_trial(
                    state=state,
                    value=goal if state is optuna.trial.TrialState.COMPLETE else None,
                    intermediate_values={s: v for s, v in reports if math.isfinite(v)},
                    system_attrs=notes,
                )
            )
        return study.ask()


def _study(maximize: bool, pruner: Any = None) -> Any:
    with _quiet():
        return optuna.create_study(
            study_name=_NAME,
            direction="maximize" if maximize else "minimize",
            pruner=pruner or optuna.pruners.NopPruner(),
            sampler=None if pruner is None else optuna.samplers.RandomSampler(seed=0),
        )


def _state(name: str) -> Any:
    states = optuna.trial.TrialState
    return {"done": states.COMPLETE, "stopped": states.PRUNED, "failed": states.FAIL}[name]


def _distribution(domain: Domain) -> Any:
    """Return what optuna draws codes from."""
    if isinstance(domain, Uniform):
        return optuna.distributions.FloatDistribution(
            domain.low, domain.high, log=domain.logarithmic
        )
    assert domain.size is not None
    if isinstance(domain, Steps):
        return optuna.distributions.IntDistribution(0, domain.size - 1)
    return optuna.distributions.CategoricalDistribution(range(domain.size))


class _quiet(warnings.catch_warnings):  # noqa: N801 - reads as a statement
    """Without the lines that optuna logs of each trial, and warnings about its young options."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        self._level = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def __exit__(self, *error: Any) -> None:
        optuna.logging.set_verbosity(self._level)
        super().__exit__(*error)
