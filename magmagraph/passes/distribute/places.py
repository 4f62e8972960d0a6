"""Distribute operations that depend on positions, such as gathers, on a rank's own rows.

A position along the sharded dimension is one of the whole program's: a rank adds how many rows the
ranks before it have. Where rows are read by position from an array that is itself in parts, the
position has to be one of the rank's own rows. That is so where it is the row's own number times
the elements of a row, plus a number below these, as `take_along_axis` and its kind compute it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir import dims
from ...ir.graph import Node
from ...ir.op import Kind
from ...ir.types import Extent
from ...ops.control.loop import LOOP_STEP
from ...ops.convert import CAST, cast
from ...ops.elementwise.arithmetic import ADD, MULTIPLY, REMAINDER, add, multiply
from ...ops.elementwise.comparison import MAXIMUM, MINIMUM
from ...ops.leaf import constant
from ...ops.rules.sharding import NotSharded
from .layouts import SUM, Way, parts
from .walk import Walk, again

__all__ = ["PLACES"]

INT64 = np.dtype(np.int64)
Made = tuple[Any, Any]
Rows = tuple[int, int, int]  # elements of a row, and the least and largest number within it


def _one_axis(walk: Walk, node: Node) -> int:
    axes = walk.sharded.axes(node.type)
    if len(axes) != 1 or walk.sharded.times(node.shape[axes[0]]) is None:
        raise NotSharded("a rank does not know which rows are its own")
    return axes[0]


def _scaled(walk: Walk, times: Extent) -> Node:
    """Return the number of elements before a rank's own, with so many per row."""
    offset = walk.offset()
    if isinstance(times, int):
        return offset if times == 1 else multiply(offset, constant(times, dtype=INT64))
    return multiply(offset, walk.whole_extent(times))


def _positions(walk: Walk, node: Node) -> Made:
    """Count along an axis: from the rank's first row, where it is the dimension's."""
    axis = _one_axis(walk, node)
    if node.attrs["axis"] != axis:
        return node, parts(axis, None)
    times = walk.sharded.times(node.shape[axis])
    assert times is not None
    return add(node, cast(_scaled(walk, times), node.dtype)), parts(axis)


def _counted(walk: Walk, node: Node) -> Made:
    """Draw bits: those of the elements that the rank has, of the whole array."""
    axis = _one_axis(walk, node)
    before = node.shape[:axis]
    if any(not (isinstance(extent, int) and extent == 1) for extent in before):
        return _own_stream(walk, node), parts(axis, None)
    times = walk.sharded.times(dims.size(node.shape))
    assert times is not None
    step, *arrays = map(walk.complete, node.inputs)
    first = _scaled(walk, times)
    if arrays:  # the part of an array is cut again, into micro-batches
        first = add(arrays[0], first)
    counted = node.op(step, first, name=node.name, **node.attrs)
    return counted, parts(axis, None)


def _own_stream(walk: Walk, node: Node) -> Node:
    """Draw from a stream of the rank's own: its number is mixed into the step."""
    step, *others = map(walk.complete, node.inputs)
    return again(node, (LOOP_STEP(step, walk.index()), *others))


def _drawn(walk: Walk, node: Node) -> Made:
    if walk.reads_no_rows(node):
        return walk.of_sums(node)
    axis = _one_axis(walk, node)
    for operand, layout in zip(node.inputs[1:], walk.layouts(node)[1:], strict=True):
        place = axis - (node.ndim - operand.ndim)
        cut = layout.axis if layout.way is Way.PARTS else None
        if (cut is None and place >= 0 and operand.shape[place] != 1) or cut not in (None, place):
            raise NotSharded("its parameters are cut along another axis than its result")
    return _own_stream(walk, node), parts(axis, None)


# ---- By position


def _rows(walk: Walk, node: Node) -> Rows | None:
    """Return integers as a scaled row number plus a bounded number, where they have that form."""
    if node.op.kind is Kind.LEAF:
        value = node.attrs.get("value")
        return None if value is None or not value.size else (0, int(value.min()), int(value.max()))
    if node.op.sharding == "positions":
        axis = node.attrs["axis"]
        times = walk.sharded.times(node.shape[axis])
        if walk.sharded.in_extent(node.shape[axis]):
            return (1, 0, 0) if times == 1 else None
        extent = node.shape[axis]
        return (0, 0, extent - 1) if isinstance(extent, int) else None
    if node.op.kind is Kind.LAYOUT and len(node.inputs) == 1 and "value" not in node.attrs:
        return _rows(walk, node.inputs[0])
    if node.op is CAST:
        return _rows(walk, node.inputs[0]) if node.inputs[0].dtype.kind in "iu" else None
    if node.op in (ADD, MULTIPLY, MINIMUM, MAXIMUM, REMAINDER):
        return _combined(node, [_rows(walk, operand) for operand in node.inputs])
    return None


_ANY = (0, -(2**62), 2**62)


