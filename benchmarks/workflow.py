"""Measure the tuple space of a workflow, and run workflows on each executor.

    python benchmarks/workflow.py            # 240 MB over three servers, 100,000 small values
    python benchmarks/workflow.py dask       # the same on a cluster of Dask; or mpi
    python benchmarks/workflow.py engines    # the example of five modules and a grid on each

Writes ``benchmarks/results/workflow.json``, a table for each executor and one of the engines.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import numpy as np
import opening

import magmagraph as mg

REPEATS = 5
ENGINES = ("serial", "process", "mpi", "dask")
EXAMPLE = Path(__file__).parents[1] / "examples" / "workflow.toml"
GRID = """
[modules.trial]
function = "workflow:trial"
grid = {rate = [0.01, 0.03, 0.1, 0.3], depth = [1, 2, 3]}
[modules.report]
function = "workflow:done"
after = ["trial"]
"""


def large(context: Any) -> None:
    """Put and get 240 MB, and report the pieces."""
    array = np.random.default_rng(0).random(30_000_000)
    puts, gets = [], []
    for _ in range(REPEATS):
        began = time.perf_counter()
        context.store.put("array", array)
        puts.append(time.perf_counter() - began)
        began = time.perf_counter()
        got = context.store.get("array")
        gets.append(time.perf_counter() - began)
        assert np.array_equal(got, array)
    pieces = [
        {"server": piece.server, "from": piece.start, "to": piece.stop, "bytes held": held}
        for piece, held in context.store.where("array")
    ]
    report(context, {"put s": puts, "get s": gets, "bytes": array.nbytes, "pieces": pieces})


def small(context: Any) -> None:
    """Put and get many numbers, each under a key of its own."""
    count = context.arguments["count"]
    began = time.perf_counter()
    for number in range(count):
        context.store.put(f"{context.copy} {number}", number)
    put = time.perf_counter() - began
    began = time.perf_counter()
    for number in range(count):
        assert context.store.get(f"{context.copy} {number}") == number
    get = time.perf_counter() - began
    report(context, {"count": count, "puts a s": count / put, "gets a s": count / get})


def report(context: Any, values: dict[str, Any]) -> None:
    path = context.output / f"{context.module}-{context.copy}.json"
    path.write_text(json.dumps(values))


def measure(executor: str) -> dict[str, Any]:
    """Run the workflow, and return what its modules have reported."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(__file__).with_suffix(".toml")
        result = mg.workflow.run(path, folder, executor=executor, workers=3)
        assert result.ok
        return {path.stem: json.loads(path.read_text()) for path in Path(folder).glob("*.json")}


def trial(context: Any) -> dict[str, float]:
    """Train a small network with the rate and depth of this point; return its loss."""
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, (256, 4)).astype(np.float32)
    truth = np.sin(points @ np.array([3.0, -2.0, 1.0, 0.5], np.float32)).astype(np.float32)
    x, y = mg.var("x", shape=(256, 4)), mg.var("y", shape=(256,))
    hidden, weights = x, []
    for i, width in enumerate([16] * context.point["depth"] + [1]):
        start = mg.init.glorot_uniform(seed=i)
        weights.append(mg.var(f"w{i}", shape=(hidden.shape[1], width), init=start))
        hidden = hidden @ weights[-1] if width == 1 else mg.tanh(hidden @ weights[-1])
    loss = mg.mean((hidden[:, 0] - y) ** 2)
    step = mg.optimizer.SGD(context.point["rate"]).step(loss, weights, inputs=[x, y], outputs=loss)
    for _ in range(200):
        last = step(points, truth)
    return {"loss": float(last)}


def done(context: Any) -> None:
    """Come after all trials."""


def engines() -> dict[str, Any]:
    """Run the example of five modules and a grid on each executor; all have to say the same."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        path = Path(folder, "grid.toml")
        path.write_text(GRID)
        for executor in ENGINES:
            workers = 1 if executor == "serial" else 3
            began = time.perf_counter()
            result = mg.workflow.run(EXAMPLE, folder, executor=executor, workers=workers)
            seconds = time.perf_counter() - began
            began = time.perf_counter()
            grid = mg.workflow.run(path, folder, executor=executor, workers=workers)
            best = grid.best("trial", minimize="loss")
            found[executor] = {
                "workers": workers,
                "modules done": sorted({run.module for run in result.runs if run.status == "done"}),
                "choice": Path(folder, "choice.txt").read_text().splitlines(),
                "s": round(seconds, 2),
                "grid points": len([run for run in grid.runs if run.module == "trial"]),
                "grid best": {**best.point, **best.value},
                "grid ranks": sorted({rank for run in grid.runs for rank in run.ranks}),
                "grid s": round(time.perf_counter() - began, 2),
            }
    for name in ("modules done", "choice", "grid points", "grid best"):
        assert all(row[name] == found["serial"][name] for row in found.values()), name
    return found


def write(name: str, found: dict[str, Any]) -> None:
    """Write a table beside those of earlier runs; what else ran shows in the load."""
    load = round(os.getloadavg()[0], 1)
    tables = {**common.written("workflow"), name: {"load average": load, **found}}
    print(common.write("workflow", tables))


def main() -> None:
    opening.words(__doc__, "dask", "mpi", "engines")
    words = sys.argv[1:]
    if "engines" in words:
        found = engines()
        common.table(
            [
                (name, row["workers"], len(row["modules done"]), row["s"], row["grid points"],
                 f"{row['grid best']['loss']:.5f}", row["grid s"])
                for name, row in found.items()
            ],
            ("executor", "workers", "modules done", "s", "grid points", "best loss", "grid s"),
        )  # fmt: skip
        write("engines", found)
        return
    executor = next((name for name in ("dask", "mpi") if name in words), "process")
    found = measure(executor)
    large = found["large-0"]
    for name in ("put", "get"):
        seconds = statistics.median(large[f"{name} s"])
        large[f"{name} GB/s"] = round(large["bytes"] / seconds / 1e9, 3)
        print(f"240 MB over three servers, {name}: {large[f'{name} GB/s']} GB/s")
    common.table(
        [tuple(piece.values()) for piece in large["pieces"]], ("server", "from", "to", "bytes held")
    )
    common.table(
        [(name, *map(round, found[name].values())) for name in sorted(found) if name != "large-0"],
        ("module", "values", "puts a s", "gets a s"),
    )
    write(executor, found)


if __name__ == "__main__":
    main()
