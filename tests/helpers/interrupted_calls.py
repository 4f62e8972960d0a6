"""Interrupt calls at random moments; variables must be all of before or all of after.

Run by the tests in a process of its own: ``python interrupted_calls.py 200 SIGINT counts`` prints
how many interrupts were seen. Any signal will do: the others have a handler that raises, too. With
``thread`` instead of a signal another thread raises, by ``PyThreadState_SetAsyncExc``. The last
word names the function that is called, one of `FUNCTIONS`; ``--seed`` draws other moments.
"""

from __future__ import annotations

import argparse
import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import magmagraph as mg

WINDOW = 0.004  # seconds of calls around each interrupt
PATIENCE = 20.0  # seconds in which an error of another thread has to come
SWITCH = 1e-6  # seconds after which a thread that waits for Python's lock gets it, at any moment


class Stepping(NamedTuple):
    """A function that is called, and all variables that it updates."""

    call: Callable[[], Any]
    variables: list[mg.Variable]


def _counts(host: bool) -> Stepping:
    """Return a function that adds one to three variables; with a step of the host, if asked."""
    counts = [
        mg.var(f"v{i}", init=np.zeros((rows, 40), np.float32))
        for i, rows in enumerate((3, 200, 40))
    ]
    x = mg.input("x", shape=("n",))
    zero = mg.sum((mg.sort(x) if host else x) * 0.0)
    f = mg.function([x], zero, updates={count: count + 1.0 + zero for count in counts})
    feed = np.ones(8, np.float32)
    return Stepping(lambda: f(feed), counts)


def _training() -> Stepping:
    """Return a step of Adam with products and noise."""
    mg.random.seed(7)
    x = mg.input("x", shape=("n", 12))
    rng = np.random.default_rng(0)
    weights = [
        mg.var(f"w{i}", init=rng.normal(0.0, 0.2, shape).astype(np.float32))
        for i, shape in enumerate(((12, 70), (70,), (70, 3)))
    ]
    hidden = mg.tanh(x @ weights[0] + weights[1] + 0.1 * mg.random.normal((70,)))
    loss = mg.mean((hidden @ weights[2]) ** 2)
    updates = mg.optimizer.Adam(0.01).updates(loss, weights)
    f = mg.function([x], loss, updates=updates)
    feed = rng.normal(0.0, 1.0, (5, 12)).astype(np.float32)
    return Stepping(lambda: f(feed), [*updates])


FUNCTIONS: dict[str, Callable[[], Stepping]] = {
    "counts": lambda: _counts(host=False),
    "host": lambda: _counts(host=True),
    "training": _training,
}


class Stop(BaseException):
    """What another thread raises."""


def _raise(number: int, frame: object) -> None:
    raise KeyboardInterrupt


class Calls:
    """Calls of a function, which are counted.

    Parameters
    ----------
    call : callable
        Makes a step.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call, self.done = call, 0

    def make(self, seconds: float) -> None:
        """Make calls for so many seconds."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.call()
            self.done += 1


def interrupt_by_signal(calls: Calls, delay: float, number: signal.Signals) -> bool:
    """Make calls into which a signal comes; return whether it did."""
    thread = threading.main_thread().ident
    assert thread is not None
    timer = threading.Timer(delay, signal.pthread_kill, (thread, number))
    seen = False
    try:
        timer.start()
        calls.make(1.2 * WINDOW)
        timer.join()
        time.sleep(0.001)
    except KeyboardInterrupt:
        seen = True
    timer.join()
    return seen


def interrupt_by_thread(calls: Calls, delay: float) -> bool:
    """Make calls until another thread's error ends one; return whether it did."""
    set_error = ctypes.pythonapi.PyThreadState_SetAsyncExc
    set_error.argtypes = (ctypes.c_ulong, ctypes.py_object)
    own = threading.get_ident()

    def strike() -> None:
        time.sleep(delay / 2)  # a thread starts sooner than a signal comes
        set_error(own, Stop)

    thread = threading.Thread(target=strike)
    seen = False
    try:
        thread.start()
        calls.make(PATIENCE)
    except Stop:
        seen = True
    thread.join()
    return seen


def versions(variables: list[mg.Variable]) -> set[int]:
    """Return how often variables were written."""
    return {variable.attrs["state"].version for variable in variables}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("interrupts", type=int)
    parser.add_argument("way", help="the name of a signal, or 'thread'")
    parser.add_argument("function", choices=FUNCTIONS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    number = None if options.way == "thread" else signal.Signals[options.way]
    if number not in (None, signal.SIGINT):
        signal.signal(number, _raise)

    sys.setswitchinterval(SWITCH)
    call, variables = FUNCTIONS[options.function]()
    assert len(variables) >= 3
    call()
    (first,) = versions(variables)
    rng = np.random.default_rng(options.seed)
    seen, steps = 0, 1
    for trial in range(options.interrupts):
        delay = float(rng.uniform(0.0, WINDOW))
        calls = Calls(call)
        if number is None:
            seen += interrupt_by_thread(calls, delay)
        else:
            seen += interrupt_by_signal(calls, delay, number)
        written = {version - first + 1 for version in versions(variables)}
        # The call that was interrupted, or the count of the one before, may have come to its end.
        if len(written) != 1 or not steps + calls.done <= min(written) <= steps + calls.done + 1:
            sys.exit(f"trial {trial}: after {steps + calls.done} calls, writes: {sorted(written)}")
        (steps,) = written

    again, twins = FUNCTIONS[options.function]()
    for _ in range(steps):
        again()
    for variable, twin in zip(variables, twins, strict=True):
        if variable.value.tobytes() != twin.value.tobytes():
            sys.exit(f"{variable.name} is not what {steps} calls without interrupts leave")

    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if not answers:
        sys.exit("a lock was left held: another thread's call gets no answer")
    print(seen)


if __name__ == "__main__":
    main()
