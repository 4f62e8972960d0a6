"""Asynchronous training beside one process: where losses end, and how stale changes were.

    python benchmarks/mpi_async.py [--ranks 2 4] [--trials 4]

A small network learns noisy labels, by each optimizer, in one process and by asynchronous ranks: at
the rate of one process, and at its part, that rate divided by the number of ranks. Losses are those
of all rows after the last epoch. No two trials of ranks are alike.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

import common
import opening

OPTIMIZERS = ("SGD", "SGD with momentum", "Adam")
EPOCHS, ROWS, BATCH = 20, 600, 40
STALENESS = 4


def one(trials: int) -> dict[str, Any]:
    """Train in this process, which may be a rank; return losses and histograms."""
    import numpy as np

    import magmagraph as mg

    makers: dict[str, Any] = {
        "SGD": lambda share: mg.optimizer.SGD(0.4 * share),
        "SGD with momentum": lambda share: mg.optimizer.SGD(0.1 * share, momentum=0.9),
        "Adam": lambda share: mg.optimizer.Adam(0.02 * share),
    }
    rng = np.random.default_rng(4)
    x = rng.normal(size=(ROWS, 8)).astype(np.float32)
    scores = np.tanh(x @ rng.normal(size=(8, 6))) @ rng.normal(size=(6, 3))
    y = (scores + 0.5 * rng.gumbel(size=scores.shape)).argmax(1)
    size = mg.distributed.size()
    found: dict[str, Any] = {}
    for name in OPTIMIZERS:
        for rate in ("whole rate", "rate / ranks") if size > 1 else ("whole rate",):
            losses, stale = [], Counter[int]()
            for _ in range(trials if size > 1 else 1):
                net = mg.NeuralNetwork(
                    [mg.nn.Input((8,)), mg.nn.Dense(16, "tanh"), mg.nn.Dense(3)],
                    loss="cross_entropy", device="cpu", seed=1,
                    optimizer=makers[name](1 if rate == "whole rate" else 1 / size),
                )  # fmt: skip
                strategy = None
                if size > 1:
                    strategy = mg.distributed.DataParallel(algorithm="async", staleness=STALENESS)
                net.fit(x, y, batch_size=BATCH, epochs=EPOCHS, distribute=strategy)
                losses.append(round(float(net.evaluate(x, y)["loss"]), 4))
                stale.update({} if strategy is None else strategy.staleness)
            found[f"{name}, {rate}"] = {"losses": losses, "staleness": dict(sorted(stale.items()))}
    return found


def in_processes(ranks: int, trials: int) -> dict[str, Any]:
    """Run `one` on so many ranks of one thread and return what rank 0 found."""
    return common.on_ranks(__file__, ranks, ["--one", "--trials", str(trials)], timeout=280)


def main() -> None:
    parser = opening.parser(__doc__, "mpi")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="of the jobs (2 4)")
    parser.add_argument("--trials", type=int, default=4, help="of each (4)")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        import magmagraph as mg

        here = one(given.trials)
        if mg.distributed.rank() == 0:
            print(json.dumps(here), flush=True)
        return
    opening.require("mpi")
    results = {f"{ranks} ranks": in_processes(ranks, given.trials) for ranks in (1, *given.ranks)}
    alone = {name: row["losses"][0] for name, row in results["1 ranks"].items()}
    rows = []
    for ranks, found in results.items():
        for name, row in found.items():
            base = alone[f"{name.partition(', ')[0]}, whole rate"]
            worst = max(abs(loss - base) for loss in row["losses"]) / base
            row["largest difference"] = round(worst, 4)
            rows.append((ranks, name, row["losses"], f"{worst:.1%}", row["staleness"]))
    common.table(rows, ("job", "optimizer", "losses", "from one process", "staleness"))
    settings = {"epochs": EPOCHS, "rows": ROWS, "batch": BATCH, "staleness=": STALENESS}
    print(common.write("mpi_async", results, settings=settings))


if __name__ == "__main__":
    main()
