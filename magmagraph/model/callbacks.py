"""Callbacks: what happens between steps and epochs of training."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..errors import ConfigError, message
from ..files.schema import anything, either, none, number, table, whole
from ..ir.types import FilePath
from ..schedule import Plateau, Schedule, at
from .run import Run

__all__ = [
    "Callback",
    "Checkpoint",
    "EarlyStopping",
    "GrowingBatch",
    "LearningRate",
    "Log",
    "Logger",
    "ReduceOnPlateau",
    "as_callback",
    "check_folder",
]


_BEST = either(none, number(finite=False))  # the best value so far, as checkpoints hold it

# What other libraries call the methods below.
_ELSEWHERE = {
    "on_train_begin": "begin", "on_train_end": "end", "on_epoch_begin": "epoch_begin",
    "on_epoch_end": "epoch_end", "on_batch_end": "step_end", "on_train_batch_end": "step_end",
}  # fmt: skip


class Callback:
    """The base of all callbacks: subclass it with the methods that are of use.

    Attributes
    ----------
    every_step
        Whether `step_end` is to be called; a run without such callbacks needs not come back to
        Python between steps. True in a class that has a `step_end`, unless it says something else.
    first_rank_only
        Whether, of ranks that train together, rank 0 alone calls it: it writes or shows something.
    resumes
        Whether a checkpoint holds its state, so that the run that resumes must have it, too.

    Examples
    --------
    >>> import magmagraph as mg
    >>> class Print(mg.callbacks.Callback):
    ...     def epoch_end(self, training):
    ...         print(training.epoch, round(training.record["loss"], 3))
    >>> net = mg.NeuralNetwork([mg.nn.Input((1,)), mg.nn.Dense(1, kernel_init="zeros")],
    ...                        loss="mse")
    >>> history = net.fit([[0.0], [0.0]], [1.0, 1.0], epochs=1, callbacks=[Print()])
    1 1.0
    """

    every_step = False
    first_rank_only = False
    resumes = True

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        for name in vars(cls):
            if name in _ELSEWHERE:
                raise ConfigError(
                    message(
                        f"{cls.__name__}.{name} is never called",
                        hint=f"def {_ELSEWHERE[name]}(self, training)",
                    )
                )
        if "step_end" in vars(cls) and "every_step" not in vars(cls):
            cls.every_step = True

    def begin(self, training: Run) -> None:
        """Run before the first step."""

    def epoch_begin(self, training: Run) -> None:
        """Run before each epoch."""

    def step_end(self, training: Run) -> None:
        """Run after each step, where `every_step` is set."""

    def epoch_end(self, training: Run) -> None:
        """Run after each epoch; ``training.record`` is what it reported."""

    def end(self, training: Run) -> None:
        """Run at the end, also where an error ends the run."""

    def state_dict(self) -> dict[str, Any]:
        """Return its state for a checkpoint: numbers, texts, lists and arrays."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""


class _Call(Callback):
    """A function of epoch and record, which stops the run by returning True."""

    def __init__(self, function: Callable[[int, dict[str, Any]], Any]) -> None:
        self.function = function

    def epoch_end(self, training: Run) -> None:
        if self.function(training.epoch, training.record) is True:
            training.stopping = True


class Logger(Protocol):
    """Describe what takes the numbers of a run: any class with these two methods."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Record numbers by name at a step; steps do not decrease."""

    def close(self) -> None:
        """Finish what was recorded; a later `log` starts again."""


class Log(Callback):
    """Give the numbers of every epoch to a logger.

    ``fit(callbacks=[logger])`` does the same.

    Parameters
    ----------
    logger : Logger
        One of `mg.loggers`, or an object with the methods ``log(step, values)`` and ``close()``.
        The step is the epoch, counted from 1; the values are the numbers of the history.

    Examples
    --------
    >>> import magmagraph as mg
    >>> class Print:
    ...     def log(self, step, values):
    ...         print(step, values["loss"])
    ...     def close(self):
    ...         print("closed")
    >>> net = mg.NeuralNetwork([mg.nn.Input((1,)), mg.nn.Dense(1, kernel_init="zeros")],
    ...                        loss="mse")
    >>> log = mg.callbacks.Log(Print())
    >>> history = net.fit([[0.0], [0.0]], [1.0, 1.0], epochs=1, callbacks=[log])
    1 1.0
    closed
    """

    resumes = False
    first_rank_only = True

    def __init__(self, logger: Logger) -> None:
        if not _is_logger(logger):
            raise ConfigError(
                message(
                    f"Log: {logger!r} is not a logger",
                    need="one of mg.loggers, or an object with log(step, values) and close()",
                )
            )
        self.logger = logger

    def epoch_end(self, training: Run) -> None:
        """Log the epoch's numbers."""
        record = training.record.items()
        numbers = {name: value for name, value in record if isinstance(value, (int, float))}
        self.logger.log(training.epoch, numbers)

    def end(self, training: Run) -> None:
        """Close the logger."""
        self.logger.close()


