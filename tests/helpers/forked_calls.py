"""Fork while threads call; every child must call too, with variables of one step.

Run by the tests in a process of its own: ``python forked_calls.py 10 call`` prints how many
children ended in which way. Threads may "call" a function that updates, "eval" nodes or "compile"
functions.
"""

from __future__ import annotations

import collections
import faulthandler
import gc
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from typing import Any

import numpy as np

import magmagraph as mg

SECONDS = 60  # for a child, on a busy machine
ENDS = {0: "right", 1: "failed", 3: "torn", 4: "wrong", -signal.SIGALRM: "hung"}

stop = False


def step() -> tuple[Any, list[Any]]:
    """Return a training step with products, and variables that count its calls."""
    rng = np.random.default_rng(0)
    x = mg.input("x", shape=("n", 96))
    weight = mg.var("W", init=rng.standard_normal((96, 96)).astype(np.float32) * 0.01)
    counts = [mg.var(f"c{i}", init=np.zeros(n, np.float32)) for i, n in enumerate((3, 2**19, 7))]
    loss = mg.sum(mg.exp(x @ weight * 0.01))
    updates = {count: count + 1.0 for count in counts} | {weight: weight * 1.0}
    return mg.function([x], loss, updates=updates), counts


def evaluate(number: int) -> None:
    """Evaluate a node that no other is equal to."""
    assert (mg.constant(np.float32([number, 1.0])) * 2.0).eval()[0] == 2.0 * number


def compile_one(number: int) -> None:
    """Compile a function and call it."""
    y = mg.input("y", shape=(number % 9 + 1,))
    value = mg.function([y], mg.exp(y * 0.0) + float(number % 3))(np.ones(number % 9 + 1))
    assert value[0] == 1.0 + number % 3


def child(f: Any, counts: list[Any], feed: np.ndarray) -> int:
    """Return how a child ends."""
    before = {float(value) for count in counts for value in np.unique(count.value)}
    if len(before) != 1:
        return 3
    for number in range(2):
        f(feed)
        evaluate(number)
        compile_one(number)
    after = {float(value) for count in counts for value in np.unique(count.value)}
    return 0 if after == {before.pop() + 2.0} and gc.isenabled() else 4


def main(tries: int, kind: str) -> None:
    f, counts = step()
    feed = np.ones((32, 96), np.float32)
    f(feed), evaluate(0), [compile_one(number) for number in range(9)]

    def work() -> None:
        for number in range(10**9):
            if stop:
                return
            if kind == "call":
                f(feed)
            else:
                (evaluate if kind == "eval" else compile_one)(number)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    rng = np.random.default_rng(0)
    seen: collections.Counter[str] = collections.Counter()
    for _ in range(tries):
        time.sleep(float(rng.uniform(0.0, 0.01)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads
            process = os.fork()
        if process == 0:
            signal.alarm(SECONDS)
            faulthandler.dump_traceback_later(SECONDS - 5)
            try:
                os._exit(child(f, counts, feed))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        _, status = os.waitpid(process, 0)
        seen[ENDS.get(os.waitstatus_to_exitcode(status), str(status))] += 1
    globals()["stop"] = True
    for thread in threads:
        thread.join()
    print(*(f"{name}: {number}" for name, number in sorted(seen.items())))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
