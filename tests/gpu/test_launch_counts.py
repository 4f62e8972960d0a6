"""Launches as the driver counts them: a step of a plan is one node of the captured graph."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.runtime.cuda.launching.calls import KernelCall, calls_of, driver, driver_function
from magmagraph.runtime.cuda.launching.segments import Segment, captured, placed

pytestmark = pytest.mark.gpu

WORK = (0, 1, 2)  # CU_GRAPH_NODE_TYPE_KERNEL, _MEMCPY, _MEMSET


def nodes_of(graph: Any) -> int:
    """Return how many kernels, copies and fills a captured graph has, by the driver's own list."""
    every, kind = driver_function("cuGraphGetNodes"), driver_function("cuGraphNodeGetType")
    count = ctypes.c_size_t(0)
    driver().check_status(every(ctypes.c_void_p(graph.graph), None, ctypes.byref(count)))
    nodes = (ctypes.c_void_p * count.value)()
    driver().check_status(every(ctypes.c_void_p(graph.graph), nodes, ctypes.byref(count)))
    found = 0
    for node in nodes:
        value = ctypes.c_int(-1)
        driver().check_status(kind(ctypes.c_void_p(node), ctypes.byref(value)))
        found += value.value in WORK
    return found


def segment_of(f: Any, feeds: list[np.ndarray]) -> Segment:
    """Call a function until it is captured, and return what is."""
    for _ in range(3):
        f(*feeds)
    (part,) = (*f._last._before, *f._last._after)
    assert isinstance(part, Segment)
    return part


def counted(f: Any, feeds: list[np.ndarray]) -> tuple[int, int, int]:
    """Return the steps of a plan, its graph's nodes, and those that libraries add to their one."""
    segment = segment_of(f, feeds)
    assert segment.graph is not None
    more = 0
    with segment.device:
        for launch, touched in zip(segment.launches, segment.touched, strict=True):
            first, *others = calls_of(launch)
            if others or not isinstance(first, KernelCall):
                more += nodes_of(captured(segment.device, [launch], [touched])) - 1
    return len(f.plan.steps), nodes_of(segment.graph), more


def mlp(sizes: tuple[int, ...], optimizer: Any, batch: int, **options: Any) -> Any:
    x = mg.var("x", shape=("batch", sizes[0]))
    labels = mg.var("labels", shape=("batch",), dtype="int32")
    value, variables = x, []
    for layer in range(len(sizes) - 1):
        shape = sizes[layer : layer + 2]
        w = mg.var(f"w{layer}", init=mg.init.glorot_uniform(seed=layer), shape=shape)
        b = mg.var(f"b{layer}", init=mg.init.zeros(), shape=shape[1:])
        value = (mg.sigmoid(value) if layer else value) @ w + b
        variables += [w, b]
    loss = mg.cross_entropy(value, labels)
    updates = optimizer.updates(loss, variables)
    f = mg.function([x, labels], loss, updates=updates, device="cuda", **options)
    return f, [np.zeros((batch, sizes[0]), "f4"), np.zeros(batch, "i4")]


def tensors() -> Any:
    """Return a step of an optimizer with 200 tensors of a few shapes."""
    held = [mg.var(f"p{i}", init=np.ones((7 + i % 5, 5), "f4")) for i in range(200)]
    loss = mg.mean(held[0] * held[0])
    for one in held[1:]:
        loss = loss + mg.mean(one * one)
    return mg.function([], loss, updates=mg.optimizer.Adam(1e-3).updates(loss, held),
                       device="cuda"), []  # fmt: skip


def convolutional() -> Any:
    x = mg.var("x", shape=("n", 8, 32, 32))
    labels = mg.var("labels", shape=("n",), dtype="int32")
    v = mg.var("v", shape=(16, 8, 3, 3), init=mg.init.he_normal(seed=0))
    u = mg.var("u", shape=(32, 16, 3, 3), init=mg.init.he_normal(seed=1))
    w = mg.var("w", shape=(32 * 8 * 8, 10), init=mg.init.glorot_uniform(seed=2))
    value = mg.max_pool2d(mg.relu(mg.conv2d(x, v, padding="same")), 2)
    value = mg.max_pool2d(mg.relu(mg.conv2d(value, u, padding="same")), 2)
    loss = mg.cross_entropy(mg.reshape(value, (-1, 32 * 8 * 8)) @ w, labels)
    updates = mg.optimizer.SGD(0.1).updates(loss, [v, u, w])
    f = mg.function([x, labels], loss, updates=updates, device="cuda")
    return f, [np.ones((16, 8, 32, 32), "f4"), np.zeros(16, "i4")]


