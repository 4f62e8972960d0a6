"""Programs as newcomers write them, which once gave a wrong answer in silence."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.distributed import threads, training
from magmagraph.ir import ranks
from magmagraph.runtime.comm.solo import Solo


def test_accuracy_by_equality(rng: np.random.Generator) -> None:
    x = mg.var("x", shape=("batch", 4))
    y = mg.var("y", shape=("batch",), dtype="int32")
    logits = x @ mg.var("w", init=rng.standard_normal((4, 3)).astype("float32"))
    accuracy = mg.function([x, y], mg.mean(logits.argmax(1) == y))
    features = rng.standard_normal((50, 4)).astype("float32")
    predicted = mg.function([x], logits.argmax(1))(features)
    labels = np.where(np.arange(50) < 20, predicted, (predicted + 1) % 3).astype("int32")
    np.testing.assert_allclose(accuracy(features, labels), 0.4, rtol=1e-6)


def test_a_numpy_scalar_leaves_the_dtype_of_a_graph() -> None:
    x = mg.var("x", shape=("n", 4))
    k = mg.var("k", shape=(3,), dtype="int32")
    for node in (
        x / np.sqrt(400),
        np.float64(0.5) * x,
        x ** np.float64(2) - np.int64(1),
        mg.maximum(x, np.float64(0)) + mg.where(x > np.float64(1), np.float64(1), x),
        x / (x.shape[0] * np.sqrt(2)),
        mg.random.normal((4,), std=np.float64(2)),
        k * np.float64(2),
    ):
        assert node.dtype == np.float32, node
    assert (k + np.int64(3)).dtype == np.int32
    assert (mg.cast(x, "float16") * np.float64(2)).dtype == np.float16
    assert (x - np.complex128(1j)).dtype == np.complex64
    for node in (x * mg.constant(np.float64(2)), x * np.array(2.0), mg.add(np.float64(2), 3.0)):
        assert node.dtype == np.float64, node
    assert (mg.cast(x, "float16") * np.float32(2)).dtype == np.float32
    with pytest.raises(mg.DTypeError, match="does not fit int32"):
        k + np.int64(2**40)


def test_what_is_written_into_a_value_is_not_lost_in_silence() -> None:
    w = mg.var("w", init=np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="copy of a variable"):
        w.value[0] = 5
    array = w.value.copy()
    array[0] = 5
    w.value = array
    assert w.value.tolist() == [5, 0, 0]


def test_exact_feeds_of_another_kind() -> None:
    x, z = mg.var("x", shape=("n",)), mg.var("z", shape=("n",), dtype="complex64")
    f = mg.function([x, z], x * z)
    np.testing.assert_array_equal(f(np.arange(3), np.arange(3.0)), np.arange(3) ** 2)
    with pytest.raises(mg.FeedError, match="float32 does not hold exactly"):
        f(np.array([2**24 + 1]), np.ones(1))


def test_a_column_less_a_row_of_the_same_rows_warns() -> None:
    predicted, target = mg.var("p", shape=("n", 1)), mg.var("t", shape=("n",))
    with pytest.warns(mg.BroadcastWarning, match=r"\(n, 1\) and \(n,\) broadcast to every pair"):
        loss = mg.mean((predicted - target) ** 2)
    assert loss.shape == ()
    with pytest.warns(mg.BroadcastWarning) as caught:
        for _ in range(3):
            mg.minimum(target, predicted)
        target * predicted
    assert [str(w.message).partition(":")[0] for w in caught] == ["minimum", "multiply"]
    assert {w.filename for w in caught} == {__file__}


def test_pairs_on_purpose_do_not_warn() -> None:
    x, y = mg.var("x", shape=("n",)), mg.var("y", shape=("n", 3))
    for node in (
        x[:, None] - x[None, :],
        x[:, None] * y,
        mg.outer(x, x),
        mg.input("m", ("n", "n")) + mg.sum(y, axis=1, keepdims=True) + x[None, :],
        mg.input("a", (4, 1)) - mg.input("b", (4,)),
        mg.grad(mg.sum(x[:, None] - x[None, :]), x),
    ):
        assert node.ndim


def test_training_on_several_ranks_without_a_strategy_warns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.setenv(name, "4" if name.endswith("SIZE") else "0")
    monkeypatch.setattr(training, "_warned", Event())
    w = mg.var("w", init=1.0)
    step = partial(mg.optimizer.SGD(0.1).step, w**2, [w])
    monkeypatch.setattr(ranks, "_of_process", [])
    with pytest.warns(mg.RanksWarning, match="each of 4 ranks trains a model of its own") as caught:
        step()
    assert len(caught) == 1 and caught[0].filename.endswith("test_newcomers.py")
    step()  # once is enough
    training._warned.clear()
    monkeypatch.setenv("MAGMAGRAPH_COMMUNICATOR", "solo")
    step()
    monkeypatch.delenv("MAGMAGRAPH_COMMUNICATOR")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    step()
    monkeypatch.setattr(ranks, "_of_process", [Solo()])
    step()


def test_fit_on_several_ranks_without_a_strategy_warns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training, "_warned", Event())

    def train() -> None:
        net = mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(1)], loss="mse")
        net.fit(np.ones((4, 3), "f4"), np.ones((4, 1), "f4"), batch_size=2, epochs=1)

    with pytest.warns(mg.RanksWarning, match="each of 2 ranks"):
        threads(2, train)


@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("label", [-100, 3, 255])
def test_labels_out_of_range_in_a_step(
    compiler: str, label: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding and labels that are too large once gave a finite loss and a wrong gradient."""
    monkeypatch.setenv("MAGMAGRAPH_COMPILER", compiler)
    x = mg.var("x", shape=("n", 4))
    y = mg.var("y", shape=("n",), dtype="int32")
    w = mg.var("w", init=rng.standard_normal((4, 3)).astype("float32"))
    features = rng.standard_normal((6, 4)).astype("float32")
    good, bad = np.array([0, 1, 2, 0, 1, 2], "i4"), np.array([0, 1, label, 0, 1, 2], "i4")

    step = mg.optimizer.SGD(0.1).step(
        mg.cross_entropy(x @ w, y), [w], inputs=[x, y], outputs=mg.cross_entropy(x @ w, y)
    )
    step(features, good)
    before = w.value
    with pytest.raises(mg.FeedError, match=rf"'y' .* the label {label} at \(2,\), .* 3 classes"):
        step(features, bad)
    with pytest.raises(mg.FeedError, match=f"ignore_index={label}"):
        step.run([(features, bad)])
    np.testing.assert_array_equal(w.value, before)

    ignoring = mg.cross_entropy(x @ w, y, ignore_index=label)
    found, gradient = mg.function([x, y], [ignoring, mg.grad(ignoring, w)])(features, bad)
    kept = np.delete(np.arange(6), 2)
    plain = mg.cross_entropy(x @ w, y)
    expected = mg.function([x, y], [plain, mg.grad(plain, w)])(features[kept], good[kept])
    np.testing.assert_allclose(found, expected[0], rtol=1e-5)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-4, atol=1e-6)
    with pytest.raises(mg.FeedError, match=rf"labels in \[0, 3\), or {label}"):
        mg.function([x, y], ignoring)(features, np.array([0, 1, 77, 0, 1, 2]))


