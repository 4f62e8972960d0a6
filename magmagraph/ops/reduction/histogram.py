"""Counting: bincount, and histograms of one and two variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import DTypeError, ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ...ir.types import Extent, Operand, Operands
from ..convert import as_dtype, as_node, cast
from ..elementwise.arithmetic import add, divide, multiply, subtract
from ..elementwise.bits import logical_and
from ..elementwise.comparison import equal, greater_equal, less, where
from ..elementwise.family import floating, floating_pair
from ..indexing.gathering import SCATTER_ADD, size_of
from ..indexing.iota import INT32, INT64
from ..indexing.sorting import searchsorted
from ..leaf import real_array
from ..shape.arrange import expand_dims, ravel, reshape
from ..shape.joining import broadcast_to
from ..shape.slicing import cut
from ..shape.spacing import linspace
from .primitives import max, min, sum

__all__ = ["bincount", "histogram", "histogram2d", "histogram_bin_edges"]


def _counted(places: Node, inside: Node, weights: Node | None, length: Extent) -> Node:
    """Add up weights (or ones) at positions, those that lie inside."""
    at = where(inside, places, 0)
    if weights is not None:
        ones = where(inside, weights, 0)
    elif isinstance(inside.size, int) and inside.size < 2**31:
        ones = cast(inside, INT32)  # half of the bytes to read; no count is larger
    else:
        ones = cast(inside, INT64)
    sums = SCATTER_ADD(ravel(ones), ravel(at), axis=0, extent=length, mode="clip")
    return cast(sums, INT64) if weights is None else sums


@documented
def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: Any = None) -> Node:
    """Count how often each number occurs, or add up the weights of each.

    x: Integers, of any shape. Negative ones, and those of `length` and above, count for nothing.
    weights: What each is worth, of the shape of `x`; 1 unless said.
    minlength: Of constant numbers, the least extent of the result.
    length: Extent of the result: an int, a name or a Dim. Needed where the numbers are not
        constant.
    returns: int64, or of the dtype of the weights; entry i for the number i. The gradient flows to
        the weights.
    raises DTypeError: If the numbers are not integers.
    raises ShapeError: If neither the numbers nor `length` tell the extent of the result.

    >>> mg.bincount(mg.constant([0, 1, 1, 3]), length=5).eval()
    array([1, 2, 0, 1, 0])
    """
    node = as_node(x)
    call = Call(BINCOUNT, (node,))
    if node.dtype.kind not in "iub":
        raise call.dtype_error(
            f"numbers of dtype {node.dtype.name}", need="integers", hint="mg.cast(x, 'int32')"
        )
    extent: Extent
    value = node.attrs.get("value")
    if length is not None:
        extent = dims.parse_shape((length,))[0]
    elif value is not None:
        largest = int(value.max()) + 1 if value.size else 0
        extent = largest if largest > minlength else int(minlength)
    else:
        raise call.shape_error(
            "the largest number is known only when it runs",
            need="length=, the extent of the result",
        )
    # Positions of 32 bits are half of the bytes to read.
    narrow = node.dtype.name == "int32" and isinstance(extent, int) and extent < 2**31
    places = node if narrow else cast(node, INT64)
    inside = logical_and(greater_equal(places, 0), less(places, size_of(extent)))
    worth = None if weights is None else broadcast_to(as_node(weights), node.shape)
    return _counted(places, inside, worth, extent)


class Histogram(NamedTuple):
    """Counts and the edges of their bins."""

    hist: Node
    bin_edges: Node


class Histogram2D(NamedTuple):
    """Counts and the edges of their bins along both axes."""

    hist: Node
    x_edges: Node
    y_edges: Node


@documented
def histogram_bin_edges(
    a: Any, bins: Operand = 10, range: Operands | None = None, weights: Any = None
) -> Node:
    """Return the edges of bins of equal width, as `histogram` uses them.

    a: The values, a node or array.
    bins: How many bins; or the edges themselves, which are returned.
    range: ``(low, high)``; the smallest and the largest value unless said.
    weights: Without influence.
    returns: Of one axis, floats; one more than there are bins.
    raises ShapeError: If there is not at least one bin, or the range is not finite or runs
        downwards.

    >>> mg.histogram_bin_edges([0.0, 1.0, 4.0], bins=4).eval()
    array([0., 1., 2., 3., 4.], dtype=float32)
    """
    node = floating(a)
    return _edges(Call(HISTOGRAM_BIN_EDGES, (node,)), node, bins, range)


def _several(call: Call, name: str, values: Any, need: str) -> tuple[Any, Any]:
    """Return the two entries of a value; raise where it has not two."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise call.shape_error(f"{name}={values!r}", need=need)
    entries = tuple(values)
    if len(entries) != 2:
        raise call.shape_error(f"{len(entries)} entries of {name}", need=need)
    return entries[0], entries[1]


