"""The numbers of a region that its kernels take as arguments on every device."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..ir import dims
from ..ir.graph import Node
from ..ir.interpret import bind_attributes
from ..ops.random.philox import stream_key
from .region.analysis import Region
from .region.axes import concrete
from .region.joined import Part
from .region.parts import PARTIAL_BYTES
from .region.views import contiguous_strides

__all__ = ["RegionNumbers"]


class RegionNumbers:
    """The numbers of one region for one set of sizes.

    Methods that return an int are what generated code asks for by name (`RegionCode.numbers`).

    Attributes
    ----------
    extents
        Iterations of each loop.
    group
        Short rows that are taken as one.

    Parameters
    ----------
    region
        The region.
    sizes
        The size of every dimension.
    """

    def __init__(self, region: Region, sizes: Mapping[str, int]) -> None:
        self.region = region
        self.sizes = sizes
        self.group = 1
        self.extents = tuple(dims.evaluate(loop.extent, sizes) for loop in region.loops)
        self._reads: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._nodes: list[Node] = list(region.values)

    def read(self, position: int) -> tuple[int, tuple[int, ...]]:
        """Return the first element and each loop's step of a read, by its place in the region."""
        found = self._reads.get(position)
        if found is None:
            access = list(self.region.accesses.values())[position]
            found = self._reads[position] = access.bind(self.sizes)
        return found

    # ---- What generated code asks for

    def number(self, what: str, where: tuple[int, ...]) -> int:
        """Return the number that a method of this name gives."""
        result = getattr(self, what)(*where)
        assert isinstance(result, int)
        return result

    def extent(self, loop: int) -> int:
        """Return the iterations of a loop."""
        return self.extents[loop]

    def element_count(self) -> int:
        """Return the elements of the iteration space."""
        return math.prod(self.extents[: self.region.depth])

    def row_width(self) -> int:
        """Return the number of elements of a row."""
        return self.group * self.extents[self.region.depth - 1]

    def read_place(self, position: int) -> int:
        """Return the first element of a read."""
        return self.read(position)[0]

    def read_step(self, position: int, loop: int) -> int:
        """Return a loop's step in a read."""
        return self.read(position)[1][loop] * (1 if loop else self.group)

    def part_place(self, position: int, part: int) -> int:
        """Return the place of a joined read's first element, were all of it in one part."""
        return self._part(position, part).first(self.sizes)

    def part_step(self, position: int, part: int, axis: int) -> int:
        """Return the step of an axis of a joined read in one of its parts."""
        return dims.evaluate(self._part(position, part).strides[axis], self.sizes)

    def part_low(self, position: int, part: int, axis: int) -> int:
        """Return the first position of a part along an axis."""
        return dims.evaluate(self._part(position, part).low[axis], self.sizes)

    def part_high(self, position: int, part: int, axis: int) -> int:
        """Return the position behind the last one of a part along an axis."""
        return dims.evaluate(self._part(position, part).high[axis], self.sizes)

    def part_end(self, position: int, part: int, axis: int) -> int:
        """Return where what a part reads ends along an axis, also beyond the joined read."""
        piece = self._part(position, part)
        own = piece.axes[axis]
        assert own is not None
        return dims.evaluate(piece.starts[axis] + piece.node.shape[own], self.sizes)

    def _part(self, position: int, part: int) -> Part:
        joined = list(self.region.accesses.values())[position].joined
        assert joined is not None
        return joined.parts[part]

    def write_step(self, position: int, loop: int) -> int:
        """Return a loop's step in a result."""
        step = self.region.outputs[position].bind(self.sizes)[loop]
        return step * (1 if loop else self.group)

    def line_length(self, fold: int) -> int:
        """Return the elements of a fold's result."""
        return math.prod(self.extents[i] for i in self.region.folds[fold].kept)

    def line_size(self, fold: int) -> int:
        """Return the bytes of a line of partial results."""
        length = self.row_width() if self.region.columns else self.line_length(fold)
        return -(-length * PARTIAL_BYTES // 64) * 64

    def kept_step(self, fold: int, loop: int) -> int:
        """Return the stride along a kept loop in a line of partial results."""
        kept = self.region.folds[fold].kept
        return math.prod(self.extents[i] for i in kept[kept.index(loop) + 1 :])

    def index_step(self, fold: int, loop: int) -> int:
        """Return how much a step along a reduced loop adds to an element's number."""
        reduced = self.region.folds[fold].reduced
        return math.prod(self.extents[i] for i in reduced[reduced.index(loop) + 1 :])

    def scalar(self, position: int) -> int:
        """Return a number that sizes determine, such as an extent, by its place in the region."""
        node = self._nodes[position]
        return int(node.op.evaluate(np, **bind_attributes(node.attrs, self.sizes)))

    def counter_step(self, position: int, loop: int) -> int:
        """Return how much a step along a loop adds to an element's number."""
        node = self._nodes[position]
        axis = self.region.counters[node][loop]
        return 0 if axis is None else contiguous_strides(concrete(node.shape, self.sizes))[axis]

    def random_key(self, position: int, word: int) -> int:
        """Return one of the two words that tell a random stream from others."""
        attrs = self._nodes[position].attrs
        return stream_key(attrs["seed"], attrs["stream"], attrs["part"])[word]
