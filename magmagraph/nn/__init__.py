"""Layers: functions of nodes that hold weights.

==========================  =====================================================================
`Input`                     what a network takes
`Dense`, `Output`           every unit connected with every feature; `FullyConnected` is `Dense`
`Activation`                a function, by name or given
`Conv2D`                    windows of weights that slide over images
`MaxPool2D`, `AvgPool2D`    the largest value, or the mean, of every window
`GlobalAvgPool2D`           the mean of every channel
`Flatten`, `Reshape`        another shape of each example
`Dropout`                   values set to zero at random; `SpatialDropout` whole channels
`BatchNorm`, `LayerNorm`    mean 0 and variance 1
`Embedding`                 rows of a table; `PositionEmbedding` adds one for each position
`RNN`, `LSTM`, `GRU`        a state that is handed from position to position of a sequence
`MultiHeadAttention`        positions of a sequence that look at each other
`Residual`, `Sequential`    layers made of layers; `Add` and `Concatenate` take several values
`Layer`                     the base: subclass it with ``build`` and ``call``
`prebuilt`                  networks that are known by their names
==========================  =====================================================================

A layer is called on nodes, ``layer(x)``, and gives a node; its weights are made at the first call,
from the shapes it finds. ``layer(x, training=True)`` is the form that trains.
"""

from typing import NoReturn

from ..help.argument_errors import tell, tell_classes
from .activations import linear, rbf
from .attention import MultiHeadAttention, PositionEmbedding
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
from .convolutional import AvgPool2D, Conv2D, GlobalAvgPool2D, MaxPool2D
from .layer import Layer
from .normalization import BatchNorm, LayerNorm
from .recurrent import GRU, LSTM, RNN

from . import prebuilt  # isort: skip - made of the layers above

__all__ = [
    "Activation",
    "Add",
    "AvgPool2D",
    "BatchNorm",
    "Concatenate",
    "Conv2D",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "FullyConnected",
    "GRU",
    "GlobalAvgPool2D",
    "Input",
    "LSTM",
    "Layer",
    "LayerNorm",
    "MaxPool2D",
    "MultiHeadAttention",
    "Output",
    "PositionEmbedding",
    "RNN",
    "Reshape",
    "Residual",
    "Sequential",
    "SpatialDropout",
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
