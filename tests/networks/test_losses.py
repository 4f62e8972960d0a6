"""Losses: at the ends of their ranges, by their identities, and over alignments."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.special
from interpreted import assert_close, value, values

import magmagraph as mg
from magmagraph.errors import GradientError

FAR = np.array([1e4, -1e4, 50.0, -50.0, 1e-4, 0.0])


# Numbers.


@pytest.mark.parametrize("name", ["mse", "mae", "huber", "smooth_l1", "log_cosh"])
def test_far_errors_are_finite(name: str) -> None:
    x = mg.input("x", (6,), "float64")
    loss = getattr(mg, name)(x, np.zeros(6), reduction="none")
    found, slope = values([loss, mg.grad(mg.sum(loss), x)], {x: FAR})
    assert np.isfinite(found).all()
    assert np.isfinite(slope).all()
    assert found[-1] == 0.0
    assert slope[-1] == (1.0 if name == "mae" else 0.0)  # the tip of mae is that of absolute


def test_log_cosh_is_exact_for_small_errors() -> None:
    r = np.array([1e-8, -1e-5, 1e-3, 0.5, -2.0, 700.0])
    x = mg.input("x", (6,), "float64")
    loss = mg.log_cosh(x, np.zeros(6), reduction="none")
    found, slope = values([loss, mg.grad(mg.sum(loss), x)], {x: r})
    small = np.abs(r) < 0.1  # where the series ends after few terms
    series = r**2 / 2 - r**4 / 12 + r**6 / 45
    np.testing.assert_allclose(found[small], series[small], rtol=1e-12)
    np.testing.assert_allclose(found[~small], np.logaddexp(r, -r)[~small] - np.log(2), rtol=1e-12)
    np.testing.assert_allclose(slope, np.tanh(r), rtol=1e-10)
    curvature = mg.grad(mg.sum(mg.grad(mg.sum(loss), x)), x)
    squared = np.exp(2 * np.log(2.0) - 2 * np.logaddexp(r, -r))  # of the hyperbolic secant
    assert_close(value(curvature, {x: r}), squared)


@pytest.mark.parametrize("name", ["mse", "mae", "huber", "log_cosh", "hinge", "poisson_nll"])
def test_reductions_agree(name: str, rng: np.random.Generator) -> None:
    x, t = rng.normal(size=(2, 5, 3))
    function = getattr(mg, name)
    each, total, average = (
        function(x, t, reduction=how).eval() for how in ("none", "sum", "mean")
    )
    assert_close(total, each.sum(), scale=10.0)
    assert_close(average, each.mean(), scale=10.0)
    doubled = function(x, t, weights=2.0).eval()
    assert_close(doubled, 2 * average, scale=10.0)


def test_sums_of_halves_are_taken_in_float32() -> None:
    x = np.full(4096, 300.0, np.float16)
    loss = mg.mse(x, np.zeros(4096, np.float16), reduction="none")
    assert loss.dtype == np.float16
    mean = mg.mae(x, np.zeros(4096, np.float16))
    assert mean.dtype == np.float16
    assert float(mean.eval()) == 300.0


# Classes.


def test_smoothing_is_that_of_smoothed_rows(rng: np.random.Generator) -> None:
    z, labels = rng.normal(size=(6, 4)), rng.integers(0, 4, 6)
    factors = rng.uniform(0.5, 2.0, 4)
    rows = mg.smooth_labels(np.eye(4)[labels], 0.2)
    for weights in (None, factors):
        by_class = mg.cross_entropy(
            z, labels, label_smoothing=0.2, weights=weights, reduction="sum"
        )
        by_row = mg.cross_entropy(z, rows, weights=weights, reduction="sum")
        assert_close(by_class.eval(), by_row.eval(), scale=20.0)


def test_ignored_rows_have_no_gradient_and_no_weight() -> None:
    z = mg.input("z", ("n", 3), "float64")
    labels = mg.input("labels", ("n",), "int64")
    loss = mg.cross_entropy(z, labels, ignore_index=-100)
    data = np.cos(np.arange(12.0)).reshape(4, 3)
    chosen = np.array([2, -100, 0, -100])
    found, slope = values([loss, mg.grad(loss, z)], {z: data, labels: chosen})
    kept = scipy.special.log_softmax(data, axis=-1)[[0, 2], [2, 0]]
    assert_close(found, -kept.mean())
    assert not slope[[1, 3]].any()
    assert slope[[0, 2]].all()


def test_log_probabilities_of_cross_entropy(rng: np.random.Generator) -> None:
    z, labels = rng.normal(size=(5, 3)), rng.integers(0, 3, 5)
    logs = mg.log_softmax(z)
    assert_close(mg.nll_loss(logs, labels).eval(), mg.cross_entropy(z, labels).eval())


def test_focal_loss_without_a_focus_is_cross_entropy(rng: np.random.Generator) -> None:
    z, events = 5 * rng.normal(size=(2, 20)), rng.integers(0, 2, 20)
    plain = mg.binary_cross_entropy(z[0], events)
    assert_close(mg.focal_loss(z[0], events, gamma=0.0).eval(), plain.eval())
    x = mg.input("x", (4,), "float64")
    far = mg.focal_loss(x, np.array([1.0, 0.0, 1.0, 0.0]), reduction="sum")
    slope = value(mg.grad(far, x), {x: np.array([800.0, -800.0, -800.0, 800.0])})
    np.testing.assert_allclose(slope, [0.0, 0.0, -1.0, 1.0], atol=1e-12)


def test_kl_divergence_of_impossible_classes() -> None:
    logs = mg.input("logs", (1, 3), "float64")
    target = np.array([[0.5, 0.5, 0.0]])
    loss = mg.kl_divergence(logs, target)
    data = np.log(np.array([[0.25, 0.75, 0.0]]), where=[[True, True, False]], out=None)
    data[0, 2] = -np.inf
    found, slope = values([loss, mg.grad(loss, logs)], {logs: data})
    assert_close(found, 0.5 * np.log(2.0) + 0.5 * np.log(0.5 / 0.75))
    np.testing.assert_allclose(slope, -target)


# Comparisons.


def test_equal_vectors_have_a_gradient_of_zero_distance() -> None:
    x = mg.input("x", (2, 3), "float64")
    loss = mg.triplet_margin_loss(x, np.ones((2, 3)), np.zeros((2, 3)), margin=5.0)
    slope = value(mg.grad(loss, x), {x: np.ones((2, 3))})
    assert np.isfinite(slope).all()


def test_vectors_of_any_length_are_similar() -> None:
    """The length is taken without squares that overflow or vanish."""
    x = np.array([[3e200, 4e200], [3e-200, 4e-200]])
    f = mg.function([], mg.cosine_similarity(x, x, epsilon=0.0))
    assert np.isfinite(mg.cosine_similarity(x / 1e200, x / 1e200).eval()).all()
    assert f().shape == (2,)


# Alignments.


def independent(logits: np.ndarray, labels: np.ndarray, blank: int) -> float:
    """Return the loss of one sequence by the forward recursion on probabilities, unscaled."""
    chances = scipy.special.softmax(logits, axis=-1)
    states = [blank]
    for label in labels:
        states += [int(label), blank]
    line = np.zeros(len(states))
    line[:2] = chances[0, states[:2]]
    for t in range(1, len(chances)):
        new = np.zeros(len(states))
        for s, c in enumerate(states):
            total = line[s] + (line[s - 1] if s else 0.0)
            if s > 1 and c != blank and c != states[s - 2]:
                total += line[s - 2]
            new[s] = total * chances[t, c]
        line = new
    return float(-np.log(line[-1] + (line[-2] if len(line) > 1 else 0.0)))


def test_ctc_of_longer_sequences(rng: np.random.Generator) -> None:
    batch, steps, classes, most = 5, 30, 7, 9
    logits = 2 * rng.normal(size=(batch, steps, classes))
    blank = 3
    labels = rng.choice([c for c in range(classes) if c != blank], (batch, most))
    lengths, counts = rng.integers(20, steps + 1, batch), rng.integers(0, most + 1, batch)
    inputs = [
        mg.input("z", ("n", "t", classes), "float64"),
        mg.input("labels", ("n", "s"), "int32"),
        mg.input("lengths", ("n",), "int64"),
        mg.input("counts", ("n",), "int32"),
    ]
    loss = mg.ctc_loss(*inputs, blank=blank, reduction="none")
    f = mg.function(inputs, [loss, mg.grad(mg.sum(loss), inputs[0])])
    found, slope = f(logits, labels.astype("i4"), lengths, counts.astype("i4"))
    expected = [
        independent(logits[i, : lengths[i]], labels[i, : counts[i]], blank) for i in range(batch)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    # Shifting all scores of a step changes nothing, and neither do steps that do not count.
    assert_close(slope.sum(-1), np.zeros((batch, steps)), scale=10.0)
    for i, length in enumerate(lengths):
        assert not slope[i, length:].any()
        assert slope[i, :length].any(axis=-1).all()


def test_all_label_sequences_together_are_certain(rng: np.random.Generator) -> None:
    logits = rng.normal(size=(4, 3))
    total = 0.0
    for count in range(5):
        for labels in itertools.product((1, 2), repeat=count):
            chosen = np.array(labels, np.int64).reshape(count)
            total += np.exp(-float(mg.ctc_loss(logits, chosen, reduction="none").eval()))
    assert_close(np.array(total), 1.0)


def test_ctc_stays_in_range_over_many_steps() -> None:
    """Probabilities of 10,000 steps vanish; their logarithms do not."""
    logits = np.zeros((1, 2000, 4), np.float32)
    z = mg.input("z", logits.shape)
    loss = mg.ctc_loss(z, np.array([[1, 2, 3]]))
    found, slope = mg.function([z], [loss, mg.grad(loss, z)])(logits)
    assert 2000 < found < 2000 * np.log(4.0)
    assert np.isfinite(slope).all()


def test_impossible_alignments() -> None:
    logits, labels = np.zeros((2, 3, 3)), np.array([[1, 1], [1, 2]])
    z = mg.input("z", (2, 3, 3), "float64")
    plain = mg.ctc_loss(z, labels, np.array([2, 3]), reduction="none")
    kept = mg.ctc_loss(z, labels, np.array([2, 3]), zero_infinity=True)
    loss, slope, zeroed = values([plain, mg.grad(kept, z), kept], {z: logits})
    assert loss[0] == np.inf
    assert np.isfinite(loss[1])
    assert_close(zeroed, loss[1] / 2)
    assert not slope[0].any()
    assert slope[1].any()


def test_third_derivatives_of_alignments_are_refused() -> None:
    z = mg.input("z", (1, 3, 3), "float64")
    first = mg.grad(mg.ctc_loss(z, np.array([[1]])), z)
    second = mg.grad(mg.sum(first * first), z)
    with pytest.raises(GradientError, match="ctc_loss: third derivatives are not known"):
        mg.grad(mg.sum(second * second), z)


def test_lines_of_alignments_are_planned() -> None:
    z = mg.input("z", (2, 50, 8), "float64")
    loss = mg.ctc_loss(z, np.ones((2, 5), np.int32))
    f = mg.function([z], mg.grad(loss, z))
    f(np.zeros((2, 50, 8)))
    lines = 8 * 50 * 2 * 11
    assert f.memory.workspaces >= lines


@pytest.mark.parametrize("flat", [False, True])
def test_a_sequence_without_a_batch(flat: bool) -> None:
    logits: Any = np.sin(np.arange(12.0)).reshape(4, 3)
    labels = np.array([1, 2])
    if not flat:
        logits, labels = logits[None], labels[None]
    loss = mg.ctc_loss(logits, labels, reduction="none")
    assert loss.shape == (() if flat else (1,))
    expected = independent(np.sin(np.arange(12.0)).reshape(4, 3), np.array([1, 2]), 0)
    assert_close(np.reshape(loss.eval(), ()), expected)


# Shapes.

PAIRED = [
    "mse", "mae", "huber", "smooth_l1", "log_cosh", "poisson_nll", "hinge", "squared_hinge",
    "binary_cross_entropy", "focal_loss", "kl_divergence", "dice_loss",
]  # fmt: skip


@pytest.mark.parametrize("name", PAIRED)
def test_a_column_beside_a_row_is_refused(name: str) -> None:
    function = getattr(mg, name)
    for shape in ((4,), ("batch",), ("batch", 7)):
        row, column = mg.input("row", shape, "float64"), mg.input("column", (*shape, 1), "float64")
        for given in ((row, column), (column, row)):
            with pytest.raises(mg.ShapeError, match=rf"{name}: shapes .*\n.*one shape\n.*, 0\]"):
                function(*given)
        assert function(column, column).shape == function(row, row).shape == ()
    # What may well be meant still broadcasts.
    assert function(np.ones((4, 1)), np.ones((4, 3))).shape == ()
    assert function(np.ones((1, 1)), np.ones(1)).shape == ()


def test_weights_beside_a_column_are_refused() -> None:
    column = np.ones((4, 1))
    for function in (mg.mse, mg.binary_cross_entropy):
        with pytest.raises(mg.ShapeError, match="losses and weights: shapes"):
            function(column, column, weights=np.ones(4))
    with pytest.raises(mg.ShapeError, match="gaussian_nll: shapes"):
        mg.gaussian_nll(column, column, np.ones(4))
    with pytest.raises(mg.ShapeError, match="margin_ranking_loss: shapes"):
        mg.margin_ranking_loss(column, column, np.ones(4))
