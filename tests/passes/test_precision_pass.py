"""The precision pass on graphs: which products change, where casts stand, what is stored how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from planned import options_of

import magmagraph as mg
from magmagraph.dtypes import canonical, tolerance
from magmagraph.ir.graph import Graph, Node, Trace
from magmagraph.ir.interpret import evaluate
from magmagraph.ops import TABLE
from magmagraph.passes import pipeline
from magmagraph.passes.pipeline import DEFAULT
from magmagraph.passes.report import Record

HALVES = ("bfloat16", "float16")
UPTO = DEFAULT[: [record.name for record in DEFAULT].index("precision") + 1]


def lowered(
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    updates: Any = None,
    precision: str = "bfloat16",
    **options: Any,
) -> tuple[Graph, Record]:
    """Return the graph after the pass, and the pass's record."""
    f = mg.function(inputs, outputs, updates, precision=precision)
    made = options_of(precision=precision, **options)
    graph, report = pipeline.run(f.source_graph, Trace(), passes=UPTO, options=made)
    assert [root.type for root in graph.roots] == [root.type for root in f.source_graph.roots]
    again, _ = pipeline.run(graph, Trace(), passes=UPTO[-1:], options=made)
    assert again is graph, "the pass changes its own result"
    return graph, report["precision"]


def products(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op.policy == "allow"]


def casts(graph: Graph, dtype: str) -> list[Node]:
    wanted = canonical(dtype)
    return [n for n in graph.nodes if n.op.name == "cast" and n.dtype == wanted]


def perceptron(precision: str, **options: Any) -> tuple[Graph, Record]:
    """Return a training step of two hidden layers after the pass."""
    x, labels = mg.input("x", ("n", 32)), mg.input("labels", ("n",), dtype="int32")
    sizes = (32, 64, 48, 16)
    variables: list[Any] = []
    value: Any = x
    for layer in range(3):
        shape = sizes[layer : layer + 2]
        variables.append(mg.var(f"W{layer}", shape=shape, init=mg.init.glorot_uniform(seed=layer)))
        variables.append(mg.var(f"b{layer}", shape=shape[1:], init=mg.init.zeros()))
        value = value @ variables[-2] + variables[-1]
        value = value if layer == 2 else mg.relu(value)
    loss = mg.cross_entropy(value, labels)
    updates = mg.optimizer.SGD(0.1).updates(loss, variables)
    return lowered([x, labels], [loss, value], updates, precision, **options)


@pytest.mark.parametrize("precision", HALVES)
def test_a_training_step(precision: str) -> None:
    graph, record = perceptron(precision)
    dtype = canonical(precision)
    found = products(graph)
    assert len(found) == 8  # three forward, three of weights, two of values in between
    assert all(factor.dtype == dtype for node in found for factor in node.inputs[:2])
    # Two hidden layers and their gradients go on to products; logits and weights' gradients do not.
    assert Counter(node.dtype.name for node in found) == {precision: 4, "float32": 4}
    # x, three weights, two hidden layers and the gradients of three layers: each once.
    assert len(casts(graph, precision)) == 9
    assert record.hits[f"product in {precision}"] == 8
    assert record.hits[f"cast to {precision}"] == 9
    assert len([text for text in record.notes if "bytes unless fused" in text]) == 9
    assert len([text for text in record.notes if "operands, stored as" in text]) > 3


def test_each_weight_is_cast_once_for_both_directions() -> None:
    graph, _ = perceptron("bfloat16")
    for node in casts(graph, "bfloat16"):
        if "state" in node.inputs[0].attrs:
            readers = graph.users[node]
            assert len(readers) == (1 if node.inputs[0].shape == (32, 64) else 2)


def test_tf32_changes_no_type_and_has_no_casts() -> None:
    graph, record = perceptron("tf32")
    assert [node.attrs["compute"] for node in products(graph)] == ["tf32"] * 8
    assert not casts(graph, "bfloat16")
    assert not casts(graph, "float16")
    assert all(n.dtype == np.float32 for n in products(graph))
    assert record.hits == {"product in tf32": 8}
    assert all("9.8e-04" in text for text in record.notes)


def test_float32_is_left_alone() -> None:
    graph, record = perceptron("float32")
    assert not record.hits
    assert not any("compute" in node.attrs for node in graph.nodes)


