"""Functions of networks, made of operations: softmax, normalization, dropout.

None has a record of its own kind: what they compile to is one kernel each way, found by fusion.
"""

from .. import losses
from . import batch_normalization, channel_normalization, dropping, normalization, probabilities
from .batch_normalization import batch_norm, batch_statistics, running_statistics
from .channel_normalization import (
    group_norm,
    instance_norm,
    local_response_norm,
)
from .dropping import alpha_dropout, dropout, spatial_dropout
from .normalization import (
    layer_norm,
    normalize,
    rms_norm,
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
    *channel_normalization.RECORDS,
    *batch_normalization.RECORDS,
    *dropping.RECORDS,
    *losses.RECORDS,
)
