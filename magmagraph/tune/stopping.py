"""Rules that stop poor trials: what is known when a trial starts decides, where the trial runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import ConfigError, message

__all__ = ["Halving", "Known", "Median", "Never", "Reports", "Rule"]

Reports = Sequence[tuple[int, float]]


class Known(Protocol):
    """What a rule knows of the trials before one; it travels with that trial."""

    def stops(self, reports: Reports) -> bool:
        """Return whether a trial with these reports is to stop, of which the last is new."""

    def notes(self) -> dict[str, Any]:
        """Return what the rule has to keep of this trial, beside its reports, for later ones."""


class Rule(Protocol):
    """A rule that stops poor trials."""

    def known(self, earlier: Sequence[Any], maximize: bool) -> Known:
        """Return what is known of the trials that have ended, as the next one takes it along."""

    def describe(self) -> dict[str, Any] | None:
        """Return the rule as JSON holds it."""


@dataclass(frozen=True)
class Never:
    """The rule, and what is known of it, that stops none."""

    def known(self, earlier: Sequence[Any], maximize: bool) -> Known:
        """Return itself."""
        return self

    def stops(self, reports: Reports) -> bool:
        """Let it go on."""
        return False

    def notes(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def describe(self) -> None:
        """Return nothing."""


class _Reported:
    """A rule to which reports say all."""

    def notes(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class _Thresholds(_Reported):
    """Costs by step above which a trial stops."""

    limits: dict[int, float]
    maximize: bool

    def stops(self, reports: Reports) -> bool:
        step, value = reports[-1]
        if not math.isfinite(value):
            return True
        best = min(_costs(reports, self.maximize))
        return best > self.limits.get(step, math.inf)


@dataclass(frozen=True)
class Median:
    """Stop a trial whose best report is worse than the median of the others' running averages.

    At a step, the others are the trials that are known and have reported at it (D. Golovin et al.,
    Google Vizier, KDD 2017, section 3.5.2). A report that is not finite stops a trial at once.

    Parameters
    ----------
    startup : int
        At least so many others must have reported at the step.
    warmup : int
        Nothing stops before this step.

    Raises
    ------
    ConfigError
        If `startup` is below 1 or `warmup` below 0.

    Examples
    --------
    >>> import magmagraph as mg
    >>> def objective(trial):
    ...     for epoch in range(1, 10):
    ...         trial.report(epoch, trial["rate"] / epoch)
    ...         if trial.should_stop():
    ...             break
    ...     return trial["rate"] / epoch
    >>> found = mg.tune.search(objective, {"rate": [1, 2, 3, 4, 5, 6]}, method="grid",
    ...                        stop=mg.tune.Median(startup=2), ahead=1)
    >>> [trial.state for trial in found.trials]
    ['done', 'done', 'stopped', 'stopped', 'stopped', 'stopped']
    """

    startup: int = 5
    warmup: int = 0

    def __post_init__(self) -> None:
        _whole("Median", startup=(self.startup, 1), warmup=(self.warmup, 0))

    def known(self, earlier: Sequence[Any], maximize: bool) -> Known:
        """Return the medians by step."""
        averages: dict[int, list[float]] = {}
        for trial in earlier:
            total = 0.0
            for count, (step, cost) in enumerate(_by_step(trial.reports, maximize), 1):
                total += cost
                averages.setdefault(step, []).append(total / count)
        limits = {
            step: statistics.median(found)
            for step, found in averages.items()
            if len(found) >= self.startup and step >= self.warmup
        }
        return _Thresholds(limits, maximize)

    def describe(self) -> dict[str, Any]:
        """Return its settings."""
        return {"kind": "median", "startup": self.startup, "warmup": self.warmup}


@dataclass(frozen=True)
class Halving:
    """Let the best part of the trials pass each rung, and stop the others there.

    Rungs are the steps first, first x factor, first x factor^2, ... A trial that comes to a rung
    goes on if it is among the best 1/factor of those that are known to have come there, itself
    included (K. Jamieson and A. Talwalkar, AISTATS 2016; asynchronous form of L. Li et al.,
    MLSys 2020, with stopping in the place of pausing). The best so far always goes on.

    Parameters
    ----------
    first : int
        The first rung.
    factor : int
        One of so many passes.

    Raises
    ------
    ConfigError
        If `first` is below 1 or `factor` below 2.

    Examples
    --------
    >>> import magmagraph as mg
    >>> def objective(trial):
    ...     for epoch in range(1, 10):
    ...         trial.report(epoch, trial["rate"] / epoch)
    ...         if trial.should_stop():
    ...             break
    ...     return trial["rate"] / epoch
    >>> found = mg.tune.search(objective, {"rate": [3, 1, 2, 4]}, method="grid",
    ...                        stop=mg.tune.Halving(first=2, factor=2), ahead=1)
    >>> [(trial.state, len(trial.reports)) for trial in found.trials]
    [('done', 9), ('done', 9), ('stopped', 2), ('stopped', 2)]
    """

    first: int = 1
    factor: int = 3

    def __post_init__(self) -> None:
        _whole("Halving", first=(self.first, 1), factor=(self.factor, 2))

    def known(self, earlier: Sequence[Any], maximize: bool) -> Known:
        """Return the cost at each rung that is just good enough."""
        arrived: dict[int, list[float]] = {}
        for trial in earlier:
            for rung, cost in self.arrivals(trial.reports, maximize):
                arrived.setdefault(rung, []).append(cost)
        limits = {}
        for rung, costs in arrived.items():
            passing = max(1, (len(costs) + 1) // self.factor)
            limits[rung] = sorted(costs)[passing - 1]
        return _Rungs(self, limits, maximize)

    def arrivals(self, reports: Reports, maximize: bool) -> Iterable[tuple[int, float]]:
        """Yield each rung that was come to, and the cost with which."""
        rung = self.first
        for step, cost in _by_step(reports, maximize):
            while step >= rung:
                yield rung, cost
                rung *= self.factor

    def describe(self) -> dict[str, Any]:
        """Return its settings."""
        return {"kind": "halving", "first": self.first, "factor": self.factor}


@dataclass(frozen=True)
class _Rungs(_Reported):
    """Costs by rung above which a trial stops."""

    rule: Halving
    limits: dict[int, float]
    maximize: bool

    def stops(self, reports: Reports) -> bool:
        if not math.isfinite(reports[-1][1]):
            return True
        before = {rung for rung, _ in self.rule.arrivals(reports[:-1], self.maximize)}
        return any(
            cost > self.limits.get(rung, math.inf)
            for rung, cost in self.rule.arrivals(reports, self.maximize)
            if rung not in before
        )


def _by_step(reports: Reports, maximize: bool) -> list[tuple[int, float]]:
    steps = [step for step, _ in reports]
    return list(zip(steps, _costs(reports, maximize), strict=True))


def _costs(reports: Reports, maximize: bool) -> list[float]:
    """Return reports such that less is better; the worst where they are not finite."""
    return [
        (-value if maximize else value) if math.isfinite(value) else math.inf
        for _, value in reports
    ]


def _whole(name: str, **given: tuple[Any, int]) -> None:
    for key, (number, least) in given.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise ConfigError(
                message(f"{name}: {key}={number!r}", need=f"an int of at least {least}")
            )
