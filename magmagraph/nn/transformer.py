"""Blocks of transformers: attention and dense layers, each beside a shortcut."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.elementwise.arithmetic import add
from .attention import MultiHeadAttention
from .basic import Dropout
from .gated import FeedForward
from .layer import Layer, count
from .normalization import LayerNorm, RMSNorm

__all__ = ["TransformerDecoder", "TransformerEncoder"]

_NORMS = {"layer": LayerNorm, "rms": RMSNorm}


class _Block(Layer):
    """Self-attention, attention to a context where there is one, and dense layers."""

    _causal = False

    def __init__(
        self,
        heads: int,
        hidden: int,
        activation: Any = "relu",
        *,
        norm_first: bool = True,
        norm: str = "layer",
        eps: float | None = None,
        gated: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
        causal: bool | None = None,
        key_heads: int | None = None,
        rotary: bool | float = False,
        kernel_init: Any = "glorot_uniform",
        output_init: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        kind = type(self).__name__
        if norm not in _NORMS:
            raise ConfigError(message(f"{kind}: norm={norm!r}", need="'layer' or 'rms'"))
        self.heads = count(heads, f"{kind}: heads")
        self.hidden = count(hidden, f"{kind}: hidden")
        self.activation, self.norm_first, self.norm, self.eps = activation, norm_first, norm, eps
        self.causal = self._causal if causal is None else causal
        self._attending = {
            "dropout": dropout,
            "bias": bias,
            "key_heads": key_heads,
            "kernel_init": kernel_init,
            "output_init": output_init,
        }
        self.attention = MultiHeadAttention(
            heads, causal=self.causal, rotary=rotary, name="attention", **self._attending
        )
        self.attention_norm = self._normalization("attention_norm")
        self.feed_forward = FeedForward(
            hidden,
            activation,
            gated=gated,
            dropout=dropout,
            bias=bias,
            kernel_init=kernel_init,
            output_init=output_init,
            name="feed_forward",
        )
        self.feed_forward_norm = self._normalization("feed_forward_norm")
        self.dropout = Dropout(dropout)

    def _normalization(self, name: str) -> Layer:
        options = {} if self.eps is None else {"eps": self.eps}
        layer: Layer = _NORMS[self.norm](name=name, **options)
        return layer

    def _beside(self, x: Node, norm: Layer, layer: Any, *others: Node, **options: Any) -> Node:
        """Add a layer's result to its input, normalized before or after."""
        layer_input = norm(x) if self.norm_first else x
        total = add(x, self.dropout(layer(layer_input, *others, **options)))
        result: Node = total if self.norm_first else norm(total)
        return result


@documented
class TransformerEncoder(_Block):
    """Apply one block of a transformer: self-attention, then two dense layers at each position.

    A. Vaswani et al., "Attention is all you need", NIPS 2017, figure 1 (left); normalization first,
    unless said otherwise: R. Xiong et al., "On layer normalization in the transformer
    architecture", 2020.

    heads (int): Of the attention, see `MultiHeadAttention`.
    hidden (int): Wide units of the dense layers, see `FeedForward`.
    activation (str or callable): Of the wide units.
    norm_first (bool): ``x + layer(norm(x))``, or else ``norm(x + layer(x))``.
    norm ({"layer", "rms"}): `LayerNorm` or `RMSNorm`.
    eps (float, optional): Of the normalization.
    gated (bool): Whether the wide units are gated, as in `SwiGLU` with ``activation="silu"``.
    dropout (float): Of attention, of wide units, and of what each half adds; in training.
    bias (bool): Whether projections and dense layers have biases.
    causal (bool, optional): Whether position i sees positions 0 to i only: False unless said, in a
        `TransformerDecoder` True.
    key_heads, rotary: As of `MultiHeadAttention`.
    kernel_init, output_init: Of all matrices, and of those whose result is added; see
        `Layer.weight`.

    Notes
    -----
    It is called as ``layer(x)`` or ``layer(x, mask=mask)``, x of shape ``(batch, length, width)``,
    the mask as of `mg.scaled_dot_product_attention`; the result has the shape of x. An encoder
    with ``norm_first`` needs one more normalization behind its last block.

    >>> block = mg.nn.TransformerEncoder(4, 64, "gelu", name="block")
    >>> block(mg.var("x", shape=("batch", "length", 16))).shape
    (batch, length, 16)
    """

    def call(  # type: ignore[override]
        self, x: Node, training: bool, mask: Any = None
    ) -> Node:
        """Return the block's values."""
        x = self._beside(x, self.attention_norm, self.attention, mask=mask)
        return self._beside(x, self.feed_forward_norm, self.feed_forward)


class TransformerDecoder(_Block):
    """Apply one block that sees earlier positions, and all of a context where one is given.

    A. Vaswani et al., "Attention is all you need", NIPS 2017, figure 1 (right). Without a context
    it is the block of a language model.

    Parameters
    ----------
    heads, hidden, activation, **options
        As of `TransformerEncoder`; `causal` is True unless said.

    Notes
    -----
    It is called as ``layer(x)`` or ``layer(x, context)``, shapes ``(batch, length, width)`` and
    ``(batch, other, any)``, with ``mask=`` for x and ``context_mask=`` for the context. The first
    call decides whether there is a context.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x, c = mg.var("x", shape=("batch", 5, 16)), mg.var("c", shape=("batch", 9, 24))
    >>> mg.nn.TransformerDecoder(4, 64)(x, c).shape
    (batch, 5, 16)
    """

    _causal = True

    def build(self, x: Node, context: Node | None = None) -> None:  # type: ignore[override]
        """Make the attention to a context, if there is one."""
        self.context_attention: MultiHeadAttention | None = None
        if context is not None:
            self.context_attention = MultiHeadAttention(
                self.heads, name="context_attention", **self._attending
            )
            self.context_norm = self._normalization("context_norm")

    def call(  # type: ignore[override]
        self,
        x: Node,
        context: Node | None = None,
        *,
        training: bool,
        mask: Any = None,
        context_mask: Any = None,
    ) -> Node:
        """Return the block's values."""
        if (context is None) is not (self.context_attention is None):
            raise ConfigError(
                message(
                    f"layer '{self.name}' is called {'without' if context is None else 'with'} a "
                    f"context, and its first call was not",
                    need="a context in all calls, or in none",
                )
            )
        x = self._beside(x, self.attention_norm, self.attention, mask=mask)
        if context is not None:
            x = self._beside(
                x, self.context_norm, self.context_attention, context, mask=context_mask
            )
        return self._beside(x, self.feed_forward_norm, self.feed_forward)
