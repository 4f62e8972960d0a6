"""Rules that stop poor trials: pruners of optuna, by name or as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError, message

__all__ = ["Halving", "Median", "as_pruner", "described", "whole"]


@dataclass(frozen=True)
class Median:
    """Stop a trial whose best report is worse than the median of finished trials at the step.

    This is ``optuna.pruners.MedianPruner`` (D. Golovin et al., Google Vizier, KDD 2017, section
    3.5.2). A report that is not finite stops a trial at once.

    Parameters
    ----------
    startup : int
        At least so many trials must have come to their end.
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
        whole("Median: ", 1, startup=self.startup)
        whole("Median: ", 0, warmup=self.warmup)


@dataclass(frozen=True)
class Halving:
    """Let the best part of the trials pass each rung, and stop the others there.

    Rungs are the steps first, first x factor, first x factor^2, ... A trial that comes to a rung
    goes on if it is among the best 1/factor of those that are known to have come there, itself
    included. This is ``optuna.pruners.SuccessiveHalvingPruner`` (L. Li et al., MLSys 2020). The
    best so far always goes on.

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
        whole("Halving: ", 1, first=self.first)
        whole("Halving: ", 2, factor=self.factor)


_NAMES = ("median", "halving", "hyperband", "percentile")


def as_pruner(stop: Any) -> Any:
    """Return the pruner of the argument `stop`, None for None.

    Raises
    ------
    ConfigError
        If it is none.
    """
    if stop is None:
        return None
    if type(stop).__module__.partition(".")[0] == "optuna" and hasattr(stop, "prune"):
        return stop
    if not isinstance(stop, (Median, Halving)) and not (isinstance(stop, str) and stop in _NAMES):
        raise ConfigError(
            message(
                f"stop={stop!r}",
                need=f"{', '.join(map(repr, _NAMES))}, mg.tune.Median, mg.tune.Halving or a "
                "pruner of optuna",
                hint='stop="median"',
            )
        )
    from .optuna_parts import optuna, quiet  # optional

    pruner = {"median": Median(), "halving": Halving()}.get(str(stop), stop)
    with quiet():
        if isinstance(pruner, Median):
            return optuna.pruners.MedianPruner(pruner.startup, pruner.warmup)
        if isinstance(pruner, Halving):
            return optuna.pruners.SuccessiveHalvingPruner(pruner.first, pruner.factor)
        if pruner == "hyperband":
            return optuna.pruners.HyperbandPruner()
        return optuna.pruners.PercentilePruner(25.0)


def described(pruner: Any) -> dict[str, Any] | None:
    """Return a pruner's class and settings as JSON holds them."""
    if pruner is None:
        return None
    settings = {
        name: value
        for name, value in sorted(vars(pruner).items())
        if value is None or isinstance(value, (bool, int, float, str))
    }
    return {"kind": type(pruner).__name__, **settings}


def whole(where: str = "", least: int = 1, /, **given: Any) -> None:
    """Raise unless all these arguments are ints of at least so much."""
    for name, number in given.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise ConfigError(
                message(f"{where}{name}={number!r}", need=f"an int of at least {least}")
            )
