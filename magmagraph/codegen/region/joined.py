"""Reads of arrays that lie behind one another, or among constants: concatenations, pads, rolls.

A joined read is of several parts. Each covers a box of positions, and reads a parameter, or a view
of it, there; where no part is, the value is a constant. Slices and transpositions of a joined read
are joined reads, and so are joined reads of joined reads: rolls along two axes have four parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...ir import dims
from ...ir.graph import Node
from ...ir.op import Pieces, ViewAxis
from ...ir.records import record
from ...ir.types import Extent
from .views import view_strides

__all__ = ["MOST_PARTS", "Joined", "Part", "join", "whole"]

MOST_PARTS = 9  # of a joined read: a plane with its four sides and corners


@record(frozen=True, eq=False)
class Part:
    """A box of a joined read that reads one parameter.

    Attributes
    ----------
    parameter
        Its position.
    node, views
        The view of it that is read, and the layout nodes from the parameter to that.
    axes
        For each axis of the joined read, the axis of `node`; None where elements are repeated.
    starts
        Where the first element of `node` would be.
    low, high
        The box: the first position along each axis, and the one behind the last.
    """

    parameter: int
    node: Node
    views: tuple[Node, ...]
    axes: tuple[int | None, ...]
    starts: tuple[Extent, ...]
    low: tuple[Extent, ...]
    high: tuple[Extent, ...]

    @property
    def empty(self) -> bool:
        """Whether it is known to have no elements."""
        lengths = [high - low for low, high in zip(self.low, self.high, strict=True)]
        return any(isinstance(length, int) and length <= 0 for length in lengths)

    def reaches_all(self, axis: int, extent: Extent) -> bool:
        """Return whether only the ends of what is read bound it along an axis."""
        own = self.axes[axis]
        if own is None:
            return False
        start, length = self.starts[axis], self.node.shape[own]
        return bool(
            self.low[axis] == dims.maximum(start, 0)
            and self.high[axis] == dims.minimum(start + length, extent)
        )

    @property
    def strides(self) -> tuple[Extent, ...]:
        """How far apart neighbours along each axis of the joined read are, in elements."""
        strides = view_strides(self.views, self.node)[1]
        return tuple(0 if axis is None else strides[axis] for axis in self.axes)

    def first(self, sizes: Mapping[str, int]) -> int:
        """Return the place that the joined read's first element would have, which may not exist."""
        offset = dims.evaluate(view_strides(self.views, self.node)[0], sizes)
        for start, stride in zip(self.starts, self.strides, strict=True):
            offset -= dims.evaluate(start, sizes) * dims.evaluate(stride, sizes)
        return offset


@record(frozen=True, eq=False)
class Joined:
    """A read of several parts.

    Attributes
    ----------
    parts
        The parts, of which no two overlap.
    value
        What is where no part is; None where parts are everywhere.
    """

    parts: tuple[Part, ...]
    value: Any = None

    def guarded(self, node: Node, axis: int) -> bool:
        """Return whether some part does not cover all positions along an axis."""
        return any(part.low[axis] != 0 or part.high[axis] != node.shape[axis]
                   for part in self.parts)  # fmt: skip

    def seen(self, layout: Node) -> Joined | None:
        """Return the joined read of a layout operation; None if it is none, or reads no part."""
        source = layout.inputs[0]
        if layout.op.layout.view is not None:
            views = list(layout.op.layout.view(layout))
        elif layout.op.layout.alias:
            same = _ones_moved(layout)
            if same is None:
                return None
            views = same
        else:
            return None
        kept = {axis for axis, _, _ in views}
        if any(axis is not None and step != 1 for axis, _, step in views) or any(
            self.guarded(source, axis) for axis in range(source.ndim) if axis not in kept
        ):
            return None
        moved = [_moved(part, views, layout) for part in self.parts]
        parts = tuple(part for part in moved if not part.empty)
        return Joined(parts, self.value) if parts else None


def _ones_moved(layout: Node) -> list[ViewAxis] | None:
    """Return along which axes a result runs that differs in literal ones alone; else None."""
    operand = layout.inputs[0]
    moving = [axis for axis, extent in enumerate(operand.shape) if extent != 1]
    if [operand.shape[axis] for axis in moving] != [e for e in layout.shape if e != 1]:
        return None
    axes = iter(moving)
    return [ViewAxis(None if extent == 1 else next(axes)) for extent in layout.shape]


def _moved(part: Part, views: Sequence[ViewAxis], layout: Node) -> Part:
    axes: list[int | None] = []
    starts: list[Extent] = []
    low: list[Extent] = []
    high: list[Extent] = []
    for (axis, start, _), extent in zip(views, layout.shape, strict=True):
        axes.append(None if axis is None else part.axes[axis])
        starts.append(0 if axis is None else part.starts[axis] - start)
        low.append(0 if axis is None else dims.maximum(part.low[axis] - start, 0))
        high.append(extent if axis is None else dims.minimum(part.high[axis] - start, extent))
    return replace(part, axes=tuple(axes), starts=tuple(starts), low=tuple(low), high=tuple(high))


def whole(parameter: int, node: Node, views: tuple[Node, ...]) -> Joined:
    """Return the read of a whole view as a joined one."""
    none = (0,) * node.ndim
    return Joined((Part(parameter, node, views, tuple(range(node.ndim)), none, none, node.shape),))


def join(node: Node, pieces: Pieces, operands: Sequence[Joined]) -> Joined | None:
    """Return the joined read of an operation that puts its operands beside each other.

    None where what is between the parts has several values, or there are too many parts.
    """
    values = [joined.value for joined in operands if joined.value is not None]
    if pieces.value is not None:
        values.append(pieces.value)
    if len({np.asarray(value, node.dtype).tobytes() for value in values}) > 1:
        return None
    parts = []
    for starts, joined in zip(pieces.starts, operands, strict=True):
        for part in joined.parts:
            moved = [
                tuple(at + start for at, start in zip(places, starts, strict=True))
                for places in (part.starts, part.low, part.high)
            ]
            parts.append(replace(part, starts=moved[0], low=moved[1], high=moved[2]))
    if len(parts) > MOST_PARTS:
        return None
    return Joined(tuple(parts), values[0] if values else None)
