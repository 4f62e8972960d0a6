"""Run the system's C compiler, with a cache of its results.

The libraries that it makes live in the disk cache under a hash of all that they were made from:
the source, the flags, the compiler and the processor. So a warm start runs no process at all.
Those that no program changes may have been built when the package was installed, or have come with
its wheel (`installed`).
Of many processes that want the same library at once (the ranks of a job), the one that gets its
lock compiles it while the others go on with the next, and load it when it is there.
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
import time
import weakref

# What `ctypes` itself uses; on Windows, where there is no compiler, it has another name.
from _ctypes import dlclose
from collections import deque
from collections.abc import MutableMapping, Sequence
from pathlib import Path

from ...config import word
from ...errors import CompilerUnavailable, message
from ...files.folders import claim_folder, release_folder
from ...files.trust import temporary_folder, temporary_place
from ...ir.locking import outside_of_forks, shared_lock
from ..cache import default_cache
from ..locks import Lock
from . import compilers, installed
from .compilers import SourceRefused, expected, find_compiler, unavailable
from .threads import available_threads
from .toolchain import TIMEOUT, Compiler, end_run, kill_run, library_key, start_run

__all__ = [
    "Library", "compile_libraries", "compile_library", "served_library", "start_libraries",
]


class Library(ctypes.CDLL):
    """A loaded library that knows what it was made from.

    Attributes
    ----------
    source
        Its C.
    blas
        The letter of BLAS's functions that it calls, "s" or "d"; empty where it calls none.
    products
        The library of the products that it calls, or None.
    """

    source: str = ""
    blas: str = ""
    products: Library | None = None


_loaded: MutableMapping[str, Library] = weakref.WeakValueDictionary()
_lasting: dict[str, Library] = {}  # whose addresses are kept without them
_recent: deque[Library] = deque(maxlen=64)  # functions are often dropped and made again
_lock = shared_lock()
_PATIENCE = 30.0  # seconds without a library of another process before this one compiles it, too
_LOOK = 0.005  # seconds between two looks for one


def compile_library(source: str, optimization: str | None = None) -> Library:
    """Compile C source, or take it from the cache, and load it.

    Parameters
    ----------
    source : str
        One C file.
    optimization : str, optional
        ``"1"``, ``"2"``, ``"3"`` or ``"g"``; ``MAGMAGRAPH_OPTIMIZATION``, else 2, unless given.

    Returns
    -------
    Library
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
    sources: Sequence[str],
    optimization: Sequence[str | None] | None = None,
    *,
    lasting: bool = True,
) -> list[Library]:
    """Compile several C files at the same time.

    Parameters
    ----------
    sources : sequence of str
        A C file each.
    optimization : sequence of (str or None), optional
        The level of each, as for :func:`compile_library`, which says the rest.
    lasting : bool
        False lets the system unload a library, some time after nobody has its object any more.
    """
    flags = _flags(sources, optimization)
    served = {
        i: key
        for i, what in enumerate(zip(flags, sources, strict=True))
        if (key := _served(*what)) is not None
    }
    rest = [i for i in range(len(sources)) if i not in served]
    compiled = _compiled([flags[i] for i in rest], [sources[i] for i in rest])
    served.update(zip(rest, compiled, strict=True))
    keys = [served[i] for i in range(len(sources))]
    libraries = [library for key in keys if (library := _loaded.get(key)) is not None]
    if len(libraries) < len(keys):  # others came between, and nobody has had some of these yet
        return compile_libraries(sources, optimization, lasting=lasting)
    for library, source in zip(libraries, sources, strict=True):
        library.source = source
    if lasting:
        _lasting.update(zip(keys, libraries, strict=True))
    return libraries


def served_library(source: str) -> Library | None:
    """Return a library that came with the wheel and has the kernels of a source, or None."""
    (flag,) = _flags([source], None)
    key = _served(flag, source)
    return None if key is None else _loaded.get(key)


def _served(flag: str, source: str) -> str | None:
    """Return the key of a library that came with the wheel, loaded, or None."""
    library = installed.portable_library(flag, source)
    if library is None:
        return None
    key, path = library
    if key not in _loaded:
        try:
            _keep(key, path)
        except OSError:  # for a later C library, say: built here
            return None
    return key