def _edges(call: Call, node: Node, bins: Any, limits: Any) -> Node:
    """Return the edges of the bins of a call's values; refusals name the call's function."""
    if not isinstance(bins, (int, np.integer)):
        edges = cast(bins, node.dtype)
        if edges.ndim != 1:
            raise call.shape_error(f"edges of {edges.ndim} axes", need="one axis, or a number")
        if isinstance(edges.shape[0], int) and edges.shape[0] < 2:
            raise call.shape_error(f"{edges.shape[0]} edges", need="two or more, or a number")
        return edges
    if bins < 1:
        raise call.shape_error(f"bins={bins}", need="at least one bin")
    if limits is not None:
        limits = _several(call, "range", limits, "two numbers: the ends")
    static = limits is not None and not any(isinstance(limit, Node) for limit in limits)
    if static:
        limits = real_array("range", list(limits)).tolist()
    if static and not (np.isfinite(limits).all() and limits[0] <= limits[1]):
        raise call.shape_error(
            f"range=({limits[0]}, {limits[1]})", need="finite numbers, the smaller one first"
        )
    if limits is None:
        if isinstance(node.size, int) and node.size == 0:
            low, high = as_node(0.0, node.dtype), as_node(1.0, node.dtype)
        else:
            low, high = min(node), max(node)
    else:
        low, high = (as_dtype(limit, node.dtype) for limit in limits)
    flat = equal(low, high)
    low, high = where(flat, low - 0.5, low), where(flat, high + 0.5, high)
    edges = linspace(low, high, int(bins) + 1)
    assert isinstance(edges, Node)
    return edges


def _bin(edges: Node, values: Node) -> tuple[Node, Node]:
    """Return each value's bin, and whether it has one; the last bin holds both of its edges."""
    count = size_of(edges.shape[0])
    last = equal(values, cut(edges, 0, edges.shape[0] - 1, 1))
    places = subtract(searchsorted(edges, values, side="right"), 1)
    places = where(last, count - 2, places)
    return places, logical_and(greater_equal(places, 0), less(places, count - 1))


def _widths(edges: Node) -> Node:
    count = edges.shape[0] - 1
    return subtract(cut(edges, 0, 1, count), cut(edges, 0, 0, count))


