"""How operations are sharded: each rank holds some rows of a named dimension.

A record's `sharding` says what an operation makes of operands of which each rank has its own part.
It is a word, for what many operations share, or a rule::

    rule(node, axes) -> axis of the result, or SUM

where ``axes[i]`` is the axis of operand ``i`` that is cut into parts, None where a rank has all of
it. The result is then cut along an axis, or the ranks' results have to be added (`SUM`). A rule
raises `NotSharded` where neither is so. Words:

- ``"linear"``: the result is linear in all operands together, so that sums over ranks may be taken
  behind it; ``"product"``: in each of them; ``"quotient"``: in the first; ``"select"``: in all but
  the first;
- ``"sum"``, ``"max"``, ``"min"``: a reduction whose parts are joined by that collective;
  ``"argmax"``, ``"argmin"``: the position of what that one finds; ``"others"``: the product of all
  other elements;
- ``"positions"``, ``"counted"``: values that depend on an element's position alone;
- the others name how axes move: ``"reshape"``, ``"transpose"``, ``"broadcast"``, ``"window"``,
  ``"gather"``, ``"scatter"``, ``"mapped"``; or what is done with bodies: ``"turns"`` (a loop),
  ``"choice"``, ``"written out"``.

Where the field is empty, kind and `batching` tell: what is mapped over an axis position by position
can be cut along it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Node

__all__ = [
    "SUM",
    "NotSharded",
    "shard_alike",
    "shard_convolution",
    "shard_gathered",
    "shard_product",
    "shard_searched",
    "shard_systems",
]

SUM = "sum"

Axes = Sequence[int | None]


class NotSharded(Exception):
    """An operation needs more than the rows that a rank has.

    reason, hint: What stands in the way, and what could be written instead.
    """

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def shard_product(node: Node, axes: Axes) -> int | str:
    """Shard a product of matrices ``(..., m, k) @ (..., k, n)``."""
    places = [
        None if axis is None else axis - operand.ndim
        for axis, operand in zip(axes, node.inputs, strict=True)
    ]
    inner = [places[0] == -1, places[1] == -2]
    if all(inner):
        return SUM
    if any(inner):
        raise NotSharded("one operand only has its part of the axis that is summed over")
    results = {node.ndim + place for place in places if place is not None}
    if len(results) > 1:
        raise NotSharded(
            "it multiplies each row with each other row, also with those of other ranks",
            "mg.distributed.allgather of one operand, outside of the sharded part",
        )
    return results.pop()


def shard_alike(node: Node, axes: Axes) -> int | str:
    """Shard what looks at no axis."""
    (axis,) = axes
    assert axis is not None
    return axis


def shard_gathered(node: Node, axes: Axes) -> int | str:
    """Shard what puts a new first axis before the others."""
    (axis,) = axes
    assert axis is not None
    return axis + 1


def shard_convolution(values: tuple[bool, bool, bool], node: Node, axes: Axes) -> int | str:
    """Shard a convolution along its batch; `values` tells which operands and result have one."""
    for axis, has in zip(axes, values, strict=False):
        if axis is not None and not (has and axis == 0):
            raise NotSharded(f"axis {axis} of an operand is no batch axis")
    if any(axis is None for axis, has in zip(axes, values, strict=False) if has):
        raise NotSharded("one operand only has its part of the batch")
    return 0 if values[2] else SUM


def shard_searched(node: Node, axes: Axes) -> int | str:
    """Shard a search of values in a sorted line: along the values, or along the line.

    A value stands behind as many elements as it stands behind on all ranks together.
    """
    line, values = axes
    if line is None:
        assert values is not None
        return values
    if values is not None:
        raise NotSharded(
            "it looks for each row among the rows of all ranks",
            "mg.distributed.allgather of one operand, outside of the sharded part",
        )
    return SUM


def shard_systems(node: Node, axes: Axes) -> int | str:
    """Shard equations ``(..., n, n), (..., n, k)``: along a batch, or along right-hand sides."""
    results = set()
    for operand, axis, together in zip(node.inputs, axes, ((-2, -1), (-2,)), strict=True):
        if axis is None:
            continue
        place = axis - operand.ndim
        if place in together:
            raise NotSharded("it works on all rows together")
        results.add(node.ndim + place)
    if len(results) > 1:
        raise NotSharded("rows of other ranks would be needed")
    return results.pop()
