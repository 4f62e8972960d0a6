"""Measure the tuple space of a workflow: 240 MB over three servers, and 100,000 small values.

    python benchmarks/workflow.py            # processes
    python benchmarks/workflow.py dask       # a cluster of Dask on this machine

Writes ``benchmarks/results/workflow.json``, one table for each executor.
"""

from __future__ import annotations

import json
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


def main() -> None:
    opening.words(__doc__, "dask")
    executor = "dask" if "dask" in sys.argv[1:] else "process"
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
    print(common.write("workflow", {**common.written("workflow"), executor: found}))


if __name__ == "__main__":
    main()
