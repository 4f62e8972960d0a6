"""Many bodies in one launch, many blocks, and a block a row: against the host and float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from table import assert_agrees

import magmagraph as mg
from magmagraph.runtime.cpu.kernel_args import bodies_of
from magmagraph.runtime.cuda.launching.calls import calls_of

pytestmark = pytest.mark.gpu

WIDTHS = (40, 64, 64, 50, 64, 64, 10)  # weights of five shapes, with and without whole vectors


def network(device: str) -> tuple[Any, list[Any]]:
    """Return a step by Adam of six layers, and its variables."""
    x = mg.var("x", shape=("batch", WIDTHS[0]))
    labels = mg.var("labels", shape=("batch",), dtype="int32")
    value, weights = x, []
    for layer, (before, after) in enumerate(itertools.pairwise(WIDTHS)):
        init = mg.init.glorot_uniform(seed=layer)
        weights.append(mg.var(f"w{layer}", init=init, shape=(before, after)))
        value = mg.tanh(value @ weights[-1])
    loss = mg.cross_entropy(value, labels)
    updates = mg.optimizer.Adam(0.01, weight_decay=0.01).updates(loss, weights)
    step = mg.function([x, labels], loss, updates=updates, device=device)
    return step, list(dict.fromkeys([*weights, *updates]))


def test_all_weights_are_renewed_by_one_launch(rng: np.random.Generator) -> None:
    feeds = rng.standard_normal((30, 40)).astype("f4"), rng.integers(0, 10, 30).astype("i4")
    found = {}
    for device in ("cpu", "cuda"):
        step, variables = network(device)
        losses = [float(step(*feeds)) for _ in range(6)]
        found[device] = [np.array(losses, "f4"), *(v.value for v in variables)]
    for ours, theirs in zip(found["cuda"], found["cpu"], strict=True):
        assert_agrees(ours, theirs, "reassoc", 10)
    (segment,) = step._last._before
    launches = [len(calls_of(launch)) for launch in segment.launches]
    bodies = [len(bodies_of(s)) for s in step.plan.steps if s.kernel == "fused"]
    assert sum(bodies) >= len(WIDTHS) - 1 and max(bodies) > 1  # one step for those of a structure
    assert set(launches) == {1} and len(launches) == len(step.plan.steps)


def test_steps_in_one_graph_move_the_table(rng: np.random.Generator) -> None:
    data = rng.standard_normal((120, 40)).astype("f4"), rng.integers(0, 10, 120).astype("i4")
    step, variables = network("cuda")
    held = [v.value for v in variables]
    losses = [step(*batch).get() for batch in mg.batches(*data, size=30, seed=1)]
    after = [v.value for v in variables]
    for v, value in zip(variables, held, strict=True):
        v.value = value
    found = step.run(mg.batches(*data, size=30, seed=1))
    assert found.get().tobytes() == np.stack(losses).tobytes()
    for v, value in zip(variables, after, strict=True):
        assert v.value.tobytes() == value.tobytes()


def test_elements_of_more_blocks_than_overlap(rng: np.random.Generator) -> None:
    x = mg.var("x", shape=("n",))
    f = mg.function([x], [mg.exp(x) * 2.0, mg.sum(mg.tanh(x))], device="cuda")
    for n in (1 << 22, (1 << 22) + 3):
        given = rng.standard_normal(n).astype("f4")
        for _ in range(3):
            made, total = f(given)
        assert_agrees(made.get(), 2 * np.exp(given.astype("f8")), "reassoc")
        assert_agrees(total.get(), np.tanh(given.astype("f8")).sum(), "reassoc", n**0.5)


@pytest.mark.parametrize(("rows", "columns"), [(3000, 4096), (2200, 8192), (70000, 512)])
def test_a_loss_of_many_rows(rows: int, columns: int, rng: np.random.Generator) -> None:
    x = mg.var("x", shape=(rows, columns))
    labels = mg.var("labels", shape=(rows,), dtype="int32")
    loss = mg.cross_entropy(x, labels)
    f = mg.function([x, labels], [loss, mg.grad(loss, x)], device="cuda")
    given = rng.standard_normal((rows, columns)).astype("f4")
    chosen = rng.integers(0, columns, rows).astype("i4")
    for _ in range(3):
        found, gradient = f(given, chosen)
    wide = given.astype("f8")
    part = np.exp(wide - wide.max(1, keepdims=True))
    total = part.sum(1, keepdims=True)
    log = wide.max(1) + np.log(total[:, 0]) - wide[np.arange(rows), chosen]
    assert_agrees(found.get(), log.mean(), "reassoc")
    part /= total
    part[np.arange(rows), chosen] -= 1
    assert_agrees(gradient.get() * np.float32(rows), part, "reassoc")
