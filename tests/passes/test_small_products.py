"""Products of small matrices as elementwise work, for a GPU, and as sums of rows on a CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from interpreted import values
from planned import options_of

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.ir.graph import Trace, freeze
from magmagraph.passes import pipeline
from magmagraph.passes.fuse import small_products
from magmagraph.passes.report import Record


def _lowered(leaves: list[Any], made: Any, record: Record) -> tuple[Any, Any]:
    """Return a graph with its products, before and after the rule."""
    options = replace(options_of("cuda:0", hints={"n": 5000}), record=record)
    graph = freeze(leaves, [made])
    for one in pipeline.DEFAULT:
        if one.name in ("simplify", "contract"):
            graph = one.function(graph, Trace(), options)
    return graph, small_products.written_out(graph, Trace(), options)


@pytest.mark.parametrize("name", ["plain", "turned", "one for all", "tall"])
def test_values_stay(name: str, rng: np.random.Generator) -> None:
    a, b = mg.input("a", ("n", 5, 6), "float64"), mg.input("b", ("n", 6, 4), "float64")
    w, rows = mg.input("w", (6, 4), "float64"), mg.input("rows", ("n", 6), "float64")
    leaves = [a, b, w, rows]
    made = {
        "plain": a @ b,
        "turned": mg.swapaxes(b, 1, 2) @ mg.swapaxes(a, 1, 2),
        "one for all": a @ w,
        "tall": rows @ w,
    }[name]
    feeds = [rng.standard_normal(s) for s in ((500, 5, 6), (500, 6, 4), (6, 4), (500, 6))]
    before, after = _lowered(leaves, made, Record("fuse"))
    assert any(node.op.name == "gemm" for node in before.nodes)
    assert not any(node.op.name == "gemm" for node in after.nodes)
    (found,) = values([after.outputs[0]], dict(zip(after.inputs, feeds, strict=True)))
    (wanted,) = values([made], dict(zip(leaves, feeds, strict=True)))
    np.testing.assert_allclose(found, wanted, 1e-12, 1e-12)


def test_large_and_half_products_stay() -> None:
    big = mg.input("big", ("n", 64, 64))
    half = mg.input("half", ("n", 4, 4), "float16")
    for leaf, reason in ((big, None), (half, "float16 are added in another dtype")):
        record = Record("fuse")
        before, after = _lowered([leaf], leaf @ leaf, record)
        assert after is before
        assert [refusal.reason for refusal in record.refusals] == [
            f"products of {reason}" for _ in range(reason is not None)
        ]


def test_a_product_is_a_kernel_with_what_reads_it() -> None:
    c = mg.input("c", (4096, 16, 16))
    graph = freeze([c], [mg.tanh(c @ c) @ c])
    plan, _ = pipeline.run(graph, Trace(), options=options_of("cuda:0", threads=264))
    assert [step.family.name for step in plan.steps] == ["fused", "fused"]


@pytest.mark.parametrize(
    ("rows", "terms", "turned"),
    [(16, 16, False), (5, 7, False), (20, 32, True), (30, 12, False), (16, 128, False)],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_small_matrix_times_a_vector(
    rows: int, terms: int, turned: bool, dtype: str, rng: np.random.Generator
) -> None:
    shape = (terms, rows) if turned else (rows, terms)
    a, x = mg.input("a", shape, dtype), mg.input("x", (terms,), dtype)
    made = mg.tanh((mg.transpose(a) if turned else a) @ x) + 1.0
    function = mg.function([a, x], made)
    feeds = [rng.standard_normal(shape).astype(dtype), rng.standard_normal(terms).astype(dtype)]
    found = function(*feeds)
    matrix = feeds[0].astype(float).T if turned else feeds[0].astype(float)
    expected = np.tanh(matrix @ feeds[1].astype(float)) + 1.0
    close = tolerance(np.dtype(dtype), "reassoc").close
    assert close(found, expected.astype(dtype), scale=float(terms))
    alone = rows * terms <= small_products.ROWS and not turned
    alone = alone and (rows < small_products.FULL_ROW or terms % small_products.FULL_ROW == 0)
    assert len(function.plan.steps) == (1 if alone else 2)
