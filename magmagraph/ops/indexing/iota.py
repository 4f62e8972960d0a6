"""Positions as values: iota, ranges of integers, one-hot rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...config import config
from ...dtypes import canonical, is_integer
from ...errors import DTypeError, ShapeError, message
from ...ir import dims
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kind, Op, Sample, Scalar, Tests
from ...ir.types import Extent, Shape, Type
from ..convert import as_node, cast
from ..elementwise.arithmetic import add, multiply
from ..elementwise.comparison import equal
from ..rules import onnx_forms
from ..shape.arrange import expand_dims

__all__ = ["arange", "one_hot"]

INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)


# Iota.


def _iota_type(call: Call, *, shape: Shape, axis: int, dtype: np.dtype) -> Type:
    call.check_axis(axis, len(shape))
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
    scalar=Scalar(
        "(T)a",  # of a node without operands, a is the position along attrs["axis"]
    ),
    no_gradient="a function of positions alone",
    sharding="positions",
    numerics="exact",
    onnx=onnx_forms.positions,
)


@documented
def arange(
    start: Extent | str | float,
    stop: Extent | str | float | None = None,
    step: float = 1,
    dtype: Any = None,
) -> Node:
    """Return evenly spaced numbers, half open.

    start, stop: From `start` up to but without `stop`; with one argument from 0 up to it. Ints,
        names of dimensions, Dims; or numbers, of which there are ``ceil((stop - start) / step)``
        then.
    step: Their distance; a negative one counts down.
    dtype: int32 unless said (int64 where a bound does not fit it), `mg.config.float_dtype` where an
        argument is a float.
    returns: Of one axis.

    >>> mg.arange(4).eval()
    array([0, 1, 2, 3], dtype=int32)
    >>> mg.arange("batch", dtype="float32").shape
    (batch,)
    """
    first, last = (0, start) if stop is None else (start, stop)
    if any(isinstance(each, (float, np.floating)) for each in (first, last, step)):
        return _spaced(first, last, step, config.float_dtype if dtype is None else canonical(dtype))
    low, high = (_bound(first), _bound(last))
    if not isinstance(step, (int, np.integer)) or not step:
        raise ShapeError(message(f"arange: step={step!r}", need="a number other than 0"))
    span = high - low if step > 0 else low - high
    count = dims.maximum(dims.ceil_div(span, abs(int(step))), 0)
    if dtype is not None:
        target = canonical(dtype)
    else:
        large = [b for b in (low, high) if isinstance(b, int) and abs(b) > np.iinfo(INT32).max]
        target = INT64 if large else INT32
    positions = IOTA(shape=(count,), axis=0, dtype=target)
    if step != 1:
        positions = multiply(positions, as_node(int(step), target))
    if isinstance(low, int) and low == 0:
        return positions
    return add(positions, cast(low, target))


def _spaced(start: Any, stop: Any, step: Any, dtype: np.dtype) -> Node:
    """Return spaced numbers, computed in float64, of a dtype."""
    for what, value in (("start", start), ("stop", stop), ("step", step)):
        if not isinstance(value, (int, float, np.integer, np.floating)):
            raise DTypeError(
                message(
                    f"arange: {what} is {type(value).__name__} beside floats",
                    need="numbers, from which the extent follows",
                    hint="mg.arange(n, dtype='float32') * step + start",
                )
            )
    steps = (float(stop) - float(start)) / float(step) if step else np.nan
    if not np.isfinite(steps):
        raise ShapeError(
            message(
                f"arange: {start!r} to {stop!r} in steps of {step!r}",
                need="finite numbers, and a step other than 0",
            )
        )
    count = max(int(np.ceil(steps)), 0)
    places = IOTA(shape=(count,), axis=0, dtype=np.dtype(np.float64))
    scaled = multiply(places, as_node(float(step), places.dtype))
    return cast(add(scaled, as_node(float(start), places.dtype)), dtype)


def _bound(value: Any) -> Extent:
    if isinstance(value, (str, Dim)):
        return dims.parse_shape((value,))[0]
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    raise DTypeError(
        message(
            f"arange: a bound is {type(value).__name__}",
            need="ints, names or Dims",
            hint="mg.arange(n, dtype='float32') * step + start for spaced floats",
        )
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


@documented
def one_hot(indices: Any, classes: Extent | str, axis: int = -1, dtype: Any = None) -> Node:
    """Turn integers into rows that are 1 at that position and 0 elsewhere.

    indices: Integers of any shape; one outside of ``[0, classes)`` gives a row of zeros.
    classes: Extent of the new axis.
    axis: Where the new axis stands in the result.
    dtype: Of the result; `mg.config.float_dtype` unless said.
    returns (Node):
    raises DTypeError: If the indices are not integers.

    >>> mg.one_hot(mg.constant([2, 0]), 3).eval()
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    node = as_node(indices)
    if not is_integer(node.dtype):
        raise Call(ONE_HOT, (node,)).dtype_error(
            f"indices of dtype {node.dtype.name}",
            need="an integer dtype",
            hint="mg.cast(indices, 'int32')",
        )
    extent = dims.parse_shape((classes,))[0]
    return cast(is_class(node, extent, axis), config.float_dtype if dtype is None else dtype)


def _arange_reference(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    first, last = (0, start) if stop is None else (start, stop)
    return np.arange(first, last, step).astype(dtype or np.int32)


ARANGE = Composite(
    kind=Kind.INDEX,
    function=arange,
    tests=Tests(
        samples=lambda: [
            Sample((), {"start": 5}),
            Sample((), {"start": 0.5, "stop": 2.75, "step": 0.5, "dtype": "float64"}),
            Sample((), {"start": 7, "stop": -2, "step": -3, "dtype": "float64"}),
        ],
        bad_samples=lambda: [
            BadSample((), ShapeError, "arange: step=0", {"start": 5, "step": 0}),
            BadSample((), ShapeError, "arange: 0 to 5 in steps of 0.0", {"start": 5, "step": 0.0}),
            BadSample((), DTypeError, "arange: a bound is list", {"start": [5]}),
        ],
        reference=_arange_reference,
    ),
    numerics="exact",
    no_gradient="a function of positions alone",
)
ONE_HOT = Composite(
    kind=Kind.INDEX,
    function=one_hot,
    tests=Tests(
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
    ),
    numerics="exact",
    no_gradient="the indices are integers",
)

RECORDS = (IOTA, ARANGE, ONE_HOT)
