"""Spaces of hyperparameters: a domain for each name, conditions, and points as lists of codes.

The code of a value is a float of a continuous domain, the index of a value of a finite one, or
None where a condition leaves the parameter out. Samplers and journals use codes alone, so values
may be functions, and steps are those of decimal numbers.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from ..errors import ConfigError, message
from ..ir.locking import cached_property

__all__ = [
    "Choice",
    "Code",
    "Codes",
    "Conditional",
    "Domain",
    "Space",
    "Steps",
    "Uniform",
    "choice",
    "grid",
    "integers",
    "log_uniform",
    "uniform",
    "when",
]

Code = int | float
Codes = Sequence[Code | None]
_MOST_STEPS = 10**9
_MOST_CASES = 10_000  # combinations of the options that conditions look at


@dataclass(frozen=True)
class Uniform:
    """Real numbers from `low` to `high`, uniform themselves or in their logarithms."""

    low: float
    high: float
    logarithmic: bool = False

    @property
    def size(self) -> None:
        """The number of values, which has no end."""
        return None

    def value(self, code: Code) -> float:
        """Return the number, which is its own code."""
        return float(code)

    label = value

    def draw(self, rng: np.random.Generator) -> float:
        """Return a number at random."""
        if not self.logarithmic:
            return float(rng.uniform(self.low, self.high))
        return self._inside(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))

    def moved(self, code: Code, rng: np.random.Generator) -> float:
        """Return a neighbor: 0.8 or 1.25 times the number, or a tenth of the width away."""
        up = bool(rng.integers(2))
        if self.logarithmic:
            return self._inside(code * (1.25 if up else 0.8))
        return self._inside(code + (self.high - self.low) * (0.1 if up else -0.1))

    def _inside(self, number: float) -> float:
        return min(max(number, self.low), self.high)

class _Finite:
    """What steps and choices share."""

    size: int

    def draw(self, rng: np.random.Generator) -> int:
        """Return an index at random."""
        return int(rng.integers(self.size))


@dataclass(frozen=True)
class Steps(_Finite):
    """Numbers from `low` in equal steps, or each `factor` times the one before."""

    low: int | float
    size: int
    step: int | float | None
    factor: int | float | None = None

    def value(self, code: Code) -> int | float:
        """Return the number at a step: the sum or product of the decimal numbers as written."""
        by = self.factor if self.step is None else self.step
        assert by is not None
        low, index = _exact(self.low), int(code)
        exact = low * _exact(by) ** index if self.step is None else low + index * _exact(by)
        return int(exact) if isinstance(self.low, int) and isinstance(by, int) else float(exact)

    label = value

    def moved(self, code: Code, rng: np.random.Generator) -> int:
        """Return the step below or above."""
        return min(max(int(code) + (1 if rng.integers(2) else -1), 0), self.size - 1)


@dataclass(frozen=True)
class Choice(_Finite):
    """One of some options, each with the name that journals and tables show."""

    options: tuple[Any, ...]
    names: tuple[Any, ...]

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of options."""
        return len(self.options)

    def value(self, code: Code) -> Any:
        """Return the option at an index."""
        return self.options[int(code)]

    def label(self, code: Code) -> Any:
        """Return the option's name."""
        return self.names[int(code)]

    def moved(self, code: Code, rng: np.random.Generator) -> int:
        """Return the same option, or with a probability of a quarter one at random."""
        return self.draw(rng) if rng.random() < 0.25 else int(code)


Domain = Uniform | Steps | Choice


@dataclass(frozen=True)
class Conditional:
    """A domain, and the values of other parameters under which it exists."""

    domain: Any
    conditions: Mapping[str, tuple[Any, ...]]


def uniform(low: float, high: float) -> Domain:
    """Make a parameter of real numbers, all equally likely.

    Parameters
    ----------
    low, high : float
        Its ends.

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
    return _ends("uniform", low, high)


def log_uniform(low: float, high: float) -> Domain:
    """Make a parameter of positive numbers whose logarithms are all equally likely.

    Parameters
    ----------
    low, high : float
        Its ends; `low` is positive.

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
    return _ends("log_uniform", low, high)


