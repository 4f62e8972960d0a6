"""What a region's CUDA kernels are told for given sizes: extents, steps, shares of the work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .... import dims
from ....region.analysis import Region
from ....region.parts import indexed, late_groups
from ...numpy.binding import Binding

__all__ = ["LANES", "THREADS", "CudaBinding"]

LANES = 32  # threads of a warp, which run side by side along the innermost loop
THREADS = 128  # of a block whose threads take elements in turn
MAX_THREADS = 1024
COLUMN_SUMS = 16  # of a thread, at most: more would not fit into its registers
COLUMN_THREADS = 512  # of a block whose threads have sums of columns: more have less to add up
TALL_THREADS = 256  # of a block whose threads take neighbours down some rows
PARTS = 4  # vectors of a row that a thread has, at least, where there are as many
KEPT_PARTS = 8  # vectors of a row that a thread keeps, at most
KEEPING_THREADS = 256  # of a block, at most, whose threads keep what they read of a row
KEEPING_BLOCKS = (3, 4)  # of those on a multiprocessor: that keep more words than ROOM, or less
ROOM = 32
ENTRIES = 8  # partial results of no axes that fit into the line planned for one
MULTIPROCESSORS = 132  # of an H200, where no device is asked


class CudaBinding(Binding):
    """The numbers of one region for one set of sizes, and how many blocks share it.

    Parameters
    ----------
    region
        The region.
    sizes
        The size of every dimension.
    lines
        How many lines of partial results each fold across rows may have.
    """

    def __init__(self, region: Region, sizes: Mapping[str, int], lines: int) -> None:
        super().__init__(region, sizes, 1)
        self.group = 1  # threads lie side by side however short a row is
        self.lines = max(1, lines)
        self.places: list[int] = []
        at = 0
        for position, fold in enumerate(region.folds):
            self.places.append(at)
            if not fold.row:
                pieces = 2 if indexed(fold.node.op) else 1
                at += pieces * self.lines * self.line_size(position)

    # ---- Asked for by name

    def fold_place(self, position: int, piece: int) -> int:
        """Return where in the workspace the lines of a fold (or of its positions) begin."""
        return self.places[position] + piece * self.lines * self.line_size(position)

    def count(self, position: int) -> int:
        """Return a constant that is a number of elements."""
        node = list(self.region.values)[position]
        return int(node.attrs["value"].reshape(-1)[0])

    def product(self, *loops: int) -> int:
        """Return the number of iterations of some loops together."""
        return math.prod(self.extents[i] for i in loops)

    # ---- Whether elements can be moved some at a time

    def vector_width(self, inner: int, most: int) -> int:
        """Return how many neighbours along a loop can be moved at a time: `most`, or 1."""
        region = self.region
        if self.extents[inner] % most:
            return 1
        moved = [self.read(position) for position in range(len(region.accesses))]
        moved += [
            (0, output.bind(self.sizes))
            for output in region.outputs
            if not output.epilogue and output.element
        ]
        even = all(self._even(offset, steps, inner, most) for offset, steps in moved)
        return most if even else 1

    def _even(self, offset: int, steps: Sequence[int], inner: int, most: int) -> bool:
        if steps[inner] != 1:
            return True  # moved one by one
        others = [
            step for i, step in enumerate(steps) if i != inner and self.extents[i] > 1
        ]
        return offset % most == 0 and all(step % most == 0 for step in others)

    @property
    def elements(self) -> int:
        """The largest number of elements that any array of the region has."""
        region = self.region
        counts = [1]
        for node in (*region.body.inputs, *region.body.outputs):
            count = 1
            for extent in node.shape:
                count *= extent if isinstance(extent, int) else dims.evaluate(extent, self.sizes)
            counts.append(count)
        counts.append(self.product(*range(region.depth)))
        for group in late_groups(region):
            loops = region.values[group[0].node].shape_loops
            counts.append(self.product(*loops))
        return max(counts)
