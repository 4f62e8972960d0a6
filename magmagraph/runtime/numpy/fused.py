"""Fused steps as compiled kernels: built together, bound to sizes one by one."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from ...graph import Graph
from .codegen import StepCode, assemble, step_code
from .products import PRODUCT_LEVEL, product_source
from .support import function_address, load_kernels_together

__all__ = ["Kernels", "kernel_key", "step_key"]

Bodies = tuple[Graph, ...]


def step_key(bodies: Bodies) -> str:
    """Return what tells kernels apart: steps of equal structure share one, whatever their sizes."""
    return step_code(bodies).key


def kernel_key(body: Graph) -> str:
    """Return `step_key` of a step with one body."""
    return step_key((body,))


class Kernels:
    """The compiled kernels of a plan.

    Attributes
    ----------
    sources
        The C source of each library that was built, without the support header.

    Examples
    --------
    >>> import numpy as np
    >>> import magmagraph as mg
    >>> from magmagraph.graph import freeze
    >>> from magmagraph.ops.leaf import parameter
    >>> from magmagraph.runtime.numpy.support import Program, address_of
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
        self._libraries: list[ctypes.CDLL] = []

    def __len__(self) -> int:
        return len(self._address)

    def build(self, steps: Sequence[Bodies], products: Sequence[np.dtype] = ()) -> None:
        """Compile the kernels of steps that are not there yet, on all cores at once.

        Parameters
        ----------
        steps
            The bodies of each step.
        products
            dtypes of the matrix products that the plan needs beside them: where these are not
            compiled yet, they are at the same time.

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
        if not new:
            return
        source = assemble(list(new.values()))
        levels = [None, *[PRODUCT_LEVEL] * len(products)]
        library = load_kernels_together([source, *map(product_source, products)], levels)[0]
        self.sources.append(source)
        self._libraries.append(library)
        for key, code in new.items():
            self._address[key] = function_address(library, code.name)

    def bind(
        self, bodies: Bodies, sizes: Mapping[str, int], threads: int
    ) -> tuple[int, list[int]]:
        """Return a step's function, and its arguments behind operands, results and workspace.

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


def _shared_out(codes: list[StepCode], cores: int) -> list[list[StepCode]]:
    """Return groups of about as much text each, one source a core.

    A source costs a compiler's start, about what a kernel costs, so that none has only one.
    """
    groups: list[list[StepCode]] = [[] for _ in range(max(1, min(cores, len(codes) // 2)))]
    sizes = [0] * len(groups)
    for code in sorted(codes, key=lambda c: (-c.size, c.key)):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(code)
        sizes[smallest] += code.size
    return groups
