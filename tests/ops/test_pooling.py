"""Pooling against loops on random geometries: values, ties, NaN, derivatives, layouts."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.errors import DTypeError, ShapeError

LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
MAX = {1: mg.max_pool1d, 2: mg.max_pool2d, 3: mg.max_pool3d}
AVERAGE = {1: mg.avg_pool1d, 2: mg.avg_pool2d, 3: mg.avg_pool3d}


class Case(NamedTuple):
    """One geometry, with channels first."""

    x: np.ndarray
    window: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    last: bool

    @property
    def attrs(self) -> dict[str, Any]:
        return {
            "window": self.window,
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "layout": LAYOUTS[len(self.window)][self.last],
        }

    def windows(self) -> list[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
        """Return the position of every window, and those of its elements inside, in order."""
        extents = [
            (n + sum(p) - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(
                self.x.shape[2:], self.padding, self.dilation, self.window, self.stride,
                strict=True,
            )
        ]  # fmt: skip
        windows = []
        for place in np.ndindex(*extents):
            elements = []
            for tap in np.ndindex(*self.window):
                position = tuple(
                    o * s + k * d - p[0]
                    for o, s, k, d, p in zip(
                        place, self.stride, tap, self.dilation, self.padding, strict=True
                    )
                )
                if all(0 <= i < n for i, n in zip(position, self.x.shape[2:], strict=True)):
                    elements.append(position)
            windows.append((place, elements))
        return windows

    def result(self) -> np.ndarray:
        """Return an array for an element per window."""
        last = self.windows()[-1][0]
        return np.zeros((*self.x.shape[:2], *[i + 1 for i in last]))


def random_case(rng: np.random.Generator, count: int) -> Case:
    window = tuple(int(v) for v in rng.integers(1, 4, count))
    dilation = tuple(int(v) for v in rng.integers(1, 3, count))
    reach = [d * (k - 1) for d, k in zip(dilation, window, strict=True)]
    padding = tuple((int(rng.integers(0, r + 1)), int(rng.integers(0, r + 1))) for r in reach)
    extents = [r + 1 + int(rng.integers(0, 6)) for r in reach]
    shape = (int(rng.integers(1, 3)), int(rng.integers(1, 20)), *extents)
    # Few values: ties are common.
    x = rng.integers(-4, 5, shape).astype(np.float64)
    stride = tuple(int(v) for v in rng.integers(1, 4, count))
    return Case(x, window, stride, padding, dilation, bool(rng.integers(2)))


def laid(x: np.ndarray, last: bool) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x


def planned(node: mg.Node, leaf: mg.Node, value: np.ndarray) -> np.ndarray:
    return np.asarray(mg.function([leaf], node)(value))


@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("number", range(45))
def test_largest_and_its_derivative(
    number: int, compiler: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The derivative goes to the first of the largest elements, in row-major order."""
    monkeypatch.setattr(mg.config, "compiler", compiler)
    case = random_case(rng, 1 + number % 3)
    expected = case.result()
    cotangent = rng.integers(1, 9, expected.shape).astype(np.float64)
    gradient = np.zeros(case.x.shape)
    for n, c in itertools.product(range(case.x.shape[0]), range(case.x.shape[1])):
        for place, elements in case.windows():
            expected[(n, c, *place)] = -np.inf
            if not elements:
                continue
            values = [case.x[(n, c, *at)] for at in elements]
            expected[(n, c, *place)] = max(values)
            first = elements[int(np.argmax(values))]
            gradient[(n, c, *first)] += cotangent[(n, c, *place)]
    dtype = np.float32 if number % 2 else np.float64
    x = laid(case.x, case.last).astype(dtype)
    leaf = mg.input("x", x.shape, dtype)
    node = MAX[len(case.window)](leaf, **case.attrs)
    np.testing.assert_array_equal(planned(node, leaf, x), laid(expected, case.last))
    finite = np.where(np.isfinite(expected), cotangent, 0.0)
    product = mg.where(np.isfinite(laid(expected, case.last)), node, 0.0)
    (slope,) = mg.grad(mg.sum(product * laid(finite, case.last).astype(dtype)), [leaf])
    np.testing.assert_array_equal(planned(slope, leaf, x), laid(gradient, case.last))


