"""Sums over a named dimension of which there is nothing: 0, whatever they are written as."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import magmagraph as mg

PROGRAMS: dict[str, Callable[[mg.Node], mg.Node]] = {
    "times a mean": lambda x: mg.sum(x * mg.mean(x, axis=0), axis=0),
    "times one mean": lambda x: mg.sum(x * mg.mean(x), axis=0),
    "over one mean": lambda x: mg.sum(x / mg.mean(x), axis=0),
    "over a sum": lambda x: mg.sum(x / mg.sum(x, axis=0, keepdims=True), axis=0),
    "times a product's quotient": lambda x: mg.sum(x * (1 / mg.sum(x.T @ x)), axis=0),
    "over their number": lambda x: mg.sum(x / mg.sum(mg.ones_like(x), axis=0), axis=0),
    "standardized": lambda x: mg.sum((x - mg.mean(x, axis=0)) / mg.std(x, axis=0), axis=0),
    "softmax": lambda x: mg.sum(mg.softmax(x, axis=0), axis=0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_sums_of_nothing_are_0(name: str) -> None:
    x = mg.var("x", shape=("rows", 3))
    f = mg.function([x], PROGRAMS[name](x))
    np.testing.assert_array_equal(f(np.empty((0, 3), np.float32)), np.zeros(3, np.float32))


def test_factors_that_know_no_rows_leave_sums_of_rows() -> None:
    x = mg.var("x", shape=("rows", 3))
    f = mg.function([x], mg.sum(x * 3.0, axis=0))
    assert "move a scalar factor out of a sum" in str(f.report)
    np.testing.assert_array_equal(f(np.empty((0, 3), np.float32)), np.zeros(3, np.float32))


@pytest.mark.parametrize("part", ["svd", "eigh"])
def test_factors_from_operations_of_several_results(part: str, rng: np.random.Generator) -> None:
    x = mg.var("x", shape=("rows", 3))
    factor = getattr(mg.linalg, part)(x.T @ x)[1 if part == "svd" else 0][2]
    feed = rng.uniform(0.5, 1.0, (4, 3)).astype(np.float32)
    f = mg.function([x], [mg.sum(x / factor, axis=0), mg.sum(x * factor, axis=0)])
    plain = mg.function([x], factor, skip=("simplify",))(feed)
    np.testing.assert_allclose(f(feed)[0], np.sum(feed / plain, axis=0), rtol=1e-3)
    np.testing.assert_allclose(f(feed)[1], np.sum(feed * plain, axis=0), rtol=1e-3)


def test_logarithms_of_sums_of_no_exponentials() -> None:
    """There is no maximum to be taken off: the value is that of no summands."""
    x = mg.input("x", (2, 0, 4))
    y = mg.log(mg.sum(mg.exp(x), axis=1))
    result = mg.function([x], y)(np.zeros((2, 0, 4)))
    np.testing.assert_array_equal(result, np.full((2, 4), -np.inf))
    assert mg.grad(mg.sum(y), x).eval({x: np.zeros((2, 0, 4))}).shape == (2, 0, 4)
