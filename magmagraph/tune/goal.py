"""Goals of a search: numbers of what a trial returns, and whether less or more is better."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError, ConfigError, message

__all__ = ["Goal", "Values", "goals_of", "measured"]

Values = dict[str, float]
ALONE = "value"
Form = str | Mapping[str, float] | Callable[[Values], float]


@dataclass(frozen=True)
class Goal:
    """A number that is made as small, or as large, as it can be.

    Attributes
    ----------
    form
        The name of a value, weights by name, or a function of all values.
    maximize
        Whether more is better.

    Examples
    --------
    >>> goal = Goal({"accuracy": 1.0, "time": -0.01}, maximize=True)
    >>> goal.of({"accuracy": 0.9, "time": 10.0, "loss": 0.3})
    0.8
    >>> goal.better(0.8, 0.7)
    True
    """

    form: Form
    maximize: bool

    def of(self, values: Values) -> float:
        """Return the goal's number of what a trial returned.

        Raises
        ------
        ConfigError
            If a name of the goal is not among the values: no trial could be better than that.
        ValueError
            If the number is not finite.
        """
        if callable(self.form):
            value = self.form(dict(values))
            if not isinstance(value, numbers.Real):
                raise ValueError(message(f"the goal is {value!r}", need="a number"))
            number = float(value)
        else:
            number = sum(weight * values[name] for name, weight in self._weights(values).items())
        if not math.isfinite(number):
            label = "goal" if self.form == ALONE else f"goal {self.name!r}"
            wrong = f"the {label} is {number} (of {_listed(values)})"
            raise ValueError(message(wrong, need="a finite number, or an exception"))
        return number

    def _weights(self, values: Values) -> Mapping[str, float]:
        assert not callable(self.form)
        weights = {self.form: 1.0} if isinstance(self.form, str) else self.form
        if self.form == ALONE and ALONE not in values:
            weights = {"loss": 1.0}
        for name in weights:
            if name not in values:
                raise ConfigError(
                    message(
                        f"the goal is {name!r}, and the objective returned {_listed(values)}",
                        need=f"a goal of {', '.join(map(repr, values))}",
                        hint='minimize="name", maximize="name" or weights by name, in search',
                    )
                )
        return weights

    def better(self, one: float, other: float) -> bool:
        """Return whether one number is better than another."""
        return one > other if self.maximize else one < other

    @property
    def alone(self) -> str:
        """Return the name of a number that an objective returns alone."""
        return self.form if isinstance(self.form, str) else ALONE

    @property
    def name(self) -> str:
        """What tables and pictures call it."""
        if isinstance(self.form, str):
            return self.form
        if isinstance(self.form, Mapping):
            return " + ".join(f"{weight:g} {name}" for name, weight in self.form.items())
        return getattr(self.form, "__name__", "goal")

    def describe(self) -> dict[str, Any]:
        """Return the goal as JSON holds it, a function as its name."""
        form = getattr(self.form, "__qualname__", "a function")
        return {
            "form": form if callable(self.form) else self.form,
            "better": "more" if self.maximize else "less",
        }


def goals_of(minimize: Any, maximize: Any) -> tuple[Goal, ...]:
    """Return the goals of the two arguments of `search`, those that are minimized first."""
    goals: list[Goal] = []
    for word, argument in (("minimize", minimize), ("maximize", maximize)):
        for form in (
            argument
            if isinstance(argument, (list, tuple))
            else []
            if argument is None
            else [argument]
        ):
            weights = isinstance(form, Mapping)
            if weights and not (form and all(_finite(weight) for weight in form.values())):
                raise ConfigError(message(f"{word}={form!r}", need="a finite weight for each name"))
            if not (weights or isinstance(form, str) or callable(form)):
                raise ConfigError(
                    message(
                        f"{word}={argument!r}",
                        need="a name, a dict of weights, or a function; or a list of these",
                        hint=f'{word}="loss"',
                    )
                )
            goals.append(Goal(dict(form) if weights else form, word == "maximize"))
        if argument is not None and not goals:
            raise ConfigError(message(f"{word}={argument!r}", need="one goal at least"))
    names = [goal.name for goal in goals]
    for name in names:
        if names.count(name) > 1 and not any(callable(goal.form) for goal in goals):
            raise ConfigError(
                message(
                    f"minimize={minimize!r} and maximize={maximize!r}: {name!r} is a goal "
                    f"{names.count(name)} times",
                    need="each goal once, for the Pareto front of all",
                )
            )
    return tuple(goals) or (Goal(ALONE, maximize=False),)


def measured(returned: Any, seconds: float, alone: str = ALONE) -> Values:
    """Return what an objective returned as values by name, with the time that it took.

    A number without a name is called `alone`.

    Raises
    ------
    TypeError
        If it is neither a number nor a dict of numbers by name.
    """
    named_values = returned if isinstance(returned, Mapping) else {alone: returned}
    values: Values = {}
    for name, number in named_values.items():
        if getattr(number, "shape", None) == ():
            number = number.item()  # an array of no axes
        if not isinstance(name, str) or not isinstance(number, numbers.Real):
            raise ArgumentError(
                message(
                    f"the objective returned {returned!r}, which is neither a number nor a dict of "
                    "numbers by name",
                    hint='return {"loss": loss, "accuracy": accuracy}',
                )
            )
        values[name] = float(number)
    values.setdefault("time", seconds)
    return values


def _finite(weight: Any) -> bool:
    return isinstance(weight, numbers.Real) and math.isfinite(float(weight))


def _listed(values: Values) -> str:
    return ", ".join(f"{name}={number:.6g}" for name, number in values.items())
