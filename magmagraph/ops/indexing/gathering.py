"""Gathering elements at given positions along an axis, and adding up what goes to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import is_float, is_integer
from ...errors import DTypeError, ShapeError, message
from ...ir import dims
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kernel, Kind, Op, Sample, Tests
from ...ir.types import Extent, Shape, Type
from ..convert import as_node, cast
from ..elementwise.arithmetic import add, multiply, remainder
from ..elementwise.comparison import clip, less, where
from ..leaf import extent as extent_node
from ..rules import onnx_forms
from ..rules.batching_index import map_gather, map_scatter
from ..shape.arrange import ravel
from .iota import INT64, IOTA

__all__ = ["take", "take_along_axis"]

_MODES = ("clip", "wrap")


def check_indices(call: Call, indices: Type, mode: str) -> None:
    """Refuse indices that are not integers, and unknown modes."""
    if not is_integer(indices.dtype):
        raise call.dtype_error(
            f"indices of dtype {indices.dtype.name}",
            need="an integer dtype",
            hint="mg.cast(indices, 'int32')",
        )
    if mode not in _MODES:
        raise call.shape_error(f"mode={mode!r}", need=f"one of {', '.join(_MODES)}")


def check_range(call: Call, indices: Node, axis: int, extent: Extent, mode: str) -> None:
    """Refuse constant indices outside an axis of known extent."""
    value = indices.attrs.get("value")
    if mode != "clip" or not isinstance(extent, int) or not is_integer(indices.dtype):
        return
    if value is None or not value.size:
        return
    for worst in (int(value.min()), int(value.max())):
        if not -extent <= worst < extent:
            raise call.shape_error(
                f"index {worst} is out of range for axis {axis} of extent {extent}",
                need=f"indices in [-{extent}, {extent})",
                hint="mode='wrap' takes them modulo the extent",
            )


def settled(xp: Any, indices: Any, extent: int, mode: str) -> Any:
    """Return positions in [0, extent)."""
    at = indices.astype(np.int64)
    if mode == "wrap":
        return at % extent
    return xp.clip(xp.where(at < 0, at + extent, at), 0, extent - 1)


def refuse_empty(x: Any, indices: Any, axis: int, operation: str, use: str) -> None:
    """Refuse to use elements of an axis that turns out to have none."""
    if indices.size and not x.shape[axis]:
        raise ShapeError(
            message(
                f"{operation}: axis {axis} is empty, and {indices.size} elements of it are {use}",
                need="an axis with elements, or no indices",
            )
        )


def _take(xp: Any, x: Any, indices: Any, *, axis: int, mode: str) -> Any:
    refuse_empty(x, indices, axis, "take", "taken")
    return xp.take(x, settled(xp, indices, x.shape[axis], mode), axis=axis)


def _take_into(xp: Any, target: Any, x: Any, indices: Any, *, axis: int, mode: str) -> None:
    refuse_empty(x, indices, axis, "take", "taken")
    at = settled(xp, indices, x.shape[axis], mode)
    xp.take(x, at, axis=axis, out=target, mode="wrap")  # the mode "raise" makes a second array


def _take_type(call: Call, x: Type, indices: Type, *, axis: int, mode: str) -> Type:
    check_indices(call, indices, mode)
    call.check_axis(axis, x.ndim)
    extent, count = x.shape[axis], indices.size
    if isinstance(extent, int) and not extent and isinstance(count, int) and count:
        raise call.shape_error(
            f"axis {axis} is empty, and {count} elements of it are taken",
            need="an axis with elements, or no indices",
        )
    return Type(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def _take_gradient(node: Node, cotangent: Node) -> tuple[Node, None]:
    x, indices = node.inputs
    attrs = node.attrs
    return (
        SCATTER_ADD(
            cotangent,
            indices,
            axis=attrs["axis"],
            extent=x.shape[attrs["axis"]],
            mode=attrs["mode"],
        ),
        None,
    )


@documented
def take(x: Any, indices: Any, axis: int | None = None, mode: str = "clip") -> Node:
    """Gather elements along an axis.

    x: Node or array.
    indices: Integers of any shape; negative ones count from the end, as in NumPy.
    axis: The axis of `x` that the indices are positions of; the raveled `x` unless said.
    mode: What an index outside of ``[-n, n)`` means, since a kernel cannot raise: "clip" (the
        nearest valid position) or "wrap" (modulo n). Constant indices are checked at once.
    returns: Of shape ``x.shape[:axis] + indices.shape + x.shape[axis + 1:]``.
    raises ShapeError: If a constant index is out of range under "clip".
    raises DTypeError: If the indices are not integers.

    >>> table = mg.constant([[1, 2], [3, 4], [5, 6]])
    >>> mg.take(table, mg.constant([2, 0, -1]), axis=0).eval()
    array([[5, 6],
           [1, 2],
           [5, 6]], dtype=int32)
    """
    node = as_node(x)
    positions = as_node(indices)
    if axis is None:
        node, axis = ravel(node), 0
    call = Call(TAKE, (node, positions))
    axis = call.axis(axis, node.ndim)
    extent = node.shape[axis]
    check_range(call, positions, axis, extent, mode)
    return TAKE(node, positions, axis=axis, mode=mode)


TABLE_ROWS = np.linspace(-1.0, 2.0, 12).reshape(4, 3)

TAKE = Op(
    name="take",
    dtypes=INEXACT,
    kind=Kind.INDEX,
    rule=_take_type,
    attributes={"mode": "Literal['clip', 'wrap']"},
    evaluate=_take,
    kernel=Kernel(into=_take_into),
    gradient=_take_gradient,
    batching=map_gather,
    sharding="gather",
    function=take,
    tests=Tests(
        samples=lambda: [
            Sample((TABLE_ROWS, np.array([[3, 0], [-1, 3]])), {"axis": 0}),
            Sample((TABLE_ROWS, np.array([5, -4])), {"axis": 1, "mode": "wrap"}),
            Sample((TABLE_ROWS, np.array(7))),
        ],
        bad_samples=lambda: [
            BadSample(
                (TABLE_ROWS, [4]),
                ShapeError,
                "take: index 4 is out of range for axis 0 of extent 4",
                {"axis": 0},
            ),
            BadSample(
                (TABLE_ROWS, np.array([0.5])),
                DTypeError,
                "take: indices of dtype float64",
                {"axis": 0},
            ),
        ],
        reference=lambda x, indices, axis=None, mode="raise": np.take(
            x, indices, axis, mode="raise" if mode == "clip" else mode
        ),
    ),
    numerics="exact",
    onnx=onnx_forms.gathered,
)


def _scatter_type(
    call: Call, values: Type, indices: Type, *, axis: int, extent: Extent, mode: str
) -> Type:
    check_indices(call, indices, mode)
    after = axis + indices.ndim
    if after > values.ndim:
        raise call.shape_error(
            f"values of {values.ndim} axes for indices of {indices.ndim} axes at axis {axis}"
        )
    call.check_axis(axis, values.ndim - indices.ndim + 1)
    for left, right in zip(values.shape[axis:after], indices.shape, strict=True):
        call.unify(left, right, "extents of values and indices")
    return Type(values.dtype, (*values.shape[:axis], extent, *values.shape[after:]))


def wide(dtype: np.dtype) -> np.dtype:
    """Return the dtype to add in."""
    narrow = is_float(dtype) and dtype.itemsize < 4
    return np.dtype(np.float32) if narrow else dtype


def _scatter_add(xp: Any, values: Any, indices: Any, *, axis: int, extent: int, mode: str) -> Any:
    after = values.shape[axis + indices.ndim :]
    result = xp.empty((*values.shape[:axis], extent, *after), wide(values.dtype))
    _scatter_add_into(xp, result, values, indices, axis=axis, extent=extent, mode=mode)
    return result


def _scatter_add_into(
    xp: Any, target: Any, values: Any, indices: Any, *, axis: int, extent: int, mode: str,
    workspace: Any = None,
) -> None:  # fmt: skip
    if target.dtype != wide(target.dtype):
        target[...] = _scatter_add(xp, values, indices, axis=axis, extent=extent, mode=mode)
        return
    refuse_empty(target, indices, axis, "scatter_add", "written")
    at = settled(xp, indices, extent, mode).reshape(-1)
    rows = values.reshape(*values.shape[:axis], at.size, *values.shape[axis + indices.ndim :])
    target[...] = 0
    rows = xp.moveaxis(rows, axis, 0).astype(target.dtype, copy=False)
    xp.add.at(xp.moveaxis(target, axis, 0), at, rows)


def _scatter_gradient(node: Node, cotangent: Node) -> tuple[Node, None]:
    indices = node.inputs[1]
    attrs = node.attrs
    return (TAKE(cotangent, indices, axis=attrs["axis"], mode=attrs["mode"]), None)


# Copies of the result that a kernel on several threads adds up in, and their bytes at most.
COPIES, COPIED = 8, 1 << 17


def update_scratch(node: Node, threads: int) -> Extent:
    """Return the bytes of the copies that rows are combined in where many values meet in few."""
    size = dims.size(node.shape)
    if not isinstance(size, int) or size * node.dtype.itemsize > COPIED:
        return 0
    along = node.attrs.get("axis", 0)
    parts = dims.size(node.shape[:along])
    return COPIES * size * node.dtype.itemsize if parts == 1 else 0


SCATTER_ADD = Op(
    name="scatter_add",
    dtypes=INEXACT,
    kind=Kind.INDEX,
    doc="Values added into zeros at given positions along an axis: the transpose of take.",
    rule=_scatter_type,
    attributes={"mode": "Literal['clip', 'wrap']"},
    evaluate=_scatter_add,
    kernel=Kernel(into=_scatter_add_into, scratch=update_scratch),
    gradient=_scatter_gradient,
    batching=map_scatter,
    sharding="scatter",
    numerics="reassoc",
    onnx=onnx_forms.scattered,
)


# Positions in several axes at once are positions in the raveled axes.


def size_of(extent: Extent) -> Any:
    """Return an extent as a number for arithmetic with positions: an int, or an int64 node."""
    return extent_node(extent) if isinstance(extent, Dim) else extent


def counted(indices: Node, extent: Extent, mode: str) -> Node:
    """Return positions in [0, extent) as int64, as a node: what `settled` does to arrays."""
    at = cast(indices, INT64)
    count = size_of(extent)
    if mode == "wrap":
        return remainder(at, count)
    return clip(where(less(at, 0), at + count, at), 0, count - 1)


def flat_positions(extents: Sequence[Extent], indices: Sequence[Node], mode: str) -> Node:
    """Return, of positions in each of several axes, those in the one axis they ravel to."""
    flat = counted(indices[0], extents[0], mode)
    for extent, each in zip(extents[1:], indices[1:], strict=True):
        flat = add(multiply(flat, size_of(extent)), counted(each, extent, mode))
    return flat


def _beside(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], 1, *shape[axis + 1 :])


def flat_along(call: Call, shape: Shape, indices: Node, axis: int, mode: str) -> Node:
    """Return positions along one axis as positions in the raveled array."""
    if indices.ndim != len(shape):
        raise call.shape_error(
            f"indices of {indices.ndim} axes for an array of {len(shape)} axes",
            need="as many axes in each",
            hint="mg.expand_dims, or mg.take for positions that all lines share",
        )
    check_indices(call, indices.type, mode)
    call.broadcast(_beside(shape, axis), _beside(indices.shape, axis))
    check_range(call, indices, axis, shape[axis], mode)
    stride: Extent = 1
    strides: list[Extent] = []
    for extent in reversed(shape):
        strides.insert(0, stride)
        stride = stride * extent
    flat = multiply(counted(indices, shape[axis], mode), size_of(strides[axis]))
    for other, extent in enumerate(shape):
        if other == axis or (isinstance(extent, int) and extent == 1):
            continue
        line: list[Extent] = [1] * len(shape)
        line[other] = extent
        place = IOTA(shape=tuple(line), axis=other, dtype=INT64)
        flat = add(flat, multiply(place, size_of(strides[other])))
    return flat


@documented
def take_along_axis(arr: Any, indices: Any, axis: int | None = -1, mode: str = "clip") -> Node:
    """Gather along an axis, each line of the array with positions of its own.

    arr: Node or array.
    indices: Integers, with as many axes as `arr`; the extents of the other axes broadcast. Negative
        ones count from the end.
    axis: The axis that the indices are positions of; None ravels `arr` first.
    mode: What an index outside of ``[-n, n)`` means: see `take`.
    returns: Of the dtype of `arr`; along `axis` as long as `indices`.
    raises ShapeError: If the numbers of axes differ, or the other extents do not broadcast.
    raises DTypeError: If the indices are not integers.

    >>> x = mg.constant([[30, 10, 20], [4, 6, 5]])
    >>> mg.take_along_axis(x, mg.argsort(x, axis=1), axis=1).eval()
    array([[10, 20, 30],
           [ 4,  5,  6]], dtype=int32)
    """
    node, positions = as_node(arr), as_node(indices)
    if axis is None:
        node, axis = ravel(node), 0
    call = Call(TAKE_ALONG_AXIS, (node, positions))
    axis = call.axis(axis, node.ndim)
    return along(call, node, positions, axis, mode)


def along(call: Call, x: Node, indices: Node, axis: int, mode: str = "clip") -> Node:
    """Return what `take_along_axis` does, for nodes and a normalized axis."""
    return TAKE(ravel(x), flat_along(call, x.shape, indices, axis, mode), axis=0, mode="clip")


def permuted(x: Node, order: Node, axis: int) -> Node:
    """Return `x` with each line along an axis put into an order of its own."""
    return along(Call(TAKE_ALONG_AXIS, (x, order)), x, order, axis)


def _take_along_reference(
    arr: np.ndarray, indices: np.ndarray, axis: int | None = -1, mode: str = "clip"
) -> np.ndarray:
    extent = arr.size if axis is None else arr.shape[axis]
    return np.take_along_axis(arr, indices % extent if mode == "wrap" else indices, axis)


TAKE_ALONG_AXIS = Composite(
    dtypes=INEXACT,
    kind=Kind.INDEX,
    function=take_along_axis,
    tests=Tests(
        samples=lambda: [
            Sample((TABLE_ROWS, np.array([[3, 0, 1], [-1, 3, 1]])), {"axis": 0}),
            Sample((TABLE_ROWS, np.array([[2, -1]]))),
            Sample((TABLE_ROWS[:1], np.array([[5], [-4]])), {"mode": "wrap"}),
            Sample((TABLE_ROWS, np.array([11, 0])), {"axis": None}),
            Sample((TABLE_ROWS, np.zeros((0, 3), np.int64)), {"axis": 0}),
        ],
        bad_samples=lambda: [
            BadSample(
                (TABLE_ROWS, np.array([0])),
                ShapeError,
                "take_along_axis: indices of 1 axes for an array of 2 axes",
            ),
            BadSample(
                (TABLE_ROWS, np.zeros((3, 1), np.int64)),
                ShapeError,
                "take_along_axis: extents 4 and 3 do not broadcast (axis -2)",
            ),
            BadSample(
                (TABLE_ROWS, TABLE_ROWS), DTypeError, "take_along_axis: indices of dtype float64"
            ),
        ],
        reference=_take_along_reference,
    ),
    numerics="exact",
)

RECORDS: tuple[Op | Composite, ...] = (TAKE, SCATTER_ADD, TAKE_ALONG_AXIS)
