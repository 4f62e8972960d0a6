"""Whole functions on a CUDA device, against the same functions on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpreted import values
from table import (
    PUBLIC,
    assert_agrees,
    dtypes_of,
    is_float_array,
    leaves,
    magnitude,
    results,
    rounded,
)

import magmagraph as mg

pytestmark = pytest.mark.gpu


FREE_PHASES = {"svd", "eig", "eigh"}  # vectors whose phases libraries choose each in their way


@pytest.mark.filterwarnings("ignore::magmagraph.errors.FallbackWarning")  # CuPy lacks some
@pytest.mark.parametrize("name", PUBLIC)
def test_on_the_device_it_is_interpreted(name: str) -> None:
    record = PUBLIC[name]
    assert record.tests.samples is not None
    assert record.function is not None
    made: list[Any] = []
    feeds: dict[Any, Any] = {}
    for i, sample in enumerate(record.tests.samples()):
        for dtype in dtypes_of(record):
            nodes, fed = leaves(rounded(sample.inputs, dtype), f"{dtype.name}_{i}_")
            feeds |= fed
            made += results(record.function(*nodes, **sample.attrs))
            if not any(is_float_array(value) for value in fed.values()):
                break
    compiled = mg.function(list(feeds), made, device="cuda")
    for _ in range(3):  # one by one, captured, replayed
        found = compiled(*feeds.values())
    for node, value, wanted in zip(made, found, values(made, feeds), strict=True):
        assert value.dtype == node.dtype
        given = value.get()
        if name in FREE_PHASES and given.ndim > 1:
            given, wanted = np.abs(given), np.abs(wanted)
        assert_agrees(given, wanted, record.numerics, magnitude(wanted))


def test_training_on_the_device_is_training_on_the_host(rng: np.random.Generator) -> None:
    def network(device: str) -> tuple[Any, list[Any]]:
        x = mg.var("x", shape=("batch", 20))
        labels = mg.var("labels", shape=("batch",), dtype="int32")
        w = mg.var("w", init=mg.init.glorot_uniform(seed=1), shape=(20, 30))
        b = mg.var("b", init=mg.init.zeros(), shape=(30,))
        v = mg.var("v", init=mg.init.glorot_uniform(seed=2), shape=(30, 5))
        loss = mg.cross_entropy(mg.sigmoid(x @ w + b) @ v, labels)
        variables = [w, b, v]
        updates = mg.optimizer.Adam(1e-2).updates(loss, variables)
        return mg.function([x, labels], loss, updates=updates, device=device), variables

    host, on_host = network("cpu")
    device, on_device = network("cuda")
    xs = rng.standard_normal((8, 16, 20)).astype("float32")
    ys = rng.integers(0, 5, (8, 16)).astype("int32")
    for x, y in zip(xs, ys, strict=True):
        assert_agrees(device(x, y).get(), host(x, y), "reassoc")
    for a, b in zip(on_device, on_host, strict=True):
        assert_agrees(a.value, b.value, "reassoc")
    on_device[0].value = on_host[0].value * 2
    on_host[0].value = on_host[0].value * 2
    assert_agrees(device(xs[0], ys[0]).get(), host(xs[0], ys[0]), "reassoc")


def test_feeds_and_results_of_other_libraries() -> None:
    cupy = pytest.importorskip("cupy")
    x = mg.var("x", shape=("n", 3))
    double = mg.function([x], x * 2.0, device="cuda")
    given = cupy.arange(12, dtype="f4").reshape(4, 3)
    np.testing.assert_array_equal(double(given).get(), given.get() * 2)
    np.testing.assert_array_equal(double(given.astype("f8").T.copy().T).get(), given.get() * 2)
    kept = double(given)
    double(given + 1)
    np.testing.assert_array_equal(kept.get(), given.get() * 2)
    out = np.empty((4, 3), "f4")
    assert double(given, out=out) is out
    np.testing.assert_array_equal(out, given.get() * 2)
    host = mg.function([x], x * 2.0, device="cpu")
    np.testing.assert_array_equal(host(given), given.get() * 2)


def test_the_setting_says_what_auto_means(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = pytest.importorskip("cupy")
    x = mg.var("x", shape=(3,))
    ones = np.ones(3, "f4")
    monkeypatch.setattr(mg.config, "device", "cuda")
    f = mg.function([x], x * 2.0)
    assert f.device == "cuda:0"
    assert isinstance(f(ones), cupy.ndarray)
    assert isinstance(mg.function([x], x * 2.0, device="cpu")(ones), np.ndarray)
    monkeypatch.setattr(mg.config, "device", "cpu")
    assert isinstance(mg.function([x], x * 2.0)(ones), np.ndarray)


def test_inputs_that_nothing_reads_are_fed_and_left_alone() -> None:
    x, unused = mg.var("x", shape=(3,)), mg.var("unused", shape=("n", 7))
    f = mg.function([x, unused], x * 2.0, device="cuda")
    for n in (1, 1, 1000):
        np.testing.assert_array_equal(f(np.ones(3, "f4"), np.ones((n, 7), "f4")).get(), 2)
