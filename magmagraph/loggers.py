"""Record the numbers of training in files and in other programs: `mg.loggers`.

=============  ==============================================================
`CSV`          a file of comma-separated values
`TensorBoard`  a folder that TensorBoard shows
`MLflow`       a run of MLflow
`WandB`        a run of Weights & Biases
`Logger`       the protocol: any class with ``log(step, values)`` and ``close()``
=============  ==============================================================

``fit(callbacks=[mg.loggers.CSV("log.csv")])`` records every epoch. A step of your own calls
``logger.log(step, {"loss": loss})``. All but `CSV` need ``pip install "magmagraph[loggers]"``.
"""

from .help.argument_errors import tell, tell_classes
from .model.callbacks import Logger
from .model.logs import CSV, MLflow, TensorBoard, WandB

__all__ = ["CSV", "Logger", "MLflow", "TensorBoard", "WandB"]

tell(globals(), __all__)
tell_classes(globals(), __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
