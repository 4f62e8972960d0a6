"""Array expressions as lists of NumPy's calls: what is written down, and where results lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.runtime.cpu.tape_memory import Program
from magmagraph.runtime.cpu.ufunc_tape import NotRecordable, UfuncTape

F4 = np.dtype(np.float32)


def written(
    evaluate: Callable[..., Any], *arrays: np.ndarray, shared: tuple[int, ...] = ()
) -> tuple[Program, np.ndarray]:
    """Return an expression's program, run once, and its result; operands `shared` lie in it."""
    script = UfuncTape()
    operands = [script.given(a.shape, a.dtype) for a in arrays]
    made = script.expression(evaluate, operands, {})
    value = script.values[made]
    out = np.empty(value.shape, value.dtype)
    if shared:
        out = arrays[shared[0]]
    target = script.given(out.shape, out.dtype)
    program = script.program([(made, target)], {target: frozenset(operands[i] for i in shared)})
    for number, array in zip([*operands, target], [*arrays, out], strict=True):
        program.registers[number] = array
    with np.errstate(all="ignore"):
        program.run()
    return program, out


EXPRESSIONS: list[Callable[..., Any]] = [
    lambda xp, x, y: x + y * 2,
    lambda xp, x, y: 1 / (1 + xp.exp(-x)),
    lambda xp, x, y: xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(y))),
    lambda xp, x, y: xp.where(x > y, x, 0),
    lambda xp, x, y: xp.where(x != x, 1.5, y - x) ** 2,
    lambda xp, x, y: (x < y) & ~(x > 0),
    lambda xp, x, y: (x * 3).astype(np.int32) % 2,
    lambda xp, x, y: np.float64(2) * x - xp.sqrt(xp.square(y)),
    lambda xp, x, y: xp.add(x, np.arange(7, dtype=np.float32)) // 1,
    lambda xp, x, y: x,
]


@pytest.mark.parametrize("rows", [1, 5, 700])
@pytest.mark.parametrize("number", range(len(EXPRESSIONS)))
def test_what_is_written_is_what_numpy_computes(
    number: int, rows: int, rng: np.random.Generator
) -> None:
    evaluate = EXPRESSIONS[number]
    x, y = (rng.standard_normal((rows, 7)).astype(np.float32) for _ in range(2))
    x[0, :3] = np.nan, np.inf, -0.0
    with np.errstate(all="ignore"):
        wanted = evaluate(np, x, y)
    program, got = written(evaluate, x, y)
    assert not program.free
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))


def test_a_sigmoid_is_four_calls_in_the_memory_of_its_result() -> None:
    x = np.linspace(-200, 200, 1001).astype(np.float32)
    program, out = written(lambda xp, x: 1 / (1 + xp.exp(-x)), x)
    assert len(program.calls) == 4
    memory = [a for a in program.registers if isinstance(a, np.ndarray) and a.size == x.size]
    apart = {a.ctypes.data for a in memory}
    assert len(apart) == 3  # the operand, the result, and one between them
    assert out[0] == 0 and out[-1] == 1


def test_an_expression_twice_is_computed_once() -> None:
    x = np.float32([1, 2])
    program, _ = written(lambda xp, x: xp.exp(x) * (1 + xp.exp(x)), x)
    assert len(program.calls) == 3


@pytest.mark.parametrize(
    "evaluate",
    [
        lambda xp, x: x if x.sum() > 0 else -x,
        lambda xp, x: xp.exp(x) if bool(x) else x,
        lambda xp, x: xp.clip(x, 0, 1),
        lambda xp, x: xp.frexp(x)[0],
        lambda xp, x: xp.asarray(x) + 1,
        lambda xp, x: 3.0,
        lambda xp, x: xp.exp(x, out=x),
        lambda xp, x: xp.add.accumulate(x),
        lambda xp, x: x[0] + x,
        lambda xp, x: sum((x * i for i in range(100)), x),
    ],
    ids=[
        "compared", "asked", "no ufunc", "of several", "converted", "a number", "written into",
        "a method", "a part", "too long",
    ],
)  # fmt: skip
def test_what_cannot_be_told_leaves_nothing_behind(evaluate: Callable[..., Any]) -> None:
    script = UfuncTape()
    x = script.given((4,), F4)
    doubled = script.expression(lambda xp, x: x * 2, [x], {})
    before = len(script.values), len(script.calls), dict(script.arrays)
    with pytest.raises(NotRecordable):
        script.expression(evaluate, [x], {})
    assert (len(script.values), len(script.calls)) == before[:2]
    assert script.arrays.keys() == before[2].keys()
    assert script.expression(lambda xp, x: x * 2, [x], {}) == doubled


