"""What the operations on matrices share: shape checks, triangles, safe quotients, run-time errors.

Matrices stand in the last two axes; all axes before them are a batch, over which every operation
is repeated. Gradients are written with the adjoint (the conjugate transpose), so that they are
those of complex matrices too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtypes import finfo, is_complex, is_integer
from ...errors import LinAlgError, ShapeError, message
from ...ir import dims
from ...ir.graph import Node
from ...ir.op import BadSample, Call
from ...ir.types import Extent, Shape, Type
from ..convert import cast
from ..elementwise.arithmetic import add, multiply
from ..elementwise.bits import logical_and
from ..elementwise.comparison import equal, greater, greater_equal, less, less_equal, where
from ..elementwise.complex_numbers import conj, real
from ..elementwise.family import inexact
from ..elementwise.signs import absolute
from ..indexing.gathering import TAKE
from ..indexing.iota import IOTA
from ..leaf import constant
from ..leaf import extent as extent_scalar
from ..reduction.primitives import max, sum
from ..shape.arrange import expand_dims, reshape, swapaxes
from ..shape.joining import broadcast_to

INT32 = np.dtype(np.int32)


@functools.cache
def lapack(name: str, dtype: np.dtype) -> Any:
    """Return a routine of LAPACK; to look it up takes longer than to solve a small system."""
    from scipy.linalg import get_lapack_funcs

    return get_lapack_funcs((name,), dtype=dtype)[0]


# Shapes.


def matrices(call: Call, x: Type) -> tuple[Shape, Extent, Extent]:
    """Return the batch, the rows and the columns of an operand, which must have two axes."""
    if x.ndim < 2:
        raise call.shape_error(
            f"an operand of {x.ndim} axes" if x.ndim != 1 else "an operand of 1 axis",
            need="at least 2: the rows and the columns of matrices, last",
            hint="mg.expand_dims(x, 0), which is one row; axis 1 for one column",
        )
    return x.shape[:-2], x.shape[-2], x.shape[-1]


def squares(call: Call, x: Type) -> tuple[Shape, Extent]:
    """Return the batch and the order of an operand, whose matrices must be square."""
    batch, rows, columns = matrices(call, x)
    order = dims.unify(rows, columns, call.constraints) if rows != columns else rows
    if order is None:
        raise call.shape_error(
            f"matrices of {rows} rows and {columns} columns",
            need="square matrices in the last two axes",
        )
    return batch, order


def square_type(call: Call, a: Type, **attrs: Any) -> Type:
    """Return the type of an operand that has square matrices: that of the result as well."""
    batch, order = squares(call, a)
    return Type(a.dtype, (*batch, order, order))


def shared_batch(call: Call, left: Shape, right: Shape) -> Shape:
    """Return the common batch of two operands by NumPy's rule."""
    try:
        return dims.broadcast([left, right], call.constraints)
    except dims.BroadcastFailure as failure:
        raise call.shape_error(
            f"batch extents {failure.left} and {failure.right} do not broadcast "
            f"(axis {failure.axis - 2})",
            need="equal extents, or a literal 1 (a named dimension never broadcasts)",
        ) from None


def check_pivots(call: Call, pivots: Type) -> None:
    """Refuse row exchanges that are not integers."""
    if not is_integer(pivots.dtype):
        raise call.dtype_error(f"pivots of dtype {pivots.dtype.name}", need="integers")
    if not pivots.ndim:
        raise call.shape_error("pivots of 0 axes", need="at least 1")


def check_exchanges(name: str, pivots: Any, rows: int) -> None:
    """Raise where a row is exchanged with one that is not there: LAPACK would go to its address."""
    if (pivots.astype(np.uint64) >= rows).any():  # negative ones become large
        raise LinAlgError(
            message(
                f"{name}: pivots from {pivots.min()} to {pivots.max()} for {rows} rows",
                need=f"rows in [0, {rows})",
                hint="the pivots that mg.linalg.lu_factor returns",
            )
        )


def is_empty(*shapes: Shape) -> bool:
    """Return whether one of the shapes is known to hold no element."""
    return any(type(extent) is int and extent == 0 for shape in shapes for extent in shape)


