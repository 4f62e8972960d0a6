"""Order, scans, counting and quantiles: against NumPy on random configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interpreted import value

import magmagraph as mg
from magmagraph.errors import ShapeError
from magmagraph.ir import dims
from magmagraph.ir.dims import Dim

N = Dim("n")
METHODS = (
    *("linear", "lower", "higher", "midpoint", "nearest", "hazen", "weibull"),
    *("median_unbiased", "normal_unbiased", "interpolated_inverted_cdf"),
)


def _holed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return floats with ties, NaN and infinities."""
    data = np.round(rng.normal(size=shape) * 2) / 2
    data[rng.random(shape) < 0.15] = np.nan
    data[rng.random(shape) < 0.1] = np.inf
    data[rng.random(shape) < 0.1] = -np.inf
    return data


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int16", "uint8", "bool"])
def test_sort_and_argsort_are_numpys(dtype: str, rng: np.random.Generator) -> None:
    x = mg.input("x", (4, "n"), dtype)
    f = mg.function([x], [mg.sort(x), mg.argsort(x, 0), mg.sort(x, 0), *mg.top_k(x, 2, 0)])
    for n in (0, 1, 17):
        data = _holed(rng, (4, n)) if dtype.startswith("f") else rng.integers(0, 9, (4, n))
        data = data.astype(dtype)
        rows, order, columns, largest, places = f(data)
        np.testing.assert_array_equal(rows, np.sort(data))
        np.testing.assert_array_equal(columns, np.sort(data, 0))
        np.testing.assert_array_equal(order, np.argsort(data, 0, kind="stable"))
        np.testing.assert_array_equal(largest, np.take_along_axis(data, places, 0))
        np.testing.assert_array_equal(largest, np.sort(data, 0)[:-3:-1])


def test_top_k_takes_the_first_of_equal_elements() -> None:
    values, places = mg.top_k(mg.constant([1.0, 3.0, 3.0, float("nan"), 3.0]), 3)
    np.testing.assert_array_equal(value(places), [3, 1, 2])
    np.testing.assert_array_equal(value(values), [np.nan, 3.0, 3.0])
    with pytest.raises(ShapeError, match="k=3 of an axis of extent 2"):
        mg.top_k([1.0, 2.0], 3)
    assert mg.top_k(mg.input("x", ("n", 4)), "n", axis=0).values.shape == (N, 4)


def test_gradient_of_sort_is_the_permutation(rng: np.random.Generator) -> None:
    x = mg.input("x", (3, 5), "float64")
    weights = rng.normal(size=(3, 5))
    data = rng.normal(size=(3, 5))
    result = value(mg.grad(mg.sum(mg.sort(x, 1) * weights), x), {x: data})
    expected = np.empty_like(data)
    np.put_along_axis(expected, np.argsort(data, 1), weights, 1)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_is_numpys(side: str, rng: np.random.Generator) -> None:
    a, v = mg.input("a", ("n",), "float64"), mg.input("v", ("k", 2), "float64")
    f = mg.function([a, v], mg.searchsorted(a, v, side))
    for n in (0, 1, 12):
        line, values = np.sort(_holed(rng, (n,))), _holed(rng, (6, 2))
        np.testing.assert_array_equal(f(line, values), np.searchsorted(line, values, side))


