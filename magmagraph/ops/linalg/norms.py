"""Norms of vectors and matrices, condition numbers, ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...dtypes import finfo
from ...errors import ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, LAPACK, BadSample, Call, Composite, Kind, Sample, Tests
from ..control.identities import ITEM
from ..convert import as_node, cast
from ..elementwise.arithmetic import divide, multiply
from ..elementwise.comparison import equal, greater, where
from ..elementwise.signs import absolute
from ..reduction.folding import CUBE
from ..reduction.primitives import any as any_of
from ..reduction.primitives import max, min, sum
from ..reduction.statistics import norm as length
from ..shape.arrange import expand_dims, moveaxis
from ..shape.axes import axes_of
from .determinant import SLOGDET
from .parts import (
    SQUARE,
    SQUARES,
    TALL,
    VECTOR,
    WIDE_,
    bad_matrices,
    extent_like,
    identity,
    is_empty,
    matrices,
    numbers,
    squares,
)
from .solve import INV
from .spectral import EIGVALSH
from .svd import SVDVALS

__all__ = ["cond", "matrix_norm", "matrix_rank", "norm", "vector_norm"]

_INT64 = np.dtype(np.int64)
_ORDERS = "'fro', 'nuc', 1, -1, 2, -2, inf or -inf"


# Norms.


def _of_matrices(call: Call, x: Node, order: Any) -> Node:
    """Return the norms of the matrices in the last two axes."""
    if isinstance(order, (np.ndarray, Node)):
        raise call.shape_error(f"ord is of type {type(order).__name__}", need=f"one of {_ORDERS}")
    if order is None or order == "fro":
        return length(x, axis=(-2, -1))
    if order == "nuc":
        return sum(SVDVALS(x), axis=-1)
    if isinstance(order, (int, float)) and not isinstance(order, bool):
        if abs(order) == 2:
            values = SVDVALS(x)
            return max(values, axis=-1) if order > 0 else min(values, axis=-1)
        if abs(order) == 1 or math.isinf(order):
            sums = sum(absolute(x), axis=-2 if abs(order) == 1 else -1)
            return max(sums, axis=-1) if order > 0 else min(sums, axis=-1)
    raise call.shape_error(f"ord={order!r} of matrices", need=f"one of {_ORDERS}")


@documented
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Node:
    """Compute norms of vectors or of matrices, as `numpy.linalg.norm`.

    x: Node or array, float or complex; ints become floats.
    ord: Of vectors any number, of matrices one of "fro", "nuc", 1, -1, 2, -2, inf, -inf (see
        `vector_norm`, `matrix_norm`). Unless said 2 for vectors, "fro" for matrices.
    axis: An axis, which makes vectors, or a pair of them, which makes matrices. Unless said `x` is
        itself the vector or the matrix; without `ord` all its elements are one vector.
    returns: Real, without the reduced axes (unless `keepdims`).
    raises ShapeError: If `axis` names more than two axes, or `ord` is none of those.
    raises LinAlgError: At run time, if singular values do not converge, as of a matrix with NaN.

    >>> A = [[3.0, 0.0], [0.0, 4.0]]
    >>> [mg.linalg.norm(A, order).eval().item() for order in (None, "nuc", 2, 1)]
    [5.0, 7.0, 4.0, 4.0]
    """
    node = numbers(x)
    call = Call(NORM, (node,))
    call.check_dtypes()
    if axis is None:
        if ord is None or node.ndim < 2:
            return length(node, 2 if ord is None else ord, keepdims=keepdims)
        if node.ndim > 2:
            raise call.shape_error(
                f"ord={ord!r} of {node.ndim} axes",
                need="one axis or two",
                hint="axis=(-2, -1) for a batch of matrices",
            )
        axes = [0, 1]
    else:
        axes = axes_of(call, axis, node.ndim)
    if len(axes) == 1:
        return length(node, 2 if ord is None else ord, axes[0], keepdims)
    if len(axes) != 2:
        raise call.shape_error(
            f"axis={axis!r} names {len(axes)} axes",
            need="one axis, which makes vectors, or two, which make matrices",
            hint="mg.linalg.vector_norm takes any number of axes",
        )
    norms = _of_matrices(call, moveaxis(node, axes, (-2, -1)), ord)
    return expand_dims(norms, sorted(axes)) if keepdims else norms


@documented
def vector_norm(x: Any, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Node:
    """Compute norms of vectors.

    x: Node or array, float or complex; ints become floats.
    axis: An axis, several (their elements are one vector), or None for all.
    ord: 2: the root of the sum of squares. 1: the sum of absolute values. ``inf`` and ``-inf``: the
        largest and the smallest absolute value. 0: the number of elements that are not zero. Any
        other p: the sum of ``abs(x)**p``, to the power 1/p.
    returns: Real, without the reduced axes (unless `keepdims`). The gradient of a vector of length
        0 is 0.
    raises ShapeError: If `ord` is not a number.

    >>> mg.linalg.vector_norm([[3.0, 4.0], [5.0, 12.0]], axis=1).eval()
    array([ 5., 13.], dtype=float32)
    """
    return length(x, ord, axis, keepdims)


@documented
def matrix_norm(x: Any, keepdims: bool = False, ord: Any = "fro") -> Node:
    """Compute norms of matrices.

    x: Node or array of shape ``(..., m, n)``, float or complex.
    ord: "fro": the root of the sum of squares. "nuc": the sum of the singular values. 2 and -2: the
        largest and the smallest of those. 1 and -1: the largest and the smallest sum of the
        absolute values of a column; inf and -inf: of a row.
    returns: Of shape ``(...)``, real.
    raises ShapeError: If `x` has fewer than two axes, or `ord` is none of those.
    raises LinAlgError: At run time, if singular values do not converge, as of a matrix with NaN.

    >>> mg.linalg.matrix_norm([[1.0, -2.0], [3.0, 4.0]], ord=1).eval()
    array(6., dtype=float32)
    """
    node = numbers(x)
    call = Call(MATRIX_NORM, (node,))
    matrices(call, node.type)
    call.check_dtypes()
    norms = _of_matrices(call, node, ord)
    return expand_dims(norms, (-2, -1)) if keepdims else norms


# Condition and rank.


@documented
def cond(x: Any, p: Any = None) -> Node:
    """Compute condition numbers: the norm of a matrix times that of its inverse.

    x: Node or array of shape ``(..., m, n)``, float or complex; square unless `p` is 2 or -2.
    p: The norm: None or 2, the ratio of the largest to the smallest singular value; -2, its
        reciprocal; "fro", "nuc", 1, -1, inf or -inf.
    returns: Of shape ``(...)``, real. Infinite for singular matrices (for -2: 0).
    raises ShapeError: If `x` has fewer than two axes, has no elements, is not square where it must
        be, or `p` is none of those.
    raises LinAlgError: At run time, if singular values do not converge, as of a matrix with NaN.

    >>> mg.linalg.cond([[4.0, 0.0], [0.0, 0.5]]).eval()
    array(8., dtype=float32)
    """
    node = numbers(x)
    call = Call(COND, (node,))
    _, rows, columns = matrices(call, node.type)
    call.check_dtypes()
    if is_empty((rows, columns)):
        raise call.shape_error(f"matrices of {rows} rows and {columns} columns have no condition")
    if p is None or (isinstance(p, (int, float)) and abs(p) == 2):
        values = SVDVALS(node)
        largest, smallest = max(values, axis=-1), min(values, axis=-1)
        none = equal(smallest, 0)
        if p == -2:
            return divide(smallest, where(equal(largest, 0), 1, largest))
        return where(none, math.inf, divide(largest, where(none, 1, smallest)))
    _, order = squares(call, node.type)
    # A singular matrix is not inverted, which would be an error: its condition is infinite.
    sign = ITEM(SLOGDET(node), index=0)
    singular = equal(sign, 0)
    regular = where(expand_dims(singular, (-1, -2)), identity(order, node.dtype), node)
    product = multiply(_of_matrices(call, node, p), _of_matrices(call, INV(regular), p))
    return where(singular, math.inf, product)


@documented
def matrix_rank(
    A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None
) -> Node:
    """Count the singular values of matrices that are not zero within rounding.

    A: Node or array of shape ``(..., m, n)``, float or complex. Of fewer axes: the rank is 1, or 0
        where all elements are 0.
    tol: Singular values of at most so much count as zero: a number, or an array of shape ``(...)``.
    hermitian: Take the matrices as Hermitian, reading only the lower triangles, which is faster.
    rtol: In place of `tol`: so much of the largest singular value. Unless said ``max(m, n)`` eps of
        the dtype.
    returns: int64, of shape ``(...)``. No gradient: integer valued.
    raises ShapeError: If both tolerances are given.
    raises LinAlgError: At run time, if singular values do not converge, as of a matrix with NaN.

    >>> mg.linalg.matrix_rank([[1.0, 2.0], [2.0, 4.0]]).eval()
    array(1)
    """
    node = numbers(A)
    call = Call(MATRIX_RANK, (node,))
    call.check_dtypes()
    if tol is not None and rtol is not None:
        raise call.shape_error("both tol and rtol are given", need="one of them")
    if node.ndim < 2:
        return cast(any_of(greater(absolute(node), 0)), _INT64)
    rows, columns = node.shape[-2:]
    values = absolute(EIGVALSH(node, lower=True)) if hermitian else SVDVALS(node)
    if is_empty((rows, columns)):
        return sum(cast(values, _INT64), axis=-1)
    if tol is not None:
        border = expand_dims(as_node(tol, values.dtype), -1)
    else:
        if rtol is None:
            ratio = multiply(extent_like(dims.maximum(rows, columns), values), _eps(values.dtype))
        else:
            ratio = expand_dims(as_node(rtol, values.dtype), -1)
        border = multiply(max(values, axis=-1, keepdims=True), ratio)
    return sum(cast(greater(values, border), _INT64), axis=-1)


def _eps(dtype: np.dtype) -> float:
    return float(finfo(dtype).eps)


_BATCH = np.stack([TALL, TALL[::-1] + 0.1])
_REGULAR = np.stack([SQUARE, TALL[:3]])

NORM = Composite(
    name="linalg_norm",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    function=norm,
    tests=Tests(
        samples=lambda: [
            Sample((TALL,)),
            Sample((CUBE,)),
            *[
                Sample((TALL,), {"ord": p})
                for p in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)
            ],
            *[Sample((VECTOR,), {"ord": p}) for p in (None, 1, 3, -math.inf)],
            Sample((VECTOR,), {"ord": 0}, gradient=(), reason="it counts"),
            Sample((CUBE,), {"axis": 1, "keepdims": True}),
            Sample((CUBE,), {"axis": (2, 0), "ord": 1, "keepdims": True}),
            Sample((CUBE,), {"axis": (0, 2), "ord": math.inf}),
            Sample((CUBE,), {"axis": (0, -1), "ord": "nuc"}),
        ],
        bad_samples=lambda: [
            BadSample((TALL,), ShapeError, "linalg_norm: ord=3 of matrices", {"ord": 3}),
            BadSample((CUBE,), ShapeError, "linalg_norm: ord=1 of 3 axes", {"ord": 1}),
            BadSample(
                (CUBE,),
                ShapeError,
                "linalg_norm: axis=(0, 1, 2) names 3 axes",
                {"axis": (0, 1, 2)},
            ),
            BadSample(
                (TALL,), ShapeError, "norm: ord='fro' is not a number", {"ord": "fro", "axis": 0}
            ),
        ],
        reference=lambda x, ord=None, axis=None, keepdims=False: np.linalg.norm(
            x, ord, axis, keepdims
        ),
    ),
    numerics="reassoc",
)
VECTOR_NORM = Composite(
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=INEXACT,
    function=vector_norm,
    tests=Tests(
        samples=lambda: [
            Sample((CUBE,)),
            Sample((CUBE,), {"axis": (0, 2), "ord": 3}),
            Sample((CUBE,), {"axis": -1, "ord": 1, "keepdims": True}),
            Sample((np.zeros((2, 0)),), {"axis": 1}),
        ],
        bad_samples=lambda: [
            BadSample((CUBE,), ShapeError, "norm: ord='nuc' is not a number", {"ord": "nuc"})
        ],
        reference=lambda x, axis=None, keepdims=False, ord=2: np.linalg.vector_norm(
            x, axis=axis, keepdims=keepdims, ord=ord
        ),
    ),
    numerics="reassoc",
)
MATRIX_NORM = Composite(
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    function=matrix_norm,
    tests=Tests(
        samples=lambda: [
            Sample((_BATCH,)),
            Sample((_BATCH,), {"ord": "nuc", "keepdims": True}),
            Sample((WIDE_,), {"ord": 2}),
            Sample((SQUARES[:2],), {"ord": -math.inf}),
        ],
        bad_samples=lambda: [
            *bad_matrices("matrix_norm")(),
            BadSample((TALL,), ShapeError, "matrix_norm: ord=0 of matrices", {"ord": 0}),
        ],
        reference=lambda x, keepdims=False, ord="fro": np.linalg.matrix_norm(
            x, keepdims=keepdims, ord=ord
        ),
    ),
    numerics="reassoc",
)
COND = Composite(
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    function=cond,
    tests=Tests(
        samples=lambda: [
            Sample((_BATCH,)),
            Sample((SQUARES[:2],), {"p": -2}),
            *[Sample((_REGULAR,), {"p": p}) for p in ("fro", "nuc", 1, -1, math.inf, -math.inf)],
            Sample((np.zeros((2, 2)),), {"p": 1}, gradient=(), reason="infinite"),
        ],
        bad_samples=lambda: [
            *bad_matrices("cond")(),
            BadSample((TALL,), ShapeError, "cond: matrices of 4 rows and 3 columns", {"p": 1}),
            BadSample((SQUARE,), ShapeError, "cond: ord=3 of matrices", {"p": 3}),
            BadSample(
                (np.zeros((0, 2)),),
                ShapeError,
                "cond: matrices of 0 rows and 2 columns have no condition",
            ),
        ],
        reference=np.linalg.cond,
    ),
    numerics="reassoc",
)
MATRIX_RANK = Composite(
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    function=matrix_rank,
    tests=Tests(
        samples=lambda: [
            Sample((np.stack([SQUARE, np.diag([1.0, 0.0, 2.0]), np.zeros((3, 3))]),)),
            Sample((WIDE_,), {"tol": 1.5}),
            Sample((np.diag([3.0, 1e-3, -2.0]),), {"hermitian": True, "rtol": 1e-2}),
            Sample((VECTOR,)),
            Sample((np.zeros((0, 3)),)),
        ],
        bad_samples=lambda: [
            BadSample(
                (SQUARE,),
                ShapeError,
                "matrix_rank: both tol and rtol are given",
                {"tol": 0.1, "rtol": 0.1},
            )
        ],
        reference=lambda A, tol=None, hermitian=False, rtol=None: np.asarray(
            np.linalg.matrix_rank(A, tol=tol, hermitian=hermitian)
            if rtol is None
            else np.linalg.matrix_rank(A, hermitian=hermitian, rtol=rtol)
        ),
    ),
    numerics="exact",
    no_gradient="integer valued",
)

RECORDS = (NORM, VECTOR_NORM, MATRIX_NORM, COND, MATRIX_RANK)
