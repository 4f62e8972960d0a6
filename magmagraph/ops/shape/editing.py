"""Arrays with elements more or less along an axis: append, insert, delete."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...errors import DTypeError, ShapeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import Call, Composite, Kind, Sample
from ...ir.types import Extent
from ..convert import as_dtype, as_node, promoted
from ..indexing.gathering import take
from ..rules.namesakes import namesake
from .arrange import expand_dims, ravel, reshape
from .axes import CUBE, MATRIX
from .joining import broadcast_to, concatenate

__all__ = ["append", "delete", "insert"]


@documented
def append(arr: Any, values: Any, axis: int | None = None) -> Node:
    """Join two arrays along an axis.

    arr, values: Nodes or arrays; their dtypes are promoted.
    axis: The axis; with None both are raveled first.
    returns (Node):
    raises ShapeError: If the other extents differ.

    >>> mg.append(mg.constant([1, 2]), 3).eval()
    array([1, 2, 3], dtype=int32)
    """
    return concatenate(promoted(arr, values), axis)


def _places(call: Call, obj: Any, extent: Extent, name: str) -> np.ndarray:
    """Return static positions along an axis, of a slice, an int, a list or a mask."""
    if not isinstance(extent, int):
        raise call.shape_error(
            f"an axis of extent {extent}, known only at the call",
            need="an int extent",
            hint="slices and mg.concatenate, whose extents may be symbolic",
        )
    if isinstance(obj, Node):
        value = obj.attrs.get("value")
        if value is None:
            raise call.dtype_error(
                f"{name} is a node",
                need="positions that are known now: the extent of the result follows from them",
                hint="mg.take(x, positions)",
            )
        obj = value
    if isinstance(obj, slice):
        return np.arange(extent)[obj]
    places = np.asarray(obj)
    if places.size == 0:
        places = places.astype(np.int64)
    if places.dtype == bool:
        if places.shape != (extent,):
            raise call.shape_error(f"a mask of shape {places.shape} for an extent of {extent}")
        return np.flatnonzero(places)
    if places.dtype.kind not in "iu":
        raise call.dtype_error(f"{name} of dtype {places.dtype.name}", need="integers")
    return places


def _read(
    record: Composite, arr: Any, obj: Any, axis: int | None, behind: int
) -> tuple[Call, int, int, np.ndarray]:
    """Return the call on the operand, the axis, its extent, and positions along it, from 0.

    `behind` is how many positions there are beside those of the elements.
    """
    node = as_node(arr)
    if axis is None:
        node, axis = ravel(node), 0
    call = Call(record, (node,))
    axis = call.axis(axis, node.ndim)
    extent = node.shape[axis]
    places = _places(call, obj, extent, "obj")
    assert isinstance(extent, int)
    last = extent - 1 + behind
    for place in places.reshape(-1):
        if not -extent <= place <= last:
            raise call.shape_error(
                f"position {place} is out of range", need=f"from {-extent} to {last}"
            )
    return call, axis, extent, np.where(places < 0, places + extent, places)


@documented
def delete(arr: Any, obj: Any, axis: int | None = None) -> Node:
    """Leave positions along an axis out.

    arr: Node or array.
    obj: The positions, known now: an int, a slice, a list, or a mask.
    axis: The axis; with None the array is raveled first.
    returns (Node):
    raises ShapeError: If a position is out of range, or the extent is symbolic.
    raises DTypeError: If the positions are no integers, or known only when the graph runs.

    >>> mg.delete(mg.constant([10, 20, 30, 40]), [0, 2]).eval()
    array([20, 40], dtype=int32)
    """
    call, axis, extent, places = _read(DELETE, arr, obj, axis, 0)
    (node,) = call.inputs
    positions = np.delete(np.arange(extent), places)
    return take(node, positions, axis)


@documented
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Node:
    """Put values in front of positions along an axis.

    arr: Node or array.
    obj: The positions, known now: an int, a slice or a list, counted in `arr`.
    values: What to put there: broadcasts to the slices at the positions; converted to the dtype of
        `arr`.
    axis: The axis; with None the array is raveled first.
    returns (Node):
    raises ShapeError: If a position is out of range, the extent is symbolic, or the values do not
        fit.
    raises DTypeError: If the positions are no integers, or known only when the graph runs.

    >>> mg.insert(mg.constant([1, 2, 3]), [1, 3], [9, 8]).eval()
    array([1, 9, 2, 3, 8], dtype=int32)
    """
    call, axis, extent, places = _read(INSERT, arr, obj, axis, 1)
    (node,) = call.inputs
    single = places.ndim == 0
    places = places.reshape(-1)
    new = as_dtype(values, node.dtype)
    count: Extent = len(places)
    if single:
        # As NumPy does: the first axis of the values is the one to be put in.
        if new.ndim == node.ndim:
            count = new.shape[axis]
            if not isinstance(count, int):
                raise call.shape_error(f"values of extent {count}", need="an int extent")
        elif node.ndim == 1 and new.ndim == 0:
            new = reshape(new, (1,))
        else:
            new = expand_dims(new, axis) if new.ndim == node.ndim - 1 else new
        places = np.repeat(places, int(count))
    shape = (*node.shape[:axis], count, *node.shape[axis + 1 :])
    rows = concatenate([node, broadcast_to(new, shape)], axis)
    order = np.argsort(np.concatenate([np.arange(extent) + 0.5, places]), kind="stable")
    return take(rows, order, axis)


# Records.


_record = partial(namesake, Kind.LAYOUT)

APPEND = _record(
    append,
    "Two arrays joined along an axis.",
    [Sample((MATRIX, MATRIX[0])), Sample((MATRIX, MATRIX[:1]), {"axis": 0})],
    [
        (
            (MATRIX, MATRIX[:, :2]),
            ShapeError,
            "concatenate: extents of axis 1 differ: 3 and 2",
            {"axis": 0},
        )
    ],
)
DELETE = _record(
    delete,
    "An array without positions along an axis.",
    [
        Sample((MATRIX,), {"obj": 1, "axis": 1}),
        Sample((MATRIX,), {"obj": [0, -1]}),
        Sample((CUBE,), {"obj": slice(None, None, 2), "axis": 2}),
        Sample((MATRIX,), {"obj": np.array([True, False]), "axis": 0}),
    ],
    [
        ((MATRIX,), ShapeError, "delete: position 3 is out of range", {"obj": 3, "axis": 1}),
        ((MATRIX,), DTypeError, "delete: obj of dtype float64", {"obj": 0.5, "axis": 1}),
    ],
)
INSERT = _record(
    insert,
    "An array with values put in front of positions along an axis.",
    [
        Sample((MATRIX,), {"obj": 1, "values": 9.0, "axis": 1}),
        Sample((MATRIX,), {"obj": [0, 2, 2], "values": [7.0, 8.0, 9.0]}),
        Sample((MATRIX,), {"obj": [3, -1], "values": np.array([[5.0], [6.0]]), "axis": 1}),
        Sample((MATRIX,), {"obj": 2, "values": np.array([1.0, 2.0, 3.0]), "axis": 0}),
        Sample((MATRIX,), {"obj": slice(0, 2), "values": 0.5, "axis": 1}),
    ],
    [
        (
            (MATRIX,),
            ShapeError,
            "insert: position 4 is out of range",
            {"obj": 4, "values": 0.0, "axis": 1},
        )
    ],
)

RECORDS = (APPEND, DELETE, INSERT)
