"""What passes decide for a CUDA device, without one: layouts, chains computed again, centered sums.

Graphs after the passes are computed in NumPy, and must give what the graphs before them gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from planned import options_of
from table import assert_agrees, magnitude

import magmagraph as mg
from magmagraph.codegen.cuda.products.library_epilogue import library_epilogue
from magmagraph.dtypes import canonical
from magmagraph.ir.graph import Graph, Trace, freeze
from magmagraph.ir.identity import is_among
from magmagraph.ir.interpret import evaluate
from magmagraph.ir.op import Kind
from magmagraph.ir.plan import Plan
from magmagraph.ops.shape.arrange import TRANSPOSE
from magmagraph.passes import pipeline
from magmagraph.passes.lowering.fuse_products import reading
from magmagraph.passes.lowering.specialize import specialize


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
        graph, trace, passes=chosen, options=options_of(**options)
    )
    assert isinstance(result, Graph)
    return result, report


def planned(inputs: Sequence[mg.Node], outputs: Sequence[mg.Node], **options: Any) -> Plan:
    """Return the bound plan for a device."""
    trace = Trace()
    options = {"device": "cuda:0", "threads": 264, **options}
    plan, _ = pipeline.run(
        freeze(inputs, outputs, trace=trace), trace, options=options_of(**options)
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
    leaves = {n.inputs[0].name for n in moved if is_among(n.inputs[0], graph.inputs)}
    assert leaves == {"x", "v"}  # a 1x1 window needs no move
    assert len(moved) == 5
    assert sum(is_among(n, graph.outputs) for n in moved) == 3


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


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("channels", "window", "padding", "size"),
    [(3, 7, 3, 12), (3, 3, 1, 9), (1, 2, 0, 8), (4, 5, 2, 11), (2, 4, 1, 10)],
)
@pytest.mark.parametrize("batch", [3, "batch"])
def test_images_of_few_channels_are_read_in_blocks_of_pixels(
    batch: int | str, channels: int, window: int, padding: int, size: int, layout: str,
    rng: np.random.Generator,
) -> None:
    """As many products and some zeros: forward, and for the gradient of the weights."""
    last = layout == "NHWC"
    image, weight = (size, size, channels), (window, window, channels, 6)
    x = mg.var("x", shape=(batch, *(image if last else image[::-1])))
    w = mg.var("w", shape=weight if last else (weight[3], weight[2], *weight[:2]))
    y = mg.conv2d(
        mg.cast(x, "float16"), mg.cast(w, "float16"), stride=2, padding=padding, layout=layout
    )
    wide = mg.cast(y, "float32")
    outputs = [y, mg.grad(mg.sum(wide * wide), w)]
    graph, report = passed([x, w], outputs)
    assert report["layout"].hits["space to depth"] == 2
    for node in convolutions(graph):
        assert node.attrs["strides"] == (1, 1)
        assert node.inputs[0].shape[-1] % 8 == 0  # as tensor cores take them
    given = [rng.standard_normal((3, *v.shape[1:]) if v is x else v.shape) for v in (x, w)]
    given = [array.astype("f4") for array in given]
    before = interpreted(freeze([x, w], outputs), given)
    for old, new in zip(before, interpreted(graph, given), strict=True):
        assert_agrees(np.asarray(new, "f4"), np.asarray(old, "f4"), "half", magnitude(old))


@pytest.mark.parametrize(
    "options",
    [{"stride": 1}, {"stride": 2, "dilation": 2}, {"stride": 3}, {"stride": (2, 1)}],
)
def test_other_steps_read_pixels(options: dict[str, Any]) -> None:
    x = mg.var("x", shape=(2, 9, 9, 3), dtype="float16")
    w = mg.var("w", shape=(3, 3, 3, 8), dtype="float16")
    graph, report = passed([x, w], [mg.conv2d(x, w, layout="NHWC", **options)])
    assert "space to depth" not in report["layout"].hits
    (node,) = convolutions(graph)
    assert node.inputs[0].shape == x.shape


def test_many_channels_and_exact_products_read_pixels() -> None:
    for dtype, channels in (("float16", 8), ("float32", 3)):
        x = mg.var("x", shape=(2, 8, 8, channels), dtype=dtype)
        w = mg.var("w", shape=(3, 3, channels, 8), dtype=dtype)
        _, report = passed([x, w], [mg.conv2d(x, w, stride=2, layout="NHWC")])
        assert "space to depth" not in report["layout"].hits


def test_a_copy_in_blocks_is_one_kernel() -> None:
    """Reading, rounding and filling up are one step of the plan; nothing is copied bit by bit."""
    x, w = mg.var("x", shape=(8, 32, 32, 3)), mg.var("w", shape=(7, 7, 3, 16))
    y = mg.conv2d(x, w, stride=2, padding=3, layout="NHWC")
    plan = planned([x, w], [mg.relu(y)], precision="bfloat16")
    images = 8 * 32 * 32 * 3
    reads = [s for s in plan.steps if any(v.type.size == images for v in s.inputs)]
    assert [step.kernel for step in reads] == ["fused"]
    (made,) = reads[0].outputs
    assert (made.type.shape, made.type.dtype.name) == ((8, 16, 16, 16), "bfloat16")
    assert {step.kernel for step in plan.steps} == {"fused", "convolution"}


@pytest.mark.parametrize("precision", ["bfloat16", "tf32"])
def test_a_dense_layer_is_left_to_the_library_without_its_mask(precision: str) -> None:
    """The backward pass takes relu's mask of the value, which is in memory anyway."""
    x, w, b, v = (
        mg.var(n, shape=s)
        for n, s in (("x", (512, 256)), ("w", (256, 1024)), ("b", (1024,)), ("v", (1024, 256)))
    )
    loss = mg.mean(mg.sin(mg.relu(x @ w + b) @ v))
    plan = planned([x, w, b, v], [loss, *mg.grad(loss, [w, b, v])], precision=precision)
    assert not any(
        value.type.dtype.name == "bool" for step in plan.steps for value in step.outputs
    )
    first = next(i for i, step in enumerate(plan.steps) if step.kernel == "gemm")
    read = reading(plan, plan.steps, first)
    assert read is not None
    assert read.alone
    epilogue = library_epilogue(read.graph, read.parameter)
    assert epilogue is not None
    assert epilogue.name == "relu_bias"


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
    assert reads == 5  # moments; values, with the sums of the gradient (x, g); that (x, g)


