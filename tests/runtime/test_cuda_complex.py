"""Generated CUDA kernels of complex numbers, run on the CPU, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_emulator import available, run_region
from planned import options_of
from regions import SIZES, B, N, make_body

import magmagraph as mg
from magmagraph.ir.graph import Trace, freeze
from magmagraph.ir.interpret import evaluate
from magmagraph.passes import pipeline

DTYPES = ("complex64", "complex128")
needs_emulator = pytest.mark.skipif(not available(), reason="needs g++ on x86-64")


def arithmetic(z: Any, w: Any, r: Any) -> list[Any]:
    """Return what kernels compute by formulas."""
    made = [z + w, z - w, z * w, z / w, -z, mg.conj(z), mg.real(z), mg.imag(z)]
    return [*made, mg.complex(r, mg.imag(w)), mg.cast(r, z.dtype) * z]


def others(z: Any, w: Any, r: Any) -> list[Any]:
    tests = [mg.isnan(z), mg.isinf(z), mg.isfinite(z), mg.equal(z, w), mg.not_equal(z, w)]
    values = [mg.absolute(z), mg.angle(z), mg.exp(z), mg.sigmoid(z), 0.5 - 2.0j * z, z / 3.0]
    return [*tests, *values, mg.where(r > 0, z, 1.5j), mg.cast(z, "complex128"), mg.cast(z, "bool")]


def extreme(dtype: str) -> np.ndarray:
    """Return numbers with all pairs of these parts."""
    large = 90.0 if dtype == "complex64" else 710.0  # whose exponential overflows
    highest = np.finfo(dtype).max
    parts = np.array([0.0, -0.0, 1.0, -2.5, large, np.inf, -np.inf, np.nan, highest, 1e-30])
    made = np.empty((parts.size, parts.size), dtype)
    made.real, made.imag = parts, parts[:, None]
    return made.reshape(-1)


def run(
    build: Callable[..., Any], specs: list[Any], arrays: list[np.ndarray], sizes: Any
) -> tuple[list[np.ndarray], Any]:
    """Return what the kernels of a region make, and what its array expressions do."""
    body = make_body(specs, build)
    made = run_region(body, arrays, sizes)
    assert made is not None
    with np.errstate(all="ignore"):
        values = evaluate(body, dict(zip(body.inputs, arrays, strict=True)), sizes)
    return made, [values[output] for output in body.outputs]


def same(found: np.ndarray, wanted: Any, tolerance: float, what: str) -> None:
    """Compare parts, so that infinite and NaN parts count each by itself."""
    wanted = np.asarray(wanted)
    assert found.dtype == wanted.dtype, what
    pairs = [(found, wanted)]
    if found.dtype.kind == "c":
        pairs = [(found.real, wanted.real), (found.imag, wanted.imag)]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, tolerance, tolerance, err_msg=what)


@needs_emulator
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_those_of_numpy(dtype: str, rng: np.random.Generator) -> None:
    part = "float32" if dtype == "complex64" else "float64"
    tolerance = 2e-6 if dtype == "complex64" else 4e-15
    shape = (SIZES["B"], SIZES["N"])
    values = [rng.standard_normal(shape) + 1j * rng.standard_normal(shape) for _ in range(2)]
    arrays = [*(v.astype(dtype) for v in values), rng.standard_normal(shape).astype(part)]
    specs = [((B, N), dtype), ((B, N), dtype), ((B, N), part)]
    made, wanted = run(lambda *o: arithmetic(*o) + others(*o), specs, arrays, SIZES)
    for i, (one, other) in enumerate(zip(made, wanted, strict=True)):
        same(one, other, tolerance, f"result {i}")


def by_formulas(z: np.ndarray, w: np.ndarray, r: np.ndarray) -> list[tuple[Any, Any]]:
    """Return the parts of the results of `arithmetic`: products in parts, quotients by Smith."""
    a, b, c, d = z.real, z.imag, w.real, w.imag
    first, none = np.abs(c) >= np.abs(d), (c == 0) & (d == 0)
    large, small = np.where(first, c, d), np.where(first, d, c)
    ratio = small / large
    scale = 1 / (large + small * ratio)
    real = (np.where(first, a, b) + np.where(first, b, a) * ratio) * scale
    imaginary = np.where(first, b - a * ratio, b * ratio - a) * scale
    quotient = np.where(none, a / np.abs(c), real), np.where(none, b / np.abs(c), imaginary)
    zero = np.zeros_like(r)
    return [
        (a + c, b + d), (a - c, b - d), (a * c - b * d, a * d + b * c), quotient, (-a, -b),
        (a, -b), (a, zero), (b, zero), (r, d), (r * a - zero * b, r * b + zero * a),
    ]  # fmt: skip


@needs_emulator
@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_values_follow_the_formulas(dtype: str) -> None:
    part = "float32" if dtype == "complex64" else "float64"
    once = extreme(dtype)
    z, w = (pair.reshape(-1).copy() for pair in np.meshgrid(once, once))
    r = w.real.copy()
    body = make_body([((N,), dtype), ((N,), dtype), ((N,), part)], arithmetic)
    made = run_region(body, [z, w, r], {"N": z.size})
    assert made is not None
    with np.errstate(all="ignore"):
        wanted = by_formulas(z, w, r)
    for i, (one, (real, imaginary)) in enumerate(zip(made, wanted, strict=True)):
        np.testing.assert_array_equal(one.real, real, f"result {i}")
        np.testing.assert_array_equal(one.imag, imaginary, f"result {i}")
        np.testing.assert_array_equal(np.signbit(one.real[real == 0]), np.signbit(real[real == 0]))


@needs_emulator
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_extreme_values_are_those_of_numpy(dtype: str) -> None:
    z = extreme(dtype)
    z = z[np.abs(z.imag) != np.finfo(dtype).max]  # whose sine is another with every library

    def build(z: Any) -> list[Any]:
        tests = [mg.isnan(z), mg.isinf(z), mg.isfinite(z), mg.equal(z, z), mg.cast(z, "bool")]
        return [*tests, mg.absolute(z), mg.angle(z), mg.exp(z)]

    made, wanted = run(build, [((N,), dtype)], [z], {"N": z.size})
    for i, (one, other) in enumerate(zip(made, wanted, strict=True)):
        same(one, other, 2e-5 if dtype == "complex64" else 1e-12, f"result {i}")


def steps_of(inputs: list[Any], outputs: list[Any], device: str = "cuda:0") -> list[str]:
    plan, _ = pipeline.run(freeze(inputs, outputs), Trace(), options=options_of(device))
    return [step.family.name for step in plan.steps]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_filter_is_transforms_and_regions(dtype: str) -> None:
    x = mg.input("x", (8, 16), dtype)
    filtered = mg.real(mg.fft.ifft2(mg.fft.fft2(x) * 0.5))
    assert steps_of([x], [filtered]) == ["transform", "fused", "transform", "fused"]
    assert "fused" not in steps_of([x], [filtered], "cpu")


def test_what_has_no_function_in_generated_kernels_stays_an_array_step() -> None:
    z = mg.input("z", (8, 16), "complex64")
    steps = steps_of([z], [mg.arcsin(z * 2.0) + 1.0])
    assert steps == ["fused", "array", "fused"]
