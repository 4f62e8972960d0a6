"""How the work of a region is shared out to blocks and threads, for given sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...ir import dims
from ...ir.fallback import Refused
from ...ir.identity import is_among
from ...ir.plan import WHOLE
from ...ir.records import record
from ..region.parts import indexed, late_groups
from ..region_numbers import RegionNumbers
from .columns import GROUP
from .kernels import ALONE_NAME, RegionKernels
from .limits import (
    COLUMN_SUMS,
    COLUMN_THREADS,
    ENTRIES,
    KEEPING_THREADS,
    LANES,
    MAX_THREADS,
    MULTIPROCESSORS,
    PARTS,
    TALL_THREADS,
    THREADS,
    TILE_THREADS,
    WINDOW_THREADS,
    threads_of_row,
)
from .narrow import Narrow
from .tiles import Tiles
from .windows import Windows

__all__ = [
    "WIDE", "Grid", "Launch", "LaunchConfig", "cost_of_grid", "launches_of", "lines_for",
]

WIDE = 1 << 30  # elements, from which on positions are 64-bit numbers
QUICK = 1 << 13  # partial results and elements that one block is done with soon
LAST = 8  # blocks a multiprocessor, up to which the last one may end the sums: all wait for memory
MOST_BLOCKS = 1 << 20  # a grid may have more, and blocks go on where there are more rows
MOST_ROWS = 1 << 16  # of which each has a block, and a partial result, of its own
ROWS_OWN = 8  # that a worker with sums across them adds up, at least
ALONE = 32  # blocks a multiprocessor, from which on waiting costs more than overlapping gains
FEW = 512  # vectors of all rows for each multiprocessor, up to which threads take two at most
WINDOWS = 1 << 16  # elements, from which on threads may have some each
WIDE_WINDOWS = (128, 64)  # threads of a window side by side, where few are idle: edges cost reads
NARROWEST = 16  # iterations of a loop that are worth a tile's side
MANY = 1 << 21  # elements, from which wide reads gain more than more blocks
MOST_CHUNKS = 65535  # blocks along a grid's second axis
TALL_ROWS = 16  # of a thread that takes neighbours down some rows
ROWS_STRAIGHT = 16  # rows a thread that are added up faster than partial results are joined
SHORT = 128  # threads of a multiprocessor that take about as long as a launch
AHEAD = 24 << 10  # bytes for each multiprocessor that are brought to the cache before they are read
FILLED = 8  # blocks of strips a multiprocessor, from which on few threads a row are enough
STRIP_PARTS = 8
FAR = 1 << 26  # bytes of all rows, from which on they do not lie in the cache anyway

Grid = tuple[int, int, int]


@record(frozen=True)
class Launch:
    """One launch of a kernel.

    Attributes
    ----------
    kernel
        Its name.
    grid, block
        Blocks, and threads of each.
    numbers
        Its arguments behind the operands.
    alone
        Whether it begins when all before it is done. Blocks that overlap with them wait, and each
        that waits is launched later, by 32 ns a block of a multiprocessor.
    """

    kernel: str
    grid: Grid
    block: Grid
    numbers: tuple[int, ...]
    alone: bool = False


class LaunchConfig(RegionNumbers):
    """How the work of a region is shared out for given sizes, and the numbers of its kernels.

    Parameters
    ----------
    kernels
        Of the region.
    sizes
        The size of every dimension.
    lines
        For how many workers the workspace was planned.
    multiprocessors
        Of the device.
    """

    def __init__(
        self,
        kernels: RegionKernels,
        sizes: Mapping[str, int],
        lines: int,
        multiprocessors: int = MULTIPROCESSORS,
    ) -> None:
        super().__init__(kernels.region, sizes)
        self.kernels = kernels
        self.lines = max(1, lines)
        self.places: list[int] = []
        at = 0
        for position, fold in enumerate(self.region.folds):
            self.places.append(at)
            if not fold.row:
                pieces = 2 if indexed(fold.node.op) else 1
                at += pieces * self.lines * self.line_size(position)
        self.multiprocessors = multiprocessors
        inner = kernels.inner
        most = kernels.widths[-1]
        self.vector = self.vector_width(inner, most) if inner >= 0 and most > 1 else 1
        self.used_lines: dict[int, int] = {}

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

    def groups(self, width: int) -> int:
        """Return how many vectors the region has."""
        return self.product(*range(self.region.depth)) // width

    def row_groups(self, width: int) -> int:
        """Return how many vectors a row has."""
        return self.product(*self.region.row) // width

    lanes = LANES  # threads side by side along the innermost loop

    def strips_of(self, width: int) -> int:
        """Return how many widths of so many lanes the innermost loop has."""
        return -(-self.extents[self.kernels.inner] // (self.lanes * width))

    def row_items(self, width: int) -> int:
        """Return how many rows, or strips of rows, workers take."""
        kernels = self.kernels
        count = self.product(*(i for i in kernels.outer if i != kernels.inner or not self._strip))
        return count * (self.strips_of(1) if self._strip else 1)

    @property
    def _strip(self) -> bool:
        return self.kernels.way == "strips"

    def rows_of_chunk(self, *loops: int) -> int:
        """Return how many rows each of the blocks that share them has, at least."""
        return self.product(*loops) // self._chunks

    def rows_over(self, *loops: int) -> int:
        """Return how many of these blocks, the first ones, have a row more."""
        return self.product(*loops) % self._chunks

    def tiles_along(self, loop: int, side: int) -> int:
        """Return how many tiles of a side there are along a loop."""
        return -(-self.extents[loop] // side)

    def tile_count(self, along: int, side: int) -> int:
        """Return how many tiles of the innermost and another loop the region has."""
        inner = self.kernels.inner
        others = (i for i in range(self.region.depth) if i not in (along, inner))
        return self.tiles_along(inner, side) * self.tiles_along(along, side) * self.product(*others)

    def window_strips(self) -> int:
        """Return how many blocks of a window there are along the innermost loop."""
        return -(-self.extents[self.kernels.inner] // self._window[0])

    def window_bands(self, rows: int) -> int:
        """Return how many there are along the loop of a thread's elements."""
        assert self.kernels.windows is not None
        down = self.kernels.windows.down
        across = self._window[down != self.kernels.inner]
        return -(-self.extents[down] // (rows * across))

    def window_count(self, rows: int) -> int:
        """Return how many there are."""
        others = self.product(*range(self.region.depth - 2))
        return self.window_strips() * self.window_bands(rows) * others

    def line_count(self, position: int) -> int:
        """Return how many lines of partial results a fold has."""
        return self.used_lines[position]

    def numbers(self) -> list[int]:
        """Return the numbers that the kernels receive, in order."""
        return [self.number(what, where) for what, where in self.kernels.code.numbers]

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

    def _tile_width(self, tiles: Tiles) -> int:
        """Return how many neighbours of a tile can be moved at a time."""
        most, along = tiles.width, tiles.along
        if self.extents[along] % most or self.vector_width(self.kernels.inner, most) < most:
            return 1
        places = [i for i, node in enumerate(self.region.accesses) if is_among(node, tiles.reads)]
        moved = [self.read(place) for place in places]
        moved += [(0, output.bind(self.sizes)) for output in tiles.writes]
        return most if all(self._even(*move, along, most) for move in moved) else 1

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

    # ---- Shares

    keeps = False  # whether threads keep what they read of a row
    few_lanes = False  # whether rows have a few lanes of a warp each
    windowed = False  # whether threads have elements below each other
    _window = (LANES, 1)  # of how many threads blocks of them are, along the last two loops
    tiled = False  # whether operands in another order go through tiles
    tall = False  # whether threads take neighbours down some rows
    straight = False  # whether the main kernel has columns whole, and computes everything
    tail = False  # whether the block that is done last computes the rest
    _in_order = False  # whether each row that is kept has a block of its own
    _chunks = 1  # blocks that share the rows of some columns
    _beside = 1  # blocks beside each other that have a partial result of no axes each
    counter = 0  # the address at which blocks that are done are counted

    def counter_address(self) -> int:
        """Return where blocks that are done are counted."""
        return self.counter

    def ends_itself(self) -> int:
        """Return 1 where the block that is done last ends the sums, else 0."""
        return int(self.tail)

    def _is_quick(self) -> bool:
        """Return whether one block ends the sums faster than launches of their own."""
        work = 0
        for position, fold in enumerate(self.region.folds):
            if not fold.row:
                work += self.used_lines[position] * (
                    self.line_length(position) if fold.kept else 1
                )
        for outputs in late_groups(self.region):
            work += self.product(*self.region.values[outputs[0].node].shape_loops)
        return work <= QUICK

    def main(self) -> tuple[str, Grid, Grid]:
        """Return the main launch: the end of the kernel's name, its grid and its block."""
        ways = {
            "flat": self._flat,
            "columns": self._columns,
            "rows": self._rows,
            "strips": self._strips,
        }
        grid, block, workers = ways[self.kernels.way]()
        for position, fold in enumerate(self.region.folds):
            if not fold.row:
                single = workers if fold.kept else workers * self._beside
                self.used_lines[position] = single
        few = math.prod(grid) <= LAST * self.multiprocessors
        self.tail = bool(self.used_lines) and not self.straight and few and self._is_quick()
        kinds = (
            ("d", self.straight), ("n", self.few_lanes), ("k", self.keeps), ("t", self.tall),
            ("x", self.tiled), ("w", self.windowed),
        )
        kind = next((letter for letter, chosen in kinds if chosen), "v")
        return f"{kind}{self.vector}", grid, block

    def _flat(self) -> tuple[Grid, Grid, int]:
        tiles = self.kernels.tiles
        if tiles is not None and NARROWEST <= min(
            self.extents[tiles.along], self.extents[self.kernels.inner]
        ):
            return self._tiles(tiles)
        windows = self.kernels.windows
        if windows is not None and self._fill_windows(windows):
            return self._windows(windows)
        if self.kernels.tall and self.vector == self.kernels.widths[-1] and self.elements >= MANY:
            return self._tall()
        groups = self.groups(self.vector) if self.region.depth else 1
        needed = -(-groups // THREADS)
        most = MOST_BLOCKS
        if self.region.folds:
            most = min(self.lines * ENTRIES, self.multiprocessors * 1024 // THREADS)
        blocks = max(1 if self.region.folds else 0, min(needed, most))
        return (blocks, 1, 1), (THREADS, 1, 1), blocks

    def _fill_windows(self, windows: Windows) -> bool:
        """Return whether blocks of windows are full enough, and choose their threads."""
        inner, count = self.kernels.inner, self.product(*range(self.region.depth))
        if count < WINDOWS or (self.vector > 1 and not windows.joined):
            return False
        across = WINDOW_THREADS
        if windows.down != inner:
            extent = self.extents[inner]
            fitting = (wide for wide in WIDE_WINDOWS if -extent % wide <= extent // 8)
            across = next(fitting, LANES)
        self._window = across, WINDOW_THREADS // across
        return 2 * count > self._window_blocks(windows) * WINDOW_THREADS * windows.rows

    def _window_blocks(self, windows: Windows) -> int:
        along = windows.down == self.kernels.inner
        return self.window_bands(windows.rows) if along else self.window_count(windows.rows)

    def _windows(self, windows: Windows) -> tuple[Grid, Grid, int]:
        self.windowed, self.vector = True, 1
        return (min(self._window_blocks(windows), MOST_BLOCKS), 1, 1), (*self._window, 1), 0

    def _tiles(self, tiles: Tiles) -> tuple[Grid, Grid, int]:
        self.tiled = True
        self.vector = self._tile_width(tiles)
        lanes = tiles.lanes(self.vector)
        blocks = min(self.tile_count(tiles.along, tiles.side), MOST_BLOCKS)
        return (blocks, 1, 1), (lanes, TILE_THREADS // lanes, 1), 0

    def _tall(self) -> tuple[Grid, Grid, int]:
        self.tall = True
        self._narrow_lanes()
        parts = TALL_THREADS // self.lanes
        rows = self.product(*range(self.kernels.inner))
        chunks = min(MOST_CHUNKS, -(-rows // (TALL_ROWS * parts)))
        self._chunks = chunks
        return (self.strips_of(self.vector), chunks, 1), (self.lanes, parts, 1), 0

    def _narrow_lanes(self) -> None:
        """Take so few threads side by side that none is beyond narrow rows."""
        while self.lanes > 1 and self.strips_of(self.vector) == 1 and (
            self.lanes // 2 * self.vector >= self.extents[self.kernels.inner]
        ):
            self.lanes //= 2

    def _columns(self) -> tuple[Grid, Grid, int]:
        kernels = self.kernels
        around = self.product(*kernels.kept_loops[:-1])
        rows = self.product(*kernels.gone_loops)
        each = 4  # rows of a thread, at least
        many = around * self.extents[kernels.inner] * rows >= MANY
        if many and self.vector > 1:
            each = GROUP
            if all(fold.kept for fold in kernels.cross):  # else a warp adds up its lanes
                self._narrow_lanes()
        elif around * self.strips_of(1) <= 2 * self.multiprocessors:
            self.vector = 1  # more blocks, rather than wider reads
        columns = around * self.strips_of(self.vector)
        threads = COLUMN_THREADS
        if self.vector == 1 and kernels.direct and rows > ROWS_STRAIGHT * threads // self.lanes:
            # Twice as many may still add up all rows at once.
            wide = rows <= ROWS_STRAIGHT * MAX_THREADS // self.lanes
            threads = MAX_THREADS if wide else threads
        parts = max(LANES // self.lanes, min(threads // self.lanes, _power(rows)))
        resident = 2048
        if many and self.vector > 1:  # as many as their registers leave room for
            full = self.vector * len(kernels.cross) >= COLUMN_SUMS
            resident = COLUMN_THREADS if full else 2 * COLUMN_THREADS
        chunks_to_fill = -(-self.multiprocessors * resident // max(1, columns * self.lanes * parts))
        most = min(self.lines, self.lines * ENTRIES // max(1, columns)) or 1
        if all(fold.kept for fold in kernels.cross):
            most = self.lines
        elif columns > self.lines * ENTRIES:
            raise Refused("too many columns for the partial sums of all rows")
        chunks = max(1, min(chunks_to_fill, most, -(-rows // (each * parts))))
        self._beside = columns
        if kernels.direct and (chunks == 1 or rows <= ROWS_STRAIGHT * parts):
            self.straight, chunks = True, 1
        self._chunks = chunks
        return (columns, chunks, 1), (self.lanes, parts, 1), chunks

    def _rows(self) -> tuple[Grid, Grid, int]:
        groups = self.row_groups(self.vector)
        items = self.row_items(self.vector)
        kernels = self.kernels
        widest = self.vector == kernels.widths[-1]
        many = items * groups > FEW * self.multiprocessors
        narrow = kernels.narrows.get(self.vector)
        if narrow is not None and (many or narrow.short) and narrow.serves(groups):
            return self._few_lanes(narrow, groups, items)
        kept = kernels.most_parts(self.vector)
        self.keeps = kernels.keeps and widest and 0 < groups <= kept * KEEPING_THREADS
        most, parts = (KEEPING_THREADS, kept) if self.keeps else (MAX_THREADS, PARTS)
        if self.keeps and kernels.own:
            parts = 1  # more threads, rather than more sums for each
        elif not many:
            parts = 2  # more threads, rather than more work for each
        threads = threads_of_row(groups, parts, most)
        beside = 8 if threads == LANES else 1
        return self._worker_grid(items, (threads, 1, beside))

    def _few_lanes(self, narrow: Narrow, groups: int, items: int) -> tuple[Grid, Grid, int]:
        self.few_lanes = True
        block = narrow.block(groups)
        while math.prod(block) > LANES and items < self.multiprocessors * narrow.rows(block):
            block = (block[0], 1, block[2] // 2)  # few rows: more blocks
        rows = narrow.rows(block)
        blocks = min(-(-items // rows), MOST_BLOCKS)
        return (blocks, 1, 1), block, blocks * rows

    def rows_ahead(self) -> int:
        """Return how far ahead rows are brought into the second-level cache, 0 where they are not.

        That is worth it where each row has a block of its own, in their order, comes from memory,
        and as long a one is written: memory that has writes to do, too, is asked for rows one
        behind the other then. Where rows are only read, the bulk copies compete with the reads.
        """
        written = any(output.element and not output.epilogue for output in self.region.outputs)
        if not self._in_order or not written:
            return 0
        row = sum(self.bytes_ahead(position) for position in range(len(self.region.accesses)))
        if not row or row * self.row_items(self.vector) < FAR:
            return 0
        return AHEAD * self.multiprocessors // row

    def bytes_ahead(self, position: int) -> int:
        """Return the bytes of an operand's row where rows are contiguous, else 0."""
        region = self.region
        node = list(region.accesses)[position]
        loops = range(region.depth)
        if region.values[node].loops != set(loops) or region.row != set(loops[-len(region.row) :]):
            return 0
        steps, behind = self.read(position)[1], 1
        for loop in reversed(loops):
            if self.extents[loop] > 1 and steps[loop] != behind:
                return 0
            behind *= self.extents[loop]
        size = self.product(*region.row) * node.dtype.itemsize
        return size if size % 16 == 0 else 0

    def _strips(self) -> tuple[Grid, Grid, int]:
        rows = self.product(*self.region.row)
        items = self.row_items(1)
        if items < self.multiprocessors:
            parts = min(32, _power(rows))  # few rows: their elements are shared out
        else:
            parts = 1 if rows <= 32 else min(32, _power(rows // 4))
            if items >= FILLED * self.multiprocessors:
                parts = min(parts, STRIP_PARTS)  # blocks that end soon wait for each other less
        return self._worker_grid(items, (LANES, parts, 8 if parts == 1 else 1))

    def _worker_grid(
        self, items: int, block: Grid
    ) -> tuple[Grid, Grid, int]:
        beside = block[2]
        cross = self.kernels.cross
        most = MOST_BLOCKS
        if cross:
            lines = self.lines
            if not any(fold.kept for fold in cross):  # many fit where one with axes does
                lines *= ENTRIES
                if lines < items or not self.keeps:
                    lines = min(lines, self.multiprocessors * self._resident(block) * beside)
            if lines < beside:
                block, beside = (block[0], block[1], 1), 1
            most = max(1, lines // beside)
        blocks = max(1 if cross else 0, min(-(-items // beside), most))
        self._in_order = self.keeps and blocks * beside >= items
        return (blocks, 1, 1), block, blocks * beside

    def wanted_lines(self) -> int:
        """Return how many lines of partial results there should be.

        Rows that are kept, each by a block of its own, take the time of a copy; blocks that go on
        with other rows take an eighth more. So each row has a partial result where those are few.
        """
        if self.kernels.way == "columns" and all(fold.kept for fold in self.kernels.cross):
            return max(1, min(self.lines, self.product(*self.kernels.gone_loops)))  # a row each
        if self.kernels.way != "rows":
            return self.lines
        if any(fold.kept for fold in self.kernels.cross):
            return self._own_lines() if self.kernels.own else self.lines
        block = self._rows()[1]
        items = self.row_items(self.vector)
        single = self.keeps and block[2] == 1 and items <= MOST_ROWS
        return max(self.lines, -(-items // ENTRIES)) if single else self.lines

    def _own_lines(self) -> int:
        """Return how many workers keep a multiprocessor busy that have sums across rows.

        They add up some rows each, so that partial results are few beside what is read.
        """
        block, items = self._rows()[1], self.row_items(self.vector)
        if not self.keeps:
            return self.lines
        workers = self.multiprocessors * self._resident(block) * block[2]
        return max(1, min(workers, -(-items // ROWS_OWN)))

    def _resident(self, block: Grid) -> int:
        """Return how many blocks a multiprocessor has at a time: more would wait for their end."""
        if not self.keeps:
            return 4
        return self.kernels.resident * KEEPING_THREADS // math.prod(block)

    def _join_parts(self, position: int) -> int:
        """Return how many rows of threads add up the lines of a fold."""
        lines = self.used_lines[position]
        if self.region.folds[position].kept:
            return min(32, _power(lines))
        return max(8, min(32, _power(lines // LANES)))

    def finish(self) -> list[tuple[str, Grid, Grid]]:
        """Return the launches that add up partial results and use them."""
        launches = []
        if self.kernels.joined:
            fold = self.kernels.cross[0]
            position = self.kernels.code.position_of(fold)
            blocks = -(-self.line_length(position) // LANES) if fold.kept else 1
            return [("end", (blocks, 1, 1), (LANES, self._join_parts(position), 1))]
        for position, fold in enumerate(self.region.folds):
            if fold.row:
                continue
            length = self.line_length(position) if fold.kept else 1
            blocks = -(-length // LANES) if fold.kept else 1
            parts = self._join_parts(position)
            launches.append((f"join{position}", (blocks, 1, 1), (LANES, parts, 1)))
        for position, outputs in enumerate(late_groups(self.region)):
            loops = self.region.values[outputs[0].node].shape_loops
            count = self.product(*loops)
            blocks = min(-(-count // THREADS), self.multiprocessors * 16)
            launches.append((f"late{position}", (blocks, 1, 1), (THREADS, 1, 1)))
        return launches


def launches_of(
    kernels: RegionKernels,
    sizes: Mapping[str, int],
    lines: int,
    counter: int = 0,
    tail: bool = True,
    multiprocessors: int = MULTIPROCESSORS,
) -> tuple[list[Launch], bool]:
    """Return the launches of a region for given sizes, and whether positions need 64 bits.

    Parameters
    ----------
    kernels
        Of the region.
    sizes
        The size of every dimension.
    lines
        For how many workers the workspace was planned.
    counter
        The address of a zero, 4 bytes, that only these launches use.
    tail
        Whether the main kernel may end sums itself.
    multiprocessors
        Of the device.
    """
    shares = LaunchConfig(kernels, sizes, lines, multiprocessors)
    shares.counter = counter
    launches = [shares.main()]
    shares.tail = shares.tail and tail
    many = ALONE * multiprocessors
    # Columns that are not there have no blocks, and the sum of all of them is still zero.
    empty = not math.prod(launches[0][1])
    if kernels.cross and (empty or not (shares.straight or shares.tail)):
        launches += shares.finish()
    numbers = tuple(shares.numbers())
    result = []
    for suffix, grid, block in launches:
        alone = math.prod(grid) > many
        if grid[0]:
            name = f"{kernels.key}_{suffix}{ALONE_NAME if alone else ''}"
            result.append(Launch(name, grid, block, numbers, alone))
    return result, shares.elements > WIDE


def lines_for(
    kernels: RegionKernels,
    sizes: Mapping[str, int],
    lines: int,
    multiprocessors: int = MULTIPROCESSORS,
) -> int:
    """Return for how many workers there should be a workspace: as many as `lines`, or more.

    Parameters are those of `launches_of`.
    """
    if not kernels.cross or not (kernels.keeps or kernels.way == "columns"):
        return lines
    return LaunchConfig(kernels, sizes, lines, multiprocessors).wanted_lines()


def cost_of_grid(
    grid: Sequence[int], block: Sequence[int], multiprocessors: int
) -> float:
    """Return about how long a launch takes, by its blocks and threads: 1 to `WHOLE`.

    1 is for what leaves half of the multiprocessors without a block.
    """
    blocks = math.prod(grid)
    if 2 * blocks < multiprocessors:
        return 1.0
    return min(1 + blocks * math.prod(block) / (multiprocessors * SHORT), WHOLE)


def _power(count: int) -> int:
    """Return the largest power of two that is not above a count."""
    return 1 << max(0, count.bit_length() - 1)
