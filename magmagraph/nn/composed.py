"""Layers made of layers: one after the other, beside a shortcut, added, joined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import ConfigError, ShapeError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.elementwise.arithmetic import add
from ..ops.shape.joining import concatenate
from .activations import activation as function_of
from .layer import Layer

__all__ = ["Add", "Concatenate", "Residual", "Sequential"]


def _listed(layers: Any, who: str) -> list[Layer]:
    if not isinstance(layers, (Layer, Iterable)) or getattr(layers, "ndim", 1) == 0:
        raise ConfigError(
            message(f"{who} is given {type(layers).__name__}", need="layers of mg.nn")
        )
    members = [layers] if isinstance(layers, Layer) else list(layers)
    for member in members:
        if not isinstance(member, Layer):
            raise ConfigError(
                message(f"{who} is given {type(member).__name__}", need="layers of mg.nn")
            )
    return members


@documented
class Sequential(Layer):
    """Apply layers one after the other.

    layers (sequence of Layer, or Layer): In this order.
    *more (Layer): What follows, where layers stand one by one: ``Sequential(first, second)``.

    >>> block = mg.nn.Sequential([mg.nn.Dense(8, "relu"), mg.nn.Dense(2)])
    >>> block(mg.var("x", shape=("batch", 4))).shape
    (batch, 2)
    """

    def __init__(
        self, layers: Sequence[Layer] | Layer, *more: Layer, **options: Any
    ) -> None:
        super().__init__(**options)
        self.members = [*_listed(layers, "Sequential"), *_listed(more, "Sequential")]
        if self.arguments.pop("more", None):
            self.arguments["layers"] = list(self.members)

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the last layer's result."""
        for member in self.members:
            x = member(x, training=training)
        return x


@documented
class Residual(Layer):
    """Add what layers make of a value to the value: ``activation(x + layers(x))``.

    K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning for image recognition", CVPR 2016.

    layers (Layer or sequence of Layer): Applied one after the other.
    shortcut (Layer or sequence of Layer, optional): Applied to the value that is added, where its
        shape has to change.
    activation (str or callable, optional): Of the sum.
    raises ShapeError: When called, if the layers change the shape and no shortcut does.

    >>> block = mg.nn.Residual([mg.nn.Dense(4, "relu"), mg.nn.Dense(4)])
    >>> block(mg.var("x", shape=("batch", 4))).shape
    (batch, 4)
    """

    def __init__(
        self, layers: Any, *, shortcut: Any = None, activation: Any = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self.members = _listed(layers, "Residual")
        self.shortcut = [] if shortcut is None else _listed(shortcut, "Residual: shortcut")
        self.activation = activation
        self._function = function_of(activation)

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the sum."""
        value, other = x, x
        for member in self.members:
            value = member(value, training=training)
        for member in self.shortcut:
            other = member(other, training=training)
        if value.shape != other.shape:
            raise ShapeError(
                message(
                    f"layer '{self.name}': its layers give {value.shape}, its shortcut "
                    f"{other.shape}",
                    need="one shape",
                    hint="shortcut=mg.nn.Conv2D(filters, 1, stride=...), or mg.nn.Dense(units)",
                )
            )
        return self._function(add(value, other))


class Add(Layer):
    """Add several values.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nn.Add()(mg.constant(1.0), mg.constant(2.0)).eval()
    array(3., dtype=float32)
    """

    def call(self, *inputs: Node, training: bool) -> Node:
        """Return the sum."""
        total = inputs[0]
        for other in inputs[1:]:
            total = add(total, other)
        return total


@documented
class Concatenate(Layer):
    """Join several values along an axis.

    axis (int): The axis.

    >>> x = mg.var("x", shape=("batch", 3))
    >>> mg.nn.Concatenate()(x, x).shape
    (batch, 6)
    """

    def __init__(self, *, axis: int = -1, **options: Any) -> None:
        super().__init__(**options)
        self.axis = axis

    def call(self, *inputs: Node, training: bool) -> Node:
        """Return the joined values."""
        return concatenate(list(inputs), axis=self.axis)
