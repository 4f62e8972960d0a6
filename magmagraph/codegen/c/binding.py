"""The arguments of a region's kernel for given sizes: extents, strides, shares, offsets."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...ir import dims
from ...ir.identity import is_among
from ..region.analysis import Region
from ..region.parts import FLAT, TOGETHER, TOGETHER_BYTES, costly, indexed, saved_itemsize
from ..region_numbers import RegionNumbers
from .caches import last_level

__all__ = ["BLOCK", "COLUMNS", "SHARE", "STACKED", "SUMMED", "Binding", "crosses"]

SHARE = 1 << 16  # units of work (some 0.05 ns each) that are worth a thread
BLOCK = 4096  # elements of the innermost loop that are one item
SUMMED = 256  # elements of a row that are added up in their own dtype, before the next larger one
STACKED = 32  # rows that are added up so, where it is columns that are added up
COLUMNS = 4096  # columns at a time: their sums stay in the nearest cache
TALL = 128  # rows that are worth joining the sums of their bands
CROSSED = 16  # as many where columns are read, so that lines stay until used whole
MIN_STRIP = 16
AHEAD = 1 << 14  # bytes ahead of a loop that memory is asked for
STRIP_BYTES = 1 << 18  # of a strip that is passed over several times


def crosses(region: Region) -> bool:
    """Return whether a read steps by more than one element where the innermost loop does."""
    if region.row or region.depth < 2:
        return False
    inner = region.depth - 1
    return any(
        access.axes[inner] is not None and not access.unit for access in region.accesses.values()
    )


class Binding(RegionNumbers):
    """The numbers of one region for one set of sizes.

    Attributes
    ----------
    width, strips
        Elements in a strip of the innermost loop, and how many strips there are.
    group, rows, bands
        Where columns are folded (`Region.columns`): short rows that are taken as one, the rows
        that these make, and into how many bands they are cut.
    items
        Rows, or strips of rows, that the outer loops and strips make together; strips of bands.
    work
        Units of work of one item.
    workspace
        Bytes of scratch memory.
    """

    def __init__(self, region: Region, sizes: Mapping[str, int], threads: int) -> None:
        super().__init__(region, sizes)
        self.threads = max(1, threads)
        outer = [i for i in region.outer if not (region.strip and i == region.depth - 1)]
        rows = math.prod(self.extents[i] for i in outer)
        inside = math.prod(self.extents[i] for i in region.row)
        self.width = self.strips = self.rows = self.bands = 1
        if region.columns:
            self._share_columns()
            self._place()
            return
        if region.strip:
            count = self.extents[region.depth - 1]
            self.width = self._width(count, rows, inside)
            self.strips = -(-count // self.width)
            inside *= min(count, self.width)
        self.items = rows * self.strips
        self.work = max(1, inside * self._effort())
        self._place()

    def _share_columns(self) -> None:
        """Cut rows into bands and columns into strips: an item is a strip of a band.

        Few rows are one band: a strip of all has its sums at once. Many are a band a thread, whose
        sums are joined: wide strips are what memory is read fastest in.
        """
        region, count = self.region, self.extents[self.region.depth - 1]
        self.rows = math.prod(self.extents[: region.depth - 1])
        packed = region.flat and all(
            access.axes[0] is None or self.read(i)[1][0] == count
            for i, (node, access) in enumerate(region.accesses.items())
            if is_among(node, region.walk.passes[0])
        )
        if packed and 0 < count <= FLAT // 2:
            self.group = max(1, min(FLAT // count, self.rows))
        self.rows = -(-self.rows // self.group)
        wide = count * self.group
        effort = self._effort()
        threads = max(1, min(self.threads, self.rows * wide * effort // SHARE))
        self.width = max(FLAT, COLUMNS // len(region.folds))
        if threads > 1 and self.rows >= TALL:
            self.bands = threads
        elif threads > 1:
            strips = -(-wide // (self.width * threads)) * threads
            self.width = max(FLAT, -(-wide // (strips * MIN_STRIP)) * MIN_STRIP)
        self.strips = -(-wide // self.width)
        self.items = self.strips * self.bands
        self.work = max(1, -(-self.rows // self.bands) * min(wide, self.width) * effort)

    def _width(self, count: int, rows: int, inside: int) -> int:
        """Return how much of the innermost loop is one item."""
        region = self.region
        if not region.row:
            return CROSSED if crosses(region) else BLOCK
        size = 8 * len(region.saved) + sum(
            node.dtype.itemsize
            for node in region.accesses
            if region.values[node].loops & region.row
        )
        fitting = STRIP_BYTES // max(1, inside * size)
        worth = count * rows * inside * self._effort() // SHARE
        shared = count * rows // (2 * max(1, min(self.threads, worth)))
        width = max(MIN_STRIP, min(fitting, shared, region.saved_width))
        return width // MIN_STRIP * MIN_STRIP

    def _effort(self) -> int:
        """Return units of work per element."""
        region = self.region
        nodes = [n for n in self._nodes if n.inputs and region.values[n].source is n]
        calls = sum(8 for n in nodes if costly(n))
        return region.passes + (len(nodes) + calls) // 4

    def _place(self) -> None:
        """Lay out the workspace: a line per thread for each cross fold and each saved value."""
        region, at = self.region, 0
        self._lines: list[list[int]] = []
        self._saved: list[int] = []
        for position, fold in enumerate(region.folds):
            row = fold.row and not region.columns
            pieces = 0 if row else 2 if indexed(fold.node.op) else 1
            size = self.threads * self.line_size(position)
            self._lines.append([at + piece * size for piece in range(pieces)])
            at += pieces * size
        for _ in region.saved:
            self._saved.append(at)
            at += self.threads * self.saved_size()
        self.workspace = at

    def shift(self, start: int) -> None:
        """Move everything in the workspace: several bodies share one."""
        self._lines = [[place + start for place in places] for places in self._lines]
        self._saved = [place + start for place in self._saved]

    # ---- What generated code asks for

    def strip_width(self) -> int:
        """Return the elements of a strip."""
        return self.width

    def strip_count(self) -> int:
        """Return the number of strips."""
        return self.strips

    def band_count(self) -> int:
        """Return the number of bands."""
        return self.bands

    def band_height(self) -> int:
        """Return the rows of a band."""
        return -(-self.rows // self.bands)

    def row_count(self) -> int:
        """Return the rows of all bands."""
        return self.rows

    def row_group(self) -> int:
        """Return how many short rows are taken as one."""
        return self.group

    def read_ahead(self, position: int) -> int:
        """Return how many elements ahead of its loop a kernel asks memory for; 0: it does not.

        Not where caches hold half of what is moved or more. What is asked for is to be read later:
        the rows of an array follow one another, or are long.
        """
        if dims.evaluate(self.region.bytes, self.sizes) <= last_level() // 2:
            return 0
        inner, steps = self.region.depth - 1, self.read(position)[1]
        node = list(self.region.accesses)[position]
        count = AHEAD // node.dtype.itemsize
        following = inner == 0 or steps[inner - 1] == self.extents[inner]
        return count if following or self.extents[inner] >= 8 * count else 0

    def line_place(self, fold: int, piece: int) -> int:
        """Return where in the workspace the lines of a fold (or of its positions) begin."""
        return self._lines[fold][piece]

    def saved_place(self, position: int) -> int:
        """Return where in the workspace the rows of a saved value begin."""
        return self._saved[position]

    def saved_size(self) -> int:
        """Return the bytes of a saved row."""
        row = math.prod(self.extents[i] for i in self.region.row)
        size = saved_itemsize(self.region.saved[0])
        if self.region.batched:
            return self.rows_together() * self.saved_row() * size
        return -(-row * self.region.saved_width * size // 64) * 64

    def saved_row(self) -> int:
        """Return how far apart in the workspace rows that go together are saved.

        A group of lanes at the end of a row is written whole.
        """
        row = math.prod(self.extents[i] for i in self.region.row)
        size = saved_itemsize(self.region.saved[0])
        return (-(-row * size // 64) + 1) * 64 // size

    def rows_together(self) -> int:
        """Return how many rows go together from pass to pass."""
        region = self.region
        row = math.prod(self.extents[i] for i in region.row)
        size = sum(saved_itemsize(node) for node in region.saved) + sum(
            node.dtype.itemsize
            for node in region.accesses
            if region.values[node].loops & region.row
        )
        return max(1, min(TOGETHER, TOGETHER_BYTES // max(1, row * size + 128)))

    def saved_step(self, loop: int) -> int:
        """Return the stride along one loop in a saved row."""
        row = sorted(self.region.row)
        after = math.prod(self.extents[i] for i in row[row.index(loop) + 1 :])
        return after * self.region.saved_width

