"""Messages, and every strategy against one GPU: run by mpiexec, a rank a device, two or four."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from spread import OPTIMIZERS, layers, trained

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.distributed import (
    DataParallel,
    Hybrid,
    Mesh,
    PipelineParallel,
    TensorParallel,
)
from magmagraph.dtypes import canonical, tolerance
from magmagraph.runtime.cuda.launching.segments import Interpreted, Segment, lane_of

FLOAT64, FLOAT32 = np.dtype(np.float64), np.dtype(np.float32)


def say(text: str) -> None:
    print(f"rank {ranks.rank()}: {text}", file=sys.stderr, flush=True)


def host(array: Any) -> np.ndarray:
    return np.asarray(array.get() if hasattr(array, "get") else array)


def captured(f: mg.Function, messages: int = 0) -> None:
    """Check that nothing runs between captured graphs, and how many messages are in them."""
    parts = [*f._last._before, *f._last._after]
    alone = {part.node.op.name for part in parts if isinstance(part, Interpreted)}
    assert not alone, alone
    segments = [part for part in parts if isinstance(part, Segment)]
    assert all(s.graph is not None for s in segments if len(s.launches) > 1), "not captured"
    found = sum(bool(lane_of(launch)) for s in segments for launch in s.launches)
    assert found >= messages, (found, messages)


# ---- Messages


def crossing() -> None:
    """Both ranks of a pair send, write over what they have sent, and receive: none waits."""
    rank = ranks.rank()
    other = rank ^ 1
    x, held = mg.input("x", (1 << 20,)), mg.var("held", init=np.zeros(1 << 20, np.float32))
    sent = ranks.send(x * (rank + 1.0), to=other, tag=0)
    more = ranks.send(sent * 2.0, to=other, tag=1)
    first = ranks.recv(more, source=other, tag=0)
    second = ranks.recv(first, source=other, tag=1)
    f = mg.function([x], [first, second, mg.sum(more)], {held: held + first}, device="cuda")
    total = np.zeros(1 << 20, np.float32)
    for turn in range(6):
        rows = [np.arange(1 << 20, dtype=np.float32) % (97 + turn + r) for r in range(ranks.size())]
        found = [host(array) for array in f(rows[rank])]
        theirs = rows[other] * (other + 1.0)
        np.testing.assert_array_equal(found[0], theirs)
        np.testing.assert_array_equal(found[1], 2.0 * theirs)
        total += theirs
    np.testing.assert_array_equal(held.value, total)
    captured(f, 4)
    f.run(20, rows[rank])  # several steps in one graph, which use one copy
    np.testing.assert_array_equal(held.value, total + 20.0 * theirs)
    assert f.profile(rows[rank]).steps


def turned() -> None:
    """Messages that are taken in another order than they are sent go through the host."""
    other, sends = ranks.rank() ^ 1, ranks.rank() % 2 == 0
    x = mg.input("x", (1000,))
    if sends:
        first = ranks.send(x * 2.0, to=other, tag=0)
        made = [first, ranks.send(first * 2.0, to=other, tag=1)]
    else:
        late = ranks.recv(x, source=other, tag=1)
        made = [late, ranks.recv(late, source=other, tag=0)]
    f = mg.function([x], made, device="cuda")
    for _ in range(3):
        found = [host(array) for array in f(np.ones(1000, np.float32))]
        assert [float(a[0]) for a in found] == ([2.0, 4.0] if sends else [4.0, 2.0])


# ---- Strategies

# The strategy, the optimizer, the mesh's axes (the first has two ranks), the dtype that limits
# errors, the least messages.
Case = tuple[Callable[[], Any], str, tuple[str, str] | None, str, int]
STRATEGIES: dict[str, Case] = {
    "all-reduce": (DataParallel, "clipped", None, "float64", 0),
    "ring": (lambda: DataParallel(algorithm="ring"), "adam", None, "float64", 0),
    "torus": (
        lambda: DataParallel(algorithm="torus", group=("rows", "columns")), "sgd",
        ("rows", "columns"), "float64", 0,
    ),
    "parameter server": (
        lambda: DataParallel(algorithm="parameter_server"), "adam", None, "float64", 0,
    ),
    "small buckets": (lambda: DataParallel(bucket_bytes=4096), "adam", None, "float64", 0),
    "bfloat16": (lambda: DataParallel(compression="bfloat16"), "sgd", None, "bfloat16", 0),
    "float16 ring": (
        lambda: DataParallel(compression="float16", algorithm="ring"), "sgd", None, "float16", 0,
    ),
    "optimizer in parts": (
        lambda: DataParallel(shard_optimizer=True), "adam", None, "float64", 0,
    ),
    "tensor": (lambda: TensorParallel(least=1), "clipped", None, "float64", 0),
    "gpipe": (lambda: PipelineParallel(4, "gpipe"), "clipped", None, "float64", 8),
    "1f1b": (lambda: PipelineParallel(4, "1f1b"), "adam", None, "float64", 8),
    "rows and stages": (
        lambda: Hybrid(PipelineParallel(2), DataParallel()), "adam",
        ("stage", "data"), "float64", 4,
    ),
    "matrices and rows": (
        lambda: Hybrid(TensorParallel(least=1), DataParallel()), "adam",
        ("data", "tensor"), "float64", 0,
    ),
}  # fmt: skip


def strategies(rng: np.random.Generator) -> None:
    """Train with each strategy, step for step beside one GPU that has all rows."""
    values = layers(rng, [64, 128, 96, 80, 32])
    # A size is run one by one, captured, and twice from the graph.
    batches = [
        (rng.standard_normal((n, 64)), rng.standard_normal((n, 32))) for n in (16, 13) * 4
    ]
    wanted = {name: trained(values, batches, OPTIMIZERS[name]) for name in OPTIMIZERS}
    for name, (make, optimizer, axes, dtype, messages) in STRATEGIES.items():
        began = time.perf_counter()
        mesh = Mesh(**{axes[0]: 2, axes[1]: ranks.size() // 2}) if axes else None
        with ranks.use(mesh) if mesh is not None else contextlib.nullcontext():
            losses, weights, step = trained(values, batches, OPTIMIZERS[optimizer], make)
            captured(step, messages)
        exact = dtype == "float64"
        row = tolerance(canonical(dtype), "reassoc" if exact else "stable")
        pairs = [(losses, wanted[optimizer][0]), *zip(weights, wanted[optimizer][1], strict=True)]
        for found, expected in pairs:
            np.testing.assert_allclose(found, expected, row.relative, row.absolute, err_msg=name)
        say(f"{name}: right, {time.perf_counter() - began:.1f} s")


def over_calls(rng: np.random.Generator) -> None:
    """Gradients of several calls, and micro-batches of one, beside one GPU that has all rows."""
    values = layers(rng, [64, 128, 96, 80, 32])
    batches = [(rng.standard_normal((24, 64)), rng.standard_normal((24, 32))) for _ in range(9)]

    def summed() -> Any:
        return mg.optimizer.SGD(0.1, momentum=0.9, accumulate=3)

    wanted = trained(values, batches, summed)
    cases: dict[str, Callable[[], Any]] = {
        "all-reduce": DataParallel,
        "ring": lambda: DataParallel(algorithm="ring"),
        "parameter server": lambda: DataParallel(algorithm="parameter_server"),
        "micro-batches": lambda: DataParallel(accumulate=2),
    }
    row = tolerance(FLOAT64, "reassoc")
    for name, make in cases.items():
        losses, weights, step = trained(values, batches, summed, make)
        captured(step)
        for found, expected in zip([losses, *weights], [wanted[0], *wanted[1]], strict=True):
            np.testing.assert_allclose(found, expected, row.relative, row.absolute, err_msg=name)
        say(f"sums over calls, {name}: right")
    # Micro-batches of a call: one message for the step's gradients, however many there are.
    plain = trained(values, batches, OPTIMIZERS["sgd"])
    sent = []
    for count in (1, 4):
        losses, weights, step = trained(
            values, batches, OPTIMIZERS["sgd"], lambda: DataParallel(accumulate=count)  # noqa: B023
        )
        for found, expected in zip([losses, *weights], [plain[0], *plain[1]], strict=True):
            np.testing.assert_allclose(found, expected, row.relative, row.absolute)
        sent.append([note.split(",")[0] for r in step.report if r.name == "distribute"
                     for note in r.notes if "message" in note])  # fmt: skip
    assert sent[0] == sent[1], sent
    say("micro-batches: right, and as many messages as without")


def asynchronous(rng: np.random.Generator) -> None:
    """Ranks that do not wait come to one optimum, with equal weights and bounded staleness."""
    size = ranks.size()
    x, target = rng.standard_normal((32 * size, 8)), rng.standard_normal(8)
    rows = slice(32 * ranks.rank(), 32 * ranks.rank() + 32)
    inputs, outputs = mg.input("x", ("batch", 8), "float64"), mg.input("y", ("batch",), "float64")
    w = mg.var("w", init=np.zeros(8))
    loss = mg.mean((inputs @ w - outputs) ** 2)
    bound = 3
    strategy = DataParallel(algorithm="async", staleness=bound)
    step = mg.optimizer.SGD(0.02).step(
        loss, [w], [inputs, outputs], [loss], device="cuda", distribute=strategy
    )
    for _ in range(300):
        step(x[rows], (x @ target)[rows])
    strategy.finish()
    found = ranks.communicator().exchange(w.value.tobytes())
    assert len(set(found)) == 1
    np.testing.assert_allclose(w.value, target, atol=1e-3)
    assert sum(strategy.staleness.values()) == size * 300
    assert max(strategy.staleness) <= (size - 2) * (4 * bound + 1) + 4 * bound + 1
    say(f"asynchronous: right, staleness {strategy.staleness}")


def batch_norms(rng: np.random.Generator) -> None:
    """Convolutions with batch norms: all ranks' rows, and a rank's own, beside the CPU."""
    size = ranks.size()
    images = rng.standard_normal((6 * size, 8, 8, 3)).astype(np.float32)
    labels = rng.integers(0, 5, 6 * size).astype(np.int32)
    kernels = [
        rng.normal(0.0, 0.3, shape).astype(np.float32)
        for shape in ((3, 3, 3, 8), (3, 3, 8, 8), (8, 5))
    ]

    def job(device: str, **options: Any) -> list[Any]:
        x = mg.input("x", ("batch", 8, 8, 3))
        y = mg.input("y", ("batch",), "int32")
        held = [mg.var(f"w{i}", init=k) for i, k in enumerate(kernels)]
        h = x
        for w in held[:2]:
            h = mg.relu(mg.batch_norm(mg.conv2d(h, w, padding=1, layout="NHWC"), axis=-1))
        logits = mg.global_avg_pool(h, layout="NHWC") @ held[2]
        step = mg.optimizer.SGD(0.1, momentum=0.9).step(
            mg.cross_entropy(logits, y), held, [x, y], [mg.cross_entropy(logits, y)],
            device=device, distribute=DataParallel(**options),
        )  # fmt: skip
        place = ranks.rank()
        own = slice(6 * place - place % 2, 6 * place + 6 - (place + 1) % 2)  # 5 and 7 rows
        losses = [float(step(images[own], labels[own])[0]) for _ in range(4)]
        if device != "cpu":
            captured(step)
        return [losses, *(v.value for v in held)]

    row = tolerance(FLOAT32, "reassoc")
    for synchronized in (True, False):
        wanted = ranks.threads(size, lambda: job("cpu", sync_batch_norm=synchronized))[0]  # noqa: B023
        found = job("cuda", sync_batch_norm=synchronized)
        worst = 0.0
        for got, want in zip(found, wanted, strict=True):
            worst = max(worst, float(np.max(np.abs(np.subtract(got, want))) / np.max(np.abs(want))))
        assert worst <= 10 * row.relative, (worst, row.relative)
        say(f"batch norms, synchronized {synchronized}: right, {worst:.1e}")


def main() -> None:
    world = ranks.init()
    assert world.size % 2 == 0
    mg.config.device = "cuda"  # also where tests have said "cpu" to all that do not ask
    rng = np.random.default_rng(7)
    crossing()
    say("messages: right")
    turned()
    strategies(rng)
    over_calls(rng)
    batch_norms(rng)
    asynchronous(rng)
    say("all right")


if __name__ == "__main__":
    main()
