"""Models: training, using, reporting, storing; and data that do not fit."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.model import files
from magmagraph.model.losses import loss_function

nn = mg.nn


def two_classes(rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    return x, (x[:, 0] + x[:, 1] > 0).astype(np.int64)


def small(*layers, **options) -> mg.NeuralNetwork:
    given = {"loss": "cross_entropy", "optimizer": mg.optimizer.Adam(0.02), **options}
    return mg.NeuralNetwork([nn.Input((4,)), *(layers or (nn.Dense(2),))], **given)


def weights(net) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in net.tensors().items()}


# Training.


def test_the_workflow_of_the_readme():
    x, y = two_classes()
    net = small(nn.Dense(8, activation="relu"), nn.Dense(2))
    history = net.fit(x, y, batch_size=20, epochs=15, validation_data=(x[:50], y[:50]))
    assert set(history) == {"loss", "accuracy", "val_loss", "val_accuracy", "seconds"}
    assert history["loss"][0] > history["loss"][-1] and len(history["loss"]) == 15
    assert net.evaluate(x, y)["accuracy"] > 0.95
    assert net.predict(x).shape == (200, 2)
    assert np.mean(net.predict_class(x) == y) == net.evaluate(x, y)["accuracy"]


def test_a_step_is_that_of_a_loop_written_out():
    x, y = two_classes(64)
    net = small(nn.Dense(5, "tanh"), nn.Dense(2), optimizer=mg.optimizer.SGD(0.1, momentum=0.9))
    a, b, c, d = (mg.var(f"v{i}", init=v.value) for i, v in enumerate(net.trainable))
    node, labels = mg.var("x", shape=("n", 4)), mg.var("y", shape=("n",), dtype="int32")
    loss = mg.cross_entropy(mg.tanh(node @ a + b) @ c + d, labels)
    step = mg.optimizer.SGD(0.1, momentum=0.9).step(
        loss, [a, b, c, d], inputs=[node, labels], outputs=loss
    )
    rows = mg.batches(x, y.astype(np.int32), size=10, seed=0)
    for _ in range(3):
        losses = [(float(step(*batch)), len(batch[1])) for batch in rows]
    history = net.fit(x, y, batch_size=10, epochs=3)
    for held, other in zip(net.trainable, (a, b, c, d), strict=True):
        np.testing.assert_array_equal(held.value, other.value)
    wanted = sum(value * count for value, count in losses) / 64
    assert history["loss"][-1] == pytest.approx(wanted, rel=1e-12)


def test_every_form_of_labels_is_taken():
    x, y = two_classes(60)
    net = small(nn.Dense(2))
    assert net.evaluate(x, np.eye(2)[y]) == pytest.approx(net.evaluate(x, y))
    assert net.evaluate(x, y.astype(np.uint8)) == net.evaluate(x, y)
    single = small(nn.Dense(1), loss="binary_cross_entropy")
    assert single.evaluate(x, y) == single.evaluate(x, y[:, None]) == single.evaluate(x, y == 1)
    assert np.mean(single.predict_class(x) == y) == single.evaluate(x, y)["accuracy"]
    number = small(nn.Dense(1), loss="mse")
    assert number.evaluate(x, y)["loss"] == pytest.approx(
        float(np.mean((number.predict(x)[:, 0] - y) ** 2)), rel=1e-5
    )


def test_probabilities_and_logits_give_one_loss():
    x, y = two_classes(60)
    logits = small(nn.Dense(2))
    shares = small(nn.Dense(2, activation="softmax"))
    shares.set_tensors(logits.tensors(), "the other")
    assert shares.evaluate(x, y)["loss"] == pytest.approx(logits.evaluate(x, y)["loss"], rel=1e-5)
    assert shares.predict(x).sum(1) == pytest.approx(1.0, rel=1e-6)
    separate = small(nn.Dense(1), nn.Activation("sigmoid"), loss="binary_cross_entropy")
    assert separate._probabilities and np.ptp(separate.predict(x)) < 1


def test_a_functional_model_trains_with_dropout_and_statistics():
    x, y = two_classes()
    node = mg.var("x", shape=("batch", 4))
    h = nn.Dropout(0.2)(nn.BatchNorm()(nn.Dense(8, "relu")(node)))
    scale = mg.var("scale", init=1.0)
    model = mg.Model(
        node, nn.Dense(2)(nn.Concatenate()(node, h * scale)), loss="cross_entropy",
        optimizer=mg.optimizer.Adam(0.02),
    )  # fmt: skip
    assert "scale" in model.weights() and len(model.layers) == 5
    before = model.tensors()
    assert model.fit(x, y, epochs=10)["accuracy"][-1] > 0.9
    changed = {name for name, value in model.tensors().items() if (value != before[name]).any()}
    assert changed == set(before)
    two = mg.Model([node], [h, node * 2.0])
    first, second = two.predict(x)
    assert first.shape == (200, 8) and np.array_equal(second, 2 * x)
    assert np.array_equal(two.predict(x)[0], first)  # no dropout


def test_a_shared_layer_has_one_weight():
    node = mg.var("x", shape=("batch", 4))
    layer = nn.Dense(4)
    model = mg.Model(node, nn.Dense(2)(layer(layer(node))), loss="cross_entropy")
    x, y = two_classes(40)
    model.fit(x, y)
    assert model.parameters == 20 + 10


def test_an_input_layer_may_be_left_to_the_data():
    x, y = two_classes()
    net = mg.NeuralNetwork([nn.Dense(2)], loss="cross_entropy")
    net.fit(x, y)
    assert net.parameters == 10


def test_batches_may_come_from_outside():
    x, y = two_classes()
    first, second = small(), small()
    first.fit(x, y, batch_size=25, epochs=2)
    second.fit(mg.batches(x, y, size=25, seed=0), epochs=2)
    assert weights(first) == weights(second)


def test_penalties_and_decay_belong_to_their_weights():
    x, y = two_classes(60)
    plain = small(nn.Dense(2))
    punished = small(nn.Dense(2, regularizer=mg.regularize.l2(0.5) + mg.regularize.l1(0.25)))
    punished.set_tensors(plain.tensors(), "the other")
    kernel = plain.tensors()["dense/kernel"]
    extra = 0.5 * (kernel**2).sum() + 0.25 * np.abs(kernel).sum()
    assert punished.evaluate(x, y)["loss"] - plain.evaluate(x, y)["loss"] == pytest.approx(
        float(extra), rel=1e-4
    )
    whole = small(nn.Dense(2), regularize=mg.regularize.l2(0.5))
    assert whole._penalty() is not None
    # A group of its own: the gradient is zero, so that decay alone moves the kernel.
    held = small(
        nn.Dense(2, weight_decay=0.5), loss=lambda out, labels: mg.mean(out) * 0.0,
        optimizer=mg.optimizer.SGD(0.1, weight_decay=0.0),
    )  # fmt: skip
    before = held.tensors()
    held.fit(x, y, batch_size=60)
    after = held.tensors()
    row = tolerance(np.dtype("float32"), "stable")
    assert row.close(after["dense/kernel"], 0.95 * before["dense/kernel"])
    assert np.array_equal(after["dense/bias"], before["dense/bias"])


def test_frozen_layers_stay():
    x, y = two_classes()
    net = small(nn.Dense(8, "relu", trainable=False), nn.Dense(2))
    before = net.tensors()
    net.fit(x, y)
    after = net.tensors()
    assert np.array_equal(before["dense/kernel"], after["dense/kernel"])
    assert not np.array_equal(before["dense_1/kernel"], after["dense_1/kernel"])
    with pytest.raises(mg.ConfigError, match="no weight that can be trained"):
        small(nn.Dense(2, trainable=False)).fit(x, y)


# Metrics.


def test_metrics_are_those_of_scikit_learn(rng):
    scores = pytest.importorskip("sklearn.metrics")
    outputs, labels = rng.random((90, 4)), rng.integers(0, 4, 90)
    found = outputs.argmax(1)
    for name, wanted in (
        ("accuracy", scores.accuracy_score(labels, found)),
        ("top_2", scores.top_k_accuracy_score(labels, outputs, k=2)),
        ("confusion", scores.confusion_matrix(labels, found)),
        ("precision", scores.precision_score(labels, found, average="macro")),
        ("recall", scores.recall_score(labels, found, average="macro")),
        ("f1", scores.f1_score(labels, found, average="macro")),
        ("matthews", scores.matthews_corrcoef(labels, found)),
    ):
        given = mg.metrics.metric(name)
        assert given(outputs, labels) == pytest.approx(wanted), name
        assert given(outputs, np.eye(4)[labels]) == pytest.approx(wanted), name
    binary = labels > 1
    for name, wanted in (
        ("precision", scores.precision_score(binary, outputs[:, 0] > 0.5)),
        ("f1", scores.f1_score(binary, outputs[:, 0] > 0.5)),
    ):
        assert mg.metrics.metric(name)(outputs[:, :1], binary) == pytest.approx(wanted)
    values = rng.normal(size=(50, 2)) * 5 + 100
    for name, wanted in (
        ("r2", scores.r2_score(values, values + outputs[:50, :2])),
        ("mse", scores.mean_squared_error(values, values + outputs[:50, :2])),
        ("mae", scores.mean_absolute_error(values, values + outputs[:50, :2])),
    ):
        assert mg.metrics.metric(name)(values + outputs[:50, :2], values) == pytest.approx(wanted)


def test_one_column_is_a_chance_or_what_a_sigmoid_makes_one_of():
    outputs, labels = mg.constant([[0.2], [0.7], [-0.3]]), mg.constant([1, 1, 0])
    accuracy = mg.metrics.metric("accuracy")
    assert accuracy.batch(outputs, labels, False).eval() == 3
    assert accuracy.batch(outputs, labels, True).eval() == 2


def test_metrics_add_up_over_batches():
    x, y = two_classes(95)
    net = small(metrics=["confusion", "matthews", lambda out, y: mg.cross_entropy(out, y)])
    whole, parts = net.evaluate(x, y, batch_size=95), net.evaluate(x, y, batch_size=10)
    assert np.array_equal(whole["confusion"], parts["confusion"])
    assert whole["confusion"].sum() == 95
    assert parts["<lambda>"] == pytest.approx(parts["loss"], rel=1e-6)
    assert (whole["matthews"], whole["loss"]) == pytest.approx((parts["matthews"], parts["loss"]))


# Reports.


def test_a_summary_knows_shapes_parameters_arithmetic_and_memory():
    net = mg.NeuralNetwork(
        [nn.Input((1, 8, 8)), nn.Conv2D(4, 3), nn.BatchNorm(), nn.Flatten(), nn.Dense(10)],
        loss="cross_entropy",
    )
    table = net.summary(batch_size=32)
    assert [row.name for row in table.rows] == ["conv2d", "batch_norm", "flatten", "dense"]
    assert [row.parameters for row in table.rows] == [40, 16, 0, 1450]
    assert (table.parameters, table.trainable) == (1506, 1498)
    assert table.rows[0].flops >= 2 * 9 * 4 * 36
    assert table.memory.total > 32 * 64 * 4
    text = str(table)
    assert "conv2d" in text and "(batch, 4, 6, 6)" in text and "training step of 32" in text


def test_early_stopping_keeps_the_best_weights():
    x, y = two_classes()
    losses = [3.0, 1.0, 2.0, 2.0, 0.5]
    kept: list[dict] = []

    class Pretend(mg.callbacks.Callback):
        def epoch_end(self, training):
            training.record["val_loss"] = losses[training.epoch - 1]
            kept.append(weights(training.model))

    net = small()
    stop = mg.callbacks.EarlyStopping(patience=1)
    history = net.fit(x, y, epochs=5, callbacks=[Pretend(), stop])
    assert len(history.records) == 4 and stop.best_epoch == 2
    assert weights(net) == kept[1] != kept[3]
    with pytest.raises(mg.ConfigError, match="watches 'val_f1', which is not reported"):
        small().fit(x, y, callbacks=[mg.callbacks.EarlyStopping("val_f1")])


def test_early_stopping_leaves_the_last_weights_where_it_is_told_to():
    held: list[dict] = []

    class Hold(mg.callbacks.Callback):
        def epoch_end(self, training):
            held.append(weights(training.model))

    x, y = two_classes()
    net = small()
    # The loss falls: "max" finds the first epoch best, and the second no better.
    stop = mg.callbacks.EarlyStopping("loss", mode="max", restore_best=False)
    net.fit(x, y, epochs=5, callbacks=[Hold(), stop])
    assert len(held) == 2 and stop.best_epoch == 1
    assert weights(net) == held[1] != held[0]


def test_rates_and_batches_change_between_epochs():
    x, y = two_classes(120)
    seen: list[tuple[float, int]] = []

    class Note(mg.callbacks.Callback):
        every_step = True

        def step_end(self, training):
            rate = float(training.model.optimizer.learning_rate.value)
            seen.append((round(rate, 6), training.batch_size))

    net = small(optimizer=mg.optimizer.SGD(0.1))
    net.fit(x, y, batch_size=30, epochs=3, callbacks=[
        Note(), mg.callbacks.GrowingBatch(every=1, factor=2, largest=100),
        mg.callbacks.LearningRate(lambda epoch: 0.1 / (epoch + 1))])  # fmt: skip
    assert seen == [(0.1, 30)] * 4 + [(0.05, 60)] * 2 + [(0.033333, 100)] * 2
    net.fit(x, y, batch_size=lambda epoch: 40 * (epoch + 1), epochs=2, callbacks=[Note()])
    assert [size for _, size in seen[8:]] == [40] * 3 + [80] * 2
    flat = mg.callbacks.ReduceOnPlateau("loss", factor=0.5, patience=1, threshold=0.9)
    net.optimizer.learning_rate.value = 0.01
    net.fit(x, y, epochs=4, callbacks=[flat])
    assert float(net.optimizer.learning_rate.value) == pytest.approx(0.005)


def test_a_function_is_a_callback_and_progress_is_shown_when_asked(capsys):
    x, y = two_classes()
    history = small().fit(x, y, epochs=9, callbacks=[lambda epoch, record: epoch == 2])
    assert len(history.records) == 2
    assert capsys.readouterr().out == ""
    small().fit(x, y, epochs=1, progress=True)
    assert "epoch 1/1" in capsys.readouterr().out
    with pytest.raises(mg.ConfigError, match="is given as a callback"):
        small().fit(x, y, callbacks=["progress"])


# Data that do not fit: refused before anything changes.

X, Y = two_classes(30)
BAD = [
    (X, Y[:-1], "there are 30 examples, 29 labels"),
    (X, Y + 1, "the label in row"),
    (X, Y - 1, "the label in row"),
    (X, Y + 0.5, "the labels have shape"),
    (X, [str(label) for label in Y], "the labels are"),
    (X, None, "there are no labels"),
    (np.where(X > 2, np.nan, X), Y, "holds nan"),
    (np.where(np.arange(120).reshape(30, 4) == 77, np.inf, X), Y, "row 19 holds inf, place (1,)"),
    (X[:, :3], Y, "the examples have shape (30, 3)"),
    (X.reshape(30, 2, 2), Y, "x.reshape(-1, 4)"),
    (X[0], Y[:1], "x[None]"),
    (X[:0], Y[:0], "there are no examples"),
    ([[1.0, 2.0], [3.0]], [0, 1], "the examples are no array"),
    (X.astype(str), Y, "the examples are of dtype"),
    (X, np.eye(3)[Y], "the labels have shape (30, 3)"),
]  # fmt: skip


@pytest.mark.parametrize(("x", "y", "text"), BAD, ids=[text for *_, text in BAD])
def test_wrong_data_are_refused_before_anything_changes(x, y, text, tmp_path):
    net = small()
    before = weights(net)
    path = tmp_path / "kept.safetensors"
    path.write_bytes(b"old")
    for action in (
        lambda: net.fit(x, y, callbacks=[mg.callbacks.Checkpoint(path)]),
        lambda: net.evaluate(x, y),
        lambda: net.fit(X, Y, validation_data=(x, y)),
    ):
        with pytest.raises(mg.DataError) as raised:
            action()
        assert text in str(raised.value)
    assert weights(net) == before and path.read_bytes() == b"old"


def test_wrong_settings_are_refused():
    for text, action in (
        ("no loss 'crossentropy'", lambda: small(loss="crossentropy")),
        ("no metric 'acc'", lambda: small(metrics=["acc"])),
        ("optimizer='adam'", lambda: small(optimizer="adam")),
        ("batch_size=0", lambda: small().fit(X, Y, batch_size=0)),
        ("epochs=-1", lambda: small().fit(X, Y, epochs=-1)),
        ("the model has no loss", lambda: small(loss=None).fit(X, Y)),
        ("layers of mg.nn", lambda: mg.NeuralNetwork([nn.Input((4,)), "dense"])),
        ("validation_split=1", lambda: small().fit(X, Y, validation_split=1)),
        ("the loss has shape", lambda: small(loss=lambda out, y: out[:, 0]).fit(X, Y)),
        ("is no folder", lambda: small().fit(
            X, Y, callbacks=[mg.callbacks.Checkpoint("/nowhere/at/all")])),
    ):  # fmt: skip
        with pytest.raises(mg.ConfigError) as raised:
            action()
        assert text in str(raised.value)
    dense = nn.Dense(4)
    with pytest.raises(mg.ConfigError, match="a layer appears twice"):
        mg.NeuralNetwork([nn.Input((4,)), dense, dense])
    for late in ([nn.Input((4,)), nn.Input((4,)), nn.Dense(2)], [nn.Dense(2), nn.Input((4,))]):
        with pytest.raises(mg.ConfigError, match="an Input stands behind the first place"):
            mg.NeuralNetwork(late)
    for members in ([], [nn.Input((4,))]):
        with pytest.raises(mg.GraphError, match="no layers"):
            mg.NeuralNetwork(members)
    assert inspect.unwrap(loss_function("mse", None)) is inspect.unwrap(mg.mse)


def test_a_network_without_a_shape_tells_nothing_about_weights_that_it_does_not_have():
    net = mg.NeuralNetwork([nn.Dense(3), nn.Dense(2)], loss="mse")
    assert repr(net) == "<NeuralNetwork of 2 layers, not built yet>"
    for look in (
        net.summary, net.weights, lambda: net.parameters, lambda: net.trainable, net.structure,
    ):
        with pytest.raises(mg.ConfigError, match="the network was not built yet") as raised:
            look()
        assert "try: mg.nn.Input(shape) as the first layer" in str(raised.value)
    net.predict(np.zeros((1, 4)))
    assert repr(net) == "<NeuralNetwork of 2 layers>"
    assert net.summary().parameters == net.parameters == 4 * 3 + 3 + 3 * 2 + 2


@pytest.mark.parametrize("every_step", [False, True])
def test_a_run_that_diverges_leaves_the_weights_of_the_epoch_before(every_step, tmp_path):
    class Steep(mg.callbacks.Callback):
        resumes = False

        def epoch_begin(self, training):
            if training.epoch == 2:
                training.model.optimizer.learning_rate.value = 1e15

    path = tmp_path / "run"
    callbacks = [Steep()]
    if every_step:
        callbacks.append(mg.callbacks.Checkpoint(path, every=1, unit="step"))
    first, whole = (
        small(loss="mse", optimizer=mg.optimizer.SGD(0.01, momentum=0.9)) for _ in range(2)
    )
    with pytest.raises(mg.DivergedError, match="in epoch 2, .* beginning of the epoch"):
        first.fit(X, np.eye(2)[Y], batch_size=8, epochs=50, callbacks=callbacks)
    whole.fit(X, np.eye(2)[Y], batch_size=8, epochs=2)
    assert weights(first) == weights(whole)
    state = whole.optimizer.state_dict()
    state.pop("learning_rate")
    for name, value in state.items():
        assert np.array_equal(first.optimizer.state_dict()[name], value)
    assert len(first.history["loss"]) == 2
    if every_step:
        tensors, _ = files.read(path, "checkpoint")
        assert all(np.isfinite(value).all() for value in tensors.values())


def test_weights_that_the_last_step_ruins_are_found():
    net = small(loss=lambda outputs, labels: mg.mean(outputs) * 0.0, metrics=[])
    before = weights(net)

    class Ruin(mg.optimizer.Optimizer):
        def update(self, variable, gradient, state):
            return variable + np.nan

    net.optimizer = Ruin(0.1)
    with pytest.raises(mg.DivergedError, match="weight 'dense/kernel' holds NaN"):
        net.fit(X, Y, batch_size=len(X))
    assert weights(net) == before


def test_a_second_run_goes_on_with_new_orders(tmp_path):
    whole, parts, copied, resumed = (small(optimizer=mg.optimizer.SGD(0.1)) for _ in range(4))
    whole.fit(X, Y, batch_size=8, epochs=4)
    for _ in range(2):
        parts.fit(X, Y, batch_size=8, epochs=2)
    copied.fit(X, Y, batch_size=8, epochs=2)
    copied = pickle.loads(pickle.dumps(copied))
    copied.fit(X, Y, batch_size=8, epochs=2)
    keeping = [mg.callbacks.Checkpoint(tmp_path / "run")]
    resumed.fit(X, Y, batch_size=8, epochs=2)
    resumed.fit(X, Y, batch_size=8, epochs=1, callbacks=keeping)
    resumed = small(optimizer=mg.optimizer.SGD(0.1))
    resumed.fit(X, Y, batch_size=8, epochs=2, callbacks=keeping, resume=tmp_path / "run")
    assert weights(whole) == weights(parts) == weights(copied) == weights(resumed)