@pytest.mark.parametrize("method", METHODS)
def test_quantiles_are_numpys(method: str, rng: np.random.Generator) -> None:
    x = mg.input("x", ("n", 3), "float64")
    part = np.array([0.0, 0.13, 0.5, 0.98, 1.0])
    f = mg.function(
        [x],
        [
            mg.quantile(x, part, 0, method),
            mg.nanquantile(x, part, 0, method),
            mg.percentile(x, 100 * part, (0, 1), method),
        ],
    )
    for n in (1, 2, 9, 10):
        data = rng.normal(size=(n, 3))
        plain, skipping, percent = f(data)
        expected = np.quantile(data, part, 0, method=method)
        np.testing.assert_allclose(plain, expected, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(skipping, expected, rtol=1e-12, atol=1e-14)
        whole = np.quantile(data, part, method=method)
        np.testing.assert_allclose(percent, whole, rtol=1e-12, atol=1e-14)
        data[rng.random(data.shape) < 0.3] = np.nan
        data[0] = 0.25
        plain, skipping, _ = f(data)
        np.testing.assert_array_equal(np.isnan(plain[0]), np.isnan(data).any(0))
        expected = np.nanquantile(data, part, 0, method=method)
        np.testing.assert_allclose(skipping, expected, rtol=1e-12, atol=1e-14)


def test_median_of_infinities_is_no_nan() -> None:
    np.testing.assert_array_equal(value(mg.median([-np.inf, 1.0, np.inf])), 1.0)
    np.testing.assert_array_equal(value(mg.median([np.inf, 1.0, np.inf, np.inf])), np.inf)
    np.testing.assert_array_equal(value(mg.nanmedian([np.nan, np.nan])), np.nan)


def test_a_quantile_may_be_a_node() -> None:
    x, q = mg.input("x", (5,), "float64"), mg.input("q", (2,), "float64")
    node = mg.quantile(x, q)
    data, part = np.array([3.0, 1.0, 4.0, 1.5, 9.0]), np.array([0.3, 0.9])
    np.testing.assert_allclose(value(node, {x: data, q: part}), np.quantile(data, part))
    mg.check_gradients(lambda a, b: mg.sum(mg.quantile(a, b)), (data, part))


SCANS: dict[str, Callable[..., np.ndarray]] = {
    "cumsum": np.cumsum,
    "cumprod": np.cumprod,
    "cummax": np.maximum.accumulate,
    "cummin": np.minimum.accumulate,
    "cumlogsumexp": np.logaddexp.accumulate,
}


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_are_numpys(name: str, reverse: bool, rng: np.random.Generator) -> None:
    x = mg.input("x", ("n", 3, "m"), "float64")
    scan = getattr(mg, name)
    f = mg.function([x], [scan(x, axis, reverse=reverse) for axis in (0, 1, -1)])
    for n, m in ((0, 2), (1, 1), (4, 5)):
        data = rng.normal(size=(n, 3, m))
        for axis, result in zip((0, 1, 2), f(data), strict=True):
            ordered = np.flip(data, axis) if reverse else data
            expected = SCANS[name](ordered, axis=axis)
            expected = np.flip(expected, axis) if reverse else expected
            np.testing.assert_allclose(result, expected, rtol=1e-13, atol=1e-14)


def test_scans_see_nan_from_the_first_on() -> None:
    data = mg.constant(np.array([1.0, np.nan, 0.5, 3.0]))
    for name in ("cumsum", "cumprod", "cummax", "cummin"):
        result = value(getattr(mg, name)(data))
        np.testing.assert_array_equal(np.isnan(result), [False, True, True, True])


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_earliest_of_equal_extremes_has_the_gradient(name: str, reverse: bool) -> None:
    x = mg.input("x", (5,), "float64")
    data = np.array([2.0, 5.0, 5.0, 1.0, 5.0]) * (1.0 if name == "cummax" else -1.0)
    if reverse:
        data = data[::-1].copy()
    weights = np.array([1.0, 10.0, 100.0, 1000.0, 1e4])
    ordered_weights = weights[::-1].copy() if reverse else weights
    node = getattr(mg, name)(x, reverse=reverse)
    result = value(mg.grad(mg.sum(node * ordered_weights), x), {x: data})
    expected = np.array([1.0, 11110.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(result, expected[::-1] if reverse else expected)


def test_derivatives_of_cumprod_at_zeros(rng: np.random.Generator) -> None:
    x = mg.input("x", (6,), "float64")
    data = rng.normal(size=6)
    data[[1, 4]] = 0.0
    jacobian = value(mg.jacobian(mg.cumprod(x), x), {x: data})
    for k in range(6):
        for i in range(6):
            rest = [data[j] for j in range(k + 1) if j != i]
            assert jacobian[k, i] == pytest.approx(np.prod(rest) if i <= k else 0.0)


@pytest.mark.parametrize("lines", [1, 3, 40])
@pytest.mark.parametrize("reverse", [False, True])
def test_linear_recurrence(lines: int, reverse: bool, rng: np.random.Generator) -> None:
    a, b = (mg.input(name, ("n", lines), "float64") for name in "ab")
    f = mg.function([a, b], mg.linear_recurrence(a, b, 0, reverse))
    for n in (0, 1, 11):
        factors, terms = rng.normal(size=(2, n, lines))
        expected, last = np.empty((n, lines)), np.zeros(lines)
        for i in range(n)[:: -1 if reverse else 1]:
            last = factors[i] * last + terms[i]
            expected[i] = last
        np.testing.assert_allclose(f(factors, terms), expected, rtol=1e-13, atol=1e-14)


def test_a_scan_is_written_where_it_was_planned() -> None:
    x = mg.input("x", (1000,), "float64")
    f = mg.function([x], mg.sum(mg.cumsum(x) * mg.sort(x)))
    data = np.arange(1000.0)
    np.testing.assert_allclose(f(data), np.sum(np.cumsum(data) * data))
    assert all(
        node.op.kernel.into is not None
        for node in f.source_graph.nodes
        if node.op.name in ("cumsum", "sort", "take", "update", "linear_recurrence", "found")
    )


def test_unique_is_numpys(rng: np.random.Generator) -> None:
    x = mg.input("x", ("n",), "float64")
    f = mg.function(
        [x],
        list(
            mg.unique(
                x,
                return_index=True,
                return_inverse=True,
                return_counts=True,
                size="n",
                fill_value=7,
            )
        ),
    )
    for n in (1, 5, 30):
        data = _holed(rng, (n,))
        parts = np.unique(data, return_index=True, return_inverse=True, return_counts=True)
        values, places, inverse, counts = f(data)
        count = len(parts[0])
        np.testing.assert_array_equal(values[:count], parts[0])
        np.testing.assert_array_equal(places[:count], parts[1])
        np.testing.assert_array_equal(inverse, parts[2])
        np.testing.assert_array_equal(counts[:count], parts[3])
        assert (values[count:] == 7).all()
        assert (counts[count:] == 0).all()


def test_sets_of_pairs_are_numpys(rng: np.random.Generator) -> None:
    x, y = mg.input("x", ("n",), "int32"), mg.input("y", ("m",), "int32")
    names = ("union1d", "intersect1d", "setdiff1d", "setxor1d")
    f = mg.function([x, y], [getattr(mg, n)(x, y, size=20, fill_value=-1) for n in names])
    for n, m in ((1, 1), (6, 9), (12, 3)):
        first, second = rng.integers(0, 10, n), rng.integers(0, 10, m)
        for name, result in zip(names, f(first, second), strict=True):
            expected = getattr(np, name)(first, second)
            np.testing.assert_array_equal(result[: len(expected)], expected)
            assert (result[len(expected) :] == -1).all()


def test_histograms_are_numpys(rng: np.random.Generator) -> None:
    x, w = mg.input("x", ("n",), "float64"), mg.input("w", ("n",), "float64")
    edges = np.array([-2.0, -0.5, 0.0, 0.1, 3.0])
    nodes = [
        *mg.histogram(x, 7),
        *mg.histogram(x, edges, weights=w),
        *mg.histogram(x, 4, (-1.0, 1.0), density=True),
    ]
    f = mg.function([x, w], nodes)
    for n in (1, 3, 200):
        data, weights = np.round(rng.normal(size=n), 1), rng.normal(size=n)
        expected = [
            *np.histogram(data, 7),
            *np.histogram(data, edges, weights=weights),
            *np.histogram(data, 4, (-1.0, 1.0), density=True),
        ]
        if n == 200:  # a density of nothing is NaN
            assert np.isfinite(expected[4]).all()
        for i, (result, expected_value) in enumerate(zip(f(data, weights), expected, strict=True)):
            if i == 0:
                # Edges of decimals round either way: as many in all, and none lost.
                assert result.sum() == expected_value.sum() == n
                continue
            np.testing.assert_allclose(result, expected_value, rtol=1e-12, atol=1e-13)


def test_interp_is_numpys(rng: np.random.Generator) -> None:
    x, xp, fp = (
        mg.input(name, (size,), "float64") for name, size in (("x", "k"), ("p", "n"), ("f", "n"))
    )
    f = mg.function([x, xp, fp], [mg.interp(x, xp, fp), mg.interp(x, xp, fp, left=-1.0, right=2.0)])
    for n in (1, 2, 8):
        points, heights = np.sort(rng.normal(size=n)), rng.normal(size=n)
        at = np.concatenate([rng.normal(size=20) * 2, points, [np.nan, np.inf, -np.inf]])
        inner, outer = f(at, points, heights)
        np.testing.assert_allclose(inner, np.interp(at, points, heights), rtol=1e-12, atol=1e-13)
        expected = np.interp(at, points, heights, left=-1.0, right=2.0)
        np.testing.assert_allclose(outer, expected, rtol=1e-12, atol=1e-13)


def test_bincount_leaves_out_what_lies_outside() -> None:
    x, w = mg.input("x", (5,), "int64"), mg.input("w", (5,), "float64")
    counts = mg.bincount(x, w, length=3)
    feeds: dict[Any, Any] = {x: np.array([-1, 0, 2, 2, 3]), w: np.arange(1.0, 6.0)}
    np.testing.assert_array_equal(value(counts, feeds), [2.0, 0.0, 7.0])
    gradient = mg.grad(mg.sum(counts * np.array([1.0, 10.0, 100.0])), w)
    np.testing.assert_array_equal(value(gradient, feeds), [0.0, 1.0, 100.0, 100.0, 0.0])
    with pytest.raises(ShapeError, match="length="):
        mg.bincount(x)


def test_neighbours_of_floats() -> None:
    for dtype in ("float64", "float32"):
        data = np.array([0.0, -0.0, 1.5, -np.inf, np.nan], dtype)
        result = value(mg.nextafter(mg.constant(data), mg.constant(np.array(1.0, dtype))))
        np.testing.assert_array_equal(result, np.nextafter(data, np.array(1.0, dtype)))
    with pytest.raises(mg.DTypeError, match="float16"):
        mg.nextafter(mg.input("x", (2,), "float16"), mg.input("y", (2,), "float16"))


def test_named_extents_of_what_is_made() -> None:
    x = mg.input("x", ("n", 3))
    assert mg.diff(x, axis=0).shape == (dims.maximum(N - 1, 0), 3)
    assert mg.tile(x, (2, 1)).shape == (2 * N, 3)
    assert mg.repeat(x, 2, axis=0).shape == (2 * N, 3)
    assert mg.roll(x, 1, axis=0).shape == (N, 3)
    assert mg.diag(x[:, 0]).shape == (N, N)
    assert mg.tril(x).shape == (N, 3)
    assert mg.sliding_window_view(x, 2, 0).shape == (N - 1, 3, 2)
    assert mg.linspace(0.0, 1.0, "n").shape == (N,)
    assert mg.eye("n").shape == (N, N)
    assert mg.median(x, 0).shape == (3,)
    assert mg.cov(x).shape == (N, N)
    assert [part.shape for part in mg.array_split(x, 2)] == [((N + 1) // 2, 3), (N // 2, 3)]


@pytest.mark.parametrize("n", [2, 5])
def test_values_of_named_extents(n: int, rng: np.random.Generator) -> None:
    x = mg.input("x", ("n", 3), "float64")
    expected: list[tuple[mg.Node, Callable[[np.ndarray], np.ndarray]]] = [
        (mg.diag(x[:, 0], 1), lambda a: np.diag(a[:, 0], 1)),
        (mg.trace(x), np.trace),
        (mg.diagonal(x, -1), lambda a: np.diagonal(a, -1)),
        (mg.roll(x, 2, 0), lambda a: np.roll(a, 2, 0)),
        (mg.rot90(x, 3), lambda a: np.rot90(a, 3)),
        (mg.linspace(0.0, 1.0, "n", dtype="float64"), lambda a: np.linspace(0.0, 1.0, len(a))),
        (mg.cov(x, rowvar=False), lambda a: np.cov(a, rowvar=False)),
        (mg.gradient(x, axis=0), lambda a: np.gradient(a, axis=0)),
        (mg.trapezoid(x, axis=0), lambda a: np.trapezoid(a, axis=0)),
        (mg.array_split(x, 3)[1], lambda a: np.array_split(a, 3)[1]),
        (mg.nanmean(x, 0), lambda a: np.nanmean(a, 0)),
    ]
    data = rng.normal(size=(n, 3))
    results = mg.function([x], [node for node, _ in expected])(data)
    for actual, (_, reference) in zip(results, expected, strict=True):
        np.testing.assert_allclose(actual, reference(data), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("limits", [(2.0, 1.0), (0.0, np.inf), (np.nan, 1.0)])
def test_a_histogram_refuses_a_range_that_is_none(limits: tuple[float, float]) -> None:
    x = mg.input("x", ("n",))
    with pytest.raises(mg.ShapeError, match=r"range=.*\n  expected: finite numbers"):
        mg.histogram(x, 4, limits)
    with pytest.raises(ValueError, match="range"):  # as NumPy does
        np.histogram([0.5], 4, limits)
