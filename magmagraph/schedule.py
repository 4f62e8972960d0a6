"""Learning rates as functions of the step.

A schedule is a function from the step, an int64 scalar node that counts from 0, to the rate, a
float scalar node. Any such function of your own will do; those made here also know their value
on the host (`Schedule.at`). `plateau` alone is driven from outside: it reacts to a metric.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .config import config
from .errors import ConfigError, message
from .graph import Node, freeze
from .interpret import evaluate
from .ops.comparison import less, minimum
from .ops.convert import as_node, cast
from .ops.elementwise import add, divide, floor_divide, multiply, power, subtract
from .ops.leaf import Variable, variable
from .ops.leaf import constant as _constant
from .ops.math import cos

__all__ = [
    "Plateau",
    "Schedule",
    "at",
    "constant",
    "cosine",
    "exponential",
    "plateau",
    "step",
    "warmup",
]

Rate = Callable[[Node], Any]


class Schedule:
    """A rate as a function of the step.

    Parameters
    ----------
    rule : callable
        From the step (int64 scalar node, counting from 0) to the rate (float scalar node).
    text : str
        How it was made, for printing.

    Examples
    --------
    >>> import magmagraph as mg
    >>> halving = mg.schedule.Schedule(lambda step: 0.5 ** mg.cast(step, "float32"), "halving")
    >>> halving.at(3)
    0.125
    """

    __slots__ = ("rule", "text")

    def __init__(self, rule: Rate, text: str = "") -> None:
        self.rule = rule
        self.text = text

    def __call__(self, step: Node) -> Node:
        """Return the rate as a node, of dtype `mg.config.float_dtype` or wider."""
        return as_node(self.rule(step))

    def at(self, step: int) -> float:
        """Return the rate at a step as a number, without compiling anything.

        Parameters
        ----------
        step : int
            Counted from 0.
        """
        return at(self, step)

    def __repr__(self) -> str:
        return f"<schedule {self.text}>"


def at(rate: Rate, step: int) -> float:
    """Return the value of a schedule, or of any function of the step, at a step.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.schedule.at(lambda step: mg.cast(step, "float32") * 0.25, 2)
    0.5
    """
    node = as_node(rate(_constant(step, dtype=np.int64)))
    graph = freeze([], [node])
    return float(evaluate(graph, {}, {})[graph.outputs[0]])


def _real(step: Node) -> Node:
    return cast(step, config.float_dtype)


def _positive(who: str, **values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ConfigError(message(f"{who}: {name}={value}", need=f"{name} > 0"))


def constant(rate: float) -> Schedule:
    """Keep one rate: ``rate(t) = rate``.

    Parameters
    ----------
    rate : float

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.schedule.constant(0.5).at(100)
    0.5
    """
    held = float(rate)
    return Schedule(lambda step: _constant(held), f"constant({held:g})")


def step(rate: float, every: int, factor: float = 0.1) -> Schedule:
    """Multiply the rate by a factor every so many steps: ``rate * factor**floor(t / every)``.

    Parameters
    ----------
    rate : float
        At step 0.
    every : int
        Steps between two changes.
    factor : float, optional

    Raises
    ------
    ConfigError
        Where `every` or `factor` is not positive.

    Examples
    --------
    >>> import magmagraph as mg
    >>> rate = mg.schedule.step(1.0, every=10, factor=0.5)
    >>> rate.at(9), rate.at(10), rate.at(25)
    (1.0, 0.5, 0.25)
    """
    _positive("step", every=every, factor=factor)
    period = int(every)

    def rule(count: Node) -> Node:
        return multiply(power(float(factor), _real(floor_divide(count, period))), float(rate))

    return Schedule(rule, f"step({rate:g}, every={every}, factor={factor:g})")


def exponential(rate: float, decay: float, every: float = 1) -> Schedule:
    """Let the rate decay without steps: ``rate * decay**(t / every)``.

    Parameters
    ----------
    rate : float
        At step 0.
    decay : float
        The factor over `every` steps.
    every : float, optional

    Raises
    ------
    ConfigError
        Where `decay` or `every` is not positive.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.schedule.exponential(1.0, 0.25, every=2).at(1)
    0.5
    """
    _positive("exponential", decay=decay, every=every)

    def rule(count: Node) -> Node:
        return multiply(power(float(decay), divide(_real(count), float(every))), float(rate))

    return Schedule(rule, f"exponential({rate:g}, {decay:g}, every={every:g})")


def cosine(rate: float, steps: int, final: float = 0.0) -> Schedule:
    """Follow half a cosine down to a final rate, and stay there.

    ``final + (rate - final) * (1 + cos(pi * min(t, steps) / steps)) / 2``
    (Loshchilov and Hutter 2017, equation 5, without restarts).

    Parameters
    ----------
    rate : float
        At step 0.
    steps : int
        The step from which on the rate is `final`.
    final : float, optional

    Raises
    ------
    ConfigError
        Where `steps` is not positive.

    Examples
    --------
    >>> import magmagraph as mg
    >>> rate = mg.schedule.cosine(1.0, steps=100, final=0.5)
    >>> rate.at(0), rate.at(50), rate.at(1000)
    (1.0, 0.75, 0.5)
    """
    _positive("cosine", steps=steps)

    def rule(count: Node) -> Node:
        turn = multiply(_real(minimum(count, int(steps))), math.pi / int(steps))
        half = multiply(add(cos(turn), 1.0), 0.5 * (float(rate) - float(final)))
        return add(half, float(final))

    return Schedule(rule, f"cosine({rate:g}, steps={steps}, final={final:g})")


def warmup(steps: int, then: Rate | float, start: float = 0.0) -> Schedule:
    """Rise linearly to a rate, then follow another schedule from its beginning.

    ``start + (then(0) - start) * t / steps`` for ``t < steps``, and ``then(t - steps)`` from there.

    Parameters
    ----------
    steps : int
        How long it rises.
    then : Schedule, callable or float
        What follows.
    start : float, optional
        The rate at step 0.

    Raises
    ------
    ConfigError
        Where `steps` is not positive.

    Examples
    --------
    >>> import magmagraph as mg
    >>> rate = mg.schedule.warmup(4, mg.schedule.step(1.0, every=10, factor=0.5))
    >>> [rate.at(t) for t in (0, 1, 2, 4, 13, 14)]
    [0.0, 0.25, 0.5, 1.0, 1.0, 0.5]
    """
    from .ops.comparison import where

    _positive("warmup", steps=steps)
    following: Rate = then if callable(then) else constant(then)

    def rule(count: Node) -> Node:
        late = as_node(following(subtract(count, int(steps))))
        peak = as_node(following(_constant(0, dtype=np.int64)))
        part = multiply(_real(minimum(count, int(steps))), 1.0 / int(steps))
        rising = add(multiply(subtract(peak, float(start)), part), float(start))
        return where(less(count, int(steps)), rising, late)

    return Schedule(rule, f"warmup({steps}, {then!r}, start={start:g})")


class Plateau:
    """A rate that falls when a metric stops improving; made by `plateau`.

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
        self.variable: Variable = variable("learning_rate", init=float(rate))
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


