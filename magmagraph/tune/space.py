"""Spaces of parameters: a domain for each, and points as lists of codes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ConfigError, message
from ..ir.locking import cached_property
from .domains import Choice, Code, Domain, Steps, Uniform, choice

__all__ = ["Space"]


class Space(Mapping[str, Domain]):
    """All parameters of a search, by name, in the order in which they were given.

    Parameters
    ----------
    given : dict
        A domain for each name: `grid`, `choice`, `uniform`, `log_uniform`, `integers`. A list, a
        tuple, a range or an array of one axis is a choice, except a tuple of two floats, which
        could be meant as a range.

    Raises
    ------
    ConfigError
        If it is empty, or something in it is no domain.

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
        for name, domain in given.items():
            if not isinstance(name, str):
                raise ConfigError(message(f"the parameter {name!r}", need="a text as its name"))
            self._domains[name] = _as_domain(name, domain)

    def __getitem__(self, name: str) -> Domain:
        return self._domains[name]

    def __iter__(self) -> Any:
        return iter(self._domains)

    def __len__(self) -> int:
        return len(self._domains)

    @cached_property
    def size(self) -> int | None:
        """The number of points, or None where a domain is continuous."""
        sizes = [domain.size for domain in self._domains.values()]
        return None if None in sizes else math.prod(s for s in sizes if s is not None)

    @property
    def continuous(self) -> list[str]:
        """The parameters that have no steps."""
        return [name for name, domain in self._domains.items() if domain.size is None]

    def at(self, index: int) -> list[Code]:
        """Return the point at an index of a finite space; the last parameter changes first."""
        codes: list[Code] = []
        for domain in reversed(self._domains.values()):
            assert domain.size is not None
            index, code = divmod(index, domain.size)
            codes.append(code)
        return codes[::-1]

    def draw(self, rng: np.random.Generator) -> list[Code]:
        """Return a point at random."""
        return [domain.draw(rng) for domain in self._domains.values()]

    def values_of(self, codes: Sequence[Code]) -> dict[str, Any]:
        """Return what the objective is given for a point."""
        return self._read(codes, lambda domain, code: domain.value(code))

    def labels_of(self, codes: Sequence[Code]) -> dict[str, Any]:
        """Return what tables and journals show of a point."""
        return self._read(codes, lambda domain, code: domain.label(code))

    def _read(self, codes: Sequence[Code], take: Callable[[Domain, Code], Any]) -> dict[str, Any]:
        pairs = zip(self._domains.items(), codes, strict=True)
        return {name: take(domain, code) for (name, domain), code in pairs}

    def describe(self) -> list[list[Any]]:
        """Return the space as JSON holds it."""
        return [[name, domain.describe()] for name, domain in self._domains.items()]

    @classmethod
    def described(cls, description: Sequence[Sequence[Any]]) -> Space:
        """Return the space that JSON describes; its options are the names of what they were.

        Examples
        --------
        >>> space = Space({"rate": [0.1, 0.2], "rule": [max, min]})
        >>> Space.described(space.describe())["rule"].value(1)
        'min'
        """
        return cls({name: _described(dict(domain)) for name, domain in description})


def _as_domain(name: str, given: Any) -> Domain:
    if isinstance(given, Domain):
        return given
    if isinstance(given, np.ndarray) and given.ndim == 1:
        return choice(given.tolist())
    if isinstance(given, tuple) and len(given) == 2 and all(type(v) is float for v in given):
        low, high = given
        raise ConfigError(
            message(
                f"the space has {given!r} for {name!r}, which may be two options or a range",
                need=f"mg.tune.choice([{low!r}, {high!r}]) or mg.tune.uniform({low!r}, {high!r})",
            )
        )
    if isinstance(given, (list, tuple, range)):
        return choice(given)
    raise ConfigError(
        message(
            f"the space has {given!r} for {name!r}",
            need="mg.tune.grid, choice, uniform, log_uniform or integers, or a list of options",
            hint=f'{{"{name}": mg.tune.choice([...])}}',
        )
    )


def _described(domain: dict[str, Any]) -> Domain:
    kind = domain.pop("kind")
    if kind == "choice":
        names = tuple(domain["names"])
        return Choice(names, names)
    if kind == "grid":
        return Steps(domain["low"], domain["count"], domain.get("step"), domain.get("factor"))
    return Uniform(domain["low"], domain["high"], kind == "log_uniform")
