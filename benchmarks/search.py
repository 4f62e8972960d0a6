"""Hyperparameter searches over processes, ranks and Dask: the same best point, and how much sooner.

    MAGMAGRAPH_DATA=... python benchmarks/search.py [--small] [--cases ...] [--ways ...]

Grids of the examples (Cleveland, MNIST) and one of trials that only wait, which shows what handing
out costs by itself: its speed-up can be as many as there are workers on any machine, that of the
others no more than there are cores. Every trial has one thread. Under MPI rank 0 hands out, so that
four ranks are three workers. A serial search comes first unmeasured, so that kernels are built.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import opening

EXAMPLES = Path(__file__).parent.parent / "examples"
CASES = ("short", "waiting", "cleveland", "mnist")
WAYS = (
    ("serial", "serial", 1),
    ("2 processes", "process", 2),
    ("4 processes", "process", 4),
    ("2 ranks", "mpi", 2),
    ("3 ranks", "mpi", 3),
    ("4 ranks", "mpi", 4),
    ("Dask, 2 workers", "dask", 2),
    ("Dask, 4 workers", "dask", 4),
)
THREADS = ("MAGMAGRAPH_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def waits(trial: Any, seconds: float) -> float:
    """Take some time and no core."""
    time.sleep(seconds)
    return float(abs(trial["x"] - 7))


def case_of(name: str, small: bool) -> tuple[Callable[[Any], Any], Any, dict[str, Any]]:
    """Return objective, space and goal."""
    import magmagraph as mg

    sys.path.insert(0, str(EXAMPLES))
    if name == "short":
        space = {"x": mg.tune.grid(0, 99 if small else 999)}
        return functools.partial(waits, seconds=0.01), space, {}
    if name == "waiting":
        space = {"x": mg.tune.grid(0, 11 if small else 59)}
        return functools.partial(waits, seconds=0.1), space, {}
    if name == "cleveland":
        import cleveland_search as example

        objective = functools.partial(example.objective, epochs=5 if small else 8)
        return objective, example.space(4 if small else 36), {"maximize": "accuracy"}
    import mnist_search as example

    objective = functools.partial(
        example.objective, rows=1000 if small else 1500, epochs=1
    )
    space = example.space("grid", 4 if small else 48)
    return objective, space, {"maximize": "accuracy"}


def search(name: str, small: bool, executor: str, workers: int) -> None:
    """Run one search; rank 0 prints what it took."""
    import magmagraph as mg

    objective, space, goal = case_of(name, small)
    options: dict[str, Any] = {"process": {"workers": workers, "threads": 1},
                               "dask": {"workers": workers}}.get(executor, {})  # fmt: skip
    mg.distributed.rank()  # MPI starts
    began = time.perf_counter()
    found = mg.tune.search(objective, space, "grid", executor, **goal, **options)
    seconds = time.perf_counter() - began
    if mg.distributed.rank() == 0:
        print(
            json.dumps(
                {
                    "seconds": seconds,
                    "trials": len(found),
                    "failed": found.count("failed"),
                    "work": sum(trial.seconds for trial in found.trials),
                    "best": found.best.labels,
                    "goal": found.best.goal,
                }
            )
        )


def run(name: str, small: bool, executor: str, workers: int) -> dict[str, Any]:
    """Run one search in a job of its own."""
    command = [sys.executable, __file__, "--search", name, executor, str(workers)]
    if small:
        command.append("--small")
    if executor == "mpi":
        beside = Path(sys.executable).with_name("mpiexec")
        program = str(beside) if beside.exists() else shutil.which("mpiexec") or "mpiexec"
        command = [program, "-n", str(workers), *command]
    environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3600)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return {**result, "executor": executor, "workers": workers, "load": os.getloadavg()[0]}


def main() -> None:
    parser = opening.parser(__doc__, "mpi")
    parser.add_argument("--small", action="store_true", help="few points, a minute or two")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--ways", nargs="+", choices=[way for way, *_ in WAYS], metavar="WAY")
    parser.add_argument("--search", nargs=3, metavar=("CASE", "EXECUTOR", "WORKERS"))
    chosen = parser.parse_args()
    if chosen.search:
        name, executor, workers = chosen.search
        search(name, chosen.small, executor, int(workers))
        return
    opening.require("mpi")
    cleared = common.clean_environment()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("MAGMAGRAPH_CACHE_DIR", cache)
        for name in chosen.cases:
            if name not in ("short", "waiting"):
                run(name, chosen.small, "serial", 1)
            found = {
                way: run(name, chosen.small, executor, n)
                for way, executor, n in WAYS
                if way in ("serial", *(chosen.ways or [way]))
            }
            serial = found["serial"]
            for one in found.values():
                # What a trial costs besides its work, which the workers share.
                busy = max(1, one["workers"] - (one["executor"] == "mpi"))
                one["overhead"] = (one["seconds"] - one["work"] / busy) / one["trials"]
                one["speedup"] = serial["seconds"] / one["seconds"]
                one["same_best"] = (one["best"], one["goal"]) == (serial["best"], serial["goal"])
            results[name] = found
            print(f"\n{name}: {serial['trials']} points, best {serial['best']}")
            rows = [
                (
                    way,
                    f"{one['seconds']:.1f}",
                    f"{one['speedup']:.2f}",
                    "yes" if one["same_best"] else f"no: {one['best']}",
                    f"{one['load']:.1f}",
                )
                for way, one in found.items()
            ]
            common.table(rows, ("way", "seconds", "speed-up", "same best point", "load"))
            written(results, cleared)


def written(results: dict[str, Any], cleared: list[str]) -> None:
    """Write what was found, beside the cases of earlier runs on this machine."""
    path = common.RESULTS / "search.json"
    before: dict[str, Any] = {}
    if path.exists():
        held = json.loads(path.read_text())
        if {**held["machine"], "date": ""} == {**common.machine(), "date": ""}:
            before = held["results"]
    common.write(
        "search",
        {**before, **results},
        claim="Searches over processes, ranks and Dask find the serial best point sooner.",
        cleared=cleared,
        notes="Loads are the system's averages of a minute after each search. Where they are above "
        "the number of cores, other programs ran: more processes then get a larger share of the "
        "machine, and speed-ups of the cases that compute say little.",
    )
    print(f"wrote {path}", flush=True)


if __name__ == "__main__":
    main()
