"""Show: all-reduces run beside the backward pass, on the device's own clock.

Run by ``mpiexec -n 4 python benchmarks/cuda_timeline.py``, a rank a device: one captured step of
ResNet-50 in bfloat16, batch 128 a card, with the begin and the end of every launch. ``plots.py``
draws it. Notes of times hold launches apart, so that the step is longer than a plain one.
"""

from __future__ import annotations

from typing import Any

import common
import cuda_scaling
import opening

import magmagraph as mg


def spans(name: str, algorithm: str, mebibytes: float) -> list[list[Any]]:
    """Return kernel family, stream, begin and end in microseconds of each launch of a step."""
    rank, size = mg.distributed.rank(), mg.distributed.size()
    strategy = cuda_scaling.strategy_of(algorithm, mebibytes, None)
    part, parts = strategy.shard()
    given = cuda_scaling.rows(name, cuda_scaling.BATCHES[name] * size // parts, part)
    precision = "float32" if name == "cnn" else "bfloat16"
    step, _ = cuda_scaling.built(name, f"cuda:{rank}", precision=precision, distribute=strategy)
    for _ in range(4):
        step(*given)
    mg.config.tuning = False  # no roofs
    measured = step.profile(*given)
    return [
        [measured.steps[number].kernel, stream, begin / 1e3, end / 1e3]
        for number, stream, begin, end in measured.spans
    ]


def beside(found: list[list[Any]]) -> dict[str, float]:
    """Return microseconds of collectives, of those beside other launches, and of all."""
    said = [(a, b) for kernel, _, a, b in found if kernel == "collective"]
    rest = sorted((a, b) for kernel, _, a, b in found if kernel != "collective")
    merged: list[list[float]] = []
    for a, b in rest:
        if merged and a <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], b)
        else:
            merged.append([a, b])
    overlap = sum(
        max(0.0, min(b, d) - max(a, c)) for a, b in said for c, d in merged
    )
    ends = [max(end for *_, end in found), min(begin for _, _, begin, _ in found)]
    return {
        "collectives": sum(b - a for a, b in said), "beside": overlap, "step": ends[0] - ends[1]
    }


def main() -> None:
    parser = opening.parser(__doc__, "gpu", "mpi4py")
    parser.add_argument("--network", choices=cuda_scaling.BATCHES, default="resnet50")
    parser.add_argument("--algorithm", default="allreduce")
    parser.add_argument("--mebibytes", type=float, default=cuda_scaling.MEBIBYTES)
    given = parser.parse_args()
    opening.require("gpu", "mpi4py")
    world = mg.distributed.init()
    mine = spans(given.network, given.algorithm, given.mebibytes)
    each = world.exchange(mine)
    if world.rank == 0:
        rows = [
            (f"rank {rank}", *(f"{us:,.0f}" for us in beside(found).values()))
            for rank, found in enumerate(each)
        ]
        common.table(rows, ("", "collectives, us", "beside other launches", "the step"))
        results = {
            "network": given.network, "algorithm": given.algorithm,
            "ranks": [{"spans": found, **beside(found)} for found in each],
        }
        print(common.write("cuda_timeline", results))


if __name__ == "__main__":
    main()
