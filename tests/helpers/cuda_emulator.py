"""Run the kernels of a CUDA source on the CPU: what `cuda_emulator.h` can do, compiled by g++."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Emulated", "available", "emulated"]

HEADER = Path(__file__).with_name("cuda_emulator.h")
# Sources define these themselves, for NVRTC has no headers of C.
_OURS = re.compile(
    r"^\s*(typedef [\w ]+ u?int(8|16|32|64)_t;|#define U?INT\d+_(MIN|MAX|C\(x\)).*"
    r"|#include.*)$",
    re.MULTILINE,
)
_KERNEL = re.compile(r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+"
                     r"(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(")  # fmt: skip
_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:__align__\s*\(\s*\d+\s*\)\s*|alignas\s*\([^)]*\)\s*)?"
    r"([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;"
)
_ASSEMBLY = re.compile(r"\basm\s*(?:volatile)?\s*\(\s*((?:\"(?:[^\"\\]|\\.)*\"\s*)+)(.*?)\)\s*;",
                       re.DOTALL)  # fmt: skip
_OPERAND = re.compile(r"\"[=+]?[a-z]\"\s*\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")


def available() -> bool:
    """Return whether sources can be compiled here: g++ on x86-64."""
    import platform

    return shutil.which("g++") is not None and platform.machine() == "x86_64"


def _instruction(match: re.Match[str]) -> str:
    """Return the call of the function that stands for a statement of inline assembly."""
    text = "".join(re.findall(r"\"((?:[^\"\\]|\\.)*)\"", match[1])).strip()
    if not text:
        return ";"
    if ";" in text.rstrip("; \\nt"):
        return 'emu_fail("assembly that the emulator does not have");'
    name = text.split()[0].rstrip(";").replace(".", "_").replace("::", "_")
    return f"emu_{name}({', '.join(_OPERAND.findall(match[2]))});"


def translated(source: str) -> str:
    """Return the C++ of a CUDA source."""
    kernels = _KERNEL.findall(source)
    text = _OURS.sub("", source)
    text = _DYNAMIC.sub(r"\1 *\2 = (\1 *)emu_dynamic;", text)
    text = _ASSEMBLY.sub(_instruction, text)
    launches = "\n".join(f"EMU_KERNEL({name})" for name in dict.fromkeys(kernels))
    return f'#include "{HEADER.name}"\n{text}\n{launches}\n'


class Emulated:
    """The kernels of a source.

    Examples
    --------
    >>> source = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }'
    >>> x = np.arange(4, dtype=np.float32)
    >>> Emulated(source).launch("twice", 1, 4, [x])
    >>> x
    array([0., 2., 4., 6.], dtype=float32)
    """

    def __init__(self, source: str) -> None:
        text = translated(source)
        folder = _folder()
        library = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.so"
        if not library.exists():
            with tempfile.TemporaryDirectory(dir=folder) as work:
                (Path(work) / "k.cpp").write_text(text)
                fresh = Path(work) / "k.so"
                _compile("-shared", f"-I{folder}", "-o", str(fresh), str(Path(work) / "k.cpp"))
                fresh.replace(library)
        self._library = ctypes.CDLL(str(library))

    def launch(
        self,
        kernel: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        values: Sequence[Any],
        *,
        shared: int = 0,
        descending: bool = False,
    ) -> None:
        """Run a kernel to its end.

        Parameters
        ----------
        kernel
            Its name; `extern "C"`, as NVRTC's sources have it.
        grid, block
            How many blocks, and threads of each.
        values
            The parameters in order: arrays (their addresses), or NumPy scalars and arrays of bytes
            in a tuple, `(bytes,)`, which are passed by value.
        shared
            Bytes of dynamic shared memory; they hold 0xA5 before.
        descending
            Whether threads run in descending order between barriers.

        Raises
        ------
        RuntimeError
            Threads wait for others that never come, or the kernel uses what the emulator lacks.
        """
        copies: list[Any] = []
        for value in values:
            if isinstance(value, tuple):
                copies.append(np.frombuffer(bytes(value[0]), np.uint8).copy())
            elif isinstance(value, np.generic):
                copies.append(np.array(value))
            else:
                copies.append(np.array(value.ctypes.data, np.uint64))
        addresses = np.array([one.ctypes.data for one in copies], np.uint64)
        sizes = [np.array([*(n if isinstance(n, Sequence) else [n]), 1, 1][:3], np.uint32)
                 for n in (grid, block)]  # fmt: skip
        launch = getattr(self._library, f"emu_launch_{kernel}")
        launch.restype = ctypes.c_char_p
        error = launch(
            ctypes.c_void_p(addresses.ctypes.data), ctypes.c_void_p(sizes[0].ctypes.data),
            ctypes.c_void_p(sizes[1].ctypes.data), ctypes.c_uint(shared),
            ctypes.c_int(descending),
        )  # fmt: skip
        if error:
            raise RuntimeError(f"{kernel}: {error.decode()}")


def _compile(*words: str) -> None:
    command = ["g++", "-std=c++17", "-O1", "-w", "-fPIC", "-fpermissive", "-ffp-contract=off",
               "-fno-strict-aliasing", "-fno-exceptions", *words]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"g++ refused the source:\n{done.stderr[:6000]}")


@functools.cache
def _folder() -> Path:
    """Return the folder of this header's libraries, which has the header compiled."""
    key = hashlib.sha256(HEADER.read_bytes()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"cuda-emulator-{os.getuid()}" / key
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    compiled = folder / f"{HEADER.name}.gch"
    if not compiled.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            _compile("-x", "c++-header", "-o", f"{work}/header.gch", str(HEADER))
            shutil.copy(HEADER, folder)
            (Path(work) / "header.gch").replace(compiled)
    return folder


@functools.lru_cache(256)
def emulated(source: str) -> Emulated:
    """Return the kernels of a source, compiled once."""
    return Emulated(source)


def run_region(
    body: Any,
    arrays: Sequence[np.ndarray],
    sizes: Any,
    lines: int = 16,
    *,
    descending: bool = False,
    multiprocessors: int = 4,
) -> list[np.ndarray] | None:
    """Return what the kernels of a fused body make, or None where they refuse the sizes.

    Results and the workspace hold 0xA5 before, and as many bytes after their ends, which must
    still be there afterwards.
    """
    import math

    from regions import region_of

    from magmagraph.codegen.cuda.generated import kernels_of
    from magmagraph.codegen.cuda.launch_config import launches_of
    from magmagraph.ir import dims
    from magmagraph.ir.fallback import Refused
    from magmagraph.runtime.cuda.kernels.fused import KernelRequest, _source

    kernels = kernels_of(body)
    assert kernels is not None
    counter = np.zeros(1, np.uint32)
    try:
        launches, wide = launches_of(
            kernels, sizes, lines, counter.ctypes.data, True, multiprocessors
        )
    except Refused:
        return None
    byte_arrays = [np.ascontiguousarray(a).reshape(-1).view(np.uint8).copy() for a in arrays]
    counts = [math.prod(n.type.concrete(dict(sizes))) * n.dtype.itemsize for n in body.outputs]
    scratch = dims.evaluate(region_of(body).workspace(lines), dict(sizes))
    memory = [np.full(count + 512, 0xA5, np.uint8) for count in (*counts, scratch)]
    starts = [-one.ctypes.data % 256 for one in memory]
    addresses = [one.ctypes.data + start for one, start in zip(memory, starts, strict=True)]
    aligned = [np.concatenate([np.zeros(256, np.uint8), one, np.zeros(256, np.uint8)])
               for one in byte_arrays]  # fmt: skip
    inputs = []
    for whole, one in zip(aligned, byte_arrays, strict=True):
        start = -whole.ctypes.data % 256
        whole[start : start + one.size] = one
        inputs.append(whole.ctypes.data + start)
    for launch in launches:
        request = KernelRequest(kernels, launch.kernel.partition("_")[2], wide)
        words = np.array([*inputs, *addresses, *launch.numbers], np.int64)
        source = _source([request.text], [kernels], wide)
        room = np.zeros(4096, np.int64)
        room[: words.size] = words
        emulated(source).launch(
            f"fused_{request.place[0]}", launch.grid, launch.block, [(room,)],
            descending=descending,
        )  # fmt: skip
    assert counter[0] == 0, "a kernel left its count"
    results = []
    for start, raw, count in zip(starts, memory, (*counts, scratch), strict=True):
        ends = raw[:start], raw[start + count :]
        assert all((one == 0xA5).all() for one in ends), "a kernel wrote outside of its memory"
        results.append(raw[start : start + count])
    return [
        raw.copy().view(node.dtype).reshape(node.type.concrete(dict(sizes)))
        for node, raw in zip(body.outputs, results[:-1], strict=True)
    ]
