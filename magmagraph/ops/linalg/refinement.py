"""Solving in low precision and refining to high: the iterations, on arrays.

The work that grows with the cube of the size (a factorization, a decomposition) is done in half the
digits, where it takes half the time. Each step of refinement computes a residual in all the digits
and solves for a correction with the factor that is there. Every result comes with its backward
error, and with a count of steps that is negative where the factor was too poor and everything was
done again in full precision, as LAPACK's dsgesv and dsposv count.

Sources: J. H. Wilkinson, Rounding Errors in Algebraic Processes (1963); J. Langou et al.,
Exploiting the performance of 32 bit floating point arithmetic in obtaining 64 bit accuracy (2006);
N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition (2002), chapters 7, 12
and 20; A. Björck, Iterative refinement of linear least squares solutions I (1967).
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

LOWER = {np.dtype(np.float64): np.dtype(np.float32), np.dtype(complex): np.dtype(np.complex64)}
LEAST_GAIN = 0.5  # a step that leaves more of the error than this is too slow: ten digits, 30 steps

Array = np.ndarray[Any, Any]


class Refined(NamedTuple):
    """The result of a refinement.

    value: The solution.
    error: Its backward error.
    steps: Steps of refinement in low precision; ``-1 - steps`` where full precision took over.
    converged: Whether the error is within the tolerance.
    """

    value: Array
    error: float
    steps: int
    converged: bool


class Factor(abc.ABC):
    """A factorization in some precision, with which residuals become corrections."""

    usable = True

    @abc.abstractmethod
    def correct(self, residual: Array) -> Array:
        """Return the correction for a residual, in the residual's precision."""


class System(abc.ABC):
    """Linear equations for the columns of an array: what is solved, and how well."""

    def __init__(self, matrix: Array, right: Array) -> None:
        self.matrix = matrix
        self.right = right

    @abc.abstractmethod
    def factor(self, dtype: np.dtype[Any]) -> Factor:
        """Return a factorization of the matrix in a precision."""

    @abc.abstractmethod
    def residual(self, solution: Array) -> Array:
        """Return the residual of the solution."""

    @abc.abstractmethod
    def error(self, solution: Array, residual: Array) -> float:
        """Return the largest backward error of a column."""


def refined(system: System, tolerance: float, most: int) -> Refined:
    """Solve with a factor in low precision, or in full precision where that does not converge.

    Raises
    ------
    numpy.linalg.LinAlgError
        Where the factor in full precision cannot be used either.
    """
    dtype = system.right.dtype
    if not (system.matrix.size and system.right.size):
        return Refined(system.right, 0.0, 0, True)
    factor = system.factor(LOWER[dtype])
    steps = 0
    if factor.usable:
        solution = _iterate(system, factor, tolerance, most)
        if solution.converged:
            return solution
        steps = solution.steps
    factor = system.factor(dtype)
    if not factor.usable:
        raise np.linalg.LinAlgError
    solution = _iterate(system, factor, tolerance, most)
    return solution._replace(steps=-1 - steps)


def _iterate(system: System, factor: Factor, tolerance: float, most: int) -> Refined:
    """Add corrections until the error is small, or stops falling; return the best of them."""
    solution = factor.correct(system.right)
    residual = system.residual(solution)
    error = system.error(solution, residual)
    best = Refined(solution, error, 0, error <= tolerance)
    for step in range(1, most + 1):
        # Written so that a NaN ends it.
        if best.converged or not error < math.inf:
            return best
        solution = solution + factor.correct(residual)
        residual = system.residual(solution)
        before, error = error, system.error(solution, residual)
        if error < best.error:
            best = Refined(solution, error, step, error <= tolerance)
        if not error <= LEAST_GAIN * before:
            return best._replace(steps=step)
    return best


# Scales. Magnitudes are brought near to 1 first, by powers of two, which do not round: in single
# precision numbers beyond 1e38 do not exist, and squares of ones below 1e-19 vanish.


