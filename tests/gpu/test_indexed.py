"""Reading and adding at computed positions on the card: against the host, captured, repeatable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from table import assert_agrees

import magmagraph as mg
from magmagraph.dtypes import canonical
from magmagraph.runtime.cuda.launching.segments import Interpreted, Segment

pytestmark = pytest.mark.gpu


def assert_captured(f: Any) -> None:
    """Check that no array expression runs, and that what is launched is one graph."""
    parts = [*f._last._before, *f._last._after]
    assert not [part.node.op.name for part in parts if isinstance(part, Interpreted)]
    assert all(p.graph is not None for p in parts if isinstance(p, Segment) and len(p.launches) > 1)
    assert "cut by" not in " ".join(f.report["kernels"].notes)


def compared(inputs: list[Any], outputs: list[Any], *feeds: np.ndarray) -> None:
    """Compare whole numbers with the host's, four times."""
    wanted = mg.function(inputs, outputs, device="cpu")(*feeds)
    f = mg.function(inputs, outputs, device="cuda")
    first = [found.get() for found in f(*feeds)]
    for found, value in zip(first, wanted, strict=True):
        np.testing.assert_array_equal(found, value)
    for _ in range(3):
        again = [found.get() for found in f(*feeds)]
        assert [a.tobytes() for a in again] == [a.tobytes() for a in first]
    assert_captured(f)


@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int16", "bool", "complex64"])
def test_elements_at_positions(dtype: str, mode: str, rng: np.random.Generator) -> None:
    cases = ((50, 64), 0, (7, 9)), ((3, 40, 5), 1, (33,)), ((9, 70), -1, (200,))
    for shape, axis, count in cases:
        given = rng.integers(-9, 9, shape).astype(canonical(dtype))
        for kind in ("int32", "uint8"):
            low = -2 * shape[axis] if kind == "int32" else 0
            at = rng.integers(low, 2 * shape[axis], count).astype(kind)
            x, positions = mg.var("x", shape=shape, dtype=dtype), mg.input("at", count, kind)
            compared([x, positions], [mg.take(x, positions, axis, mode)], given, at)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32"])
