"""Collectives of one rank: it has all there is to gather and to add up.

Before::

    %0 = input() : float32[4]  # x
    %1 = allreduce(%0, op='sum', group=(), size=1) : float32[4]
    return %1

After::

    %0 = input() : float32[4]  # x
    return %0

So a program for many ranks costs nothing on one, and groups along an axis of extent 1 send nothing.
"""

from __future__ import annotations

from ...ir.graph import Node
from ...ops.collective.rows import ALLGATHER, ALLTOALL, RANK_ROW, RANK_ROWS, REDUCE_SCATTER
from ...ops.collective.whole import ALLREDUCE, BROADCAST, PERMUTE
from ...ops.shape.arrange import reshape
from ..rewriting.rewrite import Match, Rule

_MOVING = (
    ALLREDUCE, BROADCAST, PERMUTE, ALLGATHER, REDUCE_SCATTER, ALLTOALL, RANK_ROW, RANK_ROWS
)  # fmt: skip


def _operand(match: Match) -> Node | None:
    root = match.root
    return reshape(root.inputs[0], root.shape) if root.attrs["size"] == 1 else None


RULES = (Rule("collective of one rank", _MOVING, _operand, complex=True),)
