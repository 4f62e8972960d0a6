"""Read elements by a subscript: ``x[key]``, made of slices, reshapes and gathers."""

from __future__ import annotations

import builtins
from typing import Any, NamedTuple

import numpy as np

from ...dtypes import is_bool, is_integer
from ...errors import DTypeError, ShapeError
from ...ir import dims
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kind, Sample, Tests
from ...ir.types import Extent, Shape
from ..convert import as_node
from ..leaf import CONSTANT, constant, holds_node, input
from ..shape.arrange import moveaxis, reshape
from ..shape.axes import CUBE, MATRIX
from ..shape.slicing import SLICE
from .gathering import check_range, flat_positions, take


def _bounds(call: Call, key: builtins.slice) -> tuple[Extent | None, Extent | None, int]:
    for bound in (key.start, key.stop, key.step):
        if bound is not None and not isinstance(bound, (int, np.integer, Dim)):
            raise call.dtype_error(
                f"a slice bound is {type(bound).__name__}",
                need="ints and Dims: the extent of the result follows from them",
                hint="mg.take(x, start + mg.arange(count)) for a start that is computed",
            )
    if isinstance(key.step, Dim):
        raise call.dtype_error(f"the step {key.step} is a Dim", need="an int")
    start, stop = (int(b) if isinstance(b, np.integer) else b for b in (key.start, key.stop))
    return start, stop, 1 if key.step is None else int(key.step)


def _sliced(call: Call, extent: Extent, key: builtins.slice) -> tuple[Extent, int, Extent]:
    """Return first position, step and number of elements that a slice takes of an axis."""
    start, stop, step = _bounds(call, key)
    if not any(isinstance(v, Dim) for v in (extent, start, stop)) and step:
        positions = range(*builtins.slice(start, stop, step).indices(extent))
        return positions.start, step, len(positions)
    needs: list[dims.Constraint] = []
    count = dims.slice_extent(extent, start, stop, step, needs)
    return _first(extent, start, step, needs), step, count


def _first(extent: Extent, start: Extent | None, step: int, needs: list[dims.Constraint]) -> Extent:
    """Return where a slice begins, from the front, given what its extent already requires."""
    highest = extent if step > 0 else extent - 1
    if start is None:
        return 0 if step > 0 else highest
    if dims.upper(start) < 0:
        position = extent + start
        return dims.maximum(position, 0 if step > 0 else -1)
    if any(need.left == extent and dims.lower(need.right - start) >= 0 for need in needs):
        return dims.minimum(start, highest) if step < 0 else start
    return dims.minimum(start, highest)


def _position(call: Call, axis: int, extent: Extent, at: Extent) -> Extent:
    """Return an integer subscript counted from the front, refused where it cannot be right."""
    position = extent + at if dims.upper(at) < 0 else at
    inside = dims.require(position, ">=", 0, []) and dims.require(extent - 1, ">=", position, [])
    if not inside:
        raise call.shape_error(
            f"{at} is out of range for axis {axis} of extent {extent}",
            need=f"a position in [-{extent}, {extent})" if extent != 0 else "an axis with elements",
        )
    return position


def known_array(value: Any) -> np.ndarray | None:
    """Return the array of a constant, a list or an array; None for a computed node."""
    if isinstance(value, Node):
        array: np.ndarray | None = value.attrs["value"] if value.op is CONSTANT else None
        return array
    if isinstance(value, (list, tuple)) and holds_node(value):
        return None
    return constant(value).attrs["value"]  # type: ignore[no-any-return]


def known_mask(entry: Any) -> np.ndarray | None:
    """Return an entry of a subscript as an array of bools, where it is a mask that is known."""
    if isinstance(entry, np.ndarray) and entry.dtype == bool:
        return entry
    if isinstance(entry, (bool, np.bool_)):
        return np.asarray(entry)
    if (isinstance(entry, list) and entry) or isinstance(entry, Node):
        array = known_array(entry)
        return array if array is not None and array.dtype == bool else None
    return None


def positions_of_masks(call: Call, node: Node, key: Any) -> tuple[Node, Any]:
    """Put the positions where known masks hold in their places in a subscript, as NumPy does.

    A mask of several axes becomes an array of positions for each of them, a mask without axes an
    array for a new axis of extent 1. The operand is returned with that axis, and with the extents
    of the masks.
    """
    entries = list(key) if isinstance(key, tuple) else [key]
    masks = [known_mask(entry) for entry in entries]
    if all(mask is None for mask in masks):
        return node, key
    axis_counts = [
        mask.ndim if mask is not None else int(entry is not None and entry is not Ellipsis)
        for entry, mask in zip(entries, masks, strict=True)
    ]
    total = builtins.sum(axis_counts)
    if total > node.ndim:
        raise call.shape_error(f"subscripts of {total} axes for {node.ndim} axes")
    shape: list[Extent] = []
    left = list(node.shape)
    subscript: list[Any] = []
    for entry, mask, count in zip(entries, masks, axis_counts, strict=True):
        if mask is None:
            subscript.append(entry)
            count = node.ndim - total if entry is Ellipsis else count
            shape += left[:count]
        elif not count:
            subscript.append(np.zeros(int(mask), np.int64))
            shape.append(1)
        else:
            subscript += np.nonzero(mask)
            shape += [
                call.unify(extent, of_mask, "extents of array and mask")
                for extent, of_mask in zip(left, mask.shape, strict=False)
            ]
        left = left[count:]
    return reshape(node, (*shape, *left)), tuple(subscript)


