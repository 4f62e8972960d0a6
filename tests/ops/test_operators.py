"""Operators, methods and indexing of nodes, and what nodes refuse."""

from __future__ import annotations

import ast
import gc
import inspect
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interpreted import value

import magmagraph as mg
from magmagraph.ir.identity import WeakMap
from magmagraph.ops.operators import Operators

A = np.array([[1.5, -2.0, 0.5], [3.0, 0.25, -1.0]], dtype=np.float32)
B = np.array([2.0, -1.5, 4.0], dtype=np.float32)
K = np.array([[6, -3, 2], [7, 0, 1]], dtype=np.int32)
FLAGS = np.array([[True, False, True], [False, False, True]])

BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
]
INTEGER = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


def _agree(node: mg.Node, expected: Any, feeds: dict[mg.Node, Any]) -> None:
    assert isinstance(node, mg.Node)
    result = value(node, feeds)
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == np.asarray(expected).dtype


@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
def test_operator_mixes_nodes_arrays_and_numbers(function: Callable[..., Any]) -> None:
    x, y = mg.input("x", A.shape), mg.input("y", B.shape)
    _agree(function(x, y), function(A, B), {x: A, y: B})
    _agree(function(x, B), function(A, B), {x: A})
    _agree(function(A, y), function(A, B), {y: B})
    _agree(function(x, 2.0), function(A, 2.0), {x: A})
    _agree(function(2.0, y), function(2.0, B), {y: B})
    _agree(function(x, 2), function(A, 2), {x: A})
    _agree(function(np.float32(2.5), y), function(np.float32(2.5), B), {y: B})


@pytest.mark.parametrize("function", INTEGER, ids=lambda f: f.__name__)
def test_bit_operator_from_either_side(function: Callable[..., Any]) -> None:
    x = mg.input("x", K.shape, "int32")
    _agree(function(x, 2), function(K, np.int32(2)), {x: K})
    _agree(function(abs(x), x * 0 + 1), function(abs(K), np.ones_like(K)), {x: K})
    _agree(function(5, abs(x)), function(np.int32(5), abs(K)), {x: K})


def test_logic_of_bools() -> None:
    x = mg.input("x", FLAGS.shape, "bool")
    _agree(x & ~x, FLAGS & ~FLAGS, {x: FLAGS})
    _agree(x | True, FLAGS | True, {x: FLAGS})
    _agree(True ^ x, True ^ FLAGS, {x: FLAGS})


