"""The one BLAS of the process: found among the libraries that NumPy has loaded already.

Two copies of OpenBLAS with a pool each, as NumPy and SciPy bring them, hinder each other: the
threads of the one spin while the other works. So products run through the library that
``np.matmul`` uses; SciPy's is taken only where NumPy's cannot be reached. Where the library is an
OpenBLAS that lets its caller run its jobs, it is given the pool of the generated kernels, so that
one pool serves all.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ....config import is_on
from ....errors import message
from ....ir.locking import cached_property, outside_of_forks

__all__ = ["Blas", "capsules", "describe", "find_blas", "scipy_blas", "slow_settings"]

# What support.c calls them.
PLAIN, CBLAS_64, CBLAS_32, FORTRAN_32 = range(4)
_INTERFACES = ("none", "cblas, 64-bit integers", "cblas, 32-bit integers", "Fortran, 32-bit")
_BUFFER = 32 << 20  # bytes that OpenBLAS maps for a product, of 64 threads at most
FUNCTIONS = ("sgemm", "dgemm", "sgemv", "dgemv")

# (before the name, after the name, interface) of the builds in use: NumPy's wheels; OpenBLAS with
# 64-bit integers; Accelerate, new and with 64-bit integers; everything else.
_SPELLINGS = (
    ("scipy_cblas_", "64_", CBLAS_64),
    ("scipy_cblas_", "", CBLAS_32),
    ("cblas_", "64_", CBLAS_64),
    ("cblas_", "$NEWLAPACK$ILP64", CBLAS_64),
    ("cblas_", "$NEWLAPACK", CBLAS_32),
    ("cblas_", "", CBLAS_32),
)
_OPENBLAS_SPELLINGS = (("scipy_openblas_", "64_"), ("scipy_openblas_", ""), ("openblas_", "64_"),
                       ("openblas_", ""))  # fmt: skip


@dataclass(frozen=True)
class Blas:
    """A BLAS that can be called.

    Attributes
    ----------
    path
        The library's file, or the name by which it was reached.
    interface
        How its functions take their arguments: `CBLAS_64`, `CBLAS_32` or `FORTRAN_32`.
    addresses
        Of sgemm, dgemm, sgemv and dgemv.
    library
        Handle of the library, which keeps it loaded.
    control
        Before and after the name of OpenBLAS's own functions, or None for another library.
    """

    path: str
    interface: int
    addresses: dict[str, int]
    library: Any = field(repr=False, compare=False, default=None)
    control: tuple[str, str] | None = None
    _reserved: list[int] = field(repr=False, compare=False, default_factory=lambda: [0])

    def _function(self, name: str) -> Any:
        if self.control is None:
            return None
        before, after = self.control
        return getattr(self.library, f"{before}{name}{after}", None)

    def set_threads(self, count: int) -> bool:
        """Set the number of threads of the library; False where it has no function for that."""
        if self._set_threads is None:
            return False
        with outside_of_forks:  # it takes locks of the library
            self._set_threads(count)
        return True

    def reserve(self, callers: int) -> None:
        """Let an OpenBLAS have buffers for so many products at once, and keep them.

        It maps one when a product finds none free, and ends the process where it cannot. So that
        happens when a plan is bound, after a look for as much memory, and not while variables are
        written. Products that more threads of the program begin at once need more, then.

        Raises
        ------
        MemoryError
            There is not as much.
        """
        missing = callers - self._reserved[0]
        take = getattr(self.library, "blas_memory_alloc", None)
        give = getattr(self.library, "blas_memory_free", None)
        if missing <= 0 or self.control is None or take is None or give is None:
            return
        try:
            mmap.mmap(-1, missing * _BUFFER).close()
        except OSError as error:
            raise MemoryError(
                message(
                    f"no memory for {missing} buffers of {_BUFFER >> 20} MiB, which products need",
                    hint="fewer threads (mg.config.threads), or a higher limit of memory",
                )
            ) from error
        take.argtypes, take.restype = [ctypes.c_int], ctypes.c_void_p
        give.argtypes, give.restype = [ctypes.c_void_p], None
        with outside_of_forks:
            for buffer in [take(0) for _ in range(callers)]:
                give(buffer)
        self._reserved[0] = callers

    def threads(self) -> int | None:
        """Return the number of threads of the library, or None where it does not say."""
        return None if self._get_threads is None else int(self._get_threads())

    # Looked up once: around small work they take as long as it does.

    @cached_property
    def _set_threads(self) -> Any:
        function = self._function("set_num_threads")
        if function is None:
            for name in ("MKL_Set_Num_Threads", "bli_thread_set_num_threads"):
                function = function or getattr(self.library, name, None)
        if function is not None:
            function.argtypes = [ctypes.c_int]
            function.restype = None
        return function

    @cached_property
    def _get_threads(self) -> Any:
        return self._function("get_num_threads")

    def thread_functions(self) -> tuple[int | None, int | None]:
        """Return the addresses of its functions that get and set the number of threads, or Nones.

        ``MAGMAGRAPH_BLAS_PANELS=0`` gives Nones: products then run on the library's own threads.
        """
        get, put = self._function("get_num_threads"), self._function("set_num_threads")
        if not is_on("MAGMAGRAPH_BLAS_PANELS") or get is None or put is None:
            return None, None
        return _address(get), _address(put)

    def text(self, name: str) -> str | None:
        """Return the text of the library's ``get_config`` or ``get_corename``, or None."""
        function = self._function("get_" + name)
        if function is None:
            return None
        function.restype = ctypes.c_char_p
        answer: bytes | None = function()
        return None if answer is None else answer.decode(errors="replace").strip()

    def share_pool(self, callback: int) -> bool:
        """Let `callback`, the address of a C function, run the library's jobs.

        Returns
        -------
        bool
            False where the library cannot do so, and keeps its own pool.
        """
        function = self._function("set_threads_callback_function")
        if function is None:
            return False
        function.argtypes = [ctypes.c_void_p]
        function.restype = None
        function(callback)
        return True


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _bundled() -> Iterator[Path]:
    """Yield the libraries that a NumPy wheel brings, on Linux and on macOS."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        yield from sorted(folder.glob("*openblas*"))


def _loaded() -> Iterator[tuple[str, str]]:
    """Yield (description, path): NumPy's own BLAS first, then the libraries NumPy links to."""
    for path in _bundled():
        yield str(path), str(path)
    from numpy.linalg import _umath_linalg

    # Symbols are looked up in all that the module depends on.
    module = str(_umath_linalg.__file__)
    yield f"the BLAS that {Path(module).name} is linked to", module


