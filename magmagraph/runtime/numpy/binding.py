"""What a region's kernel is told for given sizes: extents, steps, shares, places in scratch."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ... import dims
from ...interpret import bind_attributes
from ...ops.philox import stream_key
from ...region import Region
from ...region_access import contiguous_strides
from ...region_axes import concrete
from ...region_parts import MAX_STRIP, PARTIAL_BYTES, SAVED_BYTES, indexed
from ...region_walk import costly

BLOCK = 4096
CACHE_BYTES = 1 << 18
CROSS_WIDTH = 64
MIN_STRIP = 16
SHARE = 1 << 17  # units of work (some 0.05 ns each) that are worth a thread


class Binding:
    """The numbers of one region for one set of sizes.

    Attributes
    ----------
    extents
        Iterations of each loop.
    width, strips
        Elements in a strip of the innermost loop, and how many strips there are.
    items
        Rows, or strips of rows, that the outer loops and strips make together.
    work
        Units of work of one item; a unit is about an addition.
    kept, line_bytes, lines
        For each fold: elements of its result, bytes of a line of partial results, and where the
        first line (and that of positions) begins in the workspace.
    saved, saved_bytes
        Where each saved value's first row begins, and bytes of a row.
    workspace
        Bytes taken in all.
    """

    def __init__(self, region: Region, sizes: Mapping[str, int], threads: int) -> None:
        self.region = region
        self.sizes = sizes
        self.threads = max(1, threads)
        self.extents = tuple(
            e if isinstance(e := loop.extent, int) else dims.evaluate(e, sizes)
            for loop in region.loops
        )
        self._accesses: dict[int, tuple[int, tuple[int, ...]]] = {}
        outer = [i for i in region.outer if not (region.strip and i == region.depth - 1)]
        rows = math.prod(self.extents[i] for i in outer)
        inside = math.prod(self.extents[i] for i in region.row)
        self.width = self.strips = 1
        if region.strip:
            count = self.extents[region.depth - 1]
            self.width = self._width(count, rows, inside)
            self.strips = -(-count // self.width)
            inside *= self.width
        self.items = rows * self.strips
        self.work = max(1, inside * self._effort())
        self._place()

    def _width(self, count: int, rows: int, inside: int) -> int:
        """Return how much of the innermost loop is one item."""
        from .codegen_rows import crosses

        region = self.region
        if not region.row:
            if crosses(region):
                return CROSS_WIDTH
            # A single long row is shared out in blocks.
            return BLOCK
        size = 8 * len(region.saved) + sum(
            node.dtype.itemsize
            for node in region.accesses
            if region.values[node].loops & region.row
        )
        fitting = CACHE_BYTES // max(1, inside * size)
        shared = count * rows // (2 * self.threads)
        width = max(MIN_STRIP, min(fitting, shared, MAX_STRIP))
        return width // MIN_STRIP * MIN_STRIP

    def _effort(self) -> int:
        """Return units of work per element."""
        region = self.region
        nodes = [n for n in region.values if n.inputs and region.values[n].source is n]
        calls = sum(8 for n in nodes if costly(n))
        return region.passes + (len(nodes) + calls) // 4

    def _place(self) -> None:
        region, threads = self.region, self.threads
        at = 0
        self.kept: list[int] = []
        self.line_bytes: list[int] = []
        self.lines: list[tuple[int, int]] = []
        for fold in region.folds:
            kept = math.prod(self.extents[i] for i in fold.kept)
            line = -(-kept * PARTIAL_BYTES // 64) * 64
            self.kept.append(kept)
            self.line_bytes.append(line)
            first = second = at
            if not fold.row:
                at += threads * line
                if indexed(fold.node.op):
                    second = at
                    at += threads * line
            self.lines.append((first, second))
        row = math.prod(self.extents[i] for i in region.row)
        self.saved_bytes = -(-row * region.saved_width * SAVED_BYTES // 64) * 64
        self.saved: list[int] = []
        for _ in region.saved:
            self.saved.append(at)
            at += threads * self.saved_bytes
        self.workspace = at

    def shift(self, start: int) -> None:
        """Move everything in the workspace: several bodies share one."""
        self.lines = [(first + start, second + start) for first, second in self.lines]
        self.saved = [place + start for place in self.saved]

    def access(self, position: int) -> tuple[int, tuple[int, ...]]:
        """Return the first element and each loop's step of a read, by its place in the region."""
        found = self._accesses.get(position)
        if found is None:
            access = list(self.region.accesses.values())[position]
            found = self._accesses[position] = access.bind(self.sizes)
        return found

    def output(self, position: int) -> tuple[int, ...]:
        """Return the steps of a write."""
        return self.region.outputs[position].bind(self.sizes)

    def scalar(self, position: int) -> int:
        """Return a number that sizes determine, such as an extent, by its place in the region."""
        node = list(self.region.values)[position]
        return int(node.op.evaluate(np, **bind_attributes(node.attrs, self.sizes)))

    def counter_step(self, position: int, loop: int) -> int:
        """Return how much a step along a loop adds to an element's number."""
        node = list(self.region.values)[position]
        axis = self.region.counters[node][loop]
        return 0 if axis is None else contiguous_strides(concrete(node.shape, self.sizes))[axis]

    def random_key(self, position: int) -> tuple[int, int]:
        """Return the two words that tell a random stream from others."""
        attrs = list(self.region.values)[position].attrs
        return stream_key(attrs["seed"], attrs["stream"], attrs["part"])

    def kept_step(self, fold: int, loop: int) -> int:
        """Return how far apart in a line neighbours along a kept loop lie."""
        kept = self.region.folds[fold].kept
        return math.prod(self.extents[i] for i in kept[kept.index(loop) + 1 :])

    def index_step(self, fold: int, loop: int) -> int:
        """Return how much a step along a reduced loop adds to an element's number."""
        reduced = self.region.folds[fold].reduced
        return math.prod(self.extents[i] for i in reduced[reduced.index(loop) + 1 :])

    def saved_step(self, loop: int) -> int:
        """Return how far apart in a saved row neighbours along one of its loops lie."""
        row = sorted(self.region.row)
        after = math.prod(self.extents[i] for i in row[row.index(loop) + 1 :])
        return after * self.region.saved_width
