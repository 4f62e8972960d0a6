"""Collectives as operations, on ranks that are threads; the check before a first run; overlap."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.communicator import Mesh, current
from magmagraph.distributed.matching import Entry, play
from magmagraph.dtypes import canonical, tolerance
from magmagraph.errors import CommunicationError, GraphError
from magmagraph.ops.collective.whole import ALLREDUCE_MANY
from magmagraph.ops.control.identities import ITEM
from magmagraph.text import dump
from magmagraph.text_load import load

DTYPES = ("float32", "bfloat16", "int32", "complex64")
COUNT = 3


def values(seed: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return whole numbers, whose sums are exact in every dtype."""
    return np.random.default_rng(seed).integers(-8, 8, size=shape).astype(canonical(dtype))


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def every_collective(dtype: str) -> None:
    """Compare each collective with NumPy, on whichever ranks there are."""
    rank, size = ranks.rank(), ranks.size()
    shape = (2 * size, 3)
    given = [values(i, shape, dtype) for i in range(size)]
    x = mg.input("x", shape, canonical(dtype))
    n = mg.input("n", ("rows", 3), canonical(dtype))
    made = {
        "sum": ranks.allreduce(x),
        "named": ranks.allreduce(n),
        "gather": ranks.allgather(x, axis=1),
        "scatter": ranks.reduce_scatter(x),
        "swap": ranks.alltoall(x, split=0, join=1),
        "first": ranks.broadcast(x, root=size - 1),
        "ring": ranks.permute(x, shift=1),
        "place": ranks.index() + 0 * mg.cast(mg.real(x[0, 0]), "int64"),
        "none": ranks.allreduce(x[:0]),
    }
    if dtype != "complex64":
        made["largest"] = ranks.allreduce(x, "max")
    found = mg.function([x, n], made, device="cpu")(given[rank], given[rank])
    total = sum(map(wide, given))
    rows = slice(2 * rank, 2 * rank + 2)
    expected = {
        "sum": total,
        "named": total,
        "gather": np.concatenate([wide(a) for a in given], axis=1),
        "scatter": total[rows],
        "swap": np.concatenate([wide(a[rows]) for a in given], axis=1),
        "first": wide(given[-1]),
        "ring": wide(given[rank - 1]),
        "place": np.asarray(rank),
        "none": total[:0],
    }
    if "largest" in made:
        expected["largest"] = np.max([wide(a) for a in given], axis=0)
    for name, array in expected.items():
        assert found[name].dtype == made[name].dtype
        assert np.array_equal(wide(found[name]), wide(np.asarray(array))), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_collective_is_numpys(dtype: str) -> None:
    ranks.threads(COUNT, lambda: every_collective(dtype))


def many_arrays() -> None:
    rank, size = ranks.rank(), ranks.size()
    xs = [mg.input(f"x{i}", shape) for i, shape in enumerate(((3,), (), (2, 2), (0,)))]
    joined = ALLREDUCE_MANY(*xs, op="sum", group=(), size=size)
    made = [ITEM(joined, index=i) for i in range(len(xs))]
    arrays = [np.full(x.shape, 1.0 + rank) for x in xs]
    for result, array in zip(mg.function(xs, made, device="cpu")(*arrays), arrays, strict=True):
        assert np.array_equal(result, np.full(array.shape, size * (size + 1) / 2))


def test_several_arrays_go_in_one_message() -> None:
    ranks.threads(COUNT, many_arrays)


# ---- Gradients: of the sum of all ranks' losses, against the derivative in one process.


def whole_loss(xs: list[Any], kind: str, n: int) -> Any:
    """Return the sum of all ranks' losses, from all ranks' values, without any collective."""
    weights = [mg.constant(np.cos(np.arange(12.0).reshape(4, 3) + i)) for i in range(n)]
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    if kind == "sum":
        seen = [total] * n
    elif kind == "max":
        top = xs[0]
        for x in xs[1:]:
            top = mg.maximum(top, x)
        seen = [top] * n
    elif kind == "gather":
        seen = [mg.concatenate(xs)[i : i + 4] for i in range(n)]
    elif kind == "scatter":
        seen = [mg.concatenate([total[2 * i : 2 * i + 2]] * 2) for i in range(n)]
    elif kind == "swap":
        seen = [mg.concatenate([x[2 * i : 2 * i + 2] for x in xs]) for i in range(n)]
    elif kind == "first":
        seen = [xs[0]] * n
    else:
        seen = [xs[i - 1] for i in range(n)]
    return sum((mg.sum(mg.sin(s) * w) for s, w in zip(seen, weights, strict=True)), start=0.0)


