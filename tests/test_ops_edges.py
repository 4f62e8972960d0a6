"""Tests made from the operation table: awkward memory, empty and scalar arrays, NaN and infinity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special
from interpreted import values
from table import (
    PUBLIC,
    assert_agrees,
    flattened,
    is_float_array,
    leaves,
    magnitude,
    mapped,
    results,
    sample_of,
    samples,
)

import magmagraph as mg
from magmagraph.errors import MagmagraphError
from magmagraph.op import Kind

ELEMENTWISE = [name for name, record in PUBLIC.items() if record.kind is Kind.ELEMENTWISE]
SPREADING = (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.LAYOUT)


def awkward(array: Any) -> Any:
    """Return the same values in memory that is neither contiguous nor in NumPy's order."""
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        return array
    wide = np.empty((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
    wide[...] = array.dtype.type(1)
    held = np.asfortranarray(wide)[..., 1::2]
    held[...] = array
    assert not held.flags.c_contiguous or held.size < 2
    return held


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


def _is_numpys(name: str) -> bool:
    """Tell whether NumPy or SciPy has the function; other references are formulas of our own."""
    function = PUBLIC[name].function
    assert function is not None
    public = function.__name__
    return hasattr(np, public) or hasattr(scipy.special, public)


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize(
    ("name", "i"),
    [(n, i) for n, i in samples() if PUBLIC[n].kind in SPREADING and _is_numpys(n)],
)
def test_nan_and_infinity_go_where_they_go_in_numpy(name: str, i: int, special: str) -> None:
    record, sample = sample_of(name, i)
    assert record.function is not None
    assert record.reference is not None
    floats = [v for v in flattened(sample.inputs) if is_float_array(v) and np.size(v)]
    for position in range(len(floats)):
        at = -1

        def spoiled(value: Any, position: int = position) -> Any:
            nonlocal at
            if not is_float_array(value) or not np.size(value):
                return value
            at += 1
            array = np.array(value)
            if at == position:
                array.reshape(-1)[array.size // 2] = SPECIAL[special]
            return array

        operands = mapped(sample.inputs, spoiled)
        try:
            with np.errstate(all="ignore"):
                wanted = results(record.reference(*operands, **sample.attrs))
        except (ValueError, FloatingPointError, ZeroDivisionError, OverflowError):
            continue  # the reference has no answer
        nodes, feeds = leaves(operands)
        made = results(record.function(*nodes, **sample.attrs))
        try:
            found = mg.function(list(feeds), made)(*feeds.values())
        except MagmagraphError:
            raise AssertionError(f"{special} in operand {position} is refused") from None
        for value, expected in zip(found, wanted, strict=True):
            assert_agrees(value, expected, record.numerics, magnitude(expected, *operands))
