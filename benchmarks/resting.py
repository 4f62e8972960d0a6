"""When the processes of a benchmark rest: a turn begins after the threads of the one before.

Threads of BLAS and OpenMP look for more work for a while after they have done theirs: those of
OpenBLAS for 2**28 ticks, 0.1 s here. What runs then has one core less. With turns that began after
10 ms, a step that takes 0.45 ms by itself took 0.72 behind one of NumPy's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

LOOK = 0.01  # seconds between two looks
IDLE = 0.1  # of one core, at most, that processes use which rest
LONGEST = 0.5  # seconds: whoever still runs then runs on


def used(process: int) -> float | None:
    """Return the seconds of processor time that all threads of a process have had."""
    total = 0
    try:
        for thread in Path(f"/proc/{process}/task").iterdir():
            try:
                total += int((thread / "schedstat").read_text().split()[0])
            except FileNotFoundError:
                continue  # it has just ended
    except (OSError, ValueError, IndexError):
        return None
    return total * 1e-9


def rest(
    processes: Sequence[int],
    look: Callable[[int], float | None] = used,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until processes rest; where the system does not tell, for as long as threads spin."""
    before = [look(process) for process in processes]
    for _ in range(round(LONGEST / LOOK)):
        sleep(LOOK)
        now = [look(process) for process in processes]
        pairs = list(zip(before, now, strict=True))
        if not any(a is None or b is None or b - a > IDLE * LOOK for a, b in pairs):
            return
        before = now
