"""Functions of networks, made of operations: softmax, normalization, dropout.

None has a record of its own kind: what they compile to is one kernel each way, found by fusion.
"""

from .. import losses
from . import dropping, normalization, probabilities
from .dropping import alpha_dropout, dropout, spatial_dropout
from .normalization import (
    batch_norm,
    batch_statistics,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    normalize,
    rms_norm,
    running_statistics,
    standardize,
)
from .operands import wide
from .probabilities import gumbel_softmax, log_softmax, logmeanexp, softmax, softmin

__all__ = [
    "alpha_dropout",
    "batch_norm",
    "batch_statistics",
    "dropout",
    "group_norm",
    "gumbel_softmax",
    "instance_norm",
    "layer_norm",
    "local_response_norm",
    "log_softmax",
    "logmeanexp",
    "normalize",
    "rms_norm",
    "running_statistics",
    "softmax",
    "softmin",
    "spatial_dropout",
    "standardize",
    "wide",
]

RECORDS = (
    *probabilities.RECORDS,
    *normalization.RECORDS,
    *dropping.RECORDS,
    *losses.RECORDS,
)
