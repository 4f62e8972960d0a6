"""The pass `shared_factors`: products as one, values and gradients, and why some stay apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plan_interpreter import Interpreter, random_order
from planned import options_of
from random_graphs import random_program

import magmagraph as mg
from magmagraph.dtypes import canonical, tolerance
from magmagraph.ir.graph import Graph, Node, Trace, freeze
from magmagraph.ir.interpret import evaluate
from magmagraph.passes import pipeline, shared_factors
from magmagraph.passes.report import Record

H200 = mg.Target.made_up("h200")
UPTO = next(i for i, p in enumerate(pipeline.DEFAULT) if p.name == "shared_factors") + 1
Program = tuple[list[Node], list[Node]]  # what is fed, and the results
SHARED, SUMMED = shared_factors.SHARED, shared_factors.SUMMED


@pytest.fixture
def small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small products count as large, and launches as all that costs."""
    monkeypatch.setattr(shared_factors, "SMALL", 0)
    monkeypatch.setattr(shared_factors, "LAUNCH", 1 << 30)


def attention(dtype: str) -> Program:
    """Self-attention of two heads beside its input, and a cross-attention on it."""
    length, width, heads = 6, 8, 2
    x, y = mg.input("x", (3, length, width), dtype), mg.input("y", (3, 5, width), dtype)
    ws = [mg.input(f"w{i}", (width, width), dtype) for i in range(6)]

    def split(value: Node) -> Node:
        rows = value.shape[1]
        return mg.transpose(mg.reshape(value, (3, rows, heads, width // heads)), (0, 2, 1, 3))

    def attend(q: Node, k: Node, v: Node) -> Node:
        scores = mg.softmax(q @ mg.transpose(k, (0, 1, 3, 2)) * 0.5)
        return mg.reshape(mg.transpose(scores @ v, (0, 2, 1, 3)), (3, length, width))

    h = mg.tanh(x)
    h = h + attend(*(split(h @ w) for w in ws[:3]))
    h = h + attend(split(h @ ws[3]), *(split(y @ w) for w in ws[4:]))
    loss = mg.mean(h * h)
    return [x, y, *ws], [loss, *mg.grad(loss, [x, y, *ws])]


def biased_attention(dtype: str) -> Program:
    """Queries, keys and values with biases, whose gradients read those of the products, too."""
    x = mg.input("x", (3, 6, 8), dtype)
    ws = [mg.input(f"w{i}", (8, 8), dtype) for i in range(3)]
    bs = [mg.input(f"b{i}", (8,), dtype) for i in range(3)]
    h = mg.tanh(x)
    q, k, v = (
        mg.transpose(mg.reshape(h @ w + b, (3, 6, 2, 4)), (0, 2, 1, 3))
        for w, b in zip(ws, bs, strict=True)
    )
    y = mg.softmax(q @ mg.transpose(k, (0, 1, 3, 2)) * 0.5) @ v
    loss = mg.mean(mg.square(mg.reshape(mg.transpose(y, (0, 2, 1, 3)), (3, 6, 8))))
    return [x, *ws, *bs], [loss, *mg.grad(loss, [x, *ws, *bs])]


def lstm(dtype: str) -> Program:
    """Two steps of a cell whose gates have matrices of their own."""
    x = mg.input("x", (2, 5, 4), dtype)
    ws = [mg.input(f"w{i}", (4, 7), dtype) for i in range(4)]
    us = [mg.input(f"u{i}", (7, 7), dtype) for i in range(4)]
    h = c = mg.zeros((5, 7), dtype)
    for t in range(2):
        i, f, g, o = (x[t] @ w + h @ u for w, u in zip(ws, us, strict=True))
        c = mg.sigmoid(f) * c + mg.sigmoid(i) * mg.tanh(g)
        h = mg.sigmoid(o) * mg.tanh(c)
    loss = mg.sum(h * h)
    return [x, *ws, *us], [loss, *mg.grad(loss, [x, *ws, *us])]


def gru(dtype: str) -> Program:
    """A step whose candidate waits for a gate: two of three products of `h` can be one."""
    x, h = mg.input("x", (5, 4), dtype), mg.input("h", (5, 7), dtype)
    ws = [mg.input(f"w{i}", (4, 7), dtype) for i in range(3)]
    us = [mg.input(f"u{i}", (7, 7), dtype) for i in range(3)]
    z = mg.sigmoid(x @ ws[0] + h @ us[0])
    r = mg.sigmoid(x @ ws[1] + h @ us[1])
    new = mg.tanh(x @ ws[2] + (r * h) @ us[2])
    loss = mg.sum(((1.0 - z) * h + z * new) ** 2)
    return [x, h, *ws, *us], [loss, *mg.grad(loss, [x, h, *ws, *us])]


def experts(dtype: str) -> Program:
    """Two experts, each a gate and an up projection (SwiGLU) of one value, mixed by a router."""
    x, router = mg.input("x", (9, 5), dtype), mg.input("r", (5, 2), dtype)
    ups = [mg.input(f"w{i}", (5, 6), dtype) for i in range(4)]
    downs = [mg.input(f"d{i}", (6, 5), dtype) for i in range(2)]
    share = mg.softmax(x @ router)
    made = x
    for i in range(2):
        gate, up = x @ ups[2 * i], x @ ups[2 * i + 1]
        made = made + share[:, i : i + 1] * ((mg.silu(gate) * up) @ downs[i])
    loss = mg.mean(made * made)
    leaves = [x, router, *ups, *downs]
    return leaves, [loss, *mg.grad(loss, leaves)]


PROGRAMS: dict[str, Callable[[str], Program]] = {
    "attention": attention, "biased attention": biased_attention, "lstm": lstm, "gru": gru,
    "experts": experts,
}  # fmt: skip


def graphs(program: Program, skip: tuple[str, ...] = (), **given: Any) -> tuple[Graph, Record]:
    """Return the graph after the pass, for a GPU that need not be here, and the pass's record."""
    options = options_of("cuda:0", threads=264, **given)
    passes = [p for p in pipeline.DEFAULT[:UPTO] if p.name not in skip]
    graph, report = pipeline.run(freeze(*program), Trace(), passes=passes, options=options)
    return graph, report[passes[-1].name]


def values(graph: Graph, feeds: list[np.ndarray]) -> list[np.ndarray]:
    found = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
    return [np.asarray(found[output]) for output in graph.outputs]


def products(graph: Graph) -> int:
    return sum(node.op.name == "gemm" for node in graph.nodes)


def feeds_of(program: Program, rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.normal(size=node.shape).astype(node.dtype) for node in program[0]]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("small_products")
def test_values_and_gradients_are_kept(name: str, rng: np.random.Generator) -> None:
    program = PROGRAMS[name]("float64")
    joined, record = graphs(program)
    apart, _ = graphs(program, skip=("shared_factors",))
    assert record.hits[SHARED] >= 2
    assert record.hits[SUMMED] >= 1
    assert products(joined) < products(apart)
    feeds = feeds_of(program, rng)
    for one, other in zip(values(joined, feeds), values(apart, feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("small_products")
def test_plans_of_launches_have_the_values(name: str, rng: np.random.Generator) -> None:
    """Run the memory and the streams of the whole plan, in any order that they allow."""
    program = PROGRAMS[name]("float32")
    f = mg.function(*program, target=H200)
    feeds = feeds_of(program, rng)
    assert f.plan is not None
    assert f.report["shared_factors"].hits
    wanted = mg.function(*program, device="cpu")(*feeds)
    for order in (None, random_order(f.plan, rng)):
        for one, other in zip(Interpreter(f.plan, feeds).run(order), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "tf32"])
@pytest.mark.usefixtures("small_products")
def test_precisions(precision: str, rng: np.random.Generator) -> None:
    """One rounding of a sum takes the place of one for each term."""
    program = attention("float32")
    exact, _ = graphs(attention("float64"), skip=("shared_factors",))
    joined, record = graphs(program, precision=precision)
    apart, _ = graphs(program, skip=("shared_factors",), precision=precision)
    assert record.hits[SHARED] >= 2
    assert record.hits[SUMMED] >= 1
    feeds = feeds_of(program, rng)
    truth = values(exact, [feed.astype(np.float64) for feed in feeds])
    errors = [
        sum(float(np.square(a - b).sum()) for a, b in zip(values(g, feeds), truth, strict=True))
        for g in (joined, apart)
    ]
    assert errors[0] <= 1.2 * errors[1]


@pytest.mark.usefixtures("small_products")
def test_dtypes_are_not_mixed(rng: np.random.Generator) -> None:
    x = mg.input("x", (4, 3))
    u, v = mg.input("u", (3, 5)), mg.input("v", (3, 5), "float64")
    program = [x, u, v], [mg.tanh(x @ u), mg.tanh(mg.cast(x, "float64") @ v)]
    _, record = graphs(program, precision="bfloat16")
    assert not record.hits
    assert not record.refusals


@pytest.mark.usefixtures("small_products")
def test_products_that_wait_for_each_other(rng: np.random.Generator) -> None:
    """Each of two pairs could be one product, but not both."""
    x, y, a, b = (mg.input(name, (4, 4), "float64") for name in "xyab")
    first = x @ a
    second = y @ mg.tanh(first)
    third = y @ b
    fourth = x @ mg.tanh(third)
    program = [x, y, a, b], [mg.exp(node) for node in (first, second, third, fourth)]
    joined, record = graphs(program)
    apart, _ = graphs(program, skip=("shared_factors",))
    assert record.hits == {SHARED: 1}
    (refusal,) = record.refusals
    assert "depends on another" in refusal.reason
    feeds = [rng.normal(size=(4, 4)) for _ in range(4)]
    for one, other in zip(values(joined, feeds), values(apart, feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.usefixtures("small_products")
@pytest.mark.parametrize("waits", [False, True])
def test_factors_that_wait_for_each_other(waits: bool, rng: np.random.Generator) -> None:
    """A factor may be read as a piece of the joined array, unless another one is made of that."""
    a, b = (mg.input(name, (4, 3, 2), "float64") for name in "ab")
    u, v = (mg.input(name, (8, 5), "float64") for name in "uv")
    first = mg.transpose(a, (1, 0, 2))
    total = mg.sum(mg.sin(mg.reshape(first, (3, 2, 2, 2))) * np.arange(1.0, 5.0).reshape(2, 2))
    second = mg.transpose(b * total if waits else b, (1, 0, 2))
    out = mg.reshape(first, (3, 8)) @ u + mg.reshape(second, (3, 8)) @ v
    program = [a, b, u, v], [mg.tanh(out) * total]
    joined, record = graphs(program)
    apart, _ = graphs(program, skip=("shared_factors",))
    pieces = [n for n in joined.nodes if n.op.name == "slice"]
    if waits:
        assert not record.hits
        assert "depends on another" in record.refusals[0].reason
    else:
        assert record.hits == {SUMMED: 1}
        assert [n.shape for n in pieces] == [(3, 2, 2, 2)]
    feeds = feeds_of(program, rng)
    for one, other in zip(values(joined, feeds), values(apart, feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.usefixtures("small_products")
def test_named_rows_and_outputs(rng: np.random.Generator) -> None:
    """The number of rows is a name; a product is a result, another a term with other readers."""
    x = mg.input("x", ("batch", 3), "float64")
    ws = [mg.input(f"w{i}", (3, n), "float64") for i, n in enumerate((2, 5, 5))]
    first, second, third = (x @ w for w in ws)
    program = [x, *ws], [first, second + third, mg.sum(second) + mg.sum(first, 0)]
    joined, record = graphs(program, hints={"batch": 7})
    apart, _ = graphs(program, skip=("shared_factors",))
    assert record.hits == {SHARED: 1}
    feeds = [rng.normal(size=s) for s in ((7, 3), (3, 2), (3, 5), (3, 5))]
    for one, other in zip(values(joined, feeds), values(apart, feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.usefixtures("small_products")
def test_random_programs() -> None:
    hits = 0
    for seed in range(20):
        program = random_program(seed)
        options = options_of("cuda:0", threads=264)
        source, trace = program.freeze()
        given, _ = pipeline.run(
            source, trace, passes=pipeline.DEFAULT[: UPTO - 1], options=options
        )
        last = pipeline.DEFAULT[UPTO - 1 : UPTO]
        joined, report = pipeline.run(given, trace, passes=last, options=options)
        hits += sum(report["shared_factors"].hits.values())
        for one, other in zip(
            values(joined, program.feeds), values(given, program.feeds), strict=True
        ):
            scale = 1.0 + np.abs(other).max(initial=0.0)
            table = tolerance(canonical("float64"), "reassoc")
            assert table.close(one, other, scale=scale), f"seed {seed}"
    assert hits


def moved(plan: Any) -> int:
    """Return the bytes that the steps of a plan read and write."""
    values = [value for s in plan.steps for value in (*s.inputs, *s.outputs)]
    return sum(int(value.type.bytes) for value in values)


def step(rows: int, width: int, precision: str, optimizer: Any, **given: Any) -> Any:
    """Return a training step of queries, keys and values that are read by regions."""
    x = mg.input("x", (rows, width))
    names = ("E", "Wq", "Wk", "Wv")
    e, *ws = (mg.var(n, init=mg.init.zeros(), shape=(width, width)) for n in names)
    h = mg.tanh(x @ e)
    q, k, v = (h @ w for w in ws)
    loss = mg.mean((mg.tanh(q) * k + mg.sin(v)) ** 2)
    return optimizer.step(
        loss, [e, *ws], inputs=[x], outputs=[loss], precision=precision, **given
    )


def test_attention_in_16_bits_has_fewer_launches_and_bytes() -> None:
    plans = []
    for skip in ((), ("shared_factors",)):
        x = mg.input("x", (8, 1024, 768))
        e, q, k, v = (mg.var(n, init=mg.init.zeros(), shape=(768, 768)) for n in "eqkv")
        h = mg.tanh(x @ e)
        split = [mg.reshape(h @ w, (8, 1024, 12, 64)) for w in (q, k, v)]
        rows, columns, read = (mg.transpose(value, (0, 2, 1, 3)) for value in split)
        scores = mg.softmax(rows @ mg.transpose(columns, (0, 1, 3, 2)) * 0.125)
        loss = mg.mean((scores @ read) ** 2)
        f = mg.optimizer.Adam(1e-3).step(
            loss, [e, q, k, v], inputs=[x], outputs=[loss], precision="bfloat16", target=H200,
            skip=skip,
        )  # fmt: skip
        plans.append(f.plan)
        if not skip:
            record = f.report["shared_factors"]
            assert record.hits == {SHARED: 2, SUMMED: 1}
    joined, apart = plans
    assert len(joined.steps) < len(apart.steps) - 3
    assert sum(step.kernel == "gemm" for step in joined.steps) == 5  # of eleven
    assert moved(joined) < 0.97 * moved(apart)  # heads behind rows copy nothing in either


def test_sums_of_gradients_read_the_joined_array() -> None:
    """The gradients of biases read pieces of what the gradients of weights need in one array."""
    plans = []
    for skip in ((), ("shared_factors",)):
        x = mg.input("x", (8, 1024, 768))
        ws = [mg.var(f"w{i}", init=mg.init.zeros(), shape=(768, 768)) for i in range(4)]
        bs = [mg.var(f"b{i}", init=mg.init.zeros(), shape=(768,)) for i in range(3)]
        h = mg.tanh(x @ ws[3])
        q, k, v = (
            mg.transpose(mg.reshape(h @ w + b, (8, 1024, 12, 64)), (0, 2, 1, 3))
            for w, b in zip(ws, bs, strict=False)
        )
        y = mg.scaled_dot_product_attention(q, k, v, causal=True)
        f = mg.optimizer.Adam(1e-3).step(
            mg.mean(mg.square(y)), [*ws, *bs], inputs=[x], precision="bfloat16", target=H200,
            skip=skip,
        )  # fmt: skip
        plans.append(f.plan)
        if not skip:
            assert f.report["shared_factors"].hits == {SHARED: 2, SUMMED: 1}
    work = [sum(int(step.bytes) for step in plan.steps) for plan in plans]
    assert work[0] < 0.94 * work[1]


def test_gradients_that_are_added_in_place_count() -> None:
    """Products that add into their variables stay, and their factors are not in one array then."""
    hits = []
    for optimizer in (mg.optimizer.SGD(0.1), mg.optimizer.Adam(1e-3)):
        f = step(1024, 2048, "bfloat16", optimizer, target=H200)
        assert f.plan is not None
        hits.append(f.report["shared_factors"].hits)
    assert hits == [{}, {SHARED: 2, SUMMED: 1}]


@pytest.mark.usefixtures("small_products")
def test_sums_of_float16_may_be_out_of_its_range() -> None:
    x, y = mg.input("x", (2, 2)), mg.input("y", (2, 2))
    u, v = mg.input("u", (2, 2)), mg.input("v", (2, 2))
    program = [x, y, u, v], [mg.sqrt(x @ u + y @ v) @ (u / 150.0)]
    apart, _ = graphs(program, skip=("shared_factors",), precision="float16")
    assert [n.dtype.name for n in apart.nodes if n.op.name == "gemm"][:2] == ["float16"] * 2
    joined, record = graphs(program, precision="float16")
    assert record.hits == {SUMMED: 1}
    feeds = [np.full((2, 2), 150.0, np.float32) for _ in range(4)]
    np.testing.assert_array_equal(values(joined, feeds)[0], 600.0)


def test_few_rows_do_not_pay_for_copies() -> None:
    f = step(512, 768, "float32", mg.optimizer.SGD(0.1), target=H200)
    assert f.plan is not None
    assert not f.report["shared_factors"].hits
    assert all("MB copied" in r.reason for r in f.report["shared_factors"].refusals)


def test_small_products_stay_generated() -> None:
    f = step(16, 64, "float32", mg.optimizer.SGD(0.1), target=H200)
    assert f.plan is not None
    reasons = {r.reason for r in f.report["shared_factors"].refusals}
    assert reasons
    assert all("is generated" in reason for reason in reasons)


@pytest.mark.parametrize("rows", [16, 512, 4096])
def test_a_cpu_keeps_products_apart(rows: int) -> None:
    both = [
        step(rows, 64, "float32", mg.optimizer.SGD(0.1), device="cpu", skip=skip)
        for skip in ((), ("shared_factors",))
    ]
    assert str(both[0].plan) == str(both[1].plan)
    record = both[0].report["shared_factors"]
    assert not record.hits
    assert {r.reason for r in record.refusals} == {shared_factors.ON_CPU}