def power_of_two(largest: float) -> float:
    """Return the power of two that brings a magnitude near to 1; 1 where it is near enough."""
    if not 0.0 < largest < math.inf or abs(math.frexp(largest)[1]) <= 40:
        return 1.0
    return 2.0 ** -max(-1000, min(1000, math.frexp(largest)[1]))


def magnitude(array: Array) -> float:
    """Return the largest absolute value, 0 where there is none."""
    return float(np.max(np.abs(array), initial=0.0))


def scaled(array: Array, scale: float) -> Array:
    """Return an array times a scale; the same one where that is 1."""
    return array if scale == 1.0 else array * scale


def _scales(columns: Array) -> Array:
    """Return a power of two for each column."""
    largest = np.max(np.abs(columns), axis=0, initial=0.0)
    usable = (largest > 0.0) & (largest < math.inf)
    exponents = np.frexp(np.where(usable, largest, 1.0))[1]
    return np.where(usable, np.ldexp(1.0, -np.clip(exponents, -1000, 1000)), 1.0)


def _ratio(above: Array, below: Array) -> float:
    """Return the largest quotient; 0 over 0 is 0: nothing was asked for, and nothing is wrong."""
    if not above.size:
        return 0.0
    with np.errstate(all="ignore"):
        quotients = np.where(above == 0.0, 0.0 * below, above / below)
    return float(np.max(quotients))


def _product(A: Array, x: Array, adjoint: bool = False) -> Array:
    """Return A x, or Aᴴ x, for a packed A and columns x.

    The library is the one of the factorizations. NumPy has another, whose threads would wait on the
    processor while this one's work, and the other way around, at every step.
    """
    from scipy.linalg import get_blas_funcs

    # In a library's order of columns, the array of A holds its transpose.
    if adjoint and A.dtype.kind == "c":
        return _product_with(get_blas_funcs, A, x.conj(), transposed=False).conj()
    return _product_with(get_blas_funcs, A, x, transposed=not adjoint)


def _product_with(library: Callable[..., Any], A: Array, x: Array, transposed: bool) -> Array:
    product: Array
    if x.shape[1] == 1:
        product = library("gemv", (A, x))(1.0, A.T, x[:, 0], trans=int(transposed))[:, None]
    else:
        product = library("gemm", (A, x))(1.0, A.T, np.asfortranarray(x), trans_a=int(transposed))
    return product


def _hermitian_product(A: Array, x: Array) -> Array:
    """Return A x, A being Hermitian and given by its lower triangle."""
    from scipy.linalg import get_blas_funcs

    kind = "he" if A.dtype.kind == "c" else "sy"
    columns = np.asfortranarray(x.conj())
    product: Array
    # The upper triangle of the transposed array is that of the conjugate of A.
    if x.shape[1] == 1:
        product = get_blas_funcs(kind + "mv", (A, x))(1.0, A.T, columns[:, 0])[:, None]
    else:
        product = get_blas_funcs(kind + "mm", (A, x))(1.0, A.T, columns)
    return product.conj()


def _lapack(names: tuple[str, ...], array: Array) -> list[Callable[..., Any]]:
    from scipy.linalg import get_lapack_funcs

    functions: list[Callable[..., Any]] = get_lapack_funcs(names, (array,))
    return functions


