"""Differences and sums along axes as calculus has them, and the cross product."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import Call, Kind, Sample
from ...ir.types import MOST_TERMS, Extent
from ..control.identities import stop_gradient
from ..convert import as_dtype, as_node, cast, promoted
from ..elementwise.arithmetic import add, divide, multiply, remainder, subtract
from ..elementwise.bits import logical_and
from ..elementwise.comparison import equal, greater, less, not_equal, where
from ..elementwise.family import BOOL, floating
from ..elementwise.signs import absolute
from ..indexing.keys import index
from ..rules.namesakes import namesake
from ..shape.arrange import moveaxis, ravel, reshape
from ..shape.axes import CUBE, MATRIX, axes_of
from ..shape.joining import broadcast_to, concatenate, stack
from ..shape.slicing import cut
from .cumulative import cumsum
from .primitives import sum

_MOST = 64  # differences along a named axis: each adds a layer to the extent

__all__ = ["cross", "diff", "ediff1d", "gradient", "trapezoid", "unwrap"]


def _neighbours(node: Node, axis: int) -> tuple[Node, Node]:
    """Return all elements along an axis but the last, and all but the first."""
    before = (*[slice(None)] * axis, slice(None, -1))
    return index(node, before), index(node, (*before[:-1], slice(1, None)))


@documented
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Node:
    """Take differences of neighbours along an axis.

    a: Node or array with at least one axis. Of bools: whether neighbours differ.
    n: How many times.
    axis: The axis, shorter by `n` in the result; without elements where there were no more.
    prepend, append: Values to put in front and behind first: numbers, or arrays with that axis.
        With `n` 0 nothing is done, as in NumPy.
    returns (Node):
    raises ShapeError: If `n` is negative, or above 10,000 where more elements may be left.

    >>> mg.diff(mg.constant([1, 4, 9, 16])).eval()
    array([3, 5, 7], dtype=int32)
    """
    node = as_node(a)
    call = Call(DIFF, (node,))
    axis = call.axis(axis, node.ndim)
    if n < 0:
        raise call.shape_error(f"n={n}", need="0 or more")
    if n == 0:
        return node
    parts = [part for part in (prepend, node, append) if part is not None]
    if len(parts) > 1:
        nodes = list(promoted(*parts))
        line = (*node.shape[:axis], 1, *node.shape[axis + 1 :])
        parts = [part if part.ndim else broadcast_to(part, line) for part in nodes]
        node = concatenate(parts, axis)
    extent = node.shape[axis]
    if n > _MOST and not isinstance(extent, int):
        raise call.shape_error(f"n={n} along an axis of a named extent", need=f"at most {_MOST}")
    times = min(n, extent) if isinstance(extent, int) else n  # then no element is left
    if times > MOST_TERMS:
        raise call.shape_error(f"n={n}", need=f"at most {MOST_TERMS} differences")
    for _ in range(times):
        before, behind = _neighbours(node, axis)
        node = not_equal(behind, before) if node.dtype == BOOL else subtract(behind, before)
    return node


@documented
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Node:
    """Take differences of neighbours in the raveled array.

    ary: Node or array.
    to_end, to_begin: Numbers or arrays that stand behind and in front of the differences; raveled,
        and converted to their dtype.
    returns: Of one axis.

    >>> mg.ediff1d(mg.constant([1, 4, 9]), to_begin=0).eval()
    array([0, 3, 5], dtype=int32)
    """
    node = diff(ravel(as_node(ary)))
    ends = [None if e is None else ravel(as_node(e, node.dtype)) for e in (to_begin, to_end)]
    parts = [ends[0], node, ends[1]]
    return concatenate([cast(part, node.dtype) for part in parts if part is not None])


@documented
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Estimate derivatives by differences of second order inside and of a chosen order at the ends.

    f: Node or array of samples; ints become floats.
    *varargs: Distances of the samples: one number for all axes, or for each axis a number or the
        coordinates of its samples.
    axis: The axis or axes; all unless said.
    edge_order: 1 or 2: the order of the differences at the ends.
    returns (Node, or a tuple of Node with one for each of several axes): Of the shape of `f`.
        Inside, with distances ``h`` before and ``k`` behind, the derivative of the parabola through
        three neighbours.
    raises ShapeError: If there are not as many distances as axes, coordinates do not fit, or an
        axis has not more than `edge_order` elements.

    >>> mg.gradient([1.0, 4.0, 9.0, 16.0]).eval()
    array([3., 4., 6., 7.], dtype=float32)
    """
    node = floating(f)
    call = Call(GRADIENT, (node,))
    axes = list(range(node.ndim)) if axis is None else axes_of(call, axis, node.ndim)
    if edge_order not in (1, 2):
        raise call.shape_error(f"edge_order={edge_order}", need="1 or 2")
    spaces: Sequence[Any] = varargs
    if len(varargs) == 0:
        spaces = [1.0] * len(axes)
    elif len(varargs) == 1:
        spaces = list(varargs) * len(axes)
    if len(spaces) != len(axes):
        raise call.shape_error(f"{len(spaces)} distances for {len(axes)} axes", need="as many")
    slopes = [
        _slope(call, node, each, space, edge_order)
        for each, space in zip(axes, spaces, strict=True)
    ]
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def _slope(call: Call, node: Node, axis: int, space: Any, order: int) -> Node:
    extent = node.shape[axis]
    if isinstance(extent, int) and extent < order + 1:
        raise call.shape_error(
            f"axis {axis} of extent {extent} for edge_order={order}", need=f"at least {order + 1}"
        )
    distance = as_dtype(space, node.dtype)
    if distance.ndim > 1:
        raise call.shape_error(f"coordinates of {distance.ndim} axes", need="a number or one axis")
    count = extent - 1
    if distance.ndim:
        call.unify(distance.shape[0], extent, "numbers of coordinates and of samples")
        steps = diff(distance)
    else:
        steps = broadcast_to(distance, (count,))
    line: list[Extent] = [1] * node.ndim
    line[axis] = count
    steps = reshape(steps, line)
    rise = divide(diff(node, axis=axis), steps)

    def piece(x: Node, start: Extent, length: Extent) -> Node:
        return cut(x, axis, start, length)

    first, last = piece(rise, 0, 1), piece(rise, count - 1, 1)
    if isinstance(extent, int) and extent == 2:
        return concatenate([first, last], axis)
    inside = count - 1
    before, behind = piece(steps, 0, inside), piece(steps, 1, inside)
    left, right = piece(rise, 0, inside), piece(rise, 1, inside)
    # The slope of the parabola: each side's rise, weighted by the other side's distance.
    middle = divide(add(multiply(left, behind), multiply(right, before)), add(before, behind))
    if order == 2:
        first, last = _near(piece, rise, steps), _far(piece, rise, steps, count)
    return concatenate([first, middle, last], axis)


