"""Linear algebra beyond its samples: degenerate points, run-time errors, names, random shapes."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from interpreted import assert_close, value, values

import magmagraph as mg
from magmagraph.errors import DTypeError, GradientError, LinAlgError, ShapeError
from magmagraph.graph import topological
from magmagraph.ops.products.contraction import MATMUL

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


# Names and namespaces.

# Functions of numpy.linalg that are missing, with the reason.
MISSING = {
    "LinAlgError": "mg.LinAlgError",
    "test": "not a function of arrays",
    "linalg": "a module",
}


def test_the_names_of_numpy_are_there() -> None:
    names = {name for name in np.linalg.__all__ if name not in MISSING}
    assert names <= set(mg.linalg.__all__)
    assert mg.linalg.solve_triangular is mg.linalg.triangular_solve
    assert mg.linalg.matmul is mg.matmul
    assert mg.linalg.vecdot is mg.vecdot


def test_all_lists_what_is_there() -> None:
    for name in mg.linalg.__all__:
        assert getattr(mg.linalg, name) is not None
    assert mg.linalg.__all__ == sorted(mg.linalg.__all__)
    assert (inspect.getdoc(mg.linalg) or "").endswith(".")


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
    made = value(mg.grad(mg.sum((V * mg.exp(w)) @ V.T * weights), x), {x: a})
    exact = value(mg.grad(mg.sum(mg.linalg.expm(x) * weights), x), {x: a})
    folded = np.tril(exact + exact.T, -1) + np.diag(np.diag(exact))
    assert np.max(np.abs(made - folded)) < 1e3 * np.finfo(float).eps / gap * np.max(np.abs(folded))


@pytest.mark.parametrize("gap", [1e-9, 1e-6, 0.5])
def test_forward_mode_of_eigh_is_that_of_the_gradient(gap: float, rng: Rng) -> None:
    """Forward mode puts zeros for the cotangents: nothing there may be taken for rounding."""
    a, direction = hermitian(rng, [1.0, 1.0 + gap, 3.0]), rng.normal(size=(3, 3))
    direction = direction + direction.T
    x = mg.input("x", (3, 3), "float64")
    w, V = mg.linalg.eigh(x)
    made = value(mg.jvp((V * mg.exp(w)) @ V.T, x, mg.constant(direction)), {x: a})
    exact = value(mg.jvp(mg.linalg.expm(x), x, mg.constant(direction)), {x: a})
    assert np.max(np.abs(made - exact)) < 1e3 * np.finfo(float).eps / gap * np.max(np.abs(exact))


def test_eigh_at_the_identity_is_finite_and_lacks_what_it_says(rng: Rng) -> None:
    """A function made as V f(w) V^H lacks f' between equal eigenvalues; expm has it."""
    weights = rng.normal(size=(3, 3))
    x = mg.input("x", (3, 3), "float64")
    w, V = mg.linalg.eigh(x)
    made = value(mg.grad(mg.sum((V * mg.exp(w)) @ V.T * weights), x), {x: np.eye(3)})
    exact = value(mg.grad(mg.sum(mg.linalg.expm(x) * weights), x), {x: np.eye(3)})
    assert_close(made, np.e * np.diag(np.diag(weights)))
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
    assert "mend: full_matrices=False" in str(caught.value)
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
        found = mg.linalg.det(x)
        loss = mg.real(found) + 0.5 * mg.imag(found)
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
        found = mg.linalg.lstsq(x @ y, b, rcond=1e-9)
        return mg.sum(found.x**2) + mg.sum(found.residuals) + mg.sum(mg.sin(found.s[:rank]))

    mg.check_gradients(inverse, (left, right))
    mg.check_gradients(solution, (left, right, side))
    a = left @ right
    found = values(list(mg.linalg.lstsq(a, side, rcond=1e-9)))
    expected = np.linalg.lstsq(a, side, rcond=1e-9)
    assert_close(found[0], expected[0], scale=10.0)
    assert found[2] == rank == expected[2]
    assert_close(found[3], expected[3], scale=10.0)
    assert_close(found[1], np.sum((side - a @ expected[0]) ** 2, axis=0), scale=10.0)


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


# Wrong use at run time.


