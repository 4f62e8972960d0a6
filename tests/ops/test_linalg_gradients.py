"""Gradients of linear algebra where values repeat, or a matrix is singular or nearly so."""

from __future__ import annotations

import numpy as np
import pytest
from interpreted import assert_close, value, values
from matrices import Rng, adjoint, hermitian, orthogonal, real_sum, with_values

import magmagraph as mg
from magmagraph.errors import GradientError

# Gradients at repeated and nearly repeated values.

GAPS = (0.0, 1e-15, 1e-13, 1e-10, 1e-7, 1e-4)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("gap", GAPS)
def test_eigh_projection_onto_close_eigenvalues(gap: float, complex_: bool, rng: Rng) -> None:
    """The projection onto the space of two close eigenvalues is smooth, whatever their gap."""
    a = hermitian(rng, [1.0, 1.0 + gap, 3.0, 4.5], complex_=complex_)
    weights = rng.normal(size=(4, 4))

    def projection(x: mg.Node) -> mg.Node:
        V = mg.linalg.eigh(x).eigenvectors[:, :2]
        return real_sum(V @ adjoint(V), weights)

    mg.check_gradients(projection, (a,))


@pytest.mark.parametrize("gap", GAPS)
def test_eigh_sums_over_close_eigenvalues(gap: float, rng: Rng) -> None:
    a = hermitian(rng, [1.0, 1.0 + gap, 3.0])

    def total(x: mg.Node) -> mg.Node:
        w = mg.linalg.eigvalsh(x)
        return w[0] + w[1] + 2.0 * w[2] ** 2

    mg.check_gradients(total, (a,))


@pytest.mark.parametrize("gap", [1e-6, 1e-4])
def test_eigh_makes_matrix_functions_where_eigenvalues_are_close(gap: float, rng: Rng) -> None:
    """The quotient by a small gap loses its digits, and no more: eps / gap of the value."""
    weights = rng.normal(size=(3, 3))
    a = hermitian(rng, [1.0, 1.0 + gap, 3.0])
    x = mg.input("x", (3, 3), "float64")
    w, V = mg.linalg.eigh(x)
    gradient = value(mg.grad(mg.sum((V * mg.exp(w)) @ V.T * weights), x), {x: a})
    exact = value(mg.grad(mg.sum(mg.linalg.expm(x) * weights), x), {x: a})
    folded = np.tril(exact + exact.T, -1) + np.diag(np.diag(exact))
    assert np.max(np.abs(gradient - folded)) < 1e3 * np.finfo(float).eps / gap * np.max(
        np.abs(folded)
    )


@pytest.mark.parametrize("gap", [1e-9, 1e-6, 0.5])
def test_forward_mode_of_eigh_is_that_of_the_gradient(gap: float, rng: Rng) -> None:
    """Forward mode puts zeros for the cotangents: nothing there may be taken for rounding."""
    a, direction = hermitian(rng, [1.0, 1.0 + gap, 3.0]), rng.normal(size=(3, 3))
    direction = direction + direction.T
    x = mg.input("x", (3, 3), "float64")
    w, V = mg.linalg.eigh(x)
    tangent = value(mg.jvp((V * mg.exp(w)) @ V.T, x, mg.constant(direction)), {x: a})
    exact = value(mg.jvp(mg.linalg.expm(x), x, mg.constant(direction)), {x: a})
    assert np.max(np.abs(tangent - exact)) < 1e3 * np.finfo(float).eps / gap * np.max(np.abs(exact))


def test_eigh_at_the_identity_is_finite_and_lacks_what_it_says(rng: Rng) -> None:
    """A function made as V f(w) V^H lacks f' between equal eigenvalues; expm has it."""
    weights = rng.normal(size=(3, 3))
    x = mg.input("x", (3, 3), "float64")
    w, V = mg.linalg.eigh(x)
    gradient = value(mg.grad(mg.sum((V * mg.exp(w)) @ V.T * weights), x), {x: np.eye(3)})
    exact = value(mg.grad(mg.sum(mg.linalg.expm(x) * weights), x), {x: np.eye(3)})
    assert_close(gradient, np.e * np.diag(np.diag(weights)))
    assert_close(exact, np.e * weights)


@pytest.mark.parametrize("first", [0, 2])
def test_eigh_subset_gradient_knows_the_other_vectors(first: int, rng: Rng) -> None:
    a, weights = hermitian(rng, [0.5, 1.0, 2.0, 3.5, 5.0]), rng.normal(size=(5, 5))

    def subset(x: mg.Node) -> mg.Node:
        w, V = mg.linalg.eigh(x, subset_by_index=(first, first + 1))
        return mg.sum((V * w) @ V.T * weights)

    mg.check_gradients(subset, (a,))
    w, V = values(list(mg.linalg.eigh(a, subset_by_index=(first, first + 1))))
    assert_close(w, np.linalg.eigvalsh(a)[first : first + 2], scale=5.0)
    assert_close(a @ V, V * w, scale=5.0)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 5)])