@documented
def histogram(
    a: Any,
    bins: Operand = 10,
    range: Operands | None = None,
    density: bool = False,
    weights: Any = None,
) -> Histogram:
    """Count how many values lie in each bin.

    a: The values, a node or array of any shape.
    bins: How many bins of equal width; or their edges in ascending order.
    range: ``(low, high)`` for a number of bins; the smallest and the largest value unless said.
        Values outside count for nothing.
    density: Divide by the total and by the widths, so that the integral is 1.
    weights: What each value counts, of the shape of `a`; 1 unless said.
    returns (Histogram): A named pair: ``hist`` (int64; the dtype of the weights; or floats for a
        density) and ``bin_edges``. A bin holds its left edge, the last one its right edge, too. The
        gradient flows to the weights, and to the edges where they are found from `a`.
    raises ShapeError: If there is not at least one bin.

    >>> counts, edges = mg.histogram([0.1, 0.4, 0.45, 0.9, 1.0], bins=2, range=(0.0, 1.0))
    >>> counts.eval(), edges.eval()
    (array([3, 2]), array([0. , 0.5, 1. ], dtype=float32))
    """
    node = floating(a)
    edges = _edges(Call(HISTOGRAM, (node,)), node, bins, range)
    worth = None if weights is None else broadcast_to(as_node(weights, node.dtype), node.shape)
    counts = _counted(*_bin(edges, node), worth, edges.shape[0] - 1)
    if density:
        shares = cast(counts, node.dtype)
        widths = subtract(
            cut(edges, 0, 1, edges.shape[0] - 1), cut(edges, 0, 0, edges.shape[0] - 1)
        )
        counts = divide(divide(shares, widths), sum(shares))
    return Histogram(counts, edges)


