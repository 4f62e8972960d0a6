"""Claim: nothing is slower on all cores than on one.

Programs of the other files, each by this project alone: on all cores that the process has, and on
one. Small cases are the hard ones: sharing them out takes longer than they do. Times are those of
a process each; the ratio is of one process, which runs both in turn ("against", with its interval
of 95 %): where both run the same code on one core, processes differ by where their memory lies.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import random

import peers

COPIES = 5  # of a function for all cores, and for one, in one process
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


def ours(case: peers.Case) -> peers.Work:
    """The other file's own contender."""
    module = importlib.import_module(case["file"])
    work: peers.Work = module.BENCHMARK.contenders["magmagraph"](case)
    return work


def alone(case: peers.Case) -> peers.Work:
    """It on one core, in a process that has never had another thread."""
    os.environ["MAGMAGRAPH_THREADS"] = "1"
    return ours(case)


def both(case: peers.Case) -> peers.Work:
    """It on all cores, with what was compiled for one core beside it.

    Several functions of each, drawn turn by turn: two of equal code differ by some per cent, where
    their results lie. Each is made after one of the other.
    """
    import magmagraph as mg

    draw = random.Random(0)
    counts: dict[str, int | None] = {"one core": 1, "chosen": None}
    works: dict[str, list[peers.Work]] = {"one core": [], "chosen": []}
    for i in range(COPIES):
        for name in counts if i % 2 else [*counts][::-1]:
            mg.config.threads = counts[name]
            works[name].append(ours(case))
            works[name][-1].call()
    mg.config.threads = None
    now = {name: made[0].call for name, made in works.items()}

    def take(name: str) -> None:
        mg.config.threads = counts[name]
        now[name] = draw.choice(works[name]).call

    return dataclasses.replace(
        works["chosen"][0],
        call=lambda: now["chosen"](),
        ways={"one core": lambda: now["one core"]()},
        before={name: functools.partial(take, name) for name in counts},
    )


def named(file: str, program: str, sizes: dict[str, int]) -> peers.Case:
    """Return a case with a name that tells its sizes."""
    told = "x".join(str(size) for name, size in sizes.items() if name != "axis")
    return {"name": f"{program} {told}", "file": file, "program": program, **sizes}


BENCHMARK = peers.Benchmark(
    name="cpu_threads",
    claim="All cores beside one.",
    cases=[named(*case) for case in CASES],
    contenders={
        "all cores": both,
        "one core": alone,
    },
    ways="all cores",
    against="one core",
    unit="us",
    seconds=0.05,
    notes=(
        "Measured on a virtual machine. The ratio and its interval are of one process, in "
        "turns whose order is drawn. Where the interval holds 1 no difference can be told: "
        "these cases run on one core in both columns; axis 1 10x1000, whose interval begins "
        "just above 1, too. What a second thread gives is the host's to say: in a run ten "
        "minutes earlier bodies 300 came out at 1.06, in one half an hour earlier step 1x100 "
        "and logsumexp 1000x100 at 1.00."
    ),
)

if __name__ == "__main__":
    peers.main(BENCHMARK)
