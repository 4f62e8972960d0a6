"""When a benchmark's turn begins: `benchmarks/resting.py`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


def told(resting, *used: list[float | None]) -> int:
    """Return after how many looks the processes rest, by what they have used at each."""
    looks: list[Iterator[float | None]] = [iter(each) for each in used]
    slept: list[float] = []
    resting.rest(range(len(used)), look=lambda i: next(looks[i]), sleep=slept.append)
    assert set(slept) == {resting.LOOK}
    return len(slept)


def test_a_turn_begins_when_nobody_uses_the_processor(benchmarks) -> None:
    resting = benchmarks("resting")
    assert told(resting, [1.0, 1.0], [2.0, 2.0]) == 1
    assert told(resting, [1.0, 1.009, 1.018, 1.0181], [2.0, 2.0, 2.0, 2.0]) == 3
    assert told(resting, [1.0, 1.0, 1.0, 1.0], [2.0, 2.01, 2.02, 2.02]) == 3


def test_nobody_is_waited_for_without_end(benchmarks) -> None:
    resting = benchmarks("resting")
    longest = round(resting.LONGEST / resting.LOOK)
    assert told(resting, [0.01 * i for i in range(longest + 1)]) == longest
    assert told(resting, [None] * (longest + 1)) == longest, "where the system does not tell"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="Linux tells")
def test_what_the_system_tells_grows_with_the_work(benchmarks) -> None:
    resting = benchmarks("resting")
    before, own = resting.used(os.getpid()), time.process_time()
    assert before is not None
    while time.process_time() < own + 0.05:
        sum(range(1000))
    after = resting.used(os.getpid())
    assert after is not None and after - before > 0.03
    assert resting.used(1 << 30) is None
