"""Hyperparameter searches over processes, ranks and Dask: the same trials, and how much sooner.

    MAGMAGRAPH_DATA=... python benchmarks/search.py [--small] [--cases ...] [--ways ...]

`cleveland` (depth, rate, batch, epochs) and `mnist` are grids of the examples; trials of `short`
wait for 10 ms, which shows what handing out costs by itself. In `worker` a trial kills its process
the first time; in `killed` all processes of the search are killed in its middle. Both are started
again until they end, from a journal, and all trials are compared with those of the serial search
that nothing happened to. Every trial has one thread. Under MPI rank 0 hands out, so that four ranks
are three workers. A serial search comes first unmeasured, so that kernels are built.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import opening

EXAMPLES = Path(__file__).parent.parent / "examples"
CASES = ("short", "cleveland", "mnist", "worker", "killed")
WAYS = {
    "serial": ("serial", 1),
    "2 processes": ("process", 2),
    "4 processes": ("process", 4),
    "mpiexec -n 4": ("mpi", 4),
    "Dask, 4 workers": ("dask", 4),
}
THREADS = ("MAGMAGRAPH_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
LIMIT = 900  # seconds of one search


def waits(trial: Any, seconds: float) -> dict[str, float]:
    """Take some time and no core, and note when."""
    began = time.time()
    time.sleep(seconds)
    return {"loss": float(abs(trial["x"] - 7)), "began": began}


def noted(trial: Any, folder: str, kills: bool) -> dict[str, float]:
    """Note that the trial starts; the fifth kills its process the first time."""
    with (Path(folder) / "started").open("a") as file:
        file.write(f"{trial.number}\n")
    mark = Path(folder) / "mark"
    if kills and trial.number == 5 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return waits(trial, 0.05)


def case_of(name: str, small: bool, folder: str) -> tuple[Callable[[Any], Any], Any, Any]:
    """Return objective, space and goal."""
    import magmagraph as mg

    sys.path.insert(0, str(EXAMPLES))
    if name in ("whole", "worker", "killed"):
        objective = functools.partial(noted, folder=folder, kills=name == "worker")
        return objective, {"x": mg.tune.grid(0, 39)}, {}
    if name == "short":
        space = {"x": mg.tune.grid(0, 99 if small else 999)}
        return functools.partial(waits, seconds=0.01), space, {}
    if name == "cleveland":
        import cleveland_search as example

        return example.objective, example.space(4 if small else 16), {"maximize": "accuracy"}
    import mnist_search as example

    rows = 500 if small else 1500
    objective = functools.partial(example.objective, rows=rows, epochs=1)
    return objective, example.space("grid", 4 if small else 48), {"maximize": "accuracy"}


def search(name: str, small: bool, executor: str, workers: int, folder: str) -> None:
    """Run one search; rank 0 prints what it took."""
    import magmagraph as mg

    objective, space, goal = case_of(name, small, folder)
    options: dict[str, Any] = {"process": {"workers": workers, "threads": 1},
                               "dask": {"workers": workers}}.get(executor, {})  # fmt: skip
    if name in ("worker", "killed"):
        options["journal"] = Path(folder) / "search.log"
    mg.distributed.rank()  # MPI starts
    began = time.perf_counter()
    found = mg.tune.search(objective, space, "grid", executor, progress=False, **goal, **options)
    seconds = time.perf_counter() - began
    if mg.distributed.rank() == 0:
        # From the first trial's start to the last one's end: without the start of the workers.
        spans = [(t.values.get("began", 0.0), t.seconds) for t in found.trials]
        span = max(began + taken for began, taken in spans) - min(began for began, _ in spans)
        kept = [(t.number, t.labels, t.state, t.goals) for t in found.trials]
        print(
            json.dumps(
                {
                    "seconds": seconds,
                    "span": span if name == "short" else seconds,
                    "trials": len(found),
                    "failed": found.count("failed"),
                    "work": sum(trial.seconds for trial in found.trials),
                    "best": found.best.labels,
                    "goal": found.best.goal,
                    "digest": hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:16],
                }
            )
        )


def descendants(process: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [process]
    for one in found:
        found += parents.get(one, [])
    return found


def run(name: str, small: bool, executor: str, workers: int) -> dict[str, Any]:
    """Run one search in a job of its own, again where it was killed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--search", name, executor, str(workers), folder]
        if small:
            command.append("--small")
        if executor == "mpi":
            beside = Path(sys.executable).with_name("mpiexec")
            program = str(beside) if beside.exists() else shutil.which("mpiexec") or "mpiexec"
            command = [program, "-n", str(workers), *command]
        environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
        started, began = Path(folder) / "started", time.monotonic()
        for starts in range(1, 4):
            job = subprocess.Popen(
                command, env=environment, text=True, start_new_session=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            if name == "killed" and starts == 1:
                while not started.exists() or len(started.read_text().split()) < 12:
                    if job.poll() is not None or time.monotonic() - began > LIMIT:
                        raise SystemExit(f"{' '.join(command)} did not begin")
                    time.sleep(0.01)
                for process in descendants(job.pid):
                    os.kill(process, signal.SIGKILL)
            output, errors = job.communicate(timeout=LIMIT)
            if job.returncode == 0:
                break
            if name not in ("worker", "killed"):
                raise SystemExit(f"{' '.join(command)} failed:\n{output}{errors}")
        else:
            raise SystemExit(f"{' '.join(command)} failed again and again:\n{errors}")
        result: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
        result |= {"executor": executor, "workers": workers, "load": os.getloadavg()[0]}
        if started.exists():
            runs = Counter(started.read_text().split())
            result |= {"starts": starts, "run twice": sum(n > 1 for n in runs.values())}
        return result


def main() -> None:
    parser = opening.parser(__doc__, "mpi")
    parser.add_argument("--small", action="store_true", help="few points, a minute or two")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--ways", nargs="+", choices=WAYS, metavar="WAY", default=list(WAYS))
    parser.add_argument("--search", nargs=4, metavar=("CASE", "EXECUTOR", "WORKERS", "FOLDER"))
    chosen = parser.parse_args()
    if chosen.search:
        name, executor, workers, folder = chosen.search
        search(name, chosen.small, executor, int(workers), folder)
        return
    opening.require("mpi")
    cleared = common.clean_environment()
    results: dict[str, Any] = {}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("MAGMAGRAPH_CACHE_DIR", cache)
        for name in chosen.cases:
            if name in ("cleveland", "mnist"):
                run(name, chosen.small, "serial", 1)
            kills = name in ("worker", "killed")
            whole = run("whole" if kills else name, chosen.small, "serial", 1)
            found = {} if kills else {"serial": whole}
            for way in chosen.ways:
                if way not in found:
                    found[way] = run(name, chosen.small, *WAYS[way])
            for one in found.values():
                # What a trial costs besides its work, which the workers share.
                busy = max(1, one["workers"] - (one["executor"] == "mpi"))
                one["overhead"] = (one["span"] - one["work"] / busy) / one["trials"]
                one["speedup"] = whole["seconds"] / one["seconds"]
                one["same_trials"] = one["digest"] == whole["digest"]
            results[name] = found
            print(f"\n{name}: {whole['trials']} points, best {whole['best']}")
            rows = [
                (
                    way,
                    f"{one['seconds']:.1f}",
                    f"{one['speedup']:.2f}",
                    f"{1e3 * one['overhead']:.2f}",
                    "yes" if one["same_trials"] else "no",
                    f"{one.get('starts', 1)}",
                    f"{one.get('run twice', 0)}",
                    f"{one['load']:.1f}",
                )
                for way, one in found.items()
            ]
            head = ("way", "seconds", "speed-up", "ms besides", "same trials", "starts",
                    "run twice", "load")  # fmt: skip
            common.table(rows, head)
            written(results, cleared, load)


def written(results: dict[str, Any], cleared: list[str], load: float) -> None:
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
        claim="Searches over processes, ranks and Dask find the trials of the serial search; a "
        "worker or a search that is killed loses none.",
        cleared=cleared,
        quiet=load < 0.5,
        load_before=load,
        notes="Loads are the system's averages of a minute after each search. Where they are above "
        "the number of cores, other programs ran: more processes then get a larger share of the "
        "machine, and speed-ups of the cases that compute say little.",
    )
    print(f"wrote {path}", flush=True)


if __name__ == "__main__":
    main()
