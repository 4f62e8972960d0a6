"""Measure: products and training in tf32, float16 and bfloat16 on a GPU, beside torch.

Products of square matrices in CUDA graphs, ours and torch's in turn; what a bias and gelu behind a
product cost; training of a network with 4096 hidden units at batch 4096, where every precision
starts from the same weights, on MNIST (found as `mg.data.mnist` finds it). The names of parts
(products, epilogues, training) run those alone; results join what is there.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import common
import numpy as np
import opening

SIZES = (1024, 4096, 8192)
HIDDEN, BATCH, EPOCHS, SEEDS = 4096, 4096, 12, 3
PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
ROUNDS = 9
NOTES = (
    "A bias and gelu behind a product of 1024 cost 1.4 % in float16 and 1.9 in bfloat16 as "
    "recorded; 1.5 to 1.9 and 1.6 to 1.9 in six takes in three processes on another card "
    "(docs/design/016)."
)


def graph_of(stream: Any, queue: Callable[[Any], None], count: int) -> Callable[[], None]:
    """Return what launches a graph of so many repeats, and keeps what it reads and writes."""
    queue(stream)
    stream.synchronize()
    with stream:
        stream.begin_capture()
        for _ in range(count):
            queue(stream)
        graph = stream.end_capture()

    # The graph has addresses only. If the queue's owner went, its memory would be another's, such
    # as the scratch memory of a product on the next stream, which counts its tiles there.
    def launch(_kept: Callable[[Any], None] = queue) -> None:
        graph.launch(stream)

    return launch


def in_turn(
    ways: dict[str, tuple[Any, Callable[[], None]]], count: int
) -> dict[str, dict[str, float]]:
    """Return the microseconds of a unit of work of each way: median, least, largest."""
    import cupy

    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _, launch in ways.values():
        launch()
    for _ in range(ROUNDS):
        for name, (stream, launch) in ways.items():
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(stream)
            launch()
            end.record(stream)
            end.synchronize()
            taken[name].append(cupy.cuda.get_elapsed_time(begin, end) / count * 1e3)
    return {
        name: {"median": statistics.median(t), "least": min(t), "largest": max(t)}
        for name, t in taken.items()
    }


def torch_graph(torch: Any, run: Callable[[], Any], count: int) -> tuple[Any, Callable[[], None]]:
    """Return a stream and what replays torch's work on it."""
    import cupy

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(count):
                run()

    def replay() -> None:
        with torch.cuda.stream(stream):
            graph.replay()

    return cupy.cuda.Stream.from_external(stream), replay


def products(torch: Any) -> dict[str, Any]:
    import cupy

    import magmagraph as mg

    results: dict[str, Any] = {}
    rng = np.random.default_rng(0)
    for dtype in ("float16", "bfloat16"):
        for size in SIZES:
            a, b = (rng.standard_normal((size, size)).astype("f4") for _ in range(2))
            x, y = (mg.input(name, (size, size)) for name in "xy")
            half = [mg.cast(v, dtype) for v in (x, y)]
            held = [mg.var(n, shape=(size, size), dtype=dtype, init=mg.init.zeros()) for n in "ab"]
            mg.function([x, y], None, updates=dict(zip(held, half, strict=True)))(a, b)
            f = mg.function([], held[0] @ held[1])
            made = f().astype("f4").get()
            right = a[:64].astype("f8") @ b.astype("f8")
            error = float(np.abs(made[:64] - right).max() / np.abs(right).max())
            if error > 0.02:
                raise SystemExit(f"a product of {dtype} is wrong: {error}")
            count = max(2, min(50, int(2e13 / size**3 / 2)))
            bound, stream = f._last, cupy.cuda.Stream(non_blocking=True)
            kind = getattr(torch, dtype)
            left, right_ = (torch.tensor(v, device="cuda").to(kind) for v in (a, b))
            out = torch.empty_like(left)
            times = in_turn(
                {
                    "magmagraph": (stream, graph_of(stream, bound.queue, count)),
                    "torch": torch_graph(
                        torch, lambda p=left, q=right_, o=out: torch.matmul(p, q, out=o), count
                    ),
                },
                count,
            )
            ratio = times["torch"]["median"] / times["magmagraph"]["median"]
            results[f"{dtype} {size}"] = {**times, "ratio": ratio, "error": error}
    return results


