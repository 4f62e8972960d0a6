"""The CPU's kernels that read, and add up, at computed positions: `mg_take`, `mg_scatter_add`."""

from __future__ import annotations

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import ShapeError
from magmagraph.runtime.cpu.products.products import scatter_add_step
from magmagraph.runtime.cpu.support import Program, address_of

pytestmark = pytest.mark.skipif(mg.config.compiler == "off", reason="no kernels without a compiler")

CASES = [((5,), 0), ((5, 3), 0), ((4, 7, 3), 1), ((2, 3, 9), 2), ((3, 0), 0), ((700, 600), 0)]
COUNTS = [(), (1,), (6,), (2, 3), (0,), (40, 50)]
DTYPES = ["bool", "int8", "float16", "int32", "float32", "float64", "complex128"]


def settled(positions: np.ndarray, extent: int, mode: str) -> np.ndarray:
    if mode == "wrap":
        return positions % extent
    return np.clip(np.where(positions < 0, positions + extent, positions), 0, extent - 1)


@pytest.fixture(params=[1, 2], autouse=True)
def _threads(request, monkeypatch) -> None:
    monkeypatch.setattr(mg.config, "threads", request.param)


def families(f: mg.Function) -> set[str]:
    return {step.kernel for step in f.plan.steps}


@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("wide", ["int32", "int64"])
@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_rows_at_positions(rng, shape, axis, mode, wide):
    for number, count in enumerate(COUNTS):
        dtype = DTYPES[number % len(DTYPES)]
        x, i = mg.input("x", shape, dtype), mg.input("i", count, wide)
        f = mg.function([x, i], mg.take(x, i, axis=axis, mode=mode), device="cpu")
        held = (10 * rng.standard_normal(shape)).astype(dtype)
        at = rng.integers(-2000, 2000, count).astype(wide)
        wanted = np.take(held, settled(at, shape[axis], mode), axis=axis)
        np.testing.assert_array_equal(f(held, at), wanted, strict=True)
        assert families(f) == {"indexed"}


@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_rows_added_up_at_positions(rng, shape, axis, mode, dtype):
    """Each sum has the order of its rows: the bits are those of NumPy's."""
    for number, count in enumerate(COUNTS):
        wide = ("int32", "int64")[number % 2]
        taken = (*shape[:axis], *count, *shape[axis + 1 :])
        x, i = mg.input("x", shape, dtype), mg.input("i", count, wide)
        v = mg.input("v", taken, dtype)
        loss = mg.sum(mg.take(x, i, axis=axis, mode=mode) * v)
        f = mg.function([x, i, v], mg.grad(loss, x), device="cpu")
        held, values = np.zeros(shape, dtype), rng.standard_normal(taken).astype(dtype)
        at = rng.integers(-2000, 2000, count).astype(wide)
        places = settled(at, shape[axis], mode).reshape(-1)
        wanted = np.zeros(shape, dtype)
        rows = values.reshape(*shape[:axis], places.size, *shape[axis + 1 :])
        np.add.at(np.moveaxis(wanted, axis, 0), places, np.moveaxis(rows, axis, 0))
        np.testing.assert_array_equal(f(held, at, values), wanted, strict=True)
        assert "indexed" in families(f)


@pytest.mark.parametrize("parts", [0, 1, 2])
@pytest.mark.parametrize("width", [1, 5])
def test_rows_are_added_to_parts_that_are_there(parts, width):
    """With no parts nothing is written: the memory around the result stays as it was."""
    rows, count = 2, 3
    memory = np.full(400, 7.0, np.float32)
    out = memory[100 : 100 + parts * rows * width]
    values, at = np.ones((max(parts, 1), count, width), np.float32), np.array([1, 0, 1])
    step = scatter_add_step(
        np.dtype(np.float32), address_of(memory[100:]), address_of(values), address_of(at), parts,
        rows, count, width,
    )
    Program([step]).run()
    np.testing.assert_array_equal(out.reshape(parts, rows, width)[:, 0], 1.0)
    np.testing.assert_array_equal(out.reshape(parts, rows, width)[:, 1], 2.0)
    assert (memory[:100] == 7).all()
    assert (memory[100 + out.size :] == 7).all()


def test_positions_of_other_dtypes_go_through_numpy(rng):
    x, i = mg.input("x", (5,)), mg.input("i", (3,), "uint8")
    f = mg.function([x, i], mg.take(x, i), device="cpu")
    held = rng.standard_normal(5).astype(np.float32)
    np.testing.assert_array_equal(f(held, np.array([4, 0, 200], np.uint8)), held[[4, 0, 4]])
    assert families(f) == {"array"}


def test_an_axis_that_turns_out_empty_is_refused():
    x, i = mg.input("x", ("n", 3)), mg.input("i", ("k",), "int64")
    f = mg.function([x, i], mg.take(x, i, axis=0), device="cpu")
    assert f(np.ones((2, 3), np.float32), np.array([1, 0])).shape == (2, 3)
    with pytest.raises(ShapeError, match="axis 0 is empty, and 2 elements of it are taken"):
        f(np.ones((0, 3), np.float32), np.array([1, 0]))
    assert f(np.ones((0, 3), np.float32), np.array([], np.int64)).shape == (0, 3)


def test_loops_that_read_at_positions_stay_in_c(rng):
    """Python would run each iteration of one, forward and backward."""
    table, start = mg.input("table", (6, 4)), mg.input("start", (3,), "int64")

    def step(at, _):
        rows = mg.take(table, at, axis=0)
        return mg.cast(mg.argmax(rows, axis=1), "int64"), mg.sum(mg.tanh(rows))

    _, sums = mg.scan(step, start, None, length=20)
    f = mg.function([table, start], mg.grad(mg.sum(sums), table), device="cpu")
    held, first = rng.standard_normal((6, 4)).astype(np.float32), np.array([5, 0, 3])
    found = f(held, first)
    wanted, at = np.zeros((6, 4)), first
    for _ in range(20):
        rows = held[at].astype(np.float64)
        np.add.at(wanted, at, 1.0 - np.tanh(rows) ** 2)
        at = np.argmax(rows, axis=1)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
    assert f._last.is_program
