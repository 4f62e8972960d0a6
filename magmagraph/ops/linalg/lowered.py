"""What passes make of systems, inverses and determinants whose matrix is factored already.

Each takes what `lu_factor` gives, ``P A = L U`` packed, and the exchanges of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir import dims
from ...ir.graph import Node
from ...ir.op import LAPACK, Call, Kind, Op, Precision
from ...ir.types import Extent, Type
from ..shape.arrange import swapaxes
from .parts import SINGULAR, check_exchanges, check_pivots, failed, lapack, squares
from .triangular import system_type

_MADE_BY_PASSES = "made by passes, after gradients are taken"


def _check_factors(call: Call, packed: Type, pivots: Type) -> None:
    """Refuse factors that are not those of square matrices."""
    batch, order = squares(call, packed)
    check_pivots(call, pivots)
    if pivots.ndim != packed.ndim - 1:
        raise call.shape_error(f"pivots of {pivots.ndim} axes for factors of {packed.ndim}")
    for left, right in zip((*batch, order), pivots.shape, strict=True):
        call.unify(left, right, "extents of factors and pivots")


def _check_regular(name: str, packed: Any, pivots: Any) -> None:
    """Raise where a pivot is zero, with the place of the matrix in its batch, or names no row."""
    check_exchanges(name, pivots, packed.shape[-1])
    zero = (np.diagonal(packed, axis1=-2, axis2=-1) == 0).any(axis=-1)
    if zero.any():
        index = tuple(int(i) for i in np.argwhere(zero)[0])
        raise failed(name, *SINGULAR, packed, index)


def _solve_type(call: Call, packed: Type, pivots: Type, b: Type, *, transposed: bool) -> Type:
    _check_factors(call, packed, pivots)
    return system_type(call, packed, b)


def _solve(xp: Any, packed: Any, pivots: Any, b: Any, *, transposed: bool) -> Any:
    _check_regular("solve", packed, pivots)
    if packed.ndim == b.ndim == 2 and b.size:
        return _solver(xp, packed)(packed, pivots, b, int(transposed))
    batch = np.broadcast_shapes(packed.shape[:-2], b.shape[:-2])
    result = xp.empty((*batch, *b.shape[-2:]), packed.dtype)
    if not result.size:
        return result
    solve = _solver(xp, packed)
    factors = xp.broadcast_to(packed, (*batch, *packed.shape[-2:]))
    exchanges = xp.broadcast_to(pivots, (*batch, pivots.shape[-1]))
    sides = xp.broadcast_to(b, result.shape)
    for place in np.ndindex(batch):
        result[place] = solve(factors[place], exchanges[place], sides[place], int(transposed))
    return result


def _solver(xp: Any, packed: Any) -> Callable[..., Any]:
    """Return what solves one system with its factors."""
    if xp is not np:
        return lambda factors, exchanges, side, trans: xp.linalg.lu_solve(
            (xp.ascontiguousarray(factors), xp.ascontiguousarray(exchanges)),
            side, trans, check_finite=False,
        )
    solve = lapack("getrs", packed.dtype)
    return lambda factors, exchanges, side, trans: solve(factors, exchanges, side, trans=trans)[0]


def _solve_flops(packed: Type, pivots: Type, b: Type, **attrs: Any) -> Extent:
    batch = dims.size(dims.broadcast([packed.shape[:-2], b.shape[:-2]], []))
    return 2 * batch * packed.shape[-1] * packed.shape[-1] * b.shape[-1]


FACTORED_SOLVE = Op(
    name="factored_solve",
    kind=Kind.LINALG,
    dtypes=LAPACK,
    doc="Solutions of A x = b, or of its transpose, with the factors of A.",
    rule=_solve_type,
    evaluate=_solve,
    no_gradient=_MADE_BY_PASSES,
    numerics="reassoc",
    flops=_solve_flops,
    precision=Precision("keep"),
)


def _inv_type(call: Call, packed: Type, pivots: Type) -> Type:
    _check_factors(call, packed, pivots)
    return packed


def _inv(xp: Any, packed: Any, pivots: Any) -> Any:
    _check_regular("inv", packed, pivots)
    result = xp.empty(packed.shape, packed.dtype)
    if not result.size:
        return result
    if xp is not np:
        solve, unit = _solver(xp, packed), xp.eye(packed.shape[-1], dtype=packed.dtype)
        for place in np.ndindex(packed.shape[:-2]):
            result[place] = solve(packed[place], pivots[place], unit, 0)
        return result
    invert, length = lapack("getri", packed.dtype), lapack("getri_lwork", packed.dtype)
    work = max(1, int(length(packed.shape[-1])[0].real))
    for place in np.ndindex(packed.shape[:-2]):
        result[place] = invert(packed[place], pivots[place], lwork=work)[0]
    return result


FACTORED_INV = Op(
    name="factored_inv",
    kind=Kind.LINALG,
    dtypes=LAPACK,
    doc="The inverse of A with its factors.",
    rule=_inv_type,
    evaluate=_inv,
    no_gradient=_MADE_BY_PASSES,
    numerics="reassoc",
    flops=lambda packed, pivots: dims.floor_div(4 * packed.size * packed.shape[-1], 3),
    precision=Precision("keep"),
)


def _parity(xp: Any, pivots: Any) -> Any:
    """Return 1 or -1 for an even or an odd number of exchanged rows."""
    exchanged = (pivots != xp.arange(pivots.shape[-1])).sum(axis=-1)
    return 1 - 2 * (exchanged % 2)


def _slogdet_type(call: Call, packed: Type, pivots: Type) -> tuple[Type, Type]:
    _check_factors(call, packed, pivots)
    real = np.dtype(packed.dtype.type(0).real.dtype)
    return Type(packed.dtype, packed.shape[:-2]), Type(real, packed.shape[:-2])


def _slogdet(xp: Any, packed: Any, pivots: Any) -> tuple[Any, Any]:
    diagonal = np.diagonal(packed, axis1=-2, axis2=-1)
    size = np.abs(diagonal)
    phases = np.where(size == 0, 0, diagonal / np.where(size == 0, 1, size))
    return phases.prod(axis=-1) * _parity(xp, pivots), np.log(size).sum(axis=-1)


FACTORED_SLOGDET = Op(
    name="factored_slogdet",
    kind=Kind.LINALG,
    dtypes=LAPACK,
    doc="The sign of a determinant and the logarithm of its size, with the factors of A.",
    rule=_slogdet_type,
    evaluate=_slogdet,
    no_gradient=_MADE_BY_PASSES,
    numerics="reassoc",
    flops=lambda packed, pivots: packed.shape[-1] * dims.size(packed.shape[:-2]) * 2,
    precision=Precision("keep"),
)


def _det_type(call: Call, packed: Type, pivots: Type) -> Type:
    _check_factors(call, packed, pivots)
    return Type(packed.dtype, packed.shape[:-2])


FACTORED_DET = Op(
    name="factored_det",
    kind=Kind.LINALG,
    dtypes=LAPACK,
    doc="The determinant of A with its factors.",
    rule=_det_type,
    evaluate=lambda xp, packed, pivots: (
        np.diagonal(packed, axis1=-2, axis2=-1).prod(axis=-1) * _parity(xp, pivots)
    ),
    no_gradient=_MADE_BY_PASSES,
    numerics="reassoc",
    flops=lambda packed, pivots: packed.shape[-1] * dims.size(packed.shape[:-2]),
    precision=Precision("keep"),
)


# How the records that can use factors use them: `Linalg.factored`.


def factored_solve(node: Node, packed: Node, pivots: Node, transposed: bool) -> Node:
    """Return a solution by factors."""
    return FACTORED_SOLVE(packed, pivots, node.inputs[1], transposed=transposed)


def factored_inv(node: Node, packed: Node, pivots: Node, transposed: bool) -> Node:
    """Return an inverse by factors: that of a transpose is the transposed one."""
    inverse = FACTORED_INV(packed, pivots)
    return swapaxes(inverse, -1, -2) if transposed else inverse


def factored_det(node: Node, packed: Node, pivots: Node, transposed: bool) -> Node:
    """Return a determinant by factors: a transpose has the same."""
    return FACTORED_DET(packed, pivots)


def factored_slogdet(node: Node, packed: Node, pivots: Node, transposed: bool) -> Node:
    """Return a determinant's sign and logarithm by factors."""
    return FACTORED_SLOGDET(packed, pivots)


RECORDS = (FACTORED_SOLVE, FACTORED_INV, FACTORED_SLOGDET, FACTORED_DET)
