"""A language model: token embeddings, blocks of a transformer, and the logits of the next token."""

from __future__ import annotations

import math
from typing import Any

from ..errors import ShapeError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.products.contraction import matmul
from ..ops.shape.arrange import swapaxes
from .attention import PositionEmbedding
from .basic import Dense, Dropout, Embedding
from .layer import Layer, count
from .transformer import TransformerDecoder

__all__ = ["LanguageModel"]


@documented
class LanguageModel(Layer):
    """Give the logits of the next token at each position of a sequence of tokens.

    With the defaults and learned positions it is a model of GPT-2's form (A. Radford et al.,
    "Language models are unsupervised multitask learners", 2019, section 2.3); with
    ``rotary=True, norm="rms", gated=True, activation="silu", bias=False`` one of Llama's form (H.
    Touvron et al., 2023).

    vocabulary (int): Tokens are integers in ``[0, vocabulary)``.
    width, heads, blocks (int): Of the residual stream, of attention, and how many blocks there are.
    hidden (int, optional): Wide units of a block; four times the width unless said.
    positions (int, optional): Length of a table of learned positions; none unless said, as with
        `rotary`.
    activation, norm, eps, gated, bias, key_heads, rotary: As of `TransformerDecoder`.
    dropout (float): Of the embeddings, and as of `TransformerDecoder`.
    tied (bool): Whether the logits are products with the embeddings, or have a matrix of their own.
    kernel_init: Of all matrices; those that add to the residual stream are smaller by the root of
        their number, where it is a normal distribution.

    Notes
    -----
    From int tokens ``(batch, length)`` to logits ``(batch, length, vocabulary)``. `mg.generate`
    writes with it.

    >>> layer = mg.nn.LanguageModel(50, 16, 4, 2, positions=32)
    >>> layer(mg.var("ids", shape=("batch", "length"), dtype="int32")).shape
    (batch, length, 50)
    >>> "blocks.1.attention.query.kernel" in layer.paths()
    True
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        heads: int,
        blocks: int,
        hidden: int | None = None,
        *,
        positions: int | None = None,
        activation: Any = "gelu_tanh",
        norm: str = "layer",
        eps: float = 1e-5,
        gated: bool = False,
        bias: bool = True,
        key_heads: int | None = None,
        rotary: bool | float = False,
        dropout: float = 0.0,
        tied: bool = True,
        kernel_init: Any = ("normal", 0.0, 0.02),
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.vocabulary = count(vocabulary, "LanguageModel: vocabulary")
        self.width = count(width, "LanguageModel: width")
        number = count(blocks, "LanguageModel: blocks")
        hidden = 4 * width if hidden is None else hidden
        smaller = kernel_init
        if isinstance(kernel_init, (list, tuple)) and kernel_init[0] == "normal":
            _, mean, deviation = kernel_init
            smaller = ("normal", mean, deviation / math.sqrt(2 * number))
        self.embedding = Embedding(vocabulary, width, table_init=kernel_init)
        self.positions = None
        if positions is not None:
            self.positions = PositionEmbedding(
                count(positions, "LanguageModel: positions"), table_init=kernel_init
            )
        self.dropout = Dropout(dropout)
        self.blocks = [
            TransformerDecoder(
                heads,
                hidden,
                activation,
                norm=norm,
                eps=eps,
                gated=gated,
                dropout=dropout,
                bias=bias,
                key_heads=key_heads,
                rotary=rotary,
                kernel_init=kernel_init,
                output_init=smaller,
            )
            for _ in range(number)
        ]
        self.norm: Layer = self.blocks[0]._normalization("norm")
        self.output = None
        if not tied:
            self.output = Dense(vocabulary, bias=False, kernel_init=kernel_init)

    def call(self, ids: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the logits."""
        if ids.ndim != 2:
            raise ShapeError(
                message(
                    f"layer '{self.name}' is given an input of shape {ids.shape}",
                    need="tokens: (batch, length)",
                )
            )
        x: Node = self.embedding(ids)
        if self.positions is not None:
            x = self.positions(x)
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        if self.output is not None:
            logits: Node = self.output(x)
            return logits
        return matmul(x, swapaxes(self.embedding.table, 0, 1))
