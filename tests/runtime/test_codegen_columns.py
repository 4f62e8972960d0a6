"""Kernels that fold columns: strips, bands, short rows side by side, rows taken together."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import regions
from regions import B, Case, N, assert_close, compiled

import magmagraph as mg
from magmagraph.codegen.c.binding import COLUMNS, STACKED, TALL, Binding
from magmagraph.dtypes import tolerance
from magmagraph.runtime.cpu.fused import Kernels

CASES = (
    Case("sum", ((B, N),), lambda x: mg.sum(x, axis=0)),
    Case("double", (((B, N), "float64"),), lambda x: mg.sum(x, axis=0)),
    Case("half", (((B, N), "float16"),), lambda x: mg.max(x, axis=0)),
    Case("whole numbers", (((B, N), "int16"),), lambda x: mg.sum(x, axis=0)),
    Case("mean of products", ((B, N), (B, N)), lambda x, y: mg.mean(x * y, axis=0)),
    Case("scaled", ((B, N), ()), lambda x, s: [mg.sum(x * s, axis=0), mg.max(x, axis=0)]),
    Case("beside", ((B, N), (N,)), lambda x, b: [mg.tanh(x + b), mg.sum(x - b, axis=0)]),
    Case("of rows", ((B, N), (B, 1)), lambda x, r: mg.sum(x * r, axis=0)),
    Case("written", ((B, N),), lambda x: [x * 2.0, mg.sum(x, axis=0), mg.min(x * x, axis=0)]),
    Case("renewed", ((B, N), (N,)), lambda x, b: b - 0.1 * mg.sum(x, axis=0)),
    Case("two loops", ((B, 3, N), (3, N)), lambda x, y: mg.sum(x * y, axis=(0, 1))),
    Case("view", ((B, N),), lambda x: mg.sum(x[1:-1], axis=0), least=3),
    Case("crossed", ((B, N), (3,)), lambda x, v: [x * 2.0, v * mg.sum(x, axis=0)[:, None]]),
    Case("centred", ((B, N),), lambda x: x - mg.mean(x, axis=0, keepdims=True)),
    Case("counted", ((B, N),), lambda x: mg.sum(x * mg.cast(mg.arange(N), "float32"), axis=0)),
)
SHAPES = (
    (1, 1), (3, 2), (1000, 1), (777, 3), (STACKED, 10), (500, 64), (200, 256), (3, 257),
    (TALL, 100), (TALL + 1, 2 * COLUMNS + 1), (5, 3 * COLUMNS), (STACKED + 9, COLUMNS),
)  # fmt: skip


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    """The kernels of all cases."""
    made = Kernels()
    made.build([(case.body(),) for case in CASES])
    return made


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_columns_of_every_shape(case: Case, kernels: Kernels, rng: np.random.Generator) -> None:
    body = case.body()
    for rows, columns in SHAPES:
        sizes = {"B": max(rows, case.least), "N": columns}
        arrays = regions.arrays_for(rng, body, sizes)
        wanted = regions.interpreted(body, arrays, sizes)
        for threads in (1, 2, 5):
            results = regions.empty_results(body, sizes)
            compiled([body], arrays, results, sizes, threads, kernels)
            assert_close(body, results, wanted, "reassoc", f"{sizes}, {threads} threads")


def test_the_cases_are_columns() -> None:
    found = {case.name: regions.region_of(case.body()) for case in CASES}
    assert {name for name, region in found.items() if not region.columns} <= {"centred"}
    flat = {name for name, region in found.items() if region.flat}
    assert flat >= {"sum", "scaled", "written", "crossed"}
    assert not {"beside", "of rows", "two loops"} & flat


def test_what_is_turned_beside_its_columns_is_not_taken_as_one_row(
    rng: np.random.Generator,
) -> None:
    # Columns are counted where they are put side by side, to be sorted.
    for shape in ((3, 4), (40, 3), (7, 300)):
        array = rng.normal(size=shape)
        array[0, 1] = np.nan
        x = mg.input("x", shape, "float64")
        f = mg.function([x], mg.nanquantile(x, [0.25, 0.5], axis=0))
        wanted = np.nanquantile(array, [0.25, 0.5], axis=0)
        assert tolerance(array.dtype, "reassoc").close(f(array), wanted), shape



@pytest.mark.parametrize(
    ("rows", "columns", "threads", "cut"),
    [
        (10, 1000, 2, (1, 1, 1)),  # too little to share out
        (10_000, 100, 2, (5, 1, 2)),  # short rows, five as one; two bands
        (1_000_000, 2, 2, (256, 1, 2)),
        (1000, 1000, 2, (1, 1, 2)),
        (10, 100_000, 2, (1, 26, 1)),  # few rows: strips, an even number
        (4000, 10_000, 2, (1, 3, 2)),
        (4000, 10_000, 1, (1, 3, 1)),
    ],
)
def test_how_columns_are_shared_out(
    rows: int, columns: int, threads: int, cut: tuple[int, int, int]
) -> None:
    region = regions.region_of(CASES[0].body())
    binding = Binding(region, {"B": rows, "N": columns}, threads)
    assert (binding.group, binding.strips, binding.bands) == cut
    assert binding.items == binding.strips * binding.bands
    assert binding.group * binding.rows >= rows


def test_sums_of_columns_are_as_accurate_as_of_rows(rng: np.random.Generator) -> None:
    value = rng.random((200_000, 3)).astype(np.float32)
    x = mg.var("x", shape=(None, 3))
    total = mg.function([x], mg.sum(x, axis=0), options={"reduce_to_gemv": "never"})(value)
    exact = value.astype(np.float64).sum(axis=0)
    assert tolerance(value.dtype, "exact").close(total, exact, float(exact.max()))


@pytest.mark.parametrize(
    ("way", "said", "family"),
    [
        ("always", "gemv_sum", "gemv"),
        ("never", "reduce_to_gemv='never' was asked for", "fused"),
    ],
)
def test_the_way_of_a_sum_is_explained(way: str, said: str, family: str) -> None:
    x = mg.var("x", shape=(300, 200))
    total = mg.sum(x, axis=0)
    f = mg.function([x], total, options={"reduce_to_gemv": way})
    f(np.ones((300, 200), np.float32))
    assert said in str(f.explain(total))
    assert [step.kernel for step in f.plan.steps] == [family]


@pytest.mark.parametrize("winner", ["sum", "gemv"])
def test_a_measured_choice_is_explained(winner: str, monkeypatch: Any) -> None:
    from magmagraph.runtime import trial

    asked: list[str] = []

    def fastest(key: str, candidates: dict[str, Callable[[], Any]], device: str = "cpu") -> str:
        asked.append(key)
        assert set(candidates) == {"sum", "gemv"}
        return winner

    monkeypatch.setattr(trial, "fastest", fastest)
    monkeypatch.setattr(mg.config, "tuning", True)
    x = mg.var("x", shape=(300, 200))
    total = mg.sum(x, axis=0)
    f = mg.function([x], total)
    f(np.ones((300, 200), np.float32))
    assert asked == ["reduce_to_gemv/float32/axis0/9x8"]
    said = str(f.explain(total))
    assert ("a product with ones was not faster when measured" in said) == (winner == "sum")
    assert ("gemv_sum" in said) == (winner == "gemv")


def test_compiled_kernels_hold_no_graph() -> None:
    """What is kept of one function's kernels for another's must not keep its graph."""
    x = mg.var("x", shape=(7, 9))
    f = mg.function([x], [mg.softmax(x + 1.0, axis=1), mg.sum(x * x, axis=0)])
    f(np.ones((7, 9), np.float32))
    bodies = [body for step in f.plan.steps for body in _bodies(step)]
    assert bodies
    held = [weakref.ref(f.graph), *map(weakref.ref, bodies)]
    del f, bodies
    gc.collect()
    assert [reference() for reference in held] == [None] * len(held)


def _bodies(step: Any) -> list[mg.Graph]:
    attrs = step.node.attrs
    return list(attrs.get("bodies") or [attrs["body"]])


def test_rows_too_short_for_a_vector_read_what_each_of_them_has_one_of() -> None:
    """The sums of such rows are taken side by side, like columns; what a row has one of is not."""
    x = mg.input("x", (5,), dtype="int64")
    one = mg.expand_dims(x % 3, 1)
    outputs = [
        mg.sum(mg.one_hot(x % 3, 4), axis=1),
        mg.sum(mg.cast(one * mg.arange(4), "float32"), axis=1),
        mg.max(one + mg.arange(4), axis=1),
    ]
    for output, wanted in zip(
        outputs, ([1, 1, 1, 1, 1], [0, 6, 12, 0, 6], [3, 4, 5, 3, 4]), strict=True
    ):
        function = mg.function([x], output, device="cpu")
        assert np.array_equal(function(np.arange(5)), wanted)
