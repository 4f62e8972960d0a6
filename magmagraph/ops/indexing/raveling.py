"""Positions in a raveled array, along each axis, and laid out for every combination."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ...errors import DTypeError, ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import Call, Kind, Sample
from ...ir.types import Extent
from ..convert import as_node
from ..elementwise.arithmetic import floor_divide, remainder
from ..leaf import ShapeLike
from ..rules.namesakes import namesake
from ..shape.arrange import by_columns, reshape
from ..shape.axes import MATRIX
from .gathering import check_range, counted, flat_positions, size_of

__all__ = ["ix_", "ravel_multi_index", "unravel_index"]


@documented
def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Node, ...]:
    """Turn positions in the raveled array into positions along each axis.

    indices: Integers of any shape.
    shape: The shape of the array: ints, names, Dims.
    order: "F" where positions count along the first axis first.
    returns (tuple of Node): For each axis the positions, int64. Those outside are moved to the
        nearest valid ones.
    raises DTypeError: If the positions are not integers.
    raises ShapeError: If a constant position lies outside.

    >>> rows, columns = mg.unravel_index(mg.constant([5, 2]), (2, 3))
    >>> rows.eval(), columns.eval()
    (array([1, 0]), array([2, 2]))
    """
    node = as_node(indices)
    call = Call(UNRAVEL_INDEX, (node,))
    if node.dtype.kind not in "iu":
        raise call.dtype_error(f"positions of dtype {node.dtype.name}", need="integers")
    extents = _parsed(shape)
    total = dims.size(extents)
    check_range(call, node, 0, total, "clip")
    places = counted(node, total, "clip")
    columns = by_columns("unravel_index", order)
    positions = []
    for extent in extents if columns else reversed(extents):
        count = size_of(extent)
        positions.append(remainder(places, count))
        places = floor_divide(places, count)
    return tuple(positions if columns else reversed(positions))


@documented
def ravel_multi_index(
    multi_index: Sequence[Any], dims: ShapeLike, mode: str = "clip", order: str = "C"
) -> Node:
    """Turn positions along each axis into positions in the raveled array.

    multi_index: For each axis integers, broadcast against each other.
    dims: The shape of the array: ints, names, Dims.
    mode: What a position outside means: see `take`.
    order: "F" where the result counts along the first axis first.
    returns: int64, of the broadcast shape.
    raises ShapeError: If there are not as many positions as axes, or a constant one lies outside.
    raises DTypeError: If the positions are not integers.

    >>> mg.ravel_multi_index([mg.constant([1, 0]), mg.constant([2, 2])], (2, 3)).eval()
    array([5, 2])
    """
    nodes = [as_node(each) for each in multi_index]
    call = Call(RAVEL_MULTI_INDEX, tuple(nodes))
    extents = _parsed(dims)
    if len(nodes) != len(extents) or not nodes:
        raise call.shape_error(f"{len(nodes)} positions for {len(extents)} axes", need="as many")
    for axis, (node, extent) in enumerate(zip(nodes, extents, strict=True)):
        if node.dtype.kind not in "iu":
            raise call.dtype_error(f"positions of dtype {node.dtype.name}", need="integers")
        check_range(call, node, axis, extent, mode)
    call.broadcast(*[node.shape for node in nodes])
    if by_columns("ravel_multi_index", order):
        extents, nodes = extents[::-1], nodes[::-1]
    return flat_positions(extents, nodes, mode)


def _parsed(shape: Any) -> tuple[Extent, ...]:
    return dims.parse_shape(shape)


@documented
def ix_(*args: Any) -> tuple[Node, ...]:
    """Lay positions along one axis each, so that subscripts with them take every combination.

    *args: Integers of one axis for each axis.
    returns (tuple of Node): Each with extent 1 along the other axes.
    raises ShapeError: If an argument does not have one axis.
    raises DTypeError: If an argument is not of integers (the number of elements of a mask is not
        known).

    >>> x = mg.constant([[1, 2, 3], [4, 5, 6]])
    >>> x[mg.ix_([1, 0], [0, 2])].eval()
    array([[4, 6],
           [1, 3]], dtype=int32)
    """
    nodes = [as_node(arg) for arg in args]
    call = Call(IX_, tuple(nodes))
    result = []
    for number, node in enumerate(nodes):
        if node.ndim != 1:
            raise call.shape_error(f"positions of {node.ndim} axes", need="one axis")
        if node.dtype.kind not in "iu":
            raise call.dtype_error(
                f"positions of dtype {node.dtype.name}",
                need="integers",
                hint="mg.flatnonzero(mask, size=n) for a mask",
            )
        line: list[Extent] = [1] * len(nodes)
        line[number] = node.shape[0]
        result.append(reshape(node, line))
    return tuple(result)


_record = partial(namesake, Kind.INDEX)

UNRAVEL_INDEX = _record(
    unravel_index,
    "Positions along each axis of positions in the raveled array.",
    [
        Sample((np.array([[5, 2], [0, 23]]),), {"shape": (2, 3, 4)}),
        Sample((np.array(3),), {"shape": 5}),
    ],
    [((MATRIX,), DTypeError, "unravel_index: positions of dtype float64", {"shape": (2, 3)})],
    no_gradient="integer valued",
)
RAVEL_MULTI_INDEX = _record(
    ravel_multi_index,
    "Positions in the raveled array of positions along each axis.",
    [
        Sample(([np.array([[1], [0]]), np.array([2, 0])],), {"dims": (2, 3)}),
        Sample(([np.array([4, -1])],), {"dims": 3, "mode": "wrap"}),
    ],
    [
        (
            ([np.array([1])],),
            ShapeError,
            "ravel_multi_index: 1 positions for 2 axes",
            {"dims": (2, 3)},
        )
    ],
    no_gradient="integer valued",
    reference=lambda at, dims, mode="raise": np.ravel_multi_index(
        tuple(np.broadcast_arrays(*at)), np.atleast_1d(dims), mode
    ),
)
IX_ = _record(
    ix_,
    "Positions laid along one axis each.",
    [Sample((np.array([1, 0]), np.array([0, 2, 1])))],
    [
        ((MATRIX,), ShapeError, "ix_: positions of 2 axes"),
        ((MATRIX[0] > 0,), DTypeError, "ix_: positions of dtype bool"),
    ],
    no_gradient="integer valued",
)

RECORDS = (UNRAVEL_INDEX, RAVEL_MULTI_INDEX, IX_)
