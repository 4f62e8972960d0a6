"""Metrics: sums that a compiled function makes of every batch, and what they say together.

Each metric is a statistic that adds up over batches (how many were right, a confusion matrix, sums
of squares), computed in the same graph as the loss, and a number made of the total.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..autodiff.transforms.vmap import vmap
from ..errors import ConfigError, DataError, message
from ..function import Function, function
from ..functional.probabilities import softmax
from ..help.spellings import near_name
from ..ir.graph import Node
from ..losses.classification import cross_entropy
from ..losses.common import check_last_axis
from ..ops.convert import as_node, cast
from ..ops.elementwise.arithmetic import add, multiply, subtract
from ..ops.elementwise.comparison import clip, equal, greater, not_equal
from ..ops.elementwise.rounding import floor
from ..ops.elementwise.signs import absolute
from ..ops.indexing.iota import arange, one_hot
from ..ops.indexing.updates import index_update
from ..ops.leaf import extent, input
from ..ops.networks.activation import sigmoid
from ..ops.products.contraction import matmul, tensordot
from ..ops.reduction.primitives import argmax, sum
from ..ops.reduction.statistics import mean
from ..ops.shape.arrange import expand_dims, reshape, swapaxes
from ..ops.shape.creation import ones, ones_like, zeros
from ..ops.shape.joining import stack
from .data import as_array, on_host
from .row_weights import checked_weights

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

    def __call__(
        self, outputs: Any, labels: Any, probabilities: bool = True, weights: Any = None
    ) -> Any:
        """Return the metric of arrays.

        Parameters
        ----------
        outputs, labels
            What a network gives, ``(rows, ...)``, and the labels that would be right.
        probabilities
            Whether the outputs are probabilities, and not logits.
        weights
            How much each row counts, ``(rows,)``; all the same unless said.
        """
        outputs_array, labels_array = as_array(outputs), as_array(labels)
        if weights is None:
            node = self.batch(as_node(outputs_array), as_node(labels_array), probabilities)
            return self.result(np.asarray(on_host(node.eval())), len(outputs_array))
        counts = checked_weights(weights, len(outputs_array)).astype(float)
        node = self._weighted(
            as_node(outputs_array), as_node(labels_array), as_node(counts), probabilities
        )
        return self.result(np.asarray(on_host(node.eval())), counts.sum())

    def _weighted(self, outputs: Node, labels: Node, weights: Node, probabilities: bool) -> Node:
        """Return a batch's statistic: that of each row by itself, as often as its weight."""

        def row(output: Node, label: Node) -> Node:
            return self.batch(expand_dims(output, 0), expand_dims(label, 0), probabilities)

        return tensordot(weights, cast(vmap(row)(outputs, labels), FLOAT64), 1)

    def stream(self, probabilities: bool = True) -> Stream:
        """Return what adds up batches that come one by one.

        Examples
        --------
        >>> import magmagraph as mg
        >>> stream = mg.metrics.Accuracy().stream()
        >>> stream.add([[0.1, 0.9], [0.8, 0.2]], [1, 1])
        >>> stream.add([[0.3, 0.7]], [1])
        >>> round(stream.result(), 4)
        0.6667
        """
        return Stream(self, probabilities)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Stream:
    """A metric over batches that come one by one; made by `Metric.stream`.

    Attributes
    ----------
    metric
        The metric.
    rows
        How many rows there were so far; the sum of their weights.
    """

    def __init__(self, metric: Metric, probabilities: bool) -> None:
        self.metric, self.probabilities = metric, probabilities
        self._functions: dict[Any, Function] = {}
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.rows: float = 0
        self._total: Any = 0

    def add(self, outputs: Any, labels: Any, weights: Any = None) -> None:
        """Add a batch; arguments as of the metric. The function that adds is compiled once."""
        arrays = [as_array(outputs), as_array(labels)]
        if weights is not None:
            arrays.append(checked_weights(weights, len(arrays[0])))
        key = tuple((array.shape[1:], array.dtype) for array in arrays)
        if key not in self._functions:
            names = ("outputs", "labels", "weights")
            nodes = [
                input(name, ("rows", *array.shape[1:]), array.dtype)
                for name, array in zip(names, arrays, strict=False)
            ]
            y, true, *counts = nodes
            node = (
                self.metric._weighted(y, true, counts[0], self.probabilities)
                if counts
                else self.metric.batch(y, true, self.probabilities)
            )
            self._functions[key] = function(nodes, node, name=f"metric {self.metric.name}")
        self._total = self._total + np.asarray(on_host(self._functions[key](*arrays)))
        self.rows += len(arrays[0]) if weights is None else float(arrays[2].sum(dtype=float))

    def result(self) -> Any:
        """Return the metric of all batches so far."""
        if not self.rows:
            raise DataError(message(f"{self.metric!r} of no rows", need="a batch: add(outputs, y)"))
        return self.metric.result(np.asarray(self._total), self.rows)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<{self.metric!r} of {self.rows:g} rows>"


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
    predicted = _classes(outputs, probabilities)
    if labels.ndim == outputs.ndim:
        if labels.shape[-1] != outputs.shape[-1]:
            raise DataError(
                message(
                    f"the labels have shape {labels.shape}, the outputs {outputs.shape}",
                    need="numbers of classes (one axis less), or a share of each class",
                    hint="labels[..., 0]" if labels.shape[-1] == 1 else None,
                )
            )
        return predicted, _classes(labels, True)
    return predicted, cast(labels, np.int64)


