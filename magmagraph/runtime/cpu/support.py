"""The part of the runtime that is written in C, and what Python says to it.

A plan runs as one call into C over a list of steps. So the cost of a call does not grow with the
number of steps, and an interrupt is seen by Python only before the list or after it, or between
two iterations of a loop, behind which no step runs then: what a plan writes is written whole.

Every step is a function that takes an array of 64-bit cells, ``void kernel(void** arguments)``;
a cell is either the address of data or, by value, an integer. A floating-point scalar is data of
one element.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...config import word
from ...ir.locking import shared_lock
from . import threads
from .compiler import Library, compile_libraries, compile_library, start_libraries
from .memory import address_of, aligned_empty
from .products.blas import find_blas
from .sources import SUPPORT_HEADER, SUPPORT_LEVEL, support_source

__all__ = [
    "SUPPORT_HEADER",
    "Program",
    "Support",
    "address_of",
    "aligned_empty",
    "load_kernels",
    "load_kernels_together",
    "start_support",
    "support",
]

# What stopping.c needs of Python, in its order.
_PYTHON = (
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_CheckSignals",
)


class Support:
    """The loaded support library; made by :func:`support`.

    Attributes
    ----------
    library
        The library itself.
    nesting
        The addresses of the functions that may run loops.
    failing
        The addresses of the functions that may stop their program by `mg_fail`.
    """

    def __init__(self) -> None:
        library = compile_library(support_source(), SUPPORT_LEVEL)
        self.library = library
        self.run: Any = library.mg_run
        self.run.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        self.run.restype = ctypes.c_int64
        self.run_commit: Any = library.mg_run_commit
        self.run_commit.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        self.run_commit.restype = ctypes.c_int64
        self.run_timed: Any = library.mg_run_timed
        self.run_timed.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
        self.run_timed.restype = ctypes.c_int64
        library.mg_set_python(
            *(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in _PYTHON)
        )
        # These are called with Python's lock, and raise what a handler of a signal raised.
        kind = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
        self.run_listening: Any = kind(("mg_run_listening", library))
        kind = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.run_commit_listening: Any = kind(("mg_run_commit_listening", library))
        kind = ctypes.PYFUNCTYPE(
            ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
        )
        self.run_timed_listening: Any = kind(("mg_run_timed_listening", library))
        self.failing = {self.address("mg_loop_may_fail"), self.address("mg_branch_may_fail")}
        self.nesting = {self.address("mg_loop"), self.address("mg_branch")} | self.failing
        self.table = ctypes.addressof(ctypes.c_char.in_dll(library, "mg_table"))
        resize = library.mg_set_threads
        resize.argtypes = [ctypes.c_int64, ctypes.c_int64]
        resize.restype = ctypes.c_int64
        threads.attach_pool(resize)
        blas = find_blas()
        library.mg_watch_forks()
        if word("MAGMAGRAPH_BLAS_POOL") == "shared" and blas is not None:
            # After the pool has its threads: every job of a product needs one.
            blas.share_pool(self.address("mg_blas_jobs"))

    def address(self, name: str) -> Entry:
        """Return the address of a function, such as ``"mg_copy"``."""
        return function_address(self.library, name)


class Entry(int):
    """The address of a function that knows its name and its library.

    Attributes
    ----------
    name, library
        See above. Without an end of the address there is none of the library.
    """

    name: str
    library: Library


def function_address(library: Library, name: str) -> Entry:
    """Return the address of a function of a library.

    Raises
    ------
    AttributeError
        Where the library has no such function.
    """
    # By index: a function that is an attribute would stay with the library, and hold it.
    entry = Entry(ctypes.cast(library[name], ctypes.c_void_p).value or 0)
    entry.name, entry.library = name, library
    return entry


_support_lock = shared_lock()


def support() -> Support:
    """Return the support library, compiled, loaded and joined to BLAS on the first call.

    Raises
    ------
    CompilerUnavailable
        Where there is no working C compiler.
    """
    with _support_lock:
        return _load_support()


@functools.lru_cache(maxsize=1)
def _load_support() -> Support:
    return Support()


def load_kernels(source: str) -> Library:
    """Compile generated kernels and join them to the pool.

    Parameters
    ----------
    source : str
        C functions ``void name(void** arguments)``. :data:`SUPPORT_HEADER` is put before it.

    Returns
    -------
    Library
        Its functions; :func:`function_address` gives a kernel's address for :class:`Program`.

    Raises
    ------
    CompilerUnavailable
        Where it cannot be compiled here; the text says why.

    Examples
    --------
    >>> kernels = load_kernels('''
    ... void add_one(void** arguments) {
    ...     double* data = arguments[0];
    ...     for (int64_t i = 0; i < (int64_t)arguments[1]; i++) data[i] += 1.0;
    ... }''')
    >>> import numpy as np
    >>> data = np.zeros(3)
    >>> program = Program([(function_address(kernels, "add_one"), [address_of(data), 3])])
    >>> program.run()
    1
    >>> data
    array([1., 1., 1.])
    """
    return load_kernels_together([source])[0]


def load_kernels_together(
    sources: Sequence[str], optimization: Sequence[str | None] | None = None
) -> list[Library]:
    """Do as :func:`load_kernels` for several sources, which are compiled at the same time.

    Parameters
    ----------
    sources : sequence of str
        As there. The support library is compiled beside them where it is not cached, and those
        of products may be among them
        (:func:`~magmagraph.runtime.cpu.products.products.product_source`).
    optimization : sequence of (str or None), optional
        The level of each, as for :func:`~magmagraph.runtime.cpu.compiler.compile_library`.
    """
    texts = [support_source(), *(SUPPORT_HEADER + source for source in sources)]
    levels = [SUPPORT_LEVEL, *(optimization or [None] * len(sources))]
    libraries = compile_libraries(texts, levels)[1:]
    for library in libraries:
        join_pool(library)
    return libraries


def start_support(
    sources: Sequence[str] = (), optimization: Sequence[str | None] = ()
) -> None:
    """Start to compile the support library and kernels in the background.

    Parameters
    ----------
    sources, optimization
        As for :func:`load_kernels_together`.

    Raises
    ------
    CompilerUnavailable
        Where there is no working C compiler.
    """
    texts = [support_source(), *(SUPPORT_HEADER + source for source in sources)]
    start_libraries(texts, [SUPPORT_LEVEL, *optimization])


def join_pool(library: Library) -> None:
    """Give a library of kernels, compiled with `SUPPORT_HEADER` before them, the pool."""
    library["mg_bind"](ctypes.c_void_p(support().table))


class _Step(ctypes.Structure):
    _fields_ = (("function", ctypes.c_void_p), ("arguments", ctypes.c_void_p))


class _Pointer(ctypes.c_void_p):
    """An address that keeps its object alive."""

    held: Any


class Program:
    """A list of steps, ready to run as one call.

    A program is for one caller at a time.

    Parameters
    ----------
    steps : iterable of (int, sequence of int)
        The address of each step's function, and its cells: addresses of data and integers.
    keep : object
        Held as long as the program is: the libraries and buffers that the addresses lie in.
    commit : int, optional
        The first step that writes variables; a fork of another thread waits until all have.

    Attributes
    ----------
    run : callable
        Runs all steps, without Python's lock, and returns how many ran: fewer than all where a step
        stopped the program. Where a handler of a signal raises during a loop, that is raised, and
        no step after the loop runs.
    may_fail : bool
        Whether a step may stop the program by `mg_fail`.
    cells : ctypes array of int64
        All cells of all steps; ``program.cells[program.slot(step, index)] = address`` changes one.
    address : int
        Where the list of steps lies, as long as the program lives.
    steps : list of (int, list of int)
        What it was made from.

    Raises
    ------
    CompilerUnavailable
        Where there is no working C compiler.
    """

    run: Callable[[], int]

    def __init__(
        self,
        steps: Iterable[tuple[int, Sequence[int]]],
        keep: Any = None,
        commit: int | None = None,
    ) -> None:
        loaded = support()
        listed = self.steps = [(function, list(cells)) for function, cells in steps]
        self._starts = []
        flat: list[int] = []
        for _, cells in listed:
            self._starts.append(len(flat))
            flat.extend(cells)
        self._ends = [*self._starts[1:], len(flat)]
        self.cells = (ctypes.c_int64 * max(1, len(flat)))(*flat)
        base = ctypes.addressof(self.cells)
        self._steps = (_Step * max(1, len(listed)))(
            *[
                _Step(function, base + 8 * start)
                for (function, _), start in zip(listed, self._starts, strict=True)
            ]
        )
        self._count = len(listed)
        self.address = ctypes.addressof(self._steps)
        functions = {function for function, _ in listed}
        self.may_fail = not functions.isdisjoint(loaded.failing)
        listening = self.may_fail or not functions.isdisjoint(loaded.nesting)
        self._run_timed = loaded.run_timed_listening if listening else loaded.run_timed
        # `run` may outlive the program: it holds all that it needs.
        start = _Pointer(ctypes.addressof(self._steps))
        start.held = (self._steps, self.cells, keep)
        if commit is None:
            self._run = loaded.run_listening if listening else loaded.run
            self.run = functools.partial(self._run, start, self._count)
        else:
            self._run = loaded.run_commit_listening if listening else loaded.run_commit
            self.run = functools.partial(self._run, start, self._count, commit)
        self._commit = commit

    def __len__(self) -> int:
        return self._count

    def run_from(self, first: int) -> int:
        """Run the steps from one on, and return how many of all have run then."""
        start = self.address + ctypes.sizeof(_Step) * first
        if self._commit is None:
            ran = self._run(start, self._count - first)
        else:
            ran = self._run(start, self._count - first, max(0, self._commit - first))
        return first + int(ran)

    def slot(self, step: int, index: int) -> int:
        """Return the position in `cells` of a step's argument.

        Raises
        ------
        IndexError
            Where there is no such step or argument.
        """
        if not 0 <= step < self._count:
            raise IndexError(f"step {step} of a program of {self._count}")
        position = self._starts[step] + index
        if index < 0 or position >= self._ends[step]:
            raise IndexError(
                f"argument {index} of step {step}, which has "
                f"{self._ends[step] - self._starts[step]}"
            )
        return position

    def run_timed(self) -> list[int]:
        """Run all steps, and return the nanoseconds that each took."""
        taken = (ctypes.c_int64 * max(1, self._count))()
        self._run_timed(ctypes.addressof(self._steps), self._count, ctypes.addressof(taken))
        return list(taken[: self._count])
