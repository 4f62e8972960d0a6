"""What passes decide for a CUDA device, without one: layouts, chains computed again, centered sums.

Graphs after the passes are computed in NumPy, and must give what the graphs before them gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from table import assert_agrees, magnitude

import magmagraph as mg
from magmagraph.dtypes import canonical
from magmagraph.graph import Graph, Trace, freeze
from magmagraph.interpret import evaluate
from magmagraph.op import Kind
from magmagraph.ops.shape.arrange import TRANSPOSE
from magmagraph.passes import pipeline
from magmagraph.passes.specialize import specialize
from magmagraph.plan import Plan


def passed(
    inputs: Sequence[mg.Node], outputs: Sequence[mg.Node], last: str = "layout", **options: Any
) -> tuple[Graph, pipeline.Report]:
    """Return a graph after the passes up to one of them, for a device."""
    names = [record.name for record in pipeline.DEFAULT]
    chosen = pipeline.DEFAULT[: names.index(last) + 1]
    trace = Trace()
    graph = freeze(inputs, outputs, trace=trace)
    options = {"device": "cuda:0", "threads": 264, **options}
    result, report = pipeline.run(
        graph, trace, passes=chosen, options=pipeline.Options.make(**options)
    )
    assert isinstance(result, Graph)
    return result, report


def planned(inputs: Sequence[mg.Node], outputs: Sequence[mg.Node], **options: Any) -> Plan:
    """Return the bound plan for a device."""
    trace = Trace()
    options = {"device": "cuda:0", "threads": 264, **options}
    plan, _ = pipeline.run(
        freeze(inputs, outputs, trace=trace), trace, options=pipeline.Options.make(**options)
    )
    return specialize(plan, {})


def network(layout: str, dtype: str) -> tuple[list[mg.Node], list[mg.Node]]:
    """Return inputs and outputs of convolutions with all that stands between them."""
    last = layout == "NHWC"
    x = mg.var("x", shape=(4, 9, 9, 3) if last else (4, 3, 9, 9), dtype=dtype)
    v = mg.var("v", shape=(3, 3, 3, 8) if last else (8, 3, 3, 3), dtype=dtype)
    w = mg.var("w", shape=(1, 1, 8, 8) if last else (8, 8, 1, 1), dtype=dtype)
    scale, bias = mg.var("scale", shape=(8,)), mg.var("bias", shape=(8,), dtype=dtype)
    y = mg.conv2d(x, v, padding=1, layout=layout, bias=bias)
    y = mg.relu(mg.batch_norm(y, scale, axis=-1 if last else 1))
    y = mg.max_pool2d(y, 3, 2, padding=1, layout=layout)
    z = mg.conv2d(mg.cast(y, dtype), w, layout=layout)
    total = mg.global_avg_pool(mg.cast(y + z, "float32"), layout=layout)
    loss = mg.sum(total * total)
    inputs = [x, v, w, scale, bias]
    return inputs, [total, *mg.grad(loss, inputs)]


def convolutions(graph: Graph) -> list[mg.Node]:
    return [n for n in graph.nodes if n.op.kind is Kind.CONVOLUTION and "groups" in n.attrs]


def interpreted(graph: Graph, given: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return a graph's outputs, computed in NumPy."""
    found = evaluate(graph, dict(zip(graph.inputs, given, strict=True)))
    return [np.asarray(found[output]) for output in graph.outputs]


def values(inputs: Sequence[mg.Node], rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.standard_normal(n.shape).astype(canonical(n.dtype)) for n in inputs]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_half_precision_convolutions_have_channels_last(
    layout: str, rng: np.random.Generator
) -> None:
    inputs, outputs = network(layout, "float16")
    graph, report = passed(inputs, outputs)
    found = convolutions(graph)
    assert len(found) == 6  # two forward, two of each gradient
    assert all(n.attrs["channels_last"] and n.attrs["outs_first"] for n in found)
    assert report["layout"].hits
    assert not report["layout"].refusals
    given = values(inputs, rng)
    before = interpreted(freeze(inputs, outputs), given)
    after = interpreted(graph, given)
    for old, new in zip(before, after, strict=True):
        assert_agrees(np.asarray(new, "f4"), np.asarray(old, "f4"), "half", magnitude(old))