def test_labels_are_checked_in_every_form(tmp_path: Path) -> None:
    scores = mg.var("scores", shape=("n", 5))
    table = mg.var("table", shape=("n", 3), dtype="int64")
    column = mg.var("column", shape=("n", 1), dtype="uint8")
    real = mg.var("real", shape=("n",))
    classes = mg.var("wide", shape=("n", "classes"))
    ones, label = np.ones((2, 5), "f4"), np.array([4, 2])
    with_label = np.array([[9, 4, 9], [-1, 2, 9]])  # only the middle column holds labels
    cases = [
        (mg.cross_entropy(scores, table[:, 1]), [scores, table], [ones, with_label], (1, 1)),
        (
            mg.nll_loss(scores, mg.squeeze(column, 1)),
            [scores, column], [ones, label[:, None]], (1, 0),
        ),
        (mg.multi_margin(scores, mg.cast(real, "int32")), [scores, real], [ones, label], (1,)),
        (mg.cross_entropy(classes, mg.cast(real, "int64")), [classes, real], [ones, label], (0,)),
        (
            mg.vmap(lambda s, k: mg.cross_entropy(s[None], k[None]))(scores, table[:, 1]),
            [scores, table], [ones, with_label], (0, 1),
        ),
    ]  # fmt: skip
    for loss, inputs, feeds, place in cases:
        f = mg.function(inputs, loss)
        f.save(tmp_path / "f.mg")
        wrong = [feeds[0], feeds[1].copy()]
        wrong[1][place] = 5
        for each in (f, pickle.loads(pickle.dumps(f)), mg.load(tmp_path / "f.mg")):
            assert np.isfinite(each(*feeds)).all()
            with pytest.raises(mg.FeedError, match="is fed the label 5 at"):
                each(*wrong)
    with pytest.raises(mg.ShapeError, match=r"the label 5 at \(1,\) for 5 classes"):
        mg.cross_entropy(scores, [0, 5])
    # One-hot rows of labels outside stay rows of zeros.
    assert not mg.one_hot(mg.constant([7]), 5).eval().any()
