"""Batches: the rows of some arrays, some at a time, in an order that a seed decides."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import DataError, message
from ..ir.docstrings import documented
from ..ir.values.given import plain_array


class Batches:
    """An iterable of batches; each iteration is an epoch, with an order of its own.

    Made by `batches`. The arrays of a batch belong to the caller for as long as he keeps them:
    memory is used again only when nothing refers to it any more. `Function.run` brings all rows to
    its device once, where they fit, and gathers the batches there: rows that are changed in place
    afterwards want a new `Batches`.

    Attributes
    ----------
    epoch : int
        How many epochs have been begun. Set it to go on where an earlier run stopped: the order
        of an epoch depends on the seed and its number alone.
    shard : tuple of int
        Which part of each batch is given, and of how many.
    """

    def __init__(
        self,
        arrays: tuple[NDArray[Any], ...],
        size: int,
        shuffle: bool,
        seed: int,
        drop_last: bool,
        shard: tuple[int, int] = (0, 1),
    ) -> None:
        self.shard = shard
        self.arrays = arrays
        self.size = size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0
        self._made: tuple[tuple[int, int, int], NDArray[np.int64]] | None = None
        self._pools = [_Pool((size, *array.shape[1:]), array.dtype) for array in arrays]

    def __repr__(self) -> str:
        return f"Batches({len(self)} of {self.size} rows, epoch {self.epoch})"

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        rows = len(self.arrays[0])
        return rows // self.size if self.drop_last else math.ceil(rows / self.size)

    def __iter__(self) -> Iterator[tuple[NDArray[Any], ...]]:
        """Begin the next epoch."""
        order = self.begin()
        return self._in_order() if order is None else self._shuffled(order)

    def rows(self, index: int) -> int:
        """Return the number of rows in a batch, with those of all its parts."""
        return min(self.size, len(self.arrays[0]) - index * self.size)

    def _part(self, index: int) -> slice:
        """Return where the rows of a batch stand that are given."""
        start = index * self.size
        begin, end = part(self.rows(index), *self.shard)
        return slice(start + begin, start + end)

    def begin(self) -> NDArray[np.int64] | None:
        """Begin the next epoch; return the order of its rows, None where they are not shuffled."""
        epoch, self.epoch = self.epoch, self.epoch + 1
        if not self.shuffle:
            return None
        made, self._made = self._made, None
        if made is not None and made[0] == self._kind(epoch):
            return made[1]
        return self._order(epoch)

    def prepare(self) -> None:
        """Make the order of the next epoch, which takes 15 ns a row, while a device works."""
        if self.shuffle:
            self._made = self._kind(self.epoch), self._order(self.epoch)

    def _kind(self, epoch: int) -> tuple[int, int, int]:
        """Return what the order of an epoch depends on."""
        return self.seed, epoch, len(self.arrays[0])

    def _order(self, epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng((self.seed, epoch)).permutation(len(self.arrays[0]))

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind in a pickle or a copy what can be made again."""
        left = ("_pools", "_made")
        return {name: value for name, value in vars(self).items() if name not in left}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._made = None
        self._pools = [_Pool((self.size, *array.shape[1:]), array.dtype) for array in self.arrays]

    def _in_order(self) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yield views of the data, which cannot be written through."""
        for index in range(len(self)):
            rows = self._part(index)
            batch = tuple(array[rows] for array in self.arrays)
            for view in batch:
                view.flags.writeable = False
            yield batch

    def _shuffled(self, order: NDArray[np.int64]) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yield rows gathered into memory that nobody uses."""
        for index in range(len(self)):
            rows = order[self._part(index)]
            batch = tuple(
                # "clip" spares the buffering that checked indices would cost.
                np.take(array, rows, axis=0, out=pool.free()[: len(rows)], mode="clip")
                for array, pool in zip(self.arrays, self._pools, strict=True)
            )
            yield batch
            del batch


