"""What a parameter may be: its values, as codes that a journal can hold.

A code is a float of a continuous domain, or the index of a value of a finite one.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from ..errors import ConfigError, message

__all__ = [
    "Choice",
    "Code",
    "Domain",
    "Steps",
    "Uniform",
    "choice",
    "grid",
    "integers",
    "log_uniform",
    "uniform",
]

Code = int | float
MOST_STEPS = 10**9


class Domain(ABC):
    """What one parameter may be."""

    @property
    @abstractmethod
    def size(self) -> int | None:
        """The number of values, or None of a continuous domain."""

    @abstractmethod
    def value(self, code: Code) -> Any:
        """Return the value that a code stands for."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Code:
        """Return a code at random."""

    @abstractmethod
    def position(self, code: Code) -> float:
        """Return where a code lies between the ends of the domain, from 0 to 1."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the domain as JSON holds it; equal domains are described alike."""

    def label(self, code: Code) -> Any:
        """Return the value as JSON and tables show it."""
        return self.value(code)


@dataclass(frozen=True)
class Uniform(Domain):
    """Real numbers from `low` to `high`, uniform themselves or in their logarithms."""

    low: float
    high: float
    logarithmic: bool = False

    @property
    def size(self) -> None:
        """There is no end of values."""
        return None

    def value(self, code: Code) -> float:
        """Return the number, which is its own code."""
        return float(code)

    def draw(self, rng: np.random.Generator) -> float:
        """Return a number at random."""
        if not self.logarithmic:
            return float(rng.uniform(self.low, self.high))
        drawn = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return min(max(drawn, self.low), self.high)

    def position(self, code: Code) -> float:
        """Return where the number lies, on the scale of its draws."""
        low, high, at = self.low, self.high, float(code)
        if self.logarithmic:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low)

    def describe(self) -> dict[str, Any]:
        """Return its kind and ends."""
        kind = "log_uniform" if self.logarithmic else "uniform"
        return {"kind": kind, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Steps(Domain):
    """Numbers from `low` in equal steps, or each `factor` times the one before.

    Sums and products are those of the decimal numbers that were written.
    """

    low: int | float
    count: int
    step: int | float | None
    factor: int | float | None = None

    @property
    def size(self) -> int:
        """The number of steps."""
        return self.count

    def value(self, code: Code) -> int | float:
        """Return the number at a step."""
        if self.step is not None:
            exact = _exact(self.low) + int(code) * _exact(self.step)
        else:
            assert self.factor is not None
            exact = _exact(self.low) * _exact(self.factor) ** int(code)
        return int(exact) if self._whole else float(exact)

    @property
    def _whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(
            self.factor if self.step is None else self.step, int
        )

    def draw(self, rng: np.random.Generator) -> int:
        """Return a step at random."""
        return int(rng.integers(self.count))

    def position(self, code: Code) -> float:
        """Return where the step lies."""
        return int(code) / (self.count - 1) if self.count > 1 else 0.5

    def describe(self) -> dict[str, Any]:
        """Return its first number, its steps and their number."""
        by = "factor" if self.step is None else "step"
        return {"kind": "grid", "low": self.low, by: getattr(self, by), "count": self.count}


@dataclass(frozen=True)
class Choice(Domain):
    """One of some options, each with the name that journals and tables show."""

    options: tuple[Any, ...]
    names: tuple[Any, ...]

    @property
    def size(self) -> int:
        """The number of options."""
        return len(self.options)

    def value(self, code: Code) -> Any:
        """Return the option at an index."""
        return self.options[int(code)]

    def draw(self, rng: np.random.Generator) -> int:
        """Return an index at random."""
        return int(rng.integers(len(self.options)))

    def position(self, code: Code) -> float:
        """Return where the option stands among the others."""
        return int(code) / (len(self.options) - 1) if len(self.options) > 1 else 0.5

    def describe(self) -> dict[str, Any]:
        """Return the names of its options."""
        return {"kind": "choice", "names": list(self.names)}

    def label(self, code: Code) -> Any:
        """Return the option's name."""
        return self.names[int(code)]


def uniform(low: float, high: float) -> Domain:
    """Make a parameter of real numbers, all equally likely.

    Parameters
    ----------
    low, high : float
        Its ends.

    Returns
    -------
    Domain

    Raises
    ------
    ConfigError
        If the ends are not finite, or `high` is not above `low`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.tune.uniform(0.0, 0.5)
    Uniform(low=0.0, high=0.5, logarithmic=False)
    """
    return Uniform(*_ends("uniform", low, high))


def log_uniform(low: float, high: float) -> Domain:
    """Make a parameter of positive numbers whose logarithms are all equally likely.

    Parameters
    ----------
    low, high : float
        Its ends; `low` is positive.

    Returns
    -------
    Domain

    Raises
    ------
    ConfigError
        If the ends are not positive and finite, or `high` is not above `low`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.tune.log_uniform(1e-5, 1e-1)
    Uniform(low=1e-05, high=0.1, logarithmic=True)
    """
    first, last = _ends("log_uniform", low, high)
    if first <= 0:
        raise ConfigError(
            message(
                f"log_uniform({low!r}, {high!r}): {low!r} has no logarithm", need="a positive low"
            )
        )
    return Uniform(first, last, logarithmic=True)


def integers(low: int, high: int, step: int = 1) -> Domain:
    """Make a parameter of whole numbers, both ends included.

    Parameters
    ----------
    low, high : int
        Its ends.
    step : int
        From one to the next.

    Returns
    -------
    Domain

    Raises
    ------
    ConfigError
        If one of them is no int, `step` is not positive or `high` is below `low`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> [mg.tune.integers(1, 8, 3).value(k) for k in range(3)]
    [1, 4, 7]
    """
    told = f"integers({low!r}, {high!r}, {step!r})"
    whole = [isinstance(n, numbers.Integral) and not isinstance(n, bool) for n in (low, high, step)]
    if not all(whole) or step < 1 or high < low:
        raise ConfigError(message(told, need="three ints, low <= high, and a step of at least 1"))
    return grid(int(low), int(high), int(step))


def grid(
    low: float, high: float, step: float | None = None, *, factor: float | None = None
) -> Domain:
    """Make a parameter that goes from `low` to `high` in steps, both ends included.

    Parameters
    ----------
    low, high : int or float
        Its ends. All values are ints where `low` and the step are.
    step : int or float
        What is added from one value to the next. 1 unless a factor is given.
    factor : int or float
        What each value is multiplied with instead, above 1.

    Returns
    -------
    Domain

    Raises
    ------
    ConfigError
        If a number is not finite, `high` is below `low`, the step is not positive, the factor not
        above 1 or both are given.

    Examples
    --------
    >>> import magmagraph as mg
    >>> tenths = mg.tune.grid(0.1, 0.4, 0.1)
    >>> [tenths.value(k) for k in range(tenths.size)]
    [0.1, 0.2, 0.3, 0.4]
    >>> rates = mg.tune.grid(1e-4, 1e-1, factor=10)
    >>> [rates.value(k) for k in range(rates.size)]
    [0.0001, 0.001, 0.01, 0.1]
    """
    told = ", ".join(
        [f"{low!r}, {high!r}"]
        + [f"{name}={v!r}" for name, v in (("step", step), ("factor", factor)) if v is not None]
    )
    told = f"grid({told})"
    if step is not None and factor is not None:
        raise ConfigError(message(told, need="a step or a factor, not both"))
    if step is None and factor is None:
        step = 1
    by = factor if step is None else step
    for number in (low, high, by):
        if not _real(number):
            raise ConfigError(message(f"{told}: {number!r}", need="finite numbers"))
    assert by is not None
    low, high, by = _plain(low), _plain(high), _plain(by)
    if high < low:
        raise ConfigError(message(f"{told}: {high!r} is below {low!r}", hint="swap the ends"))
    if step is not None:
        if by <= 0:
            raise ConfigError(message(f"{told}: the step is {by!r}", need="a positive step"))
        if (high - low) / by > 1e15:
            raise ConfigError(message(f"{told}: too many steps", need="at most 1e15"))
        count = int((_exact(high) - _exact(low)) // _exact(by)) + 1
        steps = Steps(low, count, by)
    else:
        if by <= 1 or low <= 0:
            raise ConfigError(message(told, need="a positive low and a factor above 1"))
        count = int(math.log(high / low) / math.log(by)) + 2
        while count > 1 and _exact(low) * _exact(by) ** (count - 1) > _exact(high):
            count -= 1
        steps = Steps(low, count, None, by)
    if count > MOST_STEPS:
        raise ConfigError(message(f"{told} has {count:,} values", need=f"at most {MOST_STEPS:,}"))
    return steps


def choice(options: Iterable[Any]) -> Domain:
    """Make a parameter that is one of some options.

    Parameters
    ----------
    options : sequence or dict
        Numbers, texts, bools, None, functions, classes, or tuples of these. Anything else needs a
        name for journals and tables: a dict of options by name.

    Returns
    -------
    Domain

    Raises
    ------
    ConfigError
        If there are none, two have one name, or one has none.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.tune.choice(["relu", "tanh"]).names
    ('relu', 'tanh')
    >>> rule = mg.tune.choice({"slow": mg.optimizer.SGD(0.01), "fast": mg.optimizer.SGD(0.1)})
    >>> rule.names
    ('slow', 'fast')
    """
    if isinstance(options, str):
        raise ConfigError(
            message(f"choice({options!r})", need="a list", hint=f"choice([{options!r}])")
        )
    if isinstance(options, Mapping):
        values, names = list(options.values()), [str(name) for name in options]
    else:
        values = [o.item() if isinstance(o, np.generic) else o for o in options]
        names = [_name(option) for option in values]
    if not values:
        raise ConfigError(message("choice() of no options", need="one at least"))
    for name in names:
        alike = [other for other in names if type(other) is type(name) and other == name]
        if len(alike) > 1:
            raise ConfigError(message(f"choice: {name!r} is an option {len(alike)} times"))
    return Choice(tuple(values), tuple(names))


def _name(option: Any) -> Any:
    """Return what JSON holds of an option."""
    if isinstance(option, float) and not math.isfinite(option):
        return str(option)
    if option is None or isinstance(option, (bool, int, float, str)):
        return option
    if isinstance(option, tuple):
        return f"({', '.join(str(_name(part)) for part in option)})"
    named = getattr(option, "__qualname__", None)
    if callable(option) and isinstance(named, str) and "<lambda>" not in named:
        return named
    raise ConfigError(
        message(
            f"choice: {option!r} has no name that is the same in the next process",
            need="numbers, texts, functions, classes, tuples of these, or a dict of named options",
            hint='choice({"name": option, ...})',
        )
    )


def _ends(name: str, low: Any, high: Any) -> tuple[float, float]:
    if not _real(low) or not _real(high) or not low < high:
        raise ConfigError(
            message(f"{name}({low!r}, {high!r})", need="two finite numbers, low below high")
        )
    return float(low), float(high)


def _real(number: Any) -> bool:
    return (
        isinstance(number, numbers.Real)
        and not isinstance(number, bool)
        and math.isfinite(float(number))
    )


def _plain(number: Any) -> int | float:
    return int(number) if isinstance(number, numbers.Integral) else float(number)


def _exact(number: int | float) -> Decimal:
    """Return the decimal number that was written."""
    return Decimal(repr(number))
