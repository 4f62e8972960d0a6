"""Loops and branches as operations of a function on a device, against the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from table import assert_agrees

import magmagraph as mg
from magmagraph.runtime.cuda.launching.segments import Segment

pytestmark = pytest.mark.gpu


def on_both(inputs: list[Any], outputs: list[Any], *feeds: Any) -> Any:
    """Compare what a function gives on the device, three times, with what it gives on the host.

    Returns the device's function.
    """
    wanted = mg.function(inputs, outputs, device="cpu")(*feeds)
    f = mg.function(inputs, outputs, device="cuda")
    for _ in range(3):
        for found, value in zip(f(*feeds), wanted, strict=True):
            assert_agrees(found.get(), value, "reassoc", float(np.abs(value).max()))
    return f


@pytest.mark.parametrize("checkpoint", [False, True, "sqrt"])
def test_a_scan_and_its_gradients(checkpoint: Any, rng: np.random.Generator) -> None:
    xs = mg.var("xs", shape=(9, 4, 6))
    w = mg.var("w", shape=(6, 6))
    first = mg.var("first", shape=(4, 6))

    def cell(carry: Any, x: Any) -> tuple[Any, Any]:
        new = mg.tanh(carry @ w + x)
        return new, new * 2.0

    last, all_of_them = mg.scan(cell, first, xs, checkpoint=checkpoint)
    loss = mg.sum(last * last) + mg.mean(all_of_them)
    gradients = mg.grad(loss, [w, first, xs])
    feeds = (
        rng.standard_normal((9, 4, 6)).astype("f4"),
        0.3 * rng.standard_normal((6, 6)).astype("f4"),
        rng.standard_normal((4, 6)).astype("f4"),
    )
    f = on_both([xs, w, first], [last, all_of_them, *gradients], *feeds)
    parts = [*f._last._before, *f._last._after]
    assert all(isinstance(part, Segment) for part in parts)  # iterations are launches of the graph


@pytest.mark.parametrize("start", [3.0, 300.0])
def test_a_while_loop_ends_when_its_condition_does(start: float) -> None:
    x = mg.var("x")
    kept = mg.while_loop(lambda c: c < 100.0, lambda c: c * 1.5, x, max_steps=50)
    free = mg.while_loop(lambda c: c < 100.0, lambda c: c * 1.5, x)
    on_both([x], [kept, free, mg.grad(kept, x)], np.float32(start))


@pytest.mark.parametrize("value", [2.0, -2.0])
def test_a_branch_runs_the_one_that_was_asked_for(value: float) -> None:
    x = mg.var("x", shape=(5,))
    chosen = mg.cond(mg.sum(x) > 0.0, lambda v: mg.log(v) * 3.0, lambda v: v * v, x)
    on_both([x], [chosen, mg.grad(mg.sum(chosen), x)], np.full(5, value, "f4"))


def test_a_variable_that_a_loop_reads_is_trained(rng: np.random.Generator) -> None:
    found = {}
    given = rng.standard_normal((7, 3, 4)).astype("f4")
    for device in ("cpu", "cuda"):
        xs = mg.var("xs", shape=("time", 3, 4))
        w = mg.var("w", init=mg.init.glorot_uniform(seed=1), shape=(4, 4))
        last, _ = mg.scan(
            lambda c, x, w=w: (mg.tanh(c @ w + x), None), mg.constant(np.zeros((3, 4), "f4")), xs
        )
        loss = mg.mean(last * last)
        updates = mg.optimizer.Adam(0.01).updates(loss, [w])
        step = mg.function([xs], loss, updates=updates, device=device)
        losses = [float(step(given)) for _ in range(8)]
        found[device] = np.array(losses, "f4"), w.value
    for ours, theirs in zip(found["cuda"], found["cpu"], strict=True):
        assert_agrees(ours, theirs, "reassoc", 10)


def test_a_loop_whose_one_result_is_kept_and_returned_twice() -> None:
    given = np.arange(60, dtype="f4").reshape(15, 4)
    xs = mg.var("xs", shape=(15, 4))
    held = mg.var("held", init=np.ones(4, "f4"))
    last, _ = mg.scan(lambda c, x: (c + x, None), held, xs)
    f = mg.function([xs], [last, last], updates={held: last}, device="cuda")
    for turn in (1, 2, 3):
        for found in (*(result.get() for result in f(given)), held.value):
            np.testing.assert_array_equal(found, 1.0 + turn * given.sum(axis=0))
