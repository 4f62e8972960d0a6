"""Steps that join pieces of arrays: rolls, and parts of several arrays."""

from __future__ import annotations

import numpy as np
import pytest

import magmagraph as mg


@pytest.fixture(params=["kernels", "kernels on 2 threads", "no compiler"], autouse=True)
def _how(request, monkeypatch) -> None:
    if request.param == "no compiler":
        monkeypatch.setattr(mg.config, "compiler", "off")
    else:
        monkeypatch.setattr(mg.config, "threads", 1 + ("2" in request.param))


@pytest.mark.parametrize("dtype", ["bool", "float16", "int32", "float64", "complex128"])
def test_rolls(rng, dtype):
    """Along an axis of a named size, positions are computed, and rows taken there."""
    x = mg.input("x", (3, "n", 5), dtype)
    rolls = [((1, -2), (0, 2)), ((3,), (1,)), ((-1, 1, 4), (0, 1, 2))]
    f = mg.function([x], [mg.roll(x, shift, axis) for shift, axis in rolls], device="cpu")
    assert [step.node.op.name for step in f.plan.steps].count("join_pieces") == 4
    for n in (7, 1, 400, 0):
        data = (4 * rng.standard_normal((3, n, 5))).astype(dtype)
        for found, (shift, axis) in zip(f(data), rolls, strict=True):
            np.testing.assert_array_equal(found, np.roll(data, shift, axis), strict=True)


def test_pieces_of_several_arrays(rng):
    x, y = mg.input("x", (6, "n")), mg.input("y", (4, "n"))
    f = mg.function([x, y], mg.concatenate([x[5:], y, x[1:3], y[:0], x]), device="cpu")
    assert [step.node.op.name for step in f.plan.steps] == ["join_pieces"]
    for n in (3, 1000):
        a, b = rng.standard_normal((2, 6, n)).astype(np.float32)
        b = b[:4]
        np.testing.assert_array_equal(f(a, b), np.concatenate([a[5:], b, a[1:3], b[:0], a]))


def test_rolls_in_loops(rng):
    x = mg.input("x", (40, 30))

    def step(u, _):
        return 0.5 * u + 0.25 * (mg.roll(u, 1, 0) + mg.roll(u, -1, 1)), None

    f = mg.function([x], mg.scan(step, x, None, length=9)[0], device="cpu")
    u = data = rng.standard_normal((40, 30)).astype(np.float32)
    for _ in range(9):
        u = np.float32(0.5) * u + np.float32(0.25) * (np.roll(u, 1, 0) + np.roll(u, -1, 1))
    assert mg.dtypes.tolerance(np.dtype("float32"), "reassoc").close(f(data), u)
