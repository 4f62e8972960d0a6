"""Flags and command lines of C compilers.

The flags keep IEEE arithmetic. ``-ffast-math`` is never used: it changes what infinities and NaN
do, and a library linked with it switches subnormal numbers off for the whole process. ``-O2`` is
the level measured best: the loops are as fast as under ``-O3`` (their vectorization comes from
``#pragma omp simd``), and compile in three quarters of the time. ``-ffp-contract=off`` keeps
``a * b + c`` two roundings, as NumPy has them, so that a value depends neither on the kernel that
it was fused into nor on its place in a vector; a kernel that wants one rounding writes ``fma``.

This module needs Python's own library alone: the package's installation builds libraries by it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..keys import content_key

__all__ = [
    "BASE_FLAGS",
    "FOLDER",
    "INDEX",
    "TIMEOUT",
    "VARIANTS",
    "Compiler",
    "Variant",
    "command_line",
    "end_run",
    "family_flags",
    "find_command",
    "kill_run",
    "library_key",
    "linked",
    "machine",
    "machine_flags",
    "portable_key",
    "probe_key",
    "question",
    "start_run",
    "told",
    "variants_here",
]

BASE_FLAGS = (
    "-std=gnu11",
    "-fno-math-errno",
    "-fwrapv",
    "-ffp-contract=off",
    # Nobody reads the flags of floating point exceptions. With them, a choice between two values
    # becomes a branch around what one of them takes to compute, and the loop is no vector loop.
    "-fno-trapping-math",
    "-fopenmp-simd",
    "-pipe",  # the assembler begins before the compiler proper has ended
    "-fPIC",
    "-shared",
    "-pthread",
    "-w",
)
TIMEOUT = 120.0  # seconds that a run of the compiler may take

# What is built at installation: beside the package, and no module of Python's.
FOLDER = "magmagraph.libs"
INDEX = "index.json"


@dataclass(frozen=True)
class Compiler:
    """A C compiler that was found to work.

    Attributes
    ----------
    command
        The program, resolved to its path, and arguments that the user gave with it.
    version
        Its family and version.
    flags
        What every compilation gets, apart from the level of optimization.
    """

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]


def find_command(chosen: str, search: str) -> tuple[str, ...]:
    """Return the program that serves as compiler, and its arguments; nothing is run.

    Parameters
    ----------
    chosen, search
        What ``MAGMAGRAPH_CC`` and ``PATH`` hold.

    Raises
    ------
    LookupError
        Where there is none; the text says why.
    """
    if os.name != "posix":
        raise LookupError(f"generated kernels need a POSIX system, and this is {sys.platform}")
    try:
        candidates = [shlex.split(chosen)] if chosen.strip() else [["cc"], ["gcc"], ["clang"]]
    except ValueError as error:
        raise LookupError(f"MAGMAGRAPH_CC is {chosen!r}: {error}") from None
    for name, *arguments in candidates:
        path = shutil.which(name, path=search)
        if path is not None:
            return (path, *arguments)
    if chosen.strip():
        raise LookupError(f"MAGMAGRAPH_CC names {chosen!r}, which is no program here")
    raise LookupError("none of cc, gcc and clang is on the PATH")


def probe_key(command: Sequence[str]) -> str:
    """Return the cache key of a compiler: path, size and time of its file."""
    real = os.path.realpath(command[0])
    status = os.stat(real)
    stamp = (real, str(status.st_mtime_ns), str(status.st_size))
    return "compiler " + content_key(*command, *stamp, *BASE_FLAGS, *machine())


def machine_flags() -> list[tuple[str, ...]]:
    """Return flags for this processor, the best first, the last without any."""
    intel = platform.machine().lower() in ("x86_64", "amd64", "i686")
    return [("-march=native" if intel else "-mcpu=native",), ()]


@dataclass(frozen=True)
class Variant:
    """A level of processors that libraries of a wheel are built for.

    Attributes
    ----------
    name
        Of the level, as compilers know it.
    flags
        What makes a compiler build for it, whatever processor it runs on.
    needs
        The features that a processor must have, by Linux' names.
    """

    name: str
    flags: tuple[str, ...]
    needs: frozenset[str] = frozenset()


# The levels of x86-64 are those of its psABI; "abm" is Linux' name for lzcnt.
_V3 = frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"])
_V4 = _V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
VARIANTS: dict[str, tuple[Variant, ...]] = {
    "x86_64": (
        Variant("x86-64-v4", ("-march=x86-64-v4",), _V4),
        Variant("x86-64-v3", ("-march=x86-64-v3",), _V3),
    ),
    "aarch64": (Variant("armv8-a", ("-march=armv8-a",)),),
    "arm64": (Variant("armv8-a", ("-march=armv8-a",)),),
}
"""By the kind of machine, what a wheel holds libraries for, the best first."""


def variants_here() -> tuple[Variant, ...]:
    """Return the variants whose libraries this processor runs, the best first."""
    kinds = VARIANTS.get(platform.machine(), ())
    present: set[str] = set()
    for fact in machine():
        present.update(fact.split())
    return tuple(variant for variant in kinds if variant.needs <= present)


def portable_key(flag: str, source: str) -> str:
    """Return the key of a library of a wheel: of its source and level alone.

    Its variant stands beside it, and the results of a source are the same bits with each compiler.
    """
    return content_key("portable", source, flag)


def question(command: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Return the command that prints a compiler's version and checks its flags."""
    # The predefined macros come from the compiler proper, which refuses flags it knows not.
    return [*command, *flags, "-dM", "-E", "-x", "c", "-"]


