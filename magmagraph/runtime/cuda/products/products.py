"""Generated products on a device: which there are, loaded once, and their launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....codegen.cuda.products.shapes import ProductShape
from ....codegen.cuda.products.small_gemm import (
    EARLY,
    FIRST_OF_EPILOGUE,
    SmallProduct,
    complete_source,
)
from ....ir.ranges import Range
from ..compiler import begin_sources
from ..launching.calls import KernelCall, driver

__all__ = ["begin_load", "call_of", "load"]

_MAX_SHARED, _CARVEOUT = 8, 9  # CU_FUNC_ATTRIBUTE_...

_functions: dict[tuple[int, str], int] = {}
_loaded: list[Any] = []  # modules live as long as the process: plans share their kernels


def load(device: Any, products: Sequence[SmallProduct]) -> list[int]:
    """Return the functions of generated products: compiled side by side, and loaded, once."""
    begin_load(device, products)()
    return [_functions[device.number, product.name] for product in products]


def begin_load(device: Any, products: Sequence[SmallProduct]) -> Callable[[], None]:
    """Start to compile generated products; the returned function waits and loads them."""
    new = {p.name: p for p in products if (device.number, p.name) not in _functions}
    sources = [complete_source([product]) for product in new.values()]
    compiled = begin_sources(sources, device.architecture)

    def finish() -> None:
        for product, cubin in zip(new.values(), compiled(), strict=True):
            module = device.cupy.cuda.function.Module()
            module.load(cubin)
            function = module.get_function(product.name)
            driver().funcSetAttribute(function.ptr, _MAX_SHARED, product.configuration.shared)
            driver().funcSetAttribute(function.ptr, _CARVEOUT, 100)
            _loaded.append((module, function))
            _functions[device.number, product.name] = function.ptr

    return finish


def call_of(
    function: int,
    product: SmallProduct,
    shape: ProductShape,
    operands: Sequence[int],
    more: Sequence[int] = (),
    pointers: Sequence[int] = (),
    early: Sequence[Sequence[Range]] = (),
    across: int = 0,
) -> KernelCall:
    """Return the launch of a generated product.

    Parameters
    ----------
    function, product, shape
        What is launched.
    operands
        The addresses of a, b, out, c, alpha and beta; 0 for what is not there.
    more
        The arguments of an epilogue that is a region.
    pointers
        Which of `more` are addresses.
    early
        The memory of the factor that the launch reads first, and of all that its epilogue reads.
    across
        Blocks side by side, where a second product follows.
    """
    # Numbers that kernels of the same region came to have since are none of this one's.
    arguments = [*operands, *shape[:3], 0, *more][: product.words]
    words = np.zeros(product.words, np.int64)  # all of them are read when the kernel is launched
    words[: len(arguments)] = arguments
    places = (*range(6), *(FIRST_OF_EPILOGUE + place for place in pointers))
    columns, rows, _ = product.grid(shape.m, shape.n)
    return KernelCall(
        function, (across or columns, rows, 1), (product.configuration.threads, 1, 1), words,
        places, product.configuration.shared, (EARLY, tuple(map(tuple, early))), overlaps=True,
    )
