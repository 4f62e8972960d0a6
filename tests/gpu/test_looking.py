"""Taps, asserts, blame, values, checks and profiles of functions on a device."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.checks.debug import assert_ as asserted
from magmagraph.errors import CheckError, NonFiniteError
from magmagraph.inspect.evidence import evidence

pytestmark = pytest.mark.gpu


def step(seen: list[Any], **options: Any) -> tuple[mg.Function, mg.Node]:
    """Return a training step that is tapped and asserted, and its weights."""
    rng = np.random.default_rng(0)
    x = mg.var("x", shape=("batch", 64))
    w = mg.var("w", init=rng.normal(size=(64, 32)).astype(np.float32))
    hidden = mg.debug.tap(x @ w, seen.append, "hidden")
    held = asserted(mg.absolute(hidden) < 1e3, hidden, "small")
    loss = mg.mean(mg.tanh(held))
    new = mg.debug.tap(w - 0.1 * mg.grad(loss, w), seen.append, "new")
    return mg.function([x], loss, {w: new}, device="cuda", **options), w


def test_taps_run_in_order_on_every_call_and_cut_the_graph(rng: np.random.Generator) -> None:
    seen: list[Any] = []
    function, w = step(seen)
    batch = rng.standard_normal((16, 64)).astype("f4")
    for call in range(4):  # the second captures, the third replays
        before = w.value
        function(batch)
        hidden, new = seen[2 * call :]
        assert isinstance(hidden, np.ndarray)
        np.testing.assert_allclose(hidden, batch @ before, rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(new, w.value)
    told = " ".join(function.report["kernels"].notes)
    assert "the captured graph is cut by tap 'hidden', assert 'small', tap 'new'" in told


def test_a_failing_assert_lands_nothing(rng: np.random.Generator) -> None:
    function, w = step([])
    batch = rng.standard_normal((16, 64)).astype("f4")
    for _ in range(3):
        function(batch)
    before = w.value
    with pytest.raises(CheckError, match=r"^small: \d+ of 512 elements do not hold, first at"):
        function(batch * 1e6)
    np.testing.assert_array_equal(w.value, before)
    function(batch)
    assert (w.value != before).any()


def test_what_a_callback_raises_is_raised_once() -> None:
    calls = []

    def fail(array: np.ndarray) -> None:
        calls.append(array)
        raise KeyError("mine")

    w = mg.var("w", init=[1.0])
    function = mg.function([], None, {w: mg.debug.tap(w * 2.0, fail)}, device="cuda")
    with pytest.raises(KeyError, match="mine"):
        function()
    assert len(calls) == 1
    np.testing.assert_array_equal(w.value, [1.0])


def test_blame_and_values_of_a_function_on_a_device() -> None:
    x = mg.var("x", shape=(3,))
    w = mg.var("w", init=[1.0, 0.0, 2.0])
    root = mg.sqrt(w)
    loss = mg.sum(root * x)
    function = mg.function([x], loss, {w: w - 0.1 * mg.grad(loss, w)}, device="cuda")
    found = mg.debug.blame(function, [1.0, 1.0, 1.0])
    assert found is not None
    assert found.forward is root
    assert found.place == (1,)
    np.testing.assert_array_equal(w.value, [1.0, 0.0, 2.0])
    np.testing.assert_allclose(function.value(root, [1.0, 1.0, 1.0]), np.sqrt([1.0, 0.0, 2.0]))
    refusing = mg.function([x], mg.log(x), nan="raise", device="cuda")
    with pytest.raises(NonFiniteError, match="makes the first value that is not finite"):
        refusing([1.0, -1.0, 1.0])


def test_check_and_evidence_of_a_function_on_a_device(rng: np.random.Generator) -> None:
    function, w = step([])
    batch = rng.standard_normal((16, 64)).astype("f4")
    before = w.value
    assert function.check(batch).ok
    found = evidence(function, batch, ablate=True)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["device"].startswith("cuda")
    assert len(found["profile"]["steps"]) == len(function.plan.steps)
    np.testing.assert_array_equal(w.value, before)


def test_a_profile_stands_under_the_roofs_of_the_card(monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setattr(mg.config, "tuning", True)
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(tmp_path))
    x = mg.var("x", shape=(1 << 26,))
    function = mg.function([x], x * 2.0 + 1.0, device="cuda")
    measured = function.profile(np.ones(1 << 26, np.float32))
    assert measured.peaks is not None
    (stream,) = measured
    assert stream.bound == "bandwidth"
    assert 0.5 < stream.bandwidth_share < 1.2, str(measured)
    print(measured, measured.peaks)


def test_a_profile_says_which_steps_others_compute(monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setattr(mg.config, "tuning", True)
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(tmp_path))
    x = mg.var("x", shape=(100, 784))
    labels = mg.var("labels", shape=(100,), dtype="int32")
    w = mg.var("w", shape=(784, 528), init=mg.init.glorot_uniform(seed=0))
    u = mg.var("u", shape=(528, 10), init=mg.init.glorot_uniform(seed=1))
    b, c = (mg.var(name, shape=(n,), init=mg.init.zeros()) for name, n in (("b", 528), ("c", 10)))
    loss = mg.cross_entropy(mg.sigmoid(x @ w + b) @ u + c, labels)
    # An optimizer's rate is a variable: what is made of it would be launched with the sigmoid.
    variables = [w, b, u, c]
    updates = {v: v - 0.1 * mg.grad(loss, v) for v in variables}
    function = mg.function([x, labels], loss, updates=updates, device="cuda")
    measured = function.profile(np.ones((100, 784), "f4"), np.zeros(100, "i4"))
    # The sigmoid is computed by the product before it, the product behind the loss by the loss.
    for name in ("sigmoid", "log"):
        assert any({"gemm", name} <= set(step.operations) for step in measured), name
    assert all(step.nanoseconds > 0 for step in measured)
