"""Convolutions against independent loops and SciPy, on random geometries, by every algorithm."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.signal

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.errors import DTypeError, FeedError, ShapeError
from magmagraph.ops.convolution import winograd

LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
GENERAL = ("direct", "im2col", "fft")
TILES = {"winograd-2x2": 2, "winograd-4x4": 4}


class Case(NamedTuple):
    """One geometry, with channels first."""

    x: np.ndarray
    w: np.ndarray
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int
    last: bool

    @property
    def attrs(self) -> dict[str, Any]:
        return {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
            "layout": LAYOUTS[self.x.ndim - 2][self.last],
        }

    @property
    def arguments(self) -> tuple[np.ndarray, np.ndarray]:
        """The operands in the layout of the case."""
        return images(self.x, self.last), weights(self.w, self.last)


def images(x: np.ndarray, last: bool) -> np.ndarray:
    """Return images with channels first in a layout."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x


def weights(w: np.ndarray, last: bool) -> np.ndarray:
    """Return weights with channels first in a layout."""
    return np.ascontiguousarray(np.moveaxis(w, (0, 1), (-1, -2))) if last else w


def random_case(rng: np.random.Generator, count: int, square: bool = False) -> Case:
    """Return a random geometry; a square one is what Winograd's algorithm can do."""
    groups = int(rng.choice([1, 1, 2, 3]))
    ins, outs = (int(v) for v in rng.integers(1, 6, 2))
    largest = {1: 6, 2: 5, 3: 4}[count]
    window = (3, 3) if square else tuple(int(v) for v in rng.integers(1, largest, count))
    ones = (1,) * count
    stride = ones if square else tuple(int(v) for v in rng.integers(1, 4, count))
    dilation = ones if square else tuple(int(v) for v in rng.integers(1, 4, count))
    padding = tuple((int(a), int(b)) for a, b in rng.integers(0, 4, (count, 2)))
    extents = [
        max(1, d * (k - 1) + 1 - sum(p)) + int(rng.integers(0, 8 if count < 3 else 4))
        for k, d, p in zip(window, dilation, padding, strict=True)
    ]
    batch = int(rng.integers(1, 4))
    return Case(
        rng.standard_normal((batch, groups * ins, *extents)),
        rng.standard_normal((groups * outs, ins, *window)),
        stride,
        padding,
        dilation,
        groups,
        bool(rng.integers(2)),
    )


