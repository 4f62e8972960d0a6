"""Sums over ranks of our own: rings, rings of rings, and a server.

A ring adds in two rounds. The elements are cut into as many chunks as there are ranks. In the first
round each rank hands on, turn by turn, a chunk to which it has added its own, until each rank has
one chunk complete; in the second the complete chunks are handed on. Each element is sent twice
whatever the number of ranks (P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for
clusters of workstations", J. Parallel Distrib. Comput. 69, 2009). On a torus the first round runs
along one axis, the chunk is summed along the other, and the second round runs along the first: the
number of turns grows with the side, not with the area. Every chunk is summed on one rank, so that
all ranks get the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.graph import Node
from ...ops.collective.rows import RANK_ROW, RANK_ROWS
from ...ops.collective.whole import ALLREDUCE, BROADCAST, PERMUTE, REDUCE
from ...ops.elementwise.arithmetic import add
from ...ops.shape.arrange import reshape
from ...ops.shape.joining import concatenate
from ...ops.shape.slicing import PLACE, cut

__all__ = ["ALGORITHMS", "Axis", "summed"]

Axis = tuple[tuple[str, ...], int]  # axes of the mesh, and how many ranks differ in them


def summed(values: Sequence[Node], algorithm: str, axes: Sequence[Axis]) -> list[Node]:
    """Return the sums over ranks of some arrays of one dtype, sent as one.

    Parameters
    ----------
    values
        With shapes of ints.
    algorithm
        One of `ALGORITHMS`.
    axes
        One group of ranks; for a torus two, that together are all ranks.
    """
    total = ALGORITHMS[algorithm](_joined(values), axes)
    if len(values) == 1:
        return [reshape(total, values[0].shape)]
    totals: list[Node] = []
    start = 0
    for value in values:
        size = int(value.size)
        totals.append(reshape(cut(total, 0, start, size), value.shape))
        start += size
    return totals


def _joined(values: Sequence[Node]) -> Node:
    rows = [reshape(value, (int(value.size),)) for value in values]
    return rows[0] if len(rows) == 1 else concatenate(rows)


def _chunks(flat: Node, count: int) -> Node:
    """Return elements as rows, padded with zeros to equal lengths."""
    size = int(flat.size)
    length = -(-size // count)
    if length * count != size:
        flat = PLACE(flat, starts=(0,), steps=(1,), shape=(length * count,), value=0)
    return reshape(flat, (count, length))


def _scattered(rows: Node, axis: Axis) -> Node:
    """Return, on rank r, the sum over ranks of row r + 1."""
    group, count = axis
    part = RANK_ROW(rows, shift=0, group=group, size=count)
    for turn in range(count - 1):
        passed = PERMUTE(part, shift=1, group=group, size=count)
        part = add(passed, RANK_ROW(rows, shift=-turn - 1, group=group, size=count))
    return part


def _gathered(own: Node, axis: Axis) -> Node:
    """Return all rows, of which rank r has row r + 1."""
    group, count = axis
    parts = [own]
    for _ in range(count - 1):
        parts.append(PERMUTE(parts[-1], shift=1, group=group, size=count))
    # The j-th to arrive is row r + 1 - j.
    return RANK_ROWS(*parts, shift=1, group=group, size=count)


def _flat(rows: Node, size: int) -> Node:
    whole = reshape(rows, (int(rows.size),))
    return whole if int(whole.size) == size else cut(whole, 0, 0, size)


def _ring(flat: Node, axes: Sequence[Axis]) -> Node:
    (axis,) = axes
    if axis[1] == 1:
        return flat
    return _flat(_gathered(_scattered(_chunks(flat, axis[1]), axis), axis), int(flat.size))


def _torus(flat: Node, axes: Sequence[Axis]) -> Node:
    outer, inner = axes
    if inner[1] == 1:
        return _ring(flat, [outer])
    chunk = _scattered(_chunks(flat, inner[1]), inner)
    return _flat(_gathered(_ring(chunk, [outer]), inner), int(flat.size))


def _server(flat: Node, axes: Sequence[Axis]) -> Node:
    """All ranks send to rank 0, which sums and answers."""
    ((group, count),) = axes
    shared: dict[str, Any] = {"root": 0, "group": group, "size": count}
    return BROADCAST(REDUCE(flat, **shared), **shared)


def _library(flat: Node, axes: Sequence[Axis]) -> Node:
    ((group, count),) = axes
    return ALLREDUCE(flat, op="sum", group=group, size=count)


ALGORITHMS: dict[str, Callable[[Node, Sequence[Axis]], Node]] = {
    "allreduce": _library,
    "ring": _ring,
    "torus": _torus,
    "parameter_server": _server,
}
