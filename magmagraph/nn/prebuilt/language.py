"""A small language model."""

from __future__ import annotations

import math

from ...ir.docstrings import documented
from ..attention import MultiHeadAttention, PositionEmbedding
from ..basic import Dense, Dropout, Embedding, Input, Output
from ..composed import Residual
from ..layer import Layer
from ..normalization import LayerNorm

__all__ = ["transformer"]


@documented
def transformer(
    vocabulary: int,
    length: int,
    *,
    width: int = 128,
    heads: int = 4,
    blocks: int = 4,
    dropout: float = 0.0,
) -> list[Layer]:
    """Return the layers of a transformer that predicts the next token at every position.

    Normalization stands before attention and before the two dense layers, and once more at the
    end; A. Radford et al., "Language models are unsupervised multitask learners", 2019, section
    2.3. Weights are normal with deviation 0.02, those that add to the residual stream smaller by
    the root of their number.

    vocabulary: Tokens are integers in ``[0, vocabulary)``; so many are the outputs.
    length: The most positions of a sequence.
    width, heads, blocks: Of the residual stream, of attention, and how many there are.
    dropout: Of the embeddings, of attention, and of what each half of a block adds.
    returns (list of Layer): From tokens ``(batch, length)``, int32, to logits ``(batch, length,
        vocabulary)``.

    >>> net = mg.NeuralNetwork(mg.nn.prebuilt.transformer(65, 32, width=16, blocks=1))
    >>> net.predict([list(range(32))]).shape
    (1, 32, 65)
    """
    small = ("normal", 0.0, 0.02)
    layers: list[Layer] = [
        Input((length,), "int32"),
        Embedding(vocabulary, width, table_init=small),
        PositionEmbedding(length, table_init=small),
        Dropout(dropout),
    ]
    last = ("normal", 0.0, 0.02 / math.sqrt(2 * blocks))
    for _ in range(blocks):
        layers += [
            Residual(
                [
                    LayerNorm(),
                    MultiHeadAttention(
                        heads, causal=True, dropout=dropout, kernel_init=small, output_init=last
                    ),
                    Dropout(dropout),
                ]
            ),
            Residual(
                [
                    LayerNorm(),
                    Dense(4 * width, "gelu", kernel_init=small),
                    Dense(width, kernel_init=last),
                    Dropout(dropout),
                ]
            ),
        ]
    return [*layers, LayerNorm(), Output(vocabulary, bias=False, kernel_init=small)]
