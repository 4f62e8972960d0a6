"""Scans on the card: against NumPy in float64, captured, repeatable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from table import assert_agrees

import magmagraph as mg
from magmagraph.ir.plan import Role

pytestmark = pytest.mark.gpu

SCANS = {
    "cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate,
    "cummin": np.minimum.accumulate, "cumlogsumexp": np.logaddexp.accumulate,
}  # fmt: skip
# Rows, short and long; columns; lines that several blocks share; more blocks than multiprocessors.
LAYOUTS = [
    ((100_000, 7), 1), ((4096, 300), 1), ((1000, 20_011), 1), ((3, 1_000_003), 1),
    ((4099, 1031), 0), ((1_000_003, 3), 0), ((70, 257, 33), 1), ((1_000_003,), 0), ((0, 5), 1),
]  # fmt: skip


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), LAYOUTS, ids=str)
@pytest.mark.parametrize("name", SCANS)
def test_values(name: str, shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    x = np.random.default_rng(5).standard_normal(shape).astype("f4")
    if name == "cumprod":
        x = np.sign(x) * np.exp(1e-3 * x)
    node = mg.input("x", shape)
    f = mg.function([node], getattr(mg, name)(node, axis, reverse=reverse), device="cuda")
    turned = np.flip(x, axis) if reverse else x
    wanted = SCANS[name](turned.astype("f8"), axis=axis)
    wanted = np.flip(wanted, axis) if reverse else wanted
    first = f(x).get()
    for _ in range(3):  # launched one by one, captured, replayed
        assert f(x).get().tobytes() == first.tobytes()
    if name in ("cummax", "cummin"):
        np.testing.assert_array_equal(first, wanted.astype("f4"))
    else:
        # Sums of many float32 are as far off as their largest partial sums allow.
        scale = float(np.sqrt(max(1, shape[axis]))) * max(1.0, float(np.abs(wanted).max(initial=0)))
        assert_agrees(first, wanted, "reassoc", scale)
    assert {step.family.name for step in f.plan.steps} <= {"scan"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int32", "int64"])
def test_dtypes(dtype: str) -> None:
    node = mg.input("x", (300, 4099), dtype)
    rng = np.random.default_rng(6)
    whole = rng.integers(-100, 100, (300, 4099)).astype(node.dtype)
    outputs = [
        mg.cast(each, "float64") for each in (mg.cummax(node, 1), mg.cummin(node, 0, reverse=True))
    ]
    for found, wanted in zip(
        mg.function([node], outputs, device="cuda")(whole),
        mg.function([node], outputs, device="cpu")(whole), strict=True,
    ):  # fmt: skip
        np.testing.assert_array_equal(found.get(), wanted)
    y = mg.input("y", (5, 70_001), "int32")
    values = rng.integers(-(2**31), 2**31, (5, 70_001)).astype("i4")
    with np.errstate(over="ignore"):
        wanted_sum = np.add.accumulate(values, 1, np.int32)
        wanted_product = np.multiply.accumulate(values, 1, np.int32)
    made: Any = mg.function(
        [y], [mg.cumsum(y, 1, "int32"), mg.cumprod(y, 1, "int32")], device="cuda"
    )(values)
    np.testing.assert_array_equal(made[0].get(), wanted_sum)
    np.testing.assert_array_equal(made[1].get(), wanted_product)


@pytest.mark.parametrize(("shape", "axis"), [((64, 5003), 1), ((5003, 300), 0), ((100_003,), 0)])
def test_recurrences_and_gradients(shape: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(7)
    a, b = mg.input("a", shape), mg.input("b", shape)
    outputs = [mg.linear_recurrence(mg.tanh(a), b, axis), mg.cumsum(mg.sin(a) * b, axis)]
    loss = mg.mean(outputs[0] ** 2) + mg.mean(mg.cumlogsumexp(b, axis))
    outputs += mg.grad(loss, [a, b])
    feeds = [rng.standard_normal(shape).astype("f4") for _ in range(2)]
    f = mg.function([a, b], outputs, device="cuda")
    wanted = mg.function([a, b], outputs, device="cpu")(*feeds)
    for _ in range(3):
        for found, value in zip(f(*feeds), wanted, strict=True):
            np.testing.assert_allclose(found.get(), value, 2e-3, 2e-3 * float(np.abs(value).max()))


# What stands before and behind a scan; all in one launch but for the gradient, which is two.
AROUND = {
    "operand": lambda x, y: mg.cumsum(x * y, 1),
    "columns": lambda x, y: mg.cumsum(x * y, 0, reverse=True) - y,
    "reader": lambda x, y: mg.tanh(mg.cumsum(x, 1)) * y + x,
    "exclusive": lambda x, y: mg.cumsum(x * y, 1) - x * y,
    "an output": lambda x, y: [x * y, mg.cummax(x * y, 1)],
    "product and sum": lambda x, y: mg.cumprod(1 + 1e-3 * x, 0) + y,
    "logsumexp": lambda x, y: mg.cumlogsumexp(x * y, 1) - y,
    "recurrence": lambda x, y: mg.linear_recurrence(mg.sigmoid(x), x * y, 1) * y,
    "draws": lambda x, y: mg.cumsum(mg.random.normal(x.shape, key=mg.random.key(3)) * x, 1) + y,
    "gradient": lambda x, y: mg.grad(mg.sum(mg.cumsum(mg.sin(x) * y, 1) ** 2), [x, y]),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(300, 7), (1031, 4096), (3, 70_001), (257, 1030)], ids=str)
@pytest.mark.parametrize("name", AROUND)
def test_regions_around_a_scan(name: str, shape: tuple[int, ...]) -> None:
    """In one launch they have the bits that launches of their own have."""
    rng = np.random.default_rng(8)
    x, y = mg.input("x", shape), mg.input("y", shape)
    outputs = AROUND[name](x, y)
    feeds = [rng.standard_normal(shape).astype("f4") for _ in range(2)]
    f = mg.function([x, y], outputs, device="cuda")
    apart = mg.function([x, y], outputs, device="cuda", skip=("fuse_scans",))
    several = isinstance(outputs, list)
    wanted = apart(*feeds) if several else [apart(*feeds)]
    for _ in range(3):  # launched one by one, captured, replayed
        for found, other in zip(f(*feeds) if several else [f(*feeds)], wanted, strict=True):
            np.testing.assert_array_equal(found.get(), other.get())
    launches = [step.role for step in f.plan.steps]
    assert launches == [Role.FUSED_SCAN] * (1 + (name == "gradient"))
