"""Repeating, turning and windowing: tile, repeat, roll, rot90 and their kind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ...errors import DTypeError, ShapeError
from ...ir import dims
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import Call, Kind, Sample
from ...ir.types import Extent
from ..convert import as_node, cast
from ..elementwise.arithmetic import add, remainder, subtract
from ..indexing.gathering import size_of, take
from ..indexing.iota import INT64, IOTA
from ..indexing.sorting import searchsorted
from ..leaf import ShapeLike
from ..reduction.cumulative import cumsum
from ..rules.namesakes import namesake
from .arrange import ravel, reshape, transpose
from .axes import CUBE, MATRIX, axes_of
from .joining import broadcast_to, concatenate
from .pieces import flip
from .slicing import cut

__all__ = [
    "fliplr",
    "flipud",
    "repeat",
    "roll",
    "rot90",
    "sliding_window_view",
    "tile",
]


def _is_extent(value: Any) -> bool:
    return isinstance(value, (int, np.integer, Dim, str)) and not isinstance(value, bool)


@documented
def tile(A: Any, reps: ShapeLike) -> Node:
    """Repeat a whole array along its axes.

    A: Node or array.
    reps: How often along the last axis, or along each of the last axes: ints, names, Dims. With
        more entries than axes, new axes stand in front.
    returns (Node):
    raises ShapeError: If a number is negative.

    >>> mg.tile(mg.constant([1, 2]), (2, 2)).eval()
    array([[1, 2, 1, 2],
           [1, 2, 1, 2]], dtype=int32)
    """
    node = as_node(A)
    counts = dims.parse_shape(reps)
    ndim = len(counts) if len(counts) > node.ndim else node.ndim
    shape = (*[1] * (ndim - node.ndim), *node.shape)
    counts = (*[1] * (ndim - len(counts)), *counts)
    if all(isinstance(count, int) and count == 1 for count in counts):
        return reshape(node, shape)
    apart: list[Extent] = []  # each axis follows a new one of its repetitions
    extents: list[Extent] = []
    for count, extent in zip(counts, shape, strict=True):
        apart += [1, extent]
        extents += [count, extent]
    result = broadcast_to(reshape(node, apart), extents)
    return reshape(result, [count * e for count, e in zip(counts, shape, strict=True)])


@documented
def repeat(
    a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: Any = None
) -> Node:
    """Repeat each element along an axis.

    a: Node or array.
    repeats: How often: one number for all elements (an int, a name or a Dim), or an array or node
        of one number for each.
    axis: The axis; None ravels `a` first.
    total_repeat_length: Extent of the result, needed where `repeats` is a node. What is beyond it
        is left out; where it is longer, the last element goes on.
    returns (Node):
    raises ShapeError: If there are not as many numbers as elements, one is negative, or the extent
        of the result is not known.
    raises DTypeError: If the numbers are not integers.

    >>> mg.repeat(mg.constant([1, 2]), 2).eval(), mg.repeat(mg.constant([1, 2]), [3, 1]).eval()
    (array([1, 1, 2, 2], dtype=int32), array([1, 1, 1, 2], dtype=int32))
    """
    node = as_node(a)
    if axis is None:
        node, axis = ravel(node), 0
    call = Call(REPEAT, (node,))
    axis = call.axis(axis, node.ndim)
    extent = node.shape[axis]
    if _is_extent(repeats):
        count = dims.parse_shape((repeats,))[0]
        apart = (*node.shape[: axis + 1], 1, *node.shape[axis + 1 :])
        shape = (*node.shape[: axis + 1], count, *node.shape[axis + 1 :])
        whole = (*node.shape[:axis], extent * count, *node.shape[axis + 1 :])
        return reshape(broadcast_to(reshape(node, apart), shape), whole)
    numbers = as_node(repeats)
    if numbers.dtype.kind not in "iu":
        raise call.dtype_error(f"repeats of dtype {numbers.dtype.name}", need="integers")
    if numbers.ndim > 1:
        raise call.shape_error(f"repeats of {numbers.ndim} axes", need="one number, or one axis")
    value = numbers.attrs.get("value")
    if value is not None:
        value = value.astype(np.int64)
    if numbers.ndim == 0 or (numbers.size == 1 and extent != 1):
        numbers = broadcast_to(reshape(numbers, ()), (extent,))
        value = None if value is None or isinstance(extent, Dim) else np.broadcast_to(value, extent)
    call.unify(numbers.shape[0], extent, "numbers of repeats and of elements")
    if value is not None:
        if (value < 0).any():
            raise call.shape_error(f"repeats has the negative number {value.min()}")
        if total_repeat_length is None:
            places = np.repeat(np.arange(value.size), value.reshape(-1))
            return take(node, places, axis)
    if total_repeat_length is None:
        raise call.shape_error(
            "the sum of the repeats is known only when it runs",
            need="total_repeat_length=, the extent of the result",
        )
    total = dims.parse_shape((total_repeat_length,))[0]
    ends = cumsum(cast(numbers, INT64))
    positions = IOTA(shape=(total,), axis=0, dtype=INT64)
    return take(node, searchsorted(ends, positions, side="right"), axis)


@documented
def roll(a: Any, shift: Any, axis: int | Sequence[int] | None = None) -> Node:
    """Move elements along axes; what leaves at one end comes in at the other.

    a: Node or array.
    shift: By how many places, one for each axis: ints, Dims, or integer nodes.
    axis: The axis, or axes; None rolls the raveled array and gives it its shape back.
    returns: Of the shape of `a`.
    raises ShapeError: If there are not as many shifts as axes.
    raises DTypeError: If a shift is not an integer.

    >>> mg.roll(mg.constant([1, 2, 3, 4]), 1).eval()
    array([4, 1, 2, 3], dtype=int32)
    """
    node = as_node(a)
    call = Call(ROLL, (node,))
    if axis is None:
        return reshape(_rolled(call, ravel(node), shift, 0), node.shape)
    entries = [axis] if isinstance(axis, (int, np.integer)) else list(axis)
    axes = [call.axis(each, node.ndim) for each in entries]
    shifts = list(shift) if isinstance(shift, (list, tuple)) else [shift]
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    elif len(axes) == 1:
        axes = axes * len(shifts)
    if len(shifts) != len(axes):
        raise call.shape_error(f"{len(shifts)} shifts for {len(axes)} axes", need="as many of each")
    for each, by in zip(axes, shifts, strict=True):
        node = _rolled(call, node, by, each)
    return node


def _rolled(call: Call, node: Node, shift: Any, axis: int) -> Node:
    extent = node.shape[axis]
    if isinstance(extent, int) and not extent:
        return node
    if isinstance(shift, (int, np.integer)) and isinstance(extent, int):
        by = int(shift) % extent
        if not by:
            return node
        return concatenate(
            [cut(node, axis, extent - by, by), cut(node, axis, 0, extent - by)], axis
        )
    amount = as_node(shift)
    if amount.dtype.kind not in "iu" or amount.ndim:
        raise call.dtype_error(f"a shift {amount.type}", need="integers without axes")
    positions = IOTA(shape=(extent,), axis=0, dtype=INT64)
    return take(node, remainder(subtract(positions, cast(amount, INT64)), size_of(extent)), axis)


@documented
def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Node:
    """Turn by a right angle in the plane of two axes, from the first to the second.

    m: Node or array of at least two axes.
    k: How many times.
    axes: The two axes.
    returns (Node):
    raises ShapeError: If the axes are not two different ones.

    >>> mg.rot90(mg.constant([[1, 2], [3, 4]])).eval()
    array([[2, 4],
           [1, 3]], dtype=int32)
    """
    node = as_node(m)
    call = Call(ROT90, (node,))
    plane = axes_of(call, axes, node.ndim, "axes")
    if len(plane) != 2:
        raise call.shape_error(f"axes={tuple(axes)} are not two", need="two axes")
    first, second = plane
    turns = call.whole(k, "k") % 4
    if turns == 0:
        return node
    if turns == 2:
        return flip(flip(node, first), second)
    order = list(range(node.ndim))
    order[first], order[second] = second, first
    if turns == 1:
        return transpose(flip(node, second), order)
    return flip(transpose(node, order), second)


@documented
def flipud(m: Any) -> Node:
    """Reverse the order of the rows: `flip` along the first axis.

    m: Node or array with at least one axis.
    returns (Node):

    >>> mg.flipud(mg.constant([[1, 2], [3, 4]])).eval()
    array([[3, 4],
           [1, 2]], dtype=int32)
    """
    return flip(m, 0)


@documented
def fliplr(m: Any) -> Node:
    """Reverse the order of the columns: `flip` along the second axis.

    m: Node or array with at least two axes.
    returns (Node):

    >>> mg.fliplr(mg.constant([[1, 2], [3, 4]])).eval()
    array([[2, 1],
           [4, 3]], dtype=int32)
    """
    return flip(m, 1)


@documented
def sliding_window_view(
    x: Any, window_shape: int | Sequence[int], axis: int | Sequence[int] | None = None
) -> Node:
    """Return every window of a size along axes.

    In NumPy this is a view; here the windows' elements are gathered.

    x: Node or array.
    window_shape: Extents of a window.
    axis: The axis of each extent; all axes unless said.
    returns: The axes of `x`, shorter by the window less 1, then those of the window.
    raises ShapeError: If there are not as many extents as axes, or a window is longer than its
        axis.

    >>> mg.sliding_window_view(mg.constant([1, 2, 3, 4]), 3).eval()
    array([[1, 2, 3],
           [2, 3, 4]], dtype=int32)
    """
    node = as_node(x)
    call = Call(SLIDING_WINDOW_VIEW, (node,))
    windows = [window_shape] if _is_extent(window_shape) else list(window_shape)  # type: ignore[arg-type]
    if axis is None:
        axes = list(range(node.ndim))
    else:
        entries = [axis] if isinstance(axis, (int, np.integer)) else list(axis)
        axes = [call.axis(each, node.ndim) for each in entries]
    if len(axes) != len(windows):
        raise call.shape_error(
            f"{len(windows)} extents of a window for {len(axes)} axes", need="as many of each"
        )
    ndim = node.ndim
    for each, window in zip(axes, dims.parse_shape(windows), strict=True):
        extent = node.shape[each]
        if not dims.require(extent, ">=", window, []) or window == 0:
            raise call.shape_error(
                f"a window of {window} along axis {each} of extent {extent}",
                need=f"an extent from 1 to {extent}",
            )
        count = extent - window + 1
        starts = IOTA(shape=(count, 1), axis=0, dtype=INT64)
        inside = IOTA(shape=(1, window), axis=1, dtype=INT64)
        view = take(node, add(starts, inside), each)
        # The window's axis goes to the end, after those of other windows.
        order = [a for a in range(view.ndim) if a != each + 1]
        node = transpose(view, [*order, each + 1])
    assert node.ndim == ndim + len(axes)
    return node


_record = partial(namesake, Kind.LAYOUT)

TILE = _record(
    tile,
    "A whole array repeated along its axes.",
    [
        Sample((MATRIX,), {"reps": 2}),
        Sample((MATRIX,), {"reps": (3, 1, 2)}),
        Sample((MATRIX[0],), {"reps": (0, 2)}),
        Sample((np.float64(2.0),), {"reps": 3}),
    ],
    [((MATRIX,), ShapeError, "-1 in shape (-1,) is negative", {"reps": -1})],
)
REPEAT = _record(
    repeat,
    "Each element repeated along an axis.",
    [
        Sample((MATRIX,), {"repeats": 2}),
        Sample((CUBE,), {"repeats": 3, "axis": 1}),
        Sample((MATRIX,), {"repeats": np.array([2, 0, 1]), "axis": 1}),
        Sample((MATRIX, np.array([0, 2])), {"axis": 0, "total_repeat_length": 2}),
        Sample((np.float64(3.0),), {"repeats": 2}),
    ],
    [
        (
            (MATRIX, np.array([1, 2, 3])),
            ShapeError,
            "repeat: the sum of the repeats is known only when it runs",
            {"axis": 1},
        ),
        (
            (MATRIX,),
            ShapeError,
            "repeat: numbers of repeats and of elements differ: 2 and 3",
            {"repeats": [1, 2], "axis": 1},
        ),
        (
            (MATRIX,),
            ShapeError,
            "repeat: repeats has the negative number -1",
            {"repeats": [1, -1], "axis": 0},
        ),
        ((MATRIX,), DTypeError, "repeat: repeats of dtype float32", {"repeats": [0.5], "axis": 0}),
    ],
    reference=lambda a, repeats, axis=None, total_repeat_length=None: np.repeat(a, repeats, axis),
)
ROLL = _record(
    roll,
    "Elements moved along axes, around the ends.",
    [
        Sample((MATRIX,), {"shift": 2}),
        Sample((CUBE,), {"shift": (1, -5), "axis": (0, 2)}),
        Sample((MATRIX, np.array(-1)), {"axis": 1}),
        Sample((np.zeros((2, 0)),), {"shift": 1, "axis": 1}),
    ],
    [
        (
            (CUBE,),
            ShapeError,
            "roll: 3 shifts for 2 axes",
            {"shift": (1, 2, 3), "axis": (0, 1)},
        ),
        ((MATRIX,), DTypeError, "roll: a shift float32[]", {"shift": 0.5, "axis": 0}),
    ],
    reference=lambda a, shift, axis=None: np.roll(a, shift, axis),
)
ROT90 = _record(
    rot90,
    "Turned by right angles in the plane of two axes.",
    [
        *[Sample((MATRIX,), {"k": k}) for k in (0, 1, 2, 3)],
        Sample((CUBE,), {"k": -1, "axes": (2, 0)}),
    ],
    [((MATRIX,), ShapeError, "rot90: axes=(0,) are not two", {"axes": (0,)})],
)
FLIPUD = _record(
    flipud,
    "The rows in reverse order.",
    [Sample((MATRIX,)), Sample((MATRIX[0],))],
)
FLIPLR = _record(
    fliplr,
    "The columns in reverse order.",
    [Sample((MATRIX,)), Sample((CUBE,))],
    [((MATRIX[0],), ShapeError, "flip: axis=1 is out of range for 1 axes")],
)
SLIDING_WINDOW_VIEW = _record(
    sliding_window_view,
    "Every window of a size along axes.",
    [
        Sample((MATRIX,), {"window_shape": (2, 2)}),
        Sample((CUBE,), {"window_shape": 3, "axis": 2}),
        Sample((CUBE,), {"window_shape": (2, 2), "axis": (2, 2)}),
    ],
    [
        (
            (MATRIX,),
            ShapeError,
            "sliding_window_view: 1 extents of a window for 2 axes",
            {"window_shape": 2},
        ),
        (
            (MATRIX,),
            ShapeError,
            "sliding_window_view: a window of 4 along axis 1 of extent 3",
            {"window_shape": 4, "axis": 1},
        ),
    ],
    reference=np.lib.stride_tricks.sliding_window_view,
)

RECORDS = (TILE, REPEAT, ROLL, ROT90, FLIPUD, FLIPLR, SLIDING_WINDOW_VIEW)
