"""The elements where something holds: as many as ``size=`` says."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import DTypeError, ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kind, Op, Sample, Tests
from ...ir.types import Extent
from ..convert import as_dtype, as_node, promoted
from ..elementwise.comparison import equal, less, where
from ..elementwise.family import BOOL, truth
from ..shape.arrange import ravel, reshape
from ..shape.axes import MATRIX
from ..shape.joining import broadcast_to, concatenate
from .finding import FOUND, UNSIZED, filled, sized
from .gathering import size_of, take
from .keys import index, known_array, known_mask
from .sorting import searchsorted, sort

__all__ = [
    "boolean_index",
    "compress",
    "extract",
    "isin",
]


# Elements.


def _select(lines: Node, mask: Node, axis: int, size: Extent, fill_value: Any) -> Node:
    """Return the elements along an axis where a line of bools holds."""
    places = FOUND(mask, size=size)
    extent = lines.shape[axis]
    fill = as_dtype(fill_value, lines.dtype)
    if isinstance(extent, int) and not extent:
        return broadcast_to(fill, (*lines.shape[:axis], size, *lines.shape[axis + 1 :]))
    if not isinstance(extent, int):
        # The axis may turn out empty. Missing elements have the position after the last one.
        places = where(less(places, size_of(mask.shape[0])), places, size_of(extent))
        edge = broadcast_to(fill, (*lines.shape[:axis], 1, *lines.shape[axis + 1 :]))
        return take(concatenate([lines, edge], axis), places, axis)
    there = reshape(less(places, size_of(mask.shape[0])), (size, *[1] * (lines.ndim - 1 - axis)))
    return where(there, take(lines, places, axis), fill)


@documented
def boolean_index(x: Any, mask: Any, *, size: Any = None, fill_value: Any = 0) -> Node:
    """Return ``x[mask]``: the elements where a mask holds, one behind the other.

    x: Node or array.
    mask: Bools for the first axes of `x`.
    size: How many elements to return: an int, a name or a Dim. Without it, all of them where the
        values of the mask are known.
    fill_value: What stands for those that are missing.
    returns: Of shape ``(size, *x.shape[mask.ndim:])``. The gradient goes to the elements that were
        taken.
    raises ShapeError: Without `size` where the mask is computed, or where it does not have the
        shape of the first axes.
    raises DTypeError: If the mask is not of bools.

    >>> x = mg.constant([3.0, -1.0, 4.0, -1.5])
    >>> mg.boolean_index(x, x > 0, size=3).eval()
    array([3., 4., 0.], dtype=float32)
    """
    node, mask_node = as_node(x), as_node(mask)
    call = Call(BOOLEAN_INDEX, (node, mask_node))
    if mask_node.dtype != BOOL:
        raise call.dtype_error(
            f"a mask of dtype {mask_node.dtype.name}", need="bool", hint="mg.not_equal(mask, 0)"
        )
    if mask_node.ndim > node.ndim:
        raise call.shape_error(f"a mask of {mask_node.ndim} axes for {node.ndim} axes")
    for left, right in zip(node.shape, mask_node.shape, strict=False):
        call.unify(left, right, "extents of array and mask")
    bools = known_mask(mask_node)
    if size is None and bools is not None:
        return index(node, bools)
    extent = sized(
        BOOLEAN_INDEX, (node, mask_node), size, "mg.where(mask, x, 0), which keeps every position"
    )
    rest = node.shape[mask_node.ndim :]
    lines = reshape(node, (mask_node.size, *rest))
    return _select(lines, ravel(mask_node), 0, extent, fill_value)


@documented
def compress(
    condition: Any, a: Any, axis: int | None = None, *, size: Any = None, fill_value: Any = 0
) -> Node:
    """Take the slices along an axis where a condition holds.

    condition: Numbers or bools of one axis, at most as many as `a` has along `axis`.
    a: Node or array.
    axis: The axis; None ravels `a` first.
    size: How many slices to return: an int, a name or a Dim. Without it, all of them where the
        values of the condition are known.
    fill_value: What stands for those that are missing.
    returns: As `a`, with extent `size` along `axis`.
    raises ShapeError: Without `size` where the condition is computed, or if it does not have one
        axis or is too long.

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
    bools = known_array(condition)
    if size is not None or bools is None:
        extent = sized(COMPRESS, (mask, node), size, "mg.where, which keeps every position")
    if not dims.require(node.shape[axis], ">=", mask.shape[0], []):
        raise call.shape_error(
            f"a condition of {mask.shape[0]} elements for an axis of extent {node.shape[axis]}"
        )
    if size is None and bools is not None:
        return take(node, np.flatnonzero(bools), axis)
    return _select(node, mask, axis, extent, fill_value)


