"""Large 16-bit products by kernels of our own, where these are faster than the library's.

There is one for results that have many tiles, and one for those that have about as many small ones
as there are multiprocessors.

What a kernel reads and writes it is told by tensor maps: an address, extents and the boxes that are
copied, in 128 bytes that the driver makes. They are part of a launch's arguments, by value, so that
a captured graph has its own.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from ....ir.fallback import Refused
from ..compiler import compile_source
from ..launching.calls import driver, driver_function
from . import one_tile_source as one_tile
from .cublaslt import Shape
from .wide_source import NAME, PIECE, SHARED, STEP, THREADS, TILE, WideKernel

__all__ = ["OneTileProduct", "WideProduct", "fits", "is_one_tile", "pays"]

ARCHITECTURE = "90"  # of the devices that have these instructions, and no other has
_OWN = "90a"
_EPILOGUES = ("", "bias", "relu", "gelu", "relu_bias", "gelu_bias")
_LEAST_TERMS = 256
_MAX_SHARED = 8  # CU_FUNC_ATTRIBUTE_...
_LINE = 16  # bytes, whose multiples lines and addresses are
_KINDS = {"float16": 6, "bfloat16": 9}  # CU_TENSOR_MAP_DATA_TYPE_...
_SWIZZLE_128, _PROMOTION_128 = 3, 2
_WORDS = 16  # of 8 bytes, of a tensor map
_MAP_ALIGNMENT = 64
_MOST_KNOWN = 64  # arguments of a product that are kept, by its addresses


def fits(shape: Shape) -> bool:
    """Return whether these kernels compute a product."""
    lines = (
        shape.m if shape.transpose_a else shape.k,
        shape.k if shape.transpose_b else shape.n,
        shape.n,
    )
    return (
        shape.dtype in _KINDS
        and shape.stored == shape.dtype
        and shape.epilogue in _EPILOGUES
        and shape.batch == 1
        and not (shape.accumulate or shape.device_scalars)
        and all(2 * line % _LINE == 0 for line in lines)
    )


def pays(shape: Shape, multiprocessors: int) -> bool:
    """Return whether there is enough of a product that a trial is worth its time."""
    tiles = -(-shape.m // TILE) * -(-shape.n // TILE)
    enough = tiles >= multiprocessors or is_one_tile(shape, multiprocessors)
    return enough and shape.k >= _LEAST_TERMS


def is_one_tile(shape: Shape, multiprocessors: int) -> bool:
    """Return whether most multiprocessors have one small tile of a product, and none has two."""
    tiles = -(-shape.m // one_tile.ROWS) * -(-shape.n // one_tile.COLUMNS)
    return multiprocessors < 2 * tiles <= 2 * multiprocessors


@functools.lru_cache(maxsize=1)
def _encode() -> Any:
    """Return the driver's cuTensorMapEncodeTiled, or None where it has none."""
    return driver_function("cuTensorMapEncodeTiled")


_Kernel = WideKernel | one_tile.OneTileKernel
_functions: dict[tuple[int, _Kernel], tuple[Any, Any]] = {}  # modules live with the process


