"""Run every kind of generated kernel under compute-sanitizer: memcheck, racecheck, initcheck.

``python tests/gpu/sanitize.py`` runs itself under each tool and ends with 0 where none finds
anything; ``--plain`` runs the kernels without a tool. Each kernel runs once, launched by itself:
a captured graph would only hide which one is at fault. Memory comes from plain allocations, so
that nothing lies behind an array but what no kernel may touch.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
TOOLS = ("memcheck", "racecheck", "initcheck")
SIZES = ({"B": 13, "N": 37}, {"B": 9, "N": 256}, {"B": 3, "N": 2052}, {"B": 70, "N": 12})
ENDED = "every kernel ran"
FOUND = 9  # the exit code that says that a tool found something


def regions() -> int:
    """Run the kernels of every body of a region; return how many launches there were."""
    from regions import CASES, arrays_for
    from test_regions import run_on_device

    from magmagraph.runtime.cuda.device import device_of
    from magmagraph.runtime.cuda.kernels.fused import Modules

    modules = Modules(device_of("cuda"))
    rng, count = np.random.default_rng(0), 0
    for case in CASES:
        for number, sizes in enumerate(SIZES):
            if min(sizes.values()) < case.least:
                continue
            body = case.body()
            arrays = arrays_for(rng, body, sizes, case.make)
            lines = (264, 16)[number % 2]
            made = run_on_device(
                modules.device, modules, body, arrays, sizes, lines, poisoned=False
            )
            count += made is not None
    return count


def functions() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Give whole functions, one call each: products with what is merged into them, pooling."""
    import magmagraph as mg

    rng = np.random.default_rng(1)

    def call(outputs: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[], Any]:
        def run() -> Any:
            inputs = [mg.var(f"x{i}", shape=shape) for i, shape in enumerate(shapes)]
            f = mg.function(inputs, outputs(*inputs), device="cuda")
            return f(*[rng.standard_normal(shape).astype("f4") for shape in shapes])

        return run

    def step(optimizer: Any) -> Callable[[], Any]:
        def run() -> Any:
            x = mg.var("x", shape=(36, 70))
            w = mg.var("w", init=mg.init.glorot_uniform(seed=1), shape=(70, 50))
            b = mg.var("b", init=mg.init.zeros(), shape=(50,))
            v = mg.var("v", init=mg.init.glorot_uniform(seed=2), shape=(50, 10))
            labels = mg.var("labels", shape=(36,), dtype="int32")
            loss = mg.cross_entropy(mg.sigmoid(x @ w + b) @ v, labels)
            updates = optimizer.updates(loss, [w, b, v])
            f = mg.function([x, labels], loss, updates=updates, device="cuda")
            return f(
                rng.standard_normal((36, 70)).astype("f4"), rng.integers(0, 10, 36).astype("i4")
            )

        return run

    def half_step() -> Any:
        """Products of the library with what they store, and one launch for several updates."""
        x = mg.var("x", shape=(64, 72))
        sizes = (72, 48, 48, 48, 16)
        value, variables = x, []
        for i in range(4):
            init = mg.init.he_normal(seed=i)
            variables.append(mg.var(f"w{i}", shape=sizes[i : i + 2], init=init))
            variables.append(mg.var(f"b{i}", shape=sizes[i + 1 : i + 2], init=mg.init.zeros()))
            value = mg.relu(value @ variables[-2] + variables[-1])
        optimizer = mg.optimizer.Adam(0.1)
        f = optimizer.step(
            mg.mean(value * value), variables, [x], None, device="cuda", precision="bfloat16"
        )
        return f(rng.standard_normal((64, 72)).astype("f4"))

    def pixels() -> Any:
        """A convolution that reads blocks of pixels, with the gradient of its weights."""
        x, w = mg.var("x", shape=(2, 10, 10, 3)), mg.var("w", shape=(7, 7, 3, 8))
        y = mg.conv2d(x, w, stride=2, padding=3, layout="NHWC")
        outputs = [y, mg.grad(mg.sum(y * y), w)]
        f = mg.function([x, w], outputs, device="cuda", precision="bfloat16")
        return f(*[rng.standard_normal(v.shape).astype("f4") for v in (x, w)])

    def few_channels() -> Any:
        """The gradient of weights of an image with one channel, by the generated kernel."""
        from magmagraph.runtime.cuda.kernels import few_channels as generated

        chosen, generated.is_faster = generated.is_faster, lambda *_: True
        try:
            x, w = mg.var("x", shape=(3, 1, 13, 41)), mg.var("w", shape=(40, 1, 3, 5))
            y = mg.conv2d(x, w, padding=2)
            f = mg.function([x, w], mg.grad(mg.sum(y * y), w), device="cuda")
            return f(*[rng.standard_normal(v.shape).astype("f4") for v in (x, w)])
        finally:
            generated.is_faster = chosen

    def scanned(xs: Any, w: Any, first: Any) -> Any:
        def cell(carry: Any, x: Any) -> tuple[Any, Any]:
            new = mg.tanh(carry @ w + x)
            return new, new * 2.0

        last, rows = mg.scan(cell, first, xs)
        return [last, *mg.grad(mg.sum(last * last) + mg.mean(rows), [xs, w, first])]

    def pooled(x: Any) -> Any:
        made = mg.max_pool2d(x, 2)
        return [made, mg.grad(mg.sum(made * made), x)]

    def normalized(x: Any) -> Any:
        made = mg.batch_norm(x)[0]
        return [made, mg.grad(mg.sum(made * made * made), x)]

    yield "SGD", step(mg.optimizer.SGD(0.1))
    yield "Adam", step(mg.optimizer.Adam(0.1))
    yield "product", call(lambda a, b: a @ b, (36, 70), (70, 50))
    yield "row sum", call(lambda a: mg.sum(a, axis=1), (300, 70))
    yield "column sum", call(lambda a: mg.sum(a, axis=0), (300, 70))
    yield "short rows", call(mg.softmax, (4500, 64))
    yield "many blocks", call(lambda a: mg.exp(a) * 2.0, (4400, 512))
    yield "many rows", call(lambda a, s, o: mg.relu(a * s + o), (8300, 256), (256,), (256,))
    yield "few columns", call(lambda a, s, o: a * s + o, (40001, 64), (64,), (64,))
    yield "half step", half_step
    yield "blocks of pixels", pixels
    yield "few channels", few_channels
    yield "scan", call(scanned, (5, 4, 8), (8, 8), (4, 8))
    yield "pooling", call(pooled, (2, 3, 8, 8))
    yield "convolution", call(
        lambda x, w: mg.conv2d(x, w, padding=1), (2, 3, 8, 8), (4, 3, 3, 3)
    )
    yield "batch norm", call(normalized, (40, 24))
    yield "random", call(lambda a: a * mg.random.normal((33, 65)), (33, 65))


