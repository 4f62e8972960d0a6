"""Run by mpiexec, a rank a device: collectives in captured graphs, against NumPy in float64."""

from __future__ import annotations

import sys

import numpy as np

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.dtypes import canonical, tolerance
from magmagraph.ir.op import Kind
from magmagraph.ops.collective.whole import ALLREDUCE_MANY
from magmagraph.ops.control.identities import ITEM
from magmagraph.runtime.cuda.launching.collectives import CollectiveCall
from magmagraph.runtime.cuda.launching.packing import FEW, packs_of
from magmagraph.runtime.cuda.launching.segments import Interpreted, Segment


def values(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return whole numbers, whose sums are exact in every dtype."""
    return np.random.default_rng(seed).integers(-8, 8, size=shape).astype(canonical(dtype))


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def every_collective(dtype: str) -> None:
    rank, size = ranks.rank(), ranks.size()
    shape = (2 * size, 3)
    x = mg.input("x", shape, canonical(dtype))
    twice = x + x
    made = {
        "sum": ranks.allreduce(twice),
        "gather": ranks.allgather(twice, axis=1),
        "scatter": ranks.reduce_scatter(twice),
        "swap": ranks.alltoall(twice, split=0, join=1),
        "first": ranks.broadcast(twice, root=size - 1),
        "ring": ranks.permute(twice, shift=1),
    }
    if dtype != "complex64":
        made["largest"] = ranks.allreduce(twice, "max")
        joined = ALLREDUCE_MANY(x, twice, op="sum", group=(), size=size)
        made["many"] = ITEM(joined, index=1)
    f = mg.function([x], made, device="cuda")
    for turn in range(4):  # one by one, captured, and twice from the graph
        given = [values(100 * turn + i, shape, dtype) for i in range(size)]
        found = {name: array.get() for name, array in f(given[rank]).items()}
        doubled = [2 * wide(array) for array in given]
        rows = slice(2 * rank, 2 * rank + 2)
        expected = {
            "sum": sum(doubled),
            "gather": np.concatenate(doubled, axis=1),
            "scatter": sum(doubled)[rows],
            "swap": np.concatenate([a[rows] for a in doubled], axis=1),
            "first": doubled[-1],
            "ring": doubled[rank - 1],
            "largest": None if dtype == "complex64" else np.max(doubled, axis=0),
            "many": sum(doubled),
        }
        for name, array in found.items():
            assert array.dtype == made[name].dtype, name
            assert np.array_equal(wide(array), expected[name]), (name, dtype, turn)
    check_captured(f, 6)


def one_message(dtype: str) -> None:
    """Small and large arrays of one message: the small ones travel side by side."""
    rank, size = ranks.rank(), ranks.size()
    shapes: list[tuple[int, ...]] = [
        (3,), (1 << 17,), (5, 7), (1,), (300_001,), (64, 100), (2, 1, 2),
    ]  # fmt: skip
    shapes += [(n % 9 + 1,) for n in range(FEW)]
    inputs = [mg.input(f"x{i}", shape, canonical(dtype)) for i, shape in enumerate(shapes)]
    joined = ALLREDUCE_MANY(*(x + x for x in inputs), op="sum", group=(), size=size)
    sums = [ITEM(joined, index=i) for i in range(len(shapes))]
    f = mg.function(inputs, [*sums, sums[0] * 2, sums[5] * 2], device="cuda")
    for turn in range(4):
        given = [
            [values(1000 * turn + 10 * r + i, shape, dtype) for i, shape in enumerate(shapes)]
            for r in range(size)
        ]
        found = [wide(array.get()) for array in f(*given[rank])]
        wanted = [sum(2 * wide(a) for a in of_ranks) for of_ranks in zip(*given, strict=True)]
        for got, want in zip(found, [*wanted, 2 * wanted[0], 2 * wanted[5]], strict=True):
            assert np.array_equal(got, want), (dtype, turn)
    assert len(packs_of([4 * int(np.prod(shape)) for shape in shapes])) == 1
    check_captured(f, 1)


def check_captured(f: mg.Function, least: int) -> None:
    """Check that collectives were captured with what is computed."""
    parts = [*f._last._before, *f._last._after]
    alone = [part.node.op.name for part in parts if isinstance(part, Interpreted)]
    assert not any(part.node.op.kind is Kind.COLLECTIVE for part in parts if hasattr(part, "node"))
    segments = [part for part in parts if isinstance(part, Segment)]
    said = [sum(isinstance(launch, CollectiveCall) for launch in s.launches) for s in segments]
    assert max(said) >= least, (said, alone)
    assert all(s.graph is not None for s in segments if len(s.launches) > 1), "not captured"


def training_step(device: str, joined: bool) -> tuple[list[np.ndarray], list[float]]:
    """Return variables and losses after some steps, on this rank's rows or on all of them."""
    rank, size = (ranks.rank(), ranks.size()) if joined else (0, 1)
    x = mg.input("x", ("batch", 64))
    layers = [mg.var(f"W{i}", (64, 64), init=mg.init.normal(0.0, 0.1, seed=i)) for i in range(4)]
    h = x
    for W in layers:
        h = mg.tanh(h @ W)
    total = ranks.allreduce if joined else (lambda node: node)
    loss = mg.sum(mg.square(h)) / total(mg.extent("batch"))
    gradients = [total(g) for g in mg.grad(loss, layers)]
    updates = {W: W - 0.1 * g for W, g in zip(layers, gradients, strict=True)}
    f = mg.function([x], total(loss), updates, device=device)
    losses = []
    for step in range(5):
        data = np.random.default_rng(step).normal(size=(24, 64)).astype(np.float32)
        losses.append(float(f(data[rank * 24 // size : (rank + 1) * 24 // size])))
    if joined and device != "cpu":
        check_captured(f, 5)
    return [W.value for W in layers], losses


def overlap() -> None:
    """Check that products run while gradients are added up, in the timeline of the graph."""
    x = mg.input("x", ("batch", 2048))
    layers = [mg.var(f"W{i}", (2048, 2048), init=mg.init.normal(0.0, 0.02)) for i in range(6)]
    h = x
    for W in layers:
        h = mg.tanh(h @ W)
    loss = mg.sum(mg.square(h))
    updates = {
        W: W - 1e-6 * ranks.allreduce(g)
        for W, g in zip(layers, mg.grad(loss, layers), strict=True)
    }
    f = mg.function([x], loss, updates, device="cuda")
    data = np.random.default_rng(0).normal(size=(1024, 2048)).astype(np.float32)
    for _ in range(3):
        f(data)
    tuning, mg.config.tuning = mg.config.tuning, False
    try:
        measured = f.profile(data)
    finally:
        mg.config.tuning = tuning
    said = [s for s in measured.spans if measured.steps[s[0]].kernel == "collective"]
    rest = [s for s in measured.spans if measured.steps[s[0]].kernel != "collective"]
    beside = sum(
        max(0, min(end, other_end) - max(begin, other))
        for _, _, begin, end in said
        for _, _, other, other_end in rest
    )
    whole = sum(end - begin for _, _, begin, end in said)
    assert len(said) == 6
    assert beside > whole / 4, (beside, whole)
    events = measured.to_trace()["traceEvents"]
    assert any(event.get("args", {}).get("name") == "collectives" for event in events)
    total = max(end for *_, end in measured.spans) - min(begin for _, _, begin, _ in measured.spans)
    print(
        f"rank {ranks.rank()}: {whole / 1e3:.0f} us of collectives, {beside / 1e3:.0f} beside "
        f"products, in {total / 1e3:.0f} us",
        file=sys.stderr,
    )


def main() -> None:
    world = ranks.init()
    assert world.size in (2, 4)
    for dtype in ("float64", "float32", "float16", "bfloat16", "int32", "complex64"):
        every_collective(dtype)
    for dtype in ("float64", "float32", "bfloat16", "complex64"):
        one_message(dtype)
    found, losses = training_step("cuda", joined=True)
    alone, expected = training_step("cpu", joined=False)
    row = tolerance(np.dtype(np.float32), "reassoc")
    for a, b in zip(found, alone, strict=True):
        assert row.close(a, b, 1.0)
    assert row.close(np.float32(losses), np.float32(expected), max(expected))
    bits = world.exchange(b"".join(a.tobytes() for a in found))
    assert all(other == bits[0] for other in bits), "ranks differ"
    overlap()
    print(f"rank {world.rank}: all right", file=sys.stderr)


if __name__ == "__main__":
    main()
