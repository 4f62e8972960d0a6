"""Values between points: piecewise linear interpolation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ..elementwise.arithmetic import divide, remainder, subtract
from ..elementwise.bits import logical_and, logical_not, logical_or
from ..elementwise.comparison import clip, equal, greater, less, where
from ..elementwise.family import floating_operands
from ..elementwise.rounding import isfinite
from ..shape.arrange import reshape
from ..shape.joining import concatenate
from ..shape.slicing import cut
from .gathering import size_of, take
from .sorting import argsort, searchsorted

__all__ = ["interp"]


@documented
def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None
) -> Node:
    """Interpolate linearly between points.

    x: Where to evaluate: node or array of any shape.
    xp: The points, of one axis, ascending (in any order with `period`).
    fp: The values there.
    left, right: The value below the first and above the last point; those points' values unless
        said.
    period: The points' period; `left` and `right` are then without influence.
    returns: Of the shape of `x` and the promoted float dtype; NaN where `x` is. The gradient flows
        to `x` (at a point: the slope on its right side; at the last, on its left), `xp` and `fp`.
    raises ShapeError: If there are not as many points as values on one axis, or none.

    >>> mg.interp([0.5, 2.0, 9.0], [0.0, 1.0, 3.0], [0.0, 10.0, 30.0]).eval()
    array([ 5., 20., 30.], dtype=float32)
    """
    at, points, values = floating_operands(x, xp, fp)
    call = Call(INTERP, (at, points, values))
    if points.ndim != 1 or values.ndim != 1:
        raise call.shape_error(
            f"points of {points.ndim} and values of {values.ndim} axes", need="one axis each"
        )
    extent = call.unify(points.shape[0], values.shape[0], "numbers of points and values")
    if isinstance(extent, int) and not extent:
        raise call.shape_error("no points", need="at least one")
    if period is not None:
        if period == 0:
            raise call.shape_error("period=0", need="a period that is not 0")
        period = abs(period)
        at, points = remainder(at, period), remainder(points, period)
        order = argsort(points)
        points, values = take(points, order, axis=0), take(values, order, axis=0)
        points = concatenate(
            [cut(points, 0, extent - 1, 1) - period, points, cut(points, 0, 0, 1) + period]
        )
        values = concatenate([cut(values, 0, extent - 1, 1), values, cut(values, 0, 0, 1)])
        extent, left, right = extent + 2, None, None
    first, last = (reshape(cut(points, 0, i, 1), ()) for i in (0, extent - 1))
    lowest, highest = (reshape(cut(values, 0, i, 1), ()) for i in (0, extent - 1))
    below, above = less(at, first), greater(at, last)
    inside = where(below, first, where(above, last, at))
    place = clip(searchsorted(points, inside, side="right") - 1, 0, size_of(extent - 2))
    start, end = take(points, place, axis=0), take(points, place + 1, axis=0)
    low, high = take(values, place, axis=0), take(values, place + 1, axis=0)
    width = subtract(end, start)
    still = equal(width, 0)
    slope = divide(subtract(high, low), where(still, 1, width))
    # At the last point the line is read from its end: exactly that value, and the line's slope.
    ends = equal(at, last)
    still = logical_or(still, logical_and(ends, logical_not(isfinite(slope))))
    near, place = where(ends, high, low), where(ends, end, start)
    result = where(still, near, near + slope * subtract(inside, place))
    result = where(below, lowest if left is None else left, result)
    return where(above, highest if right is None else right, result)


def _interp_reference(x: Any, xp: Any, fp: Any, **options: Any) -> np.ndarray:
    return np.asarray(np.interp(x, xp, fp, **options))


_POINTS = np.array([-1.0, 0.2, 0.9, 2.0])
_HEIGHTS = np.array([3.0, -1.0, 0.5, 2.5])
_AT = np.array([[-0.5, 0.3, 1.7], [-2.0, 2.6, 0.8]])

INTERP = Composite(
    kind=Kind.INDEX,
    function=interp,
    tests=Tests(
        samples=lambda: [
            Sample((_AT, _POINTS, _HEIGHTS)),
            Sample((_AT, _POINTS, _HEIGHTS), {"left": -7.0, "right": 9.0}),
            Sample((_AT, _POINTS[[2, 0, 1, 3]], _HEIGHTS), {"period": 3.7}),
            Sample(
                (np.array([-1.0, 2.0, 0.2, np.nan, np.inf, -np.inf]), _POINTS, _HEIGHTS),
                gradient=(),
                reason="kinks, NaN and infinities",
            ),
            Sample((_AT, np.array([0.5]), np.array([3.0])), gradient=(2,), reason="constant"),
        ],
        bad_samples=lambda: [
            BadSample(
                (_AT, _POINTS, _HEIGHTS[:3]),
                ShapeError,
                "interp: numbers of points and values differ: 4 and 3",
            ),
            BadSample((_AT, np.zeros(0), np.zeros(0)), ShapeError, "interp: no points"),
        ],
        reference=_interp_reference,
    ),
    numerics="reassoc",
)

RECORDS = (INTERP,)