@functools.lru_cache(maxsize=1)
def find_blas() -> Blas | None:
    """Return the BLAS that NumPy uses, else SciPy's, else None.

    Examples
    --------
    >>> blas = find_blas()
    >>> blas is None or sorted(blas.addresses)
    ['dgemm', 'dgemv', 'sgemm', 'sgemv']
    """
    for name, path in _loaded():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for before, after, interface in _SPELLINGS:
            routines = [getattr(library, before + function + after, None) for function in FUNCTIONS]
            if all(function is not None for function in routines):
                addresses = dict(zip(FUNCTIONS, map(_address, routines), strict=True))
                return Blas(name, interface, addresses, library, _openblas_control(library))
    return scipy_blas()


def _openblas_control(library: Any) -> tuple[str, str] | None:
    for before, after in _OPENBLAS_SPELLINGS:
        if hasattr(library, f"{before}set_num_threads{after}"):
            return before, after
    return None


def scipy_blas() -> Blas | None:
    """Return SciPy's BLAS through the capsules that it offers to Cython."""
    try:
        from scipy.linalg import cython_blas
    except ImportError:
        return None
    routines = capsules((cython_blas,), FUNCTIONS)
    if routines is None:
        return None
    addresses = dict(zip(FUNCTIONS, routines, strict=True))
    library = ctypes.CDLL(cython_blas.__file__)
    return Blas("scipy.linalg.cython_blas", FORTRAN_32, addresses, library,
                _openblas_control(library))  # fmt: skip


def capsules(modules: Sequence[Any], names: Sequence[str]) -> list[int] | None:
    """Return the addresses of functions that modules offer to Cython; None where one is missing."""
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    offered = {name: capsule for module in modules for name, capsule in module.__pyx_capi__.items()}
    if any(name not in offered for name in names):
        return None
    return [pointer_of(offered[name], name_of(offered[name])) for name in names]


# What an inherited variable does to the machine, in words for `magmagraph info`.
_SETTINGS = {
    "OPENBLAS_CORETYPE": "makes OpenBLAS use the kernels of the processor named, which can halve "
    "the speed of products on a newer one",
    "OPENBLAS_L2_SIZE": "makes OpenBLAS cut its blocks for this size of cache (in KiB)",
    "OPENBLAS_BLOCK_FACTOR": "changes the blocks of OpenBLAS",
    "OPENBLAS_NUM_THREADS": "limits the threads of products",
    "GOTO_NUM_THREADS": "limits the threads of products",
    "OPENBLAS_THREAD_TIMEOUT": "changes how long idle threads of OpenBLAS take the processor",
    "OPENBLAS_MAIN_FREE": "changes where threads of OpenBLAS run",
    "OMP_NUM_THREADS": "limits the threads",
    "OMP_PROC_BIND": "binds threads to cores; several pools then wait on the same cores",
    "OMP_WAIT_POLICY": "keeps idle OpenMP threads on the processor where it is active",
    "GOMP_SPINCOUNT": "changes how long idle OpenMP threads take the processor",
    "KMP_BLOCKTIME": "changes how long idle OpenMP threads take the processor",
    "MKL_NUM_THREADS": "limits the threads of products",
    "MKL_DEBUG_CPU_TYPE": "makes MKL use the kernels of another processor",
    "MKL_CBWR": "keeps MKL from its fastest kernels",
    "BLIS_NUM_THREADS": "limits the threads of products",
    "BLIS_ARCH_TYPE": "makes BLIS use the kernels of another processor",
}


def slow_settings() -> list[str]:
    """Return a line for every inherited variable that may slow this machine.

    They belong to the user, and are said rather than overridden. Most act when NumPy is loaded,
    so that they have to be changed before Python starts.

    Examples
    --------
    >>> import os
    >>> os.environ["MKL_CBWR"] = "COMPATIBLE"
    >>> [line for line in slow_settings() if line.startswith("MKL_CBWR")]
    ['MKL_CBWR=COMPATIBLE keeps MKL from its fastest kernels']
    >>> del os.environ["MKL_CBWR"]
    """
    return [
        f"{name}={os.environ[name]} {effect}"
        for name, effect in _SETTINGS.items()
        if os.environ.get(name)
    ]


def describe() -> dict[str, Any]:
    """Return facts of the BLAS, for people.

    Returns
    -------
    dict
        ``path``, ``interface``, ``config``, ``core`` (the processor whose kernels it uses),
        ``threads``, and ``settings``: :func:`slow_settings`.
    """
    blas = find_blas()
    if blas is None:
        facts: dict[str, Any] = {
            "path": None,
            "interface": _INTERFACES[PLAIN],
            "config": None,
            "core": None,
            "threads": None,
        }
    else:
        facts = {
            "path": blas.path,
            "interface": _INTERFACES[blas.interface],
            "config": blas.text("config"),
            "core": blas.text("corename"),
            "threads": blas.threads(),
        }
    return facts | {"settings": slow_settings()}