@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("number", range(24))
def test_average_and_its_derivative(
    number: int,
    include: bool,
    compiler: str,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mg.config, "compiler", compiler)
    case = random_case(rng, 1 + number % 3)
    if not all(elements for _, elements in case.windows()):
        case = case._replace(padding=((0, 0),) * len(case.window))
    expected = case.result()
    cotangent = rng.uniform(0.5, 1.5, expected.shape)
    gradient = np.zeros(case.x.shape)
    whole = int(np.prod(case.window))
    for place, elements in case.windows():
        count = whole if include else len(elements)
        for at in elements:
            window = (slice(None), slice(None), *at)
            expected[(..., *place)] += case.x[window] / count
            gradient[window] += cotangent[(..., *place)] / count
    x = laid(case.x, case.last)
    leaf = mg.input("x", x.shape, "float64")
    node = AVERAGE[len(case.window)](leaf, count_include_pad=include, **case.attrs)
    (slope,) = mg.grad(mg.sum(node * laid(cotangent, case.last)), [leaf])
    close = tolerance(np.dtype(np.float64), "reassoc").close
    assert close(planned(node, leaf, x), laid(expected, case.last), 4.0)
    assert close(planned(slope, leaf, x), laid(gradient, case.last), 4.0)


@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_and_infinities(
    dtype: str, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN wins wherever it stands, the first of several; minus infinity may be the largest."""
    monkeypatch.setattr(mg.config, "compiler", compiler)
    nan, inf = np.nan, np.inf
    x = np.array([[[1.0, nan, 3.0, nan, -inf, -inf, inf, 2.0]]], dtype)
    leaf = mg.input("x", x.shape, dtype)
    node = mg.max_pool1d(leaf, 2)
    np.testing.assert_array_equal(planned(node, leaf, x)[0, 0], [nan, nan, -inf, inf])
    (slope,) = mg.grad(mg.sum(node), [leaf])
    np.testing.assert_array_equal(planned(slope, leaf, x)[0, 0], [0, 1, 0, 1, 1, 0, 1, 0])
    wide = mg.max_pool1d(leaf, 4)
    (slope,) = mg.grad(mg.sum(wide), [leaf])
    np.testing.assert_array_equal(planned(slope, leaf, x)[0, 0], [0, 1, 0, 0, 0, 0, 1, 0])


def test_named_extents(rng: np.random.Generator) -> None:
    x = mg.input("x", ("batch", 3, "h", "w"), "float64")
    node = mg.max_pool2d(x, 3, stride=2, padding="same")
    average = mg.avg_pool2d(x, 3, stride=2, padding="same", count_include_pad=False)
    h, w = mg.Dim("h"), mg.Dim("w")
    assert node.shape == (mg.Dim("batch"), 3, mg.dims.ceil_div(h, 2), mg.dims.ceil_div(w, 2))
    function = mg.function([x], [node, average, *mg.grad(mg.sum(node * average), [x])])
    for shape in ((2, 3, 7, 8), (1, 3, 2, 5), (4, 3, 1, 1)):
        array = rng.standard_normal(shape)
        fixed = mg.input("x", shape, "float64")
        a = mg.max_pool2d(fixed, 3, stride=2, padding="same")
        b = mg.avg_pool2d(fixed, 3, stride=2, padding="same", count_include_pad=False)
        expected = mg.function([fixed], [a, b, *mg.grad(mg.sum(a * b), [fixed])])(array)
        for result, expected_value in zip(function(array), expected, strict=True):
            assert tolerance(np.dtype(np.float64), "reassoc").close(result, expected_value, 4.0)


def test_global_pooling_of_named_extents() -> None:
    x = mg.input("x", ("batch", "h", "w", 2))
    node = mg.global_avg_pool(x, layout="NHWC")
    assert node.shape == (mg.Dim("batch"), 2)
    array = np.arange(24, dtype=np.float32).reshape(2, 2, 3, 2)
    results = mg.function([x], [node, mg.global_max_pool(x, layout="NHWC")])(array)
    np.testing.assert_array_equal(results[0], array.mean((1, 2)))
    np.testing.assert_array_equal(results[1], array.max((1, 2)))


def test_parts_of_a_named_extent_are_refused() -> None:
    with pytest.raises(ShapeError, match="2 parts of the symbolic extent h"):
        mg.adaptive_avg_pool(mg.input("x", (1, 2, "h", 4)), 2)
    assert mg.adaptive_avg_pool(mg.input("x", (1, 2, "h", 4)), (1, 2)).shape == (1, 2, 1, 2)


def test_empty_batch() -> None:
    x = mg.input("x", ("batch", 2, 6, 6))
    node = mg.max_pool2d(x, 2)
    function = mg.function([x], [node, *mg.grad(mg.sum(node), [x])])
    results = function(np.zeros((0, 2, 6, 6), np.float32))
    assert [array.shape for array in results] == [(0, 2, 3, 3), (0, 2, 6, 6)]


def test_arguments_that_are_not_ints_are_refused() -> None:
    with pytest.raises(DTypeError, match="window=2.0"):
        mg.max_pool2d(mg.input("x", (1, 2, 4, 4)), 2.0)


def test_kernels_are_compiled() -> None:
    """Values, derivative and its derivative run without NumPy."""
    x = mg.input("x", (2, 3, 8, 8))
    node = mg.max_pool2d(x, 2) * 1.5
    (first,) = mg.grad(mg.sum(node**2), [x])
    (second,) = mg.grad(mg.sum(first**2), [x])
    function = mg.function([x], [node, second])
    function(np.ones((2, 3, 8, 8), np.float32))
    kernels = {step.kernel for step in function.plan.steps}
    assert "pooling" in kernels
    assert "array" not in kernels


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [(2, 2), (7, 6), (14, 15), (28, 28), (33, 17)])
def test_windows_of_two_that_tile_an_image(
    dtype: str, size: tuple[int, int], rng: np.random.Generator
) -> None:
    """The kernel without a list of taps: ties, NaN of either sign, infinities, rows left over."""
    x = mg.var("x", shape=(2, 3, *size), dtype=dtype)
    pooled = mg.max_pool2d(x, 2)
    g = mg.var("g", shape=pooled.shape, dtype=dtype)
    f = mg.function([x, g], [pooled, mg.grad(mg.sum(pooled * g), x)])
    value = rng.integers(-3, 3, (2, 3, *size)).astype(dtype)
    value[value == 0] = -0.0
    for special in (np.nan, -np.nan, -np.inf):
        value[rng.random(value.shape) < 0.1] = special
    rows, columns = size[0] // 2, size[1] // 2
    cotangent = rng.standard_normal((2, 3, rows, columns)).astype(dtype)
    windows = value[:, :, : 2 * rows, : 2 * columns].reshape(2, 3, rows, 2, columns, 2)
    taps = windows.transpose(0, 1, 2, 4, 3, 5).reshape(2, 3, rows, columns, 4)
    scattered = np.where(np.arange(4) == taps.argmax(axis=-1)[..., None], cotangent[..., None], 0)
    expected = np.zeros_like(value)
    expected[:, :, : 2 * rows, : 2 * columns] = (
        scattered.reshape(2, 3, rows, columns, 2, 2).transpose(0, 1, 2, 4, 3, 5)
    ).reshape(2, 3, 2 * rows, 2 * columns)
    maxima, gradient = f(value, cotangent)
    np.testing.assert_array_equal(maxima, taps.max(axis=-1))
    np.testing.assert_array_equal(gradient, expected)
