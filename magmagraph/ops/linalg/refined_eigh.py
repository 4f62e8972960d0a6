"""Eigenvalues and eigenvectors of Hermitian matrices in mixed precision."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...dtypes import is_complex
from ...errors import ShapeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Kind, Op, Sample, Tests
from ...ir.types import Extent, Type
from ..convert import as_node, cast
from ..elementwise.arithmetic import add, divide, multiply, subtract
from ..elementwise.comparison import equal, where
from ..elementwise.complex_numbers import conj, imag, real
from ..elementwise.signs import absolute
from ..indexing.iota import IOTA
from ..leaf import constant
from ..products.contraction import matmul
from ..reduction.primitives import argmax, sum
from ..shape.arrange import expand_dims
from .parts import (
    DEFINITES,
    ITERATION,
    POSITIVE_DEFINITE,
    SQUARE,
    TALL,
    adjoint,
    close_to,
    diagonal_matrix,
    failed,
    is_empty,
    safe_inverse,
    squares,
    zeros_like,
)
from .refined import (
    DOUBLE,
    ELEVEN_DIGITS,
    allowed,
    check_control,
    double,
    hermitian,
    items,
    of_lower,
    over_batch,
    refined_once,
    report_types,
)
from .refinement_eigen import eigen_refined

__all__ = ["RefinedEigh", "refined_eigh"]


class RefinedEigh(NamedTuple):
    """Eigenvalues and eigenvectors found in mixed precision; see `RefinedSolution`."""

    eigenvalues: Node
    eigenvectors: Node
    error: Node
    iterations: Node
    converged: Node


def _eigh_type(call: Call, A: Type, **attrs: Any) -> tuple[Type, ...]:
    batch, order = squares(call, A)
    real = np.dtype(np.float64)
    return Type(real, (*batch, order)), Type(A.dtype, A.shape), *report_types(batch)


def _eigh(
    xp: Any, A: Any, *, tolerance: float | None, max_iterations: int
) -> tuple[Any, ...]:
    batch = A.shape[:-2]
    values, vectors = np.empty(A.shape[:-1]), np.empty_like(A)
    error, iterations, converged = (np.empty(batch, t.dtype) for t in report_types(()))
    least = allowed(tolerance, max(1, A.shape[-1]), A.dtype)
    for place, (matrix,) in over_batch(batch, A):
        try:
            decomposition = eigen_refined(hermitian(matrix), least, max_iterations)
        except np.linalg.LinAlgError:
            raise failed("refined_eigh", *ITERATION, A, place) from None
        values[place], vectors[place] = decomposition.values, _with_signs(decomposition.vectors)
        error[place], iterations[place], converged[place] = decomposition[2:]
    return values, vectors, error, iterations, converged


def _with_signs(vectors: Any) -> Any:
    """Return eigenvectors turned so that the largest component of each is positive."""
    if not vectors.size:
        return vectors
    largest = np.argmax(np.abs(vectors), axis=0)
    components = vectors[largest, np.arange(vectors.shape[1])]
    return vectors * (np.conj(components) / np.abs(components))


def _for_phases(gradient: Node, vectors: Node) -> Node:
    """Add to the gradient of complex eigenvectors what reaches them through `_with_signs`."""
    if not is_complex(vectors.dtype):
        return gradient
    down = IOTA(shape=(vectors.shape[-2], 1), axis=0, dtype=np.dtype(np.int32))
    is_largest = equal(down, expand_dims(argmax(absolute(vectors), axis=-2), -2))
    turn = sum(imag(multiply(conj(gradient), vectors)), axis=-2, keepdims=True)
    largest = sum(where(is_largest, real(vectors), 0), axis=-2, keepdims=True)
    phases = where(is_largest, divide(turn, largest), 0)
    return add(gradient, multiply(cast(phases, vectors.dtype), constant(1j, dtype=vectors.dtype)))


def _eigh_gradient(node: Node, cotangents: tuple[Node | None, ...]) -> tuple[Node | None]:
    by_values, by_vectors = cotangents[:2]
    if by_values is None and by_vectors is None:
        return (None,)
    if is_empty(node.inputs[0].shape):
        return (zeros_like(node.inputs[0]),)
    values, vectors = items(node, 0, 1)
    inner: Node | None = None
    if by_vectors is not None:
        gaps = subtract(expand_dims(values, -2), expand_dims(values, -1))
        in_basis = matmul(adjoint(vectors), _for_phases(conj(by_vectors), vectors))
        inner = multiply(in_basis, safe_inverse(gaps, close_to(values)))
    if by_values is not None:
        diagonal = cast(diagonal_matrix(by_values), vectors.dtype)
        inner = diagonal if inner is None else add(inner, diagonal)
    assert inner is not None
    through = matmul(matmul(vectors, inner), adjoint(vectors))
    return (of_lower(conj(through)),)


def _eigh_flops(A: Type, **attrs: Any) -> Extent:
    # A decomposition, and the products of two steps of refinement.
    return (9 + 20) * A.size * A.shape[-1]


@documented
def refined_eigh(
    A: Any, *, tolerance: float | None = None, max_iterations: int = 30
) -> RefinedEigh:
    """Compute eigenvalues and eigenvectors in mixed precision: decompose in low, refine to high.

    The decomposition is computed in float32 (complex64). Steps of refinement correct all
    eigenvectors at once, with products of matrices alone, and square the error. Where that does
    not converge, or more than half of the eigenvalues lie too close together to be told apart,
    the matrix is decomposed in full precision, and the result says so.

    A: Node or array of shape ``(..., n, n)``, float64 or complex128. Only its lower triangle is
        read, so that the gradient lies in that triangle.
    tolerance: The error to reach; ``sqrt(n) * eps`` unless given.
    max_iterations: Steps of refinement before full precision takes over.
    returns (RefinedEigh): ``eigenvalues`` in ascending order, ``eigenvectors`` as columns, the
        largest component of each positive, and ``error``, ``iterations`` and ``converged``, one for
        each matrix of the batch. The error is the larger of ``|A X - X D| / |A|`` and ``|X^H X - I|
        / sqrt(n)`` in Frobenius' norm. `iterations` counts steps; negative, ``-1 - steps``, where
        full precision took over.
    raises ShapeError: If the matrices are not square, or an option is negative.
    raises DTypeError: For float32 and other dtypes of less than 64 bits a part.
    raises LinAlgError: At run time, where the decomposition in full precision does not converge, as
        for NaN.

    See Also
    --------
    eigh, refined_solve, refined_lstsq

    Notes
    -----
    The step is Ogita and Aishima's (2018, Iterative refinement for symmetric eigenvalue
    decomposition). Of its four products two have small results, of which the leading digits are
    enough, and run in low precision. It is the faster one only where a decomposition in low
    precision takes less than half the time of one in full, as on many graphics processors; the
    library of a CPU may be as slow in both. Eigenvectors of equal eigenvalues are determined up
    to a rotation only; what depends on that rotation has no gradient, and gets a finite value.

    >>> import numpy as np
    >>> found = mg.linalg.refined_eigh(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> found.eigenvalues.eval().round(12)
    array([1., 3.])
    >>> bool(found.error.eval() < 1e-15), bool(found.converged.eval())
    (True, True)
    """
    tolerance, most = check_control("refined_eigh", tolerance, max_iterations)
    (matrix,) = double(as_node(A))
    node = REFINED_EIGH(matrix, tolerance=tolerance, max_iterations=most)
    return RefinedEigh(*items(node, 0, 1, 2, 3, 4))


def _reference(A: Any, **options: Any) -> tuple[Any, ...]:
    values, vectors = np.linalg.eigh(A)
    signed = np.empty_like(vectors)
    for place in np.ndindex(A.shape[:-2]):
        signed[place] = _with_signs(vectors[place])
    return values, signed, *refined_once(A)


_APART = POSITIVE_DEFINITE + np.diag([0.0, 0.0, 2.0])

REFINED_EIGH = Op(
    name="refined_eigh",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=DOUBLE,
    rule=_eigh_type,
    attributes={"tolerance": "float | None", "max_iterations": "Count"},
    evaluate=_eigh,
    gradient=_eigh_gradient,
    function=refined_eigh,
    tests=Tests(
        samples=lambda: [
            Sample((_APART,), {"tolerance": ELEVEN_DIGITS}),
            Sample((np.tril(SQUARE),), {"tolerance": ELEVEN_DIGITS}),
            Sample(
                (np.stack([_APART, _APART[::-1, ::-1]])[:, None],), {"tolerance": ELEVEN_DIGITS}
            ),
            Sample((DEFINITES[:0],), {"tolerance": ELEVEN_DIGITS}),
            Sample((np.zeros((0, 0)),), {"tolerance": ELEVEN_DIGITS}),
        ],
        bad_samples=lambda: [
            BadSample((TALL,), ShapeError, "refined_eigh: matrices of 4 rows and 3 columns"),
            BadSample(
                (SQUARE,), ShapeError, "refined_eigh: tolerance=-1e-09", {"tolerance": -1e-9}
            ),
        ],
        reference=_reference,
    ),
    batching="leading",
    numerics="reassoc",
    flops=_eigh_flops,
)

RECORDS = (REFINED_EIGH,)
