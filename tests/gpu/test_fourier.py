"""Fourier transforms on a GPU: cuFFT's, captured, against NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmagraph as mg

pytestmark = pytest.mark.gpu

CASES: dict[str, tuple[tuple[int, ...], Callable[[Any, Any], Any]]] = {
    "rows": ((5, 16), lambda xp, z: xp.fft.fft(z)),
    "columns": ((15, 7), lambda xp, z: xp.fft.fft(z, axis=0)),
    "the middle": ((3, 12, 5), lambda xp, z: xp.fft.ifft(z, axis=1)),
    "two axes": ((4, 9, 8), lambda xp, z: xp.fft.ifft2(xp.fft.fft2(z) * 2.0, norm="ortho")),
    "the first two": ((6, 10, 3), lambda xp, z: xp.fft.fftn(z, axes=(0, 1), norm="forward")),
    "all of three": ((6, 4, 10), lambda xp, z: xp.fft.ifftn(z)),
    "the outer two": ((6, 4, 10), lambda xp, z: xp.fft.fftn(z, axes=(0, 2))),
    "a prime": ((2, 331), lambda xp, z: xp.fft.fft(z)),
    "one element": ((3, 1), lambda xp, z: xp.fft.fft(z)),
    "half of rows": ((5, 17), lambda xp, z: xp.fft.rfft(xp.real(z))),
    "half of columns": ((18, 5), lambda xp, z: xp.fft.rfft(xp.real(z), axis=0, norm="ortho")),
    "values of rows": ((5, 9), lambda xp, z: xp.fft.irfft(z)),
    "an odd number of values": ((5, 9), lambda xp, z: xp.fft.irfft(z, n=17)),
    "values of columns": ((9, 5), lambda xp, z: xp.fft.irfft(z, axis=0)),
    "two axes, an odd number of values": ((2, 3, 5), lambda xp, z: xp.fft.rfft2(xp.real(z))),
    "there and back": ((3, 8, 10), lambda xp, z: xp.fft.irfftn(xp.fft.rfftn(xp.real(z)))),
}


@pytest.mark.filterwarnings("ignore::magmagraph.errors.FallbackWarning")  # the outer two
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_numpy(name: str, dtype: str) -> None:
    shape, program = CASES[name]
    rng = np.random.default_rng(3)
    values = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    z = mg.input("z", shape, dtype)
    f = mg.function([z], [program(mg, z), z * 1.0], device="cuda")
    wanted = program(np, values)
    tolerance = 1e-5 if dtype == "complex64" else 1e-12
    size = float(np.abs(wanted).max())
    for _ in range(3):  # launched one by one, captured, launched as a graph
        found, operand = f(values)
        assert np.abs(found.get() - wanted).max() <= tolerance * size * 4
        np.testing.assert_array_equal(operand.get(), values)
    if name != "the outer two":
        transforms = [step for step in f.plan.steps if "fft" in step.node.op.name]
        assert transforms
        assert all(step.family.name == "transform" for step in transforms)


def test_gradients_and_named_sizes() -> None:
    x = mg.input("x", ("n", 12))
    spectrum = mg.fft.rfft(x)
    loss = mg.sum(mg.real(spectrum * mg.conj(spectrum)))
    f = mg.function([x], mg.grad(loss, x), device="cuda")
    for n in (4, 1, 7):
        values = np.random.default_rng(n).standard_normal((n, 12)).astype(np.float32)
        wanted = mg.function([x], mg.grad(loss, x), device="cpu")(values)
        np.testing.assert_allclose(f(values).get(), wanted, 1e-4, 1e-4)


def test_transforms_in_a_loop() -> None:
    z = mg.input("z", (8, 8), "complex64")
    last, _ = mg.scan(lambda s, _: (mg.fft.ifft2(mg.fft.fft2(s) * 0.9), None), z, length=5)
    f = mg.function([z], last, device="cuda")
    values = (np.arange(64) + 1j).reshape(8, 8).astype(np.complex64)
    for _ in range(3):
        np.testing.assert_allclose(f(values).get(), values * 0.9**5, 1e-4, 1e-4)
