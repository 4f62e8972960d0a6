"""A rate that falls when a metric stops improving."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .errors import ConfigError, message
from .ops.leaf import Variable, variable


class Plateau:
    """A rate that falls when a metric stops improving; made by `mg.schedule.plateau`.

    Attributes
    ----------
    variable
        The rate's variable, which the optimizer reads.
    best
        The best metric so far, or None.
    waited
        Reports since the best one.
    """

    def __init__(
        self,
        rate: float,
        factor: float,
        patience: int,
        mode: str,
        threshold: float,
        cooldown: int,
        minimum: float,
    ) -> None:
        if mode not in ("min", "max"):
            raise ConfigError(message(f"plateau: mode={mode!r}", need="'min' or 'max'"))
        if not 0 < factor < 1:
            raise ConfigError(message(f"plateau: factor={factor}", need="0 < factor < 1"))
        self.variable: Variable = variable("learning_rate", init=float(rate), dtype="float64")
        self.factor, self.patience, self.mode = factor, patience, mode
        self.threshold, self.cooldown, self.minimum = threshold, cooldown, minimum
        self.best: float | None = None
        self.waited = 0
        self.resting = 0

    @property
    def rate(self) -> float:
        """The present rate."""
        return float(self.variable.value)

    def report(self, metric: float) -> bool:
        """Take note of a metric; return True where the rate was lowered for it."""
        value = float(metric)
        margin = self.threshold * abs(self.best) if self.best is not None else 0.0
        better = self.best is None or (
            value < self.best - margin if self.mode == "min" else value > self.best + margin
        )
        if better and not math.isnan(value):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        if self.resting > 0:
            self.resting -= 1
            self.waited = 0
            return False
        if self.waited <= self.patience:
            return False
        self.waited, self.resting = 0, self.cooldown
        before = self.rate
        self.variable.value = max(before * self.factor, self.minimum)
        return self.rate < before

    def state_dict(self) -> dict[str, Any]:
        """Return what it remembers, for `load_state_dict`."""
        return {
            "rate": self.rate,
            "best": self.best,
            "waited": self.waited,
            "resting": self.resting,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.variable.value = float(saved["rate"])
        self.best = saved["best"]
        self.waited = int(saved["waited"])
        self.resting = int(saved["resting"])

    def __repr__(self) -> str:
        return f"<schedule plateau, rate {self.rate:g}, best {self.best}>"
