"""Run by mpiexec, a rank a device: a rank that fails, and goes on, leaves no other waiting."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.ir.ranks import current

JOBS = Path(__file__).resolve().parents[1] / "distributed" / "test_agreeing.py"


def several_steps(jobs: Any) -> list[str]:
    """Feed the last rank a wrong shape where many steps are one captured graph."""
    step, _ = jobs._step(ranks.DataParallel())
    last = ranks.rank() == ranks.size() - 1
    return list(
        jobs.outcomes(
            lambda n: step.run(4, jobs.WIDE if last and n == 1 else jobs.GOOD).shape, 3
        )
    )


def main() -> None:
    spec = importlib.util.spec_from_file_location("agreeing_jobs", JOBS)
    assert spec is not None
    assert spec.loader is not None
    jobs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(jobs)
    jobs.DEVICE = "cuda"
    world = current()
    for strategy in (ranks.DataParallel, lambda: ranks.PipelineParallel(2)):
        if strategy is ranks.DataParallel or world.size == 2:
            jobs.check_fed(lambda wrong: world.exchange(jobs.fed(strategy(), wrong)), world.size)  # noqa: B023
    for kind in ("assertion", "nan", "own code"):
        jobs.check_in_a_step(lambda: world.exchange(jobs.in_a_step(kind)), kind, world.size)  # noqa: B023
    told = several_steps(jobs)
    assert told[0] == told[2] == "(4,)", told
    assert told[1].startswith("FeedError: "), told
    mg.synchronize()
    print("all right", file=sys.stderr)


if __name__ == "__main__":
    main()
