"""Operators that move elements: shapes, pieces, positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.dims import Dim
from ...ir.graph import Node
from ...ir.types import Extent
from ...ops.convert import cast
from ...ops.elementwise.comparison import equal, less, where
from ...ops.indexing.gathering import take, take_along_axis
from ...ops.indexing.iota import INT64, IOTA, arange
from ...ops.indexing.updates import index_update
from ...ops.leaf import constant
from ...ops.shape.arrange import expand_dims, reshape, squeeze, transpose
from ...ops.shape.creation import full
from ...ops.shape.diagonal import tril, triu
from ...ops.shape.joining import broadcast_to, concatenate
from ...ops.shape.padding import pad
from ...ops.shape.tiling import tile
from .operator import Operator, Rule, Value

__all__ = ["SHAPES", "broadcast_extents", "iota"]

_FAR = 1 << 31  # an end of a slice from here on is that of the axis
_MOST = 1 << 24  # elements of a constant that a model asks for


def iota(extent: Extent, axis: int, ndim: int) -> Node:
    """Return positions along an axis, of extent 1 along all others."""
    shape: list[Extent] = [1] * ndim
    shape[axis] = extent
    return IOTA(shape=tuple(shape), axis=axis, dtype=INT64)


def broadcast_extents(op: Operator, x: Sequence[Extent], y: Sequence[Extent]) -> list[Extent]:
    """Return the shape that two shapes broadcast to."""
    count = max(len(x), len(y))
    left = [1] * (count - len(x)) + list(x)
    right = [1] * (count - len(y)) + list(y)
    return [b if isinstance(a, int) and a == 1 else a for a, b in zip(left, right, strict=True)]


def _reshape(op: Operator) -> Node:
    x, shape = op.node(), op.extents(1)
    if not op.get("allowzero", 0):
        shape = [
            x.shape[i] if isinstance(e, int) and e == 0 and i < x.ndim else e
            for i, e in enumerate(shape)
        ]
    return _kept(op, reshape(x, tuple(shape)))


def _kept(op: Operator, result: Node) -> Node:
    """Return a result that carries the element type of the first operand."""
    element = op.build.carried(op.node())
    return result if element is None else op.build.carry(result, element)


def _flatten(op: Operator) -> Node:
    x = op.node()
    axis = op.get("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        raise op.refuse(f"axis {axis} of {x.ndim} axes")
    axis = axis + x.ndim if axis < 0 else axis
    rows: Extent = math.prod(x.shape[:axis])
    columns: Extent = math.prod(x.shape[axis:])
    return reshape(x, (rows, columns))


def _transpose(op: Operator) -> Node:
    x = op.node()
    return _kept(op, transpose(x, op.get("perm", list(range(x.ndim))[::-1])))


def _axes(op: Operator, index: int, ndim: int) -> tuple[int, ...] | None:
    """Return axes, an attribute or an operand, counted from the front."""
    axes = op.get("axes")
    if axes is None and op.has(index):
        axes = op.ints(index, "the number of axes")
    return None if axes is None else tuple(op.counted(axis, ndim) for axis in axes)


def _squeeze(op: Operator) -> Node:
    x = op.node()
    axes = _axes(op, 1, x.ndim)
    return _kept(op, squeeze(x, axes))


def _unsqueeze(op: Operator) -> Node:
    x = op.node()
    count = len(op.get("axes") or op.ints(1, "the number of axes"))
    axes = _axes(op, 1, x.ndim + count)
    assert axes is not None
    return _kept(op, expand_dims(x, axes))


def _concat(op: Operator) -> Node:
    axis = op.axis(op.node().ndim)
    parts = op.nodes
    filled = [part for part in parts if not (part.ndim == 1 and part.shape[0] == 0)]
    return _kept(op, concatenate(filled or parts, axis))


def pieces(x: Node, axis: int, sizes: Sequence[Extent]) -> list[Node]:
    """Return pieces of an array along an axis."""
    start: Extent = 0
    parts = []
    for size in sizes:
        key: list[Any] = [slice(None)] * x.ndim
        key[axis] = slice(start, start + size)
        parts.append(x[tuple(key)])
        start = start + size
    return parts


def sizes_of(op: Operator, extent: Extent, count: int) -> list[Extent]:
    """Return the sizes of so many pieces of which the last may be smaller."""
    size = -(-extent // count)
    return [size] * (count - 1) + [extent - size * (count - 1)]


def _split(op: Operator) -> tuple[Node, ...]:
    x = op.node()
    axis = op.axis(x.ndim)
    if op.has(1):
        sizes = op.extents(1, "the sizes of pieces")
    else:
        count = op.get("num_outputs", op.outputs)
        if count < 1:
            raise op.refuse(f"it makes {count} pieces")
        sizes = sizes_of(op, x.shape[axis], count)
    return tuple(pieces(x, axis, sizes))


def _slice(op: Operator) -> Node:
    x = op.node()
    starts, ends = op.extents(1, "a slice"), op.extents(2, "a slice")
    axes = op.ints(3, "a slice") if op.has(3) else list(range(len(starts)))
    steps = op.ints(4, "a slice") if op.has(4) else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise op.refuse("starts, ends, axes and steps are not equally many")
    key: list[Any] = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise op.refuse("the step of a slice is 0")
        place = op.counted(axis, x.ndim)
        key[place] = slice(*_ends(start, end, step, x.shape[place]), step)
    return _kept(op, x[tuple(key)])


def _ends(start: Extent, end: Extent, step: int, extent: Extent) -> tuple[Any, Any]:
    """Return the ends of a slice as Python has them."""
    first: Any = start
    last: Any = end
    if isinstance(start, int):
        if isinstance(extent, int):
            first = max(start + extent, 0) if start < 0 else min(start, extent)
            first = min(first, extent - 1) if step < 0 else first
            if step < 0 and (start < -extent or extent == 0):
                return 0, 0  # nothing is before the first element
        elif start >= _FAR or start < -_FAR:
            first = None
    if isinstance(end, int):
        before = end < -_FAR or (isinstance(extent, int) and end < -extent)
        if (step > 0 and end >= _FAR) or (step < 0 and before):
            last = None
    elif isinstance(extent, Dim) and str(end) == str(extent) and step > 0:
        last = None
    return first, last


def _gather(op: Operator) -> Node:
    x, at = op.node(0), op.node(1)
    return _kept(op, take(x, at, axis=op.axis(x.ndim)))


def _gather_elements(op: Operator) -> Node:
    x, at = op.node(0), op.node(1)
    axis = op.axis(x.ndim)
    kept: list[Any] = [slice(0, e) for e in at.shape]
    kept[axis] = slice(None)
    return take_along_axis(x[tuple(kept)], at, axis)


def _batch_key(op: Operator, at: Node, batch: int) -> tuple[Node, ...]:
    """Return positions along axes, given as vectors along the last axis of an array."""
    rest = at.ndim - 1
    count = at.shape[-1]
    if not isinstance(count, int):
        raise op.refuse("the number of axes is not known")
    rows = [iota(at.shape[axis], axis, rest) for axis in range(batch)]
    return (*rows, *(at[..., place] for place in range(count)))


def _gather_nd(op: Operator) -> Node:
    x, at = op.node(0), op.node(1)
    return x[_batch_key(op, at, op.get("batch_dims", 0))]


_HOWS = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}


def _how(op: Operator) -> str:
    word = op.get("reduction", "none")
    if word not in _HOWS:
        raise op.refuse(f"reduction={word!r}")
    return _HOWS[word]


def _scatter_nd(op: Operator) -> Node:
    x, at, updates = op.node(0), op.node(1), op.node(2)
    return index_update(x, _batch_key(op, at, 0), updates, how=_how(op))


def _scatter_elements(op: Operator) -> Node:
    x, at, updates = op.node(0), op.node(1), op.node(2)
    axis = op.axis(x.ndim)
    key = tuple(at if a == axis else iota(at.shape[a], a, x.ndim) for a in range(x.ndim))
    return index_update(x, key, updates, how=_how(op))


def _tensor_scatter(op: Operator) -> Node:
    past, update = op.node(0), op.node(1)
    axis = op.axis(past.ndim, -2)
    at = iota(update.shape[axis], axis, past.ndim)
    if op.has(2):
        first: list[Extent] = [update.shape[0], *[1] * (past.ndim - 1)]
        at = at + reshape(op.node(2), first)
    if op.get("mode", "linear") == "circular":
        at = at % op.shape(past.shape[axis])[0]
    key = tuple(at if a == axis else iota(update.shape[a], a, past.ndim) for a in range(past.ndim))
    return index_update(past, key, update)


def _pad(op: Operator) -> Node:
    x = op.node()
    widths = op.ints(1, "the width of padding")
    axes = (
        [op.counted(a, x.ndim) for a in op.ints(3, "padding")] if op.has(3) else range(x.ndim)
    )
    axes = list(axes)
    if len(widths) != 2 * len(axes):
        raise op.refuse(f"{len(widths)} widths of padding for {len(axes)} axes")
    pairs = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes):
        pairs[axis] = (widths[i], widths[i + len(axes)])
    key = tuple(
        slice(-a if a < 0 else None, b if b < 0 else None) for a, b in pairs
    )
    if any(min(pair) < 0 for pair in pairs):
        x = x[key]
    pairs = [(max(a, 0), max(b, 0)) for a, b in pairs]
    mode = op.get("mode", "constant")
    if mode == "constant":
        value: Any = 0
        if op.has(2):
            fill = op.known(2)
            if fill is None:
                raise op.depends(op.node(2), "the value of padding")
            value = fill.reshape(-1)[0].item() if fill.size else 0
        return pad(x, pairs, constant_values=value)
    if mode not in ("reflect", "edge", "wrap"):
        raise op.refuse(f"mode={mode!r}")
    return pad(x, pairs, mode)


def _tile(op: Operator) -> Node:
    return tile(op.node(), tuple(op.extents(1)))


def _expand(op: Operator) -> Node:
    x = op.node()
    shape = broadcast_extents(op, x.shape, op.extents(1))
    return _kept(op, broadcast_to(x, tuple(shape)))


def _shape(op: Operator) -> Node:
    x = op.node()
    shape = x.shape[op.get("start", 0) : op.get("end", x.ndim)]
    return op.shape(*shape)


def _size(op: Operator) -> Node:
    return op.shape(math.prod(op.node().shape))[0]


def _filled(op: Operator) -> Node:
    value = op.get("value", np.zeros(1, np.float32))
    shape = tuple(op.extents(0))
    if all(isinstance(e, int) for e in shape) and math.prod(shape) <= 64:
        return op.build.known.add(np.full(shape, value.reshape(-1)[0]))
    return full(shape, constant(value.reshape(-1)[0]))


def _constant(op: Operator) -> Value:
    for name in ("value_float", "value_floats"):
        if name in op.attributes:
            return op.build.known.add(np.asarray(op.attributes[name], np.float32))
    for name in ("value_int", "value_ints"):
        if name in op.attributes:
            return op.build.known.add(np.asarray(op.attributes[name], np.int64))
    for name in ("value_string", "value_strings"):
        if name in op.attributes:
            return np.asarray(op.attributes[name], object)
    if "value" not in op.attributes:
        raise op.refuse("it has no value")
    return op.build.array(op.attributes["value"])


def _range(op: Operator) -> Node:
    what = "the length of the result"
    start, stop, step = (op.number(i, what) for i in range(3))
    dtype = op.node().dtype
    if not any(isinstance(value, Dim) for value in (start, stop, step)):
        if step == 0 or (stop - start) / step > _MOST:
            raise op.refuse(f"numbers from {start} to {stop} in steps of {step}")
        return op.build.known.add(
            (start + np.arange(max(math.ceil((stop - start) / step), 0)) * step).astype(dtype)
        )
    return arange(start, stop, step, dtype=dtype)


def _eye(op: Operator) -> Node:
    x = op.node()
    number = op.get("dtype")
    dtype = x.dtype if number is None else op.dtype(number)
    if x.ndim != 2:
        raise op.refuse(f"an operand of {x.ndim} axes", "2 axes")
    rows, columns = iota(x.shape[0], 0, 2), iota(x.shape[1], 1, 2)
    return cast(equal(rows + op.get("k", 0), columns), dtype)


def _triangle(op: Operator) -> Node:
    x = op.node()
    k = op.ints(1, "the diagonal")[0] if op.has(1) else 0
    return (triu if op.get("upper", 1) else tril)(x, k)


def _depth_to_space(op: Operator) -> Node:
    x, size = op.node(), op.get("blocksize")
    n, c, h, w = x.shape
    if op.get("mode", "DCR") == "DCR":
        parts = reshape(x, (n, size, size, c // size**2, h, w))
        order = (0, 3, 4, 1, 5, 2)
    else:
        parts = reshape(x, (n, c // size**2, size, size, h, w))
        order = (0, 1, 4, 2, 5, 3)
    return reshape(transpose(parts, order), (n, c // size**2, h * size, w * size))


def _space_to_depth(op: Operator) -> Node:
    x, size = op.node(), op.get("blocksize")
    n, c, h, w = x.shape
    parts = reshape(x, (n, c, h // size, size, w // size, size))
    order = (0, 3, 5, 1, 2, 4) if op.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return reshape(transpose(parts, order), (n, c * size**2, h // size, w // size))


def _one_hot(op: Operator) -> Node:
    at, values = cast(op.node(0), "int64"), op.node(2)
    depth = op.extents(1, "the number of classes")[0]
    axis = op.counted(op.get("axis", -1), at.ndim + 1)
    at = where(less(at, 0), at + op.shape(depth)[0], at)
    hot = equal(expand_dims(at, axis), iota(depth, axis, at.ndim + 1))
    return where(hot, values[1], values[0])


def _known_positions(op: Operator, index: int, what: str) -> np.ndarray:
    value = op.array(index, what)
    if value.dtype == object:
        raise op.refuse(f"{what} depends on sizes that a call brings")
    return value


def _nonzero(op: Operator) -> Node:
    value = _known_positions(op, 0, "the shape of the result")
    return op.build.known.add(np.array(np.nonzero(value), np.int64).reshape(value.ndim, -1))


def _compress(op: Operator) -> Node:
    x = op.node()
    at = np.flatnonzero(_known_positions(op, 1, "the shape of the result"))
    if "axis" not in op.attributes:
        return take(reshape(x, (-1,)), at, axis=0)
    return take(x, at, axis=op.axis(x.ndim))


def _unique(op: Operator) -> tuple[Node, ...]:
    value = _known_positions(op, 0, "the shape of the result")
    axis = op.get("axis")
    values, first, inverse, counts = np.unique(value, True, True, True, axis=axis)
    if not op.get("sorted", 1):
        order = np.argsort(first, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], place[inverse]
    wide = [np.asarray(v, np.int64).reshape(-1) for v in (first, inverse, counts)]
    return tuple(op.build.known.add(array) for array in (values, *wide))


def _reverse_sequence(op: Operator) -> Node:
    x, lengths = op.node(0), op.node(1)
    time, batch = op.get("time_axis", 0), op.get("batch_axis", 1)
    at = iota(x.shape[time], time, x.ndim)
    shape: list[Extent] = [1] * x.ndim
    shape[batch] = x.shape[batch]
    last = reshape(lengths, tuple(shape))
    at = where(less(at, last), last - 1 - at, at)
    key = tuple(
        at if a == time else iota(x.shape[a], a, x.ndim) for a in range(x.ndim)
    )
    return x[key]


SHAPES: dict[str, Rule] = {
    "Compress": _compress,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "EyeLike": _eye,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonZero": _nonzero,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "ReverseSequence": _reverse_sequence,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "TensorScatter": _tensor_scatter,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _triangle,
    "Unique": _unique,
    "Unsqueeze": _unsqueeze,
}
