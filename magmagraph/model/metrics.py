"""Metrics: sums that a compiled function makes of every batch, and what they say together.

Each metric is a statistic that adds up over batches (how many were right, a confusion matrix, sums
of squares), computed in the same graph as the loss, and a number made of the total.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..errors import ConfigError, DataError, message
from ..ir.graph import Node
from ..losses.common import check_last_axis
from ..ops.convert import as_node, cast
from ..ops.elementwise.arithmetic import multiply, subtract
from ..ops.elementwise.comparison import equal, greater
from ..ops.elementwise.signs import absolute
from ..ops.indexing.iota import one_hot
from ..ops.leaf import extent
from ..ops.products.contraction import matmul
from ..ops.reduction.primitives import argmax, sum
from ..ops.reduction.statistics import mean
from ..ops.shape.arrange import reshape, swapaxes
from ..ops.shape.joining import stack
from .data import as_array, on_host

__all__ = [
    "MAE",
    "MSE",
    "R2",
    "Accuracy",
    "Confusion",
    "F1",
    "Matthews",
    "MeanOf",
    "Metric",
    "Precision",
    "Recall",
    "TopK",
    "metric",
]

FLOAT64 = np.dtype(np.float64)


class Metric:
    """The base of all metrics: subclass it with `batch` and `result`.

    Attributes
    ----------
    name
        Its key in histories.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.metrics.Accuracy()([[0.1, 0.9], [0.8, 0.2]], [1, 1])
    0.5
    """

    name: str = ""
    higher_is_better = True

    def batch(self, outputs: Node, labels: Node, probabilities: bool) -> Node:
        """Return a batch's statistic, which adds up over batches.

        Parameters
        ----------
        outputs
            What the network gives, ``(batch, ...)``.
        labels
            Numbers of classes (one axis less), or values of the outputs' shape.
        probabilities
            Whether the outputs are probabilities, and not logits.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method batch")

    def result(self, total: np.ndarray, rows: int) -> Any:
        """Return the metric of a total over `rows` examples."""
        return float(total) / rows

    def __call__(self, outputs: Any, labels: Any, probabilities: bool = True) -> Any:
        """Return the metric of arrays: outputs, and the labels that would be right."""
        held, wanted = as_array(outputs), as_array(labels)
        node = self.batch(as_node(held), as_node(wanted), probabilities)
        return self.result(np.asarray(on_host(node.eval())), len(held))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _classes(values: Node, probabilities: bool) -> Node:
    """Return the class that outputs, or labels like them, say; one column means two classes."""
    if values.shape[-1] == 1:
        limit = 0.5 if probabilities else 0.0
        return reshape(cast(greater(values, limit), np.int64), values.shape[:-1])
    return argmax(values, axis=-1)


def _found_and_true(outputs: Node, labels: Node, probabilities: bool) -> tuple[Node, Node]:
    if not outputs.ndim:
        raise DataError(message("outputs without axes", need="a row for each example"))
    if outputs.ndim == 1:
        outputs = reshape(outputs, (*outputs.shape, 1))
    found = _classes(outputs, probabilities)
    if labels.ndim == outputs.ndim:
        if labels.shape[-1] != outputs.shape[-1]:
            raise DataError(
                message(
                    f"the labels have shape {labels.shape}, the outputs {outputs.shape}",
                    need="numbers of classes (one axis less), or a share of each class",
                    hint="labels[..., 0]" if labels.shape[-1] == 1 else None,
                )
            )
        return found, _classes(labels, True)
    return found, cast(labels, np.int64)


class Accuracy(Metric):
    """Share of examples whose likeliest class is right."""

    name = "accuracy"

    def batch(self, outputs: Node, labels: Node, probabilities: bool) -> Node:
        """Return how many are right, in shares of an example."""
        found, true = _found_and_true(outputs, labels, probabilities)
        right = cast(equal(found, true), FLOAT64)
        return sum(right if right.ndim == 1 else mean(right, tuple(range(1, right.ndim))))


