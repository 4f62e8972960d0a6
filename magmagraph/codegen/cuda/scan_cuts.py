"""How a scan is cut into blocks, for given sizes."""

from __future__ import annotations

import math

from ...ir.op import Op
from ...ir.records import record
from ...ir.types import Type
from ...ops.reduction.cumulative import CUMLOGSUMEXP, CUMMAX, CUMMIN, CUMPROD, CUMSUM
from ...ops.reduction.recurrence import LINEAR_RECURRENCE
from ..steps import shape_of
from .gathering_code import widest
from .scanning_code import LINE_THREADS, Scan, state_bytes

__all__ = ["HOW", "ScanCut", "cut_of_scan", "scan_of", "shares_of"]

HOW: dict[Op, str] = {
    CUMSUM: "add",
    CUMPROD: "multiply",
    CUMMAX: "max",
    CUMMIN: "min",
    CUMLOGSUMEXP: "logsumexp",
    LINEAR_RECURRENCE: "recurrence",
}
FEW = 32  # columns up to which a tile of all of them goes through shared memory
LEAST = 2  # tiles of a line's part, at least
EACH = 4  # parts of lines for each multiprocessor
_PARTS = {"complex64": "float32", "complex128": "float64", "bool": "uint8"}  # what kernels move


@record(frozen=True)
class ScanCut:
    """The kernels of a scan, and what their blocks have.

    Attributes
    ----------
    scan
        The kernels.
    layout
        Extents of the axes before the scanned one (as one), of itself, and of those behind it.
    itemsize
        Bytes of an element that kernels move.
    blocks
        How many take whole lines.
    shares
        Parts of a line, each of another block.
    rows
        Of a part.
    slabs
        Indices of the axes before that a block has.
    """

    scan: Scan
    layout: tuple[int, int, int]
    itemsize: int
    blocks: int
    shares: int
    rows: int
    slabs: int

    @property
    def scratch(self) -> int:
        """Bytes of what the parts of lines combine to."""
        outer, _, inner = self.layout
        return outer * self.shares * inner * state_bytes(self.scan) if self.shares > 1 else 0

    @property
    def numbers(self) -> list[int]:
        """The kernels' arguments behind their addresses."""
        return [*self.layout, self.shares, self.rows, self.slabs]

    def moving(self, width: int) -> ScanCut:
        """Return the same cut with so many elements moved at once."""
        return ScanCut(
            self.scan._replace(width=width), self.layout, self.itemsize, self.blocks, self.shares,
            self.rows, self.slabs,
        )


def cut_of_scan(op: Op, type_: Type, axis: int, reverse: bool, multiprocessors: int) -> ScanCut:
    """Return how a scan is cut; of an array without elements, into no blocks.

    Parameters
    ----------
    op, axis, reverse
        The scan.
    type_
        Of its result, with sizes.
    multiprocessors
        Of the device.

    Examples
    --------
    >>> import numpy as np
    >>> cut = cut_of_scan(CUMSUM, Type(np.dtype("f4"), (8, 1 << 20)), 1, False, 132)
    >>> cut.blocks, cut.shares, cut.rows
    (8, 64, 16384)
    """
    shape, dtype = shape_of(type_), type_.dtype
    parts = 2 if dtype.kind == "c" else 1
    outer, count = math.prod(shape[:axis]), shape[axis]
    inner = parts * math.prod(shape[axis + 1 :])
    layout, itemsize = (outer, count, inner), dtype.itemsize // parts
    name = _PARTS.get(dtype.name, dtype.name)
    if not outer * count * inner:
        none = Scan(name, HOW[op], reverse, False, 0, 0, 0, 1)
        return ScanCut(none, layout, itemsize, 0, 0, 0, 0)
    scan = scan_of(name, HOW[op], reverse, layout, itemsize, multiprocessors)
    rows = scan.segments * scan.items
    tiles = -(-count // rows)
    slabs = 1
    if scan.columns:
        columns = scan.threads // scan.segments
        blocks = outer * -(-inner // columns)
    else:
        if tiles == 1:
            slabs = scan.threads // (scan.segments * inner)
        blocks = -(-outer // slabs)
    share = -(-tiles // shares_of(blocks, tiles, multiprocessors))
    shares = -(-tiles // share)
    return ScanCut(scan, layout, itemsize, blocks, shares, share * rows, slabs)


def _power(count: int) -> int:
    """Return the least power of two of at least `count`."""
    return 1 << max(0, count - 1).bit_length()


def scan_of(
    dtype: str, how: str, reverse: bool, layout: tuple[int, int, int], itemsize: int,
    multiprocessors: int,
) -> Scan:  # fmt: skip
    """Return the kernels that scan the middle axis of a layout.

    Parameters
    ----------
    dtype, how, reverse
        See `Scan`.
    layout
        Extents of the axes before the scanned one (as one), of itself, and of those behind it.
    itemsize
        Bytes of an element.
    multiprocessors
        Of the device.

    Examples
    --------
    >>> scan_of("float32", "add", False, (1000, 300, 1), 4, 132)[3:]
    (False, 256, 32, 16, 4)
    >>> scan_of("float32", "add", False, (1, 4096, 4096), 4, 132)[3:]
    (True, 1024, 32, 8, 1)
    """
    outer, count, inner = layout
    wide = itemsize == 8 or how in ("logsumexp", "recurrence")
    if inner <= FEW:
        items = 8 if wide else 16
        # The largest power of two that leaves threads for all columns.
        most = 1 << (LINE_THREADS // inner).bit_length() - 1
        segments = min(_power(-(-count // items)), most)
        width = widest(count * inner, itemsize)
        return Scan(dtype, how, reverse, False, LINE_THREADS, segments, items, width)
    items = 4 if wide else 8
    segments = min(8, _power(-(-count // items)))
    threads = LINE_THREADS
    if segments == 8 and outer * -(-inner // 32) < 2 * multiprocessors:
        segments = min(32, _power(-(-count // items)))
        threads = 32 * segments
    return Scan(dtype, how, reverse, True, threads, segments, items, 1)


def shares_of(blocks: int, tiles: int, multiprocessors: int) -> int:
    """Return into how many parts a line is cut, where so many blocks take whole lines.

    Parts are read twice, so lines are whole where their blocks fill the device.

    Examples
    --------
    >>> shares_of(1, 4096, 132), shares_of(1, 3, 132), shares_of(128, 32, 132)
    (528, 1, 1)
    """
    if 4 * blocks >= 3 * multiprocessors:
        return 1
    return max(1, min(tiles // LEAST, EACH * multiprocessors // blocks))
