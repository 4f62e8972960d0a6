"""What is said where the memory of a device is full, and where the device itself has failed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import magmagraph as mg

pytestmark = pytest.mark.gpu

# A kernel that writes where there is no memory ends the process's use of the device: a child's.
LOST = '''
import sys
import numpy as np, cupy
import magmagraph as mg

ones = np.ones(4, np.float32)
w, other = mg.var("w", init=ones), mg.var("other", init=ones)
x = mg.var("x", shape=(4,))
step = mg.function([x], mg.sum(w * x), updates={w: w + x}, device="cuda")
for _ in range(int(sys.argv[1])):
    step(ones)
cupy.RawKernel('extern "C" __global__ void wrong(float *p) { *p = 1; }', "wrong")(
    (1,), (1,), (np.uint64(8),)
)
try:
    cupy.cuda.runtime.deviceSynchronize()
except cupy.cuda.runtime.CUDARuntimeError as error:
    assert "illegal" in str(error).lower(), error
for _ in range(2):
    try:
        step(ones)
    except mg.DeviceError as error:
        print("call:", str(error).splitlines()[0])
try:
    w.value
except RuntimeError as error:
    print("lost:", str(error).splitlines()[0])
w.value = 2 * ones
host = mg.function([x], mg.sum(w * other * x), device="cpu")
print("host:", float(host(ones)))
'''


@pytest.mark.parametrize("calls", [1, 3])  # then it is launched step by step, or as a graph
def test_a_device_that_failed_is_named_and_so_is_what_was_lost(calls: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LOST, str(calls)], capture_output=True, text=True, check=False
    )
    lines = run.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "call", "call", "lost", "host",
    ], run.stdout + run.stderr  # fmt: skip
    assert all("cuda:0 (" in line and ") failed: " in line for line in lines[:2])
    assert "'w' has no value: the device that held it failed" in lines[2]
    assert lines[3] == "host: 8.0"


def test_a_plan_that_does_not_fit_changes_nothing() -> None:
    """What steps keep for each other is asked for before any of them runs."""
    x = mg.var("x", shape=("n", 1))
    count = mg.var("count", init=np.zeros(()))
    total = mg.sum(mg.tanh(x @ mg.transpose(x)))
    f = mg.function(
        [x], total, updates={count: count + 1.0}, device="cuda", skip=["row_blocks"]
    )
    small, large = np.full((100, 1), 0.5, "f4"), np.full((500_000, 1), 0.5, "f4")
    wanted = np.tanh(np.float32(0.25)) * 100 * 100
    for calls in (1, 2, 3):
        with pytest.raises(mg.DeviceError, match=r"has no 1,\d{3},\d{3},\d{3},\d{3} bytes for "):
            f(large)
        np.testing.assert_allclose(f(small).get(), wanted, rtol=1e-5)
        assert count.value == calls
