"""Generated CUDA kernels of complex numbers, run on the CPU, against NumPy."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_emulator import available, run_region
from planned import options_of
from regions import SIZES, B, N, make_body

import magmagraph as mg
from magmagraph.codegen.cuda.prelude import complete
from magmagraph.codegen.functions.complex_numbers import COMPLEX_TYPES
from magmagraph.codegen.functions.scalar import HELPERS
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
    powers = [mg.power(z, w), mg.power(z, -3.0), mg.power(z, 5.0), mg.power(z, 0.5), mg.square(z)]
    casts = [mg.where(r > 0, z, 1.5j), mg.cast(z, "complex128"), mg.cast(z, "bool")]
    return [*tests, *values, *powers, *casts]


FUNCTIONS = (
    "log", "log2", "log10", "sqrt", "exp", "sinh", "cosh", "tanh", "sin", "cos", "tan",
)  # fmt: skip


def functions(z: Any) -> list[Any]:
    return [getattr(mg, name)(z) for name in FUNCTIONS]


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
    tolerance = 4e-6 if dtype == "complex64" else 8e-15
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
def test_functions_are_off_by_some_units_of_their_size(
    dtype: str, rng: np.random.Generator
) -> None:
    turns = np.exp(1j * rng.uniform(-3.1, 3.1, 400))
    sizes = np.concatenate([rng.uniform(0.01, 3, 200), 1 + 1e-3 * rng.standard_normal(200)])
    ends = np.finfo(dtype)
    far = [turns * size for size in (sizes, 10 * sizes, ends.max / 2, 4 * ends.tiny, 1e-6)]
    z = np.concatenate(far).astype(dtype)
    body = make_body([((N,), dtype)], lambda z: [*functions(z), mg.absolute(z), mg.angle(z)])
    made = run_region(body, [z], {"N": z.size})
    assert made is not None
    for name, one in zip((*FUNCTIONS, "absolute", "angle"), made, strict=True):
        with np.errstate(all="ignore"):
            wanted = getattr(np, name)(z.astype(np.clongdouble))
            kept = np.abs(wanted) < ends.max / 2
            units = np.abs(one - wanted) / np.maximum(np.abs(wanted), ends.tiny) / ends.eps
        assert kept.sum() > 1000, name
        assert units[kept].max() < 4, name


@needs_emulator
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_logarithm_of_a_size_near_1_keeps_its_digits(
    dtype: str, rng: np.random.Generator
) -> None:
    turns = np.exp(1j * rng.uniform(-3.1, 3.1, 1000)) * (1 + 1e-4 * rng.standard_normal(1000))
    z = turns.astype(dtype)
    made = run_region(make_body([((N,), dtype)], lambda z: [mg.log(z)]), [z], {"N": z.size})
    assert made is not None
    x, y = z.real.astype(np.longdouble), z.imag.astype(np.longdouble)
    wanted = np.log1p((x - 1) * (x + 1) + y * y) / 2
    # That itself has 64 digits of sums near 1.
    least = np.finfo(np.longdouble).eps / np.finfo(dtype).eps
    close = np.abs(made[0].real - wanted) <= np.finfo(dtype).eps * (4 * np.abs(wanted) + least)
    assert close.all()


@needs_emulator
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_extreme_values_are_those_of_numpy(dtype: str) -> None:
    z = extreme(dtype)
    z = z[np.abs(z.imag) != np.finfo(dtype).max]  # whose sine is another with every library
    z = z[np.abs(z.real) != np.finfo(dtype).max]

    def build(z: Any) -> list[Any]:
        tests = [mg.isnan(z), mg.isinf(z), mg.isfinite(z), mg.equal(z, z), mg.cast(z, "bool")]
        return [*tests, mg.absolute(z), mg.angle(z), *functions(z)]

    made, wanted = run(build, [((N,), dtype)], [z], {"N": z.size})
    for i, (one, other) in enumerate(zip(made, map(np.array, wanted), strict=True)):
        if one.dtype.kind == "c":  # Annex G leaves the sign of an infinity beside NaN open
            for value in (one, other):
                for far, none in ((value.real, value.imag), (value.imag, value.real)):
                    far[np.isinf(far) & np.isnan(none)] = np.inf
        same(one, other, 2e-5 if dtype == "complex64" else 1e-12, f"result {i}")


@needs_emulator
@pytest.mark.parametrize("dtype", DTYPES)
def test_quotients_of_large_and_tiny_parts_are_those_of_numpy(
    dtype: str, rng: np.random.Generator
) -> None:
    exponent = 37 if dtype == "complex64" else 306
    shape = (4, 200)
    scales = 10.0 ** np.array([[exponent], [-exponent], [exponent], [0]])
    others = 10.0 ** np.array([[exponent], [-exponent], [0], [-exponent]])
    drawn = [rng.uniform(0.5, 4, shape) * np.exp(2j * rng.uniform(-3, 3, shape)) for _ in "zw"]
    z, w = (drawn[0] * scales).astype(dtype), (drawn[1] * others).astype(dtype)
    specs = [((B, N), dtype), ((B, N), dtype)]
    made = run_region(make_body(specs, lambda z, w: [z / w]), [z, w], {"B": 4, "N": 200})
    assert made is not None
    with np.errstate(all="ignore"):
        wanted = z / w
    kept = np.isfinite(wanted)
    assert kept[:2].all()
    same(made[0][kept], wanted[kept], 4 * np.finfo(dtype).eps, "quotients")
    assert not np.isfinite(made[0][~kept]).any()


@needs_emulator
@pytest.mark.parametrize("name", ["a turn", "neighbours", "rows", "columns"])
def test_regions_of_each_form(name: str, rng: np.random.Generator) -> None:
    form: Callable[[Any, Any], Any] = {
        "a turn": lambda z, w: mg.transpose(z) * mg.transpose(w[:, ::-1]) + w.shape[0],
        "neighbours": lambda z, w: z[1:, 2:] - mg.conj(w[:-1, :-2]) * 0.5,
        "rows": lambda z, w: z * w / mg.sum(mg.absolute(z), 1, keepdims=True),
        "columns": lambda z, w: mg.sum(mg.real(z * mg.conj(w)), 0),
    }[name]
    shape = (12, 35)
    z, w = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape) for _ in range(2))
    specs = [(shape, "complex128"), (shape, "complex128")]
    made, wanted = run(lambda *o: [form(*o)], specs, [z, w], {})
    same(made[0], wanted[0], 1e-13, name)


@needs_emulator
def test_every_function_is_standard_cpp(tmp_path: Path) -> None:
    """What NVRTC takes has no extensions of g++, which the emulator allows."""
    names = [name for name in HELPERS if "_c" in name[-5:]]
    source = complete("\n".join(f"/* {name} */" for name in names), 1)
    source = source[source.index(COMPLEX_TYPES) :]
    file = tmp_path / "all.cpp"
    file.write_text(
        "#include <cmath>\n#define __device__\n#define __forceinline__ inline\n"
        "#define __noinline__ __attribute__((noinline))\n#undef NAN\n"
        "static const float NAN = nanf(\"\");\n" + source
    )
    command = ["g++", "-std=c++17", "-pedantic-errors", "-Wall", "-Wextra", "-Werror"]
    command += ["-Wno-unused-function", "-Wno-unused-variable", "-fsyntax-only", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "mg_power_c128" in source


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
