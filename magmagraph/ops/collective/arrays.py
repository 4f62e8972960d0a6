"""Sums over ranks of our own, on arrays: rings, rings of rings, and a server.

`passes/distribute/algorithms.py` has them as nodes, which other passes see. Here they are one step,
for sums that only some calls need. Elements meet in the same order: both give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.ranks import current

__all__ = ["GROUP", "REDUCED", "SUMS", "TIMED", "Axis", "summed"]

Axis = tuple[tuple[str, ...], int]  # axes of the mesh, and how many ranks differ in them
Room = Callable[..., Any]

# Attributes of collectives: the axes of the mesh in which its ranks differ, and how many ranks.
GROUP = {"group": "tuple[str, ...]", "size": "Positive"}
REDUCED = {**GROUP, "op": "Literal['sum', 'max', 'min']"}
TIMED = {
    **REDUCED,
    "algorithm": "Literal['allreduce', 'ring', 'torus', 'parameter_server']",
    "axes": "tuple[tuple[tuple[str, ...], Positive], ...]",
}


def summed(
    arrays: Sequence[Any],
    targets: Sequence[Any],
    algorithm: str,
    axes: Sequence[Axis],
    room: Room = np.empty,
) -> None:
    """Write the sums over ranks of some arrays of one dtype, sent as one.

    arrays, targets: A target may be its array.
    algorithm: One of `SUMS`.
    axes: One group of ranks; for a torus two, that together are all ranks.
    room: Makes an array of a shape and a dtype, with whatever is in its memory.
    """
    flat = room((sum(array.size for array in arrays),), arrays[0].dtype)
    start = 0
    for array in arrays:
        flat[start : start + array.size] = array.reshape(-1)
        start += array.size
    total = SUMS[algorithm](flat, axes, room)
    start = 0
    for target in targets:
        target[...] = total[start : start + target.size].reshape(target.shape)
        start += target.size


def _around(flat: Any, axis: Axis, between: Callable[[Any], Any], room: Room) -> Any:
    """Add up chunks along a ring, do something to the own complete one, and gather them."""
    group, count = axis
    ranks = current().group(group)
    length = -(-flat.size // count)
    rows = room((count, length), flat.dtype)
    row = (length,), flat.dtype
    whole = rows.reshape(-1)
    whole[: flat.size] = flat
    whole[flat.size :] = 0
    partial = rows[ranks.rank]
    for turn in range(count - 1):  # what has been sent is not written over: it may not have left
        come = ranks.permute(partial, 1, room(*row))
        partial = np.add(come, rows[(ranks.rank - turn - 1) % count], out=room(*row))
    partial = between(partial)
    for turn in range(count):
        rows[(ranks.rank + 1 - turn) % count] = partial
        if turn < count - 1:
            partial = ranks.permute(partial, 1, room(*row))
    return rows.reshape(-1)[: flat.size]


def _ring(flat: Any, axes: Sequence[Axis], room: Room) -> Any:
    (axis,) = axes
    return flat if axis[1] == 1 else _around(flat, axis, lambda chunk: chunk, room)


def _torus(flat: Any, axes: Sequence[Axis], room: Room) -> Any:
    outer, inner = axes
    if inner[1] == 1:
        return _ring(flat, [outer], room)
    return _around(flat, inner, lambda chunk: _ring(chunk, [outer], room), room)


def _server(flat: Any, axes: Sequence[Axis], room: Room) -> Any:
    ((group, _),) = axes
    ranks = current().group(group)
    total = ranks.reduce(flat, 0, room(flat.shape, flat.dtype))
    return ranks.broadcast(total, 0, room(flat.shape, flat.dtype))


SUMS: dict[str, Callable[[Any, Sequence[Axis], Room], Any]] = {
    "ring": _ring,
    "torus": _torus,
    "parameter_server": _server,
}
