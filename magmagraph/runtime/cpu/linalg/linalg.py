"""Steps of linear algebra: the C function that computes one, and its cells.

A batch is computed in vectors of matrices (`small.c`): element e of as many matrices as a vector
has lanes lies in one vector. So matrices of order 4 take no longer than their arithmetic. A step
that meets a singular or indefinite matrix stops its program; the step's array expression then runs,
and raises the error that names the matrix.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.fallback import Refused
from ....ir.plan import Value
from ...families.batches import KINDS, starts_of
from ..compiler import Library
from ..memory import Address, address_of
from ..sources import LINALG_LEVEL, SMALL_ORDER, linalg_source
from ..support import function_address, load_kernels_together, support

__all__ = ["matrices_step", "permutation_step"]

Call = tuple[int, list[int]]

_REALS = {"float32": "float", "float64": "double"}


@functools.lru_cache(maxsize=2)
def _library(dtype: np.dtype[Any]) -> Library:
    (library,) = load_kernels_together([linalg_source(_REALS[dtype.name])], [LINALG_LEVEL])
    return library


@functools.cache
def _function(dtype: np.dtype[Any], name: str) -> int:
    address = function_address(_library(dtype), f"mg_{name}")
    support().failing.add(address)
    return address


def matrices_step(
    name: str,
    addresses: Sequence[int],
    types: Sequence[Value | None],
    keep: list[Any],
    *,
    kind: str = "matrix",
    lower: bool = False,
    transposed: bool = False,
    unit: bool = False,
) -> Call:
    """Return the function and the cells of a step over batches of small matrices.

    Parameters
    ----------
    name
        Of the function: "lu", "systems", "cholesky", "qr", "eigenvalues" or "determinants".
    addresses, types
        Of the matrices, the right-hand sides, the row exchanges, the result, the second result;
        0 and None where there is none.
    keep
        Takes what the cells point at.
    kind
        What the matrices are: "matrix", "factors" or "triangle".
    lower, transposed, unit
        Of a triangle; `transposed` of factors, too.

    Raises
    ------
    Refused
        The matrices are of a larger order than `SMALL_ORDER`.
    """
    matrices, sides, pivots, out, second = types
    assert matrices is not None
    assert out is not None
    rows, order = map(int, matrices.type.shape[-2:])
    if max(rows, order) > SMALL_ORDER:
        raise Refused(
            f"matrices of order {order}; the kernels take {SMALL_ORDER} at most", expected=True
        )
    one_for_each = name in ("determinants", "eigenvalues")
    whole = matrices.type.shape[:-2] if one_for_each else out.type.shape[:-2]
    columns = int(out.type.shape[-1]) if name == "systems" else 0
    if name == "qr":  # those of Q, or the rows of R alone
        columns = int(out.type.shape[-2 if second is None else -1])
    operands = (matrices, rows * order), (sides, order * columns), (pivots, order)
    strides, tables = starts_of(operands, whole)
    keep += [table for table in tables if table is not None]
    count = math.prod(map(int, whole))
    cells = [
        support().address("mg_fail"),
        *addresses,
        count,
        rows,
        order,
        columns,
        KINDS[kind],
        int(lower),
        int(transposed),
        int(unit),
        *strides,
        *(0 if table is None else Address(address_of(table), table) for table in tables),
    ]
    return _function(matrices.type.dtype, name), cells


def permutation_step(
    out: Value, pivots: Value, at_out: int, at_pivots: int, inverse: bool
) -> Call:
    """Return the function and the cells that turn row exchanges into an order of rows."""
    count, rows = int(pivots.type.shape[-1]), int(out.type.shape[-1])
    if count > rows:
        raise Refused("there are more exchanges than rows", expected=True)
    batch = math.prod(map(int, pivots.type.shape[:-1]))
    cells = [support().address("mg_fail"), at_out, at_pivots, batch, count, rows, inverse]
    return _function(np.dtype(np.float32), "permutation"), cells
