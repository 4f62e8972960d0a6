"""The options `where` and `initial` of reductions, and the names of `clip`, against NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interpreted import value, values

import magmagraph as mg

INF, NAN = np.inf, np.nan

FOLDS = ("sum", "prod")
EXTREMA = ("max", "min")
AVERAGES = ("mean", "std", "var")
TRUTHS = ("all", "any")
NAN_FOLDS = ("nansum", "nanprod")
NAN_EXTREMA = ("nanmax", "nanmin")
NAN_AVERAGES = ("nanmean", "nanstd", "nanvar")
PLAIN = (*FOLDS, *EXTREMA, *AVERAGES, *TRUTHS)
WITHOUT_NAN = (*NAN_FOLDS, *NAN_EXTREMA, *NAN_AVERAGES)
EVERY = (*PLAIN, *WITHOUT_NAN)
BEGINNING = (*FOLDS, *EXTREMA, *NAN_FOLDS, *NAN_EXTREMA)
NEEDING = (*EXTREMA, *NAN_EXTREMA)

RANDOM = np.random.default_rng(5)
NUMBERS = np.round(RANDOM.normal(size=(2, 3, 4)) * 2, 3)
DATA = {
    "float32": NUMBERS.astype(np.float32),
    "float64": NUMBERS,
    "int8": np.round(NUMBERS).astype(np.int8),
    "uint16": np.abs(np.round(NUMBERS)).astype(np.uint16),
    "int64": np.round(NUMBERS * 3).astype(np.int64),
    "bool": NUMBERS > 0,
}
MASKS = {
    "full": RANDOM.random((2, 3, 4)) < 0.6,
    "row": np.array([True, False, True, True]),
    "column": np.array([[True], [False], [True]]),
    "plane": np.array([[[True]], [[False]]]),
    "no": np.False_,
    "yes": np.True_,
    "none": np.zeros((3, 4), bool),
}
AXES: tuple[Any, ...] = (None, 0, -1, (0, 2), (-2, 0), ())
# What takes part in the search for an extremum: in the middle of the elements, or beyond them.
STARTS = {"b": (False, True), "i": (0, -5, 100), "u": (0, 100), "f": (0.25, -INF, INF, NAN)}


def reference(name: str, x: np.ndarray, **options: Any) -> np.ndarray:
    """Return what NumPy gives, without its warnings of lines where nothing counts.

    Sums of narrow unsigned integers are uint32 here, where the default integer is int32.
    """
    if name in (*FOLDS, *NAN_FOLDS) and x.dtype.kind == "u" and x.dtype.itemsize < 8:
        options = {"dtype": np.uint32, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(getattr(np, name)(x, **options))


def assert_same(result: Any, expected: np.ndarray, what: Any) -> None:
    result = np.asarray(result)
    assert result.shape == expected.shape, what
    if expected.dtype.kind != "f":
        assert result.dtype == expected.dtype, what
        np.testing.assert_array_equal(result, expected, str(what))
        return
    assert result.dtype.kind == "f", what  # floats of ints are float32 here
    allowed = 1e-5 if result.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(result, expected, rtol=allowed, atol=allowed, err_msg=str(what))


def agree(cases: list[tuple[str, np.ndarray, dict[str, Any]]]) -> None:
    """Compare calls with constants to NumPy's."""
    nodes = [getattr(mg, name)(mg.constant(x), **options) for name, x, options in cases]
    for result, (name, x, options) in zip(values(nodes), cases, strict=True):
        assert_same(result, reference(name, x, **options), (name, x.dtype, options))


def options_of(name: str, x: np.ndarray, mask: np.ndarray, axis: Any) -> list[dict[str, Any]]:
    """Return the calls of a function with a mask that are worth comparing."""
    base = {"where": mask, "axis": axis, "keepdims": axis == -1}
    if name in NEEDING:
        return [{**base, "initial": start} for start in STARTS[x.dtype.kind]]
    if name in BEGINNING:
        return [base, {**base, "initial": 3}]
    if name.endswith(("std", "var")):
        # With fewer elements than degrees of freedom functions that leave NaN out give NaN, also
        # of ints (NumPy inf there), and without a mask the divisor is negative here (NumPy: 0).
        most = 3 if mask.size > 1 and (x.dtype.kind == "f" or name in AVERAGES) else 1
        return [{**base, "ddof": ddof} for ddof in range(most + 1)]
    return [base]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", DATA)