def _array_key(call: Call, entry: Any) -> Node | None:
    """Return an array subscript as an integer node, or None where `entry` is none."""
    if isinstance(entry, (bool, np.bool_)):
        node = as_node(bool(entry))
    elif isinstance(entry, (Node, np.ndarray, list, tuple, range)):
        listed = list(entry) if isinstance(entry, (tuple, range)) else entry
        none = isinstance(listed, list) and not listed  # an array of none is one of floats
        node = as_node(np.zeros(0, np.int64) if none else listed)
    else:
        return None
    if is_bool(node.dtype):
        raise call.shape_error(
            "a mask selects a number of elements that is known only when it runs",
            need="size=, the number of elements of the result",
            hint="mg.where(mask, x, 0) keeps the shape; mg.boolean_index(x, mask, size=n) takes up "
            "to n elements; mg.take(x, positions) for known positions",
        )
    if not is_integer(node.dtype):
        raise call.dtype_error(f"a subscript of dtype {node.dtype.name}", need="an integer dtype")
    return node


def _expanded(call: Call, key: Any, ndim: int) -> tuple[list[Any], int | None]:
    """Return a subscript as one entry per axis (and per None), and where an Ellipsis stood."""
    entries = list(key) if isinstance(key, tuple) else [key]
    dots = [i for i, e in enumerate(entries) if e is Ellipsis]
    if len(dots) > 1:
        raise call.shape_error("two Ellipses in one subscript", need="at most one")
    count = sum(e is not None and e is not Ellipsis for e in entries)
    if count > ndim:
        raise call.shape_error(f"{count} subscripts for {ndim} axes", need=f"at most {ndim}")
    rest = [builtins.slice(None)] * (ndim - count)
    at = dots[0] if dots else len(entries)
    return [*entries[:at], *rest, *entries[at + 1 :]], dots[0] if dots else None


class Selection(NamedTuple):
    """What a subscript selects: a cut along every axis, then elements at computed positions.

    starts, steps, counts: The cut: first position, distance and number along every axis.
    shape: Of the cut elements, without the axes of ints and with those of None.
    arrays: Axes of that shape with the integer nodes that subscript them.
    together: Whether nothing stands between the ints and arrays of the key. The axes of the arrays
        then take the place of the first; else they stand in front, as in NumPy.
    """

    starts: Shape
    steps: tuple[int, ...]
    counts: Shape
    shape: Shape
    arrays: tuple[tuple[int, Node], ...]
    together: bool


def selection(call: Call, node: Node, key: Any) -> Selection:
    """Read a subscript."""
    starts: list[Extent] = []
    steps: list[int] = []
    counts: list[Extent] = []
    shape: list[Extent] = []
    start: Extent
    count: Extent
    arrays: list[tuple[int, Node]] = []
    advanced: list[int] = []  # where ints and arrays stand in the key
    entries, dots = _expanded(call, key, node.ndim)
    for place, entry in enumerate(entries):
        if entry is None:
            shape.append(1)
            continue
        axis = len(starts)
        extent = node.shape[axis]
        positions = _array_key(call, entry)
        if positions is not None:
            arrays.append((len(shape), positions))
            advanced.append(place)
            start, step, count = 0, 1, extent
        elif isinstance(entry, builtins.slice):
            start, step, count = _sliced(call, extent, entry)
        elif isinstance(entry, (int, np.integer, Dim)):
            at = int(entry) if isinstance(entry, np.integer) else entry
            start, step, count = _position(call, axis, extent, at), 1, 1
            advanced.append(place)
            starts.append(start)
            steps.append(step)
            counts.append(count)
            continue
        else:
            raise call.dtype_error(
                f"a subscript is {type(entry).__name__}",
                need="ints, slices, Ellipsis, None, or arrays of integers",
            )
        starts.append(start)
        steps.append(step)
        counts.append(count)
        shape.append(count)
    together = not advanced or advanced[-1] - advanced[0] == len(advanced) - 1
    if dots is not None and advanced and advanced[0] < dots <= advanced[-1]:
        together = False  # also where the Ellipsis stands for no axis
    return Selection(
        tuple(starts), tuple(steps), tuple(counts), tuple(shape), tuple(arrays), together
    )


def cut_out(node: Node, region: Selection) -> Node:
    """Return the elements that the slices and ints of a subscript select."""
    whole = all(isinstance(s, int) and s == 0 for s in region.starts) and set(region.steps) <= {1}
    if not whole or region.counts != node.shape:
        node = SLICE(node, starts=region.starts, steps=region.steps, shape=region.counts)
    return reshape(node, region.shape)


