"""Callbacks that write what every epoch reports to files for others to read."""

from __future__ import annotations

import csv
from pathlib import Path

from ..files.writing import replace_file
from ..ir.types import FilePath
from .callbacks import Callback, check_folder
from .events import EventFile
from .run import Run

__all__ = ["CSVLog", "EventLog"]


class CSVLog(Callback):
    """Write a row of numbers for each epoch to a file of comma-separated values.

    Parameters
    ----------
    path
        Of the file; a run that resumes goes on in it.
    """

    resumes = False
    first_rank_only = True

    def __init__(self, path: FilePath) -> None:
        self.path = Path(path)

    def begin(self, training: Run) -> None:
        """Begin the file with the epochs that a resumed run has behind it."""
        check_folder(self, self.path.parent)
        self._write(training)

    def epoch_end(self, training: Run) -> None:
        """Add a row."""
        self._write(training)

    def _write(self, training: Run) -> None:
        # All of it each time: a run that was killed may have left half a row.
        records = training.history.records
        if not records:
            return
        names = [n for n in training.history if isinstance(records[-1].get(n), (int, float))]
        with (
            replace_file(self.path) as partial,
            partial.open("w", newline="", encoding="utf-8") as file,
        ):
            rows = csv.writer(file)
            rows.writerow(["epoch", *names])
            for epoch, record in enumerate(records, 1):
                rows.writerow([epoch, *(record.get(name) for name in names)])


class EventLog(Callback):
    """Write numbers to an event file, which TensorBoard shows.

    Parameters
    ----------
    folder
        Where a file of its own is made for each run.
    """

    resumes = False
    first_rank_only = True

    def __init__(self, folder: FilePath) -> None:
        self.folder = Path(folder)
        self._file: EventFile | None = None

    def begin(self, training: Run) -> None:
        """Make the file."""
        self._file = EventFile(self.folder)

    def epoch_end(self, training: Run) -> None:
        """Write the epoch's numbers."""
        assert self._file is not None
        for name, value in training.record.items():
            if isinstance(value, (int, float)):
                self._file.scalar(name, float(value), training.epoch)
        self._file.flush()

    def end(self, training: Run) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
