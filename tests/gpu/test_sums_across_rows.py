"""Rows that are kept, with sums across them in registers: lengths, dtypes, few and many rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import magmagraph as mg

pytestmark = pytest.mark.gpu


def slopes(rows: Any, columns: int, dtype: str) -> tuple[list[Any], list[Any]]:
    """Return a layer norm's gradients, and a sum of another kind across the same rows."""
    x, up = mg.input("x", (rows, columns), dtype), mg.input("up", (rows, columns), dtype)
    scale = mg.input("scale", (columns,))
    wide = mg.cast(x, "float32")
    centered = wide - mg.mean(wide, 1, keepdims=True)
    result = centered / mg.sqrt(mg.mean(centered**2, 1, keepdims=True) + 1e-3) * scale
    loss = mg.sum(result * mg.cast(up, "float32"))
    return [x, up, scale], [*mg.grad(loss, [x, scale]), mg.sum(mg.cast(up, "float32"), 0)]


def both(rows: Any, columns: int, dtype: str) -> tuple[list[Any], list[Any]]:
    x = mg.input("x", (rows, columns), dtype)
    power = mg.exp(mg.cast(x, "float32"))
    return [x], [mg.sum(power, 0), mg.sum(power, 1), mg.max(power, 0)]


@pytest.mark.parametrize("make", [slopes, both])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize(
    ("rows", "columns"),
    [(1, 8), (5, 64), (1000, 70), (333, 333), (4099, 768), (300, 1030), (100, 2056), (40, 4104),
     (9, 20_000)],
)  # fmt: skip
@pytest.mark.parametrize("named", [False, True])
def test_sums_across_rows(
    make: Any, dtype: str, rows: int, columns: int, named: bool, rng: np.random.Generator
) -> None:
    inputs, outputs = make("n" if named else rows, columns, dtype)
    shapes = [(rows, columns) if x.ndim == 2 else (columns,) for x in inputs]
    feeds = [
        np.asarray(rng.standard_normal(shape), np.float32).astype(x.dtype)
        for shape, x in zip(shapes, inputs, strict=True)
    ]
    results = mg.function(inputs, outputs, device="cuda")(*feeds)
    exact_inputs, exact = make(rows, columns, "float64")
    wanted = mg.function(exact_inputs, exact, device="cpu")(
        *(np.asarray(feed, np.float64 if feed.ndim == 2 else np.float32) for feed in feeds)
    )
    for found, right in zip(results, wanted, strict=True):
        found, right = found.get().astype(float), np.asarray(right, float)
        bound = {"bfloat16": 8e-3 if found.shape == (rows, columns) else 2e-5}.get(dtype, 2e-5)
        np.testing.assert_allclose(found, right, rtol=bound, atol=bound * np.abs(right).max())