def integers(low: int, high: int, step: int = 1) -> Domain:
    """Make a parameter of whole numbers, both ends included.

    Parameters
    ----------
    low, high : int
        Its ends.
    step : int
        From one to the next.

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
    whole = [isinstance(n, numbers.Integral) and not isinstance(n, bool) for n in (low, high, step)]
    if not all(whole) or step < 1 or high < low:
        raise ConfigError(
            message(
                f"integers({low!r}, {high!r}, {step!r})",
                need="three ints, low <= high, and a step of at least 1",
            )
        )
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
    more = [f"{name}={v!r}" for name, v in (("step", step), ("factor", factor)) if v is not None]
    call_text = f"grid({', '.join([repr(low), repr(high), *more])})"
    if len(more) == 2:
        raise ConfigError(message(call_text, need="a step or a factor, not both"))
    by = step if step is not None else 1 if factor is None else factor
    for number in (low, high, by):
        if not _real(number):
            raise ConfigError(message(f"{call_text}: {number!r}", need="finite numbers"))
    low, high, by = _plain(low), _plain(high), _plain(by)
    if high < low:
        raise ConfigError(message(f"{call_text}: {high!r} is below {low!r}", hint="swap the ends"))
    if factor is not None and (by <= 1 or low <= 0):
        raise ConfigError(message(call_text, need="a positive low and a factor above 1"))
    if factor is None and by <= 0:
        raise ConfigError(message(f"{call_text}: the step is {by!r}", need="a positive step"))
    if factor is None:
        quotient = (_exact(high) - _exact(low)) / _exact(by)
        count = math.floor(quotient) + 1 if quotient < 10**15 else 10**15
    else:
        count = int(math.log(high / low) / math.log(by)) + 2
        while count > 1 and _exact(low) * _exact(by) ** (count - 1) > _exact(high):
            count -= 1
    if count > _MOST_STEPS:
        raise ConfigError(
            message(f"{call_text} has {count:,} values", need=f"at most {_MOST_STEPS:,}")
        )
    return Steps(low, count, None, by) if factor is not None else Steps(low, count, by)


def choice(options: Iterable[Any]) -> Domain:
    """Make a parameter that is one of some options.

    Parameters
    ----------
    options : sequence or dict
        Numbers, texts, bools, None, functions, classes, or tuples of these. Anything else needs a
        name for journals and tables: a dict of options by name.

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
        alike = sum(_same(name, other) for other in names)
        if alike > 1:
            raise ConfigError(message(f"choice: {name!r} is an option {alike} times"))
    return Choice(tuple(values), tuple(names))


def when(domain: Any, **conditions: Any) -> Conditional:
    """Make a parameter that exists only under some values of others.

    Parameters
    ----------
    domain : Domain or list
        What it may be.
    **conditions
        For each parameter that it depends on, which comes before it in the space: an option, or a
        list of options. All conditions must hold.

    Raises
    ------
    ConfigError
        If there is no condition. The space raises it where a condition names no parameter before
        it, one without steps, or no option of it.

    Examples
    --------
    >>> import magmagraph as mg
    >>> space = {"rule": ["sgd", "adam"],
    ...          "momentum": mg.tune.when([0.0, 0.9, 0.99], rule="sgd")}
    >>> found = mg.tune.search(lambda trial: trial.get("momentum", 0.5), space, "grid")
    >>> [trial.params for trial in found.trials][-2:]
    [{'rule': 'sgd', 'momentum': 0.99}, {'rule': 'adam'}]
    """
    if not conditions or [] in list(conditions.values()):
        conditions_text = "".join(f", {name}={options!r}" for name, options in conditions.items())
        raise ConfigError(
            message(
                f"when({domain!r}{conditions_text})",
                need="the option of another parameter that it exists under",
                hint='when(domain, optimizer="sgd")',
            )
        )
    accepted = {
        name: tuple(options)
        if isinstance(options, (list, set, frozenset, range))
        else (options,)
        for name, options in conditions.items()
    }
    return Conditional(domain, accepted)


