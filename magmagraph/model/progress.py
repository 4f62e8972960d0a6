"""Progress of training: a bar in terminals and notebooks, plain lines in logs."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any, Protocol

from ..errors import ConfigError, message
from ..ir.html import preformatted
from .callbacks import Callback
from .run import Run

__all__ = ["Progress"]

_LOG_SECONDS = 5.0  # between lines in a log that nobody asked for
_BAR_SECONDS = 0.1  # between two looks of a bar
_ROWS = 10  # epochs that a notebook shows


class _View(Protocol):
    """Where progress is shown."""

    def begin(self, training: Run) -> None: ...
    def moved(self, training: Run, done: int, total: int | None, text: str) -> None: ...
    def epoch(self, training: Run, line: str) -> None: ...
    def end(self) -> None: ...


class Progress(Callback):
    """A line for each epoch, and a bar that moves on with the batches of the epoch.

    `Model.fit` adds one unless it is called with ``verbose=0``.

    Parameters
    ----------
    bar : bool
        Whether there is a bar, in a notebook or a terminal; without one the lines are plain text.
    seconds : float
        Without a bar: the least time between two lines. Epochs that end sooner have none.
    """

    resumes = False
    first_rank_only = True

    def __init__(self, bar: bool = True, seconds: float = 0.0) -> None:
        self._view: _View
        if not bar:
            self._view = _Lines(seconds)
        else:
            self._view = _Notebook() if in_notebook() else _Terminal()
        self._shown = 0.0  # when the bar was last drawn

    @staticmethod
    def wanted(verbose: int | str) -> Progress | None:
        """Return what shows progress, None for nothing; see `Model.fit`."""
        if verbose == "auto":
            if in_notebook() or sys.stdout.isatty():
                return Progress()
            return Progress(bar=False, seconds=_LOG_SECONDS)
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
        self._view.begin(training)

    def moved(self, training: Run, done: int, total: int | None, loss: float | None) -> None:
        """Move the bar on within an epoch, after `done` of `total` batches."""
        now = time.monotonic()
        if now - self._shown < _BAR_SECONDS:
            return
        self._shown = now
        text = f"epoch {training.epoch + 1}/{training.epochs}"
        if loss is not None:
            text += f"  loss {loss:.4g}"
        self._view.moved(training, done, total, text)

    def epoch_end(self, training: Run) -> None:
        """Print the epoch's numbers."""
        numbers = "  ".join(
            f"{name} {value:.4g}"
            for name, value in training.record.items()
            if isinstance(value, (int, float))
        )
        self._view.epoch(training, f"epoch {training.epoch}/{training.epochs}  {numbers}")

    def end(self, training: Run) -> None:
        """Remove the bar."""
        self._view.end()


def in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this, which shows HTML."""
    ipython: Any = sys.modules.get("IPython")  # a kernel has imported it
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


class _Lines:
    """Plain lines, at most one in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.last = 0.0

    def begin(self, training: Run) -> None:
        self.last = time.monotonic()

    def moved(self, training: Run, done: int, total: int | None, text: str) -> None:
        pass

    def epoch(self, training: Run, line: str) -> None:
        now = time.monotonic()
        if now - self.last >= self.seconds:
            self.last = now
            print(line, flush=True)

    def end(self) -> None:
        pass


class _Terminal:
    """A bar at the end of the terminal, below the lines of the epochs."""

    display: Any = None

    def begin(self, training: Run) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Display

        self.display = Display(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            transient=True,
        )
        self.display.start()
        self.task = self.display.add_task(f"epoch 1/{training.epochs}", total=None)

    def moved(self, training: Run, done: int, total: int | None, text: str) -> None:
        self.display.update(self.task, completed=done, total=total, description=text)

    def epoch(self, training: Run, line: str) -> None:
        self.display.console.print(line, highlight=False)
        text = f"epoch {min(training.epoch + 1, training.epochs)}/{training.epochs}"
        self.display.reset(self.task, description=text)

    def end(self) -> None:
        if self.display is not None:
            self.display.stop()


class _Notebook:
    """A bar and the last epochs in the output of a notebook's cell, replaced as they change."""

    handle: Any = None

    def begin(self, training: Run) -> None:
        from IPython.display import HTML, display

        self.html = HTML
        self.lines: list[str] = []
        self.bar = ""
        self.handle = display(HTML(""), display_id=True)

    def moved(self, training: Run, done: int, total: int | None, text: str) -> None:
        places = f'value="{done}" max="{total}"' if total else ""
        of = f" of {total}" if total else ""
        self.bar = (
            f'<div><progress {places} aria-label="batches of the epoch"></progress> '
            f"{escape(text)}  batch {done}{of}</div>"
        )
        self._draw()

    def epoch(self, training: Run, line: str) -> None:
        self.lines.append(line)
        self.bar = ""
        self._draw()

    def end(self) -> None:
        self.bar = ""
        self._draw()

    def _draw(self) -> None:
        if self.handle is None:
            return
        rows = self.lines[-_ROWS:]
        if len(self.lines) > len(rows):
            rows = [f"{len(self.lines) - len(rows)} epochs before", *rows]
        text = preformatted("\n".join(rows)) if rows else ""
        self.handle.update(self.html(self.bar + text))
