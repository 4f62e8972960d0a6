"""CUDA C to machine code by NVRTC, kept on disk; it needs no GPU, so tests run it anywhere.

Cubins are kept, never PTX: a driver refuses the PTX of a newer compiler and runs its cubins.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...errors import CompilerUnavailable, message
from ..cache import content_key, default_cache

__all__ = ["begin_sources", "compile_source", "compile_sources", "load_beside"]

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
    nvrtc = _nvrtc()
    key, options = _key(source, architecture)
    cache = default_cache()
    known = cache.get(key)
    if known is not None:
        return known
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
        made = nvrtc.getCUBIN(program)
    finally:
        nvrtc.destroyProgram(program)
    cache.put(key, made)
    return bytes(made)


def compile_sources(sources: list[str], architecture: str) -> list[bytes]:
    """Return the cubin of each source; several are compiled side by side."""
    cache = default_cache()
    made = [cache.get(_key(source, architecture)[0]) for source in sources]
    new = [i for i, known in enumerate(made) if known is None]
    if len(new) > 1:
        with ThreadPoolExecutor(max_workers=min(16, len(new))) as pool:
            missing = [sources[i] for i in new]
            compiled = list(pool.map(lambda one: compile_source(one, architecture), missing))
    else:
        compiled = [compile_source(sources[i], architecture) for i in new]
    for i, cubin in zip(new, compiled, strict=True):
        made[i] = cubin
    return [cubin for cubin in made if cubin is not None]


def begin_sources(sources: list[str], architecture: str) -> Callable[[], list[bytes]]:
    """Begin `compile_sources` beside what the caller does; what is returned waits for it."""
    if not sources:
        return list
    pool = ThreadPoolExecutor(max_workers=1)
    compiled = pool.submit(compile_sources, sources, architecture)
    pool.shutdown(wait=False)
    return compiled.result


def load_beside() -> None:
    """Load the compiler on a thread of its own: from the disk that takes longer than a compile."""
    threading.Thread(target=_load).start()


def _load() -> None:
    with contextlib.suppress(Exception):  # whoever compiles is told
        nvrtc = _nvrtc()
        program = nvrtc.createProgram(_SMALLEST, "magmagraph.cu", (), ())
        nvrtc.compileProgram(program, FLAGS)  # what it reads when it compiles for the first time
        nvrtc.destroyProgram(program)


def _key(source: str, architecture: str) -> tuple[str, tuple[str, ...]]:
    """Return what a source's cubin is kept by, and the compiler's options."""
    options = (*FLAGS, f"-arch=sm_{architecture}")
    version = ".".join(map(str, _nvrtc().getVersion()))
    return content_key("cubin", version, *options, source), options


@functools.cache
def _nvrtc() -> Any:
    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except Exception as error:  # a missing library raises whatever its loader raises
        raise CompilerUnavailable(
            message(
                f"NVRTC cannot be loaded: {error}",
                mend="pip install 'magmagraph[cuda13]'",
            )
        ) from None
    return nvrtc