class TopK(Metric):
    """Share of examples whose class is among the `k` likeliest.

    Parameters
    ----------
    k : int
        How many; equal outputs count in favour.
    """

    def __init__(self, k: int = 5) -> None:
        if not isinstance(k, (int, np.integer)) or k < 1:
            raise ConfigError(message(f"TopK: k={k!r}", need="an int of at least 1"))
        self.k = int(k)
        self.name = f"top_{k}"

    def batch(self, outputs: Node, labels: Node, probabilities: bool) -> Node:
        """Return how many are right."""
        true = argmax(labels, axis=-1) if labels.ndim == outputs.ndim else labels
        there = one_hot(true, outputs.shape[-1], dtype=outputs.dtype)
        own = sum(multiply(outputs, there), -1, True)
        above = sum(cast(greater(outputs, own), np.int64), axis=-1)
        right = cast(greater(self.k, above), FLOAT64)
        return sum(right if right.ndim == 1 else mean(right, tuple(range(1, right.ndim))))

    def __repr__(self) -> str:
        return f"TopK({self.k})"


class Confusion(Metric):
    """How many examples of each class (rows) were taken for each class (columns)."""

    name = "confusion"

    def batch(self, outputs: Node, labels: Node, probabilities: bool) -> Node:
        """Return the matrix."""
        found, true = _found_and_true(outputs, labels, probabilities)
        width = 1 if outputs.ndim == 1 else outputs.shape[-1]
        count = 2 if width == 1 else width
        rows, columns = (
            reshape(one_hot(node, count, dtype=np.float32), (-1, count)) for node in (true, found)
        )
        # Exact: a batch has fewer than 2**24 rows.
        return cast(matmul(swapaxes(rows, 0, 1), columns), np.int64)

    def result(self, total: np.ndarray, rows: int) -> Any:
        """Return the matrix, int64."""
        return np.asarray(total, dtype=np.int64)


def _ratio(part: Any, whole: Any) -> Any:
    """Return a quotient that is 0 where there is nothing to divide by."""
    part, whole = np.asarray(part, float), np.asarray(whole, float)
    return np.divide(part, whole, out=np.zeros_like(part), where=whole != 0)


class _OfConfusion(Confusion):
    """Scores of the classes: of class 1 where there are two, the mean over classes of more."""

    def scores(self, matrix: np.ndarray) -> np.ndarray:
        """Return a score for each class."""
        raise NotImplementedError

    def result(self, total: np.ndarray, rows: int) -> Any:
        """Return the score of class 1 of two, or the unweighted mean over classes."""
        scores = self.scores(np.asarray(total, float))
        return float(scores[1] if len(scores) == 2 else scores.mean())


class Precision(_OfConfusion):
    """Of what was taken for a class, the share that is of it: class 1 of two, or the mean."""

    name = "precision"

    def scores(self, matrix: np.ndarray) -> np.ndarray:
        """Return the precision of each class; 0 where nothing was taken for it."""
        return np.asarray(_ratio(np.diag(matrix), matrix.sum(0)))


class Recall(_OfConfusion):
    """Of a class, the share that was found: class 1 of two, or the mean."""

    name = "recall"

    def scores(self, matrix: np.ndarray) -> np.ndarray:
        """Return the recall of each class; 0 where there is none of it."""
        return np.asarray(_ratio(np.diag(matrix), matrix.sum(1)))


class F1(_OfConfusion):
    """The harmonic mean of precision and recall: class 1 of two, or the mean over classes."""

    name = "f1"

    def scores(self, matrix: np.ndarray) -> np.ndarray:
        """Return the score of each class."""
        return np.asarray(_ratio(2 * np.diag(matrix), matrix.sum(0) + matrix.sum(1)))


class Matthews(Confusion):
    """Matthews' correlation of true and found classes: 1 all right, 0 no better than chance.

    For more than two classes R_K of J. Gorodkin, "Comparing two K-category assignments by a
    K-category correlation coefficient", 2004.
    """

    name = "matthews"

    def result(self, total: np.ndarray, rows: int) -> Any:
        """Return the coefficient; 0 where all are of one class, or taken for one."""
        matrix = np.asarray(total, float)
        true, found, count = matrix.sum(1), matrix.sum(0), matrix.sum()
        covariance = np.trace(matrix) * count - true @ found
        spread = (count**2 - found @ found) * (count**2 - true @ true)
        return float(_ratio(covariance, np.sqrt(spread)))


class _OfValues(Metric):
    def batch(self, outputs: Node, labels: Node, probabilities: bool) -> Node:
        """Return the sum over the batch of each example's mean."""
        check_last_axis(self.name, outputs, labels)
        error = self.error(subtract(cast(outputs, FLOAT64), cast(labels, FLOAT64)))
        axes = tuple(range(1, error.ndim))
        return sum(mean(error, axes) if axes else error)

    def error(self, difference: Node) -> Node:
        """Return what a difference counts."""
        raise NotImplementedError


