"""Sums of large arrays through memory that the ranks of one host share.

Arrays go through in pieces. Two or three ranks each join a piece of all ranks' arrays, whole. Of
more, every rank joins its part of the piece, in the order of the ranks, and lays down the result,
which the others take: each element is added up once. Either way all ranks get the same bits. Two
buffers take turns, so that no rank writes where another may still read: a piece takes one or two
meetings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .reducing import FUNCTIONS, narrow, reduced

__all__ = ["PIECE", "REDUNDANT", "SharedMemory", "pieces"]

PIECE = 8 << 20  # bytes of a buffer: four of them fit the cache that two cores share
AGAIN = 512 << 10  # bytes from which buffers in caches are worth a second meeting
REDUNDANT = 3  # ranks of which each joins everything: that reads less than a second exchange


class SharedMemory:
    """Buffers of the ranks of one host, each of which all of them can read.

    Parameters
    ----------
    communicator
        mpi4py's, of ranks of one host.
    window
        mpi4py's, of ``2 * PIECE`` bytes of each rank.
    meet
        Returns when all ranks have called it.
    """

    def __init__(self, communicator: Any, window: Any, meet: Callable[[], object]) -> None:
        self._window, self._meeting = window, meet
        self._rank, self._size = communicator.Get_rank(), communicator.Get_size()
        self._buffers = []
        for rank in range(self._size):
            buffer, _ = window.Shared_query(rank)
            whole = np.frombuffer(buffer, np.uint8)
            self._buffers.append((whole[:PIECE], whole[PIECE:]))
        self._turn = 0
        self._free = False  # whether nobody reads the last buffers any more
        # The buffers of both turns as arrays of a dtype, made once.
        self._views: dict[np.dtype, tuple[list[np.ndarray], list[np.ndarray]]] = {}
        window.Lock_all()

    def reduce(
        self, arrays: Sequence[np.ndarray], op: str, targets: Sequence[np.ndarray]
    ) -> None:
        """Join arrays of one dtype element by element over the ranks, into others of their shapes.

        A target may be its array.
        """
        if len(arrays) == 1 and self._size <= REDUNDANT and arrays[0].nbytes <= PIECE:
            self._small(arrays[0], op, targets[0])
            return
        sources = [array.reshape(-1) for array in arrays]
        results = [target.reshape(-1) for target in targets]
        count = PIECE // sources[0].itemsize
        for piece in pieces([source.size for source in sources], count):
            self._piece(piece, sources, results, op)

    def _small(self, array: np.ndarray, op: str, target: np.ndarray) -> None:
        """Join arrays that fit a buffer whole, by one meeting, or by two in the same buffers."""
        again = array.nbytes >= AGAIN
        buffers = self._take_turn(array.dtype, stay=again and self._free)
        count = array.size
        buffers[self._rank][:count] = array.reshape(-1)
        self._meet()
        _join([buffer[:count] for buffer in buffers], op, target.reshape(-1))
        if again:
            self._meet()
            self._free = True

    def _take_turn(self, dtype: np.dtype, stay: bool = False) -> list[np.ndarray]:
        """Return the ranks' buffers that are no longer read; the last ones if these `stay`."""
        views = self._views.get(dtype)
        if views is None:
            first, second = zip(*self._buffers, strict=True)
            views = [b.view(dtype) for b in first], [b.view(dtype) for b in second]
            self._views[dtype] = views
        if not stay:
            self._turn = 1 - self._turn
            self._free = False
        return views[self._turn]

    def _piece(
        self,
        piece: Sequence[tuple[int, int, int, int]],
        sources: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
        op: str,
    ) -> None:
        buffers = self._take_turn(sources[0].dtype)
        mine = buffers[self._rank]
        for number, low, high, at in piece:
            mine[at : at + high - low] = sources[number][low:high]
        total = piece[-1][3] + piece[-1][2] - piece[-1][1]
        self._meet()
        if self._size <= REDUNDANT:
            for number, low, high, at in piece:
                parts = [buffer[at : at + high - low] for buffer in buffers]
                _join(parts, op, results[number][low:high])
            return
        first, last = self._part(self._rank, total)
        mine[first:last] = _join([buffer[first:last] for buffer in buffers], op)
        self._meet()
        for rank, buffer in enumerate(buffers):
            first, last = self._part(rank, total)
            for number, low, high, at in piece:
                begin, end = max(first, at), min(last, at + high - low)
                if begin < end:
                    results[number][low + begin - at : low + end - at] = buffer[begin:end]

    def _part(self, rank: int, total: int) -> tuple[int, int]:
        """Return where a rank's part of a piece begins and ends."""
        return rank * total // self._size, (rank + 1) * total // self._size

    def _meet(self) -> None:
        self._window.Sync()
        self._meeting()
        self._window.Sync()


def _join(parts: Sequence[np.ndarray], op: str, out: np.ndarray | None = None) -> np.ndarray:
    """Join parts, from the first to the last, into memory that is none of theirs."""
    if narrow(parts[0].dtype):
        return reduced(parts, op, out)
    function = FUNCTIONS[op]
    total: np.ndarray = function(parts[0], parts[1], out=out)
    for part in parts[2:]:
        function(total, part, out=total)
    return total


def pieces(sizes: Sequence[int], count: int) -> Iterator[list[tuple[int, int, int, int]]]:
    """Yield stretches of arrays that fill a buffer together: array, from, to, place in the buffer.

    Examples
    --------
    >>> list(pieces([3, 6], 5))
    [[(0, 0, 3, 0), (1, 0, 2, 3)], [(1, 2, 6, 0)]]
    """
    piece: list[tuple[int, int, int, int]] = []
    at = 0
    for number, size in enumerate(sizes):
        low = 0
        while low < size:
            high = min(size, low + count - at)
            piece.append((number, low, high, at))
            at += high - low
            low = high
            if at == count:
                yield piece
                piece, at = [], 0
    if piece:
        yield piece
