"""Attention with its heads behind its rows: where it is taken, and that values stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planned import options_of

import magmagraph as mg
from magmagraph.ir.graph import Graph, Node, Trace, freeze
from magmagraph.ir.interpret import evaluate
from magmagraph.ops.networks.attention import ROWS, ROWS_GRADIENT
from magmagraph.ops.shape.arrange import TRANSPOSE
from magmagraph.passes import pipeline

PASSES = [p for p in pipeline.DEFAULT if p.name in ("simplify", "contract", "layout")]
BATCH, LENGTH, HEADS, WIDTH = 2, 6, 4, 8


def transformed(graph: Graph, device: str = "cuda:0") -> tuple[Graph, Any]:
    options = replace(options_of(device), hints={})
    after, report = pipeline.run(graph, Trace(), passes=PASSES, options=options)
    assert isinstance(after, Graph)
    return after, report["layout"]


def run(graph: Graph, feeds: list[Any]) -> list[Any]:
    results = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
    return [np.asarray(results[node], float) for node in graph.outputs]


def split(x: Node, heads: int = HEADS) -> Node:
    batch, length, _ = x.shape
    return mg.swapaxes(mg.reshape(x, (batch, length, heads, WIDTH)), 1, 2)


def joined(x: Node) -> Node:
    batch, heads, length, width = x.shape
    return mg.reshape(mg.swapaxes(x, 1, 2), (batch, length, heads * width))


def attend(q: Node, k: Node, v: Node, **options: Any) -> Node:
    return mg.scaled_dot_product_attention(q, k, v, algorithm="rows", **options)


def operands(kv: int = HEADS, length: int = LENGTH) -> list[Node]:
    shapes = [(BATCH, LENGTH, HEADS * WIDTH), *[(BATCH, length, kv * WIDTH)] * 2]
    return [mg.input(name, shape, "float16") for name, shape in zip("qkv", shapes, strict=True)]


def both(x: Node) -> Node:
    return joined(x) + mg.reshape(x, (BATCH, LENGTH, HEADS * WIDTH))


PROGRAMS: dict[str, Any] = {
    "a layer": lambda q, k, v: joined(attend(split(q), split(k), split(v), causal=True)),
    "operands computed behind the swap": lambda q, k, v: joined(
        attend(split(q) * 0.3, mg.tanh(split(k)), split(v))
    ),
    "read behind the swap, too": lambda q, k, v: joined(
        2 * mg.exp(attend(split(q), split(k), split(v)))
    ),
    "read in both orders": lambda q, k, v: both(attend(split(q), split(k), split(v))),
}


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name: str, gradient: bool) -> None:
    inputs = operands()
    result = PROGRAMS[name](*inputs)
    outputs = [result]
    if gradient:
        outputs += mg.grad(mg.sum(mg.cast(result, "float32") ** 2), inputs)
    graph = freeze(inputs, outputs)
    after, record = transformed(graph)
    assert record.hits["heads behind rows"] == 1
    for node in after.nodes:
        if node.op in (ROWS, ROWS_GRADIENT):
            assert node.attrs["rows_first"]
    rng = np.random.default_rng(5)
    feeds = [rng.standard_normal(x.type.shape).astype(np.float16) for x in inputs]
    plain, _ = transformed(graph, "cpu")
    for found, wanted in zip(run(after, feeds), run(plain, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-2 * np.abs(wanted).max())


@pytest.mark.parametrize(("kv", "length"), [(HEADS, LENGTH), (2, LENGTH), (1, 9)])
def test_nothing_is_transposed(kv: int, length: int) -> None:
    """Heads that share keys, and keys of another length, are no other case."""
    q, k, v = operands(kv, length)
    result = joined(attend(split(q), split(k, kv), split(v, kv)))
    slopes = mg.grad(mg.sum(mg.cast(result, "float32") ** 2), [q, k, v])
    graph = freeze([q, k, v], [result, *slopes])
    after, record = transformed(graph)
    assert record.hits["heads behind rows"] == 1
    assert not [node for node in after.nodes if node.op is TRANSPOSE]
    rng = np.random.default_rng(6)
    feeds = [rng.standard_normal(x.type.shape).astype(np.float16) for x in (q, k, v)]
    plain, _ = transformed(graph, "cpu")
    for found, wanted in zip(run(after, feeds), run(plain, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-2 * np.abs(wanted).max())


def heads_first(q: Node, k: Node, v: Node) -> Node:
    return attend(*(mg.reshape(x, (BATCH, HEADS, LENGTH, WIDTH)) for x in (q, k, v)))


@pytest.mark.parametrize(
    ("build", "dtype"),
    [
        (heads_first, "float16"),
        (lambda q, k, v: attend(split(q), split(k), mg.reshape(v, (BATCH, HEADS, LENGTH, WIDTH))),
         "float16"),
        (lambda q, k, v: attend(split(q), split(k), split(v), mask=np.ones((LENGTH, LENGTH), bool)),
         "float16"),
        (PROGRAMS["a layer"], "float32"),
    ],
    ids=["heads first", "values with heads first", "a mask", "float32"],
)  # fmt: skip
def test_what_is_left_alone(build: Any, dtype: str) -> None:
    inputs = [mg.input(x.name, x.type.shape, dtype) for x in operands()]
    after, record = transformed(freeze(inputs, [build(*inputs)]))
    assert not record.hits
    assert any(node.op is ROWS and "rows_first" not in node.attrs for node in after.nodes)
