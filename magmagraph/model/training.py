"""One run of training: epochs, batches, callbacks, and the state that a checkpoint holds."""

from __future__ import annotations

import difflib
import inspect
import itertools
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..distributed.training import Team
from ..errors import ArgumentError, ConfigError, DataError, DivergedError, message
from ..function import Function
from .callbacks import Callback, Checkpoint, as_callback
from .data import checked_size, on_host
from .divergence import explain
from .epoch_log import write_epoch
from .history import History
from .progress import Progress
from .resuming import Resumable
from .run import Trained
from .shards import Shards, balanced_over_shards
from .sources import Arrays, Source, is_batches, source_of

__all__ = ["History", "Training", "check_options"]

# Options of `mg.function` that the step of a model fills in itself.
_TAKEN = ("inputs", "outputs", "updates", "name")


def check_options(options: dict[str, Any], method: Callable[..., Any]) -> None:
    """Refuse arguments that neither `Model.fit`, the method, nor `mg.function` takes."""
    compiled = inspect.signature(Function).parameters
    options_known = [name for name in compiled if name not in _TAKEN]
    for name in options:
        if name not in options_known:
            near = difflib.get_close_matches(
                name, [*inspect.signature(method).parameters, *options_known], 1
            )
            raise ArgumentError(
                message(f"fit has no argument {name!r}", hint=f"{near[0]}=" if near else None)
            )


