"""Losses: of classes, of numbers, and of comparisons.

None has a record of its own kind: what they compile to is one kernel each way, found by fusion.
The loss of alignments, which has, is in `ops.networks.ctc`.
"""

from . import binary, classification, comparing, distributions, margins, regression
from .binary import binary_cross_entropy, focal_loss
from .classification import cross_entropy, nll_loss, smooth_labels
from .common import shifted
from .comparing import (
    cosine_embedding_loss,
    cosine_similarity,
    info_nce,
    triplet_margin_loss,
)
from .distributions import dice_loss, kl_divergence
from .margins import hinge, margin_ranking_loss, multi_margin, squared_hinge
from .regression import gaussian_nll, huber, log_cosh, mae, mse, poisson_nll, smooth_l1

__all__ = [
    "binary_cross_entropy",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "dice_loss",
    "focal_loss",
    "gaussian_nll",
    "hinge",
    "huber",
    "info_nce",
    "kl_divergence",
    "log_cosh",
    "mae",
    "margin_ranking_loss",
    "mse",
    "multi_margin",
    "nll_loss",
    "poisson_nll",
    "shifted",
    "smooth_l1",
    "smooth_labels",
    "squared_hinge",
    "triplet_margin_loss",
]

RECORDS = (
    *classification.RECORDS,
    *binary.RECORDS,
    *regression.RECORDS,
    *margins.RECORDS,
    *comparing.RECORDS,
    *distributions.RECORDS,
)
