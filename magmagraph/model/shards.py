"""Batches of which each rank brings its own rows: ``fit(..., data="sharded")``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ..distributed.shards import apportion
from ..distributed.training import Team
from ..errors import DataError, message
from .row_weights import balanced_weights, rows_of_classes
from .sources import Arrays, Batch, Examples, Source

__all__ = ["Shards", "balanced_over_shards"]


def balanced_over_shards(data: Iterable[Source], team: Team) -> dict[int, float]:
    """Return the weights of ``class_weight="balanced"`` by the rows of all shards.

    Parameters
    ----------
    data
        Arrays of this rank's rows.
    team
        The ranks that train together.

    Raises
    ------
    DataError
        If the data are no arrays, whose classes can be counted.
    """
    total: dict[int, int] = {}
    for part in data:
        if not isinstance(part, Arrays):
            raise DataError(
                message(
                    "class_weight='balanced' of batches",
                    need="a dict {class: weight}, or 'balanced', of arrays",
                )
            )
        counts = team.whole(partial(rows_of_classes, part.values, part.labels), "none trains")
        for theirs in team.of_parts(counts, "the rows of each class"):
            for name, count in theirs.items():
                total[name] = total.get(name, 0) + count
    return balanced_weights(total)


class Shards:
    """The batches of all ranks, of which this one has its own rows; see `Source`.

    Rows that have positions (arrays, and sets of examples) are divided in proportion to the lengths
    of the shards (`apportion`): all batches but the last have `batch_size` rows, each row is in one
    batch, and all shards end with the epoch. Batches that are given as such are joined one by one;
    ranks whose batches have ended have no rows, until those of all ranks have.

    Parameters
    ----------
    own
        This rank's data.
    team
        The ranks that train together; all of them make one.

    Raises
    ------
    ConfigError
        On all ranks, if their shards are of different kinds.
    """

    def __init__(self, own: Source, team: Team) -> None:
        self.own = own
        self._team = team
        self.labels, self.weighted = own.labels, own.weighted
        self.once = getattr(own, "once", False)
        self._abouts = team.of_parts(own.about(), "the shards of the data", alike=True)
        self._lengths = [int(rows) for rows in team.of_parts(own.rows, "the rows of each shard")]
        # Of batches, whose numbers of rows are not known.
        self._counts = team.of_parts(own.count(1), "the batches of each shard")

    @property
    def rows(self) -> int:
        """How many examples all ranks have, 0 where that is not known."""
        return sum(self._lengths)

    @property
    def sample(self) -> list[np.ndarray]:
        """Nothing: ranks have different examples."""
        return []

    def about(self) -> dict[str, Any]:
        """Return values that identify these data, by shard."""
        return {"shards": self._abouts}

    def count(self, size: int) -> int | None:
        """Return how many batches there are, None where that is not known."""
        if self.rows:
            return math.ceil(self.rows / size)
        return None if None in self._counts else max(self._counts)

    def epoch(
        self, number: int, size: int, seed: int | None, shard: tuple[int, int]
    ) -> Iterator[tuple[int, Batch]]:
        """Yield the batches of one pass, this rank's rows of each; see `Source`."""
        own, part = self.own, shard[0]
        if isinstance(own, (Arrays, Examples)):
            batches = self._own_batches(
                own, self._order(own.rows, number, seed, part), size, part, number
            )
        else:
            batches = (batch for _, batch in own.epoch(number, size, seed, (0, 1)))
        if self._team.asynchronous:  # ranks take steps of their own
            return ((len(batch[-1]), batch) for batch in batches if batch is not None)
        if isinstance(own, Arrays):
            whole = self.rows
            rows = (min(size, whole - begin) for begin in range(0, whole, size))
            # No row fails any more, and no rank waits for another one.
            return ((count, batch) for count, batch in zip(rows, batches, strict=True))
        return self._joined(iter(batches), number)

    def _order(
        self, rows: int, number: int, seed: int | None, part: int
    ) -> np.ndarray | None:
        """Return the order of this rank's rows in an epoch, another one than other ranks'."""
        if seed is None:
            return None
        return np.random.default_rng((seed, number, part)).permutation(rows)

    def _own_batches(
        self, own: Arrays | Examples, order: np.ndarray | None, size: int, part: int, number: int
    ) -> Iterator[Batch]:
        """Yield this rank's rows of each batch."""
        begin = 0
        for place in range(math.ceil(self.rows / size)):
            end = apportion(min((place + 1) * size, self.rows), self._lengths)[part]
            rows = slice(begin, end) if order is None else order[begin:end]
            yield own.at(rows, place, number)
            begin = end

    def _joined(self, batches: Iterator[Batch], number: int) -> Iterator[tuple[int, Batch]]:
        """Yield batches for as long as a rank has one, with the rows of all ranks."""
        place = 0
        while True:
            batch: Batch | None = None

            def drawn() -> tuple[int, list[tuple[int, ...]]]:
                nonlocal batch
                batch = next(batches, None)
                if batch is None:
                    return 0, []
                return len(batch[-1]), [array.shape[1:] for array in batch]

            _, every = self._team.step_of_parts(drawn, number, place)
            shapes = next((theirs for _, theirs in every if theirs), None)
            if shapes is None:
                return
            self._check_shapes(every, place, number)
            if batch is None:
                kinds = self.own.dtypes  # type: ignore[attr-defined]
                batch = tuple(
                    np.empty((0, *shape), dtype) for shape, dtype in zip(shapes, kinds, strict=True)
                )
            yield sum(rows for rows, _ in every), batch
            place += 1

    def _check_shapes(self, every: Iterable[tuple[int, Any]], place: int, number: int) -> None:
        """Refuse rows of different shapes in one batch, which ranks would pad differently."""
        nonempty = [(part, theirs) for part, (_, theirs) in enumerate(every) if theirs]
        first, own = nonempty[0] if nonempty else (0, None)
        for part, theirs in nonempty[1:]:
            if theirs != own:
                raise DataError(
                    message(
                        f"in batch {place} of epoch {number}, the rows of shard {first} have "
                        f"the shapes {own}, and those of shard {part} {theirs}",
                        need="rows of the same shape on all ranks in each step",
                        hint="pad the rows of all ranks to one length",
                    )
                )
