"""Factorizations by elimination: Cholesky's, and LU with row exchanges."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...dtypes import real_dtype
from ...errors import GradientError, ShapeError, message
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import LAPACK, Call, Composite, Kind, Linalg, Op, Precision, Sample, Tests
from ...ir.types import Extent, Type
from ..control.identities import ITEM
from ..elementwise.arithmetic import add, subtract
from ..elementwise.comparison import equal, where
from ..indexing.iota import IOTA
from ..leaf import constant
from ..products.contraction import matmul
from ..rules.matrix_facts import Facts, always
from ..shape.arrange import expand_dims
from ..shape.joining import concatenate
from ..shape.slicing import cut
from .parts import (
    DEFINITES,
    EMPTY,
    INDEFINITE,
    INT32,
    ONE,
    POSITIVE_DEFINITE,
    SQUARE,
    SQUARES,
    STRIDED,
    TALL,
    WIDE_,
    adjoint,
    bad_matrices,
    bad_squares,
    check_exchanges,
    check_pivots,
    checked,
    halved_lower,
    hermitian,
    is_diagonal,
    is_empty,
    lapack,
    lower_part,
    matrices,
    numbers,
    of_triangle,
    rows_at,
    square_type,
    upper_part,
    zeros_like,
)
from .triangular import triangular

__all__ = ["cholesky", "lu", "lu_factor"]


# Cholesky.


def _cholesky(xp: Any, a: Any) -> Any:
    return checked("cholesky", *INDEFINITE, xp.linalg.cholesky, a)


@hermitian
def _cholesky_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    # With L^-1 dA L^-H = M the factor changes by L Phi(M), Phi taking the lower triangle with half
    # of the diagonal (Murray 2016, "Differentiation of the Cholesky decomposition").
    if is_empty(node.shape):
        return (zeros_like(node),)
    inner = halved_lower(matmul(adjoint(node), cotangent))
    left = triangular(node, inner, lower=True, trans="C")
    both = adjoint(triangular(node, adjoint(left), lower=True, trans="C"))
    return (of_triangle(both, lower=True),)


@documented
def cholesky(a: Any, *, upper: bool = False) -> Node:
    """Factor Hermitian positive definite matrices into a triangle and its adjoint.

    a: Node or array of shape ``(..., n, n)``, float or complex. Only its lower triangle is read
        (with `upper` its upper one), so that the gradient lies in that triangle: what belongs to an
        element and to its mirror image falls to the one that is read.
    upper: Return the upper factor.
    returns: ``L`` with ``A = L L^H``, or with `upper` ``U`` with ``A = U^H U``; of the shape and
        dtype of `a`, zero in the other triangle.
    raises ShapeError: If the matrices are not square.
    raises LinAlgError: At run time, if a matrix is not positive definite; the message says which of
        the batch.

    Notes
    -----
    The gradient is Murray's (2016, arXiv:1602.07527), with triangular solves in place of inverses.

    >>> mg.linalg.cholesky([[4.0, 2.0], [2.0, 5.0]]).eval()
    array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    node = numbers(a)
    if not upper:
        return CHOLESKY(node)
    matrices(Call(CHOLESKY, (node,)), node.type)
    return adjoint(CHOLESKY(adjoint(node)))


CHOLESKY = Op(
    name="cholesky",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=square_type,
    linalg=Linalg(facts=always(Facts.LOWER | Facts.REGULAR)),
    evaluate=_cholesky,
    gradient=_cholesky_gradient,
    function=cholesky,
    tests=Tests(
        samples=lambda: [
            Sample((POSITIVE_DEFINITE,)),
            Sample((DEFINITES,)),
            Sample((POSITIVE_DEFINITE,), {"upper": True}),
            Sample((np.stack([DEFINITES, 2.0 * DEFINITES], axis=1)[::-1, ::-1],)),
            Sample((ONE,)),
            Sample((EMPTY,)),
        ],
        bad_samples=bad_squares("cholesky"),
        reference=lambda a, upper=False: np.linalg.cholesky(a, upper=upper),
    ),
    numerics="reassoc",
    flops=lambda a: dims.floor_div(a.size * a.shape[-1], 3),
    precision=Precision("keep"),
)


# LU.


class LUResult(NamedTuple):
    """What `lu` returns: ``A = P L U``."""

    P: Node
    L: Node
    U: Node


class LUFactors(NamedTuple):
    """What `lu_factor` returns and `lu_solve` takes.

    Attributes
    ----------
    lu
        ``(..., m, n)``: U on and above the diagonal, L without its unit diagonal below.
    pivots
        ``(..., min(m, n))`` of int32: row i was exchanged with row ``pivots[i]``, in turn.
    """

    lu: Node
    pivots: Node


def _lu_type(call: Call, a: Type) -> tuple[Type, Type]:
    batch, rows, columns = matrices(call, a)
    return Type(a.dtype, a.shape), Type(INT32, (*batch, dims.minimum(rows, columns)))


