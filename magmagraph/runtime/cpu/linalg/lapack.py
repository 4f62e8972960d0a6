"""Steps of linear algebra that LAPACK computes: the library, the C function, and its cells.

The LAPACK is that of the BLAS of all products (`find_blas`), so that one library with one pool of
threads serves a program; SciPy's is taken only where that one has none.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....ir.fallback import Refused
from ....ir.plan import Value
from ...families.batches import KINDS, starts_of
from ..compiler import Library
from ..memory import address_of
from ..products.blas import CBLAS_64, FORTRAN_32, Blas, capsules, find_blas, scipy_blas
from ..sources import LAPACK_LEVEL, lapack_source
from ..support import function_address, load_kernels_together, support

__all__ = ["lapack_step"]

Call = tuple[int, list[int]]

# The routines in the order of lapack.c, with the names for real and for complex matrices.
_ROUTINES = (
    ("getrf", "getrf"),
    ("getri", "getri"),
    ("potrf", "potrf"),
    ("geqrf", "geqrf"),
    ("ormqr", "unmqr"),
    ("trcon", "trcon"),
    ("orgqr", "ungqr"),
    ("syevd", "heevd"),
    ("gesdd", "gesdd"),
    ("gelsd", "gelsd"),
    ("gemm", "gemm"),
    ("trsm", "trsm"),
    ("trsv", "trsv"),
)
_TYPES = {
    "float32": ("float", "s"),
    "float64": ("double", "d"),
    "complex64": ("float", "c"),
    "complex128": ("double", "z"),
}
# Before and after the name, by the size of integers: NumPy's wheels, other builds of OpenBLAS and
# MKL, Accelerate.
_SPELLINGS = {
    CBLAS_64: (("scipy_", "_64_"), ("", "_64_"), ("", "$NEWLAPACK$ILP64"), ("", "64_")),
    FORTRAN_32: (("scipy_", "_"), ("", "$NEWLAPACK"), ("", "_")),
}


def _names(dtype: np.dtype[Any]) -> list[str]:
    letter = _TYPES[dtype.name][1]
    return [letter + names[dtype.kind == "c"] for names in _ROUTINES]


def _exported(blas: Blas, names: Sequence[str]) -> list[int] | None:
    """Return the addresses of routines that the library of a BLAS exports, or None."""
    size = CBLAS_64 if blas.interface == CBLAS_64 else FORTRAN_32
    for before, after in _SPELLINGS[size]:
        spelled = [before + name + after for name in names]
        if all(hasattr(blas.library, name) for name in spelled):
            return [function_address(blas.library, name) for name in spelled]
    return None


def _scipys(names: Sequence[str]) -> list[int] | None:
    """Return the addresses of SciPy's routines, which it offers to Cython, or None."""
    try:
        from scipy.linalg import cython_blas, cython_lapack
    except ImportError:
        return None
    return capsules((cython_lapack, cython_blas), names)


@functools.cache
def _library(dtype: np.dtype[Any]) -> Library:
    """Return the library of a dtype, joined to LAPACK.

    Raises
    ------
    Refused
        There is no LAPACK that can be called.
    """
    if sys.byteorder != "little":
        raise Refused("LAPACK is called with integers of 64 bits on little-endian machines alone")
    names = _names(dtype)
    blas = find_blas()
    addresses = None if blas is None else _exported(blas, names)
    if addresses is None:
        blas, addresses = scipy_blas(), _scipys(names)
    if blas is None or addresses is None:
        raise Refused("no library with LAPACK's routines is loaded")
    source = lapack_source(_TYPES[dtype.name][0], dtype.kind == "c")
    (library,) = load_kernels_together([source], [LAPACK_LEVEL])
    join = library.mg_set_lapack
    join.argtypes, join.restype = [ctypes.c_int64, *[ctypes.c_void_p] * 3], None
    table = (ctypes.c_void_p * len(addresses))(*addresses)
    get, put = blas.thread_functions()
    join(blas.interface != CBLAS_64, get, put, ctypes.addressof(table))
    return library


@functools.cache
def _function(dtype: np.dtype[Any], name: str) -> int:
    address = function_address(_library(dtype), f"mg_lapack_{name}")
    support().failing.add(address)
    return address


def lapack_step(
    name: str,
    addresses: Sequence[int],
    values: Sequence[Value | None],
    work: tuple[int, int, int],
    flops: int,
    keep: list[Any],
    how: Mapping[str, Any],
) -> Call:
    """Return the function and the cells of a step over batches of matrices.

    Parameters
    ----------
    name
        Of the function in lapack.c, without its beginning.
    addresses, values
        Of the matrices, the right-hand sides, the row exchanges and three results; 0 and None where
        there is none.
    work
        The address of the workspace, its bytes, and those of one thread.
    flops
        The arithmetic of the step.
    keep
        Takes what the cells point at.
    how
        ``kind`` ("matrix", "factors" or "triangle"), ``lower``, ``trans`` ("N", "T" or "C"),
        ``unit``, ``vectors``, ``full`` and ``ratio``, see lapack.c.

    Raises
    ------
    Refused
        The matrices have no elements, or there is no LAPACK.
    """
    matrices, sides, pivots, out = values[:4]
    assert matrices is not None
    assert out is not None
    rows, columns = map(int, matrices.type.shape[-2:])
    broadcast = name in ("systems", "least_squares")
    whole = (out if broadcast else matrices).type.shape[:-2]
    if name == "least_squares" and whole != matrices.type.shape[:-2]:
        raise Refused("a matrix has right-hand sides of several members of a batch", expected=True)
    wanted_columns = 0
    if broadcast or (how["vectors"] and name == "qr"):
        wanted_columns = int(out.type.shape[-1])
    elif name == "qr":
        wanted_columns = int(out.type.shape[-2])
    count = math.prod(map(int, whole))
    if not (rows and columns) and count:
        raise Refused("the matrices have no elements", expected=True)
    operands = (matrices, rows * columns), (sides, rows * wanted_columns), (pivots, columns)
    strides, tables = starts_of(operands, whole)
    keep += [table for table in tables if table is not None]
    cells = [
        support().address("mg_fail"),
        *addresses,
        *work,
        count,
        rows,
        columns,
        wanted_columns,
        KINDS[how["kind"]],
        int(how["lower"]),
        "NTC".index(how["trans"]),
        int(how["unit"]),
        int(how["vectors"]),
        int(how["full"]),
        flops // max(1, count),
        int(np.float64(how["ratio"]).view(np.int64)),
        *strides,
        *(0 if table is None else address_of(table) for table in tables),
    ]
    return _function(matrices.type.dtype, name), cells
