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
        expected = np.reshape(CUBE, shape, order=order)
        results = values([mg.reshape(x, shape, order), x.reshape(shape, order=order)])
        np.testing.assert_array_equal(results[0], expected)
        np.testing.assert_array_equal(results[1], expected)
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
        expected = np.unravel_index(flat, (2, 3, 4), order)  # type: ignore[call-overload]
        result = values(list(mg.unravel_index(flat, (2, 3, 4), order)))
        for one, other in zip(result, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        back = value(mg.ravel_multi_index(expected, (2, 3, 4), order=order))
        np.testing.assert_array_equal(back, flat)


@pytest.mark.parametrize("function", [mg.ravel, lambda x, order: mg.reshape(x, (-1,), order)])
def test_order_is_known(function: Any) -> None:
    with pytest.raises(ConfigError, match="order='R'\n  expected: 'C', along the last axis first"):
        function(CUBE, "R")


# Joining.


@pytest.mark.parametrize("name", ["concatenate", "concat", "stack", "hstack", "vstack"])
def test_dtype_of_joined_arrays(name: str) -> None:
    arrays = [np.arange(3, dtype=np.int8), np.arange(3, dtype=np.int16)]
    for dtype, casting in (("float32", "same_kind"), ("int8", "same_kind"), ("float64", "safe")):
        result = getattr(mg, name)(arrays, dtype=dtype, casting=casting)
        expected = getattr(np, name)(arrays, dtype=dtype, casting=casting)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(value(result), expected)
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
    for arguments in (
        (a, [0, 1, 2], b, [2, 3], [1, 3]),
        (a, [0, 1, 2], b, [2, 3]),
        (a, [5, 30, 2], b, [2, 51]),
        (a, [..., 2], b, [2, 3], [..., 3]),
        (b, [1, 0]),
        (a, [0, 1, 2], [2, 0]),
    ):
        assert_close(value(mg.einsum(*arguments)), np.einsum(*arguments))
        assert_close(value(mg.einsum(*arguments, optimize=True)), np.einsum(*arguments))
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
            result = getattr(mg, name)(MATRIX.astype(np.float32), dtype=dtype)
            assert result.dtype == dtype
            expected = getattr(np, name)(MATRIX.astype(np.float32).astype(dtype))
            assert_close(value(result), expected, dtype)
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
        results = values(
            [
                mg.quantile(x, parts, axis=0, method=method),
                mg.nanquantile(x, parts, axis=0, method=method),
                mg.percentile(x, 50, axis=0, method=method),
            ]
        )
        expected = np.quantile(x, parts, axis=0, method=method)
        assert_close(results[0], expected)
        assert_close(results[1], expected)
        assert_close(results[2], np.percentile(x, 50, axis=0, method=method))


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
                result, expected = mg.diff(x, n=n, axis=axis), np.diff(x, n=n, axis=axis)
                assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        assert mg.ediff1d(x.astype(float)).shape == np.ediff1d(x.astype(float)).shape
        np.testing.assert_array_equal(value(mg.trapezoid(x)), np.trapezoid(x))
    assert mg.unwrap(np.zeros(0)).shape == (0,)
    ends = {"prepend": 1.0, "append": 2.0}
    for n in (0, 1, 2):
        expected = np.diff(MATRIX, n, 0, **ends)
        np.testing.assert_allclose(value(mg.diff(MATRIX, n, 0, **ends)), expected)


# Integers that grow.


def test_powers_of_narrow_integers_do_not_wrap() -> None:
    for dtype in ("int8", "uint8", "int32", "bool", "int64"):
        x = np.array([1, 7, 0]).astype(dtype)
        result, expected = value(mg.vander(x, 4)), np.vander(x, 4)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)


# Arguments that choose how NumPy works, and mean nothing here.


def test_arguments_without_effect_are_taken() -> None:
    assert value(mg.isin([1, 2], [2], assume_unique=True, kind="sort")).tolist() == [False, True]
    assert value(mg.isin([1, 2], [2], True, True)).tolist() == [True, False]
    assert value(mg.nan_to_num([np.nan], copy=False)).tolist() == [0.0]
    assert mg.meshgrid([1, 2], [3], copy=False)[0].shape == (1, 2)


