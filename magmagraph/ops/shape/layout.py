"""Layout: operations that move elements to other places and compute nothing.

Six are records of their own (`reshape`, `transpose`, `broadcast_to`, `slice`, `place`,
`concatenate`); what NumPy has beside them is made of these. This module gathers their files.
"""

from __future__ import annotations

from .arrange import (
    RESHAPE,
    TRANSPOSE,
    expand_dims,
    moveaxis,
    ravel,
    reshape,
    squeeze,
    swapaxes,
    transpose,
)
from .joining import BROADCAST_TO, CONCATENATE, broadcast_to, concatenate, stack
from .padding import pad
from .pieces import flip, split
from .slicing import PLACE, SLICE

__all__ = [
    "BROADCAST_TO",
    "CONCATENATE",
    "PLACE",
    "RESHAPE",
    "SLICE",
    "TRANSPOSE",
    "broadcast_to",
    "concatenate",
    "expand_dims",
    "flip",
    "moveaxis",
    "pad",
    "ravel",
    "reshape",
    "split",
    "squeeze",
    "stack",
    "swapaxes",
    "transpose",
]