def test_unary_operators_and_powers() -> None:
    x = mg.input("x", A.shape)
    _agree(-x, -A, {x: A})
    _agree(abs(x), abs(A), {x: A})
    _agree(round(x), np.round(A), {x: A})
    _agree(x**2, A**2, {x: A})
    _agree(2.0**x, np.float32(2.0) ** A, {x: A})
    assert +x is x
    quotient, rest = divmod(x, 0.75)
    _agree(quotient, A // np.float32(0.75), {x: A})
    _agree(rest, A % np.float32(0.75), {x: A})
    quotient, rest = divmod(5.0, x)
    _agree(quotient, np.float32(5.0) // A, {x: A})
    _agree(rest, np.float32(5.0) % A, {x: A})


def test_matmul_from_either_side() -> None:
    x = mg.input("x", A.shape)
    _agree(x @ B, A @ B, {x: A})
    _agree(A.T @ x, A.T @ A, {x: A})
    _agree(x @ x.T, A @ A.T, {x: A})


@pytest.mark.parametrize(
    "call",
    [
        lambda v: v.sum(),
        lambda v: v.sum(axis=0, keepdims=True),
        lambda v: v.prod(axis=1),
        lambda v: v.mean(axis=0),
        lambda v: v.var(axis=1),
        lambda v: v.max(axis=(0, 1)),
        lambda v: v.min(0),
        lambda v: v.argmax(1),
        lambda v: v.argmin(axis=-1),
        lambda v: v.any(axis=1),
        lambda v: v.all(),
        lambda v: v.clip(-1.0, 1.0),
        lambda v: v.round(),
        lambda v: v.astype("int32"),
        lambda v: v.reshape(3, 2),
        lambda v: v.reshape((-1,)),
        lambda v: v.transpose(),
        lambda v: v.transpose(1, 0),
        lambda v: v.transpose((1, 0)),
        lambda v: v.T,
        lambda v: v.swapaxes(0, 1),
        lambda v: v.ravel(),
        lambda v: v.flatten(),
        lambda v: v[1],
        lambda v: v[:, ::-1],
        lambda v: v[..., None],
        lambda v: v[-1, 1:],
        lambda v: v.dot(B),
    ],
)
def test_method_is_numpy_s(call: Callable[[Any], Any]) -> None:
    x = mg.input("x", A.shape)
    node, expected = call(x), call(A)
    result = value(node, {x: A})
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=mg.dtypes.tolerance(A.dtype, "reassoc")[0])


def test_mean_divides_by_the_named_size() -> None:
    x = mg.input("x", ("batch", 3))
    for rows in (1, 2, 5):
        array = np.arange(3.0 * rows, dtype=np.float32).reshape(rows, 3)
        np.testing.assert_array_equal(value(mg.mean(x), {x: array}), array.mean())
        np.testing.assert_array_equal(value(x.mean(axis=0), {x: array}), array.mean(axis=0))


def test_length_and_iteration_of_an_int_axis() -> None:
    x = mg.input("x", (2, "n"))
    assert len(x) == 2
    first, second = x
    np.testing.assert_array_equal(value(first + second, {x: A}), A[0] + A[1])


def _raises(error: type[Exception], text: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == text


def test_equality_compares_values_from_either_side(rng: np.random.Generator) -> None:
    x, y = mg.input("x", ("n", 3)), mg.input("y", (3,), "int32")
    a = rng.integers(0, 3, (5, 3)).astype(np.float32)
    b = np.array([2, 0, 1], np.int32)
    cases = {
        "nodes": (x == y, a == b),
        "not": (x != y, a != b),
        "itself": (x == x, a == a),
        "number": (x == 1, a == 1),
        "reflected": (1.0 == x, a == 1.0),
        "scalar": (np.float32(1) != x, a != 1),
        "array": (b == x, a == b),
        "arrays": (x != b, a != b),
        "list": (y == [2, 1, 0], b == [2, 1, 0]),
        "bool": ((x > 1) == (y > 1), (a > 1) == (b > 1)),
        "dim": (y == x.shape[0], b == 5),
    }
    result = mg.function([x, y], {name: node for name, (node, _) in cases.items()})(a, b)
    for name, (_, expected) in cases.items():
        np.testing.assert_array_equal(result[name], expected, name)


def test_what_has_no_values_is_refused_with_the_right_spelling() -> None:
    x = mg.input("x", (3,))
    text = (
        "node {0}: {1} compares the values of a node, element by element\n"
        "  expected: a node, an array or a number on the other side\n  try: {2}"
    )
    _raises(TypeError, text.format("== None", "==", "node is None"), lambda: x == None)  # noqa: E711
    _raises(TypeError, text.format("!= None", "!=", "node is not None"), lambda: None != x)  # noqa: E711
    _raises(TypeError, text.format("== 'x'", "==", "node.name == 'x'"), lambda: x == "x")
    with pytest.raises(mg.DTypeError, match="a constant is made of numbers"):
        x == object()


def test_nodes_are_keys_by_identity() -> None:
    x, y = mg.input("x", (3,)), mg.input("x", (3,))
    assert {x: 1, y: 2}[x] == 1
    assert x in {x, y}
    assert x not in {y}
    assert x not in {y: 1, id(x): 2, "x": 3}
    assert {(x, y): 1}.get((y, x)) is None
    many = [mg.input("x", ()) for _ in range(5000)]
    assert len({hash(node) for node in many}) == len(set(many)) == len(many)
    assert x in [x, y]
    for use in (lambda: x in [y, x], lambda: [y, x].index(x), lambda: (x, 1) == (y, 1)):
        with pytest.raises(mg.ArgumentError, match=r"any\(n is node for n in nodes\)"):
            use()


def test_values_of_nodes_are_held_by_identity_as_long_as_they_live() -> None:
    values_of: WeakMap[mg.Node, int] = WeakMap()
    x, y = mg.input("x", (3,)), mg.input("x", (3,))
    values_of[x], values_of[y] = 1, 2
    assert (values_of.get(x), values_of.get(y)) == (1, 2)
    values_of[x] = 3
    del y
    gc.collect()
    assert values_of.get(x) == 3
    assert len(values_of._held) == 1


REFUSED: list[tuple[Callable[[mg.Node], Any], str]] = [
    (
        bool,
        "the truth value of a node has no meaning: nothing has run yet\n"
        "  try: mg.where(condition, a, b), or node.eval() for the value",
    ),
    (
        float,
        "float() of a node has no meaning: nothing has run yet\n  try: node.eval() for the value",
    ),
    (
        int,
        "int() of a node has no meaning: nothing has run yet\n  try: node.eval() for the value",
    ),
    (
        np.asarray,
        "np.asarray() of a node has no meaning: nothing has run yet\n"
        "  try: node.eval() for the value, or a function of magmagraph in NumPy's place",
    ),
    (
        lambda x: 1.0 in x,
        "'in' of a node has no meaning: nothing has run yet\n"
        "  try: mg.any(node == value).eval()",
    ),
    (
        lambda x: operator.setitem(x, 0, 1.0),
        "a node cannot be written into: it is a value, not a buffer\n"
        "  try: x.at[key].set(value), which makes a node; mg.where(mask, new, x); or "
        "variable.assign(array) for a variable",
    ),
    (lambda x: len(x.sum()), "len() of a node without axes"),
    (lambda x: list(x.sum()), "iteration over a node without axes"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_value_is_not_there_yet(call: Callable[[mg.Node], Any], text: str) -> None:
    x = mg.input("x", (2,))
    _raises(TypeError, text, lambda: call(x))


def test_symbolic_axis_cannot_be_counted() -> None:
    x = mg.input("x", ("batch", 3))
    _raises(
        mg.ShapeError,
        "iteration over the axis 'batch', whose size is known only at the call\n"
        "  expected: an int extent\n"
        "  try: operations on the whole axis, or an int in the input's shape",
        lambda: list(x),
    )
    _raises(
        mg.ShapeError,
        "len() of a node whose first extent is 'batch', known only at the call\n"
        "  try: node.shape[0], which computes in shapes and as mg.extent(node.shape[0])",
        lambda: len(x),
    )


def test_numpy_functions_are_refused() -> None:
    x = mg.input("x", (2,))
    with pytest.raises(TypeError):
        np.exp(x)  # type: ignore[call-overload]


def test_mismatch_names_both_operands_and_their_lines() -> None:
    x, y = mg.input("x", (2, 3)), mg.input("y", (2, 4))
    with pytest.raises(mg.ShapeError) as caught:
        x + y
    lines = str(caught.value).splitlines()
    assert lines[0] == "add: extents 3 and 4 do not broadcast (axis -1)"
    assert any("'x' float32[2, 3] by input" in line and __file__ in line for line in lines)
    assert any("'y' float32[2, 4] by input" in line and __file__ in line for line in lines)


def test_names_do_not_broadcast() -> None:
    x, y = mg.input("x", ("n",)), mg.input("y", ("m",))
    with pytest.raises(mg.ShapeError) as caught:
        x * y
    assert str(caught.value).splitlines()[0] == (
        "multiply: extents n and m do not broadcast (axis -1)"
    )


def test_weak_numbers_and_promotion() -> None:
    narrow = mg.input("x", (2,), "float16")
    assert (narrow * 2.0).dtype == np.float16
    assert (narrow + mg.input("i", (2,), "int64")).dtype == np.float16
    assert (mg.input("b", (2,), "bfloat16") * narrow).dtype == np.float32
    integers = mg.input("i", (2,), "int8")
    assert (integers + 1).dtype == np.int8
    assert (integers * 0.5).dtype == mg.config.float_dtype
    assert (integers / integers).dtype == mg.config.float_dtype
    assert mg.sqrt(integers).dtype == mg.config.float_dtype


def test_declared_methods_are_defined():
    tree = ast.parse(inspect.getsource(sys.modules[mg.Node.__module__]))
    declared: list[str] = []
    for part in ast.walk(tree):
        if isinstance(part, ast.If) and ast.unparse(part.test) == "TYPE_CHECKING":
            declared += [f.name for f in part.body if isinstance(f, ast.FunctionDef)]
    assert "__add__" in declared and "eval" in declared
    assert [name for name in declared if name not in vars(mg.Node)] == []
    defined = [name for name in vars(Operators) if callable(vars(Operators)[name])]
    assert set(defined) <= set(declared)
