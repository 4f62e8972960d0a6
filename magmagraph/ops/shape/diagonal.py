"""Diagonals and triangles of matrices."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...errors import ShapeError, message
from ...ir import dims
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import Call, Composite, Kind, Sample
from ..convert import as_dtype, as_node, as_operand
from ..elementwise.arithmetic import add
from ..elementwise.comparison import equal, greater, greater_equal, where
from ..indexing.gathering import size_of, take
from ..indexing.iota import INT64, IOTA
from ..leaf import constant
from ..reduction.primitives import sum
from ..rules.namesakes import namesake
from .arrange import expand_dims, moveaxis, ravel, reshape
from .axes import CUBE, MATRIX, axes_of
from .creation import grid
from .padding import pad
from .slicing import cut

__all__ = [
    "diag",
    "diag_indices",
    "diagflat",
    "diagonal",
    "fill_diagonal",
    "trace",
    "tril",
    "tril_indices",
    "triu",
    "triu_indices",
]


def _matrix(record: Composite, m: Any) -> Node:
    node = as_node(m)
    if node.ndim < 2:
        raise Call(record, (node,)).shape_error(
            f"an operand of {node.ndim} axes", need="at least two axes"
        )
    return node


def _zero(node: Node) -> Node:
    """Return 0 in a node's dtype: a number of Python would make bools integers."""
    return constant(0, dtype=node.dtype)


@documented
def tril(m: Any, k: int = 0) -> Node:
    """Keep the elements on and below a diagonal; the others become 0.

    m: Node or array of at least two axes: matrices in the last two.
    k: The diagonal: above the main one where positive.
    returns: Of the shape and dtype of `m`.
    raises ShapeError: For an operand of fewer axes.

    >>> mg.tril(mg.constant([[1, 2], [3, 4]])).eval()
    array([[1, 0],
           [3, 4]], dtype=int32)
    """
    node = _matrix(TRIL, m)
    row, column = grid(*node.shape[-2:])
    return where(greater_equal(row + k, column), node, _zero(node))


@documented
def triu(m: Any, k: int = 0) -> Node:
    """Keep the elements on and above a diagonal; the others become 0.

    m: Node or array of at least two axes: matrices in the last two.
    k: The diagonal: above the main one where positive.
    returns: Of the shape and dtype of `m`.
    raises ShapeError: For an operand of fewer axes.

    >>> mg.triu(mg.constant([[1, 2], [3, 4]])).eval()
    array([[1, 2],
           [0, 4]], dtype=int32)
    """
    node = _matrix(TRIU, m)
    row, column = grid(*node.shape[-2:])
    return where(greater(row + k, column), _zero(node), node)


@documented
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Node:
    """Return a diagonal of matrices.

    a: Node or array of at least two axes.
    offset: Which diagonal: above the main one where positive.
    axis1, axis2: The axes of the rows and of the columns.
    returns: The other axes, then that of the diagonal.
    raises ShapeError: If the axes are not two different ones of `a`.

    >>> mg.diagonal(mg.constant([[1, 2, 3], [4, 5, 6]]), 1).eval()
    array([2, 6], dtype=int32)
    """
    node = _matrix(DIAGONAL, a)
    call = Call(DIAGONAL, (node,))
    first, second = axes_of(call, (axis1, axis2), node.ndim, "axes")
    node = moveaxis(node, (first, second), (-2, -1))
    rows, columns = node.shape[-2:]
    row, column = (0, offset) if offset >= 0 else (-offset, 0)
    count = dims.minimum(rows - row, columns - column)
    count = dims.maximum(count, 0)
    flat = reshape(node, (*node.shape[:-2], rows * columns))
    axis = flat.ndim - 1
    if isinstance(columns, int) and isinstance(count, int):
        if not count:
            return reshape(cut(flat, axis, 0, 0), (*flat.shape[:-1], 0))
        return cut(flat, axis, row * columns + column, count, columns + 1)
    steps = IOTA(shape=(count,), axis=0, dtype=INT64)
    return take(flat, add((steps + row) * size_of(columns), steps + column), axis)


