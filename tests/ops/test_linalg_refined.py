"""Mixed precision: as accurate as full precision, and honest about how it got there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from table import assert_agrees

import magmagraph as mg
from magmagraph.dtypes import canonical, tolerance

CONDITIONS = [10.0**k for k in range(1, 13)]
EPS = float(np.finfo(float).eps)


def conditioned(
    rng: np.random.Generator, rows: int, columns: int, condition: float, positive: bool = False
) -> np.ndarray:
    """Return a random matrix of a condition number, its singular values evenly spread in log."""
    least = min(rows, columns)
    left = np.linalg.qr(rng.normal(size=(rows, least)))[0]
    right = left if positive else np.linalg.qr(rng.normal(size=(columns, least)))[0]
    matrix = (left * np.logspace(0.0, -np.log10(condition), least)) @ right.T
    return 0.5 * (matrix + matrix.T) if positive else matrix


def backward_error(A: np.ndarray, x: np.ndarray, b: np.ndarray) -> float:
    """Compute Rigal and Gaches' error by its formula, in extended precision."""
    A, x, b = (np.asarray(v, np.longdouble) for v in (A, x, b))
    residual = np.abs(b - A @ x).max(axis=0)
    norm = np.abs(A).sum(axis=1).max()
    return float((residual / (norm * np.abs(x).max(axis=0) + np.abs(b).max(axis=0))).max())


def values(result: Any) -> list[Any]:
    return [node.eval() for node in result]


def within_rounding(reported: float, actual: float, order: int) -> bool:
    """Whether a reported error is the actual one, up to the rounding of the residual itself."""
    return abs(reported - actual) <= order**0.5 * EPS


