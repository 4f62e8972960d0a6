"""Sorts on the card: against NumPy's stable ones, captured, repeatable."""

from __future__ import annotations

import numpy as np
import pytest

import magmagraph as mg

pytestmark = pytest.mark.gpu

LAYOUTS = [
    ((100_000, 7), 1), ((4096, 300), 1), ((1024, 4096), 1), ((3, 300_007), 1), ((4099, 103), 0),
    ((17, 257, 33), 1), ((1_000_003,), 0), ((0, 5), 1),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "axis"), LAYOUTS, ids=str)
def test_elements_and_positions(shape: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(8)
    x = rng.standard_normal(shape).astype("f4")
    x[rng.random(shape) < 0.2] = 0.25
    x[rng.random(shape) < 0.01] = np.nan
    node = mg.input("x", shape)
    f = mg.function([node], [mg.sort(node, axis), mg.argsort(node, axis)], device="cuda")
    for _ in range(3):  # launched one by one, captured, replayed
        elements, positions = f(x)
        np.testing.assert_array_equal(elements.get(), np.sort(x, axis))
        np.testing.assert_array_equal(positions.get(), np.argsort(x, axis, kind="stable"))
    assert [step.family.name for step in f.plan.steps] == ["order"] * 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint32", "int64"])
def test_dtypes(dtype: str) -> None:
    node = mg.input("x", (30, 5003), dtype)
    x = np.random.default_rng(9).integers(0, 100, (30, 5003)).astype(node.dtype)
    outputs = [
        mg.cast(mg.sort(node), "float64"), mg.argsort(node, 0), mg.argsort(node, descending=True)
    ]  # fmt: skip
    wanted = mg.function([node], outputs, device="cpu")(x)
    for found, value in zip(mg.function([node], outputs, device="cuda")(x), wanted, strict=True):
        np.testing.assert_array_equal(found.get(), value)


def test_what_is_made_of_sorts() -> None:
    x = np.random.default_rng(10).standard_normal((300, 5003)).astype("f4")
    node = mg.input("x", x.shape)
    loss = mg.sum(mg.sort(node, 1)[:, 10:20] ** 2) + mg.sum(mg.median(node, 1))
    outputs = [
        *mg.top_k(node, 50), mg.median(node, 1), mg.quantile(node, np.array([0.1, 0.7]), 0),
        mg.grad(loss, node),
    ]  # fmt: skip
    wanted = mg.function([node], outputs, device="cpu")(x)
    f = mg.function([node], outputs, device="cuda")
    for _ in range(3):
        for found, value in zip(f(x), wanted, strict=True):
            np.testing.assert_allclose(found.get(), value, 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64"])
def test_the_first_of_long_lines(dtype: str) -> None:
    """Of many lines, of few, of one; where most are equal; where many are NaN."""
    rng = np.random.default_rng(15)
    for shape, counts in (((300, 5003), (1, 50, 1024)), ((3, 300_007), (7, 1000)),
                          ((1, 4_000_037), (50,)), ((257, 9000), (9000, 2000))):  # fmt: skip
        x = (rng.standard_normal(shape) * 100).astype(dtype)
        x[0] = x[0].astype("i4") // 200
        if "float" in dtype:
            x[rng.random(shape) < 0.01] = np.nan
            x[0, ::3] = -0.0
        node = mg.input("x", shape, dtype)
        outputs = []
        for count in counts:
            outputs += [*mg.top_k(node, count), mg.argsort(node)[:, :count],
                        mg.argsort(node)[:, -count:], mg.sort(node)[:, -count:]]  # fmt: skip
        wanted = mg.function([node], outputs, device="cpu")(x)
        f = mg.function([node], outputs, device="cuda")
        for _ in range(3):  # launched one by one, captured, replayed
            for found, value in zip(f(x), wanted, strict=True):
                np.testing.assert_array_equal(found.get(), value)
        for count in counts:  # each alone, so that no other result needs the whole order
            for output in (mg.argsort(node)[:, -count:], mg.sort(node)[:, -count:],
                           mg.argsort(node, descending=True)[:, :count]):  # fmt: skip
                value = mg.function([node], output, device="cpu")(x)
                found = mg.function([node], output, device="cuda")(x)
                np.testing.assert_array_equal(found.get(), value)


def test_histograms() -> None:
    x = np.random.default_rng(14).standard_normal(1_000_003).astype("f4")
    node = mg.input("x", x.shape)
    counts, edges = mg.histogram(node, 50, (-3.0, 2.5))
    f = mg.function([node], [counts, edges], device="cuda")
    for _ in range(3):
        found, places = f(x)
        wanted, _ = np.histogram(x, places.get())
        np.testing.assert_array_equal(found.get(), wanted)
    assert not [step for step in f.plan.steps if step.family.name == "array"]
