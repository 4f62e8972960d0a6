"""Positions as values: iota, gathering and scattering, one-hot rows, sorting positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dims
from ..config import config
from ..dims import Dim
from ..dtypes import canonical, is_float, is_integer
from ..errors import DTypeError, ShapeError, message
from ..graph import Node
from ..op import BadSample, Call, Composite, Kind, Op, Sample
from ..types import Extent, Shape, Type
from .arrange import expand_dims, ravel
from .comparison import equal
from .convert import as_node, cast
from .elementwise import add, multiply

__all__ = ["arange", "argsort", "one_hot", "take"]

INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)


# Iota.


def _iota_type(call: Call, *, shape: Shape, axis: int, dtype: np.dtype) -> Type:
    call.axis(axis, len(shape))
    return Type(dtype, shape)


def _iota(xp: Any, *, shape: tuple[int, ...], axis: int, dtype: np.dtype) -> Any:
    line = [1] * len(shape)
    line[axis] = shape[axis]
    return xp.broadcast_to(xp.arange(shape[axis]).astype(dtype).reshape(line), shape)


IOTA = Op(
    name="iota",
    kind=Kind.INDEX,
    doc="Each element's position along an axis: a generator, which reads nothing.",
    rule=_iota_type,
    evaluate=_iota,
    scalar="(T)a",  # of a node without operands, a is the position along attrs["axis"]
    no_gradient="a function of positions alone",
    numerics="exact",
)


def arange(
    start: Extent | str, stop: Extent | str | None = None, step: int = 1, dtype: Any = None
) -> Node:
    """Return evenly spaced integers (as any dtype), half open.

    Parameters
    ----------
    start, stop
        From `start` up to but without `stop`; with one argument from 0 up to it. Ints, names of
        dimensions, Dims.
    step
        Their distance; a negative one counts down.
    dtype
        int32 unless said (int64 where a bound does not fit it).

    Returns
    -------
    Node
        Of one axis.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.arange(4).eval()
    array([0, 1, 2, 3], dtype=int32)
    >>> mg.arange("batch", dtype="float32").shape
    (batch,)
    """
    low, high = (0, start) if stop is None else (start, stop)
    low, high = (_bound(low), _bound(high))
    if not isinstance(step, (int, np.integer)) or not step:
        raise ShapeError(message(f"arange: step={step!r}", need="an int other than 0"))
    span = high - low if step > 0 else low - high
    count = dims.maximum(dims.ceil_div(span, abs(int(step))), 0)
    if dtype is not None:
        wanted = canonical(dtype)
    else:
        large = [b for b in (low, high) if isinstance(b, int) and abs(b) > np.iinfo(INT32).max]
        wanted = INT64 if large else INT32
    positions = IOTA(shape=(count,), axis=0, dtype=wanted)
    if step != 1:
        positions = multiply(positions, as_node(int(step), wanted))
    if isinstance(low, int) and low == 0:
        return positions
    return add(positions, cast(as_node(low), wanted))


def _bound(value: Any) -> Extent:
    if isinstance(value, (str, Dim)):
        return dims.parse_shape((value,))[0]
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    raise DTypeError(
        message(
            f"arange: a bound is {type(value).__name__}",
            need="ints, names or Dims",
            mend="mg.arange(n, dtype='float32') * step + start for spaced floats",
        )
    )


# Gathering and scattering.

_MODES = ("clip", "wrap")


def _check_indices(call: Call, indices: Type, mode: str) -> None:
    if not is_integer(indices.dtype):
        raise call.dtype_error(
            f"indices of dtype {indices.dtype.name}",
            need="an integer dtype",
            mend="mg.cast(indices, 'int32')",
        )
    if mode not in _MODES:
        raise call.shape_error(f"mode={mode!r}", need=f"one of {', '.join(_MODES)}")


def _settled(xp: Any, indices: Any, extent: int, mode: str) -> Any:
    """Return positions in [0, extent)."""
    at = indices.astype(np.int64)
    if mode == "wrap":
        return at % extent
    return xp.clip(xp.where(at < 0, at + extent, at), 0, extent - 1)


def _take_into(xp: Any, target: Any, x: Any, indices: Any, *, axis: int, mode: str) -> None:
    at = _settled(xp, indices, x.shape[axis], mode)
    xp.take(x, at, axis=axis, out=target, mode="wrap")  # the mode "raise" makes a second array


def _take_type(call: Call, x: Type, indices: Type, *, axis: int, mode: str) -> Type:
    _check_indices(call, indices, mode)
    axis = call.axis(axis, x.ndim)
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


def take(x: Any, indices: Any, axis: int | None = None, mode: str = "clip") -> Node:
    """Gather elements along an axis.

    Parameters
    ----------
    x
        Node or array.
    indices
        Integers of any shape; negative ones count from the end, as in NumPy.
    axis
        The axis of `x` that the indices are positions of; the raveled `x` unless said.
    mode
        What an index outside of ``[-n, n)`` means, since a kernel cannot raise: "clip" (the
        nearest valid position) or "wrap" (modulo n). Constant indices are checked at once.

    Returns
    -------
    Node
        Of shape ``x.shape[:axis] + indices.shape + x.shape[axis + 1:]``.

    Raises
    ------
    ShapeError
        If a constant index is out of range under "clip".
    DTypeError
        If the indices are not integers.

    Examples
    --------
    >>> import magmagraph as mg
    >>> table = mg.constant([[1, 2], [3, 4], [5, 6]])
    >>> mg.take(table, mg.constant([2, 0, -1]), axis=0).eval()
    array([[5, 6],
           [1, 2],
           [5, 6]], dtype=int32)
    """
    node = as_node(x)
    where = as_node(indices)
    if axis is None:
        node, axis = ravel(node), 0
    call = Call(TAKE, (node, where))
    axis = call.axis(axis, node.ndim)
    extent = node.shape[axis]
    value = where.attrs.get("value")
    if mode == "clip" and value is not None and is_integer(where.dtype) and value.size:
        if isinstance(extent, int):
            for worst in (int(value.min()), int(value.max())):
                if not -extent <= worst < extent:
                    raise call.shape_error(
                        f"index {worst} is out of range for axis {axis} of extent {extent}",
                        need=f"indices in [-{extent}, {extent})",
                        mend="mode='wrap' takes them modulo the extent",
                    )
    return TAKE(node, where, axis=axis, mode=mode)


TABLE_ROWS = np.linspace(-1.0, 2.0, 12).reshape(4, 3)

TAKE = Op(
    name="take",
    kind=Kind.INDEX,
    doc="Elements at given positions along an axis.",
    rule=_take_type,
    evaluate=lambda xp, x, indices, *, axis, mode: xp.take(
        x, _settled(xp, indices, x.shape[axis], mode), axis=axis
    ),
    into=_take_into,
    gradient=_take_gradient,
    function=take,
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
            (TABLE_ROWS, np.array([0.5])), DTypeError, "take: indices of dtype float64", {"axis": 0}
        ),
    ],
    reference=lambda x, indices, axis=None, mode="raise": np.take(
        x, indices, axis, mode="raise" if mode == "clip" else mode
    ),
    numerics="exact",
)


def _scatter_type(
    call: Call, values: Type, indices: Type, *, axis: int, extent: Extent, mode: str
) -> Type:
    _check_indices(call, indices, mode)
    after = axis + indices.ndim
    if after > values.ndim:
        raise call.shape_error(
            f"values of {values.ndim} axes for indices of {indices.ndim} axes at axis {axis}"
        )
    for left, right in zip(values.shape[axis:after], indices.shape, strict=True):
        call.unify(left, right, "extents of values and indices")
    return Type(values.dtype, (*values.shape[:axis], extent, *values.shape[after:]))


def _wide(dtype: np.dtype) -> np.dtype:
    """Return the dtype to add in."""
    narrow = is_float(dtype) and dtype.itemsize < 4
    return np.dtype(np.float32) if narrow else dtype


def _scatter_add(xp: Any, values: Any, indices: Any, *, axis: int, extent: int, mode: str) -> Any:
    after = values.shape[axis + indices.ndim :]
    result = xp.empty((*values.shape[:axis], extent, *after), _wide(values.dtype))
    _scatter_add_into(xp, result, values, indices, axis=axis, extent=extent, mode=mode)
    return result


def _scatter_add_into(
    xp: Any, target: Any, values: Any, indices: Any, *, axis: int, extent: int, mode: str
) -> None:
    if target.dtype != _wide(target.dtype):
        target[...] = _scatter_add(xp, values, indices, axis=axis, extent=extent, mode=mode)
        return
    at = _settled(xp, indices, extent, mode).reshape(-1)
    rows = values.reshape(*values.shape[:axis], at.size, *values.shape[axis + indices.ndim :])
    target[...] = 0
    rows = xp.moveaxis(rows, axis, 0).astype(target.dtype, copy=False)
    xp.add.at(xp.moveaxis(target, axis, 0), at, rows)


def _scatter_gradient(node: Node, cotangent: Node) -> tuple[Node, None]:
    indices = node.inputs[1]
    attrs = node.attrs
    return (TAKE(cotangent, indices, axis=attrs["axis"], mode=attrs["mode"]), None)


SCATTER_ADD = Op(
    name="scatter_add",
    kind=Kind.INDEX,
    doc="Values added into zeros at given positions along an axis: the transpose of take.",
    rule=_scatter_type,
    evaluate=_scatter_add,
    into=_scatter_add_into,
    gradient=_scatter_gradient,
    numerics="reassoc",
)


# One-hot.


def is_class(indices: Node, classes: Extent, axis: int) -> Node:
    """Return, along a new axis, whether each index is that position: bool, made without memory."""
    place = Call(ONE_HOT, (indices,)).axis(axis, indices.ndim + 1)
    small = indices.dtype.itemsize < 4 or indices.dtype == INT32
    wide = cast(indices, INT32 if small else INT64)
    line: list[Extent] = [1] * (indices.ndim + 1)
    line[place] = classes
    return equal(expand_dims(wide, place), IOTA(shape=tuple(line), axis=place, dtype=wide.dtype))


def one_hot(indices: Any, classes: Extent | str, axis: int = -1, dtype: Any = None) -> Node:
    """Turn integers into rows that are 1 at that position and 0 elsewhere.

    Parameters
    ----------
    indices
        Integers of any shape; one outside of ``[0, classes)`` gives a row of zeros.
    classes
        Extent of the new axis.
    axis
        Where the new axis stands in the result.
    dtype
        Of the result; `mg.config.float_dtype` unless said.

    Returns
    -------
    Node

    Raises
    ------
    DTypeError
        If the indices are not integers.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.one_hot(mg.constant([2, 0]), 3).eval()
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    node = as_node(indices)
    if not is_integer(node.dtype):
        raise Call(ONE_HOT, (node,)).dtype_error(
            f"indices of dtype {node.dtype.name}",
            need="an integer dtype",
            mend="mg.cast(indices, 'int32')",
        )
    extent = dims.parse_shape((classes,))[0]
    return cast(is_class(node, extent, axis), config.float_dtype if dtype is None else dtype)


