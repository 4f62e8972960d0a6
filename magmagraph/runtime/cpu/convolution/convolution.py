"""Convolutions as steps of a program: libraries of C by algorithm, and their cells."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....ir.graph import Node
from ....ir.interpret import bind_attributes
from ....ops.convolution.filters import TILES
from ....ops.convolution.primitives import Extents, algorithm_of, direction_of
from .. import sources
from ..compiler import Library
from ..products.products import product_library
from ..sources import CONVOLUTION_LEVEL
from ..support import function_address, load_kernels_together

__all__ = [
    "CONVOLUTION_LEVEL",
    "convolution_library",
    "convolution_source",
    "convolution_step",
    "needs_products",
]

_TYPES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


def needs_products(algorithm: str) -> bool:
    """Return whether an algorithm multiplies matrices."""
    return algorithm != "direct"


def convolution_source(dtype: np.dtype, algorithm: str) -> str:
    """Return the C of an algorithm for float32 or float64."""
    return sources.convolution_source(_TYPES[dtype], algorithm)


@functools.lru_cache(maxsize=8)
def convolution_library(dtype: np.dtype, algorithm: str) -> Library:
    """Return the library of an algorithm, compiled and joined to the products on the first call.

    Raises
    ------
    CompilerUnavailable
        Where there is no working C compiler.
    """
    (library,) = load_kernels_together(
        [convolution_source(dtype, algorithm)], [CONVOLUTION_LEVEL]
    )
    if not needs_products(algorithm):
        return library
    products = library.products = product_library(dtype)
    names = ("mg_product", "mg_products_begin", "mg_products_end")
    set_products = library.mg_set_products
    set_products.argtypes = [ctypes.c_void_p] * 3
    set_products.restype = None
    set_products(*[function_address(products, name) for name in names])
    return library


def convolution_step(
    node: Node,
    sizes: Mapping[str, int],
    left: int,
    right: int,
    out: int,
    workspace: int,
    bytes_: int,
    threads: int,
) -> tuple[int, list[int]]:
    """Return the step of a convolution or of one of its transposes.

    Parameters
    ----------
    node
        The node that it computes, of float32 or float64.
    sizes
        The sizes of its named dimensions.
    left, right, out, workspace : int
        Addresses of both operands, of the result and of scratch.
    bytes_, threads : int
        Of the scratch, and the threads that it was made for.

    Returns
    -------
    (int, list of int)
        Function and cells: 0-3 the addresses, 4 bytes, 5 threads, 6 batch, 7 groups, 8 channels
        and 9 results of a group, then for three axes each 10 inputs, 13 window, 16 windows,
        19 strides, 22 dilation, 25 padding before the first element, and 28 channels last.

    Raises
    ------
    CompilerUnavailable
        Where there is no working C compiler.
    """
    algorithm = algorithm_of(node)
    library = convolution_library(node.dtype, algorithm)
    family = "winograd" if algorithm in TILES else algorithm
    function = function_address(library, f"mg_{family}_{direction_of(node)}")
    e = Extents(node)
    bound: dict[str, Any] = bind_attributes(
        {
            "counts": (e.batch, e.groups, e.ins, e.outs),
            "inputs": tuple(e.inputs),
            "window": tuple(e.window),
            "windows": tuple(e.windows),
            "low": tuple(e.low),
        },
        sizes,
    )
    cells = [left, right, out, workspace, bytes_, threads, *bound["counts"]]
    for values, missing in (
        (bound["inputs"], 1),
        (bound["window"], 1),
        (bound["windows"], 1),
        (e.strides, 1),
        (e.dilation, 1),
        (bound["low"], 0),
    ):
        cells += [missing] * (3 - len(values)) + list(values)
    cells.append(int(node.attrs["channels_last"]))
    return function, cells
