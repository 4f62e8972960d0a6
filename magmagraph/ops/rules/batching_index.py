"""How gathering and scattering along an axis are mapped over another one.

Where the indices are mapped too, the rows of the mapped axis are laid one behind the other, and
each row's indices are moved to its own part: one gather or scatter does the work of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.graph import Node
from ...ir.types import Extent
from ..convert import cast
from ..elementwise.arithmetic import add, multiply, remainder, subtract
from ..elementwise.comparison import less, maximum, minimum, where
from ..indexing.iota import IOTA
from ..leaf import extent as extent_node
from ..shape.arrange import moveaxis, reshape
from .batching import repeated, to_front

INT64 = np.dtype(np.int64)


def _rows_apart(indices: Node, extent: Extent, mode: str, rows: Extent) -> Node:
    """Return indices of shape ``(rows, ...)`` as positions in rows that follow one another."""
    at = cast(indices, INT64)
    size = extent_node(extent)
    if mode == "wrap":
        at = remainder(at, size)
    else:
        at = maximum(minimum(where(less(at, 0), add(at, size), at), subtract(size, 1)), 0)
    line = (rows, *(1,) * (indices.ndim - 1))
    return add(at, multiply(IOTA(shape=line, axis=0, dtype=INT64), size))


def map_gather(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    """Map ``(x, indices)`` with the attributes ``axis`` and ``mode``."""
    x, indices = operands
    axis, mode = node.attrs["axis"], node.attrs["mode"]
    if not batched[1]:
        return node.op(x, indices, axis=axis + 1, mode=mode)
    if not batched[0]:
        return to_front(node.op(x, indices, axis=axis, mode=mode), axis)
    rows, extent = x.shape[0], x.shape[axis + 1]
    first = moveaxis(x, axis + 1, 1)
    flat = reshape(first, (rows * extent, *first.shape[2:]))
    rows_of = node.op(flat, _rows_apart(indices, extent, mode, rows), axis=0, mode="clip")
    # Axes: rows, those of the indices, those before the gathered one, those behind it.
    before = [indices.ndim + i for i in range(axis)]
    return moveaxis(rows_of, before, list(range(1, 1 + axis)))


def map_scatter(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    """Map ``(values, indices)`` with the attributes ``axis``, ``extent`` and ``mode``."""
    values, indices = operands
    axis, extent, mode = (node.attrs[name] for name in ("axis", "extent", "mode"))
    if not batched[1]:
        return node.op(values, indices, axis=axis + 1, extent=extent, mode=mode)
    rows = indices.shape[0]
    if not batched[0]:
        values = repeated(values, rows)
    behind = [indices.ndim + i for i in range(axis)]
    rows_of = moveaxis(values, list(range(1, 1 + axis)), behind)
    added = node.op(
        rows_of, _rows_apart(indices, extent, mode, rows), axis=0, extent=rows * extent, mode="clip"
    )
    return moveaxis(reshape(added, (rows, extent, *added.shape[1:])), 1, 1 + axis)
