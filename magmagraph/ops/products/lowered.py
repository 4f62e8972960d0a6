"""Operations that only passes make: products and sums with scale, transposes and an addend.

They stand for one library call each. Their array expressions are plain NumPy, so that a graph can
be evaluated after any pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import accumulation_dtype, is_float
from ...errors import ShapeError
from ...ir.graph import Node
from ...ir.op import INEXACT, Call, Kernel, Kind, Linalg, Op, Precision
from ...ir.types import Extent, Type
from ..indexing.gathering import check_indices, refuse_empty, settled
from ..rules.matrix_facts import Facts, always
from .rounded import conversion_bytes, mixed_type, operand

_MADE_BY_PASSES = "made by passes, after gradients are taken"


def _scalars_and_addend(
    call: Call, result: Type, rest: tuple[Type, ...], scaled: bool, accumulate: bool
) -> Type:
    """Check the optional operands ``[alpha][, c, beta]`` of a product whose result is given."""
    names = (["alpha"] if scaled else []) + (["c", "beta"] if accumulate else [])
    if len(rest) != len(names):
        raise call.shape_error(
            f"{len(rest)} operands follow the factors", need=f"{len(names)}: {', '.join(names)}"
        )
    for name, type_ in zip(names, rest, strict=True):
        expected = result if name == "c" else Type(result.dtype, ())
        if name != "c" and type_ == Type(accumulation_dtype(result.dtype), ()):
            continue  # 16-bit results are scaled in float32
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
    compute: str = "",
    result: np.dtype | None = None,
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
    result_type = mixed_type(call, Type(a.dtype, (*batch, rows, columns)), compute, result)
    return _scalars_and_addend(call, result_type, rest, scaled, accumulate)


def _combine(xp: Any, value: Any, rest: tuple[Any, ...], scaled: bool, accumulate: bool) -> Any:
    operands = list(rest)
    if scaled:
        value = operands.pop(0) * value
    if accumulate:
        addend, beta = operands
        value = value + beta * addend
    return value


def _gemm(
    xp: Any,
    a: Any,
    b: Any,
    *rest: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    scaled: bool = False,
    accumulate: bool = False,
    compute: str = "",
    result: np.dtype | None = None,
) -> Any:
    left, right = operand(xp, a, compute), operand(xp, b, compute)
    if transpose_a:
        left = xp.swapaxes(left, -1, -2)
    if transpose_b:
        right = xp.swapaxes(right, -1, -2)
    others = tuple(operand(xp, x) for x in rest)
    return _combine(xp, xp.matmul(left, right), others, scaled, accumulate)


def _gemm_into(
    xp: Any,
    target: Any,
    a: Any,
    b: Any,
    *rest: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    scaled: bool = False,
    accumulate: bool = False,
    compute: str = "",
    result: np.dtype | None = None,
    workspace: Any = None,
) -> None:
    """Compute a product into its result's memory, which may hold its addend."""
    factors = operand(xp, a, compute), operand(xp, b, compute)
    narrow = any(x.dtype != target.dtype for x in (*factors, *rest))
    left = xp.swapaxes(factors[0], -1, -2) if transpose_a else factors[0]
    right = xp.swapaxes(factors[1], -1, -2) if transpose_b else factors[1]
    if narrow or any(xp.may_share_memory(target, x) for x in (*factors, *rest)):
        value = xp.matmul(left, right)
    else:
        value = xp.matmul(left, right, out=target)
    if narrow:
        others = tuple(operand(xp, x) for x in rest)
        xp.copyto(target, _combine(xp, value, others, scaled, accumulate), casting="unsafe")
        return
    operands = list(rest)
    if scaled:
        xp.multiply(operands.pop(0), value, out=value)
    if not accumulate:
        if value is not target:
            xp.copyto(target, value)
        return
    addend, beta = operands
    if value is target:
        xp.add(value, addend if beta == 1 else beta * addend, out=target)
    else:
        xp.multiply(beta, addend, out=target)
        xp.add(value, target, out=target)


def _gemm_flops(a: Type, b: Type, *rest: Type, transpose_b: bool = False, **flags: Any) -> Extent:
    columns = b.shape[-2] if transpose_b else b.shape[-1]
    batch: Extent = 1
    if b.ndim > a.ndim:  # extents of the larger operand count; equal ones otherwise
        for extent in b.shape[: b.ndim - a.ndim]:
            batch = batch * extent
    return a.size * columns * batch * 2


def _gemm_scratch(node: Node, threads: int) -> Extent:
    a, b = node.inputs[:2]
    return conversion_bytes(a.type, b.type, node.type, node.attrs.get("compute", ""))


GEMM = Op(
    name="gemm",
    kind=Kind.LOWERED,
    dtypes=INEXACT,
    kernel=Kernel(into=_gemm_into, scratch=_gemm_scratch),
    doc="alpha * op(a) @ op(b) + beta * c, op being the transpose where asked.",
    rule=_gemm_type,
    attributes={"compute": "NotRequired[Literal['', 'tf32']]"},
    evaluate=_gemm,
    flops=_gemm_flops,
    no_gradient=_MADE_BY_PASSES,
    numerics="reassoc",
    precision=Precision("allow", mixed=("compute", "result"), factors=(0, 1)),
)