@pytest.mark.parametrize("assume", ["general", "positive"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_solutions_are_those_of_full_precision(
    condition: float, assume: str, rng: np.random.Generator
) -> None:
    n = 60
    A = conditioned(rng, n, n, condition, assume == "positive")
    b = rng.normal(size=(n, 3))
    x, error, iterations, converged = values(mg.linalg.refined_solve(A, b, assume=assume))
    assert converged and error <= n**0.5 * EPS
    assert within_rounding(error, backward_error(A, x, b), n)
    # The same accuracy as one factorization in full precision has.
    assert backward_error(A, x, b) <= n**0.5 * EPS + backward_error(A, np.linalg.solve(A, b), b)
    change = np.abs(x - np.linalg.solve(A, b)).max() / np.abs(x).max()
    assert change <= condition * tolerance(canonical("float64"), "reassoc").relative
    if condition <= 1e5:
        assert 1 <= iterations <= 6
    if condition >= 1e10:
        assert iterations < 0, "single precision cannot have led there"


@pytest.mark.parametrize("shape", [(90, 40), (40, 90), (50, 50)])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_least_squares_are_those_of_full_precision(
    condition: float, shape: tuple[int, int], rng: np.random.Generator
) -> None:
    A = conditioned(rng, *shape, condition)
    b = rng.normal(size=(shape[0], 2))
    x, error, iterations, converged = values(mg.linalg.refined_lstsq(A, b))
    expected = np.linalg.pinv(A, rcond=1e-15) @ b
    assert converged and error <= sum(shape) ** 0.5 * EPS
    # The sensitivity of least squares grows with the square of the condition (Wedin 1973).
    rest = np.linalg.norm(b - A @ expected) / np.linalg.norm(expected)
    bound = 8.0 * (condition + condition**2 * rest) * tolerance(canonical("float64")).relative
    assert np.linalg.norm(x - expected) <= bound * np.linalg.norm(expected)
    if condition <= 1e4:
        assert 1 <= iterations <= 6
    if condition >= 1e10:
        assert iterations < 0


def test_least_squares_without_a_remainder(rng: np.random.Generator) -> None:
    """Of a residual that is all rounding nothing is asked: such systems converge too."""
    A = conditioned(rng, 70, 30, 1e5)
    solution = rng.normal(size=30)
    x, error, iterations, converged = values(mg.linalg.refined_lstsq(A, A @ solution))
    assert converged and iterations > 0 and error < 100**0.5 * EPS
    assert_agrees(x, solution, "reassoc", 1e5)


SPECTRA = {
    "apart": np.linspace(-3.0, 2.0, 40),
    "graded": np.logspace(0, -12, 40),
    "pairs": np.repeat(np.linspace(1.0, 4.0, 20), 2),
    "near pairs": np.repeat(np.linspace(1.0, 4.0, 20), 2) + np.tile([0.0, 1e-9], 20),
    "rank one": np.r_[np.zeros(39), 2.0],
    "equal": np.full(40, 1.5),
    "large": 1e200 * np.linspace(-3.0, 2.0, 40),
    "small": 1e-200 * np.linspace(-3.0, 2.0, 40),
}


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_eigenvalues_of_any_spectrum(spectrum: str, rng: np.random.Generator) -> None:
    exact = np.sort(SPECTRA[spectrum])
    n = len(exact)
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    A = (Q * exact) @ Q.T
    A = 0.5 * (A + A.T)
    eigenvalues, vectors, error, iterations, converged = values(mg.linalg.refined_eigh(A))
    size = np.abs(exact).max()
    assert converged and error <= n**0.5 * EPS
    assert_agrees(eigenvalues / size, exact / size, "stable")
    assert np.all(np.diff(eigenvalues) >= 0)
    # What is reported is what holds.
    left = np.linalg.norm(A / size @ vectors - vectors * (eigenvalues / size))
    assert left / np.linalg.norm(A / size) <= error + EPS
    assert np.linalg.norm(vectors.T @ vectors - np.eye(n)) / n**0.5 <= error + n**0.5 * EPS
    if spectrum in ("apart", "pairs", "large", "small"):
        assert 1 <= iterations <= 3
    if spectrum == "rank one":
        assert iterations < 0, "more than half of the eigenvalues are one"


def test_random_symmetric_matrices_take_two_steps(rng: np.random.Generator) -> None:
    A = rng.normal(size=(150, 150))
    A = A + A.T
    eigenvalues, vectors, _, iterations, converged = values(mg.linalg.refined_eigh(A))
    assert converged and iterations == 2
    eigenvalues_of_numpy, other = np.linalg.eigh(A)
    assert_agrees(eigenvalues, eigenvalues_of_numpy, "reassoc", np.abs(eigenvalues_of_numpy).max())
    own = np.linalg.norm(A @ vectors - vectors * eigenvalues)
    assert own <= 2.0 * np.linalg.norm(A @ other - other * eigenvalues_of_numpy)


# What is reported.


def test_fewer_steps_are_allowed_and_seen(rng: np.random.Generator) -> None:
    A, b = conditioned(rng, 40, 40, 1e4), rng.normal(size=40)
    zero = values(mg.linalg.refined_solve(A, b, max_iterations=0))
    assert zero[2] == -1 and zero[3], "nothing but single precision was allowed, and it is poor"
    loose = values(mg.linalg.refined_solve(A, b, tolerance=1e-6))
    assert loose[2] == 0 and loose[3] and 1e-9 < loose[1] <= 1e-6
    middle = values(mg.linalg.refined_solve(A, b, tolerance=1e-12))
    assert middle[2] >= 1 and middle[1] < loose[1]
    assert within_rounding(loose[1], backward_error(A, loose[0][:, None], b[:, None]), 40)


@pytest.mark.parametrize("assume", ["general", "positive"])
def test_what_cannot_be_reached_is_not_claimed(assume: str, rng: np.random.Generator) -> None:
    A = conditioned(rng, 30, 30, 100.0, assume == "positive")
    b = rng.normal(size=30)
    x, error, iterations, converged = values(
        mg.linalg.refined_solve(A, b, assume=assume, tolerance=1e-20)
    )
    assert not converged and iterations < 0 and 0 < error < 30**0.5 * EPS
    assert_agrees(x, np.linalg.solve(A, b), "reassoc", 100.0)
    B = conditioned(rng, 30, 20, 100.0)
    assert not values(mg.linalg.refined_lstsq(B, b, tolerance=0.0))[3]
    assert not values(mg.linalg.refined_eigh(A, tolerance=1e-20))[4]


def test_each_of_a_batch_is_reported_by_itself(rng: np.random.Generator) -> None:
    good, poor = conditioned(rng, 30, 30, 10.0), conditioned(rng, 30, 30, 1e11)
    A = np.stack([good, poor, good])
    x, error, iterations, converged = values(mg.linalg.refined_solve(A, rng.normal(size=(30, 1))))
    assert x.shape == (3, 30, 1) and error.shape == (3,)
    assert iterations.dtype == np.int32 and converged.dtype == bool and error.dtype == float
    assert iterations[0] > 0 > iterations[1] and iterations[2] == iterations[0]
    assert converged.all()


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-30, 1e30, 1e200, 1e300])
def test_magnitudes_that_single_precision_lacks(scale: float, rng: np.random.Generator) -> None:
    A, b = conditioned(rng, 20, 20, 100.0), rng.normal(size=20)
    expected = np.linalg.solve(A, b)
    x, _, iterations, converged = values(mg.linalg.refined_solve(scale * A, b))
    assert converged and iterations > 0
    assert_agrees(x * scale, expected, "reassoc", 100.0)
    x, _, iterations, converged = values(mg.linalg.refined_lstsq(A, scale * b))
    assert converged and iterations > 0
    assert_agrees(x / scale, expected, "reassoc", 100.0)


# What is refused, and what is not a number.


