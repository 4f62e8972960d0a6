"""Claim: an all-reduce in a captured step moves what NCCL alone does; beside it ring and server.

Run by ``mpiexec -n 4 python benchmarks/cuda_collectives.py``, a rank a device. For each size it
times, in captured graphs that queue several, NCCL's all-reduce of one array, an all-reduce of as
many bytes in 16 arrays in one launch, the ring of sends and the server of the strategies (a sum on
rank 0, and its broadcast). Rates are NCCL's bus bandwidth: 2 (n - 1) / n bytes for each of the
array's, per second. ``plots.py`` draws them. Then messages of many vectors of 1 KiB: as they lie,
in one launch of NCCL, and side by side in one array, as messages of a plan have them. Results of
other numbers of ranks stay in the file.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import common
import opening

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.ops.collective.whole import ALLREDUCE_MANY
from magmagraph.ops.control.identities import ITEM
from magmagraph.passes.distribute.algorithms import summed
from magmagraph.runtime.cuda.launching import packing

SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 23, 1 << 26)  # elements of float32
REPEATED = 20  # collectives in one captured graph
COUNTS = (4, 16, 64, 256, 1024)  # of vectors
VECTOR = 256  # elements of float32


def one(variables: list[Any]) -> dict[Any, Any]:
    return {v: ranks.allreduce(v) * 0.5 for v in variables}


def many(variables: list[Any]) -> dict[Any, Any]:
    joined = ALLREDUCE_MANY(*variables, op="sum", group=(), size=ranks.size())
    return {v: ITEM(joined, index=i) * 0.5 for i, v in enumerate(variables)}


def by(algorithm: str) -> Callable[[list[Any]], dict[Any, Any]]:
    """Return updates by the sums that a strategy makes of its own."""
    axes = (((), ranks.size()),)

    def updates(variables: list[Any]) -> dict[Any, Any]:
        return {v: mg.multiply(summed([v], algorithm, axes)[0], 0.5) for v in variables}

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


def small(count: int, few: int) -> float:
    """Return milliseconds of a message of vectors, of which at least so many go side by side."""
    usual, packing.FEW = packing.FEW, few
    try:
        return milliseconds(many, count * VECTOR, count)
    finally:
        packing.FEW = usual


def main() -> None:
    opening.words(__doc__, needs=("gpu", "mpi4py"))
    world = ranks.init()
    results: dict[str, Any] = {}
    rows = []
    for count in SIZES:
        found = {
            "all-reduce": milliseconds(one, count, 1),
            "16 arrays": milliseconds(many, count, 16),
            "ring": milliseconds(by("ring"), count, 1),
            "server": milliseconds(by("parameter_server"), count, 1),
        }
        moved = 4 * count * 2 * (world.size - 1) / world.size
        results[str(4 * count)] = found
        rows.append(
            (f"{4 * count / 2**20:g} MiB",
             *(f"{ms * 1e3:.0f} us, {moved / ms / 1e6:.0f} GB/s" for ms in found.values()))
        )
    vectors = {
        count: {"as they lie": small(count, count + 1), "side by side": small(count, 1)}
        for count in COUNTS
    }
    if world.rank == 0:
        common.table(rows, ("array", "all-reduce", "in 16 arrays", "ring", "server"))
        common.table(
            [(str(n), *(f"{ms * 1e3:.1f} us" for ms in found.values()))
             for n, found in vectors.items()],
            ("vectors", "as they lie", "side by side"),
        )  # fmt: skip
        known = common.written("cuda_collectives")
        known[str(world.size)] = {
            "machine": common.machine(), "milliseconds": results, "vectors of 1 KiB": vectors
        }
        print(common.write("cuda_collectives", known))


if __name__ == "__main__":
    main()
