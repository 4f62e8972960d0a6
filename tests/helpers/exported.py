"""Build exported programs with plain `cc`, and call them through their C interface."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from magmagraph.dtypes import canonical
from magmagraph.function.export import FLAGS
from magmagraph.runtime.cpu.compilers import find_compiler

STRICT = ("-Wall", "-Werror")


def native_flags() -> list[str]:
    """Return the flags with which Python's own kernels are made for this processor."""
    flags = find_compiler().flags
    return [flag for flag in flags if flag.startswith(("-march", "-mcpu", "-fveclib"))]


def sources(folder: Path) -> list[str]:
    """Return the exported C files, without the example."""
    return [str(path) for path in sorted(folder.glob("*.c")) if path.name != "main.c"]


class _Array(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("rank", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("bytes", ctypes.c_size_t),
    )  # fmt: skip


class Built:
    """An exported program, compiled and loaded.

    Parameters
    ----------
    folder
        Of the export.
    name
        Of the program in C.
    flags
        In addition to those of its README.
    threads
        For its init; None does not call it.
    """

    def __init__(
        self, folder: Path, name: str, flags: Sequence[str] | None = None, threads: int | None = 1,
        compiler: Sequence[str] = ("cc",),
    ) -> None:  # fmt: skip
        self.folder, self.name = folder, name
        flags = native_flags() if flags is None else flags
        output = folder / f"{name}.so"
        command = [
            *compiler, *FLAGS.split(), "-pthread", *STRICT, "-fPIC", "-shared", *sources(folder),
            "-o", str(output), *flags, "-lm",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        assert not done.stderr, done.stderr[:4000]
        self.library = ctypes.CDLL(str(output))
        self._function("message").restype = ctypes.c_char_p
        self._function("variables").restype = ctypes.POINTER(_Array)
        if threads is not None:
            assert self._function("init")(threads) == 0, self.message
            assert self.load(folder / f"{name}.safetensors") == 0, self.message

    def _function(self, label: str) -> Any:
        return getattr(self.library, f"{self.name}_{label}")

    @property
    def message(self) -> str:
        """What went wrong last."""
        return self._function("message")().decode()

    def load(self, path: Path) -> int:
        """Read the variables; return the status."""
        return self._function("load")(str(path).encode())

    def save(self, path: Path) -> int:
        """Write the variables; return the status."""
        return self._function("save")(str(path).encode())

    def end(self) -> None:
        """Free its memory."""
        self._function("end")()

    def run(self, *feeds: np.ndarray, out: Sequence[np.ndarray], label: str = "run",
            sizes: Sequence[int] = ()) -> int:  # fmt: skip
        """Run once; return the status."""
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*feeds, *out)]
        return self._function(label)(*map(ctypes.c_int64, sizes), *pointers)

    def values(self) -> dict[str, np.ndarray]:
        """Return the values of the variables."""
        count = ctypes.c_size_t()
        listed = self._function("variables")(ctypes.byref(count))
        by_name = {}
        for array in listed[: count.value]:
            shape = [array.shape[i] for i in range(array.rank)]
            value = np.empty(shape, canonical(array.dtype.decode()))
            status = self._function("get")(
                array.name, ctypes.c_void_p(value.ctypes.data), ctypes.c_size_t(array.bytes)
            )
            assert status == 0, self.message
            by_name[array.name.decode()] = value
        return by_name

    def set(self, name: str, value: np.ndarray) -> int:
        """Set a variable; return the status."""
        return self._function("set")(
            name.encode(), ctypes.c_void_p(value.ctypes.data), ctypes.c_size_t(value.nbytes)
        )


def states(functions: Iterable[Any]) -> dict[str, Any]:
    """Return the variables of functions that are exported together, by their names in C."""
    by_name: dict[str, Any] = {}
    for function in functions:
        for slot in function.plan.slots:
            if slot.place.value == "state" and all(slot.owner is not s for s in by_name.values()):
                name, count = slot.owner.name, 1
                while name in by_name:
                    count += 1
                    name = f"{slot.owner.name}_{count}"
                by_name[name] = slot.owner
    return by_name


def blas_flags() -> list[str] | None:
    """Return flags that link the CBLAS that Python's products call, or None."""
    from magmagraph.runtime.cpu.products.blas import CBLAS_32, CBLAS_64, find_blas

    blas = find_blas()
    if blas is None or blas.interface not in (CBLAS_64, CBLAS_32):
        return None
    path = Path(blas.path)
    if not path.is_file():
        return None
    symbols = subprocess.run(
        ["nm", "-D", str(path)], capture_output=True, text=True, check=False
    ).stdout if shutil.which("nm") else ""  # fmt: skip
    match = re.search(r"\s(\w*cblas_)sgemm((?:64_)?)$", symbols, re.MULTILINE)
    if match is None:
        return None
    return [
        f"-DMG_BLAS_INTERFACE={blas.interface}",
        f"-DMG_BLAS_NAME(f)={match[1]}##f##{match[2]}" if match[2]
        else f"-DMG_BLAS_NAME(f)={match[1]}##f",
        str(path), f"-Wl,-rpath,{path.parent}",
    ]  # fmt: skip
