"""Where batches come from: arrays, iterables of batches, and sets of examples."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from ..data import batches
from ..data.batching import part
from ..errors import DataError, message
from .data import as_array, check_rows, conform_inputs
from .losses import Labels
from .row_weights import checked_weights, weights_of_classes

__all__ = ["Arrays", "Examples", "Model", "Source", "Stream", "is_batches", "source_of"]

Batch = tuple[np.ndarray, ...]
Conform = Callable[[tuple[Any, ...]], Batch]


class Model(Protocol):
    """What a source needs to know of a model."""

    inputs: tuple[Any, ...]
    limits: Any

    def _checked(self, x: Any, y: Any) -> tuple[list[np.ndarray], np.ndarray, Labels]: ...


class Source(Protocol):
    """Batches, to go through any number of times.

    A batch has an array for each input of the model, the labels and, where rows are `weighted`,
    their weights.
    """

    labels: Labels
    weighted: bool

    @property
    def rows(self) -> int:
        """How many examples there are, 0 where that is not known."""

    @property
    def sample(self) -> list[np.ndarray]:
        """Arrays by which ranks see that they are given the same."""

    def about(self) -> dict[str, Any]:
        """Return values that identify these data, as JSON values."""

    def count(self, size: int) -> int | None:
        """Return how many batches there are, None where that is not known."""

    def epoch(
        self, number: int, size: int, seed: int | None, shard: tuple[int, int]
    ) -> Iterator[tuple[int, Batch]]:
        """Yield the batches of one pass, this rank's part of each.

        Before each stands the number of its rows on all ranks.

        Parameters
        ----------
        number
            Of the pass; its order depends on that and on the seed.
        size
            Examples in a batch, where the source does not say it.
        seed
            None for no other order than the given one.
        shard
            Which part of each batch is wanted, and of how many.
        """


def source_of(
    model: Model, x: Any, y: Any, sample_weight: Any = None, class_weight: Any = None
) -> Source:
    """Return what `fit` or `evaluate` is given as a source.

    Raises
    ------
    DataError
        If the data do not fit the model or each other.
    """
    if y is not None or hasattr(x, "shape") or not _holds_several(x):
        return Arrays(model, x, y, sample_weight, class_weight)
    if sample_weight is not None:
        raise DataError(
            message(
                "sample_weight= is given with batches",
                need="arrays x and y",
                hint="batches (x, y, weights)",
            )
        )
    if not isinstance(x, (list, tuple)) and hasattr(x, "__getitem__") and hasattr(x, "__len__"):
        if len(x) == 0:
            raise DataError(message(f"the {type(x).__name__} has no examples", need="at least one"))
        if not _gives_batches(model, x):
            return Examples(model, x, class_weight)
        x = _Positions(x)
    return Stream(model, x, class_weight)


def is_batches(data: Any, inputs: int) -> bool:
    """Return whether a list holds batches, and is no pair (x, y)."""
    if not isinstance(data, (list, tuple)):
        return not hasattr(data, "shape") and _holds_several(data)
    if len(data) == 2 and isinstance(data, tuple):
        return False
    return all(
        isinstance(batch, (list, tuple))
        and len(batch) in (inputs + 1, inputs + 2)
        and all(np.ndim(array) > 0 for array in batch if not isinstance(array, (list, tuple)))
        for batch in data
    )


def _holds_several(x: Any) -> bool:
    if isinstance(x, Mapping):
        return False
    # A class may refuse to be gone through by setting __iter__ to None.
    return getattr(x, "__iter__", None) is not None or (
        hasattr(x, "__getitem__") and hasattr(x, "__len__")
    )


def _gives_batches(model: Model, x: Any) -> bool:
    """Return whether the items of a sequence are batches, not examples: they have another axis."""
    if not model.inputs or not isinstance(x[0], (list, tuple)) or not len(x[0]):
        return False
    first = x[0][0]
    if isinstance(first, (list, tuple)) and len(model.inputs) > 1:
        first = first[0]
    return bool(np.ndim(as_array(first, "the examples")) == model.inputs[0].ndim)


class _Positions:
    """The items of a sequence of batches, for any number of epochs."""

    def __init__(self, sequence: Any) -> None:
        self._sequence = sequence

    def __len__(self) -> int:
        return len(self._sequence)

    def __iter__(self) -> Iterator[Any]:
        return (self._sequence[i] for i in range(len(self._sequence)))


class Arrays:
    """Rows of arrays.

    Parameters
    ----------
    model
        What they are for.
    x, y
        As of `Model.fit`.
    sample_weight, class_weight
        As of `Model.fit`.
    """

    def __init__(
        self, model: Model, x: Any, y: Any, sample_weight: Any = None, class_weight: Any = None
    ) -> None:
        xs, values, self.labels = model._checked(x, y)
        self.columns = [*xs, values]
        self._inputs = len(xs)
        self.weighted = sample_weight is not None
        if sample_weight is not None:
            self.columns.append(checked_weights(sample_weight, len(values)))
        if class_weight is not None:
            self.weigh(class_weight)

    @property
    def values(self) -> np.ndarray:
        """The labels."""
        return self.columns[self._inputs]

    def weigh(self, class_weight: Any) -> None:
        """Multiply the weights of rows by those of their classes."""
        row_weights = weights_of_classes(class_weight, self.values, self.labels, self.values)
        if self.weighted:
            self.columns[-1] = self.columns[-1] * row_weights
        else:
            self.columns.append(row_weights)
            self.weighted = True

    @property
    def rows(self) -> int:
        """How many examples there are."""
        return len(self.columns[0])

    @property
    def sample(self) -> list[np.ndarray]:
        """All columns."""
        return self.columns

    def split(self, share: float) -> tuple[Arrays, Arrays]:
        """Return all rows but the last ones, and these, a share of them."""
        training_rows = self.rows - math.floor(self.rows * share)
        if not 0 < training_rows < self.rows:
            raise DataError(message(f"validation_split={share!r} of {self.rows} examples"))
        return self._part(slice(training_rows)), self._part(slice(training_rows, None))

    def _part(self, rows: slice) -> Arrays:
        rows_source = object.__new__(Arrays)
        rows_source.labels, rows_source.weighted, rows_source._inputs = (
            self.labels,
            self.weighted,
            self._inputs,
        )
        rows_source.columns = [column[rows] for column in self.columns]
        return rows_source

    def at(self, rows: slice | np.ndarray, place: int, number: int) -> Batch:
        """Return the rows at some positions, as batch `place` of an epoch."""
        if isinstance(rows, slice):
            return tuple(column[rows] for column in self.columns)
        # "clip" spares the buffering that checked indices would cost.
        return tuple(np.take(column, rows, axis=0, mode="clip") for column in self.columns)

    def about(self) -> dict[str, Any]:
        """Return values that identify these data."""
        total = 0
        for array in self.columns:
            for row in (0, len(array) // 2, len(array) - 1):
                total = zlib.crc32(np.ascontiguousarray(array[row]).tobytes(), total)
        return {"shapes": [list(array.shape) for array in self.columns], "sample": total}

    def count(self, size: int) -> int | None:
        """Return how many batches there are, None where that is not known."""
        return math.ceil(self.rows / size)

    def epoch(
        self, number: int, size: int, seed: int | None, shard: tuple[int, int]
    ) -> Iterator[tuple[int, Batch]]:
        """Yield the batches of one pass; see `Source`."""
        rows = batches(
            *self.columns, size=size, shuffle=seed is not None, seed=seed or 0, shard=shard
        )
        rows.epoch = number
        return ((rows.rows(i), batch) for i, batch in enumerate(rows))


class Stream:
    """An iterable of batches ``(x, y)`` or ``(x, y, weights)``, tuples or lists.

    Parameters
    ----------
    model
        What they are for.
    x
        The iterable. Where it has an attribute `epoch`, that is set to the number of the pass.
    class_weight
        As of `Model.fit`.
    """

    def __init__(self, model: Model, x: Any, class_weight: Any = None) -> None:
        self._batches = x
        self.once = iter(x) is x
        self._ahead: list[Any] = []  # what was drawn of an iterator and is not given yet
        first = next(iter(x), None)
        if first is None:
            raise DataError(message("there are no batches", need="at least one"))
        if self.once:
            self._ahead.append(first)
        self._take_first(model, first, class_weight)

    def _take_first(self, model: Model, first: Any, class_weight: Any) -> None:
        self._model, self._class_weight = model, class_weight
        self.weighted = False
        parts = self._parts(first)
        count = len(model.inputs or (0,))
        inputs, y = parts[:count], parts[count]
        self.weighted = class_weight is not None or len(parts) > count + 1
        _, values, self.labels = model._checked(list(inputs) if count > 1 else inputs[0], y)
        self._first_labels = values
        conformed = self._conformed(parts)
        self._none = tuple(array[:0] for array in conformed)
        #: Of the arrays of each batch.
        self.dtypes = tuple(array.dtype for array in conformed)

    @property
    def rows(self) -> int:
        """How many examples there are, 0 where that is not known."""
        return 0

    @property
    def sample(self) -> list[np.ndarray]:
        """The first labels: ranks may augment examples, each its own way."""
        return [self._first_labels]

    def _parts(self, batch: Any) -> tuple[Any, ...]:
        """Return inputs, labels and, where there are some, weights of a batch."""
        count = len(self._model.inputs or (0,))
        if isinstance(batch, (list, tuple)) and count > 1 and len(batch) in (2, 3):
            if isinstance(batch[0], (list, tuple)):
                batch = (*batch[0], *batch[1:])
        if isinstance(batch, (list, tuple)) and len(batch) in (count + 1, count + 2):
            return tuple(batch)
        kind = type(batch).__name__
        if isinstance(batch, (list, tuple)):
            kind += f" of {len(batch)}"
        hint = None
        if isinstance(batch, Mapping):
            hint = f"tuples of its members {', '.join(map(repr, list(batch)[:4]))}"
        raise DataError(
            message(
                f"a batch is a {kind}, and no pair of examples and labels",
                need="x and y, or an iterable of batches (x, y) or (x, y, weights)",
                hint=hint,
            )
        )

    def about(self) -> dict[str, Any]:
        """Return values that identify these data."""
        return {"batches": self.count(0)}

    def count(self, size: int) -> int | None:
        """Return how many batches there are, None where that is not known."""
        return len(self._batches) if hasattr(self._batches, "__len__") else None

    def epoch(
        self, number: int, size: int, seed: int | None, shard: tuple[int, int]
    ) -> Iterator[tuple[int, Batch]]:
        """Yield the batches of one pass; see `Source`."""
        if hasattr(self._batches, "epoch"):
            self._batches.epoch = number
        batches: Iterable[Any] = self._batches
        if self._ahead:
            batches = itertools.chain((self._ahead.pop(),), batches)
        return (self._own_part(self._checked(i, b, number), shard) for i, b in enumerate(batches))

    def _own_part(self, batch: Batch, shard: tuple[int, int]) -> tuple[int, Batch]:
        rows = len(batch[-1])
        begin, end = part(rows, *shard)
        return rows, tuple(array[begin:end] for array in batch)

    def _checked(self, place: int, batch: Any, number: int) -> Batch:
        try:
            return self._conformed(self._parts(batch))
        except DataError as error:
            raise DataError(f"in batch {place} of epoch {number}, {error}") from None

    def _conformed(self, parts: tuple[Any, ...]) -> Batch:
        model = self._model
        count = len(model.inputs)
        xs, y, *rest = parts[:count], parts[count], *parts[count + 1 :]
        inputs = conform_inputs(list(xs) if count > 1 else xs[0], model.inputs, model.limits)
        labels = self.labels.conform(as_array(y, "the labels"))
        rows = check_rows(inputs, labels)
        if not self.weighted:
            if rest:
                raise DataError(message("it has weights, and the first one had none"))
            return (*inputs, labels)
        weights = np.ones(rows, np.float32)
        if rest:
            weights *= checked_weights(rest[0], rows)
        elif self._class_weight is None:
            raise DataError(message("it has no weights, and the first one had some"))
        if self._class_weight is not None:
            weights *= weights_of_classes(self._class_weight, labels, self.labels)
        return (*inputs, labels, weights)


class Examples(Stream):
    """A set of examples ``(x, y)`` by their positions, with a length.

    Parameters
    ----------
    model
        What they are for.
    x
        An object with ``__len__`` and ``__getitem__``.
    class_weight
        As of `Model.fit`.
    """

    def __init__(self, model: Model, x: Any, class_weight: Any = None) -> None:
        self._examples = x
        self.once = False
        self._ahead = []
        self._model = model
        self._take_first(model, self._joined([0]), class_weight)

    @property
    def rows(self) -> int:
        """How many examples there are."""
        return len(self._examples)

    def _joined(self, positions: Iterable[int]) -> tuple[Any, ...]:
        """Return the examples at some positions as a batch."""
        examples = [self._parts(self._examples[int(i)]) for i in positions]
        if len({len(example) for example in examples}) > 1:
            raise DataError(message("some examples have weights, and some have none"))
        columns = zip(*examples, strict=True)
        return tuple(as_array([as_array(v) for v in column]) for column in columns)

    def at(self, rows: slice | np.ndarray, place: int, number: int) -> Batch:
        """Return the examples at some positions, as batch `place` of an epoch."""
        positions = np.arange(self.rows)[rows]
        if not len(positions):
            return self._none
        return self._checked(place, self._joined(positions), number)

    def about(self) -> dict[str, Any]:
        """Return values that identify these data."""
        return {"examples": self.rows}

    def count(self, size: int) -> int | None:
        """Return how many batches there are, None where that is not known."""
        return math.ceil(self.rows / size)

    def epoch(
        self, number: int, size: int, seed: int | None, shard: tuple[int, int]
    ) -> Iterator[tuple[int, Batch]]:
        """Yield the batches of one pass; see `Source`."""
        own = batches(
            np.arange(self.rows), size=size, shuffle=seed is not None, seed=seed or 0, shard=shard
        )
        own.epoch = number
        for place, (positions,) in enumerate(own):
            yield own.rows(place), self._checked(place, self._joined(positions), number)
