"""Collectives that some calls need and others do not: at those, nothing travels.

A flag, equal on all ranks, says whether this is such a call. Where it is not, each rank has what it
gave, or nothing of meaning.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.op import INEXACT, Call, Kernel, Kind, Op
from ...ir.ranks import current
from ...ir.types import Type
from .arrays import GROUP, REDUCED, TIMED, Axis, summed
from .rows import ALLGATHER, REDUCE_SCATTER

__all__ = ["ALLGATHER_WHEN", "ALLREDUCE_MANY_WHEN", "ALLREDUCE_WHEN", "REDUCE_SCATTER_WHEN"]

_MADE = "it is made behind gradients, by the pass that distributes"


def _check_flag(call: Call, flag: Type) -> None:
    if flag.dtype != np.dtype(bool) or flag.shape:
        raise call.dtype_error(f"a flag that is {flag}", need="a bool for the whole call")


def _type(call: Call, x: Type, flag: Type, **attrs: Any) -> Type:
    _check_flag(call, flag)
    return x


def _into(
    xp: Any,
    target: Any,
    x: Any,
    flag: Any,
    *,
    op: str,
    group: tuple[str, ...],
    size: int,
    algorithm: str,
    axes: tuple[Axis, ...],
) -> None:
    if flag and algorithm != "allreduce":
        summed([x], [target], algorithm, axes, xp.empty)
    elif flag:
        current().group(group).allreduce(x, op, target)
    elif target is not x:
        target[...] = x


def _value(xp: Any, x: Any, flag: Any, **attrs: Any) -> Any:
    target = xp.empty(x.shape, x.dtype)
    _into(xp, target, x, flag, **attrs)
    return target


ALLREDUCE_WHEN = Op(
    name="allreduce_when",
    kind=Kind.COLLECTIVE,
    doc="The sum of all ranks' values where a flag says so, else this rank's.",
    rule=_type,
    attributes=TIMED,
    evaluate=_value,
    kernel=Kernel(into=_into),
    no_gradient=_MADE,
    dtypes=INEXACT,
    numerics="reassoc",
)


def _many_type(call: Call, *operands: Type, **attrs: Any) -> tuple[Type, ...]:
    *arrays, flag = operands
    _check_flag(call, flag)
    for array in arrays:
        if array.dtype != arrays[0].dtype:
            raise call.dtype_error("operands of several dtypes", need="one dtype")
    return tuple(arrays)


def _many_into(
    xp: Any,
    targets: Any,
    *operands: Any,
    op: str,
    group: tuple[str, ...],
    size: int,
    algorithm: str,
    axes: tuple[Axis, ...],
) -> None:
    *arrays, flag = operands
    if flag and algorithm != "allreduce":
        summed(arrays, targets, algorithm, axes, xp.empty)
        return
    if flag:
        current().group(group).allreduce_many(arrays, op, targets)
        return
    for target, array in zip(targets, arrays, strict=True):
        if target is not array:
            target[...] = array


def _many(xp: Any, *operands: Any, **attrs: Any) -> tuple[Any, ...]:
    outs = tuple(xp.empty(array.shape, array.dtype) for array in operands[:-1])
    _many_into(xp, outs, *operands, **attrs)
    return outs


ALLREDUCE_MANY_WHEN = Op(
    name="allreduce_many_when",
    kind=Kind.COLLECTIVE,
    doc="The sums of all ranks' values of several arrays where a flag says so, in one message; "
    "else this rank's.",
    rule=_many_type,
    attributes=TIMED,
    evaluate=_many,
    kernel=Kernel(into=_many_into),
    no_gradient=_MADE,
    dtypes=INEXACT,
    numerics="reassoc",
)


# ---- Of optimizers in parts: what other calls get has no meaning, and is zero


def _part_type(call: Call, x: Type, flag: Type, **attrs: Any) -> Any:
    _check_flag(call, flag)
    return REDUCE_SCATTER.rule(call, x, **attrs)


def _part_into(
    xp: Any, target: Any, x: Any, flag: Any, *, op: str, group: tuple[str, ...], size: int
) -> None:
    if flag:
        current().group(group).reduce_scatter(x, op, target)
    else:
        target[...] = 0


def _part(xp: Any, x: Any, flag: Any, **attrs: Any) -> Any:
    target = xp.empty(x.shape[1:], x.dtype)
    _part_into(xp, target, x, flag, **attrs)
    return target


REDUCE_SCATTER_WHEN = Op(
    name="reduce_scatter_when",
    kind=Kind.COLLECTIVE,
    doc="This rank's row of the sum of all ranks' values where a flag says so, else zero.",
    rule=_part_type,
    attributes=REDUCED,
    evaluate=_part,
    kernel=Kernel(into=_part_into),
    no_gradient=_MADE,
    dtypes=INEXACT,
    numerics="reassoc",
)


def _whole_type(call: Call, x: Type, flag: Type, **attrs: Any) -> Any:
    _check_flag(call, flag)
    return ALLGATHER.rule(call, x, **attrs)


def _whole_into(
    xp: Any, target: Any, x: Any, flag: Any, *, group: tuple[str, ...], size: int
) -> None:
    if flag:
        current().group(group).allgather(x, target)
    else:
        target[...] = 0


def _whole(xp: Any, x: Any, flag: Any, *, group: tuple[str, ...], size: int) -> Any:
    target = xp.empty((size, *x.shape), x.dtype)
    _whole_into(xp, target, x, flag, group=group, size=size)
    return target


ALLGATHER_WHEN = Op(
    name="allgather_when",
    kind=Kind.COLLECTIVE,
    doc="The values of all ranks, one row each, where a flag says so, else zero.",
    rule=_whole_type,
    attributes=GROUP,
    evaluate=_whole,
    kernel=Kernel(into=_whole_into),
    no_gradient=_MADE,
    dtypes=INEXACT,
    numerics="exact",
)

RECORDS = (ALLREDUCE_WHEN, ALLREDUCE_MANY_WHEN, REDUCE_SCATTER_WHEN, ALLGATHER_WHEN)
