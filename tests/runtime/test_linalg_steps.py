"""Linear algebra of small matrices as C steps: values, batches, failures, loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import LinAlgError

pytest.importorskip("scipy")

ORDERS = (1, 2, 3, 5, 8, 17, 32, 50)
BATCHES = ((), (3,), (40,), (2, 9), (0,))
TOLERANCE = {"float64": 1e-10, "float32": 1e-3}


def _matrices(batch: tuple[int, ...], order: int, dtype: str) -> np.ndarray:
    random = np.random.default_rng(order)
    shape = (*batch, order, order)
    return (random.normal(size=shape) + 2 * np.sqrt(order) * np.eye(order)).astype(dtype)


def _definite(batch: tuple[int, ...], order: int, dtype: str) -> np.ndarray:
    a = _matrices(batch, order, "float64")
    return (a @ np.swapaxes(a, -1, -2) / order + np.eye(order)).astype(dtype)


def _sides(batch: tuple[int, ...], order: int, dtype: str) -> np.ndarray:
    return np.random.default_rng(7).normal(size=(*batch, order, 35)).astype(dtype)


def _compare(build: Callable[..., Any], reference: Callable[..., Any], *arrays: np.ndarray) -> None:
    """Compare results with NumPy's; every step must be a compiled one."""
    nodes = [mg.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    f = mg.function(nodes, build(*nodes))
    assert "array" not in {step.kernel for step in f.plan.steps}
    found, expected = f(*arrays), reference(*[a.astype(np.float64) for a in arrays])
    if not isinstance(found, list):
        found, expected = [found], [expected]
    tolerance = TOLERANCE[arrays[0].dtype.name]
    for value, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("order", ORDERS)
def test_values_are_those_of_numpy(order: int, batch: tuple[int, ...], dtype: str) -> None:
    a, b = _matrices(batch, order, dtype), _sides(batch, order, dtype)
    definite = _definite(batch, order, dtype)

    def build(a: Any, b: Any, c: Any) -> list[Any]:
        # Factors are shared by the first three; the last two have matrices of their own.
        return [
            mg.linalg.solve(a, b),
            *mg.linalg.slogdet(a),
            mg.linalg.inv(mg.swapaxes(a, -1, -2)),
            mg.linalg.cholesky(c),
            mg.linalg.solve(c, b),
        ]

    def reference(a: Any, b: Any, c: Any) -> list[Any]:
        return [
            np.linalg.solve(a, b),
            *np.linalg.slogdet(a),
            np.linalg.inv(np.swapaxes(a, -1, -2)),
            np.linalg.cholesky(c),
            np.linalg.solve(c, b),
        ]

    _compare(build, reference, a, b, definite)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("trans", ["N", "T"])
@pytest.mark.parametrize("unit", [False, True])
def test_triangles(lower: bool, trans: str, unit: bool) -> None:
    a, b = _definite((20,), 5, "float64"), _sides((20,), 5, "float64")

    def reference(a: Any, b: Any) -> Any:
        part = np.tril(a) if lower else np.triu(a)
        if unit:
            part = part * (1 - np.eye(5)) + np.eye(5)
        return np.linalg.solve(np.swapaxes(part, -1, -2) if trans == "T" else part, b)

    _compare(
        lambda a, b: mg.linalg.triangular_solve(a, b, lower=lower, trans=trans, unit_diagonal=unit),
        reference,
        a,
        b,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sides", [(1, 1), (3, 3), (9, 5), (5, 9), (64, 7), (2, 60)])
def test_qr_has_the_signs_of_lapack_at_any_scale(sides: tuple[int, int], dtype: str) -> None:
    random = np.random.default_rng(sides)
    x = mg.input("x", ("b", *sides), dtype)
    results = [*mg.linalg.qr(x), *mg.linalg.qr(x, "complete"), mg.linalg.qr(x, "r")]
    f = mg.function([x], results)
    for batch in (0, 1, 21):
        for scale in (1.0, 1e-30, 1e25):
            a = (random.normal(size=(batch, *sides)) * scale).astype(dtype)
            if min(sides) > 2:
                a[:3, 1:, 0] = 0  # nothing is below the diagonal: there is no reflection
                a[1:4, :, 1] = 0
            found, double = f(a), a.astype(np.float64)
            expected = [*np.linalg.qr(double), *np.linalg.qr(double, "complete")]
            expected.append(np.linalg.qr(double, "r"))
            for value, other in zip(found, expected, strict=True):
                size = np.abs(other).max(initial=1e-300)
                np.testing.assert_allclose(value / size, other / size, atol=TOLERANCE[dtype])
    assert {step.kernel for step in f.plan.steps} == {"linalg"}


def test_qr_keeps_nan_to_its_matrix() -> None:
    a = np.random.default_rng(0).normal(size=(5, 4, 3))
    a[2, 1, 1] = np.nan
    x = mg.input("x", a.shape, "float64")
    q, r = mg.function([x], list(mg.linalg.qr(x)))(a)
    assert np.isnan(q).any(axis=(1, 2)).tolist() == [False, False, True, False, False]
    np.testing.assert_allclose((q @ r)[3:], a[3:], atol=1e-12)


def test_batches_broadcast() -> None:
    a, b = _matrices((3, 1), 4, "float64"), _sides((1, 5), 4, "float64")
    _compare(mg.linalg.solve, np.linalg.solve, a, b)
    _compare(mg.linalg.solve, np.linalg.solve, a[0, 0], b)
    _compare(mg.linalg.solve, np.linalg.solve, a, b[0, 0])


def _check_eigenvalues(a: np.ndarray, scale: float, uplo: str = "L") -> None:
    """Compare eigenvalues with NumPy's of float64, and check the vectors by what they solve."""
    x = mg.input("x", a.shape, a.dtype)
    f = mg.function([x], [*mg.linalg.eigh(x, uplo), mg.linalg.eigvalsh(x, uplo)])
    assert {step.kernel for step in f.plan.steps} == {"linalg"}
    values, vectors, alone = map(np.asarray, f(a))
    exact = a.astype(np.float64)
    expected = np.linalg.eigvalsh(exact / scale, uplo)
    order = a.shape[-1]
    bound = 8 * np.finfo(a.dtype).eps * order * max(np.abs(expected).max(), 1.0)
    with np.errstate(under="ignore"):
        values, alone = values / scale, alone / scale
    assert np.abs(values - expected).max() <= bound
    assert np.abs(alone - expected).max() <= bound
    assert (np.diff(values, axis=-1) >= 0).all()
    wide = vectors.astype(np.float64)
    assert np.abs(np.swapaxes(wide, -1, -2) @ wide - np.eye(order)).max() <= bound
    assert np.abs(exact / scale @ wide - wide * values[..., None, :]).max() <= bound


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e30])
def test_eigenvalues_at_any_scale(dtype: str, scale: float) -> None:
    random = np.random.default_rng(3)
    for order in (1, 2, 3, 5, 16, 33):
        a = random.normal(size=(40, order, order))
        if order > 2:
            a[..., 0, 1:] = a[..., 1:, 0] = 0  # a vector that is one of the axes
        a[0] = np.eye(order)  # all are equal
        a = ((a + np.swapaxes(a, -1, -2)) * scale).astype(dtype)
        _check_eigenvalues(a, scale)


