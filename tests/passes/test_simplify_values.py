"""Simplification on whole numbers, truths and extreme floats: exact, or no worse than before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import canonical, tolerance
from magmagraph.ir.graph import Node, Trace, freeze
from magmagraph.ir.interpret import evaluate
from magmagraph.passes import pipeline
from magmagraph.passes.pipeline import DEFAULT

SIMPLIFY = [record for record in DEFAULT if record.name == "simplify"]
Function = Callable[..., Node]


def grown(
    rng: np.random.Generator,
    leaves: list[Node],
    unary: list[Function],
    binary: list[Function],
    constants: list[float],
    count: int,
) -> list[Node]:
    """Return leaves and random expressions of one dtype over them."""
    nodes = list(leaves)
    dtype = leaves[0].dtype
    for _ in range(count):
        x = nodes[rng.integers(max(0, len(nodes) - 6), len(nodes))]
        if rng.uniform() < 0.3:
            nodes.append(unary[rng.integers(len(unary))](x))
            continue
        if rng.uniform() < 0.4:
            y = mg.constant(constants[rng.integers(len(constants))], dtype)
        else:
            y = nodes[rng.integers(len(nodes))]
        pair = (x, y) if rng.uniform() < 0.7 else (y, x)
        nodes.append(binary[rng.integers(len(binary))](*pair))
    return nodes


def both(
    leaves: list[Node], outputs: list[Node], feeds: list[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the values of outputs before and after simplification."""
    graph = freeze(leaves, outputs)
    after, _ = pipeline.run(graph, Trace(), passes=SIMPLIFY)
    return tuple(  # type: ignore[return-value]
        [evaluate(g, dict(zip(g.inputs, feeds, strict=True)))[root] for root in g.outputs]
        for g in (graph, after)
    )


INTEGER_UNARY: list[Function] = [
    mg.negative,
    mg.absolute,
    mg.square,
    mg.bitwise_not,
    lambda a: mg.cast(mg.cast(a, "int64"), a.dtype),
    lambda a: mg.cast(mg.cast(a, "int8"), a.dtype),
    lambda a: a**1,
    lambda a: a**3,
    lambda a: mg.relu(mg.relu(a)),
]
INTEGER_BINARY: list[Function] = [
    mg.add,
    mg.subtract,
    mg.multiply,
    mg.maximum,
    mg.minimum,
    mg.bitwise_and,
    mg.bitwise_or,
    mg.bitwise_xor,
    lambda a, b: mg.where(mg.equal(a, b), a, b),
    lambda a, b: mg.where(mg.logical_not(mg.less(a, b)), a, b),
    lambda a, b: a - (-b),
]


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8", "int64"])
def test_whole_numbers_are_exact(dtype: str) -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        leaves = [mg.input(name, (5,), dtype=dtype) for name in "ab"]
        low = 0 if dtype == "uint8" else -9
        constants = [0, 1, 2, 3] if dtype == "uint8" else [0, 1, -1, 2]
        nodes = grown(rng, leaves, INTEGER_UNARY, INTEGER_BINARY, constants, 25)
        feeds = [rng.integers(low, 9, 5).astype(dtype) for _ in leaves]
        before, after = both(leaves, nodes[-4:], feeds)
        for old, new in zip(before, after, strict=True):
            np.testing.assert_array_equal(new, old, err_msg=f"seed {seed}")


def test_truths_are_exact() -> None:
    unary: list[Function] = [mg.logical_not, mg.bitwise_not]
    binary: list[Function] = [
        mg.logical_and,
        mg.logical_or,
        mg.logical_xor,
        mg.bitwise_and,
        lambda a, b: mg.where(a, b, mg.logical_not(b)),
        lambda a, b: mg.where(mg.logical_not(a), a, b),
        mg.equal,
        mg.not_equal,
    ]
    feeds = [np.array([False, False, True, True]), np.array([False, True, False, True])]
    for seed in range(60):
        rng = np.random.default_rng(seed)
        leaves = [mg.input(name, (4,), dtype="bool") for name in "ab"]
        nodes = grown(rng, leaves, unary, binary, [False, True], 15)
        before, after = both(leaves, nodes[-3:], feeds)
        for old, new in zip(before, after, strict=True):
            np.testing.assert_array_equal(new, old, err_msg=f"seed {seed}")


