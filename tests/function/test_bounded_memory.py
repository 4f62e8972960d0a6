"""What a long program makes and drops again leaves no memory behind, or a bounded part of it."""

from __future__ import annotations

import collections
import ctypes
import gc
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.runtime.cache import DiskCache, content_key
from magmagraph.runtime.cpu import compiler

serial = itertools.count()


def _kernel(number: float) -> Any:
    """Return a function whose kernel no other has, called once."""
    x = mg.input("x", shape=(4,))
    f = mg.function([x], mg.exp(x * number) + number)
    f(np.zeros(4, np.float32))
    return f


def _mapped() -> int:
    """Return how many kernels of the cache the process has in memory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split()[-1] for line in lines if "/values/" in line})


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/maps is Linux's")
def test_kernels_that_are_dropped_are_unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_recent", collections.deque(maxlen=1))
    _kernel(0.5)  # and the libraries that stay
    gc.collect()
    before = _mapped()
    kept = _kernel(1.5)
    for number in range(2, 6):
        _kernel(number + 0.5)
    gc.collect()
    assert _mapped() <= before + 2
    assert kept(np.zeros(4, np.float32))[0] == 2.5
    again = _kernel(2.5)  # from the cache
    assert again(np.zeros(4, np.float32))[0] == 3.5


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="malloc_trim is of the GNU C library")
def test_hundreds_of_kernels_take_the_memory_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGMAGRAPH_OPTIMIZATION", "0")
    trim = ctypes.CDLL(None).malloc_trim

    def resident() -> int:
        gc.collect()
        trim(0)
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    sizes = []
    for _ in range(3):
        for number in range(150):
            _kernel(next(serial) + number / 512)
        sizes.append(resident())
    assert sizes[2] - sizes[1] < 150 * 2000, sizes


def test_names_of_dimensions_are_dropped() -> None:
    def count() -> int:
        gc.collect()
        return sum(isinstance(thing, mg.Dim) for thing in list(mg.dims.algebra._NAMED.values()))

    before = count()
    for number in range(1000):
        mg.input("x", shape=(f"dropped_{number}", 3)) + 1.0
    assert count() <= before + 5
    held = mg.Dim("held_by_the_test")
    assert mg.Dim("held_by_the_test") is held


def test_keys_count_and_go_with_their_values(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit=8_000)
    for number in range(250):
        cache.put(content_key(str(number)), str(number).encode())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 8_000 * 33 // 32 + 200
    values = {path.name for path in files if path.parent.parent.name == "values"}
    keys = [path for path in files if path.parent.parent.name == "keys"]
    assert keys and all(path.read_text() in values for path in keys)
    assert cache.get(content_key("249")) == b"249"


def test_keys_of_one_value_are_bounded_too(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit=5_000)
    for number in range(200):
        cache.put(content_key(str(number)), b"the same")
    keys = [path for path in (tmp_path / "keys").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in keys) <= 5_000 * 33 // 32 + 200
    assert cache.get(content_key("199")) == b"the same"