@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_eigenvalues_of_matrices_that_fall_apart(dtype: str, uplo: str) -> None:
    # Lanes of one vector end at different places, and some have nothing to do.
    powers = 10.0 ** -np.arange(0, 36, 6)
    one = np.eye(6)
    cases = [
        np.zeros((6, 6)), one, np.diag(powers), np.diag(powers[::-1]), np.ones((6, 6)),
        np.outer(powers, powers), one[::-1], np.eye(6, k=1) + np.eye(6, k=-1),
        np.diag([1.0, 1.0, 1.0, 2.0, 2.0, 2.0]), np.kron(np.eye(3), [[0.0, 1.0], [1.0, 0.0]]),
        np.kron(np.eye(2), [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]),
        np.diag([1.0, 0, 0, 0, 0, 0]) + 1e-30 * (1 - one), one + 1e-9 * np.ones((6, 6)),
        1e-30 * (np.eye(6, k=1) + np.eye(6, k=-1)) + np.diag([1.0, 0, 0, 0, 0, 1.0]),
        np.diag(powers) - 0.5 * (np.eye(6, k=1) + np.eye(6, k=-1)), one - np.ones((6, 6)) / 6,
    ]  # fmt: skip
    _check_eigenvalues(np.array(cases).astype(dtype), 1.0, uplo)
    for least in (np.finfo(dtype).smallest_subnormal, np.finfo(dtype).tiny):
        x = mg.input("x", (16, 3, 3), dtype)
        values = mg.function([x], mg.linalg.eigh(x)[0])(np.full((16, 3, 3), least, dtype))
        np.testing.assert_allclose(values[:, 2], 3 * least, rtol=0.5)


