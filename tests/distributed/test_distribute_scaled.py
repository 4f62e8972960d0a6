"""float16 on ranks: losses are scaled, and calls are skipped, as in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.distributed import (
    DataParallel,
    Hybrid,
    Mesh,
    PipelineParallel,
    TensorParallel,
)
from magmagraph.dtypes import canonical, tolerance

ROWS = 12
TOO_LARGE, LARGE = 2.0**30, 2.0**10  # scales: float16 has no number for the first
TINY = 2.0**-9  # of what is fed: gradients are below what float16 has, unless they are scaled


def job(
    rows: np.ndarray, weights: list[np.ndarray], strategy: Any, calls: int
) -> tuple[list[Any], list[np.ndarray]]:
    x = mg.input("x", ("batch", rows.shape[-1]))
    held = [mg.var(f"w{n}", init=value) for n, value in enumerate(weights)]
    out = mg.tanh(x @ held[0]) @ held[1]
    loss = mg.mean(mg.square(out))
    optimizer = mg.optimizer.SGD(0.5, momentum=0.9, accumulate=calls)
    step = optimizer.step(
        loss, held, [x], [loss], device="cpu", precision="float16", distribute=strategy
    )
    place, parts = (0, 1) if strategy is None else strategy.shard()
    seen: list[Any] = []
    for number, feed in enumerate(rows):
        scale = {3: TOO_LARGE, 5: LARGE}.get(number)
        if scale is not None:
            step.loss_scale.scale.value = np.float32(scale)
        step(feed[place * ROWS // parts : (place + 1) * ROWS // parts])
        seen.append([float(step.loss_scale.scale.value), int(step.loss_scale.skipped.value)])
        if calls > 1:
            seen[-1].append(int(optimizer.state["calls"].value))
    return seen, [variable.value for variable in held]


STRATEGIES: dict[str, Callable[[], Any]] = {
    "one message": DataParallel,
    "a message each": lambda: DataParallel(bucket_bytes=0),
    "ring": lambda: DataParallel(algorithm="ring"),
    "server": lambda: DataParallel(algorithm="parameter_server"),
    "micro-batches": lambda: DataParallel(accumulate=2),
    "in parts": lambda: DataParallel(shard_optimizer=True),
    "in parts, a message each": lambda: DataParallel(shard_optimizer=True, bucket_bytes=0),
    "in parts, micro-batches": lambda: DataParallel(shard_optimizer=True, accumulate=3),
    "matrices": lambda: TensorParallel(least=1),
    "messages of float16": lambda: DataParallel(compression="float16"),
    "messages of bfloat16": lambda: DataParallel(compression="bfloat16"),
    "float16 by rings": lambda: DataParallel(algorithm="ring", compression="float16"),
    "float16, micro-batches": lambda: DataParallel(accumulate=2, compression="float16"),
    "layers": lambda: PipelineParallel(3),
    "layers, all forward first": lambda: PipelineParallel(2, "gpipe"),
}


@pytest.mark.parametrize("calls", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", list(STRATEGIES))
def test_ranks_scale_and_skip_as_one_process(
    rng: np.random.Generator, name: str, calls: int
) -> None:
    rows = rng.standard_normal((8, ROWS, 16)).astype(np.float32)
    weights = [0.4 * rng.standard_normal((16, 16)).astype(np.float32) for _ in range(2)]
    seen, values = job(rows, weights, None, calls)
    assert [skipped for _, skipped, *_ in seen] == [0, 0, 0, 1, 2, 2, 2, 2]
    limit = tolerance(canonical("float16"), "stable")
    for found, held in ranks.threads(2, lambda: job(rows, weights, STRATEGIES[name](), calls)):
        assert found == seen
        for one, other in zip(held, values, strict=True):
            np.testing.assert_allclose(one, other, limit.relative, limit.absolute)


HYBRIDS: dict[str, tuple[Mesh, Callable[[], Any]]] = {
    "rows and layers": (
        Mesh(data=2, stage=2), lambda: Hybrid(DataParallel(), PipelineParallel(2))
    ),
    "rows in float16 and layers": (
        Mesh(data=2, stage=2),
        lambda: Hybrid(DataParallel(compression="float16"), PipelineParallel(2)),
    ),
    "rows by rings and matrices": (
        Mesh(data=2, tensor=2),
        lambda: Hybrid(DataParallel(algorithm="ring"), TensorParallel(least=1)),
    ),
    "matrices and layers": (
        Mesh(tensor=2, stage=2), lambda: Hybrid(TensorParallel(least=1), PipelineParallel(2))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(HYBRIDS))
def test_several_strategies_scale_and_skip_as_one_process(
    rng: np.random.Generator, name: str
) -> None:
    rows = rng.standard_normal((8, ROWS, 16)).astype(np.float32)
    weights = [0.4 * rng.standard_normal((16, 16)).astype(np.float32) for _ in range(2)]
    seen, values = job(rows, weights, None, 1)
    limit = tolerance(canonical("float16"), "stable")
    mesh, make = HYBRIDS[name]
    made = ranks.threads(4, lambda: job(rows, weights, make(), 1), mesh=mesh)
    for found, held in made:
        assert found == seen
        for one, other in zip(held, values, strict=True):
            np.testing.assert_allclose(one, other, limit.relative, limit.absolute)


LINEAR: dict[str, Callable[[], Any]] = {
    "columns of a matrix": lambda: TensorParallel(least=1),
    "a layer": lambda: PipelineParallel(2),
}


@pytest.mark.parametrize("name", list(LINEAR))
def test_gradients_of_one_rank_that_are_not_finite_are_skipped_by_all(
    rng: np.random.Generator, name: str
) -> None:
    """The first layer's last column alone has a gradient that float16 does not hold."""
    first, second = (0.1 * rng.standard_normal((16, 16)).astype(np.float32) for _ in range(2))
    second[-1] *= 1e5
    rows = rng.standard_normal((ROWS, 16)).astype(np.float32)

    def train(strategy: Any) -> tuple[list[Any], list[np.ndarray]]:
        x = mg.input("x", ("batch", 16))
        held = [mg.var("first", init=first), mg.var("second", init=second)]
        loss = mg.sum(2.0**-10 * (x @ held[0]) @ held[1])
        step = mg.optimizer.SGD(2.0**-10).step(
            loss, held, [x], [loss], device="cpu", precision="float16", distribute=strategy
        )
        step.loss_scale.scale.value = np.float32(2.0**10)
        seen = []
        for _ in range(3):
            step(rows)
            state = step.loss_scale
            seen.append([float(state.scale.value), int(state.skipped.value)])
        return seen, [variable.value for variable in held]

    seen, values = train(None)
    assert seen[-1] == [2.0**7, 3]
    for found, held in ranks.threads(2, lambda: train(LINEAR[name]())):
        assert found == seen
        for one, other in zip(held, values, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["layers", "messages of float16"])
