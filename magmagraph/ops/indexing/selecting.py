"""Positions where something holds, and the elements there: as many as `size` says.

How many elements a condition selects is known only when a graph runs, and extents are known
before. So these functions take ``size=``: what is found beyond it is left out, and what is missing
is filled with ``fill_value=``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dims
from ...errors import DTypeError, ShapeError, message
from ...graph import Node
from ...op import BadSample, Call, Composite, Kind, Op, Sample
from ...types import Extent, Type
from ..convert import as_node, cast, promoted
from ..elementwise.arithmetic import floor_divide, remainder
from ..elementwise.comparison import equal, less, where
from ..elementwise.family import BOOL, truth
from ..shape.arrange import ravel, reshape
from ..shape.axes import MATRIX
from ..shape.joining import broadcast_to, concatenate, stack
from .gathering import size_of, take
from .iota import INT64
from .sorting import searchsorted, sort

__all__ = [
    "argwhere",
    "boolean_index",
    "choose",
    "compress",
    "extract",
    "flatnonzero",
    "isin",
    "nonzero",
    "select",
]


def sized(record: Op | Composite, operands: tuple[Node, ...], size: Any, instead: str) -> Extent:
    """Return the extent that stands for a number of elements known only when the graph runs."""
    call = Call(record, operands)
    if size is None:
        raise call.shape_error(
            "the number of elements found is known only when it runs",
            need="size=, the number of elements of the result",
            mend=f"size=n with fill_value=, or {instead}",
        )
    return dims.parse_shape((size,))[0]


def _found_type(call: Call, mask: Type, *, size: Extent) -> Type:
    if mask.dtype != BOOL or mask.ndim != 1:
        raise call.dtype_error(f"an operand {mask}", need="bools of one axis")
    return Type(INT64, (size,))


def _found(xp: Any, mask: Any, *, size: int) -> Any:
    result = xp.empty((size,), np.int64)
    _found_into(xp, result, mask, size=size)
    return result


def _found_into(xp: Any, target: Any, mask: Any, *, size: int) -> None:
    places = xp.flatnonzero(mask)[:size]
    target[: len(places)] = places
    target[len(places) :] = len(mask)


FOUND = Op(
    name="found",
    kind=Kind.INDEX,
    doc="The first positions of true elements; behind them the number of all elements.",
    rule=_found_type,
    evaluate=_found,
    into=_found_into,
    no_gradient="integer valued",
    numerics="exact",
)


def _places(record: Composite, x: Any, size: Any) -> tuple[Node, Node, Node]:
    """Return the operand, the flat positions of true elements, and which of them there are."""
    node = as_node(x)
    extent = sized(record, (node,), size, "mg.where(mask, x, 0), which keeps every position")
    places = FOUND(ravel(truth(node)), size=extent)
    return node, places, less(places, size_of(node.size))


def flatnonzero(a: Any, *, size: Any = None, fill_value: int = 0) -> Node:
    """Find the positions, in the raveled array, of elements that are not zero.

    Parameters
    ----------
    a
        Node or array.
    size
        How many positions to return: an int, a name or a Dim.
    fill_value
        What stands for those that are missing.

    Returns
    -------
    Node
        int64, of extent `size`. No gradient: integer valued.

    Raises
    ------
    ShapeError
        Without `size`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.flatnonzero(mg.constant([0, 3, 0, 5]), size=3, fill_value=-1).eval()
    array([ 1,  3, -1])
    """
    _, places, there = _places(FLATNONZERO, a, size)
    return where(there, places, fill_value)


def nonzero(a: Any, *, size: Any = None, fill_value: int = 0) -> tuple[Node, ...]:
    """Find the positions of elements that are not zero, along each axis.

    Parameters
    ----------
    a
        Node or array with at least one axis.
    size
        How many positions to return: an int, a name or a Dim.
    fill_value
        What stands for those that are missing.

    Returns
    -------
    tuple of Node
        For each axis of `a` its positions, int64, of extent `size`, in row-major order. No
        gradient: integer valued.

    Raises
    ------
    ShapeError
        Without `size`, or for an operand without axes.

    Examples
    --------
    >>> import magmagraph as mg
    >>> rows, columns = mg.nonzero(mg.constant([[0, 3], [5, 0]]), size=2)
    >>> rows.eval(), columns.eval()
    (array([0, 1]), array([1, 0]))
    """
    node, places, there = _places(NONZERO, a, size)
    if not node.ndim:
        raise Call(NONZERO, (node,)).shape_error(
            "an operand without axes has no positions", need="at least one axis"
        )
    found = []
    for extent in reversed(node.shape):
        count = size_of(extent)
        found.append(where(there, remainder(places, count), fill_value))
        places = floor_divide(places, count)
    return tuple(reversed(found))


def argwhere(a: Any, *, size: Any = None, fill_value: int = 0) -> Node:
    """Find the positions of elements that are not zero, a row for each.

    Parameters
    ----------
    a
        Node or array with at least one axis.
    size
        How many positions to return: an int, a name or a Dim.
    fill_value
        What stands for those that are missing.

    Returns
    -------
    Node
        int64, of shape ``(size, a.ndim)``. No gradient: integer valued.

    Raises
    ------
    ShapeError
        Without `size`, or for an operand without axes.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.argwhere(mg.constant([[0, 3], [5, 0]]), size=2).eval()
    array([[0, 1],
           [1, 0]])
    """
    return stack(nonzero(a, size=size, fill_value=fill_value), axis=1)


# Elements.


def _taken(lines: Node, mask: Node, axis: int, size: Extent, fill_value: Any) -> Node:
    """Return the elements along an axis where a line of bools holds."""
    places = FOUND(mask, size=size)
    extent = lines.shape[axis]
    fill = cast(as_node(fill_value, lines.dtype), lines.dtype)
    if isinstance(extent, int) and not extent:
        return broadcast_to(fill, (*lines.shape[:axis], size, *lines.shape[axis + 1 :]))
    if not isinstance(extent, int):
        # The axis may turn out empty. What is missing has the position behind the last element.
        places = where(less(places, size_of(mask.shape[0])), places, size_of(extent))
        edge = broadcast_to(fill, (*lines.shape[:axis], 1, *lines.shape[axis + 1 :]))
        return take(concatenate([lines, edge], axis), places, axis)
    there = reshape(less(places, size_of(mask.shape[0])), (size, *[1] * (lines.ndim - 1 - axis)))
    return where(there, take(lines, places, axis), fill)


def boolean_index(x: Any, mask: Any, *, size: Any = None, fill_value: Any = 0) -> Node:
    """Return ``x[mask]``: the elements where a mask holds, one behind the other.

    Parameters
    ----------
    x
        Node or array.
    mask
        Bools for the first axes of `x`.
    size
        How many elements to return: an int, a name or a Dim.
    fill_value
        What stands for those that are missing.

    Returns
    -------
    Node
        Of shape ``(size, *x.shape[mask.ndim:])``. The gradient goes to the elements that were
        taken.

    Raises
    ------
    ShapeError
        Without `size`, or where the mask does not have the shape of the first axes.
    DTypeError
        If the mask is not of bools.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.constant([3.0, -1.0, 4.0, -1.5])
    >>> mg.boolean_index(x, x > 0, size=3).eval()
    array([3., 4., 0.], dtype=float32)
    """
    node, chosen = as_node(x), as_node(mask)
    call = Call(BOOLEAN_INDEX, (node, chosen))
    if chosen.dtype != BOOL:
        raise call.dtype_error(
            f"a mask of dtype {chosen.dtype.name}", need="bool", mend="mg.not_equal(mask, 0)"
        )
    if chosen.ndim > node.ndim:
        raise call.shape_error(f"a mask of {chosen.ndim} axes for {node.ndim} axes")
    for left, right in zip(node.shape, chosen.shape, strict=False):
        call.unify(left, right, "extents of array and mask")
    extent = sized(
        BOOLEAN_INDEX, (node, chosen), size, "mg.where(mask, x, 0), which keeps every position"
    )
    rest = node.shape[chosen.ndim :]
    lines = reshape(node, (chosen.size, *rest))
    return _taken(lines, ravel(chosen), 0, extent, fill_value)


def compress(
    condition: Any, a: Any, axis: int | None = None, *, size: Any = None, fill_value: Any = 0
) -> Node:
    """Take the slices along an axis where a condition holds.

    Parameters
    ----------
    condition
        Numbers or bools of one axis, at most as many as `a` has along `axis`.
    a
        Node or array.
    axis
        The axis; None ravels `a` first.
    size
        How many slices to return: an int, a name or a Dim.
    fill_value
        What stands for those that are missing.

    Returns
    -------
    Node
        As `a`, with extent `size` along `axis`.

    Raises
    ------
    ShapeError
        Without `size`, or if the condition does not have one axis or is too long.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.constant([[1, 2, 3], [4, 5, 6]])
    >>> mg.compress([True, False, True], x, axis=1, size=2).eval()
    array([[1, 3],
           [4, 6]], dtype=int32)
    """
    mask, node = truth(condition), as_node(a)
    if axis is None:
        node, axis = ravel(node), 0
    call = Call(COMPRESS, (mask, node))
    axis = call.axis(axis, node.ndim)
    if mask.ndim != 1:
        raise call.shape_error(f"a condition of {mask.ndim} axes", need="one axis")
    extent = sized(COMPRESS, (mask, node), size, "mg.where, which keeps every position")
    if not dims.require(node.shape[axis], ">=", mask.shape[0], []):
        raise call.shape_error(
            f"a condition of {mask.shape[0]} elements for an axis of extent {node.shape[axis]}"
        )
    return _taken(node, mask, axis, extent, fill_value)


def extract(condition: Any, arr: Any, *, size: Any = None, fill_value: Any = 0) -> Node:
    """Take the elements where a condition of the same size holds.

    Parameters
    ----------
    condition
        Numbers or bools, as many as `arr` has elements.
    arr
        Node or array.
    size
        How many elements to return: an int, a name or a Dim.
    fill_value
        What stands for those that are missing.

    Returns
    -------
    Node
        Of one axis, of extent `size`.

    Raises
    ------
    ShapeError
        Without `size`, or if there are more conditions than elements.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.constant([[1, 2], [3, 4]])
    >>> mg.extract(x > 2, x, size=2).eval()
    array([3, 4], dtype=int32)
    """
    return compress(ravel(truth(condition)), arr, size=size, fill_value=fill_value)


# Choices.


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Node:
    """Choose from the first array whose condition holds.

    Parameters
    ----------
    condlist
        List of conditions.
    choicelist
        List of as many nodes, arrays or numbers, broadcast against them.
    default
        What stands where no condition holds.

    Returns
    -------
    Node
        Of the broadcast shape and the promoted dtype.

    Raises
    ------
    ShapeError
        If there are not as many choices as conditions, or none.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.constant([-2.0, 0.5, 3.0])
    >>> mg.select([x < 0, x > 1], [-1.0, 1.0], x).eval()
    array([-1. ,  0.5,  1. ], dtype=float32)
    """
    conditions, choices = list(condlist), list(choicelist)
    if len(conditions) != len(choices) or not conditions:
        raise ShapeError(
            message(
                f"select: {len(conditions)} conditions and {len(choices)} choices",
                need="as many of each, and at least one",
            )
        )
    *nodes, result = promoted(*choices, default)
    for condition, node in zip(reversed(conditions), reversed(nodes), strict=True):
        result = where(condition, node, result)
    return result


def choose(a: Any, choices: Any, mode: str = "clip") -> Node:
    """Choose, element by element, from the array whose number stands there.

    Parameters
    ----------
    a
        Integers: which of the choices.
    choices
        List of nodes or arrays, broadcast against each other and `a`.
    mode
        What a number outside means: "clip" (the first or the last choice) or "wrap" (modulo).

    Returns
    -------
    Node
        Of the broadcast shape and the promoted dtype of the choices.

    Raises
    ------
    DTypeError
        If `a` is not of integers.
    ShapeError
        Without choices, or for another mode.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.choose(mg.constant([1, 0, 1]), [[1, 2, 3], [10, 20, 30]]).eval()
    array([10,  2, 30], dtype=int32)
    """
    which = as_node(a)
    members = promoted(*choices) if len(choices) else ()
    call = Call(CHOOSE, (which, *members))
    if which.dtype.kind not in "iu":
        raise call.dtype_error(f"numbers of dtype {which.dtype.name}", need="an integer dtype")
    if not members:
        raise call.shape_error("no choices", need="at least one")
    if mode not in ("clip", "wrap"):
        raise call.shape_error(f"mode={mode!r}", need="clip or wrap")
    if mode == "wrap":
        which = remainder(which, len(members))
    result = members[-1]
    for number in range(len(members) - 2, -1, -1):
        chosen = equal(which, number) if number else less(which, 1)
        result = where(chosen, members[number], result)
    shape = call.broadcast(which.shape, *[member.shape for member in members])
    return broadcast_to(result, shape)


def isin(element: Any, test_elements: Any, *, invert: bool = False) -> Node:
    """Tell which elements occur among others.

    Parameters
    ----------
    element
        Node or array.
    test_elements
        What to look for them in: node or array of any shape.
    invert
        Tell which do not occur.

    Returns
    -------
    Node
        bool, of the shape of `element`. NaN occurs nowhere. No gradient: boolean valued.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.isin(mg.constant([1, 2, 3, 4]), mg.constant([4, 2])).eval()
    array([False,  True, False,  True])
    """
    node, others = promoted(element, test_elements)
    line = sort(ravel(others))
    count = line.shape[0]
    if isinstance(count, int) and not count:
        found = less(searchsorted(line, node), 0)
    else:
        found = equal(take(line, searchsorted(line, node), axis=0), node)
    return truth(equal(found, False)) if invert else found


# Records.

_HOLES = np.array([[0.0, 1.5, -2.0, 0.0], [3.0, 0.0, np.nan, 0.5]])
_MASK = np.array([[True, False, True], [False, True, True]])


def _filled(array: np.ndarray, size: int, fill_value: Any) -> np.ndarray:
    """Return `size` rows: the first of an array, then the fill value."""
    result = np.full((size, *array.shape[1:]), fill_value, array.dtype)
    count = min(size, len(array))
    result[:count] = array[:count]
    return result


def _compress_reference(
    condition: Any, a: np.ndarray, axis: int | None = None, size: int = 0, fill_value: Any = 0
) -> np.ndarray:
    found = np.moveaxis(np.compress(condition, a, axis), axis or 0, 0)
    return np.moveaxis(_filled(found, size, fill_value), 0, axis or 0)


_UNSIZED = "{}: the number of elements found is known only when it runs"

FLATNONZERO = Composite(
    name="flatnonzero",
    kind=Kind.INDEX,
    function=flatnonzero,
    doc="The positions, in the raveled array, of elements that are not zero.",
    samples=lambda: [
        Sample((_HOLES,), {"size": 7, "fill_value": -1}),
        Sample((_HOLES,), {"size": 2}),
        Sample((np.zeros(0),), {"size": 2}),
    ],
    bad_samples=lambda: [BadSample((_HOLES,), ShapeError, _UNSIZED.format("flatnonzero"))],
    reference=lambda a, size, fill_value=0: _filled(np.flatnonzero(a), size, fill_value),
    no_gradient="integer valued",
    numerics="exact",
)
NONZERO = Composite(
    name="nonzero",
    kind=Kind.INDEX,
    function=nonzero,
    doc="The positions of elements that are not zero, along each axis.",
    samples=lambda: [
        Sample((_HOLES,), {"size": 6, "fill_value": -1}),
        Sample((np.array([True, False, True]),), {"size": 2}),
    ],
    bad_samples=lambda: [
        BadSample((_HOLES,), ShapeError, _UNSIZED.format("nonzero")),
        BadSample(
            (np.float64(1.0),),
            ShapeError,
            "nonzero: an operand without axes has no positions",
            {"size": 1},
        ),
    ],
    reference=lambda a, size, fill_value=0: tuple(
        _filled(places, size, fill_value) for places in np.nonzero(a)
    ),
    no_gradient="integer valued",
    numerics="exact",
)
ARGWHERE = Composite(
    name="argwhere",
    kind=Kind.INDEX,
    function=argwhere,
    doc="The positions of elements that are not zero, a row for each.",
    samples=lambda: [Sample((_HOLES,), {"size": 6}), Sample((_HOLES,), {"size": 2})],
    bad_samples=lambda: [BadSample((_HOLES,), ShapeError, _UNSIZED.format("nonzero"))],
    reference=lambda a, size, fill_value=0: _filled(np.argwhere(a), size, fill_value),
    no_gradient="integer valued",
    numerics="exact",
)
BOOLEAN_INDEX = Composite(
    name="boolean_index",
    kind=Kind.INDEX,
    function=boolean_index,
    doc="The elements where a mask holds.",
    samples=lambda: [
        Sample((MATRIX, _MASK), {"size": 6, "fill_value": -1}),
        Sample((MATRIX, _MASK), {"size": 3}),
        Sample((MATRIX, np.array([False, True])), {"size": 1}),
        Sample((np.float64(2.0), np.array(True)), {"size": 2}),
    ],
    bad_samples=lambda: [
        BadSample((MATRIX, _MASK), ShapeError, _UNSIZED.format("boolean_index")),
        BadSample(
            (MATRIX, _MASK.T),
            ShapeError,
            "boolean_index: extents of array and mask differ: 2 and 3",
        ),
        BadSample((MATRIX, MATRIX), DTypeError, "boolean_index: a mask of dtype float64"),
    ],
    reference=lambda x, mask, size, fill_value=0: _filled(x[mask], size, fill_value),
    numerics="exact",
)
COMPRESS = Composite(
    name="compress",
    kind=Kind.INDEX,
    function=compress,
    doc="The slices along an axis where a condition holds.",
    samples=lambda: [
        Sample((np.array([True, False, True]), MATRIX), {"axis": 1, "size": 3}),
        Sample((np.array([0, 2]), MATRIX), {"axis": 0, "size": 1, "fill_value": 7}),
        Sample((np.array([True, False, True, True]), MATRIX), {"size": 2}),
    ],
    bad_samples=lambda: [
        BadSample((np.array([True]), MATRIX), ShapeError, _UNSIZED.format("compress")),
        BadSample((_MASK, MATRIX), ShapeError, "compress: a condition of 2 axes", {"size": 1}),
        BadSample(
            (_MASK[0], MATRIX),
            ShapeError,
            "compress: a condition of 3 elements for an axis of extent 2",
            {"size": 1, "axis": 0},
        ),
    ],
    reference=_compress_reference,
    numerics="exact",
)
EXTRACT = Composite(
    name="extract",
    kind=Kind.INDEX,
    function=extract,
    doc="The elements where a condition of the same size holds.",
    samples=lambda: [Sample((_MASK, MATRIX), {"size": 5, "fill_value": 9})],
    bad_samples=lambda: [BadSample((_MASK, MATRIX), ShapeError, _UNSIZED.format("compress"))],
    reference=lambda condition, arr, size, fill_value=0: _filled(
        np.extract(condition, arr), size, fill_value
    ),
    numerics="exact",
)
SELECT = Composite(
    name="select",
    kind=Kind.ELEMENTWISE,
    function=select,
    doc="The element of the first array whose condition holds.",
    samples=lambda: [
        Sample(([_MASK, ~_MASK[0]], [MATRIX, 2.0 * MATRIX + 1.0]), {"default": 0.5}),
        Sample(([_MASK], [MATRIX[0]])),
    ],
    bad_samples=lambda: [
        BadSample(([_MASK], [MATRIX, MATRIX]), ShapeError, "select: 1 conditions and 2 choices")
    ],
    reference=lambda conditions, choices, default=0: np.select(conditions, choices, default),
    numerics="exact",
)
CHOOSE = Composite(
    name="choose",
    kind=Kind.ELEMENTWISE,
    function=choose,
    doc="Elements of the array whose number stands there.",
    samples=lambda: [
        Sample((np.array([[0, 1, 2], [2, -3, 9]]), [MATRIX, MATRIX[0], 3.0 * MATRIX])),
        Sample((np.array([5, -1, 0]), [MATRIX, 3.0 * MATRIX]), {"mode": "wrap"}),
    ],
    bad_samples=lambda: [
        BadSample((MATRIX, [MATRIX]), DTypeError, "choose: numbers of dtype float64"),
        BadSample((np.array([0]), []), ShapeError, "choose: no choices"),
    ],
    reference=lambda a, choices, mode="clip": np.choose(a, choices, mode=mode),
    numerics="exact",
)
ISIN = Composite(
    name="isin",
    kind=Kind.INDEX,
    function=isin,
    doc="Which elements occur among others.",
    samples=lambda: [
        Sample((MATRIX, np.array([[0.5], [-2.5]]))),
        Sample((np.array([[1, 2], [3, 4]]), np.array([4, 1, 9])), {"invert": True}),
        Sample((np.array([np.nan, 1.0]), np.array([np.nan, 1.0]))),
        Sample((MATRIX, np.zeros(0))),
    ],
    reference=lambda element, tests, invert=False: np.isin(element, tests, invert=invert),
    no_gradient="boolean valued",
    numerics="exact",
)

RECORDS: tuple[Op | Composite, ...] = (
    FOUND,
    FLATNONZERO,
    NONZERO,
    ARGWHERE,
    BOOLEAN_INDEX,
    COMPRESS,
    EXTRACT,
    SELECT,
    CHOOSE,
    ISIN,
)
