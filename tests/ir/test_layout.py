"""Layout: symbolic shapes, constraints, subscripts against NumPy, and what the records hold."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from interpreted import value

import magmagraph as mg
from magmagraph.errors import DTypeError, ShapeError
from magmagraph.ir import dims
from magmagraph.ir.dims import Constraint, Dim
from magmagraph.ir.graph import Node, freeze
from magmagraph.ir.interpret import solve_sizes
from magmagraph.ops.shape.layout import PLACE, RESHAPE, SLICE, TRANSPOSE
from magmagraph.ops.shape.slicing import cut

N = Dim("n")


def holds(node: Node, **sizes: int) -> bool:
    """Tell whether every constraint below a node holds for these sizes."""
    graph = freeze([], [node])
    return all(constraint.check(sizes) for constraint, _ in graph.constraints)


# Reshape.


def test_reshape_is_exact_for_symbolic_extents() -> None:
    x = mg.input("x", ("n", 784))
    image = mg.reshape(x, (-1, 28, 28))
    assert image.shape == (N, 28, 28)
    assert image.constraints == ()
    assert mg.reshape(image, ("n", -1)).shape == (N, 784)
    assert mg.reshape(x, (-1,)).shape == (784 * N,)


def test_reshape_leaves_to_the_call_what_only_it_can_tell() -> None:
    pairs = mg.reshape(mg.input("x", ("n",)), (-1, 2))
    assert pairs.shape == (N // 2, 2)
    assert holds(pairs, n=6)
    assert not holds(pairs, n=7)
    fixed = mg.reshape(mg.input("x", ("n", 4)), (5, 4))
    assert fixed.constraints == (Constraint(4 * N, "==", 20),)


def test_reshape_to_its_own_shape_is_itself() -> None:
    x = mg.input("x", ("n", 3))
    assert mg.reshape(x, ("n", 3)) is x
    assert mg.reshape(x, (-1, 3)) is x


def test_reshape_refuses_none() -> None:
    with pytest.raises(ShapeError, match=r"reshape: shape \(None, 3\) has the extent None"):
        mg.reshape(mg.input("x", ("n", 3)), (None, 3))


def test_squeeze_of_a_name_is_checked_at_the_call() -> None:
    node = mg.squeeze(mg.input("x", ("n", 3)), 0)
    assert node.shape == (3,)
    assert holds(node, n=1)
    assert not holds(node, n=2)
    assert mg.squeeze(mg.input("x", ("n", 1))).shape == (N,)


def test_alias_records() -> None:
    assert RESHAPE.layout.alias
    assert not TRANSPOSE.layout.alias


# Subscripts.

KEYS: list[Any] = [
    0,
    -1,
    slice(None),
    slice(1, None),
    slice(None, -1),
    slice(None, None, -1),
    slice(-2, 0, -1),
    slice(3, 1),
    slice(None, None, 2),
    slice(4, None, -2),
    slice(-9, 9),
    slice(7, None, -3),
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
@pytest.mark.parametrize("extent", [1, 2, 5])
def test_subscripts_are_numpys(key: Any, extent: int) -> None:
    data = np.arange(2.0 * extent).reshape(extent, 2)
    fixed = mg.input("x", data.shape, "float64")
    np.testing.assert_array_equal(value(mg.index(fixed, key), {fixed: data}), data[key])
    rows = mg.input("x", ("n", 2), "float64")
    node = mg.index(rows, key)
    if holds(node, n=extent):
        result = value(node, {rows: data})
        np.testing.assert_array_equal(result, data[key])
    else:  # only where the extent is too short for the slice to have its exact extent
        assert isinstance(key, slice)
        assert extent < 3


@pytest.mark.parametrize(
    "key",
    [
        (Ellipsis, 1),
        (None, slice(None), None, 2),
        (slice(None, None, -2), Ellipsis, None),
        (1, Ellipsis, slice(0, 2)),
        (slice(None), np.array([2, 0, 0])),
        (np.array([[1, -1]]), Ellipsis, 0),
        (0, slice(None), np.array([1, 1, 3])),
        ([1, 0], None, slice(1, 3)),
    ],
    ids=repr,
)
def test_mixed_subscripts_are_numpys(key: Any) -> None:
    data = np.arange(24.0).reshape(2, 3, 4)
    x = mg.input("x", ("a", "b", 4), "float64")
    np.testing.assert_array_equal(value(mg.index(x, key), {x: data}), data[key])


def test_operator_of_nodes() -> None:
    x = mg.input("x", ("n", 6))
    assert x[1:].shape == (dims.maximum(N - 1, 0), 6)
    assert x[:, 2].shape == (N,)
    assert x[N - 1].shape == (6,)
    assert x.T.shape == (6, N)
    assert holds(x[1:], n=0)


def test_halves_add_up() -> None:
    x = mg.input("x", ("n",))
    assert mg.concatenate([x[::2], x[1::2]]).shape == (N,)
    assert mg.concatenate(mg.split(x, [3])).shape == (N,)


def test_a_position_of_a_named_axis_is_checked_at_the_call() -> None:
    x = mg.input("x", ("n", 2))
    assert not holds(x[3], n=3)
    assert holds(x[3], n=4)
    assert holds(x[-3], n=3)
    assert not holds(x[-3], n=2)


def test_an_array_of_positions_may_be_computed() -> None:
    x, at = mg.input("x", ("n", 2), "float64"), mg.input("at", ("k",), "int32")
    node = x[at]
    assert node.shape == (Dim("k"), 2)
    data = np.arange(8.0).reshape(4, 2)
    result = value(node, {x: data, at: np.array([3, -4, 9], np.int32)})
    np.testing.assert_array_equal(result, data[[3, 0, 3]])


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        (2.0, DTypeError, "index: a subscript is float"),
        ("n", DTypeError, "index: a subscript is str"),
        ((0, 0, 0), ShapeError, "index: 3 subscripts for 2 axes"),
        ((..., ...), ShapeError, "index: two Ellipses in one subscript"),
        (5, ShapeError, "index: 5 is out of range for axis 0 of extent 4"),
        (slice(None, None, 0), ShapeError, "the step of a slice is 0"),
        (slice(1.5, None), DTypeError, "index: a slice bound is float"),
        (mg.input("m", (4,), "bool"), ShapeError, "index: a mask selects"),
        (np.array([0.5]), DTypeError, "index: a subscript of dtype float64"),
        (([0, 1], [1, 1, 0]), ShapeError, "index: extents 2 and 3 do not broadcast (axis -1)"),
    ],
    ids=repr,
)
def test_refused_subscripts(key: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        mg.index(mg.input("x", (4, 3)), key)
    assert str(caught.value).startswith(text)


def test_a_mask_names_the_alternatives() -> None:
    x = mg.input("x", ("n",))
    with pytest.raises(ShapeError, match="size=, the number of elements") as caught:
        x[x > 0]
    assert "mg.where(mask, x, 0)" in str(caught.value)


# Slice and place.


def test_place_is_the_inverse_of_slice(rng: np.random.Generator) -> None:
    data = rng.normal(size=(5, 7))
    x = mg.input("x", data.shape, "float64")
    for steps in itertools.product((1, 2, -1, -2), repeat=2):
        starts = tuple(0 if s > 0 else e - 1 for s, e in zip(steps, data.shape, strict=True))
        shape = tuple(-(-e // abs(s)) for s, e in zip(steps, data.shape, strict=True))
        part = SLICE(x, starts=starts, steps=steps, shape=shape)
        placed = PLACE(part, starts=starts, steps=steps, shape=data.shape, value=-1.0)
        expected = np.full(data.shape, -1.0)
        window = tuple(slice(None, None, step) for step in steps)
        expected[window] = data[window]
        np.testing.assert_array_equal(value(placed, {x: data}), expected)


def test_positions_outside_are_refused() -> None:
    x = mg.input("x", (4,))
    with pytest.raises(ShapeError, match="slice: positions 2 to 4 of axis 0 lie outside"):
        cut(x, 0, 2, 3)
    part = cut(mg.input("x", ("n",)), 0, 2, 3)
    assert holds(part, n=5)
    assert not holds(part, n=4)


def test_interning_keeps_constraints() -> None:
    x = mg.input("x", ("n",))
    doubled = mg.concatenate([x, x])[1:-4]
    graph = freeze([x], [doubled])
    again = graph.outputs[0].op(*graph.outputs[0].inputs, **graph.outputs[0].attrs)
    assert again.type == doubled.type
    assert set(again.constraints) == set(doubled.constraints)
    graph.verify()


# Pieces.


def test_split_of_symbolic_extents() -> None:
    x = mg.input("x", (2 * N, 3))
    first, second = mg.split(x, 2)
    assert first.shape == second.shape == (N, 3)
    thirds = mg.split(mg.input("x", ("n",)), 3)
    assert {part.shape for part in thirds} == {(N // 3,)}
    assert holds(thirds[2], n=6)
    assert not holds(thirds[2], n=7)
    ends = mg.split(mg.input("x", ("n",)), [2, N - 2])
    assert [part.shape for part in ends] == [(2,), (N - 4,), (2,)]


def test_pad_of_symbolic_extents() -> None:
    x = mg.input("x", ("n", 2), "float64")
    assert mg.pad(x, ((1, 2), (0, 0))).shape == (N + 3, 2)
    assert mg.pad(x, ((N, 0), (0, 0))).shape == (2 * N, 2)
    data = np.arange(6.0).reshape(3, 2)
    for mode in ("edge", "reflect"):
        padded = mg.pad(x, ((1, 2), (0, 1)), mode=mode)
        expected = np.pad(data, ((1, 2), (0, 1)), mode=mode)  # type: ignore[call-overload]
        np.testing.assert_array_equal(value(padded, {x: data}), expected)
    assert not holds(mg.pad(x, ((1, 2), (0, 0)), mode="reflect"), n=2)


def test_pad_forms() -> None:
    x = mg.input("x", (2, 3))
    for form in (1, (1, 1), [(1, 1)], ((1, 1), (1, 1))):
        assert mg.pad(x, form).shape == (4, 5)
    with pytest.raises(ShapeError, match=r"pad: pad_width=\(\(1, 1\), \(1, 1\), \(1, 1\)\) for 2"):
        mg.pad(x, ((1, 1), (1, 1), (1, 1)))


def test_broadcast_of_names() -> None:
    x = mg.input("x", (1, 3))
    assert mg.broadcast_to(x, ("n", 3)).shape == (N, 3)
    with pytest.raises(ShapeError, match=r"shape \(n, 3\) does not broadcast to \(m, 3\)"):
        mg.broadcast_to(mg.input("x", ("n", 3)), ("m", 3))


def test_concatenate_of_a_stranger() -> None:
    with pytest.raises(DTypeError, match="concatenate: the operands are one Node"):
        mg.concatenate(mg.input("x", (2, 3)))
    with pytest.raises(ShapeError, match="stack: no operands"):
        mg.stack([])


def test_concatenate_promotes() -> None:
    both = mg.concatenate([mg.constant([1, 2]), mg.constant([0.5])])
    assert both.dtype == np.float32


# Positions.


def test_take_of_numpys_semantics() -> None:
    data = np.arange(12.0).reshape(4, 3)
    x, at = mg.input("x", data.shape, "float64"), mg.input("at", (2, 2), "int64")
    positions = np.array([[0, -1], [3, -4]])
    for axis in (0, 1, None):
        within = positions % 3 if axis == 1 else positions
        result = value(mg.take(x, at, axis), {x: data, at: within})
        np.testing.assert_array_equal(result, np.take(data, within, axis))


def test_take_outside_is_the_nearest() -> None:
    data = np.arange(4.0)
    x, at = mg.input("x", (4,), "float64"), mg.input("at", (4,), "int64")
    positions = np.array([-9, -4, 4, 100])
    result = value(mg.take(x, at), {x: data, at: positions})
    np.testing.assert_array_equal(result, [0.0, 0.0, 3.0, 3.0])
    wrapped = value(mg.take(x, at, mode="wrap"), {x: data, at: positions})
    np.testing.assert_array_equal(wrapped, data[positions % 4])


def test_take_gradient_adds_up_repeats() -> None:
    x = mg.input("x", (4,), "float64")
    gradient = mg.grad(mg.sum(mg.take(x, mg.constant([1, 1, -1])) * 2.0), x)
    np.testing.assert_array_equal(value(gradient, {x: np.zeros(4)}), [0.0, 4.0, 0.0, 2.0])


def test_one_hot_of_every_integer_dtype() -> None:
    for name in ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"):
        labels = mg.constant(np.array([2, 0], dtype=name))
        np.testing.assert_array_equal(value(mg.one_hot(labels, 300))[:, :3], np.eye(3)[[2, 0]])


def test_arange_of_names() -> None:
    assert mg.arange("n").shape == (N,)
    assert mg.arange(2, N).shape == (mg.dims.maximum(N - 2, 0),)
    assert value(mg.arange(2**40, 2**40 + 2)).dtype == np.int64
    x = mg.input("x", ("n",))
    node = mg.arange(N, 0, -2) + mg.cast(x[::2], "int32") * 0
    result = value(node, {x: np.zeros(5, np.float32)})
    np.testing.assert_array_equal(result, [5, 3, 1])


def test_argsort_is_stable() -> None:
    x = mg.input("x", (6,), "float64")
    data = np.array([1.0, 0.0, np.nan, 1.0, 0.0, -1.0])
    np.testing.assert_array_equal(value(mg.argsort(x), {x: data}), [5, 1, 4, 0, 3, 2])


def test_sizes_follow_from_feeds() -> None:
    x = mg.input("x", ("n", 2))
    graph = freeze([x], [x[1:]])
    assert solve_sizes(graph, {graph.inputs[0]: np.zeros((3, 2))}) == {"n": 3}
