"""A run that goes on with another rate, other callbacks or other data, where it says so."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.model.changes import check_same

RNG = np.random.default_rng(3)
X = RNG.normal(size=(60, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


def network(optimizer: mg.optimizer.Optimizer | None = None, **options) -> mg.NeuralNetwork:
    layers = [mg.nn.Input((4,)), mg.nn.Dense(8, "relu"), mg.nn.Dense(2)]
    given = {"loss": "cross_entropy", "optimizer": optimizer or mg.optimizer.Adam(0.01), **options}
    return mg.NeuralNetwork(layers, **given)


@pytest.fixture
def cut(tmp_path):
    """Return a checkpoint after 2 epochs, and the network that wrote it."""
    path = tmp_path / "run.safetensors"
    net = network()
    net.fit(X, Y, epochs=2, callbacks=[mg.callbacks.Checkpoint(path)])
    return path, net


def test_a_checkpoint_is_a_model_and_weights(cut, tmp_path):
    path, net = cut
    for found in (mg.NeuralNetwork.load(path), mg.Model.load(path), network(seed=5).load(path)):
        np.testing.assert_array_equal(found.predict(X), net.predict(X))
    other = network(seed=9, optimizer=mg.optimizer.SGD(0.1))
    other.load_weights(path)
    np.testing.assert_array_equal(other.predict(X), net.predict(X))
    best = tmp_path / "best.safetensors"
    keeping = mg.callbacks.Checkpoint(best, monitor="val_loss")
    history = net.fit(X, Y, epochs=3, validation_data=(X, Y), callbacks=[keeping])
    other.load_weights(best)
    assert other.evaluate(X, Y)["loss"] == pytest.approx(min(history["val_loss"]))
    wide = mg.NeuralNetwork([mg.nn.Input((4,)), mg.nn.Dense(3)], loss="cross_entropy")
    with pytest.raises(mg.DataError, match="is of another architecture:\n  it has dense_1"):
        wide.load_weights(path)


def test_files_follow_the_umask(tmp_path):
    previous = os.umask(0o027)
    try:
        network().save(tmp_path / "net")
        network().fit(X, Y, callbacks=[mg.callbacks.Checkpoint(tmp_path / "run")])
    finally:
        os.umask(previous)
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("net", "run")}
    assert modes == {0o640}


def test_a_run_goes_on_with_another_rate(cut):
    path, net = cut
    slow = network(mg.optimizer.Adam(0.0))
    with pytest.raises(mg.DataError, match=r"learning_rate: 0\.01 there, 0\.0 here"):
        slow.fit(X, Y, epochs=4, resume=path, callbacks=[mg.callbacks.Checkpoint(path)])
    history = slow.fit(X, Y, epochs=4, resume=path, callbacks=[mg.callbacks.Checkpoint(path)],
                       resume_changes="learning_rate")  # fmt: skip
    assert len(history["loss"]) == 4
    np.testing.assert_array_equal(slow.predict(X), net.predict(X))  # of rate 0
    assert int(slow.optimizer.state["step"].value) == 8  # Adam's own state went on


def test_a_schedule_goes_on_at_the_step_of_the_file(cut):
    path, _ = cut
    net = network(mg.optimizer.Adam(mg.schedule.exponential(1.0, 0.5)))
    rates = []

    class Rates(mg.callbacks.Callback):
        every_step, resumes = True, False

        def step_end(self, training):
            rates.append(float(training.model.optimizer.learning_rate.value))

    net.fit(X, Y, epochs=3, resume=path, resume_changes=["learning_rate"],
            callbacks=[Rates(), mg.callbacks.Checkpoint(path)])  # fmt: skip
    assert rates == [0.5**5, 0.5**6]  # of the coming steps: 4 were done, and 2 are new


def test_a_run_goes_on_with_another_optimizer_and_other_data(cut):
    path, net = cut
    other = network(mg.optimizer.SGD(0.0, momentum=0.9), seed=4)
    keeping = [mg.callbacks.Checkpoint(path.with_name("next"))]
    given = {"epochs": 3, "resume": path, "callbacks": keeping}
    named = ["optimizer", "learning_rate", "seed", "data"]
    with pytest.raises(mg.DataError) as caught:
        other.fit(X[:30], Y[:30], **given)
    assert f"resume_changes={named!r}" in str(caught.value)
    for line in ("optimizer: class: 'Adam' there", "seed: 0 there, 4 here", "[60, 4] there"):
        assert line in str(caught.value)
    other.fit(X[:30], Y[:30], resume_changes=named, **given)
    np.testing.assert_array_equal(other.predict(X), net.predict(X))
    batches = mg.batches(X, Y, size=10)
    network().fit(batches, epochs=4, resume=path, callbacks=keeping,
                  resume_changes="data")  # fmt: skip


def test_a_run_goes_on_with_other_callbacks(tmp_path):
    path = tmp_path / "run"
    stopping = mg.callbacks.EarlyStopping("loss", 0, least=100.0)
    callbacks = [mg.callbacks.Checkpoint(path), stopping]
    assert len(network().fit(X, Y, epochs=9, callbacks=callbacks).records) == 2
    history = network().fit(X, Y, epochs=5, resume=path, resume_changes=("callbacks",))
    assert len(history.records) == 5  # what stopped the run is gone
    late = mg.callbacks.EarlyStopping("loss", 0, least=100.0)
    network().fit(X, Y, epochs=5, resume=path, resume_changes="callbacks", callbacks=[late])
    assert late.best == stopping.best and late.best_epoch == 1  # that of the file


def test_an_epoch_that_was_cut_begins_again_with_other_data(tmp_path):
    path = tmp_path / "run"

    class Cut(mg.callbacks.Callback):
        every_step, resumes = True, False

        def step_end(self, training):
            training.stopping = training.step == 3

    keeping = mg.callbacks.Checkpoint(path, unit="step")
    network().fit(X, Y, batch_size=10, callbacks=[Cut(), keeping])
    given = {"resume": path, "callbacks": [keeping]}
    with pytest.raises(mg.DataError, match="batch_size: 10 there, 20 here"):
        network().fit(X, Y, batch_size=20, **given)
    steps = []

    class Steps(mg.callbacks.Callback):
        every_step, resumes = True, False

        def step_end(self, training):
            steps.append(training.step)

    given["callbacks"].append(Steps())
    network().fit(X, Y, batch_size=20, resume_changes="batch_size", **given)
    assert steps == [1, 2, 3]


def test_layers_may_not_differ_and_unknown_names_are_refused(cut):
    path, _ = cut
    keeping = [mg.callbacks.Checkpoint(path)]
    net = mg.NeuralNetwork(
        [mg.nn.Input((4,)), mg.nn.Dense(9, "relu"), mg.nn.Dense(2)],
        loss="cross_entropy", optimizer=mg.optimizer.Adam(0.01),
    )  # fmt: skip
    with pytest.raises(mg.DataError, match="number 1: arguments: units: 8 there, 9 here"):
        net.fit(X, Y, resume=path, callbacks=keeping, resume_changes=["optimizer"])
    with pytest.raises(mg.ConfigError, match="some of loss, metrics, .*\n  try: 'learning_rate'"):
        net.fit(X, Y, resume=path, resume_changes="learning_rates")
    with pytest.raises(mg.ConfigError, match="one of them"):
        net.fit(X, Y, resume=path, initial_epoch=2)


def test_differences_of_json_values_are_found_wherever_they_are():
    there = {"a": [1, {"b": None, "c": [[1], [2]]}]}
    for here, text in (
        ({"a": [1, {"c": [[1], [2]]}]}, "a: number 1: b: None there alone"),
        ({"a": [1, {"b": None, "c": [[1], [2]], "d": 3}]}, "a: number 1: d: 3 here alone"),
        ({"a": [1, {"b": None, "c": [[1], [3]]}]}, "a: number 1: c: number 1: [2] there, [3] here"),
        ({"a": 2}, "a: [1, {'b': None, 'c': [[1], [2]]}] there, 2 here"),
        ({"a": [1]}, "a: [1, {'b': None, 'c': [[1], [2]]}] there, [1] here"),
    ):
        with pytest.raises(mg.DataError) as caught:
            check_same("'file'", {"seed": there}, {"seed": here}, frozenset())
        assert f"seed: {text}\n" in str(caught.value)