def transformer() -> Any:
    width, heads = 128, 4
    x = mg.var("x", shape=("n", 64, width))
    shapes = [*[(width, width)] * 4, (width, 4 * width), (4 * width, width)]
    ws = [
        mg.var(f"w{i}", shape=shape, init=mg.init.glorot_uniform(seed=i))
        for i, shape in enumerate(shapes)
    ]

    def split(value: Any) -> Any:
        return mg.transpose(mg.reshape(value, (-1, 64, heads, width // heads)), (0, 2, 1, 3))

    normed = mg.layer_norm(x)
    q, k, v = (split(normed @ w) for w in ws[:3])
    scores = mg.softmax(q @ mg.transpose(k, (0, 1, 3, 2)) * (width // heads) ** -0.5)
    joined = mg.reshape(mg.transpose(scores @ v, (0, 2, 1, 3)), (-1, 64, width))
    y = x + joined @ ws[3]
    z = y + mg.gelu(mg.layer_norm(y) @ ws[4], approximate=True) @ ws[5]
    loss = mg.mean(z * z)
    f = mg.function([x], loss, updates=mg.optimizer.AdamW(1e-3).updates(loss, ws), device="cuda")
    return f, [np.ones((8, 64, width), "f4")]


@pytest.mark.parametrize("optimizer", [mg.optimizer.SGD(0.05, weight_decay=0.001),
                                       mg.optimizer.Adam(1e-3)], ids=["sgd", "adam"])  # fmt: skip
@pytest.mark.parametrize("sizes", [(784, 528, 10), (784, 528, 528, 10)])
def test_a_step_of_a_network_has_as_many_nodes_as_steps(
    sizes: tuple[int, ...], optimizer: Any
) -> None:
    steps, nodes, more = counted(*mlp(sizes, optimizer, 100))
    assert (nodes, more) == (steps, 0)


def test_an_optimizer_of_many_tensors_has_as_many_nodes_as_steps() -> None:
    steps, nodes, more = counted(*tensors())
    assert (nodes, more) == (steps, 0)


@pytest.mark.parametrize("make", [convolutional, transformer])
def test_only_libraries_launch_more_than_a_kernel_a_step(make: Any) -> None:
    steps, nodes, more = counted(*make())
    assert nodes == steps + more


@pytest.mark.parametrize("options", [{"precision": "bfloat16"}, {"precision": "tf32"}])
def test_products_of_libraries_with_epilogues(options: dict[str, Any]) -> None:
    f, feeds = mlp((784, 4096, 4096, 10), mg.optimizer.SGD(0.05), 4096, **options)
    steps, nodes, more = counted(f, feeds)
    assert nodes == steps + more


def test_a_loop_has_the_nodes_of_its_iterations() -> None:
    x = mg.var("x", shape=(12, 8, 64))
    w = mg.var("w", init=mg.init.orthogonal(seed=0), shape=(64, 64))
    _, rows = mg.scan(lambda c, row: (mg.tanh(c @ w + row),) * 2, mg.zeros_like(x[0]), x)
    f = mg.function([x], [mg.mean(rows), mg.sum(rows, axis=0)], device="cuda")
    segment = segment_of(f, [np.ones((12, 8, 64), "f4")])
    bodies = [held for held in f._last.memory.keep if hasattr(held, "plan")]
    loops = [step for step in f.plan.steps if step.node.op.name == "loop"]
    assert len(bodies) == len(loops) == 1
    others = len(f.plan.steps) - 1
    inside = nodes_of(segment.graph) - others
    assert inside >= 12 * len(bodies[0].plan.steps)
    copies = sum(
        not isinstance(call, KernelCall) for launch in segment.launches for call in calls_of(launch)
    )
    assert inside <= 12 * len(bodies[0].plan.steps) + copies


@pytest.mark.parametrize("make", [
    lambda: mlp((784, 528, 528, 10), mg.optimizer.Adam(1e-3), 100), convolutional, transformer,
])  # fmt: skip
def test_steps_are_placed_as_their_launches_would_be(make: Any) -> None:
    """The pass that places steps goes by what launches cost; these have grids of their own."""
    f, feeds = make()
    segment = segment_of(f, feeds)
    placement = segment.placement()
    assert placement is not None
    launches, touched, numbers = segment.units()
    wanted = placed(segment.device, launches, touched).chosen
    streams = dict(zip(segment.numbers, placement.chosen, strict=True))
    assert [streams[number] for number in numbers] == wanted
    assert f._last.streams() == [step.stream for step in f.plan.steps]


def test_the_plan_of_the_card_is_that_of_a_made_up_one(monkeypatch: Any) -> None:
    f, feeds = mlp((784, 528, 10), mg.optimizer.SGD(0.05), 100)
    f(*feeds)
    device = f._last.device
    if (int(device.architecture), device.multiprocessors) != (90, 132):
        pytest.skip("the card is no H100 or H200")
    g, _ = mlp((784, 528, 10), mg.optimizer.SGD(0.05), 100)
    made_up = mg.function(g.inputs, g._user_outputs[0], g._user_updates,
                          target=mg.Target.made_up("h200"))  # fmt: skip
    assert str(made_up.specialize((100, 784), (100,)).plan) == str(f.plan)
