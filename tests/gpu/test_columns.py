"""Folds along the first axis of arrays that are large enough for wide reads and narrow lanes."""

from __future__ import annotations

import numpy as np
import pytest
from table import assert_agrees, magnitude

import magmagraph as mg
from magmagraph.dtypes import canonical

pytestmark = pytest.mark.gpu

SHAPES = [(70_001, 64), (40_000, 56), (300_000, 8), (1_100, 2_048), (9_001, 257), (2, 20_000, 64)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_and_extremes_of_many_rows(
    shape: tuple[int, ...], dtype: str, rng: np.random.Generator
) -> None:
    data = rng.standard_normal(shape).astype(canonical(dtype))
    x = mg.var("x", shape=shape, dtype=dtype)
    wide = mg.cast(x, "float64" if dtype == "float64" else "float32")
    axes = tuple(range(len(shape) - 1))
    centered = wide - mg.mean(wide, axes, keepdims=True)
    f = mg.function(
        [x], [mg.sum(wide, axes), mg.mean(centered * centered, axes), mg.max(wide, axes)],
        device="cuda",
    )
    exact = data.astype("f8")
    for _ in range(3):  # step by step, captured, replayed
        total, var, highest = (part.get() for part in f(data))
        scale = np.sqrt(exact.size / exact.shape[-1])
        assert_agrees(total, exact.sum(axes), "reassoc", scale * magnitude(exact))
        assert_agrees(var, exact.var(axes), "reassoc", magnitude(exact))
        np.testing.assert_array_equal(highest, exact.max(axes))


def test_the_first_of_equal_columns_is_found(rng: np.random.Generator) -> None:
    data = rng.integers(0, 50, (60_000, 48)).astype("f4")
    x = mg.var("x", shape=data.shape)
    f = mg.function([x], [mg.argmax(x, axis=0), mg.sum(x), mg.sum(x, axis=0)], device="cuda")
    for _ in range(2):
        place, total, columns = (part.get() for part in f(data))
        np.testing.assert_array_equal(place, data.argmax(0))
        np.testing.assert_array_equal(columns, data.sum(0, dtype="f8").astype("f4"))
        assert total == np.float32(data.sum(dtype="f8"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("shape", [(40_003, 64), (9_001, 264), (1_100, 2_048), (2, 20_000, 64)])
def test_rows_that_share_operands(
    shape: tuple[int, ...], dtype: str, rng: np.random.Generator
) -> None:
    """Threads that take neighbours down many rows, also where a result replaces what they read."""
    data = rng.standard_normal(shape).astype(canonical(dtype))
    held = mg.var("held", init=data, dtype=dtype)
    scale, offset = (mg.var(name, shape=shape[-1:]) for name in ("scale", "offset"))
    x = mg.var("x", shape=shape, dtype=dtype)
    made = mg.cast(held, "float32") * scale + offset + mg.cast(x, "float32")
    f = mg.function(
        [x, scale, offset], mg.relu(made), updates={held: mg.cast(made, dtype)}, device="cuda"
    )
    factors = [rng.standard_normal(shape[-1]).astype("f4") / 2 for _ in range(2)]
    exact = data.astype("f8")
    for _ in range(3):  # step by step, captured, replayed
        found = f(data, *factors).get()
        exact = exact * factors[0] + factors[1] + data.astype("f8")
        numerics = "half" if dtype == "bfloat16" else "reassoc"
        assert_agrees(found, np.maximum(exact, 0), numerics, magnitude(exact))
        exact = np.array(held.value, "f8")  # what is stored was rounded
