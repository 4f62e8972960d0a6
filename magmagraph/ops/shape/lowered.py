"""Concatenations as passes write them: pieces are read where they are, without copies of them."""

from __future__ import annotations

from typing import Any

from ...ir import dims
from ...ir.op import INEXACT, Call, Kernel, Kind, Op
from ...ir.types import Extent, Shape, Type

__all__ = ["JOIN_PIECES"]


def _join_type(call: Call, *operands: Type, axis: int, starts: Shape, lengths: Shape) -> Type:
    first = operands[0]
    call.check_axis(axis, first.ndim)
    if not len(operands) == len(starts) == len(lengths):
        raise call.shape_error(f"{len(starts)} pieces of {len(operands)} operands")
    total: Extent = 0
    for operand, start, length in zip(operands, starts, lengths, strict=True):
        if operand.dtype != first.dtype or operand.ndim != first.ndim:
            raise call.shape_error("operands that differ in more than the extent of an axis")
        for place, (left, right) in enumerate(zip(operand.shape, first.shape, strict=True)):
            if place != axis:
                call.unify(left, right, f"extents of axis {place}")
        if not dims.require(operand.shape[axis], ">=", start + length, call.constraints):
            raise call.shape_error(f"a piece of {length} elements from {start} on")
        total = total + length
    return Type(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :]))


def _pieces(
    operands: tuple[Any, ...], axis: int, starts: tuple[int, ...], lengths: tuple[int, ...]
) -> list[Any]:
    before = (slice(None),) * axis
    return [
        operand[(*before, slice(start, start + length))]
        for operand, start, length in zip(operands, starts, lengths, strict=True)
    ]


def _joined(xp: Any, *operands: Any, axis: int, starts: Any, lengths: Any) -> Any:
    return xp.concatenate(_pieces(operands, axis, starts, lengths), axis=axis)


def _joined_into(
    xp: Any, target: Any, *operands: Any, axis: int, starts: Any, lengths: Any
) -> None:
    xp.concatenate(_pieces(operands, axis, starts, lengths), axis=axis, out=target)


JOIN_PIECES = Op(
    name="join_pieces",
    kind=Kind.LOWERED,
    dtypes=INEXACT,
    doc="Pieces of arrays along an axis, one behind the other.",
    rule=_join_type,
    evaluate=_joined,
    kernel=Kernel(into=_joined_into),
    no_gradient="made by passes, after gradients are taken",
    numerics="exact",
)

RECORDS: tuple[Op, ...] = (JOIN_PIECES,)
