"""Whether arrays are equal, or close; positions counted through several axes; polynomials."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ... import dims
from ...dtypes import is_float, is_unsigned
from ...errors import DTypeError, ShapeError
from ...graph import Node
from ...op import Call, Kind, Sample
from ...types import Extent
from ..convert import as_node, cast, promoted
from ..indexing.gathering import check_range, counted, flat_positions, size_of
from ..indexing.iota import INT64, IOTA
from ..leaf import constant
from ..reduction.cumulative import cumprod
from ..reduction.folding import accumulated
from ..reduction.primitives import all
from ..rules.namesakes import namesake
from ..shape.arrange import by_columns, expand_dims, reshape
from ..shape.axes import MATRIX
from ..shape.pieces import flip
from .arithmetic import absolute, add, floor_divide, multiply, remainder, subtract
from .bits import logical_and, logical_or
from .comparison import equal, less_equal, where
from .family import floating_pair
from .rounding import isfinite, isnan

__all__ = [
    "allclose",
    "array_equal",
    "array_equiv",
    "isclose",
    "ix_",
    "polyval",
    "ravel_multi_index",
    "unravel_index",
    "vander",
]


def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Node:
    """Tell where ``abs(a - b) <= atol + rtol * abs(b)``, or where infinities are equal.

    Parameters
    ----------
    a, b
        Nodes or arrays, broadcast against each other.
    rtol, atol
        The relative and the absolute tolerance.
    equal_nan
        Whether NaN is close to NaN.

    Returns
    -------
    Node
        bool, of the broadcast shape. No gradient: boolean valued.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.isclose([1.0, 2.0], [1.000001, 2.1]).eval()
    array([ True, False])
    """
    x, y = floating_pair(a, b)
    if x.dtype.itemsize < 4:  # tolerances are below what 16-bit floats tell apart
        x, y = cast(x, np.float32), cast(y, np.float32)
    near = less_equal(absolute(subtract(x, y)), add(atol, multiply(rtol, absolute(y))))
    result = logical_or(logical_and(near, isfinite(y)), equal(x, y))
    return logical_or(result, logical_and(isnan(x), isnan(y))) if equal_nan else result


def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Node:
    """Tell whether all elements are close; see `isclose`.

    Parameters
    ----------
    a, b
        Nodes or arrays, broadcast against each other.
    rtol, atol
        The relative and the absolute tolerance.
    equal_nan
        Whether NaN is close to NaN.

    Returns
    -------
    Node
        A bool. No gradient: boolean valued.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.allclose([1.0, 2.0], [1.000001, 2.0]).eval()
    array(True)
    """
    return all(isclose(a, b, rtol, atol, equal_nan))


def _one_shape(x: Node, y: Node) -> bool:
    if x.ndim != y.ndim:
        return False
    return not any(
        dims.unify(left, right, []) is None for left, right in zip(x.shape, y.shape, strict=True)
    )


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Node:
    """Tell whether two arrays have one shape and equal elements.

    Parameters
    ----------
    a1, a2
        Nodes or arrays.
    equal_nan
        Whether NaN equals NaN.

    Returns
    -------
    Node
        A bool; False where the shapes cannot be one. No gradient: boolean valued.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.array_equal([1.0, 2.0], [1.0, 2.0]).eval()
    array(True)
    """
    x, y = promoted(a1, a2)
    if not _one_shape(x, y):
        return constant(False)
    same = equal(x, y)
    if equal_nan and is_float(x.dtype):
        same = logical_or(same, logical_and(isnan(x), isnan(y)))
    return all(same)


def array_equiv(a1: Any, a2: Any) -> Node:
    """Tell whether two arrays broadcast to one shape with equal elements.

    Parameters
    ----------
    a1, a2
        Nodes or arrays.

    Returns
    -------
    Node
        A bool; False where the shapes do not broadcast. No gradient: boolean valued.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.array_equiv([[1.0, 2.0], [1.0, 2.0]], [1.0, 2.0]).eval()
    array(True)
    """
    x, y = promoted(a1, a2)
    try:
        dims.broadcast([x.shape, y.shape], [])
    except dims.BroadcastFailure:
        return constant(False)
    return all(equal(x, y))


# Positions.


def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Node, ...]:
    """Turn positions in the raveled array into positions along each axis.

    Parameters
    ----------
    indices
        Integers of any shape.
    shape
        The shape of the array: ints, names, Dims.
    order
        "F" where positions count along the first axis first.

    Returns
    -------
    tuple of Node
        For each axis the positions, int64. Those outside are moved to the nearest valid ones.

    Raises
    ------
    DTypeError
        If the positions are not integers.
    ShapeError
        If a constant position lies outside.

    Examples
    --------
    >>> import magmagraph as mg
    >>> rows, columns = mg.unravel_index(mg.constant([5, 2]), (2, 3))
    >>> rows.eval(), columns.eval()
    (array([1, 0]), array([2, 2]))
    """
    node = as_node(indices)
    call = Call(UNRAVEL_INDEX, (node,))
    if node.dtype.kind not in "iu":
        raise call.dtype_error(f"positions of dtype {node.dtype.name}", need="integers")
    extents = _parsed(shape)
    total = dims.size(extents)
    check_range(call, node, 0, total, "clip")
    places = counted(node, total, "clip")
    columns = by_columns("unravel_index", order)
    found = []
    for extent in extents if columns else reversed(extents):
        count = size_of(extent)
        found.append(remainder(places, count))
        places = floor_divide(places, count)
    return tuple(found if columns else reversed(found))


def ravel_multi_index(
    multi_index: Sequence[Any], dims: Any, mode: str = "clip", order: str = "C"
) -> Node:
    """Turn positions along each axis into positions in the raveled array.

    Parameters
    ----------
    multi_index
        For each axis integers, broadcast against each other.
    dims
        The shape of the array: ints, names, Dims.
    mode
        What a position outside means: see `take`.
    order
        "F" where the result counts along the first axis first.

    Returns
    -------
    Node
        int64, of the broadcast shape.

    Raises
    ------
    ShapeError
        If there are not as many positions as axes, or a constant one lies outside.
    DTypeError
        If the positions are not integers.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.ravel_multi_index([mg.constant([1, 0]), mg.constant([2, 2])], (2, 3)).eval()
    array([5, 2])
    """
    nodes = [as_node(each) for each in multi_index]
    call = Call(RAVEL_MULTI_INDEX, tuple(nodes))
    extents = _parsed(dims)
    if len(nodes) != len(extents) or not nodes:
        raise call.shape_error(f"{len(nodes)} positions for {len(extents)} axes", need="as many")
    for axis, (node, extent) in enumerate(zip(nodes, extents, strict=True)):
        if node.dtype.kind not in "iu":
            raise call.dtype_error(f"positions of dtype {node.dtype.name}", need="integers")
        check_range(call, node, axis, extent, mode)
    call.broadcast(*[node.shape for node in nodes])
    if by_columns("ravel_multi_index", order):
        extents, nodes = extents[::-1], nodes[::-1]
    return flat_positions(extents, nodes, mode)


def _parsed(shape: Any) -> tuple[Extent, ...]:
    single = isinstance(shape, (int, np.integer, str, dims.Dim))
    return dims.parse_shape((shape,) if single else tuple(shape))


def ix_(*args: Any) -> tuple[Node, ...]:
    """Lay positions along one axis each, so that subscripts with them take every combination.

    Parameters
    ----------
    *args
        Integers of one axis for each axis.

    Returns
    -------
    tuple of Node
        Each with extent 1 along the other axes.

    Raises
    ------
    ShapeError
        If an argument does not have one axis.
    DTypeError
        If an argument is not of integers (the number of elements of a mask is not known).

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.constant([[1, 2, 3], [4, 5, 6]])
    >>> x[mg.ix_([1, 0], [0, 2])].eval()
    array([[4, 6],
           [1, 3]], dtype=int32)
    """
    nodes = [as_node(arg) for arg in args]
    call = Call(IX_, tuple(nodes))
    result = []
    for number, node in enumerate(nodes):
        if node.ndim != 1:
            raise call.shape_error(f"positions of {node.ndim} axes", need="one axis")
        if node.dtype.kind not in "iu":
            raise call.dtype_error(
                f"positions of dtype {node.dtype.name}",
                need="integers",
                mend="mg.flatnonzero(mask, size=n) for a mask",
            )
        line: list[Extent] = [1] * len(nodes)
        line[number] = node.shape[0]
        result.append(reshape(node, line))
    return tuple(result)


# Polynomials.


def polyval(p: Any, x: Any) -> Node:
    """Evaluate a polynomial by Horner's rule.

    Parameters
    ----------
    p
        The coefficients, of one axis of int extent: that of the highest power first.
    x
        Where: node or array of any shape.

    Returns
    -------
    Node
        Of the shape of `x` and the promoted dtype; 0 without coefficients.

    Raises
    ------
    ShapeError
        If the coefficients do not have one axis of int extent.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.polyval([2.0, 0.0, 1.0], [0.0, 1.0, 3.0]).eval()
    array([ 1.,  3., 19.], dtype=float32)
    """
    coefficients, node = promoted(p, x)
    call = Call(POLYVAL, (coefficients, node))
    if coefficients.ndim != 1 or not isinstance(coefficients.shape[0], int):
        raise call.shape_error(
            f"coefficients of shape {coefficients.shape}", need="one axis of int extent"
        )
    result = multiply(node, 0)
    for i in range(coefficients.shape[0]):
        result = add(multiply(result, node), coefficients[i])
    return result


def vander(x: Any, N: Any = None, increasing: bool = False) -> Node:
    """Make the matrix of powers of values, a row for each value.

    Parameters
    ----------
    x
        Node or array of one axis.
    N
        How many powers, from 0 on; as many as values unless said.
    increasing
        Whether the power rises from left to right.

    Returns
    -------
    Node
        Of the dtype of `x`; integers of fewer bits (and bools) become int64, as in NumPy.

    Raises
    ------
    ShapeError
        If `x` does not have one axis.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.vander([2.0, 3.0], 3).eval()
    array([[4., 2., 1.],
           [9., 3., 1.]], dtype=float32)
    """
    node = accumulated(x, None)
    if is_unsigned(node.dtype) and as_node(x).dtype.itemsize < 8:
        node = cast(node, INT64)
    call = Call(VANDER, (node,))
    if node.ndim != 1:
        raise call.shape_error(f"values of {node.ndim} axes", need="one axis")
    count = node.shape[0] if N is None else dims.parse_shape((N,))[0]
    place = IOTA(shape=(1, count), axis=1, dtype=INT64)
    # The running product of 1, x, x, ...: exact for integers, and right at 0.
    factors = where(equal(place, 0), 1, expand_dims(node, 1))
    powers = cast(cumprod(factors, axis=1), node.dtype)
    return powers if increasing else flip(powers, 1)


_CLOSE = np.array([[1.0, 2.0, np.nan], [np.inf, -np.inf, 3.0]])
_NEARLY = np.array([[1.0 + 1e-3, 2.5, np.nan], [np.inf, np.inf, 3.0]])
_POINTS = np.array([0.5, -1.0, 2.0, 0.0])
_BOOLEAN = "boolean valued"


_record = partial(namesake, Kind.INDEX)

_COMPARED = [
    Sample((_CLOSE, _NEARLY), {"rtol": 0.01}),
    Sample((_CLOSE, _NEARLY), {"atol": 0.6, "rtol": 0.01, "equal_nan": True}),
    Sample((MATRIX, MATRIX[0])),
]
ISCLOSE = _record(isclose, "Where elements are close.", _COMPARED, no_gradient=_BOOLEAN)
ALLCLOSE = _record(
    allclose,
    "Whether all elements are close.",
    [*_COMPARED, Sample((MATRIX, MATRIX))],
    no_gradient=_BOOLEAN,
    reference=lambda *operands, **options: np.asarray(np.allclose(*operands, **options)),
)
ARRAY_EQUAL = _record(
    array_equal,
    "Whether two arrays have one shape and equal elements.",
    [
        Sample((MATRIX, MATRIX)),
        Sample((_CLOSE, _CLOSE)),
        Sample((_CLOSE, _CLOSE), {"equal_nan": True}),
        Sample((MATRIX, MATRIX[0])),
    ],
    no_gradient=_BOOLEAN,
    reference=lambda *operands, **options: np.asarray(np.array_equal(*operands, **options)),
)
ARRAY_EQUIV = _record(
    array_equiv,
    "Whether two arrays broadcast to one shape with equal elements.",
    [
        Sample((MATRIX, MATRIX[0])),
        Sample((np.ones((2, 2)), np.ones(2))),
    ],
    no_gradient=_BOOLEAN,
    reference=lambda *operands: np.asarray(np.array_equiv(*operands)),
)
UNRAVEL_INDEX = _record(
    unravel_index,
    "Positions along each axis of positions in the raveled array.",
    [
        Sample((np.array([[5, 2], [0, 23]]),), {"shape": (2, 3, 4)}),
        Sample((np.array(3),), {"shape": 5}),
    ],
    [((MATRIX,), DTypeError, "unravel_index: positions of dtype float64", {"shape": (2, 3)})],
    no_gradient="integer valued",
)
RAVEL_MULTI_INDEX = _record(
    ravel_multi_index,
    "Positions in the raveled array of positions along each axis.",
    [
        Sample(([np.array([[1], [0]]), np.array([2, 0])],), {"dims": (2, 3)}),
        Sample(([np.array([4, -1])],), {"dims": 3, "mode": "wrap"}),
    ],
    [
        (
            ([np.array([1])],),
            ShapeError,
            "ravel_multi_index: 1 positions for 2 axes",
            {"dims": (2, 3)},
        )
    ],
    no_gradient="integer valued",
    reference=lambda at, dims, mode="raise": np.ravel_multi_index(
        tuple(np.broadcast_arrays(*at)), np.atleast_1d(dims), mode
    ),
)
IX_ = _record(
    ix_,
    "Positions laid along one axis each.",
    [Sample((np.array([1, 0]), np.array([0, 2, 1])))],
    [
        ((MATRIX,), ShapeError, "ix_: positions of 2 axes"),
        ((MATRIX[0] > 0,), DTypeError, "ix_: positions of dtype bool"),
    ],
    no_gradient="integer valued",
)
POLYVAL = _record(
    polyval,
    "The value of a polynomial.",
    [
        Sample((np.array([0.5, -1.0, 2.0]), MATRIX)),
        Sample((np.zeros(0), MATRIX), gradient=(), reason="it is 0 everywhere"),
        Sample((np.array([2, 0, 1]), np.array([3, -1]))),
    ],
    [((MATRIX, MATRIX), ShapeError, "polyval: coefficients of shape (2, 3)")],
    numerics="reassoc",
)
VANDER = _record(
    vander,
    "The matrix of powers of values.",
    [
        Sample((_POINTS,)),
        Sample((_POINTS,), {"N": 3, "increasing": True}),
        Sample((np.array([2, -3]),), {"N": 3}),
    ],
    [((MATRIX,), ShapeError, "vander: values of 2 axes")],
    numerics="reassoc",
)

RECORDS = (
    ISCLOSE,
    ALLCLOSE,
    ARRAY_EQUAL,
    ARRAY_EQUIV,
    UNRAVEL_INDEX,
    RAVEL_MULTI_INDEX,
    IX_,
    POLYVAL,
    VANDER,
)
