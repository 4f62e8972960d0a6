"""Kernel families: what each takes and why it refuses, and how backends run its steps.

A family is one file and one line of `FAMILIES`. Its builders import their backend when a plan has
such a step: a program on the CPU reads nothing of CUDA, and the other way round.
"""

from .attention import ATTENTION
from .collective import COLLECTIVE, WAIT
from .convolution import CONVOLUTION
from .copy import COPY
from .expression import EXPRESSION
from .fused import FUSED_FAMILY
from .gemm import GEMM_FAMILY
from .gemv import GEMV_FAMILY
from .indexed import INDEXED
from .join import JOIN
from .linalg import LINALG
from .nested import BRANCH_FAMILY, LOOP_FAMILY
from .pooling import POOLING
from .scatter import SCATTER

__all__ = ["FAMILIES"]

# The pass `lower` asks them in this order; the last one takes every operation.
FAMILIES = (
    FUSED_FAMILY,
    GEMM_FAMILY,
    GEMV_FAMILY,
    CONVOLUTION,
    POOLING,
    ATTENTION,
    INDEXED,
    SCATTER,
    LINALG,
    JOIN,
    LOOP_FAMILY,
    BRANCH_FAMILY,
    COLLECTIVE,
    COPY,
    WAIT,
    EXPRESSION,
)
