"""The CPU's kernels that read, and combine, at computed positions: `mg_take`, `mg_update`."""

from __future__ import annotations

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import is_bool, is_complex, is_float, tolerance
from magmagraph.errors import ShapeError
from magmagraph.runtime.cpu.support import Program, address_of
from magmagraph.runtime.cpu.updates import update_step

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
    step = update_step(
        np.dtype(np.float32), "add", address_of(memory[100:]), address_of(values), address_of(at),
        parts, rows, count, width,
    )
    Program([step]).run()
    np.testing.assert_array_equal(out.reshape(parts, rows, width)[:, 0], 1.0)
    np.testing.assert_array_equal(out.reshape(parts, rows, width)[:, 1], 2.0)
    assert (memory[:100] == 7).all()
    assert (memory[100 + out.size :] == 7).all()


UPDATED = [*DTYPES, "uint8", "int64", "complex64"]
# Few rows, columns of several threads, rows of several threads, one element a row, nothing.
UPDATES = [((3, 2), 5), ((40, 128), 600), ((3000, 5), 15_011), ((501,), 70_001), ((4, 0), 3)]


def combined(how: str, x: np.ndarray, at: np.ndarray, values: np.ndarray) -> np.ndarray:
    found = x.copy()
    if how == "set":
        found[at] = values
    else:
        name = {"min": "minimum", "max": "maximum"}.get(how, how)
        getattr(np, name).at(found, at, values)
    return found


def whole(rng, shape, dtype) -> np.ndarray:
    """Return small whole numbers, whose sums are exact in any order."""
    held = rng.integers(0 if np.dtype(dtype).kind in "ub" else -3, 4, shape)
    return (held * (1 + 1j)).astype(dtype) if is_complex(np.dtype(dtype)) else held.astype(dtype)


@pytest.mark.parametrize("how", ["set", "add", "multiply", "min", "max"])
@pytest.mark.parametrize("dtype", UPDATED)
def test_rows_are_updated_at_positions(rng, how, dtype):
    """All dtypes and ways to combine; some have no kernel, and are an array expression."""
    kind = np.dtype(dtype)
    if is_complex(kind) and how in ("min", "max"):
        pytest.skip("complex numbers have no order")
    if is_bool(kind) and how == "multiply":
        pytest.skip("bools are not multiplied")
    narrow = is_float(kind) and kind.itemsize < 4
    kernel = how == "set" or not (narrow or is_bool(kind) or (is_complex(kind) and how != "add"))
    for number, (shape, count) in enumerate(UPDATES):
        wide = ("int32", "int64")[number % 2]
        x, i = mg.input("x", shape, dtype), mg.input("i", (count,), wide)
        v = mg.input("v", (count, *shape[1:]), dtype)
        f = mg.function([x, i, v], getattr(x.at[i], how)(v), device="cpu")
        held, values = whole(rng, shape, dtype), whole(rng, (count, *shape[1:]), dtype)
        if how == "multiply":
            values = np.where(values < 0, -1, 1).astype(dtype)  # products that stay finite
        at = rng.integers(-shape[0], shape[0], count).astype(wide)
        wanted = combined(how, held, settled(at, shape[0], "clip"), values)
        np.testing.assert_array_equal(f(held, at, values), wanted, strict=True)
        assert families(f) == {"indexed" if kernel else "array"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("how", ["add", "min", "max"])
@pytest.mark.parametrize("count", [9, 50_000])
def test_nan_and_signed_zeros_at_positions(rng, dtype, how, count):
    """NaN stays in its row, whichever comes first; rows without values keep minus zero."""
    x, i = mg.input("x", (50,), dtype), mg.input("i", (count,), "int32")
    v = mg.input("v", (count,), dtype)
    f = mg.function([x, i, v], getattr(x.at[i], how)(v), device="cpu")
    held = np.full(50, -0.0, dtype)
    held[3] = np.nan
    values = rng.integers(-3, 4, count).astype(dtype)
    at = rng.integers(0, 40, count)
    values[at == 7] = 5.0
    values[np.flatnonzero(at == 7)[:1]] = np.nan
    with np.errstate(invalid="ignore"):
        wanted = combined(how, held, at, values)
    found = f(held, at.astype(np.int32), values)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found[40:]), True)


def test_sums_of_many_values_in_few_rows_are_the_same_on_any_number_of_threads(rng, monkeypatch):
    values = rng.standard_normal((60_000, 3)).astype(np.float32)
    at = rng.integers(0, 11, 60_000)
    found = []
    for threads in (1, 2, 3):
        x, i = mg.input("x", (11, 3)), mg.input("i", (60_000,), "int64")
        v = mg.input("v", (60_000, 3))
        monkeypatch.setattr(mg.config, "threads", threads)
        f = mg.function([x, i, v], x.at[i].add(v), device="cpu")
        found.append(f(np.zeros((11, 3), np.float32), at, values))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    wanted = np.zeros((11, 3))
    np.add.at(wanted, at, values)
    scale = np.zeros((11, 3))
    np.add.at(scale, at, np.abs(values))
    assert tolerance(np.dtype("float32"), "reassoc").close(found[0], wanted, scale)


def test_an_update_of_no_rows_is_refused():
    x, i, v = mg.input("x", ("n",)), mg.input("i", ("k",), "int64"), mg.input("v", ("k",))
    f = mg.function([x, i, v], x.at[i].add(v), device="cpu")
    nothing = np.zeros(0, np.float32)
    assert f(nothing, np.zeros(0, np.int64), nothing).shape == (0,)
    with pytest.raises(ShapeError, match="axis 0 is empty, and 2 elements of it are written"):
        f(nothing, np.zeros(2, np.int64), np.ones(2, np.float32))


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
