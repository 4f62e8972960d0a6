"""Eigenvalues and eigenvectors of matrices that need not be Hermitian: complex, in general."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...dtypes import complex_dtype
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import LAPACK, Call, Kind, Op, Precision, Sample, Tests
from ...ir.types import Type
from ..control.identities import ITEM
from ..convert import cast
from ..elementwise.arithmetic import add, multiply, subtract
from ..elementwise.complex_numbers import conj
from ..products.contraction import matmul
from ..shape.arrange import expand_dims
from .parts import (
    DEFINITES,
    EMPTY,
    ONE,
    POSITIVE_DEFINITE,
    SQUARE,
    adjoint,
    bad_squares,
    close_to,
    diagonal_of,
    hermitian,
    is_empty,
    iterated,
    numbers,
    safe_inverse,
    squares,
    without_imaginary,
    zeros_like,
)
from .solve import SOLVE

__all__ = ["eig", "eigvals"]

# Real, distinct eigenvalues, though not symmetric; and a pair of complex ones.
REAL_SPECTRUM = np.array([[2.0, 0.5, -0.3], [0.4, -1.0, 0.6], [0.1, -0.2, 4.0]])
COMPLEX_SPECTRUM = np.array([[0.5, -2.0, 0.3], [1.5, 0.2, -0.4], [0.2, 0.1, 3.0]])


class EigResult(NamedTuple):
    """What `eig` returns: ``A v = w v`` for each column of the eigenvectors."""

    eigenvalues: Node
    eigenvectors: Node


def _eig_type(call: Call, a: Type) -> tuple[Type, Type]:
    batch, order = squares(call, a)
    dtype = complex_dtype(a.dtype)
    return Type(dtype, (*batch, order)), Type(dtype, (*batch, order, order))


@hermitian
def _eig_gradient(node: Node, cotangents: Sequence[Node | None]) -> tuple[Node | None]:
    # A change M = V^-1 dA V changes the vector V_j by the sum of V_i M_ij / (w_j - w_i) over all i
    # but j, less the part that would change its length (Boeddeker et al. 2017, arXiv:1701.00392).
    a = node.inputs[0]
    by_values, by_vectors = cotangents
    if by_values is None and by_vectors is None:
        return (None,)
    if is_empty(a.shape):
        return (zeros_like(a),)
    values, vectors = ITEM(node, index=0), ITEM(node, index=1)
    back = adjoint(vectors)
    inner: Node | None = None
    if by_vectors is not None:
        in_basis = matmul(back, by_vectors)
        length = without_imaginary(diagonal_of(in_basis))
        in_basis = subtract(in_basis, multiply(matmul(back, vectors), expand_dims(length, -2)))
        gaps = conj(subtract(expand_dims(values, -2), expand_dims(values, -1)))
        inner = multiply(in_basis, safe_inverse(gaps, close_to(values)))
    if by_values is not None:
        scaled = multiply(back, expand_dims(by_values, -1))
        product = scaled if inner is None else add(scaled, matmul(inner, back))
    else:
        assert inner is not None
        product = matmul(inner, back)
    return (SOLVE(back, product),)


def _complex(*parts: Any) -> tuple[Any, ...]:
    return tuple(part if part.dtype.kind == "c" else part + 0j for part in parts)


@documented
def eig(a: Any) -> EigResult:
    """Compute eigenvalues and right eigenvectors of square matrices.

    a: Node or array of shape ``(..., n, n)``, float or complex.
    returns (EigResult): ``eigenvalues`` of shape ``(..., n)`` and ``eigenvectors`` of ``(..., n,
        n)``, columns of length 1, in LAPACK's order. Both are always complex: whether all are real
        is known only once the values are.
    raises ShapeError: If the matrices are not square.
    raises LinAlgError: At run time, if the iteration does not converge, as for a matrix with NaN;
        from the gradient, if the matrix of eigenvectors is singular.

    See Also
    --------
    eigh : for Hermitian matrices, more exact and faster.

    Notes
    -----
    Eigenvectors are determined up to a phase, and the gradient is that of a phase which does not
    turn: right for what does not depend on it. It grows without bound towards matrices that have no
    basis of eigenvectors. Eigenvalues that agree to within 16 eps of the
    largest are treated as in `eigh`. The gradient is that of Boeddeker, Hanebrink, Drude, Heymann
    and Haeb-Umbach (2017, arXiv:1701.00392).

    >>> w, V = mg.linalg.eig([[0.0, -1.0], [1.0, 0.0]])
    >>> w.eval()
    array([0.+1.j, 0.-1.j], dtype=complex64)
    """
    both = EIG(numbers(a))
    return EigResult(ITEM(both, index=0), ITEM(both, index=1))


_PHASES = "complex vectors are determined up to a phase"

EIG = Op(
    name="eig",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=_eig_type,
    evaluate=lambda xp, a: _complex(*iterated(xp, "eig", xp.linalg.eig, a)),
    gradient=_eig_gradient,
    function=eig,
    tests=Tests(
        samples=lambda: [
            Sample((REAL_SPECTRUM,), real=_PHASES),
            Sample((np.stack([REAL_SPECTRUM, POSITIVE_DEFINITE]),), real=_PHASES),
            Sample((COMPLEX_SPECTRUM,), gradient=(), reason=_PHASES),
            Sample((ONE,), real=_PHASES),
            Sample((EMPTY,)),
        ],
        bad_samples=bad_squares("eig"),
        reference=lambda a: _complex(*np.linalg.eig(a)),
    ),
    numerics="reassoc",
    flops=lambda a: 25 * a.size * a.shape[-1],
    precision=Precision("keep"),
)


def _eigvals_type(call: Call, a: Type) -> Type:
    return _eig_type(call, a)[0]


@hermitian
def _eigvals_gradient(node: Node, gradient: Node) -> tuple[Node]:
    a = node.inputs[0]
    if is_empty(a.shape):
        return (cast(zeros_like(a), node.dtype),)
    back = adjoint(ITEM(EIG(a), index=1))
    return (SOLVE(back, multiply(back, expand_dims(gradient, -1))),)


@documented
def eigvals(a: Any) -> Node:
    """Compute the eigenvalues of square matrices.

    a: Node or array of shape ``(..., n, n)``, float or complex.
    returns: Of shape ``(..., n)``, always complex, in LAPACK's order.
    raises ShapeError: If the matrices are not square.
    raises LinAlgError: At run time, if the iteration does not converge, as for a matrix with NaN;
        from the gradient, if the matrix of eigenvectors is singular.

    See Also
    --------
    eigvalsh : for Hermitian matrices.

    >>> mg.linalg.eigvals([[0.0, -1.0], [1.0, 0.0]]).eval()
    array([0.+1.j, 0.-1.j], dtype=complex64)
    """
    return EIGVALS(numbers(a))


EIGVALS = Op(
    name="eigvals",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=_eigvals_type,
    evaluate=lambda xp, a: _complex(iterated(xp, "eigvals", xp.linalg.eigvals, a))[0],
    gradient=_eigvals_gradient,
    function=eigvals,
    tests=Tests(
        samples=lambda: [
            Sample((REAL_SPECTRUM,)),
            Sample((COMPLEX_SPECTRUM,)),
            Sample((np.stack([SQUARE, DEFINITES[0]]),)),
            Sample((ONE,)),
            Sample((EMPTY,)),
        ],
        bad_samples=bad_squares("eigvals"),
        reference=lambda a: _complex(np.linalg.eigvals(a))[0],
    ),
    numerics="reassoc",
    flops=lambda a: 10 * a.size * a.shape[-1],
    precision=Precision("keep"),
)

RECORDS = (EIG, EIGVALS)
