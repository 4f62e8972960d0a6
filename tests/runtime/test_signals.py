"""Signals during loops that run in C: handlers run between iterations, and may end the call.

Each program runs in a process of its own. Its loops have no end but the signal: where that does
not come through, the process is ended by the bound on its time, and the test fails.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BOUND = 120.0  # seconds, beginnings of processes on a busy machine included

_BEGIN = """
import os, signal, threading
import numpy as np
import magmagraph as mg

n = mg.input("n", shape=(), dtype="int32")
W = mg.var("W", init=np.ones(3, np.float32))
drawn = mg.random.uniform(())


def steps(x):
    def body(carry):
        count, value = carry
        return count + 1, value * 0.5 + x

    return mg.while_loop(lambda carry: mg.not_equal(carry[0], n), body, (mg.constant(0), x))[1]


def inner(x):
    return mg.while_loop(
        lambda carry: carry[0] < 3,
        lambda carry: (carry[0] + 1, mg.cond(n > 0, steps, steps, carry[1])),
        (mg.constant(0), x),
    )[1]


def after(seconds, number):
    own = threading.main_thread().ident
    threading.Timer(seconds, signal.pthread_kill, (own, number)).start()
"""

_INTERRUPTED = """
value = MAKE(W)
f = mg.function([n], [value, drawn], updates={W: W + value})
first = f(4)
before = W.value
after(0.1, signal.SIGINT)
try:
    f(-1)
    raise SystemExit("the loop came to an end")
except KeyboardInterrupt:
    pass
assert (W.value == before).all(), W.value
W.value = np.ones(3, np.float32)
assert (f(4)[0] == first[0]).all()
print("right")
"""


def _run(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + program],
        capture_output=True,
        text=True,
        timeout=BOUND,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("make", ["steps", "inner"])
@pytest.mark.parametrize("compiler", ["", "/nonexistent/cc"])
def test_an_interrupt_ends_a_loop_and_changes_nothing(make, compiler):
    found = {"MAGMAGRAPH_CC": compiler} if compiler else {}
    assert _run(_INTERRUPTED.replace("MAKE", make), **found) == "right\n"


def test_a_handler_that_does_not_raise_lets_the_loop_go_on():
    program = """
f = mg.function([n], steps(W))
expected = f(4)
beside = mg.function([n], steps(W) + 1.0)
here = beside(4)
seen = []


def handler(*_):
    seen.append((beside(4) == here).all())  # what a handler calls runs, too
    if len(seen) == 3:
        raise ZeroDivisionError("the third")
    signal.setitimer(signal.ITIMER_REAL, 0.01)


signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.01)
try:
    f(-1)
    raise SystemExit("the loop came to an end")
except ZeroDivisionError as error:
    assert str(error) == "the third"
assert seen == [True] * 3, seen
assert (f(4) == expected).all()
print("right")
"""
    assert _run(program) == "right\n"


def test_loops_of_other_threads_go_on_where_one_is_ended():
    program = """
m = mg.input("m", shape=(), dtype="int32")
f = mg.function([n], steps(W))
other = mg.function([m], mg.while_loop(
    lambda carry: carry[0] < m, lambda carry: (carry[0] + 1, carry[1] + 1),
    (mg.constant(0), mg.constant(0)))[1])
f(4), other(4)
found = []
beside = threading.Thread(target=lambda: found.append(int(other(30_000_000))))
beside.start()
after(0.1, signal.SIGINT)
try:
    f(-1)
    raise SystemExit("the loop came to an end")
except KeyboardInterrupt:
    pass
beside.join()
assert found == [30_000_000], found
print("right")
"""
    assert _run(program) == "right\n"


def test_a_profile_is_ended_too():
    program = """
f = mg.function([n], steps(W))
f(4)
after(0.1, signal.SIGINT)
try:
    f.profile(-1)
    raise SystemExit("the loop came to an end")
except KeyboardInterrupt:
    print("right")
"""
    assert _run(program) == "right\n"
