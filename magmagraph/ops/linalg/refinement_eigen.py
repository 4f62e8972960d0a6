"""Eigenvalues and eigenvectors found in low precision and refined to high.

The step is that of T. Ogita and K. Aishima, Iterative refinement for symmetric eigenvalue
decomposition (2018), algorithm 1: eigenvectors X become X + X E, where E makes them orthogonal and
their residual small, to second order. Written with the residual W = A X - X D, which is small, the
products that E is made of are small too, so that their leading digits are enough: XᴴW and X E are
formed in low precision, and only A X and XᴴX in high.

Eigenvalues too close to be told apart by their residuals are rotated among themselves first
(Rayleigh and Ritz), with a small decomposition in full precision.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .refinement import LEAST_GAIN, LOWER, Array, magnitude, power_of_two, scaled

LARGEST_CLUSTER = 0.5  # of all eigenvalues; with more, full precision is no more work


class RefinedEigen(NamedTuple):
    """Eigenvalues in ascending order, eigenvectors, and what is known of them: see `Refined`."""

    values: Array
    vectors: Array
    error: float
    steps: int
    converged: bool


def eigen_refined(A: Array, tolerance: float, most: int) -> RefinedEigen:
    """Decompose a symmetric matrix in low precision and refine, or in full precision.

    The error is the larger of ``|A X - X D| / |A|`` and ``|XᴴX - I| / sqrt(n)`` in Frobenius' norm.

    Raises
    ------
    numpy.linalg.LinAlgError
        Where the decomposition in full precision does not converge.
    """
    with np.errstate(all="ignore"):
        scale = power_of_two(magnitude(A))
        decomposition = _refined(_Iteration(scaled(A, scale)), tolerance, most)
        return decomposition._replace(values=decomposition.values / scale)


def _refined(iteration: _Iteration, tolerance: float, most: int) -> RefinedEigen:
    dtype = iteration.dtype
    steps = 0
    if iteration.start(LOWER[dtype]):
        decomposition = iteration.run(tolerance, most, LARGEST_CLUSTER)
        if decomposition.converged:
            return decomposition
        steps = decomposition.steps
    if not iteration.start(dtype):
        raise np.linalg.LinAlgError
    return iteration.run(tolerance, most, 1.0)._replace(steps=-1 - steps)


class _Iteration:
    """A matrix, approximate eigenvectors X and eigenvalues d, and their residuals."""

    X: Array
    d: Array
    _image: Array  # A X
    _gram: Array  # XᴴX
    _residual: Array  # A X - X D

    def __init__(self, A: Array) -> None:
        self._matrix = A
        self._norm = float(np.linalg.norm(A))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The high precision."""
        dtype: np.dtype[Any] = self._matrix.dtype
        return dtype

    def start(self, dtype: np.dtype[Any]) -> bool:
        """Decompose in a precision; False where that fails."""
        try:
            self.X = np.linalg.eigh(self._matrix.astype(dtype))[1].astype(self.dtype)
        except np.linalg.LinAlgError:
            return False
        return bool(np.isfinite(self.X).all())

    def run(self, tolerance: float, most: int, largest: float) -> RefinedEigen:
        """Refine until the error is small, or stops falling; return the best on the way.

        It ends as well where more than the share `largest` of the eigenvalues lies too close.
        """
        best = current = self._measured(tolerance)
        for step in range(1, most + 1):
            if best.converged or not self._improve(largest):
                return best
            before, current = current.error, self._measured(tolerance)
            if current.error < best.error:
                best = current._replace(steps=step)
            if not current.error <= LEAST_GAIN * before:
                return best._replace(steps=step)
        return best

    def _measured(self, tolerance: float) -> RefinedEigen:
        """Return values and vectors in order, with their error."""
        X = self.X
        n = len(X)
        self._image = self._matrix @ X
        self._gram = _adjoint(X) @ X  # for real X NumPy computes one triangle and mirrors it
        self._find_values()
        error = 0.0
        if n:
            apart = float(np.linalg.norm(self._gram - np.eye(n))) / math.sqrt(n)
            left = float(np.linalg.norm(self._residual))
            error = max(apart, left / self._norm if left else 0.0)
        order = np.argsort(self.d, kind="stable")
        return RefinedEigen(self.d[order], X[:, order], error, 0, error <= tolerance)

    def _find_values(self) -> None:
        """Set Rayleigh's quotients and the residual that they leave."""
        X = self.X
        squares = np.einsum("ij,ij->j", X.conj(), self._image).real
        self.d = squares / np.diagonal(self._gram).real
        self._residual = self._image - X * self.d

    def _improve(self, largest: float) -> bool:
        """Replace X by X + X E; False where too many eigenvalues lie too close."""
        # What a column's residual moves an eigenvalue by, with room for those of its neighbours.
        left = np.linalg.norm(self._residual, axis=0).max()
        apart = np.linalg.norm(self._gram - np.eye(len(self.X)), axis=0).max()
        near = 8.0 * float(left + np.abs(self.d).max() * apart)
        clusters = _clusters(self.d, near)
        if max(map(len, clusters), default=1) > largest * len(self.d):
            return False
        for cluster in clusters:
            self._rotate(cluster)
        if clusters:
            self._find_values()
        low = LOWER[self.X.dtype]
        X = self.X.astype(low)
        # The symmetric part of E restores orthogonality and depends on no gap; the other turns.
        E = _product(_adjoint(X), self._residual, low)
        E = E + _adjoint(E)
        gaps = self.d - self.d[:, None]
        far = np.abs(gaps) > near
        E = np.divide(E, gaps, out=np.zeros_like(E), where=far) - self._gram
        np.einsum("ii->i", E)[:] += 1.0
        self.X = self.X + _product(X, 0.5 * E, low)
        return True

    def _rotate(self, cluster: Array) -> None:
        """Turn some eigenvectors among themselves to those of A on the space that they span."""
        from scipy.linalg import eigh

        X, image = self.X[:, cluster], self._image[:, cluster]
        block = X.conj().T @ image
        block = 0.5 * (block + block.conj().T)
        V = eigh(block, self._gram[np.ix_(cluster, cluster)])[1]
        self.X[:, cluster], self._image[:, cluster] = X @ V, image @ V
        self._gram[:, cluster] = self._gram[:, cluster] @ V
        self._gram[cluster] = V.conj().T @ self._gram[cluster]


def _adjoint(X: Array) -> Array:
    """Return the conjugate transpose, of real matrices as a view."""
    return X.conj().T if X.dtype.kind == "c" else X.T


def _clusters(values: Array, near: float) -> list[Array]:
    """Return the positions of eigenvalues that lie close together, two or more at a time."""
    order = np.argsort(values)
    ends = np.flatnonzero(np.diff(values[order]) > near) + 1
    return [part for part in np.split(order, ends) if len(part) > 1]


def _product(left: Array, right: Array, dtype: np.dtype[Any]) -> Array:
    """Return a product of which the leading digits count, formed in low precision."""
    scale = power_of_two(magnitude(right))
    product: Array = (left @ scaled(right, scale).astype(dtype)).astype(right.dtype)
    return scaled(product, 1.0 / scale)