class Space(Mapping[str, Domain]):
    """All parameters of a search, by name, in the order in which they were given.

    Parameters
    ----------
    given : dict
        For each name a domain, a `Conditional` one, or a list, tuple, range or array of options; a
        tuple of two floats is refused, as it may be meant as a range.

    Examples
    --------
    >>> space = Space({"rate": [0.1, 0.2, 0.3], "rule": ["sgd", "adam"]})
    >>> space.size
    6
    >>> space.values_of(space.at(4))
    {'rate': 0.3, 'rule': 'sgd'}
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        if not isinstance(given, Mapping) or not given:
            raise ConfigError(
                message(
                    f"a space of {given!r}",
                    need="a dict of at least one parameter",
                    hint='{"rate": mg.tune.log_uniform(1e-4, 1e-1)}',
                )
            )
        self._domains: dict[str, Domain] = {}
        self._conditions: dict[str, dict[str, frozenset[Code]]] = {}
        for name, domain in given.items():
            if not isinstance(name, str):
                raise ConfigError(message(f"the parameter {name!r}", need="a text as its name"))
            if isinstance(domain, Conditional):
                self._conditions[name] = {
                    other: self._accepted(name, other, options)
                    for other, options in domain.conditions.items()
                }
                domain = domain.domain
            self._domains[name] = _as_domain(name, domain)

    def _accepted(self, name: str, other: str, options: tuple[Any, ...]) -> frozenset[Code]:
        """Return the codes of the options of another parameter that a condition accepts."""
        domain = self._domains.get(other)
        if domain is None:
            near = difflib.get_close_matches(other, self._domains, 1)
            raise ConfigError(
                message(
                    f"{name!r} exists under {other!r}, which is no parameter before it",
                    need=f"one of {', '.join(map(repr, self._domains)) or 'those before it'}",
                    hint=f"when(..., {near[0]}=...)" if near else f"{other!r} first in the space",
                )
            )
        if domain.size is None or domain.size > _MOST_CASES:
            raise ConfigError(
                message(
                    f"{name!r} exists under {other!r}, which is {domain}",
                    need=f"a condition on a parameter of at most {_MOST_CASES:,} options",
                )
            )
        accepted: set[Code] = set()
        for option in options:
            codes = [
                code
                for code in range(domain.size)
                if _same(domain.label(code), option) or _same(domain.value(code), option)
            ]
            if not codes:
                every = ", ".join(repr(domain.label(code)) for code in range(min(domain.size, 20)))
                raise ConfigError(
                    message(
                        f"{name!r} exists where {other!r} is {option!r}, which is none of its "
                        "options",
                        need=f"one of {every}",
                    )
                )
            accepted.update(codes)
        return frozenset(accepted)

    def __getitem__(self, name: str) -> Domain:
        return self._domains[name]

    def __iter__(self) -> Any:
        return iter(self._domains)

    def __len__(self) -> int:
        return len(self._domains)

    def _exists(self, name: str, codes: Mapping[str, Code | None]) -> bool:
        return all(codes[other] in ok for other, ok in self._conditions.get(name, {}).items())

    def build(self, choose: Callable[[str, Domain], Code]) -> list[Code | None]:
        """Return a point of the codes that are chosen for the parameters that exist, in order."""
        codes: dict[str, Code | None] = {}
        for name, domain in self._domains.items():
            codes[name] = choose(name, domain) if self._exists(name, codes) else None
        return list(codes.values())

    def draw(self, rng: np.random.Generator) -> list[Code | None]:
        """Return a point at random."""
        return self.build(lambda name, domain: domain.draw(rng))

    @cached_property
    def _cases(self) -> list[tuple[dict[str, Code | None], int]]:
        """What conditions look at, in all combinations, and how many points each of them has."""
        condition_names = {
            other for conditions in self._conditions.values() for other in conditions
        }
        cases: list[dict[str, Code | None]] = [{}]
        for name in (name for name in self._domains if name in condition_names):
            size = self._domains[name].size
            assert size is not None
            cases = [
                {**case, name: code}
                for case in cases
                for code in (range(size) if self._exists(name, case) else (None,))
            ]
            if len(cases) > _MOST_CASES:
                raise ConfigError(
                    message(
                        f"the conditions of the space look at {len(cases):,} combinations",
                        need=f"at most {_MOST_CASES:,}",
                        hint='method="tpe" or "random" with continuous parameters',
                    )
                )
        return [
            (case, math.prod(domain.size or 0 for _, domain in self._others(case)))
            for case in cases
        ]

    def _others(self, case: Mapping[str, Code | None]) -> list[tuple[str, Domain]]:
        """Return the parameters that exist in a case of the conditions, without those looked at."""
        return [
            (name, domain)
            for name, domain in self._domains.items()
            if name not in case and self._exists(name, case)
        ]

    @cached_property
    def size(self) -> int | None:
        """The number of points, or None where a domain is continuous."""
        return None if self.continuous else sum(count for _, count in self._cases)

    @property
    def continuous(self) -> list[str]:
        """The parameters that have no steps."""
        return [name for name, domain in self._domains.items() if domain.size is None]

    def at(self, index: int) -> list[Code | None]:
        """Return the point at an index of a finite space; the last parameter changes first."""
        for case, count in self._cases:
            if index < count:
                codes = dict(case)
                for name, domain in reversed(self._others(case)):
                    assert domain.size is not None
                    index, codes[name] = divmod(index, domain.size)
                return [codes.get(name) for name in self._domains]
            index -= count
        raise IndexError(index)

    def values_of(self, codes: Codes) -> dict[str, Any]:
        """Return the parameters of a point, for the objective."""
        return {name: self[name].value(code) for name, code in self._existing(codes)}

    def labels_of(self, codes: Codes) -> dict[str, Any]:
        """Return what tables and journals show of a point."""
        return {name: self[name].label(code) for name, code in self._existing(codes)}

    def _existing(self, codes: Codes) -> list[tuple[str, Code]]:
        pairs = zip(self._domains, codes, strict=True)
        return [(name, code) for name, code in pairs if code is not None]

    def describe(self) -> list[list[Any]]:
        """Return the space as JSON holds it."""
        return [
            [
                name,
                {"kind": type(domain).__name__, **domain.__dict__, **_as_json(domain)},
                {
                    other: [self[other].label(code) for code in sorted(codes)]
                    for other, codes in self._conditions.get(name, {}).items()
                },
            ]
            for name, domain in self._domains.items()
        ]

    @classmethod
    def described(cls, description: Sequence[Sequence[Any]]) -> Space:
        """Return the space that JSON describes; its options are names.

        Examples
        --------
        >>> space = Space({"rate": [0.1, 0.2], "rule": [max, min]})
        >>> Space.described(space.describe())["rule"].value(1)
        'min'
        """
        return cls(
            {
                name: Conditional(
                    _described(**domain), {other: tuple(on) for other, on in conditions.items()}
                )
                for name, domain, conditions in description
            }
        )


def _as_domain(name: str, value: Any) -> Domain:
    if isinstance(value, (Uniform, Steps, Choice)):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return choice(value.tolist())
    if isinstance(value, tuple) and len(value) == 2 and all(type(v) is float for v in value):
        low, high = value
        raise ConfigError(
            message(
                f"the space has {value!r} for {name!r}, which may be two options or a range",
                need=f"mg.tune.choice([{low!r}, {high!r}]) or mg.tune.uniform({low!r}, {high!r})",
            )
        )
    if isinstance(value, (list, tuple, range)):
        return choice(value)
    raise ConfigError(
        message(
            f"the space has {value!r} for {name!r}",
            need="mg.tune.grid, choice, uniform, log_uniform or integers, or a list of options",
            hint=f'{{"{name}": mg.tune.choice([...])}}',
        )
    )


def _as_json(domain: Domain) -> dict[str, Any]:
    """Return a domain as JSON values."""
    return {"options": domain.names} if isinstance(domain, Choice) else {}


def _described(kind: str, **fields: Any) -> Domain:
    kinds: dict[str, Any] = {"Choice": Choice, "Steps": Steps, "Uniform": Uniform}
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return kinds[kind](**{**fields, **lists})  # type: ignore[no-any-return]


def _name(option: Any) -> Any:
    """Return what JSON holds of an option."""
    if isinstance(option, float) and not math.isfinite(option):
        return str(option)
    if option is None or isinstance(option, (bool, int, float, str)):
        return option
    if isinstance(option, tuple):
        return f"({', '.join(str(_name(part)) for part in option)})"
    qualified_name = getattr(option, "__qualname__", None)
    if callable(option) and isinstance(qualified_name, str) and "<lambda>" not in qualified_name:
        return qualified_name
    raise ConfigError(
        message(
            f"choice: {option!r} has no name that is the same in the next process",
            need="numbers, texts, functions, classes, tuples of these, or a dict of named options",
            hint='choice({"name": option, ...})',
        )
    )


def _same(one: Any, other: Any) -> bool:
    plain = isinstance(one, (str, int, float, tuple)) and type(one) is type(other)
    return one is other or (plain and bool(one == other))


def _ends(name: str, low: Any, high: Any) -> Uniform:
    call_text = f"{name}({low!r}, {high!r})"
    if not _real(low) or not _real(high) or not low < high:
        raise ConfigError(message(call_text, need="two finite numbers, low below high"))
    if name == "log_uniform" and low <= 0:
        raise ConfigError(message(f"{call_text}: {low!r} has no logarithm", need="a positive low"))
    return Uniform(float(low), float(high), name == "log_uniform")


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
