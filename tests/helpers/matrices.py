"""Matrices of chosen eigenvalues and singular values, for the tests of linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np

import magmagraph as mg

Rng = np.random.Generator


def orthogonal(rng: Rng, n: int, *, complex_: bool = False) -> np.ndarray:
    """Return a random orthogonal or unitary matrix."""
    a = rng.normal(size=(n, n))
    return np.asarray(np.linalg.qr(a + 1j * rng.normal(size=(n, n)) if complex_ else a)[0])


def hermitian(rng: Rng, eigenvalues: Any, *, complex_: bool = False) -> np.ndarray:
    """Return a random Hermitian matrix with given eigenvalues."""
    basis = orthogonal(rng, len(eigenvalues), complex_=complex_)
    return np.asarray((basis * np.asarray(eigenvalues)) @ basis.conj().T)


def with_values(rng: Rng, rows: int, columns: int, singular: Any) -> np.ndarray:
    """Return a random matrix with given singular values."""
    left, right = orthogonal(rng, rows), orthogonal(rng, columns)
    return np.asarray((left[:, : len(singular)] * singular) @ right[: len(singular)])


def adjoint(x: mg.Node) -> mg.Node:
    return mg.conj(mg.swapaxes(x, -1, -2))


def real_sum(x: mg.Node, weights: np.ndarray) -> mg.Node:
    return mg.sum(mg.real(x * weights))