def test_transpositions_stand_at_the_borders_only() -> None:
    inputs, outputs = network("NCHW", "bfloat16")
    graph, _ = passed(inputs, outputs)
    moved = [n for n in graph.nodes if n.op is TRANSPOSE]
    # What goes in is turned (images and weights), and gradients are turned back.
    leaves = {n.inputs[0].name for n in moved if n.inputs[0] in graph.inputs}
    assert leaves == {"x", "v"}  # a 1x1 window needs no move
    assert len(moved) == 5
    assert sum(n in graph.outputs for n in moved) == 3


def test_exact_float32_stays_as_it_is_written_and_says_why() -> None:
    inputs, outputs = network("NCHW", "float32")
    graph, report = passed(inputs, outputs)
    assert not any(n.attrs["channels_last"] for n in convolutions(graph))
    reasons = {refusal.reason for refusal in report["layout"].refusals}
    assert reasons == {"float32 is not multiplied by tensor cores"}


def test_channels_last_of_any_dtype_have_weights_that_the_library_knows(
    rng: np.random.Generator,
) -> None:
    inputs, outputs = network("NHWC", "float32")
    graph, _ = passed(inputs, outputs)
    assert all(n.attrs["outs_first"] for n in convolutions(graph))
    given = values(inputs, rng)
    pairs = zip(
        interpreted(freeze(inputs, outputs), given), interpreted(graph, given), strict=True
    )
    for old, new in pairs:
        assert_agrees(new, old, "reassoc", 100 * magnitude(old))


def test_on_the_cpu_the_layout_is_the_users() -> None:
    inputs, outputs = network("NCHW", "float16")
    graph, _ = passed(inputs, outputs, device="cpu")
    assert not any(n.attrs["channels_last"] for n in convolutions(graph))


def test_algorithms_of_our_own_are_left_alone() -> None:
    x = mg.var("x", shape=(2, 4, 8, 8), dtype="float16")
    w = mg.var("w", shape=(4, 4, 3, 3), dtype="float16")
    graph, _ = passed([x, w], [mg.conv2d(x, w, algorithm="winograd-2x2")])
    (node,) = convolutions(graph)
    assert node.attrs["algorithm"] == "winograd-2x2"
    assert not node.attrs["channels_last"]


def test_a_users_transposition_cancels() -> None:
    x = mg.var("x", shape=(2, 8, 8, 4), dtype="float16")
    w = mg.var("w", shape=(4, 4, 3, 3), dtype="float16")
    y = mg.conv2d(mg.transpose(x, (0, 3, 1, 2)), w)
    graph, _ = passed([x, w], [mg.transpose(y, (0, 2, 3, 1))])
    moved = [n for n in graph.nodes if n.op is TRANSPOSE]
    assert [n.inputs[0].name for n in moved] == ["w"]


def test_a_batch_norm_reads_and_writes_16_bits() -> None:
    """Statistics, and what is normalized, each read the 16-bit array; nothing wide is written."""
    shape = (64, 16, 16, 64)
    x = mg.var("x", shape=shape, dtype="bfloat16")
    w = mg.var("w", shape=(1, 1, 64, 64), dtype="bfloat16")
    scale, offset = mg.var("scale", shape=(64,)), mg.var("offset", shape=(64,))
    g = mg.var("g", shape=shape, dtype="bfloat16")
    y = mg.conv2d(x, w, layout="NHWC")
    made = mg.relu(mg.batch_norm(y, scale, offset, axis=-1))
    loss = mg.sum(mg.cast(made, "float32") * mg.cast(g, "float32"))
    plan = planned([x, w, scale, offset, g], [made, mg.grad(loss, y)])
    large = int(np.prod(shape))
    written = [
        value.type
        for step in plan.steps
        for value in step.outputs
        if step.kernel == "fused" and value.type.size == large
    ]
    assert {t.dtype.name for t in written} == {"bfloat16"}
    assert len(written) == 2  # what is normalized, and its gradient
    reads = sum(
        value.type.size == large
        for step in plan.steps
        if step.kernel == "fused"
        for value in step.inputs
    )
    assert reads == 6  # mean; variance; values, with the sums of the gradient (x, g); that (x, g)


