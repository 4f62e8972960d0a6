"""Numbers that are evenly spaced, or whose logarithms are."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...dtypes import canonical, is_float, is_inexact
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import Kind, Sample
from ...ir.types import Extent
from ..convert import as_dtype, cast
from ..elementwise.arithmetic import add, divide, multiply, subtract
from ..elementwise.comparison import equal, where
from ..elementwise.family import floating_pair
from ..elementwise.math import exp, log, power
from ..elementwise.rounding import floor
from ..indexing.gathering import size_of
from ..indexing.iota import INT64, IOTA
from ..rules.namesakes import namesake
from .arrange import moveaxis
from .axes import LINE

__all__ = [
    "geomspace",
    "linspace",
    "logspace",
]


def _spacing(start: Any, stop: Any, num: Any, dtype: Any) -> tuple[Any, ...]:
    """Return both ends as floats of one dtype, the extent, and the dtype of the result."""
    low, high = floating_pair(start, stop)
    extent = dims.parse_shape((num,))[0]
    target = low.dtype if dtype is None else canonical(dtype)
    if dtype is not None and is_float(target):
        low, high = cast(start, target), cast(stop, target)
    return low, high, extent, target


def _steps(low: Node, high: Node, extent: Extent, endpoint: bool) -> tuple[Node, Node, Any]:
    """Return the positions of spaced numbers as floats, both ends, and the divisor."""
    rank = low.ndim if low.ndim > high.ndim else high.ndim
    line = (extent, *[1] * rank)
    if isinstance(extent, int):
        parts: Any = (extent - 1 if extent > 1 else 1) if endpoint else extent
    else:
        parts = cast(size_of(dims.maximum(extent - 1, 1) if endpoint else extent), low.dtype)
    return IOTA(shape=line, axis=0, dtype=low.dtype), IOTA(shape=line, axis=0, dtype=INT64), parts


def _settled(values: Node, dtype: np.dtype, axis: int) -> Node:
    if values.dtype != dtype:
        values = cast(values if is_inexact(dtype) else floor(values), dtype)
    return moveaxis(values, 0, axis) if values.ndim > 1 else values


@documented
def linspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Return evenly spaced numbers over an interval.

    start, stop: The ends: numbers, arrays or nodes, broadcast against each other.
    num: How many: an int, a name or a Dim.
    endpoint: Whether `stop` is the last of them.
    retstep: Return the distance, too.
    dtype: Of the result; the float dtype of the ends unless said. Integers are rounded down.
    axis: Where the new axis stands.
    returns (Node, or a pair of Node): The last number is `stop` exactly. The gradient flows to both
        ends.
    raises ShapeError: If `num` is negative.

    >>> mg.linspace(0.0, 1.0, 5).eval()
    array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    low, high, extent, target = _spacing(start, stop, num, dtype)
    steps, places, parts = _steps(low, high, extent, endpoint)
    step = divide(subtract(high, low), parts)
    values = add(multiply(steps, step), low)
    if endpoint:
        values = where(
            equal(places, size_of(extent - 1)), where(equal(places, 0), low, high), values
        )
    result = _settled(values, target, axis)
    return (result, step) if retstep else result


@documented
def logspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Node:
    """Return numbers whose logarithms are evenly spaced.

    start, stop: The powers at the ends: numbers, arrays or nodes.
    num: How many: an int, a name or a Dim.
    endpoint: Whether ``base**stop`` is the last of them.
    base: Of the logarithms.
    dtype: Of the result; the float dtype of the ends unless said. Integers are rounded down.
    axis: Where the new axis stands.
    returns (Node):

    >>> mg.logspace(0.0, 3.0, 4).eval()
    array([   1.,   10.,  100., 1000.], dtype=float32)
    """
    target = None if dtype is None else canonical(dtype)
    computed = target if target is not None and is_float(target) else None
    powers = linspace(start, stop, num, endpoint, dtype=computed)
    result_dtype = powers.dtype if target is None else target
    return _settled(power(as_dtype(base, powers.dtype), powers), result_dtype, axis)


@documented
def geomspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    dtype: Any = None,
    axis: int = 0,
) -> Node:
    """Return numbers whose ratios are equal.

    start, stop: The ends, of one sign and not 0: numbers, arrays or nodes.
    num: How many: an int, a name or a Dim.
    endpoint: Whether `stop` is the last of them.
    dtype: Of the result; the float dtype of the ends unless said. Integers are rounded down.
    axis: Where the new axis stands.
    returns: The first number, and the last one with `endpoint`, are the ends exactly.

    >>> mg.geomspace(1.0, 8.0, 4).eval().round(5)
    array([1., 2., 4., 8.], dtype=float32)
    """
    low, high, extent, target = _spacing(start, stop, num, dtype)
    steps, places, parts = _steps(low, high, extent, endpoint)
    values = multiply(low, exp(multiply(steps, divide(log(divide(high, low)), parts))))
    if endpoint:
        values = where(
            equal(places, size_of(extent - 1)), where(equal(places, 0), low, high), values
        )
    return _settled(values, target, axis)


_record = partial(namesake, Kind.INDEX)

RECORDS = (
    _record(
        linspace,
        "Evenly spaced numbers over an interval.",
        [
            Sample((np.float64(-1.0), np.float64(2.5)), {"num": 8}),
            Sample((LINE, np.array([[1.5], [3.0]])), {"num": 3, "axis": 1, "endpoint": False}),
            Sample((LINE, np.float64(3.0)), {"num": 1}, gradient=(0,), reason="only the start"),
            Sample((), {"start": 0.0, "stop": 4.9, "num": 4, "dtype": "int32"}),
            Sample((), {"start": 0.0, "stop": 1.0, "num": 0}),
        ],
        numerics="reassoc",
        reference=lambda start, stop, num=50, **options: np.linspace(start, stop, num, **options),
    ),
    _record(
        logspace,
        "Numbers whose logarithms are evenly spaced.",
        [
            Sample((np.float64(-1.0), np.float64(0.5)), {"num": 5}),
            Sample((LINE / 4, np.float64(1.0)), {"num": 4, "base": 2.0, "endpoint": False}),
        ],
        numerics="reassoc",
    ),
    _record(
        geomspace,
        "Numbers whose ratios are equal.",
        [
            Sample((np.float64(1.5), np.float64(6.0)), {"num": 5}),
            Sample((np.array([-1.0, 2.0]), np.array([-4.0, 0.5])), {"num": 3, "axis": -1}),
        ],
        numerics="reassoc",
    ),
)
