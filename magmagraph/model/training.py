"""One run of training: epochs, batches, callbacks, and the state that a checkpoint holds."""

from __future__ import annotations

import difflib
import inspect
import itertools
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..communicator import Communicator, current
from ..data import batches
from ..data.batching import part
from ..distributed import strategies
from ..distributed.alike import check_alike
from ..errors import ArgumentError, ConfigError, DataError, DivergedError, message
from ..function import Function
from .callbacks import Callback, Checkpoint, as_callback
from .data import as_array, check_rows, checked_size, conform_inputs, on_host
from .history import History
from .progress import Progress
from .resuming import Resumable

if TYPE_CHECKING:
    from .model import Model

__all__ = ["History", "Training", "check_options"]

# Options of `mg.function` that the step of a model fills in itself.
_TAKEN = ("inputs", "outputs", "updates", "name")


def check_options(options: dict[str, Any], method: Callable[..., Any]) -> None:
    """Refuse arguments that neither `Model.fit`, the method, nor `mg.function` takes."""
    compiled = inspect.signature(Function).parameters
    known = [name for name in compiled if name not in _TAKEN]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(
                name, [*inspect.signature(method).parameters, *known], 1
            )
            raise ArgumentError(
                message(f"fit has no argument {name!r}", hint=f"{near[0]}=" if near else None)
            )


