"""Linear algebra on a CUDA device: on the device itself, and with the host's errors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from table import assert_agrees, magnitude

import magmagraph as mg
from magmagraph.ir.fallback import ON_HOST

pytestmark = pytest.mark.gpu

ORDER = 40


def matrices(rng: np.random.Generator, *batch: int) -> np.ndarray:
    """Return well-conditioned matrices."""
    return rng.standard_normal((*batch, ORDER, ORDER)) / ORDER**0.5 + 3.0 * np.eye(ORDER)


def definite(a: np.ndarray) -> np.ndarray:
    return a @ np.swapaxes(a, -1, -2)


CASES: dict[str, Any] = {
    "solve": lambda a, b: mg.linalg.solve(a, b),
    "inv": lambda a, b: mg.linalg.inv(a),
    "det": lambda a, b: mg.linalg.slogdet(a)[1],
    "cholesky": lambda a, b: mg.linalg.cholesky(a @ mg.swapaxes(a, -1, -2)),
    "cho_solve": lambda a, b: mg.linalg.cho_solve(
        mg.linalg.cholesky(a @ mg.swapaxes(a, -1, -2)), b
    ),
    "lu_solve": lambda a, b: mg.linalg.lu_solve(mg.linalg.lu_factor(a), b),
    "triangular_solve": lambda a, b: mg.linalg.triangular_solve(a, b, lower=True),
    "qr": lambda a, b: mg.absolute(mg.linalg.qr(a)[1]),
    "svdvals": lambda a, b: mg.linalg.svdvals(a),
    "svd": lambda a, b: (lambda u, s, v: (u * mg.expand_dims(s, -2)) @ v)(*mg.linalg.svd(a)),
    "eigvalsh": lambda a, b: mg.linalg.eigvalsh(a + mg.swapaxes(a, -1, -2)),
    "lstsq": lambda a, b: mg.linalg.lstsq(a, b)[0],
    "pinv": lambda a, b: mg.linalg.pinv(a),
    "expm": lambda a, b: mg.linalg.expm(0.1 * a),
}
ON_THE_HOST = {"lu_solve": {"pivots_permutation"}}


@pytest.mark.parametrize("batch", [(), (3,)], ids=["one", "batch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_the_device_computes_it(
    name: str, dtype: str, batch: tuple[int, ...], rng: np.random.Generator
) -> None:
    a = mg.var("a", shape=(*batch, ORDER, ORDER), dtype=dtype)
    b = mg.var("b", shape=(*batch, ORDER, 5), dtype=dtype)
    made = CASES[name](a, b)
    feeds = [matrices(rng, *batch).astype(dtype), rng.standard_normal(b.shape).astype(dtype)]
    on_device = mg.function([a, b], made, device="cuda")
    on_host = mg.function([a, b], made, device="cpu")
    with warnings.catch_warnings():
        if name in ON_THE_HOST:  # once in a process
            warnings.simplefilter("ignore", mg.FallbackWarning)
        for _ in range(3):  # outside captured segments, between them
            found = on_device(*feeds).get()
    wanted = on_host(*feeds)
    assert_agrees(found, wanted, "reassoc", magnitude(wanted))
    host = {op.name for op in on_device._last.prepared.on_host}
    assert host <= ON_THE_HOST.get(name, set())
    rows = [row for row in on_device.report.fallbacks if row.taken == ON_HOST]
    assert {row.node.op.name for row in rows} == host


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (mg.linalg.inv, "inv: the matrix is singular"),
        (lambda a: mg.linalg.solve(a, a), "solve: the matrix is singular"),
        (mg.linalg.cholesky, "cholesky: the matrix is not positive definite"),
        (
            lambda a: mg.linalg.triangular_solve(a, a),
            "triangular_solve: the matrix is singular: its diagonal is zero at 2",
        ),
    ],
    ids=["inv", "solve", "cholesky", "triangular_solve"],
)
def test_what_the_library_refuses_raises(make: Any, text: str) -> None:
    a = mg.var("a", shape=(3, 3))
    state = mg.var("state", init=mg.init.zeros(), shape=(3, 3))
    f = mg.function([a], make(a), updates={state: state + make(a)}, device="cuda")
    bad = np.array([[1, 2, 0], [2, 4, 0], [0, 0, 0]], "f4")
    good = np.array([[2, 0, 0], [0, 3, 0], [0, 0, 4]], "f4")
    f(good)
    before = state.value
    with pytest.raises(mg.LinAlgError, match=text) as caught:
        f(bad)
    assert "test_linear_algebra.py" in str(caught.value)
    np.testing.assert_array_equal(state.value, before)
    assert np.isfinite(f(good).get()).all()


def test_the_matrix_of_a_batch_is_named() -> None:
    a = mg.var("a", shape=(4, 2, 2))
    f = mg.function([a], mg.linalg.cholesky(a), device="cuda")
    batch = np.tile(np.eye(2, dtype="f4"), (4, 1, 1))
    f(batch)
    batch[2, 1, 1] = -1
    with pytest.raises(mg.LinAlgError, match=r"matrix \[2\] of the batch \(4,\)"):
        f(batch)


def test_the_report_names_what_cuts_the_captured_graph(rng: np.random.Generator) -> None:
    a = mg.var("a", shape=(ORDER, ORDER))
    f = mg.function([a], mg.sum(mg.linalg.eigvalsh(mg.tanh(a)) ** 2), device="cuda")
    f(matrices(rng).astype("f4"))
    assert "the captured graph is cut by eigvalsh" in " ".join(f.report["kernels"].notes)


@pytest.mark.parametrize("name", ["svd", "svdvals", "pinv", "lstsq", "eigvalsh"])
def test_an_infinity_ends_in_an_error(name: str, rng: np.random.Generator) -> None:
    """Decompositions by iteration look at all elements before they begin."""
    a, b = mg.input("a", (2, ORDER, ORDER), "float64"), mg.input("b", (2, ORDER, 1), "float64")
    function = mg.function([a, b], CASES[name](a, b), device="cuda")
    matrix = matrices(rng, 2)
    matrix[1, 3, 4] = matrix[1, 4, 3] = np.inf
    with pytest.raises(mg.LinAlgError, match=r"matrix \[1\] of the batch \(2,\) holds NaN or inf"):
        function(matrix, np.ones((2, ORDER, 1)))
