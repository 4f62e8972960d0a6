"""Where the bytes of steps lie, the roofs that caches have, and what machines say of theirs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.inspect import peaks as measuring
from magmagraph.inspect.peaks import Peaks, peaks
from magmagraph.inspect.profile import profile
from magmagraph.inspect.traffic import Level, Part, floor, raised, traffic
from magmagraph.runtime import machine

measured_peaks = partial(peaks, compiled=mg.Function)

NEAR = Level("L2", 1000, read=100.0, copied=80.0)
FAR = Level("L3", 10_000, read=50.0, copied=40.0)
MEMORY = Level("memory", None, read=10.0, copied=8.0)
LEVELS = (NEAR, FAR, MEMORY)


def copied(distance: int, size: float) -> tuple[Part, Part]:
    """Return what a kernel moves that writes an array as large as the one that it reads."""
    return Part(distance, read=size / 2), Part(distance, written=size / 2)


def bound(function: mg.Function, *feeds: np.ndarray) -> Any:
    function(*feeds)
    return function._last.plan


# ------------------------------------------------------------------------------ roofs


def test_bytes_are_as_fast_as_what_they_lie_in() -> None:
    assert floor(copied(900, 800.0), LEVELS) == (pytest.approx(10.0), "L2")
    assert floor([Part(900, read=800.0)], LEVELS) == (pytest.approx(8.0), "L2")
    # Of what was touched 10,000 bytes ago, the nearer cache keeps a tenth at most.
    nanoseconds, name = floor(copied(10_000, 8000.0), LEVELS)
    assert (nanoseconds, name) == (pytest.approx(0.1 * 100.0 + 0.9 * 200.0), "L3")
    nanoseconds, name = floor(copied(10**9, 8e8), LEVELS)
    assert nanoseconds == pytest.approx(1e8, rel=1e-4)
    assert name == "memory"
    assert floor([], LEVELS) == (0.0, "")


def test_bytes_that_lie_farther_are_never_faster() -> None:
    found = [floor(copied(distance, 500.0), LEVELS)[0] for distance in range(100, 200_000, 333)]
    assert found == sorted(found)


def test_what_is_replaced_need_not_be_fetched() -> None:
    apart = MEMORY.nanoseconds(read=800.0, written=800.0, replaced=0.0)
    assert apart == pytest.approx(1600.0 / MEMORY.copied)
    assert MEMORY.nanoseconds(read=800.0, written=0.0, replaced=800.0) == pytest.approx(160.0)


def test_a_kernel_that_reads_slower_than_another_copies_is_no_roof() -> None:
    slow = Level("L1", 1000, read=50.0, copied=200.0)
    assert slow.nanoseconds(read=800.0, written=0.0, replaced=0.0) == pytest.approx(4.0)


@pytest.mark.parametrize("distance", [900, 12_000, 10**8])
@pytest.mark.parametrize("factor", [1.1, 1.7, 9.0])
def test_a_step_that_is_faster_raises_the_roof(distance: int, factor: float) -> None:
    parts = copied(distance, 8e6)
    least, name = floor(parts, LEVELS)
    taken = round(least / factor)
    found = raised(LEVELS, [(parts, taken), (copied(500, 400.0), 10**6)])
    assert floor(parts, found)[0] == pytest.approx(taken, rel=1e-6)
    changed = {level.name for level, known in zip(found, LEVELS, strict=True) if level != known}
    assert name in changed
    assert all(level.bytes == known.bytes for level, known in zip(found, LEVELS, strict=True))
    assert raised(LEVELS, [(parts, round(2 * least)), (parts, 0)]) == LEVELS


# ------------------------------------------------------------------------------ plans


def test_what_the_step_before_wrote_is_near() -> None:
    x = mg.var("x", shape=("n", 64))
    w = mg.var("w", init=np.ones((64, 256), np.float32))
    v = mg.var("v", init=np.ones((256, 8), np.float32))
    plan = bound(mg.function([x], mg.tanh(x @ w) @ v), np.ones((32, 64), np.float32))
    kernels = [step.kernel for step in plan.steps]
    assert kernels[0] == kernels[-1] == "gemm", str(plan)
    first, *_, last = traffic(plan)
    hidden, rows, result = 4 * 32 * 256, 4 * 32 * 64, 4 * 32 * 8
    weights, heads = 4 * 64 * 256, 4 * 256 * 8
    everything = hidden + rows + result + weights + heads
    # The last step reads what the one before it wrote, and weights that nobody touched in between.
    assert min(part.distance for part in last) == hidden + heads + result
    assert max(part.distance for part in last) == everything
    assert max(part.distance for part in first) <= everything
    for step, parts in zip(plan.steps, traffic(plan), strict=True):
        moved = sum(part.read + part.written + part.replaced for part in parts)
        assert moved == pytest.approx(step.bytes)


def test_what_is_updated_in_place_is_replaced() -> None:
    w = mg.var("w", init=np.ones(1000, np.float32))
    x = mg.var("x", shape=(1000,))
    plan = bound(mg.function([x], [], {w: w - 0.5 * x}), np.ones(1000, np.float32))
    parts = traffic(plan)[-1]
    assert sum(part.replaced for part in parts) == 4000
    assert sum(part.written for part in parts) == 0


def test_a_loop_goes_over_what_it_holds() -> None:
    x = mg.var("x", shape=(100,))
    repeated, _ = mg.scan(lambda c, _: (mg.sin(c), None), x, length=50)
    plan = bound(mg.function([x], repeated), np.ones(100, np.float32))
    (at,) = [i for i, step in enumerate(plan.steps) if step.kernel == "loop"]
    parts = traffic(plan)[at]
    assert plan.steps[at].bytes > 2 * 400, "the loop is told to move its arrays once"
    assert max(parts, key=lambda part: part.read).distance <= 4000
    assert sum(part.read + part.written for part in parts) == pytest.approx(plan.steps[at].bytes)


def test_profile_tells_the_level_and_passes_no_roof() -> None:
    x = mg.var("x", shape=("n",))
    function = mg.function([x], mg.sqrt(x) + 1.0)
    slow = Peaks("a machine", 1e-3, {}, 1.0, (Level("L2", 1 << 20, 1e-3, 1e-3), MEMORY))
    (step,) = profile(function, np.ones(1000, np.float32), peaks=lambda seen: slow)
    assert step.level == "L2"
    assert step.roof == pytest.approx(1.0)
    assert step.bandwidth_share == pytest.approx(1.0)
    assert step.as_dict()["level"] == "L2"
    (step,) = profile(function, np.ones(10**6, np.float32), peaks=lambda seen: slow)
    assert step.level == "L2", "the nearer cache is that slow"
    levels = (Level("L2", 1 << 20, 1e5, 1e5), Level("memory", None, 1.0, 1.0))
    quick = Peaks("a machine", 1.0, {}, 1.0, levels)
    measured = profile(function, np.ones(10**6, np.float32), peaks=lambda seen: quick)
    assert measured.steps[0].level == "memory"
    assert "memory" in str(measured).splitlines()[1].split()


# ------------------------------------------------------------------------------ machines


class Store(dict[str, Any]):
    """Where measurements are kept."""

    def set(self, key: str, choice: Any) -> None:
        self[key] = choice


def test_caches_are_measured_once_by_the_bytes_that_they_hold(monkeypatch: Any) -> None:
    monkeypatch.setitem(measuring.COPIED, "cpu", 1 << 12)
    store = Store()
    caches = (("L1", 1 << 12, 2), ("L2", 1 << 14, 1))
    first = measured_peaks("cpu", "mine", {}, store, caches)
    assert [level.name for level in first.levels] == ["L1", "L2", "memory"]
    assert [level.bytes for level in first.levels] == [1 << 13, 1 << 14, None]
    assert all(level.read > 0 and level.copied > 0 for level in first.levels)
    assert first.gigabytes_per_second == first.levels[-1].copied
    told = first.as_dict()["levels"]
    assert told[0] == {"name": "L1", "bytes": 1 << 13, "read": first.levels[0].read,
                       "copied": first.levels[0].copied}
    assert str(first).startswith(f"{first.levels[0].copied:.1f} GB/s L1, ")
    for size in (1 << 11, 1 << 12, 1 << 13, 4 << 14):  # half of one, of all, of the last; behind
        assert f"peaks, version 1: copy of {size} bytes on mine" in store, list(store)

    def never(*args: Any) -> float:
        raise AssertionError("measured again")

    monkeypatch.setattr(measuring._Streams, "rate", never)
    assert measured_peaks("cpu", "mine", {}, store, caches) == first
    with pytest.raises(AssertionError, match="measured again"):
        measured_peaks("cpu", "mine", {}, store, (("L2", 1 << 15, 1),))


def test_a_system_says_which_caches_there_are(tmp_path: Path, monkeypatch: Any) -> None:
    rows = (
        ("index0", "1", "Data", "48K", "0"),
        ("index1", "1", "Instruction", "32K", "0"),
        ("index2", "2", "Unified", "1024K", "0,8"),
        ("index3", "3", "Unified", "32M", "0-3,8-11"),
    )
    for name, *facts in rows:
        folder = tmp_path / name
        folder.mkdir()
        for fact, value in zip(("level", "type", "size", "shared_cpu_list"), facts, strict=True):
            (folder / fact).write_text(value + "\n")
    monkeypatch.setattr(machine, "CACHES", tmp_path)
    monkeypatch.setattr(machine, "threads", lambda device: 12)
    assert machine.caches("cpu") == (
        ("L1", 48 << 10, 12), ("L2", 1 << 20, 6), ("L3", 32 << 20, 2),
    )
    (tmp_path / "index2" / "size").write_text("many\n")
    assert [name for name, *_ in machine.caches("cpu")] == ["L1", "L3"]
    monkeypatch.setattr(machine, "CACHES", tmp_path / "nowhere")
    assert machine.caches("cpu") == ()


def test_a_gpu_says_what_its_kernels_share(monkeypatch: Any) -> None:
    from magmagraph.runtime.cuda import device

    class Card:
        cache = 50 << 20

    monkeypatch.setattr(device, "device_of", lambda name: Card)
    assert machine.caches("cuda:0") == (("L2", 50 << 20, 1),)
    Card.cache = 0
    assert machine.caches("cuda:0") == ()