def test_sums_of_centered_values_are_left_out(rng: np.random.Generator) -> None:
    x, g = mg.var("x", shape=(7, 5)), mg.var("g", shape=(7, 5))
    out = mg.sum(mg.batch_norm(x, eps=1e-3) * g)
    graph, report = passed([x, g], [mg.grad(out, x)], last="simplify")
    assert "sum of centered values is 0" in report["simplify"].hits
    given = values([x, g], rng)
    (old,) = interpreted(freeze([x, g], [mg.grad(out, x)]), given)
    (new,) = interpreted(graph, given)
    assert_agrees(new, old, "reassoc", 10 * magnitude(old))


def test_factors_of_a_channel_leave_sums(rng: np.random.Generator) -> None:
    """The gradient of a normalization is left with two sums over all elements."""
    x, g = mg.var("x", shape=(7, 3, 5)), mg.var("g", shape=(7, 3, 5))
    scale = mg.variable("scale", init=rng.uniform(0.5, 2.0, 5).astype(np.float32))
    offset = mg.variable("offset", init=np.zeros(5, np.float32))
    leaves = [x, g]
    loss = mg.sum(mg.batch_norm(x, scale, offset, eps=1e-3, axis=-1) * g)
    outputs = mg.grad(loss, [x, scale, offset])
    graph, report = passed(leaves, outputs, last="simplify")
    assert report["simplify"].hits["move factors out of a sum"] >= 2
    summed = {n.inputs[0] for n in graph.nodes if n.op.kind is Kind.REDUCTION}
    # Values and squares of the forward pass, the cotangent, and that times centered values.
    assert len(summed) == 4
    given = values(leaves, rng)
    for old, new in zip(
        interpreted(freeze(leaves, outputs), given), interpreted(graph, given), strict=True
    ):
        assert_agrees(new, old, "reassoc", 10 * magnitude(old))