def test_singular_matrices_are_named(rng: np.random.Generator) -> None:
    A = mg.input("A", (2, 3, 3), "float64")
    b = np.ones(3)
    good = rng.normal(size=(3, 3)) + 3.0 * np.eye(3)
    bad = np.stack([good, np.ones((3, 3))])
    cases = {
        "refined_solve: matrix [1] of the batch (2,) is singular": mg.linalg.refined_solve(A, b),
        "refined_solve: matrix [1] of the batch (2,) is not positive definite":
            mg.linalg.refined_solve(A, b, assume="positive"),
        "refined_lstsq: matrix [1] of the batch (2,) has not full rank":
            mg.linalg.refined_lstsq(A, b),
    }  # fmt: skip
    bad[0] = bad[0] @ bad[0].T
    for text, result in cases.items():
        f = mg.function([A], result.x)
        with pytest.raises(mg.LinAlgError) as caught:
            f(bad)
        assert str(caught.value).splitlines()[0] == text
        assert "node: " in str(caught.value) and "test_linalg_refined.py" in str(caught.value)


def test_nan_is_not_converged() -> None:
    A = np.array([[np.nan, 1.0], [1.0, 2.0]])
    for result in (
        mg.linalg.refined_solve(A, np.ones(2)),
        mg.linalg.refined_solve(np.eye(2), np.array([np.nan, 1.0])),
        mg.linalg.refined_lstsq(np.eye(2), np.array([np.inf, 1.0])),
    ):
        x, error, iterations, converged = values(result)
        assert np.isnan(x).any() or np.isinf(x).any()
        assert np.isnan(error) and iterations < 0 and not converged
    with pytest.raises(mg.LinAlgError, match="holds NaN"):
        mg.linalg.refined_eigh(A).eigenvalues.eval()


def test_rows_that_are_too_few_at_the_call() -> None:
    A = mg.input("A", ("n", 4), "float64")
    b = mg.input("b", ("n",), "float64")
    f = mg.function([A, b], mg.linalg.refined_lstsq(A, b).x)
    assert f(np.eye(5)[:, :4], np.ones(5)).shape == (4,)
    with pytest.raises(mg.ShapeError, match="a matrix of 3 rows and 4 columns"):
        f(np.ones((3, 4)), np.ones(3))


def test_operands_are_not_written(rng: np.random.Generator) -> None:
    A, b = conditioned(rng, 12, 12, 1e12, positive=True), rng.normal(size=12)
    layouts = np.asfortranarray(A), A[::-1][::-1]
    for matrix in layouts:
        before = matrix.copy()
        for assume in ("general", "positive"):
            values(mg.linalg.refined_solve(matrix, b, assume=assume))
        values(mg.linalg.refined_lstsq(matrix, b))
        values(mg.linalg.refined_eigh(matrix))
        np.testing.assert_array_equal(matrix, before)


# Complex matrices and gradients.


def test_complex_systems(rng: np.random.Generator) -> None:
    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)

    A, b = normal(25, 25), normal(25, 2)
    P = A @ A.conj().T + np.eye(25)
    for matrix, assume in ((A, "general"), (P, "positive")):
        x, _, iterations, converged = values(mg.linalg.refined_solve(matrix, b, assume=assume))
        assert converged and iterations > 0
        assert np.abs(matrix @ x - b).max() <= 1e3 * EPS * np.abs(matrix).sum(1).max()
    for B, right in ((normal(30, 20), normal(30)), (normal(20, 30), normal(20))):
        x, _, iterations, converged = values(mg.linalg.refined_lstsq(B, right))
        assert converged and iterations > 0
        assert_agrees(x, np.linalg.pinv(B) @ right, "reassoc", 10.0)
    eigenvalues, _, _, iterations, converged = values(mg.linalg.refined_eigh(P))
    assert converged and iterations > 0
    assert_agrees(eigenvalues, np.linalg.eigvalsh(P), "reassoc", np.abs(P).max())


def test_gradients_of_the_shortest_solution(rng: np.random.Generator) -> None:
    A, b = rng.normal(size=(3, 5)), rng.normal(size=(3, 2))

    def loss(*nodes: mg.Node) -> mg.Node:
        return mg.sum(mg.linalg.refined_lstsq(*nodes).x ** 3)

    mg.check_gradients(loss, (A, b))


def test_a_gradient_is_that_of_solve(rng: np.random.Generator) -> None:
    A, b = rng.normal(size=(40, 40)) + 10.0 * np.eye(40), rng.normal(size=40)
    a, c = mg.input("A", A.shape, "float64"), mg.input("b", b.shape, "float64")
    gradients = mg.grad(mg.sum(mg.linalg.refined_solve(a, c).x ** 2), [a, c])
    gradients_of_solve = mg.grad(mg.sum(mg.linalg.solve(a, c) ** 2), [a, c])
    for one, other in zip(
        *(mg.function([a, c], g)(A, b) for g in (gradients, gradients_of_solve)), strict=True
    ):
        assert_agrees(one, other, "reassoc")