def test_svd_polar_factor_at_close_singular_values(
    gap: float, shape: tuple[int, int], rng: Rng
) -> None:
    """U @ Vh is smooth where singular values meet: its derivative has their sums below it."""
    a = with_values(rng, *shape, np.array([2.0 + gap, 2.0, 0.7]))
    weights = rng.normal(size=shape)

    def polar(x: mg.Node) -> mg.Node:
        U, _, Vh = mg.linalg.svd(x, full_matrices=False)
        return mg.sum(U @ Vh * weights)

    mg.check_gradients(polar, (a,))


@pytest.mark.parametrize("smallest", [0.0, 1e-12, 1e-3])
def test_svd_truncation_of_nearly_singular_matrices(smallest: float, rng: Rng) -> None:
    """The best approximation of rank 2 is smooth while the third value lies below the second."""
    a, weights = with_values(rng, 4, 3, np.array([2.0, 1.0, smallest])), rng.normal(size=(4, 3))

    def truncated(x: mg.Node) -> mg.Node:
        U, S, Vh = mg.linalg.svd(x, full_matrices=False, k=2)
        return mg.sum((U * S) @ Vh * weights)

    mg.check_gradients(truncated, (a,))


def test_svdvals_at_equal_singular_values(rng: Rng) -> None:
    """A sum over equal values has its gradient; the second derivative is finite."""
    a = 2.0 * orthogonal(rng, 3)
    mg.check_gradients(lambda x: mg.sum(mg.linalg.svdvals(x) ** 2), (a,))
    x = mg.input("x", (3, 3), "float64")
    first = mg.grad(mg.sum(mg.linalg.svdvals(x) ** 2), x)
    second = value(mg.grad(mg.sum(first * rng.normal(size=(3, 3))), x), {x: a})
    assert np.isfinite(second).all()


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 5)])
def test_complex_svd_without_the_phase(shape: tuple[int, int], rng: Rng) -> None:
    a = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    weights = rng.normal(size=shape) + 1j * rng.normal(size=shape)

    def product(x: mg.Node) -> mg.Node:
        U, S, Vh = mg.linalg.svd(x, full_matrices=False)
        return real_sum((U * mg.exp(-S)) @ Vh, weights)

    def projection(x: mg.Node) -> mg.Node:
        U, _, Vh = mg.linalg.svd(x, full_matrices=False, k=2)
        left, right = weights[:, :1], weights[:1]
        return real_sum(U @ adjoint(U), left @ left.T) + real_sum(
            adjoint(Vh) @ Vh, right.T @ right
        )

    mg.check_gradients(product, (a,))
    mg.check_gradients(projection, (a,))


def test_complex_eigh_without_the_phase(rng: Rng) -> None:
    a = hermitian(rng, [0.5, 1.2, 3.0, 3.8], complex_=True)
    weights = rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4))

    def function(x: mg.Node) -> mg.Node:
        w, V = mg.linalg.eigh(x, "U")
        return real_sum((V * mg.sqrt(w)) @ adjoint(V), weights)

    mg.check_gradients(function, (a,))


def test_only_determined_vectors_have_gradients(rng: Rng) -> None:
    x = mg.input("x", (4, 3), "float64")
    U, S, Vh = mg.linalg.svd(x)
    mg.check_gradients(mg.sum(S) + mg.sum(Vh**4), {x: rng.normal(size=(4, 3))})
    with pytest.raises(GradientError, match="determine only 3 vectors of the full U") as caught:
        mg.grad(mg.sum(U), x)
    assert "try: full_matrices=False" in str(caught.value)
    Q, R = mg.linalg.qr(x, mode="complete")
    mg.check_gradients(R, {x: rng.normal(size=(4, 3))})
    with pytest.raises(GradientError, match="determine only 3 columns of the complete Q"):
        mg.grad(mg.sum(Q), x)
    open_ = mg.input("x", ("m", "n"), "float64")
    with pytest.raises(GradientError, match="it is not known which are more"):
        mg.grad(mg.sum(mg.linalg.qr(open_).R), open_)
    with pytest.raises(GradientError, match="of which it is not known which are more"):
        mg.grad(mg.sum(mg.linalg.lu_factor(open_).lu), open_)


# Singular and nearly singular matrices.


@pytest.mark.parametrize("size", [1e-14, 1e-8, 1e-5, 1e-2])
def test_det_near_singular_matrices(size: float, rng: Rng) -> None:
    """The cofactors keep their digits as the determinant loses its own."""
    a = with_values(rng, 4, 4, np.array([2.0, 1.0, 0.5, size]))
    mg.check_gradients(mg.linalg.det, (a,))
    x = mg.input("x", (4, 4), "float64")
    gradient = value(mg.grad(mg.linalg.det(x), x), {x: a})
    minors = np.empty((4, 4))
    for i, j in np.ndindex(4, 4):
        rest = np.delete(np.delete(a, i, 0), j, 1)
        minors[i, j] = (-1) ** (i + j) * np.linalg.det(rest)
    assert_close(gradient, minors)


