"""Variances of long averages on a GPU: one pass over the values, and as exact as two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from planned import options_of

import magmagraph as mg
from magmagraph.codegen.steps import bodies_of
from magmagraph.ir.graph import Graph, Trace, freeze
from magmagraph.ir.interpret import evaluate
from magmagraph.passes import pipeline
from magmagraph.passes.simplify.moments import shifted

KINDS = ["about zero", "far from zero", "the first one far out", "all equal"]


def in_one_pass(x: mg.Node, output: mg.Node) -> Graph:
    return shifted(freeze([x], [output]), Trace(), options_of("cuda:0"))


def values(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    x = np.random.default_rng(8).standard_normal(shape)
    if kind == "far from zero":
        x += 1e4
    elif kind == "the first one far out":
        x.reshape(-1)[0] = 1e8
    elif kind == "all equal":
        x[...] = 1234.567
    return x.astype("f4")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((333, 37), 0), ((70, 5, 3), (0, 1)), ((2, 5, 5000), (0, 2)), ((9001,), None)],
    ids=str,
)
def test_they_are_as_exact_as_two_passes(kind: str, shape: Any, axis: Any) -> None:
    data = values(kind, shape)
    x = mg.var("x", shape=shape)
    graph = in_one_pass(x, mg.variance(x, axis=axis))
    assert any(node.dtype == np.float64 for node in graph.nodes)
    found = evaluate(graph, {graph.inputs[0]: data})[graph.outputs[0]]
    if kind == "all equal":
        np.testing.assert_array_equal(found, 0)
    else:
        np.testing.assert_allclose(found, data.astype("f8").var(axis), rtol=1e-6)


def test_what_is_not_finite_shows() -> None:
    data = values("about zero", (100, 4))
    data[7, 0], data[0, 1], data[0, 2] = np.inf, -np.inf, np.nan
    x = mg.var("x", shape=data.shape)
    graph = in_one_pass(x, mg.std(x, axis=0))
    with np.errstate(invalid="ignore"):
        found = evaluate(graph, {graph.inputs[0]: data})[graph.outputs[0]]
    assert np.isfinite(found).tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    [((64, 37), 0, "float32"), ((20, 8192), 1, "float32"), ((333, 37), 0, "float64"),
     (("n", 37), 0, "float32")],
)  # fmt: skip
def test_others_stay_as_they_are(shape: Any, axis: int, dtype: str) -> None:
    """What a block keeps, what has no wider type, and what may have no first value."""
    x = mg.var("x", shape=shape, dtype=dtype)
    graph = in_one_pass(x, mg.variance(x, axis=axis))
    assert "slice" not in [node.op.name for node in graph.nodes]


@pytest.mark.parametrize(
    "build",
    [lambda x: [mg.std(x, axis=0)], lambda x: [mg.variance(x), mg.mean(x)]],
    ids=["columns", "all"],
)
def test_the_values_are_read_once(build: Any) -> None:
    x = mg.var("x", shape=(2048, 4096))
    plan, _ = pipeline.run(
        freeze([x], build(x)), Trace(), options=options_of("cuda:0", threads=264)
    )
    assert [step.inputs[0].type.shape for step in plan.steps] == [(2048, 4096)]
    for step in pipeline.run(freeze([x], build(x)), Trace(), options=options_of("cpu"))[0].steps:
        bodies = bodies_of(step)
        assert not any(inner.dtype == np.float64 for body in bodies for inner in body.nodes)