def _near(piece: Callable[..., Node], rise: Node, steps: Node) -> Node:
    """Return the slope, at its first point, of the parabola through the first three samples."""
    h, k = piece(steps, 0, 1), piece(steps, 1, 1)
    bend = divide(subtract(piece(rise, 1, 1), piece(rise, 0, 1)), add(h, k))
    return subtract(piece(rise, 0, 1), multiply(bend, h))


def _far(piece: Callable[..., Node], rise: Node, steps: Node, count: Extent) -> Node:
    """Return the slope, at its last point, of the parabola through the last three samples."""
    h, k = piece(steps, count - 2, 1), piece(steps, count - 1, 1)
    bend = divide(subtract(piece(rise, count - 1, 1), piece(rise, count - 2, 1)), add(h, k))
    return add(piece(rise, count - 1, 1), multiply(bend, k))


@documented
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Node:
    """Integrate along an axis by the trapezoidal rule.

    y: Node or array of samples; ints become floats.
    x: Their coordinates: of one axis, or of the shape of `y`.
    dx: Their distance, where there are no coordinates.
    axis: The axis.
    returns: Of the float dtype, without the axis.
    raises ShapeError: If the coordinates do not fit.

    >>> mg.trapezoid([1.0, 2.0, 3.0]).eval()
    array(4., dtype=float32)
    """
    node = floating(y)
    call = Call(TRAPEZOID, (node,))
    axis = call.axis(axis, node.ndim)
    if isinstance(node.shape[axis], int) and node.shape[axis] == 0:
        return sum(node, axis=axis)
    before, behind = _neighbours(node, axis)
    if x is None:
        widths = as_dtype(dx, node.dtype)
        if widths.ndim == 1:
            widths = reshape(widths, [-1 if a == axis else 1 for a in range(node.ndim)])
    else:
        places = cast(x, node.dtype)
        if places.ndim == 1:
            widths = diff(places)
            widths = reshape(widths, [-1 if a == axis else 1 for a in range(node.ndim)])
        else:
            widths = diff(places, axis=axis)
    return sum(multiply(multiply(add(before, behind), 0.5), widths), axis=axis)


