"""Claim: an all-reduce in a captured step moves what NCCL alone does; beside it, the ring.

Run by ``mpiexec -n 2 python benchmarks/cuda_collectives.py``, a rank a device. For each size it
times, in captured graphs that queue several, NCCL's all-reduce of one array, an all-reduce of as
many bytes in 16 arrays in one launch, and a ring of reduce-scatter and all-gather over steps that
hand on parts (`mg.distributed.permute`). Rates are NCCL's bus bandwidth: 2 (n - 1) / n bytes for
each of the array's, per second.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import common

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.ops.collective.whole import ALLREDUCE_MANY
from magmagraph.ops.control.identities import ITEM

SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 23, 1 << 26)  # elements of float32
REPEATED = 20  # collectives in one captured graph


def one(variables: list[Any]) -> dict[Any, Any]:
    return {v: ranks.allreduce(v) * 0.5 for v in variables}


def many(variables: list[Any]) -> dict[Any, Any]:
    joined = ALLREDUCE_MANY(*variables, op="sum", group=(), size=ranks.size())
    return {v: ITEM(joined, index=i) * 0.5 for i, v in enumerate(variables)}


def ring(variables: list[Any]) -> dict[Any, Any]:
    """Return sums around a ring: parts go on and are added to, then go on whole."""
    size, rank = ranks.size(), ranks.rank()
    updates: dict[Any, Any] = {}
    for v in variables:
        parts = mg.reshape(v, (size, -1))
        part = parts[rank]
        for step in range(1, size):
            part = ranks.permute(part) + parts[(rank - step) % size]
        found = [part]
        for _ in range(1, size):
            found.append(ranks.permute(found[-1]))
        # After the sums, this rank holds part rank + 1; what comes next is one place before.
        whole = mg.concatenate([found[(rank + 1 - i) % size] for i in range(size)])
        updates[v] = whole * 0.5
    return updates


def milliseconds(make: Callable[[list[Any]], dict[Any, Any]], count: int, arrays: int) -> float:
    held = [
        mg.var(f"v{i}", (count // arrays,), init=mg.init.ones()) for i in range(arrays)
    ]
    step = mg.function([], [], make(held), device="cuda")
    step.run(2 * REPEATED)
    samples = []
    for _ in range(5):
        mg.synchronize("cuda")
        ranks.communicator().barrier()
        began = time.perf_counter()
        step.run(REPEATED)
        mg.synchronize("cuda")
        samples.append((time.perf_counter() - began) / REPEATED * 1e3)
    return statistics.median(samples)


def main() -> None:
    world = ranks.init()
    results: dict[str, Any] = {}
    rows = []
    for count in SIZES:
        found = {
            "all-reduce": milliseconds(one, count, 1),
            "16 arrays": milliseconds(many, count, 16),
            "ring": milliseconds(ring, count, 1),
        }
        moved = 4 * count * 2 * (world.size - 1) / world.size
        results[str(4 * count)] = found
        rows.append(
            (f"{4 * count / 2**20:g} MiB",
             *(f"{ms * 1e3:.0f} us, {moved / ms / 1e6:.0f} GB/s" for ms in found.values()))
        )
    if world.rank == 0:
        common.table(rows, ("array", "all-reduce", "in 16 arrays", "ring"))
        print(common.write("cuda_collectives", {"ranks": world.size, "milliseconds": results}))


if __name__ == "__main__":
    main()
