"""How the ranks' values of a node make up the one that a single process would have.

A `Layout` is one of four. *Whole*: every rank has all of it, the same on each. *Parts*: each rank
has its rows of one axis. *Sum*: the value is the sum of what the ranks have. *Own*: each rank has a
value of its own, which is no part of anything (statistics of its rows alone).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...errors import ShardingError, message
from ...ir import dims
from ...ir.graph import Graph, Node
from ...ir.op import describe
from ...ir.types import Extent, Type

__all__ = ["MICRO", "OWN", "SUM", "WHOLE", "Layout", "Sharded", "Way", "parts", "refusal"]

MICRO = ("micro-batch",)  # the group of what is cut into micro-batches: one rank has all of them


class Way(enum.StrEnum):
    """Which of the four."""

    WHOLE = "whole"
    PARTS = "parts"
    SUM = "sum"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class Layout:
    """The part of a value that a rank has.

    Attributes
    ----------
    way
        Whole, parts, sum or own.
    axis
        The axis that is cut into parts; -1 where none is.
    outer
        Of that axis, whose extent is a multiple of the sharded dimension: how many times the
        dimension is run through along it. 1 where a rank's rows stand together (``(batch, t)`` as
        one axis), ``t`` for ``(t, batch)``. None where all rows are alike, so that it does not
        matter.
    """

    way: Way
    axis: int = -1
    outer: Extent | None = 1

    def __str__(self) -> str:
        return f"parts of axis {self.axis}" if self.way is Way.PARTS else self.way.value


WHOLE = Layout(Way.WHOLE)
SUM = Layout(Way.SUM)
OWN = Layout(Way.OWN)


def parts(axis: int, outer: Extent | None = 1) -> Layout:
    """Return the layout of a value whose axis is cut."""
    return Layout(Way.PARTS, axis, outer)


class Sharded:
    """The named dimension that is sharded, as types and attributes mention it.

    Parameters
    ----------
    name
        Of the dimension.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.dim = dims.Dim(name)
        self._axes: dict[Any, tuple[int, ...]] = {}

    def in_extent(self, extent: Any) -> bool:
        """Return whether an extent is computed from the dimension."""
        return isinstance(extent, dims.Dim) and self.name in dims.names(extent)

    def axes(self, type_: Type) -> tuple[int, ...]:
        """Return the axes of a type whose extents are computed from the dimension."""
        axes = self._axes.get(type_)
        if axes is None:
            axes = tuple(i for i, e in enumerate(type_.shape) if self.in_extent(e))
            self._axes[type_] = axes
        return axes

    def times(self, extent: Extent) -> Extent | None:
        """Return how many rows of an axis belong to one of the dimension; None where that differs.

        Examples
        --------
        >>> n = dims.Dim("n")
        >>> Sharded("n").times(6 * n), Sharded("n").times(n + 1), Sharded("n").times(n * n)
        (6, None, None)
        """
        quotient = dims.exact_divide(extent, self.dim, [])
        if quotient is None or self.in_extent(quotient):
            return None
        return quotient if self.dim * quotient == extent else None

    def mentioned(self, value: Any) -> bool:
        """Return whether an attribute is made with the dimension."""
        if isinstance(value, dims.Dim):
            return self.in_extent(value)
        if isinstance(value, (tuple, list)):
            return any(map(self.mentioned, value))
        if isinstance(value, Graph):
            return value.analysis(_mentions, self.name)
        return False

    def in_node(self, node: Node) -> bool:
        """Return whether a node's type or attributes are made with the dimension."""
        types = node.type if isinstance(node.type, tuple) else (node.type,)
        return any(map(self.axes, types)) or any(map(self.mentioned, node.attrs.values()))

    def joined(self, outers: Iterable[Extent | None]) -> tuple[bool, Extent | None]:
        """Return whether the rows of several operands have one order, and which."""
        distinct = {outer for outer in outers if outer is not None}
        return len(distinct) < 2, distinct.pop() if len(distinct) == 1 else None


def _mentions(body: Graph, name: str) -> bool:
    """Return whether a body's nodes are made with the dimension of that name."""
    return any(map(Sharded(name).in_node, body.nodes))


def refusal(dim: str, node: Node, reason: str, hint: str | None = None) -> ShardingError:
    """Make (not raise) the error for a node that cannot be sharded."""
    operands = "".join(f"\n  operand {i}: {describe(o)}" for i, o in enumerate(node.inputs))
    return ShardingError(
        message(
            f"the dimension {dim!r} is sharded over ranks, and {describe(node)} cannot be: "
            f"{reason}",
            need="operations on a rank's own rows, or sums (means, extremes) over all rows",
            hint=hint,
        )
        + operands
    )
