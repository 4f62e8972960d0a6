"""CUDA C to machine code by NVRTC, kept on disk; it needs no GPU, so tests run it anywhere.

Cubins are kept, never PTX: a driver refuses the PTX of a newer compiler and runs its cubins.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from ...errors import CompilerUnavailable, message
from ..cache import content_key, default_cache

__all__ = ["begin_sources", "compile_source", "compile_sources", "load_beside"]

_MAPS = "/proc/self/maps"  # which files a process has loaded, on Linux
_PLACES = ("LD_LIBRARY_PATH", "CUDA_PATH", "CUDA_HOME")  # where libraries are looked for

_SMALLEST = 'extern "C" __global__ void mg_nothing() {}'
# As on the CPU: a * b + c is rounded twice, so that a value does not depend on what it was fused
# with; an expression that wants one rounding says fma.
FLAGS = ("-std=c++17", "-fmad=false", "-default-device", "-w")


def compile_source(source: str, architecture: str) -> bytes:
    """Return the cubin of a source for an architecture such as "90".

    Raises
    ------
    CompilerUnavailable
        NVRTC is not installed.
    RuntimeError
        The source is wrong: the text has the compiler's log and the source.
    """
    key, options = _key(source, architecture)
    cache = default_cache()
    cached = cache.get(key)
    if cached is not None:
        return cached
    nvrtc = _nvrtc()
    program = nvrtc.createProgram(source, "magmagraph.cu", (), ())
    try:
        try:
            nvrtc.compileProgram(program, options)
        except nvrtc.NVRTCError:
            log = nvrtc.getProgramLog(program)
            numbered = "\n".join(f"{i:4} {line}" for i, line in enumerate(source.splitlines(), 1))
            raise RuntimeError(
                message(f"a generated CUDA kernel does not compile:\n{log}\n{numbered}")
            ) from None
        cubin = nvrtc.getCUBIN(program)
    finally:
        nvrtc.destroyProgram(program)
    cache.put(key, cubin)
    return bytes(cubin)


def compile_sources(sources: list[str], architecture: str) -> list[bytes]:
    """Return the cubin of each source; several are compiled side by side."""
    return begin_sources(sources, architecture)()


def begin_sources(sources: list[str], architecture: str) -> Callable[[], list[bytes]]:
    """Start `compile_sources` in the background; the returned function waits for it."""
    cache = default_cache()
    # What is kept is read here: a thread that reads files would wait for Python at each of them.
    cached = {source: cache.get(_key(source, architecture)[0]) for source in dict.fromkeys(sources)}
    new = [source for source, cubin in cached.items() if cubin is None]
    compiled: Callable[[], list[bytes]] = list
    if new:
        from concurrent.futures import ThreadPoolExecutor

        pool = ThreadPoolExecutor(max_workers=min(16, len(new)))
        compiling = [pool.submit(compile_source, source, architecture) for source in new]
        pool.shutdown(wait=False)

        def compiled() -> list[bytes]:
            return [one.result() for one in compiling]

    def finish() -> list[bytes]:
        cubins = {**cached, **dict(zip(new, compiled(), strict=True))}
        return [cubin for source in sources if (cubin := cubins[source]) is not None]

    return finish


def load_beside() -> None:
    """Load the compiler on a thread of its own: from the disk that takes longer than a compile.

    Where it is known which file that is, only the system's loader runs, without Python's lock: all
    kernels may be kept, and then nothing compiles.
    """
    library = _library()
    if library is None:
        threading.Thread(target=_load).start()
    else:
        threading.Thread(target=_open, args=(library.path,)).start()


def _open(path: str) -> None:
    with contextlib.suppress(OSError, AttributeError):  # whoever compiles is told
        # `ctypes.CDLL` itself would keep the lock meanwhile.
        loader = ctypes.CDLL(None).dlopen
        loader.argtypes, loader.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
        loader(os.fsencode(path), os.RTLD_NOW | os.RTLD_LOCAL)


def _load() -> None:
    with contextlib.suppress(Exception):  # whoever compiles is told
        nvrtc = _nvrtc()
        program = nvrtc.createProgram(_SMALLEST, "magmagraph.cu", (), ())
        nvrtc.compileProgram(program, FLAGS)  # what it reads when it compiles for the first time
        nvrtc.destroyProgram(program)


def _key(source: str, architecture: str) -> tuple[str, tuple[str, ...]]:
    """Return the cache key of a source's cubin, and the compiler's options."""
    options = (*FLAGS, f"-arch=sm_{architecture}")
    return content_key("cubin", _version(), *options, source), options


class _Library(NamedTuple):
    """The file that NVRTC was loaded from, what tells it from others, and its version."""

    path: str
    size: int
    changed: int
    version: str


def _library() -> _Library | None:
    """Return which library an earlier process loaded, where another would be the same one."""
    key = _surroundings()
    kept = None if key is None else default_cache().get(key)
    if kept is None:
        return None
    library = _Library(*json.loads(kept))
    try:
        now = os.stat(library.path)
    except OSError:
        return None
    return library if (now.st_size, now.st_mtime_ns) == (library.size, library.changed) else None


def _surroundings() -> str | None:
    """Return a key of all that decides which library CuPy finds, or None without CuPy."""
    try:
        import cupy

        versions = str(cupy.__version__), str(cupy.__file__)
    except Exception:  # a broken installation raises whatever its parts raise
        return None
    return content_key("nvrtc", *versions, sys.prefix, *(os.environ.get(p, "") for p in _PLACES))


@functools.cache
def _version() -> str:
    """Return NVRTC's version, without loading it where its file is known."""
    library = _library()
    if library is not None:
        return library.version
    version = ".".join(map(str, _nvrtc().getVersion()))
    key = _surroundings()
    with contextlib.suppress(OSError):  # there are no such maps elsewhere
        with open(_MAPS) as maps:
            versions = {
                path for line in maps
                if os.path.basename(path := line.rstrip().partition("/")[2]).startswith(
                    "libnvrtc.so"
                )
            }
        if key is not None and len(versions) == 1:
            path = "/" + versions.pop()
            now = os.stat(path)
            new_library = _Library(path, now.st_size, now.st_mtime_ns, version)
            default_cache().put(key, json.dumps(new_library).encode())
    return version


@functools.cache
def _nvrtc() -> Any:
    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except Exception as error:  # a missing library raises whatever its loader raises
        raise CompilerUnavailable(
            message(
                f"NVRTC cannot be loaded: {error}",
                hint="pip install 'magmagraph[cuda13]'",
            )
        ) from None
    return nvrtc
