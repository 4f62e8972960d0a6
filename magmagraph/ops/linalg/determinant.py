"""Determinants, and the matrix of cofactors that their gradients are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...dtypes import finfo, is_complex, real_dtype
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import LAPACK, Call, Kind, Linalg, Op, Precision, Sample, Tests
from ...ir.types import Extent, Type
from ..control.identities import ITEM
from ..convert import cast
from ..elementwise.arithmetic import add, divide, multiply, remainder, subtract
from ..elementwise.bits import logical_and, logical_not, logical_or
from ..elementwise.comparison import equal, less, where
from ..elementwise.complex_numbers import conj, imag
from ..elementwise.math import log
from ..elementwise.signs import absolute, sign
from ..indexing.gathering import take
from ..indexing.iota import IOTA
from ..leaf import constant
from ..products.contraction import matmul
from ..reduction.others import PRODUCT_OF_OTHERS
from ..reduction.primitives import argmax, sum
from ..rules import onnx_control
from ..shape.arrange import expand_dims, reshape
from ..shape.joining import broadcast_to
from .lowered import factored_det, factored_slogdet
from .parts import (
    EMPTY,
    ONE,
    SQUARE,
    SQUARES,
    STRIDED,
    bad_squares,
    diagonal_matrix,
    diagonal_of,
    hermitian,
    identity,
    is_empty,
    iterated,
    numbers,
    square_type,
    squares,
    transposed,
    zeros_like,
)
from .solve import INV
from .svd import SVD

__all__ = ["det", "slogdet"]


def _det_type(call: Call, a: Type) -> Type:
    batch, _ = squares(call, a)
    return Type(a.dtype, batch)


def _lu_work(a: Type) -> Extent:
    order = a.shape[-1]
    return dims.size(a.shape[:-2]) * dims.floor_div(2 * order * order * order, 3)


def _det_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    a = node.inputs[0]
    return (multiply(expand_dims(cotangent, (-1, -2)), transposed(ADJUGATE(a))),)


@documented
def det(a: Any) -> Node:
    """Compute the determinants of square matrices.

    a: Node or array of shape ``(..., n, n)``, float or complex.
    returns: Of shape ``(...)``. The determinant of a matrix without elements is 1.
    raises ShapeError: If the matrices are not square.

    Notes
    -----
    The gradient is the matrix of cofactors. It is finite and right for singular matrices too, as
    is the second derivative: both are made of products of singular values, without a quotient.

    >>> mg.linalg.det([[2.0, 1.0], [0.0, 3.0]]).eval()
    array(6., dtype=float32)
    """
    return DET(numbers(a))


# A singular matrix, and one of rank n - 2, whose cofactors are all zero.
SINGULAR_MATRIX = np.array([[1.0, 2.0, -0.5], [0.4, 0.8, -0.2], [-0.3, 0.7, 1.1]])
RANK_ONE = np.outer([1.0, -0.5, 0.8], [0.6, 1.2, -0.9])

DET = Op(
    name="det",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=_det_type,
    linalg=Linalg(factored=factored_det),
    evaluate=lambda xp, a: xp.linalg.det(a),
    gradient=_det_gradient,
    function=det,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARE,)),
            Sample((SQUARES,)),
            Sample((STRIDED,)),
            Sample((SINGULAR_MATRIX,)),
            Sample((RANK_ONE,)),
            Sample((np.stack([2.0 * np.eye(3), SQUARE]),)),
            Sample((ONE,)),
            Sample((EMPTY,)),
            Sample((SQUARES[:0],)),
        ],
        bad_samples=bad_squares("det"),
        reference=np.linalg.det,
    ),
    numerics="reassoc",
    flops=_lu_work,
    precision=Precision("keep"),
    onnx="Det",
)


# Signs and logarithms.


class SlogdetResult(NamedTuple):
    """What `slogdet` returns: the determinant is ``sign * exp(logabsdet)``."""

    sign: Node
    logabsdet: Node


def _slogdet_type(call: Call, a: Type) -> tuple[Type, Type]:
    batch, _ = squares(call, a)
    return Type(a.dtype, batch), Type(real_dtype(a.dtype), batch)


def _slogdet_gradient(node: Node, cotangents: Sequence[Node | None]) -> tuple[Node | None]:
    # d log(det A) = tr(A^-1 dA): its real part changes the logarithm, its imaginary part t turns
    # the sign by i t sign.
    a = node.inputs[0]
    by_sign, by_logarithm = cotangents
    factor = by_logarithm
    if by_sign is not None and is_complex(a.dtype):
        turn = imag(multiply(by_sign, ITEM(node, index=0)))
        # Re(c i t s) = -t Im(c s), and t = Im(z) = Re(-i z).
        rotated = multiply(turn, 1j)
        factor = rotated if factor is None else add(factor, rotated)
    if factor is None:
        return (None,)  # the sign of a real determinant is constant where it has a derivative
    if is_empty(a.shape):
        return (zeros_like(a),)
    return (multiply(expand_dims(factor, (-1, -2)), transposed(INV(a))),)


@documented
def slogdet(a: Any) -> SlogdetResult:
    """Compute the signs and the logarithms of the absolute values of determinants.

    a: Node or array of shape ``(..., n, n)``, float or complex.
    returns (SlogdetResult): ``sign`` (of a singular matrix 0) and ``logabsdet`` (-inf), each of
        shape ``(...)``.
    raises ShapeError: If the matrices are not square.
    raises LinAlgError: At run time, from the gradient, if a matrix is singular: it is infinite
        there.

    >>> sign, logarithm = mg.linalg.slogdet([[0.0, 1.0], [1.0, 0.0]])
    >>> sign.eval(), logarithm.eval()
    (array(-1., dtype=float32), array(0., dtype=float32))
    """
    node = SLOGDET(numbers(a))
    return SlogdetResult(ITEM(node, index=0), ITEM(node, index=1))


def _elimination_start(node: Node) -> list[Node]:
    """Return the matrices, no row of which is eliminated, and the determinant 1."""
    a = node.inputs[0]
    ones = broadcast_to(constant(np.ones((), a.dtype)), a.shape[:-2])
    rows = broadcast_to(constant(np.array(False)), a.shape[:-1])
    return [a, rows, ones, subtract(ones, ones)]


def _elimination_step(k: Node, rest: Node, done: Node, sign_: Node, logarithm: Node) -> list[Node]:
    """Eliminate column k by the row of its largest element, which stays where it is.

    The exchange of rows, which is left out, would turn the sign once for each row above it that
    is not eliminated yet.
    """
    column = take(rest, k, axis=-1)
    place = expand_dims(argmax(where(done, -1.0, absolute(column)), axis=-1), -1)
    rows = IOTA(shape=column.shape, axis=column.ndim - 1, dtype=np.dtype(np.int64))
    pivot_row = equal(rows, place)
    above = sum(cast(logical_and(less(rows, place), logical_not(done)), np.int64), axis=-1)
    pivot = sum(where(pivot_row, column, 0.0), axis=-1)
    line = sum(where(expand_dims(pivot_row, -1), rest, 0.0), axis=-2)
    turn = where(equal(remainder(above, 2), 1), -1.0, 1.0)
    done = logical_or(done, pivot_row)
    quotient = divide(column, expand_dims(where(equal(pivot, 0.0), 1.0, pivot), -1))
    share = expand_dims(where(done, 0.0, quotient), -1)
    rest = subtract(rest, multiply(share, expand_dims(line, -2)))
    sign_ = multiply(sign_, multiply(cast(turn, pivot.dtype), sign(pivot)))
    return [rest, done, sign_, add(logarithm, log(absolute(pivot)))]


SLOGDET = Op(
    name="slogdet",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=_slogdet_type,
    linalg=Linalg(factored=factored_slogdet),
    evaluate=lambda xp, a: tuple(xp.linalg.slogdet(a)),
    gradient=_slogdet_gradient,
    function=slogdet,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARE,)),
            Sample((SQUARES,)),
            Sample((STRIDED,)),
            Sample(
                (np.stack([np.zeros((2, 2)), np.eye(2)]),), gradient=(), reason="it is singular"
            ),
            Sample((ONE,)),
            Sample((EMPTY,)),
        ],
        bad_samples=bad_squares("slogdet"),
        reference=lambda a: tuple(np.linalg.slogdet(a)),
    ),
    numerics="reassoc",
    flops=_lu_work,
    precision=Precision("keep"),
    onnx=onnx_control.repeated(
        lambda node: node.inputs[0].shape[-1], _elimination_start, _elimination_step
    ),
)


# Cofactors.


def largest_condition(dtype: np.dtype) -> float:
    """Return the condition at which the inverse has lost a quarter of the digits."""
    return float(float(finfo(dtype).eps) ** -0.25)


def _adjugate(xp: Any, a: Any) -> Any:
    """Return ``det(A) A^-1`` where that keeps most digits, else products of singular values."""
    if not a.size:
        return a
    sign, logarithm = xp.linalg.slogdet(a)
    singular = (sign == 0)[..., None, None]
    inverse = xp.linalg.inv(xp.where(singular, xp.eye(a.shape[-1], dtype=a.dtype), a))
    size = xp.abs(a).sum(-2).max(-1) * xp.abs(inverse).sum(-2).max(-1)
    result = (sign * xp.exp(logarithm))[..., None, None] * inverse
    careful = singular[..., 0, 0] | ~(size < largest_condition(a.dtype))
    if careful.any():
        left, values, right = iterated(xp, "det", xp.linalg.svd, a[careful])
        others = PRODUCT_OF_OTHERS.evaluate(xp, values, axes=(values.ndim - 1,))
        phase = xp.linalg.det(left) * xp.linalg.det(right)
        middle = (phase[:, None] * others)[:, None, :] * xp.swapaxes(right.conj(), -1, -2)
        result[careful] = middle @ xp.swapaxes(left.conj(), -1, -2)
    return result


@hermitian
def _adjugate_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    # With A = U S V^H the adjugate is d V adj(S) U^H, d = det(U) det(V^H) being of absolute value
    # 1. In the basis of the singular vectors a change F of S changes the diagonal of adj(S) by
    # Q diag(F) and the rest by -Q * F, where Q_ij is the product of all values but i and j.
    a = node.inputs[0]
    if is_empty(a.shape):
        return (zeros_like(a),)
    parts = SVD(a, full_matrices=False)
    left, values, right = (ITEM(parts, index=i) for i in range(3))
    phase = conj(multiply(DET(left), DET(right)))
    order = a.shape[-1]
    repeated = broadcast_to(expand_dims(values, -2), (*a.shape[:-2], order, order))
    choice = broadcast_to(identity(order, values.dtype), repeated.shape)
    without_two = PRODUCT_OF_OTHERS(repeated, choice, axes=(repeated.ndim - 1,))
    rotated = matmul(matmul(right, cotangent), left)
    by_values = reshape(matmul(without_two, expand_dims(diagonal_of(rotated), -1)), values.shape)
    inner = subtract(diagonal_matrix(by_values), multiply(without_two, rotated))
    product = matmul(matmul(left, inner), right)
    return (multiply(expand_dims(phase, (-1, -2)), product),)


ADJUGATE = Op(
    name="adjugate",
    kind=Kind.LINALG,
    dtypes=LAPACK,
    doc="The transposed cofactors of square matrices: det(A) A^-1, singular matrices included.",
    rule=square_type,
    evaluate=_adjugate,
    gradient=_adjugate_gradient,
    numerics="reassoc",
    flops=lambda a: 4 * a.size * a.shape[-1],
    precision=Precision("keep"),
)

RECORDS = (DET, SLOGDET, ADJUGATE)
