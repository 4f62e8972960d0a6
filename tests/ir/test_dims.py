"""Extents: exact algebra, one form for equal expressions, slices, meetings and binding."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from magmagraph.errors import ShapeError
from magmagraph.ir import dims
from magmagraph.ir.dims import (
    BindingFailure,
    BroadcastFailure,
    Constraint,
    Dim,
    anonymous,
    broadcast,
    ceil_div,
    evaluate,
    exact_divide,
    lower,
    maximum,
    minimum,
    names,
    parse,
    parse_shape,
    require,
    size,
    slice_extent,
    solve,
    substitute,
    unify,
    upper,
)

n, m, k = Dim("n"), Dim("m"), Dim("k")

OPERATIONS: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    minimum,
    maximum,
    ceil_div,
]
EXPRESSIONS = st.recursive(
    st.one_of(st.integers(-9, 9), st.sampled_from(["n", "m", "k"])),
    lambda inner: st.tuples(st.sampled_from(OPERATIONS), inner, inner),
    max_leaves=6,
)
POLYNOMIALS = st.recursive(
    st.one_of(st.integers(-9, 9), st.sampled_from(["n", "m", "k"])),
    lambda inner: st.tuples(st.sampled_from(OPERATIONS[:3]), inner, inner),
    max_leaves=6,
)
SIZES = st.fixed_dictionaries({name: st.integers(0, 13) for name in "nmk"})


def built(tree: Any) -> dims.Extent:
    if isinstance(tree, tuple):
        return tree[0](built(tree[1]), built(tree[2]))
    return Dim(tree) if isinstance(tree, str) else tree


def computed(tree: Any, sizes: dict[str, int]) -> int:
    if isinstance(tree, tuple):
        return tree[0](computed(tree[1], sizes), computed(tree[2], sizes))
    return sizes[tree] if isinstance(tree, str) else tree


def extent_of(tree: Any) -> dims.Extent:
    try:
        return built(tree)
    except ZeroDivisionError:
        assume(False)
        raise


@settings(max_examples=400, deadline=None)
@given(EXPRESSIONS, SIZES)
def test_evaluation_agrees_with_python(tree: Any, sizes: dict[str, int]) -> None:
    extent = extent_of(tree)
    try:
        expected = computed(tree, sizes)
    except ZeroDivisionError:
        assume(False)
    assert evaluate(extent, sizes) == expected
    assert lower(extent) <= expected <= upper(extent)
    assert substitute(extent, sizes) == expected
    assert names(extent) <= set(sizes)


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS)
@example((ceil_div, (maximum, 0, (operator.add, -1, "n")), (ceil_div, "n", 2)))
def test_text_pickle_and_substitution_give_the_same_extent_back(tree: Any) -> None:
    extent = extent_of(tree)
    assert parse(str(extent)) == extent
    assert pickle.loads(pickle.dumps(extent)) == extent
    assert hash(parse(str(extent))) == hash(extent)
    assert substitute(extent, {}) == extent
    assert substitute(extent, {"n": n, "m": m, "k": k}) == extent


@settings(max_examples=200, deadline=None)
@given(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS)
@example(0, (ceil_div, (minimum, 1, "n"), -2), 0)
def test_laws_hold_as_equality_of_objects(first: Any, second: Any, third: Any) -> None:
    a, b, c = extent_of(first), extent_of(second), extent_of(third)
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a * b == b * a
    assert (a * b) * c == a * (b * c)
    assert (a + b) * c == a * c + b * c
    assert a - a == 0
    assert minimum(a, b) == minimum(b, a)
    assert minimum(a, b) + maximum(a, b) == a + b
    if b != 0:
        assert a // b * b + a % b == a


@settings(max_examples=200, deadline=None)
@given(POLYNOMIALS, st.integers(2, 9))
def test_parts_of_a_stride_add_up(tree: Any, stride: int) -> None:
    extent = extent_of(tree)
    assert (extent + 1) // 2 + extent // 2 == extent
    assert (extent * stride) // stride == extent
    assert ceil_div(extent, stride) == (extent + stride - 1) // stride


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (n * 784 // 784, n),
        (n * m // m, n),
        ((n * n - 1) // (n + 1), n - 1),
        ((2 * n + 1) // 2, n),
        ((6 * n + 4) // 4, n + (n + 2) // 2),
        (n // 2 // 3, n // 6),
        (n // m // 2, n // (2 * m)),
        (((n + 1) // 2 + 1) // 2, (n + 3) // 4),
        (-(-n // 2), (n + 1) // 2),
        (-(-n // m), (n + m - 1) // m),
        ((n + 1) // 2 + n // 2, n),
        (n % 2 + n // 2 * 2, n),
        (minimum(minimum(n, 5), 3), minimum(n, 3)),
        (minimum(minimum(n, 3), 5), minimum(n, 3)),
        (minimum(5, n), minimum(n, 5)),
        (minimum(n // 2, n), n // 2),
        (minimum(2 * n, 2 * m), 2 * minimum(n, m)),
        (maximum(n, 0), n),
        (minimum(n, -1), -1),
        (slice_extent(n, None, 2) + slice_extent(n, 2, None), n),
        (slice_extent(n, None, None, 2) + slice_extent(n, 1, None, 2, []), n),
    ],
)
def test_equal_expressions_are_equal(left: Any, right: Any) -> None:
    assert left == right
    assert hash(left) == hash(right)
    assert str(left) == str(right)


@pytest.mark.parametrize(
    ("extent", "text"),
    [
        (2 * Dim("batch") + 1, "2*batch + 1"),
        (Dim("batch") // 2, "batch//2"),
        (1 - n, "-n + 1"),
        (n * m - n, "m*n - n"),
        (3 * (n // 2), "3*(n//2)"),
        (-(n // 3), "-(n//3)"),
        (n + (n + 1) // m, "n + (n + 1)//m"),
        (ceil_div(n, 2), "(n + 1)//2"),
        (minimum(n, 5), "min(n, 5)"),
        (maximum(n - 2, 0), "max(n - 2, 0)"),
        (minimum(n, m) * 2, "2*n + 2*min(m - n, 0)"),
        ((n - 3) // 2 + 1, "(n - 1)//2"),
        (n * n, "n*n"),
    ],
)
def test_text(extent: Any, text: str) -> None:
    assert str(extent) == repr(extent) == text
    assert parse(text) == extent


@pytest.mark.parametrize("text", ["", "n +", "n 2", "(n", "n // 0", "2.5", "min(n)", "n & m", "*n"])
def test_unreadable_text(text: str) -> None:
    with pytest.raises(ShapeError, match="is not an extent"):
        parse(text)


def test_identity_with_names() -> None:
    assert Dim("n") is n
    assert n == "n"
    assert n != "m"
    assert n != 5
    assert n + 1 != "n"
    assert {n: 1}["n"] == {"n": 1}[n] == 1  # type: ignore[index]
    assert copy.deepcopy(n) is n
    assert pickle.loads(pickle.dumps(n)) is n
    assert isinstance(n - n + 3, int)
    assert np.int64(3) * n == 3 * n == n * np.int64(3)
    assert isinstance((np.int64(3) + n - n), int)


def test_anonymous_dimensions_differ() -> None:
    first, second = anonymous(), anonymous()
    assert first != second
    assert first - first == 0
    assert first - second != 0
    assert str(first)[0] == "?"
    read = parse("?1000000")
    assert parse(str(read)) == read
    assert anonymous() != read
    assert int(str(anonymous())[1:]) > 1_000_000


def test_no_number_before_the_call() -> None:
    for convert in (int, float, operator.index, bool):
        with pytest.raises(TypeError, match="known"):
            convert(n)
    assert bool(n + 1)
    with pytest.raises(TypeError, match="unsupported operand"):
        n + "2.5"  # type: ignore[operator]
    with pytest.raises(ShapeError, match="'a b' is not a name"):
        Dim("a b")


def test_comparison_where_signs_decide() -> None:
    assert n >= 0
    assert n + 1 > 0
    assert n * m + 2 >= 2
    assert not n + 1 <= 0
    assert minimum(n, 5) <= 5
    assert minimum(n, 5) <= n
    assert n // 2 <= n
    assert 2 * (n // 2) <= n
    with pytest.raises(TypeError, match="whether n > 1 is not known before the call"):
        _ = n > 1


BOUNDS = st.one_of(st.none(), st.integers(-8, 8))
STEPS = st.sampled_from([None, 1, 2, 3, -1, -2, -3])


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 12), BOUNDS, BOUNDS, STEPS)
def test_slices_agree_with_python(
    length: int, start: int | None, stop: int | None, step: int | None
) -> None:
    expected = len(range(length)[start:stop:step])
    assert slice_extent(length, start, stop, step) == expected
    assert evaluate(slice_extent(n, start, stop, step), {"n": length}) == expected
    needs: list[Constraint] = []
    simple = slice_extent(n, start, stop, step, needs)
    if all(need.check({"n": length}) for need in needs):
        assert evaluate(simple, {"n": length}) == expected


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), STEPS)
def test_symbolic_bounds_agree_with_python(length: int, a: int, b: int, step: int | None) -> None:
    sizes = {"n": length, "m": a, "k": b}
    for start, stop in product((None, m, m + 1, -m - 1, 2), (None, k, n - k, -2, minimum(n, k))):
        needs: list[Constraint] = []
        extent = slice_extent(n, start, stop, step, needs)
        if all(need.check(sizes) for need in needs):
            bounds = [v if v is None else evaluate(v, sizes) for v in (start, stop)]
            assert evaluate(extent, sizes) == len(range(length)[bounds[0] : bounds[1] : step])


def test_slices_in_their_simple_form() -> None:
    needs: list[Constraint] = []
    assert slice_extent(n, 1, None, None, needs) == maximum(n - 1, 0)
    assert slice_extent(n, None, -1, None, needs) == maximum(n - 1, 0)
    assert slice_extent(n, 2, -3, None, needs) == maximum(n - 5, 0)
    assert slice_extent(maximum(n - 1, 0), None, -2, None, needs) == maximum(n - 3, 0)
    assert slice_extent(n, 1, None, 2, needs) == n // 2
    assert slice_extent(n, None, None, -1, needs) == n
    assert slice_extent(n, None, None, 2, needs) == (n + 1) // 2
    assert slice_extent(n, None, 4, None, needs) == minimum(n, 4)
    assert slice_extent(n + 2, 2, None, None, needs) == n
    assert slice_extent(n, 4, 2, None, needs) == 0
    assert needs == []  # no size is refused
    assert slice_extent(n, m, None, None, needs) == n - m
    assert needs[0] == Constraint(n, ">=", m)
    with pytest.raises(ShapeError, match="step of a slice is 0"):
        slice_extent(n, None, None, 0)
    with pytest.raises(ShapeError, match="whether the slice bound m - 3 is negative"):
        slice_extent(n, m - 3, None)


@pytest.mark.parametrize(
    ("left", "right", "result", "open_questions"),
    [
        (3, 3, 3, []),
        (3, 4, None, []),
        (n, n, n, []),
        (n, m, None, []),
        (n, n + 1, None, []),
        (n, 5, 5, ["n == 5"]),
        (5, n, 5, ["n == 5"]),
        (2 * n, 7, None, []),
        (2 * n, 8, 8, ["2*n == 8"]),
        (n + 3, 2, None, []),
        (n // 2, n // 3, n // 2, ["n//2 == n//3"]),
        (n // 2, m, None, []),
        (parse("?7"), n, n, ["?7 == n"]),
        (n, parse("?7"), n, ["n == ?7"]),
        (parse("?7"), 4, 4, ["?7 == 4"]),
        (parse("?7"), parse("?8"), parse("?7"), ["?7 == ?8"]),
        (parse("?7") - 1, n, n, ["?7 - 1 == n"]),
    ],
)
def test_unify(left: Any, right: Any, result: Any, open_questions: list[str]) -> None:
    constraints: list[Constraint] = []
    assert unify(left, right, constraints) == result
    assert list(map(str, constraints)) == open_questions


def test_require() -> None:
    constraints: list[Constraint] = []
    assert require(n + 1, ">=", 1, constraints)
    assert not require(0, ">=", n + 1, constraints)
    assert not constraints
    assert not require(n, ">=", 1, None)
    assert require(n, ">=", 1, constraints)
    assert [c.check({"n": 0}) for c in constraints] == [False]
    assert constraints == pickle.loads(pickle.dumps(constraints))


def test_broadcast() -> None:
    constraints: list[Constraint] = []
    assert broadcast([], constraints) == ()
    assert broadcast([(), (3,)], constraints) == (3,)
    assert broadcast([(n, 1, 4), (5, 1), (n, 1, 1)], constraints) == (n, 5, 4)
    assert not constraints
    assert broadcast([(n, 3), (2, 3)], constraints) == (2, 3)
    assert constraints == [Constraint(n, "==", 2)]
    with pytest.raises(BroadcastFailure) as caught:
        broadcast([(n, 3), (1,), (m, 1)], constraints)
    assert str(caught.value) == (
        "extents n and m do not meet at axis -2\n"
        "  expected: the same extent, or a literal 1 (a named dimension never broadcasts)"
    )
    assert (caught.value.axis, caught.value.first, caught.value.second) == (-2, 0, 2)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=3))
def test_broadcast_of_ints_is_that_of_numpy(shapes: list[list[int]]) -> None:
    try:
        expected = np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        with pytest.raises(BroadcastFailure):
            broadcast([tuple(shape) for shape in shapes], [])
    else:
        assert broadcast([tuple(shape) for shape in shapes], []) == expected


def test_exact_division() -> None:
    constraints: list[Constraint] = []
    assert exact_divide(size((n, 28, 28)), 784, constraints) == n
    assert exact_divide(size((n, 6)), size((n, 2)), constraints) == 3
    assert not constraints
    assert exact_divide(n, 2, constraints) == n // 2
    assert [c.check({"n": 3}) for c in constraints] == [False]
    assert [c.check({"n": 4}) for c in constraints] == [True]
    assert exact_divide(7, 2, constraints) is None
    assert exact_divide(0, 0, constraints) is None


def test_shapes_are_read() -> None:
    assert parse_shape(("n", 784)) == (n, 784)
    assert parse_shape([np.int64(3), n + 1]) == (3, n + 1)
    assert type(parse_shape([np.int64(3)])[0]) is int
    assert parse_shape("n") == (n,)
    assert parse_shape(5) == (5,)
    assert parse_shape(()) == ()
    first, second = parse_shape((None, None))
    assert first != second
    assert size((n, 2, m)) == 2 * n * m


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (
            (2, -1),
            "-1 in shape (2, -1) is negative\n  expected: extents of at least 0\n"
            "  try: None stands for an extent that is not known",
        ),
        (
            ("a b",),
            "'a b' in shape ('a b',) is not a name for a dimension\n"
            "  expected: a Python identifier\n"
            "  try: an expression is built by arithmetic: mg.Dim('batch') * 2",
        ),
        ((2.0,), "2.0 in shape (2.0,) is not an extent\n  expected: an int, a name, a Dim or None"),
        (
            (True,),
            "True in shape (True,) is not an extent\n  expected: an int, a name, a Dim or None",
        ),
        (
            2.5,
            "2.5 is not a shape\n  expected: a tuple of ints, names and None, such as ("
        "'batch', 784)",
        ),
    ],
)
def test_bad_shapes(shape: Any, text: str) -> None:
    with pytest.raises(ShapeError) as caught:
        parse_shape(shape)
    assert str(caught.value) == text


def test_solve() -> None:
    assert solve([(n, 784), (n,)], [(100, 784), (100,)]) == {"n": 100}
    assert solve([(2 * n + 1, n + m)], [(7, 5)]) == {"n": 3, "m": 2}
    assert solve([(n + m,), (n - 1,)], [(9,), (4,)]) == {"n": 5, "m": 4}
    assert solve([(n // 2, n)], [(2, 5)]) == {"n": 5}


@pytest.mark.parametrize(
    ("shapes", "actual", "place", "reason"),
    [
        ([(n,), (n, 2)], [(3,), (4, 2)], (1, 0), "axis 0 is 4, but n is 3 by axis 0 of input 0"),
        ([(n, n)], [(3, 4)], (0, 1), "axis 1 is 4, but n is 3 by axis 0"),
        ([(n, 784)], [(3, 785)], (0, 1), "axis 1 is 785, not 784"),
        ([(n, 784)], [(3,)], (0, None), "it has 1 axis, but 2 axes are wanted"),
        ([(2 * n,)], [(3,)], (0, 0), "axis 0 is 3, but 2*n is 2 for n = 1"),
        ([(n + 3,)], [(2,)], (0, 0), "axis 0 is 2, but n + 3 is at least 3"),
        ([(n // 2,)], [(2,)], (0, 0), "axis 0 is 2, and n cannot be derived from n//2"),
        ([(n, n * n)], [(3, 8)], (0, 1), "axis 1 is 8, but n*n is 9 for n = 3"),
    ],
)
def test_failures_of_binding(shapes: Any, actual: Any, place: Any, reason: str) -> None:
    failure = solve(shapes, actual)
    assert isinstance(failure, BindingFailure)
    assert (failure.index, failure.axis) == place
    assert str(failure) == reason


def test_missing_sizes_and_zero_divisors() -> None:
    with pytest.raises(ShapeError, match="no size is given for the dimension 'm'"):
        evaluate(n + m, {"n": 1})
    with pytest.raises(ShapeError, match="n//m divides by zero for m = 0, n = 1"):
        evaluate(n // m, {"n": 1, "m": 0})


def test_a_long_chain_of_extents_stays_flat() -> None:
    extent: dims.Extent = n
    for _ in range(20_000):
        extent = (extent + 3) // 1 - 1
    assert extent == n + 40_000
