"""The callback that ties a trial to `Model.fit`."""

from __future__ import annotations

from typing import Protocol

from ..model.callbacks import _Watching
from ..model.run import Run

__all__ = ["Report"]


class Reporting(Protocol):
    """What takes the reports: a trial."""

    @property
    def maximize(self) -> bool:
        """Whether more is better."""

    def report(self, step: int, value: float) -> None:
        """Take the number of a step."""

    def should_stop(self) -> bool:
        """Return whether the trial is to end now."""


class Report(_Watching):
    """Report a number of each epoch to a trial, and end the run when the trial is to stop.

    Parameters
    ----------
    trial : Trial
        What the objective was given.
    monitor : str
        The number.
    mode : str, optional
        "min" or "max"; what is better for the metric unless said. Where the search wants the
        other, the reports are the negatives.

    Examples
    --------
    >>> import numpy as np
    >>> import magmagraph as mg
    >>> x = np.linspace(-1, 1, 40, dtype=np.float32)[:, None]
    >>> def objective(trial):
    ...     net = mg.NeuralNetwork([mg.nn.Input((1,)), mg.nn.Dense(1)], loss="mse",
    ...                            optimizer=mg.optimizer.SGD(trial["rate"]), seed=trial.seed)
    ...     callbacks = [mg.tune.Report(trial, "loss")]
    ...     return net.fit(x, 3 * x, epochs=3, callbacks=callbacks).records[-1]["loss"]
    >>> found = mg.tune.search(objective, {"rate": [0.001, 0.3]}, method="grid")
    >>> found.best.params
    {'rate': 0.3}
    >>> [len(trial.reports) for trial in found.trials]
    [3, 3]
    """

    resumes = False

    def __init__(
        self, trial: Reporting, monitor: str = "val_loss", mode: str | None = None
    ) -> None:
        super().__init__(monitor, mode)
        self.trial = trial

    def epoch_end(self, training: Run) -> None:
        """Report the epoch."""
        value = self.value(training)
        same = self.rising(training) == self.trial.maximize
        self.trial.report(training.epoch, value if same else -value)
        if self.trial.should_stop():
            training.stopping = True
