"""Functions that saturate, conversions and divisions outside of the range: one rule everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import magmagraph as mg
from magmagraph.dtypes import canonical

WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
COMPILERS = pytest.mark.parametrize("compiler", ["auto", "off"])


@COMPILERS
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_what_saturates_is_exactly_one(
    dtype: str, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mg.config, "compiler", compiler)
    x = mg.input("x", ("n",), dtype)
    outputs = [mg.tanh(x), mg.erf(x), mg.grad(mg.sum(mg.gelu(x, approximate=True)), x)]
    outputs += [1.0 - mg.tanh(x) ** 2, 1.0 - mg.erf(x)]
    points = np.array([20.0, 100.0, 300.0, 3000.0, np.inf]).astype(canonical(dtype))
    results = mg.function([x], outputs)(points)
    for value, expected in zip(results, (1.0, 1.0, 1.0, 0.0, 0.0), strict=True):
        np.testing.assert_array_equal(np.asarray(value).astype(np.float64), expected)


def test_tanh_and_erf_stay_within_one() -> None:
    x = mg.input("x", ("n",))
    points = np.linspace(3.0, 12.0, 100_001, dtype=np.float32)
    for value in mg.function([x], [mg.tanh(x), mg.erf(x)])(points):
        assert np.max(value) == 1.0


@COMPILERS
@pytest.mark.parametrize("source", ["float64", "float32", "float16", "bfloat16"])
def test_floats_out_of_range_become_the_end_of_it(
    source: str, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_conversions(source, compiler, monkeypatch)


def host(value: Any) -> np.ndarray:
    """Return a result in the memory of the host."""
    return np.asarray(value.get() if hasattr(value, "get") else value)


def check_conversions(
    source: str, compiler: str, monkeypatch: pytest.MonkeyPatch, device: str = "cpu"
) -> None:
    monkeypatch.setattr(mg.config, "compiler", compiler)
    x = mg.input("x", ("n",), source)
    with np.errstate(over="ignore"):
        points = np.array(
            [np.nan, np.inf, -np.inf, -1.5, -0.5, 300.75, 1e10, -1e10, 2.0**31, 2.0**63, 2.0**64]
        ).astype(canonical(source))
    outputs = [mg.cast(x, dtype) for dtype in WHOLE]
    outputs += [mg.cast(mg.constant(points), dtype) for dtype in WHOLE]  # folded
    result = mg.function([x], outputs, device=device)(points)
    for dtype, value in zip(WHOLE + WHOLE, result, strict=True):
        ends = np.iinfo(dtype)
        expected = [
            0 if np.isnan(v) else int(min(max(int(np.clip(v, -1e30, 1e30)), ends.min), ends.max))
            for v in points.astype(np.float64)
        ]
        assert host(value).tolist() == expected, dtype


@COMPILERS
@pytest.mark.parametrize("dtype", WHOLE)
def test_shifts_and_divisions_outside_of_the_range_are_numpys(
    dtype: str, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_integers(dtype, compiler, monkeypatch)


def check_integers(
    dtype: str, compiler: str, monkeypatch: pytest.MonkeyPatch, device: str = "cpu"
) -> None:
    monkeypatch.setattr(mg.config, "compiler", compiler)
    ends = np.iinfo(dtype)
    numbers = [ends.min, -65, -8, -1, 0, 1, 5, 7, 8, 9, 16, 31, 32, 63, 64, 65, ends.max]
    numbers = [number for number in numbers if ends.min <= number <= ends.max]
    left, right = (each.ravel() for each in np.meshgrid(*[np.array(numbers, dtype=dtype)] * 2))
    x, y = (mg.input(name, left.shape, dtype) for name in "xy")
    for name in ("left_shift", "right_shift", "floor_divide", "remainder", "fmod"):
        function = getattr(mg, name)
        outputs = [function(x, y), function(mg.constant(left), mg.constant(right))]
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(left, right)
        for value in mg.function([x, y], outputs, device=device)(left, right):
            np.testing.assert_array_equal(host(value), expected, err_msg=name)


@pytest.mark.gpu
def test_integers_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for source in ("float64", "float32", "float16", "bfloat16"):
        check_conversions(source, "auto", monkeypatch, "cuda")
    for dtype in WHOLE:
        check_integers(dtype, "auto", monkeypatch, "cuda")


@pytest.mark.parametrize("x", [-3.0, -1.0, -0.0, 0.0, 2.0, 2.5, -2.5])
def test_modf_has_slope_one(x: float) -> None:
    node = mg.input("x", (1,), "float64")
    fraction, _ = mg.modf(node)
    value, slope = mg.function([node], [fraction, mg.grad(mg.sum(fraction), node)])(np.array([x]))
    assert slope[0] == 1.0
    assert value[0] == np.modf(x)[0]
    assert np.signbit(value[0]) == np.signbit(np.modf(x)[0])


def test_relative_entropy_does_not_overflow_before_its_value() -> None:
    x, y = np.array([1e300, 1e-300, 1e-310]), np.array([1e-20, 1e300, 1.0])
    np.testing.assert_allclose(
        mg.special.rel_entr(x, y).eval(), special.rel_entr(x, y), rtol=1e-14
    )


def test_full_poisson_loss_is_minus_the_logarithm_of_a_probability() -> None:
    rates, counts = np.array([0.5, 1.0, 3.0, 20.0]), np.array([0.0, 1.0, 2.0, 30.0])
    result = mg.poisson_nll(np.log(rates), counts, full=True, reduction="none").eval()
    np.testing.assert_allclose(result, -stats.poisson.logpmf(counts, rates), rtol=1e-12)
    # Stirling's approximation, which PyTorch adds above 1, is less by up to 1 / (12 t).
    above = counts[counts > 1]
    stirling = above * np.log(above) - above + 0.5 * np.log(2 * np.pi * above)
    rest = special.gammaln(above + 1) - stirling
    assert np.all((rest > 0) & (rest < 1 / (12 * above)))


def check_splitting(dtype: str, device: str = "cpu") -> None:
    """Compare frexp, ldexp and nextafter with NumPy at numbers of any size, in all their bits."""
    kind = canonical(dtype)
    unsigned = np.dtype(f"uint{8 * kind.itemsize}")
    rng = np.random.default_rng(5)
    bits = rng.integers(0, np.iinfo(unsigned).max, 4000, dtype=unsigned, endpoint=True)
    bits[:1000] %= 1 << 12  # the least numbers
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]).astype(kind).view(unsigned)
    points = np.concatenate([bits, ends]).view(kind)
    exponents = rng.integers(-400, 400, points.size).astype(np.int32)
    exponents[::7] *= 5
    wide = points if kind.itemsize > 2 else points.astype(np.float64)
    with np.errstate(all="ignore"):
        mantissas, powers = np.frexp(wide)
        expected = [mantissas, np.where(np.isfinite(wide), powers, 0)]
        expected.append(np.ldexp(wide, exponents).astype(kind))
    x, n = mg.input("x", ("n",), dtype), mg.input("n", ("n",), "int32")
    outputs, feeds = [*mg.frexp(x), mg.ldexp(x, n)], [points, exponents]
    if kind.itemsize > 2:
        y = mg.input("y", ("n",), dtype)
        other = rng.permutation(points)
        outputs, feeds = [*outputs, mg.nextafter(x, y)], [*feeds, other]
        with np.errstate(all="ignore"):
            expected.append(np.nextafter(points, other))
    inputs = [x, n] if kind.itemsize == 2 else [x, n, y]
    for actual, numbers in zip(
        mg.function(inputs, outputs, device=device)(*feeds), expected, strict=True
    ):
        result, numbers = host(actual).astype(np.float64), numbers.astype(np.float64)
        np.testing.assert_array_equal(result, numbers)
        some = ~np.isnan(numbers)
        np.testing.assert_array_equal(np.signbit(result[some]), np.signbit(numbers[some]))


@COMPILERS
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_splitting_is_exact(dtype: str, compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mg.config, "compiler", compiler)
    check_splitting(dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_splitting_is_exact_on_the_gpu(dtype: str) -> None:
    check_splitting(dtype, "cuda")
