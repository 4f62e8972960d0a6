"""Operations that only passes make: products and sums with scale, transposes and an addend.

They stand for one library call each. Their array expressions are plain NumPy, so that a graph can
be evaluated after any pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import is_float
from ..errors import ShapeError
from ..graph import Node
from ..op import Call, Kind, Op
from ..types import Extent, Type

_MADE_BY_PASSES = "made by passes, after gradients are taken"


def _scalars_and_addend(
    call: Call, result: Type, rest: tuple[Type, ...], scaled: bool, accumulate: bool
) -> Type:
    """Check the optional operands ``[alpha][, c, beta]`` of a product whose result is given."""
    wanted = (["alpha"] if scaled else []) + (["c", "beta"] if accumulate else [])
    if len(rest) != len(wanted):
        raise call.shape_error(
            f"{len(rest)} operands follow the factors", need=f"{len(wanted)}: {', '.join(wanted)}"
        )
    for name, type_ in zip(wanted, rest, strict=True):
        expected = result if name == "c" else Type(result.dtype, ())
        if type_ != expected:
            raise call.shape_error(f"{name} is {type_}", need=str(expected))
    return result


def _gemm_type(
    call: Call,
    a: Type,
    b: Type,
    *rest: Type,
    transpose_a: bool = False,
    transpose_b: bool = False,
    scaled: bool = False,
    accumulate: bool = False,
) -> Type:
    if a.dtype != b.dtype:
        raise call.dtype_error(f"operands of {a.dtype.name} and {b.dtype.name}", need="one dtype")
    if a.ndim < 2 or b.ndim < 2:
        raise call.shape_error("an operand has fewer than two axes", need="(..., rows, columns)")
    rows, inner = a.shape[-2:] if not transpose_a else (a.shape[-1], a.shape[-2])
    other, columns = b.shape[-2:] if not transpose_b else (b.shape[-1], b.shape[-2])
    call.unify(inner, other, "the contracted extents")
    batch: tuple[Extent, ...] = ()
    if a.ndim > 2 or b.ndim > 2:
        batch = call.broadcast(a.shape[:-2], b.shape[:-2])
    return _scalars_and_addend(
        call, Type(a.dtype, (*batch, rows, columns)), rest, scaled, accumulate
    )


def _combine(xp: Any, value: Any, rest: tuple[Any, ...], scaled: bool, accumulate: bool) -> Any:
    operands = list(rest)
    if scaled:
        value = operands.pop(0) * value
    if accumulate:
        addend, beta = operands
        value = value + beta * addend
    return value


def _widened(xp: Any, x: Any) -> Any:
    """Return half-precision floats as float32: they are stored narrow and computed wide."""
    return x.astype(np.float32) if is_float(x.dtype) and x.dtype.itemsize < 4 else x


def _gemm(
    xp: Any,
    a: Any,
    b: Any,
    *rest: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    scaled: bool = False,
    accumulate: bool = False,
) -> Any:
    left, right = _widened(xp, a), _widened(xp, b)
    if transpose_a:
        left = xp.swapaxes(left, -1, -2)
    if transpose_b:
        right = xp.swapaxes(right, -1, -2)
    others = tuple(_widened(xp, x) for x in rest)
    return _combine(xp, xp.matmul(left, right), others, scaled, accumulate)


def _gemm_flops(a: Type, b: Type, *rest: Type, transpose_b: bool = False, **flags: bool) -> Extent:
    columns = b.shape[-2] if transpose_b else b.shape[-1]
    batch: Extent = 1
    if b.ndim > a.ndim:  # extents of the larger operand count; equal ones otherwise
        for extent in b.shape[: b.ndim - a.ndim]:
            batch = batch * extent
    return a.size * columns * batch * 2


GEMM = Op(
    name="gemm",
    kind=Kind.LOWERED,
    kernel="gemm",
    doc="alpha * op(a) @ op(b) + beta * c, op being the transpose where asked.",
    rule=_gemm_type,
    evaluate=_gemm,
    flops=_gemm_flops,
    no_gradient=_MADE_BY_PASSES,
    numerics="reassoc",
    precision="allow",
)


def _gemv_sum_type(
    call: Call, x: Type, *rest: Type, axis: int, scaled: bool = False, accumulate: bool = False
) -> Type:
    if x.ndim != 2 or axis not in (0, 1):
        raise ShapeError(f"gemv_sum: operand {x} and axis {axis}; it needs two axes and 0 or 1")
    if not is_float(x.dtype):
        raise call.dtype_error(f"operand of {x.dtype.name}", need="a float dtype")
    return _scalars_and_addend(call, Type(x.dtype, (x.shape[1 - axis],)), rest, scaled, accumulate)


def _gemv_sum(
    xp: Any, x: Any, *rest: Any, axis: int, scaled: bool = False, accumulate: bool = False
) -> Any:
    wide = _widened(xp, x)
    ones = xp.ones(wide.shape[axis], dtype=wide.dtype)
    value = ones @ wide if axis == 0 else wide @ ones
    return _combine(xp, value, tuple(_widened(xp, y) for y in rest), scaled, accumulate)


GEMV_SUM = Op(
    name="gemv_sum",
    kind=Kind.LOWERED,
    kernel="gemv",
    doc="alpha * (a sum over one of two axes, as a product with ones) + beta * c.",
    rule=_gemv_sum_type,
    evaluate=_gemv_sum,
    flops=lambda x, *rest, **flags: x.size * 2,
    no_gradient=_MADE_BY_PASSES,
    numerics="reassoc",
)


def gemm(
    a: Node,
    b: Node,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: Node | None = None,
    addend: Node | None = None,
    beta: Node | None = None,
) -> Node:
    """Return the `GEMM` node with its optional operands in their places.

    Parameters
    ----------
    a, b
        Of shapes (..., m, k) and (..., k, n), each transposed in its last two axes where flagged.
    alpha, beta
        Scalars of the same dtype.
    addend
        Of the result's type; goes with `beta`.
    """
    return _with_operands(
        GEMM, (a, b), alpha, addend, beta, transpose_a=transpose_a, transpose_b=transpose_b
    )


def gemv_sum(
    x: Node,
    axis: int,
    *,
    alpha: Node | None = None,
    addend: Node | None = None,
    beta: Node | None = None,
) -> Node:
    """Return the `GEMV_SUM` node with its optional operands in their places."""
    return _with_operands(GEMV_SUM, (x,), alpha, addend, beta, axis=axis)


def _with_operands(
    op: Op,
    factors: tuple[Node, ...],
    alpha: Node | None,
    addend: Node | None,
    beta: Node | None,
    **attrs: Any,
) -> Node:
    operands = list(factors)
    if alpha is not None:
        operands.append(alpha)
    if addend is not None:
        assert beta is not None
        operands += [addend, beta]
    return op(*operands, **attrs, scaled=alpha is not None, accumulate=addend is not None)


RECORDS = (GEMM, GEMV_SUM)
