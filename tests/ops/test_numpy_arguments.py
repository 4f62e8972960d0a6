"""Arguments that NumPy's functions take, here as there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpreted import assert_close, value, values

import magmagraph as mg
from magmagraph.errors import ConfigError, DTypeError, ShapeError

RANDOM = np.random.default_rng(17)
CUBE = RANDOM.normal(size=(2, 3, 4))
MATRIX = RANDOM.normal(size=(5, 3))


# The order of elements.


@pytest.mark.parametrize("order", ["C", "F", "A"])
def test_order_of_reshape_and_ravel(order: Any) -> None:
    x = mg.constant(CUBE)
    for shape in ((6, 4), (4, -1), (-1,), (2, 3, 4), (1, 24, 1)):
        wanted = np.reshape(CUBE, shape, order=order)
        found = values([mg.reshape(x, shape, order), x.reshape(shape, order=order)])
        np.testing.assert_array_equal(found[0], wanted)
        np.testing.assert_array_equal(found[1], wanted)
    for node in (mg.ravel(x, order), x.ravel(order), x.flatten(order)):
        np.testing.assert_array_equal(value(node), CUBE.ravel(order))
    assert mg.reshape(x, CUBE.shape, order) is x or order == "A"


def test_order_with_named_extents_and_gradients() -> None:
    x = mg.input("x", ("n", 3), "float64")
    columns = mg.reshape(x, (3, -1), order="F")
    assert columns.shape == (3, x.shape[0])
    np.testing.assert_array_equal(
        value(columns, {x: MATRIX}), np.reshape(MATRIX, (3, -1), order="F")
    )
    weights = RANDOM.normal(size=15)
    gradient = mg.grad(mg.sum(mg.ravel(x, "F") * mg.constant(weights)), x)
    np.testing.assert_array_equal(
        value(gradient, {x: MATRIX}), np.reshape(weights, (5, 3), order="F")
    )


def test_order_of_positions() -> None:
    flat = np.array([0, 7, 23, 11])
    for order in ("C", "F"):
        wanted = np.unravel_index(flat, (2, 3, 4), order)  # type: ignore[call-overload]
        found = values(list(mg.unravel_index(flat, (2, 3, 4), order)))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
        back = value(mg.ravel_multi_index(wanted, (2, 3, 4), order=order))
        np.testing.assert_array_equal(back, flat)


@pytest.mark.parametrize("function", [mg.ravel, lambda x, order: mg.reshape(x, (-1,), order)])
def test_order_is_known(function: Any) -> None:
    with pytest.raises(ConfigError, match="order='R'\n  needed: 'C', along the last axis first"):
        function(CUBE, "R")


# Joining.


@pytest.mark.parametrize("name", ["concatenate", "concat", "stack", "hstack", "vstack"])
def test_dtype_of_joined_arrays(name: str) -> None:
    arrays = [np.arange(3, dtype=np.int8), np.arange(3, dtype=np.int16)]
    for dtype, casting in (("float32", "same_kind"), ("int8", "same_kind"), ("float64", "safe")):
        found = getattr(mg, name)(arrays, dtype=dtype, casting=casting)
        wanted = getattr(np, name)(arrays, dtype=dtype, casting=casting)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(value(found), wanted)
    floats = [np.ones(2), np.ones(2, np.float32)]
    for dtype, casting in (("int32", "same_kind"), ("float32", "safe"), ("float32", "no")):
        with pytest.raises(TypeError):
            getattr(np, name)(floats, dtype=dtype, casting=casting)
        with pytest.raises(DTypeError, match=f"is not cast to {dtype} by casting='{casting}'"):
            getattr(mg, name)(floats, dtype=dtype, casting=casting)
    truncated = getattr(mg, name)(floats, dtype="int32", casting="unsafe")
    assert truncated.dtype == np.int32
    assert getattr(mg, name)(floats, dtype="bfloat16").dtype.name == "bfloat16"
    with pytest.raises(ConfigError, match="casting='maybe'"):
        getattr(mg, name)(floats, dtype="float32", casting="maybe")


# Sums of products.


def test_einsum_of_numbered_axes() -> None:
    a, b = RANDOM.normal(size=(2, 3, 4)), RANDOM.normal(size=(4, 5))
    for given in (
        (a, [0, 1, 2], b, [2, 3], [1, 3]),
        (a, [0, 1, 2], b, [2, 3]),
        (a, [5, 30, 2], b, [2, 51]),
        (a, [..., 2], b, [2, 3], [..., 3]),
        (b, [1, 0]),
        (a, [0, 1, 2], [2, 0]),
    ):
        assert_close(value(mg.einsum(*given)), np.einsum(*given))
        assert_close(value(mg.einsum(*given, optimize=True)), np.einsum(*given))
    assert_close(
        value(mg.einsum("ijk,kl->l", a, b, optimize="optimal")), np.einsum("ijk,kl->l", a, b)
    )
    with pytest.raises(ShapeError, match=r"einsum: \[0, 99\] stands where the axes"):
        mg.einsum(b, [0, 99])
    with pytest.raises(ShapeError, match=r"einsum: the subscripts are ndarray"):
        mg.einsum(b, b)


# Statistics.


def test_dtype_of_covariances() -> None:
    for name in ("cov", "corrcoef"):
        for dtype in ("float32", "float64"):
            found = getattr(mg, name)(MATRIX.astype(np.float32), dtype=dtype)
            assert found.dtype == dtype
            wanted = getattr(np, name)(MATRIX.astype(np.float32).astype(dtype))
            assert_close(value(found), wanted, dtype)
        with pytest.raises(DTypeError, match="dtype=int32"):
            getattr(mg, name)(MATRIX, dtype="int32")


METHODS = (
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf",
    "hazen", "weibull", "linear", "median_unbiased", "normal_unbiased", "lower", "higher",
    "midpoint", "nearest",
)  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_quantiles(method: Any) -> None:
    parts = np.linspace(0, 1, 41)
    for count in (1, 2, 3, 4, 5, 10):
        x = np.round(RANDOM.normal(size=(count, 3)), 3)
        found = values(
            [
                mg.quantile(x, parts, axis=0, method=method),
                mg.nanquantile(x, parts, axis=0, method=method),
                mg.percentile(x, 50, axis=0, method=method),
            ]
        )
        wanted = np.quantile(x, parts, axis=0, method=method)
        assert_close(found[0], wanted)
        assert_close(found[1], wanted)
        assert_close(found[2], np.percentile(x, 50, axis=0, method=method))


# Linear algebra.


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_svd_of_hermitian_matrices(dtype: str) -> None:
    a = RANDOM.normal(size=(2, 4, 4)).astype(dtype)
    if dtype == "complex128":
        a = a + 1j * RANDOM.normal(size=a.shape)
    a = a + np.conj(np.swapaxes(a, -1, -2))
    a[1] -= a[1]  # no singular value but 0
    a[1, 0, 0] = -2.0
    left, sizes, right = values(list(mg.linalg.svd(a, hermitian=True)))
    assert_close(sizes, np.linalg.svd(a, compute_uv=False, hermitian=True))
    assert_close(left * sizes[..., None, :] @ right, a)
    for part in (left, right):
        eye = np.broadcast_to(np.eye(4), a.shape)
        assert_close(part @ np.conj(np.swapaxes(part, -1, -2)), eye)
    alone = mg.linalg.svd(a, compute_uv=False, hermitian=True)
    assert_close(value(alone), sizes)
    some = mg.linalg.svd(a, hermitian=True, full_matrices=False, k=2)
    assert [part.shape for part in some] == [(2, 4, 2), (2, 2), (2, 2, 4)]


def test_pinv_has_the_older_name_of_its_bound() -> None:
    a = np.diag([1.0, 0.2, 1e-3])
    for bound in (1e-4, 0.01, 0.5):
        assert_close(value(mg.linalg.pinv(a, rcond=bound)), np.linalg.pinv(a, rcond=bound))
    with pytest.raises(ConfigError, match="pinv: rtol and rcond are given"):
        mg.linalg.pinv(a, 0.1, rcond=0.1)


# Few or no elements.


def test_differences_of_few_elements() -> None:
    for x in (np.zeros(0), np.ones(1), np.ones((0, 3)), np.zeros((2, 0)), np.array([True])):
        for n in (0, 1, 2, 3):
            for axis in (0, -1):
                found, wanted = mg.diff(x, n=n, axis=axis), np.diff(x, n=n, axis=axis)
                assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        assert mg.ediff1d(x.astype(float)).shape == np.ediff1d(x.astype(float)).shape
        np.testing.assert_array_equal(value(mg.trapezoid(x)), np.trapezoid(x))
    assert mg.unwrap(np.zeros(0)).shape == (0,)


# Integers that grow.


def test_powers_of_narrow_integers_do_not_wrap() -> None:
    for dtype in ("int8", "uint8", "int32", "bool", "int64"):
        x = np.array([1, 7, 0]).astype(dtype)
        found, wanted = value(mg.vander(x, 4)), np.vander(x, 4)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


# Arguments that choose how NumPy works, and mean nothing here.


def test_arguments_without_effect_are_taken() -> None:
    assert value(mg.isin([1, 2], [2], assume_unique=True, kind="sort")).tolist() == [False, True]
    assert value(mg.isin([1, 2], [2], True, True)).tolist() == [True, False]
    assert value(mg.nan_to_num([np.nan], copy=False)).tolist() == [0.0]
    assert mg.meshgrid([1, 2], [3], copy=False)[0].shape == (1, 2)


# Spaced numbers.


def test_arange_of_floats() -> None:
    for given in (
        (5.0,),
        (0.0, 1.0, 0.1),
        (1, 2, 0.25),
        (3.5, -1, -0.5),
        (2.0, 1.0),
        (0, 7.5),
        (np.float32(0.5), 4),
    ):
        found = mg.arange(*given)
        wanted = np.arange(*given, dtype=np.float64)
        assert found.dtype == np.float32
        assert_close(value(found), wanted, "float32", scale=np.abs(wanted).max(initial=1.0))
        assert_close(value(mg.arange(*given, dtype="float64")), wanted)
    for given in ((0.0, 1.0, 0.0), (0.0, np.inf), (np.nan,)):
        with pytest.raises(ShapeError, match="needed: finite numbers, and a step other than 0"):
            mg.arange(*given)
    with pytest.raises(DTypeError, match="arange: stop is str beside floats"):
        mg.arange(0.5, "n")


# Random numbers, whose shape stands first.


@pytest.mark.parametrize("name", ["uniform", "normal", "randint"])
def test_the_shape_comes_first(name: str) -> None:
    with pytest.raises(ShapeError, match=rf"mend: mg.random.{name}\(\(2, 3\), 0, 1\)"):
        getattr(mg.random, name)(0, 1, (2, 3))
    assert getattr(mg.random, name)((2, 3), 0, 4).shape == (2, 3)
    assert getattr(mg.random, name)((2,), 0, np.array([3, 4])).shape == (2,)
