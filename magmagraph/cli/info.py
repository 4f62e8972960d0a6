"""Say what was found on this machine, what is missing, and what slows it."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._version import __version__
from ..config import is_on
from ..errors import CompilerUnavailable, ConfigError, DeviceError

if TYPE_CHECKING:
    from ..runtime.cpu.installed import Installed
    from ..runtime.cpu.toolchain import Compiler

# The package's name, its use, and the extra that installs it.
LIBRARIES = (
    ("numpy", "arrays", "magmagraph"),
    ("scipy", "linear algebra, BLAS", "magmagraph"),
    ("ml_dtypes", "bfloat16", "magmagraph"),
    ("networkx", "export of graphs", "magmagraph"),
    ("pooch", "downloads of data sets", "magmagraph"),
    ("rich", "tables and progress", "magmagraph"),
    ("safetensors", "files of networks", "magmagraph"),
    ("cupy-cuda13x", "NVIDIA GPUs", "magmagraph[cuda13]"),
    ("cupy-cuda12x", "NVIDIA GPUs, older drivers", "magmagraph[cuda12]"),
    ("nvmath-python", "products on NVIDIA GPUs", "magmagraph[cuda13]"),
    (
        "nvidia-cudnn-frontend",
        "convolutions and attention on NVIDIA GPUs; slower without",
        "magmagraph[cuda13]",
    ),
    ("mpi4py", "many processes", "magmagraph[mpi]"),
    ("optuna", "hyperparameter search", "magmagraph[tune]"),
    ("pyarrow", "CSV files, read faster", "magmagraph[data]"),
    ("tensorboardX", "logs for TensorBoard", "magmagraph[loggers]"),
    ("mlflow-skinny", "logs for MLflow", "magmagraph[loggers]"),
    ("wandb", "logs for Weights & Biases", "magmagraph[loggers]"),
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


def run(options: argparse.Namespace) -> None:
    """Print the facts as tables, or as JSON."""
    if options.json:
        import dataclasses
        import json

        print(json.dumps([dataclasses.asdict(fact) for fact in facts()], indent=2))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)

    def show(line: str, style: str = "") -> None:
        console.print(Text(line, style), soft_wrap=True)

    rows = list(facts())
    column = max(len(fact.name) for fact in rows) + 4
    group = ""
    for fact in rows:
        if fact.group != group:
            if group:
                show("")
            show(fact.group, "bold")
            group = fact.group
        for line in wrapped(f"  {fact.name}", fact.value, column, console.width):
            show(line)
        if fact.advice:
            for line in wrapped("", fact.advice, column, console.width):
                show(line, "yellow")


def wrapped(name: str, text: str, column: int, width: int) -> list[str]:
    """Return a name and a text next to it, in lines of a width.

    Words are never broken, so that paths and commands can be copied: one that does not fit next to
    the name has a line of its own, which only a word longer than the screen exceeds.
    """
    room = max(width - column, 20)
    texts = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    lines, head = [], name
    for part in texts or [""]:
        if len(part) > room:
            lines += [head] if head.strip() else []
            lines.append(f"    {part}")
        else:
            lines.append((head.ljust(column) + part).rstrip())
        head = ""
    return lines


def facts() -> Iterator[Fact]:
    """Yield the facts of this machine."""
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
    from ..runtime.cpu import threads

    yield Fact("CPU", "processor", machine.processor())
    yield Fact("CPU", "cores", f"{os.cpu_count()} in the machine")
    try:
        yield Fact("CPU", "threads", f"{threads.available_threads()} (MAGMAGRAPH_THREADS sets it)")
    except ConfigError as error:
        yield Fact("CPU", "threads", "unknown", str(error))


def _compiler() -> Iterator[Fact]:
    """Yield the C compiler that builds the kernels."""
    from ..config import config
    from ..runtime.cpu import installed
    from ..runtime.cpu.compilers import find_compiler

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
        compiler = find_compiler()
    except CompilerUnavailable as error:
        yield Fact("CPU", "C compiler", "none: kernels run in NumPy, slower", str(error))
        with contextlib.suppress(ConfigError):
            there = installed.found()
            if there is not None and there.portable:
                yield _of_a_wheel(there)
    else:
        yield Fact("CPU", "C compiler", f"{shlex.join(compiler.command)}, {compiler.version}")
        yield _installed(compiler)


def _of_a_wheel(installation: Installed) -> Fact:
    """Return which of a wheel's libraries this processor takes."""
    name, variants = "installed libraries", ", ".join(installation.portable)
    if installation.variant is None:
        value = f"none for this processor; the wheel has {variants}, in {installation.folder}"
        return Fact("CPU", name, value, "they are compiled at the first call, by a C compiler")
    count = len(installation.portable[installation.variant])
    return Fact(
        "CPU", name, f"{count} for {installation.variant} (of {variants}), in {installation.folder}"
    )


