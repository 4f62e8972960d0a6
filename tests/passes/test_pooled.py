"""Pooling before biases and relu: the same values, the same gradients, fewer elements."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.ir.graph import Graph, Trace, freeze
from magmagraph.ir.interpret import evaluate
from magmagraph.passes import pipeline
from magmagraph.passes.pipeline import DEFAULT

SIMPLIFY = [record for record in DEFAULT if record.name == "simplify"]
SHAPE = (2, 3, 9, 8)


def simplified(graph: Graph) -> Graph:
    """Return a graph after the pass."""
    after, _ = pipeline.run(graph, Trace(), passes=SIMPLIFY)
    assert isinstance(after, Graph)
    return after


def network(layout: str = "NCHW", also: Any = None, **window: Any) -> tuple[Graph, list[Any]]:
    """Return a pooled layer with its gradients, and its operands."""
    last = layout == "NHWC"
    shape = (SHAPE[0], *SHAPE[2:], SHAPE[1]) if last else SHAPE
    x, w = mg.input("x", shape=shape), mg.input("w", shape=(3, 3, 3, 4) if last else (4, 3, 3, 3))
    b = mg.input("b", shape=(4,))
    y = mg.relu(mg.conv2d(x, w, bias=b, padding=1, layout=layout))
    pooled = mg.max_pool2d(y, layout=layout, **window)
    loss = mg.sum(pooled * pooled)
    if also is not None:
        loss = loss + mg.sum(also(y))
    graph = freeze([x, w, b], [pooled, *mg.grad(loss, [x, w, b])])
    rng = np.random.default_rng(3)
    return graph, [rng.standard_normal(node.shape).astype("f4") for node in (x, w, b)]


def sizes(graph: Graph, name: str) -> list[int]:
    """Return the elements of all results of an operation."""
    return sorted(int(node.type.size) for node in graph.nodes if node.op.name == name)


def compare(graph: Graph, operands: list[Any]) -> None:
    """Compare a graph with what the pass makes of it."""
    after = simplified(graph)
    given = [evaluate(g, dict(zip(g.inputs, operands, strict=True))) for g in (graph, after)]
    for before, then in zip(graph.outputs, after.outputs, strict=True):
        right = given[0][before]
        assert tolerance(right.dtype, "reassoc").close(
            given[1][then], right, float(np.abs(right).sum())
        )


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "window", [{"window": 2}, {"window": 3, "stride": 2, "padding": 1}, {"window": (1, 2)}]
)
def test_what_is_done_to_elements_is_done_to_windows(layout: str, window: dict[str, Any]) -> None:
    graph, operands = network(layout, **window)
    after = simplified(graph)
    count = int(graph.outputs[0].type.size)
    assert sizes(after, "relu") == sizes(after, "greater") == sizes(after, "where") == [count]
    assert count in sizes(after, "add")
    (total,) = [node for node in after.nodes if node.op.name == "sum" and node.shape == (4,)]
    assert total.inputs[0].type.size == count
    (taps,) = [node for node in after.nodes if node.op.name == "max_pool_taps"]
    assert taps.inputs[0].op.name == "convolution"
    compare(graph, operands)


def test_windows_without_a_positive_element_get_nothing() -> None:
    graph, operands = network(window=2)
    operands[2] = np.full(4, -1e3, "f4")  # all that relu sees is negative
    after = simplified(graph)
    values = evaluate(after, dict(zip(after.inputs, operands, strict=True)))
    assert all(not values[node].any() for node in after.outputs)
    compare(graph, operands)


def test_elements_that_tie_get_what_they_got() -> None:
    graph, operands = network(window=2)
    operands[:2] = [np.sign(a) for a in operands[:2]]  # whole numbers: many windows tie
    operands[2] = np.array([-2, 1, 0, 3], "f4")
    compare(graph, operands)


@pytest.mark.parametrize(
    ("window", "why"),
    [
        ({"window": 3, "stride": 1, "padding": 1}, "as many windows as elements"),
        ({"window": 2, "dilation": 3}, "dilated"),
    ],
)
def test_other_windows_stay(window: dict[str, Any], why: str) -> None:
    graph, operands = network(**window)
    kept = Counter(node.op.name for node in simplified(graph).nodes)
    assert sizes(simplified(graph), "relu") == [2 * 4 * 9 * 8], why
    assert kept["max_pool"] == 1
    compare(graph, operands)


def test_what_others_read_stays() -> None:
    graph, operands = network(also=mg.exp, window=2)
    after = simplified(graph)
    assert sizes(after, "relu") == [2 * 4 * 9 * 8]
    (taps,) = [node for node in after.nodes if node.op.name == "max_pool_taps"]
    assert taps.inputs[0].op.name == "relu"
    compare(graph, operands)


def test_a_bias_within_windows_stays() -> None:
    x, w = mg.input("x", shape=SHAPE), mg.input("w", shape=(4, 3, 3, 3))
    b = mg.input("b", shape=(8,))  # one for each column of the result
    pooled = mg.max_pool2d(mg.conv2d(x, w, padding=1) + b, 2)
    graph = freeze([x, w, b], [pooled, *mg.grad(mg.sum(pooled), [x, w, b])])
    assert sizes(simplified(graph), "add")[-1] == 2 * 4 * 9 * 8
    rng = np.random.default_rng(3)
    compare(graph, [rng.standard_normal(node.shape).astype("f4") for node in (x, w, b)])
