"""When the owner of a team does work alone: `worth.c` on a clock that the test moves on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import magmagraph
from magmagraph.errors import CompilerUnavailable
from magmagraph.runtime.cpu.support import load_kernels

TEXT = Path(magmagraph.__file__).parent / "runtime/cpu/worth.c"
CALLS = """
static void body(void* context, int64_t thread, int64_t threads)
{
    (void)context, (void)thread, (void)threads;
}
void* look(int64_t work, int64_t size) { return worth_of(body, work, size); }
int alone(void* worth) { return alone_now(worth); }
int timed(void* worth, int64_t awake) { return timed_now(worth, awake); }
void learned(void* worth, int64_t taken) { learn(worth, taken); }
"""
SPIN = 50_000.0  # nanoseconds that a worker spins before it sleeps
CALL = 500.0  # nanoseconds between two
Time = Callable[[float], float]


@pytest.fixture(scope="module")
def worth() -> Any:
    try:
        library = load_kernels(TEXT.read_text(encoding="utf-8") + CALLS)
    except CompilerUnavailable as error:
        pytest.skip(str(error))
    library.look.argtypes = [ctypes.c_int64] * 2
    library.look.restype = ctypes.c_void_p
    library.alone.argtypes = [ctypes.c_void_p]
    library.timed.argtypes = library.learned.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    return library


def always(value: float) -> Time:
    """Return a time that is the same at every moment."""
    return lambda now: value


def played(
    worth: Any, work: int, team: Time, alone: Time, *, beside: Time | None = None,
    comes: bool = True, kept: bool = False, seconds: float = 0.5,
) -> tuple[float, float]:  # fmt: skip
    """Return the share of calls on a team, and the time over that of the faster way at each moment.

    `team` and `alone` take so many nanoseconds, `beside` times `alone` beside a worker that spins;
    a team whose workers do not come takes its owner's time; those that are kept awake never sleep.
    """
    kind, now, ended, ideal = worth.look(work, 2), 0.0, -SPIN, 0.0
    calls = shared = 0
    while now < seconds * 1e9:
        awake = 2 if kept or (comes and now - ended < SPIN) else 1
        timed, by_team = worth.timed(kind, awake), not worth.alone(kind)
        if by_team:
            taken = team(now) if awake == 2 else alone(now)
        else:
            taken = alone(now) * (beside(now) if beside and awake == 2 else 1.0)
        worth.learned(kind, int(taken) if timed else 0)
        ideal += min(team(now), alone(now)) + CALL
        now += taken + CALL
        if by_team:
            ended = now
        shared += by_team
        calls += 1
    return shared / calls, now / ideal


def test_a_second_thread_that_gains_stays(worth):
    shared, cost = played(worth, 400_001, always(11e3), always(19e3))
    assert shared > 0.999
    assert cost < 1.001


def test_a_second_thread_that_loses_is_left_out(worth):
    shared, cost = played(worth, 400_002, always(20e3), always(19e3))
    assert shared < 0.02
    assert cost < 1.005


def test_what_a_spinning_worker_takes_does_not_hide_it(worth):
    """Beside one that spins the owner is as slow as a team: only asleep it takes nothing."""
    shared, cost = played(worth, 160_003, always(12e3), always(9e3), beside=always(1.4))
    assert shared < 0.02
    assert cost < 1.02


def test_workers_that_others_keep_awake_are_not_waited_for(worth):
    shared, cost = played(worth, 2_000_007, always(50e3), always(95e3), kept=True, seconds=0.1)
    assert shared > 0.98
    assert cost < 1.02
    shared, cost = played(worth, 160_007, always(12e3), always(9e3), beside=always(1.2), kept=True)
    assert shared < 0.02


def test_a_core_that_goes_and_comes_back_is_noticed(worth):
    def gone(now: float) -> bool:
        return 0.1e9 < now < 0.3e9

    shared, cost = played(
        worth, 160_004, lambda now: 12e3 if gone(now) else 6e3, always(9e3),
        beside=lambda now: 1.4 if gone(now) else 1.0,
    )  # fmt: skip
    assert 0.5 < shared < 0.8
    assert cost < 1.05


def test_workers_that_do_not_come_are_tried_ever_less(worth):
    played(worth, 400_005, always(20e3), always(19e3), seconds=0.01)
    assert worth.alone(worth.look(400_005, 2))
    shared, cost = played(worth, 400_005, always(19e3), always(19e3), comes=False)
    assert shared < 0.1
    assert cost < 1.001


def test_much_work_is_not_judged(worth):
    assert worth.look(1 << 22, 2) is None
    assert worth.look((1 << 22) - 1, 2) is not None


def test_sizes_and_teams_are_kinds_of_their_own(worth):
    played(worth, 400_006, always(20e3), always(19e3))
    assert worth.alone(worth.look(400_006, 2))
    assert not worth.alone(worth.look(400_006, 3))
    assert not worth.alone(worth.look(400_007, 2))
