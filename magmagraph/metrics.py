"""Metrics of predictions: `mg.metrics`.

Each is an object that is given to a model, or called on arrays: ``Accuracy()(outputs, labels)``.
"""

from .help.argument_errors import tell, tell_classes
from .model.metrics import (
    AUC,
    F1,
    MAE,
    MSE,
    R2,
    Accuracy,
    AveragePrecision,
    Confusion,
    Matthews,
    MeanOf,
    Metric,
    Perplexity,
    Precision,
    Recall,
    Stream,
    TopK,
    metric,
)

__all__ = [
    "AUC",
    "F1",
    "MAE",
    "MSE",
    "R2",
    "Accuracy",
    "AveragePrecision",
    "Confusion",
    "Matthews",
    "MeanOf",
    "Metric",
    "Perplexity",
    "Precision",
    "Recall",
    "Stream",
    "TopK",
    "metric",
]

tell(globals(), __all__)
tell_classes(globals(), __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
