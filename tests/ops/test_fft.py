"""Fourier transforms, convolution and correlation beyond what the table's samples say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.signal

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.text.reading import load
from magmagraph.text.writing import dump

LINES = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
PLANES = ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
REAL = {"rfft", "ihfft", "rfft2", "rfftn"}
NORMS = (None, "backward", "ortho", "forward")


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return numbers between -1 and 1, in both parts where they are complex."""
    values = rng.uniform(-1.0, 1.0, shape)
    if dtype.startswith("complex"):
        values = values + 1j * rng.uniform(-1.0, 1.0, shape)
    return values.astype(dtype)


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    """Compare by the tolerance table's row for sums in another order."""
    assert actual.shape == expected.shape
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    assert tolerance(actual.dtype, "reassoc").close(actual, expected, scale)  # type: ignore[arg-type]


def dtype_of(rng: np.random.Generator, name: str) -> str:
    """Return a dtype that a transform takes."""
    choices = ["float32", "float64"]
    if name not in REAL:
        choices += ["complex64", "complex128"]
    return str(rng.choice(choices))


# Transforms against SciPy's.


@pytest.mark.parametrize("name", LINES)
def test_lines_are_scipys(name: str, rng: np.random.Generator) -> None:
    for _ in range(20):
        shape = tuple(int(n) for n in rng.integers(2, 9, int(rng.integers(1, 4))))
        axis = int(rng.integers(-len(shape), len(shape)))
        n = None if rng.uniform() < 0.4 else int(rng.integers(1, 12))
        norm = NORMS[int(rng.integers(4))]
        dtype = dtype_of(rng, name)
        array = draw(rng, shape, dtype)
        x = mg.input("x", shape, dtype)
        function = mg.function([x], getattr(mg.fft, name)(x, n=n, axis=axis, norm=norm))
        expected = getattr(scipy.fft, name)(array, n=n, axis=axis, norm=norm)
        result = function(array)
        assert result.dtype == expected.dtype, "32 bits stay 32 bits"
        assert_close(result, expected)


@pytest.mark.parametrize("name", PLANES)
def test_planes_are_scipys(name: str, rng: np.random.Generator) -> None:
    for _ in range(15):
        several = name.endswith("n")
        shape = tuple(int(n) for n in rng.integers(2, 7, int(rng.integers(2, 4))))
        count = int(rng.integers(1, len(shape) + 1)) if several else 2
        axes = tuple(int(a) for a in rng.permutation(len(shape))[:count])
        s = None if rng.uniform() < 0.4 else tuple(int(n) for n in rng.integers(1, 8, count))
        norm = NORMS[int(rng.integers(4))]
        dtype = dtype_of(rng, name)
        array = draw(rng, shape, dtype)
        x = mg.input("x", shape, dtype)
        function = mg.function([x], getattr(mg.fft, name)(x, s=s, axes=axes, norm=norm))
        expected = getattr(scipy.fft, name)(array, s=s, axes=axes, norm=norm)
        result = function(array)
        assert result.dtype == expected.dtype
        assert_close(result, expected)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_inverses_give_back_what_was_transformed(
    n: int, norm: str, rng: np.random.Generator
) -> None:
    z, x = draw(rng, (2, n), "complex128"), draw(rng, (2, n), "float64")
    fft = mg.fft
    assert_close(fft.ifft(fft.fft(z, norm=norm), norm=norm).eval(), z)
    assert_close(fft.irfft(fft.rfft(x, norm=norm), n=n, norm=norm).eval(), x)
    assert_close(fft.hfft(fft.ihfft(x, norm=norm), n=n, norm=norm).eval(), x)
    assert_close(fft.ifftn(fft.fftn(z, norm=norm), norm=norm).eval(), z)
    assert_close(fft.irfftn(fft.rfftn(x, norm=norm), s=x.shape, norm=norm).eval(), x)


def test_real_operands_and_whole_numbers_are_converted() -> None:
    assert mg.fft.fft([1, 2, 3]).dtype == np.complex64
    assert mg.fft.fft(mg.input("x", (3,), "float64")).dtype == np.complex128
    assert mg.fft.irfft(mg.input("x", (3,), "float32")).dtype == np.float32
    assert mg.fft.fftn(mg.input("x", (), "float32")).dtype == np.complex64


def test_feeds_that_are_not_contiguous(rng: np.random.Generator) -> None:
    array = draw(rng, (6, 8), "complex128")
    x = mg.input("x", ("n", "m"), "complex128")
    function = mg.function([x], mg.fft.fft(x, axis=0))
    for view in (array.T, array[::2, ::-1], array[:, 1::3]):
        assert_close(function(view), np.fft.fft(view, axis=0))


def test_values_that_are_not_finite_fill_their_line() -> None:
    array = np.array([[1.0, np.nan, 2.0], [1.0, 2.0, 3.0]])
    results = mg.fft.rfft(array).eval()
    assert np.isnan(results[0]).all()
    assert np.isfinite(results[1]).all()