@documented
def histogram2d(
    x: Any,
    y: Any,
    bins: Operand = 10,
    range: Sequence[Any] | None = None,
    density: bool = False,
    weights: Any = None,
) -> Histogram2D:
    """Count how many pairs of values lie in each cell of a grid.

    x, y: The values, of one shape.
    bins: How many bins along both axes; or a pair, for each axis a number or edges.
    range: A pair of ``(low, high)``; the smallest and the largest values unless said.
    density: Divide by the total and by the areas, so that the integral is 1.
    weights: What each pair counts; 1 unless said.
    returns (Histogram2D): A named triple: ``hist`` (floats, of shape ``(bins of x, bins of y)``),
        ``x_edges`` and ``y_edges``.
    raises ShapeError: If `x` and `y` have different shapes, or there is not at least one bin.

    >>> counts, _, _ = mg.histogram2d([0.1, 0.2, 0.9], [0.1, 0.8, 0.9], bins=2)
    >>> counts.eval()
    array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    first, second = floating_pair(x, y)
    call = Call(HISTOGRAM2D, (first, second))
    if first.ndim != second.ndim:
        raise call.shape_error(f"values of {first.ndim} and {second.ndim} axes", need="one shape")
    for left, right in zip(first.shape, second.shape, strict=True):
        call.unify(left, right, "extents of x and y")
    counted = isinstance(bins, (int, np.integer))
    each = (bins, bins) if counted else _several(call, "bins", bins, "one int, or a pair")
    limits = (None, None)
    if range is not None:
        limits = _several(call, "range", range, "a pair for each axis")
    rows = _edges(call, first, each[0], limits[0])
    columns = _edges(call, second, each[1], limits[1])
    row, in_row = _bin(rows, first)
    column, in_column = _bin(columns, second)
    high, wide = rows.shape[0] - 1, columns.shape[0] - 1
    worth = broadcast_to(cast(1 if weights is None else weights, first.dtype), first.shape)
    places = add(multiply(row, size_of(wide)), column)
    counts = _counted(places, logical_and(in_row, in_column), worth, high * wide)
    counts = reshape(counts, (high, wide))
    if density:
        areas = multiply(expand_dims(_widths(rows), 1), _widths(columns))
        counts = divide(divide(counts, areas), sum(counts))
    return Histogram2D(counts, rows, columns)


# Records.

_VALUES = np.array([0.1, 0.35, 0.4, 0.95, 2.2, -1.0, 0.7, 1.0])
_OTHERS = np.array([1.3, 0.35, -0.4, 0.2, 0.9, 0.5, 0.75, 1.0])
_WEIGHTS = np.array([0.5, 1.0, 2.0, -1.0, 0.25, 3.0, 1.5, 0.75])
_NUMBERS = np.array([[0, 2, 2], [5, 1, 2]])


def _bincount_reference(
    x: np.ndarray, weights: Any = None, minlength: int = 0, length: int | None = None
) -> np.ndarray:
    flat = x.reshape(-1)
    inside = (flat >= 0) & (flat < (length if length is not None else np.inf))
    worth = None if weights is None else np.asarray(weights).reshape(-1)[inside]
    return np.bincount(flat[inside], worth, minlength if length is None else length)


def _histogram_reference(a: np.ndarray, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    counts, edges = np.histogram(a, **options)
    return counts, np.asarray(edges, np.float64)


BINCOUNT = Composite(
    kind=Kind.INDEX,
    function=bincount,
    tests=Tests(
        samples=lambda: [
            Sample((_NUMBERS,), {"length": 6}),
            Sample((_NUMBERS, _NUMBERS + 0.5), {"length": 4}),
            Sample((np.array([-1, 0, 9]),), {"length": 3}),
            Sample((np.zeros(0, np.int32),), {"length": 2}),
        ],
        bad_samples=lambda: [
            BadSample((_VALUES,), DTypeError, "bincount: numbers of dtype float64", {"length": 2}),
            BadSample(
                (_NUMBERS,), ShapeError, "bincount: the largest number is known only when it runs"
            ),
        ],
        reference=_bincount_reference,
    ),
    numerics="reassoc",
)
HISTOGRAM_BIN_EDGES = Composite(
    kind=Kind.INDEX,
    function=histogram_bin_edges,
    tests=Tests(
        samples=lambda: [
            Sample((_VALUES,), {"bins": 4}),
            Sample((np.ones(3),), {"bins": 2}, gradient=(), reason="ties"),
        ],
        bad_samples=lambda: [
            BadSample((_VALUES,), ShapeError, "histogram_bin_edges: bins=0", {"bins": 0})
        ],
        reference=np.histogram_bin_edges,
    ),
    numerics="reassoc",
)
HISTOGRAM = Composite(
    kind=Kind.INDEX,
    function=histogram,
    tests=Tests(
        samples=lambda: [
            Sample((_VALUES,), {"bins": 3, "range": (-1.5, 2.5)}, gradient=(), reason="counts"),
            Sample((_VALUES,), {"bins": np.array([0.0, 0.5, 1.0])}, gradient=(), reason="counts"),
            Sample(
                (_VALUES,),
                {"bins": 4, "range": (-1.3, 2.3), "density": True},
                gradient=(),
                reason="counts",
            ),
        ],
        bad_samples=lambda: [
            BadSample((_VALUES,), ShapeError, "histogram: bins=0", {"bins": 0})
        ],
        reference=_histogram_reference,
    ),
    numerics="reassoc",
)
HISTOGRAM2D = Composite(
    kind=Kind.INDEX,
    function=histogram2d,
    tests=Tests(
        samples=lambda: [
            Sample(
                (_VALUES, _OTHERS),
                {"bins": (3, 2), "range": ((-1.5, 2.5), (-0.5, 1.5))},
                gradient=(),
                reason="counts",
            ),
            Sample(
                (_VALUES, _OTHERS),
                {"bins": 2, "range": ((-1.5, 2.5), (-0.5, 1.5)), "density": True},
                gradient=(),
                reason="counts",
            ),
        ],
        bad_samples=lambda: [
            BadSample(
                (_VALUES, _OTHERS[:5]),
                ShapeError,
                "histogram2d: extents of x and y differ: 8 and 5",
            ),
            BadSample(
                (_VALUES, _OTHERS),
                ShapeError,
                "histogram2d: range=(2.0, 1.0)",
                {"range": ((2.0, 1.0), (0.0, 1.0))},
            ),
        ],
        reference=np.histogram2d,
    ),
    numerics="reassoc",
)

RECORDS = (BINCOUNT, HISTOGRAM_BIN_EDGES, HISTOGRAM, HISTOGRAM2D)