def _lu(xp: Any, a: Any) -> tuple[Any, Any]:
    if xp is np and a.ndim == 2 and a.size:
        factors, pivots, _ = lapack("getrf", a.dtype)(a)
        return factors, pivots
    factors = xp.empty(a.shape, a.dtype)
    pivots = xp.empty((*a.shape[:-2], min(a.shape[-2:])), INT32)
    if a.size:
        factor = _factored(xp, a)
        with warnings.catch_warnings():
            # A zero on the diagonal of U is no error: the factors are right.
            warnings.simplefilter("ignore", RuntimeWarning)
            for index in np.ndindex(*a.shape[:-2]):
                factors[index], pivots[index] = factor(a[index])
    return factors, pivots


def _factored(xp: Any, a: Any) -> Callable[[Any], Any]:
    """Return what factors one matrix."""
    if xp is not np:
        return lambda matrix: xp.linalg.lu_factor(matrix, check_finite=False)
    factor = lapack("getrf", a.dtype)
    return lambda matrix: factor(matrix)[:2]


@hermitian
def _lu_gradient(node: Node, cotangents: Sequence[Node | None]) -> tuple[Node | None]:
    cotangent = cotangents[0]
    if cotangent is None:
        return (None,)
    a = node.inputs[0]
    if is_empty(a.shape):
        return (zeros_like(a),)
    factors, pivots = ITEM(node, index=0), ITEM(node, index=1)
    rows, columns = a.shape[-2:]
    shorter = dims.minimum(rows, columns)
    tall, wide = rows != shorter, columns != shorter
    if tall and wide:
        raise GradientError(
            message(
                f"lu_factor: matrices of {rows} rows and {columns} columns, of which it is not "
                "known which are more, have no gradient",
                need="extents whose order is known",
                hint="give the extents as numbers, or make one of them the other",
            )
        )
    square = cut(cut(factors, a.ndim - 2, 0, shorter), a.ndim - 1, 0, shorter)
    square_part = cut(cut(cotangent, a.ndim - 2, 0, shorter), a.ndim - 1, 0, shorter)
    by_lower = matmul(adjoint(identity_plus(square)), lower_part(square_part, -1))
    by_upper = matmul(upper_part(square_part), adjoint(upper_part(square)))
    beyond: Node | None = None
    if tall:
        # L2 = A2 U^-1: what reaches the rows below goes back through U.
        below = cut(factors, a.ndim - 2, shorter, rows - shorter)
        given_below = cut(cotangent, a.ndim - 2, shorter, rows - shorter)
        beyond = adjoint(triangular(square, adjoint(given_below), lower=False, trans="N"))
        by_upper = subtract(by_upper, matmul(adjoint(below), given_below))
    elif wide:
        # U2 = L^-1 A2: what reaches the columns at the right goes back through L.
        right = cut(factors, a.ndim - 1, shorter, columns - shorter)
        given_right = cut(cotangent, a.ndim - 1, shorter, columns - shorter)
        beyond = triangular(square, given_right, lower=True, trans="C", unit_diagonal=True)
        by_lower = subtract(by_lower, matmul(given_right, adjoint(right)))
    inner = add(lower_part(by_lower, -1), upper_part(by_upper))
    left = triangular(square, inner, lower=True, trans="C", unit_diagonal=True)
    result = adjoint(triangular(square, adjoint(left), lower=False, trans="N"))
    if beyond is not None:
        result = concatenate([result, beyond], axis=-2 if tall else -1)
    return (rows_at(result, PERMUTATION(pivots, rows=rows, inverse=True)),)


def identity_plus(factors: Node) -> Node:
    """Return the unit lower triangle whose part below the diagonal is that of packed factors."""
    rows, columns = factors.shape[-2:]
    one = constant(1, dtype=factors.dtype)
    return where(is_diagonal(rows, columns), one, lower_part(factors, -1))


@documented
def lu_factor(a: Any) -> LUFactors:
    """Factor matrices into a permutation, a unit lower and an upper triangle, packed.

    a: Node or array of shape ``(..., m, n)``, float or complex.
    returns (LUFactors): ``lu`` and ``pivots``, as `lu_solve` takes them. A singular matrix has
        factors, too: a zero stands on the diagonal of U.
    raises ShapeError: If `a` has fewer than two axes.
    raises LinAlgError: At run time, from the gradient, if the leading square block of U is
        singular.

    Notes
    -----
    The choice of pivots is taken as constant by the gradient, which is right except where two
    candidates are exactly as large. Where it is not known from the extents whether a matrix has
    more rows or more columns, there is no gradient.

    >>> lu, pivots = mg.linalg.lu_factor([[1.0, 2.0], [4.0, 4.0]])
    >>> lu.eval()
    array([[4.  , 4.  ],
           [0.25, 1.  ]], dtype=float32)
    >>> pivots.eval()
    array([1, 1], dtype=int32)
    """
    node = LU(numbers(a))
    return LUFactors(ITEM(node, index=0), ITEM(node, index=1))