@documented
def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Node:
    """Take the cross product of vectors.

    a, b: Nodes or arrays of vectors of three elements (or two, whose third is 0); the other axes
        broadcast.
    axisa, axisb, axisc: The axes of the vectors of `a`, of `b` and of the result.
    axis: The three of them at once.
    returns: Vectors of three elements; of two vectors of two elements the third component alone.
    raises ShapeError: If the vectors have other extents, or the other axes do not broadcast.

    >>> mg.cross(mg.constant([1, 0, 0]), mg.constant([0, 1, 0])).eval()
    array([0, 0, 1], dtype=int32)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    first, second = promoted(a, b)
    call = Call(CROSS, (first, second))
    first = moveaxis(first, call.axis(axisa, first.ndim, "axisa"), -1)
    second = moveaxis(second, call.axis(axisb, second.ndim, "axisb"), -1)
    for node in (first, second):
        if node.shape[-1] not in (2, 3):
            raise call.shape_error(f"vectors of {node.shape[-1]} elements", need="3, or 2")
    call.broadcast(first.shape[:-1], second.shape[:-1])
    x, y = ([node[..., i] for i in range(node.shape[-1])] for node in (first, second))
    if len(x) == len(y) == 2:
        return subtract(multiply(x[0], y[1]), multiply(x[1], y[0]))
    zero = as_node(0, first.dtype)
    x, y = ([*each, zero][:3] for each in (x, y))
    parts = [
        subtract(multiply(x[i], y[j]), multiply(x[j], y[i])) for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    shape = call.broadcast(first.shape[:-1], second.shape[:-1])
    result = stack([broadcast_to(part, shape) for part in parts], -1)
    return moveaxis(result, -1, call.axis(axisc, result.ndim, "axisc"))


@documented
def unwrap(
    p: Any, discont: float | None = None, axis: int = -1, *, period: float = 2.0 * math.pi
) -> Node:
    """Remove jumps of whole periods between neighbours.

    p: Node or array of phases; ints become floats.
    discont: The least difference that counts as a jump; half a period unless said.
    axis: The axis.
    period: The period.
    returns: Of the shape of `p`: each jump of at least `discont` is brought below half a period.
        The gradient is that of `p`.

    >>> mg.unwrap([0.0, 0.5, 6.5, 7.0], period=6.0).eval()
    array([0. , 0.5, 0.5, 1. ], dtype=float32)
    """
    node = floating(p)
    call = Call(UNWRAP, (node,))
    axis = call.axis(axis, node.ndim)
    half = period / 2.0
    step = diff(node, axis=axis)
    folded = remainder(step + half, period) - half
    folded = where(logical_and(equal(folded, -half), greater(step, 0)), half, folded)
    least = half if discont is None else (discont if discont > half else half)
    change = where(less(absolute(step), least), 0.0, stop_gradient(subtract(folded, step)))
    line = (*node.shape[:axis], 1, *node.shape[axis + 1 :])
    nothing = broadcast_to(as_node(0.0, node.dtype), line)
    return add(node, concatenate([nothing, cumsum(change, axis=axis)], axis))


_LINE = np.array([0.5, 2.0, 1.0, 4.0, 3.5])
_PLACES = np.array([0.0, 0.4, 1.0, 1.3, 2.5])
_VECTORS = np.array([[1.0, 2.0, -0.5], [0.3, -1.0, 2.0]])


_record = partial(namesake, Kind.INDEX, numerics="reassoc")


def _diff_reference(a: np.ndarray, **options: Any) -> np.ndarray:
    return np.diff(a, **options)


def _cross_reference(a: np.ndarray, b: np.ndarray, **options: Any) -> Any:
    if options:
        return np.cross(a, b, **options)
    if a.shape[-1] == b.shape[-1] == 2:
        return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    a, b = (
        np.concatenate([x, np.zeros_like(x[..., :1])], -1) if x.shape[-1] == 2 else x
        for x in (a, b)
    )
    return np.cross(a, b)


DIFF = _record(
    diff,
    "Differences of neighbours along an axis.",
    [
        Sample((CUBE,)),
        Sample((CUBE,), {"n": 2, "axis": 1}),
        Sample((CUBE,), {"n": 0}),
        Sample((_LINE,), {"prepend": 0.0, "append": [9, 1]}),
        Sample((np.array([True, True, False]),)),
        Sample((np.array([5]),)),
    ],
    [
        ((MATRIX,), ShapeError, "diff: n=-1", {"n": -1}),
        ((MATRIX,), ShapeError, "diff: n=-1", {"n": -1}),
    ],
    reference=_diff_reference,
)
EDIFF1D = _record(
    ediff1d,
    "Differences of neighbours in the raveled array.",
    [Sample((MATRIX,)), Sample((MATRIX,), {"to_end": [7.0, 8.0], "to_begin": 0.0})],
)
GRADIENT = _record(
    gradient,
    "Derivatives estimated by differences.",
    [
        Sample((_LINE,)),
        Sample((CUBE,)),
        Sample((CUBE, 0.5), {"axis": 1, "edge_order": 2}),
        Sample((_LINE, _PLACES), {"edge_order": 2}),
        Sample((MATRIX, 2.0, np.array([0.0, 1.0, 3.0]))),
    ],
    [
        ((MATRIX, 1.0, 2.0, 3.0), ShapeError, "gradient: 3 distances for 2 axes"),
        (
            (MATRIX,),
            ShapeError,
            "gradient: axis 0 of extent 2 for edge_order=2",
            {"edge_order": 2, "axis": 0},
        ),
    ],
)
TRAPEZOID = _record(
    trapezoid,
    "The integral along an axis by the trapezoidal rule.",
    [
        Sample((CUBE,), {"dx": 0.5}),
        Sample((_LINE, _PLACES)),
        Sample((MATRIX, np.array([0.0, 2.0])), {"axis": 0}),
        Sample((MATRIX, np.cumsum(np.abs(MATRIX), 1))),
    ],
)
CROSS = _record(
    cross,
    "The cross product of vectors.",
    [
        Sample((_VECTORS, _VECTORS[::-1] + 0.5)),
        Sample((_VECTORS.T, _VECTORS[0]), {"axisa": 0, "axisc": 0}),
        Sample((_VECTORS[:, :2], _VECTORS[0])),
        Sample((_VECTORS[:, :2], _VECTORS[::-1, :2])),
    ],
    [((np.ones(4), np.ones(3)), ShapeError, "cross: vectors of 4 elements")],
    reference=_cross_reference,
)
UNWRAP = _record(
    unwrap,
    "Without jumps of whole periods between neighbours.",
    [
        Sample((np.array([0.3, 2.5, 5.9, 0.4, 3.0, -3.1]),)),
        Sample((np.array([[0.3, 0.1], [0.9, 0.95]]),), {"axis": 0, "period": 1.0, "discont": 0.7}),
    ],
)

RECORDS = (DIFF, EDIFF1D, GRADIENT, TRAPEZOID, CROSS, UNWRAP)