def _argsort_type(call: Call, x: Type, *, axis: int) -> Type:
    call.axis(axis, x.ndim)
    return Type(INT64, x.shape)


def argsort(x: Any, axis: int = -1) -> Node:
    """Return the positions that put `x` into ascending order along an axis.

    The sort is stable: equal elements keep their order. NaN stands last.

    Parameters
    ----------
    x
        Node or array of any dtype, with at least one axis.
    axis
        The axis.

    Returns
    -------
    Node
        int64, of the shape of `x`. No gradient: positions are integers.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.argsort(mg.constant([30, 10, 20])).eval()
    array([1, 2, 0])
    """
    node = as_node(x)
    axis = Call(ARGSORT, (node,)).axis(axis, node.ndim)
    return ARGSORT(node, axis=axis)


ARGSORT = Op(
    name="argsort",
    kind=Kind.INDEX,
    doc="The positions that sort along an axis, stably.",
    rule=_argsort_type,
    evaluate=lambda xp, x, *, axis: xp.argsort(x, axis=axis, kind="stable"),
    no_gradient="integer valued",
    function=argsort,
    samples=lambda: [
        Sample((TABLE_ROWS[::-1],), {"axis": 0}),
        Sample((np.array([3, 1, 3, 2, 1]),)),
    ],
    bad_samples=lambda: [
        BadSample(
            (TABLE_ROWS,), ShapeError, "argsort: axis=2 is out of range for 2 axes", {"axis": 2}
        )
    ],
    reference=lambda x, axis=-1: np.argsort(x, axis, kind="stable"),
    numerics="exact",
)


