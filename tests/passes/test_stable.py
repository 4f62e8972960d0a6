"""Stable forms: values and gradients are finite and right where the written form is not.

Each case is an expression of one input, points at which it is hard, and formulas of the value and
of the gradient (for a weight per element of the value) in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import special

import magmagraph as mg
from magmagraph.dtypes import canonical, tolerance
from magmagraph.ir.graph import Node, Trace, freeze
from magmagraph.ir.interpret import evaluate
from magmagraph.passes import pipeline
from magmagraph.passes.pipeline import DEFAULT

Array = Any
FLOAT32 = canonical("float32")


class Case(NamedTuple):
    """One expression: how it is written, where it is hard, what is right."""

    name: str
    expression: Callable[[Node], Node]
    points: Array
    value: Callable[[Array], Array]
    gradient: Callable[[Array, Array], Array]


SIMPLIFY = [record for record in DEFAULT if record.name == "simplify"]
ROWS = np.array(
    [[1e4, -1e4, 3.0, 0.0], [1.0, 2.0, 3.0, 4.0], [-1e4, -1e4, -1e4, -9.9e3]], dtype=np.float32
)
LINE = np.array([-1000, -100, -20, -1, 0, 1, 20, 100, 1000], dtype=np.float32)
SIDES = np.array(
    [
        [1e38, -1e38, 2e-38, 3e-37, 1.0, 5.0, 0.0],
        [1e38, 1e30, 1e-38, 4e-37, 1e-20, 1e-30, 2.0],
    ],
    dtype=np.float32,
)
OTHER = SIDES[1]


def log_softmax(x: Array) -> Array:
    return special.log_softmax(x, axis=-1)


def softmax(x: Array) -> Array:
    return special.softmax(x, axis=-1)


def by_hand(x: Node) -> Node:
    return mg.exp(x) / mg.sum(mg.exp(x), axis=-1, keepdims=True)


def log_softmax_gradient(x: Array, w: Array) -> Array:
    return w - softmax(x) * w.sum(-1, keepdims=True)


def softmax_gradient(x: Array, w: Array) -> Array:
    p = softmax(x)
    return p * (w - (w * p).sum(-1, keepdims=True))


def softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def placed(x: Array, w: Array, key: Any) -> Array:
    """Return weights of a piece as weights of the whole."""
    full = np.zeros_like(x)
    full[key] = w
    return full


def logsumexp(axis: Any = -1, keepdims: bool = False) -> Callable[[Array], Array]:
    return lambda x: special.logsumexp(x, axis=axis, keepdims=keepdims)


COLUMNS = (slice(None), slice(1, 3))
EVERY_OTHER = (slice(1, None), slice(None, None, 2))
PIECE = slice(0, 8)
LABELS = np.eye(3, 4, dtype=np.float32)

CASES = [
    Case("log softmax", lambda x: mg.log(mg.softmax(x)), ROWS, log_softmax, log_softmax_gradient),
    Case("log softmax by hand", lambda x: mg.log(by_hand(x)), ROWS, log_softmax,
         log_softmax_gradient),
    Case("softmax", mg.softmax, ROWS, softmax, softmax_gradient),
    Case("softmax by hand", by_hand, ROWS, softmax, softmax_gradient),
    Case("log softmax, reshaped", lambda x: mg.log(mg.reshape(mg.softmax(x), (2, 6))), ROWS,
         lambda x: log_softmax(x).reshape(2, 6),
         lambda x, w: log_softmax_gradient(x, w.reshape(3, 4))),
    Case("log softmax, transposed", lambda x: mg.log(mg.transpose(mg.softmax(x))), ROWS,
         lambda x: log_softmax(x).T, lambda x, w: log_softmax_gradient(x, w.T)),
    Case("log softmax by hand, transposed", lambda x: mg.log(mg.transpose(by_hand(x))), ROWS,
         lambda x: log_softmax(x).T, lambda x, w: log_softmax_gradient(x, w.T)),
    Case("log softmax of transposed exponentials",
         lambda x: mg.log(mg.transpose(mg.exp(x)) / mg.sum(mg.transpose(mg.exp(x)), axis=0)), ROWS,
         lambda x: log_softmax(x).T, lambda x, w: log_softmax_gradient(x, w.T)),
    Case("log softmax of a transpose",
         lambda x: mg.log(mg.softmax(mg.transpose(x), axis=0)), ROWS,
         lambda x: log_softmax(x).T, lambda x, w: log_softmax_gradient(x, w.T)),
    Case("log softmax, columns", lambda x: mg.log(mg.softmax(x)[COLUMNS]), ROWS,
         lambda x: log_softmax(x)[COLUMNS],
         lambda x, w: log_softmax_gradient(x, placed(x, w, COLUMNS))),
    Case("log softmax by hand, columns", lambda x: mg.log(by_hand(x)[COLUMNS]), ROWS,
         lambda x: log_softmax(x)[COLUMNS],
         lambda x, w: log_softmax_gradient(x, placed(x, w, COLUMNS))),
    Case("log softmax, every other", lambda x: mg.log(mg.softmax(x)[EVERY_OTHER]), ROWS,
         lambda x: log_softmax(x)[EVERY_OTHER],
         lambda x, w: log_softmax_gradient(x, placed(x, w, EVERY_OTHER))),
    Case("cross-entropy by hand",
         lambda x: -mg.mean(mg.sum(mg.log(mg.softmax(x)) * LABELS, axis=-1)), ROWS,
         lambda x: -np.mean((log_softmax(x) * LABELS).sum(-1)),
         lambda x, w: w * (softmax(x) - LABELS) / 3),
    Case("entropy",
         lambda x: -mg.sum(mg.softmax(x) * mg.log(mg.softmax(x)), axis=-1), ROWS,
         lambda x: -special.xlogy(softmax(x), softmax(x)).sum(-1),
         lambda x, w: -w[:, None] * softmax(x) * (
             log_softmax(x) - (softmax(x) * log_softmax(x)).sum(-1, keepdims=True))),
    Case("logsumexp by hand", lambda x: mg.log(mg.sum(mg.exp(x), axis=-1)), ROWS, logsumexp(),
         lambda x, w: w[:, None] * softmax(x)),
    Case("logsumexp, axes kept", lambda x: mg.log(mg.sum(mg.exp(x), axis=-1, keepdims=True)), ROWS,
         logsumexp(keepdims=True), lambda x, w: w * softmax(x)),
    Case("logsumexp of all", lambda x: mg.log(mg.sum(mg.exp(x))), ROWS, logsumexp(None),
         lambda x, w: w * softmax(x.ravel()).reshape(x.shape)),
    Case("logsumexp, first axis", lambda x: mg.log(mg.sum(mg.exp(x), axis=0)), ROWS, logsumexp(0),
         lambda x, w: w * special.softmax(x, axis=0)),
    Case("logsumexp, transposed", lambda x: mg.log(mg.sum(mg.transpose(mg.exp(x)), axis=0)), ROWS,
         logsumexp(), lambda x, w: w[:, None] * softmax(x)),
    Case("logsumexp, reshaped", lambda x: mg.reshape(mg.log(mg.reshape(
         mg.sum(mg.exp(x), axis=-1), (3, 1))), (3,)), ROWS, logsumexp(),
         lambda x, w: w[:, None] * softmax(x)),
    Case("logsumexp, function", lambda x: mg.logsumexp(x, axis=-1), ROWS, logsumexp(),
         lambda x, w: w[:, None] * softmax(x)),
    Case("log(1 + exp)", lambda x: mg.log(1 + mg.exp(x)), LINE, softplus,
         lambda x, w: w * special.expit(x)),
    Case("log1p(exp)", lambda x: mg.log1p(mg.exp(x)), LINE, softplus,
         lambda x, w: w * special.expit(x)),
    Case("log(1 + exp), reshaped", lambda x: mg.log(1 + mg.reshape(mg.exp(x), (3, 3))), LINE,
         lambda x: softplus(x).reshape(3, 3), lambda x, w: w.ravel() * special.expit(x)),
    Case("log(1 + exp), piece", lambda x: mg.log(1 + mg.exp(x)[PIECE]), LINE,
         lambda x: softplus(x)[PIECE], lambda x, w: placed(x, w, PIECE) * special.expit(x)),
    Case("log(1 + exp), piece of all", lambda x: mg.log((1 + mg.exp(x))[PIECE]), LINE,
         lambda x: softplus(x)[PIECE], lambda x, w: placed(x, w, PIECE) * special.expit(x)),
    Case("log(sigmoid)", lambda x: mg.log(mg.sigmoid(x)), LINE, lambda x: -softplus(-x),
         lambda x, w: w * special.expit(-x)),
    Case("log(sigmoid), reshaped", lambda x: mg.log(mg.reshape(mg.sigmoid(x), (3, 3))), LINE,
         lambda x: -softplus(-x).reshape(3, 3), lambda x, w: w.ravel() * special.expit(-x)),
    Case("log(sigmoid), piece", lambda x: mg.log(mg.sigmoid(x)[PIECE]), LINE,
         lambda x: -softplus(-x)[PIECE], lambda x, w: placed(x, w, PIECE) * special.expit(-x)),
    Case("log(sigmoid) by hand", lambda x: mg.log(1 / (1 + mg.exp(-x))), LINE,
         lambda x: -softplus(-x), lambda x, w: w * special.expit(-x)),
    Case("log(1 - sigmoid)", lambda x: mg.log(1 - mg.sigmoid(x)), LINE, lambda x: -softplus(x),
         lambda x, w: -w * special.expit(x)),
    Case("sigmoid by hand", lambda x: 1 / (1 + mg.exp(-x)), LINE, special.expit,
         lambda x, w: w * special.expit(x) * special.expit(-x)),
    Case("sigmoid by hand, other way", lambda x: mg.exp(x) / (1 + mg.exp(x)), LINE, special.expit,
         lambda x, w: w * special.expit(x) * special.expit(-x)),
    Case("log(1 + x)", lambda x: mg.log(1 + x), np.float32([1e-10, 3e-9]), np.log1p,
         lambda x, w: w / (1 + x)),
    Case("exp(x) - 1", lambda x: mg.exp(x) - 1, np.float32([1e-10, 3e-9]), np.expm1,
         lambda x, w: w * np.exp(x)),
    Case("x log(x)", lambda x: x * mg.log(x), np.float32([0.0, 1e-30, 0.5, 3.0]),
         lambda x: special.xlogy(x, x), lambda x, w: w * (np.log(x) + 1)),
    Case("x log(x), reshaped", lambda x: mg.reshape(x, (2, 2)) * mg.log(mg.reshape(x, (2, 2))),
         np.float32([0.0, 1e-30, 0.5, 3.0]), lambda x: special.xlogy(x, x).reshape(2, 2),
         lambda x, w: w.ravel() * (np.log(x) + 1)),
    Case("root of squares", lambda x: mg.sqrt(x**2 + mg.constant(OTHER) ** 2), SIDES[0],
         lambda x: np.hypot(x, OTHER), lambda x, w: w * (x / np.hypot(x, OTHER))),
    Case("root of square()", lambda x: mg.sqrt(mg.square(x) + mg.square(mg.constant(OTHER))),
         SIDES[0], lambda x: np.hypot(x, OTHER), lambda x, w: w * (x / np.hypot(x, OTHER))),
    Case("root of squares of slices", lambda x: mg.sqrt(x[0] ** 2 + x[1] ** 2), SIDES,
         lambda x: np.hypot(x[0], x[1]), lambda x, w: w * (x / np.hypot(x[0], x[1]))),
    Case("logarithm of two exponentials", lambda x: mg.log(mg.exp(x) + mg.exp(-x)), LINE,
         lambda x: np.logaddexp(x, -x), lambda x, w: w * np.tanh(x)),
    Case("logarithm of three exponentials",
         lambda x: mg.log(1 + mg.exp(x) + mg.exp(x / 2)), LINE,
         lambda x: np.logaddexp(np.logaddexp(0, x), x / 2),
         lambda x, w: w * (special.expit(x - np.logaddexp(0, x / 2))
                           + special.expit(x / 2 - np.logaddexp(0, x)) / 2)),
    Case("log(1 - tanh squared)", lambda x: mg.log(1 - mg.tanh(x) ** 2), LINE,
         lambda x: 2 * (np.log(2) - np.logaddexp(x, -x)), lambda x, w: -2 * w * np.tanh(x)),
    Case("silu by hand", lambda x: x / (1 + mg.exp(-x)), LINE, lambda x: x * special.expit(x),
         lambda x, w: w * special.expit(x) * (1 + x * special.expit(-x))),
    Case("root of a sum of squares", lambda x: mg.sqrt(mg.sum(x * x, axis=0)), SIDES,
         lambda x: np.hypot(x[0], x[1]), lambda x, w: w * (x / np.hypot(x[0], x[1]))),
    Case("root of a stack of squares",
         lambda x: mg.sqrt(mg.sum(mg.stack([x[0], x[1]]) ** 2, axis=0)), SIDES,
         lambda x: np.hypot(x[0], x[1]), lambda x, w: w * (x / np.hypot(x[0], x[1]))),
    Case("norm", lambda x: mg.norm(x, axis=0, keepdims=True), SIDES,
         lambda x: np.hypot(x[:1], x[1:]), lambda x, w: w * (x / np.hypot(x[0], x[1]))),
    Case("root of squares, reshaped",
         lambda x: mg.sqrt(mg.reshape(x * x + mg.constant(OTHER) ** 2, (7, 1))), SIDES[0],
         lambda x: np.hypot(x, OTHER).reshape(7, 1),
         lambda x, w: w.ravel() * (x / np.hypot(x, OTHER))),
]


@pytest.mark.parametrize("skip", [(), ("simplify",)], ids=["simplified", "as written"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_stable_form(case: Case, skip: tuple[str, ...]) -> None:
    points = np.asarray(case.points, dtype=np.float32)
    x = mg.input("x", points.shape)
    y = case.expression(x)
    w = mg.input("w", y.shape)
    g = mg.grad(mg.sum(y * w), x)
    trace = Trace()
    graph = freeze([x, w], [y, g], trace=trace)
    after, _ = pipeline.run(graph, trace, passes=SIMPLIFY, skip=skip)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, y.shape).astype(np.float32)
    found = evaluate(after, dict(zip(after.inputs, (points, weights), strict=True)))
    wide = points.astype(np.float64)
    with np.errstate(divide="ignore"):
        wanted = [case.value(wide), case.gradient(wide, weights.astype(np.float64))]
    table = tolerance(FLOAT32, "stable")
    right = [
        table.close(found[root], value, scale=np.minimum(1.0, np.abs(value)).max(initial=0.0))
        for root, value in zip(after.outputs, wanted, strict=True)
    ]
    if not skip:
        assert all(right), [found[root] for root in after.outputs] + wanted
    elif case.name not in RIGHT_AS_WRITTEN:
        # Else the case would not show that the rules are needed.
        assert not all(right)


SECOND = [
    ("log softmax", lambda x: mg.log(mg.softmax(x)), mg.log_softmax),
    ("log softmax by hand", lambda x: mg.log(by_hand(x)), mg.log_softmax),
    ("log softmax by hand, columns", lambda x: mg.log(by_hand(x)[COLUMNS]),
     lambda x: mg.log_softmax(x)[COLUMNS]),
    ("log softmax by hand, transposed", lambda x: mg.log(mg.transpose(by_hand(x))),
     lambda x: mg.transpose(mg.log_softmax(x))),
    ("softmax by hand", by_hand, mg.softmax),
    ("logsumexp", lambda x: mg.log(mg.sum(mg.exp(x), -1)), lambda x: mg.logsumexp(x, -1)),
    ("logsumexp, transposed", lambda x: mg.log(mg.sum(mg.transpose(mg.exp(x)), axis=0)),
     lambda x: mg.logsumexp(x, -1)),
    ("softplus", lambda x: mg.log(1 + mg.exp(x)), mg.softplus),
    ("softplus, reshaped", lambda x: mg.log(1 + mg.reshape(mg.exp(x), (12,))),
     lambda x: mg.softplus(mg.reshape(x, (12,)))),
    ("log1p", lambda x: mg.log1p(mg.exp(x)), mg.softplus),
    ("log sigmoid", lambda x: mg.log(mg.sigmoid(x)), lambda x: -mg.softplus(-x)),
    ("log of 1 - sigmoid", lambda x: mg.log(1 - mg.sigmoid(x)), lambda x: -mg.softplus(x)),
    ("sigmoid by hand", lambda x: 1 / (1 + mg.exp(-x)), mg.sigmoid),
    ("two exponentials", lambda x: mg.log(mg.exp(x) + mg.exp(-x)),
     lambda x: mg.softplus(2 * x) - x),
    ("tanh", lambda x: mg.log(1 - mg.tanh(x) ** 2), lambda x: 2 * (x - mg.softplus(2 * x))),
]


@pytest.mark.parametrize(("written", "named"), [c[1:] for c in SECOND], ids=[c[0] for c in SECOND])
@pytest.mark.parametrize("skip", [(), ("simplify",)], ids=["simplified", "as written"])
def test_second_derivatives(
    written: Callable[[Node], Node], named: Callable[[Node], Node], skip: tuple[str, ...]
) -> None:
    """Gradients of squared gradients are those of the named form, in float64."""
    found = []
    for form, dtype in ((written, "float32"), (named, "float64")):
        x = mg.input("x", ROWS.shape, dtype)
        y = form(x)
        count = int(np.prod(y.shape))
        first = mg.grad(mg.sum(y * (np.arange(count, dtype=dtype).reshape(y.shape) / 8)), x)
        second = mg.grad(mg.sum(first * first), x)
        trace = Trace()
        graph = freeze([x], [first, second], trace=trace)
        after, _ = pipeline.run(graph, trace, passes=SIMPLIFY, skip=skip)
        values = evaluate(after, {after.inputs[0]: ROWS.astype(dtype)})
        found.append([values[root] for root in after.outputs])
    for value, wanted in zip(*found, strict=True):
        assert np.isfinite(wanted).all()
        scale = np.maximum(1, np.abs(wanted).max())
        assert tolerance(FLOAT32, "stable").close(value, wanted, scale), (value, wanted)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradient_of_a_narrowed_log_softmax(dtype: str) -> None:
    """The gradient computes in the wider type, where no probability is lost."""
    x = mg.input("x", ROWS.shape)
    weights = np.arange(12, dtype=np.float32).reshape(3, 4) / 12
    gradient = mg.grad(mg.sum(mg.log(mg.softmax(mg.cast(x, dtype))) * weights), x)
    value = gradient.eval({x: ROWS})
    points = ROWS.astype(canonical(dtype)).astype(np.float64)
    wanted = log_softmax_gradient(points, weights.astype(np.float64))
    assert tolerance(canonical(dtype), "stable").close(value, wanted, 4.0), (value, wanted)


def test_a_target_inside_of_a_form_gets_its_own_gradient() -> None:
    """What the stable form leaves out is differentiated as written where it is asked for."""
    x = mg.input("x", (3,))
    power = mg.exp(x)
    y = mg.sum(mg.log(1 + power))
    by_power, by_x = mg.grad(y, [power, x])
    points = np.float32([-1.0, 0.0, 2.0])
    np.testing.assert_allclose(by_power.eval({x: points}), 1 / (1 + np.exp(points)), rtol=1e-6)
    np.testing.assert_allclose(by_x.eval({x: points}), special.expit(points), rtol=1e-6)


RIGHT_AS_WRITTEN = frozenset(
    ("softmax", "logsumexp, function", "sigmoid by hand", "silu by hand")
)


def test_a_replaced_value_that_was_not_finite_is_listed_as_a_repair() -> None:
    x = mg.input("x", (3,))
    _, report = pipeline.run(freeze([x], [x * mg.log(x)]), Trace(), passes=SIMPLIFY)
    (line,) = report.repairs
    assert line.startswith("x log(x) at 0: multiply : float32[3] at ")
    assert line.endswith("0 * log(0) is 0, the continuous limit")


@pytest.mark.parametrize("point", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_stay_so(point: float) -> None:
    x = mg.input("x", (1,))
    y = [x * 0.0, x - x, x / x, mg.exp(mg.log(x)), x + 0.0]
    graph = freeze([x], y)
    after, _ = pipeline.run(graph, Trace(), passes=SIMPLIFY)
    feed = np.float32([point])
    before_values = evaluate(graph, {graph.inputs[0]: feed})
    after_values = evaluate(after, {after.inputs[0]: feed})
    for old, new in zip(graph.outputs, after.outputs, strict=True):
        np.testing.assert_array_equal(after_values[new], before_values[old])
