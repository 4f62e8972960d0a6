"""Generated products on a device: which there are, loaded once, and their launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .calls import KernelCall, driver
from .compiler import compile_sources
from .cuts import Configuration, cut_for, cut_of_rows
from .small_gemm import (
    EARLY,
    FIRST_OF_EPILOGUE,
    Epilogue,
    SmallProduct,
    complete_source,
)
from .streams import Range

__all__ = ["ProductShape", "call_of", "cut_of", "load", "product_of"]

_MAX_SHARED, _CARVEOUT = 8, 9  # CU_FUNC_ATTRIBUTE_...
_WITH_TENSOR_CORES = 80  # compute capability whose tensor cores take float32


class ProductShape(NamedTuple):
    """What a float32 product is.

    Attributes
    ----------
    m, n, k
        Rows, columns and contracted extent.
    transpose_a, transpose_b
        Whether a is stored as (k, m), b as (n, k).
    terms
        3 for float32's accuracy, 1 for "tf32".
    """

    m: int
    n: int
    k: int
    transpose_a: bool
    transpose_b: bool
    terms: int = 3


def cut_of(device: Any, shape: ProductShape, rows: bool = False) -> Configuration | None:
    """Return how a product is cut on a device, or None where the library computes it.

    Parameters
    ----------
    device, shape
        Where, and what.
    rows
        Whether tiles have whole rows.
    """
    if int(device.architecture) < _WITH_TENSOR_CORES:
        return None
    cut = cut_of_rows if rows else cut_for
    return cut(shape.m, shape.n, shape.k, shape.terms)


def product_of(
    shape: ProductShape, configuration: Configuration, epilogue: Epilogue, early: int
) -> SmallProduct:
    """Return the generated product of a shape; `early` is its factor that is read first."""
    m, n, k, transpose_a, transpose_b, _ = shape
    return SmallProduct(
        configuration, transpose_a, transpose_b, (m if transpose_a else k) % 4 == 0,
        (k if transpose_b else n) % 4 == 0, epilogue, k <= configuration.reach, early,
    )


_functions: dict[tuple[int, str], int] = {}
_loaded: list[Any] = []  # modules live as long as the process: plans share their kernels


def load(device: Any, products: Sequence[SmallProduct]) -> list[int]:
    """Return the functions of generated products: compiled side by side, and loaded, once."""
    new = {p.name: p for p in products if (device.number, p.name) not in _functions}
    sources = [complete_source([product]) for product in new.values()]
    cubins = compile_sources(sources, device.architecture)
    for product, cubin in zip(new.values(), cubins, strict=True):
        module = device.cupy.cuda.function.Module()
        module.load(cubin)
        function = module.get_function(product.name)
        driver().funcSetAttribute(function.ptr, _MAX_SHARED, product.configuration.shared)
        driver().funcSetAttribute(function.ptr, _CARVEOUT, 100)
        _loaded.append((module, function))
        _functions[device.number, product.name] = function.ptr
    return [_functions[device.number, product.name] for product in products]


def call_of(
    function: int,
    product: SmallProduct,
    shape: ProductShape,
    operands: Sequence[int],
    more: Sequence[int] = (),
    pointers: int = 0,
    early: Sequence[Sequence[Range]] = (),
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
        How many of `more` are addresses: the first.
    early
        The memory of the factor that the launch reads first, and of all that its epilogue reads.
    """
    words = np.array([*operands, *shape[:3], 0, *more], np.int64)
    assert len(words) == FIRST_OF_EPILOGUE + len(more)
    places = (*range(6), *range(FIRST_OF_EPILOGUE, FIRST_OF_EPILOGUE + pointers))
    return KernelCall(
        function, product.grid(shape.m, shape.n), (product.configuration.threads, 1, 1), words,
        places, product.configuration.shared, (EARLY, tuple(map(tuple, early))), overlaps=True,
    )
