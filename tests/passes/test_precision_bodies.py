"""The precision pass inside of loops and branches, emulated on the CPU; what stays float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from planned import options_of
from table import assert_agrees, magnitude

import magmagraph as mg
from magmagraph.ir.graph import Graph, Trace, freeze
from magmagraph.ops.control.loop import LOOP
from magmagraph.passes import pipeline

LOWER = ("tf32", "bfloat16", "float16")
TIME, BATCH, SIZE = 6, 5, 16


def recurrence(checkpoint: bool = False) -> tuple[list[Any], list[Any], list[Any]]:
    """Return inputs, variables and outputs of a scan with two products an iteration."""
    xs, first = mg.var("xs", shape=(TIME, BATCH, SIZE)), mg.var("first", shape=(BATCH, SIZE))
    w, u = (mg.var(n, shape=(SIZE, SIZE)) for n in "wu")

    def cell(h: Any, x: Any) -> tuple[Any, Any]:
        new = mg.tanh(mg.tanh(h @ w) @ u + x)
        return new, new

    last, rows = mg.scan(cell, first, xs, checkpoint=checkpoint)
    loss = mg.sum(last * last) + mg.mean(rows)
    return [xs, first, w, u], [w, u], [loss, rows, *mg.grad(loss, [w, u, xs, first])]


def feeds(rng: np.random.Generator) -> list[np.ndarray]:
    shapes = [(TIME, BATCH, SIZE), (BATCH, SIZE), (SIZE, SIZE), (SIZE, SIZE)]
    scales = [1, 1, 0.3, 0.3]
    return [
        (scale * rng.standard_normal(shape)).astype("f4")
        for shape, scale in zip(shapes, scales, strict=True)
    ]


def lowered(
    inputs: list[Any], outputs: list[Any], precision: str, **options: Any
) -> tuple[Graph, pipeline.Report]:
    """Return a graph after the precision pass."""
    names = [record.name for record in pipeline.DEFAULT]
    trace = Trace()
    result, report = pipeline.run(
        freeze(inputs, outputs, trace=trace), trace,
        passes=pipeline.DEFAULT[: names.index("precision") + 1],
        options=options_of(precision=precision, **options),
    )
    assert isinstance(result, Graph)
    return result, report


def loops(graph: Graph) -> list[Any]:
    return [node for node in graph.nodes if node.op is LOOP]


def products(graph: Graph) -> list[Any]:
    return [node for node in graph.nodes if node.op.policy == "allow"]


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("precision", LOWER)
def test_a_scan_and_its_gradients(
    precision: str, checkpoint: bool, rng: np.random.Generator
) -> None:
    inputs, _, outputs = recurrence(checkpoint)
    given = feeds(rng)
    right = mg.function(inputs, outputs, device="cpu")(*given)
    f = mg.function(inputs, outputs, device="cpu", precision=precision)
    found = f(*given)
    for a, b in zip(found, right, strict=True):
        assert a.dtype == b.dtype  # of results and carries types stay
        assert a.tobytes() != b.tobytes()  # the iterations' products are rounded
        assert np.linalg.norm(a.astype("f8") - b) < 0.05 * np.linalg.norm(b)


@pytest.mark.parametrize("precision", LOWER)
def test_every_product_of_a_body_is_lowered(precision: str) -> None:
    inputs, _, outputs = recurrence()
    graph, report = lowered(inputs, outputs, precision)
    found = loops(graph)
    assert len(found) == 2
    assert report["precision"].hits["products of a loop or branch body"] == 2
    for loop in found:
        inside = products(loop.attrs["body"])
        assert len(inside) == 2
        for node in inside:
            if precision == "tf32":
                assert node.attrs["compute"] == "tf32"
            else:
                assert {operand.dtype.name for operand in node.inputs} == {precision}
        assert {str(o.dtype) for o in loop.attrs["body"].outputs} == {"float32"}


def test_weights_are_cast_before_the_loop_and_not_in_it() -> None:
    inputs, _, outputs = recurrence()
    graph, report = lowered(inputs, outputs[:1], "bfloat16")
    (loop,) = loops(graph)
    names = [leaf.dtype.name for leaf in loop.attrs["body"].inputs]
    assert names == ["float32", "float32", "bfloat16", "bfloat16"]  # carry, row, weights
    assert report["precision"].hits["move a cast out of a loop"] == 2
    assert all(operand.op.name == "cast" for operand in loop.inputs[2:])


def test_a_stack_that_only_products_read_is_cast_at_once() -> None:
    xs, w = mg.var("xs", shape=(TIME, BATCH, SIZE)), mg.var("w", shape=(SIZE, SIZE))

    def cell(h: Any, x: Any) -> tuple[Any, Any]:
        return mg.tanh(mg.transpose(x) @ h @ w), None

    first = mg.constant(np.ones((BATCH, SIZE), "f4") / 9)
    last, _ = mg.scan(cell, first, xs[:, :, :BATCH])
    graph, _ = lowered([xs, w], [last], "float16")
    (loop,) = loops(graph)
    assert loop.inputs[1].dtype.name == "float16"


def test_a_read_that_something_else_reads_too_stays_beside_its_cast(
    rng: np.random.Generator,
) -> None:
    first, w = mg.var("first", shape=(SIZE, SIZE)), mg.var("w", shape=(SIZE, SIZE))
    last, _ = mg.scan(lambda h, _: (mg.tanh(h @ w) + w, None), first, length=3)
    graph, _ = lowered([first, w], [last], "bfloat16")
    (loop,) = loops(graph)
    names = [leaf.dtype.name for leaf in loop.attrs["body"].inputs if leaf.shape == w.shape]
    assert sorted(names) == ["bfloat16", "float32", "float32"]  # with the carry
    given = [0.1 * rng.standard_normal((SIZE, SIZE)).astype("f4") for _ in range(2)]
    right = mg.function([first, w], last, device="cpu")(*given)
    found = mg.function([first, w], last, device="cpu", precision="bfloat16")(*given)
    assert_agrees(found, right, "half", 10 * magnitude(right))


@pytest.mark.parametrize("precision", LOWER)
def test_a_while_loop_and_a_branch(precision: str, rng: np.random.Generator) -> None:
    x, w = mg.var("x", shape=(BATCH, SIZE)), mg.var("w", shape=(SIZE, SIZE))
    grown = mg.while_loop(
        lambda v: mg.sum(v * v) < 1e3, lambda v: v @ w * 1.5, x, max_steps=20
    )
    chosen = mg.cond(
        mg.sum(x) > 0.0, lambda v: v @ w, lambda v: mg.transpose(w @ mg.transpose(v)), x
    )
    given = [rng.standard_normal(s).astype("f4") for s in ((BATCH, SIZE), (SIZE, SIZE))]
    outputs = [grown, chosen, mg.grad(mg.sum(chosen) + mg.sum(grown), w)]
    right = mg.function([x, w], outputs, device="cpu")(*given)
    f = mg.function([x, w], outputs, device="cpu", precision=precision)
    for a, b in zip(f(*given), right, strict=True):
        assert a.tobytes() != b.tobytes()
        assert np.linalg.norm(a - b) < 0.05 * np.linalg.norm(b)


def test_on_a_device_what_a_value_decides_about_keeps_float32() -> None:
    x, w = mg.var("x", shape=(BATCH, SIZE)), mg.var("w", shape=(SIZE, SIZE))
    grown = mg.while_loop(lambda v: mg.sum(v) < 1e3, lambda v: v @ w, x, max_steps=20)
    counted, _ = mg.scan(lambda v, _: (mg.tanh(v @ w), None), x, length=4)
    graph, report = lowered([x, w], [grown, counted], "bfloat16", device="cuda:0")
    reasons = [r.reason for r in report["precision"].refusals]
    assert any("array expressions" in reason for reason in reasons)
    flags = {loop.attrs["flag"]: loop for loop in loops(graph)}
    assert all(n.dtype == np.float32 for n in products(flags["carry"].attrs["body"]))
    assert all(
        n.inputs[0].dtype.name == "bfloat16" for n in products(flags[""].attrs["body"])
    )


def test_a_fixed_point_keeps_float32(rng: np.random.Generator) -> None:
    x, w = mg.var("x", shape=(BATCH, SIZE)), mg.var("w", shape=(SIZE, SIZE))
    found = mg.fixed_point(lambda v: mg.tanh(v @ w) * 0.5 + x, mg.zeros_like(x)).value
    _, report = lowered([x, w], [found], "bfloat16")
    assert any("tolerance" in r.reason for r in report["precision"].refusals)
    given = [rng.standard_normal((BATCH, SIZE)), 0.1 * rng.standard_normal((SIZE, SIZE))]
    given = [g.astype("f4") for g in given]
    right = mg.function([x, w], found, device="cpu")(*given)
    np.testing.assert_array_equal(
        mg.function([x, w], found, device="cpu", precision="bfloat16")(*given), right
    )


def test_a_training_step_with_scaled_gradients(rng: np.random.Generator) -> None:
    """Cotangents inside of a loop are as large as outside: an overflow there skips the step."""
    inputs, variables, _ = recurrence()
    held = [mg.var(v.name, init=(0.3 * rng.standard_normal(v.shape)).astype("f4"))
            for v in variables]
    xs, first = inputs[:2]

    def cell(h: Any, x: Any) -> tuple[Any, Any]:
        return mg.tanh(h @ held[0] @ held[1] + x), None

    last, _ = mg.scan(cell, first, xs)
    loss = mg.mean(last * last)
    step = mg.optimizer.SGD(0.1).step(
        loss, held, [xs, first], [loss], precision="float16", device="cpu"
    )
    given = feeds(rng)[:2]
    before = [v.value for v in held]
    step(*given)
    assert step.loss_scale.skipped.value == 0
    assert all(np.any(v.value != b) for v, b in zip(held, before, strict=True))
    before = [v.value for v in held]
    step(given[0], np.full_like(given[1], np.inf))
    assert step.loss_scale.skipped.value == 1
    for v, b in zip(held, before, strict=True):
        np.testing.assert_array_equal(v.value, b)


def test_float32_leaves_bodies_alone() -> None:
    inputs, _, outputs = recurrence()
    graph, report = lowered(inputs, outputs, "float32")
    assert not report["precision"].hits
    assert all(products(loop.attrs["body"]) for loop in loops(graph))
