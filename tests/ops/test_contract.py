"""The public face, promise by promise: symbols, dimensions and dtypes, as a user meets them."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.ir import dims

FLOAT32 = np.dtype(np.float32)


def agree(actual: Any, expected: Any, numerics: Any = "reassoc") -> None:
    """Compare in the tolerance of float32."""
    assert tolerance(FLOAT32, numerics).close(actual, expected), (actual, expected)


# Symbols.


def test_the_first_snippet() -> None:
    """Inputs, variables, constants and an expression, as the guide begins."""
    x = mg.var("x", shape=("batch", 784))
    W = mg.var("W", shape=(784, 528), init=mg.init.glorot_uniform(seed=0))
    s = mg.var("s", init=5.0)
    c = mg.constant(-2.0)
    y = mg.sigmoid(x @ W + c)
    assert x.shape == ("batch", 784) and x.dtype == FLOAT32 and x.ndim == 2 and x.name == "x"
    assert W.shape == (784, 528) and W.value.shape == (784, 528)
    assert s.shape == () and s.dtype == FLOAT32 and s.value == 5.0
    assert y.shape == ("batch", 528)
    batch = np.random.default_rng(0).normal(size=(3, 784)).astype(np.float32)
    expected = 1 / (1 + np.exp(-(batch.astype(np.float64) @ W.value - 2.0)))
    agree(y.eval({x: batch}), expected)


def test_the_figure() -> None:
    """sigmoid(W @ X + b) with W (6, 5), X (5, 3), b (6, 3)."""
    W, X, b = (
        mg.var(name, shape=shape) for name, shape in (("W", (6, 5)), ("X", (5, 3)), ("b", (6, 3)))
    )
    y = mg.sigmoid(W @ X + b)
    rng = np.random.default_rng(1)
    w, x, c = (rng.normal(size=n.shape).astype(np.float32) for n in (W, X, b))
    value = y.eval({W: w, X: x, b: c})
    assert value.shape == (6, 3) and value.dtype == FLOAT32
    agree(value, 1 / (1 + np.exp(-(w.astype(np.float64) @ x + c))))


def test_explicit_spellings_and_variance() -> None:
    """mg.input and mg.variable are what mg.var makes; with a node or array it is the variance."""
    assert mg.input("x", shape=(2,)).type == mg.var("x", shape=(2,)).type
    assert mg.variable("v", init=1.0).type == mg.var("v", init=1.0).type
    x = mg.var("x", shape=(2, 3))
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    for function in (mg.var, mg.variance):
        agree(function(x, axis=1).eval({x: data}), data.var(axis=1))
        agree(function(data).eval(), data.var())


def test_two_variables_are_two() -> None:
    """Names and shapes do not make variables the same."""
    a, b = mg.var("v", init=1.0), mg.var("v", init=1.0)
    f = mg.function([], a - b, updates={a: a + 1.0})
    assert f() == 0 and f() == 1
    assert len({a, b}) == 2 and a.value == 3 and b.value == 1


# Dimensions.


def test_extents_in_expressions() -> None:
    """With floats and in true divisions an extent is the scalar node of its size."""
    x = mg.var("x", shape=("batch", 3))
    batch = x.shape[0]
    assert isinstance(batch, mg.Dim)
    expected_by_node = {
        1.0 / batch: 0.25,
        batch / 2: 2.0,
        batch / batch: 1.0,
        batch * 2.5: 10.0,
        2.5 * batch: 10.0,
        batch + 0.5: 4.5,
        0.5 - batch: -3.5,
        batch - 0.5: 3.5,
        batch // 2.5: 1.0,
        7.5 % batch: 3.5,
        batch**0.5: 2.0,
        np.float32(2.0) / batch: 0.5,
        mg.sum(x) / batch: 3.0,
    }
    values = mg.function([x], list(expected_by_node))(np.ones((4, 3)))
    for node, value, right in zip(expected_by_node, values, expected_by_node.values(), strict=True):
        assert node.shape == () and node.dtype == FLOAT32
        agree(value, right)
    by_rows = np.ones(2) / batch
    assert by_rows.dtype == np.float64 and by_rows.shape == (2,)
    assert isinstance(batch**2, mg.Dim) and batch**2 == batch * batch
    for refused in (lambda: batch + "1", lambda: batch / None):
        with pytest.raises(TypeError, match="unsupported operand"):
            refused()  # type: ignore[no-untyped-call]


def test_extents_equal_their_names() -> None:
    """A Dim is its name, and closed under + - * // and ceil-division."""
    x = mg.var("x", shape=("batch", 8, None))
    batch, eight, free = x.shape
    assert isinstance(batch, mg.Dim) and batch == "batch" and eight == 8 and type(eight) is int
    assert isinstance(free, mg.Dim) and free != mg.var("y", shape=(None,)).shape[0]
    half = -(-batch // 2)
    y = mg.broadcast_to(mg.constant(1.0), (batch + 1, 2 * batch, batch - 1, batch // 2, half))
    f = mg.function([x], y)
    assert f(np.zeros((5, 8, 1))).shape == (6, 10, 4, 2, 3)


def test_an_extent_is_a_scalar_in_expressions() -> None:
    """Dims mix with nodes; mean divides by the Dim."""
    x = mg.var("x", shape=("batch", 2))
    by_hand = mg.sum(x, axis=0) / x.shape[0]
    f = mg.function([x], [by_hand, mg.mean(x, axis=0), x * x.shape[0], x.shape[0] - x])
    for rows in (1, 4):
        data = np.arange(2.0 * rows, dtype=np.float32).reshape(rows, 2)
        first, second, third, fourth = f(data)
        agree(first, data.mean(axis=0))
        agree(second, data.mean(axis=0))
        agree(third, data * rows)
        agree(fourth, rows - data)
        assert third.dtype == FLOAT32


def test_exact_symbolic_shapes() -> None:
    """reshape(-1), concatenate, slices and their exact extents."""
    x = mg.var("x", shape=("batch", 784))
    batch = x.shape[0]
    images = mg.reshape(x, (-1, 28, 28))
    assert images.shape == ("batch", 28, 28)
    assert mg.concatenate([x, x]).shape == (2 * batch, 784)
    assert x[1:].shape == (dims.maximum(batch - 1, 0), 784)
    assert x[::2].shape[0] == -(-batch // 2)
    assert mg.ravel(x).shape == (784 * batch,)
    assert mg.reshape(mg.ravel(x), (-1, 784)).shape == ("batch", 784)
    f = mg.function([x], [images, mg.concatenate([x, x]), x[1:], x[::2]])
    data = np.arange(3 * 784, dtype=np.float32).reshape(3, 784)
    for value, expected in zip(
        f(data), [data.reshape(-1, 28, 28), np.concatenate([data, data]), data[1:], data[::2]],
        strict=True,
    ):
        np.testing.assert_array_equal(value, expected)


def test_a_named_dimension_never_broadcasts() -> None:
    """It meets itself or a literal 1, also where its size is 1."""
    x, one = mg.var("x", shape=("batch", 3)), mg.var("one", shape=(1, 3))
    y = mg.var("y", shape=("batch", 3))
    assert (x + y).shape == (x + one).shape == ("batch", 3)
    f = mg.function([x, y], x + y)
    assert f(np.ones((1, 3)), np.ones((1, 3))).shape == (1, 3)
    with pytest.raises(mg.FeedError, match="batch"):
        f(np.ones((1, 3)), np.ones((4, 3)))


def test_two_names_meet_at_build() -> None:
    """Two different names raise where the node is built, in the user's own line."""
    x, y = mg.var("x", shape=("rows", 3)), mg.var("y", shape=("columns", 3))
    with pytest.raises(mg.ShapeError) as caught:
        x + y
    text = str(caught.value)
    assert isinstance(caught.value, ValueError)
    for part in ("add", "'x'", "'y'", "rows", "columns", "test_contract.py"):
        assert part in text


@pytest.mark.parametrize("extent", [3, None])
def test_a_name_against_an_int_is_checked_at_the_call(extent: int | None) -> None:
    """So is an anonymous dimension; the error names node and line."""
    x, y = mg.var("x", shape=("batch", 2)), mg.var("y", shape=(extent, 2))
    f = mg.function([x, y], x + y)
    agree(f(np.ones((3, 2)), np.ones((3, 2))), np.full((3, 2), 2.0))
    with pytest.raises(mg.FeedError) as caught:
        f(np.ones((4, 2)), np.ones((3, 2)))
    text = str(caught.value)
    assert "add" in text and "test_contract.py" in text and "4" in text and "3" in text


# Nodes among Python's values.


def test_arrays_mix_from_either_side() -> None:
    """``ndarray * node`` is a node, and so is a NumPy scalar with one."""
    x = mg.var("x", shape=(2,))
    array = np.array([2.0, 3.0], np.float32)
    for mixed in (array * x, x * array, np.float32(2) * x, x * np.float32(2), array[:, None] + x):
        assert isinstance(mixed, mg.Node) and mixed.dtype == FLOAT32
    agree((array * x).eval({x: [1, 1]}), array)
    agree((array @ x).eval({x: [1, 1]}), 5.0)
    assert isinstance(array - x, mg.Node) and isinstance(array < x, mg.Node)


def test_equality_is_elementwise() -> None:
    """== and != compare values, like NumPy's; nodes hash by identity and are dictionary keys."""
    x, y = mg.var("x", shape=(2,)), mg.var("x", shape=(2,))
    assert {x: 1, y: 2}[y] == 2
    f = mg.function([x, y], [x == y, x != y, x == 1, np.ones(2) != x])
    values, others = np.array([1.0, 2.0]), np.array([1.0, 3.0])
    for result, expected in zip(f(values, others), ([1, 0], [0, 1], [1, 0], [0, 1]), strict=True):
        np.testing.assert_array_equal(result, np.array(expected, bool))


def test_no_value_yet() -> None:
    """bool, float, asarray and iteration over a symbolic axis raise with the mend."""
    x = mg.var("x", shape=("batch",))
    for call, hint in (
        (bool, "mg.where"),
        (float, "eval"),
        (int, "eval"),
        (np.asarray, "eval"),
    ):
        with pytest.raises(TypeError, match=hint):
            call(x)
    with pytest.raises((TypeError, mg.ShapeError), match="batch"):
        list(x)
    assert len(list(mg.var("y", shape=(3,)))) == 3


def test_transpose_and_methods() -> None:
    """.T, slicing and the methods of arrays."""
    x = mg.var("x", shape=("batch", 3))
    data = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    assert x.T.shape == (3, "batch")
    nodes = [x.T, x[1, ::-1], x[..., None], x[:, -1], x.sum(axis=0), x.mean(), x.reshape(3, -1),
             x.max(axis=1, keepdims=True), x.T.dot(x), -x, abs(x), x**2, x // 2, x % 2, x @ x.T]
    arrays = [data.T, data[1, ::-1], data[..., None], data[:, -1], data.sum(axis=0), data.mean(),
              data.reshape(3, -1), data.max(axis=1, keepdims=True), data.T.dot(data), -data,
              abs(data), data**2, data // 2, data % 2, data @ data.T]
    for value, expected in zip(mg.function([x], nodes)(data), arrays, strict=True):
        agree(value, expected)
        assert value.shape == expected.shape


def test_names_follow_numpy() -> None:
    """Function names, arguments and broadcasting."""
    x = mg.var("x", shape=(2, 3))
    data = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    nodes = [
        mg.sum(x, axis=(0, 1), keepdims=True), mg.where(x > 2, x, -x), mg.einsum("ij,kj->ik", x, x),
        mg.add(x, 1), mg.subtract(1, x), mg.multiply(x, x), mg.divide(x, 2), mg.pow(x, 2),
        mg.power(x, 2), mg.matmul(x, x.T), mg.stack([x, x], axis=1), mg.flip(x, axis=1),
        mg.take(x, np.array([1, 0]), axis=1), mg.pad(x, ((1, 0), (0, 2))), mg.clip(x, 1, 3),
        mg.std(x, axis=1), mg.norm(x),
    ]
    arrays = [
        data.sum(axis=(0, 1), keepdims=True), np.where(data > 2, data, -data), data @ data.T,
        data + 1, 1 - data, data * data, data / 2, data**2, data**2, data @ data.T,
        np.stack([data, data], axis=1), data[:, ::-1], data[:, [1, 0]],
        np.pad(data, ((1, 0), (0, 2))), data.clip(1, 3), data.std(axis=1), np.linalg.norm(data),
    ]
    for value, expected in zip(mg.function([x], nodes)(data), arrays, strict=True):
        agree(value, expected)


def test_networks_functions() -> None:
    """softmax, log_softmax, logsumexp, layer_norm and cross_entropy with their options."""
    x = mg.var("x", shape=("batch", 4))
    labels = mg.var("labels", shape=("batch",), dtype="int32")
    data = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float32)
    classes = np.array([2, 0, 3], np.int32)
    exact = data.astype(np.float64)
    p = np.exp(exact) / np.exp(exact).sum(axis=-1, keepdims=True)
    normal = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(exact.var(-1, keepdims=True) + 1e-5)
    loss = -np.log(p)[np.arange(3), classes]
    hot = mg.one_hot(labels, 4)
    nodes = [
        mg.softmax(x), mg.softmax(x, axis=0), mg.log_softmax(x), mg.logsumexp(x, axis=-1),
        mg.layer_norm(x), mg.layer_norm(x, scale=2.0, offset=1.0, axis=-1, eps=1e-5),
        mg.cross_entropy(x, labels), mg.cross_entropy(x, hot),
        mg.cross_entropy(x, labels, reduction="none"), mg.cross_entropy(x, labels, reduction="sum"),
    ]
    arrays = [
        p, np.exp(exact) / np.exp(exact).sum(axis=0), np.log(p), np.log(np.exp(exact).sum(-1)),
        normal, normal * 2 + 1, loss.mean(), loss.mean(), loss, loss.sum(),
    ]
    for value, expected in zip(mg.function([x, labels], nodes)(data, classes), arrays, strict=True):
        agree(value, expected)


# dtypes.


def test_dtypes_of_python_values() -> None:
    """A float is float_dtype, an int int32 (int64 where it does not fit); arrays keep theirs."""
    assert mg.constant(1.0).dtype == mg.config.float_dtype == FLOAT32
    assert mg.constant(1).dtype == np.int32 and mg.constant(2**40).dtype == np.int64
    assert mg.constant(np.ones(2)).dtype == np.float64
    assert mg.constant(np.int8(1)).dtype == np.int8 and mg.constant(True).dtype == np.bool_


def test_promotion() -> None:
    """Weak scalars, an integer with a float, and the two 16-bit floats together."""
    names = ["float64", "float32", "float16", "bfloat16", "int8", "int64", "bool"]
    nodes = {name: mg.var("x", shape=(2,), dtype=name) for name in names}
    for name in names[:4]:
        assert (nodes[name] * 2.0).dtype == nodes[name].dtype
        assert (3 + nodes[name]).dtype == nodes[name].dtype
        for other in ("int8", "int64", "bool"):
            assert (nodes[other] * nodes[name]).dtype == nodes[name].dtype
    assert (nodes["bfloat16"] + nodes["float16"]).dtype == FLOAT32
    assert (nodes["float32"] + nodes["float64"]).dtype == np.float64
    assert (nodes["int8"] + 1).dtype == np.int8
    assert (nodes["int8"] + nodes["int64"]).dtype == np.int64
    assert (nodes["int8"] * 2.0).dtype == FLOAT32


def test_feeds_convert_within_a_kind() -> None:
    """float64 to float32, ints where the values fit or are exact; strict refuses."""
    x = mg.var("x", shape=(2,))
    k = mg.var("k", shape=(2,), dtype="int8")
    f = mg.function([x, k], x * k)
    agree(f(np.array([1.5, 2.0]), np.array([2, 3], np.int64)), [3.0, 6.0])
    with pytest.raises(mg.FeedError, match="'k'"):
        f(np.ones(2), np.array([1, 1000]))
    agree(f(np.array([1, 2]), np.ones(2, np.int8)), [1.0, 2.0])
    with pytest.raises(mg.FeedError, match="'x'"):
        f(np.array([1, 2**24 + 1]), np.ones(2, np.int8))
    with pytest.raises(mg.FeedError, match="'k'"):
        f(np.ones(2), np.ones(2))
    strict = mg.function([x], x + 1, strict_feeds=True)
    agree(strict(np.ones(2, np.float32)), [2.0, 2.0])
    for other in (np.ones(2), np.ones(2, np.int8)):
        with pytest.raises(mg.FeedError, match="'x'"):
            strict(other)


def test_mistakes_name_operands_and_mend() -> None:
    """ShapeError and DTypeError: the op, both operands, shapes, lines, and the mend."""
    x, w = mg.var("x", shape=("batch", 784)), mg.var("w", shape=(528, 784))
    with pytest.raises(mg.ShapeError) as caught:
        x @ w
    text = str(caught.value)
    for part in ("matmul", "'x'", "'w'", "784", "528", "test_contract.py", "expected", "try"):
        assert part in text, text
    with pytest.raises(mg.DTypeError) as wrong:
        mg.bitwise_and(x, 1)
    assert isinstance(wrong.value, TypeError)
    for part in ("bitwise_and", "'x'", "float32", "test_contract.py"):
        assert part in str(wrong.value), str(wrong.value)


# Variables and initial values.


def test_reading_and_writing_a_variable() -> None:
    """value is a read-only copy; assigning is checked and in place."""
    W = mg.var("W", init=np.zeros((2, 3), np.float32))
    f = mg.function([], W * 1.0)
    with pytest.raises(ValueError, match="copy of a variable"):
        W.value[:] = 7
    assert not W.value.any()
    copied = W.value.copy()
    copied[0] = 7.0
    W.value = copied
    agree(f(), copied)
    W.value = np.ones((2, 3))
    agree(f(), np.ones((2, 3)))
    W.assign(np.full((2, 3), 2.0))
    agree(f(), np.full((2, 3), 2.0))
    with pytest.raises(mg.ShapeError, match="'W'"):
        W.value = np.ones((3, 2))
    with pytest.raises(mg.DTypeError, match="'W'"):
        W.value = np.ones((2, 3), complex)
    agree(W.value, np.full((2, 3), 2.0))


INITS = {
    "zeros": mg.init.zeros(seed=1),
    "ones": mg.init.ones(seed=1),
    "constant": mg.init.constant(0.5, seed=1),
    "uniform": mg.init.uniform(-1.0, 1.0, seed=1),
    "normal": mg.init.normal(0.0, 1.0, seed=1),
    "glorot_uniform": mg.init.glorot_uniform(seed=1),
    "glorot_normal": mg.init.glorot_normal(seed=1),
    "he_uniform": mg.init.he_uniform(seed=1),
    "he_normal": mg.init.he_normal(seed=1),
    "orthogonal": mg.init.orthogonal(seed=1),
    "identity": mg.init.identity(seed=1),
    "diagonal": mg.init.diagonal(np.arange(40.0), seed=1),
    "mask": mg.init.mask(np.eye(60, 40, dtype=bool), 2.0, seed=1),
}


@pytest.mark.parametrize("name", INITS)
def test_initial_values(name: str) -> None:
    """Each takes a seed, gives the variable's dtype, and repeats itself."""
    first, second = (mg.var("W", shape=(60, 40), init=INITS[name], dtype="float64") for _ in "ab")
    np.testing.assert_array_equal(first.value, second.value)
    assert first.value.shape == (60, 40) and first.value.dtype == np.float64
    assert np.isfinite(first.value).all()


def test_meaning_of_initial_values() -> None:
    """Bounds, spreads and structure."""
    bound = np.sqrt(6 / 100)
    initial_values = {
        n: mg.var("W", shape=(60, 40), init=i, dtype="float64").value for n, i in INITS.items()
    }
    assert 0.9 * bound < abs(initial_values["glorot_uniform"]).max() <= bound
    assert abs(initial_values["uniform"]).max() <= 1 < 1.1 * abs(initial_values["uniform"]).max()
    table = tolerance(np.dtype(np.float64), "reassoc")
    assert table.close(initial_values["orthogonal"].T @ initial_values["orthogonal"], np.eye(40))
    np.testing.assert_array_equal(initial_values["identity"], np.eye(60, 40))
    np.testing.assert_array_equal(initial_values["mask"], 2.0 * np.eye(60, 40))
    assert (
        initial_values["diagonal"][7, 7] == 7 and np.count_nonzero(initial_values["diagonal"]) == 39
    )
    # 2400 draws: the sample's spread is within a tenth of what is asked, far beyond its own error.
    for name, deviation in (("he_normal", np.sqrt(2 / 60)), ("glorot_normal", np.sqrt(2 / 100))):
        assert 0.9 * deviation < initial_values[name].std() < 1.1 * deviation, name


# Random numbers.


def draws(seed: int) -> list[list[np.ndarray]]:
    """Make five random nodes after a seed, and call their function three times."""
    mg.random.seed(seed)
    nodes = [
        mg.random.normal((3, 4), mean=1.0, std=2.0), mg.random.uniform((12,)),
        mg.random.bernoulli((12,), 0.5), mg.random.randint((12,), 0, 1000),
        mg.random.permutation(12),
    ]
    f = mg.function([], nodes)
    return [f() for _ in range(3)]


def test_random_numbers_repeat_and_differ() -> None:
    """The seed decides all; streams, steps and seeds differ; a permutation is one."""
    first, again, other = draws(5), draws(5), draws(6)
    for one, two in zip(itertools.chain(*first), itertools.chain(*again), strict=True):
        np.testing.assert_array_equal(one, two)
    for kind in range(5):
        assert (first[0][kind] != first[1][kind]).any(), "each call draws anew"
        assert (first[0][kind] != other[0][kind]).any(), "each seed differs"
        np.testing.assert_array_equal(np.sort(first[kind % 3][4]), np.arange(12))
    mg.random.seed(5)
    a, b = mg.random.uniform((12,)), mg.random.uniform((12,))
    u, v = mg.function([], [a, b])()
    assert (u != v).any(), "each node has a stream"
    assert (u >= 0).all() and (u < 1).all()


def test_only_committed_calls_advance() -> None:
    """A call that fails draws the same numbers again."""
    mg.random.seed(3)
    x = mg.var("x", shape=(2,))
    noise = mg.random.uniform((2,))
    f = mg.function([x], noise + mg.log(x), nan="raise")
    mg.random.seed(3)
    plain = mg.function([x], mg.random.uniform((2,)) + mg.log(x))
    first = f(np.ones(2))
    np.testing.assert_array_equal(first, plain(np.ones(2)))
    with pytest.raises(mg.NonFiniteError), np.errstate(all="ignore"):
        f(-np.ones(2))
    np.testing.assert_array_equal(f(np.ones(2)), plain(np.ones(2)))


def test_gradients_reuse_the_bits() -> None:
    """The backward pass of dropout sees the mask of the forward pass."""
    mg.random.seed(4)
    x = mg.var("x", shape=(1000,))
    y = mg.dropout(x, 0.5)
    value, slope = mg.function([x], [y, mg.grad(mg.sum(y), x)])(np.ones(1000))
    np.testing.assert_array_equal(value, slope)
    assert 0 < np.count_nonzero(value) < 1000


# NumPy's own functions.


def test_functions_of_numpy_name_their_counterparts() -> None:
    """NumPy's functions would compute: the text names what makes a node."""
    x = mg.var("x", shape=("batch", 3))
    row = np.ones(3, np.float32)
    calls = {
        "sum": lambda: np.sum(x),
        "mean": lambda: np.mean(x, axis=0),
        "concatenate": lambda: np.concatenate([x, x]),
        "where": lambda: np.where(row > 0, x, row),
        "exp": lambda: np.exp(x),
        "hypot": lambda: np.hypot(row, x),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value) == (
            f"np.{name}() computes with values, and a node has none: nothing has run\n"
            f"  try: mg.{name}(), which makes a node, or node.eval() for the value"
        )
    with pytest.raises(TypeError) as caught:
        np.linalg.svd(x)
    assert str(caught.value) == (
        "np.linalg.svd() computes with values, and a node has none: nothing has run\n"
        "  try: mg.linalg.svd(), which makes a node, or node.eval() for the value"
    )
    with pytest.raises(TypeError, match=r"\n  try: mg.fft.fft\(\), which makes a node"):
        np.fft.fft(x)
    with pytest.raises(TypeError, match=r"\n  try: node.eval\(\) for the value"):
        np.savetxt("nowhere", x)
    with pytest.raises(TypeError, match=r"array = array \+ node"):
        row += x
    assert np.shape(x) == ("batch", 3) and np.ndim(x) == 2


def test_operators_of_arrays_on_the_left() -> None:
    """An array or a NumPy scalar on the left leaves every operator to the node."""
    x = mg.var("x", shape=(3,))
    k = mg.var("k", shape=(3,), dtype="int32")
    data, bits = np.array([1.5, -2.0, 3.0], np.float32), np.array([1, 2, 3], np.int32)
    left, mask = np.array([2.0, 4.0, 0.5], np.float32), np.array([6, 5, 4], np.int32)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lt", "ge"):
        apply = getattr(operator, name)
        agree(apply(left, x).eval({x: data}), apply(left, data))
        if name != "matmul":
            agree(apply(np.float32(2.0), x).eval({x: data}), apply(np.float32(2.0), data))
    for name in ("and_", "or_", "xor", "lshift", "rshift"):
        apply = getattr(operator, name)
        np.testing.assert_array_equal(apply(mask, k).eval({k: bits}), apply(mask, bits))
    quotient, rest = divmod(left, x)
    agree(quotient.eval({x: data}), left // data)
    agree(rest.eval({x: data}), left % data)
    for compare in (operator.eq, operator.ne):
        np.testing.assert_array_equal(compare(left, x).eval({x: data}), compare(left, data))


def test_eval_takes_sizes_from_inputs_that_are_not_read() -> None:
    """The gradient of a sum holds no input, but has the shape of one."""
    x = mg.var("x", shape=("batch", 3))
    w = mg.var("w", shape=("batch",))
    g = mg.grad(mg.sum(x) / x.shape[0], x)
    with pytest.raises(mg.ShapeError, match="no size is given for the dimension 'batch'"):
        g.eval()
    for rows in (4, 2):
        np.testing.assert_array_equal(g.eval({x: np.ones((rows, 3))}), np.full((rows, 3), 1 / rows))
        assert (1.0 / x.shape[0]).eval({w: np.ones(rows)}) == 1 / rows
    with pytest.raises(mg.FeedError, match="is fed but is not an input"):
        mg.exp(w).eval({w: np.ones(2), x: np.ones((2, 3))})
