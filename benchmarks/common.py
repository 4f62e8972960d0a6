"""What every benchmark shares: a clean environment, machine and versions, medians, results.

A benchmark is one file with a claim. It prints a table and writes
``benchmarks/results/<name>.json``. Run it alone on the machine: other work shows in the spread.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
INHERITED = ("OPENBLAS_", "OMP_", "MKL_", "GOTO_", "BLIS_", "NVPL_", "PYTHONDONTWRITEBYTECODE")
THREADS = ("MAGMAGRAPH_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
PACKAGES = (
    "numpy", "scipy", "ml_dtypes", "magmagraph", "jax", "torch", "keras", "tensorflow", "pytensor",
    "cupy-cuda13x", "nvmath-python", "triton",
)


def clean_environment() -> list[str]:
    """Start this program again without inherited BLAS and OpenMP settings; return their names.

    They change the speed of everybody's products, and are read before Python code runs. Without
    cached bytecode, each import compiles anew.
    """
    found = sorted(name for name in os.environ if name.startswith(INHERITED))
    if found:
        environment = {k: v for k, v in os.environ.items() if k not in found}
        environment["MAGMAGRAPH_BENCH_CLEARED"] = ",".join(found)
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    cleared = os.environ.get("MAGMAGRAPH_BENCH_CLEARED", "")
    return cleared.split(",") if cleared else []


def on_ranks(
    file: str, ranks: int, arguments: list[str], *, threads: int = 1, timeout: float = 300.0
) -> dict[str, Any]:
    """Run a program on so many ranks, or in one process; return what its last line says in JSON."""
    beside = Path(sys.executable).with_name("mpiexec")
    start = [str(beside) if beside.exists() else "mpiexec", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run(
        [*start, sys.executable, file, *arguments], capture_output=True, text=True,
        env={**os.environ, **dict.fromkeys(THREADS, str(threads))}, timeout=timeout, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def today() -> str:
    """Return the date, as results give it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")


def machine() -> dict[str, Any]:
    """Return what the numbers depend on: processor, cores, system, versions, date."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": versions,
        "date": today(),
    }


def timed(
    function: Callable[[], Any], *, repeats: int = 7, seconds: float = 0.2
) -> dict[str, float]:
    """Return the median, least and largest seconds of a call, over batches of calls."""
    function()
    began = time.perf_counter()
    function()
    once = max(time.perf_counter() - began, 1e-7)
    inner = max(1, int(seconds / repeats / once))
    samples = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(inner):
            function()
        samples.append((time.perf_counter() - began) / inner)
    return {
        "median": statistics.median(samples),
        "least": min(samples),
        "largest": max(samples),
    }


def interleaved(
    functions: dict[str, Callable[[], Any]],
    *,
    rounds: int = 15,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, dict[str, float]]:
    """Return the median, least and largest seconds of each function, called in turn.

    What else the machine does then slows all of them, and quotients of the medians hold. Of work on
    one thread `time.process_time` leaves it out.
    """
    for function in functions.values():
        function()
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            began = clock()
            function()
            samples[name].append(clock() - began)
    return {
        name: {"median": statistics.median(taken), "least": min(taken), "largest": max(taken)}
        for name, taken in samples.items()
    }


def in_child(code: str, environment: dict[str, str] | None = None) -> Any:
    """Run Python code in a fresh process and return the JSON value that it prints last."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env={**os.environ, **(environment or {})},
    )
    return json.loads(result.stdout.strip().splitlines()[-1])


def write(name: str, results: Any, **more: Any) -> Path:
    """Write results with the machine that they hold for."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    record = {"benchmark": name, "machine": machine(), **more, "results": results}
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def written(name: str) -> Any:
    """Return the results that were written last, or an empty dictionary."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text())["results"] if path.exists() else {}


def table(rows: list[tuple[Any, ...]], head: tuple[str, ...]) -> None:
    """Print rows under a head, columns aligned."""
    text = [head, *[tuple(str(cell) for cell in row) for row in rows]]
    widths = [max(len(row[i]) for row in text) for i in range(len(head))]
    for row in text:
        print("  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip())
