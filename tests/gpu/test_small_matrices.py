"""Linear algebra of small matrices on a GPU: values, gradients, errors, loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import magmagraph as mg

pytestmark = pytest.mark.gpu

ORDERS = (1, 2, 5, 16, 31, 64)


def on_gpu(inputs: Any, outputs: Any, **how: Any) -> Any:
    return mg.function(inputs, outputs, device="cuda", **how)


def matrices(n: int, count: int = 7) -> np.ndarray:
    x = np.random.default_rng(n).standard_normal((count, n, n))
    return x @ x.swapaxes(1, 2) + n * np.eye(n)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", ORDERS)
def test_values_and_gradients_are_those_of_the_cpu(n: int, dtype: str) -> None:
    a, b = mg.input("a", ("k", n, n), dtype), mg.input("b", (n, 3), dtype)
    sign, size = mg.linalg.slogdet(a)
    outputs = [
        mg.linalg.solve(a, b), mg.linalg.inv(a), mg.linalg.cholesky(a), sign, size,
        mg.linalg.det(a / n), *mg.linalg.lu_factor(a),
        mg.linalg.triangular_solve(a, mg.broadcast_to(b, (a.shape[0], n, 3)), lower=True),
    ]  # fmt: skip
    loss = mg.sum(outputs[0] ** 2) + mg.sum(size) + mg.sum(mg.sin(outputs[2]))
    outputs += mg.grad(loss, [a, b])
    f = on_gpu([a, b], outputs)
    x, y = matrices(n).astype(dtype), np.ones((n, 3), dtype)
    wanted = mg.function([a, b], outputs, device="cpu")(x, y)
    tolerance = 2e-3 if dtype == "float32" else 1e-9
    for _ in range(3):  # launched one by one, captured, launched as a graph
        for found, one in zip(f(x, y), wanted, strict=True):
            np.testing.assert_allclose(found.get(), one, tolerance, tolerance)
    rows = [row for row in f.plan.steps if row.family.name == "linalg"]
    assert len(rows) >= 5


def test_many_matrices_and_none() -> None:
    a = mg.input("a", ("k", 6, 6))
    f = on_gpu([a], mg.linalg.inv(a))
    for count in (100_000, 1, 0, 3):
        x = matrices(6, count).astype(np.float32)
        np.testing.assert_allclose(f(x).get(), np.linalg.inv(x), 1e-3, 1e-4)


def test_errors_are_those_of_the_cpu_and_leave_variables_alone() -> None:
    a = mg.input("a", (4, 3, 3))
    total = mg.var("total", init=np.float32(1.0))
    cases = {
        "solve": (mg.linalg.solve(a, mg.ones((4, 3, 2))), "singular"),
        "inv": (mg.linalg.inv(a), "singular"),
        "cholesky": (mg.linalg.cholesky(a), "not positive definite"),
    }
    good = matrices(3, 4).astype(np.float32)
    bad = good.copy()
    bad[2] = 0
    for name, (node, words) in cases.items():
        made = mg.sum(node)
        f = on_gpu([a], made, updates={total: total + made})
        cpu = mg.function([a], made, device="cpu")
        f(good)
        before = float(total.value)
        for _ in range(3):
            with pytest.raises(mg.LinAlgError, match=words) as found:
                f(bad)
            with pytest.raises(mg.LinAlgError) as wanted:
                cpu(bad)
            assert str(found.value).split("\n")[0] == str(wanted.value).split("\n")[0], name
            assert float(total.value) == before
        f(good)
        assert float(total.value) != before
    bad[1, 0, 0] = np.nan
    with pytest.raises(mg.LinAlgError, match="NaN or infinite"):
        on_gpu([a], mg.linalg.cholesky(a))(bad)


def test_loops_with_solutions_are_launches_and_raise() -> None:
    xs = mg.input("xs", (20, 4, 4))
    start = mg.input("start", (4, 1))
    last, _ = mg.scan(lambda h, x: (mg.linalg.solve(x, h) * 3.0, None), start, xs)
    f = on_gpu([start, xs], last)
    h, x = np.ones((4, 1), np.float32), matrices(4, 20).astype(np.float32)
    wanted = h.astype(float)
    for one in x:
        wanted = np.linalg.solve(one, wanted) * 3.0
    for _ in range(3):
        np.testing.assert_allclose(f(h, x).get(), wanted, 1e-3, 1e-5)
    x[11] = 0
    with pytest.raises(mg.LinAlgError, match="singular"):
        f(h, x)
