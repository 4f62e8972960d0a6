"""Losses by name or as functions, and the labels that they are of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .. import losses
from ..dtypes import is_float
from ..errors import ConfigError, DataError, message
from ..help.spellings import near_name
from ..ir.graph import Node
from ..ops.leaf import input

__all__ = ["Labels", "loss_function"]

# The losses that take numbers of classes.
_OF_CLASSES = ("cross_entropy", "nll_loss")

LossFunction = Callable[..., Node]  # of outputs and labels

# The activation after which a loss sees probabilities, not logits.
_PROBABILITIES = {"cross_entropy": "softmax", "binary_cross_entropy": "sigmoid"}


def loss_function(given: Any, activation: str | None) -> LossFunction:
    """Return a loss as a function of outputs and labels that gives a scalar.

    Parameters
    ----------
    given
        The name of a loss of magmagraph (`cross_entropy`, `mse`, `huber`, ...), or a function.
    activation
        The name of the last layer's activation: behind "softmax" the cross-entropy takes
        probabilities, behind "sigmoid" the binary one.

    Raises
    ------
    ConfigError
        If there is no such loss.
    """
    if callable(given):
        own_function: LossFunction = given
        return own_function
    if given not in losses.__all__:
        raise ConfigError(
            message(
                f"there is no loss {given!r}",
                need="the name of a loss of magmagraph ('cross_entropy', 'mse', 'huber', ...), or "
                "a function of outputs and labels that returns a scalar node",
                hint=near_name(given, losses.__all__),
            )
        )
    function: Any = getattr(losses, given)
    if given in _PROBABILITIES:
        return partial(function, from_logits=activation != _PROBABILITIES[given])
    named_function: LossFunction = function
    return named_function


def _check_numbers(values: np.ndarray, output: Node) -> None:
    """Refuse class numbers that are floats or a column."""
    need = f"integers of shape {output.shape[:-1]}, or a share of each class: {output.shape}"
    if values.dtype.kind == "f" and values.ndim == output.ndim - 1:
        raise DataError(
            message(
                f"the labels have shape {values.shape} and dtype {values.dtype.name}",
                need=need,
                hint="labels.astype('int32'), where they are numbers of classes",
            )
        )
    if values.ndim == output.ndim and values.shape[-1] == 1 and output.shape[-1] != 1:
        raise DataError(
            message(
                f"the labels have shape {values.shape}", need=need, hint="labels[..., 0]"
            )
        )


@dataclass(frozen=True)
class Labels:
    """What labels a network is trained on: classes, or values of the output's shape.

    Attributes
    ----------
    node
        The input that they are fed to.
    classes
        How many classes there are, where the labels are their numbers.
    shares
        Whether they are probabilities.
    """

    node: Node
    classes: int | None = None
    shares: bool = False

    @property
    def kind(self) -> tuple[Any, ...]:
        """What tells two kinds apart, for which steps are compiled each."""
        return (self.node.dtype, self.node.shape, self.classes, self.shares)

    @classmethod
    def of(cls, values: np.ndarray, output: Node, loss: Any) -> Labels:
        """Return the labels that a loss takes for an output, as given values have them.

        Raises
        ------
        DataError
            If they are numbers of classes in a dtype or shape that a cross-entropy does not take.
        """
        whole = values.dtype.kind in "iub"
        is_name = isinstance(loss, str)
        if loss in _OF_CLASSES:
            _check_numbers(values, output)
        if whole and values.ndim == output.ndim - 1 and loss in _OF_CLASSES:
            width = output.shape[-1]
            return cls(
                input("labels", output.shape[:-1], np.int32),
                width if isinstance(width, int) else None,
            )
        if is_name and loss not in ("multi_margin",):
            shares = loss == "binary_cross_entropy"
            return cls(input("labels", output.shape, output.dtype), shares=shares)
        dtype = np.dtype(np.int32) if whole else output.dtype
        shape = (output.shape[0], *values.shape[1:])
        if values.ndim == output.ndim - 1 and output.shape[1:] == (*values.shape[1:], 1):
            shape = output.shape  # a loss of the user's would broadcast a row against the column
        return cls(input("labels", shape, dtype))

    def conform(self, values: np.ndarray) -> np.ndarray:
        """Return label values in the shape and dtype of the input.

        Raises
        ------
        DataError
            If they do not fit, are not finite, or name a class that there is not.
        """
        expected_shape = self.node.shape[1:]
        if values.ndim == self.node.ndim - 1 and expected_shape and expected_shape[-1] == 1:
            values = values[..., None]
        sizes_fit = values.ndim == self.node.ndim and all(
            not isinstance(extent, int) or extent == size
            for extent, size in zip(expected_shape, values.shape[1:], strict=True)
        )
        if not sizes_fit:
            raise DataError(
                message(
                    f"the labels have shape {values.shape}",
                    need=f"shape {self.node.shape}"
                    + ("" if self.classes is None else f", of classes 0 to {self.classes - 1}"),
                    hint=self._shape_mend(values),
                )
            )
        if self.classes is not None:
            self._check_classes(values)
        elif values.dtype.kind == "f" and not np.isfinite(values).all():
            row = int(np.argwhere(~np.isfinite(values))[0][0])
            raise DataError(
                message(f"the label in row {row} is {values[row]}", need="finite labels")
            )
        if self.shares and values.size and not (values.min() >= 0 and values.max() <= 1):
            place = np.argwhere((values < 0) | (values > 1))[0]
            raise DataError(
                message(
                    f"the label in row {place[0]} is {values[tuple(place)]}",
                    need="0 or 1, or a probability, for the binary cross-entropy",
                    hint="labels == 1, of two classes; for more loss='cross_entropy', and an "
                    "output for each",
                )
            )
        if not is_float(self.node.dtype) and values.dtype.kind == "f":
            raise DataError(
                message(f"the labels are {values.dtype.name}", need="integers: numbers of classes")
            )
        return np.ascontiguousarray(values, dtype=self.node.dtype)

    def _shape_mend(self, values: np.ndarray) -> str | None:
        if self.classes is not None:
            return None
        expected_shape = self.node.shape
        if values.ndim == self.node.ndim - 1 and len(expected_shape) == 2:
            return "a last layer of 1 unit; or, for numbers of classes, loss='cross_entropy'"
        if values.ndim == self.node.ndim and values.shape[1:-1] == expected_shape[1:-1]:
            return f"a last layer of {values.shape[-1]} units, or labels as the network's outputs"
        return None

    def _check_classes(self, values: np.ndarray) -> None:
        if not values.size:
            return
        assert self.classes is not None
        low, high = int(values.min()), int(values.max())
        if low < 0 or high >= self.classes:
            worst = low if low < 0 else high
            row = int(np.argwhere(values == worst)[0][0])
            raise DataError(
                message(
                    f"the label in row {row} is {worst}, and the network has {self.classes} "
                    "outputs",
                    need=f"labels in [0, {self.classes})",
                    hint="np.unique(labels, return_inverse=True)[1] numbers classes from 0",
                )
            )
