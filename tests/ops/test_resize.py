"""Resampling: known values, exact symbolic extents, and what is the same as what."""

from __future__ import annotations

import numpy as np
import pytest
from table import assert_agrees

import magmagraph as mg
from magmagraph.errors import ShapeError
from magmagraph.ir.dims import Dim

RAMP = np.arange(4.0).reshape(1, 1, 4)


def test_linear_resampling_keeps_straight_lines() -> None:
    inner = mg.resize(RAMP, 7, method="linear", align_corners=True).eval()
    np.testing.assert_allclose(inner[0, 0], np.linspace(0.0, 3.0, 7))
    outer = mg.resize(RAMP, 8, method="linear").eval()
    expected = np.clip(np.arange(8) / 2 - 0.25, 0.0, 3.0)  # the edges' values beyond the edges
    np.testing.assert_allclose(outer[0, 0], expected)


@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_constants_stay_constant(method: str, align_corners: bool) -> None:
    x = np.full((1, 2, 3, 5), 7.0)
    result = mg.resize(x, (8, 4), method=method, align_corners=align_corners).eval()
    assert_agrees(result, np.full((1, 2, 8, 4), 7.0), "reassoc", 7.0)


@pytest.mark.parametrize("method", ["nearest", "linear", "cubic"])
def test_named_extents_are_exact(method: str) -> None:
    x = mg.input("x", ("n", 2, "h", 5), "float64")
    y = mg.resize(x, scale=(3, 2), method=method)
    assert y.shape == (Dim("n"), 2, 3 * Dim("h"), 10)
    f = mg.function([x], [y, mg.grad(mg.sum(y * y), x)])
    for n, h in ((1, 2), (2, 7)):
        data = np.sin(np.arange(n * 2.0 * h * 5)).reshape(n, 2, h, 5)
        plain = mg.input("plain", data.shape, "float64")
        z = mg.resize(plain, scale=(3, 2), method=method)
        g = mg.function([plain], [z, mg.grad(mg.sum(z * z), plain)])
        for named_result, fixed in zip(f(data), g(data), strict=True):
            assert_agrees(named_result, fixed, "reassoc", 30.0)


def test_the_same_size_is_the_operand_itself() -> None:
    x = mg.input("x", (1, 1, 4, 4))
    assert mg.resize(x, (4, 4), method="cubic") is x
    assert mg.interpolate is mg.resize


def test_shuffles_undo_each_other(rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 12, 3, 5))
    np.testing.assert_array_equal(
        mg.pixel_unshuffle(mg.pixel_shuffle(x, 2), 2).eval(), x
    )
    image = mg.input("x", ("n", 8, "h", "w"))
    assert mg.pixel_shuffle(image, 2).shape == (Dim("n"), 2, 2 * Dim("h"), 2 * Dim("w"))


def test_scales_of_named_extents_are_whole() -> None:
    x = mg.input("x", (1, 1, "h"))
    with pytest.raises(ShapeError, match=r"resize: scale=1.5 for an extent h"):
        mg.resize(x, scale=1.5)
