"""Where the members of broadcast batches start: what kernels on the CPU and the GPU share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...ir.plan import Value
from ...ir.types import Extent

__all__ = ["KINDS", "batch_starts", "starts_of"]

KINDS = {"matrix": 0, "factors": 1, "triangle": 2}
"""What the operand of a step is, by the numbers that kernels have for it."""


def batch_starts(batch: Sequence[Extent], whole: Sequence[Extent], elements: int) -> Any:
    """Return where the members of a broadcast batch start: a stride, or a table of offsets.

    Parameters
    ----------
    batch
        The batch extents of an operand.
    whole
        Those of the result.
    elements
        Of one member.
    """
    extents = tuple(map(int, batch))
    full = tuple(map(int, whole))
    count = math.prod(extents)
    if count == math.prod(full):
        return elements
    if count == 1:
        return 0
    numbers = np.arange(count, dtype=np.int64).reshape(extents) * elements
    return np.ascontiguousarray(np.broadcast_to(numbers, full)).reshape(-1)


def starts_of(
    operands: Iterable[tuple[Value | None, int]], whole: Sequence[Extent]
) -> tuple[list[int], list[np.ndarray | None]]:
    """Return the strides of some operands, and the tables of those that have none.

    Parameters
    ----------
    operands
        Matrices, right-hand sides and row exchanges, in this order, each with the elements of one
        member; None where a step has none.
    whole
        The batch extents of the result.
    """
    strides: list[int] = []
    tables: list[np.ndarray | None] = []
    for place, (value, elements) in enumerate(operands):
        axes = 1 if place == 2 else 2
        starts = 0 if value is None else batch_starts(value.type.shape[:-axes], whole, elements)
        strides.append(starts if isinstance(starts, int) else 0)
        tables.append(None if isinstance(starts, int) else starts)
    return strides, tables
