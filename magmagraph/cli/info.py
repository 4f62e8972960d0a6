"""Say what was found on this machine, what is missing, and what slows it."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .._version import __version__
from ..errors import CompilerUnavailable, ConfigError, DeviceError

# The name under which it is installed, what it is for, and what brings it.
LIBRARIES = (
    ("numpy", "arrays", "magmagraph"),
    ("scipy", "linear algebra, BLAS", "magmagraph"),
    ("ml_dtypes", "bfloat16", "magmagraph"),
    ("networkx", "export of graphs", "magmagraph"),
    ("rich", "tables and progress", "magmagraph"),
    ("cupy-cuda13x", "NVIDIA GPUs", "magmagraph[cuda13]"),
    ("cupy-cuda12x", "NVIDIA GPUs, older drivers", "magmagraph[cuda12]"),
    ("nvmath-python", "products on NVIDIA GPUs", "magmagraph[cuda13]"),
    (
        "nvidia-cudnn-frontend", "convolutions and attention on NVIDIA GPUs; slower without",
        "magmagraph[cuda13]",
    ),
    ("mpi4py", "many processes", "magmagraph[mpi]"),
    ("optuna", "hyperparameter search", "magmagraph[tune]"),
    ("safetensors", "files of networks", "magmagraph[networks]"),
    ("onnx", "export to ONNX", "magmagraph[onnx]"),
    ("onnxruntime", "running what is exported", "magmagraph[onnx]"),
    ("scikit-learn", "small digits in place of MNIST", "magmagraph[digits]"),
)


@dataclass(frozen=True)
class Fact:
    """A line of the report.

    Attributes
    ----------
    group, name, value : str
        The section that it stands in, what it is about, and what was found.
    advice : str
        What to do about it, where something is missing or slow.
    """

    group: str
    name: str
    value: str
    advice: str = ""


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--json", action="store_true", help="print a list of records instead")


def run(chosen: argparse.Namespace) -> None:
    """Print the facts as tables, or as JSON."""
    if chosen.json:
        import dataclasses
        import json

        print(json.dumps([dataclasses.asdict(fact) for fact in facts()], indent=2))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    group = ""
    for fact in facts():
        if fact.group != group:
            if group:
                table.add_row("", "")
            table.add_row(Text(fact.group, "bold"), "")
            group = fact.group
        table.add_row(Text("  " + fact.name), Text(fact.value))
        if fact.advice:
            table.add_row("", Text(fact.advice, "yellow"))
    console.print(table)


def facts() -> Iterator[Fact]:
    """Yield what is known of this machine."""
    yield Fact("magmagraph", "version", __version__)
    yield Fact("magmagraph", "Python", f"{platform.python_version()}, {sys.executable}")
    yield Fact("magmagraph", "system", platform.platform())
    yield from _processor()
    yield from _compiler()
    yield from _blas()
    yield from _settings()
    yield from _gpu()
    yield from _ranks()
    yield from _cache()
    yield from _libraries()


def _processor() -> Iterator[Fact]:
    """Yield the processor and how many threads are used on it."""
    from ..runtime import machine
    from ..runtime.numpy import threads

    yield Fact("CPU", "processor", machine.processor())
    yield Fact("CPU", "cores", f"{os.cpu_count()} in the machine")
    try:
        yield Fact("CPU", "threads", f"{threads.available_threads()} (MAGMAGRAPH_THREADS sets it)")
    except ConfigError as error:
        yield Fact("CPU", "threads", "unknown", str(error))


def _compiler() -> Iterator[Fact]:
    """Yield the C compiler that builds the kernels."""
    from ..config import config
    from ..runtime.numpy.compilers import find_compiler

    try:
        off = config.compiler == "off"
    except ConfigError as error:
        yield Fact("CPU", "C compiler", "unknown", str(error))
        return
    if off:
        advice = "unset MAGMAGRAPH_COMPILER to use it"
        yield Fact("CPU", "C compiler", "switched off: kernels run in NumPy", advice)
        return
    try:
        found = find_compiler()
    except CompilerUnavailable as error:
        yield Fact("CPU", "C compiler", "none: kernels run in NumPy, slower", str(error))
    else:
        yield Fact("CPU", "C compiler", f"{shlex.join(found.command)}, {found.version}")


def _blas() -> Iterator[Fact]:
    """Yield the library that computes large products, and settings that slow the machine."""
    from ..runtime.numpy.products import blas

    known = blas.describe()
    if known["path"] is None:
        yield Fact("CPU", "BLAS", "none with an interface that is known: products are slower")
    else:
        yield Fact("CPU", "BLAS", f"{known['path']} ({known['interface']})")
        if known["core"]:
            yield Fact("CPU", "BLAS kernels", f"for {known['core']}")
    for line in known["settings"]:
        name, _, value = line.partition("=")
        advice = f"unset {name} before Python starts, unless you mean it"
        yield Fact("Settings that may slow this machine", name, value, advice)


def _settings() -> Iterator[Fact]:
    """Yield the variables whose values cannot be used."""
    from ..config import unusable

    for variable, error in unusable().items():
        yield Fact("Settings that cannot be used", variable, os.environ[variable], error)


def _gpu() -> Iterator[Fact]:
    """Yield what is known of GPUs without loading a library for them."""
    there = sorted(Path("/proc/driver/nvidia/gpus").glob("*"))
    value = f"{len(there)} with a driver" if there else "no driver is loaded"
    missing = there and importlib.util.find_spec("cupy") is None
    advice = "pip install 'magmagraph[cuda13]' (or cuda12, after the driver)" if missing else ""
    yield Fact("GPU", "NVIDIA", value, advice)


def _ranks() -> Iterator[Fact]:
    """Yield what starts processes and what carries their messages, without loading either."""
    from ..cores import allowed_cores
    from ..distributed.launching.engine import find_engine

    try:
        yield Fact("Many processes", "started by", str(find_engine()))
    except DeviceError as error:
        yield Fact("Many processes", "started by", "nothing: there is no mpiexec", str(error))
    missing = importlib.util.find_spec("mpi4py") is None
    value = "none: mpi4py is not installed" if missing else "MPI, by mpi4py"
    advice = "pip install 'magmagraph[mpi]'" if missing else ""
    yield Fact("Many processes", "messages", value, advice)
    path = _nccl()
    yield Fact("Many processes", "between GPUs", path or "no NCCL is found: through the host")
    yield Fact("Many processes", "cores", f"{allowed_cores()}, shared by the ranks of a machine")


def _nccl() -> str | None:
    """Return where NCCL lies: in a wheel, or among the system's libraries."""
    for place in sys.path:
        for found in sorted(Path(place or ".").glob("nvidia/nccl/lib/libnccl.so*")):
            return str(found)
    from ctypes.util import find_library

    return find_library("nccl")


def _cache() -> Iterator[Fact]:
    """Yield where kernels and data are kept, and how much there is."""
    from ..runtime.cache import cache_directory, cache_limit

    folder = cache_directory()
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # another process may have removed it
            size += path.stat().st_size if path.is_file() else 0
    advice = ""
    above = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    if not os.access(above, os.W_OK):
        advice = "it cannot be written: set MAGMAGRAPH_CACHE_DIR to a folder that can"
    try:
        limit = f"of {cache_limit() / 2**20:.0f} MiB for kernels (MAGMAGRAPH_CACHE_SIZE)"
    except ConfigError as error:
        limit, advice = "", str(error)
    yield Fact("Cache", "folder", str(folder), advice)
    yield Fact("Cache", "size", f"{size / 2**20:.1f} MiB {limit}".rstrip())


def _libraries() -> Iterator[Fact]:
    """Yield the libraries that are used, with their versions, and those that are missing."""
    for name, purpose, source in LIBRARIES:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Fact("Libraries", name, f"not installed ({purpose})", f"pip install '{source}'")
        else:
            yield Fact("Libraries", name, f"{version} ({purpose})")
