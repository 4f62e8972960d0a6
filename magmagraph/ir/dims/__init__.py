"""Extents and shapes with symbolic dimensions.

An extent is an int or a :class:`Dim`; a shape is a tuple of extents. What cannot be decided when
a graph is built becomes a :class:`Constraint`, appended to a list that the caller passes in, and
is checked at the call, where all sizes are known.

Examples
--------
>>> constraints = []
>>> broadcast([parse_shape(("batch", 1)), parse_shape(("batch", 784))], constraints)
(batch, 784)
>>> slice_extent(Dim("batch"), 1, None), unify(Dim("batch"), 5, constraints), constraints
(max(batch - 1, 0), 5, [batch == 5])
"""

from .algebra import Dim, Extent, anonymous, ceil_div, floor_div, lower, maximum, minimum, upper
from .binding import BindingFailure, evaluate, names, solve, substitute
from .meeting import (
    BroadcastFailure,
    Constraint,
    broadcast,
    exact_divide,
    require,
    unify,
)
from .shape import Shape, parse_shape, size
from .slices import slice_extent
from .text import parse

__all__ = [
    "BindingFailure",
    "BroadcastFailure",
    "Constraint",
    "Dim",
    "Extent",
    "Shape",
    "anonymous",
    "broadcast",
    "ceil_div",
    "evaluate",
    "exact_divide",
    "floor_div",
    "lower",
    "maximum",
    "minimum",
    "names",
    "parse",
    "parse_shape",
    "require",
    "size",
    "slice_extent",
    "solve",
    "substitute",
    "unify",
    "upper",
]
