"""Order: sorting, the positions that sort, the largest elements, places in a sorted line."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...dtypes import is_float
from ...errors import ShapeError, message
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kernel, Kind, Op, Sample, Tests
from ...ir.types import Extent, Type
from ..convert import as_node, promoted
from ..elementwise.arithmetic import subtract
from ..rules import onnx_forms
from ..rules.sharding import shard_searched
from ..shape.arrange import ravel
from ..shape.pieces import flip
from ..shape.slicing import cut
from .gathering import permuted, size_of, take
from .iota import INT64

__all__ = ["argsort", "digitize", "lexsort", "searchsorted", "sort", "top_k"]

_ROWS = np.linspace(-1.0, 2.0, 12).reshape(4, 3)
_MIXED = np.array([[0.3, -1.2, 2.5, 0.7], [1.1, 0.2, -0.4, 3.0], [-2.0, 0.9, 0.1, -0.6]])
_WITH_NAN = np.array([[2.0, np.nan, -np.inf, 0.5], [np.inf, 1.0, 1.0, -3.0]])


def sortable(x: Any) -> Any:
    """Return an array that NumPy sorts with NaN last: of 16-bit floats its float32 values."""
    return x.astype(np.float32) if is_float(x.dtype) and x.dtype.itemsize < 4 else x


def _argsort_type(call: Call, x: Type, *, axis: int) -> Type:
    call.check_axis(axis, x.ndim)
    return Type(INT64, x.shape)


@documented
def argsort(
    x: Any, axis: int | None = -1, *, descending: bool = False, stable: bool = True
) -> Node:
    """Return the positions that put `x` into order along an axis.

    The sort is stable: equal elements keep their order. NaN stands last.

    x: Node or array of any dtype, with at least one axis.
    axis: The axis; None ravels `x` first.
    descending: Whether the largest comes first; NaN then stands before it.
    stable: Taken for the array API standard's sake: the sort always is.
    returns: int64, of the shape of `x`. No gradient: positions are integers.

    >>> mg.argsort(mg.constant([30, 10, 20])).eval()
    array([1, 2, 0])
    """
    node = as_node(x)
    if axis is None:
        node, axis = ravel(node), 0
    axis = Call(ARGSORT, (node,)).axis(axis, node.ndim)
    if not descending:
        return ARGSORT(node, axis=axis)
    # From the back: equal elements are then kept in their order by the stable sort.
    places = flip(ARGSORT(flip(node, axis), axis=axis), axis)
    return subtract(as_node(size_of(node.shape[axis]) - 1, INT64), places)


def order_room(node: Node) -> Extent:
    """Return how many numbers a thread keeps of a line of which it finds the order."""
    extent: Extent = node.inputs[0].shape[node.attrs["axis"]]
    if node.op is ARGSORT:
        return 2 * extent
    count: Extent = node.attrs["count"]
    if isinstance(extent, int) and isinstance(count, int):
        return builtins.min(extent, 2 * count + 64)
    return extent


def _order_scratch(node: Node, threads: int) -> Extent:
    """Return the bytes of keys and positions of a line for each thread."""
    (x,) = node.inputs
    axis = node.attrs["axis"]
    lines = dims.size((*x.shape[:axis], *x.shape[axis + 1 :]))
    if isinstance(lines, int):
        threads = builtins.min(threads, builtins.max(lines, 1))
    return threads * (16 if x.dtype.itemsize > 4 else 8) * order_room(node)


ARGSORT = Op(
    name="argsort",
    kind=Kind.INDEX,
    rule=_argsort_type,
    evaluate=lambda xp, x, *, axis: xp.argsort(sortable(x), axis=axis, kind="stable"),
    kernel=Kernel(scratch=_order_scratch),
    no_gradient="integer valued",
    batching="axes",
    function=argsort,
    tests=Tests(
        samples=lambda: [
            Sample((_ROWS[::-1],), {"axis": 0}),
            Sample((_ROWS[::-1],), {"axis": None}),
            Sample((np.array([3, 1, 3, 2, 1]),)),
            Sample((np.array([3, 1, 3, 2, 1]),), {"descending": True}),
        ],
        bad_samples=lambda: [
            BadSample(
                (_ROWS,), ShapeError, "argsort: axis=2 is out of range for 2 axes", {"axis": 2}
            )
        ],
        reference=lambda x, axis=-1, descending=False: np.argsort(
            -x if descending else x, axis, kind="stable"
        ),
    ),
    numerics="exact",
    onnx=onnx_forms.ordered(1),
)


# The first positions of an order.


def _first_ordered_type(call: Call, x: Type, *, axis: int, count: Extent, largest: bool) -> Type:
    call.check_axis(axis, x.ndim)
    if not dims.require(x.shape[axis], ">=", count, call.constraints):
        raise call.shape_error(f"{count} positions of an axis of extent {x.shape[axis]}")
    shape = list(x.shape)
    shape[axis] = count
    return Type(INT64, tuple(shape))


def _first_ordered(xp: Any, x: Any, *, axis: int, count: int, largest: bool) -> Any:
    line = sortable(x)
    if largest:  # from the back: of equal elements the first one comes first
        backward = xp.argsort(xp.flip(line, axis), axis=axis, kind="stable")
        order = line.shape[axis] - 1 - xp.flip(backward, axis)
    else:
        order = xp.argsort(line, axis=axis, kind="stable")
    return order[(*[slice(None)] * axis, slice(count))]


FIRST_ORDERED = Op(
    name="first_ordered",
    kind=Kind.INDEX,
    doc="The first positions that sort along an axis, or those of the largest elements.",
    rule=_first_ordered_type,
    attributes={"count": "Extent"},
    evaluate=_first_ordered,
    kernel=Kernel(scratch=_order_scratch),
    no_gradient="integer valued",
    batching="axes",
    numerics="exact",
    onnx=onnx_forms.first_ordered,
)


def ordered_whole(node: Node) -> Node:
    """Return the first positions of an order as a part of the whole order."""
    (x,), axis, count = node.inputs, node.attrs["axis"], node.attrs["count"]
    if not node.attrs["largest"]:
        return cut(ARGSORT(x, axis=axis), axis, 0, count)
    # Reversed twice: descending, and of equal elements the first one first.
    backward = ARGSORT(flip(x, axis), axis=axis)
    order = cut(flip(backward, axis), axis, 0, count)
    return subtract(as_node(size_of(x.shape[axis] - 1), INT64), order)


def _sort_type(call: Call, x: Type, *, axis: int) -> Type:
    call.check_axis(axis, x.ndim)
    return x


def _sort_into(xp: Any, target: Any, x: Any, *, axis: int) -> None:
    if sortable(x) is not x:
        target[...] = xp.sort(sortable(x), axis=axis)
        return
    target[...] = x
    target.sort(axis=axis)


def _sort_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    axis = node.attrs["axis"]
    # Element i stands at the position that the sorting order has i at: the inverse order.
    places = ARGSORT(ARGSORT(node.inputs[0], axis=axis), axis=axis)
    return (permuted(cotangent, places, axis),)


@documented
def sort(
    x: Any, axis: int | None = -1, *, descending: bool = False, stable: bool = True
) -> Node:
    """Put the elements into order along an axis.

    x: Node or array of any dtype.
    axis: The axis; None ravels `x` first.
    descending: Whether the largest comes first; NaN then stands before it.
    stable: Taken for the array API standard's sake: the sort always is.
    returns: Of the shape and dtype of `x`; NaN stands last. The gradient follows the permutation;
        of equal elements it is that of the stable sort.
    raises ShapeError: If `x` has no such axis.

    >>> mg.sort(mg.constant([30, 10, 20])).eval()
    array([10, 20, 30], dtype=int32)
    """
    node = as_node(x)
    if axis is None:
        node, axis = ravel(node), 0
    axis = Call(SORT, (node,)).axis(axis, node.ndim)
    ordered = SORT(node, axis=axis)
    return flip(ordered, axis) if descending else ordered


SORT = Op(
    name="sort",
    kind=Kind.INDEX,
    rule=_sort_type,
    batching="axes",
    evaluate=lambda xp, x, *, axis: xp.sort(sortable(x), axis=axis),
    kernel=Kernel(into=_sort_into),
    gradient=_sort_gradient,
    function=sort,
    tests=Tests(
        samples=lambda: [
            Sample((_MIXED,)),
            Sample((_MIXED,), {"axis": 0}),
            Sample((_MIXED,), {"axis": None}),
            Sample((_MIXED,), {"axis": 0, "descending": True}),
            Sample((_WITH_NAN,), gradient=(), reason="ties and NaN"),
            Sample((np.array([3, -1, 3, 0]),)),
            Sample((np.zeros((2, 0)),)),
        ],
        bad_samples=lambda: [
            BadSample(
                (_MIXED,), ShapeError, "sort: axis=2 is out of range for 2 axes", {"axis": 2}
            ),
            BadSample((np.float64(1.0),), ShapeError, "sort: axis=-1 is out of range for 0 axes"),
        ],
        reference=lambda x, axis=-1, descending=False: (
            -np.sort(-x, axis) if descending else np.sort(x, axis)
        ),
    ),
    numerics="exact",
    onnx=onnx_forms.ordered(0),
)


class TopK(NamedTuple):
    """The largest elements and where they stood."""

    values: Node
    indices: Node


@documented
def top_k(x: Any, k: Any, axis: int = -1) -> TopK:
    """Find the `k` largest elements along an axis, the largest first.

    x: Node or array, with at least one axis.
    k: How many: an int, a name or a Dim, at most the extent of the axis.
    axis: The axis.
    returns (TopK): A named pair: ``values`` of the dtype of `x`, and ``indices``, their positions
        (int64). NaN counts as the largest; of equal elements the first stands first. The gradient
        goes to the elements that were chosen.
    raises ShapeError: If the axis has fewer elements.

    >>> values, indices = mg.top_k(mg.constant([30, 10, 20, 30]), 3)
    >>> values.eval(), indices.eval()
    (array([30, 30, 20], dtype=int32), array([0, 3, 2]))
    """
    node = as_node(x)
    call = Call(TOP_K, (node,))
    axis = call.axis(axis, node.ndim)
    count = dims.parse_shape((k,))[0]
    extent = node.shape[axis]
    if not dims.require(extent, ">=", count, []):
        raise call.shape_error(
            f"k={count} of an axis of extent {extent}", need=f"an int from 0 to {extent}"
        )
    positions = FIRST_ORDERED(node, axis=axis, count=count, largest=True)
    return TopK(permuted(node, positions, axis), positions)


def _top_k_reference(x: np.ndarray, k: int, axis: int = -1) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-x, axis=axis, kind="stable")
    order = np.take(order, np.arange(k), axis=axis)
    return np.take_along_axis(x, order, axis), order


TOP_K = Composite(
    kind=Kind.INDEX,
    function=top_k,
    tests=Tests(
        samples=lambda: [
            Sample((_MIXED,), {"k": 2}),
            Sample((_MIXED,), {"k": 3, "axis": 0}),
            Sample((np.array([2.0, 5.0, 5.0, -1.0]),), {"k": 3}, gradient=(), reason="ties"),
            Sample((np.array([3, 1, 3]),), {"k": 0}),
        ],
        bad_samples=lambda: [
            BadSample((_MIXED,), ShapeError, "top_k: k=5 of an axis of extent 4", {"k": 5})
        ],
        reference=_top_k_reference,
    ),
    numerics="exact",
)


@documented
def lexsort(keys: Any, axis: int = -1) -> Node:
    """Return the positions that sort by several keys, the last of them first.

    keys: A list of arrays of one shape, or one array whose first axis counts the keys.
    axis: The axis to sort along.
    returns: int64, of the shape of a key. No gradient: positions are integers.

    >>> family, given = mg.constant([2, 1, 2, 1]), mg.constant([5, 9, 4, 8])
    >>> mg.lexsort([given, family]).eval()
    array([3, 1, 2, 0])
    """
    if isinstance(keys, (list, tuple)):
        members = [as_node(key) for key in keys]
    else:
        node = as_node(keys)
        members = list(node) if node.ndim else []
    if not members:
        raise ShapeError(message("lexsort: no keys", need="at least one"))
    call = Call(LEXSORT, tuple(members))
    for member in members[1:]:
        if member.shape != members[0].shape:
            raise call.shape_error(
                f"keys of shapes {members[0].shape} and {member.shape}", need="one shape"
            )
    axis = call.axis(axis, members[0].ndim)
    order = ARGSORT(members[0], axis=axis)
    for member in members[1:]:
        order = permuted(order, ARGSORT(permuted(member, order, axis), axis=axis), axis)
    return order


LEXSORT = Composite(
    kind=Kind.INDEX,
    function=lexsort,
    tests=Tests(
        samples=lambda: [
            Sample(([np.array([3.0, 1.0, 3.0, 1.0, 2.0]), np.array([1.0, 1.0, 0.0, 1.0, 0.0])],)),
            Sample((np.array([[[2, 1], [0, 4]], [[1, 1], [0, 0]]]),), {"axis": 0}),
        ],
        bad_samples=lambda: [
            BadSample(
                ([np.ones(3), np.ones(2)],), ShapeError, "lexsort: keys of shapes (3,) and (2,)"
            )
        ],
        reference=lambda keys, axis=-1: np.lexsort(keys, axis),
    ),
    no_gradient="integer valued",
    numerics="exact",
)


# Places in a sorted line.

_SIDES = ("left", "right")


def _searchsorted_type(call: Call, a: Type, v: Type, *, side: str) -> Type:
    if a.ndim != 1:
        raise call.shape_error(
            f"a sorted array of {a.ndim} axes",
            need="one axis",
            hint="mg.vmap, or one line at a time",
        )
    if side not in _SIDES:
        raise call.shape_error(f"side={side!r}", need=f"one of {', '.join(_SIDES)}")
    if a.dtype != v.dtype:
        raise call.dtype_error(
            f"operands of dtypes {a.dtype.name} and {v.dtype.name}", need="one dtype"
        )
    return Type(INT64, v.shape)


def _map_searchsorted(
    node: Node, operands: Sequence[Node], batched: Sequence[bool]
) -> Node | None:
    # Values may be of any shape; of sorted lines there is one.
    return None if batched[0] else node.op(*operands, **node.attrs)


@documented
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Node:
    """Find where values would stand in a sorted line.

    a: Node or array of one axis, in ascending order.
    v: The values, of any shape.
    side: "left": before elements of `a` that are equal; "right": behind them.
    sorter: Positions that sort `a` (from `argsort`), where it is not sorted.
    returns: int64, of the shape of `v`: positions from 0 to the extent of `a`. NaN stands behind
        all numbers. No gradient: integer valued.
    raises ShapeError: If `a` does not have one axis.

    >>> mg.searchsorted(mg.constant([10, 20, 30]), mg.constant([20, 35, 1])).eval()
    array([1, 3, 0])
    """
    line, values = promoted(a, v)
    if sorter is not None:
        line = take(line, sorter, axis=0)
    return SEARCHSORTED(line, values, side=side)


def _places_scratch(node: Node, threads: int) -> Extent:
    """Return the bytes of the keys of a sorted line."""
    (line, _) = node.inputs
    return builtins.max(line.dtype.itemsize, 4) * line.shape[0]


SEARCHSORTED = Op(
    name="searchsorted",
    kind=Kind.INDEX,
    rule=_searchsorted_type,
    attributes={"side": "Literal['left', 'right']"},
    evaluate=lambda xp, a, v, *, side: xp.searchsorted(sortable(a), sortable(v), side=side),
    kernel=Kernel(scratch=_places_scratch),
    no_gradient="integer valued",
    onnx=onnx_forms.counted_below,
    batching=_map_searchsorted,
    sharding=shard_searched,
    function=searchsorted,
    tests=Tests(
        samples=lambda: [
            Sample((np.array([-1.0, 0.5, 0.5, 2.0]), np.array([[0.5, -3.0], [np.nan, 2.0]]))),
            Sample(
                (np.array([-1.0, 0.5, 0.5, 2.0]), np.array([[0.5, -3.0], [9.0, 2.0]])),
                {"side": "right"},
            ),
            Sample((np.array([1, 3, 5]), np.array(3))),
            Sample((np.array([5, 1, 3]), np.array([2, 6])), {"sorter": np.array([1, 2, 0])}),
            Sample((np.zeros(0), np.array([1.0]))),
        ],
        bad_samples=lambda: [
            BadSample((_ROWS, np.ones(2)), ShapeError, "searchsorted: a sorted array of 2 axes"),
            BadSample(
                (_ROWS[0], np.ones(2)),
                ShapeError,
                "searchsorted: side='middle'",
                {"side": "middle"},
            ),
        ],
        reference=lambda a, v, side="left", sorter=None: np.searchsorted(a, v, side, sorter),
    ),
    flops=lambda a, v, **attrs: 20 * v.size,
    numerics="exact",
)


@documented
def digitize(x: Any, bins: Any, right: bool = False) -> Node:
    """Find the bin that each value belongs to.

    x: Node or array of any shape.
    bins: Edges, of one axis: an array (or list) that rises or falls, or a node that rises.
    right: Whether a bin holds its right edge in place of its left one.
    returns: int64, of the shape of `x`: 0 below the first edge, the number of edges above the last.
        No gradient: integer valued.
    raises ShapeError: If an array of edges neither rises nor falls.

    >>> mg.digitize([0.2, 6.4, 3.0], [0.0, 1.0, 2.5, 4.0]).eval()
    array([1, 4, 3])
    """
    edges = as_node(bins, as_node(x).dtype)
    call = Call(DIGITIZE, (as_node(x), edges))
    value = edges.attrs.get("value")
    if value is not None and value.ndim == 1:
        steps = np.diff(value.astype(np.float64))
        if not (steps >= 0).all():
            if not (steps <= 0).all():
                raise call.shape_error(
                    "the edges neither rise nor fall", need="edges in order", hint="mg.sort(bins)"
                )
            position = searchsorted(flip(edges), x, "left" if right else "right")
            return subtract(size_of(edges.shape[0]), position)
    return searchsorted(edges, x, "left" if right else "right")


DIGITIZE = Composite(
    kind=Kind.INDEX,
    function=digitize,
    tests=Tests(
        samples=lambda: [
            Sample((_MIXED,), {"bins": np.array([-1.0, 0.25, 1.0])}),
            Sample((np.array([2.0, 1.0, 0.0, 3.0]),), {"bins": np.array([2.0, 1.0, 0.0])}),
            Sample(
                (np.array([2.0, 1.0, 0.0, 3.0]),),
                {"bins": np.array([2.0, 1.0, 0.0]), "right": True},
            ),
            Sample((np.array([2, 1, 0]),), {"bins": np.array([0, 2]), "right": True}),
        ],
        bad_samples=lambda: [
            BadSample(
                (_MIXED,),
                ShapeError,
                "digitize: the edges neither rise nor fall",
                {"bins": np.array([0.0, 2.0, 1.0])},
            )
        ],
        reference=lambda x, bins, right=False: np.digitize(x, bins, right),
    ),
    no_gradient="integer valued",
    numerics="exact",
)

RECORDS: tuple[Op | Composite, ...] = (
    ARGSORT, FIRST_ORDERED, SORT, TOP_K, LEXSORT, SEARCHSORTED, DIGITIZE
)  # fmt: skip
