"""Matrix products as steps of a :class:`~magmagraph.runtime.cpu.support.Program`.

Each function checks sizes once, when a plan is bound, and gives the address and the cells of a
step. A scalar is the address of one element of the product's own dtype, since it may be a
variable; 0 stands for one. As in BLAS, where beta is zero C is not read, so that NaN in it does
not spread.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from ....errors import DTypeError, PlanError, message
from .. import sources
from ..compiler import Library
from ..sources import BLAS_LEVEL, PRODUCT_LEVEL
from ..support import function_address, load_kernels_together, support
from .blas import PLAIN, find_blas

__all__ = [
    "BLAS_LEVEL",
    "PRODUCT_LEVEL",
    "batched_gemm_step",
    "copy_step",
    "gemm_step",
    "gemv_step",
    "product_source",
    "symmetric_step",
    "take_step",
    "tiled_source",
    "zero_step",
]

Step = tuple[int, list[int]]
# C type, and the letter of BLAS.
_TYPES = {np.dtype(np.float32): ("float", "s"), np.dtype(np.float64): ("double", "d")}


def product_source(dtype: Any) -> str:
    """Return the C source of the products of a dtype through BLAS.

    A caller that compiles kernels of its own can hand it to
    :func:`~magmagraph.runtime.cpu.support.load_kernels_together` with them, at the level
    `BLAS_LEVEL`, so that all are compiled at the same time. Else it is compiled when a step is
    first asked for.

    Raises
    ------
    DTypeError
        For another dtype than float32 and float64.
    """
    return sources.blas_source(_type(dtype)[0])


def tiled_source(dtype: Any) -> str:
    """Return the C source of the products of a dtype by tiles, for the level `PRODUCT_LEVEL`."""
    return sources.tiled_source(_type(dtype)[0])


def _type(dtype: Any) -> tuple[str, str]:
    type_name = _TYPES.get(np.dtype(dtype))
    if type_name is None:
        raise DTypeError(
            message(
                f"there is no product of {np.dtype(dtype)} in BLAS",
                need="float32 or float64",
                hint="cast the operands",
            )
        )
    return type_name


@functools.lru_cache(maxsize=4)
def product_library(dtype: np.dtype[Any]) -> Library:
    """Return the library of a dtype's products, compiled and joined to BLAS on the first call."""
    (library,) = load_kernels_together([product_source(dtype)], [BLAS_LEVEL])
    join_blas(library, _type(dtype)[1])
    return library


@functools.lru_cache(maxsize=4)
def tiled_library(dtype: np.dtype[Any]) -> Library:
    """Return the library of a dtype's products by tiles, compiled on the first call."""
    (library,) = load_kernels_together([tiled_source(dtype)], [PRODUCT_LEVEL])
    return library


def join_blas(library: Library, letter: str) -> None:
    """Tell a library of products where BLAS is; the letter is that of its dtype there."""
    library.blas = letter
    set_blas = library.mg_set_blas
    set_blas.argtypes = [ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 4]
    set_blas.restype = None
    blas = find_blas()
    if blas is None:
        set_blas(PLAIN, 1, None, None, None, None)
    else:
        # OpenBLAS uses one thread for products below a size of its own.
        small = blas.control is not None
        addresses = blas.addresses
        gemm, gemv = addresses[letter + "gemm"], addresses[letter + "gemv"]
        set_blas(blas.interface, small, gemm, gemv, *blas.thread_functions())


def _function(name: str, dtype: Any) -> int:
    library = tiled_library if name.endswith("_tiles") else product_library
    return function_address(library(np.dtype(dtype)), name)


def _check_rows(what: str, row: int, least: int) -> None:
    if row < max(1, least):
        raise PlanError(
            message(
                f"{what} has rows of {least} elements, {row} elements apart",
                need=f"a distance of at least {max(1, least)}: rows may not overlap",
            )
        )


