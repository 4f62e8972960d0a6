"""Where the elements of views lie in the arrays that they are cut from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...ir import dims
from ...ir.graph import Node
from ...ir.types import Extent, Shape

__all__ = ["AxisPlace", "contiguous_strides", "view_places", "view_strides"]


class AxisPlace(NamedTuple):
    """Where an axis of a view runs in the array that it is cut from.

    Attributes
    ----------
    axis
        The array's axis; None where elements are repeated.
    start, step
        Its first position there, and how far apart the next ones are.
    """

    axis: int | None
    start: Extent
    step: int


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the steps, in elements, of a C-contiguous array."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def view_strides(views: tuple[Node, ...], node: Node) -> tuple[Extent, tuple[Extent, ...]]:
    """Return the offset and the strides, in elements, of a view of a contiguous array.

    They hold for all sizes of the named dimensions where the view has elements. Along a literal
    extent of 1 no loop runs: the stride there means nothing.
    """
    offset: Extent = 0
    strides = _strides_of((views[0].inputs[0] if views else node).shape)
    contiguous = True
    for layout in views:
        (operand,) = layout.inputs
        if layout.op.layout.view is not None:
            parts = layout.op.layout.view(layout)
            for axis, start, _ in parts:
                if axis is not None:
                    offset = offset + start * strides[axis]
            strides = tuple(
                0 if axis is None else strides[axis] * step for axis, _, step in parts
            )
            contiguous = False
        elif contiguous:
            strides = _strides_of(layout.shape)
        else:  # only axes of extent 1 were added or removed
            moving = [s for s, e in zip(strides, operand.shape, strict=True) if e != 1]
            position = iter(moving)
            strides = tuple(0 if extent == 1 else next(position) for extent in layout.shape)
    return offset, strides


def view_places(views: tuple[Node, ...], node: Node) -> tuple[Shape, list[AxisPlace]] | None:
    """Return the shape that a view is cut from, and where each of its axes runs in that.

    Axes that an index took away come last, with a step of 0. None where axes were joined or split
    after a cut.
    """
    shape = (views[0].inputs[0] if views else node).shape
    places = [AxisPlace(axis, 0, 1) for axis in range(len(shape))]
    gone: list[AxisPlace] = []
    for layout in views:
        if layout.op.layout.view is not None:
            parts = layout.op.layout.view(layout)
            taken = {axis for axis, _, _ in parts}
            gone += [p._replace(step=0) for axis, p in enumerate(places) if axis not in taken]
            places = [
                AxisPlace(None, 0, 0)
                if axis is None
                else AxisPlace(
                    places[axis].axis,
                    places[axis].start + start * places[axis].step,
                    step * places[axis].step,
                )
                for axis, start, step in parts
            ]
        elif layout.shape != layout.inputs[0].shape:
            if any(place != (axis, 0, 1) for axis, place in enumerate(places)):
                return None
            shape = layout.shape
            places = [AxisPlace(axis, 0, 1) for axis in range(len(shape))]
    return shape, [*places, *gone]


def _strides_of(shape: Shape) -> tuple[Extent, ...]:
    """Return the steps, in elements, of a C-contiguous array that has elements."""
    return tuple(dims.size(shape[axis + 1 :]) for axis in range(len(shape)))