def part(rows: int, index: int, count: int) -> tuple[int, int]:
    """Return begin and end of one of several parts of some rows, as even as they can be.

    Examples
    --------
    >>> [part(10, i, 4) for i in range(4)]
    [(0, 2), (2, 5), (5, 7), (7, 10)]
    """
    return index * rows // count, (index + 1) * rows // count


@documented
def batches(
    *arrays: ArrayLike,
    size: int = 100,
    shuffle: bool = True,
    seed: int = 0,
    drop_last: bool = False,
    shard: tuple[int, int] | None = None,
) -> Batches:
    """Return the rows of some arrays in batches, to go through any number of times.

    *arrays (array-like, shape (rows, ...)): Examples, labels and what else belongs together, row by
        row. Any dtypes.
    size (int): The number of rows in a batch.
    shuffle (bool): Whether each epoch has an order of its own. If not, batches are read-only views.
    seed (int): Decides, with the number of the epoch, the order.
    drop_last (bool): Whether a last batch of fewer rows is left out.
    shard (tuple of int, optional): ``(rank, ranks)``: of each batch only that part of the rows is
        given, so that ranks share the batches of one order, ``size`` rows together. Parts may
        differ by a row.
    returns (Batches): An iterable over tuples of arrays, shapes (size, ...) each; `len` is the
        number of batches.
    raises DataError: If there is no array, the numbers of rows differ, `size` is not positive, or
        `shard` is no part.

    Examples
    --------
    >>> import numpy as np
    >>> rows = batches(np.arange(5), np.arange(5) * 10, size=2, seed=1)
    >>> for x, y in rows:
    ...     assert (y == 10 * x).all()
    >>> len(rows), [len(x) for x, y in rows], rows.epoch
    (3, [2, 2, 1], 2)
    """
    try:
        held = tuple(plain_array(array) for array in arrays)
    except ValueError as error:
        raise DataError(message(f"batches cannot be taken: {error}")) from None
    if not held or any(array.ndim == 0 for array in held):
        raise DataError(
            message(
                "there is nothing to take batches of",
                need="arrays with rows along their first axis",
                hint=_size_by_name(held),
            )
        )
    if len({len(array) for array in held}) > 1:
        raise DataError(
            message(
                f"arrays of {', '.join(str(len(array)) for array in held)} rows have no common "
                "batches",
                need="the same number of rows in each",
            )
        )
    if not isinstance(size, (int, np.integer)) or size < 1:
        raise DataError(
            message(f"batches of {size!r} rows cannot be made", need="size, an int of at least 1")
        )
    size = int(size)
    if shard is not None and not 0 <= shard[0] < shard[1]:
        raise DataError(
            message(f"shard={shard!r}", need="(rank, ranks)", hint="shard=(0, 2), say")
        )
    return Batches(held, size, shuffle, seed, drop_last, shard or (0, 1))


def _size_by_name(given: Sequence[NDArray[Any]]) -> str | None:
    """Return what to write where a number stands behind the arrays."""
    if len(given) < 2 or given[-1].ndim or given[-1].dtype.kind not in "iu":
        return None
    return f"size={given[-1]}: options by their names"


class _Pool:
    """Buffers of one shape, each handed out again once all that refer to it are gone."""

    # Beyond this many the caller is collecting batches, and memory of his own serves him better.
    _MOST = 4

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype
        self.buffers: list[NDArray[Any]] = []
        self.lock = threading.Lock()
        # What the interpreter counts for a buffer that only the pool holds, which depends on its
        # version; a view counts too, for it keeps its base alive.
        probe = [object()]
        self.idle = min(sys.getrefcount(held) for held in probe)

    def free(self) -> NDArray[Any]:
        """Return a buffer that nobody uses, with anything in it."""
        with self.lock:
            counts = [sys.getrefcount(held) for held in self.buffers]
            for buffer, count in zip(self.buffers, counts, strict=True):
                if count <= self.idle:
                    return buffer
            fresh = np.empty(self.shape, self.dtype)
            if len(self.buffers) < self._MOST:
                self.buffers.append(fresh)
            return fresh
