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

from ..data import batches
from ..errors import ConfigError, DataError, DivergedError, message
from ..function import Function
from ..ops.leaf import Variable
from . import files
from .callbacks import Callback, Checkpoint, as_callback
from .data import check_rows, checked_size, conform_inputs, on_host
from .history import History
from .progress import Progress
from .saving import same_json

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
            raise TypeError(
                message(f"fit has no argument {name!r}", mend=f"{near[0]}=" if near else None)
            )


class Training:
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
                message(f"callbacks={callbacks!r}", need="a list", mend="callbacks=[callback]")
            )
        self.model = model
        self.epochs = int(epochs)
        self.shuffle = shuffle
        self.epoch = self.step = 0
        self.stopping = False
        self.record: dict[str, Any] = {}
        self.history = History()
        self._wanted = batch_size if callable(batch_size) else lambda epoch: batch_size
        self.batch_size = checked_size(self._wanted(0))
        self._source: Any = None
        self._take_data(x, y, validation_data, validation_split)
        self.function = model.training_step(self.labels, **options)
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
        if y is None and hasattr(x, "__iter__") and not hasattr(x, "shape"):
            if iter(x) is x:
                raise DataError(
                    message(
                        f"fit is given a {type(x).__name__}, which gives its batches only once",
                        need="x and y, or an iterable of batches (x, y) for any number of epochs",
                        mend="mg.batches(x, y), a list, or an object whose __iter__ begins anew",
                    )
                )
            first = next(iter(x), None)
            if not isinstance(first, tuple) or len(first) != len(model.inputs or (0,)) + 1:
                raise DataError(
                    message(
                        "fit is given examples without labels",
                        need="x and y, or an iterable of batches (x, y)",
                    )
                )
            if hasattr(x, "epoch"):
                x.epoch = 0
            self._source = x
            *given, y = first
            _, _, self.labels = model._checked(given if len(given) > 1 else given[0], y)
            self.xs: list[np.ndarray] = []
            self.y = np.empty(0)
        else:
            self.xs, self.y, self.labels = model._checked(x, y)
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
                    mend="validation_data=(x, y)",
                )
            )
        elif split:
            kept = len(self.y) - math.floor(len(self.y) * split)
            if not 0 < kept < len(self.y):
                raise DataError(message(f"validation_split={split} of {len(self.y)} examples"))
            self.validation = ([x[kept:] for x in self.xs], self.y[kept:])
            self.xs, self.y = [x[:kept] for x in self.xs], self.y[:kept]

    def _batches(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield the batches of this epoch that are not done yet."""
        if self._source is not None:
            if hasattr(self._source, "epoch"):
                self._source.epoch = self.epoch
            made: Iterator[tuple[np.ndarray, ...]] = (
                self._conformed(batch) for batch in self._source
            )
        else:
            rows = batches(
                *self.xs,
                self.y,
                size=self.batch_size,
                shuffle=self.shuffle,
                seed=self.model.seed,
            )
            rows.epoch = self.epoch
            made = iter(rows)
        return itertools.islice(made, self.step, None)

    def _conformed(self, batch: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
        *xs, y = batch
        held = conform_inputs(xs if len(xs) > 1 else xs[0], self.model.inputs)
        labels = self.labels.conform(np.asarray(y))
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
            self._each("end")
        return self.history

    def _each(self, event: str) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self)

    _cut = False  # whether a callback stopped the run within an epoch
    _seconds = 0.0  # of this epoch, before the run was cut

    def _one_epoch(self) -> None:
        began = time.perf_counter()
        if any(callback.every_step for callback in self.callbacks):
            self._step_by_step(began)
            if self._cut:
                return
        else:
            self._at_once()
        if not self._rows:
            raise DataError(message("there are no batches", need="at least one"))
        self.record = self.model._result(self._totals, self._rows)
        self.record["seconds"] = self._seconds + time.perf_counter() - began
        if self.validation is not None:
            xs, y = self.validation
            found = self.model._evaluated(xs, y, self.labels, max(256, self.batch_size))
            self.record.update((f"val_{name}", value) for name, value in found.items())
        self.history.records.append(self.record)
        self._begin_epoch(self.epoch + 1)
        self._each("epoch_end")

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch, self.step = epoch, 0
        self._rows, self._seconds = 0, 0.0
        self._totals = [0.0] * len(self._totals)

    def _step_by_step(self, began: float) -> None:
        before = self._seconds
        for batch in self._batches():
            loss, *found = on_host(self.function(*batch))
            self._add(loss, found, len(batch[-1]))
            self.step += 1
            self._seconds = before + time.perf_counter() - began
            for callback in self.callbacks:
                if callback.every_step:
                    callback.step_end(self)
            if self.stopping:
                self._cut = True
                return
        self._seconds = before

    def _at_once(self) -> None:
        """Run the rest of the epoch inside of the function."""
        counts: list[int] = []

        def counted() -> Iterator[tuple[np.ndarray, ...]]:
            for batch in self._batches():
                counts.append(len(batch[-1]))
                yield batch

        losses, *found = on_host(self.function.run(counted()))
        for i, count in enumerate(counts):
            self._add(losses[i], [column[i] for column in found], count)
            self.step += 1

    def _add(self, loss: Any, found: list[Any], rows: int) -> None:
        value = float(loss)
        if not math.isfinite(value):
            raise DivergedError(
                message(
                    f"the loss is {value} in epoch {self.epoch}, step {self.step}",
                    need="finite losses",
                    mend="a smaller learning rate, or clip_norm=; the last checkpoint has finite "
                    "weights",
                ),
                self.step,
            )
        self._totals[0] += value * rows
        self._totals[1:] = [
            total + np.asarray(new)
            for total, new in zip(self._totals[1:], found, strict=True)
        ]
        self._rows += rows

    # The state of a run.

    def _about_data(self) -> dict[str, Any]:
        """Return what tells these data from others: shapes, and a sum of some of the bytes."""
        if self._source is not None:
            return {"batches": len(self._source) if hasattr(self._source, "__len__") else None}
        total = 0
        for array in (*self.xs, self.y):
            for row in (0, len(array) // 2, len(array) - 1):
                total = zlib.crc32(np.ascontiguousarray(array[row]).tobytes(), total)
        return {"shapes": [list(array.shape) for array in (*self.xs, self.y)], "sample": total}

    def _own(self) -> list[Variable]:
        """Return what a step renews beside weights and optimizer: random counters, loss scales."""
        others = {weight.variable for weight in self.model.weights().values()}
        others.update(self.model.optimizer.state.values())
        return [held for held in self.function.updated if held not in others]

    def _architecture(self) -> dict[str, Any] | None:
        try:
            return self.model.architecture()
        except ConfigError:  # functions of the user's, which only his code builds again
            return None

    def save(self, path: Any) -> None:
        """Write all that the run needs to go on, to a file, whole or not at all."""
        tensors = {f"weight/{k}": v for k, v in self.model.tensors().items()}
        optimizer = self.model.optimizer.state_dict()
        tensors.update((f"optimizer/{k}", v) for k, v in optimizer.items())
        tensors.update((f"total/{i}", np.asarray(v)) for i, v in enumerate(self._totals))
        kept: list[dict[str, Any]] = []
        for i, callback in enumerate(self.callbacks):
            plain = {}
            for key, value in callback.state_dict().items():
                if isinstance(value, np.ndarray):
                    tensors[f"callback/{i}/{key}"] = value
                else:
                    plain[key] = value
            kept.append(
                {"kind": type(callback).__name__, "resumes": callback.resumes, "state": plain}
            )
        tensors.update((f"own/{i}", held.value) for i, held in enumerate(self._own()))
        about = {
            "kind": "checkpoint",
            "architecture": self._architecture(),
            "optimizer": type(self.model.optimizer).__name__,
            "data": self._about_data(),
            "epoch": self.epoch,
            "step": self.step,
            "rows": self._rows,
            "seconds": self._seconds,
            "batch_size": self.batch_size,
            "wanted_size": self._wanted(self.epoch),
            "shuffle": self.shuffle,
            # A run that was cut within an epoch is to go on.
            "stopping": self.stopping and self.step == 0,
            "history": [
                {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in record.items()}
                for record in self.history.records
            ],
            "callbacks": kept,
        }
        files.write(path, tensors, about)

    def resume(self, path: Any) -> None:
        """Go to where a file was written; a file that is not there means the beginning.

        Raises
        ------
        DataError
            If the file is damaged, or of another model, other data, another batch size or other
            callbacks. Nothing is changed then.
        """
        from pathlib import Path

        if not Path(path).exists():
            return
        tensors, about = files.read(path, "checkpoint")
        source = f"{str(path)!r}"
        wanted = {
            "architecture": self._architecture(),
            # By its class, too: one with a rate of the user's is in no architecture.
            "optimizer": type(self.model.optimizer).__name__,
            "data": self._about_data(),
            "shuffle": self.shuffle,
            "callbacks": [type(c).__name__ for c in self.callbacks if c.resumes],
        }
        found = {
            **{key: about[key] for key in ("architecture", "data", "shuffle")},
            "optimizer": about.get("optimizer", wanted["optimizer"]),
            "callbacks": [c["kind"] for c in about["callbacks"] if c["resumes"]],
        }
        for key, value in wanted.items():
            if not same_json(found[key], value):
                raise DataError(
                    message(
                        f"{source} is a checkpoint of a run with other {key}",
                        need=f"{key} as there: {found[key]}"[:400],
                        mend="the same call of fit that wrote it, or another file",
                    )
                )
        if about["step"] and about["wanted_size"] != self._wanted(about["epoch"]):
            raise DataError(
                message(
                    f"{source} was written within an epoch of batches of {about['wanted_size']}",
                    need="the same batch size",
                )
            )
        parts = _parts(tensors)
        self.model.set_tensors(parts.get("weight", {}), source)
        self.model.optimizer.load_state_dict(parts.get("optimizer", {}))
        self.epoch, self.step = about["epoch"], about["step"]
        self._rows, self._seconds = about["rows"], about["seconds"]
        self.batch_size, self.stopping = about["batch_size"], about["stopping"]
        totals = parts["total"]
        self._totals = [float(totals["0"]), *(totals[str(i)] for i in range(1, len(totals)))]
        self.history.records[:] = about["history"]
        for i, held in enumerate(self._own()):
            held.assign(parts["own"][str(i)])
        states = [(i, held) for i, held in enumerate(about["callbacks"]) if held["resumes"]]
        resuming = [callback for callback in self.callbacks if callback.resumes]
        for callback, (i, held) in zip(resuming, states, strict=True):
            callback.load_state_dict({**held["state"], **parts.get(f"callback/{i}", {})})


def _parts(tensors: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Return tensors by the first part of their names, callbacks' by the first two."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, value in tensors.items():
        part, _, rest = name.partition("/")
        if part == "callback":
            number, _, rest = rest.partition("/")
            part = f"{part}/{number}"
        found.setdefault(part, {})[rest] = value
    return found
