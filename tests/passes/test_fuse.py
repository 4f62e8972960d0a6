"""What fusion achieves, on plans: launches and bytes moved; and that it changes no values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planned import options_of

import magmagraph as mg
from magmagraph.codegen.region.parts import TOGETHER_BYTES
from magmagraph.dtypes import tolerance
from magmagraph.ir.graph import Trace, freeze
from magmagraph.ir.plan import Place, Plan
from magmagraph.passes import pipeline
from magmagraph.runtime.families import FAMILIES
from magmagraph.runtime.families.fused import FUSED_FAMILY
from magmagraph.runtime.target import made_up

ROWS, COLUMNS = 32, 40


def planned(
    inputs: Sequence[mg.Node],
    outputs: Sequence[mg.Node],
    updates: Sequence[tuple[mg.Node, mg.Node]] = (),
    **options: Any,
) -> Plan:
    """Return the bound plan of a graph, without running it."""
    from magmagraph.passes.lowering.specialize import specialize

    trace = Trace()
    graph = freeze(inputs, outputs, updates, trace=trace)
    plan, _ = pipeline.run(graph, trace, options=options_of(**options))
    return specialize(plan, {})


def kernels(plan: Plan) -> list[str]:
    """Return the kernel families of a plan's steps."""
    return [step.kernel for step in plan.steps]


def compulsory(plan: Plan) -> int:
    """Return the bytes that anybody would have to move: feeds and states read, results written."""
    read = {
        value.slot: int(value.type.bytes)
        for step in plan.steps
        for value in step.inputs
        if plan.slots[value.slot].place is not Place.ARENA
    }
    written = {
        value.slot: int(value.type.bytes)
        for step in plan.steps
        for value in step.outputs
        if plan.slots[value.slot].place is not Place.ARENA
    }
    return sum(read.values()) + sum(written.values())


def matrix(name: str = "x") -> mg.Node:
    return mg.var(name, shape=(ROWS, COLUMNS))


def _softmax() -> tuple[list[mg.Node], list[mg.Node]]:
    x = matrix()
    return [x], [mg.softmax(x)]


def _log_softmax() -> tuple[list[mg.Node], list[mg.Node]]:
    x = matrix()
    return [x], [mg.log_softmax(x)]


def _layer_norm() -> tuple[list[mg.Node], list[mg.Node]]:
    x = matrix()
    scale, offset = mg.var("scale", shape=(COLUMNS,)), mg.var("offset", shape=(COLUMNS,))
    return [x, scale, offset], [mg.layer_norm(x, scale, offset)]


def _batch_norm() -> tuple[list[mg.Node], list[mg.Node]]:
    x = matrix()
    scale, offset = mg.var("scale", shape=(COLUMNS,)), mg.var("offset", shape=(COLUMNS,))
    return [x, scale, offset], [mg.batch_norm(x, scale, offset)]


def _rms_norm() -> tuple[list[mg.Node], list[mg.Node]]:
    x, scale = matrix(), mg.var("scale", shape=(COLUMNS,))
    return [x, scale], [mg.rms_norm(x, scale)]


def _normalize() -> tuple[list[mg.Node], list[mg.Node]]:
    x = matrix()
    return [x], [mg.normalize(x)]


FORWARD = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "rms_norm": _rms_norm,
    "normalize": _normalize,
}


@pytest.mark.parametrize("name", FORWARD)
def test_a_norm_is_one_kernel(name: str) -> None:
    inputs, outputs = FORWARD[name]()
    plan = planned(inputs, outputs)
    assert kernels(plan) == ["fused"]
    assert plan.steps[0].bytes <= 1.1 * compulsory(plan)


@pytest.mark.parametrize("name", FORWARD)
def test_the_gradient_of_a_norm_is_one_kernel(name: str) -> None:
    inputs, (output,) = FORWARD[name]()
    cotangent = matrix("cotangent")
    gradients = mg.grad(mg.sum(output * cotangent), inputs)
    plan = planned([*inputs, cotangent], gradients)
    assert kernels(plan) == ["fused"]
    assert plan.steps[0].bytes <= 1.1 * compulsory(plan)


