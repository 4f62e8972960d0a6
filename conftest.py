"""What holds for all tests and doctests: a cache of their own, and what is left out where."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parent

# Before any folder's conftest imports the package, which reads them once.
os.environ.setdefault("MAGMAGRAPH_VERIFY", "1")
os.environ.setdefault("MAGMAGRAPH_DEVICE", "cpu")  # tests of a GPU ask for it
# Trials would make plans, and with them the tests, depend on the hour.
os.environ.setdefault("MAGMAGRAPH_TUNING", "0")

# Where kernels are compiled as users compile them. Elsewhere they are optimized little: compilers
# take a quarter of the time, and many tests wait for them.
_KERNEL_ROOMS = {"gpu", "runtime"}
_VALUE_ROOMS = {"ops", "passes", "programs"}  # there too, unless slow tests are left out
_level = os.environ.get("MAGMAGRAPH_OPTIMIZATION")

# The first state of each random generator that a test module holds.
_starts: dict[str, Any] = {}

# Kept for the whole run: the folder vanishes when the process that made it ends.
_cache: tempfile.TemporaryDirectory[str] | None = None


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


# The links at the top level show the same files a second time.
# The last is a program, which puts a stand-in where CuPy would be.
collect_ignore = ["passes", "runtime"]
collect_ignore += [f"tests/helpers/emulated_{name}.py" for name in ("program", "scans")]
if not _installed("torch"):
    collect_ignore.append("tests/helpers/torch_models.py")
if not _installed("cupy"):
    collect_ignore.append("magmagraph/runtime/cuda")
_compilers = os.environ.get("MAGMAGRAPH_CC", "").split()[:1] or ["cc", "gcc", "clang"]
_no_compiler = not any(map(shutil.which, _compilers))
if _no_compiler:
    collect_ignore += [
        f"magmagraph/runtime/cpu/{name}.py"
        for name in ("compiler", "fused", "products/products", "support")
    ]
if not _installed("mpi4py"):
    collect_ignore += [f"magmagraph/runtime/comm/{name}.py" for name in ("mpi", "nccl")]


def _is_shown_elsewhere(item: pytest.Item) -> bool:
    """Return whether examples are of a function that a package hands on, see `telling`."""
    if not isinstance(item, pytest.DoctestItem):
        return False
    module = item.dtest.globs["__name__"]
    name = item.dtest.name.removeprefix(f"{module}.")
    written = getattr(getattr(sys.modules.get(module), name, None), "__wrapped__", None)
    return getattr(written, "__module__", module) != module


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out examples that their own module runs, with what it imports."""
    items[:] = [item for item in items if not _is_shown_elsewhere(item)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Choose how far kernels are optimized; start a module's random generators anew for each test.

    So a test draws the same numbers whichever tests its worker ran before.
    """
    for name, generator in getattr(getattr(item, "module", None), "__dict__", {}).items():
        if isinstance(generator, np.random.Generator):
            start = _starts.setdefault(f"{item.path}:{name}", generator.bit_generator.state)
            generator.bit_generator.state = start
    if _level is None:
        quick = "not slow" in item.config.option.markexpr
        rooms = _KERNEL_ROOMS if quick else _KERNEL_ROOMS | _VALUE_ROOMS
        folder = item.path.parent
        usual = folder.name in rooms and folder.parent.name == "tests"
        usual |= item.get_closest_marker("optimized") is not None
        os.environ["MAGMAGRAPH_OPTIMIZATION"] = "2" if usual else "g"


def pytest_configure(config: pytest.Config) -> None:
    """Set the environment before the package is imported; parallel workers inherit it."""
    global _cache
    if _no_compiler:
        # That the fallback is taken is then no surprise, and not an error.
        config.addinivalue_line("filterwarnings", "ignore::magmagraph.errors.FallbackWarning")
        os.environ.setdefault("MAGMAGRAPH_COMPILER", "off")
    if "MAGMAGRAPH_CACHE_DIR" not in os.environ:
        _cache = tempfile.TemporaryDirectory(prefix="magmagraph-tests-")
        os.environ["MAGMAGRAPH_CACHE_DIR"] = _cache.name
    workers = getattr(config.option, "numprocesses", None)
    if workers:
        # Threads that wait for each other across busy cores would take most of the time. Tests
        # of threads set their number themselves.
        share = max(1, (os.cpu_count() or 1) // int(workers))
        os.environ.setdefault("MAGMAGRAPH_THREADS", str(share))
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(share))  # of NumPy and of SciPy


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the cache."""
    global _cache
    if _cache is not None:
        os.environ.pop("MAGMAGRAPH_CACHE_DIR", None)
        _cache.cleanup()
        _cache = None
