"""Many steps with no return to Python between them: bit for bit what calls in a loop give."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import magmagraph as mg

pytestmark = pytest.mark.gpu

ROWS, SIZE = 230, 30


def network(device: str = "cuda", outputs: str = "loss") -> tuple[Any, list[Any]]:
    """Return a step with a schedule, momentum and dropout, and all its variables."""
    x = mg.var("x", shape=("batch", 40))
    labels = mg.var("labels", shape=("batch",), dtype="int32")
    w = mg.var("w", init=mg.init.glorot_uniform(seed=1), shape=(40, 64))
    b = mg.var("b", init=mg.init.zeros(), shape=(64,))
    v = mg.var("v", init=mg.init.glorot_uniform(seed=2), shape=(64, 10))
    hidden = mg.sigmoid(x @ w + b)
    kept = mg.random.bernoulli(hidden.shape, 0.8)
    logits = (hidden * mg.cast(kept, "float32")) @ v
    loss = mg.cross_entropy(logits, labels)
    optimizer = mg.optimizer.SGD(mg.schedule.exponential(0.5, 0.9, 7), momentum=0.9)
    updates = optimizer.updates(loss, [w, b, v])
    wanted = {"loss": loss, "rows": [loss, {"predicted": mg.argmax(logits, axis=1)}], "none": None}
    f = mg.function([x, labels], wanted[outputs], updates=updates, device=device)
    return f, list(dict.fromkeys([w, b, v, *updates]))


def data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return (
        rng.standard_normal((ROWS, 40)).astype("f4"), rng.integers(0, 10, ROWS).astype("i4")
    )


def state(f: Any, variables: list[Any]) -> list[bytes]:
    counter = [] if f.random_step is None else [f.random_step.value.tobytes()]
    return [v.value.tobytes() for v in variables] + counter


def restored(f: Any, variables: list[Any]) -> Any:
    """Return what puts all variables back."""
    held = [v.value for v in variables]
    counter = f.random_step.value

    def put() -> None:
        for v, value in zip(variables, held, strict=True):
            v.value = value
        f.random_step.value = counter

    return put


@pytest.mark.parametrize("steps", [1, 2, 16, 17, 75])
def test_the_same_feeds_again_and_again(steps: int, rng: np.random.Generator) -> None:
    f, variables = network()
    x, labels = data(rng)
    put = restored(f, variables)
    wanted = [f(x, labels).get() for _ in range(steps)]
    after = state(f, variables)
    for _ in range(2):  # the second time everything is captured
        put()
        found = f.run(steps, (x, labels))
        assert found.get().tobytes() == np.stack(wanted).tobytes()
        assert state(f, variables) == after
    put()
    assert f.run(steps, (x, labels), keep="last").get().tobytes() == wanted[-1].tobytes()
    assert state(f, variables) == after


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("steps", [16, 3, 1])
def test_epochs_of_batches(
    shuffle: bool, drop_last: bool, steps: int, rng: np.random.Generator, monkeypatch: Any
) -> None:
    from magmagraph.runtime.cuda.launching import loops

    monkeypatch.setattr(loops, "STEPS", steps)
    f, variables = network(outputs="rows")
    x, labels = data(rng)
    how = {"size": SIZE, "shuffle": shuffle, "seed": 3, "drop_last": drop_last}
    put = restored(f, variables)
    losses, predicted = [], []
    calls = mg.batches(x, labels, **how)
    for _ in range(3):
        for batch in calls:
            loss, rows = f(*batch)
            losses.append(loss.get())
            predicted.append(rows["predicted"].get())
    after = state(f, variables)
    put()
    several = mg.batches(x, labels, **how)
    found = [f.run(several) for _ in range(3)]
    assert several.epoch == 3
    assert state(f, variables) == after
    assert np.concatenate([loss.get() for loss, _ in found]).tobytes() == b"".join(
        loss.tobytes() for loss in losses
    )
    seen = [step.get() for _, rows in found for step in rows["predicted"]]
    assert [s.tobytes() for s in seen] == [p.tobytes() for p in predicted]
    assert len(predicted) == 3 * (7 if drop_last else 8)
    put()
    last = f.run(mg.batches(x, labels, **how), keep="last")
    assert last[0].get().tobytes() == losses[len(several) - 1].tobytes()


def test_rows_come_in_the_order_of_the_host(rng: np.random.Generator) -> None:
    x = mg.var("x", shape=("batch", 3))
    f = {device: mg.function([x], x + 0.0, device=device) for device in ("cpu", "cuda")}
    given = rng.standard_normal((23, 3)).astype("f4")
    for epoch in range(3):
        several = mg.batches(given, size=5, seed=8), mg.batches(given, size=5, seed=8)
        several[0].epoch = several[1].epoch = epoch
        host, device = f["cpu"].run(several[0]), f["cuda"].run(several[1])
        assert [len(step) for step in host] == [len(step) for step in device] == [5, 5, 5, 5, 3]
        for a, b in zip(host, device, strict=True):
            np.testing.assert_array_equal(a, b.get())


@pytest.mark.parametrize("dtype", ["int8", "float16", "float64", "bool"])
def test_rows_of_any_width(dtype: str, rng: np.random.Generator) -> None:
    x = mg.var("x", shape=("batch", 5), dtype=dtype)
    f = mg.function([x], mg.where(mg.cast(x, "bool"), 1, 0), device="cuda")
    given = rng.integers(0, 2, (17, 5)).astype(dtype)
    order = np.random.default_rng((0, 0)).permutation(17)
    found = f.run(mg.batches(given, size=4))
    np.testing.assert_array_equal(
        np.concatenate([step.get() for step in found]), given[order].astype("i4")
    )


def test_functions_of_several_dtypes_share_batches(rng: np.random.Generator) -> None:
    given = rng.integers(0, 100, (17, 5)).astype("i4")
    several = mg.batches(given, size=4, shuffle=False)
    for dtype in ("int32", "int64", "int8"):
        x = mg.var("x", shape=("batch", 5), dtype=dtype)
        found = mg.function([x], x + 0, device="cuda").run(several)
        np.testing.assert_array_equal(np.concatenate([step.get() for step in found]), given)


def test_data_that_does_not_fit_is_streamed(rng: np.random.Generator, monkeypatch: Any) -> None:
    from magmagraph.runtime.cuda.launching import loops

    f, variables = network()
    x, labels = data(rng)
    put = restored(f, variables)
    wanted = f.run(mg.batches(x, labels, size=SIZE)).get()
    after = state(f, variables)
    put()
    monkeypatch.setattr(loops, "_SHARE", 0.0)
    assert f.run(mg.batches(x, labels, size=SIZE)).get().tobytes() == wanted.tobytes()
    assert state(f, variables) == after


def test_what_needs_the_host_between_steps(rng: np.random.Generator) -> None:
    total = mg.var("total", init=0.0)
    x = mg.var("x", shape=("n",))
    new = total + mg.sum(mg.log(x))
    f = mg.function([x], new, updates={total: new}, device="cuda", nan="raise")
    found = f.run(5, (np.full(3, 2.0, "f4"),))
    np.testing.assert_allclose(found.get(), 3 * np.log(2.0) * np.arange(1, 6), rtol=1e-6)
    with pytest.raises(mg.NonFiniteError):
        f.run(2, (np.zeros(3, "f4"),))
    np.testing.assert_allclose(total.value, 15 * np.log(2.0), rtol=1e-6)


def test_outputs_of_none_and_data_that_is_let_go(rng: np.random.Generator) -> None:
    from magmagraph.runtime.cuda.launching import loops

    f, variables = network(outputs="none")
    x, labels = data(rng)
    several = mg.batches(x, labels, size=SIZE)
    before = [v.value for v in variables]
    assert f.run(several) is None
    assert any((v.value != b).any() for v, b in zip(variables, before, strict=True))
    assert several in loops._resident
    held = len(loops._resident)
    del several
    gc.collect()
    assert len(loops._resident) == held - 1


def test_an_error_in_a_capture_ends_it(rng: np.random.Generator, monkeypatch: Any) -> None:
    from magmagraph.runtime.cuda.device import device_of
    from magmagraph.runtime.cuda.launching import segments

    f, variables = network()
    x, labels = data(rng)
    put = restored(f, variables)
    wanted = [f(x, labels).get() for _ in range(4)]
    put()
    g, others = network()
    first = g(x, labels).get()
    assert first.shape == ()

    def failing(*_: Any) -> None:
        raise RuntimeError("in the middle")

    with monkeypatch.context() as patch:
        patch.setattr(segments, "_launch", failing)
        with pytest.raises(RuntimeError, match="in the middle"):
            g(x, labels)
    assert not device_of("cuda").stream.is_capturing()
    found = [f(x, labels).get() for _ in range(4)]
    assert [a.tobytes() for a in found] == [b.tobytes() for b in wanted]
    assert np.isfinite(g(x, labels).get())
    assert len(others) == len(variables)


def test_results_that_do_not_fit_change_nothing() -> None:
    total = mg.var("total", init=1.0)
    x = mg.var("x", shape=(1 << 21,))
    large = mg.reshape(x, (-1, 1)) + mg.reshape(x, (1, -1))
    f = mg.function([x], large, updates={total: total + 1.0}, device="cuda")
    for _ in range(2):
        with pytest.raises(mg.DeviceError, match="has no 17,592,186,044,416 bytes for output 0"):
            f(np.ones(1 << 21, "f4"))
    assert total.value == 1
