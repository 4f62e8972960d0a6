"""Networks, metrics and estimators on a GPU, and what they are given there: device arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import tolerance

pytestmark = pytest.mark.gpu

nn = mg.nn
SINGLE = tolerance(np.dtype("float32"), "reassoc")


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((130, 1, 8, 8)).astype(np.float32)
    return x, (x.sum((1, 2, 3)) > 0).astype(np.int64)


def network(device: str, **options: Any) -> mg.NeuralNetwork:
    layers = [
        nn.Input((1, 8, 8)),
        nn.Conv2D(4, 3, "relu"),
        nn.BatchNorm(),
        nn.Flatten(),
        nn.Dense(16, "tanh"),
        nn.Output(2),
    ]
    given = {"loss": "cross_entropy", "optimizer": mg.optimizer.SGD(0.05, momentum=0.9), **options}
    return mg.NeuralNetwork(layers, metrics=["accuracy", "confusion", "f1"], device=device, **given)


def test_a_model_learns_there_as_on_the_host(tmp_path):
    x, y = data()
    found = {}
    for device in ("cpu", "cuda"):
        net = network(device)
        history = net.fit(x, y, batch_size=40, epochs=3, validation_data=(x, y))
        found[device] = (history["loss"], net.predict(x))
        assert isinstance(net.predict(x), np.ndarray)
        assert isinstance(history.records[-1]["confusion"], np.ndarray)
        assert np.mean(net.predict_class(x) == y) == net.evaluate(x, y)["accuracy"]
        net.save(tmp_path / device)
        again = mg.NeuralNetwork.load(tmp_path / device, device=device)
        assert np.array_equal(again.predict(x), net.predict(x))
    # Some dozens of steps let roundings grow; a wrong gradient is off by far more.
    for ours, theirs in zip(found["cuda"], found["cpu"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=100 * SINGLE.relative, atol=1e-3)


def test_a_run_that_is_cut_there_ends_as_the_whole_one(tmp_path):
    x, y = data()
    whole = network("cuda")
    whole.fit(x, y, batch_size=40, epochs=4)
    keeping = mg.callbacks.Checkpoint(tmp_path / "run", every=3, unit="step")
    network("cuda").fit(x, y, batch_size=40, epochs=2, callbacks=[keeping])
    resumed = network("cuda")
    resumed.fit(x, y, batch_size=40, epochs=4, callbacks=[keeping], resume=tmp_path / "run")
    assert all(
        np.array_equal(value, whole.tensors()[name]) for name, value in resumed.tensors().items()
    )


def test_arrays_of_the_device_are_data():
    import cupy

    x, y = data()
    net = network("cuda")
    net.fit(cupy.asarray(x), cupy.asarray(y), batch_size=40)
    assert np.array_equal(net.predict(cupy.asarray(x)), net.predict(x))
    of_device, of_host = net.evaluate(cupy.asarray(x), cupy.asarray(y)), net.evaluate(x, y)
    assert all(np.array_equal(value, of_host[name]) for name, value in of_device.items())
    scores = net.predict(x)
    for name in ("accuracy", "top_1", "matthews", "precision"):
        metric = mg.metrics.metric(name)
        assert metric(cupy.asarray(scores), cupy.asarray(y)) == metric(scores, y)


def test_recurrent_layers_learn_there_as_on_the_host():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((60, 7, 3)).astype(np.float32)
    y = x[:, -1, :1]
    found = []
    for device in ("cpu", "cuda"):
        net = mg.NeuralNetwork(
            [nn.Input((7, 3)), nn.LSTM(5, return_sequences=True), nn.GRU(4), nn.Dense(1)],
            loss="mse", optimizer=mg.optimizer.SGD(0.1), metrics=["r2"], device=device,
        )  # fmt: skip
        found.append(net.fit(x, y, batch_size=20, epochs=3)["loss"])
    np.testing.assert_allclose(found[1], found[0], rtol=100 * SINGLE.relative)


def test_estimators_work_where_functions_run_on_the_device(monkeypatch):
    import cupy

    pytest.importorskip("sklearn")
    from magmagraph.estimators import MLPClassifier, MLPRegressor

    monkeypatch.setattr(mg.config, "device", "cuda")
    x, y = data()
    flat = x.reshape(len(x), -1)
    given = {"hidden": (8,), "epochs": 30, "optimizer": mg.optimizer.Adam(0.02), "random_state": 0}
    classes = MLPClassifier(**given).fit(cupy.asarray(flat), cupy.asarray(y))
    assert classes.score(flat, y) > 0.9
    shares = classes.predict_proba(cupy.asarray(flat))
    assert isinstance(shares, np.ndarray) and shares.shape == (len(x), 2)
    values = MLPRegressor(**given).fit(flat, flat.sum(1))
    assert values.score(flat, flat.sum(1)) > 0.9
