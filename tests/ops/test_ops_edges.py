"""Tests made from the operation table: empty arrays, NaN and infinity."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.special
from table import (
    PUBLIC,
    assert_agrees,
    awkward,
    is_float_array,
    leaves,
    magnitude,
    mapped,
    results,
    sample_of,
    together,
)

import magmagraph as mg
from magmagraph.ir.op import Kind

# Elementwise, but for an axis with a meaning: their shapes cannot be any.
WITH_AXES = {"prelu": "a slope for each channel", "smooth_labels": "classes along an axis"}
ELEMENTWISE = [
    name
    for name, record in PUBLIC.items()
    if record.kind is Kind.ELEMENTWISE and name not in WITH_AXES
]
SPREADING = (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.LAYOUT)


def test_awkward_memory_is_awkward() -> None:
    array = np.arange(12.0).reshape(3, 4)
    strided = awkward(array)
    assert not strided.flags.c_contiguous
    assert not strided.flags.f_contiguous
    np.testing.assert_array_equal(strided, array)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("names", together(ELEMENTWISE, 8), ids=",".join)
def test_elementwise_of_empty_and_scalar_arrays(names: list[str], shape: tuple[int, ...]) -> None:
    def reshaped(value: Any) -> Any:
        array = np.asarray(value)
        return np.resize(array, shape).astype(array.dtype) if array.size else array

    outputs: list[Any] = []
    all_expected: list[tuple[str, Any, float]] = []
    feeds: dict[Any, Any] = {}
    for name in names:
        record, sample = sample_of(name, 0)
        assert record.function is not None
        assert record.tests.reference is not None
        operands = mapped(sample.inputs, lambda v: reshaped(v) if isinstance(v, np.ndarray) else v)
        nodes, own_feeds = leaves(operands, f"{name}_")
        feeds |= own_feeds
        outputs += results(record.function(*nodes, **sample.attrs))
        with np.errstate(all="ignore"):
            expected = results(record.tests.reference(*operands, **sample.attrs))
        all_expected += [(name, value, magnitude(value, *operands)) for value in expected]
    compiled = mg.function(list(feeds), outputs)(*feeds.values())
    for node, value, (name, expected, scale) in zip(outputs, compiled, all_expected, strict=True):
        assert value.shape == np.shape(expected) == node.shape, name
        if value.size:
            assert_agrees(value, expected, PUBLIC[name].numerics, scale, name)


SPECIAL = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}


def _specials(name: str) -> dict[str, float]:
    """Return what is tried on a function; other references than these are formulas of our own.

    Limits at infinity are NumPy's. SciPy's differ from one function to the next, and some of its
    functions do not return for them, so that only NaN is tried where it is the measure.
    """
    function = PUBLIC[name].function
    assert function is not None
    if hasattr(np, function.__name__):
        return SPECIAL
    return {"nan": np.nan} if hasattr(scipy.special, function.__name__) else {}


# Where another value than theirs is right, and why.
_BETWEEN = "between a number and an infinity the order of NumPy's operations decides if it is NaN"
DIFFERENT = {
    "resize": "interpolates; NumPy's function of this name repeats",
    "quantile": _BETWEEN,
    "percentile": _BETWEEN,
    "nanquantile": _BETWEEN,
    "nanpercentile": _BETWEEN,
    "expn": "NaN gives NaN; SciPy turns a NaN order into some integer",
    "eval_legendre": "NaN gives NaN; SciPy's polynomial of degree 0 is 1 there",
}


COMPARED = [
    name
    for name, record in PUBLIC.items()
    if record.kind in SPREADING and _specials(name) and name not in DIFFERENT
]


def test_what_differs_from_numpy_would_be_compared() -> None:
    assert all(PUBLIC[name].kind in SPREADING and _specials(name) for name in DIFFERENT)


@pytest.mark.parametrize("names", together(COMPARED, 8), ids=",".join)
def test_nan_and_infinity_go_where_they_go_in_numpy(names: list[str]) -> None:
    """Each special value in the middle of each float operand of each sample, compiled."""
    outputs: list[Any] = []
    all_expected: list[tuple[str, str, Any, float]] = []
    feeds: dict[Any, Any] = {}
    for name in names:
        record = PUBLIC[name]
        assert record.function is not None
        assert record.tests.reference is not None
        assert record.tests.samples is not None
        for i, sample in enumerate(record.tests.samples()):
            floats = [k for k, v in enumerate(sample.inputs) if is_float_array(v) and np.size(v)]
            for k in floats:
                for label, special in _specials(name).items():
                    spoiled = np.array(sample.inputs[k])
                    spoiled.reshape(-1)[spoiled.size // 2] = special
                    operands = (*sample.inputs[:k], spoiled, *sample.inputs[k + 1 :])
                    try:
                        with np.errstate(all="ignore"), warnings.catch_warnings():
                            warnings.simplefilter("ignore")
                            expected = results(record.tests.reference(*operands, **sample.attrs))
                    except (ValueError, ArithmeticError):
                        continue  # the reference has no answer
                    nodes, own_feeds = leaves(operands, f"{name}_{i}_{k}_{label}_")
                    parts = results(record.function(*nodes, **sample.attrs))
                    outputs += parts
                    feeds |= own_feeds
                    where = f"{name}, sample {i}, {label} in operand {k}"
                    scale = magnitude(*operands)
                    all_expected += [(name, where, e, max(scale, magnitude(e))) for e in expected]
    result = mg.function(list(feeds), outputs)(*feeds.values())
    wrong = []
    for value, (name, where, expected, scale) in zip(result, all_expected, strict=True):
        try:
            assert_agrees(value, expected, PUBLIC[name].numerics, scale)
        except AssertionError as error:
            wrong.append(f"{where}: {error}")
    assert not wrong, "\n".join(wrong)