def _installed(compiler: Compiler) -> Fact:
    """Return which libraries were built when the package was installed, and can be used."""
    from ..runtime.cpu import installed
    from ..runtime.cpu.sources import fixed_sources
    from ..runtime.cpu.toolchain import library_key

    name = "installed libraries"
    try:
        installation = installed.found()
    except ConfigError as error:
        return Fact("CPU", name, "unknown", str(error))
    keys = [library_key(compiler, "-O" + level, text) for _, text, level in fixed_sources()]
    if installation is None:
        if not is_on("MAGMAGRAPH_INSTALLED"):
            advice = "unset MAGMAGRAPH_INSTALLED to use those there are"
            return Fact("CPU", name, "not used: they are switched off", advice)
        advice = "install magmagraph with pip where a C compiler is at hand: faster first calls"
        return Fact("CPU", name, "none", advice)
    if installation.portable:
        return _of_a_wheel(installation)
    usable = sum(key in installation.libraries for key in keys)
    value = f"{usable} of {len(keys)}, in {installation.folder}"
    again = "install magmagraph again with pip: faster first calls"
    if usable == len(keys):
        return Fact("CPU", name, value)
    if not installation.is_for_this_machine():
        value += "; they were built for another processor or C library"
    elif (installation.compiler["version"], *installation.compiler["command"]) != (
        compiler.version,
        *compiler.command,
    ):
        value += f"; they were built by {shlex.join(installation.compiler['command'])}, "
        value += str(installation.compiler["version"])
    else:
        value += "; the others were not built in time, or have changed since"
    return Fact("CPU", name, value, again)


def _blas() -> Iterator[Fact]:
    """Yield the library that computes large products, and settings that slow the machine."""
    from ..runtime.cpu.products import blas

    blas_facts = blas.describe()
    if blas_facts["path"] is None:
        yield Fact("CPU", "BLAS", "none with an interface that is known: products are slower")
    else:
        yield Fact("CPU", "BLAS", f"{blas_facts['path']} ({blas_facts['interface']})")
        if blas_facts["core"]:
            yield Fact("CPU", "BLAS kernels", f"for {blas_facts['core']}")
    for line in blas_facts["settings"]:
        name, _, value = line.partition("=")
        advice = f"unset {name} before Python starts, unless you mean it"
        yield Fact("Settings that may slow this machine", name, value, advice)


def _settings() -> Iterator[Fact]:
    """Yield the variables whose values cannot be used."""
    from ..config import unusable

    for variable, error in unusable().items():
        yield Fact("Settings that cannot be used", variable, os.environ[variable], error)


def _gpu() -> Iterator[Fact]:
    """Yield facts of the GPUs that need no GPU library."""
    there = sorted(Path("/proc/driver/nvidia/gpus").glob("*"))
    value = f"{len(there)} with a driver" if there else "no driver is loaded"
    missing = there and importlib.util.find_spec("cupy") is None
    advice = "pip install 'magmagraph[cuda13]' (or cuda12, after the driver)" if missing else ""
    yield Fact("GPU", "NVIDIA", value, advice)


def _ranks() -> Iterator[Fact]:
    """Yield what starts processes and what carries their messages."""
    from ..distributed.launching.engine import find_engine
    from ..ir.cores import allowed_cores

    try:
        yield Fact("Many processes", "started by", str(find_engine()))
    except DeviceError as error:
        yield Fact("Many processes", "started by", "nothing: there is no mpiexec", str(error))
    missing = importlib.util.find_spec("mpi4py") is None
    value = "none: mpi4py is not installed" if missing else "MPI, by mpi4py"
    advice = "pip install 'magmagraph[mpi]'" if missing else ""
    yield Fact("Many processes", "messages", value, advice)
    path = _nccl()
    value = path or "no NCCL is found: through MPI or the host"
    yield Fact("Many processes", "between GPUs", value)
    if not missing:
        yield _addresses()
    yield Fact("Many processes", "cores", f"{allowed_cores()}, shared by the ranks of a machine")


# MPI is initialized by its import: some libraries end a process that asks them earlier.
_ASKING = """
from mpi4py import MPI
from magmagraph.runtime.comm.claims import claim, loaded
takes, why = claim(loaded())
print(takes)
print(why)
"""
_OF_RANKS = ("PMI", "HYDI", "OMPI_COMM_", "SLURM_")  # variables by which a process is one of a job


def _addresses() -> Fact:
    """Return whether MPI takes GPU addresses; a new process loads the library."""
    name = "MPI and GPUs"
    alone = {k: v for k, v in os.environ.items() if not k.startswith(_OF_RANKS)}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _ASKING],  # -P: no module of the current folder
            capture_output=True, text=True, check=True, timeout=20,
            env={**alone, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        takes, why = done.stdout.splitlines()[-2:]
    except (OSError, ValueError, subprocess.SubprocessError):
        return Fact("Many processes", name, "unknown: mpi4py finds no MPI library that it can load")
    verdicts = {
        "True": "says that it takes their addresses; used where NCCL cannot be, after a trial",
        "False": "takes no addresses of GPUs",
        "None": "does not say whether it takes their addresses",
    }
    advice = "MAGMAGRAPH_DEVICE_MESSAGES=mpi tries it" if takes == "None" else ""
    return Fact("Many processes", name, f"{verdicts[takes]} ({why})", advice)


def _nccl() -> str | None:
    """Return the path of NCCL, from a wheel or the system's libraries."""
    for place in sys.path:
        for path in sorted(Path(place or ".").glob("nvidia/nccl/lib/libnccl.so*")):
            return str(path)
    from ctypes.util import find_library

    return find_library("nccl")


def _cache() -> Iterator[Fact]:
    """Yield where kernels and data are kept, and how much there is."""
    from ..files.trust import Untrusted, check_folder
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
        check_folder(folder)
    except Untrusted as error:
        advice = f"not used: {error}; remove it, or set MAGMAGRAPH_CACHE_DIR to another folder"
    except OSError:  # it is made when it is needed
        pass
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
