"""Arithmetic of generated CUDA on values at the ends of the range, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from table import assert_agrees

import magmagraph as mg



ENDS = np.array(
    [0.0, -0.0, 1.0, -3.0, 6.0, 1e-45, -1e-40, 1.2e-38, 3e-30, 7e15, 1e38, 3.4e38, -2e38,
     np.inf, -np.inf, np.nan],
    "f4",
)
LENGTHS = (7, 64, 1000, 8192, 20000)


def on_device(build: Any, *arrays: np.ndarray) -> np.ndarray:
    inputs = [mg.var(f"x{i}", shape=a.shape, dtype=a.dtype) for i, a in enumerate(arrays)]
    return mg.function(inputs, build(*inputs), device="cpu")(*arrays)


@pytest.mark.parametrize("width", [16, 64])
def test_quotients_by_rows(width: int) -> None:
    values = np.tile(ENDS, (ENDS.size, width // ENDS.size))
    rows = ENDS[:, None]
    with np.errstate(all="ignore"):
        wanted = values / rows
    found = on_device(lambda x, r: x / r, values, rows)
    assert_agrees(found, wanted, "exact", np.float32(1e-38))
    np.testing.assert_array_equal(np.signbit(found[wanted == 0]), np.signbit(wanted[wanted == 0]))


def test_quotients_that_are_whole_stay_so(rng: np.random.Generator) -> None:
    whole = rng.integers(-(1 << 20), 1 << 20, (64, 300)).astype("f4")
    rows = rng.integers(1, 16, (64, 1)).astype("f4")
    np.testing.assert_array_equal(on_device(lambda x, r: x / r, whole * rows, rows), whole)
    ones = on_device(lambda x, r: x / r, np.broadcast_to(rows, (64, 300)).copy(), rows)
    np.testing.assert_array_equal(ones, 1)


def test_sigmoids_at_the_ends() -> None:
    x = np.concatenate([ENDS, np.linspace(-110, 110, 4001, dtype="f4")])
    with np.errstate(all="ignore"):
        wanted = 1 / (1 + np.exp(-x.astype("f8")))
    assert_agrees(on_device(mg.sigmoid, x), wanted.astype("f4"), "exact", np.float32(1e-30))


@pytest.mark.parametrize("length", LENGTHS)
def test_rows_that_are_not_finite(length: int, rng: np.random.Generator) -> None:
    x = 30 * rng.standard_normal((9, length)).astype("f4")
    x[1, 3] = np.nan
    x[2, 5] = np.inf
    x[3, :] = -np.inf
    x[4, : length // 2] = -np.inf
    x[5, :] = 3e38
    x[6, -1] = np.nan
    x[7, -1] = -np.inf
    wide = x.astype("f8")
    with np.errstate(all="ignore"):
        top = wide.max(1, keepdims=True)
        part = np.exp(wide - top)
        softmax = part / part.sum(1, keepdims=True)
        finite = np.where(np.isfinite(top), top, 0)
        log = finite[:, 0] + np.log(np.exp(wide - finite).sum(1))
    assert_agrees(on_device(mg.softmax, x), softmax, "reassoc")
    assert_agrees(on_device(lambda v: mg.logsumexp(v, axis=1), x), log, "reassoc", 100)
    np.testing.assert_array_equal(
        on_device(lambda v: mg.max(v, axis=1) + 0 * mg.sum(mg.isnan(v), axis=1), x), x.max(1)
    )


@pytest.mark.parametrize("dtype", [np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)])
def test_conversions_of_every_narrow_value(dtype: np.dtype) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    with np.errstate(all="ignore"):
        wide = every.astype("f4")
    name = "float16" if dtype.kind == "f" else "bfloat16"
    np.testing.assert_array_equal(on_device(lambda v: mg.cast(v, "float32"), every), wide)
    with np.errstate(all="ignore"):
        above, below = np.nextafter(wide, np.inf), np.nextafter(wide, -np.inf)
        between = (wide[:-1] + wide[1:]) / 2
        halves = np.concatenate([above, below, wide * 1.5, between, ENDS])
        wanted = halves.astype(dtype).astype("f4")
    found = on_device(lambda v: mg.cast(mg.cast(v, name), "float32"), halves)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("length", [64, 1024, 8192])
def test_means_of_equal_numbers_are_exact(length: int) -> None:
    values = np.array([10000.1, -3.3e-7, 7e30, 0.1], "f4")
    x = np.repeat(values[:, None], length, axis=1)
    np.testing.assert_array_equal(on_device(lambda v: mg.mean(v, axis=1), x), values)
    np.testing.assert_array_equal(on_device(lambda v: mg.layer_norm(v), x), 0)