class MSE(_OfValues):
    """The mean squared error."""

    name, higher_is_better = "mse", False

    def error(self, difference: Node) -> Node:
        """Return the square."""
        return multiply(difference, difference)


class MAE(_OfValues):
    """The mean absolute error."""

    name, higher_is_better = "mae", False

    def error(self, difference: Node) -> Node:
        """Return the absolute value."""
        return absolute(difference)


class R2(Metric):
    """The share of the labels' variance that is explained; the mean over several outputs.

    0 for an output whose labels are all equal.
    """

    name = "r2"

    def batch(self, outputs: Node, labels: Node, probabilities: bool) -> Node:
        """Return sums of labels, their squares, and squared errors, for each output."""
        count = outputs.ndim
        true, found = (
            reshape(cast(node, FLOAT64), (node.shape[0], -1 if count > 1 else 1))
            for node in (labels, outputs)
        )
        error = subtract(found, true)
        parts = (true, multiply(true, true), multiply(error, error))
        return stack([sum(part, 0) for part in parts])

    def result(self, total: np.ndarray, rows: int) -> Any:
        """Return one less the share that is not explained."""
        first, second, wrong = np.asarray(total, float)
        spread = second - first**2 / rows
        scores = np.where(spread > 0, 1.0 - _ratio(wrong, np.where(spread > 0, spread, 1.0)), 0.0)
        return float(scores.mean())


class MeanOf(Metric):
    """The mean of a function of outputs and labels.

    Parameters
    ----------
    function : callable
        From two nodes to a scalar node: the mean over a batch.
    name : str, optional
        That of the function unless said.
    """

    higher_is_better = False

    def __init__(self, function: Callable[[Node, Node], Node], name: str | None = None) -> None:
        self.function = function
        self.name = name or str(getattr(function, "__name__", "metric"))

    def batch(self, outputs: Node, labels: Node, probabilities: bool) -> Node:
        """Return the batch's mean, as often as it has rows."""
        found = self.function(outputs, labels)
        if found is None:
            raise ConfigError(
                message(
                    f"the metric {self.name!r} returned None",
                    need="a scalar node",
                    hint="a return statement",
                )
            )
        value = as_node(found)
        if value.shape != ():
            raise ConfigError(
                message(
                    f"the metric {self.name!r} gives shape {value.shape}",
                    need="a scalar: the mean over a batch",
                    hint="mg.mean of what it gives",
                )
            )
        return multiply(cast(value, FLOAT64), cast(extent(outputs.shape[0]), FLOAT64))

    def __repr__(self) -> str:
        return f"MeanOf({self.name})"


_RESERVED = ("loss", "seconds")  # what an epoch reports beside metrics


def checked_metrics(given: Any) -> list[Metric]:
    """Return the metrics of a list, each with a name of its own.

    Raises
    ------
    ConfigError
        If it is no list, or two numbers of an epoch would have one name.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(message(f"metrics={given!r}", need="a list", hint=f"metrics=[{given!r}]"))
    found = [metric(member) for member in given]
    names = [member.name for member in found]
    for position, name in enumerate(names):
        if name in _RESERVED or name.startswith("val_"):
            why = "stands for something else in a history"
        elif name in names[:position]:
            why = "another metric has"
        else:
            continue
        raise ConfigError(
            message(
                f"metrics={given!r}: a metric has the name {name!r}, which {why}",
                need="names of their own",
                hint="mg.metrics.MeanOf(function, name)",
            )
        )
    return found


_NAMED: dict[str, type[Metric]] = {
    kind.name: kind
    for kind in (Accuracy, Confusion, Precision, Recall, F1, Matthews, MSE, MAE, R2)
}


def metric(given: Any) -> Metric:
    """Return a metric: one itself, by name ("top_5" for `TopK(5)`), or the mean of a function.

    Parameters
    ----------
    given : Metric, str or callable
        A metric, its name, or a function of predictions and targets.

    Raises
    ------
    ConfigError
        If there is none of this name.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.metrics.metric("top_3"), mg.metrics.metric("r2")
    (TopK(3), R2())
    """
    if isinstance(given, Metric):
        return given
    if callable(given):
        return MeanOf(given)
    name = str(given)
    if name.startswith("top_") and name[4:].isdigit():
        return TopK(int(name[4:]))
    if name not in _NAMED:
        raise ConfigError(
            message(
                f"there is no metric {given!r}",
                need=f"one of {', '.join(sorted(_NAMED))}, 'top_5' for any number, or a function",
            )
        )
    return _NAMED[name]()