def _combined(node: Node, places: Sequence[Rows | None]) -> Rows | None:
    if node.op is ADD:
        if None in places:
            return None
        return tuple(map(sum, zip(*places, strict=True)))  # type: ignore[return-value]
    if node.op is MULTIPLY:
        for one, other in (places, reversed(places)):
            if one is not None and other is not None and other[0] == 0 and other[1] == other[2]:
                factor = other[1]
                low, high = sorted((one[1] * factor, one[2] * factor))
                return one[0] * factor, low, high
        return None
    first, second = (_ANY if place is None else place for place in places)
    if first[0] or second[0]:
        return None
    if node.op is REMAINDER:
        return (0, 0, second[2] - 1) if second[1] > 0 else None
    join = min if node.op is MINIMUM else max
    return 0, join(first[1], second[1]), join(first[2], second[2])


def _own_rows(walk: Walk, indices: Node, extent: Extent) -> Node:
    """Return positions in a distributed array as positions in the rank's part, or refuse."""
    times = walk.sharded.times(extent)
    rows = _rows(walk, indices)
    own = rows is not None and rows[0] == times and 0 <= rows[1] <= rows[2] < rows[0]
    if not own or times is None:
        raise NotSharded(
            "it reads or writes rows by number, which may be those of other ranks",
            "take rows before they are fed; mg.take_along_axis for positions within each row",
        )
    return _counted_here(walk, indices)


def _counted_here(walk: Walk, node: Node) -> Node:
    """Return positions that `_rows` knows with rows counted from the rank's own first one.

    They still are a row's number and a number within it, so that rows can be cut again.
    """
    rows = _rows(walk, node)
    if rows is None or rows[0] == 0:
        return walk.complete(node)
    if not node.inputs:
        return node
    return again(node, tuple(_counted_here(walk, operand) for operand in node.inputs))


def _gather(walk: Walk, node: Node) -> Made:
    if walk.reads_no_rows(node):
        return walk.of_sums(node)
    x, indices = node.inputs
    source, places = walk.layouts(node)
    axis = node.attrs["axis"]
    if source.way is Way.PARTS and source.axis == axis:
        if source.outer != 1 or places.way is not Way.PARTS:
            raise NotSharded("it takes rows by number, which may be those of other ranks")
        own = _own_rows(walk, indices, x.shape[axis])
        gathered = node.op(walk.complete(x), own, name=node.name, **node.attrs)
        return gathered, parts(axis + places.axis, places.outer)
    gathered = again(node, (walk.complete(x), walk.complete(indices)))
    if source.way is Way.PARTS and places.way is Way.PARTS:
        raise NotSharded("it takes from each row for each row, also of other ranks")
    if source.way is Way.PARTS:
        moved = source.axis + (indices.ndim - 1 if source.axis > axis else 0)
        return gathered, parts(moved, source.outer)
    return gathered, parts(axis + places.axis, places.outer)


def _scatter(walk: Walk, node: Node) -> Made:
    if walk.reads_no_rows(node):
        return walk.of_sums(node)
    values, indices = node.inputs
    layout, places = walk.layouts(node)
    axis, extent = node.attrs["axis"], node.attrs["extent"]
    inside = range(axis, axis + indices.ndim)
    scattered = again(node, (walk.complete(values), walk.complete(indices)))
    if layout.way is not Way.PARTS and places.way is not Way.PARTS:
        raise NotSharded("a rank does not know which rows are its own")
    if layout.way is Way.PARTS and layout.axis not in inside:
        if places.way is Way.PARTS or walk.sharded.in_extent(extent):
            raise NotSharded("it writes rows by number, which may be those of other ranks")
        moved = layout.axis - (indices.ndim - 1 if layout.axis > axis else 0)
        return scattered, parts(moved, layout.outer)
    if layout.way is not Way.PARTS or places.way is not Way.PARTS:
        raise NotSharded("one of values and positions has all rows on every rank")
    if (
        layout.axis != axis + places.axis
        or not walk.sharded.joined((layout.outer, places.outer))[0]
    ):
        raise NotSharded("rows of its operands stand in different orders")
    if not walk.sharded.in_extent(extent):
        return scattered, SUM
    own = _own_rows(walk, indices, extent)
    return node.op(walk.complete(values), own, name=node.name, **node.attrs), parts(axis)


def _mapped(walk: Walk, node: Node) -> Made:
    """A body run for each position of an axis: a rank runs it for its own."""
    if walk.reads_no_rows(node):
        return walk.of_sums(node)
    layouts = walk.layouts(node)
    batched = node.attrs["batched"]
    outers = set()
    for layout, along in zip(layouts, batched, strict=True):
        if (layout.way is Way.PARTS) != along or (along and layout.axis != 0):
            raise NotSharded("its body works on all rows together")
        if along:
            outers.add(layout.outer)
    body = node.attrs["body"]
    if walk.sharded.mentioned(body):
        raise NotSharded("its body works on all rows together")
    same, outer = walk.sharded.joined(outers)
    if not same:
        raise NotSharded("rows of its operands stand in different orders")
    mapped = again(node, tuple(map(walk.complete, node.inputs)))
    layout = parts(0, outer)
    return mapped, (layout,) * len(node.type) if isinstance(node.type, tuple) else layout


PLACES: dict[str, Callable[[Walk, Node], Made]] = {
    "positions": _positions,
    "counted": _counted,
    "drawn": _drawn,
    "gather": _gather,
    "scatter": _scatter,
    "mapped": _mapped,
}
