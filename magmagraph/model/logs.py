"""Loggers: adapters from ``log(step, values)`` to files and to programs that show training."""

from __future__ import annotations

import csv
import importlib
import itertools
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError, message
from ..files.reading import Damaged, read_file, reading
from ..files.writing import replace_file, storage_errors
from ..ir.types import FilePath
from .callbacks import Log, check_folder
from .run import Run

__all__ = ["CSV", "CSVLog", "MLflow", "TensorBoard", "WandB"]

_number = itertools.count()


def _library(logger: str, name: str) -> Any:
    """Import the library of a logger, which only those install who use it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            message(
                f"{logger} needs the library {name}, which is not installed",
                hint='pip install "magmagraph[loggers]"',
            )
        ) from error


class CSV:
    """Write numbers to a file of comma-separated values, a row for each step.

    The whole file is replaced at each step, so that a reader never sees half a row. Log epochs, or
    every hundredth step, not each of a million steps.

    Parameters
    ----------
    path : path-like
        The file. If the first step is above 1, the rows of earlier steps stay: a run that resumes
        continues its file.
    step : str
        The name of the first column.

    Raises
    ------
    DataError
        At the first ``log`` above step 1, if the file is there and is not such a file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "log.csv"
    ...     logger = CSV(file)
    ...     logger.log(1, {"loss": 0.5})
    ...     logger.log(2, {"loss": 0.25, "accuracy": 1.0})
    ...     logger.close()
    ...     print(file.read_text(), end="")
    step,loss,accuracy
    1,0.5,
    2,0.25,1.0
    """

    def __init__(self, path: FilePath, *, step: str = "step") -> None:
        self.path, self.step = Path(path), step
        self._rows: list[dict[str, Any]] | None = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a row."""
        if self._rows is None:
            self._rows = self._earlier(step)
        self._rows.append({self.step: step, **values})
        names = dict.fromkeys(name for row in self._rows for name in row)
        with (
            replace_file(self.path) as partial,
            partial.open("w", newline="", encoding="utf-8") as file,
        ):
            rows = csv.DictWriter(file, list(names))
            rows.writeheader()
            rows.writerows(self._rows)

    def close(self) -> None:
        """Forget the rows; the file is complete after each step."""
        self._rows = None

    def _earlier(self, step: int) -> list[dict[str, Any]]:
        """Return the rows of the file that come before a step."""
        if step <= 1 or not self.path.exists():
            return []
        with reading(self.path, "is not a log of training"):
            lines = read_file(self.path).decode().splitlines()
            rows = list(csv.DictReader(lines, strict=True))
            if any(None in row or None in row.values() for row in rows):
                raise Damaged("a row has another number of cells than the first line")
            return [row for row in rows if int(row[self.step]) < step]


class CSVLog(Log):
    """Write a row of numbers for each epoch to a file of comma-separated values.

    Parameters
    ----------
    path
        Of the file; a run that resumes goes on in it.

    See Also
    --------
    mg.loggers.CSV : the same for steps of your own.
    """

    def __init__(self, path: FilePath) -> None:
        super().__init__(CSV(path, step="epoch"))
        self.path = Path(path)

    def begin(self, training: Run) -> None:
        """Check that the file can be written before time is spent."""
        check_folder(self, self.path.parent)


class TensorBoard:
    """Write numbers to an event file for TensorBoard, by the library tensorboardX.

    Parameters
    ----------
    folder : path-like
        The folder, created if needed; each run gets a file of its own in it. Show it with
        ``tensorboard --logdir FOLDER``.

    Raises
    ------
    ConfigError
        If tensorboardX is not installed.
    """

    def __init__(self, folder: FilePath) -> None:
        self.folder = Path(folder)
        self._library = _library("mg.loggers.TensorBoard", "tensorboardX")
        self._writer: Any = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write the numbers, in float32, and flush them."""
        with storage_errors(self.folder):
            if self._writer is None:
                # Names without the suffix are the same for two runs within a second.
                suffix = f".{os.getpid()}.{next(_number)}"
                self._writer = self._library.SummaryWriter(str(self.folder), filename_suffix=suffix)
            for name, value in values.items():
                self._writer.add_scalar(name, float(value), step)
            self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class MLflow:
    """Log numbers as metrics of a run of MLflow.

    Parameters
    ----------
    experiment : str
        The experiment that a new run belongs to; it is created if needed.
    tracking_uri : str, optional
        The tracking server or store; that of MLflow's settings unless given.
    run_id : str, optional
        An existing run to log to. Without it, the first ``log`` creates a run, and ``close`` ends
        it.

    Attributes
    ----------
    run_id : str or None
        The run that is logged to, or was until ``close``.

    Raises
    ------
    ConfigError
        If MLflow is not installed.
    """

    def __init__(
        self,
        experiment: str = "Default",
        *,
        tracking_uri: str | None = None,
        run_id: str | None = None,
    ) -> None:
        self.experiment, self.run_id, self._own = experiment, run_id, run_id is None
        self._running = not self._own
        self._library = _library("mg.loggers.MLflow", "mlflow")
        self._client = self._library.MlflowClient(tracking_uri=tracking_uri)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log the numbers in one request."""
        if not self._running:
            experiment = self._client.get_experiment_by_name(self.experiment)
            number = (
                self._client.create_experiment(self.experiment)
                if experiment is None
                else experiment.experiment_id
            )
            self.run_id = self._client.create_run(number).info.run_id
            self._running = True
        now = int(time.time() * 1000)
        metric = self._library.entities.Metric
        metrics = [metric(name, float(value), now, step) for name, value in values.items()]
        self._client.log_batch(self.run_id, metrics=metrics)

    def close(self) -> None:
        """End the run that this logger created."""
        if self._own and self._running:
            self._client.set_terminated(self.run_id)
            self._running = False


class WandB:
    """Log numbers to a run of Weights & Biases.

    Parameters
    ----------
    run : optional
        A run that ``wandb.init`` returned; it stays open. Without it, the first ``log`` calls
        ``wandb.init(**settings)``, and ``close`` finishes that run.
    **settings
        Arguments of ``wandb.init``, such as ``project="digits", mode="offline"``.

    Raises
    ------
    ConfigError
        If there is no run, and wandb is not installed.
    """

    def __init__(self, run: Any = None, **settings: Any) -> None:
        if run is not None and settings:
            raise ConfigError(
                message(
                    f"WandB: a run and the settings {', '.join(settings)} are given",
                    need="a run, or settings for a new one",
                )
            )
        self.run, self._own, self._settings = run, run is None, settings
        if run is None:
            self._library = _library("mg.loggers.WandB", "wandb")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log the numbers."""
        if self.run is None:
            self.run = self._library.init(**self._settings)
        numbers = {name: float(value) for name, value in values.items()}
        self.run.log(numbers, step=step, commit=True)  # otherwise kept back until the next step

    def close(self) -> None:
        """Finish the run that this logger started."""
        if self._own and self.run is not None:
            self.run.finish()
            self.run = None
