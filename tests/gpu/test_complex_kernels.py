"""Complex programs on a GPU against NumPy in complex128."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmagraph as mg

pytestmark = pytest.mark.gpu

Program = Callable[[Any, Any, Any, Any], list[Any]]
DTYPES = ("complex64", "complex128")
SHAPES = ((37, 70), (8, 64), (1, 331), (300, 3))

# Programs of two complex arrays and a real one, by what computes them: NumPy or this package.
PROGRAMS: dict[str, Program] = {
    "arithmetic": lambda xp, z, w, r: [
        z + w, (z - w) * z, z / w, 1.0 / z, -z, 0.5 - 2.0j * z, z * xp.conj(w),
    ],
    "parts": lambda xp, z, w, r: [
        xp.abs(z), xp.angle(z), xp.real(z) * r, xp.imag(z) - xp.real(w), xp.conj(z),
    ],
    "exponentials": lambda xp, z, w, r: [
        xp.exp(z), xp.log(z), xp.log2(z), xp.log10(z), xp.sqrt(z),
    ],
    "waves": lambda xp, z, w, r: [
        xp.sin(z), xp.cos(z), xp.tan(z), xp.sinh(z), xp.cosh(z), xp.tanh(z),
    ],
    "powers": lambda xp, z, w, r: [z**2, z**3, z**0.5, z**-4.0, z**w],
    "tests": lambda xp, z, w, r: [
        z == w, z != w, xp.isnan(z), xp.isfinite(z), xp.where(r > 0, z, w * 2.0),
    ],
    "casts": lambda xp, z, w, r: [r * z, r + 1.0j * z, xp.where(r > 0, r, z)],
    "sums": lambda xp, z, w, r: [
        xp.sum(z * w, 0), xp.sum(z * w, 1), xp.sum(z), xp.mean(z, 0), z - xp.mean(z, 1)[:, None],
    ],
    "products": lambda xp, z, w, r: [xp.prod(z[:, :3] * w[:, :3], 1), xp.prod(z[:5], 0)],
    "places": lambda xp, z, w, r: [
        z.T * 2.0, z[:, ::-1] + w, xp.roll(z, 1, 1) - z, xp.concatenate([z * 2.0, w], 1),
    ],
    "a filter": lambda xp, z, w, r: [
        xp.real(xp.fft.ifft2(xp.fft.fft2(r) * w)), xp.fft.fft(z, norm="ortho") * 2.0,
    ],
    "a power spectrum": lambda xp, z, w, r: [xp.mean(xp.abs(xp.fft.fft(z * w)) ** 2, 0)],
}  # fmt: skip


def _feeds(dtype: str, shape: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    part = "float32" if dtype == "complex64" else "float64"
    z, w = (
        rng.uniform(0.3, 2.0, shape) * np.exp(1j * rng.uniform(-3.0, 3.0, shape)) for _ in range(2)
    )
    w[::2] = z[::2]
    return [z.astype(dtype), w.astype(dtype), rng.standard_normal(shape).astype(part)]


def _inputs(feeds: list[np.ndarray]) -> list[Any]:
    return [mg.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(feeds)]


def _agree(found: Any, wanted: Any, tolerance: float, what: str) -> None:
    wanted = np.asarray(wanted)
    found = found.get()
    assert found.shape == wanted.shape, what
    assert (found.dtype.kind == "c") == (wanted.dtype.kind == "c"), what
    if wanted.dtype == bool:
        np.testing.assert_array_equal(found, wanted, what)
        return
    size = np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, tolerance, tolerance * size, err_msg=what)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_numpy(name: str, dtype: str) -> None:
    tolerance = 2e-5 if dtype == "complex64" else 1e-13
    for shape in SHAPES if name in ("arithmetic", "sums", "places") else SHAPES[:1]:
        feeds = _feeds(dtype, shape)
        wide = [a.astype(np.complex128 if a.dtype.kind == "c" else np.float64) for a in feeds]
        inputs = _inputs(feeds)
        f = mg.function(inputs, PROGRAMS[name](mg, *inputs), device="cuda")
        wanted = PROGRAMS[name](np, *wide)
        for _ in range(3):  # launched one by one, captured, launched as a graph
            for i, (one, other) in enumerate(zip(f(*feeds), wanted, strict=True)):
                _agree(one, other, tolerance, f"{name} {i} of {shape}")


def test_programs_are_generated_kernels() -> None:
    feeds = _feeds("complex64", SHAPES[0])
    for name, program in PROGRAMS.items():
        inputs = _inputs(feeds)
        f = mg.function(inputs, program(mg, *inputs), device="cuda")
        arrays = {step.node.op.name for step in f.plan.steps if step.family.name == "array"}
        assert arrays == ({"prod"} if name == "products" else set()), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_quotients_of_large_and_tiny_parts(dtype: str) -> None:
    exponent = 37 if dtype == "complex64" else 306
    z, w, _ = _feeds(dtype, SHAPES[0])
    a, b = mg.input("a", z.shape, dtype), mg.input("b", z.shape, dtype)
    f = mg.function([a, b], [a / b, mg.absolute(a)], device="cuda")
    for first, second in ((exponent, exponent), (-exponent, -exponent), (exponent, 0)):
        x, y = (z * 10.0**first).astype(dtype), (w * 10.0**second).astype(dtype)
        quotient, size = f(x, y)
        assert np.isfinite(x / y).all()
        _agree(quotient, x / y, 4 * np.finfo(dtype).eps, "quotients")
        _agree(size, np.abs(x), 4 * np.finfo(dtype).eps, "sizes")


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_infinities_and_nan(dtype: str) -> None:
    parts = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan])
    values = np.empty((7, 7), dtype)
    values.real, values.imag = parts, parts[:, None]
    z = mg.input("z", (7, 7), dtype)
    names = ("exp", "log", "sqrt", "sinh", "cosh", "tanh", "absolute", "angle", "isnan", "isinf")
    f = mg.function([z], [getattr(mg, name)(z) for name in names], device="cuda")
    for name, one in zip(names, f(values), strict=True):
        with np.errstate(all="ignore"):
            wanted = getattr(np, name)(values)
        found = one.get()
        for part in ("real", "imag"):
            left, right = getattr(found, part), getattr(np.asarray(wanted), part)
            if found.dtype.kind == "c":  # Annex G leaves the sign of an infinity beside NaN open
                open_ = np.isnan(found) & np.isinf(right)
                left, right = np.where(open_, abs(left), left), np.where(open_, abs(right), right)
            np.testing.assert_allclose(left, right, 1e-5, 1e-6, err_msg=f"{name} {part}")


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "of sizes": lambda z, r: mg.sum(mg.absolute(z * z + 1.0) * r),
    "through a transform": lambda z, r: mg.mean((mg.absolute(mg.fft.fft2(z)) - r) ** 2),
    "of logarithms": lambda z, r: mg.sum(mg.real(mg.log(z) * mg.exp(-z)) * r),
    "of a mean": lambda z, r: mg.absolute(mg.mean(mg.conj(z) * z * r)) ** 2,
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_real_losses(name: str) -> None:
    fed, _, weights = _feeds("complex128", (20, 30))
    z, r = mg.input("z", fed.shape, "complex128"), mg.input("r", fed.shape, "float64")
    loss = LOSSES[name](z, r)
    value, gradient = mg.function([z, r], [loss, mg.grad(loss, z)], device="cuda")(fed, weights)
    at = mg.function([z, r], loss, device="cpu")
    np.testing.assert_allclose(value.get(), at(fed, weights), 1e-12)
    step = 1e-6
    for direction in (1.0, 1.0j):
        change = np.zeros_like(fed)
        change[3, 7] = step * direction
        slope = (at(fed + change, weights) - at(fed - change, weights)) / (2 * step)
        part = gradient.get()[3, 7]
        assert abs((part.real if direction == 1.0 else part.imag) - slope) <= 1e-6 * max(
            1.0, abs(slope)
        )