def _product_cells(
    out: int, a: int, b: int, m: int, n: int, k: int, *, c: int, alpha: int, beta: int,
    transpose_a: bool, transpose_b: bool, lda: int | None, ldb: int | None,
    ld_out: int | None, ldc: int | None,
) -> list[int]:  # fmt: skip
    columns_a, columns_b = (m if transpose_a else k), (k if transpose_b else n)
    rows = [
        ("A", columns_a, lda), ("B", columns_b, ldb), ("the result", n, ld_out), ("C", n, ldc)
    ]  # fmt: skip
    distances = []
    for what, columns, row_distance in rows:
        distance = max(1, columns) if row_distance is None else row_distance
        _check_rows(what, distance, columns)
        distances.append(distance)
    if min(m, n, k) < 0:
        raise PlanError(message(f"a product of sizes m={m}, n={n}, k={k}", need="0 or more"))
    return [out, a, b, c, alpha, beta, int(transpose_a), int(transpose_b), m, n, k, *distances]


def gemm_step(
    dtype: Any, out: int, a: int, b: int, m: int, n: int, k: int, *, c: int = 0, alpha: int = 0,
    beta: int = 0, transpose_a: bool = False, transpose_b: bool = False, lda: int | None = None,
    ldb: int | None = None, ld_out: int | None = None, ldc: int | None = None, tiles: bool = False,
) -> Step:  # fmt: skip
    """Return the step ``out = alpha * op(A) @ op(B) + beta * C``.

    Parameters
    ----------
    dtype
        float32 or float64, of everything.
    out, a, b : int
        Addresses of the result (m, n) and of A and B, row-major. `out` may be `c`, and overlaps
        nothing else.
    m, n, k : int
        ``op(A)`` is (m, k), ``op(B)`` is (k, n). Zero is fine.
    c : int
        Address of C (m, n), or 0: no C.
    alpha, beta : int
        Addresses of one element each, or 0 for the value 1.
    transpose_a, transpose_b : bool
        A lies in memory as (k, m), B as (n, k).
    lda, ldb, ld_out, ldc : int, optional
        Elements from a row to the next; packed unless given.
    tiles : bool
        By the generated tiles instead of BLAS. Their sums are the same for any number of threads.

    Returns
    -------
    (int, list of int)
        Function and cells: 0 out, 1 A, 2 B, 3 C, 4 alpha, 5 beta, 6-7 transposes, 8 m, 9 n,
        10 k, 11-14 the distances of rows.

    Raises
    ------
    DTypeError, PlanError
        For another dtype; for a negative size or overlapping rows.
    CompilerUnavailable
        Where there is no working C compiler.

    Examples
    --------
    >>> from ..support import Program, address_of
    >>> a, out = np.eye(2), np.empty((2, 2))
    >>> step = gemm_step("float64", address_of(out), address_of(a), address_of(a), 2, 2, 2)
    >>> Program([step], keep=(a, out)).run()
    1
    >>> out
    array([[1., 0.],
           [0., 1.]])
    """
    cells = _product_cells(
        out, a, b, m, n, k, c=c, alpha=alpha, beta=beta, transpose_a=transpose_a,
        transpose_b=transpose_b, lda=lda, ldb=ldb, ld_out=ld_out, ldc=ldc,
    )  # fmt: skip
    # Without an inner extent there is nothing to tile.
    return _function("mg_gemm_tiles" if tiles and k else "mg_gemm", dtype), cells


def symmetric_step(
    dtype: Any, out: int, a: int, b: int, n: int, k: int, *, transposed: bool
) -> Step:
    """Return the step ``out = A.T @ B``, or where transposed ``A @ B.T``, which is symmetric.

    Only what is below the diagonal is computed, by panels of columns; the rest is its mirror image.
    A and B may be one matrix.

    Parameters
    ----------
    dtype
        float32 or float64, of everything.
    out, a, b : int
        Addresses of the result (n, n), and of A and B, both (k, n), or where transposed (n, k).
    n, k : int
        Sizes.
    transposed : bool
        Rows are multiplied with rows instead of columns with columns.

    Returns
    -------
    (int, list of int)
        Function and cells, those of `gemm_step`.
    """
    cells = _product_cells(
        out, a, b, n, n, k, c=0, alpha=0, beta=0, transpose_a=not transposed,
        transpose_b=transposed, lda=None, ldb=None, ld_out=None, ldc=None,
    )  # fmt: skip
    return _function("mg_symmetric", dtype), cells


