"""Sets of values: unique elements, unions, intersections, differences, with as many as `size`.

How many elements differ is known only when a graph runs; see `ops.indexing.selecting`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...dtypes import is_complex, is_inexact
from ...errors import ShapeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, REAL, BadSample, Call, Composite, Kind, Sample, Tests
from ..convert import as_dtype, as_node, cast, promoted
from ..elementwise.arithmetic import subtract
from ..elementwise.bits import logical_and, logical_not
from ..elementwise.comparison import less, minimum, not_equal, where
from ..elementwise.complex_numbers import imag, real
from ..elementwise.family import publish
from ..elementwise.rounding import isnan
from ..leaf import constant
from ..reduction.cumulative import cumsum
from ..reduction.folding import extent_product
from ..reduction.primitives import any
from ..shape.arrange import moveaxis, ravel, reshape
from ..shape.joining import broadcast_to, concatenate, stack
from ..shape.slicing import cut
from .finding import FOUND, sized
from .gathering import size_of, take
from .iota import INT64
from .row_order import ROW_ORDER
from .selecting import isin
from .sorting import argsort
from .updates import UPDATE

__all__ = [
    "UniqueAll",
    "UniqueCounts",
    "UniqueInverse",
    "intersect1d",
    "setdiff1d",
    "setxor1d",
    "union1d",
    "unique",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]

_INSTEAD = "mg.sort(mg.ravel(x)), which keeps every element"


class UniqueAll(NamedTuple):
    """Different values, where each stands first, what each element is, and how often."""

    values: Node
    indices: Node
    inverse_indices: Node
    counts: Node


class UniqueCounts(NamedTuple):
    """Different values and how often each occurs."""

    values: Node
    counts: Node


class UniqueInverse(NamedTuple):
    """Different values and which of them each element is."""

    values: Node
    inverse_indices: Node


def _differing(
    record: Composite,
    x: Any,
    size: Any,
    fill_value: Any,
    equal_nan: bool,
    axis: int | None = None,
) -> UniqueAll:
    """Find the different elements; with an axis, the different parts along it."""
    node = as_node(x)
    extent = sized(record, (node,), size, _INSTEAD)
    if axis is None:
        line, shape = ravel(node), node.shape
    else:
        axis = Call(record, (node,)).axis(axis, node.ndim)
        line = moveaxis(node, axis, 0)
        shape = line.shape[:1]
    count, rest = line.shape[0], line.shape[1:]

    def back(parts: Node) -> Node:
        return parts if axis is None else moveaxis(parts, 0, axis)

    if isinstance(count, int) and not count:
        filled = as_dtype(0 if fill_value is None else fill_value, line.dtype)
        nothing = broadcast_to(constant(0, dtype=INT64), (extent,))
        whole = broadcast_to(filled, (extent, *rest))
        none = broadcast_to(constant(0, dtype=INT64), shape)
        return UniqueAll(back(whole), nothing, none, nothing)
    if axis is None:
        order, rows = _order(line), line
    else:
        parts = stack([real(line), imag(line)], -1) if is_complex(line.dtype) else line
        width = extent_product(parts.shape, tuple(range(1, parts.ndim)))
        rows = reshape(parts, (count, width))
        order = ROW_ORDER(rows)
    ordered = take(rows, order, axis=0)
    before, behind = cut(ordered, 0, 0, count - 1), cut(ordered, 0, 1, count - 1)
    new = not_equal(behind, before)
    if axis is not None:
        new = any(new, axis=1)
    elif equal_nan and is_inexact(line.dtype):
        new = logical_and(new, logical_not(logical_and(isnan(behind), isnan(before))))
    new = concatenate([constant(np.ones(1, bool)), new])
    marks = FOUND(new, size=extent + 1)
    starts = cut(marks, 0, 0, extent)
    there = less(starts, size_of(count))
    group = subtract(cumsum(new), 1)
    empty = broadcast_to(constant(0, dtype=INT64), (count,))
    inverse = UPDATE(empty, order, group, how="set", mode="clip")
    ends = cut(marks, 0, 1, extent)
    positions = take(order, where(there, starts, 0), axis=0)
    values = take(line, positions, axis=0)
    if fill_value is not None:
        present = reshape(there, (extent, *[1] * len(rest)))
        values = where(present, values, as_dtype(fill_value, line.dtype))
    counts = where(there, subtract(ends, starts), 0)
    return UniqueAll(back(values), positions, reshape(inverse, shape), counts)


def _order(line: Node) -> Node:
    """Return the positions that sort a line.

    Complex numbers are sorted by their real parts, equal ones of these by their imaginary parts;
    those with a NaN come last, as in NumPy.
    """
    if not is_complex(line.dtype):
        return argsort(line)
    order = argsort(imag(line))
    for key in (real(line), isnan(line)):  # each sort is stable
        order = take(order, argsort(take(key, order, axis=0)), axis=0)
    return order


@documented
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: Any = None,
    fill_value: Any = None,
) -> Any:
    """Find the different elements of an array, in ascending order.

    ar: Node or array; it is raveled, unless there is an axis.
    return_index, return_inverse, return_counts: Return, beside the values: where each stands first
        in the raveled array (along the axis), the position of each element of `ar` (part along the
        axis) among the values, and how often each occurs.
    axis: Find the different parts along this axis, whole rows or columns, by their elements' order.
    equal_nan: Whether all NaN are one value. Parts with NaN never equal another, as in NumPy.
    size: How many values to return: an int, a name or a Dim. Larger values than fit are left out
        (positions among the values count them all the same).
    fill_value: What stands for values that are missing, the smallest one unless said; they occur 0
        times.
    returns (Node, or a tuple of Node): The values, of extent `size` (along the axis) and the dtype
        of `ar`, and what else was asked for (int64). The gradient of a value goes to the element
        that stands first.
    raises ShapeError: Without `size`, or if the axis is out of range.

    >>> values, counts = mg.unique(mg.constant([3, 1, 3, 2]), return_counts=True, size=4)
    >>> values.eval(), counts.eval()
    (array([1, 2, 3, 1], dtype=int32), array([1, 1, 2, 0]))
    >>> mg.unique(mg.constant([[2, 1], [0, 5], [2, 1]]), axis=0, size=2).eval()
    array([[0, 5],
           [2, 1]], dtype=int32)
    """
    distinct = _differing(UNIQUE, ar, size, fill_value, equal_nan, axis)
    requests = (True, return_index, return_inverse, return_counts)
    parts = tuple(part for part, requested in zip(distinct, requests, strict=True) if requested)
    return parts[0] if len(parts) == 1 else parts


@documented
def unique_all(x: Any, /, *, size: Any = None, fill_value: Any = None) -> UniqueAll:
    """Find the different elements, where each stands first, what each element is, and how often.

    x: Node or array. No NaN equals another.
    size, fill_value: See `unique`.
    returns (UniqueAll): Named: ``values``, ``indices``, ``inverse_indices``, ``counts``.
    raises ShapeError: Without `size`.

    >>> mg.unique_all(mg.constant([3, 1, 3]), size=2).inverse_indices.eval()
    array([1, 0, 1])
    """
    return _differing(UNIQUE_ALL, x, size, fill_value, False)


@documented
def unique_counts(x: Any, /, *, size: Any = None, fill_value: Any = None) -> UniqueCounts:
    """Find the different elements and how often each occurs.

    x: Node or array. No NaN equals another.
    size, fill_value: See `unique`.
    returns (UniqueCounts): Named: ``values``, ``counts``.
    raises ShapeError: Without `size`.

    >>> mg.unique_counts(mg.constant([3, 1, 3]), size=2).counts.eval()
    array([1, 2])
    """
    distinct = _differing(UNIQUE_COUNTS, x, size, fill_value, False)
    return UniqueCounts(distinct.values, distinct.counts)


@documented
def unique_inverse(x: Any, /, *, size: Any = None, fill_value: Any = None) -> UniqueInverse:
    """Find the different elements and which of them each element is.

    x: Node or array. No NaN equals another.
    size, fill_value: See `unique`.
    returns (UniqueInverse): Named: ``values``, ``inverse_indices``.
    raises ShapeError: Without `size`.

    >>> mg.unique_inverse(mg.constant([3, 1, 3]), size=2).inverse_indices.eval()
    array([1, 0, 1])
    """
    distinct = _differing(UNIQUE_INVERSE, x, size, fill_value, False)
    return UniqueInverse(distinct.values, distinct.inverse_indices)


@documented
def unique_values(x: Any, /, *, size: Any = None, fill_value: Any = None) -> Node:
    """Find the different elements.

    x: Node or array. No NaN equals another.
    size, fill_value: See `unique`.
    returns: In ascending order.
    raises ShapeError: Without `size`.

    >>> mg.unique_values(mg.constant([3, 1, 3]), size=2).eval()
    array([1, 3], dtype=int32)
    """
    return _differing(UNIQUE_VALUES, x, size, fill_value, False).values


# Pairs of sets.


def _members(
    record: Composite, line: Node, keep: Callable[[Node], Node], size: Any, fill: Any
) -> Node:
    """Return the distinct elements of a line that a set function keeps."""
    extent = sized(record, (line,), size, "mg.isin(x, y), which keeps every position")
    distinct = _differing(record, line, line.shape[0], None, True)
    real = logical_and(less(0, distinct.counts), keep(distinct.values))
    places = FOUND(real, size=extent)
    there = less(places, size_of(line.shape[0]))
    values = take(distinct.values, minimum(places, size_of(line.shape[0] - 1)), axis=0)
    if fill is None:
        return where(there, values, values[0])
    return where(there, values, as_dtype(fill, line.dtype))


_OF_TWO = """
ar1, ar2: Nodes or arrays; they are raveled, their dtypes promoted.
size: See `unique`.
fill_value: What stands for values that are missing; the smallest one unless said.
returns: {returns}
raises ShapeError: Without `size`.
"""


class OfTwoSets(Protocol):
    """A set made of two, as users call it."""

    def __call__(self, ar1: Any, ar2: Any, *, size: Any = None, fill_value: Any = None) -> Node:
        """Find the different elements."""


def _of_two(
    name: str,
    summary: str,
    example: str,
    find: Callable[[Composite, Node, Node, Any, Any], Node],
    returns: str = "In ascending order.",
) -> OfTwoSets:
    """Make a function of two arrays; `find` gets its record, both lines, `size` and the filler."""

    def function(ar1: Any, ar2: Any, *, size: Any = None, fill_value: Any = None) -> Node:
        first, second = promoted(ar1, ar2)
        return find(_PAIRS[name], ravel(first), ravel(second), size, fill_value)

    publish(function, name, __name__, summary, _OF_TWO.format(returns=returns), example)
    return function


def _union(record: Composite, x: Node, y: Node, size: Any, fill: Any) -> Node:
    return _differing(record, concatenate([x, y]), size, fill, True).values


def _intersection(record: Composite, x: Node, y: Node, size: Any, fill: Any) -> Node:
    return _members(record, x, lambda values: isin(values, y), size, fill)


def _difference(record: Composite, x: Node, y: Node, size: Any, fill: Any) -> Node:
    return _members(record, x, lambda values: isin(values, y, invert=True), size, fill)


def _one_sided(record: Composite, x: Node, y: Node, size: Any, fill: Any) -> Node:
    def keep(values: Node) -> Node:
        return not_equal(cast(isin(values, x), INT64), cast(isin(values, y), INT64))

    return _members(record, concatenate([x, y]), keep, size, fill)


union1d = _of_two(
    "union1d",
    "Find the different elements of two arrays together.",
    """
    >>> mg.union1d(mg.constant([3, 1]), mg.constant([2, 3]), size=3).eval()
    array([1, 2, 3], dtype=int32)
    """,
    _union,
)
intersect1d = _of_two(
    "intersect1d",
    "Find the different elements that two arrays share.",
    """
    >>> mg.intersect1d(mg.constant([3, 1]), mg.constant([2, 3]), size=2, fill_value=-1).eval()
    array([ 3, -1], dtype=int32)
    """,
    _intersection,
    "In ascending order. NaN is not shared.",
)
setdiff1d = _of_two(
    "setdiff1d",
    "Find the different elements of one array that another does not have.",
    """
    >>> mg.setdiff1d(mg.constant([3, 1, 4]), mg.constant([2, 3]), size=2).eval()
    array([1, 4], dtype=int32)
    """,
    _difference,
)
setxor1d = _of_two(
    "setxor1d",
    "Find the different elements that only one of two arrays has.",
    """
    >>> mg.setxor1d(mg.constant([3, 1]), mg.constant([2, 3]), size=2).eval()
    array([1, 2], dtype=int32)
    """,
    _one_sided,
)


# Records.

_VALUES = np.array([[2.5, -1.0, 2.5], [0.5, -1.0, 7.0]])
_HOLES = np.array([np.nan, 1.0, np.nan, 1.0, -np.inf])
_WHOLE = np.array([3, 1, 3, 2, 9])
_PARTS = np.array([[[2.0, 0.5], [1.0, 4.0]], [[1.5, 0.5], [1.0, 3.0]], [[2.0, 0.5], [1.0, 4.0]]])
_TIES = "ties"


def _filled(values: np.ndarray, size: int, fill: Any) -> np.ndarray:
    start = values[0] if fill is None and len(values) else 0 if fill is None else fill
    result = np.empty((size, *values.shape[1:]), values.dtype)
    result[:] = start
    result[: len(values)] = values[:size]
    return result


def _unique_reference(
    x: np.ndarray, *flags: bool, size: int, fill_value: Any = None, **options: Any
) -> Any:
    kinds = ("return_index", "return_inverse", "return_counts")
    requests = dict(zip(kinds, flags, strict=False)) | {k: options.pop(k, False) for k in kinds}
    result = np.unique(x, **options, **requests)
    parts = list(result) if isinstance(result, tuple) else [result]
    axis = options.get("axis")
    if axis is None:
        results = [_filled(parts.pop(0), size, fill_value)]
    else:
        whole = _filled(np.moveaxis(parts.pop(0), axis, 0), size, fill_value)
        results = [np.moveaxis(whole, 0, axis)]
    if requests["return_index"]:
        results.append(_filled(parts.pop(0), size, None))
    if requests["return_inverse"]:
        results.append(parts.pop(0).reshape(x.shape if axis is None else -1))
    if requests["return_counts"]:
        results.append(_filled(parts.pop(0), size, 0))
    return results


def _standard_reference(name: str) -> Callable[..., Any]:
    def reference(x: np.ndarray, size: int, fill_value: Any = None) -> Any:
        result: Any = getattr(np, name)(x)
        if not hasattr(result, "_asdict"):
            return _filled(np.sort(result), size, fill_value)
        results = []
        for field, part in result._asdict().items():
            if field == "inverse_indices":
                results.append(part)
            else:
                fill = {"values": fill_value, "indices": None, "counts": 0}[field]
                results.append(_filled(part, size, fill))
        return results

    return reference


def _pair_reference(name: str) -> Callable[..., Any]:
    def reference(x: np.ndarray, y: np.ndarray, size: int, fill_value: Any = None) -> Any:
        return _filled(getattr(np, name)(x, y), size, fill_value)

    return reference


def _unsized(name: str) -> Callable[[], list[BadSample]]:
    text = f"{name}: the number of elements found is known only when it runs"
    pair = name.endswith("1d")
    return lambda: [BadSample((_VALUES, _VALUES) if pair else (_VALUES,), ShapeError, text)]


def _record(name: str, doc: str, samples: list[Sample], reference: Callable[..., Any]) -> Composite:
    return Composite(
        name=name,
        kind=Kind.INDEX,
        dtypes=REAL if name in ("intersect1d", "setdiff1d", "setxor1d") else INEXACT,
        function=globals()[name],
        doc=doc,
        tests=Tests(samples=lambda: samples, bad_samples=_unsized(name), reference=reference),
        numerics="exact",
    )


_ALL = {"return_index": True, "return_inverse": True, "return_counts": True}
UNIQUE = _record(
    "unique",
    "The different elements of an array.",
    [
        Sample((_VALUES,), {"size": 5, **_ALL}, gradient=(), reason=_TIES),
        Sample((_VALUES,), {"size": 3, "return_counts": True}, gradient=(), reason=_TIES),
        Sample((_VALUES + np.arange(6.0).reshape(2, 3) / 4,), {"size": 6}),
        Sample((_HOLES,), {"size": 4, "fill_value": 0, **_ALL}, gradient=(), reason=_TIES),
        Sample((_HOLES,), {"size": 5, "equal_nan": False}, gradient=(), reason=_TIES),
        Sample((_WHOLE,), {"size": 6, "fill_value": -1, "return_inverse": True}),
        Sample((np.zeros((0, 2)),), {"size": 2, **_ALL}, gradient=(), reason="no elements"),
        Sample((_WHOLE,), {"size": 0, "return_counts": True}),
        Sample((_PARTS,), {"size": 4, "axis": 0, **_ALL}, gradient=(), reason=_TIES),
        Sample((_PARTS,), {"size": 2, "axis": 1, "fill_value": 9}, gradient=(), reason=_TIES),
        Sample((_PARTS,), {"size": 3, "axis": -1}, gradient=(), reason=_TIES),
        Sample((_PARTS + np.arange(3.0)[:, None, None],), {"size": 3, "axis": 0}),
        Sample((_PARTS > 1.0,), {"size": 3, "axis": 0, **_ALL}),
        Sample((np.zeros((0, 2)),), {"size": 2, "axis": 0, **_ALL}, gradient=(), reason="none"),
    ],
    _unique_reference,
)
UNIQUE_ALL, UNIQUE_COUNTS, UNIQUE_INVERSE, UNIQUE_VALUES = (
    _record(
        name,
        doc,
        [
            Sample((_VALUES,), {"size": 5}, gradient=(), reason=_TIES),
            Sample((_WHOLE,), {"size": 4}),
        ],
        _standard_reference(name),
    )
    for name, doc in (
        ("unique_all", "The different elements, and all that is known of them."),
        ("unique_counts", "The different elements and how often each occurs."),
        ("unique_inverse", "The different elements and which of them each element is."),
        ("unique_values", "The different elements."),
    )
)
_OTHERS = np.array([2.5, 4.0, -3.0, 7.0])
_PAIRS = {
    name: _record(
        name,
        doc,
        [
            Sample((_VALUES, _OTHERS), {"size": 8}, gradient=(), reason=_TIES),
            Sample((_VALUES, _OTHERS), {"size": 3, "fill_value": 0}, gradient=(), reason=_TIES),
            Sample((_WHOLE, np.array([9, 4, 3])), {"size": 2}),
        ],
        _pair_reference(name),
    )
    for name, doc in (
        ("union1d", "The different elements of two arrays together."),
        ("intersect1d", "The different elements that two arrays share."),
        ("setdiff1d", "The different elements that another array does not have."),
        ("setxor1d", "The different elements that only one of two arrays has."),
    )
}

RECORDS = (
    UNIQUE,
    UNIQUE_ALL,
    UNIQUE_COUNTS,
    UNIQUE_INVERSE,
    UNIQUE_VALUES,
    *_PAIRS.values(),
)