def _syrk_type(call: Call, x: Type, *, transposed: bool) -> Type:
    if x.ndim < 2:
        raise call.shape_error("an operand has fewer than two axes", need="(..., rows, columns)")
    order = x.shape[-2] if transposed else x.shape[-1]
    return Type(x.dtype, (*x.shape[:-2], order, order))


def _syrk(xp: Any, x: Any, *, transposed: bool) -> Any:
    # NumPy hands a product of one array with its own transpose to BLAS as a rank-k update of one
    # triangle, and mirrors that.
    transpose = xp.swapaxes(x, -1, -2)
    return xp.matmul(x, transpose) if transposed else xp.matmul(transpose, x)


def _syrk_into(xp: Any, target: Any, x: Any, *, transposed: bool) -> None:
    transpose = xp.swapaxes(x, -1, -2)
    if transposed:
        xp.matmul(x, transpose, out=target)
    else:
        xp.matmul(transpose, x, out=target)


SYRK = Op(
    name="syrk",
    kind=Kind.LOWERED,
    dtypes=INEXACT,
    doc="A^T A, or where transposed A A^T: one triangle computed, the other its mirror image.",
    rule=_syrk_type,
    evaluate=_syrk,
    kernel=Kernel(into=_syrk_into),
    linalg=Linalg(facts=always(Facts.HERMITIAN)),
    flops=lambda x, *, transposed: x.size * (x.shape[-2] if transposed else x.shape[-1]),
    no_gradient=_MADE_BY_PASSES,
    numerics="reassoc",
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
    wide = operand(xp, x)
    ones = xp.ones(wide.shape[axis], dtype=wide.dtype)
    value = ones @ wide if axis == 0 else wide @ ones
    return _combine(xp, value, tuple(operand(xp, y) for y in rest), scaled, accumulate)


GEMV_SUM = Op(
    name="gemv_sum",
    kind=Kind.LOWERED,
    dtypes=INEXACT,
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
    **mixed: Any,
) -> Node:
    """Return the `GEMM` node with its optional operands in their places.

    a, b: Of shapes (..., m, k) and (..., k, n), each transposed in its last two axes where flagged.
    alpha, beta: Scalars of the same dtype.
    addend: Of the result's type; goes with `beta`.
    **mixed: ``compute`` and ``result``, see `Precision.mixed`.
    """
    flags = {"transpose_a": transpose_a, "transpose_b": transpose_b, **mixed}
    return _with_operands(GEMM, (a, b), alpha, addend, beta, **flags)


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


# Rows added at positions.


def _scatter_type(call: Call, values: Type, positions: Type, *rest: Type, mode: str) -> Type:
    check_indices(call, positions, mode)
    base = rest[-1]
    expected_type = Type(base.dtype, (*positions.shape, *base.shape[1:]))
    if values != expected_type:
        raise call.shape_error(f"the values are {values}", need=str(expected_type))
    return _scalars_and_addend(call, base, rest[:-1], len(rest) == 2, False)


def _scatter(xp: Any, values: Any, positions: Any, *rest: Any, mode: str) -> Any:
    result = xp.array(rest[-1])
    _scatter_into(xp, result, values, positions, *rest[:-1], result, mode=mode)
    return result


def _scatter_into(
    xp: Any, target: Any, values: Any, positions: Any, *rest: Any, mode: str
) -> None:
    base = rest[-1]
    if not xp.may_share_memory(target, base):
        target[...] = base
    refuse_empty(base, positions, 0, "scatter_rows", "written")
    at = settled(xp, positions, base.shape[0], mode).reshape(-1)
    rows = values.reshape(at.size, *base.shape[1:])
    xp.add.at(target, at, rest[0] * rows if len(rest) == 2 else rows)


SCATTER_ROWS = Op(
    name="scatter_rows",
    kind=Kind.LOWERED,
    dtypes=INEXACT,
    kernel=Kernel(into=_scatter_into),
    doc="Rows, times alpha, added to those of an array at positions along its first axis.",
    rule=_scatter_type,
    attributes={"mode": "Literal['clip', 'wrap']"},
    evaluate=_scatter,
    flops=lambda values, *rest, **flags: values.size * 2,
    no_gradient=_MADE_BY_PASSES,
    numerics="reassoc",
)


def scatter_rows(
    values: Node, positions: Node, base: Node, *, alpha: Node | None = None, mode: str
) -> Node:
    """Return the `SCATTER_ROWS` node with its optional operand in its place."""
    scale = [] if alpha is None else [alpha]
    return SCATTER_ROWS(values, positions, *scale, base, mode=mode)


RECORDS = (GEMM, SYRK, GEMV_SUM, SCATTER_ROWS)