class Accuracy(Metric):
    """Share of examples whose likeliest class is right."""

    name = "accuracy"

    def batch(self, outputs: Node, labels: Node, probabilities: bool) -> Node:
        """Return how many are right, in shares of an example."""
        predicted, true = _found_and_true(outputs, labels, probabilities)
        right = cast(equal(predicted, true), FLOAT64)
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
        predicted, true = _found_and_true(outputs, labels, probabilities)
        width = 1 if outputs.ndim == 1 else outputs.shape[-1]
        count = 2 if width == 1 else width
        rows, columns = (
            reshape(one_hot(node, count, dtype=np.float32), (-1, count))
            for node in (true, predicted)
        )
        # Exact: a batch has fewer than 2**24 rows.
        return cast(matmul(swapaxes(rows, 0, 1), columns), np.int64)

    def result(self, total: np.ndarray, rows: int) -> Any:
        """Return the matrix: int64, where weights are not fractions."""
        whole = np.rint(total).astype(np.int64)
        return whole if np.array_equal(whole, total) else np.asarray(total, float)


def _ratio(part: Any, whole: Any) -> Any:
    """Return a quotient that is 0 where there is nothing to divide by."""
    part, whole = np.asarray(part, float), np.asarray(whole, float)
    return np.divide(part, whole, out=np.zeros_like(part), where=whole != 0)


class _OfConfusion(Confusion):
    """Scores of the classes, and what is reported of them."""

    def __init__(self, average: str | None = "auto") -> None:
        averages = ("auto", "macro", "micro", "weighted", None)
        if not (average is None or isinstance(average, str)) or average not in averages:
            raise ConfigError(
                message(
                    f"{type(self).__name__}: average={average!r}",
                    need="'auto', 'macro', 'micro', 'weighted' or None",
                )
            )
        self.average = average
        if average != "auto":
            self.name = f"{type(self).name}_{'classes' if average is None else average}"

    def __repr__(self) -> str:
        argument = "" if self.average == "auto" else repr(self.average)
        return f"{type(self).__name__}({argument})"

    def scores(self, matrix: np.ndarray) -> np.ndarray:
        """Return a score for each class."""
        raise NotImplementedError

    def result(self, total: np.ndarray, rows: int) -> Any:
        """Return the score, as `average` says."""
        matrix = np.asarray(total, float)
        if self.average == "micro":  # of all decisions together: the share that is right
            return float(_ratio(np.trace(matrix), matrix.sum()))
        scores = self.scores(matrix)
        if self.average is None:
            return scores
        if self.average == "weighted":
            return float(_ratio(scores @ matrix.sum(1), matrix.sum()))
        binary = self.average == "auto" and len(scores) == 2
        return float(scores[1] if binary else scores.mean())


