"""Updates of single elements as values: ``x.at[key].set(v)`` is a new node, `x` stays as it is."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtypes import iinfo, is_bool, is_complex, is_float, is_inexact
from ...errors import DTypeError, ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kernel, Kind, Op, Sample, Tests
from ...ir.types import Shape, Type
from ..convert import as_node, cast
from ..elementwise.arithmetic import add, divide, multiply, subtract
from ..elementwise.comparison import equal, maximum, minimum, where
from ..leaf import constant
from ..rules import onnx_forms
from ..rules.batching import all_batched
from ..shape.arrange import moveaxis, ravel, reshape
from ..shape.axes import CUBE, MATRIX
from ..shape.joining import broadcast_to
from ..shape.slicing import PLACE
from .gathering import (
    SCATTER_ADD,
    TAKE,
    check_indices,
    check_range,
    counted,
    flat_along,
    flat_positions,
    refuse_empty,
    settled,
    size_of,
    update_scratch,
    wide,
)
from .iota import INT64, IOTA
from .keys import Selection, cut_out, known_mask, positions_of_masks, selection
from .ordered import put_in_order

__all__ = ["index_update", "put_along_axis"]

HOWS = ("set", "add", "multiply", "min", "max")


# Updates of rows, at positions along the first axis.


def _update_type(call: Call, x: Type, indices: Type, values: Type, *, how: str, mode: str) -> Type:
    check_indices(call, indices, mode)
    if values.dtype != x.dtype:
        raise call.dtype_error(f"values of dtype {values.dtype.name} for {x.dtype.name}")
    if how in ("min", "max") and is_complex(x.dtype):
        raise call.dtype_error(
            f"how={how!r} of dtype {x.dtype.name}", need="an order: real numbers"
        )
    expected_shape = (*indices.shape, *x.shape[1:])
    if len(expected_shape) != values.ndim:
        raise call.shape_error(f"values of {values.ndim} axes", need=f"{len(expected_shape)} axes")
    for left, right in zip(values.shape, expected_shape, strict=True):
        call.unify(left, right, "extents of values and positions")
    return x


_AT = {"add": "add", "multiply": "multiply", "min": "minimum", "max": "maximum"}


def _update(xp: Any, x: Any, indices: Any, values: Any, *, how: str, mode: str) -> Any:
    result = xp.array(x, dtype=wide(x.dtype))
    _update_into(xp, result, result, indices, values, how=how, mode=mode)
    return result


def _update_into(
    xp: Any, target: Any, x: Any, indices: Any, values: Any, *, how: str, mode: str,
    workspace: Any = None,
) -> None:  # fmt: skip
    if target.dtype != wide(target.dtype):
        target[...] = _update(xp, x, indices, values, how=how, mode=mode)
        return
    if target is not x:
        target[...] = x
    if not indices.size:
        return
    refuse_empty(x, indices, 0, "index_update", "written")
    at = settled(xp, indices, x.shape[0], mode).reshape(-1)
    rows = values.reshape(at.size, *x.shape[1:]).astype(target.dtype, copy=False)
    if how in ("add", "multiply"):
        getattr(xp, _AT[how]).at(target, at, rows)
    elif xp is not np:
        put_in_order(xp, target, at, rows, how)
    elif how == "set":
        target[at] = rows  # of equal positions the last one stays
    else:
        getattr(np, _AT[how]).at(target, at, rows)


def _read(x: Node, node: Node) -> Node:
    """Return the rows of an array at the positions of an update."""
    return TAKE(x, node.inputs[1], axis=0, mode=node.attrs["mode"])


def _summed(rows: Node, node: Node) -> Node:
    """Return rows added up at the positions of an update."""
    x, indices, _ = node.inputs
    return SCATTER_ADD(rows, indices, axis=0, extent=x.shape[0], mode=node.attrs["mode"])


def _set_gradient(node: Node, cotangent: Node) -> tuple[Node, None, Node]:
    x, indices, values = node.inputs
    mode = node.attrs["mode"]
    nothing = broadcast_to(constant(0, dtype=x.dtype), values.shape)
    by_x = UPDATE(cotangent, indices, nothing, how="set", mode=mode)
    # Of equal positions the last one stays, so only it has a gradient.
    order = reshape(IOTA(shape=(indices.size,), axis=0, dtype=INT64), indices.shape)
    last = UPDATE(
        broadcast_to(constant(0, dtype=INT64), x.shape[:1]), indices, order, how="set", mode=mode
    )
    stays = equal(_read(last, node), order)
    stays = reshape(stays, (*indices.shape, *[1] * (x.ndim - 1)))
    return by_x, None, where(stays, _read(cotangent, node), 0)


def _multiply_gradient(node: Node, cotangent: Node) -> tuple[Node, None, Node]:
    x, indices, values = node.inputs
    one = broadcast_to(constant(1, dtype=x.dtype), x.shape)
    zero = equal(values, 0)
    # The product of the other values at a position: nothing is divided by zero.
    finite = UPDATE(one, indices, where(zero, 1, values), how="multiply", mode=node.attrs["mode"])
    zeros = _read(_summed(cast(zero, x.dtype), node), node)
    others = divide(_read(finite, node), where(zero, 1, values))
    others = where(equal(subtract(zeros, cast(zero, x.dtype)), 0), others, 0)
    factor = UPDATE(one, indices, values, how="multiply", mode=node.attrs["mode"])
    by_values = multiply(_read(multiply(cotangent, x), node), others)
    return multiply(cotangent, factor), None, by_values


def _extremum_gradient(node: Node, cotangent: Node) -> tuple[Node, None, Node]:
    x, _, values = node.inputs
    own_ties = cast(equal(x, node), x.dtype)
    value_ties = cast(equal(values, _read(node, node)), x.dtype)
    share = divide(cotangent, add(own_ties, _summed(value_ties, node)))
    is_nan = equal(add(own_ties, _summed(value_ties, node)), 0)  # no element equals the result
    share = where(is_nan, 0, share)
    return multiply(share, own_ties), None, multiply(_read(share, node), value_ties)


def _update_gradient(node: Node, cotangent: Node) -> tuple[Node, None, Node]:
    how = node.attrs["how"]
    if how == "set":
        return _set_gradient(node, cotangent)
    if how == "multiply":
        return _multiply_gradient(node, cotangent)
    if how == "add":
        return cotangent, None, _read(cotangent, node)
    return _extremum_gradient(node, cotangent)


def _map_update(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    """Concatenate the rows of the mapped axis, so that one update serves all."""
    x, indices, values = all_batched(operands, batched)
    rows, extent = x.shape[:2]
    line = (rows, *[1] * (indices.ndim - 1))
    starts = multiply(IOTA(shape=line, axis=0, dtype=INT64), size_of(extent))
    at = add(counted(indices, extent, node.attrs["mode"]), starts)
    flat = reshape(x, (rows * extent, *x.shape[2:]))
    return reshape(UPDATE(flat, at, values, how=node.attrs["how"], mode="clip"), x.shape)


UPDATE = Op(
    name="update",
    kind=Kind.INDEX,
    doc="Rows set, added, multiplied or compared at given positions along the first axis.",
    rule=_update_type,
    attributes={
        "how": "Literal['set', 'add', 'multiply', 'min', 'max']",
        "mode": "Literal['clip', 'wrap']",
    },
    dtypes=INEXACT,
    batching=_map_update,
    evaluate=_update,
    onnx=onnx_forms.updated,
    kernel=Kernel(into=_update_into, scratch=update_scratch),
    gradient=_update_gradient,
    numerics="reassoc",
)


# Subscripts.


def _neutral(dtype: np.dtype, how: str) -> Any:
    """Return the neutral value of an update."""
    if how in ("add", "set"):
        return np.zeros((), dtype)[()]
    if how == "multiply":
        return np.ones((), dtype)[()]
    low, high = (-np.inf, np.inf)
    if is_bool(dtype):
        low, high = (False, True)
    elif not is_float(dtype):
        low, high = (iinfo(dtype).min, iinfo(dtype).max)
    return np.asarray(high if how == "min" else low).astype(dtype)[()]


_COMBINE: dict[str, Callable[[Any, Any], Node]] = {
    "add": add,
    "multiply": multiply,
    "min": minimum,
    "max": maximum,
}


def _placed(x: Node, region: Selection, values: Node, how: str) -> Node:
    """Return an array updated at slices: an expression of whole arrays, which fuses."""
    piece = reshape(values, region.counts)

    def place(part: Node, value: Any) -> Node:
        return PLACE(part, starts=region.starts, steps=region.steps, shape=x.shape, value=value)

    if region.counts == x.shape and set(region.steps) <= {1}:
        return piece if how == "set" else _COMBINE[how](x, piece)
    placed = place(piece, _neutral(x.dtype, how))
    if how != "set":
        return _COMBINE[how](x, placed)
    inside = place(broadcast_to(constant(True), region.counts), False)
    return where(inside, placed, x)


def _values(call: Call, values: Any, like: Node, shape: Shape) -> Node:
    node = as_node(values, like.dtype)
    loses = is_inexact(node.dtype) and not is_inexact(like.dtype)
    if loses or (is_complex(node.dtype) and not is_complex(like.dtype)):
        raise call.dtype_error(
            f"values of dtype {node.dtype.name} for elements of dtype {like.dtype.name}",
            need="values that convert without loss",
            hint=f"mg.cast(x, '{node.dtype.name}') first, or mg.cast(values, '{like.dtype.name}')",
        )
    node = cast(node, like.dtype)
    lead = node.ndim - len(shape)
    fits = lead <= 0
    for left, right in zip(reversed(node.shape), reversed(shape), strict=False):
        literal = isinstance(left, int) and left == 1
        fits = fits and (literal or dims.unify(left, right, []) is not None)
    if not fits:
        raise call.shape_error(
            f"values of shape {node.shape} for elements of shape {shape}",
            need="values that broadcast to it",
        )
    return broadcast_to(node, shape)


def _mask_of(key: Any) -> Node | None:
    if isinstance(key, (bool, np.bool_, list, np.ndarray, Node)):
        node = as_node(key)
        return node if is_bool(node.dtype) else None
    return None


def _masked(call: Call, x: Node, mask: Node, values: Any, how: str) -> Node:
    if mask.ndim > x.ndim:
        raise call.shape_error(f"a mask of {mask.ndim} axes for {x.ndim} axes")
    for left, right in zip(mask.shape, x.shape, strict=False):
        call.unify(left, right, "extents of array and mask")
    rest = x.shape[mask.ndim :]
    new = _values(call, values, x, rest)
    where_set = reshape(mask, (*mask.shape, *[1] * len(rest)))
    return where(where_set, new if how == "set" else _COMBINE[how](x, new), x)


def _gathered_update(
    call: Call, inner: Node, region: Selection, values: Any, how: str, mode: str
) -> Node:
    """Return the cut part of an array, updated at computed positions."""
    axes = [axis for axis, _ in region.arrays]
    positions = [each for _, each in region.arrays]
    for axis, each in region.arrays:
        check_indices(call, each.type, mode)
        check_range(call, each, axis, inner.shape[axis], mode)
    lead = call.broadcast(*[each.shape for each in positions])
    others = [axis for axis in range(inner.ndim) if axis not in axes]
    rest = tuple(inner.shape[axis] for axis in others)
    # Where the axes of the arrays stand in the shape of the values: see `Selection.together`.
    before = sum(axis < axes[0] for axis in others) if region.together else 0
    count = len(lead)
    new = _values(call, values, inner, (*rest[:before], *lead, *rest[before:]))
    new = moveaxis(new, tuple(range(before, before + count)), tuple(range(count)))
    extents = [inner.shape[axis] for axis in axes]
    front = moveaxis(inner, axes, range(len(axes)))
    rows = reshape(front, (dims.size(tuple(extents)), *rest))
    if len(axes) == 1:
        flat = positions[0]
    else:
        flat, mode = flat_positions(extents, positions, mode), "clip"
    updated = UPDATE(rows, flat, new, how=how, mode=mode)
    return moveaxis(reshape(updated, front.shape), range(len(axes)), axes)


@documented
def index_update(x: Any, key: Any, values: Any, how: str = "set", mode: str = "clip") -> Node:
    """Return `x` with new values at ``x[key]``; ``x.at[key].set(values)`` and its kind call it.

    x: Node or array.
    key: A subscript as of `index`; or a computed mask (bools for the first axes of `x`).
    values: What to update with: broadcasts to the shape of ``x[key]``; of a computed mask, to the
        axes of `x` that it does not cover.
    how: "set", "add", "multiply", "min" or "max".
    mode: What a position in an array means that lies outside: see `take`.
    returns: Of the shape and dtype of `x`. Where a position occurs more than once, sums, products
        and extremes take all of its values, and "set" the last one, which alone has a gradient
        then. Extremes that tie share the gradient equally. Second derivatives of products of
        several values at one position are right where none of them is 0.
    raises ShapeError: If the key does not fit `x`, or the values do not fit the key.
    raises DTypeError: If floats are to be put among integers.

    >>> x = mg.constant([1, 2, 3, 4])
    >>> x.at[1:3].set(0).eval()
    array([1, 0, 0, 4], dtype=int32)
    >>> x.at[mg.constant([0, 0, 3])].add(10).eval()
    array([21,  2,  3, 14], dtype=int32)
    >>> mg.index_update(x, x > 2, 9).eval()
    array([1, 2, 9, 9], dtype=int32)
    """
    node = as_node(x)
    call = Call(INDEX_UPDATE, (node,))
    if how not in HOWS:
        raise call.shape_error(f"how={how!r}", need=f"one of {', '.join(HOWS)}")
    mask = _mask_of(key)
    if mask is not None and not (
        known_mask(key) is not None and as_node(values).ndim > node.ndim - mask.ndim
    ):
        return _masked(call, node, mask, values, how)
    shape = node.shape
    node, key = positions_of_masks(call, node, key)
    return reshape(_selected(call, node, key, values, how, mode), shape)


def _selected(call: Call, node: Node, key: Any, values: Any, how: str, mode: str) -> Node:
    """Return an array with new values at a subscript that holds no mask."""
    region = selection(call, node, key)
    if not region.arrays:
        return _placed(node, region, _values(call, values, node, region.shape), how)
    inner = cut_out(node, region)
    updated = _gathered_update(call, inner, region, values, how, mode)
    return _placed(node, region, updated, "set")


def _update_reference(
    x: np.ndarray, key: Any, values: Any, how: str = "set", mode: str = "clip"
) -> np.ndarray:
    result = np.array(x)
    if mode == "wrap":
        key = key % len(x)
    if how == "set":
        result[key] = values
    else:
        getattr(np, _AT[how]).at(result, key, values)
    return result


_FIVE = np.array([0.5, -1.0, 2.0, 1.5, -0.7])
_VALUES = np.array([3.0, -2.0, 0.25])
_REPEATED = np.array([4, 1, 4])
_SLICES = (builtins.slice(1, None), builtins.slice(None, None, -2))


def _index_update_samples() -> list[Sample]:
    return [
        *[Sample((_FIVE, _REPEATED, _VALUES), {"how": how}) for how in HOWS],
        *[Sample((MATRIX, _SLICES, np.array([0.3, 4.0])), {"how": how}) for how in HOWS],
        Sample((CUBE, (0, builtins.slice(1, None), np.array([[3, 0], [-1, 3]])), np.float64(0.25))),
        Sample(
            (
                CUBE,
                (np.array([[0], [-1]]), builtins.slice(1, 3), np.array([3, -1, 0])),
                np.array([[0.1], [-0.2], [0.3]]),
            ),
            {"how": "add"},
        ),
        Sample((CUBE, (builtins.slice(None), np.array([2, -3]), np.array(1)), np.ones((2, 2)))),
        Sample((_FIVE, np.array([-7, 8]), np.array([1.0, 2.0])), {"mode": "wrap"}),
        Sample((MATRIX, MATRIX > 0.0, np.float64(9.0)), {"how": "set"}),
        Sample((MATRIX, np.array([True, False]), np.array([1.0, 2.0, 3.0])), {"how": "add"}),
        Sample((MATRIX, ([[True, False, True], [False, True, False]],), np.array([3.0, 0.5, 2.0]))),
        Sample((MATRIX, ([True, False], 1), np.array([0.5])), {"how": "multiply"}),
        Sample((CUBE, (0, Ellipsis, [True, False, True, True]), np.array([3.0, 0.5, 2.0]))),
        Sample((np.array([3, 1, 2]), np.array([2, 2]), np.array([5, 7])), {"how": "max"}),
        Sample((_FIVE, np.zeros(0, np.int64), np.zeros(0))),
        Sample((MATRIX, (Ellipsis, None, 1), np.array([[5.0], [6.0]]))),
    ]


INDEX_UPDATE = Composite(
    kind=Kind.INDEX,
    function=index_update,
    tests=Tests(
        samples=_index_update_samples,
        bad_samples=lambda: [
            BadSample(
                (_FIVE, _REPEATED, _VALUES), ShapeError, "index_update: how='swap'", {"how": "swap"}
            ),
            BadSample(
                (_FIVE, _REPEATED, np.ones(2)),
                ShapeError,
                "index_update: values of shape (2,) for elements of shape (3,)",
            ),
            BadSample(
                (np.array([1, 2]), 0, 0.5),
                DTypeError,
                "index_update: values of dtype float32 for elements of dtype int64",
            ),
        ],
        reference=_update_reference,
    ),
    numerics="reassoc",
)


@documented
def put_along_axis(
    arr: Any, indices: Any, values: Any, axis: int | None, how: str = "set", mode: str = "clip"
) -> Node:
    """Return an array with new values along an axis, at positions that each line has of its own.

    NumPy's function of this name writes into its operand; this one leaves it as it is.

    arr: Node or array.
    indices: Integers, with as many axes as `arr`; the extents of the other axes broadcast.
    values: Broadcast against the indices.
    axis: The axis that the indices are positions of; None means the raveled array.
    how, mode: See `index_update`.
    returns: Of the shape and dtype of `arr`.
    raises ShapeError: If the shapes do not fit.

    >>> x = mg.constant([[30, 10, 20], [4, 6, 5]])
    >>> mg.put_along_axis(x, mg.constant([[1], [0]]), 99, axis=1).eval()
    array([[30, 99, 20],
           [99,  6,  5]], dtype=int32)
    """
    node, positions = as_node(arr), as_node(indices)
    call = Call(PUT_ALONG_AXIS, (node, positions))
    if how not in HOWS:
        raise call.shape_error(f"how={how!r}", need=f"one of {', '.join(HOWS)}")
    shape = node.shape
    if axis is None:
        lines, axis = ravel(node), 0
    else:
        lines, axis = node, call.axis(axis, node.ndim)
    flat = flat_along(call, lines.shape, positions, axis, mode)
    new = _values(call, values, node, flat.shape)
    return reshape(UPDATE(ravel(lines), flat, new, how=how, mode="clip"), shape)


def _put_along_reference(
    arr: np.ndarray, indices: Any, values: Any, axis: int | None, how: str = "set", mode: str = ""
) -> np.ndarray:
    result = np.array(arr)
    if how == "set":
        np.put_along_axis(result, indices, values, axis)
        return result
    lines = result.reshape(-1) if axis is None else result
    extent = lines.shape[axis or 0]
    places = list(np.ogrid[tuple(slice(n) for n in np.broadcast(indices, values).shape)])
    places[axis or 0] = indices % extent
    getattr(np, _AT[how]).at(lines, tuple(places), values)
    return result


PUT_ALONG_AXIS = Composite(
    kind=Kind.INDEX,
    function=put_along_axis,
    tests=Tests(
        samples=lambda: [
            Sample((MATRIX, np.array([[2], [-3]]), np.array([[7.0], [8.0]])), {"axis": 1}),
            Sample((MATRIX, np.array([[0, 1, 1]]), np.array([[0.1, 0.2, 0.3]])), {"axis": 0}),
            Sample((MATRIX, np.array([5, 0]), np.array([0.1, 0.2])), {"axis": None}),
            Sample(
                (MATRIX, np.array([[2, 2], [0, 1]]), np.array([[0.1, 0.2], [1.5, 0.7]])),
                {"axis": 1, "how": "add"},
            ),
        ],
        bad_samples=lambda: [
            BadSample(
                (MATRIX, np.array([[2], [0]]), np.ones((2, 2))),
                ShapeError,
                "put_along_axis: values of shape (2, 2) for elements of shape (2, 1)",
                {"axis": 1},
            ),
            BadSample(
                (MATRIX, np.array([[2], [0]]), np.ones((2, 1))),
                ShapeError,
                "put_along_axis: how='swap'",
                {"axis": 1, "how": "swap"},
            ),
        ],
        reference=_put_along_reference,
    ),
    numerics="reassoc",
)

RECORDS: tuple[Op | Composite, ...] = (UPDATE, INDEX_UPDATE, PUT_ALONG_AXIS)
