"""Which C compiler there is, what it is and which flags it takes: asked once, and kept.

The flags keep IEEE arithmetic. ``-ffast-math`` is never used: it changes what infinities and NaN
do, and a library linked with it switches subnormal numbers off for the whole process. ``-O2`` is
the level measured best: the loops are as fast as under ``-O3`` (their vectorization comes from
``#pragma omp simd``), and compile in three quarters of the time. ``-ffp-contract=off`` keeps
``a * b + c`` two roundings, as NumPy has them, so that a value depends neither on the kernel that
it was fused into nor on its place in a vector; a kernel that wants one rounding writes ``fma``.
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
from dataclasses import dataclass
from typing import Any

from ...errors import CompilerUnavailable, message
from ..cache import content_key, default_choices

__all__ = [
    "BASE_FLAGS",
    "TIMEOUT",
    "Compiler",
    "abandon",
    "end_run",
    "expected",
    "find_compiler",
    "forget",
    "kill_run",
    "linked",
    "machine",
    "unavailable",
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


def unavailable(wrong: str) -> CompilerUnavailable:
    """Return the error that says what is wrong with the compiler, or that there is none."""
    return CompilerUnavailable(
        message(
            wrong,
            need="a C compiler that builds shared libraries (gcc or clang)",
            mend="install one (Debian: apt install gcc; conda: conda install gcc), or name it in "
            "MAGMAGRAPH_CC",
        )
    )


def find_compiler() -> Compiler:
    """Return the C compiler: ``MAGMAGRAPH_CC``, else the first of cc, gcc and clang.

    The compiler is run once to learn its version and the flags that it takes; the answer is kept
    on disk under its path, size and time of change.

    Raises
    ------
    CompilerUnavailable
        Where there is none, or it cannot be run; the text says why.
    """
    return _find(os.environ.get("MAGMAGRAPH_CC", ""), os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=8)
def _find(chosen: str, search: str) -> Compiler:
    return _probe(_command(chosen, search))


def _command(chosen: str, search: str) -> tuple[str, ...]:
    """Return the program that serves as compiler, and its arguments; nothing is run."""
    if os.name != "posix":
        raise unavailable(f"generated kernels need a POSIX system, and this is {sys.platform}")
    wanted = [shlex.split(chosen)] if chosen.strip() else [["cc"], ["gcc"], ["clang"]]
    for name, *arguments in wanted:
        path = shutil.which(name, path=search)
        if path is not None:
            return (path, *arguments)
    if chosen.strip():
        raise unavailable(f"MAGMAGRAPH_CC names {chosen!r}, which is no program here")
    raise unavailable("none of cc, gcc and clang is on the PATH")


def _probe(command: tuple[str, ...]) -> Compiler:
    key = _probe_key(command)
    kept = _kept(command, key)
    if kept is not None:
        for known in [known for known in _asked if known[0] == command]:
            told = _asked.pop(known, None)  # another process was told first
            if told is not None:  # and no thread beside this one has seen it
                end_run(told)
        return kept
    reason = ""
    for extra in _machine_flags():
        flags = BASE_FLAGS + extra
        asked = _asked.pop((command, flags), None)
        done = _answer(command, asked or _ask(command, flags))
        version = re.search(r'#define __VERSION__ "(.*)"', done.stdout)
        if done.returncode == 0 and version is not None:
            clang = "#define __clang__" in done.stdout
            flags += _family_flags(clang)
            said = ("clang " if clang else "gcc ") + version.group(1)
            default_choices().set(key, {"version": said, "flags": list(flags)})
            return Compiler(command, said, flags)
        reason = reason or done.stderr.strip()[-500:] or f"it ends with code {done.returncode}"
    raise unavailable(f"{shlex.join(command)} is no C compiler that can be used: {reason}")


def _probe_key(command: tuple[str, ...]) -> str:
    real = os.path.realpath(command[0])
    status = os.stat(real)
    stamp = (real, str(status.st_mtime_ns), str(status.st_size))
    return "compiler " + content_key(*command, *stamp, *BASE_FLAGS, *machine())


def _kept(command: tuple[str, ...], key: str) -> Compiler | None:
    """Return the compiler as an earlier process found it to be."""
    kept = default_choices().get(key)
    if isinstance(kept, dict) and {"version", "flags"} <= kept.keys():
        return Compiler(command, str(kept["version"]), tuple(kept["flags"]))
    return None


def expected() -> tuple[Compiler, bool]:
    """Return the compiler, and whether that is known: else as it most likely is.

    What it is, it is asked meanwhile: `find_compiler` takes the answer.
    """
    command = _command(os.environ.get("MAGMAGRAPH_CC", ""), os.environ.get("PATH", ""))
    if _kept(command, _probe_key(command)) is not None:
        return find_compiler(), True
    flags = BASE_FLAGS + _machine_flags()[0]
    if (command, flags) not in _asked:
        _asked[command, flags] = _ask(command, flags)
    clang = "clang" in os.path.basename(os.path.realpath(command[0]))
    return Compiler(command, "", flags + _family_flags(clang)), False


_asked: dict[tuple[tuple[str, ...], tuple[str, ...]], subprocess.Popen[str]] = {}


_NO_PLUGIN = "-fno-use-linker-plugin"


def _family_flags(clang: bool) -> tuple[str, ...]:
    """Return the flag by which clang learns of glibc's vector functions, gcc by declarations.

    On Linux gcc leaves out the plugin that links its intermediate code, which nothing here is.
    """
    if sys.platform != "linux":
        return ()
    if not clang:
        return (_NO_PLUGIN,)
    return ("-fveclib=libmvec",) if platform.machine() == "x86_64" else ()


def linked(compiler: Compiler, source: str) -> tuple[str, ...]:
    """Return what a source is linked with.

    Start files and libraries of the compiler take the linker longer than all of a kernel. What is
    in the C library each process has, and a library is told of it when it is loaded; only who hears
    of forks has a part of it of its own.
    """
    if _NO_PLUGIN in compiler.flags and "pthread_atfork" not in source:
        return ("-nostdlib", "-lm", "-lgcc")
    return ("-lm",)


def _machine_flags() -> list[tuple[str, ...]]:
    """Return flags for this processor, the best first, the last without any."""
    intel = platform.machine().lower() in ("x86_64", "amd64", "i686")
    return [("-march=native" if intel else "-mcpu=native",), ()]


def _ask(command: tuple[str, ...], flags: tuple[str, ...]) -> subprocess.Popen[str]:
    """Let the compiler say what it is, and whether it takes the flags."""
    try:
        # The predefined macros come from the compiler proper, which refuses flags it knows not.
        return subprocess.Popen(
            [*command, *flags, "-dM", "-E", "-x", "c", "-"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=dict(os.environ, LC_ALL="C"),
            start_new_session=True,
        )
    except OSError as error:
        raise unavailable(f"{command[0]} cannot be run: {error}") from error


def _answer(
    command: tuple[str, ...], asked: subprocess.Popen[str]
) -> subprocess.CompletedProcess[str]:
    try:
        said, errors = asked.communicate(timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise unavailable(f"{command[0]} cannot be run: {error}") from error
    finally:
        end_run(asked)
    return subprocess.CompletedProcess(command, asked.returncode, said, errors)


@functools.lru_cache(maxsize=1)
def machine() -> tuple[str, ...]:
    """Return what machine code depends on: system, C library, processor and its features."""
    facts = [sys.platform, platform.machine()]
    try:
        facts.append(os.confstr("CS_GNU_LIBC_VERSION") or "")
    except (AttributeError, ValueError, OSError):
        facts.append(platform.version())
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part", "isa")
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if not line.strip():
                    break  # the first processor stands for all
                if line.split(":")[0].strip() in wanted:
                    facts.append(line.split(":", 1)[1].strip())
    except OSError:
        facts.append(platform.processor())
    return tuple(facts)


def end_run(process: subprocess.Popen[Any]) -> None:
    """End a compiler and what it runs, if it still does."""
    kill_run(process)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def kill_run(process: subprocess.Popen[Any]) -> None:
    """Kill a compiler and what it runs; whoever waits for it does the rest."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def abandon() -> None:
    """End the questions that nobody has taken the answer of."""
    while _asked:
        end_run(_asked.popitem()[1])


def forget() -> None:
    """In a forked child: the questions are the parent's."""
    _asked.clear()