def _checksum(arrays: list[np.ndarray]) -> int:
    """Return a number by which ranks see that they are given other examples."""
    checksum = 0
    for array in arrays:
        rows = array[:: max(1, len(array) // 64)]
        checksum = zlib.crc32(rows.tobytes(), checksum)
    return checksum


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _refuse_once(x: Any, what: str, also: str = "") -> None:
    """Refuse an iterator, which gives its batches only once."""
    if getattr(x, "__iter__", None) is None or hasattr(x, "shape") or iter(x) is not x:
        return
    raise DataError(
        message(
            f"{what} is given a {type(x).__name__}, which gives its batches only once",
            need="x and y, or an iterable of batches (x, y) for any number of epochs",
            hint="mg.batches(x, y), a list, or an object whose __iter__ begins anew"
            + (f"; {also}" if also else ""),
        )
    )


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
        model: Trained,
        x: Any,
        y: Any,
        *,
        batch_size: int | Callable[[int], int],
        epochs: int,
        validation_data: Any,
        validation_split: float,
        callbacks: Iterable[Any],
        shuffle: bool,
        verbose: int | str = "auto",
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        data: str = "whole",
        options: dict[str, Any],
    ) -> None:
        if not isinstance(epochs, (int, np.integer)) or epochs < 0:
            raise ConfigError(message(f"epochs={epochs!r}", need="an int of at least 0"))
        if not _is_int(initial_epoch) or initial_epoch < 0:
            raise ConfigError(
                message(f"initial_epoch={initial_epoch!r}", need="an int of at least 0")
            )
        if steps_per_epoch is not None and (not _is_int(steps_per_epoch) or steps_per_epoch < 1):
            raise ConfigError(
                message(f"steps_per_epoch={steps_per_epoch!r}", need="an int of at least 1")
            )
        if shuffle not in (True, False):
            raise ConfigError(message(f"shuffle={shuffle!r}", need="True or False"))
        if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
            raise ConfigError(
                message(f"callbacks={callbacks!r}", need="a list", hint="callbacks=[callback]")
            )
        progress = Progress.wanted(verbose)
        self.model = model
        self.epochs = int(epochs)
        self.shuffle = bool(shuffle)
        self._initial = self.epoch = int(initial_epoch)
        self.step = 0
        self.stopping = False
        self.record: dict[str, Any] = {}
        self.history = History()
        # An epoch of a run that begins later has the order that it would have in a whole run.
        self._first = max(0, model._epochs - self._initial)
        self._wanted = batch_size if callable(batch_size) else lambda epoch: batch_size
        self.batch_size = checked_size(self._wanted(self.epoch))
        self.steps_per_epoch = steps_per_epoch
        self._team = Team(options.get("distribute"))
        #: Which part of each batch this process takes, and of how many.
        self.shard = self._team.shard
        self._sharded = self._is_sharded(data)
        data_arguments = (x, y, sample_weight, class_weight, validation_data, validation_split)
        if self._sharded:
            self._take_shards(*data_arguments)
        else:
            self._take_data(*data_arguments)
        if self._team.spread:
            sizes: dict[str, Any] = {
                "batch_size": self.batch_size,
                "epochs": self.epochs,
                "initial_epoch": self._initial,
                "steps_per_epoch": steps_per_epoch,
                "shuffle": shuffle,
                "epochs before": self._first,
            }
            contents = {"the model's seed": model.seed}
            if not self._sharded:
                validation = [] if self.validation is None else self.validation.sample
                later = self.validation and self.validation.rows
                sizes = {"examples": self.data.rows, "examples for validation": later, **sizes}
                contents["a checksum of some examples"] = _checksum(self.data.sample)
                contents["a checksum of some examples for validation"] = _checksum(validation)
            self._team.check(sizes, contents)
        self.function = model.training_step(
            self.data.labels, weighted=self.data.weighted, **options
        )
        self._team.begin(self.function)
        self.callbacks: list[Callback] = [
            as_callback(callback) for callback in callbacks
        ]
        # Checkpoints run last, so that a file holds the results of other callbacks.
        self.callbacks.sort(key=lambda callback: isinstance(callback, Checkpoint))
        self._progress = progress if self._team.is_first else None
        if progress is not None:
            self.callbacks.append(progress)
        self._totals: list[Any] = [0.0] * (1 + len(model.metrics) + self.data.weighted)
        self._rows = 0
        self._left: Iterator[tuple[int, tuple[np.ndarray, ...]]] | None = None
        self._passes = 0  # over the data, where epochs are numbers of steps

    # Data.

    def _take_data(
        self,
        x: Any,
        y: Any,
        sample_weight: Any,
        class_weight: Any,
        validation: Any,
        split: float,
    ) -> None:
        model = self.model
        if self.steps_per_epoch is None and y is None:
            _refuse_once(x, "fit", "or steps_per_epoch=")
        data = source_of(model, x, y, sample_weight, class_weight)
        self.data: Source = data
        self.validation: Source | None = None
        if validation is not None:
            self.validation = self._validation(validation)
            if self.validation.labels is not data.labels:
                raise DataError(
                    message(
                        f"the labels for validation are {self.validation.labels.node.type}",
                        need=f"{data.labels.node.type}, as those of the training",
                    )
                )
        elif split and not isinstance(data, Arrays):
            raise ConfigError(
                message(
                    f"validation_split={split} of an iterable of batches",
                    need="arrays, of whose rows some are kept aside",
                    hint="validation_data=(x, y)",
                )
            )
        elif split:
            assert isinstance(data, Arrays)
            self.data, self.validation = data.split(split)

    def _is_sharded(self, data: str) -> bool:
        """Return whether ranks bring data of their own; all of them have to say the same."""
        if data not in ("whole", "sharded"):
            raise ConfigError(message(f"data={data!r}", need="'whole' or 'sharded'"))
        self._team.same({"data": data}, "the same argument data= on all ranks")
        if data == "sharded" and not self._team.spread:
            raise ConfigError(
                message(
                    "data='sharded' without distribute=",
                    need="a strategy, by which ranks train one model",
                    hint="distribute=mg.distributed.DataParallel()",
                )
            )
        return data == "sharded"

    def _take_shards(
        self,
        x: Any,
        y: Any,
        sample_weight: Any,
        class_weight: Any,
        validation: Any,
        split: float,
    ) -> None:
        """Take this rank's shard; an error on one rank is raised on all ranks."""
        balanced = isinstance(class_weight, str) and class_weight == "balanced"
        weights = None if balanced else class_weight
        self._team.whole(
            lambda: self._take_data(x, y, sample_weight, weights, validation, split),
            "training has not begun",
        )
        data, later = self.data, self.validation
        forms = {
            "the data": type(data).__name__,
            "the examples": ", ".join(str(node.type) for node in self.model.inputs),
            "the labels": str(data.labels.node.type),
            "weights of rows": data.weighted,
            "data for validation": None if later is None else type(later).__name__,
            "weights of rows for validation": later is not None and later.weighted,
        }
        self._team.same(forms, "shards of the same kind on all ranks")
        if balanced:
            # Weights count all rows, including those set aside, as without shards.
            sources = [data, later] if split and later is not None else [data]
            table = balanced_over_shards(sources, self._team)
            for part in sources:
                assert isinstance(part, Arrays)  # or it has no weights
                part.weigh(table)
        self.data = Shards(data, self._team)

    def _validation(self, argument: Any) -> Source:
        """Return the data for validation: arrays (x, y) or (x, y, weights), or batches."""
        if is_batches(argument, len(self.model.inputs or (0,))):
            _refuse_once(argument, "validation_data")
            return source_of(self.model, argument, None)
        if not isinstance(argument, (list, tuple)) or len(argument) not in (2, 3):
            raise DataError(
                message(
                    f"validation_data is {type(argument).__name__}",
                    need="a pair (x, y), or (x, y, weights), or an iterable of batches",
                )
            )
        return Arrays(self.model, *argument)

    def _pass(self, number: int) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
        """Yield the batches of a pass over the data, this rank's part of each."""
        seed = self.model.seed if self.shuffle else None
        return self.data.epoch(number, self.batch_size, seed, self.shard)

    def _batches(self) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
        """Yield the batches of this epoch that are not done yet, this rank's part of each.

        Before each stands the number of its rows on all ranks.
        """
        if self.steps_per_epoch is None:
            whole = self._pass(self._first + self.epoch)
            batches: Iterator[Any] = itertools.islice(whole, self.step, None)
        else:
            batches = self._next_batches(self.steps_per_epoch)
        if self._team.asynchronous:
            # A rank's results are those of its own rows, and it has none where there are too few.
            return ((len(batch[-1]), batch) for _, batch in batches if len(batch[-1]))
        return batches

    def _next_batches(self, steps: int) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
        """Yield the rest of an epoch of `steps` steps; passes continue across epochs."""
        if self._left is None:
            done = (self.epoch - self._initial) * steps + self.step  # of a run that resumes
            count = self.data.count(self.batch_size)
            if count is not None:
                done += (self._first + self._initial) * steps
                self._passes, done = divmod(done, count)
            self._left = itertools.islice(self._pass(self._passes), done, None)
        for step in range(self.step, steps):
            batch = next(self._left, None)
            if batch is None:
                self._passes += 1
                self._left = self._pass(self._passes)
                batch = next(self._left, None)
            if batch is None:
                raise DataError(
                    message(
                        f"the batches end in epoch {self.epoch}, step {step}",
                        need=f"{steps} for each of {self.epochs} epochs",
                        hint="steps_per_epoch=None: an epoch is one pass over the data",
                    )
                )
            yield batch

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
        self._began_with = self.epoch  # in which functions are compiled
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

    def _each(self, event: str) -> None:
        for callback in self._called:
            getattr(callback, event)(self)

    @property
    def _called(self) -> list[Callback]:
        """The callbacks of this process."""
        return [c for c in self.callbacks if self._team.is_first or not c.first_rank_only]

    def _stop_together(self, where: str) -> None:
        """End the run of all processes where one ends it: by a clock, say, or a file."""
        self.stopping = self._team.agree(self.stopping, where)

    _cut = False  # whether a callback stopped the run within an epoch
    _seconds = 0.0  # of this epoch, before the run was cut

    def _one_epoch(self) -> None:
        """Finish an epoch; undo its updates if its data raise an error."""
        before = [(variable, variable.value) for variable in self.function.updated]
        first = self.step
        try:
            self._steps_of_epoch()
        except (DataError, DivergedError) as error:
            for variable, value in before:
                variable.assign(value)
            if isinstance(error, DivergedError):
                self._explain(error, first)
                for variable, value in before:
                    variable.assign(value)
            raise

    def _explain(self, error: DivergedError, first: int) -> None:
        """Add to an error what made the first value that is not finite, from this step on."""
        done, self.step, self._left = self.step, first, None
        explained = False
        # Other ranks do not repeat theirs, and a generator does not give its batches again.
        if not self._team.spread and not getattr(self.data, "once", False):
            try:
                explained = explain(error, self.function, self._batches(), self._finite_weights)
            except Exception as failure:  # of the user's data, say: the error itself counts
                error.add_note(f"why is not known: the epoch cannot be repeated: {failure}")
        self.step = done
        if explained and self.epoch == self._initial and error.step == 0:
            return  # the initial weights: no update has changed them
        hint = "a smaller learning rate, or clip_norm="
        error.args = (f"{error}\n  try: {hint}", *error.args[1:])

    def _finite_weights(self) -> bool:
        try:
            self.check_weights()
        except DivergedError:
            return False
        return True

    def _steps_of_epoch(self) -> None:
        began = time.perf_counter()
        if self._by_steps():
            self._step_by_step(began)
            if self._cut:
                return
        else:
            self._at_once()
        self._totals, self._rows = self._team.joined(self._totals, self._rows)
        if not self._rows:
            raise DataError(message("there are no batches", need="at least one"))
        self.check_weights()
        self.record = self.model._result(self._totals, self._rows)
        seconds = self._seconds + time.perf_counter() - began
        self.record["seconds"] = self._team.longest(seconds)
        if self.validation is not None:
            totals, rows = self.model._totals(self.validation, max(256, self.batch_size))
            if self._sharded:
                totals, rows = self._team.added(totals, rows)
            results = self.model._result(totals, rows)
            self.record.update((f"val_{name}", value) for name, value in results.items())
        self.history.records.append(self.record)
        if self._team.is_first:
            write_epoch(
                ranks=self._team.size,
                epoch=self.epoch,
                first=self.epoch == self._began_with,
                steps=self.step,
                rows=self._rows,
                seconds=self.record["seconds"],
                loss=self.record["loss"],
            )
        self._begin_epoch(self.epoch + 1)
        self._each("epoch_end")
        self._stop_together("the end of an epoch")

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch, self.step = epoch, 0
        self._rows, self._seconds = 0, 0.0
        self._totals = [0.0] * len(self._totals)

    def _by_steps(self) -> bool:
        """Return whether callbacks look at single steps, here or where it is waited for."""
        single = any(callback.every_step for callback in self.callbacks)
        return self._team.any(single, "the beginning of an epoch")

    def _step_by_step(self, began: float) -> None:
        before = self._seconds
        for rows, batch in self._batches():
            loss, *statistics = on_host(self.function(*batch))
            self._add(loss, statistics, rows)
            self.step += 1
            self._seconds = before + time.perf_counter() - began
            self._move(self.step, self._totals[0] / max(1, self._rows))
            for callback in self._called:
                if callback.every_step:
                    callback.step_end(self)
            if not self._team.asynchronous:
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
                self._move(self.step + len(counts), None)

        losses, *statistics = on_host(self.function.run(counted()))
        for i, count in enumerate(counts):
            self._add(losses[i], [column[i] for column in statistics], count)
            self.step += 1

    def _move(self, done: int, loss: float | None) -> None:
        """Show how many batches of the epoch are done."""
        if self._progress is not None:
            total = self.steps_per_epoch or self.data.count(self.batch_size)
            self._progress.moved(self, done, total, loss)

    def _add(self, loss: Any, statistics: list[Any], rows: int) -> None:
        value = float(loss)
        if not math.isfinite(value):
            raise self._diverged(f"the loss is {value}")
        self._totals[0] += value * rows
        self._totals[1:] = [
            total + np.asarray(new)
            for total, new in zip(self._totals[1:], statistics, strict=True)
        ]
        self._rows += rows

    def check_weights(self) -> None:
        """Raise `DivergedError` where a trained weight is not finite: no later loss may tell."""
        for variable in self.model.trainable:
            value = variable.state.data
            # The sum is finite where all are, and makes no array of flags.
            if not np.isfinite(np.sum(value, dtype=np.float64)) and not np.isfinite(value).all():
                raise self._diverged(f"weight '{variable.name}' holds NaN or infinity")

    def _diverged(self, what: str) -> DivergedError:
        return DivergedError(
            message(
                f"{what} in epoch {self.epoch}, step {self.step}; the weights are those of the "
                "beginning of the epoch",
                need="finite losses",
            ),
            self.step,
        )
