"""Claim: a first call takes at most the best compiling peer's time, or 0.1 s.

Seconds from the start of tracing to the end of the first call, in fresh processes: with empty
caches ("cold"), and once more with what the first process has left on disk ("warm"; libraries that
keep nothing are as slow again). Imports are not counted. Workloads are those of the other files.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import common

WORKLOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "seed network, L=1": ("cpu_mlp", {"layers": 1, "batch": 100}),
    "seed network, L=4": ("cpu_mlp", {"layers": 4, "batch": 100}),
    "gate, 1e6": ("cpu_elementwise", {"program": "gate", "size": 10**6}),
    "softmax": ("cpu_rows", {"program": "softmax", "rows": 1000, "columns": 1000}),
    "bodies": ("cpu_arrays", {"program": "bodies", "size": 1000}),
    "options": ("cpu_arrays", {"program": "options", "size": 10_000}),
    "heat": ("cpu_arrays", {"program": "heat", "size": 512}),
    "Hessian-vector product": ("cpu_hvp", {"points": 1000, "features": 100}),
    "cnn": ("cpu_training", {"program": "cnn", "batch": 64}),
    "residual block": (
        "cpu_training", {"program": "residual block", "batch": 8, "channels": 64, "size": 28}
    ),
    "attention block": (
        "cpu_training", {"program": "attention block", "batch": 4, "length": 256, "width": 256}
    ),
}
COMPILERS = {
    "magmagraph": "import magmagraph, magmagraph.passes",
    "jax": "import jax, jax.numpy",
    "torch.compile": "import torch, torch._dynamo, torch._inductor",
    "pytensor": "import pytensor, pytensor.tensor",
}
CODE = """
import json, sys, time
sys.path.insert(0, {folder!r})
{imports}
import {module} as workload
began = time.perf_counter()
work = workload.BENCHMARK.contenders[{name!r}]({case!r})
made = time.perf_counter()
work.call()
print(json.dumps(time.perf_counter() - began))
"""


def first_calls(workload: str, name: str, rounds: int) -> dict[str, list[float]] | None:
    """Return the seconds of first calls with cold and with warm caches, or None if it fails."""
    module, case = WORKLOADS[workload]
    code = CODE.format(
        folder=str(common.RESULTS.parent), imports=COMPILERS[name], module=module, name=name,
        case=case,
    )
    found: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            environment = {
                **os.environ,
                "MAGMAGRAPH_CACHE_DIR": f"{cache}/magmagraph",
                "TORCHINDUCTOR_CACHE_DIR": f"{cache}/torch",
                "PYTENSOR_FLAGS": f"base_compiledir={cache}/pytensor",
                "NUMBA_CACHE_DIR": f"{cache}/numba",
                "JAX_COMPILATION_CACHE_DIR": f"{cache}/jax",
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            }
            for state in ("cold", "warm"):
                done = subprocess.run(
                    [sys.executable, "-c", code], capture_output=True, text=True,
                    timeout=300, env=environment,
                )
                if done.returncode:
                    return None
                found[state].append(json.loads(done.stdout.strip().splitlines()[-1]))
    return found


def _kept(results: dict[str, Any]) -> dict[str, Any]:
    """Return the results with those of workloads that were not run again, each with its date."""
    path = common.RESULTS / "cpu_first_call.json"
    found: dict[str, Any] = {}
    if path.exists():
        record = json.loads(path.read_text())
        for workload, times in record["results"].items():
            found[workload] = {"date": record["machine"]["date"], **times}
    found |= {workload: {**times, "date": common.today()} for workload, times in results.items()}
    return {workload: found[workload] for workload in WORKLOADS if workload in found}


def main() -> None:
    """Measure every workload by every compiler that is installed."""
    cleared = common.clean_environment()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", nargs="+", choices=COMPILERS, default=list(COMPILERS))
    parser.add_argument(
        "--budget", type=float, default=math.inf, help="seconds after which no workload begins"
    )
    parser.add_argument("--dry", action="store_true", help="print, but write no results")
    asked = parser.parse_args()
    results: dict[str, Any] = {}
    rows = []
    compilers = [name for name in COMPILERS if name in asked.peers]
    left_out: list[str] = []
    began = time.monotonic()
    for workload in WORKLOADS:
        if asked.only not in workload:
            continue
        if time.monotonic() - began > asked.budget:
            left_out.append(workload)
            continue
        times = {name: first_calls(workload, name, asked.rounds) for name in compilers}
        results[workload] = times
        for state in ("cold", "warm"):
            middle = {
                name: statistics.median(taken[state]) for name, taken in times.items() if taken
            }
            peers = [value for name, value in middle.items() if name != "magmagraph"]
            share = middle["magmagraph"] / min(peers) if peers and "magmagraph" in middle else None
            rows.append((
                f"{workload}, {state}",
                *(f"{middle[name]:.3f}" if name in middle else "none" for name in compilers),
                "" if share is None else f"{share:.2f}",
            ))
    common.table(rows, ("first call, s", *compilers, "ratio"))
    if left_out:
        print(f"left out, since {asked.budget:.0f} s were over: {', '.join(left_out)}")
    if not asked.dry:
        print(common.write("cpu_first_call", _kept(results), cleared=cleared, left_out=left_out))


if __name__ == "__main__":
    main()
