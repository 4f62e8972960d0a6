"""MPI with addresses of devices, on real ranks, with arrays of the host in the place of theirs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_collectives_mpi import LARGE, many, methods

from magmagraph.dtypes import canonical
from magmagraph.ir.communicator import Mesh
from magmagraph.ir.ranks import current, using


class Cupy:
    """NumPy by CuPy's names, with a stream on which work can wait."""

    def __init__(self) -> None:
        self.queued: list[Callable[[], None]] = []
        self.cuda = self

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def asnumpy(self, array: np.ndarray) -> np.ndarray:
        return np.array(array)

    def get_current_stream(self) -> Cupy:
        return self

    def synchronize(self) -> None:
        while self.queued:
            self.queued.pop(0)()


def aware(cupy: Any = None) -> Any:
    from magmagraph.runtime.comm.cuda_aware_mpi import AwareRank

    return AwareRank(current(), Cupy() if cupy is None else cupy)


# ---- What it does


def all_methods(dtype: str, shape: tuple[int, ...]) -> None:
    with using(aware()):
        methods(dtype, shape)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int64", "complex64"])
def test_methods(on_ranks: Callable[..., Any], dtype: str) -> None:
    for shape in ((), (0,), (3, 5), (LARGE,)):
        on_ranks(2, all_methods, dtype, shape)


def test_methods_on_more_ranks(on_ranks: Callable[..., Any]) -> None:
    """Short arrays go whole, long ones in parts, with and without a remainder."""
    for ranks in (3, 4):
        for shape in ((7,), (LARGE,), (12, 5000)):
            on_ranks(ranks, all_methods, "float32", shape)
    on_ranks(4, all_methods, "bfloat16", (LARGE,))


def bits(dtype: str) -> None:
    """Sums that are rounded are those of the host, on the same ranks."""
    world, device = current(), aware()
    rng = np.random.default_rng(world.rank)
    for shape in ((5,), (LARGE,)):
        mine = rng.standard_normal(shape).astype(canonical(dtype))
        mine.reshape(-1)[0] = np.nan if world.rank else 1.0
        for op in ("sum", "max"):
            found, expected = device.allreduce(mine, op), world.allreduce(mine, op)
            assert found.tobytes() == expected.tobytes(), (op, shape)
        rows = rng.standard_normal((world.size, *shape)).astype(canonical(dtype))
        found, expected = device.reduce_scatter(rows, "sum"), world.reduce_scatter(rows, "sum")
        assert found.tobytes() == expected.tobytes(), shape
        found, expected = device.reduce(mine, 1), world.reduce(mine, 1)
        assert world.rank != 1 or found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_sums_have_the_bits_of_the_hosts(on_ranks: Callable[..., Any], dtype: str) -> None:
    on_ranks(2, bits, dtype)


def several() -> None:
    with using(aware()):
        many()


def test_several_arrays(on_ranks: Callable[..., Any]) -> None:
    on_ranks(2, several)
    on_ranks(4, several)


def after_the_stream() -> None:
    """Operands are what is queued on the stream makes of them, and results come after it."""
    cupy = Cupy()
    world = current()
    device, rank, other = aware(cupy), world.rank, 1 - world.rank
    late = np.arange(4, dtype=np.float32) + 10 * rank
    theirs = np.arange(4, dtype=np.float32) + 10 * other

    def operand() -> np.ndarray:
        made = np.zeros(4, np.float32)
        cupy.queued.append(lambda: made.__setitem__(slice(None), late))
        return made

    def target() -> np.ndarray:
        made = np.zeros(4, np.float32)
        cupy.queued.append(lambda: made.fill(-1.0))  # what is queued still uses the memory
        return made

    stacked = np.stack([late, theirs] if rank == 0 else [theirs, late])
    assert (device.allreduce(operand(), "sum", target()) == late + theirs).all()
    assert (device.allgather(operand()) == stacked).all()
    held = operand()
    assert (device.broadcast(held, 0, held) == stacked[0]).all()
    assert (device.permute(operand(), 1, target()) == theirs).all()
    assert (device.sendrecv(operand(), other, target(), other, 0) == theirs).all()
    rows = device.alltoall(operand().reshape(2, 2))
    assert (rows == stacked[:, 2 * rank : 2 * rank + 2]).all()
    if rank == 0:
        device.send(late, 1, 7)
    else:
        assert (device.recv(target(), 0, 7) == theirs).all()


def test_the_stream_is_waited_for(on_ranks: Callable[..., Any]) -> None:
    on_ranks(2, after_the_stream)


