"""Layers of units: dense, activations, dropout, embeddings, and what gives data its shape."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import is_integer
from ..errors import ConfigError, DTypeError, ShapeError, message
from ..functional.dropping import dropout, spatial_dropout
from ..ir.dims import parse_shape
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.convert import as_node
from ..ops.elementwise.arithmetic import add
from ..ops.leaf import input
from ..ops.networks.embedding import embedding
from ..ops.products.contraction import matmul
from ..ops.shape.arrange import reshape
from .activations import activation
from .layer import Layer, count, features, float_node

__all__ = [
    "Activation",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "FullyConnected",
    "Input",
    "Output",
    "Reshape",
    "SpatialDropout",
]


@documented
class Input(Layer):
    """Say what a network takes: the shape of one example, and its dtype.

    shape (sequence of int, str or None): Without the axis of the batch.
    dtype (optional): float32 (`mg.config.float_dtype`) unless said; "int32" for what an `Embedding`
        looks up.
    name (str, optional): Of the input.

    >>> mg.nn.Input((784,), name="x")()
    <input 'x' float32[batch, 784]>
    """

    def __init__(self, shape: Any = (), dtype: Any = None, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.shape = tuple(parse_shape(shape))
        self.dtype = dtype

    def __call__(self, *inputs: Any, training: bool | None = None, **options: Any) -> Any:
        """Make an input node; of a node that is given, check that it is such an input."""
        if not inputs:
            return input(self.name or "input", ("batch", *self.shape), self.dtype)
        node = as_node(inputs[0])
        if node.shape[1:] != self.shape:
            raise ShapeError(
                message(
                    f"the input has shape {node.shape}", need=f"shape {('batch', *self.shape)}"
                )
            )
        return node


@documented
class Dense(Layer):
    """Connect every unit with every feature: ``activation(x @ kernel + bias)``.

    units (int): The number of units.
    activation (str or callable, optional): Of the result.
    bias (bool): Whether there is one.
    kernel_init, bias_init: See `Layer.weight`.
    **options: Of every `Layer`: name, weight_decay, regularizer, trainable.

    Notes
    -----
    The last axis of the input is that of the features; the kernel has shape
    ``(features, units)``.

    >>> x = mg.var("x", shape=("batch", 3))
    >>> mg.nn.Dense(2, activation="relu")(x).shape
    (batch, 2)
    """

    #: The axis of the kernel along which the units are.
    kernel_axis = -1

    def __init__(
        self,
        units: int,
        activation: Any = None,
        *,
        bias: bool = True,
        kernel_init: Any = "glorot_uniform",
        bias_init: Any = "zeros",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.units = count(units, f"{type(self).__name__}: units")
        self.activation = activation
        self.bias = bias
        self.kernel_init, self.bias_init = kernel_init, bias_init
        self._function = _activation(activation)

    def build(self, x: Node) -> None:  # type: ignore[override]
        """Make kernel and bias."""
        shape = (features(x), self.units)
        self.kernel = self.weight("kernel", shape, self.kernel_init, decays=True)
        self.offset = self.weight("bias", (self.units,), self.bias_init) if self.bias else None

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the units' values."""
        product = matmul(float_node(x), self.kernel)
        return self._function(product if self.offset is None else add(product, self.offset))


FullyConnected = Dense


class Output(Dense):
    """The dense layer whose units are what the network predicts.

    It is a `Dense` layer, under the name "output" unless said.
    """


@documented
class Activation(Layer):
    """Apply a function to every value.

    function (str or callable): The name of a function of magmagraph that keeps the shape of its
        operand ("sigmoid", "relu", "tanh", "softmax", "gelu", ...), "rbf" (``exp(-x**2)``), or a
        function of a node.

    >>> mg.nn.Activation("rbf")(mg.constant([0.0, 1.0])).eval().round(4)
    array([1.    , 0.3679], dtype=float32)
    """

    def __init__(self, function: Any, **options: Any) -> None:
        super().__init__(**options)
        self.activation = function
        self._function = _activation(function)

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the function of `x`."""
        return self._function(x)


class Flatten(Layer):
    """Lay all axes behind the batch out in one.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nn.Flatten()(mg.var("x", shape=("batch", 28, 28))).shape
    (batch, 784)
    """

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return `x` with two axes."""
        extents = x.shape[1:]
        is_literal = all(isinstance(extent, int) for extent in extents)
        width = math.prod(extents) if is_literal else -1
        return reshape(x, (x.shape[0], width))