def _checksum(arrays: list[np.ndarray]) -> int:
    """Return a number by which ranks see that they are given other examples."""
    found = 0
    for array in arrays:
        rows = array[:: max(1, len(array) // 64)]
        found = zlib.crc32(rows.tobytes(), found)
    return found


class Training(Resumable):
    """A run of `Model.fit`, as callbacks see it.

    Attributes
    ----------
    model
        What is trained.
    epoch, step
        The epoch, counted from 0; how many steps were done in it.
    epochs, batch_size
        Of the run; a callback may set the batch size in its `epoch_begin`.
    record
        What the last epoch reported.
    stopping
        Set to True to end the run after this epoch, or this step.
    """

    def __init__(
        self,
        model: Model,
        x: Any,
        y: Any,
        *,
        batch_size: int | Callable[[int], int],
        epochs: int,
        validation_data: tuple[Any, Any] | None,
        validation_split: float,
        callbacks: Iterable[Any],
        shuffle: bool,
        progress: bool | None,
        options: dict[str, Any],
    ) -> None:
        if not isinstance(epochs, (int, np.integer)) or epochs < 0:
            raise ConfigError(message(f"epochs={epochs!r}", need="an int of at least 0"))
        if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
            raise ConfigError(
                message(f"callbacks={callbacks!r}", need="a list", hint="callbacks=[callback]")
            )
        self.model = model
        self.epochs = int(epochs)
        self.shuffle = shuffle
        self.epoch = self.step = 0
        self.stopping = False
        self.record: dict[str, Any] = {}
        self.history = History()
        self._first = model._epochs
        self._wanted = batch_size if callable(batch_size) else lambda epoch: batch_size
        self.batch_size = checked_size(self._wanted(0))
        self._source: Any = None
        self._take_data(x, y, validation_data, validation_split)
        self._ranks: Communicator | None = None  # those that train together, several of them
        self._strategy = strategy = strategies.checked(options.get("distribute"))
        #: Which part of each batch this rank takes, and of how many.
        self.shard = (0, 1) if strategy is None else strategy.shard()
        if strategy is not None:
            check_alike(
                {
                    "examples": len(self.y),
                    "examples for validation": self.validation and len(self.validation[1]),
                    "batch_size": self.batch_size,
                    "epochs": self.epochs,
                    "shuffle": shuffle,
                    "epochs before": self._first,
                }
            )
            held = current()
            together = held.group(strategy.axes_of(held.mesh))
            self._ranks = together if together.size > 1 else None
            check_alike(
                {
                    "the model's seed": model.seed,
                    "a checksum of some examples": _checksum(self._sample),
                    "a checksum of some examples for validation": _checksum(
                        [] if self.validation is None else [*self.validation[0], self.validation[1]]
                    ),
                },
                ranks=together,
            )
        self.function = model.training_step(self.labels, **options)
        if self._ranks is not None:
            self.function._begin_alike()
        self.callbacks: list[Callback] = [as_callback(given) for given in callbacks]
        # Last, so that a file holds what the others made of the epoch.
        self.callbacks.sort(key=lambda callback: isinstance(callback, Checkpoint))
        if Progress.wanted(progress):
            self.callbacks.append(Progress())
        self._totals: list[Any] = [0.0] * (1 + len(model.metrics))
        self._rows = 0

    # Data.

    def _take_data(
        self, x: Any, y: Any, validation: tuple[Any, Any] | None, split: float
    ) -> None:
        model = self.model
        iterable = getattr(x, "__iter__", None) is not None  # a class may refuse by None
        if y is None and iterable and not hasattr(x, "shape"):
            if iter(x) is x:
                raise DataError(
                    message(
                        f"fit is given a {type(x).__name__}, which gives its batches only once",
                        need="x and y, or an iterable of batches (x, y) for any number of epochs",
                        hint="mg.batches(x, y), a list, or an object whose __iter__ begins anew",
                    )
                )
            first = next(iter(x), None)
            if first is None:
                raise DataError(message("there are no batches", need="at least one"))
            if not isinstance(first, tuple) or len(first) != len(model.inputs or (0,)) + 1:
                raise DataError(
                    message(
                        "fit is given examples without labels",
                        need="x and y, or an iterable of batches (x, y)",
                    )
                )
            self._source = x
            *given, y = first
            _, y, self.labels = model._checked(given if len(given) > 1 else given[0], y)
            self._sample = [y]  # ranks may augment examples, each its own way
            self.xs: list[np.ndarray] = []
            self.y = np.empty(0)
        else:
            self.xs, self.y, self.labels = model._checked(x, y)
            self._sample = [*self.xs, self.y]
        self.validation: Any = None
        if validation is not None:
            if not isinstance(validation, (list, tuple)) or len(validation) != 2:
                raise DataError(
                    message(
                        f"validation_data is {type(validation).__name__}", need="a pair (x, y)"
                    )
                )
            xs, wanted, labels = model._checked(*validation)
            if labels is not self.labels:
                raise DataError(
                    message(
                        f"the labels for validation are {labels.node.type}",
                        need=f"{self.labels.node.type}, as those of the training",
                    )
                )
            self.validation = (xs, wanted)
        elif split and self._source is not None:
            raise ConfigError(
                message(
                    f"validation_split={split} of an iterable of batches",
                    need="arrays, of whose rows some are kept aside",
                    hint="validation_data=(x, y)",
                )
            )
        elif split:
            kept = len(self.y) - math.floor(len(self.y) * split)
            if not 0 < kept < len(self.y):
                raise DataError(message(f"validation_split={split} of {len(self.y)} examples"))
            self.validation = ([x[kept:] for x in self.xs], self.y[kept:])
            self.xs, self.y = [x[:kept] for x in self.xs], self.y[:kept]

    def _batches(self) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
        """Yield the batches of this epoch that are not done yet, this rank's part of each.

        Before each stands the number of its rows on all ranks.
        """
        if self._source is not None:
            if hasattr(self._source, "epoch"):
                self._source.epoch = self._first + self.epoch
            made: Iterator[tuple[int, tuple[np.ndarray, ...]]] = (
                self._own_part(self._checked_batch(i, batch))
                for i, batch in enumerate(self._source)
            )
        else:
            rows = batches(
                *self.xs,
                self.y,
                size=self.batch_size,
                shuffle=self.shuffle,
                seed=self.model.seed,
                shard=self.shard,
            )
            rows.epoch = self._first + self.epoch
            made = ((rows.rows(i), batch) for i, batch in enumerate(rows))
        if self._strategy is not None and self._strategy.asynchronous:
            # A rank's results are those of its own rows, and it has none where there are too few.
            made = ((len(batch[-1]), batch) for _, batch in made if len(batch[-1]))
        return itertools.islice(made, self.step, None)

    def _own_part(
        self, batch: tuple[np.ndarray, ...]
    ) -> tuple[int, tuple[np.ndarray, ...]]:
        rows = len(batch[-1])
        begin, end = part(rows, *self.shard)
        return rows, tuple(array[begin:end] for array in batch)

    def _checked_batch(self, number: int, batch: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
        try:
            return self._conformed(batch)
        except DataError as error:
            raise DataError(f"in batch {number} of epoch {self.epoch}, {error}") from None

    def _conformed(self, batch: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
        *xs, y = batch
        held = conform_inputs(
            xs if len(xs) > 1 else xs[0], self.model.inputs, self.model.limits
        )
        labels = self.labels.conform(as_array(y, "the labels"))
        check_rows(held, labels)
        return (*held, labels)

    # The run.

    @property
    def reported(self) -> list[str]:
        """The names of what an epoch will report, callbacks' own aside."""
        names = ["loss", *(kind.name for kind in self.model.metrics)]
        later = [] if self.validation is None else [f"val_{name}" for name in names]
        return [*names, "seconds", *later]

    def run(self) -> History:
        """Go through the epochs that are left."""
        model = self.model
        self._each("begin")
        try:
            while self.epoch < self.epochs and not self.stopping:
                if self.step == 0:
                    self.batch_size = checked_size(self._wanted(self.epoch))
                    self._each("epoch_begin")
                self._one_epoch()
                if self.stopping and self._cut:
                    break
        finally:
            model.history = self.history
            model._epochs = self._first + self.epoch + (self.step > 0)
            self._each("end")
        return self.history

    @property
    def _is_first(self) -> bool:
        """Whether this is the first of the ranks that train together, or the only one."""
        ranks = self.function.communicator
        return ranks is None or ranks.rank == 0

    def _each(self, event: str) -> None:
        for callback in self._called:
            getattr(callback, event)(self)

    @property
    def _called(self) -> list[Callback]:
        """The callbacks of this rank."""
        return [c for c in self.callbacks if self._is_first or not c.first_rank_only]

    def _stop_together(self, where: str) -> None:
        """End the run on all ranks where one ends it: by a clock, say, or a file."""
        if self._ranks is not None:
            told = self._ranks.agree(True if self.stopping else None, where)
            self.stopping = told is not None

    _cut = False  # whether a callback stopped the run within an epoch
    _seconds = 0.0  # of this epoch, before the run was cut

    def _one_epoch(self) -> None:
        """Go through what is left of an epoch; leave nothing of one that fails by its data."""
        kept = [(held, held.value) for held in self.function.updated]
        try:
            self._steps_of_epoch()
        except (DataError, DivergedError):
            for held, value in kept:
                held.assign(value)
            raise

    def _steps_of_epoch(self) -> None:
        began = time.perf_counter()
        if self._by_steps():
            self._step_by_step(began)
            if self._cut:
                return
        else:
            self._at_once()
        self._totals, self._rows = strategies.joined(self._strategy, self._totals, self._rows)
        if not self._rows:
            raise DataError(message("there are no batches", need="at least one"))
        self.check_weights()
        self.record = self.model._result(self._totals, self._rows)
        self.record["seconds"] = self._seconds + time.perf_counter() - began
        if self.validation is not None:
            xs, y = self.validation
            found = self.model._evaluated(xs, y, self.labels, max(256, self.batch_size))
            self.record.update((f"val_{name}", value) for name, value in found.items())
        self.history.records.append(self.record)
        self._begin_epoch(self.epoch + 1)
        self._each("epoch_end")
        self._stop_together("the end of an epoch")

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch, self.step = epoch, 0
        self._rows, self._seconds = 0, 0.0
        self._totals = [0.0] * len(self._totals)

    def _by_steps(self) -> bool:
        """Return whether callbacks look at single steps, on this rank or one that waits for it."""
        wanted = any(callback.every_step for callback in self.callbacks)
        if self._ranks is None or self._asynchronous:
            return wanted
        return any(self._ranks.exchange(wanted, "the beginning of an epoch"))

    @property
    def _asynchronous(self) -> bool:
        """Whether ranks may take different numbers of steps."""
        return self._strategy is not None and self._strategy.asynchronous

    def _step_by_step(self, began: float) -> None:
        before = self._seconds
        for rows, batch in self._batches():
            loss, *found = on_host(self.function(*batch))
            self._add(loss, found, rows)
            self.step += 1
            self._seconds = before + time.perf_counter() - began
            for callback in self._called:
                if callback.every_step:
                    callback.step_end(self)
            if not self._asynchronous:
                self._stop_together("the end of a step")
            if self.stopping:
                self._cut = True
                return
        self._seconds = before

    def _at_once(self) -> None:
        """Run the rest of the epoch inside of the function."""
        counts: list[int] = []

        def counted() -> Iterator[tuple[np.ndarray, ...]]:
            for rows, batch in self._batches():
                counts.append(rows)
                yield batch

        losses, *found = on_host(self.function.run(counted()))
        for i, count in enumerate(counts):
            self._add(losses[i], [column[i] for column in found], count)
            self.step += 1

    def _add(self, loss: Any, found: list[Any], rows: int) -> None:
        value = float(loss)
        if not math.isfinite(value):
            raise self._diverged(f"the loss is {value}")
        self._totals[0] += value * rows
        self._totals[1:] = [
            total + np.asarray(new)
            for total, new in zip(self._totals[1:], found, strict=True)
        ]
        self._rows += rows

    def check_weights(self) -> None:
        """Raise `DivergedError` where a trained weight is not finite: no later loss may tell."""
        for held in self.model.trainable:
            value = held.state.data
            # The sum is finite where all are, and makes no array of flags.
            if not np.isfinite(np.sum(value, dtype=np.float64)) and not np.isfinite(value).all():
                raise self._diverged(f"weight '{held.name}' holds NaN or infinity")

    def _diverged(self, what: str) -> DivergedError:
        return DivergedError(
            message(
                f"{what} in epoch {self.epoch}, step {self.step}; the weights are those of the "
                "beginning of the epoch",
                need="finite losses",
                hint="a smaller learning rate, or clip_norm=",
            ),
            self.step,
        )