def _arange_reference(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    first, last = (0, start) if stop is None else (start, stop)
    return np.arange(first, last, step).astype(dtype or np.int32)


ARANGE = Composite(
    name="arange",
    kind=Kind.INDEX,
    function=arange,
    doc="Evenly spaced integers.",
    samples=lambda: [
        Sample((), {"start": 5}),
        Sample((), {"start": 7, "stop": -2, "step": -3, "dtype": "float64"}),
    ],
    bad_samples=lambda: [
        BadSample((), ShapeError, "arange: step=0", {"start": 5, "step": 0}),
        BadSample((), DTypeError, "arange: a bound is float", {"start": 0.5}),
    ],
    reference=_arange_reference,
    numerics="exact",
    no_gradient="a function of positions alone",
)
ONE_HOT = Composite(
    name="one_hot",
    kind=Kind.INDEX,
    function=one_hot,
    doc="Rows that are 1 at a given position and 0 elsewhere.",
    samples=lambda: [
        Sample((np.array([2, 0, 1]),), {"classes": 3}),
        Sample((np.array([[2, 7], [1, 1]]),), {"classes": 3, "axis": 0}),
    ],
    bad_samples=lambda: [
        BadSample(
            (np.array([0.5]),), DTypeError, "one_hot: indices of dtype float64", {"classes": 3}
        )
    ],
    reference=lambda indices, classes, axis=-1: np.moveaxis(
        (np.asarray(indices)[..., None] == np.arange(classes)).astype(float), -1, axis
    ),
    numerics="exact",
    no_gradient="the indices are integers",
)

RECORDS = (IOTA, ARANGE, TAKE, SCATTER_ADD, ONE_HOT, ARGSORT)
