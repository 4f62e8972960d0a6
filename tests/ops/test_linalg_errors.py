"""Wrong use of linear algebra that shows at run time: which matrix, which node, which line."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from interpreted import assert_close, value
from matrices import Rng

import magmagraph as mg
from magmagraph.errors import LinAlgError


def raised(node: mg.Node, feeds: dict[mg.Node, np.ndarray]) -> str:
    """Return the text of the error that a compiled function raises."""
    compiled = mg.function(list(feeds), node)
    with pytest.raises(LinAlgError) as caught:
        compiled(*feeds.values())
    assert isinstance(caught.value, np.linalg.LinAlgError)
    assert isinstance(caught.value, mg.MagmagraphError)
    assert isinstance(caught.value, mg.linalg.LinAlgError)
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
    assert rest[0].startswith("  expected: ")
    assert rest[1].startswith("  try: ")


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


@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_an_infinity_ends_in_an_error(
    dtype: str, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iterations that LAPACK does not end where an element is infinite are not begun."""
    monkeypatch.setattr(mg.config, "compiler", compiler)
    batch = np.stack([np.eye(20, dtype=dtype)] * 3)
    batch[1] += np.linspace(0.1, 0.9, 400).reshape(20, 20).astype(dtype)
    batch[1, 3, 3] = np.inf
    x = mg.input("x", batch.shape, dtype)
    nodes = {
        "svd": mg.linalg.svd(x)[1],
        "svdvals": mg.linalg.svdvals(x),
        "pinv": mg.linalg.pinv(x),
        "lstsq": mg.linalg.lstsq(x, np.ones((3, 20, 1), dtype))[0],
        "eigh": mg.linalg.eigh(x)[0],
        "eigvalsh": mg.linalg.eigvalsh(x),
        "eig": mg.linalg.eig(x)[0],
        "eigvals": mg.linalg.eigvals(x),
    }
    for name, node in nodes.items():
        text = raised(node, {x: batch})
        assert text.startswith(f"{name}: matrix [1] of the batch (3,) holds NaN or infinite values")
    # What decomposes in a fixed number of steps gives NaN or an error, as NumPy does.
    for node in (mg.linalg.qr(x)[1], mg.linalg.det(x), mg.linalg.lu_factor(x)[0]):
        mg.function([x], node)(batch)


def test_eigh_reads_one_triangle() -> None:
    matrix = np.eye(4)
    matrix[0, 3] = np.nan
    assert value(mg.linalg.eigvalsh(matrix)).tolist() == [1.0] * 4
    with pytest.raises(LinAlgError, match="holds NaN"):
        value(mg.linalg.eigvalsh(matrix, UPLO="U"))
