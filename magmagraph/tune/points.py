"""Methods that need nothing: the points of a grid, and points at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..errors import ConfigError, message
from ..ir.locking import cached_property
from .domains import Code
from .space import Space

__all__ = ["GridPoints", "Points", "RandomPoints"]

_SHUFFLED = 1_000_000  # points up to which a finite space is gone through without repetition


class Points(Protocol):
    """Where the points of trials come from.

    Attributes
    ----------
    total
        How many there are, or None.
    learns
        Whether they depend on what earlier trials found.
    """

    total: int | None
    learns: bool

    def draw(self, number: int) -> list[Code]:
        """Return the point of a trial; asked for in the order of the numbers, each once."""

    def replay(self, number: int, codes: Sequence[Code]) -> None:
        """Take a point, in the place of drawing it, as an earlier process drew it."""

    def tell(self, found: Any) -> None:
        """Learn from a trial that has ended, a `TrialResult`."""


class _Unlearning:
    """Points that depend on their number alone."""

    learns = False

    def replay(self, number: int, codes: Sequence[Code]) -> None:
        """Nothing is to be kept."""

    def tell(self, found: Any) -> None:
        """Nothing is learned."""


class GridPoints(_Unlearning):
    """All points of a finite space; the last parameter changes first."""

    def __init__(self, space: Space) -> None:
        if space.size is None:
            name = space.continuous[0]
            raise ConfigError(
                message(
                    f"method='grid': {name!r} has no steps",
                    need="steps or options for each parameter",
                    hint=f'"{name}": mg.tune.grid(low, high, step), or method="random"',
                )
            )
        self.space = space
        self.total: int | None = space.size

    def draw(self, number: int) -> list[Code]:
        """Return the point at an index."""
        return self.space.at(number)


class RandomPoints(_Unlearning):
    """Points at random; those of a small finite space come once each."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space, self.seed = space, seed
        small = space.size is not None and space.size <= _SHUFFLED
        self.total = space.size if small else None

    def draw(self, number: int) -> list[Code]:
        """Return the point of a trial: a function of seed and number."""
        if self.total is not None:
            return self.space.at(int(self._order[number]))
        return self.space.draw(np.random.default_rng([self.seed, number]))

    @cached_property
    def _order(self) -> np.ndarray:
        assert self.total is not None
        return np.random.default_rng(self.seed).permutation(self.total)
