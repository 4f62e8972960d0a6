"""Layers: functions of nodes that hold weights.

=============================  ====================================================================
`Input`                        what a network takes
`Dense`, `Output`              every unit connected with every feature; `FullyConnected` is `Dense`
`Activation`                   a function, by name or given
`Conv1D`, `Conv2D`, `Conv3D`   windows of weights that slide over sequences, images, volumes
`Conv2DTranspose`              elements spread over windows; `Conv1DTranspose`, `Conv3DTranspose`
`DepthwiseConv2D`              windows of its own for each channel; `DepthwiseConv1D`
`SeparableConv2D`              depthwise windows, then a mixture of channels; `SeparableConv1D`
`MaxPool2D`, `AvgPool2D`       the largest value, or the mean, of every window; 1D and 3D
`AdaptiveAvgPool`              the mean of each part of a grid; `AdaptiveMaxPool` the largest value
`GlobalAvgPool2D`              the mean of every channel; `GlobalMaxPool2D` the largest value
`Upsample`, `PixelShuffle`     larger images: resampled, or with channels laid out as pixels
`Flatten`, `Reshape`           another shape of each example
`Dropout`                      values set to zero at random; `SpatialDropout` whole channels
`BatchNorm`, `LayerNorm`       mean 0 and variance 1, over the batch or each example
`GroupNorm`, `InstanceNorm`    likewise, over channels of each example; `RMSNorm` mean square 1
`WeightNorm`, `SpectralNorm`   a kernel with norms of its own, or with largest singular value 1
`LoRA`                         a dense layer that is trained by a product of two thin matrices
`Embedding`                    rows of a table; `PositionEmbedding` adds one for each position
`RNN`, `LSTM`, `GRU`           a state that is handed from position to position of a sequence
`Bidirectional`                two of them, one from the end to the beginning
`MultiHeadAttention`           positions of a sequence that look at each other
`RotaryEmbedding`              features turned by angles that grow with the position
`GLU`, `SwiGLU`                dense units times gates; `FeedForward` dense layers of each position
`MixtureOfExperts`             feed-forward layers of which each position uses a few
`TransformerEncoder`           a block of attention and dense layers; `TransformerDecoder`
`LanguageModel`                embeddings, blocks, and the logits of the next token
`Residual`, `Sequential`       layers made of layers; `Add` and `Concatenate` take several values
`Layer`                        the base: subclass it with ``build`` and ``call``
`prebuilt`                     networks that are known by their names
=============================  ====================================================================

A layer is called on nodes, ``layer(x)``, and gives a node; its weights are made at the first call,
from the shapes it finds. ``layer(x, training=True)`` is the form that trains.
"""

from typing import NoReturn

from ..help.argument_errors import tell, tell_classes
from .activations import linear, rbf
from .attention import MultiHeadAttention, PositionEmbedding, RotaryEmbedding
from .basic import (
    Activation,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    FullyConnected,
    Input,
    Output,
    Reshape,
    SpatialDropout,
)
from .composed import Add, Concatenate, Residual, Sequential
from .convolutional import (
    Conv1D,
    Conv1DTranspose,
    Conv2D,
    Conv2DTranspose,
    Conv3D,
    Conv3DTranspose,
    DepthwiseConv1D,
    DepthwiseConv2D,
    SeparableConv1D,
    SeparableConv2D,
)
from .experts import MixtureOfExperts
from .gated import GLU, FeedForward, SwiGLU
from .language import LanguageModel
from .layer import Layer
from .normalization import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from .pooling import (
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
    GlobalAvgPool2D,
    GlobalMaxPool2D,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
    PixelShuffle,
    Upsample,
)
from .recurrent import GRU, LSTM, RNN, Bidirectional
from .reparametrized import LoRA, SpectralNorm, WeightNorm
from .transformer import TransformerDecoder, TransformerEncoder

from . import prebuilt  # isort: skip - made of the layers above

__all__ = [
    "GLU",
    "GRU",
    "LSTM",
    "RNN",
    "Activation",
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "Add",
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "BatchNorm",
    "Bidirectional",
    "Concatenate",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "Dense",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
    "Dropout",
    "Embedding",
    "FeedForward",
    "Flatten",
    "FullyConnected",
    "GlobalAvgPool2D",
    "GlobalMaxPool2D",
    "GroupNorm",
    "Input",
    "InstanceNorm",
    "LanguageModel",
    "Layer",
    "LayerNorm",
    "LoRA",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "MixtureOfExperts",
    "MultiHeadAttention",
    "Output",
    "PixelShuffle",
    "PositionEmbedding",
    "RMSNorm",
    "Reshape",
    "Residual",
    "RotaryEmbedding",
    "SeparableConv1D",
    "SeparableConv2D",
    "Sequential",
    "SpatialDropout",
    "SpectralNorm",
    "SwiGLU",
    "TransformerDecoder",
    "TransformerEncoder",
    "Upsample",
    "WeightNorm",
    "linear",
    "prebuilt",
    "rbf",
]

tell(globals(), __all__)
tell_classes(globals(), __all__, "weight", "__call__")


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> NoReturn:
    from ..help.spellings import missing

    raise missing(__name__, name)