def test_scratch_is_at_most_a_row_or_some_short_rows_per_thread() -> None:
    for make in FORWARD.values():
        inputs, (output,) = make()
        cotangent = matrix("cotangent")
        gradients = mg.grad(mg.sum(output * cotangent), inputs)
        for takes, gives in ((inputs, [output]), ([*inputs, cotangent], gradients)):
            plan = planned(takes, gives, threads=2)
            (step,) = plan.steps
            if step.workspace is not None:
                folds = len(gives)
                row = 8 * max(ROWS, COLUMNS) + 64
                most = 2 * ((folds + 1) * row + TOGETHER_BYTES)
                assert int(plan.slots[step.workspace].size) <= most


def test_cross_entropy_with_its_gradient_is_one_kernel() -> None:
    x = matrix("logits")
    labels = mg.var("labels", shape=(ROWS,), dtype="int32")
    loss = mg.cross_entropy(x, labels)
    plan = planned([x, labels], [loss, mg.grad(loss, x)])
    assert kernels(plan) == ["fused"]
    assert plan.steps[0].bytes <= 1.1 * compulsory(plan)


LOSSES = {
    "mse": mg.mse,
    "mae": mg.mae,
    "huber": mg.huber,
    "smooth_l1": mg.smooth_l1,
    "log_cosh": mg.log_cosh,
    "poisson_nll": mg.poisson_nll,
    "hinge": mg.hinge,
    "squared_hinge": mg.squared_hinge,
    "binary_cross_entropy": mg.binary_cross_entropy,
    "focal_loss": mg.focal_loss,
    "kl_divergence": mg.kl_divergence,
    "dice_loss": mg.dice_loss,
    "cosine_similarity": lambda x, y: mg.sum(mg.cosine_similarity(x, y)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_with_its_gradient_is_one_kernel(name: str) -> None:
    x, y = matrix(), matrix("y")
    loss = LOSSES[name](x, y)
    plan = planned([x, y], [loss, mg.grad(loss, x)])
    assert kernels(plan) == ["fused"]
    assert plan.steps[0].bytes <= 1.1 * compulsory(plan)


@pytest.mark.parametrize("options", [{"label_smoothing": 0.1}, {}], ids=["smoothed", "plain"])
def test_losses_of_classes_are_one_kernel(options: dict[str, float]) -> None:
    x, labels = matrix("logits"), mg.var("labels", shape=(ROWS,), dtype="int32")
    loss = mg.cross_entropy(x, labels, **options)
    assert kernels(planned([x, labels], [loss, mg.grad(loss, x)])) == ["fused"]


def test_group_norm_and_its_gradients() -> None:
    """Channels are split into groups: a kernel waits for a reshape, and reshapes wait for it."""
    x = mg.var("x", shape=(4, 8, 6, 6))
    scale, offset = mg.var("scale", shape=(8,)), mg.var("offset", shape=(8,))
    cotangent = mg.var("cotangent", shape=(4, 8, 6, 6))
    output = mg.group_norm(x, 4, scale, offset)
    gradients = mg.grad(mg.sum(output * cotangent), [x, scale, offset])
    for results in ([output], gradients, [output, *gradients]):
        assert kernels(planned([x, scale, offset, cotangent], results)) == ["fused"]


def test_a_join_that_another_step_forbids_through_a_wide_kernel() -> None:
    """Two products by s must not be one kernel: one makes what the other waits for.

    The normalization between them is one kernel that reaches from before the first to behind the
    second, on arrays of another shape, which no kernel reads through.
    """
    x, c = mg.var("x", shape=(4, 8, 6)), mg.var("c", shape=(4, 8, 6))
    s = mg.var("s", shape=(8,))
    wide = mg.expand_dims(s, 1)
    inner = mg.standardize(mg.reshape(x, (4, 4, 2, 6)), axis=(2, 3))
    output = mg.reshape(inner, (4, 8, 6)) * wide
    results = [output, *mg.grad(mg.sum(output * c), [x, s])]
    plan = planned([x, c, s], results)
    found = mg.function([x, c, s], results)
    generator = np.random.default_rng(0)
    feeds = [generator.normal(size=shape).astype("f4") for shape in ((4, 8, 6), (4, 8, 6), (8,))]
    plain = mg.function([x, c, s], results, skip=("fuse",))
    for fused, alone in zip(found(*feeds), plain(*feeds), strict=True):
        scale = float(np.abs(alone).max()) * alone.size
        assert tolerance(alone.dtype, "reassoc").close(fused, alone, scale)
    assert len(plan.steps) > 1


def test_a_dense_layer_is_one_product_and_one_kernel() -> None:
    x = matrix()
    w = mg.var("W", shape=(COLUMNS, 16), init=mg.init.glorot_uniform(seed=0))
    b = mg.var("b", shape=(16,), init=mg.init.zeros())
    plan = planned([x], [mg.sigmoid(x @ w + b)])
    assert kernels(plan) == ["gemm", "fused"]


def _parameters(count: int) -> list[mg.Node]:
    return [
        mg.var(f"p{i}", init=np.full((3 + i, 5), 0.5, np.float32)) for i in range(count)
    ]


def test_adam_over_all_small_parameters_is_one_kernel() -> None:
    parameters = _parameters(7)
    gradients = [mg.var(f"g{i}", shape=p.shape) for i, p in enumerate(parameters)]
    optimizer = mg.optimizer.Adam(1e-3)
    surrogate = mg.sum(
        mg.stack([mg.sum(p * g) for p, g in zip(parameters, gradients, strict=True)])
    )
    updates = optimizer.updates(surrogate, parameters)
    plan = planned(gradients, [], list(updates.items()))
    # The step counter is read by every parameter's part, so its own renewal comes after.
    assert kernels(plan) == ["fused", "copy"]
    assert int(plan.steps[1].bytes) <= 16


def seed_step(layers: int) -> Plan:
    """Return the plan of the seed network's training step."""
    batch, width = 100, 528
    x = mg.var("x", shape=(batch, 784))
    labels = mg.var("labels", shape=(batch,), dtype="int32")
    value, before, parameters = x, 784, []
    for layer in range(layers + 1):
        after = width if layer < layers else 10
        w = mg.var(f"W{layer}", shape=(before, after), init=mg.init.zeros())
        b = mg.var(f"b{layer}", shape=(after,), init=mg.init.zeros())
        parameters += [w, b]
        value = value @ w + b
        if layer < layers:
            value = mg.sigmoid(value)
        before = after
    loss = mg.cross_entropy(value, labels)
    updates = mg.optimizer.SGD(0.05, weight_decay=0.001).updates(loss, parameters)
    return planned([x, labels], [loss], list(updates.items()))


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_the_seed_network_stores_no_weight_gradient(layers: int) -> None:
    plan = seed_step(layers)
    largest = max(
        (int(slot.size) for slot in plan.slots if slot.place is Place.ARENA), default=0
    )
    assert largest < 4 * 528 * 528, "a weight gradient has a buffer of its own"
    into_weights = [
        step
        for step in plan.steps
        if step.kernel == "gemm"
        and plan.slots[step.outputs[0].slot].place is Place.STATE
    ]
    assert len(into_weights) == layers + 1
    if layers == 4:
        assert len(plan.steps) <= 28


def test_a_column_sum_becomes_gemv_when_forced() -> None:
    x = matrix()
    plan = planned([x], [mg.sum(x, axis=0)], reduce_to_gemv="always")
    assert kernels(plan) == ["gemv"]
    plan = planned([x], [mg.sum(x, axis=0)], reduce_to_gemv="never")
    assert kernels(plan) == ["fused"]


def test_a_refusal_has_a_reason() -> None:
    x = mg.var("x", shape=(8, 1 << 20))
    trace = Trace()
    graph = freeze([x], [mg.softmax(x)], trace=trace)
    _, report = pipeline.run(graph, trace, options=options_of())
    reasons = [refusal.reason for refusal in report["fuse"].refusals]
    assert any("a row takes 4194304 bytes" in reason for reason in reasons), reasons


def test_skipping_fusion_gives_the_same_values() -> None:
    rng = np.random.default_rng(0)
    x = matrix()
    y = mg.softmax(mg.tanh(x) * 2.0) + mg.sum(x, axis=0)
    feed = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    with_fusion = mg.function([x], y)
    without = mg.function([x], y, skip=("fuse",))
    assert len(without.plan.steps) > len(with_fusion.plan.steps)
    tolerance = mg.dtypes.tolerance(np.dtype("float32"), "reassoc")
    assert tolerance.close(with_fusion(feed), without(feed), scale=50.0)


def test_fusing_again_changes_nothing() -> None:
    from magmagraph.passes.fuse.fuse import fuse

    inputs, outputs = _layer_norm()
    graph = freeze(inputs, outputs)
    options = options_of()
    once = fuse(graph, Trace(), options)
    assert once is not graph
    assert fuse(once, Trace(), options) is once




def test_one_array_along_two_axes_is_two_operands(rng: np.random.Generator) -> None:
    x = mg.var("x", shape=(ROWS,))
    differences = x[None, :] - x[:, None]
    pull = mg.sum(differences / (mg.abs(differences) + 1.0), axis=1)
    assert kernels(planned([x], [pull])) == ["fused"]
    function = mg.function([x], pull)
    value = rng.random(ROWS, dtype=np.float32)
    apart = value[None, :].astype(np.float64) - value[:, None]
    expected = (apart / (np.abs(apart) + 1.0)).sum(axis=1)
    assert tolerance(np.dtype("float32"), "reassoc").close(function(value), expected, ROWS)


def test_a_matrix_and_its_transpose_are_not_written_over(rng: np.random.Generator) -> None:
    x = mg.var("x", shape=(ROWS, ROWS))
    W = mg.var("W", init=np.ones((ROWS, ROWS), np.float32))
    y = x @ x  # a value of the plan's own, which ends with its reader
    plan = planned([x], [mg.sum(y + mg.transpose(y), axis=0)])
    assert kernels(plan) == ["gemm", "fused"]
    value = rng.random((ROWS, ROWS), dtype=np.float32)
    function = mg.function([x], [y + mg.transpose(y)], updates={W: W - 0.5 * mg.transpose(W) + x})
    (found,) = function(value)
    product = value.astype(np.float64) @ value
    table = tolerance(np.dtype("float32"), "reassoc")
    assert table.close(found, product + product.T, ROWS)
    function(value)
    renewed = 0.5 + value.astype(np.float64)
    assert table.close(W.value, renewed - 0.5 * renewed.T + value, 2.0)


def test_a_sum_is_not_joined_with_a_larger_array_that_reads_it(rng: np.random.Generator) -> None:
    x, y = mg.var("x", shape=(ROWS, 8)), mg.var("y", shape=(COLUMNS, 8))
    squares = mg.sum(x * x, axis=1)[:, None] + mg.sum(y * y, axis=1)[None, :]
    made = mg.exp(-0.5 * (squares - 2.0 * (x @ y.T)))
    assert kernels(planned([x, y], [made])) == ["fused", "fused", "gemm", "fused"]
    one, other = rng.random((ROWS, 8)), rng.random((COLUMNS, 8))
    found = mg.function([x, y], made)(one.astype(np.float32), other.astype(np.float32))
    apart = one[:, None, :] - other[None, :, :]
    expected = np.exp(-0.5 * (apart**2).sum(axis=-1))
    assert tolerance(np.dtype("float32"), "reassoc").close(found, expected)


@pytest.mark.parametrize("branches", [2, 3, 5])
def test_kernels_read_all_their_operands_where_values_are_computed_again(branches, rng):
    """Branches share weights: their masks join, are computed again by their readers, and vanish."""
    inputs = [mg.input(f"x{i}", (10, 8), dtype="float64") for i in range(branches)]
    w, v = (mg.variable(n, init=rng.normal(size=s)) for n, s in (("w", (8, 16)), ("v", 16)))
    b = mg.variable("b", init=np.ones(16))
    loss = sum(mg.mean((mg.relu(x @ w + b) @ v) ** 2) for x in inputs)
    outputs = [loss, *mg.grad(loss, [w, b, v])]
    function = mg.function(inputs, outputs, device="cpu")
    function.compile({})
    for step in function.plan.steps:
        body = step.node.attrs.get("body")
        if step.node.op.name == "fused" and body is not None:
            assert len(body.inputs) == len(step.node.inputs)
            assert set(body.inputs) <= {*body.roots, *(i for n in body.nodes for i in n.inputs)}
    feeds = [rng.normal(size=(10, 8)) for _ in inputs]
    rtol, atol = tolerance(np.dtype(np.float64), "reassoc")
    plain = mg.function(inputs, outputs, device="cpu", skip=["fuse"])
    for found, wanted in zip(function(*feeds), plain(*feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def _bodies(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    graph = freeze(inputs, outputs)
    plan, _ = pipeline.run(graph, Trace(), options=options_of(tuning=False))
    return [step.node.attrs["body"] for step in plan.steps if step.kernel == "fused"]


def _layers(rates: Sequence[float]) -> tuple[list[Any], list[Any]]:
    x = mg.var("x", shape=("batch", 8))
    weights = [mg.input(f"w{i}", shape=(8, 8)) for i in range(len(rates))]
    value = x
    for weight, rate in zip(weights, rates, strict=True):
        value = mg.sigmoid(value @ weight) * rate
    return [x, *weights], [value]


def test_equal_kernels_share_a_body() -> None:
    bodies = _bodies(*_layers([0.5, 0.5, 0.5]))
    assert len(bodies) == 3
    assert bodies[0] is bodies[1] is bodies[2]
    assert all(node in bodies[0].interner for node in bodies[0].nodes)
    bodies[0].verify()


def test_kernels_of_other_constants_have_bodies_of_their_own() -> None:
    bodies = _bodies(*_layers([0.5, 0.25, 0.5]))
    assert bodies[0] is bodies[2]
    assert bodies[1] is not bodies[0]
    values = [[n.attrs["value"] for n in b.nodes if "value" in n.attrs] for b in bodies[:2]]
    assert values == [[0.5], [0.25]]


def test_a_kernel_of_many_tensors_is_looked_at_once() -> None:
    """Each renewed variable asks whether its kernel may write over it."""
    asked: list[Any] = []

    def counting(node: Any, device: str) -> Any:
        asked.append(node)
        return pairs(node, device)

    pairs = FUSED_FAMILY.in_place
    family = replace(FUSED_FAMILY, in_place=counting)
    families = tuple(family if each is FUSED_FAMILY else each for each in FAMILIES)
    options = replace(options_of(), target=replace(made_up(), families=families))
    variables = [mg.var(f"v{i}", init=np.zeros(3 + i, np.float32)) for i in range(40)]
    updates = [(v, mg.tanh(v) - 0.1 * v) for v in variables]
    plan, _ = pipeline.run(freeze([], [], updates), Trace(), options=options)
    assert len(plan.steps) == 1
    assert len(asked) == 1


_UNEVEN = "a sum across rows keeps some of a row's axes"


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda e: [mg.sum(e, 0), mg.sum(e, (0, 1))], "sums across rows keep different axes"),
        (lambda e: [mg.sum(e, (0, 2)), mg.sum(e, (0, 1))], _UNEVEN),
        (lambda e: [e / mg.sum(e, (1, 2), True), mg.sum(e / mg.sum(e, (1, 2), True), (0, 1))],
         _UNEVEN),
        (lambda e: [mg.sum(e, 0), mg.sum(e, 1)], None),
        (lambda e: [e / mg.sum(e, -1, True), mg.sum(e, (0, 1))], None),
    ],
    ids=["columns", "rows", "softmax", "one of each", "whole rows"],
)  # fmt: skip
def test_what_is_fused_for_a_gpu_has_kernels_there(build: Any, reason: str | None) -> None:
    """A region without kernels would run as array expressions, an operation at a time."""
    from magmagraph.codegen.cuda.generated import kernels_of
    from magmagraph.codegen.steps import bodies_of

    x, trace = mg.input("x", (64, 48, 40)), Trace()
    graph = freeze([x], build(mg.exp(x)), trace=trace)
    options = options_of(device="cuda:0", threads=264)
    plan, report = pipeline.run(graph, trace, options=options)
    bodies = [b for step in plan.steps if step.kernel == "fused" for b in bodies_of(step)]
    assert bodies
    assert all(kernels_of(body) is not None for body in bodies)
    reasons = {refusal.reason for record in report for refusal in record.refusals}
    known = {"sums across rows keep different axes", _UNEVEN}
    assert reasons & known == ({reason} if reason else set())
