"""Gated units, and the dense layers of a transformer's block."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.elementwise.arithmetic import multiply
from .activations import activation as function_of
from .basic import Dense, Dropout
from .layer import Layer, count, features

__all__ = ["GLU", "FeedForward", "SwiGLU"]


@documented
class GLU(Layer):
    """Multiply dense units by gates: ``(x @ kernel + bias) * activation(x @ gate + gate_bias)``.

    Y. Dauphin et al., "Language modeling with gated convolutional networks", ICML 2017; with other
    activations N. Shazeer, "GLU variants improve transformer", 2020. Without weights the function
    is `mg.glu`.

    units (int): Of the result, along the last axis.
    activation (str or callable): Of the gates.
    bias (bool): Whether both products have biases.
    kernel_init: See `Layer.weight`.

    >>> layer = mg.nn.GLU(5, "silu")
    >>> layer(mg.var("x", shape=("batch", 3))).shape, sorted(layer.weights())
    ((batch, 5), ['gate/bias', 'gate/kernel', 'value/bias', 'value/kernel'])
    """

    def __init__(
        self,
        units: int,
        activation: Any = "sigmoid",
        *,
        bias: bool = True,
        kernel_init: Any = "glorot_uniform",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.units = count(units, "GLU: units")
        self.activation, self.bias, self.kernel_init = activation, bias, kernel_init
        self.value = Dense(units, bias=bias, kernel_init=kernel_init, name="value")
        self.gate = Dense(units, activation, bias=bias, kernel_init=kernel_init, name="gate")

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the gated units."""
        return multiply(self.value(x), self.gate(x))


@documented
class FeedForward(Layer):
    """Apply two dense layers to each position: wide units, and back to the width of the input.

    A. Vaswani et al., "Attention is all you need", NIPS 2017, section 3.3. With ``gated=True`` the
    wide units are a `GLU` with the activation as gate.

    hidden (int): Wide units.
    activation (str or callable): Of the wide units, or of their gates.
    width (int, optional): Of the result; that of the input unless said.
    gated (bool): Whether the wide units are gated, which takes a third matrix.
    dropout (float): Probability of a wide unit to be dropped, in training.
    bias (bool): Whether the dense layers have biases.
    kernel_init, output_init: Of the first and of the last dense layer; see `Layer.weight`.

    >>> mg.nn.FeedForward(32, "gelu")(mg.var("x", shape=("batch", "length", 8))).shape
    (batch, length, 8)
    """

    def __init__(
        self,
        hidden: int,
        activation: Any = "relu",
        *,
        width: int | None = None,
        gated: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
        kernel_init: Any = "glorot_uniform",
        output_init: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        kind = type(self).__name__
        self.hidden = count(hidden, f"{kind}: hidden")
        self.width = None if width is None else count(width, f"{kind}: width")
        self.activation, self.gated, self.bias = activation, gated, bias
        self.kernel_init = kernel_init
        self.output_init = kernel_init if output_init is None else output_init
        function_of(activation)  # it raises where there is none
        units = GLU if gated else Dense
        self.expand = units(
            hidden, activation, bias=bias, kernel_init=kernel_init, name="expand"
        )
        self.dropout = Dropout(dropout)

    def build(self, x: Node) -> None:  # type: ignore[override]
        """Make the last layer, of the input's width."""
        width = features(x) if self.width is None else self.width
        if not isinstance(width, int):
            raise ConfigError(
                message(
                    f"layer '{self.name}': the input has {width} features",
                    need="a known number of features, or width=",
                )
            )
        self.output = Dense(width, bias=self.bias, kernel_init=self.output_init, name="output")

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the result, of the width."""
        result: Node = self.output(self.dropout(self.expand(x)))
        return result


@documented
class SwiGLU(FeedForward):
    """Apply the gated dense layers of today's language models to each position.

    ``(silu(x @ gate) * (x @ value)) @ output``; N. Shazeer, "GLU variants improve transformer",
    2020, equation 6: a `FeedForward` with ``gated=True``, silu and no biases.

    hidden (int): Wide units.
    width (int, optional): Of the result; that of the input unless said.
    bias (bool): Whether there are biases.
    **options: As of `FeedForward`.

    >>> layer = mg.nn.SwiGLU(16)
    >>> layer(mg.var("x", shape=("batch", 6))).shape, len(layer.variables)
    ((batch, 6), 3)
    """

    def __init__(
        self, hidden: int, width: int | None = None, *, bias: bool = False, **options: Any
    ) -> None:
        for name in ("activation", "gated"):
            if name in options:
                raise ConfigError(
                    message(
                        f"SwiGLU: {name}={options[name]!r}",
                        need=f"no {name}: SwiGLU is gated by silu",
                        hint="mg.nn.FeedForward(hidden, activation, gated=True)",
                    )
                )
        super().__init__(hidden, "silu", width=width, gated=True, bias=bias, **options)