def _lu_factor_reference(a: Any) -> tuple[Any, Any]:
    from scipy.linalg import lu_factor as factor

    lus, pivots = np.empty_like(a), np.empty((*a.shape[:-2], min(a.shape[-2:])), INT32)
    for index in np.ndindex(*a.shape[:-2]):
        lus[index], pivots[index] = factor(a[index]) if a.size else (a[index], pivots[index])
    return lus, pivots


LU = Op(
    name="lu_factor",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=_lu_type,
    evaluate=_lu,
    gradient=_lu_gradient,
    function=lu_factor,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARE,)),
            Sample((SQUARES,)),
            Sample((TALL,)),
            Sample((np.stack([WIDE_, WIDE_[::-1] + 0.2]),)),
            Sample((STRIDED,)),
            Sample((EMPTY,)),
        ],
        bad_samples=bad_matrices("lu_factor"),
        reference=_lu_factor_reference,
    ),
    numerics="reassoc",
    flops=lambda a: _lu_flops(a),
    precision=Precision("keep"),
)


def _lu_flops(a: Type) -> Extent:
    shorter = dims.minimum(a.shape[-2], a.shape[-1])
    batch = dims.size(a.shape[:-2])
    return batch * (
        a.shape[-2] * a.shape[-1] * shorter - dims.floor_div(shorter * shorter * shorter, 3)
    )


def _permutation_type(call: Call, pivots: Type, *, rows: Extent, inverse: bool = False) -> Type:
    check_pivots(call, pivots)
    return Type(pivots.dtype, (*pivots.shape[:-1], rows))


def _permutation(xp: Any, pivots: Any, *, rows: int, inverse: bool = False) -> Any:
    if xp is not np:
        raise NotImplementedError("one exchange behind the other: the host is faster")
    batch, count = pivots.shape[:-1], pivots.shape[-1]
    if count > rows:
        raise ShapeError(
            message(f"lu_solve: {count} pivots for {rows} rows", need=f"at most {rows} pivots")
        )
    check_exchanges("lu_solve", pivots, rows)
    result = xp.broadcast_to(xp.arange(rows, dtype=pivots.dtype), (*batch, rows)).copy()
    for i in reversed(range(count)) if inverse else range(count):
        other = pivots[..., i : i + 1].astype(np.int64)
        row = xp.take_along_axis(result, other, axis=-1)
        xp.put_along_axis(result, other, result[..., i : i + 1].copy(), axis=-1)
        result[..., i : i + 1] = row
    return result


PERMUTATION = Op(
    name="pivots_permutation",
    kind=Kind.LINALG,
    doc="Which row of A stands in each row of P A, from the exchanges of an LU factorization; or, "
    "as the inverse, which row of P A in each row of A.",
    rule=_permutation_type,
    evaluate=_permutation,
    no_gradient="integer valued",
    numerics="exact",
)


@documented
def lu(a: Any) -> LUResult:
    """Factor matrices into a permutation, a unit lower and an upper triangle.

    a: Node or array of shape ``(..., m, n)``, float or complex.
    returns (LUResult): ``P`` of shape ``(..., m, m)``, real, ``L`` of ``(..., m, k)``, and ``U`` of
        ``(..., k, n)``, with ``k = min(m, n)``. No gradient flows through `P`.
    raises ShapeError: If `a` has fewer than two axes.

    See Also
    --------
    lu_factor : the same, packed, and what holds of the gradient.

    >>> P, L, U = mg.linalg.lu([[1.0, 2.0], [4.0, 4.0]])
    >>> (P @ L @ U).eval()
    array([[1., 2.],
           [4., 4.]], dtype=float32)
    """
    node = numbers(a)
    matrices(Call(LU_TRIANGLES, (node,)), node.type)
    factors, pivots = lu_factor(node)
    rows, columns = node.shape[-2:]
    shorter = dims.minimum(rows, columns)
    places = expand_dims(PERMUTATION(pivots, rows=rows, inverse=False), -2)
    down = IOTA(shape=(rows, 1), axis=0, dtype=places.dtype)
    number = real_dtype(node.dtype)
    one, zero = constant(1, dtype=number), constant(0, dtype=number)
    return LUResult(
        where(equal(down, places), one, zero),
        identity_plus(cut(factors, node.ndim - 1, 0, shorter)),
        upper_part(cut(factors, node.ndim - 2, 0, shorter)),
    )


def _lu_reference(a: Any) -> tuple[Any, Any, Any]:
    from scipy.linalg import lu as factor

    if not a.size:
        return np.eye(a.shape[0]), a[:, :0], a[:0]
    parts = factor(a)
    return parts[0], parts[1], parts[2]


LU_TRIANGLES = Composite(
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    function=lu,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARES,)),
            Sample((TALL,)),
            Sample((WIDE_,)),
            Sample((EMPTY,)),
        ],
        bad_samples=bad_matrices("lu"),
        reference=_lu_reference,
    ),
    numerics="reassoc",
)

RECORDS = (CHOLESKY, LU, PERMUTATION, LU_TRIANGLES)
