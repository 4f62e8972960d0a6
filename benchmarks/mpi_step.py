"""Measure: a training step of the seed network by 2 ranks of 1 thread, and by 1 process of 2.

L = 2, a batch of 1000 rows, of which each rank has half. Both are measured in turn, several times,
each time in processes of their own, so that what else the machine does slows both. The ranks'
weights after the steps are compared with the process's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import common
import opening

LAYERS, BATCH = 2, 1000
CHECKED = 20  # steps before the weights are compared
MOST_ERROR = 1e-4  # of the weights, float32, relative to their norm


def one(repeats: int, algorithm: str | None) -> dict[str, Any]:
    """Run the step in this process, which may be a rank, and return its times."""
    import networks
    import numpy as np

    import magmagraph as mg

    distributed = mg.distributed.size() > 1
    options: dict[str, Any] = {"device": "cpu"}
    if distributed:
        options["distribute"] = mg.distributed.DataParallel(algorithm=algorithm or "allreduce")
    step, parameters, _ = networks.training_step(LAYERS, **options)
    images, labels = networks.batch_of(BATCH)
    begin, end = 0, BATCH
    if distributed:
        begin = mg.distributed.rank() * BATCH // mg.distributed.size()
        end = (mg.distributed.rank() + 1) * BATCH // mg.distributed.size()
    own = np.ascontiguousarray(images[begin:end]), labels[begin:end]
    for _ in range(CHECKED):
        step(*own)
    sums = [float(np.sum(held.value, dtype=np.float64)) for held in parameters]
    norms = [float(np.linalg.norm(held.value)) for held in parameters]
    taken = []
    for _ in range(repeats):
        mg.distributed.communicator().barrier()
        began = time.perf_counter()
        step(*own)
        taken.append(time.perf_counter() - began)
    root = f"{Path(__file__).resolve().parents[1]}{os.sep}"
    notes = [
        note.replace(root, "")
        for note in next(r.notes for r in step.report if r.name == "distribute")
    ]
    return {
        "rank": mg.distributed.rank(), "median": statistics.median(taken), "least": min(taken),
        "sums": sums, "norms": norms, "messages": notes,
    }  # fmt: skip


def in_processes(ranks: int, threads: int, repeats: int, algorithm: str) -> dict[str, Any]:
    """Run `one` in processes of their own and return what rank 0 found."""
    arguments = ["--one", "--repeats", str(repeats), "--algorithm", algorithm]
    return common.on_ranks(__file__, ranks, arguments, threads=threads)


def main() -> None:
    parser = opening.parser(__doc__, "mpi")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--algorithm", default="allreduce", help="of DataParallel (allreduce)")
    parser.add_argument("--repeats", type=int, default=60, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=7, help="of all programs (7)")
    given = parser.parse_args()
    if given.one:
        found_here = one(given.repeats, given.algorithm)
        if found_here["rank"] == 0:  # lines of several ranks may come mixed
            print(json.dumps(found_here), flush=True)
        return
    opening.require("mpi")
    cleared = common.clean_environment()
    ways = {
        "1 process, 2 threads": (1, 2), "2 ranks, 1 thread each": (2, 1),
        "1 process, 1 thread": (1, 1),
    }  # fmt: skip
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for _ in range(given.rounds):
        for name, (ranks, threads) in ways.items():
            found[name].append(in_processes(ranks, threads, given.repeats, given.algorithm))
    first, second = (found[name][0] for name in list(ways)[:2])
    for a, b, norm in zip(first["sums"], second["sums"], first["norms"], strict=True):
        if not abs(a - b) <= MOST_ERROR * max(norm, 1e-3) * 10:
            raise SystemExit(f"the ranks' weights differ: sums {a} and {b}, norm {norm}")
    results: dict[str, Any] = {}
    for name, rounds in found.items():
        medians = [entry["median"] for entry in rounds]
        results[name] = {
            "median": statistics.median(medians), "least": min(medians), "largest": max(medians),
        }  # fmt: skip
    base = results["1 process, 2 threads"]["median"]
    results["ratio"] = base / results["2 ranks, 1 thread each"]["median"]
    results["messages"] = second["messages"]
    common.table(
        [(name, f"{results[name]['median'] * 1e3:.3f}", f"{results[name]['least'] * 1e3:.3f}",
          f"{base / results[name]['median']:.3f}") for name in ways],
        ("way", "median ms", "least ms", "of 1 process, 2 threads"),
    )  # fmt: skip
    print(common.write("mpi_step", results, cleared=cleared, algorithm=given.algorithm))


if __name__ == "__main__":
    main()
