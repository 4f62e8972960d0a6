"""Programs as people write them who come from elsewhere, whole."""

from __future__ import annotations

import numpy as np
import pytest

import magmagraph as mg

RNG = np.random.default_rng(11)
X = RNG.normal(size=(80, 6)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] > 0).astype(np.int64)


def test_a_student_of_pytorch():
    class Set:
        def __len__(self):
            return len(X)

        def __getitem__(self, i):
            return X[i], Y[i]

    class Loader:
        """What torch's DataLoader gives: lists."""

        def __init__(self, data, batch_size):
            self.data, self.batch_size = data, batch_size

        def __len__(self):
            return -(-len(self.data) // self.batch_size)

        def __iter__(self):
            for start in range(0, len(self.data), self.batch_size):
                rows = range(start, min(start + self.batch_size, len(self.data)))
                yield [np.stack(part) for part in zip(*(self.data[i] for i in rows), strict=True)]

    class Net(mg.nn.Layer):
        def __init__(self):
            super().__init__()
            self.hidden = mg.nn.Dense(16, "relu")
            self.dropout = mg.nn.Dropout(0.2)
            self.out = mg.nn.Dense(2)

        def forward(self, x):
            return self.out(self.dropout(self.hidden(x)))

    loader = Loader(Set(), 16)
    net = mg.NeuralNetwork([Net()], loss="cross_entropy", optimizer=mg.optimizer.Adam(0.02))
    history = net.fit(loader, epochs=15, validation_data=loader)
    assert history["val_accuracy"][-1] > 0.85
    net.optimizer.learning_rate = 1e-4
    for x, y in loader:  # a loop of one's own
        loss, *_ = net.step(x, y)
    assert np.isfinite(loss) and net(X[:3]).shape == (3, 2)
    weights = net.state_dict()
    assert sorted(array.shape for array in weights.values()) == [(2,), (6, 16), (16,), (16, 2)]


def test_a_numerical_scientist():
    points = RNG.normal(size=(12, 3))

    def energy(r, softening=0.1):
        d = r[:, None, :] - r[None, :, :]
        return 0.5 * mg.sum(1.0 / mg.sqrt(mg.sum(d**2, axis=-1) + softening**2))

    value, forces = mg.value_and_grad(energy)(points)
    assert value.dtype == forces.dtype == np.float64
    step = 1e-6 * RNG.normal(size=points.shape)
    change = mg.jit(energy)(points + step) - mg.jit(energy)(points - step)
    np.testing.assert_allclose(change, 2 * np.sum(forces * step), rtol=1e-5)
    again = mg.jit(energy)
    assert again(points) > again(points[:5]) and again.traces == 2  # one for each shape


def test_a_compiler_engineer():
    net = mg.NeuralNetwork([mg.nn.Input((6,)), mg.nn.Dense(8, "tanh"), mg.nn.Dense(2)],
                           loss="cross_entropy")  # fmt: skip
    assert any(record.name == "fuse" for record in net.report)
    assert len(list(net.profile(X, Y))) == len(net.step.plan.steps)
    assert "dense/kernel" in net.show().text() and "commit" in net.show().text()
    f = mg.jit(lambda x: mg.sum(mg.exp(x) * 2.0))
    assert len(f.function(X).plan.steps) <= 2 and "fuse" in str(f.function(X).report)


def test_a_data_scientist_with_tables(tmp_path):
    class Frame:
        """A table of pandas whose columns have several dtypes: an array of objects."""

        def __init__(self, columns):
            self.columns = columns

        @property
        def shape(self):
            return (len(next(iter(self.columns.values()))), len(self.columns))

        def __array__(self, dtype=None, copy=None):
            rows = zip(*(c.tolist() for c in self.columns.values()), strict=True)
            return np.array(list(rows), dtype=object)

    frame = Frame({"a": X[:, 0], "b": X[:, 1], "above": X[:, 0] > 0, "count": np.arange(80) % 3})
    best = tmp_path / "best.safetensors"
    net = mg.NeuralNetwork([mg.nn.Dense(8, "relu"), mg.nn.Dense(2)], loss="cross_entropy")
    history = net.fit(
        frame, Y, epochs=6, verbose=0, class_weight="balanced", sample_weight=np.ones(80),
        validation_data=(frame, Y), callbacks=[mg.callbacks.Checkpoint(best, monitor="val_loss")],
    )  # fmt: skip
    net.load_weights(best)
    assert net.evaluate(frame, Y)["loss"] == pytest.approx(min(history["val_loss"]))
    assert mg.NeuralNetwork.load(best).predict_class(frame).shape == (80,)
    frame.columns["name"] = np.array(["x", "y"] * 40)
    with pytest.raises(mg.DataError, match="pandas.get_dummies number categories"):
        net.predict(frame)


def test_a_user_of_clusters(tmp_path):
    """A job that is cut, goes on with more epochs and a lower rate, and streams its data."""
    path = tmp_path / "run.safetensors"

    def endless():
        rng = np.random.default_rng(0)
        while True:
            rows = rng.integers(0, len(X), 16)
            yield X[rows], Y[rows]

    def train(rate, epochs, **options):
        net = mg.NeuralNetwork([mg.nn.Input((6,)), mg.nn.Dense(2)], loss="cross_entropy",
                               optimizer=mg.optimizer.Adam(rate))  # fmt: skip
        return net.fit(endless(), steps_per_epoch=5, epochs=epochs, resume=path,
                       callbacks=[mg.callbacks.Checkpoint(path)], **options)  # fmt: skip

    assert len(train(0.01, 2).records) == 2
    assert len(train(0.01, 3).records) == 3
    with pytest.raises(mg.DataError, match=r"learning_rate: 0\.01 there, 0\.001 here"):
        train(0.001, 5)
    assert len(train(0.001, 5, resume_changes="learning_rate").records) == 5


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("mean_squared_error", "mse"),
        ("sparse_categorical_crossentropy", "cross_entropy"),
        ("BCEWithLogitsLoss", "binary_cross_entropy"),
        ("cross_entropi", "cross_entropy"),
    ],
)
def test_losses_of_other_libraries_are_named(theirs: str, ours: str) -> None:
    with pytest.raises(mg.ConfigError) as caught:
        mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(1)], loss=theirs)
    assert str(caught.value).startswith(f"there is no loss '{theirs}'")
    assert str(caught.value).endswith(f"try: '{ours}'")
