"""Options of means, deviations and their like: dtype, mean, ddof beyond the count, keepdims."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from interpreted import assert_close, value, values

import magmagraph as mg
from magmagraph.errors import DTypeError, ShapeError

RANDOM = np.random.default_rng(11)
X = RANDOM.normal(size=(2, 3, 4))
HOLES = np.where(RANDOM.random((2, 3, 4)) < 0.3, np.nan, X)
COMPLEX = HOLES + 1j * RANDOM.normal(size=(2, 3, 4))
DEVIATIONS = ("var", "std", "nanvar", "nanstd")


def reference(name: str, x: Any, **options: Any) -> np.ndarray:
    """Return what NumPy gives, without its warnings of degrees of freedom and of NaN."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(getattr(np, name)(x, **options))


@pytest.mark.parametrize("name", DEVIATIONS)
def test_ddof_up_to_and_beyond_the_count(name: str) -> None:
    for x in (X, HOLES if "nan" in name else X + 1j * X[::-1], np.ones((2, 3)), np.zeros((0, 3))):
        for ddof in (0, 1, 2.5, 3, 4, 24, 30):
            for axis in (None, 0, -1):
                result = getattr(mg, name)(mg.constant(x), axis=axis, ddof=ddof)
                assert_close(value(result), reference(name, x, axis=axis, ddof=ddof))


@pytest.mark.parametrize("name", DEVIATIONS)
def test_ddof_beyond_a_named_extent(name: str) -> None:
    x = mg.input("x", ("n", 2), "float64")
    f = mg.function([x], [getattr(mg, name)(x, axis=0, ddof=d) for d in (1, 2, 3)])
    for rows in (0, 1, 2, 3, 4):
        data = RANDOM.normal(size=(rows, 2))
        for result, ddof in zip(f(data), (1, 2, 3), strict=True):
            assert_close(result, reference(name, data, axis=0, ddof=ddof))


def test_ddof_as_a_node() -> None:
    ddof = mg.input("ddof", (), "float64")
    f = mg.function([ddof], [getattr(mg, name)(mg.constant(X), ddof=ddof) for name in DEVIATIONS])
    for correction in (0.0, 1.0, 3.5):
        for result, name in zip(f(correction), DEVIATIONS, strict=True):
            assert_close(result, reference(name, X, ddof=correction))


@pytest.mark.parametrize("name", [*DEVIATIONS, "mean", "nanmean"])
def test_dtype_of_the_result(name: str) -> None:
    for x in (X.astype(np.float32), np.round(X * 9).astype(np.int32)):
        for dtype in ("float64", "float32", "float16"):
            node = getattr(mg, name)(mg.constant(x), axis=1, dtype=dtype)
            assert node.dtype == dtype
            expected = reference(name, x.astype(np.float64), axis=1)
            assert_close(value(node), expected, dtype, scale=np.abs(expected).max())
    with pytest.raises(DTypeError, match=r"dtype=int32\n.*\n  try: mg.cast\(mg\."):
        getattr(mg, name)(X, dtype="int32")


@pytest.mark.parametrize("name", DEVIATIONS)
def test_a_mean_that_is_known(name: str) -> None:
    plain = "nanmean" if "nan" in name else "mean"
    for axis in (None, 0, (0, 2)):
        data = HOLES if "nan" in name else X
        center = reference(plain, data, axis=axis, keepdims=True)
        for mean in (center, center + 0.25):
            result = getattr(mg, name)(mg.constant(data), axis=axis, mean=mean)
            assert_close(value(result), reference(name, data, axis=axis, mean=mean))
    with pytest.raises(ShapeError, match=r"mean of shape \(3, 4\) for elements of \(2, 3, 4\)"):
        getattr(mg, name)(X, axis=0, mean=X[0])


def test_the_gradient_flows_through_a_mean_that_is_known() -> None:
    x = mg.input("x", (5,), "float64")
    with_mean = mg.grad(mg.variance(x, mean=mg.mean(x, keepdims=True)), x)
    data = RANDOM.normal(size=5)
    result, expected = values([with_mean, mg.grad(mg.variance(x), x)], {x: data})
    assert_close(result, expected)


@pytest.mark.parametrize("name", ["nanmean", "nanvar", "nanstd"])
def test_complex_numbers_without_nan(name: str) -> None:
    for axis in (None, 1):
        assert_close(
            value(getattr(mg, name)(mg.constant(COMPLEX), axis=axis)),
            reference(name, COMPLEX, axis=axis),
        )


def test_correction_is_ddof() -> None:
    for name in DEVIATIONS:
        result, expected = values(
            [getattr(mg, name)(X, correction=1), getattr(mg, name)(X, ddof=1)]
        )
        assert result == expected
    x = mg.constant(X)
    result, expected = values([x.std(correction=1, dtype="float64"), mg.std(x, ddof=1)])
    assert result == expected


@pytest.mark.parametrize(
    "name",
    [
        "sum",
        "prod",
        "max",
        "min",
        "mean",
        "all",
        "any",
        "argmax",
        "argmin",
        "var",
        "std",
        "nansum",
        "nanprod",
        "nanmax",
        "nanmin",
        "nanmean",
        "nanvar",
        "nanstd",
        "nanargmax",
        "median",
        "nanmedian",
        "logsumexp",
        "count_nonzero",
        "ptp",
        "average",
    ],
)
def test_keepdims_is_a_bool(name: str) -> None:
    function = getattr(mg, name)
    for keepdims in ("float64", np.float32, 2, X, mg.constant(True)):
        with pytest.raises(DTypeError, match="keepdims is"):
            function(X, axis=0, keepdims=keepdims)
    for keepdims in (True, 1, np.True_):
        assert function(X, axis=0, keepdims=keepdims).shape == (1, 3, 4)
    for keepdims in (False, 0, None):
        assert function(X, axis=0, keepdims=keepdims).shape == (3, 4)


def test_numpy_order_of_arguments_names_the_mend() -> None:
    with pytest.raises(DTypeError, match="try: dtype='float64', by its name"):
        mg.sum(X, 0, "float64")  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="try: dtype='float64', by its name"):
        mg.std(X, 0, np.float64)
    with pytest.raises(DTypeError, match="std: ddof=None"):
        mg.std(X, 0, None)
    with pytest.raises(ShapeError, match="std: ddof is an array"):
        mg.std(X, 0, np.arange(3))