# Spaced numbers.


def test_arange_of_floats() -> None:
    for arguments in (
        (5.0,),
        (0.0, 1.0, 0.1),
        (1, 2, 0.25),
        (3.5, -1, -0.5),
        (2.0, 1.0),
        (0, 7.5),
        (np.float32(0.5), 4),
    ):
        result = mg.arange(*arguments)
        expected = np.arange(*arguments, dtype=np.float64)
        assert result.dtype == np.float32
        assert_close(value(result), expected, "float32", scale=np.abs(expected).max(initial=1.0))
        assert_close(value(mg.arange(*arguments, dtype="float64")), expected)
    for arguments in ((0.0, 1.0, 0.0), (0.0, np.inf), (np.nan,)):
        with pytest.raises(ShapeError, match="expected: finite numbers, and a step other than 0"):
            mg.arange(*arguments)
    with pytest.raises(DTypeError, match="arange: stop is str beside floats"):
        mg.arange(0.5, "n")


# Random numbers, whose shape stands first.


@pytest.mark.parametrize("name", ["uniform", "normal", "randint"])
def test_the_shape_comes_first(name: str) -> None:
    with pytest.raises(ShapeError, match=rf"try: mg.random.{name}\(\(2, 3\), \w+=0, \w+=1\)"):
        getattr(mg.random, name)(0, 1, (2, 3))
    assert getattr(mg.random, name)((2, 3), 0, 4).shape == (2, 3)
    assert getattr(mg.random, name)((2,), 0, np.array([3, 4])).shape == (2,)


# Elementwise functions compute in the dtype that is asked for.


