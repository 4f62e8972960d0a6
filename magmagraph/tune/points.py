"""Where the points of trials come from without optuna: grids, chance, and populations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError, message
from ..ir.locking import cached_property
from .goal import Goal
from .space import Code, Codes, Space
from .trial import TrialResult

__all__ = ["GridPoints", "Points", "Population", "RandomPoints"]

_SHUFFLED = 1_000_000  # points up to which a finite space is gone through without repetition
_PART = 4  # of a population, one in so many is replaced after a round


class Points:
    """Where the points of trials come from; as it is, they depend on their number alone.

    Attributes
    ----------
    total
        How many there are, or None.
    """

    total: int | None = None

    def needs(self, number: int) -> int | None:
        """Return the trial up to which all must have ended and been reported before this one.

        -1 where nothing is learned, None where all is told that is known.
        """
        return -1

    def draw(self, number: int) -> list[Code | None]:
        """Return the point of a trial; asked for in the order of the numbers, each once."""
        raise NotImplementedError

    def about(self, number: int) -> dict[str, Any]:
        """Return what an `Assignment` says of the trial besides its point."""
        return {}

    def replay(self, number: int, codes: Codes) -> None:
        """Take a point that an earlier process drew, without drawing it."""

    def tell(self, result: TrialResult) -> None:
        """Learn from a trial that has ended."""


class GridPoints(Points):
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
        self.total = space.size

    def draw(self, number: int) -> list[Code | None]:
        """Return the point at an index."""
        return self.space.at(number)


class RandomPoints(Points):
    """Points at random; those of a small finite space come once each."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space, self.seed = space, seed
        small = space.size is not None and space.size <= _SHUFFLED
        self.total = space.size if small else None

    def draw(self, number: int) -> list[Code | None]:
        """Return the point of a trial: a function of seed and number."""
        if self.total is not None:
            return self.space.at(int(self._order[number]))
        return self.space.draw(np.random.default_rng([self.seed, number]))

    @cached_property
    def _order(self) -> np.ndarray:
        assert self.total is not None
        return np.random.default_rng(self.seed).permutation(self.total)


class Population(Points):
    """Population based training (M. Jaderberg et al., arXiv:1711.09846), in rounds of one size.

    Trial ``round * size + member`` trains a member for a round, from the checkpoint of its parent:
    the same member, or, if that is in the worst quarter of the round before, one of its best
    quarter, whose point it takes with each parameter moved (exploit and explore). A trial that
    failed is worst. A round begins when the one before has ended, so that all of it is a function
    of the seed.
    """

    def __init__(self, space: Space, goal: Goal, seed: int, size: int, folder: Path) -> None:
        self.space, self.goal, self.seed = space, goal, seed
        self.size, self.folder = size, folder
        self._ended: dict[int, TrialResult] = {}

    def needs(self, number: int) -> int:
        """Return the last trial of the round before."""
        return number // self.size * self.size - 1

    def draw(self, number: int) -> list[Code | None]:
        """Return the point of the member's parent, moved if the parent is another member."""
        rng = np.random.default_rng([self.seed, number])
        parent = self._parent(number, rng)
        if parent is None:
            return self.space.draw(rng)
        parent_result = self._ended[parent]
        if parent == number - self.size:
            return list(parent_result.codes)
        codes = dict(zip(self.space, parent_result.codes, strict=True))

        def moved(name: str, domain: Any) -> Code:
            code = codes[name]
            return domain.draw(rng) if code is None else domain.moved(code, rng)  # type: ignore[no-any-return]

        return self.space.build(moved)

    def about(self, number: int) -> dict[str, Any]:
        """Return the round, the parent and the two checkpoints."""
        parent = self._parent(number, np.random.default_rng([self.seed, number]))
        return {
            "round": number // self.size,
            "notes": {"parent": parent},
            "resume": None if parent is None else self._file(parent),
            "checkpoint": self._file(number),
        }

    def tell(self, result: TrialResult) -> None:
        """Store the result for the next round."""
        self._ended[result.number] = result

    def _file(self, number: int) -> Path:
        return self.folder / f"trial-{number:06}.checkpoint"

    def _parent(self, number: int, rng: np.random.Generator) -> int | None:
        """Return the trial whose checkpoint a trial continues; None starts fresh."""
        before = number - self.size
        if before < 0:
            return None
        start = self.needs(number) + 1 - self.size
        sign = -1.0 if self.goal.maximize else 1.0
        rank: dict[int, float] = {}
        for other in range(start, start + self.size):
            result = self._ended[other]
            if result.state == "done" and result.goal is not None:
                rank[other] = sign * result.goal
        order = sorted(rank, key=lambda other: (rank[other], other))
        part = max(1, self.size // _PART)
        best = order[:part]
        worst = self.size - part  # places from here on are replaced
        if before in rank and (order.index(before) < worst or before in best):
            return before
        return best[int(rng.integers(len(best)))] if best else None
