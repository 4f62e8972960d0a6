"""Claim: an all-reduce takes at most 1.2 times the best way that MPI offers on one host.

Two ranks of one host, arrays from 64 bytes to 64 MiB. Beside the communicator's `allreduce`: MPI's
own, whole and in pieces of 8 MiB, and a sum through memory that the ranks share, written down for
one size. All are timed in one run, in turns, with the barrier behind each. The results hold
quartiles, in seconds: other work on the machine shows in them.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import common
import opening

REPEATS = {4: 400, 8: 400, 10: 400, 11: 400, 12: 400, 14: 400, 16: 200, 18: 60, 20: 30, 24: 15}
QUARTILES = ("lower", "median", "upper")
SIZES = {1 << power: count for power, count in REPEATS.items()}  # elements of float32

RANK = """
import json, sys, time
import numpy as np
from mpi4py import MPI
import magmagraph as mg

world = mg.distributed.init()
comm = MPI.COMM_WORLD.Dup()
rank, ranks = world.rank, world.size
times = {{}}
for count, repeats in {sizes}.items():
    x = np.random.default_rng(rank).normal(size=count).astype(np.float32)
    y = np.empty_like(x)
    window = MPI.Win.Allocate_shared(x.nbytes, 4, MPI.INFO_NULL, comm)
    window.Lock_all()
    held = [np.frombuffer(window.Shared_query(i)[0], np.float32) for i in range(ranks)]

    def whole():
        comm.Allreduce(x, y, MPI.SUM)

    def pieces():
        for low in range(0, count, 1 << 21):
            comm.Allreduce(x[low : low + (1 << 21)], y[low : low + (1 << 21)], MPI.SUM)

    def meet():
        window.Sync()
        comm.Barrier()
        window.Sync()

    def shared():
        held[rank][:] = x
        meet()
        np.add(held[0], held[1], out=y)
        meet()

    def ours():
        world.allreduce(x, "sum", y)

    ways = (whole, pieces, shared, ours)
    expected = None
    for way in ways:
        for turn in range(8):  # libraries choose other ways after some calls
            way()
        found = y.tobytes()
        assert expected in (None, found), way.__name__
        expected = found
    taken = {{way.__name__: [] for way in ways}}
    for turn in range(repeats):
        for way in ways:
            comm.Barrier()
            began = time.perf_counter()
            way()
            comm.Barrier()
            taken[way.__name__].append(time.perf_counter() - began)
    times[4 * count] = taken
if rank == 0:
    print(json.dumps(times))
"""


def main() -> None:
    opening.words(__doc__, needs=("mpi",))
    cleared = common.clean_environment()
    beside = Path(sys.executable).parent / "mpiexec"
    program = str(beside) if beside.exists() else shutil.which("mpiexec")
    code = RANK.format(sizes=SIZES)
    done = subprocess.run(
        [str(program), "-n", "2", sys.executable, "-c", code],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    rows = []
    for size, ways in results.items():
        for way, taken in ways.items():
            ways[way] = dict(zip(QUARTILES, statistics.quantiles(taken, n=4), strict=True))
        medians = {way: found["median"] * 1e6 for way, found in ways.items()}
        best = min(taken for way, taken in medians.items() if way != "ours")
        rows.append(
            (f"{int(size) / 2**10:g} KiB", *(f"{taken:.1f}" for taken in medians.values()),
             f"{medians['ours'] / best:.2f}")
        )
    common.table(rows, ("array", "whole us", "pieces", "shared", "magmagraph", "of the best"))
    print(common.write("mpi_allreduce", results, cleared=cleared, ranks=2))


if __name__ == "__main__":
    main()