def plateau(
    rate: float,
    factor: float = 0.1,
    patience: int = 10,
    mode: str = "min",
    threshold: float = 1e-4,
    cooldown: int = 0,
    minimum: float = 0.0,
) -> Plateau:
    """Lower the rate when a metric has stopped improving.

    The rate becomes ``max(rate * factor, minimum)`` at the first report after `patience` reports
    without improvement. It is no function of the step: call `Plateau.report(metric)`, after every
    epoch, say.

    Parameters
    ----------
    rate : float
        The rate at the beginning.
    factor : float, optional
        Between 0 and 1.
    patience : int, optional
        How many reports without improvement are put up with.
    mode : {"min", "max"}, optional
        Whether a smaller or a larger metric is better.
    threshold : float, optional
        An improvement is at least this part of the best metric's magnitude.
    cooldown : int, optional
        Reports after a change that do not count.
    minimum : float, optional
        The rate never falls below this.

    Raises
    ------
    ConfigError
        Where `mode` or `factor` is not one of these.

    Examples
    --------
    >>> import magmagraph as mg
    >>> rate = mg.schedule.plateau(0.5, factor=0.5, patience=1)
    >>> [rate.report(loss) for loss in (1.0, 0.9, 0.9, 0.9)], rate.rate
    ([False, False, False, True], 0.25)
    """
    return Plateau(rate, factor, patience, mode, threshold, cooldown, minimum)
