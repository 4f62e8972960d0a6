"""Metrics of predictions: `mg.metrics`.

Each is an object that is given to a model, or called on arrays: ``Accuracy()(outputs, labels)``.
"""

from .model.metrics import (
    F1,
    MAE,
    MSE,
    R2,
    Accuracy,
    Confusion,
    Matthews,
    MeanOf,
    Metric,
    Precision,
    Recall,
    TopK,
    metric,
)

__all__ = [
    "F1",
    "MAE",
    "MSE",
    "R2",
    "Accuracy",
    "Confusion",
    "Matthews",
    "MeanOf",
    "Metric",
    "Precision",
    "Recall",
    "TopK",
    "metric",
]
