"""Values and gradients at kinks, ties, poles and extremes: as each operation's text states them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interpreted import value, values

import magmagraph as mg
from magmagraph.ops.reduction.primitives import sum_to

INF, NAN = np.inf, np.nan


def _assert_close(result: np.ndarray, expected: Any) -> None:
    allowed = mg.dtypes.tolerance(result.dtype, "stable")
    assert allowed.close(result, expected, 0.0), f"{result!r} differs from {expected!r}"


def _slopes(function: Callable[..., mg.Node], *points: Any, order: int = 1) -> list[np.ndarray]:
    """Return the derivatives of the sum of a function with respect to each operand."""
    arrays = [np.asarray(point, dtype=np.float64) for point in points]
    nodes = [mg.input(f"x{i}", array.shape, "float64") for i, array in enumerate(arrays)]
    gradients = [mg.sum(function(*nodes))]
    for _ in range(order):
        gradients = mg.grad(
            sum((mg.sum(g) for g in gradients[1:]), mg.sum(gradients[0])), nodes, unused="zeros"
        )
    return values(gradients, dict(zip(nodes, arrays, strict=True)))


@pytest.mark.parametrize(
    ("function", "points", "expected"),
    [
        (mg.relu, [-1.0, 0.0, 2.0, NAN], [0.0, 0.0, 1.0, 0.0]),
        (mg.absolute, [-1.0, 0.0, -0.0, 2.0, NAN], [-1.0, 1.0, 1.0, 1.0, NAN]),
        (lambda x: mg.absolute(-x), [-1.0, 0.0, 2.0], [-1.0, -1.0, 1.0]),
        (lambda x: mg.absolute(mg.absolute(x)), [-1.0, 0.0, 2.0], [-1.0, 1.0, 1.0]),
        (lambda x: mg.sign(x) * mg.absolute(x), [-1.0, 0.0, 2.0], [1.0, 0.0, 1.0]),
        (lambda x: mg.absolute(x) * mg.absolute(x), [-1.0, 0.0, 2.0], [-2.0, 0.0, 4.0]),
        (lambda x: mg.log(mg.absolute(x)), [-2.0, 0.0, 2.0], [-0.5, INF, 0.5]),
        (mg.softsign, [-1.0, 0.0, 1.0], [0.25, 1.0, 0.25]),
        (mg.relu6, [-1.0, 0.0, 1.0, 6.0, 7.0], [0.0, 0.0, 1.0, 0.0, 0.0]),
        (mg.hard_sigmoid, [-4.0, -3.0, 0.0, 3.0, 4.0], [0.0, 0.0, 1 / 6, 0.0, 0.0]),
        (mg.hard_silu, [-4.0, -3.0, 0.0, 3.0, 4.0], [0.0, 0.0, 0.5, 1.0, 1.0]),
        (mg.median, [1.0, 2.0, 2.0, 3.0], [0.0, 0.5, 0.5, 0.0]),
        (mg.median, [1.0, 2.0, 2.0, 2.0, 3.0], [0.0, 0.0, 1.0, 0.0, 0.0]),
        (mg.median, [INF, INF], [1.0, 0.0]),
        (mg.nanmedian, [2.0, NAN, 2.0], [0.5, 0.0, 0.5]),
        (lambda x: mg.quantile(x, 0.3), [2.0, 2.0, 2.0], [0.4, 0.6, 0.0]),
        (mg.cummax, [1.0, 3.0, 3.0, 2.0], [1.0, 3.0, 0.0, 0.0]),
        (mg.cummin, [2.0, 2.0, 2.0], [3.0, 0.0, 0.0]),
        (
            lambda x: mg.interp(x, [0.0, 1.0, 3.0], [0.0, 2.0, -2.0]),
            [-1.0, 0.0, 1.0, 3.0, 4.0],
            [0.0, 2.0, -2.0, -2.0, 0.0],
        ),
        (
            lambda x: mg.interp(x, [0.0, 1.0, 3.0], [0.0, 2.0, -2.0], left=7.0, right=8.0),
            [-1.0, 0.0, 1.0, 3.0, 4.0],
            [0.0, 2.0, -2.0, -2.0, 0.0],
        ),
        (lambda x: mg.mae(x, np.zeros(4)), [-1.0, 0.0, -0.0, 1.0], [-0.25, 0.25, 0.25, 0.25]),
        (lambda x: mg.huber(x, np.zeros(4)), [-2.0, -1.0, 0.0, 1.0], [-0.25, -0.25, 0.0, 0.25]),
        (lambda x: mg.smooth_l1(x, np.zeros(4)), [-2.0, -1.0, 0.0, 1.0], [-0.25, -0.25, 0.0, 0.25]),
        (lambda x: mg.log_cosh(x, np.zeros(2)), [0.0, -0.0], [0.0, 0.0]),
        (mg.log_sigmoid, [0.0], [0.5]),
        (mg.gelu, [0.0], [0.5]),
        (mg.special.i0, [0.0], [0.0]),
        (mg.regularize.l1(1.0), [-1.0, 0.0, 2.0], [-1.0, 1.0, 1.0]),
        (lambda x: mg.norm(x, ord=1), [-1.0, 0.0, 2.0], [-1.0, 1.0, 1.0]),
        (lambda x: mg.norm(x, ord=INF), [0.0, 0.0], [0.5, 0.5]),
        (lambda x: mg.norm(x, ord=-INF), [0.0, 1.0], [1.0, 0.0]),
        (mg.leaky_relu, [-1.0, 0.0, 2.0], [0.01, 1.0, 1.0]),
        (mg.elu, [-1000.0, 0.0, 1000.0], [0.0, 1.0, 1.0]),
        (mg.hardtanh, [-1.0, 0.0, 1.0, 2.0], [1.0, 1.0, 1.0, 0.0]),
        (lambda x: mg.clip(x, -1.0, 1.0), [-1.0, 0.0, 1.0, 2.0], [0.5, 1.0, 0.5, 0.0]),
        (mg.sqrt, [0.0, 4.0], [INF, 0.25]),
        (mg.sigmoid, [-1000.0, 0.0, 1000.0], [0.0, 0.25, 0.0]),
        (mg.softplus, [-1000.0, 0.0, 1000.0], [0.0, 0.5, 1.0]),
        (mg.tanh, [-1000.0, 0.0, 1000.0], [0.0, 1.0, 0.0]),
        (lambda x: x**2, [-3.0, 0.0, 3.0], [-6.0, 0.0, 6.0]),
        (lambda x: x**1, [-3.0, 0.0], [1.0, 1.0]),
        (lambda x: x**0, [-3.0, 0.0], [0.0, 0.0]),
        (lambda x: x**0.5, [0.0, 4.0], [INF, 0.25]),
        (lambda x: mg.power(x, np.array([0.0, 1.0, 2.0])), [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]),
        (lambda x: 0.0**x, [0.0, 2.0], [0.0, 0.0]),
        (mg.max, [1.0, 3.0, 3.0, 2.0], [0.0, 0.5, 0.5, 0.0]),
        (mg.min, [1.0, 3.0, 1.0, 1.0], [1 / 3, 0.0, 1 / 3, 1 / 3]),
        (mg.norm, [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        (mg.norm, [3.0, 0.0, -4.0], [0.6, 0.0, -0.8]),
        (lambda x: mg.norm(x, ord=3), [0.0, 0.0], [0.0, 0.0]),
        (mg.std, [2.0, 2.0], [0.0, 0.0]),
        (mg.prod, [2.0, 3.0, 5.0], [15.0, 10.0, 6.0]),
        (mg.prod, [2.0, 0.0, 5.0], [0.0, 10.0, 0.0]),
        (mg.prod, [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        (mg.logsumexp, [1000.0, 1000.0], [0.5, 0.5]),
        (mg.logsumexp, [-INF, 0.0], [0.0, 1.0]),
        (lambda x: mg.where(x > 0, mg.log(x), 0.0), [0.0, 2.0], [NAN, 0.5]),
        (
            lambda x: mg.where(x > 0, mg.log(mg.where(x > 0, x, 1.0)), 0.0),
            [-1.0, 0.0, 2.0],
            [0.0, 0.0, 0.5],
        ),
    ],
)
def test_slope(function: Callable[..., mg.Node], points: Any, expected: Any) -> None:
    (result,) = _slopes(function, points)
    _assert_close(result, expected)


@pytest.mark.parametrize(
    ("function", "x", "y", "by_x", "by_y"),
    [
        (mg.maximum, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0], [0.0, 0.5, 1.0], [1.0, 0.5, 0.0]),
        (mg.minimum, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0], [1.0, 0.5, 0.0], [0.0, 0.5, 1.0]),
        (mg.hypot, [0.0, 3.0], [0.0, 4.0], [0.0, 0.6], [0.0, 0.8]),
        (mg.fmax, [1.0, 2.0, 3.0, NAN], [2.0, 2.0, 2.0, 1.0], [0, 0, 1.0, 0], [1.0, 1.0, 0, 1.0]),
        (mg.fmax, [1.0, NAN], [NAN, NAN], [1.0, 1.0], [0.0, 0.0]),
        (mg.fmin, [1.0, 2.0, 3.0, NAN], [2.0, 2.0, 2.0, 1.0], [1.0, 0, 0, 0], [0, 1.0, 1.0, 1.0]),
        (lambda x, y: mg.fmax(y, x), [2.0], [2.0], [1.0], [0.0]),
        (mg.logaddexp, [2.0, 0.0], [2.0, 0.0], [0.5, 0.5], [0.5, 0.5]),
        (mg.logaddexp2, [2.0, 0.0], [2.0, 0.0], [0.5, 0.5], [0.5, 0.5]),
        (mg.power, [0.0, 2.0], [2.0, 0.0], [0.0, 0.0], [0.0, np.log(2.0)]),
        (mg.remainder, [5.5], [2.0], [1.0], [-2.0]),
    ],
)
def test_slopes_of_two(
    function: Callable[..., mg.Node], x: Any, y: Any, by_x: Any, by_y: Any
) -> None:
    results = _slopes(function, x, y)
    _assert_close(results[0], by_x)
    _assert_close(results[1], by_y)


@pytest.mark.parametrize(
    ("function", "points", "expected"),
    [
        (lambda x: x**2, [0.0, 1.5], [2.0, 2.0]),
        (lambda x: x**3, [0.0, 2.0], [0.0, 12.0]),
        (mg.relu, [-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]),
        (mg.absolute, [-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]),
        (lambda x: mg.absolute(x) * x, [-1.0, 0.0, 1.0], [-2.0, 2.0, 2.0]),
        (mg.relu6, [0.0, 1.0, 6.0], [0.0, 0.0, 0.0]),
        (mg.softplus, [-1000.0, 0.0, 1000.0], [0.0, 0.25, 0.0]),
        # Row sums of the matrix of the products of all elements but two.
        (mg.prod, [2.0, 0.0, 5.0], [5.0, 7.0, 2.0]),
        (mg.prod, [2.0, 0.0, 0.0], [0.0, 2.0, 2.0]),
        (mg.norm, [0.0, 0.0], [0.0, 0.0]),
    ],
)
def test_curvature(function: Callable[..., mg.Node], points: Any, expected: Any) -> None:
    (result,) = _slopes(function, points, order=2)
    _assert_close(result, expected)


@pytest.mark.parametrize(
    ("function", "points", "expected"),
    [
        (mg.sigmoid, [-1000.0, 1000.0, -INF, INF], [0.0, 1.0, 0.0, 1.0]),
        (mg.softplus, [-1000.0, 1000.0, -INF, INF], [0.0, 1000.0, 0.0, INF]),
        (mg.relu, [NAN, -INF, INF], [NAN, 0.0, INF]),
        (lambda x: mg.maximum(x, 0.0), [NAN, -INF, INF], [NAN, 0.0, INF]),
        (mg.elu, [-INF, 1000.0], [-1.0, 1000.0]),
        (mg.relu6, [NAN, -INF, INF, 6.0, -0.0], [NAN, 0.0, 6.0, 6.0, 0.0]),
        (mg.median, [INF, INF], INF),
        (lambda x: mg.interp(x, [0.0, 0.1, 0.3], [0.1, 0.7, 0.2])[2], [0.0, 0.1, 0.3], 0.2),
        (lambda x: mg.interp(x, [0.0, 3.0], [1.0, INF]), [3.0, 4.0], [INF, INF]),
        (mg.sign, [NAN, -0.0, -3.0], [NAN, 0.0, -1.0]),
        (lambda x: mg.hypot(x, x), [1e30, 1e-30], [1e30 * np.sqrt(2.0), 1e-30 * np.sqrt(2.0)]),
        (mg.logsumexp, [-INF, -INF], -INF),
        (mg.logsumexp, [INF, 1.0], INF),
        (mg.logsumexp, [NAN, 1.0], NAN),
        (mg.max, [1.0, NAN], NAN),
        (mg.argmax, [1.0, NAN, NAN, INF], 1),
        (mg.argmin, [2.0, -1.0, -1.0], 1),
        (mg.any, [0.0, NAN], True),
        (mg.floor_divide, ([7.0, 7.0, -1.0], [0.0, INF, INF]), [INF, 0.0, -1.0]),
        (mg.erfinv, [-1.0, 1.0, 2.0], [-INF, INF, NAN]),
        (mg.round, [0.5, 1.5, 2.5, -0.5], [0.0, 2.0, 2.0, -0.0]),
    ],
)
def test_value(function: Callable[..., mg.Node], points: Any, expected: Any) -> None:
    operands = points if isinstance(points, tuple) else (points,)
    arrays = [np.asarray(operand, dtype=np.float32) for operand in operands]
    nodes = [mg.input(f"x{i}", array.shape) for i, array in enumerate(arrays)]
    result = value(function(*nodes), dict(zip(nodes, arrays, strict=True)))
    _assert_close(result, expected)


def test_sums_of_16_bit_floats_keep_their_range() -> None:
    x = mg.input("x", ("n",), "float16")
    ones = np.full(100_000, 2.0, dtype=np.float16)
    for function, expected in (
        (mg.mean, 2.0),
        (mg.variance, 0.0),
        (mg.norm, np.float16(np.sqrt(400_000.0))),
    ):
        result = value(function(x), {x: ones})
        assert result.dtype == np.float16
        assert result == expected


WIDE_INTEGERS = {
    **dict.fromkeys(("bool", "int8", "int16", "int32", "int64"), "int64"),
    **dict.fromkeys(("uint8", "uint16", "uint32"), "uint32"),
    "uint64": "uint64",
}


@pytest.mark.parametrize("compiler", ["auto", "off"])
def test_sums_of_unsigned_integers_wrap_as_uint32(
    compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mg.config, "compiler", compiler)
    x = mg.input("x", ("n",), "uint16")
    feed = np.full(70_000, 65_535, np.uint16)
    sums, products, running = mg.function([x], [mg.sum(x), mg.prod(x), mg.cumsum(x)])(feed)
    assert sums == np.sum(feed, dtype=np.uint32) != np.sum(feed)
    assert products == np.prod(feed, dtype=np.uint32)
    np.testing.assert_array_equal(running, np.cumsum(feed, dtype=np.uint32))
    assert mg.sum(x, dtype="uint64").eval({x: feed}) == np.sum(feed)


def test_integer_sums_are_wide() -> None:
    for dtype, wide in WIDE_INTEGERS.items():
        x = mg.input("x", (3,), dtype)
        assert mg.sum(x).dtype == mg.prod(x).dtype == np.dtype(wide)
        assert mg.nansum(x).dtype == mg.nanprod(x).dtype == np.dtype(wide)
        assert mg.cumsum(x).dtype == mg.cumprod(x).dtype == np.dtype(wide)
        assert mg.cumulative_sum(x).dtype == mg.cumulative_prod(x).dtype == np.dtype(wide)
        assert mg.trace(mg.input("y", (3, 3), dtype)).dtype == np.dtype(wide)
        assert mg.sum(x, dtype="int32").dtype == np.int32
        assert mg.mean(x).dtype == mg.config.float_dtype


def test_empty_axes() -> None:
    x = mg.input("x", (0, 3))
    empty = np.zeros((0, 3), np.float32)
    np.testing.assert_array_equal(value(mg.sum(x, axis=0), {x: empty}), np.zeros(3))
    np.testing.assert_array_equal(value(mg.prod(x, axis=0), {x: empty}), np.ones(3))
    assert value(mg.all(x), {x: empty})
    assert value(mg.max(x, axis=1), {x: empty}).shape == (0,)
    assert np.isnan(value(mg.mean(x), {x: empty}))


def test_sum_to_undoes_broadcasting() -> None:
    x = mg.input("x", ("n", 3, "m"))
    n, three, m = x.shape
    array = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    cases: list[tuple[tuple[Any, ...], tuple[int, ...]]] = [
        ((n, three, m), (2, 3, 4)),
        ((m,), (4,)),
        ((3, 1), (3, 1)),
        ((n, 1, m), (2, 1, 4)),
        ((1, 1, 1), (1, 1, 1)),
        ((), ()),
    ]
    for shape, bound in cases:
        node = sum_to(x, shape)
        assert node.shape == shape
        expected = array
        while expected.ndim > len(bound):
            expected = expected.sum(axis=0)
        for axis, extent in enumerate(bound):
            if extent == 1:
                expected = expected.sum(axis=axis, keepdims=True)
        np.testing.assert_array_equal(value(node, {x: array}), expected)
    assert sum_to(x, x.shape) is x


def test_slopes_at_the_ends_of_domains() -> None:
    by_x, by_y = _slopes(mg.special.kl_div, [0.0, 0.0, 1.0], [1.0, 0.0, 1.0])
    _assert_close(by_x, [-1.0, -1.0, 0.0])
    _assert_close(by_y, [1.0, 1.0, 0.0])
    by_x, by_power = _slopes(mg.special.boxcox, [0.0, 1.0, INF], [0.0, 0.0, 0.0])
    _assert_close(by_x, [INF, 1.0, 0.0])
    _assert_close(by_power, [0.0, 0.0, 0.0])
    _assert_close(_slopes(mg.special.boxcox1p, [1.0], [0.0])[1], [0.5 * np.log(2.0) ** 2])
