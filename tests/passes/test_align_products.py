"""The pass `align_products`: rows of odd length in 16-bit products, and what reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planned import options_of

import magmagraph as mg
from magmagraph.ir.graph import Graph, Node, Trace, freeze
from magmagraph.ir.interpret import evaluate
from magmagraph.ops.products.lowered import GEMM
from magmagraph.passes import pipeline

BEFORE = ("simplify", "contract", "precision", "accumulate")
PASSES = [p for p in pipeline.DEFAULT if p.name in (*BEFORE, "align_products")]
H200 = mg.Target.made_up("h200")
ROWS, ODD, WIDE = 256, 259, 264


def transformed(graph: Graph, device: str = "cuda:0", precision: str | None = "float16") -> Graph:
    options = replace(options_of(device, precision=precision), hints={"n": ROWS})
    after, _ = pipeline.run(graph, Trace(), passes=PASSES, options=options)
    assert isinstance(after, Graph)
    return after


def run(graph: Graph, feeds: list[Any]) -> list[Any]:
    results = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
    return [np.asarray(results[node]) for node in graph.outputs]


def odd_products(graph: Graph) -> list[Node]:
    """Return the products that have rows of a length that vectors do not divide."""
    odd = []
    for node in graph.nodes:
        if node.op is GEMM and any(x.shape[-1] % 8 for x in (node, *node.inputs[:2])):
            odd.append(node)
    return odd


def leaves(*shapes: tuple[Any, ...]) -> list[Node]:
    return [mg.input(f"x{i}", shape, "float16") for i, shape in enumerate(shapes)]


def values(inputs: list[Node], rows: int = ROWS) -> list[Any]:
    rng = np.random.default_rng(3)
    shapes = [tuple(rows if isinstance(n, str) else n for n in x.type.shape) for x in inputs]
    return [(0.1 * rng.standard_normal([int(n) if isinstance(n, int) else rows for n in shape]))
            .astype(np.float16) for shape in shapes]  # fmt: skip


def logits(x: Node, w: Node) -> Node:
    return mg.cast(x @ mg.transpose(w), "float32")


PROGRAMS: dict[str, Any] = {
    "columns": (
        lambda x, w: [x @ w], [(ROWS, 272), (272, ODD)],
    ),
    "contracted": (
        lambda x, w: [x @ w], [(ROWS, ODD), (ODD, 272)],
    ),
    "all": (
        lambda x, w: [mg.transpose(x) @ w], [(ODD, 261), (ODD, 267)],
    ),
    "both transposed": (
        lambda x, w: [mg.transpose(x) @ mg.transpose(w)], [(ODD, 261), (267, ODD)],
    ),
    "softmax": (
        lambda x, w: [mg.softmax(logits(x, w)), mg.argmax(logits(x, w), -1)],
        [(ROWS, 272), (ODD, 272)],
    ),
    "extremes of rows": (
        lambda x, w: [
            mg.max(-mg.exp(logits(x, w)), -1), mg.min(mg.exp(logits(x, w)), -1),
            mg.argmin(mg.exp(logits(x, w)), -1), mg.prod(1 + 0.01 * logits(x, w), -1),
        ],
        [(ROWS, 272), (ODD, 272)],
    ),
    "positions of all": (
        lambda x, w: [mg.argmax(mg.exp(x @ w), (0, 1)), mg.argmin(mg.exp(x @ w), 0)],
        [(ROWS, 272), (272, ODD)],
    ),
    "columns are summed": (
        lambda x, w, b: [mg.sum(mg.tanh(x @ w + b), 0), mg.mean(mg.exp(x @ w), (0, 1))],
        [(ROWS, 272), (272, ODD), (ODD,)],
    ),
    "a layer and its gradients": (
        lambda x, w, b, v: list(
            mg.grad(mg.sum(mg.cast(mg.tanh(x @ w + b) @ v, "float32") ** 2), [x, w, b, v])
        ),
        [(ROWS, 272), (272, ODD), (ODD,), (ODD, 288)],
    ),
    "split rows": (
        lambda x, w: list(mg.grad(
            mg.sum(mg.logsumexp(mg.reshape(logits(x, w), (4, ROWS // 4, ODD)), -1)), [x, w]
        )),
        [(ROWS, 272), (ODD, 272)],
    ),
    "read by something else": (
        lambda x, w: [mg.cumsum(x @ w, 1), mg.transpose(mg.exp(x @ w)), (x @ w)[:, 250:]],
        [(ROWS, 272), (272, ODD)],
    ),
    "beside an array": (
        lambda x, w, y: [mg.exp(x @ w) * y, mg.sum(mg.exp(x @ w) * y, -1)],
        [(ROWS, 272), (272, ODD), (ROWS, ODD)],
    ),
    "added to": (
        lambda x, w, y: [mg.cast(x @ w, "float32") + mg.cast(y, "float32")],
        [(ROWS, 272), (272, ODD), (ROWS, ODD)],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_the_program(name: str) -> None:
    build, shapes = PROGRAMS[name]
    inputs = leaves(*shapes)
    graph = freeze(inputs, build(*inputs))
    feeds = values(inputs)
    after = transformed(graph)
    assert not odd_products(after)
    with np.errstate(over="ignore"):
        results = run(after, feeds)
        exact = run(transformed(graph, "cpu"), feeds)
    for found, wanted in zip(results, exact, strict=True):
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype
        if found.dtype.kind == "i":
            np.testing.assert_array_equal(found, wanted)
        else:
            scale = np.abs(wanted.astype(float)).max()
            np.testing.assert_allclose(
                found.astype(float), wanted.astype(float), rtol=4e-3, atol=4e-3 * scale
            )


def test_rows_of_a_named_number() -> None:
    x, w = mg.input("x", ("n", 272), "float16"), mg.input("w", (ODD, 272), "float16")
    graph = freeze([x, w], [mg.softmax(logits(x, w))])
    after = transformed(graph)
    assert not odd_products(after)
    feeds = values([x, w], rows=40)
    exact = run(transformed(graph, "cpu"), feeds)[0]
    np.testing.assert_allclose(run(after, feeds)[0], exact, rtol=1e-2)


@pytest.mark.parametrize(
    ("shapes", "kind", "device"),
    [
        ([(ROWS, 272), (272, ODD)], "float16", "cpu"),
        ([(ROWS, 272), (272, WIDE)], "float16", "cuda:0"),
        ([(255, 272), (272, ODD)], "float16", "cuda:0"),
        ([(ROWS, 272), (272, ODD)], "float64", "cuda:0"),
    ],
    ids=["a processor", "whole vectors", "a small product", "numbers of 8 bytes"],
)
def test_what_is_left_alone(shapes: Any, kind: str, device: str) -> None:
    inputs = [mg.input(f"x{i}", shape, kind) for i, shape in enumerate(shapes)]
    graph = freeze(inputs, [inputs[0] @ inputs[1]])
    after = transformed(graph, device, kind)
    assert [n.shape for n in after.nodes if n.op is GEMM] == [(shapes[0][0], shapes[1][1])]


def test_a_loss_over_a_vocabulary_is_one_kernel() -> None:
    """Neither logits nor their gradient are copied: what is added is left out where it counts."""
    x, w = mg.input("x", (ROWS, 272)), mg.var("w", init=np.zeros((ODD, 272), "f4"))
    t = mg.input("t", (ROWS,), "int32")
    loss = mg.cross_entropy(x @ mg.transpose(w), t)
    back, slope = mg.grad(loss, [x, w])
    f = mg.function(
        [x, t], [loss, back], updates={w: w - slope}, target=H200, precision="bfloat16"
    )
    assert f.report["align_products"].hits == {"rows on 16 bytes": 3}
    assert "259 -> 264" in str(f.report["align_products"])
    large = [
        step.node.op.name for step in f.plan.steps
        if any(v.type.shape == (ROWS, WIDE) for v in (*step.inputs, *step.outputs))
    ]  # fmt: skip
    assert large == ["gemm", "fused", "fused", "gemm", "gemm"]
    assert not any(
        v.type.shape == (ROWS, ODD) for step in f.plan.steps for v in (*step.inputs, *step.outputs)
    )


def test_blocks_of_rows_add_to_a_longer_product() -> None:
    """The pass `row_blocks` adds up the gradient of a matrix; each block adds in place."""
    x, w = mg.input("x", (4096, 256)), mg.var("w", init=np.zeros((65_539, 256), "f4"))
    loss = mg.mean(mg.logsumexp(x @ mg.transpose(w), -1))
    f = mg.function(
        [x], loss, updates={w: w - 0.1 * mg.grad(loss, w)}, target=H200, precision="bfloat16"
    )
    assert f.report["row_blocks"].hits
    products = [s for s in f.plan.steps if s.node.op is GEMM]
    added = [s for s in products if s.node.attrs["accumulate"]]
    assert added
    assert {s.outputs[0].type.shape for s in added} == {(65_544, 256)}
