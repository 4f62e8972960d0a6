"""Plans that are captured and replayed: feeds, variables, sizes, errors, memory, measurements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from table import assert_agrees

import magmagraph as mg

pytestmark = pytest.mark.gpu


def counter(step: float = 1.0) -> tuple[Any, Any, Any]:
    """Return a variable, a function that adds to it, and one that reads it."""
    total = mg.var("total", init=mg.init.zeros(), shape=(5,))
    x = mg.var("x", shape=(5,))
    add = mg.function([x], total + x, updates={total: total + step * x}, device="cuda")
    read = mg.function([], total * 2.0, device="cuda")
    return total, add, read


def test_three_calls_are_equal_and_new_feeds_are_used(rng: np.random.Generator) -> None:
    x = mg.var("x", shape=("n", 300))
    w = mg.var("w", init=mg.init.glorot_uniform(seed=1), shape=(300, 40))
    f = mg.function([x], [mg.softmax(mg.tanh(x @ w)), mg.sum(x, axis=0)], device="cuda")
    first = rng.standard_normal((50, 300)).astype("f4")
    kept = [[part.get() for part in f(first)] for _ in range(3)]
    for other in kept[1:]:
        for a, b in zip(kept[0], other, strict=True):
            assert a.tobytes() == b.tobytes()
    second = rng.standard_normal((50, 300)).astype("f4")
    assert_agrees(f(second)[1].get(), second.sum(0, dtype="f8"), "reassoc", 50)


def test_variables_are_renewed_on_the_device_and_on_the_host() -> None:
    total, add, read = counter()
    ones = np.ones(5, "f4")
    for count in range(1, 6):
        np.testing.assert_array_equal(add(ones).get(), count)
    np.testing.assert_array_equal(read().get(), 10)
    total.value = np.full(5, 100, "f4")
    np.testing.assert_array_equal(read().get(), 200)
    np.testing.assert_array_equal(add(ones).get(), 101)
    host = mg.function([], total + 0.0, updates={total: total * 3.0}, device="cpu")
    np.testing.assert_array_equal(host(), 101)
    np.testing.assert_array_equal(add(ones).get(), 304)
    np.testing.assert_array_equal(total.value, 304)


def test_several_sizes_of_a_named_dimension(rng: np.random.Generator) -> None:
    x = mg.var("x", shape=("n", 8))
    f = mg.function([x], mg.logsumexp(x, axis=-1), device="cuda")
    for n in (3, 100, 1, 3, 0, 100, 4097, 3):
        given = rng.standard_normal((n, 8)).astype("f4")
        wanted = np.log(np.exp(given.astype("f8")).sum(-1))
        assert_agrees(f(given).get(), wanted, "reassoc")


def test_nothing_is_updated_where_a_value_is_not_finite() -> None:
    a = mg.var("a", init=mg.init.zeros(), shape=(3,))
    b = mg.var("b", init=mg.init.zeros(), shape=(3,))
    x = mg.var("x", shape=(3,))
    updates = {a: a + x, b: b + mg.log(x)}
    f = mg.function([x], mg.sum(x), updates=updates, device="cuda", nan="raise")
    ones = np.ones(3, "f4")
    for _ in range(3):
        f(ones)
    with pytest.raises(mg.NonFiniteError, match="'b' holds 1 values that are not finite"):
        f(np.array([1, 0, 1], "f4"))
    np.testing.assert_array_equal(a.value, 3)
    np.testing.assert_array_equal(b.value, 0)
    f(ones)
    np.testing.assert_array_equal(a.value, 4)


def test_updates_land_together() -> None:
    a = mg.var("a", init=mg.init.zeros(), shape=(1,))
    b = mg.var("b", init=mg.init.zeros(), shape=(1,))
    a.value, b.value = np.array([1.0], "f4"), np.array([2.0], "f4")
    swap = mg.function([], [a, b], updates={a: b, b: a}, device="cuda")
    for turn in range(4):
        found = [float(part.get()[0]) for part in swap()]
        assert found == ([1, 2] if turn % 2 == 0 else [2, 1])
    assert (float(a.value[0]), float(b.value[0])) == (1, 2)


def test_results_are_the_callers_and_out_is_filled(rng: np.random.Generator) -> None:
    x = mg.var("x", shape=(64,))
    f = mg.function([x], mg.exp(x), device="cuda")
    given = rng.standard_normal(64).astype("f4")
    kept = [f(given + i) for i in range(4)]
    for i, part in enumerate(kept):
        assert_agrees(part.get(), np.exp((given + i).astype("f8")), "reassoc", 100)
    target = np.empty(64, "f4")
    assert f(given, out=target) is target
    assert_agrees(target, np.exp(given.astype("f8")), "reassoc", 10)


def test_a_call_takes_no_memory_but_its_results(rng: np.random.Generator) -> None:
    cupy = pytest.importorskip("cupy")
    x = mg.var("x", shape=(256, 256))
    f = mg.function([x], mg.sum(mg.tanh(x @ x) @ x), device="cuda")
    given = rng.standard_normal((256, 256)).astype("f4")
    for _ in range(3):
        f(given)
    pool = cupy.get_default_memory_pool()
    before = pool.used_bytes()
    for _ in range(5):
        result = f(given)
    assert pool.used_bytes() - before <= 512
    assert result.nbytes == 4


def test_a_device_that_is_not_there() -> None:
    x = mg.var("x", shape=(3,))
    with pytest.raises(mg.DeviceError, match="expected: a number below"):
        mg.function([x], x + 1.0, device="cuda:99")(np.ones(3, "f4"))


def test_the_source_is_cuda() -> None:
    x = mg.var("x", shape=(10, 300))
    f = mg.function([x], mg.softmax(x), device="cuda")
    f(np.ones((10, 300), "f4"))
    text = f.source(0)
    assert 'extern "C" __global__' in text
    assert "mg_exp_below(" in text


def test_measurements_leave_variables_alone() -> None:
    total, add, _ = counter()
    ones = np.ones(5, "f4")
    add(ones)
    measured = add.profile(ones)
    assert all(step.nanoseconds > 0 for step in measured)
    assert add.check(ones).ok
    table = add.ablate(ones, rounds=1)
    assert table.whole.nanoseconds > 0
    np.testing.assert_array_equal(total.value, 1)
    np.testing.assert_array_equal(add(ones).get(), 2)
    np.testing.assert_array_equal(total.value, 2)
