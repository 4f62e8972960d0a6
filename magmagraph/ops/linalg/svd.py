"""Singular values and vectors. What holds of equal ones stands in `spectral`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...dtypes import real_dtype
from ...errors import GradientError, ShapeError, message
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import LAPACK, BadSample, Call, Kind, Op, Precision, Sample, Tests
from ...ir.types import Extent, Type
from ..control.identities import ITEM
from ..convert import cast
from ..elementwise.arithmetic import add, multiply, negative, subtract
from ..elementwise.comparison import less, where
from ..elementwise.complex_numbers import conj
from ..elementwise.signs import absolute
from ..indexing.gathering import take_along_axis
from ..indexing.sorting import argsort
from ..products.contraction import matmul
from ..shape.arrange import expand_dims, reshape, swapaxes
from ..shape.joining import broadcast_to
from ..shape.slicing import cut
from .parts import (
    EMPTY,
    ONE,
    SQUARE,
    SQUARES,
    STRIDED,
    TALL,
    WIDE_,
    adjoint,
    bad_matrices,
    close_to,
    diagonal_matrix,
    hermitian,
    is_empty,
    iterated,
    matrices,
    numbers,
    safe_inverse,
    turn_of,
    zeros_like,
)
from .spectral import PHASES, eigh, eigvalsh

__all__ = ["svd", "svdvals"]


class SVDResult(NamedTuple):
    """What `svd` returns: ``A = U diag(S) Vh``."""

    U: Node
    S: Node
    Vh: Node


def _svd_type(call: Call, a: Type, *, full_matrices: bool) -> tuple[Type, Type, Type]:
    batch, rows, columns = matrices(call, a)
    shorter = dims.minimum(rows, columns)
    left, right = (rows, columns) if full_matrices else (shorter, shorter)
    return (
        Type(a.dtype, (*batch, rows, left)),
        Type(real_dtype(a.dtype), (*batch, shorter)),
        Type(a.dtype, (*batch, right, columns)),
    )


def _svd(xp: Any, a: Any, *, full_matrices: bool) -> tuple[Any, Any, Any]:
    return tuple(iterated(xp, "svd", lambda x: xp.linalg.svd(x, full_matrices), a))


@hermitian
def _svd_gradient(node: Node, cotangents: Sequence[Node | None]) -> tuple[Node | None]:
    a = node.inputs[0]
    if all(cotangent is None for cotangent in cotangents):
        return (None,)
    if is_empty(a.shape):
        return (zeros_like(a),)
    by_left, by_values, by_right = cotangents
    left, values, right = (ITEM(node, index=i) for i in range(3))
    rows, columns = a.shape[-2:]
    shorter = dims.minimum(rows, columns)
    if node.attrs["full_matrices"]:
        for name, extent, cotangent in (("U", rows, by_left), ("Vh", columns, by_right)):
            if cotangent is not None and extent != shorter:
                raise GradientError(
                    message(
                        f"svd: matrices of {rows} rows and {columns} columns determine only "
                        f"{shorter} vectors of the full {name}; the others have no gradient",
                        hint="full_matrices=False",
                    )
                )
        left = cut(left, left.ndim - 1, 0, shorter)
        right = cut(right, right.ndim - 2, 0, shorter)
    inner = None if by_values is None else diagonal_matrix(by_values)
    if by_left is None and by_right is None:
        assert by_values is not None
        return (matmul(multiply(left, expand_dims(by_values, -2)), right),)
    close = close_to(values)
    # A change M = U^H dA V of the matrix of singular values turns the vectors. Written with the
    # sums and the differences of singular values apart (1/(t^2 - s^2) has both in one), what
    # vanishes at equal values does so exactly, and what does not is kept.
    across = matmul(adjoint(left), by_left) if by_left is not None else None
    along = matmul(right, adjoint(by_right)) if by_right is not None else None
    turn_left = None if across is None else subtract(across, adjoint(across))
    turn_right = None if along is None else subtract(along, adjoint(along))
    together, against = _sum_and_difference(turn_left, turn_right)
    gaps = subtract(expand_dims(values, -2), expand_dims(values, -1))
    sums = add(expand_dims(values, -2), expand_dims(values, -1))
    terms = [term for term in (across, along) if term is not None]
    rotation = add(
        turn_of(together, gaps, values, terms), multiply(against, safe_inverse(sums, close))
    )
    half = multiply(rotation, 0.5)
    inner = half if inner is None else add(inner, half)
    result = matmul(matmul(left, inner), right)
    inverse = safe_inverse(values, reshape(close, close.shape[:-1]))
    if by_left is not None and rows != shorter:
        assert across is not None
        outside = subtract(by_left, matmul(left, across))
        result = add(result, matmul(multiply(outside, expand_dims(inverse, -2)), right))
    if by_right is not None and columns != shorter:
        assert along is not None
        outside = subtract(by_right, matmul(adjoint(along), right))
        result = add(result, matmul(left, multiply(expand_dims(inverse, -1), outside)))
    return (result,)


def _sum_and_difference(left: Node | None, right: Node | None) -> tuple[Node, Node]:
    """Return ``left + right`` and ``left - right``, None counting as zeros."""
    if left is None:
        assert right is not None
        return right, negative(right)
    if right is None:
        return left, left
    return add(left, right), subtract(left, right)


@documented
def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    *,
    k: int | None = None,
) -> Any:
    """Compute singular values and singular vectors.

    a: Node or array of shape ``(..., m, n)``, float or complex.
    full_matrices: Complete the shorter set of vectors to a basis: ``U`` of shape ``(..., m, m)``
        and ``Vh`` of ``(..., n, n)``. Otherwise both have ``min(m, n)`` vectors, which is what
        gradients exist for.
    compute_uv: False gives the singular values alone, as `svdvals`.
    hermitian: Take the matrices as Hermitian, reading only the lower triangles, which is faster.
    k: Keep only so many of the largest singular values, with their vectors.
    returns (SVDResult or Node): ``U``, ``S`` and ``Vh`` with ``A = U diag(S) Vh``; ``S`` of shape
        ``(..., min(m, n))``, real, descending.
    raises ShapeError: If `a` has fewer than two axes, or fewer than `k` singular values; if `k` is
        given together with `full_matrices`.
    raises GradientError: From the gradient of those vectors of a full basis that the matrix does
        not determine.
    raises LinAlgError: At run time, if the iteration does not converge, as for a matrix with NaN.

    Notes
    -----
    Vectors are determined up to a sign (a phase, where complex). Where singular values agree to
    within 16 eps of the largest they are determined up to a rotation of both sets, and the gradient
    takes the quotient by their difference as 0: right for all that does not depend on the
    rotation, as is ``U @ Vh`` (for functions like ``U f(S) Vh`` see `eigh`). So are the quotients
    by a singular value of that size, and by the sum of two: vectors that belong to zero have no
    gradient of their own.

    >>> U, S, Vh = mg.linalg.svd([[3.0, 0.0], [0.0, -2.0], [0.0, 0.0]], full_matrices=False)
    >>> S.eval()
    array([3., 2.], dtype=float32)
    >>> U.shape, Vh.shape
    ((3, 2), (2, 2))
    """
    node = numbers(a)
    call = Call(SVD, (node,))
    _, rows, columns = matrices(call, node.type)
    shorter = dims.minimum(rows, columns)
    if k is not None:
        if full_matrices and compute_uv:
            raise call.shape_error(
                f"k={k} with full_matrices=True", need="one of both", hint="full_matrices=False"
            )
        if not 0 <= k or (type(shorter) is int and k > shorter):
            raise call.shape_error(
                f"k={k} of {shorter} singular values", need=f"0 <= k <= {shorter}"
            )
    if hermitian:
        return _of_eigenvalues(node, compute_uv, k)
    if not compute_uv:
        values = SVDVALS(node)
        return values if k is None else cut(values, values.ndim - 1, 0, k)
    parts = SVD(node, full_matrices=bool(full_matrices))
    left, values, right = (ITEM(parts, index=i) for i in range(3))
    if k is None:
        return SVDResult(left, values, right)
    return SVDResult(
        cut(left, left.ndim - 1, 0, k),
        cut(values, values.ndim - 1, 0, k),
        cut(right, right.ndim - 2, 0, k),
    )


def _of_eigenvalues(node: Node, compute_uv: bool, k: int | None) -> Any:
    """Return what `svd` does, from the eigenvalues of Hermitian matrices."""
    values, vectors = (eigvalsh(node), None) if not compute_uv else eigh(node)
    order = argsort(negative(absolute(values)), axis=-1)
    order = order if k is None else cut(order, order.ndim - 1, 0, k)
    selected = take_along_axis(values, order, axis=-1)
    sizes = absolute(selected)
    if vectors is None:
        return sizes
    places = expand_dims(order, -2)
    wide = broadcast_to(places, (*vectors.shape[:-1], order.shape[-1]))
    left = take_along_axis(vectors, wide, axis=-1)
    signs = cast(where(less(selected, 0), -1, 1), left.dtype)
    right = conj(swapaxes(multiply(left, expand_dims(signs, -2)), -2, -1))
    return SVDResult(left, sizes, right)


def _svd_flops(a: Type, **attrs: Any) -> Extent:
    rows, columns = a.shape[-2:]
    shorter = dims.minimum(rows, columns)
    return dims.size(a.shape[:-2]) * shorter * (6 * rows * columns + 20 * shorter * shorter)


def _svd_reference(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    k: int | None = None,
) -> Any:
    if not compute_uv:
        return np.linalg.svdvals(a)[..., :k]
    left, values, right = np.linalg.svd(a, full_matrices)
    return left[..., :k], values[..., :k], right[..., :k, :]


_THIN = {"full_matrices": False}

SVD = Op(
    name="svd",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=_svd_type,
    evaluate=_svd,
    gradient=_svd_gradient,
    function=svd,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARE,), real=PHASES),
            Sample((np.stack([TALL, TALL[::-1] + 0.1]),), _THIN, real=PHASES),
            Sample((WIDE_,), _THIN, real=PHASES),
            Sample((STRIDED[0],), _THIN, real=PHASES),
            Sample((TALL,), {"full_matrices": False, "k": 2}, real=PHASES),
            Sample((WIDE_,), {"compute_uv": False}),
            Sample(
                (TALL,),
                gradient=(),
                reason="the last columns of the full U are not determined",
            ),
            Sample((ONE,), real=PHASES),
            Sample((EMPTY,)),
        ],
        bad_samples=lambda: [
            *bad_matrices("svd")(),
            BadSample((SQUARE,), ShapeError, "svd: k=4 of 3 singular values", {**_THIN, "k": 4}),
            BadSample((SQUARE,), ShapeError, "svd: k=2 with full_matrices=True", {"k": 2}),
        ],
        reference=_svd_reference,
    ),
    numerics="reassoc",
    flops=_svd_flops,
    precision=Precision("keep"),
)


def _svdvals_type(call: Call, a: Type) -> Type:
    batch, rows, columns = matrices(call, a)
    return Type(real_dtype(a.dtype), (*batch, dims.minimum(rows, columns)))


@hermitian
def _svdvals_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    a = node.inputs[0]
    if is_empty(a.shape):
        return (zeros_like(a),)
    parts = SVD(a, full_matrices=False)
    left, right = ITEM(parts, index=0), ITEM(parts, index=2)
    return (matmul(multiply(left, expand_dims(cotangent, -2)), right),)


@documented
def svdvals(a: Any) -> Node:
    """Compute singular values.

    a: Node or array of shape ``(..., m, n)``, float or complex.
    returns: Of shape ``(..., min(m, n))``, real, descending.
    raises ShapeError: If `a` has fewer than two axes.
    raises LinAlgError: At run time, if the iteration does not converge, as for a matrix with NaN.

    See Also
    --------
    svd : what holds of gradients where singular values are equal.

    >>> mg.linalg.svdvals([[0.0, 3.0], [2.0, 0.0]]).eval()
    array([3., 2.], dtype=float32)
    """
    return SVDVALS(numbers(a))


def _svdvals_flops(a: Type) -> Extent:
    rows, columns = a.shape[-2:]
    shorter = dims.minimum(rows, columns)
    work = 4 * rows * columns * shorter - dims.floor_div(4 * shorter * shorter * shorter, 3)
    return dims.size(a.shape[:-2]) * work


SVDVALS = Op(
    name="svdvals",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=_svdvals_type,
    evaluate=lambda xp, a: iterated(xp, "svdvals", lambda x: xp.linalg.svd(x, compute_uv=False), a),
    gradient=_svdvals_gradient,
    function=svdvals,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARES[:2],)),
            Sample((TALL,)),
            Sample((WIDE_,)),
            Sample((STRIDED[1],)),
            Sample((3.0 * np.eye(3),), gradient=(), reason="equal singular values change places"),
            Sample((ONE,)),
            Sample((EMPTY,)),
        ],
        bad_samples=bad_matrices("svdvals"),
        reference=np.linalg.svdvals,
    ),
    numerics="reassoc",
    flops=_svdvals_flops,
    precision=Precision("keep"),
)

RECORDS = (SVD, SVDVALS)
