"""Progress of training, shown on a terminal and nowhere else."""

from __future__ import annotations

import sys
from typing import Any

from .callbacks import Callback
from .run import Run

__all__ = ["Progress"]


class Progress(Callback):
    """A line for each epoch, and a bar that moves on with the epochs.

    `Model.fit` adds one where the output is a terminal. A file or a pipe is left alone.
    """

    resumes = False
    first_rank_only = True

    def __init__(self) -> None:
        self._display: Any = None
        self._task: Any = None

    @staticmethod
    def wanted(asked: bool | None) -> bool:
        """Return whether progress is to be shown."""
        return bool(sys.stdout.isatty()) if asked is None else asked

    def begin(self, training: Run) -> None:
        """Start the bar."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Display

        self._display = Display(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            transient=True,
        )
        self._display.start()
        self._task = self._display.add_task(
            "epochs", total=training.epochs, completed=training.epoch
        )

    def epoch_end(self, training: Run) -> None:
        """Print the epoch's numbers."""
        numbers = "  ".join(
            f"{name} {value:.4g}"
            for name, value in training.record.items()
            if isinstance(value, (int, float))
        )
        self._display.console.print(
            f"epoch {training.epoch}/{training.epochs}  {numbers}", highlight=False
        )
        self._display.update(self._task, completed=training.epoch)

    def end(self, training: Run) -> None:
        """Remove the bar."""
        if self._display is not None:
            self._display.stop()
