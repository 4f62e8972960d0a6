"""Short rows go together from pass to pass: each is computed as it would be alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.codegen.c.binding import Binding
from magmagraph.codegen.c.step import step_code
from magmagraph.codegen.region.analysis import Region, analyze
from magmagraph.dtypes import tolerance
from magmagraph.ir.graph import Node, freeze
from magmagraph.ops.leaf import parameter


def _norm(x: Node) -> Node:
    centred = x - mg.mean(x, axis=-1, keepdims=True)
    return centred / mg.sqrt(mg.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)


PROGRAMS: dict[str, Callable[[Node], Node | list[Node]]] = {
    "softmax": lambda x: mg.softmax(x, axis=-1),
    "layer norm": _norm,
    "logsumexp": lambda x: mg.logsumexp(x, axis=-1),
    "logarithm of softmax": lambda x: mg.log_softmax(x, axis=-1),
    "a call of a call": lambda x: x * mg.tanh(
        mg.log1p(mg.exp(mg.sum(x, axis=-1, keepdims=True))) + mg.sin(mg.max(x, -1, keepdims=True))
    ) + mg.mean(x, axis=-1, keepdims=True),
    "also what rows have one of": lambda x: [
        mg.softmax(x, axis=-1),
        mg.max(x, axis=-1),
        mg.argmax(x - mg.mean(x, axis=-1, keepdims=True), axis=-1),
    ],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [1, 5, 16, 17, 100, 700, 5000])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_row_is_computed_as_it_would_be_alone(
    name: str, columns: int, dtype: str, rng: np.random.Generator
) -> None:
    """Nineteen rows are two batches and a part of one, or batches of fewer where they are long."""
    value = rng.standard_normal((19, columns)).astype(dtype)
    value[3, columns // 2] = np.nan
    value[4, columns // 2] = np.inf
    x = mg.var("x", shape=("rows", columns), dtype=value.dtype)
    made = PROGRAMS[name](x)
    f = mg.function([x], made if isinstance(made, list) else [made])
    together = f(value)
    for i in range(len(value)):
        for all_rows, one in zip(together, f(value[i : i + 1]), strict=True):
            # Very short rows are taken across: functions of a vector's last lanes are scalar ones.
            assert tolerance(all_rows.dtype, "exact").close(all_rows[i], one[0])


@pytest.mark.parametrize(("name", "loops"), [("logsumexp", 3), ("logarithm of softmax", 4)])
def test_a_logarithm_of_each_row_is_no_part_of_a_pass(name: str, loops: int) -> None:
    """Behind a call the constants of a pass would be read again for each row."""
    x = parameter(0, mg.var("x", shape=("rows", 100)).type)
    made = PROGRAMS[name](x)
    assert isinstance(made, Node)
    text = step_code((freeze([x], [made]),)).text()
    parts = text.split("for (int64_t row = 0; row < rows; row++)")[1:]
    assert len(parts) == loops
    (called,) = (part for part in parts if "logf(" in part)
    assert "mg_group" not in called


@pytest.mark.parametrize("columns", [1, 3, 16, 21, 100, 130])
def test_nothing_is_written_behind_the_last_row(columns: int, rng: np.random.Generator) -> None:
    """The rest of a row is a vector of which only the row's elements are stored."""
    memory = np.full(11 * columns + 64, 7.0, np.float32)
    value = rng.standard_normal((11, columns), dtype=np.float32)
    x = mg.var("x", shape=value.shape)
    f = mg.function([x], mg.softmax(x, axis=-1))
    found = f(value, out=memory[: 11 * columns].reshape(value.shape))
    np.testing.assert_array_equal(memory[11 * columns :], 7.0)
    np.testing.assert_array_equal(found, f(value))
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("axes", [(2,), (1, 2), (0, 2)])
def test_rows_of_several_axes_keep_their_places(
    axes: tuple[int, ...], rng: np.random.Generator
) -> None:
    """Counters start again for each pass, and what is saved of a row has room for its end."""
    value = rng.standard_normal((5, 3, 21), dtype=np.float32)
    x = mg.var("x", shape=value.shape)
    found = mg.function([x], mg.softmax(x, axis=axes))(value)
    wide = np.exp(value.astype(np.float64) - value.max(axis=axes, keepdims=True))
    expected = wide / wide.sum(axis=axes, keepdims=True)
    assert tolerance(np.dtype("float32"), "stable").close(found, expected)


def test_a_result_may_take_the_place_of_what_rows_are_made_of(rng: np.random.Generator) -> None:
    value = rng.standard_normal((50, 40), dtype=np.float32)
    x = mg.var("x", shape=value.shape)
    y = x
    for _ in range(3):
        y = mg.softmax(y @ mg.constant(np.eye(40, dtype=np.float32) * 4), axis=-1)
    found = mg.function([x], y)(value)
    expected = value.astype(np.float64)
    for _ in range(3):
        wide = np.exp(4 * expected - (4 * expected).max(axis=-1, keepdims=True))
        expected = wide / wide.sum(axis=-1, keepdims=True)
    assert tolerance(np.dtype("float32"), "reassoc").close(found, expected)


def _region(columns: int) -> Region:
    x = parameter(0, mg.var("x", shape=(1000, columns)).type)
    region = analyze(freeze([x], [mg.softmax(x, axis=-1)]))
    assert isinstance(region, Region)
    return region


@pytest.mark.parametrize(("columns", "rows"), [(100, 8), (1000, 2), (10_000, 1)])
def test_rows_that_go_together_fit_the_nearest_cache(columns: int, rows: int) -> None:
    region = _region(columns)
    binding = Binding(region, {}, 2)
    assert binding.rows_together() == rows
    assert binding.workspace <= region.workspace(2)
    assert binding.saved_size() >= rows * (columns * 4 + 60)


@pytest.mark.parametrize(("rows", "alike"), [(100, True), (1500, False)])
def test_strips_are_cut_for_as_many_threads_as_the_work_is_worth(rows: int, alike: bool) -> None:
    x = parameter(0, mg.var("x", shape=(rows, 31)).type)
    region = analyze(freeze([x], [mg.sum(mg.sin(mg.sin(x)), axis=1)]))
    assert isinstance(region, Region)
    assert region.strip
    one, four = (Binding(region, {}, threads) for threads in (1, 4))
    assert (one.width == four.width) == alike