@pytest.mark.parametrize("name", ["exp", "sqrt", "negative", "add", "multiply", "power", "arctan2"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_dtype_of_elementwise_functions(name: str, dtype: str) -> None:
    integers = np.array([1, 2, 3], np.int32)
    operands: tuple[Any, ...] = (
        (integers,) if name in ("exp", "sqrt", "negative") else (integers, 0.1)
    )
    nodes = [mg.constant(v) if isinstance(v, np.ndarray) else v for v in operands]
    result = value(getattr(mg, name)(*nodes, dtype=dtype))
    expected = getattr(np, name)(*operands, dtype=dtype)
    assert result.dtype == expected.dtype  # 0.1 has all digits of float64 there
    np.testing.assert_allclose(result, expected, rtol=3e-7 if dtype == "float32" else 1e-15)


def test_casts_that_elementwise_functions_refuse() -> None:
    whole = mg.constant(np.array([1, 2], np.int32))
    with pytest.raises(DTypeError, match="is not cast to int32 by casting='same_kind'"):
        mg.add(whole, 0.5, dtype="int32")
    np.testing.assert_array_equal(
        value(mg.add(whole, 1.5, dtype="int32", casting="unsafe")), [2, 3]
    )
    with pytest.raises(DTypeError, match="exp: dtype=int32, in which it is not computed"):
        mg.exp(whole, dtype="int32")
    with pytest.raises(ConfigError, match="add: casting='some'"):
        mg.add(whole, 1, dtype="int64", casting="some")
    assert mg.add(whole, 1, dtype="int64").dtype == np.int64
    x = mg.input("x", (3,), "float32")
    slope = mg.grad(mg.sum(mg.sin(x, dtype="float64")), x)
    np.testing.assert_allclose(value(slope, {x: np.zeros(3, np.float32)}), 1.0)


# logsumexp with factors, softmax of what counts.


def _slopes(loss: Any, reference: Any, points: list[np.ndarray]) -> None:
    """Compare gradients with central differences of a reference, in float64."""
    nodes = [mg.input(f"p{i}", p.shape, "float64") for i, p in enumerate(points)]
    feeds = dict(zip(nodes, points, strict=True))
    for i, result in enumerate(values(mg.grad(loss(*nodes), nodes), feeds)):
        for place in np.ndindex(points[i].shape):
            ends = []
            for step in (1e-6, -1e-6):
                shifted = [p.copy() for p in points]
                shifted[i][place] += step
                ends.append(float(reference(*shifted)))
            assert result[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-7, abs=1e-7)


def test_gradients_of_logsumexp_with_factors() -> None:
    special = pytest.importorskip("scipy.special")
    factors = np.array([0.5, 0.0, -1.5, 2.0])  # 0 counts nowhere, and has a gradient

    def loss(x: Any, b: Any) -> Any:
        size, sign = mg.logsumexp(x, 1, b=b, return_sign=True)
        return mg.sum(size * size * sign)

    def reference(x: Any, b: Any) -> Any:
        size, sign = special.logsumexp(x, 1, b, return_sign=True)
        return (size * size * sign).sum()

    _slopes(loss, reference, [MATRIX[:3] @ RANDOM.normal(size=(3, 4)), factors])


def test_ends_of_logsumexp_with_factors() -> None:
    def found(x: Any, **options: Any) -> Any:
        return float(value(mg.logsumexp(np.array(x), **options)))

    assert found([1000.0, 0.0], b=[0.0, 1.0]) == 0.0  # what counts not does not set the scale
    assert found([np.inf, 0.0], b=[0.0, 1.0]) == 0.0
    assert found([np.inf, 0.0], b=[1.0, 1.0]) == np.inf
    assert found([1.0, 2.0], b=[1.0, 1.0], where=np.array([False, False])) == -np.inf
    assert np.isnan(found([1.0, 2.0], b=[-1.0, -1.0]))
    size, sign = mg.logsumexp(np.array([800.0, 800.0]), b=[1.0, -1.0], return_sign=True)
    assert float(value(size)) == -np.inf and float(value(sign)) == 0.0
    with pytest.raises(DTypeError, match="keepdims is"):  # SciPy's third argument, by its place
        mg.logsumexp(MATRIX, 0, np.ones(3))


def test_softmax_of_what_counts() -> None:
    mask = np.array([[True, False, True], [False, False, False], [True, True, True]])
    masked = np.where(mask, MATRIX[:3], np.nan)
    shares, logs = values(
        [f(mg.constant(masked), where=mask) for f in (mg.softmax, mg.log_softmax)]
    )
    assert (shares[~mask] == 0).all() and np.isneginf(logs[~mask]).all()
    np.testing.assert_allclose(shares.sum(1), [1, 0, 1], rtol=1e-15)
    np.testing.assert_allclose(np.log(shares[mask]), logs[mask], rtol=1e-13)
    x = mg.input("x", masked.shape, "float64")
    for function in (mg.softmax, mg.log_softmax):
        loss = mg.sum(mg.where(mask, function(x, where=mask), 0.0) ** 2)
        slope = value(mg.grad(loss, x), {x: masked})
        assert (slope[~mask] == 0).all() and np.isfinite(slope).all()
        assert np.abs(slope[[0, 2]][mask[[0, 2]]]).max() > 1e-3
    with pytest.raises(DTypeError, match="softmax: where is"):
        mg.softmax(x, where=mask.astype(int))


# Weighted quantiles, complex covariances, parts along an axis.


def test_weights_of_quantiles() -> None:
    generator = np.random.default_rng(5)
    for _ in range(20):
        x = generator.integers(0, 5, (3, 7)).astype(float)
        weights = generator.integers(0, 3, x.shape)
        weights[:, 0] += 1
        q = generator.uniform(size=3)
        for axis in (0, 1, None):
            expected = np.quantile(x, q, axis=axis, weights=weights + 1e-3, method="inverted_cdf")
            result = mg.quantile(mg.constant(x), q, axis, "inverted_cdf", weights=weights + 1e-3)
            np.testing.assert_array_equal(value(result), expected)
    x = np.array([[3.0, np.nan, 1.0], [5.0, 2.0, 4.0]])
    kind: Any = {"method": "inverted_cdf", "axis": 1, "weights": np.ones(3)}
    np.testing.assert_array_equal(value(mg.quantile(x, 0.5, **kind)), [np.nan, 4.0])
    np.testing.assert_array_equal(value(mg.nanquantile(x, 0.5, **kind)), [1.0, 4.0])
    kind["weights"] = np.zeros(3)
    assert np.isnan(value(mg.nanpercentile(x, 50, **kind))).all()
    weights = mg.input("weights", (3,))
    node = mg.percentile(x[1], 50, method="inverted_cdf", weights=weights)
    assert value(node, {weights: np.array([1, 0, 0], np.float32)}) == 5.0
    with pytest.raises(ShapeError, match="weights= with method='linear'"):
        mg.quantile(x, 0.5, weights=np.ones((2, 3)))
    with pytest.raises(DTypeError, match="complex weights"):
        mg.quantile(x, 0.5, method="inverted_cdf", weights=np.ones((2, 3), complex))


def test_weighted_quantiles_have_a_gradient() -> None:
    x = mg.input("x", (4,), "float64")
    node = mg.quantile(x, [0.1, 0.9], method="inverted_cdf", weights=[1, 5, 1, 1])
    slope = mg.grad(mg.sum(node * mg.constant([1.0, 10.0])), x)
    np.testing.assert_array_equal(
        value(slope, {x: np.array([2.0, 1.0, 4.0, 3.0])}), [0.0, 1.0, 10.0, 0.0]
    )


def test_covariances_of_complex_variables() -> None:
    z = MATRIX.T + 1j * RANDOM.normal(size=(3, 5))
    weights = np.array([1.0, 2.0, 0.5, 1.5, 3.0])
    for options in ({}, {"bias": True}, {"rowvar": False}, {"aweights": weights},
                    {"aweights": weights, "fweights": [1, 2, 1, 1, 3], "ddof": 0}):  # fmt: skip
        result = value(mg.cov(mg.constant(z), **options))
        np.testing.assert_allclose(result, np.cov(z, **options), rtol=1e-12, atol=1e-14)
    real = MATRIX[:, 0]
    np.testing.assert_allclose(value(mg.cov(z, real)), np.cov(z, real), rtol=1e-12, atol=1e-14)
    for more in ((), (real,)):
        expected = np.corrcoef(z, *more)
        np.testing.assert_allclose(value(mg.corrcoef(z, *more)), expected, rtol=1e-12, atol=1e-14)
    expected = np.average(z, axis=1, weights=weights)
    np.testing.assert_allclose(value(mg.average(z, 1, weights)), expected, rtol=1e-12)


def test_the_gradient_of_a_complex_covariance() -> None:
    point = MATRIX.T + 1j * RANDOM.normal(size=(3, 5))

    def loss(re: Any, im: Any) -> Any:
        return mg.sum(mg.absolute(mg.cov(mg.complex(re, im))) ** 2)

    def reference(re: Any, im: Any) -> Any:
        return (np.abs(np.cov(re + 1j * im)) ** 2).sum()

    _slopes(loss, reference, [point.real.copy(), point.imag.copy()])


def test_parts_along_an_axis() -> None:
    generator = np.random.default_rng(3)
    for dtype in ("int32", "float64", "float32", "bool"):
        x = generator.integers(0, 2, (6, 2, 2)).astype(dtype)
        for axis in (0, 1, 2, -1):
            options: Any = dict.fromkeys(("return_index", "return_inverse", "return_counts"), True)
            expected = np.unique(x, axis=axis, **options)
            size = expected[0].shape[axis]
            results = values(list(mg.unique(mg.constant(x), axis=axis, size=size, **options)))
            for one, other in zip(results, expected, strict=True):
                np.testing.assert_array_equal(one, other.reshape(one.shape))
    rows = mg.input("rows", ("n", 2), "int32")
    assert mg.unique(rows, axis=0, size="n").shape == rows.shape
    np.testing.assert_array_equal(
        value(mg.unique(rows, axis=0, size=2), {rows: np.array([[2, 1], [0, 5], [2, 1]], "int32")}),
        [[0, 5], [2, 1]],
    )
    with pytest.raises(ShapeError, match="unique: axis=2 is out of range for 2 axes"):
        mg.unique(rows, axis=2, size=2)