@pytest.mark.parametrize("count", [1, 900, 5000, 70_000])
def test_rows_of_a_gradient(count: int, dtype: str, rng: np.random.Generator) -> None:
    for extent, inside in ((3, 5), (4000, 24)):
        table = mg.var("table", shape=(extent, inside), dtype=dtype)
        above = mg.var("above", shape=(count, inside), dtype=dtype)
        ids = mg.input("ids", (count,), "int32")
        at = rng.integers(0, extent, count).astype("i4")
        at[: count // 4] = 1
        rows = rng.integers(-2, 3, (count, inside)).astype(canonical(dtype))
        held = np.zeros((extent, inside), canonical(dtype))
        made = table.at[ids].add(above)
        outputs = [made]
        if dtype != "int32":
            outputs.append(mg.grad(mg.sum(mg.take(table, ids, 0) * above), table))
        compared([table, ids, above], outputs, held, at, rows)


def test_lines_with_positions_of_their_own(rng: np.random.Generator) -> None:
    x = mg.var("x", shape=("n", 40))
    order = mg.argsort(mg.stop_gradient(x), axis=1)
    taken = mg.take_along_axis(x * x, order[:, :7], axis=1)
    gradient = mg.grad(mg.sum(taken * taken), x)
    ids = mg.input("ids", ("n",), "int64")
    f = mg.function([x, ids], [mg.take_along_axis(x, ids[:, None], axis=1), x[ids]], device="cuda")
    for n in (3, 40, 1):
        given, at = rng.standard_normal((n, 40)).astype("f4"), rng.integers(0, n, n)
        for _ in range(3):
            one, rows = f(given, at)
            np.testing.assert_array_equal(one.get(), given[np.arange(n), at][:, None])
            np.testing.assert_array_equal(rows.get(), given[at])
        assert_captured(f)
        wanted = mg.function([x], [taken, gradient], device="cpu")(given)
        found = mg.function([x], [taken, gradient], device="cuda")(given)
        for ours, theirs in zip(found, wanted, strict=True):
            assert_agrees(ours.get(), theirs, "reassoc", 100.0)


@pytest.mark.parametrize("make", [lambda: mg.optimizer.SGD(0.5), lambda: mg.optimizer.Adam(0.1)])
def test_a_table_is_trained(make: Any, rng: np.random.Generator) -> None:
    ids = [rng.integers(0, 90, (4, 50)).astype("i4") for _ in range(6)]
    start = rng.standard_normal((90, 16)).astype("f4")
    found = {}
    for device in ("cpu", "cuda"):
        table, at = mg.var("table", init=start), mg.input("ids", (4, 50), "int32")
        loss = mg.mean(mg.tanh(mg.embedding(at, table, padding_index=3)) ** 2)
        step = make().step(loss, [table], [at], [loss], device=device)
        losses = [float(step(batch)[0]) for batch in ids]
        found[device] = np.array(losses, "f4"), table.value
        if device == "cuda":
            assert_captured(step)
    for ours, theirs in zip(found["cuda"], found["cpu"], strict=True):
        assert_agrees(ours, theirs, "reassoc", 10.0)


def test_an_axis_without_elements(rng: np.random.Generator) -> None:
    x, at = mg.var("x", shape=("n", 3)), mg.input("at", ("m",), "int32")
    f = mg.function([x, at], mg.take(x, at, axis=0), device="cuda")
    assert f(np.zeros((2, 3), "f4"), np.zeros(0, "i4")).shape == (0, 3)
    with pytest.raises(mg.ShapeError, match="axis 0 is empty, and 2 elements of it are taken"):
        f(np.zeros((0, 3), "f4"), np.zeros(2, "i4"))


@pytest.mark.parametrize("how", ["set", "min", "max"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
def test_updates_at_equal_positions_are_those_of_the_host(
    dtype: str, how: str, rng: np.random.Generator
) -> None:
    x = mg.var("x", shape=("rows", 3), dtype=dtype)
    at = mg.var("at", shape=("count",), dtype="int32")
    values = mg.var("values", shape=("count", 3), dtype=dtype)
    given = [(5 * rng.standard_normal(shape)).astype(dtype) for shape in ((1000, 3), (20_000, 3))]
    positions = rng.integers(0, 1000, 20_000).astype("i4")
    if how != "set" and dtype != "int32":
        for array in given:
            array.reshape(-1)[:: array.size // 50] = np.nan
    feeds = given[0], positions, given[1]
    updated = getattr(x.at[at], how)(values)
    wanted = mg.function([x, at, values], updated, device="cpu")(*feeds)
    found = mg.function([x, at, values], updated, device="cuda")(*feeds).get()
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("extent", [10, 1000, 6000, 100_003])
def test_counts_and_sums_of_integers(extent: int) -> None:
    rng = np.random.default_rng(11)
    numbers = rng.integers(-5, extent + 5, 3_000_017).astype("i4")
    worth = rng.integers(-(2**31), 2**31, 3_000_017).astype("i8") << 20  # the sums overflow
    x, weights = mg.input("x", numbers.shape, "int32"), mg.input("weights", worth.shape, "int64")
    outputs = [mg.bincount(x, length=extent), mg.bincount(x, weights, length=extent)]
    f = mg.function([x, weights], outputs, device="cuda")
    inside = (numbers >= 0) & (numbers < extent)
    summed = np.zeros(extent, "i8")
    np.add.at(summed, numbers[inside], worth[inside])
    for _ in range(3):
        counts, sums = f(numbers, worth)
        np.testing.assert_array_equal(counts.get(), np.bincount(numbers[inside], None, extent))
        np.testing.assert_array_equal(sums.get(), summed)
    assert_captured(f)


def test_rows_of_integers_are_added() -> None:
    rng = np.random.default_rng(12)
    base, rows = (rng.integers(-1000, 1000, (n, 5)).astype("i4") for n in (300, 100_003))
    at = rng.integers(0, 300, 100_003).astype("i4")
    nodes = [mg.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate((base, at, rows))]
    f = mg.function(nodes, nodes[0].at[nodes[1]].add(nodes[2]), device="cuda")
    wanted = base.copy()
    np.add.at(wanted, at, rows)
    for _ in range(3):
        np.testing.assert_array_equal(f(base, at, rows).get(), wanted)


@pytest.mark.parametrize("groups", [1, 7, 1000, 4000])
@pytest.mark.parametrize("columns", [1, 3, 32, 100])
def test_rows_are_added_up_in_few_groups(groups: int, columns: int) -> None:
    rng = np.random.default_rng(13)
    rows = rng.standard_normal((1_000_003, columns)).astype("f4")
    at = rng.integers(0, groups, 1_000_003).astype("i4")
    at[1000:200_000] = groups // 2  # one group has many rows side by side
    x, places = mg.input("x", rows.shape), mg.input("places", at.shape, "int32")
    base = mg.input("base", (groups, columns))
    f = mg.function([base, places, x], base.at[places].add(x), device="cuda")
    start = rng.standard_normal((groups, columns)).astype("f4")
    order = np.argsort(at, kind="stable")
    first = np.searchsorted(at[order], np.arange(groups))
    wanted = start + np.add.reduceat(rows[order].astype("f8"), first, axis=0)
    found = f(start, at, rows).get()
    np.testing.assert_allclose(found, wanted, 1e-4, 2e-2)
    for _ in range(3):
        assert f(start, at, rows).get().tobytes() == found.tobytes()
    assert_captured(f)
