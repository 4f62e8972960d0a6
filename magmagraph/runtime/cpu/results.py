"""Buffers for results: owned by the caller, used again only after the caller dropped them."""

from __future__ import annotations

import sys

import numpy as np

from .support import address_of

KEPT = 4  # buffers held ready for each output


class ResultPool:
    """Makes the arrays of one output.

    A buffer is handed out again only when nobody else refers to it: the count of references,
    taken when the pool alone holds it, is the measure. Views that a caller keeps count too,
    since each holds the array that owns the memory. An array that a caller has made read-only, or
    given another shape or dtype, is not handed out again.
    """

    __slots__ = ("_alone", "_entries", "dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape = shape
        self.dtype = dtype
        self._entries: list[tuple[np.ndarray, int]] = []
        self._alone = 0

    def take(self) -> tuple[np.ndarray, int]:
        """Return an array that is not in use, and its address."""
        for entry in self._entries:
            if (
                sys.getrefcount(entry[0]) == self._alone
                and entry[0].flags.carray
                and entry[0].shape == self.shape
                and entry[0].dtype is self.dtype
            ):
                return entry
        array = np.empty(self.shape, self.dtype)
        entry = (array, address_of(array))
        if len(self._entries) < KEPT:
            self._entries.append(entry)
            if not self._alone:
                del array
                self._alone = sys.getrefcount(entry[0])
        return entry
