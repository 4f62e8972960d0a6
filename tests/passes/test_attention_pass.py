"""The pass `attention`: every spelling of attention, with gradients, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planned import options_of

import magmagraph as mg
from magmagraph.ir.graph import Graph, Node, Trace, freeze
from magmagraph.ir.interpret import evaluate
from magmagraph.passes import attention as attention_pass
from magmagraph.passes import pipeline
from magmagraph.passes.report import Record

ONLY = [record for record in pipeline.DEFAULT if record.name == "attention"]
H200 = mg.Target.made_up("h200")


@pytest.fixture(autouse=True)
def few_scores_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_pass, "FULL_SCORES", 0)
    monkeypatch.setattr(attention_pass, "FULL_BYTES", 0)


def turned(x: Node) -> Node:
    return mg.swapaxes(x, -1, -2)


def hand(s: Node) -> Node:
    """Return a softmax that shows all its steps."""
    e = mg.exp(s - mg.max(s, -1, keepdims=True))
    return e / mg.sum(e, -1, keepdims=True)


def ones(s: Node) -> tuple[int, int]:
    return s.shape[-2], s.shape[-1]


Form = Callable[[Node, Node, Node, Node, Node], Node]
attend = mg.scaled_dot_product_attention
FORMS: dict[str, Form] = {
    "plain": lambda q, k, v, b, m: mg.softmax(q @ turned(k)) @ v,
    "scale before": lambda q, k, v, b, m: mg.softmax((q * 0.3) @ turned(k), -1) @ v,
    "scale after": lambda q, k, v, b, m: mg.softmax(q @ turned(k) / np.sqrt(4.0)) @ v,
    "tril": lambda q, k, v, b, m: mg.softmax(
        mg.where(mg.tril(mg.ones(ones(q @ turned(k)))) > 0, q @ turned(k), -1e9)
    ) @ v,
    "array mask": lambda q, k, v, b, m: mg.softmax(
        mg.where(np.tri(*ones(q @ turned(k)), dtype=bool), q @ turned(k), -np.inf)
    ) @ v,
    "triu added": lambda q, k, v, b, m: mg.softmax(
        q @ turned(k) + np.triu(np.full(ones(q @ turned(k)), -np.inf), 1)
    ) @ v,
    "inverted": lambda q, k, v, b, m: mg.softmax(
        mg.where(mg.logical_not(m), -np.inf, q @ turned(k))
    ) @ v,
    "bias": lambda q, k, v, b, m: mg.softmax(q @ turned(k) + b) @ v,
    "bias before scale": lambda q, k, v, b, m: mg.softmax((q @ turned(k) - b) * 0.5) @ v,
    "bias and mask": lambda q, k, v, b, m: mg.softmax(mg.where(m, q @ turned(k) + b, -np.inf)) @ v,
    "finite mask": lambda q, k, v, b, m: mg.softmax(mg.where(m, q @ turned(k), -7.0)) @ v,
    "by hand": lambda q, k, v, b, m: hand(q @ turned(k)) @ v,
    "einsum": lambda q, k, v, b, m: mg.einsum(
        "bhqk,bhkd->bhqd", mg.softmax(mg.einsum("bhqd,bhkd->bhqk", q, k)), v
    ),
    "exponential of logarithms": lambda q, k, v, b, m: mg.exp(
        mg.log_softmax(q @ turned(k))
    ) @ v,
    "function, causal": lambda q, k, v, b, m: attend(q, k, v, causal=True),
    "function, masked": lambda q, k, v, b, m: attend(q, k, v, m),
    "function, added": lambda q, k, v, b, m: attend(q, k, v, b, causal=True),
    "merged heads": lambda q, k, v, b, m: mg.reshape(
        mg.swapaxes(mg.softmax(q @ turned(k)) @ v, 1, 2), (q.shape[0], q.shape[2], -1)
    ),
    "one head of keys": lambda q, k, v, b, m: mg.softmax(
        q @ turned(k[:, :1]) + b
    ) @ v[:, :1],
    "one node thrice": lambda q, k, v, b, m: mg.softmax(k @ turned(k)) @ k,
}  # fmt: skip


def applied(graph: Graph) -> tuple[Graph, Record]:
    after, report = pipeline.run(graph, Trace(), passes=ONLY, options=options_of())
    return after, report["attention"]


def operands(rng: np.random.Generator, rows: int, columns: int) -> tuple[list[Node], list[Any]]:
    shapes = {"q": (2, 3, rows, 4), "k": (2, 3, columns, 4), "v": (2, 3, columns, 5)}
    data: list[Any] = [rng.normal(size=shape) for shape in shapes.values()]
    inputs = [mg.input(name, shape, "float64") for name, shape in shapes.items()]
    data += [rng.normal(size=(3, 1, columns)), rng.random((2, 1, 1, columns)) < 0.6]
    data[-1][..., 0] = True
    return [*inputs, mg.input("b", (3, 1, columns), "float64"),
            mg.input("m", (2, 1, 1, columns), "bool")], data  # fmt: skip


@pytest.mark.parametrize("sizes", [(5, 7), (1, 7), (9, 9)], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_spellings_and_their_gradients(
    form: str, sizes: tuple[int, int], rng: np.random.Generator
) -> None:
    inputs, data = operands(rng, *sizes)
    y = FORMS[form](*inputs)
    slopes = mg.grad(mg.sum(mg.sin(y)), inputs[:4], unused="zeros")
    before = freeze(inputs, [y, *slopes])
    after, record = applied(before)
    assert record.hits == {attention_pass.RULE: 1}, record.refusals
    assert not any(
        node.op.name == "exp" and node.shape[-1:] == sizes[1:] and node.ndim > 2
        for node in after.nodes
    ), "scores are held"
    results = []
    for graph in (before, after):
        values = evaluate(graph, dict(zip(graph.inputs, data, strict=True)))
        results.append([values[node] for node in graph.outputs])
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
    assert applied(after)[0] is after


@pytest.mark.parametrize("length", [197, 333])
def test_several_blocks_of_odd_length(length: int, rng: np.random.Generator) -> None:
    inputs, data = operands(rng, length, length)
    y = FORMS["array mask"](*inputs)
    slopes = mg.grad(mg.sum(mg.sin(y)), inputs[:3])
    found = mg.function(inputs, [y, *slopes])
    expected = mg.function(inputs, [y, *slopes], skip=("attention",))
    assert found.report["attention"].hits
    for ours, theirs in zip(found(*data), expected(*data), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)


def test_layers_in_a_row_and_named_lengths(rng: np.random.Generator) -> None:
    x = mg.input("x", ("batch", "length", 8), "float64")
    h = x
    for _ in range(3):
        s = mg.softmax(h @ turned(h) * 0.2)
        h = h + s @ mg.tanh(h)
    g = mg.grad(mg.sum(h * h), x)
    both = [mg.function([x], [h, g], skip=skip) for skip in ((), ("attention",))]
    data = rng.normal(size=(2, 11, 8))
    for ours, theirs in zip(*(f(data) for f in both), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    assert both[0].report["attention"].hits == {attention_pass.RULE: 3}


def test_a_single_key_is_left_alone(rng: np.random.Generator) -> None:
    inputs, _ = operands(rng, 6, 1)
    graph = freeze(inputs, [FORMS["plain"](*inputs)])
    assert applied(graph)[0] is graph


@pytest.mark.parametrize(
    ("test", "hits"),
    [
        (lambda total: mg.equal(total, 0.0), 1),
        (lambda total: mg.equal(0.0, total), 1),
        (lambda total: mg.equal(total, 7.0), 0),
        (lambda total: mg.equal(mg.sum(total), 0.0), 0),
    ],
    ids=["zero", "zero first", "another number", "another sum"],
)
def test_sums_that_are_replaced(test: Any, hits: int, rng: np.random.Generator) -> None:
    """A softmax may put 1 in the place of a sum of 0, and in that of no other one."""
    inputs, data = operands(rng, 5, 7)
    data[0] *= 0.0  # so that each sum is 7
    q, k, v = inputs[:3]
    scores = q @ turned(k)
    power = mg.exp(scores - mg.max(scores, -1, keepdims=True))
    total = mg.sum(power, -1, keepdims=True)
    before = freeze(inputs, [power / mg.where(test(total), 1.0, total) @ v])
    after, record = applied(before)
    assert sum(record.hits.values()) == hits
    found, expected = (
        evaluate(graph, dict(zip(graph.inputs, data, strict=True)))[graph.outputs[0]]
        for graph in (after, before)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


def test_second_derivatives_keep_the_scores(rng: np.random.Generator) -> None:
    (q, k, v, *_), _ = operands(rng, 4, 5)
    slope = mg.grad(mg.sum(mg.sin(mg.softmax(q @ turned(k)) @ v)), q)
    _, record = applied(freeze([q, k, v], [mg.grad(mg.sum(slope * slope), k)]))
    assert not record.hits
    assert "elsewhere" in record.refusals[0].reason


def test_the_report_tells_what_rows_without_keys_become() -> None:
    q, k, v = (mg.input(name, (1, 3, 4)) for name in "qkv")
    m = mg.input("m", (1, 1, 3), "bool")
    _, record = applied(freeze([q, k, v, m], [mg.softmax(mg.where(m, q @ turned(k), -np.inf)) @ v]))
    assert "zeros instead of NaN" in record.repairs[0]


@pytest.mark.parametrize(
    ("dtype", "width", "reason"),
    [
        ("float32", 64, "16-bit operands, not float32"),
        ("bfloat16", 60, "a multiple of 8 numbers, not 60"),
        ("bfloat16", 64, "cuDNN cannot be used"),
    ],
)
def test_a_device_without_a_kernel_keeps_the_scores(
    dtype: str, width: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "magmagraph.runtime.cuda.library.cudnn.why_unavailable"
    monkeypatch.setattr(why, lambda: "it is not installed")
    q, k, v = (mg.input(name, (8, 4, 256, width)) for name in "qkv")
    options = options_of("cuda:0", precision=dtype)
    here = replace(options.target, choose=lambda key, candidates: next(iter(candidates)))
    _, report = pipeline.run(
        freeze([q, k, v], [mg.softmax(q @ turned(k)) @ v]), Trace(), passes=ONLY,
        options=replace(options, target=here),
    )  # fmt: skip
    assert reason in report["attention"].refusals[0].reason


def step_of(length: int, skip: tuple[str, ...]) -> Any:
    """Return a training step of one block in bfloat16, planned for a card that is not here."""
    ids = mg.input("ids", (8, length), "int32")
    net = mg.nn.LanguageModel(100, 64, 4, 1, positions=length)
    loss = mg.cross_entropy(net(ids), ids)
    step = mg.optimizer.AdamW(1e-3).step(
        loss, net.trainable_variables, inputs=[ids], outputs=[loss], precision="bfloat16",
        target=H200, skip=skip,
    )  # fmt: skip
    step.specialize((8, length))
    return step


def test_a_plan_for_a_card_holds_no_scores() -> None:
    plain, blocked = (step_of(256, skip) for skip in (("attention",), ()))
    scores = 2 * 8 * 4 * 256 * 256
    largest = [
        max(value.type.bytes for step in f.plan.steps for value in step.outputs)
        for f in (plain, blocked)
    ]
    assert largest[0] >= 2 * scores  # of float32
    assert largest[1] < scores
    kernels = [step.kernel for step in blocked.plan.steps]
    assert kernels.count("attention") == 2
    assert "array" not in kernels
