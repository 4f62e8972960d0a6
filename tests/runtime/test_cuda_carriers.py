"""What carries arrays of devices between ranks: what libraries claim, what is chosen, and why."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.distributed import threads
from magmagraph.ir.ranks import current
from magmagraph.ops.collective.whole import ALLREDUCE_MANY
from magmagraph.ops.control.identities import ITEM
from magmagraph.runtime.comm import claims
from magmagraph.runtime.comm.claims import Claim, claim
from magmagraph.runtime.cpu.kernel_args import shape_of
from magmagraph.runtime.cuda.launching import carriers
from magmagraph.runtime.cuda.launching.carriers import carriers_of
from magmagraph.runtime.cuda.launching.collectives import by_addresses
from magmagraph.runtime.cuda.launching.messages import speaks

# ---- What a library says


def library(**functions: Any) -> Any:
    return SimpleNamespace(_name="/opt/mpi/lib/libmpi.so.40", **functions)


def gpu_support(answer: int, status: int = 0) -> Callable[..., int]:
    def ask(kind: Any, found: Any) -> int:
        assert kind.value == 0  # NVIDIA's
        ctypes.cast(found, ctypes.POINTER(ctypes.c_int))[0] = answer
        return status

    return ask


@pytest.mark.parametrize(
    ("functions", "expected"),
    [
        ({"MPIX_Query_cuda_support": lambda: 1},
         Claim(True, "MPIX_Query_cuda_support of libmpi.so.40 answers 1")),
        ({"MPIX_Query_cuda_support": lambda: 0},
         Claim(False, "MPIX_Query_cuda_support of libmpi.so.40 answers 0")),
        ({"MPIX_GPU_query_support": gpu_support(1)},
         Claim(True, "MPIX_GPU_query_support of libmpi.so.40 answers 1")),
        ({"MPIX_GPU_query_support": gpu_support(0)},
         Claim(False, "MPIX_GPU_query_support of libmpi.so.40 answers 0")),
        ({"MPIX_GPU_query_support": gpu_support(1, status=5)},
         Claim(False, "MPIX_GPU_query_support of libmpi.so.40 answers 0")),
        ({}, Claim(None, "libmpi.so.40 has no function that tells")),
    ],
)  # fmt: skip
def test_a_library_is_asked_by_what_it_has(functions: dict[str, Any], expected: Claim) -> None:
    assert claim(library(**functions), {}) == expected


@pytest.mark.parametrize("switch", ["OMPI_MCA_mpi_cuda_support", "OMPI_MCA_opal_cuda_support"])
def test_what_is_switched_off_is_not_asked(switch: str) -> None:
    built = library(MPIX_Query_cuda_support=lambda: 1)
    assert claim(built, {switch: "0"}).takes is False
    assert switch in claim(built, {switch: "false"}).why
    assert claim(built, {switch: "1"}).takes is True


def test_no_library_is_no_claim(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    assert claim(None).takes is None
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 00000000 fe:00 1 /nowhere/libmpi.so.12.4.2\n7f02-7f03 rw-p 0\n")
    monkeypatch.setattr(claims, "Path", lambda name: maps)
    assert claims.loaded() is None  # it was replaced: it cannot be opened
    monkeypatch.setattr(claims, "Path", lambda name: tmp_path / "missing")
    assert claims.loaded() is None


# ---- What is chosen

YES, NO, SILENT = Claim(True, "it says yes"), Claim(False, "it says no"), Claim(None, "no word")


class Nccl:
    """In the place of NCCL's ranks."""

    def __init__(self, host: Any, cupy: Any, binding: Any) -> None:
        assert binding == "binding"
        host.barrier()  # all make theirs together
        self.host = host


class Device:
    """A rank's own device, or one that all share."""

    def __init__(self, place: int, number: int = 0) -> None:
        runtime = SimpleNamespace(deviceGetPCIBusId=lambda _: f"0000:0{place}:00.0")
        self.number, self.cupy = number, SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *reason: Any) -> None:
        pass