def test_a_derivative_of_a_gradient_leaves_all_ranks_unscaled(
    rng: np.random.Generator, name: str
) -> None:
    """A stage that divided where another one had not multiplied would not learn."""
    rows = rng.standard_normal((3, ROWS, 16)).astype(np.float32)
    weights = [0.4 * rng.standard_normal((16, 16)).astype(np.float32) for _ in range(2)]

    def train(strategy: Any) -> tuple[list[np.ndarray], str]:
        x = mg.input("x", ("batch", 16))
        held = [mg.var(f"w{n}", init=value) for n, value in enumerate(weights)]
        loss = mg.mean(mg.square(mg.tanh(x @ held[0]) @ held[1]))
        (turned,) = mg.vjp([loss], [held[1]], [mg.constant(np.float32(1.0))])
        updates = mg.optimizer.SGD(0.5).updates(loss, held[:1])
        updates[held[1]] = held[1] - 0.5 * turned
        step = mg.function(
            [x], [loss], updates, device="cpu", precision="float16", distribute=strategy
        )
        place, parts = (0, 1) if strategy is None else strategy.shard()
        for feed in rows:
            step(feed[place * ROWS // parts : (place + 1) * ROWS // parts])
        return [variable.value for variable in held], str(step.report)

    values, _ = train(None)
    limit = tolerance(canonical("float16"), "stable")
    for held, _ in ranks.threads(2, lambda: train(STRATEGIES[name]())):
        for one, other in zip(held, values, strict=True):
            np.testing.assert_allclose(one, other, limit.relative, limit.absolute)


@pytest.mark.parametrize("name", ["one message", "ring", "in parts", "messages of bfloat16"])
def test_a_part_that_is_not_finite_is_skipped_by_all(rng: np.random.Generator, name: str) -> None:
    """The last rank's rows alone make gradients that float16 does not hold."""
    rows = rng.standard_normal((4, ROWS, 16)).astype(np.float32)
    rows[1, -1] *= 1e6
    weights = [0.4 * rng.standard_normal((16, 16)).astype(np.float32) for _ in range(2)]
    made = ranks.threads(2, lambda: job(rows, weights, STRATEGIES[name](), 1))
    (seen, values), (other, theirs) = made
    assert seen == other
    assert [skipped for _, skipped in seen] == [0, 1, 1, 2]  # and the scale that is too large
    for one, two in zip(values, theirs, strict=True):
        np.testing.assert_array_equal(one, two)
        assert np.isfinite(one).all()


@pytest.mark.parametrize("name", ["one message", "ring", "server", "in parts", "layers"])
def test_small_gradients_are_not_lost(rng: np.random.Generator, name: str) -> None:
    rows = TINY * rng.standard_normal((2, ROWS, 16)).astype(np.float32)
    weights = [0.01 * rng.standard_normal((16, 16)).astype(np.float32) for _ in range(2)]
    _, values = job(rows, weights, None, 1)
    moved = [np.abs(value - start).max() for value, start in zip(values, weights, strict=True)]
    assert min(moved) > 0
    for _, held in ranks.threads(2, lambda: job(rows, weights, STRATEGIES[name](), 1)):
        for one, other, start in zip(held, values, weights, strict=True):
            change, wanted = one - start, other - start
            # Most elements underflow without a scale, whose changes are then zero.
            assert np.abs(change - wanted).max() < 0.05 * np.abs(wanted).max()


@pytest.mark.parametrize("name", ["one message", "matrices", "layers", "messages of float16"])
def test_small_gradients_are_results(rng: np.random.Generator, name: str) -> None:
    """They are below what float16 has, in the rank's own products and in messages."""
    rows = 2.0**-4 * rng.standard_normal((ROWS, 16)).astype(np.float32)
    weights = [0.01 * rng.standard_normal((16, 16)).astype(np.float32) for _ in range(2)]

    def gradients(strategy: Any, precision: str) -> list[np.ndarray]:
        x = mg.input("x", ("batch", 16))
        held = [mg.var(f"w{n}", init=value) for n, value in enumerate(weights)]
        loss = mg.mean(mg.square(mg.tanh(x @ held[0]) @ held[1]))
        f = mg.function(
            [x], [loss, *mg.grad(loss, held)], device="cpu", precision=precision,
            distribute=strategy,
        )  # fmt: skip
        place, parts = (0, 1) if strategy is None else strategy.shard()
        return [*f(rows[place * ROWS // parts : (place + 1) * ROWS // parts])[1:]]

    wanted = gradients(None, "float32")
    assert max(np.abs(value).max() for value in wanted) < 2.0**-22
    for found in ranks.threads(2, lambda: gradients(STRATEGIES[name](), "float16")):
        for one, other in zip(found, wanted, strict=True):
            assert np.abs(one - other).max() < 0.02 * np.abs(other).max()
