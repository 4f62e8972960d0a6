"""Ranks that were seeded otherwise draw what their first rank draws, and rows by their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.distributed import DataParallel, Hybrid, Mesh, PipelineParallel, TensorParallel

ROWS = 6


def _noisy(seed: int, strategy: Any) -> list[np.ndarray]:
    """Train with noise on rows, on weights and in the turns of a loop, on rows that differ."""
    mg.random.seed(seed)
    x = mg.input("x", ("batch", 4))
    first = mg.var("first", init=np.full((4, 8), 0.5, np.float32))
    second = mg.var("second", init=np.full((8, 2), 0.5, np.float32))
    kept = mg.random.bernoulli((4, 8), 0.7)
    out = mg.tanh(x @ (first * kept)) @ second
    out = out * mg.random.uniform(out.shape)
    total, _ = mg.scan(
        lambda carry, _: (carry + mg.random.normal((2,)), None), mg.zeros((2,)), length=3
    )
    loss = mg.mean(mg.square(out + total))
    step = mg.optimizer.SGD(0.1).step(
        loss, [first, second], [x], [loss], device="cpu", distribute=strategy
    )
    rows = np.random.default_rng(5).standard_normal((ROWS, 4)).astype(np.float32)
    place, parts = (0, 1) if strategy is None else strategy.shard()
    for _ in range(3):
        (found,) = step(rows[place * ROWS // parts : (place + 1) * ROWS // parts])
    return [found, first.value, second.value]


CASES: dict[str, tuple[Mesh, Callable[[], Any]]] = {
    "rows": (Mesh(data=2), DataParallel),
    "micro-batches": (Mesh(data=2), lambda: DataParallel(accumulate=2)),
    "matrices": (Mesh(tensor=2), lambda: TensorParallel(least=1)),
    "layers": (Mesh(stage=2), lambda: PipelineParallel(2)),
    "rows and matrices": (
        Mesh(data=2, tensor=2), lambda: Hybrid(DataParallel(), TensorParallel(least=1))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_seeds_are_those_of_the_first_rank(name: str) -> None:
    mesh, make = CASES[name]
    wanted = _noisy(3, None)
    different = _noisy(4, None)
    assert np.abs(wanted[0] - different[0]) > 1e-3
    made = ranks.threads(mesh.size, lambda: _noisy(3 + ranks.rank(), make()), mesh=mesh)
    for found in made:
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_asynchronous_ranks_keep_their_own() -> None:
    def job() -> float:
        mg.random.seed(ranks.rank())
        x = mg.input("x", ("batch",))
        f = mg.function(
            [x], mg.random.uniform(()) + 0 * mg.sum(x), device="cpu",
            distribute=DataParallel(algorithm="async"),
        )  # fmt: skip
        return float(f(np.ones(2, np.float32)))

    first, second = ranks.threads(2, job)
    assert first != second
