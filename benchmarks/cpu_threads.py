"""Claim: nothing is slower on all cores than on one.

Programs of the other files, each by this project alone: on all cores that the process has, and on
one. Small cases are the hard ones: sharing them out takes longer than they do.
"""

from __future__ import annotations

import functools
import importlib
import os

import peers

CASES: tuple[tuple[str, str, dict[str, int]], ...] = (
    *(("cpu_elementwise", "gate", {"size": 10**power}) for power in (3, 4, 5, 6)),
    *(("cpu_elementwise", "polynomial", {"size": 10**power}) for power in (4, 5, 6, 7)),
    *(
        ("cpu_rows", program, {"rows": rows, "columns": 100})
        for program in ("softmax", "layer_norm", "logsumexp")
        for rows in (100, 1000, 10_000)
    ),
    *(
        ("cpu_sums", f"axis {axis}", {"axis": axis, "rows": rows, "columns": columns})
        for axis in (0, 1)
        for rows, columns in ((10, 1000), (528, 100), (1000, 1000))
    ),
    *(("cpu_arrays", "bodies", {"size": size}) for size in (100, 300, 1000)),
    *(("cpu_arrays", "heat", {"size": size}) for size in (64, 256, 1024)),
    *(("cpu_arrays", "kernel matrix", {"size": size}) for size in (100, 1000)),
    *(("cpu_mlp", "step", {"layers": layers, "batch": 100}) for layers in (1, 4)),
)


def ours(case: peers.Case, *, alone: bool) -> peers.Work:
    """The other file's own contender."""
    if alone:
        os.environ["MAGMAGRAPH_THREADS"] = "1"
    module = importlib.import_module(case["file"])
    work: peers.Work = module.BENCHMARK.contenders["magmagraph"](case)
    return work


def named(file: str, program: str, sizes: dict[str, int]) -> peers.Case:
    """Return a case with a name that tells its sizes."""
    told = "x".join(str(size) for name, size in sizes.items() if name != "axis")
    return {"name": f"{program} {told}", "file": file, "program": program, **sizes}


BENCHMARK = peers.Benchmark(
    name="cpu_threads",
    claim="All cores beside one.",
    cases=[named(*case) for case in CASES],
    contenders={
        "all cores": functools.partial(ours, alone=False),
        "one core": functools.partial(ours, alone=True),
    },
    unit="us",
    seconds=0.05,
    notes=(
        "Measured on a virtual machine of which the host took up to 8 % of the time. Cases of less "
        "than 30 us run on one core in both columns: what they differ by is the spread."
    ),
)

if __name__ == "__main__":
    peers.main(BENCHMARK)
