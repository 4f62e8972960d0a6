"""A network called on nodes and arrays, its functions to look at, layers as PyTorch has them."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import nn

RNG = np.random.default_rng(2)
X = RNG.normal(size=(24, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


def network(**options: object) -> mg.NeuralNetwork:
    layers = [nn.Input((4,)), nn.Dense(6, "relu"), nn.BatchNorm(), nn.Dropout(0.5), nn.Dense(2)]
    return mg.NeuralNetwork(layers, **{"loss": "cross_entropy", **options})


def test_a_network_is_called_on_arrays_and_on_nodes():
    net = network()
    net.fit(X, Y, epochs=2)
    np.testing.assert_array_equal(net(X), net.predict(X))
    x = mg.var("x", shape=("rows", 4))
    scores = net(x * 2.0)
    np.testing.assert_allclose(scores.eval({x: X}), net.predict(2 * X), rtol=1e-5, atol=1e-6)
    training = net(x, training=True)
    assert len(mg.default_updates(scores)) == 0 and len(mg.default_updates(training)) == 2
    # Its layers are those of the network: a model on top of it trains and names them.
    larger = mg.Model(x, nn.Dense(3, name="head")(net(x)), loss="cross_entropy")
    assert set(net.tensors()) < set(larger.tensors())
    before = net.tensors()["dense/kernel"]
    larger.fit(X, Y)
    assert not np.array_equal(net.tensors()["dense/kernel"], before)
    unbuilt = mg.NeuralNetwork([nn.Dense(2)])
    assert unbuilt(x).shape[1] == 2 and unbuilt(X).shape == (24, 2)


def test_a_model_of_several_inputs_is_called():
    a, b = mg.input("a", ("batch", 4)), mg.input("b", ("batch", 2))
    model = mg.Model([a, b], [nn.Dense(3)(a), nn.Dense(1)(b)])
    first, second = model(X, X[:, :2])
    assert first.shape == (24, 3) and second.shape == (24, 1)
    p, q = mg.input("p", ("n", 4)), mg.input("q", ("n", 2))
    assert [node.shape[1] for node in model(p, q)] == [3, 1]
    with pytest.raises(mg.GraphError, match="called on 1 nodes\n  expected: 2"):
        model(p)
    with pytest.raises(mg.ShapeError, match=r"expected: shape \(batch, 4\), as input 'a'"):
        model(q, q)
    with pytest.raises(mg.ConfigError, match="training=True"):
        network()(X, training=True)


def test_the_functions_of_a_network():
    net = network()
    assert net.step.inputs[1].name == "labels"  # before any fit, of the usual labels
    net.fit(X, Y, batch_size=8, class_weight={1: 2.0})
    assert [node.name for node in net.step.inputs] == ["input", "labels", "sample_weight"]
    net.fit(X, Y, batch_size=8)
    before = net.tensors()
    assert "training step" in repr(net.step) and "simplify" in str(net.report)
    assert "dense/kernel" in net.show().text() and "labels" not in net.show().text()
    assert "labels" in net.show(training=True).text()
    assert "dense" in net.show().svg()
    for profile in (net.profile(), net.profile(X, Y), net.profile(batch_size=4)):
        assert len(list(profile)) == len(net.step.plan.steps)
    assert all(np.array_equal(v, before[k]) for k, v in net.tensors().items())  # it only looks
    np.testing.assert_array_equal(net.function(X)[0], net.predict(X))
    loss, *_ = net.step(X, Y)
    assert np.isfinite(loss) and not np.array_equal(net.tensors()["dense/bias"],
                                                    before["dense/bias"])  # fmt: skip
    plain = network(loss=None)
    assert "dense/kernel" in plain.show().text() and plain.report is plain.function.report
    assert list(plain.profile(X)) and list(plain.profile())
    with pytest.raises(mg.ConfigError, match="the model has no loss"):
        plain.step  # noqa: B018
    with pytest.raises(mg.ConfigError, match="the network was not built yet"):
        mg.NeuralNetwork([nn.Dense(2)], loss="mse").step  # noqa: B018
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        np.testing.assert_array_equal(twin(X), net(X))
        assert len(twin.step.inputs) == 2


def test_a_network_is_an_onnx_model(tmp_path):
    pytest.importorskip("onnx")
    net = network()
    model = mg.to_onnx(net, tmp_path / "net.onnx")
    assert [node.name for node in model.graph.input] == ["input"]
    assert len(model.graph.output) == 1 and (tmp_path / "net.onnx").exists()
    with pytest.raises(mg.GraphError, match="a function, a model, a node"):
        mg.to_onnx(mg.NeuralNetwork([nn.Dense(2)]))


def test_the_rate_is_set_by_its_attribute():
    net = network(optimizer=mg.optimizer.Adam(0.1))
    net.optimizer.learning_rate = 0.2  # nothing is built yet: also of another form
    net.optimizer.learning_rate = mg.schedule.constant(0.0)
    before = net.tensors()["dense/kernel"]
    net.fit(X, Y)
    np.testing.assert_array_equal(net.tensors()["dense/kernel"], before)
    with pytest.raises(mg.ConfigError, match="a schedule is a part of the step"):
        net.optimizer.learning_rate = 0.1
    plain = network(optimizer=mg.optimizer.SGD(0.1))
    plain.fit(X, Y)
    plain.optimizer.learning_rate = 0
    before = plain.tensors()["dense/kernel"]
    plain.fit(X, Y)
    np.testing.assert_array_equal(plain.tensors()["dense/kernel"], before)
    assert float(plain.optimizer.learning_rate.value) == 0.0
    for wrong in (-1.0, float("nan"), "fast", mg.schedule.constant(0.1)):
        with pytest.raises(mg.ConfigError):
            plain.optimizer.learning_rate = wrong


class Forward(nn.Layer):
    """A module as PyTorch has them."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Dense(32, "relu")
        self.drop = nn.Dropout(0.9)
        self.last = nn.Dense(2)

    def forward(self, x):
        return self.last(self.drop(self.hidden(x)))


class Call(nn.Layer):
    """The same with `call`, which hands `training` on."""

    def __init__(self):
        super().__init__()
        self.hidden, self.drop, self.last = nn.Dense(32, "relu"), nn.Dropout(0.9), nn.Dense(2)

    def call(self, x, training):
        return self.last(self.drop(self.hidden(x), training=training))


def test_a_forward_drops_in_training_as_a_call_does():
    """A `forward`, and a `call` without `training`, must not leave dropout out in silence."""
    losses = []
    for kind in (Forward, Call):
        net = mg.NeuralNetwork([nn.Input((4,)), kind()], loss="cross_entropy")
        losses.append(net.fit(X, Y, epochs=2)["loss"])
        np.testing.assert_array_equal(net(X), net(X))
    assert losses[0] == losses[1]

    class Without(Forward):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.0)

    net = mg.NeuralNetwork([nn.Input((4,)), Without()], loss="cross_entropy")
    assert net.fit(X, Y, epochs=2)["loss"] != losses[0]

    class Always(nn.Layer):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def call(self, x):
            return self.drop(x, training=True)  # said: it stays so

    values = nn.Sequential([Always()])(mg.constant(np.ones(100, np.float32))).eval()
    assert 0 < np.count_nonzero(values) < 100