@documented
def diag(v: Any, k: int = 0) -> Node:
    """Make a matrix of its diagonal, or return the diagonal of a matrix.

    v: Node or array: of one axis, the diagonal of the result; of two axes, the matrix.
    k: Which diagonal: above the main one where positive.
    returns (Node):
    raises ShapeError: If `v` has another number of axes.

    >>> mg.diag(mg.constant([1, 2])).eval()
    array([[1, 0],
           [0, 2]], dtype=int32)
    >>> mg.diag(mg.constant([[1, 2], [3, 4]])).eval()
    array([1, 4], dtype=int32)
    """
    node = as_node(v)
    k = Call(DIAG, (node,)).whole(k, "k")
    if node.ndim == 2:
        return diagonal(node, k)
    if node.ndim != 1:
        raise Call(DIAG, (node,)).shape_error(
            f"an operand of {node.ndim} axes",
            need="one axis or two",
            hint="mg.diagflat(x), or mg.diagonal(x)",
        )
    size = node.shape[0] + abs(k)
    row, column = grid(size, size)
    # Each row holds the element of its own place: one array step less than a gather.
    line = pad(node, (0, k) if k >= 0 else (-k, 0)) if k else node
    return where(equal(row + k, column), expand_dims(line, 1), _zero(node))


@documented
def diagflat(v: Any, k: int = 0) -> Node:
    """Make a matrix whose diagonal is the raveled operand.

    v: Node or array.
    k: Which diagonal: above the main one where positive.
    returns (Node):

    >>> mg.diagflat(mg.constant([[1], [2]])).eval()
    array([[1, 0],
           [0, 2]], dtype=int32)
    """
    return diag(ravel(v), k)


@documented
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Node:
    """Add up a diagonal of matrices.

    a: Node or array of at least two axes.
    offset: Which diagonal: above the main one where positive.
    axis1, axis2: The axes of the rows and of the columns.
    dtype: Of the sum; see `sum`.
    returns: Without these axes.
    raises ShapeError: If the axes are not two different ones of `a`.

    >>> mg.trace(mg.constant([[1, 2], [3, 4]])).eval()
    array(5)
    """
    node = _matrix(TRACE, as_operand(a, dtype))
    return sum(diagonal(node, offset, axis1, axis2), axis=-1, dtype=dtype)


@documented
def fill_diagonal(a: Any, val: Any) -> Node:
    """Return a matrix with new values on its main diagonal.

    NumPy's function of this name writes into its operand; this one leaves it as it is.

    a: Node or array of two axes.
    val: A number, or one value for each row; converted to the dtype of `a`.
    returns: Of the shape and dtype of `a`.
    raises ShapeError: If `a` does not have two axes.

    >>> mg.fill_diagonal(mg.constant([[1, 2], [3, 4]]), 0).eval()
    array([[0, 2],
           [3, 0]], dtype=int32)
    """
    node = as_node(a)
    call = Call(FILL_DIAGONAL, (node,))
    if node.ndim != 2:
        raise call.shape_error(f"an operand of {node.ndim} axes", need="two axes")
    new = as_dtype(val, node.dtype)
    if new.ndim > 1:
        raise call.shape_error(f"values of {new.ndim} axes", need="a number or one axis")
    row, column = grid(*node.shape)
    if new.ndim:
        rows, columns = node.shape
        count = dims.minimum(rows, columns)
        if not dims.require(new.shape[0], ">=", count, []):
            raise call.shape_error(f"{new.shape[0]} values for a diagonal of {count}")
        new = cut(new, 0, 0, count)
        new = pad(new, (0, rows - count))
        new = expand_dims(new, 1)
    return where(equal(row, column), new, node)


# Positions, which are constants: their number follows from ints.


def _static(name: str, *extents: Any) -> None:
    for extent in extents:
        if extent is not None and isinstance(extent, (Dim, str)):
            raise ShapeError(
                message(
                    f"{name}: the extent {extent} is known only at the call",
                    need="ints: the number of positions follows from them",
                    hint="mg.tril(x) or mg.triu(x), which take symbolic extents",
                )
            )


_MOST_POSITIONS = 1 << 28  # elements of a matrix whose positions are listed
_MOST_AXES = 64  # as NumPy's arrays have


def _positions(name: str, n: int, k: int, m: int | None) -> tuple[Node, Node]:
    _static(name, n, m)
    if max(n, 0) * max(n if m is None else m, 0) > _MOST_POSITIONS:
        raise ShapeError(
            message(f"{name}: a matrix of shape ({n}, {n if m is None else m})",
                    need=f"at most {_MOST_POSITIONS} elements: the positions are constants",
                    hint="mg.tril(x) or mg.triu(x), which take any extents")
        )  # fmt: skip
    most = max(n, n if m is None else m) + 1  # beyond it all positions are taken, or none
    rows, columns = getattr(np, name)(n, min(max(k, -most), most), m)
    return constant(rows), constant(columns)


@documented
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Node, Node]:
    """Return the positions on and below a diagonal.

    n, m: Rows and columns (as many as rows unless said).
    k: The diagonal: above the main one where positive.
    returns (tuple of Node): Rows and columns: int64 constants, for subscripts.
    raises ShapeError: If an extent is symbolic.

    >>> x = mg.constant([[1, 2], [3, 4]])
    >>> x[mg.tril_indices(2)].eval()
    array([1, 3, 4], dtype=int32)
    """
    return _positions("tril_indices", n, k, m)