_AVERAGES = """

    Parameters
    ----------
    average : {"auto", "macro", "micro", "weighted", None}
        "auto" reports class 1 of two classes, and of more the mean over classes, as "macro" always
        does; "weighted" counts classes by their examples; "micro" counts all decisions together;
        None reports an array, a number for each class.
    """


class Precision(_OfConfusion):
    """Of what was taken for a class, the share that is of it."""

    name = "precision"

    def scores(self, matrix: np.ndarray) -> np.ndarray:
        """Return the precision of each class; 0 where nothing was taken for it."""
        return np.asarray(_ratio(np.diag(matrix), matrix.sum(0)))


class Recall(_OfConfusion):
    """Of a class, the share that was found."""

    name = "recall"

    def scores(self, matrix: np.ndarray) -> np.ndarray:
        """Return the recall of each class; 0 where there is none of it."""
        return np.asarray(_ratio(np.diag(matrix), matrix.sum(1)))


class F1(_OfConfusion):
    """The harmonic mean of precision and recall."""

    name = "f1"

    def scores(self, matrix: np.ndarray) -> np.ndarray:
        """Return the score of each class."""
        return np.asarray(_ratio(2 * np.diag(matrix), matrix.sum(0) + matrix.sum(1)))


for _kind in (Precision, Recall, F1):
    _kind.__doc__ = f"{_kind.__doc__}{_AVERAGES}"


class Matthews(Confusion):
    """Matthews' correlation of true and found classes: 1 all right, 0 no better than chance.

    For more than two classes R_K of J. Gorodkin, "Comparing two K-category assignments by a
    K-category correlation coefficient", 2004.
    """

    name = "matthews"

    def result(self, total: np.ndarray, rows: int) -> Any:
        """Return the coefficient; 0 where all are of one class, or taken for one."""
        matrix = np.asarray(total, float)
        true, predicted, count = matrix.sum(1), matrix.sum(0), matrix.sum()
        covariance = np.trace(matrix) * count - true @ predicted
        variances = (count**2 - predicted @ predicted) * (count**2 - true @ true)
        return float(_ratio(covariance, np.sqrt(variances)))


class _OfRanks(Metric):
    """What is said by the order of scores: counts of both classes by score, in bins or exact."""

    def __init__(self, bins: int = 4096) -> None:
        if isinstance(bins, bool) or not isinstance(bins, (int, np.integer)) or bins < 2:
            raise ConfigError(
                message(f"{type(self).__name__}: bins={bins!r}", need="an int of at least 2")
            )
        self.bins = int(bins)

    def batch(self, outputs: Node, labels: Node, probabilities: bool) -> Node:
        """Return counts of others and of the class by score, ``(classes, 2, bins)``."""
        return self._counted(outputs, labels, None, probabilities)

    def _weighted(self, outputs: Node, labels: Node, weights: Node, probabilities: bool) -> Node:
        return self._counted(outputs, labels, weights, probabilities)

    def _counted(
        self, outputs: Node, labels: Node, weights: Node | None, probabilities: bool
    ) -> Node:
        scores, true = _scores(outputs, labels, probabilities)
        rows, classes = scores.shape
        place = cast(floor(multiply(cast(scores, FLOAT64), float(self.bins))), np.int64)
        place = clip(place, 0, self.bins - 1)
        first = multiply(add(multiply(arange(classes), 2), true), self.bins)
        flat = reshape(add(first, place), (-1,))
        each = ones((rows, 1), FLOAT64) if weights is None else reshape(weights, (-1, 1))
        counts = reshape(multiply(cast(each, FLOAT64), ones((1, classes), FLOAT64)), (-1,))
        size = (int(classes), 2, self.bins)
        return reshape(
            index_update(zeros((size[0] * 2 * self.bins,), FLOAT64), flat, counts, "add"), size
        )

    def result(self, total: np.ndarray, rows: int) -> Any:
        """Return the mean over classes that have examples and counterexamples."""
        scores = np.array([self.score(part[1], part[0]) for part in total])
        valid_scores = scores[~np.isnan(scores)]
        return float(valid_scores.mean()) if len(valid_scores) else float("nan")

    def __call__(
        self, outputs: Any, labels: Any, probabilities: bool = True, weights: Any = None
    ) -> Any:
        """Return the exact metric of arrays; see `Metric`."""
        outputs_array, labels_array = as_array(outputs), as_array(labels)
        counts = np.ones(len(outputs_array))
        if weights is not None:
            counts = checked_weights(weights, len(outputs_array)).astype(float)
        nodes = _scores(as_node(outputs_array), as_node(labels_array), probabilities)
        scores, true = (np.asarray(on_host(node.eval())) for node in nodes)
        ranked = []
        for column, of_class in zip(scores.T, true.T, strict=True):
            _, place = np.unique(column, return_inverse=True)
            parts = [
                np.bincount(place, counts * (of_class == side), place.max(initial=-1) + 1)
                for side in (0, 1)
            ]
            ranked.append(np.stack(parts))
        return _OfRanks.result(self, ranked, len(outputs_array))  # type: ignore[arg-type]

    def score(self, positives: np.ndarray, negatives: np.ndarray) -> float:
        """Return the metric of counts in ascending order of scores; NaN where it has no meaning."""
        raise NotImplementedError