def numbers(x: Any) -> Node:
    """Return `x` as a float or complex node; ints and bools become floats."""
    return inexact(x)


# Of complex matrices.


def hermitian(rule: Callable[..., Sequence[Node | None]]) -> Callable[..., Any]:
    """Turn a rule over gradients ``dL/dRe + i dL/dIm`` into one over cotangents, its conjugates.

    Formulas with adjoints, as the literature has them, are over the former. Of real operands
    nothing changes.
    """

    def gradient(node: Node, cotangents: Any) -> tuple[Node | None, ...]:
        if isinstance(cotangents, tuple):
            conjugates: Any = tuple(None if one is None else conj(one) for one in cotangents)
        else:
            conjugates = conj(cotangents)
        return tuple(None if part is None else conj(part) for part in rule(node, conjugates))

    return gradient


def adjoint(x: Node) -> Node:
    """Return the conjugate transposes of matrices."""
    return conj(swapaxes(x, -1, -2))


def transposed(x: Node) -> Node:
    """Return the transposes of matrices."""
    return swapaxes(x, -1, -2)


def without_imaginary(x: Node) -> Node:
    """Return values without their imaginary parts, of the same dtype."""
    return cast(real(x), x.dtype) if is_complex(x.dtype) else x


# Triangles and diagonals, as masks: these fuse with what reads them.


def _offsets(rows: Extent, columns: Extent) -> tuple[Node, Node]:
    down = IOTA(shape=(rows, 1), axis=0, dtype=INT32)
    across = IOTA(shape=(1, columns), axis=1, dtype=INT32)
    return down, across


def lower_part(x: Node, offset: int = 0) -> Node:
    """Return matrices with zeros above the diagonal number `offset`."""
    down, across = _offsets(x.shape[-2], x.shape[-1])
    return where(greater_equal(add(down, offset) if offset else down, across), x, 0)


def upper_part(x: Node, offset: int = 0) -> Node:
    """Return matrices with zeros below the diagonal number `offset`."""
    down, across = _offsets(x.shape[-2], x.shape[-1])
    return where(greater_equal(across, add(down, offset) if offset else down), x, 0)


def is_diagonal(rows: Extent, columns: Extent) -> Node:
    """Return a bool matrix that holds on the diagonal."""
    return equal(*_offsets(rows, columns))


def identity(order: Extent, dtype: np.dtype) -> Node:
    """Return the identity matrix."""
    return where(is_diagonal(order, order), constant(1, dtype=dtype), constant(0, dtype=dtype))


def diagonal_of(x: Node) -> Node:
    """Return the diagonals of square matrices, as vectors."""
    return sum(where(is_diagonal(x.shape[-2], x.shape[-1]), x, 0), axis=-1, dtype=x.dtype)


def diagonal_matrix(x: Node) -> Node:
    """Return matrices with the vectors of `x` on their diagonals."""
    extent = x.shape[-1]
    return where(is_diagonal(extent, extent), expand_dims(x, -1), 0)


def halved_lower(x: Node) -> Node:
    """Return the lower triangles with half of the diagonals."""
    down, across = _offsets(x.shape[-2], x.shape[-1])
    return where(greater(down, across), x, where(equal(down, across), multiply(x, 0.5), 0))


def of_triangle(gradient: Node, lower: bool) -> Node:
    """Return the gradient of a Hermitian operand, of which only one triangle was read.

    What belongs to an element and to its mirror image falls to the one that was read.
    """
    down, across = _offsets(gradient.shape[-2], gradient.shape[-1])
    read = greater(down, across) if lower else greater(across, down)
    both = add(gradient, adjoint(gradient))
    return where(read, both, where(equal(down, across), without_imaginary(gradient), 0))


def from_triangle(x: Node) -> Node:
    """Return Hermitian matrices from their lower triangles."""
    below = lower_part(x, -1)
    middle = where(is_diagonal(x.shape[-2], x.shape[-1]), without_imaginary(x), 0)
    return add(add(below, adjoint(below)), middle)


