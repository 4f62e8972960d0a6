"""The system's C compiler: found, asked once what it is, and run with a cache behind it.

The libraries that it makes live in the disk cache under a hash of all that they were made from:
the source, the flags, the compiler and the processor. So a warm start runs no process at all,
and many processes that want the same kernels at once need no lock.

The flags keep IEEE arithmetic. ``-ffast-math`` is never used: it changes what infinities and NaN
do, and a library linked with it switches subnormal numbers off for the whole process. ``-O2`` is
the level measured best: the loops are as fast as under ``-O3`` (their vectorization comes from
``#pragma omp simd``), and compile in three quarters of the time. ``-ffp-contract=off`` keeps
``a * b + c`` two roundings, as NumPy has them, so that a value depends neither on the kernel that
it was fused into nor on its place in a vector; a kernel that wants one rounding writes ``fma``.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import CompilerUnavailable, message
from ..cache import content_key, default_cache, default_choices
from .threads import available_threads

__all__ = [
    "Compiler", "compile_libraries", "compile_library", "find_compiler", "start_libraries",
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
    "-fPIC",
    "-shared",
    "-pthread",
    "-w",
)
_TIMEOUT = 120.0
_loaded: dict[str, ctypes.CDLL] = {}
_lock = threading.Lock()


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


def _unavailable(wrong: str) -> CompilerUnavailable:
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
        raise _unavailable(f"generated kernels need a POSIX system, and this is {sys.platform}")
    wanted = [shlex.split(chosen)] if chosen.strip() else [["cc"], ["gcc"], ["clang"]]
    for name, *arguments in wanted:
        path = shutil.which(name, path=search)
        if path is not None:
            return (path, *arguments)
    if chosen.strip():
        raise _unavailable(f"MAGMAGRAPH_CC names {chosen!r}, which is no program here")
    raise _unavailable("none of cc, gcc and clang is on the PATH")


def _probe(command: tuple[str, ...]) -> Compiler:
    key = _probe_key(command)
    kept = _kept(command, key)
    if kept is not None:
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
    raise _unavailable(f"{shlex.join(command)} is no C compiler that can be used: {reason}")


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


def _expected() -> tuple[Compiler, bool]:
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


def _family_flags(clang: bool) -> tuple[str, ...]:
    """Return the flag by which clang learns of glibc's vector functions, gcc by declarations."""
    intel = sys.platform == "linux" and platform.machine() == "x86_64"
    return ("-fveclib=libmvec",) if clang and intel else ()


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
        raise _unavailable(f"{command[0]} cannot be run: {error}") from error


def _answer(
    command: tuple[str, ...], asked: subprocess.Popen[str]
) -> subprocess.CompletedProcess[str]:
    try:
        said, errors = asked.communicate(timeout=_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unavailable(f"{command[0]} cannot be run: {error}") from error
    finally:
        _end(asked)
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


def compile_library(source: str, optimization: str | None = None) -> ctypes.CDLL:
    """Compile C source, or take it from the cache, and load it.

    Parameters
    ----------
    source : str
        One C file.
    optimization : str, optional
        ``"1"``, ``"2"``, ``"3"`` or ``"g"``; ``MAGMAGRAPH_OPTIMIZATION``, else 2, unless given.

    Returns
    -------
    ctypes.CDLL
        The library; calls through it release the interpreter's lock. The same source gives the
        same object.

    Raises
    ------
    CompilerUnavailable
        Where there is no working compiler, it refuses the source, or the result cannot be
        loaded; the text says why.

    Examples
    --------
    >>> library = compile_library("int twice(int x) { return 2 * x; }")
    >>> library.twice(21)
    42
    """
    return compile_libraries([source], [optimization])[0]


def compile_libraries(
    sources: Sequence[str], optimization: Sequence[str | None] | None = None
) -> list[ctypes.CDLL]:
    """Compile several C files at the same time.

    Parameters
    ----------
    sources : sequence of str
        A C file each.
    optimization : sequence of (str or None), optional
        The level of each, as for :func:`compile_library`, which says the rest.
    """
    compiler = find_compiler()
    flags, keys = _keys(compiler, sources, optimization)
    missing = {
        key: (flag, source)
        for key, flag, source in zip(keys, flags, sources, strict=True)
        if not _is_there(key)
    }
    runs = {key: _run_key(compiler, *what) for key, what in missing.items()}
    begun = {key: missing.pop(key) for key, run in runs.items() if run in _started}
    if missing:
        _build(compiler, missing)
    again = {key: what for key, what in begun.items() if not _ends_well(compiler, key, runs[key])}
    if again:
        _build(compiler, again)
    return [_loaded[key] for key in keys]


def start_libraries(
    sources: Sequence[str], optimization: Sequence[str | None] | None = None
) -> None:
    """Let the compiler begin with several C files, and return at once.

    Whoever asks for such a library by :func:`compile_libraries` waits for its end.

    Parameters
    ----------
    sources, optimization
        As there.

    Raises
    ------
    CompilerUnavailable
        Where there is no working compiler.
    """
    compiler, known = _expected()
    flags, keys = _keys(compiler, sources, optimization)
    for key, flag, source in zip(keys, flags, sources, strict=True):
        with _lock:
            run = _run_key(compiler, flag, source)
            if run in _started or (known and _is_there(key)):
                continue
            folder = tempfile.mkdtemp(prefix="magmagraph-")
            file = os.path.join(folder, run[:16])
            try:
                Path(file + ".c").write_text(source, encoding="utf-8")
                _started[run] = _Started(folder, file + ".so", _start(compiler, flag, file))
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)  # the one who needs it will say why


