"""Subscripts with arrays, updates, and gathering: against NumPy on random configurations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpreted import value

import magmagraph as mg
from magmagraph.config import config
from magmagraph.errors import DTypeError, ShapeError
from magmagraph.ir.dims import Dim
from magmagraph.ops.indexing.ordered import put_in_order

AT = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


def _random_key(
    rng: np.random.Generator, shape: tuple[int, ...], repeated: bool
) -> tuple[Any, ...]:
    """Return a subscript of slices, ints, None, Ellipsis and arrays that broadcast."""
    lead = [(), (2,), (3, 1), (1, 2), (3, 2)]
    entries: list[Any] = []
    for extent in shape:
        kind = rng.integers(5)
        if kind == 0:
            entries.append(int(rng.integers(-extent, extent)))
        elif kind == 1:
            bounds = [None if rng.random() < 0.4 else int(rng.integers(-6, 7)) for _ in range(2)]
            entries.append(slice(*bounds, int(rng.choice([-2, -1, 1, 2]))))
        elif kind == 2:
            entries.append(slice(None))
        else:
            size = lead[rng.integers(len(lead))]
            entries.append(rng.integers(-extent, extent, size))
    if not repeated:
        # One array of different positions, so that the order of updates does not matter.
        arrays = [i for i, e in enumerate(entries) if isinstance(e, np.ndarray)]
        for place in arrays[1:]:
            entries[place] = slice(None)
        if arrays:
            extent = shape[arrays[0]]
            entries[arrays[0]] = rng.permutation(extent)[: rng.integers(extent + 1)]
    drop = int(rng.integers(len(shape) + 1))
    if rng.random() < 0.4:
        entries[drop : drop + int(rng.integers(2))] = [Ellipsis]
    for _ in range(int(rng.integers(2))):
        entries.insert(int(rng.integers(len(entries) + 1)), None)
    return tuple(entries)


def test_array_subscripts_are_numpys(rng: np.random.Generator) -> None:
    data = rng.normal(size=(3, 4, 2, 3))
    x = mg.input("x", ("a", 4, "b", 3), "float64")
    fixed = mg.input("y", data.shape, "float64")
    keys = [_random_key(rng, data.shape, repeated=True) for _ in range(120)]
    nodes = [mg.index(fixed, key) for key in keys]
    result = mg.function([fixed], nodes)(data)
    for key, node, actual in zip(keys, nodes, result, strict=True):
        assert node.shape == data[key].shape, key
        np.testing.assert_array_equal(actual, data[key], err_msg=repr(key))
    for key in keys[:30]:
        if any(isinstance(e, int) or (isinstance(e, slice) and e != slice(None)) for e in key):
            continue  # ints and bounds may not fit extents that are names
        np.testing.assert_array_equal(value(mg.index(x, key), {x: data}), data[key])


def test_gradient_of_array_subscripts_adds_up(rng: np.random.Generator) -> None:
    data = rng.normal(size=(3, 4, 2))
    x = mg.input("x", data.shape, "float64")
    keys = [_random_key(rng, data.shape, repeated=True) for _ in range(40)]
    weights = [rng.normal(size=data[key].shape) for key in keys]
    gradients = [
        mg.grad(mg.sum(mg.index(x, key) * w), x) for key, w in zip(keys, weights, strict=True)
    ]
    for key, w, result in zip(keys, weights, mg.function([x], gradients)(data), strict=True):
        expected = np.zeros_like(data)
        np.add.at(expected, key, w)
        np.testing.assert_allclose(result, expected, rtol=1e-13, atol=1e-13, err_msg=repr(key))


@pytest.mark.parametrize("how", ["set", "add", "multiply", "min", "max"])
def test_updates_are_numpys(how: str, rng: np.random.Generator) -> None:
    data = rng.normal(size=(3, 4, 2))
    x = mg.input("x", data.shape, "float64")
    keys = [_random_key(rng, data.shape, repeated=how != "set") for _ in range(40)]
    values = [rng.normal(size=data[key].shape[-1:]) for key in keys]
    nodes = [mg.index_update(x, key, v, how) for key, v in zip(keys, values, strict=True)]
    before = data.copy()
    results = mg.function([x], nodes)(data)
    np.testing.assert_array_equal(data, before)
    for key, v, result in zip(keys, values, results, strict=True):
        expected = data.copy()
        if how == "set":
            expected[key] = v
        else:
            AT[how].at(expected, key, v)
        np.testing.assert_allclose(result, expected, rtol=1e-13, atol=0, err_msg=repr(key))


def test_methods_of_at() -> None:
    x = mg.constant(np.array([1.0, 2.0, 4.0]))
    at = mg.constant(np.array([2, 2, 0]))
    v = mg.constant(np.array([2.0, 3.0, 5.0]))
    places = x.at[at]
    expected = {
        places.set(v): [5.0, 2.0, 3.0],
        places.add(v): [6.0, 2.0, 9.0],
        places.subtract(v): [-4.0, 2.0, -1.0],
        places.multiply(v): [5.0, 2.0, 24.0],
        places.divide(v): [1.0 / 5.0, 2.0, 4.0 / 6.0],
        places.min(v): [1.0, 2.0, 2.0],
        places.max(v): [5.0, 2.0, 4.0],
        places.get(): [4.0, 4.0, 1.0],
    }
    for node, expected_value in expected.items():
        np.testing.assert_allclose(value(node), expected_value, rtol=1e-15)


def test_of_equal_positions_the_last_is_set_and_has_the_gradient() -> None:
    x, v = mg.input("x", (3, 2), "float64"), mg.input("v", (4, 2), "float64")
    updated = x.at[mg.constant([1, 0, 1, 1])].set(v)
    weight = np.arange(1.0, 7.0).reshape(3, 2)
    gradients = mg.grad(mg.sum(updated * weight), [x, v])
    f = mg.function([x, v], [updated, *gradients])
    new = np.arange(8.0).reshape(4, 2)
    result, by_x, by_v = f(np.full((3, 2), -1.0), new)
    np.testing.assert_array_equal(result, [new[1], new[3], [-1.0, -1.0]])
    np.testing.assert_array_equal(by_x, [[0, 0], [0, 0], weight[2]])
    np.testing.assert_array_equal(by_v, [[0, 0], weight[0], [0, 0], weight[1]])


def test_extremes_that_tie_share_the_gradient() -> None:
    x, v = mg.input("x", (2,), "float64"), mg.input("v", (3,), "float64")
    updated = x.at[mg.constant([0, 0, 1])].max(v)
    gradients = mg.grad(mg.sum(updated), [x, v])
    by_x, by_v = mg.function([x, v], gradients)([2.0, 1.0], [2.0, 2.0, 5.0])
    np.testing.assert_allclose(by_x, [1.0 / 3.0, 0.0], rtol=1e-15)
    np.testing.assert_allclose(by_v, [1.0 / 3.0, 1.0 / 3.0, 1.0], rtol=1e-15)


@pytest.mark.parametrize("zeros", [(), (0,), (0, 2)])
def test_gradient_of_products_at_one_position_at_zeros(zeros: tuple[int, ...]) -> None:
    x, v = mg.input("x", (2,), "float64"), mg.input("v", (4,), "float64")
    at = np.array([0, 1, 0, 0])
    updated = x.at[mg.constant(at)].multiply(v)
    point, new = np.array([1.5, -2.0]), np.array([0.5, 3.0, -1.0, 2.0])
    new[list(zeros)] = 0.0
    by_x, by_v = mg.function([x, v], mg.grad(mg.sum(updated), [x, v]))(point, new)
    np.testing.assert_allclose(by_x, [new[[0, 2, 3]].prod(), new[1]], rtol=1e-15)
    for i in range(4):
        others = [new[j] for j in range(4) if j != i and at[j] == at[i]]
        assert by_v[i] == pytest.approx(point[at[i]] * np.prod(others))


def test_a_scalar_node_is_a_subscript() -> None:
    x, i = mg.input("x", ("n", 3), "float64"), mg.input("i", (), "int32")
    data = np.arange(12.0).reshape(4, 3)
    f = mg.function([x, i], [x[i], x[:, i], x.at[i].set(0.0), x[i, i]])
    for position in (0, 2, -1):
        row, column, updated, single = f(data, np.int32(position))
        np.testing.assert_array_equal(row, data[position])
        np.testing.assert_array_equal(column, data[:, position])
        expected = data.copy()
        expected[position] = 0.0
        np.testing.assert_array_equal(updated, expected)
        assert single == data[position, position]


def test_a_mask_is_refused_for_reading_and_taken_for_updates(rng: np.random.Generator) -> None:
    x = mg.input("x", ("n", 2), "float64")
    with pytest.raises(ShapeError, match="known only when it runs") as caught:
        x[x > 0]
    assert "mg.boolean_index(x, mask, size=n)" in str(caught.value)
    data = rng.normal(size=(5, 2))
    rows = mg.input("rows", ("n",), "bool")
    mask = data[:, 0] > 0
    f = mg.function([x, rows], [x.at[x > 0].set(0.0), x.at[rows].add([1.0, 2.0])])
    cut, raised = f(data, mask)
    np.testing.assert_array_equal(cut, np.where(data > 0, 0.0, data))
    np.testing.assert_array_equal(raised, data + np.where(mask[:, None], [1.0, 2.0], 0.0))


def test_slices_of_named_axes_are_updated() -> None:
    x = mg.input("x", ("n", 3), "float64")
    f = mg.function([x], [x.at[1:].add(1.0), x.at[-1, ::2].set(9.0), x.at[:, 1].max(0.0)])
    for n in (1, 4):
        data = np.arange(3.0 * n).reshape(n, 3) - 4.0
        added, placed, raised = f(data)
        expected = data.copy()
        expected[1:] += 1.0
        np.testing.assert_array_equal(added, expected)
        expected = data.copy()
        expected[-1, ::2] = 9.0
        np.testing.assert_array_equal(placed, expected)
        expected = data.copy()
        expected[:, 1] = np.maximum(expected[:, 1], 0.0)
        np.testing.assert_array_equal(raised, expected)


def test_an_update_of_slices_needs_no_positions() -> None:
    x = mg.input("x", (4, 3))
    names = {node.op.name for node in mg.function([x], x.at[1:3].set(0.0)).source_graph.nodes}
    assert "update" not in names
    names = {node.op.name for node in mg.function([x], x.at[[1, 2]].set(0.0)).source_graph.nodes}
    assert "update" in names


def test_positions_outside() -> None:
    x = mg.constant(np.arange(4.0))
    at = mg.input("at", (3,), "int64")
    feeds = {at: np.array([-9, 6, 3])}
    np.testing.assert_array_equal(value(x.at[at].get(), feeds), [0.0, 3.0, 3.0])
    np.testing.assert_array_equal(value(x.at[at].get(mode="wrap"), feeds), [3.0, 2.0, 3.0])
    np.testing.assert_array_equal(value(x.at[at].add(1.0), feeds), [1.0, 1.0, 2.0, 5.0])
    np.testing.assert_array_equal(
        value(x.at[at].add(1.0, mode="wrap"), feeds), [0.0, 1.0, 3.0, 5.0]
    )
    with pytest.raises(ShapeError, match="index 9 is out of range"):
        x.at[[9]].set(0.0)


def test_wrong_updates() -> None:
    x = mg.input("x", (4,), "int32")
    with pytest.raises(DTypeError, match="values of dtype float32 for elements of dtype int32"):
        x.at[0].set(0.5)
    with pytest.raises(ShapeError, match="values of shape"):
        x.at[:2].set([1, 2, 3])
    with pytest.raises(ShapeError, match="a mask of 2 axes for 1 axes"):
        x.at[mg.input("m", (4, 1), "bool")].set(0)
    with pytest.raises(TypeError, match=r"x\.at\[key\]\.set\(value\)"):
        x[0] = 1  # type: ignore[index]


def test_narrow_floats_add_in_float32() -> None:
    x = mg.input("x", (1,), "float16")
    many = mg.constant(np.full(3000, 1.0, np.float16))
    added = x.at[mg.constant(np.zeros(3000, np.int64))].add(many)
    assert value(added, {x: np.zeros(1, np.float16)})[0] == 3000.0


def test_take_along_axis_of_named_axes(rng: np.random.Generator) -> None:
    x, at = mg.input("x", ("n", "m", 2), "float64"), mg.input("at", ("n", "k", 1), "int64")
    node = mg.take_along_axis(x, at, axis=1)
    assert node.shape == (Dim("n"), Dim("k"), 2)
    f = mg.function([x, at], [node, mg.grad(mg.sum(node * node), x)])
    for n, m, k in ((3, 4, 2), (1, 5, 6)):
        data, places = rng.normal(size=(n, m, 2)), rng.integers(-m, m, (n, k, 1))
        result, gradient = f(data, places)
        expected = np.take_along_axis(data, places, axis=1)
        np.testing.assert_array_equal(result, expected)
        total = np.zeros_like(data)
        i, _, c = np.ogrid[:n, :k, :2]
        np.add.at(total, (i, places, c), 2.0 * expected)
        np.testing.assert_allclose(gradient, total, rtol=1e-13)


def test_updates_map_over_an_axis(rng: np.random.Generator) -> None:
    x = mg.input("x", (3, 4), "float64")
    at = mg.input("at", (3, 2), "int64")
    v = mg.input("v", (3, 2), "float64")
    mapped = mg.vmap(lambda a, b, c: a.at[b].add(c))(x, at, v)
    data, places, new = (
        rng.normal(size=(3, 4)),
        rng.integers(-4, 4, (3, 2)),
        rng.normal(size=(3, 2)),
    )
    expected = data.copy()
    for row in range(3):
        np.add.at(expected[row], places[row], new[row])
    result = mg.function([x, at, v], mapped)(data, places, new)
    np.testing.assert_allclose(result, expected, rtol=1e-13)


def test_sizes_of_what_is_found(rng: np.random.Generator) -> None:
    x = mg.input("x", ("n",), "float64")
    f = mg.function(
        [x],
        [
            mg.flatnonzero(x > 0, size="n", fill_value=-1),
            mg.boolean_index(x, x > 0, size=4, fill_value=np.nan),
        ],
    )
    for n in (0, 3, 9):
        data = rng.normal(size=n)
        places, values = f(data)
        expected = np.flatnonzero(data > 0)
        np.testing.assert_array_equal(places[: len(expected)], expected)
        assert (places[len(expected) :] == -1).all()
        positive = data[data > 0][:4]
        np.testing.assert_array_equal(values[: len(positive)], positive)
        assert np.isnan(values[len(positive) :]).all()


def test_gradient_of_boolean_index_goes_to_what_was_taken() -> None:
    x = mg.input("x", (5,), "float64")
    picked = mg.boolean_index(x, x > 0, size=2)
    gradient = mg.grad(mg.sum(picked * picked), x)
    result = value(gradient, {x: np.array([-1.0, 2.0, 3.0, 4.0, -2.0])})
    np.testing.assert_array_equal(result, [0.0, 4.0, 6.0, 0.0, 0.0])


def test_feeds_need_not_be_contiguous(rng: np.random.Generator) -> None:
    x = mg.input("x", (3, 4), "float64")
    data = rng.normal(size=(8, 6))[::2, ::2].T
    outputs = [
        x.at[[0, 2]].add(1.0),
        mg.take_along_axis(x, mg.argsort(x, 1), 1),
        mg.sort(x, 0),
        mg.cumsum(x, 0),
        mg.cumprod(x, 1, reverse=True),
        mg.median(x, 1),
    ]
    plain = mg.function([x], outputs)(np.ascontiguousarray(data))
    for result, expected in zip(mg.function([x], outputs)(data), plain, strict=True):
        np.testing.assert_array_equal(result, expected)


def test_complex_elements_are_updated_but_not_compared() -> None:
    x = mg.input("x", (3,), "complex128")
    data = np.array([1 + 2j, -1j, 3.0])
    at = mg.constant([2, 0, 2])
    results = mg.function([x], [x.at[at].add(1j), x.at[1:].set(2.0), x[at]])(data)
    np.testing.assert_array_equal(results[0], data + np.array([1j, 0, 2j]))
    np.testing.assert_array_equal(results[1], [data[0], 2.0, 2.0])
    np.testing.assert_array_equal(results[2], data[[2, 0, 2]])
    with pytest.raises(DTypeError, match="how='max' of dtype complex128"):
        x.at[at].max(0.0)
    with pytest.raises(DTypeError, match="values of dtype complex"):
        mg.input("y", (3,), "float64").at[at].set(mg.constant(np.array(1j)))


def test_elements_of_an_axis_that_turns_out_empty() -> None:
    x, at = mg.input("x", ("n",), "float64"), mg.input("at", ("k",), "int64")
    f = mg.function([x, at], mg.take(x, at))
    assert f(np.zeros(0), np.zeros(0, np.int64)).shape == (0,)
    with pytest.raises(ShapeError, match="axis 0 is empty, and 2 elements of it are taken"):
        f(np.zeros(0), np.zeros(2, np.int64))
    with pytest.raises(ShapeError, match="axis 0 is empty, and 2 elements of it are taken"):
        mg.take(mg.input("y", (0,)), mg.input("places", (2,), "int32"))
    for how in ("set", "add", "multiply", "max"):
        for mode in ("clip", "wrap"):
            f = mg.function([x, at], getattr(x.at[at], how)(1.0, mode=mode))
            assert f(np.zeros(0), np.zeros(0, np.int64)).shape == (0,)
            with pytest.raises(ShapeError, match="0 is empty, and 2 elements of it are written"):
                f(np.zeros(0), np.zeros(2, np.int64))


def test_series_of_positions_are_arrays() -> None:
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    for key in (
        ((0, 1), (1, 2)), (slice(None), (0, -1)), (range(2), 1), ([], 1), (slice(None), ()),
        ((),), ([(0, 1), (2, 0)],),
    ):  # fmt: skip
        picked = mg.constant(x)[key].eval()
        assert picked.shape == x[key].shape
        np.testing.assert_array_equal(picked, x[key])


@pytest.mark.parametrize("name", ["tril", "triu", "diagflat", "diag"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16"])
def test_zeros_beside_a_diagonal_are_of_its_dtype(name: str, dtype: str) -> None:
    x = np.array([[1, 0], [1, 1]], dtype)
    node = getattr(mg, name)(mg.constant(x))
    expected = getattr(np, name)(x)
    assert node.dtype == expected.dtype
    np.testing.assert_array_equal(node.eval(), expected)


@pytest.mark.parametrize("how", ["set", "min", "max"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool"])
def test_updates_in_the_order_of_positions(
    dtype: str, how: str, rng: np.random.Generator
) -> None:
    """What devices do, whose scattered writes have no order."""
    for count, width in ((1, ()), (5, (3,)), (300, (2, 2)), (300, ()), (4, (0,))):
        x, rows = (
            (5 * rng.standard_normal((n, *width))).astype(dtype) for n in (7, count)
        )
        if dtype.startswith("float"):
            x.reshape(-1)[::9] = np.nan
            rows.reshape(-1)[::4] = np.nan
        at = rng.integers(0, 7, count)
        expected = x.copy()
        if how == "set":
            expected[at] = rows
        else:
            with np.errstate(invalid="ignore"):
                (np.minimum if how == "min" else np.maximum).at(expected, at, rows)
        put_in_order(np, x, at, rows, how)
        np.testing.assert_array_equal(x, expected)


CUTS = [
    *(slice(1, None), slice(None, -1), slice(1, -1), slice(2, 5), slice(-3, -1), slice(None, -3)),
    *(slice(1, None, 2), slice(None, None, -2), slice(-2, None, -1), slice(-1, 0, -1)),
    *(slice(5, 1, -1), slice(-3, None), slice(None, -1, 3)),
]


def _cut(xp: Any, x: Any) -> list[Any]:
    return [*(x[cut] for cut in CUTS), x[1:][1:], x[1:][:-1], xp.diff(x, 2, axis=0)]


@pytest.mark.parametrize("compiler", ["auto", "off"])
def test_slices_of_dimensions_that_turn_out_short(
    compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are as empty as NumPy's, also slices of slices, and so are their gradients."""
    monkeypatch.setattr(config, "compiler", compiler)
    x = mg.input("x", ("n", 2), "float64")
    parts = _cut(mg, x)
    total = sum((mg.sum(part * part) for part in parts), mg.constant(0.0, "float64"))
    f = mg.function([x], [*(part * 2.0 for part in parts), mg.grad(total, x)])
    for n in (0, 1, 2, 3, 7):
        array = np.arange(1.0, 2 * n + 1).reshape(n, 2)
        *results, slope = f(array)
        for part, expected in zip(results, _cut(np, array), strict=True):
            np.testing.assert_array_equal(part, expected * 2.0)
        differences = np.zeros_like(array)  # exact: the loss is of second degree
        for at in np.ndindex(array.shape):
            for sign in (0.5, -0.5):
                shifted = array.copy()
                shifted[at] += sign
                differences[at] += 2.0 * sign * sum((part**2).sum() for part in _cut(np, shifted))
        np.testing.assert_allclose(slope, differences, rtol=1e-12)
    assert x[1:].shape == x[:-1].shape
    assert x[1:][1:].shape == x[2:].shape
    assert x[1::2].shape[0] + x[::2].shape[0] == x.shape[0]


def test_a_cut_that_is_padded_back_is_a_carry_and_a_branch() -> None:
    """Its extent is max(n, 1), which is n at every call but that with no element."""
    x = mg.var("x", shape=("n",))
    shifted, _ = mg.scan(lambda c, _: (mg.pad(c[:-1], (1, 0)), None), x, length=2)
    branch = mg.cond(mg.sum(x) > 0, lambda v: mg.pad(v[1:], (0, 1)), lambda v: -v, x)
    f = mg.function([x], [shifted, branch, mg.grad(mg.sum(shifted * shifted), x)])
    results = f(np.arange(4, dtype=np.float32))
    for result, expected in zip(results, ([0, 0, 0, 1], [1, 2, 3, 0], [0, 2, 0, 0]), strict=True):
        np.testing.assert_array_equal(result, expected)
    with pytest.raises(mg.FeedError, match=r"max\(n, 1\) == n, but n is 0"):
        f(np.zeros(0, np.float32))
    other = mg.var("y", shape=("m",))
    with pytest.raises(mg.ShapeError, match="one shape"):
        mg.scan(lambda c, _: (other, None), x, length=2)