class Job:
    """How the ranks of a job are, and what was tried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.tried = 0
        monkeypatch.setattr(carriers, "NcclRank", Nccl)

    def __call__(
        self,
        says: Any = YES,
        *,
        nccl: bool = True,
        shared: bool = True,
        wanted: str | None = None,
        fails: str = "",
    ) -> list[Any]:
        def tried(host: Any, cupy: Any) -> tuple[Any, str]:
            self.tried += 1
            host.barrier()
            return (None, fails) if fails else (SimpleNamespace(host=host), "")

        if wanted is not None:
            self.monkeypatch.setenv("MAGMAGRAPH_DEVICE_MESSAGES", wanted)
        self.monkeypatch.setattr(
            carriers, "_says", lambda host: says[host.rank] if isinstance(says, list) else says
        )
        self.monkeypatch.setattr(carriers, "_binding", lambda: "binding" if nccl else None)
        self.monkeypatch.setattr(carriers, "_trial", lambda: tried)

        def job() -> Any:
            device = Device(0 if shared else current().rank)
            try:
                found = carriers_of(device, current())
            except mg.CommunicationError as error:
                return str(error)
            assert carriers_of(device, current()) is found  # chosen once
            if found.captured:  # all make NCCL's ranks together, once
                assert isinstance(found.nccl, Nccl) and found.nccl is found.nccl
            return found

        return threads(3, job)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(monkeypatch)


SHARED = "NCCL refuses ranks that share a device, as 0 and 1 do"


def test_nccl_comes_first(job: Job) -> None:
    for found in job(shared=False):
        assert found.captured and found.aware is None and str(found) == "NCCL"
    assert job.tried == 0  # what may fail is not tried where it is not needed


def test_then_mpi_that_takes_addresses(job: Job) -> None:
    for found in job():
        assert not found.captured and found.nccl is None
        assert found.aware is not None
        assert str(found) == f"MPI, which takes addresses of devices ({SHARED})"
    assert job.tried == 3


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (NO, "it says no, on rank 0"),
        ([YES, YES, NO], "it says no, on rank 2"),
        ([YES, SILENT, YES], "no word, on rank 1"),
    ],
)
def test_then_the_host(job: Job, says: Any, why: str) -> None:
    for found in job(says):
        assert not found.captured and found.nccl is None and found.aware is None
        assert str(found) == f"the host ({SHARED}; MPI does not accept device addresses: {why})"
    assert job.tried == 0


def test_what_fails_when_it_is_tried_is_not_used(job: Job) -> None:
    for found in job(nccl=False, fails="a message failed on rank 2"):
        assert found.nccl is None and found.aware is None
        assert str(found) == "the host (rank 0 has no NCCL; a message failed on rank 2)"
    assert job.tried == 3


def test_a_way_that_is_asked_for(job: Job) -> None:
    assert [str(found) for found in job(shared=False, wanted="host")] == ["the host"] * 3
    for found in job(shared=False, wanted="mpi"):
        assert found.nccl is None and found.aware is not None
        assert str(found) == "MPI, which takes addresses of devices"
    for found in job(SILENT, shared=False, wanted="mpi"):  # it is tried because it is asked for
        assert found.aware is not None
    for found in job(shared=False, wanted="nccl"):
        assert found.captured


@pytest.mark.parametrize(
    ("wanted", "how", "why"),
    [
        ("mpi", {"says": NO}, "MPI does not accept device addresses: it says no, on rank 0"),
        ("mpi", {"fails": "a message failed on rank 1"}, "a message failed on rank 1"),
        ("nccl", {}, SHARED),
    ],
)
def test_a_way_that_is_asked_for_and_cannot_be_used(
    job: Job, wanted: str, how: dict[str, Any], why: str
) -> None:
    for error in job(wanted=wanted, **how):
        assert f"MAGMAGRAPH_DEVICE_MESSAGES is {wanted}, and that cannot be used: {why}" in error


def test_ranks_that_ask_for_different_ways(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carriers, "word", lambda name: "host" if current().rank == 1 else "auto")
    for error in job():
        assert "differs between ranks: auto on 0, host on 1, auto on 2" in error


def test_one_rank_has_nobody_to_speak_to() -> None:
    assert carriers_of(Device(0), current()) is None


# ---- A step by MPI


class Memory:
    """A plan's memory, as arrays of the host."""

    def __init__(self, plan: Any, values: dict[int, np.ndarray]) -> None:
        self.sizes = plan.sizes or {}
        self.device = SimpleNamespace(cupy=np, stream=Device(0))
        self._values = values

    def view(self, value: Any) -> np.ndarray:
        return self._values[value.slot]

    def at(self, value: Any) -> int:
        return int(self._values[value.slot].ctypes.data)


def stepped(make: Callable[[Any], Any], *, in_place: bool = False) -> list[np.ndarray]:
    """Return what a collective's step makes of operands that are one more than the rank."""
    x = mg.input("x", (2, 3))
    f = mg.function([x], make(x), device="cpu")
    f(np.ones((2, 3), np.float32))
    plan = f.plan
    (step,) = (s for s in plan.steps if s.kernel != "wait" and speaks(s.node))
    values = {
        value.slot: np.full(shape_of(value.type), 1.0 + current().rank, np.float32)
        for value in step.inputs
    }
    for value in step.outputs:
        values[value.slot] = np.empty(shape_of(value.type), value.type.dtype)
        if in_place:
            values[value.slot] = values[step.inputs[0].slot].reshape(shape_of(value.type))
    by_addresses(Memory(plan, values), step, current())()
    return [values[value.slot] for value in step.outputs]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_step_is_made_where_its_result_lies(in_place: bool) -> None:
    found = threads(2, lambda: stepped(ranks.allreduce, in_place=in_place))
    assert all((array == 3.0).all() and array.shape == (2, 3) for (array,) in found)
    found = threads(2, lambda: stepped(ranks.alltoall, in_place=in_place))
    for (array,) in found:
        assert array.reshape(2, 3).tolist() == [[1.0] * 3, [2.0] * 3]


def test_a_step_with_several_results() -> None:
    def several(x: Any) -> list[Any]:
        joined = ALLREDUCE_MANY(x * 1.0, x * 2.0, op="sum", group=(), size=2)
        return [ITEM(joined, index=i) for i in range(2)]

    for found in threads(2, lambda: stepped(several)):
        assert [array.tolist() for array in found] == [[[3.0] * 3] * 2] * 2


def test_a_step_that_is_a_message() -> None:
    def said(x: Any) -> Any:
        if ranks.rank() == 0:
            return ranks.send(x, to=1)
        return ranks.recv(x, source=0)

    found = threads(2, lambda: stepped(said))
    assert found[0][0].size == 0  # nothing reads what has been sent
    assert found[1][0].tolist() == [[1.0] * 3] * 2
