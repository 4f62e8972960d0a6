"""Measure: asynchronous beside synchronous SGD over ranks: examples a second, time to a loss.

    python benchmarks/async_speed.py [--ranks 2 4] [--device cuda]

The seed network with one hidden layer learns labels of a random linear map, 100 examples a rank and
step. Synchronous ranks average their gradients (the rate grows with their number, as their batch
does); asynchronous ones send theirs to weights that all share, and go on. Rank 0 looks at its loss
on examples held back, with the clock stopped. On the CPU each rank has one thread: with fewer cores
than ranks the numbers say nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import common
import numpy as np
import opening

UNITS, BATCH, RATE = 528, 100, 0.2
ROWS, EVALUATED = 10_000, 1_000
STEPS, EVERY = 600, 20
STALENESS = 8
LOSS = 1.5  # the time until which is reported
WAYS = ("allreduce", "parameter_server", "async")


def data() -> tuple[np.ndarray, np.ndarray]:
    """Return examples and the labels that a random linear map gives them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS + EVALUATED, 784)).astype(np.float32)
    return x, (x @ rng.normal(size=(784, 10))).argmax(1).astype(np.int32)


def one(way: str, kind: str) -> dict[str, Any]:
    """Train on this rank's device; return what rank 0 saw."""
    import magmagraph as mg

    rank, size = mg.distributed.rank(), mg.distributed.size()
    device = "cpu" if kind == "cpu" else f"cuda:{rank}"
    place: Any = np.asarray
    if kind == "cuda":
        import cupy

        cupy.cuda.Device(rank).use()
        place = cupy.asarray
    x = mg.var("x", shape=("batch", 784))
    labels = mg.var("labels", shape=("batch",), dtype="int32")
    weights = [
        mg.var("W", shape=(784, UNITS), init=mg.init.glorot_uniform(seed=0)),
        mg.var("b", shape=(UNITS,), init=mg.init.zeros()),
        mg.var("V", shape=(UNITS, 10), init=mg.init.glorot_uniform(seed=1)),
        mg.var("c", shape=(10,), init=mg.init.zeros()),
    ]
    W, b, V, c = weights
    loss = mg.cross_entropy(mg.sigmoid(x @ W + b) @ V + c, labels)
    options: dict[str, Any] = {"device": device}
    strategy = None
    if size > 1:
        more = {"staleness": STALENESS} if way == "async" else {}
        strategy = options["distribute"] = mg.distributed.DataParallel(algorithm=way, **more)
    rate = RATE * (1 if way == "async" else size)
    step = mg.optimizer.SGD(rate).step(loss, weights, inputs=[x, labels], outputs=[loss], **options)
    loss_of = mg.function([x, labels], loss, device=device)
    images, classes = data()
    own = np.arange(ROWS)[rank::size]
    order = np.random.default_rng(rank).permutation(own)
    batches = [
        (place(images[rows]), place(classes[rows]))
        for rows in (order[i : i + BATCH] for i in range(0, len(order) - BATCH + 1, BATCH))
    ]
    kept = [w.value for w in weights]
    for batch in batches[:4]:
        step(*batch)
    loss_of(images[ROWS:], classes[ROWS:])
    for w, value in zip(weights, kept, strict=True):
        w.assign(value)
    if strategy is None or not strategy.asynchronous:
        mg.distributed.communicator().barrier()
    curve: list[tuple[float, float]] = []
    taken, began = 0.0, time.perf_counter()
    for i in range(STEPS):
        step(*batches[i % len(batches)])
        if rank == 0 and i % EVERY == EVERY - 1:
            mg.synchronize(device)
            taken += time.perf_counter() - began
            curve.append((taken, float(loss_of(images[ROWS:], classes[ROWS:]))))
            began = time.perf_counter()
    mg.synchronize(device)
    taken += time.perf_counter() - began
    stale: dict[int, int] = {}
    if strategy is not None and strategy.asynchronous:
        strategy.finish()
        stale = dict(sorted(strategy.staleness.items()))
    reached = next((seconds for seconds, value in curve if value <= LOSS), None)
    return {
        "seconds": taken, "examples a second": STEPS * BATCH * size / taken,
        "seconds to the loss": reached, "last loss": curve[-1][1] if curve else None,
        "staleness": stale, "curve": curve[::6],
    }  # fmt: skip


def main() -> None:
    parser = opening.parser(__doc__, "mpi")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="of the jobs (2 4)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        import magmagraph as mg

        found = one(given.one, given.device)
        if mg.distributed.rank() == 0:
            print(json.dumps(found), flush=True)
        return
    opening.require("mpi", *(("gpu",) if given.device == "cuda" else ()))
    name = "async_speed" if given.device == "cpu" else "cuda_async"
    more = ["--device", given.device]
    alone = common.on_ranks(__file__, 1, ["--one", "allreduce", *more])
    results: dict[str, Any] = {"1": {"alone": alone}}
    for ranks in given.ranks:
        results[str(ranks)] = {
            way: common.on_ranks(__file__, ranks, ["--one", way, *more], timeout=200)
            for way in WAYS
        }
        settings = {"steps": STEPS, "batch": BATCH, "rate": RATE, "loss": LOSS}
        common.write(name, results, settings=settings)
    lines = [
        (ranks, way, f"{found['examples a second']:,.0f}", str(found["seconds to the loss"]),
         f"{found['last loss']:.3f}")
        for ranks, ways in results.items() for way, found in ways.items()
    ]  # fmt: skip
    common.table(lines, ("ranks", "way", "examples/s", f"s to {LOSS}", "last loss"))
    facts: dict[str, Any] = {}
    if given.device == "cuda":
        import cuda_common  # last: it takes memory of the first card

        facts = {"device": cuda_common.device_facts()}
    print(common.write(name, results, settings=settings, **facts))


if __name__ == "__main__":
    main()
