"""Tests made from the operation table: every record, every sample."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import numpy as np
import pytest
from interpreted import values
from table import (
    COMPLEX,
    DTYPES,
    PUBLIC,
    assert_agrees,
    awkward,
    dtypes_of,
    each_record,
    flattened,
    is_complex_array,
    is_float_array,
    leaves,
    magnitude,
    results,
    rounded,
    sample_of,
    samples,
    some_samples,
    together,
    widened,
)

import magmagraph as mg
from magmagraph.dtypes import is_complex, is_inexact, real_dtype
from magmagraph.errors import MagmagraphError
from magmagraph.ir.dims import Dim
from magmagraph.ir.op import Kind, Op
from magmagraph.ops import TABLE

SAMPLES = list(samples())


def _smooth(name: str) -> bool:
    """Tell whether a record has a gradient."""
    record = TABLE[name]
    return not record.no_gradient


WIDEST = {"float64": np.dtype(np.float64), "complex128": COMPLEX[0]}
GRADIENTS = [
    (name, i, dtype)
    for name, i in SAMPLES
    if _smooth(name)
    for dtype in WIDEST
    if dtype == "float64" or (dtype in TABLE[name].dtypes and not sample_of(name, i)[1].real)
]
FIRST_GRADIENTS = [case for case in GRADIENTS if case[1] in some_samples(TABLE[case[0]], "first")]


@pytest.mark.parametrize("name", TABLE)
def test_record_is_complete(name: str) -> None:
    record = TABLE[name]
    assert record.name == name
    assert record.doc.endswith("."), "the tables of the documentation show this line"
    if isinstance(record, Op):
        assert record.gradient is not None or record.no_gradient, "no gradient, and no reason"
    if name not in PUBLIC:
        return
    assert record.tests.samples is not None, "no samples"
    assert record.tests.samples()
    assert record.tests.reference is not None, "nothing to compare with"
    for sample in record.tests.samples():
        if sample.gradient is not None:
            floats = [i for i, value in enumerate(sample.inputs) if is_float_array(value)]
            assert sample.reason or set(floats) <= set(sample.gradient), (
                "operands without a gradient, and no reason"
            )
    function = record.function
    assert function is not None
    home = getattr(mg, record.namespace) if record.namespace else mg
    public = function.__name__
    assert name in (public, f"{record.namespace}_{public}")
    assert inspect.unwrap(getattr(home, public)) is inspect.unwrap(function)
    assert public in home.__all__
    text = inspect.getdoc(function) or ""
    assert "Examples\n--------" in text


# pytest finds the docstrings of written functions by itself, but not those of generated ones.
GENERATED = [
    name
    for name, record in PUBLIC.items()
    if record.function.__globals__["__name__"] != record.function.__module__  # type: ignore[union-attr]
]


@pytest.mark.parametrize("name", GENERATED)
def test_generated_docstring_runs(name: str) -> None:
    record = TABLE[name]
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    runner = doctest.DocTestRunner(optionflags=flags)
    (test,) = doctest.DocTestFinder(recurse=False).find(record.function, name, False, globs={})
    log: list[str] = []
    assert runner.run(test, out=log.append).failed == 0, "".join(log)


FORWARD = [(name, i, dtype) for name, i in SAMPLES for dtype in dtypes_of(TABLE[name])]
NARROW = [
    (name, dtype) for name in PUBLIC for dtype in DTYPES if dtype not in dtypes_of(TABLE[name])
]


@each_record(NARROW)
def test_other_dtypes_are_refused(name: str, dtype: np.dtype) -> None:
    record = TABLE[name]
    assert record.function is not None
    assert record.tests.samples is not None
    for sample in record.tests.samples():
        if not any(map(is_float_array, flattened(sample.inputs))):
            continue
        nodes, _ = leaves(rounded(sample.inputs, dtype))
        first_dtype = "float32" if "float32" in record.dtypes else record.dtypes[0]
        with pytest.raises(mg.DTypeError, match=rf"try: mg.cast\(x, '{first_dtype}'\)"):
            record.function(*nodes, **sample.attrs)


@each_record(FORWARD)
def test_forward_is_the_reference(name: str, i: int, dtype: np.dtype) -> None:
    record, sample = sample_of(name, i)
    operands = rounded(sample.inputs, dtype)
    nodes, feeds = leaves(operands)
    assert record.function is not None
    assert record.tests.reference is not None
    outputs = results(record.function(*nodes, **sample.attrs))
    with np.errstate(all="ignore"):
        expected = results(record.tests.reference(*widened(operands), **sample.attrs))
    assert len(outputs) == len(expected)
    scale = magnitude(*operands)
    given_floats = any(is_float_array(v) or is_complex_array(v) for v in flattened(operands))
    for node, value, expected_value in zip(outputs, values(outputs, feeds), expected, strict=True):
        assert value.shape == node.shape, "the shape rule and the result differ"
        assert value.dtype == node.dtype
        if "dtype" in sample.attrs:
            assert node.dtype == mg.dtypes.canonical(sample.attrs["dtype"])
        elif is_inexact(node.dtype):
            widest = np.complex128 if is_complex(node.dtype) else np.float64
            assert np.asarray(expected_value).dtype == widest
            wide = node.dtype == np.float32 and dtype.itemsize < 4  # statistics of 16-bit floats
            expected_part = real_dtype(dtype) if given_floats else mg.config.float_dtype
            assert wide or real_dtype(node.dtype) == expected_part
        else:
            assert node.dtype.kind == np.asarray(expected_value).dtype.kind
        assert_agrees(value, expected_value, record.numerics, max(scale, magnitude(expected_value)))


@each_record(SAMPLES)
def test_named_dimension_gives_the_same(name: str, i: int) -> None:
    """Every extent in turn becomes a name, wherever it stands; where that fits, it is exact."""
    record, sample = sample_of(name, i)
    nodes, feeds = leaves(sample.inputs)
    assert record.function is not None
    plain = results(record.function(*nodes, **sample.attrs))
    expected = values(plain, feeds)
    extents = {extent for array in feeds.values() for extent in array.shape if extent > 1}
    for extent in sorted(extents):
        symbolic = {
            node: mg.input(
                node.name, tuple("n" if e == extent else e for e in node.shape), node.dtype
            )
            for node in feeds
        }
        arguments = [
            [symbolic[v] for v in x]
            if isinstance(x, list)
            else symbolic.get(x, x)
            if isinstance(x, mg.Node)
            else x
            for x in nodes
        ]
        try:
            outputs = results(record.function(*arguments, **sample.attrs))
        except MagmagraphError:
            # Arguments that speak of an int, as a shape or a position does, may not fit a name.
            assert record.kind not in (Kind.ELEMENTWISE, Kind.REDUCTION)
            continue
        feeds_by_name = {symbolic[node]: array for node, array in feeds.items()}
        for node, value, expected_value in zip(
            outputs, values(outputs, feeds_by_name), expected, strict=True
        ):
            bound = tuple(
                mg.dims.evaluate(e, {"n": extent}) if isinstance(e, Dim) else e for e in node.shape
            )
            assert bound == expected_value.shape
            assert value.dtype == expected_value.dtype
            assert_agrees(value, expected_value, record.numerics, magnitude(expected_value))


PLANNED = [
    pytest.param("off", "first", id="off, first samples"),
    pytest.param("auto", "first", id="auto, first samples"),
    pytest.param("off", "all", id="off", marks=pytest.mark.slow),
    pytest.param("auto", "all", id="auto", marks=pytest.mark.slow),
]


@pytest.mark.optimized
@pytest.mark.parametrize(("compiler", "which"), PLANNED)
@pytest.mark.parametrize("names", together(PUBLIC, 4), ids=",".join)
def test_planned_is_interpreted(
    names: list[str], compiler: str, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With kernels from the C compiler, and with those of the fallback.

    And so are feeds that lie in memory in another order, with gaps: to the bit, and unchanged.
    """
    monkeypatch.setattr(mg.config, "compiler", compiler)
    outputs: list[Any] = []
    owners: list[str] = []
    feeds: dict[Any, Any] = {}
    for name in names:
        record = PUBLIC[name]
        assert record.function is not None
        for i in some_samples(record, which):
            _, sample = sample_of(name, i)
            for dtype in dtypes_of(record):
                nodes, own_feeds = leaves(
                    rounded(sample.inputs, dtype), f"{name}_{dtype.name}_{i}_"
                )
                feeds |= own_feeds
                outputs += results(record.function(*nodes, **sample.attrs))
                if not any(is_float_array(v) or is_complex_array(v) for v in own_feeds.values()):
                    break
        owners += [name] * (len(outputs) - len(owners))
    compiled = mg.function(list(feeds), outputs)
    actual = compiled(*feeds.values())
    for name, node, value, expected in zip(
        owners, outputs, actual, values(outputs, feeds), strict=True
    ):
        assert value.dtype == node.dtype, name
        scale = magnitude(expected)
        if PUBLIC[name].kind is Kind.LINALG and value.dtype in (np.float32, np.complex64):
            scale *= 8  # LAPACK computes in these dtypes, NumPy in wider ones (docs/design/034)
            if name in ("eigh", "svd") and value.ndim > 1:  # so that vectors have other phases
                value, expected = np.abs(value), np.abs(expected)
        assert_agrees(value, expected, PUBLIC[name].numerics, scale, name)
    strided = [awkward(value) for value in feeds.values()]
    for name, value, again in zip(owners, actual, compiled(*strided), strict=True):
        assert np.asarray(value).tobytes() == np.asarray(again).tobytes(), name
    for value, before in zip(strided, feeds.values(), strict=True):
        assert np.asarray(value).tobytes() == np.asarray(before).tobytes()


