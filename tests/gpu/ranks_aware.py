"""Device data by MPI that takes addresses of devices: every method, and every strategy.

Run by the mpiexec of such a library; ranks may share a device. Methods are compared with those of
the same ranks on the host, strategies as in `ranks_strategies`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import ranks_strategies as job
from ranks_strategies import say

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.dtypes import canonical
from magmagraph.ir.communicator import Communicator
from magmagraph.ir.op import Kind
from magmagraph.runtime.comm.cuda_aware_mpi import AwareRank
from magmagraph.runtime.cuda.launching.carriers import carriers_of
from magmagraph.runtime.cuda.launching.segments import Interpreted, Segment

DTYPES = ("float64", "float32", "float16", "bfloat16", "int32", "int64", "complex64")
SHAPES: list[tuple[int, ...]] = [(), (0,), (3, 5), (4096,), (300_007,)]


def drawn(rank: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return numbers whose sums are rounded, with a NaN where there is one."""
    rng = np.random.default_rng([rank, *shape])
    made = 8.0 * rng.standard_normal(shape)
    array = np.asarray(made + 1j * made[..., ::-1] if dtype == "complex64" and shape else made)
    array = array.astype(canonical(dtype))
    if array.size > 2 and array.dtype.kind not in "iu":
        array.reshape(-1)[rank % 3] = np.nan
    return array


def methods(aware: AwareRank, cupy: Any, dtype: str, shape: tuple[int, ...]) -> None:
    """Compare every method with that of the host, bit for bit."""
    host, rank, size = aware.host, aware.rank, aware.size
    mine = drawn(rank, shape, dtype)
    rows = np.stack([drawn(10 * rank + i, shape, dtype) for i in range(size)])
    there, rows_there = cupy.asarray(mine), cupy.asarray(rows)
    assert there.dtype == mine.dtype

    def same(found: Any, expected: np.ndarray, what: str) -> None:
        got = found.get()
        assert got.dtype == expected.dtype and got.shape == expected.shape, (what, dtype, shape)
        np.testing.assert_array_equal(
            got.astype(np.complex128), expected.astype(np.complex128), f"{what} {dtype} {shape}"
        )

    for op in ("sum",) if dtype == "complex64" else ("sum", "max", "min"):
        same(aware.allreduce(there, op), host.allreduce(mine, op), op)
        own = there.copy()
        aware.allreduce(own, op, own)
        same(own, host.allreduce(mine, op), f"{op} in place")
        same(aware.reduce_scatter(rows_there, op), host.reduce_scatter(rows, op), f"{op} of rows")
    same(aware.allgather(there), host.allgather(mine), "gather")
    same(aware.broadcast(there, size - 1), host.broadcast(mine, size - 1), "broadcast")
    same(aware.alltoall(rows_there), host.alltoall(rows), "rows")
    same(aware.permute(there, 1), host.permute(mine, 1), "ring")
    expected, found = host.reduce(mine, 1), aware.reduce(there, 1)
    if rank == 1:
        same(found, expected, "reduce")
    outs = [cupy.empty_like(there), cupy.empty_like(rows_there)]
    aware.allreduce_many([there, rows_there], "sum", outs)
    same(outs[0], host.allreduce(mine, "sum"), "many")
    same(outs[1], host.allreduce(rows, "sum"), "many")
    # What one of them sends the other may take.
    other = rank ^ 1
    if rank % 2 == 0:
        aware.send(there, other, 5)
        host.send(mine, other, 6)
        there = there * 0  # it has been copied
    else:
        same(aware.recv(cupy.empty_like(there), other, 6), drawn(other, shape, dtype), "message")
        np.testing.assert_array_equal(
            host.recv(np.empty_like(mine), other, 5).astype(np.complex128),
            drawn(other, shape, dtype).astype(np.complex128),
        )


def cut(f: mg.Function, messages: int = 0) -> None:
    """Check that collectives go by MPI with addresses, and that what is computed is captured."""
    carriers = f._last.prepared.carriers
    assert carriers.aware is not None and not carriers.captured, str(carriers)
    assert "MPI, which takes addresses of devices" in " ".join(f.report["kernels"].notes)
    parts = [*f._last._before, *f._last._after]
    alone = [part.node for part in parts if isinstance(part, Interpreted)]
    assert alone and all(node.op.kind is Kind.COLLECTIVE for node in alone)
    sent = sum("to" in node.attrs or "source" in node.attrs for node in alone)
    assert sent >= messages, (sent, messages)
    segments = [part for part in parts if isinstance(part, Segment)]
    assert all(s.graph is not None for s in segments if len(s.launches) > 1), "not captured"


def main() -> None:
    os.environ.setdefault("MAGMAGRAPH_DEVICE_MESSAGES", "mpi")
    world: Communicator = ranks.init()
    mg.config.device = "cuda"
    mine = mg.function([], ranks.allreduce(mg.constant(1.0)), device="cuda")
    assert float(mine()) == world.size
    device = mine._last.device
    found = carriers_of(device, world)
    assert found is not None and found.aware is not None
    say(f"{found}")
    with device:
        for dtype in DTYPES:
            for shape in SHAPES:
                methods(found.aware, device.cupy, dtype, shape)
    say("methods: right")
    job.captured = cut
    rng = np.random.default_rng(7)
    job.crossing()
    job.turned()
    say("messages: right")
    job.strategies(rng)
    job.over_calls(rng)
    job.batch_norms(rng)
    job.asynchronous(rng)
    print(f"rank {world.rank}: all right", file=sys.stderr)


if __name__ == "__main__":
    main()