def _is_logger(value: object) -> bool:
    methods = (getattr(value, name, None) for name in ("log", "close"))
    return not isinstance(value, type) and all(callable(method) for method in methods)


def as_callback(given: Any) -> Callback:
    """Return a callback, made of a logger or of a function of epoch and record."""
    if isinstance(given, Callback):
        return given
    if _is_logger(given):
        return Log(given)
    if callable(given) and not isinstance(given, type):
        return _Call(given)
    raise ConfigError(
        message(
            f"{given!r} is given as a callback",
            need="one of mg.callbacks or mg.loggers, or a function",
        )
    )


def _of_user(callback: object) -> bool:
    """Return whether it may add numbers of its own to the record of an epoch."""
    package = type(callback).__module__.partition(".")[0]
    return isinstance(callback, _Call) or package != __name__.partition(".")[0]


class _Watching(Callback):
    """A callback that watches one of the reported numbers."""

    def __init__(self, monitor: str, mode: str | None) -> None:
        if mode not in (None, "min", "max"):
            raise ConfigError(message(f"mode={mode!r}", need="'min' or 'max'"))
        self.monitor, self.mode = monitor, mode

    def begin(self, training: Run) -> None:
        """Refuse a number that no epoch will report, before time is spent."""
        if not any(_of_user(callback) for callback in training.callbacks):
            self._check(training.reported)

    def value(self, training: Run) -> float:
        self._check(training.record)
        return float(training.record[self.monitor])

    def _check(self, reported: Iterable[str]) -> None:
        if self.monitor in reported:
            return
        rest = self.monitor.startswith("val_") and "val_loss" not in reported
        raise ConfigError(
            message(
                f"{type(self).__name__} watches {self.monitor!r}, which is not reported",
                need=f"one of {', '.join(reported)}",
                hint="validation_data=(x, y), or validation_split=, in fit" if rest else None,
            )
        )

    def better(self, training: Run, value: float, best: float | None, least: float) -> bool:
        if best is None:
            return not math.isnan(value)
        rising = self.rising(training)
        return value > best + least if rising else value < best - least

    def rising(self, training: Run) -> bool:
        if self.mode is not None:
            return self.mode == "max"
        kinds = {kind.name: kind.higher_is_better for kind in training.model.metrics}
        return kinds.get(self.monitor.removeprefix("val_"), False)


class EarlyStopping(_Watching):
    """Stop when a number stops improving.

    Parameters
    ----------
    monitor : str
        The number: "val_loss" unless said.
    patience : int
        So many epochs without improvement are waited for.
    least : float
        What counts as an improvement.
    mode : str, optional
        "min" or "max"; what is better for the metric unless said.
    restore_best : bool
        Whether the model ends with the weights of its best epoch.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 0,
        *,
        least: float = 0.0,
        mode: str | None = None,
        restore_best: bool = True,
    ) -> None:
        super().__init__(monitor, mode)
        self.patience, self.least, self.restore_best = patience, least, restore_best
        self.best: float | None = None
        self.best_epoch = self.waited = 0
        self._weights: dict[str, np.ndarray] = {}

    def begin(self, training: Run) -> None:
        """Forget an earlier run, where this one does not go on with it."""
        super().begin(training)
        if not training.history.records:
            self.best, self.best_epoch, self.waited, self._weights = None, 0, 0, {}

    def epoch_end(self, training: Run) -> None:
        """Compare the epoch with the best one."""
        value = self.value(training)
        if self.better(training, value, self.best, self.least):
            self.best, self.best_epoch, self.waited = value, training.epoch, 0
            if self.restore_best:
                self._weights = training.model.tensors()
            return
        self.waited += 1
        if self.waited > self.patience:
            training.stopping = True

    def end(self, training: Run) -> None:
        """Put the best weights back."""
        if self._weights:
            training.model.set_tensors(self._weights, "the best epoch")

    def state_dict(self) -> dict[str, Any]:
        """Return the best value and weights, and how long it has waited."""
        return {
            "best": self.best,
            "best_epoch": self.best_epoch,
            "waited": self.waited,
            **{f"weight/{name}": array for name, array in self._weights.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take them back."""
        table({"best": _BEST, "best_epoch": whole(), "waited": whole()}, others=anything)(
            state, "EarlyStopping"
        )
        self.best, self.best_epoch = state["best"], state["best_epoch"]
        self.waited = state["waited"]
        self._weights = {
            name.removeprefix("weight/"): array
            for name, array in state.items()
            if name.startswith("weight/")
        }


