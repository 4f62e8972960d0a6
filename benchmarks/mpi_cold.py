"""The first call of a training step on ranks whose cache is empty: who compiles what they share.

    python benchmarks/mpi_cold.py [--ranks 1 2 4] [--rounds 3] [--cases mlp cnn]

Each job starts with an empty cache folder: one for all ranks, of which one then compiles what all
want, or one for each rank, in which it compiles everything itself. What is timed is building the
step and its first call, from a barrier to the end on the last rank; and the processor time of the
compilers of all ranks together. Every rank has one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from typing import Any

import common
import opening

CASES = ("mlp", "cnn")
WAYS = ("one folder", "a folder each")
ROWS = 64


def one(case: str, folder: str, way: str) -> dict[str, float]:
    """Make a step and call it for the first time, on this rank."""
    import numpy as np

    import magmagraph as mg

    ranks = mg.distributed.communicator()
    own = "all" if way == WAYS[0] else str(ranks.rank)
    os.environ["MAGMAGRAPH_CACHE_DIR"] = os.path.join(folder, own)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, ROWS).astype(np.int32)
    layers = [mg.nn.Input((784,)), mg.nn.Dense(528, "relu"), mg.nn.Dense(528, "relu")]
    if case == "cnn":
        layers = [
            mg.nn.Input((1, 28, 28)), mg.nn.Conv2D(8, 5, activation="relu"), mg.nn.MaxPool2D(2),
            mg.nn.Conv2D(16, 5, activation="relu"), mg.nn.MaxPool2D(2), mg.nn.Flatten(),
        ]  # fmt: skip
    images = rng.random((ROWS, *layers[0].shape), np.float32)
    ranks.barrier()
    began = time.perf_counter()
    net = mg.NeuralNetwork(
        [*layers, mg.nn.Dense(10)], loss="cross_entropy", optimizer=mg.optimizer.Adam(1e-3),
        device="cpu", seed=0,
    )  # fmt: skip
    strategy = mg.distributed.DataParallel() if ranks.size > 1 else None
    history = net.fit(images, labels, batch_size=ROWS, epochs=1, distribute=strategy)
    taken = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = ranks.exchange((taken, used.ru_utime + used.ru_stime), "the times of a first call")
    return {
        "seconds": max(seconds for seconds, _ in found),
        "compilers": sum(compilers for _, compilers in found),
        "loss": float(history["loss"][-1]),
    }


def in_processes(case: str, ranks: int, way: str) -> dict[str, float]:
    """Run `one` on ranks that have nothing in their caches."""
    with tempfile.TemporaryDirectory() as folder:
        return common.on_ranks(__file__, ranks, ["--one", case, folder, way], timeout=120)


def main() -> None:
    parser = opening.parser(__doc__, "mpi")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="of jobs (1 2 4)")
    parser.add_argument("--rounds", type=int, default=3, help="of all jobs (3)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        import magmagraph as mg

        case, folder, way = given.one
        here = one(case, folder, way)
        if mg.distributed.rank() == 0:
            print(json.dumps(here), flush=True)
        return
    opening.require("mpi")
    cleared = common.clean_environment()
    jobs = [
        (case, ranks, way)
        for case in given.cases
        for ranks in given.ranks
        for way in (WAYS if ranks > 1 else WAYS[:1])
    ]
    found: dict[tuple[str, int, str], list[dict[str, float]]] = {job: [] for job in jobs}
    for _ in range(given.rounds):
        for job in jobs:
            found[job].append(in_processes(*job))
    results: dict[str, Any] = {}
    for (case, ranks, way), rounds in found.items():
        losses = [entry["loss"] for entry in rounds]
        base = found[case, given.ranks[0], WAYS[0]][0]["loss"]
        if any(abs(loss - base) > 1e-4 * abs(base) for loss in losses):
            raise SystemExit(f"{case} on {ranks} ranks: losses {losses}, {base} on one")
        results.setdefault(case, {})[f"{ranks} ranks, {way}"] = {
            "seconds": statistics.median(entry["seconds"] for entry in rounds),
            "least": min(entry["seconds"] for entry in rounds),
            "seconds of compilers": statistics.median(entry["compilers"] for entry in rounds),
        }
    common.table(
        [
            (case, name, f"{row['seconds']:.2f}", f"{row['least']:.2f}",
             f"{row['seconds of compilers']:.2f}")
            for case, rows in results.items()
            for name, row in rows.items()
        ],
        ("network", "job", "median s", "least s", "compilers s"),
    )  # fmt: skip
    print(common.write("mpi_cold", results, cleared=cleared, rounds=given.rounds))


if __name__ == "__main__":
    main()
