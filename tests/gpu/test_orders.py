"""Functions on a device that read in another order, at other places, or in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmagraph as mg

pytestmark = pytest.mark.gpu


def five_points(m: Any, u: Any) -> Any:
    middle = u[1:-1, 1:-1]
    return u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * middle


def heat(m: Any, u: Any) -> Any:
    return u + 0.1 * (
        m.roll(u, 1, 0) + m.roll(u, -1, 0) + m.roll(u, 1, 1) + m.roll(u, -1, 1) - 4 * u
    )


def blur(m: Any, u: Any) -> Any:
    rows, columns = u.shape
    p = m.pad(u, 1)
    return sum(p[i : i + rows, j : j + columns] for i in range(3) for j in range(3)) / 9


def transposed(m: Any, u: Any) -> Any:
    return m.transpose(u) * 2 + m.exp(m.transpose(u))


def in_batches(m: Any, u: Any) -> Any:
    return m.transpose(m.stack([u, 2 * u]), (0, 2, 1)) + 1


def joined(m: Any, u: Any) -> Any:
    return m.exp(m.concatenate([u[:, ::2], u[:, :1], u], 1))


def sums(m: Any, u: Any) -> Any:
    return m.sum(m.abs(m.roll(u, 1, 0) - u), axis=1)


@pytest.mark.parametrize("shape", [(4, 333), (1027, 33), (512, 640), (333, 1002)], ids=str)
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("build", [five_points, heat, blur, transposed, in_batches, joined, sums])
def test_values(build: Callable[..., Any], named: bool, shape: tuple[int, int]) -> None:
    if named and build in (heat, sums):
        pytest.skip("rolls along named dimensions are gathers")
    u = np.random.default_rng(2).standard_normal(shape).astype("f4")
    x = mg.var("x", shape=("n", "m") if named else shape)
    f = mg.function([x], build(mg, x), device="cuda")
    wanted = build(np, u.astype("f8"))
    for _ in range(3):  # step by step, captured, replayed
        np.testing.assert_allclose(f(u).get(), wanted, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("build", [five_points, heat, blur])
def test_gradients(build: Callable[..., Any]) -> None:
    u = np.random.default_rng(3).standard_normal((333, 600))
    x = mg.var("x", shape=u.shape)
    y = mg.var("y", shape=u.shape, dtype="float64")
    f = mg.function([x], mg.grad(mg.sum(mg.square(build(mg, x))), x), device="cuda")
    exact = mg.function([y], mg.grad(mg.sum(mg.square(build(mg, y))), y))(u)
    for _ in range(3):
        np.testing.assert_allclose(f(u.astype("f4")).get(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [256, 333])
def test_state_that_is_read_in_another_order(n: int) -> None:
    """The new value of a variable is made of the old one, transposed, rolled and padded."""
    start = np.random.default_rng(4).standard_normal((n, n)).astype("f4")
    held = mg.var("held", init=start)

    def step(m: Any, u: Any) -> Any:
        return m.transpose(u) * 0.5 + m.roll(u, 1, 0) * 0.25 - m.pad(u, 1)[2:, 1:-1] * 0.125

    f = mg.function([], [], updates={held: step(mg, held)}, device="cuda")
    wanted = start.astype("f8")
    for _ in range(4):
        wanted = step(np, wanted)
        f()
    np.testing.assert_allclose(np.asarray(held.value), wanted, rtol=1e-5, atol=1e-5)
