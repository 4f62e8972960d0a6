"""Functional models as files: layers, and the graph between them."""

from __future__ import annotations

import json

import numpy as np
import pytest

import magmagraph as mg

nn = mg.nn


def model(seed: int = 0, **options) -> mg.Model:
    """Return one with two inputs, a shared layer, states, a variable, constants and slices."""
    with mg.ops.random.bits.streams_from(seed):
        x, z = mg.input("x", ("batch", 7, 4)), mg.input("z", ("batch", 3))
        rows, last = nn.GRU(5, return_sequences=True, return_state=True)(x)
        shared = nn.Dense(5, "tanh", regularizer=mg.regularize.l2(0.1))
        scale = mg.var("scale", init=np.linspace(0.5, 1.5, 5, dtype=np.float32))
        hidden = shared(rows[:, -2]) * scale + shared(last)
        mixing = mg.constant(np.linspace(-1, 1, 8 * 6, dtype=np.float32).reshape(8, 6))
        mixed = mg.concatenate([hidden, mg.exp(-z)], axis=1) @ mixing
        outputs = nn.Dense(2)(nn.Dropout(0.3)(nn.BatchNorm()(mixed)))
    given = {
        "loss": "cross_entropy",
        "optimizer": mg.optimizer.Adam(0.01, clip_norm=1.0),
        "regularize": mg.regularize.l1(0.01),
        **options,
    }
    return mg.Model([x, z], outputs, seed=seed, **given)


def data() -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 7, 4)).astype(np.float32)
    return [x, rng.standard_normal((40, 3)).astype(np.float32)], (x.sum((1, 2)) > 0).astype(int)


def test_a_loaded_model_goes_on_as_the_saved_one(tmp_path):
    x, y = data()
    first = model()
    first.fit(x, y, batch_size=10, epochs=2)
    first.save(tmp_path / "model")
    again = mg.Model.load(tmp_path / "model")
    assert type(again) is mg.Model
    assert np.array_equal(again.predict(x), first.predict(x))
    assert again.evaluate(x, y) == first.evaluate(x, y)
    assert list(again.weights()) == list(first.weights())
    assert again.architecture() == first.architecture()
    assert str(again.summary()) == str(first.summary())
    # It trains as one whose optimizer begins anew.
    anew = model()
    anew.set_tensors(first.tensors(), "the first")
    for net in (again, anew):
        net.fit(x, y, batch_size=10, epochs=2)
    assert all(np.array_equal(v, anew.tensors()[k]) for k, v in again.tensors().items())


def test_the_architecture_is_json_and_the_same_in_every_build():
    first, second = model(), model()
    assert json.loads(json.dumps(first.architecture())) == json.loads(
        json.dumps(second.architecture())
    )
    assert first.architecture() != model(loss="nll_loss").architecture()


def test_a_cut_run_of_a_model_of_another_graph_is_refused(tmp_path):
    x, y = data()
    keeping = [mg.callbacks.Checkpoint(tmp_path / "run")]
    model().fit(x, y, batch_size=10, callbacks=keeping)
    resumed, whole = model(), model()
    resumed.fit(x, y, batch_size=10, epochs=3, callbacks=keeping, resume=tmp_path / "run")
    whole.fit(x, y, batch_size=10, epochs=3)
    assert all(np.array_equal(v, whole.tensors()[k]) for k, v in resumed.tensors().items())
    other = model(regularize=None)
    before = other.tensors()
    with pytest.raises(mg.DataError, match="with other regularize"):
        other.fit(x, y, batch_size=10, epochs=4, callbacks=keeping, resume=tmp_path / "run")
    assert all(np.array_equal(v, before[k]) for k, v in other.tensors().items())


def test_what_a_file_cannot_hold_is_told(tmp_path):
    path = tmp_path / "model"
    x = mg.input("x", ("batch", 3))
    nameless = mg.Model(x, nn.Dense(2, lambda v: v * 2.0)(x))
    with pytest.raises(mg.ConfigError, match="has no name"):
        nameless.save(path)
    assert not path.exists()
    nameless.save_weights(path)
    with pytest.raises(mg.DataError, match="that Python code built"):
        mg.Model.load(path)
    model().save(path)
    with pytest.raises(mg.DataError, match=r"try: mg\.Model\.load"):
        mg.NeuralNetwork.load(path)


def test_networks_are_loaded_by_either_class(tmp_path):
    net = mg.NeuralNetwork(
        [nn.Input((4,)), nn.Dense(3)], loss="mse", regularize=mg.regularize.l2(0.5)
    )
    net.save(tmp_path / "net")
    x, y = np.ones((2, 4)), np.zeros((2, 3))
    for kind in (mg.Model, mg.NeuralNetwork):
        again = kind.load(tmp_path / "net")
        assert type(again) is mg.NeuralNetwork
        # Its penalty is part of what is evaluated.
        assert again.evaluate(x, y) == net.evaluate(x, y)
        assert kind.load(tmp_path / "net", regularize=None).evaluate(x, y) != net.evaluate(x, y)