class WideProduct:
    """One product by a kernel of our own, where multiprocessors have several tiles each.

    Parameters
    ----------
    device, shape
        Where it runs, and what it is: one that `fits`.

    Attributes
    ----------
    chosen
        As `Product` has it: there is one way only.

    Raises
    ------
    Refused
        The driver knows no tensor maps.
    """

    kind: ClassVar[Callable[..., _Kernel]] = WideKernel
    name: ClassVar[str] = NAME
    threads: ClassVar[int] = THREADS
    shared: ClassVar[int] = SHARED
    tile: ClassVar[tuple[int, int]] = (TILE, TILE)

    def __init__(self, device: Any, shape: Shape) -> None:
        if _encode() is None:
            raise Refused("the driver does not support tensor maps")
        self.device, self.shape, self.chosen = device, shape, 0
        self.kernel = self.kind(shape.dtype, shape.transpose_a, shape.transpose_b, shape.epilogue)
        key = device.number, self.kernel
        if key not in _functions:
            module = device.cupy.cuda.function.Module()
            module.load(compile_source(self.kernel.source, _OWN))
            function = module.get_function(self.name)
            driver().funcSetAttribute(function.ptr, _MAX_SHARED, self.shared)
            _functions[key] = module, function
        self._function = _functions[key][1].ptr
        self.tiles = -(-shape.m // self.tile[0]), -(-shape.n // self.tile[1])
        self.grid = self.blocks()
        self._known: dict[tuple[int, ...], np.ndarray] = {}

    def blocks(self) -> tuple[int, int]:
        """Return how many blocks there are: no more than multiprocessors."""
        return min(self.tiles[0] * self.tiles[1], self.device.multiprocessors), 1

    def takes(self, a: int, b: int, out: int, bias: int, alpha: int) -> bool:
        """Return whether it computes this from these addresses; `alpha` is of a host's number."""
        if any(address % _LINE for address in (a, b, out)) or bias % 4:
            return False
        return not alpha or ctypes.c_float.from_address(alpha).value == 1.0

    def launch(
        self,
        a: int,
        b: int,
        c: int,
        out: int,
        alpha: int,
        beta: int,
        workspace: int,
        stream: int,
        bias: int = 0,
    ) -> None:
        """Compute ``out = f(a @ b + bias)``, given addresses; the others are as if not there."""
        key = a, b, out, bias
        if key not in self._known:
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            self._known[key] = self.arguments(*key)
        address = (ctypes.c_void_p * 1)(
            self._known[key].ctypes.data
        )  # read by the launch or capture
        driver().launchKernel(
            self._function, *self.grid, 1, self.threads, 1, 1, self.shared, stream,
            ctypes.addressof(address), 0,
        )  # fmt: skip

    def arguments(self, a: int, b: int, out: int, bias: int) -> np.ndarray:
        """Return the kernel's argument: three tensor maps, the bias and extents."""
        shape = self.shape
        m, n, k, dtype = shape.m, shape.n, shape.k, shape.dtype
        lines_a, lines_b = (STEP, PIECE), (STEP, PIECE)  # of terms; else a whole tile at a time
        words = np.zeros(3 * _WORDS + 3, np.int64)
        if not shape.transpose_a:
            lines_a = (TILE, STEP)
        if shape.transpose_b:
            lines_b = (TILE, STEP)
        for place, address, extents, box in (
            (0, a, (k, m) if shape.transpose_a else (m, k), lines_a),
            (1, b, (n, k) if shape.transpose_b else (k, n), lines_b),
            (2, out, (m, n), (PIECE, PIECE)),
        ):
            words[place * _WORDS : (place + 1) * _WORDS] = tensor_map(address, extents, box, dtype)
        words[3 * _WORDS] = bias
        words[3 * _WORDS + 1 :].view(np.int32)[:] = (*self.tiles, -(-k // STEP), n)
        return words


class OneTileProduct(WideProduct):
    """One product by a kernel of our own, where no multiprocessor has more than one tile."""

    kind = one_tile.OneTileKernel
    name, threads, shared = one_tile.NAME, one_tile.THREADS, one_tile.SHARED
    tile = one_tile.ROWS, one_tile.COLUMNS

    def blocks(self) -> tuple[int, int]:
        """Return how many blocks there are: one for each tile."""
        return self.tiles

    def arguments(self, a: int, b: int, out: int, bias: int) -> np.ndarray:
        """Return the kernel's argument: two tensor maps, the bias, the result and extents."""
        shape = self.shape
        m, n, k, dtype = shape.m, shape.n, shape.k, shape.dtype
        box = PIECE, one_tile.STEP  # as many rows or columns as terms: turned, it is the same
        words = np.zeros(2 * _WORDS + 4, np.int64)
        for place, address, extents in (
            (0, a, (k, m) if shape.transpose_a else (m, k)),
            (1, b, (n, k) if shape.transpose_b else (k, n)),
        ):
            words[place * _WORDS : (place + 1) * _WORDS] = tensor_map(address, extents, box, dtype)
        words[2 * _WORDS :][:2] = bias, out
        words[2 * _WORDS + 2 :].view(np.int32)[:3] = -(-k // one_tile.STEP), m, n
        return words


def tensor_map(address: int, extents: Sequence[int], box: Sequence[int], dtype: str) -> np.ndarray:
    """Return what tells a kernel of a matrix, of which boxes are copied.

    Parameters
    ----------
    address
        Of the matrix.
    extents, box
        Rows and columns, of the matrix and of what is copied at a time: lines of 128 bytes.
    dtype
        "float16" or "bfloat16".

    Raises
    ------
    RuntimeError
        The driver refuses it.
    """
    storage = np.zeros(2 * _WORDS, np.int64)
    start = -storage.ctypes.data % _MAP_ALIGNMENT // storage.itemsize
    descriptor = storage[start : start + _WORDS]
    rows, columns = extents
    code = _encode()(
        ctypes.c_void_p(descriptor.ctypes.data), ctypes.c_int(_KINDS[dtype]), ctypes.c_uint32(2),
        ctypes.c_void_p(address), (ctypes.c_uint64 * 2)(columns, rows),
        (ctypes.c_uint64 * 1)(2 * columns), (ctypes.c_uint32 * 2)(box[1], box[0]),
        (ctypes.c_uint32 * 2)(1, 1), ctypes.c_int(0), ctypes.c_int(_SWIZZLE_128),
        ctypes.c_int(_PROMOTION_128), ctypes.c_int(0),
    )  # fmt: skip
    if code:
        raise RuntimeError(f"the driver refuses a tensor map, error {code}")
    return descriptor