def _differentiated(name: str, i: int, dtype: str) -> tuple[Any, tuple[np.ndarray, ...]] | None:
    """Return a real function of the operands to differentiate, and the point."""
    record, sample = sample_of(name, i)
    inputs = rounded(sample.inputs, WIDEST[dtype])
    places = [
        k
        for k, value in enumerate(sample.inputs)
        if (sample.gradient is None or k in sample.gradient)
        and (is_float_array(value) or (isinstance(value, list) and is_float_array(value[0])))
    ]
    point: list[np.ndarray] = []
    for k in places:
        value = inputs[k]
        point += value if isinstance(value, list) else [value]
    if not point:
        return None

    def function(*nodes: mg.Node) -> mg.Node:
        left = list(nodes)
        operands = list(inputs)
        for k in places:
            value = operands[k]
            if isinstance(value, list):
                operands[k], left = left[: len(value)], left[len(value) :]
            else:
                operands[k], left = left[0], left[1:]
        assert record.function is not None
        parts = results(record.function(*operands, **sample.attrs))
        total = None
        for number, part in enumerate(parts):
            if not is_inexact(part.dtype):
                continue
            term = _weighted(part, np.random.default_rng(number))
            total = term if total is None else total + term
        assert total is not None, "a result without a float has no gradient: say so in the record"
        return total

    return function, tuple(point)