def test_masks_are_those_of_numpy(dtype: str, mask: str) -> None:
    x = DATA[dtype]
    agree(
        [
            (name, x, options)
            for name in EVERY
            for axis in AXES
            for options in options_of(name, x, MASKS[mask], axis)
        ]
    )


@pytest.mark.parametrize("dtype", DATA)
def test_initial_values_without_a_mask(dtype: str) -> None:
    x = DATA[dtype]
    agree(
        [
            (name, x, {"initial": start, "axis": axis})
            for name in BEGINNING
            for axis in AXES
            for start in STARTS[x.dtype.kind]
        ]
    )


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (0, 0), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int16", "bool"])
def test_nothing_at_all(dtype: str, shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, dtype)
    axes: list[Any] = [None, 0, -1, tuple(range(len(shape)))]
    cases = [
        (name, x, {"axis": axis, "keepdims": keep, "where": mask} | start)
        for name in EVERY
        for axis in axes
        for keep in (False, True)
        for mask in (np.True_, np.zeros(shape[-1:], bool))
        for start in ([{"initial": True}] if name in BEGINNING else [{}])
    ]
    agree(cases)


HOLES = np.array([[1.0, NAN, 3.0, INF], [-INF, 2.0, NAN, 0.5], [NAN, NAN, NAN, NAN]])
ALLOWED = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0]], bool)


def calls(name: str) -> dict[str, Any]:
    """Return the options with which a function takes a mask."""
    if name not in NEEDING:
        return {}
    return {"initial": -9.0 if "max" in name else 9.0}


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_what_is_masked_out_may_be_anything(axis: Any) -> None:
    agree([(n, HOLES, {"axis": axis, "where": ALLOWED} | calls(n)) for n in EVERY])
    # What counts, counts: NaN that is let through comes out, but from functions that leave it out.
    through = ALLOWED | (np.arange(4) == 1)
    agree([(n, HOLES, {"axis": axis, "where": through} | calls(n)) for n in EVERY])
    starts = [{"initial": start, "where": ALLOWED, "axis": axis} for start in (NAN, INF, -INF, 0.0)]
    agree([(n, HOLES, start) for n in NAN_EXTREMA for start in starts])
    agree([(n, HOLES, {"initial": s, "axis": axis}) for n in NAN_EXTREMA for s in (NAN, -INF, 0.0)])


@pytest.mark.parametrize("name", [n for n in EVERY if n not in TRUTHS])
def test_gradients_skip_what_is_masked_out(name: str) -> None:
    x = mg.input("x", HOLES.shape, "float64")
    options = {"axis": 1, "where": ALLOWED} | calls(name)
    result = getattr(mg, name)(x, **options)
    slope = value(mg.grad(mg.sum(result[:2]), x), {x: HOLES})
    assert np.isfinite(slope).all()
    assert (slope[~ALLOWED] == 0).all()
    if name not in ("std", "nanstd"):  # of one summand or two equal ones: 0 by convention
        clean = np.where(ALLOWED, HOLES, 7.0)
        same = value(mg.grad(mg.sum(result[:2]), x), {x: clean})
        np.testing.assert_array_equal(slope, same)
        assert name.endswith("var") or slope[0].any()


SMOOTH = np.array([[0.3, -1.2, 0.9, 2.1], [1.4, 0.2, -0.7, -2.2], [0.8, 1.9, -1.1, 0.6]])


@pytest.mark.parametrize("name", [n for n in EVERY if n not in TRUTHS])
def test_gradients_agree_with_differences(name: str) -> None:
    weights = np.array([1.0, -2.0, 0.5])
    masks = [MASKS["row"], ALLOWED | (np.arange(4) > 1), mg.constant(SMOOTH > -1.0)]
    for mask in masks:
        start = {"initial": -0.1 if "max" in name else 0.1} if name in NEEDING else {}
        mg.check_gradients(
            lambda x, m=mask, s=start: mg.sum(
                mg.asarray(weights) * getattr(mg, name)(x, axis=1, where=m, **s)
            ),
            (SMOOTH,),
        )
    if name in BEGINNING:
        mg.check_gradients(
            lambda x, s: mg.sum(getattr(mg, name)(x, axis=0, initial=s) ** 2),
            (SMOOTH, np.array(1.1)),
        )