def arrangements() -> None:
    device = aware()
    rank = device.rank
    mesh = device.arranged(Mesh(rows=2, columns=2))
    for axes, members in (("rows", (rank % 2, rank % 2 + 2)), ("columns", (rank & 2, rank | 1))):
        group = mesh.group(axes)
        assert type(group) is type(device)
        assert group is mesh.group(axes)
        assert group.allreduce(np.float32([rank]), "sum")[0] == sum(members)
    assert mesh.group(()) is mesh
    half = device.split(rank % 2, -rank)
    assert half.kind == "CUDA-aware MPI"
    assert list(half.allgather(np.int32([rank])).ravel()) == [rank % 2 + 2, rank % 2]
    pair = device.subset(sorted((rank, rank ^ 1)))
    assert pair.allreduce(np.int64([1 + rank]), "max")[0] == (rank | 1) + 1


def test_groups_are_of_the_same_kind(on_ranks: Callable[..., Any]) -> None:
    on_ranks(4, arrangements)


def beside_the_host() -> None:
    """A message that waits is not taken for a part of a sum, and the host's ranks may take it."""
    world, device = current(), aware()
    other = 1 - world.rank
    for tag in (0, 1):
        device.send(np.full(3, float(world.rank), np.float32), other, tag)
    assert (device.allreduce(np.ones(3, np.float32), "sum") == 2.0).all()
    assert (world.recv(np.empty(3, np.float32), other, 1) == other).all()
    assert (device.recv(np.empty(3, np.float32), other, 0) == other).all()


def test_messages_and_sums_do_not_meet(on_ranks: Callable[..., Any]) -> None:
    on_ranks(2, beside_the_host)


# ---- What is tried before it is used


def trial(how: str) -> tuple[bool, str, float]:
    from magmagraph.runtime.comm import cuda_aware_mpi as module

    class Broken(Cupy):
        def asarray(self, array: Any) -> Any:
            if how == "no memory":
                raise MemoryError("the device is full")
            return np.array(array)

        def asnumpy(self, array: np.ndarray) -> np.ndarray:
            found = np.array(array)
            if how == "wrong" or (how == "wrong later" and found.ndim > 1):
                found.reshape(-1)[-1] += 1.0
            return found

    world = current()
    broken = world.rank == 1
    limit, around = module.TRIAL, module._around
    module.TRIAL = 0.5
    if how == "silent" and broken:
        module._around = lambda ranks: ranks._data.Dup() and None
    began = time.monotonic()
    try:
        found, reason = module.tried(world, Broken() if broken else Cupy())
    finally:
        module.TRIAL, module._around = limit, around
    taken = time.monotonic() - began
    # Whatever it was, the ranks go on together by the host.
    assert world.allreduce(np.ones(2, np.float32), "sum")[0] == world.size
    return found is not None, reason, taken


def test_what_works_is_used(on_ranks: Callable[..., Any]) -> None:
    for ranks in (2, 3):
        assert all(done[:2] == (True, "") for done in on_ranks(ranks, trial, ""))


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("no memory", "a message of MPI between devices failed on rank 0 (TimeoutError: "
         "12 bytes have not come)"),
        ("wrong", "a message of MPI between devices failed on rank 1 (ValueError: 1 of 3 values "
         "are wrong)"),
        ("wrong later", "a collective of MPI between devices failed on rank 1 (ValueError: "
         "1 of 4 values are wrong)"),
        ("silent", "a message of MPI between devices failed on rank 0 (TimeoutError: "
         "12 bytes have not come)"),
    ],
)  # fmt: skip
def test_what_does_not_work_is_left_on_all_ranks(
    on_ranks: Callable[..., Any], how: str, reason: str
) -> None:
    found = on_ranks(2, trial, how)
    assert [done[:2] for done in found] == [(False, reason)] * 2
    assert all(seconds < 5.0 for *_, seconds in found)


def claimed() -> tuple[bool, Any]:
    from magmagraph.runtime.comm.claims import claim, loaded

    current()
    library = loaded()
    return hasattr(library, "MPI_Init"), claim(library)


def test_the_loaded_library_is_asked(on_ranks: Callable[..., Any]) -> None:
    """Wheels are built without CUDA; another library may say that it is."""
    for is_mpi, says in on_ranks(2, claimed):
        assert is_mpi
        assert "libmpi" in says.why
        assert says.takes in (True, False) or "no function" in says.why


WRONG = """
    import numpy as np
    import magmagraph as mg
    from magmagraph.runtime.comm.cuda_aware_mpi import tried
    from test_aware_mpi import Cupy

    class Elsewhere:
        # Memory of a device whose address the processor cannot read.
        dtype, nbytes = np.dtype(np.float32), 12

        def view(self, dtype):
            self.__cuda_array_interface__ = {
                "shape": (12,), "typestr": "|u1", "data": (4096, False), "version": 3
            }
            return self

    class Device(Cupy):
        def asarray(self, array):
            return Elsewhere()

    tried(mg.distributed.init(), Device())
    print("went on")
"""


def test_a_library_that_takes_an_address_for_the_hosts_says_where(mpiexec: Any) -> None:
    done = mpiexec(2, WRONG)
    assert done.status != 0
    assert "went on" not in done.output
    assert "Segmentation fault" in done.output
    assert "in _around" in done.output
    assert done.left == []