# Symbolic extents.


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_named_extents_have_exact_shapes(n: int, rng: np.random.Generator) -> None:
    time = mg.Dim("time")
    x = mg.input("x", (2, time), "float64")
    spectrum = mg.fft.rfft(x)
    assert spectrum.shape == (2, time // 2 + 1)
    again = mg.fft.irfft(spectrum, n=time)
    assert again.shape == (2, time)
    longer = mg.fft.fft(x, n=time + 3)
    assert longer.shape == (2, time + 3)
    energy = mg.sum(mg.square(mg.absolute(spectrum)))
    parts = [again, longer, mg.grad(energy, x), mg.fft.fftfreq(time, 0.5), mg.fft.fftshift(x)]
    array = draw(rng, (2, n), "float64")
    results = mg.function([x], parts)(array)
    assert_close(results[0], array)
    assert_close(results[1], np.fft.fft(array, n=n + 3))
    assert_close(results[2], _energy_slope(array))
    assert_close(results[3], np.fft.fftfreq(n, 0.5).astype(np.float32))
    assert_close(results[4], np.fft.fftshift(array))


def _energy_slope(x: np.ndarray) -> np.ndarray:
    """Return the gradient of the energy of half a spectrum: by Parseval, all but for its ends."""
    n = x.shape[-1]
    count = n // 2 + 1
    turn = np.exp(-2j * np.pi * np.outer(np.arange(count), np.arange(n)) / n)
    slope: np.ndarray = 2.0 * ((x @ turn.T) @ turn.conj()).real
    return slope


def test_an_empty_line_is_refused_at_the_call() -> None:
    x = mg.input("x", ("n",), "float64")
    function = mg.function([x], mg.fft.rfft(x))
    with pytest.raises(mg.FeedError, match="needs n >= 1, but n is 0"):
        function(np.zeros(0))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda x: mg.fft.fft(x, n=8), mg.ShapeError, "which is larger is known only at the call"),
        (lambda x: mg.fft.fft(x, axis=2), mg.ShapeError, "axis=2 is out of range for 2 axes"),
        (lambda x: mg.fft.fft(x, n=-1), mg.ShapeError, "fft: n is -1"),
        (lambda x: mg.fft.fftn(x, axes=(0, -2)), mg.ShapeError, "names axis 0 twice"),
        (lambda x: mg.fft.fftn(x, s=(2, 2, 2)), mg.ShapeError, "for an operand of 2 axes"),
        (lambda x: mg.fft.rfftn(x, axes=()), mg.ShapeError, "no axis is transformed"),
        (lambda x: mg.fft.rfft(mg.fft.fft(x)), mg.DTypeError, "try: mg.fft.fft"),
        (lambda x: mg.fft.fft(mg.cast(x, "float16")), mg.DTypeError, "try: mg.cast"),
        (lambda x: mg.fft.fft(x, norm="half"), mg.ShapeError, "'backward', 'ortho' or 'forward'"),
        (lambda x: mg.fft.fftfreq(0), mg.ShapeError, "n is 0"),
    ],
)
def test_wrong_use_is_refused_when_the_graph_is_built(
    make: Callable[[mg.Node], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        make(mg.input("x", (3, "time"), "float32"))


def test_texts_and_archives_hold_transforms(tmp_path: Path, rng: np.random.Generator) -> None:
    time = mg.Dim("time")
    x, v = mg.input("x", ("n", time), "float64"), mg.input("v", ("m",), "float64")
    smooth = mg.fft.irfft(mg.fft.rfft(x) * 2.0, n=time)
    parts = [smooth, mg.fft.fftn(x, s=(-1, time + 1)), mg.convolve(x[0], v, "same", method="auto")]
    function = mg.function([x, v], parts)
    text = dump(function.graph)
    assert dump(load(text)) == text
    arrays = draw(rng, (3, 7), "float64"), draw(rng, (4,), "float64")
    all_expected = function(*arrays)
    function.save(tmp_path / "f.mg")
    for result, expected in zip(mg.load(tmp_path / "f.mg")(*arrays), all_expected, strict=True):
        assert np.array_equal(result, expected)


# Gradients.


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("n", [1, 4, 5])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_gradients_at_odd_and_even_lengths(
    name: str, n: int, norm: str, rng: np.random.Generator
) -> None:
    def power(x: mg.Node) -> mg.Node:
        spectrum = getattr(mg.fft, name)(x, n=n, norm=norm)
        return mg.real(spectrum) ** 3 + mg.imag(spectrum) * 2.0

    dtype = "float64" if name in REAL else "complex128"
    assert len(mg.check_gradients(power, draw(rng, (2, 4), dtype)).targets) == 1


def test_gradients_are_transforms() -> None:
    """The cotangent takes one transform: no loop, and no matrix of the transform."""
    x = mg.input("x", (64,), "float64")
    loss = mg.sum(mg.absolute(mg.fft.rfft(x)))
    for _ in range(2):
        slope = mg.grad(loss, x)
        loss = mg.sum(slope * slope)
    names = [node.op.name for node in mg.function([x], loss).graph.nodes]
    assert sum(name.startswith("fft_") for name in names) <= 6
    assert not any(name == "gemm" for name in names)


def test_transforms_are_mapped(rng: np.random.Generator) -> None:
    x = mg.input("x", (3, 4, 5), "complex128")
    mapped = mg.vmap(lambda row: mg.fft.fftn(row, axes=(0,)) + mg.fft.ifft(row))(x)
    array = draw(rng, (3, 4, 5), "complex128")
    assert_close(
        mg.function([x], mapped)(array), np.fft.fft(array, axis=1) + np.fft.ifft(array, axis=2)
    )


# Convolution and correlation.


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("method", ["direct", "fft", "auto"])
def test_convolve_and_correlate_are_numpys(
    mode: str, method: str, rng: np.random.Generator
) -> None:
    for _ in range(25):
        n, m = (int(k) for k in rng.integers(1, 12, 2))
        dtype = str(rng.choice(["float32", "float64", "complex64", "complex128"]))
        a, v = draw(rng, (n,), dtype), draw(rng, (m,), dtype)
        left, right = mg.input("a", (n,), dtype), mg.input("v", (m,), dtype)
        for ours, theirs in ((mg.convolve, np.convolve), (mg.correlate, np.correlate)):
            function = mg.function([left, right], ours(left, right, mode, method))
            result = function(a, v)
            assert result.dtype == np.dtype(dtype)
            assert_close(result, theirs(a, v, mode))


@pytest.mark.parametrize("method", ["direct", "fft"])
@pytest.mark.parametrize("mode", ["full", "valid"])
def test_signals_of_several_axes_are_scipys(
    mode: str, method: str, rng: np.random.Generator
) -> None:
    for ndim in (2, 3):
        a, v = draw(rng, (6, 5, 4)[:ndim], "complex128"), draw(rng, (3, 2, 4)[:ndim], "complex128")
        for ours, theirs in (
            (mg.convolve, scipy.signal.convolve), (mg.correlate, scipy.signal.correlate)
        ):
            result = ours(mg.constant(a), mg.constant(v), mode, method).eval()
            assert_close(result, theirs(a, v, mode, "direct"))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(("n", "m"), [(7, 3), (6, 4), (5, 5)])
def test_named_signals(mode: str, n: int, m: int, rng: np.random.Generator) -> None:
    a, v = mg.input("a", ("n",), "float64"), mg.input("v", ("m",), "float64")
    parts = [mg.convolve(a, v, mode), mg.correlate(a, v, mode)]
    if mode == "full":
        assert parts[0].shape == (mg.Dim("n") + mg.Dim("m") - 1,)
    signals = draw(rng, (n,), "float64"), draw(rng, (m,), "float64")
    results = mg.function([a, v], parts)(*signals)
    assert_close(results[0], np.convolve(*signals, mode))
    assert_close(results[1], np.correlate(*signals, mode))


def test_a_shorter_first_signal_is_refused_at_the_call() -> None:
    a, v = mg.input("a", ("n",), "float64"), mg.input("v", (4,), "float64")
    function = mg.function([a, v], mg.convolve(a, v, "valid"))
    with pytest.raises(mg.FeedError, match="needs n >= 4, but n is 2"):
        function(np.ones(2), np.ones(4))


def test_the_way_by_spectra_keeps_digits(rng: np.random.Generator) -> None:
    """Its rounding is relative to the largest elements, some units of the last place of them."""
    a, v = draw(rng, (4000,), "float32"), draw(rng, (700,), "float32")
    exact = np.convolve(a.astype(np.float64), v.astype(np.float64))
    result = mg.convolve(mg.constant(a), mg.constant(v), method="fft").eval()
    assert result.dtype == np.float32
    assert np.abs(result - exact).max() <= 64 * 2.0**-24 * np.abs(exact).max()


@pytest.mark.parametrize("method", ["direct", "fft"])
@pytest.mark.parametrize("function", [mg.convolve, mg.correlate])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_gradients_of_both_signals(
    function: Callable[..., mg.Node], mode: str, method: str, rng: np.random.Generator
) -> None:
    point = draw(rng, (5,), "complex128"), draw(rng, (3,), "complex128")
    report = mg.check_gradients(lambda a, v: mg.square(function(a, v, mode, method)), point)
    assert len(report.targets) == 2


@pytest.mark.parametrize(
    ("function", "shape", "dtype", "work"),
    [
        (mg.fft.fft, (16,), "complex64", 320),  # 5 n log2(n)
        (mg.fft.fft, (3, 12), "complex64", 5 * 36 * 4),  # of the next power of two's logarithm
        (mg.fft.fft2, (4, 8), "complex64", 5 * 32 * 5),
        (mg.fft.rfft, (16,), "float32", 160),
        (mg.fft.irfft, (9,), "complex64", 160),
        (mg.fft.fft, (1,), "complex64", 0),
    ],
)
def test_work_of_transforms(
    function: Callable[..., mg.Node], shape: tuple[int, ...], dtype: str, work: int
) -> None:
    x = mg.input("x", shape, dtype)
    (step,) = [s for s in mg.function([x], function(x)).plan.steps if "fft" in s.node.op.name]
    assert step.flops == work
