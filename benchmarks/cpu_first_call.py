"""Claim: a first call takes at most the best compiling peer's time, or 0.1 s.

Seconds from the start of tracing to the end of the first call, in fresh processes: with empty
caches ("cold"), and once more with what the first process has left on disk ("warm"; libraries that
keep nothing are as slow again). Every library is as its installation leaves it: JAX and torch have
their products and convolutions in their wheels, and magmagraph, installed by pip where there was a
C compiler, has those libraries that no program changes ("installed" in the results says how many);
its kernels are compiled in the measured call. MAGMAGRAPH_INSTALLED=0 measures without them.
Imports are not counted, and neither are those that a library puts off until its first call: a
process that is not measured tells which these are, for every library alike, and the others import
them before; their seconds are recorded beside ("imports"). Workloads are those of the other files.
"""

from __future__ import annotations

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
import opening

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
NOTES = """\
Cold: the disk cache is empty, the package is as pip has installed it where a C compiler was at
hand, as JAX is with its wheel. The libraries that no program changes (pool and list runner,
products through BLAS and by tiles, convolutions, pooling) were built then, in 2.2 s on two cores,
and are found by the key of the disk cache; asking the compiler what it is (9 ms) goes with them.
Before, the same calls took 0.559 s (L=1), 0.569, gate 0.132, softmax 0.196, bodies 0.123, options
0.218, heat 0.187, Hessian-vector product 0.243, cnn 1.399, residual block 0.941, attention block
1.315. bodies, whose one kernel took 78 ms of gcc's processor time in 17 vector loops, is written in
vectors and compiled at -O1 since (60 ms; 73 at -O2, and as fast; 68 ms since what its root is
taken of stands there four times, computed ahead), 0.118 s before. What is left
of the others is gcc's time for the program's own kernels, one run a core: an empty file 15 to 22
ms (driver and cc1 9, assembler 4, linker 8 to 11), gate 55 of processor time. Also
new: kernels declare the functions that they call (math.h took 6 to 10 ms; the machine code is the
same), and each core gets a run where there are two kernels. Tried and kept earlier: no start
files and no plugin in the link, -pipe, pooling by kernel and from the first. Without gain: no
vectorization of plain loops (0.77, 1.12 and 1.25 of gcc's time for gate, softmax, bodies), none
of straight code (1.02), no unwind tables (1.01), single optimizations switched off, gold.
Refused: kernels whose loops are left to the compiler at -O1 (1 to 13 % slower), tiles after the
first call (last bits of a second call would differ). softmax, 0.121 s beside JAX's 0.078 (0.128
beside 0.095 in another run), has its largest elements, exp, sums and quotients in vectors since,
too, and takes gcc 61 ms at -O1 where it took 96 at -O2 in the same minute (instructions of cc1:
284 and 547 million; an empty file 68), with kernels as fast or faster. Kernels in vectors were
given math.h by mistake, 46 million instructions. Of the 284, by leaving parts out: the function
that deals out a kernel's rows 19, blocks of long sums 20, joining lanes 12, exp 18, rests of rows
29. Without gain: no unwind tables (60.6 for 61.2 ms), each optimization of -O1 switched off that
was tried (most less than 1 % of the instructions), no -lm -lgcc. Left: the dealing out and the
blocks in the support library (some 8 ms), choices in vectors (options)."""
CODE = """
import contextlib, importlib, json, sys, time
sys.path.insert(0, {folder!r})
{imports}
import {module} as workload
began = time.perf_counter()
for late in {late!r}:
    with contextlib.suppress(Exception):
        importlib.import_module(late)
imports = time.perf_counter() - began
known = set(sys.modules)
began = time.perf_counter()
work = workload.BENCHMARK.contenders[{name!r}]({case!r})
work.call()
took = time.perf_counter() - began
late = [
    name
    for name, module in sys.modules.items()
    if name not in known and str(getattr(module, "__file__", None)).startswith({installed!r})
]
print(json.dumps([took, imports, late]))
"""


def first_calls(workload: str, name: str, rounds: int) -> dict[str, list[float]] | None:
    """Return the seconds of first calls with cold and with warm caches, or None if it fails."""
    module, case = WORKLOADS[workload]
    found: dict[str, list[float]] = {"cold": [], "warm": [], "imports": []}
    late: list[str] = []
    # What a library writes while it compiles is no import of its own: modules of its folders are.
    installed = (sys.prefix, sys.base_prefix, str(common.RESULTS.parents[1]))
    for turn in range(-1, rounds):
        code = CODE.format(
            folder=str(common.RESULTS.parent), imports=COMPILERS[name], module=module, name=name,
            case=case, late=late, installed=installed,
        )
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
                took, imports, more = json.loads(done.stdout.strip().splitlines()[-1])
                late += more
                if turn < 0:
                    break
                found[state].append(took)
                found["imports"].append(imports)
    return found


def installed_libraries() -> str:
    """Return what the command line says of the libraries that were built at installation."""
    done = subprocess.run(
        [sys.executable, "-m", "magmagraph", "info", "--json"], capture_output=True, text=True,
        check=True,
    )
    facts = {fact["name"]: fact["value"] for fact in json.loads(done.stdout)}
    return str(facts["installed libraries"]).partition(", in ")[0]


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
    parser = opening.parser(__doc__)
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each compiler (3)")
    parser.add_argument(
        "--peers", nargs="+", choices=COMPILERS, default=list(COMPILERS), help="compilers to run"
    )
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
        more = {"cleared": cleared, "left_out": left_out, "notes": NOTES.replace("\n", " ")}
        more["installed"] = installed_libraries()
        print(common.write("cpu_first_call", _kept(results), **more))


if __name__ == "__main__":
    main()