def own_gradient(kind: str, arrays: list[np.ndarray]) -> np.ndarray:
    rank, size = ranks.rank(), ranks.size()
    x = mg.input("x", (4, 3), "float64")
    if kind in ("sum", "max"):
        seen = ranks.allreduce(x, kind)
    elif kind == "gather":
        seen = ranks.allgather(x)[rank : rank + 4]
    elif kind == "scatter":
        seen = mg.concatenate([ranks.reduce_scatter(x)] * 2)
    elif kind == "swap":
        seen = ranks.alltoall(x)
    elif kind == "first":
        seen = ranks.broadcast(x)
    else:
        seen = ranks.permute(x)
    weight = np.cos(np.arange(12.0).reshape(4, 3) + rank)
    loss = mg.sum(mg.sin(seen) * weight)
    assert size == len(arrays)
    result: np.ndarray = mg.function([x], mg.grad(loss, x), device="cpu")(arrays[rank])
    return result


@pytest.mark.parametrize("kind", ["sum", "max", "gather", "scatter", "swap", "first", "ring"])
def test_gradients_are_those_of_all_ranks_losses(kind: str, rng: np.random.Generator) -> None:
    arrays = [rng.normal(size=(4, 3)) for _ in range(2)]
    found = ranks.threads(2, lambda: own_gradient(kind, arrays))
    xs = [mg.input(f"x{i}", (4, 3), "float64") for i in range(2)]
    parts = mg.grad(whole_loss(xs, kind, 2), xs, unused="zeros")
    expected = mg.function(xs, parts, device="cpu")(*arrays)
    row = tolerance(np.dtype(np.float64), "reassoc")
    for own, wanted in zip(found, expected, strict=True):
        assert row.close(own, wanted, 1.0)


def test_ranks_that_tie_share_the_cotangent() -> None:
    def job() -> np.ndarray:
        x = mg.input("x", (2,))
        loss = mg.sum(ranks.allreduce(x, "max"))
        result: np.ndarray = mg.function([x], mg.grad(loss, x), device="cpu")(
            [1.0, float(ranks.rank())]
        )
        return result

    first, second = ranks.threads(2, job)
    assert first.tolist() == [1.0, 0.0]  # two losses, two ranks
    assert second.tolist() == [1.0, 2.0]


def test_gradients_of_several_results() -> None:
    def job() -> list[np.ndarray]:
        xs = [mg.input("a", (2,)), mg.input("b", ())]
        joined = ALLREDUCE_MANY(*xs, op="sum", group=(), size=ranks.size())
        loss = mg.sum(ITEM(joined, index=0)) * (1.0 + ranks.rank())
        found: list[np.ndarray] = mg.function(
            xs, mg.grad(loss, xs, unused="zeros"), device="cpu"
        )([1.0, 2.0], 3.0)
        return found

    for part, unread in ranks.threads(2, job):
        assert part.tolist() == [3.0, 3.0]
        assert unread == 0.0


def test_examples_are_mapped_in_one_message() -> None:
    def job() -> None:
        rank, size = ranks.rank(), ranks.size()
        x = mg.input("x", (5, 2, 3), "float64")
        array = values(rank, (5, 2, 3), "float64")
        for one in (
            lambda r: ranks.allreduce(r),
            lambda r: ranks.allgather(r, axis=1),
            lambda r: ranks.reduce_scatter(r),
            lambda r: ranks.alltoall(r, 0, 1),
            lambda r: ranks.permute(r),
            lambda r: ranks.broadcast(r, 1) * ranks.index(),
        ):
            mapped = mg.function([x], mg.vmap(one)(x), device="cpu")
            each = mg.function([x], mg.stack([one(x[i]) for i in range(5)]), device="cpu")
            assert np.array_equal(mapped(array), each(array))
            assert sum(s.kernel == "collective" for s in mapped.plan.steps) == 1
        assert size == 2

    ranks.threads(2, job)


# ---- Groups