def epilogues(torch: Any) -> dict[str, Any]:
    """Return what a bias and gelu (or relu) cost behind a product that is stored in 16 bits."""
    results: dict[str, Any] = {}
    for dtype in ("float16", "bfloat16"):
        for size in SIZES:
            results[f"{dtype} {size}"] = epilogues_of(torch, dtype, size)
    return results


def epilogues_of(torch: Any, dtype: str, size: int) -> dict[str, Any]:
    """Return the times of a product by itself and with each epilogue, and their errors.

    What torch's own product and its product with a bias and gelu take stands beside them.
    """
    import cupy

    import magmagraph as mg

    w = mg.var("w", shape=(size, size), dtype=dtype, init=mg.init.normal(std=0.02, seed=1))
    a = mg.var("a", shape=(size, size), dtype=dtype, init=mg.init.normal(seed=2))
    bias = mg.var("bias", shape=(size,), dtype=dtype, init=mg.init.normal(seed=3))
    plain = a @ w
    # float32 in between, as the precision pass leaves it: the library does the same.
    biased = mg.cast(plain, "float32") + mg.cast(bias, "float32")
    forms = {
        "product": plain,
        "bias and gelu": mg.cast(mg.gelu(biased, approximate=True), dtype),
        "bias and relu": mg.cast(mg.relu(biased), dtype),
    }
    count = max(2, min(40, int(1e13 / size**3 / 2)))
    ways, errors = {}, {}
    for name, form in forms.items():
        f = mg.function([], form)
        made = f()
        errors[name] = wrong(name, made, *(mg.function([], v)() for v in (a, w, bias)))
        stream = cupy.cuda.Stream(non_blocking=True)
        ways[name] = (stream, graph_of(stream, f._last.queue, count))
    kind = {"device": "cuda", "dtype": getattr(torch, dtype)}
    left, right = torch.randn(size, size, **kind), 0.02 * torch.randn(size, size, **kind)
    row, out = torch.randn(size, **kind), torch.empty(size, size, **kind)
    theirs = {
        "torch's product": lambda: torch.matmul(left, right, out=out),
        "torch's bias and gelu": lambda: torch._addmm_activation(
            row, left, right, use_gelu=True, out=out
        ),
    }
    for name, run in theirs.items():
        ways[name] = torch_graph(torch, run, count)
    times = in_turn(ways, count)
    for name, plain in (*((name, "product") for name in forms),
                        *((name, "torch's product") for name in theirs)):  # fmt: skip
        times[name]["cost"] = times[name]["median"] / times[plain]["median"] - 1
    for name, error in errors.items():
        times[name]["error"] = error
    return times


def wrong(name: str, made: Any, a: Any, w: Any, bias: Any) -> float:
    """Return how far the first rows are from those in float64, of the largest element's size."""
    import cupy

    made, a, w, bias = (v.astype("f4").astype("f8") for v in (made[:64], a[:64], w, bias))
    right = a @ w
    if name != "product":
        right += bias
    if name == "bias and gelu":
        right = right * (1 + cupy.tanh((2 / np.pi) ** 0.5 * (right + 0.044715 * right**3))) / 2
    elif name == "bias and relu":
        right = cupy.maximum(right, 0)
    error = float(abs(made - right).max() / abs(right).max())
    if not error < 0.02:
        raise SystemExit(f"{name} of {len(w)} rows is wrong: {error}")
    return error