def _converted(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return a copy in LAPACK's order and another precision."""
    return array.astype(dtype, order="F", copy=True)


# Square systems.


def solve_refined(A: Array, b: Array, positive: bool, tolerance: float, most: int) -> Refined:
    """Return the solution of A x = b, for a square A and columns b.

    Of a positive definite A only the lower triangle is read.

    Raises
    ------
    numpy.linalg.LinAlgError
        Where A is singular, or not positive definite though it should be.
    """
    with np.errstate(all="ignore"):
        A = np.tril(A) if positive else A
        scale, scales = power_of_two(magnitude(A)), _scales(b)
        A = np.ascontiguousarray(scaled(A, scale))
        solution = refined(Square(A, b * scales, positive), tolerance, most)
        return solution._replace(value=solution.value * (scale / scales))


class Square(System):
    """A x = b with a square A, or with a positive definite one.

    The error is the normwise backward error in the norm of largest row sums (Rigal and Gaches
    1967; Higham, theorem 7.1): the least relative change of A and b after which x is exact.
    """

    def __init__(self, A: Array, b: Array, positive: bool) -> None:
        super().__init__(A, b)
        self._positive = positive
        sizes = np.abs(A)
        sums = np.sum(sizes, axis=1)
        if positive:  # and of the triangle that is not there
            sums += np.sum(sizes, axis=0) - np.diagonal(sizes)
        self._norm = float(np.max(sums, initial=0.0))
        self._right_norms = np.max(np.abs(b), axis=0, initial=0.0)

    def factor(self, dtype: np.dtype[Any]) -> Factor:
        """Return the Cholesky or LU factor."""
        kind = _Cholesky if self._positive else _LU
        return kind(self.matrix, dtype)

    def residual(self, solution: Array) -> Array:
        """Return b - A x."""
        multiply = _hermitian_product if self._positive else _product
        left: Array = self.right - multiply(self.matrix, solution)
        return left

    def error(self, solution: Array, residual: Array) -> float:
        """Return the largest of |b - A x| / (|A| |x| + |b|)."""
        size = np.max(np.abs(solution), axis=0, initial=0.0)
        left = np.max(np.abs(residual), axis=0, initial=0.0)
        return _ratio(left, self._norm * size + self._right_norms)


class _LU(Factor):
    """LU with pivots, of the transpose: a matrix in rows is its transpose in LAPACK's columns."""

    def __init__(self, A: Array, dtype: np.dtype[Any]) -> None:
        self._matrix, self._full = _converted(A.T, dtype), A.dtype
        (getrf, self._getrs) = _lapack(("getrf", "getrs"), self._matrix)
        self._matrix, self._pivots, at = getrf(self._matrix, overwrite_a=True)
        self.usable = at == 0

    def correct(self, residual: Array) -> Array:
        scales = _scales(residual)
        right = np.asfortranarray(residual * scales).astype(self._matrix.dtype)
        correction = self._getrs(self._matrix, self._pivots, right, trans=1, overwrite_b=True)[0]
        return _restored(correction, scales, self._full)


class _Cholesky(Factor):
    """The Cholesky factor of a matrix whose lower triangle is read."""

    def __init__(self, A: Array, dtype: np.dtype[Any]) -> None:
        # As above: what is factored is the conjugate, and its upper triangle is A's lower one.
        self._matrix, self._full = _converted(A.T, dtype), A.dtype
        (potrf, self._potrs) = _lapack(("potrf", "potrs"), self._matrix)
        self._matrix, at = potrf(self._matrix, lower=False, clean=False, overwrite_a=True)
        self.usable = at == 0

    def correct(self, residual: Array) -> Array:
        scales = _scales(residual)
        right = np.asfortranarray(np.conj(residual * scales)).astype(self._matrix.dtype)
        correction = self._potrs(self._matrix, right, lower=False, overwrite_b=True)[0]
        return _restored(np.conj(correction), scales, self._full)


def _restored(correction: Array, scales: Array, dtype: np.dtype[Any]) -> Array:
    """Return a correction in full precision, its columns as large as they were."""
    wide: Array = correction.astype(dtype, order="C")
    wide /= scales
    return wide


# Least squares.


def augmented_refined(A: Array, b: Array, c: Array, tolerance: float, most: int) -> Refined:
    """Return [r; x] with r + A x = b and Aᴴ r = c, for a tall A of full rank.

    Raises
    ------
    numpy.linalg.LinAlgError
        Where the columns of A depend on each other.
    """
    with np.errstate(all="ignore"):
        scale = power_of_two(magnitude(A))
        scales = _scales(np.concatenate([b, scaled(c, scale)]))
        A = np.ascontiguousarray(scaled(A, scale))
        system = Augmented(A, b * scales, c * (scale * scales))
        solution = refined(system, tolerance, most)
        value = solution.value / scales
        value[len(b) :] *= scale
        return solution._replace(value=value)


class Augmented(System):
    """The system [I A; Aᴴ 0] [r; x] = [b; c] of a tall A of full rank.

    With ``c = 0``, x minimizes |b - A x| and r is what remains; with ``b = 0``, r is the shortest
    solution of Aᴴ r = c. The error is the backward error of both block rows, which bounds that of
    the least squares problem itself (Higham, lemma 20.6), or that of A x = b alone where it is
    less: of a residual that is all rounding nothing can be asked.
    """

    def __init__(self, A: Array, b: Array, c: Array) -> None:
        super().__init__(A, np.concatenate([b, c]))
        self._rows = A.shape[0]
        self._norm = float(np.linalg.norm(A))
        self._upper, self._lower = (np.linalg.norm(part, axis=0) for part in (b, c))

    def factor(self, dtype: np.dtype[Any]) -> Factor:
        """Return the QR factor of A."""
        return _QR(self.matrix, dtype)

    def residual(self, solution: Array) -> Array:
        """Return [b - r - A x; c - Aᴴ r]."""
        r, x = solution[: self._rows], solution[self._rows :]
        lower = _product(self.matrix, r, adjoint=True)
        both: Array = self.right - np.concatenate([r + _product(self.matrix, x), lower])
        return both

    def error(self, solution: Array, residual: Array) -> float:
        """Return the largest relative size of the residual's two parts."""
        rows, norm = self._rows, np.linalg.norm
        r, x = (norm(part, axis=0) for part in (solution[:rows], solution[rows:]))
        f, g = (norm(part, axis=0) for part in (residual[:rows], residual[rows:]))
        both = max(
            _ratio(f, self._upper + r + self._norm * x), _ratio(g, self._lower + self._norm * r)
        )
        if self._lower.any():
            return both
        plain = norm(residual[:rows] + solution[:rows], axis=0)  # b - A x
        return min(both, _ratio(plain, self._upper + self._norm * x))


class _QR(Factor):
    """A = Q R by Householder's reflections."""

    def __init__(self, A: Array, dtype: np.dtype[Any]) -> None:
        m, n = A.shape
        self._columns, self._full = n, A.dtype
        matrix = _converted(A, dtype)
        geqrf, self._trtrs = _lapack(("geqrf", "trtrs"), matrix)
        self._unitary = matrix.dtype.kind == "c"
        (self._reflect,) = _lapack(("unmqr" if self._unitary else "ormqr",), matrix)
        work = geqrf(matrix, lwork=-1)[2]
        self._factor, self._tau, _, _ = geqrf(matrix, lwork=_length(work), overwrite_a=True)
        self._triangle = np.asfortranarray(self._factor[:n])
        diagonal = np.abs(np.diagonal(self._triangle))
        least = float(np.min(diagonal))
        # In low precision a poor factor is found out by the iteration itself.
        doubt = float(max(m, n)) if dtype == A.dtype else 1.0
        self.usable = least > doubt * float(np.finfo(dtype).eps * np.max(diagonal))

    def _apply_q(self, columns: Array, adjoint: bool) -> Array:
        flag = "N" if not adjoint else "C" if self._unitary else "T"
        work = self._reflect("L", flag, self._factor, self._tau, columns, -1)[1]
        rotated: Array = self._reflect(
            "L", flag, self._factor, self._tau, columns, _length(work), overwrite_c=True
        )[0]
        return rotated

    def correct(self, residual: Array) -> Array:
        n = self._columns
        m = residual.shape[0] - n
        scales = _scales(residual)
        right = (residual * scales).astype(self._factor.dtype)
        rotated = self._apply_q(np.asfortranarray(right[:m]), adjoint=True)
        h = self._trtrs(self._triangle, right[m:], trans=2 if self._unitary else 1)[0]
        x = self._trtrs(self._triangle, rotated[:n] - h)[0]
        rotated[:n] = h
        r = self._apply_q(rotated, adjoint=False)
        return _restored(np.concatenate([r, x]), scales, self._full)


def _length(work: Array) -> int:
    """Return the length of working memory that a LAPACK function asked for."""
    return max(1, int(work.flat[0].real))