def test_groups_are_axes_of_the_mesh() -> None:
    def job() -> tuple[Any, ...]:
        x = mg.input("x")
        made = [ranks.allreduce(x, group=g) for g in ((), "data", ("tensor",), ("tensor", "data"))]
        f = mg.function([x], [*made, ranks.index("tensor")], device="cpu")
        assert made[3].attrs["group"] == ()
        return tuple(float(v) for v in f(10.0 ** ranks.rank()))

    found = ranks.threads(4, job, mesh=Mesh(data=2, tensor=2))
    assert found[0] == (1111.0, 101.0, 11.0, 1111.0, 0.0)
    assert found[3] == (1111.0, 1010.0, 1100.0, 1111.0, 1.0)


def test_a_function_keeps_the_mesh_that_it_was_made_in() -> None:
    def job() -> float:
        x = mg.input("x")
        with ranks.use(Mesh(data=2, tensor=2)):
            f = mg.function([x], ranks.allreduce(x, group="tensor"), device="cpu")
        return float(f(10.0 ** ranks.rank()))

    assert ranks.threads(4, job) == [11.0, 11.0, 1100.0, 1100.0]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Mesh(), "a mesh without axes"),
        (lambda: Mesh(data=0), "the mesh axis data=0"),
        (lambda: Mesh(data=2).group("tensor"), "group='tensor' names 'tensor'"),
        (lambda: Mesh(a=2, b=2).group(("a", "a")), "names 'a' twice"),
        (lambda: current().arranged(Mesh(data=2)), r"arranges 2 ranks, and there is 1"),
        (lambda: ranks.send(mg.constant(1.0), to=1), "to=1 of 1 ranks"),
        (lambda: ranks.recv(mg.constant(1.0), 0, tag=-1), "tag=-1"),
        (lambda: ranks.threads(0, lambda: None), "0 ranks"),
    ],
)
def test_wrong_use_is_named(make: Any, text: str) -> None:
    with pytest.raises(GraphError, match=text):
        make()