def network(precision: str, seed: int) -> tuple[Any, Any, list[Any]]:
    """Return a training step, a function that predicts, and the variables."""
    import magmagraph as mg

    x = mg.input("x", ("batch", 784))
    labels = mg.input("labels", ("batch",), dtype="int32")
    sizes = (784, HIDDEN, HIDDEN, HIDDEN, 10)
    value: Any = x
    variables: list[Any] = []
    for layer in range(len(sizes) - 1):
        init = mg.init.he_normal(seed=100 * seed + layer)
        variables.append(mg.var(f"W{layer}", shape=sizes[layer : layer + 2], init=init))
        variables.append(mg.var(f"b{layer}", shape=sizes[layer + 1 : layer + 2],
                                init=mg.init.zeros()))
        value = value @ variables[-2] + variables[-1]
        value = value if layer == len(sizes) - 2 else mg.relu(value)
    loss = mg.cross_entropy(value, labels)
    optimizer = mg.optimizer.SGD(0.1, momentum=0.9)
    step = optimizer.step(loss, variables, [x, labels], [loss], precision=precision)
    return step, mg.function([x], mg.argmax(value, axis=-1)), variables


def training() -> dict[str, Any]:
    import cuda_common
    import cupy

    import magmagraph as mg

    digits = mg.data.mnist(timeout=0, substitute=False)
    images, labels = cupy.asarray(digits.x_train), cupy.asarray(digits.y_train)
    tests = cupy.asarray(digits.x_test)
    results: dict[str, Any] = {}
    for precision in PRECISIONS:
        accuracies, skipped = [], 0
        for seed in range(SEEDS):
            step, predict, _ = network(precision, seed)
            order = np.random.default_rng(seed)
            began = time.perf_counter()
            for _ in range(EPOCHS):
                mixed = cupy.asarray(order.permutation(len(labels)))
                for at in range(0, len(labels) - BATCH + 1, BATCH):
                    chosen = mixed[at : at + BATCH]
                    step(images[chosen], labels[chosen])
            cupy.cuda.Device().synchronize()
            seconds = time.perf_counter() - began
            right = predict(tests).get() == digits.y_test
            accuracies.append(float(np.mean(right)) * 100)
            if step.loss_scale is not None:
                skipped += int(step.loss_scale.skipped.value)
        bound = step._last

        def replays(bound: Any = bound) -> None:
            for _ in range(10):
                bound.launch()

        results[precision] = {
            "microseconds": cuda_common.microseconds(bound.stream, replays, 10),
            "accuracies": accuracies,
            "mean accuracy": statistics.mean(accuracies),
            "seconds of training": seconds,
            "skipped": skipped,
            "arena": int(bound.plan.arena or 0),
        }
    return results


def main() -> None:
    opening.words(__doc__, "products", "epilogues", "training", needs=("gpu", "torch"))
    import cuda_common
    import torch

    import magmagraph as mg

    mg.config.device = "cuda"
    torch.backends.cuda.matmul.allow_tf32 = False
    parts: dict[str, Callable[[], Any]] = {
        "products": lambda: products(torch), "epilogues": lambda: epilogues(torch),
        "training": training,
    }
    path = common.RESULTS / "cuda_precision.json"
    results = json.loads(path.read_text())["results"] if path.exists() else {}
    for name in sys.argv[1:] or parts:
        results[name] = parts[name]()
        common.write(
            "cuda_precision", results, unit="us", device=cuda_common.device_facts(), notes=NOTES
        )
    rows: list[tuple[Any, ...]] = []
    for name, times in results.get("products", {}).items():
        rows.append((name, *(f"{times[who]['median']:.1f}" for who in ("magmagraph", "torch")),
                     f"{times['ratio']:.3f} x torch"))
    for size, times in results.get("epilogues", {}).items():
        rows += [(f"{name} {size}", f"{t['median']:.1f}", "", f"{t['cost']:+.1%}")
                 for name, t in times.items()]
    for name, found in results.get("training", {}).items():
        tf32 = results["training"]["tf32"]["microseconds"]
        rows.append((f"step in {name}", f"{found['microseconds']:.1f}", "",
                     f"{tf32 / found['microseconds']:.2f} x tf32, "
                     f"{found['mean accuracy']:.2f} % right"))
    common.table(rows, ("work", "us", "torch", ""))


if __name__ == "__main__":
    common.clean_environment()
    main()
