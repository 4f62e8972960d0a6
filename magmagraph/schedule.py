"""Learning rates as functions of the step.

A schedule is a function from the step, an int64 scalar node that counts from 0, to the rate, a
float scalar node. Any such function of your own will do; those made here also know their value
on the host (`Schedule.at`). `plateau` alone is driven from outside: it reacts to a metric.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from .config import config
from .errors import ConfigError, message
from .ir.docstrings import documented
from .ir.graph import Node, freeze
from .ir.interpret import evaluate
from .ir.records import record
from .ops.convert import as_node, cast
from .ops.elementwise.arithmetic import add, divide, floor_divide, multiply, subtract
from .ops.elementwise.comparison import less, less_equal, maximum, minimum, where
from .ops.elementwise.math import cos, log, power, sqrt
from .ops.elementwise.rounding import floor, rint
from .ops.leaf import Variable, variable
from .ops.leaf import constant as _constant

__all__ = [
    "Plateau",
    "Schedule",
    "at",
    "constant",
    "cosine",
    "cosine_restarts",
    "exponential",
    "inverse_sqrt",
    "one_cycle",
    "plateau",
    "polynomial",
    "step",
    "warmup",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> NoReturn:
    from .help.spellings import missing

    raise missing(__name__, name)


Rate = Callable[[Node], Any]

_FLOAT64 = np.dtype(np.float64)


class Schedule:
    """A rate as a function of the step: the base of those that are made here.

    Subclasses have one method, ``rule``. They hold numbers only, so that they print, compare and
    pickle.

    Examples
    --------
    >>> import magmagraph as mg
    >>> class Halving(mg.schedule.Schedule):
    ...     def rule(self, step):
    ...         return 0.5 ** mg.cast(step, "float32")
    >>> Halving().at(3)
    0.125
    """

    def rule(self, step: Node) -> Node:
        """Return the rate, a float scalar node, at a step, an int64 scalar node from 0."""
        raise NotImplementedError(f"{type(self).__name__} has no rule")

    def __call__(self, step: Node) -> Node:
        """Return the rate as a node."""
        return as_node(self.rule(step))

    def at(self, step: int) -> float:
        """Return the rate at a step, counted from 0, as a number; nothing is compiled."""
        return at(self, step)


@documented
def at(rate: Rate, step: int) -> float:
    """Return the value of a schedule, or of any function of the step, at a step.

    rate: A schedule, a number, or a function from the node of the step to a node.
    step: The number of the step, from 0.

    >>> mg.schedule.at(lambda step: mg.cast(step, "float32") * 0.25, 2)
    0.5
    """
    node = exact_rate(rate, _constant(step, dtype=np.int64))
    graph = freeze([], [node])
    return float(evaluate(graph, {}, {})[graph.outputs[0]])


def exact_rate(rate: Rate, step: Node) -> Node:
    """Return a rate at a step with all the digits that its function gives.

    Schedules of this module are computed in float64 and rounded once, to the dtype that the rate
    meets: that of an optimizer's variables, or `config.float_dtype` where the schedule is called.
    """
    if isinstance(rate, _Numbers):
        return rate.exact(step)
    return as_node(rate(step), _FLOAT64)


def _real(step: Node) -> Node:
    return cast(step, _FLOAT64)


class _Numbers(Schedule):
    """A schedule that is computed of Python numbers, in float64."""

    def exact(self, step: Node) -> Node:
        """Return the rate at a step in float64."""
        raise NotImplementedError(f"{type(self).__name__} has no rule")

    def rule(self, step: Node) -> Node:
        """Return the rate at a step."""
        return cast(self.exact(step), config.float_dtype)


def _positive(who: str, **values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ConfigError(message(f"{who}: {name}={value}", need=f"{name} > 0"))


@record(frozen=True)
class Constant(_Numbers):
    """See `constant`."""

    rate: float

    def exact(self, step: Node) -> Node:
        """Return the rate at a step in float64."""
        return _constant(self.rate, dtype=_FLOAT64)


@record(frozen=True)
class Step(_Numbers):
    """See `step`."""

    rate: float
    every: int
    factor: float

    def exact(self, step: Node) -> Node:
        """Return the rate at a step in float64."""
        return multiply(power(self.factor, _real(floor_divide(step, self.every))), self.rate)


@record(frozen=True)
class Exponential(_Numbers):
    """See `exponential`."""

    rate: float
    decay: float
    every: float

    def exact(self, step: Node) -> Node:
        """Return the rate at a step in float64."""
        return multiply(power(self.decay, divide(_real(step), self.every)), self.rate)


@record(frozen=True)
class Cosine(_Numbers):
    """See `cosine`."""

    rate: float
    steps: int
    final: float

    def exact(self, step: Node) -> Node:
        """Return the rate at a step in float64."""
        turn = multiply(_real(minimum(step, self.steps)), math.pi / self.steps)
        half = multiply(add(cos(turn), 1.0), 0.5 * (self.rate - self.final))
        return add(half, self.final)


@record(frozen=True)
class CosineRestarts(_Numbers):
    """See `cosine_restarts`."""

    rate: float
    period: int
    growth: int
    shrink: float
    final: float

    def exact(self, step: Node) -> Node:
        """Return the rate at a step in float64."""
        if self.growth == 1:
            number = floor_divide(step, self.period)
            cycle = _real(number)
            part = divide(_real(subtract(step, multiply(number, self.period))), float(self.period))
        else:
            # Cycle n begins at period * (growth**n - 1) / (growth - 1). The logarithm of that step
            # is rounded: a small number more keeps it from being that of the cycle before.
            ratio = add(multiply(divide(_real(step), self.period), self.growth - 1.0), 1.0)
            cycle = floor(add(divide(log(ratio), math.log(self.growth)), 1e-9))
            length = rint(power(float(self.growth), cycle))
            begin = multiply(divide(subtract(length, 1.0), self.growth - 1.0), self.period)
            part = divide(subtract(_real(step), begin), multiply(length, self.period))
        half = multiply(add(cos(multiply(part, math.pi)), 1.0), 0.5)
        peak = multiply(power(self.shrink, cycle), self.rate)
        return add(multiply(subtract(peak, self.final), half), self.final)


@record(frozen=True)
class OneCycle(_Numbers):
    """See `one_cycle`."""

    rate: float
    steps: int
    rise: float
    start: float
    final: float

    def exact(self, step: Node) -> Node:
        """Return the rate at a step in float64."""
        peak = self.rise * self.steps - 1.0
        now = _real(minimum(step, self.steps - 1))
        up = divide(now, peak) if peak > 0 else multiply(now, 0.0) + 1.0
        rest = max(self.steps - 1.0 - peak, 1e-300)
        down = divide(subtract(now, peak), rest)
        low, high, end = self.rate * self.start, self.rate, self.rate * self.start * self.final

        def between(first: float, last: float, part: Node) -> Node:
            half = multiply(add(cos(multiply(part, math.pi)), 1.0), 0.5)
            return add(multiply(half, first - last), last)

        return where(less_equal(now, peak), between(low, high, up), between(high, end, down))


@record(frozen=True)
class InverseSqrt(_Numbers):
    """See `inverse_sqrt`."""

    rate: float
    hold: int

    def exact(self, step: Node) -> Node:
        """Return the rate at a step in float64."""
        return multiply(sqrt(divide(float(self.hold), _real(maximum(step, self.hold)))), self.rate)


@record(frozen=True)
class Polynomial(_Numbers):
    """See `polynomial`."""

    rate: float
    steps: int
    exponent: float
    final: float

    def exact(self, step: Node) -> Node:
        """Return the rate at a step in float64."""
        rest = subtract(1.0, multiply(_real(minimum(step, self.steps)), 1.0 / self.steps))
        return add(multiply(power(rest, self.exponent), self.rate - self.final), self.final)


@record(frozen=True)
class Warmup(_Numbers):
    """See `warmup`."""

    steps: int
    then: Rate
    start: float

    def exact(self, step: Node) -> Node:
        """Return the rate at a step in float64."""
        # Before its own beginning the following schedule is not asked: it may have no value there.
        late = exact_rate(self.then, maximum(subtract(step, self.steps), 0))
        peak = exact_rate(self.then, _constant(0, dtype=np.int64))
        part = multiply(_real(minimum(step, self.steps)), 1.0 / self.steps)
        rising = add(multiply(subtract(peak, self.start), part), self.start)
        return where(less(step, self.steps), rising, late)


@documented
def constant(rate: float) -> Schedule:
    """Keep one rate: ``rate(t) = rate``.

    rate (float):

    >>> mg.schedule.constant(0.5).at(100)
    0.5
    """
    return Constant(float(rate))


@documented
def step(rate: float, every: int, factor: float = 0.1) -> Schedule:
    """Multiply the rate by a factor every so many steps: ``rate * factor**floor(t / every)``.

    rate (float): At step 0.
    every (int): Steps between two changes.
    factor (float, optional):
    raises ConfigError: Where `every` or `factor` is not positive.

    >>> rate = mg.schedule.step(1.0, every=10, factor=0.5)
    >>> rate.at(9), rate.at(10), rate.at(25)
    (1.0, 0.5, 0.25)
    """
    _positive("step", every=every, factor=factor)
    return Step(float(rate), int(every), float(factor))


@documented
def exponential(rate: float, decay: float, every: float = 1) -> Schedule:
    """Let the rate decay without steps: ``rate * decay**(t / every)``.

    rate (float): At step 0.
    decay (float): The factor over `every` steps.
    every (float, optional):
    raises ConfigError: Where `decay` or `every` is not positive.

    >>> mg.schedule.exponential(1.0, 0.25, every=2).at(1)
    0.5
    """
    _positive("exponential", decay=decay, every=every)

    return Exponential(float(rate), float(decay), float(every))


@documented
def cosine(rate: float, steps: int, final: float = 0.0) -> Schedule:
    """Follow half a cosine down to a final rate, and stay there.

    ``final + (rate - final) * (1 + cos(pi * min(t, steps) / steps)) / 2``
    (Loshchilov and Hutter 2017, equation 5, without restarts).

    rate (float): At step 0.
    steps (int): The step from which on the rate is `final`.
    final (float, optional):
    raises ConfigError: Where `steps` is not positive.

    >>> rate = mg.schedule.cosine(1.0, steps=100, final=0.5)
    >>> rate.at(0), rate.at(50), rate.at(1000)
    (1.0, 0.75, 0.5)
    """
    _positive("cosine", steps=steps)

    return Cosine(float(rate), int(steps), float(final))


@documented
def cosine_restarts(
    rate: float, period: int, growth: int = 1, shrink: float = 1.0, final: float = 0.0
) -> Schedule:
    """Follow half a cosine down to a final rate, again and again.

    In cycle n, of ``period * growth**n`` steps, the rate falls as that of `cosine` does, from
    ``rate * shrink**n`` (Loshchilov and Hutter 2017, "SGDR", equation 5).

    rate (float): At step 0.
    period (int): Steps of the first cycle.
    growth (int, optional): How much longer each cycle is than the one before.
    shrink (float, optional): The factor from one cycle's first rate to that of the next.
    final (float, optional): What the rate falls to.
    raises ConfigError: Where `period`, `growth` or `shrink` is not positive, or `growth` is no int.

    >>> rate = mg.schedule.cosine_restarts(1.0, 10, growth=2, shrink=0.5)
    >>> [round(rate.at(t), 4) for t in (0, 5, 10, 20, 30)]
    [1.0, 0.5, 0.5, 0.25, 0.25]
    """
    _positive("cosine_restarts", period=period, growth=growth, shrink=shrink)
    if growth != int(growth):
        raise ConfigError(message(f"cosine_restarts: growth={growth!r}", need="an int"))
    return CosineRestarts(float(rate), int(period), int(growth), float(shrink), float(final))


@documented
def one_cycle(
    rate: float, steps: int, rise: float = 0.3, start: float = 0.04, final: float = 1e-4
) -> Schedule:
    """Rise to a rate along half a cosine, then fall far below the first one (Smith and Topin 2018).

    From ``rate * start`` at step 0 to `rate` at step ``rise * steps - 1``, and to ``rate * start *
    final`` at the last step, ``steps - 1``.

    rate (float): The highest.
    steps (int): In all.
    rise (float, optional): Part of the steps in which the rate rises, between 0 and 1.
    start, final (float, optional): Factors, see above.
    raises ConfigError: Where `steps` is not positive, or `rise` is not between 0 and 1.

    >>> rate = mg.schedule.one_cycle(1.0, 100, start=0.1, final=0.01)
    >>> [round(rate.at(t), 4) for t in (0, 29, 99, 200)]
    [0.1, 1.0, 0.001, 0.001]
    """
    _positive("one_cycle", steps=steps)
    if not 0 < rise < 1:
        raise ConfigError(message(f"one_cycle: rise={rise}", need="0 < rise < 1"))
    return OneCycle(float(rate), int(steps), float(rise), float(start), float(final))


@documented
def inverse_sqrt(rate: float, hold: int) -> Schedule:
    """Keep a rate, then let it fall with the step: ``rate * sqrt(hold / max(t, hold))``.

    With a warm-up before it is that of A. Vaswani et al., "Attention is all you need", 2017,
    section 5.3: ``warmup(4000, inverse_sqrt(rate, 4000))``.

    rate (float): At step 0.
    hold (int): How long it stays.
    raises ConfigError: Where `hold` is not positive.

    >>> rate = mg.schedule.inverse_sqrt(1.0, hold=100)
    >>> rate.at(0), rate.at(100), rate.at(400)
    (1.0, 1.0, 0.5)
    """
    _positive("inverse_sqrt", hold=hold)
    return InverseSqrt(float(rate), int(hold))


@documented
def polynomial(
    rate: float, steps: int, exponent: float = 1.0, final: float = 0.0
) -> Schedule:
    """Fall to a final rate along a power of the rest: ``final + (rate - final) (1 - t/steps)**p``.

    rate (float): At step 0.
    steps (int): The step from which on the rate is `final`.
    exponent (float, optional): ``p`` above: 1 falls along a line.
    final (float, optional):
    raises ConfigError: Where `steps` or `exponent` is not positive.

    >>> rate = mg.schedule.polynomial(1.0, 100, exponent=2.0)
    >>> rate.at(0), rate.at(50), rate.at(1000)
    (1.0, 0.25, 0.0)
    """
    _positive("polynomial", steps=steps, exponent=exponent)
    return Polynomial(float(rate), int(steps), float(exponent), float(final))


@documented
def warmup(steps: int, then: Rate | float, start: float = 0.0) -> Schedule:
    """Rise linearly to a rate, then follow another schedule from its beginning.

    ``start + (then(0) - start) * t / steps`` for ``t < steps``, and ``then(t - steps)`` from there.

    steps (int): How long it rises.
    then (Schedule, callable or float): What follows.
    start (float, optional): The rate at step 0.
    raises ConfigError: Where `steps` is not positive.

    >>> rate = mg.schedule.warmup(4, mg.schedule.step(1.0, every=10, factor=0.5))
    >>> [rate.at(t) for t in (0, 1, 2, 4, 13, 14)]
    [0.0, 0.25, 0.5, 1.0, 1.0, 0.5]
    """
    _positive("warmup", steps=steps)
    following: Rate = then if callable(then) else constant(then)
    return Warmup(int(steps), following, float(start))


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


@documented
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

    rate (float): The rate at the beginning.
    factor (float, optional): Between 0 and 1.
    patience (int, optional): How many reports without improvement are put up with.
    mode ({"min", "max"}, optional): Whether a smaller or a larger metric is better.
    threshold (float, optional): An improvement is at least this part of the best metric's
        magnitude.
    cooldown (int, optional): Reports after a change that do not count.
    minimum (float, optional): The rate never falls below this.
    raises ConfigError: Where `mode` or `factor` is not one of these.

    >>> rate = mg.schedule.plateau(0.5, factor=0.5, patience=1)
    >>> [rate.report(loss) for loss in (1.0, 0.9, 0.9, 0.9)], rate.rate
    ([False, False, False, True], 0.25)
    """
    return Plateau(rate, factor, patience, mode, threshold, cooldown, minimum)