def _scores(outputs: Node, labels: Node, probabilities: bool) -> tuple[Node, Node]:
    """Return the probability of each class, and whether it is the true one, ``(rows, classes)``.

    One column means two classes, and of two columns the second one is looked at.
    """
    if outputs.ndim == 1:
        outputs = reshape(outputs, (*outputs.shape, 1))
    if outputs.ndim != 2:
        raise DataError(
            message(f"the outputs have shape {outputs.shape}", need="a row for each example")
        )
    columns = outputs.shape[1]
    if labels.ndim == 2 and columns != 1:
        labels = argmax(labels, axis=-1)
    numbers = cast(reshape(labels, (-1, 1)), np.int64)
    if not probabilities:
        outputs = sigmoid(outputs) if columns == 1 else softmax(outputs)
    if columns == 1:
        return outputs, numbers
    if columns == 2:
        return outputs[:, 1:], numbers
    return outputs, cast(equal(numbers, arange(columns)), np.int64)


class AUC(_OfRanks):
    """The area under the ROC curve: how often an example of the class scores above another one.

    Equal scores count half. Of more than two classes it is the mean over classes, each against all
    others. NaN where there is one class alone.

    Parameters
    ----------
    bins : int
        While batches are added up (in `fit`, `evaluate`, `stream`), scores are probabilities in so
        many bins of equal width, and two in one bin count half. Called on arrays it is exact.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.metrics.AUC()([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """

    name = "auc"

    def score(self, positives: np.ndarray, negatives: np.ndarray) -> float:
        """Return the share of pairs in the right order."""
        pairs = positives.sum() * negatives.sum()
        above = positives.sum() - np.cumsum(positives) + 0.5 * positives
        return float(negatives @ above / pairs) if pairs else float("nan")


class AveragePrecision(_OfRanks):
    """The mean of precision over recall: ``sum((R_n - R_(n-1)) P_n)`` over thresholds.

    Of more than two classes it is the mean over classes, each against all others. NaN where none is
    an example of the class.

    Parameters
    ----------
    bins : int
        As of `AUC`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> round(mg.metrics.AveragePrecision()([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 4)
    0.8333
    """

    name = "average_precision"

    def score(self, positives: np.ndarray, negatives: np.ndarray) -> float:
        """Return the sum over thresholds, the highest first."""
        true_positives = np.cumsum(positives[::-1])
        predicted_positives = true_positives + np.cumsum(negatives[::-1])
        if not true_positives.size or not true_positives[-1]:
            return float("nan")
        return float(
            positives[::-1] @ _ratio(true_positives, predicted_positives) / true_positives[-1]
        )