def test_only_factors_of_float32_that_stay_the_same_leave_sums(rng: np.random.Generator) -> None:
    x = mg.var("x", shape=(7, 5))
    c = mg.variable("c", init=rng.uniform(0.5, 2.0, (1, 5)).astype(np.float32))
    rows = mg.variable("rows", init=rng.uniform(0.5, 2.0, (7, 1)).astype(np.float32))
    rule = "move factors out of a sum"
    outputs = [mg.sum(x * c * rows, axis=0), mg.sum(rows * x * x, axis=1)]
    graph, report = passed([x], outputs, last="simplify")
    assert report["simplify"].hits[rule] == 2
    given = values([x], rng)
    for old, new in zip(
        interpreted(freeze([x], outputs), given), interpreted(graph, given), strict=True
    ):
        assert_agrees(new, old, "reassoc", 10 * magnitude(old))
    _, report = passed([x], [mg.sum(x * rows, axis=0)], last="simplify")
    assert rule not in report["simplify"].hits
    # What scales a square may keep it in range.
    _, report = passed([x], [mg.sum((x * c) * (x * c), axis=0)], last="simplify")
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
    assert "sum of centered values is 0" not in report["simplify"].hits
    _, report = passed([x], [gone], last="simplify")
    assert report["simplify"].hits["sum of centered values is 0"] == 1


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_chains_that_readers_compute_again_change_no_value(
    layout: str, dtype: str, rng: np.random.Generator
) -> None:
    inputs, outputs = network(layout, dtype)
    before, _ = passed(inputs, outputs)
    after, report = passed(inputs, outputs, last="fuse")
    assert report["fuse"].hits["recompute"]
    given = values(inputs, rng)
    for old, new in zip(interpreted(before, given), interpreted(after, given), strict=True):
        numerics = "half" if canonical(dtype).itemsize == 2 else "reassoc"
        scale = magnitude(np.asarray(old, "f4"))
        assert_agrees(new, np.asarray(old, "f8"), numerics, 10 * scale)


def test_weights_are_cast_and_turned_by_one_kernel(rng: np.random.Generator) -> None:
    x = mg.input("x", shape=(2, 8, 8, 8))
    weights = [
        mg.var(f"w{i}", init=rng.standard_normal((3, 3, 8, 8)).astype("f4")) for i in range(3)
    ]
    value: Any = x
    for w in weights:
        value = mg.relu(mg.conv2d(value, w, padding=1, layout="NHWC"))
    trace = Trace()
    graph = freeze([x], [mg.mean(value)], trace=trace)
    count = [record.name for record in pipeline.DEFAULT].index("fuse") + 1
    after, report = pipeline.run(
        graph, trace, passes=pipeline.DEFAULT[:count],
        options=options_of(device="cuda:0", precision="bfloat16"),
    )
    (many,) = [node for node in after.nodes if node.op.name == "fused_many"]
    assert [node.op.name for node in many.inputs] == ["variable"] * 3
    assert all(len(body.inputs) == len(body.outputs) == 1 for body in many.attrs["bodies"])
    assert report["fuse"].hits["one kernel for many variables"] == 3
    # Nothing else reads the variables, and each is turned where it is cast.
    assert all(after.users[w] == (many,) for w in many.inputs)
    assert all(body.outputs[0].shape == (8, 3, 3, 8) for body in many.attrs["bodies"])
