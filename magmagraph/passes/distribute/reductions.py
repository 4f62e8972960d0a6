"""Reductions over rows of which each rank has its own: each rank's result, joined."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import is_bool
from ...ir.graph import Node
from ...ir.types import Extent
from ...ops.collective.rows import ALLGATHER
from ...ops.convert import cast
from ...ops.elementwise.arithmetic import add, multiply
from ...ops.indexing.gathering import take, take_along_axis
from ...ops.leaf import constant
from ...ops.reduction.primitives import MAX, MIN, PROD
from ...ops.rules.sharding import NotSharded
from ...ops.shape.arrange import reshape
from .layouts import SUM, WHOLE, Layout, Way, parts
from .walk import Walk, again

__all__ = ["REDUCTIONS", "reduced"]

INT64 = np.dtype(np.int64)
Made = tuple[Any, Any]


def reduced(walk: Walk, node: Node) -> Made:
    """Make a reduction again, and join the ranks' results where it goes over their rows."""
    (layout,) = walk.layouts(node)
    axes: tuple[int, ...] = node.attrs["axes"]
    if layout.way is Way.SUM and node.op.sharding == "sum":
        return again(node, (walk.value[node.inputs[0]],)), SUM
    total = again(node, (walk.complete(node.inputs[0]),))
    if layout.way is not Way.PARTS:
        return total, WHOLE
    if layout.axis not in axes:
        return total, parts(layout.axis - sum(a < layout.axis for a in axes), layout.outer)
    if node.op.sharding == "sum":
        return total, SUM
    if node.op.sharding in ("argmax", "argmin"):
        return _best(walk, node, layout), WHOLE
    if node.op.sharding in ("max", "min"):
        return walk.reduced(total, str(node.op.sharding)), WHOLE
    return node.op(_gathered(walk, total), **{**node.attrs, "axes": (0,)}), WHOLE


def _gathered(walk: Walk, value: Node) -> Node:
    """Return the values of all ranks along a new first axis."""
    facts = walk.facts
    if is_bool(value.dtype):
        shared = ALLGATHER(cast(value, np.int32), group=facts.group, size=facts.size)
        return cast(shared, value.dtype)
    return ALLGATHER(value, group=facts.group, size=facts.size)


def _best(walk: Walk, node: Node, layout: Layout) -> Node:
    """Return the position of the best element over all ranks: the first rank's that has it."""
    axes = node.attrs["axes"]
    if axes != (layout.axis,) or layout.outer != 1:
        raise NotSharded("positions over the dimension and other axes together")
    x = walk.complete(node.inputs[0])
    place = node.op(x, **node.attrs)
    extremum = MAX if node.op.sharding == "argmax" else MIN
    value = extremum(x, axes=axes)
    times = walk.sharded.times(x.shape[layout.axis])
    assert times is not None
    first = multiply(walk.offset(), _number(walk, times))
    winner = node.op(_gathered(walk, value), axes=(0,))
    positions = _gathered(walk, add(place, first))
    chosen = take_along_axis(positions, reshape(winner, (1, *node.shape)), 0)
    return reshape(chosen, node.shape)


def _others(walk: Walk, node: Node) -> Made:
    """Multiply the others of a rank's own rows by the products of the other ranks."""
    axes: tuple[int, ...] = node.attrs["axes"]
    layouts = walk.layouts(node)
    if all(layout.way is not Way.PARTS for layout in layouts):
        return walk.of_sums(node)
    x, *directions = map(walk.complete, node.inputs)
    layout = layouts[0]
    own = again(node, (x, *directions))
    if layout.way is not Way.PARTS or any(layout.axis != other.axis for other in layouts):
        raise NotSharded("its operands are cut along different axes")
    if layout.axis in axes:
        if directions:
            raise NotSharded("it is a derivative of the gradient of a product of rows")
        products = _gathered(walk, PROD(x, axes=axes))
        rest = take(node.op(products, axes=(0,)), walk.index(), axis=0)
        kept = tuple(1 if a in axes else extent for a, extent in enumerate(x.shape))
        own = multiply(own, reshape(rest, kept))
    return own, parts(layout.axis, layout.outer)


def _number(walk: Walk, value: Extent) -> Node:
    return constant(value, dtype=INT64) if isinstance(value, int) else walk.whole_extent(value)


REDUCTIONS = {
    "sum": reduced,
    "max": reduced,
    "min": reduced,
    "argmax": reduced,
    "argmin": reduced,
    "others": _others,
}
