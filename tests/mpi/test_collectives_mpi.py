"""The communicator of MPI: every method and collective against NumPy, groups, faults, overlap."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.dtypes import canonical, tolerance
from magmagraph.errors import CommunicationError
from magmagraph.ir.communicator import Mesh
from magmagraph.ir.cores import widest_affinity
from magmagraph.ir.ranks import current, using

DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "complex64")
JOIN = {"sum": np.add, "max": np.maximum, "min": np.minimum}
LARGE = 300_007  # elements: through shared memory, and no multiple of the ranks


def values(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return whole numbers, whose sums are exact in every dtype."""
    return np.random.default_rng(seed).integers(-8, 8, size=shape).astype(canonical(dtype))


def wide(array: Any) -> np.ndarray:
    return np.asarray(array).astype(np.complex128)


def methods(dtype: str, shape: tuple[int, ...]) -> None:
    world = current()
    rank, size = world.rank, world.size
    given = [values(i, shape, dtype) for i in range(size)]
    mine = given[rank]
    for op, join in JOIN.items():
        if op != "sum" and dtype == "complex64":
            continue
        expected = given[0].astype(np.complex64 if dtype == "complex64" else np.float64)
        for other in given[1:]:
            expected = join(expected, other.astype(expected.dtype))
        found = world.allreduce(mine, op)
        assert found.dtype == mine.dtype
        assert np.array_equal(wide(found), wide(expected))
        own = mine.copy()
        world.allreduce(own, op, own)
        assert np.array_equal(wide(own), wide(expected))
    assert np.array_equal(world.allgather(mine), np.stack(given))
    assert np.array_equal(world.broadcast(mine, size - 1), given[-1])
    assert np.array_equal(world.permute(mine, 1), given[rank - 1])
    rows = [values(100 + i, (size, *shape), dtype) for i in range(size)]
    assert np.array_equal(world.alltoall(rows[rank]), np.stack([r[rank] for r in rows]))
    part = world.reduce_scatter(rows[rank], "sum")
    assert np.array_equal(wide(part), sum(wide(r[rank]) for r in rows))


@pytest.mark.parametrize("dtype", DTYPES)
def test_methods(on_ranks: Callable[..., Any], dtype: str) -> None:
    for shape in ((), (0,), (3, 5), (LARGE,)):
        on_ranks(2, methods, dtype, shape)


def test_methods_on_four(on_ranks: Callable[..., Any]) -> None:
    for dtype in ("float32", "bfloat16"):
        for shape in ((7,), (LARGE,)):
            on_ranks(4, methods, dtype, shape)


def nan_and_order() -> None:
    world = current()
    for count in (3, LARGE):
        mine = np.full(count, float(world.rank), np.float32)
        if world.rank == 1:
            mine[0] = np.nan
        assert np.isnan(world.allreduce(mine, "max")[0])
    mine = np.random.default_rng(world.rank).normal(size=LARGE).astype(np.float32)
    total = world.allreduce(mine, "sum")
    bits = world.exchange(total.tobytes())
    assert all(other == bits[0] for other in bits)


def test_nan_wins_and_all_ranks_get_the_same_bits(on_ranks: Callable[..., Any]) -> None:
    on_ranks(4, nan_and_order)


def many() -> None:
    world = current()
    shapes = ((3,), (), (0,), (200, 1000), (7, 11))
    for scale in (1, 3):
        arrays = [np.full(shape, 1.0 + world.rank, np.float32) for shape in shapes * scale]
        outs = [np.empty_like(array) for array in arrays]
        world.allreduce_many(arrays, "sum", outs)
        for out in outs:
            assert (out == world.size * (world.size + 1) / 2).all()


def test_several_arrays(on_ranks: Callable[..., Any]) -> None:
    on_ranks(2, many)
    on_ranks(4, many)


