"""Tests made from the operation table: awkward memory, empty arrays, NaN and infinity."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.special
from interpreted import values
from table import (
    PUBLIC,
    assert_agrees,
    is_float_array,
    leaves,
    magnitude,
    mapped,
    results,
    sample_of,
)

import magmagraph as mg
from magmagraph.op import Kind

# Elementwise, but for an axis with a meaning: their shapes cannot be any.
WITH_AXES = {"prelu": "a slope for each channel", "smooth_labels": "classes along an axis"}
ELEMENTWISE = [
    name
    for name, record in PUBLIC.items()
    if record.kind is Kind.ELEMENTWISE and name not in WITH_AXES
]
SPREADING = (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.LAYOUT)


def awkward(array: Any) -> Any:
    """Return the same values in memory that is neither contiguous nor in NumPy's order."""
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        return array
    wide = np.empty((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
    wide[...] = array.dtype.type(1)
    held = np.asfortranarray(wide)[..., 1::2]
    held[...] = array
    return held


def test_awkward_memory_is_awkward() -> None:
    array = np.arange(12.0).reshape(3, 4)
    held = awkward(array)
    assert not held.flags.c_contiguous
    assert not held.flags.f_contiguous
    np.testing.assert_array_equal(held, array)


@pytest.mark.parametrize("name", PUBLIC)
def test_feeds_may_lie_anywhere(name: str) -> None:
    record = PUBLIC[name]
    assert record.samples is not None
    assert record.function is not None
    made: list[Any] = []
    feeds: dict[Any, Any] = {}
    for i, sample in enumerate(record.samples()):
        nodes, fed = leaves(sample.inputs, f"{i}_")
        feeds |= fed
        made += results(record.function(*nodes, **sample.attrs))
    if not feeds:
        return
    before = {node: np.array(value) for node, value in feeds.items()}
    moved = {node: awkward(value) for node, value in feeds.items()}
    found = mg.function(list(feeds), made)(*moved.values())
    for value, wanted in zip(found, values(made, before), strict=True):
        assert_agrees(value, wanted, record.numerics, magnitude(wanted))
    for node, value in moved.items():
        assert np.array_equal(value, before[node], equal_nan=value.dtype.kind in "fc")


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_of_empty_and_scalar_arrays(name: str, shape: tuple[int, ...]) -> None:
    record, sample = sample_of(name, 0)
    assert record.function is not None
    assert record.reference is not None

    def reshaped(value: Any) -> Any:
        array = np.asarray(value)
        return np.resize(array, shape).astype(array.dtype) if array.size else array

    operands = mapped(sample.inputs, lambda v: reshaped(v) if isinstance(v, np.ndarray) else v)
    nodes, feeds = leaves(operands)
    made = results(record.function(*nodes, **sample.attrs))
    with np.errstate(all="ignore"):
        wanted = results(record.reference(*operands, **sample.attrs))
    compiled = mg.function(list(feeds), made)(*feeds.values())
    for node, value, expected in zip(made, compiled, wanted, strict=True):
        assert value.shape == np.shape(expected) == node.shape
        if value.size:
            assert_agrees(value, expected, record.numerics, magnitude(expected, *operands))


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


@pytest.mark.parametrize(
    "name", [n for n in PUBLIC if PUBLIC[n].kind in SPREADING and _specials(n)]
)
def test_nan_and_infinity_go_where_they_go_in_numpy(name: str) -> None:
    """Each special value in the middle of each float operand of each sample, compiled."""
    record = PUBLIC[name]
    if name in DIFFERENT:
        pytest.skip(DIFFERENT[name])
    assert record.function is not None
    assert record.reference is not None
    assert record.samples is not None
    made: list[Any] = []
    wanted: list[tuple[str, Any, float]] = []
    feeds: dict[Any, Any] = {}
    for i, sample in enumerate(record.samples()):
        floats = [k for k, v in enumerate(sample.inputs) if is_float_array(v) and np.size(v)]
        for k in floats:
            for label, special in _specials(name).items():
                spoiled = np.array(sample.inputs[k])
                spoiled.reshape(-1)[spoiled.size // 2] = special
                operands = (*sample.inputs[:k], spoiled, *sample.inputs[k + 1 :])
                try:
                    with np.errstate(all="ignore"), warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        expected = results(record.reference(*operands, **sample.attrs))
                except (ValueError, ArithmeticError):
                    continue  # the reference has no answer
                nodes, fed = leaves(operands, f"{i}_{k}_{label}_")
                parts = results(record.function(*nodes, **sample.attrs))
                made += parts
                feeds |= fed
                where = f"sample {i}, {label} in operand {k}"
                scale = magnitude(*operands)
                wanted += [(where, e, max(scale, magnitude(e))) for e in expected]
    if not made:
        return
    found = mg.function(list(feeds), made)(*feeds.values())
    wrong = []
    for value, (where, expected, scale) in zip(found, wanted, strict=True):
        try:
            assert_agrees(value, expected, record.numerics, scale)
        except AssertionError as error:
            wrong.append(f"{where}: {error}")
    assert not wrong, "\n".join(wrong)
