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
KEEPING_THREADS = 256  # of a block, at most, whose threads keep what they read of a row
KEEPING_BLOCKS = (3, 4)  # of those on a multiprocessor: that keep more words than ROOM, or less
ROOM = 32
ENTRIES = 8  # partial results of no axes that fit into the line planned for one
MULTIPROCESSORS = 132  # of an H200, where no device is asked
