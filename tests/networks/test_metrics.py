"""Metrics against definitions in NumPy, and scikit-learn where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
from layer_forms import close, sigmoid, softmax

import magmagraph as mg

M = mg.metrics


def area(scores, true, weights):
    """Compare each pair."""
    total = pairs = 0.0
    for i in np.flatnonzero(true):
        for j in np.flatnonzero(~true):
            weight = weights[i] * weights[j]
            total += weight * (float(scores[i] > scores[j]) + 0.5 * float(scores[i] == scores[j]))
            pairs += weight
    return total / pairs


def average_precision(scores, true, weights):
    total = before = 0.0
    for limit in sorted(set(scores), reverse=True):
        taken = scores >= limit
        recall = (weights * (taken & true)).sum() / (weights * true).sum()
        total += (recall - before) * (weights * (taken & true)).sum() / (weights * taken).sum()
        before = recall
    return total


RANKS = [("auc", area), ("average_precision", average_precision)]


@pytest.mark.parametrize(("name", "form"), RANKS)
def test_what_ranks_say(name, form, rng):
    scores, true = rng.integers(0, 12, 40) / 12, rng.random(40) < 0.4
    weights = rng.integers(1, 4, 40).astype(float)
    metric, same = M.metric(name), np.ones(40)
    assert metric(scores, true) == pytest.approx(form(scores, true, same))
    assert metric(scores, true, weights=weights) == pytest.approx(form(scores, true, weights))
    assert metric(np.stack([1 - scores, scores], 1), true.astype(int)) == pytest.approx(
        form(scores, true, same)
    )
    logits = np.log(scores + 0.01) * 3
    assert metric(logits[:, None], true[:, None], False) == pytest.approx(
        form(sigmoid(logits), true, same)
    )
    chances, labels = softmax(rng.standard_normal((40, 3))), rng.integers(0, 3, 40)
    each = [form(chances[:, k], labels == k, weights) for k in range(3)]
    assert metric(chances, labels, weights=weights) == pytest.approx(np.mean(each))
    assert metric(chances, np.eye(3)[labels], weights=weights) == pytest.approx(np.mean(each))
    assert np.isnan(metric(scores[:3], [0, 0, 0]))


@pytest.mark.parametrize(("name", "form"), RANKS)
@pytest.mark.parametrize("weighted", [False, True])
def test_batches_of_ranks_are_added_up_in_bins(name, form, weighted, rng):
    # Scores in the middle of bins of their own: the bins say all.
    scores = (rng.permutation(60) * 8 + 4.0) / 512
    true, weights = rng.random(60) < 0.3, rng.integers(1, 4, 60).astype(float)
    stream = M.metric(name).stream() if name == "auc" else M.AveragePrecision(bins=64).stream()
    for start in range(0, 60, 25):
        part = slice(start, start + 25)
        stream.add(scores[part], true[part], *([weights[part]] if weighted else []))
    wanted = form(scores, true, weights if weighted else np.ones(60))
    assert stream.result() == pytest.approx(wanted)
    assert stream.rows == (weights.sum() if weighted else 60)


def test_they_are_those_of_scikit_learn(rng):
    scores = pytest.importorskip("sklearn.metrics")
    chances, labels = rng.random((90, 4)), rng.integers(0, 4, 90)
    chances /= chances.sum(1, keepdims=True)
    found, weights = chances.argmax(1), rng.random(90).astype("f4")
    kinds = {"precision": scores.precision_score, "recall": scores.recall_score,
             "f1": scores.f1_score}  # fmt: skip
    for name, function in kinds.items():
        for average in ("macro", "micro", "weighted", None):
            metric = M.metric(f"{name}_{'classes' if average is None else average}")
            wanted = function(labels, found, average=average)
            assert metric(chances, labels) == pytest.approx(wanted), (name, average)
            wanted = function(labels, found, average=average, sample_weight=weights)
            assert metric(chances, labels, weights=weights) == pytest.approx(wanted, rel=1e-6)
    for name, function in (("accuracy", scores.accuracy_score),
                           ("matthews", scores.matthews_corrcoef)):  # fmt: skip
        wanted = function(labels, found, sample_weight=weights)
        assert M.metric(name)(chances, labels, weights=weights) == pytest.approx(wanted, rel=1e-6)
    matrix = scores.confusion_matrix(labels, found, sample_weight=weights)
    close(M.Confusion()(chances, labels, weights=weights), matrix)
    assert M.AUC()(chances, labels) == pytest.approx(
        scores.roc_auc_score(labels, chances, multi_class="ovr")
    )
    binary = labels > 1
    for name, function in (("auc", scores.roc_auc_score),
                           ("average_precision", scores.average_precision_score)):  # fmt: skip
        wanted = function(binary, chances[:, 0], sample_weight=weights)
        assert M.metric(name)(chances[:, 0], binary, weights=weights) == pytest.approx(wanted)
    values = rng.normal(size=(90, 2)) * 5 + 100
    moved = values + chances[:, :2]
    for name, function in (("r2", scores.r2_score), ("mse", scores.mean_squared_error)):
        wanted = function(values, moved, sample_weight=weights)
        assert M.metric(name)(moved, values, weights=weights) == pytest.approx(wanted, rel=1e-6)


def test_weights_are_repeated_rows(rng):
    outputs, labels = rng.random((12, 3)), rng.integers(0, 3, 12)
    weights = rng.integers(1, 4, 12)
    again, wanted = (np.repeat(a, weights, 0) for a in (outputs, labels))
    for name in ("accuracy", "top_2", "confusion", "matthews", "f1", "perplexity", "auc"):
        metric = M.metric(name)
        found = metric(outputs, labels, weights=weights)
        assert found == pytest.approx(metric(again, wanted)), name
    own = M.MeanOf(lambda y, t: mg.mean(mg.sum(y, -1) * t), "own")
    assert own(outputs, labels, weights=weights) == pytest.approx(own(again, wanted))
    assert M.Confusion()(outputs, labels, weights=weights).dtype == np.int64


@pytest.mark.parametrize("ignore", [None, 0])
def test_perplexity(ignore, rng):
    logits, labels = rng.standard_normal((4, 6, 5)), rng.integers(0, 5, (4, 6))
    logs = np.log(np.take_along_axis(softmax(logits), labels[..., None], -1)[..., 0])
    counted = np.ones_like(labels, bool) if ignore is None else labels != ignore
    wanted = np.exp(-logs[counted].mean())
    metric = M.Perplexity(ignore)
    assert metric(logits, labels, probabilities=False) == pytest.approx(wanted)
    assert metric(softmax(logits), labels) == pytest.approx(wanted)
    assert M.metric(metric.name).ignore_index == ignore
    if ignore is None:
        assert metric(softmax(logits), labels) == pytest.approx(
            np.exp(float(mg.cross_entropy(logits, labels).eval()))
        )
    stream = metric.stream(probabilities=False)
    for row in range(4):
        stream.add(logits[row : row + 1], labels[row : row + 1])
    assert stream.result() == pytest.approx(wanted)
    stream.reset()
    with pytest.raises(mg.errors.DataError, match="of no rows\n  expected: a batch"):
        stream.result()


def test_a_network_reports_them(rng):
    x, y = rng.standard_normal((80, 4)).astype("f4"), rng.integers(0, 3, 80)
    names = ["auc", "average_precision", "perplexity", "f1_weighted"]
    net = mg.NeuralNetwork(
        [mg.nn.Input((4,)), mg.nn.Dense(3)], loss="cross_entropy", metrics=names, device="cpu"
    )
    history = net.fit(x, y, epochs=2, batch_size=32)
    assert set(names) <= set(history)
    found = net.evaluate(x, y, batch_size=32)
    assert found["perplexity"] == pytest.approx(np.exp(found["loss"]), rel=1e-5)
    exact = M.AUC()(net.predict(x), y, probabilities=False)
    assert found["auc"] == pytest.approx(exact, abs=1e-2)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: M.AUC(bins=1), "AUC: bins=1\n  expected: an int of at least 2"),
        (lambda: M.F1("mean"), "F1: average='mean'\n  expected: 'auto', 'macro'"),
        (lambda: M.metric("rocauc"), "there is no metric 'rocauc'\n  expected: one of accuracy, a"),
        (lambda: M.metric("acuracy"), "there is no metric 'acuracy'\n.*\n  try: 'accuracy'"),
        (lambda: M.metric("roc_auc"), "there is no metric 'roc_auc'\n.*\n  try: 'auc'"),
        (
            lambda: M.AUC()([0.1, 0.2], [0, 1], weights=[1.0]),
            r"the weights have shape \(1,\) and dtype float64\n  expected: a number for each of 2",
        ),
        (
            lambda: M.Accuracy()([[0.1, 0.9]], [1], weights=[-1.0]),
            "the weight of row 0 is -1.0\n  expected: finite numbers of at least 0",
        ),
        (lambda: M.AUC()(np.ones((2, 2, 2)), [0, 1]), r"the outputs have shape \(2, 2, 2\)\n  exp"),
    ],
)
def test_mistakes(make, text):
    with pytest.raises((mg.errors.ConfigError, mg.errors.DataError), match=text):
        make()
