"""Where a fused region reads and writes, and its loops: the second half of the analysis.

Arrays are C-contiguous at run time. What a region reads is a parameter or a view of it (a slice, a
flip). At which element a view begins and how far apart its elements are is written in terms of the
named dimensions, so that it holds for all sizes, 1 among them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from ...ir import dims
from ...ir.graph import Node
from ...ir.records import record
from ...ir.types import Extent, Shape
from .axes import AxisClasses, concrete
from .joined import Joined
from .views import contiguous_strides, view_strides


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
    joined
        The parts of a read of several parameters, or of one in parts. `parameter` is that of the
        first part then, and there are no views.
    """

    parameter: int
    node: Node
    views: tuple[Node, ...]
    axes: tuple[int | None, ...]
    unit: bool
    joined: Joined | None = None

    @property
    def reads(self) -> list[tuple[int, Node, tuple[Node, ...]]]:
        """The parameter, the node and the views of each part."""
        if self.joined is None:
            return [(self.parameter, self.node, self.views)]
        return [(part.parameter, part.node, part.views) for part in self.joined.parts]

    @property
    def parameters(self) -> tuple[int, ...]:
        """The positions of all parameters that it reads."""
        return tuple(dict.fromkeys(parameter for parameter, _, _ in self.reads))

    @property
    def whole(self) -> bool:
        """Whether it reads all elements of a parameter once each, in the parameter's order."""
        return self.joined is None and all(view.op.layout.alias for view in self.views)

    def bind(self, sizes: Mapping[str, int]) -> tuple[int, tuple[int, ...]]:
        """Return the first element's position and each loop's step, both in elements."""
        shape = concrete(self.node.shape, sizes)
        if self.joined is not None:
            return 0, (0,) * len(self.axes)  # each part has steps of its own
        if not self.views:
            strides = contiguous_strides(shape)
            return 0, tuple(0 if axis is None else strides[axis] for axis in self.axes)
        if 0 in shape:
            return 0, (0,) * len(self.axes)  # nothing is read
        offset, steps = view_strides(self.views, self.node)
        return dims.evaluate(offset, sizes), tuple(
            0 if axis is None else dims.evaluate(steps[axis], sizes) for axis in self.axes
        )


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


class Track:
    """An order in which memory, or a count, runs through classes: decides which loops are one.

    ``joined[i]`` is true where the axes of ``classes[i]`` and ``classes[i + 1]`` lie behind one
    another without a gap.
    """

    __slots__ = ("classes", "joined")

    def __init__(
        self,
        classes: Sequence[int | None],
        strides: Sequence[Extent] | None = None,
        shape: Shape = (),
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
    _, strides = view_strides(views, node)
    return Track(classes, strides, node.shape)


def part_tracks(node: Node, joined: Joined, classes: Sequence[int | None]) -> list[Track]:
    """Return the orders of memory of a joined read's parts.

    A loop along which some part ends is one axis.
    """
    tracks = []
    ends = [joined.guarded(node, axis) for axis in range(node.ndim)]
    for part in joined.parts:
        track = Track(classes, part.strides, node.shape)
        kept = [end for end, member in zip(ends, classes, strict=True) if member is not None]
        for place, (left, right) in enumerate(itertools.pairwise(kept)):
            track.joined[place] = track.joined[place] and not (left or right)
        tracks.append(track)
    return tracks


def is_unit(node: Node, views: tuple[Node, ...], axis: int | None) -> bool:
    """Return whether an operand has unit stride along an axis."""
    if axis is None:
        return False
    return view_strides(views, node)[1][axis] == 1


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