FLOAT_UNARY: list[Function] = [
    mg.negative,
    mg.exp,
    mg.log,
    mg.sigmoid,
    mg.sqrt,
    mg.absolute,
    mg.square,
    mg.reciprocal,
    lambda a: a**0.5,
    lambda a: mg.log(1.0 + mg.exp(a)),
    lambda a: 1.0 / (1.0 + mg.exp(-a)),
    lambda a: a * mg.log(a),
    lambda a: mg.exp(a) / mg.sum(mg.exp(a)),
    lambda a: mg.exp(a) - 1.0,
    lambda a: mg.log(mg.sum(mg.exp(a))) + a,
]
FLOAT_BINARY: list[Function] = [
    mg.add,
    mg.subtract,
    mg.multiply,
    mg.divide,
    mg.maximum,
    mg.minimum,
    lambda a, b: mg.sqrt(a * a + b * b),
    lambda a, b: mg.where(mg.greater(a, b), a, b),
]
EXTREME = [0.0, -0.0, 1.0, -1.0, 1e-3, 30.0, -30.0, 1e30, -1e30, 1e-30, np.inf, -np.inf, np.nan]


def test_what_was_finite_stays_so() -> None:
    """A value that is not finite may get its limit; a finite one stays finite, and the same."""
    table = tolerance(canonical("float64"), "reassoc")
    repaired = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        leaves = [mg.input(name, (6,), dtype="float64") for name in "ab"]
        # Two operations: more would multiply the digits that the first form lost.
        nodes = grown(rng, leaves, FLOAT_UNARY, FLOAT_BINARY, [0.0, 1.0, -1.0, 2.0, 0.5], 2)
        feeds = [rng.choice(EXTREME, 6) for _ in leaves]
        before, after = both(leaves, nodes[2:], feeds)
        for old, new in zip(before, after, strict=True):
            finite = np.isfinite(old)
            assert table.close(new[finite], old[finite], scale=1.0 + np.abs(old[finite])), (
                f"seed {seed}: {feeds}: {old} became {new}"
            )
            repaired += int((~finite & np.isfinite(new)).sum())
    assert repaired


def test_extents_of_one_leave_a_sum_for_good(rng: np.random.Generator) -> None:
    """A sum whose operand had such an extent comes to an end, wherever the extent stands."""
    x = mg.input("x", ("batch", 4), dtype="float64")
    column = mg.reshape(mg.sin(x), (x.shape[0], 4, 1))
    solved = mg.linalg.solve(4 * mg.eye(4, dtype="float64") + mg.sin(column), column)
    sums = [mg.sum(mg.reshape(solved, (x.shape[0], 4)), axis=1), mg.sum(solved, axis=(1, 2))]
    before, after = both([x], sums, [rng.normal(size=(3, 4))])
    for old, new in zip(before, after, strict=True):
        assert tolerance(canonical("float64"), "reassoc").close(new, old)


@pytest.mark.parametrize("zeros", [[0.0, -0.0], [-0.0, 0.0], [complex(-0.0, 0.0), 0j]])
def test_zeros_of_both_signs_are_not_one_number(zeros: list[complex]) -> None:
    held = mg.constant(np.array(zeros))
    x = mg.input("x", (), held.dtype.name)
    real = x if x.dtype.name == "float64" else mg.real(x)
    before, after = both([x], [mg.copysign(real, mg.real(held))], [np.array(2.0, held.dtype.name)])
    assert np.array_equal(np.signbit(after[0]), np.signbit(before[0]))
    assert len(set(np.signbit(after[0]))) == 2


@pytest.mark.parametrize("dtype", ["bool", "uint64", "float16", "bfloat16", "complex64"])
def test_zeros_of_any_dtype_are_one_number(dtype: str) -> None:
    held = mg.constant(np.zeros((2, 3), canonical(dtype)))
    x = mg.input("x", (), dtype)
    before, after = both([x], [mg.equal(x, held)], [np.zeros((), canonical(dtype))])
    assert before[0].all() and after[0].all() and after[0].shape == (2, 3)


def test_the_sum_of_what_is_padded_has_the_padding(rng: np.random.Generator) -> None:
    x = mg.input("x", (3,), "float64")
    data = rng.normal(size=3)
    found = mg.function([x], mg.sum(mg.pad(x, 2, constant_values=1.5)), device="cpu")(data)
    assert tolerance(canonical("float64"), "reassoc").close(found, data.sum() + 4 * 1.5)


def test_what_is_divided_by_a_piece_among_zeros_is_not_zero_there(
    rng: np.random.Generator,
) -> None:
    """A factor of such a piece goes into the piece; a dividend must not."""
    x = mg.input("x", (3,), "float64")
    share = mg.pad(mg.exp(x) / mg.sum(mg.exp(x)), ((1, 0),))
    f = mg.function([x], [2.0 / share, 2.0 * share], device="cpu")
    data = rng.normal(size=3)
    inside = np.exp(data) / np.exp(data).sum()
    quotient, product = f(data)
    close = tolerance(canonical("float64"), "stable").close
    assert np.isposinf(quotient[0])
    assert close(quotient[1:], 2.0 / inside)
    assert product[0] == 0.0
    assert close(product[1:], 2.0 * inside)
