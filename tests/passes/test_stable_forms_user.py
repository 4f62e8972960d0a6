"""Formulas as users write them, at arguments where the plain computation overflows or is NaN.

What is compiled must be finite and right, in values and gradients, however the formula is spelt:
by hand or by name, and with a reshape, a transposition or a slice in its middle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import tolerance

FLOAT32 = np.dtype(np.float32)
# Where the terms are so small, the absolute part of the tolerance is the smallest normal number:
# what lies below it may be flushed to 0.
TINY = float(np.finfo(np.float32).tiny) / tolerance(FLOAT32, "stable").absolute
Form = Callable[[mg.Node], mg.Node]

ROWS = np.array(
    [
        [1e4, 0.0, -1e4, 3.0],
        [-1e4, -1e4, -1e4, -1e4],
        [1e4, 1e4, 1e4, -1e4],
        [0.5, -0.25, 2.0, 1.0],
        [100.0, 89.0, -104.0, 0.0],
    ]
)
LINE = np.array([-1000.0, -104.0, -88.0, -17.0, -1.0, 0.0, 1.0, 17.0, 89.0, 104.0, 1000.0, 1e4])


def compiled(form: Form, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a form's value and the gradient of its weighted sum, compiled in float32."""
    x = mg.var("x", shape=("rows", *values.shape[1:]))
    y = form(x)
    w = mg.var("w", shape=y.shape)
    f = mg.function([x, w], [y, mg.grad(mg.sum(y * w), x)])
    sizes = y.eval({x: values}).shape
    value, gradient = f(values.astype(np.float32), weights(sizes))
    return value, gradient


def weights(shape: tuple[int, ...]) -> np.ndarray:
    """Return weights of a few sizes and both signs, exact in float32."""
    count = int(np.prod(shape))
    return (((np.arange(count) * 5) % 7 - 2.5) / 4).astype(np.float32).reshape(shape)


def agree(actual: Any, expected: Any, scale: Any = 1.0) -> None:
    """Check every element, and show the worst ones."""
    np.testing.assert_equal(np.shape(actual), np.shape(expected))
    assert tolerance(FLOAT32, "stable").close(actual, expected, scale), (actual, expected)


def log_softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """Compute log-softmax in float64."""
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def by_hand(x: mg.Node) -> mg.Node:
    """Spell softmax out, unshifted: its plain computation overflows."""
    e = mg.exp(x)
    return e / mg.sum(e, axis=-1, keepdims=True)


def shifted_by_hand(x: mg.Node) -> mg.Node:
    """Spell softmax out with the maximum taken off: its plain computation underflows."""
    e = mg.exp(x - mg.max(x, axis=-1, keepdims=True))
    return e / mg.sum(e, axis=-1, keepdims=True)


LOG_SOFTMAX: dict[str, Form] = {
    "named": mg.log_softmax,
    "log of softmax": lambda x: mg.log(mg.softmax(x)),
    "by hand": lambda x: mg.log(by_hand(x)),
    "by hand, shifted": lambda x: mg.log(shifted_by_hand(x)),
    "x minus log of sum": lambda x: x - mg.log(mg.sum(mg.exp(x), axis=-1, keepdims=True)),
    "x minus logsumexp": lambda x: x - mg.logsumexp(x, axis=-1, keepdims=True),
    "of a reshape": lambda x: mg.reshape(mg.log(mg.reshape(mg.softmax(x), (-1, 2, 2))), (-1, 4)),
    "of a flat softmax": lambda x: mg.reshape(mg.log(mg.ravel(mg.softmax(x))), (-1, 4)),
    "of a transpose": lambda x: mg.log(mg.softmax(x).T).T,
    "along the other axis": lambda x: mg.log(mg.softmax(x.T, axis=0)).T,
    "by hand, transposed": lambda x: mg.log(by_hand(x).T).T,
    "of two slices": lambda x: mg.concatenate(
        [mg.log(mg.softmax(x)[:, :1]), mg.log(mg.softmax(x)[:, 1:])], axis=1
    ),
    "of a reversed slice": lambda x: mg.log(mg.softmax(x)[:, ::-1])[:, ::-1],
}


