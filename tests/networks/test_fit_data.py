"""The data that newcomers hand to `fit`: lists as batches, sets of examples, weights, steps."""

from __future__ import annotations

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import nn

RNG = np.random.default_rng(8)
X = RNG.normal(size=(50, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 1)


def small(units: int = 3, loss: object = "cross_entropy", **options: object) -> mg.NeuralNetwork:
    return mg.NeuralNetwork([nn.Input((4,)), nn.Dense(units)], loss=loss, **options)


def bits(net: mg.Model) -> list[bytes]:
    return [held.value.tobytes() for held in net.trainable]


class Loader:
    """Batches as a DataLoader of torch gives them: lists, and a length."""

    def __init__(self, *arrays: np.ndarray, size: int = 10) -> None:
        self.arrays, self.size = arrays, size

    def __len__(self) -> int:
        return -(-len(self.arrays[0]) // self.size)

    def __iter__(self):
        for start in range(0, len(self.arrays[0]), self.size):
            yield [array[start : start + self.size] for array in self.arrays]


class Examples:
    """A data set as torch has them: a length, and examples by their positions."""

    def __init__(self, *arrays: np.ndarray) -> None:
        self.arrays = arrays

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, place: int):
        assert isinstance(place, int)
        return tuple(array[place] for array in self.arrays)


def test_batches_as_lists_train_and_validate_as_arrays_do():
    whole, loaded = small(), small()
    first = whole.fit(X, Y, batch_size=10, shuffle=False, epochs=2, validation_data=(X, Y))
    second = loaded.fit(Loader(X, Y), epochs=2, validation_data=Loader(X, Y))
    assert bits(whole) == bits(loaded)
    assert second["val_loss"] == pytest.approx(first["val_loss"])
    assert loaded.evaluate(Loader(X, Y))["loss"] == pytest.approx(first["val_loss"][-1])
    listed = small()
    listed.fit(list(Loader(X, Y)), epochs=2, validation_data=list(Loader(X, Y)))
    assert bits(listed) == bits(whole)
    # A list of two arrays is a pair, as ever; a list of two batches is that.
    two = [[X[:20], Y[:20]], [X[20:], Y[20:]]]
    for given in ([X, Y], two):
        history = small().fit(X, Y, validation_data=given)
        assert history["val_loss"] == pytest.approx(small_loss_after(), rel=1e-5)


def small_loss_after() -> list[float]:
    net = small()
    net.fit(X, Y)
    return [net.evaluate(X, Y)["loss"]]


def test_a_set_of_examples_is_shuffled_and_batched():
    arrays, single = small(), small()
    arrays.fit(X, Y, batch_size=8, epochs=3)
    single.fit(Examples(X, Y), batch_size=8, epochs=3, validation_data=Examples(X, Y))
    assert bits(arrays) == bits(single)
    single.fit(Examples(X, Y, np.ones(len(X))), batch_size=8)  # with weights
    unbuilt = mg.NeuralNetwork([nn.Dense(3)], loss="cross_entropy")
    unbuilt.fit(Examples(X, Y), batch_size=8)
    assert unbuilt.inputs[0].shape[1:] == (4,)

    class Batches:  # of Keras: the items are batches
        def __len__(self):
            return 5

        def __getitem__(self, i):
            return X[10 * i : 10 * i + 10], Y[10 * i : 10 * i + 10]

    plain, sequence = small(), small()
    plain.fit(X, Y, batch_size=10, shuffle=False)
    sequence.fit(Batches())
    assert bits(plain) == bits(sequence)


def test_several_inputs_may_be_nested_in_a_batch():
    a, b = mg.input("a", ("batch", 4)), mg.input("b", ("batch", 2))
    model = mg.Model([a, b], nn.Dense(3)(mg.concatenate([a, b], axis=1)), loss="cross_entropy")
    flat = [(X[:25], X[:25, :2], Y[:25]), (X[25:], X[25:, :2], Y[25:])]
    nested = [[(x1, x2), y] for x1, x2, y in flat]
    losses = [model.evaluate(given)["loss"] for given in (flat, nested)]
    assert losses[0] == losses[1] == pytest.approx(model.evaluate([X, X[:, :2]], Y)["loss"])


def test_weights_of_rows_and_classes_are_those_of_repeated_rows():
    counts = np.where(Y == 2, 3, 1)
    repeated = np.repeat(np.arange(50), counts)
    want = small(seed=1, optimizer=mg.optimizer.SGD(0.1))
    want.fit(X[repeated], Y[repeated], batch_size=len(repeated))
    scaled = counts * 50 / len(repeated)  # the mean over rows is that over the repeated ones
    for given in (
        {"sample_weight": scaled},
        {"class_weight": {0: 50 / len(repeated), 1: 50 / len(repeated), 2: 150 / len(repeated)}},
        {"class_weight": np.array([1, 1, 3]) * 50 / len(repeated)},
        {"class_weight": {2: 3.0}, "sample_weight": np.full((50, 1), 50 / len(repeated))},
    ):
        net = small(seed=1, optimizer=mg.optimizer.SGD(0.1))
        net.fit(X, Y, batch_size=50, **given)
        for name, value in net.tensors().items():
            np.testing.assert_allclose(value, want.tensors()[name], rtol=1e-5, atol=1e-6)
    balanced = 50 / (3 * np.bincount(Y))
    first, second, third = (small(seed=1) for _ in range(3))
    first.fit(X, Y, class_weight="balanced")
    second.fit(X, Y, class_weight=dict(enumerate(balanced)))
    third.fit(X, Y, sample_weight=balanced[Y])
    assert bits(first) == bits(second) == bits(third)
    loss = second.evaluate(X, Y, sample_weight=balanced[Y])["loss"]
    each = np.concatenate(
        [[second.evaluate(X[i : i + 1], Y[i : i + 1])["loss"]] for i in range(50)]
    )
    assert loss == pytest.approx(float((each * balanced[Y]).mean()), rel=1e-5)


def test_metrics_count_rows_as_often_as_their_weights():
    """The last batch has fewer rows: sums over rows, and of weights, are exact."""
    counts = 1 + np.arange(50) % 3
    again = np.repeat(np.arange(50), counts)
    names = ["accuracy", "f1_macro", "confusion", "top_2", "perplexity"]
    net = small(metrics=names, optimizer=mg.optimizer.SGD(0.0))
    for size in (7, 50):
        found = net.evaluate(X, Y, sample_weight=counts, batch_size=size)
        wanted = net.evaluate(X[again], Y[again], batch_size=64)
        for name in names:
            np.testing.assert_allclose(found[net_name(net, name)], wanted[net_name(net, name)])
        # Also while training; here the rate is zero.
        history = net.fit(X, Y, sample_weight=counts, batch_size=size, verbose=0)
        np.testing.assert_allclose(history["accuracy"][0], wanted["accuracy"], rtol=1e-6)
    by_class = net.fit(X, Y, class_weight={0: 2.0, 1: 0.0, 2: 5.0}, batch_size=7, verbose=0,
                       validation_data=(X, Y, counts))  # fmt: skip
    weights = np.array([2.0, 0.0, 5.0])[Y]
    right = net.predict(X).argmax(1) == Y
    assert by_class["accuracy"][0] == pytest.approx((right * weights).sum() / weights.sum())
    assert by_class["val_accuracy"][0] == pytest.approx(wanted["accuracy"])
    with pytest.raises(mg.DataError, match="the weights of all rows are 0"):
        net.evaluate(X, Y, sample_weight=np.zeros(50))
    regression = small(1, "mse", metrics=["r2", "mae", lambda y, t: mg.mean(mg.abs(y - t))])
    target = X[:, :1] + 3
    found = regression.evaluate(X, target, sample_weight=counts, batch_size=8)
    wanted = regression.evaluate(X[again], target[again])
    for name in found.keys() - {"loss"}:
        assert found[name] == pytest.approx(wanted[name], rel=1e-5), name


def net_name(net: mg.Model, name: str) -> str:
    return next(kind.name for kind in net.metrics if kind.name.startswith(name.split("_")[0]))


def test_weights_come_with_batches():
    weights = np.linspace(0.5, 2, 50)
    arrays, loaded, classes = small(), small(), small()
    arrays.fit(X, Y, batch_size=10, shuffle=False, sample_weight=weights)
    loaded.fit(Loader(X, Y, weights), validation_data=Loader(X, Y, weights))
    assert bits(arrays) == bits(loaded)
    classes.fit(Loader(X, Y), class_weight={1: 2.0}, validation_data=(X, Y, weights))
    again = small()
    again.fit(X, Y, batch_size=10, shuffle=False, class_weight={1: 2.0})
    assert bits(classes) == bits(again)
    binary = small(1, "binary_cross_entropy")
    binary.fit(X, Y > 0, class_weight={1: 2.0})


def test_epochs_of_a_number_of_steps_go_through_all_data():
    """Epochs of 3 steps of 5 batches a pass: the passes go on from epoch to epoch."""
    seen = []

    class Rows:
        epoch = 0

        def __iter__(self):
            for i in range(5):
                seen.append((self.epoch, i))
                yield X[10 * i : 10 * i + 10], Y[10 * i : 10 * i + 10]

    net = small()
    net.fit(Rows(), epochs=3, steps_per_epoch=3)
    assert seen == [(0, 0), *((0, i) for i in range(5)), *((1, i) for i in range(4))]

    def forever():
        while True:
            yield from Loader(X, Y)

    generated, arrays = small(), small()
    history = generated.fit(forever(), epochs=3, steps_per_epoch=3)
    arrays.fit(X, Y, batch_size=10, shuffle=False, epochs=3, steps_per_epoch=3)
    assert len(history.records) == 3 and bits(arrays) == bits(generated) == bits(net)
    with pytest.raises(mg.DataError, match="the batches end in epoch 1, step 2"):
        small().fit(iter(Loader(X, Y)), epochs=3, steps_per_epoch=3)
    with pytest.raises(mg.DataError, match="gives its batches only once.*\n.*\n.*steps_per_epoch="):
        small().fit(forever(), epochs=3)


@pytest.mark.parametrize("steps", [None, 4])
def test_a_run_that_begins_later_is_the_rest_of_a_whole_run(steps, tmp_path):
    whole, parts = small(), small()
    common = {"batch_size": 10, "steps_per_epoch": steps}
    whole.fit(X, Y, epochs=5, **common)
    parts.fit(X, Y, epochs=2, **common)
    history = parts.fit(X, Y, epochs=5, initial_epoch=2, **common)
    assert len(history.records) == 3 and bits(whole) == bits(parts)
    # And it is cut and resumed as any other.
    path = tmp_path / "run"
    cut, resumed = small(), small()
    for net, epochs in ((cut, 3), (resumed, 5)):
        keeping = [mg.callbacks.Checkpoint(path)]
        begin = {"resume": path} if net is resumed else {"initial_epoch": 1}
        net.fit(X, Y, epochs=epochs, callbacks=keeping, **begin, **common)
    plain = small()
    plain.fit(X, Y, epochs=5, initial_epoch=1, **common)
    assert bits(resumed) == bits(plain)


def test_verbose_says_how_much_is_shown(capsys):
    small().fit(X, Y, verbose=0)
    small().fit(X, Y, verbose="auto")  # no terminal
    assert capsys.readouterr().out == ""
    small().fit(X, Y, epochs=2, verbose=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    small().fit(X, Y, verbose=1)
    assert "epoch 1/1" in capsys.readouterr().out
    with pytest.raises(mg.ConfigError, match="a line for each epoch"):
        small().fit(X, Y, verbose=3)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"x": [{"x": X, "y": Y}]}, "a batch is a dict.*\n.*\n  try: tuples of its members 'x'"),
        ({"x": [(X,)]}, "a batch is a tuple of 1"),
        ({"x": Examples(X)}, "a batch is a tuple of 1"),
        ({"x": Examples(X[:0], Y[:0])}, "has no examples"),
        ({"x": Loader(X, Y), "sample_weight": np.ones(50)}, r"batches \(x, y, weights\)"),
        ({"x": Loader(X, Y), "class_weight": "balanced"}, "'balanced', of arrays"),
        ({"x": X, "y": Y, "class_weight": {3: 1.0}}, "class 3\n  expected: classes 0 to 2"),
        ({"x": X, "y": Y, "class_weight": {0: -1.0}}, "the weight of class 0 is -1.0"),
        ({"x": X, "y": Y, "class_weight": "even"}, "class_weight='even'"),
        ({"x": X, "y": Y, "sample_weight": np.ones(49)}, r"shape \(49,\)"),
        ({"x": X, "y": Y, "sample_weight": np.full(50, np.nan)}, "the weight of row 0 is nan"),
        ({"x": X, "y": np.eye(3)[Y], "class_weight": {0: 2.0}}, r"labels.argmax\(-1\)"),
        ({"x": [(X, Y), (X, Y, Y)]}, "in batch 1 of epoch 0, it has weights"),
        ({"x": [(X, Y, Y), (X, Y)]}, "in batch 1 of epoch 0, it has no weights"),
        ({"x": X, "y": Y, "validation_data": {"x": X}}, "validation_data is dict"),
        ({"x": X, "y": Y, "validation_data": iter([(X, Y)])}, "gives its batches only once"),
    ],
)  # fmt: skip
def test_wrong_data_change_nothing(given, text):
    net = small()
    before = bits(net)
    with pytest.raises(mg.DataError, match=text):
        net.fit(**given)
    assert bits(net) == before


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"initial_epoch": -1}, "initial_epoch=-1"),
        ({"steps_per_epoch": 0}, "steps_per_epoch=0"),
        ({"shuffle": "batch"}, "shuffle='batch'"),
        ({"loss": lambda z, y: mg.mse(z[:, 0], y), "sample_weight": np.ones(50)}, "by its name"),
        ({"loss": "dice_loss", "sample_weight": np.ones(50), "y": np.eye(3)[Y]}, "for each row"),
    ],
)
def test_wrong_settings_are_refused(given, text):
    given = {"y": Y, **given}
    net = small(loss=given.pop("loss", "cross_entropy"))
    with pytest.raises(mg.ConfigError, match=text):
        net.fit(X, **given)
