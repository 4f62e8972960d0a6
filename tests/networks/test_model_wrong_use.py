"""What users of networks get wrong: refused before anything is trained, with the mend."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from on_device import OnDevice

import magmagraph as mg
from magmagraph import nn

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4)
Y = np.arange(12) % 3


def small(units: int = 3, loss: object = "cross_entropy", **options: object) -> mg.NeuralNetwork:
    return mg.NeuralNetwork([nn.Input((4,)), nn.Dense(units)], loss=loss, **options)


def values(net: mg.Model) -> list[bytes]:
    return [held.value.tobytes() for held in net.trainable]


@pytest.mark.parametrize(
    ("labels", "net", "parts"),
    [
        (Y.astype(float), small, ("float64", "integers of shape (batch,)", "astype('int32')")),
        (Y[:, None], small, ("(12, 1)", "labels[..., 0]")),
        (np.array(["a", "b", "c"])[Y], small, ("<U1", "np.unique(labels, return_inverse=True)")),
        (np.eye(4)[Y], small, ("(12, 4)", "a last layer of 4 units")),
        (Y, lambda: small(3, "mse"), ("(12,)", "a last layer of 1 unit", "cross_entropy")),
        (Y, lambda: small(1, "binary_cross_entropy"), ("row 2 is 2", "0 or 1")),
        (Y % 2 * 2 - 1, lambda: small(1, "binary_cross_entropy"), ("row 0 is -1", "labels == 1")),
    ],
)
def test_labels_of_another_kind_are_refused_with_their_mend(labels, net, parts):
    made = net()
    before = values(made)
    for action in (made.fit, made.evaluate):
        with pytest.raises(mg.DataError) as raised:
            action(X, labels)
        assert all(part in str(raised.value) for part in parts), raised.value
    assert values(made) == before


def test_images_with_channels_last_are_to_be_transposed():
    # A reshape would fit, too, and mix colors and places.
    net = mg.NeuralNetwork([nn.Input((3, 4, 5)), nn.Flatten(), nn.Dense(2)], loss="mse")
    given = np.arange(120, dtype=np.float32).reshape(2, 4, 5, 3)
    with pytest.raises(mg.DataError, match=r"np\.moveaxis\(x, -1, 1\)"):
        net.predict(given)
    assert net.predict(np.moveaxis(given, -1, 1)).shape == (2, 2)
    with pytest.raises(mg.DataError, match=r"np\.transpose"):
        net.predict(np.zeros((2, 5, 4, 3)))


def test_batches_that_come_only_once_are_refused():
    net = small()
    before = values(net)
    seen: list[int] = []

    def made():
        for start in (0, 6):
            seen.append(start)
            yield X[start : start + 6], Y[start : start + 6]

    with pytest.raises(mg.DataError, match="gives its batches only once"):
        net.fit(made(), epochs=2)
    assert seen == [] and values(net) == before
    assert len(net.fit(list(made()), epochs=2)["loss"]) == 2


def test_settings_are_refused_with_their_mend(tmp_path):
    net = small()
    before = values(net)
    stopping = mg.callbacks.EarlyStopping("loss")
    cases = [
        (mg.ConfigError, "batch_size=0", lambda: net.predict(X, batch_size=0)),
        (mg.ConfigError, "batch_size=-1", lambda: net.evaluate(X, Y, batch_size=-1)),
        (mg.ConfigError, "batch_size='a'", lambda: net.summary(batch_size="a")),
        (mg.ConfigError, "validation_split='0.2'", lambda: net.fit(X, Y, validation_split="0.2")),
        (mg.ConfigError, r"callbacks=\[callback\]", lambda: net.fit(X, Y, callbacks=stopping)),
        (mg.DataError, "validation_data is ndarray", lambda: net.fit(X, Y, validation_data=X)),
        (TypeError, "no argument 'epoch'\n  try: epochs=", lambda: net.fit(X, Y, epoch=2)),
        (TypeError, "no argument 'outputs'", lambda: net.fit(X, Y, outputs=2)),
        (mg.ConfigError, r"metrics=\['accuracy'\]", lambda: small(metrics="accuracy")),
        (mg.ConfigError, "try: Adam()", lambda: small(optimizer=mg.optimizer.Adam)),
        (mg.ConfigError, "rate is -1\n.*\n  try: minimize -loss", lambda: mg.optimizer.SGD(-1)),
        (mg.ConfigError, "rate is nan\n", lambda: mg.optimizer.Adam(float("nan"))),
        (mg.ConfigError, "seed=None", lambda: small(seed=None)),
        (mg.ConfigError, "precision='fp16'", lambda: small(precision="fp16").predict(X)),
        (mg.ConfigError, "TopK: k=0", lambda: small(metrics=["top_0"])),
        (mg.ConfigError, "Embedding: rows=0", lambda: nn.Embedding(0, 4)),
        (mg.ConfigError, "there is no folder", lambda: net.save(tmp_path / "none" / "a")),
        (mg.ConfigError, "is a folder", lambda: net.save(tmp_path)),
        (
            mg.ConfigError,
            "CSVLog: .* is no folder",
            lambda: net.fit(X, Y, callbacks=[mg.callbacks.CSVLog(tmp_path / "none" / "a.csv")]),
        ),
        (
            mg.ConfigError,
            r"gives shape \(batch, 3\)",
            lambda: small(metrics=[lambda outputs, labels: outputs]).fit(X, Y),
        ),
    ]
    for kind, text, action in cases:
        with pytest.raises(kind, match=text):
            action()
    assert values(net) == before and list(tmp_path.iterdir()) == []


def test_a_number_that_no_epoch_reports_is_refused_before_the_first():
    net = small()
    before = values(net)
    for callback, text in (
        (mg.callbacks.EarlyStopping(), "try: validation_data="),
        (mg.callbacks.ReduceOnPlateau("los"), "expected: one of loss, accuracy, seconds"),
    ):
        with pytest.raises(mg.ConfigError, match=text):
            net.fit(X, Y, callbacks=[callback])
    assert values(net) == before

    class Own(mg.callbacks.Callback):
        def epoch_end(self, training):
            training.record["val_own"] = 1.0

    stopping = mg.callbacks.EarlyStopping("val_own")
    assert len(net.fit(X, Y, epochs=5, callbacks=[Own(), stopping])["loss"]) == 2


def test_counts_of_numpy_are_counts():
    net = mg.NeuralNetwork(
        [nn.Input((1, 4, 4)), nn.Conv2D(np.int64(2), np.int32(3)), nn.Flatten(),
         nn.Dense(Y.max() + 1)],
        loss="cross_entropy", seed=np.int64(3),
    )  # fmt: skip
    history = net.fit(np.zeros((12, 1, 4, 4)), Y, epochs=np.int64(2), batch_size=np.int64(4))
    assert len(history["loss"]) == 2
    for wrong in (True, 2.0, 0, "3", None):
        with pytest.raises(mg.ConfigError, match="Dense: units="):
            nn.Dense(wrong)


def test_another_loss_is_another_function():
    net = small(metrics=[])
    shares = np.eye(3)[Y]
    entropy = net.evaluate(X, shares)["loss"]
    net.loss = "mse"
    found = net.evaluate(X, shares)["loss"]
    np.testing.assert_allclose(found, np.mean((net.predict(X) - shares) ** 2), rtol=1e-5)
    assert found != entropy


def test_a_callback_that_is_used_again_begins_anew():
    stopping = mg.callbacks.EarlyStopping("loss", patience=100)
    first = small(optimizer=mg.optimizer.SGD(0.5))
    first.fit(X, Y, epochs=20, callbacks=[stopping])
    second = small(optimizer=mg.optimizer.SGD(1e-3), seed=5)
    second.fit(X, Y, epochs=2, callbacks=[stopping])
    assert stopping.best_epoch == 2
    assert values(second) != values(first)


class Rising(mg.metrics.Metric):
    """A number that is higher in every epoch."""

    name = "rising"

    def __init__(self) -> None:
        self.told = 0

    def batch(self, outputs: mg.Node, labels: mg.Node, probabilities: bool) -> mg.Node:
        return mg.constant(0.0)

    def result(self, total: np.ndarray, rows: int) -> float:
        self.told += 1
        return float(self.told)


@pytest.mark.parametrize(("mode", "rate"), [(None, 0.5), ("max", 0.5), ("min", 0.5e-3)])
def test_a_plateau_is_where_what_is_better_higher_does_not_rise(mode, rate):
    net = small(metrics=[Rising()], optimizer=mg.optimizer.SGD(0.5))
    watcher = mg.callbacks.ReduceOnPlateau("rising", patience=0, mode=mode)
    net.fit(X, Y, epochs=4, callbacks=[watcher])
    np.testing.assert_allclose(net.optimizer.learning_rate.value, rate, rtol=1e-5)


def test_the_history_of_a_run_that_is_cut_stays():
    class Cut(mg.callbacks.Callback):
        def epoch_end(self, training):
            if training.epoch == 2:
                raise KeyboardInterrupt

    net = small()
    with pytest.raises(KeyboardInterrupt):
        net.fit(X, Y, epochs=5, callbacks=[Cut()])
    assert len(net.history["loss"]) == 2
    with pytest.raises(KeyError, match="'val_loss' was not reported; what was: loss, accuracy"):
        net.history["val_loss"]


def test_a_file_of_another_kind_says_what_takes_it(tmp_path):
    net = small()
    net.fit(X, Y, callbacks=[mg.callbacks.Checkpoint(tmp_path / "run")])
    net.save(tmp_path / "net")
    with pytest.raises(mg.DataError, match="load_weights"):
        net.fit(X, Y, resume=tmp_path / "net")


def test_values_in_the_place_of_functions_shapes_and_initializers():
    x = mg.var("x", shape=(3,))
    with pytest.raises(mg.GraphError, match=r"_function is .*\n.*\n.*mg\.where"):
        mg.cond(True, x * 2, x - 1)
    with pytest.raises(mg.ConfigError, match=r"mg\.init\.ones"):
        mg.Tensor((2, 3), init="ones")
    with pytest.raises(mg.ShapeError, match=r"init=values"):
        mg.Tensor([[1, 2], [3, 4]])


def test_numbers_that_the_network_cannot_hold_are_told_as_they_were_given():
    net = small()
    before = values(net)
    given = X.astype(np.float64)
    given[3, 2] = 1e300
    with pytest.raises(mg.DataError, match=r"row 3 holds 1e\+300, place \(2,\)\n.*float32"):
        net.fit(given, Y)
    with pytest.raises(mg.DataError, match="expected.*real numbers\n.*float32"):
        net.fit(X.astype(object), Y)
    assert values(net) == before


def test_penalties_and_inputs_of_another_kind_are_refused_where_they_are_given():
    with pytest.raises(mg.ConfigError, match=r"mg\.regularize\.l2\(0\.1\)"):
        small(regularize=0.1)
    with pytest.raises(mg.ConfigError, match="regularizer='l2'"):
        nn.Dense(3, regularizer="l2")
    x = mg.var("x", shape=("batch", 4))
    with pytest.raises(mg.GraphError, match=r"the layer Input\(.*\n.*\n  try: Input\(.*\)\(\)"):
        mg.Model(nn.Input((4,)), nn.Dense(3)(x))
    with pytest.raises(mg.GraphError, match=r"try: layer\(x\)"):
        mg.Model(x, nn.Dense(3))


def test_layers_are_frozen_and_freed_between_runs():
    layer = nn.Dense(4, trainable=False)
    net = mg.NeuralNetwork([nn.Input((4,)), layer, nn.Dense(3)], loss="cross_entropy")
    held = [layer.variables[0].value]
    for trainable in (False, True, False):
        layer.trainable = trainable
        net.fit(X, Y)
        held.append(layer.variables[0].value)
    moved = [not np.array_equal(a, b) for a, b in itertools.pairwise(held)]
    assert moved == [False, True, False]


def test_options_of_functions_reach_the_step():
    net = small()
    assert len(net.fit(X, Y, skip=("fuse",), deterministic=True)["loss"]) == 1
    with pytest.raises(mg.PassError, match="skip names 'fuze'"):
        net.fit(X, Y, skip=("fuze",))
    with pytest.raises(mg.ConfigError, match="of an iterable of batches"):
        net.fit(mg.batches(X, Y), validation_split=0.5)


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path):
    # Rates that are functions are in no architecture, which then does not tell them apart.
    path = tmp_path / "run"
    keeping = [mg.callbacks.Checkpoint(path)]
    small(optimizer=mg.optimizer.Adam(lambda step: 0.01)).fit(X, Y, callbacks=keeping)
    net = small(optimizer=mg.optimizer.SGD(lambda step: 0.1, momentum=0.9))
    before = values(net)
    with pytest.raises(mg.DataError, match="optimizer: class: 'Adam' there, 'GradientDescent'"):
        net.fit(X, Y, epochs=2, callbacks=keeping, resume=path)
    assert values(net) == before


def test_a_network_is_a_list_of_layers():
    for given in (nn.Dense(3), None, 3):
        with pytest.raises(mg.ConfigError, match="a list of layers"):
            mg.NeuralNetwork(given)


def test_arrays_of_a_device_are_data():
    x, y = OnDevice(X), OnDevice(Y)
    ours, theirs = small(), small()
    ours.fit(x, y, epochs=2, validation_data=(x, y))
    theirs.fit(X, Y, epochs=2)
    assert values(ours) == values(theirs)
    assert ours.evaluate(x, y) == theirs.evaluate(X, Y)
    scores = ours.predict(x)
    assert np.array_equal(scores, theirs.predict(X))
    for name in ("accuracy", "top_2", "confusion", "r2"):
        metric, labels = mg.metrics.metric(name), np.eye(3)[Y] if name == "r2" else Y
        assert np.array_equal(metric(OnDevice(scores), OnDevice(labels)), metric(scores, labels))


def test_rows_beside_columns_do_not_broadcast():
    wanted = X[:, 0]
    for name in ("mse", "mae"):
        with pytest.raises(mg.ShapeError, match="differ by a last axis of 1"):
            mg.metrics.metric(name)(wanted[:, None], wanted)
    with pytest.raises(mg.DataError, match=r"try: labels\[\.\.\., 0\]"):
        mg.metrics.Accuracy()(np.eye(3)[Y], Y[:, None])
    # A loss of one's own sees labels in the shape of the network's column.
    own = small(1, lambda outputs, labels: mg.mean((outputs - labels) ** 2))
    named = small(1, "mse")
    assert own.fit(X, wanted)["loss"] == named.fit(X, wanted[:, None])["loss"]


@pytest.mark.parametrize("nested", [False, True])
def test_ids_that_a_table_has_no_row_for_are_refused(nested):
    # A kernel takes the nearest row: a wrong vocabulary would be learned in silence.
    table = nn.Embedding(5, 3)
    first = nn.Sequential([table]) if nested else table
    net = mg.NeuralNetwork(
        [nn.Input((4,), "int32"), first, nn.Flatten(), nn.Dense(3)], loss="cross_entropy"
    )
    ids = np.arange(48).reshape(12, 4) % 5
    before = values(net)
    uses = (
        lambda x: net.fit(x, Y),
        lambda x: net.fit([(x, Y)]),
        lambda x: net.fit(ids, Y, validation_data=(x, Y)),
        lambda x: net.evaluate(x, Y),
        lambda x: net.predict(x),
        lambda x: copy.deepcopy(net).predict(x),
    )
    for wrong, hint in ((5, "Embedding of 6 rows"), (-1, "numbers from 0")):
        given = ids.copy()
        given[7, 2] = wrong
        for use in uses:
            with pytest.raises(mg.DataError, match=rf"row 7 holds {wrong}, place \(2,\)\n.*\[0, 5"):
                use(given)
        with pytest.raises(mg.DataError, match=hint):
            net.predict(given)
    assert values(net) == before
    net.fit(ids, Y)


def test_positions_in_a_table_of_ones_own_count_from_the_end_too():
    ids = mg.input("ids", ("batch",), "int32")
    model = mg.Model(ids, mg.take(mg.constant(X[:5]), ids, axis=0))
    assert np.array_equal(model.predict(np.array([-5, 4])), X[[0, 4]])
    for wrong in (5, -6):
        with pytest.raises(mg.DataError, match=r"\[-5, 5\)"):
            model.predict(np.array([0, wrong]))


def test_a_shape_that_does_not_fit_is_refused_when_the_network_is_built():
    for shape, need in (((1, 28, 29), "812 numbers"), ((3, -1), "a multiple of 3 numbers")):
        with pytest.raises(mg.ShapeError, match=rf"'reshape'.* 784 numbers.*\n.*{need}"):
            mg.NeuralNetwork([nn.Input((784,)), nn.Reshape(shape), nn.Flatten()])
    for shape in ((-1, -1), (0,), (2.0,), "ab", True):
        with pytest.raises(mg.ConfigError, match="Reshape: shape="):
            nn.Reshape(shape)
    x = mg.var("x", shape=("batch", 784))
    assert nn.Reshape((2, -1, 7))(x).shape[1:] == (2, 56, 7)
    assert nn.Reshape(784)(mg.var("x", shape=("batch", 28, 28))).shape[1:] == (784,)


def test_functions_that_return_nothing_are_refused():
    net = small(loss=lambda outputs, labels: None, metrics=[])
    with pytest.raises(mg.ConfigError, match="returned NoneType\n.*\n  try: a return statement"):
        net.fit(X, Y)
    net = small(metrics=[mg.metrics.MeanOf(lambda outputs, labels: None, "own")])
    with pytest.raises(mg.ConfigError, match="metric 'own' returned None"):
        net.fit(X, Y)


def test_metrics_have_names_of_their_own():
    def loss(outputs, labels):
        return mg.mean(outputs)

    for metrics, why in (
        ([loss], "'loss', which stands for"),
        (["accuracy", mg.metrics.Accuracy()], "'accuracy', which another"),
        ([mg.metrics.MeanOf(loss, "val_own")], "'val_own', which stands for"),
    ):
        with pytest.raises(mg.ConfigError, match=f"{why}.*\n.*\n  try: mg.metrics.MeanOf"):
            small(metrics=metrics)
    net = small(metrics=[mg.metrics.MeanOf(loss, "own"), "top_1", "top_2"])
    assert set(net.evaluate(X, Y)) == {"loss", "own", "top_1", "top_2"}


def test_a_batch_that_does_not_fit_takes_its_epoch_back():
    wrong = X.copy()
    wrong[3, 1] = np.nan
    ours, whole = small(), small()

    class Later:
        epoch = 0

        def __len__(self):
            return 2

        def __iter__(self):
            return iter([(X, Y), (wrong if self.epoch == 2 else X, Y)])

    with pytest.raises(mg.DataError, match="in batch 1 of epoch 2, the example in row 3 holds nan"):
        ours.fit(Later(), epochs=5)
    whole.fit([(X, Y), (X, Y)], epochs=2)
    assert values(ours) == values(whole) and len(ours.history["loss"]) == 2
    for nothing in ([], None):
        with pytest.raises(mg.DataError, match="there are no (batches|examples)"):
            ours.fit(nothing)


def test_what_cannot_be_trained_is_told_before_the_data_are_looked_at():
    x = mg.var("x", shape=("batch", 4))
    two = mg.Model(x, [nn.Dense(3)(x), x], loss="cross_entropy")
    for action in (two.fit, two.evaluate):
        with pytest.raises(mg.ConfigError, match="the model has 2 outputs"):
            action(X, Y)
    with pytest.raises(mg.ConfigError, match="the model has no loss"):
        small(loss=None).fit(X, Y)
