"""Kernels that cuBLASLt has and does not propose: proposed ones with other options.

The heuristic names about eight algorithms, whatever it is asked for: of each tile of a result one,
with one cluster, one order of tiles and one way to share a tile between the warps of a block. For
products on tensor cores these options matter by some percent, and which are best depends on what is
done with an element before it is stored. The library says which of the others run.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from .cublaslt import OwnKernel, Product, Shape

__all__ = ["ASKED", "option", "refusals", "runs", "varied", "varies", "with_options"]

ASKED = (32 << 20, 1 << 20)  # bytes of workspace: what there is, and little
_LARGE = (1 << 30, 1 << 39)  # multiplications: less takes no longer than a trial, more too long
_HALVES = ("float16", "bfloat16")
_CLUSTERS = ("SHAPE_1x1x1", "SHAPE_2x1x1", "SHAPE_1x2x1")
_SWIZZLES = (0, 1)  # orders of tiles
_MOST_OPTIONS = 15
_TILES = 2  # so many tiles, the fastest, have their options varied
_SIZES = {"CLUSTER_SHAPE_ID": 2, "INNER_SHAPE_ID": 2}  # bytes of options, if not 4


def refusals(
    product: Product | OwnKernel, *others: type[Exception]
) -> tuple[type[Exception], ...]:
    """Return the library's exceptions: for algorithms that it lacks, and for other errors."""
    library = getattr(product, "library", None)  # a product by a kernel of ours has none
    return others if library is None else (library.cuBLASLtError, *others)


def varies(shape: Shape) -> bool:
    """Return whether kernels are worth a trial that the heuristic does not name."""
    least, most = _LARGE
    return shape.dtype in _HALVES and least <= shape.batch * shape.m * shape.n * shape.k <= most


def varied(product: Product, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return kernels with the tiles of the first algorithms and options that none of them has.

    Parameters
    ----------
    product
        What they compute.
    rows
        Algorithms, a row of bytes each, the fastest first.
    """
    tiles: dict[tuple[int, int], np.ndarray] = {}
    for row in rows:
        if len(tiles) < _TILES and option(product, row, "SPLITK_NUM") <= 1:
            tiles.setdefault((option(product, row, "ID"), option(product, row, "TILE_ID")), row)
    variants = itertools.chain.from_iterable(_siblings(product, row) for row in tiles.values())
    return [row for row in variants if runs(product, row)]


def _siblings(product: Product, row: np.ndarray) -> Iterable[np.ndarray]:
    """Give an algorithm with each cluster, order of tiles and option of its own."""
    clusters = [int(product.library.ClusterShape[name]) for name in _CLUSTERS]
    options = range(1 + _most_options(product, row))
    for cluster, swizzle, own in itertools.product(clusters, _SWIZZLES, options):
        variant = with_options(
            product, row, CLUSTER_SHAPE_ID=cluster, CTA_SWIZZLING=swizzle, CUSTOM_OPTION=own
        )
        if variant is not None:
            yield variant


def with_options(product: Product, row: np.ndarray, **options: int) -> np.ndarray | None:
    """Return an algorithm with other options; None where it has no such options."""
    lt, algorithm = product.library, np.array(row)
    try:
        for name, number in options.items():
            value = ctypes.c_uint32(number)
            lt.matmul_algo_config_set_attribute(
                algorithm.ctypes.data, int(lt.MatmulAlgoConfigAttribute[name]),
                ctypes.addressof(value), _SIZES.get(name, 4),
            )  # fmt: skip
    except refusals(product, KeyError):  # KeyError: a binding that does not know the option
        return None
    return algorithm


def option(product: Product, row: np.ndarray, name: str) -> int:
    """Return an option of an algorithm, 0 where it has none."""
    lt, value = product.library, ctypes.c_uint32(0)
    written = np.zeros(1, np.uint64)
    try:
        lt.matmul_algo_config_get_attribute(
            row.ctypes.data, int(lt.MatmulAlgoConfigAttribute[name]), ctypes.addressof(value),
            _SIZES.get(name, 4), written.ctypes.data,
        )  # fmt: skip
    except refusals(product, KeyError):
        return 0
    return int(value.value)


def _most_options(product: Product, row: np.ndarray) -> int:
    """Return the highest number of an algorithm's own options."""
    lt, value = product.library, ctypes.c_int32(0)
    written = np.zeros(1, np.uint64)
    try:
        lt.matmul_algo_cap_get_attribute(
            row.ctypes.data, int(lt.MatmulAlgoCapAttribute.CUSTOM_OPTION_MAX),
            ctypes.addressof(value), 4, written.ctypes.data,
        )  # fmt: skip
    except refusals(product, AttributeError):  # a binding that does not know the option
        return 0
    return min(int(value.value), _MOST_OPTIONS)


def runs(product: Product, row: np.ndarray) -> bool:
    """Return whether an algorithm computes a product in the workspace that there is."""
    lt = product.library
    b, a, c = product.layouts
    checked = np.zeros(1, lt.matmul_heuristic_result_dtype)
    try:
        lt.matmul_algo_check(
            product.handle, product.description, b, a, c, c, row.ctypes.data, checked.ctypes.data
        )
    except refusals(product):
        return False
    return int(checked["workspace_size"][0]) <= ASKED[0]
