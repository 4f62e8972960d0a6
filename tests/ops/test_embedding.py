"""Embeddings: updates that touch only the rows that were looked up, and where they cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from table import assert_agrees

import magmagraph as mg
from magmagraph.ir.plan import Place

ROWS, WIDTH = 700, 6
IDS = np.array([[3, 7], [3, 699], [0, 3]], np.int32)


def trained(
    optimizer: Any, dtype: str = "float32", ids: np.ndarray = IDS, **options: Any
) -> tuple[mg.Node, np.ndarray, mg.Function]:
    """Return a table after one step, the table before it, and the step."""
    start = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(dtype)
    table = mg.var("table", init=start)
    positions = mg.input("ids", ids.shape, ids.dtype)
    rows = mg.embedding(positions, table, **options)
    loss = mg.sum(rows * rows)
    step = optimizer.step(loss, [table], inputs=[positions], outputs=[loss])
    step(ids)
    return table, start, step


def expected(start: np.ndarray, rate: float, ids: np.ndarray = IDS) -> np.ndarray:
    """Return what plain gradient descent on the sum of squares makes of the table."""
    gradient = np.zeros(start.shape)
    np.add.at(gradient, ids.reshape(-1), 2.0 * start[ids.reshape(-1)].astype(np.float64))
    return np.asarray(start - rate * gradient)


@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_step_adds_to_the_rows_in_place(
    dtype: str, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mg.config, "compiler", compiler)
    table, start, step = trained(mg.optimizer.SGD(0.1), dtype)
    assert_agrees(table.value, expected(start, 0.1), "reassoc", 10.0)
    untouched = np.setdiff1d(np.arange(ROWS), IDS)
    np.testing.assert_array_equal(table.value[untouched], start[untouched])
    assert "scatter" in [s.kernel for s in step.plan.steps]
    assert step.report["accumulate"].hits == {"accumulate into the variable": 1}


def test_no_array_of_the_tables_size_is_made() -> None:
    _, start, step = trained(mg.optimizer.SGD(0.1))
    arena = [s for s in step.plan.slots if s.place is Place.ARENA]
    assert arena
    assert max(int(s.size) for s in arena) < start.nbytes // 10
    assert step.memory.arena < start.nbytes // 10
    assert not [r for r in step.report["memory"].refusals if "table" in str(r.node)]


@pytest.mark.parametrize("name", ["int8", "uint8", "uint32", "int64"])
def test_ids_of_every_integer_dtype(name: str) -> None:
    ids = np.array([5, 0, 5, 99]).astype(name)
    table, start, step = trained(mg.optimizer.SGD(0.1), ids=ids)
    assert_agrees(table.value, expected(start, 0.1, ids.astype(int)), "reassoc", 10.0)
    assert step.plan.steps[-1].kernel == "scatter"


def test_ids_outside_of_the_table() -> None:
    """They mean the nearest row; negative ones count from the end."""
    ids = np.array([-1, -5000, 5000], np.int32)
    table, start, _ = trained(mg.optimizer.SGD(0.1), ids=ids)
    assert_agrees(table.value, expected(start, 0.1, np.array([699, 0, 699])), "reassoc", 10.0)


def test_positions_that_wrap_around() -> None:
    start = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    table = mg.var("table", init=start)
    ids = mg.input("ids", (3,), "int64")
    loss = mg.sum(mg.take(table, ids, 0, mode="wrap"))
    step = mg.function([ids], loss, updates={table: table - mg.grad(loss, table)})
    step(np.array([-1, 4, 11]))
    expected_counts = np.array([1.0, 0.0, 0.0, 2.0])
    np.testing.assert_array_equal(table.value, start - expected_counts[:, None])
    assert step.plan.steps[-1].kernel == "scatter"


def test_the_padding_row_stays() -> None:
    table, start, step = trained(mg.optimizer.SGD(0.1), padding_index=3)
    np.testing.assert_array_equal(table.value[3], start[3])
    assert not np.array_equal(table.value[7], start[7])
    assert "scatter" in [s.kernel for s in step.plan.steps]


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [
        (mg.optimizer.SGD(0.1, momentum=0.9), ""),
        (mg.optimizer.SGD(0.1, weight_decay=0.5), "the old value is scaled"),
        (mg.optimizer.Adam(0.1), ""),
    ],
    ids=["momentum", "decay", "adam"],
)
def test_what_needs_the_whole_gradient_makes_it(optimizer: Any, reason: str) -> None:
    table, start, step = trained(optimizer)
    assert "scatter" not in [s.kernel for s in step.plan.steps]
    assert any(reason in r.reason for r in step.report["accumulate"].refusals) or not reason
    assert not np.array_equal(table.value[3], start[3])


def test_two_look_ups_of_one_table() -> None:
    start = np.ones((5, 2), np.float32)
    table = mg.var("table", init=start)
    a, b = mg.input("a", ("n",), "int32"), mg.input("b", ("m",), "int32")
    loss = mg.sum(mg.embedding(a, table)) + mg.sum(mg.embedding(b, table))
    step = mg.function([a, b], loss, updates={table: table - mg.grad(loss, table)})
    step(np.array([0, 1], np.int32), np.array([1], np.int32))
    np.testing.assert_array_equal(table.value[:, 0], [0.0, -1.0, 1.0, 1.0, 1.0])
    assert any("products are added, and" in r.reason for r in step.report["accumulate"].refusals)


def test_wide_rows_are_shared_out_among_threads() -> None:
    start = np.random.default_rng(1).normal(size=(50, 4096)).astype(np.float32)
    table = mg.var("table", init=start)
    ids = mg.input("ids", (200,), "int32")
    rows = mg.embedding(ids, table)
    loss = mg.sum(rows * rows)
    step = mg.function([ids], loss, updates={table: table - 0.01 * mg.grad(loss, table)})
    at = np.random.default_rng(2).integers(0, 50, 200).astype(np.int32)
    step(at)
    assert_agrees(table.value, expected(start, 0.01, at), "reassoc", 10.0)


def test_columns_are_not_added_in_place() -> None:
    """The kernel adds rows."""
    start = np.random.default_rng(1).normal(size=(WIDTH, ROWS)).astype(np.float32)
    table = mg.var("table", init=start)
    positions = mg.input("ids", IDS.shape, IDS.dtype)
    loss = mg.sum(mg.take(table, positions, axis=1))
    step = mg.function([positions], loss, updates={table: table - 0.5 * mg.grad(loss, table)})
    step(IDS)
    counts = np.bincount(IDS.reshape(-1), minlength=ROWS).astype(np.float32)
    assert_agrees(table.value, start - 0.5 * counts, "reassoc", 10.0)
    assert "scatter" not in [s.kernel for s in step.plan.steps]
    reasons = [refusal.reason for refusal in step.report["accumulate"].refusals]
    assert reasons == ["slices are added along axis 1, and the kernel adds rows"]
