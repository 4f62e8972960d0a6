"""Jobs of MPI as fixtures: `on_ranks` for functions, `mpiexec` for whole scripts."""

from __future__ import annotations

import functools
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import Done, Pool, run
from jobs import mpiexec as program

_HERE = Path(__file__).resolve().parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder: they are skipped where there is no MPI."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker("mpi")


@pytest.fixture(scope="session")
def _pools() -> Iterator[dict[int, Pool]]:
    pools: dict[int, Pool] = {}
    yield pools
    for pool in pools.values():
        pool.close()


@pytest.fixture
def on_ranks(_pools: dict[int, Pool]) -> Callable[..., list[Any]]:
    """Call a function of the test file on each of some ranks: ``on_ranks(2, function, *args)``.

    The function stands at the top level of its file and asserts what it likes; what it returns
    comes back in the order of the ranks. The job stays for later tests, so what a function leaves
    behind in its process (variables of a module, an open message) is theirs to find. ``timeout=``
    is in seconds, 30 unless said.
    """

    def call(
        ranks: int, function: Callable[..., Any], *arguments: Any, timeout: float = 30.0
    ) -> list[Any]:
        pool = _pools.get(ranks)
        if pool is None or not pool.alive:
            pool = _pools[ranks] = Pool(ranks)
        return pool.call(function, arguments, timeout)

    return call


@pytest.fixture
def mpiexec(tmp_path: Path) -> Callable[..., Done]:
    """Run a script under ``mpiexec``, in a folder of its own: ``mpiexec(2, text, *arguments)``.

    `text` is the program. ``timeout=`` (30 s), ``extra=`` variables, ``during=`` as of `jobs.run`.
    Returns its status, stdout, stderr, seconds, and ids of processes that lived on.
    """
    return functools.partial(_script, tmp_path)


@pytest.fixture
def mpiexec_beside(tmp_path: Path) -> Callable[..., Done]:
    """Like `mpiexec`, for jobs at the same time: ``mpiexec_beside(name, 2, text, *arguments)``."""

    def start(name: str, *arguments: Any, **options: Any) -> Done:
        folder = tmp_path / name
        folder.mkdir()
        return _script(folder, *arguments, **options)

    return start


def _script(folder: Path, ranks: int, text: str, *arguments: str, **options: Any) -> Done:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    command = [program(), "-n", str(ranks), sys.executable, str(script), *arguments]
    return run(command, folder=folder, **options)
