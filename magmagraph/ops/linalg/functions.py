"""Functions of matrices: exponential, square root, powers; and Sylvester's equation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import finfo
from ...errors import DTypeError, ShapeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import LAPACK, BadSample, Call, Composite, Kind, Op, Precision, Sample, Tests
from ...ir.types import Type
from ..convert import as_node
from ..elementwise.arithmetic import negative
from ..elementwise.family import inexact_operands, one_dtype
from ..products.contraction import matmul
from ..shape.joining import broadcast_to, concatenate
from ..shape.slicing import cut
from .parts import (
    COLUMNS,
    DEFINITES,
    EMPTY,
    ONE,
    POSITIVE_DEFINITE,
    SQUARE,
    SQUARES,
    STRIDED,
    TALL,
    bad_squares,
    failed,
    identity,
    is_empty,
    numbers,
    shared_batch,
    square_type,
    squares,
    transposed,
    zeros_like,
)
from .solve import INV

__all__ = ["expm", "matrix_power", "solve_sylvester", "sqrtm"]


# Exponential.


def _expm(xp: Any, a: Any) -> Any:
    if xp is not np:
        result = xp.empty(a.shape, a.dtype)
        for index in np.ndindex(*a.shape[:-2] if a.size else (0,)):
            result[index] = xp.linalg.expm(a[index])
        return result
    from scipy.linalg import expm as exponential

    return exponential(a) if a.size else a


def _expm_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    # The derivative of exp at A in a direction E stands beside exp(A) in the exponential of
    # [[A, E], [0, A]] (Mathias 1996); its transpose in the direction c is that at A^T.
    a = node.inputs[0]
    if is_empty(a.shape):
        return (zeros_like(a),)
    adjoint_a, order = transposed(a), a.shape[-1]
    upper = concatenate([adjoint_a, cotangent], axis=-1)
    lower = concatenate([zeros_like(adjoint_a), adjoint_a], axis=-1)
    both = EXPM(concatenate([upper, lower], axis=-2))
    return (cut(cut(both, a.ndim - 2, 0, order), a.ndim - 1, order, order),)


@documented
def expm(a: Any) -> Node:
    """Compute the exponentials of square matrices.

    a: Node or array of shape ``(..., n, n)``, float or complex.
    returns: The sum of ``A^k / k!``, of the shape and dtype of `a`.
    raises ShapeError: If the matrices are not square.

    Notes
    -----
    By scaling, a Pade approximant, and squaring (Al-Mohy and Higham 2009). The gradient is the
    exponential of a matrix of twice the order (Mathias 1996, SIAM J. Matrix Anal. Appl. 17, 610),
    exact for any matrix, diagonalizable or not.

    >>> mg.linalg.expm([[0.0, 1.0], [0.0, 0.0]]).eval()
    array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    return EXPM(numbers(a))


def _expm_reference(a: Any) -> Any:
    from scipy.linalg import expm as exponential

    return exponential(a) if a.size else a


_JORDAN = np.array([[0.5, 1.0, 0.0], [0.0, 0.5, 1.0], [0.0, 0.0, 0.5]])

EXPM = Op(
    name="expm",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=square_type,
    evaluate=_expm,
    gradient=_expm_gradient,
    function=expm,
    tests=Tests(
        samples=lambda: [
            Sample((0.5 * SQUARE,)),
            Sample((0.5 * SQUARES,)),
            Sample((0.5 * STRIDED,)),
            Sample((_JORDAN,)),
            Sample((np.zeros((2, 3, 3)),)),
            Sample((ONE,)),
            Sample((EMPTY,)),
        ],
        bad_samples=bad_squares("expm"),
        reference=_expm_reference,
    ),
    numerics="reassoc",
    flops=lambda a: 20 * a.size * a.shape[-1],
    precision=Precision("keep"),
)


# Sylvester's equation.


def _sylvester_type(call: Call, a: Type, b: Type, c: Type) -> Type:
    dtype = one_dtype(call, a, b, c)
    first, rows = squares(call, a)
    second, columns = squares(call, b)
    if c.ndim < 2:
        raise call.shape_error(f"a right-hand side of {c.ndim} axes", need="matrices")
    rows = call.unify(rows, c.shape[-2], "the order of a and the rows of c")
    columns = call.unify(columns, c.shape[-1], "the order of b and the columns of c")
    batch = shared_batch(call, shared_batch(call, first, second), c.shape[:-2])
    return Type(dtype, (*batch, rows, columns))


