"""Run every kind of generated kernel under compute-sanitizer: memcheck, racecheck, initcheck.

``python tests/gpu/sanitize.py`` runs itself under each tool, the three side by side, and ends with
0 where none finds anything; ``--plain`` runs the kernels without a tool, which comes first by
itself, so that tools find compiled kernels. A tool that takes longer than ``--limit=600`` seconds
is ended, and has failed. Each kernel runs once, launched by itself: a captured graph would only
hide which one is at fault. Memory comes from plain allocations, so that nothing lies behind an
array but what no kernel may touch.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

HERE = Path(__file__).resolve()
TOOLS = ("memcheck", "racecheck", "initcheck")
SIZES = ({"B": 13, "N": 37}, {"B": 9, "N": 256}, {"B": 3, "N": 2052}, {"B": 70, "N": 12})
ENDED = "every kernel ran"
FOUND = 9  # the exit code that says that a tool found something
LIMIT = 600  # seconds that a tool may take
# What libraries store by bulk copies out of shared memory initcheck takes for never written: a
# product of cuBLASLt alone, whose result is right, is reported element by element. Our own large
# products store so, too. CuPy's sort reads more of its own scratch memory than it has written. So
# these begin with zeros there.
STORED_BY_LIBRARIES = ("half step", "large", "factors", "blocks of pixels", "positions")


def regions() -> int:
    """Run the kernels of every body of a region; return how many launches there were."""
    from regions import CASES, arrays_for
    from test_regions import run_on_device

    from magmagraph.codegen.cuda import launch_config
    from magmagraph.runtime.cuda.device import device_of
    from magmagraph.runtime.cuda.kernels.fused import Modules

    # Small rows, too, are brought into the cache ahead.
    launch_config.FAR, launch_config.AHEAD = 0, 512
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

    def positions() -> Any:
        """Elements, rows and lines at positions, and what is added there: sorted, by pieces."""
        x, table = mg.var("x", shape=(70, 40)), mg.var("table", shape=(300, 24))
        at = mg.input("at", (5000,), "int32")
        above = mg.var("above", shape=(5000, 24))
        order = mg.argsort(mg.stop_gradient(x), axis=1)
        lines = mg.take_along_axis(x * x, order[:, :7], axis=1)
        rows = mg.sum(mg.take(table, at, 0) * above)
        outputs = [
            lines, mg.grad(mg.sum(lines * lines), x), mg.grad(rows, table),
            table.at[at].add(above), mg.take(x, at, 1, "wrap"), mg.take(x, at, 0, "clip"),
        ]
        f = mg.function([x, table, at, above], outputs, device="cuda")
        feeds = [rng.standard_normal(v.shape).astype("f4") for v in (x, table, above)]
        return f(*feeds[:2], rng.integers(0, 300, 5000).astype("i4") % 40, feeds[2])

    def orders() -> Any:
        """Scans and sorts of short lines, of columns, and of a line that blocks share; counts."""
        x, y = mg.var("x", shape=(9, 301)), mg.var("y", shape=(200_003,))
        at, many = mg.input("at", (200_003,), "int32"), mg.var("many", shape=(200_003, 3))
        long = mg.reshape(y[:200_000], (40, 5000))  # a block selects of a line
        outputs = [
            *(scan(x, axis) for axis in (0, 1) for scan in (mg.cumsum, mg.cummax, mg.cumlogsumexp)),
            mg.linear_recurrence(x, x, 1, reverse=True), mg.cumsum(y), mg.sort(x), mg.sort(x, 0),
            mg.sort(y), mg.argsort(y), *mg.top_k(x, 9), *mg.top_k(y, 99), *mg.histogram(y, 20),
            mg.bincount(at, length=100_000), mg.zeros((90, 3)).at[at].add(many),
            mg.top_k(long, 50).indices, mg.argsort(long)[:, -1000:],
        ]  # fmt: skip
        f = mg.function([x, y, at, many], outputs, device="cuda")
        feeds = [rng.standard_normal(v.shape).astype("f4") for v in (x, y, many)]
        return f(*feeds[:2], rng.integers(0, 90, 200_003).astype("i4"), feeds[2])

    def losses(precision: str) -> Callable[[], Any]:
        """Products with a loss of their rows and the product behind it, and their column sums."""

        def run() -> Any:
            x, labels = mg.var("x", shape=(100, 300)), mg.var("labels", (100,), "int32")
            sizes, value, variables = (300, 264, 264, 10), x, []
            for i in range(3):
                init = mg.init.glorot_uniform(seed=i)
                variables.append(mg.var(f"w{i}", shape=sizes[i : i + 2], init=init))
                variables.append(
                    mg.var(f"b{i}", shape=sizes[i + 1 : i + 2], init=mg.init.zeros())
                )
                value = value @ variables[-2] + variables[-1]
                value = value if i == 2 else mg.sigmoid(value)
            loss = mg.cross_entropy(value, labels)
            f = mg.optimizer.SGD(0.1).step(
                loss, variables, [x, labels], None, device="cuda", precision=precision
            )
            given = rng.standard_normal((100, 300)).astype("f4")
            return f(given, rng.integers(0, 10, 100).astype("i4"))

        return run

    def epoch() -> Any:
        """Steps in one graph, which gather the rows of their batches and move a counter on."""
        x = mg.var("x", shape=("batch", 40))
        w = mg.var("w", init=mg.init.glorot_uniform(seed=1), shape=(40, 8))
        loss = mg.mean((x @ w) ** 2)
        f = mg.function(
            [x], loss, updates=mg.optimizer.SGD(0.1).updates(loss, [w]), device="cuda"
        )
        data = rng.standard_normal((120, 40)).astype("f4")
        return f.run(mg.batches(data, size=30, seed=1))

    def factors() -> Any:
        """Products of the other kinds: rounded factors, transposed, in batches, beside a sum."""
        x, y = mg.var("x", shape=(3, 36, 70)), mg.var("y", shape=(3, 36, 50))
        base = mg.var("base", shape=(3, 70, 50))
        turned = mg.transpose(x, (0, 2, 1)) @ y
        outputs = [turned, base - 0.5 * turned, mg.transpose(turned[0]) @ base[1]]
        made = []
        for precision in ("float32", "tf32", "float16"):
            f = mg.function([x, y, base], outputs, device="cuda", precision=precision)
            made.append(f(*[rng.standard_normal(v.shape).astype("f4") for v in (x, y, base)]))
        return made

    def large() -> Any:
        """16-bit products by a kernel of our own: each order of storage, what is done behind."""
        asked, mg.config.products = mg.config.products, "tiles"
        try:
            shapes = (136, 72), (72, 136), (72, 264), (264, 72), (264,)
            inputs = [mg.var(f"x{i}", shape=n, dtype="float16") for i, n in enumerate(shapes)]
            x, across, y, down, bias = inputs
            turned = mg.transpose(across), mg.transpose(down)
            biased = mg.cast(x @ y, "float32") + mg.cast(bias, "float32")
            forms = mg.relu(biased), mg.gelu(biased, approximate=True)
            outputs = [
                x @ y, x @ turned[1], turned[0] @ y, turned[0] @ turned[1],
                *(mg.cast(form, "float16") for form in forms),
            ]
            # One tile for each multiprocessor, of which the last ones are not whole.
            more = (520, 72), (72, 520), (72, 1032), (1032,)
            inputs += [mg.var(f"z{i}", shape=n, dtype="float16") for i, n in enumerate(more)]
            z, up, u, row = inputs[5:]
            biased = mg.cast(z @ u, "float32") + mg.cast(row, "float32")
            outputs += [
                mg.cast(mg.gelu(biased, approximate=True), "float16"), mg.transpose(up) @ u
            ]
            f = mg.function(inputs, outputs, device="cuda")
            given = [rng.standard_normal(v.shape).astype("f2") for v in inputs]
            return f(*given)
        finally:
            mg.config.products = asked

    def long_rows(x: Any, labels: Any) -> Any:
        """Rows that are kept, and summed up to one number, and rows of one element each."""
        places = mg.cast(labels * 0.0, "int32")
        loss = mg.cross_entropy(x, places)
        return [mg.layer_norm(x), mg.rms_norm(x), loss, mg.grad(loss, x), mg.softmax(x)]

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
    yield "shorter rows", call(lambda a: [mg.softmax(a), mg.layer_norm(a)], (4500, 31))
    yield "shortest rows", call(lambda a: [mg.softmax(a), mg.sum(a, axis=1)], (4500, 10))
    yield "half step", half_step
    yield "large", large
    yield "long rows", call(long_rows, (300, 8192), (300,))
    yield "long columns", call(lambda a: [mg.sum(a, axis=0), mg.sum(a)], (40_000, 64))
    yield "positions", positions
    yield "orders", orders
    yield "losses", losses("float32")
    yield "losses of rounded factors", losses("tf32")
    yield "factors", factors
    yield "epoch", epoch
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
    sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[1] / "helpers"), str(HERE.parent)]
    import cupy

    import magmagraph as mg

    def filled(size: int) -> Any:
        made = cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)
        made.memset(0, size)
        cupy.cuda.runtime.deviceSynchronize()
        return made

    cupy.cuda.set_allocator(None)
    mg.config.tuning = False  # nothing is timed
    count = regions()
    for name, run in functions():
        known = "--filled" in sys.argv and name in STORED_BY_LIBRARIES
        cupy.cuda.set_allocator(filled if known else None)
        run()
        cupy.cuda.runtime.deviceSynchronize()
        print(f"ran {name}", flush=True)
    print(f"{ENDED}: {count} regions and {len(list(functions()))} functions")


def under(sanitizer: str, tool: str, found: IO[str]) -> subprocess.Popen[str]:
    """Begin to run everything under a tool, which writes what it finds to a file."""
    command = [
        sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "1000",
        *(["--report-api-errors", "no"] if tool == "memcheck" else []),  # libraries probe
        sys.executable, str(HERE), "--plain", *(["--filled"] if tool == "initcheck" else []),
    ]
    return subprocess.Popen(command, stdout=found, stderr=subprocess.STDOUT, text=True)


def judged(tool: str, run: subprocess.Popen[str], found: IO[str], limit: float) -> bool:
    """Print what a tool found; return whether that is nothing."""
    late = ""
    try:
        run.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        run.kill()
        run.wait()
        late = "took too long"
    found.seek(0)
    text = found.read()
    good = run.returncode == 0 and ENDED in text
    print(f"{tool}: {'clean' if good else late or f'exit code {run.returncode}'}")
    lines = text.splitlines()
    summary = [line for line in lines if ENDED in line or "SUMMARY" in line]
    if not good:  # what each finding is about, once; then the first of them whole
        named = ("=========     at ", "in sanitize.py", "ran ")
        told = dict.fromkeys(line for line in lines if any(word in line for word in named))
        summary = [*told, *summary, *(lines[-10:] if late else lines[:100])]
    print("\n".join(summary), flush=True)
    return good


def main() -> int:
    if "--plain" in sys.argv:
        run_all()
        return 0
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(sanitizer).exists():
        print("compute-sanitizer is not installed: it comes with the CUDA toolkit")
        return 2
    limits = [float(word[8:]) for word in sys.argv if word.startswith("--limit=")]
    end = time.monotonic() + (limits or [LIMIT])[-1]
    subprocess.run([sys.executable, str(HERE), "--plain"], check=True, stdout=subprocess.DEVNULL)
    chosen = [tool for tool in TOOLS if tool in sys.argv] or list(TOOLS)
    with contextlib.ExitStack() as files:
        found = [files.enter_context(tempfile.TemporaryFile("w+")) for _ in chosen]
        runs = [under(sanitizer, *pair) for pair in zip(chosen, found, strict=True)]
        good = [
            judged(*one, max(1.0, end - time.monotonic()))
            for one in zip(chosen, runs, found, strict=True)
        ]
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