@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({}, 1),
        ({"PMI_SIZE": "4"}, 4),
        ({"OMPI_COMM_WORLD_SIZE": "2", "SLURM_NTASKS": "8"}, 2),
        ({"SLURM_STEP_NUM_TASKS": "3"}, 3),
        ({"PMI_SIZE": "many"}, 1),
    ],
)
def test_what_a_launcher_says_of_the_number_of_ranks(
    variables: dict[str, str], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from magmagraph.runtime.comm import ranks_started

    for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ranks_started() == count


def test_the_communicator_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    from magmagraph.runtime.comm import world

    monkeypatch.setenv("PMI_SIZE", "4")
    monkeypatch.setenv("MAGMAGRAPH_COMMUNICATOR", "solo")
    assert world().kind == "solo"
    monkeypatch.setenv("MAGMAGRAPH_COMMUNICATOR", "telepathy")
    with pytest.raises(mg.ConfigError, match="MAGMAGRAPH_COMMUNICATOR is 'telepathy'"):
        world()


# ---- Messages


def test_messages_and_their_gradients() -> None:
    """Two ranks with roles: one has the weights, the other the loss."""

    def job() -> list[np.ndarray]:
        x = mg.input("x", (3,))
        if ranks.rank() == 0:
            W = mg.var("W", init=np.ones(3, np.float32))
            loss = mg.sum(ranks.send(W * x, to=1)) * 0.0
            gradient = mg.grad(loss, W)
        else:
            loss = mg.sum(mg.square(ranks.recv(x, source=0)))
            gradient = mg.grad(loss, x)
        found: list[np.ndarray] = mg.function([x], [loss, gradient], device="cpu")([0.0, 1.0, 2.0])
        return found

    (_, of_weights), (loss, of_template) = ranks.threads(2, job)
    assert loss == 5.0
    assert of_weights.tolist() == [0.0, 2.0, 8.0]  # 2 (W x) x
    assert of_template.tolist() == [0.0, 0.0, 0.0]


def test_barriers_and_sends_stay_where_nobody_reads_what_they_pass_on() -> None:
    def job() -> int:
        x = mg.input("x")
        f = mg.function([x], ranks.barrier(x) + 1.0, device="cpu")
        assert f(1.0) == 2.0
        return sum(step.kernel == "collective" for step in f.plan.steps)

    assert ranks.threads(2, job) == [1, 1]


def test_objects_are_posted_and_polled() -> None:
    def job() -> Any:
        world = current()
        if world.rank:
            world.post({"from": world.rank}, 0, tag=7)
            return None
        found = []
        while len(found) < 2:
            arrived = world.poll(tag=7)
            if arrived is not None:
                found.append(arrived)
        assert world.poll(tag=8) is None
        return sorted(found, key=lambda pair: pair[0])

    assert ranks.threads(3, job)[0] == [(1, {"from": 1}), (2, {"from": 2})]


def test_ranks_split_by_colour() -> None:
    def job() -> Any:
        world = current()
        part = world.split(None if world.rank == 3 else world.rank % 2, key=-world.rank)
        return None if part is None else part.exchange(world.rank)

    assert ranks.threads(4, job) == [[2, 0], [1], [2, 0], None]


# ---- The check before a first run


def mismatched() -> None:
    size = 3 + ranks.rank()
    x = mg.input("x", (size,))
    mg.function([x], ranks.allreduce(x), name="step", device="cpu")(np.ones(size))


def test_a_mismatch_is_named_before_any_step_runs() -> None:
    seen = []

    def job() -> None:
        x = mg.input("x", (3 + ranks.rank(),))
        watched = mg.debug.tap(x, seen.append)
        f = mg.function([x], ranks.allreduce(watched), name="step", device="cpu")
        with pytest.raises(CommunicationError) as raised:
            f(np.ones(3 + ranks.rank()))
        text = str(raised.value)
        assert "the function 'step'" in text
        assert "rank 0, collective 0: allreduce(float32[3], op=sum), at" in text
        assert "rank 1, collective 0: allreduce(float32[4], op=sum), at" in text
        assert "test_collectives.py" in text

    ranks.threads(2, job)
    assert not seen


def test_extents_that_differ_are_named_at_the_call() -> None:
    """Formulas are equal on all ranks; what they come to is known at a call only."""

    def job() -> None:
        x = mg.input("x", ("batch", 2))
        f = mg.function([x], ranks.allgather(x), device="cpu")
        assert f(np.ones((3, 2))).shape == (6, 2)
        with pytest.raises(CommunicationError) as raised:
            f(np.ones((3 + ranks.rank(), 2)))
        assert str(raised.value).startswith(
            "allgather is given extents (3, 2) on rank 0 and (4, 2) on rank 1; nothing has run"
        )
        assert f(np.ones((5, 2))).shape == (10, 2)

    ranks.threads(2, job)


def test_a_message_without_a_receiver_is_named() -> None:
    def job() -> None:
        x = mg.input("x", (3,))
        y = ranks.send(x, to=1, tag=5) if ranks.rank() == 0 else ranks.allreduce(x)
        with pytest.raises(CommunicationError, match="do not fit each other; no step has run"):
            mg.function([x], y, device="cpu")(np.ones(3))

    ranks.threads(2, job)


@pytest.mark.parametrize(
    ("formula", "difference"),
    [
        (
            lambda x, w: mg.sum(x @ w, axis=0) if ranks.rank() else mg.max(x @ w, axis=0),
            "node 3: max(%2): float32[2], at ",
        ),
        (lambda x, w: mg.sum(x @ w, axis=(0,) if ranks.rank() else (0, 1)), "sum(%2): float32[]"),
        (
            lambda x, w: mg.sum(x @ w) * 2.0 if ranks.rank() else mg.sum(x @ w),
            "rank 0, node 4: outputs and updates: %3\n  rank 1, node 4: ",
        ),
    ],
    ids=["operations", "types", "lengths"],
)
def test_graphs_that_differ_under_a_strategy_are_named(formula: Any, difference: str) -> None:
    """Before anything is broadcast or chosen together, which would answer another question."""

    def job() -> None:
        x = mg.input("x", ("batch", 5))
        w = mg.variable("w", init=np.ones((5, 2), np.float32))
        f = mg.function([x], formula(x, w), distribute=ranks.DataParallel(), device="cpu")
        with pytest.raises(CommunicationError) as raised:
            f(np.ones((4, 5), np.float32))
        text = str(raised.value)
        assert "differ, and `distribute=` cuts one graph; nothing has run\n  rank 0, " in text
        assert difference in text

    ranks.threads(2, job)


def test_a_group_that_is_no_name_is_refused() -> None:
    with pytest.raises(GraphError, match=r"group=5 names 5\n  needed: axes of the mesh: data"):
        Mesh(data=2).group(5)  # type: ignore[arg-type]


def test_variables_of_other_shapes_are_named_and_keep_their_values() -> None:
    def job() -> None:
        x = mg.input("x", ("batch", 5))
        values = np.full((5, 2 + ranks.rank()), ranks.rank(), np.float32)
        w = mg.variable("w", init=values)
        f = mg.function([x], mg.sum(x @ w), distribute=ranks.DataParallel(), device="cpu")
        with pytest.raises(CommunicationError, match=r"variable: float32\[5, 3\], at "):
            f(np.ones((4, 5), np.float32))
        np.testing.assert_array_equal(w.value, values)

    ranks.threads(2, job)


def test_ranks_with_roles_choose_for_themselves() -> None:
    """Rank 0 has forms of a product to choose between while it makes its plan, rank 1 has none."""

    def job() -> None:
        x = mg.input("x", (5,) if ranks.rank() else ("rows", 5))
        w = mg.variable("w", init=np.ones((5, 5), np.float32))
        if ranks.rank():
            f = mg.function([x], ranks.recv(x, 0), device="cpu")
            np.testing.assert_array_equal(f(np.zeros(5, np.float32)), np.full(5, 20.0))
        else:
            total = ranks.send(mg.sum(x @ w, axis=0), 1)
            mg.function([x], total, device="cpu")(np.ones((4, 5), np.float32))

    ranks.threads(2, job)


def test_two_that_wait_for_each_other_are_named() -> None:
    def job() -> None:
        x = mg.input("x", (3,))
        other = 1 - ranks.rank()
        f = mg.function([x], ranks.send(ranks.recv(x, other) * 2.0, other), device="cpu")
        with pytest.raises(CommunicationError, match=r"rank 1, collective 0: a message .* to 1"):
            f(np.ones(3))

    ranks.threads(2, job)


def test_a_collective_in_a_branch_is_refused_and_in_a_loop_is_not() -> None:
    def job() -> float:
        x, p = mg.input("x", (3,)), mg.input("p", dtype="bool")
        f = mg.function([x, p], mg.cond(p, lambda: ranks.allreduce(x), lambda: x), device="cpu")
        with pytest.raises(CommunicationError, match="stands in a branch, or in a loop whose"):
            f(np.ones(3), True)
        total, _ = mg.scan(lambda c, v: (c + ranks.allreduce(v), c), mg.constant(0.0), x)
        return float(mg.function([x], total, device="cpu")(np.ones(3)))

    assert ranks.threads(2, job) == [6.0, 6.0]


def test_graphs_of_all_ranks_are_equal() -> None:
    def job() -> str:
        x = mg.input("x", ("batch", 4))
        W = mg.var("W", (4, 4), init=mg.init.zeros())
        loss = mg.sum(mg.tanh(mg.dropout(x, 0.5) @ W)) * ranks.index()
        gradient = ranks.allreduce(mg.grad(loss, W))
        f = mg.function([x], ranks.allreduce(loss), {W: W - gradient}, device="cpu")
        f(np.ones((2 + ranks.rank(), 4)))
        return mg.show(f.graph).text()

    first, *others = ranks.threads(3, job)
    assert all(text == first for text in others)


def test_the_player_finds_the_first_rank_that_hangs() -> None:
    def together(what: str, *members: int) -> Entry:
        return Entry(members, False, False, what, 0, "")

    pairs = [together("a", 0, 1), together("b", 2, 3), together("c", 0, 1, 2, 3)]
    fits = {0: [pairs[0], pairs[2]], 1: [pairs[0], pairs[2]]}
    fits |= {2: [pairs[1], pairs[2]], 3: [pairs[1], pairs[2]]}
    assert play(fits) == ""
    fits[3] = [pairs[2], pairs[1]]
    assert play(fits).splitlines()[:2] == ["rank 0, collective 1: c", "rank 1, collective 1: c"]
    assert play({0: [pairs[0]], 1: []}).splitlines() == [
        "rank 0, collective 0: a", "rank 1, collective 0: none: it is done",
    ]  # fmt: skip


# ---- Failure


def test_the_error_of_a_rank_ends_all_and_names_it() -> None:
    def job() -> None:
        if ranks.rank() == 1:
            raise KeyError("gone")
        current().barrier()

    began = time.monotonic()
    with pytest.raises(KeyError) as raised:
        ranks.threads(3, job)
    assert raised.value.__notes__ == ["raised by rank 1 of 3"]
    assert time.monotonic() - began < 30


def test_a_rank_that_does_not_come_is_named() -> None:
    def job(seconds: float) -> None:
        if ranks.rank() == 0:
            current().barrier()
        time.sleep(seconds)

    with pytest.raises(CommunicationError, match="rank 0 waits in a barrier for rank 1, for 0.2 s"):
        ranks.threads(2, lambda: job(1.0), timeout=0.2)
    # One that has ended will not come: nobody waits for the time to run out.
    with pytest.raises(CommunicationError, match="in a barrier for rank 1; rank 1 has ended"):
        ranks.threads(2, lambda: job(0.0), timeout=30.0)


# ---- Overlap


def training(steps: int) -> tuple[list[np.ndarray], Any]:
    x = mg.input("x", ("batch", 8))
    layers = [mg.var(f"W{i}", (8, 8), init=mg.init.normal(seed=i)) for i in range(4)]
    h: Any = x
    for W in layers:
        h = mg.tanh(h @ W)
    loss = mg.sum(mg.square(h))
    updates = {
        W: W - 0.01 * ranks.allreduce(g)
        for W, g in zip(layers, mg.grad(loss, layers), strict=True)
    }
    f = mg.function([x], ranks.allreduce(loss), updates, device="cpu")
    for step in range(steps):
        f(np.random.default_rng(10 * step + ranks.rank()).normal(size=(5 + ranks.rank(), 8)))
    return [W.value for W in layers], f.plan


def test_collectives_beside_other_steps_change_nothing() -> None:
    plain = ranks.threads(3, lambda: training(3))
    beside = ranks.threads(3, lambda: training(3), overlap=True)
    row = tolerance(np.dtype(np.float32), "reassoc")
    for (first, _), (second, _) in zip(plain, beside, strict=True):
        for a, b, same in zip(first, second, beside[0][0], strict=True):
            assert row.close(a, b, 1.0)
            assert np.array_equal(b, same)  # all ranks, bit for bit
    plan = beside[0][1]
    kernels = [step.kernel for step in plan.steps]
    begun = kernels.index("collective", kernels.index("collective") + 1)
    assert "gemm" in kernels[begun : kernels.index("wait")], "nothing runs beside"
    assert plan.commit > max(i for i, k in enumerate(kernels) if k == "wait")
    assert "wait" not in [step.kernel for step in plain[0][1].steps]


def test_the_timeline_shows_collectives_under_way() -> None:
    def job() -> Any:
        x = mg.input("x", (16, 16))
        W = mg.var("W", (16, 16), init=mg.init.normal(seed=1))
        total = ranks.allreduce(mg.tanh(x))
        f = mg.function([x], mg.tanh(mg.tanh(x @ W) @ W) + total, device="cpu")
        return f.profile(np.ones((16, 16))).to_trace()

    trace, _ = ranks.threads(2, job, overlap=True)
    events = trace["traceEvents"]
    (under,) = [event for event in events if "awaited" in event.get("args", {})]
    inside = [
        event["name"]
        for event in events
        if event.get("cat") in ("gemm", "fused")
        and under["ts"] <= event["ts"]
        and event["ts"] + event["dur"] <= under["ts"] + under["dur"]
    ]
    assert len(inside) >= 2, "no step runs beside it"


def test_what_fails_beside_other_steps_is_raised_where_it_is_waited_for() -> None:
    def job() -> None:
        x = mg.input("x", (4, 4))
        total = ranks.allreduce(x)
        f = mg.function([x], mg.tanh(x @ x) @ x + total, device="cpu")
        f(np.ones((4, 4)))
        if ranks.rank() == 0:
            raise ValueError("no more")
        f(np.ones((4, 4)))

    with pytest.raises(ValueError, match="no more"):
        ranks.threads(2, job, overlap=True, timeout=20)


# ---- Beside the rest


def test_check_value_and_texts_know_collectives() -> None:
    def job() -> None:
        x = mg.input("x", ("batch", 4))
        total = ranks.allreduce(mg.sum(mg.exp(x), axis=0))
        f = mg.function([x], mg.log(total), device="cpu")
        array = np.random.default_rng(ranks.rank()).normal(size=(3, 4))
        f(array)
        assert f.check(array).ok
        assert f.value(total, array).shape == (4,)
        text = dump(f.source_graph)
        assert dump(load(text)) == text
        assert "collective" in mg.show(f).svg()
        assert "allreduce" in str(f.plan)
        assert f.communicator is current()

    ranks.threads(2, job)