def correlated(case: Case) -> np.ndarray:
    """Return the convolution in float64, of every pair of channels, by SciPy."""
    x = np.pad(case.x, [(0, 0), (0, 0), *case.padding])
    count = x.ndim - 2
    dilated = np.zeros(
        (*case.w.shape[:2],
         *[d * (k - 1) + 1 for d, k in zip(case.dilation, case.w.shape[2:], strict=True)])
    )  # fmt: skip
    dilated[(..., *[slice(None, None, d) for d in case.dilation])] = case.w
    outs, ins = case.w.shape[0] // case.groups, case.w.shape[1]
    every = tuple(slice(None, None, s) for s in case.stride)
    result = None
    for n, o, c in itertools.product(range(len(x)), range(len(dilated)), range(ins)):
        channel = x[n, o // outs * ins + c]
        value = scipy.signal.correlate(channel, dilated[o, c], mode="valid", method="direct")[every]
        if result is None:
            result = np.zeros((len(x), len(dilated), *value.shape))
        result[n, o] += value
    assert result is not None
    assert result.ndim == count + 2
    return images(result, case.last)


def looped(case: Case) -> np.ndarray:
    """Return the convolution in float64 by its definition, element by element."""
    x, w = case.x, case.w
    extents = [
        (n + sum(p) - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(
            x.shape[2:], case.padding, case.dilation, w.shape[2:], case.stride, strict=True
        )
    ]
    outs, ins = w.shape[0] // case.groups, w.shape[1]
    result = np.zeros((len(x), len(w), *extents))
    for place in np.ndindex(*result.shape):
        n, o, *at = place
        for c, *tap in np.ndindex(*w.shape[1:]):
            position = [
                p * s + k * d - pad[0]
                for p, s, k, d, pad in zip(
                    at, case.stride, tap, case.dilation, case.padding, strict=True
                )
            ]
            if all(0 <= i < size for i, size in zip(position, x.shape[2:], strict=True)):
                result[place] += x[(n, o // outs * ins + c, *position)] * w[(o, c, *tap)]
    return images(result, case.last)


def bound(case: Case, algorithm: str, dtype: np.dtype) -> float:
    """Return how far a result may be from the exact one."""
    terms = case.w[0].size
    scale = float(np.max(np.abs(case.x)) * np.max(np.abs(case.w)))
    if algorithm in TILES:
        eps = float(mg.dtypes.finfo(dtype).eps)
        channels = case.w.shape[1]
        largest = float(np.max(np.abs(case.x))), float(np.max(np.abs(case.w)))
        return winograd.error_bound(TILES[algorithm], channels, *largest, eps)
    return float(tolerance(dtype, "reassoc").absolute * np.sqrt(terms) * scale)


def check(case: Case, algorithm: str, dtype: Any, expected: np.ndarray) -> None:
    """Compare a planned convolution with the expected one."""
    dtype = np.dtype(dtype)
    x, w = (array.astype(dtype) for array in case.arguments)
    left, right = mg.input("x", x.shape, dtype), mg.input("w", w.shape, dtype)
    node = mg.conv(left, right, algorithm=algorithm, **case.attrs)
    assert node.shape == expected.shape
    result = mg.function([left, right], node)(x, w)
    assert result.dtype == dtype
    # The operands' own rounding is that of exact arithmetic on their float64 values.
    rounded = 0.0 if dtype == np.float64 else bound(case, "direct", dtype)
    error = float(np.max(np.abs(result - expected), initial=0.0))
    assert error <= bound(case, algorithm, dtype) + rounded, (algorithm, case.attrs, error)


@pytest.mark.parametrize("number", range(200))
def test_two_dimensions_by_every_algorithm(number: int, rng: np.random.Generator) -> None:
    case = random_case(rng, 2, square=number % 4 == 0)
    expected = correlated(case)
    dtype = np.float32 if number % 2 else np.float64
    for algorithm in ("auto", *GENERAL):
        check(case, algorithm, dtype, expected)
    if number % 4 == 0:
        for algorithm in TILES:
            check(case, algorithm, dtype, expected)
            check(case, algorithm, np.float32, expected)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("number", range(20))
def test_one_and_three_dimensions(count: int, number: int, rng: np.random.Generator) -> None:
    case = random_case(rng, count)
    expected = correlated(case)
    for algorithm in GENERAL:
        check(case, algorithm, np.float32 if number % 2 else np.float64, expected)


@pytest.mark.parametrize("number", range(12))
def test_definition_element_by_element(number: int, rng: np.random.Generator) -> None:
    case = random_case(rng, 1 + number % 3)
    expected = looped(case)
    np.testing.assert_allclose(
        correlated(case), expected, atol=bound(case, "direct", np.dtype(np.float64))
    )
    check(case, "auto", np.float64, expected)


def moved(case: Case, x: np.ndarray, w: np.ndarray) -> Case:
    """Return the case with other operands."""
    return case._replace(x=x, w=w)


@pytest.mark.parametrize("algorithm", ["auto", *GENERAL, *TILES])
@pytest.mark.parametrize("number", range(12))
def test_derivatives_are_adjoint_maps(
    algorithm: str, number: int, rng: np.random.Generator
) -> None:
    """Both are linear, so that inner products with random directions say all of them."""
    count = 2 if algorithm in TILES else 1 + number % 3
    case = random_case(rng, count, square=algorithm in TILES)
    x, w = case.arguments
    left, right = mg.input("x", x.shape, x.dtype), mg.input("w", w.shape, w.dtype)
    node = mg.conv(left, right, algorithm=algorithm, **case.attrs)
    cotangent = rng.standard_normal([int(e) for e in node.shape])
    gradients = mg.grad(mg.sum(node * cotangent), [left, right])
    to_x, to_w = mg.function([left, right], gradients)(x, w)
    other_x = rng.standard_normal(case.x.shape)
    other_w = rng.standard_normal(case.w.shape)
    growth = winograd.growth(TILES[algorithm]) if algorithm in TILES else 1.0
    for gradient, direction, product in (
        (to_x, images(other_x, case.last), correlated(moved(case, other_x, case.w))),
        (to_w, weights(other_w, case.last), correlated(moved(case, case.x, other_w))),
    ):
        terms = growth * float(np.sum(np.abs(gradient * direction))) + 1.0
        assert tolerance(np.dtype(np.float64), "reassoc").close(
            np.sum(gradient * direction), np.sum(product * cotangent), terms
        )


@pytest.mark.parametrize("algorithm", ["auto", *GENERAL])
@pytest.mark.parametrize("number", range(10))
def test_transpose_is_adjoint(algorithm: str, number: int, rng: np.random.Generator) -> None:
    """<conv(x, w), y> == <x, conv_transpose(y, w)>, with what a stride leaves over put back."""
    case = random_case(rng, 1 + number % 3)
    x, w = case.arguments
    forward = mg.conv(x, w, **case.attrs)
    y = rng.standard_normal([int(e) for e in forward.shape])
    left = [
        (n + sum(p) - d * (k - 1) - 1) % s
        for n, p, d, k, s in zip(
            case.x.shape[2:], case.padding, case.dilation, case.w.shape[2:], case.stride,
            strict=True,
        )
    ]  # fmt: skip
    node = mg.conv_transpose(
        mg.constant(y), w, output_padding=tuple(left), algorithm=algorithm, **case.attrs
    )
    assert node.shape == x.shape
    back = mg.function([], node)()
    terms = float(np.sum(np.abs(back * x))) + 1.0
    assert tolerance(np.dtype(np.float64), "reassoc").close(
        np.sum(back * x), np.sum(correlated(case) * y), terms
    )


@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("algorithm", [*GENERAL, *TILES])
def test_channels_last_is_channels_first(
    algorithm: str, compiler: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mg.config, "compiler", compiler)
    case = random_case(rng, 2, square=True)._replace(last=False)
    both = []
    for last in (False, True):
        x, w = case._replace(last=last).arguments
        left, right = mg.input("x", x.shape, x.dtype), mg.input("w", w.shape, w.dtype)
        attrs = case._replace(last=last).attrs
        node = mg.conv(left, right, algorithm=algorithm, **attrs)
        gradients = mg.grad(mg.sum(node**2), [left, right])
        both.append(mg.function([left, right], [node, *gradients])(x, w))
    first, other = both
    growth = winograd.growth(TILES[algorithm]) if algorithm in TILES else 1.0
    close = tolerance(np.dtype(np.float64), "reassoc").close
    for a, b in zip(
        (images(first[0], True), images(first[1], True), weights(first[2], True)), other,
        strict=True,
    ):  # fmt: skip
        assert close(b, a, growth * max(1.0, float(np.max(np.abs(a), initial=0.0))))


@pytest.mark.parametrize("algorithm", [*GENERAL, *TILES])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_empty_batch(algorithm: str, layout: str) -> None:
    """No images give no results, and weights a derivative of zeros."""
    last = layout == "NHWC"
    x, w = images(np.zeros((0, 2, 5, 6)), last), weights(np.ones((3, 2, 3, 3)), last)
    left, right = mg.input("x", x.shape, x.dtype), mg.input("w", w.shape, w.dtype)
    node = mg.conv2d(left, right, layout=layout, algorithm=algorithm)
    results = mg.function([left, right], [node, *mg.grad(mg.sum(node), [left, right])])(x, w)
    assert [array.shape for array in results] == [node.shape, x.shape, w.shape]
    assert not results[2].any()


@pytest.mark.parametrize("algorithm", ["auto", *GENERAL, *TILES])
def test_named_extents(algorithm: str, rng: np.random.Generator) -> None:
    """One plan's formulas serve every batch, height and width."""
    x = mg.input("x", ("batch", 2, "h", "w"), "float64")
    w = mg.input("weights", (3, 2, 3, 3), "float64")
    stride = 1 if algorithm in TILES else 2
    node = mg.conv2d(x, w, stride=stride, padding="same", algorithm=algorithm)
    h, width = mg.Dim("h"), mg.Dim("w")
    assert node.shape == (
        mg.Dim("batch"), 3, mg.dims.ceil_div(h, stride), mg.dims.ceil_div(width, stride)
    )  # fmt: skip
    function = mg.function([x, w], [node, *mg.grad(mg.sum(node), [x, w])])
    kernel = rng.standard_normal((3, 2, 3, 3))
    for shape in ((2, 2, 7, 8), (5, 2, 1, 3), (1, 2, 12, 5)):
        array = rng.standard_normal(shape)
        fixed = mg.input("x", shape, "float64")
        other = mg.conv2d(fixed, w, stride=stride, padding="same", algorithm="direct")
        expected = mg.function([fixed, w], [other, *mg.grad(mg.sum(other), [fixed, w])])
        growth = winograd.growth(TILES[algorithm]) if algorithm in TILES else 1.0
        for a, b in zip(function(array, kernel), expected(array, kernel), strict=True):
            scale = growth * max(1.0, float(np.max(np.abs(b))))
            assert tolerance(np.dtype(np.float64), "reassoc").close(a, b, scale)


def test_named_window_is_refused() -> None:
    with pytest.raises(ShapeError, match="the window has the symbolic extent k"):
        mg.conv1d(mg.input("x", (1, 2, 9)), mg.input("w", (3, 2, "k")))


def test_named_extent_smaller_than_the_window_is_refused_at_the_call() -> None:
    x = mg.input("x", ("batch", 1, "n"))
    function = mg.function([x], mg.conv1d(x, np.ones((1, 1, 4), np.float32)))
    assert function(np.ones((2, 1, 4), np.float32)).shape == (2, 1, 1)
    with pytest.raises(FeedError, match="n - 3 >= 1"):
        function(np.ones((2, 1, 3), np.float32))


@pytest.mark.parametrize("tile", [2, 4])
def test_winograd_matrices_are_exact(tile: int) -> None:
    """The identity of F(tile, 3) holds for every pair of unit vectors, in exact arithmetic."""
    b, g, a = winograd.matrices(tile)
    for i, k in itertools.product(range(tile + 2), range(3)):
        product = a @ ((g[:, k]) * b[:, i])
        expected = [1.0 if i == p + k else 0.0 for p in range(tile)]
        assert tolerance(np.dtype(np.float64), "exact").close(product, expected)


def test_errors_stay_below_their_bounds(rng: np.random.Generator) -> None:
    """In float32, with sums over 64 channels; larger tiles cost accuracy, as is stated."""
    x = rng.uniform(-1, 1, (2, 64, 18, 18)).astype(np.float32)
    w = rng.uniform(-1, 1, (8, 64, 3, 3)).astype(np.float32)
    case = Case(x.astype(float), w.astype(float), (1, 1), ((0, 0),) * 2, (1, 1), 1, False)
    expected = correlated(case)
    left, right = mg.input("x", x.shape), mg.input("w", w.shape)
    eps = float(mg.dtypes.finfo(np.dtype(np.float32)).eps)
    errors = []
    for algorithm, tile in {"direct": 0, "im2col": 0, **TILES}.items():
        result = mg.function([left, right], mg.conv2d(left, right, algorithm=algorithm))(x, w)
        errors.append(float(np.max(np.abs(result - expected))))
        assert errors[-1] <= winograd.error_bound(tile, 64, 1.0, 1.0, eps), algorithm
    assert errors[-1] > errors[-2]
    assert winograd.growth(4) > winograd.growth(2) > 1.0


def test_bad_bias_is_refused() -> None:
    x, w = mg.input("x", (1, 2, 8, 8)), mg.input("w", (3, 2, 3, 3))
    with pytest.raises(ShapeError, match="a bias of 4 numbers for 3 results"):
        mg.conv2d(x, w, bias=np.ones(4, np.float32))
    with pytest.raises(ShapeError, match="a bias of 2 axes"):
        mg.conv2d(x, w, bias=np.ones((3, 1), np.float32))


def test_arguments_that_are_not_ints_are_refused() -> None:
    x, w = mg.input("x", (1, 2, 8, 8)), mg.input("w", (3, 2, 3, 3))
    for name in ("stride", "dilation", "padding"):
        with pytest.raises(DTypeError, match=f"{name}=1.5|{name}=\\(1.5, 1\\)"):
            mg.conv2d(x, w, **{name: (1.5, 1)})


def test_integers_become_floats() -> None:
    result = mg.conv1d(np.arange(6).reshape(1, 1, 6), np.ones((1, 1, 2), int)).eval()
    assert result.dtype == np.dtype(mg.config.float_dtype)
    np.testing.assert_array_equal(result[0, 0], [1, 3, 5, 7, 9])


def test_non_contiguous_feeds(rng: np.random.Generator) -> None:
    array = rng.standard_normal((5, 6, 4, 2)).transpose(3, 2, 1, 0)
    kernel = rng.standard_normal((3, 3, 4, 2)).T
    x, w = mg.input("x", array.shape, "float64"), mg.input("w", kernel.shape, "float64")
    function = mg.function([x, w], mg.conv2d(x, w, padding=1, algorithm="direct"))
    case = Case(array, kernel, (1, 1), ((1, 1), (1, 1)), (1, 1), 1, False)
    assert tolerance(np.dtype(np.float64), "reassoc").close(
        function(array, kernel), correlated(case), 10.0
    )