@pytest.mark.parametrize("name", LOG_SOFTMAX)
def test_log_softmax(name: str) -> None:
    """log(softmax(x)) from -1e4 to 1e4, and its gradient."""
    value, gradient = compiled(LOG_SOFTMAX[name], ROWS)
    expected = log_softmax(ROWS)
    agree(value, expected, np.abs(ROWS).max(axis=-1, keepdims=True))
    w = weights(ROWS.shape).astype(np.float64)
    agree(gradient, w - np.exp(expected) * w.sum(axis=-1, keepdims=True), 4.0)


SOFTPLUS: dict[str, Form] = {
    "named": mg.softplus,
    "log(1 + exp(x))": lambda x: mg.log(1 + mg.exp(x)),
    "log(exp(x) + 1)": lambda x: mg.log(mg.exp(x) + 1.0),
    "log1p(exp(x))": lambda x: mg.log1p(mg.exp(x)),
    "of a reshape": lambda x: mg.ravel(mg.log(1 + mg.reshape(mg.exp(x), (-1, 1)))),
    "reshaped outside": lambda x: mg.ravel(mg.log(mg.reshape(1 + mg.exp(x), (1, -1)))),
    "of a transpose": lambda x: mg.ravel(mg.log(1 + mg.exp(mg.reshape(x, (2, -1))).T).T),
    "of a reversed slice": lambda x: mg.log(1 + mg.exp(x)[::-1])[::-1],
}


@pytest.mark.parametrize("name", SOFTPLUS)
def test_softplus(name: str) -> None:
    """log(1 + exp(x)) from -1000 to 1e4, and its gradient."""
    value, gradient = compiled(SOFTPLUS[name], LINE)
    expected = np.logaddexp(0.0, LINE)
    agree(value, expected, np.clip(expected, TINY, 1.0))
    slope = np.exp(LINE - expected)
    agree(gradient, weights(LINE.shape) * slope, np.clip(slope, TINY, 1.0))


LOG_SIGMOID: dict[str, Form] = {
    "named": lambda x: mg.log(mg.sigmoid(x)),
    "by hand": lambda x: mg.log(1 / (1 + mg.exp(-x))),
    "negative": lambda x: -mg.log(1 + mg.exp(-x)),
    "of a reshape": lambda x: mg.ravel(mg.log(mg.reshape(mg.sigmoid(x), (-1, 1)))),
    "of a transpose": lambda x: mg.ravel(mg.log(mg.sigmoid(mg.reshape(x, (2, -1))).T).T),
    "of a slice": lambda x: mg.concatenate([mg.log(mg.sigmoid(x)[:3]), mg.log(mg.sigmoid(x)[3:])]),
}


@pytest.mark.parametrize("name", LOG_SIGMOID)
def test_log_sigmoid(name: str) -> None:
    """log(sigmoid(x)) from -1000 to 1e4, and its gradient."""
    value, gradient = compiled(LOG_SIGMOID[name], LINE)
    expected = -np.logaddexp(0.0, -LINE)
    agree(value, expected, np.clip(-expected, TINY, 1.0))
    slope = np.exp(-LINE - np.logaddexp(0.0, -LINE))
    agree(gradient, weights(LINE.shape) * slope, np.clip(slope, TINY, 1.0))


LOGSUMEXP: dict[str, Form] = {
    "named": lambda x: mg.logsumexp(x, axis=-1),
    "by hand": lambda x: mg.log(mg.sum(mg.exp(x), axis=-1)),
    "keeping axes": lambda x: mg.squeeze(mg.log(mg.sum(mg.exp(x), axis=-1, keepdims=True)), -1),
    "of a transpose": lambda x: mg.log(mg.sum(mg.exp(x).T, axis=0)),
    "of a reversed slice": lambda x: mg.log(mg.sum(mg.exp(x)[:, ::-1], axis=1)),
    "of a reshape": lambda x: mg.log(mg.sum(mg.reshape(mg.exp(x), (-1, 2, 2)), axis=(1, 2))),
    "reshaped sum": lambda x: mg.ravel(
        mg.log(mg.reshape(mg.sum(mg.exp(x), axis=-1), (-1, 1)))
    ),
}


