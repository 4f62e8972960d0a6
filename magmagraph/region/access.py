"""Where a fused region reads and writes, and its loops: the second half of the analysis.

Arrays are C-contiguous at run time. What a region reads is a parameter or a view of it (a slice, a
flip), and NumPy itself says, for given sizes, at which element such a view begins and how far
apart its elements are: the view is taken of an array without memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from .. import dims
from ..graph import Node
from ..interpret import bind_attributes
from ..records import record
from ..types import Extent
from .axes import PROBES, AxisClasses, ProbeSizes, Refused, concrete


@record(frozen=True)
class Loop:
    """One loop of a region.

    Attributes
    ----------
    extent
        Number of iterations.
    classes
        The classes of axes that it runs over, outermost first: axes that lie behind one another
        in every array of the region are one loop.
    """

    extent: Extent
    classes: tuple[int, ...]


@record(frozen=True, eq=False)
class Access:
    """A read of a parameter.

    Attributes
    ----------
    parameter
        Its position.
    node
        The node that is read: the parameter, or a view of it.
    views
        The layout nodes from the parameter to `node`.
    axes
        For each loop, the axis of `node` along which its iterations step; None where they do
        not move.
    unit
        True where an iteration of the innermost loop is a step of one element.
    """

    parameter: int
    node: Node
    views: tuple[Node, ...]
    axes: tuple[int | None, ...]
    unit: bool

    def bind(self, sizes: Mapping[str, int]) -> tuple[int, tuple[int, ...]]:
        """Return the first element's position and each loop's step, both in elements."""
        offset, strides = view_strides(self.views, self.node, sizes)
        return offset, tuple(0 if axis is None else strides[axis] for axis in self.axes)


@record(frozen=True, eq=False)
class Output:
    """A write of one output of the body.

    Attributes
    ----------
    position
        Its position among the outputs.
    node
        The node of the body that is written.
    axes, unit
        As in `Access`.
    phase
        The pass in which it is written.
    element
        True where it is written along all loops, False where a row has one (or, in the
        epilogue, what is left of the rows).
    epilogue
        True where it is written when all rows are done.
    """

    position: int
    node: Node
    axes: tuple[int | None, ...]
    unit: bool
    phase: int
    element: bool
    epilogue: bool

    def bind(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return each loop's step in elements."""
        strides = contiguous_strides(concrete(self.node.shape, sizes))
        return tuple(0 if axis is None else strides[axis] for axis in self.axes)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the steps, in elements, of a C-contiguous array."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def view_strides(
    views: tuple[Node, ...], node: Node, sizes: Mapping[str, int]
) -> tuple[int, tuple[int, ...]]:
    """Return the offset and the strides, in elements, of a view of a contiguous array."""
    if not views:
        return 0, contiguous_strides(concrete(node.shape, sizes))
    shape = concrete(views[0].inputs[0].shape, sizes)
    if math.prod(shape) == 0 or math.prod(concrete(node.shape, sizes)) == 0:
        return 0, (0,) * node.ndim  # nothing is read
    element = np.empty(1, dtype=np.int8)
    view = np.lib.stride_tricks.as_strided(
        element, shape, contiguous_strides(shape), writeable=False
    )
    start = view.__array_interface__["data"][0]
    for layout in views:
        view = layout.op.evaluate(np, view, **bind_attributes(layout.attrs, sizes))
    return view.__array_interface__["data"][0] - start, view.strides


class Track:
    """An order in which memory, or a count, runs through classes: decides which loops are one.

    ``joined[i]`` is true where the axes of ``classes[i]`` and ``classes[i + 1]`` lie behind one
    another without a gap.
    """

    __slots__ = ("classes", "joined")

    def __init__(
        self,
        classes: Sequence[int | None],
        strides: Sequence[int] | None = None,
        shape: Sequence[int] = (),
    ) -> None:
        kept = [axis for axis, member in enumerate(classes) if member is not None]
        self.classes = [member for member in classes if member is not None]
        # Axes of extent 1 between two that are kept make no gap.
        self.joined = [
            strides is None or strides[left] == strides[right] * shape[right]
            for left, right in itertools.pairwise(kept)
        ]

    def joins(self, outer: int, inner: int) -> bool:
        """Return whether the two classes may be one loop as far as this order goes."""
        if outer not in self.classes:
            return inner not in self.classes
        position = self.classes.index(outer)
        return (
            position + 1 < len(self.classes)
            and self.classes[position + 1] == inner
            and self.joined[position]
        )


def read_track(node: Node, views: tuple[Node, ...], classes: Sequence[int | None]) -> Track:
    """Return the order of memory that a read runs through."""
    if not views:
        return Track(classes)
    probe = ProbeSizes(PROBES[0])
    try:
        _, strides = view_strides(views, node, probe)
    except (ValueError, TypeError, IndexError):
        raise Refused(
            f"the view made by {node.op.name} needs sizes that agree in a way not known yet", node
        ) from None
    return Track(classes, strides, concrete(node.shape, probe))


def is_unit(node: Node, views: tuple[Node, ...], axis: int | None) -> bool:
    """Return whether a step along an axis of what is read is a step of one element."""
    if axis is None:
        return False
    _, strides = view_strides(views, node, ProbeSizes(PROBES[0]))
    return strides[axis] == 1


def join_loops(
    order: Sequence[int],
    tracks: Sequence[Track],
    groups: Sequence[frozenset[int]],
    classes: AxisClasses,
) -> tuple[Loop, ...]:
    """Return the loops over `order`, neighbours joined wherever every track and group allows."""
    joined: list[list[int]] = []
    for inner in order:
        if joined:
            outer = joined[-1][-1]
            same = all((outer in group) == (inner in group) for group in groups)
            if same and all(track.joins(outer, inner) for track in tracks):
                joined[-1].append(inner)
                continue
        joined.append([inner])
    return tuple(
        Loop(dims.size(tuple(classes.extent(c) for c in run)), tuple(run)) for run in joined
    )


def axes_of_loops(
    classes: Sequence[int | None], loops: Sequence[Loop]
) -> tuple[int | None, ...]:
    """Return, for each loop, the axis whose step an iteration takes: the innermost of its own."""
    return tuple(
        classes.index(loop.classes[-1]) if loop.classes[-1] in classes else None for loop in loops
    )