def test_a_value_that_a_product_reads_is_stored_once() -> None:
    x = mg.input("x", (32, 32))
    w = mg.var("w", init=np.eye(32, dtype="f4"))
    hidden = mg.tanh(x @ w)
    graph, record = lowered([x], [mg.sum(mg.exp(hidden @ w) * mg.cos(hidden))])
    (tanh,) = (node for node in graph.nodes if node.op.name == "tanh")
    assert [reader.op.name for reader in graph.users[tanh]] == ["cast"]
    assert record.hits["share one cast between readers"] == 1


def test_an_output_keeps_its_own_digits() -> None:
    x = mg.input("x", (32, 32))
    w = mg.var("w", init=np.eye(32, dtype="f4"))
    hidden = mg.tanh(x @ w)
    graph, record = lowered([x], [hidden, mg.sin(hidden), hidden @ w])
    (sine,) = (node for node in graph.nodes if node.op.name == "sin")
    assert sine.inputs[0] is graph.outputs[0]
    assert "share one cast between readers" not in record.hits


def test_what_keeps_float32_reads_no_rounded_result() -> None:
    x = mg.input("x", ("n", 32))
    w = mg.var("w", init=np.eye(32, dtype="f4"))
    for form in (mg.exp, mg.log1p, lambda v: mg.sum(v, axis=0), mg.logsumexp):
        graph, _ = lowered([x], [form(mg.relu(x @ w) + 1.0)])
        (product,) = products(graph)
        assert product.dtype == np.float32, form
        assert product.inputs[0].dtype == canonical("bfloat16")


def test_policies_by_kind() -> None:
    assert {TABLE[name].policy for name in ("matmul", "gemm", "convolution", "attention_rows")} == {
        "allow"
    }
    kept = ("sum", "exp", "log", "log1p", "expm1", "logaddexp", "cholesky", "cumsum", "loop")
    assert {TABLE[name].policy for name in kept} == {"keep"}
    follow = ("add", "relu", "tanh", "where", "reshape", "transpose", "max_pool", "take", "cast")
    assert {TABLE[name].policy for name in follow} == {"follow"}


def test_a_float64_graph_is_returned_as_it_came() -> None:
    x = mg.input("x", (8, 8), dtype="float64")
    for precision in ("tf32", *HALVES):
        graph, record = lowered([x], [mg.tanh(x @ x) @ x], precision=precision)
        assert all(node.dtype == np.float64 for node in graph.nodes)
        assert {refusal.rule for refusal in record.refusals} == {f"product in {precision}"}


@pytest.mark.parametrize("precision", [*HALVES, "tf32"])
def test_whole_numbers_keep_all_digits(precision: str) -> None:
    x = mg.var("x", shape=("rows", 9), dtype="int32")
    _, record = lowered([x], [x @ x.T, mg.einsum("ij,kj->ik", x, x)], precision=precision)
    assert not record.hits
    given = np.arange(36, dtype=np.int32).reshape(4, 9) * 9973
    for found in mg.function([x], [x @ x.T, mg.einsum("ij,kj->ik", x, x)], precision=precision)(
        given
    ):
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, given @ given.T)


def test_products_with_vectors_are_refused() -> None:
    x, v = mg.input("x", (32, 32)), mg.input("v", (32,))
    graph, record = lowered([x, v], [x @ v])
    assert "vector" in record.refusals[0].reason
    assert not casts(graph, "bfloat16")


def test_extents_known_at_the_call_count_as_hinted() -> None:
    x = mg.input("x", ("n", 32))
    w = mg.var("w", init=np.eye(32, dtype="f4"))
    _, one = lowered([x], [x @ w], hints={"n": 1})
    _, many = lowered([x], [x @ w], hints={"n": 100})
    assert one.refusals
    assert not many.refusals


def test_convolutions_and_pooling() -> None:
    x = mg.input("x", ("n", 3, 12, 12))
    w = mg.var("w", shape=(4, 3, 3, 3), init=mg.init.normal(seed=1))
    v = mg.var("v", shape=(2, 4, 3, 3), init=mg.init.normal(seed=2))
    value = mg.conv2d(mg.max_pool2d(mg.conv2d(x, w), 2), v)
    graph, _ = lowered([x], [value])
    assert [n.dtype.name for n in products(graph)] == ["bfloat16"] * 2
    (pool,) = (node for node in graph.nodes if node.op.name == "max_pool")
    assert pool.dtype == pool.inputs[0].dtype == canonical("bfloat16")
    graph, _ = lowered([x], [value], precision="tf32")
    assert [n.attrs["compute"] for n in products(graph)] == ["tf32"] * 2