def _sylvester(xp: Any, a: Any, b: Any, c: Any) -> Any:
    if xp is not np:
        raise NotImplementedError("Schur's form is the host's")
    from scipy.linalg import get_lapack_funcs, schur

    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2])
    result = np.empty((*batch, *c.shape[-2:]), c.dtype)
    if not result.size:
        return result
    (solve,) = get_lapack_funcs(("trsyl",), (a, b, c))
    form = "complex" if a.dtype.kind == "c" else "real"
    left, right, side = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b, c))
    for index in np.ndindex(*batch):
        for matrices in (left, right):
            if not np.isfinite(matrices[index]).all():
                raise failed("solve_sylvester", "", "", "", matrices, index)
        # A = U R U^H and B = V S V^H make it R Y + Y S = U^H C V, with triangles.
        triangle, basis = schur(left[index], output=form, check_finite=False)
        other, right_basis = schur(right[index], output=form, check_finite=False)
        middle = basis.conj().T @ side[index] @ right_basis
        solution, scale, info = solve(triangle, other, middle)
        if info > 0:
            raise failed(
                "solve_sylvester",
                "of the first operand and one of the second have eigenvalues whose sum is zero",
                "spectra of A and -B that are apart",
                "add a multiple of the identity to one of them",
                left,
                index,
            )
        result[index] = basis @ (solution / scale) @ right_basis.conj().T
    return result


def _sylvester_gradient(node: Node, cotangent: Node) -> tuple[Node, Node, Node]:
    a, b, _ = node.inputs
    by_c = SYLVESTER(transposed(a), transposed(b), cotangent)
    transpose = transposed(node)
    return negative(matmul(by_c, transpose)), negative(matmul(transpose, by_c)), by_c


@documented
def solve_sylvester(a: Any, b: Any, c: Any) -> Node:
    """Solve Sylvester's equation ``A X + X B = C``.

    a: Node or array of shape ``(..., m, m)``, float or complex.
    b: Of shape ``(..., n, n)``.
    c: Of shape ``(..., m, n)``. The batch axes of all operands broadcast.
    returns: ``X``, of shape ``(..., m, n)``.
    raises ShapeError: If the extents do not fit.
    raises LinAlgError: At run time, if an eigenvalue of A and one of B add up to zero: there is no
        unique solution.

    Notes
    -----
    Bartels and Stewart's method (1972): with Schur's forms of both matrices, LAPACK's trsyl.

    >>> A, B = [[1.0, 0.0], [0.0, 2.0]], [[3.0]]
    >>> mg.linalg.solve_sylvester(A, B, [[4.0], [10.0]]).eval()
    array([[1.],
           [2.]], dtype=float32)
    """
    return SYLVESTER(*inexact_operands(a, b, c))


def _sylvester_reference(a: Any, b: Any, c: Any) -> Any:
    m, n = c.shape[-2:]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2])
    left, right, side = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b, c))
    result = np.empty(side.shape, side.dtype)
    for index in np.ndindex(*batch):
        system = np.kron(left[index], np.eye(n)) + np.kron(np.eye(m), right[index].T)
        result[index] = np.linalg.solve(system, side[index].reshape(-1)).reshape(m, n)
    return result


SYLVESTER = Op(
    name="solve_sylvester",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=_sylvester_type,
    evaluate=_sylvester,
    gradient=_sylvester_gradient,
    function=solve_sylvester,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARE, SQUARE[:2, :2], COLUMNS)),
            Sample((SQUARES, DEFINITES[:1, :2, :2], COLUMNS)),
            Sample((EMPTY, SQUARE, np.zeros((0, 3)))),
        ],
        bad_samples=lambda: [
            BadSample(
                (TALL, SQUARE, TALL),
                ShapeError,
                "solve_sylvester: matrices of 4 rows and 3 columns",
            ),
            BadSample(
                (SQUARE, SQUARE, COLUMNS),
                ShapeError,
                "solve_sylvester: the order of b and the columns of c differ: 3 and 2",
            ),
        ],
        reference=_sylvester_reference,
    ),
    numerics="reassoc",
    flops=lambda a, b, c: 25 * (a.size * a.shape[-1] + b.size * b.shape[-1]),
    precision=Precision("keep"),
)


# Square root.


def _sqrtm(xp: Any, a: Any) -> Any:
    if xp is not np:
        raise NotImplementedError("Schur's form is the host's")
    result = np.empty(a.shape, a.dtype)
    if a.size:
        for index in np.ndindex(*a.shape[:-2]):
            result[index] = _root(a, index)
    return result


def _root(a: Any, index: tuple[int, ...]) -> Any:
    from scipy.linalg import sqrtm as root

    matrix = a[index]
    if not np.isfinite(matrix).all():
        raise failed("sqrtm", "", "", "", a, index)
    if np.array_equal(matrix, matrix.conj().T):
        values, vectors = np.linalg.eigh(matrix)
        # Eigenvalues of the size of rounding count as zero.
        noise = values.size * float(finfo(a.dtype).eps) * np.abs(values).max()
        values = np.where(np.abs(values) <= noise, 0, values)
        if a.dtype.kind == "c":
            values = values.astype(a.dtype)
        if a.dtype.kind == "c" or values.min() >= 0:
            return (vectors * np.sqrt(values)) @ vectors.conj().T
        result = None
    else:
        result = root(matrix)
    if result is None or (result.dtype.kind == "c" and a.dtype.kind != "c"):
        raise failed(
            "sqrtm",
            "has a negative eigenvalue, so that its root is complex",
            "eigenvalues that are positive, or not real",
            "mg.cast(x, 'complex128')",
            a,
            index,
        )
    return result