@documented
def extract(condition: Any, arr: Any, *, size: Any = None, fill_value: Any = 0) -> Node:
    """Take the elements where a condition of the same size holds.

    condition: Numbers or bools, as many as `arr` has elements.
    arr: Node or array.
    size: How many elements to return: an int, a name or a Dim. Without it, all of them where the
        values of the condition are known.
    fill_value: What stands for those that are missing.
    returns: Of one axis, of extent `size`.
    raises ShapeError: Without `size` where the condition is computed, or if there are more
        conditions than elements.

    >>> x = mg.constant([[1, 2], [3, 4]])
    >>> mg.extract(x > 2, x, size=2).eval()
    array([3, 4], dtype=int32)
    """
    bools = known_array(condition)
    line = ravel(truth(condition)) if bools is None else bools.reshape(-1)
    return compress(line, arr, size=size, fill_value=fill_value)


@documented
def isin(
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    kind: str | None = None,
) -> Node:
    """Tell which elements occur among others.

    element: Node or array.
    test_elements: What to look for them in: node or array of any shape.
    assume_unique, kind: Taken for NumPy's sake, where they choose the way to look: it is by sorting
        here.
    invert: Tell which do not occur.
    returns: bool, of the shape of `element`. NaN occurs nowhere. No gradient: boolean valued.

    >>> mg.isin(mg.constant([1, 2, 3, 4]), mg.constant([4, 2])).eval()
    array([False,  True, False,  True])
    """
    node, others = promoted(element, test_elements)
    line = sort(ravel(others))
    count = line.shape[0]
    if isinstance(count, int) and not count:
        present = less(searchsorted(line, node), 0)
    else:
        present = equal(take(line, searchsorted(line, node), axis=0), node)
    return truth(equal(present, False)) if invert else present


MASK = np.array([[True, False, True], [False, True, True]])


def _compress_reference(
    condition: Any, a: np.ndarray, axis: int | None = None, size: int = 0, fill_value: Any = 0
) -> np.ndarray:
    elements = np.moveaxis(np.compress(condition, a, axis), axis or 0, 0)
    return np.moveaxis(filled(elements, size, fill_value), 0, axis or 0)


BOOLEAN_INDEX = Composite(
    kind=Kind.INDEX,
    function=boolean_index,
    tests=Tests(
        samples=lambda: [
            Sample((MATRIX, MASK), {"size": 6, "fill_value": -1}),
            Sample((MATRIX, MASK), {"size": 3}),
            Sample((MATRIX, np.array([False, True])), {"size": 1}),
            Sample((np.float64(2.0), np.array(True)), {"size": 2}),
        ],
        bad_samples=lambda: [
            BadSample((MATRIX, MASK), ShapeError, UNSIZED.format("boolean_index")),
            BadSample(
                (MATRIX, MASK.T),
                ShapeError,
                "boolean_index: extents of array and mask differ: 2 and 3",
            ),
            BadSample((MATRIX, MATRIX), DTypeError, "boolean_index: a mask of dtype float64"),
        ],
        reference=lambda x, mask, size, fill_value=0: filled(x[mask], size, fill_value),
    ),
    numerics="exact",
)

COMPRESS = Composite(
    kind=Kind.INDEX,
    function=compress,
    tests=Tests(
        samples=lambda: [
            Sample((np.array([True, False, True]), MATRIX), {"axis": 1, "size": 3}),
            Sample((np.array([0, 2]), MATRIX), {"axis": 0, "size": 1, "fill_value": 7}),
            Sample((np.array([True, False, True, True]), MATRIX), {"size": 2}),
        ],
        bad_samples=lambda: [
            BadSample((np.array([True]), MATRIX), ShapeError, UNSIZED.format("compress")),
            BadSample((MASK, MATRIX), ShapeError, "compress: a condition of 2 axes", {"size": 1}),
            BadSample(
                (MASK[0], MATRIX),
                ShapeError,
                "compress: a condition of 3 elements for an axis of extent 2",
                {"size": 1, "axis": 0},
            ),
        ],
        reference=_compress_reference,
    ),
    numerics="exact",
)

EXTRACT = Composite(
    kind=Kind.INDEX,
    function=extract,
    tests=Tests(
        samples=lambda: [Sample((MASK, MATRIX), {"size": 5, "fill_value": 9})],
        bad_samples=lambda: [BadSample((MASK, MATRIX), ShapeError, UNSIZED.format("compress"))],
        reference=lambda condition, arr, size, fill_value=0: filled(
            np.extract(condition, arr), size, fill_value
        ),
    ),
    numerics="exact",
)

ISIN = Composite(
    kind=Kind.INDEX,
    function=isin,
    tests=Tests(
        samples=lambda: [
            Sample((MATRIX, np.array([[0.5], [-2.5]]))),
            Sample((np.array([[1, 2], [3, 4]]), np.array([4, 1, 9])), {"invert": True}),
            Sample((np.array([np.nan, 1.0]), np.array([np.nan, 1.0]))),
            Sample((MATRIX, np.zeros(0))),
        ],
        reference=lambda element, tests, invert=False: np.isin(element, tests, invert=invert),
    ),
    no_gradient="boolean valued",
    numerics="exact",
)

RECORDS: tuple[Op | Composite, ...] = (
    BOOLEAN_INDEX,
    COMPRESS,
    EXTRACT,
    ISIN,
)
