"""What the tests share: seeds that a failure prints, and skips that say why."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
import zlib

import numpy as np
import pytest


@functools.cache
def missing_gpu() -> str | None:
    """Return why no GPU can be used here, or None if one can."""
    if importlib.util.find_spec("cupy") is None:
        return "cupy is not installed (pip install magmagraph[cuda13])"
    import cupy

    if not cupy.cuda.is_available():
        return "cupy finds no CUDA GPU"
    return None


@functools.cache
def missing_mpi() -> str | None:
    """Return why MPI cannot be used here, or None if it can."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed (pip install magmagraph[mpi])"
    # Where there is no MPI library, the import itself fails, in ways that only a process of its
    # own shields us from.
    probe = subprocess.run(
        [sys.executable, "-c", "from mpi4py import MPI"], capture_output=True, text=True
    )
    if probe.returncode != 0:
        return "mpi4py finds no MPI library (pip install mpich)"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, with the reason."""
    for name, missing in (("gpu", missing_gpu), ("mpi", missing_mpi)):
        marked = [item for item in items if item.get_closest_marker(name) is not None]
        reason = missing() if marked else None
        if reason is not None:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Give the test's seed: its own, the same in each run, or MAGMAGRAPH_TEST_SEED."""
    chosen = os.environ.get("MAGMAGRAPH_TEST_SEED")
    value = int(chosen) if chosen else zlib.crc32(request.node.nodeid.encode())
    # pytest shows captured output for failures only.
    print(f"seed {value}; run it again with MAGMAGRAPH_TEST_SEED={value}")
    return value


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """Give a generator of random numbers whose seed a failure prints."""
    return np.random.default_rng(seed)
