"""Models: files and copies of them."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
from test_model import X, Y, small, weights

import magmagraph as mg
from magmagraph.dtypes import canonical
from magmagraph.model import files
from magmagraph.model.architecture import build_optimizer, describe_optimizer

nn = mg.nn


class Twice(nn.Layer):
    def call(self, x, training):
        return x * 2.0


def rich_network(**options) -> mg.NeuralNetwork:
    return mg.NeuralNetwork(
        [
            nn.Input((1, 6, 6)),
            nn.Conv2D(3, (2, 3), mg.relu, padding=1, kernel_init=mg.init.he_normal(seed=1)),
            nn.BatchNorm(),
            nn.Residual([nn.Conv2D(3, 1, weight_decay=0.1)], activation="relu"),
            nn.Flatten(),
            nn.Dense(4, "tanh", regularizer=mg.regularize.l1(0.1), name="wide"),
            nn.Output(3),
        ],
        loss="cross_entropy",
        optimizer=mg.optimizer.AdamW(mg.schedule.cosine(0.1, 20), clip_norm=1.0),
        metrics=["accuracy", "top_2"],
        **options,
    )


def test_load_of_a_network_reads_into_it(tmp_path, rng):
    x = rng.standard_normal((5, 3)).astype("f4")
    net, other = (
        mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(2)], loss="mse", seed=seed)
        for seed in (0, 1)
    )
    path = tmp_path / "net.safetensors"
    net.save(path)
    assert not np.array_equal(other.predict(x), net.predict(x))
    assert other.load(path) is other
    assert np.array_equal(other.predict(x), net.predict(x))
    wide = mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(4)], loss="mse")
    before = wide.predict(x)
    with pytest.raises(mg.errors.DataError, match="is of another architecture"):
        wide.load(path)
    assert np.array_equal(wide.predict(x), before)
    with pytest.raises(mg.errors.ConfigError, match="load of a model is given custom="):
        other.load(path, custom={})
    assert type(mg.Model.load(path)) is mg.NeuralNetwork


def test_a_file_holds_architecture_and_weights(tmp_path, rng):
    x, y = rng.standard_normal((40, 1, 6, 6)).astype("f4"), rng.integers(0, 3, 40)
    net = rich_network()
    net.fit(x, y, epochs=2)
    path = tmp_path / "net.safetensors"
    net.save(path)
    again = mg.NeuralNetwork.load(path)
    assert again.architecture() == net.architecture()
    assert weights(again) == weights(net)
    assert np.array_equal(again.predict(x), net.predict(x))
    assert again.evaluate(x, y) == net.evaluate(x, y)
    assert repr(again.optimizer) == repr(net.optimizer)
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    assert json.loads(header["__metadata__"]["magmagraph"])["architecture"]["seed"] == 0
    assert header["conv2d/kernel"]["shape"] == [3, 1, 2, 3]
    assert [entry.name for entry in tmp_path.iterdir()] == ["net.safetensors"]


def test_a_file_of_another_architecture_or_damaged_changes_nothing(tmp_path):
    path = tmp_path / "net.safetensors"
    small(nn.Dense(3)).save(path)
    content = path.read_bytes()
    for net, text in (
        (small(nn.Dense(2)), "dense/kernel is float32[4, 3] there"),
        (small(nn.Dense(3), nn.Dense(2)), "it lacks dense_1/kernel"),
        (small(nn.Output(3)), "it has dense/kernel, which this model lacks"),
    ):
        before = weights(net)
        with pytest.raises(mg.DataError) as raised:
            net.load_weights(path)
        assert text in str(raised.value) and weights(net) == before
    for damaged in (content[:-1], content[:30], b"", b"text", content[:-2] + b"\1\1"):
        path.write_bytes(damaged)
        with pytest.raises(mg.DataError, match="damaged"):
            mg.NeuralNetwork.load(path)
    for said, changed in (
        (rb'\"seed\": 0', rb'\"seed\": 1'),
        (rb'\"units\": 3', rb'\"units\"; 3'),
    ):
        assert said in content
        path.write_bytes(content.replace(said, changed))
        with pytest.raises(mg.DataError, match="damaged"):
            mg.NeuralNetwork.load(path)
    for read in (mg.NeuralNetwork.load, mg.Model.load, net.load_weights):
        with pytest.raises(mg.DataError, match="there is no file") as raised:
            read(tmp_path / "none")
        assert isinstance(raised.value, FileNotFoundError)  # as of mg.load


def test_a_file_cannot_hold_each_dtype(tmp_path):
    with pytest.raises(mg.DTypeError, match="'w' is complex128"):
        files.write(tmp_path / "w.safetensors", {"w": np.ones(2, complex)}, {"kind": "model"})
    assert not list(tmp_path.iterdir())


def test_layers_of_ones_own_are_handed_over_at_loading(tmp_path):
    path = tmp_path / "net.safetensors"
    net = small(Twice(), nn.Dense(2))
    net.save(path)
    with pytest.raises(mg.DataError, match="custom="):
        mg.NeuralNetwork.load(path)
    again = mg.NeuralNetwork.load(path, custom={"Twice": Twice})
    assert np.array_equal(again.predict(X), net.predict(X))
    nameless = small(nn.Activation(lambda x: x * 2.0), nn.Dense(2))
    before = path.read_bytes()
    with pytest.raises(mg.ConfigError, match="which has no name"):
        nameless.save(path)
    assert path.read_bytes() == before
    # Weights alone need no names.
    nameless.save_weights(path)
    twin = small(nn.Activation(lambda x: x * 2.0), nn.Dense(2))
    twin.load_weights(path)
    assert weights(twin) == weights(nameless)
    with pytest.raises(mg.DataError, match="that Python code built"):
        mg.NeuralNetwork.load(path)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "net.safetensors"
    path.write_bytes(b"old")
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        small().save(path)
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "given",
    [
        mg.optimizer.SGD(0.1, momentum=0.9, nesterov=True),
        mg.optimizer.Adam(mg.schedule.warmup(10, mg.schedule.cosine(0.1, 100)), accumulate=2),
        mg.optimizer.RMSProp(0.1, centered=True),
        mg.optimizer.AdaGrad(0.1, clip_value=1.0),
        mg.optimizer.LARS(0.1),
        mg.optimizer.LAMB(),
        mg.optimizer.NAdam(mg.schedule.one_cycle(0.1, 100)),
        mg.optimizer.RAdam(mg.schedule.cosine_restarts(0.1, 10)),
        mg.optimizer.Lion(mg.schedule.inverse_sqrt(0.1, 10)),
        mg.optimizer.Adafactor(mg.schedule.polynomial(0.1, 10)),
        mg.optimizer.Muon(0.1, clip_norm=1.0),
        mg.optimizer.LBFGS(memory=3),
        mg.optimizer.EMA(mg.optimizer.Adam(0.1, clip_norm=1.0), 0.5),
        mg.optimizer.SWA(mg.optimizer.SAM(mg.optimizer.SGD(0.1), radius=0.1), start=5, every=2),
    ],
    ids=repr,
)
def test_optimizers_are_described(given):
    described = json.loads(json.dumps(describe_optimizer(given)))
    assert describe_optimizer(build_optimizer(described)) == described


def test_optimizers_that_a_file_cannot_hold_are_left_out():
    assert describe_optimizer(mg.optimizer.SGD(lambda step: 0.1)) is None
    assert describe_optimizer(mg.optimizer.SGD(mg.var("rate", init=0.1))) is None
    with pytest.raises(mg.DataError, match="names an optimizer"):
        build_optimizer({"optimizer": "os", "learning_rate": 1.0, "settings": {}})


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_train_on_their_own(again):
    net = small(nn.Dense(6, "relu"), nn.BatchNorm(), nn.Dropout(0.2), nn.Dense(2))
    net.fit(X, Y, batch_size=10)
    twin = again(net)
    assert weights(twin) == weights(net)
    before = weights(net)
    twin.fit(X, Y, batch_size=10, epochs=2)
    assert weights(net) == before != weights(twin)
    net.fit(X, Y, batch_size=10, epochs=2)
    assert weights(net) == weights(twin)


def test_data_of_other_libraries():
    """Half precision of any kind, and what gives itself by DLPack; what does not, says why."""

    class Other:
        def __init__(self, values, reason=None):
            self.values, self.reason = values, reason

        def __dlpack__(self, **options):
            if self.reason:
                raise BufferError(self.reason)
            return self.values.__dlpack__(**options)

        def __dlpack_device__(self):
            return (1, 0)

    net = small()
    for dtype in ("bfloat16", "float16"):
        halves = X.astype(canonical(dtype))
        expected = net.predict(halves.astype(np.float32))
        np.testing.assert_array_equal(net.predict(halves), expected)
        net.fit(halves, Y, epochs=1)
    np.testing.assert_array_equal(net.predict(Other(X)), net.predict(X))
    net.fit(Other(X), Other(Y), epochs=1, validation_data=(Other(X), Other(Y)))
    wrong = Other(X, "it requires a gradient")
    with pytest.raises(mg.DataError, match="the examples are no array: it requires a gradient"):
        net.predict(wrong)
    with pytest.raises(mg.DataError, match="the labels are no array: it requires a gradient"):
        net.fit(X, wrong)


def test_a_matrix_that_is_the_other_way_around_is_said_to_be():
    net = mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(2)], loss="mse")
    theirs = {"dense/kernel": np.ones((2, 3), np.float32), "dense/bias": np.zeros(2, np.float32)}
    before = net.tensors()
    with pytest.raises(mg.DataError) as raised:
        net.set_tensors(theirs)
    assert str(raised.value) == (
        "what is given is of another architecture: dense/kernel is float32[2, 3] there\n"
        "  expected: float32[3, 2], as in this model\n"
        "  try: array.T: torch keeps these matrices the other way around"
    )
    assert all(np.array_equal(before[name], held) for name, held in net.tensors().items())
    net.set_tensors({name: array.T for name, array in theirs.items()})
    assert net.predict(np.ones((1, 3)))[0, 0] == 3
