"""Plans of a GPU whose steps are its launches: made, run on the host and bound, without a GPU."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from paper_device import bound_on_paper, costs, launched
from plan_interpreter import Interpreter, random_order
from table import assert_agrees, magnitude

import magmagraph as mg
from magmagraph.ir.plan import Place, Plan, Role
from magmagraph.runtime.families import FAMILIES
from magmagraph.text.reading import load
from magmagraph.text.writing import dump

H200 = mg.Target.made_up("h200")
Made = tuple[list[Any], Any, dict[Any, Any]]  # inputs, outputs, updates


def network(
    sizes: tuple[int, ...], optimizer: Any = None, act: Callable[..., Any] = mg.sigmoid
) -> Made:
    """Return a training step of layers with an activation between them, and a loss of classes."""
    x = mg.input("x", ("batch", sizes[0]))
    labels = mg.input("labels", ("batch",), dtype="int32")
    value, variables = x, []
    for layer, (inputs, width) in enumerate(itertools.pairwise(sizes)):
        w = mg.var(f"w{layer}", init=mg.init.glorot_uniform(seed=layer), shape=(inputs, width))
        b = mg.var(f"b{layer}", init=mg.init.zeros(), shape=(width,))
        value = (act(value) if layer else value) @ w + b
        variables += [w, b]
    loss = mg.cross_entropy(value, labels)
    optimizer = optimizer or mg.optimizer.SGD(0.05, weight_decay=0.001)
    return [x, labels], loss, optimizer.updates(loss, variables)


def convolutional() -> Made:
    """Return a step of two convolutions, with pooling behind each."""
    x = mg.input("x", ("batch", 3, 8, 8))
    labels = mg.input("labels", ("batch",), dtype="int32")
    v = mg.var("v", shape=(4, 3, 3, 3), init=mg.init.he_normal(seed=0))
    w = mg.var("w", shape=(64, 10), init=mg.init.glorot_uniform(seed=1))
    value = mg.max_pool2d(mg.relu(mg.conv2d(x, v, padding="same")), 2)
    loss = mg.cross_entropy(mg.reshape(value, (-1, 64)) @ w, labels)
    return [x, labels], loss, mg.optimizer.SGD(0.1).updates(loss, [v, w])


def normalized() -> Made:
    """Return sums along both axes, some of which are ended by launches of their own."""
    x = mg.input("x", ("batch", 400))
    labels = mg.input("labels", ("batch",), dtype="int32")
    g = mg.var("g", init=mg.init.ones(), shape=(400,))
    y = mg.layer_norm(x, g, mg.constant(np.zeros(400, np.float32)))
    loss = mg.mean(y * y * x) + mg.mean(mg.cast(labels, "float32"))
    outputs = [loss, mg.sum(x, axis=0), mg.max(x), mg.sum(y * y, axis=1)]
    return [x, labels], outputs, mg.optimizer.SGD(0.1).updates(loss, [g])


PROGRAMS: dict[str, Callable[[], Made]] = {
    "one layer": lambda: network((300, 264, 10)),
    "three layers": lambda: network((300, 200, 200, 10)),
    "adam": lambda: network((300, 200, 200, 10), mg.optimizer.Adam(1e-2, eps=1.0)),
    "relu": lambda: network((200, 120, 100, 3), act=mg.relu),
    "convolutions": convolutional,
    "sums": normalized,
}
BATCH = 37


def feeds_of(inputs: list[Any], rng: np.random.Generator) -> list[np.ndarray]:
    shapes = [tuple(BATCH if type(e) is not int else e for e in node.shape) for node in inputs]
    return [
        rng.integers(0, 3, shape).astype("i4") if node.dtype == np.int32
        else rng.standard_normal(shape).astype("f4")
        for node, shape in zip(inputs, shapes, strict=True)
    ]  # fmt: skip


def planned(made: Made, target: Any = H200, **options: Any) -> tuple[Any, Plan]:
    """Return a function for a made-up device, and its plan for some sizes."""
    inputs, outputs, updates = made
    f = mg.function(inputs, outputs, updates=updates, target=target, **options)
    shapes = [tuple(BATCH if type(e) is not int else e for e in n.shape) for n in inputs]
    return f, f.specialize(*shapes).plan


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_computes_what_the_cpu_does_in_any_order_of_its_streams(
    name: str, rng: np.random.Generator
) -> None:
    made = PROGRAMS[name]()
    inputs, outputs, updates = made
    # In turns, memory is used again, and it is not.
    spread = 0 if list(PROGRAMS).index(name) % 2 else H200.spread
    _, plan = planned(made, replace(H200, spread=spread))
    feeds = feeds_of(inputs, rng)
    orders = [None, *(random_order(plan, rng) for _ in range(3))]
    runs = []
    for order in orders:
        memory = Interpreter(plan, feeds)
        runs.append((memory.run(order), memory.variables()))
    for results, variables in runs[1:]:
        for one, other in zip(results, runs[0][0], strict=True):
            assert one.tobytes() == other.tobytes()
        for variable, value in variables.items():
            assert value.tobytes() == runs[0][1][variable].tobytes(), variable
    f = mg.function(inputs, outputs, updates=updates, device="cpu")
    wanted = f(*feeds)
    for one, other in zip(
        runs[0][0], wanted if isinstance(wanted, list) else [wanted], strict=True
    ):
        assert_agrees(one, other, "reassoc", magnitude(other))
    for variable in updates:
        assert_agrees(
            runs[0][1][variable.name], variable.value, "reassoc", magnitude(variable.value)
        )


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_step_is_one_launch(name: str) -> None:
    f, plan = planned(PROGRAMS[name]())
    bound = bound_on_paper(f._compiled.plan, plan, f._target())
    found = launched(bound)
    assert [number for number, *_ in found] == list(range(len(plan.steps)))
    # Placed by the pass as by the grids of the launches themselves.
    assert [stream for *_, stream in found] == [step.stream for step in plan.steps]
    assert bound.streams() == [step.stream for step in bound.plan.steps]
    assert costs(bound) == {number: step.cost for number, step in enumerate(plan.steps)}


def test_a_step_of_the_seed_is_ten_launches() -> None:
    f, plan = planned(network((784, 528, 10)))
    assert [step.kernel for step in plan.steps] == [
        "gemm_fused", "fused", "gemm_fused", *["fused_end"] * 5, "gemm", "gemm",
    ]  # fmt: skip
    inside = [slot for slot in plan.slots if slot.place is Place.INSIDE]
    assert len(inside) == 3 and all(slot.offset is None for slot in inside)
    merged = plan.steps[2]
    assert [part.role for part in merged.parts] == [Role.PRODUCT, Role.REGION] * 2
    report = f.report
    assert report["fuse_products"].hits == {
        "compute a region on a product's tiles": 2, "compute a product in the kernel of a loss": 1,
    }  # fmt: skip
    assert (report["fuse_products"].before, report["launches"].after) == (8, 10)
    assert report["stream"].hits
    assert "8 -> 6 steps" in str(report)


def test_readers_are_moved_behind_their_products_and_the_commit_point_before_them() -> None:
    f, plan = planned(network((300, 200, 200, 10)))
    symbolic = f._compiled.plan

    def nodes(steps: Any) -> set[Any]:
        return {node for step in steps for node in step.computed}

    assert nodes(plan.steps) == nodes(symbolic.steps)
    # The loss writes the bias: its product, which was before the commit point, is behind it.
    assert len(nodes(plan.steps[: plan.commit])) < len(nodes(symbolic.steps[: symbolic.commit]))
    for slot in plan.slots:
        if slot.place is Place.ARENA:
            assert slot.offset is not None and slot.offset + int(slot.size) <= plan.arena


def test_products_stay_alone_where_the_pass_is_left_out() -> None:
    f, plan = planned(network((784, 528, 10)), skip=("fuse_products",))
    assert f.report["fuse_products"].skipped
    assert sum(step.kernel == "gemm" for step in plan.steps) == 5
    assert not any(step.role is Role.EPILOGUE for step in plan.steps)


def test_refusals_have_reasons() -> None:
    x, y = mg.input("x", (100, 300)), mg.input("y", (100, 300))
    w = mg.var("w", init=mg.init.zeros(), shape=(300, 64))
    twice = x @ w
    outputs = [mg.tanh(twice), mg.sum(twice, axis=1), y @ w]
    f, _ = planned(([x, y], outputs, {}))
    reasons = {refusal.reason for refusal in f.report["fuse_products"].refusals}
    assert "its result is an output, or a variable" in reasons
    f, _ = planned(([x], mg.tanh(x @ w), {}), precision="bfloat16")
    reasons = {refusal.reason for refusal in f.report["fuse_products"].refusals}
    assert "the region that reads it is no bias, relu or gelu" in reasons


def test_a_library_computes_a_bias_where_it_is_faster() -> None:
    x = mg.input("x", (700, 1024))
    w = mg.var("w", init=mg.init.zeros(), shape=(1024, 2048))
    b = mg.var("b", init=mg.init.zeros(), shape=(2048,))
    made: Made = ([x], mg.relu(x @ w + b), {})
    _, plan = planned(made, precision="tf32")
    assert [step.kernel for step in plan.steps] == ["gemm_epilogue"]

    def slower(key: str, candidates: Any) -> str:
        assert list(candidates) == ["together", "apart"]
        return "apart"

    f, plan = planned(made, replace(H200, choose=slower), precision="tf32")
    assert [step.kernel for step in plan.steps] == ["gemm", "fused"]
    (refusal,) = [r for r in f.report["fuse_products"].refusals if "library's" in r.rule]
    assert refusal.reason == "a launch of its own is as fast"


def test_another_device_has_another_plan() -> None:
    made = network((784, 528, 528, 10))
    few = [step.cost for step in planned(made, mg.Target.made_up("b200"))[1].steps]
    assert few != [step.cost for step in planned(made)[1].steps]
    with pytest.raises(mg.DeviceError, match="no device 'h300' is known"):
        mg.Target.made_up("h300")


def test_a_plan_for_a_device_that_is_not_here_is_not_run() -> None:
    x = mg.input("x", (4,))
    f = mg.function([x], mg.exp(x), target=H200)
    assert "fused" in str(f.plan) and "__global__" in f.source(0)
    assert f.memory.results == 16
    with pytest.raises(mg.DeviceError, match="planned for h200, a made-up target"):
        f(np.zeros(4, np.float32))
    with pytest.raises(mg.PlanError, match="made-up target, cannot be saved"):
        f.save("nowhere.mg")
    with pytest.raises(mg.ConfigError, match="device='cpu' and target= are given"):
        mg.function([x], x, target=H200, device="cpu")
    with pytest.raises(mg.ConfigError, match="target='h200'"):
        mg.function([x], x, target="h200")


def test_plans_of_the_cpu_have_no_launches() -> None:
    inputs, outputs, updates = network((300, 64, 10))
    f = mg.function(inputs, outputs, updates=updates, device="cpu")
    f.specialize((BATCH, 300), (BATCH,))
    assert all(step.stream is None and not step.parts for step in f.plan.steps)
    assert "stream" not in [record.name for record in f.report]


def test_what_looks_at_plans_knows_parts_of_launches() -> None:
    inputs, outputs, updates = network((300, 264, 10), mg.optimizer.Adam(1e-3))
    f, plan = planned((inputs, outputs, updates))
    text = dump(plan)
    assert "gemm_fused -> " in text and "\n    gemm = gemm(" in text
    assert re.search(r"fused_end -> .*, part 1$", text, re.MULTILINE)
    assert re.search(r"stream 1, after \d", text)
    with pytest.raises(mg.PlanError, match="a launch of several steps is not read back"):
        load(text, families=FAMILIES)
    numbers = {number for step in plan.steps for number in step.waits}
    assert numbers and all(number < len(plan.steps) for number in numbers)
    product = next(node for node in f.source_graph.nodes if node.op.name == "matmul")
    said = f.explain(product)
    assert [(use.family, use.place) for use in said.kernels] == [("gemm_fused", "inside")]
    assert "gemm_fused" in str(said)
    for variable, value in f.source_graph.updates:
        owners = [plan.slots[use.slot].owner for use in f.explain(value).kernels]
        assert variable.attrs["state"] in owners or variable.name == "step"  # which is copied
    assert "inside" not in mg.show(plan).dot() and "k3" in mg.show(plan).dot()
    assert mg.show(f).html()
    for number, step in enumerate(plan.steps):
        if step.role is Role.EPILOGUE:
            assert "__global__" in f.source(number)


def test_plans_of_launches_without_parts_are_read_back() -> None:
    x = mg.input("x", (100, 300))
    w, v = (mg.var(n, init=mg.init.zeros(), shape=(300, 64)) for n in "wv")
    _, plan = planned(([x], [mg.sum(x @ w, axis=1) * mg.sum(x @ v, axis=1), mg.exp(x)], {}))
    again = load(dump(plan), families=FAMILIES)
    assert dump(again) == dump(plan)
    assert [step.stream for step in again.steps] == [step.stream for step in plan.steps]
    assert any(step.stream for step in again.steps)


def test_iterations_of_a_loop_are_placed_when_they_are_captured() -> None:
    x = mg.input("x", (12, 8, 32))
    w = mg.var("w", init=mg.init.zeros(), shape=(32, 32))
    _, ys = mg.scan(lambda c, row: (mg.tanh(c @ w + row),) * 2, mg.zeros_like(x[0]), x)
    f, plan = planned(([x], mg.mean(ys), {}))
    assert all(step.stream is None for step in plan.steps)
    (refusal,) = f.report["stream"].refusals
    assert refusal.reason.endswith("are placed when its launches are captured")
