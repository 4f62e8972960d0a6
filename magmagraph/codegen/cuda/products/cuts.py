"""How generated products are cut into tiles, warps and stages: which shapes, and how."""

from __future__ import annotations

from ....ir.records import record
from ..limits import MULTIPROCESSORS

__all__ = ["Configuration", "Tile", "cut_for", "cut_of_rows"]

SHARED = 112 << 10  # bytes a block may have: two of them fit a multiprocessor


@record(frozen=True)
class Configuration:
    """How a product is cut.

    Attributes
    ----------
    down, across
        How many tiles of 16 x 8 a warp computes.
    warps
        How many there are along the rows, the columns and the contracted axis.
    stages
        How many sixteens of the contracted axis a warp reads at once.
    terms
        3: each factor is the sum of two numbers of 11 digits, of whose four products the smallest
        is left out, for float32's accuracy. 1: factors are rounded to 11 digits ("tf32").
    """

    down: int
    across: int
    warps: tuple[int, int, int]
    stages: int
    terms: int = 3

    @property
    def rows(self) -> int:
        """Rows of a block's tile."""
        return 16 * self.down * self.warps[0]

    @property
    def columns(self) -> int:
        """Columns of a block's tile."""
        return 8 * self.across * self.warps[1]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps[0] * self.warps[1] * self.warps[2]

    @property
    def items(self) -> int:
        """Elements of the tile that a thread finishes."""
        return -(-self.rows * self.columns // self.threads)

    @property
    def reach(self) -> int:
        """How much of the contracted axis the warps read at once."""
        return 16 * self.warps[2] * self.stages

    @property
    def name(self) -> str:
        """A name to keep a choice by."""
        warps = "x".join(map(str, self.warps))
        return f"{self.down}x{self.across}/{warps}/{self.stages}/{self.terms}"

    @property
    def common(self) -> bool:
        """Whether warps of one row or column of the tile share their operands."""
        return self.warps[2] == 1 and self.warps[0] * self.warps[1] > 1

    @property
    def lines(self) -> tuple[int, int]:
        """How many times eight rows of the two factors a block holds at a time."""
        rows, columns, parts = self.warps
        sharing = (rows, columns) if self.common else (rows * columns * parts,) * 2
        return 2 * self.down * sharing[0], self.across * sharing[1]

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block: factors at first, then the warps' tiles."""
        factors = sum(self.lines) * self.stages * 8 * 16
        return 4 * max(factors, self.warps[2] * self.rows * (self.columns + 4))


@record(frozen=True)
class Tile:
    """A part of a second product's result, which a block computes after the first.

    Attributes
    ----------
    rows, columns
        Of the part.
    threads
        Of the block.
    """

    rows: int
    columns: int
    threads: int

    @property
    def items(self) -> int:
        """Elements that a thread finishes."""
        return -(-self.rows * self.columns // self.threads)


MOST_WARPS = 16
SMALL = 1 << 17  # elements of a result that leaves a device empty in a library's tiles
SHORT = 256  # a contracted axis so short that this holds for larger results, too
FEW = 8  # sixteens of a contracted axis that a block holds, all warps in common
MANY = 300_000  # elements of which smaller blocks are faster where the contracted axis is short
LONG = 2048
MANY_GROUPS = 25  # sixteens of a contracted axis: five warps at least, where each reads five
ROW = 32  # elements of a row that the lanes of a warp have one each of


def cut_for(
    m: int, n: int, k: int, terms: int = 3, alone: bool = False
) -> Configuration | None:
    """Return how a product is cut, or None where a library is as fast.

    The rules are measured (`benchmarks/cuda_step.py`) and not timed anew by each process: a choice
    by the clock would change results from run to run.

    Parameters
    ----------
    m, n, k, terms
        See `ProductShape`.
    alone
        Whether no other product of so large a result runs beside it.
    """
    groups = -(-k // 16)
    if groups <= 2 and m * n <= 2 * SMALL:
        cuts = [(1, 2, (2, 2, 1), groups)]
    elif m * n <= SMALL and k <= LONG:
        tiles = ((1, 1),) if n <= 16 else _tiles(m, n, terms)
        several = _stages(n, groups, terms)
        cuts = [(*tile, *_along(groups, stages)) for tile in tiles for stages in several]
        cuts = [cut for cut in cuts if cut[2][2] <= MOST_WARPS]
        cuts.append((1, 4, (1, 1, 12), 3))
    elif m * n <= 4 * SMALL and groups <= FEW:
        cuts = [(1, 2, (_high(m, n, terms, alone), 4, 1), groups)]
    elif m * n <= 4 * SMALL and k <= SHORT:
        warps = 2 if m * n <= MANY and groups <= 8 else 4
        cuts = [(2, 4, (1, 1, warps), min(4, -(-groups // warps)))]
    else:
        return None
    configurations = (Configuration(*cut, terms) for cut in cuts)
    return next((cut for cut in configurations if cut.shared <= SHARED), None)


def _tiles(m: int, n: int, terms: int) -> tuple[tuple[int, int], ...]:
    """Return tiles that a warp may compute where the contracted axis is long, the best first.

    Factors that are split take instructions: then two small blocks on a multiprocessor, which take
    turns at them and at waiting, are faster than one, though they read more.
    """
    small = -(-m // 16) * -(-n // 16) <= 2 * MULTIPROCESSORS
    return ((1, 2), (1, 4)) if terms > 1 and small else ((1, 4), (1, 2))


def _stages(n: int, groups: int, terms: int) -> tuple[int, ...]:
    """Return how many sixteens a warp may read at once where warps share them out, the best first.

    Factors that are rounded take few instructions: a warp that reads more of a long axis has more
    under way, and fewer tiles are added up. Those that are split want many warps, and so do narrow
    results.
    """
    many = terms == 1 and n > 16 and groups >= MANY_GROUPS
    return (5, 4, 3, 2) if many else (3, 4, 2, 5)


def _high(m: int, n: int, terms: int, alone: bool) -> int:
    """Return how many times 16 rows tiles of 64 columns have.

    Few where factors are split, so that blocks take turns, see `_tiles`, or where nothing else
    takes turns with these; otherwise so many that no block is left over.
    """
    if terms > 1 or alone:
        return 2
    fits = (high for high in (2, 3) if -(-m // (16 * high)) * -(-n // 64) <= MULTIPROCESSORS)
    return next(fits, 4)


def cut_of_rows(m: int, n: int, k: int, terms: int = 3) -> Configuration | None:
    """Return how a product is cut whose rows are whole in a tile, or None where they are long."""
    if n > ROW or m * n > SMALL or k > LONG:
        return None
    tile, groups = (1, -(-n // 8)), -(-k // 16)
    cuts = [(*tile, *_along(groups, stages)) for stages in (3, 4, 2, 5)]
    cuts = [cut for cut in cuts if cut[2][2] <= MOST_WARPS]
    cuts.append((*tile, (1, 1, 12), 3))
    configurations = (Configuration(*cut, terms) for cut in cuts)
    return next((cut for cut in configurations if cut.shared <= SHARED), None)


def _along(groups: int, stages: int) -> tuple[tuple[int, int, int], int]:
    """Return the warps that read all of the contracted axis in so many stages."""
    return (1, 1, -(-groups // stages)), stages
