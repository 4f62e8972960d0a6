"""Predicted step times beside measured ones, and predicted curves to thousands of ranks.

    python benchmarks/cost_model.py [--ranks 1 2 4] [--rounds 10] [--steps 12]

One job does everything in turn, so that all sees the same machine. In each round, and for each
number of ranks, the first so many ranks measure their links and what they share (loops that are no
part of a network), rank 0 measures the step of one rank while all others sleep, from which
`mg.distributed.plan` predicts; before and behind it the ranks run a row of real steps, one behind
the other as in a program, whose median is the time of one. A machine that others use, too, is not
the same a second later: a prediction is compared with the rows beside it, and the error is the
median of all rounds. The
spread of the rows says how much steps vary by themselves, that of the errors what one round would
say. Every rank has one thread. The curves are those of cards that are not here: their rates are
written below them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import common
import numpy as np
import opening

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


def in_turn(counts: list[int], rounds: int, steps: int) -> Any:
    """Predict and measure on the first so many ranks while the others sleep; all ranks call it."""
    import magmagraph as mg
    from magmagraph.distributed.cost.sharing import beside
    from magmagraph.ir.ranks import using

    world = mg.distributed.communicator()
    groups = {n: world.split(0 if world.rank < n else None) for n in sorted({1, *counts})}
    alone = {name: step_of(name) for name in NETWORKS} if world.rank == 0 else {}
    real: dict[tuple[str, int], Any] = {}
    found: dict[str, Any] = {"links": {}, "sharing": {}, "predicted": {}, "measured": {}}

    def on(n: int, work: Callable[[Any], Any]) -> Any:
        def inside() -> Any:
            with using(groups[n]):
                return work(groups[n])

        return beside(world, groups[n], inside)

    def make(ranks: Any) -> None:
        for name in NETWORKS:
            step, feeds = step_of(name, mg.distributed.DataParallel() if ranks.size > 1 else None)
            own = [np.ascontiguousarray(np.array_split(f, ranks.size)[ranks.rank]) for f in feeds]
            real[name, ranks.size] = step, own
            for _ in range(3):
                step(*own)

    def calibrate(ranks: Any) -> tuple[Any, Any]:
        return mg.distributed.Links.measure(), mg.distributed.Sharing.measure()

    def predict(n: int, name: str, links: Any, sharing: Any) -> dict[str, float]:
        step, feeds = alone[name]
        plan = mg.distributed.plan(
            step, *feeds, devices=n, links=links, sharing=sharing, algorithms=("auto",), repeats=5
        )
        (only,) = plan.proposals
        return {
            "seconds": only.seconds, "compute": only.compute, "waiting": only.waiting,
            "bytes": only.bytes,
        }  # fmt: skip

    def measure(ranks: Any, name: str) -> tuple[float, float]:
        """Return the time of a step in a row of them: the median, and the mean, of all ranks."""
        step, own = real[name, ranks.size]
        step(*own)
        ranks.barrier()
        clock = [time.perf_counter()]
        for _ in range(steps):
            step(*own)
            clock.append(time.perf_counter())
        taken = ranks.exchange(np.diff(clock))
        return float(np.median(taken)), float(np.mean(taken))

    for n in counts:
        on(n, make)
    for _ in range(rounds):
        for n in counts:
            links, sharing = mg.distributed.Links(0, 0), ()
            if n > 1 and (told := on(n, calibrate)) is not None:
                links, sharing = told
                found["links"].setdefault(n, []).append(asdict(links))
                found["sharing"].setdefault(n, []).append(asdict(sharing))
            for name in NETWORKS:
                before = on(n, lambda ranks, name=name: measure(ranks, name))
                guess = on(1, lambda _, given=(n, name, links, sharing): predict(*given))
                behind = on(n, lambda ranks, name=name: measure(ranks, name))
                if world.rank == 0:
                    found["predicted"].setdefault(f"{name}/{n}", []).append(guess)
                    found["measured"].setdefault(f"{name}/{n}", []).append((before, behind))
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


def job(words: list[str], counts: list[int], rounds: int, steps: int) -> None:
    """Do one part, on all ranks, and print what rank 0 found."""
    import magmagraph as mg

    found = in_turn(counts, rounds, steps) if words[0] == "steps" else curves(Path(words[1]))
    if mg.distributed.rank() == 0:
        print(json.dumps(found))


def compared(found: dict[str, Any], name: str, n: int) -> dict[str, Any]:
    """Return the medians of what was predicted and measured, and of the errors of the rounds."""
    guesses, rows = found["predicted"][f"{name}/{n}"], found["measured"][f"{name}/{n}"]
    guess = {key: float(np.median([one[key] for one in guesses])) for key in guesses[0]}
    predictions = [one["seconds"] for one in guesses]
    rows, means = np.moveaxis(np.array(rows), 2, 0)  # before and behind each prediction
    errors = np.array(predictions) / np.mean(rows, axis=1) - 1.0
    return {
        "network": name, "ranks": n, **guess, "predictions": predictions,
        "measured": {**spread(rows), "rows": rows.tolist(), "means": means.tolist()},
        "error": float(np.median(errors)), "errors": spread(errors),
    }  # fmt: skip


def spread(values: Any) -> dict[str, Any]:
    least, quarter, median, three, largest = map(float, np.percentile(values, [0, 25, 50, 75, 100]))
    return {"median": median, "least": least, "largest": largest, "quartiles": [quarter, three]}


def main() -> None:
    parser = opening.parser(__doc__, "mpi")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="of jobs (1 2 4)")
    parser.add_argument("--rounds", type=int, default=10, help="of rows and predictions (10)")
    parser.add_argument("--steps", type=int, default=12, help="in a row, twice in a round")
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.job:
        job(chosen.job, chosen.ranks, chosen.rounds, chosen.steps)
        return
    opening.require("mpi")
    cleared = common.clean_environment()
    numbers = {"--ranks": chosen.ranks, "--rounds": [chosen.rounds], "--steps": [chosen.steps]}
    words = [word for key, values in numbers.items() for word in (key, *map(str, values))]
    found = run(max(chosen.ranks), *words, "--job", "steps")
    results = [compared(found, name, n) for name in NETWORKS for n in chosen.ranks]
    rows = []
    for one in results:
        quarters = [one[key]["quartiles"] for key in ("measured", "errors")]
        rows.append(
            (
                one["network"], str(one["ranks"]), f"{one['seconds'] * 1e3:.2f}",
                f"{one['waiting'] * 1e3:.2f}", f"{one['measured']['median'] * 1e3:.2f}",
                " .. ".join(f"{seconds * 1e3:.2f}" for seconds in quarters[0]),
                f"{one['error']:+.1%}", " .. ".join(f"{error:+.0%}" for error in quarters[1]),
                "" if abs(one["error"]) <= ALLOWED else "outside",
            )
        )  # fmt: skip
    common.table(
        rows,
        ("network", "ranks", "predicted ms", "of it waiting", "measured ms", "half of them",
         "error", "half of them", ""),
    )  # fmt: skip
    for n, each in found["sharing"].items():
        told = {key: float(np.median([one[key] for one in each])) for key in each[0]}
        print(f"{n} ranks: " + ", ".join(f"{key} {value:.3g}" for key, value in told.items()))
    drawn = run(1, "--job", "curves", str(common.RESULTS))
    path = common.write(
        "cost_model", results, links=found["links"], sharing=found["sharing"], curves=drawn,
        card=CARD, card_link=LINK, rounds=chosen.rounds,
        claim=f"Step times are predicted within {ALLOWED:.0%}.", cleared=cleared,
        load=os.getloadavg(),
    )  # fmt: skip
    print(f"wrote {path}, cost_model_8.svg and cost_model_4096.svg")


if __name__ == "__main__":
    main()
