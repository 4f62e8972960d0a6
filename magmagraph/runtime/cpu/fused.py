"""Fused steps as compiled kernels: built together, bound to sizes one by one."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence

from ...codegen.c.step import StepCode, assemble, step_code
from ...config import word
from ...ir.graph import Graph
from . import installed
from .compiler import Library, compile_libraries, served_library
from .compilers import find_compiler
from .support import SUPPORT_HEADER, function_address, join_pool
from .threads import get_threads

__all__ = ["Kernels", "kernel_key", "step_key"]

Bodies = tuple[Graph, ...]
VECTOR_LEVEL = "1"


def step_key(bodies: Bodies) -> str:
    """Return what tells kernels apart: steps of equal structure share one, whatever their sizes."""
    return step_code(bodies).key


def kernel_key(body: Graph) -> str:
    """Return `step_key` of a step with one body."""
    return step_key((body,))


def _shares(codes: Sequence[StepCode]) -> list[list[StepCode]]:
    """Return kernels shared out to compilers that run side by side, one a core, evenly by size.

    A run costs what a small kernel does, but on a core that has nothing else to do: what else a
    first call wants is installed, as a rule.
    """
    if not codes:
        return []
    count = max(1, min(get_threads(), len(codes)))
    shares: list[list[StepCode]] = [[] for _ in range(count)]
    sizes = [0] * count
    lengths = [len(code.text()) for code in codes]
    for i in sorted(range(len(codes)), key=lambda i: -lengths[i]):
        least = sizes.index(min(sizes))
        shares[least].append(codes[i])
        sizes[least] += lengths[i]
    return shares


def _at_lower_level(codes: Sequence[StepCode]) -> bool:
    """Return whether gcc, at the usual level, has no more to do for kernels than at a lower one."""
    usual = word("MAGMAGRAPH_OPTIMIZATION").removeprefix("-O") == "2"
    # Elsewhere functions of groups are loops over their lanes.
    intel = platform.machine() == "x86_64"
    return usual and intel and all(code.lower for code in codes) and (
        find_compiler().version.startswith("gcc")
    )


class Kernels:
    """The compiled kernels of a plan.

    Attributes
    ----------
    sources
        The C source of each library that was built, without the support header.
    libraries
        The loaded libraries.

    Examples
    --------
    >>> import numpy as np
    >>> import magmagraph as mg
    >>> from magmagraph.ir.graph import freeze
    >>> from magmagraph.ops.leaf import parameter
    >>> from magmagraph.runtime.cpu.support import Program, address_of
    >>> x = parameter(0, mg.constant([0.0, 0.0, 0.0]).type)
    >>> body = freeze([x], [mg.square(x) + 1.0])
    >>> kernels = Kernels()
    >>> kernels.build([(body,)])
    >>> function, numbers = kernels.bind((body,), {}, 1)
    >>> given, result = np.float32([1, 2, 3]), np.empty(3, np.float32)
    >>> Program([(function, [address_of(given), address_of(result), 0, *numbers])]).run()
    1
    >>> result
    array([ 2.,  5., 10.], dtype=float32)
    """

    def __init__(self) -> None:
        self.sources: list[str] = []
        self._address: dict[str, int] = {}
        self.libraries: list[Library] = []

    def __len__(self) -> int:
        return len(self._address)

    def build(self, steps: Sequence[Bodies]) -> None:
        """Compile the kernels of steps that are not there yet, on all cores at once.

        Raises
        ------
        CompilerUnavailable
            Where there is no working C compiler.
        """
        new: dict[str, StepCode] = {}
        for bodies in steps:
            code = step_code(bodies)
            if code.key not in self._address:
                new.setdefault(code.key, code)
        if installed.is_portable():
            self._take_installed(new)
        shares = _shares(list(new.values()))
        sources = [assemble(share) for share in shares]
        libraries = compile_libraries(
            [SUPPORT_HEADER + source for source in sources],
            [VECTOR_LEVEL if _at_lower_level(share) else None for share in shares],
            lasting=False,
        )
        for share, library in zip(shares, libraries, strict=True):
            join_pool(library)
            for code in share:
                self._address[code.key] = function_address(library, code.name)
        self.sources.extend(sources)
        self.libraries.extend(libraries)

    def has(self, bodies: Bodies) -> bool:
        """Return whether the kernel of a step is there."""
        return step_code(bodies).key in self._address

    def _take_installed(self, codes: dict[str, StepCode]) -> None:
        """Take kernels that came with the wheel, out of some that are wanted."""
        for key, code in list(codes.items()):
            source = assemble([code])
            library = served_library(SUPPORT_HEADER + source)
            if library is not None:
                join_pool(library)
                self._address[key] = function_address(library, code.name)
                self.libraries.append(library)
                self.sources.append(source)
                del codes[key]

    def bind(
        self, bodies: Bodies, sizes: Mapping[str, int], threads: int
    ) -> tuple[int, list[int]]:
        """Return a step's function, and its arguments after operands, results and workspace.

        Parameters
        ----------
        bodies
            Of a step that was built.
        sizes
            The size of every dimension.
        threads
            The most threads that may share the work; the workspace is made for as many.
        """
        code = step_code(bodies)
        return self._address[code.key], code.numbers(sizes, threads)
