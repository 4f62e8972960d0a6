"""What a benchmark says before it begins: help, and what is missing for it here.

A benchmark that cannot run here ends with the status `LEFT_OUT`, by which a run of all goes on.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

LEFT_OUT = 77


def _package(name: str) -> Callable[[], bool]:
    return lambda: importlib.util.find_spec(name) is not None


def _mpi() -> bool:
    beside = Path(sys.executable).with_name("mpiexec")
    return _package("mpi4py")() and (beside.exists() or shutil.which("mpiexec") is not None)


def _gpu() -> bool:
    """Whether CuPy is there, and a device that it can use."""
    if not _package("cupy")():
        return False
    import cupy

    try:
        return bool(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


def _file(name: str) -> Callable[[], bool]:
    return lambda: (Path(os.environ.get("MAGMAGRAPH_DATA", ".")) / name).exists()


# What a benchmark can need: what it is called, and whether it is here.
THINGS: dict[str, tuple[str, Callable[[], bool]]] = {
    "gpu": ('an NVIDIA GPU that CuPy can use (pip install -e ".[cuda13]", or cuda12)', _gpu),
    "jax": ('JAX (pip install -e ".[bench]"; on a GPU "jax[cuda13]")', _package("jax")),
    "torch": ('PyTorch (pip install -e ".[bench]")', _package("torch")),
    "matplotlib": ('matplotlib (pip install -e ".[bench]")', _package("matplotlib")),
    "mpi4py": ('mpi4py (pip install -e ".[mpi]"), started by mpiexec', _package("mpi4py")),
    "mpi": ('mpi4py and an mpiexec (pip install -e ".[mpi]")', _mpi),
    "playwright": ('Playwright and pytest (pip install -e ".[dev]")', _package("playwright")),
    "cifar10-subset.npz": (
        "the file cifar10-subset.npz in the folder that MAGMAGRAPH_DATA names",
        _file("cifar10-subset.npz"),
    ),
}


def parser(about: str | None, *needs: str) -> argparse.ArgumentParser:
    """Return a parser whose help is the benchmark's own text, with what it needs below."""
    wanted = "\n".join(f"  {THINGS[name][0]}" for name in needs)
    return argparse.ArgumentParser(
        description=inspect.cleandoc(about or ""),
        epilog=f"needs:\n{wanted}\n" if needs else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def words(
    about: str | None,
    *known: str,
    needs: tuple[str, ...] = (),
    whole: tuple[str, ...] = (),
    hidden: str = "",
) -> None:
    """Answer ``--help``, refuse words that mean nothing, and end where something is missing.

    `known` are flags, and names of parts, of which each may be asked for alone; the benchmark
    reads them itself. `whole` is what is needed only where no part is asked for: some parts do
    without. A call with `hidden`, as a benchmark makes of itself, is let through.
    """
    if hidden and sys.argv[1:] == [hidden]:
        return
    made = parser(about, *needs, *whole)
    for flag in (word for word in known if word.startswith("-")):
        meaning = {
            "--small": "sizes that show that it works", "--dry": "write no results",
            "--alone": "one core, and the processor's time, which other programs do not change",
        }[flag]  # fmt: skip
        made.add_argument(flag, action="store_true", help=meaning)
    parts = [word for word in known if not word.startswith("-")]
    if parts:
        made.add_argument(
            "part", nargs="*", metavar="PART",
            help=f"measure these parts alone (of {', '.join(map(repr, parts))})",
        )  # fmt: skip
    given = made.parse_args()
    asked = getattr(given, "part", [])
    for part in asked:
        if part not in parts:
            made.error(f"there is no part {part!r}; there are {', '.join(map(repr, parts))}")
    require(*needs, *(() if asked else whole))


def require(*needs: str) -> None:
    """End, and say what is missing, where not all of these things are here."""
    missing = [THINGS[name][0] for name in needs if not THINGS[name][1]()]
    if missing:
        print(f"{Path(sys.argv[0]).name} needs {'; '.join(missing)}", file=sys.stderr)
        raise SystemExit(LEFT_OUT)