def test_sums_of_centered_values_are_left_out(rng: np.random.Generator) -> None:
    x, g = mg.var("x", shape=(7, 5)), mg.var("g", shape=(7, 5))
    out = mg.sum(mg.batch_norm(x, eps=1e-3) * g)
    graph, report = passed([x, g], [mg.grad(out, x)], last="simplify")
    assert "centered values have no sum" in report["simplify"].hits
    given = values([x, g], rng)
    (old,) = interpreted(freeze([x, g], [mg.grad(out, x)]), given)
    (new,) = interpreted(graph, given)
    assert_agrees(new, old, "reassoc", 10 * magnitude(old))


def test_factors_of_a_channel_leave_sums(rng: np.random.Generator) -> None:
    """The gradient of a normalization is left with two sums over all elements."""
    x, g = mg.var("x", shape=(7, 3, 5)), mg.var("g", shape=(7, 3, 5))
    scale, offset = mg.var("scale", shape=(5,)), mg.var("offset", shape=(5,))
    leaves = [x, scale, offset, g]
    loss = mg.sum(mg.batch_norm(x, scale, offset, eps=1e-3, axis=-1) * g)
    outputs = mg.grad(loss, leaves[:3])
    graph, report = passed(leaves, outputs, last="simplify")
    assert report["simplify"].hits["factors out of a sum"] >= 2
    summed = {n.inputs[0] for n in graph.nodes if n.op.kind is Kind.REDUCTION}
    # Values and squares of the forward pass, the cotangent, and that times centered values.
    assert len(summed) == 4
    given = values(leaves, rng)
    for old, new in zip(
        interpreted(freeze(leaves, outputs), given), interpreted(graph, given), strict=True
    ):
        assert_agrees(new, old, "reassoc", 10 * magnitude(old))


def test_only_factors_of_float32_that_stay_the_same_leave_sums(rng: np.random.Generator) -> None:
    x, c = mg.var("x", shape=(7, 5)), mg.var("c", shape=(1, 5))
    rows = mg.var("rows", shape=(7, 1))
    rule = "factors out of a sum"
    outputs = [mg.sum(x * c * rows, axis=0), mg.sum(rows * x * x, axis=1)]
    graph, report = passed([x, c, rows], outputs, last="simplify")
    assert report["simplify"].hits[rule] == 2
    given = values([x, c, rows], rng)
    for old, new in zip(
        interpreted(freeze([x, c, rows], outputs), given), interpreted(graph, given), strict=True
    ):
        assert_agrees(new, old, "reassoc", 10 * magnitude(old))
    _, report = passed([x, rows], [mg.sum(x * rows, axis=0)], last="simplify")
    assert rule not in report["simplify"].hits
    # What scales a square may keep it in range.
    _, report = passed([x, c], [mg.sum((x * c) * (x * c), axis=0)], last="simplify")
    assert rule not in report["simplify"].hits
    narrow = mg.var("narrow", shape=(7, 5), dtype="float16")
    small = mg.var("small", shape=(5,), dtype="float16")
    _, report = passed([narrow, small], [mg.sum(narrow * small, axis=0)], last="simplify")
    assert rule not in report["simplify"].hits


@pytest.mark.parametrize("batch", [7, "batch"])
def test_only_the_mean_of_the_same_axes_centers(batch: int | str) -> None:
    x = mg.var("x", shape=(batch, 5))
    kept = mg.sum(x - mg.mean(x, axis=1, keepdims=True), axis=0)
    gone = mg.sum(x - mg.mean(x, axis=0, keepdims=True), axis=0)
    doubled = mg.sum(x - 2.0 * mg.mean(x, axis=0, keepdims=True), axis=0)
    _, report = passed([x], [kept, doubled], last="simplify")
    assert "centered values have no sum" not in report["simplify"].hits
    _, report = passed([x], [gone], last="simplify")
    assert report["simplify"].hits["centered values have no sum"] == 1


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_chains_that_readers_compute_again_change_no_value(
    layout: str, dtype: str, rng: np.random.Generator
) -> None:
    inputs, outputs = network(layout, dtype)
    before, _ = passed(inputs, outputs)
    after, report = passed(inputs, outputs, last="fuse")
    assert report["fuse"].hits["compute again"]
    given = values(inputs, rng)
    for old, new in zip(interpreted(before, given), interpreted(after, given), strict=True):
        numerics = "half" if canonical(dtype).itemsize == 2 else "reassoc"
        scale = magnitude(np.asarray(old, "f4"))
        assert_agrees(new, np.asarray(old, "f8"), numerics, 10 * scale)
