"""Functions of taken rows, computed of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from interpreted import values
from planned import options_of

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.ir.graph import Graph, Trace, freeze
from magmagraph.passes.fuse.taken import taken_last
from magmagraph.passes.report import Record


def _names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if node.inputs]


def _leaves() -> list[mg.Node]:
    return [mg.input("w", (5, 3), "float64"), mg.input("i", (20,), "int32")]


def _written(make: Any, mode: str = "clip") -> tuple[Graph, Graph, list[mg.Node]]:
    w, i = leaves = _leaves()
    graph = freeze(leaves, [make(w, mg.take(w, i, axis=0, mode=mode), i)])
    options = replace(options_of("cpu"), record=Record("fuse"))
    return graph, taken_last(graph, Trace(), options), leaves


@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_functions_are_computed_of_the_table(mode: str, rng: np.random.Generator) -> None:
    graph, written, leaves = _written(lambda w, r, i: mg.sum((1.0 - mg.tanh(r)) * r), mode)
    assert _names(written) == ["tanh", "subtract", "multiply", "take", "sum"]
    feeds = [rng.standard_normal((5, 3)), rng.integers(-9, 9, 20).astype(np.int32)]
    (found,) = values([written.outputs[0]], dict(zip(written.inputs, feeds, strict=True)))
    (expected,) = values([graph.outputs[0]], dict(zip(leaves, feeds, strict=True)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda w, r, i: mg.sum(r * 2.0 + 1.0),
        lambda w, r, i: mg.sum(mg.tanh(r)) + mg.sum(r),
        lambda w, r, i: mg.sum(mg.tanh(r[:5])),
        lambda w, r, i: mg.sum(mg.tanh(r + mg.cast(i, "float64")[:, None])),
    ],
    ids=["no function", "rows are read", "a slice", "another operand"],
)
def test_what_stays(make: Any) -> None:
    graph, written, _ = _written(make)
    assert written is graph


def test_an_operand_that_is_not_taken_comes_later() -> None:
    _, written, _ = _written(lambda w, r, i: mg.tanh(r) + w[0])
    assert _names(written)[:2] == ["tanh", "take"]


def test_few_rows_are_taken_first() -> None:
    w, i = mg.input("w", (5, 3)), mg.input("i", (9,), "int32")
    graph = freeze([w, i], [mg.tanh(mg.take(w, i, axis=0))])
    assert taken_last(graph, Trace(), options_of("cpu")) is graph


def test_gradients_of_a_table(rng: np.random.Generator) -> None:
    w, i = mg.input("w", (6, 4)), mg.input("i", (40,), "int32")
    function = mg.function([w, i], mg.grad(mg.sum(mg.tanh(w[i])), w))
    table = rng.standard_normal((6, 4)).astype(np.float32)
    places = rng.integers(0, 6, 40).astype(np.int32)
    expected = np.bincount(places, minlength=6)[:, None] / np.cosh(table.astype(float)) ** 2
    close = tolerance(np.dtype(np.float32), "reassoc").close
    assert close(function(table, places), expected.astype(np.float32), scale=expected.max())
    assert [step.family.name for step in function.plan.steps] == ["fused", "indexed", "indexed"]
