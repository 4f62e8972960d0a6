"""Predicted step times beside measured ones, and predicted curves to thousands of ranks.

    python benchmarks/cost_model.py [--ranks 1 2 4] [--steps 30]

The links are measured in a job of each number of ranks, the computing in one process alone; from
these `mg.distributed.plan` predicts, and jobs of real ranks run the same steps. Every rank has one
thread. Where there are more ranks than cores, the prediction divides these among them. The curves
are those of cards that are not here: their rates are written below them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import numpy as np

NETWORKS = ("seed MLP", "deep MLP", "CNN")
THREADS = ("MAGMAGRAPH_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ALLOWED = 0.15  # of the measured time
# What an H200 does by its data sheet, less a fifth; a link of NVLink 4, and the start of a kernel.
CARD = {"flops": 50e12, "bandwidth": 3.8e12, "overhead": 3e-6}
LINK = {"latency": 10e-6, "seconds_per_byte": 1 / 360e9}


def mlp(widths: tuple[int, ...], rows: int) -> tuple[Any, Any]:
    """Return loss and weights of layers, with inputs, and their feeds."""
    import magmagraph as mg

    x, labels = mg.var("x", shape=("batch", widths[0])), labels_of(mg)
    value, weights = x, []
    for i, shape in enumerate(itertools.pairwise(widths)):
        W = mg.var(f"W{i}", shape=shape, init=mg.init.glorot_uniform(seed=i))
        b = mg.var(f"b{i}", shape=shape[1:], init=mg.init.zeros())
        weights += [W, b]
        value = value @ W + b
        if i < len(widths) - 2:
            value = mg.sigmoid(value)
    rng = np.random.default_rng(0)
    feeds = rng.random((rows, widths[0]), np.float32), rng.integers(0, widths[-1], rows)
    return (mg.cross_entropy(value, labels), weights, [x, labels]), feeds


def cnn(rows: int) -> tuple[Any, Any]:
    """Return the same of two convolutions and a layer."""
    import magmagraph as mg

    x, labels = mg.var("x", shape=("batch", 1, 28, 28)), labels_of(mg)
    value, weights = x, []
    for i, shape in enumerate([(8, 1, 5, 5), (16, 8, 5, 5)]):
        kernel = mg.var(f"K{i}", shape=shape, init=mg.init.glorot_uniform(seed=i))
        weights.append(kernel)
        value = mg.max_pool2d(mg.relu(mg.conv2d(value, kernel, padding=2)), 2)
    W = mg.var("W", shape=(784, 10), init=mg.init.glorot_uniform(seed=9))
    weights.append(W)
    value = mg.reshape(value, (x.shape[0], 784)) @ W
    rng = np.random.default_rng(0)
    feeds = rng.random((rows, 1, 28, 28), np.float32), rng.integers(0, 10, rows)
    return (mg.cross_entropy(value, labels), weights, [x, labels]), feeds


def labels_of(mg: Any) -> Any:
    return mg.var("labels", shape=("batch",), dtype="int64")


def step_of(name: str, distribute: Any = None) -> tuple[Any, Any]:
    """Return a training step, and the feeds of a whole batch."""
    import magmagraph as mg

    if name == "seed MLP":
        (loss, weights, inputs), feeds = mlp((784, 528, 528, 10), 1000)
    elif name == "deep MLP":
        (loss, weights, inputs), feeds = mlp((256, *[192] * 8, 10), 800)
    else:
        (loss, weights, inputs), feeds = cnn(200)
    step = mg.optimizer.SGD(0.01).step(
        loss, weights, inputs=inputs, outputs=loss, distribute=distribute
    )
    return step, feeds


def links() -> Any:
    """Measure the links of a job."""
    import magmagraph as mg

    found = mg.distributed.Links.measure()
    return {
        "latency": found.latency,
        "seconds_per_byte": found.seconds_per_byte,
        "samples": found.samples,
        "overlaps": mg.distributed.communicator().overlaps,
    }


def measured(steps: int) -> Any:
    """Return the median seconds of a step of each network, of the slowest rank."""
    import magmagraph as mg

    held = mg.distributed.communicator()
    found = {}
    for name in NETWORKS:
        strategy = mg.distributed.DataParallel() if held.size > 1 else None
        step, feeds = step_of(name, strategy)
        own = [np.ascontiguousarray(np.array_split(feed, held.size)[held.rank]) for feed in feeds]
        for _ in range(3):
            step(*own)
        taken = []
        for _ in range(steps):
            held.barrier()
            began = time.perf_counter()
            step(*own)
            taken.append(time.perf_counter() - began)
        slowest = np.max(held.exchange(taken), axis=0)
        found[name] = {
            "median": float(np.median(slowest)),
            "least": float(slowest.min()),
            "largest": float(slowest.max()),
        }
    return found


def predicted(given: dict[str, Any]) -> Any:
    """Return what is predicted for each network and number of ranks."""
    import magmagraph as mg
    from magmagraph.cores import allowed_cores

    found: dict[str, Any] = {}
    for name in NETWORKS:
        step, feeds = step_of(name)
        found[name] = {}
        for ranks, told in given.items():
            linked = mg.distributed.Links(
                told["latency"],
                told["seconds_per_byte"],
                samples=tuple(tuple(sample) for sample in told["samples"]),
            )
            plan = mg.distributed.plan(
                step, *feeds, devices=int(ranks), links=linked, algorithms=("auto",),
                cores=allowed_cores(), repeats=15, overlap=told["overlaps"],
            )  # fmt: skip
            (only,) = plan.proposals
            found[name][ranks] = {
                "seconds": only.seconds, "compute": only.compute, "bytes": only.bytes
            }  # fmt: skip
    return found


def curves(folder: Path) -> dict[str, Any]:
    """Draw the curves, and return them."""
    import magmagraph as mg

    (loss, weights, inputs), feeds = mlp((4096, 4096, 4096, 4096, 10), 1024)
    step = mg.optimizer.SGD(0.01).step(loss, weights, inputs=inputs, outputs=loss)
    drawn = {}
    for name, counts in (("8", range(1, 9)), ("4096", [2**k for k in range(13)])):
        plan = mg.distributed.plan(
            step, *feeds, devices=counts, links=mg.distributed.Links(**LINK),
            machine=mg.distributed.Machine(**CARD), weak=True, overlap=True,
        )  # fmt: skip
        path = folder / f"cost_model_{name}.svg"
        speeds = plan.curve(path, jitter=0.05)
        drawn[name] = {"ranks": list(counts), "speeds": speeds}
        stale = plan.simulate(max(counts), "async", jitter=0.05).staleness
        total = sum(stale.values())
        drawn[name]["staleness"] = sum(age * n for age, n in stale.items()) / total
    return drawn


def run(ranks: int, *words: str) -> Any:
    """Run this file as a job; return the JSON that rank 0 prints."""
    command = [sys.executable, __file__, *words]
    if ranks > 1:
        beside = Path(sys.executable).with_name("mpiexec")
        program = str(beside) if beside.exists() else shutil.which("mpiexec") or "mpiexec"
        command = [program, "-n", str(ranks), *command]
    environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def job(words: list[str], steps: int) -> None:
    """Do one part, on all ranks, and print what rank 0 found."""
    import magmagraph as mg

    kind, *rest = words
    if kind == "links":
        found = links()
    elif kind == "measure":
        found = measured(steps)
    elif kind == "predict":
        found = predicted(json.loads(Path(rest[0]).read_text()))
    else:
        found = curves(Path(rest[0]))
    if mg.distributed.rank() == 0:
        print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.job:
        job(chosen.job, chosen.steps)
        return
    cleared = common.clean_environment()
    alone = {"latency": 0.0, "seconds_per_byte": 0.0, "samples": [], "overlaps": False}
    linked = {str(n): alone if n == 1 else run(n, "--job", "links") for n in chosen.ranks}
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "links.json"
        told.write_text(json.dumps(linked))
        foreseen = run(1, "--job", "predict", str(told))
    seen = {str(n): run(n, "--steps", str(chosen.steps), "--job", "measure") for n in chosen.ranks}
    results, rows = [], []
    for name in NETWORKS:
        for n in map(str, chosen.ranks):
            guess, fact = foreseen[name][n], seen[n][name]
            error = guess["seconds"] / fact["median"] - 1.0
            results.append(
                {"network": name, "ranks": int(n), **guess, "measured": fact, "error": error}
            )
            spread = f"{fact['least'] * 1e3:.2f} .. {fact['largest'] * 1e3:.2f}"
            rows.append(
                (
                    name, n, f"{guess['seconds'] * 1e3:.2f}", f"{fact['median'] * 1e3:.2f}",
                    spread, f"{error:+.1%}", "" if abs(error) <= ALLOWED else "outside",
                )
            )  # fmt: skip
    common.table(
        rows, ("network", "ranks", "predicted ms", "measured ms", "least .. largest", "error", "")
    )
    drawn = run(1, "--job", "curves", str(common.RESULTS))
    path = common.write(
        "cost_model", results, links=linked, curves=drawn, card=CARD, card_link=LINK,
        claim=f"Step times are predicted within {ALLOWED:.0%}.", cleared=cleared,
        load=os.getloadavg(),
    )  # fmt: skip
    print(f"wrote {path}, cost_model_8.svg and cost_model_4096.svg")


if __name__ == "__main__":
    main()
