"""Collectives as operations, on ranks that are threads; their gradients; groups; overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.dtypes import canonical, tolerance
from magmagraph.errors import GraphError
from magmagraph.ir.communicator import Mesh
from magmagraph.ir.ranks import current
from magmagraph.ops.collective.whole import ALLREDUCE_MANY
from magmagraph.ops.control.identities import ITEM
from magmagraph.text.reading import load
from magmagraph.text.writing import dump

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