@documented
def index(x: Any, key: Any, mode: str = "clip") -> Node:
    """Return ``x[key]``.

    x: Node or array.
    key: Ints, Dims, slices (with steps, negative too), Ellipsis, None and arrays of integers
        (nodes, too), as in NumPy. Several arrays broadcast against each other; their axes stand
        where the first array stood, or in front where slices, None or Ellipsis stand between. A
        mask whose values are known, an array, a list or a constant of bools, stands for the
        positions where it holds.
    mode: What a position in an array means that lies outside: see `take`.
    returns: Extents of slices of symbolic axes are exact: ``x[1:]`` has ``max(n - 1, 0)``.
    raises ShapeError: If there are too many subscripts, a position is out of range, or a mask is
        computed: the extent of its result is known only when it runs.
    raises DTypeError: If a subscript is neither.

    >>> x = mg.input("x", ("n", 6))
    >>> x[1:, ::-2].shape, x[0, None, :4].shape
    ((max(n - 1, 0), 3), (1, 4))
    >>> i, j = mg.constant([[0], [1]]), mg.constant([2, 4])
    >>> x[i, j].shape
    (2, 2)
    >>> x[:, [True, False, False, False, False, True]].shape
    (n, 2)
    """
    node = as_node(x)
    call = Call(INDEX, (node,))
    node, key = positions_of_masks(call, node, key)
    picked = selection(call, node, key)
    node = cut_out(node, picked)
    return node if not picked.arrays else _gathered(call, node, picked, mode)


def _gathered(call: Call, node: Node, selected: Selection, mode: str) -> Node:
    axes = [axis for axis, _ in selected.arrays]
    positions = [each for _, each in selected.arrays]
    axis, count = axes[0], len(axes)
    extents = [node.shape[each] for each in axes]
    for each, extent in zip(positions, extents, strict=True):
        check_range(call, each, axes[0], extent, mode)
    if count == 1:
        result = take(node, positions[0], axis, mode)
    else:
        call.broadcast(*[each.shape for each in positions])
        if axes != list(range(axis, axis + count)):
            node, axis = moveaxis(node, axes, range(count)), 0
        lines = (*node.shape[:axis], dims.size(tuple(extents)), *node.shape[axis + count :])
        result = take(reshape(node, lines), flat_positions(extents, positions, mode), axis)
    new = result.ndim - node.ndim + count
    if selected.together or not new:
        return result
    return moveaxis(result, tuple(range(axis, axis + new)), tuple(range(new)))


INDEX = Composite(
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    function=index,
    tests=Tests(
        samples=lambda: [
            Sample(
                (CUBE,), {"key": (1, builtins.slice(None, None, -2), None, builtins.slice(1, 3))}
            ),
            Sample((CUBE,), {"key": (Ellipsis, builtins.slice(-1, 0, -2))}),
            Sample((CUBE,), {"key": (0, builtins.slice(1, None), np.array([[3, 0], [-1, 3]]))}),
            Sample(
                (CUBE,), {"key": (np.array([[0], [1]]), builtins.slice(1, 3), np.array([3, -1, 0]))}
            ),
            Sample((CUBE,), {"key": (builtins.slice(None), np.array([2, -3]), np.array(1))}),
            Sample((CUBE,), {"key": (np.array([1, -2]), Ellipsis, None, 3)}),
            Sample((CUBE,), {"key": ([1, 0], [0, 2], [[3], [3]])}),
            Sample((CUBE,), {"key": CUBE > 0.0}),
            Sample((CUBE,), {"key": (CUBE[:, :, 0] > 0.0, 1)}),
            Sample((CUBE,), {"key": (0, builtins.slice(1, None), [True, False, True, True])}),
            Sample((CUBE,), {"key": ([True, False], Ellipsis, np.array([2]))}),
            Sample((MATRIX,), {"key": (True, 1)}),
        ],
        bad_samples=lambda: [
            BadSample(
                (MATRIX,),
                ShapeError,
                "index: 5 is out of range for axis 1 of extent 3",
                {"key": (0, 5)},
            ),
            BadSample((MATRIX,), ShapeError, "index: 3 subscripts for 2 axes", {"key": (0, 0, 0)}),
            BadSample(
                (MATRIX,),
                ShapeError,
                "index: a mask selects a number of elements that is known only when it runs",
                {"key": input("mask", MATRIX.shape, "bool")},
            ),
            BadSample((MATRIX,), DTypeError, "index: a subscript is float", {"key": 1.5}),
            BadSample(
                (MATRIX,),
                ShapeError,
                "index: extents 2 and 3 do not broadcast (axis -1)",
                {"key": ([0, 1], [0, 1, 2])},
            ),
        ],
        reference=lambda x, key, mode="raise": x[key],
    ),
    numerics="exact",
)

RECORDS = (INDEX,)
