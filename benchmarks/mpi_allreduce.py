"""Claim: an all-reduce of 64 MB takes at most 1.2 times the best way that MPI offers on one host.

Two ranks of one host. Beside `mg.distributed.communicator().allreduce`: MPI's own, whole and in
pieces of 8 MiB, and a sum through memory that the ranks share, written down for this one size. All
are timed in one run, in turns. Other work on the machine shows in the spread.
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

REPEATS = 15
SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 24)  # elements of float32: up to 64 MiB

RANK = """
import json, sys, time
import numpy as np
from mpi4py import MPI
import magmagraph as mg

world = mg.distributed.init()
comm = MPI.COMM_WORLD.Dup()
rank, ranks = world.rank, world.size
times = {{}}
for count in {sizes}:
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
        way()
        found = y.tobytes()
        assert expected in (None, found), way.__name__
        expected = found
    taken = {{way.__name__: [] for way in ways}}
    for turn in range({repeats}):
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
    cleared = common.clean_environment()
    beside = Path(sys.executable).parent / "mpiexec"
    program = str(beside) if beside.exists() else shutil.which("mpiexec")
    code = RANK.format(sizes=SIZES, repeats=REPEATS)
    done = subprocess.run(
        [str(program), "-n", "2", sys.executable, "-c", code],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    rows = []
    for size, ways in results.items():
        medians = {way: statistics.median(taken) * 1e3 for way, taken in ways.items()}
        best = min(ms for way, ms in medians.items() if way != "ours")
        rows.append(
            (f"{int(size) / 2**20:g} MiB", *(f"{ms:.3f}" for ms in medians.values()),
             f"{medians['ours'] / best:.2f}")
        )
    common.table(rows, ("array", "whole ms", "pieces", "shared", "magmagraph", "of the best"))
    print(common.write("mpi_allreduce", results, cleared=cleared, ranks=2))


if __name__ == "__main__":
    main()
