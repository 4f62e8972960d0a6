"""How much single rows count in the loss of training: their own weights, and those of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import DataError, message
from .data import as_array
from .losses import Labels

__all__ = ["balanced_weights", "checked_weights", "rows_of_classes", "weights_of_classes"]


def checked_weights(values: Any, rows: int) -> np.ndarray:
    """Return the weights of rows as float32, shape ``(rows,)``, or raise `DataError`."""
    weights = as_array(values, "the weights")
    if weights.dtype.kind not in "iufb" or weights.shape not in ((rows,), (rows, 1)):
        raise DataError(
            message(
                f"the weights have shape {weights.shape} and dtype {weights.dtype}",
                need=f"a number for each of {rows} rows",
            )
        )
    return _positive(weights.reshape(rows), "row")


def weights_of_classes(
    class_weight: Any, labels: np.ndarray, kind: Labels, all_labels: np.ndarray | None = None
) -> np.ndarray:
    """Return the weight of each row's class.

    Parameters
    ----------
    given
        ``{class: weight}``, a sequence with a weight for each class, or "balanced".
    labels
        Of the rows, as the training step takes them.
    kind
        What labels they are.
    all_labels
        By which classes are balanced; None where they are not known.
    """
    classes = _classes(labels, kind)
    if isinstance(class_weight, str):
        if class_weight != "balanced" or all_labels is None:
            raise DataError(
                message(
                    f"class_weight={class_weight!r}"
                    + (" of batches" if all_labels is None else ""),
                    need="a dict {class: weight}, or 'balanced', of arrays",
                )
            )
        by_class: Mapping[Any, Any] = balanced_weights(rows_of_classes(all_labels, kind))
    elif isinstance(class_weight, Mapping):
        by_class = class_weight
    else:
        by_class = dict(enumerate(np.atleast_1d(as_array(class_weight, "class_weight")).tolist()))
    largest = (kind.classes or 2) - 1
    for name in by_class:
        if (
            isinstance(name, bool)
            or not isinstance(name, (int, np.integer))
            or not (0 <= name <= largest)
        ):
            raise DataError(
                message(f"class_weight names the class {name!r}", need=f"classes 0 to {largest}")
            )
    table = np.ones(largest + 1)
    for name, weight in by_class.items():
        table[name] = weight
    row_weights: np.ndarray = _positive(table, "class")[classes]
    return row_weights


def rows_of_classes(labels: np.ndarray, kind: Labels) -> dict[int, int]:
    """Return how many rows are of each class that occurs."""
    classes, counts = np.unique(_classes(labels, kind), return_counts=True)
    return dict(zip(classes.tolist(), counts.tolist(), strict=True))


def balanced_weights(counts: Mapping[int, int]) -> dict[int, float]:
    """Return weights that balance the classes, with a mean of 1 over rows.

    Examples
    --------
    >>> balanced_weights({0: 30, 1: 10})
    {0: 0.6666666666666666, 1: 2.0}
    """
    rows = sum(counts.values())
    return {name: rows / (len(counts) * count) for name, count in counts.items()}


def _positive(weights: np.ndarray, what: str) -> np.ndarray:
    floats = weights.astype(np.float32)
    wrong = ~(np.isfinite(floats) & (floats >= 0))
    if wrong.any():
        place = int(np.argmax(wrong))
        raise DataError(
            message(
                f"the weight of {what} {place} is {weights[place]}",
                need="finite numbers of at least 0",
            )
        )
    return floats


def _classes(labels: np.ndarray, kind: Labels) -> np.ndarray:
    """Return the class of each row, of numbers of classes or zeros and ones."""
    rows = len(labels)
    flat = labels.reshape(rows, -1)
    if flat.shape[1] == 1 and (kind.classes is not None or np.isin(flat, (0, 1)).all()):
        return np.asarray(flat[:, 0], np.int64)
    raise DataError(
        message(
            f"class_weight= of labels of shape {labels.shape}",
            need="a class for each row, as its number",
            hint="labels.argmax(-1), of shares; sample_weight=, for weights of another kind",
        )
    )
