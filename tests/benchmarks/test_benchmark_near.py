"""What shows that a sum is within 5 % or 1 us of the best peer: `benchmarks/near.py`."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

RUNS = 1000


def accused(near: Any, slower: float, apart: float) -> tuple[float, float]:
    """Return the share of runs that find a made case not near: by one process each, by the rule."""
    draw, single, found = random.Random(5), 0, 0

    def process(seconds: float) -> float:
        return seconds * math.exp(draw.gauss(0.0, apart))

    def measure(names: Sequence[str], count: int) -> dict[str, dict[str, list[float]]]:
        times = {"ours": [process(slower * 1e-3) for _ in range(count)]}
        times["peer"] = [process(1e-3) for _ in range(count)]
        return dict.fromkeys(names, times)

    for _ in range(RUNS):
        ours, peer = process(slower * 1e-3), process(1e-3)
        single += ours / peer > 1.05
        if near.rivals(ours, {"peer": peer}):
            found += near.share(near.looked(["case"], measure)["case"][-1]) > 1.0
    return single / RUNS, found / RUNS


@pytest.mark.parametrize("apart", [0.02, 0.03, 0.05, 0.07])
def test_the_rule_is_stricter_with_what_is_slower_and_accuses_less_of_what_is_not(
    benchmarks, apart: float
) -> None:
    near = benchmarks("near")
    for slower in (1.06, 1.08, 1.1, 1.15):
        single, found = accused(near, slower, apart)
        assert found >= single
    for slower in (0.97, 1.0, 1.02):
        single, found = accused(near, slower, apart)
        assert found <= single
    assert accused(near, 1.08, apart)[1] >= (0.93 if apart <= 0.05 else 0.8)
    assert accused(near, 1.0, apart)[1] <= (0.02 if apart <= 0.05 else 0.06)


def test_a_microsecond_is_near_whatever_the_share(benchmarks) -> None:
    near = benchmarks("near")
    assert near.limit(1e-3) == 1.05
    assert near.limit(2e-6) == 1.5
    assert near.rivals(2.4e-6, {"peer": 2e-6}) == []  # 0.4 us more, at 4/5 of the limit
    assert near.rivals(2.9e-6, {"peer": 2e-6}) == ["peer"]
    found = near.look({"ours": [2.9e-6, 2.9e-6], "peer": [2e-6, 2e-6]})
    assert near.share(found) == pytest.approx(2.9 / 3.0)


def test_nothing_may_be_lost_where_the_limit_says_so(benchmarks) -> None:
    near = benchmarks("near")
    assert near.rivals(0.86, {"peer": 1.0}) == []
    assert near.rivals(0.86, {"peer": 1.0}, near.no_slower) == ["peer"]
    times = {"ours": [1.02, 1.02, 1.03], "peer": [1.0, 1.0, 1.0]}
    assert near.share(near.look(times)) < 1.0 < near.share(near.look(times, near.no_slower))
    looks = near.looked(["case"], lambda names, count: dict.fromkeys(names, times), near.no_slower)
    assert [found["limit"] for found in looks["case"]] == [1.0]
    assert near.rivals(0.59, {"peer": 1.0}, near.seven_tenths) == []
    assert near.rivals(0.6, {"peer": 1.0}, near.seven_tenths) == ["peer"]


def test_the_second_look_alone_decides_and_the_fastest_peer_counts(benchmarks) -> None:
    near = benchmarks("near")
    peers = {"a": 1.0, "b": 1.2, "far": 1.3}
    assert near.rivals(0.89, peers) == []
    assert near.rivals(0.9, peers) == ["a", "b"]
    asked: list[tuple[tuple[str, ...], int]] = []

    def measure(names: Sequence[str], count: int) -> dict[str, dict[str, list[float]]]:
        asked.append((tuple(names), count))
        ours = [1.0 if i % 2 else 1.12 for i in range(count)]
        again = [1.0] * count
        return {
            name: {"ours": [1.2] * count if name == "slow" else again if len(asked) > 1 else ours,
                   "a": [1.0] * count, "b": [0.99] * count}
            for name in names
        }  # fmt: skip

    looks = near.looked(["slow", "wide"], measure)
    assert asked == [(("slow", "wide"), near.FIRST), (("wide",), near.AGAIN)]
    assert [len(looks[name]) for name in ("slow", "wide")] == [1, 2]
    assert not near.settled(looks["wide"][0])
    assert near.share(looks["slow"][-1]) > 1.0 >= near.share(looks["wide"][-1])
    assert looks["wide"][-1]["peer"] == "b"
    first = {"ours": 1.3, "a": 1.0, "b": 1.0}
    assert near.ratio(first, looks["wide"]) == pytest.approx(1.0 / 0.99)
    assert near.ratio(first, looks["slow"]) == pytest.approx(1.2 / 0.99)


def test_a_peer_that_lost_its_cores_makes_nobody_near(benchmarks) -> None:
    near = benchmarks("near")
    found = near.look({"ours": [1.1] * 8, "peer": [1.0] * 6 + [50.0, 90.0], "other": [1.2] * 8})
    assert found["interval"][1] < 1.0  # the mean
    assert found["peer"] == "peer"
    assert near.share(found) == pytest.approx(1.1 / 1.05)


def test_processes_of_rivals_are_started_in_groups(benchmarks, monkeypatch) -> None:
    """The benchmark's own part: whom it starts, what it keeps, and that all of them end."""
    peers, near = benchmarks("peers"), benchmarks("near")
    taken = {"ours": 1.2, "a": 1.0, "b": 3.0}
    started: list[str] = []
    ended: list[str] = []

    class Library:
        def __init__(self, name: str) -> None:
            self.name = name
            started.append(name)

        def end(self) -> None:
            ended.append(self.name)

    def measure(benchmark: Any, case: Any, libraries: list[Library]) -> dict[str, Any]:
        assert not benchmark.ways
        return {"times": {x.name: {"median": taken[x.name]} for x in libraries}}

    monkeypatch.setattr(peers, "measure", measure)
    benchmark = peers.Benchmark("made", "", [], dict.fromkeys(taken), ways="ours", near=near.limit)
    rows = {name: {"median": seconds} for name, seconds in taken.items()}
    clear = {**rows, "ours": {"median": 0.5}}
    measured = [
        {"case": {"name": "near"}, "times": rows, "ratio": 1.2},
        {"case": {"name": "clear"}, "times": clear, "ratio": 0.5},
    ]
    peers._repeated(benchmark, measured, Library)
    assert started == ended == ["ours", "a"] * near.FIRST
    assert "repeated" not in measured[1]
    assert measured[0]["ratio"] == pytest.approx(1.2)
    (found,) = measured[0]["repeated"]
    assert found["times"] == {"ours": [1.2] * near.FIRST, "a": [1.0] * near.FIRST}