@documented
class Reshape(Layer):
    """Give each example another shape.

    shape (sequence of int): Without the axis of the batch; one extent may be -1.
    raises ShapeError: When called, if an example has another number of elements.

    >>> mg.nn.Reshape((1, 28, 28))(mg.var("x", shape=("batch", 784))).shape
    (batch, 1, 28, 28)
    """

    def __init__(self, shape: Any, **options: Any) -> None:
        super().__init__(**options)
        self.shape = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
        whole = all(
            isinstance(extent, (int, np.integer))
            and not isinstance(extent, bool)
            and (extent > 0 or extent == -1)
            for extent in self.shape
        )
        if not whole or self.shape.count(-1) > 1:
            raise ConfigError(
                message(f"Reshape: shape={shape!r}", need="positive ints, one of them -1 at most")
            )

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return `x` in the shape."""
        own_shape = x.shape[1:]
        numbers = math.prod(extent for extent in self.shape if extent != -1)
        # Of an example, since nothing is known of the batch until it is there.
        if all(isinstance(extent, int) for extent in own_shape):
            count = math.prod(own_shape)
            if count % numbers or (-1 not in self.shape and count != numbers):
                raise ShapeError(
                    message(
                        f"layer '{self.name}' is to give examples of shape {own_shape}, "
                        f"{count} numbers, the shape {self.shape}",
                        need=f"{'a multiple of ' if -1 in self.shape else ''}{numbers} numbers",
                    )
                )
        return reshape(x, (x.shape[0], *self.shape))


@documented
class Dropout(Layer):
    """Set values to zero at random while training, see `mg.dropout`.

    rate (float): Probability of a value to be dropped, in [0, 1).

    >>> x = mg.constant([1.0, 2.0])
    >>> mg.nn.Dropout(0.5)(x).eval()
    array([1., 2.], dtype=float32)
    """

    _drop = staticmethod(dropout)

    def __init__(self, rate: float, **options: Any) -> None:
        super().__init__(**options)
        if not 0 <= rate < 1:
            raise ConfigError(message(f"{type(self).__name__}: rate={rate}", need="0 <= rate < 1"))
        self.rate = rate

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return `x`, thinned out in training."""
        return self._drop(x, self.rate, training)


class SpatialDropout(Dropout):
    """Set whole channels to zero at random while training, see `mg.spatial_dropout`."""

    _drop = staticmethod(spatial_dropout)


@documented
class Embedding(Layer):
    """Look up a row of a table for each integer.

    rows (int): How many integers there are: ids lie in ``[0, rows)``.
    width (int): Of a row.
    table_init: See `Layer.weight`.
    padding_index (int, optional): The row of this id is not trained.
    raises DTypeError: When called, if the input does not hold integers.

    >>> ids = mg.var("ids", shape=("batch", 8), dtype="int32")
    >>> mg.nn.Embedding(65, 16)(ids).shape
    (batch, 8, 16)
    """

    def __init__(
        self,
        rows: int,
        width: int,
        *,
        table_init: Any = "normal",
        padding_index: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.rows = count(rows, "Embedding: rows")
        self.width = count(width, "Embedding: width")
        self.table_init, self.padding_index = table_init, padding_index

    def build(self, ids: Node) -> None:  # type: ignore[override]
        """Make the table."""
        shape = (self.rows, self.width)
        self.table = self.weight("table", shape, self.table_init, decays=True)

    def call(self, ids: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the rows."""
        if not is_integer(ids.dtype):
            raise DTypeError(
                message(
                    f"Embedding is given {ids.dtype.name}",
                    need="integers",
                    hint="mg.nn.Input(shape, dtype='int32')",
                )
            )
        return embedding(ids, self.table, padding_index=self.padding_index)


_activation = activation  # parameters of layers have its name