def test_ties_with_the_initial_value_share_the_gradient() -> None:
    x = mg.input("x", (3,), "float64")
    start = mg.input("start", (), "float64")
    feeds = {x: np.array([1.0, 2.0, 5.0]), start: 2.0}
    mask = [True, True, False]
    for name, sign in (("max", 1.0), ("min", -1.0)):
        result = getattr(mg, name)(x * sign, initial=start * sign, where=mask)
        slopes = values(mg.grad(result * sign, [x, start]), feeds)
        np.testing.assert_array_equal(slopes[0], [0.0, 0.5, 0.0])
        assert slopes[1] == 0.5


def test_an_empty_operand_has_a_gradient() -> None:
    x = mg.input("x", (0, 2), "float64")
    for name in NEEDING:
        slope = mg.grad(mg.sum(getattr(mg, name)(x, axis=0, initial=1.0)), x)
        assert value(slope, {x: np.zeros((0, 2))}).shape == (0, 2)


@pytest.mark.parametrize("name", EVERY)
def test_without_the_options_the_graph_is_the_same(name: str) -> None:
    x = mg.input("x", ("rows", 4))
    function = getattr(mg, name)
    plain = function(x, 0)
    options: list[dict[str, Any]] = [{"where": True}, {"where": np.True_}]
    if name in BEGINNING:
        options.append({"initial": None})
    for each in options:
        assert mg.show(function(x, 0, **each)).text() == mg.show(plain).text()
    operations = {"sum": 1, "prod": 1, "max": 1, "min": 1, "any": 2, "all": 2}  # a cast to bool
    if name in operations:
        depth, node = 0, plain
        while node.inputs:
            depth, node = depth + 1, node.inputs[0]
        assert (depth, node) == (operations[name], x)


@pytest.mark.parametrize("name", EVERY)
def test_masks_over_named_axes_compiled(name: str) -> None:
    x = mg.input("x", ("rows", 4))
    mask = mg.input("mask", ("rows", 1), "bool")
    line = mg.input("line", (4,), "bool")
    function = getattr(mg, name)
    by_rows = function(x, axis=0, where=mask, **calls(name))
    by_lines = function(x, where=line, **calls(name))
    f = mg.function([x, mask, line], [by_rows, by_lines], device="cpu")
    for rows in (3, 1):
        data = NUMBERS.reshape(6, 4)[:rows].astype(np.float32)
        feeds = data, np.arange(rows)[:, None] != 1, np.array([True, True, False, True])
        for result, mask_of, axis in zip(f(*feeds), feeds[1:], (0, None), strict=True):
            expected = reference(name, data, axis=axis, where=mask_of, **calls(name))
            assert_same(result, expected, (name, rows))


def test_a_named_axis_without_elements() -> None:
    x = mg.input("x", ("rows", 2))
    f = mg.function([x], [mg.max(x, axis=0, initial=1.5), mg.min(x, initial=-2.0)], device="cpu")
    most, least = f(np.zeros((0, 2), np.float32))
    np.testing.assert_array_equal(most, [1.5, 1.5])
    assert least == -2.0


@pytest.mark.parametrize("name", PLAIN)
def test_methods_take_the_same(name: str) -> None:
    x = mg.constant(NUMBERS)
    options = {"axis": 1, "keepdims": True, "where": MASKS["full"]} | calls(name)
    if name in FOLDS:
        options |= {"initial": 2.0, "dtype": "float32"}
    result = value(getattr(x, name)(**options))
    assert_same(result, reference(name, NUMBERS, **options), name)


@pytest.mark.parametrize("name", [*FOLDS, "mean", *NAN_FOLDS])
def test_the_dtype_is_that_of_the_elements(name: str) -> None:
    options = {"where": MASKS["full"], "axis": 1}
    result = value(getattr(mg, name)(mg.constant(NUMBERS), dtype="float32", **options))
    assert result.dtype == np.float32
    assert_same(result, reference(name, NUMBERS, **options), name)


def test_narrow_floats_are_counted_and_added_in_float32() -> None:
    x = np.full(4096, 1.001, np.float16)
    mask = np.arange(4096) != 7
    for name in ("mean", "nanmean"):
        result = value(getattr(mg, name)(mg.constant(x), where=mask))
        assert result.dtype == np.float16
        assert result == x[0]
    result = value(mg.max(mg.cast(mg.constant(x), "bfloat16"), where=mask, initial=0.5))
    assert result.dtype.name == "bfloat16"
    assert float(result) == 1.0


