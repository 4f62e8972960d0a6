"""Callbacks of training: `mg.callbacks`.

=================  ==========================================================================
`EarlyStopping`    ends a run when a number stops improving
`Checkpoint`       writes a file from which a run goes on exactly
`CSVLog`           writes a row for each epoch
`Log`              gives the numbers of each epoch to a logger of `mg.loggers`
`LearningRate`     sets the rate before each epoch
`ReduceOnPlateau`  lowers the rate when a number stops improving
`GrowingBatch`     lets batches grow
`Callback`         the base: subclass it
=================  ==========================================================================
"""

from typing import NoReturn

from .help.argument_errors import tell, tell_classes
from .model.callbacks import (
    Callback,
    Checkpoint,
    EarlyStopping,
    GrowingBatch,
    LearningRate,
    Log,
    ReduceOnPlateau,
)
from .model.logs import CSVLog
from .model.progress import Progress

__all__ = [
    "CSVLog",
    "Callback",
    "Checkpoint",
    "EarlyStopping",
    "GrowingBatch",
    "LearningRate",
    "Log",
    "Progress",
    "ReduceOnPlateau",
]

tell(globals(), __all__)
tell_classes(globals(), __all__)


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> NoReturn:
    from .help.spellings import missing

    raise missing(__name__, name)