def test_what_follows_a_cast_of_the_users_is_not_rounded() -> None:
    x = mg.input("x", ("n", 3, 8, 8), dtype="bfloat16")
    w = mg.var("w", shape=(4, 3, 3, 3), init=mg.init.normal(seed=1))
    wide = mg.cast(x, "float32")
    graph, record = lowered([x], [mg.avg_pool2d(wide, 2), mg.conv2d(wide, w)])
    (pool,) = (node for node in graph.nodes if node.op.name == "sum_pool")
    assert pool.dtype == np.float32
    (product,) = products(graph)
    assert product.inputs[0] is graph.inputs[0], "nor is it cast twice"
    graph, record = lowered([x], [mg.max_pool2d(wide, 2)])
    assert not record.hits


def test_products_with_the_own_transpose(rng: np.random.Generator) -> None:
    x = mg.input("x", (128, 256))
    for precision in ("tf32", *HALVES):
        graph, record = lowered([x], [x @ x.T], precision=precision)
        (product,) = products(graph)
        assert product.op is TABLE["gemm"]
        assert not record.refusals
    wide = mg.input("x", (256, 256), dtype="float64")
    graph, _ = lowered([wide], [wide @ wide.T])
    assert graph.outputs[0].op is TABLE["syrk"], "float64 is not touched"


def test_attention_keeps_its_logarithms() -> None:
    q, k, v = (mg.input(name, (2, 2, 32, 16)) for name in "qkv")
    value = mg.scaled_dot_product_attention(q, k, v, algorithm="rows")
    gradients = mg.grad(mg.sum(value * value), [q, k, v])
    graph, _ = lowered([q, k, v], gradients)
    forward, backward = products(graph)
    assert [t.dtype.name for t in forward.type] == ["bfloat16", "float32"]
    assert [x.dtype.name for x in backward.inputs] == [
        "bfloat16", "bfloat16", "bfloat16", "float32", "bfloat16", "bfloat16",
    ]
    _, record = lowered([q, k, v], [value], precision="tf32")
    assert "no 'attention_rows' of tf32" in record.refusals[0].reason