@pytest.mark.parametrize("count", [10, 5000])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint8"])
def test_choices_are_right_bit_by_bit(dtype: str, count: int, rng: np.random.Generator) -> None:
    x, y = rng.integers(-5, 5, (2, count)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x[:4], y[2:6] = (np.nan, -0.0, np.inf, -np.inf), (-np.nan, 0.0, -0.0, np.inf)
    condition = rng.random(count) < 0.5
    for other in (y, y[:1]):
        wanted = np.where(condition, x, other)
        _, got = written(lambda xp, c, x, y: xp.where(c, x, y), condition, x, other)
        assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("count", [10, 5000])
@pytest.mark.parametrize("place", [1, 2])
def test_a_choice_may_lie_where_one_of_its_operands_lies(
    count: int, place: int, rng: np.random.Generator
) -> None:
    x, y = rng.standard_normal((2, count)).astype(np.float32)
    condition = rng.random(count) < 0.5
    wanted = np.where(condition, x, y)
    _, got = written(
        lambda xp, c, x, y: xp.where(c, x, y), condition, x, y, shared=(place,)
    )
    np.testing.assert_array_equal(got, wanted)


def test_a_result_is_not_written_over_what_is_read_later(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((2, 30)).astype(np.float32)
    script = UfuncTape()
    a, b, first, second = (script.given((30,), F4) for _ in range(4))
    total = script.expression(lambda xp, x, y: x + y, [a, b], {})
    less = script.expression(lambda xp, x, y: x - y, [a, b], {})
    shared = {first: frozenset((a,)), second: frozenset((b,))}
    program = script.program([(total, first), (less, second)], shared)
    wanted = x + y, x - y
    for number, array in zip((a, b, first, second), (x, y, x, y), strict=True):
        program.registers[number] = array
    program.run()
    np.testing.assert_array_equal(x, wanted[0])
    np.testing.assert_array_equal(y, wanted[1])


def test_operands_that_change_places_are_kept_apart() -> None:
    x, y = np.float32([1, 2]), np.float32([3, 4])
    script = UfuncTape()
    a, b, first, second = (script.given((2,), F4) for _ in range(4))
    shared = {first: frozenset((a,)), second: frozenset((b,))}
    program = script.program([(b, first), (a, second)], shared)
    for number, array in zip((a, b, first, second), (x, y, x, y), strict=True):
        program.registers[number] = array
    program.run()
    assert (x.tolist(), y.tolist()) == ([3, 4], [1, 2])


@pytest.mark.parametrize("shape", [(100_000, 3), (3, 100_000)])
@pytest.mark.parametrize("nested", [True, False])
def test_long_sums_keep_their_digits(shape: tuple[int, int], nested: bool) -> None:
    x = np.full(shape, 0.1, np.float32)
    for axis in (0, 1):
        script = UfuncTape()
        operand = script.given(shape, F4, nested=nested)
        made = script.fold(lambda xp, x, *, axes: xp.sum(x, axis=axes), operand, (axis,))
        kept = script.values[made].shape
        out = np.empty(kept, np.float64)
        target = script.given(kept, np.dtype(np.float64))
        program = script.program([(made, target)], {})
        program.registers[operand], program.registers[target] = x, out
        program.run()
        wanted = np.sum(x, axis=axis, keepdims=True, dtype=np.float64)
        assert tolerance(F4, "exact").close(out.astype(F4), wanted.astype(F4))


def test_results_belong_to_the_caller_alone() -> None:
    """What a call without a compiler returns is held by nobody else, and feeds are let go."""
    before = mg.config.compiler
    mg.config.compiler = "off"
    try:
        x = mg.input("x", (3, 4))
        f = mg.function([x], [mg.exp(x) + 1, mg.sum(x)])
        feed = np.ones((3, 4), np.float32)
        held = [f(feed) for _ in range(6)]
        addresses = {array.ctypes.data for made in held for array in map(np.asarray, made)}
        assert len(addresses) == 12
        addresses = set()
        for _ in range(6):
            first = np.asarray(f(feed)[0])
            addresses.add(first.ctypes.data)
            del first
        assert len(addresses) == 1
    finally:
        mg.config.compiler = before
