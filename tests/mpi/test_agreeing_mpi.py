"""Processes begin a call together, as the threads of tests/distributed/test_agreeing.py do."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from magmagraph.distributed import DataParallel, PipelineParallel
from magmagraph.ir.ranks import current
from magmagraph.runtime.comm.mpi import MPIRank

STRATEGIES = {"rows": DataParallel, "stages": lambda: PipelineParallel(2)}


def jobs() -> ModuleType:
    """Return the jobs, which stand in another folder's file."""
    if "agreeing_jobs" not in sys.modules:
        path = Path(__file__).resolve().parents[1] / "distributed" / "test_agreeing.py"
        spec = importlib.util.spec_from_file_location("agreeing_jobs", path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["agreeing_jobs"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["agreeing_jobs"]


def fed(strategy: str, wrong: tuple[int, ...], one_host: bool = True) -> Any:
    world = current()
    assert isinstance(world, MPIRank)
    world._turnstile, world._one_host = None, None if one_host else False
    try:
        return jobs().fed(STRATEGIES[strategy](), wrong)
    finally:
        assert (world._turnstile is not None) == one_host
        world._one_host = None


@pytest.mark.parametrize(
    ("strategy", "ranks", "one_host"),
    [("rows", 2, True), ("rows", 2, False), ("rows", 3, True), ("stages", 2, True)],
)
def test_a_feed_that_does_not_fit_is_refused_on_all_ranks(
    on_ranks: Callable[..., Any], strategy: str, ranks: int, one_host: bool
) -> None:
    jobs().check_fed(lambda wrong: on_ranks(ranks, fed, strategy, wrong, one_host), ranks)


def in_a_step(kind: str) -> Any:
    return jobs().in_a_step(kind)


@pytest.mark.parametrize("kind", ["assertion", "nan", "own code"])
def test_a_step_that_fails_on_one_rank_changes_no_variable(
    on_ranks: Callable[..., Any], kind: str
) -> None:
    jobs().check_in_a_step(lambda: on_ranks(2, in_a_step, kind), kind, 2)


def meetings(count: int) -> list[list[bool]]:
    """Return what each of many meetings says, of which some ranks have failed in some."""
    world = current()
    told = []
    for number in range(count):
        failed = number % 7 == world.rank or number % 11 == 0
        found = world.agree(number if failed else None, "a meeting of a test")
        told.append([f is not None for f in found or [None] * world.size])
        assert found is None or {f for f in found if f is not None} == {number}
    return told


def test_no_meeting_is_taken_for_another(on_ranks: Callable[..., Any]) -> None:
    first, *others = on_ranks(3, meetings, 2000)
    assert all(other == first for other in others)
    for number, failed in enumerate(first):
        assert failed == [number % 7 == rank or number % 11 == 0 for rank in range(3)]
