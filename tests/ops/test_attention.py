"""Attention: by rows and composed, against float64, in bounded memory, with derivatives."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from interpreted import values
from table import assert_agrees, magnitude

import magmagraph as mg
from magmagraph.errors import ShapeError
from magmagraph.ir.op import Kind
from magmagraph.ops.networks.attention import ROWS, ROWS_GRADIENT

ALGORITHMS = ("full", "rows")


def reference(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any = None, causal: bool = False
) -> np.ndarray:
    """Attend in float64, all scores at once, heads of keys repeated for those of queries."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    repeats = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(x, repeats, axis=-3) for x in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    power = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = power.sum(-1, keepdims=True)
    return np.asarray(power / np.where(total == 0, 1.0, total) @ v)


def configuration(rng: np.random.Generator) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Return random operands, the mask last where there is one, and options."""
    shared, groups = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    length, other, width = (int(n) for n in rng.integers(1, 24, 3))
    batch = (int(rng.integers(1, 3)),) * int(rng.integers(0, 2))
    operands = [
        rng.normal(size=(*batch, shared * groups, length, width)),
        rng.normal(size=(*batch, shared, other, width)),
        rng.normal(size=(*batch, shared, other, int(rng.integers(1, 9)))),
    ]
    kind = rng.integers(3)
    shape = [(length, other), (shared * groups, 1, other), (length, 1)][int(rng.integers(3))]
    if kind == 1:
        operands.append(rng.random(shape) < 0.7)
    elif kind == 2:
        operands.append(rng.normal(size=shape))
    return operands, {"causal": bool(rng.integers(2)), "block": int(rng.integers(1, 9))}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_random_configurations(rng: np.random.Generator, algorithm: str, dtype: str) -> None:
    for _ in range(25):
        operands, options = configuration(rng)
        arrays = [x if x.dtype == bool else x.astype(dtype) for x in operands]
        node = mg.scaled_dot_product_attention(*arrays, algorithm=algorithm, **options)
        (result,) = values([node], {})
        expected = reference(*arrays, causal=options["causal"])
        assert result.dtype == dtype
        assert_agrees(result, expected, "reassoc", 8 * magnitude(*arrays))


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_by_rows_are_those_of_the_composed_form(
    rng: np.random.Generator, causal: bool
) -> None:
    for kind in ("none", "bool", "float"):
        shapes = ((2, 4, 11, 3), (2, 2, 13, 3), (2, 2, 13, 5))
        data = [rng.normal(size=shape) for shape in shapes]
        if kind == "bool":
            data.append(rng.random((4, 11, 13)) < 0.5)
        if kind == "float":
            data.append(rng.normal(size=(2, 1, 1, 13)))
        inputs = [mg.input(f"x{i}", x.shape, x.dtype) for i, x in enumerate(data)]
        smooth = [x for x in inputs if x.dtype != bool]
        weight = rng.normal(size=(2, 4, 11, 5))
        gradients = [
            mg.grad(
                mg.sum(
                    mg.scaled_dot_product_attention(
                        *inputs, algorithm=algorithm, causal=causal, block=4
                    )
                    * weight
                ),
                smooth,
            )
            for algorithm in ALGORITHMS
        ]
        result = mg.function(inputs, gradients)(*data)
        for full, rows in zip(*result, strict=True):
            assert_agrees(rows, full, "reassoc", 20 * magnitude(full))


def test_one_node_as_all_operands() -> None:
    """Copies of the operands keep the second derivative of self-attention apart by operand."""

    def loss(x: mg.Node) -> mg.Node:
        y = mg.scaled_dot_product_attention(x, x, x, algorithm="rows", block=2)
        return mg.sum(mg.grad(mg.sum(y * y * y), x) * np.linspace(-1.0, 1.0, 10).reshape(5, 2))

    mg.check_gradients(loss, (np.sin(np.arange(10.0)).reshape(5, 2),))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_queries_that_see_nothing_get_zeros(algorithm: str) -> None:
    q, k, v = (mg.input(name, (1, 3, 2), "float64") for name in "qkv")
    mask = np.array([[True, False, True], [False, False, False], [True, True, True]])
    y = mg.scaled_dot_product_attention(q, k, v, mask, algorithm=algorithm)
    gradients = mg.grad(mg.sum(y * y), [q, k, v])
    data = [np.cos(np.arange(6.0) + i).reshape(1, 3, 2) for i in range(3)]
    out, *slopes = mg.function([q, k, v], [y, *gradients])(*data)
    assert not out[0, 1].any()
    assert out[0, [0, 2]].all()
    assert all(np.isfinite(slope).all() for slope in slopes)
    assert not slopes[0][0, 1].any()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_scores_beyond_the_range_of_exp(algorithm: str) -> None:
    q = np.array([[[300.0], [-300.0]]], np.float32)
    k = np.array([[[300.0], [299.0], [-300.0]]], np.float32)
    v = np.array([[[1.0], [2.0], [3.0]]], np.float32)
    y = mg.scaled_dot_product_attention(q, k, v, algorithm=algorithm, block=1)
    np.testing.assert_array_equal(y.eval(), [[[1.0], [3.0]]])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nan_stays_in_its_row(algorithm: str) -> None:
    q = np.ones((1, 3, 2))
    q[0, 1, 0] = np.nan
    y = mg.scaled_dot_product_attention(
        q, np.ones((1, 4, 2)), np.ones((1, 4, 1)), algorithm=algorithm, block=2
    ).eval()
    np.testing.assert_array_equal(np.isnan(y[0, :, 0]), [False, True, False])


# Memory.

LENGTH, WIDTH, BLOCK = 1024, 16, 64
SCORES = 4 * LENGTH * LENGTH


def _step(algorithm: str) -> tuple[mg.Function, list[np.ndarray]]:
    """Return a compiled loss with all its gradients, and what to feed it."""
    inputs = [mg.input(name, (2, LENGTH, WIDTH)) for name in "qkv"]
    y = mg.scaled_dot_product_attention(*inputs, causal=True, algorithm=algorithm, block=BLOCK)
    loss = mg.sum(y * y)
    f = mg.function(inputs, [loss, *mg.grad(loss, inputs)])
    generator = np.random.default_rng(0)
    return f, [generator.normal(size=(2, LENGTH, WIDTH)).astype("f4") for _ in inputs]


def test_rows_never_hold_the_scores() -> None:
    f, feeds = _step("rows")
    f(*feeds)
    line = 4 * 2 * LENGTH * WIDTH  # one operand
    block = 4 * BLOCK * BLOCK
    # Queries, the result, its cotangent, scaled copies, and numbers of rows; blocks.
    assert f.memory.arena <= 8 * line + 8 * block
    assert f.memory.arena < SCORES
    assert f.memory.workspaces >= 2 * block
    full, _ = _step("full")
    full(*feeds)
    assert full.memory.arena >= 2 * SCORES


def test_what_runs_stays_within_what_is_planned() -> None:
    f, feeds = _step("rows")
    f(*feeds)
    tracemalloc.start()
    results = f(*feeds)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The arena and the feeds exist before; what a call makes beside its results are vectors.
    assert peak <= sum(x.nbytes for x in results) + 16 * 1024 * (BLOCK // 16)


def test_symbolic_lengths_run_by_rows() -> None:
    q = mg.input("q", ("b", 2, "n", 4))
    k, v = (mg.input(name, ("b", 2, "m", 4)) for name in "kv")
    y = mg.scaled_dot_product_attention(q, k, v, algorithm="rows", block=4)
    assert y.shape == q.shape
    f = mg.function([q, k, v], y)
    generator = np.random.default_rng(1)
    for b, n, m in ((1, 3, 9), (2, 10, 5)):
        data = [generator.normal(size=(b, 2, e, 4)).astype("f4") for e in (n, m, m)]
        assert_agrees(f(*data), reference(*data), "reassoc", 4 * magnitude(*data))


# Which algorithm.


def _uses_rows(node: mg.Node) -> bool:
    seen, stack = set(), [node]
    while stack:
        one = stack.pop()
        if one.op is ROWS:
            return True
        if id(one) not in seen:
            seen.add(id(one))
            stack += one.inputs
    return False


def test_auto_takes_rows_where_scores_are_many() -> None:
    few, many = mg.input("few", (1, 64, 4)), mg.input("many", (1, 2048, 4))
    x = mg.input("named", (1, "n", 4))
    attend = mg.scaled_dot_product_attention
    assert not _uses_rows(attend(few, few, few))
    assert not _uses_rows(attend(few, many, many))
    assert _uses_rows(attend(many, many, many))
    assert not _uses_rows(attend(many, many, many, dropout=0.1))
    assert not _uses_rows(attend(x, x, x))
    assert ROWS.kind is ROWS_GRADIENT.kind is Kind.CONTRACTION


def test_dropout_keeps_the_mean() -> None:
    mg.random.seed(5)
    q = np.zeros((1, 2000, 2), np.float32)
    ones = np.ones((1, 50, 1), np.float32)
    result = mg.scaled_dot_product_attention(
        q, np.zeros((1, 50, 2), np.float32), ones, dropout=0.5
    ).eval()
    # Each row is the mean of 50 independent values that are 0 or 2.
    assert 0.0 < result.std() < 2 / np.sqrt(50)
    assert abs(result.mean() - 1.0) < 5 / np.sqrt(50 * 2000)
    mg.random.seed(0)


def test_heads_that_share_keys_are_repeated_ones(rng: np.random.Generator) -> None:
    q = rng.normal(size=(2, 6, 5, 4))
    k, v = rng.normal(size=(2, 2, 2, 7, 4))
    grouped = mg.scaled_dot_product_attention(q, k, v)
    repeated = mg.scaled_dot_product_attention(q, np.repeat(k, 3, 1), np.repeat(v, 3, 1))
    assert_agrees(grouped.eval(), repeated.eval(), "reassoc", 4.0)


def test_masks_that_do_not_fit() -> None:
    x = mg.input("x", (2, 3, 4))
    with pytest.raises(ShapeError, match="a mask of 4 axes for scores of 3"):
        mg.scaled_dot_product_attention(x, x, x, np.ones((1, 2, 3, 3)))
    with pytest.raises(ShapeError, match="operands of 3, 2 and 3 axes"):
        mg.scaled_dot_product_attention(x, np.ones((3, 4), np.float32), x)


def test_rotary_products_depend_on_the_difference_of_positions(rng: np.random.Generator) -> None:
    q, k = rng.normal(size=(2, 1, 8))
    dots = [
        (mg.apply_rotary(q, np.array([i])) * mg.apply_rotary(k, np.array([j]))).eval().sum()
        for i, j in ((2, 5), (102, 105), (0, 3))
    ]
    assert_agrees(np.array(dots[1:]), np.array([dots[0]] * 2), "reassoc", 10.0)
