"""The order of rows by all their elements, the first one first."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.op import Call, Kind, Op
from ...ir.types import Type
from .sorting import sortable

__all__ = ["ROW_ORDER"]

_INT64 = np.dtype(np.int64)


def _order_type(call: Call, x: Type) -> Type:
    if len(x.shape) != 2:
        raise call.shape_error(f"an operand of {len(x.shape)} axes", need="rows: two axes")
    return Type(_INT64, x.shape[:1])


def _ordered(xp: Any, x: Any) -> Any:
    if not x.shape[1]:
        return xp.arange(x.shape[0])
    return xp.lexsort(xp.ascontiguousarray(sortable(x).T[::-1]))


ROW_ORDER = Op(
    name="row_order",
    kind=Kind.INDEX,
    doc="The positions that sort rows, stably, by their first elements, then by the second ones.",
    rule=_order_type,
    evaluate=_ordered,
    no_gradient="integer valued",
)

RECORDS = (ROW_ORDER,)
