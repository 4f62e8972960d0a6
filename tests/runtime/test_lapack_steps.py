"""Linear algebra by LAPACK as C steps: values, batches, workspaces, failures, loops, libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import LinAlgError
from magmagraph.runtime.cpu.linalg import lapack
from magmagraph.runtime.cpu.products.blas import find_blas
from magmagraph.runtime.cpu.threads import replace_threads, set_threads
from magmagraph.runtime.families import linalg as family

pytest.importorskip("scipy")

L = mg.linalg
DTYPES = ("float32", "float64", "complex64", "complex128")
Rng = np.random.Generator


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = replace_threads(request.param)
    yield request.param
    set_threads(before)


def _matrices(rng: Rng, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return well conditioned matrices: the identity and some noise."""
    *_, rows, columns = shape
    noise = rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype[0] == "c" else 0)
    return (np.eye(rows, columns) + 0.3 * noise / np.sqrt(columns)).astype(dtype)


def _adjoint(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a, -1, -2).conj()


def _definite(a: np.ndarray) -> np.ndarray:
    return a @ _adjoint(a)


def _run(build: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """Return the results of a compiled function, all of whose steps are compiled."""
    nodes = [mg.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    built = build(*nodes)
    f = mg.function(nodes, list(built) if isinstance(built, (list, tuple)) else [built])
    assert "array" not in {step.kernel for step in f.plan.steps}
    return f(*arrays)


def _close(found: Any, expected: Any, dtype: str = "float64") -> None:
    tolerance = 2e-4 if dtype in ("float32", "complex64") else 1e-10
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("order", "batch"), [(7, (3,)), (41, ()), (41, (2, 3))])
def test_systems_and_triangles(
    order: int, batch: tuple[int, ...], dtype: str, threads: int, rng: Rng
) -> None:
    a = _matrices(rng, (*batch, order, order), dtype)
    b, definite = _matrices(rng, (*batch, order, 3), dtype), _definite(a)
    column = b[..., :1].copy()
    ways = [(lower, trans) for lower in (False, True) for trans in "NTC"]
    x, y, inverse, sign, size, factor, *solutions = _run(
        lambda a, b, c, d: [
            L.solve(a, b), L.solve(c, d), L.inv(c), *L.slogdet(c), L.cholesky(c),
            *(L.triangular_solve(a, b, trans, lower) for lower, trans in ways),
        ],
        a, b, definite, column,
    )  # fmt: skip
    _close(a @ x, b, dtype)
    _close(definite @ y, column, dtype)
    _close(inverse @ definite, np.broadcast_to(np.eye(order), a.shape), dtype)
    _close(sign, np.ones(batch), dtype)
    _close(size, np.linalg.slogdet(definite)[1], dtype)
    _close(factor @ _adjoint(factor), definite, dtype)
    assert not np.triu(factor, 1).any()
    for (lower, trans), x in zip(ways, solutions, strict=True):
        part = np.tril(a) if lower else np.triu(a)
        turned = {"N": part, "T": np.swapaxes(part, -1, -2), "C": _adjoint(part)}[trans]
        _close(turned @ x, b, dtype)


def _orthonormal(columns: np.ndarray, dtype: str) -> None:
    one = np.eye(columns.shape[-1])
    _close(_adjoint(columns) @ columns, np.broadcast_to(one, (*columns.shape[:-2], *one.shape)),
           dtype)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("sides", "batch"), [((9, 5), (5,)), ((5, 9), ()), ((43, 40), (5,)), ((1, 1), ())]
)
def test_factors_and_vectors(
    sides: tuple[int, int], batch: tuple[int, ...], dtype: str, rng: Rng
) -> None:
    a = _matrices(rng, (*batch, *sides), dtype)
    b = _matrices(rng, (*batch, sides[0], 2), dtype)
    found = iter(_run(
        lambda a, b: [
            *L.qr(a), *L.qr(a, "complete"), L.qr(a, "r"), *L.svd(a, False), *L.svd(a),
            L.svdvals(a), L.pinv(a), L.lstsq(a, b)[0], *L.lstsq(a, b)[2:],
        ], a, b,
    ))  # fmt: skip
    for _ in range(2):
        q, r = next(found), next(found)
        _close(q @ r, a, dtype)
        _orthonormal(q, dtype)
        assert not np.tril(r, -1).any()
    _close(np.abs(next(found)), np.abs(r[..., : min(sides), :]), dtype)
    for _ in range(2):
        u, s, vh = next(found), next(found), next(found)
        count = s.shape[-1]
        _close((u[..., :count] * s[..., None, :]) @ vh[..., :count, :], a, dtype)
        _orthonormal(u, dtype)
        _orthonormal(_adjoint(vh), dtype)
    values, inverse, x, rank, others = found
    _close(values, s, dtype)
    _close(others, s, dtype)
    _close(inverse, np.linalg.pinv(a), dtype)
    _close(x, inverse @ b, dtype)
    assert (rank == min(sides)).all()
    assert rank.dtype == np.int64


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("order", "batch"), [(1, ()), (6, (7,)), (40, ()), (40, (3,))])
def test_eigenvectors_read_one_triangle(
    order: int, batch: tuple[int, ...], dtype: str, rng: Rng
) -> None:
    for uplo in "LU":
        a = _definite(_matrices(rng, (*batch, order, order), dtype))
        if order > 1:  # what is not read is not looked at
            a[(..., 0, -1) if uplo == "L" else (..., -1, 0)] = np.nan
        values, vectors, alone = _run(lambda a: [*L.eigh(a, uplo), L.eigvalsh(a, uplo)], a)  # noqa: B023
        part = np.tril(a) if uplo == "L" else np.triu(a)
        diagonal = np.einsum("...ii->...i", part).real[..., None] * np.eye(order)
        whole = part + _adjoint(part) - diagonal
        _close(whole @ vectors, vectors * values[..., None, :], dtype)
        _orthonormal(vectors, dtype)
        _close(alone, values, dtype)
        if dtype == "float64":  # the signs are those of NumPy, which calls the same routine
            _close(vectors, np.linalg.eigh(a, uplo)[1])