class Perplexity(Metric):
    """The exponential of the mean cross-entropy of classes, or tokens.

    Parameters
    ----------
    ignore_index : int, optional
        Labels of this number do not count: those of padding.

    Examples
    --------
    >>> import magmagraph as mg
    >>> round(mg.metrics.Perplexity()([[0.5, 0.5], [0.25, 0.75]], [0, 0]), 4)
    2.8284
    """

    name, higher_is_better = "perplexity", False

    def __init__(self, ignore_index: int | None = None) -> None:
        self.ignore_index = ignore_index
        if ignore_index is not None:
            self.name = f"perplexity_ignoring_{ignore_index}"

    def batch(self, outputs: Node, labels: Node, probabilities: bool) -> Node:
        """Return the sum of the cross-entropy, and how many labels count."""
        each = cast(
            cross_entropy(
                outputs,
                labels,
                from_logits=not probabilities,
                reduction="none",
                ignore_index=self.ignore_index,
                epsilon=0.0,
            ),
            FLOAT64,
        )
        counted = ones_like(each)
        if self.ignore_index is not None:
            counted = cast(not_equal(labels, self.ignore_index), FLOAT64)
        return stack([sum(each), sum(counted)])

    def result(self, total: np.ndarray, rows: int) -> Any:
        """Return the exponential of the mean; NaN where no label counts."""
        return float(np.exp(total[0] / total[1])) if total[1] else float("nan")

    def __repr__(self) -> str:
        argument = "" if self.ignore_index is None else f"ignore_index={self.ignore_index}"
        return f"Perplexity({argument})"


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
        true, predicted = (
            reshape(cast(node, FLOAT64), (node.shape[0], -1 if count > 1 else 1))
            for node in (labels, outputs)
        )
        error = subtract(predicted, true)
        parts = (true, multiply(true, true), multiply(error, error))
        return stack([sum(part, 0) for part in parts])

    def result(self, total: np.ndarray, rows: int) -> Any:
        """Return one less the share that is not explained."""
        first, second, wrong = np.asarray(total, float)
        variance = second - first**2 / rows
        varies = variance > 0
        scores = np.where(varies, 1.0 - _ratio(wrong, np.where(varies, variance, 1.0)), 0.0)
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
        returned = self.function(outputs, labels)
        if returned is None:
            raise ConfigError(
                message(
                    f"the metric {self.name!r} returned None",
                    need="a scalar node",
                    hint="a return statement",
                )
            )
        value = as_node(returned)
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


_RESERVED = ("loss", "seconds")  # the other numbers that an epoch reports


def checked_metrics(given: Any) -> list[Metric]:
    """Return the metrics of a list, each with a name of its own.

    Raises
    ------
    ConfigError
        If it is no list, or two numbers of an epoch would have one name.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(message(f"metrics={given!r}", need="a list", hint=f"metrics=[{given!r}]"))
    metrics = [metric(member) for member in given]
    names = [member.name for member in metrics]
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
    return metrics


_NAMED: dict[str, type[Metric]] = {
    kind.name: kind
    for kind in (
        AUC, Accuracy, AveragePrecision, Confusion, F1, MAE, MSE, Matthews, Perplexity, Precision,
        R2, Recall,
    )
}


def metric(given: Any) -> Metric:
    """Return a metric: one itself, one by name, or the mean of a function.

    Parameters
    ----------
    given : Metric, str or callable
        A metric, its name ("auc", "top_5" for `TopK(5)`, "f1_macro" for ``F1("macro")``), or a
        function of predictions and targets.

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
    if ignoring := re.fullmatch(r"perplexity_ignoring_(-?\d+)", name):
        return Perplexity(int(ignoring[1]))
    if averaged := re.fullmatch(r"(precision|recall|f1)_(macro|micro|weighted|classes)", name):
        kind: Any = _NAMED[averaged[1]]
        instance: Metric = kind(None if averaged[2] == "classes" else averaged[2])
        return instance
    if name not in _NAMED:
        raise ConfigError(
            message(
                f"there is no metric {given!r}",
                need=f"one of {', '.join(sorted(_NAMED))}, 'top_5' for any number, or a function",
                hint=near_name(name, _NAMED),
            )
        )
    return _NAMED[name]()