def _weighted(part: mg.Node, random: np.random.Generator) -> mg.Node:
    """Return the elements weighted with random numbers and summed; of both parts, if complex."""
    term = mg.sum(mg.real(part) * random.uniform(0.5, 1.5, part.shape))
    if is_complex(part.dtype):
        term = term + mg.sum(mg.imag(part) * random.uniform(0.5, 1.5, part.shape))
    return term


@each_record(GRADIENTS)
def test_gradient_is_the_central_difference(name: str, i: int, dtype: str) -> None:
    function_and_point = _differentiated(name, i, dtype)
    if function_and_point is None:
        return
    function, point = function_and_point
    report = mg.check_gradients(function, point)
    if report.targets:
        assert len(report.targets) == len(point) or TABLE[name].kind is Kind.REDUCTION
        return
    # Nothing is reached (the imaginary part of a real number): then nothing may vary either.
    shifted = [value + 0.125 for value in point]
    here, there = (function(*map(mg.constant, each)).eval() for each in (point, shifted))
    assert here == there


@each_record(FIRST_GRADIENTS)
def test_second_derivative_is_the_central_difference(name: str, i: int, dtype: str) -> None:
    check_second_derivative(name, i, dtype)


@pytest.mark.slow
@each_record(GRADIENTS)
def test_all_second_derivatives(name: str, i: int, dtype: str) -> None:
    check_second_derivative(name, i, dtype)


def check_second_derivative(name: str, i: int, dtype: str) -> None:
    """Compare the derivative of a slope in a fixed direction with central differences."""
    function_and_point = _differentiated(name, i, dtype)
    if function_and_point is None:
        return
    function, point = function_and_point

    def slope(*nodes: mg.Node) -> mg.Node:
        """Return the derivative in a fixed random direction."""
        gradients = mg.grad(function(*nodes), list(nodes), unused="zeros")
        direction = np.random.default_rng(7)
        terms = [_weighted(g, direction) for g in gradients]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    mg.check_gradients(slope, point)


BAD = [
    (name, i)
    for name, record in TABLE.items()
    if record.tests.bad_samples is not None
    for i in range(len(record.tests.bad_samples()))
]


@each_record(BAD)
def test_bad_sample_is_refused(name: str, i: int) -> None:
    record = TABLE[name]
    assert record.tests.bad_samples is not None
    assert record.function is not None
    bad = record.tests.bad_samples()[i]
    nodes, _ = leaves(bad.inputs)
    with pytest.raises(bad.error) as caught:
        record.function(*nodes, **bad.attrs)
    assert str(caught.value).splitlines()[0] == bad.text
