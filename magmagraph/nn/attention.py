"""Layers of sequences that look at each other's positions."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError, ShapeError, message
from ..ir.graph import Node
from ..ops.elementwise.arithmetic import add
from ..ops.indexing.gathering import take
from ..ops.networks.attention import scaled_dot_product_attention
from ..ops.networks.positions import apply_rotary
from ..ops.shape.arrange import reshape, swapaxes
from . import decoding
from .basic import Dense
from .layer import Layer, count, features

__all__ = ["MultiHeadAttention", "PositionEmbedding", "RotaryEmbedding"]


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
    key_heads : int, optional
        Heads of keys and values, each for a group of so many neighbouring heads of queries (J.
        Ainslie et al., "GQA", 2023); as many as `heads` unless said.
    rotary : bool or float
        Whether queries and keys are turned by their positions (`mg.apply_rotary`); a number is the
        base of the angles, 10000 unless said.
    kernel_init, output_init
        Of the projections, and of the last one; see `Layer.weight`.
    **options
        Of every `Layer`.

    Notes
    -----
    It is called as ``layer(x)``, ``layer(x, context)``, whose keys and values are the context's, or
    with ``mask=``, as of `mg.scaled_dot_product_attention`. Shapes are ``(batch, length, width)``.
    With ``causal=True`` and no context, `mg.generate` keeps its keys and values of earlier
    positions.

    Raises
    ------
    ConfigError
        If the key heads do not divide the heads, or the base is not positive.
    ShapeError
        By a call, if the heads do not divide the width, or a head's share is odd and `rotary`.

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
        key_heads: int | None = None,
        rotary: bool | float = False,
        kernel_init: Any = "glorot_uniform",
        output_init: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.heads, self.width = count(heads, "MultiHeadAttention: heads"), width
        self.key_heads = heads if key_heads is None else count(
            key_heads, "MultiHeadAttention: key_heads"
        )
        if self.heads % self.key_heads:
            raise ConfigError(
                message(
                    f"MultiHeadAttention: key_heads={key_heads} of heads={heads}",
                    need="a number that divides the heads",
                )
            )
        self.causal, self.dropout = causal, dropout
        self.rotary = rotary
        self._base = _base_of("MultiHeadAttention: rotary", 10000.0 if rotary is True else rotary)
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
        narrow = width // self.heads * self.key_heads
        self.query, self.key, self.value, self.output = (
            Dense(units, bias=self.bias, kernel_init=init, name=name)
            for name, units, init in (
                ("query", width, self.kernel_init),
                ("key", narrow, self.kernel_init),
                ("value", narrow, self.kernel_init),
                ("output", width, self.output_init),
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
        state = decoding.current() if context is None else None
        if self._base:
            places = None
            if state is not None and state.positions is not None:
                places = reshape(state.positions, (state.rows, 1, 1))
            query, key = (apply_rotary(node, places, base=self._base) for node in (query, key))
        attended: Node | None = None
        if state is not None:
            if not self.causal:
                raise decoding.not_causal(self, "looks at later positions")
            if mask is not None:
                raise decoding.not_causal(self, "is called with a mask")
            attended = state.attend(self, query, key, value)
        if attended is None:
            attended = scaled_dot_product_attention(
                query,
                key,
                value,
                mask,
                causal=self.causal,
                dropout=self.dropout if training else 0.0,
            )
        heads_last = swapaxes(attended, 1, 2)
        result: Node = self.output(reshape(heads_last, (*heads_last.shape[:2], self.output.units)))
        return result

    def _split(self, x: Node) -> Node:
        """Return the heads before the positions."""
        share = self.output.units // self.heads
        heads = x.shape[2] // share
        return swapaxes(reshape(x, (*x.shape[:2], heads, share)), 1, 2)


def _base_of(name: str, value: Any) -> float:
    """Return the base of rotary angles, 0 for none."""
    if not isinstance(value, (bool, int, float)) or value < 0:
        raise ConfigError(message(f"{name}={value!r}", need="True, False, or a positive base"))
    return float(value)


class RotaryEmbedding(Layer):
    """Turn pairs of features by angles that grow with the position, see `mg.apply_rotary`.

    Parameters
    ----------
    base : float
        Of the angles.
    interleaved : bool
        Pairs are neighbouring features; else features of both halves.
    **options
        Of every `Layer`.

    Notes
    -----
    The input has shape ``(batch, ..., length, features)``: queries or keys.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nn.RotaryEmbedding()(mg.var("x", shape=("batch", 4, "length", 16))).shape
    (batch, 4, length, 16)
    """

    def __init__(
        self, base: float = 10000.0, *, interleaved: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        self.base = base
        if not _base_of("RotaryEmbedding: base", base):
            raise ConfigError(message(f"RotaryEmbedding: base={base!r}", need="a positive base"))
        self.interleaved = interleaved

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the turned features."""
        state, places = decoding.current(), None
        if state is not None and state.positions is not None:
            places = reshape(state.positions, (state.rows, *(1,) * (x.ndim - 2)))
        return apply_rotary(x, places, base=self.base, interleaved=self.interleaved)


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
        length, state = x.shape[1], decoding.current()
        if state is not None and state.positions is not None:
            return add(x, take(self.table, state.positions, axis=0))
        if isinstance(length, int) and length > self.length:
            raise ShapeError(
                message(
                    f"layer '{self.name}' is given {length} positions",
                    need=f"at most {self.length}",
                )
            )
        return add(x, self.table[:length])
