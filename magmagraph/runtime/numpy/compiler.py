"""The system's C compiler, run with a cache behind it.

The libraries that it makes live in the disk cache under a hash of all that they were made from:
the source, the flags, the compiler and the processor. So a warm start runs no process at all,
and many processes that want the same kernels at once need no lock.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import CompilerUnavailable, message
from ..cache import content_key, default_cache
from . import compilers
from .compilers import TIMEOUT, Compiler, end_run, expected, find_compiler, unavailable
from .threads import available_threads

__all__ = ["compile_libraries", "compile_library", "start_libraries"]

_loaded: dict[str, ctypes.CDLL] = {}
_lock = threading.Lock()


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
    compiler, known = expected()
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
                process = _start(compiler, flag, file)
                _started[run] = _Started(folder, file + ".so", process)
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
        end_run(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


_started: dict[str, _Started] = {}


def _run_key(compiler: Compiler, flag: str, source: str) -> str:
    """Return what tells runs apart: one may begin before the compiler has said what it is."""
    return content_key(source, *compiler.command, flag, *compiler.flags, *compilers.machine())


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
    compilers.abandon()


def _forget() -> None:
    """In a forked child: the runs are the parent's, and a thread of its may hold the lock."""
    global _lock
    _lock = threading.Lock()
    _started.clear()
    compilers.forget()


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
        content_key(source, *about, flag, *compiler.flags, *compilers.machine())
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
                    end_run(process)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise unavailable(f"{compiler.command[0]} built no library: {error}") from error


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


def _finish(compiler: Compiler, process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=TIMEOUT)
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