def raised(node: mg.Node, feeds: dict[mg.Node, np.ndarray]) -> str:
    """Return the text of the error that a compiled function raises."""
    compiled = mg.function(list(feeds), node)
    with pytest.raises(LinAlgError) as caught:
        compiled(*feeds.values())
    assert isinstance(caught.value, np.linalg.LinAlgError)
    assert isinstance(caught.value, mg.MagmagraphError)
    return str(caught.value)


SINGULAR_BATCH = np.stack([np.eye(2)] * 6).reshape(2, 3, 2, 2).copy()
SINGULAR_BATCH[1, 2] = [[1.0, 2.0], [2.0, 4.0]]
NEGATIVE_BATCH = np.stack([np.eye(2)] * 6).reshape(2, 3, 2, 2) * np.array([1, 1, 1, 1, -1, 1])[
    :, None, None
].reshape(2, 3, 1, 1)


@pytest.mark.parametrize(
    ("function", "batch", "text"),
    [
        (mg.linalg.inv, SINGULAR_BATCH, "inv: matrix [1, 2] of the batch (2, 3) is singular"),
        (
            lambda x: mg.linalg.solve(x, np.ones(2)),
            SINGULAR_BATCH,
            "solve: matrix [1, 2] of the batch (2, 3) is singular",
        ),
        (
            lambda x: mg.linalg.triangular_solve(x, np.ones(2)),
            SINGULAR_BATCH - np.diag([0.0, 1.0]),
            "triangular_solve: matrix [0, 0] of the batch (2, 3) is singular: its diagonal is "
            "zero at 1",
        ),
        (
            mg.linalg.cholesky,
            NEGATIVE_BATCH,
            "cholesky: matrix [1, 1] of the batch (2, 3) is not positive definite",
        ),
        (
            mg.linalg.sqrtm,
            NEGATIVE_BATCH,
            "sqrtm: matrix [1, 1] of the batch (2, 3) has a negative eigenvalue, so that its root "
            "is complex",
        ),
        (
            lambda x: mg.linalg.solve_sylvester(x, -np.eye(2), np.ones((2, 2))),
            NEGATIVE_BATCH[1, 0],
            "solve_sylvester: the matrix",
        ),
        (
            lambda x: mg.grad(mg.sum(mg.linalg.slogdet(x).logabsdet), x),
            SINGULAR_BATCH,
            "inv: matrix [1, 2] of the batch (2, 3) is singular",
        ),
        (
            lambda x: mg.grad(mg.sum(mg.linalg.sqrtm(x)), x),
            np.zeros((2, 2)),
            "solve_sylvester: the matrix",
        ),
        (
            lambda x: mg.grad(mg.sum(mg.linalg.qr(x).Q), x),
            np.array([[1.0, 1.0], [0.0, 0.0]]),
            "triangular_solve: the matrix is singular: its diagonal is zero at 1",
        ),
        (
            mg.linalg.svdvals,
            np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, np.nan], [0.0, 1.0]]]),
            "svdvals: matrix [1] of the batch (2,) holds NaN or infinite values",
        ),
        (
            lambda x: mg.linalg.eigh(x, subset_by_index=(0, 1)).eigenvalues,
            np.stack([np.eye(3), np.full((3, 3), np.nan)]),
            "eigh: matrix [1] of the batch (2,) holds NaN or infinite values",
        ),
        (
            mg.linalg.pinv,
            np.full((2, 2), np.nan),
            "pinv: the matrix holds NaN or infinite values",
        ),
        (
            lambda x: mg.linalg.lstsq(x, np.ones(2)).x,
            np.array([[np.nan, 0.0], [0.0, 1.0]]),
            "lstsq: the matrix holds NaN or infinite values",
        ),
        (
            mg.linalg.sqrtm,
            np.array([[np.nan, 0.0], [0.0, 1.0]]),
            "sqrtm: the matrix holds NaN or infinite values",
        ),
    ],
)
def test_errors_at_run_time_name_the_matrix(function: Any, batch: np.ndarray, text: str) -> None:
    x = mg.input("x", batch.shape, "float64")
    first, *rest = raised(function(x), {x: batch}).splitlines()
    assert first.startswith(text)
    assert rest[0].startswith("  needed: ")
    assert rest[1].startswith("  mend: ")


