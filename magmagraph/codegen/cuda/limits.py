"""How many threads, rows and registers the kernels of regions use."""

from __future__ import annotations

LANES = 32  # threads of a warp, which run side by side along the innermost loop
THREADS = 128  # of a block whose threads take elements in turn
MAX_THREADS = 1024
COLUMN_SUMS = 16  # of a thread, at most: more would not fit into its registers
COLUMN_THREADS = 512  # of a block whose threads have sums of columns: more have less to add up
TALL_THREADS = 256  # of a block whose threads take neighbours down some rows
TILE_THREADS = 256  # of a block that has a tile of two loops
WINDOW_THREADS = 256  # of a block whose threads have some elements below each other
PARTS = 4  # vectors of a row that a thread has, at least, where there are as many
KEPT_PARTS = 8  # vectors of a row that a thread keeps, at most
KEPT_SINGLES = 16  # and elements, where rows have no vectors: a warp does not wait for others
KEEPING_THREADS = 256  # of a block, at most, whose threads keep what they read of a row
KEEPING_BLOCKS = (3, 4)  # of those on a multiprocessor: that keep more words than ROOM, or less
ROOM = 32
OWN_WORDS = 64  # of the sums across rows that a thread keeps of its places, at most
OWN_BLOCKS = 2  # of those threads on a multiprocessor
UNDER_WAY = 4  # reads of a thread that are asked for before the first is used
ENTRIES = 8  # partial results of no axes that fit into the line planned for one
MULTIPROCESSORS = 132  # of an H200, where no device is asked


def kept_parts(width: int) -> int:
    """Return how many pieces of so many elements a thread keeps of a row, at most."""
    return KEPT_PARTS if width > 1 else KEPT_SINGLES


def threads_of_row(vectors: int, parts: int, most: int) -> int:
    """Return how many threads have a row of so many vectors, each `parts` of them at most.

    Examples
    --------
    >>> threads_of_row(333, 8, 256), threads_of_row(20, 8, 256)
    (64, 32)
    """
    threads = LANES
    while threads < most and threads * parts < vectors:
        threads *= 2
    return threads