def test_eigenvectors_of_a_batch_of_unknown_size(rng: np.random.Generator) -> None:
    x = mg.input("x", ("b", 5, 5), "float64")
    values, vectors = mg.linalg.eigh(x)
    f = mg.function([x], [values, mg.grad(mg.sum(vectors**4) + mg.sum(values**3), x)])
    a = rng.normal(size=(70, 5, 5))
    a = a + np.swapaxes(a, -1, -2)
    many = f(a)  # by the kernels of batches; one alone by LAPACK
    for place in (0, 66):
        for found, one in zip(many, f(a[place : place + 1]), strict=True):
            np.testing.assert_allclose(found[place], one[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("place", [0, 7, 19])
def test_a_failure_names_the_matrix_and_changes_nothing(place: int) -> None:
    x = mg.input("x", ("b", 3, 3), "float64")
    count = mg.var("count", init=np.zeros(()))
    good = np.stack([np.eye(3)] * 20)
    bad = good.copy()
    bad[place] = 0
    for result in (mg.linalg.inv(x), mg.linalg.cholesky(x)):
        f = mg.function([x], mg.sum(result), updates={count: count + 1})
        before = float(count.value)
        with pytest.raises(LinAlgError, match=rf"matrix \[{place}\] of the batch \(20,\)"):
            f(bad)
        assert float(count.value) == before
        assert float(f(good)) == 60.0
        assert float(count.value) == before + 1


@pytest.mark.parametrize("order", [4, 9, 35])
@pytest.mark.parametrize("pivot", [0, 2, -1])
def test_an_indefinite_matrix_of_a_batch_is_named(order: int, pivot: int) -> None:
    a = _definite((20,), order, "float64")
    a[13, pivot, pivot] -= 100.0
    x = mg.input("x", a.shape, "float64")
    with pytest.raises(LinAlgError, match=r"matrix \[13\] of the batch \(20,\)"):
        mg.function([x], mg.linalg.cholesky(x))(a)


def test_singular_matrices_have_determinants() -> None:
    a = np.stack([np.ones((3, 3)), np.zeros((3, 3)), np.eye(3)])
    _compare(mg.linalg.det, np.linalg.det, a)
    x = mg.input("x", a.shape, "float64")
    sign, size = mg.function([x], list(mg.linalg.slogdet(x)))(a)
    np.testing.assert_array_equal(sign, [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(size, [-np.inf, -np.inf, 0.0])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_eigenvalues_refuse_what_is_not_finite(value: float) -> None:
    x = mg.input("x", (4, 3, 3))
    a = np.stack([np.eye(3, dtype=np.float32)] * 4)
    a[2, 1, 1] = value
    with pytest.raises(LinAlgError, match=r"matrix \[2\] of the batch \(4,\) holds NaN or inf"):
        mg.function([x], mg.linalg.eigvalsh(x))(a)
    x, a = mg.input("x", (20, 3, 3)), np.concatenate([a] * 5)
    with pytest.raises(LinAlgError, match=r"matrix \[2\] of the batch \(20,\) holds NaN or inf"):
        mg.function([x], mg.linalg.eigh(x)[1])(a)


def test_a_loop_stays_in_c_and_names_the_iteration_that_failed() -> None:
    x = mg.input("x", ("t", 3, 3), "float64")

    def body(carry: Any, a: Any) -> tuple[Any, Any]:
        new = mg.linalg.solve(a, mg.tanh(carry))
        return new, mg.sum(new) + mg.linalg.slogdet(a)[1]

    last, rows = mg.scan(body, mg.constant(np.ones((3, 1))), x)
    f = mg.function([x], [last, rows])
    assert [step.kernel for step in f.plan.steps] == ["loop"]
    good = _matrices((20,), 3, "float64")
    expected = np.ones((3, 1))
    for a in good:
        expected = np.linalg.solve(a, np.tanh(expected))
    np.testing.assert_allclose(f(good)[0], expected, rtol=1e-9)
    bad = good.copy()
    bad[5] = 0
    with pytest.raises(LinAlgError, match=r"iteration 5 of 20\n  node: .* by solve") as error:
        f(bad)
    assert "test_linalg_steps.py" in str(error.value)
    np.testing.assert_allclose(f(good)[0], expected, rtol=1e-9)
