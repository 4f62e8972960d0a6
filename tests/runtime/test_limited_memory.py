"""Products under a limit of memory: OpenBLAS ends a process for which it cannot map a buffer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from magmagraph.runtime.cpu.products.blas import find_blas

PROGRAM = str(Path(__file__).parents[1] / "helpers" / "limited_memory.py")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc and RLIMIT_AS are Linux's")


def _ended(more: int, compiler: str) -> str:
    done = subprocess.run(
        [sys.executable, PROGRAM, str(more)],
        capture_output=True,
        text=True,
        timeout=300.0,
        env=os.environ | {"MAGMAGRAPH_COMPILER": compiler},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("compiler", ["auto", "off"])
def test_a_bound_step_has_the_buffers_of_its_products(compiler: str) -> None:
    """It has 4 MiB for results and such, and no 32 for a buffer."""
    assert _ended(4096, compiler) == "right"


@pytest.mark.slow
def test_a_call_works_or_changes_nothing_under_any_limit() -> None:
    ends = {_ended(more, "auto") for more in range(0, 4096, 64)}
    assert ends <= {"right", "refused"} and "right" in ends


def test_a_lack_of_memory_for_buffers_is_an_error() -> None:
    blas = find_blas()
    if blas is None or not hasattr(blas.library, "blas_memory_alloc"):
        pytest.skip("the BLAS tells nothing of its buffers")
    with pytest.raises(MemoryError, match="buffers of 32 MiB"):
        blas.reserve(1 << 30)