class Checkpoint(_Watching):
    """Write all that the run needs to go on to a file, whole or not at all.

    Weights, the optimizer's state, random state, the position in the epoch, history, and the state
    of callbacks: ``fit(..., resume=path)`` goes on from there, and ends with the same bits as a run
    that was not cut, on one backend.

    Parameters
    ----------
    path
        Of the file.
    every : int
        Steps or epochs between two files.
    unit : str
        "epoch", or "step".
    monitor : str, optional
        Write after an epoch only where this number is the best so far.
    mode : str, optional
        As of `EarlyStopping`.
    """

    def __init__(
        self,
        path: FilePath,
        every: int = 1,
        unit: str = "epoch",
        *,
        monitor: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(monitor or "loss", mode)
        if unit not in ("epoch", "step"):
            raise ConfigError(message(f"Checkpoint: unit={unit!r}", need="'epoch' or 'step'"))
        if not isinstance(every, int) or every < 1:
            raise ConfigError(message(f"Checkpoint: every={every!r}", need="an int of at least 1"))
        self.path, self.every, self.unit = Path(path), every, unit
        self.watching = monitor is not None
        self.every_step = unit == "step"
        self.best: float | None = None

    def begin(self, training: Run) -> None:
        """Check that the file can be written before training starts."""
        super().begin(training)
        check_folder(self, self.path.parent)

    def step_end(self, training: Run) -> None:
        """Write after a step."""
        if training.step % self.every == 0:
            training.save(self.path)

    def epoch_end(self, training: Run) -> None:
        """Write after an epoch."""
        if self.watching:
            value = self.value(training)
            if not self.better(training, value, self.best, 0.0):
                return
            self.best = value
        if self.unit == "step" or training.epoch % self.every == 0 or self.watching:
            training.save(self.path)

    def state_dict(self) -> dict[str, Any]:
        """Return the best value."""
        return {"best": self.best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it back."""
        table({"best": _BEST})(state, "Checkpoint")
        self.best = state["best"]


def check_folder(writer: Callback, place: Path) -> None:
    """Raise `ConfigError` where a callback cannot write into a folder."""
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise ConfigError(
            message(
                f"{type(writer).__name__}: {str(place)!r} is no folder that can be written to",
                hint=None if place.exists() else f"os.makedirs({str(place)!r})",
            )
        )


class LearningRate(Callback):
    """Set the learning rate before every epoch.

    Parameters
    ----------
    schedule : callable or Schedule
        From the epoch, counted from 0, to the rate. (A schedule of steps is given to the optimizer
        itself, and costs nothing between steps.)
    """

    def __init__(self, schedule: Callable[[Any], Any]) -> None:
        self.schedule = schedule

    def epoch_begin(self, training: Run) -> None:
        """Set the rate."""
        rate_of = self.schedule
        rate = (
            at(rate_of, training.epoch)
            if isinstance(rate_of, Schedule)
            else rate_of(training.epoch)
        )
        training.model.optimizer.learning_rate.assign(float(rate))


class ReduceOnPlateau(_Watching):
    """Lower the learning rate when a number stops improving.

    Parameters
    ----------
    monitor : str
        The number: "val_loss" unless said.
    factor, patience, threshold, cooldown, minimum
        As of `mg.schedule.plateau`.
    mode : str, optional
        As of `EarlyStopping`.
    """

    _HELD = ("best", "waited", "resting")

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        *,
        threshold: float = 1e-4,
        cooldown: int = 0,
        minimum: float = 0.0,
        mode: str | None = None,
    ) -> None:
        super().__init__(monitor, mode)
        self._settings = (factor, patience, mode or "min", threshold, cooldown, minimum)
        self._plateau = Plateau(1.0, *self._settings)

    def begin(self, training: Run) -> None:
        """Choose the direction of improvement; reset unless this run resumes an earlier one."""
        super().begin(training)
        self._plateau.mode = "max" if self.rising(training) else "min"
        if not training.history.records:
            self.load_state_dict({"best": None, "waited": 0, "resting": 0})

    def epoch_end(self, training: Run) -> None:
        """Report the number, and lower the rate where it is time to."""
        rate = training.model.optimizer.learning_rate
        self._plateau.variable.assign(float(rate.value))
        if self._plateau.report(self.value(training)):
            rate.assign(float(self._plateau.rate))

    def state_dict(self) -> dict[str, Any]:
        """Return the best value and the waiting."""
        return {name: getattr(self._plateau, name) for name in self._HELD}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take them back."""
        table({"best": _BEST, "waited": whole(), "resting": whole()})(state, "ReduceOnPlateau")
        for name in self._HELD:
            setattr(self._plateau, name, state[name])


class GrowingBatch(Callback):
    """Let batches grow instead of letting the rate fall.

    S. Smith et al., "Don't decay the learning rate, increase the batch size", ICLR 2018.

    Parameters
    ----------
    every : int
        Epochs between two sizes.
    factor : int
        By which a batch grows.
    largest : int
        The most examples of a batch.
    """

    resumes = False

    def __init__(self, every: int, factor: int = 2, largest: int = 4096) -> None:
        if every < 1 or factor < 1 or largest < 1:
            raise ConfigError(
                message(
                    f"GrowingBatch: every={every}, factor={factor}, largest={largest}",
                    need="ints of at least 1",
                )
            )
        self.every, self.factor, self.largest = every, factor, largest

    def epoch_begin(self, training: Run) -> None:
        """Set the size."""
        grown = training.batch_size * self.factor ** (training.epoch // self.every)
        training.batch_size = max(training.batch_size, min(self.largest, grown))
