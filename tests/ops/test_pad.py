"""`pad` in all modes of NumPy's, with its options, gradients, symbolic extents and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpreted import assert_close, value, values

import magmagraph as mg
from magmagraph.errors import ConfigError, DTypeError, ShapeError

RANDOM = np.random.default_rng(3)
MODES: dict[str, list[dict[str, Any]]] = {
    "constant": [
        {},
        {"constant_values": 3},
        {"constant_values": (1, 2)},
        {"constant_values": [(1, 4)]},
    ],
    "edge": [{}],
    "linear_ramp": [{}, {"end_values": 5}, {"end_values": (7, 2)}],
    "maximum": [{}, {"stat_length": 2}, {"stat_length": (1, 9)}],
    "mean": [{}, {"stat_length": 2}],
    "median": [{}, {"stat_length": 3}],
    "minimum": [{}, {"stat_length": ((1, 2),)}],
    "reflect": [{}, {"reflect_type": "odd"}],
    "symmetric": [{}, {"reflect_type": "odd"}],
    "wrap": [{}],
}
# Also several times as wide as the axis, which is mirrored then again and again.
WIDTHS: tuple[Any, ...] = (0, 1, (2, 1), ((3, 0),), (0, 7), {0: 2}, {-1: (1, 2)})
DTYPES = ("float64", "float32", "float16", "int32", "uint8", "complex64")
WITHOUT_ORDER = ("maximum", "median", "minimum")


def array(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    numbers = RANDOM.normal(size=shape) * 20
    if dtype == "uint8":
        return np.abs(numbers).astype(dtype)
    if dtype == "complex64":
        return (numbers + 1j * RANDOM.normal(size=shape)).astype(dtype)
    return numbers.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_pad_agrees_with_numpy(mode: str, dtype: str) -> None:
    if dtype == "complex64" and mode in WITHOUT_ORDER:
        with pytest.raises(mg.DTypeError, match="complex64"):
            mg.pad(mg.constant(array((4,), dtype)), 1, mode)
        return
    for shape in ((1,), (4,), (2, 3)):
        x = array(shape, dtype)
        cases = [(width, options) for width in WIDTHS for options in MODES[mode]]
        nodes = [mg.pad(mg.constant(x), width, mode, **options) for width, options in cases]
        for result, (width, options) in zip(values(nodes), cases, strict=True):
            expected = np.pad(x, width, mode, **options)  # type: ignore[call-overload]
            assert result.dtype == expected.dtype, (mode, width, options)
            if expected.dtype.kind in "iu":
                np.testing.assert_array_equal(result, expected, f"{mode} {width} {options}")
            else:
                real = "float32" if dtype == "complex64" else dtype
                assert_close(result, expected, real, scale=np.abs(expected).max(initial=1.0))


def test_pad_empty_has_the_shape() -> None:
    assert mg.pad(mg.zeros((2, 3)), ((1, 2), (0, 4)), mode="empty").eval().shape == (5, 7)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_pad(mode: str) -> None:
    x = np.array([[0.3, -1.2, 2.5], [1.7, 0.4, -0.6]])
    weights = RANDOM.normal(size=(7, 8))
    for options in MODES[mode]:
        node = mg.input("x", (2, 3), "float64")
        loss = mg.sum(mg.pad(node, ((1, 4), (2, 3)), mode, **options) ** 2 * weights)
        mg.check_gradients(loss, {node: x})


@pytest.mark.parametrize("mode", MODES)
def test_pad_of_symbolic_extents_and_widths(mode: str) -> None:
    x = mg.input("x", ("n", 2), "float64")
    data = RANDOM.normal(size=(4, 2))
    for options in MODES[mode]:
        if "stat_length" in options:
            options = {"stat_length": 2}
        padded = mg.pad(x, ((1, 3), (0, 1)), mode, **options)
        assert padded.shape == (x.shape[0] + 4, 3)
        expected = np.pad(data, ((1, 3), (0, 1)), mode, **options)  # type: ignore[call-overload]
        assert_close(value(padded, {x: data}), expected)
    if mode != "reflect":  # which needs an extent above the width
        wide = mg.pad(x, ((x.shape[0], 0), (0, 0)), mode)
        expected = np.pad(data, ((4, 0), (0, 0)), mode)  # type: ignore[call-overload]
        assert_close(value(wide, {x: data}), expected)


def test_pad_checks_symbolic_extents_at_the_call() -> None:
    x = mg.input("x", ("n",))
    for mode, least in (("reflect", 4), ("symmetric", 3), ("wrap", 3)):
        padded = mg.function([x], mg.pad(x, (3, 0), mode))
        assert padded(np.zeros(least, np.float32)).shape == (least + 3,)
        with pytest.raises(mg.FeedError):
            padded(np.zeros(least - 1, np.float32))


def test_ramps_of_integers_are_rounded_down_as_in_numpy() -> None:
    for last in range(-30, 60, 7):
        x = np.array([last, 3, last + 1])
        result = mg.pad(x, (9, 49), "linear_ramp", end_values=(2, -5)).eval()
        np.testing.assert_array_equal(result, np.pad(x, (9, 49), "linear_ramp", end_values=(2, -5)))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"mode": "foo"}, ShapeError, "pad: mode='foo'"),
        ({"mode": np.mean}, ShapeError, "pad: mode=<function mean"),
        ({"mode": "edge", "constant_values": 3}, ConfigError, "pad: constant_values has no mean"),
        ({"mode": "wrap", "end_values": 3}, ConfigError, "pad: end_values has no meaning"),
        ({"reflect_type": "odd"}, ConfigError, "pad: reflect_type has no meaning"),
        ({"mode": "edge", "stat_length": 3}, ConfigError, "pad: stat_length has no meaning"),
        ({"mode": "reflect", "reflect_type": "x"}, ConfigError, "pad: reflect_type='x'"),
        ({"mode": "mean", "stat_length": 0}, ShapeError, "pad: stat_length=0 has the length 0"),
        ({"constant_values": (1, 2, 3)}, ShapeError, r"pad: constant_values=\(1, 2, 3\) for 2"),
        ({"constant_values": "a"}, DTypeError, "pad: constant_values='a'"),
        ({"constant_values": 1j}, DTypeError, "pad: constant_values=1j for elements of float32"),
        ({"constant_values": mg.constant(1.0)}, DTypeError, "pad: constant_values is float32"),
        ({"pad_width": 1.5}, ShapeError, "pad: pad_width=1.5 for 2 axes"),
        ({"pad_width": ((1, 2, 3),)}, ShapeError, r"pad: pad_width=\(\(1, 2, 3\),\) for 2 axes"),
        ({"pad_width": {2: 1}}, ShapeError, "pad: axis=2 is out of range"),
    ],
)
def test_pad_refuses(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        mg.pad(mg.zeros((2, 3)), **{"pad_width": 1, **options})


def test_pad_keeps_integers_from_numbers_that_they_do_not_hold() -> None:
    for number in (2.5, 300, np.nan, -1):
        with pytest.raises(DTypeError, match="for elements of uint8"):
            mg.pad(np.zeros(2, np.uint8), 1, constant_values=number)
    assert mg.pad(np.zeros(1, np.uint8), 1, constant_values=2.0).eval().tolist() == [2, 0, 2]