def zeros_like(x: Node) -> Node:
    """Return zeros of the shape and dtype of a node."""
    return broadcast_to(constant(0, dtype=x.dtype), x.shape)


def rows_at(x: Node, positions: Node) -> Node:
    """Return the rows of matrices in another order: ``x[..., positions, :]`` for each of a batch.

    `x` and `positions` have the same batch.
    """
    batch = x.shape[:-2]
    if not batch:
        return TAKE(x, positions, axis=0, mode="clip")
    count = dims.size(batch)
    rows, columns = x.shape[-2:]
    number = IOTA(shape=(count, 1), axis=0, dtype=positions.dtype)
    first = multiply(number, extent_like(rows, positions))
    flat = add(reshape(positions, (count, positions.shape[-1])), first)
    rows_in_order = TAKE(reshape(x, (count * rows, columns)), flat, axis=0, mode="clip")
    return reshape(rows_in_order, (*batch, positions.shape[-1], columns))


def extent_like(extent: Extent, like: Node) -> Node:
    """Return an extent as a scalar of a node's dtype."""
    if type(extent) is int:
        return constant(extent, dtype=like.dtype)
    return cast(extent_scalar(extent), like.dtype)


# Quotients by differences of eigenvalues and singular values.

# Values that differ by less than so many eps of the largest are taken for one value: this much
# the rounding of the decomposition moves values that are equal.
SPREAD = 16.0


def close_to(values: Node) -> Node:
    """Return the distance within which eigenvalues or singular values count as equal.

    Of shape ``(..., 1, 1)`` for values of shape ``(..., k)``.
    """
    eps = float(finfo(values.dtype).eps)
    return multiply(expand_dims(max(absolute(values), axis=-1), (-1, -2)), SPREAD * eps)


def safe_inverse(difference: Node, tolerance: Node) -> Node:
    """Return the reciprocal, and 0 where the absolute value is at most the tolerance."""
    near = less_equal(absolute(difference), tolerance)
    return where(near, 0, 1.0 / where(near, 1, difference))


def turn_of(turn: Node, gaps: Node, values: Node, terms: Sequence[Node]) -> Node:
    """Return the rotation of vectors, ``turn / gaps``, with rounding noise set to 0.

    0 for values that count as equal. Where values are close (within the root of eps) and the
    numerator is no more than the rounding of the `terms` that it is the difference of, it is 0,
    too: a function that does not depend on how vectors of close values are turned among each other
    has an exact 0 there, which the quotient would make into any number.
    """
    eps = float(finfo(values.dtype).eps)
    largest = [max(absolute(term), axis=(-2, -1), keepdims=True) for term in terms]
    size = largest[0] if len(largest) == 1 else add(largest[0], largest[1])
    near = less_equal(absolute(gaps), multiply(close_to(values), eps**-0.5 / SPREAD))
    # Strictly less: zeros for the terms, as forward mode puts there, are not rounding.
    noise = less(absolute(turn), multiply(size, 4.0 * SPREAD * eps))
    return multiply(where(logical_and(near, noise), 0, turn), safe_inverse(gaps, close_to(values)))


# Errors at run time.


def checked(
    op: str, problem: str, need: str, hint: str, run: Callable[..., Any], *arrays: Any
) -> Any:
    """Return ``run(*arrays)``; where that raises, say which matrix of the first array is at fault.

    `run` is called again with each matrix of the first array alone, and for the others with what
    belongs to it, until one fails.
    """
    try:
        return run(*arrays)
    except np.linalg.LinAlgError as error:
        if isinstance(error, LinAlgError):
            raise
        first = arrays[0]
        for index in np.ndindex(*first.shape[:-2]):
            try:
                run(first[index], *[_one_of(a, index) for a in arrays[1:]])
            except np.linalg.LinAlgError:
                raise failed(op, problem, need, hint, first, index) from None
        raise failed(op, problem, need, hint, first, None) from None


