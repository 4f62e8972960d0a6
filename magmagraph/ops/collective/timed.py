"""Sums over ranks that are sent at some calls only: those at which somebody needs them.

A flag, equal on all ranks, says whether this is such a call. Where it is not, nothing travels, and
each rank has what it gave.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...communicator import current
from ...op import INEXACT, Call, Kind, Op
from ...types import Type

__all__ = ["ALLREDUCE_MANY_WHEN", "ALLREDUCE_WHEN"]


def _check_flag(call: Call, flag: Type) -> None:
    if flag.dtype != np.dtype(bool) or flag.shape:
        raise call.dtype_error(f"a flag that is {flag}", need="a bool for the whole call")


def _type(
    call: Call, x: Type, flag: Type, *, op: str, group: tuple[str, ...], size: int
) -> Type:
    _check_flag(call, flag)
    return x


def _into(
    xp: Any, target: Any, x: Any, flag: Any, *, op: str, group: tuple[str, ...], size: int
) -> None:
    if flag:
        current().group(group).allreduce(x, op, target)
    elif target is not x:
        target[...] = x


def _value(
    xp: Any, x: Any, flag: Any, *, op: str, group: tuple[str, ...], size: int
) -> Any:
    target = xp.empty(x.shape, x.dtype)
    _into(xp, target, x, flag, op=op, group=group, size=size)
    return target


ALLREDUCE_WHEN = Op(
    name="allreduce_when",
    kind=Kind.COLLECTIVE,
    doc="The sum of all ranks' values where a flag says so, else this rank's.",
    rule=_type,
    evaluate=_value,
    into=_into,
    no_gradient="it is made behind gradients, by the pass that distributes",
    kernel="collective",
    dtypes=INEXACT,
    numerics="reassoc",
)


def _many_type(
    call: Call, *operands: Type, op: str, group: tuple[str, ...], size: int
) -> tuple[Type, ...]:
    *arrays, flag = operands
    _check_flag(call, flag)
    for array in arrays:
        if array.dtype != arrays[0].dtype:
            raise call.dtype_error("operands of several dtypes", need="one dtype")
    return tuple(arrays)


def _many_into(
    xp: Any, targets: Any, *operands: Any, op: str, group: tuple[str, ...], size: int
) -> None:
    *arrays, flag = operands
    if flag:
        current().group(group).allreduce_many(arrays, op, targets)
        return
    for target, array in zip(targets, arrays, strict=True):
        if target is not array:
            target[...] = array


def _many(
    xp: Any, *operands: Any, op: str, group: tuple[str, ...], size: int
) -> tuple[Any, ...]:
    outs = tuple(xp.empty(array.shape, array.dtype) for array in operands[:-1])
    _many_into(xp, outs, *operands, op=op, group=group, size=size)
    return outs


ALLREDUCE_MANY_WHEN = Op(
    name="allreduce_many_when",
    kind=Kind.COLLECTIVE,
    doc="The sums of all ranks' values of several arrays where a flag says so, in one message; "
    "else this rank's.",
    rule=_many_type,
    evaluate=_many,
    into=_many_into,
    no_gradient="it is made behind gradients, by the pass that distributes",
    kernel="collective",
    dtypes=INEXACT,
    numerics="reassoc",
)

RECORDS = (ALLREDUCE_WHEN, ALLREDUCE_MANY_WHEN)
