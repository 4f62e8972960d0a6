"""How short rows are shared out: each has a few lanes of a warp."""

from __future__ import annotations

from ...ir.records import record
from ..region.analysis import Region
from .limits import LANES

__all__ = ["LANES_EACH", "THREADS_BESIDE", "Narrow", "narrow_rows"]

THREADS_BESIDE = 256  # of a block whose warps have several rows each
LANES_EACH = 8  # of a row among these, at most, where only launches know how long rows are
VECTORS = (4, 2)  # of a lane, at most: where rows are only summed up, and else
# Where the graph knows:
LONGEST = 128  # elements of a row
SHORT = 32  # elements up to which that pays however few rows there are
MOST_LANES = LANES // 2  # of a row
MOST_PARTS = 8  # vectors of a lane
MOST_HELD = 16  # elements of a lane
MOST_ALONE = 4  # of one that has a row alone, where it passes over it again
SINGLES = 4  # elements of a lane that are as good as its vectors, where these are shorter


@record(frozen=True)
class Narrow:
    """How rows are shared out to lanes of a warp.

    Attributes
    ----------
    parts
        How many vectors a lane has, at most.
    groups
        How many vectors a row has; 0 where only launches know.
    lanes
        How many lanes a row has, at most.
    short
        Whether that pays however few rows there are.
    """

    parts: int
    groups: int = 0
    lanes: int = LANES_EACH
    short: bool = False

    @property
    def full(self) -> bool:
        """Whether each lane is known to have all its vectors."""
        return self.groups == self.lanes * self.parts

    def block(self, groups: int) -> tuple[int, int, int]:
        """Return the block for rows of so many vectors.

        Where only launches know how many lanes a row has, a block is as wide, and as deep as it has
        rows, which may be 64. Where the kernel knows, it is as wide as a warp.
        """
        if self.groups:
            return LANES, 1, THREADS_BESIDE // LANES
        lanes = max(4, _doubled(-(-groups // self.parts)))
        return lanes, 1, THREADS_BESIDE // lanes

    def rows(self, block: tuple[int, int, int]) -> int:
        """Return how many rows a block has at a time."""
        return block[2] * (LANES // self.lanes if self.groups else 1)

    def serves(self, groups: int) -> bool:
        """Return whether rows of so many vectors are shared out like this."""
        return groups == self.groups if self.groups else 0 < groups <= LANES // 2


def narrow_rows(region: Region, width: int) -> Narrow | None:
    """Return how rows are shared out that are moved `width` elements at a time, None if not."""
    each = VECTORS[region.passes > 1]
    length, inside = region.extent(region.row), region.loops[region.depth - 1].extent
    if not (isinstance(length, int) and isinstance(inside, int)):
        return Narrow(each) if width > 1 else None
    groups = length // width
    if inside % width or not 0 < length <= LONGEST:
        return None
    # What lanes compute beside the row costs most; then, too many lanes or too long ones.
    each = max(each, SINGLES // width)
    cheapest = None
    for lanes in (1 << power for power in range(MOST_LANES.bit_length())):
        parts = -(-groups // lanes)
        registers = parts * width
        if parts > MOST_PARTS or registers > MOST_HELD:
            continue
        if lanes == 1 and parts > 1 and registers > MOST_ALONE and region.passes > 1:
            continue
        cost = lanes * parts, max(parts / each, each / parts)
        if cheapest is None or cost < cheapest[0]:
            cheapest = cost, Narrow(parts, groups, lanes, length <= SHORT)
    return None if cheapest is None else cheapest[1]


def _doubled(count: int) -> int:
    """Return the smallest power of two that is not below a count."""
    return 1 << max(0, count - 1).bit_length()