def test_adjugates_of_matrices_that_are_singular_have_another_formula(rng: Rng) -> None:
    a = _matrices(rng, (3, 40, 40), "float64")
    x = mg.input("x", a.shape, "float64")
    f = mg.function([x], mg.grad(mg.sum(L.det(x)), x))
    assert "array" not in {step.kernel for step in f.plan.steps}
    expected = np.linalg.det(a)[:, None, None] * np.swapaxes(np.linalg.inv(a), -1, -2)
    _close(f(a), expected)
    a[1, 0] = a[1, 1]  # rank 39: only rows 0 and 1 of the cofactors are not zero
    found = f(a)
    _close(found[::2], expected[::2])
    _close(found[1, 2:], np.zeros((38, 40)))
    _close(found[1, 0], -found[1, 1])
    assert np.abs(found[1, 0]).max() > 1e-3


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sides", [(60, 9), (9, 60), (40, 40)])
def test_least_squares_without_the_rank_have_the_same_solution(
    sides: tuple[int, int], dtype: str, rng: Rng
) -> None:
    """By QR where the columns are independent; of others it is the shortest one all the same."""
    a = _matrices(rng, (3, *sides), dtype)
    a[1, :, 0] = a[1, :, 1]
    b = _matrices(rng, (3, sides[0], 2), dtype)
    (x,) = _run(lambda a, b: L.lstsq(a, b)[0], a, b)
    y, rank = _run(lambda a, b: L.lstsq(a, b)[::2], a, b)
    assert rank.tolist() == [min(sides), min(sides) - (sides[0] >= sides[1]), min(sides)]
    _close(x, y, dtype)
    nodes = mg.input("a", a.shape, dtype), mg.input("b", b.shape, dtype)
    steps = mg.function(list(nodes), L.lstsq(*nodes)[0]).plan.steps
    assert [step.node.op.name for step in steps] == ["lstsq_solution"]


def test_pseudoinverses_take_a_ratio_for_each_matrix() -> None:
    a = np.stack([np.diag([2.0, 1.0, 1e-3, 1e-6])] * 3)
    ratios = np.array([1e-2, 1e-5, 1e-8])
    (found,) = _run(lambda a, r: L.pinv(a, r), a, ratios)
    assert [int((matrix != 0).sum()) for matrix in found] == [2, 3, 4]
    assert [int(r) for r in _run(lambda a: L.lstsq(a, np.ones((4, 1)), 1e-5)[2], a)[0]] == [3] * 3


def test_batches_broadcast_and_operands_have_strides(rng: Rng) -> None:
    a, b = _matrices(rng, (3, 1, 40, 40), "float64"), _matrices(rng, (1, 5, 40, 2), "float64")
    for left, right in ((a, b), (a[0, 0], b), (a, b[0, 0])):
        _close(_run(L.solve, left, right)[0], np.linalg.solve(left, right))
    turned = np.swapaxes(a[::-1, 0], -1, -2)
    _close(_run(L.inv, turned)[0], np.linalg.inv(turned))
    for trans in "NT":
        (found,) = _run(lambda a, b: L.lu_solve(L.lu_factor(a), b, trans), a, b)  # noqa: B023
        _close(found, np.linalg.solve(a if trans == "N" else np.swapaxes(a, -1, -2), b))


