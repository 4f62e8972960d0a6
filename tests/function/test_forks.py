"""Forks while other threads call: the child works, with variables of one step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

PROGRAM = str(Path(__file__).parents[1] / "helpers" / "forked_calls.py")

POOL = """
import multiprocessing, threading, warnings
import numpy as np
import magmagraph as mg
warnings.simplefilter("ignore", DeprecationWarning)
x = mg.input("x", shape=("n", 40))
f = mg.function([x], mg.sum(x @ mg.constant(np.ones((40, 30), np.float32))))
feed = np.ones((50, 40), np.float32)
expected = f(feed)
stop = False

def work():
    while not stop:
        f(feed)

def task(number):
    return float(f(feed) - expected)

thread = threading.Thread(target=work)
thread.start()
for _ in range(3):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(task, range(8)) == [0.0] * 8
stop = True
thread.join()
print("right")
"""


def _output(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=600.0,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith("right"), done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("kind", ["call", "eval", "compile"])
def test_a_child_works_whatever_threads_did(kind: str, compiler: str) -> None:
    assert _output(PROGRAM, "4", kind, MAGMAGRAPH_COMPILER=compiler) == "right: 4"


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("kind", ["call", "eval", "compile"])
def test_many_children_work(kind: str, compiler: str) -> None:
    assert _output(PROGRAM, "100", kind, MAGMAGRAPH_COMPILER=compiler) == "right: 100"


@pytest.mark.parametrize("compiler", ["auto", "off"])
def test_pools_of_processes_work(compiler: str) -> None:
    assert _output("-c", POOL, MAGMAGRAPH_COMPILER=compiler) == "right"