def test_errors_at_run_time_name_the_node_and_its_line() -> None:
    x = mg.input("x", (2, 2), "float64")
    node = mg.linalg.inv(x)
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    text = raised(node, {x: np.zeros((2, 2))})
    assert f"{__file__}:{line}" in text


def test_a_singular_constant_is_no_error_before_the_call() -> None:
    compiled = mg.function([], mg.linalg.inv(np.array([[1.0, 2.0], [2.0, 4.0]])))
    with pytest.raises(LinAlgError, match="inv: the matrix is singular"):
        compiled()


def test_sqrtm_of_rounded_zeros_is_real(rng: Rng) -> None:
    vector = rng.normal(size=(4, 1))
    a = vector @ vector.T
    root = value(mg.linalg.sqrtm(a))
    assert_close(root @ root, a, scale=10.0)
    a = np.diag([1.0, -4.0])
    assert_close(value(mg.linalg.sqrtm(a.astype(complex))), np.diag([1.0, 2.0j]), "complex128")


# Against NumPy and SciPy.


def random_shape(rng: Rng) -> tuple[int, ...]:
    return tuple(int(e) for e in rng.integers(0, 4, size=rng.integers(0, 3)))


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "complex64"])
def test_random_configurations(dtype: str, rng: Rng) -> None:
    """Broadcast batches, zero sizes, transposed and reversed memory, through compiled functions."""
    for _ in range(12):
        n, k = int(rng.integers(0, 6)), int(rng.integers(0, 4))
        batch, other = random_shape(rng), ()
        if rng.random() < 0.5:
            other = tuple(1 if rng.random() < 0.5 else e for e in batch)

        def draw(*shape: int) -> np.ndarray:
            a = rng.normal(size=shape)
            return a + 1j * rng.normal(size=shape) if dtype.startswith("complex") else a

        a = (draw(*batch, n, n) + 3 * np.eye(n)).astype(dtype)
        b = draw(*other, n, k).astype(dtype)
        if rng.random() < 0.5:
            a = np.asarray(np.swapaxes(np.ascontiguousarray(np.swapaxes(a, -1, -2)), -1, -2))
        if rng.random() < 0.5:
            b = b[..., ::-1, :]
        x, y = mg.input("x", a.shape, dtype), mg.input("y", b.shape, dtype)
        lower = bool(rng.random() < 0.5)
        triangle = np.tril(a) if lower else np.triu(a)
        outputs = [
            mg.linalg.solve(x, y),
            mg.linalg.triangular_solve(x, y, lower=lower),
            mg.linalg.lu_solve(mg.linalg.lu_factor(x), y),
            mg.linalg.inv(x),
            mg.linalg.det(x),
            mg.linalg.svdvals(x),
            mg.linalg.lstsq(x, y).x,
        ]
        kept_a, kept_b = a.copy(), b.copy()
        found = mg.function([x, y], outputs)(a, b)
        assert np.array_equal(a, kept_a)
        assert np.array_equal(b, kept_b)
        wide = a.astype("complex128" if "complex" in dtype else "float64")
        triangle = triangle.astype(wide.dtype)
        expected = [
            np.linalg.solve(wide, b),
            np.linalg.solve(triangle, b),
            np.linalg.solve(wide, b),
            np.linalg.inv(wide),
            np.linalg.det(wide),
            np.linalg.svdvals(wide),
            np.linalg.solve(wide, b),
        ]
        condition = max(
            [1.0, *np.ravel(np.linalg.cond(wide)), *np.ravel(np.linalg.cond(triangle))]
            if a.size
            else [1.0]
        )
        for node, made, wanted in zip(outputs, found, expected, strict=True):
            assert made.dtype == node.dtype
            scale = condition * max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
            assert_close(made, wanted, made.dtype.name, scale)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3), (0, 3), (3, 0), (2, 0, 0)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64"])