@pytest.mark.parametrize("shape", [(0, 40, 40), (3, 0, 0), (0, 3), (3, 0)])
def test_nothing_gives_nothing(shape: tuple[int, ...]) -> None:
    a = np.zeros(shape)
    x = mg.input("x", shape, "float64")
    results = [*L.qr(x), *L.svd(x, full_matrices=False), L.pinv(x)]
    expected = [*np.linalg.qr(a), *np.linalg.svd(a, full_matrices=False), np.linalg.pinv(a)]
    if shape[-1] == shape[-2]:
        results += [L.solve(x, x), L.inv(x), *L.eigh(x), *L.slogdet(x), L.det(x), L.cholesky(x)]
        expected += [np.linalg.solve(a, a), np.linalg.inv(a), *np.linalg.eigh(a)]
        expected += [*np.linalg.slogdet(a), np.linalg.det(a), a]
    for found, other in zip(mg.function([x], results)(a), expected, strict=True):
        assert found.shape == other.shape
        np.testing.assert_array_equal(found, other)


FAILURES = {
    "solve": (lambda x: L.solve(x, np.ones((70, 2))), 0.0, "is singular"),
    "inv": (L.inv, 0.0, "is singular"),
    "cholesky": (L.cholesky, -np.eye(70), "is not positive definite"),
    "triangular_solve": (
        lambda x: L.triangular_solve(x, np.ones((70, 2))), 0.0, "is singular: its diagonal is zero"
    ),
    "eigh": (lambda x: L.eigh(x)[1], np.inf, "holds NaN or infinite values"),
    "eigvalsh": (L.eigvalsh, np.nan, "holds NaN or infinite values"),
    "svd": (lambda x: L.svd(x)[1], np.nan, "holds NaN or infinite values"),
    "svdvals": (L.svdvals, -np.inf, "holds NaN or infinite values"),
    "pinv": (L.pinv, np.nan, "holds NaN or infinite values"),
    "lstsq": (lambda x: L.lstsq(x, np.ones((20, 70, 1)))[0], np.inf, "holds NaN or infinite"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_names_the_first_matrix_and_changes_nothing(name: str, threads: int) -> None:
    build, value, text = FAILURES[name]
    x = mg.input("x", ("b", 70, 70), "float64")
    count = mg.var("count", init=np.zeros(()))
    f = mg.function([x], mg.sum(build(x)), updates={count: count + 1})
    good = np.stack([np.eye(70)] * 20)
    f(good)
    for places in ([7], [19, 3, 12]):
        bad = good.copy()
        bad[places] = value
        with pytest.raises(LinAlgError) as error:
            f(bad)
        assert f"{name}: matrix [{min(places)}] of the batch (20,) {text}" in str(error.value)
        assert "test_lapack_steps.py" in str(error.value)
        assert float(count.value) == 1.0


def test_a_singular_matrix_that_is_only_factored_is_no_failure() -> None:
    a = np.ones((2, 40, 40))
    x = mg.input("x", a.shape, "float64")
    factors, sign, size = mg.function([x], [L.lu_factor(x)[0], *L.slogdet(x)])(a)
    _close(factors[:, 0], a[:, 0])
    assert not np.triu(factors[:, 1:, 1:]).any()
    np.testing.assert_array_equal(sign, 0.0)
    np.testing.assert_array_equal(size, -np.inf)


def test_a_loop_stays_in_c_and_names_the_iteration_that_failed(rng: Rng) -> None:
    x = mg.input("x", ("t", 40, 40), "float64")

    def body(carry: Any, a: Any) -> tuple[Any, Any]:
        new = L.solve(a, mg.tanh(carry))
        r = L.qr(a, "r")
        values = L.eigh(a + mg.swapaxes(a, -1, -2))[0]
        return new, mg.sum(new) + mg.sum(values * values) + mg.sum(L.svdvals(r))

    last, rows = mg.scan(body, mg.constant(np.ones((40, 1))), x)
    f = mg.function([x], [last, mg.grad(mg.sum(rows), x)])
    assert {step.kernel for step in f.plan.steps} <= {"loop", "fused"}
    good = _matrices(rng, (6, 40, 40), "float64")
    found, gradient = f(good)
    expected = np.ones((40, 1))
    for a in good:
        expected = np.linalg.solve(a, np.tanh(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    step, value = 1e-6 * rng.normal(size=good.shape), mg.function([x], mg.sum(rows))
    change = value(good + step) - value(good - step)
    np.testing.assert_allclose(change, 2 * (gradient * step).sum(), rtol=1e-4)
    bad = good.copy()
    bad[4] = 0
    with pytest.raises(LinAlgError, match="iteration 4 of 6\n"):
        f(bad)
    np.testing.assert_allclose(f(good)[0], expected, rtol=1e-9)


def test_workspaces_of_named_dimensions_are_formulas(rng: Rng) -> None:
    x = mg.input("x", ("rows", 4), "float64")
    f = mg.function([x], [*L.svd(x, full_matrices=False), *L.qr(x), L.pinv(x)])
    for rows in (2, 4, 50):
        a = _matrices(rng, (rows, 4), "float64")
        u, s, vh, q, r, inverse = f(a)
        _close((u * s) @ vh, a)
        _close(q @ r, a)
        _close(inverse, np.linalg.pinv(a))


def test_named_dimensions_choose_the_kernel_when_they_are_bound(rng: Rng) -> None:
    x = mg.input("x", ("b", "n", "n"), "float64")
    f = mg.function([x], [L.inv(x), *L.eigh(x @ mg.swapaxes(x, -1, -2))])
    for shape in ((3, 4, 4), (2, 50, 50), (1, 33, 33)):
        a = _matrices(rng, shape, "float64")
        inverse, values, vectors = f(a)
        _close(inverse, np.linalg.inv(a))
        _close((vectors * values[..., None, :]) @ _adjoint(vectors), a @ _adjoint(a))


@pytest.fixture
def scipys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let LAPACK be SciPy's, with integers of 32 bits."""
    caches = (lapack._library, lapack._function)
    for cache in caches:
        cache.cache_clear()
    monkeypatch.setattr(lapack, "find_blas", lambda: None)
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.usefixtures("scipys")
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_integers_may_have_32_bits(dtype: str, rng: Rng) -> None:
    a = _matrices(rng, (3, 40, 40), dtype)
    b, definite = a[..., :1].copy(), _definite(a)
    x, inverse, values, vectors, q, r, u, s, vh = _run(
        lambda a, b, c: [L.solve(a, b), L.inv(a), *L.eigh(c), *L.qr(a), *L.svd(a)], a, b, definite
    )
    _close(a @ x, b, dtype)
    _close(inverse @ a, np.broadcast_to(np.eye(40), a.shape), dtype)
    _close((vectors * values[..., None, :]) @ _adjoint(vectors), definite, dtype)
    _close(q @ r, a, dtype)
    _close((u * s[..., None, :]) @ vh, a, dtype)
    with pytest.raises(LinAlgError, match=r"inv: matrix \[2\] of the batch"):
        _run(L.inv, a * np.array([1, 1, 0])[:, None, None].astype(dtype))


@pytest.mark.usefixtures("scipys")
def test_without_a_library_the_array_expression_runs_and_the_report_says_so(
    monkeypatch: pytest.MonkeyPatch, rng: Rng
) -> None:
    monkeypatch.setattr(lapack, "scipy_blas", lambda: None)
    a = _matrices(rng, (40, 40), "float64")
    x = mg.input("x", a.shape, "float64")
    with pytest.warns(mg.errors.FallbackWarning, match="no library with LAPACK's routines"):
        f = mg.function([x], L.inv(x))
        _close(f(a), np.linalg.inv(a))
    assert "no library with LAPACK's routines" in " ".join(str(f.report).split())


def test_the_library_is_that_of_the_products() -> None:
    blas = find_blas()
    assert blas is not None
    names = lapack._names(np.dtype(np.float64))
    assert names[:3] == ["dgetrf", "dgetri", "dpotrf"]
    if "openblas" in blas.path:
        assert lapack._exported(blas, names) is not None


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("sides", [(200, 3), (3, 200), (120, 40)])
def test_workspaces_suffice_for_each_of_lapacks_ways(
    sides: tuple[int, int], dtype: str, rng: Rng
) -> None:
    """Decompose matrices that are much longer in one direction, which takes QR first."""
    from scipy.linalg import get_lapack_funcs

    a = _matrices(rng, sides, dtype)
    for full in (True, False):
        u, s, vh = _run(lambda a: L.svd(a, full), a)  # noqa: B023
        count = s.size
        _close((u[:, :count] * s) @ vh[:count], a, dtype)
        (ask,) = get_lapack_funcs(("gesdd_lwork",), dtype=a.dtype)
        best = int(ask(*sides, full_matrices=full)[0].real)
        node = L.svd(mg.input("x", sides, dtype), full)[0].inputs[0]
        arrays = a.size + u.size + vh.size
        assert family.bytes_of_one(node, node.inputs[0].type) >= (best + arrays) * a.itemsize
