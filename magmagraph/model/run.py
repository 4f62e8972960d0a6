"""What a run of training needs of a model, and what callbacks see of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..function import Function
from ..ir.graph import Node
from ..ir.types import FilePath
from ..nn.layer import Weight
from ..ops.leaf import Variable
from ..optimizer import Optimizer
from .history import History
from .losses import Labels
from .metrics import Metric
from .sources import Source

__all__ = ["Run", "Trained"]


class Trained(Protocol):
    """The model that a run trains."""

    inputs: tuple[Node, ...]
    limits: Any
    metrics: list[Metric]
    optimizer: Optimizer
    seed: int
    history: History
    _epochs: int

    @property
    def trainable(self) -> list[Variable]:
        """The variables that an optimizer updates."""

    def weights(self) -> dict[str, Weight]:
        """Return all weights by name."""

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the values of all weights by name."""

    def set_tensors(self, tensors: Mapping[str, np.ndarray], source: str = ...) -> None:
        """Set all weights."""

    def check_tensors(self, tensors: Mapping[str, np.ndarray], source: str) -> None:
        """Raise unless there is an array for each weight, of its shape and dtype."""

    def architecture(self) -> dict[str, Any]:
        """Return its architecture as JSON values."""

    def training_step(self, labels: Labels, *, weighted: bool = ..., **options: Any) -> Function:
        """Return the compiled step."""

    def _checked(self, x: Any, y: Any) -> tuple[list[np.ndarray], np.ndarray, Labels]: ...

    def _totals(self, data: Source, batch_size: int) -> tuple[list[Any], int]: ...

    def _result(self, totals: Sequence[Any], rows: int) -> dict[str, Any]: ...


class Run(Protocol):
    """A run of `Model.fit`, as callbacks see it; `Training` says what each attribute is."""

    model: Trained
    epoch: int
    step: int
    epochs: int
    batch_size: int
    record: dict[str, Any]
    stopping: bool
    history: History

    @property
    def callbacks(self) -> Sequence[object]:
        """All callbacks of the run."""

    @property
    def reported(self) -> list[str]:
        """The names of what an epoch will report, callbacks' own aside."""

    def save(self, path: FilePath) -> None:
        """Write all that the run needs to go on, to a file, whole or not at all."""