@dataclass(frozen=True)
class _Started:
    """A run of the compiler that nobody waits for yet."""

    folder: str
    output: str
    process: subprocess.Popen[bytes]

    def end(self) -> None:
        """End it, if it still runs, and leave nothing behind."""
        _end(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


_started: dict[str, _Started] = {}


def _run_key(compiler: Compiler, flag: str, source: str) -> str:
    """Return what tells runs apart: one may begin before the compiler has said what it is."""
    return content_key(source, *compiler.command, flag, *compiler.flags, *machine())


def _ends_well(compiler: Compiler, key: str, run: str) -> bool:
    """Wait for a library that was begun, once; return whether it is there then."""
    with _lock:
        begun = _started.pop(run, None)
        if begun is None:
            return _is_there(key)  # another thread has waited for it
        try:
            _finish(compiler, begun.process)
            _store(key, Path(begun.output).read_bytes())
        except (OSError, subprocess.TimeoutExpired, CompilerUnavailable):
            return False
        finally:
            begun.end()
        return True


@atexit.register
def _abandon() -> None:
    while _started:
        _started.popitem()[1].end()
    while _asked:
        _end(_asked.popitem()[1])


def _forget() -> None:
    """In a forked child: the runs are the parent's, and a thread of its may hold the lock."""
    global _lock
    _lock = threading.Lock()
    _started.clear()
    _asked.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _keys(
    compiler: Compiler, sources: Sequence[str], optimization: Sequence[str | None] | None
) -> tuple[list[str], list[str]]:
    """Return the flag and the place in the cache of every source."""
    usual = os.environ.get("MAGMAGRAPH_OPTIMIZATION", "2")
    levels = optimization or [None] * len(sources)
    flags = ["-O" + (level or usual) for _, level in zip(sources, levels, strict=True)]
    about = (*compiler.command, compiler.version)
    keys = [
        content_key(source, *about, flag, *compiler.flags, *machine())
        for source, flag in zip(sources, flags, strict=True)
    ]
    return flags, keys


def _is_there(key: str) -> bool:
    return key in _loaded or _load_cached(key)


def _load_cached(key: str) -> bool:
    path = default_cache().get_file(key)
    if path is None:
        return False
    try:
        _keep(key, path)
    except OSError:
        return False  # evicted this moment, or a folder that allows no code: built anew
    return True


def _keep(key: str, path: Path) -> None:
    _loaded.setdefault(key, ctypes.CDLL(str(path)))


def _build(compiler: Compiler, sources: dict[str, tuple[str, str]]) -> None:
    """Compile every (flag, source), as many at once as there are cores; load and cache them."""
    waiting = list(sources.items())
    running: deque[tuple[str, str, subprocess.Popen[bytes]]] = deque()
    try:
        with tempfile.TemporaryDirectory(prefix="magmagraph-") as folder:
            try:
                while waiting or running:
                    while waiting and len(running) < max(2, available_threads()):
                        key, (flag, source) = waiting.pop(0)
                        file = os.path.join(folder, _run_key(compiler, flag, source)[:16])
                        Path(file + ".c").write_text(source, encoding="utf-8")
                        running.append((key, file + ".so", _start(compiler, flag, file)))
                    key, output, process = running[0]
                    _finish(compiler, process)
                    running.popleft()
                    _store(key, Path(output).read_bytes())
            finally:
                for _, _, process in running:  # before the folder that they write in goes
                    _end(process)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unavailable(f"{compiler.command[0]} built no library: {error}") from error


def _start(compiler: Compiler, flag: str, file: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*compiler.command, flag, *compiler.flags, file + ".c", "-o", file + ".so", "-lm"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # What it leaves when it is ended goes with the folder.
        env=dict(os.environ, LC_ALL="C", TMPDIR=os.path.dirname(file)),
        start_new_session=True,  # with the programs that it runs, it is a group to end
    )


def _end(process: subprocess.Popen[Any]) -> None:
    """End a compiler and what it runs, if it still does."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _finish(compiler: Compiler, process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=_TIMEOUT)
    if process.returncode != 0:
        text = errors.decode(errors="replace").strip()[-2000:]
        raise CompilerUnavailable(
            message(
                f"{shlex.join(compiler.command)} ends with code {process.returncode}\n{text}",
                need="a compiler of C11 with GNU extensions",
                mend="name another compiler in MAGMAGRAPH_CC",
            )
        )


def _store(key: str, data: bytes) -> None:
    """Put a library into the cache and load it from there, or from a private folder."""
    cache = default_cache()
    path = cache.put_file(key, data, ".so")
    try:
        _keep(key, path)
    except OSError as error:  # a folder mounted without the right to run code
        cache.abandon(str(error))
        try:
            _keep(key, cache.put_file(key, data, ".so"))
        except OSError as again:
            raise CompilerUnavailable(
                message(
                    f"a compiled kernel cannot be loaded: {again}",
                    need="a folder from which libraries may be loaded",
                    mend="set MAGMAGRAPH_CACHE_DIR or TMPDIR to one",
                )
            ) from again
