"""Progress of training, shown on a terminal and nowhere else."""

from __future__ import annotations

import sys
from typing import Any

from ..errors import ConfigError, message
from .callbacks import Callback
from .run import Run

__all__ = ["Progress"]


class Progress(Callback):
    """A line for each epoch, and a bar that moves on with the epochs.

    `Model.fit` adds one where the output is a terminal. A file or a pipe is left alone.

    Parameters
    ----------
    bar : bool
        Whether there is a bar; without one the lines are plain text, for logs.
    """

    resumes = False
    first_rank_only = True

    def __init__(self, bar: bool = True) -> None:
        self._bar = bar
        self._display: Any = None
        self._task: Any = None

    @staticmethod
    def wanted(verbose: int | str) -> Progress | None:
        """Return what shows progress, None for nothing; see `Model.fit`."""
        if verbose == "auto":
            verbose = int(sys.stdout.isatty())
        if verbose not in (0, 1, 2):
            raise ConfigError(
                message(
                    f"verbose={verbose!r}",
                    need="0 (nothing), 1 (a bar), 2 (a line for each epoch), or 'auto'",
                )
            )
        return Progress(bar=verbose == 1) if verbose else None

    def begin(self, training: Run) -> None:
        """Start the bar."""
        if not self._bar:
            return
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
        line = f"epoch {training.epoch}/{training.epochs}  {numbers}"
        if self._display is None:
            print(line, flush=True)
            return
        self._display.console.print(line, highlight=False)
        self._display.update(self._task, completed=training.epoch)

    def end(self, training: Run) -> None:
        """Remove the bar."""
        if self._display is not None:
            self._display.stop()