def told(
    command: tuple[str, ...], flags: tuple[str, ...], done: subprocess.CompletedProcess[str]
) -> Compiler | None:
    """Return the compiler as its answer says it is, or None: it is none, or takes no such flag."""
    version = re.search(r'#define __VERSION__ "(.*)"', done.stdout)
    if done.returncode or version is None:
        return None
    clang = "#define __clang__" in done.stdout
    said = ("clang " if clang else "gcc ") + version.group(1)
    return Compiler(command, said, flags + family_flags(clang))


_NO_PLUGIN = "-fno-use-linker-plugin"


def family_flags(clang: bool) -> tuple[str, ...]:
    """Return the flag by which clang learns of glibc's vector functions, gcc by declarations.

    On Linux gcc leaves out the plugin that links its intermediate code, which nothing here is.
    """
    if sys.platform != "linux":
        return ()
    if not clang:
        return (_NO_PLUGIN,)
    return ("-fveclib=libmvec",) if platform.machine() == "x86_64" else ()


def linked(compiler: Compiler, source: str) -> tuple[str, ...]:
    """Return the libraries that a source is linked with.

    Start files and libraries of the compiler take the linker longer than all of a kernel. What is
    in the C library each process has, and a library is told of it when it is loaded; only who hears
    of forks has a part of it of its own.
    """
    if _NO_PLUGIN in compiler.flags and "pthread_atfork" not in source:
        return ("-nostdlib", "-lm", "-lgcc")
    return ("-lm",)


def library_key(compiler: Compiler, flag: str, source: str) -> str:
    """Return the key of a library: of all that it is made from."""
    about = (*compiler.command, compiler.version)
    return content_key(source, *about, flag, *compiler.flags, *machine())


def command_line(compiler: Compiler, flag: str, file: str, source: str) -> list[str]:
    """Return the command that makes ``file.so`` of ``file.c``, which holds the source."""
    files = file + ".c", "-o", file + ".so"
    return [*compiler.command, flag, *compiler.flags, *files, *linked(compiler, source)]


def start_run(
    compiler: Compiler, flag: str, file: str, source: str
) -> subprocess.Popen[bytes]:
    """Start the compiler on ``file.c``, which holds the source, to make ``file.so``."""
    return subprocess.Popen(
        command_line(compiler, flag, file, source),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # What it leaves when it is ended goes with the folder.
        env=dict(os.environ, LC_ALL="C", TMPDIR=os.path.dirname(file)),
        start_new_session=True,  # with the programs that it runs, it is a group to end
    )


@functools.lru_cache(maxsize=1)
def machine() -> tuple[str, ...]:
    """Return what machine code depends on: system, C library, processor and its features."""
    facts = [sys.platform, platform.machine()]
    try:
        facts.append(os.confstr("CS_GNU_LIBC_VERSION") or "")
    except (AttributeError, ValueError, OSError):
        facts.append(platform.version())
    fields = ("model name", "flags", "Features", "CPU implementer", "CPU part", "isa")
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if not line.strip():
                    break  # the first processor stands for all
                if line.split(":")[0].strip() in fields:
                    facts.append(line.split(":", 1)[1].strip())
    except OSError:
        facts.append(platform.processor())
    return tuple(facts)


def end_run(process: subprocess.Popen[Any]) -> None:
    """End a compiler and its child processes, if they still run."""
    kill_run(process)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def kill_run(process: subprocess.Popen[Any]) -> None:
    """Kill a compiler and its child processes; the waiting thread cleans up."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
