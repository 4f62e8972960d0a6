"""float16 on ranks with a GPU each: run by mpiexec, two or four; "cpu" behind it: without."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.distributed import DataParallel, PipelineParallel, TensorParallel
from magmagraph.dtypes import canonical, tolerance

ROWS, WIDTH, LAYERS, CALLS = 24, 32, 4, 8
TOO_LARGE, LARGE = 2.0**30, 2.0**10  # scales: float16 has no number for the first
STRATEGIES: dict[str, Callable[[], Any]] = {
    "one message": DataParallel,
    "optimizer in parts": lambda: DataParallel(shard_optimizer=True),
    "messages of float16": lambda: DataParallel(compression="float16"),
    "float16 by rings": lambda: DataParallel(algorithm="ring", compression="float16"),
    "micro-batches": lambda: DataParallel(accumulate=2),
    "matrices": lambda: TensorParallel(least=1),
    "gpipe": lambda: PipelineParallel(2, "gpipe"),
    "1f1b": lambda: PipelineParallel(3),
}


def job(
    rows: np.ndarray, weights: list[np.ndarray], strategy: Any, device: str
) -> tuple[list[tuple[float, int]], list[np.ndarray]]:
    """Train, and return scales and skipped calls after each call, and the weights at the end."""
    x = mg.input("x", ("batch", WIDTH))
    held = [mg.var(f"w{n}", init=value) for n, value in enumerate(weights)]
    out: mg.Node = x
    for weight in held:
        out = mg.tanh(out @ weight)
    loss = mg.mean(mg.square(out - 0.5))
    step = mg.optimizer.SGD(0.5, momentum=0.9).step(
        loss, held, [x], [loss], device=device, precision="float16", distribute=strategy
    )
    place, parts = (0, 1) if strategy is None else strategy.shard()
    seen = []
    for number, feed in enumerate(rows):
        scale = {3: TOO_LARGE, 5: LARGE}.get(number)
        if scale is not None:
            step.loss_scale.scale.value = np.float32(scale)
        step(feed[place * ROWS // parts : (place + 1) * ROWS // parts])
        seen.append((float(step.loss_scale.scale.value), int(step.loss_scale.skipped.value)))
    return seen, [variable.value for variable in held]


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    ranks.init()
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((CALLS, ROWS, WIDTH)).astype(np.float32)
    weights = [0.25 * rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) for _ in range(LAYERS)]
    seen, values = job(rows, weights, None, device)
    assert [skipped for _, skipped in seen] == [0, 0, 0, 1, 2, 2, 2, 2], seen
    limit = tolerance(canonical("float16"), "stable")
    for name, make in STRATEGIES.items():
        found, held = job(rows, weights, make(), device)
        assert found == seen, (name, found, seen)
        for one, other in zip(held, values, strict=True):
            np.testing.assert_allclose(one, other, limit.relative, limit.absolute, err_msg=name)
        print(f"rank {ranks.rank()}: {name}: right", file=sys.stderr, flush=True)
    print(f"rank {ranks.rank()}: all right", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