def test_targets_count_the_last_look_and_else_single_processes(benchmarks, tmp_path: Path) -> None:
    targets = benchmarks("targets")
    (claim,) = [claim for claim in targets.CLAIMS if claim.file == "cpu_sums"]

    def entry(name: str, ours: float, *middles: float) -> dict[str, Any]:
        mine = {"median": ours, "ways": {"gemv": 1.0}, "against": {"gemv": [1.0, 1.0, 1.0]}}
        looks = [{"ratio": middle, "limit": 1.05} for middle in middles]
        repeated = {"repeated": looks} if looks else {}
        times = {"magmagraph": mine, "torch": {"median": 1.0}}
        return {"case": {"name": name}, "times": times, **repeated}

    results = [entry("met", 1.04), entry("missed", 1.06), entry("again", 1.06, 1.1, 1.04),
               entry("slow", 1.0, 1.06)]  # fmt: skip
    (tmp_path / "cpu_sums.json").write_text(json.dumps({"results": results}))
    found = {case.name: case.met for case in targets.read(tmp_path, claim)}
    assert {name: met for name, met in found.items() if "choice" not in name} == {
        "met": True, "missed": False, "again, processes": True, "slow, processes": False,
    }  # fmt: skip


def test_targets_of_nothing_lost_count_the_last_look(benchmarks, tmp_path: Path) -> None:
    targets = benchmarks("targets")
    (claim,) = [claim for claim in targets.CLAIMS if claim.file == "cpu_hvp"]
    results = [
        {"case": {"name": "single"}, "ratio": 1.02},
        {"case": {"name": "again"}, "ratio": 1.02, "repeated": [{"ratio": 1.1}, {"ratio": 0.97}]},
        {"case": {"name": "slow"}, "ratio": 0.98, "repeated": [{"ratio": 1.04}]},
    ]
    (tmp_path / "cpu_hvp.json").write_text(json.dumps({"results": results}))
    found = {case.name: case.met for case in targets.read(tmp_path, claim)}
    assert found == {"single": False, "again, processes": True, "slow, processes": False}