def _sqrtm_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    # X X = A: X dX + dX X = dA.
    transpose = transposed(node)
    return (SYLVESTER(transpose, transpose, cotangent),)


@documented
def sqrtm(a: Any) -> Node:
    """Compute the principal square roots of square matrices.

    a: Node or array of shape ``(..., n, n)``, float or complex; Hermitian or not. A real one must
        not have negative eigenvalues.
    returns: ``X`` with ``X X = A``, its eigenvalues in the right half plane; of the shape and dtype
        of `a`.
    raises ShapeError: If the matrices are not square.
    raises LinAlgError: At run time, if a real matrix has a negative eigenvalue; from the gradient,
        if a matrix is singular, where the derivative is infinite.

    Notes
    -----
    Hermitian matrices by their eigenvalues, others by Schur's form (Bjorck and Hammarling 1983).
    The gradient solves Sylvester's equation: equal eigenvalues make no difference to it.

    >>> mg.linalg.sqrtm([[5.0, 4.0], [4.0, 5.0]]).eval().round(4)
    array([[2., 1.],
           [1., 2.]], dtype=float32)
    """
    return SQRTM(numbers(a))


def _sqrtm_reference(a: Any) -> Any:
    from scipy.linalg import sqrtm as root

    result = np.empty(a.shape, a.dtype)
    for index in np.ndindex(*a.shape[:-2]):
        result[index] = root(a[index]) if a.size else a[index]
    return result


SQRTM = Op(
    name="sqrtm",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=square_type,
    evaluate=_sqrtm,
    gradient=_sqrtm_gradient,
    function=sqrtm,
    tests=Tests(
        samples=lambda: [
            Sample((POSITIVE_DEFINITE,)),
            Sample((SQUARES[:2],)),
            Sample((2.0 * np.eye(3),)),
            Sample((ONE,)),
            Sample((EMPTY,)),
        ],
        bad_samples=bad_squares("sqrtm"),
        reference=_sqrtm_reference,
    ),
    numerics="reassoc",
    flops=lambda a: 28 * a.size * a.shape[-1],
    precision=Precision("keep"),
)


# Powers.


@documented
def matrix_power(a: Any, n: int) -> Node:
    """Multiply square matrices with themselves.

    a: Node or array of shape ``(..., m, m)``, of a float, complex or integer dtype.
    n: The exponent, an int. A negative one inverts first, 0 gives the identity.
    returns: Of the shape and dtype of `a` (ints to a negative power become floats): log2(n)
        squarings, and as many products as the exponent has further binary ones.
    raises ShapeError: If the matrices are not square.
    raises DTypeError: If the exponent is not an int.
    raises LinAlgError: At run time, if a matrix is singular and the exponent negative.

    >>> mg.linalg.matrix_power(mg.constant([[1, 1], [1, 0]]), 10).eval()
    array([[89, 55],
           [55, 34]], dtype=int32)
    """
    node = as_node(a)
    call = Call(MATRIX_POWER, (node,))
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool):
        raise call.dtype_error(f"n={n!r} is not an int", hint="mg.linalg.sqrtm, for halves")
    batch, order = squares(call, node.type)
    call.check_dtypes()
    if n == 0:
        return broadcast_to(identity(order, node.dtype), (*batch, order, order))
    base = node if n > 0 else INV(numbers(node))
    left = abs(int(n))
    result: Node | None = None
    while left:
        if left & 1:
            result = base if result is None else matmul(result, base)
        left >>= 1
        if left:
            base = matmul(base, base)
    assert result is not None
    return result


MATRIX_POWER = Composite(
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    function=matrix_power,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARES,), {"n": 5}),
            Sample((SQUARE,), {"n": 1}),
            Sample((SQUARE,), {"n": -3}),
            Sample((SQUARES,), {"n": 0}, gradient=(), reason="the identity is constant"),
            Sample((np.array([[1, 1], [1, 0]]),), {"n": 12}),
            Sample((EMPTY,), {"n": 3}),
        ],
        bad_samples=lambda: [
            BadSample(
                (TALL,), ShapeError, "matrix_power: matrices of 4 rows and 3 columns", {"n": 2}
            ),
            BadSample((SQUARE,), DTypeError, "matrix_power: n=0.5 is not an int", {"n": 0.5}),
        ],
        reference=np.linalg.matrix_power,
    ),
    numerics="reassoc",
)

RECORDS = (EXPM, SYLVESTER, SQRTM, MATRIX_POWER)
