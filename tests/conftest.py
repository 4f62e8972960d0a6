"""What the tests share: seeds that a failure prints, and skips that say why."""

from __future__ import annotations

import importlib
import os
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import missing_gpu, missing_mpi

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


# Jobs of ranks, and a browser with its pages: each is started once in a worker that needs it.
STARTED_ONCE = {"on_ranks", "browser", "files", "html"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, with the reason; put what shares a start first.

    Of two workers, one gets the first half of all tests and begins at its front. The other takes
    over tests from the back of that half: it never starts the same jobs and browsers again.
    """
    items.sort(key=lambda item: STARTED_ONCE.isdisjoint(getattr(item, "fixturenames", ())))
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
    file, _, test = request.node.nodeid.partition("::")
    name = f"tests/{os.path.basename(file)}::{test}"  # files may move from folder to folder
    value = int(chosen) if chosen else zlib.crc32(name.encode())
    # pytest shows captured output for failures only.
    print(f"seed {value}; run it again with MAGMAGRAPH_TEST_SEED={value}")
    return value


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """Give a generator of random numbers whose seed a failure prints."""
    return np.random.default_rng(seed)


@pytest.fixture
def benchmarks(monkeypatch) -> Any:
    """Import a benchmark's module, and let go of what came with it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    known = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]