@pytest.mark.parametrize("rank", range(5))
@pytest.mark.parametrize("complex_", [False, True])
def test_det_of_any_rank(rank: int, complex_: bool, rng: Rng) -> None:
    left, right = rng.normal(size=(4, rank)), rng.normal(size=(rank, 4))
    a = left @ right if not complex_ else (left + 0.5j * left[::-1]) @ (right - 1j * right**2)
    direction = rng.normal(size=(4, 4))

    def slope(x: mg.Node) -> mg.Node:
        determinant = mg.linalg.det(x)
        loss = mg.real(determinant) + 0.5 * mg.imag(determinant)
        return mg.sum(mg.real(mg.grad(loss, x)) * direction)

    mg.check_gradients(lambda x: mg.real(mg.linalg.det(x)), (a,))
    mg.check_gradients(slope, (a,))


def test_det_gradient_of_a_mixed_batch(rng: Rng) -> None:
    """Each matrix of a batch takes its own way: by the inverse, or by singular values."""
    batch = np.stack(
        [
            rng.normal(size=(3, 3)),
            np.diag([1.0, 2.0, 0.0]),
            np.zeros((3, 3)),
            with_values(rng, 3, 3, np.array([1.0, 0.5, 1e-9])),
        ]
    ).reshape(2, 2, 3, 3)
    mg.check_gradients(mg.linalg.det, (batch,))


def test_third_derivative_of_det(rng: Rng) -> None:
    u, v = rng.normal(size=(2, 3, 3))

    def second(x: mg.Node) -> mg.Node:
        first = mg.sum(mg.grad(mg.linalg.det(x), x) * u)
        return mg.sum(mg.grad(first, x) * v)

    mg.check_gradients(second, (rng.normal(size=(3, 3)),))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 5)])
def test_pinv_and_lstsq_where_the_rank_stays(rank: int, shape: tuple[int, int], rng: Rng) -> None:
    left, right = rng.normal(size=(shape[0], rank)), rng.normal(size=(rank, shape[1]))
    weights, side = rng.normal(size=shape[::-1]), rng.normal(size=(shape[0], 2))

    def inverse(x: mg.Node, y: mg.Node) -> mg.Node:
        return mg.sum(mg.linalg.pinv(x @ y) * weights)

    def solution(x: mg.Node, y: mg.Node, b: mg.Node) -> mg.Node:
        solved = mg.linalg.lstsq(x @ y, b, rcond=1e-9)
        return mg.sum(solved.x**2) + mg.sum(solved.residuals) + mg.sum(mg.sin(solved.s[:rank]))

    mg.check_gradients(inverse, (left, right))
    mg.check_gradients(solution, (left, right, side))
    a = left @ right
    solved = values(list(mg.linalg.lstsq(a, side, rcond=1e-9)))
    expected = np.linalg.lstsq(a, side, rcond=1e-9)
    assert_close(solved[0], expected[0], scale=10.0)
    assert solved[2] == rank == expected[2]
    assert_close(solved[3], expected[3], scale=10.0)
    assert_close(solved[1], np.sum((side - a @ expected[0]) ** 2, axis=0), scale=10.0)


def test_pinv_at_equal_singular_values(rng: Rng) -> None:
    mg.check_gradients(mg.linalg.pinv, (with_values(rng, 4, 3, np.array([2.0, 2.0, 2.0])),))


def test_cholesky_of_nearly_singular_matrices(rng: Rng) -> None:
    """The gradient of the logarithm of the determinant is the inverse, in each way to get it."""
    a = hermitian(rng, [1.0, 0.3, 1e-7])
    x = mg.input("x", (3, 3), "float64")
    factor = mg.linalg.cholesky(x)
    total = 2.0 * mg.sum(mg.log(mg.linalg.diagonal(factor)))
    gradient = value(mg.grad(total, x), {x: a})
    assert not np.triu(gradient, 1).any(), "only the lower triangle is read"
    inverse = np.linalg.inv(a)
    folded = np.tril(2 * inverse, -1) + np.diag(np.diag(inverse))
    assert np.max(np.abs(gradient - folded)) < 1e-6 * np.max(np.abs(folded))


@pytest.mark.parametrize("a", [np.eye(3), np.diag([1.0, 1.0, 4.0]), 2.0 * np.eye(3)[[1, 2, 0]]])
def test_functions_of_matrices_with_equal_eigenvalues(a: np.ndarray, rng: Rng) -> None:
    weights = rng.normal(size=(3, 3))

    def slope(x: mg.Node) -> mg.Node:
        loss = mg.sum((mg.linalg.sqrtm(x) + mg.linalg.expm(x)) * weights)
        return mg.sum(mg.grad(loss, x) * weights)

    mg.check_gradients(slope, (a,))