def branching(rng: np.random.Generator, last: Any = None) -> tuple[list[Any], Any, Any]:
    """Return the variables, the input and the output of a network with a branch around a layer."""
    x = mg.input("x", ("n", 4, 8, 8))
    shapes = ((8, 4, 3, 3), (8, 8, 3, 3), (8, 8, 1, 1))
    variables = [
        mg.var(f"w{i}", init=(rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype("f4"))
        for i, s in enumerate(shapes)
    ]
    y = mg.relu(mg.conv2d(x, variables[0], padding=1))
    around = y if last is None else y + last
    z = mg.relu(around + mg.relu(mg.conv2d(y, variables[1], padding=1)))
    return variables, x, mg.relu(z + mg.conv2d(z, variables[2]))


def test_sums_of_16_bit_values_with_several_readers_are_16_bits(rng: np.random.Generator) -> None:
    variables, x, out = branching(rng)
    graph, record = lowered([x], mg.grad(mg.sum(mg.sin(out)), variables), hints={"n": 4})
    # Where the gradients of both ways meet, twice; and the result, which its gradient reads again.
    assert record.hits["sum of 16-bit values"] == 3
    for total in (node for node in graph.nodes if node.op.name == "add"):
        (reader,) = graph.users[total]
        (stored,) = graph.users[reader]
        assert stored.op.name == "cast", "it goes to memory, with its mask, in 16 bits"
        assert stored.dtype == canonical("bfloat16")


def test_sums_with_float32_values_keep_their_digits(rng: np.random.Generator) -> None:
    wide = mg.input("wide", ("n", 8, 8, 8))
    _, x, out = branching(rng, wide)
    _, record = lowered([x, wide], [out, mg.sin(out)], hints={"n": 4})
    assert "sum of 16-bit values" not in record.hits


@pytest.mark.parametrize("precision", HALVES)
def test_pooling_reads_16_bits_where_its_result_is_stored_so(
    precision: str, rng: np.random.Generator
) -> None:
    x = mg.input("x", (2, 3, 12, 12))
    v, w = mg.input("v", (4, 3, 3, 3)), mg.input("w", (2, 4, 3, 3))
    y = mg.relu(mg.conv2d(x, v))
    out = mg.conv2d(mg.max_pool2d(y, 2), w)
    outputs = [out, mg.grad(mg.sum(out * out), v)]
    graph, record = lowered([x, v, w], outputs, precision=precision)
    pools = [n for n in graph.nodes if n.op.name in ("max_pool", "max_pool_taps", "pool_spread")]
    assert {n.op.name: n.inputs[0].dtype.name for n in pools} == dict.fromkeys(
        ("max_pool", "max_pool_taps", "pool_spread"), precision
    )
    assert record.hits[f"stored as {precision}"] >= 3
    graph, _ = lowered([x, v, w], [out], precision=precision)
    given = [(rng.standard_normal(n.shape) / 5).astype("f4") for n in (x, v, w)]
    made = evaluate(graph, dict(zip(graph.inputs, given, strict=True)))[graph.outputs[0]]
    right = mg.function([x, v, w], out)(*given)
    scale = float(np.abs(right).max())
    assert tolerance(canonical("float32"), "half").close(made, right, scale)


@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_the_variance_of_a_16_bit_product_takes_one_pass(
    shift: float, rng: np.random.Generator
) -> None:
    """It is the variance of what is stored, also where the mean is large beside it."""
    x, w = mg.input("x", (256, 64)), mg.input("w", (64, 64))
    product = x @ w
    variance = mg.variance(product, axis=0)
    # What centers a value reads it again: the product goes on, and is stored in 16 bits.
    graph, record = lowered([x, w], [variance, product @ w])
    assert record.hits["variance in one pass"] == 1
    assert sum(node.op.name == "sum" for node in graph.nodes) == 2
    given = [rng.standard_normal(n.shape).astype("f4") for n in (x, w)]
    given[0] += shift / 8
    given[1] += 1 / 8
    stored = (given[0].astype(canonical("bfloat16")).astype("f8")
              @ given[1].astype(canonical("bfloat16")).astype("f8")).astype(canonical("bfloat16"))
    made = evaluate(graph, dict(zip(graph.inputs, given, strict=True)))
    right = stored.astype("f8").var(axis=0)
    np.testing.assert_allclose(
        made[graph.outputs[0]], right, rtol=tolerance(canonical("bfloat16"), "half").relative
    )
    _, record = lowered([x], [mg.variance(x, axis=0)])
    assert not record.hits, "nothing has rounded it"


@pytest.mark.parametrize("precision", ["tf32", *HALVES])
def test_values_agree_with_float64(precision: str, rng: np.random.Generator) -> None:
    x = mg.input("x", ("n", 24))
    w = mg.var("w", init=rng.standard_normal((24, 24)).astype("f4") / 5)
    value = mg.tanh(x @ w)
    value = mg.concatenate([value, value[:, ::2]], axis=1) @ mg.var(
        "u", init=rng.standard_normal((36, 8)).astype("f4") / 6
    )
    outputs = [mg.softmax(value), mg.transpose(value) @ value]
    f = mg.function([x], outputs)
    graph, _ = lowered([x], outputs, precision=precision)
    given = rng.standard_normal((40, 24)).astype("f4")
    made = evaluate(graph, {graph.inputs[0]: given})
    for root, right in zip(graph.outputs, f(given), strict=True):
        scale = float(np.abs(right).max())
        assert tolerance(canonical("float32"), "half").close(made[root], right, scale)


def test_a_gradient_inside_of_a_loss_is_not_scaled_twice() -> None:
    x = mg.input("x", (16, 16))
    w = mg.var("w", init=np.eye(16, dtype="f4"))
    inner = mg.grad(mg.sum(mg.tanh(x @ w) ** 2), w)
    outer = mg.grad(mg.sum(inner * inner), w)
    _, record = lowered([x], [], {w: w - outer}, precision="float16")
    assert record.hits["multiply the gradient seed by the scale"] == 1
    assert record.hits["divide gradients by the scale"] == 1
    assert "inside of another gradient's loss" in record.refusals[0].reason


def test_without_the_pass_markers_are_dropped_all_the_same() -> None:
    w = mg.var("w", init=np.eye(4, dtype="f4"))
    f = mg.function([], None, {w: w - mg.grad(mg.sum(w @ w), w)}, precision="float16",
                    skip=("precision",))
    assert not any(node.op.name == "marker" for node in f.graph.nodes)
