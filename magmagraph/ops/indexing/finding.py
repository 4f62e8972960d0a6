"""The places of the elements for which a condition holds.

How many they are is known only when a graph runs, and extents are known before. So these functions
take ``size=``: what is found beyond it is left out, and what is missing is filled with
``fill_value=``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kernel, Kind, Op, Sample, Tests
from ...ir.types import Extent, Type
from ..convert import as_node
from ..elementwise.arithmetic import floor_divide, remainder
from ..elementwise.comparison import less, where
from ..elementwise.family import BOOL, truth
from ..rules import onnx_forms
from ..shape.arrange import ravel
from ..shape.joining import stack
from .gathering import size_of
from .iota import INT64

__all__ = [
    "argwhere",
    "flatnonzero",
    "nonzero",
]


def sized(record: Op | Composite, operands: tuple[Node, ...], size: Any, instead: str) -> Extent:
    """Return the extent for a number of elements known only at run time."""
    call = Call(record, operands)
    if size is None:
        raise call.shape_error(
            "the number of elements found is known only when it runs",
            need="size=, the number of elements of the result",
            hint=f"size=n with fill_value=, or {instead}",
        )
    return dims.parse_shape((size,))[0]


def _found_type(call: Call, mask: Type, *, size: Extent) -> Type:
    if mask.dtype != BOOL or mask.ndim != 1:
        raise call.dtype_error(f"an operand {mask}", need="bools of one axis")
    return Type(INT64, (size,))


def _first_positions(xp: Any, mask: Any, *, size: int) -> Any:
    result = xp.empty((size,), np.int64)
    _first_positions_into(xp, result, mask, size=size)
    return result


def _first_positions_into(xp: Any, target: Any, mask: Any, *, size: int) -> None:
    places = xp.flatnonzero(mask)[:size]
    target[: len(places)] = places
    target[len(places) :] = len(mask)


FOUND = Op(
    name="found",
    kind=Kind.INDEX,
    doc="The first positions of true elements; behind them the number of all elements.",
    rule=_found_type,
    evaluate=_first_positions,
    onnx=onnx_forms.nonzero_positions,
    kernel=Kernel(into=_first_positions_into),
    no_gradient="integer valued",
    numerics="exact",
)


def _places(record: Composite, x: Any, size: Any) -> tuple[Node, Node, Node]:
    """Return the operand, the flat positions of true elements, and which of them there are."""
    node = as_node(x)
    extent = sized(record, (node,), size, "mg.where(mask, x, 0), which keeps every position")
    places = FOUND(ravel(truth(node)), size=extent)
    return node, places, less(places, size_of(node.size))


@documented
def flatnonzero(a: Any, *, size: Any = None, fill_value: int = 0) -> Node:
    """Find the positions, in the raveled array, of elements that are not zero.

    a: Node or array.
    size: How many positions to return: an int, a name or a Dim.
    fill_value: What stands for those that are missing.
    returns: int64, of extent `size`. No gradient: integer valued.
    raises ShapeError: Without `size`.

    >>> mg.flatnonzero(mg.constant([0, 3, 0, 5]), size=3, fill_value=-1).eval()
    array([ 1,  3, -1])
    """
    _, places, there = _places(FLATNONZERO, a, size)
    return where(there, places, fill_value)


@documented
def nonzero(a: Any, *, size: Any = None, fill_value: int = 0) -> tuple[Node, ...]:
    """Find the positions of elements that are not zero, along each axis.

    a: Node or array with at least one axis.
    size: How many positions to return: an int, a name or a Dim.
    fill_value: What stands for those that are missing.
    returns (tuple of Node): For each axis of `a` its positions, int64, of extent `size`, in
        row-major order. No gradient: integer valued.
    raises ShapeError: Without `size`, or for an operand without axes.

    >>> rows, columns = mg.nonzero(mg.constant([[0, 3], [5, 0]]), size=2)
    >>> rows.eval(), columns.eval()
    (array([0, 1]), array([1, 0]))
    """
    node, places, there = _places(NONZERO, a, size)
    if not node.ndim:
        raise Call(NONZERO, (node,)).shape_error(
            "an operand without axes has no positions", need="at least one axis"
        )
    positions = []
    for extent in reversed(node.shape):
        count = size_of(extent)
        positions.append(where(there, remainder(places, count), fill_value))
        places = floor_divide(places, count)
    return tuple(reversed(positions))


@documented
def argwhere(a: Any, *, size: Any = None, fill_value: int = 0) -> Node:
    """Find the positions of elements that are not zero, a row for each.

    a: Node or array with at least one axis.
    size: How many positions to return: an int, a name or a Dim.
    fill_value: What stands for those that are missing.
    returns: int64, of shape ``(size, a.ndim)``. No gradient: integer valued.
    raises ShapeError: Without `size`, or for an operand without axes.

    >>> mg.argwhere(mg.constant([[0, 3], [5, 0]]), size=2).eval()
    array([[0, 1],
           [1, 0]])
    """
    return stack(nonzero(a, size=size, fill_value=fill_value), axis=1)


# Records.

_HOLES = np.array([[0.0, 1.5, -2.0, 0.0], [3.0, 0.0, np.nan, 0.5]])


def filled(array: np.ndarray, size: int, fill_value: Any) -> np.ndarray:
    """Return `size` rows: the first of an array, then the fill value."""
    result = np.full((size, *array.shape[1:]), fill_value, array.dtype)
    count = min(size, len(array))
    result[:count] = array[:count]
    return result


UNSIZED = "{}: the number of elements found is known only when it runs"

FLATNONZERO = Composite(
    kind=Kind.INDEX,
    function=flatnonzero,
    tests=Tests(
        samples=lambda: [
            Sample((_HOLES,), {"size": 7, "fill_value": -1}),
            Sample((_HOLES,), {"size": 2}),
            Sample((np.zeros(0),), {"size": 2}),
        ],
        bad_samples=lambda: [BadSample((_HOLES,), ShapeError, UNSIZED.format("flatnonzero"))],
        reference=lambda a, size, fill_value=0: filled(np.flatnonzero(a), size, fill_value),
    ),
    no_gradient="integer valued",
    numerics="exact",
)

NONZERO = Composite(
    kind=Kind.INDEX,
    function=nonzero,
    tests=Tests(
        samples=lambda: [
            Sample((_HOLES,), {"size": 6, "fill_value": -1}),
            Sample((np.array([True, False, True]),), {"size": 2}),
        ],
        bad_samples=lambda: [
            BadSample((_HOLES,), ShapeError, UNSIZED.format("nonzero")),
            BadSample(
                (np.float64(1.0),),
                ShapeError,
                "nonzero: an operand without axes has no positions",
                {"size": 1},
            ),
        ],
        reference=lambda a, size, fill_value=0: tuple(
            filled(places, size, fill_value) for places in np.nonzero(a)
        ),
    ),
    no_gradient="integer valued",
    numerics="exact",
)

ARGWHERE = Composite(
    kind=Kind.INDEX,
    function=argwhere,
    tests=Tests(
        samples=lambda: [Sample((_HOLES,), {"size": 6}), Sample((_HOLES,), {"size": 2})],
        bad_samples=lambda: [BadSample((_HOLES,), ShapeError, UNSIZED.format("nonzero"))],
        reference=lambda a, size, fill_value=0: filled(np.argwhere(a), size, fill_value),
    ),
    no_gradient="integer valued",
    numerics="exact",
)

RECORDS: tuple[Op | Composite, ...] = (
    FOUND,
    FLATNONZERO,
    NONZERO,
    ARGWHERE,
)
