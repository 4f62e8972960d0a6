"""Layers of sequences that look at each other's positions."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError, message
from ..ir.graph import Node
from ..ops.elementwise.arithmetic import add
from ..ops.networks.attention import scaled_dot_product_attention
from ..ops.shape.arrange import reshape, swapaxes
from .basic import Dense
from .layer import Layer, count, features

__all__ = ["MultiHeadAttention", "PositionEmbedding"]


class MultiHeadAttention(Layer):
    """Let every position of a sequence take values from others, in several heads.

    A. Vaswani et al., "Attention is all you need", NIPS 2017, section 3.2.2.

    Parameters
    ----------
    heads : int
        Parts of the width that attend each by itself.
    width : int, optional
        Of the result, and of queries, keys and values together; that of the input unless said.
    causal : bool
        Whether position i sees positions 0 to i only.
    dropout : float
        Probability of a weight to be dropped, in training.
    bias : bool
        Whether the projections have biases.
    kernel_init, output_init
        Of the projections, and of the last one; see `Layer.weight`.
    **options
        Of every `Layer`.

    Notes
    -----
    It is called as ``layer(x)``, ``layer(x, context)``, whose keys and values are the context's, or
    with ``mask=``, as of `mg.scaled_dot_product_attention`. Shapes are ``(batch, length, width)``.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.var("x", shape=("batch", "length", 64))
    >>> mg.nn.MultiHeadAttention(4, causal=True)(x).shape
    (batch, length, 64)
    """

    def __init__(
        self,
        heads: int,
        width: int | None = None,
        *,
        causal: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
        kernel_init: Any = "glorot_uniform",
        output_init: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.heads, self.width = count(heads, "MultiHeadAttention: heads"), width
        self.causal, self.dropout = causal, dropout
        self.bias, self.kernel_init = bias, kernel_init
        self.output_init = kernel_init if output_init is None else output_init

    def build(self, x: Node, context: Node | None = None) -> None:  # type: ignore[override]
        """Make the four projections."""
        width = features(x) if self.width is None else self.width
        if not isinstance(width, int) or width % self.heads:
            raise ShapeError(
                message(
                    f"layer '{self.name}': width {width} in {self.heads} heads",
                    need="a width that the heads divide",
                )
            )
        self.query, self.key, self.value, self.output = (
            Dense(width, bias=self.bias, kernel_init=init, name=name)
            for name, init in (
                ("query", self.kernel_init),
                ("key", self.kernel_init),
                ("value", self.kernel_init),
                ("output", self.output_init),
            )
        )

    def call(  # type: ignore[override]
        self, x: Node, context: Node | None = None, *, training: bool, mask: Any = None
    ) -> Node:
        """Return the attended values."""
        other = x if context is None else context
        query, key, value = (
            self._split(projection(node))
            for projection, node in ((self.query, x), (self.key, other), (self.value, other))
        )
        found = scaled_dot_product_attention(
            query,
            key,
            value,
            mask,
            causal=self.causal,
            dropout=self.dropout if training else 0.0,
        )
        joined = swapaxes(found, 1, 2)
        result: Node = self.output(reshape(joined, (*joined.shape[:2], self.output.units)))
        return result

    def _split(self, x: Node) -> Node:
        """Return the heads before the positions."""
        share = self.output.units // self.heads
        return swapaxes(reshape(x, (*x.shape[:2], self.heads, share)), 1, 2)


class PositionEmbedding(Layer):
    """Add a learned vector for each position to a sequence.

    Parameters
    ----------
    length : int
        The most positions that a sequence has.
    table_init
        See `Layer.weight`.
    **options
        Of every `Layer`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nn.PositionEmbedding(128)(mg.var("x", shape=("batch", 64, 16))).shape
    (batch, 64, 16)
    """

    def __init__(self, length: int, *, table_init: Any = "normal", **options: Any) -> None:
        super().__init__(**options)
        self.length, self.table_init = length, table_init

    def build(self, x: Node) -> None:  # type: ignore[override]
        """Make the table."""
        self.table = self.weight("table", (self.length, features(x)), self.table_init)

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the sum."""
        length = x.shape[1]
        if isinstance(length, int) and length > self.length:
            raise ShapeError(
                message(
                    f"layer '{self.name}' is given {length} positions",
                    need=f"at most {self.length}",
                )
            )
        return add(x, self.table[:length])