def test_complex_numbers() -> None:
    x = NUMBERS[0] + 1j * NUMBERS[1]
    options = {"axis": 1, "where": MASKS["row"]}
    for name in ("sum", "prod", "mean", "std", "var", "all", "any"):
        result = value(getattr(mg, name)(mg.constant(x), **options))
        np.testing.assert_allclose(result, reference(name, x, **options), rtol=1e-12)
    result = value(mg.sum(mg.constant(x), initial=1j))
    np.testing.assert_allclose(result, x.sum() + 1j)


@pytest.mark.parametrize("name", EVERY)
def test_wrong_masks_are_refused(name: str) -> None:
    x = mg.input("x", (1, 3))
    function = getattr(mg, name)
    called = "variance" if name == "var" else name
    more = calls(name)
    with pytest.raises(mg.DTypeError, match=f"{called}: where is int32.*\n.*bools"):
        function(x, where=[1, 0, 1], **more)
    for mask in (np.ones((2, 3), bool), np.ones((1, 1, 3), bool), np.ones(4, bool)):
        with pytest.raises(mg.ShapeError, match=rf"{called}: where of shape \(.*shape \(1, 3\)"):
            function(x, where=mask, **more)
    unsized = mg.input("named", ("n", 3))
    with pytest.raises(mg.ShapeError, match=f"{called}: where of shape"):
        function(unsized, where=mg.input("mask", ("m", 3), "bool"), **more)
    with pytest.raises(TypeError):
        function(x, 0, False, None, 0, [True, True, True])  # keyword-only, as in NumPy


@pytest.mark.parametrize("name", NEEDING)
def test_extrema_need_an_initial_value_beside_a_mask(name: str) -> None:
    x = mg.input("x", (3,))
    with pytest.raises(mg.ConfigError, match=f"{name}: where= without initial=") as error:
        getattr(mg, name)(x, where=[True, False, True])
    assert isinstance(error.value, ValueError)  # as NumPy's
    with pytest.raises(ValueError, match="initial"):
        getattr(np, name)(np.zeros(3), where=[True, False, True])


@pytest.mark.parametrize("name", BEGINNING)
def test_wrong_initial_values_are_refused(name: str) -> None:
    function = getattr(mg, name)
    small = mg.input("small", (3,), "uint8")
    with pytest.raises(mg.ShapeError, match=rf"{name}: initial of shape \(2,\)"):
        function(small, initial=[1, 2])
    with pytest.raises(mg.DTypeError, match=f"{name}: initial is float32"):
        function(small, initial=0.5)
    with pytest.raises(mg.DTypeError, match=f"{name}: initial is 'start' float32"):
        function(small, initial=mg.input("start", ()))
    limit = "uint32" if name in (*FOLDS, *NAN_FOLDS) else "uint8"
    with pytest.raises(mg.DTypeError, match=f"{name}: initial=-1 does not fit into {limit}"):
        function(small, initial=-1)
    with pytest.raises(mg.DTypeError, match=f"{name}: initial is complex64"):
        function(mg.input("x", (3,)), initial=1j)
    with pytest.raises(TypeError, match="initial"):
        mg.mean(small, initial=0)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["count_nonzero", "argmax", "argmin", "ptp"])
def test_functions_without_a_mask_in_numpy_have_none_here(name: str) -> None:
    with pytest.raises(TypeError, match="where"):
        getattr(np, name)(np.zeros(3), where=[True, False, True])
    with pytest.raises(TypeError, match="where"):
        getattr(mg, name)(mg.input("x", (3,)), where=[True, False, True])


@pytest.mark.parametrize(
    "clip", [mg.clip, lambda x, *a, **names: x.clip(*a, **names)], ids=["function", "method"]
)
def test_clip_has_both_names(clip: Callable[..., mg.Node]) -> None:
    x = mg.constant(NUMBERS)
    both = {"a_min": -1.0, "a_max": 0.5}
    np.testing.assert_array_equal(value(clip(x, **both)), np.clip(NUMBERS, **both))
    np.testing.assert_array_equal(value(clip(x, a_min=0.0)), np.clip(NUMBERS, 0.0, None))
    np.testing.assert_array_equal(
        value(clip(x, a_min=None, a_max=0.0)), np.clip(NUMBERS, a_min=None, a_max=0.0)
    )
    for mixed in ({"min": 0.0, "a_max": 1.0}, {"max": 0.0, "a_max": 1.0}, {"min": 0, "a_min": 0}):
        with pytest.raises(mg.ConfigError, match="clip: the ends are given as min or max and as"):
            clip(x, **mixed)
    with pytest.raises(ValueError, match="a_max"):
        clip(x, 0.0, a_max=1.0)
