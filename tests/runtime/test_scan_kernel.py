"""The CPU's kernel of running sums, products and extremes: `mg_scan`."""

from __future__ import annotations

import numpy as np
import pytest

import magmagraph as mg

pytestmark = pytest.mark.skipif(mg.config.compiler == "off", reason="no kernels without a compiler")

UFUNCS = {
    "cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum,
}  # fmt: skip
# One line, lines of one element, eight lines and some, blocks of columns, nothing.
SHAPES = [((1,), 0), ((19, 1), 1), ((19, 50), 1), ((3, 40, 1030), 1), ((0, 4), 1), ((4, 0), 1)]


@pytest.fixture(params=[1, 2], autouse=True)
def _threads(request, monkeypatch) -> None:
    monkeypatch.setattr(mg.config, "threads", request.param)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", UFUNCS)
@pytest.mark.parametrize("dtype", ["uint32", "int64", "float32", "float64", "complex64"])
def test_scans_have_numpys_bits(rng, dtype, name, reverse):
    kind = np.dtype(dtype)
    if kind.kind == "c" and name in ("cummax", "cummin"):
        pytest.skip("complex numbers have no order")
    for shape, axis in SHAPES:
        x = mg.input("x", shape, dtype)
        f = mg.function([x], getattr(mg, name)(x, axis=axis, reverse=reverse), device="cpu")
        data = rng.integers(0, 5, shape) - rng.random(shape) * (kind.kind in "fc")
        if kind.kind == "f":
            data[rng.random(shape) < 0.01] = np.nan
        data = data.astype(dtype)
        turned = np.flip(data, axis) if reverse else data
        with np.errstate(all="ignore"):
            wanted = UFUNCS[name].accumulate(turned, axis=axis, dtype=dtype)
        wanted = np.flip(wanted, axis) if reverse else wanted
        found = f(data)
        if kind.kind == "c" and name == "cumprod":
            close = mg.dtypes.tolerance(kind, "reassoc").close
            assert close(found, wanted, np.abs(wanted))
        else:
            np.testing.assert_array_equal(found, wanted, strict=True)
            assert {step.kernel for step in f.plan.steps} == {"scan"}


def test_a_scan_may_overwrite_its_operand(rng):
    """The sum before it is read by nobody else."""
    x = mg.input("x", (30, 40))
    f = mg.function([x], mg.exp(mg.cummax(mg.cumsum(mg.tanh(x), axis=1), axis=0)), device="cpu")
    data = rng.standard_normal((30, 40)).astype(np.float32)
    sums = np.add.accumulate(np.tanh(data), axis=1)
    wanted = np.exp(np.maximum.accumulate(sums, axis=0))
    assert mg.dtypes.tolerance(np.dtype("float32"), "reassoc").close(f(data), wanted, wanted)


def test_scans_of_half_numbers_go_through_numpy(rng):
    x = mg.input("x", (5,), "float16")
    f = mg.function([x], mg.cumsum(x), device="cpu")
    data = rng.integers(0, 5, 5).astype(np.float16)
    np.testing.assert_array_equal(f(data), np.cumsum(data))
    assert {step.kernel for step in f.plan.steps} == {"array"}
