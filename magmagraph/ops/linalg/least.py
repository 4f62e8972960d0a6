"""Least squares and pseudoinverses: systems with any number of equations, of any rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...dtypes import finfo, is_complex, real_dtype
from ...errors import ConfigError, ShapeError, message
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import LAPACK, BadSample, Call, Kind, Op, Precision, Sample, Tests
from ...ir.types import Extent, Operand, Type
from ..control.identities import ITEM
from ..convert import cast
from ..elementwise.arithmetic import add, multiply, negative, subtract
from ..elementwise.complex_numbers import conj, real
from ..elementwise.family import inexact_pair, one_dtype
from ..leaf import real_number
from ..products.contraction import matmul
from ..reduction.primitives import sum, sum_to
from ..shape.arrange import expand_dims
from ..shape.joining import broadcast_to
from .parts import (
    COLUMNS,
    ONE,
    POSITIVE_DEFINITE,
    SQUARE,
    SQUARES,
    STRIDED,
    TALL,
    VECTOR,
    WIDE_,
    adjoint,
    bad_matrices,
    from_triangle,
    hermitian,
    is_empty,
    iterated,
    matrices,
    numbers,
    of_triangle,
    shared_batch,
    squares,
    zeros_like,
)
from .svd import SVD
from .triangular import without_column

__all__ = ["lstsq", "pinv"]

_INT64 = np.dtype(np.int64)

# A matrix of rank 2 with three columns, and right-hand sides for matrices of four rows.
DEFICIENT = np.outer([1.0, 2.0, -1.0, 0.5], [0.5, -0.4, 1.0]) + np.outer(
    [0.3, -0.2, 0.8, 1.1], [1.2, 0.7, -0.6]
)
FOUR = np.array([[0.9, -1.3], [1.6, -0.4], [2.2, -0.7], [0.2, 1.1]])


def cut_of(shape: Sequence[Any], dtype: np.dtype, rtol: float | None) -> float:
    """Return the ratio to the largest singular value below which others count as zero."""
    if rtol is not None:
        return rtol
    longer = shape[-1] if shape[-1] > shape[-2] else shape[-2]
    return float(longer) * float(finfo(dtype).eps)


# Pseudoinverse.


def _pinv_type(
    call: Call, a: Type, *ratios: Type, rtol: float | None, hermitian: bool
) -> Type:
    if hermitian:
        squares(call, a)
    batch, rows, columns = matrices(call, a)
    for ratio in ratios:  # at most one: an own ratio for each matrix
        if ratio.ndim != a.ndim or ratio.shape[-2:] != (1, 1):
            raise call.shape_error(f"ratios of shape {ratio.shape}", need="one for each matrix")
        for left, right in zip(batch, ratio.shape[:-2], strict=True):
            call.unify(left, right, "numbers of matrices and of ratios")
    return Type(a.dtype, (*batch, columns, rows))


def _pinv(xp: Any, a: Any, *ratios: Any, rtol: float | None, hermitian: bool) -> Any:
    def run(a: Any, *ratios: Any) -> Any:
        ratio: Any = ratios[0][..., 0] if ratios else cut_of(a.shape, a.dtype, rtol)
        if xp is np:
            rcond = ratio[..., 0] if ratios else ratio
            return xp.linalg.pinv(a, rcond=rcond, hermitian=hermitian)
        if hermitian:
            return _hermitian_pinv(xp, a, ratio)
        return _pinv_by_parts(xp, a, ratio) if ratios else xp.linalg.pinv(a, rcond=ratio)

    return iterated(xp, "pinv", run, a, *ratios)


def _pinv_by_parts(xp: Any, a: Any, ratio: Any) -> Any:
    """Return pseudoinverses by singular values, for a library with one ratio for all matrices."""
    left, values, right = xp.linalg.svd(a, full_matrices=False)
    return xp.swapaxes(right.conj(), -1, -2) @ (
        _inverses(xp, values, ratio)[..., :, None] * xp.swapaxes(left.conj(), -1, -2)
    )


def _hermitian_pinv(xp: Any, a: Any, ratio: Any) -> Any:
    """Return pseudoinverses by eigenvalues, with arrays of a library that has no such choice."""
    values, vectors = xp.linalg.eigh(a)
    inverse = _inverses(xp, values, ratio)
    return (vectors * inverse[..., None, :]) @ xp.swapaxes(vectors.conj(), -1, -2)


def _inverses(xp: Any, values: Any, ratio: Any) -> Any:
    """Return the inverses of the values that are large enough, and 0 for the others."""
    size = xp.abs(values)
    is_large = size > ratio * size.max(axis=-1, keepdims=True)
    return xp.where(is_large, 1 / xp.where(is_large, values, 1), 0).astype(values.dtype)


@hermitian
def _pinv_gradient(node: Node, gradient: Node) -> tuple[Node | None, ...]:
    # Golub and Pereyra 1973, for changes that keep the rank:
    # dP = -P dA P + P P^H dA^H (I - A P) + (I - P A) dA^H P^H P.
    a = node.inputs[0]
    ratios = (None,) * (len(node.inputs) - 1)
    if is_empty(a.shape):
        return (zeros_like(a), *ratios)
    back, along = adjoint(node), adjoint(gradient)
    if node.attrs["hermitian"]:
        a = from_triangle(a)
    left = subtract(along, matmul(a, matmul(node, along)))
    right = subtract(along, matmul(matmul(along, node), a))
    result = add(
        negative(matmul(matmul(back, gradient), back)),
        add(matmul(left, matmul(node, back)), matmul(matmul(back, node), right)),
    )
    return (of_triangle(result, lower=True) if node.attrs["hermitian"] else result, *ratios)


@documented
def pinv(
    a: Any,
    rtol: Operand | None = None,
    hermitian: bool = False,
    *,
    rcond: Operand | None = None,
) -> Node:
    """Compute Moore and Penrose's pseudoinverses.

    a: Node or array of shape ``(..., m, n)``, float or complex.
    rtol: Singular values of at most so much of the largest count as zero; ``max(m, n)`` eps of the
        dtype unless said. A number, or an array or node of shape ``(...)`` with a number for each
        matrix, to which no gradient flows.
    hermitian: Take the matrices as Hermitian, reading only the lower triangles, which is faster.
        The gradient lies in those triangles then.
    rcond: NumPy's older name of `rtol`.
    returns: Of shape ``(..., n, m)`` and the dtype of `a`.
    raises ShapeError: If `a` has fewer than two axes, or is not square where `hermitian`, or if the
        numbers of `rtol` do not broadcast against the matrices.
    raises LinAlgError: At run time, if the singular values do not converge, as of a matrix with
        NaN.

    Notes
    -----
    The gradient is that of Golub and Pereyra (1973, SIAM J. Numer. Anal. 10, 413), right for all
    changes that keep the rank; at a change of rank the pseudoinverse itself jumps. Equal singular
    values make no difference to it.

    >>> mg.linalg.pinv([[2.0, 0.0], [0.0, 0.0], [0.0, 4.0]]).eval()
    array([[0.5 , 0.  , 0.  ],
           [0.  , 0.  , 0.25]], dtype=float32)
    """
    if rtol is not None and rcond is not None:
        raise ConfigError(message("pinv: rtol and rcond are given", need="one of both"))
    rtol = rcond if rtol is None else rtol
    node = numbers(a)
    if not isinstance(rtol, (Node, np.ndarray, list, tuple)):
        ratio = None if rtol is None else real_number("pinv: rtol", rtol)
        return PINV(node, rtol=ratio, hermitian=bool(hermitian))
    call = Call(PINV, (node,))
    call.check_dtypes()
    batch, *sides = matrices(call, node.type)
    ratios = cast(rtol, real_dtype(node.dtype))
    shape = call.broadcast(batch, ratios.shape)
    return PINV(
        broadcast_to(node, (*shape, *sides)),
        expand_dims(broadcast_to(ratios, shape), (-2, -1)),
        rtol=None,
        hermitian=bool(hermitian),
    )


def _pinv_flops(a: Type, *ratios: Type, **attrs: Any) -> Extent:
    assert SVD.flops is not None
    shorter = dims.minimum(a.shape[-2], a.shape[-1])
    return SVD.flops(a) + 2 * a.size * shorter


def _pinv_reference(a: Any, rtol: Any = None, hermitian: bool = False) -> Any:
    # Rounding of the samples to narrower dtypes leaves traces of the small singular values.
    ratio = 1e-6 if rtol is None else np.asarray(rtol)
    return np.linalg.pinv(a, rcond=ratio, hermitian=hermitian)


_KEEPS_RANK = "a change of one element changes the rank"

_PAIR = np.stack([POSITIVE_DEFINITE, 2.0 * np.eye(len(POSITIVE_DEFINITE))])

PINV = Op(
    name="pinv",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=_pinv_type,
    evaluate=_pinv,
    gradient=_pinv_gradient,
    function=pinv,
    tests=Tests(
        samples=lambda: [
            Sample((np.stack([TALL, TALL[::-1] + 0.1]),)),
            Sample((WIDE_,)),
            Sample((STRIDED,)),
            Sample((POSITIVE_DEFINITE,), {"hermitian": True}),
            Sample((3.0 * np.eye(3),)),
            Sample((np.diag([2.0, 1.0, 0.0]),), {"rtol": 1e-3}, gradient=(), reason=_KEEPS_RANK),
            Sample((np.stack([TALL, WIDE_.T]),), {"rtol": np.array([1e-3, 1e-4])}),
            Sample((_PAIR,), {"rtol": np.array([0.7, 1e-3])}, gradient=(), reason=_KEEPS_RANK),
            Sample((_PAIR,), {"rtol": [1e-3, 1e-4], "hermitian": True}),
            Sample((ONE,)),
            Sample((np.zeros((0, 2)),)),
        ],
        bad_samples=lambda: [
            *bad_matrices("pinv")(),
            BadSample(
                (TALL,), ShapeError, "pinv: matrices of 4 rows and 3 columns", {"hermitian": True}
            ),
        ],
        reference=_pinv_reference,
    ),
    numerics="reassoc",
    flops=_pinv_flops,
    precision=Precision("keep"),
)


# Least squares.


class LstsqResult(NamedTuple):
    """What `lstsq` returns: the solution and what is known of the system."""

    x: Node
    residuals: Node
    rank: Node
    s: Node


def _lstsq_type(
    call: Call, a: Type, b: Type, *, rcond: float | None
) -> tuple[Type, Type, Type]:
    dtype = one_dtype(call, a, b)
    batch, rows, columns = matrices(call, a)
    if b.ndim < 2:
        raise call.shape_error(
            f"right-hand sides of {b.ndim} axes", need="columns: at least 2 axes"
        )
    call.unify(rows, b.shape[-2], "the rows of the matrices and of b")
    both = shared_batch(call, batch, b.shape[:-2])
    return (
        Type(dtype, (*both, columns, b.shape[-1])),
        Type(_INT64, batch),
        Type(real_dtype(dtype), (*batch, dims.minimum(rows, columns))),
    )


def _lstsq(xp: Any, a: Any, b: Any, *, rcond: float | None) -> tuple[Any, Any, Any]:
    left, values, right = iterated(
        xp, "lstsq", lambda x: xp.linalg.svd(x, full_matrices=False), a
    )
    largest = values[..., :1]  # they fall; of an empty matrix there is none
    is_large = values > cut_of(a.shape, a.dtype, rcond) * largest
    inverse = xp.where(is_large, 1 / xp.where(is_large, values, 1), 0).astype(values.dtype)
    projected = xp.matmul(xp.swapaxes(left.conj(), -1, -2), b)
    solution = xp.matmul(xp.swapaxes(right.conj(), -1, -2), inverse[..., None] * projected)
    return solution, is_large.sum(axis=-1), values


@hermitian
def _lstsq_gradient(node: Node, gradients: Sequence[Node | None]) -> tuple[Node | None, ...]:
    # x = P b, with the derivative of the pseudoinverse P.
    a, b = node.inputs
    by_x, _, by_values = gradients
    by_a: Node | None = None
    by_b: Node | None = None
    if is_empty(a.shape, b.shape):
        return zeros_like(a), zeros_like(b)
    if by_values is not None:
        parts = SVD(a, full_matrices=False)
        left, right = ITEM(parts, index=0), ITEM(parts, index=2)
        by_a = matmul(multiply(left, expand_dims(by_values, -2)), right)
    if by_x is not None:
        x = ITEM(node, index=0)
        inverse = PINV(a, rtol=node.attrs["rcond"], hermitian=False)
        back = adjoint(inverse)
        by_b = matmul(back, by_x)
        residual = subtract(b, matmul(a, x))
        outside = subtract(by_x, matmul(inverse, matmul(a, by_x)))
        terms = (
            negative(matmul(by_b, adjoint(x))),
            matmul(residual, adjoint(matmul(inverse, by_b))),
            matmul(matmul(back, x), adjoint(outside)),
        )
        whole = sum_to(add(terms[0], add(terms[1], terms[2])), a.shape)
        by_a = whole if by_a is None else add(by_a, whole)
    return by_a, by_b


@documented
def lstsq(a: Any, b: Any, rcond: float | None = None) -> LstsqResult:
    """Find the shortest of the vectors for which ``|b - A x|`` is least.

    a: Node or array of shape ``(..., m, n)``, float or complex, of any rank.
    b: Right-hand sides: one vector ``(m,)``, or columns ``(..., m, k)``. The batch axes of both
        operands broadcast.
    rcond: Singular values of at most so much of the largest count as zero; ``max(m, n)`` eps of the
        dtype unless said.
    returns (LstsqResult): ``x`` of the shape of `b` with n in the place of m; ``residuals``, the
        sums of squares of ``b - A x``, of shape ``(..., k)``, for a vector with k = 1 (NumPy
        returns none of them where ``m <= n`` or the rank is less than n); ``rank`` of shape
        ``(...)``, int64; and ``s``, the singular values, of shape ``(..., min(m, n))``.
    raises ShapeError: If the extents do not fit.
    raises LinAlgError: At run time, if the singular values do not converge, as of a matrix with
        NaN.

    Notes
    -----
    The gradient of ``x`` is right for all changes of the matrix that keep its rank, as `pinv`'s.

    >>> A = [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]
    >>> mg.linalg.lstsq(A, [1.0, 3.0, 5.0]).x.eval().round(4)
    array([2., 1.], dtype=float32)
    """
    left, right = inexact_pair(a, b)
    call = Call(LSTSQ, (left, right))
    matrices(call, left.type)
    if not right.ndim:
        raise call.shape_error("a right-hand side of 0 axes", need="a vector or columns")
    vector = right.ndim == 1
    if vector:
        right = expand_dims(right, 1)
    node = LSTSQ(left, right, rcond=None if rcond is None else float(rcond))
    x, rank, values = (ITEM(node, index=i) for i in range(3))
    rest = subtract(right, matmul(left, x))
    squared = multiply(rest, conj(rest))
    if is_complex(squared.dtype):
        squared = real(squared)
    return LstsqResult(without_column(x, vector), sum(squared, axis=-2), rank, values)


def _lstsq_flops(a: Type, b: Type, **attrs: Any) -> Extent:
    assert SVD.flops is not None
    return SVD.flops(a) + 2 * a.size * b.shape[-1]


def _lstsq_reference(a: Any, b: Any, rcond: float | None = None) -> Any:
    columns = b[:, None] if b.ndim == 1 else b
    batch = np.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    inverse = np.linalg.pinv(a, rcond=1e-6 if rcond is None else rcond)
    x = inverse @ columns
    residuals = (np.abs(columns - a @ x) ** 2).sum(axis=-2)
    values = np.linalg.svdvals(a)
    largest = values.max(axis=-1, keepdims=True, initial=0)
    rank = (values > 1e-6 * largest).sum(axis=-1)
    assert x.shape[:-2] == batch
    return x[..., 0] if b.ndim == 1 else x, residuals, rank, values


LSTSQ = Op(
    name="lstsq",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=_lstsq_type,
    evaluate=_lstsq,
    gradient=_lstsq_gradient,
    function=lstsq,
    tests=Tests(
        samples=lambda: [
            Sample((TALL, FOUR[:, 0])),
            Sample((TALL, FOUR)),
            Sample((WIDE_, VECTOR)),
            Sample((np.stack([TALL, TALL[::-1] + 0.1]), FOUR)),
            Sample((TALL, np.stack([FOUR, FOUR[::-1]]))),
            Sample((STRIDED[:2], COLUMNS)),
            Sample((DEFICIENT, FOUR), {"rcond": 1e-4}, gradient=(1,), reason=_KEEPS_RANK),
            Sample((np.zeros((0, 2)), np.zeros((0, 3)))),
        ],
        bad_samples=lambda: [
            BadSample((VECTOR, VECTOR), ShapeError, "lstsq: an operand of 1 axis"),
            BadSample(
                (TALL, VECTOR),
                ShapeError,
                "lstsq: the rows of the matrices and of b differ: 4 and 3",
            ),
            BadSample(
                (SQUARES, np.stack([COLUMNS] * 2)),
                ShapeError,
                "lstsq: batch extents 3 and 2 do not broadcast (axis -3)",
            ),
            BadSample((SQUARE, np.float64(1.0)), ShapeError, "lstsq: a right-hand side of 0 axes"),
        ],
        reference=_lstsq_reference,
    ),
    numerics="reassoc",
    flops=_lstsq_flops,
    precision=Precision("keep"),
)

# The solution alone: no singular values are needed where the rank is beyond doubt.


def _solution_type(call: Call, a: Type, b: Type, *, rcond: float | None) -> Type:
    return _lstsq_type(call, a, b, rcond=rcond)[0]


def _solution_flops(a: Type, b: Type, **attrs: Any) -> Extent:
    return 2 * a.size * (dims.minimum(a.shape[-2], a.shape[-1]) + b.shape[-1])


LSTSQ_SOLUTION = Op(
    name="lstsq_solution",
    kind=Kind.LINALG,
    dtypes=LAPACK,
    doc="Least-squares solutions alone.",
    rule=_solution_type,
    evaluate=lambda xp, a, b, *, rcond: _lstsq(xp, a, b, rcond=rcond)[0],
    no_gradient="made by passes, after gradients are taken",
    numerics="reassoc",
    flops=_solution_flops,
    precision=Precision("keep"),
)

RECORDS = (PINV, LSTSQ, LSTSQ_SOLUTION)