def iterated(
    xp: Any, op: str, run: Callable[..., Any], a: Any, *others: Any, read: Any = None
) -> Any:
    """Return ``run(a, *others)``, a decomposition that LAPACK finds by iteration; see `checked`.

    With an infinity among the elements some of LAPACK's iterations never end. So all elements are
    looked at first, as SciPy does; the elements that are read are those of `read`, where given.
    """
    elements = a if read is None else read
    finite = xp.isfinite(elements)
    if not bool(finite.all()):
        for index in np.ndindex(*a.shape[:-2]):
            if not bool(finite[index].all()):
                raise failed(op, *ITERATION, elements, index)
    return checked(op, *ITERATION, run, a, *others)


def _one_of(array: Any, index: tuple[int, ...]) -> Any:
    """Return some member of a broadcast batch: any serves, since the matrix is what fails."""
    return array[(0,) * (array.ndim - 2)] if 0 not in array.shape[:-2] else array[..., :0, :]


def failed(
    op: str, problem: str, need: str, hint: str, array: Any, index: tuple[int, ...] | None
) -> LinAlgError:
    """Make the error that names a matrix of a batch."""
    if index is None:
        which, matrix = "a matrix of the batch", array
    elif not index:
        which, matrix = "the matrix", array
    else:
        which = f"matrix {list(index)} of the batch {tuple(array.shape[:-2])}"
        matrix = array[index]
    if not np.all(np.isfinite(matrix)):
        problem, need = "holds NaN or infinite values", "finite values"
        hint = "mg.where(mg.isfinite(x), x, 0), or find where they arise"
    return LinAlgError(message(f"{op}: {which} {problem}", need, hint))


SINGULAR = (
    "is singular",
    "an invertible matrix",
    "mg.linalg.lstsq or mg.linalg.pinv; or add a multiple of the identity",
)
INDEFINITE = (
    "is not positive definite",
    "positive eigenvalues",
    "add a small multiple of the identity (jitter); or mg.linalg.eigh, mg.linalg.solve",
)
ITERATION = (
    "has a decomposition whose iteration does not converge",
    "a matrix whose entries do not lie at the ends of the dtype's range",
    "scale it; or mg.cast(x, 'float64')",
)


# Samples. Matrices are well conditioned unless said; values lie apart.

SQUARE = np.array([[2.0, -0.7, 0.4], [0.5, 1.6, -0.9], [-0.3, 0.8, 2.4]])
SQUARES = np.stack([SQUARE, SQUARE.T + np.diag([1.0, -0.5, 0.6]), 3.0 * np.eye(3)[[1, 2, 0]] + 0.2])
POSITIVE_DEFINITE = np.array([[2.5, 0.6, -0.4], [0.6, 1.7, 0.5], [-0.4, 0.5, 3.1]])
DEFINITES = np.stack(
    [POSITIVE_DEFINITE, POSITIVE_DEFINITE[::-1, ::-1] + 0.5 * np.eye(3)]
)
TALL = np.array([[1.2, -0.4, 0.3], [0.7, 1.9, -0.8], [-0.5, 0.6, 2.1], [0.9, -1.1, 0.2]])
WIDE_ = np.ascontiguousarray(TALL.T)
COLUMNS = np.array([[0.9, -1.3], [1.6, -0.4], [2.2, -0.7]])
VECTOR = np.array([0.6, 1.5, -0.8])
ONE = np.array([[1.7]])
EMPTY = np.zeros((0, 0))
STRIDED = np.repeat(np.repeat(SQUARES, 2, axis=-1), 2, axis=-2)[..., ::2, ::-2]


def bad_squares(name: str) -> Callable[[], list[BadSample]]:
    """Return the bad samples of a function of square matrices."""
    return lambda: [
        BadSample((VECTOR,), ShapeError, f"{name}: an operand of 1 axis"),
        BadSample((TALL,), ShapeError, f"{name}: matrices of 4 rows and 3 columns"),
    ]


def bad_matrices(name: str) -> Callable[[], list[BadSample]]:
    """Return the bad sample of a function of matrices."""
    return lambda: [BadSample((VECTOR,), ShapeError, f"{name}: an operand of 1 axis")]
