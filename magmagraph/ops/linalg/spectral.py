"""Eigenvalues of Hermitian matrices, with their vectors; what holds of equal ones.

Where two eigenvalues or singular values agree to within 16 eps of the largest, their vectors are
only determined up to a rotation among each other, and the quotient by their difference in the
gradient is taken as 0. Gradients of what does not depend on that rotation are right, also where
values are close but not equal: of sums over such values, of projections onto their space, of
``U @ Vh``. What does depend on it has no gradient at equal values, and gets a finite one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...dtypes import real_dtype
from ...errors import ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import LAPACK, BadSample, Call, Kind, Linalg, Op, Precision, Sample, Tests
from ...ir.types import Extent, Type
from ..control.identities import ITEM
from ..elementwise.arithmetic import add, multiply, subtract
from ..products.contraction import matmul
from ..rules.matrix_facts import Facts
from ..shape.arrange import expand_dims
from .parts import (
    EMPTY,
    ONE,
    POSITIVE_DEFINITE,
    SQUARE,
    SQUARES,
    STRIDED,
    adjoint,
    bad_squares,
    hermitian,
    is_empty,
    iterated,
    numbers,
    of_triangle,
    squares,
    turn_of,
    zeros_like,
)

__all__ = ["eigh", "eigvalsh"]


PHASES = "complex vectors are determined up to a phase"


# Hermitian matrices.


class EighResult(NamedTuple):
    """What `eigh` returns: ``A v = w v`` for each column of the eigenvectors."""

    eigenvalues: Node
    eigenvectors: Node


def _eigh_type(
    call: Call, a: Type, *, lower: bool, subset: tuple[int, int] | None
) -> tuple[Type, Type]:
    batch, order = squares(call, a)
    count: Extent = order
    if subset is not None:
        first, last = subset
        if not 0 <= first <= last or (type(order) is int and last >= order):
            raise call.shape_error(
                f"subset_by_index={subset} for matrices of order {order}",
                need=f"0 <= first <= last < {order}",
            )
        dims.require(order, ">=", last + 1, call.constraints)
        count = last - first + 1
    return Type(real_dtype(a.dtype), (*batch, count)), Type(a.dtype, (*batch, order, count))


def _eigh(xp: Any, a: Any, *, lower: bool, subset: tuple[int, int] | None) -> tuple[Any, Any]:
    triangle, read = ("L", xp.tril(a)) if lower else ("U", xp.triu(a))
    if subset is None:
        return tuple(iterated(xp, "eigh", lambda x: xp.linalg.eigh(x, triangle), a, read=read))
    if xp is not np:
        values, vectors = iterated(xp, "eigh", lambda x: xp.linalg.eigh(x, triangle), a, read=read)
        some_of = slice(subset[0], subset[1] + 1)
        return values[..., some_of], vectors[..., some_of]
    from scipy.linalg import eigh as some

    count = subset[1] - subset[0] + 1

    def one(batch: Any) -> tuple[Any, Any]:
        values = np.empty((*batch.shape[:-2], count), real_dtype(a.dtype))
        vectors = np.empty((*batch.shape[:-1], count), a.dtype)
        for index in np.ndindex(*batch.shape[:-2]):
            eigenvalues, basis = some(
                batch[index], lower=lower, subset_by_index=subset, check_finite=False
            )
            if eigenvalues.size != count:  # LAPACK's way to say that it found NaN
                raise np.linalg.LinAlgError
            values[index], vectors[index] = eigenvalues, basis
        return values, vectors

    return tuple(iterated(xp, "eigh", one, a, read=read))


def _eigh_facts(node: Node, known: object) -> tuple[Facts, Facts]:
    whole = node.attrs["subset"] is None
    return Facts.NONE, Facts.ORTHOGONAL if whole else Facts.NONE


@hermitian
def _eigh_gradient(node: Node, cotangents: Sequence[Node | None]) -> tuple[Node | None]:
    # In the basis W of all eigenvectors, with eigenvalues w, a change M = W^H dA W changes the
    # vector W_j by the sum of W_i M_ij / (w_j - w_i) over all i but j.
    a = node.inputs[0]
    by_values, by_vectors = cotangents
    if by_values is None and by_vectors is None:
        return (None,)
    if is_empty(a.shape):
        return (zeros_like(a),)
    lower, subset = node.attrs["lower"], node.attrs["subset"]
    values, vectors = ITEM(node, index=0), ITEM(node, index=1)
    result: Node | None = None
    if by_values is not None:
        result = matmul(multiply(vectors, expand_dims(by_values, -2)), adjoint(vectors))
    if by_vectors is not None:
        basis, in_basis = vectors, matmul(adjoint(vectors), by_vectors)
        if subset is not None:
            whole = EIGH(a, lower=lower, subset=None)
            values, basis = ITEM(whole, index=0), ITEM(whole, index=1)
            # The signs of the vectors wanted need not be those of the whole basis.
            in_basis = matmul(matmul(adjoint(basis), by_vectors), matmul(adjoint(vectors), basis))
        turn = multiply(subtract(in_basis, adjoint(in_basis)), 0.5)
        gaps = subtract(expand_dims(values, -2), expand_dims(values, -1))
        inner = turn_of(turn, gaps, values, [in_basis])
        through = matmul(matmul(basis, inner), adjoint(basis))
        result = through if result is None else add(result, through)
    assert result is not None
    return (of_triangle(result, lower),)


def _triangle(call: Call, uplo: str) -> bool:
    if uplo not in ("L", "U", "l", "u"):
        raise call.shape_error(f"UPLO={uplo!r}", need="'L' or 'U'")
    return uplo in "Ll"


@documented
def eigh(
    a: Any, UPLO: str = "L", *, subset_by_index: tuple[int, int] | None = None
) -> EighResult:
    """Compute eigenvalues and eigenvectors of Hermitian matrices.

    a: Node or array of shape ``(..., n, n)``, float or complex, Hermitian.
    UPLO: "L" or "U": the triangle that is read. The gradient lies in that triangle: what belongs to
        an element and to its mirror image falls to the one that is read.
    subset_by_index: First and last of the eigenvalues wanted, both counted from 0, the last one
        included.
    returns (EighResult): ``eigenvalues`` of shape ``(..., n)``, real, ascending; ``eigenvectors``
        of ``(..., n, n)``, orthonormal columns. With a subset of k there are k of both.
    raises ShapeError: If the matrices are not square, or the subset does not lie within them.
    raises LinAlgError: At run time, if the iteration does not converge for a matrix.

    Notes
    -----
    Eigenvectors are determined up to a sign (a phase, where complex). Where eigenvalues agree to
    within 16 eps of the largest they are determined up to a rotation, and the gradient takes the
    quotient by their difference as 0: right for all that does not depend on the rotation, as are
    sums of equal eigenvalues and projections onto their space. A function of a matrix made as
    ``V f(w) V^H`` is more than that; its gradient lacks ``f'`` between equal eigenvalues
    (`expm`, `sqrtm`, `pinv` and `matrix_power` have the whole one), and so does the second
    derivative of a sum of ``f(w)``. Where eigenvalues are closer than the root of eps, what the
    gradient has of the turn of their vectors loses ``eps / gap`` of its digits.

    >>> w, V = mg.linalg.eigh([[2.0, 1.0], [1.0, 2.0]])
    >>> w.eval()
    array([1., 3.], dtype=float32)
    """
    node = numbers(a)
    call = Call(EIGH, (node,))
    lower = _triangle(call, UPLO)
    subset = None
    if subset_by_index is not None:
        first, last = map(int, subset_by_index)
        if not 0 <= first <= last:
            raise call.shape_error(
                f"subset_by_index={(first, last)}", need="0 <= first <= last: the last is included"
            )
        subset = (first, last)
    both = EIGH(node, lower=lower, subset=subset)
    return EighResult(ITEM(both, index=0), ITEM(both, index=1))


def _eigh_flops(a: Type, **attrs: Any) -> Extent:
    return 9 * a.size * a.shape[-1]


def _eigh_reference(a: Any, UPLO: Any = "L", subset_by_index: Any = None) -> Any:
    if subset_by_index is None:
        return tuple(np.linalg.eigh(a, UPLO))
    from scipy.linalg import eigh as some

    first = some(a, lower=UPLO == "L", subset_by_index=subset_by_index)
    return tuple(first)


EIGH = Op(
    name="eigh",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=_eigh_type,
    linalg=Linalg(facts=_eigh_facts),
    evaluate=_eigh,
    gradient=_eigh_gradient,
    function=eigh,
    tests=Tests(
        samples=lambda: [
            Sample((POSITIVE_DEFINITE,), real=PHASES),
            Sample((np.stack([SQUARE, SQUARES[1]]),), real=PHASES),
            Sample((STRIDED,), {"UPLO": "U"}, real=PHASES),
            Sample((SQUARE,), {"subset_by_index": (1, 2)}, real=PHASES),
            Sample((SQUARE,), {"UPLO": "U", "subset_by_index": (0, 0)}, real=PHASES),
            Sample((ONE,)),
            Sample((EMPTY,)),
        ],
        bad_samples=lambda: [
            *bad_squares("eigh")(),
            BadSample((SQUARE,), ShapeError, "eigh: UPLO='X'", {"UPLO": "X"}),
            BadSample(
                (SQUARE,),
                ShapeError,
                "eigh: subset_by_index=(1, 3) for matrices of order 3",
                {"subset_by_index": (1, 3)},
            ),
            BadSample(
                (SQUARE,),
                ShapeError,
                "eigh: subset_by_index=(2, 1)",
                {"subset_by_index": (2, 1)},
            ),
        ],
        reference=_eigh_reference,
    ),
    numerics="reassoc",
    flops=_eigh_flops,
    precision=Precision("keep"),
)


def _eigvalsh_type(call: Call, a: Type, *, lower: bool) -> Type:
    batch, order = squares(call, a)
    return Type(real_dtype(a.dtype), (*batch, order))


def _eigvalsh(xp: Any, a: Any, *, lower: bool) -> Any:
    triangle, read = ("L", xp.tril(a)) if lower else ("U", xp.triu(a))
    return iterated(xp, "eigvalsh", lambda x: xp.linalg.eigvalsh(x, triangle), a, read=read)


@hermitian
def _eigvalsh_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    a, lower = node.inputs[0], node.attrs["lower"]
    if is_empty(a.shape):
        return (zeros_like(a),)
    vectors = ITEM(EIGH(a, lower=lower, subset=None), index=1)
    through = matmul(multiply(vectors, expand_dims(cotangent, -2)), adjoint(vectors))
    return (of_triangle(through, lower),)


@documented
def eigvalsh(a: Any, UPLO: str = "L") -> Node:
    """Compute the eigenvalues of Hermitian matrices.

    a: Node or array of shape ``(..., n, n)``, float or complex, Hermitian.
    UPLO: "L" or "U": the triangle that is read, and in which the gradient lies.
    returns: Of shape ``(..., n)``, real, ascending.
    raises ShapeError: If the matrices are not square.
    raises LinAlgError: At run time, if the iteration does not converge for a matrix.

    See Also
    --------
    eigh : what holds of gradients where eigenvalues are equal.

    >>> mg.linalg.eigvalsh([[2.0, 1.0], [1.0, 2.0]]).eval()
    array([1., 3.], dtype=float32)
    """
    node = numbers(a)
    return EIGVALSH(node, lower=_triangle(Call(EIGVALSH, (node,)), UPLO))


EIGVALSH = Op(
    name="eigvalsh",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=_eigvalsh_type,
    evaluate=_eigvalsh,
    gradient=_eigvalsh_gradient,
    function=eigvalsh,
    tests=Tests(
        samples=lambda: [
            Sample((POSITIVE_DEFINITE,)),
            Sample((SQUARES[:2],), {"UPLO": "U"}),
            Sample((ONE,)),
            Sample((EMPTY,)),
        ],
        bad_samples=lambda: [
            *bad_squares("eigvalsh")(),
            BadSample((SQUARE,), ShapeError, "eigvalsh: UPLO='X'", {"UPLO": "X"}),
        ],
        reference=np.linalg.eigvalsh,
    ),
    numerics="reassoc",
    flops=lambda a, **attrs: dims.floor_div(4 * a.size * a.shape[-1], 3),
    precision=Precision("keep"),
)

RECORDS = (EIGH, EIGVALSH)
