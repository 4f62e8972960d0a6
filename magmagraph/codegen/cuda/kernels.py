"""CUDA C for one region: the kernels that compute it, and how they are launched.

The iteration space of a region (see `codegen.region`) is given to threads in one of four ways:

- *flat*: nothing is reduced but to single numbers. Threads take elements in turn.
- *columns*: what is reduced lies across the innermost loop. Lanes of a warp take neighbouring
  columns, the parts of a block and several blocks share the rows.
- *rows*: each row is reduced, and passed over again, by the threads of a warp or a block.
- *strips*: rows across the innermost loop, or short rows with sums across them; lanes take rows
  side by side.

What is folded across rows goes into lines of partial results, one a worker, in the workspace; the
block that is done last, or a second launch, adds the lines up, in a fixed order, and computes what
depends on them. So results do not depend on which block ran when.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ...ir.fallback import Refused
from ...ir.graph import Node
from ..c.text import indent
from ..region.analysis import Region
from ..region.parts import Walk, late_groups
from .columns import Columns
from .cuda_code import HALF_WARP, CudaCode, RegisterValues
from .final_reduction import FinalReduction
from .flat import flat
from .limits import (
    COLUMN_SUMS,
    COLUMN_THREADS,
    KEEPING_BLOCKS,
    KEEPING_THREADS,
    MAX_THREADS,
    OWN_BLOCKS,
    OWN_WORDS,
    ROOM,
    TALL_THREADS,
    THREADS,
    TILE_THREADS,
    WINDOW_THREADS,
    kept_parts,
    threads_of_row,
)
from .narrow import THREADS_BESIDE, Narrow, narrow_rows
from .rows import Workers
from .tiles import tiles_of
from .windows import windows_of

__all__ = ["ALONE_NAME", "RegionKernels"]

ALONE_NAME = "_alone"  # how the names of kernels end that do not overlap with those before them
_WAITS = "    mg_begin();\n"
COMMON = 2  # operands that all rows share, from which on it pays to read them once for many rows
NARROWEST = 4  # neighbours of a thread that takes many rows
MOST_READS = 12  # of an element, up to which half the registers are room for eight neighbours
_ENDS = ("end", "join", "late")


class RegionKernels:
    """The kernels of one region.

    Attributes
    ----------
    key
        A hash of the text: regions of one structure have the same.
    source
        The kernels; ``idx`` is the type of positions, ``mg_kernel`` stands for their names.
    texts
        The source of each kernel alone.
    suffixes
        How the kernels' names end: ``v4`` moves 4 neighbours at a time, ``d4`` computes columns
        whole, ``t4`` takes neighbours down some rows, ``x4`` goes through tiles, ``w1`` has threads
        take elements below each other, ``k4`` keeps rows in registers, ``n4`` has several rows a
        warp, ``end``, ``join`` and ``late`` end sums.
    way
        Which of the four ways.
    widths
        How many neighbours are moved at a time: one, and as many as 16 bytes hold.
    direct, keeps, tall
        Whether there are kernels that compute columns whole, keep rows, or read what all rows have
        in common once for many of them.
    own
        Whether threads that keep rows have sums across these in registers, each of its own places.
    tiles
        How operands in another order go through shared memory, if there are any.
    windows
        How threads take elements below each other, if rows may not lie on vectors.
    narrows
        How short rows are shared out to lanes of a warp, by what these move at a time.
    joined
        Whether one launch can end all sums.
    resident
        How many blocks that keep rows a multiprocessor has room for; 0 where none do.

    Raises
    ------
    Refused
        No way of the four fits.
    """

    def __init__(self, region: Region) -> None:
        self.region = region
        self.code = CudaCode(region)
        self.inner = region.depth - 1
        self.cross = self.code.cross
        self.outer = region.outer
        self.widths: tuple[int, ...] = (1,)
        self.resident = 0
        self.kept_loops: list[int] = []
        self.gone_loops: list[int] = []
        self.way = self._way()
        self.suffixes: list[str] = []
        self.texts: dict[str, str] = {}
        self.direct = self.way == "columns" and self._columns().can_be_whole()
        self.own = self.way == "rows" and bool(self.code.own())
        self.keeps = self.own or (self.way == "rows" and region.passes > 1)
        self.tall = self.way == "flat" and not self.cross and len(self._common()) >= COMMON
        self.tiles = tiles_of(self.code) if self.way == "flat" and not self.cross else None
        self.windows = windows_of(self.code) if self.way == "flat" and not self.cross else None
        self.narrows = self._narrows()
        self._ends = FinalReduction(self.code)
        self.joined = bool(self.cross) and self._ends.can_be_joined()
        parts = [self._main(width) for width in self.widths]
        if self.direct:
            parts += [self._whole(width) for width in self.widths]
        if self.keeps:
            parts.append(self._keeping(self.widths[-1]))
        parts += [self._narrow(width, narrow) for width, narrow in self.narrows.items()]
        if self.tall:
            self.code.scope = {}
            body = Columns(self.code, [self.inner], list(range(self.inner))).main(self.widths[-1])
            parts.append(self._kernel(f"t{self.widths[-1]}", body, TALL_THREADS))
        if self.tiles is not None:
            for width in self.tiles.widths:
                self.code.scope = {}
                body = self.tiles.main(width)
                parts.append(self._kernel(f"x{width}", body, TILE_THREADS))
        if self.windows is not None:
            self.code.scope = {}
            parts.append(self._kernel("w1", self.windows.main(), WINDOW_THREADS))
        if self.cross:
            parts += self._finish()
        self.source = "\n".join(parts)
        self.key = hashlib.sha256(self.source.encode()).hexdigest()[:16]

    def _way(self) -> str:
        region = self.region
        if not region.depth and region.loops:
            raise Refused("nothing runs over its axes before the end")
        if not region.row:
            kept = {frozenset(fold.kept) for fold in self.cross} - {frozenset()}
            self.widths = tuple(sorted({1, self._width()}))
            if not kept:
                return "flat"
            if len(kept) > 1 or self.inner not in next(iter(kept)):
                raise Refused("sums across rows keep different axes")
            width = self.widths[-1]
            while width > 1 and width * len(self.cross) > COLUMN_SUMS:
                width //= 2
            self.widths = tuple(sorted({1, width}))
            self.kept_loops = sorted(next(iter(kept)))
            self.gone_loops = [i for i in range(region.depth) if i not in self.kept_loops]
            return "columns"
        for fold in self.cross:
            kept_row = set(fold.kept) & region.row
            if fold.element and kept_row and kept_row != region.row:
                raise Refused("a sum across rows keeps some of a row's axes")
        if region.strip:
            return "strips"
        width, along = self._width(), region.loops[self.inner].extent
        while isinstance(along, int) and along % width:
            width //= 2
        self.widths = tuple(sorted({1, width}))
        return "rows"

    def _narrows(self) -> dict[int, Narrow]:
        """Return how short rows are shared out to lanes of a warp, by what these move at a time.

        What is folded across rows wants whole warps.
        """
        if self.way != "rows" or self.cross:
            return {}
        by_width = {width: narrow_rows(self.region, width) for width in self.widths}
        return {width: narrow for width, narrow in by_width.items() if narrow is not None}

    def _width(self) -> int:
        """Return how many neighbours fill 16 bytes of the widest operand.

        One that stays the same from row to row is in the cache, and may be read in two pieces.
        """
        moved = [n for n in self.region.accesses if self.code.moves(n)]
        whole = [n for n in moved if len(self.region.values[n].loops) == self.region.depth]
        sizes = [n.dtype.itemsize for n in whole or moved]
        rows = bool(self.region.row)  # what a row has one of is written alone
        sizes += [
            o.node.dtype.itemsize for o in self.region.outputs
            if not o.epilogue and (o.element or not rows)
        ]  # fmt: skip
        return max(1, min(8, 16 // max(sizes, default=16)))

    def _common(self) -> list[Node]:
        """Return the operands of which all rows read the same neighbours."""
        values, inner = self.region.values, frozenset((self.inner,))
        if self.region.depth < 2 or self.widths[-1] < NARROWEST:
            return []
        return [
            n for n in self.region.accesses if self.code.moves(n) and values[n].loops == inner
        ]

    # ---- Kernels

    def _columns(self) -> Columns:
        return Columns(self.code, self.kept_loops, self.gone_loops)

    def _main(self, width: int) -> str:
        self.code.scope = {}
        if self.way == "flat":
            body = flat(self.code, width)
        elif self.way == "columns":
            body = self._columns().main(width)
        else:
            body = Workers(self.code, self.way == "strips", width).main()
        threads, blocks = self._most_threads(width), self._least_blocks()
        return self._kernel(f"v{width}", [*body, *self._tail()], threads, blocks)

    def _whole(self, width: int) -> str:
        self.code.scope = {}
        body = self._columns().main(width, whole=True)
        return self._kernel(f"d{width}", body, self._most_threads(width))

    def _kept(self, width: int, narrow: Narrow | None = None) -> tuple[Workers, list[str]]:
        """Return workers that keep operands and costly values in registers; and their lines."""
        self.code.scope = {}
        parts = narrow.parts if narrow else self._kept_parts(width)
        again, walk = self.code.walk, Walk(self.region)
        if RegisterValues("", parts, width, walk.saved).fits:
            self.code.walk = walk
        workers = Workers(self.code, False, width, parts, narrow)
        body = workers.main()
        self.code.walk = again
        return workers, body

    def _kept_parts(self, width: int) -> int:
        """Return how many vectors a thread has of the rows that it keeps.

        Where the graph knows how long rows are, no thread computes more than it has to.
        """
        length, most = self.region.extent(self.region.row), self.most_parts(width)
        if not isinstance(length, int) or not length:
            return most
        groups = -(-length // width)
        parts = 1 if self.own else most
        return min(most, -(-groups // threads_of_row(groups, parts, KEEPING_THREADS)))

    def most_parts(self, width: int) -> int:
        """Return how many vectors a thread keeps of a row, at most."""
        if not self.own:
            return kept_parts(width)
        words = sum(self.code.accumulator(fold).itemsize // 4 for fold in self.code.own())
        return max(1, min(kept_parts(width), OWN_WORDS // (words * width)))

    def _keeping(self, width: int) -> str:
        workers, body = self._kept(width)
        assert workers.kept is not None
        few = workers.kept.words <= ROOM
        self.resident = OWN_BLOCKS if self.own else KEEPING_BLOCKS[few]
        return self._kernel(f"k{width}", [*body, *self._tail()], KEEPING_THREADS, self.resident)

    def _narrow(self, width: int, narrow: Narrow) -> str:
        self.code.half, self.code.fewer = str(narrow.lanes // 2), not narrow.groups
        body = self._kept(width, narrow)[1]
        self.code.half, self.code.fewer = HALF_WARP, False
        return self._kernel(f"n{width}", body, THREADS_BESIDE, self._least_narrow())

    def _least_narrow(self) -> int:
        """Return how many blocks of short rows a multiprocessor is to have room for.

        Rows of one operand that are only summed up need few registers, and all threads.
        """
        alone = self.region.passes == 1 and len(self.region.accesses) == 1
        return 2048 // THREADS_BESIDE if alone and self._is_narrow() else 1

    def _is_narrow(self) -> bool:
        """Return whether no value takes more than a register."""
        return all(value.node.dtype.itemsize <= 4 for value in self.region.values.values())

    def _least_blocks(self) -> int:
        """Return how many blocks of a flat kernel a multiprocessor is to have room for.

        Memory is busy while some 32 KB a multiprocessor are under way, 16 bytes a read of a
        thread: with one read all threads are needed, and their registers are few. Where a thread
        computes eight neighbours, compilers take more registers than pay.
        """
        reads = len(self.region.accesses)
        if self.way == "flat" and self.widths[-1] == 8 and 1 < reads <= MOST_READS:
            return 1024 // THREADS
        alone = self.way == "flat" and reads == 1 and self._is_narrow()
        return 2048 // THREADS if alone else 1

    def _most_threads(self, width: int) -> int:
        if self.way == "columns" and width > 1:
            return COLUMN_THREADS  # they have sums of several columns, and need more registers
        return THREADS if self.way == "flat" else MAX_THREADS

    def _tail(self) -> list[str]:
        return self._ends.tail() if self.cross else []

    @property
    def ends(self) -> list[str]:
        """The kernels that add up lines of partial results, and use them."""
        return [suffix for suffix in self.suffixes if suffix.startswith(_ENDS)]

    def _finish(self) -> list[str]:
        """Return the kernels that add up lines of partial results, and use them."""
        ends = self._ends
        if self.joined:
            return [self._kernel("end", ends.joined(), MAX_THREADS)]
        texts = []
        for position, fold in enumerate(self.region.folds):
            if not fold.row:
                texts.append(self._kernel(f"join{position}", ends.join(fold), MAX_THREADS))
        for position, outputs in enumerate(late_groups(self.region)):
            texts.append(self._kernel(f"late{position}", ends.late(outputs), THREADS))
        return texts

    def _kernel(self, suffix: str, body: Sequence[str], threads: int, blocks: int = 1) -> str:
        self.suffixes.append(suffix)
        text = "\n".join(body)
        shared = []
        if "mg_buffer" in text:
            shared.append(f"__shared__ double mg_buffer[{MAX_THREADS}];")
        if "mg_places" in text:
            shared.append(f"__shared__ int64_t mg_places[{MAX_THREADS}];")
        head = [
            "const int64_t *v = arguments.v;", *shared, *self.code.header(text, 0), "mg_begin();"
        ]
        self.texts[suffix] = "\n".join(
            [
                f'extern "C" __global__ void __launch_bounds__({threads}, {blocks}) '
                f"mg_kernel_{suffix}(const __grid_constant__ mg_arguments arguments)",
                "{",
                *indent([*head, *body]),
                "}",
                "",
            ]
        )
        return self.texts[suffix]

    def text(self, suffix: str) -> str:
        """Return the source of one kernel; a launch that does not overlap waits for nothing."""
        plain = suffix.removesuffix(ALONE_NAME)
        text = self.texts[plain]
        if plain == suffix:
            return text
        return text.replace(f"mg_kernel_{plain}(", f"mg_kernel_{suffix}(").replace(_WAITS, "")