@documented
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Node, Node]:
    """Return the positions on and above a diagonal.

    n, m: Rows and columns (as many as rows unless said).
    k: The diagonal: above the main one where positive.
    returns (tuple of Node): Rows and columns: int64 constants, for subscripts.
    raises ShapeError: If an extent is symbolic.

    >>> x = mg.constant([[1, 2], [3, 4]])
    >>> x[mg.triu_indices(2)].eval()
    array([1, 2, 4], dtype=int32)
    """
    return _positions("triu_indices", n, k, m)


@documented
def diag_indices(n: Any, ndim: int = 2) -> tuple[Node, ...]:
    """Return the positions of the main diagonal.

    n: The extent of every axis: an int, a name or a Dim.
    ndim: The number of axes.
    returns (tuple of Node): The same positions, int64, for each axis.

    >>> x = mg.constant([[1, 2], [3, 4]])
    >>> x.at[mg.diag_indices(2)].set(0).eval()
    array([[0, 2],
           [3, 0]], dtype=int32)
    """
    if not 0 <= ndim <= _MOST_AXES:
        raise ShapeError(message(f"diag_indices: ndim={ndim}", need=f"at most {_MOST_AXES} axes"))
    return (IOTA(shape=dims.parse_shape((n,)), axis=0, dtype=INT64),) * ndim


_record = partial(namesake, Kind.INDEX)


def _too_few(name: str) -> tuple[Any, ...]:
    return (MATRIX[0],), ShapeError, f"{name}: an operand of 1 axes"


def _fill_reference(a: np.ndarray, val: Any) -> np.ndarray:
    result = np.array(a)
    np.fill_diagonal(result, val)
    return result


_SIZES = [Sample((), {"n": 3}), Sample((), {"n": 3, "k": 1, "m": 4})]
_PLANES = [
    Sample((MATRIX,)),
    Sample((MATRIX,), {"offset": 1}),
    Sample((CUBE,), {"offset": -1, "axis1": 2, "axis2": 0}),
    Sample((MATRIX,), {"offset": 5}),
]
_BAD_AXES = "axes=(1, 1) names axis 1 twice"
_MATRICES = [Sample((MATRIX,)), Sample((CUBE,), {"k": -1}), Sample((CUBE,), {"k": 1})]

TRIL = _record(tril, "The elements on and below a diagonal.", _MATRICES, [_too_few("tril")])
TRIU = _record(triu, "The elements on and above a diagonal.", _MATRICES, [_too_few("triu")])
DIAGONAL = _record(
    diagonal,
    "A diagonal of matrices.",
    _PLANES,
    [((MATRIX,), ShapeError, f"diagonal: {_BAD_AXES}", {"axis1": 1}), _too_few("diagonal")],
)
DIAG = _record(
    diag,
    "A matrix of its diagonal, or the diagonal of a matrix.",
    [
        Sample((MATRIX[0],)),
        Sample((MATRIX[0],), {"k": 2}),
        Sample((MATRIX[0],), {"k": -1}),
        Sample((MATRIX,), {"k": 1}),
        Sample((np.zeros(0),)),
    ],
    [((CUBE,), ShapeError, "diag: an operand of 3 axes")],
)
DIAGFLAT = _record(
    diagflat, "A matrix whose diagonal is the raveled operand.", [Sample((MATRIX,), {"k": 1})]
)
TRACE = _record(
    trace, "The sum of a diagonal of matrices.", _PLANES, [_too_few("trace")], numerics="reassoc"
)
FILL_DIAGONAL = _record(
    fill_diagonal,
    "A matrix with new values on its main diagonal.",
    [
        Sample((MATRIX, np.float64(7.0))),
        Sample((MATRIX, np.array([7.0, 8.0]))),
        Sample((MATRIX.T, np.array([7.0, 8.0]))),
    ],
    [((CUBE, np.float64(0.0)), ShapeError, "fill_diagonal: an operand of 3 axes")],
    reference=_fill_reference,
)

RECORDS = (
    TRIL,
    TRIU,
    DIAGONAL,
    DIAG,
    DIAGFLAT,
    TRACE,
    FILL_DIAGONAL,
    _record(tril_indices, "The positions on and below a diagonal.", _SIZES),
    _record(triu_indices, "The positions on and above a diagonal.", _SIZES),
    _record(diag_indices, "The positions of the main diagonal.", [Sample((), {"n": 3})]),
)
