"""Masks whose values are known when the graph is built: subscripts, updates and gradients."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import magmagraph as mg

X = np.random.default_rng(3).normal(size=(3, 4, 5))
ROWS = np.array([True, False, True])
LINES = X[:, :, 0] > 0.0
PLANE = X[0] > 0.0
COLUMNS = X[0, :, 0] > 0.0
DEPTHS = np.array([True, False, True, False, False])
ALL = slice(None)

KEYS: dict[str, Any] = {
    "all axes": X > 0.0,
    "first axis": ROWS,
    "first axes": LINES,
    "last axes": (ALL, PLANE),
    "middle axis": (ALL, COLUMNS),
    "last axis": (Ellipsis, DEPTHS),
    "behind a number": (0, PLANE),
    "behind a negative number": (-1, COLUMNS),
    "before a number": (ROWS, 0),
    "axes before a number": (LINES, 2),
    "before a slice": (ROWS, slice(1, 3)),
    "before a step": (LINES, slice(None, None, -2)),
    "before None": (ROWS, None, 1),
    "behind None": (None, ROWS),
    "with positions": (ROWS, Ellipsis, np.array([1, 2])),
    "apart from positions": (np.array([0, 2]), ALL, DEPTHS),
    "beside a position": (ALL, COLUMNS, np.array(1)),
    "two masks": (ROWS.tolist(), ALL, DEPTHS.tolist()),
    "lists": LINES.tolist(),
    "list before a number": (ROWS.tolist(), 1),
    "true": True,
    "false": False,
    "true before a number": (True, 0),
    "true behind a slice": (ALL, True),
    "without axes": np.array(True),
    "true and a mask": (True, ROWS),
    "false and a line": (False, np.array([1])),
    "nothing": np.zeros(3, bool),
    "nothing, all axes": np.zeros(X.shape, bool),
    "nothing before a number": (np.zeros(3, bool), 1),
}


def _constants(key: Any) -> Any:
    """Return a subscript with constant nodes in the places of its arrays of bools."""
    if isinstance(key, tuple):
        return tuple(map(_constants, key))
    return mg.constant(key) if isinstance(key, np.ndarray) and key.dtype == bool else key


@pytest.mark.parametrize("as_nodes", [False, True], ids=["arrays", "constants"])
@pytest.mark.parametrize("name", KEYS)
def test_subscripts_are_numpys(name: str, as_nodes: bool) -> None:
    key = KEYS[name]
    expected = X[key]
    x = mg.input("x", X.shape, "float64")
    weights = np.random.default_rng(5).normal(size=expected.shape)
    slope = np.zeros_like(X)
    np.add.at(slope, key, weights)
    subscript = _constants(key) if as_nodes else key
    node = x[subscript]
    assert node.shape == expected.shape
    gradient = mg.grad(mg.sum(node * weights), x, unused="zeros")
    value, result = mg.function([x], [node, gradient])(X)
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(result, slope)


@pytest.mark.parametrize("name", KEYS)
def test_updates_are_numpys(name: str) -> None:
    key = KEYS[name]
    random = np.random.default_rng(7).normal(size=X[key].shape)
    cases = list(product(["set", "add", "multiply"], [np.float64(2.5), random]))
    inputs: list[mg.Node] = []
    outputs: list[mg.Node] = []
    for how, values in cases:
        x, v = mg.input("x", X.shape, "float64"), mg.input("v", values.shape, "float64")
        node = getattr(x.at[key], how)(v)
        assert node.shape == X.shape
        inputs += [x, v]
        outputs += [node, *mg.grad(mg.sum(node * X), [x, v], unused="zeros")]
    feeds = [array for _, values in cases for array in (X, values)]
    computed = iter(mg.function(inputs, outputs)(*feeds))
    for how, values in cases:
        result, slope, share = next(computed), next(computed), next(computed)
        expected = X.copy()
        if how == "set":
            expected[key] = values
        else:
            getattr(np, how).at(expected, key, values)
        np.testing.assert_array_equal(result, expected, how)
        if how == "set":
            region = np.zeros_like(X)
            region[key] = 1.0
            np.testing.assert_array_equal(slope, np.where(region > 0.0, 0.0, X))
            expected_value = np.sum(X[key]) if not values.shape else X[key]
            np.testing.assert_allclose(share, expected_value, rtol=1e-14)


def test_a_named_dimension_is_the_masks_extent() -> None:
    x = mg.input("x", ("n", 4))
    node, updated = x[[True, False, True]], x.at[ROWS].set(np.ones((2, 4), np.float32))
    assert node.shape == (2, 4)
    assert updated.shape == x.shape
    feed = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(node.eval({x: feed}), feed[ROWS])
    with pytest.raises(mg.FeedError, match="n is 4"):
        node.eval({x: np.zeros((4, 4), np.float32)})


def test_other_functions_of_masks_need_no_size() -> None:
    x = mg.constant(X)
    np.testing.assert_array_equal(mg.boolean_index(x, LINES).eval(), X[LINES])
    np.testing.assert_array_equal(mg.compress([1, 0, 2], x, 0).eval(), np.compress(ROWS, X, 0))
    np.testing.assert_array_equal(mg.compress(DEPTHS, x).eval(), np.compress(DEPTHS, X))
    np.testing.assert_array_equal(mg.extract(X > 0.0, x).eval(), np.extract(X > 0.0, X))
    assert mg.extract(X > 0.0, x, size=3, fill_value=0.0).shape == (3,)
    mapped = mg.vmap(lambda line: line[DEPTHS])(mg.constant(X[0]))
    np.testing.assert_array_equal(mapped.eval(), X[0][:, DEPTHS])


def test_masks_that_do_not_fit_are_refused() -> None:
    x = mg.constant(X)
    for key in ([True, False], (ALL, ROWS), np.ones((3, 5), bool)):
        with pytest.raises(mg.ShapeError, match="extents of array and mask differ"):
            x[key]
        with pytest.raises(mg.ShapeError, match="extents of array and mask differ"):
            x.at[key].set(1.0)
    with pytest.raises(mg.ShapeError, match="subscripts of 4 axes for 3 axes"):
        x[X > 0.0, 0]
    with pytest.raises(mg.ShapeError, match=r"values of shape \(3, 4, 5\) for elements"):
        x.at[ROWS].set(np.ones(X.shape))
    for computed in (x > 0.0, mg.input("mask", (3,), "bool")):
        with pytest.raises(mg.ShapeError, match="known only when it runs"):
            x[computed]
        with pytest.raises(mg.ShapeError, match="known only when it runs"):
            mg.boolean_index(x, computed)
