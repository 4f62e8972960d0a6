"""Optuna as the search uses it, quiet: its samplers, studies, distributions and states."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from ..errors import ConfigError, message
from .domains import Choice, Code, Domain, Steps, Uniform
from .space import Space

try:
    import optuna
except ImportError:
    raise ConfigError(
        message(
            "mg.tune needs optuna, which is not installed",
            hint='pip install "magmagraph[tune]"',
        )
    ) from None

__all__ = ["SAMPLERS", "LearnedPoints", "codes_drawn", "optuna", "quiet", "shown_as", "state_of"]

_NAME = "magmagraph"  # of studies: some pruners draw their brackets from it

# Methods that learn, and the library that each needs besides optuna.
SAMPLERS: dict[str, tuple[Callable[[int], Any], str | None]] = {
    "tpe": (lambda seed: optuna.samplers.TPESampler(seed=seed, constant_liar=True), None),
    "cmaes": (lambda seed: optuna.samplers.CmaEsSampler(seed=seed), "cmaes"),
    "gp": (lambda seed: optuna.samplers.GPSampler(seed=seed), "torch"),
    "nsga2": (lambda seed: optuna.samplers.NSGAIISampler(seed=seed), None),
}


class LearnedPoints:
    """Points of a sampler of optuna, which learns from the trials that it is told.

    The sampler has a study of its own, in memory: it sees trials in the order of their numbers and
    not in that of their ends, so its points do not depend on who runs what.
    """

    total: int | None = None
    learns = True

    def __init__(self, method: str, space: Space, seed: int, maximize: bool, exact: bool) -> None:
        make, library = SAMPLERS[method]
        if library is not None and find_spec(library) is None:
            raise ConfigError(
                message(
                    f"method={method!r} needs {library}, which is not installed",
                    hint=f'pip install {library}, or method="tpe"',
                )
            )
        self.space, self._exact = space, exact
        self._domains = {name: codes_drawn(domain) for name, domain in space.items()}
        with quiet():
            self._study = new_study(maximize, sampler=make(seed))
        self._asked: dict[int, Any] = {}

    def draw(self, number: int) -> list[Code]:
        """Ask for the point of a trial."""
        with quiet():
            trial = self._asked[number] = self._study.ask(self._domains)
        return [
            float(code) if self.space[name].size is None else int(code)
            for name, code in ((name, trial.params[name]) for name in self.space)
        ]

    def replay(self, number: int, codes: Sequence[Code]) -> None:
        """Take a point of the journal: ask again, so that the sampler goes on as it would have.

        Raises
        ------
        ConfigError
            If the sampler now draws another point.
        """
        if not self._exact:
            with quiet():
                self._study.enqueue_trial(dict(zip(self.space, codes, strict=True)))
                self._asked[number] = self._study.ask(self._domains)
        elif (drawn := self.draw(number)) != list(codes):
            raise ConfigError(
                message(
                    f"trial {number} of the journal is at {self.space.labels_of(codes)}, and here "
                    f"the method draws {self.space.labels_of(drawn)}",
                    need=f"the version of optuna that wrote it; this is {optuna.__version__}",
                )
            )

    def tell(self, found: Any) -> None:
        """Tell what came of a trial, once."""
        trial = self._asked.pop(found.number, None)
        if trial is None:
            return
        for step, value in found.reports:
            trial.report(value, step)
        state = state_of(found.state)
        value = found.goal if state is optuna.trial.TrialState.COMPLETE else None
        with quiet():
            self._study.tell(trial, value, state=state)


def new_study(maximize: bool, **parts: Any) -> Any:
    """Return a study in memory."""
    return optuna.create_study(
        study_name=_NAME, direction="maximize" if maximize else "minimize", **parts
    )


def state_of(name: str) -> Any:
    """Return optuna's state of a trial that has ended."""
    states = optuna.trial.TrialState
    return {"done": states.COMPLETE, "stopped": states.PRUNED, "failed": states.FAIL}[name]


def codes_drawn(domain: Domain) -> Any:
    """Return the distribution that codes of a domain are drawn from."""
    if isinstance(domain, Uniform):
        return optuna.distributions.FloatDistribution(
            domain.low, domain.high, log=domain.logarithmic
        )
    assert domain.size is not None
    if isinstance(domain, Steps):
        return optuna.distributions.IntDistribution(0, domain.size - 1)
    return optuna.distributions.CategoricalDistribution(range(domain.size))


def shown_as(domain: Domain) -> Any:
    """Return the distribution that holds the values of a domain, for dashboards and charts."""
    if isinstance(domain, Uniform):
        return codes_drawn(domain)
    if isinstance(domain, Choice):
        return optuna.distributions.CategoricalDistribution(domain.names)
    assert isinstance(domain, Steps)
    low, high = domain.value(0), domain.value(domain.count - 1)
    log = domain.factor is not None
    if isinstance(low, int) and isinstance(high, int):
        step = 1 if log or domain.step is None else int(domain.step)
        return optuna.distributions.IntDistribution(low, high, log=log, step=step)
    return optuna.distributions.FloatDistribution(low, high, log=log)


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