def test_factors_multiply_to_the_matrix(shape: tuple[int, ...], dtype: str, rng: Rng) -> None:
    a = rng.normal(size=shape)
    a = (a + 1j * rng.normal(size=shape) if dtype == "complex64" else a).astype(dtype)
    x = mg.input("x", shape, dtype)
    P, L, U = mg.linalg.lu(x)
    u, s, vh = mg.linalg.svd(x, full_matrices=False)
    products = [P @ L @ U, (u * mg.expand_dims(s, -2)) @ vh]
    factors = [P, L, U, u, s, vh]
    for mode in ("reduced", "complete"):
        Q, R = mg.linalg.qr(x, mode)
        products.append(Q @ R)
        factors += [Q, R]
        assert_close(
            value(adjoint(Q) @ Q, {x: a}),
            np.broadcast_to(np.eye(int(Q.shape[-1])), (*shape[:-2], *[int(Q.shape[-1])] * 2)),
            dtype,
        )
    for product in products:
        assert_close(value(product, {x: a}), a, dtype, 10.0)
    for factor, made in zip(factors, values(factors, {x: a}), strict=True):
        assert factor.shape == made.shape
    assert not np.tril(value(U, {x: a}), -1).any()
    assert not np.triu(value(L, {x: a}), 1).any()


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(("n", "count"), [(1, 9), (4, 30), (9, 50)])
def test_many_small_triangles_are_solved_as_each_alone(
    rng: Rng, n: int, count: int, dtype: str
) -> None:
    a = rng.normal(size=(count, n, n)) + 3.0 * np.eye(n)
    b = rng.normal(size=(2, count, n, 3))
    if dtype == "complex128":
        a, b = a + 1j * rng.normal(size=a.shape), b + 1j * rng.normal(size=b.shape)
    for trans, lower, unit in itertools.product("NTC", (False, True), (False, True)):
        options = {"trans": trans, "lower": lower, "unit_diagonal": unit}
        found = value(mg.linalg.solve_triangular(a, b, **options))
        for i, j in itertools.product(range(2), range(count)):
            alone = scipy.linalg.solve_triangular(a[j], b[i, j], **options)
            assert_close(found[i, j], alone)


def test_a_singular_one_of_many_small_triangles_is_named(rng: Rng) -> None:
    a = rng.normal(size=(40, 3, 3)) + 3.0 * np.eye(3)
    a[17, 1, 1] = 0.0
    b = rng.normal(size=(5, 40, 3, 1))
    with pytest.raises(LinAlgError, match=r"matrix \[17\] of the batch \(40,\) is sing"):
        value(mg.linalg.solve_triangular(a, b))
    assert np.isfinite(value(mg.linalg.solve_triangular(a, b, unit_diagonal=True))).all()
    a[17, 1, 1] = np.nan
    found = value(mg.linalg.solve_triangular(a, b))
    assert np.isnan(found[:, 17]).any()
    assert np.isfinite(np.delete(found, 17, axis=1)).all()


def test_cholesky_reads_one_triangle(rng: Rng) -> None:
    a = hermitian(rng, [0.5, 1.0, 2.0])
    garbage = np.triu(rng.normal(size=(3, 3)), 1)
    lower, upper = np.tril(a) + garbage, np.triu(a) + garbage.T
    factor = np.linalg.cholesky(a)
    assert_close(value(mg.linalg.cholesky(lower)), factor)
    assert_close(value(mg.linalg.cholesky(upper, upper=True)), factor.T)
    side = rng.normal(size=(3, 2))
    for made, is_upper in ((factor, False), (factor.T, True)):
        found = value(mg.linalg.cho_solve(made, side, upper=is_upper))
        assert_close(found, np.linalg.solve(a, side), scale=10.0)


def test_lu_solve_gradient_reaches_the_factors(rng: Rng) -> None:
    """Through the packed factors the gradient is that of the solution itself."""
    a, b = rng.normal(size=(2, 3, 3)) + 2 * np.eye(3), rng.normal(size=(3, 2))
    for trans in ("N", "T"):

        def solved(x: mg.Node, y: mg.Node, trans: str = trans) -> mg.Node:
            return mg.linalg.lu_solve(mg.linalg.lu_factor(x), y, trans)

        mg.check_gradients(solved, (a, b))


