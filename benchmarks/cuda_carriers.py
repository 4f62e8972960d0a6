"""Claim: where NCCL cannot be used, MPI that takes addresses of devices beats a way over the host.

Run by the mpiexec of such an MPI library, ``mpiexec -n 2 python benchmarks/cuda_carriers.py``, with
a device for each rank or one that they share (NCCL is left out then). For each size it times the
sum of an array over the ranks by NCCL, by MPI with addresses of the devices (summed on them), by
the host, and by that library's own all-reduce with the same addresses; the first three also within
a step: NCCL's is captured in its graph. Sums are compared before they are timed, bit for bit.
Samples of all ways take turns. Results of other numbers of ranks and devices stay in the file.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import common
import numpy as np
import opening

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.runtime.cuda.device import device_of
from magmagraph.runtime.cuda.launching.carriers import carriers_of

SIZES = (16, 1 << 12, 1 << 20, 1 << 24)  # elements of float32
SECONDS = 0.02  # of a sample, about, or one sum
SAMPLES = 5
MOST = 200  # sums of a sample
WAYS = ("nccl", "mpi", "host")
HEAD = ("array", "NCCL", "MPI", "host", "MPI's own", "NCCL, step", "MPI, step", "host, step")


def chosen(way: str) -> Any:
    """Return what carries arrays if a way is asked for; its error where that cannot be used."""
    os.environ["MAGMAGRAPH_DEVICE_MESSAGES"] = way
    try:
        return carriers_of(device_of(f"cuda:{number()}"), ranks.communicator())
    except mg.CommunicationError as error:
        return error


def number() -> int:
    found = os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") or os.environ["MPI_LOCALRANKID"]
    import cupy

    return int(found) % cupy.cuda.runtime.getDeviceCount()


def sums(device: Any, carriers: dict[str, Any], array: Any) -> dict[str, Callable[[], Any]]:
    """Return, for each way, what sums an array over the ranks and waits for that."""
    from mpi4py import MPI

    cupy, world = device.cupy, ranks.communicator()
    out = cupy.empty_like(array)
    wait = device.stream.synchronize

    def by_nccl() -> Any:
        carriers["nccl"].nccl.allreduce(array, "sum", out)
        wait()
        return out

    def by_mpi() -> Any:
        carriers["mpi"].aware.allreduce(array, "sum", out)
        wait()
        return out

    def by_host() -> Any:
        held = cupy.asnumpy(array)
        out.set(world.allreduce(held, "sum", held))
        wait()
        return out

    def by_library() -> Any:
        wait()
        MPI.COMM_WORLD.Allreduce([array, MPI.FLOAT], [out, MPI.FLOAT])
        return out

    known = {"nccl": by_nccl, "mpi": by_mpi, "host": by_host}
    return {way: known[way] for way in carriers} | {"library": by_library}


def steps(count: int, carriers: dict[str, Any]) -> dict[str, Callable[[int], Any]]:
    """Return, for each way, what runs a step that sums a variable so many times."""
    made: dict[str, Callable[[int], Any]] = {}
    for way in carriers:
        os.environ["MAGMAGRAPH_DEVICE_MESSAGES"] = way
        with ranks.use(mesh(way)):
            held = mg.var(way, (count,), init=mg.init.ones())
            step = mg.function(
                [], [], {held: ranks.allreduce(held) * 0.5}, device=f"cuda:{number()}"
            )
            step.run(3)  # one by one, captured, from the graph

        def run(times: int, step: Any = step) -> None:
            step.run(times)
            mg.synchronize(f"cuda:{number()}")

        made[way] = run
    return made


def mesh(way: str) -> Any:
    """Return an arrangement of the ranks for each way: each is asked what carries its arrays."""
    return ranks.Mesh(**{way: ranks.size()})


def microseconds(functions: dict[str, Callable[[int], Any]]) -> dict[str, float]:
    """Return the median time of one of so many, as many on every rank."""
    world = ranks.communicator()
    taken: dict[str, list[float]] = {name: [] for name in functions}
    repeats: dict[str, int] = {}
    for name, function in functions.items():
        function(1)
        began = time.perf_counter()
        function(1)
        once = max(world.exchange(time.perf_counter() - began))
        repeats[name] = max(1, min(MOST, int(SECONDS / once)))
        function(repeats[name])
    for _ in range(SAMPLES):
        for name, function in functions.items():
            world.barrier()
            began = time.perf_counter()
            function(repeats[name])
            taken[name].append((time.perf_counter() - began) / repeats[name] * 1e6)
    return {name: statistics.median(several) for name, several in taken.items()}


def again(function: Callable[[], Any]) -> Callable[[int], None]:
    """Return what calls a function so many times."""

    def run(times: int) -> None:
        for _ in range(times):
            function()

    return run


def main() -> None:
    opening.words(__doc__, needs=("gpu", "mpi4py"))
    world = ranks.init()
    device = device_of(f"cuda:{number()}")
    carriers = {}
    for way in WAYS:
        with ranks.use(mesh(way)):
            found = chosen(way)
        if isinstance(found, mg.CommunicationError):
            if way == "mpi":
                raise found
            continue
        carriers[way] = found
    results: dict[str, Any] = {}
    rows = []
    for count in SIZES:
        with device, device.stream:
            host = np.random.default_rng(world.rank).standard_normal(count).astype(np.float32)
            ways = sums(device, carriers, device.cupy.asarray(host))
            expected = world.allreduce(host, "sum").tobytes()
            if world.size == 2:  # the order in which more are added is each way's own
                assert all(way().get().tobytes() == expected for way in ways.values())
            alone = microseconds({name: again(way) for name, way in ways.items()})
        inside = microseconds(steps(count, carriers))
        results[str(4 * count)] = {"sum": alone, "step": inside}
        rows.append(
            (f"{4 * count / 1024:g} KiB",
             *(f"{alone[way]:.1f}" if way in alone else "" for way in (*WAYS, "library")),
             *(f"{inside[way]:.1f}" if way in inside else "" for way in WAYS))
        )  # fmt: skip
    devices = len(set(world.exchange(number())))
    if world.rank == 0:
        from mpi4py import MPI

        print("microseconds")
        common.table(rows, HEAD)
        known = common.written("cuda_carriers")
        known[f"{world.size} ranks, {devices} devices"] = {
            "machine": common.machine(),
            "library": MPI.Get_library_version().splitlines()[0].partition(",")[0],
            "microseconds": results,
        }
        print(common.write("cuda_carriers", known))


if __name__ == "__main__":
    main()
