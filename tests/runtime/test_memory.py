"""Memory of eleven named graphs: what is planned against the least that the order needs.

``f.plan.largest_live`` is the largest set of arena slots alive in one step: no layout takes less.
``f.memory`` is compared with the arrays and the block that the runtime holds.
"""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

import magmagraph as mg

OBJECTS = 16 << 10  # bytes of Python's own objects in a call
N = 64  # rows of every graph
Graph = tuple[list[mg.Node], list[mg.Node], dict[mg.Node, mg.Node]]


def weight(name: str, *shape: int) -> mg.Node:
    """Return a variable of small random numbers."""
    return mg.var(name, shape=shape, init=mg.init.glorot_uniform(seed=len(name)))


def chain() -> Graph:
    """Products in a row, with an activation after each."""
    x = mg.var("x", shape=("batch", 96))
    y = x
    for i in range(12):
        y = mg.tanh(y @ weight(f"W{i}", 96, 96))
    return [x], [y], {}


def diamond() -> Graph:
    """One value read by four branches that join again."""
    x = mg.var("x", shape=("batch", 96))
    y = mg.tanh(x @ weight("W", 96, 96))
    branches = [mg.relu(y @ weight(f"B{i}", 96, 48 * (i + 1))) for i in range(4)]
    return [x], [mg.concatenate(branches, axis=1) @ weight("V", 480, 10)], {}


def mlp_step() -> Graph:
    """A training step of a network with three hidden layers."""
    x, labels = mg.var("x", shape=("batch", 100)), mg.var("k", shape=("batch",), dtype="int32")
    sizes = [100, 80, 60, 40, 10]
    parameters, y = [], x
    for i, (m, n) in enumerate(itertools.pairwise(sizes)):
        W, b = weight(f"W{i}", m, n), mg.var(f"b{i}", init=np.zeros(n, np.float32))
        y = y @ W + b
        y = mg.sigmoid(y) if n != 10 else y
        parameters += [W, b]
    loss = mg.cross_entropy(y, labels)
    return [x, labels], [loss], mg.optimizer.SGD(0.1, momentum=0.9).updates(loss, parameters)


def residual() -> Graph:
    """A residual network and its gradients."""
    x = mg.var("x", shape=("batch", 64))
    weights, y = [], x
    for i in range(6):
        A, B = weight(f"A{i}", 64, 128), weight(f"B{i}", 128, 64)
        y = y + mg.relu(y @ A) @ B
        weights += [A, B]
    loss = mg.mean(y**2)
    return [x], [loss, *mg.grad(loss, weights)], {}


def attention() -> Graph:
    """Four heads of attention."""
    x = mg.var("x", shape=("batch", 64))

    def heads(name: str) -> mg.Node:
        return mg.transpose(mg.reshape(x @ weight(name, 64, 64), (-1, 4, 16)), (1, 0, 2))

    query, key, value = heads("Q"), heads("KK"), heads("VVV")
    scores = mg.softmax(query @ mg.swapaxes(key, 1, 2) / 4.0)
    joined = mg.reshape(mg.transpose(scores @ value, (1, 0, 2)), (-1, 64))
    return [x], [joined @ weight("O", 64, 64)], {}


def layer_norm_block() -> Graph:
    """A normalized feed-forward block with its gradients."""
    x = mg.var("x", shape=("batch", 64))
    scale, offset = (mg.var(n, init=np.full(64, v, np.float32)) for n, v in (("s", 1), ("o", 0)))
    W, V = weight("W", 64, 256), weight("V", 256, 64)
    y = x + mg.gelu(mg.layer_norm(x, scale, offset) @ W) @ V
    loss = mg.sum(mg.sin(y))
    return [x], [loss, *mg.grad(loss, [W, V, scale, offset])], {}


def softmax_regression() -> Graph:
    """One layer, its loss and its update."""
    x, labels = mg.var("x", shape=("batch", 784)), mg.var("k", shape=("batch",), dtype="int32")
    W, b = weight("W", 784, 10), mg.var("b", init=np.zeros(10, np.float32))
    loss = mg.cross_entropy(x @ W + b, labels)
    return [x, labels], [loss], mg.optimizer.SGD(0.1).updates(loss, [W, b])


