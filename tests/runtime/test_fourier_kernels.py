"""Fourier transforms and complex arithmetic of the CPU's kernels, against NumPy in double."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.runtime.cpu.fourier import LONGEST, factors_of

pytestmark = pytest.mark.optimized

# Lines that fill vectors and do not, strides, one element, each factor, several axes.
SPECTRA = [
    ((3, 8), (1,)), ((7, 5), (1,)), ((5, 36, 6), (1,)), ((40, 48), (0, 1)), ((15, 2), (0, 1)),
    ((4, 9, 30), (2, 0)), ((2, 250), (1,)), ((5, 1), (1,)), ((512,), (0,)),
]  # fmt: skip
REALS = [((3, 8), 1), ((7, 6), 1), ((5, 10, 6), 1), ((40, 48), 0), ((17, 2), 1), ((33, 100), -1)]


def _close(found: np.ndarray, expected: np.ndarray) -> bool:
    scale = float(np.abs(expected).max())
    table = tolerance(found.dtype, "reassoc")
    return bool(table.close(found, expected.astype(found.dtype), scale=scale))


def _taken(function: mg.Function) -> set[str]:
    return {step.family.name for step in function.plan.steps}


def _complex(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    parts = rng.standard_normal((2, *shape))
    return (parts[0] + 1j * parts[1]).astype(dtype)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(("shape", "axes"), SPECTRA)
def test_spectra(
    dtype: str, shape: tuple[int, ...], axes: tuple[int, ...], rng: np.random.Generator
) -> None:
    x = _complex(rng, shape, dtype)
    node = mg.input("x", shape, dtype)
    made = [
        mg.fft.fftn(node, axes=axes),
        mg.fft.ifftn(node, axes=axes),
        mg.fft.fftn(node, axes=axes, norm="ortho"),
    ]
    function = mg.function([node], made)
    forward, inverse, ortho = function(x)
    assert _taken(function) == {"transform"}
    assert not function.report.fallbacks
    wide = x.astype(complex)
    assert _close(forward, scipy.fft.fftn(wide, axes=axes))
    assert _close(inverse, scipy.fft.ifftn(wide, axes=axes))
    assert _close(ortho, scipy.fft.fftn(wide, axes=axes, norm="ortho"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), REALS)
def test_real_values(
    dtype: str, shape: tuple[int, ...], axis: int, rng: np.random.Generator
) -> None:
    x = rng.standard_normal(shape).astype(dtype)
    node = mg.input("x", shape, dtype)
    function = mg.function([node], mg.fft.rfft(node, axis=axis))
    spectrum = function(x)
    assert not function.report.fallbacks
    assert _close(spectrum, scipy.fft.rfft(x.astype(float), axis=axis))
    # Parts that the spectrum of real values has not are left out, as in NumPy.
    given = _complex(rng, spectrum.shape, spectrum.dtype.name)
    half = mg.input("half", given.shape, given.dtype.name)
    back = mg.function([half], mg.fft.irfft(half, n=shape[axis], axis=axis))
    assert _close(back(given), scipy.fft.irfft(given.astype(complex), n=shape[axis], axis=axis))
    assert not back.report.fallbacks


def test_named_extents(rng: np.random.Generator) -> None:
    node = mg.input("x", ("lines", "n"), "complex64")
    function = mg.function([node], mg.fft.ifft(mg.fft.fft(node)))
    for shape in ((1, 4), (300, 64), (5, 7), (0, 8), (3, 30)):
        x = _complex(rng, shape, "complex64")
        found = function(x)
        assert found.shape == shape
        assert not x.size or _close(found, x)


def test_what_is_left_to_scipy() -> None:
    assert factors_of(LONGEST) is not None
    for shape, reason in (
        ((8, 7), "product of 2, 3 and 5"),
        ((8, 2 * LONGEST), f"at most {LONGEST}"),
        ((1, 1024), "few long lines"),
    ):
        node = mg.input("x", shape, "complex64")
        function = mg.function([node], mg.fft.fft(node))
        x = np.ones(shape, np.complex64)
        assert _close(function(x), np.fft.fft(x))
        assert reason in str(function.report)
    node = mg.input("x", (8, 9))
    function = mg.function([node], mg.fft.rfft(node))
    function(np.ones((8, 9), np.float32))
    assert "9 real values" in str(function.report)


def test_transforms_stay_in_loops(rng: np.random.Generator) -> None:
    x = mg.input("x", (8, 16), "complex64")

    def step(state: mg.Node, _: object) -> tuple[mg.Node, None]:
        return mg.fft.ifft(mg.fft.fft(state) * 0.5) + 1.0, None

    function = mg.function([x], mg.scan(step, x, None, length=5)[0])
    given = _complex(rng, (8, 16), "complex64")
    expected = given.astype(complex)
    for _ in range(5):
        expected = expected * 0.5 + 1.0
    assert _close(function(given), expected)
    assert not function.report.fallbacks


SPECIAL = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1e-15, 1e15])
OPERATIONS = {
    "add": lambda xp, a, b: a + b,
    "subtract": lambda xp, a, b: a - b,
    "multiply": lambda xp, a, b: a * b,
    "divide": lambda xp, a, b: a / b,
    "negative": lambda xp, a, b: -a,
    "conj": lambda xp, a, b: xp.conj(a),
    "absolute": lambda xp, a, b: xp.absolute(a),
    "real": lambda xp, a, b: xp.real(a),
    "imag": lambda xp, a, b: xp.imag(a),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_complex_numbers(name: str, dtype: str, rng: np.random.Generator) -> None:
    grid = np.empty((SPECIAL.size, SPECIAL.size), dtype)
    grid.real, grid.imag = SPECIAL[:, None], SPECIAL
    operands = [(np.repeat(grid.reshape(-1, 1), grid.size, 1), grid.reshape(1, -1))]
    for a, b in (((5, 7), (7,)), ((3, 1, 5), (4, 1)), ((1,), (6,)), ((), (3,)), ((0, 3), (3,))):
        operands.append((_complex(rng, a, dtype), _complex(rng, b, dtype)))
    compute = OPERATIONS[name]
    for a, b in operands:
        nodes = mg.input("a", a.shape, dtype), mg.input("b", b.shape, dtype)
        function = mg.function(list(nodes), compute(mg, *nodes))
        found, expected = np.asarray(function(a, b)), np.asarray(compute(np, a, b))
        assert _taken(function) <= {"complex"}
        assert not function.report.fallbacks
        parts = ("real", "imag") if np.iscomplexobj(expected) else ("real",)
        for part in parts:
            one, other = getattr(found, part), getattr(expected, part)
            np.testing.assert_array_equal(np.isfinite(one), np.isfinite(other))
            there = np.isfinite(other)
            np.testing.assert_array_equal(one[~there], other[~there])
            whole = np.abs(expected)
            size = np.where(np.isfinite(whole), whole, np.abs(other))[there]
            limit = tolerance(np.dtype(one.dtype), "stable").relative
            with np.errstate(over="ignore", invalid="ignore"):
                assert (np.abs(one[there] - other[there]) <= limit * size).all()


def test_complex_numbers_of_two_real_ones(rng: np.random.Generator) -> None:
    a, b = mg.input("a", (3, 4)), mg.input("b", (4,))
    function = mg.function([a, b], [mg.complex(a, b), mg.exp(a) * 1.0j])
    x, y = rng.standard_normal((3, 4)).astype("f"), rng.standard_normal(4).astype("f")
    made, turned = function(x, y)
    np.testing.assert_array_equal(made, x + np.complex64(1j) * y)
    assert _close(turned, np.exp(x.astype(float)) * 1j)
    assert not function.report.fallbacks


def test_absolute_values_do_not_overflow() -> None:
    x = np.array([3e30 + 4e30j, 3e-30 - 4e-30j, 0.0], np.complex64)
    node = mg.input("x", x.shape, "complex64")
    found = mg.function([node], mg.absolute(node))(x)
    assert tolerance(found.dtype, "stable").close(found, np.float32([5e30, 5e-30, 0.0]))