@pytest.mark.parametrize("name", LOGSUMEXP)
def test_logsumexp(name: str) -> None:
    """log(sum(exp(x))) from -1e4 to 1e4, and its gradient."""
    value, gradient = compiled(LOGSUMEXP[name], ROWS)
    highest = ROWS.max(axis=-1)
    expected = highest - log_softmax(ROWS).max(axis=-1)
    agree(value, expected)
    w = weights(value.shape).astype(np.float64)[:, None]
    agree(gradient, w * np.exp(log_softmax(ROWS)))


X_LOG_X: dict[str, Form] = {
    "x * log(x)": lambda x: x * mg.log(x),
    "log(x) * x": lambda x: mg.log(x) * x,
    "of a reshape": lambda x: mg.ravel(mg.reshape(x, (-1, 1)) * mg.reshape(mg.log(x), (-1, 1))),
    "of a reversed slice": lambda x: (x[::-1] * mg.log(x)[::-1])[::-1],
    "negative": lambda x: -(-x * mg.log(x)),
}


@pytest.mark.parametrize("name", X_LOG_X)
def test_x_log_x(name: str) -> None:
    """x * log(x) is 0 at 0, its limit, and the report lists it as a repair."""
    x = mg.var("x", shape=("rows",))
    y = X_LOG_X[name](x)
    f = mg.function([x], [y, mg.grad(mg.sum(y), x)])
    points = np.array([0.0, 1e-30, 0.5, 1.0, 3.0], np.float32)
    value, gradient = f(points)
    exact = points.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        agree(value, np.where(exact == 0, 0.0, exact * np.log(exact)))
        # The derivative itself has no finite limit at 0: it is that of the mathematics, not NaN.
        agree(gradient, np.log(exact) + 1.0)
    with np.errstate(all="ignore"):
        checked = f.check(points)
    assert "repair" in str(checked)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_derivatives_of_x_log_x_at_zero(sign: float) -> None:
    """They are those of the mathematics to any order, in a weighted sum too, not NaN."""
    x = mg.var("x", init=np.array([0.0, 0.5, 2.0]))
    loss = mg.sum(x * mg.log(x) * sign) * 3.0
    first = mg.grad(loss, x)
    second = mg.grad(mg.sum(first), x)
    third = mg.grad(mg.sum(second), x)
    with np.errstate(divide="ignore"):
        exact = [np.log(x.value) + 1.0, 1.0 / x.value, -1.0 / x.value**2]
    for found, wanted in zip(mg.function([], [first, second, third])(), exact, strict=True):
        agree(found, 3.0 * sign * wanted)


def test_x_log_y_is_left_alone() -> None:
    """Of two different nodes there is no limit: 0 * log(0) stays NaN."""
    x, y = mg.var("x", shape=(2,)), mg.var("y", shape=(2,))
    with np.errstate(all="ignore"):
        value = (x * mg.log(y)).eval({x: [0.0, 1.0], y: [0.0, 1.0]})
    assert np.isnan(value[0]) and value[1] == 0


def test_entropy_of_a_hard_softmax() -> None:
    """-sum(p * log(p)) of a softmax whose probabilities underflow: value and gradient."""
    x = mg.var("x", shape=("rows", 4))
    p = mg.softmax(x)
    entropy = -mg.sum(p * mg.log(p), axis=-1)
    f = mg.function([x], [entropy, mg.grad(mg.sum(entropy), x)])
    value, gradient = f(ROWS.astype(np.float32))
    logs = log_softmax(ROWS)
    exact = -(np.exp(logs) * logs).sum(axis=-1)
    agree(value, exact)
    agree(gradient, -np.exp(logs) * (logs + exact[:, None]))