def run_all() -> None:
    """Run everything once."""
    sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[1]), str(HERE.parent)]
    import cupy

    import magmagraph as mg

    cupy.cuda.set_allocator(None)
    mg.config.tuning = False  # nothing is timed
    count = regions()
    for name, run in functions():
        run()
        cupy.cuda.runtime.deviceSynchronize()
        print(f"ran {name}", flush=True)
    print(f"{ENDED}: {count} regions and {len(list(functions()))} functions")


def main() -> int:
    if "--plain" in sys.argv:
        run_all()
        return 0
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(sanitizer).exists():
        print("compute-sanitizer is not installed: it comes with the CUDA toolkit")
        return 2
    chosen = [tool for tool in TOOLS if tool in sys.argv] or list(TOOLS)
    failed = 0
    for tool in chosen:
        command = [
            sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "20",
            *(["--report-api-errors", "no"] if tool == "memcheck" else []),  # libraries probe
            sys.executable, str(HERE), "--plain",
        ]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        ended = ENDED in made.stdout
        good = made.returncode == 0 and ended
        failed += not good
        print(f"{tool}: {'clean' if good else f'exit code {made.returncode}'}")
        text = (made.stdout + made.stderr).splitlines()
        summary = [line for line in text if ENDED in line or "SUMMARY" in line]
        print("\n".join(summary if good else text[:200]), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