def test_solve_takes_a_vector_only_of_one_axis() -> None:
    a = np.stack([np.eye(3), 2 * np.eye(3)])
    assert mg.linalg.solve(a, np.ones(3)).shape == (2, 3)
    assert np.linalg.solve(a, np.ones(3)).shape == (2, 3)
    with pytest.raises(ShapeError, match="the rows of b differ: 3 and 2"):
        mg.linalg.solve(a, np.ones((2, 3)))
    assert mg.linalg.solve(np.stack([np.eye(2)] * 2), np.ones((2, 3))).shape == (2, 2, 3)


def test_norm_orders_against_numpy(rng: Rng) -> None:
    a = rng.normal(size=(2, 3, 4))
    for order in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        for axis in ((0, 1), (2, 1), (-1, 0)):
            for keepdims in (False, True):
                made = value(mg.linalg.norm(a, order, axis, keepdims))
                assert_close(made, np.linalg.norm(a, order, axis, keepdims), scale=10.0)
    for order in (None, 0, 1, -1, 2, 3.5, -2, np.inf, -np.inf):
        made = value(mg.linalg.norm(a, order, 1, True))
        assert_close(made, np.linalg.norm(a, order, 1, True), scale=10.0)


def test_cond_of_singular_matrices_is_infinite() -> None:
    a = np.stack([np.eye(2), np.zeros((2, 2)), np.array([[1.0, 2.0], [2.0, 4.0]])])
    for p in (1, -1, "fro", np.inf):
        assert_close(value(mg.linalg.cond(a, p)), np.linalg.cond(a, p))
    assert value(mg.linalg.cond(a))[1] == np.inf
    assert value(mg.linalg.cond(a, -2))[1] == 0.0


# Names of dimensions.


def test_named_batches_and_orders(rng: Rng) -> None:
    """The marginal likelihood of a Gaussian process, its gradient, with every extent a name."""
    x = mg.input("x", ("batch", "n", "n"), "float64")
    y = mg.input("y", ("batch", "n", 1), "float64")
    factor = mg.linalg.cholesky(x)
    weights = mg.linalg.cho_solve(factor, y)
    loss = 0.5 * mg.sum(y * weights) + mg.sum(mg.log(mg.linalg.diagonal(factor)))
    compiled = mg.function([x, y], [loss, *mg.grad(loss, [x, y])])
    for batch, n in ((2, 4), (3, 1), (1, 6)):
        root = rng.normal(size=(batch, n, n))
        K = root @ np.swapaxes(root, -1, -2) + np.eye(n)
        b = rng.normal(size=(batch, n, 1))
        value_, by_x, by_y = compiled(K, b)
        inverse = np.linalg.inv(K)
        alpha = inverse @ b
        expected = 0.5 * np.sum(b * alpha) + 0.5 * np.sum(np.linalg.slogdet(K)[1])
        gradient = 0.5 * (inverse - alpha @ np.swapaxes(alpha, -1, -2))
        folded = np.tril(2 * gradient, -1) + np.tril(np.triu(gradient))
        size = float(np.max(np.abs(alpha))) ** 2
        assert_close(value_, expected, scale=10.0 * size)
        assert_close(by_x, folded, scale=10.0 * size)
        assert_close(by_y, alpha, scale=10.0 * size)


def test_names_give_exact_shapes() -> None:
    x = mg.input("x", ("batch", "m", "n"))
    m, n = mg.Dim("m"), mg.Dim("n")
    assert mg.linalg.svd(x).U.shape == (mg.Dim("batch"), m, m)
    assert mg.linalg.pinv(x).shape == (mg.Dim("batch"), n, m)
    assert mg.linalg.svdvals(mg.input("x", ("n", "n"))).shape == (n,)
    assert mg.linalg.qr(mg.input("x", (mg.Dim("n") + 2, "n"))).Q.shape == (n + 2, n)
    assert mg.kron(mg.input("x", ("m", 2)), mg.input("y", ("n", 3))).shape == (m * n, 6)
    square = mg.linalg.inv(mg.input("x", ("m", 3)))
    assert square.constraints, "that the matrix is square is checked at the call"


@pytest.mark.parametrize("rows", [3, 5])
def test_gradient_of_named_tall_qr_and_lu(rows: int, rng: Rng) -> None:
    x = mg.input("x", (mg.Dim("n") + rows - 3, "n"), "float64")
    a = rng.normal(size=(rows, 3))
    Q, R = mg.linalg.qr(x)
    mg.check_gradients(mg.sum(Q**3) + mg.sum(R**2), {x: a})
    mg.check_gradients(mg.sum(mg.linalg.lu_factor(x).lu ** 2), {x: a})


