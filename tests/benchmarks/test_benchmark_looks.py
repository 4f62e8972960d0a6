"""What shows that two threads are no slower than one: `benchmarks/repeats.py`, `cpu_threads.py`."""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

APART = 0.008  # of a process from the next, where both run the same code
CASES = [{"name": f"case {i}"} for i in range(33)]


def told(repeats: Any, counts: tuple[int, int], slower: float, seed: int) -> int:
    """Return how many of 33 made cases, as much slower by two threads, are not found to be met."""
    draw = random.Random(seed)

    def measure(number: int, cases: Any) -> dict[str, float]:
        del number
        return {case["name"]: slower * math.exp(draw.gauss(0.0, APART)) for case in cases}

    looks = repeats.looked(CASES, counts, measure)
    return sum(not repeats.shows(found[-1]) for found in looks.values())


def test_equal_code_is_rarely_found_slower_and_two_per_cent_always(benchmarks) -> None:
    repeats, counts = benchmarks("repeats"), benchmarks("cpu_threads").BENCHMARK.processes
    equal = [told(repeats, counts, 1.0, seed) for seed in range(60)]
    assert sum(found > 0 for found in equal) <= 6  # runs with any of 33 cases
    slower = [told(repeats, counts, 1.02, seed) for seed in range(60)]
    assert statistics.fmean(slower) >= 0.95 * len(CASES)
    assert min(told(repeats, counts, 1.03, seed) for seed in range(20)) == len(CASES)


def test_the_second_look_alone_decides_and_all_is_kept(benchmarks) -> None:
    repeats = benchmarks("repeats")
    asked: list[tuple[int, int]] = []

    def measure(number: int, cases: Any) -> dict[str, float]:
        asked.append((number, len(cases)))
        ratio = 1.05 if number < 2 else 1.0  # slower in the first look only
        ratio += 0.001 * (number % 2)
        return {case["name"]: 0.6 if case["name"] == "case 0" else ratio for case in cases}

    looks = repeats.looked(CASES[:3], (2, 3), measure)
    assert asked == [(0, 3), (1, 3), (2, 2), (3, 2), (4, 2)]
    assert [len(looks[f"case {i}"]) for i in range(3)] == [1, 2, 2]
    assert looks["case 1"][0]["ratios"] == [1.05, 1.051]
    assert looks["case 1"][1]["ratios"] == [1.0, 1.001, 1.0]
    assert not repeats.shows(looks["case 1"][0])
    assert repeats.shows(looks["case 1"][1])


def test_an_interval_that_tells_nothing_is_not_met(benchmarks) -> None:
    repeats = benchmarks("repeats")
    assert not repeats.shows(repeats.look([0.9, 1.0, 1.1, 0.95]))  # too wide
    assert not repeats.shows(repeats.look([1.003, 1.004, 1.003, 1.005]))  # little, but above 1
    assert repeats.shows(repeats.look([0.999, 1.004, 0.997, 1.002]))


@pytest.mark.parametrize(("slower", "shown"), [(1.0, True), (1.02, False)])
def test_what_a_slower_function_costs_is_in_the_ratio_of_turns(
    benchmarks, monkeypatch, slower: float, shown: bool
) -> None:
    """Functions that take a clock on: each process has pairs, whose places cost this or that."""
    peers, threads = benchmarks("peers"), benchmarks("cpu_threads")
    repeats = benchmarks("repeats")
    import magmagraph as mg

    now = [0.0]
    monkeypatch.setenv("MAGMAGRAPH_THREADS", "2")  # on any machine
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    draw = random.Random(3)

    def contender(case: Any) -> Any:
        place = draw.gauss(0.0, APART)

        def call() -> None:
            now[0] += 1e-5 * math.exp(place) * (1.0 if mg.config.threads == 1 else slower)

        return peers.Work(call, dict)

    monkeypatch.setattr(threads, "ours", contender)
    ratios = []
    for number in range(threads.PROCESSES):
        case = {"name": "made", "file": "cpu_arrays", "program": "bodies", "size": 4}
        answer = peers._ways(threads.both({**case, "process": number}))
        ratios.append(answer["against"]["one core"][1])
    found = repeats.look(ratios)
    assert repeats.shows(found) == shown
    assert found["interval"][1] == pytest.approx(slower, abs=APART)


def test_both_ways_take_each_pair_as_often(benchmarks) -> None:
    threads = benchmarks("cpu_threads")
    drawn = threads._pairs(1)
    taken = [next(drawn) for _ in range(7 * threads.COPIES)]
    assert all(taken.count(i) == 7 for i in range(threads.COPIES))
    again = threads._pairs(1)
    assert taken == [next(again) for _ in taken]
    assert threads.COPIES % 2 == 0  # the one of all cores is made first in half of them


def test_targets_count_the_last_look(benchmarks, tmp_path: Path) -> None:
    targets = benchmarks("targets")
    (claim,) = [claim for claim in targets.CLAIMS if claim.file == "cpu_threads"]
    looks = {"first": {"interval": [1.01, 1.03, 1.05]}, "met": {"interval": [0.99, 1.0, 1.01]},
             "wide": {"interval": [0.9, 1.0, 1.1]}}  # fmt: skip

    def entry(*names: str) -> dict[str, Any]:
        return {"case": {"name": " ".join(names)}, "looks": [looks[name] for name in names]}

    results = [entry("met"), entry("first"), entry("first", "met"), entry("first", "wide")]
    (tmp_path / "cpu_threads.json").write_text(json.dumps({"results": results}))
    found = {case.name: case.met for case in targets.read(tmp_path, claim)}
    assert found == {
        "met, interval's end": True,
        "first, interval's beginning": False,
        "first met, interval's end": True,
        "first wide, interval's end": False,
    }