def in_turns() -> None:
    """Sum arrays of sizes that go different ways, whose buffers must not meet."""
    world = current()
    sizes = (4096, 200_003, 4096, 300_007, 300_007, 20, 4096, 5_000_011, 200_003, 4096)
    for turn, count in enumerate(sizes * 3):
        given = np.resize(np.arange(100, dtype=np.float32), count) + turn
        mine = given * (1 + world.rank)
        if turn % world.size == world.rank:
            np.sort(np.random.default_rng(turn).random(200_000))  # another rank is late each time
        if turn % 2:
            found = world.allreduce(mine, "sum", mine)
        else:
            found = world.allreduce(mine, "sum")
        assert (found == given * (world.size * (world.size + 1) // 2)).all(), (turn, count)


def test_arrays_of_many_sizes_in_turns(on_ranks: Callable[..., Any]) -> None:
    on_ranks(2, in_turns)
    on_ranks(3, in_turns)
    on_ranks(4, in_turns)


def graph() -> None:
    rank, size = ranks.rank(), ranks.size()
    x = mg.input("x", ("batch", 4))
    W = mg.var("W", init=np.eye(4, dtype=np.float32))
    count = ranks.allreduce(mg.extent("batch"))
    loss = mg.sum(mg.square(mg.tanh(x @ W))) / count
    gradient = ranks.allreduce(mg.grad(loss, W))
    f = mg.function([x], ranks.allreduce(loss), {W: W - 0.1 * gradient}, device="cpu")
    data = np.random.default_rng(7).normal(size=(3, 11, 4)).astype(np.float32)
    bounds = [0, *(3 + 2 * i for i in range(size - 1)), 11]  # of unequal lengths
    losses = [float(f(batch[bounds[rank] : bounds[rank + 1]])) for batch in data]

    whole = mg.var("whole", init=np.eye(4, dtype=np.float32))
    alone = mg.sum(mg.square(mg.tanh(x @ whole))) / mg.extent("batch")
    step = mg.function([x], alone, {whole: whole - 0.1 * mg.grad(alone, whole)}, device="cpu")
    row = tolerance(np.dtype(np.float32), "reassoc")
    for batch, found in zip(data, losses, strict=True):
        assert row.close(np.float32(found), step(batch), 1.0)
    assert row.close(W.value, whole.value, 1.0)


def test_a_step_on_rows_of_unequal_number_is_that_of_one_process(
    on_ranks: Callable[..., Any],
) -> None:
    on_ranks(2, graph)
    on_ranks(4, graph)


def grouped() -> tuple[float, ...]:
    x = mg.input("x")
    with ranks.use(Mesh(data=2, tensor=2)):
        made = [ranks.allreduce(x, group=g) for g in ("data", "tensor")]
        f = mg.function([x], made, device="cpu")
    return tuple(float(v) for v in f(10.0 ** ranks.rank()))


def test_groups(on_ranks: Callable[..., Any]) -> None:
    found = on_ranks(4, grouped)
    assert found == [(101.0, 11.0), (1010.0, 11.0), (101.0, 1100.0), (1010.0, 1100.0)]


def messages() -> Any:
    world = current()
    other = world.size - 1 - world.rank
    large = np.full(LARGE, float(world.rank))
    world.send(large, other, 3)  # to each other: a send does not wait
    assert (world.recv(np.empty(LARGE), other, 3) == other).all()
    world.send(np.ones(4, np.float32), other, 4)
    with pytest.raises(CommunicationError, match="sent 16 bytes to rank"):
        world.recv(np.empty(4), other, 4)
    world.recv(np.empty(4, np.float32), other, 4)
    part = world.split(world.rank % 2)
    assert part is not None
    assert part.exchange(world.rank) == list(range(world.rank % 2, world.size, 2))
    if world.rank:
        world.post(("from", world.rank), 0, tag=9)
        return None
    found: list[Any] = []
    while len(found) < world.size - 1:
        arrived = world.poll(tag=9)
        found += [] if arrived is None else [arrived]
    return sorted(found)


def test_messages_and_objects(on_ranks: Callable[..., Any]) -> None:
    assert on_ranks(2, messages)[0] == [(1, ("from", 1))]
    assert on_ranks(4, messages)[0] == [(i, ("from", i)) for i in (1, 2, 3)]


def beside() -> None:
    from magmagraph.runtime.comm.mpi import mpi_world

    x = mg.input("x", ("batch", 32))
    with using(mpi_world(overlap=True)) as world:
        assert world.overlaps
        layers = [mg.var(f"W{i}", (32, 32), init=mg.init.normal(seed=i)) for i in range(3)]
        h: Any = x
        for W in layers:
            h = mg.tanh(h @ W)
        gradients = mg.grad(mg.sum(mg.square(h)), layers)
        f = mg.function([x], [ranks.allreduce(g) for g in gradients], device="cpu")
        arrays = [np.random.default_rng(i).normal(size=(4, 32)) for i in range(world.size)]
        found = f(arrays[world.rank])
        assert any(step.kernel == "wait" for step in f.plan.steps)
    alone = mg.function([x], gradients, device="cpu")
    row = tolerance(np.dtype(np.float32), "reassoc")
    each = [alone(array) for array in arrays]
    for i, total in enumerate(found):
        expected = sum(parts[i] for parts in each)
        assert row.close(total, expected, float(np.abs(expected).max()))


def test_collectives_beside_other_steps(on_ranks: Callable[..., Any]) -> None:
    on_ranks(2, beside)


def mismatched() -> str:
    x = mg.input("x", (3 + ranks.rank(),))
    f = mg.function([x], ranks.allreduce(x), name="step", device="cpu")
    with pytest.raises(CommunicationError) as raised:
        f(np.ones(3 + ranks.rank()))
    return str(raised.value)


def test_a_mismatch_is_named_on_every_rank(on_ranks: Callable[..., Any]) -> None:
    for text in on_ranks(2, mismatched):
        assert "rank 0, collective 0: allreduce(float32[3], op=sum), at" in text
        assert "rank 1, collective 0: allreduce(float32[4], op=sum), at" in text


def test_the_world_is_found_and_mpi_comes_late(mpiexec: Callable[..., Any]) -> None:
    done = mpiexec(
        2,
        """
        import sys
        import magmagraph as mg
        assert "mpi4py" not in sys.modules
        world = mg.distributed.init()
        assert "mpi4py" in sys.modules
        # In one piece: the pieces of two ranks may come mixed.
        sys.stdout.write(f"{world.kind} {mg.distributed.rank()} of {mg.distributed.size()}\\n")
        """,
    )
    assert done.status == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["MPI 0 of 2", "MPI 1 of 2"]


def test_a_rank_that_raises_ends_the_job(mpiexec: Callable[..., Any]) -> None:
    began = time.monotonic()
    done = mpiexec(
        2,
        """
        import numpy as np
        import magmagraph as mg
        x = mg.input("x")
        f = mg.function([x], mg.distributed.allreduce(x), device="cpu")
        f(1.0)
        if mg.distributed.rank() == 1:
            raise ValueError("no more")
        f(2.0)
        """,
    )
    assert done.status != 0
    assert "ValueError: no more" in done.stderr
    assert "rank 1 of 2" in done.stderr
    assert time.monotonic() - began < 25
    assert not done.left


def busy_while_waiting(name: str, seconds: float) -> float:
    """Return the seconds of a core that a rank takes to wait for the first one."""
    world = current()
    given, taken = np.ones((world.size, 3)), np.empty((world.size, 3))
    wait: dict[str, Callable[[], Any]] = {
        "barrier": world.barrier,
        "allreduce": lambda: world.allreduce(given, "sum"),
        "broadcast": lambda: world.broadcast(given, 0),
        "recv": lambda: world.rank and world.recv(taken, 0, 5),
        "large": lambda: world.allreduce(np.ones(LARGE), "sum"),
    }
    wait["large"]()  # the memory that ranks share is made now
    world.barrier()
    if world.rank == 0:
        time.sleep(seconds)
        if name == "recv":
            for other in range(1, world.size):
                world.send(given, other, 5)
    began = time.process_time()
    wait[name]()
    return time.process_time() - began if world.rank else 0.0


@pytest.mark.skipif(widest_affinity() >= 4, reason="each of four ranks has a core")
@pytest.mark.parametrize("name", ["barrier", "allreduce", "broadcast", "recv", "large"])
def test_ranks_that_share_cores_sleep_while_they_wait(on_ranks: Any, name: str) -> None:
    seconds = 0.6  # three that ask again and again, on two cores, would take 0.4 each
    assert max(on_ranks(4, busy_while_waiting, name, seconds)) < 0.2


def let_go_of() -> None:
    """Send by a communicator that is gone before the message is taken."""
    world = current()
    if world.rank == 0:
        pair = world.subset((0, 1))
        for turn in range(4):
            pair.send(np.full(LARGE, float(turn), np.float32), 1, turn)
        pair.post("ready", 1)
        del pair
        again = [np.full(LARGE, -1.0, np.float32) for _ in range(8)]  # in the place of what is free
        world.barrier()
        assert len(again) == 8
    else:
        pair = world.subset((0, 1))
        world.barrier()
        assert pair.poll() == (0, "ready")
        for turn in range(4):
            found = pair.recv(np.empty(LARGE, np.float32), 0, turn)
            assert (found == turn).all(), turn


def test_messages_outlive_their_communicator(on_ranks: Callable[..., Any]) -> None:
    on_ranks(2, let_go_of)


def test_messages_outlive_the_sender_s_program(mpiexec: Callable[..., Any]) -> None:
    """A rank sends and is through; the other one takes its time."""
    done = mpiexec(2, """
        import sys, time
        import numpy as np
        import magmagraph as mg
        world = mg.distributed.init()
        for turn in range(4):
            if world.rank == 0:
                world.send(np.full(1 << 20, float(turn), np.float32), 1, turn)
            else:
                time.sleep(0.3)
                found = world.recv(np.empty(1 << 20, np.float32), 0, turn)
                assert (found == turn).all(), found[:4]
        print(f"rank {world.rank} has all", flush=True)
    """)  # fmt: skip
    assert done.status == 0, done.output
    assert done.output.count("has all") == 2