def batched_gemm_step(
    dtype: Any, out: int, a: int, b: int, m: int, n: int, k: int, count: int, *,
    stride_out: int, stride_a: int, stride_b: int, stride_c: int = 0, c: int = 0, alpha: int = 0,
    beta: int = 0, transpose_a: bool = False, transpose_b: bool = False, lda: int | None = None,
    ldb: int | None = None, ld_out: int | None = None, ldc: int | None = None, tiles: bool = False,
) -> Step:  # fmt: skip
    """Return `count` products as one step; see :func:`gemm_step`.

    Parameters
    ----------
    count : int
        Number of products.
    stride_out, stride_a, stride_b, stride_c : int
        Elements from a matrix to the next of its kind; 0 for A, B and C where all products share
        one. Cells 15-19 are the count and these.
    """
    cells = _product_cells(
        out, a, b, m, n, k, c=c, alpha=alpha, beta=beta, transpose_a=transpose_a,
        transpose_b=transpose_b, lda=lda, ldb=ldb, ld_out=ld_out, ldc=ldc,
    )  # fmt: skip
    if count > 1 and m * n > 0 and stride_out < n:
        raise PlanError(
            message(
                f"results of shape ({m}, {n}) lie {stride_out} elements apart",
                need="results that do not overlap",
            )
        )
    cells += [count, stride_out, stride_a, stride_b, stride_c]
    return _function("mg_gemm_batch_tiles" if tiles and k else "mg_gemm_batch", dtype), cells


def gemv_step(
    dtype: Any, out: int, a: int, x: int, m: int, n: int, *, y: int = 0, alpha: int = 0,
    beta: int = 0, transpose: bool = False, lda: int | None = None, stride_out: int = 1,
    stride_x: int = 1, stride_y: int = 1,
) -> Step:  # fmt: skip
    """Return the step ``out = alpha * op(A) @ x + beta * y``.

    Parameters
    ----------
    dtype
        float32 or float64, of everything.
    out, a, x : int
        Addresses of the result, of A (m, n) as it lies in memory, row-major, and of x.
    m, n : int
        Sizes of A, before `transpose`.
    y : int
        Address of y, or 0; `out` may be `y`, and overlaps nothing else.
    alpha, beta : int
        Addresses of one element each, or 0 for the value 1.
    transpose : bool
        ``op(A)`` is the transpose.
    lda, stride_out, stride_x, stride_y : int
        Elements from a row of A, or an element of a vector, to the next; at least 1.

    Returns
    -------
    (int, list of int)
        Function and cells: 0 out, 1 A, 2 x, 3 y, 4 alpha, 5 beta, 6 transpose, 7 m, 8 n, 9 lda,
        10-12 the distances of elements.
    """
    row = max(1, n) if lda is None else lda
    _check_rows("A", row, n)
    for what, stride in (("the result", stride_out), ("x", stride_x), ("y", stride_y)):
        _check_rows(what, stride, 1)
    cells = [out, a, x, y, alpha, beta, int(transpose), m, n, row, stride_out, stride_x, stride_y]
    return _function("mg_gemv", dtype), cells


def take_step(
    out: int, source: int, positions: int, parts: int, rows: int, count: int, size: int,
    *, wrap: bool = False, wide: bool = True,
) -> Step:  # fmt: skip
    """Return the step that copies rows at positions, the same ones of each of several parts.

    Parameters
    ----------
    out, source, positions : int
        Addresses of the result (parts, count, size), of the array (parts, rows, size), in bytes,
        and of the positions.
    parts, rows, count, size : int
        Sizes; there have to be rows where any are copied.
    wrap : bool
        Positions are taken modulo `rows`; else those outside become the nearest inside.
    wide : bool
        Positions have 64 bits, else 32.

    Returns
    -------
    (int, list of int)
        Function and cells: 0 out, 1 source, 2 positions, 3-6 sizes, 7-8 flags.
    """
    cells = [out, source, positions, parts, rows, count, size, int(wrap), int(wide)]
    return support().address("mg_take"), cells


def copy_step(out: int, source: int, size: int) -> Step:
    """Return the step that copies `size` bytes; cells: 0 out, 1 source, 2 bytes."""
    return support().address("mg_copy"), [out, source, size]


def zero_step(out: int, size: int) -> Step:
    """Return the step that sets `size` bytes to zero; cells: 0 out, 1 bytes."""
    return support().address("mg_zero"), [out, size]
