"""Networks' functions: stable at the ends, named shapes, the size of their gradients' graphs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import scipy.special
from interpreted import assert_close, value, values

import magmagraph as mg
from magmagraph.errors import DTypeError, ShapeError
from magmagraph.ir.dims import Dim
from magmagraph.ir.graph import Node, freeze
from magmagraph.ir.op import Kind

HUGE = np.array([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4], [3.0, 2.0, 1.0]])


def operations(*nodes: Node) -> Counter[str]:
    """Count the interned operations below nodes, by name."""
    return Counter(n.op.name for n in freeze([], nodes) if n.op.kind is not Kind.LEAF)


# Softmax.


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_softmax_and_its_logarithm_at_the_ends(dtype: str) -> None:
    x = mg.input("x", ("n", 3), dtype)
    feeds = {x: HUGE.astype(dtype)}
    probabilities, logs = values([mg.softmax(x), mg.log_softmax(x)], feeds)
    assert_close(probabilities, scipy.special.softmax(HUGE, axis=-1), dtype)
    assert_close(logs, scipy.special.log_softmax(HUGE, axis=-1), dtype)
    for function in (mg.softmax, mg.log_softmax):
        gradient = value(mg.grad(mg.sum(function(x) * np.array([1.0, 2.0, 3.0], dtype)), x), feeds)
        assert np.isfinite(gradient).all()
        assert_close(gradient.sum(-1), np.zeros(3), dtype, scale=6.0)


def test_softmax_over_several_axes() -> None:
    x = mg.input("x", (2, 3, 4), "float64")
    data = np.linspace(-3.0, 3.0, 24).reshape(2, 3, 4)
    found = value(mg.softmax(x, axis=(0, -1)), {x: data})
    assert_close(found, scipy.special.softmax(data, axis=(0, 2)))


def test_softmax_of_integers_and_halves() -> None:
    assert mg.softmax(mg.constant(np.array([1, 2]))).dtype == np.float32
    rows = mg.constant(np.full((2, 4000), 5.0, np.float16))
    found = value(mg.softmax(rows))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(float), 1 / 4000, rtol=1e-3)


# Cross-entropy.


def test_cross_entropy_from_logits_is_finite_at_the_ends() -> None:
    z = mg.input("z", ("n", 3), "float64")
    labels = mg.input("labels", ("n",), "int32")
    feeds = {z: HUGE, labels: np.array([1, 0, 2], np.int32)}
    loss = mg.cross_entropy(z, labels)
    rows = -scipy.special.log_softmax(HUGE, axis=-1)[np.arange(3), [1, 0, 2]]
    assert_close(value(loss, feeds), rows.mean(), scale=1e4)
    expected = (scipy.special.softmax(HUGE, axis=-1) - np.eye(3)[[1, 0, 2]]) / 3
    assert_close(value(mg.grad(loss, z), feeds), expected)


def test_cross_entropy_of_impossible_classes() -> None:
    z = mg.input("z", (1, 3), "float64")
    loss = mg.cross_entropy(z, mg.constant([0]))
    feeds = {z: np.array([[0.0, -np.inf, 1.0]])}
    assert_close(value(loss, feeds), np.log(1.0 + np.e))
    assert np.isfinite(value(mg.grad(loss, z), feeds)).all()


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "int64", "uint64"])
def test_labels_of_every_integer_dtype_are_one_hot_rows(name: str) -> None:
    z = mg.input("z", ("n", 4), "float64")
    data, classes = np.cos(np.arange(12.0)).reshape(3, 4), np.array([3, 0, 2])
    labels = mg.input("labels", ("n",), name)
    rows = mg.input("rows", ("n", 4), "float32")
    by_class = value(mg.cross_entropy(z, labels), {z: data, labels: classes.astype(name)})
    by_row = value(mg.cross_entropy(z, rows), {z: data, rows: np.eye(4, dtype=np.float32)[classes]})
    assert_close(by_class, by_row)


def test_the_mean_is_over_a_named_batch() -> None:
    z, labels = mg.input("z", ("n", 3), "float64"), mg.input("labels", ("n",), "int64")
    loss = mg.cross_entropy(z, labels)
    assert loss.shape == ()
    assert mg.cross_entropy(z, labels, reduction="none").shape == (Dim("n"),)
    for size in (1, 5):
        feeds = {z: np.zeros((size, 3)), labels: np.zeros(size, np.int64)}
        assert_close(value(loss, feeds), np.log(3.0))


def test_cross_entropy_of_probabilities_has_the_epsilon() -> None:
    p = mg.input("p", (2, 2), "float64")
    data = np.array([[0.0, 1.0], [0.5, 0.5]])
    loss = mg.cross_entropy(p, mg.constant([0, 1]), from_logits=False, reduction="none")
    assert_close(value(loss, {p: data}), -np.log(np.array([0.0, 0.5]) + 1e-8))


@pytest.mark.parametrize(
    ("logits", "labels", "dtype", "error", "text"),
    [
        ((4, 3), (4,), "float32", DTypeError, "labels of dtype float32 with 1 axes"),
        ((4, 3), (4, 3, 1), "int32", ShapeError, "labels of 3 axes for logits of 2"),
        ((4, 3), (4, 1), "int32", ShapeError, "extents of logits and labels differ: 3 and 1"),
        ((4, 3), (5,), "int32", ShapeError, "extents of logits and labels differ: 4 and 5"),
        (("n", 3), ("m",), "int32", ShapeError, "extents of logits and labels differ: n and m"),
    ],
)
def test_labels_that_do_not_fit(
    logits: Any, labels: Any, dtype: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        mg.cross_entropy(mg.input("z", logits), mg.input("labels", labels, dtype))
    assert str(caught.value).splitlines()[0] == f"cross_entropy: {text}"


def test_binary_cross_entropy_at_the_ends() -> None:
    z = mg.input("z", (6,), "float64")
    events = np.array([1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    data = np.array([1e4, -1e4, -1e4, 1e4, 40.0, 0.0])
    loss = mg.binary_cross_entropy(z, events, reduction="none")
    expected = np.array([0.0, 0.0, 1e4, 1e4, np.log1p(np.exp(-40.0)), np.log(2.0)])
    np.testing.assert_allclose(value(loss, {z: data}), expected, rtol=1e-14)
    gradient = mg.grad(mg.sum(loss), z)
    np.testing.assert_allclose(
        value(gradient, {z: data}), scipy.special.expit(data) - events, rtol=1e-10, atol=1e-16
    )


def test_bool_events() -> None:
    z = mg.input("z", (2,), "float64")
    loss = mg.binary_cross_entropy(z, np.array([True, False]))
    assert_close(value(loss, {z: np.zeros(2)}), np.log(2.0))


# Normalization.


def test_layer_norm_of_a_named_axis() -> None:
    x = mg.input("x", ("n", "d"), "float64")
    scale, offset = mg.input("scale", ("d",), "float64"), mg.input("offset", ("d",), "float64")
    data = np.cos(np.arange(15.0)).reshape(3, 5)
    feeds = {x: data, scale: np.arange(5.0), offset: np.ones(5)}
    expected = (data - data.mean(1, keepdims=True)) / np.sqrt(data.var(1, keepdims=True) + 1e-5)
    found = value(mg.layer_norm(x, scale, offset), feeds)
    assert_close(found, expected * np.arange(5.0) + 1.0, scale=10.0)


def test_parameters_of_another_rank() -> None:
    x = mg.input("x", (2, 3))
    with pytest.raises(ShapeError, match=r"layer_norm: scale has shape \(2, 3\) for 1 axes"):
        mg.layer_norm(x, np.ones((2, 3)))
    with pytest.raises(ShapeError, match="batch_norm: extents of offset and of axis 1 differ"):
        mg.batch_norm(x, offset=np.ones(2))


def test_batch_norm_over_images() -> None:
    x = mg.input("x", ("n", 3, 4, 4), "float64")
    data = np.sin(np.arange(96.0)).reshape(2, 3, 4, 4)
    found = value(mg.batch_norm(x), {x: data})
    np.testing.assert_allclose(found.mean((0, 2, 3)), 0.0, atol=1e-12)
    np.testing.assert_allclose(found.var((0, 2, 3)), 1.0, rtol=1e-4)
    last = value(mg.batch_norm(mg.moveaxis(x, 1, -1), axis=-1), {x: data})
    assert_close(np.moveaxis(last, -1, 1), found)


@pytest.mark.parametrize("rows", ["batch", 1])
def test_a_batch_of_one_row_leaves_the_running_variance(rows: Any) -> None:
    x = mg.var("x", shape=(rows, 2))
    mean, var = mg.var("mean", init=[0.0, 0.0]), mg.var("var", init=[1.0, 3.0])
    new = mg.running_statistics(x, mean, var)
    step = mg.function([x], [], updates=dict(zip((mean, var), new, strict=True)))
    step([[10.0, 20.0]])
    assert mean.value.tolist() == [1.0, 2.0]
    assert var.value.tolist() == [1.0, 3.0]
    step([[np.nan, 0.0]])  # what is wrong with data is seen
    assert np.isnan(mean.value).tolist() == [True, False]


def test_running_statistics_take_the_batchs_place() -> None:
    x = mg.input("x", ("n", 2), "float64")
    mean, var = (mg.var(name, init=np.array([1.0, 2.0])) for name in ("mean", "var"))
    data = np.array([[3.0, 4.0], [1.0, 2.0]])
    found = value(mg.batch_norm(x, None, None, mean, var, training=False, eps=0.0), {x: data})
    assert_close(found, (data - [1.0, 2.0]) / np.sqrt([1.0, 2.0]))
    new_mean, new_var = values(list(mg.running_statistics(x, mean, var, momentum=0.5)), {x: data})
    assert_close(new_mean, 0.5 * np.array([1.0, 2.0]) + 0.5 * data.mean(0))
    assert_close(new_var, 0.5 * np.array([1.0, 2.0]) + 0.5 * data.var(0, ddof=1))


def test_statistics_are_those_of_the_normalization() -> None:
    x = mg.input("x", ("n", 2), "float64")
    together = operations(mg.batch_norm(x), *mg.batch_statistics(x))
    assert together["sum"] == operations(mg.batch_norm(x))["sum"] == 2


# Dropout.


def test_dropout_keeps_the_mean_and_masks_the_gradient() -> None:
    mg.random.seed(3)
    x = mg.input("x", (10000,), "float64")
    dropped = mg.dropout(x, 0.25)
    data = {x: np.ones(10000)}
    found, gradient = values([dropped, mg.grad(mg.sum(dropped), x)], data)
    assert set(found.tolist()) == {0.0, 1.0 / 0.75}
    assert abs(np.mean(found == 0.0) - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 10000)
    np.testing.assert_array_equal(gradient, found)
    mg.random.seed(0)


def test_dropout_leaves_no_trace_outside_of_training() -> None:
    x = mg.input("x", (3,))
    assert mg.dropout(x, 0.5, training=False) is x
    assert mg.dropout(x, 0.0) is x
    for rate in (-0.1, 1.0):
        with pytest.raises(ShapeError, match=f"dropout: rate={rate}"):
            mg.dropout(x, rate)


def test_a_dropped_element_may_be_infinite() -> None:
    x = mg.input("x", (200,), "float32")
    found = value(mg.dropout(x, 0.5), {x: np.full(200, np.inf, np.float32)})
    assert not np.isnan(found).any()


# What the gradients are made of: one exponential and two row reductions are all that is needed.


def test_cross_entropy_and_its_gradient_share_their_exponentials() -> None:
    z, labels = mg.input("z", ("n", 10)), mg.input("labels", ("n",), "int32")
    loss = mg.cross_entropy(z, labels)
    count = operations(loss, mg.grad(loss, z))
    assert count["exp"] == 1
    assert count["max"] == 1
    assert count["log"] == 1
    # Of the exponentials, of the chosen logits, and the mean.
    assert count["sum"] == 3


@pytest.mark.parametrize(
    ("function", "exponentials", "sums"),
    [(mg.softmax, 1, 2), (mg.log_softmax, 1, 2), (mg.layer_norm, 0, 4), (mg.batch_norm, 0, 4)],
)
def test_gradients_reduce_no_more_than_needed(function: Any, exponentials: int, sums: int) -> None:
    x, weight = mg.input("x", ("n", 10)), mg.input("weight", ("n", 10))
    y = function(x)
    count = operations(y, mg.vjp(y, x, weight))
    assert count["exp"] == exponentials
    assert count["sum"] <= sums


# Dropout of channels, and of self-normalizing networks.


def test_spatial_dropout_drops_whole_channels() -> None:
    mg.random.seed(4)
    x = mg.input("x", (50, 40, 6), "float64")
    found = value(mg.spatial_dropout(x, 0.25), {x: np.ones((50, 40, 6))})
    assert (found == found[..., :1]).all()
    dropped = np.mean(found[..., 0] == 0.0)
    assert abs(dropped - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 2000)
    assert mg.spatial_dropout(x, 0.5, training=False) is x
    mg.random.seed(0)


@pytest.mark.parametrize("node_rate", [False, True])
def test_alpha_dropout_keeps_mean_and_variance(node_rate: bool) -> None:
    mg.random.seed(5)
    count = 200_000
    data = np.random.default_rng(0).normal(size=count)
    x = mg.input("x", (count,), "float64")
    rate = mg.constant(0.3, dtype="float64") if node_rate else 0.3
    found = value(mg.alpha_dropout(x, rate), {x: data})
    assert abs(found.mean() - data.mean()) < 8 / np.sqrt(count)
    assert abs(found.var() - data.var()) < 12 / np.sqrt(count)
    mg.random.seed(0)


# Samples of classes.


def test_gumbel_softmax_draws_by_the_probabilities() -> None:
    mg.random.seed(6)
    chances = np.array([0.2, 0.5, 0.3])
    count = 20_000
    z = mg.input("z", (count, 3), "float64")
    feeds = {z: np.broadcast_to(np.log(chances), (count, 3))}
    hard = mg.gumbel_softmax(z, hard=True)
    gradient = mg.grad(mg.sum(hard * np.array([1.0, 2.0, 3.0])), z)
    found, slope = values([hard, gradient], feeds)
    assert set(np.unique(found.round(12))) == {0.0, 1.0}
    assert (np.abs(found.mean(0) - chances) < 5 * np.sqrt(0.25 / count)).all()
    assert np.isfinite(slope).all()
    assert slope.any()
    soft = value(mg.gumbel_softmax(z, 0.5), feeds)
    assert_close(soft.sum(-1), np.ones(count))
    assert 0.0 < np.mean(soft.max(-1)) < 1.0
    mg.random.seed(0)


# Further normalizations.


def test_group_norm_between_its_ends(rng: np.random.Generator) -> None:
    """One group is a layer norm of each sample, a group a channel an instance norm."""
    x = rng.normal(size=(3, 6, 5))
    assert_close(
        mg.group_norm(x, 1).eval(), mg.layer_norm(x, axis=(1, 2)).eval(), scale=5.0
    )
    assert_close(mg.group_norm(x, 6).eval(), mg.instance_norm(x).eval(), scale=5.0)


def test_norms_of_a_named_batch() -> None:
    x = mg.input("x", ("n", 4, 3), "float64")
    data = np.cos(np.arange(24.0)).reshape(2, 4, 3)
    for norm in (mg.rms_norm, mg.instance_norm, lambda x: mg.group_norm(x, 2), mg.normalize):
        y = norm(x)
        assert y.shape == (Dim("n"), 4, 3)
        assert_close(value(y, {x: data})[1:], norm(data[1:]).eval(), scale=5.0)


def test_rows_of_huge_values_keep_their_direction() -> None:
    x = np.array([[3e25, 4e25]], np.float32)
    f = mg.function([], mg.normalize(x))
    np.testing.assert_allclose(f(), [[0.6, 0.8]], rtol=1e-6)


@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("named", [False, True], ids=["known", "named"])
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 0)], ids=str)
def test_scores_of_no_classes(
    shape: tuple[int, ...], named: bool, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probabilities of nothing are none; a sum of no exponentials is 0, and its logarithm -inf."""
    monkeypatch.setattr(mg.config, "compiler", compiler)
    extents = tuple(f"n{i}" for i in range(len(shape))) if named else shape
    x = mg.input("x", extents, "float64")
    functions = (mg.softmax, mg.log_softmax, mg.softmin, mg.gumbel_softmax)
    nodes = [function(x) for function in functions]
    folded = [mg.logsumexp(x, -1), mg.logsumexp(x, -1, keepdims=True), mg.logmeanexp(x, -1)]
    loss = mg.sum(mg.stack([mg.sum(node) for node in (*nodes, folded[0])]))
    results = mg.function([x], [*nodes, *folded, mg.grad(loss, x)])(np.zeros(shape))
    assert [value.shape for value in results[:4]] == [shape] * 4
    *_, total, kept, mean, slope = results
    np.testing.assert_array_equal(total, np.full(shape[:-1], -np.inf))
    np.testing.assert_array_equal(kept, np.full((*shape[:-1], 1), -np.inf))
    assert np.isnan(mean).all()
    assert slope.shape == shape


def test_several_axes_without_scores() -> None:
    x = mg.constant(np.zeros((2, 0, 3)))
    assert mg.softmax(x, axis=(0, 1)).eval().shape == (2, 0, 3)
    assert mg.gumbel_softmax(x, axis=1, hard=True).eval().shape == (2, 0, 3)
    np.testing.assert_array_equal(mg.logsumexp(x, (0, 1)).eval(), np.full(3, -np.inf))
    assert mg.softmax(x, axis=1, where=np.zeros((2, 0, 3), bool)).eval().shape == (2, 0, 3)
    for function in (mg.max, mg.min, mg.argmax):
        with pytest.raises(mg.ShapeError, match="axis 1 is empty"):  # as in NumPy
            function(x, 1)
