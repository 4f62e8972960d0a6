"""Initializers: their distributions, shapes, seeds and errors."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.stats

import magmagraph as mg
from magmagraph.errors import ShapeError

LEVEL = 1e-6
RANDOM = [
    mg.init.uniform,
    mg.init.normal,
    mg.init.glorot_uniform,
    mg.init.glorot_normal,
    mg.init.he_uniform,
    mg.init.he_normal,
    mg.init.orthogonal,
]
FLOAT64 = np.dtype("float64")


@pytest.mark.parametrize("make", RANDOM, ids=lambda make: make.__name__)
def test_a_seed_gives_the_same_values(make: Any) -> None:
    initializer = make(seed=5)
    first = initializer((40, 30), FLOAT64)
    np.testing.assert_array_equal(first, initializer((40, 30), FLOAT64))
    np.testing.assert_array_equal(first, make(seed=5)((40, 30), FLOAT64))
    assert not np.array_equal(first, make(seed=6)((40, 30), FLOAT64))
    assert not np.array_equal(make()((40, 30), FLOAT64), make()((40, 30), FLOAT64))


@pytest.mark.parametrize("name", mg.init.__all__)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_variables_of_every_float_dtype(name: str, dtype: str) -> None:
    arguments = {"constant": (2.5,), "diagonal": (3.0,), "mask": (0.5,)}.get(name, ())
    initializer = getattr(mg.init, name)(*arguments, seed=1)
    variable = mg.var("W", shape=(6, 4), init=initializer, dtype=dtype)
    assert variable.dtype.name == dtype
    assert variable.value.shape == (6, 4)
    assert np.isfinite(variable.value.astype(np.float64)).all()


@pytest.mark.parametrize(
    ("initializer", "shape", "spread"),
    [
        (mg.init.glorot_normal(seed=1), (100, 300), math.sqrt(2 / 400)),
        (mg.init.he_normal(seed=1), (100, 300), math.sqrt(2 / 100)),
        (mg.init.he_normal(seed=1), (64, 32, 3, 3), math.sqrt(2 / (32 * 9))),
        (mg.init.glorot_normal(2.0, seed=1), (64, 32, 3, 3), 2 * math.sqrt(2 / (96 * 9))),
        (mg.init.normal(0.0, 0.3, seed=1), (200, 200), 0.3),
    ],
)
def test_normal_ones(initializer: Any, shape: Any, spread: float) -> None:
    values = initializer(shape, FLOAT64).ravel() / spread
    assert scipy.stats.kstest(values, "norm").pvalue > LEVEL


@pytest.mark.parametrize(
    ("initializer", "shape", "limit"),
    [
        (mg.init.glorot_uniform(seed=1), (100, 300), math.sqrt(6 / 400)),
        (mg.init.he_uniform(seed=1), (100, 300), math.sqrt(6 / 100)),
        (mg.init.uniform(-0.3, 0.3, seed=1), (200, 200), 0.3),
    ],
)
def test_uniform_ones(initializer: Any, shape: Any, limit: float) -> None:
    values = initializer(shape, FLOAT64).ravel() / limit
    assert scipy.stats.kstest(values, "uniform", (-1.0, 2.0)).pvalue > LEVEL


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_values_are_one_draw_in_float64_rounded_once(dtype: str) -> None:
    """However many are drawn at a time."""
    wanted, shape = np.dtype(dtype), (150, 130)
    for make, draw in (
        (mg.init.uniform(-2.0, 3.0, seed=7), lambda g: g.uniform(-2.0, 3.0, shape)),
        (mg.init.normal(1.0, 2.0, seed=7), lambda g: g.normal(1.0, 2.0, shape)),
    ):
        drawn = draw(np.random.default_rng(7))
        np.testing.assert_array_equal(make(shape, wanted), drawn.astype(wanted))


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (4, 2, 3)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    values = mg.init.orthogonal(2.0, seed=1)(shape, FLOAT64).reshape(shape[0], -1)
    few = values if values.shape[0] <= values.shape[1] else values.T
    np.testing.assert_allclose(few @ few.T, 4.0 * np.eye(len(few)), atol=1e-12)


def test_structured_ones() -> None:
    np.testing.assert_array_equal(mg.init.identity(2.0)((2, 3), FLOAT64), 2.0 * np.eye(2, 3))
    np.testing.assert_array_equal(
        mg.init.diagonal([1.0, 2.0])((3, 2), FLOAT64), [[1, 0], [0, 2], [0, 0]]
    )
    drawn = mg.init.diagonal(mg.init.normal(seed=1))((3, 3), FLOAT64)
    np.testing.assert_array_equal(np.diag(drawn), mg.init.normal(seed=1)((3,), FLOAT64))
    np.testing.assert_array_equal(
        mg.init.mask([[True, False]], [[2.0], [3.0]])((2, 2), FLOAT64), [[2, 0], [3, 0]]
    )
    assert abs(mg.init.mask(0.3, seed=1)((100, 100), FLOAT64).mean() - 0.3) < 0.03


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: mg.init.glorot_uniform()((3,), FLOAT64),
            "init.glorot_uniform: shape (3,) has no fan-in and fan-out",
        ),
        (
            lambda: mg.init.orthogonal()((), FLOAT64),
            "init.orthogonal: shape () has no fan-in and fan-out",
        ),
        (
            lambda: mg.init.identity()((2, 2, 2), FLOAT64),
            "init.identity: shape (2, 2, 2) is not a matrix's",
        ),
        (
            lambda: mg.init.diagonal([1.0, 2.0])((3, 3), FLOAT64),
            "init.diagonal: values of shape (2,) for shape (3, 3)",
        ),
        (
            lambda: mg.init.constant([1.0, 2.0])((3,), FLOAT64),
            "init.constant: a value of shape (2,) for shape (3,)",
        ),
        (
            lambda: mg.init.mask([True, False])((3,), FLOAT64),
            "init.mask: a pattern of shape (2,) for shape (3,)",
        ),
        (lambda: mg.init.mask(1.5), "init.mask: a share of 1.5"),
        (lambda: mg.init.normal(std=-1.0), "init.normal: std=-1.0 is negative"),
        (lambda: mg.init.uniform(1.0, 0.0), "init.uniform: low=1.0 is above high=0.0"),
    ],
)
def test_impossible_ones(call: Any, text: str) -> None:
    with pytest.raises(ShapeError) as caught:
        call()
    assert str(caught.value).splitlines()[0] == text


@pytest.mark.parametrize("name", mg.init.__all__)
def test_a_function_in_place_of_its_initializer(name: str) -> None:
    """``init=mg.init.zeros`` lacks its call, and the message says so."""
    with pytest.raises(mg.DTypeError, match=rf"init is the function mg\.init\.{name}"):
        mg.var("w", shape=(2, 2), init=getattr(mg.init, name))


@pytest.mark.parametrize(
    "initializer",
    [
        *(make(seed=3) for make in RANDOM),
        mg.init.zeros(),
        mg.init.constant(np.arange(4.0)),
        mg.init.identity(2.0),
        mg.init.diagonal(mg.init.normal(seed=1)),
        mg.init.mask(0.5, mg.init.ones(), seed=1),
    ],
)
def test_initializers_pickle(initializer: Any) -> None:
    twin = pickle.loads(pickle.dumps(initializer))
    np.testing.assert_array_equal(twin((4, 4), FLOAT64), initializer((4, 4), FLOAT64))


@pytest.mark.parametrize("seed", [-1, 1.5, "a"])
@pytest.mark.parametrize("make", [*RANDOM, lambda seed: mg.init.mask(0.5, seed=seed)])
def test_seeds_that_no_generator_takes(make: Any, seed: Any) -> None:
    with pytest.raises(mg.ConfigError, match=rf"seed={seed!r}\n  expected: an int of at least 0"):
        make(seed=seed)