HYPOT: dict[str, Callable[[mg.Node, mg.Node], mg.Node]] = {
    "named": mg.hypot,
    "squares": lambda x, y: mg.sqrt(x**2 + y**2),
    "products": lambda x, y: mg.sqrt(x * x + y * y),
    "square()": lambda x, y: mg.sqrt(mg.square(y) + mg.square(x)),
    "of a reshape": lambda x, y: mg.ravel(
        mg.sqrt(mg.reshape(x**2, (-1, 1)) + mg.reshape(y**2, (-1, 1)))
    ),
    "reshaped sum": lambda x, y: mg.ravel(mg.sqrt(mg.reshape(x**2 + y**2, (1, -1)))),
    "of a reversed slice": lambda x, y: mg.sqrt((x**2)[::-1] + (y**2)[::-1])[::-1],
}


@pytest.mark.parametrize("name", HYPOT)
def test_hypot(name: str) -> None:
    """sqrt(x**2 + y**2) from 1e-38 to 2e38, and its gradients."""
    x, y = mg.var("x", shape=("rows",)), mg.var("y", shape=("rows",))
    z = HYPOT[name](x, y)
    f = mg.function([x, y], [z, *mg.grad(mg.sum(z), [x, y])])
    a = np.array([2e38, -3e37, 3e-38, 3e-30, 1.0, 1e38, 3.0], np.float32)
    b = np.array([2e38, 4e37, 4e-38, -4e-30, 1e-38, 1.0, 4.0], np.float32)
    value, dx, dy = f(a, b)
    exact = np.hypot(a.astype(np.float64), b)
    agree(value, exact, exact)
    agree(dx, a / exact)
    agree(dy, b / exact)


def test_cross_entropy_by_hand() -> None:
    """The loss written with log and softmax agrees with the named one, gradients too."""
    x, labels = mg.var("x", shape=("rows", 4)), mg.var("k", shape=("rows",), dtype="int32")
    hot = mg.one_hot(labels, 4)
    by_name = mg.cross_entropy(x, labels)
    hand = -mg.sum(hot * mg.log(mg.softmax(x))) / x.shape[0]
    unshifted = -mg.mean(mg.sum(hot * mg.log(by_hand(x)), axis=1))
    f = mg.function(
        [x, labels],
        [(loss, mg.grad(loss, x)) for loss in (by_name, hand, unshifted)],
    )
    chosen = np.array([2, 0, 1, 3, 1], np.int32)
    logs = log_softmax(ROWS)
    loss = -logs[np.arange(5), chosen].mean()
    slope = (np.exp(logs) - np.eye(4)[chosen]) / 5
    for value, gradient in f(ROWS.astype(np.float32), chosen):
        agree(value, loss)
        agree(gradient, slope)


def test_binary_cross_entropy_by_hand() -> None:
    """-(t log(s(x)) + (1 - t) log(1 - s(x))) at saturated logits."""
    x, t = mg.var("x", shape=("rows",)), mg.var("t", shape=("rows",))
    p = mg.sigmoid(x)
    loss = -(t * mg.log(p) + (1 - t) * mg.log(1 - p))
    f = mg.function([x, t], [loss, mg.grad(mg.sum(loss), x)])
    target = (np.arange(LINE.size) % 2).astype(np.float32)
    value, gradient = f(LINE.astype(np.float32), target)
    agree(value, np.logaddexp(0.0, LINE) - target * LINE)
    agree(gradient, np.exp(-np.logaddexp(0.0, -LINE)) - target)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_log_softmax_of_other_dtypes(dtype: str) -> None:
    """The value is finite also where the softmax itself underflows in the dtype."""
    x = mg.var("x", shape=("rows", 4), dtype=dtype)
    fed = ROWS.astype(x.dtype)
    exact = fed.astype(np.float64)
    value = mg.log(mg.softmax(x)).eval({x: fed})
    expected = log_softmax(exact)
    assert value.dtype == x.dtype
    assert tolerance(x.dtype, "stable").close(value, expected, np.abs(exact).max())