def _compiled(flags: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Return the keys of libraries that are loaded now, compiled where they are nowhere yet."""
    if not sources:
        return []
    compiler = find_compiler()
    keys = [library_key(compiler, *what) for what in zip(flags, sources, strict=True)]
    requests = dict(zip(keys, zip(flags, sources, strict=True), strict=True))
    begun = {}
    if _started:
        runs = {key: _started.get(_run_key(compiler, *what)) for key, what in requests.items()}
        begun = {key: run for key, run in runs.items() if run is not None}
    missing = {key for key in requests if key not in begun and not _is_there(key)}
    if missing:
        _build(compiler, {key: what for key, what in requests.items() if key in missing})
    for run in begun.values():
        run.keeper.join()
    failed = {key: requests[key] for key in begun if not _is_there(key)}
    if failed:
        _build(compiler, failed)
    return keys


def start_libraries(
    sources: Sequence[str], optimization: Sequence[str | None] | None = None
) -> None:
    """Let the compiler begin with several C files, and return at once.

    Whoever asks for such a library by :func:`compile_libraries`, here or in another process, waits
    for its end. What another process compiles already is left to it.

    Parameters
    ----------
    sources, optimization
        As there.

    Raises
    ------
    CompilerUnavailable
        Where there is no working compiler.
    """
    usual = _flags(sources, optimization)
    pairs = [pair for pair in zip(usual, sources, strict=True) if _served(*pair) is None]
    if not pairs:
        return
    compiler, is_expected = expected()
    flags, sources = [flag for flag, _ in pairs], [source for _, source in pairs]
    keys = [library_key(compiler, *pair) for pair in pairs]
    for key, flag, source in zip(keys, flags, sources, strict=True):
        with _lock:
            run = _run_key(compiler, flag, source)
            if run in _started or (is_expected and _is_there(key)):
                continue
            lock = _lock_of(run)
            if not lock.take():
                continue
            try:
                folder = temporary_folder()
            except OSError:  # the one who needs it will say why
                lock.release()
                continue
            file = os.path.join(folder, run[:16])
            try:
                claim_folder(folder)
                Path(file + ".c").write_text(source, encoding="utf-8")
                process = start_run(compiler, flag, file, source)
            except OSError:  # the one who needs it will say why
                release_folder(folder)
                shutil.rmtree(folder, ignore_errors=True)
                lock.release()
                continue
            begun = _started[run] = _Started(run, source, flag, file + ".so", process, lock)
            begun.keeper.start()


class _Started:
    """A run of the compiler in progress; a thread stores its result.

    Other processes wait for the library, whatever this one does meanwhile.
    """

    def __init__(
        self,
        run: str,
        source: str,
        flag: str,
        output: str,
        process: subprocess.Popen[bytes],
        lock: Lock,
    ) -> None:
        self.run = run
        self.source = source
        self.flag = flag
        self.output = output
        self.folder = os.path.dirname(output)
        self.process = process
        self.lock = lock
        self.keeper = threading.Thread(target=self._keep, name="magmagraph-compiler", daemon=True)

    def _keep(self) -> None:
        try:
            self.process.communicate(timeout=TIMEOUT)
            if self.process.returncode == 0:
                compiler = find_compiler()  # a run may begin before it has said what it is
                key = library_key(compiler, self.flag, self.source)
                if _run_key(compiler, self.flag, self.source) == self.run:
                    _store(key, Path(self.output).read_bytes())
        except (OSError, ValueError, Warning, subprocess.TimeoutExpired, CompilerUnavailable):
            pass  # the one who needs it compiles it again, and hears why that cannot be
        finally:
            end_run(self.process)
            release_folder(self.folder)
            shutil.rmtree(self.folder, ignore_errors=True)
            _started.pop(self.run, None)
            self.lock.release()

    def end(self) -> None:
        """End it, if it still runs, and remove its files."""
        kill_run(self.process)
        self.keeper.join()


_started: dict[str, _Started] = {}


def _lock_of(run: str) -> Lock:
    return Lock(default_cache().directory / "locks" / run[:40])


def _run_key(compiler: Compiler, flag: str, source: str) -> str:
    """Return the key of a run, which may start before the compiler's version is known."""
    return library_key(Compiler(compiler.command, "", compiler.flags), flag, source)


@atexit.register
def _abandon() -> None:
    for begun in list(_started.values()):
        begun.end()
    compilers.abandon()


def _forget() -> None:
    """In a forked child: the runs are the parent's."""
    _started.clear()
    compilers.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _flags(sources: Sequence[str], optimization: Sequence[str | None] | None) -> list[str]:
    """Return the flag of each source's level."""
    usual = word("MAGMAGRAPH_OPTIMIZATION").removeprefix("-O")
    levels = optimization or [None] * len(sources)
    return ["-O" + (level or usual) for _, level in zip(sources, levels, strict=True)]


def _is_there(key: str) -> bool:
    return key in _loaded or _load_cached(key)


def _load_cached(key: str) -> bool:
    for look in (installed.library, default_cache().get_file):
        path = look(key)
        if path is None:
            continue
        try:
            _keep(key, path)
        except OSError:  # evicted this moment, or a folder that allows no code: built anew
            continue
        return True
    return False


def _keep(key: str, path: Path) -> None:
    with outside_of_forks:  # the loader has a lock
        library = Library(str(path))
    weakref.finalize(library, _unload, library._handle).atexit = False
    _recent.append(_loaded.setdefault(key, library))


def _unload(handle: int) -> None:
    with outside_of_forks:
        dlclose(handle)


def _build(compiler: Compiler, sources: dict[str, tuple[str, str]]) -> None:
    """Compile every (flag, source), as many at once as there are cores; load and cache them.

    What another process compiles at the moment is waited for, when nothing else is left to do.
    """
    waiting = {key: (_run_key(compiler, *what), *what) for key, what in sources.items()}
    running: deque[tuple[str, str, subprocess.Popen[bytes]]] = deque()
    locks: dict[str, Lock] = {}
    moved = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="magmagraph-", dir=temporary_place()) as folder:
            try:
                claim_folder(folder)
                while waiting or running:
                    patient = time.monotonic() - moved < _PATIENCE
                    for key, (run, flag, source) in list(waiting.items()):
                        if len(running) >= max(2, available_threads()):
                            break
                        locks[key] = _lock_of(run)
                        if not locks[key].take() and patient:
                            continue
                        moved = time.monotonic()
                        del waiting[key]
                        if _is_there(key):
                            locks[key].release()
                            continue
                        file = os.path.join(folder, run[:16])
                        Path(file + ".c").write_text(source, encoding="utf-8")
                        process = start_run(compiler, flag, file, source)
                        running.append((key, file + ".so", process))
                    if running:
                        key, output, process = running[0]
                        _finish(compiler, process)
                        running.popleft()
                        _store(key, Path(output).read_bytes())
                        locks[key].release()
                        moved = time.monotonic()
                    elif waiting:
                        time.sleep(_LOOK)
            finally:
                for _, _, process in running:  # before the folder that they write in goes
                    end_run(process)
                release_folder(folder)
                for lock in locks.values():
                    lock.release()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise unavailable(f"{compiler.command[0]} built no library: {error}") from error


def _finish(compiler: Compiler, process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=TIMEOUT)
    if process.returncode != 0:
        text = errors.decode(errors="replace").strip()
        raise SourceRefused(
            message(
                f"{shlex.join(compiler.command)} ends with code {process.returncode}\n"
                f"{text[-2000:]}",
                need="a compiler of C11 with GNU extensions",
                hint="name another compiler in MAGMAGRAPH_CC",
            ),
            text,
        )


def _store(key: str, data: bytes) -> None:
    """Put a library into the cache and load it from there, or from a private folder."""
    cache = default_cache()
    path = cache.put_file(key, data, ".so")
    try:
        _keep(key, path)
    except OSError as error:  # a folder mounted without the right to run code
        cache.abandon(error)
        try:
            _keep(key, cache.put_file(key, data, ".so"))
        except OSError as again:
            raise CompilerUnavailable(
                message(
                    f"a compiled kernel cannot be loaded: {again}",
                    need="a folder from which libraries may be loaded",
                    hint="set MAGMAGRAPH_CACHE_DIR or TMPDIR to one",
                )
            ) from again