def test_a_subset_is_checked_at_the_call() -> None:
    x = mg.input("x", ("n", "n"), "float64")
    compiled = mg.function([x], list(mg.linalg.eigh(x, subset_by_index=(1, 2))))
    w, _ = compiled(np.diag([3.0, 1.0, 2.0]))
    assert_close(w, [2.0, 3.0])
    with pytest.raises(mg.MagmagraphError, match="n"):
        compiled(np.eye(2))


# Chains.


def multiplications(node: mg.Node) -> int:
    """Count what the products of a chain multiply."""
    return sum(
        int(each.inputs[0].shape[0]) * int(each.inputs[0].shape[1]) * int(each.shape[-1])
        for each in topological([node])
        if each.op is MATMUL
    )


def cheapest(sizes: tuple[int, ...]) -> int:
    """Return the least number of multiplications of a chain, by trying all."""
    if len(sizes) < 3:
        return 0
    return min(
        cheapest(sizes[: k + 1]) + cheapest(sizes[k:]) + sizes[0] * sizes[k] * sizes[-1]
        for k in range(1, len(sizes) - 1)
    )


def test_multi_dot_takes_the_cheapest_order(rng: Rng) -> None:
    for _ in range(30):
        sizes = tuple(int(e) for e in rng.integers(1, 30, size=rng.integers(3, 8)))
        nodes = [
            mg.input(f"x{i}", (m, n)) for i, (m, n) in enumerate(itertools.pairwise(sizes))
        ]
        assert multiplications(mg.linalg.multi_dot(nodes)) == cheapest(sizes)


def test_multi_dot_of_names_is_told_their_sizes() -> None:
    A, B, C = mg.input("A", ("n", 10)), mg.input("B", (10, "n")), mg.input("C", ("n", 10))
    left = mg.linalg.multi_dot([A, B, C], sizes={"n": 2})
    right = mg.linalg.multi_dot([A, B, C], sizes={"n": 1000})
    assert left.inputs[1] is C
    assert right.inputs[0] is A


# Dtypes.


def test_halves_are_refused_with_a_mend() -> None:
    x = mg.input("x", (2, 2), "float16")
    for function in (mg.linalg.inv, mg.linalg.cholesky, mg.linalg.eigh, mg.linalg.expm):
        with pytest.raises(DTypeError, match=r"mend: mg.cast\(x, 'float32'\)"):
            function(x)


def test_integers_become_floats() -> None:
    assert mg.linalg.inv(np.array([[2, 0], [0, 4]])).dtype == mg.config.float_dtype
    assert mg.linalg.matrix_power(np.array([[1, 1], [1, 0]]), 3).dtype.kind == "i"


def test_expm_against_scipy(rng: Rng) -> None:
    for scale in (1e-6, 0.1, 1.0, 20.0):
        a = scale * rng.normal(size=(2, 5, 5))
        expected = scipy.linalg.expm(a)
        size = float(np.max(np.abs(expected)))
        assert_close(value(mg.linalg.expm(a)), expected, scale=size)


def test_eig_of_complex_spectra(rng: Rng) -> None:
    """A function of a matrix made of its eigenvectors, whose phases it does not depend on."""
    a = np.array([[0.5, -2.0, 0.3], [1.5, 0.2, -0.4], [0.2, 0.1, 3.0]])
    weights = rng.normal(size=(3, 3))

    def function(x: mg.Node) -> mg.Node:
        w, V = mg.linalg.eig(x)
        return real_sum((V * mg.exp(w)) @ mg.linalg.inv(V), weights)

    def lengths(x: mg.Node) -> mg.Node:
        V = mg.linalg.eig(x).eigenvectors
        return mg.sum(mg.abs(V) ** 2 * weights)

    for point in (a, a + 1j * rng.normal(size=(3, 3))):
        mg.check_gradients(function, (point,))
        mg.check_gradients(lengths, (point,))
        expected = value(real_sum(mg.linalg.expm(point), weights))
        assert_close(value(function(point)), expected, scale=100.0)