def matmul_tree() -> Graph:
    """Products of products: sixteen leaves, joined pair by pair."""
    x = mg.var("x", shape=("batch", 32))
    level = [mg.tanh(x @ weight(f"L{i}", 32, 32)) for i in range(16)]
    level = [a.T @ b for a, b in zip(level[::2], level[1::2], strict=True)]
    while len(level) > 1:
        level = [a @ b for a, b in zip(level[::2], level[1::2], strict=True)]
    return [x], level, {}


def u_shape() -> Graph:
    """Down and up again, with skips across."""
    x = mg.var("x", shape=("batch", 128))
    skips, y = [], x
    for width in (64, 32, 16):
        skips.append(y)
        y = mg.relu(y @ weight(f"down{width}", y.shape[1], width))
    for skip in reversed(skips):
        wide = mg.relu(y @ weight(f"up{skip.shape[1]}", y.shape[1], skip.shape[1]))
        y = mg.concatenate([wide, skip], axis=1)
    return [x], [mg.mean(y), mg.grad(mg.mean(y**2), x)], {}


def batch_norm_net() -> Graph:
    """Two layers with batch norm, and their gradients."""
    x = mg.var("x", shape=("batch", 32))
    W, V = weight("W", 32, 128), weight("V", 128, 64)
    y = x
    for matrix in (W, V):
        y = y @ matrix
        mean, spread = mg.mean(y, axis=0), mg.var(y, axis=0)
        y = mg.relu((y - mean) * mg.rsqrt(spread + 1e-5))
    loss = mg.mean(y**3)
    return [x], [loss, *mg.grad(loss, [W, V])], {}


def gathered() -> Graph:
    """Rows taken from a table, a border and a slice, with their gradients: steps in NumPy."""
    x, rows = mg.var("x", shape=("batch", 512)), mg.var("k", shape=("batch",), dtype="int32")
    table = weight("T", 200, 512)
    y = mg.tanh(mg.take(table, rows, axis=0) * x)
    y = mg.tanh(mg.pad(y, ((0, 0), (3, 5)))[:, 1::2])
    loss = mg.sum(y**2)
    return [x, rows], [loss], mg.optimizer.SGD(0.1).updates(loss, [table])


GRAPHS: list[Callable[[], Graph]] = [
    chain, diamond, mlp_step, residual, attention, layer_norm_block, softmax_regression,
    matmul_tree, u_shape, batch_norm_net, gathered,
]


def compiled(make: Callable[[], Graph]) -> tuple[mg.Function, list[np.ndarray]]:
    """Return the function of a graph and feeds of N rows."""
    inputs, outputs, updates = make()
    rng = np.random.default_rng(0)
    feeds = [
        rng.normal(size=(N, *node.shape[1:])).astype(node.dtype)
        if node.dtype == np.float32 else rng.integers(0, 10, N).astype(node.dtype)
        for node in inputs
    ]
    return mg.function(inputs, outputs, updates), feeds


@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_the_arena_is_near_the_least(make: Callable[[], Graph]) -> None:
    """The planned block is within 10 % of the largest live set."""
    f, feeds = compiled(make)
    f(*feeds)
    assert f.plan.largest_live <= f.plan.arena <= 1.1 * f.plan.largest_live


@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_memory_is_what_is_taken(make: Callable[[], Graph]) -> None:
    """f.memory adds up the arrays of the caller, the variables, and the runtime's own block."""
    f, feeds = compiled(make)
    results = f(*feeds)
    memory = f.memory
    assert memory.feeds == sum(feed.nbytes for feed in feeds)
    assert memory.results == sum(np.asarray(result).nbytes for result in results)
    held = {node for node in f.graph.nodes if isinstance(node, mg.Variable)}
    held |= {variable for variable, _ in f.graph.updates}
    assert memory.variables == sum(node.value.nbytes for node in held)
    assert memory.arena == f.plan.arena == f._last._arena.nbytes
    assert 0 <= memory.workspaces
    assert memory.total == (
        memory.arena + memory.feeds + memory.results + memory.variables + memory.constants
    )


@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_a_call_takes_no_more(make: Callable[[], Graph]) -> None:
    """Beside the planned block a call allocates its results and next to nothing else."""
    f, feeds = compiled(make)
    for _ in range(3):
        results = f(*feeds)
    size = sum(np.asarray(result).nbytes for result in results)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        results = f(*feeds)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak <= size + OBJECTS
