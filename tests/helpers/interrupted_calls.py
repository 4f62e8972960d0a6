"""Interrupt calls at random moments; variables must be all of before or all of after.

Run by the tests in a process of its own: ``python interrupted_calls.py 200 SIGINT`` prints how many
interrupts were seen. Any signal will do: the others have a handler that raises, too.
"""

from __future__ import annotations

import signal
import sys
import threading
import time

import numpy as np

import magmagraph as mg

WINDOW = 0.004  # seconds of calls around each interrupt


def _raise(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main(interrupts: int, number: signal.Signals) -> None:
    if number != signal.SIGINT:
        signal.signal(number, _raise)
    variables = [
        mg.var(f"v{i}", init=np.zeros((rows, 40), np.float32))
        for i, rows in enumerate((3, 200, 40))
    ]
    f = mg.function([], None, updates={v: v + 1.0 for v in variables})
    f()
    rng = np.random.default_rng(0)
    thread = threading.main_thread().ident
    assert thread is not None
    seen = 0
    for _ in range(interrupts):
        timer = threading.Timer(
            float(rng.uniform(0.0, WINDOW)), signal.pthread_kill, (thread, number)
        )
        try:
            timer.start()
            end = time.perf_counter() + 1.2 * WINDOW
            while time.perf_counter() < end:
                f()
            timer.join()
            time.sleep(0.001)
        except KeyboardInterrupt:
            seen += 1
        timer.join()
        values = {float(x) for v in variables for x in np.unique(v.value)}
        if len(values) != 1:
            sys.exit(f"some variables are of before, some of after: {values}")
    print(seen)


if __name__ == "__main__":
    main(int(sys.argv[1]), signal.Signals[sys.argv[2]])
